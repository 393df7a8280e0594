/*
 * The pool object: made, ticked, looked at, freed. What it decides is in the files beside this one;
 * pool_private.h has the map.
 *
 * Time: each entry point is given the clock, and the pool never goes back behind the latest value
 * it saw. Callbacks of clients run when the outermost entry point leaves, one after another, from a
 * list; one that calls in again only adds to that list, so the stack does not grow with it.
 */
#include "pool/pool_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int64_t sp_time_add(int64_t now_ms, int64_t span_ms)
{
	return span_ms > INT64_MAX - now_ms ? INT64_MAX : now_ms + span_ms;
}

/* splitmix64 (Vigna): for jitter, not for secrets. */
uint64_t sp_pool_random(struct sp_pool *pool, uint64_t bound)
{
	uint64_t mixed = pool->random += UINT64_C(0x9e3779b97f4a7c15);

	mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
	return (mixed ^ mixed >> 31) % bound;
}

int64_t sp_pool_at(struct sp_pool *pool, int64_t now_ms)
{
	pool->now_ms = SP_MAX(pool->now_ms, now_ms);
	return pool->now_ms;
}

int64_t sp_pool_enter(struct sp_pool *pool, int64_t now_ms)
{
	pool->depth++;
	return sp_pool_at(pool, now_ms);
}

void sp_pool_leave(struct sp_pool *pool)
{
	sp_assert(pool->depth > 0);
	if (--pool->depth > 0 || pool->delivering)
		return;
	pool->delivering = true;
	sp_wait_deliver(pool);
	pool->delivering = false;
}

uint32_t sp_pool_total(const struct sp_pool *pool)
{
	return pool->count[SP_SANDBOX_CREATING] + pool->count[SP_SANDBOX_IDLE] +
	       pool->count[SP_SANDBOX_LEASED] + pool->count[SP_SANDBOX_KILLING];
}

static void init_lists(struct sp_pool *pool)
{
	struct sp_list *lists[] = {
		&pool->all,     &pool->creating, &pool->unlisted, &pool->idle,       &pool->aging,
		&pool->waiting, &pool->needing,  &pool->finished, &pool->tombstones,
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(lists); i++)
		sp_list_init(lists[i]);
}

static int init_tables(struct sp_pool *pool)
{
	struct sp_map *maps[] = {&pool->by_id, &pool->by_lease, &pool->waiting_by_lease};

	init_lists(pool);
	sp_heap_init(&pool->timers);
	sp_heap_init(&pool->deadlines);
	for (size_t i = 0; i < SP_ARRAY_SIZE(maps); i++)
		if (sp_map_init(maps[i], sp_pool_random(pool, UINT64_MAX),
				sp_pool_random(pool, UINT64_MAX)) < 0)
			return -ENOMEM;
	return sp_directory_init(pool);
}

static void pool_free(struct sp_pool *pool)
{
	while (!sp_list_empty(&pool->tombstones))
		sp_lease_drop_oldest(pool);
	sp_directory_done(pool);
	sp_map_done(&pool->by_id);
	sp_map_done(&pool->by_lease);
	sp_map_done(&pool->waiting_by_lease);
	sp_heap_done(&pool->timers);
	sp_heap_done(&pool->deadlines);
	free(pool);
}

int sp_pool_new(const struct sp_pool_config *config, const struct sp_pool_ports *ports,
		uint64_t seed, struct sp_pool **ret_pool, struct sp_err *err)
{
	struct sp_pool_config resolved = *config;
	int result = sp_pool_config_resolve(&resolved, err);
	struct sp_pool *pool;

	if (result < 0)
		return result;
	pool = calloc(1, sizeof(*pool));
	if (!pool)
		return sp_err_set(err, -ENOMEM, "make pool '%s'", resolved.name);
	pool->config = resolved;
	pool->ports = *ports;
	pool->random = seed;
	pool->max_idle = resolved.max_idle;
	pool->max_total = resolved.max_total;
	if (init_tables(pool) < 0) {
		pool_free(pool);
		return sp_err_set(err, -ENOMEM, "make pool '%s'", resolved.name);
	}
	*ret_pool = pool;
	return 0;
}

