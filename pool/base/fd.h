/*
 * File descriptors: cleanup of locals, moving ownership, and messages with descriptors attached.
 *
 * Every descriptor is close-on-exec from birth. A function that "takes" one closes it on failure
 * too; one that "borrows" never closes it.
 */
#ifndef SP_BASE_FD_H
#define SP_BASE_FD_H

#include "pool/base/base.h"
#include "pool/base/err.h"

#include <sys/types.h>

#define SP_AUTO_CLOSE  SP_CLEANUP(sp_fd_cleanup)
#define SP_MSG_FDS_MAX 8 /* most descriptors in one message */

/* Close *fd if it is >= 0, set it to -1, keep errno. */
void sp_fd_close(int *fd);
void sp_fd_cleanup(int *fd);

/* The same for a descriptor that came from a peer who may wish us ill: its close does not wait for
 * a socket to send what it holds, as close(2) of one with SO_LINGER does. */
void sp_fd_discard(int *fd);

/* Give up *fd: returns it and leaves -1. */
int sp_take_fd(int *fd);

/* One SOCK_SEQPACKET record with up to SP_MSG_FDS_MAX descriptors (borrowed). MSG_NOSIGNAL.
 * 0, -EAGAIN when the socket is full, -EPIPE when the peer is gone, other negative errno. */
int sp_msg_send(int socket_fd, const void *data, size_t len, const int *fds, size_t fd_count);

/*
 * Receive one record; descriptors arrive with MSG_CMSG_CLOEXEC and belong to the caller.
 * Returns the length (> 0), 0 at end of file, -EAGAIN, -EMSGSIZE (record or descriptor list was
 * truncated; every descriptor that did arrive is discarded), other negative errno.
 * fds must have room for SP_MSG_FDS_MAX.
 */
ssize_t sp_msg_receive(int socket_fd, void *buffer, size_t size, int *fds, size_t *ret_fd_count);

/*
 * The same for who must not lose its peer because its own table of descriptors is full: a record
 * whose descriptors found no room there comes without any of them, and *ret_lost is set.
 */
ssize_t sp_msg_receive_any(int socket_fd, void *buffer, size_t size, int *fds, size_t *ret_fd_count,
			   bool *ret_lost);

/*
 * How full the table of descriptors may get by what clients ask for: beyond it is the reserve that
 * answers, files and ends already under way need. The kernel gives the lowest free number, so a
 * descriptor at or above the ceiling means that the reserve has been begun.
 */
int sp_fd_ceiling(void);
/* Would the next descriptor be at or above it? open_fd: any that is open. */
bool sp_fd_low(int open_fd, int ceiling);

/* Write all of it (blocking descriptor). 0 or negative errno. */
int sp_write_all(int fd, const void *data, size_t len);

/* Read to end of file or `size` bytes. Returns the number of bytes or a negative errno. */
ssize_t sp_read_all(int fd, void *buffer, size_t size);

#endif
