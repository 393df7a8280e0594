/*
 * The pump, over a socket pair: what the daemon says comes first into the socket, then the exec is
 * carried to its end, then what was sent is looked at. Where the daemon has to answer, a child
 * plays it.
 */
#include "supervisor/cli/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "supervisor/api/exec_frame.h"
#include "supervisor/daemon/service.h"

#define RESULT_OK "{\"reason\":\"exited\",\"exit_code\":3,\"signal\":0}"

static int daemon_end;
static struct sp_cli_stream stream;
static struct sp_cli_sink sinks[2];
static struct sp_cli_exec carried = {.stdin_fd = -1, .sinks = {&sinks[0], &sinks[1]}};
static struct sp_cli_outcome outcome;
static struct sp_buf result;
static struct sp_err err;

static void setup(void)
{
	int ends[2];

	cr_assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
	daemon_end = ends[0];
	stream = (struct sp_cli_stream){
		.fd = ends[1],
		.signal_fd = -1,
		.received = malloc(SP_FRAME_HEADER_SIZE + SP_FRAME_PAYLOAD_MAX),
	};
	sp_cli_sink_init(&sinks[0], STDOUT_FILENO, true);
	sp_cli_sink_init(&sinks[1], STDERR_FILENO, true);
	sp_buf_init(&result, 1 << 20);
}

static void teardown(void)
{
	sp_cli_stream_close(&stream);
	sp_cli_sink_done(&sinks[0]);
	sp_cli_sink_done(&sinks[1]);
	sp_buf_done(&result);
}

TestSuite(cli_stream, .init = setup, .fini = teardown, .timeout = 30);

static void say(enum sp_frame_type type, const void *payload, size_t len)
{
	uint8_t header[SP_FRAME_HEADER_SIZE];

	sp_frame_header_write(header, type, (uint32_t)len);
	cr_assert(write(daemon_end, header, sizeof(header)) == (ssize_t)sizeof(header));
	cr_assert(len == 0 || write(daemon_end, payload, len) == (ssize_t)len);
}

static void say_text(enum sp_frame_type type, const char *text)
{
	say(type, text, strlen(text));
}

static int carry(void)
{
	return sp_cli_stream_exec(&stream, &carried, &outcome, &result, &err);
}

