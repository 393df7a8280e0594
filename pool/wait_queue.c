/*
 * Acquires that could not be answered at once: first come, first served, bounded, each with a
 * deadline.
 *
 * A waiter is in `waiting` until it is granted a sandbox, fails or is cancelled. Then it moves to
 * `finished`, and its callback runs when the outermost entry point leaves. Time is compared at the
 * moment of the grant, so a waiter whose deadline has passed gets its timeout and never a sandbox,
 * no matter in which order the tick and the creation arrive.
 *
 * A create policy's waiter has a creation of its own as soon as max_direct_creates lets it. It
 * still takes whatever becomes ready first; the creation then goes to whoever comes next.
 *
 * Several waiters may hold one lease id (a client that asked again): they form a ring and are all
 * answered by the one grant.
 */
#include "pool/pool_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

static struct sp_acquire *acquire_of(struct sp_list *link)
{
	return SP_CONTAINER_OF(link, struct sp_acquire, link);
}

static bool creates(const struct sp_acquire *acquire)
{
	return sp_acquire_policy_creates(acquire->request.policy);
}

struct sp_acquire *sp_wait_find(struct sp_pool *pool, const char *lease_id)
{
	struct sp_map_link *link = sp_map_find(&pool->waiting_by_lease, lease_id);

	return link ? SP_CONTAINER_OF(link, struct sp_acquire, by_lease) : NULL;
}

static struct sp_acquire *make(struct sp_pool *pool, const struct sp_acquire_request *request)
{
	struct sp_acquire *acquire;

	if (sp_heap_reserve(&pool->deadlines, (size_t)pool->waiter_count + 1) < 0)
		return NULL;
	acquire = calloc(1, sizeof(*acquire));
	if (!acquire)
		return NULL;
	acquire->lease = sp_lease_new(request);
	if (!acquire->lease) {
		free(acquire);
		return NULL;
	}
	acquire->pool = pool;
	acquire->request = *request;
	sp_list_init(&acquire->link);
	sp_list_init(&acquire->needing);
	sp_list_init(&acquire->same);
	sp_heap_node_init(&acquire->deadline);
	return acquire;
}

int sp_wait_enqueue(struct sp_pool *pool, const struct sp_acquire_request *request,
		    sp_acquire_cb *cb, void *arg, int64_t now_ms, struct sp_acquire **ret_acquire,
		    struct sp_err *err)
{
	struct sp_acquire *acquire = make(pool, request);
	struct sp_acquire *same;

	if (!acquire)
		return sp_err_set(err, -ENOMEM, "queue an acquire of pool '%s'", pool->config.name);
	acquire->cb = cb;
	acquire->arg = arg;
	acquire->started_ms = now_ms;
	same = sp_wait_find(pool, request->lease_id);
	if (same)
		sp_list_append(&same->same, &acquire->same);
	else
		sp_map_insert(&pool->waiting_by_lease, &acquire->by_lease,
			      acquire->request.lease_id);
	sp_list_append(&pool->waiting, &acquire->link);
	sp_heap_set(&pool->deadlines, &acquire->deadline, sp_time_add(now_ms, request->wait_ms));
	pool->waiter_count++;
	pool->queued++;
	if (!creates(acquire))
		pool->demand++;
	else if (!same)
		sp_list_append(&pool->needing, &acquire->needing);
	pool->wake = true;
	*ret_acquire = acquire;
	return 0;
}

void sp_wait_own_creation(struct sp_acquire *acquire, struct sp_entry *entry)
{
	sp_assert(!acquire->creation);
	acquire->creation = entry;
	acquire->pool->queued--;
	sp_list_remove(&acquire->needing);
}

void sp_wait_lose_creation(struct sp_acquire *acquire)
{
	acquire->creation = NULL;
	acquire->pool->queued++;
	acquire->pool->wake = true;
	sp_list_prepend(&acquire->pool->needing, &acquire->needing);
}

static void leave_ring(struct sp_acquire *acquire)
{
	struct sp_pool *pool = acquire->pool;
	struct sp_acquire *next = SP_LIST_FIRST(&acquire->same, struct sp_acquire, same);
	bool in_map = acquire->by_lease.key != NULL;

	sp_map_remove(&pool->waiting_by_lease, &acquire->by_lease);
	sp_list_remove(&acquire->same);
	if (!next || !in_map)
		return;
	sp_map_insert(&pool->waiting_by_lease, &next->by_lease, next->request.lease_id);
	if (creates(next) && !next->creation)
		sp_list_append(&pool->needing, &next->needing);
}

static void stop_waiting(struct sp_acquire *acquire)
{
	struct sp_pool *pool = acquire->pool;

	if (acquire->creation)
		sp_entry_unreserve(acquire->creation);
	leave_ring(acquire);
	sp_list_remove(&acquire->needing);
	sp_list_remove(&acquire->link);
	sp_heap_remove(&pool->deadlines, &acquire->deadline);
	pool->waiter_count--;
	pool->queued--;
	if (!creates(acquire))
		pool->demand--;
	pool->wake = true;
}

static void finish(struct sp_acquire *acquire)
{
	stop_waiting(acquire);
	acquire->finished = true;
	sp_list_append(&acquire->pool->finished, &acquire->link);
}

