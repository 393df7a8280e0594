/*
 * The pool from inside: its tables and who may change them. For pool/ only.
 *
 * A sandbox is one `struct sp_entry`, from the call to the backend's create until gone. It is in
 *   by_id        always
 *   all          always, in order of creation
 *   timers       always; the key is what is next for it: creation deadline, refresh or end of its
 *                idle life, end of its lease, the next kill
 *   place        while creating: `creating`; while idle one of
 *                  unlisted   the store's verdict is outstanding; not dispensed
 *                  idle       the normal place
 *                  aging      within refresh_margin of its end: dispensed first, being replaced
 *
 * The arithmetic of sizes, used by reconcile.c:
 *   fresh     idle that nobody is replacing        retiring   aging (+ unlisted ones so)
 *   warming   creating and promised to nobody      demand     waiters of policy `wait`
 *   allotment this host's part of max_idle
 *   fresh + warming <= allotment + demand          what replenish fills up to and shrink enforces
 *   fresh + retiring <= allotment                  held whenever a sandbox becomes idle
 *
 * Clients' callbacks run when the outermost entry point leaves (sp_pool_leave), so that they find
 * consistent tables and may call any entry point.
 */
#ifndef SP_POOL_PRIVATE_H
#define SP_POOL_PRIVATE_H

#include "pool/base/heap.h"
#include "pool/base/id.h"
#include "pool/base/list.h"
#include "pool/base/map.h"
#include "pool/pool.h"
#include "pool/store.h"

#define SP_KILL_RETRY_MAX_MS (60 * SP_MS_PER_S)

struct sp_lease;

struct sp_entry {
	struct sp_sandbox sandbox;
	struct sp_map_link by_id;
	struct sp_list by_age;
	struct sp_list place;
	struct sp_heap_node timer;
	struct sp_lease *lease;          /* while leased */
	struct sp_acquire *reserved_for; /* while creating: who gets it */
	bool direct; /* begun for one caller: counts as such until ready or gone */
	bool unlisted;
	bool retiring;          /* idle and being replaced */
	uint64_t backoff_epoch; /* of the pool when creation began */
	int64_t ending_ms;      /* it became killing */
	int64_t life_ms;        /* what remained at hand-out */
};

/* A lease that holds a sandbox, or the tombstone of one that did. */
struct sp_lease {
	char id[SP_LEASE_ID_LEN + 1];
	struct sp_map_link by_id;
	struct sp_list grave;   /* in pool->tombstones, in order of end */
	struct sp_entry *entry; /* NULL: a tombstone */
	enum sp_acquire_policy policy;
	int64_t ttl_ms;
	bool foreign; /* asked for through the directory: with which policy is not known here */
	bool renewed;
	int64_t claimed_ms;
	int64_t ended_ms;
};

struct sp_acquire {
	struct sp_pool *pool;
	struct sp_acquire_request request;
	sp_acquire_cb *cb;
	void *arg;
	int64_t started_ms;
	bool finished;       /* answered: in pool->finished, else in pool->waiting */
	struct sp_list link; /* waiting or finished */
	struct sp_list
		needing;     /* in pool->needing: a create policy without a creation of its own */
	struct sp_list same; /* ring of the waiters with the same lease id */
	struct sp_map_link by_lease; /* one of the ring is in the map */
	struct sp_heap_node deadline;
	struct sp_entry *creation; /* its own */
	struct sp_lease *lease;    /* made beforehand, so that granting cannot fail */
	struct sp_acquire_result result;
	struct sp_err err; /* status 0: granted */
};

struct sp_health {
	bool degraded;
	bool circuit_open;
	uint32_t failure_count;
	uint32_t step;  /* of the backoff */
	uint64_t epoch; /* rises with each step: failures of older creations add none */
	int64_t backoff_until_ms;
	char last_error[SP_POOL_ERROR_MAX];
};

/* Stays when the pool is freed while the store owes an answer. */
struct sp_store_link {
	struct sp_pool *pool; /* NULL: freed */
	uint32_t refs;
};

struct sp_directory {
	struct sp_store_link *link;
	struct sp_store_meta meta; /* the newest seen */
	uint32_t allotment;
	uint32_t waiters_told; /* in the last heartbeat */
	bool heartbeat_pending;
	bool meta_unsent; /* our intent did not get through: again with the next heartbeat */
	enum sp_store_pool_state intent;
	int64_t heartbeat_ms; /* next one */
};

struct sp_pool {
	struct sp_pool_config config;
	struct sp_pool_ports ports;
	uint64_t random;
	int64_t now_ms; /* latest seen */
	uint32_t depth; /* of entry points */
	bool delivering;
	bool wake; /* a tick is due now */

	enum sp_pool_lifecycle lifecycle;
	int64_t drain_until_ms;
	bool shut_down;
	bool destroying_here; /* we began it: we write the tombstone when all are gone */
	uint32_t max_idle;    /* in force: the operator's, else the configuration's */
	uint32_t max_total;

