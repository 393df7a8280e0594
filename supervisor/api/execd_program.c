/*
 * Programs that are given as the text of a shell: which shell, and what their end is called.
 *
 * A root without bash shows when bash is started: sh is started in its place, in the same request,
 * and first from then on.
 */
#include "supervisor/api/execd.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- ends ---- */

#define NUMBER_MAX 24

/* As Go names them, which is what clients have seen so far. */
static const char *signal_name(int number, char text[NUMBER_MAX])
{
	static const char *const names[] = {
		[SIGHUP] = "hangup",
		[SIGINT] = "interrupt",
		[SIGQUIT] = "quit",
		[SIGILL] = "illegal instruction",
		[SIGTRAP] = "trace/breakpoint trap",
		[SIGABRT] = "aborted",
		[SIGBUS] = "bus error",
		[SIGFPE] = "floating point exception",
		[SIGKILL] = "killed",
		[SIGUSR1] = "user defined signal 1",
		[SIGSEGV] = "segmentation fault",
		[SIGUSR2] = "user defined signal 2",
		[SIGPIPE] = "broken pipe",
		[SIGALRM] = "alarm clock",
		[SIGTERM] = "terminated",
	};

	if (number > 0 && (size_t)number < SP_ARRAY_SIZE(names) && names[number])
		return names[number];
	(void)snprintf(text, NUMBER_MAX, "signal %d", number);
	return text;
}

static const char *addition(enum sp_exec_reason reason)
{
	switch (reason) {
	case SP_EXEC_TIMEOUT:
		return " (timeout)";
	case SP_EXEC_MEMORY:
		return " (out of memory)";
	case SP_EXEC_EXPIRED:
		return " (the sandbox expired)";
	case SP_EXEC_DIED:
		return " (the sandbox died)";
	case SP_EXEC_EXITED:
	case SP_EXEC_SIGNALED:
	case SP_EXEC_OUTPUT:
	case SP_EXEC_KILLED:
	case SP_EXEC_START_FAILED:
	case SP_EXEC_REASON_COUNT:
		break;
	}
	return "";
}

void sp_execd_outcome(const struct sp_exec_result *result, struct sp_execd_outcome *ret)
{
	char number[NUMBER_MAX];

	*ret = (struct sp_execd_outcome){.exit_code = -1};
	if (result->reason == SP_EXEC_EXITED) {
		ret->exit_code = result->exit_code;
		if (result->exit_code != 0)
			(void)snprintf(ret->text, sizeof(ret->text), "exit status %d",
				       result->exit_code);
		return;
	}
	if (result->reason == SP_EXEC_START_FAILED) {
		(void)snprintf(ret->text, sizeof(ret->text), "%s", result->message);
		return;
	}
	(void)snprintf(ret->text, sizeof(ret->text), "signal: %s%s",
		       signal_name(result->signal > 0 ? result->signal : SIGKILL, number),
		       addition(result->reason));
}

int sp_execd_start_error(const struct sp_exec_result *result, const char *cwd, struct sp_err *err)
{
	struct sp_execd_outcome outcome;

	if (result->reason == SP_EXEC_START_FAILED && strcmp(result->stage, "cwd") == 0)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL, "cwd '%s': %s",
				   cwd ? cwd : "", strerror(result->start_errno));
	sp_execd_outcome(result, &outcome);
	return sp_err_code(err, SP_CODE_EXEC_START_FAILED, -EINVAL, "it did not start: %s",
			   outcome.text);
}

void sp_execd_fail_with(struct sp_events *events, const struct sp_execd_outcome *outcome)
{
	const char *traceback[] = {outcome->text};
	char value[16];

	(void)snprintf(value, sizeof(value), "%d", outcome->exit_code);
	sp_events_fail(events, &(struct sp_event_error){
				       .name = "CommandExecError",
				       .value = value,
				       .traceback = traceback,
				       .traceback_count = 1,
			       });
}

/* ---- shells ---- */

static int start(struct sp_shell *shell, struct sp_err *err);

static void pieces_free(struct sp_shell *shell)
{
	for (size_t i = 0; shell->pieces[i]; i++) {
		free(shell->pieces[i]);
		shell->pieces[i] = NULL;
	}
}

