/*
 * Patterns on base names: what each matches, what is no pattern, limits at N and N+1, and a pattern
 * made to be slow.
 */
#include "supervisor/api/glob.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static bool matches(const char *pattern, const char *name)
{
	struct sp_glob glob;
	struct sp_err err = {0};
	bool found;

	cr_assert(sp_glob_compile(&glob, pattern, &err) == 0, "%s: %s", pattern, err.message);
	found = sp_glob_matches(&glob, name);
	sp_glob_done(&glob);
	return found;
}

Test(api_glob, patterns_match_as_they_say)
{
	static const struct {
		const char *pattern;
		const char *name;
		bool matches;
	} cases[] = {
		{"**", "anything", true},
		{"*", ".hidden", true},
		{"*.txt", "a.txt", true},
		{"*.txt", "a.txt.bak", false},
		{"a*b*c", "aXbYbZc", true},
		{"a*b*c", "aXbYcZ", false},
		{"?", "x", true},
		{"?", "xy", false},
		{"?", "\xc3\xa5", true},
		{"?", "\xf0\x9f\x98\x80", true},
		{"?\?", "\xc3\xa5", false},
		{"?", "\xff", true},
		{"[abc].c", "b.c", true},
		{"[a-c].c", "d.c", false},
		{"[^a-c].c", "d.c", true},
		{"[!a-c].c", "b.c", false},
		{"[]x]", "]", true},
		{"[a-]", "-", true},
		{"[\\]]", "]", true},
		{"*.{js,ts}", "a.ts", true},
		{"*.{js,ts}", "a.cs", false},
		{"{a,b{c,d}}e", "bde", true},
		{"{a,b{c,d}}e", "be", false},
		{"{,a}b", "b", true},
		{"{[,}],x}", ",", true},
		{"a}", "a}", true},
		{"\\*", "*", true},
		{"\\*", "a", false},
		{"\\{a,b\\}", "{a,b}", true},
		{"src/*.c", "a.c", false},
		{"x", "", false},
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++)
		cr_assert(matches(cases[i].pattern, cases[i].name) == cases[i].matches,
			  "'%s' on '%s'", cases[i].pattern, cases[i].name);
}

Test(api_glob, what_has_no_end_is_no_pattern)
{
	static const char *const patterns[] = {"[", "[a", "[]", "[^", "a\\", "{a", "{a,{b}", "[\\"};

	for (size_t i = 0; i < SP_ARRAY_SIZE(patterns); i++) {
		struct sp_glob glob;
		struct sp_err err = {0};

		cr_assert(sp_glob_compile(&glob, patterns[i], &err) == -EINVAL, "%s", patterns[i]);
		cr_assert(err.code == SP_CODE_INVALID_ARGUMENT && err.message[0]);
		sp_glob_done(&glob);
	}
}

Test(api_glob, length_of_the_limit_passes_and_one_more_does_not)
{
	char pattern[SP_GLOB_PATTERN_MAX + 2];
	struct sp_glob glob;

	memset(pattern, 'a', sizeof(pattern));
	pattern[SP_GLOB_PATTERN_MAX] = '\0';
	cr_assert(matches(pattern, pattern));
	pattern[SP_GLOB_PATTERN_MAX] = 'a';
	pattern[SP_GLOB_PATTERN_MAX + 1] = '\0';
	cr_assert(sp_glob_compile(&glob, pattern, NULL) == -EINVAL);
}

Test(api_glob, alternatives_of_the_limit_pass_and_one_more_does_not)
{
	struct sp_glob glob;

	/* 2^8 = 256 */
	cr_assert(matches("{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}", "abababab"));
	cr_assert(sp_glob_compile(&glob, "{{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b},c}", NULL) ==
		  -EINVAL);
	cr_assert(sp_glob_compile(&glob, "{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}", NULL) ==
		  -EINVAL);
}

/* Doubly exponential where a matcher tries every star at every place. */
Test(api_glob, stars_do_not_multiply, .timeout = 10)
{
	char name[256];

	memset(name, 'a', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	for (int i = 0; i < 1000; i++)
		cr_assert(!matches("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b", name));
}

/* 256 alternatives of 100 bytes, each of which fails at its last byte, everywhere in the name. */
static void compile_slow(struct sp_glob *glob, char *name, size_t name_size)
{
	char pattern[512] = "*{,}{,}{,}{,}{,}{,}{,}{,}";
	size_t len = strlen(pattern);

	memset(pattern + len, 'a', 128);
	memcpy(pattern + len + 128, "b", 2);
	memset(name, 'a', name_size);
	name[name_size - 1] = '\0';
	cr_assert(sp_glob_compile(glob, pattern, NULL) == 0);
	cr_assert(glob->count == SP_GLOB_ALTERNATIVES_MAX);
}

Test(api_glob, what_takes_too_long_is_given_up, .timeout = 20)
{
	struct sp_glob glob;
	char name[256];

	compile_slow(&glob, name, sizeof(name));
	for (int i = 0; i < 100000; i++)
		cr_assert(!sp_glob_matches(&glob, name));
	cr_assert(sp_glob_is_spent(&glob));
	cr_assert(!sp_glob_matches(&glob, "b"), "it matches nothing any more");
	sp_glob_done(&glob);
}

Test(api_glob, what_each_name_may_take_lasts_for_ever)
{
	struct sp_glob glob;
	char name[256];

	memset(name, 'a', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	cr_assert(sp_glob_compile(&glob, "{*.py,*.c,*.h,*a}", NULL) == 0);
	for (int i = 0; i < 100000; i++)
		cr_assert(sp_glob_matches(&glob, name));
	cr_assert(!sp_glob_is_spent(&glob));
	sp_glob_done(&glob);
	memset(&glob, 0, sizeof(glob));
	cr_assert(!sp_glob_is_spent(&glob), "none is not spent");
}
