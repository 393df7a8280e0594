/*
 * RESULT objects and exit statuses.
 */
#include "supervisor/cli/outcome.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

static struct sp_cli_outcome outcome;
static struct sp_err err;
static char text[512];

static int parse(const char *json)
{
	return sp_cli_outcome_parse(json, strlen(json), &outcome, &err);
}

static int code_of(const char *json)
{
	cr_assert(parse(json) == 0, "%s: %s", json, err.message);
	return sp_cli_outcome_exit_code(&outcome);
}

Test(cli_outcome, an_exit_code_passes_through)
{
	cr_assert(code_of("{\"reason\":\"exited\",\"exit_code\":0,\"signal\":0}") == 0);
	cr_assert(code_of("{\"reason\":\"exited\",\"exit_code\":7,\"signal\":0}") == 7);
	cr_assert(code_of("{\"reason\":\"exited\",\"exit_code\":255,\"signal\":0}") == 255);
}

Test(cli_outcome, a_signal_is_128_more_b164)
{
	cr_assert(code_of("{\"reason\":\"signaled\",\"exit_code\":null,\"signal\":9}") == 137);
	cr_assert(code_of("{\"reason\":\"signaled\",\"exit_code\":null,\"signal\":1}") == 129);
	cr_assert(code_of("{\"reason\":\"signaled\",\"signal\":64}") == 192);
}

Test(cli_outcome, a_timeout_is_124_whatever_killed_it)
{
	cr_assert(code_of("{\"reason\":\"timeout\",\"exit_code\":null,\"signal\":9}") == 124);
	cr_assert(code_of("{\"reason\":\"timeout\",\"exit_code\":0,\"signal\":0}") == 124);
}

Test(cli_outcome, what_could_not_start_ends_as_in_a_shell)
{
	cr_assert(code_of("{\"reason\":\"start_failed\",\"exit_code\":127}") == 127);
	cr_assert(code_of("{\"reason\":\"start_failed\",\"exit_code\":126}") == 126);
	cr_assert(code_of("{\"reason\":\"start_failed\",\"exit_code\":null}") == 126);
	cr_assert(code_of("{\"reason\":\"start_failed\",\"exit_code\":0}") == 126);
}

Test(cli_outcome, every_other_kill_is_137_and_never_success)
{
	static const char *const reasons[] = {"memory", "output", "killed", "expired", "died"};
	char json[128];

	for (size_t i = 0; i < SP_ARRAY_SIZE(reasons); i++) {
		(void)snprintf(json, sizeof(json), "{\"reason\":\"%s\",\"exit_code\":0}",
			       reasons[i]);
		cr_assert(code_of(json) == 137, "%s", reasons[i]);
	}
}

Test(cli_outcome, a_reason_of_a_newer_daemon_is_our_error_b219)
{
	cr_assert(code_of("{\"reason\":\"evicted\",\"exit_code\":0}") == 125);
	cr_assert(sp_cli_outcome_describe(&outcome, text, sizeof(text)));
	cr_assert(strstr(text, "evicted"));
}

Test(cli_outcome, what_is_no_result_is_refused_b219)
{
	static const char *const bad[] = {
		"",
		"null",
		"[]",
		"7",
		"{",
		"{}",
		"{\"reason\":7}",
		"{\"reason\":\"exited\"}",
		"{\"reason\":\"exited\",\"exit_code\":null}",
		"{\"reason\":\"exited\",\"exit_code\":256}",
		"{\"reason\":\"exited\",\"exit_code\":-1}",
		"{\"reason\":\"exited\",\"exit_code\":\"0\"}",
		"{\"reason\":\"exited\",\"exit_code\":0.0}",
		"{\"reason\":\"signaled\",\"signal\":0}",
		"{\"reason\":\"signaled\",\"signal\":65}",
		"{\"reason\":\"exited\",\"exit_code\":0,\"exit_code\":1}",
		"{\"reason\":\"a reason that is longer than any\",\"exit_code\":0}",
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(bad); i++)
		cr_assert(parse(bad[i]) == -EPROTO, "%s", bad[i]);
}

Test(cli_outcome, an_ordinary_end_is_not_commented_on)
{
	cr_assert(parse("{\"reason\":\"exited\",\"exit_code\":1}") == 0);
	cr_assert(!sp_cli_outcome_describe(&outcome, text, sizeof(text)));
	cr_assert(parse("{\"reason\":\"signaled\",\"signal\":15}") == 0);
	cr_assert(!sp_cli_outcome_describe(&outcome, text, sizeof(text)));
}

Test(cli_outcome, a_kill_is_explained_with_its_time)
{
	cr_assert(parse("{\"reason\":\"timeout\",\"signal\":9,\"wall_ms\":3000.7}") == 0);
	cr_assert(sp_cli_outcome_describe(&outcome, text, sizeof(text)));
	cr_assert_str_eq(text, "killed: its time limit was reached (timeout after 3000 ms)");
}

Test(cli_outcome, a_failed_start_names_stage_and_errno_text)
{
	cr_assert(parse("{\"reason\":\"start_failed\",\"exit_code\":127,\"wall_ms\":1,"
			"\"stage\":\"exec\",\"message\":\"'nope': No such file or directory\"}") ==
		  0);
	cr_assert(sp_cli_outcome_describe(&outcome, text, sizeof(text)));
	cr_assert(strstr(text, "stage exec"));
	cr_assert(strstr(text, "'nope': No such file or directory"));
}
