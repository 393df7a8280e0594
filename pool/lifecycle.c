/*
 * The pool as a whole: start, drain, resize, reconfigure, destroy, shut down.
 *
 *	NOT_STARTED → RUNNING → DRAINING → STOPPED → RUNNING …
 *	any → DESTROYED, final
 *
 * DRAINING becomes STOPPED when the last sandbox is gone or drain_timeout is over, whichever is
 * first; leases that are still held then live on to their ends.
 *
 * The operator's resize, drain and destroy are acts on the pool of all hosts: they are written to
 * the store with one more revision, and a higher revision found there is obeyed here.
 */
#include "pool/pool_private.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static const char *const lifecycle_names[] = {
	[SP_POOL_LIFE_NOT_STARTED] = "not_started", [SP_POOL_LIFE_RUNNING] = "running",
	[SP_POOL_LIFE_DRAINING] = "draining",       [SP_POOL_LIFE_STOPPED] = "stopped",
	[SP_POOL_LIFE_DESTROYED] = "destroyed",
};

const char *sp_pool_lifecycle_name(enum sp_pool_lifecycle lifecycle)
{
	sp_assert((unsigned int)lifecycle < SP_ARRAY_SIZE(lifecycle_names));
	return lifecycle_names[lifecycle];
}

static enum sp_store_pool_state store_state(const struct sp_pool *pool)
{
	switch (pool->lifecycle) {
	case SP_POOL_LIFE_DRAINING:
	case SP_POOL_LIFE_STOPPED:
		return SP_STORE_DRAINING;
	case SP_POOL_LIFE_DESTROYED:
		return SP_STORE_DESTROYING;
	case SP_POOL_LIFE_NOT_STARTED:
	case SP_POOL_LIFE_RUNNING:
		break;
	}
	return SP_STORE_ACTIVE;
}

static int destroyed(const struct sp_pool *pool, struct sp_err *err)
{
	const char *result;

	return sp_acquire_refuse_lifecycle(pool, err, &result);
}

static void end_all(struct sp_pool *pool, enum sp_end_reason reason, bool leased_too,
		    int64_t now_ms)
{
	SP_LIST_FOREACH (link, &pool->all) {
		struct sp_entry *entry = SP_CONTAINER_OF(link, struct sp_entry, by_age);

		if (leased_too || entry->sandbox.state != SP_SANDBOX_LEASED)
			sp_entry_end(entry, reason, now_ms, true);
	}
}

static void refuse_waiters(struct sp_pool *pool, int64_t now_ms)
{
	const char *result;
	struct sp_err err;

	if (sp_acquire_refuse_lifecycle(pool, &err, &result) < 0)
		sp_wait_fail_all(pool, &err, result, now_ms);
}

void sp_pool_stopped_check(struct sp_pool *pool, int64_t now_ms)
{
	bool empty = sp_pool_total(pool) == 0;

	if (pool->lifecycle == SP_POOL_LIFE_DRAINING && (empty || now_ms >= pool->drain_until_ms))
		pool->lifecycle = SP_POOL_LIFE_STOPPED;
	if (pool->destroying_here && empty) {
		pool->destroying_here = false;
		(void)sp_directory_intent(pool, SP_STORE_DESTROYED, now_ms);
	}
}

static void run(struct sp_pool *pool, int64_t now_ms)
{
	pool->lifecycle = SP_POOL_LIFE_RUNNING;
	pool->shut_down = false;
	pool->wake = true;
	sp_reconcile_reset_tokens(pool, now_ms);
}

static void drain(struct sp_pool *pool, int64_t now_ms)
{
	int64_t timeout_ms = pool->config.drain_timeout_ms;

	pool->lifecycle = SP_POOL_LIFE_DRAINING;
	pool->drain_until_ms = timeout_ms < 0 ? INT64_MAX : now_ms + timeout_ms;
	pool->wake = true;
	refuse_waiters(pool, now_ms);
	end_all(pool, SP_END_DRAINED, false, now_ms);
	sp_pool_stopped_check(pool, now_ms);
}

static void fence(struct sp_pool *pool, int64_t now_ms)
{
	pool->lifecycle = SP_POOL_LIFE_DESTROYED;
	pool->wake = true;
	refuse_waiters(pool, now_ms);
	end_all(pool, SP_END_DRAINED, true, now_ms);
}

