/*
 * The guard in front of every request.
 *
 * libmicrohttpd hands us a parsed list of headers. Its parser (0.9.75, also when strict) is lenient
 * in ways that let one byte stream mean two things: it takes bare LF for CRLF, cuts names, values
 * and targets at a NUL, joins folded lines, keeps a blank before the colon as part of the name, and
 * takes a line that begins with a colon for the end of the headers, so that what follows is served
 * as another request. Most of that is invisible in the list. What betrays all of it at once is
 * arithmetic: the bytes that the parser consumed must be exactly those of the canonical spelling
 * (`METHOD SP TARGET SP VERSION CRLF`, `NAME: VALUE CRLF`…, CRLF) of what it reports. Every client
 * and proxy in use writes that spelling. The rest is RFC 9112: one Host, one Content-Length of
 * digits, never together with Transfer-Encoding, whose only value here is "chunked".
 *
 * Of headers that we act on (credentials, Upgrade) a second one is refused as well: which one
 * counts is a matter of opinion.
 */
#include "supervisor/api/guard.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

static const struct {
	const char *name;
	size_t offset;
} single_headers[] = {
	{"Host", offsetof(struct sp_guard, host)},
	{"Content-Length", offsetof(struct sp_guard, content_length)},
	{"Transfer-Encoding", offsetof(struct sp_guard, transfer_encoding)},
	{"Connection", offsetof(struct sp_guard, connection)},
	{"Upgrade", offsetof(struct sp_guard, upgrade)},
	{"Expect", offsetof(struct sp_guard, expect)},
	{"Authorization", offsetof(struct sp_guard, authorization)},
	{"X-API-Key", offsetof(struct sp_guard, api_key)},
	{"X-Sandpool-Token", offsetof(struct sp_guard, token)},
	{"X-Request-Id", offsetof(struct sp_guard, request_id)},
	{"OPEN-SANDBOX-API-KEY", offsetof(struct sp_guard, os_api_key)},
	{"X-EXECD-ACCESS-TOKEN", offsetof(struct sp_guard, execd_token)},
};

/* RFC 9110, 5.6.2 */
static bool is_token_byte(unsigned char byte)
{
	return byte > ' ' && byte < 0x7f && !strchr("\"(),/:;<=>?@[\\]{}", byte);
}

static bool is_token(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!is_token_byte((unsigned char)text[i]))
			return false;
	return len > 0;
}

static bool is_field_value(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		unsigned char byte = (unsigned char)text[i];

		if ((byte < ' ' && byte != '\t') || byte == 0x7f)
			return false;
	}
	return true;
}

static int malformed(struct sp_err *err, const char *what)
{
	return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL, "malformed request: %s", what);
}

static int keep_single(struct sp_guard *guard, const char *name, size_t name_len, const char *value,
		       struct sp_err *err)
{
	for (size_t i = 0; i < SP_ARRAY_SIZE(single_headers); i++) {
		const char **slot;

		if (strlen(single_headers[i].name) != name_len ||
		    strncasecmp(single_headers[i].name, name, name_len) != 0)
			continue;
		slot = (const char **)(void *)((char *)guard + single_headers[i].offset);
		if (*slot)
			return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
					   "malformed request: header '%s' is given twice",
					   single_headers[i].name);
		*slot = value;
		return 0;
	}
	return 0;
}

int sp_guard_header(struct sp_guard *guard, const char *name, size_t name_len, const char *value,
		    size_t value_len, struct sp_err *err)
{
	if (++guard->header_count > SP_API_HEADERS_MAX)
		return sp_err_code(err, SP_CODE_PAYLOAD_TOO_LARGE, -E2BIG, "more than %u headers",
				   SP_API_HEADERS_MAX);
	guard->header_bytes += name_len + value_len + strlen(": \r\n");
	if (!is_token(name, name_len))
		return malformed(err, "a header's name is no token");
	if (!value)
		value = "";
	if (!is_field_value(value, value_len))
		return malformed(err, "a header's value has control bytes");
	return keep_single(guard, name, name_len, value, err);
}

