/*
 * Isolated sessions of execd: what a create asks for, read and made complete, and the sessions
 * themselves.
 */
#ifndef SP_API_EXECD_ISOLATED_H
#define SP_API_EXECD_ISOLATED_H

#include "supervisor/api/execd.h"
#include "supervisor/daemon/files.h"
#include "supervisor/daemon/isolated.h"

#define SP_ISOLATED_IDLE_MAX_S (7 * 24 * 3600)

/* A create. Zeroed before; everything in it is its own. */
struct sp_isolated_wish {
	json_t *body;
	json_t *echo; /* the parameters, with what was not given filled in */
	struct sp_isolated_spec spec;
	const char *writable[SP_ISOLATED_PATHS_MAX];
	struct sp_isolated_bind binds[SP_ISOLATED_PATHS_MAX];
	const char **env; /* borrowed from the sandbox's */
	size_t envc;
	int64_t idle_timeout_s; /* 0: none */
};

/* err: INVALID_ARGUMENT, UNSUPPORTED, -ENOMEM. */
int sp_isolated_wish_read(struct sp_isolated_wish *wish, const struct sp_os_sandbox *os,
			  const char *body, size_t len, struct sp_err *err);
void sp_isolated_wish_done(struct sp_isolated_wish *wish);

/*
 * A commit of a session's overlay (execd_isolated_commit.c): its changes are written back, then it
 * goes on with an empty upper. It is finished also when its client leaves.
 */
struct sp_isolated_commit;

/* closed: it was committed, and the session cannot go on. */
typedef void sp_isolated_committed_cb(void *arg, bool closed);
/* Answers, now or later. NULL: it was not begun, and cb is not called. */
struct sp_isolated_commit *sp_isolated_commit_start(struct sp_request *request,
						    const struct sp_file_place *place,
						    sp_isolated_committed_cb *cb, void *arg);
/* The session is gone: cb is not called. */
void sp_isolated_commit_orphan(struct sp_isolated_commit *commit);
void sp_isolated_commit_refuse(struct sp_request *request, const struct sp_err *err);

/* Which of these entries go into a session: "deny" with patterns of secrets, "deny" of these names,
 * or "allow" of these. Pure. keys NULL: none were given. */
bool sp_isolated_env_passes(const char *entry, bool allow, const json_t *keys);

#endif
