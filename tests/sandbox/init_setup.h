/*
 * What most tests of init share: a sandbox of its own for each test.
 */
#ifndef SP_TESTS_INIT_SETUP_H
#define SP_TESTS_INIT_SETUP_H

#include "tests/sandbox/init_harness.h"

#include <criterion/criterion.h>

static struct harness harness;

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

#endif
