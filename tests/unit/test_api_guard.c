/*
 * The guard: the smuggling table, and each limit at N and N+1. The table in tests/e2e sends the
 * same requests through the real parser.
 */
#include "supervisor/api/guard.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct pair {
	const char *name;
	const char *value;
};

/* As if a parser had reported these headers and had consumed exactly what they take. */
static int judge_slack(const char *version, const struct pair *headers, size_t count, long slack,
		       struct sp_guard *guard, struct sp_err *err)
{
	struct sp_guard_request request = {
		.method = "POST",
		.path = "/v1/pools",
		.uri_length = strlen("/v1/pools"),
		.version = version,
		.bytes = strlen("POST /v1/pools \r\n\r\n") + strlen(version),
	};

	*guard = (struct sp_guard){0};
	for (size_t i = 0; i < count; i++) {
		int status = sp_guard_header(guard, headers[i].name, strlen(headers[i].name),
					     headers[i].value, strlen(headers[i].value), err);

		if (status < 0)
			return status;
		request.bytes += strlen(headers[i].name) + strlen(headers[i].value) + 4;
	}
	request.bytes = (size_t)((long)request.bytes + slack);
	return sp_guard_request(guard, &request, err);
}

static int judge(const char *version, const struct pair *headers, size_t count)
{
	struct sp_guard guard;
	struct sp_err err = {0};
	int status = judge_slack(version, headers, count, 0, &guard, &err);

	if (status < 0)
		cr_assert(err.status == status && err.message[0] && err.code != SP_CODE_NONE);
	return status;
}

#define JUDGE(version, ...)                                               \
	judge(version, (const struct pair[]){{"Host", "a"}, __VA_ARGS__}, \
	      SP_ARRAY_SIZE(((const struct pair[]){{"Host", "a"}, __VA_ARGS__})))

Test(api_guard, ordinary_request_passes)
{
	cr_assert(JUDGE("HTTP/1.1", {"Content-Length", "12"}, {"Accept", "*/*"}) == 0);
	cr_assert(JUDGE("HTTP/1.1", {"Transfer-Encoding", "chunked"}) == 0);
	cr_assert(JUDGE("HTTP/1.0", {"Content-Length", "0"}) == 0);
}

Test(api_guard, body_length_and_coding_are_reported)
{
	const struct pair with_length[] = {{"Host", "a"}, {"content-length", "12"}};
	const struct pair chunked[] = {{"Host", "a"}, {"transfer-encoding", "Chunked"}};
	struct sp_guard guard;

	cr_assert(judge_slack("HTTP/1.1", with_length, 2, 0, &guard, NULL) == 0);
	cr_assert(guard.body_length == 12 && !guard.chunked);
	cr_assert(judge_slack("HTTP/1.1", chunked, 2, 0, &guard, NULL) == 0);
	cr_assert(guard.chunked);
}

Test(api_guard, framing_that_two_readers_may_read_differently_is_refused)
{
	cr_assert(JUDGE("HTTP/1.1", {"Content-Length", "3"}, {"Content-Length", "4"}) == -EINVAL);
	cr_assert(JUDGE("HTTP/1.1", {"Content-Length", "3"}, {"content-length", "3"}) == -EINVAL);
	cr_assert(JUDGE("HTTP/1.1", {"Content-Length", "3"}, {"Transfer-Encoding", "chunked"}) ==
		  -EINVAL);
	cr_assert(JUDGE("HTTP/1.1", {"Transfer-Encoding", "chunked"},
			{"Transfer-Encoding", "chunked"}) == -EINVAL);
	cr_assert(JUDGE("HTTP/1.1", {"Transfer-Encoding", "gzip, chunked"}) == -EINVAL);
	cr_assert(JUDGE("HTTP/1.1", {"Transfer-Encoding", "identity"}) == -EINVAL);
	cr_assert(JUDGE("HTTP/1.0", {"Transfer-Encoding", "chunked"}) == -EINVAL);
	cr_assert(JUDGE("HTTP/1.1", {"Content-Length ", "3"}) == -EINVAL);
	cr_assert(JUDGE("HTTP/1.1", {"", "3"}) == -EINVAL);
	cr_assert(JUDGE("HTTP/1.1", {"X\tY", "3"}) == -EINVAL);
	cr_assert(JUDGE("HTTP/1.1", {"X", "a\rb"}) == -EINVAL);
	cr_assert(JUDGE("HTTP/1.1", {"Host", "b"}) == -EINVAL);
}

