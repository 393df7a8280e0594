/* The line cutter of execd's events: what is a line, whatever the pieces it comes in. */
#include "supervisor/api/execd_lines.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

struct seen {
	struct sp_buf text; /* each line in brackets */
	size_t count;
	size_t stop_after; /* lines; 0 = never */
};

static bool note(void *arg, const char *line, size_t len)
{
	struct seen *seen = arg;

	cr_assert(sp_buf_append(&seen->text, "[", 1) == 0);
	cr_assert(sp_buf_append(&seen->text, line, len) == 0);
	cr_assert(sp_buf_append(&seen->text, "]", 1) == 0);
	seen->count++;
	return seen->stop_after == 0 || seen->count < seen->stop_after;
}

/* In pieces of `piece` bytes. */
static void expect_in_pieces(const char *input, size_t len, size_t piece, const char *expected)
{
	struct sp_lines lines;
	struct seen seen = {0};

	sp_buf_init(&seen.text, SIZE_MAX);
	sp_lines_init(&lines);
	for (size_t at = 0; at < len; at += piece) {
		size_t take = SP_MIN(piece, len - at);

		cr_assert_eq(sp_lines_feed(&lines, input + at, take, note, &seen), take);
	}
	sp_lines_flush(&lines, note, &seen);
	cr_assert_str_eq(sp_buf_text(&seen.text), expected, "pieces of %zu", piece);
	sp_lines_done(&lines);
	sp_buf_done(&seen.text);
}

static void expect(const char *input, const char *expected)
{
	for (size_t piece = 1; piece <= strlen(input); piece++)
		expect_in_pieces(input, strlen(input), piece, expected);
}

Test(execd_lines, end_at_lf_and_cr)
{
	expect("one\ntwo\n", "[one][two]");
	expect("10%\r20%\r30%\n", "[10%][20%][30%]");
}

Test(execd_lines, cr_lf_ends_once)
{
	expect("one\r\ntwo\r\n", "[one][two]");
	expect("one\r\n\r\ntwo", "[one][\n][two]");
}

Test(execd_lines, blank_lines_are_told)
{
	expect("\n", "[\n]");
	expect("a\n\n\nb\n", "[a][\n][\n][b]");
	expect("\r\r", "[\n][\n]");
}

Test(execd_lines, the_last_one_needs_no_end)
{
	expect("abc", "[abc]");
	expect("abc\ndef", "[abc][def]");
}

Test(execd_lines, feeding_stops_after_the_line_that_was_too_much)
{
	struct sp_lines lines;
	struct seen seen = {.stop_after = 1};

	sp_buf_init(&seen.text, SIZE_MAX);
	sp_lines_init(&lines);
	cr_assert_eq(sp_lines_feed(&lines, "a\r\nb\nc", 6, note, &seen), 2);
	cr_assert_eq(sp_lines_feed(&lines, "\nb\nc", 4, note, &seen), 3);
	seen.stop_after = 0;
	cr_assert_eq(sp_lines_feed(&lines, "c", 1, note, &seen), 1);
	sp_lines_flush(&lines, note, &seen);
	cr_assert_str_eq(sp_buf_text(&seen.text), "[a][b][c]");
	sp_lines_done(&lines);
	sp_buf_done(&seen.text);
}

/* A line of `len` bytes and its end; returns how many pieces it came in, and that nothing is lost.
 */
static size_t pieces_of(size_t len, size_t chunk, const char *end)
{
	size_t total = len + strlen(end);
	char *input = malloc(total + 1);
	struct sp_lines lines;
	struct seen seen = {0};
	size_t count;

	cr_assert(input);
	memset(input, 'x', len);
	memcpy(input + len, end, strlen(end) + 1);
	sp_buf_init(&seen.text, SIZE_MAX);
	sp_lines_init(&lines);
	for (size_t at = 0; at < total; at += chunk)
		(void)sp_lines_feed(&lines, input + at, SP_MIN(chunk, total - at), note, &seen);
	sp_lines_flush(&lines, note, &seen);
	cr_assert_eq(seen.text.len, len + 2 * seen.count, "every byte, and two brackets a piece");
	count = seen.count;
	sp_lines_done(&lines);
	sp_buf_done(&seen.text);
	free(input);
	return count;
}

Test(execd_lines, up_to_the_limit_a_line_is_one)
{
	cr_assert_eq(pieces_of(SP_EXECD_LINE_MAX - 1, 65536, "\n"), 1);
	cr_assert_eq(pieces_of(SP_EXECD_LINE_MAX - 1, 1000, ""), 1);
}

Test(execd_lines, beyond_the_limit_it_comes_in_pieces_and_has_no_blank_end)
{
	cr_assert_eq(pieces_of(SP_EXECD_LINE_MAX, 65536, "\n"), 1);
	cr_assert_eq(pieces_of(SP_EXECD_LINE_MAX + 1, 65536, "\n"), 2);
	cr_assert_eq(pieces_of(2 * SP_EXECD_LINE_MAX + 1, 65536, "\n"), 3);
	cr_assert_eq(pieces_of(2 * SP_EXECD_LINE_MAX, 777, "\r\n"), 2);
}

