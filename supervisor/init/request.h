/*
 * Requests of sandpoold (init/protocol.h), checked before anything in them is used.
 *
 * Pure: no system calls. `record` is aligned for the structures and `len` bytes long.
 */
#ifndef SP_INIT_REQUEST_H
#define SP_INIT_REQUEST_H

#include "pool/base/base.h"
#include "supervisor/init/protocol.h"

/* The header of a record of known type with the right length and number of descriptors for that
 * type; else -EBADMSG. Whether an EXEC's or a MOUNT's variable part fits is checked as well. */
int init_request_check(const void *record, size_t len, size_t fd_count);

/* Descriptors that an EXEC of these flags comes with. */
size_t init_request_exec_fds(uint32_t flags);

struct init_strings {
	char *cwd;
	char **argv; /* argc + 1 */
	char **envp; /* envc + 1 */
};

/*
 * Split "cwd, argv[argc], env[envc]", each NUL-terminated, exactly `len` bytes in all. The vectors
 * have room for argc + 1 and envc + 1 pointers; they point into text. -EBADMSG if the count or the
 * length is not right.
 */
int init_request_split(char *text, size_t len, uint32_t argc, uint32_t envc,
		       struct init_strings *strings);

#endif
