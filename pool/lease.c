/*
 * Leases: who holds which sandbox, until when, and what is remembered afterwards.
 *
 * The end of a lease. At hand-out it is now + claim_timeout, because somebody who never learned of
 * the grant must not pin a sandbox. At the first claim it becomes claim time + min(ttl, max_lease);
 * ttl 0 stands for what remained of the sandbox's idle life at hand-out. Renewals move it on, never
 * back. Who took a sandbox from the directory and claims it before we heard of that has another
 * claim_timeout first, and gets the ttl that was asked for as soon as the directory tells it, or
 * what a claim without ttl means when it tells nothing in that time. A timer
 * enforces it, and every use compares it with the clock as well: after a suspend the timer may be
 * late, the comparison is not.
 *
 * When the sandbox ends, its lease stays as a tombstone for SP_LEASE_TOMBSTONE_MS, so that a
 * repeated acquire is told LEASE_ENDED instead of being given a second sandbox.
 */
#include "pool/pool_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct sp_lease *sp_lease_new(const struct sp_acquire_request *request)
{
	struct sp_lease *lease = calloc(1, sizeof(*lease));

	if (!lease)
		return NULL;
	memcpy(lease->id, request->lease_id, sizeof(lease->id));
	lease->policy = request->policy;
	lease->ttl_ms = request->ttl_ms;
	sp_list_init(&lease->grave);
	return lease;
}

void sp_lease_free(struct sp_lease *lease)
{
	free(lease);
}

static int64_t life_after_claim(const struct sp_entry *entry)
{
	int64_t life = entry->lease->ttl_ms > 0 ? entry->lease->ttl_ms : entry->life_ms;

	return SP_MIN(life, entry->sandbox.pool->config.max_lease_ms);
}

/* … until the directory has said for how long it was asked. */
static int64_t life_until_told(const struct sp_entry *entry)
{
	int64_t claim_timeout_ms = entry->sandbox.pool->config.claim_timeout_ms;
	int64_t life = life_after_claim(entry);

	return entry->sandbox.ttl_open && claim_timeout_ms > 0 ? SP_MIN(life, claim_timeout_ms)
							       : life;
}

static void set_end(struct sp_entry *entry, int64_t expires_ms)
{
	entry->sandbox.expires_ms = expires_ms;
	sp_heap_set(&entry->sandbox.pool->timers, &entry->timer, expires_ms);
}

void sp_lease_bind(struct sp_lease *lease, struct sp_entry *entry, int64_t age_ms, int64_t now_ms)
{
	struct sp_pool *pool = entry->sandbox.pool;
	int64_t life;

	sp_assert(!entry->lease);
	entry->life_ms = sp_entry_remaining(entry, now_ms);
	entry->lease = lease;
	lease->entry = entry;
	sp_map_insert(&pool->by_lease, &lease->by_id, lease->id);
	sp_entry_set_state(entry, SP_SANDBOX_LEASED);
	memcpy(entry->sandbox.lease_id, lease->id, sizeof(entry->sandbox.lease_id));
	entry->sandbox.leased_ms = now_ms;
	life = life_after_claim(entry);
	if (pool->config.claim_timeout_ms > 0)
		life = SP_MIN(life, pool->config.claim_timeout_ms - age_ms);
	set_end(entry, now_ms + life);
	pool->wake = true;
	sp_directory_update(entry, now_ms);
}

void sp_lease_learn_ttl(struct sp_entry *entry, int64_t ttl_ms)
{
	struct sp_lease *lease = entry->lease;
	int64_t end_ms;

	if (!entry->sandbox.ttl_open)
		return;
	entry->sandbox.ttl_open = false;
	if (ttl_ms > 0)
		lease->ttl_ms = ttl_ms;
	if (!entry->sandbox.claimed)
		return;
	end_ms = sp_time_add(lease->claimed_ms, life_after_claim(entry));
	set_end(entry, lease->renewed ? SP_MAX(end_ms, entry->sandbox.expires_ms) : end_ms);
	sp_lease_moved(entry);
}

void sp_lease_moved(const struct sp_entry *entry)
{
	const struct sp_pool *pool = entry->sandbox.pool;

	if (pool->ports.events && pool->ports.events->end_moved)
		pool->ports.events->end_moved(pool->ports.events_arg, &entry->sandbox);
}

static struct sp_lease *oldest_tombstone(struct sp_pool *pool)
{
	return SP_LIST_FIRST(&pool->tombstones, struct sp_lease, grave);
}

void sp_lease_drop_oldest(struct sp_pool *pool)
{
	struct sp_lease *lease = oldest_tombstone(pool);

	sp_list_remove(&lease->grave);
	sp_map_remove(&pool->by_lease, &lease->by_id);
	pool->tombstone_count--;
	sp_lease_free(lease);
}

void sp_lease_end(struct sp_entry *entry, int64_t now_ms)
{
	struct sp_pool *pool = entry->sandbox.pool;
	struct sp_lease *lease = entry->lease;

	entry->lease = NULL;
	lease->entry = NULL;
	lease->ended_ms = now_ms;
	if (pool->tombstone_count >= SP_LEASE_TOMBSTONES_LIMIT)
		sp_lease_drop_oldest(pool);
	sp_list_append(&pool->tombstones, &lease->grave);
	pool->tombstone_count++;
}

void sp_lease_prune(struct sp_pool *pool, int64_t now_ms)
{
	const struct sp_lease *lease;

	while ((lease = oldest_tombstone(pool)) && now_ms - lease->ended_ms > SP_LEASE_TOMBSTONE_MS)
		sp_lease_drop_oldest(pool);
}

