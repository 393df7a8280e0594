/*
 * The reader of answers from inside a sandbox: framing by RFC 9112, every split of a stream, what
 * is refused, and the limits at N and N + 1.
 */
#include "supervisor/api/http_answer.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK "HTTP/1.1 200 OK\r\n"

struct outcome {
	int status; /* of the reader, then of the end of the connection */
	unsigned int code;
	bool head, end;
	size_t used;
	char body[512];
	size_t body_len;
	int64_t length;
	char type[64]; /* value of X-Type */
};

static bool to_head;
static bool upgrade;

/* One turn; false: nothing more will come of these bytes. */
static bool turn(struct sp_http_answer *answer, const char *data, size_t len, size_t *used,
		 struct outcome *outcome)
{
	enum sp_http_event event;
	const char *body;
	size_t body_len;
	int64_t taken =
		sp_http_answer_feed(answer, data + *used, len - *used, &event, &body, &body_len);

	if (taken < 0) {
		outcome->status = (int)taken;
		return false;
	}
	*used += (size_t)taken;
	if (event == SP_HTTP_GOT_HEAD) {
		const char *type = sp_http_answer_header(answer, "x-type");

		cr_assert(!outcome->head);
		outcome->head = true;
		outcome->code = answer->status;
		outcome->length = answer->length;
		(void)snprintf(outcome->type, sizeof(outcome->type), "%s", type ? type : "-");
	} else if (event == SP_HTTP_GOT_BODY) {
		cr_assert(outcome->head && !outcome->end);
		cr_assert(outcome->body_len + body_len < sizeof(outcome->body));
		memcpy(outcome->body + outcome->body_len, body, body_len);
		outcome->body_len += body_len;
	} else if (event == SP_HTTP_GOT_END) {
		cr_assert(outcome->head);
		outcome->end = true;
	}
	return event == SP_HTTP_GOT_HEAD || event == SP_HTTP_GOT_BODY;
}

static struct outcome read_cut(const char *text, size_t len, size_t step)
{
	struct sp_http_answer answer;
	struct outcome outcome = {.length = -1};

	sp_http_answer_init(&answer, to_head, upgrade);
	for (size_t at = 0; at < len && outcome.status == 0;) {
		size_t piece = SP_MIN(step, len - at), used = 0;

		while (turn(&answer, text + at, piece, &used, &outcome))
			continue;
		outcome.used += used;
		at += piece;
		if (used < piece)
			break;
	}
	/* How much was looked at before an error depends on the cuts. */
	if (outcome.status < 0)
		outcome.used = 0;
	else
		outcome.status = sp_http_answer_eof(&answer);
	sp_http_answer_done(&answer);
	return outcome;
}

static struct outcome read_text(const char *text)
{
	struct outcome whole = read_cut(text, strlen(text), strlen(text));

	for (size_t step = 1; step < strlen(text); step++) {
		struct outcome cut = read_cut(text, strlen(text), step);

		cr_assert(cut.status == whole.status && cut.code == whole.code &&
				  cut.end == whole.end && cut.used == whole.used &&
				  cut.body_len == whole.body_len && cut.length == whole.length &&
				  memcmp(cut.body, whole.body, whole.body_len) == 0 &&
				  strcmp(cut.type, whole.type) == 0,
			  "step %zu of '%s': %d instead of %d", step, text, cut.status,
			  whole.status);
	}
	return whole;
}

#define assert_body(outcome, text)                                               \
	cr_assert((outcome).status == 0 && (outcome).body_len == strlen(text) && \
			  memcmp((outcome).body, text, strlen(text)) == 0,       \
		  "status %d, %zu bytes", (outcome).status, (outcome).body_len)

Test(http_answer, a_length_frames_the_body)
{
	struct outcome outcome = read_text(OK "Content-Length: 5\r\nX-Type:  a b \r\n\r\nhello");

	assert_body(outcome, "hello");
	cr_assert(outcome.code == 200 && outcome.end && outcome.length == 5);
	cr_assert(strcmp(outcome.type, "a b") == 0, "'%s'", outcome.type);
}

Test(http_answer, what_follows_the_body_is_not_taken)
{
	static const char text[] = OK "Content-Length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\n\r\n";
	struct outcome outcome = read_text(text);

	assert_body(outcome, "hi");
	cr_assert(outcome.end && outcome.used == strlen(text) - strlen("HTTP/1.1 200 OK\r\n\r\n"));
}

