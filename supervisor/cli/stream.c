/*
 * The pump: stdin → STDIN frames, STDOUT and STDERR frames → our stdout and stderr, signals and
 * window sizes → control frames, until RESULT or ERROR.
 *
 * One poll(2) loop, nothing in it waits: the socket is used with MSG_DONTWAIT, output through
 * sp_cli_sink, signals through a signalfd. Back-pressure both ways: while one of our outputs is
 * full nothing is read from the socket; stdin is read only as far as the daemon gave credit and
 * the last frame is out, so that a signal is never stuck behind more than one frame of data.
 *
 * States of an exec: sent START → (STARTED) running → RESULT, or → ERROR. What the daemon sends is
 * checked by the codec; a frame that does not fit the state ends the connection.
 */
#include "supervisor/cli/stream.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "pool/base/fd.h"
#include "supervisor/api/exec_frame.h"
#include "supervisor/cli/http.h"
#include "supervisor/cli/terminal.h"

#define RECEIVE_SIZE      (SP_FRAME_HEADER_SIZE + SP_FRAME_PAYLOAD_MAX)
#define RECEIVE_STEP      (256u << 10) /* per recv(2): enough for throughput, small for the cache */
#define CONTROL_MAX       (SP_FRAME_HEADER_SIZE + 4u)
#define SEND_SIZE         (SP_FRAME_HEADER_SIZE + SP_FRAME_DATA_MAX)
#define TERMINATIONS_MAX  3 /* the third INT, TERM, HUP or QUIT ends us, not only the command */
#define SIGNAL_NUMBER_MAX 32

static const int forwarded_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
static const int terminal_signals[] = {SIGWINCH, SIGTSTP, SIGCONT};

/* ---- the connection ---- */

int sp_cli_frame_begin(struct sp_buf *frame, struct sp_err *err)
{
	static const uint8_t room[SP_FRAME_HEADER_SIZE];
	int status;

	sp_buf_init(frame, RECEIVE_SIZE);
	status = sp_buf_append(frame, room, sizeof(room));
	return status < 0 ? sp_err_set(err, status, "write the request") : 0;
}

void sp_cli_frame_finish(struct sp_buf *frame)
{
	sp_frame_header_write((uint8_t *)frame->data, SP_FRAME_START,
			      (uint32_t)(frame->len - SP_FRAME_HEADER_SIZE));
}

static int send_vector(int fd, struct iovec *vector, size_t count, struct sp_err *err)
{
	struct msghdr message = {.msg_iov = vector, .msg_iovlen = count};

	while (message.msg_iovlen > 0) {
		ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		/* Refused before it read everything: the answer says why. */
		if (sent < 0 && (errno == EPIPE || errno == ECONNRESET))
			return 0;
		if (sent < 0)
			return sp_err_set(err, -errno, "send to the daemon");
		while (message.msg_iovlen > 0 && (size_t)sent >= message.msg_iov->iov_len) {
			sent -= (ssize_t)message.msg_iov->iov_len;
			message.msg_iov++;
			message.msg_iovlen--;
		}
		if (message.msg_iovlen > 0) {
			message.msg_iov->iov_base = (char *)message.msg_iov->iov_base + sent;
			message.msg_iov->iov_len -= (size_t)sent;
		}
	}
	return 0;
}

/* The answer to the upgrade; what was read beyond it is the first of the frames. */
static int read_switch(struct sp_cli_stream *stream, struct sp_err *err)
{
	struct sp_cli_http_reader reader;
	int status = 0;

	sp_cli_http_reader_init(&reader);
	while (status == 0 && reader.state != SP_CLI_HTTP_DONE) {
		ssize_t got = recv(stream->fd, stream->received, RECEIVE_STEP, 0);
		int64_t used;

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && errno != ECONNRESET) {
			status = sp_err_set(err, -errno, "read the answer");
			break;
		}
		if (got <= 0) {
			status = sp_cli_http_reader_eof(&reader, err);
			break;
		}
		used = sp_cli_http_reader_feed(&reader, (const char *)stream->received, (size_t)got,
					       err);
		if (used < 0)
			status = (int)used;
		stream->received_start = used > 0 ? (size_t)used : 0;
		stream->received_end = (size_t)got;
	}
	if (status == 0 && reader.status >= 200 && reader.status <= 299)
		status = sp_err_code(err, SP_CODE_PROTOCOL, -EPROTO,
				     "the daemon did not switch to sandpool-exec");
	else if (status == 0 && reader.status != 101)
		status = sp_cli_client_refusal(reader.status, &reader.body, err);
	sp_cli_http_reader_done(&reader);
	return status;
}

