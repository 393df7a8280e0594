/*
 * One sandbox of the OpenSandbox API: look at it, end it, move its end, relabel it, and how to
 * reach a port of it. The rest of this file is what the API has and this server does not.
 *
 * An endpoint is a path of this server's, in the spelling that the client itself used: the host it
 * named, with /v1 or without. The headers that go with it carry the sandbox's token.
 */
#include "supervisor/api/os_lifecycle.h"

#include "pool/base/clock.h"
#include "supervisor/api/json_body.h"
#include "supervisor/api/query.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void sp_handle_os_get(struct sp_request *request)
{
	sp_os_reply_sandbox(request, MHD_HTTP_OK, request->os, true);
}

void sp_handle_os_delete(struct sp_request *request)
{
	sp_os_release(request->api, request->os);
	sp_reply_empty(request);
}

void sp_handle_os_metadata(struct sp_request *request)
{
	struct sp_os_refusal refusal = {0};
	struct sp_err err = {0};
	json_t *patch = NULL;
	json_t *changed;

	if (sp_body_parse_loose(sp_buf_text(&request->body), request->body.len, &patch, &err) < 0) {
		sp_reply_error(request, &err);
		return;
	}
	if (sp_os_metadata_patch(request->os->metadata, patch, &changed, &refusal) < 0) {
		sp_os_refuse(request, &refusal);
	} else {
		json_decref(request->os->metadata);
		request->os->metadata = changed;
		sp_os_reply_sandbox(request, MHD_HTTP_OK, request->os, true);
	}
	json_decref(patch);
}

/* ---- renew ---- */

static void reply_end(struct sp_request *request)
{
	char text[SP_OS_TIME_MAX];
	struct sp_json_out out;
	struct sp_buf body;

	sp_os_time_text(request->os, request->os->expires_ms, text);
	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&out, &body);
	sp_json_open(&out, NULL, '{');
	sp_json_text(&out, "expiresAt", text);
	sp_json_close(&out, '}');
	sp_reply_written(request, &out);
}

/* 0, or negative and replied. */
static int read_end(struct sp_request *request, int64_t *ret_wall_ms)
{
	struct sp_err err = {0};
	json_t *root = NULL;
	const char *text;
	int status =
		sp_body_parse_loose(sp_buf_text(&request->body), request->body.len, &root, &err);

	if (status < 0) {
		sp_reply_error(request, &err);
		return status;
	}
	text = json_string_value(json_object_get(root, "expiresAt"));
	if (!text)
		status = sp_err_code(&err, SP_CODE_INVALID_ARGUMENT, -EINVAL, "%s",
				     json_object_get(root, "expiresAt")
					     ? "Input should be a valid datetime"
					     : "Field required");
	else
		status = sp_os_parse_time(text, ret_wall_ms, &err);
	if (status < 0)
		sp_os_refuse_value(request, "body", "expiresAt", err.message);
	json_decref(root);
	return status;
}

void sp_handle_os_renew(struct sp_request *request)
{
	struct sp_os_sandbox *os = request->os;
	struct sp_err err = {0};
	int64_t wall_ms;
	int64_t ttl_ms;

	if (read_end(request, &wall_ms) < 0)
		return;
	ttl_ms = wall_ms - sp_clock_wall_ms();
	if (os->expires_ms == INT64_MAX)
		sp_os_reply_error(request, MHD_HTTP_CONFLICT, "DOCKER::INVALID_EXPIRATION",
				  "Sandbox %s does not have automatic expiration enabled.",
				  os->uuid);
	else if (ttl_ms <= 0)
		sp_os_reply_error(request, MHD_HTTP_BAD_REQUEST, "DOCKER::INVALID_EXPIRATION",
				  "New expiration time must be in the future");
	else if (sp_os_set_end(request->api, os, sp_clock_boot_ms() + ttl_ms, &err) < 0)
		sp_reply_error(request, &err);
	else
		reply_end(request);
}

/* ---- endpoints ---- */

static int check_endpoint_query(struct sp_request *request, struct sp_err *err)
{
	char *proxy = NULL;
	char *expires = NULL;
	int status = sp_query_text(request, "use_server_proxy", &proxy, err);

	if (status >= 0)
		status = sp_query_text(request, "expires", &expires, err);
	/* Every endpoint here is the server's proxy, whatever was asked for. */
	if (status >= 0 && expires)
		status = sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				     "expires: this server signs no endpoints, they carry the "
				     "sandbox's token");
	free(proxy);
	free(expires);
	return SP_MIN(status, 0);
}

static void write_endpoint(struct sp_request *request, struct sp_json_out *out)
{
	bool versioned = strncmp(request->path, "/v1/", 4) == 0;
	const char *host = request->headers.host ? request->headers.host : "localhost";
	const struct sp_os_sandbox *os = request->os;
	struct sp_buf endpoint;

	sp_buf_init(&endpoint, SP_API_RESPONSE_MAX);
	if (sp_buf_printf(&endpoint, "%s%s/sandboxes/%s/proxy/%u", host, versioned ? "/v1" : "",
			  os->uuid, (unsigned int)request->match.port) < 0)
		out->status = -ENOMEM;
	sp_json_open(out, NULL, '{');
	sp_json_text(out, "endpoint", sp_buf_text(&endpoint));
	sp_json_open(out, "headers", '{');
	sp_json_text(out, "X-EXECD-ACCESS-TOKEN", os->secret);
	sp_json_close(out, '}');
	sp_json_close(out, '}');
	sp_buf_done(&endpoint);
}

void sp_handle_os_endpoint(struct sp_request *request)
{
	struct sp_json_out out;
	struct sp_err err = {0};
	struct sp_buf body;

	if (request->match.port == 0) {
		sp_os_reply_error(request, MHD_HTTP_BAD_REQUEST, "DOCKER::INVALID_PORT",
				  "the port must be a number in 1 … 65535");
		return;
	}
	if (check_endpoint_query(request, &err) < 0) {
		sp_reply_error(request, &err);
		return;
	}
	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&out, &body);
	write_endpoint(request, &out);
	sp_reply_written(request, &out);
}

/* ---- the rest ---- */

/* Clients report how their creates went and ignore the answer; we measure that ourselves. */
void sp_handle_os_event(struct sp_request *request)
{
	sp_reply_empty(request);
}

void sp_handle_os_health(struct sp_request *request)
{
	struct sp_json_out out;
	struct sp_buf body;

	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&out, &body);
	sp_json_open(&out, NULL, '{');
	sp_json_text(&out, "status", "healthy");
	sp_json_close(&out, '}');
	sp_reply_written(request, &out);
}

void sp_handle_os_no_snapshots(struct sp_request *request)
{
	sp_os_reply_error(request, MHD_HTTP_NOT_IMPLEMENTED, "SANDBOX::API_NOT_SUPPORTED",
			  "this server keeps no snapshots");
}

void sp_handle_os_no_diagnostics(struct sp_request *request)
{
	sp_os_reply_error(request, MHD_HTTP_NOT_IMPLEMENTED, "DIAGNOSTICS_NOT_IMPLEMENTED",
			  "diagnostics of a sandbox are not kept");
}

/* Ours are at /v1/pools. */
void sp_handle_os_no_pools(struct sp_request *request)
{
	sp_os_reply_error(request, MHD_HTTP_NOT_IMPLEMENTED, "KUBERNETES::POOL_NOT_SUPPORTED",
			  "pools are configured on the host, and looked at below /v1/pools");
}
