/*
 * The first steps of a sandbox's first process, from clone3 to init's execve, in the order of
 * init/boot.h. It is a fork of the spawner: nothing here may allocate, log or take a lock.
 */
#ifndef SP_LAUNCHER_CHILD_H
#define SP_LAUNCHER_CHILD_H

#include "supervisor/sandbox/cgroup.h"

struct sp_child_plan {
	int control_fd; /* all of these are above SP_FD_RESERVED */
	int boot_fd;
	int life_fd;
	int lock_fd;
	int init_fd;
	int host_ns_fd; /* backend "direct": the mount namespace to return to */
	const struct sp_cgroup_entry *cgroups;
	bool direct;
	bool one_id;      /* no other ids to change to, and setgroups(2) is denied */
	bool into_cgroup; /* already in the v2 cgroup */
	uid_t uid;        /* to become: 0 inside, or the direct backend's */
	gid_t gid;
};

/* Never returns: becomes init, or reports {stage, errno} as SP_INIT_FAILED and exits. */
SP_NORETURN void sp_child_run(const struct sp_child_plan *plan);

#endif