static void finish_granted(struct sp_acquire *acquire, struct sp_entry *entry, const char *result,
			   bool repeated, int64_t now_ms)
{
	acquire->result = (struct sp_acquire_result){
		.sandbox = &entry->sandbox,
		.remaining_ms = entry->life_ms,
		.waited = true,
		.repeated = repeated,
	};
	sp_acquire_report(acquire->pool, acquire->request.policy, result,
			  now_ms - acquire->started_ms, &entry->sandbox, entry->life_ms, now_ms);
	finish(acquire);
}

void sp_wait_grant(struct sp_acquire *acquire, struct sp_entry *entry, const char *result,
		   int64_t now_ms)
{
	struct sp_acquire *same = SP_LIST_FIRST(&acquire->same, struct sp_acquire, same);

	sp_lease_bind(acquire->lease, entry, 0, now_ms);
	acquire->lease = NULL;
	finish_granted(acquire, entry, result, false, now_ms);
	while (same) {
		struct sp_acquire *next = SP_LIST_FIRST(&same->same, struct sp_acquire, same);

		finish_granted(same, entry, "repeated", true, now_ms);
		same = next;
	}
}

void sp_wait_fail(struct sp_acquire *acquire, const struct sp_err *err, const char *result,
		  int64_t now_ms)
{
	acquire->err = *err;
	sp_acquire_report(acquire->pool, acquire->request.policy, result,
			  now_ms - acquire->started_ms, NULL, -1, now_ms);
	finish(acquire);
}

void sp_wait_fail_all(struct sp_pool *pool, const struct sp_err *err, const char *result,
		      int64_t now_ms)
{
	while (!sp_list_empty(&pool->waiting))
		sp_wait_fail(acquire_of(pool->waiting.next), err, result, now_ms);
}

void sp_wait_expire(struct sp_pool *pool, int64_t now_ms)
{
	struct sp_heap_node *first;

	while ((first = sp_heap_first(&pool->deadlines)) && first->key <= now_ms) {
		struct sp_acquire *acquire = SP_CONTAINER_OF(first, struct sp_acquire, deadline);
		struct sp_err err;

		(void)sp_err_code(&err, SP_CODE_ACQUIRE_TIMEOUT, -ETIMEDOUT,
				  "pool '%s' had no sandbox within %" PRId64 " ms%s%s",
				  pool->config.name, acquire->request.wait_ms,
				  pool->health.degraded ? "; creating fails: " : "",
				  pool->health.degraded ? pool->health.last_error : "");
		sp_wait_fail(acquire, &err, "timeout", now_ms);
	}
}

bool sp_wait_offer(struct sp_entry *entry, int64_t now_ms)
{
	struct sp_pool *pool = entry->sandbox.pool;
	int64_t remaining = sp_entry_remaining(entry, now_ms);

	sp_wait_expire(pool, now_ms);
	SP_LIST_FOREACH (link, &pool->waiting) {
		struct sp_acquire *acquire = acquire_of(link);

		if (remaining <= sp_acquire_minimum(pool, &acquire->request))
			continue;
		sp_wait_grant(acquire, entry, "waited", now_ms);
		return true;
	}
	return false;
}

static void acquire_free(struct sp_acquire *acquire)
{
	sp_lease_free(acquire->lease);
	free(acquire);
}

void sp_wait_deliver(struct sp_pool *pool)
{
	while (!sp_list_empty(&pool->finished)) {
		/* The analyzer does not see that sp_list_remove() below changes `finished`. */
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
		struct sp_acquire *acquire = acquire_of(pool->finished.next);
		struct sp_acquire_result result = acquire->result;
		struct sp_err err = acquire->err;
		sp_acquire_cb *cb = acquire->cb;
		void *arg = acquire->arg;

		sp_list_remove(&acquire->link);
		acquire_free(acquire);
		if (err.status != 0)
			cb(arg, NULL, &err);
		else
			cb(arg, &result, NULL);
	}
}

/* A callback before this one's may have ended the sandbox: then there is nothing to hand out. */
void sp_wait_forget(struct sp_pool *pool, const struct sp_sandbox *sandbox)
{
	SP_LIST_FOREACH (link, &pool->finished) {
		struct sp_acquire *acquire = acquire_of(link);

		if (acquire->result.sandbox != sandbox)
			continue;
		acquire->result.sandbox = NULL;
		(void)sp_err_code(&acquire->err, SP_CODE_LEASE_ENDED, -ESTALE,
				  "the lease of sandbox '%s' has ended", sandbox->id);
	}
}

void sp_wait_drop(struct sp_acquire *acquire)
{
	stop_waiting(acquire);
	acquire_free(acquire);
}

void sp_acquire_cancel(struct sp_acquire *pending, int64_t now_ms)
{
	struct sp_pool *pool = pending->pool;
	int64_t now = sp_pool_at(pool, now_ms);

	if (pending->finished) {
		sp_list_remove(&pending->link);
		acquire_free(pending);
		return;
	}
	sp_acquire_report(pool, pending->request.policy, "cancelled", now - pending->started_ms,
			  NULL, -1, now);
	sp_wait_drop(pending);
}
