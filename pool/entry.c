/*
 * One sandbox's way through the pool's tables: made, settled, ended, killed, gone.
 *
 * sp_entry_set_state() is the only place that changes a state; sp_entry_end() the only one that
 * lets a sandbox die. The kill itself is asked for at once or, on the path of a caller who waits
 * for an acquire, by the next tick; it is asked again, less and less often, until the backend says
 * gone. Trusts the backend for the order of its answers, but not for their being in time: an answer
 * that comes after the kill was asked for is ignored.
 */
#include "pool/pool_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct sp_pool *pool_of(const struct sp_entry *entry)
{
	return entry->sandbox.pool;
}

static void reserve(struct sp_entry *entry, struct sp_acquire *acquire)
{
	entry->reserved_for = acquire;
	pool_of(entry)->reserved++;
	sp_wait_own_creation(acquire, entry);
}

void sp_entry_unreserve(struct sp_entry *entry)
{
	struct sp_acquire *acquire = entry->reserved_for;

	if (!acquire)
		return;
	entry->reserved_for = NULL;
	pool_of(entry)->reserved--;
	sp_wait_lose_creation(acquire);
}

static void drop_direct(struct sp_entry *entry)
{
	if (!entry->direct)
		return;
	entry->direct = false;
	pool_of(entry)->direct--;
}

static struct sp_entry *make(struct sp_pool *pool, struct sp_acquire *acquire, int64_t now_ms)
{
	struct sp_entry *entry;

	if (sp_heap_reserve(&pool->timers, (size_t)sp_pool_total(pool) + 1) < 0)
		return NULL;
	entry = calloc(1, sizeof(*entry));
	if (!entry)
		return NULL;
	sp_sandbox_id_new(entry->sandbox.id);
	entry->sandbox.pool = pool;
	entry->sandbox.state = SP_SANDBOX_CREATING;
	entry->sandbox.created_ms = now_ms;
	entry->sandbox.spec_generation = pool->config.spec_generation;
	entry->backoff_epoch = pool->health.epoch;
	sp_map_insert(&pool->by_id, &entry->by_id, entry->sandbox.id);
	sp_list_append(&pool->all, &entry->by_age);
	sp_list_append(&pool->creating, &entry->place);
	sp_heap_node_init(&entry->timer);
	sp_heap_set(&pool->timers, &entry->timer,
		    sp_time_add(now_ms, pool->config.create_timeout_ms));
	pool->count[SP_SANDBOX_CREATING]++;
	if (acquire) {
		entry->direct = true;
		pool->direct++;
		reserve(entry, acquire);
	}
	return entry;
}

/* Takes it out of every table. */
static void destroy(struct sp_entry *entry)
{
	struct sp_pool *pool = pool_of(entry);

	sp_entry_unreserve(entry);
	drop_direct(entry);
	sp_heap_remove(&pool->timers, &entry->timer);
	sp_map_remove(&pool->by_id, &entry->by_id);
	sp_list_remove(&entry->by_age);
	sp_list_remove(&entry->place);
	pool->count[entry->sandbox.state]--;
	free(entry);
}

int sp_entry_create(struct sp_pool *pool, struct sp_acquire *reserved_for, int64_t now_ms,
		    struct sp_err *err)
{
	struct sp_entry *entry = make(pool, reserved_for, now_ms);
	struct sp_err refused = {0};
	int result;

	if (entry)
		result = pool->ports.backend->create(pool->ports.backend_arg, &entry->sandbox,
						     &refused);
	else
		result = sp_err_set(&refused, -ENOMEM, "make a sandbox of pool '%s'",
				    pool->config.name);
	if (result >= 0)
		return 0;
	if (entry)
		destroy(entry);
	sp_health_failed(pool, pool->health.epoch, "admission", false, &refused, now_ms);
	(void)sp_err_code(err, SP_CODE_CREATE_FAILED, result, "%s", refused.message);
	return result;
}

static void leave_idle(struct sp_entry *entry)
{
	if (entry->retiring)
		pool_of(entry)->retiring--;
	entry->retiring = false;
	entry->unlisted = false;
}

void sp_entry_set_state(struct sp_entry *entry, enum sp_sandbox_state state)
{
	struct sp_pool *pool = pool_of(entry);
	enum sp_sandbox_state from = entry->sandbox.state;

	sp_assert(sp_sandbox_edge_allowed(from, state));
	if (from == SP_SANDBOX_CREATING)
		sp_entry_unreserve(entry);
	if (from == SP_SANDBOX_IDLE)
		leave_idle(entry);
	sp_list_remove(&entry->place);
	pool->count[from]--;
	pool->count[state]++;
	entry->sandbox.state = state;
}

