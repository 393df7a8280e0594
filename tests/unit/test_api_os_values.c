/*
 * Quantities, times, labels and images of the lifecycle API.
 */
#include "supervisor/api/os_values.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

Test(api_os_values, cores)
{
	static const struct {
		const char *text;
		int64_t millis;
	} cases[] = {{"1", 1000},   {"500m", 500}, {"0.5", 500},           {"2.25", 2250},
		     {"0.0001", 1}, {"0", 0},      {"1000000", 1000000000}};

	static const char *const bad[] = {"",    "m",  "1M", "-1",      "1e3", "1.2.3", ".",
					  "0x1", " 1", "1 ", "1000001", "nan", "1mm"};

	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++) {
		int64_t millis = -1;

		cr_assert(sp_os_parse_cpu(cases[i].text, &millis, NULL) == 0, "%s", cases[i].text);
		cr_assert(millis == cases[i].millis, "%s", cases[i].text);
	}
	for (size_t i = 0; i < SP_ARRAY_SIZE(bad); i++) {
		struct sp_err err = {0};
		int64_t millis;

		cr_assert(sp_os_parse_cpu(bad[i], &millis, &err) < 0, "'%s'", bad[i]);
		cr_assert(err.code == SP_CODE_INVALID_ARGUMENT);
	}
}

Test(api_os_values, sizes)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} cases[] = {
		{"512Mi", UINT64_C(512) << 20},
		{"2Gi", UINT64_C(2) << 30},
		{"1.5Gi", UINT64_C(1536) << 20},
		{"2G", UINT64_C(2000000000)},
		{"1048576", 1048576},
		{"100k", 100000},
		{"1500m", 2},
		{"0", 0},
		{"4Ei", UINT64_C(1) << 62},
	};

	static const char *const bad[] = {"",   "Mi",  "2gi",  "2GiB",
					  "-1", "5Ei", "1 Gi", "1e9",
					  "..", "1K",  "1Mi ", "1234567890123456789012345"};

	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++) {
		uint64_t bytes = 1;

		cr_assert(sp_os_parse_memory(cases[i].text, &bytes, NULL) == 0, "%s",
			  cases[i].text);
		cr_assert(bytes == cases[i].bytes, "%s: %llu", cases[i].text,
			  (unsigned long long)bytes);
	}
	for (size_t i = 0; i < SP_ARRAY_SIZE(bad); i++) {
		uint64_t bytes;

		cr_assert(sp_os_parse_memory(bad[i], &bytes, NULL) < 0, "'%s'", bad[i]);
	}
}

Test(api_os_values, times)
{
	static const struct {
		const char *text;
		int64_t ms;
	} cases[] = {
		{"1970-01-01T00:00:00Z", 0},
		{"2026-11-30T12:00:00Z", INT64_C(1796040000000)},
		{"2026-11-30T12:00:00.1239Z", INT64_C(1796040000123)},
		{"2026-11-30t12:00:00.5z", INT64_C(1796040000500)},
		{"2026-11-30 12:00:00+00:00", INT64_C(1796040000000)},
		{"2026-11-30T13:30:00.000001+01:30", INT64_C(1796040000000)},
		{"2026-11-30T06:00:00-06:00", INT64_C(1796040000000)},
		{"2024-02-29T00:00:00Z", INT64_C(1709164800000)},
	};

	static const char *const bad[] = {
		"",
		"2026-11-30",
		"2026-11-30T12:00:00",
		"2026-11-30T12:00Z",
		"2026-13-01T00:00:00Z",
		"2026-02-29T00:00:00Z",
		"1900-02-29T00:00:00Z",
		"2026-11-30T24:00:00Z",
		"2026-11-30T12:60:00Z",
		"2026-11-30T12:00:00.Z",
		"2026-11-30T12:00:00Zx",
		"2026-11-30T12:00:00+1:00",
		"2026-11-30T12:00:00+01",
		"20261130T120000Z",
		"tomorrow",
		"1796040000",
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++) {
		int64_t ms = -1;

		cr_assert(sp_os_parse_time(cases[i].text, &ms, NULL) == 0, "%s", cases[i].text);
		cr_assert(ms == cases[i].ms, "%s: %lld", cases[i].text, (long long)ms);
	}
	for (size_t i = 0; i < SP_ARRAY_SIZE(bad); i++) {
		int64_t ms;

		cr_assert(sp_os_parse_time(bad[i], &ms, NULL) < 0, "'%s'", bad[i]);
	}
}

Test(api_os_values, times_are_written_with_microseconds)
{
	char text[SP_OS_TIME_MAX];
	int64_t back;

	sp_os_format_time(INT64_C(1796040000123), text);
	cr_assert(strcmp(text, "2026-11-30T12:00:00.123000Z") == 0, "%s", text);
	cr_assert(sp_os_parse_time(text, &back, NULL) == 0 && back == INT64_C(1796040000123));
	sp_os_format_time(-1, text);
	cr_assert(text[0] == '\0');
	sp_os_format_time(INT64_MAX, text);
	cr_assert(text[0] == '\0');
}

static bool label(const char *key, const char *value)
{
	return sp_os_label_check(key, value, NULL) == 0;
}

Test(api_os_values, labels)
{
	char part[65];
	char key[330];

	cr_assert(label("team", "infra") && label("a", "") && label("A.b_c-9", "1.2-x_Y"));
	cr_assert(label("example.com/team", "x") && label("a-b.c/x", "y"));
	cr_assert(!label("", "x") && !label("-a", "x") && !label("a-", "x") && !label("a b", "x"));
	cr_assert(!label("a", "-") && !label("a", "x ") && !label("a", "\xc3\xa9") &&
		  !label("a", "."));
	cr_assert(!label("/a", "x") && !label("a/", "x") && !label("a/b/c", "x"));
	cr_assert(!label("Example.com/a", "x") && !label("-a/b", "x") && !label("a-./b", "x"));
	cr_assert(!label("a..b/c", "x") && !label("a./c", "x") && !label("a.-b/c", "x"));
	cr_assert(!label("opensandbox.io/id", "x") && label("opensandbox.iot/id", "x"));
	memset(part, 'a', 64);
	part[64] = '\0';
	cr_assert(!label(part, "x") && !label("a", part));
	part[63] = '\0';
	cr_assert(label(part, "x") && label("a", part));
	memset(key, 'a', 254);
	memcpy(key + 254, "/x", sizeof("/x"));
	cr_assert(!label(key, "x"));
	cr_assert(label(key + 1, "x"));
}

Test(api_os_values, images)
{
	cr_assert(sp_os_image_matches("python:*", "python:3.11"));
	cr_assert(sp_os_image_matches("python:*", "python"));
	cr_assert(sp_os_image_matches("python:*", "docker.io/library/python:3"));
	cr_assert(
		sp_os_image_matches("opensandbox/*", "docker.io/opensandbox/code-interpreter:v1"));
	cr_assert(sp_os_image_matches("*/code-interpreter:*",
				      "registry.example.com:5000/team/code-interpreter:v1"));
	cr_assert(sp_os_image_matches("*", "anything@sha256:00"));
	cr_assert(!sp_os_image_matches("python:*", "python3:1"));
	cr_assert(!sp_os_image_matches("python:*", "evil/python:3"));
	cr_assert(sp_os_image_matches("python:latest", "python"));
	cr_assert(!sp_os_image_matches("python:latest", "python@sha256:00"));
	cr_assert(sp_os_image_weight("python:*") > sp_os_image_weight("*"));
	cr_assert(sp_os_image_weight("python:3.*") > sp_os_image_weight("python:*"));
}
