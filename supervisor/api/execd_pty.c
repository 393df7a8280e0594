/*
 * Sessions with a terminal: POST /pty, GET and DELETE /pty/{key}, and the shell of one.
 *
 * All that the shell writes goes into the ring first and then to the holder, in one step on the
 * loop's thread: what a new client is sent from the ring and what it is sent afterwards meet
 * without a gap. Without a holder the shell is read on; a holder that does not read stops it.
 */
#include "supervisor/api/execd_pty.h"

#include "supervisor/api/json_body.h"
#include "supervisor/daemon/files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DIRECTORY_MODE 0755

/* ---- sessions ---- */

static void on_sandbox_ended(struct sp_os_attachment *attachment);

static struct sp_pty *of_attachment(struct sp_os_attachment *attachment)
{
	return attachment->ended == on_sandbox_ended
		       ? SP_CONTAINER_OF(attachment, struct sp_pty, attachment)
		       : NULL;
}

static struct sp_pty *find(const struct sp_os_sandbox *os, const char *id)
{
	SP_LIST_FOREACH (link, &os->attachments) {
		struct sp_pty *pty =
			of_attachment(SP_CONTAINER_OF(link, struct sp_os_attachment, link));

		if (pty && strcmp(pty->id, id) == 0)
			return pty;
	}
	return NULL;
}

static size_t count(const struct sp_os_sandbox *os)
{
	size_t found = 0;

	SP_LIST_FOREACH (link, &os->attachments)
		found +=
			of_attachment(SP_CONTAINER_OF(link, struct sp_os_attachment, link)) != NULL;
	return found;
}

static struct sp_pty *session_new(struct sp_request *request)
{
	struct sp_pty *pty = calloc(1, sizeof(*pty));

	if (!pty)
		return NULL;
	pty->api = request->api;
	pty->os = sp_os_ref(request->os);
	pty->attachment.ended = on_sandbox_ended;
	sp_list_init(&pty->attachment.link);
	sp_list_init(&pty->clients);
	sp_os_uuid_new(pty->id);
	return pty;
}

static void session_free(struct sp_pty *pty)
{
	struct sp_exec *exec = pty->exec;
	struct sp_pty_client *client;

	sp_os_detach(&pty->attachment);
	pty->exec = NULL;
	if (exec)
		sp_exec_cancel(exec);
	while ((client = sp_pty_client_first(pty)))
		sp_pty_client_fail(client, "SESSION_GONE", "the session was deleted");
	sp_tail_done(&pty->output);
	sp_execd_place_done(&pty->place);
	sp_os_unref(pty->os);
	free(pty->command);
	free(pty);
}

static void on_sandbox_ended(struct sp_os_attachment *attachment)
{
	session_free(SP_CONTAINER_OF(attachment, struct sp_pty, attachment));
}

/* ---- the shell ---- */

static void on_started(void *arg, const char *sandbox_id)
{
	struct sp_pty *pty = arg;

	SP_UNUSED(sandbox_id);
	pty->started = true;
	if (pty->holder)
		sp_pty_client_started(pty->holder);
}

static void on_output(void *arg, int stream, const void *data, size_t len)
{
	struct sp_pty *pty = arg;

	sp_tail_append(&pty->output, data, len, SP_PTY_KEPT_MAX);
	if (pty->holder)
		sp_pty_client_output(pty->holder, stream, data, len);
}

static void on_stdin_credit(void *arg, uint32_t bytes)
{
	struct sp_pty *pty = arg;

	sp_assert(bytes <= pty->stdin_outstanding);
	pty->stdin_outstanding -= bytes;
	if (pty->holder)
		sp_pty_client_credit(pty->holder);
}

static void on_ended(void *arg, const struct sp_exec_result *result)
{
	struct sp_pty *pty = arg;
	struct sp_execd_outcome outcome;

	pty->exec = NULL;
	pty->started = false;
	pty->paused = false;
	pty->stdin_outstanding = 0;
	if (!pty->holder)
		return;
	sp_execd_outcome(result, &outcome);
	if (result->reason == SP_EXEC_START_FAILED)
		sp_pty_client_fail(pty->holder, "START_FAILED", outcome.text);
	else
		sp_pty_client_exited(pty->holder, outcome.exit_code);
}

