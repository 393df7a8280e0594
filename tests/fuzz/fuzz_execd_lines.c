/*
 * The line cutter of execd's events. Properties: however the bytes come and wherever the reader
 * stops, the lines are the same; a line has no end in it, a blank one is the text "\n"; nothing is
 * lost or added.
 */
#include "tests/fuzz/fuzz.h"

#include "supervisor/api/execd_lines.h"

#include <string.h>

struct outcome {
	uint64_t hash; /* of all lines and where they end */
	size_t bytes;  /* without blank lines */
	size_t stop_every;
	size_t lines;
};

static bool take(void *arg, const char *line, size_t len)
{
	struct outcome *outcome = arg;
	bool blank = len == 1 && line[0] == '\n';

	require(len > 0 && len <= SP_EXECD_LINE_MAX + SP_MIB);
	require(blank || (!memchr(line, '\n', len) && !memchr(line, '\r', len)));
	mix(&outcome->hash, line, len);
	mix(&outcome->hash, &len, sizeof(len));
	outcome->bytes += blank ? 0 : len;
	outcome->lines++;
	return outcome->stop_every == 0 || outcome->lines % outcome->stop_every != 0;
}

static struct outcome cut(const char *data, size_t size, size_t step, size_t stop_every)
{
	struct outcome outcome = {.hash = FUZZ_HASH_START, .stop_every = stop_every};
	struct sp_lines lines;
	size_t at = 0;

	sp_lines_init(&lines);
	while (at < size) {
		size_t len = step && size - at > step ? step : size - at;
		size_t taken = sp_lines_feed(&lines, data + at, len, take, &outcome);

		require(taken <= len && (taken == len || stop_every > 0));
		at += taken;
	}
	sp_lines_flush(&lines, take, &outcome);
	sp_lines_done(&lines);
	return outcome;
}

static bool is_end(char byte)
{
	return byte == '\n' || byte == '\r';
}

static size_t plain_bytes(const char *text, size_t size)
{
	size_t count = 0;

	for (size_t i = 0; i < size; i++)
		count += !is_end(text[i]);
	return count;
}

/* The oracle: an end is a line of its own unless it is the LF behind a CR. */
static size_t count_lines(const char *text, size_t size)
{
	size_t count = size > 0 && !is_end(text[size - 1]) ? 1 : 0;

	for (size_t i = 0; i < size; i++)
		count += is_end(text[i]) && !(text[i] == '\n' && i > 0 && text[i - 1] == '\r');
	return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	struct outcome whole = cut(text, size, 0, 0);

	require(whole.bytes == plain_bytes(text, size));
	require(size > SP_EXECD_LINE_MAX || whole.lines == count_lines(text, size));
	for (size_t step = 1; step < 8; step++) {
		struct outcome pieces = cut(text, size, step, step % 3);

		require(pieces.hash == whole.hash && pieces.lines == whole.lines);
	}
	return 0;
}
