/*
 * Creating, killing and cleaning up, with the real launcher, the real init and the real kernel.
 */
#include "tests/sandbox/launcher_harness.h"

#include "pool/base/fd.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void skip_if_missing(void)
{
	if (play_missing())
		cr_skip_test("%s", play_missing());
}

TestSuite(launcher, .init = skip_if_missing, .timeout = 120);

/* The usual beginning and end of a test. */
static void begin(struct play *play)
{
	struct sp_table *table = play_table(play, 1);

	play_start(play, table);
	free(table);
}

static void end(struct play *play)
{
	play_stop(play);
	play_clean(play);
}

static uint64_t read_number(const struct play_sandbox *sandbox, const char *controller,
			    const char *file)
{
	char path[512];
	char text[64];

	play_cgroup_path(sandbox, controller, file, path, sizeof(path));
	return strtoull(play_read(path, text, sizeof(text)), NULL, 10);
}

Test(launcher, creates_kills_and_reports_gone)
{
	struct play play;
	struct play_sandbox sandbox;
	char output[256];
	uint32_t status;

	begin(&play);
	play_ready(&play, 0, &sandbox);
	cr_assert(play_shell(&sandbox, "id -u; head -1 /etc/passwd; readlink /etc/mtab", output,
			     sizeof(output)) == 0);
	cr_assert_str_eq(output, "1000\nroot:x:0:0::/:/bin/sh\n/proc/self/mounts\n");
	status = play_kill(&play, &sandbox);
	cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "status %x", status);
	cr_assert(play_cgroups(&play) == 0);
	end(&play);
}

Test(launcher, gives_each_sandbox_a_range_of_its_own)
{
	struct play play;
	struct play_sandbox a;
	struct play_sandbox b;
	char path[64];
	char text[128];
	unsigned int inside;
	unsigned int outside;
	unsigned int count;

	begin(&play);
	play_ready(&play, 0, &a);
	play_ready(&play, 0, &b);
	cr_assert(a.host_uid_base >= PLAY_UID_BASE &&
		  a.host_workload_uid == a.host_uid_base + 1000);
	cr_assert(a.host_uid_base + 65536 <= b.host_uid_base ||
		  b.host_uid_base + 65536 <= a.host_uid_base);
	for (int i = 0; i < 2; i++) {
		(void)snprintf(path, sizeof(path), "/proc/%d/%s", play_pid(a.pidfd),
			       i == 0 ? "uid_map" : "gid_map");
		cr_assert(sscanf(play_read(path, text, sizeof(text)), "%u %u %u", &inside, &outside,
				 &count) == 3);
		cr_assert(inside == 0 && outside == a.host_uid_base && count == 65536);
	}
	end(&play);
}

Test(launcher, writes_every_limit)
{
	struct play play;
	struct play_sandbox sandbox;
	struct sp_table *table = play_table(&play, 2);
	char path[64];
	char text[64];

	if (access("/sys/fs/cgroup/memory", F_OK) != 0)
		cr_skip_test("asserts the v1 file names");
	/* B-040: the next sandbox must not have the previous one's. */
	play_pool(table, 1)->memory_bytes = 0;
	play_pool(table, 1)->pids = 0;
	play_start(&play, table);
	play_ready(&play, 0, &sandbox);
	cr_assert(sandbox.degraded == 0);
	cr_assert(read_number(&sandbox, "memory", "memory.limit_in_bytes") == 256u << 20);
	if (access("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes", F_OK) == 0)
		cr_assert(read_number(&sandbox, "memory", "memory.memsw.limit_in_bytes") ==
			  256u << 20);
	cr_assert(read_number(&sandbox, "pids", "pids.max") == 64);
	cr_assert(read_number(&sandbox, "cpu", "cpu.cfs_quota_us") == 100000);
	cr_assert(read_number(&sandbox, "memory", "cgroup.procs") ==
		  (uint64_t)play_pid(sandbox.pidfd));
	cr_assert(read_number(&sandbox, "pids", "cgroup.procs") ==
		  (uint64_t)play_pid(sandbox.pidfd));
	(void)snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", play_pid(sandbox.pidfd));
	cr_assert_str_eq(play_read(path, text, sizeof(text)), "0\n");
	(void)play_kill(&play, &sandbox);
	play_ready(&play, 1, &sandbox);
	play_cgroup_path(&sandbox, "pids", "pids.max", path, sizeof(path));
	cr_assert(read_number(&sandbox, "memory", "memory.limit_in_bytes") > 256u << 20);
	end(&play);
	free(table);
}