void sp_pool_free(struct sp_pool *pool)
{
	if (!pool)
		return;
	sp_assert(sp_pool_total(pool) == 0);
	sp_assert(sp_list_empty(&pool->waiting) && sp_list_empty(&pool->finished));
	pool_free(pool);
}

void sp_pool_tick(struct sp_pool *pool, int64_t now_ms)
{
	int64_t now = sp_pool_enter(pool, now_ms);

	pool->wake = false;
	sp_directory_tick(pool, now);
	sp_reconcile(pool, now);
	sp_lease_prune(pool, now);
	sp_pool_stopped_check(pool, now);
	sp_pool_leave(pool);
}

static int64_t key_of(const struct sp_heap *heap)
{
	const struct sp_heap_node *first = sp_heap_first(heap);

	return first ? first->key : INT64_MAX;
}

int64_t sp_pool_next_wakeup_ms(const struct sp_pool *pool)
{
	int64_t next = SP_MIN(key_of(&pool->timers), key_of(&pool->deadlines));

	if (pool->wake)
		return pool->now_ms;
	next = SP_MIN(next, sp_directory_next_ms(pool));
	next = SP_MIN(next, sp_reconcile_next_ms(pool));
	if (pool->lifecycle == SP_POOL_LIFE_DRAINING)
		next = SP_MIN(next, pool->drain_until_ms);
	return next;
}

struct sp_sandbox *sp_pool_find(struct sp_pool *pool, const char *sandbox_id)
{
	struct sp_map_link *link = sp_map_find(&pool->by_id, sandbox_id);

	return link ? &SP_CONTAINER_OF(link, struct sp_entry, by_id)->sandbox : NULL;
}

const struct sp_pool_config *sp_pool_config(const struct sp_pool *pool)
{
	return &pool->config;
}

int sp_pool_each(const struct sp_pool *pool,
		 int (*visit)(void *arg, const struct sp_sandbox *sandbox), void *arg)
{
	SP_LIST_FOREACH (link, &pool->all) {
		int result = visit(arg, &SP_CONTAINER_OF(link, struct sp_entry, by_age)->sandbox);

		if (result != 0)
			return result;
	}
	return 0;
}

static uint32_t count_expired(const struct sp_pool *pool, int64_t now_ms)
{
	uint32_t expired = 0;

	SP_LIST_FOREACH (link, &pool->all) {
		const struct sp_entry *entry = SP_CONTAINER_OF(link, struct sp_entry, by_age);

		if (entry->sandbox.state == SP_SANDBOX_IDLE &&
		    sp_entry_remaining(entry, now_ms) <= pool->config.acquire_min_remaining_ttl_ms)
			expired++;
	}
	return expired;
}

void sp_pool_snapshot(const struct sp_pool *pool, int64_t now_ms, struct sp_pool_snapshot *ret)
{
	const struct sp_health *health = &pool->health;
	int64_t now = SP_MAX(now_ms, pool->now_ms);

	*ret = (struct sp_pool_snapshot){
		.lifecycle = pool->lifecycle,
		.degraded = health->degraded,
		.backoff_active = health->backoff_until_ms > now,
		.circuit_open = health->circuit_open,
		.max_idle = pool->max_idle,
		.max_total = pool->max_total,
		.share = pool->directory.allotment,
		.creating = pool->count[SP_SANDBOX_CREATING],
		.idle = pool->count[SP_SANDBOX_IDLE],
		.idle_expired = count_expired(pool, now),
		.leased = pool->count[SP_SANDBOX_LEASED],
		.killing = pool->count[SP_SANDBOX_KILLING],
		.waiters = pool->waiter_count,
		.failure_count = health->failure_count,
		.backoff_until_ms = health->backoff_until_ms,
		.created_total = pool->created_total,
		.create_failures_total = pool->create_failures_total,
	};
	memcpy(ret->last_error, health->last_error, sizeof(ret->last_error));
	memcpy(ret->ends_total, pool->ends_total, sizeof(ret->ends_total));
}
