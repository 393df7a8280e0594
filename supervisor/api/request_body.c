/*
 * Between libmicrohttpd, which offers pieces of a body, and who takes them.
 *
 * When a piece is not taken the connection is suspended, with the request looking like any other
 * that waits: its watch notices that the client leaves, a closing api abandons it. libmicrohttpd
 * keeps what was not taken in the connection's memory and offers it again.
 */
#include "supervisor/api/request_body.h"

#include <errno.h>

/* Handlers that do not want their body collected. `begin` calls sp_request_body_take() or leaves
 * it, and then the body is collected. */
static const struct {
	void (*handle)(struct sp_request *request);
	int (*begin)(struct sp_request *request, struct sp_err *err);
} streamed[] = {
	{sp_handle_os_proxy, sp_proxy_begin},
	{sp_handle_execd_proxy, sp_proxy_begin},
	{sp_handle_files_upload, sp_begin_files_upload},
	{sp_handle_files_put, sp_begin_files_put},
	{NULL, NULL},
};

void sp_request_body_take(struct sp_request *request, const struct sp_body_sink *sink, void *arg)
{
	request->sink = sink;
	request->sink_arg = arg;
	request->body_until_ms = (int64_t)uv_now(request->api->loop) + SP_API_STREAM_BODY_MS;
}

static int check_length(const struct sp_request *request, struct sp_err *err)
{
	uint64_t max = request->sink ? SP_API_STREAM_BODY_MAX : SP_API_BODY_MAX;

	if (request->headers.body_length <= max)
		return 0;
	return sp_err_code(err, SP_CODE_PAYLOAD_TOO_LARGE, -E2BIG,
			   "the body is longer than %llu bytes", (unsigned long long)max);
}

int sp_request_body_begin(struct sp_request *request, struct sp_err *err)
{
	int status = 0;

	for (size_t i = 0; streamed[i].handle && status == 0; i++)
		if (streamed[i].handle == request->route->handle)
			status = streamed[i].begin(request, err);
	return status < 0 ? status : check_length(request, err);
}

/* ---- while it arrives ---- */

/* The client has the usual time for the next byte, but not beyond the whole body's. */
static void set_deadline(struct sp_request *request)
{
	int64_t left_ms = request->body_until_ms - (int64_t)uv_now(request->api->loop);

	sp_connection_set_deadline(request->connection,
				   SP_MAX(SP_MIN(left_ms, (int64_t)SP_API_REQUEST_TIMEOUT_MS), 1));
}

void sp_request_body_drop(struct sp_request *request)
{
	int64_t until_ms = (int64_t)uv_now(request->api->loop) + SP_API_REQUEST_TIMEOUT_MS;

	request->body_until_ms = SP_MIN(request->body_until_ms, until_ms);
}

static void sink_gone(struct sp_request *request)
{
	const struct sp_body_sink *sink = request->sink;

	request->sink = NULL;
	if (sink)
		sink->gone(request);
}

/* While it waits the client left, or the api closes: nothing is answered in the middle of a body.
 */
static void on_abandon(struct sp_request *request)
{
	request->body_waits = false;
	request->body_cut = true;
	sink_gone(request);
}

static enum MHD_Result wait_for_room(struct sp_request *request)
{
	int status = sp_connection_watch(request->connection);

	if (status < 0)
		return MHD_NO;
	request->cancel = on_abandon;
	request->suspended = true;
	request->body_waits = true;
	sp_connection_set_deadline(request->connection, 0); /* it is our turn */
	MHD_suspend_connection(request->mhd);
	return MHD_YES;
}

void sp_request_body_resume(struct sp_request *request)
{
	if (!request->body_waits)
		return;
	request->body_waits = false;
	set_deadline(request);
	sp_request_resume(request);
}

/* Only chunked ones can turn out too long. What still comes is thrown away. */
static void too_long(struct sp_request *request)
{
	(void)sp_err_code(&request->early, SP_CODE_PAYLOAD_TOO_LARGE, -E2BIG,
			  "the body is longer than %llu bytes",
			  (unsigned long long)SP_API_STREAM_BODY_MAX);
	request->body_refused = true;
	request->close = true;
	sp_request_body_drop(request);
	sink_gone(request);
}

enum MHD_Result sp_request_body_feed(struct sp_request *request, const char *data, size_t *len)
{
	size_t offered = *len;
	size_t taken;

	if (request->body_cut)
		return MHD_NO;
	taken = request->sink->data(request, data, offered);
	sp_assert(taken <= offered);
	*len = offered - taken;
	request->body_taken += taken;
	if (taken < offered)
		return wait_for_room(request);
	set_deadline(request);
	if (request->body_taken > SP_API_STREAM_BODY_MAX)
		too_long(request);
	return MHD_YES;
}

void sp_request_body_complete(struct sp_request *request)
{
	request->sink = NULL;
}

void sp_request_body_done(struct sp_request *request)
{
	sink_gone(request);
}
