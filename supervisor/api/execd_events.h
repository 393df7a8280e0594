/*
 * execd's event stream: an answer of JSON objects, each followed by an empty line.
 *
 *	init, ping, then output, counts and results as they come, a ping every 3 s, and last exactly
 *	one of execution_complete and error.
 *
 * Nothing is unbounded: output that the client does not take fills the answer's queue, then
 * sp_events_output() says so, keeps what it was given, and goes on with it before `drained`. So it
 * does when the event streams together have had their share of a turn of the loop: short lines take
 * many times as long to write as to read, and others wait meanwhile.
 */
#ifndef SP_API_EXECD_EVENTS_H
#define SP_API_EXECD_EVENTS_H

#include "supervisor/api/answer_stream.h"

#define SP_EVENTS_PING_MS 3000u

/* Of the answer. */
#define SP_EVENT_HEADER_COUNT 3u
extern const struct sp_answer_header sp_event_headers[SP_EVENT_HEADER_COUNT];

struct sp_events;

struct sp_events_owner {
	void (*drained)(void *arg); /* there is room again; may be NULL */
	/* The client left or the api closes: last event, the stream is gone. Not after an end. */
	void (*gone)(void *arg);
};

/* One representation of a result. */
struct sp_event_datum {
	const char *type; /* MIME; "text" for text/plain. Plain ASCII */
	const char *data;
	size_t len;
};

struct sp_event_error {
	const char *name;
	const char *value;
	const char *text; /* NULL: none. With one, no traceback is null, else [] */
	const char *const *traceback;
	size_t traceback_count;
};

/* Answers the request: headers, init with this id, ping. -ENOMEM: the connection is dropped, there
 * are no events. */
int sp_events_open(struct sp_request *request, const char *id, const struct sp_events_owner *owner,
		   void *arg, struct sp_events **ret_events);
/* stream: 1 stdout, 2 stderr. False, of each of the three: nothing more of any until `drained`. */
bool sp_events_output(struct sp_events *events, int stream, const void *data, size_t len);
bool sp_events_count(struct sp_events *events, int64_t count);
bool sp_events_result(struct sp_events *events, const struct sp_event_datum *data, size_t count);
/* The two ends. What is kept is still delivered; no callback after this. */
void sp_events_complete(struct sp_events *events, int64_t time_ms);
void sp_events_fail(struct sp_events *events, const struct sp_event_error *error);

/* For api.c: a turn of the loop is over. Streams that have more go on. */
void sp_events_next_turn(struct sp_api *api);

#endif