int sp_cli_stream_open(struct sp_cli_stream *stream, const struct sp_cli_client *client,
		       const char *target, const struct sp_buf *start_frame, struct sp_err *err)
{
	struct sp_buf head;
	int status;

	*stream = (struct sp_cli_stream){.fd = -1, .signal_fd = -1};
	sp_buf_init(&head, RECEIVE_STEP);
	stream->received = malloc(RECEIVE_SIZE);
	if (!stream->received)
		return sp_err_set(err, -ENOMEM, "make room for the answer");
	status = sp_cli_client_head(client, "POST", target, true, 0, &head, err);
	if (status == 0)
		status = sp_cli_client_connect(client, &stream->fd, err);
	if (status == 0) {
		struct iovec vector[2] = {
			{.iov_base = head.data, .iov_len = head.len},
			{.iov_base = start_frame->data, .iov_len = start_frame->len},
		};

		status = send_vector(stream->fd, vector, SP_ARRAY_SIZE(vector), err);
	}
	if (status == 0)
		status = read_switch(stream, err);
	sp_buf_done(&head);
	if (status < 0)
		sp_cli_stream_close(stream);
	return status;
}

void sp_cli_stream_close(struct sp_cli_stream *stream)
{
	sp_fd_close(&stream->fd);
	free(stream->received);
	stream->received = NULL;
	if (stream->signal_fd >= 0)
		(void)sigprocmask(SIG_SETMASK, &stream->mask_before, NULL);
	sp_fd_close(&stream->signal_fd);
}

int sp_cli_stream_start(struct sp_cli_stream *stream, const struct sp_buf *start_frame,
			struct sp_err *err)
{
	struct iovec vector = {.iov_base = start_frame->data, .iov_len = start_frame->len};

	return send_vector(stream->fd, &vector, 1, err);
}

int sp_cli_stream_take_signals(struct sp_cli_stream *stream, bool tty, struct sp_err *err)
{
	sigset_t set;

	if (stream->signal_fd >= 0)
		return 0;
	(void)sigemptyset(&set);
	for (size_t i = 0; i < SP_ARRAY_SIZE(forwarded_signals); i++)
		(void)sigaddset(&set, forwarded_signals[i]);
	for (size_t i = 0; tty && i < SP_ARRAY_SIZE(terminal_signals); i++)
		(void)sigaddset(&set, terminal_signals[i]);
	if (sigprocmask(SIG_BLOCK, &set, &stream->mask_before) < 0)
		return sp_err_set(err, -errno, "block signals");
	stream->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (stream->signal_fd < 0) {
		int status = -errno;

		(void)sigprocmask(SIG_SETMASK, &stream->mask_before, NULL);
		return sp_err_set(err, status, "make a signalfd");
	}
	return 0;
}

/* ---- the pump ---- */

struct pump {
	struct sp_cli_stream *stream;
	const struct sp_cli_exec *exec;
	struct sp_cli_outcome *ret_outcome;
	struct sp_buf *result;
	struct sp_err *err;
	bool started, ended;
	bool terminal; /* stdin is one and is raw now */

	/* A data frame whose payload is not yet written out. */
	struct sp_cli_sink *sink;
	const uint8_t *output;
	size_t output_len;
	size_t output_frame; /* bytes of the whole frame, to drop afterwards */

	/* One frame on its way to the daemon, and what waits for its turn. */
	bool stdin_open, stdin_eof_due, resize_due;
	uint32_t signals_due; /* bit = number */
	uint32_t credit;
	int terminations;
	int64_t tick_due_ms;
	size_t send_start, send_end;
	uint8_t send[SEND_SIZE];
};

static void enter_raw(struct pump *pump)
{
	if (pump->exec->tty && pump->exec->stdin_fd >= 0 && isatty(pump->exec->stdin_fd))
		pump->terminal =
			sp_cli_terminal_enter(pump->exec->stdin_fd, SP_CLI_TERMINAL_RAW) == 0;
}

