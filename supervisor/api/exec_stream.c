/*
 * The framed stream on an upgraded connection (exec_frame.h): any number of execs, one at a time.
 *
 *	IDLE ── START ──► RUNNING ── ended, failed ──► IDLE
 *	any ── protocol error ──► ENDED: what is queued is written, nothing is read any more
 *	any ── end of file, error of the socket ──► ENDED; a running exec is cancelled
 *
 * Nothing is unbounded, in either direction:
 *   - while the queue to the client is full (duplex.h) the exec is paused, back to the workload's
 *     write(2);
 *   - only answers to the client's own frames get us to where it is not read, so a paused exec can
 *     still be signalled;
 *   - stdin is credited: more than SP_EXEC_STDIN_WINDOW outstanding ends the connection.
 *
 * The client has the whole connection: no HTTP follows.
 */
#include "supervisor/api/duplex.h"

#include "supervisor/api/exec_frame.h"
#include "supervisor/api/exec_json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define READ_MAX (SP_FRAME_HEADER_SIZE + SP_FRAME_PAYLOAD_MAX)

enum stream_state { STREAM_IDLE, STREAM_RUNNING, STREAM_ENDED };

struct exec_stream {
	struct sp_duplex duplex;
	enum stream_state state;

	bool release; /* of the sandbox when we close */
	bool run; /* every START acquires a sandbox of pool `name`; else runs in sandbox `name` */
	char name[SP_POOL_NAME_MAX + 1];
	char pool[SP_POOL_NAME_MAX + 1];
	struct sp_caller caller;
	char *secret; /* what caller.secret points to */

	struct sp_exec *exec;
	bool paused;
	bool started; /* STARTED was sent; before it no other frame of the exec is */
	bool stdin_open;
	size_t stdin_outstanding;
	size_t stdin_consumed; /* of it; credit that waits for STARTED */
};

static struct exec_stream *stream_of(struct sp_duplex *duplex)
{
	return SP_CONTAINER_OF(duplex, struct exec_stream, duplex);
}

/* ---- the end ---- */

static void on_freed(struct sp_duplex *duplex)
{
	struct exec_stream *stream = stream_of(duplex);

	if (stream->secret) {
		explicit_bzero(stream->secret, strlen(stream->secret));
		free(stream->secret);
	}
	free(stream);
}

/* Ends the exec, if one runs; its events stop here. */
static void on_closed(struct sp_duplex *duplex)
{
	struct exec_stream *stream = stream_of(duplex);
	struct sp_exec *exec = stream->exec;

	stream->state = STREAM_ENDED;
	stream->exec = NULL;
	if (exec)
		sp_exec_cancel(exec);
	/* It may have ended before, or been released: there is nobody left to tell. */
	if (stream->release)
		(void)sp_service_release(duplex->api->service, &stream->caller, stream->name, NULL);
}

/* ---- writing ---- */

static void send_frame(struct exec_stream *stream, enum sp_frame_type type, const void *payload,
		       size_t len)
{
	uint8_t header[SP_FRAME_HEADER_SIZE];

	sp_frame_header_write(header, type, (uint32_t)len);
	sp_duplex_write(&stream->duplex, header, sizeof(header));
	sp_duplex_write(&stream->duplex, payload, len);
}

static void send_json(struct exec_stream *stream, enum sp_frame_type type, struct sp_json_out *out)
{
	if (out->status < 0)
		sp_duplex_close(&stream->duplex);
	else
		send_frame(stream, type, sp_buf_text(out->buf), out->buf->len);
	sp_buf_done(out->buf);
}

static void send_error(struct exec_stream *stream, const struct sp_err *err)
{
	struct sp_json_out out;
	struct sp_buf body;

	sp_buf_init(&body, SP_FRAME_PAYLOAD_MAX);
	sp_json_out_init(&out, &body);
	sp_error_write(&out, err);
	send_json(stream, SP_FRAME_ERROR, &out);
}

static void pause_if_full(struct exec_stream *stream)
{
	if (stream->paused || !stream->exec || !stream->duplex.full)
		return;
	stream->paused = true;
	sp_exec_pause(stream->exec, true);
}

static void on_drained(struct sp_duplex *duplex)
{
	struct exec_stream *stream = stream_of(duplex);

	if (!stream->paused)
		return;
	stream->paused = false;
	if (stream->exec)
		sp_exec_pause(stream->exec, false);
}

/* Tell the client why, then end. */
static void end_with(struct exec_stream *stream, const struct sp_err *err)
{
	struct sp_exec *exec = stream->exec;

	stream->state = STREAM_ENDED;
	stream->exec = NULL;
	send_error(stream, err);
	sp_duplex_drain(&stream->duplex);
	if (exec)
		sp_exec_cancel(exec);
}

static void protocol_error(struct exec_stream *stream, const char *what)
{
	struct sp_err err = {0};

	(void)sp_err_code(&err, SP_CODE_PROTOCOL, -EPROTO, "%s", what);
	end_with(stream, &err);
}

