/*
 * The reconciler: brings what exists to what is wanted. Runs on every tick; whatever changes the
 * sums (a take, a death, a resize, a new waiter) asks for a tick at once.
 *
 * In this order:
 *   timers      reap what has expired or is near its end, retire what is within refresh_margin of
 *               it, end lapsed leases, fail creations without an answer, ask again for kills
 *   waiters     those past their deadline get their timeout
 *   shrink      what exceeds the sums: creations first (nobody has waited for them yet), newest
 *               first, then idle ones, oldest first
 *   direct      creations for callers that wait for a free slot
 *   replenish   min(deficit, warmup_concurrency, tokens), within max_total
 *
 * Only the last two ask for the health of creation.
 */
#include "pool/pool_private.h"

#include <errno.h>
#include <inttypes.h>

static struct sp_entry *newest_warming(struct sp_pool *pool)
{
	for (struct sp_list *link = pool->creating.prev; link != &pool->creating;
	     link = link->prev) {
		struct sp_entry *entry = SP_CONTAINER_OF(link, struct sp_entry, place);

		if (!entry->reserved_for)
			return entry;
	}
	return NULL;
}

static struct sp_entry *oldest_fresh(struct sp_pool *pool)
{
	struct sp_list *lists[] = {&pool->idle, &pool->unlisted};

	for (size_t i = 0; i < SP_ARRAY_SIZE(lists); i++) {
		SP_LIST_FOREACH (link, lists[i]) {
			struct sp_entry *entry = SP_CONTAINER_OF(link, struct sp_entry, place);

			if (!entry->retiring)
				return entry;
		}
	}
	return NULL;
}

static uint32_t wanted(const struct sp_pool *pool)
{
	return pool->lifecycle == SP_POOL_LIFE_RUNNING ? pool->directory.allotment + pool->demand
						       : 0;
}

static void shrink(struct sp_pool *pool, int64_t now_ms)
{
	sp_entry_end_replaced(pool, now_ms);
	while (sp_pool_fresh(pool) + sp_pool_warming(pool) > wanted(pool)) {
		struct sp_entry *entry = newest_warming(pool);

		sp_entry_end(entry ? entry : oldest_fresh(pool), SP_END_EXCESS, now_ms, true);
	}
}

static void run_timer(struct sp_entry *entry, int64_t now_ms)
{
	struct sp_pool *pool = entry->sandbox.pool;
	struct sp_err err = {0};
	int64_t remaining;

	switch (entry->sandbox.state) {
	case SP_SANDBOX_CREATING:
		(void)sp_err_code(&err, SP_CODE_CREATE_FAILED, -ETIMEDOUT,
				  "sandbox '%s' was not ready within %" PRId64 " ms",
				  entry->sandbox.id, pool->config.create_timeout_ms);
		sp_entry_create_failed(entry, "timeout", false, &err, now_ms, true);
		break;
	case SP_SANDBOX_IDLE:
		remaining = sp_entry_remaining(entry, now_ms);
		if (remaining <= 0)
			sp_entry_end(entry, SP_END_EXPIRED, now_ms, true);
		else if (remaining <= pool->config.acquire_min_remaining_ttl_ms)
			sp_entry_end(entry, SP_END_NEAR_EXPIRY, now_ms, true);
		else
			sp_entry_retire(entry);
		break;
	case SP_SANDBOX_LEASED:
		(void)sp_lease_lapsed(entry, now_ms, true);
		break;
	case SP_SANDBOX_KILLING:
		sp_entry_kill(entry, now_ms);
		break;
	case SP_SANDBOX_GONE:
	case SP_SANDBOX_STATE_COUNT:
		sp_assert(entry->sandbox.state < SP_SANDBOX_GONE);
	}
}

static void run_timers(struct sp_pool *pool, int64_t now_ms)
{
	struct sp_heap_node *first;

	while ((first = sp_heap_first(&pool->timers)) && first->key <= now_ms)
		run_timer(SP_CONTAINER_OF(first, struct sp_entry, timer), now_ms);
}

