/*
 * Giving up privileges for good.
 */
#ifndef SP_SANDBOX_PRIVILEGES_H
#define SP_SANDBOX_PRIVILEGES_H

#include "pool/base/base.h"

/*
 * Whatever the calling process executes from now on can gain nothing: empty bounding and ambient
 * sets, no capabilities through uid 0 (securebits, locked), nothing inheritable, no_new_privs. The
 * process itself keeps the capabilities of `keep` (bits) that it has now, permitted and effective.
 * Needs CAP_SETPCAP; without it (an ordinary user, who has nothing to drop) only no_new_privs and
 * the ambient set are changed. 0 or negative errno.
 */
int sp_privileges_lock(uint64_t keep);

/* Neither core dumps nor /proc/<pid> for others of the same uid. It is the memory's, so a CLONE_VM
 * child has it too, and a change of effective ids in one sets it to fs.suid_dumpable for both. */
int sp_privileges_hide(void);

#endif