static const struct sp_exec_events shell_events = {
	.started = on_started,
	.output = on_output,
	.stdin_credit = on_stdin_credit,
	.ended = on_ended,
};

int sp_pty_start(struct sp_pty *pty, bool pipe, struct sp_err *err)
{
	static const char choose[] = "if command -v bash >/dev/null 2>&1; then exec bash \"$@\"; "
				     "else exec sh \"$@\"; fi";
	const char *argv[] = {"/bin/sh", "-c", choose, "sh", "-c", pty->command};
	struct sp_caller caller = sp_os_caller(pty->os);
	struct sp_exec_spec spec = {
		.argv = argv,
		.argc = pty->command ? SP_ARRAY_SIZE(argv) : SP_ARRAY_SIZE(argv) - 2,
		.env = pty->place.env,
		.envc = pty->place.envc,
		.cwd = pty->place.cwd,
		.uid = -1,
		.gid = -1,
		.timeout_ms = SP_EXEC_TIMEOUT_MAX_MS,
		.stdin_open = true,
		.tty = !pipe,
		.output_unlimited = true,
		.resident = true,
		.rows = SP_PTY_ROWS,
		.columns = SP_PTY_COLUMNS,
	};

	pty->pipe = pipe;
	return sp_exec_start(pty->api->service, &caller, pty->os->id, &spec, &shell_events, pty,
			     &pty->exec, err);
}

ssize_t sp_pty_stdin(struct sp_pty *pty, const void *data, size_t len)
{
	size_t take = SP_MIN(len, SP_EXEC_STDIN_WINDOW - pty->stdin_outstanding);
	int status;

	if (!pty->exec)
		return -EPIPE;
	if (take == 0)
		return 0;
	status = sp_exec_stdin(pty->exec, data, take);
	if (status < 0)
		return status;
	pty->stdin_outstanding += take;
	return (ssize_t)take;
}

void sp_pty_pause(struct sp_pty *pty, bool pause)
{
	if (!pty->exec || pty->paused == pause)
		return;
	pty->paused = pause;
	sp_exec_pause(pty->exec, pause);
}

/* ---- POST /pty ---- */

/* A request that waits for its directory. */
struct creation {
	struct sp_pty *pty;
	struct sp_request *request;
	struct sp_file_op *op;
};

static void reply_created(struct sp_request *request, struct sp_pty *pty)
{
	struct sp_json_out out;
	struct sp_err err = {0};
	struct sp_buf body;

	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&out, &body);
	sp_json_open(&out, NULL, '{');
	sp_json_text(&out, "session_id", pty->id);
	sp_json_close(&out, '}');
	if (out.status < 0) {
		(void)sp_err_set(&err, out.status, "write the answer");
		session_free(pty);
		sp_reply_error(request, &err);
	} else {
		sp_os_attach(pty->os, &pty->attachment);
		sp_reply_json(request, MHD_HTTP_CREATED, &body);
	}
	sp_buf_done(&body);
}

static void reply_not_created(struct sp_request *request, const struct sp_err *err)
{
	if (sp_err_client_code(err) == SP_CODE_INVALID_ARGUMENT ||
	    sp_err_client_code(err) == SP_CODE_TOO_MANY)
		sp_reply_error(request, err);
	else
		sp_os_reply_error(request, MHD_HTTP_INTERNAL_SERVER_ERROR, "RUNTIME_ERROR",
				  "error creating pty session: %s", err->message);
}

static void on_directory(void *arg, const struct sp_err *err)
{
	struct creation *creation = arg;
	struct sp_request *request = creation->request;
	struct sp_pty *pty = creation->pty;
	struct sp_err late = {0};

	free(creation);
	/* Others may have come, or the sandbox may have ended, while it was made. */
	if (!err && (pty->os->ended || count(pty->os) >= SP_PTY_SESSIONS_MAX)) {
		(void)sp_err_code(&late, SP_CODE_TOO_MANY, -EAGAIN,
				  "the sandbox ended, or has %u sessions", SP_PTY_SESSIONS_MAX);
		err = &late;
	}
	if (err) {
		session_free(pty);
		reply_not_created(request, err);
		return;
	}
	reply_created(request, pty);
}

static void on_cancel(struct sp_request *request)
{
	struct creation *creation = request->operation;

	sp_file_op_cancel(creation->op);
	session_free(creation->pty);
	free(creation);
}