Test(http_answer, chunks_become_a_body)
{
	struct outcome outcome =
		read_text(OK "Transfer-Encoding: chunked\r\n\r\n"
			     "5\r\nhello\r\n1 ; x=\"y\"\r\n,\r\n00006\r\n world\r\n"
			     "0\r\nTrailer: x\r\n\r\n");

	assert_body(outcome, "hello, world");
	cr_assert(outcome.end && outcome.length == -1);
}

Test(http_answer, without_framing_the_end_is_the_end)
{
	struct outcome outcome = read_text("HTTP/1.0 200\r\n\r\nall of it");

	assert_body(outcome, "all of it");
	cr_assert(!outcome.end);
}

Test(http_answer, bare_line_feeds_end_lines)
{
	struct outcome outcome = read_text("HTTP/1.1 200 OK\nContent-Length: 2\n\nhi");

	assert_body(outcome, "hi");
}

Test(http_answer, interim_answers_are_skipped)
{
	struct outcome outcome = read_text("HTTP/1.1 100 Continue\r\n\r\n"
					   "HTTP/1.1 103 Early Hints\r\nX-Type: early\r\n\r\n"
					   "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n");

	cr_assert(outcome.status == 0 && outcome.code == 201 && outcome.end);
	cr_assert(strcmp(outcome.type, "-") == 0);
}

Test(http_answer, some_answers_have_no_body)
{
	cr_assert(read_text("HTTP/1.1 204 No Content\r\n\r\n").end);
	cr_assert(read_text("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n").end);
	to_head = true;
	cr_assert(read_text(OK "Content-Length: 9\r\n\r\n").length == 9);
	cr_assert(read_text(OK "Transfer-Encoding: chunked\r\n\r\n").end);
}

Test(http_answer, a_switch_of_protocols_must_have_been_asked_for)
{
	static const char text[] = "HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\nraw";

	cr_assert(read_text(text).status == -EPROTO);
	upgrade = true;
	cr_assert(read_text(text).status == 0);
	cr_assert(read_text(text).used == strlen(text) - 3);
}

Test(http_answer, what_is_cut_is_no_answer)
{
	static const char *const texts[] = {
		"HTTP/1.1 200 OK\r\n",
		OK "Content-Length: 5\r\n\r\nhell",
		OK "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
		OK "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
		"HTTP/1.1 100 Continue\r\n\r\n",
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(texts); i++)
		cr_assert(read_text(texts[i]).status == -EPROTO, "%s", texts[i]);
}

Test(http_answer, what_can_be_read_in_two_ways_is_refused)
{
	static const char *const texts[] = {
		OK "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
		OK "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
		OK "Content-Length: 5, 5\r\n\r\nhello",
		OK "Content-Length: +5\r\n\r\nhello",
		OK "Content-Length: 0x5\r\n\r\nhello",
		OK "Content-Length:\r\n\r\nhello",
		OK "Content-Length: 9999999999999999999\r\n\r\nhello",
		OK "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		OK "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		OK "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		OK "Transfer-Encoding: identity\r\n\r\n",
		"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		OK "Content-Length : 5\r\n\r\nhello",
		OK "X: a\r\n b\r\nContent-Length: 0\r\n\r\n",
		OK " X: a\r\n\r\n",
		OK ": a\r\n\r\n",
		OK "no colon\r\n\r\n",
		OK "X: a\rContent-Length: 5\r\n\r\nhello",
		OK "X: \x01\r\n\r\n",
		"\r\nHTTP/1.1 200 OK\r\n\r\n",
		"HTTP/1.1 200\tOK\r\n\r\n",
		"HTTP/1.1  200 OK\r\n\r\n",
		"HTTP/1.1 20 OK\r\n\r\n",
		"HTTP/1.1 2000 OK\r\n\r\n",
		"HTTP/1.1 099 OK\r\n\r\n",
		"HTTP/1.1 600 OK\r\n\r\n",
		"HTTP/2.0 200 OK\r\n\r\n",
		"http/1.1 200 OK\r\n\r\n",
		"hello\n\n",
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(texts); i++)
		cr_assert(read_text(texts[i]).status == -EPROTO, "%s", texts[i]);
}

Test(http_answer, a_nul_in_the_head_is_refused)
{
	static const char text[] = OK "X: a\0b\r\n\r\n";

	cr_assert(read_cut(text, sizeof(text) - 1, 1).status == -EPROTO);
	cr_assert(read_cut(text, sizeof(text) - 1, sizeof(text)).status == -EPROTO);
}

