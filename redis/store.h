/*
 * pool/store.h over Redis. See redis/README.md for the protocol and store.c for how writes are
 * made to happen once (incarnation + seq), how a lost directory heals (RESYNC, rotation), and what
 * an outage means.
 *
 * All callbacks run on the loop, never before the call that started them has returned.
 */
#ifndef SP_REDIS_STORE_H
#define SP_REDIS_STORE_H

#include "pool/pool.h"
#include "pool/store.h"
#include "redis/wire.h"

#define SP_REDIS_HOST_MAX     63
#define SP_REDIS_ENDPOINT_MAX 255
#define SP_REDIS_DIGEST_MAX   64

struct sp_redis_store_options {
	struct sp_redis_options redis;
	const char *prefix;        /* "sandpool" */
	const char *host;          /* [a-z0-9][a-z0-9._-]{0,62}, unique among the hosts of a pool */
	const char *endpoint;      /* where clients reach this daemon: "tcp://host:port", … */
	const char *boot_id;       /* /proc/sys/kernel/random/boot_id */
	const char *secret_digest; /* hex SHA-256 of the state directory's host secret */
	const char *version;
	uint32_t capacity; /* weight of this host's share; 0 = 1 */
	uint64_t seed;
};

struct sp_redis_store_events {
	/* Another incarnation holds this host, or its name is taken: hand out nothing more, exit.
	 * Comes once, for the first pool that it is seen at. */
	void (*fenced)(void *arg, const char *pool, const struct sp_err *why);
	void (*up)(void *arg);
	void (*down)(void *arg, const struct sp_err *why);
	/* For sandpool_store_command_duration_seconds. name: the function's, without prefix. */
	void (*command)(void *arg, const char *name, double seconds, bool failed);
	/* We called into this pool: look at its next wake-up. */
	void (*touched)(void *arg, const char *pool);
	/* The operator's intent, newer than what was offered or seen before, and whether this host
	 * drains. To be kept before this returns: the pool acts on it next. */
	void (*seen)(void *arg, const char *pool, const struct sp_store_meta *meta, bool draining);
	/* The pool has moved on to another spec, or (digest "") is back at ours. */
	void (*mismatch)(void *arg, const char *pool, uint64_t spec_revision, const char *digest);
	/* Register or heartbeat was refused for another reason than an outage. Once per change. */
	void (*refused)(void *arg, const char *pool, const struct sp_err *why);
	/* The server's maxmemory-policy would throw keys of ours away. */
	void (*evicts)(void *arg, const char *policy);
	void (*closed)(void *arg);
};

int sp_redis_store_new(uv_loop_t *loop, const struct sp_redis_store_options *options,
		       const struct sp_redis_store_events *events, void *arg, struct sp_store **ret,
		       struct sp_err *err);
/* Unregisters this host's entries (bounded by one command timeout), then `closed`, then freed.
 * store->ops->free() does the same without waiting for anybody. */
void sp_redis_store_close(struct sp_store *store);
/* Where to and why not; no secret in it. */
const char *sp_redis_store_peer(const struct sp_store *store);

/* What register tells of a pool beside its sizes. Before its first heartbeat and after a reload;
 * everything is copied. -EINVAL: the digest is too long. */
struct sp_redis_pool_facts {
	int64_t min_ttl_ms;
	int64_t claim_timeout_ms;
	uint64_t spec_revision;
	const char *spec_digest;
	struct sp_store_meta seen; /* the operator's intent as last seen; revision 0 = none */
	bool draining;             /* this host's, as last seen */
};

int sp_redis_store_pool(struct sp_store *store, const char *pool,
			const struct sp_redis_pool_facts *facts, struct sp_err *err);

/* An acquire for a client of this host out of the whole cluster, after the local pool had nothing.
 * cb: granted is NULL with err (POOL_EMPTY, ACQUIRE_TIMEOUT, POOL_SATURATED, POOL_DESTROYED,
 * POOL_NOT_RUNNING, LEASE_ENDED, LEASE_MISMATCH, POOL_STATE_STORE_UNAVAILABLE). */
struct sp_redis_wish {
	const char *pool;
	const char *lease_id;
	enum sp_acquire_policy policy; /* the creating ones are taken as `wait` */
	int64_t min_remaining_ms;      /* -1 = the pool's */
	int64_t ttl_ms;
	int64_t wait_ms; /* > 0 queues a ticket */
	const char
		*reject; /* ids that turned out to be somebody else's, separated by ','; or NULL */
	bool not_here;   /* not from this host */
};

struct sp_redis_grant {
	const char *sandbox_id;
	const char *host;
	const char *endpoint;
	int64_t remaining_ms;
	bool here; /* host is ours */
};

struct sp_redis_acquire;
typedef void sp_redis_acquire_cb(void *arg, const struct sp_redis_grant *grant,
				 const struct sp_err *err);
int sp_redis_store_acquire(struct sp_store *store, const struct sp_redis_wish *wish,
			   sp_redis_acquire_cb *cb, void *arg, struct sp_redis_acquire **ret,
			   struct sp_err *err);
/* No callback after this; a ticket is taken back, what was granted meanwhile is released. */
void sp_redis_acquire_cancel(struct sp_redis_acquire *acquire);

/* One host of a pool, as the directory knows it; borrowed for the call. */
struct sp_redis_host {
	const char *host;
	const char *state; /* live, draining, dead, spec_mismatch */
	int64_t idle;      /* listed, and with more than the minimum left */
	int64_t creating;
	int64_t leased;
	int64_t waiters;
	int64_t share;
	int64_t capacity;
	int64_t seen_ms; /* ago */
	const char *version;
	const char *endpoint;
};

typedef void sp_redis_hosts_cb(void *arg, const struct sp_redis_host *hosts, size_t count,
			       const struct sp_err *err);
/* The hosts of a pool. The call cannot be taken back; cb comes once. */
int sp_redis_store_hosts(struct sp_store *store, const char *pool, sp_redis_hosts_cb *cb, void *arg,
			 struct sp_err *err);
/* Nothing of that host is handed out any more (on), or is again. NOT_FOUND. */
int sp_redis_store_drain_host(struct sp_store *store, const char *pool, const char *host, bool on,
			      void (*cb)(void *arg, const struct sp_err *err), void *arg,
			      struct sp_err *err);
/* Hosts of this pool that live, from the last heartbeat; 0 before. */
uint32_t sp_redis_store_host_count(const struct sp_store *store, const char *pool);

#endif
