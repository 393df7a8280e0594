/*
 * The pool's side of the store port: heartbeats, listing, and the operator's intent.
 *
 * Nothing here waits. Until the first heartbeat is answered the pool has no share and creates
 * nothing for itself; afterwards an outage leaves the last share in force. What could not be
 * written (a resize, a drain, a tombstone) is kept as the wish `meta_unsent` and written after the
 * next heartbeat that gets through; until then what the store says about it is older than ours.
 *
 * The store may owe answers when the pool is freed, so their argument is a counted link.
 */
#include "pool/pool_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int sp_directory_init(struct sp_pool *pool)
{
	struct sp_store_link *link = calloc(1, sizeof(*link));
	struct sp_store *store = pool->ports.store;

	if (!link)
		return -ENOMEM;
	link->pool = pool;
	link->refs = 1;
	pool->directory.link = link;
	if (store->ops->attach)
		store->ops->attach(store, pool->config.name, &sp_owner, pool);
	return 0;
}

static void link_unref(struct sp_store_link *link)
{
	if (--link->refs == 0)
		free(link);
}

static struct sp_store_link *link_ref(struct sp_pool *pool)
{
	pool->directory.link->refs++;
	return pool->directory.link;
}

/* The pool that an answer is for; NULL when it was freed meanwhile. */
static struct sp_pool *answered(void *arg)
{
	struct sp_store_link *link = arg;
	struct sp_pool *pool = link->pool;

	link_unref(link);
	return pool;
}

void sp_directory_done(struct sp_pool *pool)
{
	struct sp_store *store = pool->ports.store;

	if (!pool->directory.link)
		return;
	if (store->ops->attach)
		store->ops->attach(store, pool->config.name, NULL, NULL);
	pool->directory.link->pool = NULL;
	link_unref(pool->directory.link);
	pool->directory.link = NULL;
}

/* ---- heartbeat ---- */

static void set_allotment(struct sp_pool *pool, uint32_t share)
{
	struct sp_directory *directory = &pool->directory;
	uint32_t allotment = share - SP_MIN(share, directory->waiters_told);

	allotment = SP_MIN(allotment, (uint32_t)SP_POOL_MAX_IDLE_LIMIT);
	if (allotment != directory->allotment)
		pool->wake = true;
	directory->allotment = allotment;
}

static void on_share(void *arg, const struct sp_store_share *share, const struct sp_err *err)
{
	struct sp_pool *pool = answered(arg);
	struct sp_directory *directory;
	int64_t now;

	if (!pool)
		return;
	directory = &pool->directory;
	directory->heartbeat_pending = false;
	if (err || !share)
		return;
	now = sp_pool_enter(pool, pool->now_ms);
	directory->heartbeat_ms =
		SP_MIN(directory->heartbeat_ms, sp_time_add(now, share->valid_ms / 2));
	set_allotment(pool, share->share);
	if (directory->meta_unsent)
		(void)sp_directory_intent(pool, directory->intent, now);
	else if (share->meta.revision > directory->meta.revision)
		sp_pool_adopt(pool, &share->meta, now);
	sp_pool_leave(pool);
}

void sp_directory_heartbeat(struct sp_pool *pool, int64_t now_ms)
{
	struct sp_directory *directory = &pool->directory;
	struct sp_store *store = pool->ports.store;
	struct sp_store_counts counts = {
		.idle = pool->count[SP_SANDBOX_IDLE],
		.creating = sp_pool_warming(pool),
		.leased = pool->count[SP_SANDBOX_LEASED],
		.waiters = pool->demand,
		.configured_max_idle = pool->config.max_idle,
		.configured_max_total = pool->config.max_total,
		.leaving = pool->shut_down,
	};

	if (directory->heartbeat_pending) {
		directory->heartbeat_ms = now_ms;
		return;
	}
	directory->heartbeat_ms = now_ms + pool->config.tick_ms;
	directory->heartbeat_pending = true;
	directory->waiters_told = counts.waiters;
	if (store->ops->heartbeat(store, pool->config.name, &counts, now_ms, on_share,
				  link_ref(pool)) < 0) {
		directory->heartbeat_pending = false;
		link_unref(directory->link);
	}
}

