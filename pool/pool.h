/*
 * The pool: decides when sandboxes are created, handed out and killed.
 *
 * Pure policy: no system call, no libuv, no Redis, no clock of its own. Every entry point takes
 * `now_ms` (CLOCK_BOOTTIME, must not go backwards) and the pool's random numbers come from a seed,
 * so that a simulation can replay any run. One thread.
 *
 * What drives it:
 *   - sp_pool_tick() whenever now >= sp_pool_next_wakeup_ms(); calling it too often is harmless;
 *   - the backend's answers: sp_pool_created/_create_failed/_gone/_died;
 *   - clients: sp_pool_acquire/_claim/_renew/_release.
 *
 * Lifecycle: NOT_STARTED → RUNNING → DRAINING → STOPPED → RUNNING …; DESTROYED is final.
 */
#ifndef SP_POOL_POOL_H
#define SP_POOL_POOL_H

#include "pool/backend.h"
#include "pool/base/err.h"
#include "pool/sandbox.h"

struct sp_store;

#define SP_POOL_MAX_IDLE_LIMIT    20000 /* most sandboxes of one pool on one host */
#define SP_POOL_MAX_TOTAL_LIMIT   100000
#define SP_POOL_WAITERS_LIMIT     4096 /* longest wait queue that may be configured */
#define SP_POOL_ERROR_MAX         256
#define SP_LEASE_TOMBSTONE_MS     (10 * 60 * SP_MS_PER_S) /* LEASE_ENDED is answered this long */
#define SP_LEASE_TOMBSTONES_LIMIT 65536                   /* oldest forgotten first beyond this */

/* All times in ms. sp_pool_config_defaults() fills in the defaults written here. */
struct sp_pool_config {
	char name[SP_POOL_NAME_MAX + 1];
	uint32_t max_idle;       /* target and ceiling of idle + creating; required, 0 = none */
	uint32_t max_total;      /* all that are not gone; 0 = no cap beyond the backend's */
	int64_t idle_timeout_ms; /* 24 h; life of a sandbox from its creation while idle */
	int64_t acquire_min_remaining_ttl_ms; /* -1 = min(60 s, idle_timeout / 2); 0 = off; <
						 idle_timeout */
	int64_t max_lease_ms;     /* 24 h; the furthest that a renewal may move the end from now */
	int64_t claim_timeout_ms; /* 60 s; bound but never used → killed; 0 = off */
	uint32_t warmup_concurrency; /* 8; creations under way at once */
	double create_rate;          /* 200 per second; token bucket; 0 = unlimited */
	uint32_t create_burst;       /* 0 = one second's worth, at least warmup_concurrency */
	int64_t create_timeout_ms;   /* 30 s; a creation without an answer is killed and failed */
	int64_t refresh_margin_ms;   /* -1 = min(30 s, idle_timeout / 10) */
	uint32_t expiry_jitter_percent; /* 10; idle lives are shortened by 0…this share */
	int64_t backoff_initial_ms;     /* 1 s */
	int64_t backoff_max_ms;         /* 5 min; equal jitter */
	uint32_t degraded_threshold; /* 3 failures in a row without a success → DEGRADED, backoff */
	uint32_t max_waiters;        /* 256; POOL_SATURATED beyond */
	uint32_t max_direct_creates;  /* 16; concurrent creations for the create policies */
	uint32_t max_acquire_retries; /* 3; candidates per acquire of the retry policies */
	int64_t tick_ms;              /* 1 s */
	int64_t kill_retry_ms;        /* 2 s; doubles up to 60 s */
	int64_t drain_timeout_ms;     /* 30 s; 0 = do not wait, -1 = no deadline */
	uint64_t spec_generation;     /* changes when what a sandbox is made of changes */
};

void sp_pool_config_defaults(struct sp_pool_config *config);
/* Checks every field against its range; resolves the -1 defaults in place. -EINVAL, message names
 * the key. */
int sp_pool_config_resolve(struct sp_pool_config *config, struct sp_err *err);

enum sp_acquire_policy {
	SP_ACQUIRE_FAIL_FAST,
	SP_ACQUIRE_WAIT,
	SP_ACQUIRE_CREATE,
	SP_ACQUIRE_RETRY_NEXT,
	SP_ACQUIRE_RETRY_NEXT_THEN_CREATE,
	SP_ACQUIRE_POLICY_COUNT
};

/* "fail_fast", "wait", "create", "retry_next", "retry_next_then_create". */
const char *sp_acquire_policy_name(enum sp_acquire_policy policy);
int sp_acquire_policy_parse(const char *text, enum sp_acquire_policy *ret_policy);

struct sp_acquire_request {
	char lease_id[SP_LEASE_ID_LEN + 1]; /* required; the idempotency key */
	enum sp_acquire_policy policy;
	int64_t wait_ms; /* policies that wait or create: give up after this; 0 = at once */
	int64_t ttl_ms;  /* life after the claim; 0 = what remains of its idle life */
	int64_t min_remaining_ms; /* -1 = the pool's acquire_min_remaining_ttl */
	bool newest_first; /* a local acquire beside Redis takes the newest, else oldest first */
	bool idle_only;    /* what is idle now or POOL_EMPTY, which is not reported as an event: the
			      caller asks elsewhere, and here again without this */
};

