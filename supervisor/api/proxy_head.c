/*
 * Lists of names, and the writing of a head. A name on a list is dropped whatever its case.
 */
#include "supervisor/api/proxy_head.h"

#include "supervisor/api/guard.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

/* RFC 9110, 7.6.1, and what frames a message. */
static const char *const one_connection[] = {
	"Connection",
	"Keep-Alive",
	"Proxy-Connection",
	"Proxy-Authenticate",
	"Proxy-Authorization",
	"TE",
	"Trailer",
	"Transfer-Encoding",
	"Upgrade",
	"Content-Length",
};

static const char *const of_the_client[] = {
	/* Written anew. */
	"Host",
	"Expect",
	"X-Request-Id",
	/* Credentials: the first two are a browser's for this host, which serves many sandboxes. */
	"Authorization",
	"Cookie",
	"X-API-Key",
	"X-Sandpool-Token",
	"OPEN-SANDBOX-API-KEY",
	"X-EXECD-ACCESS-TOKEN",
	"OpenSandbox-Secure-Access",
	"OPENSANDBOX-EGRESS-AUTH",
	/* What we see of the client is told instead. */
	"Forwarded",
	"X-Forwarded-For",
	"X-Forwarded-Host",
	"X-Forwarded-Port",
	"X-Forwarded-Proto",
	"X-Real-IP",
};

/* Ours are on the answer already. */
static const char *const of_the_answer[] = {"X-Request-Id", "Date"};

static bool is_listed(const char *const *list, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (strcasecmp(list[i], name) == 0)
			return true;
	return false;
}

static bool is_for_one_connection(const char *name, const char *connection)
{
	return is_listed(one_connection, SP_ARRAY_SIZE(one_connection), name) ||
	       sp_guard_has_token(connection, name);
}

bool sp_proxy_passes_back(const char *name, const char *connection)
{
	return !is_for_one_connection(name, connection) &&
	       !is_listed(of_the_answer, SP_ARRAY_SIZE(of_the_answer), name);
}

/* It becomes a part of the request line. */
static bool query_valid(const char *query)
{
	for (const char *at = query; *at; at++)
		if ((unsigned char)*at <= ' ' || (unsigned char)*at == 0x7f)
			return false;
	return true;
}

static int write_client(struct sp_buf *head, const struct sp_proxy_request *request)
{
	int status = sp_buf_printf(head, "X-Forwarded-Proto: %s\r\nX-Request-Id: %s\r\n",
				   request->secure ? "https" : "http", request->request_id);

	if (status == 0 && request->host)
		status = sp_buf_printf(head, "X-Forwarded-Host: %s\r\n", request->host);
	if (status == 0 && request->client)
		status = sp_buf_printf(head, "X-Forwarded-For: %s\r\n", request->client);
	return status;
}

int sp_proxy_head_begin(struct sp_buf *head, const struct sp_proxy_request *request)
{
	const char *query = request->query ? request->query : "";
	int status;

	if (!query_valid(query))
		return -EINVAL;
	status = sp_buf_printf(head, "%s %s%s%s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n",
			       request->method, request->path[0] ? request->path : "/",
			       request->query ? "?" : "", query, request->port);
	return status < 0 ? status : write_client(head, request);
}

int sp_proxy_head_add(struct sp_buf *head, const struct sp_proxy_request *request, const char *name,
		      const char *value)
{
	if (is_for_one_connection(name, request->connection) ||
	    is_listed(of_the_client, SP_ARRAY_SIZE(of_the_client), name))
		return 0;
	return sp_buf_printf(head, "%s: %s\r\n", name, value);
}

int sp_proxy_head_end(struct sp_buf *head, const struct sp_proxy_request *request)
{
	int status = sp_buf_printf(head, "Via: 1.1 sandpool\r\n");

	if (status < 0)
		return status;
	if (request->body == SP_PROXY_CHUNKED)
		status = sp_buf_printf(head, "Transfer-Encoding: chunked\r\n");
	else if (request->body != SP_PROXY_NO_BODY)
		status = sp_buf_printf(head, "Content-Length: %lld\r\n", (long long)request->body);
	if (status < 0)
		return status;
	if (request->upgrade)
		return sp_buf_printf(head, "Connection: Upgrade\r\nUpgrade: %s\r\n\r\n",
				     request->upgrade);
	return sp_buf_printf(head, "Connection: close\r\n\r\n");
}

int sp_proxy_location(struct sp_buf *out, const char *prefix, size_t prefix_len, const char *value)
{
	int status;

	/* "//host/path" names another host. */
	if (value[0] != '/' || value[1] == '/')
		return 0;
	sp_buf_clear(out);
	status = sp_buf_append(out, prefix, prefix_len);
	if (status == 0)
		status = sp_buf_append(out, value, strlen(value));
	return status < 0 ? status : 1;
}
