/*
 * Which directories and locks on the host belong to one instance of the launcher.
 *
 * Two launchers of one instance would sweep each other's cgroups, so the first takes two locks
 * (flock(2)): one by the instance's name in the host-wide lock directory, one in the state
 * directory. The host-wide directory also has the uid lock file; it is root's alone, unlike /run's
 * directory of the daemon, which systemd gives to the daemon's user and deletes when it stops. An
 * ordinary user has one of his own in /run/user; without a session there, the state directory
 * stands in, and instances of his with different ones do not know of each other.
 */
#ifndef SP_LAUNCHER_INSTANCE_H
#define SP_LAUNCHER_INSTANCE_H

#include "supervisor/launcher/table.h"

#include <sys/types.h>

#define SP_LOCK_DIR      "/run/sandpool-launcher"
#define SP_USER_RUN_DIR  "/run/user"
#define SP_USER_LOCK_DIR "sandpool-launcher" /* below the user's */

#define SP_INSTANCE_LOCK_SPACE 80u /* an instance's name and ".lock" */

struct sp_instance {
	char lock_dir[64]; /* "": the state directory */
	char lock_name[SP_INSTANCE_LOCK_SPACE];
	int lock_dir_fd; /* of the uid lock file */
	int name_lock_fd;
	int state_lock_fd;
};

/* user: who started us, 0 for root. -EALREADY when another launcher of the instance, or on the
 * state directory, is running. */
int sp_instance_lock(const struct sp_table *table, uid_t user, struct sp_instance *ret_instance,
		     struct sp_err *err);

/* At an end with every sandbox gone: the file of sp_instance_lock() in the lock directory; with the
 * host's (or user's) last launcher also what killed ones left there, the uid lock files and the
 * directory. */
void sp_instance_remove(const struct sp_instance *instance);

#endif
