/*
 * FILE, what is made and changed: uploads that are whole or not there, owners and modes,
 * directories.
 *
 * Of the pitfalls: B-165 (put_and_execute_at_once), B-179 and B-181 (links_are_followed_inside),
 * B-180 (directory_that_is_swapped_meanwhile), B-184 (shorter_content_…), B-185 (readers_see_…),
 * B-186 (parents_are_made_…), B-187 (what_is_there_already_…), B-193 (odd_names), B-198
 * (given_up_…, killed_anywhere_…), B-199 (set_id_bits_…, init_file_record), B-202
 * (overwriting_uses_up_nothing).
 */
#include "tests/sandbox/files_setup.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (1024u * 1024)

static char megabyte[MIB];

TestSuite(init_file_write, .init = set_up, .fini = tear_down);
TestSuite(init_file_change, .init = set_up, .fini = tear_down);
TestSuite(init_file_mkdir, .init = set_up, .fini = tear_down);

static int put(const char *path, const char *text)
{
	return channel_put(&harness, path, text, strlen(text));
}

static int put_as(const struct file_ask *ask, const char *text)
{
	int fd = channel_ask(&harness, ask);

	channel_data(fd, text, strlen(text));
	channel_commit(fd);
	channel_reply(fd, &reply);
	cr_assert(reply.answered);
	return reply.status;
}

static int begin(const char *path)
{
	return channel_ask(&harness, &(struct file_ask){.kind = SP_INIT_FILE_WRITE, .path = path});
}

static int do_kind(uint32_t kind, const char *path)
{
	return channel_do(&harness, &(struct file_ask){.kind = kind, .path = path}, &reply);
}

/* Nothing that an upload may have left, anywhere. */
static void expect_no_residue(void)
{
	int64_t until_ms = sp_clock_boot_ms() + HARNESS_WAIT_MS;
	const char *found;

	do {
		found = said("find /tmp /workspace /home /dev/shm -name '.sandpool*' 2>/dev/null");
		cr_assert(sp_clock_boot_ms() < until_ms, "left: %s", found);
	} while (found[0] != '\0');
}

static pid_t helper_pid(void)
{
	char path[96];
	char text[64] = "";
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", harness.init, harness.init);
	for (;;) {
		fd = open(path, O_RDONLY | O_CLOEXEC);
		cr_assert(fd >= 0);
		if (read(fd, text, sizeof(text) - 1) > 0)
			break;
		(void)close(fd);
	}
	(void)close(fd);
	return (pid_t)strtol(text, NULL, 10);
}

/* ---- content ---- */

Test(init_file_write, new_file_is_the_workloads)
{
	cr_assert(put("/tmp/f", "hello") == 0);
	cr_assert_str_eq(said("cat /tmp/f; stat -c ' %a %u %g' /tmp/f"), "hello 644 1000 1000\n");
	cr_assert(put("/tmp/empty", "") == 0);
	cr_assert_str_eq(said("stat -c '%s %F' /tmp/empty"), "0 regular empty file\n");
}

Test(init_file_write, content_is_byte_exact)
{
	static char big[5 * MIB + 13];
	unsigned int seed = 1;
	int fd;

	for (size_t i = 0; i < sizeof(big); i++)
		big[i] = (char)(seed = seed * 1103515245u + 12345u, seed >> 16);
	cr_assert(channel_put(&harness, "/tmp/f", big, sizeof(big)) == 0);
	cr_assert(do_kind(SP_INIT_FILE_OPEN, "/tmp/f") == 0);
	cr_assert(reply.info.size == sizeof(big));
	fd = reply.fd;
	for (size_t at = 0; at < sizeof(big); at += 4096) {
		char page[4096];
		ssize_t got = pread(fd, page, sizeof(page), (off_t)at);

		cr_assert(got == (ssize_t)SP_MIN(sizeof(page), sizeof(big) - at));
		cr_assert(memcmp(page, big + at, (size_t)got) == 0);
	}
	sp_fd_close(&fd);
}

Test(init_file_write, shorter_content_has_no_stale_tail)
{
	cr_assert(channel_put(&harness, "/tmp/f", megabyte, sizeof(megabyte)) == 0);
	cr_assert(put("/tmp/f", "0123456789") == 0);
	cr_assert_str_eq(said("cat /tmp/f"), "0123456789");
}

Test(init_file_write, parents_are_made_and_can_be_removed)
{
	cr_assert(put("/workspace/a/b/c", "x") == 0);
	cr_assert_str_eq(said("stat -c '%a %u %g' /workspace/a /workspace/a/b"),
			 "755 1000 1000\n755 1000 1000\n");
	shell("rm -rf /workspace/a");
}

