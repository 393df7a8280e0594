/*
 * Durations and sizes: what is accepted, what is refused and with which words, and that formatting
 * and parsing undo each other.
 */
#include "supervisor/config/config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static void duration_is(const char *text, int64_t wanted)
{
	struct sp_err err = {0};
	int64_t ms = -7;

	cr_assert(sp_parse_duration(text, &ms, &err) == 0, "'%s': %s", text, err.message);
	cr_assert(ms == wanted, "'%s' gave %lld", text, (long long)ms);
}

static void duration_refused(const char *text, int status, const char *hint)
{
	struct sp_err err = {0};
	int64_t ms = -7;

	cr_assert(sp_parse_duration(text, &ms, &err) == status, "'%s'", text);
	cr_assert(ms == -7, "'%s' wrote a value", text);
	cr_assert(err.code == SP_CODE_INVALID_ARGUMENT);
	cr_assert_not_null(strstr(err.message, hint), "'%s' gave: %s", text, err.message);
}

static void size_is(const char *text, uint64_t wanted)
{
	struct sp_err err = {0};
	uint64_t bytes = 7;

	cr_assert(sp_parse_size(text, &bytes, &err) == 0, "'%s': %s", text, err.message);
	cr_assert(bytes == wanted, "'%s' gave %llu", text, (unsigned long long)bytes);
}

static void size_refused(const char *text, int status, const char *hint)
{
	struct sp_err err = {0};
	uint64_t bytes = 7;

	cr_assert(sp_parse_size(text, &bytes, &err) == status, "'%s'", text);
	cr_assert(bytes == 7, "'%s' wrote a value", text);
	cr_assert(err.code == SP_CODE_INVALID_ARGUMENT);
	cr_assert_not_null(strstr(err.message, hint), "'%s' gave: %s", text, err.message);
}

Test(units, durations_with_units)
{
	duration_is("0", 0);
	duration_is("0s", 0);
	duration_is("500ms", 500);
	duration_is("60s", 60000);
	duration_is("10m", 600000);
	duration_is("1h30m", 5400000);
	duration_is("2d3h4m5s6ms", 183845006);
	duration_is("007s", 7000);
}

Test(units, durations_without_or_with_wrong_units_are_refused)
{
	duration_refused("10", -EINVAL, "\"10s\"");
	duration_refused("", -EINVAL, "not a duration");
	duration_refused("s", -EINVAL, "not a duration");
	duration_refused("10 m", -EINVAL, "not a duration");
	duration_refused(" 10m", -EINVAL, "not a duration");
	duration_refused("10m ", -EINVAL, "not a duration");
	duration_refused("-5s", -EINVAL, "not a duration");
	duration_refused("+5s", -EINVAL, "not a duration");
	duration_refused("1.5h", -EINVAL, "whole numbers");
	duration_refused("1e3s", -EINVAL, "not a duration");
	duration_refused("10M", -EINVAL, "not a duration");
	duration_refused("10 minutes", -EINVAL, "not a duration");
	duration_refused("10secondsx", -EINVAL, "not a duration");
	duration_refused("30m1h", -EINVAL, "largest first");
	duration_refused("1m1m", -EINVAL, "largest first");
	duration_refused("5m10", -EINVAL, "not a duration");
	duration_refused("0x10s", -EINVAL, "not a duration");
	duration_refused("auto", -EINVAL, "not a duration");
}

Test(units, durations_up_to_the_largest_and_no_further)
{
	duration_is("9223372036854775807ms", INT64_MAX);
	duration_refused("9223372036854775808ms", -ERANGE, "too long");
	duration_is("106751991167d7h12m55s807ms", INT64_MAX);
	duration_refused("106751991167d7h12m55s808ms", -ERANGE, "too long");
	duration_refused("18446744073709551616ms", -ERANGE, "too long");
	duration_refused("99999999999999999999999h", -ERANGE, "too long");
	duration_refused("213503982335d", -ERANGE, "too long");
}

Test(units, sizes_with_units)
{
	size_is("0", 0);
	size_is("0MiB", 0);
	size_is("1000B", 1000);
	size_is("64KiB", 65536);
	size_is("512MiB", UINT64_C(512) << 20);
	size_is("3GiB", UINT64_C(3) << 30);
	size_is("2TiB", UINT64_C(2) << 40);
}

