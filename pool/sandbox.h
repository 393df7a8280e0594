/*
 * One sandbox as the policy sees it: an id, a state, a reason, a few times. What it is made of
 * (pidfd, control socket, cgroup) is the backend's business and hangs on `backend_data`.
 *
 * States and the only edges between them:
 *
 *	creating → idle → leased → killing → gone
 *	creating → killing, idle → killing
 *
 * All times are milliseconds of CLOCK_BOOTTIME, given by the caller; nothing here reads a clock.
 */
#ifndef SP_POOL_SANDBOX_H
#define SP_POOL_SANDBOX_H

#include "pool/base/id.h"

#define SP_SANDBOX_STATES(X)    \
	X(CREATING, "creating") \
	X(IDLE, "idle")         \
	X(LEASED, "leased")     \
	X(KILLING, "killing")   \
	X(GONE, "gone")

enum sp_sandbox_state {

#define SP_SANDBOX_STATE_ENUM(id, name) SP_SANDBOX_##id,
	SP_SANDBOX_STATES(SP_SANDBOX_STATE_ENUM)
#undef SP_SANDBOX_STATE_ENUM
		SP_SANDBOX_STATE_COUNT
};

#define SP_END_REASONS(X)                 \
	X(NONE, "none")                   \
	X(RELEASED, "released")           \
	X(EXPIRED, "expired")             \
	X(NEAR_EXPIRY, "near_expiry")     \
	X(DISCARDED, "discarded")         \
	X(EXCESS, "excess")               \
	X(DRAINED, "drained")             \
	X(DIED, "died")                   \
	X(CREATE_FAILED, "create_failed") \
	X(SPEC_CHANGED, "spec_changed")   \
	X(LEASE_LOST, "lease_lost")       \
	X(UNCLAIMED, "unclaimed")         \
	X(SHUTDOWN, "shutdown")

enum sp_end_reason {

#define SP_END_REASON_ENUM(id, name) SP_END_##id,
	SP_END_REASONS(SP_END_REASON_ENUM)
#undef SP_END_REASON_ENUM
		SP_END_REASON_COUNT
};

struct sp_pool;

struct sp_sandbox {
	char id[SP_SANDBOX_ID_LEN + 1];
	struct sp_pool *pool; /* borrowed; outlives the sandbox */
	enum sp_sandbox_state state;
	enum sp_end_reason end_reason; /* set when it starts to die */

	int64_t created_ms; /* creation began */
	int64_t ready_ms;   /* became idle or was granted; 0 before */
	int64_t expires_ms; /* while idle: end of its idle life; while leased: end of the lease */
	int64_t killed_ms;  /* the (last) kill was asked for */
	uint32_t kill_attempts;
	uint64_t spec_generation; /* pool's spec when it was created */

	char lease_id[SP_LEASE_ID_LEN + 1]; /* "" unless it is or was leased */
	int64_t leased_ms;
	bool claimed;  /* somebody used it with the secret since it was bound */
	bool ttl_open; /* bound by a claim that named no ttl: the directory may know one */

	void *backend_data; /* the backend's; the pool never looks at it */
};

const char *sp_sandbox_state_name(enum sp_sandbox_state state);
const char *sp_end_reason_name(enum sp_end_reason reason);
/* Is there an edge? Table driven; used by an assertion at the only place that changes a state. */
bool sp_sandbox_edge_allowed(enum sp_sandbox_state from, enum sp_sandbox_state to);

#endif
