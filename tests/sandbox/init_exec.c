/*
 * EXEC: what a program starts with, how a start fails, what is reported of its end.
 */
#include "tests/sandbox/init_setup.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct harness_result result;

TestSuite(init_exec, .init = set_up, .fini = tear_down);
TestSuite(init_tty, .init = set_up, .fini = tear_down);

static void run(const struct harness_exec *exec)
{
	harness_run(&harness, exec, &result);
}

static void run_argv(const char *const *argv)
{
	run(&(struct harness_exec){.argv = argv});
}

static void expect_exit(uint32_t code)
{
	cr_assert(result.started, "stage '%s': %s", result.stage, strerror(-result.status));
	cr_assert_eq(result.code, CLD_EXITED);
	cr_assert_eq(result.value, code, "exit code %u: %s", result.value, result.output);
}

static void expect_not_started(const char *stage, int status)
{
	cr_assert(!result.started);
	cr_assert_str_eq(result.stage, stage);
	cr_assert_eq(result.status, status, "%s", strerror(-result.status));
}

Test(init_exec, reports_the_exit_code)
{
	harness_shell(&harness, "exit 7", &result);
	expect_exit(7);
}

Test(init_exec, reports_the_signal)
{
	harness_shell(&harness, "kill -9 $$", &result);
	cr_assert(result.started);
	cr_assert_eq(result.code, CLD_KILLED);
	cr_assert_eq(result.value, (uint32_t)SIGKILL);
}

Test(init_exec, reports_usage)
{
	harness_python(&harness,
		       "import time\n"
		       "b = bytearray(30 << 20)\n"
		       "while time.process_time() < 0.2: pass\n",
		       &result);
	expect_exit(0);
	cr_assert(result.exited.user_us + result.exited.system_us >= 200000);
	cr_assert(result.exited.max_rss_kib >= 30 * 1024);
}

Test(init_exec, starts_from_a_defined_state)
{
	static const char script[] =
		"import os, signal, sys\n"
		"print(sorted(int(f) for f in os.listdir('/proc/self/fd'))[:3],"
		" len(os.listdir('/proc/self/fd')) - 1)\n"
		"print(os.getcwd(), oct(os.umask(0)), os.getpid() == os.getsid(0) == "
		"os.getpgid(0))\n"
		"s = open('/proc/self/status').read().split('\\n')\n"
		"print([l.split()[1] for l in s if l[:6] in ('SigBlk', 'SigPnd')])\n"
		"print(sorted(set(os.environ) - {'LC_CTYPE'}))\n" /* python's own */
		"print(os.getgroups(), os.getresuid(), os.getresgid())\n";
	const char *const argv[] = {"/usr/bin/python3", "-I", "-c", script, NULL};
	const char *const env[] = {"A=1", "B=", NULL};

	run(&(struct harness_exec){.argv = argv, .env = env, .cwd = "/tmp", .umask = 027});
	cr_assert_str_eq(result.output, "[0, 1, 2] 3\n"
					"/tmp 0o27 True\n"
					"['0000000000000000', '0000000000000000']\n"
					"['A', 'B']\n"
					"[] (1000, 1000, 1000) (1000, 1000, 1000)\n");
}

Test(init_exec, default_dispositions_whatever_init_has)
{
	harness_shell(&harness,
		      "cat /proc/self/status | grep -E 'Sig(Ign|Cgt)' | cut -f2 | sort -u",
		      &result);
	cr_assert_str_eq(result.output, "0000000000000000\n");
}

Test(init_exec, rlimits_are_the_pools_or_lower)
{
	const char *const argv[] = {"/usr/bin/python3", "-c",
				    "import resource as r\n"
				    "for n in 'NOFILE FSIZE CORE NPROC STACK CPU'.split():"
				    " print(n, *r.getrlimit(getattr(r, 'RLIMIT_' + n)))\n",
				    NULL};

	run(&(struct harness_exec){
		.argv = argv, .rlimit_nofile = 100, .rlimit_fsize = 5000, .rlimit_cpu_s = 9});
	cr_assert_str_eq(result.output, "NOFILE 100 100\nFSIZE 5000 5000\nCORE 1 1\n"
					"NPROC 512 512\nSTACK 8388608 8388608\nCPU 9 10\n");
	run(&(struct harness_exec){.argv = argv, .rlimit_nofile = 100000});
	cr_assert(strstr(result.output, "NOFILE 256 256\nFSIZE -1 -1\n"), "%s", result.output);
}

