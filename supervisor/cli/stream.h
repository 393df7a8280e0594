/*
 * The client's end of the framed exec stream (api/exec_frame.h): one connection, one exec at a
 * time, any number in turn.
 */
#ifndef SP_CLI_STREAM_H
#define SP_CLI_STREAM_H

#include "supervisor/cli/client.h"
#include "supervisor/cli/outcome.h"
#include "supervisor/cli/sink.h"

#include <signal.h>

/* SP_EXEC_STDIN_WINDOW of daemon/service.h, which is not ours to include; a test holds them equal.
 */
#define SP_CLI_STDIN_WINDOW (256u * 1024)

struct sp_cli_stream {
	int fd;
	int signal_fd; /* -1 until signals are taken over */
	sigset_t mask_before;
	uint8_t *received; /* room for the largest frame */
	size_t received_start, received_end;
	int interrupted_by; /* the signal that made an exec end with -EINTR */
};

struct sp_cli_exec {
	int stdin_fd; /* -1: the exec has none */
	bool tty;     /* raw mode on stdin_fd if that is a terminal, resizes are told */
	struct sp_cli_sink *sinks[2]; /* stdout, stderr; borrowed */
	/* Called every tick_ms while it runs; NULL: never. The stream stands still meanwhile. */
	void (*tick)(void *arg);
	void *tick_arg;
	int64_t tick_ms;
};

/* An empty START frame to write JSON behind; sp_cli_frame_finish() fills its header in. */
int sp_cli_frame_begin(struct sp_buf *frame, struct sp_err *err);
void sp_cli_frame_finish(struct sp_buf *frame);

/*
 * Connect, ask for the upgrade and send the first START in the same packet: one round trip.
 * -EREMOTEIO: the daemon refused, err has its words.
 */
int sp_cli_stream_open(struct sp_cli_stream *stream, const struct sp_cli_client *client,
		       const char *target, const struct sp_buf *start_frame, struct sp_err *err);
void sp_cli_stream_close(struct sp_cli_stream *stream);
/* One more START on the same connection. */
int sp_cli_stream_start(struct sp_cli_stream *stream, const struct sp_buf *start_frame,
			struct sp_err *err);

/*
 * Take the signals that are to reach the command (INT, TERM, HUP, QUIT, USR1, USR2; with tty also
 * WINCH, TSTP, CONT) until sp_cli_stream_close(). sp_cli_stream_exec() does it by itself.
 */
int sp_cli_stream_take_signals(struct sp_cli_stream *stream, bool tty, struct sp_err *err);

/*
 * Carry the exec that START began to its end. 0 with *ret_outcome and the RESULT's text in *result
 * (appended); else
 * -EREMOTEIO  ERROR frame: it never started, err has the daemon's words
 * -EPIPE      nobody reads our stdout or stderr; close the stream, that cancels the exec
 * -EINTR      a signal ended it before it started, or for the third time: see interrupted_by
 * -EPROTO, -ECONNRESET, others: err says what.
 */
int sp_cli_stream_exec(struct sp_cli_stream *stream, const struct sp_cli_exec *exec,
		       struct sp_cli_outcome *ret_outcome, struct sp_buf *result,
		       struct sp_err *err);

#endif
