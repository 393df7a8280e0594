/*
 * Sub-cgroups of execs, on hosts that have cgroup v2.
 */
#include "tests/sandbox/launcher_harness.h"

#include "pool/base/fd.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXECS_MAX 96 /* SP_LAUNCHER_EXECS */

static void skip_if_missing(void)
{
	if (play_missing())
		cr_skip_test("%s", play_missing());
	if (access("/sys/fs/cgroup/unified/cgroup.procs", F_OK) != 0 &&
	    access("/sys/fs/cgroup/cgroup.procs", F_OK) != 0)
		cr_skip_test("no cgroup v2 here");
}

TestSuite(launcher_exec, .init = skip_if_missing, .timeout = 120);

static void begin(struct play *play, struct play_sandbox *sandbox)
{
	struct sp_table *table = play_table(play, 1);

	play_start(play, table);
	play_ready(play, 0, sandbox);
	free(table);
}

static void end(struct play *play, struct play_sandbox *sandbox)
{
	(void)play_kill(play, sandbox);
	play_stop(play);
	play_clean(play);
}

static uint32_t new_cgroup(struct play *play, struct play_sandbox *sandbox, int *ret_fd)
{
	struct play_answer answer;
	uint64_t request =
		play_command(play, SP_LAUNCHER_EXEC_CGROUP, sandbox->slot, sandbox->serial, 0);

	play_expect(play, SP_LAUNCHER_EXEC_CGROUP_READY, request, &answer);
	cr_assert(answer.fd_count == 1);
	*ret_fd = answer.fds[0];
	return answer.record.value;
}

static void command(struct play *play, struct play_sandbox *sandbox, uint32_t type, uint32_t number)
{
	struct play_answer answer;
	uint64_t request = play_command(play, type, sandbox->slot, sandbox->serial, number);

	play_expect(play, SP_LAUNCHER_DONE, request, &answer);
}

static int exec_cgroups(const struct play_sandbox *sandbox)
{
	char path[512];
	char command_line[600];
	FILE *pipe;
	int count = -1;

	play_cgroup_path(sandbox, "unified", "", path, sizeof(path));
	(void)snprintf(command_line, sizeof(command_line), "ls -d %sx* 2>/dev/null | wc -l", path);
	pipe = popen(command_line, "re");
	cr_assert(pipe && fscanf(pipe, "%d", &count) == 1);
	(void)pclose(pipe);
	return count;
}

static void wait_for_exec_cgroups(const struct play_sandbox *sandbox, int wanted)
{
	for (int i = 0; i < 1000 && exec_cgroups(sandbox) != wanted; i++)
		(void)usleep(2000);
	cr_assert(exec_cgroups(sandbox) == wanted);
}

static uint32_t next_record(struct play_sandbox *sandbox)
{
	union {
		struct sp_init_header header;
		struct sp_init_status status;
		struct sp_init_exited exited;
	} record;

	int fds[8];
	size_t fd_count;

	cr_assert(play_wait_end(sandbox->control_fd, PLAY_WAIT_MS));
	cr_assert(sp_msg_receive(sandbox->control_fd, &record, sizeof(record), fds, &fd_count) > 0);
	return record.header.type;
}

Test(launcher_exec, is_owned_by_init_and_lets_it_start_children_there)
{
	struct play play;
	struct play_sandbox sandbox;
	struct stat info;
	char text[64] = "";
	int output;
	int fd;

	begin(&play, &sandbox);
	(void)new_cgroup(&play, &sandbox, &fd);
	cr_assert(fstat(fd, &info) == 0 && info.st_uid == sandbox.host_uid_base);
	cr_assert(fstatat(fd, "cgroup.procs", &info, 0) == 0 &&
		  info.st_uid == sandbox.host_uid_base);
	cr_assert(fstatat(fd, "cgroup.kill", &info, 0) == 0 && info.st_uid == 0);
	cr_assert(fstatat(fd, "cgroup.max.depth", &info, 0) == 0 && info.st_uid == 0);
	output = play_exec_shell(&sandbox, "sleep 100", fd);
	cr_assert(next_record(&sandbox) == SP_INIT_STARTED);
	{
		SP_AUTO_CLOSE int procs = openat(fd, "cgroup.procs", O_RDONLY | O_CLOEXEC);

		cr_assert(sp_read_all(procs, text, sizeof(text) - 1) > 0);
	}
	sp_fd_close(&output);
	sp_fd_close(&fd);
	end(&play, &sandbox);
}

