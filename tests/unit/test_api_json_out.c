/*
 * The JSON writer: what it writes must be what jansson reads.
 */
#include "supervisor/api/json_out.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <jansson.h>
#include <string.h>

static struct sp_buf buf;
static struct sp_json_out out;

static void begin(void)
{
	sp_buf_init(&buf, 1 << 20);
	sp_json_out_init(&out, &buf);
}

static void end(void)
{
	sp_buf_done(&buf);
}

TestSuite(api_json_out, .init = begin, .fini = end);

Test(api_json_out, keys_are_escaped_like_values)
{
	sp_json_open(&out, NULL, '{');
	sp_json_integer(&out, "a\"\n\xff", 1);
	sp_json_close(&out, '}');
	cr_assert(out.status == 0);
	cr_assert_str_eq(sp_buf_text(&buf), "{\"a\\\"\\n\xef\xbf\xbd\":1}");
}

Test(api_json_out, members_and_elements_are_separated)
{
	sp_json_open(&out, NULL, '{');
	sp_json_text(&out, "a", "x");
	sp_json_integer(&out, "b", -1);
	sp_json_open(&out, "c", '[');
	sp_json_unsigned(&out, NULL, UINT64_MAX);
	sp_json_boolean(&out, NULL, true);
	sp_json_open(&out, NULL, '{');
	sp_json_close(&out, '}');
	sp_json_close(&out, ']');
	sp_json_null(&out, "d");
	sp_json_text(&out, "e", NULL);
	sp_json_close(&out, '}');
	cr_assert(out.status == 0);
	cr_assert(strcmp(sp_buf_text(&buf), "{\"a\":\"x\",\"b\":-1,\"c\":[18446744073709551615,"
					    "true,{}],\"d\":null,\"e\":null}") == 0,
		  "%s", sp_buf_text(&buf));
}

Test(api_json_out, every_byte_survives_as_text_or_becomes_the_replacement)
{
	for (int byte = 0; byte < 256; byte++) {
		char text = (char)byte;
		json_t *value;

		sp_buf_clear(&buf);
		sp_json_out_init(&out, &buf);
		sp_json_text_n(&out, NULL, &text, 1);
		value = json_loadb(buf.data, buf.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
		cr_assert(value, "byte %d: %s", byte, sp_buf_text(&buf));
		if (byte < 0x80)
			cr_assert(json_string_length(value) == 1 &&
					  json_string_value(value)[0] == text,
				  "byte %d", byte);
		else
			cr_assert(strcmp(json_string_value(value), "\xef\xbf\xbd") == 0, "byte %d",
				  byte);
		json_decref(value);
	}
}

Test(api_json_out, utf8_passes_and_what_only_looks_like_it_is_replaced)
{
	static const struct {
		const char *in;
		const char *expected;
	} cases[] = {
		{"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"},
		{"\xed\x9f\xbf\xee\x80\x80", "\xed\x9f\xbf\xee\x80\x80"},
		{"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},                 /* overlong */
		{"\xe0\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* overlong */
		{"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* surrogate */
		{"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
		{"a\xe2\x82", "a\xef\xbf\xbd\xef\xbf\xbd"}, /* cut off */
		{"\xe2\x82z", "\xef\xbf\xbd\xef\xbf\xbdz"},
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++) {
		json_t *value;

		sp_buf_clear(&buf);
		sp_json_out_init(&out, &buf);
		sp_json_text(&out, NULL, cases[i].in);
		value = json_loadb(buf.data, buf.len, JSON_DECODE_ANY, NULL);
		cr_assert(value && strcmp(json_string_value(value), cases[i].expected) == 0,
			  "case %zu: %s", i, sp_buf_text(&buf));
		json_decref(value);
	}
}

Test(api_json_out, escaped_size_is_what_gets_written)
{
	static const char text[] = "plain \"quoted\" \\ \n\r\t \x01\x7f \xc3\xa4";
	size_t escaped = 0;

	cr_assert(sp_utf8_valid(text, sizeof(text), &escaped)); /* with its NUL */
	sp_json_text_n(&out, NULL, text, sizeof(text));
	cr_assert(escaped + 2 == buf.len);
	cr_assert(!sp_utf8_valid("a\xff", 2, &escaped));
	cr_assert(!sp_utf8_valid("a\xe2\x82", 3, &escaped));
	cr_assert(sp_utf8_valid("", 0, &escaped) && escaped == 0);
}

Test(api_json_out, base64_pads_every_remainder)
{
	static const char *const expected[] = {"\"\"", "\"AA==\"", "\"AP8=\"", "\"AP8Q\"",
					       "\"AP8Q/g==\""};
	static const unsigned char data[] = {0x00, 0xff, 0x10, 0xfe};

	for (size_t len = 0; len <= sizeof(data); len++) {
		sp_buf_clear(&buf);
		sp_json_out_init(&out, &buf);
		sp_json_base64(&out, NULL, data, len);
		cr_assert(strcmp(sp_buf_text(&buf), expected[len]) == 0, "%s", sp_buf_text(&buf));
	}
}

Test(api_json_out, thousandths_keep_their_sign_and_zeros)
{
	sp_json_open(&out, NULL, '[');
	sp_json_thousandths(&out, NULL, 1234567);
	sp_json_thousandths(&out, NULL, 5);
	sp_json_thousandths(&out, NULL, -50);
	sp_json_thousandths(&out, NULL, INT64_MIN);
	sp_json_close(&out, ']');
	cr_assert(strcmp(sp_buf_text(&buf), "[1234.567,0.005,-0.050,-9223372036854775.808]") == 0,
		  "%s", sp_buf_text(&buf));
}

Test(api_json_out, times_are_the_wall_clock_of_a_moment_on_the_other_clock)
{
	sp_json_open(&out, NULL, '[');
	/* 2024-02-29T12:34:56.789Z is now; 1 ms before, 86400 s after */
	sp_json_time(&out, NULL, 999, 1000, INT64_C(1709210096789));
	sp_json_time(&out, NULL, 1000 + 86400000, 1000, INT64_C(1709210096789));
	sp_json_time(&out, NULL, 0, 5000, 1000);
	sp_json_close(&out, ']');
	cr_assert(strcmp(sp_buf_text(&buf), "[\"2024-02-29T12:34:56.788Z\","
					    "\"2024-03-01T12:34:56.789Z\",null]") == 0,
		  "%s", sp_buf_text(&buf));
}

Test(api_json_out, first_failure_sticks)
{
	sp_buf_done(&buf);
	sp_buf_init(&buf, 8);
	sp_json_open(&out, NULL, '{');
	sp_json_text(&out, "a", "longer than eight");
	cr_assert(out.status == -E2BIG);
	sp_json_close(&out, '}');
	cr_assert(out.status == -E2BIG);
	cr_assert(buf.len <= 8);
}