struct sp_acquire_result {
	struct sp_sandbox *sandbox; /* borrowed; valid until its gone is reported */
	int64_t remaining_ms;       /* of the sandbox's life at hand-out, before ttl was applied */
	bool waited;                /* came through the queue or a direct create */
	bool repeated; /* the same lease id was seen before: same sandbox, no new grant */
};

struct sp_acquire; /* a queued acquire */

/* Called at most once, never from inside sp_pool_acquire(). err is NULL on success. After it (or
 * after sp_acquire_cancel()) the sp_acquire is invalid. */
typedef void sp_acquire_cb(void *arg, const struct sp_acquire_result *result,
			   const struct sp_err *err);

/*
 * Ask for a sandbox.
 *   0            granted: *ret_result filled, state LEASED, bound to the lease for ever
 *   1            queued: *ret_pending set, cb comes later (grant, deadline, drain, …)
 *   negative     refused: err has the code (POOL_EMPTY, POOL_SATURATED, LEASE_ENDED, …)
 * Idempotent: a lease id that holds a live sandbox gets it again (LEASE_MISMATCH if ttl or policy
 * differ); one whose sandbox ended in the last 10 min gets LEASE_ENDED.
 */
int sp_pool_acquire(struct sp_pool *pool, const struct sp_acquire_request *request, int64_t now_ms,
		    sp_acquire_cb *cb, void *arg, struct sp_acquire_result *ret_result,
		    struct sp_acquire **ret_pending, struct sp_err *err);
/* The waiter left. Nothing that was granted is lost: a grant that was already made stands and is
 * killed as unclaimed. No callback after this. */
void sp_acquire_cancel(struct sp_acquire *pending, int64_t now_ms);

/* Look up one that is not gone. NULL if unknown. */
struct sp_sandbox *sp_pool_find(struct sp_pool *pool, const char *sandbox_id);
/* The one that this lease holds, NULL if none. */
struct sp_sandbox *sp_pool_find_lease(struct sp_pool *pool, const char *lease_id);

/* Before the first claim of somebody who holds a lease of the directory that we have not heard of:
 * an idle sandbox is bound to it, and to no other ever after. ttl_ms 0: the rest of its idle life,
 * until the directory tells what was asked for. Idempotent. CONFLICT: another lease has it;
 * LEASE_MISMATCH: this lease has another one; LEASE_ENDED. */
int sp_pool_bind(struct sp_pool *pool, struct sp_sandbox *sandbox, const char *lease_id,
		 int64_t ttl_ms, int64_t now_ms, struct sp_err *err);
/* First use with the secret: fixes the end at now + min(ttl, max_lease). Idempotent. LEASE_ENDED
 * when it is no longer leased or its end has passed (checked against now at every use). */
int sp_pool_claim(struct sp_pool *pool, struct sp_sandbox *sandbox, int64_t now_ms,
		  struct sp_err *err);
/* Move the end to now + ttl_ms (0 < ttl <= max_lease; counts as a claim). Never moves it backwards.
 * LEASE_ENDED, INVALID_ARGUMENT. */
int sp_pool_renew(struct sp_pool *pool, struct sp_sandbox *sandbox, int64_t ttl_ms, int64_t now_ms,
		  int64_t *ret_expires_ms, struct sp_err *err);
/* End it: leased, idle or creating → killing. Idempotent. */
void sp_pool_end(struct sp_pool *pool, struct sp_sandbox *sandbox, enum sp_end_reason reason,
		 int64_t now_ms);

static inline void sp_pool_release(struct sp_pool *pool, struct sp_sandbox *sandbox, int64_t now_ms)
{
	sp_pool_end(pool, sandbox, SP_END_RELEASED, now_ms);
}

/* The backend's answers. */
void sp_pool_created(struct sp_pool *pool, struct sp_sandbox *sandbox, int64_t now_ms);
/* stage: where it failed ("clone", "mount", …), borrowed for the call. permanent: trying again
 * cannot help until the configuration changes → circuit opens, probes only. */
void sp_pool_create_failed(struct sp_pool *pool, struct sp_sandbox *sandbox, const char *stage,
			   bool permanent, const struct sp_err *err, int64_t now_ms);
/* It died by itself (idle or leased); its leftovers are being removed, gone follows. */
void sp_pool_died(struct sp_pool *pool, struct sp_sandbox *sandbox, int64_t now_ms);
/* Nothing of it is left. The struct is freed before this returns (backend's forget is called). */
void sp_pool_gone(struct sp_pool *pool, struct sp_sandbox *sandbox, int64_t now_ms);

