/*
 * Paths of clients: variables, and the absolute path without detours.
 */
#include "supervisor/api/file_path.h"

#include "pool/base/buf.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *variable(void *arg, const char *name, size_t len)
{
	static const char *const set[][2] = {
		{"HOME", "/home/user"}, {"A", "a"}, {"_B1", "/b/$A"}, {"EMPTY", ""}};

	SP_UNUSED(arg);
	for (size_t i = 0; i < SP_ARRAY_SIZE(set); i++)
		if (strlen(set[i][0]) == len && memcmp(set[i][0], name, len) == 0)
			return set[i][1];
	return NULL;
}

Test(api_file_path, variables_are_expanded_once)
{
	static const struct {
		const char *text;
		const char *expanded; /* NULL: refused */
	} cases[] = {
		{"/plain", "/plain"},
		{"~", "/home/user"},
		{"~/x", "/home/user/x"},
		{"~user/x", "~user/x"},
		{"/a/~", "/a/~"},
		{"/$A/${A}b", "/a/ab"},
		{"$_B1/c", "/b/$A/c"},
		{"/${EMPTY}x", "/x"},
		{"/cost$5", "/cost$5"},
		{"/end$", "/end$"},
		{"/$$A", "/$a"},
		{"/$NONE", NULL},
		{"/${NONE}", NULL},
		{"/${A", NULL},
		{"/${}", NULL},
		{"/${A:-b}", NULL},
		{"", ""},
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++) {
		char out[64] = "untouched";
		struct sp_err err = {0};
		int status =
			sp_file_path_expand(cases[i].text, variable, NULL, out, sizeof(out), &err);

		cr_assert((status == 0) == (cases[i].expanded != NULL), "'%s'", cases[i].text);
		if (cases[i].expanded)
			cr_assert_str_eq(out, cases[i].expanded);
		else
			cr_assert(err.code == SP_CODE_INVALID_ARGUMENT && err.message[0]);
	}
}

Test(api_file_path, variables_of_the_limit_are_expanded_and_one_more_is_not)
{
	struct sp_buf text;
	char out[64];

	sp_buf_init(&text, 1024);
	for (unsigned int i = 0; i < SP_PATH_VARIABLES_MAX; i++)
		cr_assert(sp_buf_printf(&text, "%s", i % 2 ? "$A" : "${EMPTY}") == 0);
	cr_assert(sp_file_path_expand(sp_buf_text(&text), variable, NULL, out, sizeof(out), NULL) ==
		  0);
	cr_assert_str_eq(out, "aaaaaaaa");
	cr_assert(sp_buf_printf(&text, "$A") == 0);
	cr_assert(sp_file_path_expand(sp_buf_text(&text), variable, NULL, out, sizeof(out), NULL) ==
		  -E2BIG);
	sp_buf_done(&text);
}

Test(api_file_path, detours_are_taken_off)
{
	static const char *const cases[][2] = {
		{"/", "/"},           {"//a///b//", "/a/b"}, {"/a/./b/../c", "/a/c"},
		{"/..", "/"},         {"/../../a", "/a"},    {"/a/...", "/a/..."},
		{"/a/..b", "/a/..b"}, {"x", "/work/dir/x"},  {"../x", "/work/x"},
		{"../../../x", "/x"}, {".", "/work/dir"},    {"./-x", "/work/dir/-x"},
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++) {
		char out[64];

		cr_assert(sp_file_path_clean(cases[i][0], "/work/dir", out, sizeof(out), NULL) ==
			  0);
		cr_assert_str_eq(out, cases[i][1]);
	}
}

Test(api_file_path, an_empty_path_is_none)
{
	char out[8];

	cr_assert(sp_file_path_clean("", "/", out, sizeof(out), NULL) == -EINVAL);
}

Test(api_file_path, path_of_the_limit_passes_and_one_more_byte_does_not)
{
	char out[8];

	cr_assert(sp_file_path_clean("/123456", "/", out, sizeof(out), NULL) == 0);
	cr_assert_str_eq(out, "/123456");
	cr_assert(sp_file_path_clean("/1234567", "/", out, sizeof(out), NULL) == -ENAMETOOLONG);
	cr_assert(sp_file_path_expand("1234567", variable, NULL, out, sizeof(out), NULL) == 0);
	cr_assert(sp_file_path_expand("12345678", variable, NULL, out, sizeof(out), NULL) ==
		  -ENAMETOOLONG);
}
