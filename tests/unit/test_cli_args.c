/*
 * Option tables: what is accepted, what is refused, and what the refusal says.
 */
#include "supervisor/cli/args.h"

#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "supervisor/cli/cli.h"

enum { OPTION_POOL, OPTION_TIMEOUT, OPTION_TTY, OPTION_BIND, OPTION_END };

static const struct sp_cli_option options[] = {
	[OPTION_POOL] = {"pool", 'p', false, "NAME", "a pool"},
	[OPTION_TIMEOUT] = {"timeout", 0, false, "TIME", "a time"},
	[OPTION_TTY] = {"tty", 't', false, NULL, "a flag"},
	[OPTION_BIND] = {"bind", 'b', true, "SPEC", "a list"},
	[OPTION_END] = {0},
};

static const struct sp_cli_option globals[] = {
	{"json", 0, false, NULL, "a global flag"},
	{"socket", 0, false, "PATH", "a global value"},
	{0},
};

static struct sp_cli_args args;
static struct sp_err err;

static int parse(bool stop_early, const char *const *words)
{
	static char *argv[64];
	int argc = 0;

	argv[argc++] = strdup("verb");
	for (; *words; words++)
		argv[argc++] = strdup(*words);
	argv[argc] = NULL;
	sp_err_clear(&err);
	cr_assert(sp_cli_args_init(&args, argc) == 0);
	return sp_cli_args_parse(&args, options, globals, stop_early, argc, argv, &err);
}

#define PARSE(...)         parse(false, (const char *const[]){__VA_ARGS__, NULL})
#define PARSE_COMMAND(...) parse(true, (const char *const[]){__VA_ARGS__, NULL})

static const char *value(int option)
{
	return sp_cli_args_value(&args, &options[option]);
}

static void teardown(void)
{
	sp_cli_args_done(&args);
}

TestSuite(cli_args, .fini = teardown);

Test(cli_args, values_come_long_short_glued_and_with_an_equals_sign)
{
	cr_assert(PARSE("--pool", "a", "--timeout=3s", "-t", "-bx", "-b", "y") == 0);
	cr_assert_str_eq(value(OPTION_POOL), "a");
	cr_assert_str_eq(value(OPTION_TIMEOUT), "3s");
	cr_assert(sp_cli_args_has(&args, &options[OPTION_TTY]));
	cr_assert(args.word_count == 0);
}

Test(cli_args, a_repeated_option_keeps_every_value_in_order)
{
	size_t cursor = 0;

	cr_assert(PARSE("-b", "one", "--bind", "two", "--bind=three") == 0);
	cr_assert_str_eq(sp_cli_args_next(&args, &options[OPTION_BIND], &cursor), "one");
	cr_assert_str_eq(sp_cli_args_next(&args, &options[OPTION_BIND], &cursor), "two");
	cr_assert_str_eq(sp_cli_args_next(&args, &options[OPTION_BIND], &cursor), "three");
	cr_assert_null(sp_cli_args_next(&args, &options[OPTION_BIND], &cursor));
}

Test(cli_args, a_value_given_twice_is_refused_b206)
{
	cr_assert(PARSE("--timeout", "1s", "--timeout", "2s") == -EINVAL);
	cr_assert_str_eq(err.message, "option '--timeout' was given twice");
}

Test(cli_args, the_same_value_given_twice_is_refused_too_b206)
{
	cr_assert(PARSE("-p", "a", "--pool=a") == -EINVAL);
	cr_assert_str_eq(err.message, "option '--pool' was given twice");
}

Test(cli_args, a_flag_given_twice_is_the_flag)
{
	cr_assert(PARSE("-t", "--tty", "--json", "--json") == 0);
	cr_assert(sp_cli_args_has(&args, &options[OPTION_TTY]));
}

Test(cli_args, an_empty_value_is_a_value_b203)
{
	cr_assert(PARSE("--pool", "", "--timeout=") == 0);
	cr_assert_str_eq(value(OPTION_POOL), "");
	cr_assert_str_eq(value(OPTION_TIMEOUT), "");
}

Test(cli_args, zero_is_a_value_b203)
{
	cr_assert(PARSE("--timeout", "0") == 0);
	cr_assert_str_eq(value(OPTION_TIMEOUT), "0");
}

Test(cli_args, an_unknown_option_is_refused_with_the_nearest_one)
{
	cr_assert(PARSE("--timout", "3s") == -EINVAL);
	cr_assert_str_eq(err.message, "unknown option '--timout', did you mean '--timeout'?");
	cr_assert(err.code == SP_CODE_INVALID_ARGUMENT);
}

Test(cli_args, an_unknown_option_like_none_gets_no_guess)
{
	cr_assert(PARSE("--frobnicate") == -EINVAL);
	cr_assert_str_eq(err.message, "unknown option '--frobnicate'");
}

Test(cli_args, the_name_alone_is_shown_of_an_unknown_option_with_a_value)
{
	cr_assert(PARSE("--passwrd=secret") == -EINVAL);
	cr_assert_str_eq(err.message, "unknown option '--passwrd'");
}

