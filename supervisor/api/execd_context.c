/*
 * A context of Python code: one interpreter that runs programs/context.py and keeps what the code
 * leaves in it.
 *
 *	STARTING ──started──► IDLE ⇄ BUSY (one run)
 *	   └─ cannot start, or its process ends in any state ──► gone
 *
 * Code goes to its stdin, frames come from its stdout (context.py says which). They are the
 * sandbox's word: a frame of no known kind, or one that is too long, ends the context, and what
 * comes while nothing runs is dropped. Frames are not looked at while the client has no room for
 * events; then the pipe fills and the interpreter waits.
 *
 * An interrupt is a SIGINT, and is not sent before the run has begun over there (frame `c`): it
 * would hit the interpreter between two runs, where nobody waits for it. A client that leaves
 * interrupts its run.
 */
#include "supervisor/api/execd.h"

#include "pool/base/clock.h"
#include "supervisor/api/context_frame.h"
#include "supervisor/api/execd_programs.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define INPUT_MAX     (SP_API_BODY_MAX + 4u)
#define TRACEBACK_MAX 256u /* lines */
#define COMPLAINT_MAX 1024u

enum context_state { CONTEXT_STARTING, CONTEXT_IDLE, CONTEXT_BUSY };

struct failure {
	struct sp_buf text; /* name NUL value NUL line NUL … */
	bool set;
};

struct sp_context {
	struct sp_list link; /* in execd->contexts */
	struct sp_execd *execd;
	char id[SP_EXECD_ID_LEN + 1];
	enum context_state state;
	struct sp_execd_place place; /* until it runs */
	struct sp_exec *exec;
	struct sp_request *request; /* STARTING: waits for it */
	void (*reply)(struct sp_request *request, struct sp_context *context);
	struct sp_tail complaint; /* what the interpreter itself says */

	/* BUSY */
	struct sp_events *events; /* NULL: the client left */
	bool begun;               /* the other side says so */
	bool interrupt_wanted;
	bool full;
	int64_t run_ns;
	struct failure failure;

	struct sp_buf input; /* code on its way */
	size_t input_sent;
	size_t input_window;
	struct sp_buf frames; /* what has come and was not looked at */
};

static void release(struct sp_context *context)
{
	struct sp_exec *exec = context->exec;

	sp_list_remove(&context->link);
	context->execd->context_count--;
	context->exec = NULL;
	if (exec)
		sp_exec_cancel(exec);
	sp_execd_place_done(&context->place);
	sp_tail_done(&context->complaint);
	sp_buf_done(&context->failure.text);
	sp_buf_done(&context->input);
	sp_buf_done(&context->frames);
	free(context);
}

/* ---- code in ---- */

static void feed(struct sp_context *context)
{
	while (context->input.len > context->input_sent) {
		size_t left = context->input.len - context->input_sent;
		size_t len = SP_MIN(left, context->input_window);

		if (len == 0)
			return;
		/* An interpreter that reads no more is about to end. */
		if (sp_exec_stdin(context->exec, context->input.data + context->input_sent, len) <
		    0)
			break;
		context->input_sent += len;
		context->input_window -= len;
	}
	sp_buf_done(&context->input);
	context->input_sent = 0;
}

static int send_code(struct sp_context *context, const char *text)
{
	size_t len = strlen(text);
	char head[4];
	int status;

	for (size_t i = 0; i < sizeof(head); i++)
		head[i] = (char)(len >> (8 * i) & 0xff);
	sp_buf_done(&context->input);
	context->input_sent = 0;
	status = sp_buf_append(&context->input, head, sizeof(head));
	if (status == 0)
		status = sp_buf_append(&context->input, text, len);
	if (status == 0)
		feed(context);
	return status;
}

/* ---- the end of a run ---- */

static struct sp_events *run_over(struct sp_context *context)
{
	struct sp_events *events = context->events;

	context->state = CONTEXT_IDLE;
	context->events = NULL;
	context->begun = false;
	context->interrupt_wanted = false;
	context->full = false;
	return events;
}

