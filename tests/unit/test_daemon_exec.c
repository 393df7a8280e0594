/*
 * Execs in real sandboxes: output, input, ends and their reasons.
 */
#include "daemon_fixture.h"

#include <errno.h>

#define POOL                                                                                 \
	"\"default\": {\"max_idle\": 2, \"limits\": {\"memory\": \"64MiB\", \"pids\": 128, " \
	"\"tmp\": \"16MiB\", \"output\": \"4MiB\"}}"

Test(daemon_exec, run_gives_output_and_exit_code)
{
	struct live live;
	COMMAND(command, "/bin/sh", "-c", "echo out; echo err >&2; exit 7");
	struct outcome outcome;

	LIVE_START(&live, "", POOL);
	outcome = live_run(&live, "default", &command);
	cr_assert(outcome.result.reason == SP_EXEC_EXITED);
	cr_assert(outcome.result.exit_code == 7 && outcome.result.signal == 0);
	cr_assert_str_eq(outcome.text[1], "out\n");
	cr_assert_str_eq(outcome.text[2], "err\n");
	cr_assert(outcome.result.stdout_bytes == 4 && outcome.result.stderr_bytes == 4);
	cr_assert(outcome.started && !outcome.output_before_start);
	cr_assert(outcome.result.wall_us > 0 && outcome.result.peak_memory_bytes > 0);
	live_stop(&live);
}

Test(daemon_exec, defaults_of_environment_and_directory)
{
	static const char *const env[] = {"LANG=xx", "A=1", "A=2"};
	struct live live;
	COMMAND(command, "/bin/sh", "-c", "pwd; umask; env | sort; tty; id -u");
	struct outcome outcome;

	LIVE_START(&live, "", POOL);
	command.spec.env = env;
	command.spec.envc = SP_ARRAY_SIZE(env);
	outcome = live_run(&live, "default", &command);
	cr_assert_str_eq(outcome.text[1],
			 "/workspace\n0022\nA=2\nHOME=/home/user\nLANG=xx\n"
			 "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
			 "PWD=/workspace\nnot a tty\n1000\n");
	live_stop(&live);
}

Test(daemon_exec, missing_program_leaves_the_sandbox_usable)
{
	struct live live;
	COMMAND(missing, "/no/such/program");
	COMMAND(good, "/bin/true");
	struct held held;
	struct outcome outcome;

	LIVE_START(&live, "", POOL);
	held = live_acquire(&live, "default");
	outcome = live_exec(&live, &held, &missing);
	cr_assert(outcome.result.reason == SP_EXEC_START_FAILED);
	cr_assert(outcome.result.start_errno == ENOENT);
	cr_assert_str_eq(outcome.result.stage, "exec");
	cr_assert_str_eq(outcome.result.message, "'/no/such/program': No such file or directory");
	cr_assert(!outcome.started);
	good.spec.cwd = "/no/such/place";
	outcome = live_exec(&live, &held, &good);
	cr_assert_str_eq(outcome.result.stage, "cwd");
	cr_assert_str_eq(outcome.result.message, "cwd '/no/such/place': No such file or directory");
	good.spec.cwd = NULL;
	cr_assert(live_exec(&live, &held, &good).result.exit_code == 0);
	live_release(&live, &held);
	live_stop(&live);
}

Test(daemon_exec, timeout_kills_all_it_started_and_nothing_else)
{
	struct live live;
	COMMAND(other, "/bin/sleep", "600");
	COMMAND(runaway, "/bin/sh", "-c", "setsid sleep 601 & (sleep 602 &) ; sleep 603");
	COMMAND(look, "/bin/sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '");
	struct outcome neighbour;
	struct outcome outcome;
	struct held held;

	LIVE_START(&live, "", POOL);
	held = live_acquire(&live, "default");
	live_begin(&live, &held, &other, &neighbour);
	LIVE_WAIT(&live, neighbour.started);
	runaway.spec.timeout_ms = 200;
	outcome = live_exec(&live, &held, &runaway);
	cr_assert(outcome.result.reason == SP_EXEC_TIMEOUT);
	cr_assert(outcome.result.signal == SIGKILL && outcome.result.exit_code == -1);
	cr_assert(outcome.result.wall_us >= 200000 && outcome.result.wall_us < 2000000);
	outcome = live_exec(&live, &held, &look);
	cr_assert_not_null(strstr(outcome.text[1], "sleep 600"));
	cr_assert_null(strstr(outcome.text[1], "sleep 601"));
	cr_assert_null(strstr(outcome.text[1], "sleep 602"));
	sp_exec_cancel(neighbour.exec);
	live_release(&live, &held);
	live_stop(&live);
}

