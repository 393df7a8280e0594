/*
 * /v1/sandboxes/{id}/overlays: the directories of the host that a sandbox sees through an overlay,
 * and the commit of one. The diff of one is a download (execd_download.c).
 *
 * A commit cannot be called off: when its client leaves, the operation forgets the request and is
 * freed when the service reports.
 */
#include "supervisor/daemon/overlays.h"
#include "supervisor/api/files_call.h"
#include "supervisor/api/json_body.h"

#include <errno.h>
#include <stdlib.h>

/* ---- the list ---- */

struct listing {
	struct sp_files_call call;
	uint32_t count;
};

static void listing_release(struct sp_files_call *call)
{
	sp_files_call_done(call);
	free(SP_CONTAINER_OF(call, struct listing, call));
}

/* used NULL: it cannot be told now. */
static void write_overlay(struct sp_json_out *out, const struct sp_overlay_info *info,
			  const uint64_t *used)
{
	sp_json_open(out, NULL, '{');
	sp_json_unsigned(out, "number", info->number);
	sp_json_text(out, "source", info->source);
	sp_json_text(out, "target", info->target);
	sp_json_unsigned(out, "size_bytes", info->size);
	if (used)
		sp_json_unsigned(out, "used_bytes", *used);
	else
		sp_json_null(out, "used_bytes");
	sp_json_text(out, "state", info->ended ? "ended" : info->spoilt ? "spoilt" : "clean");
	if (info->spoilt)
		sp_json_text(out, "reason", info->spoilt);
	sp_json_boolean(out, "read_only", info->read_only);
	sp_json_close(out, '}');
}

static void list_next(struct listing *listing);

/* False: it is gone, and that is answered. */
static bool list_one(struct listing *listing, const uint64_t *used)
{
	struct sp_files_call *call = &listing->call;
	struct sp_request *request = call->request;
	struct sp_overlay_info info;
	struct sp_err err = {0};

	if (sp_overlay_get(request->api->service, &request->caller, request->name,
			   call->place.overlay, &info, &err) < 0) {
		sp_files_reply_error(call, &err);
		return false;
	}
	write_overlay(&call->out, &info, used);
	return true;
}

static void on_used(void *arg, const struct sp_file_info *info, const struct sp_err *err)
{
	struct listing *listing = arg;

	listing->call.op = NULL;
	if (list_one(listing, err ? NULL : &info->size))
		list_next(listing);
}

static void list_next(struct listing *listing)
{
	struct sp_files_call *call = &listing->call;
	struct sp_request *request = call->request;

	while (++call->place.overlay <= listing->count) {
		if (sp_file_used(request->api->service, &request->caller, &call->place, on_used,
				 listing, &call->op, NULL) == 0)
			return;
		if (!list_one(listing, NULL))
			return;
	}
	sp_json_close(&call->out, ']');
	sp_json_close(&call->out, '}');
	sp_files_reply_json(call);
}

static void list_start(struct sp_files_call *call)
{
	struct listing *listing = SP_CONTAINER_OF(call, struct listing, call);
	struct sp_err err = {0};

	if (sp_overlay_count(call->request->api->service, &call->request->caller,
			     call->request->name, &listing->count, &err) < 0) {
		sp_files_reply_error(call, &err);
		return;
	}
	sp_json_open(&call->out, NULL, '{');
	sp_json_open(&call->out, "overlays", '[');
	list_next(listing);
}

void sp_handle_overlay_list(struct sp_request *request)
{
	struct listing *listing = calloc(1, sizeof(*listing));
	struct sp_err err = {0};

	if (!listing) {
		(void)sp_err_set(&err, -ENOMEM, "list overlays");
		sp_reply_error(request, &err);
		return;
	}
	sp_files_call_init(&listing->call, request, listing_release);
	sp_files_call_run(&listing->call, list_start);
}

/* ---- commit ---- */

struct commit {
	struct sp_request *request; /* NULL: its client left */
	struct sp_overlay_commit *running;
};

static void commit_forget(struct sp_request *request)
{
	struct commit *commit = request->operation;

	sp_overlay_commit_forget(commit->running);
	free(commit);
}

static void on_committed(void *arg, const struct sp_overlay_committed *committed,
			 const struct sp_err *err)
{
	struct commit *commit = arg;
	struct sp_request *request = commit->request;
	struct sp_json_out out;
	struct sp_buf body;

	free(commit);
	if (err) {
		sp_reply_error(request, err);
		return;
	}
	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&out, &body);
	sp_json_open(&out, NULL, '{');
	sp_json_unsigned(&out, "files", committed->files);
	sp_json_unsigned(&out, "directories", committed->directories);
	sp_json_unsigned(&out, "deleted", committed->deleted);
	sp_json_unsigned(&out, "bytes", committed->bytes);
	if (committed->ended)
		sp_json_boolean(&out, "ended", true);
	sp_json_close(&out, '}');
	sp_reply_written(request, &out);
}

void sp_handle_overlay_commit(struct sp_request *request)
{
	struct commit *commit = calloc(1, sizeof(*commit));
	struct sp_err err = {0};
	int status = commit ? 0 : sp_err_set(&err, -ENOMEM, "commit");

	if (status == 0)
		status = sp_body_expect_empty(sp_buf_text(&request->body), request->body.len, &err);
	if (status == 0) {
		commit->request = request;
		status = sp_overlay_commit(request->api->service, &request->caller, request->name,
					   request->match.port, on_committed, commit,
					   &commit->running, &err);
	}
	if (status < 0) {
		free(commit);
		sp_reply_error(request, &err);
	} else if (sp_request_suspend(request, commit_forget, commit) < 0) {
		sp_overlay_commit_forget(commit->running);
		free(commit);
	}
}
