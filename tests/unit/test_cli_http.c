/*
 * The response reader and the request writer.
 */
#include "supervisor/cli/http.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

static struct sp_cli_http_reader reader;
static struct sp_err err;

static void setup(void)
{
	sp_cli_http_reader_init(&reader);
}

static void teardown(void)
{
	sp_cli_http_reader_done(&reader);
}

TestSuite(cli_http, .init = setup, .fini = teardown);

static int64_t feed(const char *text)
{
	return sp_cli_http_reader_feed(&reader, text, strlen(text), &err);
}

static void assert_refused(const char *text, int status)
{
	int64_t got;

	sp_cli_http_reader_done(&reader);
	sp_cli_http_reader_init(&reader);
	got = feed(text);
	cr_assert(got == status, "%s: %lld", text, (long long)got);
	cr_assert(err.code == SP_CODE_PROTOCOL, "%s", text);
}

Test(cli_http, a_length_ends_the_body)
{
	const char *text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhellorest";

	cr_assert(feed(text) == (int64_t)strlen(text) - 4);
	cr_assert(reader.state == SP_CLI_HTTP_DONE);
	cr_assert(reader.status == 200);
	cr_assert_str_eq(sp_buf_text(&reader.body), "hello");
}

Test(cli_http, chunks_are_joined_and_the_trailer_is_dropped)
{
	const char *text = "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n"
			   "5\r\nhello\r\n00A;x=y\r\n, world!!!\r\n0\r\nX-Trailer: 1\r\n\r\n";

	cr_assert(feed(text) == (int64_t)strlen(text));
	cr_assert(reader.state == SP_CLI_HTTP_DONE);
	cr_assert_str_eq(sp_buf_text(&reader.body), "hello, world!!!");
}

Test(cli_http, without_length_the_end_of_the_connection_ends_the_body)
{
	cr_assert(feed("HTTP/1.0 200 OK\r\n\r\nall of it") > 0);
	cr_assert(reader.state == SP_CLI_HTTP_BODY_TO_EOF);
	cr_assert(sp_cli_http_reader_eof(&reader, &err) == 0);
	cr_assert(reader.state == SP_CLI_HTTP_DONE);
	cr_assert_str_eq(sp_buf_text(&reader.body), "all of it");
}

Test(cli_http, no_content_has_no_body)
{
	cr_assert(feed("HTTP/1.1 204 No Content\r\n\r\n") > 0);
	cr_assert(reader.state == SP_CLI_HTTP_DONE);
	cr_assert(reader.body.len == 0);
}

Test(cli_http, a_length_of_zero_is_complete_at_once)
{
	cr_assert(feed("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") > 0);
	cr_assert(reader.state == SP_CLI_HTTP_DONE);
}

Test(cli_http, an_interim_response_is_skipped)
{
	cr_assert(
		feed("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 X\r\nContent-Length: 2\r\n\r\nno") >
		0);
	cr_assert(reader.status == 404);
	cr_assert_str_eq(sp_buf_text(&reader.body), "no");
}

Test(cli_http, what_follows_a_switch_is_left_alone)
{
	const char *head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: sandpool-exec\r\n\r\n";
	char text[128];

	(void)snprintf(text, sizeof(text), "%sFRAMES", head);
	cr_assert(feed(text) == (int64_t)strlen(head));
	cr_assert(reader.state == SP_CLI_HTTP_DONE);
	cr_assert(reader.status == 101);
}

Test(cli_http, bytes_one_by_one_give_the_same)
{
	const char *text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
			   "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";

	for (size_t i = 0; text[i]; i++)
		cr_assert(sp_cli_http_reader_feed(&reader, text + i, 1, &err) == 1);
	cr_assert(reader.state == SP_CLI_HTTP_DONE);
	cr_assert_str_eq(sp_buf_text(&reader.body), "abcde");
}

Test(cli_http, what_two_readers_could_read_differently_is_refused)
{
	assert_refused("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
		       -EPROTO);
	assert_refused("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
		       -EPROTO);
	assert_refused("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
		       "Transfer-Encoding: chunked\r\n\r\n",
		       -EPROTO);
	assert_refused("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", -EPROTO);
	assert_refused("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n", -EPROTO);
	assert_refused("HTTP/1.1 200 OK\r\nContent-Length : 1\r\n\r\n", -EPROTO);
	assert_refused("HTTP/1.1 200 OK\r\n Content-Length: 1\r\n\r\n", -EPROTO);
	assert_refused("HTTP/1.1 200 OK\r\n: 1\r\n\r\n", -EPROTO);
	assert_refused("HTTP/1.1 200 OK\r\nno colon\r\n\r\n", -EPROTO);
	assert_refused("HTTP/1.1 200 OK\nContent-Length: 1\n\n", -EPROTO);
	assert_refused("HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n", -EPROTO);
	assert_refused("HTTP/1.1 100 X\r\nContent-Length: 1\r\n\r\n", -EPROTO);
}

