/*
 * FILE, what is read and who reads it: stat, open, connect, the helper's confinement, records that
 * must not be acted on, and PID 1 that waits for none of it.
 *
 * Of the pitfalls: B-178 (links_lead_nowhere_but_inside), B-182 (a_fifo_that_takes_turns_…), B-183
 * (what_is_no_data_is_not_opened), B-196 (stat_errors).
 */
#include "tests/sandbox/files_setup.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"
#include "supervisor/init/request.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PROMPT_MS 100

TestSuite(init_files, .init = set_up, .fini = tear_down);
TestSuite(init_port, .init = set_up, .fini = tear_down);
TestSuite(init_file_helper, .init = set_up, .fini = tear_down);
TestSuite(init_file_record, .init = set_up, .fini = tear_down);

static int stat_of(const char *path)
{
	return channel_do(&harness, &(struct file_ask){.kind = SP_INIT_FILE_STAT, .path = path},
			  &reply);
}

static int open_of(const char *path)
{
	return channel_do(&harness, &(struct file_ask){.kind = SP_INIT_FILE_OPEN, .path = path},
			  &reply);
}

static const char *content(void)
{
	static char text[4096];
	ssize_t got;

	cr_assert(reply.fd >= 0);
	got = pread(reply.fd, text, sizeof(text) - 1, 0);
	cr_assert(got >= 0);
	text[got] = '\0';
	sp_fd_close(&reply.fd);
	return text;
}

/* ---- stat ---- */

Test(init_files, stat_tells_what_is_there)
{
	shell("umask 0; printf 12345 > /tmp/f; chmod 640 /tmp/f; mkdir -m 751 /tmp/d;"
	      "ln -s /nowhere /tmp/l; mkfifo -m 600 /tmp/p; touch -d @1234567890.5 /tmp/f");
	cr_assert(stat_of("/tmp/f") == 0);
	cr_assert(reply.info.type == SP_INIT_FILE_REGULAR && reply.info.mode == 0640);
	cr_assert(reply.info.uid == HARNESS_WORKLOAD && reply.info.gid == HARNESS_WORKLOAD);
	cr_assert(reply.info.size == 5 && reply.info.inode != 0);
	cr_assert(reply.info.modified_ns == INT64_C(1234567890500000000));
	cr_assert(reply.info.changed_ns > reply.info.modified_ns);
	cr_assert(stat_of("/tmp/d") == 0);
	cr_assert(reply.info.type == SP_INIT_FILE_DIR && reply.info.mode == 0751);
	cr_assert(stat_of("/tmp/l") == 0);
	cr_assert(reply.info.type == SP_INIT_FILE_LINK);
	cr_assert(stat_of("/tmp/p") == 0);
	cr_assert(reply.info.type == SP_INIT_FILE_ELSE);
	cr_assert(stat_of("/") == 0 && reply.info.type == SP_INIT_FILE_DIR);
	cr_assert(reply.fd == -1);
}

static void with_accounts(uint32_t kind, const char *path)
{
	const struct file_ask ask = {.kind = kind,
				     .path = path,
				     .flags = SP_INIT_FILE_F_ACCOUNTS,
				     .depth = kind == SP_INIT_FILE_LIST ? 1 : 0};

	(void)channel_do(&harness, &ask, &reply);
	cr_assert(reply.accounts.header.type == SP_INIT_FILE_ACCOUNTS);
}

static bool is_that(const struct sp_init_file_info *one, const struct sp_init_file_info *other)
{
	return memcmp(one, other, sizeof(*one)) == 0;
}

Test(init_files, what_the_account_files_are_comes_first_if_it_is_wanted)
{
	const struct sp_init_file_info none = {0}; /* this root has no /etc/group */
	struct sp_init_file_info users;

	cr_assert(stat_of("/etc/group") == -ENOENT);
	cr_assert(stat_of("/etc/passwd") == 0);
	cr_assert(reply.accounts.header.type == 0 && reply.records == 1, "not without being asked");
	users = reply.info;
	cr_assert(users.inode != 0);
	with_accounts(SP_INIT_FILE_STAT, "/tmp");
	cr_assert(reply.status == 0 && reply.records == 2);
	cr_assert(is_that(&reply.accounts.users, &users));
	cr_assert(is_that(&reply.accounts.groups, &none));
	with_accounts(SP_INIT_FILE_STAT, "/none");
	cr_assert(reply.status == -ENOENT && is_that(&reply.accounts.users, &users));
	shell(": > /tmp/f");
	with_accounts(SP_INIT_FILE_LIST, "/tmp");
	cr_assert(reply.status == 0 && reply.entries == 1);
	cr_assert(is_that(&reply.accounts.users, &users));
}

