/*
 * The overlays of a sandbox, and the commit of one:
 *
 *	(checks) ──► WRITE_BACK ──► RENEW ──► answer
 *	                 └── refused ─────────────┘
 *
 * Both steps are operations of files.h, done inside. While a commit is under way nothing else
 * starts in its sandbox. Nobody can call it off: a client that leaves only hears no more of it. If
 * the sandbox dies in the middle, the base has all of it or nothing, at the latest when it is bound
 * again (bind.c).
 */
#include "supervisor/daemon/overlays.h"

#include "supervisor/daemon/daemon_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sp_overlay_commit {
	struct sp_list service_link; /* in service->commits */
	struct sandbox_link *link;   /* NULL: lost */
	uint32_t number;
	bool entering; /* a step of its own begins */
	struct sp_overlay_committed result;
	sp_overlay_commit_cb *cb; /* NULL: nobody listens */
	void *arg;
};

const struct sp_caller daemon_itself = {.operator_rights = true};

/* ---- the list ---- */

int overlays_add(struct sandbox_link *link, const struct resolved_bind *bind)
{
	struct sandbox_overlay *overlay = &link->overlays[bind->overlay - 1];

	sp_assert(bind->overlay == link->overlay_count + 1 &&
		  bind->overlay <= SP_ARRAY_SIZE(link->overlays));
	*overlay = (struct sandbox_overlay){
		.source = strdup(bind->source),
		.target = strdup(bind->target),
		.size = bind->size,
		.read_only = bind->read_only,
	};
	link->overlay_count++;
	upper_usage_watch(link->service);
	return overlay->source && overlay->target ? 0 : -ENOMEM;
}

void overlays_free(struct sandbox_link *link)
{
	for (uint32_t i = 0; i < link->overlay_count; i++) {
		free(link->overlays[i].source);
		free(link->overlays[i].target);
	}
	link->overlay_count = 0;
}

int sp_overlay_count(struct sp_service *service, const struct sp_caller *caller, const char *id,
		     uint32_t *ret_count, struct sp_err *err)
{
	struct sandbox_link *link;
	int status = service_find(service, caller, id, &link, err);

	if (status == 0)
		*ret_count = link->overlay_count;
	return status;
}

static int find(struct sandbox_link *link, uint32_t number, struct sandbox_overlay **ret_overlay,
		struct sp_err *err)
{
	if (number < 1 || number > link->overlay_count)
		return sp_err_code(err, SP_CODE_NOT_FOUND, -ENOENT,
				   "sandbox '%s' has no overlay %" PRIu32, link->id, number);
	*ret_overlay = &link->overlays[number - 1];
	return 0;
}

int sp_overlay_get(struct sp_service *service, const struct sp_caller *caller, const char *id,
		   uint32_t number, struct sp_overlay_info *ret_info, struct sp_err *err)
{
	struct sandbox_overlay *overlay = NULL;
	struct sandbox_link *link;
	int status = service_find(service, caller, id, &link, err);

	if (status == 0)
		status = find(link, number, &overlay, err);
	if (status < 0)
		return status;
	sp_assert(overlay);
	*ret_info = (struct sp_overlay_info){
		.number = number,
		.source = overlay->source,
		.target = overlay->target,
		.size = overlay->size,
		.read_only = overlay->read_only,
		.ended = overlay->ended,
		.spoilt = overlay->spoilt[0] != '\0' ? overlay->spoilt : NULL,
	};
	return 0;
}

void overlays_spoil(const struct sp_exec *exec, enum sp_exec_reason reason)
{
	struct sandbox_link *link = exec->sandbox;

	if (!link || reason == SP_EXEC_EXITED || reason == SP_EXEC_START_FAILED)
		return;
	for (uint32_t i = 0; i < link->overlay_count; i++) {
		struct sandbox_overlay *overlay = &link->overlays[i];

		if (overlay->spoilt[0] == '\0')
			(void)snprintf(overlay->spoilt, sizeof(overlay->spoilt),
				       "run %" PRIu32 " did not end by itself: %s", exec->number,
				       sp_exec_reason_name(reason));
	}
}

/* ---- commit ---- */

bool overlays_closed(const struct sandbox_link *link)
{
	return link->committing && !link->committing->entering;
}

void overlays_sandbox_lost(struct sandbox_link *link)
{
	if (link->committing)
		link->committing->link = NULL;
	link->committing = NULL;
}

void overlays_drop_all(struct sp_service *service)
{
	struct sp_overlay_commit *commit;

	while ((commit =
			SP_LIST_FIRST(&service->commits, struct sp_overlay_commit, service_link))) {
		if (commit->link)
			commit->link->committing = NULL;
		sp_list_remove(&commit->service_link);
		free(commit);
	}
}

