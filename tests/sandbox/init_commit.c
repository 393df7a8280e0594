/*
 * WRITE_BACK, RENEW and RECOVER: what a commit brings to its base, and what it refuses. That one
 * that is cut off at any point ends well is in init_commit_cut.c.
 */
#include "pool/base/fd.h"
#include "supervisor/init/commit_journal.h"
#include "supervisor/init/overlay.h"
#include "supervisor/sandbox/mount_attach.h"
#include "tests/sandbox/commit_world.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define STATE_MAX HARNESS_OUTPUT

static struct file_reply reply;
static char before[STATE_MAX];
static char after[STATE_MAX];

TestSuite(init_commit, .init = commit_set_up, .fini = commit_tear_down);

static void keep(char *state, const char *text)
{
	(void)snprintf(state, STATE_MAX, "%s", text);
}

static void must_open(void)
{
	const char *stage = "";
	int status = commit_open_session("/workspace", &stage);

	cr_assert_eq(status, 0, "%d %s", status, stage);
}

static void must_write_back(void)
{
	int status = commit_ask(SP_INIT_FILE_WRITE_BACK, &reply);

	cr_assert_eq(status, 0, "%d %s %s", status, reply.stage, reply.object);
}

static void must_renew(void)
{
	int status = commit_ask(SP_INIT_FILE_RENEW, &reply);

	cr_assert_eq(status, 0, "%d %s", status, reply.stage);
}

static void must_refuse(int status, const char *stage, const char *object)
{
	int got = commit_ask(SP_INIT_FILE_WRITE_BACK, &reply);

	cr_assert_eq(got, status, "%d %s %s", got, reply.stage, reply.object);
	cr_assert_str_eq(reply.stage, stage);
	cr_assert_str_eq(reply.object, object);
}

static void no_remains(void)
{
	cr_assert_str_eq(commit_shell(0, "ls -A /workspace | grep -c sandpool"), "0\n");
}

/* ---- what it brings ---- */

static const char every_base[] =
	"cd /workspace; umask 022; mkdir -p d/e/f gone/x/y opaque/sub turned move emptied shut;"
	"echo 1 > kept; echo 2 > changed; echo 3 > deleted; echo 4 > d/e/f/deep; echo 5 > "
	"gone/x/y/z;"
	"echo 6 > opaque/old; echo 7 > opaque/sub/old; echo 8 > opaque/both; echo 9 > "
	"turned/inside;"
	"echo 10 > turns; echo 11 > move/a; echo 12 > emptied/a; echo 13 > shut/in; echo 14 > mode;"
	"ln -s kept link; ln -s kept relink; echo 15 > linked; chmod 0 shut;"
	"mkfifo oldfifo";

static const char every_change[] =
	"cd /workspace; umask 027; echo new > changed; rm deleted; echo more >> d/e/f/deep; "
	"mkdir d/e/new; echo n > d/e/new/n; rm -r gone; rm -r opaque; mkdir -p opaque/sub/deeper; "
	"echo n > opaque/both; echo n > opaque/sub/n; rm -r turned; echo now a file > turned; "
	"rm turns; mkdir turns; echo in > turns/in; mv move moved; mkdir new; mv new renamed; "
	"mkdir renamed/x; mv renamed/x renamed/y; rm emptied/a; chmod 700 shut; echo x > shut/new; "
	"chmod 0500 shut; chmod 1777 d; chmod 755 mode; rm relink; ln -s elsewhere relink; "
	"ln -s /etc/passwd newlink; rm link; mkdir link; echo x > link/x; ln linked linked2; "
	"echo y >> linked2; mkfifo -m 640 pipe; rm oldfifo; echo f > oldfifo; : > empty; "
	"truncate -s 5M sparse; printf tail >> sparse; echo secret > closed; chmod 0 closed; "
	"mkdir -m 0 closed-dir; touch -d 2001-02-03T04:05:06.789 changed; "
	"n=$(printf %0255d 7); echo x > $n; mkdir d/$n; echo y > d/$n/$n";