Test(launcher_exec, kill_ends_the_exec_and_nothing_else)
{
	struct play play;
	struct play_sandbox sandbox;
	char text[256];
	uint32_t number;
	int output;
	int fd;

	begin(&play, &sandbox);
	number = new_cgroup(&play, &sandbox, &fd);
	output = play_exec_shell(&sandbox, "(setsid sh -c 'sleep 100; :' &) ; sleep 100; :", fd);
	cr_assert(next_record(&sandbox) == SP_INIT_STARTED);
	command(&play, &sandbox, SP_LAUNCHER_EXEC_KILL, number);
	cr_assert(next_record(&sandbox) == SP_INIT_EXITED);
	/* Every writer is dead, the double fork included. */
	cr_assert(play_wait_end(output, 2000) && sp_read_all(output, text, sizeof(text)) == 0);
	command(&play, &sandbox, SP_LAUNCHER_EXEC_DONE, number);
	wait_for_exec_cgroups(&sandbox, 0);
	sp_fd_close(&output);
	sp_fd_close(&fd);
	cr_assert(play_shell(&sandbox, "echo alive", text, sizeof(text)) == 0);
	cr_assert_str_eq(text, "alive\n");
	end(&play, &sandbox);
}

Test(launcher_exec, done_waits_until_it_is_empty)
{
	struct play play;
	struct play_sandbox sandbox;
	uint32_t number;
	uint64_t request;
	int output;
	int fd;

	begin(&play, &sandbox);
	number = new_cgroup(&play, &sandbox, &fd);
	output = play_exec_shell(&sandbox, "sleep 100", fd);
	cr_assert(next_record(&sandbox) == SP_INIT_STARTED);
	command(&play, &sandbox, SP_LAUNCHER_EXEC_DONE, number);
	cr_assert(exec_cgroups(&sandbox) == 1);
	/* Not ours to command any more. */
	request = play_command(&play, SP_LAUNCHER_EXEC_KILL, sandbox.slot, sandbox.serial, number);
	play_expect_failure(&play, request, -ENOENT, NULL);
	{
		SP_AUTO_CLOSE int kill_fd = openat(fd, "cgroup.kill", O_WRONLY | O_CLOEXEC);

		cr_assert(sp_write_all(kill_fd, "1", 1) == 0);
	}
	wait_for_exec_cgroups(&sandbox, 0);
	sp_fd_close(&output);
	sp_fd_close(&fd);
	end(&play, &sandbox);
}

Test(launcher_exec, refuses_the_first_above_its_limit)
{
	struct play play;
	struct play_sandbox sandbox;
	uint32_t last = 0;
	uint64_t request;
	int fd;

	begin(&play, &sandbox);
	for (uint32_t i = 0; i < EXECS_MAX; i++) {
		last = new_cgroup(&play, &sandbox, &fd);
		cr_assert(last == i);
		sp_fd_close(&fd);
	}
	request = play_command(&play, SP_LAUNCHER_EXEC_CGROUP, sandbox.slot, sandbox.serial, 0);
	play_expect_failure(&play, request, -EAGAIN, NULL);
	command(&play, &sandbox, SP_LAUNCHER_EXEC_DONE, last);
	wait_for_exec_cgroups(&sandbox, EXECS_MAX - 1);
	/* A number is never used twice. */
	cr_assert(new_cgroup(&play, &sandbox, &fd) == last + 1);
	sp_fd_close(&fd);
	/* All of them go with the sandbox. */
	end(&play, &sandbox);
}

Test(launcher_exec, refuses_numbers_and_sandboxes_that_are_not_there)
{
	struct play play;
	struct play_sandbox sandbox;
	struct sp_launcher_command gone;
	uint64_t request;

	begin(&play, &sandbox);
	request = play_command(&play, SP_LAUNCHER_EXEC_KILL, sandbox.slot, sandbox.serial, 0);
	play_expect_failure(&play, request, -ENOENT, NULL);
	request = play_command(&play, SP_LAUNCHER_EXEC_DONE, sandbox.slot, sandbox.serial,
			       UINT32_MAX);
	play_expect_failure(&play, request, -ENOENT, NULL);
	gone = (struct sp_launcher_command){.slot = sandbox.slot, .serial = sandbox.serial};
	(void)play_kill(&play, &sandbox);
	request = play_command(&play, SP_LAUNCHER_EXEC_CGROUP, gone.slot, gone.serial, 0);
	play_expect_failure(&play, request, -ESRCH, NULL);
	play_stop(&play);
	play_clean(&play);
}