Test(init_files, stat_of_times_that_no_64_bits_hold)
{
	harness_python(&harness,
		       "import os\n"
		       "open('/tmp/f', 'w')\n"
		       "os.utime('/tmp/f', (2**33, 2**33))\n",
		       &result);
	cr_assert(result.value == 0, "%s", result.output);
	cr_assert(stat_of("/tmp/f") == 0);
	cr_assert(reply.info.modified_ns == INT64_C(8589934592) * 1000000000);
}

Test(init_files, stat_errors)
{
	shell(": > /tmp/f");
	cr_assert(stat_of("/tmp/missing") == -ENOENT);
	cr_assert(stat_of("/tmp/missing/below") == -ENOENT);
	cr_assert(stat_of("/tmp/f/below") == -ENOTDIR);
	cr_assert(stat_of("/.init/proc") == -EACCES, "init's own proc is not for anybody else");
}

Test(init_files, directories_closed_by_their_owner_are_in_nobodys_way_but_others)
{
	struct file_ask other = {.kind = SP_INIT_FILE_STAT, .path = "/tmp/a/b/f", .uid = 2000};

	shell("mkdir -p /tmp/a/b; echo x > /tmp/a/b/f; chmod 644 /tmp/a/b; chmod 0 /tmp/a");
	cr_assert(stat_of("/tmp/a/b/f") == 0, "%s", strerror(-reply.status));
	cr_assert(channel_do(&harness, &other, &reply) == -EACCES);
	cr_assert(stat_of("/tmp/a/b/missing") == -ENOENT);
	cr_assert(stat_of("/tmp/a/b") == 0 && reply.info.mode == 0644, "closed again");
	cr_assert(stat_of("/tmp/a") == 0 && reply.info.mode == 0);
	cr_assert(channel_put(&harness, "/tmp/a/b/f", "new", 3) == 0);
	cr_assert(channel_put(&harness, "/tmp/a/b/c/g", "new", 3) == 0);
	cr_assert(stat_of("/tmp/a/b") == 0 && reply.info.mode == 0644);
	cr_assert(stat_of("/tmp/a") == 0 && reply.info.mode == 0);
	shell("chmod 700 /tmp/a /tmp/a/b; test $(cat /tmp/a/b/f /tmp/a/b/c/g) = newnew");
}

/* ---- open ---- */

Test(init_files, open_gives_a_file_to_read_and_nothing_more)
{
	char byte = 'x';

	shell("printf hello > /tmp/f; ln -s f /tmp/l; ln -s /tmp/l /tmp/m");
	cr_assert(open_of("/tmp/f") == 0);
	cr_assert((fcntl(reply.fd, F_GETFL) & O_ACCMODE) == O_RDONLY);
	cr_assert(write(reply.fd, &byte, 1) < 0);
	cr_assert(reply.info.size == 5);
	cr_assert_str_eq(content(), "hello");
	cr_assert(open_of("/tmp/m") == 0, "links are followed inside");
	cr_assert_str_eq(content(), "hello");
}

Test(init_files, open_is_by_the_rights_of_the_workload)
{
	shell("echo mine > /tmp/f; chmod 0 /tmp/f; echo theirs > /tmp/g; chmod 600 /tmp/g");
	cr_assert(open_of("/tmp/f") == -EACCES, "its own mode is for it as well");
	cr_assert(channel_do(&harness,
			     &(struct file_ask){
				     .kind = SP_INIT_FILE_OPEN, .path = "/tmp/g", .uid = 2000},
			     &reply) == -EACCES);
	cr_assert(open_of("/tmp/g") == 0, "the control");
	cr_assert_str_eq(content(), "theirs\n");
}