Test(init_commit, every_kind_of_change)
{
	(void)commit_shell(0, every_base);
	must_open();
	cr_assert_str_eq(commit_shell(1, every_change), "");
	cr_assert_str_eq(commit_python(1, "import os\nos.chdir(b'/workspace')\n"
					  "open(b'\\xff\\xfe \\n', 'w').write('x')\n"
					  "os.mkdir(b'\\xc3')\nopen(b'\\xc3/\\x01', 'w')\n"
					  "open(b'\\xc3/!', 'w')\n"),
			 "");
	keep(before, commit_state(1, "/workspace"));
	cr_assert(strstr(before, "'turned'") && strstr(before, "'closed-dir'"), "%s", before);
	must_write_back();
	/* The base is what the session saw … */
	keep(after, commit_state(0, "/workspace"));
	cr_assert_str_eq(before, after);
	must_renew();
	/* … and sees. */
	keep(after, commit_state(1, "/workspace"));
	cr_assert_str_eq(before, after);
	no_remains();
	cr_assert_str_eq(commit_shell(0, "cd /workspace; stat -c %a mode shut pipe d closed; "
					 "stat -c %b sparse; cat turned d/e/f/deep linked linked2; "
					 "ls opaque opaque/sub; stat -c %y changed"),
			 "755\n500\n640\n1777\n0\n8\nnow a file\n4\nmore\n15\ny\n15\ny\n"
			 "opaque:\nboth\nsub\n\nopaque/sub:\ndeeper\nn\n"
			 "2001-02-03 04:05:06.789000000 +0000\n");
}

/* Without that a workload could make of one file a base of any size. */
Test(init_commit, names_of_one_file_stay_so)
{
	must_open();
	cr_assert_str_eq(commit_shell(1, "cd /workspace; mkdir d; head -c 300000 /dev/zero > a; "
					 "ln a b; ln a d/c; echo x > other; ln other d/other; "
					 "echo x > alone"),
			 "");
	must_write_back();
	cr_assert_str_eq(commit_shell(0,
				      "cd /workspace; stat -c '%n %h %s' a b d/c other alone; "
				      "test a -ef d/c && test a -ef b && test other -ef d/other && "
				      "echo same; test a -ef other || echo different"),
			 "a 3 300000\nb 3 300000\nd/c 3 300000\nother 2 2\nalone 1 2\nsame\n"
			 "different\n");
	cr_assert_eq(reply.counts.files, 6);
	cr_assert_eq(reply.counts.bytes, 300004);
}

/* It is no data, but what it has replaced is gone. */
Test(init_commit, sockets_are_left_out)
{
	(void)commit_shell(0, "cd /workspace; mkdir -p tree/in; echo x > tree/in/x; echo x > file");
	must_open();
	cr_assert_str_eq(commit_python(1, "import os, shutil, socket\nos.chdir('/workspace')\n"
					  "shutil.rmtree('tree'); os.remove('file')\n"
					  "for name in 'tree', 'file', 'new':\n"
					  "  socket.socket(socket.AF_UNIX).bind(name)\n"
					  "open('kept', 'w')\n"),
			 "");
	must_write_back();
	cr_assert_str_eq(commit_shell(0, "ls -A /workspace"), "kept\n");
	cr_assert_eq(reply.counts.files, 1);
	cr_assert_eq(reply.counts.deleted, 2);
}

/* The view before the commit is the base after it. */
Test(init_commit, the_session_s_view_becomes_the_base)
{
	static const char base[] = "cd /workspace; mkdir -p a/b c; echo 1 > a/x; echo 2 > a/b/y; "
				   "echo 3 > c/z; ln -s a l";
	static const char change[] =
		"cd /workspace; echo 4 > a/b/y; rm -r c; mkdir c; echo 5 > c/n; "
		"rm l; echo 6 > l; mkdir -m 700 a/new; echo 7 > a/new/f";

	(void)commit_shell(0, base);
	must_open();
	(void)commit_shell(1, change);
	keep(before, commit_state(1, "/workspace"));
	must_write_back();
	keep(after, commit_state(0, "/workspace"));
	cr_assert_str_eq(before, after);
	/* a/b/y, c/n, l, a/new/f; a/new; c/z */
	cr_assert_eq(reply.counts.files, 4);
	cr_assert_eq(reply.counts.directories, 1);
	cr_assert_eq(reply.counts.deleted, 1);
	cr_assert_eq(reply.counts.bytes, 8);
}

