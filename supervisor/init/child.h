/*
 * The child between clone3 and execve.
 *
 * It shares PID 1's memory and runs beside it. PID 1 fills `struct init_child` and does not touch
 * it until the child has left its memory, by execve or death; the child writes nothing but
 * `progress`, `failed_step` and `status`.
 */
#ifndef SP_INIT_CHILD_H
#define SP_INIT_CHILD_H

#include "pool/base/base.h"

#include <sys/resource.h>
#include <sys/types.h>

#define INIT_CHILD_RLIMITS 6u

enum init_child_step {
	INIT_STEP_SESSION,
	INIT_STEP_NAMESPACES,
	INIT_STEP_TERMINAL,
	INIT_STEP_DESCRIPTORS,
	INIT_STEP_RLIMIT,
	INIT_STEP_USER_NAMESPACE,
	INIT_STEP_CREDENTIALS,
	INIT_STEP_CWD,
	INIT_STEP_SECCOMP,
	INIT_STEP_EXEC,
};

enum init_child_progress {
	INIT_CHILD_PREPARING,
	INIT_CHILD_EXECUTING, /* nothing is left but execve */
	INIT_CHILD_FAILED,    /* failed_step and status say how */
};

struct init_child {
	/* the parent's part */
	int fds[3];     /* numbers >= 3 */
	int proc_fd;    /* rootless: to write its id maps */
	int session_fd; /* pidfd of the session to enter; -1 = none */
	bool tty;
	bool rootless;
	bool direct;
	pid_t parent; /* DIRECT */
	uid_t uid;
	gid_t gid;
	mode_t umask;
	const char *cwd;
	char **argv;
	char **envp;
	const void *filter; /* struct sock_filter[]; NULL in a DIRECT sandbox */
	uint32_t filter_length;
	size_t rlimit_count;

	struct {
		int resource;
		struct rlimit limit;
	} rlimits[INIT_CHILD_RLIMITS];

	/* the child's part */
	volatile enum init_child_progress progress;
	volatile enum init_child_step failed_step;
	volatile int status;
};

/* Entry of the child (raw_clone3); never returns. */
void init_child_main(void *child);

/* In a new user namespace (clone3 made it): the one id there is gets these numbers. The full set of
 * capabilities that comes with it is the caller's to drop. proc_fd: proc, unmasked. No libc call.
 * Negative errno. */
long init_child_map_ids(int proc_fd, uint32_t uid, uint32_t gid);

/* The word for START_FAILED. */
const char *init_child_step_name(enum init_child_step step);

#endif
