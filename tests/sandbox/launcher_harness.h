/*
 * Plays sandpoold for the real sandpool-launcher and sandpool-init: builds tables by hand, speaks
 * launcher/protocol.h, receives the sandboxes. Everything asserts.
 */
#ifndef SP_TESTS_LAUNCHER_HARNESS_H
#define SP_TESTS_LAUNCHER_HARNESS_H

#include "supervisor/init/protocol.h"
#include "supervisor/launcher/protocol.h"
#include "supervisor/launcher/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#define PLAY_GENERATION 7u
#define PLAY_UID_BASE   0x30000000u
#define PLAY_WAIT_MS    15000

#define MUST(condition)                                                                         \
	do {                                                                                    \
		if (!(condition)) {                                                             \
			fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
			abort();                                                                \
		}                                                                               \
	} while (0)

struct play {
	pid_t launcher;
	int fd;
	uint64_t requests;
	char dir[64]; /* of this test: state, configuration, workspaces */
	char instance[32];
	uid_t uid; /* the launcher's; 0 = root */
};

struct play_sandbox {
	char id[SP_SANDBOX_ID_LEN + 4];
	uint32_t slot;
	uint64_t serial;
	int pidfd;
	int control_fd;
	uint32_t host_uid_base;
	uint32_t host_workload_uid;
	uint32_t degraded;
	char cgroup[SP_LAUNCHER_TEXT_MAX];
};

struct play_answer {
	struct sp_launcher_answer record;
	int fds[8];
	size_t fd_count;
};

/* NULL, or why it cannot be done here. */
const char *play_missing(void);

/* Make the directory and a table of `pools` usual pools ("pool0"…). Change it through
 * play_table_pool() before play_start(). */
struct sp_table *play_table(struct play *play, uint32_t pools);
struct sp_table_pool *play_pool(struct sp_table *table, uint32_t index);
/* Write it where the launcher's configuration is. Frees nothing. */
void play_write_table(const struct play *play, const struct sp_table *table);
void play_write_config(const struct play *play, const void *data, size_t size);

/* Fork and exec the launcher; no HELLO yet. */
void play_exec(struct play *play);
/* play_write_table(), play_exec(), HELLO, CONFIG with status 0. */
void play_start(struct play *play, const struct sp_table *table);
/* Close the socket; the launcher must end with status 0 and leave no cgroup. */
void play_stop(struct play *play);
/* Remove the directory. */
void play_clean(struct play *play);

uint64_t play_send(struct play *play, void *record, size_t size);
uint64_t play_command(struct play *play, uint32_t type, uint32_t slot, uint64_t serial,
		      uint32_t value);
uint64_t play_hello(struct play *play);
/* The next answer; fails after PLAY_WAIT_MS. */
void play_receive(struct play *play, struct play_answer *ret);
/* The next answer, which must be of that type and to that request. */
void play_expect(struct play *play, uint32_t type, uint64_t request, struct play_answer *ret);
void play_close(struct play_answer *answer);
/* The next answer must be ERROR or CREATE_FAILED with that errno. */
void play_expect_failure(struct play *play, uint64_t request, int status, struct play_answer *ret);

uint64_t play_create_request(struct play *play, uint32_t pool, struct play_sandbox *ret);
/* CREATED, control socket and pidfd; does not wait for init. */
void play_create(struct play *play, uint32_t pool, struct play_sandbox *ret);
void play_created(struct play *play, uint64_t request, struct play_sandbox *ret);
/* init's first record. */
void play_first_record(const struct play_sandbox *sandbox, struct sp_init_status *ret);
/* play_create() and READY. */
void play_ready(struct play *play, uint32_t pool, struct play_sandbox *ret);
/* KILL and GONE; returns the wait status. */
uint32_t play_kill(struct play *play, struct play_sandbox *sandbox);
/* GONE, however it came. */
uint32_t play_gone(struct play *play, struct play_sandbox *sandbox, uint64_t request);

/* Run /bin/sh -c script inside; returns the exit status, output (cut) in buffer. */
int play_shell(struct play_sandbox *sandbox, const char *script, char *buffer, size_t size);
/* EXEC of it only: exec number, output descriptor. */
int play_exec_shell(struct play_sandbox *sandbox, const char *script, int cgroup_fd);
int play_mount(struct play_sandbox *sandbox, int mount_fd, const char *target);

/* Append to a text in a buffer of that size. */
void play_append(char *text, size_t size, const char *more);

/* Things of the host. */
pid_t play_pid(int pidfd);
int play_fd_count(pid_t pid);
int play_child_count(pid_t pid);
/* Of a launcher: its spawner. */
pid_t play_first_child(pid_t pid);
/* Cgroups of the instance's sandboxes, over all hierarchies. */
int play_cgroups(const struct play *play);
/* Does the instance have any cgroup, its own included? */
bool play_has_cgroups(const struct play *play);
/* Read a file; "" when it cannot be. */
const char *play_read(const char *path, char *buffer, size_t size);
/* The path of a cgroup file of v1 `controller`, or of v2 with "unified". */
void play_cgroup_path(const struct play_sandbox *sandbox, const char *controller, const char *file,
		      char *ret, size_t size);
int play_mount_lines(void);
/* Wait until the pidfd is readable. False after ms. */
bool play_wait_end(int pidfd, int ms);

#endif
