/*
 * Run and exec answered as one JSON object: output is collected until the exec ends.
 *
 * stdout and stderr share one encoding: "utf-8" when both are valid UTF-8 and their escapes would
 * not take more room than base64 (control bytes cost six each), else "base64". What is held of one
 * exec is at most SP_API_PLAIN_OUTPUT_MAX (as the exec's output_limit), of all
 * together SP_API_PLAIN_TOTAL_MAX, answers that their clients have not read yet included: beyond
 * that output is dropped and shown as truncated. Whoever wants more than that uses the stream.
 *
 * The request is suspended for the whole time; its client's leaving cancels the exec.
 */
#include "supervisor/api/api_private.h"

#include "supervisor/api/exec_json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct plain {
	struct sp_request *request;
	struct sp_exec *exec;
	struct sp_start_body start; /* holds stdin_text */
	size_t stdin_sent;
	size_t stdin_window;
	bool stdin_done;
	struct sp_buf out;
	struct sp_buf err;
	bool out_dropped;
	bool err_dropped;
};

static void plain_free(struct plain *plain)
{
	plain->request->api->plain_bytes -= plain->out.len + plain->err.len;
	sp_buf_done(&plain->out);
	sp_buf_done(&plain->err);
	sp_start_body_done(&plain->start);
	free(plain);
}

static void plain_cancel(struct sp_request *request)
{
	struct plain *plain = request->operation;

	sp_exec_cancel(plain->exec);
	plain_free(plain);
}

/* Send as much of stdin_text as the window takes; close it after the last byte. */
static void feed_stdin(struct plain *plain)
{
	while (!plain->stdin_done) {
		size_t left = plain->start.stdin_text_len - plain->stdin_sent;
		size_t len = SP_MIN(left, plain->stdin_window);

		if (left > 0 && len == 0)
			return;
		if (left == 0 ||
		    sp_exec_stdin(plain->exec, plain->start.stdin_text + plain->stdin_sent, len) <
			    0) {
			/* All sent, or nobody reads any more, which is no error. */
			plain->stdin_done = true;
			sp_exec_stdin_close(plain->exec);
			return;
		}
		plain->stdin_sent += len;
		plain->stdin_window -= len;
	}
}

static void on_started(void *arg, const char *sandbox_id)
{
	SP_UNUSED(arg);
	SP_UNUSED(sandbox_id);
}

static void on_output(void *arg, int stream, const void *data, size_t len)
{
	struct plain *plain = arg;
	struct sp_api *api = plain->request->api;
	struct sp_buf *buf = stream == 2 ? &plain->err : &plain->out;
	bool *dropped = stream == 2 ? &plain->err_dropped : &plain->out_dropped;
	size_t room = SP_API_PLAIN_TOTAL_MAX - SP_MIN(api->plain_bytes, SP_API_PLAIN_TOTAL_MAX);
	size_t take = SP_MIN(len, room);

	/* Once something is missing nothing may follow it. */
	if (!*dropped && take > 0 && sp_buf_append(buf, data, take) == 0)
		api->plain_bytes += take;
	else
		take = 0;
	if (take < len)
		*dropped = true;
}

static void on_stdin_credit(void *arg, uint32_t bytes)
{
	struct plain *plain = arg;

	plain->stdin_window += bytes;
	feed_stdin(plain);
}

static bool text_is_better(const struct sp_buf *out, const struct sp_buf *err)
{
	size_t out_escaped;
	size_t err_escaped;

	if (!sp_utf8_valid(sp_buf_text(out), out->len, &out_escaped) ||
	    !sp_utf8_valid(sp_buf_text(err), err->len, &err_escaped))
		return false;
	/* Short text stays readable whatever is in it. */
	return out_escaped + err_escaped <= 4 * SP_KIB ||
	       out_escaped + err_escaped <= (out->len + err->len) / 3 * 4;
}

/* Each buffer is freed as soon as it is written: raw and encoded output overlap by one at most. */
static void write_output(struct plain *plain, struct sp_json_out *out)
{
	bool text = text_is_better(&plain->out, &plain->err);
	struct sp_api *api = plain->request->api;

	struct {
		const char *key;
		struct sp_buf *buf;
	} streams[] = {{"stdout", &plain->out}, {"stderr", &plain->err}};

	for (size_t i = 0; i < SP_ARRAY_SIZE(streams); i++) {
		struct sp_buf *buf = streams[i].buf;

		if (text)
			sp_json_text_n(out, streams[i].key, sp_buf_text(buf), buf->len);
		else
			sp_json_base64(out, streams[i].key, buf->data, buf->len);
		api->plain_bytes -= buf->len;
		sp_buf_done(buf);
	}
	sp_json_text(out, "encoding", text ? "utf-8" : "base64");
}

