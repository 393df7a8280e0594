/*
 * Lines of a text, whole and byte by byte.
 */
#include "supervisor/api/line_window.h"

#include "pool/base/buf.h"

#include <criterion/criterion.h>
#include <string.h>

static struct sp_buf out;

static void take(void *arg, const char *data, size_t len)
{
	SP_UNUSED(arg);
	cr_assert(sp_buf_append(&out, data, len) == 0);
}

/* Returns how many bytes were fed before nothing more was wanted. */
static size_t feed(uint64_t offset, uint64_t limit, const char *text, size_t len, size_t piece)
{
	struct sp_line_window window;
	size_t at = 0;

	sp_buf_done(&out);
	sp_buf_init(&out, 1 << 24);
	sp_line_window_init(&window, offset, limit, take, NULL);
	while (at < len) {
		size_t some = SP_MIN(piece, len - at);
		bool more = sp_line_window_feed(&window, text + at, some);

		at += some;
		if (!more)
			break;
	}
	return at;
}

static void end(void)
{
	sp_buf_done(&out);
}

TestSuite(api_line_window, .fini = end);

Test(api_line_window, lines_are_cut_out_and_joined)
{
	static const struct {
		const char *text;
		uint64_t offset;
		uint64_t limit;
		const char *lines;
	} cases[] = {
		{"1\n2\n3\n4\n", 1, 2, "1\n2"},
		{"1\n2\n3\n4\n", 3, 2, "3\n4"},
		{"1\n2\n3\n4", 3, UINT64_MAX, "3\n4"},
		{"1\n2\n3\n4\n", 1, UINT64_MAX, "1\n2\n3\n4"},
		{"1\n2\n", 3, 1, ""},
		{"1\n2\n", 100, 100, ""},
		{"", 1, 1, ""},
		{"\n\nx", 1, UINT64_MAX, "\n\nx"},
		{"a\r\nb\r\r\nc\rd\r\n", 1, UINT64_MAX, "a\nb\nc\rd"},
		{"a\r", 1, UINT64_MAX, "a"},
		{"\r\n\r", 1, UINT64_MAX, "\n"},
		{"skip\r\nthis", 2, 1, "this"},
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++) {
		for (size_t piece = 1; piece <= 4; piece++) {
			(void)feed(cases[i].offset, cases[i].limit, cases[i].text,
				   strlen(cases[i].text), piece);
			cr_assert_str_eq(sp_buf_text(&out), cases[i].lines,
					 "case %zu, pieces of %zu", i, piece);
		}
	}
}

Test(api_line_window, reading_stops_behind_the_last_line)
{
	cr_assert(feed(1, 2, "a\nb\nc\nd\n", 8, 1) == 4);
}

Test(api_line_window, a_line_may_be_long)
{
	static char line[1 << 20];

	memset(line, 'x', sizeof(line));
	cr_assert(feed(1, 1, line, sizeof(line), 1000) == sizeof(line));
	cr_assert(out.len == sizeof(line));
}

/* N CRs before a line's end are its end; of N + 1 the first is the line's. */
Test(api_line_window, carriage_returns_of_the_limit_are_held_back_and_one_more_is_not)
{
	for (size_t more = 0; more < 2; more++) {
		static char text[SP_LINE_RETURNS_MAX + 3];
		size_t returns = SP_LINE_RETURNS_MAX + more;

		memset(text, '\r', sizeof(text));
		text[0] = 'a';
		text[1 + returns] = '\n';
		(void)feed(1, 1, text, returns + 2, 7);
		cr_assert_str_eq(sp_buf_text(&out), more ? "a\r" : "a");
		text[1 + returns] = 'b';
		(void)feed(1, 1, text, returns + 2, 7);
		cr_assert(out.len == returns + 2 && out.data[returns + 1] == 'b');
	}
}