Test(launcher, reports_a_death_that_nobody_asked_for)
{
	struct play play;
	struct play_sandbox sandbox;

	begin(&play);
	play_ready(&play, 0, &sandbox);
	cr_assert(pidfd_send_signal(sandbox.pidfd, SIGKILL, NULL, 0) == 0);
	(void)play_gone(&play, &sandbox, 0);
	/* Our end closed: init exits by itself. */
	play_ready(&play, 0, &sandbox);
	sp_fd_close(&sandbox.control_fd);
	(void)play_gone(&play, &sandbox, 0);
	end(&play);
}

Test(launcher, refuses_a_kill_of_what_is_not_there)
{
	struct play play;
	struct play_sandbox sandbox;
	uint64_t request;

	begin(&play);
	play_ready(&play, 0, &sandbox);
	request = play_command(&play, SP_LAUNCHER_KILL, sandbox.slot + 1, sandbox.serial, 0);
	play_expect_failure(&play, request, -ESRCH, NULL);
	request = play_command(&play, SP_LAUNCHER_KILL, UINT32_MAX, sandbox.serial, 0);
	play_expect_failure(&play, request, -ESRCH, NULL);
	request = play_command(&play, SP_LAUNCHER_KILL, sandbox.slot, sandbox.serial + 1, 0);
	play_expect_failure(&play, request, -ESRCH, NULL);
	(void)play_kill(&play, &sandbox);
	request = play_command(&play, SP_LAUNCHER_KILL, sandbox.slot, sandbox.serial, 0);
	play_expect_failure(&play, request, -ESRCH, NULL);
	end(&play);
}

Test(launcher, never_reuses_a_serial)
{
	struct play play;
	struct play_sandbox a;
	struct play_sandbox b;

	begin(&play);
	play_create(&play, 0, &a);
	(void)play_kill(&play, &a);
	play_create(&play, 0, &b);
	cr_assert(a.slot == b.slot && a.serial != b.serial);
	end(&play);
}

Test(launcher, refuses_the_first_above_max_sandboxes)
{
	struct play play;
	struct play_sandbox a;
	struct play_sandbox b;
	struct sp_table *table = play_table(&play, 1);

	play_pool(table, 0)->max_sandboxes = 2;
	play_start(&play, table);
	play_create(&play, 0, &a);
	play_create(&play, 0, &b);
	play_expect_failure(&play, play_create_request(&play, 0, &b), -EAGAIN, NULL);
	(void)play_kill(&play, &a);
	play_create(&play, 0, &a);
	end(&play);
	free(table);
}

Test(launcher, refuses_the_first_above_uid_slots)
{
	struct play play;
	struct play_sandbox a;
	struct play_sandbox b;
	struct play_answer answer;
	struct sp_table *table = play_table(&play, 1);

	table->uid_count = 2;
	table->uid_base = PLAY_UID_BASE + 0x1000000;
	play_start(&play, table);
	play_create(&play, 0, &a);
	play_create(&play, 0, &b);
	play_expect_failure(&play, play_create_request(&play, 0, &b), -EAGAIN, &answer);
	cr_assert_str_eq(answer.record.stage, "uid_slot");
	(void)play_kill(&play, &a);
	play_create(&play, 0, &a);
	end(&play);
	free(table);
}

