/*
 * Commands: POST /command in both forms, what they are remembered by, and their interrupt.
 *
 *	WAITING ──started──► RUNNING ──ended──► ENDED (remembered until it is among the oldest)
 *	   └─ cannot start, client left ──► forgotten
 *
 * A command is in the list before its client hears of its id, so that an interrupt finds it. The
 * stream of a foreground command ends when the command does, and a client that leaves changes
 * nothing for it: it runs on, its output is read and thrown away. A background command has its
 * output in a tail of bounded length; its stream ends at once.
 */
#include "supervisor/api/execd.h"

#include "pool/base/clock.h"
#include "supervisor/api/json_body.h"
#include "supervisor/api/os_values.h"
#include "supervisor/api/query.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum command_state { COMMAND_WAITING, COMMAND_RUNNING, COMMAND_ENDED };

struct command {
	struct sp_list link; /* in execd->commands */
	struct sp_execd *execd;
	enum command_state state;
	char id[SP_EXECD_ID_LEN + 1];
	bool background;
	char *content;
	struct sp_shell shell;
	struct sp_execd_place place; /* until it runs */
	struct sp_request *request;  /* WAITING */
	struct sp_events *events;    /* NULL: nobody listens */
	struct sp_tail log;
	int64_t started_wall_ms;
	int64_t ended_wall_ms;
	int64_t started_ns;
	struct sp_execd_outcome outcome;
};

static void command_free(struct command *command)
{
	struct sp_execd *execd = command->execd;

	sp_list_remove(&command->link);
	execd->command_count--;
	execd->log_bytes -= command->log.capacity;
	sp_shell_cancel(&command->shell);
	sp_tail_done(&command->log);
	sp_execd_place_done(&command->place);
	free(command->content);
	free(command);
}

static struct command *find_command(struct sp_execd *execd, const char *id)
{
	SP_LIST_FOREACH (link, &execd->commands) {
		struct command *command = SP_CONTAINER_OF(link, struct command, link);

		if (command->state != COMMAND_WAITING && strcmp(command->id, id) == 0)
			return command;
	}
	return NULL;
}

/* ---- output ---- */

/* Memory for this one's log: as much as it has, and what the others leave. */
static size_t log_room(struct command *command)
{
	struct sp_execd *execd = command->execd;

	SP_LIST_FOREACH (link, &execd->commands) {
		struct command *other = SP_CONTAINER_OF(link, struct command, link);

		if (execd->log_bytes + SP_EXECD_LOG_MAX <= SP_EXECD_LOGS_MAX)
			break;
		if (other->state != COMMAND_ENDED)
			continue;
		execd->log_bytes -= other->log.capacity;
		sp_tail_done(&other->log);
	}
	return SP_MIN((size_t)SP_EXECD_LOG_MAX,
		      command->log.capacity + (SP_EXECD_LOGS_MAX - execd->log_bytes));
}

static void keep_output(struct command *command, const void *data, size_t len)
{
	size_t before = command->log.capacity;

	sp_tail_append(&command->log, data, len, log_room(command));
	command->execd->log_bytes += command->log.capacity - before;
}

static void on_output(void *arg, int stream, const void *data, size_t len)
{
	struct command *command = arg;

	if (command->background)
		keep_output(command, data, len);
	else if (command->events && !sp_events_output(command->events, stream, data, len))
		sp_exec_pause(command->shell.exec, true);
}

static void on_drained(void *arg)
{
	struct command *command = arg;

	sp_exec_pause(command->shell.exec, false);
}

static void on_gone(void *arg)
{
	struct command *command = arg;

	command->events = NULL;
	if (command->shell.exec)
		sp_exec_pause(command->shell.exec, false);
}

static const struct sp_events_owner events_owner = {
	.drained = on_drained,
	.gone = on_gone,
};

/* ---- its life ---- */

