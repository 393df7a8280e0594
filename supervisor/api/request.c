/*
 * One request from its headers to its answer.
 *
 * libmicrohttpd calls sp_request_access() once with the headers, then per piece of the body, then
 * once more when the request is complete. An answer may be given at the first call only by ending
 * the connection (the rest would be taken for the next request), or at the last one; while a body
 * arrives there is no way to answer. So: what is malformed is answered and closed at the first
 * call; what is merely refused (401, 404, …) waits for the end of a request without a body, and is
 * answered and closed at once otherwise; a chunked body that turns out too long is thrown away
 * until it ends or the deadline comes. Bodies that are not collected: request_body.h.
 *
 * After a chunked body the connection is closed too: chunk syntax is the other half of request
 * smuggling, and no client of ours needs it on a connection that it keeps.
 */
#include "supervisor/api/answer_stream.h"

#include "pool/base/log.h"
#include "supervisor/api/request_body.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- answers ---- */

void sp_request_resume(struct sp_request *request)
{
	request->suspended = false;
	request->cancel = NULL;
	sp_connection_unwatch(request->connection);
	MHD_resume_connection(request->mhd);
	sp_listener_kick(request->connection->listener);
}

static bool add_header(struct MHD_Response *response, const char *name, const char *value)
{
	return MHD_add_response_header(response, name, value) == MHD_YES;
}

/* What goes with a status that is ours. */
static bool add_advice(const struct sp_request *request, unsigned int status,
		       struct MHD_Response *response)
{
	switch (status) {
	case MHD_HTTP_SERVICE_UNAVAILABLE:
	case MHD_HTTP_TOO_MANY_REQUESTS:
		return add_header(response, "Retry-After", "1");
	case MHD_HTTP_METHOD_NOT_ALLOWED:
		return !request->match.allow[0] ||
		       add_header(response, "Allow", request->match.allow);
	case MHD_HTTP_UNAUTHORIZED:
		return add_header(response, "WWW-Authenticate", "Bearer");
	default:
		return true;
	}
}

bool sp_request_pass(struct sp_request *request, unsigned int status, struct MHD_Response *response)
{
	bool good = response && add_header(response, "X-Request-Id", request->id) &&
		    (!request->close || add_header(response, "Connection", "close"));

	if (!good && response) {
		MHD_destroy_response(response);
		response = NULL; /* out of memory: the connection is dropped without an answer */
	}
	sp_assert(!request->response);
	request->status = status;
	request->response = response;
	if (request->suspended)
		sp_request_resume(request);
	return good;
}

bool sp_request_respond(struct sp_request *request, unsigned int status, const char *content_type,
			struct MHD_Response *response)
{
	bool good = response && add_advice(request, status, response) &&
		    (!content_type || add_header(response, "Content-Type", content_type));

	if (!good && response)
		MHD_destroy_response(response);
	return sp_request_pass(request, status, good ? response : NULL);
}

void sp_reply_text(struct sp_request *request, unsigned int status, const char *content_type,
		   struct sp_buf *body)
{
	size_t len = body->len;
	char *data = sp_buf_take(body);

	if (!data) {
		(void)sp_request_respond(request, status, content_type, NULL);
		return;
	}
	struct MHD_Response *response =
		MHD_create_response_from_buffer(len, data, MHD_RESPMEM_MUST_FREE);

	if (!response)
		free(data);
	(void)sp_request_respond(request, status, content_type, response);
}

void sp_reply_json(struct sp_request *request, unsigned int status, struct sp_buf *body)
{
	sp_reply_text(request, status, "application/json", body);
}

void sp_reply_empty(struct sp_request *request)
{
	sp_reply_status(request, MHD_HTTP_NO_CONTENT);
}

void sp_reply_status(struct sp_request *request, unsigned int status)
{
	(void)sp_request_respond(request, status, NULL,
				 MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT));
}

void sp_error_write(struct sp_json_out *out, const struct sp_err *err)
{
	sp_json_open(out, NULL, '{');
	sp_json_text(out, "code", sp_code_name(sp_err_client_code(err)));
	sp_json_text(out, "message", err->message);
	sp_json_close(out, '}');
}

static void log_fault(const struct sp_request *request, const struct sp_err *err)
{
	char path[128];
	char message[SP_ERR_MESSAGE_MAX];

	sp_log(SP_LOG_ERROR, "request failed", "request=%s path=\"%s\" error=\"%s\"", request->id,
	       sp_log_quote(request->path, path, sizeof(path)),
	       sp_log_quote(err->message, message, sizeof(message)));
}