/* Where the path is passed on to a server in a sandbox: what is an escape there is not for us to
 * say, and nothing after this is a name of ours. */
static const char *passed_on(const char *path)
{
	const char *proxy = strstr(path, "/proxy/");

	return proxy ? proxy : path + strlen(path);
}

static int check_target(const struct sp_guard_request *request, struct sp_err *err)
{
	const char *opaque = passed_on(request->path);

	if (request->uri_length > SP_API_URI_MAX)
		return sp_err_code(err, SP_CODE_PAYLOAD_TOO_LARGE, -E2BIG,
				   "the request target is longer than %u bytes", SP_API_URI_MAX);
	if (request->path[0] != '/')
		return malformed(err, "the request target is no absolute path");
	for (const char *at = request->path; *at; at++) {
		unsigned char byte = (unsigned char)*at;

		if (byte <= ' ' || byte >= 0x7f)
			return malformed(err, "the path has bytes beyond printable ASCII");
		/* No name here ever needs it, and "%2f" is a slash to some and a name to others. */
		if (byte == '%' && at < opaque)
			return malformed(err, "percent-encoding is not used in paths");
	}
	return 0;
}

static int check_content_length(struct sp_guard *guard, struct sp_err *err)
{
	const char *text = guard->content_length;
	size_t len = strlen(text);
	uint64_t value = 0;

	if (len == 0 || strspn(text, "0123456789") != len)
		return malformed(err, "Content-Length is no number");
	for (size_t i = 0; i < len; i++) {
		value = value * 10 + (uint64_t)(text[i] - '0');
		/* What most routes take is less, but the route is not known yet. */
		if (value > SP_API_STREAM_BODY_MAX)
			return sp_err_code(err, SP_CODE_PAYLOAD_TOO_LARGE, -E2BIG,
					   "the body is longer than %llu bytes",
					   (unsigned long long)SP_API_STREAM_BODY_MAX);
	}
	guard->body_length = value;
	return 0;
}

static int check_framing(struct sp_guard *guard, bool http11, struct sp_err *err)
{
	if (guard->transfer_encoding) {
		if (guard->content_length)
			return malformed(err, "Content-Length and Transfer-Encoding exclude each "
					      "other");
		if (!http11)
			return malformed(err, "Transfer-Encoding needs HTTP/1.1");
		if (strcasecmp(guard->transfer_encoding, "chunked") != 0)
			return malformed(err, "the only Transfer-Encoding is chunked");
		guard->chunked = true;
	}
	if (guard->content_length)
		return check_content_length(guard, err);
	return 0;
}

int sp_guard_request(struct sp_guard *guard, const struct sp_guard_request *request,
		     struct sp_err *err)
{
	bool http11 = strcmp(request->version, "HTTP/1.1") == 0;
	size_t spelled = strlen(request->method) + 1 + request->uri_length + 1 +
			 strlen(request->version) + 2 + guard->header_bytes + 2;
	int status;

	if (request->bytes > SP_API_HEADER_BYTES_MAX)
		return sp_err_code(err, SP_CODE_PAYLOAD_TOO_LARGE, -E2BIG,
				   "request line and headers are longer than %u bytes",
				   SP_API_HEADER_BYTES_MAX);
	status = check_target(request, err);
	if (status < 0)
		return status;
	if (!http11 && strcmp(request->version, "HTTP/1.0") != 0)
		return malformed(err, "the version is neither HTTP/1.1 nor HTTP/1.0");
	if (!is_token(request->method, strlen(request->method)))
		return malformed(err, "the method is no token");
	if (request->bytes != spelled)
		return malformed(err, "the header is not made of lines 'NAME: VALUE' that end in "
				      "CRLF");
	if (http11 && !guard->host)
		return malformed(err, "HTTP/1.1 needs a Host header");
	return check_framing(guard, http11, err);
}

bool sp_guard_has_token(const char *value, const char *token)
{
	size_t token_len = strlen(token);

	while (value && *value) {
		size_t len;

		value += strspn(value, " \t,");
		len = strcspn(value, " \t,");
		if (len == token_len && strncasecmp(value, token, len) == 0)
			return true;
		value += len;
	}
	return false;
}