/* How long until STARTED of a program that goes on; it is ended here. */
static int64_t start_ns(uint32_t flags)
{
	const char *const argv[] = {"/bin/sleep", "60", NULL};
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	const int fds[] = {null_fd, null_fd, null_fd};
	union harness_answer answer;
	int64_t took_ns = sp_clock_boot_ns();
	uint32_t exec = harness_exec(&harness, &(struct harness_exec){.argv = argv, .flags = flags},
				     fds, 3);

	(void)close(null_fd);
	harness_expect(&harness, SP_INIT_STARTED, &answer);
	took_ns = sp_clock_boot_ns() - took_ns;
	harness_signal(&harness, exec, SIGKILL);
	harness_expect(&harness, SP_INIT_EXITED, &answer);
	return took_ns;
}

Test(init_exec, an_awaited_start_is_told_when_it_has_happened)
{
	int64_t awaited_ns = INT64_MAX;
	int64_t looked_ns = INT64_MAX;

	for (int i = 0; i < 50; i++) {
		int64_t ns = start_ns(SP_EXEC_F_AWAITED);

		awaited_ns = SP_MIN(awaited_ns, ns);
		ns = start_ns(0);
		looked_ns = SP_MIN(looked_ns, ns);
	}
	cr_assert(awaited_ns < looked_ns, "%" PRId64 " ns, looked for %" PRId64, awaited_ns,
		  looked_ns);
}

Test(init_exec, an_awaited_start_that_fails)
{
	const char *const argv[] = {"/not/there", NULL};

	run(&(struct harness_exec){.argv = argv, .flags = SP_EXEC_F_AWAITED});
	expect_not_started("exec", -ENOENT);
	harness_shell(&harness, "exit 7", &result);
	expect_exit(7);
}

/* Who waits for it waits for no longer than it is alive, even where it is over at once. */
Test(init_exec, an_awaited_program_that_ends)
{
	const char *const argv[] = {"/bin/true", NULL};

	for (int i = 0; i < 100; i++) {
		run(&(struct harness_exec){.argv = argv, .flags = SP_EXEC_F_AWAITED});
		expect_exit(0);
	}
}

Test(init_exec, argv_and_env_are_byte_exact)
{
	static char big[100 * 1024];
	const char *const argv[] = {"/usr/bin/python3",
				    "-c",
				    "import sys, os\n"
				    "a = sys.argv[1:]\n"
				    "print(a[:5], len(a[5]), repr(os.environb[b'X']))",
				    "",
				    "a \"b\" 'c'",
				    "line\nfeed",
				    "\xf0\x9f\x98\x80",
				    "-dash",
				    big,
				    NULL};
	const char *const env[] = {"X=\xff\x01 =", NULL};

	memset(big, 'x', sizeof(big) - 1);
	run(&(struct harness_exec){.argv = argv, .env = env, .flags = SP_EXEC_F_STRINGS});
	cr_assert_str_eq(result.output, "['', 'a \"b\" \\'c\\'', 'line\\nfeed', '\xf0\x9f\x98\x80',"
					" '-dash'] 102399 b'\\xff\\x01 ='\n");
}

Test(init_exec, the_path_is_searched)
{
	const char *const env[] = {"PATH=/not/there:/payloads:/usr/bin", NULL};
	const char *const empty_env[] = {NULL};

	run(&(struct harness_exec){.argv = (const char *const[]){"sp-script", "x", NULL},
				   .env = env});
	cr_assert_str_eq(result.output, "script x\n");
	run(&(struct harness_exec){.argv = (const char *const[]){"true", NULL}, .env = empty_env});
	expect_exit(0);
	run(&(struct harness_exec){.argv = (const char *const[]){"sp-script", NULL}});
	expect_not_started("exec", -ENOENT);
	run(&(struct harness_exec){.argv = (const char *const[]){"denied", NULL}, .env = env});
	expect_not_started("exec", -EACCES);
}

Test(init_exec, an_overlong_path_element_is_passed_over)
{
	static char path[2 * 4096 + 64] = "PATH=/";
	const char *const env[] = {path, NULL};

	memset(path + strlen("PATH=/"), 'x', 2 * 4096);
	memcpy(path + strlen("PATH=/") + 2 * 4096, ":/usr/bin", sizeof(":/usr/bin"));
	run(&(struct harness_exec){.argv = (const char *const[]){"true", NULL}, .env = env});
	expect_exit(0);
}