Test(init_commit, goes_on_with_an_empty_upper)
{
	must_open();
	(void)commit_shell(1, "echo one > /workspace/file; (setsid sleep 77 &)");
	must_write_back();
	/* What was left behind did not survive it. */
	cr_assert_str_eq(commit_shell(0, "cat /proc/[0-9]*/comm | grep -c sleep"), "0\n");
	must_renew();
	cr_assert_str_eq(commit_shell(1, "cat /workspace/file; echo two > /workspace/file"),
			 "one\n");
	cr_assert_str_eq(commit_shell(0, "cat /workspace/file"), "one\n");
	must_write_back();
	cr_assert_eq(reply.counts.files, 1);
	cr_assert_str_eq(commit_shell(0, "cat /workspace/file"), "two\n");
	must_renew();
	must_write_back();
	cr_assert_eq(reply.counts.files, 0);
	/* Without a fresh one the base is somebody's who has changed it: us. */
	(void)commit_shell(1, "echo three > /workspace/file");
	must_write_back();
	(void)commit_shell(1, "echo four > /workspace/file");
	cr_assert_eq(commit_ask(SP_INIT_FILE_WRITE_BACK, &reply), -ESTALE);
}

/* ---- somebody else has changed the base ---- */

Test(init_commit, a_changed_base_is_refused)
{
	static const struct {
		const char *change;
		const char *object;
	} cases[] = {
		{"true", NULL}, /* the control */
		{"echo x >> deep/er/file", "deep/er/file"},
		{"chmod 600 other", "other"},
		{"touch -d 2001-01-01 other", "other"},
		{"echo x > deep/new", "deep"},
		{"rm deep/er/gone", "deep/er"},
		{"rm other", "."},
		{"echo x > new", "."},
		{"mv other another", "."},
		{"ln other hard && rm hard", "."},
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++) {
		char script[256];

		(void)commit_shell(0,
				   "cd /workspace; rm -rf *; mkdir -p deep/er; "
				   "echo 1 > deep/er/file; echo 2 > deep/er/gone; echo 3 > other");
		must_open();
		(void)commit_shell(1, "cd /workspace; echo mine > mine; echo x > deep/er/mine");
		(void)snprintf(script, sizeof(script), "cd /workspace; %s", cases[i].change);
		(void)commit_shell(0, script);
		keep(before, commit_state(0, "/workspace"));
		if (!cases[i].object) {
			must_write_back();
			cr_assert_str_eq(commit_shell(0, "cat /workspace/mine"), "mine\n");
		} else {
			must_refuse(-ESTALE, SP_INIT_COMMIT_BASE, cases[i].object);
			keep(after, commit_state(0, "/workspace"));
			cr_assert_str_eq(before, after, "%s", cases[i].change);
		}
		commit_close_session();
	}
}

/* The session's first process is a child of init that sees a private directory with one. */
static int open_frozen(void)
{
	DIR *proc = opendir("/proc");
	const struct dirent *entry;
	int fd = -1;

	while (fd < 0 && (entry = readdir(proc))) {
		char path[300];
		char line[512] = "";
		int parent = 0;
		int stat_fd;

		(void)snprintf(path, sizeof(path), "/proc/%s/stat", entry->d_name);
		stat_fd = open(path, O_RDONLY | O_CLOEXEC);
		if (stat_fd < 0)
			continue;
		(void)!read(stat_fd, line, sizeof(line) - 1);
		(void)close(stat_fd);
		if (!strrchr(line, ')') || sscanf(strrchr(line, ')'), ") %*c %d", &parent) != 1 ||
		    parent != commit_harness.init)
			continue;
		(void)snprintf(path, sizeof(path), "/proc/%s/root/.init/frozen", entry->d_name);
		fd = open(path, O_RDWR | O_CLOEXEC);
	}
	(void)closedir(proc);
	return fd;
}

static void move_freeze(int64_t real_ns, int64_t boot_ns)
{
	struct init_freeze freeze;
	int fd = open_frozen();

	cr_assert_geq(fd, 0);
	cr_assert_eq(pread(fd, &freeze, sizeof(freeze), 0), sizeof(freeze));
	freeze.real_ns += real_ns;
	freeze.boot_ns += boot_ns;
	cr_assert_eq(pwrite(fd, &freeze, sizeof(freeze), 0), sizeof(freeze));
	(void)close(fd);
}

static void set_clock_back(int64_t by_ns)
{
	move_freeze(by_ns, 0); /* as if it had been later then */
}

Test(init_commit, a_clock_that_was_set_back_is_refused)
{
	must_open();
	(void)commit_shell(1, "echo x > /workspace/x");
	set_clock_back(10 * SP_NS_PER_S);
	must_refuse(-ESTALE, SP_INIT_COMMIT_CLOCK, ".");
	no_remains();
	set_clock_back(-10 * SP_NS_PER_S);
	must_write_back();
}

