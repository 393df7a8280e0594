/*
 * An overlay inside: a directory of the host, frozen below, and a place of its own for everything
 * that is written. Both lie in a private directory of a tmpfs that nobody but uid 0 enters:
 *
 *	PRIVATE/upper   what was written; the workload's to fill, up to the size of the tmpfs
 *	PRIVATE/work    the kernel's
 *	PRIVATE/lower   the base, writable to who may commit: a mount of its own
 *
 * A session has one at /.init. Those of the sandbox itself, late mounts, are at /.init/overlay/N.
 */
#ifndef SP_INIT_OVERLAY_H
#define SP_INIT_OVERLAY_H

#include "supervisor/init/init.h"

#define INIT_OVERLAYS_PATH      INIT_PRIVATE_PATH "/overlay"
#define INIT_OVERLAY_PATH_SPACE 32

/* Where overlay N of the sandbox lies; 0: the session's. */
void init_overlay_path(uint32_t number, char path[INIT_OVERLAY_PATH_SPACE]);

/*
 * The layers in a fresh tmpfs, whose root is private_fd (O_PATH will do) and `path` the place where
 * it is attached, and the overlay: a detached mount. base_fd is a detached mount as well, attached
 * here. Negative errno; -EOPNOTSUPP: the kernel's tmpfs has no user attributes.
 */
int init_overlay_make(int private_fd, const char *path, int base_fd);

#endif