Test(init_files, what_is_no_data_is_not_opened)
{
	static const struct {
		const char *path;
		int status;
	} cases[] = {
		{"/tmp", -EISDIR},
		{"/tmp/dangling", -ENOENT},
		{"/tmp/loop", -ELOOP},
		{"/tmp/fifo", -ENODEV},
		{"/tmp/socket", -ENODEV},
		{"/dev/zero", -ENODEV},
		{"/dev/tty", -ENODEV},
		{"/dev/stdin", -ELOOP},      /* a magic link */
		{"/proc/self/fd/0", -ELOOP}, /* the channel */
		{"/proc/self/root/tmp/good", -ELOOP},
		{"/proc/self/mem", -EOPNOTSUPP},
		{"/proc/version", -EOPNOTSUPP},
		{"/proc/self/environ", -EOPNOTSUPP},
		{"/dev/pts/ptmx", -EOPNOTSUPP},
	};

	harness_python(&harness,
		       "import os, socket\n"
		       "os.symlink('nowhere', '/tmp/dangling')\n"
		       "os.symlink('loop', '/tmp/loop')\n"
		       "os.mkfifo('/tmp/fifo')\n"
		       "socket.socket(socket.AF_UNIX).bind('/tmp/socket')\n"
		       "open('/tmp/good', 'w').write('good')\n",
		       &result);
	cr_assert(result.value == 0, "%s", result.output);
	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++) {
		int64_t start_ms = sp_clock_boot_ms();
		int status = open_of(cases[i].path);

		cr_assert(reply.fd == -1, "%s", cases[i].path);
		cr_assert(status < 0, "%s", cases[i].path);
		cr_assert(status == cases[i].status, "%s: %s", cases[i].path, strerror(-status));
		cr_assert(sp_clock_boot_ms() - start_ms < 10 * PROMPT_MS, "%s", cases[i].path);
	}
	cr_assert(open_of("/proc/kmsg") == 0, "what masks it is a file, with nothing in it");
	cr_assert_str_eq(content(), "");
	cr_assert(open_of("/tmp/good") == 0, "the control");
	cr_assert_str_eq(content(), "good");
}

Test(init_files, a_fifo_that_takes_turns_with_a_file_is_never_waited_for)
{
	const char *const argv[] = {"/usr/bin/python3", "-c",
				    "import os\n"
				    "open('/tmp/a', 'w').write('data')\n"
				    "os.mkfifo('/tmp/b')\n"
				    "os.symlink('a', '/tmp/x')\n"
				    "print('go', flush=True)\n"
				    "while True:\n"
				    "  for t in 'ab':\n"
				    "    os.symlink(t, '/tmp/y')\n"
				    "    os.rename('/tmp/y', '/tmp/x')\n",
				    NULL};
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	int out[2];
	char word[3];
	unsigned int files = 0;
	unsigned int refused = 0;

	cr_assert(pipe2(out, O_CLOEXEC) == 0);
	(void)harness_exec(&harness, &(struct harness_exec){.argv = argv},
			   (int[]){null_fd, out[1], null_fd}, 3);
	cr_assert(read(out[0], word, sizeof(word)) == 3);
	for (int i = 0; i < 100000 && (i < 300 || files == 0 || refused == 0); i++) {
		int64_t start_ms = sp_clock_boot_ms();
		int status = open_of("/tmp/x");

		cr_assert(sp_clock_boot_ms() - start_ms < 10 * PROMPT_MS);
		if (status == 0) {
			cr_assert_str_eq(content(), "data");
			files++;
		} else {
			cr_assert(status == -ENODEV, "%s", strerror(-status));
			refused++;
		}
	}
	cr_assert(files > 0 && refused > 0, "%u files, %u refused", files, refused);
	sp_fd_close(&out[0]);
	sp_fd_close(&out[1]);
	sp_fd_close(&null_fd);
}

Test(init_files, links_lead_nowhere_but_inside)
{
	/* The host has this; the sandbox's /etc is its own. */
	cr_assert(access("/etc/shadow", F_OK) == 0);
	shell("ln -s /etc/shadow /tmp/a; ln -s ../../../../../../etc/shadow /tmp/b;"
	      "ln -s /etc /tmp/c; ln -s /etc/passwd /tmp/d");
	cr_assert(open_of("/tmp/a") == -ENOENT);
	cr_assert(open_of("/tmp/b") == -ENOENT);
	cr_assert(open_of("/tmp/c/shadow") == -ENOENT);
	cr_assert(open_of("/tmp/../../../../etc/shadow") == -ENOENT);
	cr_assert(open_of("/tmp/d") == 0, "the control");
	cr_assert_str_eq(content(), "root:x:0:0::/:/bin/sh\nworkload:x:1000:1000::/home:/bin/sh\n");
}

