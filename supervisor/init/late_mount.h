/*
 * MOUNT: a detached mount (workspace, layer, overlay) made by the launcher is attached in the
 * running sandbox.
 */
#ifndef SP_INIT_LATE_MOUNT_H
#define SP_INIT_LATE_MOUNT_H

#include "supervisor/init/init.h"
#include "supervisor/init/protocol.h"

/* request: checked, with its target behind it. mount_fd is borrowed. 0, or a negative errno with
 * the stage of MOUNTED in *ret_stage. */
int init_late_mount(const struct init *init, const struct sp_init_mount *request, int mount_fd,
		    const char **ret_stage);

#endif