static void on_started(void *arg, const char *sandbox_id)
{
	struct command *command = arg;
	struct sp_request *request = command->request;

	SP_UNUSED(sandbox_id);
	command->state = COMMAND_RUNNING;
	command->request = NULL;
	sp_execd_place_done(&command->place);
	if (sp_events_open(request, command->id, &events_owner, command, &command->events) < 0)
		return;
	if (!command->background)
		return;
	sp_events_complete(command->events,
			   (sp_clock_boot_ns() - command->started_ns) / SP_NS_PER_MS);
	command->events = NULL;
}

static void not_started(struct command *command, const struct sp_exec_result *result)
{
	struct sp_request *request = command->request;
	struct sp_err err = {0};

	(void)sp_execd_start_error(result, command->place.cwd, &err);
	command_free(command);
	sp_reply_error(request, &err);
}

static void on_ended(void *arg, const struct sp_exec_result *result)
{
	struct command *command = arg;
	struct sp_events *events = command->events;

	if (command->state == COMMAND_WAITING) {
		not_started(command, result);
		return;
	}
	command->state = COMMAND_ENDED;
	command->events = NULL;
	command->ended_wall_ms = sp_clock_wall_ms();
	sp_execd_outcome(result, &command->outcome);
	if (!events)
		return;
	if (command->outcome.exit_code == 0)
		sp_events_complete(events, result->wall_us / 1000);
	else
		sp_execd_fail_with(events, &command->outcome);
}

static const struct sp_exec_events exec_events = {
	.started = on_started,
	.output = on_output,
	.ended = on_ended,
};

/* The client left before it heard the id. */
static void on_client_left(struct sp_request *request)
{
	command_free(request->operation);
}

static void forget_oldest(struct sp_execd *execd)
{
	SP_LIST_FOREACH_SAFE (link, following, &execd->commands) {
		struct command *command = SP_CONTAINER_OF(link, struct command, link);

		if (execd->command_count < SP_EXECD_COMMANDS_MAX)
			return;
		if (command->state == COMMAND_ENDED)
			command_free(command);
	}
}

static struct command *command_new(struct sp_execd *execd, const char *text)
{
	struct command *command = calloc(1, sizeof(*command));

	if (!command)
		return NULL;
	command->content = strndup(text, SP_EXECD_CONTENT_MAX);
	if (!command->content) {
		free(command);
		return NULL;
	}
	forget_oldest(execd);
	command->execd = execd;
	sp_execd_id_new(command->id);
	command->started_wall_ms = sp_clock_wall_ms();
	command->started_ns = sp_clock_boot_ns();
	command->shell = (struct sp_shell){
		.execd = execd,
		.events = &exec_events,
		.arg = command,
		.spec = {.uid = -1,
			 .gid = -1,
			 .timeout_ms = SP_EXEC_TIMEOUT_MAX_MS,
			 .output_unlimited = true},
	};
	sp_list_append(&execd->commands, &command->link);
	execd->command_count++;
	return command;
}

/* ---- POST /command ---- */

struct command_body {
	const char *text;
	const char *cwd;
	bool background;
	int64_t timeout_ms; /* 0: none */
	int64_t uid;
	int64_t gid;
	json_t *envs;
};

static int read_body(const json_t *root, struct command_body *body, struct sp_err *err)
{
	const struct sp_member members[] = {
		{"command", SP_MEMBER_TEXT, &body->text, 0, 0},
		{"cwd", SP_MEMBER_TEXT, &body->cwd, 0, 0},
		{"background", SP_MEMBER_BOOLEAN, &body->background, 0, 0},
		{"timeout", SP_MEMBER_INTEGER, &body->timeout_ms, 1, INT64_MAX},
		{"uid", SP_MEMBER_INTEGER, &body->uid, 0, UINT32_MAX},
		{"gid", SP_MEMBER_INTEGER, &body->gid, 0, UINT32_MAX},
		{"envs", SP_MEMBER_OBJECT, &body->envs, 0, 0},
	};
	int status;

	*body = (struct command_body){.uid = -1, .gid = -1};
	status = sp_body_read_loose(root, "", members, SP_ARRAY_SIZE(members), err);
	if (status < 0)
		return status;
	if (!body->text || body->text[0] == '\0')
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "'command' is required and not empty");
	if (body->gid >= 0 && body->uid < 0)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "'gid' needs 'uid' beside it");
	return 0;
}

