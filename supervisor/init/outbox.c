/*
 * A ring of fixed-size answers; see outbox.h for what bounds it. Order is kept: STARTED always
 * comes before EXITED of the same exec.
 */
#include "supervisor/init/outbox.h"

#include "pool/base/fd.h"
#include "supervisor/init/boot.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int send_entry(int socket_fd, const struct init_outbox_entry *entry)
{
	return sp_msg_send(socket_fd, &entry->answer, entry->len, &entry->fd,
			   entry->fd >= 0 ? 1 : 0);
}

void init_outbox_send(struct init_outbox *outbox, int socket_fd, const void *answer, size_t len,
		      int fd)
{
	struct init_outbox_entry *entry;

	sp_assert(outbox->count < INIT_OUTBOX_MAX);
	sp_assert(len <= sizeof(entry->answer));
	entry = &outbox->entries[(outbox->first + outbox->count) % INIT_OUTBOX_MAX];
	memcpy(&entry->answer, answer, len);
	entry->len = len;
	entry->fd = fd;
	outbox->count++;
	init_outbox_flush(outbox, socket_fd);
}

/* The only failure that will not pass. */
static bool peer_is_gone(int status)
{
	return status == -EPIPE || status == -ECONNRESET || status == -ENOTCONN;
}

void init_outbox_flush(struct init_outbox *outbox, int socket_fd)
{
	outbox->stalled = false;
	while (outbox->count > 0) {
		struct init_outbox_entry *entry = &outbox->entries[outbox->first];
		int status = send_entry(socket_fd, entry);

		if (status < 0 && !peer_is_gone(status)) {
			outbox->stalled = status != -EAGAIN;
			return;
		}
		sp_fd_close(&entry->fd);
		outbox->first = (outbox->first + 1) % INIT_OUTBOX_MAX;
		outbox->count--;
	}
}

void init_outbox_status(struct init_outbox *outbox, uint32_t type,
			const struct sp_init_header *about, int status, const char *stage)
{
	struct sp_init_status answer = {
		.header = {.type = type, .exec = about->exec, .request = about->request},
		.status = status,
	};

	if (stage)
		(void)snprintf(answer.stage, sizeof(answer.stage), "%s", stage);
	init_outbox_send(outbox, SP_BOOT_FD_CONTROL, &answer, sizeof(answer), -1);
}