void sp_pool_adopt(struct sp_pool *pool, const struct sp_store_meta *meta, int64_t now_ms)
{
	pool->directory.meta = *meta;
	pool->max_idle = SP_MIN(meta->max_idle, (uint32_t)SP_POOL_MAX_IDLE_LIMIT);
	pool->max_total = SP_MIN(meta->max_total, (uint32_t)SP_POOL_MAX_TOTAL_LIMIT);
	pool->wake = true;
	sp_health_reset_backoff(pool);
	switch (meta->state) {
	case SP_STORE_ACTIVE:
		if ((pool->lifecycle == SP_POOL_LIFE_DRAINING ||
		     pool->lifecycle == SP_POOL_LIFE_STOPPED) &&
		    !pool->shut_down)
			run(pool, now_ms);
		break;
	case SP_STORE_DRAINING:
		if (pool->lifecycle == SP_POOL_LIFE_RUNNING)
			drain(pool, now_ms);
		break;
	case SP_STORE_DESTROYING:
	case SP_STORE_DESTROYED:
		if (pool->lifecycle != SP_POOL_LIFE_DESTROYED)
			fence(pool, now_ms);
		break;
	}
}

int sp_pool_start(struct sp_pool *pool, int64_t now_ms, struct sp_err *err)
{
	int64_t now = sp_pool_enter(pool, now_ms);
	bool resumed = pool->lifecycle != SP_POOL_LIFE_NOT_STARTED;
	int result = 0;

	if (pool->lifecycle != SP_POOL_LIFE_RUNNING && pool->lifecycle != SP_POOL_LIFE_DESTROYED) {
		run(pool, now);
		if (resumed && pool->directory.meta.state != SP_STORE_ACTIVE)
			(void)sp_directory_intent(pool, SP_STORE_ACTIVE, now);
		sp_directory_heartbeat(pool, now);
	}
	if (pool->lifecycle == SP_POOL_LIFE_DESTROYED)
		result = destroyed(pool, err);
	sp_pool_leave(pool);
	return result;
}

void sp_pool_drain(struct sp_pool *pool, int64_t now_ms)
{
	int64_t now = sp_pool_enter(pool, now_ms);

	if (pool->lifecycle == SP_POOL_LIFE_NOT_STARTED) {
		pool->lifecycle = SP_POOL_LIFE_STOPPED;
	} else if (pool->lifecycle == SP_POOL_LIFE_RUNNING) {
		drain(pool, now);
		(void)sp_directory_intent(pool, SP_STORE_DRAINING, now);
	}
	sp_pool_leave(pool);
}

void sp_pool_leave_host(struct sp_pool *pool, int64_t now_ms)
{
	int64_t now = sp_pool_enter(pool, now_ms);

	/* Not to be started again by what the store says of the pool. */
	pool->shut_down = true;
	if (pool->lifecycle == SP_POOL_LIFE_NOT_STARTED)
		pool->lifecycle = SP_POOL_LIFE_STOPPED;
	else if (pool->lifecycle == SP_POOL_LIFE_RUNNING)
		drain(pool, now);
	pool->directory.heartbeat_ms = now; /* nothing more is to be given to it */
	sp_pool_leave(pool);
}

/* New sizes: what is too much goes with the next tick, more only with the store's consent. */
static void resized(struct sp_pool *pool, int64_t now_ms)
{
	pool->directory.allotment = SP_MIN(pool->directory.allotment, pool->max_idle);
	pool->wake = true;
	sp_health_reset_backoff(pool);
	if (pool->lifecycle == SP_POOL_LIFE_RUNNING)
		sp_directory_heartbeat(pool, now_ms);
}

static int check_size(const struct sp_pool *pool, const char *key, int64_t value, int64_t limit,
		      struct sp_err *err)
{
	if (value >= -1 && value <= limit)
		return 0;
	return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
			   "resize pool '%s': %s is %" PRId64 ", must be 0 to %" PRId64,
			   pool->config.name, key, value, limit);
}

int sp_pool_resize(struct sp_pool *pool, int64_t max_idle, int64_t max_total, int64_t now_ms,
		   struct sp_err *err)
{
	int result = check_size(pool, "max_idle", max_idle, SP_POOL_MAX_IDLE_LIMIT, err);
	int64_t now;

