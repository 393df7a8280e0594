/*
 * sandpoold ↔ launcher, over one SOCK_SEQPACKET pair: fixed-size records in native byte order, one
 * record a message. The launcher assumes that sandpoold is compromised: it checks the length of
 * every record, every index, count, flag and id, answers a bad one with SP_LAUNCHER_ERROR and goes
 * on; the table of permitted messages is in launcher/serve.c. One that comes with descriptors ends
 * the service. Nothing here is parsed from text but a bind's relative path.
 *
 * `request` is chosen by sandpoold and comes back in the answer. A `slot` names a live sandbox from
 * CREATED until GONE; (slot, serial) is never reused.
 */
#ifndef SP_LAUNCHER_PROTOCOL_H
#define SP_LAUNCHER_PROTOCOL_H

#include "pool/base/id.h"

#include <stdint.h>

#define SP_LAUNCHER_PROTOCOL_VERSION 1u
#define SP_LAUNCHER_FD               3 /* the socket's number in the launcher when exec'ed by sandpoold */
#define SP_BIND_PATH_MAX             4096 /* relative path with NUL */
#define SP_LAUNCHER_TEXT_MAX         256

enum sp_launcher_type {
	/* sandpoold → launcher */
	SP_LAUNCHER_HELLO = 1, /* first message; version */
	SP_LAUNCHER_CREATE,
	SP_LAUNCHER_KILL,
	SP_LAUNCHER_BIND,        /* open a source, get a detached mount */
	SP_LAUNCHER_EXEC_CGROUP, /* a fresh sub-cgroup of a sandbox for one exec */
	SP_LAUNCHER_EXEC_KILL,   /* kill everything in that sub-cgroup */
	SP_LAUNCHER_EXEC_DONE,   /* remove it (retried until it is empty) */
	SP_LAUNCHER_FREEZE,      /* value 1: freeze, 0: thaw */
	SP_LAUNCHER_RELOAD,      /* compile the configuration again */
	SP_LAUNCHER_ADOPT_TABLE, /* value 1: use the table compiled by the last RELOAD; 0: drop it
				  */

	/* launcher → sandpoold */
	SP_LAUNCHER_CONFIG = 64, /* answer to HELLO and RELOAD; fd: resolved configuration as JSON
				  * (status 0) or the compiler's messages as text (status < 0) */
	SP_LAUNCHER_CREATED,     /* fds: pidfd, control socket. init itself says READY or FAILED */
	SP_LAUNCHER_CREATE_FAILED,
	SP_LAUNCHER_GONE,  /* process, cgroups and all are gone; the slot is free again */
	SP_LAUNCHER_BOUND, /* fd: a detached mount, attributes already set */
	SP_LAUNCHER_EXEC_CGROUP_READY, /* fd: directory of the sub-cgroup; value: its number */
	SP_LAUNCHER_DONE,              /* success of a request that has no other answer */
	SP_LAUNCHER_ERROR,             /* failure of any request: status, stage, text */
};

struct sp_launcher_header {
	uint32_t type;
	uint32_t reserved; /* 0 */
	uint64_t request;
};

struct sp_launcher_hello {
	struct sp_launcher_header header;
	uint32_t version;
	uint32_t reserved;
	uint64_t build_id; /* SP_BUILD_ID of both programs, else ERROR ESTALE */
};

struct sp_launcher_create {
	struct sp_launcher_header header;
	uint32_t pool_index;
	uint32_t reserved;
	uint64_t generation; /* of the pool's record that the caller believes in; else ERROR ESTALE
			      */
	char id[SP_SANDBOX_ID_LEN + 4];
};

/* KILL, EXEC_CGROUP, EXEC_KILL, EXEC_DONE, FREEZE, RELOAD (slot 0, serial 0), ADOPT_TABLE */
struct sp_launcher_command {
	struct sp_launcher_header header;
	uint32_t slot;
	uint32_t value; /* EXEC_KILL, EXEC_DONE: number of the sub-cgroup; FREEZE, ADOPT_TABLE: 0 or
			   1 */
	uint64_t serial;
};

#define SP_BIND_F_READ_ONLY 0x01u
#define SP_BIND_F_OVERLAY   0x02u /* it is to lie below an overlay */
#define SP_BIND_F_ALL       0x03u

struct sp_launcher_bind {
	struct sp_launcher_header header;
	uint32_t slot;
	uint32_t root_index; /* into the pool's roots */
	uint64_t serial;
	uint32_t flags;
	uint32_t owner_uid; /* id inside the sandbox that the source's owner is shown as; 1000 */
	uint32_t owner_gid;
	uint32_t path_length;        /* without NUL; 0 = the root itself */
	char path[SP_BIND_PATH_MAX]; /* the record ends after the path's NUL */
};

/* Every answer has this shape. */
struct sp_launcher_answer {
	struct sp_launcher_header header;
	int32_t status; /* 0 or negative errno */
	uint32_t slot;
	uint64_t serial;
	uint32_t value;    /* EXEC_CGROUP_READY: number; CONFIG: pools; GONE: wait status; BOUND: 1:
			    * a commit was cut off in it */
	uint32_t degraded; /* CREATED: bits of sp_launcher_limit that could not be enforced */
	uint32_t host_uid_base; /* CREATED: host id of the sandbox's id 0 (rootless: the mapped uid)
				 */
	uint32_t host_workload_uid; /* CREATED */
	char stage[32]; /* what failed: "clone", "uid_map", "cgroup", "open", "mount", … */
	char text[SP_LAUNCHER_TEXT_MAX]; /* CREATED: the cgroup path below each hierarchy's mount
					  * ("sandpool/default/0123…"), else the object that failed
					  */
};

enum sp_launcher_limit {
	SP_LIMIT_MEMORY = 0x01,
	SP_LIMIT_PIDS = 0x02,
	SP_LIMIT_CPU = 0x04,
};

#endif
