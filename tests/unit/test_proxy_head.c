/*
 * What the proxy passes on: exact heads, each header that it drops, redirects.
 */
#include "supervisor/api/proxy_head.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static struct sp_proxy_request request = {
	.method = "GET",
	.path = "/a%2fb/../c",
	.query = "x=1+2&y=%20",
	.host = "sandpool.example",
	.client = "192.0.2.7",
	.request_id = "r-1",
	.body = SP_PROXY_NO_BODY,
	.port = 8080,
};

static struct sp_buf head;

static const char *write_head(const char *name, const char *value)
{
	sp_buf_init(&head, SP_PROXY_HEAD_MAX);
	cr_assert(sp_proxy_head_begin(&head, &request) == 0);
	if (name)
		cr_assert(sp_proxy_head_add(&head, &request, name, value) == 0);
	cr_assert(sp_proxy_head_end(&head, &request) == 0);
	return sp_buf_text(&head);
}

static void check_head(const char *expected)
{
	const char *text = write_head("Accept", "text/html");

	cr_assert(strcmp(text, expected) == 0, "%s", text);
	sp_buf_done(&head);
}

Test(proxy_head, path_and_query_travel_as_they_came)
{
	check_head("GET /a%2fb/../c?x=1+2&y=%20 HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n"
		   "X-Forwarded-Proto: http\r\nX-Request-Id: r-1\r\n"
		   "X-Forwarded-Host: sandpool.example\r\nX-Forwarded-For: 192.0.2.7\r\n"
		   "Accept: text/html\r\nVia: 1.1 sandpool\r\nConnection: close\r\n\r\n");
}

Test(proxy_head, what_is_not_known_is_not_claimed)
{
	request.path = "";
	request.query = NULL;
	request.host = NULL;
	request.client = NULL;
	request.secure = true;
	request.body = 17;
	check_head("GET / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nX-Forwarded-Proto: https\r\n"
		   "X-Request-Id: r-1\r\nAccept: text/html\r\nVia: 1.1 sandpool\r\n"
		   "Content-Length: 17\r\nConnection: close\r\n\r\n");
}

Test(proxy_head, an_upgrade_is_passed_on)
{
	request.upgrade = "websocket";
	cr_assert(strstr(write_head(NULL, NULL),
			 "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"));
	cr_assert(!strstr(sp_buf_text(&head), "close"));
	sp_buf_done(&head);
}

Test(proxy_head, a_body_of_unknown_length_goes_in_chunks)
{
	request.body = SP_PROXY_CHUNKED;
	cr_assert(strstr(write_head(NULL, NULL), "\r\nTransfer-Encoding: chunked\r\n"));
	sp_buf_done(&head);
}

Test(proxy_head, a_query_cannot_end_the_line)
{
	static const char *const queries[] = {"a b", "a\r\nX: y", "a\tb", "\x7f", "a\nb"};

	sp_buf_init(&head, SP_PROXY_HEAD_MAX);
	for (size_t i = 0; i < SP_ARRAY_SIZE(queries); i++) {
		request.query = queries[i];
		cr_assert(sp_proxy_head_begin(&head, &request) == -EINVAL, "%s", queries[i]);
	}
	sp_buf_done(&head);
}

static bool passes(const char *name)
{
	bool found;

	found = strstr(write_head(name, "marked"), "marked") != NULL;
	sp_buf_done(&head);
	return found;
}

Test(proxy_head, credentials_and_what_is_for_one_connection_stay_here)
{
	static const char *const dropped[] = {
		"Authorization",
		"authorization",
		"Cookie",
		"X-API-Key",
		"X-Sandpool-Token",
		"OPEN-SANDBOX-API-KEY",
		"X-EXECD-ACCESS-TOKEN",
		"Host",
		"OpenSandbox-Secure-Access",
		"Connection",
		"Keep-Alive",
		"OPENSANDBOX-EGRESS-AUTH",
		"Proxy-Connection",
		"TE",
		"Proxy-Authorization",
		"Proxy-Authenticate",
		"Transfer-Encoding",
		"Content-Length",
		"Trailer",
		"Upgrade",
		"Expect",
		"Forwarded",
		"X-Forwarded-For",
		"X-Forwarded-Host",
		"X-Forwarded-Port",
		"X-Forwarded-Proto",
		"X-Real-IP",
		"X-Request-Id",
		"X-Named",
		"x-also-NAMED",
	};
	static const char *const passed[] = {
		"Accept",        "User-Agent",    "Content-Type", "Range",
		"If-None-Match", "X-Custom",      "Origin",       "Sec-WebSocket-Key",
		"Via",           "Cookie-Policy", "X-Name",
	};

	request.connection = "keep-alive, X-Named , X-Also-Named";
	for (size_t i = 0; i < SP_ARRAY_SIZE(dropped); i++)
		cr_assert(!passes(dropped[i]), "%s", dropped[i]);
	for (size_t i = 0; i < SP_ARRAY_SIZE(passed); i++)
		cr_assert(passes(passed[i]), "%s", passed[i]);
}

Test(proxy_head, of_an_answer_what_is_for_the_client_is_passed_back)
{
	static const char *const dropped[] = {
		"connection",         "Keep-Alive",     "Transfer-Encoding", "Upgrade", "Trailer",
		"Proxy-Authenticate", "Content-Length", "X-Request-Id",      "X-Hop",   "Date",
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(dropped); i++)
		cr_assert(!sp_proxy_passes_back(dropped[i], "x-hop"), "%s", dropped[i]);
	cr_assert(sp_proxy_passes_back("Set-Cookie", "close"));
	cr_assert(sp_proxy_passes_back("X-Hop", NULL));
}

Test(proxy_head, redirects_to_the_root_stay_below_the_proxy)
{
	static const char prefix[] = "/v1/sandboxes/u/proxy/80/and more";
	const size_t len = strlen("/v1/sandboxes/u/proxy/80");
	struct sp_buf out;

	sp_buf_init(&out, 1024);
	cr_assert(sp_proxy_location(&out, prefix, len, "/login?next=/") == 1);
	cr_assert(strcmp(sp_buf_text(&out), "/v1/sandboxes/u/proxy/80/login?next=/") == 0);
	cr_assert(sp_proxy_location(&out, prefix, len, "//elsewhere/x") == 0);
	cr_assert(sp_proxy_location(&out, prefix, len, "http://elsewhere/x") == 0);
	cr_assert(sp_proxy_location(&out, prefix, len, "relative") == 0);
	cr_assert(sp_proxy_location(&out, prefix, len, "") == 0);
	sp_buf_done(&out);
}
