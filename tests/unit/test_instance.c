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
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/time.h>
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

static struct sp_err err;

static int lock(const char *name, struct sp_instance *ret_instance)
{
	struct sp_table table = {0};

	err = (struct sp_err){0};
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

/* ---- a lock that is held ---- */

static int held_fd = -1;
static volatile sig_atomic_t gone;

static void hold(const char *path)
{
	held_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	cr_assert(held_fd >= 0 && flock(held_fd, LOCK_EX | LOCK_NB) == 0);
}

static void on_alarm(int number)
{
	SP_UNUSED(number);
	(void)close(held_fd);
	gone = 1;
}

static const char *state_lock(void)
{
	static char path[128];

	(void)snprintf(path, sizeof(path), "%s/late", state_root);
	(void)mkdir(path, 0755);
	(void)snprintf(path, sizeof(path), "%s/late/launcher.lock", state_root);
	return path;
}

static const char *name_lock(void)
{
	cr_assert(mkdir(SP_LOCK_DIR, 0700) == 0);
	return SP_LOCK_DIR "/late.lock";
}

static unsigned int open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned int count = 0;

	while (readdir(dir))
		count++;
	(void)closedir(dir);
	return count;
}

/* The holder goes while it is waited for: what a killed launcher has left behind. */
static void held_for_less(const char *path)
{
	const struct itimerval soon = {.it_value.tv_usec = 100000};
	struct sp_instance instance;

	hold(path);
	cr_assert(signal(SIGALRM, on_alarm) != SIG_ERR);
	cr_assert(setitimer(ITIMER_REAL, &soon, NULL) == 0);
	cr_assert_eq(lock("late", &instance), 0, "%s", err.message);
	cr_assert(gone, "it was not waited for");
	sp_instance_remove(&instance);
	let_go(&instance);
	cr_assert(!exists(SP_LOCK_DIR));
}

static void held_for_longer(const char *path)
{
	struct sp_instance instance;
	unsigned int before;
	char wanted[256];

	hold(path);
	before = open_descriptors();
	cr_assert_eq(lock("late", &instance), -EALREADY);
	(void)snprintf(wanted, sizeof(wanted), "another launcher holds '%s': an instance runs once",
		       path);
	cr_assert_str_eq(err.message, wanted);
	cr_assert_eq(err.code, SP_CODE_CONFLICT);
	cr_assert_eq(open_descriptors(), before, "nothing stays open");
	/* Nothing stays locked, either. */
	(void)close(held_fd);
	cr_assert_eq(lock("late", &instance), 0);
	sp_instance_remove(&instance);
	let_go(&instance);
	cr_assert(!exists(SP_LOCK_DIR));
}

Test(instance, state_directory_held_for_less_than_the_wait)
{
	held_for_less(state_lock());
}

Test(instance, state_directory_held_for_longer)
{
	held_for_longer(state_lock());
}

Test(instance, name_held_for_less_than_the_wait)
{
	held_for_less(name_lock());
}

Test(instance, name_held_for_longer)
{
	held_for_longer(name_lock());
}