/* ---- ports ---- */

Test(init_port, connects_to_who_listens_and_to_nobody_else)
{
	const char *const argv[] = {"/usr/bin/python3", "-c",
				    "import socket\n"
				    "s = socket.create_server(('127.0.0.1', 8123))\n"
				    "print('go', flush=True)\n"
				    "c, a = s.accept()\n"
				    "c.sendall(a[0].encode() + b' ' + c.recv(99))\n",
				    NULL};
	struct file_ask ask = {.kind = SP_INIT_FILE_CONNECT, .port = 8124};
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	int out[2];
	char text[64] = "";
	struct pollfd ready = {.events = POLLIN};

	cr_assert(pipe2(out, O_CLOEXEC) == 0);
	(void)harness_exec(&harness, &(struct harness_exec){.argv = argv},
			   (int[]){null_fd, out[1], null_fd}, 3);
	cr_assert(read(out[0], text, sizeof(text)) == 3);
	cr_assert(channel_do(&harness, &ask, &reply) == -ECONNREFUSED);
	cr_assert_str_eq(reply.stage, "connect");
	cr_assert(reply.fd == -1);
	ask.port = 8123;
	cr_assert(channel_do(&harness, &ask, &reply) == 0, "%s", strerror(-reply.status));
	cr_assert(reply.fd >= 0);
	cr_assert(write(reply.fd, "ping", 4) == 4);
	ready.fd = reply.fd;
	cr_assert(poll(&ready, 1, HARNESS_WAIT_MS) == 1);
	cr_assert(read(reply.fd, text, sizeof(text)) == 14);
	cr_assert_arr_eq(text, "127.0.0.1 ping", 14);
	sp_fd_close(&reply.fd);
	sp_fd_close(&out[0]);
	sp_fd_close(&out[1]);
	sp_fd_close(&null_fd);
}

/* ---- the helper ---- */

static pid_t child_of(pid_t parent, int nth)
{
	char path[96];
	char text[256] = "";
	char *at = text;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", parent, parent);
	file = fopen(path, "re");
	cr_assert_not_null(file);
	(void)!fread(text, 1, sizeof(text) - 1, file);
	(void)fclose(file);
	for (; nth > 0 && at; nth--) {
		at = strchr(at, ' ');
		at = at ? at + 1 : NULL;
	}
	return at ? (pid_t)strtol(at, NULL, 10) : 0;
}

static pid_t helper_pid(void)
{
	int64_t until_ms = sp_clock_boot_ms() + HARNESS_WAIT_MS;
	pid_t pid = 0;

	while (pid == 0 && sp_clock_boot_ms() < until_ms)
		pid = child_of(harness.init, 0);
	cr_assert(pid > 0);
	return pid;
}

/* Nor one that sweeps after an upload that died: init forks it when the death has been told, so
 * before it answers what is asked now. */
static void wait_for_no_helper(void)
{
	int64_t until_ms = sp_clock_boot_ms() + HARNESS_WAIT_MS;

	cr_assert(stat_of("/tmp") == 0);
	while (child_of(harness.init, 0) != 0)
		cr_assert(sp_clock_boot_ms() < until_ms, "a helper is left");
}

static void read_status(pid_t pid, char *text, size_t size)
{
	char path[64];
	FILE *file;
	size_t len;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", pid);
	file = fopen(path, "re");
	cr_assert_not_null(file);
	len = fread(text, 1, size - 1, file);
	text[len] = '\0';
	(void)fclose(file);
}

/* "Uid:" or "Gid:": three times the helper's own, then the workload's. */
static void expect_ids(const char *status, const char *what)
{
	const unsigned int own = HARNESS_UID_BASE + 65533;
	char line[160];

	(void)snprintf(line, sizeof(line), "\n%s\t%u\t%u\t%u\t%u\n", what, own, own, own,
		       HARNESS_UID_BASE + HARNESS_WORKLOAD);
	cr_assert(strstr(status, line), "no '%s' in %s", line, status);
}

