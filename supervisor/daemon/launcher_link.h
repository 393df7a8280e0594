/*
 * The daemon's end of the socket to the launcher: requests with a callback and a deadline each.
 *
 * The launcher is a child made before privileges are dropped; it cannot be made again. Its loss is
 * the end of the daemon (on_lost), and the end of every sandbox with it.
 */
#ifndef SP_DAEMON_LAUNCHER_LINK_H
#define SP_DAEMON_LAUNCHER_LINK_H

#include "supervisor/daemon/loop.h"
#include "supervisor/launcher/protocol.h"

#include <sys/types.h>

#define SP_LAUNCHER_REQUESTS_MAX 65536u /* outstanding at once */

struct launcher_link;

/* Borrowed answer; a descriptor is taken by setting it to -1. A request whose deadline passed gets
 * an answer of type ERROR, status -ETIMEDOUT, stage "deadline". */
typedef void launcher_cb(void *arg, const struct sp_launcher_answer *answer, int *fds,
			 size_t fd_count);

struct launcher_events {
	void (*gone)(void *arg, const struct sp_launcher_answer *answer);
	void (*lost)(void *arg, int status);
	void (*closed)(void *arg);
};

/* What spawning needs; all borrowed. */
struct launcher_spawn {
	const char *program; /* path */
	const char *config_path;
	const char *state_dir; /* NULL = the configuration's */
};

/* fork and exec it; only before the loop runs. The socket and a pidfd of it are the caller's. */
int launcher_spawn(const struct launcher_spawn *spawn, int *ret_socket, int *ret_pidfd,
		   struct sp_err *err);
/* Say HELLO and wait (blocking) for the configuration. *ret_fd is the caller's: its JSON. A fault
 * of the configuration comes as CONFIG_INVALID with the compiler's messages. */
int launcher_hello(int socket_fd, int timeout_ms, int *ret_fd, struct sp_err *err);

/* Takes socket_fd. timers, events and arg are borrowed until closed. */
int launcher_open(uv_loop_t *loop, struct sp_timers *timers, int socket_fd,
		  const struct launcher_events *events, void *arg, struct launcher_link **ret_link,
		  struct sp_err *err);
/* Requests end without callback; frees itself before events->closed. NULL is fine. */
void launcher_close(struct launcher_link *link);

/*
 * Each returns 0 and the request's number (if asked for), or a negative errno and sends nothing.
 * timeout_ms 0 = no deadline. cb NULL = the answer does not matter.
 */
int launcher_create(struct launcher_link *link, uint32_t pool_index, uint64_t generation,
		    const char *id, launcher_cb *cb, void *arg, uint64_t *ret_request);
int launcher_command(struct launcher_link *link, enum sp_launcher_type type, uint32_t slot,
		     uint64_t serial, uint32_t value, int64_t timeout_ms, launcher_cb *cb,
		     void *arg, uint64_t *ret_request);
/* path: relative, not longer than SP_BIND_PATH_MAX - 1. */
int launcher_bind(struct launcher_link *link, uint32_t slot, uint64_t serial, uint32_t root_index,
		  const char *path, uint32_t flags, uint32_t owner_uid, uint32_t owner_gid,
		  int64_t timeout_ms, launcher_cb *cb, void *arg, uint64_t *ret_request);
/* No callback any more; what the answer carries is given back. 0 is fine. */
void launcher_forget(struct launcher_link *link, uint64_t request);

#endif