Test(init_file_write, what_is_there_already_is_left_as_it_is)
{
	char before[HARNESS_OUTPUT];

	memcpy(before, said("stat -c '%a %u %g' / /tmp /workspace"), sizeof(before));
	cr_assert(put("/tmp/x", "x") == 0 && put("/tmp/y/z", "x") == 0);
	cr_assert_str_eq(said("stat -c '%a %u %g' / /tmp /workspace"), before);
	cr_assert(strstr(before, "1777 0 0") != NULL);
}

Test(init_file_write, readers_see_the_old_or_the_new_whole_file)
{
	const char *const argv[] = {"/usr/bin/python3", "-c",
				    "import sys\n"
				    "seen = set()\n"
				    "print('go', flush=True)\n"
				    "while True:\n"
				    "  d = open('/tmp/f', 'rb').read()\n"
				    "  if len(d) != 1 << 20 or len(set(d)) != 1: print('torn')\n"
				    "  elif d[:1] == b'z': break\n"
				    "print('done')\n",
				    NULL};
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	char text[16] = "";
	int out[2];

	memset(megabyte, 'a', sizeof(megabyte));
	cr_assert(channel_put(&harness, "/tmp/f", megabyte, sizeof(megabyte)) == 0);
	cr_assert(pipe2(out, O_CLOEXEC) == 0);
	(void)harness_exec(&harness, &(struct harness_exec){.argv = argv},
			   (int[]){null_fd, out[1], null_fd}, 3);
	cr_assert(read(out[0], text, 3) == 3);
	for (int i = 0; i < 200; i++) {
		memset(megabyte, i == 199 ? 'z' : 'b' + i % 2, sizeof(megabyte));
		cr_assert(channel_put(&harness, "/tmp/f", megabyte, sizeof(megabyte)) == 0, "%d",
			  i);
	}
	cr_assert(read(out[0], text, sizeof(text)) == 5);
	cr_assert(memcmp(text, "done\n", 5) == 0, "%.5s", text);
	sp_fd_close(&out[0]);
	sp_fd_close(&out[1]);
	sp_fd_close(&null_fd);
}

Test(init_file_write, overwriting_uses_up_nothing)
{
	/* 16 MiB of space: each costs its own size for a moment. */
	for (int i = 0; i < 300; i++)
		cr_assert(channel_put(&harness, "/tmp/f", megabyte, sizeof(megabyte)) == 0, "%d",
			  i);
}

Test(init_file_write, put_and_execute_at_once)
{
	for (int i = 0; i < 100; i++) {
		int fd = channel_ask(&harness, &(struct file_ask){.kind = SP_INIT_FILE_WRITE,
								  .path = "/tmp/program",
								  .mode = 0755});

		channel_data(fd, "#!/bin/sh\nexit 42\n", 18);
		channel_commit(fd);
		channel_reply(fd, &reply);
		cr_assert(reply.status == 0);
		harness_run(
			&harness,
			&(struct harness_exec){.argv = (const char *const[]){"/tmp/program", NULL}},
			&result);
		cr_assert(result.started && result.value == 42, "%s: %s", result.stage,
			  strerror(-result.status));
	}
}

/* ---- an upload that ends early ---- */

Test(init_file_write, given_up_leaves_nothing)
{
	for (int i = 0; i < 100; i++) {
		int fd = begin("/tmp/new/directory/f");

		if (i % 2 == 0)
			channel_data(fd, megabyte, (size_t)i * 100);
		sp_fd_close(&fd);
	}
	expect_no_residue();
	cr_assert_str_eq(said("ls -A /tmp"), "", "not even its directories");
	cr_assert(put("/tmp/new/directory/f", "x") == 0, "the control");
	cr_assert_str_eq(said("ls -A /tmp"), "new\n");
}

Test(init_file_write, given_up_leaves_the_old_file)
{
	int fd;

	cr_assert(put("/tmp/f", "old") == 0);
	fd = begin("/tmp/f");
	channel_data(fd, "new", 3);
	sp_fd_close(&fd);
	expect_no_residue();
	cr_assert_str_eq(said("cat /tmp/f; ls -A /tmp"), "oldf\n");
}

