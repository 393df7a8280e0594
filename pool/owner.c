/*
 * What the directory asks of us: our own sandboxes, named by whoever found them there.
 *
 * Nothing of it is an order. The directory may be old, restored from a copy, or written to by
 * somebody who may not use the sandbox; so each wish is compared with our own tables and our own
 * clock, and whatever does not fit is answered by telling the directory how things are. A sandbox
 * that it names and we do not have is told to be gone.
 */
#include "pool/pool_private.h"

#include <string.h>

static int each(void *arg, int (*visit)(void *visit_arg, const struct sp_sandbox *sandbox),
		void *visit_arg)
{
	return sp_pool_each(arg, visit, visit_arg);
}

/* It does not exist (any more): the directory is to drop it. */
static void tell_gone(struct sp_pool *pool, const char *sandbox_id, int64_t now_ms)
{
	struct sp_sandbox gone = {.pool = pool, .state = SP_SANDBOX_GONE};

	if (!sp_sandbox_id_valid(sandbox_id))
		return;
	memcpy(gone.id, sandbox_id, sizeof(gone.id));
	pool->ports.store->ops->update(pool->ports.store, pool->config.name, &gone, now_ms);
}

/* NULL: nothing to do with it, and the directory was told so. */
static struct sp_entry *find(struct sp_pool *pool, const char *sandbox_id, int64_t now_ms)
{
	struct sp_sandbox *sandbox = sp_pool_find(pool, sandbox_id);

	if (!sandbox || sandbox->state == SP_SANDBOX_CREATING) {
		tell_gone(pool, sandbox_id, now_ms);
		return NULL;
	}
	if (sandbox->state == SP_SANDBOX_KILLING) {
		sp_directory_update(sp_entry_of(sandbox), now_ms);
		return NULL;
	}
	return sp_entry_of(sandbox);
}

bool sp_owner_bind(struct sp_entry *entry, const char *lease_id, int64_t ttl_ms, int64_t age_ms,
		   int64_t now_ms)
{
	struct sp_pool *pool = entry->sandbox.pool;
	struct sp_acquire_request request = {.ttl_ms = ttl_ms};
	struct sp_acquire *waiting;
	struct sp_lease *lease;
	int64_t remaining_ms = sp_entry_remaining(entry, now_ms);

	if (!sp_lease_id_valid(lease_id) || sp_lease_find(pool, lease_id))
		return false;
	waiting = sp_wait_find(pool, lease_id);
	if (waiting) {
		sp_wait_grant(waiting, entry, "waited", now_ms);
		return true;
	}
	memcpy(request.lease_id, lease_id, sizeof(request.lease_id));
	lease = sp_lease_new(&request);
	if (!lease)
		return false;
	lease->foreign = true;
	sp_lease_bind(lease, entry, age_ms, now_ms);
	/* With which policy it was asked for is known where it was asked. */
	sp_acquire_report(pool, SP_ACQUIRE_FAIL_FAST, "directory", 0, &entry->sandbox, remaining_ms,
			  now_ms);
	return true;
}

static void granted(void *arg, const char *sandbox_id, const char *lease_id, int64_t ttl_ms,
		    int64_t age_ms)
{
	struct sp_pool *pool = arg;
	int64_t now = sp_pool_enter(pool, pool->now_ms);
	struct sp_entry *entry = find(pool, sandbox_id, now);

	if (!entry) {
		sp_pool_leave(pool);
		return;
	}
	if (entry->sandbox.state == SP_SANDBOX_LEASED &&
	    strcmp(entry->sandbox.lease_id, lease_id) == 0)
		sp_lease_learn_ttl(entry, ttl_ms);
	if (entry->sandbox.state == SP_SANDBOX_LEASED || !sp_lease_id_valid(lease_id))
		sp_directory_update(entry, now);
	else if (!sp_owner_bind(entry, lease_id, ttl_ms, age_ms, now))
		/* The lease has another one. This one was given away and can be nobody else's. */
		sp_entry_end(entry, SP_END_LEASE_LOST, now, true);
	sp_pool_leave(pool);
}

/* Is it so, by our clock? */
static bool hint_holds(const struct sp_entry *entry, enum sp_end_reason reason, int64_t now_ms)
{
	int64_t remaining = sp_entry_remaining(entry, now_ms);

	if (entry->sandbox.state == SP_SANDBOX_IDLE && reason == SP_END_NEAR_EXPIRY)
		return remaining <= entry->sandbox.pool->config.acquire_min_remaining_ttl_ms;
	return remaining <= 0;
}

/* What the command is about: our own lease, or one that we never heard of and that cannot come any
 * more. */
static bool command_fits(const struct sp_entry *entry, const char *lease_id,
			 enum sp_end_reason reason)
{
	bool leased = entry->sandbox.state == SP_SANDBOX_LEASED;

	if (lease_id[0] == '\0')
		return !leased || (reason != SP_END_EXCESS && reason != SP_END_DRAINED);
	return !leased || strcmp(entry->sandbox.lease_id, lease_id) == 0;
}

static void obey(struct sp_entry *entry, const char *lease_id, enum sp_end_reason reason,
		 int64_t now_ms)
{
	/* Given to this lease and given back before we heard of it: bound first, so that the lease
	 * is remembered as ended. */
	if (entry->sandbox.state == SP_SANDBOX_IDLE && lease_id[0] != '\0')
		(void)sp_owner_bind(entry, lease_id, 0, 0, now_ms);
	sp_entry_end(entry, reason, now_ms, true);
}

static void end(void *arg, const char *sandbox_id, const char *lease_id, enum sp_end_reason reason,
		bool hint)
{
	struct sp_pool *pool = arg;
	int64_t now = sp_pool_enter(pool, pool->now_ms);
	struct sp_entry *entry = find(pool, sandbox_id, now);

	if (!entry) {
		sp_pool_leave(pool);
		return;
	}
	if (!hint && command_fits(entry, lease_id, reason))
		obey(entry, lease_id, reason, now);
	else if (!hint || !hint_holds(entry, reason, now))
		sp_directory_update(entry, now);
	else if (entry->sandbox.state == SP_SANDBOX_LEASED)
		(void)sp_lease_lapsed(entry, now, true);
	else
		sp_entry_end(entry, reason == SP_END_NEAR_EXPIRY ? reason : SP_END_EXPIRED, now,
			     true);
	sp_pool_leave(pool);
}

static void renew(void *arg, const char *sandbox_id, const char *lease_id, int64_t ttl_ms)
{
	struct sp_pool *pool = arg;
	int64_t now = sp_pool_enter(pool, pool->now_ms);
	struct sp_entry *entry = find(pool, sandbox_id, now);
	int64_t ignored;

	if (entry && entry->sandbox.claimed && ttl_ms > 0 &&
	    strcmp(entry->sandbox.lease_id, lease_id) == 0) {
		if (sp_pool_renew(pool, &entry->sandbox, SP_MIN(ttl_ms, pool->config.max_lease_ms),
				  now, &ignored, NULL) == 0)
			sp_lease_moved(entry);
	}
	if (entry)
		sp_directory_update(entry, now);
	sp_pool_leave(pool);
}

static void wake(void *arg)
{
	struct sp_pool *pool = arg;

	pool->directory.heartbeat_ms = SP_MIN(pool->directory.heartbeat_ms, pool->now_ms);
}

const struct sp_store_owner sp_owner = {
	.each = each,
	.granted = granted,
	.end = end,
	.renew = renew,
	.wake = wake,
};