Test(launcher, shares_uid_ranges_with_another_instance)
{
	struct play first;
	struct play second;
	struct play_sandbox a;
	struct play_sandbox b;
	struct play_sandbox none;
	struct sp_table *table = play_table(&first, 1);

	table->uid_count = 2;
	table->uid_base = PLAY_UID_BASE + 0x2000000;
	play_start(&first, table);
	second = first;
	play_append(second.dir, sizeof(second.dir), "b");
	play_append(second.instance, sizeof(second.instance), "b");
	cr_assert(mkdir(second.dir, 0755) == 0);
	play_append(table->instance, sizeof(table->instance), "b");
	(void)snprintf(table->state_dir, sizeof(table->state_dir), "%s/state", second.dir);
	play_start(&second, table);
	play_create(&first, 0, &a);
	play_create(&second, 0, &b);
	cr_assert(a.host_uid_base != b.host_uid_base);
	play_expect_failure(&first, play_create_request(&first, 0, &none), -EAGAIN, NULL);
	/* What is the other's is left alone. */
	(void)play_kill(&first, &a);
	play_stop(&first);
	cr_assert(!play_wait_end(b.pidfd, 0));
	end(&second);
	play_clean(&first);
	free(table);
}

Test(launcher, refuses_bad_ids_pools_and_generations)
{
	struct play play;
	struct play_sandbox sandbox;
	struct sp_launcher_create create = {
		.header.type = SP_LAUNCHER_CREATE,
		.generation = PLAY_GENERATION,
	};

	begin(&play);
	play_create(&play, 0, &sandbox);
	play_expect_failure(&play, play_send(&play, &create, sizeof(create)), -EINVAL, NULL);
	memcpy(create.id, "../../../../../../xy", 20);
	play_expect_failure(&play, play_send(&play, &create, sizeof(create)), -EINVAL, NULL);
	memset(create.id, 'a', sizeof(create.id));
	play_expect_failure(&play, play_send(&play, &create, sizeof(create)), -EINVAL, NULL);
	memcpy(create.id, sandbox.id, sizeof(create.id));
	create.pool_index = 1;
	play_expect_failure(&play, play_send(&play, &create, sizeof(create)), -ENOENT, NULL);
	create.pool_index = 0;
	create.generation++;
	play_expect_failure(&play, play_send(&play, &create, sizeof(create)), -ESTALE, NULL);
	create.generation--;
	/* A second one of the same id fails and does not hurt the first. */
	play_expect_failure(&play, play_send(&play, &create, sizeof(create)), -EEXIST, NULL);
	cr_assert(!play_wait_end(sandbox.pidfd, 0) && play_cgroups(&play) > 0);
	(void)play_kill(&play, &sandbox);
	end(&play);
}

Test(launcher, loss_of_the_daemon_kills_everything)
{
	struct play play;
	struct play_sandbox sandboxes[5];

	begin(&play);
	for (size_t i = 0; i < 5; i++)
		play_ready(&play, 0, &sandboxes[i]);
	/* Some more on the way, in every stage. */
	for (size_t i = 0; i < 20; i++) {
		struct play_sandbox more;

		(void)play_create_request(&play, 0, &more);
	}
	play_stop(&play);
	for (size_t i = 0; i < 5; i++)
		cr_assert(play_wait_end(sandboxes[i].pidfd, 0));
	play_clean(&play);
}

Test(launcher, sigterm_kills_everything_and_says_gone)
{
	struct play play;
	struct play_sandbox sandbox;
	int status;

	begin(&play);
	play_ready(&play, 0, &sandbox);
	cr_assert(kill(play.launcher, SIGTERM) == 0);
	(void)play_gone(&play, &sandbox, 0);
	cr_assert(waitpid(play.launcher, &status, 0) == play.launcher && status == 0);
	cr_assert(play_cgroups(&play) == 0);
	sp_fd_close(&play.fd);
	play_clean(&play);
}

Test(launcher, its_death_kills_everything_and_the_next_start_sweeps)
{
	struct play play;
	struct play_sandbox sandboxes[4];
	struct sp_table *table = play_table(&play, 1);

	play_start(&play, table);
	for (size_t i = 0; i < 4; i++)
		play_ready(&play, 0, &sandboxes[i]);
	cr_assert(kill(play.launcher, SIGKILL) == 0);
	cr_assert(waitpid(play.launcher, NULL, 0) == play.launcher);
	for (size_t i = 0; i < 4; i++) {
		cr_assert(play_wait_end(sandboxes[i].pidfd, 2000));
		sp_fd_close(&sandboxes[i].control_fd);
	}
	sp_fd_close(&play.fd);
	cr_assert(play_cgroups(&play) > 0);
	play_start(&play, table);
	cr_assert(play_cgroups(&play) == 0);
	play_ready(&play, 0, &sandboxes[0]);
	end(&play);
	free(table);
}

