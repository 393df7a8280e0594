/*
 * A commit that is cut off: the helper is killed before each of the calls that change something,
 * one after the other, and so is the recovery. The base must be what it was or what it was to be.
 *
 * The helper is stopped from outside: init is traced, so its next child is, and that is killed at
 * the entry of its nth changing call.
 */
#include "pool/base/base.h"
#include "supervisor/init/commit_journal.h"
#include "tests/sandbox/commit_world.h"

#include <criterion/criterion.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CUTS_MAX       1000u
#define CALL_FCHMODAT2 452

static struct file_reply reply;
static char old_state[HARNESS_OUTPUT];
static char new_state[HARNESS_OUTPUT];

TestSuite(init_commit_cut, .init = commit_set_up, .fini = commit_tear_down, .timeout = 600);

static const char base[] =
	"cd /workspace; find . -mindepth 1 -exec chmod -f u+rwx {} +; rm -rf -- * .[!.]*; "
	"mkdir -p d/e doomed/x/y hidden/old turned/in shut; echo 1 > d/e/changed; echo 2 > gone; "
	"echo 3 > doomed/x/y/z; echo 4 > hidden/old/f; echo 5 > hidden/both; echo 6 > turned/in/f; "
	"echo 7 > turns; echo 8 > shut/f; ln -s a link; touch -d 2001-01-01 d/e/changed gone "
	"doomed/x/y/z hidden/old/f hidden/both turned/in/f turns shut/f; chmod 500 shut";
static const char change[] =
	"cd /workspace; echo 11 > d/e/changed; rm gone; rm -r doomed; rm -r hidden; mkdir hidden; "
	"echo 12 > hidden/both; rm -r turned; echo 13 > turned; rm turns; mkdir turns; "
	"echo 14 > turns/f; chmod 700 shut; echo 15 > shut/new; chmod 500 shut; rm link; "
	"ln -s b link; mkdir -p new/deep; echo 16 > new/deep/f; "
	"touch -d 2002-02-02 d/e/changed hidden/both turned turns/f shut/new new/deep/f";

static bool changes_something(uint64_t number)
{
	static const long calls[] = {
		SYS_openat,    SYS_write,     SYS_mkdirat,  SYS_symlinkat,
		SYS_renameat2, SYS_unlinkat,  SYS_fchmod,   SYS_fchmodat,
		SYS_utimensat, SYS_ftruncate, SYS_fsync,    SYS_syncfs,
		SYS_mknodat,   SYS_linkat,    SYS_fchownat, CALL_FCHMODAT2,
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(calls); i++)
		if (number == (uint64_t)calls[i])
			return true;
	return false;
}

static void trace_init(void)
{
	const long options = PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
			     PTRACE_O_TRACESYSGOOD;
	long status = ptrace(PTRACE_SEIZE, commit_harness.init, NULL, options);

	if (status < 0 && errno == EPERM)
		cr_skip("nothing may be traced here");
	cr_assert_eq(status, 0, "%s", strerror(errno));
}

static void leave_init(void)
{
	int status;

	cr_assert_eq(ptrace(PTRACE_INTERRUPT, commit_harness.init, NULL, NULL), 0);
	cr_assert_eq(waitpid(commit_harness.init, &status, __WALL), commit_harness.init);
	cr_assert_eq(ptrace(PTRACE_DETACH, commit_harness.init, NULL, NULL), 0);
}

/* Is it about to make a call that changes something? */
static bool enters_change(pid_t pid)
{
	struct __ptrace_syscall_info info = {0};

	if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info) <= 0)
		return false;
	return info.op == PTRACE_SYSCALL_INFO_ENTRY && changes_something(info.entry.nr);
}

/* What is done at the cut instead of killing it. */
static void (*meanwhile)(void);