Test(api_guard, content_length_is_digits_only)
{
	static const char *const bad[] = {"", "+3", "-3", " 3", "3 ", "0x3", "3,3", "3.0", "1e3"};

	for (size_t i = 0; i < SP_ARRAY_SIZE(bad); i++)
		cr_assert(JUDGE("HTTP/1.1", {"Content-Length", bad[i]}) == -EINVAL, "'%s'", bad[i]);
}

Test(api_guard, bytes_that_the_parser_swallowed_are_noticed)
{
	const struct pair headers[] = {{"Host", "a"}, {"X", "y"}};
	struct sp_guard guard;

	/* -1: bare LF or no blank after a colon; +: NUL, folding, a line ": x", more blanks */
	for (long slack = -3; slack <= 8; slack++)
		cr_assert(judge_slack("HTTP/1.1", headers, 2, slack, &guard, NULL) ==
				  (slack ? -EINVAL : 0),
			  "slack %ld", slack);
}

Test(api_guard, credentials_are_not_given_twice)
{
	static const char *const single[] = {"Authorization",
					     "X-API-Key",
					     "X-Sandpool-Token",
					     "X-Request-Id",
					     "Upgrade",
					     "Connection",
					     "Expect",
					     "OPEN-SANDBOX-API-KEY",
					     "X-EXECD-ACCESS-TOKEN"};

	for (size_t i = 0; i < SP_ARRAY_SIZE(single); i++)
		cr_assert(JUDGE("HTTP/1.1", {single[i], "a"}, {single[i], "a"}) == -EINVAL, "%s",
			  single[i]);
	cr_assert(JUDGE("HTTP/1.1", {"Accept", "a"}, {"Accept", "b"}) == 0);
}

Test(api_guard, host_is_required_from_http_1_1_on)
{
	struct sp_guard guard;

	cr_assert(judge_slack("HTTP/1.1", NULL, 0, 0, &guard, NULL) == -EINVAL);
	cr_assert(judge_slack("HTTP/1.0", NULL, 0, 0, &guard, NULL) == 0);
	cr_assert(judge_slack("HTTP/1.9", NULL, 0, 0, &guard, NULL) == -EINVAL);
	cr_assert(judge_slack("HTTP/2.0", NULL, 0, 0, &guard, NULL) == -EINVAL);
}

Test(api_guard, body_of_the_limit_passes_and_one_more_byte_does_not)
{
	char at[24];
	char beyond[24];

	(void)snprintf(at, sizeof(at), "%" PRIu64, SP_API_STREAM_BODY_MAX);
	(void)snprintf(beyond, sizeof(beyond), "%" PRIu64, SP_API_STREAM_BODY_MAX + 1);
	cr_assert(JUDGE("HTTP/1.1", {"Content-Length", at}) == 0);
	cr_assert(JUDGE("HTTP/1.1", {"Content-Length", beyond}) == -E2BIG);
	cr_assert(JUDGE("HTTP/1.1", {"Content-Length", "18446744073709551617"}) == -E2BIG);
}

Test(api_guard, header_count_of_the_limit_passes_and_one_more_does_not)
{
	struct sp_guard guard = {0};
	struct sp_err err = {0};

	for (unsigned int i = 0; i < SP_API_HEADERS_MAX; i++)
		cr_assert(sp_guard_header(&guard, "X", 1, "y", 1, &err) == 0);
	cr_assert(sp_guard_header(&guard, "X", 1, "y", 1, &err) == -E2BIG);
	cr_assert(err.code == SP_CODE_PAYLOAD_TOO_LARGE);
}