static void on_refused(struct sp_duplex *duplex, const struct sp_err *err)
{
	end_with(stream_of(duplex), err);
}

/* ---- what the exec tells ---- */

static void on_output(void *arg, int number, const void *data, size_t len)
{
	struct exec_stream *stream = arg;
	enum sp_frame_type type = number == 2 ? SP_FRAME_STDERR : SP_FRAME_STDOUT;
	const char *at = data;

	while (len > 0 && stream->state == STREAM_RUNNING) {
		size_t piece = SP_MIN(len, (size_t)SP_FRAME_DATA_MAX);

		send_frame(stream, type, at, piece);
		at += piece;
		len -= piece;
	}
	if (stream->state == STREAM_RUNNING)
		pause_if_full(stream);
}

static void send_credit(struct exec_stream *stream)
{
	size_t bytes = stream->stdin_consumed;
	uint8_t payload[4];

	if (bytes == 0 || !stream->started)
		return;
	sp_assert(bytes <= stream->stdin_outstanding);
	stream->stdin_outstanding -= bytes;
	stream->stdin_consumed = 0;
	for (unsigned int i = 0; i < sizeof(payload); i++)
		payload[i] = (uint8_t)(bytes >> (8 * i));
	send_frame(stream, SP_FRAME_STDIN_CREDIT, payload, sizeof(payload));
}

static void on_stdin_credit(void *arg, uint32_t bytes)
{
	struct exec_stream *stream = arg;

	stream->stdin_consumed += bytes;
	send_credit(stream);
}

static void on_started(void *arg, const char *sandbox_id)
{
	struct exec_stream *stream = arg;
	struct sp_json_out out;
	struct sp_buf body;

	sp_buf_init(&body, SP_FRAME_PAYLOAD_MAX);
	sp_json_out_init(&out, &body);
	sp_started_write(&out, sandbox_id, stream->pool);
	send_json(stream, SP_FRAME_STARTED, &out);
	stream->started = true;
	send_credit(stream);
}

static void exec_gone(struct exec_stream *stream)
{
	stream->exec = NULL;
	stream->paused = false;
	stream->stdin_open = false;
	stream->stdin_outstanding = 0;
	stream->stdin_consumed = 0;
	stream->started = false;
	if (stream->state == STREAM_RUNNING)
		stream->state = STREAM_IDLE;
}

static void on_ended(void *arg, const struct sp_exec_result *result)
{
	struct exec_stream *stream = arg;
	struct sp_json_out out;
	struct sp_buf body;

	exec_gone(stream);
	sp_buf_init(&body, SP_FRAME_PAYLOAD_MAX);
	sp_json_out_init(&out, &body);
	sp_result_write(&out, NULL, result);
	send_json(stream, SP_FRAME_RESULT, &out);
}

static void on_failed(void *arg, const struct sp_err *err)
{
	struct exec_stream *stream = arg;

	exec_gone(stream);
	send_error(stream, err);
}

static const struct sp_exec_events stream_events = {
	.started = on_started,
	.output = on_output,
	.stdin_credit = on_stdin_credit,
	.ended = on_ended,
};

/* ---- what the client says ---- */

static int start_exec(struct exec_stream *stream, const struct sp_frame *frame, struct sp_err *err)
{
	struct sp_service *service = stream->duplex.api->service;
	struct sp_start_body body;
	int status = sp_start_body_parse(&body, stream->run ? SP_START_RUN : 0, stream->name,
					 (const char *)frame->payload, frame->length, err);

	if (status < 0)
		return status;
	if (stream->run)
		status = sp_exec_run(service, &stream->caller, &body.acquire, &body.spec,
				     &stream_events, on_failed, stream, &stream->exec, err);
	else
		status = sp_exec_start(service, &stream->caller, stream->name, &body.spec,
				       &stream_events, stream, &stream->exec, err);
	if (status == 0)
		stream->stdin_open = body.spec.stdin_open;
	stream->release |= status == 0 && body.release;
	sp_start_body_done(&body);
	return status;
}

static void on_start(struct exec_stream *stream, const struct sp_frame *frame)
{
	struct sp_err err = {0};

	if (stream->state == STREAM_RUNNING) {
		protocol_error(stream, "START while an exec runs");
		return;
	}
	if (start_exec(stream, frame, &err) < 0)
		send_error(stream, &err);
	else
		stream->state = STREAM_RUNNING;
}

static void on_stdin(struct exec_stream *stream, const struct sp_frame *frame)
{
	int status;

	if (!stream->stdin_open) {
		protocol_error(stream, "STDIN of an exec that has none open");
		return;
	}
	stream->stdin_outstanding += frame->length;
	if (stream->stdin_outstanding > SP_EXEC_STDIN_WINDOW) {
		protocol_error(stream, "more STDIN than was credited");
		return;
	}
	if (frame->length == 0)
		return;
	status = sp_exec_stdin(stream->exec, frame->payload, frame->length);
	/* Nobody reads any more: as a pipe to a closed reader, but the client may go on. */
	if (status < 0) {
		stream->stdin_consumed += frame->length;
		send_credit(stream);
	}
}

