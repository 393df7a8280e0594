/*
 * sandpool-remote: sandpool with Redis and TLS. Not called by people; `sandpool` becomes it.
 */
#include <signal.h>

#include "supervisor/cli/cli.h"
#include "supervisor/cli/remote/link.h"

static const struct sp_cli_remote remote = {
	.redis_open = sp_cli_link_open,
	.redis_fcall = sp_cli_link_fcall,
	.redis_command = sp_cli_link_command,
	.redis_close = sp_cli_link_close,
	.tls_open = sp_cli_tls_open,
	.lease_id = sp_cli_lease_id,
};

int main(int argc, char **argv)
{
	int exit_code;

	(void)signal(SIGPIPE, SIG_IGN);
	exit_code = sp_cli_main(argc, argv, &remote);
	sp_cli_tls_join();
	return exit_code;
}
