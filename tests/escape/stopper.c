/*
 * Payload: `stopper SECONDS` stops and continues every process that it may signal, over and over. A
 * PID 1 that waits for its child between fork and exec (vfork does) hangs for ever when the child
 * is stopped there.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

int main(int argc, char **argv)
{
	long long end = now_ms() + 1000 * strtoll(argc > 1 ? argv[1] : "10", NULL, 10);
	const struct timespec gap = {.tv_nsec = 200000};

	puts("stopping");
	fflush(stdout);
	while (now_ms() < end) {
		kill(-1, SIGSTOP);
		nanosleep(&gap, NULL);
		kill(-1, SIGCONT);
		nanosleep(&gap, NULL);
	}
	return 0;
}
