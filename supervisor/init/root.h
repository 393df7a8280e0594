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

#endif
