/*
 * Bodies that come over time: a queue between who produces and libmicrohttpd, which asks for bytes
 * when the client's socket takes some.
 *
 *	FLOWING ──queue empty──► SUSPENDED ──write, end, abort──► FLOWING
 *	   ├─ ended and queue empty ──► the answer is complete
 *	   └─ aborted, no memory, client left ──► the connection is cut
 *
 * While it is suspended libmicrohttpd does not look at the socket, the connection's watch does: the
 * request is then a suspended one like any other, and its abandoning (the client left, the api
 * closes) breaks the stream.
 *
 * The memory is libmicrohttpd's to release, with the response: that is also when an owner who has
 * not ended the stream hears that it is gone. So nothing here is freed while it is in use, whatever
 * the owner does inside an event.
 */
#include "supervisor/api/answer_stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK        (32u * 1024) /* libmicrohttpd's, for each stream */
#define SHORT_QUEUE  (32u * 1024) /* while clients that do not read hold too much */
#define COMPACT_FROM (64u * 1024) /* bytes sent that are worth moving the rest for */
#define KEEP_MAX     (64u * 1024) /* memory that an idle stream keeps */
#define SHRINK_FROM  (2 * SP_ANSWER_STREAM_QUEUE)

struct sp_answer_stream {
	struct sp_api *api;
	struct sp_request *request; /* lives longer than the response is asked for bytes */
	struct sp_answer_stream_events events;
	void *arg;
	struct sp_buf queue;
	size_t sent; /* of the queue */
	bool owned;  /* somebody wants the events */
	bool suspended;
	bool full;
	bool ended;
	bool broken;
};

static size_t queued(const struct sp_answer_stream *stream)
{
	return stream->queue.len - stream->sent;
}

static void discard(struct sp_answer_stream *stream)
{
	stream->api->output_bytes -= stream->queue.len;
	sp_buf_done(&stream->queue);
	stream->sent = 0;
}

/* ---- suspended ---- */

static void on_abandon(struct sp_request *request)
{
	struct sp_answer_stream *stream = request->operation;

	stream->suspended = false;
	stream->broken = true;
}

static int suspend(struct sp_answer_stream *stream)
{
	struct sp_request *request = stream->request;
	int status = sp_connection_watch(request->connection);

	if (status < 0)
		return status;
	request->cancel = on_abandon;
	request->operation = stream;
	request->suspended = true;
	stream->suspended = true;
	MHD_suspend_connection(request->mhd);
	return 0;
}

static void resume(struct sp_answer_stream *stream)
{
	if (!stream->suspended)
		return;
	stream->suspended = false;
	sp_request_resume(stream->request);
}

/* ---- libmicrohttpd's side ---- */

/* One long event must not hold its memory while the client reads the last of it: then the rest
 * moves to a smaller place, if there is one. */
static void shrink(struct sp_answer_stream *stream)
{
	struct sp_buf smaller;

	sp_buf_init(&smaller, stream->queue.max);
	if (sp_buf_append(&smaller, stream->queue.data, stream->queue.len) < 0)
		return;
	sp_buf_done(&stream->queue);
	stream->queue = smaller;
}

static void compact(struct sp_answer_stream *stream)
{
	stream->api->output_bytes -= stream->sent;
	sp_buf_consume(&stream->queue, stream->sent);
	stream->sent = 0;
	if (stream->queue.len == 0 && stream->queue.capacity > KEEP_MAX)
		discard(stream);
	else if (stream->queue.capacity > SHRINK_FROM &&
		 stream->queue.len < stream->queue.capacity / 2)
		shrink(stream);
}

static void take(struct sp_answer_stream *stream, char *to, size_t len)
{
	memcpy(to, stream->queue.data + stream->sent, len);
	stream->sent += len;
	if (stream->sent >= SP_MAX((size_t)COMPACT_FROM, queued(stream)) || queued(stream) == 0)
		compact(stream);
}

