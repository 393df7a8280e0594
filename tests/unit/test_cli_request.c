/*
 * From options to JSON: bind specifications, variables, users, whole START objects.
 */
#include "supervisor/cli/request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

enum {
	OPTION_CWD,
	OPTION_ENV,
	OPTION_USER,
	OPTION_TIMEOUT,
	OPTION_BIND,
	OPTION_OVERLAY,
	OPTION_WAIT,
	OPTION_END
};

static const struct sp_cli_option options[] = {
	[OPTION_CWD] = {"cwd", 0, false, "DIR", ""},
	[OPTION_ENV] = {"env", 0, true, "NAME=VALUE", ""},
	[OPTION_USER] = {"user", 0, false, "UID", ""},
	[OPTION_TIMEOUT] = {"timeout", 0, false, "TIME", ""},
	[OPTION_BIND] = {"bind", 0, true, "SPEC", ""},
	[OPTION_OVERLAY] = {"overlay", 0, true, "SPEC", ""},
	[OPTION_WAIT] = {"wait", 0, false, "TIME", ""},
	[OPTION_END] = {0},
};

static const struct sp_cli_start_options start_options = {
	.cwd = &options[OPTION_CWD],
	.env = &options[OPTION_ENV],
	.user = &options[OPTION_USER],
	.timeout = &options[OPTION_TIMEOUT],
};

static const struct sp_cli_acquire_options acquire_options = {
	.wait = &options[OPTION_WAIT],
	.binds = &options[OPTION_BIND],
	.overlays = &options[OPTION_OVERLAY],
};

static struct sp_cli_given given[16];
static struct sp_cli_args args = {.given = given};
static struct sp_buf out;
static struct sp_err err;

static void give(int option, const char *value)
{
	given[args.given_count++] =
		(struct sp_cli_given){.option = &options[option], .value = value};
}

static int write_start(struct sp_cli_command command)
{
	struct sp_cli_json json;
	int status;

	sp_buf_init(&out, 1 << 20);
	sp_cli_json_init(&json, &out);
	sp_cli_json_open(&json, '{');
	status = sp_cli_write_start(&json, &args, &start_options, &command, &err);
	sp_cli_json_close(&json, '}');
	return status < 0 ? status : sp_cli_json_finish(&json, "the command", &err);
}

static int write_acquire(void)
{
	struct sp_cli_json json;
	int status;

	sp_buf_init(&out, 1 << 20);
	sp_cli_json_init(&json, &out);
	sp_cli_json_open(&json, '{');
	status = sp_cli_write_acquire(&json, &args, &acquire_options, &err);
	sp_cli_json_close(&json, '}');
	return status < 0 ? status : sp_cli_json_finish(&json, "the request", &err);
}

static int write_argv(const char *const *words)
{
	static char *argv[16];
	size_t count = 0;

	for (; words[count]; count++)
		argv[count] = (char *)(uintptr_t)words[count];
	return write_start((struct sp_cli_command){.argv = argv, .argc = count});
}

#define WRITE_ARGV(...) write_argv((const char *const[]){__VA_ARGS__, NULL})

static void teardown(void)
{
	sp_buf_done(&out);
}

TestSuite(cli_request, .fini = teardown);

/* ---- binds ---- */

static void assert_part(const char *text, const char *part, size_t len, const char *wanted)
{
	cr_assert(!part == !wanted, "%s", text);
	if (wanted)
		cr_assert(len == strlen(wanted) && strncmp(part, wanted, len) == 0, "%s", text);
}

static void assert_parts(const char *text, const struct sp_cli_bind *bind, const char *source,
			 const char *target, const char *mode, const char *size)
{
	assert_part(text, bind->source, bind->source_len, source);
	assert_part(text, bind->target, bind->target_len, target);
	assert_part(text, bind->size, bind->size_len, size);
	cr_assert_str_eq(bind->mode, mode, "%s", text);
}

