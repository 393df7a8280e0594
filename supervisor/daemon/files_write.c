/*
 * An upload on its way inside: at most SP_FILE_WRITE_MAX of it waits here, what the channel holds
 * comes on top. When inside closes its end, the reason is what it sent before; what waits is
 * dropped, and nothing more is taken.
 */
#include "supervisor/daemon/files_private.h"

#include <errno.h>
#include <sys/socket.h>

/* One record: `len` bytes of the buffer's beginning behind the header. 0 or negative errno. */
static int send_record(struct sp_file_op *op, uint32_t type, size_t len)
{
	struct sp_init_file_record_header header = {.type = type};
	struct iovec parts[2] = {
		{.iov_base = &header, .iov_len = sizeof(header)},
		{.iov_base = op->outgoing.data, .iov_len = len},
	};
	const struct msghdr message = {.msg_iov = parts, .msg_iovlen = len > 0 ? 2 : 1};
	ssize_t sent;

	do {
		sent = sendmsg(op->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : 0;
}

static void on_send_failed(struct sp_file_op *op, int status)
{
	if (status == -EAGAIN)
		return;
	if (status == -EPIPE || status == -ECONNRESET) {
		op->closed_inside = true;
		sp_buf_clear(&op->outgoing);
		return;
	}
	/* No memory for the message, most likely: the kernel does not say when there is some. */
	file_op_fail(op, SP_CODE_UNAVAILABLE, status, "it could not be sent");
}

static void send_commit(struct sp_file_op *op)
{
	int status = send_record(op, SP_INIT_FILE_COMMIT, 0);

	if (status == 0)
		op->commit_sent = true;
	else
		on_send_failed(op, status);
}

void file_write_flush(struct sp_file_op *op)
{
	while (op->outgoing.len > 0) {
		size_t len = SP_MIN(op->outgoing.len, (size_t)SP_INIT_FILE_DATA_MAX);
		int status = send_record(op, SP_INIT_FILE_DATA, len);

		if (status < 0) {
			on_send_failed(op, status);
			break;
		}
		sp_buf_consume(&op->outgoing, len);
		file_op_moved(op);
	}
	if (op->state != FILE_OP_WORKING || op->outgoing.len > 0 || op->closed_inside)
		return;
	if (op->drain_wanted)
		sp_defer(&op->service->deferred, &op->drained);
	if (op->commit_wanted && !op->commit_sent)
		send_commit(op);
}

void file_write_on_drained(struct sp_deferred *deferred)
{
	struct sp_file_op *op = SP_CONTAINER_OF(deferred, struct sp_file_op, drained);

	if (op->state != FILE_OP_WORKING || !op->drain_wanted)
		return;
	op->drain_wanted = false;
	op->on.write.drained(op->arg);
}

size_t sp_file_write_data(struct sp_file_write *write, const void *data, size_t len)
{
	struct sp_file_op *op = &write->op;
	size_t taken = 0;

	while (op->state == FILE_OP_WORKING && !op->closed_inside && !op->commit_wanted &&
	       taken < len) {
		size_t room = SP_FILE_WRITE_MAX - op->outgoing.len;
		size_t part = SP_MIN(room, len - taken);

		if (part == 0)
			break;
		if (sp_buf_append(&op->outgoing, (const char *)data + taken, part) < 0) {
			file_op_fail(op, SP_CODE_UNAVAILABLE, -ENOMEM, "out of memory");
			break;
		}
		taken += part;
		file_op_moved(op);
		file_write_flush(op);
	}
	op->drain_wanted = taken < len;
	file_op_watch(op);
	return taken;
}

void sp_file_write_commit(struct sp_file_write *write)
{
	struct sp_file_op *op = &write->op;

	if (op->state != FILE_OP_WORKING || op->commit_wanted)
		return;
	op->commit_wanted = true;
	file_write_flush(op);
	file_op_watch(op);
}

void sp_file_write_cancel(struct sp_file_write *write)
{
	sp_file_op_cancel(&write->op);
}