Test(init_exec, what_cannot_be_executed_is_told_apart)
{
	run_argv((const char *const[]){"/not/there", NULL});
	expect_not_started("exec", -ENOENT);
	run_argv((const char *const[]){"/payloads/text", NULL});
	expect_not_started("exec", -ENOEXEC);
	run_argv((const char *const[]){"/payloads/denied", NULL});
	expect_not_started("exec", -EACCES);
	run_argv((const char *const[]){"/usr", NULL});
	expect_not_started("exec", -EACCES);
	run_argv((const char *const[]){"/payloads/lost", NULL});
	expect_not_started("exec", -ENOENT);
	run_argv((const char *const[]){"", NULL});
	expect_not_started("exec", -ENOENT);
	run_argv((const char *const[]){"/bin/true", NULL});
	expect_exit(0);
}

Test(init_exec, the_cwd_is_entered_as_the_workload)
{
	const char *const argv[] = {"pwd", NULL};

	run(&(struct harness_exec){.argv = argv, .cwd = "/workspace/made"});
	cr_assert_str_eq(result.output, "/workspace/made\n");
	run(&(struct harness_exec){.argv = argv, .cwd = "/not/there"});
	expect_not_started("cwd", -ENOENT);
	run(&(struct harness_exec){.argv = argv, .cwd = "/.init"}); /* root's, 0700 */
	expect_not_started("cwd", -EACCES);
	run(&(struct harness_exec){.argv = argv, .cwd = "tmp"});
	expect_not_started("cwd", -EINVAL);
	run(&(struct harness_exec){.argv = argv, .cwd = "/etc/hosts"});
	expect_not_started("cwd", -ENOTDIR);
}

Test(init_exec, no_descriptor_is_a_way_out)
{
	const char *const argv[] = {"pwd", NULL};
	char cwd[64];

	/* Every number that init could have a directory at, through every name. */
	for (int fd = 0; fd < 32; fd++) {
		(void)snprintf(cwd, sizeof(cwd), "/proc/self/fd/%d", fd);
		run(&(struct harness_exec){.argv = argv, .cwd = cwd});
		cr_assert(!result.started, "%s: %s", cwd, result.output);
		(void)snprintf(cwd, sizeof(cwd), "/proc/1/fd/%d", fd);
		run(&(struct harness_exec){.argv = argv, .cwd = cwd});
		expect_not_started("cwd", -EACCES);
	}
	run(&(struct harness_exec){.argv = argv, .cwd = "/proc/1/root"});
	expect_not_started("cwd", -EACCES);
	run(&(struct harness_exec){.argv = argv, .cwd = "/proc/self/cwd/../.."});
	cr_assert_str_eq(result.output, "/\n");
}

Test(init_exec, ids_outside_the_map_are_refused)
{
	const char *const argv[] = {"id", "-u", NULL};

	run(&(struct harness_exec){.argv = argv, .uid = 65535});
	expect_not_started("credentials", -EPERM);
	run(&(struct harness_exec){.argv = argv, .uid = UINT32_MAX});
	expect_not_started("credentials", -EPERM);
	run(&(struct harness_exec){.argv = argv, .uid = 65534});
	cr_assert_str_eq(result.output, "65534\n");
}

Test(init_exec, a_cgroup_that_is_none_is_named)
{
	int fd = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const char *const argv[] = {"true", NULL};

	run(&(struct harness_exec){.argv = argv, .flags = SP_EXEC_F_CGROUP, .cgroup_fd = fd});
	expect_not_started("cgroup", -EBADF);
	(void)close(fd);
}

Test(init_exec, a_background_child_outlives_its_exec)
{
	harness_shell(&harness, "sleep 100 >/dev/null 2>&1 & echo $!", &result);
	expect_exit(0);
	/* init, the background child, the shell, ls, grep. */
	harness_shell(&harness, "ls /proc | grep -cE '^[0-9]+$'", &result);
	cr_assert_str_eq(result.output, "5\n");
}