/* However long ago that is: nothing else changes the distance of the two clocks. */
Test(init_commit, a_clock_that_was_set_back_a_little_long_ago_is_refused)
{
	const int64_t day_ns = 86400 * SP_NS_PER_S;

	must_open();
	(void)commit_shell(1, "echo x > /workspace/x");
	move_freeze(-day_ns, -day_ns);
	must_refuse(-ESTALE, SP_INIT_COMMIT_BASE, "."); /* the control: the clock is believed */
	set_clock_back(2 * SP_NS_PER_S);
	must_refuse(-ESTALE, SP_INIT_COMMIT_CLOCK, ".");
}

/* ---- limits ---- */

Test(init_commit, as_many_as_are_allowed)
{
	struct file_ask ask = {
		.kind = SP_INIT_FILE_WRITE_BACK, .path = "/", .session = 1, .limit = 2};

	must_open();
	(void)commit_shell(1, "cd /workspace; mkdir d; echo 1 > d/1; echo 2 > d/2");
	cr_assert_eq(channel_do(&commit_harness, &ask, &reply), -E2BIG);
	cr_assert_str_eq(reply.stage, SP_INIT_COMMIT_LIMIT);
	no_remains();
	ask.limit = 3;
	cr_assert_eq(channel_do(&commit_harness, &ask, &reply), 0);
	cr_assert_str_eq(commit_shell(0, "cat /workspace/d/2"), "2\n");
}

