/*
 * The daemon's two conversations with the test at the other end: the launcher's answers, late,
 * missing or malformed; and an init that has been taken over and says whatever it likes.
 */
#include "pool/base/clock.h"
#include "pool/base/fd.h"
#include "supervisor/daemon/daemon_private.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct conversation {
	uv_loop_t loop;
	uv_timer_t beat;
	struct sp_timers timers;
	struct launcher_link *launcher;
	int other; /* the launcher's end */
	int gone;
	int lost;
	int lost_status;
	int closed;
	struct sp_launcher_answer answer;
	int answers;
	size_t fd_count;
};

static void on_gone(void *arg, const struct sp_launcher_answer *answer)
{
	struct conversation *talk = arg;

	talk->gone++;
	talk->answer = *answer;
}

static void on_lost(void *arg, int status)
{
	struct conversation *talk = arg;

	talk->lost++;
	talk->lost_status = status;
}

static void on_closed(void *arg)
{
	((struct conversation *)arg)->closed++;
}

static const struct launcher_events events = {
	.gone = on_gone,
	.lost = on_lost,
	.closed = on_closed,
};

static void on_beat(uv_timer_t *timer)
{
	(void)timer;
}

static void on_answer(void *arg, const struct sp_launcher_answer *answer, int *fds, size_t fd_count)
{
	struct conversation *talk = arg;

	(void)fds;
	talk->answers++;
	talk->answer = *answer;
	talk->fd_count = fd_count;
}

