/*
 * SESSION_OPEN and _CLOSE: what a session is, what is kept apart, how it ends.
 */
#include "tests/sandbox/init_setup.h"

#include "pool/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct harness_result result;

TestSuite(init_sessions, .init = set_up, .fini = tear_down);

struct open_message {
	struct sp_init_session_open head;
	char text[1024];
};

static struct open_message message_of(uint32_t number, uint32_t mode)
{
	struct open_message message = {
		.head = {.header = {.type = SP_INIT_SESSION_OPEN, .exec = number, .request = 77},
			 .flags = SP_SESSION_F_PRIVATE_TMP,
			 .mode = mode,
			 .uid = HARNESS_WORKLOAD,
			 .gid = HARNESS_WORKLOAD},
	};

	message.head.strings_length = sizeof("/workspace");
	memcpy(message.text, "/workspace", sizeof("/workspace"));
	return message;
}

static void add_string(struct open_message *message, const char *text)
{
	memcpy(message->text + message->head.strings_length, text, strlen(text) + 1);
	message->head.strings_length += (uint32_t)strlen(text) + 1;
}

static void send_open(const struct open_message *message)
{
	harness_send(&harness, message, sizeof(message->head) + message->head.strings_length, NULL,
		     0);
}

static int open_session(uint32_t number, uint32_t mode)
{
	struct open_message message = message_of(number, mode);
	union harness_answer answer;

	send_open(&message);
	harness_expect(&harness, SP_INIT_SESSION_OPENED, &answer);
	cr_assert_eq(answer.header.exec, number);
	cr_assert_eq(answer.header.request, 77);
	return answer.status.status;
}

static int open_overlay(uint32_t number, const char *workspace)
{
	struct open_message message = message_of(number, SP_INIT_SESSION_OVERLAY);
	union harness_answer answer;

	memcpy(message.text, workspace, strlen(workspace) + 1);
	message.head.strings_length = (uint32_t)strlen(workspace) + 1;
	send_open(&message);
	harness_expect(&harness, SP_INIT_SESSION_OPENED, &answer);
	return answer.status.status;
}

static void close_session(uint32_t number)
{
	harness_plain(&harness, SP_INIT_SESSION_CLOSE, number);
}

static const char *shell_in(uint32_t session, const char *script)
{
	const char *argv[] = {"/bin/sh", "-c", script, NULL};
	const struct harness_exec exec = {.argv = argv, .session = session};

	harness_run(&harness, &exec, &result);
	return result.output;
}

/* Runs on; its output goes to nobody. */
static uint32_t start_in(uint32_t session, const char *script)
{
	const char *argv[] = {"/bin/sh", "-c", script, NULL};
	const struct harness_exec exec = {.argv = argv, .session = session};
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	int fds[] = {null_fd, null_fd, null_fd};
	union harness_answer answer;
	uint32_t number = harness_exec(&harness, &exec, fds, 3);

	(void)close(null_fd);
	harness_expect(&harness, SP_INIT_STARTED, &answer);
	return number;
}

Test(init_sessions, is_a_small_world)
{
	cr_assert_eq(open_session(1, SP_INIT_SESSION_RW), 0);
	cr_assert_str_eq(shell_in(1, "echo $$; hostname; echo /proc/[0-9]*"),
			 "2\nsandbox\n/proc/1 /proc/2\n");
	/* The next one is the same shell to who asks. */
	cr_assert_str_eq(shell_in(1, "echo $$"), "2\n");
	cr_assert_str_eq(shell_in(1, "cat /proc/1/environ 2>/dev/null"), "");
	cr_assert_str_eq(shell_in(1, "cat /proc/sys/kernel/hostname; cat /proc/kcore /proc/keys "
				     "2>/dev/null | head -c 1"),
			 "sandbox\n");
}

