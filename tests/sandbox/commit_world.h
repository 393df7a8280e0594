/*
 * A sandbox with a base, an isolated session over it, and what is asked of them in tests of
 * commits. The base is /workspace of the sandbox, the session's number is 1.
 */
#ifndef SP_TESTS_COMMIT_WORLD_H
#define SP_TESTS_COMMIT_WORLD_H

#include "tests/sandbox/file_channel.h"

extern struct harness commit_harness;

void commit_set_up(void); /* may skip the test */
void commit_tear_down(void);

/* Output of a shell or python program, in session 1 or, 0, in the sandbox. */
const char *commit_shell(uint32_t session, const char *script);
const char *commit_python(uint32_t session, const char *script);

/* 0 or what SESSION_OPENED says; its stage in *ret_stage (may be NULL). */
int commit_open_session(const char *workspace, const char **ret_stage);
void commit_close_session(void);

/* Everything in a directory: names, kinds, modes, targets, contents, times of files. */
const char *commit_state(uint32_t session, const char *directory);

int commit_ask(uint32_t kind, struct file_reply *ret);
/* Of a directory, without a session. */
int commit_recover_path(const char *path, struct file_reply *ret);

#endif