static long oom_score(pid_t pid)
{
	char path[64];
	char text[16] = "";
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	cr_assert(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
	(void)close(fd);
	return strtol(text, NULL, 10);
}

Test(init_exec, is_a_better_victim_than_init)
{
	long before = oom_score(harness.init);

	harness_shell(&harness,
		      "until grep -qx 500 /proc/$$/oom_score_adj; do :; done; "
		      "cat /proc/self/oom_score_adj",
		      &result);
	cr_assert_str_eq(result.output, "500\n");
	cr_assert_eq(oom_score(harness.init), before);
}

Test(init_exec, orphans_are_reaped)
{
	int64_t end_ms = sp_clock_boot_ms() + 5000;

	harness_python(&harness,
		       "import os\n"
		       "for i in range(1000):\n"
		       "    p = os.fork()\n"
		       "    if p == 0:\n"
		       "        if os.fork() == 0: os.setsid()\n"
		       "        os._exit(0)\n"
		       "    os.waitpid(p, 0)\n",
		       &result);
	expect_exit(0);
	do {
		harness_shell(&harness, "cat /proc/[0-9]*/stat | grep -c ') Z '", &result);
	} while (strcmp(result.output, "0\n") != 0 && sp_clock_boot_ms() < end_ms);
	cr_assert_str_eq(result.output, "0\n");
}

Test(init_exec, failed_starts_leave_no_descriptor)
{
	int before;

	run_argv((const char *const[]){"/bin/true", NULL});
	before = harness_count_fds(&harness);
	for (int i = 0; i < 200; i++) {
		run_argv((const char *const[]){"/not/there", NULL});
		run(&(struct harness_exec){.argv = (const char *const[]){"x", NULL}, .uid = 70000});
	}
	cr_assert_eq(harness_count_fds(&harness), before);
}

/* Exec `sleep` on /dev/null; the answers are the caller's to read. */
static uint32_t start_sleep(void)
{
	const char *const argv[] = {"/bin/sleep", "1000", NULL};
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	const int fds[3] = {null_fd, null_fd, null_fd};
	uint32_t exec = harness_exec(&harness, &(struct harness_exec){.argv = argv}, fds, 3);

	(void)close(null_fd);
	return exec;
}

Test(init_exec, as_many_at_once_as_the_limit_says)
{
	union harness_answer answer;
	uint32_t last = 0;

	for (unsigned int i = 0; i < SP_INIT_EXECS_MAX; i++)
		last = start_sleep();
	for (unsigned int i = 0; i < SP_INIT_EXECS_MAX; i++)
		harness_expect(&harness, SP_INIT_STARTED, &answer);
	(void)start_sleep();
	harness_expect(&harness, SP_INIT_START_FAILED, &answer);
	cr_assert_eq(answer.status.status, -EAGAIN);
	cr_assert_str_eq(answer.status.stage, "execs");
	/* One ends: one fits. */
	harness_signal(&harness, last, SIGKILL);
	harness_expect(&harness, SP_INIT_EXITED, &answer);
	(void)start_sleep();
	harness_expect(&harness, SP_INIT_STARTED, &answer);
}

Test(init_exec, a_number_in_use_is_refused)
{
	union harness_answer answer;

	(void)start_sleep();
	harness_expect(&harness, SP_INIT_STARTED, &answer);
	harness.execs--;
	(void)start_sleep();
	harness_expect(&harness, SP_INIT_START_FAILED, &answer);
	cr_assert_eq(answer.status.status, -EEXIST);
}

Test(init_exec, a_signal_reaches_the_group)
{
	const char *const argv[] = {"/bin/sh", "-c", "sleep 1000; :", NULL};
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	const int fds[3] = {null_fd, null_fd, null_fd};
	union harness_answer answer;
	int64_t end_ms = sp_clock_boot_ms() + HARNESS_WAIT_MS;
	uint32_t exec = harness_exec(&harness, &(struct harness_exec){.argv = argv}, fds, 3);

	(void)close(null_fd);
	harness_expect(&harness, SP_INIT_STARTED, &answer);
	harness_signal(&harness, exec, SIGTERM);
	harness_expect(&harness, SP_INIT_EXITED, &answer);
	cr_assert_eq(answer.exited.code, (uint32_t)CLD_KILLED);
	cr_assert_eq(answer.exited.value, (uint32_t)SIGTERM);
	do /* its child dies by the same signal, a moment later or earlier */
		harness_shell(&harness, "ls /proc | grep -cE '^[0-9]+$'", &result);
	while (strcmp(result.output, "4\n") != 0 && sp_clock_boot_ms() < end_ms);
	cr_assert_str_eq(result.output, "4\n");
}

Test(init_exec, a_signal_to_its_own_group_stays_there)
{
	union harness_answer answer;
	uint32_t other = start_sleep();

	harness_expect(&harness, SP_INIT_STARTED, &answer);
	harness_shell(&harness, "kill -TERM 0", &result);
	cr_assert_eq(result.value, (uint32_t)SIGTERM);
	(void)harness_ping(&harness);
	harness_signal(&harness, other, SIGINT);
	harness_expect(&harness, SP_INIT_EXITED, &answer);
	cr_assert_eq(answer.exited.value, (uint32_t)SIGINT);
}

Test(init_exec, a_deadline_ends_the_sandbox_without_anybody)
{
	struct sp_init_deadline deadline = {.header = {.type = SP_INIT_DEADLINE}};
	union harness_answer answer;
	int64_t start_ms = sp_clock_boot_ms();
	int fd;

	/* The grace period is 5 s. */
	deadline.boot_ms = start_ms - 4500;
	harness_send(&harness, &deadline, sizeof(deadline), NULL, 0);
	cr_assert_eq(harness_receive(&harness, &answer, &fd, HARNESS_WAIT_MS), 0);
	cr_assert(sp_clock_boot_ms() - start_ms >= 500);
	cr_assert(sp_clock_boot_ms() - start_ms < 4000);
}

Test(init_exec, a_deadline_can_be_moved_and_taken_off)
{
	struct sp_init_deadline deadline = {.header = {.type = SP_INIT_DEADLINE}};
	struct pollfd end = {.fd = harness.control_fd, .events = POLLIN};

	deadline.boot_ms = sp_clock_boot_ms() - 4700;
	harness_send(&harness, &deadline, sizeof(deadline), NULL, 0);
	deadline.boot_ms = INT64_MAX;
	harness_send(&harness, &deadline, sizeof(deadline), NULL, 0);
	cr_assert_eq(poll(&end, 1, 1000), 0);
	(void)harness_ping(&harness);
}

Test(init_exec, an_exec_brings_the_deadline_along)
{
	const char *const argv[] = {"sleep", "60", NULL};
	const struct harness_exec late = {.argv = argv,
					  .deadline_boot_ms = sp_clock_boot_ms() - 4500};
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	const int fds[] = {null_fd, null_fd, null_fd};
	int64_t start_ms = sp_clock_boot_ms();
	union harness_answer answer;
	int fd;

	(void)harness_exec(&harness, &late, fds, 3);
	(void)close(null_fd);
	harness_expect(&harness, SP_INIT_STARTED, &answer);
	cr_assert_eq(harness_receive(&harness, &answer, &fd, HARNESS_WAIT_MS), 0);
	cr_assert(sp_clock_boot_ms() - start_ms >= 400);
	cr_assert(sp_clock_boot_ms() - start_ms < 4000);
}

Test(init_exec, one_without_a_deadline_leaves_it_as_it_was)
{
	const char *const argv[] = {"true", NULL};
	struct sp_init_deadline deadline = {.header = {.type = SP_INIT_DEADLINE}};
	union harness_answer answer;
	int fd;

	deadline.boot_ms = sp_clock_boot_ms() - 4000;
	harness_send(&harness, &deadline, sizeof(deadline), NULL, 0);
	run_argv(argv);
	expect_exit(0);
	cr_assert_eq(harness_receive(&harness, &answer, &fd, HARNESS_WAIT_MS), 0);
}

/* What goes on is told of; what has ended is told of once, and in that order. */
Test(init_exec, a_start_is_told_before_the_end_or_with_it)
{
	const char *const quick[] = {"true", NULL};
	const char *const slow[] = {"sleep", "0.2", NULL};
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	const int fds[] = {null_fd, null_fd, null_fd};
	union harness_answer answer;
	int fd;

	for (int i = 0; i < 20; i++) {
		uint32_t exec =
			harness_exec(&harness, &(struct harness_exec){.argv = quick}, fds, 3);

		cr_assert(harness_receive(&harness, &answer, &fd, HARNESS_WAIT_MS) > 0);
		if (answer.header.type == SP_INIT_STARTED)
			cr_assert(harness_receive(&harness, &answer, &fd, HARNESS_WAIT_MS) > 0);
		cr_assert_eq(answer.header.type, SP_INIT_EXITED);
		cr_assert_eq(answer.header.exec, exec);
	}
	(void)harness_exec(&harness, &(struct harness_exec){.argv = slow}, fds, 3);
	harness_expect(&harness, SP_INIT_STARTED, &answer);
	harness_expect(&harness, SP_INIT_EXITED, &answer);
	(void)close(null_fd);
}

/* sandpoold reads nothing while everything happens; nothing is lost, and order is kept. */
Test(init_exec, answers_wait_for_a_slow_reader)
{
	const unsigned int rounds = 3000;
	union harness_answer answer;
	uint64_t expected = 0;
	unsigned int sent = 0;
	struct sp_init_plain ping = {.header = {.type = SP_INIT_PING}};

	while (sent < rounds) {
		struct pollfd room = {.fd = harness.control_fd, .events = POLLOUT};

		if (poll(&room, 1, 200) == 0)
			break;
		ping.header.request = ++sent;
		if (sp_msg_send(harness.control_fd, &ping, sizeof(ping), NULL, 0) < 0)
			break;
	}
	for (unsigned int i = 0; i < sent; i++) {
		harness_expect(&harness, SP_INIT_PONG, &answer);
		cr_assert_eq(answer.header.request, ++expected);
	}
}

/* --- terminals --------------------------------------------------------------------------- */

static int start_tty(const char *script)
{
	const char *const argv[] = {"/bin/sh", "-c", script, NULL};
	union harness_answer answer;
	int fd;

	(void)harness_exec(&harness, &(struct harness_exec){.argv = argv, .flags = SP_EXEC_F_TTY},
			   NULL, 0);
	cr_assert(harness_receive(&harness, &answer, &fd, HARNESS_WAIT_MS) > 0);
	cr_assert_eq(answer.header.type, SP_INIT_STARTED, "%s: %s", answer.status.stage,
		     strerror(-answer.status.status));
	cr_assert(fd >= 0, "the master comes with STARTED");
	return fd;
}

static ssize_t read_some(int fd, char *text, size_t size)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};

	return poll(&ready, 1, HARNESS_WAIT_MS) > 0 ? read(fd, text, size) : -1;
}