/* The helper's stops, until its `cut`th change or its end. True: it was killed. */
static bool follow(pid_t helper, uint32_t cut)
{
	uint32_t seen = 0;
	int status;

	for (;;) {
		pid_t pid = waitpid(helper, &status, __WALL);
		int stop;

		cr_assert_eq(pid, helper, "%s", strerror(errno));
		if (WIFEXITED(status) || WIFSIGNALED(status))
			return WIFSIGNALED(status);
		stop = WSTOPSIG(status);
		if (stop == (SIGTRAP | 0x80) && enters_change(helper) && ++seen == cut) {
			if (!meanwhile) {
				(void)kill(helper, SIGKILL);
				continue;
			}
			meanwhile();
		}
		if (stop == (SIGTRAP | 0x80) || status >> 16 != 0)
			stop = 0;
		(void)ptrace(PTRACE_SYSCALL, helper, NULL, stop);
	}
}

/* Ask, and kill whoever does it before its `cut`th change. True: it was, false: it got through. */
static bool cut_off(const struct file_ask *ask, uint32_t cut)
{
	unsigned long message = 0;
	bool killed;
	int status;
	int fd;

	trace_init();
	fd = channel_ask(&commit_harness, ask);
	do {
		pid_t pid = waitpid(commit_harness.init, &status, __WALL);

		cr_assert_eq(pid, commit_harness.init);
		cr_assert(WIFSTOPPED(status));
		if (status >> 16 == 0)
			(void)ptrace(PTRACE_CONT, pid, NULL, WSTOPSIG(status));
	} while (status >> 16 == 0);
	cr_assert_eq(ptrace(PTRACE_GETEVENTMSG, commit_harness.init, NULL, &message), 0);
	(void)ptrace(PTRACE_CONT, commit_harness.init, NULL, NULL);
	killed = follow((pid_t)message, cut);
	leave_init();
	channel_reply(fd, &reply);
	return killed;
}

static void prepare(void)
{
	const char *stage = "";
	int status;

	(void)commit_shell(0, base);
	status = commit_open_session("/workspace", &stage);
	cr_assert_eq(status, 0, "%d %s", status, stage);
	cr_assert_str_eq(commit_shell(1, change), "");
}

static void learn_both(void)
{
	(void)commit_shell(0, base);
	(void)snprintf(old_state, sizeof(old_state), "%s", commit_state(0, "/workspace"));
	prepare();
	cr_assert_eq(commit_ask(SP_INIT_FILE_WRITE_BACK, &reply), 0, "%s %s", reply.stage,
		     reply.object);
	(void)snprintf(new_state, sizeof(new_state), "%s", commit_state(0, "/workspace"));
	cr_assert(strstr(new_state, "'turns/f'") && strstr(old_state, "'doomed/x/y/z'"), "%s\n%s",
		  old_state, new_state);
	commit_close_session();
}

static void recover(void)
{
	cr_assert_eq(commit_recover_path("/workspace", &reply), 0, "%d %s %s", reply.status,
		     reply.stage, reply.object);
}

/* Every `step`th of them. */
static void cut_everywhere(uint32_t step)
{
	static const struct file_ask ask = {
		.kind = SP_INIT_FILE_WRITE_BACK, .path = "/", .session = 1, .limit = 1000};
	uint32_t as_before = 0;
	uint32_t as_wanted = 0;
	uint32_t cut = 1;

	learn_both();
	for (bool killed = true; killed && cut < CUTS_MAX; cut += step) {
		const char *state;

		prepare();
		killed = cut_off(&ask, cut);
		cr_assert_eq(reply.status, killed ? -ECANCELED : 0, "%u: %d %s %s", cut,
			     reply.status, reply.stage, reply.object);
		commit_close_session();
		recover();
		state = commit_state(0, "/workspace");
		if (strcmp(state, old_state) == 0)
			as_before++;
		else
			cr_assert_str_eq(state, new_state, "cut %u", cut);
		as_wanted += strcmp(state, new_state) == 0;
		/* What is decided stays so. */
		cr_assert(as_wanted == 0 || strcmp(state, new_state) == 0, "cut %u", cut);
	}
	cr_log_info("%u cuts: %u as before, %u as wanted", cut, as_before, as_wanted);
	cr_assert_gt(as_before, 30 / step);
	cr_assert_gt(as_wanted, 20 / step);
}

