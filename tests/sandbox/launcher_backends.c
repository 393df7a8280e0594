/*
 * The backend without namespaces, the unprivileged launcher, and limits that cannot be had.
 */
#include "tests/sandbox/launcher_harness.h"

#include "pool/base/fd.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define DIRECT_ID 4321u

static void skip_if_missing(void)
{
	if (play_missing())
		cr_skip_test("%s", play_missing());
}

TestSuite(launcher_backends, .init = skip_if_missing, .timeout = 120);

static void make_direct(struct sp_table_pool *pool)
{
	pool->flags = SP_POOL_F_DIRECT;
	pool->direct_uid = DIRECT_ID;
	pool->direct_gid = DIRECT_ID;
	pool->mount_count = 0;
	pool->filter_length = 0;
	pool->exec_filter_length = 0;
}

static bool same_namespace(pid_t pid, const char *name)
{
	char path[64];
	struct stat mine;
	struct stat theirs;

	(void)snprintf(path, sizeof(path), "/proc/%d/ns/%s", pid, name);
	cr_assert(stat(path, &theirs) == 0);
	(void)snprintf(path, sizeof(path), "/proc/self/ns/%s", name);
	cr_assert(stat(path, &mine) == 0);
	return mine.st_ino == theirs.st_ino;
}

Test(launcher_backends, direct_has_limits_and_no_namespaces)
{
	struct play play;
	struct play_sandbox sandbox;
	struct sp_table *table = play_table(&play, 1);
	struct sp_init_status status;
	char path[512];
	char text[256];
	struct stat info;
	pid_t pid;

	make_direct(play_pool(table, 0));
	play_start(&play, table);
	play_create(&play, 0, &sandbox);
	cr_assert(sandbox.host_workload_uid == DIRECT_ID);
	play_first_record(&sandbox, &status);
	cr_assert(status.header.type == SP_INIT_READY);
	pid = play_pid(sandbox.pidfd);
	cr_assert(same_namespace(pid, "pid") && same_namespace(pid, "user"));
	cr_assert(same_namespace(pid, "net"));
	(void)snprintf(path, sizeof(path), "/proc/%d", pid);
	cr_assert(stat(path, &info) == 0);
	(void)snprintf(path, sizeof(path), "/proc/%d/status", pid);
	(void)play_read(path, text, sizeof(text));
	(void)snprintf(path, sizeof(path), "/proc/%d/root/proc/version", pid);
	cr_assert(access(path, F_OK) == 0);
	play_cgroup_path(&sandbox, "pids", "pids.max", path, sizeof(path));
	cr_assert_str_eq(play_read(path, text, sizeof(text)), "64\n");
	(void)play_kill(&play, &sandbox);
	play_stop(&play);
	play_clean(&play);
	free(table);
}

static bool alive(pid_t pid)
{
	return kill(pid, 0) == 0 || errno != ESRCH;
}

/* Without a pid namespace nothing dies with init but init: the cgroup finds the rest. */
Test(launcher_backends, direct_leaves_no_process_behind)
{
	struct play play;
	struct play_sandbox sandbox;
	struct sp_table *table = play_table(&play, 1);
	struct sp_init_status status;
	char path[512];
	char text[64];
	pid_t stray;
	int ready[2];
	char byte;

	make_direct(play_pool(table, 0));
	play_start(&play, table);
	play_create(&play, 0, &sandbox);
	play_first_record(&sandbox, &status);
	cr_assert(pipe2(ready, O_CLOEXEC) == 0);
	stray = fork();
	if (stray == 0) {
		static const char *const controllers[] = {"pids", "memory", "cpu", "unified"};

		for (size_t i = 0; i < SP_ARRAY_SIZE(controllers); i++) {
			int fd;

			play_cgroup_path(&sandbox, controllers[i], "cgroup.procs", path,
					 sizeof(path));
			fd = open(path, O_WRONLY | O_CLOEXEC);
			if (fd >= 0)
				MUST(sp_write_all(fd, "0", 1) == 0);
		}
		MUST(write(ready[1], "R", 1) == 1);
		for (;;)
			(void)pause();
	}
	cr_assert(read(ready[0], &byte, 1) == 1);
	play_cgroup_path(&sandbox, "pids", "pids.current", path, sizeof(path));
	cr_assert(strtol(play_read(path, text, sizeof(text)), NULL, 10) == 2);
	/* A zombie of ours would keep the cgroup busy: nobody else can reap it. */
	(void)signal(SIGCHLD, SIG_IGN);
	(void)play_kill(&play, &sandbox);
	cr_assert(!alive(stray));
	(void)signal(SIGCHLD, SIG_DFL);
	play_stop(&play);
	play_clean(&play);
	free(table);
}