Test(cli_args, a_name_cut_short_is_refused)
{
	cr_assert(PARSE("--time", "3s") == -EINVAL);
	cr_assert_str_eq(err.message, "unknown option '--time', did you mean '--timeout'?");
}

Test(cli_args, a_name_cut_short_is_refused_with_its_value_glued_on)
{
	cr_assert(PARSE("--time=3s") == -EINVAL);
	cr_assert_str_eq(err.message, "unknown option '--time', did you mean '--timeout'?");
}

Test(cli_args, a_prefix_of_several_is_refused)
{
	cr_assert(PARSE("--t") == -EINVAL);
	cr_assert_str_eq(err.message, "unknown option '--t'");
}

Test(cli_args, an_unknown_letter_is_refused_also_behind_known_ones)
{
	cr_assert(PARSE("--json", "-tz") == -EINVAL);
	cr_assert_str_eq(err.message, "unknown option '-z'");
}

Test(cli_args, a_missing_value_is_named)
{
	cr_assert(PARSE("--timeout") == -EINVAL);
	cr_assert_str_eq(err.message, "option '--timeout' needs a value (TIME)");
}

Test(cli_args, a_missing_value_behind_a_letter_is_named)
{
	cr_assert(PARSE("-p") == -EINVAL);
	cr_assert_str_eq(err.message, "option '--pool' needs a value (NAME)");
}

Test(cli_args, a_flag_takes_no_value)
{
	cr_assert(PARSE("--tty=yes") == -EINVAL);
	cr_assert_str_eq(err.message, "option '--tty' takes no value");
}

Test(cli_args, options_may_follow_words)
{
	cr_assert(PARSE("id", "--json", "other") == 0);
	cr_assert(args.word_count == 2);
	cr_assert_str_eq(args.words[0], "id");
	cr_assert_str_eq(args.words[1], "other");
	cr_assert(sp_cli_args_has(&args, &globals[0]));
}

Test(cli_args, a_command_keeps_its_own_options)
{
	cr_assert(PARSE_COMMAND("-t", "ls", "--timeout", "-z", "--json") == 0);
	cr_assert(args.word_count == 4);
	cr_assert_str_eq(args.words[1], "--timeout");
	cr_assert(!sp_cli_args_has(&args, &globals[0]));
}

Test(cli_args, two_dashes_end_the_options)
{
	cr_assert(PARSE_COMMAND("-t", "--", "--json") == 0);
	cr_assert(args.word_count == 1);
	cr_assert_str_eq(args.words[0], "--json");
}

Test(cli_args, a_lone_dash_and_an_empty_word_are_words)
{
	cr_assert(PARSE("-", "") == 0);
	cr_assert(args.word_count == 2);
}

Test(cli_args, guesses_are_near_or_none)
{
	static const char *const names[] = {"acquire", "release", "renew", "run", NULL};

	cr_assert_str_eq(sp_cli_suggest("aquire", names), "acquire");
	cr_assert_str_eq(sp_cli_suggest("relaese", names), "release");
	cr_assert_str_eq(sp_cli_suggest("acq", names), "acquire");
	cr_assert_str_eq(sp_cli_suggest("rnu", names), "run");
	cr_assert_null(sp_cli_suggest("kubernetes", names));
	cr_assert_null(sp_cli_suggest("", names));
	cr_assert_null(
		sp_cli_suggest("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", names));
}

/* One table too many and getopt would see a letter twice: the first entry would win silently. */
Test(cli_args, no_verb_has_a_name_or_letter_twice)
{
	for (size_t v = 0; sp_cli_verbs[v]; v++) {
		const struct sp_cli_option *tables[] = {sp_cli_verbs[v]->options,
							sp_cli_global_options};
		const char *names[SP_CLI_OPTIONS_MAX];
		bool letters[128] = {false};
		size_t count = 0;

		for (size_t t = 0; t < 2; t++) {
			for (const struct sp_cli_option *at = tables[t]; at && at->name; at++) {
				cr_assert(count < SP_CLI_OPTIONS_MAX, "%s", sp_cli_verbs[v]->name);
				for (size_t i = 0; i < count; i++)
					cr_assert_str_neq(names[i], at->name);
				names[count++] = at->name;
				if (!at->letter)
					continue;
				cr_assert(!letters[(unsigned char)at->letter], "%s: -%c",
					  sp_cli_verbs[v]->name, at->letter);
				letters[(unsigned char)at->letter] = true;
			}
		}
	}
}

Test(cli_args, every_verb_explains_itself_with_an_example)
{
	for (size_t v = 0; sp_cli_verbs[v]; v++) {
		const struct sp_cli_verb *verb = sp_cli_verbs[v];
		size_t len = strlen(verb->details);

		cr_assert(strstr(verb->details, "  sandpool ") ||
				  strstr(verb->details, "sudo sandpool"),
			  "%s", verb->name);
		cr_assert(len > 0 && verb->details[len - 1] == '\n', "%s", verb->name);
		cr_assert(verb->words_min <= verb->words_max, "%s", verb->name);
		cr_assert(sp_cli_verb_find(verb->name) == verb);
	}
}