Test(cli_http, numbers_that_are_none_are_refused)
{
	static const char *const lengths[] = {"", "-1", "+1", "1 1", "0x1", "1a", "1,1"};
	char text[128];

	for (size_t i = 0; i < SP_ARRAY_SIZE(lengths); i++) {
		(void)snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\nContent-Length: %s\r\n",
			       lengths[i]);
		assert_refused(text, -EPROTO);
	}
	assert_refused("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\ng\r\n", -EPROTO);
	assert_refused("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n", -EPROTO);
	assert_refused("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1 \r\n", -EPROTO);
	assert_refused("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", -EPROTO);
	assert_refused("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", -EPROTO);
}

Test(cli_http, a_status_line_that_is_none_is_refused)
{
	static const char *const lines[] = {"",
					    "SSH-2.0-OpenSSH_9.2",
					    "HTTP/2 200",
					    "HTTP/1.1 2000",
					    "HTTP/1.1 20",
					    "HTTP/1.1 abc",
					    "HTTP/1.1 099 X",
					    "HTTP/1.1 600 X",
					    "HTTP/1.1  200"};
	char text[128];

	for (size_t i = 0; i < SP_ARRAY_SIZE(lines); i++) {
		(void)snprintf(text, sizeof(text), "%s\r\n", lines[i]);
		assert_refused(text, -EPROTO);
	}
}

Test(cli_http, a_nul_byte_in_the_head_is_refused)
{
	cr_assert(sp_cli_http_reader_feed(&reader, "HTTP/1.1 200 O\0K\r\n", 18, &err) == -EPROTO);
}

Test(cli_http, the_longest_line_passes_and_one_byte_more_does_not)
{
	char *text = malloc(2 * SP_CLI_HTTP_LINE_MAX);
	size_t fits = SP_CLI_HTTP_LINE_MAX - 2; /* with the carriage return, in the line buffer */

	cr_assert(feed("HTTP/1.1 200 OK\r\n") > 0);
	memset(text, 'x', 2 * SP_CLI_HTTP_LINE_MAX);
	text[1] = ':';
	memcpy(text + fits, "\r\n", 3);
	cr_assert(feed(text) > 0);
	memset(text, 'x', fits + 1);
	text[1] = ':';
	memcpy(text + fits + 1, "\r\n", 3);
	cr_assert(feed(text) == -EMSGSIZE);
	free(text);
}

Test(cli_http, the_last_header_passes_and_one_more_does_not)
{
	cr_assert(feed("HTTP/1.1 200 OK\r\n") > 0);
	for (unsigned int i = 0; i < SP_CLI_HTTP_HEADERS_MAX; i++)
		cr_assert(feed("A: b\r\n") > 0);
	cr_assert(feed("A: b\r\n") == -EMSGSIZE);
}

Test(cli_http, interim_responses_do_not_go_on_for_ever)
{
	int64_t got = 0;

	for (unsigned int i = 0; i <= SP_CLI_HTTP_HEADERS_MAX && got >= 0; i++)
		got = feed("HTTP/1.1 100 Continue\r\nA: b\r\n\r\n");
	cr_assert(got == -EMSGSIZE);
}

Test(cli_http, the_longest_body_passes_and_one_byte_more_does_not)
{
	char text[128];

	(void)snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\nContent-Length: %u\r\n",
		       SP_CLI_HTTP_BODY_MAX);
	cr_assert(feed(text) > 0);
	(void)snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\nContent-Length: %u\r\n",
		       SP_CLI_HTTP_BODY_MAX + 1);
	assert_refused(text, -EMSGSIZE);
	assert_refused("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n", -EMSGSIZE);
	assert_refused("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4000001\r\n",
		       -EMSGSIZE);
	assert_refused("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
		       -EMSGSIZE);
}

Test(cli_http, chunks_that_add_up_to_too_much_are_refused)
{
	size_t size = 1 << 20;
	char *data = calloc(1, size);
	int64_t got = 0;

	cr_assert(feed("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n") > 0);
	for (unsigned int i = 0; i <= SP_CLI_HTTP_BODY_MAX / (1 << 20) && got >= 0; i++) {
		got = feed("100000\r\n");
		if (got > 0)
			got = sp_cli_http_reader_feed(&reader, data, size, &err);
		if (got > 0)
			got = feed("\r\n");
	}
	cr_assert(got == -EMSGSIZE);
	free(data);
}

