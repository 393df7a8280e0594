/*
 * JSON out, UTF-8, base64, terminal-safe text.
 */
#include "supervisor/cli/text.h"

#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

static struct sp_cli_json json;
static struct sp_buf out;

static void setup(void)
{
	sp_buf_init(&out, 4096);
	sp_cli_json_init(&json, &out);
}

static void teardown(void)
{
	sp_buf_done(&out);
}

TestSuite(cli_text, .init = setup, .fini = teardown);

Test(cli_text, commas_stand_between_and_only_between)
{
	sp_cli_json_open(&json, '[');
	sp_cli_json_open(&json, '{');
	sp_cli_json_member(&json, "a", "b");
	sp_cli_json_member(&json, "left out", NULL);
	sp_cli_json_key(&json, "n");
	sp_cli_json_number(&json, -7);
	sp_cli_json_close(&json, '}');
	sp_cli_json_bool(&json, true);
	sp_cli_json_bool(&json, false);
	sp_cli_json_open(&json, '[');
	sp_cli_json_close(&json, ']');
	sp_cli_json_raw(&json, "null", 4);
	sp_cli_json_close(&json, ']');
	cr_assert(json.status == 0);
	cr_assert_str_eq(sp_buf_text(&out), "[{\"a\":\"b\",\"n\":-7},true,false,[],null]");
}

Test(cli_text, base64_pads_every_length)
{
	static const struct {
		const char *data, *text;
	} cases[] = {{"", "\"\""},
		     {"f", "\"Zg==\""},
		     {"fo", "\"Zm8=\""},
		     {"foo", "\"Zm9v\""},
		     {"foob", "\"Zm9vYg==\""},
		     {"fooba", "\"Zm9vYmE=\""},
		     {"foobar", "\"Zm9vYmFy\""},
		     {"\xff\xfe\xfd", "\"//79\""}};

	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++) {
		sp_buf_clear(&out);
		sp_cli_json_init(&json, &out);
		sp_cli_json_base64(&json, cases[i].data, strlen(cases[i].data));
		cr_assert_str_eq(sp_buf_text(&out), cases[i].text);
	}
}

Test(cli_text, utf8_is_what_rfc_3629_says)
{
	static const char *const good[] = {"",
					   "a",
					   "\x7f",
					   "\xc2\x80",
					   "\xdf\xbf",
					   "\xe0\xa0\x80",
					   "\xed\x9f\xbf",
					   "\xee\x80\x80",
					   "\xf0\x90\x80\x80",
					   "\xf4\x8f\xbf\xbf"};
	static const char *const bad[] = {"\x80",
					  "\xbf",
					  "\xc0\x80",
					  "\xc1\xbf",
					  "\xc2",
					  "\xc2"
					  "A",
					  "\xe0\x9f\xbf",
					  "\xed\xa0\x80",
					  "\xe2\x82",
					  "\xe2\x82"
					  "A",
					  "\xf0\x8f\xbf\xbf",
					  "\xf4\x90\x80\x80",
					  "\xf5\x80\x80\x80",
					  "\xf0\x90\x80",
					  "\xff",
					  "ok\xfe"};

	for (size_t i = 0; i < SP_ARRAY_SIZE(good); i++)
		cr_assert(sp_cli_utf8_valid(good[i], strlen(good[i])), "good %zu", i);
	for (size_t i = 0; i < SP_ARRAY_SIZE(bad); i++)
		cr_assert(!sp_cli_utf8_valid(bad[i], strlen(bad[i])), "bad %zu", i);
}

Test(cli_text, a_sequence_that_the_end_cuts_is_not_read_beyond)
{
	cr_assert(!sp_cli_utf8_valid("\xf0\x90\x80\x80", 3));
}

Test(cli_text, a_text_that_is_not_utf8_makes_no_json)
{
	sp_cli_json_open(&json, '{');
	sp_cli_json_member(&json, "a", "\xff");
	sp_cli_json_close(&json, '}');
	cr_assert(json.status == -EILSEQ);
}

Test(cli_text, the_writer_keeps_its_first_failure)
{
	sp_buf_done(&out);
	sp_buf_init(&out, 8);
	sp_cli_json_text(&json, "longer than eight");
	cr_assert(json.status == -E2BIG);
	sp_cli_json_text(&json, "\xff");
	cr_assert(json.status == -E2BIG);
}

Test(cli_text, control_bytes_do_not_reach_the_terminal)
{
	cr_assert(sp_cli_append_printable(&out, "a\x1b[31mb\nc\td\x7f grün") == 0);
	cr_assert(sp_cli_append_printable(&out, "\xc2\x9b[31m\xc2\xa0\xc2") == 0);
	cr_assert_str_eq(sp_buf_text(&out), "a?[31mb?c?d? grün??[31m\xc2\xa0\xc2");
}