static void talk_open(struct conversation *talk)
{
	struct sp_err err = {0};
	int pair[2];

	memset(talk, 0, sizeof(*talk));
	(void)signal(SIGPIPE, SIG_IGN);
	sp_log_init("test", STDERR_FILENO, SP_LOG_ERROR);
	cr_assert(uv_loop_init(&talk->loop) == 0);
	(void)uv_timer_init(&talk->loop, &talk->beat);
	(void)uv_timer_start(&talk->beat, on_beat, 5, 5);
	cr_assert(sp_timers_init(&talk->timers, &talk->loop, &err) == 0);
	cr_assert(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	cr_assert(fcntl(pair[1], F_SETFL, O_NONBLOCK) == 0);
	talk->other = pair[1];
	cr_assert(launcher_open(&talk->loop, &talk->timers, pair[0], &events, talk, &talk->launcher,
				&err) == 0);
}

static void talk_close(struct conversation *talk)
{
	int closed = 0;

	launcher_close(talk->launcher);
	while (talk->closed == 0)
		(void)uv_run(&talk->loop, UV_RUN_ONCE);
	sp_timers_close(&talk->timers, NULL, &closed);
	uv_close((uv_handle_t *)&talk->beat, NULL);
	cr_assert(uv_run(&talk->loop, UV_RUN_DEFAULT) == 0);
	cr_assert(uv_loop_close(&talk->loop) == 0);
	sp_fd_close(&talk->other);
}

static void turn(struct conversation *talk)
{
	(void)uv_run(&talk->loop, UV_RUN_NOWAIT);
}

/* What the daemon asked, or type 0 if nothing. */
static struct sp_launcher_command asked(struct conversation *talk)
{
	struct sp_launcher_command command = {0};
	int fds[SP_MSG_FDS_MAX];
	size_t fd_count;
	ssize_t got = sp_msg_receive(talk->other, &command, sizeof(command), fds, &fd_count);

	cr_assert(got == -EAGAIN || (got == sizeof(command) && fd_count == 0));
	return command;
}

static void say(struct conversation *talk, enum sp_launcher_type type, uint64_t request,
		const int *fds, size_t fd_count)
{
	struct sp_launcher_answer answer = {
		.header = {.type = type, .request = request},
		.slot = 5,
		.serial = 6,
		.value = 7,
	};

	cr_assert(sp_msg_send(talk->other, &answer, sizeof(answer), fds, fd_count) == 0);
	turn(talk);
}

Test(daemon_peers, answer_finds_its_request)
{
	struct conversation talk;
	struct sp_launcher_command first;
	struct sp_launcher_command second;
	uint64_t request;

	talk_open(&talk);
	cr_assert(launcher_command(talk.launcher, SP_LAUNCHER_KILL, 1, 2, 0, 0, NULL, NULL, NULL) ==
		  0);
	cr_assert(launcher_command(talk.launcher, SP_LAUNCHER_EXEC_KILL, 3, 4, 9, 0, on_answer,
				   &talk, &request) == 0);
	first = asked(&talk);
	second = asked(&talk);
	cr_assert(first.header.type == SP_LAUNCHER_KILL && first.slot == 1 && first.serial == 2);
	cr_assert(second.value == 9 && second.header.request == request);
	say(&talk, SP_LAUNCHER_DONE, first.header.request, NULL, 0);
	cr_assert(talk.answers == 0);
	say(&talk, SP_LAUNCHER_DONE, request, NULL, 0);
	cr_assert(talk.answers == 1);
	say(&talk, SP_LAUNCHER_DONE, request, NULL, 0);
	say(&talk, SP_LAUNCHER_DONE, 12345, NULL, 0);
	cr_assert(talk.answers == 1 && talk.lost == 0, "a second answer is nobody's");
	talk_close(&talk);
}

Test(daemon_peers, missing_answer_is_an_error_at_its_deadline)
{
	struct conversation talk;
	int64_t start_ms = sp_clock_boot_ms();

	talk_open(&talk);
	cr_assert(launcher_command(talk.launcher, SP_LAUNCHER_EXEC_CGROUP, 1, 2, 0, 50, on_answer,
				   &talk, NULL) == 0);
	while (talk.answers == 0)
		(void)uv_run(&talk.loop, UV_RUN_ONCE);
	cr_assert(sp_clock_boot_ms() >= start_ms + 50);
	cr_assert(talk.answer.status == -ETIMEDOUT && talk.answer.header.type == SP_LAUNCHER_ERROR);
	talk_close(&talk);
}

Test(daemon_peers, grant_that_nobody_waits_for_is_given_back)
{
	struct conversation talk;
	struct sp_launcher_command command;
	uint64_t request;
	int pipe_fds[2];

	talk_open(&talk);
	cr_assert(pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) == 0);
	cr_assert(launcher_command(talk.launcher, SP_LAUNCHER_EXEC_CGROUP, 1, 2, 0, 0, on_answer,
				   &talk, &request) == 0);
	(void)asked(&talk);
	launcher_forget(talk.launcher, request);
	say(&talk, SP_LAUNCHER_EXEC_CGROUP_READY, request, &pipe_fds[1], 1);
	command = asked(&talk);
	cr_assert(command.header.type == SP_LAUNCHER_EXEC_DONE);
	cr_assert(command.slot == 5 && command.serial == 6 && command.value == 7);
	cr_assert(talk.answers == 0);
	/* Its descriptor is closed: with ours gone too the pipe has no writer. */
	sp_fd_close(&pipe_fds[1]);
	cr_assert(read(pipe_fds[0], &command, 1) == 0);
	sp_fd_close(&pipe_fds[0]);
	talk_close(&talk);
}

Test(daemon_peers, gone_needs_no_request)
{
	struct conversation talk;

	talk_open(&talk);
	say(&talk, SP_LAUNCHER_GONE, 0, NULL, 0);
	cr_assert(talk.gone == 1 && talk.answer.slot == 5);
	talk_close(&talk);
}

Test(daemon_peers, malformed_record_of_the_launcher_is_fatal)
{
	struct sp_launcher_answer answer = {.header.type = SP_LAUNCHER_DONE};

	for (int fault = 0; fault < 4; fault++) {
		struct sp_launcher_answer bad = answer;
		size_t len = sizeof(bad);
		struct conversation talk;

		if (fault == 0)
			len--;
		else if (fault == 1)
			bad.header.type = SP_LAUNCHER_ERROR + 1;
		else if (fault == 2)
			memset(bad.stage, 'x', sizeof(bad.stage));
		else
			memset(bad.text, 'x', sizeof(bad.text));
		talk_open(&talk);
		cr_assert(sp_msg_send(talk.other, &bad, len, NULL, 0) == 0);
		turn(&talk);
		cr_assert(talk.lost == 1 && talk.lost_status == -EPROTO, "fault %d", fault);
		talk_close(&talk);
	}
}

