/*
 * Descriptor helpers. No allocation and no logging: the launcher and init use them as well.
 */
#include "pool/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define RESERVE_MIN 16
#define RESERVE_MAX 256

void sp_fd_close(int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
	errno = saved;
}

void sp_fd_discard(int *fd)
{
	const struct linger none = {0};
	const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
	int saved = errno;

	/* What is no socket refuses both. To be without a connection is what counts: the sender may
	 * hold the socket too, and set the first back. */
	if (*fd >= 0 && setsockopt(*fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none)) == 0)
		(void)connect(*fd, &nobody, sizeof(nobody));
	errno = saved;
	sp_fd_close(fd);
}

void sp_fd_cleanup(int *fd)
{
	sp_fd_close(fd);
}

int sp_take_fd(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}

#define KERNEL_FDS_MAX 253 /* in one message; see SCM_MAX_FD in unix(7) */

union fd_control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(SP_MSG_FDS_MAX * sizeof(int))];
};

/* Room for all that a message can bring: what finds none the kernel closes itself, and its way is
 * not that of sp_fd_discard(). */
union fd_control_any {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(KERNEL_FDS_MAX * sizeof(int))];
};

int sp_msg_send(int socket_fd, const void *data, size_t len, const int *fds, size_t fd_count)
{
	union fd_control control;
	struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t sent;

	sp_assert(fd_count <= SP_MSG_FDS_MAX);
	if (fd_count > 0) {
		struct cmsghdr *header;

		memset(&control, 0, sizeof(control));
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
		memcpy(CMSG_DATA(header), fds, fd_count * sizeof(int));
	}
	do {
		sent = sendmsg(socket_fd, &message, MSG_NOSIGNAL);
	} while (sent < 0 && errno == EINTR);
	if (sent < 0)
		return -errno;
	return (size_t)sent == len ? 0 : -EMSGSIZE;
}

static size_t take_fds(struct msghdr *message, int *fds)
{
	size_t count = 0;

	for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header;
	     header = CMSG_NXTHDR(message, header)) {
		size_t bytes;

		if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
			continue;
		bytes = header->cmsg_len - CMSG_LEN(0);
		sp_assert(count * sizeof(int) + bytes <= KERNEL_FDS_MAX * sizeof(int));
		memcpy(fds + count, CMSG_DATA(header), bytes);
		count += bytes / sizeof(int);
	}
	return count;
}

ssize_t sp_msg_receive_any(int socket_fd, void *buffer, size_t size, int *fds, size_t *ret_fd_count,
			   bool *ret_lost)
{
	union fd_control_any control;
	struct iovec iov = {.iov_base = buffer, .iov_len = size};
	struct msghdr message = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	int all[KERNEL_FDS_MAX];
	bool too_much;
	size_t count;
	ssize_t got;

	do {
		got = recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC);
	} while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	count = take_fds(&message, all);
	too_much = (message.msg_flags & MSG_TRUNC) != 0 || count > SP_MSG_FDS_MAX;
	*ret_lost = (message.msg_flags & MSG_CTRUNC) != 0;
	if (too_much || *ret_lost) {
		for (size_t i = 0; i < count; i++)
			sp_fd_discard(&all[i]);
		if (too_much)
			return -EMSGSIZE;
		count = 0;
	}
	memcpy(fds, all, count * sizeof(int));
	*ret_fd_count = count;
	return got;
}

ssize_t sp_msg_receive(int socket_fd, void *buffer, size_t size, int *fds, size_t *ret_fd_count)
{
	bool lost = false;
	ssize_t got = sp_msg_receive_any(socket_fd, buffer, size, fds, ret_fd_count, &lost);

	return got >= 0 && lost ? -EMSGSIZE : got;
}

int sp_fd_ceiling(void)
{
	struct rlimit limit;
	rlim_t reserve;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur > INT_MAX)
		return INT_MAX;
	reserve = SP_MIN(SP_MAX(limit.rlim_cur / 8, RESERVE_MIN), RESERVE_MAX);
	return (int)(limit.rlim_cur - SP_MIN(limit.rlim_cur, reserve));
}

bool sp_fd_low(int open_fd, int ceiling)
{
	int fd = fcntl(open_fd, F_DUPFD_CLOEXEC, 0);
	bool low = fd < 0 || fd >= ceiling;

	sp_fd_close(&fd);
	return low;
}

int sp_write_all(int fd, const void *data, size_t len)
{
	const char *at = data;

	while (len > 0) {
		ssize_t written = write(fd, at, len);

		if (written < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		at += written;
		len -= (size_t)written;
	}
	return 0;
}

ssize_t sp_read_all(int fd, void *buffer, size_t size)
{
	char *at = buffer;
	size_t total = 0;

	while (total < size) {
		ssize_t got = read(fd, at + total, size - total);

		if (got < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		if (got == 0)
			break;
		total += (size_t)got;
	}
	return (ssize_t)total;
}