Test(daemon_exec, timeout_of_a_run_kills_the_sandbox)
{
	struct live live;
	COMMAND(command, "/bin/sh", "-c", "kill -STOP -1; sleep 600");
	struct outcome outcome;

	LIVE_START(&live, "", POOL);
	command.spec.timeout_ms = 200;
	outcome = live_run(&live, "default", &command);
	cr_assert(outcome.result.reason == SP_EXEC_TIMEOUT);
	cr_assert(outcome.result.signal == SIGKILL);
	live_stop(&live);
}

Test(daemon_exec, out_of_memory_is_told_from_a_plain_kill)
{
	struct live live;
	COMMAND(hog, "/bin/dd", "if=/dev/zero", "of=/dev/null", "bs=400M", "count=1");
	COMMAND(suicide, "/bin/sh", "-c", "kill -9 $$");
	COMMAND(shell, "/bin/sh", "-c", "dd if=/dev/zero of=/dev/null bs=400M count=1; exit $?");
	struct held held;
	struct outcome outcome;

	LIVE_START(&live, "", POOL);
	held = live_acquire(&live, "default");
	outcome = live_exec(&live, &held, &suicide);
	cr_assert(outcome.result.reason == SP_EXEC_SIGNALED && outcome.result.signal == SIGKILL);
	outcome = live_exec(&live, &held, &hog);
	cr_assert(outcome.result.reason == SP_EXEC_MEMORY, "%s",
		  sp_exec_reason_name(outcome.result.reason));
	cr_assert(outcome.result.peak_memory_bytes > 60 * SP_MIB);
	outcome = live_exec(&live, &held, &suicide);
	cr_assert(outcome.result.reason == SP_EXEC_SIGNALED, "the count before it is known");
	outcome = live_exec(&live, &held, &shell);
	cr_assert(outcome.result.reason == SP_EXEC_MEMORY);
	cr_assert(outcome.result.exit_code == 137);
	live_release(&live, &held);
	live_stop(&live);
}

Test(daemon_exec, output_limit_at_n_and_one_more)
{
	struct live live;
	COMMAND(exact, "/usr/bin/head", "-c", "100000", "/dev/zero");
	COMMAND(more, "/usr/bin/head", "-c", "100001", "/dev/zero");
	struct outcome outcome;
	struct held held;

	LIVE_START(&live, "", POOL);
	held = live_acquire(&live, "default");
	exact.spec.output_limit = more.spec.output_limit = 100000;
	outcome = live_exec(&live, &held, &exact);
	cr_assert(outcome.result.reason == SP_EXEC_EXITED && !outcome.result.stdout_truncated);
	cr_assert(outcome.len[1] == 100000 && outcome.result.stdout_bytes == 100000);
	outcome = live_exec(&live, &held, &more);
	cr_assert(outcome.result.reason == SP_EXEC_OUTPUT && outcome.result.stdout_truncated);
	cr_assert(!outcome.result.stderr_truncated);
	cr_assert(outcome.len[1] == 100000 && outcome.result.stdout_bytes == 100001);
	live_release(&live, &held);
	live_stop(&live);
}

Test(daemon_exec, flood_ends_with_reason_output)
{
	struct live live;
	COMMAND(command, "/usr/bin/yes");
	struct outcome outcome;

	LIVE_START(&live, "", POOL);
	outcome = live_run(&live, "default", &command);
	cr_assert(outcome.result.reason == SP_EXEC_OUTPUT);
	cr_assert(outcome.len[1] == 4 * SP_MIB && outcome.result.stdout_bytes > 4 * SP_MIB);
	live_stop(&live);
}

