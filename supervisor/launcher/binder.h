/*
 * The binder: opens one bind source at a time below an allow-listed root and makes a detached mount
 * of it. A process of its own in the host's mounts, because opening may hang for ever on a dead
 * file server; main gives each job a deadline and replaces a binder that misses it.
 *
 * main → binder: struct sp_bind_job (up to the path's NUL) with the root's O_PATH descriptor
 * binder → main: struct sp_bind_result, on success with the mount
 */
#ifndef SP_LAUNCHER_BINDER_H
#define SP_LAUNCHER_BINDER_H

#include "supervisor/launcher/protocol.h"

struct sp_bind_job {
	uint32_t read_only;
	uint32_t recursive; /* the root's submounts are taken along */
	uint32_t overlay;
	uint32_t host_uid; /* whom the source's owner becomes: host ids of the workload */
	uint32_t host_gid;
	uint32_t path_length; /* 0: the root itself */
	char path[SP_BIND_PATH_MAX];
};

struct sp_bind_result {
	int32_t status;
	uint32_t unfinished; /* a commit was cut off there */
	char stage[32];
	char text[SP_LAUNCHER_TEXT_MAX];
};

/* The process's whole life. Returns the exit status. */
int sp_binder_run(int socket_fd, bool rootless);

#endif