/* A request whose only header is Host and whose target has this many bytes. */
static int judge_target(const char *path, size_t uri_length)
{
	struct sp_guard guard = {0};
	struct sp_guard_request request = {
		.method = "GET",
		.path = path,
		.uri_length = uri_length,
		.version = "HTTP/1.1",
		.bytes = strlen("GET  HTTP/1.1\r\nHost: a\r\n\r\n") + uri_length,
	};

	cr_assert(sp_guard_header(&guard, "Host", 4, "a", 1, NULL) == 0);
	return sp_guard_request(&guard, &request, NULL);
}

Test(api_guard, target_of_the_limit_passes_and_one_more_byte_does_not)
{
	cr_assert(judge_target("/", SP_API_URI_MAX) == 0);
	cr_assert(judge_target("/", SP_API_URI_MAX + 1) == -E2BIG);
}

Test(api_guard, header_bytes_of_the_limit_pass_and_one_more_does_not)
{
	static char value[SP_API_HEADER_BYTES_MAX];
	const size_t rest = strlen("GET / HTTP/1.1\r\nHost: a\r\nX: \r\n\r\n");

	memset(value, 'x', sizeof(value));
	for (size_t extra = 0; extra < 2; extra++) {
		struct sp_guard guard = {0};
		size_t len = SP_API_HEADER_BYTES_MAX - rest + extra;
		struct sp_guard_request request = {
			.method = "GET",
			.path = "/",
			.uri_length = 1,
			.version = "HTTP/1.1",
			.bytes = rest + len,
		};

		cr_assert(sp_guard_header(&guard, "Host", 4, "a", 1, NULL) == 0);
		cr_assert(sp_guard_header(&guard, "X", 1, value, len, NULL) == 0);
		cr_assert(sp_guard_request(&guard, &request, NULL) == (extra ? -E2BIG : 0));
	}
}

Test(api_guard, paths_are_plain_ascii_without_escapes)
{
	static const char *const bad[] = {"*",    "v1",    "http://a/", "/a%2fb",
					  "/%00", "/a\tb", "/\x7f",     "/\xc3\xa4",
					  "/a%",  "",      "//\x01"};

	for (size_t i = 0; i < SP_ARRAY_SIZE(bad); i++)
		cr_assert(judge_target(bad[i], strlen(bad[i])) == -EINVAL, "'%s'", bad[i]);
	cr_assert(judge_target("/v1/pools/a.b-c_d", strlen("/v1/pools/a.b-c_d")) == 0);
}

Test(api_guard, escapes_are_passed_on_below_a_proxy)
{
	static const char *const good[] = {"/sandboxes/x/proxy/80/a%2fb", "/proxy/80/%00%",
					   "/proxy/%", "/a/proxy/b/proxy/%25"};
	static const char *const bad[] = {"/sandboxes/%78/proxy/80/", "/proxy%2f80/", "/%/proxy/",
					  "/proxy/80/\x7f"};

	for (size_t i = 0; i < SP_ARRAY_SIZE(good); i++)
		cr_assert(judge_target(good[i], strlen(good[i])) == 0, "'%s'", good[i]);
	for (size_t i = 0; i < SP_ARRAY_SIZE(bad); i++)
		cr_assert(judge_target(bad[i], strlen(bad[i])) == -EINVAL, "'%s'", bad[i]);
}

Test(api_guard, words_of_connection_are_found_whole_and_in_any_case)
{
	cr_assert(sp_guard_has_token("Upgrade", "upgrade"));
	cr_assert(sp_guard_has_token("keep-alive, UPGRADE", "upgrade"));
	cr_assert(sp_guard_has_token(" ,,upgrade ,", "upgrade"));
	cr_assert(!sp_guard_has_token("upgrades", "upgrade"));
	cr_assert(!sp_guard_has_token("", "upgrade"));
	cr_assert(!sp_guard_has_token(NULL, "upgrade"));
}