static bool speaks(const struct sp_pool *pool)
{
	switch (pool->lifecycle) {
	case SP_POOL_LIFE_RUNNING:
	case SP_POOL_LIFE_DRAINING:
	case SP_POOL_LIFE_STOPPED:
		/* On the way out it speaks for what it still holds: a host that is silent is dead,
		 * and its leases are taken for lost. */
		return !pool->shut_down || sp_pool_total(pool) > 0;
	case SP_POOL_LIFE_DESTROYED:
		return pool->directory.meta_unsent;
	case SP_POOL_LIFE_NOT_STARTED:
		return false;
	}
	return false;
}

int64_t sp_directory_next_ms(const struct sp_pool *pool)
{
	return speaks(pool) && !pool->directory.heartbeat_pending ? pool->directory.heartbeat_ms
								  : INT64_MAX;
}

void sp_directory_tick(struct sp_pool *pool, int64_t now_ms)
{
	if (sp_directory_next_ms(pool) <= now_ms)
		sp_directory_heartbeat(pool, now_ms);
}

/* ---- the operator's intent ---- */

static void on_meta(void *arg, const struct sp_store_meta *meta, const struct sp_err *err)
{
	struct sp_pool *pool = answered(arg);
	int64_t now;

	if (!pool)
		return;
	if (err && sp_err_client_code(err) != SP_CODE_POOL_DESTROYED) {
		pool->directory.meta_unsent = true;
		return;
	}
	if (!err) {
		if (meta->revision > pool->directory.meta.revision)
			pool->directory.meta = *meta;
		return;
	}
	/* Somebody destroyed it while we wished for something else. */
	now = sp_pool_enter(pool, pool->now_ms);
	if (meta)
		sp_pool_adopt(pool, meta, now);
	sp_pool_leave(pool);
}

bool sp_directory_intent(struct sp_pool *pool, enum sp_store_pool_state state, int64_t now_ms)
{
	struct sp_directory *directory = &pool->directory;
	struct sp_store *store = pool->ports.store;
	struct sp_store_meta meta = {
		.max_idle = pool->max_idle,
		.max_total = pool->max_total,
		.state = state,
	};

	directory->intent = state;
	directory->meta_unsent = false;
	if (store->ops->meta_set(store, pool->config.name, &meta, 0, now_ms, on_meta,
				 link_ref(pool)) < 0) {
		directory->meta_unsent = true;
		link_unref(directory->link);
	}
	return !directory->meta_unsent;
}

/* ---- listing ---- */

static void on_published(void *arg, const struct sp_store_listing *listing,
			 const struct sp_err *err)
{
	struct sp_pool *pool = answered(arg);
	struct sp_sandbox *sandbox = pool ? sp_pool_find(pool, listing->sandbox_id) : NULL;
	struct sp_entry *entry;
	int64_t now;

	SP_UNUSED(err); /* an outage: it may be handed out here, the store's rotation tells it */
	if (!sandbox)
		return;
	entry = sp_entry_of(sandbox);
	now = sp_pool_enter(pool, pool->now_ms);
	if (!entry->unlisted) {
		/* It left while the question was under way: say so again. */
		sp_directory_update(entry, now);
	} else if (listing->verdict == SP_STORE_REFUSED) {
		/* We hold more than our share now is: no more until the next heartbeat. */
		sp_entry_end(entry, SP_END_EXCESS, now, true);
		pool->directory.allotment =
			SP_MIN(pool->directory.allotment, pool->count[SP_SANDBOX_IDLE]);
	} else if (listing->verdict == SP_STORE_GRANTED) {
		/* Nobody has used it, but somebody may come for it with that lease. */
		if (!sp_owner_bind(entry, listing->lease_id, listing->ttl_ms, 0, now))
			sp_entry_end(entry, SP_END_LEASE_LOST, now, true);
	} else if (!sp_wait_offer(entry, now)) {
		sp_entry_list(entry);
	}
	sp_pool_leave(pool);
}

void sp_directory_publish(struct sp_entry *entry, int64_t now_ms)
{
	struct sp_pool *pool = entry->sandbox.pool;
	struct sp_store *store = pool->ports.store;

	if (store->ops->publish(store, pool->config.name, &entry->sandbox, now_ms, on_published,
				link_ref(pool)) < 0) {
		link_unref(pool->directory.link);
		sp_entry_list(entry);
	}
}

void sp_directory_update(struct sp_entry *entry, int64_t now_ms)
{
	struct sp_pool *pool = entry->sandbox.pool;

	pool->ports.store->ops->update(pool->ports.store, pool->config.name, &entry->sandbox,
				       now_ms);
}