/* B-071: SIGKILL during a storm of creations leaves nothing behind. */
Test(launcher, its_death_during_a_storm_leaves_no_process)
{
	struct play play;
	struct sp_table *table = play_table(&play, 1);

	for (int round = 0; round < 20; round++) {
		struct play_sandbox sandbox;
		char path[160];
		char text[64] = "";

		play_start(&play, table);
		for (int i = 0; i < 20; i++)
			(void)play_create_request(&play, 0, &sandbox);
		(void)usleep((useconds_t)round * 500);
		cr_assert(kill(play.launcher, SIGKILL) == 0);
		cr_assert(waitpid(play.launcher, NULL, 0) == play.launcher);
		sp_fd_close(&play.fd);
		/* Whoever is in the middle of its birth needs a moment. */
		(void)snprintf(path, sizeof(path), "/sys/fs/cgroup/pids/sandpool/%s/pids.current",
			       play.instance);
		for (int i = 0; i < 400; i++) {
			if (strtol(play_read(path, text, sizeof(text)), NULL, 10) == 0)
				break;
			(void)usleep(5000);
		}
		cr_assert(strtol(text, NULL, 10) == 0, "processes left: %s", text);
	}
	play_start(&play, table);
	end(&play);
	free(table);
}

Test(launcher, a_second_one_of_the_instance_is_refused)
{
	struct play play;
	struct play second;
	struct play_answer answer;
	struct play_sandbox sandbox;
	struct sp_table *table = play_table(&play, 1);
	char text[512] = "";

	play_start(&play, table);
	play_ready(&play, 0, &sandbox);
	second = play;
	/* Another state directory does not make it another instance. */
	play_append(table->state_dir, sizeof(table->state_dir), "2");
	play_write_table(&second, table);
	play_exec(&second);
	play_expect(&second, SP_LAUNCHER_CONFIG, play_hello(&second), &answer);
	cr_assert(answer.record.status == -EALREADY && answer.fd_count == 1);
	cr_assert(pread(answer.fds[0], text, sizeof(text) - 1, 0) > 0);
	cr_assert(strstr(text, "another launcher holds"), "%s", text);
	play_close(&answer);
	sp_fd_close(&second.fd);
	cr_assert(waitpid(second.launcher, NULL, 0) == second.launcher);
	cr_assert(!play_wait_end(sandbox.pidfd, 0) && play_cgroups(&play) > 0);
	end(&play);
	free(table);
}

/* B-022, B-058, B-069: nothing of the launcher's own process comes along. */
Test(launcher, hands_down_nothing_of_its_own)
{
	const gid_t groups[] = {4, 24};
	struct play play;
	struct play_sandbox sandbox;
	char path[64];
	char text[4096];

	cr_assert(setgroups(2, groups) == 0);
	cr_assert(signal(SIGCHLD, SIG_IGN) != SIG_ERR && signal(SIGUSR1, SIG_IGN) != SIG_ERR);
	begin(&play);
	cr_assert(signal(SIGCHLD, SIG_DFL) != SIG_ERR);
	play_ready(&play, 0, &sandbox);
	(void)snprintf(path, sizeof(path), "/proc/%d/status", play_pid(sandbox.pidfd));
	(void)play_read(path, text, sizeof(text));
	cr_assert(strstr(text, "\nGroups:\t \n"), "%s", text);
	cr_assert((strtoull(strstr(text, "SigIgn:") + 7, NULL, 16) &
		   (1ull << (SIGCHLD - 1) | 1ull << (SIGUSR1 - 1))) == 0,
		  "%s", text);
	(void)play_kill(&play, &sandbox);
	end(&play);
}