Test(init_file_write, killed_anywhere_leaves_nothing)
{
	unsigned int whole = 0;
	unsigned int cut = 0;

	cr_assert(put("/tmp/f", "old") == 0);
	for (int i = 0; i < 300; i++) {
		int fd = begin("/tmp/f");
		pid_t pid = helper_pid();

		channel_data(fd, "new", 3);
		channel_commit(fd);
		/* Later each time: before, in and after the steps of the end. */
		for (volatile int spin = 0; spin < i * 400; spin++)
			;
		(void)kill(pid, SIGKILL);
		channel_reply(fd, &reply);
		if (reply.status == 0)
			whole++;
		else
			cut++;
	}
	expect_no_residue();
	cr_assert(cut > 0);
	cr_assert_str_eq(said("ls -A /tmp"), "f\n");
	(void)whole;
}

Test(init_file_write, nothing_is_seen_of_it_before_its_end)
{
	int fd = begin("/tmp/f");

	channel_data(fd, megabyte, sizeof(megabyte));
	cr_assert_str_eq(said("ls -A /tmp"), "");
	channel_commit(fd);
	channel_reply(fd, &reply);
	cr_assert(reply.status == 0);
	cr_assert_str_eq(said("ls -A /tmp"), "f\n");
}

/* ---- where it goes ---- */

Test(init_file_write, links_are_followed_inside)
{
	shell("mkdir /tmp/d; ln -s /tmp/d/target /tmp/link; ln -s link /tmp/second;"
	      "ln -s /etc/cron.d/x /tmp/out; ln -s /nowhere/x /tmp/dangling; ln -s loop /tmp/loop;"
	      "ln -s /usr/bin /tmp/usr");
	cr_assert(put("/tmp/second", "through") == 0);
	cr_assert_str_eq(said("cat /tmp/d/target; readlink /tmp/second /tmp/link"),
			 "throughlink\n/tmp/d/target\n");
	cr_assert(put("/tmp/out", "x") == -ENOENT, "no such directory in the sandbox's /etc");
	cr_assert(put("/tmp/usr/x", "x") == -EROFS);
	cr_assert(put("/tmp/dangling", "x") == -ENOENT);
	cr_assert(put("/tmp/loop", "x") == -ELOOP);
	cr_assert(access("/etc/cron.d/x", F_OK) != 0 && access("/usr/bin/x", F_OK) != 0);
}

Test(init_file_write, only_a_regular_file_is_replaced)
{
	shell("mkdir /tmp/d; mkfifo /tmp/fifo");
	cr_assert(put("/tmp/d", "x") == -EISDIR);
	cr_assert(put("/tmp/d/", "x") == -EISDIR);
	cr_assert(put("/tmp/..", "x") == -EISDIR);
	cr_assert(put("/", "x") == -EISDIR);
	cr_assert(put("/tmp/fifo", "x") == -ENODEV);
	cr_assert(put("/dev/null", "x") == -ENODEV);
	cr_assert(put("/tmp/fifo/x", "x") == -ENOTDIR);
	cr_assert(put("/proc/self/comm", "x") == -EOPNOTSUPP);
	cr_assert(put("/usr/x", "x") == -EROFS);
	cr_assert(put("/srv/x", "x") == -EROFS);
	expect_no_residue();
}

Test(init_file_write, directory_that_is_swapped_meanwhile)
{
	const char *const argv[] = {
		"/usr/bin/python3", "-c",
		"import os\n"
		"os.mkdir('/tmp/a')\n"
		"os.symlink('/etc', '/tmp/b')\n"
		"print('go', flush=True)\n"
		"while True:\n"
		"  os.rename('/tmp/a', '/tmp/x'); os.rename('/tmp/x', '/tmp/a')\n"
		"  os.rename('/tmp/b', '/tmp/x'); os.rename('/tmp/x', '/tmp/b')\n",
		NULL};
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	char word[3];
	unsigned int done = 0;
	int out[2];

	cr_assert(pipe2(out, O_CLOEXEC) == 0);
	(void)harness_exec(&harness, &(struct harness_exec){.argv = argv},
			   (int[]){null_fd, out[1], null_fd}, 3);
	cr_assert(read(out[0], word, sizeof(word)) == 3);
	for (int i = 0; i < 100000 && (i < 300 || done == 0); i++) {
		int status = put("/tmp/x/planted", "x");

		cr_assert(status == 0 || status == -EROFS || status == -ENOENT || status == -EEXIST,
			  "%s", strerror(-status));
		if (status == 0)
			done++;
	}
	cr_assert(done > 0, "the control");
	cr_assert(access("/etc/planted", F_OK) != 0);
	sp_fd_close(&out[0]);
	sp_fd_close(&out[1]);
	sp_fd_close(&null_fd);
}