Test(daemon_exec, every_byte_arrives_before_the_end)
{
	struct live live;
	COMMAND(command, "/usr/bin/head", "-c", "1048576", "/dev/zero");
	struct held held;

	LIVE_START(&live, "", POOL);
	held = live_acquire(&live, "default");
	for (int i = 0; i < 50; i++)
		cr_assert(live_exec(&live, &held, &command).len[1] == 1048576);
	live_release(&live, &held);
	live_stop(&live);
}

Test(daemon_exec, background_child_delays_nothing_and_lives)
{
	struct live live;
	COMMAND(leave, "/bin/sh", "-c",
		"(while echo tick; do sleep 0.01; done; echo dead > /tmp/dead) & echo hi");
	COMMAND(look, "/bin/sh", "-c", "test ! -e /tmp/dead && pgrep -c sleep || pgrep -c sh");
	struct outcome outcome;
	struct held held;

	LIVE_START(&live, "", POOL);
	held = live_acquire(&live, "default");
	outcome = live_exec(&live, &held, &leave);
	cr_assert(outcome.result.reason == SP_EXEC_EXITED && outcome.result.wall_us < 5000000);
	cr_assert_not_null(strstr(outcome.text[1], "hi\n"));
	LIVE_WAIT(&live, live_link(&live, &held)->leftover_count == 2);
	live_let_pass(&live, 300);
	outcome = live_exec(&live, &held, &look);
	cr_assert(outcome.result.exit_code == 0, "it died: %s", outcome.text[1]);
	live_release(&live, &held);
	live_stop(&live);
}

Test(daemon_exec, pipes_left_open_are_capped_and_the_oldest_goes)
{
	struct live live;
	COMMAND(leave, "/bin/sh", "-c", "sleep 600 & exit 0");
	struct held held;

	LIVE_START(&live, "", POOL);
	held = live_acquire(&live, "default");
	leave.spec.merge_stderr = true;
	for (uint32_t i = 1; i <= SP_LEFTOVERS_MAX; i++) {
		(void)live_exec(&live, &held, &leave);
		LIVE_WAIT(&live, live_link(&live, &held)->leftover_count == i);
	}
	(void)live_exec(&live, &held, &leave);
	LIVE_WAIT(&live, sp_list_empty(&live_link(&live, &held)->retired));
	cr_assert(live_link(&live, &held)->leftover_count == SP_LEFTOVERS_MAX);
	live_release(&live, &held);
	live_stop(&live);
}

Test(daemon_exec, stdin_is_null_unless_asked_for)
{
	struct live live;
	COMMAND(command, "/bin/cat");

	LIVE_START(&live, "", POOL);
	cr_assert(live_run(&live, "default", &command).result.exit_code == 0);
	live_stop(&live);
}

Test(daemon_exec, stdin_window_and_credit)
{
	static char block[SP_EXEC_STDIN_WINDOW];
	struct live live;
	COMMAND(command, "/usr/bin/wc", "-c");
	struct outcome outcome;
	struct held held;

	LIVE_START(&live, "", POOL);
	held = live_acquire(&live, "default");
	command.spec.stdin_open = true;
	live_begin(&live, &held, &command, &outcome);
	cr_assert(sp_exec_stdin(outcome.exec, block, sizeof(block)) == 0);
	cr_assert(sp_exec_stdin(outcome.exec, block, 1) == -EMSGSIZE, "the window is full");
	LIVE_WAIT(&live, outcome.credit == sizeof(block));
	cr_assert(sp_exec_stdin(outcome.exec, block, 1) == 0);
	sp_exec_stdin_close(outcome.exec);
	cr_assert(sp_exec_stdin(outcome.exec, block, 1) == -EPIPE);
	LIVE_WAIT(&live, outcome.ended);
	cr_assert_str_eq(outcome.text[1], "262145\n");
	live_release(&live, &held);
	live_stop(&live);
}