static int small_tmpfs(void)
{
	char uid[32];
	const struct sp_mount_option options[] = {
		{"size", "1m"}, {"uid", uid}, {"gid", uid}, {"mode", "755"}};

	(void)snprintf(uid, sizeof(uid), "%u", HARNESS_UID_BASE + HARNESS_WORKLOAD);
	return sp_mount_new("tmpfs", options, SP_ARRAY_SIZE(options),
			    MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
}

Test(init_commit, no_room_leaves_the_base_alone)
{
	int fd = small_tmpfs();
	const char *stage = "";

	cr_assert_geq(fd, 0);
	cr_assert_eq(harness_mount(&commit_harness, fd, "/home/small", NULL), 0);
	(void)close(fd);
	(void)commit_shell(0, "echo base > /home/small/file");
	cr_assert_eq(commit_open_session("/home/small", &stage), 0, "%s", stage);
	(void)commit_shell(1, "cd /home/small; echo new > file; head -c 1100000 /dev/zero > big");
	keep(before, commit_state(0, "/home/small"));
	cr_assert_eq(commit_ask(SP_INIT_FILE_WRITE_BACK, &reply), -ENOSPC);
	cr_assert_str_eq(reply.object, "big");
	keep(after, commit_state(0, "/home/small"));
	cr_assert_str_eq(before, after);
	(void)commit_shell(1, "truncate -s 500000 /home/small/big");
	must_write_back();
	cr_assert_str_eq(commit_shell(0, "cd /home/small; cat file; stat -c %s big; ls -A"),
			 "new\n500000\nbig\nfile\n");
}

/* ---- what is refused ---- */

Test(init_commit, names_of_its_own_are_refused)
{
	must_open();
	(void)commit_shell(1, "mkdir -p /workspace/" COMMIT_DIR "/new /workspace/d/" COMMIT_DIR);
	must_refuse(-EEXIST, SP_INIT_COMMIT_RESERVED, COMMIT_DIR);
	(void)commit_shell(1, "rm -r /workspace/" COMMIT_DIR);
	must_write_back();
	cr_assert_str_eq(commit_shell(0, "ls -A /workspace/d"), COMMIT_DIR "\n");
}

static void shell_as(uint32_t session, uint32_t uid, const char *script)
{
	static struct harness_result result;
	const char *argv[] = {"/bin/sh", "-c", script, NULL};
	const struct harness_exec exec = {.argv = argv, .session = session, .uid = uid};

	harness_run(&commit_harness, &exec, &result);
	cr_assert_str_eq(result.output, "");
}

Test(init_commit, what_is_not_the_workload_s_is_refused)
{
	(void)commit_shell(0, "cd /workspace; chmod 777 .; mkdir open; chmod 777 open");
	shell_as(0, 1001,
		 "cd /workspace; mkdir -p theirs sticky; echo x > theirs/in; chmod 1777 sticky; "
		 "echo y > "
		 "open/theirs; "
		 "chmod 666 open/theirs");
	shell_as(0, 1002, "echo x > /workspace/sticky/another");
	must_open();
	shell_as(1, 1001, "echo x > /workspace/open/new");
	must_refuse(-EPERM, SP_INIT_COMMIT_OWNER, "open/new");
	shell_as(1, 1001, "cd /workspace; rm open/new; chmod 777 theirs");
	must_refuse(-EPERM, SP_INIT_COMMIT_OWNER, "theirs");
	(void)commit_shell(1, "echo x > /workspace/theirs/mine");
	shell_as(1, 1001, "chmod 755 /workspace/theirs");
	must_refuse(-EPERM, SP_INIT_COMMIT_OWNER, "theirs/mine");
	shell_as(1, 1001, "cd /workspace/theirs; rm -f mine in");
	must_refuse(-EPERM, SP_INIT_COMMIT_OWNER, "theirs/in");
	commit_close_session();
	must_open();
	shell_as(1, 1001, "rm /workspace/sticky/another");
	must_refuse(-EPERM, SP_INIT_COMMIT_OWNER, "sticky/another");
	no_remains();
	commit_close_session();
	/* The control: what the workload can do by itself. */
	must_open();
	(void)commit_shell(1, "cd /workspace; rm open/theirs; echo x > open/mine");
	must_write_back();
	cr_assert_str_eq(commit_shell(0, "cd /workspace; ls open sticky"),
			 "open:\nmine\n\nsticky:\nanother\n");
}

/* What the base has in it would stay beside what is new, or be removed unseen. */
Test(init_commit, a_replaced_directory_that_cannot_be_read_is_refused)
{
	static const char *const modes[] = {"000", "300", "600"};

	for (size_t i = 0; i < SP_ARRAY_SIZE(modes); i++) {
		char script[128];

		(void)commit_shell(0, "cd /workspace; rm -rf d; mkdir d; echo x > d/old");
		(void)snprintf(script, sizeof(script), "chmod %s /workspace/d", modes[i]);
		(void)commit_shell(0, script);
		must_open();
		(void)commit_shell(1, "cd /workspace; chmod 700 d; rm -r d; mkdir d; echo y > "
				      "d/new");
		must_refuse(-EPERM, SP_INIT_COMMIT_OWNER, "d");
		commit_close_session();
		(void)commit_shell(0, "chmod 700 /workspace/d");
		cr_assert_str_eq(commit_shell(0, "cat /workspace/d/old"), "x\n");
	}
	must_open(); /* the control */
	(void)commit_shell(1, "cd /workspace; rm -r d; mkdir d; echo y > d/new");
	must_write_back();
	cr_assert_str_eq(commit_shell(0, "ls /workspace/d"), "new\n");
}

/* COMMIT_DIR could not be taken out of it any more, by nobody who is not root. */
Test(init_commit, a_root_that_is_closed_is_refused)
{
	static const char *const modes[] = {"000", "500", "600", "577"};

	must_open();
	(void)commit_shell(1, "echo x > /workspace/x");
	for (size_t i = 0; i < SP_ARRAY_SIZE(modes); i++) {
		char script[64];

		(void)snprintf(script, sizeof(script), "chmod %s /workspace", modes[i]);
		(void)commit_shell(1, script);
		must_refuse(-EPERM, SP_INIT_COMMIT_OWNER, ".");
		cr_assert_str_eq(commit_shell(0, "ls -A /workspace"), "");
	}
	(void)commit_shell(1, "chmod 300 /workspace"); /* the control */
	must_write_back();
	cr_assert_str_eq(commit_shell(0, "stat -c %a /workspace; chmod 700 /workspace; "
					 "ls -A /workspace"),
			 "300\nx\n");
}

/* The path is looked up again, and what ran may have put a link into it. */
Test(init_commit, what_is_mounted_elsewhere_stays_mounted)
{
	const char *stage = "";

	(void)commit_shell(0, "mkdir -p /workspace/a/tmp");
	cr_assert_eq(commit_open_session("/workspace/a/tmp", &stage), 0, "%s", stage);
	(void)commit_shell(1, "echo x > /workspace/a/tmp/x; echo here > /tmp/mark");
	must_write_back();
	(void)commit_shell(0, "cd /workspace; mv a moved; ln -s / a");
	cr_assert_eq(commit_ask(SP_INIT_FILE_RENEW, &reply), -ELOOP, "%d %s", reply.status,
		     reply.stage);
	cr_assert_str_eq(reply.stage, "unmount");
	cr_assert_str_eq(commit_shell(1, "cat /tmp/mark"), "here\n");
	(void)commit_shell(0, "cd /workspace; rm a; mv moved a");
	must_renew();
	cr_assert_str_eq(commit_shell(1, "cat /workspace/a/tmp/x /tmp/mark"), "x\nhere\n");
}

Test(init_commit, only_of_overlays)
{
	struct file_ask ask = {.kind = SP_INIT_FILE_WRITE_BACK, .path = "/", .overlay = 1};

	cr_assert_eq(channel_do(&commit_harness, &ask, &reply), -EOPNOTSUPP, "%d %s", reply.status,
		     reply.stage);
	cr_assert_str_eq(reply.stage, "overlay");
	ask.kind = SP_INIT_FILE_RENEW;
	cr_assert_eq(channel_do(&commit_harness, &ask, &reply), -EOPNOTSUPP);
}

/* ---- what is found in a base ---- */

static int root_of_base(void)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%d/root/workspace", commit_harness.init);
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* A journal of these steps, as a commit would have left it. */
static void plant(const struct commit_step *steps, uint32_t count, bool spoil)
{
	static char text[65536];
	struct commit_head head;
	size_t used = sizeof(head);
	int fd;
	int base_fd = root_of_base();

	memset(text, 0, sizeof(text));
	for (uint32_t i = 0; i < count; i++) {
		const struct commit_record record = {
			.operation = steps[i].operation,
			.mode = steps[i].mode,
			.path_length = (uint32_t)strlen(steps[i].path),
		};

		memcpy(text + used, &record, sizeof(record));
		memcpy(text + used + sizeof(record), steps[i].path, record.path_length);
		used += commit_record_size(record.path_length);
	}
	head = commit_journal_head(text + sizeof(head), used - sizeof(head), count);
	head.sum += spoil;
	memcpy(text, &head, sizeof(head));
	(void)commit_shell(0, "cd /workspace; mkdir -p -m 700 " COMMIT_DIR "/new; cd " COMMIT_DIR
			      "; echo planted > new/0; echo planted > new/1; : > journal");
	fd = openat(base_fd, COMMIT_DIR "/journal", O_WRONLY | O_TRUNC | O_CLOEXEC);
	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, text, used), (ssize_t)used);
	(void)close(fd);
	(void)close(base_fd);
}

