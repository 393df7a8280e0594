/*
 * Request bodies that are taken as they come instead of being collected: uploads, what is passed on
 * to a server in a sandbox.
 *
 *	headers → begin → data … data → complete → the route's handler
 *	             └──────────┴─ the client left, or the api closes → gone
 *
 * Who takes less than it is offered is asked no more until sp_request_body_resume(): the client
 *then meets a full socket, and nothing is held here but what libmicrohttpd has read already.
 *Bounds: SP_API_STREAM_BODY_MAX bytes (PAYLOAD_TOO_LARGE), SP_API_REQUEST_TIMEOUT_MS between two
 *bytes that the client owes, SP_API_STREAM_BODY_MS for all of them.
 *
 * While a body arrives there is no way to answer. Who meets an error takes and drops the rest, says
 * so with sp_request_body_drop(), which leaves the client SP_API_REQUEST_TIMEOUT_MS for it, and
 * answers in its handler.
 */
#ifndef SP_API_REQUEST_BODY_H
#define SP_API_REQUEST_BODY_H

#include "supervisor/api/api_private.h"

#define SP_API_STREAM_BODY_MS (3600 * SP_MS_PER_S)

struct sp_body_sink {
	/* Takes up to len bytes and returns how many. */
	size_t (*data)(struct sp_request *request, const char *data, size_t len);
	/* The body never becomes complete, the handler is not called. Last call. */
	void (*gone)(struct sp_request *request);
};

/* For the `begin` of a handler: from here on the sink has the body. */
void sp_request_body_take(struct sp_request *request, const struct sp_body_sink *sink, void *arg);
/* Go on offering. Harmless when nothing waits. */
void sp_request_body_resume(struct sp_request *request);
/* What still comes is of no use. */
void sp_request_body_drop(struct sp_request *request);

/* ---- for request.c ---- */

/* The headers are there and the route is found: who takes the body? Negative: what is answered
 * instead. */
int sp_request_body_begin(struct sp_request *request, struct sp_err *err);
enum MHD_Result sp_request_body_feed(struct sp_request *request, const char *data, size_t *len);
/* The handler is about to be called. */
void sp_request_body_complete(struct sp_request *request);
/* The request is over, in whatever way. */
void sp_request_body_done(struct sp_request *request);

#endif