void sp_entry_end(struct sp_entry *entry, enum sp_end_reason reason, int64_t now_ms, bool ask)
{
	struct sp_pool *pool = pool_of(entry);
	const struct sp_pool_events *events = pool->ports.events;
	enum sp_sandbox_state from = entry->sandbox.state;

	if (from == SP_SANDBOX_KILLING)
		return;
	sp_entry_set_state(entry, SP_SANDBOX_KILLING);
	entry->sandbox.end_reason = reason;
	entry->ending_ms = now_ms;
	pool->ends_total[reason]++;
	pool->wake = true;
	sp_heap_set(&pool->timers, &entry->timer, now_ms);
	if (from == SP_SANDBOX_LEASED)
		sp_lease_end(entry, now_ms);
	if (from != SP_SANDBOX_CREATING)
		sp_directory_update(entry, now_ms);
	if (events && events->ended)
		events->ended(pool->ports.events_arg, &entry->sandbox, reason);
	if (ask)
		sp_entry_kill(entry, now_ms);
}

void sp_entry_kill(struct sp_entry *entry, int64_t now_ms)
{
	struct sp_pool *pool = pool_of(entry);
	int64_t retry_ms = pool->config.kill_retry_ms;

	for (uint32_t i = 0; i < entry->sandbox.kill_attempts && retry_ms < SP_KILL_RETRY_MAX_MS;
	     i++)
		retry_ms *= 2;
	retry_ms = SP_MIN(retry_ms, SP_KILL_RETRY_MAX_MS);
	if (entry->sandbox.kill_attempts < UINT32_MAX)
		entry->sandbox.kill_attempts++;
	entry->sandbox.killed_ms = now_ms;
	sp_heap_set(&pool->timers, &entry->timer, now_ms + retry_ms);
	pool->ports.backend->kill(pool->ports.backend_arg, &entry->sandbox);
}

void sp_entry_create_failed(struct sp_entry *entry, const char *stage, bool permanent,
			    const struct sp_err *err, int64_t now_ms, bool ask)
{
	struct sp_acquire *acquire = entry->reserved_for;

	sp_health_failed(pool_of(entry), entry->backoff_epoch, stage, permanent, err, now_ms);
	if (acquire) {
		struct sp_err failure;

		(void)sp_err_code(&failure, SP_CODE_CREATE_FAILED,
				  err->status != 0 ? err->status : -EIO,
				  "create a sandbox of pool '%s': %s: %s",
				  pool_of(entry)->config.name, stage, err->message);
		sp_wait_fail(acquire, &failure, "create_failed", now_ms);
	}
	sp_entry_end(entry, SP_END_CREATE_FAILED, now_ms, ask);
}

/*
 * The life of an idle one is shortened by a share of the jitter, so that a pool which was filled at
 * once does not die at once. The share grows with what is still missing: of a burst the first is
 * the first to end, so that taking the oldest takes the one with the least life left, and in a full
 * pool, which needs no spreading, hardly any life is lost. Never more than half of the time in
 * which it can be handed out.
 */
static int64_t jittered_life(struct sp_pool *pool)
{
	const struct sp_pool_config *config = &pool->config;
	int64_t life = config->idle_timeout_ms;
	int64_t dispensable =
		life - config->acquire_min_remaining_ttl_ms - config->refresh_margin_ms;
	int64_t most = SP_MIN(life * config->expiry_jitter_percent / 100, dispensable / 2);
	int64_t slots = SP_MAX(pool->directory.allotment, 1U);
	int64_t missing = slots - SP_MIN(pool->count[SP_SANDBOX_IDLE], slots);

	return life - (most * missing + (int64_t)sp_pool_random(pool, (uint64_t)most + 1)) / slots;
}

void sp_entry_set_idle_timer(struct sp_entry *entry)
{
	struct sp_pool *pool = pool_of(entry);
	int64_t due = entry->sandbox.expires_ms - pool->config.acquire_min_remaining_ttl_ms;

	if (!entry->retiring)
		due -= pool->config.refresh_margin_ms;
	sp_heap_set(&pool->timers, &entry->timer, due);
}

static void place(struct sp_entry *entry)
{
	struct sp_pool *pool = pool_of(entry);
	struct sp_list *list = &pool->unlisted;

	if (!entry->unlisted)
		list = entry->retiring ? &pool->aging : &pool->idle;
	sp_list_remove(&entry->place);
	sp_list_append(list, &entry->place);
}

void sp_entry_list(struct sp_entry *entry)
{
	entry->unlisted = false;
	place(entry);
}

void sp_entry_retire(struct sp_entry *entry)
{
	struct sp_pool *pool = pool_of(entry);

	sp_assert(entry->sandbox.state == SP_SANDBOX_IDLE);
	if (!entry->retiring)
		pool->retiring++;
	entry->retiring = true;
	place(entry);
	sp_entry_set_idle_timer(entry);
	pool->wake = true;
}

void sp_entry_end_replaced(struct sp_pool *pool, int64_t now_ms)
{
	struct sp_entry *old;

	while (pool->count[SP_SANDBOX_IDLE] > pool->directory.allotment &&
	       (old = SP_LIST_FIRST(&pool->aging, struct sp_entry, place)) != NULL)
		sp_entry_end(old, SP_END_NEAR_EXPIRY, now_ms, true);
}