static int start(struct command *command, const struct command_body *body, struct sp_err *err)
{
	struct sp_execd_place *place = &command->place;
	struct sp_exec_spec *spec = &command->shell.spec;
	int status = sp_execd_place_env(place, command->execd->os, body->envs, err);

	if (status == 0)
		status = sp_execd_place_cwd(place, body->cwd, err);
	if (status < 0)
		return status;
	spec->cwd = place->cwd;
	spec->env = place->env;
	spec->envc = place->envc;
	spec->uid = body->uid;
	spec->gid = body->gid;
	if (body->timeout_ms > 0)
		spec->timeout_ms = SP_MIN(body->timeout_ms, SP_EXEC_TIMEOUT_MAX_MS);
	spec->merge_stderr = body->background;
	spec->start_awaited = body->background; /* then that is all its client waits for */
	command->background = body->background;
	return sp_shell_start(&command->shell, body->text, err);
}

static void run(struct sp_request *request, const struct command_body *body)
{
	struct sp_execd *execd = sp_execd_of(request);
	struct command *command;
	struct sp_err err = {0};
	int status = -ENOMEM;

	if (!execd)
		return;
	command = command_new(execd, body->text);
	if (command)
		status = start(command, body, &err);
	else
		(void)sp_err_set(&err, status, "start a command");
	if (status < 0) {
		if (command)
			command_free(command);
		sp_reply_error(request, &err);
		return;
	}
	command->request = request;
	if (sp_request_suspend(request, on_client_left, command) < 0)
		command_free(command);
}

void sp_command_run(struct sp_request *request, const char *text, const char *cwd)
{
	run(request, &(struct command_body){.text = text, .cwd = cwd, .uid = -1, .gid = -1});
}

void sp_handle_execd_command(struct sp_request *request)
{
	struct command_body body;
	json_t *root = NULL;
	struct sp_err err = {0};
	int status =
		sp_body_parse_loose(sp_buf_text(&request->body), request->body.len, &root, &err);

	if (status == 0)
		status = read_body(root, &body, &err);
	if (status == 0)
		run(request, &body);
	else
		sp_reply_error(request, &err);
	json_decref(root);
}

/* ---- what is known of it ---- */

static void write_time(struct sp_json_out *out, const char *key, int64_t wall_ms)
{
	char text[SP_OS_TIME_MAX];

	sp_os_format_time(wall_ms, text);
	sp_json_text(out, key, text);
}

void sp_handle_execd_command_status(struct sp_request *request)
{
	struct sp_execd *execd = sp_execd_of(request);
	const struct command *command;
	struct sp_json_out out;
	struct sp_buf body;

	if (!execd)
		return;
	command = find_command(execd, request->match.key);
	if (!command) {
		sp_os_reply_error(request, MHD_HTTP_NOT_FOUND, "INVALID_REQUEST_BODY",
				  "command not found: %s", request->match.key);
		return;
	}
	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&out, &body);
	sp_json_open(&out, NULL, '{');
	sp_json_text(&out, "id", command->id);
	sp_json_text(&out, "content", command->content);
	sp_json_boolean(&out, "running", command->state == COMMAND_RUNNING);
	if (command->state == COMMAND_ENDED)
		sp_json_integer(&out, "exit_code", command->outcome.exit_code);
	if (command->outcome.text[0])
		sp_json_text(&out, "error", command->outcome.text);
	write_time(&out, "started_at", command->started_wall_ms);
	if (command->state == COMMAND_ENDED)
		write_time(&out, "finished_at", command->ended_wall_ms);
	sp_json_close(&out, '}');
	sp_reply_written(request, &out);
}

