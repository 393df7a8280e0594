/*
 * stdin: from the owner to the workload's pipe or pty, at most SP_EXEC_STDIN_WINDOW in between.
 *
 * A byte is credited back when the pipe took it. When nobody reads any more (EPIPE, EIO) what waits
 * is dropped and credited too: an owner that counts credit must not stall on a dead reader.
 */
#include "supervisor/daemon/daemon_private.h"

#include <errno.h>
#include <unistd.h>

#define TTY_END_OF_FILE '\x04' /* VEOF of a fresh line discipline */

void exec_on_credit(struct sp_deferred *deferred)
{
	struct sp_exec *exec = SP_CONTAINER_OF(deferred, struct sp_exec, credit);
	uint32_t bytes = exec->stdin_credit;

	exec->stdin_credit = 0;
	if (!exec->cancelled && bytes > 0 && exec->events.stdin_credit)
		exec->events.stdin_credit(exec->arg, bytes);
}

static void credit(struct sp_exec *exec, size_t bytes)
{
	exec->stdin_credit += (uint32_t)bytes;
	sp_defer(&exec->service->deferred, &exec->credit);
}

static struct exec_stream *stdin_stream(struct sp_exec *exec)
{
	return exec->streams[exec->tty ? 1 : 0];
}

/* Nobody reads. */
static void give_up(struct sp_exec *exec)
{
	credit(exec, exec->stdin_buffer.len);
	sp_buf_clear(&exec->stdin_buffer);
	exec->stdin_wanted = false;
	if (!exec->tty && exec->streams[0])
		exec_stream_close(exec->streams[0]);
}

static void close_input(struct sp_exec *exec, struct exec_stream *stream)
{
	static const char end = TTY_END_OF_FILE;

	exec->stdin_closing = false;
	exec->stdin_wanted = false;
	if (!exec->tty)
		exec_stream_close(stream);
	else if (write(stream->fd, &end, 1) < 0)
		return; /* a full or hung-up terminal has no use for it */
}

void exec_input_flush(struct sp_exec *exec)
{
	struct exec_stream *stream = stdin_stream(exec);

	if (!stream)
		return;
	while (exec->stdin_buffer.len > 0) {
		ssize_t written =
			write(stream->fd, exec->stdin_buffer.data, exec->stdin_buffer.len);

		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0 && errno != EAGAIN) {
			give_up(exec);
			return;
		}
		if (written <= 0)
			break;
		sp_buf_consume(&exec->stdin_buffer, (size_t)written);
		credit(exec, (size_t)written);
	}
	if (exec->stdin_buffer.len == 0 && exec->stdin_closing) {
		close_input(exec, stream);
		if (!exec->tty)
			return;
	}
	exec_stream_watch(stream);
}

int sp_exec_stdin(struct sp_exec *exec, const void *data, size_t len)
{
	size_t outstanding = exec->stdin_buffer.len + exec->stdin_credit;
	int status;

	if ((!exec->stdin_wanted && !exec->tty) || exec->stdin_closing ||
	    exec->state == EXEC_DRAINING)
		return -EPIPE;
	if (exec->state >= EXEC_SENT && !exec->tty && !exec->streams[0])
		return -EPIPE;
	if (len > SP_EXEC_STDIN_WINDOW - SP_MIN(outstanding, (size_t)SP_EXEC_STDIN_WINDOW))
		return -EMSGSIZE;
	status = sp_buf_append(&exec->stdin_buffer, data, len);
	if (status < 0)
		return status;
	exec_input_flush(exec);
	return 0;
}

void sp_exec_stdin_close(struct sp_exec *exec)
{
	if (!exec->stdin_wanted && !exec->tty)
		return;
	exec->stdin_closing = true;
	exec_input_flush(exec);
}