static bool unlimited(const struct sp_pool *pool)
{
	return pool->config.create_rate <= 0;
}

static double tokens_at(const struct sp_pool *pool, int64_t now_ms)
{
	double earned =
		(double)(now_ms - pool->tokens_ms) * pool->config.create_rate / (double)SP_MS_PER_S;

	return SP_MIN(pool->tokens + earned, (double)pool->config.create_burst);
}

void sp_reconcile_settle_tokens(struct sp_pool *pool, int64_t now_ms)
{
	pool->tokens = tokens_at(pool, now_ms);
	pool->tokens_ms = now_ms;
}

void sp_reconcile_reset_tokens(struct sp_pool *pool, int64_t now_ms)
{
	pool->tokens = pool->config.create_burst;
	pool->tokens_ms = now_ms;
}

/* A creation for a caller has the right of way: it takes a token if there is one, and goes ahead
 * without. */
void sp_reconcile_take_token(struct sp_pool *pool, int64_t now_ms)
{
	pool->tokens = SP_MAX(tokens_at(pool, now_ms) - 1, 0.0);
	pool->tokens_ms = now_ms;
}

static bool total_room(const struct sp_pool *pool)
{
	return pool->max_total == 0 || sp_pool_total(pool) < pool->max_total;
}

bool sp_reconcile_direct_room(const struct sp_pool *pool)
{
	return pool->direct < pool->config.max_direct_creates && total_room(pool);
}

static bool direct_due(const struct sp_pool *pool)
{
	return !sp_list_empty(&pool->needing) && sp_reconcile_direct_room(pool);
}

static void create_direct(struct sp_pool *pool, int64_t now_ms)
{
	while (direct_due(pool) && sp_health_permits_direct(pool, now_ms)) {
		struct sp_acquire *acquire =
			SP_LIST_FIRST(&pool->needing, struct sp_acquire, needing);
		struct sp_err err;

		sp_reconcile_take_token(pool, now_ms);
		if (sp_entry_create(pool, acquire, now_ms, &err) < 0)
			sp_wait_fail(acquire, &err, "create_failed", now_ms);
	}
}

/* Short of sandboxes, and room to begin one: only health and the rate may forbid it. */
static bool deficit(const struct sp_pool *pool)
{
	return sp_pool_fresh(pool) + sp_pool_warming(pool) < wanted(pool) &&
	       sp_pool_warming(pool) < pool->config.warmup_concurrency && total_room(pool);
}

static void replenish(struct sp_pool *pool, int64_t now_ms)
{
	while (deficit(pool) && sp_health_permits(pool, now_ms)) {
		if (!unlimited(pool) && tokens_at(pool, now_ms) < 1)
			return;
		sp_reconcile_take_token(pool, now_ms);
		if (sp_entry_create(pool, NULL, now_ms, NULL) < 0) {
			/* One refusal says enough for this tick. */
			pool->wake = true;
			return;
		}
	}
}

void sp_reconcile(struct sp_pool *pool, int64_t now_ms)
{
	run_timers(pool, now_ms);
	sp_wait_expire(pool, now_ms);
	shrink(pool, now_ms);
	create_direct(pool, now_ms);
	replenish(pool, now_ms);
}

static int64_t token_ms(const struct sp_pool *pool)
{
	double missing = 1 - pool->tokens;

	if (unlimited(pool) || missing <= 0)
		return pool->tokens_ms;
	return sp_time_add(pool->tokens_ms,
			   (int64_t)(missing * (double)SP_MS_PER_S / pool->config.create_rate) + 1);
}

int64_t sp_reconcile_next_ms(const struct sp_pool *pool)
{
	int64_t next = INT64_MAX;

	/* An open circuit lets one through at a time: the answer wakes us. */
	if (pool->health.circuit_open && pool->count[SP_SANDBOX_CREATING] > 0)
		return next;
	if (deficit(pool))
		next = SP_MAX(token_ms(pool), pool->health.backoff_until_ms);
	if (direct_due(pool) && pool->health.circuit_open)
		next = SP_MIN(next, pool->health.backoff_until_ms);
	return next;
}