/* A data frame: written at once if it can be. -EAGAIN: later. */
static int write_output(struct pump *pump)
{
	while (pump->output_len > 0) {
		ssize_t written = sp_cli_sink_write(pump->sink, pump->output, pump->output_len);

		if (written == -E2BIG)
			return sp_err_code(pump->err, SP_CODE_PAYLOAD_TOO_LARGE, -E2BIG,
					   "more than %u MiB of output cannot be captured",
					   SP_CLI_CAPTURE_MAX >> 20);
		if (written == -EPIPE || written == -EAGAIN)
			return (int)written;
		if (written < 0)
			return sp_err_set(pump->err, (int)written, "write to standard %s",
					  pump->sink->fd == STDOUT_FILENO ? "output" : "error");
		pump->output += written;
		pump->output_len -= (size_t)written;
	}
	pump->stream->received_start += pump->output_frame;
	pump->output_frame = 0;
	return 0;
}

static uint32_t read_u32(const uint8_t *bytes)
{
	return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
	       (uint32_t)bytes[3] << 24;
}

static int take_result(struct pump *pump, const struct sp_frame *frame)
{
	int status =
		sp_cli_outcome_parse(frame->payload, frame->length, pump->ret_outcome, pump->err);

	if (status == 0 && pump->result)
		status = sp_buf_append(pump->result, frame->payload, frame->length);
	pump->ended = true;
	return status;
}

static int take_error(struct pump *pump, const struct sp_frame *frame)
{
	struct sp_buf body;
	int status;

	sp_buf_init(&body, SP_FRAME_PAYLOAD_MAX);
	status = sp_buf_append(&body, frame->payload, frame->length);
	if (status == 0)
		status = sp_cli_client_refusal(0, &body, pump->err);
	sp_buf_done(&body);
	return status;
}

/* 0: taken, its bytes are done with. 1: output that is still to be written. */
static int take_frame(struct pump *pump, const struct sp_frame *frame)
{
	switch (frame->type) {
	case SP_FRAME_STARTED:
		if (pump->started)
			break;
		pump->started = true;
		pump->resize_due = pump->exec->tty; /* it may have changed since START */
		enter_raw(pump);
		return 0;
	case SP_FRAME_STDOUT:
	case SP_FRAME_STDERR:
		if (!pump->started)
			break;
		pump->sink = pump->exec->sinks[frame->type == SP_FRAME_STDERR];
		pump->output = frame->payload;
		pump->output_len = frame->length;
		return 1;
	case SP_FRAME_STDIN_CREDIT:
		pump->credit +=
			SP_MIN(read_u32(frame->payload), SP_CLI_STDIN_WINDOW - pump->credit);
		return 0;
	case SP_FRAME_RESULT:
		return take_result(pump, frame);
	case SP_FRAME_ERROR:
		return take_error(pump, frame);
	case SP_FRAME_START:
	case SP_FRAME_STDIN:
	case SP_FRAME_STDIN_EOF:
	case SP_FRAME_RESIZE:
	case SP_FRAME_SIGNAL:
		break;
	}
	return sp_err_code(pump->err, SP_CODE_PROTOCOL, -EPROTO,
			   "the daemon sent frame %d out of turn", (int)frame->type);
}

/* Work off what has been received, until it ends, more is needed, or an output is full. */
static int take_received(struct pump *pump)
{
	struct sp_cli_stream *stream = pump->stream;

	while (!pump->ended) {
		struct sp_frame frame;
		int64_t size;
		int status;

		if (pump->output_frame > 0) {
			status = write_output(pump);
			if (status < 0)
				return status == -EAGAIN ? 0 : status;
		}
		size = sp_frame_parse(stream->received + stream->received_start,
				      stream->received_end - stream->received_start, false, &frame);
		if (size < 0)
			return sp_err_code(pump->err, SP_CODE_PROTOCOL, (int)size,
					   "the daemon sent a malformed frame");
		if (size == 0)
			return 0;
		status = take_frame(pump, &frame);
		if (status < 0)
			return status;
		if (status == 1)
			pump->output_frame = (size_t)size;
		else
			stream->received_start += (size_t)size;
	}
	return 0;
}

static int receive(struct pump *pump)
{
	struct sp_cli_stream *stream = pump->stream;
	size_t held = stream->received_end - stream->received_start;
	ssize_t got;

	if (held == 0) {
		stream->received_start = 0;
		stream->received_end = 0;
	} else if (RECEIVE_SIZE - stream->received_end < RECEIVE_STEP) {
		memmove(stream->received, stream->received + stream->received_start, held);
		stream->received_start = 0;
		stream->received_end = held;
	}
	got = recv(stream->fd, stream->received + stream->received_end,
		   SP_MIN(RECEIVE_STEP, RECEIVE_SIZE - stream->received_end), MSG_DONTWAIT);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (got < 0 && errno != ECONNRESET)
		return sp_err_set(pump->err, -errno, "read from the daemon");
	if (got <= 0)
		return sp_err_code(pump->err, SP_CODE_UNAVAILABLE, -ECONNRESET,
				   "the daemon closed the connection before the command's end");
	stream->received_end += (size_t)got;
	return 0;
}

