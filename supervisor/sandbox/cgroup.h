/*
 * The cgroups of sandboxes, on v1, v2 and hybrid hosts.
 *
 * Each hierarchy gets  <base>/sandpool/<instance>/<sandbox id>  where base is the root of its
 * mount, or on a pure v2 host the cgroup of the service that we run in, so that the service's own
 * budget holds for all sandboxes together. v2 sandboxes may have sub-cgroups x<number>, one for an
 * exec.
 *
 * Everything here may block for a while on the kernel's cgroup lock (another task's attach waits
 * out an RCU grace period under it), so it belongs to the spawner, never to the loop that kills.
 * Nothing here is safe against a second process of the same instance: the instance lock sees to it.
 */
#ifndef SP_SANDBOX_CGROUP_H
#define SP_SANDBOX_CGROUP_H

#include "pool/base/err.h"
#include "pool/base/id.h"

#include <sys/types.h>

#define SP_CGROUP_HIERARCHIES_MAX 4
#define SP_CGROUP_PATH_MAX        220

/* Bits of what a hierarchy limits; the values of enum sp_launcher_limit. */
#define SP_CGROUP_MEMORY 0x01u
#define SP_CGROUP_PIDS   0x02u
#define SP_CGROUP_CPU    0x04u
#define SP_CGROUP_ALL    0x07u

struct sp_cgroup_hierarchy {
	int mount_fd; /* the base, O_PATH */
	int base_fd;  /* sandpool/<instance> below it; -1 before sp_cgroups_start() */
	uint32_t controllers;
	bool v2;
};

struct sp_cgroups {
	struct sp_cgroup_hierarchy hierarchies[SP_CGROUP_HIERARCHIES_MAX];
	size_t count;
	char service[SP_CGROUP_PATH_MAX]; /* of the base below the v2 mount, "" = the mount itself
					   */
	char path[SP_CGROUP_PATH_MAX]; /* of sandpool/<instance> below the mount, no leading '/' */
	char instance[SP_POOL_NAME_MAX + 1]; /* "" before sp_cgroups_start() */
};

struct sp_cgroup_limits {
	uint64_t memory_bytes; /* 0 = not limited, here and below */
	uint64_t cpu_quota_us;
	uint64_t cpu_period_us;
	uint32_t pids;
	bool degraded_ok; /* go on without a limit that cannot be enforced */
};

/* What the clone of a sandbox's first process needs. */
struct sp_cgroup_entry {
	int v2_fd;                                 /* for CLONE_INTO_CGROUP, or -1 */
	int attach_fds[SP_CGROUP_HIERARCHIES_MAX]; /* v1: the child writes "0" into each */
	size_t attach_count;
	uint32_t degraded; /* SP_CGROUP_* that are asked for and not enforced */
};

/* Open the hierarchies; needs the host's /proc and mounts. Having none at all is no error. */
int sp_cgroups_find(struct sp_cgroups *groups, struct sp_err *err);

/* Make sandpool/<instance> everywhere and enable the v2 controllers for what is below it. A
 * hierarchy that cannot be written is left out, its limits count as not enforceable. */
int sp_cgroups_start(struct sp_cgroups *groups, const char *instance, struct sp_err *err);

/* Remove sandpool/<instance> and sandpool where they are empty, and close everything. */
void sp_cgroups_done(struct sp_cgroups *groups);

/* Kill and remove everything below sandpool/<instance>. Returns how many cgroups could not be
 * removed in wait_ms, each counted once a hierarchy. */
unsigned int sp_cgroups_sweep(struct sp_cgroups *groups, int wait_ms);

/* True when exec sub-cgroups and freezing exist here. */
bool sp_cgroups_have_v2(const struct sp_cgroups *groups);

/* Make a sandbox's cgroups with their limits. On success the caller owns *ret_entry. -EOPNOTSUPP
 * for a limit that no hierarchy enforces, -EEXIST, other negative errno; nothing is left behind. */
int sp_cgroup_create(struct sp_cgroups *groups, const char *id,
		     const struct sp_cgroup_limits *limits, struct sp_cgroup_entry *ret_entry,
		     struct sp_err *err);
void sp_cgroup_entry_done(struct sp_cgroup_entry *entry);

/* Remove them with their sub-cgroups. Members left are killed (only sandboxes without a pid
 * namespace can have any), then -EBUSY: try again. One that is already away is success. */
int sp_cgroup_remove(const struct sp_cgroups *groups, const char *id);

/* Write cgroup.freeze. -EOPNOTSUPP without v2. */
int sp_cgroup_freeze(const struct sp_cgroups *groups, const char *id, bool freeze);

/* A sub-cgroup for one exec, its directory and cgroup.procs owned by uid: *ret_fd is the
 * directory's. A number is never used twice: a cgroup whose cgroup.kill was written kills
 * everything that is later cloned into it (seen on 6.18). */
int sp_cgroup_exec_create(const struct sp_cgroups *groups, const char *id, uint32_t number,
			  uid_t uid, int *ret_fd, struct sp_err *err);
int sp_cgroup_exec_kill(const struct sp_cgroups *groups, const char *id, uint32_t number);
/* 0, -EBUSY while it has members. */
int sp_cgroup_exec_remove(const struct sp_cgroups *groups, const char *id, uint32_t number);

#endif