/* B-064, and the promise that a kill needs no thaw. */
Test(launcher, kills_a_frozen_sandbox)
{
	struct play play;
	struct play_sandbox sandbox;
	struct play_answer answer;
	uint64_t request;

	begin(&play);
	play_ready(&play, 0, &sandbox);
	request = play_command(&play, SP_LAUNCHER_FREEZE, sandbox.slot, sandbox.serial, 1);
	play_receive(&play, &answer);
	if (answer.record.status == -EOPNOTSUPP)
		cr_skip_test("no cgroup v2 here");
	cr_assert(answer.record.header.type == SP_LAUNCHER_DONE &&
		  answer.record.header.request == request);
	cr_assert(read_number(&sandbox, "unified", "cgroup.freeze") == 1);
	request = play_command(&play, SP_LAUNCHER_FREEZE, sandbox.slot, sandbox.serial, 0);
	play_expect(&play, SP_LAUNCHER_DONE, request, &answer);
	cr_assert(read_number(&sandbox, "unified", "cgroup.freeze") == 0);
	request = play_command(&play, SP_LAUNCHER_FREEZE, sandbox.slot, sandbox.serial, 2);
	play_expect_failure(&play, request, -EINVAL, NULL);
	request = play_command(&play, SP_LAUNCHER_FREEZE, sandbox.slot, sandbox.serial, 1);
	play_expect(&play, SP_LAUNCHER_DONE, request, &answer);
	(void)play_kill(&play, &sandbox);
	end(&play);
}

static unsigned long cpu_ticks(pid_t pid)
{
	char path[64];
	char text[512];
	const char *field;
	unsigned long user = 0;
	unsigned long system = 0;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	field = strrchr(play_read(path, text, sizeof(text)), ')');
	cr_assert(field && sscanf(field, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
				  &user, &system) == 2);
	return user + system;
}

/* B-241: the daemon still holds the pidfd of what has ended; epoll must have forgotten it. */
Test(launcher, does_not_spin_on_what_has_ended)
{
	struct play play;
	struct play_sandbox sandbox;
	struct play_sandbox held;
	unsigned long before;

	begin(&play);
	play_ready(&play, 0, &sandbox);
	held = sandbox;
	held.pidfd = dup(sandbox.pidfd);
	held.control_fd = dup(sandbox.control_fd);
	(void)play_kill(&play, &sandbox);
	before = cpu_ticks(play.launcher);
	(void)usleep(500000);
	cr_assert(cpu_ticks(play.launcher) - before <= 2, "%lu ticks",
		  cpu_ticks(play.launcher) - before);
	end(&play);
	sp_fd_close(&held.pidfd);
	sp_fd_close(&held.control_fd);
}

/* B-065: one cgroup removed by hand costs one sandbox at most. */
Test(launcher, survives_a_cgroup_that_vanishes)
{
	struct play play;
	struct play_sandbox a;
	struct play_sandbox b;
	char path[512];

	begin(&play);
	play_ready(&play, 0, &a);
	play_ready(&play, 0, &b);
	cr_assert(pidfd_send_signal(a.pidfd, SIGSTOP, NULL, 0) == 0);
	play_cgroup_path(&a, "pids", "", path, sizeof(path));
	cr_assert(rmdir(path) < 0); /* busy: it lives */
	(void)play_kill(&play, &a);
	(void)play_kill(&play, &b);
	end(&play);
}

/* While no sandbox lives, whoever tidies up can take the instance's own one away. */
Test(launcher, makes_a_base_cgroup_that_vanished_anew)
{
	static const char *const hierarchies[] = {"memory", "pids", "cpu", "unified"};
	struct play play;
	struct play_sandbox sandbox;
	char path[512];
	char *id;

	begin(&play);
	play_ready(&play, 0, &sandbox);
	(void)play_kill(&play, &sandbox);
	for (size_t i = 0; i < SP_ARRAY_SIZE(hierarchies); i++) {
		play_cgroup_path(&sandbox, hierarchies[i], "", path, sizeof(path));
		id = strstr(path, sandbox.id);
		cr_assert_not_null(id);
		*id = '\0';
		(void)rmdir(path);
	}
	cr_assert(!play_has_cgroups(&play));
	play_ready(&play, 0, &sandbox);
	(void)play_kill(&play, &sandbox);
	end(&play);
}