static ssize_t on_read(void *cls, uint64_t position, char *to, size_t room)
{
	struct sp_answer_stream *stream = cls;
	size_t len = SP_MIN(room, queued(stream));

	SP_UNUSED(position);
	if (stream->broken)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	if (len == 0 && stream->ended)
		return MHD_CONTENT_READER_END_OF_STREAM;
	if (len == 0)
		return suspend(stream) < 0 ? MHD_CONTENT_READER_END_WITH_ERROR : 0;
	take(stream, to, len);
	if (stream->full && queued(stream) <= SP_ANSWER_STREAM_QUEUE / 2) {
		stream->full = false;
		if (stream->owned && stream->events.drained)
			stream->events.drained(stream->arg);
	}
	return (ssize_t)len;
}

static void on_released(void *cls)
{
	struct sp_answer_stream *stream = cls;
	void (*gone)(void *) = stream->owned ? stream->events.gone : NULL;
	void *arg = stream->arg;

	discard(stream);
	free(stream);
	if (gone)
		gone(arg);
}

/* ---- the owner's side ---- */

static size_t queue_max(const struct sp_answer_stream *stream)
{
	return sp_api_output_tight(stream->api) ? SHORT_QUEUE : SP_ANSWER_STREAM_QUEUE;
}

static bool add_headers(struct MHD_Response *response, const struct sp_answer_header *headers,
			size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (MHD_add_response_header(response, headers[i].name, headers[i].value) == MHD_NO)
			return false;
	return true;
}

/* libmicrohttpd answers HEAD with the last chunk of a chunked body, which the client takes for the
 * beginning of the next answer: such a HEAD is told of an empty body. */
static uint64_t body_size(const struct sp_request *request, int64_t length)
{
	if (length >= 0)
		return (uint64_t)length;
	return strcmp(request->method, "HEAD") == 0 ? 0 : MHD_SIZE_UNKNOWN;
}

int sp_answer_stream_open(struct sp_request *request, unsigned int status,
			  const struct sp_answer_header *headers, size_t header_count,
			  int64_t length, const struct sp_answer_stream_events *events, void *arg,
			  struct sp_answer_stream **ret_stream)
{
	struct sp_answer_stream *stream = calloc(1, sizeof(*stream));
	uint64_t size = body_size(request, length);
	struct MHD_Response *response = NULL;

	if (stream)
		response = MHD_create_response_from_callback(size, BLOCK, on_read, stream,
							     on_released);
	if (!response) {
		free(stream);
		sp_request_respond(request, status, NULL, NULL);
		return -ENOMEM;
	}
	stream->api = request->api;
	stream->request = request;
	stream->events = *events;
	stream->arg = arg;
	sp_buf_init(&stream->queue, SP_API_RESPONSE_MAX);
	if (!add_headers(response, headers, header_count)) {
		MHD_destroy_response(response);
		sp_request_respond(request, status, NULL, NULL);
		return -ENOMEM;
	}
	if (!sp_request_pass(request, status, response))
		return -ENOMEM;
	stream->owned = true;
	*ret_stream = stream;
	return 0;
}

bool sp_answer_stream_write(struct sp_answer_stream *stream, const void *data, size_t len)
{
	if (stream->broken)
		return false;
	if (sp_buf_append(&stream->queue, data, len) < 0) {
		sp_answer_stream_break(stream);
		return false;
	}
	stream->api->output_bytes += len;
	if (queued(stream) >= queue_max(stream))
		stream->full = true; /* until `drained` */
	if (len > 0)
		resume(stream);
	return !stream->full;
}

void sp_answer_stream_break(struct sp_answer_stream *stream)
{
	stream->broken = true;
	discard(stream);
	resume(stream);
}

void sp_answer_stream_end(struct sp_answer_stream *stream)
{
	stream->owned = false;
	stream->ended = true;
	resume(stream);
}

void sp_answer_stream_abort(struct sp_answer_stream *stream)
{
	stream->owned = false;
	sp_answer_stream_break(stream);
}