Test(init_commit, an_unfinished_one_is_finished_first)
{
	const struct commit_step steps[] = {
		{.operation = COMMIT_PLACE, .path = "placed"},
		{.operation = COMMIT_DELETE, .path = "doomed"},
	};
	const char *stage = "";

	(void)commit_shell(0, "cd /workspace; mkdir -p doomed/in; echo x > doomed/in/x");
	plant(steps, SP_ARRAY_SIZE(steps), false);
	cr_assert_eq(commit_open_session("/workspace", &stage), -EUCLEAN);
	cr_assert_str_eq(stage, "recover");
	cr_assert_eq(commit_recover_path("/workspace", &reply), 0, "%d %s", reply.status,
		     reply.stage);
	must_open();
	cr_assert_str_eq(commit_shell(1, "cd /workspace; cat placed; ls -A"), "planted\nplaced\n");
	/* Nothing there, nothing to do. */
	cr_assert_eq(commit_recover_path("/workspace", &reply), 0);
}

Test(init_commit, one_that_was_not_decided_is_forgotten)
{
	(void)commit_shell(0, "cd /workspace; echo base > file; mkdir -p " COMMIT_DIR "/new; "
			      "echo x > " COMMIT_DIR "/new/1; cp file " COMMIT_DIR "/journal.new");
	cr_assert_eq(commit_recover_path("/workspace", &reply), 0);
	cr_assert_str_eq(commit_shell(0, "cd /workspace; cat file; ls -A"), "base\nfile\n");
}