/* An upload that waits for its content, confined by now. */
static int waiting_upload(void)
{
	int fd = channel_ask(&harness,
			     &(struct file_ask){.kind = SP_INIT_FILE_WRITE, .path = "/tmp/upload"});
	int64_t until_ms = sp_clock_boot_ms() + HARNESS_WAIT_MS;
	pid_t pid = helper_pid();
	char status[4096];

	do {
		read_status(pid, status, sizeof(status));
		cr_assert(sp_clock_boot_ms() < until_ms);
	} while (!strstr(status, "State:\tS") || !strstr(status, "Seccomp_filters:\t2"));
	return fd;
}

Test(init_file_helper, has_nothing_but_the_file_systems_ids_of_the_workload)
{
	int fd = waiting_upload();
	char status[4096];

	read_status(helper_pid(), status, sizeof(status));
	expect_ids(status, "Uid:");
	expect_ids(status, "Gid:");
	cr_assert(strstr(status, "\nGroups:\t \n"));
	cr_assert(strstr(status, "\nCapInh:\t0000000000000000\n"));
	cr_assert(strstr(status, "\nCapPrm:\t0000000000000001\n"), "CAP_CHOWN, in reserve");
	cr_assert(strstr(status, "\nCapEff:\t0000000000000000\n"));
	cr_assert(strstr(status, "\nCapBnd:\t0000000000000000\n"));
	cr_assert(strstr(status, "\nNoNewPrivs:\t1\n"));
	cr_assert(strstr(status, "\nSeccomp:\t2\n"));
	sp_fd_close(&fd);
}

Test(init_file_helper, has_no_capability_where_nothing_is_given_away)
{
	struct file_ask ask = {.kind = SP_INIT_FILE_LIST, .path = "/usr", .depth = UINT32_MAX};
	char status[4096] = "";
	int fd = channel_ask(&harness, &ask); /* more than the channel holds */
	int64_t until_ms = sp_clock_boot_ms() + HARNESS_WAIT_MS;

	while (!strstr(status, "Seccomp_filters:\t2")) {
		read_status(helper_pid(), status, sizeof(status));
		cr_assert(sp_clock_boot_ms() < until_ms);
	}
	cr_assert(strstr(status, "\nCapPrm:\t0000000000000000\n"));
	sp_fd_close(&fd);
}

Test(init_file_helper, has_no_descriptor_but_the_channel_and_its_files)
{
	int fd = waiting_upload();
	char path[64];
	char target[256];
	unsigned int sockets = 0;
	unsigned int others = 0;
	struct dirent *entry;
	DIR *dir;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd", helper_pid());
	dir = opendir(path);
	cr_assert_not_null(dir);
	while ((entry = readdir(dir))) {
		ssize_t len = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);

		if (len < 0)
			continue;
		target[len] = '\0';
		if (strncmp(target, "socket:", 7) == 0)
			sockets++;
		else
			others++;
		cr_assert(!strstr(target, "memfd") && !strstr(target, "pipe"), "%s", target);
	}
	(void)closedir(dir);
	cr_assert(sockets == 1, "%u sockets", sockets);
	cr_assert(others == 1, "the file alone, not %u", others);
	sp_fd_close(&fd);
}

Test(init_file_helper, is_out_of_the_workloads_reach)
{
	int fd = waiting_upload();

	harness_python(&harness,
		       "import os, signal\n"
		       "found = 0\n"
		       "for p in filter(str.isdigit, os.listdir('/proc')):\n"
		       "  try: status = open('/proc/%s/status' % p).read()\n"
		       "  except OSError: continue\n"
		       "  if 'Uid:\\t65533\\t65533\\t65533\\t1000\\n' not in status: continue\n"
		       "  found += 1\n"
		       "  for s in signal.SIGSTOP, signal.SIGKILL, 0:\n"
		       "    try: os.kill(int(p), s); print('signalled')\n"
		       "    except PermissionError: pass\n"
		       "  for name in 'mem', 'environ', 'maps', 'fd/0', 'cwd/.':\n"
		       "    try: os.open('/proc/%s/%s' % (p, name), os.O_RDONLY); print(name)\n"
		       "    except PermissionError: pass\n"
		       "print(found)\n",
		       &result);
	cr_assert_str_eq(result.output, "1\n");
	sp_fd_close(&fd);
}

