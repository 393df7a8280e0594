/*
 * The store port: what the policy asks of state that is shared between hosts.
 *
 * The supervisor is the authority and the store a directory: everything in it can be lost and is
 * told again, and nothing it answers can make two clients hold one sandbox. Two implementations:
 * memory_store (one host, the embedded default) and redis/ (many hosts). Answers are asynchronous
 * in kind, so that a network may lie between: a call returns 0 (the answer comes by callback, never
 * before the call has returned, except where the memory store documents `answered inline`) or a
 * negative errno.
 *
 * What each call is for:
 *   heartbeat   the host says what it holds and gets its share of max_idle, the operator's
 *               intent (sizes, state, revision) and commands against its sandboxes
 *   publish     a sandbox became ready: it is listed as idle, or granted to a waiter of the whole
 *               cluster at once, or refused because the host is over its share
 *   update      a sandbox left idle (leased locally, killing, gone), or a lease's end moved
 *   meta_set    the operator's resize, drain, destroy: one more revision
 */
#ifndef SP_POOL_STORE_H
#define SP_POOL_STORE_H

#include "pool/base/err.h"
#include "pool/sandbox.h"

enum sp_store_pool_state {
	SP_STORE_ACTIVE,
	SP_STORE_DRAINING,
	SP_STORE_DESTROYING,
	SP_STORE_DESTROYED
};

struct sp_store_meta {
	uint64_t revision; /* 0 = nobody has set anything yet */
	uint32_t max_idle; /* 0 is a real value */
	uint32_t max_total;
	enum sp_store_pool_state state;
};

struct sp_store_counts {
	uint32_t idle;
	uint32_t creating;
	uint32_t leased;
	uint32_t waiters;
	/* The host's configuration: what counts as long as the meta has revision 0. */
	uint32_t configured_max_idle;
	uint32_t configured_max_total;
	/* This host is about to go: nothing more is given to it, what is leased here lives on. */
	bool leaving;
};

struct sp_store_share {
	struct sp_store_meta meta;
	uint32_t share;   /* idle + creating that this host may hold, its waiters' included */
	int64_t valid_ms; /* how long that holds without another heartbeat; INT64_MAX = for ever */
};

enum sp_store_verdict { SP_STORE_LISTED, SP_STORE_GRANTED, SP_STORE_REFUSED };

/* The answer to a publish; all borrowed for the call. */
struct sp_store_listing {
	const char *sandbox_id;
	enum sp_store_verdict verdict;
	const char *lease_id; /* "" unless GRANTED */
	int64_t ttl_ms;       /* GRANTED: life after the claim; 0 = the rest of its idle life */
};

typedef void sp_store_publish_cb(void *arg, const struct sp_store_listing *listing,
				 const struct sp_err *err);

struct sp_store;

/*
 * What the store asks of the pool behind it. A store of one host never does. Called on the loop,
 * never from inside of a call of the store's ops or of the pool's; all ids are borrowed.
 */
struct sp_store_owner {
	/* Visit all that are not gone: a RESYNC and the rotation tell them again. */
	int (*each)(void *arg, int (*visit)(void *visit_arg, const struct sp_sandbox *sandbox),
		    void *visit_arg);
	/* The directory gave one of ours to this lease, age_ms ago. Bound here unless another lease
	 * has it; then an update says who. ttl_ms 0 = the rest of its idle life. */
	void (*granted)(void *arg, const char *sandbox_id, const char *lease_id, int64_t ttl_ms,
			int64_t age_ms);
	/* A command (somebody with the right to wants its end), or a hint (it looks expired,
	 * unclaimed): a hint is checked against our own clock and lease, and answered with an
	 * update when it is wrong, as is a command that names another lease than ours. lease_id ""
	 * = whoever has it; `drained` and `excess` without one spare what is leased. */
	void (*end)(void *arg, const char *sandbox_id, const char *lease_id,
		    enum sp_end_reason reason, bool hint);
	/* The holder asked, through the directory, for this much more from now on. Answered with an
	 * update. It is no claim: that takes the secret. */
	void (*renew)(void *arg, const char *sandbox_id, const char *lease_id, int64_t ttl_ms);
	/* Something there waits for us: heartbeat with the next tick, which is due now. */
	void (*wake)(void *arg);
};

struct sp_store_ops {
	/* The pool that answers for `pool`; NULL owner: it is gone, its callbacks too. The op may
	 * be NULL: a store of one host asks nothing. */
	void (*attach)(struct sp_store *store, const char *pool, const struct sp_store_owner *owner,
		       void *arg);
	/* Register or refresh. cb gets NULL share and err on an outage. */
	int (*heartbeat)(struct sp_store *store, const char *pool,
			 const struct sp_store_counts *counts, int64_t now_ms,
			 void (*cb)(void *arg, const struct sp_store_share *share,
				    const struct sp_err *err),
			 void *arg);
	/* On an outage cb gets LISTED with err set: the sandbox may be handed out locally and is
	 * told again by the rotation. */
	int (*publish)(struct sp_store *store, const char *pool, const struct sp_sandbox *sandbox,
		       int64_t now_ms, sp_store_publish_cb *cb, void *arg);
	/* Fire and forget; the rotation repeats what gets lost. */
	void (*update)(struct sp_store *store, const char *pool, const struct sp_sandbox *sandbox,
		       int64_t now_ms);
	/* expected_revision 0 = whatever is there. -ESTALE through err when another came first. */
	int (*meta_set)(struct sp_store *store, const char *pool, const struct sp_store_meta *meta,
			uint64_t expected_revision, int64_t now_ms,
			void (*cb)(void *arg, const struct sp_store_meta *meta,
				   const struct sp_err *err),
			void *arg);
	bool (*up)(const struct sp_store *store);
	void (*free)(struct sp_store *store);
};

struct sp_store {
	const struct sp_store_ops *ops;
};

/* The embedded store. Answers inline: callbacks run before the call returns. */
int sp_memory_store_new(struct sp_store **ret_store, struct sp_err *err);

#endif