Test(cli_http, an_end_too_early_is_told_apart_from_no_answer)
{
	cr_assert(sp_cli_http_reader_eof(&reader, &err) == -EPROTO);
	cr_assert(strstr(err.message, "without an answer"));
	cr_assert(feed("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel") > 0);
	cr_assert(sp_cli_http_reader_eof(&reader, &err) == -EPROTO);
	cr_assert(strstr(err.message, "in the middle"));
}

/* ---- requests ---- */

static struct sp_cli_http_request request = {
	.method = "POST",
	.target = "/v1/pools/default/run",
	.host = "localhost",
};

static struct sp_buf out;

Test(cli_http, a_request_has_what_it_needs_and_nothing_else)
{
	sp_buf_init(&out, 4096);
	cr_assert(sp_cli_http_write_head(&request, &out) == 0);
	cr_assert_str_eq(sp_buf_text(&out), "POST /v1/pools/default/run HTTP/1.1\r\n"
					    "Host: localhost\r\n"
					    "Connection: close\r\n"
					    "Content-Length: 0\r\n\r\n");
	sp_buf_done(&out);
}

Test(cli_http, an_upgrade_and_credentials_are_headers)
{
	sp_buf_init(&out, 4096);
	request.upgrade = true;
	request.api_key = "key";
	request.token = "token";
	cr_assert(sp_cli_http_write_head(&request, &out) == 0);
	cr_assert(
		strstr(sp_buf_text(&out), "\r\nConnection: Upgrade\r\nUpgrade: sandpool-exec\r\n"));
	cr_assert(strstr(sp_buf_text(&out), "\r\nAuthorization: Bearer key\r\n"));
	cr_assert(strstr(sp_buf_text(&out), "\r\nX-Sandpool-Token: token\r\n"));
	sp_buf_done(&out);
}

Test(cli_http, no_credential_can_add_a_header)
{
	sp_buf_init(&out, 4096);
	request.token = "a\r\nX: y";
	cr_assert(sp_cli_http_write_head(&request, &out) == -EINVAL);
	cr_assert(out.len == 0);
}

Test(cli_http, a_path_segment_cannot_leave_its_place)
{
	sp_buf_init(&out, 4096);
	cr_assert(sp_cli_http_append_segment(&out, "a/../b?c#d e%f\xc3\xbc-._~") == 0);
	cr_assert_str_eq(sp_buf_text(&out), "a%2F..%2Fb%3Fc%23d%20e%25f%C3%BC-._~");
	sp_buf_done(&out);
}

/* ---- bodies that are taken as they come ---- */

static struct sp_buf taken;

static int take(void *arg, const char *data, size_t len, struct sp_err *ret_err)
{
	const size_t *most = arg;

	if (taken.len + len > *most)
		return sp_err_code(ret_err, SP_CODE_INTERNAL, -EPIPE, "enough");
	return sp_buf_append(&taken, data, len);
}

Test(cli_http, a_body_that_is_taken_is_not_kept_and_has_no_limit)
{
	size_t most = SIZE_MAX;

	sp_buf_init(&taken, 1 << 20);
	reader.take = take;
	reader.take_arg = &most;
	cr_assert(feed("HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\nhello") > 0);
	cr_assert_str_eq(sp_buf_text(&taken), "hello");
	cr_assert(reader.body.len == 0 && reader.left == 1000000000000 - 5);
	cr_assert(sp_cli_http_reader_eof(&reader, &err) == -EPROTO);
	sp_buf_done(&taken);
}

Test(cli_http, the_body_of_a_refusal_is_collected)
{
	size_t most = 0;

	reader.take = take;
	reader.take_arg = &most;
	cr_assert(feed("HTTP/1.1 100 Continue\r\n\r\n"
		       "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}") > 0);
	cr_assert(reader.state == SP_CLI_HTTP_DONE);
	cr_assert_str_eq(sp_buf_text(&reader.body), "{}");
}

Test(cli_http, a_taker_that_fails_ends_the_reading)
{
	size_t most = 3;

	sp_buf_init(&taken, 1 << 20);
	reader.take = take;
	reader.take_arg = &most;
	cr_assert(feed("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfour\r\n") ==
		  -EPIPE);
	sp_buf_done(&taken);
}

Test(cli_http, a_chunked_request_says_so)
{
	const struct sp_cli_http_request upload = {
		.method = "PUT",
		.target = "/x",
		.host = "h",
		.content_type = "application/octet-stream",
		.chunked = true,
		.expect = true,
	};
	struct sp_buf head;

	sp_buf_init(&head, 1024);
	cr_assert(sp_cli_http_write_head(&upload, &head) == 0);
	cr_assert_str_eq(sp_buf_text(&head),
			 "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Type: application/octet-stream\r\n"
			 "Expect: 100-continue\r\nConnection: close\r\n"
			 "Transfer-Encoding: chunked\r\n\r\n");
	sp_buf_done(&head);
}