/* B-077: a removal that cannot succeed blocks nobody. */
Test(launcher, a_stuck_removal_blocks_no_other)
{
	struct play play;
	struct play_sandbox stuck;
	struct play_sandbox other;
	char path[512];
	uint64_t kill_stuck;
	struct play_answer answer;

	begin(&play);
	play_ready(&play, 0, &stuck);
	play_cgroup_path(&stuck, "pids", "held", path, sizeof(path));
	cr_assert(mkdir(path, 0755) == 0); /* v1: nobody removes children there */
	kill_stuck = play_command(&play, SP_LAUNCHER_KILL, stuck.slot, stuck.serial, 0);
	for (int i = 0; i < 20; i++) {
		play_ready(&play, 0, &other);
		(void)play_kill(&play, &other);
	}
	/* Suspect: told so, its slot set aside. */
	play_expect(&play, SP_LAUNCHER_GONE, kill_stuck, &answer);
	cr_assert(answer.record.status == -EBUSY && answer.record.slot == stuck.slot);
	cr_assert(rmdir(path) == 0);
	play_stop(&play);
	play_clean(&play);
}

/* B-063, B-078, B-079, B-083 */
/* A creation that finds no room for its descriptors would be a sandbox that nobody can kill. */
Test(launcher, refuses_creations_before_descriptors_end)
{
	const struct rlimit few = {96, 96};
	struct sp_table *table;
	struct play play;
	struct play_sandbox sandboxes[48];
	struct play_answer answer = {0};
	uint64_t request = 0;
	size_t count = 0;

	table = play_table(&play, 1);
	play_pool(table, 0)->max_sandboxes = SP_ARRAY_SIZE(sandboxes);
	cr_assert(setrlimit(RLIMIT_NOFILE, &few) == 0);
	play_start(&play, table);
	while (count < SP_ARRAY_SIZE(sandboxes)) {
		request = play_create_request(&play, 0, &sandboxes[count]);
		play_receive(&play, &answer);
		cr_assert(answer.record.header.request == request);
		if (answer.record.header.type != SP_LAUNCHER_CREATED)
			break;
		sandboxes[count].slot = answer.record.slot;
		sandboxes[count].serial = answer.record.serial;
		sandboxes[count].pidfd = answer.fds[0];
		sandboxes[count].control_fd = answer.fds[1];
		count++;
	}
	cr_assert(count > 10 && count < SP_ARRAY_SIZE(sandboxes));
	cr_assert(answer.record.header.type == SP_LAUNCHER_CREATE_FAILED);
	cr_assert(answer.record.status == -EMFILE, "%s", answer.record.stage);
	cr_assert(play_fd_count(play.launcher) <= 82);
	request = play_command(&play, SP_LAUNCHER_EXEC_CGROUP, sandboxes[0].slot,
			       sandboxes[0].serial, 0);
	play_expect_failure(&play, request, -EAGAIN, NULL);
	(void)play_kill(&play, &sandboxes[--count]);
	(void)play_kill(&play, &sandboxes[--count]);
	play_create(&play, 0, &sandboxes[count++]);
	while (count > 0)
		(void)play_kill(&play, &sandboxes[--count]);
	play_stop(&play);
	play_clean(&play);
	free(table);
}

Test(launcher, a_thousand_cycles_leave_nothing)
{
	struct play play;
	struct play_sandbox sandbox;
	int mounts = play_mount_lines();
	int descriptors;

	begin(&play);
	play_ready(&play, 0, &sandbox);
	(void)play_kill(&play, &sandbox);
	descriptors = play_fd_count(play.launcher);
	for (int i = 0; i < 1000; i++) {
		/* Half are killed in the middle of their birth. */
		if (i % 2 == 0)
			play_ready(&play, 0, &sandbox);
		else
			play_create(&play, 0, &sandbox);
		(void)play_kill(&play, &sandbox);
	}
	cr_assert(play_fd_count(play.launcher) == descriptors);
	cr_assert(play_cgroups(&play) == 0);
	cr_assert(play_mount_lines() == mounts);
	end(&play);
}
