/*
 * An answer whose body comes over time: event streams, downloads, what a proxy passes on.
 *
 * Bytes are copied into a queue that libmicrohttpd empties as the client reads. The queue has a
 * limit; who produces stops when sp_answer_stream_write() says that it is full and goes on at
 * `drained`, so a slow client holds one queue and nothing else.
 */
#ifndef SP_API_ANSWER_STREAM_H
#define SP_API_ANSWER_STREAM_H

#include "supervisor/api/api_private.h"

#define SP_ANSWER_STREAM_QUEUE (256u * 1024)

struct sp_answer_stream;

struct sp_answer_header {
	const char *name;
	const char *value;
};

struct sp_answer_stream_events {
	void (*drained)(void *arg); /* half of the queue is free again; may be NULL */
	/* The client left or the api closes: last event, the stream is gone. Not after _end(). */
	void (*gone)(void *arg);
};

/* Answers the request with status, headers and what follows. length: of the body, -1 = chunked
 * until _end(). Only headers are sent at once. A HEAD request gets the headers, and `gone` after
 * that. 0 or -ENOMEM (the connection is then dropped, no event). */
int sp_answer_stream_open(struct sp_request *request, unsigned int status,
			  const struct sp_answer_header *headers, size_t header_count,
			  int64_t length, const struct sp_answer_stream_events *events, void *arg,
			  struct sp_answer_stream **ret_stream);
/* Takes all of it. False: the queue is full (beyond the limit by this write at most), wait for
 * `drained` before the next. -ENOMEM ends the stream like a client that left: `gone` comes. */
bool sp_answer_stream_write(struct sp_answer_stream *stream, const void *data, size_t len);
/* Like a client that left: the connection is cut, `gone` comes. */
void sp_answer_stream_break(struct sp_answer_stream *stream);
/* What is queued is still delivered; no event after this. */
void sp_answer_stream_end(struct sp_answer_stream *stream);
/* Cut the connection: the client must not take what it has for all of it. No event after this. */
void sp_answer_stream_abort(struct sp_answer_stream *stream);

#endif