static void assert_bind(const char *text, const char *source, const char *target, const char *mode,
			const char *size)
{
	struct sp_cli_bind bind;

	cr_assert(sp_cli_bind_parse(text, &bind, &err) == 0, "%s: %s", text, err.message);
	assert_parts(text, &bind, source, target, mode, size);
}

static void assert_overlay(const char *text, const char *source, const char *target,
			   const char *size)
{
	struct sp_cli_bind bind;

	cr_assert(sp_cli_overlay_parse(text, &bind, &err) == 0, "%s: %s", text, err.message);
	assert_parts(text, &bind, source, target, "overlay", size);
}

static void assert_refused(const char *text, const char *why)
{
	struct sp_cli_bind bind;

	cr_assert(sp_cli_bind_parse(text, &bind, &err) == -EINVAL, "%s", text);
	cr_assert(strstr(err.message, why), "%s: %s", text, err.message);
	cr_assert(strstr(err.message, text), "the message names the specification");
}

Test(cli_request, a_bind_has_up_to_three_parts)
{
	assert_bind("/srv/a", "/srv/a", NULL, "rw", NULL);
	assert_bind("/srv/a:/data", "/srv/a", "/data", "rw", NULL);
	assert_bind("/srv/a:/data:ro", "/srv/a", "/data", "ro", NULL);
	assert_bind("/srv/a:/data:rw", "/srv/a", "/data", "rw", NULL);
	assert_bind("/srv/a:ro", "/srv/a", NULL, "ro", NULL);
	assert_bind("/srv/a:rw", "/srv/a", NULL, "rw", NULL);
	assert_bind("/ro:/rw:ro", "/ro", "/rw", "ro", NULL);
	assert_bind("/", "/", NULL, "rw", NULL);
	assert_bind("/srv/a:/data:overlay", "/srv/a", "/data", "overlay", NULL);
	assert_bind("/srv/a:overlay=64MiB", "/srv/a", NULL, "overlay", "64MiB");
	assert_bind("/srv/a:/overlay:overlay=1", "/srv/a", "/overlay", "overlay", "1");
}

Test(cli_request, an_overlay_has_up_to_three_parts)
{
	static const char *const bad[] = {"",           "srv/a",       ":/data",
					  "/srv/a:",    "/srv/a::1",   "/srv/a:/b:/c",
					  "/srv/a:1:2", "/srv/a:1:/b", "/srv/a:/b:1:"};

	assert_overlay("/srv/a", "/srv/a", NULL, NULL);
	assert_overlay("/srv/a:/data", "/srv/a", "/data", NULL);
	assert_overlay("/srv/a:64MiB", "/srv/a", NULL, "64MiB");
	assert_overlay("/srv/a:/data:1GiB", "/srv/a", "/data", "1GiB");
	for (size_t i = 0; i < SP_ARRAY_SIZE(bad); i++) {
		struct sp_cli_bind bind;

		cr_assert(sp_cli_overlay_parse(bad[i], &bind, &err) == -EINVAL, "%s", bad[i]);
		cr_assert(strstr(err.message, "--overlay"), "%s", err.message);
	}
}

Test(cli_request, a_bind_that_is_no_bind_is_refused)
{
	assert_refused("", "absolute host path");
	assert_refused("srv/a:/data", "absolute host path");
	assert_refused(":/data", "absolute host path");
	assert_refused("/srv/a:", "neither an absolute target nor");
	assert_refused("/srv/a:data", "neither an absolute target nor");
	assert_refused("/srv/a:/data:", "neither ro, rw nor overlay");
	assert_refused("/srv/a:/data:RO", "neither ro, rw nor overlay");
	assert_refused("/srv/a:/data:rox", "neither ro, rw nor overlay");
	assert_refused("/srv/a:/data:overlay=", "neither ro, rw nor overlay");
	assert_refused("/srv/a:/data:ro=1", "neither ro, rw nor overlay");
	assert_refused("/srv/a:/b:/c", "neither ro, rw nor overlay");
	assert_refused("/srv/a:overlay:1", "behind the mode");
	assert_refused("/srv/a:ro:/data", "behind the mode");
	assert_refused("/srv/a:/data:ro:", "behind the mode");
	assert_refused("/srv/a:/data:ro:rw", "behind the mode");
}