Test(init_sessions, gains_nothing)
{
	cr_assert_eq(open_session(1, SP_INIT_SESSION_RW), 0);
	cr_assert_str_eq(shell_in(1, "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status | "
				     "tr '\\n\\t' ', '"),
			 "CapInh: 0000000000000000,CapPrm: 0000000000000000,"
			 "CapEff: 0000000000000000,CapBnd: 0000000000000000,"
			 "CapAmb: 0000000000000000,NoNewPrivs: 1,Seccomp: 2,");
	/* Of the first process, CAP_KILL. */
	cr_assert_str_eq(
		shell_in(1, "grep -E '^Cap(Prm|Eff|Bnd)' /proc/1/status | tr '\\n\\t' ', '"),
		"CapPrm: 0000000000000020,CapEff: 0000000000000020,"
		"CapBnd: 0000000000000000,");
	cr_assert_str_eq(shell_in(1, "ls /proc/self/fd | tr '\\n' ' '"), "0 1 2 3 ");
	cr_assert_str_eq(shell_in(1, "id -u; unshare -U true 2>&1 | grep -c permitted"),
			 "1000\n1\n");
	cr_assert_str_eq(
		shell_in(1,
			 "exec 2>/dev/null; kill -9 1; kill -STOP 1; ls /.init /proc/1/fd 2>&1 | "
			 "grep -c denied"),
		"2\n");
	cr_assert_str_eq(shell_in(1, "touch /x /home/x /usr/x 2>&1 | grep -c 'Read-only'"), "3\n");
}

Test(init_sessions, siblings_are_strangers)
{
	cr_assert_eq(open_session(1, SP_INIT_SESSION_RW), 0);
	cr_assert_eq(open_session(2, SP_INIT_SESSION_RW), 0);
	(void)start_in(1, "echo x > /tmp/secret; echo x > /dev/shm/secret; exec sleep 77");
	/* The sandbox sees it … */
	cr_assert_str_eq(
		shell_in(0, "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 77'"), "1\n");
	/* … so does the session itself … */
	cr_assert_str_eq(
		shell_in(1, "cat /proc/[0-9]*/comm 2>/dev/null | grep -c sleep; cat /tmp/secret; "
			    "cat /dev/shm/secret"),
		"1\nx\nx\n");
	/* … and its sibling does not. */
	cr_assert_str_eq(
		shell_in(2,
			 "cat /proc/[0-9]*/comm 2>/dev/null | grep -c sleep; ls -A /tmp /dev/shm"),
		"0\n/dev/shm:\n\n/tmp:\n");
	(void)shell_in(2, "kill -9 -1");
	cr_assert_str_eq(shell_in(1, "cat /proc/[0-9]*/comm 2>/dev/null | grep -c sleep"), "1\n");
	cr_assert_str_eq(shell_in(0, "ls -A /tmp /dev/shm"), "/dev/shm:\n\n/tmp:\n");
}

Test(init_sessions, workspace_modes)
{
	(void)shell_in(0, "echo base > /workspace/file");
	cr_assert_eq(open_session(1, SP_INIT_SESSION_RW), 0);
	cr_assert_eq(open_session(2, SP_INIT_SESSION_RO), 0);
	cr_assert_str_eq(shell_in(1, "echo more >> /workspace/file; cat /workspace/file"),
			 "base\nmore\n");
	cr_assert_str_eq(shell_in(2, "cat /workspace/file; (echo x > /workspace/file) 2>&1 | "
				     "grep -c Read-only"),
			 "base\nmore\n1\n");
	cr_assert_str_eq(shell_in(0, "cat /workspace/file"), "base\nmore\n");
	if (open_session(3, SP_INIT_SESSION_OVERLAY) == -EINVAL)
		cr_skip("this kernel's tmpfs has no user xattrs");
	cr_assert_str_eq(shell_in(3, "rm /workspace/file; echo n > /workspace/new; "
				     "ls /workspace | grep -v made"),
			 "new\n");
	cr_assert_str_eq(shell_in(0, "ls /workspace | grep -v made"), "file\n");
}

/* What is covered in the sandbox must not come to light below an overlay. */
Test(init_sessions, no_overlay_over_mounts)
{
	int cover_fd = harness_clone("/usr/share", true);

	(void)shell_in(0,
		       "mkdir -p /workspace/d '/home/a b/c' /home/a; echo hidden > /workspace/d/x");
	cr_assert_eq(open_overlay(1, "/workspace"), 0);
	cr_assert_eq(harness_mount(&harness, cover_fd, "/workspace/d", NULL), 0);
	(void)close(cover_fd);
	cr_assert_eq(open_overlay(2, "/workspace"), -EXDEV);
	cr_assert_eq(open_overlay(3, "/workspace/d"), 0);
	cr_assert_str_eq(shell_in(3, "ls /workspace/d/x 2>&1 | grep -c 'No such'"), "1\n");
	cover_fd = harness_clone("/usr/share", true);
	cr_assert_eq(harness_mount(&harness, cover_fd, "/home/a b/c", NULL), 0);
	(void)close(cover_fd);
	cr_assert_eq(open_overlay(4, "/home/a b"), -EXDEV);
	cr_assert_eq(open_overlay(5, "/home/a"), 0);
	/* As a bind it comes with what is mounted in it. */
	cr_assert_eq(open_session(6, SP_INIT_SESSION_RW), 0);
	cr_assert_str_eq(shell_in(6, "ls /workspace/d/x 2>&1 | grep -c 'No such'"), "1\n");
}