/* All that comes until the slave's last holder is gone (EIO). */
static void read_tty(int fd)
{
	ssize_t got;

	result.length = 0;
	while ((got = read_some(fd, result.output + result.length,
				HARNESS_OUTPUT - 1 - result.length)) > 0)
		result.length += (size_t)got;
	result.output[result.length] = '\0';
}

Test(init_tty, is_the_controlling_terminal)
{
	int fd = start_tty("tty; stty size; stat -c '%U %a' $(tty); echo >/dev/tty; ls /dev/fd/");

	read_tty(fd);
	cr_assert_str_eq(result.output,
			 "/dev/pts/0\r\n24 80\r\nworkload 620\r\n\r\n0  1  2  3\r\n");
	(void)close(fd);
}

Test(init_tty, hangs_up_with_its_master)
{
	int fd = start_tty("trap 'exit 3' HUP; echo set; while :; do sleep 0.01; done");
	union harness_answer answer;
	char text[8];

	cr_assert(read_some(fd, text, sizeof(text)) > 0);
	(void)close(fd);
	harness_expect(&harness, SP_INIT_EXITED, &answer);
	cr_assert_eq(answer.exited.value, 3u);
}

Test(init_tty, typing_for_somebody_else_is_denied)
{
	int fd = start_tty("python3 -c \"import fcntl\n"
			   "for r in 0x5412, 0x541c, 0x100005412 - (1 << 32):\n"
			   "    try: fcntl.ioctl(0, r, b'x')\n"
			   "    except OSError as e: print(e.errno)\n\"");

	read_tty(fd);
	cr_assert_str_eq(result.output, "1\r\n1\r\n1\r\n");
	(void)close(fd);
}

Test(init_tty, a_program_can_make_its_own)
{
	harness_python(&harness,
		       "import pty, os; m, s = pty.openpty()\n"
		       "os.write(s, b'x'); print(os.ttyname(s), os.fstat(s).st_uid, os.read(m, 1))",
		       &result);
	cr_assert_str_eq(result.output, "/dev/pts/0 1000 b'x'\n");
	harness_shell(&harness, "script -qec tty /dev/null </dev/null", &result);
	cr_assert_str_eq(result.output, "/dev/pts/0\r\n");
}

/* Made with the sandbox: on the way of the first program it would cost that program's time. */
Test(init_tty, a_sandbox_that_waits_has_its_devpts)
{
	char command[96];

	(void)snprintf(command, sizeof(command), "grep -q devpts /proc/%d/mountinfo", harness.init);
	cr_assert_eq(system(command), 0);
	harness_shell(&harness, "grep -c devpts /proc/self/mountinfo", &result);
	cr_assert_str_eq(result.output, "1\n");
}
