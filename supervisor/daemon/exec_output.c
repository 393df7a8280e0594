/*
 * Output: from the pipes of an exec to its owner, bounded and with back-pressure.
 *
 * One read of at most SP_READ_BUFFER per stream and turn of the loop, so that a flood cannot starve
 * the others. A paused exec is not read: its pipe fills and its write(2) waits. What goes beyond
 * output_limit is counted and not delivered; the exec is killed with reason output.
 *
 * When the main process has ended, FIONREAD is asked once and exactly that much is still delivered.
 * A pipe that somebody in the background keeps open then belongs to the sandbox: drained at a
 * measured pace, so that the writer neither blocks nor dies of SIGPIPE nor burns our CPU, and
 * thrown away; at most SP_LEFTOVERS_MAX of them, the oldest closed.
 *
 * End of file decides nothing, and while a program exits it would wake us twice, a moment before
 * its result does. So the end that the sandbox writes to stays open here too, until the answer is
 * written: then the pipe is looked at once and closed, or left over.
 */
#include "supervisor/daemon/daemon_private.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LEFTOVER_PACE_MS 20 /* one buffer in this time: about 3 MB/s */

static void on_poll(uv_poll_t *poll, int status, int events);

static void on_pace(struct sp_timer *timer)
{
	struct exec_stream *stream = SP_CONTAINER_OF(timer, struct exec_stream, pace);

	exec_stream_watch(stream);
}

int exec_stream_new(struct sp_exec *exec, int number, int fd, int inside_fd, struct sp_err *err)
{
	struct sp_service *service = exec->service;
	struct exec_stream *stream = calloc(1, sizeof(*stream));
	int status = -ENOMEM;

	if (!stream || sp_timer_init(&service->timers, &stream->pace, on_pace) < 0)
		goto fail;
	status = uv_poll_init(service->loop, &stream->poll, fd); /* makes our end non-blocking */
	if (status < 0) {
		sp_timer_done(&service->timers, &stream->pace);
		goto fail;
	}
	stream->poll.data = stream;
	stream->fd = fd;
	stream->inside_fd = inside_fd;
	stream->number = number;
	stream->exec = exec;
	stream->service = service;
	sp_list_init(&stream->link);
	service->live_streams++;
	exec->streams[number] = stream;
	return 0;
fail:
	free(stream);
	sp_fd_close(&fd);
	sp_fd_close(&inside_fd);
	return sp_err_set(err, status, "stream of an exec");
}

static void on_closed(uv_handle_t *handle)
{
	struct exec_stream *stream = handle->data;
	struct sp_service *service = stream->service;

	sp_fd_close(&stream->fd);
	free(stream);
	service->live_streams--;
	stop_progress(service);
}

void exec_stream_close(struct exec_stream *stream)
{
	if (stream->closing)
		return;
	stream->closing = true;
	if (stream->exec)
		stream->exec->streams[stream->number] = NULL;
	stream->exec = NULL;
	sp_list_remove(&stream->link);
	if (stream->leftover_of)
		stream->leftover_of->leftover_count--;
	stream->leftover_of = NULL;
	sp_fd_close(&stream->inside_fd);
	sp_timer_done(&stream->service->timers, &stream->pace);
	uv_close((uv_handle_t *)&stream->poll, on_closed);
}

static int wanted_events(const struct exec_stream *stream)
{
	const struct sp_exec *exec = stream->exec;
	int events = 0;

	if (stream->leftover_of)
		return sp_timer_pending(&stream->pace) ? 0 : UV_READABLE;
	if (!exec)
		return 0;
	if (stream->number != 0 && !stream->ended && exec->state >= EXEC_SENT &&
	    (!exec->paused || exec->cancelled) && !sp_timer_pending(&stream->pace))
		events |= UV_READABLE;
	if ((stream->number == 0 || exec->tty) && exec->stdin_buffer.len > 0)
		events |= UV_WRITABLE;
	return events;
}

void exec_stream_watch(struct exec_stream *stream)
{
	int events = stream->closing ? 0 : wanted_events(stream);

	if (stream->closing || events == stream->watched)
		return;
	stream->watched = events;
	if (events == 0)
		(void)uv_poll_stop(&stream->poll);
	else
		(void)uv_poll_start(&stream->poll, events, on_poll);
}

/* Count it, cut it at the limit, hand it on. */
static void deliver(struct sp_exec *exec, int number, size_t len)
{
	struct sp_exec_result *result = &exec->result;
	uint64_t room = exec->output_limit - SP_MIN(exec->output_limit, exec->output_seen);
	size_t share = (size_t)SP_MIN(room, (uint64_t)len);

	exec->output_seen += len;
	if (number == 2)
		result->stderr_bytes += len;
	else
		result->stdout_bytes += len;
	if (share < len) {
		if (number == 2)
			result->stderr_truncated = true;
		else
			result->stdout_truncated = true;
		exec->over_limit = true;
	}
	exec_begin(exec);
	if (share > 0 && !exec->cancelled && exec->events.output)
		exec->events.output(exec->arg, number, exec->service->read_buffer, share);
	if (exec->over_limit)
		exec_kill(exec, SP_EXEC_OUTPUT);
}