/* Anything that is no number counts as the beginning. */
static int read_cursor(struct sp_request *request, uint64_t *ret_cursor, struct sp_err *err)
{
	char *text = NULL;
	char *end;
	int status = sp_query_text(request, "cursor", &text, err);

	*ret_cursor = 0;
	if (status <= 0)
		return status;
	errno = 0;
	if (text[0] >= '0' && text[0] <= '9') {
		*ret_cursor = strtoull(text, &end, 10);
		if (*end || errno)
			*ret_cursor = 0;
	}
	free(text);
	return 0;
}

static void reply_log(struct sp_request *request, const struct command *command,
		      struct sp_buf *body)
{
	struct MHD_Response *response;
	char cursor[24];

	(void)snprintf(cursor, sizeof(cursor), "%" PRIu64, command->log.end);
	response = MHD_create_response_from_buffer(body->len, body->data, MHD_RESPMEM_MUST_COPY);
	if (response &&
	    MHD_add_response_header(response, "EXECD-COMMANDS-TAIL-CURSOR", cursor) == MHD_NO) {
		MHD_destroy_response(response);
		response = NULL;
	}
	(void)sp_request_respond(request, MHD_HTTP_OK, "text/plain; charset=utf-8", response);
}

void sp_handle_execd_command_logs(struct sp_request *request)
{
	struct sp_execd *execd = sp_execd_of(request);
	const struct command *command;
	struct sp_err err = {0};
	struct sp_buf body;
	uint64_t cursor;

	if (!execd)
		return;
	command = find_command(execd, request->match.key);
	if (!command || !command->background) {
		sp_os_reply_error(request, MHD_HTTP_BAD_REQUEST, "INVALID_REQUEST_BODY",
				  "no background command of that id: %s", request->match.key);
		return;
	}
	sp_buf_init(&body, SP_EXECD_LOG_MAX);
	if (read_cursor(request, &cursor, &err) < 0 ||
	    sp_tail_read(&command->log, cursor, &body) < 0) {
		if (err.status == 0)
			(void)sp_err_set(&err, -ENOMEM, "read the log of a command");
		sp_reply_error(request, &err);
	} else {
		reply_log(request, command, &body);
	}
	sp_buf_done(&body);
}

/* ---- ends from outside ---- */

bool sp_command_interrupt(struct sp_execd *execd, const char *id)
{
	struct command *command = find_command(execd, id);

	if (!command || command->state != COMMAND_RUNNING)
		return false;
	sp_exec_stop(command->shell.exec, SIGTERM, SP_EXECD_PATIENCE_MS, 0);
	return true;
}

void sp_handle_execd_interrupt(struct sp_request *request)
{
	struct sp_execd *execd = sp_execd_of(request);
	struct sp_err err = {0};
	char *id = NULL;
	int status;

	if (!execd)
		return;
	status = sp_query_text(request, "id", &id, &err);
	if (status < 0)
		sp_reply_error(request, &err);
	else if (status == 0 || id[0] == '\0')
		sp_os_reply_error(request, MHD_HTTP_BAD_REQUEST, "MISSING_QUERY",
				  "missing query parameter 'id'");
	else if (sp_command_interrupt(execd, id) || sp_session_interrupt(execd, id) ||
		 sp_context_interrupt(execd, id))
		sp_reply_status(request, MHD_HTTP_OK);
	else
		sp_os_reply_error(request, MHD_HTTP_INTERNAL_SERVER_ERROR, "RUNTIME_ERROR",
				  "nothing of that id runs: %s", id);
	free(id);
}

void sp_commands_end(struct sp_execd *execd)
{
	struct command *command;

	while ((command = SP_LIST_FIRST(&execd->commands, struct command, link))) {
		struct sp_execd_outcome outcome = {.exit_code = -1,
						   .text = "signal: killed (the sandbox ended)"};
		struct sp_request *request = command->request;
		struct sp_err err = {0};

		if (command->events)
			sp_execd_fail_with(command->events, &outcome);
		command_free(command);
		if (!request)
			continue;
		(void)sp_err_code(&err, SP_CODE_SANDBOX_DEAD, -ESRCH, "the sandbox has ended");
		sp_reply_error(request, &err);
	}
}