/* The last of it. */
static void over(struct sp_overlay_commit *commit, const struct sp_err *err)
{
	const struct sp_overlay_committed result = commit->result;
	sp_overlay_commit_cb *cb = commit->cb;
	void *arg = commit->arg;

	if (commit->link)
		commit->link->committing = NULL;
	sp_list_remove(&commit->service_link);
	free(commit);
	if (cb)
		cb(arg, err ? NULL : &result, err);
}

static struct sp_file_place place_of(const struct sp_overlay_commit *commit)
{
	return (struct sp_file_place){
		.sandbox = commit->link->id,
		.overlay = commit->number,
		.uid = -1,
		.gid = -1,
	};
}

/* What was written back is: that there is no fresh upper ends the overlay, not the commit. */
static void on_renewed(void *arg, const struct sp_err *err)
{
	struct sp_overlay_commit *commit = arg;

	if (err && commit->link)
		commit->link->overlays[commit->number - 1].ended = true;
	commit->result.ended = err != NULL;
	over(commit, NULL);
}

static void renew(struct sp_overlay_commit *commit)
{
	struct sp_file_place place;
	struct sp_file_op *op;
	struct sp_err err = {0};

	if (!commit->link) {
		(void)sp_err_set(&err, -ESRCH, "renew");
		on_renewed(commit, &err);
		return;
	}
	place = place_of(commit);
	commit->entering = true;
	if (sp_file_renew(commit->link->service, &daemon_itself, &place, false, on_renewed, commit,
			  &op, &err) < 0)
		on_renewed(commit, &err);
	else
		commit->entering = false;
}

static void on_written_back(void *arg, const struct sp_file_counts *counts,
			    const struct sp_err *err)
{
	struct sp_overlay_commit *commit = arg;

	if (err) {
		over(commit, err);
		return;
	}
	commit->result = (struct sp_overlay_committed){
		.files = counts->files,
		.directories = counts->directories,
		.deleted = counts->deleted,
		.bytes = counts->bytes,
	};
	renew(commit);
}

static int conflict(const char *id, const char *why, struct sp_err *err)
{
	return sp_err_code(err, SP_CODE_CONFLICT, -EBUSY, "sandbox '%s' %s", id, why);
}

static int check_commit(const struct sandbox_link *link, const struct sandbox_overlay *overlay,
			struct sp_err *err)
{
	if (overlay->read_only)
		return sp_err_code(err, SP_CODE_BIND_REFUSED, -EROFS,
				   "'%s' may only be read: what was written above it cannot be "
				   "committed",
				   overlay->source);
	if (overlay->spoilt[0] != '\0')
		return sp_err_code(err, SP_CODE_CONFLICT, -ECANCELED,
				   "what was written above '%s' is spoilt: %s", overlay->source,
				   overlay->spoilt);
	if (overlay->ended)
		return sp_err_code(err, SP_CODE_CONFLICT, -ESTALE,
				   "the overlay of '%s' ended with its last commit",
				   overlay->source);
	if (link->committing)
		return conflict(link->id, "is being committed", err);
	if (link->running_execs > 0)
		return conflict(link->id, "runs something", err);
	if (link->isolated_count > 0)
		return conflict(link->id, "has isolated sessions, which see its overlays", err);
	if (link->file_count > 0)
		return conflict(link->id, "has operations on files under way", err);
	return 0;
}

int sp_overlay_commit(struct sp_service *service, const struct sp_caller *caller, const char *id,
		      uint32_t number, sp_overlay_commit_cb *cb, void *arg,
		      struct sp_overlay_commit **ret_commit, struct sp_err *err)
{
	struct sandbox_overlay *overlay = NULL;
	struct sp_overlay_commit *commit;
	struct sandbox_link *link;
	struct sp_file_place place;
	struct sp_file_op *op;
	int status = service_find(service, caller, id, &link, err);

	if (status == 0)
		status = find(link, number, &overlay, err);
	if (status == 0)
		status = check_commit(link, overlay, err);
	if (status < 0)
		return status;
	commit = calloc(1, sizeof(*commit));
	if (!commit)
		return sp_err_set(err, -ENOMEM, "commit");
	*commit = (struct sp_overlay_commit){.link = link, .number = number, .cb = cb, .arg = arg};
	place = place_of(commit);
	status = sp_file_write_back(service, caller, &place, on_written_back, commit, &op, err);
	if (status < 0) {
		free(commit);
		return status;
	}
	link->committing = commit;
	sp_list_append(&service->commits, &commit->service_link);
	*ret_commit = commit;
	return 0;
}

void sp_overlay_commit_forget(struct sp_overlay_commit *commit)
{
	commit->cb = NULL;
}