Test(init_file_write, odd_names)
{
	static char longest[NAME_MAX + 1];
	static const char *const names[] = {"new\nline", "-rf", "\xff\xfe", "\xf0\x9f\x98\x80",
					    " ",         "...", "a\\b",     "$HOME",
					    "*"};
	char path[512];

	memset(longest, 'n', NAME_MAX);
	for (size_t i = 0; i <= SP_ARRAY_SIZE(names); i++) {
		const char *name = i < SP_ARRAY_SIZE(names) ? names[i] : longest;

		(void)snprintf(path, sizeof(path), "/tmp/%s", name);
		cr_assert(put(path, name) == 0, "'%s'", name);
		cr_assert(do_kind(SP_INIT_FILE_STAT, path) == 0);
		cr_assert(reply.info.size == strlen(name));
	}
	(void)snprintf(path, sizeof(path), "/tmp/%sn", longest);
	cr_assert(put(path, "x") == -ENAMETOOLONG);
}

/* ---- attributes ---- */

Test(init_file_write, mode_and_owner_are_kept_or_set)
{
	struct file_ask ask = {.kind = SP_INIT_FILE_WRITE, .path = "/tmp/f", .mode = 0600};

	cr_assert(put_as(&ask, "x") == 0);
	cr_assert_str_eq(said("stat -c '%a %u %g' /tmp/f"), "600 1000 1000\n");
	cr_assert(put("/tmp/f", "y") == 0, "kept");
	cr_assert_str_eq(said("stat -c '%a %u %g' /tmp/f"), "600 1000 1000\n");
	ask = (struct file_ask){.kind = SP_INIT_FILE_WRITE,
				.path = "/workspace/d/f",
				.mode = 0640,
				.owner = 2000,
				.group = 3000};
	cr_assert(put_as(&ask, "z") == 0, "%s in '%s'", strerror(-reply.status), reply.stage);
	cr_assert_str_eq(said("stat -c '%a %u %g' /workspace/d/f /workspace/d"),
			 "640 2000 3000\n755 2000 3000\n");
}

Test(init_file_write, owner_of_another_is_kept)
{
	struct file_ask ask = {
		.kind = SP_INIT_FILE_WRITE, .path = "/workspace/f", .owner = 2000, .group = 3000};

	cr_assert(put_as(&ask, "x") == 0);
	cr_assert(put("/workspace/f", "replaced") == 0);
	cr_assert_str_eq(said("cat /workspace/f; stat -c ' %u %g' /workspace/f"),
			 "replaced 2000 3000\n");
}

Test(init_file_write, set_id_bits_of_what_was_there_go)
{
	/* The filter lets no workload make one: planted from outside. */
	cr_assert(put("/tmp/f", "x") == 0);
	shell("chmod 1755 /tmp/f");
	cr_assert(put("/tmp/f", "y") == 0);
	cr_assert_str_eq(said("stat -c %a /tmp/f"), "1755\n", "sticky is no set-id bit");
}

Test(init_file_write, file_size_and_space_are_limited)
{
	static char more[4 * MIB];
	int fd = begin("/tmp/f");

	for (int i = 0; i < 5; i++)
		channel_data(fd, more, sizeof(more));
	channel_commit(fd);
	channel_reply(fd, &reply);
	cr_assert(reply.answered && reply.status == -ENOSPC, "%s", strerror(-reply.status));
	cr_assert_str_eq(said("ls -A /tmp"), "");
	cr_assert(channel_put(&harness, "/tmp/f", more, sizeof(more)) == 0, "it is free again");
}

static void small_files(struct sp_boot *boot)
{
	boot->pool.rlimit_fsize = MIB;
}

Test(init_file_write_limit, size_of_a_file_is_the_pools_limit)
{
	struct harness_options options = {.edit = small_files};

	if (init_harness_missing())
		cr_skip("%s", init_harness_missing());
	harness_ready(&harness, &options);
	cr_assert(channel_put(&harness, "/tmp/f", megabyte, MIB) == 0);
	{
		int fd = begin("/tmp/g");

		channel_data(fd, megabyte, MIB);
		channel_data(fd, "x", 1);
		channel_commit(fd);
		channel_reply(fd, &reply);
	}
	cr_assert(reply.status == -EFBIG, "%s", strerror(-reply.status));
	cr_assert_str_eq(said("ls -A /tmp"), "f\n");
	tear_down();
}

static int change(const char *path, uint32_t mode, uint32_t owner, uint32_t group)
{
	return channel_do(&harness,
			  &(struct file_ask){.kind = SP_INIT_FILE_CHANGE,
					     .path = path,
					     .mode = mode,
					     .owner = owner,
					     .group = group},
			  &reply);
}

