/*
 * What the tests of FILE share: one sandbox for each test, and programs in it that must not fail.
 */
#ifndef SP_TESTS_FILES_SETUP_H
#define SP_TESTS_FILES_SETUP_H

#include "tests/sandbox/file_channel.h"
#include "tests/sandbox/init_setup.h"

static struct harness_result result;
static struct file_reply reply;

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
