/*
 * The framed stream on an upgraded connection (exec_frame.h): any number of execs, one at a time.
 *
 *	IDLE ── START ──► RUNNING ── ended, failed ──► IDLE
 *	any ── protocol error ──► DRAINING (writes what is queued, reads nothing) ──► closed
 *	any ── end of file, error of the socket ──► closed; a running exec is cancelled
 *
 * Nothing is unbounded, in either direction:
 *   - output is queued up to WRITE_PAUSE, then the exec is paused (back to the workload's write(2))
 *     until the queue has sunk below WRITE_RESUME;
 *   - above READ_STOP we stop reading: only answers to the client's own frames get us there, so a
 *     paused exec can still be signalled;
 *   - stdin is credited: more than SP_EXEC_STDIN_WINDOW outstanding ends the connection.
 *
 * Frames are queued and written once per turn of the loop (api.c's check handle), so STARTED, a
 * line of output and RESULT that came in one turn leave in one system call.
 *
 * The client has the whole connection: no HTTP follows. With TLS the descriptor is one end of a
 * socket pair (tls.c).
 */
#include "supervisor/api/api_private.h"

#include "supervisor/api/exec_frame.h"
#include "supervisor/api/exec_json.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define WRITE_PAUSE  (256u * 1024)
#define WRITE_RESUME (64u * 1024)
#define READ_STOP    (512u * 1024)
#define WRITE_MAX    (4u << 20) /* a RESULT on top of all that always fits */
#define READ_CHUNK   (64u * 1024)
#define READ_MAX     (SP_FRAME_HEADER_SIZE + SP_FRAME_PAYLOAD_MAX + READ_CHUNK)

enum stream_state { STREAM_IDLE, STREAM_RUNNING, STREAM_DRAINING, STREAM_CLOSED };

struct sp_api_stream {
	struct sp_list link;
	struct sp_list flush; /* in api->flush while something is to be written */
	struct sp_api *api;
	struct sp_listener *listener;
	struct MHD_UpgradeResponseHandle *mhd;
	int fd; /* libmicrohttpd's */
	uv_poll_t poll;
	int poll_events;
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

	struct sp_buf in;
	struct sp_buf out;
	size_t out_sent; /* of `out`, already written */
};

static void stream_close(struct sp_api_stream *stream);
static void on_poll(uv_poll_t *poll, int status, int events);

/* ---- memory ---- */

static void stream_free(struct sp_api_stream *stream)
{
	if (stream->secret) {
		explicit_bzero(stream->secret, strlen(stream->secret));
		free(stream->secret);
	}
	sp_buf_done(&stream->in);
	sp_buf_done(&stream->out);
	free(stream);
}

static void on_poll_closed(uv_handle_t *handle)
{
	struct sp_api_stream *stream = handle->data;
	struct sp_api *api = stream->api;

	(void)MHD_upgrade_action(stream->mhd, MHD_UPGRADE_ACTION_CLOSE);
	sp_listener_kick(stream->listener);
	sp_list_remove(&stream->link);
	stream_free(stream);
	sp_api_stream_gone(api);
	sp_api_handle_closed(api);
}

/* Idempotent. Ends the exec, if one runs; its events stop here. */
static void stream_close(struct sp_api_stream *stream)
{
	struct sp_exec *exec = stream->exec;

	if (stream->state == STREAM_CLOSED)
		return;
	stream->state = STREAM_CLOSED;
	stream->exec = NULL;
	sp_list_remove(&stream->flush);
	uv_close((uv_handle_t *)&stream->poll, on_poll_closed);
	if (exec)
		sp_exec_cancel(exec);
	/* It may have ended before, or been released: there is nobody left to tell. */
	if (stream->release)
		(void)sp_service_release(stream->api->service, &stream->caller, stream->name, NULL);
}

/* ---- writing ---- */

static size_t queued(const struct sp_api_stream *stream)
{
	return stream->out.len - stream->out_sent;
}

static void update_poll(struct sp_api_stream *stream)
{
	int events = UV_DISCONNECT;

	if (queued(stream) > 0)
		events |= UV_WRITABLE;
	if (stream->state != STREAM_DRAINING && queued(stream) <= READ_STOP)
		events |= UV_READABLE;
	if (events == stream->poll_events)
		return;
	stream->poll_events = events;
	if (uv_poll_start(&stream->poll, events, on_poll) < 0)
		stream_close(stream);
}

static void want_flush(struct sp_api_stream *stream)
{
	if (!sp_list_empty(&stream->flush))
		return;
	sp_list_append(&stream->api->flush, &stream->flush);
	sp_api_wake(stream->api);
}