	if (result == 0)
		result = check_size(pool, "max_total", max_total, SP_POOL_MAX_TOTAL_LIMIT, err);
	if (result == 0 && pool->lifecycle == SP_POOL_LIFE_DESTROYED)
		result = destroyed(pool, err);
	if (result < 0)
		return result;
	now = sp_pool_enter(pool, now_ms);
	if (max_idle >= 0)
		pool->max_idle = (uint32_t)max_idle;
	if (max_total >= 0)
		pool->max_total = (uint32_t)max_total;
	(void)sp_directory_intent(pool, store_state(pool), now);
	resized(pool, now);
	sp_pool_leave(pool);
	return 0;
}

/* Nothing of the old spec is handed out any more: what is idle goes, creations are begun anew. */
static void retire_generation(struct sp_pool *pool, int64_t now_ms)
{
	SP_LIST_FOREACH (link, &pool->all) {
		struct sp_entry *entry = SP_CONTAINER_OF(link, struct sp_entry, by_age);

		if (entry->sandbox.spec_generation == pool->config.spec_generation)
			continue;
		if (entry->sandbox.state == SP_SANDBOX_CREATING)
			sp_entry_unreserve(entry);
		if (entry->sandbox.state == SP_SANDBOX_CREATING ||
		    entry->sandbox.state == SP_SANDBOX_IDLE)
			sp_entry_end(entry, SP_END_SPEC_CHANGED, now_ms, true);
	}
}

static void reset_idle_timers(struct sp_pool *pool)
{
	SP_LIST_FOREACH (link, &pool->all) {
		struct sp_entry *entry = SP_CONTAINER_OF(link, struct sp_entry, by_age);

		if (entry->sandbox.state == SP_SANDBOX_IDLE)
			sp_entry_set_idle_timer(entry);
	}
}

int sp_pool_reconfigure(struct sp_pool *pool, const struct sp_pool_config *config, int64_t now_ms,
			struct sp_err *err)
{
	struct sp_pool_config next = *config;
	int result = sp_pool_config_resolve(&next, err);
	int64_t now;

	if (result < 0)
		return result;
	if (strcmp(next.name, pool->config.name) != 0)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "reconfigure pool '%s': its name cannot become '%s'",
				   pool->config.name, next.name);
	if (pool->lifecycle == SP_POOL_LIFE_DESTROYED)
		return destroyed(pool, err);
	now = sp_pool_enter(pool, now_ms);
	sp_reconcile_settle_tokens(pool, now);
	pool->config = next;
	pool->max_idle = next.max_idle;
	pool->max_total = next.max_total;
	if (pool->directory.meta.revision > 0)
		(void)sp_directory_intent(pool, store_state(pool), now);
	retire_generation(pool, now);
	reset_idle_timers(pool);
	resized(pool, now);
	sp_pool_leave(pool);
	return 0;
}

uint32_t sp_pool_release_idle(struct sp_pool *pool, int64_t now_ms)
{
	int64_t now = sp_pool_enter(pool, now_ms);
	uint32_t released = 0;

	SP_LIST_FOREACH (link, &pool->all) {
		struct sp_entry *entry = SP_CONTAINER_OF(link, struct sp_entry, by_age);

		if (entry->sandbox.state != SP_SANDBOX_IDLE)
			continue;
		sp_entry_end(entry, SP_END_DRAINED, now, true);
		released++;
	}
	sp_pool_leave(pool);
	return released;
}

int sp_pool_destroy(struct sp_pool *pool, int64_t now_ms, struct sp_err *err)
{
	int64_t now = sp_pool_enter(pool, now_ms);
	int result = 0;

	if (pool->lifecycle != SP_POOL_LIFE_DESTROYED) {
		fence(pool, now);
		pool->destroying_here = true;
		(void)sp_directory_intent(pool, SP_STORE_DESTROYING, now);
		sp_pool_stopped_check(pool, now);
	}
	if (pool->directory.meta_unsent)
		result = sp_err_code(err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -EAGAIN,
				     "destroy pool '%s': fenced here, but the store did not take "
				     "the tombstone yet; it is told again",
				     pool->config.name);
	sp_pool_leave(pool);
	return result;
}

void sp_pool_shutdown(struct sp_pool *pool, int64_t now_ms)
{
	int64_t now = sp_pool_enter(pool, now_ms);

	pool->shut_down = true;
	if (pool->lifecycle != SP_POOL_LIFE_DESTROYED) {
		pool->lifecycle = SP_POOL_LIFE_DRAINING;
		pool->drain_until_ms = INT64_MAX;
	}
	refuse_waiters(pool, now);
	end_all(pool, SP_END_SHUTDOWN, true, now);
	sp_pool_stopped_check(pool, now);
	sp_pool_leave(pool);
}