void sp_reply_error(struct sp_request *request, const struct sp_err *err)
{
	enum sp_code code = sp_err_client_code(err);
	struct sp_err unknown = {0};
	struct sp_json_out out;
	struct sp_buf body;

	if (code == SP_CODE_INTERNAL)
		log_fault(request, err);
	if (request->style != SP_STYLE_OWN) {
		sp_os_reply_err(request, err);
		return;
	}
	/* Whatever the service knows of an id that is not the caller's, this is all that is told.
	 */
	if (code == SP_CODE_NOT_FOUND && request->route &&
	    strncmp(request->route->pattern, "/v1/sandboxes/", 14) == 0) {
		(void)sp_err_code(&unknown, code, -ENOENT, "no such sandbox, or not yours");
		err = &unknown;
	}
	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&out, &body);
	sp_error_write(&out, err);
	if (out.status < 0)
		(void)sp_request_respond(request, MHD_HTTP_INTERNAL_SERVER_ERROR, NULL, NULL);
	else
		sp_reply_json(request, (unsigned int)sp_code_http_status(code), &body);
	sp_buf_done(&body);
}

void sp_reply_written(struct sp_request *request, struct sp_json_out *out)
{
	struct sp_err err = {0};

	if (out->status < 0) {
		(void)sp_err_set(&err, out->status, "write the answer");
		sp_reply_error(request, &err);
	} else {
		sp_reply_json(request, MHD_HTTP_OK, out->buf);
	}
	sp_buf_done(out->buf);
}

void sp_request_count_answer(struct sp_request *request, size_t len)
{
	request->answer_bytes = len;
	request->api->plain_bytes += len;
}

/* ---- suspended requests ---- */

int sp_request_suspend(struct sp_request *request, void (*cancel)(struct sp_request *),
		       void *operation)
{
	struct sp_err err = {0};
	int status = sp_connection_watch(request->connection);

	if (status < 0) {
		(void)sp_err_set(&err, status, "watch the client");
		sp_reply_error(request, &err);
		return status;
	}
	request->cancel = cancel;
	request->operation = operation;
	request->suspended = true;
	MHD_suspend_connection(request->mhd);
	return 0;
}

void sp_request_abandon(struct sp_request *request, const struct sp_err *err)
{
	void (*cancel)(struct sp_request *) = request->cancel;

	if (!request->suspended)
		return;
	request->cancel = NULL;
	cancel(request);
	if (err) {
		request->close = true;
		sp_reply_error(request, err);
		return;
	}
	/* No response: libmicrohttpd closes the connection when it comes back. */
	(void)sp_request_respond(request, 0, NULL, NULL);
}

bool sp_request_wants_stream(const struct sp_request *request)
{
	return request->headers.upgrade &&
	       strcasecmp(request->headers.upgrade, "sandpool-exec") == 0 &&
	       sp_guard_has_token(request->headers.connection, "upgrade");
}

void sp_request_upgrade(struct sp_request *request, const struct sp_answer_header *headers,
			size_t header_count, MHD_UpgradeHandler on_upgrade, void (*lost)(void *arg),
			void *arg)
{
	struct MHD_Response *response = MHD_create_response_for_upgrade(on_upgrade, arg);

	for (size_t i = 0; response && i < header_count; i++) {
		if (MHD_add_response_header(response, headers[i].name, headers[i].value) == MHD_YES)
			continue;
		MHD_destroy_response(response);
		response = NULL;
	}
	request->upgrade_lost = lost;
	request->upgrade_arg = arg;
	(void)sp_request_respond(request, MHD_HTTP_SWITCHING_PROTOCOLS, NULL, response);
}

/* ---- the beginning ---- */

static bool request_id_acceptable(const char *id)
{
	size_t len = strnlen(id, SP_API_REQUEST_ID_MAX + 1);

	if (len == 0 || len > SP_API_REQUEST_ID_MAX)
		return false;
	for (size_t i = 0; i < len; i++)
		if (id[i] <= ' ' || id[i] >= 0x7f)
			return false;
	return true;
}

static void set_request_id(struct sp_request *request)
{
	const char *given = request->headers.request_id;

	if (given && request_id_acceptable(given))
		memcpy(request->id, given, strlen(given) + 1);
	else
		(void)snprintf(request->id, sizeof(request->id), "%.8s-%" PRIu64,
			       request->api->run_id, ++request->api->request_count);
}

/* The lifecycle API's are 32 hex digits. */
static void restyle_request_id(struct sp_request *request)
{
	char hex[SP_SECRET_LEN + 1];

	if (request->style != SP_STYLE_LIFECYCLE ||
	    (request->headers.request_id && request_id_acceptable(request->headers.request_id)))
		return;
	sp_secret_new(hex);
	(void)snprintf(request->id, sizeof(request->id), "%.32s", hex);
}

struct header_walk {
	struct sp_guard *guard;
	struct sp_err *err;
	int status;
};

static enum MHD_Result visit_header(void *cls, enum MHD_ValueKind kind, const char *name,
				    size_t name_len, const char *value, size_t value_len)
{
	struct header_walk *walk = cls;

	SP_UNUSED(kind);
	walk->status = sp_guard_header(walk->guard, name, name_len, value, value_len, walk->err);
	return walk->status < 0 ? MHD_NO : MHD_YES;
}