Test(init_sessions, uppers_are_nobodys)
{
	static const char reach[] =
		"ls /.init/upper /proc/1/root/.init/upper 2>&1 | grep -c 'ermission denied'";

	if (open_session(1, SP_INIT_SESSION_OVERLAY) == -EINVAL)
		cr_skip("this kernel's tmpfs has no user xattrs");
	cr_assert_eq(open_session(2, SP_INIT_SESSION_OVERLAY), 0);
	cr_assert_str_eq(shell_in(1, "echo secret > /workspace/secret; cat /workspace/secret"),
			 "secret\n");
	cr_assert_str_eq(shell_in(1, reach), "2\n");
	cr_assert_str_eq(shell_in(2, reach), "2\n");
	cr_assert_str_eq(shell_in(2, "ls /workspace | grep -c secret"), "0\n");
	cr_assert_str_eq(shell_in(0, reach), "2\n");
	/* The sandbox sees the processes of a session, and not even so its upper. */
	(void)start_in(1, "exec sleep 82");
	cr_assert_str_eq(shell_in(0, "cd /proc; for p in [0-9]*; do "
				     "grep -q sleep $p/comm && ls $p/root/.init; done 2>&1 | "
				     "grep -c 'ermission denied'"),
			 "1\n");
}

Test(init_sessions, network_of_its_own)
{
	struct open_message message = message_of(1, SP_INIT_SESSION_RW);
	static const char same[] = "readlink /proc/self/ns/net | grep -c -F -f /workspace/net";
	static const char listen[] =
		"import socket\ns = socket.socket()\ns.bind(('127.0.0.1', 0))\ns.listen()\n"
		"c = socket.create_connection(s.getsockname())\nprint('connected')";
	const char *argv[] = {"python3", "-c", listen, NULL};
	const struct harness_exec exec = {.argv = argv, .session = 1};
	union harness_answer answer;

	message.head.flags |= SP_SESSION_F_OWN_NETWORK;
	send_open(&message);
	harness_expect(&harness, SP_INIT_SESSION_OPENED, &answer);
	cr_assert_eq(answer.status.status, 0, "%s", answer.status.stage);
	harness_run(&harness, &exec, &result);
	cr_assert_str_eq(result.output, "connected\n");
	cr_assert_eq(open_session(2, SP_INIT_SESSION_RW), 0);
	/* Else it is the sandbox's. */
	cr_assert_str_eq(shell_in(0, "readlink /proc/self/ns/net > /workspace/net"), "");
	cr_assert_str_eq(shell_in(1, same), "0\n");
	cr_assert_str_eq(shell_in(2, same), "1\n");
}

Test(init_sessions, ends_with_all_that_is_in_it)
{
	union harness_answer answer;
	int fd = -1;
	bool exited = false;
	bool ended = false;
	uint32_t number;

	cr_assert_eq(open_session(1, SP_INIT_SESSION_RW), 0);
	number = start_in(1, "setsid sleep 78 & exec sleep 78");
	close_session(1);
	for (int i = 0; i < 2; i++) {
		cr_assert_gt(harness_receive(&harness, &answer, &fd, HARNESS_WAIT_MS), 0);
		if (answer.header.type == SP_INIT_EXITED && answer.header.exec == number)
			exited = answer.exited.code == CLD_KILLED && answer.exited.value == SIGKILL;
		else
			ended = answer.header.type == SP_INIT_SESSION_ENDED &&
				answer.header.exec == 1;
	}
	cr_assert(exited && ended);
	cr_assert_str_eq(shell_in(0, "cat /proc/[0-9]*/comm 2>/dev/null | grep -c sleep"), "0\n");
	(void)shell_in(1, "true");
	cr_assert(!result.started);
	cr_assert_eq(result.status, -ESRCH);
	cr_assert_str_eq(result.stage, "isolated_session");
	/* Its number and its place are free again. */
	cr_assert_eq(open_session(1, SP_INIT_SESSION_RW), 0);
}

