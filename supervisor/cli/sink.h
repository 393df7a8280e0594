/*
 * Where a command's output goes: a descriptor that is never waited for, or a buffer (--json).
 */
#ifndef SP_CLI_SINK_H
#define SP_CLI_SINK_H

#include "pool/base/buf.h"

#include <sys/types.h>

#define SP_CLI_CAPTURE_MAX (256u << 20)

enum sp_cli_sink_kind {
	SP_CLI_SINK_NEW,      /* not looked at yet */
	SP_CLI_SINK_BUFFER,   /* captured */
	SP_CLI_SINK_FILE,     /* writes never wait long: regular files, /dev/null */
	SP_CLI_SINK_SOCKET,   /* send(2) with MSG_DONTWAIT */
	SP_CLI_SINK_NONBLOCK, /* an O_NONBLOCK description of our own */
	SP_CLI_SINK_CAUTIOUS, /* poll(2), then at most what that promises */
};

struct sp_cli_sink {
	enum sp_cli_sink_kind kind;
	int fd;       /* stdout or stderr; borrowed */
	int write_fd; /* fd, or the reopened one (owned) */
	struct sp_buf captured;
};

void sp_cli_sink_init(struct sp_cli_sink *sink, int fd, bool capture);
void sp_cli_sink_done(struct sp_cli_sink *sink);
/* Bytes taken (> 0), -EAGAIN (poll write_fd for POLLOUT), other negative errno. len > 0. */
ssize_t sp_cli_sink_write(struct sp_cli_sink *sink, const void *data, size_t len);

#endif
