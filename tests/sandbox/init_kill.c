/*
 * Killing, and workloads that attack the way programs are started: nothing that runs inside may
 * make PID 1 wait.
 */
#include "tests/sandbox/init_setup.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define STORM_EXECS   2000u /* SP_INIT_STORM overrides */
#define STORM_AT_ONCE 16u
#define PATIENCE_MS   20 /* after this a program that a storm has stopped is killed */

static struct harness_result result;

TestSuite(init_kill, .init = set_up, .fini = tear_down);
TestSuite(init_storm, .init = set_up, .fini = tear_down, .timeout = 280);

static void write_text(const char *path, long number)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	cr_assert(fd >= 0, "%s", path);
	cr_assert(dprintf(fd, "%ld", number) > 0, "%s: %s", path, strerror(errno));
	cr_assert_eq(close(fd), 0);
}

static bool file_is_empty(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char byte;
	bool empty = read(fd, &byte, 1) == 0;

	(void)close(fd);
	return empty;
}

/* Start a shell script on /dev/null and wait for STARTED. */
static uint32_t start(const char *script)
{
	const char *const argv[] = {"/bin/sh", "-c", script, NULL};
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	const int fds[3] = {null_fd, null_fd, null_fd};
	uint32_t exec = harness_exec(&harness, &(struct harness_exec){.argv = argv}, fds, 3);
	union harness_answer answer;

	(void)close(null_fd);
	harness_expect(&harness, SP_INIT_STARTED, &answer);
	return exec;
}

static int kill_exec(uint32_t exec)
{
	union harness_answer answer;
	bool exited = false;
	int fd;

	harness_plain(&harness, SP_INIT_KILL_EXEC, exec);
	do {
		cr_assert(harness_receive(&harness, &answer, &fd, HARNESS_WAIT_MS) > 0);
		exited = exited || answer.header.type == SP_INIT_EXITED;
	} while (answer.header.type != SP_INIT_KILLED);
	cr_assert(exited == (answer.status.status == 0), "exited %d, stage '%s': %s", exited,
		  answer.status.stage, strerror(-answer.status.status));
	return answer.status.status;
}

static void expect_alone(void)
{
	/* By the shell itself: programs of a pipe begin one after the other. init and the shell. */
	harness_shell(&harness, "set -- /proc/[0-9]*; echo $#", &result);
	cr_assert_str_eq(result.output, "2\n", "%s%s", result.output, result.stage);
}

Test(init_kill, takes_everything_that_hid)
{
	uint32_t exec = start("setsid sh -c 'setsid sleep 1000 & sleep 1000' & sleep 1000 & "
			      "trap '' TERM HUP; while :; do sleep 1; done");

	cr_assert_eq(kill_exec(exec), 0);
	expect_alone();
}

Test(init_kill, is_refused_while_another_runs)
{
	uint32_t first = start("sleep 1000");
	uint32_t second = start("sleep 1000");

	cr_assert_eq(kill_exec(first), -EBUSY);
	cr_assert_eq(kill_exec(second), -EBUSY);
	(void)harness_ping(&harness);
}

Test(init_kill, is_refused_when_an_earlier_one_left_something)
{
	harness_shell(&harness, "sleep 1000 >/dev/null 2>&1 &", &result);
	cr_assert_eq(kill_exec(start("sleep 1000")), -EBUSY);
}

Test(init_kill, is_possible_again_when_the_leftovers_are_gone)
{
	union harness_answer answer;
	uint32_t first = start("exec sleep 1000");
	uint32_t second = start("exec sleep 1000");

	harness_signal(&harness, first, SIGKILL);
	harness_expect(&harness, SP_INIT_EXITED, &answer);
	harness_signal(&harness, second, SIGKILL);
	harness_expect(&harness, SP_INIT_EXITED, &answer);
	cr_assert_eq(kill_exec(start("sleep 1000")), 0);
}

Test(init_kill, an_unknown_exec_is_told)
{
	union harness_answer answer;

	harness_plain(&harness, SP_INIT_KILL_EXEC, 4711);
	harness_expect(&harness, SP_INIT_KILLED, &answer);
	cr_assert_eq(answer.status.status, -ESRCH);
}

Test(init_kill, beats_a_fork_bomb)
{
	uint32_t exec = start("f() { f | f & }; ulimit -p 200; f; while :; do :; done");
	int64_t start_ms = sp_clock_boot_ms();

	cr_assert_eq(kill_exec(exec), 0);
	cr_assert(sp_clock_boot_ms() - start_ms < 5000);
	expect_alone();
}

Test(init_kill, kills_direct_children_and_their_orphans)
{
	const char *const argv[] = {
		"/bin/sh", "-c", "setsid sh -c 'sleep 4711 & sleep 4711' & exec sleep 4711", NULL};
	struct harness direct;
	union harness_answer answer;
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	const int fds[3] = {null_fd, null_fd, null_fd};

	harness_ready(&direct, &(struct harness_options){.direct = true});
	(void)harness_exec(&direct, &(struct harness_exec){.argv = argv, .uid = HARNESS_DIRECT_ID},
			   fds, 3);
	harness_expect(&direct, SP_INIT_STARTED, &answer);
	harness_stop(&direct); /* end of file: init kills before it exits */
	cr_assert_neq(system("pgrep -f '^sleep 4711' >/dev/null"), 0);
	(void)close(null_fd);
}