Test(cli_request, binds_and_wait_become_members_of_an_acquire)
{
	give(OPTION_BIND, "/srv/a:/data:ro");
	give(OPTION_WAIT, "5s");
	give(OPTION_BIND, "/srv/b");
	cr_assert(write_acquire() == 0);
	cr_assert_str_eq(sp_buf_text(&out),
			 "{\"wait\":\"5s\",\"binds\":[{\"source\":\"/srv/a\",\"target\":\"/data\","
			 "\"mode\":\"ro\"},{\"source\":\"/srv/b\",\"mode\":\"rw\"}]}");
}

Test(cli_request, overlays_come_behind_the_other_binds)
{
	give(OPTION_OVERLAY, "/srv/o:/workspace:1MiB");
	give(OPTION_BIND, "/srv/b:overlay");
	cr_assert(write_acquire() == 0);
	cr_assert_str_eq(sp_buf_text(&out),
			 "{\"binds\":[{\"source\":\"/srv/b\",\"mode\":\"overlay\"},"
			 "{\"source\":\"/srv/o\",\"target\":\"/workspace\",\"mode\":\"overlay\","
			 "\"size\":\"1MiB\"}]}");
}

Test(cli_request, an_acquire_without_options_is_an_empty_object)
{
	cr_assert(write_acquire() == 0);
	cr_assert_str_eq(sp_buf_text(&out), "{}");
}

Test(cli_request, a_bad_bind_fails_the_acquire)
{
	give(OPTION_BIND, "relative");
	cr_assert(write_acquire() == -EINVAL);
}

/* ---- START ---- */

Test(cli_request, a_plain_command_is_its_argv)
{
	cr_assert(WRITE_ARGV("echo", "a b", "") == 0);
	cr_assert_str_eq(sp_buf_text(&out), "{\"argv\":[\"echo\",\"a b\",\"\"]}");
}

Test(cli_request, words_keep_quotes_newlines_and_unicode_b167)
{
	cr_assert(WRITE_ARGV("a\"b", "c\\d", "e\nf\tg\x01", "grüß 🙂", "-dash") == 0);
	cr_assert_str_eq(
		sp_buf_text(&out),
		"{\"argv\":[\"a\\\"b\",\"c\\\\d\",\"e\\nf\\u0009g\\u0001\",\"grüß 🙂\","
		"\"-dash\"]}");
}

Test(cli_request, a_word_that_is_not_utf8_is_named)
{
	cr_assert(WRITE_ARGV("echo", "\xff") == -EINVAL);
	cr_assert_str_eq(err.message, "word 2 of the command is not UTF-8");
}

Test(cli_request, every_option_of_a_start_has_its_member)
{
	char *argv[] = {(char[]){"sh"}};

	give(OPTION_CWD, "/workspace");
	give(OPTION_TIMEOUT, "3s");
	give(OPTION_ENV, "A=1");
	give(OPTION_ENV, "B=");
	give(OPTION_ENV, "C=x=y");
	give(OPTION_USER, "0:7");
	cr_assert(write_start((struct sp_cli_command){.argv = argv,
						      .argc = 1,
						      .stdin_open = true,
						      .tty = true,
						      .rows = 24,
						      .columns = 80}) == 0);
	cr_assert_str_eq(sp_buf_text(&out),
			 "{\"argv\":[\"sh\"],\"cwd\":\"/workspace\",\"timeout\":\"3s\","
			 "\"env\":{\"A\":\"1\",\"B\":\"\",\"C\":\"x=y\"},\"uid\":0,\"gid\":7,"
			 "\"stdin\":true,\"tty\":{\"rows\":24,\"columns\":80}}");
}