Test(http_answer, chunks_are_spelled_properly)
{
	static const char *const chunks[] = {
		"\r\nhello\r\n0\r\n\r\n", "g\r\nhello\r\n",
		"-5\r\nhello\r\n",        " 5\r\nhello\r\n",
		"5\rhello\r\n",           "5x\r\nhello\r\n",
		"5\r\nhello0\r\n\r\n",    "5\r\nhello\r\r\n",
		"0x5\r\nhello\r\n",       "1000000000000000\r\nhello\r\n",
		"5;\x01\r\nhello\r\n",
	};
	char text[256];

	for (size_t i = 0; i < SP_ARRAY_SIZE(chunks); i++) {
		(void)snprintf(text, sizeof(text), OK "Transfer-Encoding: chunked\r\n\r\n%s",
			       chunks[i]);
		cr_assert(read_text(text).status == -EPROTO, "%s", chunks[i]);
	}
}

/* A head of exactly `len` bytes. */
static int judge_head(size_t len)
{
	static const char end[] = "Content-Length: 0\r\n\r\n";
	size_t fixed = strlen(OK "X: \r\n") + strlen(end);
	char *text = malloc(len + 1);
	int status;

	memcpy(text, OK "X: ", strlen(OK "X: "));
	memset(text + strlen(OK "X: "), 'x', len - fixed);
	memcpy(text + len - strlen(end) - 2, "\r\n", 2);
	memcpy(text + len - strlen(end), end, sizeof(end));
	cr_assert(strlen(text) == len);
	status = read_cut(text, len, len).status;
	cr_assert(read_cut(text, len, 1000).status == status);
	free(text);
	return status;
}

Test(http_answer, longest_head_is_taken_and_one_byte_more_refused)
{
	cr_assert(judge_head(SP_HTTP_ANSWER_HEAD_MAX) == 0);
	cr_assert(judge_head(SP_HTTP_ANSWER_HEAD_MAX + 1) == -EMSGSIZE);
}

static int judge_repeated(const char *before, const char *piece, size_t times, const char *after)
{
	struct sp_buf text;
	int status;

	sp_buf_init(&text, 1 << 20);
	cr_assert(sp_buf_append(&text, before, strlen(before)) == 0);
	for (size_t i = 0; i < times; i++)
		cr_assert(sp_buf_append(&text, piece, strlen(piece)) == 0);
	cr_assert(sp_buf_append(&text, after, strlen(after)) == 0);
	status = read_cut(text.data, text.len, text.len).status;
	cr_assert(read_cut(text.data, text.len, 1).status == status);
	sp_buf_done(&text);
	return status;
}

Test(http_answer, as_many_headers_as_allowed_and_one_more)
{
	cr_assert(judge_repeated(OK, "X: y\r\n", SP_HTTP_ANSWER_HEADERS_MAX, "\r\n") == 0);
	cr_assert(judge_repeated(OK, "X: y\r\n", SP_HTTP_ANSWER_HEADERS_MAX + 1, "\r\n") ==
		  -EMSGSIZE);
}

Test(http_answer, as_many_interim_answers_as_allowed_and_one_more)
{
	cr_assert(judge_repeated("", "HTTP/1.1 100 C\r\n\r\n", SP_HTTP_ANSWER_INTERIM_MAX,
				 OK "\r\n") == 0);
	cr_assert(judge_repeated("", "HTTP/1.1 100 C\r\n\r\n", SP_HTTP_ANSWER_INTERIM_MAX + 1,
				 OK "\r\n") == -EMSGSIZE);
}

Test(http_answer, longest_chunk_line_is_taken_and_one_byte_more_refused)
{
	static const char before[] = OK "Transfer-Encoding: chunked\r\n\r\n0;";

	/* "0;" and CRLF are of the line. */
	cr_assert(judge_repeated(before, "x", SP_HTTP_ANSWER_LINE_MAX - 4, "\r\n\r\n") == 0);
	cr_assert(judge_repeated(before, "x", SP_HTTP_ANSWER_LINE_MAX - 3, "\r\n\r\n") ==
		  -EMSGSIZE);
}

Test(http_answer, longest_trailers_are_taken_and_one_byte_more_refused)
{
	static const char before[] = OK "Transfer-Encoding: chunked\r\n\r\n0\r\nX";

	/* "X" and two CRLF are of the trailers. */
	cr_assert(judge_repeated(before, "x", SP_HTTP_ANSWER_TRAILER_MAX - 5, "\r\n\r\n") == 0);
	cr_assert(judge_repeated(before, "x", SP_HTTP_ANSWER_TRAILER_MAX - 4, "\r\n\r\n") ==
		  -EMSGSIZE);
}

Test(http_answer, the_largest_chunk_does_not_overflow)
{
	struct outcome outcome =
		read_text(OK "Transfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\nabc");

	cr_assert(outcome.status == -EPROTO && outcome.body_len == 3);
}
