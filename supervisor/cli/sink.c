/*
 * Writing without waiting and without side effects.
 *
 * O_NONBLOCK belongs to the open file description, which stdout shares with the shell and with
 * whatever runs beside us; setting it there breaks them. So a pipe or terminal is opened once more
 * through /proc/self/fd: same object, description of its own. Where that is refused (a pipe made by
 * another user), poll(2) promises room for PIPE_BUF bytes, and no more than that is written.
 */
#include "supervisor/cli/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "pool/base/fd.h"

#define MEM_MAJOR  1 /* /dev/null, zero, full */
#define PTMX_MAJOR 5
#define PTMX_MINOR 2

void sp_cli_sink_init(struct sp_cli_sink *sink, int fd, bool capture)
{
	*sink = (struct sp_cli_sink){
		.kind = capture ? SP_CLI_SINK_BUFFER : SP_CLI_SINK_NEW,
		.fd = fd,
		.write_fd = fd,
	};
	sp_buf_init(&sink->captured, SP_CLI_CAPTURE_MAX);
}

void sp_cli_sink_done(struct sp_cli_sink *sink)
{
	if (sink->write_fd != sink->fd)
		sp_fd_close(&sink->write_fd);
	sink->write_fd = sink->fd;
	sp_buf_done(&sink->captured);
}

static enum sp_cli_sink_kind reopen(struct sp_cli_sink *sink)
{
	char path[32];
	int flags = fcntl(sink->fd, F_GETFL);
	int fd;

	if (flags >= 0 && (flags & O_NONBLOCK) != 0)
		return SP_CLI_SINK_NONBLOCK; /* whoever started us chose that */
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", sink->fd);
	fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return SP_CLI_SINK_CAUTIOUS;
	sink->write_fd = fd;
	return SP_CLI_SINK_NONBLOCK;
}

static enum sp_cli_sink_kind classify(struct sp_cli_sink *sink)
{
	struct stat status;

	if (fstat(sink->fd, &status) < 0)
		return SP_CLI_SINK_FILE; /* closed: write(2) will say so */
	if (S_ISSOCK(status.st_mode))
		return SP_CLI_SINK_SOCKET;
	if (S_ISFIFO(status.st_mode))
		return reopen(sink);
	if (!S_ISCHR(status.st_mode) || major(status.st_rdev) == MEM_MAJOR)
		return SP_CLI_SINK_FILE;
	/* To open a pty's master once more makes another pty. */
	if (status.st_rdev == makedev(PTMX_MAJOR, PTMX_MINOR) || !isatty(sink->fd))
		return SP_CLI_SINK_CAUTIOUS;
	return reopen(sink);
}

static ssize_t write_cautiously(int fd, const void *data, size_t len)
{
	struct pollfd ready = {.fd = fd, .events = POLLOUT};

	if (poll(&ready, 1, 0) == 0) {
		errno = EAGAIN;
		return -1;
	}
	return write(fd, data, SP_MIN(len, (size_t)PIPE_BUF));
}

ssize_t sp_cli_sink_write(struct sp_cli_sink *sink, const void *data, size_t len)
{
	ssize_t written;

	if (sink->kind == SP_CLI_SINK_NEW)
		sink->kind = classify(sink);
	if (sink->kind == SP_CLI_SINK_BUFFER) {
		int status = sp_buf_append(&sink->captured, data, len);

		return status < 0 ? status : (ssize_t)len;
	}
	do {
		if (sink->kind == SP_CLI_SINK_SOCKET)
			written = send(sink->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
		else if (sink->kind == SP_CLI_SINK_CAUTIOUS)
			written = write_cautiously(sink->fd, data, len);
		else
			written = write(sink->write_fd, data, len);
	} while (written < 0 && errno == EINTR);
	return written < 0 ? -errno : written;
}
