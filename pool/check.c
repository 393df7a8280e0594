/*
 * The invariants of the tables, asserted. For tests and the simulation, which call it after every
 * step; O(everything).
 */
#include "pool/pool_private.h"

static uint32_t length(const struct sp_list *list)
{
	uint32_t count = 0;

	SP_LIST_FOREACH (link, list) {
		sp_assert(link->next->prev == link && link->prev->next == link);
		count++;
	}
	return count;
}

static void check_heap(const struct sp_heap *heap)
{
	for (size_t i = 0; i < heap->count; i++) {
		sp_assert(heap->nodes[i]->index == i);
		sp_assert(i == 0 || heap->nodes[(i - 1) / 2]->key <= heap->nodes[i]->key);
	}
}

static void check_entry(const struct sp_pool *pool, const struct sp_entry *entry)
{
	const struct sp_sandbox *sandbox = &entry->sandbox;
	enum sp_sandbox_state state = sandbox->state;

	sp_assert(sandbox->pool == pool && state != SP_SANDBOX_GONE);
	sp_assert(sp_map_find(&pool->by_id, sandbox->id) == &entry->by_id);
	sp_assert(pool->timers.nodes[entry->timer.index] == &entry->timer);
	sp_assert((entry->lease != NULL) == (state == SP_SANDBOX_LEASED));
	sp_assert(!entry->lease || entry->lease->entry == entry);
	sp_assert((sandbox->end_reason != SP_END_NONE) == (state == SP_SANDBOX_KILLING));
	sp_assert(!entry->reserved_for || (state == SP_SANDBOX_CREATING && entry->direct &&
					   entry->reserved_for->creation == entry));
	sp_assert(!entry->unlisted || state == SP_SANDBOX_IDLE);
	sp_assert(!entry->retiring || state == SP_SANDBOX_IDLE);
	sp_assert(sp_list_empty(&entry->place) ==
		  (state == SP_SANDBOX_LEASED || state == SP_SANDBOX_KILLING));
	if (state == SP_SANDBOX_LEASED)
		sp_assert(entry->timer.key == sandbox->expires_ms);
}

static void check_entries(const struct sp_pool *pool)
{
	uint32_t count[SP_SANDBOX_STATE_COUNT] = {0};
	uint32_t retiring = 0;
	uint32_t reserved = 0;
	uint32_t direct = 0;

	SP_LIST_FOREACH (link, &pool->all) {
		const struct sp_entry *entry = SP_CONTAINER_OF(link, struct sp_entry, by_age);

		check_entry(pool, entry);
		count[entry->sandbox.state]++;
		retiring += entry->retiring;
		reserved += entry->reserved_for != NULL;
		direct += entry->direct;
	}
	for (size_t i = 0; i < SP_ARRAY_SIZE(count); i++)
		sp_assert(count[i] == pool->count[i]);
	sp_assert(retiring == pool->retiring && reserved == pool->reserved);
	sp_assert(direct == pool->direct);
	sp_assert(length(&pool->all) == sp_pool_total(pool));
	sp_assert(pool->by_id.count == sp_pool_total(pool));
	sp_assert(pool->timers.count == sp_pool_total(pool));
	sp_assert(length(&pool->creating) == count[SP_SANDBOX_CREATING]);
	sp_assert(length(&pool->unlisted) + length(&pool->idle) + length(&pool->aging) ==
		  count[SP_SANDBOX_IDLE]);
}

static void check_waiters(const struct sp_pool *pool)
{
	uint32_t queued = 0;
	uint32_t demand = 0;
	uint32_t named = 0;

	SP_LIST_FOREACH (link, &pool->waiting) {
		const struct sp_acquire *acquire = SP_CONTAINER_OF(link, struct sp_acquire, link);

		sp_assert(!acquire->finished && acquire->pool == pool && acquire->lease);
		sp_assert(sp_heap_contains(&acquire->deadline));
		sp_assert(!acquire->creation || acquire->creation->reserved_for == acquire);
		sp_assert(!acquire->creation || sp_list_empty(&acquire->needing));
		queued += !acquire->creation;
		demand += !sp_acquire_policy_creates(acquire->request.policy);
		named += acquire->by_lease.key != NULL;
	}
	sp_assert(length(&pool->waiting) == pool->waiter_count);
	sp_assert(queued == pool->queued && demand == pool->demand);
	sp_assert(named == pool->waiting_by_lease.count);
	sp_assert(pool->deadlines.count == pool->waiter_count);
}

void sp_pool_check(const struct sp_pool *pool, int64_t now_ms)
{
	sp_assert(now_ms >= pool->now_ms);
	sp_assert(pool->depth == 0);
	check_entries(pool);
	check_waiters(pool);
	check_heap(&pool->timers);
	check_heap(&pool->deadlines);
	sp_assert(length(&pool->tombstones) == pool->tombstone_count);
	sp_assert(pool->by_lease.count == pool->tombstone_count + pool->count[SP_SANDBOX_LEASED]);
	sp_assert(pool->tombstone_count <= SP_LEASE_TOMBSTONES_LIMIT);
	if (pool->lifecycle != SP_POOL_LIFE_RUNNING)
		sp_assert(pool->waiter_count == 0 && pool->count[SP_SANDBOX_CREATING] == 0 &&
			  pool->count[SP_SANDBOX_IDLE] == 0);
}