static void on_ended(void *arg, const struct sp_exec_result *result)
{
	struct plain *plain = arg;
	struct sp_request *request = plain->request;
	struct sp_exec_result shown = *result;
	struct sp_json_out out;
	struct sp_buf body;

	shown.stdout_truncated |= plain->out_dropped;
	shown.stderr_truncated |= plain->err_dropped;
	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&out, &body);
	sp_json_open(&out, NULL, '{');
	sp_result_write(&out, "result", &shown);
	write_output(plain, &out);
	sp_json_close(&out, '}');
	plain_free(plain);
	sp_request_count_answer(request, body.len);
	sp_reply_written(request, &out);
}

static void on_failed(void *arg, const struct sp_err *err)
{
	struct plain *plain = arg;
	struct sp_request *request = plain->request;

	plain_free(plain);
	sp_reply_error(request, err);
}

static const struct sp_exec_events plain_events = {
	.started = on_started,
	.output = on_output,
	.stdin_credit = on_stdin_credit,
	.ended = on_ended,
};

/* The pool's limit may be beyond what is collected here. An unknown pool or sandbox is the
 * service's to report. */
static int cap_output(struct sp_request *request, bool run, struct sp_exec_spec *spec,
		      struct sp_err *err)
{
	struct sp_service *service = request->api->service;
	struct sp_sandbox_info sandbox;
	struct sp_pool_info pool;
	const char *name = request->name;

	if (spec->output_limit > SP_API_PLAIN_OUTPUT_MAX)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "member 'output_limit' is beyond %u, the most that is answered "
				   "as JSON; the stream has no such limit",
				   SP_API_PLAIN_OUTPUT_MAX);
	if (spec->output_limit > 0)
		return 0;
	if (!run) {
		if (sp_service_inspect(service, &request->caller, name, &sandbox, NULL) < 0)
			return 0;
		name = sandbox.pool;
	}
	if (sp_service_pool(service, name, &pool, NULL) == 0 &&
	    pool.config->output_bytes > SP_API_PLAIN_OUTPUT_MAX)
		spec->output_limit = SP_API_PLAIN_OUTPUT_MAX;
	return 0;
}

static int start(struct plain *plain, bool run, struct sp_err *err)
{
	struct sp_request *request = plain->request;
	struct sp_service *service = request->api->service;
	int status = sp_start_body_parse(&plain->start, SP_START_PLAIN | (run ? SP_START_RUN : 0),
					 request->name, sp_buf_text(&request->body),
					 request->body.len, err);

	if (status == 0)
		status = cap_output(request, run, &plain->start.spec, err);
	if (status < 0)
		return status;
	if (run)
		return sp_exec_run(service, &request->caller, &plain->start.acquire,
				   &plain->start.spec, &plain_events, on_failed, plain,
				   &plain->exec, err);
	return sp_exec_start(service, &request->caller, request->name, &plain->start.spec,
			     &plain_events, plain, &plain->exec, err);
}

void sp_exec_plain_start(struct sp_request *request, bool run)
{
	struct plain *plain = calloc(1, sizeof(*plain));
	struct sp_err err = {0};
	int status;

	if (!plain) {
		(void)sp_err_set(&err, -ENOMEM, "start the exec");
		sp_reply_error(request, &err);
		return;
	}
	plain->request = request;
	plain->stdin_window = SP_EXEC_STDIN_WINDOW;
	sp_buf_init(&plain->out, SP_API_PLAIN_OUTPUT_MAX);
	sp_buf_init(&plain->err, SP_API_PLAIN_OUTPUT_MAX);
	status = start(plain, run, &err);
	sp_buf_done(&request->body);
	if (status < 0) {
		plain_free(plain);
		sp_reply_error(request, &err);
		return;
	}
	if (sp_request_suspend(request, plain_cancel, plain) < 0) {
		sp_exec_cancel(plain->exec);
		plain_free(plain);
		return;
	}
	if (plain->start.stdin_text)
		feed_stdin(plain);
}