Test(daemon_exec, stdin_of_a_program_that_does_not_read)
{
	static char block[SP_EXEC_STDIN_WINDOW];
	struct live live;
	COMMAND(command, "/bin/sh", "-c", "exec 0<&-; sleep 0.2");
	struct outcome outcome;
	struct held held;

	LIVE_START(&live, "", POOL);
	held = live_acquire(&live, "default");
	command.spec.stdin_open = true;
	live_begin(&live, &held, &command, &outcome);
	LIVE_WAIT(&live, outcome.started);
	live_let_pass(&live, 50);
	(void)sp_exec_stdin(outcome.exec, block, sizeof(block));
	LIVE_WAIT(&live, outcome.ended);
	cr_assert(outcome.credit == sizeof(block), "dropped is credited too");
	live_release(&live, &held);
	live_stop(&live);
}

Test(daemon_exec, terminal_with_size_and_input)
{
	struct live live;
	COMMAND(command, "/bin/sh", "-c", "stty -echo; stty size; read a; stty size; echo got $a");
	struct outcome outcome;
	struct held held;

	LIVE_START(&live, "", POOL);
	held = live_acquire(&live, "default");
	command.spec.tty = true;
	command.spec.rows = 33;
	command.spec.columns = 77;
	live_begin(&live, &held, &command, &outcome);
	LIVE_WAIT(&live, strstr(outcome.text[1], "33 77\r\n"));
	cr_assert(sp_exec_resize(outcome.exec, 40, 90) == 0);
	cr_assert(sp_exec_stdin(outcome.exec, "word\n", 5) == 0);
	LIVE_WAIT(&live, outcome.ended);
	cr_assert(outcome.result.exit_code == 0);
	cr_assert_not_null(strstr(outcome.text[1], "40 90\r\ngot word\r\n"));
	live_release(&live, &held);
	live_stop(&live);
}

Test(daemon_exec, terminal_held_by_the_background_does_not_delay_the_end)
{
	struct live live;
	COMMAND(command, "/bin/sh", "-c", "trap '' HUP; setsid sleep 600 & echo hi");
	struct outcome outcome;
	struct held held;

	LIVE_START(&live, "", POOL);
	held = live_acquire(&live, "default");
	command.spec.tty = true;
	outcome = live_exec(&live, &held, &command);
	cr_assert_str_eq(outcome.text[1], "hi\r\n");
	live_release(&live, &held);
	live_stop(&live);
}

Test(daemon_exec, paused_reader_holds_the_writer_back)
{
	struct live live;
	COMMAND(command, "/bin/sh", "-c", "head -c 1000000 /dev/zero; exit 3");
	struct outcome outcome;
	struct held held;
	size_t before;

	LIVE_START(&live, "", POOL);
	held = live_acquire(&live, "default");
	live_begin(&live, &held, &command, &outcome);
	outcome.pause_at_output = true;
	LIVE_WAIT(&live, outcome.len[1] > 0);
	before = outcome.len[1];
	live_let_pass(&live, 100);
	cr_assert(outcome.len[1] == before && !outcome.ended);
	outcome.pause_at_output = false;
	sp_exec_pause(outcome.exec, false);
	LIVE_WAIT(&live, outcome.ended);
	cr_assert(outcome.len[1] == 1000000 && outcome.result.exit_code == 3);
	live_release(&live, &held);
	live_stop(&live);
}

Test(daemon_exec, paused_while_it_ends_still_gets_everything)
{
	struct live live;
	COMMAND(command, "/bin/sh", "-c", "head -c 50000 /dev/zero; head -c 10000 /dev/zero >&2");
	struct outcome outcome;
	struct held held;

	LIVE_START(&live, "", POOL);
	held = live_acquire(&live, "default");
	live_begin(&live, &held, &command, &outcome);
	sp_exec_pause(outcome.exec, true);
	LIVE_WAIT(&live, outcome.exec->state == EXEC_DRAINING);
	live_let_pass(&live, 30);
	cr_assert(!outcome.ended && outcome.len[1] == 0);
	live_release(&live, &held); /* the result stands even if the sandbox goes */
	live_let_pass(&live, 100);
	sp_exec_pause(outcome.exec, false);
	LIVE_WAIT(&live, outcome.ended);
	cr_assert(outcome.result.reason == SP_EXEC_EXITED);
	cr_assert(outcome.len[1] == 50000 && outcome.len[2] == 10000);
	live_stop(&live);
}