/* What init may do there must not be enough to outlive its sandbox. */
Test(launcher_exec, allows_nothing_below_it)
{
	struct play play;
	struct play_sandbox sandbox;
	int fd;

	begin(&play, &sandbox);
	(void)new_cgroup(&play, &sandbox, &fd);
	cr_assert(mkdirat(fd, "deeper", 0755) < 0 && errno == EAGAIN);
	sp_fd_close(&fd);
	end(&play, &sandbox);
}

/* A removal that has not been answered yet must not be asked for again by the retry of another. */
Test(launcher_exec, a_stuck_one_leaves_the_removal_of_others_alone)
{
	struct play play;
	struct play_sandbox sandbox;
	uint32_t stuck;
	int output;
	int fd;

	begin(&play, &sandbox);
	stuck = new_cgroup(&play, &sandbox, &fd);
	output = play_exec_shell(&sandbox, "sleep 100; :", fd);
	cr_assert(next_record(&sandbox) == SP_INIT_STARTED);
	command(&play, &sandbox, SP_LAUNCHER_EXEC_DONE, stuck);
	for (int i = 0; i < 3000; i++) {
		int other_fd;
		uint32_t other = new_cgroup(&play, &sandbox, &other_fd);

		command(&play, &sandbox, SP_LAUNCHER_EXEC_DONE, other);
		sp_fd_close(&other_fd);
	}
	wait_for_exec_cgroups(&sandbox, 1);
	sp_fd_close(&output);
	sp_fd_close(&fd);
	end(&play, &sandbox);
}

/* A removal is answered before it is done; what waits for the spawner has a bound all the same. */
Test(launcher_exec, reads_nothing_while_too_many_removals_wait)
{
	static struct play_sandbox
		sandboxes[52]; /* the spawner's socket holds some hundred of them */
	const uint64_t total = (uint64_t)SP_ARRAY_SIZE(sandboxes) * EXECS_MAX;
	struct sp_table *table;
	struct play play;
	struct play_answer answer;
	uint64_t sent = 0;
	uint64_t done = 0;
	pid_t spawner;
	int fd;

	table = play_table(&play, 1);
	play_pool(table, 0)->max_sandboxes = SP_ARRAY_SIZE(sandboxes);
	play_start(&play, table);
	spawner = play_first_child(play.launcher);
	for (size_t i = 0; i < SP_ARRAY_SIZE(sandboxes); i++) {
		play_ready(&play, 0, &sandboxes[i]);
		for (uint32_t number = 0; number < EXECS_MAX; number++) {
			(void)new_cgroup(&play, &sandboxes[i], &fd);
			sp_fd_close(&fd);
		}
	}
	cr_assert(kill(spawner, SIGSTOP) == 0);
	for (bool quiet = false; !quiet;) {
		for (uint32_t burst = 0; burst < 8 && sent < total; burst++, sent++)
			(void)play_command(
				&play, SP_LAUNCHER_EXEC_DONE, sandboxes[sent / EXECS_MAX].slot,
				sandboxes[sent / EXECS_MAX].serial, (uint32_t)(sent % EXECS_MAX));
		for (quiet = true; done < sent && play_wait_end(play.fd, 300);
		     quiet = false, done++)
			play_expect(&play, SP_LAUNCHER_DONE, play.requests - (sent - done) + 1,
				    &answer);
		if (sent == total && done == sent)
			break;
	}
	cr_assert(done >= 4096 && done < total, "%lu of %lu", (unsigned long)done,
		  (unsigned long)total);
	cr_assert(kill(spawner, SIGCONT) == 0);
	for (; done < sent; done++)
		play_expect(&play, SP_LAUNCHER_DONE, play.requests - (sent - done) + 1, &answer);
	for (size_t i = 0; i < SP_ARRAY_SIZE(sandboxes); i++)
		(void)play_kill(&play, &sandboxes[i]);
	play_stop(&play);
	play_clean(&play);
	free(table);
}
