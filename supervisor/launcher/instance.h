/*
 * Which directories and locks on the host belong to one instance of the launcher.
 *
 * Two launchers of one instance would sweep each other's cgroups, so the first takes two locks
 * (flock(2)): one by the instance's name in the host-wide lock directory, one in the state
 * directory. The host-wide directory also has the uid lock file; it is root's alone, unlike /run's
 * directory of the daemon, which systemd gives to the daemon's user and deletes when it stops.
 */
#ifndef SP_LAUNCHER_INSTANCE_H
#define SP_LAUNCHER_INSTANCE_H

#include "supervisor/launcher/table.h"

#define SP_LOCK_DIR "/run/sandpool-launcher"

struct sp_instance {
	int lock_dir_fd; /* of the uid lock file: SP_LOCK_DIR, or rootless the state directory */
	int name_lock_fd;
	int state_lock_fd;
};

/* -EALREADY when another launcher of the instance, or on the state directory, is running. */
int sp_instance_lock(const struct sp_table *table, bool rootless, struct sp_instance *ret_instance,
		     struct sp_err *err);

/* At a clean end, not rootless, every sandbox gone: the files of sp_instance_lock() in lock_dir_fd
 * (borrowed); with the host's last launcher also the uid lock file and the directory. */
void sp_instance_remove(int lock_dir_fd, const char *name);

#endif
