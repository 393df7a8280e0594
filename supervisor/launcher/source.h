/*
 * Sources of one table: the host's directories and files that its pools bind, and the roots of
 * allowed binds. A process of its own opens them, because a dead file server may never answer; main
 * gives it a deadline. It has opened everything before it says READY, so that the spawner, which
 * then fetches the mounts from it, can never wait.
 *
 * sources → main:    struct sp_source_root with the root's O_PATH descriptor (none if it is
 *                    missing), one for each root in order; struct sp_source_ready at the end
 * sources → spawner: struct sp_source_mount with the detached mount (none if absent), one for each
 *                    BIND of each pool in order
 */
#ifndef SP_LAUNCHER_SOURCE_H
#define SP_LAUNCHER_SOURCE_H

#include "supervisor/launcher/table.h"

enum sp_source_type { SP_SOURCE_ROOT = 1, SP_SOURCE_READY };

struct sp_source_root {
	uint32_t type;
	uint32_t pool;
	uint32_t root;
	int32_t status; /* of opening it */
};

struct sp_source_ready {
	uint32_t type;
	int32_t status;
	char text[SP_ERR_MESSAGE_MAX];
};

struct sp_source_mount {
	uint32_t pool;
	uint32_t mount;
	uint32_t absent;
	uint32_t is_file;
};

/* The process's whole life: open, report, hand out, end. Returns the exit status. */
int sp_source_run(const struct sp_table *table, int main_fd, int spawner_fd, bool rootless);

/* Spawner's side: fetch the next mount, which must be this one. *ret_fd is -1 when absent. */
int sp_source_fetch(int fd, uint32_t pool, uint32_t mount, struct sp_source_mount *ret_mount,
		    int *ret_fd, struct sp_err *err);

#endif