	struct sp_map by_id;
	struct sp_list all;
	struct sp_heap timers;
	struct sp_list creating;
	struct sp_list unlisted;
	struct sp_list idle;
	struct sp_list aging;
	uint32_t count[SP_SANDBOX_STATE_COUNT];
	uint32_t retiring; /* of the idle ones */
	uint32_t reserved; /* of the creating ones */
	uint32_t direct;

	struct sp_map by_lease;
	struct sp_list tombstones;
	uint32_t tombstone_count;

	struct sp_list waiting; /* oldest first */
	struct sp_list needing;
	struct sp_list finished;
	struct sp_map waiting_by_lease;
	struct sp_heap deadlines;
	uint32_t waiter_count;
	uint32_t queued; /* of them: without a creation of their own */
	uint32_t demand;

	double tokens;
	int64_t tokens_ms;
	struct sp_health health;
	struct sp_directory directory;

	uint64_t created_total;
	uint64_t create_failures_total;
	uint64_t ends_total[SP_END_REASON_COUNT];
};

/* pool.c */

/* Every public entry point that may finish an acquire stands between these two. Returns the time
 * to use: the latest seen. */
int64_t sp_pool_enter(struct sp_pool *pool, int64_t now_ms);
/* The outermost one runs the callbacks of finished acquires. */
void sp_pool_leave(struct sp_pool *pool);
/* For entry points that must not run callbacks. */
int64_t sp_pool_at(struct sp_pool *pool, int64_t now_ms);
uint64_t sp_pool_random(struct sp_pool *pool, uint64_t bound); /* 0 … bound - 1; bound >= 1 */
uint32_t sp_pool_total(const struct sp_pool *pool);
int64_t sp_time_add(int64_t now_ms, int64_t span_ms); /* saturates */

/* lifecycle.c */
void sp_pool_stopped_check(struct sp_pool *pool, int64_t now_ms);
/* What a newer revision in the store asks for. */
void sp_pool_adopt(struct sp_pool *pool, const struct sp_store_meta *meta, int64_t now_ms);

/* entry.c */

/* Begin a creation, for `reserved_for` or (NULL) for the pool. -ENOMEM or the backend's refusal;
 * counted as a failure. */
int sp_entry_create(struct sp_pool *pool, struct sp_acquire *reserved_for, int64_t now_ms,
		    struct sp_err *err);
void sp_entry_unreserve(struct sp_entry *entry);
/* The only place that changes a state; keeps the tables. */
void sp_entry_set_state(struct sp_entry *entry, enum sp_sandbox_state state);
/* → killing. ask: ask the backend at once; false leaves that to the next tick (the path of a
 * caller never waits for a kill). Nothing happens to one that is killing already. */
void sp_entry_end(struct sp_entry *entry, enum sp_end_reason reason, int64_t now_ms, bool ask);
void sp_entry_kill(struct sp_entry *entry, int64_t now_ms);
/* A creation went wrong: tell health and the caller it was for, then end it. */
void sp_entry_create_failed(struct sp_entry *entry, const char *stage, bool permanent,
			    const struct sp_err *err, int64_t now_ms, bool ask);
/* Ready and wanted by nobody: stays idle, unless that exceeds the allotment. */
void sp_entry_settle(struct sp_entry *entry, int64_t now_ms);
/* End replaced ones until idle fits the allotment: the "break" of make-before-break. */
void sp_entry_end_replaced(struct sp_pool *pool, int64_t now_ms);
/* The store has listed it. */
void sp_entry_list(struct sp_entry *entry);
void sp_entry_retire(struct sp_entry *entry);
/* The timer of an idle one, from its expiry and the configuration. */
void sp_entry_set_idle_timer(struct sp_entry *entry);

static inline struct sp_entry *sp_entry_of(struct sp_sandbox *sandbox)
{
	return SP_CONTAINER_OF(sandbox, struct sp_entry, sandbox);
}

static inline int64_t sp_entry_remaining(const struct sp_entry *entry, int64_t now_ms)
{
	return entry->sandbox.expires_ms - now_ms;
}

/* lease.c */
struct sp_lease *sp_lease_new(const struct sp_acquire_request *request);
void sp_lease_free(struct sp_lease *lease);
/* Takes lease. age_ms: how much of claim_timeout has passed already. */
void sp_lease_bind(struct sp_lease *lease, struct sp_entry *entry, int64_t age_ms, int64_t now_ms);
/* The directory tells for how long the lease was asked. Counts once, and only for one that was
 * claimed before. */
void sp_lease_learn_ttl(struct sp_entry *entry, int64_t ttl_ms);
/* Its end moved although nobody here asked for that: tell whoever enforces it too. */
void sp_lease_moved(const struct sp_entry *entry);
/* Its sandbox ends: leave a tombstone. */
void sp_lease_end(struct sp_entry *entry, int64_t now_ms);
struct sp_lease *sp_lease_find(struct sp_pool *pool, const char *lease_id);
void sp_lease_drop_oldest(struct sp_pool *pool);
void sp_lease_prune(struct sp_pool *pool, int64_t now_ms);
/* If the lease's end has passed: ends the sandbox and returns true. */
bool sp_lease_lapsed(struct sp_entry *entry, int64_t now_ms, bool ask);

