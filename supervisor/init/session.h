/*
 * Isolated sessions: namespaces inside the sandbox's.
 *
 *	free ──OPEN──► opening ──report──► open ──┐
 *	  ▲               └──failed, CLOSE────────┴──PID 1 of it dead──► ENDED, free
 *
 * Each has a first process that init forks, in namespaces of its own and with memory of its own: it
 * builds the mounts (session_root.c), gives up what it can do, says that it is ready and from then
 * on only reaps. What runs in a session are children of init all the same, born in the session's
 * pid namespace, which enter the others by its pidfd. They have the workload's ids and filter.
 *
 * Two sessions have the same ids. They cannot see, signal, stop or trace each other, because
 * neither's processes have a number in the other's pid namespace, and what each may write is
 * mounted in its own mount namespace only.
 */
#ifndef SP_INIT_SESSION_H
#define SP_INIT_SESSION_H

#include "supervisor/init/init.h"

#include <sched.h>
#include <signal.h>

/* What a child enters; into the pid namespace it is born. */
#define INIT_SESSION_NAMESPACES \
	(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP | CLONE_NEWNET)

/* What a checked record asks for. Answers SESSION_OPENED now or later. */
void init_session_open(struct init *init, const struct sp_init_session_open *request);
/* Kill all that is in it; SESSION_ENDED, or a failed SESSION_OPENED, tells. */
void init_session_close(uint32_t number);
/* Bytes of memory that hold what is private to the open ones. */
uint64_t init_session_used(const struct init *init);
/* An event of the epoll set from INIT_EVENT_SESSIONS on, which is 0 here. */
void init_session_event(struct init *init, uint64_t event);

/* Borrowed; -ESRCH: no such session, or it is not open. */
int init_session_pidfd(uint32_t number);
unsigned int init_session_count(void);
/* Everything in it but its first process. */
void init_session_kill(int session_fd);
#define INIT_SESSION_KILL SIGUSR1 /* to the first process */

/* Children that init makes between these two are born in the session's pid namespace. */
int init_session_children(struct init *init, int session_fd);
void init_session_children_end(struct init *init);

/* The first process of a session, in its new namespaces. Reports on report_fd. */
SP_NORETURN void init_session_first(struct init *init, const struct sp_init_session_open *request,
				    int report_fd);

/* What it reports, once. */
struct init_session_report {
	int32_t status; /* 0 or negative errno */
	char stage[32];
};

#endif