Test(init_sessions, as_many_as_there_may_be)
{
	union harness_answer answer;

	for (uint32_t i = 1; i <= SP_INIT_SESSIONS_MAX; i++)
		cr_assert_eq(open_session(i, SP_INIT_SESSION_RW), 0, "%u", i);
	cr_assert_eq(open_session(SP_INIT_SESSIONS_MAX + 1, SP_INIT_SESSION_RW), -EAGAIN);
	cr_assert_eq(open_session(1, SP_INIT_SESSION_RW), -EEXIST);
	close_session(1);
	harness_expect(&harness, SP_INIT_SESSION_ENDED, &answer);
	cr_assert_eq(open_session(SP_INIT_SESSIONS_MAX + 1, SP_INIT_SESSION_RW), 0);
}

Test(init_sessions, kill_without_cgroup_spares_no_session)
{
	union harness_answer answer;
	uint32_t number;

	cr_assert_eq(open_session(1, SP_INIT_SESSION_RW), 0);
	number = start_in(0, "exec sleep 79");
	harness_plain(&harness, SP_INIT_KILL_EXEC, number);
	harness_expect(&harness, SP_INIT_KILLED, &answer);
	cr_assert_eq(answer.status.status, -EBUSY);
	cr_assert_str_eq(shell_in(1, "echo alive"), "alive\n");
}

Test(init_sessions, kill_without_cgroup_of_a_run)
{
	union harness_answer answer;
	uint32_t number;

	cr_assert_eq(open_session(1, SP_INIT_SESSION_RW), 0);
	cr_assert_eq(open_session(2, SP_INIT_SESSION_RW), 0);
	(void)start_in(2, "exec sleep 80");
	number = start_in(1, "setsid sleep 81 & exec sleep 81");
	harness_plain(&harness, SP_INIT_KILL_EXEC, number);
	harness_expect(&harness, SP_INIT_KILLED, &answer);
	cr_assert_eq(answer.status.status, 0);
	harness_expect(&harness, SP_INIT_EXITED, &answer);
	cr_assert_eq(answer.header.exec, number);
	cr_assert_str_eq(shell_in(1, "cat /proc/[0-9]*/comm 2>/dev/null | grep -c sleep"), "0\n");
	cr_assert_str_eq(shell_in(2, "cat /proc/[0-9]*/comm 2>/dev/null | grep -c sleep"), "1\n");
}

static uint64_t used_bytes(void)
{
	union harness_answer answer;

	harness_plain(&harness, SP_INIT_USAGE, 0);
	harness_expect(&harness, SP_INIT_USED, &answer);
	return answer.used.bytes;
}

Test(init_sessions, usage_is_what_is_private_to_them)
{
	const uint64_t slack = 256 * SP_KIB; /* directories, and whole pages */
	union harness_answer answer;

	cr_assert_eq(used_bytes(), 0);
	cr_assert_eq(open_session(1, SP_INIT_SESSION_RW), 0);
	cr_assert_eq(open_session(2, SP_INIT_SESSION_RW), 0);
	cr_assert_leq(used_bytes(), slack);
	/* The sandbox's own files, and a workspace that is shared with it, are not. */
	(void)shell_in(0, "head -c 3000000 /dev/zero > /tmp/a");
	(void)shell_in(1, "head -c 3000000 /dev/zero > /workspace/b");
	cr_assert_leq(used_bytes(), slack);
	(void)shell_in(1, "head -c 1048576 /dev/zero > /tmp/c");
	(void)shell_in(2, "head -c 2097152 /dev/zero > /dev/shm/d");
	cr_assert_geq(used_bytes(), 3 * SP_MIB);
	cr_assert_leq(used_bytes(), 3 * SP_MIB + slack);
	close_session(2);
	harness_expect(&harness, SP_INIT_SESSION_ENDED, &answer);
	cr_assert_geq(used_bytes(), SP_MIB);
	cr_assert_leq(used_bytes(), SP_MIB + slack);
	if (open_session(3, SP_INIT_SESSION_OVERLAY) == -EINVAL)
		cr_skip("this kernel's tmpfs has no user xattrs");
	(void)shell_in(3, "head -c 4194304 /dev/zero > /workspace/e");
	cr_assert_geq(used_bytes(), 5 * SP_MIB);
}

