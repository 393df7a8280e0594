/*
 * Shell sessions: runs of a shell one after the other, each of which finds what the one before
 *left.
 *
 * Every run is an exec of its own, with pipes of its own. So its status is the kernel's word, its
 * timeout kills what it started and nothing else, what it left in the background writes into no
 * later run, and no code can take the protocol for its input or its output: there is none. What a
 * shell process would keep between two runs is carried over as text, in the words of the shell
 * itself: before its end a run writes down directory, options, variables, functions, aliases, traps
 * and parameters (stream 2; the code's stderr goes to stdout), the next one reads that as its stdin
 * before the code begins, whose stdin is /dev/null.
 *
 *	run:  WAITING (for the one before) ──► STARTING ──started──► RUNNING ──► ended
 *
 * A run that is killed, or whose state is longer than SP_EXECD_STATE_MAX, leaves the session as it
 * found it. The text is the sandbox's and read by nobody but its own shell.
 */
#include "supervisor/api/execd.h"

#include "supervisor/api/execd_programs.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define DAY_MS      (24 * 3600 * SP_MS_PER_S)
#define CAPTURE_MAX (SP_EXECD_STATE_MAX + 64u * 1024)

/* One line, so that messages count the lines of the code. The descriptors that the code must not
 * have are put aside by the shell where no child inherits them, and are back after it, however it
 * ends. A trap of the code's own comes last. */
static const char script[] =
	"__sp_text=$2$3$4$5$6$7$8$9${10}${11}; eval \"$1\"; eval \"$__sp_text\" 2>&1; "
	"__sp_keep $? \"$@\"; exec 2>&1; exit \"$__sp_status\"";

struct run {
	struct sp_list link; /* in session->runs */
	struct sp_session *session;
	struct sp_request *request; /* until it is answered */
	struct sp_events *events;
	struct sp_shell shell;
	struct sp_execd_place place;
	char *text;
	struct sp_buf input; /* the state, and the way to the run's own directory */
	size_t input_sent;
	size_t input_window;
	struct sp_buf state; /* as it comes */
	bool state_lost;
	bool forgets; /* what it leaves is not kept */
};

struct sp_session {
	struct sp_list link; /* in execd->sessions */
	struct sp_execd *execd;
	char id[SP_OS_UUID_LEN + 1];
	bool is_context;
	char *cwd;
	struct sp_buf state;
	struct sp_session_owner owner; /* isolated: number is not 0 */
	struct sp_list runs;           /* the first is STARTING or RUNNING */
	size_t run_count;
};

static void begin_first(struct sp_session *session);

static struct run *first_run(const struct sp_session *session)
{
	return SP_LIST_FIRST(&session->runs, struct run, link);
}

static void run_free(struct run *run)
{
	sp_list_remove(&run->link);
	run->session->run_count--;
	sp_shell_cancel(&run->shell);
	sp_execd_place_done(&run->place);
	sp_buf_done(&run->input);
	sp_buf_done(&run->state);
	free(run->text);
	free(run);
}

/* It is over; the next one's turn. */
static void run_done(struct run *run)
{
	struct sp_session *session = run->session;
	bool was_first = run == first_run(session);

	run_free(run);
	if (was_first)
		begin_first(session);
}

static void refuse(struct run *run, const struct sp_err *err)
{
	struct sp_request *request = run->request;

	run_done(run);
	sp_reply_error(request, err);
}

/* ---- state ---- */

static void feed(struct run *run)
{
	while (run->shell.exec && run->input.data) {
		size_t left = run->input.len - run->input_sent;
		size_t len = SP_MIN(left, run->input_window);

		if (left > 0 && len == 0)
			return;
		if (left == 0 ||
		    sp_exec_stdin(run->shell.exec, run->input.data + run->input_sent, len) < 0) {
			sp_buf_done(&run->input);
			sp_exec_stdin_close(run->shell.exec);
			return;
		}
		run->input_sent += len;
		run->input_window -= len;
	}
}

