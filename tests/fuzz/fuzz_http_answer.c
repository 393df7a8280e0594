/* libs: sp_api */
/*
 * The reader of answers from inside a sandbox. The first byte says what was asked. Properties:
 * however the bytes are cut, head, body, end and error are the same; the body is a part of the
 * input, no longer than a length announced; headers are tokens and text; limits hold.
 */
#include "tests/fuzz/fuzz.h"

#include "supervisor/api/http_answer.h"

#include <string.h>

struct outcome {
	uint64_t hash;
	uint64_t body;
	size_t used;
	int status;
	bool head, end;
};

static void take_head(struct outcome *outcome, const struct sp_http_answer *answer)
{
	require(!outcome->head);
	outcome->head = true;
	require(answer->status >= 100 && answer->status <= 599);
	require(answer->status >= 200 || (answer->status == 101 && answer->upgrade));
	require(answer->header_count <= SP_HTTP_ANSWER_HEADERS_MAX);
	require(answer->head.len <= SP_HTTP_ANSWER_HEAD_MAX);
	mix(&outcome->hash, &answer->status, sizeof(answer->status));
	mix(&outcome->hash, &answer->length, sizeof(answer->length));
	for (size_t i = 0; i < answer->header_count; i++) {
		const struct sp_http_header *header = &answer->headers[i];

		require(header->name[0] && !strpbrk(header->name, " \t\r\n:"));
		require(!strpbrk(header->value, "\r\n"));
		mix(&outcome->hash, header->name, strlen(header->name) + 1);
		mix(&outcome->hash, header->value, strlen(header->value) + 1);
	}
}

static struct outcome read_all(uint8_t flags, const char *data, size_t size, size_t step)
{
	struct outcome outcome = {.hash = FUZZ_HASH_START};
	static struct sp_http_answer answer;
	bool over = false;

	sp_http_answer_init(&answer, flags & 1, flags & 2);
	for (size_t at = 0; at < size && !over;) {
		size_t len = step && size - at > step ? step : size - at;
		enum sp_http_event event;
		const char *body = NULL;
		size_t body_len = 0;
		int64_t used =
			sp_http_answer_feed(&answer, data + at, len, &event, &body, &body_len);

		if (used < 0) {
			outcome.status = (int)used;
			break;
		}
		require((uint64_t)used <= len);
		at += (size_t)used;
		outcome.used = at;
		if (event == SP_HTTP_GOT_HEAD)
			take_head(&outcome, &answer);
		else if (event == SP_HTTP_GOT_BODY)
			require(outcome.head && body >= data && body + body_len <= data + size);
		mix(&outcome.hash, body, body_len);
		outcome.body += body_len;
		over = event == SP_HTTP_GOT_END || answer.state == SP_HTTP_DONE ||
		       answer.state == SP_HTTP_SWITCHED;
	}
	outcome.end = answer.state == SP_HTTP_DONE;
	/* How much was looked at before an error depends on the cuts. */
	if (outcome.status < 0)
		outcome.used = 0;
	else
		outcome.status = sp_http_answer_eof(&answer);
	if (outcome.head && answer.length >= 0)
		require(outcome.body <= (uint64_t)answer.length);
	sp_http_answer_done(&answer);
	return outcome;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data + 1;
	struct outcome whole;

	if (size < 1)
		return 0;
	whole = read_all(data[0], text, size - 1, 0);
	for (size_t step = 1; step <= 11; step += 5) {
		struct outcome cut = read_all(data[0], text, size - 1, step);

		require(cut.hash == whole.hash && cut.body == whole.body &&
			cut.status == whole.status && cut.end == whole.end &&
			cut.head == whole.head && cut.used == whole.used);
	}
	return 0;
}
