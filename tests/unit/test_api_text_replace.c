/*
 * Replacing in a stream: as if the text were there at once, however it is cut.
 */
#include "supervisor/api/text_replace.h"

#include <criterion/criterion.h>
#include <string.h>

static struct sp_buf out;

static void drain(struct sp_text_replace *replace, bool last)
{
	const char *data;
	size_t len;

	while (sp_text_replace_next(replace, last, &data, &len)) {
		cr_assert(len > 0);
		cr_assert(sp_buf_append(&out, data, len) == 0);
	}
}

static uint64_t replace(const char *text, size_t piece, const char *from, const char *to)
{
	struct sp_text_replace state;
	size_t len = strlen(text);
	uint64_t count;

	sp_buf_done(&out);
	sp_buf_init(&out, 1 << 20);
	sp_text_replace_init(&state, from, strlen(from), to, strlen(to));
	for (size_t at = 0; at < len; at += piece) {
		cr_assert(sp_text_replace_feed(&state, text + at, SP_MIN(piece, len - at)) == 0);
		drain(&state, false);
		cr_assert(state.kept.len - state.at < strlen(from));
	}
	cr_assert(sp_text_replace_feed(&state, "", 0) == 0);
	drain(&state, true);
	count = state.count;
	sp_text_replace_done(&state);
	return count;
}

static void end(void)
{
	sp_buf_done(&out);
}

TestSuite(api_text_replace, .fini = end);

Test(api_text_replace, every_occurrence_is_replaced_however_the_text_is_cut)
{
	static const struct {
		const char *text;
		const char *from;
		const char *to;
		const char *replaced;
		uint64_t count;
	} cases[] = {
		{"one two one", "one", "ONE", "ONE two ONE", 2},
		{"hello", "bye", "x", "hello", 0},
		{"aaaa", "aa", "b", "bb", 2},
		{"aaaaa", "aa", "aaa", "aaaaaaa", 2},
		{"abcabc", "abc", "", "", 2},
		{"xabc", "abc", "", "x", 1},
		{"ababac", "abac", "!", "ab!", 1},
		{"a\nb\n", "\n", "\r\n", "a\r\nb\r\n", 2},
		{"", "a", "b", "", 0},
		{"a", "aa", "b", "a", 0},
		{"\xc3\xa5\xc3\xa4", "\xc3\xa4", "ae",
		 "\xc3\xa5"
		 "ae",
		 1},
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++) {
		for (size_t piece = 1; piece <= 12; piece++) {
			uint64_t count = replace(cases[i].text, piece, cases[i].from, cases[i].to);

			cr_assert(count == cases[i].count, "case %zu, pieces of %zu", i, piece);
			cr_assert_str_eq(sp_buf_text(&out), cases[i].replaced,
					 "case %zu, pieces of %zu", i, piece);
		}
	}
}
