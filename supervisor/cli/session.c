/*
 * A command in a sandbox as seen from the shell: its streams are ours, its exit status is ours.
 */
#include "supervisor/cli/session.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "supervisor/cli/terminal.h"

#define NULL_MAJOR      1
#define NULL_MINOR      3
#define DEFAULT_ROWS    24
#define DEFAULT_COLUMNS 80

static bool stdin_wanted(bool interactive, bool tty)
{
	struct stat status;

	if (fstat(STDIN_FILENO, &status) < 0)
		return false; /* closed */
	if (!S_ISCHR(status.st_mode))
		return true;
	if (status.st_rdev == makedev(NULL_MAJOR, NULL_MINOR))
		return false; /* what the command gets anyway, without our help */
	return interactive || tty || !isatty(STDIN_FILENO);
}

void sp_cli_session_init(struct sp_cli_session *session, struct sp_cli *cli, bool interactive,
			 bool none, bool tty)
{
	*session = (struct sp_cli_session){
		.cli = cli,
		.stream = {.fd = -1, .signal_fd = -1},
		.stdin_open = !none && stdin_wanted(interactive, tty),
		.tty = tty,
	};
	sp_cli_sink_init(&session->sinks[0], STDOUT_FILENO, cli->json);
	sp_cli_sink_init(&session->sinks[1], STDERR_FILENO, cli->json);
}

struct sp_cli_command sp_cli_session_command(const struct sp_cli_session *session,
					     char *const *argv, size_t argc)
{
	struct sp_cli_command command = {
		.argv = argv,
		.argc = argc,
		.stdin_open = session->stdin_open,
		.tty = session->tty,
	};

	if (session->tty && !sp_cli_terminal_size(STDOUT_FILENO, &command.rows, &command.columns) &&
	    !sp_cli_terminal_size(STDIN_FILENO, &command.rows, &command.columns)) {
		command.rows = DEFAULT_ROWS;
		command.columns = DEFAULT_COLUMNS;
	}
	return command;
}

/* {"result", "stdout", "stderr", "encoding"}: what the plain HTTP form answers, too. */
static int print_captured(const struct sp_cli_session *session, const struct sp_buf *result)
{
	static const char *const names[] = {"stdout", "stderr"};
	struct sp_cli_json json;
	struct sp_buf out;
	bool utf8 = true;
	int exit_code;

	sp_buf_init(&out, SIZE_MAX / 2);
	for (size_t i = 0; i < SP_ARRAY_SIZE(names); i++)
		utf8 = utf8 && sp_cli_utf8_valid(sp_buf_text(&session->sinks[i].captured),
						 session->sinks[i].captured.len);
	sp_cli_json_init(&json, &out);
	sp_cli_json_open(&json, '{');
	sp_cli_json_key(&json, "result");
	sp_cli_json_raw(&json, sp_buf_text(result), result->len);
	for (size_t i = 0; i < SP_ARRAY_SIZE(names); i++) {
		const struct sp_buf *captured = &session->sinks[i].captured;

		sp_cli_json_key(&json, names[i]);
		if (utf8)
			sp_cli_json_text_len(&json, sp_buf_text(captured), captured->len);
		else
			sp_cli_json_base64(&json, sp_buf_text(captured), captured->len);
	}
	sp_cli_json_member(&json, "encoding", utf8 ? "utf-8" : "base64");
	sp_cli_json_close(&json, '}');
	if (json.status == 0)
		json.status = sp_buf_append(&out, "\n", 1);
	if (json.status < 0) {
		struct sp_err err;

		(void)sp_err_set(&err, json.status, "write the result");
		exit_code = sp_cli_fail(session->cli, &err);
	} else {
		exit_code = sp_cli_print_buf(session->cli, &out);
	}
	sp_buf_done(&out);
	return exit_code;
}

int sp_cli_session_failed(const struct sp_cli_session *session, int status,
			  const struct sp_err *err)
{
	if (status == -EPIPE)
		return SP_CLI_EXIT_PIPE;
	if (status == -EINTR)
		return SP_CLI_EXIT_SIGNAL + session->stream.interrupted_by;
	return sp_cli_fail(session->cli, err);
}

int sp_cli_session_carry(struct sp_cli_session *session)
{
	struct sp_cli_exec exec = {
		.stdin_fd = session->stdin_open ? STDIN_FILENO : -1,
		.tty = session->tty,
		.sinks = {&session->sinks[0], &session->sinks[1]},
		.tick = session->tick,
		.tick_arg = session->tick_arg,
		.tick_ms = session->tick_ms,
	};
	struct sp_cli_outcome outcome;
	struct sp_err err = {0};
	struct sp_buf result;
	char text[512];
	int exit_code = 0;
	int status;

	sp_buf_init(&result, SP_CLI_REQUEST_MAX);
	status = sp_cli_stream_exec(&session->stream, &exec, &outcome, &result, &err);
	if (status < 0) {
		exit_code = sp_cli_session_failed(session, status, &err);
	} else {
		if (session->cli->json)
			exit_code = print_captured(session, &result);
		else if (!session->quiet && sp_cli_outcome_describe(&outcome, text, sizeof(text)))
			sp_cli_note(session->cli, text);
		if (exit_code == 0)
			exit_code = sp_cli_outcome_exit_code(&outcome);
	}
	sp_buf_done(&result);
	for (size_t i = 0; i < SP_ARRAY_SIZE(session->sinks); i++)
		sp_cli_sink_done(&session->sinks[i]);
	return exit_code;
}

int sp_cli_session_run(struct sp_cli_session *session, const char *target,
		       const struct sp_buf *frame)
{
	struct sp_err err = {0};
	int exit_code;

	if (sp_cli_stream_open(&session->stream, &session->cli->client, target, frame, &err) < 0)
		return sp_cli_fail(session->cli, &err);
	exit_code = sp_cli_session_carry(session);
	sp_cli_stream_close(&session->stream);
	return exit_code;
}
