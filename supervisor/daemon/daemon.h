/*
 * sandpoold's life: start, run, reload, stop. For main.c and for tests that embed the daemon; what
 * clients may ask of it is service.h.
 *
 * Order of calls: sp_daemon_new (may block: it spawns the launcher and waits for the
 * configuration), then whatever needs privileges (listening sockets), sp_daemon_drop_privileges,
 * sp_daemon_start, uv_run; on_ended → sp_daemon_close → on_closed → sp_daemon_free.
 */
#ifndef SP_DAEMON_DAEMON_H
#define SP_DAEMON_DAEMON_H

#include "pool/base/err.h"

struct sp_service;
struct uv_loop_s;

#define SP_DEFAULT_CONFIG "/etc/sandpool/sandpool.json"

/* All borrowed for the call. */
struct sp_daemon_options {
	const char *config_path; /* NULL = SP_DEFAULT_CONFIG */
	const char *state_dir;   /* NULL = the configuration's */
	const char *launcher;    /* path of the program; NULL = found beside ours or installed */
};

int sp_daemon_new(const struct sp_daemon_options *options, struct uv_loop_s *loop,
		  struct sp_service **ret_service, struct sp_err *err);
/* Become the configured user, without a capability, for good; checks that it is so. Process-wide:
 * not for tests that need their rights afterwards. */
int sp_daemon_drop_privileges(struct sp_service *service, struct sp_err *err);
/*
 * Start the pools and serve. on_ended comes once, when a stop has come to its end or the daemon
 * cannot go on: with exit_status 0 every sandbox is gone; otherwise end the process at once, which
 * ends the launcher and every sandbox with it.
 */
int sp_daemon_start(struct sp_service *service, void (*on_ended)(void *arg, int exit_status),
		    void *arg, struct sp_err *err);
/* Tell systemd that requests are served from now on. */
void sp_daemon_announce_ready(struct sp_service *service);
/* As SIGTERM does: running execs get shutdown_timeout. A second call ends them at once. */
void sp_daemon_stop(struct sp_service *service);
/* After on_ended with status 0, or instead of sp_daemon_start(): close every handle. on_closed
 * comes from the loop; then free it. */
void sp_daemon_close(struct sp_service *service, void (*on_closed)(void *arg), void *arg);
/* Also waits (bounded) until the launcher is gone. NULL is fine. */
void sp_daemon_free(struct sp_service *service);

#endif
