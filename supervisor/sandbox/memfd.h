/*
 * Memory files that change hands once and then never change: made, filled, sealed by one side,
 * checked and mapped by the other.
 */
#ifndef SP_SANDBOX_MEMFD_H
#define SP_SANDBOX_MEMFD_H

#include "pool/base/err.h"

/* An empty one that may be sealed, close-on-exec. Returns it or a negative errno. */
int sp_memfd_new(const char *name);

/* Forbid every further change. 0 or negative errno. */
int sp_memfd_seal(int fd);

/* True when nobody can change it any more. */
bool sp_memfd_sealed(int fd);

/* A sealed copy of a program that can be executed by descriptor: /proc/<pid>/exe then leads to
 * memory that no one can write, never to the host's file (CVE-2019-5736). */
int sp_memfd_program(const char *path, int *ret_fd, struct sp_err *err);

/* Map a sealed file read-only. -EPERM when it is not sealed, -EFBIG above size_max, -ENODATA when
 * it is empty. The mapping is the caller's (munmap). */
int sp_memfd_map(int fd, size_t size_max, const void **ret_data, size_t *ret_size,
		 struct sp_err *err);

#endif