struct sp_lease *sp_lease_find(struct sp_pool *pool, const char *lease_id)
{
	struct sp_map_link *link = sp_map_find(&pool->by_lease, lease_id);

	return link ? SP_CONTAINER_OF(link, struct sp_lease, by_id) : NULL;
}

bool sp_lease_lapsed(struct sp_entry *entry, int64_t now_ms, bool ask)
{
	if (sp_entry_remaining(entry, now_ms) <= 0 && entry->sandbox.ttl_open &&
	    entry->sandbox.claimed) {
		/* The directory has said nothing: what a claim without ttl means by itself. */
		sp_lease_learn_ttl(entry, 0);
		sp_directory_update(entry, now_ms);
	}
	if (sp_entry_remaining(entry, now_ms) > 0)
		return false;
	sp_entry_end(entry,
		     entry->sandbox.claimed || entry->sandbox.pool->config.claim_timeout_ms == 0
			     ? SP_END_EXPIRED
			     : SP_END_UNCLAIMED,
		     now_ms, ask);
	return true;
}

struct sp_sandbox *sp_pool_find_lease(struct sp_pool *pool, const char *lease_id)
{
	struct sp_lease *lease = sp_lease_find(pool, lease_id);

	return lease && lease->entry ? &lease->entry->sandbox : NULL;
}

static int ended(const struct sp_sandbox *sandbox, struct sp_err *err)
{
	return sp_err_code(err, SP_CODE_LEASE_ENDED, -ESTALE, "the lease of sandbox '%s' has ended",
			   sandbox->id);
}

int sp_pool_claim(struct sp_pool *pool, struct sp_sandbox *sandbox, int64_t now_ms,
		  struct sp_err *err)
{
	struct sp_entry *entry = sp_entry_of(sandbox);
	int64_t now = sp_pool_at(pool, now_ms);

	sp_assert(sandbox->pool == pool);
	if (sandbox->state != SP_SANDBOX_LEASED || sp_lease_lapsed(entry, now, false))
		return ended(sandbox, err);
	if (sandbox->claimed)
		return 0;
	sandbox->claimed = true;
	entry->lease->claimed_ms = now;
	set_end(entry, now + life_until_told(entry));
	sp_directory_update(entry, now);
	return 0;
}

static int bind(struct sp_pool *pool, struct sp_entry *entry, const char *lease_id, int64_t ttl_ms,
		int64_t now_ms, struct sp_err *err)
{
	struct sp_lease *lease = sp_lease_find(pool, lease_id);

	if (sp_entry_remaining(entry, now_ms) <= 0 || (lease && !lease->entry))
		return ended(&entry->sandbox, err);
	if (lease)
		return sp_err_code(err, SP_CODE_LEASE_MISMATCH, -EEXIST,
				   "lease '%s' holds sandbox '%s', not '%s'", lease_id,
				   lease->entry->sandbox.id, entry->sandbox.id);
	/* Before the directory is told: it answers with what it knows. */
	entry->sandbox.ttl_open = ttl_ms == 0 && !sp_wait_find(pool, lease_id);
	if (!sp_owner_bind(entry, lease_id, ttl_ms, 0, now_ms)) {
		entry->sandbox.ttl_open = false;
		return sp_err_set(err, -ENOMEM, "bind sandbox '%s'", entry->sandbox.id);
	}
	return 0;
}

/* What the holder itself names counts, whether the directory's word came before it or not. */
static void choose_ttl(struct sp_lease *lease, struct sp_sandbox *sandbox, int64_t ttl_ms)
{
	if (!lease->foreign || sandbox->claimed || ttl_ms <= 0)
		return;
	lease->ttl_ms = ttl_ms;
	sandbox->ttl_open = false;
}

int sp_pool_bind(struct sp_pool *pool, struct sp_sandbox *sandbox, const char *lease_id,
		 int64_t ttl_ms, int64_t now_ms, struct sp_err *err)
{
	int64_t now = sp_pool_enter(pool, now_ms);
	int result = 0;

	sp_assert(sandbox->pool == pool && sp_lease_id_valid(lease_id));
	if (ttl_ms < 0)
		result = sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				     "ttl %" PRId64 " ms is negative", ttl_ms);
	else if (sandbox->state == SP_SANDBOX_IDLE)
		result = bind(pool, sp_entry_of(sandbox), lease_id, ttl_ms, now, err);
	else if (sandbox->state != SP_SANDBOX_LEASED)
		result = ended(sandbox, err);
	else if (strcmp(sandbox->lease_id, lease_id) != 0)
		result = sp_err_code(err, SP_CODE_CONFLICT, -EEXIST, "sandbox '%s' is another's",
				     sandbox->id);
	else
		choose_ttl(sp_entry_of(sandbox)->lease, sandbox, ttl_ms);
	sp_pool_leave(pool);
	return result;
}

int sp_pool_renew(struct sp_pool *pool, struct sp_sandbox *sandbox, int64_t ttl_ms, int64_t now_ms,
		  int64_t *ret_expires_ms, struct sp_err *err)
{
	int result;

	if (ttl_ms <= 0 || ttl_ms > pool->config.max_lease_ms)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "ttl %" PRId64 " ms is not within 1 to max_lease (%" PRId64
				   " ms)",
				   ttl_ms, pool->config.max_lease_ms);
	result = sp_pool_claim(pool, sandbox, now_ms, err);
	if (result < 0)
		return result;
	sp_entry_of(sandbox)->lease->renewed = true;
	if (pool->now_ms + ttl_ms > sandbox->expires_ms) {
		set_end(sp_entry_of(sandbox), pool->now_ms + ttl_ms);
		sp_directory_update(sp_entry_of(sandbox), pool->now_ms);
	}
	*ret_expires_ms = sandbox->expires_ms;
	return 0;
}
