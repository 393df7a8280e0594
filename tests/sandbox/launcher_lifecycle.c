/*
 * Creating, killing and cleaning up, with the real launcher, the real init and the real kernel.
 */
#include "tests/sandbox/launcher_harness.h"

#include "pool/base/fd.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

static void skip_if_missing(void)
{
	if (play_missing())
		cr_skip_test("%s", play_missing());
}

TestSuite(launcher, .init = skip_if_missing, .timeout = 120);

Test(launcher, creates_kills_and_reports_gone)
{
	struct play play;
	struct play_sandbox sandbox;
	char output[256];
	struct sp_table *table = play_table(&play, 1);
	uint32_t status;

	play_start(&play, table);
	play_ready(&play, 0, &sandbox);
	cr_assert(play_shell(&sandbox, "id -u; cat /etc/passwd | head -1", output,
			     sizeof(output)) == 0);
	cr_assert_str_eq(output, "1000\nroot:x:0:0::/:/bin/sh\n");
	cr_assert(play_cgroups(&play) > 0);
	status = play_kill(&play, &sandbox);
	cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "status %x", status);
	cr_assert(play_cgroups(&play) == 0);
	play_stop(&play);
	play_clean(&play);
	free(table);
}
