/*
 * What run and exec share: the standard streams of a command, its terminal, its end.
 */
#ifndef SP_CLI_SESSION_H
#define SP_CLI_SESSION_H

#include "supervisor/cli/cli.h"
#include "supervisor/cli/request.h"
#include "supervisor/cli/stream.h"

struct sp_cli_session {
	struct sp_cli *cli;
	struct sp_cli_stream stream;
	struct sp_cli_sink sinks[2];
	bool stdin_open, tty;
	bool quiet; /* no note about how the command ended */
	/* See struct sp_cli_exec. */
	void (*tick)(void *arg);
	void *tick_arg;
	int64_t tick_ms;
};

/*
 * Decide about stdin: streamed when it is no terminal, or `interactive`; never with `none`, when it
 * is /dev/null, or closed. With a terminal of its own the command also has our stdin.
 */
void sp_cli_session_init(struct sp_cli_session *session, struct sp_cli *cli, bool interactive,
			 bool none, bool tty);
/* The command for sp_cli_write_start(). */
struct sp_cli_command sp_cli_session_command(const struct sp_cli_session *session,
					     char *const *argv, size_t argc);

/* Open the stream with the finished START frame, carry the command, say how it ended. Returns the
 * exit status. */
int sp_cli_session_run(struct sp_cli_session *session, const char *target,
		       const struct sp_buf *frame);
/* The second half alone, for a stream that is open and has had its START. */
int sp_cli_session_carry(struct sp_cli_session *session);

/* What a failed sp_cli_stream_exec() means for us. Returns the exit status. */
int sp_cli_session_failed(const struct sp_cli_session *session, int status,
			  const struct sp_err *err);

#endif
