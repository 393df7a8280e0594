/*
 * The launcher's own processes and what they say to each other. All run the same binary, forked
 * once from the main process; none of them ever sees a byte of a client but a bind's path.
 *
 *	main     epoll over the daemon, the pidfds and the others; kills and reaps; never blocks
 *	spawner  in the template's mount namespace: cgroups, uid slots, clone3 (with CLONE_PARENT,
 *so that main is the parent of every sandbox), id maps. May wait for the kernel sources  in the
 *host's mounts: opens what one table names, then ends binder   in the host's mounts: one bind at a
 *time. May hang on a dead file server, is then killed and replaced
 *
 * main → spawner: struct sp_spawn_request; the answer repeats type, slot, serial and request.
 * The spawner works in order and answers every request.
 */
#ifndef SP_LAUNCHER_SPAWN_H
#define SP_LAUNCHER_SPAWN_H

#include "pool/base/id.h"
#include "supervisor/launcher/protocol.h"
#include "supervisor/launcher/user_namespace.h"

#define SP_SPAWN_NO_UID_SLOT UINT32_MAX

/* main keeps these low numbers occupied from its start, so that in a child a dup2() to the numbers
 * of init/boot.h can never hit a descriptor that is still needed. */
#define SP_FD_RESERVED 9

enum sp_spawn_type {
	/* fds: table, end of the sources' socket, directory of the uid lock file. The first one
	 * sweeps what an earlier launcher of the instance left behind. */
	SP_SPAWN_PREPARE = 1,
	SP_SPAWN_ADOPT,  /* value 1: the prepared table is the current one now; 0: drop it */
	SP_SPAWN_CREATE, /* value: pool. Answer's fds: pidfd, control socket, uid lock. A failure
			  * after the clone carries the pidfd alone */
	SP_SPAWN_REMOVE, /* cgroups and uid slot */
	SP_SPAWN_EXEC_CREATE, /* value: number. Answer's fd: the directory */
	SP_SPAWN_EXEC_KILL,
	SP_SPAWN_EXEC_REMOVE,
	SP_SPAWN_FREEZE, /* value: 1 freeze, 0 thaw */
};

struct sp_spawn_request {
	uint32_t type;
	uint32_t slot;
	uint64_t serial;
	uint64_t request; /* the daemon's */
	uint32_t value;
	uint32_t uid_slot; /* REMOVE */
	uint32_t init_uid; /* EXEC_CREATE: host id that owns the sub-cgroup */
	char id[SP_SANDBOX_ID_LEN + 4];
};

struct sp_spawn_answer {
	uint32_t type;
	uint32_t slot;
	uint64_t serial;
	uint64_t request;
	uint32_t value;
	int32_t status;
	uint32_t uid_slot;
	uint32_t degraded;
	uint32_t host_uid_base;
	uint32_t host_workload_uid;
	char stage[32];
	char text[SP_LAUNCHER_TEXT_MAX];
};

struct sp_spawner_setup {
	int socket_fd;  /* to main */
	int life_fd;    /* read end of the life pipe */
	int init_fd;    /* init's program, sealed */
	int host_ns_fd; /* main's mount namespace, for sandboxes of backend "direct" */
	bool rootless;
	struct sp_own_ids own_ids; /* rootless */
};

/* The spawner's whole life; takes all descriptors. Returns the exit status. */
int sp_spawner_run(const struct sp_spawner_setup *setup);

#endif