Test(daemon_exec, workload_may_open_its_outputs_anew)
{
	struct live live;
	COMMAND(command, "/bin/sh", "-c", "echo a > /dev/stdout; echo b | tee /dev/stderr");
	struct outcome outcome;

	LIVE_START(&live, "", POOL);
	outcome = live_run(&live, "default", &command);
	cr_assert(outcome.result.exit_code == 0);
	cr_assert_str_eq(outcome.text[1], "a\nb\n");
	cr_assert_str_eq(outcome.text[2], "b\n");
	live_stop(&live);
}

Test(daemon_exec, strings_inline_and_by_memfd)
{
	struct live live;
	static char big[60000];
	COMMAND(command, "/bin/sh", "-c", "echo ${#1} $2", "sh", big, "last");
	struct outcome outcome;

	memset(big, 'x', sizeof(big) - 1);
	LIVE_START(&live, "", POOL);
	outcome = live_run(&live, "default", &command);
	cr_assert_str_eq(outcome.text[1], "59999 last\n");
	live_stop(&live);
}

Test(daemon_exec, sixty_four_run_at_once_and_no_more)
{
	struct live live;
	COMMAND(command, "/bin/sleep", "600");
	static struct outcome outcomes[SP_INIT_EXECS_MAX];
	struct outcome extra;
	struct held held;

	LIVE_START(&live, "", POOL);
	held = live_acquire(&live, "default");
	for (size_t i = 0; i < SP_INIT_EXECS_MAX; i++)
		live_begin(&live, &held, &command, &outcomes[i]);
	memset(&extra, 0, sizeof(extra));
	cr_assert(sp_exec_start(live.service, &held.caller, held.id, &command.spec, &outcome_events,
				&extra, &extra.exec, &extra.err) < 0);
	cr_assert(extra.err.code == SP_CODE_TOO_MANY);
	for (size_t i = 0; i < SP_INIT_EXECS_MAX; i++)
		LIVE_WAIT(&live, outcomes[i].started);
	live_release(&live, &held);
	for (size_t i = 0; i < SP_INIT_EXECS_MAX; i++) {
		LIVE_WAIT(&live, outcomes[i].ended);
		cr_assert(outcomes[i].result.reason == SP_EXEC_KILLED);
	}
	live_stop(&live);
}

Test(daemon_exec, cancel_at_any_moment_leaves_the_sandbox_usable)
{
	struct live live;
	COMMAND(command, "/bin/sh", "-c", "sleep 600 & sleep 600");
	COMMAND(look, "/bin/sh", "-c", "pgrep -c sleep; true");
	struct outcome outcome;
	struct held held;

	LIVE_START(&live, "", POOL);
	held = live_acquire(&live, "default");
	for (int64_t delay = 0; delay < 30; delay++) {
		live_begin(&live, &held, &command, &outcome);
		live_let_pass(&live, delay % 6);
		sp_exec_cancel(outcome.exec);
	}
	LIVE_WAIT(&live, live_link(&live, &held)->running_execs == 0);
	outcome = live_exec(&live, &held, &look);
	cr_assert_str_eq(outcome.text[1], "0\n");
	live_release(&live, &held);
	live_stop(&live);
}

Test(daemon_exec, signals_reach_the_program)
{
	struct live live;
	COMMAND(command, "/bin/sh", "-c",
		"trap 'echo caught; exit 5' TERM; echo on; while :; do sleep 0.01; done");
	struct outcome outcome;
	struct sp_err err = {0};
	struct held held;

	LIVE_START(&live, "", POOL);
	held = live_acquire(&live, "default");
	live_begin(&live, &held, &command, &outcome);
	cr_assert(sp_exec_signal(outcome.exec, 0, &err) == -EINVAL);
	cr_assert(sp_exec_signal(outcome.exec, SIGRTMAX + 1, &err) == -EINVAL);
	LIVE_WAIT(&live, outcome.len[1] > 0);
	cr_assert(sp_exec_signal(outcome.exec, SIGTERM, &err) == 0);
	LIVE_WAIT(&live, outcome.ended);
	cr_assert(outcome.result.exit_code == 5);
	live_release(&live, &held);
	live_stop(&live);
}