Test(init_sessions, what_is_private_has_the_size_that_was_asked_for)
{
	static const char fill[] = "head -c %d /dev/zero > /tmp/x 2>/dev/null && echo fits; rm -f "
				   "/tmp/x";
	const int page = (int)sysconf(_SC_PAGESIZE);
	struct open_message message = message_of(1, SP_INIT_SESSION_RW);
	union harness_answer answer;
	char script[128];

	message.head.upper_bytes = SP_MIB;
	send_open(&message);
	harness_expect(&harness, SP_INIT_SESSION_OPENED, &answer);
	cr_assert_eq(answer.status.status, 0);
	(void)snprintf(script, sizeof(script), fill, (int)SP_MIB);
	cr_assert_str_eq(shell_in(1, script), "fits\n");
	(void)snprintf(script, sizeof(script), fill, (int)SP_MIB + page);
	cr_assert_str_eq(shell_in(1, script), "");
	cr_assert_eq(open_session(2, SP_INIT_SESSION_RW), 0);
	cr_assert_str_eq(shell_in(2, script), "fits\n", "else the pool's");
}

Test(init_sessions, sources_and_targets)
{
	static const struct {
		const char *source;
		const char *target;
		int status;
		const char *stage;
	} cases[] = {
		{"/home/in", "/workspace/at", 0, ""},
		{"/home/../home/in", "/workspace/link", 0, ""},
		{"/home/none", "/workspace/at", -ENOENT, "bind:0"},
		{"/home/out", "/workspace/at", -EPERM, "not_allowed"},
		{"/home-escape", "/workspace/at", -ENOENT, "bind:0"},
		{"/usr", "/workspace/at", -EPERM, "not_allowed"},
		{"/proc/self", "/workspace/at", -EPERM, "bind:0"},
		{"/proc/self/cwd", "/workspace/at", -ELOOP, "bind:0"},
		{"/.init", "/workspace/at", -EPERM, "bind:0"},
		{"/home/in", "/proc/1", -EPERM, "target:0"},
		{"/home/in", "/dev", -EPERM, "target:0"},
		{"/home/in", "/", -EPERM, "target:0"},
		{"/home/in", "/none", -ENOENT, "target:0"},
		{"/home/in", "/tmp/made/for/it", 0, ""},
		{"/home/in", "/workspace/made/for/it", 0, ""},
		{"/home/in", "/.init/made", -EACCES, "target:0"},
		{"/home/in", "//.init//made", -EACCES, "target:0"},
		{"/home/in", "/.init/upper", -EACCES, "target:0"},
		{"/home/in", "/workspace/shut/made", -EACCES, "target:0"},
		{"/home/in", "/workspace/shut/at", -EACCES, "target:0"},
	};

	(void)shell_in(0,
		       "mkdir -p /home/in /workspace/at /workspace/shut/at; ln -s /usr /home/out; "
		       "chmod 0 /workspace/shut; "
		       "ln -s at /workspace/link; echo there > /home/in/file");
	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++) {
		struct open_message message = message_of((uint32_t)i + 1, SP_INIT_SESSION_RW);
		union harness_answer answer;
		char script[256];

		message.head.allowed_count = 1;
		message.head.bind_count = 1;
		message.head.read_only_binds = 1;
		add_string(&message, "/home");
		add_string(&message, cases[i].source);
		add_string(&message, cases[i].target);
		send_open(&message);
		harness_expect(&harness, SP_INIT_SESSION_OPENED, &answer);
		cr_assert_eq(answer.status.status, cases[i].status, "%zu: %d %s", i,
			     answer.status.status, answer.status.stage);
		cr_assert_str_eq(answer.status.stage, cases[i].stage, "%zu", i);
		if (cases[i].status < 0)
			continue;
		(void)snprintf(script, sizeof(script),
			       "cat %s/file; touch %s/x 2>&1 | grep -c Read", cases[i].target,
			       cases[i].target);
		cr_assert_str_eq(shell_in((uint32_t)i + 1, script), "there\n1\n", "%zu", i);
	}
	/* What was made in the sandbox's own is the workload's like all that is there. */
	cr_assert_str_eq(shell_in(0, "stat -c '%u %g' /workspace/made /workspace/made/for/it; "
				     "rm -r /workspace/made && echo gone"),
			 "1000 1000\n1000 1000\ngone\n");
}

