/*
 * What a request asks for and whether it may: tables, sandbox, credentials.
 *
 * A path is looked up in our own table first and then, with and without its /v1, in that of the
 * OpenSandbox lifecycle API; the forms of their sandbox ids keep them apart. What lies below
 * `/sandboxes/{uuid}/proxy/44772` is execd's and looked up in a third table. Which of them matched
 * decides how errors are worded.
 *
 * Below a sandbox's proxy its own token is the credential (X-EXECD-ACCESS-TOKEN, or
 * X-Sandpool-Token): the API key that most clients send along there opens nothing, and neither does
 * anything that is meant for a server inside. An unknown sandbox is told from a wrong token only to
 * those who could have made the sandbox.
 */
#include "supervisor/api/api_private.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

/* The key of `Authorization: Bearer KEY`, `X-API-Key: KEY` or `OPEN-SANDBOX-API-KEY: KEY`; NULL if
 * there is none of them. */
static const char *presented_key(const struct sp_guard *headers)
{
	static const char scheme[] = "Bearer ";

	if (headers->authorization) {
		if (strncasecmp(headers->authorization, scheme, strlen(scheme)) != 0)
			return "";
		return headers->authorization + strlen(scheme);
	}
	return headers->api_key ? headers->api_key : headers->os_api_key;
}

/* Looks at every key and every byte whatever it finds, so that time tells lengths at most. */
static bool key_is_known(const struct sp_config *config, const char *key)
{
	size_t len = strlen(key);
	bool known = false;

	for (size_t i = 0; i < config->api_key_count; i++) {
		const char *candidate = config->api_keys[i];
		bool same_length = strlen(candidate) == len;

		known |= sp_secret_equal(same_length ? candidate : key, key, len) && same_length;
	}
	return known && len > 0;
}

static int unauthorized(struct sp_err *err, const char *what)
{
	return sp_err_code(err, SP_CODE_UNAUTHORIZED, -EACCES, "%s", what);
}

static bool opens_sandbox(const struct sp_guard *headers, const struct sp_os_sandbox *os)
{
	const char *token = headers->execd_token ? headers->execd_token : headers->token;

	return os && token && strlen(token) == SP_SECRET_LEN &&
	       sp_secret_equal(token, os->secret, SP_SECRET_LEN);
}

static int no_sandbox(const struct sp_request *request, struct sp_err *err)
{
	return sp_err_code(err, SP_CODE_NOT_FOUND, -ENOENT, "Sandbox %s not found",
			   request->match.name);
}

/* Into the sandbox of the path. */
static int authorize_inside(struct sp_request *request, bool key_valid, struct sp_err *err)
{
	if (opens_sandbox(&request->headers, request->os) ||
	    (request->os && request->caller.operator_rights)) {
		request->caller = sp_os_caller(request->os);
		return 0;
	}
	if (!request->os && (key_valid || request->caller.operator_rights))
		return no_sandbox(request, err);
	return unauthorized(err, "the sandbox's token is missing or wrong (X-EXECD-ACCESS-TOKEN)");
}

/* Fill in the caller; 0 if it may use the route. */
static int authorize(struct sp_request *request, struct sp_err *err)
{
	const struct sp_guard *headers = &request->headers;
	bool local = request->connection->listener->kind == SP_LISTENER_UNIX;
	enum sp_route_access access = request->route->access;
	const char *key = local ? NULL : presented_key(headers);
	bool key_valid = key && key_is_known(sp_service_config(request->api->service), key);

	request->caller = (struct sp_caller){
		.operator_rights = request->connection->operator_rights,
		.may_acquire = local || key_valid,
		.secret = headers->token,
	};
	if (access == SP_ROUTE_OPEN)
		return 0;
	if (access == SP_ROUTE_INSIDE)
		return authorize_inside(request, key_valid, err);
	if (key && !key_valid)
		return unauthorized(err, "the API key is not known");
	if (access == SP_ROUTE_OPERATOR) {
		if (request->caller.operator_rights)
			return 0;
		if (!local && !key_valid)
			return unauthorized(err, "no credential");
		return sp_err_code(err, SP_CODE_FORBIDDEN, -EACCES,
				   "only an operator on the Unix socket may do this");
	}
	if (request->caller.may_acquire || (access == SP_ROUTE_TOKEN && headers->token))
		return 0;
	return unauthorized(err, access == SP_ROUTE_TOKEN ? "no API key and no sandbox token"
							  : "no API key");
}

