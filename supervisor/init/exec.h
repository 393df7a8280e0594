/*
 * The programs of a sandbox: at most SP_INIT_EXECS_MAX slots.
 *
 *	free → starting → running → free          STARTED, EXITED; or EXITED alone
 *	         ├─► failed → free                  START_FAILED when it is reaped
 *	         └─► leaving → free                 START_FAILED at once, after a second
 */
#ifndef SP_INIT_EXEC_H
#define SP_INIT_EXEC_H

#include "supervisor/init/init.h"

#include <sys/resource.h>

/* Before the filter: what the first program would otherwise wait for. */
int init_exec_open(struct init *init);

/* Start what a checked EXEC record asks for. Takes the descriptors. Answers by itself:
 * START_FAILED now or later, else STARTED or EXITED. */
void init_exec_start(struct init *init, const struct sp_init_exec *request, int *fds,
		     size_t fd_count);

/* A child was reaped: if it is the main process of a slot, answer. */
void init_exec_reaped(struct init *init, pid_t pid, int wait_status, const struct rusage *usage);

/* See what has got to its execve, kill what should have by now. Returns in how many ms to look
 * again, -1: nothing is starting. */
int init_exec_look(struct init *init);

/* SIGNAL, for a running or starting exec; one that is not there has just ended. */
void init_exec_signal(uint32_t exec, int signal);

/* How many are starting or running, and whether `exec` is one of them. */
unsigned int init_exec_count(void);
bool init_exec_known(uint32_t exec);
/* The pidfd of the session that it runs in; -1: none. */
int init_exec_session(uint32_t exec);

#endif