Test(daemon_peers, end_of_file_of_the_launcher_is_its_loss)
{
	struct conversation talk;

	talk_open(&talk);
	sp_fd_close(&talk.other);
	turn(&talk);
	cr_assert(talk.lost == 1 && talk.lost_status == 0);
	cr_assert(launcher_command(talk.launcher, SP_LAUNCHER_KILL, 1, 2, 0, 0, NULL, NULL, NULL) ==
		  -EPIPE);
	talk_close(&talk);
}

/* ---- an init that lies ---- */

struct captive {
	struct conversation talk;
	struct sp_service service;
	struct daemon_pool pool;
	struct sp_config_pool config;
	struct sandbox_link *link;
	struct sp_exec *exec;
	pid_t pid;
	int init; /* its end of the control socket */
};

/* A link in state READY with one exec in state SENT, and no policy behind it. */
static void captive_open(struct captive *captive)
{
	struct sp_launcher_answer created = {.slot = 1, .serial = 2};
	struct sp_err err = {0};
	struct sandbox_link *link = calloc(1, sizeof(*link));
	struct sp_exec *exec = calloc(1, sizeof(*exec));
	int pair[2];
	int pidfd;

	memset(captive, 0, sizeof(*captive));
	cr_assert(link && exec);
	talk_open(&captive->talk);
	captive->service.loop = &captive->talk.loop;
	captive->service.launcher = captive->talk.launcher;
	sp_list_init(&captive->service.links);
	sp_list_init(&captive->service.execs);
	sp_list_init(&captive->service.files);
	sp_defer_queue_init(&captive->service.deferred, &captive->talk.loop);
	cr_assert(sp_timers_init(&captive->service.timers, &captive->talk.loop, &err) == 0);
	captive->pool.service = &captive->service;
	captive->pool.config = &captive->config;
	captive->pid = fork();
	if (captive->pid == 0) {
		/* A test that fails must not leave it behind. */
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)pause();
		_exit(0);
	}
	pidfd = (int)syscall(SYS_pidfd_open, captive->pid, 0);
	cr_assert(pidfd >= 0);
	cr_assert(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	captive->init = pair[1];
	link->service = &captive->service;
	link->pool = &captive->pool;
	sp_list_init(&link->link);
	sp_list_init(&link->execs);
	sp_list_init(&link->files);
	sp_list_init(&link->isolated);
	sp_list_init(&link->retired);
	sp_list_init(&link->leftovers);
	sp_deferred_init(&link->ending, NULL);
	sp_deferred_init(&link->gone, NULL);
	sp_deferred_init(&link->release, NULL);
	sp_deferred_init(&link->tidy, NULL);
	link->state = LINK_BOOTING;
	cr_assert(sandbox_attach(link, &created, pidfd, pair[0], &err) == 0);
	link->state = LINK_READY;
	captive->link = link;
	exec->service = &captive->service;
	exec->sandbox = link;
	exec->state = EXEC_SENT;
	exec->number = 9;
	exec->strings_fd = -1;
	cr_assert(sp_timer_init(&captive->service.timers, &exec->timer, exec_on_timer) == 0);
	sp_list_init(&exec->service_link);
	sp_deferred_init(&exec->finish, NULL);
	sp_list_append(&link->execs, &exec->link);
	link->running_execs = 1;
	captive->exec = exec;
}

static void captive_close(struct captive *captive)
{
	int closed = 0;

	sp_list_remove(&captive->exec->link);
	sp_timer_done(&captive->service.timers, &captive->exec->timer);
	free(captive->exec);
	sp_fd_close(&captive->init);
	sandbox_gone(captive->link);
	sp_defer_queue_close(&captive->service.deferred, on_closed, &captive->talk);
	while (captive->talk.closed == 0)
		turn(&captive->talk);
	captive->talk.closed = 0;
	sp_timers_close(&captive->service.timers, NULL, &closed);
	talk_close(&captive->talk);
	(void)kill(captive->pid, SIGKILL);
	(void)waitpid(captive->pid, NULL, 0);
}