Test(init_file_change, mode)
{
	shell("touch /tmp/f; chmod 0 /tmp/f; mkdir /tmp/d; ln -s f /tmp/l");
	cr_assert(change("/tmp/f", 0640, 0, 0) == 0);
	cr_assert_str_eq(said("stat -c %a /tmp/f"), "640\n");
	cr_assert(change("/tmp/d", 01700, 0, 0) == 0);
	cr_assert_str_eq(said("stat -c %a /tmp/d"), "1700\n");
	cr_assert(change("/tmp/l", 0604, 0, 0) == 0);
	cr_assert_str_eq(said("stat -c %a /tmp/f"), "604\n", "what the link leads to");
	cr_assert(change("/tmp/missing", 0600, 0, 0) == -ENOENT);
	cr_assert(change("/tmp", 0700, 0, 0) == -EPERM, "not the workload's");
	cr_assert(change("/usr/bin/env", 0700, 0, 0) == -EROFS || reply.status == -EPERM);
	cr_assert(change("/proc/self/comm", 0600, 0, 0) == -EOPNOTSUPP);
}

Test(init_file_change, owner_of_the_workloads_own)
{
	shell("touch /tmp/f /tmp/g /tmp/h");
	cr_assert(change("/tmp/f", 0, 2000, 3000) == 0, "%s", strerror(-reply.status));
	cr_assert_str_eq(said("stat -c '%u %g' /tmp/f"), "2000 3000\n");
	cr_assert(change("/tmp/g", 0600, 0, 3000) == 0);
	cr_assert_str_eq(said("stat -c '%a %u %g' /tmp/g"), "600 1000 3000\n");
	cr_assert(change("/tmp/f", 0, HARNESS_WORKLOAD, 0) == -EPERM, "it is another's now");
	cr_assert_str_eq(reply.stage, "owner");
	cr_assert(change("/tmp", 0, 2000, 0) == -EPERM);
	cr_assert(change("/tmp/h", 0, 65536, 0) == -EINVAL, "not mapped");
	cr_assert_str_eq(said("stat -c '%u %g' /tmp/h"), "1000 1000\n");
	cr_assert(change("/tmp/h", 0, 65535, 0) == 0, "the last one that is");
}

Test(init_file_mkdir, makes_what_is_missing)
{
	struct file_ask ask = {.kind = SP_INIT_FILE_MKDIR, .path = "/tmp/a/b/c", .mode = 0700};

	cr_assert(channel_do(&harness, &ask, &reply) == 0);
	cr_assert_str_eq(said("stat -c '%a %u' /tmp/a /tmp/a/b /tmp/a/b/c"),
			 "755 1000\n755 1000\n700 1000\n");
	ask.mode = 0755;
	cr_assert(channel_do(&harness, &ask, &reply) == 0, "it is there");
	cr_assert_str_eq(said("stat -c %a /tmp/a/b/c"), "700\n", "and left alone");
	ask = (struct file_ask){.kind = SP_INIT_FILE_MKDIR,
				.path = "/workspace/d/e/",
				.owner = 2000,
				.group = 2001};
	cr_assert(channel_do(&harness, &ask, &reply) == 0, "%s in '%s'", strerror(-reply.status),
		  reply.stage);
	cr_assert_str_eq(said("stat -c '%a %u %g' /workspace/d /workspace/d/e"),
			 "755 2000 2001\n755 2000 2001\n");
	ask.path = "/workspace/made/f";
	cr_assert(channel_do(&harness, &ask, &reply) == 0);
	cr_assert_str_eq(said("stat -c '%a %u %g' /workspace/made /workspace/made/f"),
			 "750 1000 1000\n755 2000 2001\n", "only what was made");
}

Test(init_file_mkdir, errors)
{
	shell("touch /tmp/f; ln -s nowhere /tmp/l; ln -s /workspace /tmp/w");
	cr_assert(do_kind(SP_INIT_FILE_MKDIR, "/tmp/f") == -ENOTDIR);
	cr_assert(do_kind(SP_INIT_FILE_MKDIR, "/tmp/f/g") == -ENOTDIR);
	cr_assert(do_kind(SP_INIT_FILE_MKDIR, "/tmp/l") < 0);
	cr_assert(do_kind(SP_INIT_FILE_MKDIR, "/usr/x") == -EROFS);
	cr_assert(do_kind(SP_INIT_FILE_MKDIR, "/") == 0);
	cr_assert(do_kind(SP_INIT_FILE_MKDIR, "/tmp/..") == 0);
	cr_assert(do_kind(SP_INIT_FILE_MKDIR, "/tmp/w/d") == 0, "the control");
	shell("test -d /workspace/d");
}