static void finish_run(struct sp_context *context)
{
	int64_t time_ms = (sp_clock_boot_ns() - context->run_ns) / SP_NS_PER_MS;
	struct sp_events *events = run_over(context);
	const char *parts[TRACEBACK_MAX + 2];
	size_t count = sp_context_strings(sp_buf_text(&context->failure.text),
					  context->failure.text.len, parts, SP_ARRAY_SIZE(parts));
	bool failed = context->failure.set;

	context->failure.set = false;
	if (events && failed)
		sp_events_fail(events, &(struct sp_event_error){
					       .name = count > 0 ? parts[0] : "Exception",
					       .value = count > 1 ? parts[1] : "",
					       .traceback = parts + 2,
					       .traceback_count = count > 2 ? count - 2 : 0,
				       });
	else if (events)
		sp_events_complete(events, time_ms);
	sp_buf_done(&context->failure.text);
}

static void fail_run(struct sp_events *events, const char *name, const char *text)
{
	sp_events_fail(events, &(struct sp_event_error){
				       .name = name,
				       .value = text,
				       .traceback = &text,
				       .traceback_count = 1,
			       });
}

/* ---- frames out ---- */

/* What stands still takes no signal until it goes on. */
static void send_interrupt(struct sp_context *context)
{
	(void)sp_exec_signal(context->exec, SIGINT, NULL);
	(void)sp_exec_signal(context->exec, SIGCONT, NULL);
}

static void begun(struct sp_context *context, const char *data, size_t len)
{
	char text[16] = "";

	memcpy(text, data, SP_MIN(len, sizeof(text) - 1));
	context->begun = true;
	if (context->events)
		context->full = !sp_events_count(context->events, strtol(text, NULL, 10));
	if (context->interrupt_wanted)
		send_interrupt(context);
}

static void show_result(struct sp_context *context, const char *data, size_t len)
{
	struct sp_event_datum items[SP_CONTEXT_DATA_MAX];
	size_t count = sp_context_data(data, len, items);

	if (count > 0)
		context->full = !sp_events_result(context->events, items, count);
}

static void keep_failure(struct sp_context *context, const char *data, size_t len)
{
	sp_buf_clear(&context->failure.text);
	context->failure.set = true;
	/* Without memory it is an exception without a name. */
	(void)!sp_buf_append(&context->failure.text, data, len);
}

static void take_frame(struct sp_context *context, const struct sp_context_frame *frame)
{
	bool listening = context->state == CONTEXT_BUSY && context->events;

	switch (frame->kind) {
	case 'c':
		if (context->state == CONTEXT_BUSY)
			begun(context, frame->data, frame->len);
		return;
	case 'o':
	case 'e':
		if (listening && frame->len > 0)
			context->full =
				!sp_events_output(context->events, frame->kind == 'o' ? 1 : 2,
						  frame->data, frame->len);
		return;
	case 'r':
		if (listening)
			show_result(context, frame->data, frame->len);
		return;
	case 'x':
		if (context->state == CONTEXT_BUSY)
			keep_failure(context, frame->data, frame->len);
		return;
	default:
		sp_assert(frame->kind == 'd');
		if (context->state == CONTEXT_BUSY)
			finish_run(context);
	}
}

static int take_frames(struct sp_context *context)
{
	const struct sp_buf *frames = &context->frames;
	struct sp_context_frame frame;
	size_t at = 0;
	int status = 0;

	while (!context->full) {
		status = sp_context_frame_read(sp_buf_text(frames) + at, frames->len - at, &frame);
		if (status <= 0)
			break;
		take_frame(context, &frame);
		at += frame.size;
	}
	if (status >= 0)
		sp_buf_consume(&context->frames, at);
	if (context->frames.len == 0)
		sp_buf_done(&context->frames);
	return SP_MIN(status, 0);
}

/* Something is wrong with it: it ends, and its run with it. */
static void break_context(struct sp_context *context, const char *why)
{
	struct sp_events *events = run_over(context);

	release(context);
	if (events)
		fail_run(events, "KernelError", why);
}

static void go_on(struct sp_context *context)
{
	if (take_frames(context) < 0)
		break_context(context, "the interpreter does not keep to its protocol");
	else
		sp_exec_pause(context->exec, context->full);
}