static void on_signal(struct exec_stream *stream, const struct sp_frame *frame)
{
	uint32_t number = 0;
	struct sp_err err = {0};

	for (unsigned int i = 0; i < 4; i++)
		number |= (uint32_t)frame->payload[i] << (8 * i);
	if (number < 1 || number > 64) {
		protocol_error(stream, "SIGNAL with a number beyond 1 … 64");
		return;
	}
	/* It may have ended meanwhile; the RESULT tells. */
	(void)sp_exec_signal(stream->exec, (int)number, &err);
}

static void on_resize(struct exec_stream *stream, const struct sp_frame *frame)
{
	const uint8_t *at = frame->payload;

	(void)sp_exec_resize(stream->exec, (uint16_t)(at[0] | at[1] << 8),
			     (uint16_t)(at[2] | at[3] << 8));
}

static void on_frame(struct exec_stream *stream, const struct sp_frame *frame)
{
	if (frame->type == SP_FRAME_START) {
		on_start(stream, frame);
		return;
	}
	/* Crossed the RESULT on the wire. */
	if (stream->state != STREAM_RUNNING)
		return;
	switch (frame->type) {
	case SP_FRAME_STDIN:
		on_stdin(stream, frame);
		break;
	case SP_FRAME_STDIN_EOF:
		stream->stdin_open = false;
		sp_exec_stdin_close(stream->exec);
		break;
	case SP_FRAME_RESIZE:
		on_resize(stream, frame);
		break;
	case SP_FRAME_SIGNAL:
		on_signal(stream, frame);
		break;
	case SP_FRAME_START:
	case SP_FRAME_STARTED:
	case SP_FRAME_STDOUT:
	case SP_FRAME_STDERR:
	case SP_FRAME_STDIN_CREDIT:
	case SP_FRAME_RESULT:
	case SP_FRAME_ERROR:
		break; /* the parser refuses them from a client */
	}
}

static size_t on_received(struct sp_duplex *duplex, const uint8_t *data, size_t len)
{
	struct exec_stream *stream = stream_of(duplex);
	struct sp_frame frame;
	int64_t size = sp_frame_parse(data, len, true, &frame);

	if (size < 0) {
		protocol_error(stream, size == -EMSGSIZE ? "a frame is too long"
							 : "no frame of this protocol");
		return 0;
	}
	if (size > 0)
		on_frame(stream, &frame);
	return (size_t)size;
}

static const struct sp_duplex_events duplex_events = {
	.received = on_received,
	.refused = on_refused,
	.drained = on_drained,
	.closed = on_closed,
	.freed = on_freed,
};

/* ---- opening ---- */

/* An answer before the upgrade for what cannot work, so that HTTP says it. */
static int check_target(struct sp_request *request, bool run, struct exec_stream *stream,
			struct sp_err *err)
{
	struct sp_service *service = request->api->service;
	struct sp_sandbox_info sandbox;
	struct sp_pool_info pool;
	int status;

	if (request->body.len > 0)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "an Upgrade request has no body; START is a frame");
	if (run) {
		status = sp_service_pool(service, request->name, &pool, err);
		if (status == 0)
			memcpy(stream->pool, request->name, strlen(request->name) + 1);
		return status;
	}
	status = sp_service_inspect(service, &request->caller, request->name, &sandbox, err);
	if (status == 0)
		memcpy(stream->pool, sandbox.pool,
		       SP_MIN(strlen(sandbox.pool), sizeof(stream->pool) - 1));
	return status;
}

void sp_exec_stream_open(struct sp_request *request, bool run)
{
	static const struct sp_answer_header headers[] = {{"Upgrade", "sandpool-exec"}};
	struct exec_stream *stream = calloc(1, sizeof(*stream));
	const char *secret = request->caller.secret;
	struct sp_err err = {0};
	int status;

	if (!stream) {
		(void)sp_err_set(&err, -ENOMEM, "open the stream");
		sp_reply_error(request, &err);
		return;
	}
	status = check_target(request, run, stream, &err);
	if (status == 0 && secret) {
		stream->secret = strdup(secret);
		if (!stream->secret)
			status = sp_err_set(&err, -ENOMEM, "open the stream");
	}
	if (status < 0) {
		free(stream);
		sp_reply_error(request, &err);
		return;
	}
	stream->run = run;
	stream->caller = request->caller;
	stream->caller.secret = stream->secret;
	memcpy(stream->name, request->name, strlen(request->name) + 1);
	sp_duplex_init(&stream->duplex, request->api, &duplex_events, READ_MAX);
	sp_duplex_upgrade(&stream->duplex, request, headers, SP_ARRAY_SIZE(headers));
}
