/*
 * A SOCK_SEQPACKET socket under the loop. Writes go straight out; only when the socket is full is a
 * record copied, its descriptors duplicated, and the rest of the queue kept behind it. Reads take a
 * bounded number of records per turn, so that one busy peer does not hold up the others.
 */
#include "supervisor/daemon/loop.h"

#include "pool/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define RECORDS_PER_TURN 16

struct outgoing {
	struct sp_list link;
	size_t fd_count;
	int fds[SP_MSG_FDS_MAX];
	size_t len;
	char record[];
};

static void outgoing_free(struct sp_seq_link *link, struct outgoing *record)
{
	sp_list_remove(&record->link);
	link->outgoing_count--;
	for (size_t i = 0; i < record->fd_count; i++)
		sp_fd_close(&record->fds[i]);
	free(record);
}

static void drop_outgoing(struct sp_seq_link *link)
{
	SP_LIST_FOREACH_SAFE (at, following, &link->outgoing)
		outgoing_free(link, SP_CONTAINER_OF(at, struct outgoing, link));
}

static void on_poll(uv_poll_t *poll, int status, int events);

static void watch(struct sp_seq_link *link)
{
	int events = UV_READABLE | (sp_list_empty(&link->outgoing) ? 0 : UV_WRITABLE);

	if (link->events == events)
		return;
	link->events = events;
	(void)uv_poll_start(&link->poll, events, on_poll);
}

void sp_seq_hang_up(struct sp_seq_link *link, int status)
{
	if (link->hung_up || !link->open)
		return;
	link->hung_up = true;
	link->events = 0;
	(void)uv_poll_stop(&link->poll);
	drop_outgoing(link);
	link->on_hangup(link->arg, status);
}

/* 0, or the error that ends the link. */
static int flush(struct sp_seq_link *link)
{
	struct outgoing *record;

	while ((record = SP_LIST_FIRST(&link->outgoing, struct outgoing, link))) {
		int status = sp_msg_send(link->fd, record->record, record->len, record->fds,
					 record->fd_count);

		if (status == -EAGAIN)
			return 0;
		if (status < 0)
			return status;
		outgoing_free(link, record);
	}
	watch(link);
	return 0;
}

/* One record. false: nothing more to read now. */
static bool receive(struct sp_seq_link *link)
{
	_Alignas(max_align_t) char record[SP_SEQ_RECORD_MAX];
	int fds[SP_MSG_FDS_MAX];
	size_t fd_count = 0;
	bool lost = false;
	/* What was lost is missed by whoever the record is for; the peer is not to blame. */
	ssize_t got = sp_msg_receive_any(link->fd, record, sizeof(record), fds, &fd_count, &lost);

	if (got == -EAGAIN)
		return false;
	if (got <= 0) {
		sp_seq_hang_up(link, (int)got);
		return false;
	}
	link->on_record(link->arg, record, (size_t)got, fds, fd_count);
	for (size_t i = 0; i < fd_count; i++)
		sp_fd_discard(&fds[i]);
	return true;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct sp_seq_link *link = poll->data;

	if (!link->open || link->hung_up)
		return;
	/* An error condition (EPOLLERR) comes as a status; what was sent before it is still read.
	 */
	if (status < 0)
		events = UV_READABLE;
	if ((events & UV_WRITABLE) != 0) {
		int failed = flush(link);

		if (failed < 0) {
			sp_seq_hang_up(link, failed);
			return;
		}
	}
	if ((events & UV_READABLE) != 0) {
		for (int i = 0; i < RECORDS_PER_TURN; i++)
			if (!receive(link) || !link->open || link->hung_up)
				break;
	}
	if (status < 0 && link->open && !link->hung_up)
		sp_seq_hang_up(link, status);
}

int sp_seq_open(struct sp_seq_link *link, uv_loop_t *loop, int fd, struct sp_err *err)
{
	int status = uv_poll_init(loop, &link->poll, fd); /* makes it non-blocking */

	if (status < 0) {
		sp_fd_close(&fd);
		return sp_err_set(err, status, "poll a record socket");
	}
	link->fd = fd;
	link->open = true;
	link->hung_up = false;
	link->events = 0;
	link->outgoing_count = 0;
	link->poll.data = link;
	sp_list_init(&link->outgoing);
	watch(link);
	return 0;
}

static int enqueue(struct sp_seq_link *link, const void *record, size_t len, const int *fds,
		   size_t fd_count)
{
	struct outgoing *copy;

	if (link->outgoing_count >= link->outgoing_max)
		return -ENOBUFS;
	copy = malloc(sizeof(*copy) + len);
	if (!copy)
		return -ENOMEM;
	memcpy(copy->record, record, len);
	copy->len = len;
	copy->fd_count = 0;
	sp_list_append(&link->outgoing, &copy->link);
	link->outgoing_count++;
	for (size_t i = 0; i < fd_count; i++) {
		int duplicate = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);

		if (duplicate < 0) {
			int status = -errno;

			outgoing_free(link, copy);
			return status;
		}
		copy->fds[copy->fd_count++] = duplicate;
	}
	watch(link);
	return 0;
}

int sp_seq_send(struct sp_seq_link *link, const void *record, size_t len, const int *fds,
		size_t fd_count)
{
	int status;

	if (!link->open || link->hung_up)
		return -EPIPE;
	if (!sp_list_empty(&link->outgoing))
		return enqueue(link, record, len, fds, fd_count);
	status = sp_msg_send(link->fd, record, len, fds, fd_count);
	if (status == -EAGAIN)
		return enqueue(link, record, len, fds, fd_count);
	return status;
}

void sp_seq_drain(struct sp_seq_link *link)
{
	/* Dead, but it may have given its end to somebody who goes on. */
	if (link->open)
		(void)shutdown(link->fd, SHUT_RD);
	while (link->open && !link->hung_up)
		if (!receive(link))
			break;
}

/* Descriptors in records that nobody read: the kernel's own way to close them may wait. */
static void discard_unread(const struct sp_seq_link *link)
{
	char record[SP_SEQ_RECORD_MAX];
	int fds[SP_MSG_FDS_MAX];
	size_t fd_count = 0;
	bool lost;
	ssize_t got;

	(void)shutdown(link->fd, SHUT_RD);
	do {
		got = sp_msg_receive_any(link->fd, record, sizeof(record), fds, &fd_count, &lost);
		for (size_t i = 0; got > 0 && i < fd_count; i++)
			sp_fd_discard(&fds[i]);
	} while (got > 0 || got == -EMSGSIZE);
}

static void on_poll_closed(uv_handle_t *handle)
{
	struct sp_seq_link *link = handle->data;

	discard_unread(link);
	sp_fd_close(&link->fd);
	if (link->on_closed)
		link->on_closed(link->arg);
}

void sp_seq_close(struct sp_seq_link *link)
{
	if (!link->open)
		return;
	link->open = false;
	drop_outgoing(link);
	uv_close((uv_handle_t *)&link->poll, on_poll_closed);
}