Test(init_commit_cut, at_every_change)
{
	cut_everywhere(1);
}

Test(init_commit_cut, on_a_directory_of_the_host)
{
	const uint32_t id = HARNESS_UID_BASE + HARNESS_WORKLOAD;
	char path[] = "/var/tmp/sp-commit-XXXXXX";
	char command[64];
	int fd;

	cr_assert(mkdtemp(path));
	cr_assert_eq(chown(path, id, id), 0);
	fd = harness_clone(path, false);
	cr_assert_eq(harness_mount(&commit_harness, fd, "/workspace", NULL), 0);
	(void)close(fd);
	cut_everywhere(4);
	(void)snprintf(command, sizeof(command), "rm -rf %s", path);
	cr_assert_eq(system(command), 0);
}

/* The first cut that leaves a journal. */
static uint32_t find_decided(const struct file_ask *ask)
{
	for (uint32_t cut = 1;; cut++) {
		bool killed;

		prepare();
		killed = cut_off(ask, cut);
		cr_assert(killed);
		commit_close_session();
		if (strcmp(commit_shell(0,
					"cd /workspace; test -e " COMMIT_DIR "/journal && echo y"),
			   "y\n") == 0)
			return cut;
	}
}

/* It begins again as often as it is killed. */
Test(init_commit_cut, recovery_at_every_change)
{
	static const struct file_ask ask = {
		.kind = SP_INIT_FILE_WRITE_BACK, .path = "/", .session = 1, .limit = 1000};
	static const struct file_ask again = {.kind = SP_INIT_FILE_RECOVER, .path = "/workspace"};
	uint32_t decided;
	uint32_t cut = 1;

	learn_both();
	decided = find_decided(&ask);
	for (bool killed = true; killed && cut < CUTS_MAX; cut++) {
		if (cut > 1) {
			prepare();
			cr_assert(cut_off(&ask, decided));
			commit_close_session();
		}
		killed = cut_off(&again, cut);
		if (killed) /* once more, a little further */
			(void)cut_off(&again, cut + 1);
		recover();
		cr_assert_str_eq(commit_state(0, "/workspace"), new_state, "cut %u", cut);
	}
	cr_assert_gt(cut, 20);
}

/* ---- somebody else in the base ---- */

static bool exchanged;

static void exchange(void)
{
	char one[96];
	char two[96];

	(void)snprintf(one, sizeof(one), "/proc/%d/root/workspace/" COMMIT_DIR "/new/1",
		       commit_harness.init);
	(void)snprintf(two, sizeof(two), "/proc/%d/root/workspace/link", commit_harness.init);
	exchanged = renameat2(AT_FDCWD, one, AT_FDCWD, two, RENAME_EXCHANGE) == 0;
}

/* Whatever is swapped for a link to something else of its owner's, and whenever: that stays as it
 * is. */
Test(init_commit_cut, links_that_come_meanwhile)
{
	static const struct file_ask ask = {.kind = SP_INIT_FILE_RECOVER, .path = "/workspace"};
	uint32_t swaps = 0;

	meanwhile = exchange;
	(void)commit_shell(0, "mkdir -m 750 /home/victim; echo x > /home/victim/x");
	for (uint32_t cut = 1; cut < 16; cut++) {
		(void)commit_shell(0, "cd /workspace; chmod -fR u+rwx .; rm -rf * " COMMIT_DIR
				      "; mkdir -p " COMMIT_DIR "/new/1/in; chmod 0 " COMMIT_DIR
				      "/new/1; ln -s /home/victim link");
		exchanged = false;
		(void)cut_off(&ask, cut);
		swaps += exchanged;
		cr_assert_str_eq(commit_shell(0, "stat -c %a /home/victim; cat /home/victim/x"),
				 "750\nx\n", "cut %u", cut);
	}
	cr_assert_gt(swaps, 2);
}