Test(launcher_backends, direct_binds_nothing)
{
	struct play play;
	struct play_sandbox sandbox;
	struct sp_table *table = play_table(&play, 1);
	struct sp_launcher_bind bind = {.header.type = SP_LAUNCHER_BIND};

	make_direct(play_pool(table, 0));
	play_pool(table, 0)->root_count = 1;
	(void)snprintf(play_pool(table, 0)->roots[0].path, 16, "/usr");
	play_start(&play, table);
	play_create(&play, 0, &sandbox);
	bind.slot = sandbox.slot;
	bind.serial = sandbox.serial;
	play_expect_failure(&play,
			    play_send(&play, &bind, offsetof(struct sp_launcher_bind, path) + 1),
			    -EOPNOTSUPP, NULL);
	(void)play_kill(&play, &sandbox);
	play_stop(&play);
	play_clean(&play);
	free(table);
}

/* B-039, B-228: cgroups that cannot be written. */
static void hide_cgroups(void)
{
	cr_assert(unshare(CLONE_NEWNS) == 0);
	cr_assert(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	while (umount2("/sys/fs/cgroup", MNT_DETACH) == 0)
		continue;
}

Test(launcher_backends, refuses_limits_that_cannot_be_enforced)
{
	struct play play;
	struct play_sandbox sandbox;
	struct play_answer answer;
	struct sp_table *table = play_table(&play, 2);

	hide_cgroups();
	play_pool(table, 1)->flags = SP_POOL_F_DEGRADED_OK;
	play_start(&play, table);
	play_expect_failure(&play, play_create_request(&play, 0, &sandbox), -EOPNOTSUPP, &answer);
	cr_assert_str_eq(answer.record.stage, "cgroup");
	cr_assert(strstr(answer.record.text, "'memory'"), "%s", answer.record.text);
	/* With the operator's leave it works, and says what is missing. */
	play_ready(&play, 1, &sandbox);
	cr_assert(sandbox.degraded == (SP_LIMIT_MEMORY | SP_LIMIT_PIDS | SP_LIMIT_CPU));
	play_expect_failure(
		&play,
		play_command(&play, SP_LAUNCHER_EXEC_CGROUP, sandbox.slot, sandbox.serial, 0),
		-EOPNOTSUPP, NULL);
	(void)play_kill(&play, &sandbox);
	sp_fd_close(&play.fd);
	cr_assert(waitpid(play.launcher, NULL, 0) == play.launcher);
	play_clean(&play);
	free(table);
}

Test(launcher_backends, works_for_an_ordinary_user)
{
	struct play play;
	struct play_sandbox sandbox;
	struct play_answer answer;
	struct sp_table *table = play_table(&play, 1);
	char output[512];
	char path[64];
	char text[128];
	unsigned int inside;
	unsigned int outside;
	unsigned int count;

	play.uid = 65534;
	cr_assert(chown(play.dir, play.uid, play.uid) == 0);
	table->uid_base = 0;
	play_pool(table, 0)->flags = SP_POOL_F_DEGRADED_OK;
	play_write_table(&play, table);
	play_exec(&play);
	play_expect(&play, SP_LAUNCHER_CONFIG, play_hello(&play), &answer);
	if (answer.record.status != 0)
		fprintf(stderr, "%s\n", answer.record.text);
	cr_assert(answer.record.status == 0);
	play_close(&answer);
	play_ready(&play, 0, &sandbox);
	cr_assert(sandbox.degraded != 0);
	(void)snprintf(path, sizeof(path), "/proc/%d/uid_map", play_pid(sandbox.pidfd));
	cr_assert(sscanf(play_read(path, text, sizeof(text)), "%u %u %u", &inside, &outside,
			 &count) == 3);
	cr_assert(inside == 0 && outside == 65534 && count == 1);
	cr_assert(play_shell(&sandbox, "id -u; head -c 4 /dev/zero | wc -c", output,
			     sizeof(output)) == 0);
	cr_assert_str_eq(output, "1000\n4\n");
	(void)play_kill(&play, &sandbox);
	sp_fd_close(&play.fd);
	cr_assert(waitpid(play.launcher, NULL, 0) == play.launcher);
	play_clean(&play);
	free(table);
}

/* B-058: a protected launcher makes no protected sandboxes. */
Test(launcher_backends, does_not_hand_down_its_oom_score)
{
	struct play play;
	struct play_sandbox sandbox;
	struct sp_table *table = play_table(&play, 1);
	char path[64];
	char text[64];
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	/* Raising is all that is allowed without CAP_SYS_RESOURCE. */
	cr_assert(fd >= 0 && sp_write_all(fd, "-500", 4) <= 0 && lseek(fd, 0, SEEK_SET) == 0);
	play_start(&play, table);
	play_ready(&play, 0, &sandbox);
	(void)snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", play_pid(sandbox.pidfd));
	cr_assert(play_read(path, text, sizeof(text))[0] != '-', "%s", text);
	sp_fd_close(&fd);
	(void)play_kill(&play, &sandbox);
	play_stop(&play);
	play_clean(&play);
	free(table);
}