static unsigned int storm_execs(void)
{
	const char *text = getenv("SP_INIT_STORM");

	return text ? (unsigned int)strtoul(text, NULL, 10) : STORM_EXECS;
}

struct storm {
	struct {
		uint32_t exec; /* 0 = free */
		int64_t since_ms;
		bool killed;
	} running[STORM_AT_ONCE];

	unsigned int ended;
	unsigned int not_started;
	int64_t worst_ping_ms;
	int64_t ping_sent_ms;
};

static void storm_start(struct storm *storm, size_t i)
{
	const char *const argv[] = {"/bin/true", NULL};
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	const int fds[3] = {null_fd, null_fd, null_fd};

	storm->running[i].exec =
		harness_exec(&harness, &(struct harness_exec){.argv = argv}, fds, 3);
	storm->running[i].since_ms = sp_clock_boot_ms();
	storm->running[i].killed = false;
	(void)close(null_fd);
}

static void storm_answer(struct storm *storm, const union harness_answer *answer)
{
	if (answer->header.type == SP_INIT_PONG) {
		storm->worst_ping_ms =
			SP_MAX(storm->worst_ping_ms, sp_clock_boot_ms() - storm->ping_sent_ms);
		storm->ping_sent_ms = 0;
		return;
	}
	if (answer->header.type == SP_INIT_STARTED)
		return;
	if (answer->header.type == SP_INIT_START_FAILED)
		storm->not_started++;
	for (size_t i = 0; i < STORM_AT_ONCE; i++)
		if (storm->running[i].exec == answer->header.exec) {
			storm->running[i].exec = 0;
			storm->ended++;
		}
}

/* Run many programs beside an attacker; whatever is stopped is killed. init must answer all the
 * time, and every exec must end. */
static void ride_storm(struct storm *storm, uint32_t attacker)
{
	unsigned int started = 0;
	unsigned int total = storm_execs();

	while (storm->ended < total) {
		union harness_answer answer;
		int64_t now_ms = sp_clock_boot_ms();
		int fd;

		for (size_t i = 0; i < STORM_AT_ONCE; i++) {
			if (storm->running[i].exec == 0 && started < total) {
				storm_start(storm, i);
				started++;
			} else if (storm->running[i].exec != 0 && !storm->running[i].killed &&
				   now_ms - storm->running[i].since_ms > PATIENCE_MS) {
				harness_signal(&harness, storm->running[i].exec, SIGKILL);
				storm->running[i].killed = true;
			}
		}
		if (storm->ping_sent_ms == 0) {
			harness_plain(&harness, SP_INIT_PING, 0);
			storm->ping_sent_ms = now_ms;
		}
		cr_assert(now_ms - storm->ping_sent_ms < 5000, "init does not answer");
		if (harness_receive(&harness, &answer, &fd, 5) > 0)
			storm_answer(storm, &answer);
	}
	harness_signal(&harness, attacker, SIGKILL);
}

Test(init_storm, stopping_everything_wedges_nothing)
{
	struct storm storm = {.ended = 0};

	ride_storm(&storm, start("exec python3 -c 'import os\n"
				 "while True:\n"
				 "    try: os.kill(-1, 19)\n"
				 "    except OSError: pass\n'"));
	cr_log_info("%u execs, %u not started, worst ping %ld ms", storm.ended, storm.not_started,
		    (long)storm.worst_ping_ms);
	cr_assert(storm.worst_ping_ms < 2000);
}

Test(init_storm, killing_everything_wedges_nothing)
{
	struct storm storm = {.ended = 0};

	ride_storm(&storm, start("exec python3 -c 'import os\n"
				 "while True:\n"
				 "    try: os.kill(-1, 9)\n"
				 "    except OSError: pass\n'"));
	cr_assert(storm.worst_ping_ms < 2000);
}

/* A v2 cgroup that init may start programs in, as the launcher makes them; its path. */
static bool make_cgroups(char *top, size_t size, char *sub, size_t sub_size)
{
	static const char *const mounts[] = {"/sys/fs/cgroup/unified", "/sys/fs/cgroup"};
	char path[256];

	for (size_t i = 0; i < SP_ARRAY_SIZE(mounts); i++) {
		(void)snprintf(path, sizeof(path), "%s/cgroup.procs", mounts[i]);
		if (access(path, W_OK) != 0)
			continue;
		(void)snprintf(top, size, "%s/sandpool-init-%d", mounts[i], getpid());
		(void)snprintf(sub, sub_size, "%s/exec", top);
		cr_assert(mkdir(top, 0755) == 0 && mkdir(sub, 0755) == 0);
		(void)snprintf(path, sizeof(path), "%s/cgroup.procs", top);
		cr_assert_eq(chown(path, HARNESS_UID_BASE, HARNESS_UID_BASE), 0);
		write_text(path, harness.init);
		(void)snprintf(path, sizeof(path), "%s/cgroup.procs", sub);
		cr_assert_eq(chown(path, HARNESS_UID_BASE, HARNESS_UID_BASE), 0);
		return true;
	}
	return false;
}