static void assert_silent(void)
{
	char byte;

	cr_assert(recv(daemon_end, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
}

Test(cli_stream, the_window_is_the_daemons)
{
	cr_assert(SP_CLI_STDIN_WINDOW == SP_EXEC_STDIN_WINDOW);
}

Test(cli_stream, output_goes_to_its_sinks_and_the_result_is_the_outcome)
{
	say_text(SP_FRAME_STARTED, "{}");
	say_text(SP_FRAME_STDOUT, "out");
	say_text(SP_FRAME_STDERR, "err");
	say(SP_FRAME_STDOUT, "\0\xff", 2);
	say_text(SP_FRAME_RESULT, RESULT_OK);
	cr_assert(carry() == 0, "%s", err.message);
	cr_assert(outcome.exit_code == 3);
	cr_assert_str_eq(sp_buf_text(&result), RESULT_OK);
	cr_assert(sinks[0].captured.len == 5 &&
		  memcmp(sinks[0].captured.data, "out\0\xff", 5) == 0);
	cr_assert_str_eq(sp_buf_text(&sinks[1].captured), "err");
	assert_silent();
}

Test(cli_stream, frames_that_came_with_the_upgrade_are_taken_first)
{
	sp_frame_header_write(stream.received, SP_FRAME_STARTED, 2);
	memcpy(stream.received + SP_FRAME_HEADER_SIZE, "{}", 2);
	stream.received_end = SP_FRAME_HEADER_SIZE + 2;
	say_text(SP_FRAME_RESULT, RESULT_OK);
	cr_assert(carry() == 0, "%s", err.message);
}

Test(cli_stream, a_second_exec_on_the_same_stream_starts_clean)
{
	for (int i = 0; i < 2; i++) {
		say_text(SP_FRAME_STARTED, "{}");
		say_text(SP_FRAME_RESULT, RESULT_OK);
	}
	cr_assert(carry() == 0, "%s", err.message);
	cr_assert(carry() == 0, "%s", err.message);
}

Test(cli_stream, an_error_frame_is_the_daemons_refusal)
{
	say_text(SP_FRAME_ERROR, "{\"code\":\"POOL_EMPTY\",\"message\":\"pool 'x' is empty\"}");
	cr_assert(carry() == -EREMOTEIO);
	cr_assert(err.code == SP_CODE_POOL_EMPTY);
	cr_assert_str_eq(err.message, "pool 'x' is empty");
}

Test(cli_stream, an_error_of_a_newer_daemon_keeps_its_words_b219)
{
	say_text(SP_FRAME_ERROR, "{\"code\":\"BRAND_NEW\",\"message\":\"something\"}");
	cr_assert(carry() == -EREMOTEIO);
	cr_assert_str_eq(err.message, "something (BRAND_NEW)");
}

Test(cli_stream, an_error_that_is_no_json_is_still_an_error)
{
	say_text(SP_FRAME_ERROR, "oops");
	cr_assert(carry() == -EREMOTEIO);
}

Test(cli_stream, a_connection_that_ends_before_the_result_is_an_error)
{
	say_text(SP_FRAME_STARTED, "{}");
	(void)shutdown(daemon_end, SHUT_WR);
	cr_assert(carry() == -ECONNRESET);
}

Test(cli_stream, a_connection_that_ends_within_a_frame_is_an_error)
{
	cr_assert(write(daemon_end, "\x42\0\0\0\5\0\0\0he", 10) == 10);
	(void)shutdown(daemon_end, SHUT_WR);
	cr_assert(carry() == -ECONNRESET);
}

Test(cli_stream, output_before_started_is_refused)
{
	say_text(SP_FRAME_STDOUT, "x");
	cr_assert(carry() == -EPROTO);
	cr_assert(sinks[0].captured.len == 0);
}

Test(cli_stream, started_twice_is_refused)
{
	say_text(SP_FRAME_STARTED, "{}");
	say_text(SP_FRAME_STARTED, "{}");
	cr_assert(carry() == -EPROTO);
}

Test(cli_stream, a_frame_of_our_own_direction_is_refused)
{
	say_text(SP_FRAME_STARTED, "{}");
	say_text(SP_FRAME_STDIN, "x");
	cr_assert(carry() == -EPROTO);
}

Test(cli_stream, a_result_that_is_none_is_refused)
{
	say_text(SP_FRAME_STARTED, "{}");
	say_text(SP_FRAME_RESULT, "{}");
	cr_assert(carry() == -EPROTO);
}

/* ---- stdin ---- */

static int pipe_with(const char *text)
{
	int ends[2];

	cr_assert(pipe2(ends, O_CLOEXEC) == 0);
	cr_assert(write(ends[1], text, strlen(text)) == (ssize_t)strlen(text));
	(void)close(ends[1]);
	return ends[0];
}

/* A child plays the daemon where it has to answer to what the pump sends. */
static void answer_later(void (*answer)(void))
{
	pid_t pid = fork();

	cr_assert(pid >= 0);
	if (pid == 0) {
		(void)close(stream.fd);
		answer();
		_exit(0);
	}
}

static int child_status(void)
{
	siginfo_t info = {.si_code = 0};

	(void)waitid(P_ALL, 0, &info, WEXITED);
	return info.si_status;
}

static void answer_after_eof(void)
{
	char data[4096];
	size_t have = 0;
	struct sp_frame frame;

	say_text(SP_FRAME_STARTED, "{}");
	for (;;) {
		ssize_t got = read(daemon_end, data + have, sizeof(data) - have);
		int64_t size;

		if (got <= 0)
			_exit(1);
		have += (size_t)got;
		while ((size = sp_frame_parse((uint8_t *)data, have, true, &frame)) > 0) {
			if (frame.type == SP_FRAME_STDIN)
				say(SP_FRAME_STDOUT, frame.payload, frame.length);
			if (frame.type == SP_FRAME_STDIN_EOF) {
				say_text(SP_FRAME_RESULT, RESULT_OK);
				_exit(0);
			}
			have -= (size_t)size;
			memmove(data, data + size, have);
		}
	}
}

Test(cli_stream, stdin_is_sent_and_its_end_too)
{
	carried.stdin_fd = pipe_with("typed");
	answer_later(answer_after_eof);
	cr_assert(carry() == 0, "%s", err.message);
	cr_assert_str_eq(sp_buf_text(&sinks[0].captured), "typed");
	cr_assert(child_status() == 0);
}

static void answer_after_window(void)
{
	static uint8_t data[2 * SP_EXEC_STDIN_WINDOW];
	struct timeval patience = {.tv_usec = 200000};
	size_t frames = 0;
	size_t have = 0;
	size_t sent = 0;
	struct sp_frame frame;
	int64_t size;

	say_text(SP_FRAME_STARTED, "{}");
	while (sent < SP_EXEC_STDIN_WINDOW) {
		ssize_t got = read(daemon_end, data + have, sizeof(data) - have);

		if (got <= 0)
			_exit(1);
		have += (size_t)got;
		for (; (size = sp_frame_parse(data, have, true, &frame)) > 0; frames++) {
			sent += frame.length;
			have -= (size_t)size;
			memmove(data, data + size, have);
		}
	}
	/* Now silence: the window is used up. */
	(void)setsockopt(daemon_end, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (sent != SP_EXEC_STDIN_WINDOW || have > 0 || frames == 0 ||
	    read(daemon_end, data, sizeof(data)) >= 0)
		_exit(1);
	say_text(SP_FRAME_RESULT, RESULT_OK);
}

Test(cli_stream, without_credit_no_more_than_the_window_is_sent_b162)
{
	carried.stdin_fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	answer_later(answer_after_window);
	cr_assert(carry() == 0, "%s", err.message);
	cr_assert(child_status() == 0);
}

Test(cli_stream, no_stdin_means_no_frame_at_all)
{
	say_text(SP_FRAME_STARTED, "{}");
	say_text(SP_FRAME_RESULT, RESULT_OK);
	cr_assert(carry() == 0);
	assert_silent();
}

/* ---- signals ---- */

Test(cli_stream, a_signal_before_the_start_ends_us)
{
	cr_assert(sp_cli_stream_take_signals(&stream, false, &err) == 0);
	(void)raise(SIGTERM);
	cr_assert(carry() == -EINTR);
	cr_assert(stream.interrupted_by == SIGTERM);
	assert_silent();
}

static void answer_signals(void)
{
	uint8_t data[2 * (SP_FRAME_HEADER_SIZE + 4)];
	struct sp_frame first;
	struct sp_frame second;

	if (recv(daemon_end, data, sizeof(data), MSG_WAITALL) != (ssize_t)sizeof(data) ||
	    sp_frame_parse(data, sizeof(data), true, &first) != sizeof(data) / 2 ||
	    sp_frame_parse(data + sizeof(data) / 2, sizeof(data) / 2, true, &second) !=
		    sizeof(data) / 2)
		_exit(1);
	if (first.type != SP_FRAME_SIGNAL || first.payload[0] != SIGINT ||
	    second.type != SP_FRAME_SIGNAL || second.payload[0] != SIGUSR1)
		_exit(1);
	say_text(SP_FRAME_RESULT, RESULT_OK);
}

Test(cli_stream, a_signal_goes_to_the_command)
{
	cr_assert(sp_cli_stream_take_signals(&stream, false, &err) == 0);
	say_text(SP_FRAME_STARTED, "{}");
	cr_assert(recv(stream.fd, stream.received, 10, 0) == 10);
	stream.received_end = 10;
	(void)raise(SIGUSR1);
	(void)raise(SIGINT);
	answer_later(answer_signals);
	cr_assert(carry() == 0, "%s", err.message);
	cr_assert(child_status() == 0);
}

Test(cli_stream, the_third_termination_ends_us)
{
	cr_assert(sp_cli_stream_take_signals(&stream, false, &err) == 0);
	say_text(SP_FRAME_STARTED, "{}");
	cr_assert(recv(stream.fd, stream.received, 10, 0) == 10);
	stream.received_end = 10;
	/* Three different ones: the same would be pending once. */
	(void)raise(SIGINT);
	(void)raise(SIGTERM);
	(void)raise(SIGQUIT);
	cr_assert(carry() == -EINTR);
}

Test(cli_stream, closing_gives_the_signal_mask_back)
{
	sigset_t before;
	sigset_t after;

	(void)sigprocmask(SIG_SETMASK, NULL, &before);
	cr_assert(sp_cli_stream_take_signals(&stream, true, &err) == 0);
	(void)sigprocmask(SIG_SETMASK, NULL, &after);
	cr_assert(sigismember(&after, SIGWINCH) == 1);
	sp_cli_stream_close(&stream);
	(void)sigprocmask(SIG_SETMASK, NULL, &after);
	cr_assert(sigismember(&after, SIGWINCH) == sigismember(&before, SIGWINCH));
	cr_assert(sigismember(&after, SIGTERM) == sigismember(&before, SIGTERM));
}

/* ---- output that nobody takes ---- */

Test(cli_stream, a_reader_that_is_gone_ends_the_exec)
{
	int ends[2];

	(void)signal(SIGPIPE, SIG_IGN);
	cr_assert(pipe2(ends, O_CLOEXEC) == 0);
	(void)close(ends[0]);
	sp_cli_sink_done(&sinks[0]);
	sp_cli_sink_init(&sinks[0], ends[1], false);
	say_text(SP_FRAME_STARTED, "{}");
	say_text(SP_FRAME_STDOUT, "x");
	cr_assert(carry() == -EPIPE);
}

Test(cli_stream, a_disk_that_is_full_is_an_error_with_a_name)
{
	sp_cli_sink_done(&sinks[0]);
	sp_cli_sink_init(&sinks[0], open("/dev/full", O_WRONLY | O_CLOEXEC), false);
	say_text(SP_FRAME_STARTED, "{}");
	say_text(SP_FRAME_STDOUT, "x");
	cr_assert(carry() == -ENOSPC);
	cr_assert(strstr(err.message, "write to standard"));
}