static int guard_request(struct sp_request *request, const char *version, struct sp_err *err)
{
	struct header_walk walk = {.guard = &request->headers, .err = err};
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(request->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
	struct sp_guard_request line = {
		.method = request->method,
		.path = request->path,
		.uri_length = request->connection->uri_length,
		.version = version,
		.bytes = info ? info->header_size : 0,
	};

	(void)MHD_get_connection_values_n(request->mhd, MHD_HEADER_KIND, visit_header, &walk);
	if (walk.status < 0)
		return walk.status;
	return sp_guard_request(&request->headers, &line, err);
}

static enum MHD_Result queue_answer(struct sp_request *request)
{
	struct MHD_Response *response = request->response;
	enum MHD_Result result;

	if (!response)
		return MHD_NO;
	request->response = NULL;
	result = MHD_queue_response(request->mhd, request->status, response);
	MHD_destroy_response(response);
	return result;
}

static struct sp_request *request_new(struct sp_connection *connection, struct MHD_Connection *mhd,
				      const char *path, const char *method)
{
	struct sp_request *request = calloc(1, sizeof(*request));

	if (!request)
		return NULL;
	request->api = connection->api;
	request->connection = connection;
	request->mhd = mhd;
	request->method = method;
	request->path = path;
	request->name = request->match.name;
	sp_buf_init(&request->body, SP_API_BODY_MAX);
	connection->request = request;
	return request;
}

/* The headers are there. */
static enum MHD_Result begin(struct sp_request *request, const char *version)
{
	int status = guard_request(request, version, &request->early);

	set_request_id(request);
	if (status < 0) {
		request->close = true;
		sp_reply_error(request, &request->early);
		return queue_answer(request);
	}
	if (request->connection->over_limit) {
		request->close = true;
		status = sp_err_code(&request->early, SP_CODE_UNAVAILABLE, -EAGAIN,
				     "too many connections");
	} else {
		status = sp_request_find_route(request, &request->early);
		restyle_request_id(request);
		if (status == 0)
			status = sp_request_body_begin(request, &request->early);
	}
	if (request->headers.chunked)
		request->close = true;
	if (status < 0 && (request->headers.chunked || request->headers.body_length > 0)) {
		request->close = true;
		sp_reply_error(request, &request->early);
		return queue_answer(request);
	}
	return MHD_YES;
}

/* ---- the body ---- */

void sp_request_body_forget(struct sp_request *request)
{
	sp_buf_done(&request->body);
	(void)sp_api_charge_input(request->api, &request->body_charged, 0);
}

static void collect(struct sp_request *request, const char *data, size_t len)
{
	if (request->body_refused)
		return;
	if (!sp_api_charge_input(request->api, &request->body_charged, request->body.len + len))
		(void)sp_err_code(&request->early, SP_CODE_UNAVAILABLE, -ENOBUFS,
				  "the requests under way take %u bytes, which is all there is",
				  SP_API_INPUT_TOTAL_MAX);
	else if (sp_buf_append(&request->body, data, len) < 0)
		(void)sp_err_code(&request->early, SP_CODE_PAYLOAD_TOO_LARGE, -E2BIG,
				  "the body is longer than %u bytes", SP_API_BODY_MAX);
	else
		return;
	request->body_refused = true;
	request->close = true;
	sp_request_body_forget(request);
}

static enum MHD_Result complete(struct sp_request *request)
{
	request->dispatched = true;
	sp_connection_set_deadline(request->connection, 0);
	if (request->early.status < 0) {
		sp_reply_error(request, &request->early);
	} else {
		sp_request_body_complete(request);
		request->route->handle(request);
	}
	return request->suspended ? MHD_YES : queue_answer(request);
}

enum MHD_Result sp_request_access(void *cls, struct MHD_Connection *mhd, const char *url,
				  const char *method, const char *version, const char *upload,
				  size_t *upload_size, void **context)
{
	struct sp_request *request = *context;
	struct sp_connection *connection;

	SP_UNUSED(cls);
	if (!request) {
		connection = sp_connection_of(mhd);
		if (!connection)
			return MHD_NO;
		request = request_new(connection, mhd, url, method);
		if (!request)
			return MHD_NO;
		*context = request;
		return begin(request, version);
	}
	if (*upload_size > 0 && (request->sink || request->body_cut))
		return sp_request_body_feed(request, upload, upload_size);
	if (*upload_size > 0) {
		collect(request, upload, *upload_size);
		*upload_size = 0;
		return MHD_YES;
	}
	if (!request->dispatched)
		return complete(request);
	return queue_answer(request); /* back from being suspended */
}

void sp_request_completed(void *cls, struct MHD_Connection *mhd, void **context,
			  enum MHD_RequestTerminationCode code)
{
	struct sp_request *request = *context;

	SP_UNUSED(cls);
	SP_UNUSED(mhd);
	SP_UNUSED(code);
	if (!request)
		return;
	*context = NULL;
	sp_assert(!request->suspended);
	sp_request_body_done(request);
	request->connection->request = NULL;
	request->api->plain_bytes -= request->answer_bytes;
	sp_connection_set_deadline(request->connection, SP_API_IDLE_TIMEOUT_MS);
	if (request->response)
		MHD_destroy_response(request->response);
	sp_request_body_forget(request);
	sp_os_unref(request->os);
	free(request->isolated);
	if (request->upgrade_lost)
		request->upgrade_lost(request->upgrade_arg);
	free(request);
}