struct whole {
	struct sp_buf all;
	bool split;
};

/* No piece may begin with a continuation byte. */
static bool check_piece(void *arg, const char *line, size_t len)
{
	struct whole *whole = arg;

	whole->split |= ((unsigned char)line[0] & 0xc0) == 0x80;
	cr_assert(sp_buf_append(&whole->all, line, len) == 0);
	return true;
}

Test(execd_lines, a_piece_does_not_cut_a_character)
{
	static const char *const characters[] = {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};

	for (size_t i = 0; i < SP_ARRAY_SIZE(characters); i++)
		for (size_t shift = 0; shift < 4; shift++) {
			struct whole whole = {0};
			struct sp_lines lines;
			size_t fed = shift;

			sp_buf_init(&whole.all, SIZE_MAX);
			sp_lines_init(&lines);
			(void)sp_lines_feed(&lines, "xxxx", shift, check_piece, &whole);
			while (fed < SP_EXECD_LINE_MAX + 64) {
				for (const char *at = characters[i]; *at; at++)
					(void)sp_lines_feed(&lines, at, 1, check_piece, &whole);
				fed += strlen(characters[i]);
			}
			sp_lines_flush(&lines, check_piece, &whole);
			cr_assert(!whole.split, "character %zu, shift %zu", i, shift);
			cr_assert_eq(whole.all.len, fed);
			sp_lines_done(&lines);
			sp_buf_done(&whole.all);
		}
}

Test(execd_lines, a_piece_before_the_end_of_a_line_does_not_either)
{
	char *input = malloc(SP_EXECD_LINE_MAX);
	struct whole whole = {0};
	struct sp_lines lines;

	cr_assert(input);
	memset(input, 'x', SP_EXECD_LINE_MAX);
	sp_buf_init(&whole.all, SIZE_MAX);
	sp_lines_init(&lines);
	(void)sp_lines_feed(&lines, input, SP_EXECD_LINE_MAX - 1, check_piece, &whole);
	(void)sp_lines_feed(&lines, "\xe2\x82\xac\xe2\x82\xac\n", 7, check_piece, &whole);
	cr_assert(!whole.split);
	cr_assert_eq(whole.all.len, SP_EXECD_LINE_MAX - 1 + 6);
	sp_lines_done(&lines);
	sp_buf_done(&whole.all);
	free(input);
}

Test(execd_lines, bytes_that_are_no_text_are_cut_somewhere)
{
	char *input = malloc(SP_EXECD_LINE_MAX + 10);
	struct whole whole = {0};
	struct sp_lines lines;

	cr_assert(input);
	memset(input, 0x80, SP_EXECD_LINE_MAX + 10);
	sp_buf_init(&whole.all, SIZE_MAX);
	sp_lines_init(&lines);
	cr_assert_eq(sp_lines_feed(&lines, input, SP_EXECD_LINE_MAX + 10, check_piece, &whole),
		     SP_EXECD_LINE_MAX + 10);
	sp_lines_flush(&lines, check_piece, &whole);
	cr_assert_eq(whole.all.len, SP_EXECD_LINE_MAX + 10);
	sp_lines_done(&lines);
	sp_buf_done(&whole.all);
	free(input);
}

/* Nothing is lost, whatever was kept when pieces became short. */
Test(execd_lines, pieces_can_become_shorter)
{
	struct sp_lines lines;
	struct seen seen = {0};

	sp_buf_init(&seen.text, SIZE_MAX);
	sp_lines_init(&lines);
	cr_assert_eq(sp_lines_feed(&lines, "0123456789", 10, note, &seen), 10);
	cr_assert_eq(seen.count, 0);
	sp_lines_limit(&lines, 4);
	cr_assert_eq(sp_lines_feed(&lines, "abcd", 4, note, &seen), 4);
	cr_assert_str_eq(sp_buf_text(&seen.text), "[0123][4567][89ab]");
	sp_lines_limit(&lines, 4);
	cr_assert_eq(sp_lines_feed(&lines, "efg\nhij", 7, note, &seen), 7);
	cr_assert_str_eq(sp_buf_text(&seen.text), "[0123][4567][89ab][cdef][g]");
	sp_lines_limit(&lines, SP_EXECD_LINE_MAX);
	cr_assert_eq(sp_lines_feed(&lines, "klmno\n", 6, note, &seen), 6);
	sp_lines_flush(&lines, note, &seen);
	cr_assert_str_eq(sp_buf_text(&seen.text), "[0123][4567][89ab][cdef][g][hijklmno]");
	sp_lines_done(&lines);
	sp_buf_done(&seen.text);
}
