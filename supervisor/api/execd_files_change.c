/*
 * What is changed without data: /files/mv, /files/permissions, DELETE /files, /directories.
 *
 * Each request is a list of steps, done one after the other; the first that fails ends it, and what
 * was done before it stays done. The whole request is read and judged before the first step.
 */
#include "supervisor/api/files_call.h"
#include "supervisor/api/json_body.h"
#include "supervisor/api/query.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct step {
	char *path;
	char *to; /* of a move */
	struct sp_files_permission permission;
};

struct changes {
	struct sp_files_call call;
	/* Begins one step; its callback is on_changed(). */
	int (*change)(struct changes *changes, struct step *step, struct sp_err *err);
	bool missing_is_fine; /* for execd */
	bool always_failure;  /* execd answers 500 whatever is wrong */
	json_t *body;         /* the permissions' names are its */
	struct step *steps;
	size_t count;
	size_t next;
};

static void changes_release(struct sp_files_call *call)
{
	struct changes *changes = SP_CONTAINER_OF(call, struct changes, call);

	sp_files_call_done(call);
	for (size_t i = 0; i < changes->count; i++) {
		free(changes->steps[i].path);
		free(changes->steps[i].to);
	}
	free(changes->steps);
	json_decref(changes->body);
	free(changes);
}

static void fail(struct changes *changes, const struct sp_err *err)
{
	if (changes->always_failure)
		sp_files_reply_failure(&changes->call, err);
	else
		sp_files_reply_error(&changes->call, err);
}

static void changes_next(struct changes *changes)
{
	struct sp_err err = {0};

	if (changes->next == changes->count)
		sp_files_reply_status(&changes->call, MHD_HTTP_OK);
	else if (changes->change(changes, &changes->steps[changes->next], &err) < 0)
		fail(changes, &err);
}

static void on_changed(void *arg, const struct sp_err *err)
{
	struct changes *changes = arg;
	bool missing_is_fine =
		changes->missing_is_fine && changes->call.request->style == SP_STYLE_EXECD;

	changes->call.op = NULL;
	if (err && !(err->code == SP_CODE_FILE_NOT_FOUND && missing_is_fine)) {
		fail(changes, err);
		return;
	}
	changes->next++;
	changes_next(changes);
}

static void changes_accounts(struct sp_files_call *call)
{
	changes_next(SP_CONTAINER_OF(call, struct changes, call));
}

/* One more step for a client's path. NULL and err filled: no memory, no path. */
static struct step *add_step(struct changes *changes, const char *text, struct sp_err *err)
{
	struct step *grown;
	char path[SP_FILE_PATH_MAX];

	if (sp_files_path(changes->call.request, text, path, err) < 0)
		return NULL;
	grown = realloc(changes->steps, (changes->count + 1) * sizeof(*grown));
	if (grown) {
		changes->steps = grown;
		grown += changes->count;
		*grown = (struct step){.path = strdup(path)};
	}
	if (!grown || !grown->path) {
		(void)sp_err_set(err, -ENOMEM, "read the request");
		return NULL;
	}
	changes->count++;
	return grown;
}

static void changes_begin(struct sp_request *request, const struct changes *kind,
			  void (*start)(struct sp_files_call *call))
{
	struct changes *changes = malloc(sizeof(*changes));
	struct sp_err err = {0};

	if (!changes) {
		(void)sp_err_set(&err, -ENOMEM, "change files");
		sp_reply_error(request, &err);
		return;
	}
	*changes = *kind;
	sp_files_call_init(&changes->call, request, changes_release);
	sp_files_call_run(&changes->call, start);
}

/* ---- move ---- */

static int change_move(struct changes *changes, struct step *step, struct sp_err *err)
{
	struct sp_files_call *call = &changes->call;

	return sp_file_move(call->request->api->service, &call->request->caller, &call->place,
			    step->path, step->to, false, on_changed, changes, &call->op, err);
}

static int read_move(struct changes *changes, const json_t *item, struct sp_err *err)
{
	const char *from = "";
	const char *to = "";
	const struct sp_member members[] = {
		{"src", SP_MEMBER_TEXT, &from, 0, 0},
		{"dest", SP_MEMBER_TEXT, &to, 0, 0},
	};
	char path[SP_FILE_PATH_MAX];
	struct step *step;

	if (sp_body_read_loose(item, "", members, SP_ARRAY_SIZE(members), err) < 0 ||
	    sp_files_path(changes->call.request, to, path, err) < 0)
		return err->status;
	step = add_step(changes, from, err);
	if (!step)
		return err->status;
	step->to = strdup(path);
	return step->to ? 0 : sp_err_set(err, -ENOMEM, "read the request");
}