/* How often a program that does not care hears of its stop. */
static size_t heard(int64_t again_ms)
{
	static const size_t line = sizeof("heard\n") - 1;
	struct live live;
	COMMAND(command, "/bin/sh", "-c",
		"trap 'echo heard' TERM; echo begun; while :; do sleep 0.01; done");
	struct outcome outcome;
	struct held held;
	size_t count;

	LIVE_START(&live, "", POOL);
	held = live_acquire(&live, "default");
	live_begin(&live, &held, &command, &outcome);
	LIVE_WAIT(&live, outcome.len[1] == line);
	sp_exec_stop(outcome.exec, SIGTERM, 2 * SP_MS_PER_S, again_ms);
	LIVE_WAIT(&live, outcome.ended);
	cr_assert(outcome.result.reason == SP_EXEC_KILLED);
	count = outcome.len[1] / line - 1;
	live_release(&live, &held);
	live_stop(&live);
	return count;
}

Test(daemon_exec, a_stop_is_said_once_or_again_until_the_kill)
{
	size_t once = heard(0);
	size_t often = heard(SP_MS_PER_S / 4);

	cr_assert(once <= 1, "%zu", once);
	cr_assert(often >= 2 && often <= 8, "%zu", often);
}

Test(daemon_exec, program_that_kills_everything_it_can)
{
	struct live live;
	COMMAND(command, "/bin/sh", "-c", "kill -9 -1; kill -9 1; true");
	COMMAND(good, "/bin/true");
	struct held held;

	LIVE_START(&live, "", POOL);
	held = live_acquire(&live, "default");
	(void)live_exec(&live, &held, &command);
	cr_assert(live_exec(&live, &held, &good).result.exit_code == 0);
	live_release(&live, &held);
	live_stop(&live);
}

Test(daemon_exec, death_of_the_sandbox_ends_its_execs)
{
	struct live live;
	COMMAND(command, "/bin/sh", "-c", "echo on; sleep 600");
	struct outcome outcome;
	struct sp_err err = {0};
	struct held held;

	LIVE_START(&live, "", POOL);
	held = live_acquire(&live, "default");
	live_begin(&live, &held, &command, &outcome);
	LIVE_WAIT(&live, outcome.len[1] > 0);
	cr_assert(kill((pid_t)sandbox_host_pid(live_link(&live, &held)), SIGKILL) == 0);
	LIVE_WAIT(&live, outcome.ended);
	cr_assert(outcome.result.reason == SP_EXEC_DIED);
	cr_assert_str_eq(outcome.text[1], "on\n");
	cr_assert(sp_exec_start(live.service, &held.caller, held.id, &command.spec, &outcome_events,
				&outcome, &outcome.exec, &err) < 0);
	cr_assert(err.code == SP_CODE_SANDBOX_DEAD, "%s", err.message);
	live_stop(&live);
}

Test(daemon_exec, end_of_the_lease_ends_its_execs)
{
	struct live live;
	COMMAND(command, "/bin/sleep", "600");
	struct sp_service_acquire request = wish("default");
	struct outcome outcome;
	struct held held;

	LIVE_START(&live, "", POOL);
	request.ttl_ms = 300;
	live_acquire_as(&live, &request, &held);
	live_begin(&live, &held, &command, &outcome);
	LIVE_WAIT(&live, outcome.ended);
	cr_assert(outcome.result.reason == SP_EXEC_EXPIRED);
	live_stop(&live);
}