/* One read. Sets `ended` at the end. False: nothing there now. */
static bool read_some(struct exec_stream *stream)
{
	struct sp_exec *exec = stream->exec;
	size_t want = SP_READ_BUFFER;
	ssize_t got;

	if (stream->bounded)
		want = (size_t)SP_MIN((uint64_t)want, stream->left);
	if (want == 0) {
		stream->ended = true;
		return false;
	}
	do {
		got = read(stream->fd, stream->service->read_buffer, want);
	} while (got < 0 && errno == EINTR);
	if (got < 0 && errno == EAGAIN) {
		/* Another reader took it: the workload may open its own pipe anew. */
		if (stream->bounded)
			stream->ended = true;
		return false;
	}
	if (got <= 0) { /* a pty without a slave says EIO */
		stream->ended = true;
		return false;
	}
	if (stream->bounded) {
		stream->left -= (uint64_t)got;
		stream->ended = stream->left == 0;
	}
	deliver(exec, stream->number, (size_t)got);
	return true;
}

/* Drain for nobody. */
static void discard(struct exec_stream *stream)
{
	ssize_t got;

	do {
		got = read(stream->fd, stream->service->read_buffer, SP_READ_BUFFER);
	} while (got < 0 && errno == EINTR);
	if (got == 0 || (got < 0 && errno != EAGAIN)) {
		exec_stream_close(stream);
		return;
	}
	sp_timer_set(&stream->service->timers, &stream->pace,
		     sp_clock_boot_ms() + LEFTOVER_PACE_MS);
	exec_stream_watch(stream);
}

/* Closed, or kept if somebody still writes. */
static void let_go(struct sandbox_link *link, struct exec_stream *stream)
{
	ssize_t got;

	sp_list_remove(&stream->link);
	sp_fd_close(&stream->inside_fd);
	got = read(stream->fd, stream->service->read_buffer, SP_READ_BUFFER);
	if (got == 0 || (got < 0 && errno != EAGAIN)) {
		exec_stream_close(stream);
		return;
	}
	if (link->leftover_count >= SP_LEFTOVERS_MAX)
		exec_stream_close(SP_CONTAINER_OF(link->leftovers.next, struct exec_stream, link));
	stream->leftover_of = link;
	link->leftover_count++;
	sp_list_append(&link->leftovers, &stream->link);
	exec_stream_watch(stream);
}

void exec_streams_tidy(struct sandbox_link *link)
{
	struct exec_stream *stream;

	while ((stream = SP_LIST_FIRST(&link->retired, struct exec_stream, link)))
		let_go(link, stream);
}

/* The exec has all it gets from this one. */
static void retire(struct exec_stream *stream)
{
	struct sandbox_link *link = stream->exec->sandbox;

	if (!link || stream->exec->one_shot || stream->exec->tty || link->state != LINK_READY) {
		exec_stream_close(stream);
		return;
	}
	stream->exec->streams[stream->number] = NULL;
	stream->exec = NULL;
	sp_list_append(&link->retired, &stream->link);
	exec_stream_watch(stream);
	sp_defer_late(&link->service->deferred, &link->tidy);
}

void exec_streams_bound(struct sp_exec *exec)
{
	if (exec->streams[0])
		exec_stream_close(exec->streams[0]);
	if (exec->tty)
		return; /* FIONREAD does not see what the line discipline has not flushed yet */
	for (int number = 1; number <= 2; number++) {
		struct exec_stream *stream = exec->streams[number];
		int left = 0;

		if (!stream || stream->ended)
			continue;
		if (ioctl(stream->fd, FIONREAD, &left) < 0)
			left = 0;
		stream->bounded = true;
		stream->left = left > 0 ? (uint64_t)left : 0;
	}
}

bool exec_streams_settle(struct sp_exec *exec)
{
	bool settled = true;

	for (int number = 1; number <= 2; number++) {
		struct exec_stream *stream = exec->streams[number];

		if (!stream)
			continue;
		/* A terminal has no bound: what fills it again and again gets one read a turn. */
		while (!stream->ended && !exec->paused && !exec->cancelled)
			if (!read_some(stream) || !stream->bounded)
				break;
		if (exec->cancelled)
			return true;
		if (stream->ended) {
			retire(stream);
		} else {
			exec_stream_watch(stream);
			settled = false;
		}
	}
	return settled;
}

/* Nobody has the terminal open, which is not its end: a program closes what it has before it exits
 * (cat does) and would be hung up, or opens /dev/tty again. Looked at now and then, and when the
 * program has ended. */
static void vacant(struct exec_stream *stream)
{
	stream->ended = false;
	sp_timer_set(&stream->service->timers, &stream->pace,
		     sp_clock_boot_ms() + LEFTOVER_PACE_MS);
	exec_stream_watch(stream);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct exec_stream *stream = poll->data;
	struct sp_exec *exec = stream->exec;

	if (stream->closing)
		return;
	if (status < 0) {
		/* libuv stopped the poll; a read or write says what is the matter. */
		stream->watched = 0;
		events = UV_READABLE | UV_WRITABLE;
	}
	if (stream->leftover_of) {
		discard(stream);
		return;
	}
	if ((events & UV_WRITABLE) != 0 && (stream->number == 0 || exec->tty))
		exec_input_flush(exec);
	if (stream->closing || stream->number == 0 || (events & UV_READABLE) == 0)
		return;
	if (exec->state == EXEC_DRAINING) {
		exec_progress(exec);
		return;
	}
	(void)read_some(stream);
	/* The owner may have paused or cancelled it in the meantime; it is not freed by that. */
	if (stream->ended && exec->tty)
		vacant(stream);
	else if (stream->ended)
		exec_stream_close(stream);
	else
		exec_stream_watch(stream);
}