static void on_output(void *arg, int stream, const void *data, size_t len)
{
	struct sp_context *context = arg;

	if (stream == 2)
		sp_tail_append(&context->complaint, data, len, COMPLAINT_MAX);
	else if (sp_buf_append(&context->frames, data, len) < 0)
		break_context(context, "no memory for its output");
	else
		go_on(context);
}

/* ---- events of the client ---- */

static void on_drained(void *arg)
{
	struct sp_context *context = arg;

	context->full = false;
	go_on(context);
}

static void interrupt(struct sp_context *context)
{
	context->interrupt_wanted = true;
	if (context->begun)
		send_interrupt(context);
}

static void on_gone(void *arg)
{
	struct sp_context *context = arg;

	context->events = NULL;
	context->full = false;
	interrupt(context);
	go_on(context);
}

static const struct sp_events_owner events_owner = {
	.drained = on_drained,
	.gone = on_gone,
};

/* ---- its process ---- */

static void on_started(void *arg, const char *sandbox_id)
{
	struct sp_context *context = arg;
	struct sp_request *request = context->request;

	SP_UNUSED(sandbox_id);
	context->state = CONTEXT_IDLE;
	context->request = NULL;
	sp_execd_place_done(&context->place);
	if (request)
		context->reply(request, context);
}

static void on_stdin_credit(void *arg, uint32_t bytes)
{
	struct sp_context *context = arg;

	context->input_window += bytes;
	feed(context);
}

static void on_ended(void *arg, const struct sp_exec_result *result)
{
	struct sp_context *context = arg;
	struct sp_request *request = context->request;
	struct sp_execd_outcome outcome;
	struct sp_events *events = NULL;
	char text[sizeof(outcome.text) + COMPLAINT_MAX + 4];
	struct sp_buf complaint;
	struct sp_err err = {0};

	context->exec = NULL;
	sp_execd_outcome(result, &outcome);
	sp_buf_init(&complaint, COMPLAINT_MAX);
	(void)sp_tail_read(&context->complaint, 0, &complaint);
	(void)snprintf(text, sizeof(text), "%s%s%s",
		       outcome.text[0] ? outcome.text : "exit status 0", complaint.len ? ": " : "",
		       sp_buf_text(&complaint));
	sp_buf_done(&complaint);
	if (request)
		(void)sp_execd_start_error(result, context->place.cwd, &err);
	else if (context->state == CONTEXT_BUSY)
		events = run_over(context);
	release(context);
	if (request)
		sp_reply_error(request, &err);
	else if (events)
		fail_run(events, "KernelDied", text);
}

static const struct sp_exec_events exec_events = {
	.started = on_started,
	.output = on_output,
	.stdin_credit = on_stdin_credit,
	.ended = on_ended,
};

static int start(struct sp_context *context, const char *cwd, struct sp_err *err)
{
	static const char *const argv[] = {"python3", "-c", sp_context_py};
	struct sp_execd *execd = context->execd;
	struct sp_caller caller = sp_os_caller(execd->os);
	struct sp_execd_place *place = &context->place;
	struct sp_exec_spec spec = {
		.argv = argv,
		.argc = SP_ARRAY_SIZE(argv),
		.uid = -1,
		.gid = -1,
		.timeout_ms = SP_EXEC_TIMEOUT_MAX_MS,
		.stdin_open = true,
		.output_unlimited = true,
		.resident = true,
		.start_awaited = true,
	};
	int status = sp_execd_place_env(place, execd->os, NULL, err);

	if (status == 0)
		status = sp_execd_place_cwd(place, cwd, err);
	if (status < 0)
		return status;
	spec.env = place->env;
	spec.envc = place->envc;
	spec.cwd = place->cwd;
	return sp_exec_start(execd->api->service, &caller, execd->os->id, &spec, &exec_events,
			     context, &context->exec, err);
}

int sp_context_new(struct sp_execd *execd, const char *cwd, struct sp_context **ret_context,
		   struct sp_err *err)
{
	struct sp_context *context;
	int status;