Test(daemon_exec, exec_can_be_switched_off)
{
	struct live live;
	COMMAND(command, "/bin/true");
	struct sp_service_acquire request = wish("no such pool");
	struct outcome outcome = {0};

	LIVE_START(&live, "\"exec_enabled\": false", POOL);
	cr_assert(sp_exec_run(live.service, &operator_caller, &request, &command.spec,
			      &outcome_events, outcome_on_failed, &outcome, &outcome.exec,
			      &outcome.err) < 0);
	cr_assert(outcome.err.code == SP_CODE_EXEC_DISABLED, "before anything else");
	live_stop(&live);
}

struct turns {
	uv_check_t check;
	struct outcome *outcome;
	size_t before;
	size_t most; /* bytes of output that came in one turn of the loop */
};

static void on_turn(uv_check_t *check)
{
	struct turns *turns = check->data;
	size_t now = turns->outcome->len[1];

	turns->most = SP_MAX(turns->most, now - turns->before);
	turns->before = now;
}

/* Not even by one who has left the terminal's session before its leader ended, so that it does not
 * hang up. */
Test(daemon_exec, flooded_terminal_does_not_take_the_loop)
{
	static const char script[] = "import os, signal, fcntl, termios, tty\n"
				     "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
				     "tty.setraw(1)\n"
				     "fcntl.ioctl(0, termios.TIOCNOTTY)\n"
				     "ready, told = os.pipe()\n"
				     "if os.fork() == 0:\n"
				     "    os.write(told, b'1')\n"
				     "    while True: os.write(1, b'x' * 65536)\n"
				     "os.read(ready, 1)\n";
	struct live live;
	COMMAND(command, "/usr/bin/python3", "-c", script);
	struct turns turns = {.check.data = &turns};
	struct outcome outcome;
	struct held held;

	LIVE_START(&live, "", POOL);
	held = live_acquire(&live, "default");
	command.spec.tty = true;
	turns.outcome = &outcome;
	cr_assert(uv_check_init(&live.loop, &turns.check) == 0);
	cr_assert(uv_check_start(&turns.check, on_turn) == 0);
	live_begin(&live, &held, &command, &outcome);
	LIVE_WAIT(&live, outcome.ended);
	cr_assert(outcome.result.exit_code == 0, "%s", outcome.text[1]);
	cr_assert(turns.before > 0 && turns.most <= 2 * SP_READ_BUFFER, "%zu at once", turns.most);
	uv_close((uv_handle_t *)&turns.check, NULL);
	live_release(&live, &held);
	live_stop(&live);
}

Test(daemon_exec, direct_backend_runs_as_its_user)
{
	struct live live;
	COMMAND(command, "/bin/sh", "-c", "id -u; pwd; echo $HOME; sleep 600 & exit 2");
	struct outcome outcome;
	struct held held;

	LIVE_START(&live, "\"allow_direct\": true",
		   "\"default\": {\"max_idle\": 1, \"backend\": \"direct\", \"direct_user\": "
		   "\"nobody\"}");
	held = live_acquire(&live, "default");
	outcome = live_exec(&live, &held, &command);
	cr_assert(outcome.result.exit_code == 2);
	cr_assert_str_eq(outcome.text[1], "65534\n/\n/\n");
	live_release(&live, &held);
	live_stop(&live);
}

Test(daemon_exec, thousand_runs_leave_no_descriptor, .timeout = 240)
{
	struct live live;
	COMMAND(command, "/bin/echo", "x");
	COMMAND(missing, "/no/such/program");
	size_t before;

	LIVE_START(&live, "", POOL);
	LIVE_WAIT(&live, live_full(&live, "default"));
	before = open_descriptors();
	for (int i = 0; i < 800; i++)
		cr_assert(live_run(&live, "default", &command).len[1] == 2);
	for (int i = 0; i < 200; i++)
		cr_assert(live_run(&live, "default", &missing).result.reason ==
			  SP_EXEC_START_FAILED);
	LIVE_WAIT(&live, live_full(&live, "default"));
	cr_assert(open_descriptors() == before);
	live_stop(&live);
}