Test(cli_request, a_variable_without_value_is_taken_from_here)
{
	cr_assert(setenv("SP_TEST_VARIABLE", "from here", 1) == 0);
	give(OPTION_ENV, "SP_TEST_VARIABLE");
	cr_assert(WRITE_ARGV("true") == 0);
	cr_assert(strstr(sp_buf_text(&out), "\"SP_TEST_VARIABLE\":\"from here\""));
}

Test(cli_request, a_variable_that_is_not_set_here_is_refused)
{
	cr_assert(unsetenv("SP_TEST_VARIABLE") == 0);
	give(OPTION_ENV, "SP_TEST_VARIABLE");
	cr_assert(WRITE_ARGV("true") == -EINVAL);
	cr_assert(strstr(err.message, "not set here"));
}

Test(cli_request, a_variable_set_twice_is_refused_b206)
{
	give(OPTION_ENV, "A=1");
	give(OPTION_ENV, "AB=2");
	give(OPTION_ENV, "A=3");
	cr_assert(WRITE_ARGV("true") == -EINVAL);
	cr_assert(strstr(err.message, "'A=3' sets a variable that is set already"), "%s",
		  err.message);
}

Test(cli_request, names_that_begin_alike_are_two_variables)
{
	give(OPTION_ENV, "AB=1");
	give(OPTION_ENV, "A=2");
	cr_assert(WRITE_ARGV("true") == 0);
}

Test(cli_request, a_variable_needs_a_name)
{
	give(OPTION_ENV, "=x");
	cr_assert(WRITE_ARGV("true") == -EINVAL);
}

Test(cli_request, a_name_of_255_bytes_passes_and_of_256_does_not)
{
	char text[300];

	memset(text, 'N', sizeof(text));
	memcpy(text + 255, "=v", 3);
	give(OPTION_ENV, text);
	cr_assert(WRITE_ARGV("true") == 0);
	sp_buf_done(&out);
	memset(text, 'N', 256);
	memcpy(text + 256, "=v", 3);
	cr_assert(WRITE_ARGV("true") == -EINVAL);
}

Test(cli_request, a_user_alone_is_also_the_group)
{
	give(OPTION_USER, "1000");
	cr_assert(WRITE_ARGV("true") == 0);
	cr_assert(strstr(sp_buf_text(&out), "\"uid\":1000,\"gid\":1000"));
}

Test(cli_request, the_highest_user_passes_and_one_more_does_not)
{
	give(OPTION_USER, "4294967295");
	cr_assert(WRITE_ARGV("true") == 0);
	sp_buf_done(&out);
	args.given_count = 0;
	give(OPTION_USER, "4294967296");
	cr_assert(WRITE_ARGV("true") == -EINVAL);
}

Test(cli_request, a_user_that_is_none_is_refused_b205)
{
	static const char *const bad[] = {"",      "root", "12x", "1:", ":1",
					  "1:2:3", "-1",   "1e3", " 1"};

	for (size_t i = 0; i < SP_ARRAY_SIZE(bad); i++) {
		args.given_count = 0;
		give(OPTION_USER, bad[i]);
		cr_assert(WRITE_ARGV("true") == -EINVAL, "%s", bad[i]);
		sp_buf_done(&out);
	}
}

Test(cli_request, a_command_beyond_one_mebibyte_is_refused)
{
	size_t fits = (1 << 20) - strlen("{\"argv\":[\"\"]}");
	char *word = malloc(fits + 2);

	memset(word, 'w', fits + 1);
	word[fits] = '\0';
	cr_assert(write_start((struct sp_cli_command){.argv = &word, .argc = 1}) == 0);
	sp_buf_done(&out);
	word[fits] = 'w';
	word[fits + 1] = '\0';
	cr_assert(write_start((struct sp_cli_command){.argv = &word, .argc = 1}) == -E2BIG);
	cr_assert(err.code == SP_CODE_PAYLOAD_TOO_LARGE);
	free(word);
}