static void expect_source(uint32_t number, const char *allowed, const char *source, int status)
{
	struct open_message message = message_of(number, SP_INIT_SESSION_RW);
	union harness_answer answer;

	message.head.allowed_count = 1;
	message.head.writable_count = 1;
	add_string(&message, allowed);
	add_string(&message, source);
	send_open(&message);
	harness_expect(&harness, SP_INIT_SESSION_OPENED, &answer);
	cr_assert_eq(answer.status.status, status, "%s: %d", source, answer.status.status);
}

Test(init_sessions, sources_are_allowed_by_component)
{
	(void)shell_in(0, "mkdir /home/in /home/in-escape /home/in/below");
	expect_source(1, "/home/in", "/home/in", 0);
	expect_source(2, "/home/in", "/home/in/below", 0);
	expect_source(3, "/home/in", "/home/in-escape", -EPERM);
	expect_source(4, "/home/in", "/home", -EPERM);
}

Test(init_sessions, sources_are_what_the_workload_can_reach)
{
	(void)shell_in(0, "mkdir -p /home/shut/in; chmod 0 /home/shut");
	expect_source(1, "/home", "/home/shut/in", -EACCES);
	(void)shell_in(0, "chmod 700 /home/shut");
	expect_source(2, "/home", "/home/shut/in", 0);
}

static void expect_bad(const struct open_message *message, size_t len)
{
	union harness_answer answer;

	harness_send(&harness, message, len, NULL, 0);
	harness_expect(&harness, SP_INIT_SESSION_OPENED, &answer);
	cr_assert_eq(answer.status.status, -EBADMSG);
}

Test(init_sessions, bad_records)
{
	struct open_message message = message_of(1, SP_INIT_SESSION_RW);
	const size_t good = sizeof(message.head) + message.head.strings_length;

	expect_bad(&message, good - 1);
	expect_bad(&message, good + 1);
	message.head.mode = 0;
	expect_bad(&message, good);
	message.head.mode = SP_INIT_SESSION_OVERLAY + 1;
	expect_bad(&message, good);
	message = message_of(1, SP_INIT_SESSION_RW);
	message.head.flags = SP_SESSION_F_ALL + 1;
	expect_bad(&message, good);
	message = message_of(0, SP_INIT_SESSION_RW);
	expect_bad(&message, good);
	message = message_of(1, SP_INIT_SESSION_RW);
	message.text[0] = 'w';
	expect_bad(&message, good);
	message = message_of(1, SP_INIT_SESSION_RW);
	message.head.bind_count = 1;
	expect_bad(&message, good);
	message = message_of(1, SP_INIT_SESSION_RW);
	message.head.read_only_binds = 1;
	expect_bad(&message, good);
	message = message_of(1, SP_INIT_SESSION_RW);
	message.head.allowed_count = SP_INIT_SESSION_PATHS_MAX + 1;
	expect_bad(&message, good);
	cr_assert_eq(open_session(1, SP_INIT_SESSION_RW), 0);
}

Test(init_sessions, not_without_ids_of_its_own)
{
	const struct harness_options options[] = {{.rootless = true}, {.direct = true}};
	union harness_answer answer;

	for (size_t i = 0; i < SP_ARRAY_SIZE(options); i++) {
		struct open_message message = message_of(1, SP_INIT_SESSION_RW);

		harness_stop(&harness);
		harness_ready(&harness, &options[i]);
		send_open(&message);
		harness_expect(&harness, SP_INIT_SESSION_OPENED, &answer);
		cr_assert_eq(answer.status.status, -EOPNOTSUPP);
		cr_assert_str_eq(answer.status.stage, "supported");
	}
}

Test(init_sessions, not_as_uid_0)
{
	struct open_message message = message_of(1, SP_INIT_SESSION_RW);
	union harness_answer answer;

	message.head.uid = 0;
	send_open(&message);
	harness_expect(&harness, SP_INIT_SESSION_OPENED, &answer);
	cr_assert_eq(answer.status.status, -EPERM);
	cr_assert_str_eq(answer.status.stage, "credentials");
}
