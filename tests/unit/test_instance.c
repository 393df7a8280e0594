/*
 * The locks of an instance: what is left in the lock directory by whom, and who takes it away. In a
 * mount namespace of its own, with an empty /run.
 */
#include "supervisor/launcher/instance.h"

#include "pool/base/fd.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static char state_root[] = "/tmp/sandpool-instance-XXXXXX";

static void set_up(void)
{
	if (geteuid() != 0)
		cr_skip_test("needs root: a mount namespace");
	cr_assert(unshare(CLONE_NEWNS) == 0);
	cr_assert(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	cr_assert(mount("tmpfs", "/run", "tmpfs", 0, NULL) == 0);
	cr_assert(mount("tmpfs", "/tmp", "tmpfs", 0, NULL) == 0);
	cr_assert(mkdtemp(state_root) != NULL);
}

TestSuite(instance, .init = set_up);

static int lock(const char *name, struct sp_instance *ret_instance)
{
	struct sp_table table = {0};
	struct sp_err err = {0};

	(void)snprintf(table.instance, sizeof(table.instance), "%s", name);
	(void)snprintf(table.state_dir, sizeof(table.state_dir), "%s/%s", state_root, name);
	return sp_instance_lock(&table, 0, ret_instance, &err);
}

/* As the end of its process does, however that came. */
static void let_go(struct sp_instance *instance)
{
	sp_fd_close(&instance->lock_dir_fd);
	sp_fd_close(&instance->name_lock_fd);
	sp_fd_close(&instance->state_lock_fd);
}

static bool exists(const char *path)
{
	struct stat info;

	return stat(path, &info) == 0;
}

Test(instance, last_to_end_leaves_nothing)
{
	struct sp_instance first;
	struct sp_instance second;

	cr_assert(lock("first", &first) == 0);
	cr_assert(lock("second", &second) == 0);
	sp_instance_remove(&first);
	let_go(&first);
	cr_assert(!exists(SP_LOCK_DIR "/first.lock"));
	cr_assert(exists(SP_LOCK_DIR "/second.lock"), "it still runs");
	sp_instance_remove(&second);
	let_go(&second);
	cr_assert(!exists(SP_LOCK_DIR));
}

Test(instance, what_a_killed_one_left_goes_with_the_last)
{
	struct sp_instance killed;
	struct sp_instance other;

	cr_assert(lock("killed", &killed) == 0);
	let_go(&killed);
	cr_assert(exists(SP_LOCK_DIR "/killed.lock"));
	cr_assert(lock("other", &other) == 0);
	sp_instance_remove(&other);
	let_go(&other);
	cr_assert(!exists(SP_LOCK_DIR));
}

Test(instance, lock_of_one_that_runs_stays)
{
	struct sp_instance running;
	struct sp_instance ends;
	struct sp_instance again;

	cr_assert(lock("running", &running) == 0);
	cr_assert(lock("ends", &ends) == 0);
	sp_instance_remove(&ends);
	let_go(&ends);
	cr_assert(exists(SP_LOCK_DIR "/running.lock"));
	cr_assert_eq(lock("running", &again), -EALREADY);
	let_go(&running);
}

Test(instance, killed_one_starts_again)
{
	struct sp_instance killed;
	struct sp_instance again;

	cr_assert(lock("killed", &killed) == 0);
	let_go(&killed);
	cr_assert(lock("killed", &again) == 0, "a file without a holder locks nothing");
	sp_instance_remove(&again);
	let_go(&again);
	cr_assert(!exists(SP_LOCK_DIR));
}
