/*
 * sandpool: the command line program. Everything is in cli.c and the verbs, so that tests can call
 * it; here only what belongs to the process: a closed pipe is an error of a write, not our end.
 */
#include <signal.h>

#include "supervisor/cli/cli.h"

int main(int argc, char **argv)
{
	(void)signal(SIGPIPE, SIG_IGN);
	return sp_cli_main(argc, argv, NULL);
}