static void remove_cgroups(const char *top, const char *sub)
{
	int64_t end_ms = sp_clock_boot_ms() + HARNESS_WAIT_MS;

	harness_stop(&harness);
	harness.launcher = 0;
	while (rmdir(sub) != 0 || rmdir(top) != 0)
		if (errno == ENOENT || sp_clock_boot_ms() > end_ms)
			break;
	cr_assert_neq(access(top, F_OK), 0);
}

Test(init_kill, a_program_starts_in_its_cgroup)
{
	const char *const argv[] = {"cat", "/proc/self/cgroup", NULL};
	char top[128];
	char sub[160];
	int fd;

	if (!make_cgroups(top, sizeof(top), sub, sizeof(sub)))
		cr_skip("no writable v2 hierarchy");
	fd = open(sub, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	harness_run(
		&harness,
		&(struct harness_exec){.argv = argv, .flags = SP_EXEC_F_CGROUP, .cgroup_fd = fd},
		&result);
	(void)close(fd);
	cr_assert(strstr(result.output, "/exec\n"), "%s%s", result.output, result.stage);
	remove_cgroups(top, sub);
}

/* A start that gets no further while its cgroup is frozen. */
struct frozen_start {
	char top[128];
	char sub[160];
	int null_fd;
	int cgroup_fd;
	int64_t start_ms;
};

static void freeze(const struct frozen_start *start, bool on)
{
	char path[256];

	(void)snprintf(path, sizeof(path), "%s/cgroup.freeze", start->sub);
	write_text(path, on ? 1 : 0);
}

static bool frozen_begin(struct frozen_start *start)
{
	const char *const argv[] = {"/bin/true", NULL};
	int fds[4];

	if (!make_cgroups(start->top, sizeof(start->top), start->sub, sizeof(start->sub)))
		return false;
	freeze(start, true);
	start->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	start->cgroup_fd = open(start->sub, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	start->start_ms = sp_clock_boot_ms();
	fds[0] = fds[1] = fds[2] = start->null_fd;
	fds[3] = start->cgroup_fd;
	(void)harness_exec(&harness,
			   &(struct harness_exec){.argv = argv, .flags = SP_EXEC_F_CGROUP}, fds, 4);
	cr_assert(harness_ping(&harness) < 500);
	return true;
}

static void frozen_end(const struct frozen_start *start)
{
	char path[256];

	(void)snprintf(path, sizeof(path), "%s/cgroup.procs", start->sub);
	while (!file_is_empty(path))
		cr_assert(sp_clock_boot_ms() - start->start_ms < HARNESS_WAIT_MS);
	(void)close(start->cgroup_fd);
	(void)close(start->null_fd);
	remove_cgroups(start->top, start->sub);
}

static pid_t frozen_pid(const struct frozen_start *start)
{
	char path[256];
	FILE *file;
	int pid = 0;

	(void)snprintf(path, sizeof(path), "%s/cgroup.procs", start->sub);
	file = fopen(path, "re");
	cr_assert(file && fscanf(file, "%d", &pid) == 1);
	(void)fclose(file);
	return pid;
}

/* The frozen cgroup makes certain that a SIGSTOP, which a workload might send, comes in time. */
Test(init_storm, a_stopped_start_is_given_up_after_a_second)
{
	union harness_answer answer;
	struct frozen_start start;

	if (!frozen_begin(&start))
		cr_skip("no writable v2 hierarchy");
	cr_assert(kill(frozen_pid(&start), SIGSTOP) == 0);
	freeze(&start, false);
	/* Others start meanwhile. */
	harness_shell(&harness, "echo beside", &result);
	cr_assert_str_eq(result.output, "beside\n");
	harness_expect(&harness, SP_INIT_START_FAILED, &answer);
	cr_assert_eq(answer.status.status, -ETIMEDOUT);
	cr_assert(sp_clock_boot_ms() - start.start_ms >= 1000);
	cr_assert(sp_clock_boot_ms() - start.start_ms < 9000);
	frozen_end(&start);
}

/* As one is that has to wait for a processor. */
Test(init_storm, a_slow_start_is_not_a_stopped_one)
{
	union harness_answer answer;
	struct frozen_start start;
	int fd = -1;

	if (!frozen_begin(&start))
		cr_skip("no writable v2 hierarchy");
	while (sp_clock_boot_ms() - start.start_ms < 2000)
		cr_assert(harness_ping(&harness) < 500);
	freeze(&start, false);
	/* Its start may be told of first, or with its end. */
	do {
		cr_assert(harness_receive(&harness, &answer, &fd, HARNESS_WAIT_MS) > 0);
	} while (answer.header.type == SP_INIT_STARTED);
	cr_assert_eq(answer.header.type, SP_INIT_EXITED);
	cr_assert(answer.exited.code == CLD_EXITED && answer.exited.value == 0);
	frozen_end(&start);
}
