/*
 * Payload: `storm COUNT [SECONDS]` forks COUNT children that sleep and prints how many it got, the
 * errno that stopped it, and stays for SECONDS so that others can look at the crowd. The children
 * end with it.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	long count = argc > 1 ? strtol(argv[1], NULL, 10) : 400;
	long seconds = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
	pid_t parent = getpid();
	long made = 0;
	int stopped_by = 0;

	for (; made < count; made++) {
		pid_t child = fork();

		if (child < 0) {
			stopped_by = errno;
			break;
		}
		if (child == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (getppid() == parent)
				pause();
			_exit(0);
		}
	}
	printf("%ld %d\n", made, stopped_by);
	fflush(stdout);
	sleep((unsigned int)seconds);
	return 0;
}