Test(init_commit, a_planted_journal_stays_inside)
{
	static const struct {
		struct commit_step step;
		int status;
	} cases[] = {
		{{.operation = COMMIT_PLACE, .path = "fine"}, 0}, /* the control */
		{{.operation = COMMIT_PLACE, .path = "../home/out"}, -EBADMSG},
		{{.operation = COMMIT_DELETE, .path = "d/../../home/victim"}, -EBADMSG},
		{{.operation = COMMIT_DELETE, .path = "/home/victim"}, -EBADMSG},
		{{.operation = COMMIT_DELETE, .path = "."}, -EBADMSG},
		{{.operation = COMMIT_DELETE, .path = ".."}, -EBADMSG},
		{{.operation = COMMIT_DELETE, .path = ""}, -EBADMSG},
		{{.operation = COMMIT_DELETE, .path = "a//b"}, -EBADMSG},
		{{.operation = COMMIT_DELETE, .path = COMMIT_DIR "/new"}, -EBADMSG},
		{{.operation = COMMIT_DIRECTORY, .path = "d", .mode = 04755}, -EBADMSG},
		{{.operation = (enum commit_operation)9, .path = "d"}, -EBADMSG},
		{{.operation = COMMIT_PLACE, .path = "link/out"}, -ENOTDIR},
		{{.operation = COMMIT_DELETE, .path = "link/victim"}, -ENOTDIR},
		{{.operation = COMMIT_PLACE, .path = "link/victim/out"}, -ELOOP},
		{{.operation = COMMIT_DELETE, .path = "link/victim/x"}, -ELOOP},
		{{.operation = COMMIT_DIRECTORY, .path = "link/victim", .mode = 0700}, -ENOTDIR},
	};

	(void)commit_shell(
		0, "mkdir /home/victim; echo x > /home/victim/x; ln -s /home /workspace/link; "
		   "mkdir /workspace/d");
	keep(before, commit_state(0, "/home"));
	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++) {
		plant(&cases[i].step, 1, false);
		cr_assert_eq(commit_recover_path("/workspace", &reply), cases[i].status,
			     "%zu: %d %s", i, reply.status, reply.stage);
		keep(after, commit_state(0, "/home"));
		cr_assert_str_eq(before, after, "%zu", i);
		(void)commit_shell(0, "rm -rf /workspace/" COMMIT_DIR);
	}
	plant(&cases[0].step, 1, true);
	cr_assert_eq(commit_recover_path("/workspace", &reply), -EBADMSG);
	cr_assert_str_eq(reply.stage, SP_INIT_COMMIT_JOURNAL);
	cr_assert_str_eq(reply.object, COMMIT_DIR);
}

/* What is done is done as the workload: a journal is no way to what it may not do. */
Test(init_commit, a_planted_journal_has_no_rights)
{
	const struct commit_step step = {.operation = COMMIT_DELETE, .path = "theirs/x"};

	(void)commit_shell(0, "chmod 777 /workspace");
	shell_as(0, 1001, "mkdir -m 755 /workspace/theirs; echo x > /workspace/theirs/x");
	plant(&step, 1, false);
	cr_assert_eq(commit_recover_path("/workspace", &reply), -EACCES);
	cr_assert_str_eq(commit_shell(0, "cat /workspace/theirs/x"), "x\n");
	shell_as(0, 1001, "chmod 777 /workspace/theirs");
	cr_assert_eq(commit_recover_path("/workspace", &reply), 0);
	cr_assert_str_eq(commit_shell(0, "ls /workspace/theirs"), "");
}

static void give(const char *name, uint32_t uid, mode_t mode)
{
	int base_fd = root_of_base();

	cr_assert_eq(fchownat(base_fd, name, HARNESS_UID_BASE + uid, HARNESS_UID_BASE + uid, 0), 0);
	cr_assert_eq(fchmodat(base_fd, name, mode, 0), 0);
	(void)close(base_fd);
}

/* Who may write to the base, but not to what the workload has closed in it, must not get there by
 * having a journal done in its name. */