static struct sp_init_status status_record(enum sp_init_type type, uint32_t exec)
{
	return (struct sp_init_status){.header = {.type = type, .exec = exec}};
}

/* Says it of a program with or without a terminal; true when the sandbox is given up for it, with a
 * KILL to the launcher. */
static bool gives_up_of(bool tty, const void *record, size_t len, size_t fd_count)
{
	struct captive captive;
	int fds[] = {STDIN_FILENO, STDIN_FILENO};
	bool killed;

	captive_open(&captive);
	captive.exec->tty = tty;
	cr_assert(sp_msg_send(captive.init, record, len, fds, fd_count) == 0);
	turn(&captive.talk);
	killed = asked(&captive.talk).header.type == SP_LAUNCHER_KILL;
	cr_assert(killed == (captive.link->state == LINK_ENDING));
	captive.exec->state = EXEC_DRAINING; /* nothing to tell when the link goes */
	captive_close(&captive);
	return killed;
}

static bool gives_up(const void *record, size_t len, size_t fd_count)
{
	return gives_up_of(false, record, len, fd_count);
}

/* After a start that was in order. True when the sandbox is given up. */
static bool says_after_start(const struct sp_init_exited *exited)
{
	struct sp_init_status started = status_record(SP_INIT_STARTED, 9);
	struct captive captive;
	bool killed;

	captive_open(&captive);
	captive.exec->cancelled = true; /* it has no owner to tell */
	cr_assert(sp_msg_send(captive.init, &started, sizeof(started), NULL, 0) == 0);
	cr_assert(sp_msg_send(captive.init, exited, sizeof(*exited), NULL, 0) == 0);
	turn(&captive.talk);
	killed = captive.link->state == LINK_ENDING;
	captive.exec->state = EXEC_DRAINING;
	captive_close(&captive);
	return killed;
}

Test(daemon_peers, init_must_keep_to_the_protocol)
{
	struct sp_init_status status;
	struct sp_init_exited exited = {.header = {.type = SP_INIT_EXITED, .exec = 9}};
	char unterminated[sizeof(status.stage)];

	memset(unterminated, 'x', sizeof(unterminated));
	status = status_record(SP_INIT_STARTED, 9);
	cr_assert(!gives_up(&status, sizeof(status), 0), "a good one");
	cr_assert(gives_up(&status, sizeof(status) - 1, 0), "short");
	cr_assert(gives_up(&status, 4, 0), "shorter than a header");
	cr_assert(gives_up(&status, sizeof(status), 1), "a descriptor without a terminal");
	cr_assert(gives_up(&status, sizeof(status), 2), "more than any record has");
	memcpy(status.stage, unterminated, sizeof(unterminated));
	cr_assert(gives_up(&status, sizeof(status), 0), "stage without end");
	status = status_record(SP_INIT_STARTED, 8);
	cr_assert(gives_up(&status, sizeof(status), 0), "no such exec");
	status = status_record(SP_INIT_STARTED, 0);
	cr_assert(gives_up(&status, sizeof(status), 0), "exec 0");
	status = status_record(SP_INIT_READY, 0);
	cr_assert(gives_up(&status, sizeof(status), 0), "ready again");
	status = status_record(SP_INIT_START_FAILED, 9);
	cr_assert(gives_up(&status, sizeof(status), 0), "failed with 0");
	status = status_record(SP_INIT_KILLED, 9);
	cr_assert(gives_up(&status, sizeof(status), 0), "nobody asked");
	status = status_record(SP_INIT_MOUNTED, 0);
	cr_assert(gives_up(&status, sizeof(status), 0), "nobody asked");
	status = status_record(SP_INIT_PONG, 0);
	cr_assert(gives_up(&status, sizeof(status), 0), "nobody pings");
	status = status_record((enum sp_init_type)63, 0);
	cr_assert(gives_up(&status, sizeof(status), 0), "below the types");
	status = status_record((enum sp_init_type)UINT32_MAX, 0);
	cr_assert(gives_up(&status, sizeof(status), 0), "above the types");
	cr_assert(gives_up_of(true, &exited, sizeof(exited), 0), "its terminal never came");
	exited.header.exec = 8;
	cr_assert(gives_up(&exited, sizeof(exited), 0), "no such exec");
}