static void on_started(void *arg, const char *sandbox_id)
{
	struct sp_shell *shell = arg;

	pieces_free(shell);
	if (shell->events->started)
		shell->events->started(shell->arg, sandbox_id);
}

static void on_output(void *arg, int stream, const void *data, size_t len)
{
	struct sp_shell *shell = arg;

	shell->events->output(shell->arg, stream, data, len);
}

static void on_stdin_credit(void *arg, uint32_t bytes)
{
	struct sp_shell *shell = arg;

	if (shell->events->stdin_credit)
		shell->events->stdin_credit(shell->arg, bytes);
}

static bool is_missing(const struct sp_exec_result *result)
{
	return result->reason == SP_EXEC_START_FAILED && result->start_errno == ENOENT &&
	       strcmp(result->stage, "exec") == 0;
}

static void on_ended(void *arg, const struct sp_exec_result *result)
{
	struct sp_shell *shell = arg;
	struct sp_exec_result failed = *result;
	struct sp_err err = {0};

	shell->exec = NULL;
	if (!shell->is_sh && is_missing(result)) {
		shell->execd->no_bash = true;
		shell->is_sh = true;
		if (start(shell, &err) == 0)
			return;
		(void)snprintf(failed.message, sizeof(failed.message), "%s", err.message);
	}
	pieces_free(shell);
	shell->events->ended(shell->arg, &failed);
}

static const struct sp_exec_events shell_events = {
	.started = on_started,
	.output = on_output,
	.stdin_credit = on_stdin_credit,
	.ended = on_ended,
};

/* With a script of its own, or when the text is too long for one argument, the text is in pieces
 * that the script puts together. */
static size_t fill_argv(const struct sp_shell *shell, const char **argv)
{
	static const char join[] = "__sp_text=$1$2$3$4$5$6$7$8$9${10}; set --; eval \"$__sp_text\"";
	const char *name = shell->is_sh ? "sh" : "bash";
	size_t argc = 0;

	argv[argc++] = name;
	argv[argc++] = "-c";
	if (shell->script) {
		argv[argc++] = shell->script;
		argv[argc++] = name;
		argv[argc++] = shell->is_sh ? shell->sh_setup : shell->bash_setup;
	} else if (shell->pieces[1]) {
		argv[argc++] = join;
		argv[argc++] = name;
	}
	for (size_t i = 0; shell->pieces[i]; i++)
		argv[argc++] = shell->pieces[i];
	return argc;
}

static int start(struct sp_shell *shell, struct sp_err *err)
{
	struct sp_caller caller = sp_os_caller(shell->execd->os);
	const char *argv[SP_SHELL_PIECES_MAX + 5];

	shell->spec.argv = argv;
	shell->spec.argc = fill_argv(shell, argv);
	return sp_exec_start(shell->execd->api->service, &caller, shell->execd->os->id,
			     &shell->spec, &shell_events, shell, &shell->exec, err);
}

static int cut(struct sp_shell *shell, const char *text, struct sp_err *err)
{
	size_t left = strlen(text);
	size_t count = 0;

	if (left > SP_SHELL_PIECE_MAX * SP_SHELL_PIECES_MAX)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -E2BIG,
				   "the command is longer than %u bytes",
				   SP_SHELL_PIECE_MAX * SP_SHELL_PIECES_MAX);
	do {
		size_t len = SP_MIN(left, (size_t)SP_SHELL_PIECE_MAX);

		shell->pieces[count] = strndup(text, len);
		if (!shell->pieces[count++])
			return sp_err_set(err, -ENOMEM, "start a shell");
		text += len;
		left -= len;
	} while (left > 0);
	return 0;
}

int sp_shell_start(struct sp_shell *shell, const char *text, struct sp_err *err)
{
	int status = cut(shell, text, err);

	shell->is_sh = shell->execd->no_bash;
	if (status == 0)
		status = start(shell, err);
	if (status < 0)
		pieces_free(shell);
	return status;
}

void sp_shell_cancel(struct sp_shell *shell)
{
	struct sp_exec *exec = shell->exec;

	shell->exec = NULL;
	pieces_free(shell);
	if (exec)
		sp_exec_cancel(exec);
}