Test(init_file_helper, goes_when_nobody_waits_for_it)
{
	int fd = waiting_upload();
	pid_t pid = helper_pid();

	sp_fd_close(&fd);
	wait_for_no_helper();
	cr_assert(kill(pid, 0) < 0 && errno == ESRCH);
	shell("test ! -e /tmp/upload");
}

Test(init_file_helper, goes_even_if_it_cannot_notice)
{
	int fd = waiting_upload();

	cr_assert(kill(helper_pid(), SIGSTOP) == 0);
	sp_fd_close(&fd);
	wait_for_no_helper();
}

Test(init_file_helper, its_death_is_told)
{
	int fd = waiting_upload();

	cr_assert(kill(helper_pid(), SIGKILL) == 0);
	channel_reply(fd, &reply);
	cr_assert(reply.answered && reply.status == -ECANCELED);
	cr_assert_str_eq(reply.stage, "killed");
	wait_for_no_helper();
	fd = waiting_upload();
	cr_assert(kill(helper_pid(), SIGALRM) == 0);
	channel_reply(fd, &reply);
	cr_assert(reply.answered && reply.status == -ETIMEDOUT);
	cr_assert_str_eq(reply.stage, "deadline");
	cr_assert(stat_of("/tmp") == 0, "the next one works");
}

/* The one test that waits: the timer is the helper's own, and nobody else can look at it. */
Test(init_file_helper, its_time_ends_without_progress)
{
	int fd = waiting_upload();
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	int64_t start_ms = sp_clock_boot_ms();

	cr_assert(poll(&ready, 1, SP_INIT_FILE_STALL_S * 1000 + HARNESS_WAIT_MS) == 1);
	cr_assert(sp_clock_boot_ms() - start_ms > SP_INIT_FILE_STALL_S * 1000 - 1000);
	channel_reply(fd, &reply);
	cr_assert(reply.answered && reply.status == -ETIMEDOUT);
	cr_assert_str_eq(reply.stage, "deadline");
}

Test(init_file_helper, is_no_program_of_anybodys)
{
	const char *const argv[] = {"/usr/bin/sleep", "600", NULL};
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	int fd = waiting_upload();
	union harness_answer answer;
	uint32_t exec;

	/* Were it one, init could not tell whose it is. */
	exec = harness_exec(&harness, &(struct harness_exec){.argv = argv},
			    (int[]){null_fd, null_fd, null_fd}, 3);
	harness_expect(&harness, SP_INIT_STARTED, &answer);
	harness_plain(&harness, SP_INIT_KILL_EXEC, exec);
	harness_expect(&harness, SP_INIT_EXITED, &answer);
	harness_expect(&harness, SP_INIT_KILLED, &answer);
	cr_assert(answer.status.status == 0, "stage '%s'", answer.status.stage);
	channel_reply(fd, &reply);
	cr_assert(reply.status == -ECANCELED, "it was killed with everything else");
	sp_fd_close(&null_fd);
}

Test(init_file_helper, there_are_so_many_and_one_more_is_refused)
{
	int fds[SP_INIT_FILES_MAX];
	struct file_ask ask = {.kind = SP_INIT_FILE_WRITE, .path = "/tmp/upload"};

	for (size_t i = 0; i < SP_INIT_FILES_MAX; i++)
		fds[i] = channel_ask(&harness, &ask);
	cr_assert(stat_of("/tmp") == -EAGAIN);
	cr_assert_str_eq(reply.stage, "files");
	for (size_t i = 0; i < SP_INIT_FILES_MAX; i++) {
		channel_commit(fds[i]);
		channel_reply(fds[i], &reply);
		cr_assert(reply.answered && reply.status == 0, "the %zuth: %s in '%s'", i + 1,
			  strerror(-reply.status), reply.stage);
	}
	wait_for_no_helper();
	cr_assert(stat_of("/tmp") == 0);
}

/* How many the sandbox sees, this one's own included. */
static const char *processes(void)
{
	harness_shell(&harness, "ls /proc | grep -c '^[0-9]'", &result);
	return result.output;
}

Test(init_file_helper, a_thousand_leave_nothing)
{
	char before[16];

	(void)snprintf(before, sizeof(before), "%.15s", processes());
	for (int i = 0; i < 1000; i++)
		cr_assert(stat_of("/tmp") == 0, "%d", i);
	wait_for_no_helper();
	cr_assert_str_eq(processes(), before);
}