static void move_start(struct sp_files_call *call)
{
	struct changes *changes = SP_CONTAINER_OF(call, struct changes, call);
	struct sp_err err = {0};
	int status = 0;

	if (sp_files_body(call, true, &changes->body) < 0)
		return;
	for (size_t i = 0; i < json_array_size(changes->body) && status == 0; i++)
		status = read_move(changes, json_array_get(changes->body, i), &err);
	if (status < 0)
		fail(changes, &err);
	else
		changes_next(changes);
}

void sp_handle_files_move(struct sp_request *request)
{
	static const struct changes kind = {.change = change_move};

	changes_begin(request, &kind, move_start);
}

/* ---- permissions, new directories ---- */

static int change_permissions(struct changes *changes, struct step *step, struct sp_err *err)
{
	struct sp_files_call *call = &changes->call;
	struct sp_files_ids ids;
	int status = sp_files_permission_resolve(call, &step->permission, &ids, err);

	if (status < 0)
		return status;
	return sp_file_change(call->request->api->service, &call->request->caller, &call->place,
			      step->path, ids.mode, ids.uid, ids.gid, on_changed, changes,
			      &call->op, err);
}

static int change_mkdir(struct changes *changes, struct step *step, struct sp_err *err)
{
	struct sp_files_call *call = &changes->call;
	struct sp_files_ids ids;
	int status = sp_files_permission_resolve(call, &step->permission, &ids, err);

	if (status < 0)
		return status;
	return sp_file_mkdir(call->request->api->service, &call->request->caller, &call->place,
			     step->path, ids.mode, ids.uid, ids.gid, on_changed, changes, &call->op,
			     err);
}

static int read_permissions(struct changes *changes, bool *ret_accounts, struct sp_err *err)
{
	const char *key;
	json_t *value;

	json_object_foreach (changes->body, key, value) {
		struct sp_files_permission permission;
		struct step *step;

		if (sp_files_permission_read(value, key, &permission, err) < 0)
			return err->status;
		step = add_step(changes, key, err);
		if (!step)
			return err->status;
		step->permission = permission;
		*ret_accounts |= sp_files_permission_needs_accounts(&permission);
	}
	return 0;
}

static void permissions_start(struct sp_files_call *call)
{
	struct changes *changes = SP_CONTAINER_OF(call, struct changes, call);
	bool accounts = false;
	struct sp_err err = {0};

	if (sp_files_body(call, false, &changes->body) < 0)
		return;
	if (read_permissions(changes, &accounts, &err) < 0)
		sp_files_reply_error(call, &err);
	else if (accounts)
		sp_files_load_accounts(call, changes_accounts);
	else
		changes_next(changes);
}

void sp_handle_files_permissions(struct sp_request *request)
{
	static const struct changes kind = {.change = change_permissions, .always_failure = true};

	changes_begin(request, &kind, permissions_start);
}

void sp_handle_directories_create(struct sp_request *request)
{
	static const struct changes kind = {.change = change_mkdir};

	changes_begin(request, &kind, permissions_start);
}

/* ---- removal ---- */

static int remove_path(struct changes *changes, const struct step *step, bool recursive,
		       struct sp_err *err)
{
	struct sp_files_call *call = &changes->call;

	return sp_file_remove(call->request->api->service, &call->request->caller, &call->place,
			      step->path, recursive, on_changed, changes, &call->op, err);
}

static int change_remove(struct changes *changes, struct step *step, struct sp_err *err)
{
	return remove_path(changes, step, false, err);
}

/* A file is a tree as well. */
static int change_remove_tree(struct changes *changes, struct step *step, struct sp_err *err)
{
	return remove_path(changes, step, true, err);
}

static int add_removal(void *arg, const char *value, struct sp_err *err)
{
	return add_step(arg, value, err) ? 0 : err->status;
}

static void remove_start(struct sp_files_call *call)
{
	struct changes *changes = SP_CONTAINER_OF(call, struct changes, call);
	struct sp_err err = {0};

	if (sp_query_each(call->request, "path", add_removal, changes, &err) < 0)
		fail(changes, &err);
	else
		changes_next(changes);
}

void sp_handle_files_delete(struct sp_request *request)
{
	static const struct changes kind = {
		.change = change_remove,
		.missing_is_fine = true,
		.always_failure = true,
	};

	changes_begin(request, &kind, remove_start);
}

void sp_handle_directories_delete(struct sp_request *request)
{
	static const struct changes kind = {
		.change = change_remove_tree,
		.missing_is_fine = true,
		.always_failure = true,
	};

	changes_begin(request, &kind, remove_start);
}