void sp_entry_settle(struct sp_entry *entry, int64_t now_ms)
{
	struct sp_pool *pool = pool_of(entry);

	sp_entry_end_replaced(pool, now_ms);
	if (pool->count[SP_SANDBOX_IDLE] > pool->directory.allotment) {
		sp_entry_end(entry, SP_END_EXCESS, now_ms, true);
		return;
	}
	entry->sandbox.expires_ms = now_ms + jittered_life(pool);
	entry->unlisted = true;
	place(entry);
	sp_entry_set_idle_timer(entry);
	sp_directory_publish(entry, now_ms);
}

void sp_pool_created(struct sp_pool *pool, struct sp_sandbox *sandbox, int64_t now_ms)
{
	const struct sp_pool_events *events = pool->ports.events;
	struct sp_entry *entry = sp_entry_of(sandbox);
	struct sp_acquire *acquire;
	int64_t now;

	sp_assert(sandbox->pool == pool);
	if (sandbox->state == SP_SANDBOX_KILLING)
		return;
	sp_assert(sandbox->state == SP_SANDBOX_CREATING);
	now = sp_pool_enter(pool, now_ms);
	sandbox->ready_ms = now;
	pool->created_total++;
	pool->wake = true;
	sp_health_succeeded(pool);
	drop_direct(entry);
	if (events && events->created)
		events->created(pool->ports.events_arg, sandbox, now - sandbox->created_ms);
	sp_wait_expire(pool, now);
	acquire = entry->reserved_for;
	sandbox->expires_ms = now + pool->config.idle_timeout_ms;
	sp_entry_set_state(entry, SP_SANDBOX_IDLE);
	if (acquire)
		sp_wait_grant(acquire, entry, "created", now);
	else if (!sp_wait_offer(entry, now))
		sp_entry_settle(entry, now);
	sp_pool_leave(pool);
}

void sp_pool_create_failed(struct sp_pool *pool, struct sp_sandbox *sandbox, const char *stage,
			   bool permanent, const struct sp_err *err, int64_t now_ms)
{
	int64_t now;

	sp_assert(sandbox->pool == pool);
	if (sandbox->state == SP_SANDBOX_KILLING)
		return;
	sp_assert(sandbox->state == SP_SANDBOX_CREATING);
	now = sp_pool_enter(pool, now_ms);
	/* Often nothing is left and gone follows at once; the next tick asks if it does not. */
	sp_entry_create_failed(sp_entry_of(sandbox), stage, permanent, err, now, false);
	sp_pool_leave(pool);
}

void sp_pool_died(struct sp_pool *pool, struct sp_sandbox *sandbox, int64_t now_ms)
{
	struct sp_entry *entry = sp_entry_of(sandbox);
	int64_t now = sp_pool_enter(pool, now_ms);

	sp_assert(sandbox->pool == pool);
	if (sandbox->state == SP_SANDBOX_CREATING) {
		struct sp_err err = {0};

		(void)sp_err_code(&err, SP_CODE_SANDBOX_DEAD, -ECHILD,
				  "sandbox '%s' died before it was ready", sandbox->id);
		sp_entry_create_failed(entry, "died", false, &err, now, false);
	}
	if (sandbox->state != SP_SANDBOX_KILLING) {
		sp_entry_end(entry, SP_END_DIED, now, false);
		/* gone follows by itself; only if it does not, ask. */
		sp_heap_set(&pool->timers, &entry->timer, now + pool->config.kill_retry_ms);
	}
	sp_pool_leave(pool);
}

void sp_pool_gone(struct sp_pool *pool, struct sp_sandbox *sandbox, int64_t now_ms)
{
	const struct sp_pool_events *events = pool->ports.events;
	struct sp_entry *entry = sp_entry_of(sandbox);
	int64_t now = sp_pool_enter(pool, now_ms);

	sp_assert(sandbox->pool == pool);
	if (sandbox->state != SP_SANDBOX_KILLING)
		sp_pool_died(pool, sandbox, now);
	sp_entry_set_state(entry, SP_SANDBOX_GONE);
	sp_wait_forget(pool, sandbox);
	sp_directory_update(entry, now);
	if (events && events->gone)
		events->gone(pool->ports.events_arg, sandbox, now - entry->ending_ms);
	pool->ports.backend->forget(pool->ports.backend_arg, sandbox);
	destroy(entry);
	pool->wake = true;
	sp_pool_stopped_check(pool, now);
	sp_pool_leave(pool);
}

void sp_pool_end(struct sp_pool *pool, struct sp_sandbox *sandbox, enum sp_end_reason reason,
		 int64_t now_ms)
{
	struct sp_entry *entry = sp_entry_of(sandbox);
	int64_t now = sp_pool_enter(pool, now_ms);
	struct sp_acquire *acquire = entry->reserved_for;

	sp_assert(sandbox->pool == pool);
	sp_assert(reason != SP_END_NONE);
	if (acquire) {
		struct sp_err err;

		(void)sp_err_code(&err, SP_CODE_CREATE_FAILED, -ECANCELED,
				  "sandbox '%s' was ended while it was being created", sandbox->id);
		sp_wait_fail(acquire, &err, "create_failed", now);
	}
	sp_entry_end(entry, reason, now, true);
	sp_pool_leave(pool);
}
