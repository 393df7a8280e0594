/*
 * Plays the launcher and sandpoold for sandpool-init: builds a template as init/boot.h describes,
 * clones a process into new namespaces, execs the real init, and speaks init/protocol.h with it.
 * Needs root; init_harness_missing() says why it cannot run.
 */
#ifndef SP_TESTS_INIT_HARNESS_H
#define SP_TESTS_INIT_HARNESS_H

#include "supervisor/init/boot.h"
#include "supervisor/init/protocol.h"

#include <sys/types.h>

#define HARNESS_UID_BASE  1000000u
#define HARNESS_OUTPUT    65536u
#define HARNESS_WAIT_MS   10000
#define HARNESS_WORKLOAD  1000u
#define HARNESS_DIRECT_ID 65534u

struct harness_options {
	bool rootless;
	bool direct;
	const char *oci; /* a profile instead of the built-in filter */
	/* Change the record after it was filled in, before it is sealed. */
	void (*edit)(struct sp_boot *boot);
	size_t cut; /* bytes left out at its end */
	bool unsealed;
	bool masked_proc; /* the template's proc has something on top; direct: there is none */
};

struct harness {
	pid_t launcher; /* the process that plays it; init dies with it */
	pid_t init;     /* on the host */
	int control_fd;
	uint64_t requests;
	uint32_t execs;
};

union harness_answer {
	struct sp_init_header header;
	struct sp_init_status status;
	struct sp_init_exited exited;
	struct sp_init_plain plain;
	struct sp_init_used used;
};

/* What became of one exec. */
struct harness_result {
	bool started;
	int status; /* START_FAILED: errno */
	char stage[32];
	uint32_t code; /* EXITED */
	uint32_t value;
	struct sp_init_exited exited;
	size_t length;
	char output[HARNESS_OUTPUT]; /* stdout and stderr, NUL-terminated */
};

struct harness_exec {
	const char *const *argv;
	const char *const *env; /* NULL: PATH, HOME and TERM */
	const char *cwd;        /* NULL: "/" */
	uint32_t flags;
	uint32_t uid; /* 0: the workload's */
	uint64_t rlimit_nofile;
	uint64_t rlimit_fsize;
	uint64_t rlimit_cpu_s;
	int64_t deadline_boot_ms;
	uint32_t umask; /* 0: 022 */
	uint32_t session;
	int cgroup_fd; /* with SP_EXEC_F_CGROUP */
};

/* NULL, or why sandboxes cannot be made here. */
const char *init_harness_missing(void);

/* Start init and wait for its first answer, in *ret_first. False: it sent none. */
bool harness_start(struct harness *harness, const struct harness_options *options,
		   union harness_answer *ret_first);
/* The same, and it must be READY. */
void harness_ready(struct harness *harness, const struct harness_options *options);
/* Close the control socket, kill what is left, reap. */
void harness_stop(struct harness *harness);

void harness_send(struct harness *harness, const void *record, size_t len, const int *fds,
		  size_t fd_count);
/* The next record: its length, 0 at end of file, -ETIMEDOUT. fd: what came with it, or -1. */
int harness_receive(struct harness *harness, union harness_answer *ret, int *ret_fd,
		    int timeout_ms);
/* The next record, which must be of that type. */
void harness_expect(struct harness *harness, uint32_t type, union harness_answer *ret);

/* Send an EXEC; fds as the protocol orders them (without the strings' one, which is made if the
 * flag is given). Returns its exec number. */
uint32_t harness_exec(struct harness *harness, const struct harness_exec *exec, const int *fds,
		      size_t fd_count);
/* Exec, collect the output, wait for the end. */
void harness_run(struct harness *harness, const struct harness_exec *exec,
		 struct harness_result *ret);
/* harness_run() of /bin/sh -c or python3 -c. */
void harness_shell(struct harness *harness, const char *script, struct harness_result *ret);
void harness_python(struct harness *harness, const char *script, struct harness_result *ret);

/* MOUNT; returns the status, the stage in *ret (may be NULL). */
int harness_mount(struct harness *harness, int mount_fd, const char *target,
		  union harness_answer *ret);
/* A detached clone of a host directory or file, nosuid and nodev, read-only if asked. */
int harness_clone(const char *path, bool read_only);
void harness_signal(struct harness *harness, uint32_t exec, int signal);
/* KILL_EXEC, PING. */
void harness_plain(struct harness *harness, uint32_t type, uint32_t exec);
/* What init has open, by number. */
int harness_count_fds(const struct harness *harness);
/* PING and PONG: returns the ms it took. */
int64_t harness_ping(struct harness *harness);

#endif
