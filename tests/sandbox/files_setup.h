/*
 * What the tests of FILE share: one sandbox for each test, and programs in it that must not fail.
 */
#ifndef SP_TESTS_FILES_SETUP_H
#define SP_TESTS_FILES_SETUP_H

#include "tests/sandbox/file_channel.h"

#include <criterion/criterion.h>

static struct harness harness;
static struct harness_result result;
static struct file_reply reply;

static void set_up(void)
{
	if (init_harness_missing())
		cr_skip("%s", init_harness_missing());
	harness_ready(&harness, NULL);
}

static void tear_down(void)
{
	if (harness.launcher > 0)
		harness_stop(&harness);
}

static inline void shell(const char *script)
{
	harness_shell(&harness, script, &result);
	cr_assert(result.started && result.value == 0, "'%s' said %s", script, result.output);
}

static inline void python(const char *script)
{
	harness_python(&harness, script, &result);
	cr_assert(result.started && result.value == 0, "%s", result.output);
}

/* What a script says, however it ends. */
static inline const char *said(const char *script)
{
	harness_shell(&harness, script, &result);
	return result.output;
}

#endif
