/*
 * Handing over to sandpool-remote (remote.h). It is looked for beside this program, where a build
 * leaves it, then where `install` puts it; never in PATH.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "supervisor/cli/cli.h"

#define REMOTE_NAME "sandpool-remote"

static void try_beside_us(char *const *argv)
{
	char path[PATH_MAX + sizeof(REMOTE_NAME)];
	ssize_t len = readlink("/proc/self/exe", path, PATH_MAX);
	char *slash;

	if (len <= 0)
		return;
	path[len] = '\0';
	slash = strrchr(path, '/');
	if (!slash)
		return;
	memcpy(slash + 1, REMOTE_NAME, sizeof(REMOTE_NAME));
	(void)execv(path, argv);
}

int sp_cli_become_remote(const struct sp_cli *cli, struct sp_err *err)
{
	int first;

	try_beside_us(cli->argv_given);
	first = errno;
	(void)execv(SP_CLI_LIBEXEC_DIR "/" REMOTE_NAME, cli->argv_given);
	if (errno == ENOENT)
		errno = first;
	return sp_err_set(err, -errno,
			  "start '" REMOTE_NAME
			  "', which speaks to Redis and over TLS, beside this "
			  "program or in '" SP_CLI_LIBEXEC_DIR "'");
}
