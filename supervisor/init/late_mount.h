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
/* Before anything that can see the mounts: an overlay's base is frozen from the next tick of the
 * clock on. Nearly always that has come long before; else this waits for it, up to 10 ms. */
void init_late_mount_settle(void);
/* Bytes of memory that hold what was written to the overlays. */
uint64_t init_late_mount_used(void);

#endif