/* ---- towards the daemon ---- */

static void queue_control(struct pump *pump, enum sp_frame_type type, uint32_t value)
{
	bool empty = type == SP_FRAME_STDIN_EOF;

	sp_frame_header_write(pump->send, type, empty ? 0 : 4);
	for (unsigned int i = 0; i < 4; i++)
		pump->send[SP_FRAME_HEADER_SIZE + i] = (uint8_t)(value >> (8 * i));
	pump->send_start = 0;
	pump->send_end = empty ? SP_FRAME_HEADER_SIZE : CONTROL_MAX;
}

/* The next control frame that is due, if the last frame is out. */
static void queue_next(struct pump *pump)
{
	uint16_t rows;
	uint16_t columns;

	if (!pump->started || pump->send_start < pump->send_end)
		return;
	if (pump->signals_due != 0) {
		int number = __builtin_ctz(pump->signals_due);

		pump->signals_due &= pump->signals_due - 1;
		queue_control(pump, SP_FRAME_SIGNAL, (uint32_t)number);
	} else if (pump->resize_due) {
		pump->resize_due = false;
		if (sp_cli_terminal_size(STDOUT_FILENO, &rows, &columns) ||
		    sp_cli_terminal_size(STDIN_FILENO, &rows, &columns))
			queue_control(pump, SP_FRAME_RESIZE,
				      (uint32_t)rows | (uint32_t)columns << 16);
	} else if (pump->stdin_eof_due) {
		pump->stdin_eof_due = false;
		queue_control(pump, SP_FRAME_STDIN_EOF, 0);
	}
}

static bool wants_stdin(const struct pump *pump)
{
	return pump->started && pump->stdin_open && pump->credit > 0 &&
	       pump->send_start == pump->send_end;
}

static int read_stdin(struct pump *pump)
{
	size_t room = SP_MIN((size_t)pump->credit, (size_t)SP_FRAME_DATA_MAX);
	ssize_t got = read(pump->exec->stdin_fd, pump->send + SP_FRAME_HEADER_SIZE, room);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	/* EIO: our terminal hung up, or we are in its background: no more input either way. */
	if (got < 0 && errno != EIO)
		return sp_err_set(pump->err, -errno, "read standard input");
	if (got <= 0) {
		pump->stdin_open = false;
		pump->stdin_eof_due = true;
		return 0;
	}
	sp_frame_header_write(pump->send, SP_FRAME_STDIN, (uint32_t)got);
	pump->send_start = 0;
	pump->send_end = SP_FRAME_HEADER_SIZE + (size_t)got;
	pump->credit -= (uint32_t)got;
	return 0;
}

/* Send until nothing is due or the socket is full. */
static int send_queued(struct pump *pump)
{
	for (;;) {
		ssize_t sent;

		queue_next(pump);
		if (pump->send_start == pump->send_end)
			return 0;
		sent = send(pump->stream->fd, pump->send + pump->send_start,
			    pump->send_end - pump->send_start, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (sent < 0 && (errno == EAGAIN || errno == EINTR))
			return 0;
		/* It has gone: the reading side finds the RESULT it left, or the end. */
		if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) {
			pump->stdin_open = false;
			pump->send_start = pump->send_end;
			return 0;
		}
		if (sent < 0)
			return sp_err_set(pump->err, -errno, "send to the daemon");
		pump->send_start += (size_t)sent;
	}
}

/* ---- signals ---- */

/* Ctrl-Z from outside while the terminal is raw: give it back, stop, and take it again. */
static void stop_here(struct pump *pump)
{
	sp_cli_terminal_restore();
	(void)raise(SIGSTOP);
	if (pump->terminal)
		enter_raw(pump);
	pump->resize_due = true;
}