Test(init_file_helper, pid_1_does_not_wait_for_who_does_not_read)
{
	struct file_ask ask = {.kind = SP_INIT_FILE_LIST, .path = "/usr", .depth = UINT32_MAX};
	int fd = channel_ask(&harness, &ask);

	(void)helper_pid();
	for (int i = 0; i < 50; i++)
		cr_assert(harness_ping(&harness) < PROMPT_MS);
	sp_fd_close(&fd);
	wait_for_no_helper();
}

Test(init_file_helper, may_not_be_id_0_or_one_of_the_helpers)
{
	static const uint32_t uids[] = {65533, 65534, 65535, 70000, UINT32_MAX};
	struct file_ask ask = {.kind = SP_INIT_FILE_STAT, .path = "/tmp"};

	for (size_t i = 0; i < SP_ARRAY_SIZE(uids); i++) {
		ask.uid = uids[i];
		cr_assert(channel_do(&harness, &ask, &reply) == -EINVAL, "%u", uids[i]);
		cr_assert_str_eq(reply.stage, "credentials");
	}
	ask.uid = 65532;
	cr_assert(channel_do(&harness, &ask, &reply) == 0);
}

/* ---- records ---- */

static _Alignas(8) char record[SP_INIT_RECORD_MAX];

static bool valid(const struct file_ask *ask)
{
	size_t len = channel_record(ask, record, sizeof(record));

	return init_request_check(record, len, 1) == 0;
}

Test(init_file_record, path_has_so_many_bytes)
{
	static char path[SP_INIT_PATH_MAX + 1];
	struct file_ask ask = {.kind = SP_INIT_FILE_STAT, .path = path};
	struct file_ask move = {.kind = SP_INIT_FILE_MOVE, .path = "/a", .to = path};

	memset(path, '/', SP_INIT_PATH_MAX - 1);
	cr_assert(valid(&ask) && valid(&move));
	path[SP_INIT_PATH_MAX - 1] = '/';
	cr_assert(!valid(&ask) && !valid(&move));
}

Test(init_file_record, fields_belong_to_their_kind)
{
	const struct file_ask good[] = {
		{.kind = SP_INIT_FILE_STAT, .path = "/"},
		{.kind = SP_INIT_FILE_OPEN, .path = "/x"},
		{.kind = SP_INIT_FILE_LIST, .path = "/", .depth = UINT32_MAX, .limit = 1},
		{.kind = SP_INIT_FILE_LIST, .path = "/", .limit = SP_INIT_FILE_ENTRIES},
		{.kind = SP_INIT_FILE_MKDIR, .path = "/x", .mode = 01777, .owner = 7, .group = 8},
		{.kind = SP_INIT_FILE_REMOVE, .path = "/x", .flags = SP_INIT_FILE_F_RECURSIVE},
		{.kind = SP_INIT_FILE_MOVE,
		 .path = "/x",
		 .to = "/y",
		 .flags = SP_INIT_FILE_F_REPLACE},
		{.kind = SP_INIT_FILE_CHANGE, .path = "/x", .mode = 1},
		{.kind = SP_INIT_FILE_WRITE, .path = "/x"},
		{.kind = SP_INIT_FILE_CONNECT, .port = 65535},
	};
	const struct file_ask bad[] = {
		{.kind = 0, .path = "/"},
		{.kind = SP_INIT_FILE_CONNECT + 1, .path = "/"},
		{.kind = SP_INIT_FILE_STAT},
		{.kind = SP_INIT_FILE_STAT, .path = ""},
		{.kind = SP_INIT_FILE_STAT, .path = "x"},
		{.kind = SP_INIT_FILE_STAT, .path = "/", .mode = 0644},
		{.kind = SP_INIT_FILE_STAT, .path = "/", .flags = 1},
		{.kind = SP_INIT_FILE_STAT, .path = "/", .port = 1},
		{.kind = SP_INIT_FILE_STAT, .path = "/", .to = "/"},
		{.kind = SP_INIT_FILE_LIST, .path = "/", .limit = SP_INIT_FILE_ENTRIES + 1},
		{.kind = SP_INIT_FILE_MKDIR, .path = "/x", .mode = 02755},
		{.kind = SP_INIT_FILE_CHANGE, .path = "/x", .mode = 04755},
		{.kind = SP_INIT_FILE_WRITE, .path = "/x", .mode = 06000},
		{.kind = SP_INIT_FILE_WRITE, .path = "/x", .flags = SP_INIT_FILE_F_REPLACE},
		{.kind = SP_INIT_FILE_REMOVE, .path = "/x", .flags = SP_INIT_FILE_F_REPLACE},
		{.kind = SP_INIT_FILE_REMOVE, .path = "/x", .owner = 1},
		{.kind = SP_INIT_FILE_MOVE, .path = "/x"},
		{.kind = SP_INIT_FILE_MOVE, .path = "/x", .to = "y"},
		{.kind = SP_INIT_FILE_CONNECT},
		{.kind = SP_INIT_FILE_CONNECT, .port = 65536},
		{.kind = SP_INIT_FILE_CONNECT, .port = 1, .path = "/"},
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(good); i++)
		cr_assert(valid(&good[i]), "good %zu", i);
	for (size_t i = 0; i < SP_ARRAY_SIZE(bad); i++)
		cr_assert(!valid(&bad[i]), "bad %zu", i);
}

