/*
 * What the parts of PID 1 share: one `struct init`, in static memory.
 *
 * A step that fails returns a negative errno and has set init->stage to its name before; main()
 * reports the two with FAILED.
 */
#ifndef SP_INIT_INIT_H
#define SP_INIT_INIT_H

#include "supervisor/init/boot.h"
#include "supervisor/init/outbox.h"

#include <sys/resource.h>
#include <sys/types.h>

#define INIT_GRACE_MS     INT64_C(5000) /* init's own deadline is this much after the sandbox's */
#define INIT_PRIVATE_DIR  ".init"       /* in the root, 0700: init's own view of proc */
#define INIT_PRIVATE_PATH "/" INIT_PRIVATE_DIR

enum init_kill_state {
	INIT_KILL_NONE,
	INIT_KILL_RUNNING, /* KILL_EXEC is at work: everything is being killed */
};

struct init {
	const struct sp_boot *boot; /* mapped, sealed */
	const struct sp_table_pool *pool;
	char stage[32];
	int64_t started_ns;
	bool direct;
	pid_t pid;                        /* 1, but for DIRECT */
	rlim_t rlimits_max[RLIM_NLIMITS]; /* our own hard limits, which never change */

	/* root.c; all -1 in a DIRECT sandbox */
	int root_fd;     /* O_PATH of / */
	int skeleton_fd; /* detached, writable clone of the skeleton alone */
	int proc_fd;     /* proc, unmasked, seen by init only */
	int pts_fd;      /* devpts; -1 on the host and where the kernel has none */
	int pids_fd;     /* our pid namespace; -1 before the first session */
	uint64_t root_mount_id;
	dev_t tmpfs_device;

	/* serve.c */
	int epoll_fd;
	int signal_fd;
	int timer_fd;
	uint32_t control_events; /* what is watched of the control socket */
	struct init_outbox outbox;
	bool reap_again;     /* the last pass stopped at its bound */
	int64_t deadline_ms; /* that the timer was set for */

	/* exec.c */
	bool mixed; /* what is left over or running belongs to more than one exec */

	/* kill.c */
	enum init_kill_state kill_state;
	uint32_t kill_exec;
	uint64_t kill_request;
	int64_t kill_until_ms;
};

void init_stage(struct init *init, const char *name);

/* Nothing of this sandbox goes on: kills what a DIRECT sandbox started, then exits; in a pid
 * namespace the kernel takes the rest along. */
SP_NORETURN void init_end(struct init *init, int code);

#endif