/* Queue one frame. The only failure is lack of memory, and it ends the stream. */
static void send_frame(struct sp_api_stream *stream, enum sp_frame_type type, const void *payload,
		       size_t len)
{
	uint8_t header[SP_FRAME_HEADER_SIZE];

	if (stream->state == STREAM_CLOSED)
		return;
	sp_frame_header_write(header, type, (uint32_t)len);
	if (sp_buf_append(&stream->out, header, sizeof(header)) < 0 ||
	    sp_buf_append(&stream->out, payload, len) < 0) {
		stream_close(stream);
		return;
	}
	want_flush(stream);
}

static void send_json(struct sp_api_stream *stream, enum sp_frame_type type,
		      struct sp_json_out *out)
{
	if (out->status < 0)
		stream_close(stream);
	else
		send_frame(stream, type, sp_buf_text(out->buf), out->buf->len);
	sp_buf_done(out->buf);
}

static void send_error(struct sp_api_stream *stream, const struct sp_err *err)
{
	struct sp_json_out out;
	struct sp_buf body;

	sp_buf_init(&body, SP_FRAME_PAYLOAD_MAX);
	sp_json_out_init(&out, &body);
	sp_error_write(&out, err);
	send_json(stream, SP_FRAME_ERROR, &out);
}

static void pause_if_full(struct sp_api_stream *stream)
{
	if (stream->paused || !stream->exec || queued(stream) < WRITE_PAUSE)
		return;
	stream->paused = true;
	sp_exec_pause(stream->exec, true);
}

static void resume_if_drained(struct sp_api_stream *stream)
{
	if (!stream->paused || queued(stream) > WRITE_RESUME)
		return;
	stream->paused = false;
	if (stream->exec)
		sp_exec_pause(stream->exec, false);
}