Test(daemon_peers, init_tells_of_a_start_once)
{
	struct sp_init_status status = status_record(SP_INIT_STARTED, 9);
	struct captive captive;

	captive_open(&captive);
	captive.exec->cancelled = true; /* it has no owner to tell */
	for (int i = 0; i < 2; i++) {
		cr_assert(captive.link->state == LINK_READY);
		cr_assert(sp_msg_send(captive.init, &status, sizeof(status), NULL, 0) == 0);
		turn(&captive.talk);
	}
	cr_assert(captive.link->state == LINK_ENDING);
	captive.exec->state = EXEC_DRAINING;
	captive_close(&captive);
}

Test(daemon_peers, init_must_keep_to_what_numbers_can_be)
{
	const struct sp_init_exited good = {.header = {.type = SP_INIT_EXITED, .exec = 9}};
	struct sp_init_exited exited = good;
	struct sp_init_status status = status_record(SP_INIT_STARTED, 9);

	status.status = -4095;
	cr_assert(!gives_up(&status, sizeof(status), 0), "the last errno");
	status.status = -4096;
	cr_assert(gives_up(&status, sizeof(status), 0), "no errno");
	status.status = INT32_MIN;
	cr_assert(gives_up(&status, sizeof(status), 0), "not even negated");
	status.status = 1;
	cr_assert(gives_up(&status, sizeof(status), 0), "above 0");
	exited.user_us = UINT64_MAX;
	cr_assert(says_after_start(&exited), "user time");
	exited = good;
	exited.system_us = UINT64_MAX / 2;
	cr_assert(says_after_start(&exited), "system time");
	exited = good;
	exited.max_rss_kib = UINT64_MAX;
	cr_assert(says_after_start(&exited), "memory");
}

Test(daemon_peers, silence_and_end_of_file_of_init)
{
	struct captive captive;

	captive_open(&captive);
	turn(&captive.talk);
	cr_assert(captive.link->state == LINK_READY);
	sp_fd_close(&captive.init);
	turn(&captive.talk);
	cr_assert(captive.link->state == LINK_ENDING);
	cr_assert(asked(&captive.talk).header.type == SP_LAUNCHER_KILL);
	captive.exec->state = EXEC_DRAINING;
	captive_close(&captive);
}

/* Says that a program with a terminal has started, and sends fd as the terminal. */
static bool takes_as_terminal(int fd)
{
	struct sp_init_status status = status_record(SP_INIT_STARTED, 9);
	struct captive captive;
	bool taken;

	captive_open(&captive);
	captive.exec->tty = true;
	captive.exec->cancelled = true; /* it has no owner to tell */
	cr_assert(sp_msg_send(captive.init, &status, sizeof(status), &fd, 1) == 0);
	turn(&captive.talk);
	taken = captive.link->state == LINK_READY && captive.exec->streams[1] != NULL;
	cr_assert(taken || captive.link->state == LINK_ENDING);
	if (taken)
		exec_stream_close(captive.exec->streams[1]);
	captive.exec->state = EXEC_DRAINING;
	captive_close(&captive);
	return taken;
}

Test(daemon_peers, init_may_send_nothing_but_a_terminals_master)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	int slave;
	int pair[2];

	cr_assert(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
	slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
	cr_assert(slave >= 0);
	cr_assert(takes_as_terminal(master), "the control");
	cr_assert(!takes_as_terminal(slave), "the other end");
	cr_assert(pipe2(pair, O_CLOEXEC) == 0);
	cr_assert(!takes_as_terminal(pair[0]), "a pipe");
	cr_assert(close(pair[0]) == 0 && close(pair[1]) == 0);
	cr_assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	cr_assert(!takes_as_terminal(pair[0]), "a socket");
	cr_assert(close(pair[0]) == 0 && close(pair[1]) == 0);
	cr_assert(close(master) == 0 && close(slave) == 0);
}
