/*
 * Answers on their way to sandpoold.
 *
 * PID 1 must not wait for sandpoold (its own deadline fires when sandpoold is stopped), so what the
 * socket does not take at once is kept here. While anything is kept no request is read, which
 * bounds the number: two answers for each running exec and those of one request.
 *
 * A socket that is not full can refuse as well: a workload may have used up the memory that the
 * message needs, or the user's budget of descriptors in flight. Nothing tells when that is over.
 */
#ifndef SP_INIT_OUTBOX_H
#define SP_INIT_OUTBOX_H

#include "pool/base/base.h"
#include "supervisor/init/protocol.h"

#define INIT_OUTBOX_MAX      (2 * SP_INIT_EXECS_MAX + 8)
#define INIT_OUTBOX_RETRY_MS 10

union init_answer {
	struct sp_init_header header;
	struct sp_init_status status;
	struct sp_init_exited exited;
	struct sp_init_plain plain;
	struct sp_init_used used;
};

struct init_outbox_entry {
	union init_answer answer;
	size_t len;
	int fd; /* owned; -1 = none */
};

struct init_outbox {
	struct init_outbox_entry entries[INIT_OUTBOX_MAX];
	unsigned int first;
	unsigned int count;
	bool stalled; /* the first one was refused, and not because the socket is full */
};

/* Send, or keep. Takes fd (-1 = none). A peer that is gone is noticed by the loop, not here. */
void init_outbox_send(struct init_outbox *outbox, int socket_fd, const void *answer, size_t len,
		      int fd);
/* Send what is kept until the socket is full, or stalled: then again in INIT_OUTBOX_RETRY_MS. */
void init_outbox_flush(struct init_outbox *outbox, int socket_fd);

/* A struct sp_init_status: type, exec and request of the header, 0 or negative errno, stage (NULL:
 * none). */
void init_outbox_status(struct init_outbox *outbox, uint32_t type,
			const struct sp_init_header *about, int status, const char *stage);

#endif