Test(daemon_exec, thousand_execs_in_one_sandbox_leave_no_descriptor, .timeout = 240)
{
	struct live live;
	COMMAND(command, "/bin/true");
	struct held held;
	size_t before;

	LIVE_START(&live, "", POOL);
	held = live_acquire(&live, "default");
	(void)live_exec(&live, &held, &command);
	LIVE_WAIT(&live, live_full(&live, "default"));
	LIVE_WAIT(&live, live_link(&live, &held)->spare_count == SP_SPARE_CGROUPS);
	LIVE_WAIT(&live, sp_list_empty(&live_link(&live, &held)->retired));
	before = open_descriptors();
	for (int i = 0; i < 1000; i++)
		cr_assert(live_exec(&live, &held, &command).result.exit_code == 0);
	LIVE_WAIT(&live, live_link(&live, &held)->spare_count == SP_SPARE_CGROUPS);
	LIVE_WAIT(&live, sp_list_empty(&live_link(&live, &held)->retired));
	cr_assert(open_descriptors() == before);
	live_release(&live, &held);
	live_stop(&live);
}

/* One is there, and none that still has to be looked into. */
static bool spares_settled(const struct sandbox_link *link)
{
	for (uint32_t i = 0; i < link->spare_count; i++)
		if (link->spares[i].used)
			return false;
	return link->spare_count > 0;
}

/* The next exec's. */
static uint32_t next_spare(const struct sandbox_link *link)
{
	return link->spares[link->spare_count - 1].number;
}

static bool is_spare(const struct sandbox_link *link, uint32_t number)
{
	for (uint32_t i = 0; i < link->spare_count; i++)
		if (link->spares[i].number == number)
			return true;
	return false;
}

Test(daemon_exec, cgroup_is_used_again_only_if_nothing_was_killed_or_lives_in_it)
{
	struct live live;
	COMMAND(quick, "/bin/true");
	COMMAND(forking, "/bin/sh", "-c", "sleep 60 >/dev/null 2>&1 &");
	COMMAND(endless, "/bin/sleep", "60");
	struct sandbox_link *link;
	struct outcome outcome;
	struct held held;
	uint32_t next;

	LIVE_START(&live, "", POOL);
	held = live_acquire(&live, "default");
	link = live_link(&live, &held);
	if (!spares_possible(link))
		cr_skip_test("needs cgroup v2");
	LIVE_WAIT(&live, spares_settled(link));
	next = next_spare(link);
	cr_assert(live_exec(&live, &held, &quick).result.exit_code == 0);
	LIVE_WAIT(&live, spares_settled(link));
	cr_assert(is_spare(link, next));

	next = next_spare(link);
	cr_assert(live_exec(&live, &held, &forking).result.exit_code == 0);
	LIVE_WAIT(&live, spares_settled(link));
	cr_assert(!is_spare(link, next));

	next = next_spare(link);
	endless.spec.timeout_ms = 100;
	outcome = live_exec(&live, &held, &endless);
	cr_assert(outcome.result.reason == SP_EXEC_TIMEOUT);
	LIVE_WAIT(&live, spares_settled(link));
	cr_assert(!is_spare(link, next));
	cr_assert(live_exec(&live, &held, &quick).result.exit_code == 0);
	live_release(&live, &held);
	live_stop(&live);
}

Test(daemon_exec, pool_is_filled_while_a_long_run_is_on)
{
	struct live live;
	COMMAND(command, "/bin/sleep", "60");
	struct sp_service_acquire request = wish("default");
	struct outcome outcome = {0};

	LIVE_START(&live, "", POOL);
	LIVE_WAIT(&live, live_full(&live, "default"));
	cr_assert(sp_exec_run(live.service, &operator_caller, &request, &command.spec,
			      &outcome_events, outcome_on_failed, &outcome, &outcome.exec,
			      &outcome.err) == 0);
	cr_assert(!live_full(&live, "default"));
	LIVE_WAIT(&live, live_full(&live, "default"));
	cr_assert(live.service->runs == 1 && !outcome.ended);
	sp_exec_cancel(outcome.exec);
	LIVE_WAIT(&live, live.service->runs == 0);
	live_stop(&live);
}
