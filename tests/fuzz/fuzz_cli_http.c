/* libs: sp_cli */
/*
 * The CLI's HTTP response reader. Properties: however the bytes are cut, status, body, end and
 * error are the same; it never takes more than it was given; a complete response takes nothing
 * more; limits hold.
 */
#include "tests/fuzz/fuzz.h"

#include "supervisor/cli/http.h"

#include <string.h>

struct answer {
	int64_t status; /* bytes used in all, or the error */
	enum sp_cli_http_state state;
	int http_status;
	struct sp_buf body;
};

/* step 0: all at once; else so many bytes a time. */
static struct answer read_all(const char *data, size_t len, size_t step)
{
	static struct sp_cli_http_reader reader;
	struct answer answer = {.status = 0};
	struct sp_err err;
	size_t at = 0;

	sp_cli_http_reader_init(&reader);
	while (at < len) {
		size_t take = step == 0 || len - at < step ? len - at : step;
		int64_t used = sp_cli_http_reader_feed(&reader, data + at, take, &err);

		if (used < 0) {
			answer.status = used;
			break;
		}
		require((uint64_t)used <= take);
		at += (size_t)used;
		answer.status = (int64_t)at;
		if ((size_t)used < take) {
			require(reader.state == SP_CLI_HTTP_DONE);
			break;
		}
	}
	if (answer.status >= 0 && sp_cli_http_reader_eof(&reader, &err) < 0)
		answer.status = -1;
	require(reader.line_len < SP_CLI_HTTP_LINE_MAX);
	require(reader.body.len <= SP_CLI_HTTP_BODY_MAX);
	answer.state = reader.state;
	answer.http_status = reader.status;
	answer.body = reader.body;
	return answer;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	struct answer whole = read_all(text, size, 0);
	size_t steps[] = {1, 2, 7, size > 0 ? 1 + data[0] : 3};

	for (size_t i = 0; i < SP_ARRAY_SIZE(steps); i++) {
		struct answer cut = read_all(text, size, steps[i]);

		require(cut.status == whole.status);
		require(cut.state == whole.state);
		require(cut.http_status == whole.http_status);
		require(cut.body.len == whole.body.len);
		require(cut.body.len == 0 ||
			memcmp(cut.body.data, whole.body.data, cut.body.len) == 0);
		sp_buf_done(&cut.body);
	}
	if (whole.status >= 0)
		require(whole.http_status >= 100 && whole.http_status <= 599);
	sp_buf_done(&whole.body);
	return 0;
}