	if (execd->context_count >= SP_EXECD_CONTEXTS_MAX)
		return sp_err_code(err, SP_CODE_TOO_MANY, -ENOSPC,
				   "the sandbox has %u contexts already", SP_EXECD_CONTEXTS_MAX);
	context = calloc(1, sizeof(*context));
	if (!context)
		return sp_err_set(err, -ENOMEM, "make a context");
	context->execd = execd;
	context->input_window = SP_EXEC_STDIN_WINDOW;
	sp_execd_id_new(context->id);
	sp_buf_init(&context->input, INPUT_MAX);
	sp_buf_init(&context->frames, SP_CONTEXT_FRAME_MAX + SP_CONTEXT_FRAME_HEAD + 128u * 1024);
	sp_buf_init(&context->failure.text, SP_CONTEXT_FRAME_MAX);
	sp_list_append(&execd->contexts, &context->link);
	execd->context_count++;
	status = start(context, cwd, err);
	if (status < 0) {
		release(context);
		return status;
	}
	*ret_context = context;
	return 0;
}

static void end_with(struct sp_context *context, const char *why)
{
	struct sp_request *request = context->request;
	struct sp_events *events = context->events;
	struct sp_err err = {0};

	release(context);
	if (events)
		fail_run(events, "KernelDied", why);
	if (request) {
		(void)sp_err_code(&err, SP_CODE_SANDBOX_DEAD, -ESRCH, "%s", why);
		sp_reply_error(request, &err);
	}
}

void sp_context_free(struct sp_context *context)
{
	end_with(context, "the context was deleted");
}

void sp_contexts_end(struct sp_execd *execd)
{
	struct sp_context *context;

	while ((context = sp_context_first(execd)))
		end_with(context, "the sandbox has ended");
}

const char *sp_context_id(const struct sp_context *context)
{
	return context->id;
}

static struct sp_context *context_at(struct sp_execd *execd, struct sp_list *link)
{
	return link == &execd->contexts ? NULL : SP_CONTAINER_OF(link, struct sp_context, link);
}

struct sp_context *sp_context_first(struct sp_execd *execd)
{
	return SP_LIST_FIRST(&execd->contexts, struct sp_context, link);
}

struct sp_context *sp_context_next(struct sp_context *context)
{
	return context_at(context->execd, context->link.next);
}

struct sp_context *sp_context_find(struct sp_execd *execd, const char *id)
{
	struct sp_context *context = sp_context_first(execd);

	while (context && strcmp(context->id, id) != 0)
		context = sp_context_next(context);
	return context;
}

bool sp_context_interrupt(struct sp_execd *execd, const char *id)
{
	struct sp_context *context = sp_context_find(execd, id);

	if (!context || context->state != CONTEXT_BUSY)
		return false;
	interrupt(context);
	return true;
}

/* ---- requests ---- */

/* One that has not started goes with who asked for it. */
static void on_client_left(struct sp_request *request)
{
	struct sp_context *context = request->operation;

	release(context);
}

void sp_context_await(struct sp_context *context, struct sp_request *request,
		      void (*reply)(struct sp_request *request, struct sp_context *context))
{
	if (context->state != CONTEXT_STARTING) {
		reply(request, context);
		return;
	}
	if (context->request) {
		sp_os_reply_error(request, MHD_HTTP_INTERNAL_SERVER_ERROR, "RUNTIME_ERROR",
				  "session is busy");
		return;
	}
	context->reply = reply;
	context->request = request;
	if (sp_request_suspend(request, on_client_left, context) < 0)
		release(context);
}

void sp_context_run(struct sp_context *context, struct sp_request *request, const char *text)
{
	if (context->state == CONTEXT_BUSY) {
		sp_os_reply_error(request, MHD_HTTP_INTERNAL_SERVER_ERROR, "RUNTIME_ERROR",
				  "session is busy");
		return;
	}
	context->state = CONTEXT_BUSY;
	context->run_ns = sp_clock_boot_ns();
	if (sp_events_open(request, context->id, &events_owner, context, &context->events) < 0) {
		context->events = NULL;
		context->state = CONTEXT_IDLE;
		return;
	}
	if (send_code(context, text) < 0)
		break_context(context, "no memory for the code");
}