/* Write what the socket takes. May close the stream. */
static void flush(struct sp_api_stream *stream)
{
	while (queued(stream) > 0) {
		ssize_t sent = send(stream->fd, stream->out.data + stream->out_sent, queued(stream),
				    MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			break;
		if (sent < 0) {
			stream_close(stream);
			return;
		}
		stream->out_sent += (size_t)sent;
	}
	if (queued(stream) == 0) {
		sp_buf_clear(&stream->out);
		stream->out_sent = 0;
	} else if (stream->out_sent >= WRITE_RESUME) {
		sp_buf_consume(&stream->out, stream->out_sent);
		stream->out_sent = 0;
	}
	if (stream->state == STREAM_DRAINING && queued(stream) == 0) {
		stream_close(stream);
		return;
	}
	update_poll(stream);
	if (stream->state != STREAM_CLOSED)
		resume_if_drained(stream);
}

void sp_stream_flush_all(struct sp_api *api)
{
	struct sp_list ready;

	/* Moved away first: flushing may queue again, for the next turn. */
	sp_list_init(&ready);
	while (!sp_list_empty(&api->flush)) {
		struct sp_list *link = api->flush.next;

		sp_list_remove(link);
		sp_list_append(&ready, link);
	}
	while (!sp_list_empty(&ready)) {
		struct sp_list *link = ready.next;

		sp_list_remove(link);
		flush(SP_CONTAINER_OF(link, struct sp_api_stream, flush));
	}
}

/* Tell the client why, then end. */
static void protocol_error(struct sp_api_stream *stream, const char *what)
{
	struct sp_exec *exec = stream->exec;
	struct sp_err err = {0};

	(void)sp_err_code(&err, SP_CODE_PROTOCOL, -EPROTO, "%s", what);
	stream->state = STREAM_DRAINING;
	stream->exec = NULL;
	send_error(stream, &err);
	if (exec)
		sp_exec_cancel(exec);
}

/* ---- what the exec tells ---- */

static void on_output(void *arg, int number, const void *data, size_t len)
{
	struct sp_api_stream *stream = arg;
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

static void send_credit(struct sp_api_stream *stream)
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
	struct sp_api_stream *stream = arg;

	stream->stdin_consumed += bytes;
	send_credit(stream);
}

static void on_started(void *arg, const char *sandbox_id)
{
	struct sp_api_stream *stream = arg;
	struct sp_json_out out;
	struct sp_buf body;

	sp_buf_init(&body, SP_FRAME_PAYLOAD_MAX);
	sp_json_out_init(&out, &body);
	sp_started_write(&out, sandbox_id, stream->pool);
	send_json(stream, SP_FRAME_STARTED, &out);
	stream->started = true;
	send_credit(stream);
}

static void exec_gone(struct sp_api_stream *stream)
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
	struct sp_api_stream *stream = arg;
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
	struct sp_api_stream *stream = arg;

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

static int start_exec(struct sp_api_stream *stream, const struct sp_frame *frame,
		      struct sp_err *err)
{
	struct sp_service *service = stream->api->service;
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

static void on_start(struct sp_api_stream *stream, const struct sp_frame *frame)
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

static void on_stdin(struct sp_api_stream *stream, const struct sp_frame *frame)
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

static void on_signal(struct sp_api_stream *stream, const struct sp_frame *frame)
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

static void on_resize(struct sp_api_stream *stream, const struct sp_frame *frame)
{
	const uint8_t *at = frame->payload;

	(void)sp_exec_resize(stream->exec, (uint16_t)(at[0] | at[1] << 8),
			     (uint16_t)(at[2] | at[3] << 8));
}

static void on_frame(struct sp_api_stream *stream, const struct sp_frame *frame)
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

static void parse_input(struct sp_api_stream *stream)
{
	size_t used = 0;

	while (stream->state == STREAM_IDLE || stream->state == STREAM_RUNNING) {
		struct sp_frame frame;
		int64_t size = sp_frame_parse((const uint8_t *)stream->in.data + used,
					      stream->in.len - used, true, &frame);

		if (size == 0)
			break;
		if (size < 0) {
			protocol_error(stream, size == -EMSGSIZE ? "a frame is too long"
								 : "no frame of this protocol");
			break;
		}
		on_frame(stream, &frame);
		used += (size_t)size;
	}
	sp_buf_consume(&stream->in, used);
	/* A START may have been large; what stays open for hours is not. */
	if (stream->in.len == 0 && stream->in.capacity > 2 * (size_t)READ_CHUNK)
		sp_buf_done(&stream->in);
}

static void read_input(struct sp_api_stream *stream)
{
	char *at = sp_buf_reserve(&stream->in, READ_CHUNK);
	ssize_t got;

	if (!at) {
		stream_close(stream);
		return;
	}
	got = recv(stream->fd, at, READ_CHUNK, MSG_DONTWAIT);
	if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return;
	if (got <= 0) {
		stream_close(stream);
		return;
	}
	stream->in.len += (size_t)got;
	parse_input(stream);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct sp_api_stream *stream = poll->data;

	if (status < 0) {
		stream_close(stream);
		return;
	}
	if (events & UV_WRITABLE)
		flush(stream);
	if (stream->state != STREAM_CLOSED && events & UV_READABLE &&
	    stream->state != STREAM_DRAINING)
		read_input(stream);
	/* After the last of its frames was read: the client went. While we do not read, its going
	 * shows here only. */
	else if (stream->state != STREAM_CLOSED && events & UV_DISCONNECT)
		stream_close(stream);
	if (stream->state != STREAM_CLOSED)
		update_poll(stream);
}

/* ---- opening ---- */

/* libmicrohttpd turns delaying on again when it hands the socket over: a frame must not wait for
 * the acknowledgement of the one before. Fails on Unix sockets, which do not delay anyway. */
static void send_at_once(int fd)
{
	const int on = 1;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static void on_upgraded(void *cls, struct MHD_Connection *connection, void *context,
			const char *extra, size_t extra_size, MHD_socket fd,
			struct MHD_UpgradeResponseHandle *handle)
{
	struct sp_api_stream *stream = cls;
	int status;

	SP_UNUSED(connection);
	SP_UNUSED(context);
	stream->mhd = handle;
	stream->fd = fd;
	status = uv_poll_init(stream->api->loop, &stream->poll, fd);
	if (status < 0) {
		(void)MHD_upgrade_action(handle, MHD_UPGRADE_ACTION_CLOSE);
		stream_free(stream);
		return;
	}
	stream->poll.data = stream;
	sp_api_handle_opened(stream->api);
	send_at_once(fd);
	sp_list_append(&stream->api->streams, &stream->link);
	if (sp_buf_append(&stream->in, extra, extra_size) < 0) {
		stream_close(stream);
		return;
	}
	update_poll(stream);
	if (stream->state != STREAM_CLOSED)
		parse_input(stream);
}

/* An answer before the upgrade for what cannot work, so that HTTP says it. */
static int check_target(struct sp_request *request, bool run, struct sp_api_stream *stream,
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
			memcpy(stream->pool, request->name, sizeof(stream->pool));
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
	struct sp_api_stream *stream = calloc(1, sizeof(*stream));
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
	stream->api = request->api;
	stream->listener = request->connection->listener;
	stream->run = run;
	stream->caller = request->caller;
	stream->caller.secret = stream->secret;
	memcpy(stream->name, request->name, sizeof(stream->name));
	sp_list_init(&stream->link);
	sp_list_init(&stream->flush);
	sp_buf_init(&stream->in, READ_MAX);
	sp_buf_init(&stream->out, WRITE_MAX);
	sp_request_upgrade(request, on_upgraded, stream);
}

void sp_stream_close_all(struct sp_api *api)
{
	SP_LIST_FOREACH_SAFE (link, following, &api->streams) {
		struct sp_api_stream *stream = SP_CONTAINER_OF(link, struct sp_api_stream, link);

		/* What was queued in this turn, a RESULT perhaps, still goes out if it can. */
		if (stream->state != STREAM_CLOSED)
			flush(stream);
		stream_close(stream);
	}
}