/* ---- tables ---- */

static const char *without_version(const char *path)
{
	return strncmp(path, "/v1/", 4) == 0 ? path + 3 : path;
}

static enum sp_route_outcome look_up(struct sp_request *request)
{
	enum sp_route_outcome outcome = sp_route_find(sp_routes, sp_route_count, request->method,
						      request->path, &request->match);
	enum sp_route_outcome other;
	struct sp_route_match match;

	if (outcome != SP_ROUTE_NO_PATH && outcome != SP_ROUTE_BAD_SANDBOX)
		return outcome;
	other = sp_route_find(sp_os_routes, sp_os_route_count, request->method,
			      without_version(request->path), &match);
	if (other == SP_ROUTE_NO_PATH)
		return outcome;
	/* An id of neither form is worded for whose key there is. */
	if (outcome == other && !request->headers.os_api_key)
		return outcome;
	request->match = match;
	request->style = SP_STYLE_LIFECYCLE;
	return other;
}

static int bad_name(struct sp_request *request, enum sp_route_outcome outcome, struct sp_err *err)
{
	if (outcome == SP_ROUTE_BAD_POOL)
		return sp_err_code(err, SP_CODE_POOL_NOT_FOUND, -ENOENT, "no pool of that name");
	if (outcome == SP_ROUTE_BAD_HOST)
		return sp_err_code(err, SP_CODE_NOT_FOUND, -ENOENT, "no such host");
	if (request->style == SP_STYLE_LIFECYCLE)
		return no_sandbox(request, err);
	return sp_err_code(err, SP_CODE_NOT_FOUND, -ENOENT, "no such sandbox");
}

static int not_served(const struct sp_request *request, enum sp_route_outcome outcome,
		      struct sp_err *err)
{
	if (outcome == SP_ROUTE_NO_PATH)
		return sp_err_code(err, SP_CODE_NOT_FOUND, -ENOENT,
				   "nothing is served at this path");
	return sp_err_code(err, SP_CODE_METHOD_NOT_ALLOWED, -EINVAL, "this path serves %s only",
			   request->match.allow);
}

/* The request is for the execd of its sandbox. */
static int find_execd_route(struct sp_request *request, struct sp_err *err)
{
	const char *path = request->match.tail[0] ? request->match.tail : "/";
	enum sp_route_outcome outcome = sp_route_find(sp_execd_routes, sp_execd_route_count,
						      request->method, path, &request->match);

	request->route = request->match.route;
	if (outcome != SP_ROUTE_FOUND)
		return not_served(request, outcome, err);
	return 0;
}

/* Into a sandbox: it must run, and may live longer for it. */
static int enter(struct sp_request *request, struct sp_err *err)
{
	sp_assert(request->os); /* its routes have a {uuid} */
	if (request->os->state != SP_OS_RUNNING)
		return sp_err_code(err, SP_CODE_UNAVAILABLE, -EAGAIN, "the sandbox is %s",
				   sp_os_state_name(request->os->state));
	sp_os_used(request->api, request->os);
	return 0;
}

int sp_request_find_route(struct sp_request *request, struct sp_err *err)
{
	enum sp_route_outcome outcome = look_up(request);
	bool is_execd;
	int status;

	request->route = request->match.route;
	if (outcome == SP_ROUTE_NO_PATH || outcome == SP_ROUTE_NO_METHOD)
		return not_served(request, outcome, err);
	is_execd =
		request->route->access == SP_ROUTE_INSIDE && request->match.port == SP_EXECD_PORT;
	if (is_execd)
		request->style = SP_STYLE_EXECD;
	if (outcome == SP_ROUTE_FOUND && sp_route_has_uuid(request->route)) {
		request->os = sp_os_find(request->api->os, request->match.name);
		if (request->os)
			(void)sp_os_ref(request->os);
	}
	status = authorize(request, err);
	if (status < 0)
		return status;
	if (outcome != SP_ROUTE_FOUND)
		return bad_name(request, outcome, err);
	if (sp_route_has_uuid(request->route) && !request->os)
		return no_sandbox(request, err);
	if (is_execd)
		status = find_execd_route(request, err);
	if (status == 0 && request->route->access == SP_ROUTE_INSIDE)
		status = enter(request, err);
	if (status == 0 && is_execd && sp_route_is_isolated_files(request->route))
		status = sp_isolated_enter(request, err);
	return status;
}
