/*
 * Errors in the words of the OpenSandbox APIs. Their clients decide by the status; the codes are
 * for people. What neither API has a code for keeps ours, marked as such in the lifecycle API and
 * as RUNTIME_ERROR in execd's.
 *
 * execd answers a path or method that it does not know with the text of its HTTP library, and a
 * wrong token with a body of its own form.
 */
#include "supervisor/api/api_private.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define CODE_MAX 64

struct wording {
	unsigned int status; /* 0: that of pool/base/codes.h */
	const char *code;
};

static const struct wording lifecycle[SP_CODE_COUNT] = {
	[SP_CODE_NOT_FOUND] = {0, "DOCKER::SANDBOX_NOT_FOUND"},
	[SP_CODE_LEASE_ENDED] = {MHD_HTTP_NOT_FOUND, "DOCKER::SANDBOX_NOT_FOUND"},
	[SP_CODE_SANDBOX_DEAD] = {MHD_HTTP_NOT_FOUND, "DOCKER::SANDBOX_NOT_FOUND"},
	[SP_CODE_INVALID_ARGUMENT] = {0, "SANDBOX::INVALID_PARAMETER"},
	[SP_CODE_PAYLOAD_TOO_LARGE] = {0, "SANDBOX::INVALID_PARAMETER"},
	[SP_CODE_POOL_NOT_FOUND] = {MHD_HTTP_BAD_REQUEST, "SANDBOX::INVALID_PARAMETER"},
	[SP_CODE_CREATE_FAILED] = {MHD_HTTP_INTERNAL_SERVER_ERROR, "DOCKER::SANDBOX_START_FAILED"},
	[SP_CODE_EXEC_START_FAILED] = {MHD_HTTP_INTERNAL_SERVER_ERROR,
				       "DOCKER::SANDBOX_START_FAILED"},
	[SP_CODE_UNSUPPORTED] = {0, "SANDBOX::API_NOT_SUPPORTED"},
	[SP_CODE_METHOD_NOT_ALLOWED] = {0, "GENERAL::UNKNOWN_ERROR"},
	[SP_CODE_INTERNAL] = {0, "GENERAL::UNKNOWN_ERROR"},
};

static const struct wording execd[SP_CODE_COUNT] = {
	[SP_CODE_INVALID_ARGUMENT] = {0, "INVALID_REQUEST_BODY"},
	[SP_CODE_PAYLOAD_TOO_LARGE] = {0, "INVALID_REQUEST_BODY"},
	[SP_CODE_FILE_NOT_FOUND] = {0, "FILE_NOT_FOUND"},
	[SP_CODE_FILE_EXISTS] = {MHD_HTTP_INTERNAL_SERVER_ERROR, "RUNTIME_ERROR"},
	[SP_CODE_FILE_KIND] = {MHD_HTTP_INTERNAL_SERVER_ERROR, "RUNTIME_ERROR"},
	[SP_CODE_FILE_DENIED] = {MHD_HTTP_INTERNAL_SERVER_ERROR, "RUNTIME_ERROR"},
	[SP_CODE_FILE_FULL] = {MHD_HTTP_INTERNAL_SERVER_ERROR, "RUNTIME_ERROR"},
	[SP_CODE_EXEC_START_FAILED] = {MHD_HTTP_INTERNAL_SERVER_ERROR, "RUNTIME_ERROR"},
	[SP_CODE_UNSUPPORTED] = {MHD_HTTP_SERVICE_UNAVAILABLE, "NOT_SUPPORTED"},
	[SP_CODE_UNAVAILABLE] = {0, "SERVICE_UNAVAILABLE"},
};

static unsigned int status_of(const struct wording *wording, enum sp_code code)
{
	return wording->status ? wording->status : (unsigned int)sp_code_http_status(code);
}

void sp_os_reply_error(struct sp_request *request, unsigned int status, const char *code,
		       const char *format, ...)
{
	char message[SP_ERR_MESSAGE_MAX];
	struct sp_json_out out;
	struct sp_buf body;
	va_list args;

	va_start(args, format);
	(void)vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&out, &body);
	sp_json_open(&out, NULL, '{');
	sp_json_text(&out, "code", code);
	sp_json_text(&out, "message", message);
	sp_json_close(&out, '}');
	/* Out of memory for it: an empty buffer cannot be taken, and the connection ends. */
	if (out.status < 0)
		sp_buf_done(&body);
	sp_reply_json(request, status, &body);
	sp_buf_done(&body);
}

static void reply_literal(struct sp_request *request, unsigned int status, const char *type,
			  const char *text)
{
	struct sp_buf body;

	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	if (sp_buf_append(&body, text, strlen(text)) < 0)
		sp_buf_done(&body);
	sp_reply_text(request, status, type, &body);
	sp_buf_done(&body);
}

static void lifecycle_error(struct sp_request *request, const struct sp_err *err)
{
	enum sp_code code = sp_err_client_code(err);
	const struct wording *wording = &lifecycle[code];
	char own[CODE_MAX];

	if (code == SP_CODE_UNAUTHORIZED) {
		bool given = request->headers.os_api_key || request->headers.api_key ||
			     request->headers.authorization;

		sp_os_reply_error(request, MHD_HTTP_UNAUTHORIZED,
				  given ? "INVALID_API_KEY" : "MISSING_API_KEY", "%s",
				  err->message);
		return;
	}
	(void)snprintf(own, sizeof(own), "SANDPOOL::%s", sp_code_name(code));
	sp_os_reply_error(request, status_of(wording, code), wording->code ? wording->code : own,
			  "%s", err->message);
}

static void execd_error(struct sp_request *request, const struct sp_err *err)
{
	enum sp_code code = sp_err_client_code(err);
	const struct wording *wording = &execd[code];
	bool isolated = request->route && sp_route_is_isolated_files(request->route);

	if (code == SP_CODE_UNAUTHORIZED)
		reply_literal(request, MHD_HTTP_UNAUTHORIZED, "application/json; charset=utf-8",
			      "{\"error\":\"Unauthorized: invalid or missing header "
			      "X-EXECD-ACCESS-TOKEN\"}");
	else if (code == SP_CODE_METHOD_NOT_ALLOWED ||
		 (code == SP_CODE_NOT_FOUND && !request->route))
		reply_literal(request, MHD_HTTP_NOT_FOUND, "text/plain", "404 page not found");
	else if (isolated && code == SP_CODE_NOT_FOUND)
		sp_os_reply_error(request, MHD_HTTP_NOT_FOUND, "SESSION_NOT_FOUND", "%s",
				  err->message);
	else
		sp_os_reply_error(request, status_of(wording, code),
				  wording->code ? wording->code : "RUNTIME_ERROR", "%s",
				  err->message);
}

void sp_os_reply_err(struct sp_request *request, const struct sp_err *err)
{
	if (request->style == SP_STYLE_EXECD)
		execd_error(request, err);
	else
		lifecycle_error(request, err);
}
