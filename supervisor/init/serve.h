/*
 * The loop of PID 1.
 */
#ifndef SP_INIT_SERVE_H
#define SP_INIT_SERVE_H

#include "supervisor/init/init.h"

/* What an event of the epoll set is about. */
enum {
	INIT_EVENT_CONTROL,
	INIT_EVENT_CHILD,
	INIT_EVENT_DEADLINE,
	INIT_EVENT_LIFE,
	INIT_EVENT_SESSIONS, /* two for each: session.c's */
	INIT_EVENT_FILES = INIT_EVENT_SESSIONS + 2 * SP_INIT_SESSIONS_MAX, /* and above: file.c's */
};

/* Watch one more descriptor; init_serve_forget() before it is closed, since others may hold the
 * same open file. 0 or negative errno. */
int init_serve_watch(const struct init *init, int fd, uint64_t event, uint32_t events);
void init_serve_forget(const struct init *init, int fd);

/* Make the epoll set and what is watched from the start. Before the filter; all signals must be
 * blocked. */
int init_serve_open(struct init *init);
/* Serve until the sandbox ends. */
SP_NORETURN void init_serve(struct init *init);

#endif
