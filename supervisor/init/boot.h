/*
 * What a fresh sandbox starts from, given by the launcher before init runs.
 *
 * The launcher's child, already in new user, pid and mount namespaces: writes "0" into the
 * cgroup.procs descriptors it inherited (so the slow part of an attach is paid by the child, never
 * by the launcher), closes everything but the four below, waits for one byte of GO on the control
 * socket (the launcher has written the id maps), becomes id 0 of its namespace, sets
 * PDEATHSIG = SIGKILL, checks with the life pipe that the launcher still lives, and execs init.
 * Signal dispositions are the default: the launcher saw to it when it started.
 *
 *	fd 3  control socket (SOCK_SEQPACKET); the other end goes to sandpoold
 *	fd 4  boot record: sealed, read-only memfd, one per pool
 *	fd 5  life pipe, read end: hangs up when the launcher dies
 *	fd 6  uid slot lock (shared open file description; only held, never used)
 *
 * The mount namespace that init wakes up in holds nothing of the host but the template:
 *
 *	/proc            the host's proc, unmasked (only so that a new proc may be mounted)
 *	/scratch         an empty directory: the sandbox's tmpfs goes here
 *	/newroot         an empty directory: the new root goes here
 *	/empty/dir, /empty/file   sources of masks, read-only
 *	/pools/<n>/<i>   mount number i of pool n (BIND: its source, TREE: the finished tree), a
 *	                 directory or a file, read-only, nosuid, nodev
 *	/pools/<n>/dev   the minimal /dev: null zero full random urandom tty (mknod'ed as root,
 *bound rootless), links fd stdin stdout stderr ptmx, directories pts and shm
 *
 * All of it is locked (it came from a more privileged mount namespace), so a mask cannot be taken
 * off even by root of the sandbox's user namespace.
 */
#ifndef SP_INIT_BOOT_H
#define SP_INIT_BOOT_H

#include "supervisor/launcher/table.h"

#define SP_BOOT_FD_CONTROL 3
#define SP_BOOT_FD_RECORD  4
#define SP_BOOT_FD_LIFE    5
#define SP_BOOT_FD_LOCK    6

#define SP_BOOT_MAGIC 0x73706242u

/* The record: a header, the pool's table record, then the two filters' bytes. */
struct sp_boot {
	uint32_t magic;
	uint32_t pool_index; /* n of /pools/<n> */
	uint64_t build_id;
	uint64_t size;          /* of the whole record */
	uint64_t filter_offset; /* from the start of the record */
	uint64_t exec_filter_offset;
	uint32_t filter_length;
	uint32_t exec_filter_length;
	uint32_t rootless; /* 1: one-uid map; workloads get a nested user namespace */
	uint32_t reserved;
	/* mount i is not init's: an optional source was missing, or it is part of a tree */
	uint8_t absent[SP_TABLE_MOUNTS_MAX];
	struct sp_table_pool pool; /* without roots: zeroed, init has no use for host paths */
};

#endif