/* B-205 */
Test(units, sizes_that_leave_the_unit_to_guess_are_refused)
{
	size_refused("64", -EINVAL, "\"64MiB\"");
	size_refused("64M", -EINVAL, "\"64MiB\"");
	size_refused("64m", -EINVAL, "\"64MiB\"");
	size_refused("64MB", -EINVAL, "\"64MiB\"");
	size_refused("64mib", -EINVAL, "\"64MiB\"");
	size_refused("64k", -EINVAL, "\"64KiB\"");
	size_refused("64g", -EINVAL, "\"64GiB\"");
	size_refused("64b", -EINVAL, "\"64B\"");
	size_refused("6 4", -EINVAL, "not a size");
	size_refused("64 MiB", -EINVAL, "not a size");
	size_refused("1e3", -EINVAL, "not a size");
	size_refused("12x", -EINVAL, "not a size");
	size_refused("1.5GiB", -EINVAL, "whole number");
	size_refused("-1MiB", -EINVAL, "not a size");
	size_refused("1MiB1KiB", -EINVAL, "give one");
	size_refused("MiB", -EINVAL, "not a size");
	size_refused("", -EINVAL, "not a size");
}

Test(units, sizes_up_to_the_largest_and_no_further)
{
	size_is("18446744073709551615B", UINT64_MAX);
	size_refused("18446744073709551616B", -ERANGE, "too large");
	size_is("16777215TiB", UINT64_C(16777215) << 40);
	size_refused("16777216TiB", -ERANGE, "too large");
}

Test(units, messages_show_control_bytes_and_stay_short)
{
	char text[1024];
	struct sp_err err = {0};
	int64_t ms;

	memset(text, 'x', sizeof(text));
	text[0] = '\x1b';
	text[sizeof(text) - 1] = '\0';
	cr_assert(sp_parse_duration(text, &ms, &err) == -EINVAL);
	cr_assert_null(strchr(err.message, '\x1b'));
	cr_assert(strlen(err.message) < 300);
}

Test(units, errors_need_no_place_to_go)
{
	uint64_t bytes;
	int64_t ms;

	cr_assert(sp_parse_duration("x", &ms, NULL) == -EINVAL);
	cr_assert(sp_parse_size("x", &bytes, NULL) == -EINVAL);
}

static void duration_text_is(int64_t ms, const char *wanted)
{
	char text[64];

	cr_assert(sp_format_duration(ms, text, sizeof(text)) == 0);
	cr_assert_str_eq(text, wanted);
	duration_is(text, ms);
}

Test(units, durations_are_written_largest_unit_first)
{
	duration_text_is(0, "0");
	duration_text_is(1, "1ms");
	duration_text_is(1000, "1s");
	duration_text_is(90000, "1m30s");
	duration_text_is(86400000, "24h");
	duration_text_is(3600001, "1h1ms");
	duration_text_is(INT64_MAX, "2562047788015h12m55s807ms");
}

static void size_text_is(uint64_t bytes, const char *wanted)
{
	char text[64];

	cr_assert(sp_format_size(bytes, text, sizeof(text)) == 0);
	cr_assert_str_eq(text, wanted);
	size_is(text, bytes);
}

Test(units, sizes_are_written_in_the_largest_unit_that_divides_them)
{
	size_text_is(0, "0");
	size_text_is(1, "1B");
	size_text_is(1024, "1KiB");
	size_text_is(1025, "1025B");
	size_text_is(UINT64_C(1536) << 20, "1536MiB");
	size_text_is(UINT64_C(1) << 40, "1TiB");
	size_text_is(UINT64_MAX, "18446744073709551615B");
}

Test(units, a_buffer_that_is_too_small_is_an_error)
{
	char text[16];

	cr_assert(sp_format_duration(90000, text, sizeof("1m30s")) == 0);
	cr_assert(sp_format_duration(90000, text, sizeof("1m30s") - 1) == -ENOSPC);
	cr_assert(sp_format_duration(0, text, 1) == -ENOSPC);
	cr_assert(sp_format_size(1024, text, sizeof("1KiB")) == 0);
	cr_assert(sp_format_size(1024, text, sizeof("1KiB") - 1) == -ENOSPC);
	cr_assert(sp_format_size(0, text, 1) == -ENOSPC);
	cr_assert(sp_format_duration(-1, text, sizeof(text)) == -EINVAL);
}

Test(units, formatting_and_parsing_undo_each_other)
{
	uint64_t value = 1;

	for (int i = 0; i < 20000; i++) {
		char text[64];

		value = value * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		cr_assert(sp_format_size(value >> (i % 60), text, sizeof(text)) == 0);
		size_is(text, value >> (i % 60));
		cr_assert(sp_format_duration((int64_t)(value >> (1 + i % 60)), text,
					     sizeof(text)) == 0);
		duration_is(text, (int64_t)(value >> (1 + i % 60)));
	}
}