static int make_directory(struct sp_request *request, struct sp_pty *pty, struct sp_err *err)
{
	struct sp_file_place place = {.sandbox = pty->os->id, .uid = -1, .gid = -1};
	struct creation *creation = calloc(1, sizeof(*creation));
	int status;

	if (!creation)
		return sp_err_set(err, -ENOMEM, "make '%s'", pty->place.cwd);
	creation->pty = pty;
	creation->request = request;
	status = sp_file_mkdir(request->api->service, &request->caller, &place, pty->place.cwd,
			       DIRECTORY_MODE, SP_FILE_KEEP, SP_FILE_KEEP, on_directory, creation,
			       &creation->op, err);
	if (status < 0) {
		free(creation);
		return status;
	}
	/* What failed has been answered. */
	if (sp_request_suspend(request, on_cancel, creation) < 0) {
		sp_file_op_cancel(creation->op);
		session_free(pty);
		free(creation);
	}
	return 0;
}

static int read_body(struct sp_request *request, struct sp_pty *pty, struct sp_err *err)
{
	const char *cwd = NULL, *command = NULL;
	const struct sp_member members[] = {
		{.name = "cwd", .type = SP_MEMBER_TEXT, .value = &cwd},
		{.name = "command", .type = SP_MEMBER_TEXT, .value = &command},
	};
	json_t *root = NULL;
	int status = sp_execd_place_env(&pty->place, request->os, NULL, err);

	if (status == 0 && request->body.len > 0)
		status = sp_body_parse_loose(sp_buf_text(&request->body), request->body.len, &root,
					     err);
	if (status == 0 && root)
		status = sp_body_read_loose(root, "", members, SP_ARRAY_SIZE(members), err);
	if (status == 0)
		status = sp_execd_place_cwd(&pty->place, cwd, err);
	if (status == 0 && command && command[0]) {
		pty->command = strdup(command);
		if (!pty->command)
			status = sp_err_set(err, -ENOMEM, "keep the command");
	}
	json_decref(root);
	return status;
}

void sp_handle_pty_create(struct sp_request *request)
{
	struct sp_pty *pty = session_new(request);
	struct sp_err err = {0};
	int status = 0;

	if (!pty)
		status = sp_err_set(&err, -ENOMEM, "make a session");
	else if (count(request->os) >= SP_PTY_SESSIONS_MAX)
		status =
			sp_err_code(&err, SP_CODE_TOO_MANY, -EAGAIN,
				    "the sandbox has %u pty sessions already", SP_PTY_SESSIONS_MAX);
	if (status == 0)
		status = read_body(request, pty, &err);
	if (status == 0 && !pty->place.cwd) {
		reply_created(request, pty);
		return;
	}
	if (status == 0)
		status = make_directory(request, pty, &err);
	if (status == 0)
		return;
	if (pty)
		session_free(pty);
	reply_not_created(request, &err);
}

/* ---- one session ---- */

static struct sp_pty *wanted(struct sp_request *request)
{
	struct sp_pty *pty = find(request->os, request->match.key);

	if (!pty)
		sp_os_reply_error(request, MHD_HTTP_NOT_FOUND, "CONTEXT_NOT_FOUND",
				  "pty session %s not found", request->match.key);
	return pty;
}

void sp_handle_pty_get(struct sp_request *request)
{
	const struct sp_pty *pty = wanted(request);
	struct sp_json_out out;
	struct sp_buf body;

	if (!pty)
		return;
	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&out, &body);
	sp_json_open(&out, NULL, '{');
	sp_json_text(&out, "session_id", pty->id);
	sp_json_boolean(&out, "running", pty->exec != NULL);
	sp_json_unsigned(&out, "output_offset", pty->output.end);
	sp_json_close(&out, '}');
	sp_reply_written(request, &out);
}

void sp_handle_pty_delete(struct sp_request *request)
{
	struct sp_pty *pty = wanted(request);

	if (!pty)
		return;
	session_free(pty);
	sp_reply_status(request, MHD_HTTP_OK);
}

void sp_handle_pty_socket(struct sp_request *request)
{
	struct sp_pty *pty = wanted(request);

	if (pty)
		sp_pty_client_open(request, pty);
}
