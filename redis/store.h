/*
 * pool/store.h over Redis. See redis/README.md for the protocol and store.c for how writes are
 * made to happen once (incarnation + seq), how a lost directory heals (RESYNC, rotation), and what
 * an outage means.
 */
#ifndef SP_REDIS_STORE_H
#define SP_REDIS_STORE_H

#include "pool/store.h"
#include "redis/wire.h"

#define SP_REDIS_HOST_MAX     63
#define SP_REDIS_ENDPOINT_MAX 255

struct sp_redis_store_options {
	struct sp_redis_options redis;
	const char *prefix;        /* "sandpool" */
	const char *host;          /* [a-z0-9][a-z0-9._-]{0,62}, unique among the hosts of a pool */
	const char *endpoint;      /* where clients reach this daemon: "tcp://host:port", … */
	const char *boot_id;       /* /proc/sys/kernel/random/boot_id */
	const char *secret_digest; /* hex SHA-256 of the state directory's host secret */
	const char *version;
	uint32_t capacity;         /* weight of this host's share; 0 = 1 */
	uint64_t seed;
};

struct sp_redis_store_events {
	/* Another incarnation holds this host, or its name is taken: hand out nothing more, exit. */
	void (*fenced)(void *arg, const char *pool, const struct sp_err *why);
	void (*up)(void *arg);
	void (*down)(void *arg, const struct sp_err *why);
	/* For sandpool_store_command_duration_seconds. */
	void (*command)(void *arg, const char *name, double seconds, bool failed);
	void (*closed)(void *arg);
};

int sp_redis_store_new(uv_loop_t *loop, const struct sp_redis_store_options *options,
		       const struct sp_redis_store_events *events, void *arg,
		       struct sp_store **ret, struct sp_err *err);
/* Unregisters this host's entries (bounded by one command timeout), then `closed`, then freed.
 * store->ops->free() does the same without waiting for anybody. */
void sp_redis_store_close(struct sp_store *store);

/* An acquire for a client of this host out of the whole cluster, after the local pool had nothing.
 * cb: granted is NULL with err (POOL_EMPTY, ACQUIRE_TIMEOUT, POOL_SATURATED, POOL_DESTROYED,
 * LEASE_ENDED, LEASE_MISMATCH, POOL_STATE_STORE_UNAVAILABLE). wait_ms > 0 queues a ticket. */
struct sp_redis_grant {
	const char *sandbox_id;
	const char *host;
	const char *endpoint;
	int64_t remaining_ms;
};
struct sp_redis_acquire;
typedef void sp_redis_acquire_cb(void *arg, const struct sp_redis_grant *grant,
				 const struct sp_err *err);
int sp_redis_store_acquire(struct sp_store *store, const char *pool, const char *lease_id,
			   const char *policy, int64_t min_remaining_ms, int64_t ttl_ms,
			   int64_t wait_ms, sp_redis_acquire_cb *cb, void *arg,
			   struct sp_redis_acquire **ret, struct sp_err *err);
void sp_redis_acquire_cancel(struct sp_redis_acquire *acquire);

#endif
