/*
 * Making detached mounts and attaching them at places named by a path inside another root.
 *
 * Targets are never followed through a symlink and never leave their root; what is attached is
 * named by a descriptor, so that nothing can change between the check and the mount.
 */
#ifndef SP_SANDBOX_MOUNT_ATTACH_H
#define SP_SANDBOX_MOUNT_ATTACH_H

#include "pool/base/base.h"

#include <sys/types.h>

/* A setting of a new file system: key=value; value NULL for a flag. */
struct sp_mount_option {
	const char *key;
	const char *value;
};

/* The descriptors returned by all of these are close-on-exec and belong to the caller. */

/* A new superblock, detached. attributes: MOUNT_ATTR_*. Returns its mount or a negative errno. */
int sp_mount_new(const char *type, const struct sp_mount_option *options, size_t count,
		 unsigned int attributes);

/* A detached clone of what `path` names below dir_fd ("" = dir_fd itself). */
int sp_mount_clone(int dir_fd, const char *path, bool recursive);

/* Attach a detached mount on top of what target_fd (O_PATH) names. 0 or negative errno. */
int sp_mount_attach(int mount_fd, int target_fd);

/* The same on one component below an O_PATH directory, with nothing followed. -ENOENT, -EINVAL (a
 * directory on something else, or the reverse). */
int sp_mount_attach_at(int mount_fd, int dir_fd, const char *name);

/* An O_PATH descriptor of `path` (absolute or relative) taken from root_fd as its root.
 * -ENOENT, -ENOTDIR, -ELOOP (a symlink). */
int sp_mount_resolve(int root_fd, const char *path);

/* The same, but what is missing is made: directories 0755, the last component as a file if
 * is_file. */
int sp_mount_point(int root_fd, const char *path, bool is_file);

/* One component below an O_PATH directory: opened, with nothing followed. -ENOENT, … */
int sp_mount_step(int dir_fd, const char *name);

/* Make one directory or empty file; one that exists already is fine. 0 or negative errno. */
int sp_mount_make(int dir_fd, const char *name, bool is_file);

/*
 * Take the next component off *path: copies it to name (room for NAME_MAX + 1), leaves *path at
 * what follows. 1 = one was copied, 0 = there is none left, -EINVAL = "." or "..", -ENAMETOOLONG.
 */
int sp_mount_component(const char **path, char *name);

#endif
