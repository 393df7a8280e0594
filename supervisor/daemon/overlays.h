/*
 * Overlays of a held sandbox: directories of the host that it sees and changes only for itself,
 * until what it has changed is committed. service.h makes them (SP_BIND_OVERLAY), files.h has the
 * diff of one (struct sp_file_place).
 *
 * Nothing of an overlay is committed that a run has written which did not end by itself: timeout,
 * signal, kill, memory, output or a lost client spoil every overlay of its sandbox, for good.
 *
 * Rules as in service.h.
 */
#ifndef SP_DAEMON_OVERLAYS_H
#define SP_DAEMON_OVERLAYS_H

#include "supervisor/daemon/files.h"

#define SP_OVERLAYS_MAX 8u /* of one sandbox, numbered from 1 */

/* Borrowed for the call. */
struct sp_overlay_info {
	uint32_t number;
	const char *source; /* on the host */
	const char *target; /* inside */
	uint64_t size;      /* bytes that may be written */
	bool read_only;     /* it can never be committed: its source may only be read */
	bool ended;         /* its last commit was the last one: it could not be made anew */
	const char *spoilt; /* by whom, for people; NULL: it is clean */
};

/* How many it has: they are numbered from 1. */
int sp_overlay_count(struct sp_service *service, const struct sp_caller *caller, const char *id,
		     uint32_t *ret_count, struct sp_err *err);
/* NOT_FOUND: the sandbox, or it has no such overlay. */
int sp_overlay_get(struct sp_service *service, const struct sp_caller *caller, const char *id,
		   uint32_t number, struct sp_overlay_info *ret_info, struct sp_err *err);

/*
 * Write back what has changed, whole or not at all, and go on with an empty upper on the new base.
 * Refused with CONFLICT, and nothing touched: it is spoilt, something runs in the sandbox, it has
 * isolated sessions, another commit is under way, or somebody else has changed the base since.
 * BIND_REFUSED: the source may only be read. Meanwhile nothing starts in the sandbox (CONFLICT);
 * what earlier runs left behind is killed.
 */
struct sp_overlay_committed {
	uint64_t files;
	uint64_t directories;
	uint64_t deleted;
	uint64_t bytes;
	bool ended; /* as in sp_overlay_info */
};

struct sp_overlay_commit;
typedef void sp_overlay_commit_cb(void *arg, const struct sp_overlay_committed *committed,
				  const struct sp_err *err);
int sp_overlay_commit(struct sp_service *service, const struct sp_caller *caller, const char *id,
		      uint32_t number, sp_overlay_commit_cb *cb, void *arg,
		      struct sp_overlay_commit **ret_commit, struct sp_err *err);
/* No callback; the commit is finished all the same. */
void sp_overlay_commit_forget(struct sp_overlay_commit *commit);

#endif