static int take_signal(struct pump *pump, int number)
{
	switch (number) {
	case SIGWINCH:
		pump->resize_due = true;
		return 0;
	case SIGCONT:
		if (pump->terminal)
			enter_raw(pump); /* whoever had the terminal meanwhile changed it */
		pump->resize_due = true;
		return 0;
	case SIGTSTP:
		stop_here(pump);
		return 0;
	default:
		break;
	}
	if (number != SIGUSR1 && number != SIGUSR2)
		pump->terminations++;
	if (!pump->started || pump->terminations >= TERMINATIONS_MAX) {
		pump->stream->interrupted_by = number;
		return -EINTR;
	}
	if (number < SIGNAL_NUMBER_MAX)
		pump->signals_due |= UINT32_C(1) << number;
	return 0;
}

static int take_signals(struct pump *pump)
{
	struct signalfd_siginfo info;

	while (read(pump->stream->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		int status = take_signal(pump, (int)info.ssi_signo);

		if (status < 0)
			return status;
	}
	return 0;
}

/* ---- the loop ---- */

enum { POLL_SOCKET, POLL_STDIN, POLL_OUTPUT, POLL_SIGNALS, POLL_COUNT };

/* For poll(2). */
static int until_tick(const struct pump *pump)
{
	if (!pump->exec->tick)
		return -1;
	return (int)SP_MIN(SP_MAX(pump->tick_due_ms - sp_clock_boot_ms(), INT64_C(0)), INT_MAX);
}

/* Of what is not asked for, poll(2) would still report hangups, again and again: hence -1. */
static int wait_for_work(const struct pump *pump, struct pollfd *ready)
{
	bool output_full = pump->output_frame > 0;
	bool sending = pump->send_start < pump->send_end;
	int events = (output_full ? 0 : POLLIN) | (sending ? POLLOUT : 0);
	int count;

	ready[POLL_SOCKET] =
		(struct pollfd){.fd = events ? pump->stream->fd : -1, .events = (short)events};
	ready[POLL_STDIN] = (struct pollfd){.fd = wants_stdin(pump) ? pump->exec->stdin_fd : -1,
					    .events = POLLIN};
	ready[POLL_OUTPUT] =
		(struct pollfd){.fd = output_full ? pump->sink->write_fd : -1, .events = POLLOUT};
	ready[POLL_SIGNALS] = (struct pollfd){.fd = pump->stream->signal_fd, .events = POLLIN};
	do {
		count = poll(ready, POLL_COUNT, until_tick(pump));
	} while (count < 0 && errno == EINTR);
	return count < 0 ? sp_err_set(pump->err, -errno, "poll") : 0;
}

static void tick_if_due(struct pump *pump)
{
	if (!pump->exec->tick || sp_clock_boot_ms() < pump->tick_due_ms)
		return;
	pump->exec->tick(pump->exec->tick_arg);
	pump->tick_due_ms = sp_clock_boot_ms() + pump->exec->tick_ms;
}

static int step(struct pump *pump)
{
	struct pollfd ready[POLL_COUNT];
	int status = send_queued(pump);

	if (status == 0)
		status = wait_for_work(pump, ready);
	if (status == 0)
		tick_if_due(pump);
	if (status == 0 && ready[POLL_SIGNALS].revents)
		status = take_signals(pump);
	if (status == 0 && ready[POLL_STDIN].revents)
		status = read_stdin(pump);
	if (status == 0 && (ready[POLL_SOCKET].revents & ~POLLOUT) && pump->output_frame == 0)
		status = receive(pump);
	if (status == 0)
		status = take_received(pump);
	return status;
}

int sp_cli_stream_exec(struct sp_cli_stream *stream, const struct sp_cli_exec *exec,
		       struct sp_cli_outcome *ret_outcome, struct sp_buf *result,
		       struct sp_err *err)
{
	struct pump *pump = malloc(sizeof(*pump));
	int status;

	if (!pump)
		return sp_err_set(err, -ENOMEM, "make room for the stream");
	memset(pump, 0, offsetof(struct pump, send));
	pump->stream = stream;
	pump->exec = exec;
	pump->ret_outcome = ret_outcome;
	pump->result = result;
	pump->err = err;
	pump->stdin_open = exec->stdin_fd >= 0;
	pump->credit = SP_CLI_STDIN_WINDOW;
	pump->tick_due_ms = sp_clock_boot_ms() + exec->tick_ms;
	status = sp_cli_stream_take_signals(stream, exec->tty, err);
	if (status == 0)
		status = take_received(pump); /* what came with the answer to the upgrade */
	while (status == 0 && !pump->ended)
		status = step(pump);
	sp_cli_terminal_restore();
	free(pump);
	return status;
}