Test(init_commit, a_journal_of_somebody_else_is_none)
{
	static const struct {
		const char *name;
		uint32_t uid;
		mode_t mode;
		int status;
	} cases[] = {
		{COMMIT_DIR, 1001, 0777, -EBADMSG},
		{COMMIT_DIR, 1001, 0755, -EBADMSG},
		{COMMIT_DIR, HARNESS_WORKLOAD, 0702, -EBADMSG},
		{COMMIT_DIR, HARNESS_WORKLOAD, 0720, -EBADMSG},
		{COMMIT_DIR "/new", 1001, 0755, -EBADMSG},
		{COMMIT_DIR "/new", HARNESS_WORKLOAD, 0722, -EBADMSG},
		{COMMIT_DIR "/journal", 1001, 0644, -EBADMSG},
		{COMMIT_DIR "/journal", HARNESS_WORKLOAD, 0602, -EBADMSG},
		{COMMIT_DIR "/journal", HARNESS_WORKLOAD, 0644, 0}, /* the control */
	};
	const struct commit_step step = {.operation = COMMIT_DELETE, .path = "private/x"};

	(void)commit_shell(0, "cd /workspace; chmod 777 .; mkdir -m 700 private; echo x > "
			      "private/x");
	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++) {
		plant(&step, 1, false);
		give(cases[i].name, cases[i].uid, cases[i].mode);
		cr_assert_eq(commit_recover_path("/workspace", &reply), cases[i].status,
			     "%zu: %d %s", i, reply.status, reply.stage);
		cr_assert_str_eq(commit_shell(0, "ls /workspace/private"),
				 cases[i].status < 0 ? "x\n" : "", "%zu", i);
		if (cases[i].status == 0)
			continue;
		cr_assert_str_eq(reply.stage, SP_INIT_COMMIT_JOURNAL);
		give(cases[i].name, HARNESS_WORKLOAD, 0700);
		(void)commit_shell(0, "rm -rf /workspace/" COMMIT_DIR);
	}
}

/* In a base where others may write, a directory of the workload can get the name from them. */
Test(init_commit, a_directory_that_was_given_its_name_stays)
{
	(void)commit_shell(0, "cd /workspace; chmod 777 .; mkdir -p -m 700 precious/new/1; "
			      "echo x > precious/x");
	shell_as(0, 1001, "cd /workspace; mv precious " COMMIT_DIR);
	cr_assert_eq(commit_recover_path("/workspace", &reply), -EBADMSG);
	cr_assert_str_eq(reply.stage, SP_INIT_COMMIT_JOURNAL);
	cr_assert_str_eq(commit_shell(0, "cd /workspace/" COMMIT_DIR "; cat x; ls new"), "x\n1\n");
	(void)commit_shell(0, "rm /workspace/" COMMIT_DIR "/x"); /* the control: like one of ours */
	cr_assert_eq(commit_recover_path("/workspace", &reply), 0);
	cr_assert_str_eq(commit_shell(0, "ls -A /workspace"), "");
}

Test(init_commit, jokes_in_place_of_its_directory)
{
	static const char *const jokes[] = {
		"ln -s /home/victim " COMMIT_DIR,
		"ln -s nowhere " COMMIT_DIR,
		"echo x > " COMMIT_DIR,
		"mkfifo " COMMIT_DIR,
		"mkdir " COMMIT_DIR "; mkfifo " COMMIT_DIR "/journal",
		"mkdir " COMMIT_DIR "; mkdir " COMMIT_DIR "/journal",
		"mkdir " COMMIT_DIR "; ln -s /etc/passwd " COMMIT_DIR "/journal",
		"mkdir " COMMIT_DIR "; head -c 100000 /dev/urandom > " COMMIT_DIR "/journal",
		"mkdir " COMMIT_DIR "; truncate -s 1T " COMMIT_DIR "/journal",
	};

	(void)commit_shell(0, "mkdir /home/victim; echo x > /home/victim/journal");
	for (size_t i = 0; i < SP_ARRAY_SIZE(jokes); i++) {
		char script[256];

		(void)snprintf(script, sizeof(script), "cd /workspace; %s", jokes[i]);
		(void)commit_shell(0, script);
		cr_assert_eq(commit_recover_path("/workspace", &reply), -EBADMSG, "%s: %d %s",
			     jokes[i], reply.status, reply.stage);
		cr_assert_eq(commit_open_session("/workspace", NULL), -EUCLEAN);
		cr_assert_str_eq(commit_shell(0, "cat /home/victim/journal"), "x\n");
		(void)commit_shell(0, "rm -rf /workspace/" COMMIT_DIR);
	}
}

/* Two that have the same base: the second one finds that it was changed. */
Test(init_commit, the_base_is_locked)
{
	int base_fd = root_of_base();

	must_open();
	(void)commit_shell(1, "echo x > /workspace/x");
	cr_assert_eq(flock(base_fd, LOCK_EX | LOCK_NB), 0);
	must_refuse(-EBUSY, SP_INIT_COMMIT_LOCKED, ".");
	cr_assert_eq(commit_recover_path("/workspace", &reply), -EBUSY);
	cr_assert_eq(flock(base_fd, LOCK_UN), 0);
	must_write_back();
	(void)close(base_fd);
}