static int append_quoted(struct sp_buf *buf, const char *text)
{
	int status = sp_buf_append(buf, "'", 1);

	while (status == 0 && *text) {
		size_t plain = strcspn(text, "'");

		status = sp_buf_append(buf, text, plain);
		text += plain;
		if (status == 0 && *text) {
			status = sp_buf_append(buf, "'\\''", 4);
			text++;
		}
	}
	return status == 0 ? sp_buf_append(buf, "'\n", 2) : status;
}

static bool is_name(const char *entry, size_t len)
{
	static const char letters[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";

	return len > 0 && strspn(entry, letters) == len && !(entry[0] >= '0' && entry[0] <= '9');
}

/* The request's own variables, which count more than the state's. */
static int append_exports(struct run *run)
{
	int status = 0;

	for (size_t i = 0; status == 0 && i < run->place.own_count; i++) {
		const char *entry = run->place.own[i];
		size_t len = strcspn(entry, "=");

		if (!is_name(entry, len))
			continue; /* the shell could not name it either */
		status = sp_buf_append(&run->input, "\nexport ", strlen("\nexport "));
		if (status == 0)
			status = sp_buf_append(&run->input, entry, len + 1);
		if (status == 0)
			status = append_quoted(&run->input, entry + len + 1);
	}
	return status;
}

/* What the run reads before its code. */
static int build_input(struct run *run, struct sp_err *err)
{
	static const char change[] = "\ncommand cd -- ";
	const struct sp_buf *state = &run->session->state;
	int status = sp_buf_append(&run->input, sp_buf_text(state), state->len);

	if (status == 0 && state->len > 0)
		status = append_exports(run);
	if (status == 0 && run->place.cwd)
		status = sp_buf_append(&run->input, change, strlen(change));
	if (status == 0 && run->place.cwd)
		status = append_quoted(&run->input, run->place.cwd);
	return status < 0 ? sp_err_set(err, status, "give a shell its state") : 0;
}

static void capture(struct run *run, const void *data, size_t len)
{
	if (run->state_lost || sp_buf_append(&run->state, data, len) < 0) {
		run->state_lost = true;
		sp_buf_done(&run->state);
	}
}

/* The state stands between the last two NULs; what a trace or a message has put around it is of no
 * interest. One that was cut off has no second NUL. */
static void keep_state(struct run *run)
{
	struct sp_buf *state = &run->state;
	struct sp_session *session = run->session;
	const char *end;
	const char *begin;

	if (run->forgets || run->state_lost || state->len == 0)
		return;
	end = memrchr(state->data, '\0', state->len);
	begin = end ? memrchr(state->data, '\0', (size_t)(end - state->data)) : NULL;
	if (!begin || end - begin > (ptrdiff_t)SP_EXECD_STATE_MAX)
		return;
	state->len = (size_t)(end - state->data);
	sp_buf_consume(state, (size_t)(begin + 1 - state->data));
	sp_buf_done(&session->state);
	session->state = *state;
	sp_buf_init(state, CAPTURE_MAX);
}

/* ---- one run ---- */

/* It may have begun: nobody waits for its end. */
static void cut_off(const struct run *run)
{
	const struct sp_session_owner *owner = &run->session->owner;

	if (run->shell.exec && owner->number != 0)
		owner->run_ended(owner->arg, SP_EXEC_KILLED);
}

static void on_gone(void *arg)
{
	struct run *run = arg;

	cut_off(run);
	run->events = NULL;
	run_done(run);
}

static void on_drained(void *arg)
{
	struct run *run = arg;

	sp_exec_pause(run->shell.exec, false);
}

static const struct sp_events_owner events_owner = {
	.drained = on_drained,
	.gone = on_gone,
};

static void on_started(void *arg, const char *sandbox_id)
{
	struct run *run = arg;
	struct sp_request *request = run->request;

	SP_UNUSED(sandbox_id);
	run->request = NULL;
	if (sp_events_open(request, run->session->id, &events_owner, run, &run->events) < 0)
		sp_exec_kill(run->shell.exec);
}

static void on_output(void *arg, int stream, const void *data, size_t len)
{
	struct run *run = arg;

	if (stream == 2)
		capture(run, data, len);
	else if (run->events && !sp_events_output(run->events, 1, data, len))
		sp_exec_pause(run->shell.exec, true);
}

static void on_stdin_credit(void *arg, uint32_t bytes)
{
	struct run *run = arg;

	run->input_window += bytes;
	feed(run);
}

/* In the words of isolated runs. */
static void fail_isolated(struct sp_events *events, const struct sp_exec_result *result,
			  const struct sp_execd_outcome *outcome)
{
	char value[sizeof(outcome->text) + 64];
	char text[sizeof(outcome->text) + 64];
	struct sp_event_error error = {.name = "RuntimeError", .value = value, .text = text};

	if (result->reason == SP_EXEC_EXITED) {
		error.name = "ExitError";
		(void)snprintf(value, sizeof(value), "%d", outcome->exit_code);
		(void)snprintf(text, sizeof(text), "command exited with code %d",
			       outcome->exit_code);
	} else if (result->reason == SP_EXEC_TIMEOUT) {
		(void)snprintf(value, sizeof(value), "context deadline exceeded");
		(void)snprintf(text, sizeof(text), "%s", value);
	} else {
		(void)snprintf(value, sizeof(value),
			       "session process exited without end marker (%s)", outcome->text);
		(void)snprintf(text, sizeof(text), "%s", value);
	}
	sp_events_fail(events, &error);
}

static void on_ended(void *arg, const struct sp_exec_result *result)
{
	struct run *run = arg;
	struct sp_events *events = run->events;
	const struct sp_session_owner owner = run->session->owner;
	bool isolated = owner.number != 0;
	struct sp_execd_outcome outcome;
	struct sp_err err = {0};

	if (run->request) {
		(void)sp_execd_start_error(result, run->place.cwd, &err);
		refuse(run, &err);
		return;
	}
	sp_execd_outcome(result, &outcome);
	keep_state(run);
	if (isolated)
		owner.run_ended(owner.arg, result->reason);
	run_done(run);
	if (!events)
		return;
	if (outcome.exit_code == 0)
		sp_events_complete(events, result->wall_us / 1000);
	else if (isolated)
		fail_isolated(events, result, &outcome);
	else
		sp_execd_fail_with(events, &outcome);
}

static const struct sp_exec_events exec_events = {
	.started = on_started,
	.output = on_output,
	.stdin_credit = on_stdin_credit,
	.ended = on_ended,
};

static int begin(struct run *run, struct sp_err *err)
{
	struct sp_session *session = run->session;
	struct sp_exec_spec *spec = &run->shell.spec;
	int status = build_input(run, err);

	if (status < 0)
		return status;
	/* Once there is a state, what the code has unset is not set again. */
	spec->env = run->place.env;
	spec->envc = session->state.len == 0 ? run->place.envc : 0;
	spec->cwd = run->place.cwd;
	if (!spec->cwd && session->state.len == 0)
		spec->cwd = session->owner.number != 0 ? session->owner.cwd : session->cwd;
	spec->stdin_open = run->input.len > 0;
	status = sp_shell_start(&run->shell, run->text, err);
	if (status == 0)
		feed(run);
	return status;
}

/* Those that cannot be started are answered, until one can. */
static void begin_first(struct sp_session *session)
{
	struct run *run;

	while ((run = first_run(session))) {
		struct sp_request *request = run->request;
		struct sp_err err = {0};

		if (begin(run, &err) == 0)
			return;
		run_free(run);
		sp_reply_error(request, &err);
	}
}

/* The client left before its run began to answer. */
static void on_client_left(struct sp_request *request)
{
	cut_off(request->operation);
	run_done(request->operation);
}

static struct run *run_new(struct sp_session *session, const char *text, int64_t timeout_ms)
{
	struct run *run = calloc(1, sizeof(*run));

	if (!run)
		return NULL;
	run->text = strdup(text);
	if (!run->text) {
		free(run);
		return NULL;
	}
	run->session = session;
	run->forgets = false;
	run->input_window = SP_EXEC_STDIN_WINDOW;
	sp_buf_init(&run->input, CAPTURE_MAX);
	sp_buf_init(&run->state, CAPTURE_MAX);
	run->shell = (struct sp_shell){
		.execd = session->execd,
		.script = script,
		.bash_setup = sp_session_bash,
		.sh_setup = sp_session_sh,
		.events = &exec_events,
		.arg = run,
		.spec = {.uid = session->owner.number != 0 ? session->owner.uid : -1,
			 .gid = session->owner.number != 0 ? session->owner.gid : -1,
			 .session = session->owner.number,
			 .timeout_ms = timeout_ms > 0 ? SP_MIN(timeout_ms, SP_EXEC_TIMEOUT_MAX_MS)
						      : DAY_MS,
			 .output_unlimited = true},
	};
	sp_list_append(&session->runs, &run->link);
	session->run_count++;
	return run;
}

static int place_env(struct run *run, const json_t *envs, struct sp_err *err)
{
	const struct sp_session *session = run->session;
	const struct sp_session_owner *owner = &session->owner;

	if (owner->number == 0)
		return sp_execd_place_env(&run->place, session->execd->os, NULL, err);
	run->forgets = json_object_size(envs) > 0;
	return sp_execd_place_env_over(&run->place, owner->env, owner->envc, envs, err);
}

static int prepare(struct sp_session *session, const char *text, const char *cwd,
		   const json_t *envs, int64_t timeout_ms, struct run **ret_run, struct sp_err *err)
{
	struct run *run;
	int status;

	if (session->run_count > (session->is_context ? 0 : SP_EXECD_WAITING_MAX))
		return sp_err_code(err, SP_CODE_CONFLICT, -EBUSY, "session is busy");
	run = run_new(session, text, timeout_ms);
	if (!run)
		return sp_err_set(err, -ENOMEM, "run code in a session");
	status = place_env(run, envs, err);
	if (status == 0)
		status = sp_execd_place_cwd(&run->place, cwd, err);
	if (status < 0) {
		run_free(run);
		return status;
	}
	*ret_run = run;
	return 0;
}

static void run_for(struct sp_session *session, struct sp_request *request, const char *text,
		    const char *cwd, const json_t *envs, int64_t timeout_ms)
{
	struct sp_err err = {0};
	struct run *run = NULL;
	int status = prepare(session, text, cwd, envs, timeout_ms, &run, &err);

	if (status == -EBUSY) {
		sp_os_reply_error(request, MHD_HTTP_INTERNAL_SERVER_ERROR, "RUNTIME_ERROR", "%s",
				  err.message);
		return;
	}
	if (status < 0) {
		sp_reply_error(request, &err);
		return;
	}
	if (sp_request_suspend(request, on_client_left, run) < 0) {
		run_free(run);
		return;
	}
	run->request = request;
	if (run == first_run(session))
		begin_first(session);
}

void sp_session_run(struct sp_session *session, struct sp_request *request, const char *text,
		    const char *cwd, int64_t timeout_ms)
{
	run_for(session, request, text, cwd, NULL, timeout_ms);
}

void sp_session_run_isolated(struct sp_session *session, struct sp_request *request,
			     const char *text, const json_t *envs, int64_t timeout_ms)
{
	run_for(session, request, text, NULL, envs, timeout_ms);
}

bool sp_session_is_busy(const struct sp_session *session)
{
	return session->run_count > 0;
}

/* ---- sessions ---- */

struct sp_session *sp_session_new_isolated(struct sp_execd *execd, const char *id,
					   const struct sp_session_owner *owner, struct sp_err *err)
{
	struct sp_session *session = calloc(1, sizeof(*session));

	if (!session) {
		(void)sp_err_set(err, -ENOMEM, "make an isolated session");
		return NULL;
	}
	session->execd = execd;
	session->owner = *owner;
	(void)snprintf(session->id, sizeof(session->id), "%s", id);
	sp_buf_init(&session->state, CAPTURE_MAX);
	sp_list_init(&session->runs);
	sp_list_init(&session->link);
	return session;
}

struct sp_session *sp_session_new(struct sp_execd *execd, bool is_context, const char *cwd,
				  struct sp_err *err)
{
	struct sp_session *session;

	if (execd->session_count >= SP_EXECD_SESSIONS_MAX) {
		(void)sp_err_code(err, SP_CODE_TOO_MANY, -ENOSPC,
				  "the sandbox has %u shell sessions already",
				  SP_EXECD_SESSIONS_MAX);
		return NULL;
	}
	session = calloc(1, sizeof(*session));
	if (session && cwd)
		session->cwd = strdup(cwd);
	if (!session || (cwd && !session->cwd)) {
		free(session);
		(void)sp_err_set(err, -ENOMEM, "make a session");
		return NULL;
	}
	session->execd = execd;
	session->is_context = is_context;
	if (is_context)
		sp_execd_id_new(session->id);
	else
		sp_os_uuid_new(session->id);
	sp_buf_init(&session->state, CAPTURE_MAX);
	sp_list_init(&session->runs);
	sp_list_append(&execd->sessions, &session->link);
	execd->session_count++;
	return session;
}

static void end_run(struct run *run, const char *why)
{
	struct sp_execd_outcome outcome = {.exit_code = -1};
	struct sp_request *request = run->request;
	struct sp_events *events = run->events;
	struct sp_err err = {0};

	(void)snprintf(outcome.text, sizeof(outcome.text), "signal: killed (%s)", why);
	run_free(run);
	if (events)
		sp_execd_fail_with(events, &outcome);
	if (request) {
		(void)sp_err_code(&err, SP_CODE_SANDBOX_DEAD, -ESRCH, "%s", why);
		sp_reply_error(request, &err);
	}
}

static void session_end(struct sp_session *session, const char *why)
{
	struct run *run;

	while ((run = first_run(session)))
		end_run(run, why);
	sp_list_remove(&session->link);
	if (session->owner.number == 0)
		session->execd->session_count--;
	sp_buf_done(&session->state);
	free(session->cwd);
	free(session);
}

void sp_session_free(struct sp_session *session)
{
	session_end(session, "the session was deleted");
}

void sp_sessions_end(struct sp_execd *execd)
{
	struct sp_session *session;

	while ((session = SP_LIST_FIRST(&execd->sessions, struct sp_session, link)))
		session_end(session, "the sandbox has ended");
}

const char *sp_session_id(const struct sp_session *session)
{
	return session->id;
}

static struct sp_session *find_session(struct sp_execd *execd, const char *id)
{
	SP_LIST_FOREACH (link, &execd->sessions) {
		struct sp_session *session = SP_CONTAINER_OF(link, struct sp_session, link);

		if (strcmp(session->id, id) == 0)
			return session;
	}
	return NULL;
}

struct sp_session *sp_session_find(struct sp_execd *execd, const char *id)
{
	struct sp_session *session = find_session(execd, id);

	return session && !session->is_context ? session : NULL;
}

struct sp_session *sp_session_find_context(struct sp_execd *execd, const char *id)
{
	struct sp_session *session = find_session(execd, id);

	return session && session->is_context ? session : NULL;
}

static struct sp_session *context_from(struct sp_execd *execd, struct sp_list *link)
{
	for (; link != &execd->sessions; link = link->next) {
		struct sp_session *session = SP_CONTAINER_OF(link, struct sp_session, link);

		if (session->is_context)
			return session;
	}
	return NULL;
}

struct sp_session *sp_session_first_context(struct sp_execd *execd)
{
	return context_from(execd, execd->sessions.next);
}

struct sp_session *sp_session_next_context(struct sp_session *session)
{
	return context_from(session->execd, session->link.next);
}

/* A shell that has just begun a program looks at no signal before its end, and the program was not
 * there yet: then it takes a second one. */
bool sp_session_interrupt(struct sp_execd *execd, const char *id)
{
	struct sp_session *session = find_session(execd, id);
	struct run *run = session ? first_run(session) : NULL;

	if (!run || !run->shell.exec)
		return false;
	sp_exec_stop(run->shell.exec, SIGTERM, SP_EXECD_PATIENCE_MS, SP_EXECD_AGAIN_MS);
	return true;
}