Test(init_file_record, length_and_descriptors_are_exact)
{
	struct file_ask ask = {.kind = SP_INIT_FILE_MOVE, .path = "/from", .to = "/to"};
	size_t len = channel_record(&ask, record, sizeof(record));
	struct sp_init_file *file = (struct sp_init_file *)record;

	cr_assert(init_request_check(record, len, 1) == 0);
	cr_assert(init_request_check(record, len, 0) < 0);
	cr_assert(init_request_check(record, len, 2) < 0);
	for (size_t cut = 0; cut < len; cut++)
		cr_assert(init_request_check(record, cut, 1) < 0, "%zu bytes", cut);
	cr_assert(init_request_check(record, len + 1, 1) < 0);
	file->path_length++;
	file->to_length--;
	cr_assert(init_request_check(record, len, 1) < 0, "lengths that are not the strings'");
}

Test(init_file_record, bad_one_ends_its_channel_and_nothing_else)
{
	struct file_ask bad = {.kind = SP_INIT_FILE_STAT, .path = "/", .mode = 0644};

	channel_reply(channel_ask(&harness, &bad), &reply);
	cr_assert(!reply.answered);
	cr_assert(harness_ping(&harness) < PROMPT_MS * 10);
}

/* ---- other kinds of sandboxes ---- */

Test(init_files_rootless, the_one_id_is_the_workloads)
{
	struct harness_options options = {.rootless = true};

	if (init_harness_missing())
		cr_skip("%s", init_harness_missing());
	harness_ready(&harness, &options);
	shell("printf hello > /tmp/f");
	cr_assert(open_of("/tmp/f") == 0, "%s in '%s'", strerror(-reply.status), reply.stage);
	cr_assert(reply.info.uid == HARNESS_WORKLOAD);
	cr_assert_str_eq(content(), "hello");
	cr_assert(channel_put(&harness, "/tmp/a/b", "data", 4) == 0);
	shell("test $(cat /tmp/a/b) = data && rm -rf /tmp/a && test $(stat -c %u /tmp) != x");
	cr_assert(channel_do(&harness,
			     &(struct file_ask){
				     .kind = SP_INIT_FILE_CHANGE, .path = "/tmp/f", .owner = 7},
			     &reply) < 0);
	tear_down();
}

Test(init_files_direct, as_whom_init_is)
{
	struct harness_options options = {.direct = true};
	struct file_ask ask = {
		.kind = SP_INIT_FILE_STAT, .path = "/etc/passwd", .uid = HARNESS_DIRECT_ID};

	if (init_harness_missing())
		cr_skip("%s", init_harness_missing());
	harness_ready(&harness, &options);
	cr_assert(channel_do(&harness, &ask, &reply) == 0, "%s in '%s'", strerror(-reply.status),
		  reply.stage);
	ask.path = "/etc/shadow";
	ask.kind = SP_INIT_FILE_OPEN;
	cr_assert(channel_do(&harness, &ask, &reply) == -EACCES);
	ask.uid = 1;
	cr_assert(channel_do(&harness, &ask, &reply) == -EINVAL);
	tear_down();
}
