/*
 * What a sandbox starts from: for each pool a mount namespace of its own that holds nothing of the
 * host but the pool's read-only sources (layout in init/boot.h), and init's boot record. The
 * spawner enters the namespace before it clones, so a clone copies that pool's few mounts and
 * nothing else; closing the descriptor is all it takes to drop one.
 */
#ifndef SP_LAUNCHER_TEMPLATE_H
#define SP_LAUNCHER_TEMPLATE_H

#include "supervisor/launcher/table.h"

struct sp_template {
	int ns_fd;   /* -1 for backend "direct" */
	int boot_fd; /* sealed memfd with struct sp_boot */
};

/* Leave the host's file system for a small tmpfs with the host's /proc and, rootless, its device
 * nodes. Unshares the calling process's mount namespace; *ret_ns_fd is the new one. */
int sp_template_leave_host(bool rootless, int *ret_ns_fd, struct sp_err *err);

/* Build pool number `pool`; source_fd delivers its binds. Returns in base_ns_fd's namespace. */
int sp_template_build(const struct sp_table *table, uint32_t pool, int source_fd, int base_ns_fd,
		      bool rootless, bool one_id, struct sp_template *ret_template,
		      struct sp_err *err);

void sp_template_done(struct sp_template *template);

#endif
