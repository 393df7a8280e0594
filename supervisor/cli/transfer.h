/*
 * Bodies too large to hold: a file to the daemon, a file from it.
 */
#ifndef SP_CLI_TRANSFER_H
#define SP_CLI_TRANSFER_H

#include "supervisor/cli/client.h"

/*
 * PUT what `fd` gives: `size` bytes (an end before that is an error, and then the daemon keeps
 * nothing of it), or with size < 0 everything up to its end. 0, -EREMOTEIO with the daemon's words,
 * or other negative errno.
 */
int sp_cli_transfer_put(const struct sp_cli_client *client, const char *target, int fd,
			int64_t size, struct sp_err *err);

/* GET into `take`, piece by piece. It gets nothing unless the daemon has the file; an error after
 * that means that what it got is not whole. */
int sp_cli_transfer_get(const struct sp_cli_client *client, const char *target,
			int (*take)(void *arg, const char *data, size_t len, struct sp_err *err),
			void *arg, struct sp_err *err);

#endif
