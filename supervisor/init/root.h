/*
 * The sandbox's own view: namespaces and file system.
 */
#ifndef SP_INIT_ROOT_H
#define SP_INIT_ROOT_H

#include "supervisor/init/init.h"

/* Network, IPC, host name and cgroup namespaces; loopback up. */
int init_namespaces(struct init *init);
/* Build the root of the pool's mount table and switch to it for good. */
int init_root(struct init *init);

/* What a workload must not see of a proc, … */
#define INIT_MASKED_PROC 15u
extern const char *const init_masked_proc[INIT_MASKED_PROC];
/* … and what it may only read: mounted on top of itself, in a proc that is attached. */
int init_protect_proc(int proc_fd);

#endif