/* What happened, for metrics and logs. All borrowed for the call; must not call into the pool. */
struct sp_pool_events {
	void (*ended)(void *arg, const struct sp_sandbox *sandbox, enum sp_end_reason reason);
	void (*acquired)(void *arg, enum sp_acquire_policy policy, const char *result,
			 int64_t waited_ms, int64_t remaining_ms, int64_t idle_age_ms);
	void (*create_failed)(void *arg, const char *stage, const struct sp_err *err);
	void (*created)(void *arg, const struct sp_sandbox *sandbox, int64_t duration_ms);
	void (*gone)(void *arg, const struct sp_sandbox *sandbox, int64_t kill_duration_ms);
	void (*health_changed)(void *arg, bool degraded, const char *last_error);
	/* The end of a claimed lease moved because of what the store told. */
	void (*end_moved)(void *arg, const struct sp_sandbox *sandbox);
};

struct sp_pool_ports {
	const struct sp_backend_ops *backend;
	void *backend_arg;
	struct sp_store *store;              /* borrowed; see store.h */
	const struct sp_pool_events *events; /* any member may be NULL */
	void *events_arg;
};

/* config is copied and must be resolved. -ENOMEM, -EINVAL. */
int sp_pool_new(const struct sp_pool_config *config, const struct sp_pool_ports *ports,
		uint64_t seed, struct sp_pool **ret_pool, struct sp_err *err);
/* Only when every sandbox is gone and no acquire is pending (asserted). NULL is fine. */
void sp_pool_free(struct sp_pool *pool);

int sp_pool_start(struct sp_pool *pool, int64_t now_ms, struct sp_err *err);
void sp_pool_tick(struct sp_pool *pool, int64_t now_ms);
/* When sp_pool_tick() is next needed; INT64_MAX when nothing is due. */
int64_t sp_pool_next_wakeup_ms(const struct sp_pool *pool);

/* New sizes, timers, spec generation; the name must be the same. Sizes act at once. With another
 * generation what is idle or being created is ended at once (spec_changed): nothing of the old spec
 * is handed out after this returns. Leased ones live on. */
int sp_pool_reconfigure(struct sp_pool *pool, const struct sp_pool_config *config, int64_t now_ms,
			struct sp_err *err);
/* The operator's resize; survives until the next reconfigure. -1 leaves a value as it is. */
int sp_pool_resize(struct sp_pool *pool, int64_t max_idle, int64_t max_total, int64_t now_ms,
		   struct sp_err *err);
/* Stop creating and handing out; idle ones are killed, leased ones live to their end. Waiters get
 * POOL_NOT_RUNNING. sp_pool_start() undoes it. */
void sp_pool_drain(struct sp_pool *pool, int64_t now_ms);
/* The same for this host alone, which leaves the pool (the daemon stops, its configuration no
 * longer names the pool): the store's intent for the pool of all hosts stays as it is. */
void sp_pool_leave_host(struct sp_pool *pool, int64_t now_ms);
/* Kill what is idle now, return how many; the pool refills (resize to 0 first to keep it empty). */
uint32_t sp_pool_release_idle(struct sp_pool *pool, int64_t now_ms);
/* Fence, kill all (leased ones with reason drained), leave a tombstone in the store. */
int sp_pool_destroy(struct sp_pool *pool, int64_t now_ms, struct sp_err *err);
/* End everything with reason shutdown. */
void sp_pool_shutdown(struct sp_pool *pool, int64_t now_ms);

enum sp_pool_lifecycle {
	SP_POOL_LIFE_NOT_STARTED,
	SP_POOL_LIFE_RUNNING,
	SP_POOL_LIFE_DRAINING,
	SP_POOL_LIFE_STOPPED,
	SP_POOL_LIFE_DESTROYED
};

const char *sp_pool_lifecycle_name(enum sp_pool_lifecycle lifecycle);

struct sp_pool_snapshot {
	enum sp_pool_lifecycle lifecycle;
	bool degraded;
	bool backoff_active;
	bool circuit_open;
	uint32_t max_idle;
	uint32_t max_total;
	uint32_t share; /* of max_idle, this host's */
	uint32_t creating;
	uint32_t idle;
	uint32_t idle_expired; /* of idle: past their end or not dispensable, not yet reaped */
	uint32_t leased;
	uint32_t killing;
	uint32_t waiters;
	uint32_t failure_count; /* in a row */
	int64_t backoff_until_ms;
	char last_error[SP_POOL_ERROR_MAX];
	uint64_t created_total;
	uint64_t create_failures_total;
	uint64_t ends_total[SP_END_REASON_COUNT];
};

void sp_pool_snapshot(const struct sp_pool *pool, int64_t now_ms, struct sp_pool_snapshot *ret);

const struct sp_pool_config *sp_pool_config(const struct sp_pool *pool);

/* Visit all that are not gone, oldest first. Return non-zero from visit to stop. visit must not
 * change the pool. */
int sp_pool_each(const struct sp_pool *pool,
		 int (*visit)(void *arg, const struct sp_sandbox *sandbox), void *arg);

/* Checks the invariants of the pool against its tables; asserts. For tests and the simulation. */
void sp_pool_check(const struct sp_pool *pool, int64_t now_ms);

#endif
