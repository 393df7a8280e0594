/*
 * MOUNT: a detached mount (workspace, layer, overlay) made by the launcher is attached in the
 * running sandbox.
 */
#ifndef SP_INIT_LATE_MOUNT_H
#define SP_INIT_LATE_MOUNT_H

#include "supervisor/init/init.h"

/* target: as it came, NUL-terminated. mount_fd is borrowed. 0, or a negative errno with the stage
 * of MOUNTED in *ret_stage. */
int init_late_mount(const struct init *init, const char *target, int mount_fd,
		    const char **ret_stage);

#endif