/* wait_queue.c */
int sp_wait_enqueue(struct sp_pool *pool, const struct sp_acquire_request *request,
		    sp_acquire_cb *cb, void *arg, int64_t now_ms, struct sp_acquire **ret_acquire,
		    struct sp_err *err);
struct sp_acquire *sp_wait_find(struct sp_pool *pool, const char *lease_id);
/* Give it to the oldest live waiter that it is good enough for. */
bool sp_wait_offer(struct sp_entry *entry, int64_t now_ms);
/* Give it to this one and to all that ask with the same lease id. result: the word for metrics. */
void sp_wait_grant(struct sp_acquire *acquire, struct sp_entry *entry, const char *result,
		   int64_t now_ms);
void sp_wait_fail(struct sp_acquire *acquire, const struct sp_err *err, const char *result,
		  int64_t now_ms);
void sp_wait_fail_all(struct sp_pool *pool, const struct sp_err *err, const char *result,
		      int64_t now_ms);
void sp_wait_expire(struct sp_pool *pool, int64_t now_ms);
void sp_wait_own_creation(struct sp_acquire *acquire, struct sp_entry *entry);
void sp_wait_lose_creation(struct sp_acquire *acquire);
/* It never began to wait: no callback, nothing reported. */
void sp_wait_drop(struct sp_acquire *acquire);
void sp_wait_deliver(struct sp_pool *pool);
/* The sandbox goes before its grant was delivered. */
void sp_wait_forget(struct sp_pool *pool, const struct sp_sandbox *sandbox);

/* acquire.c */
int sp_acquire_refuse_lifecycle(const struct sp_pool *pool, struct sp_err *err,
				const char **ret_result);
/* sandbox NULL: refused. */
void sp_acquire_report(struct sp_pool *pool, enum sp_acquire_policy policy, const char *result,
		       int64_t waited_ms, const struct sp_sandbox *sandbox, int64_t remaining_ms,
		       int64_t now_ms);
int64_t sp_acquire_minimum(const struct sp_pool *pool, const struct sp_acquire_request *request);
bool sp_acquire_policy_creates(enum sp_acquire_policy policy);

/* reconcile.c */
void sp_reconcile(struct sp_pool *pool, int64_t now_ms);
/* When the reconciler could next do something that no timer covers. */
int64_t sp_reconcile_next_ms(const struct sp_pool *pool);
/* May a creation for one caller begin now? */
bool sp_reconcile_direct_room(const struct sp_pool *pool);
void sp_reconcile_take_token(struct sp_pool *pool, int64_t now_ms);
/* Before the rate or the burst changes. */
void sp_reconcile_settle_tokens(struct sp_pool *pool, int64_t now_ms);
void sp_reconcile_reset_tokens(struct sp_pool *pool, int64_t now_ms);

/* health.c */
void sp_health_failed(struct sp_pool *pool, uint64_t epoch, const char *stage, bool permanent,
		      const struct sp_err *err, int64_t now_ms);
void sp_health_succeeded(struct sp_pool *pool);
/* Try again at once; what is known of its health stays. */
void sp_health_reset_backoff(struct sp_pool *pool);
/* May the pool create for itself? */
bool sp_health_permits(const struct sp_pool *pool, int64_t now_ms);
/* May it create for one caller? Only an open circuit says no. */
bool sp_health_permits_direct(const struct sp_pool *pool, int64_t now_ms);

/* directory.c: the store */
int sp_directory_init(struct sp_pool *pool);
void sp_directory_done(struct sp_pool *pool);
int64_t sp_directory_next_ms(const struct sp_pool *pool);
void sp_directory_tick(struct sp_pool *pool, int64_t now_ms);
void sp_directory_heartbeat(struct sp_pool *pool, int64_t now_ms);
/* Tell the store our sizes and this state; again later if it is away. Returns whether it was
 * told (or the telling is under way). */
bool sp_directory_intent(struct sp_pool *pool, enum sp_store_pool_state state, int64_t now_ms);
void sp_directory_publish(struct sp_entry *entry, int64_t now_ms);
void sp_directory_update(struct sp_entry *entry, int64_t now_ms);

/* owner.c: what the store asks of us */
extern const struct sp_store_owner sp_owner;
/* The directory gave this idle one to a lease: bind it, and answer whoever waits for that lease
 * here. False: that lease has, or had, another sandbox of ours, or memory is short. */
bool sp_owner_bind(struct sp_entry *entry, const char *lease_id, int64_t ttl_ms, int64_t age_ms,
		   int64_t now_ms);

/* sizes */
static inline uint32_t sp_pool_fresh(const struct sp_pool *pool)
{
	return pool->count[SP_SANDBOX_IDLE] - pool->retiring;
}

static inline uint32_t sp_pool_warming(const struct sp_pool *pool)
{
	return pool->count[SP_SANDBOX_CREATING] - pool->reserved;
}

#endif
