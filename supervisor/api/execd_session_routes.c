/*
 * The routes of shell sessions: POST /session, which makes the directory that it is given, and
 * /session/ID. What a session is stands in execd_session.c.
 */
#include "supervisor/api/execd.h"

#include "supervisor/api/json_body.h"
#include "supervisor/daemon/files.h"

#include <errno.h>
#include <stdlib.h>

/* ---- POST /session ---- */

/* One whose directory is made first. */
struct creation {
	struct sp_request *request;
	struct sp_file_op *op;
	struct sp_execd_place place;
};

static void creation_free(struct creation *creation)
{
	sp_execd_place_done(&creation->place);
	free(creation);
}

static void reply_session(struct sp_request *request, const char *cwd)
{
	struct sp_execd *execd = sp_execd_of(request);
	struct sp_session *session;
	struct sp_err err = {0};
	struct sp_json_out out;
	struct sp_buf body;

	if (!execd)
		return;
	session = sp_session_new(execd, false, cwd, &err);
	if (!session) {
		sp_reply_error(request, &err);
		return;
	}
	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&out, &body);
	sp_json_open(&out, NULL, '{');
	sp_json_text(&out, "session_id", sp_session_id(session));
	sp_json_close(&out, '}');
	sp_reply_written(request, &out);
}

static void on_directory(void *arg, const struct sp_err *refused)
{
	struct creation *creation = arg;
	struct sp_request *request = creation->request;

	if (refused)
		sp_reply_error(request, refused);
	else
		reply_session(request, creation->place.cwd);
	creation_free(creation);
}

static void on_creator_left(struct sp_request *request)
{
	struct creation *creation = request->operation;

	sp_file_op_cancel(creation->op);
	creation_free(creation);
}

static int make_directory(struct creation *creation, const char *cwd, struct sp_err *err)
{
	struct sp_request *request = creation->request;
	struct sp_file_place place = {.sandbox = request->os->id, .uid = -1, .gid = -1};
	int status = sp_execd_place_env(&creation->place, request->os, NULL, err);

	if (status == 0)
		status = sp_execd_place_cwd(&creation->place, cwd, err);
	if (status < 0)
		return status;
	return sp_file_mkdir(request->api->service, &request->caller, &place, creation->place.cwd,
			     0755, SP_FILE_KEEP, SP_FILE_KEEP, on_directory, creation,
			     &creation->op, err);
}

static void create_in(struct sp_request *request, const char *cwd)
{
	struct creation *creation = calloc(1, sizeof(*creation));
	struct sp_err err = {0};
	int status = -ENOMEM;

	if (creation) {
		creation->request = request;
		status = make_directory(creation, cwd, &err);
	} else {
		(void)sp_err_set(&err, status, "make a session");
	}
	if (status < 0) {
		if (creation)
			creation_free(creation);
		sp_reply_error(request, &err);
	} else if (sp_request_suspend(request, on_creator_left, creation) < 0) {
		sp_file_op_cancel(creation->op);
		creation_free(creation);
	}
}

void sp_handle_execd_session_create(struct sp_request *request)
{
	const char *cwd = NULL;
	const struct sp_member members[] = {{"cwd", SP_MEMBER_TEXT, &cwd, 0, 0}};
	json_t *root = NULL;
	struct sp_err err = {0};
	int status = 0;

	if (request->body.len > 0)
		status = sp_body_parse_loose(sp_buf_text(&request->body), request->body.len, &root,
					     &err);
	if (root)
		status = sp_body_read_loose(root, "", members, SP_ARRAY_SIZE(members), &err);
	if (status < 0)
		sp_reply_error(request, &err);
	else if (cwd && cwd[0])
		create_in(request, cwd);
	else
		reply_session(request, NULL);
	json_decref(root);
}

/* ---- /session/ID ---- */

static struct sp_session *session_of(struct sp_request *request, unsigned int status,
				     const char *code)
{
	struct sp_execd *execd = sp_execd_of(request);
	struct sp_session *session;

	if (!execd)
		return NULL;
	session = sp_session_find(execd, request->match.key);
	if (session)
		return session;
	sp_os_reply_error(request, status, code, "session not found: %s", request->match.key);
	return NULL;
}

void sp_handle_execd_session_run(struct sp_request *request)
{
	const char *text = NULL;
	const char *cwd = NULL;
	int64_t timeout_ms = 0;
	const struct sp_member members[] = {
		{"command", SP_MEMBER_TEXT, &text, 0, 0},
		{"cwd", SP_MEMBER_TEXT, &cwd, 0, 0},
		{"timeout", SP_MEMBER_INTEGER, &timeout_ms, 0, INT64_MAX},
	};
	struct sp_session *session;
	json_t *root = NULL;
	struct sp_err err = {0};
	int status =
		sp_body_parse_loose(sp_buf_text(&request->body), request->body.len, &root, &err);

	if (status == 0)
		status = sp_body_read_loose(root, "", members, SP_ARRAY_SIZE(members), &err);
	if (status == 0 && (!text || text[0] == '\0'))
		status = sp_err_code(&err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				     "'command' is required and not empty");
	if (status < 0) {
		sp_reply_error(request, &err);
	} else {
		session = session_of(request, MHD_HTTP_INTERNAL_SERVER_ERROR, "RUNTIME_ERROR");
		if (session)
			sp_session_run(session, request, text, cwd, timeout_ms);
	}
	json_decref(root);
}

void sp_handle_execd_session_delete(struct sp_request *request)
{
	struct sp_session *session = session_of(request, MHD_HTTP_NOT_FOUND, "CONTEXT_NOT_FOUND");

	if (!session)
		return;
	sp_session_free(session);
	sp_reply_status(request, MHD_HTTP_OK);
}
