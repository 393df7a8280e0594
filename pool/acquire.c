/*
 * Acquire: answer at once from what is idle, or queue, or refuse.
 *
 * The order of questions is that of the reference: is the pool destroyed; does this lease id hold a
 * sandbox, or did it; is the pool running; is something idle that lives long enough; and only then
 * the policy. Candidates that are too near their end are passed over for good: they go to the kill
 * queue, which the next tick works off, so the caller never pays for a kill. One that is good
 * enough for the pool and only too short for this caller's own minimum stays.
 *
 * The retry policies take as many such steps as the others: a sandbox that died has left the pool
 * before it could be a candidate, so here nothing is left to spend a budget on. max_acquire_retries
 * is for whoever can find a candidate stale after the hand-out (another host's sandbox, a mount
 * that fails).
 */
#include "pool/pool_private.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static const char *const policy_names[SP_ACQUIRE_POLICY_COUNT] = {
	[SP_ACQUIRE_FAIL_FAST] = "fail_fast",
	[SP_ACQUIRE_WAIT] = "wait",
	[SP_ACQUIRE_CREATE] = "create",
	[SP_ACQUIRE_RETRY_NEXT] = "retry_next",
	[SP_ACQUIRE_RETRY_NEXT_THEN_CREATE] = "retry_next_then_create",
};

const char *sp_acquire_policy_name(enum sp_acquire_policy policy)
{
	sp_assert((unsigned int)policy < SP_ACQUIRE_POLICY_COUNT);
	return policy_names[policy];
}

int sp_acquire_policy_parse(const char *text, enum sp_acquire_policy *ret_policy)
{
	for (size_t i = 0; i < SP_ARRAY_SIZE(policy_names); i++) {
		if (strcmp(text, policy_names[i]) == 0) {
			*ret_policy = (enum sp_acquire_policy)i;
			return 0;
		}
	}
	return -EINVAL;
}

bool sp_acquire_policy_creates(enum sp_acquire_policy policy)
{
	return policy == SP_ACQUIRE_CREATE || policy == SP_ACQUIRE_RETRY_NEXT_THEN_CREATE;
}

int64_t sp_acquire_minimum(const struct sp_pool *pool, const struct sp_acquire_request *request)
{
	return request->min_remaining_ms < 0 ? pool->config.acquire_min_remaining_ttl_ms
					     : request->min_remaining_ms;
}

void sp_acquire_report(struct sp_pool *pool, enum sp_acquire_policy policy, const char *result,
		       int64_t waited_ms, const struct sp_sandbox *sandbox, int64_t remaining_ms,
		       int64_t now_ms)
{
	const struct sp_pool_events *events = pool->ports.events;

	if (!events || !events->acquired)
		return;
	events->acquired(pool->ports.events_arg, policy, result, waited_ms, remaining_ms,
			 sandbox ? now_ms - sandbox->ready_ms : -1);
}

static int check_request(const struct sp_pool *pool, const struct sp_acquire_request *request,
			 struct sp_err *err)
{
	const char *key = NULL;

	if ((unsigned int)request->policy >= SP_ACQUIRE_POLICY_COUNT)
		key = "policy";
	else if (!sp_lease_id_valid(request->lease_id))
		key = "lease_id";
	else if (request->wait_ms < 0)
		key = "wait";
	else if (request->ttl_ms < 0)
		key = "ttl";
	else if (request->min_remaining_ms < -1 ||
		 request->min_remaining_ms >= pool->config.idle_timeout_ms)
		key = "min_remaining";
	if (!key)
		return 0;
	return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
			   "acquire of pool '%s': %s is out of range", pool->config.name, key);
}

int sp_acquire_refuse_lifecycle(const struct sp_pool *pool, struct sp_err *err,
				const char **ret_result)
{
	if (pool->lifecycle == SP_POOL_LIFE_RUNNING)
		return 0;
	if (pool->lifecycle == SP_POOL_LIFE_DESTROYED) {
		*ret_result = "destroyed";
		return sp_err_code(err, SP_CODE_POOL_DESTROYED, -ESHUTDOWN,
				   "pool '%s' was destroyed", pool->config.name);
	}
	*ret_result = "not_running";
	return sp_err_code(err, SP_CODE_POOL_NOT_RUNNING, -EAGAIN, "pool '%s' is %s",
			   pool->config.name, sp_pool_lifecycle_name(pool->lifecycle));
}

static bool same_request(const struct sp_acquire_request *request, enum sp_acquire_policy policy,
			 int64_t ttl_ms)
{
	return request->policy == policy && request->ttl_ms == ttl_ms;
}

static int mismatch(const struct sp_acquire_request *request, struct sp_err *err,
		    const char **ret_result)
{
	*ret_result = "lease_mismatch";
	return sp_err_code(err, SP_CODE_LEASE_MISMATCH, -EEXIST,
			   "lease '%s' is in use with another ttl or policy", request->lease_id);
}

/* Has this lease id been here before? 0: no. 1: yes, *ret_result is filled. Negative: refused. */
static int repeat(struct sp_pool *pool, const struct sp_acquire_request *request, int64_t now_ms,
		  struct sp_acquire_result *ret_result, const char **ret_word, struct sp_err *err)
{
	struct sp_lease *lease = sp_lease_find(pool, request->lease_id);

	if (!lease)
		return 0;
	if (!lease->entry || sp_lease_lapsed(lease->entry, now_ms, false)) {
		*ret_word = "lease_ended";
		return sp_err_code(err, SP_CODE_LEASE_ENDED, -ESTALE, "lease '%s' has ended",
				   request->lease_id);
	}
	if (!lease->foreign && !same_request(request, lease->policy, lease->ttl_ms))
		return mismatch(request, err, ret_word);
	*ret_word = "repeated";
	*ret_result = (struct sp_acquire_result){
		.sandbox = &lease->entry->sandbox,
		.remaining_ms = lease->entry->life_ms,
		.repeated = true,
	};
	return 1;
}

static struct sp_entry *take_from(struct sp_pool *pool, struct sp_list *list, bool newest_first,
				  int64_t minimum_ms, int64_t now_ms)
{
	struct sp_list *link = newest_first ? list->prev : list->next;

	while (link != list) {
		struct sp_entry *entry = SP_CONTAINER_OF(link, struct sp_entry, place);
		int64_t remaining = sp_entry_remaining(entry, now_ms);

		link = newest_first ? link->prev : link->next;
		if (remaining > minimum_ms)
			return entry;
		if (remaining <= 0)
			sp_entry_end(entry, SP_END_EXPIRED, now_ms, false);
		else if (remaining <= pool->config.acquire_min_remaining_ttl_ms)
			sp_entry_end(entry, SP_END_DISCARDED, now_ms, false);
	}
	return NULL;
}

static struct sp_entry *take(struct sp_pool *pool, const struct sp_acquire_request *request,
			     int64_t now_ms)
{
	struct sp_list *oldest_first[] = {&pool->aging, &pool->idle};
	struct sp_list *newest_first[] = {&pool->idle, &pool->aging};
	struct sp_list **lists = request->newest_first ? newest_first : oldest_first;
	int64_t minimum_ms = sp_acquire_minimum(pool, request);

	for (size_t i = 0; i < SP_ARRAY_SIZE(oldest_first); i++) {
		struct sp_entry *entry =
			take_from(pool, lists[i], request->newest_first, minimum_ms, now_ms);

		if (entry)
			return entry;
	}
	return NULL;
}

static int out_of_memory(struct sp_pool *pool, struct sp_err *err, const char **ret_word)
{
	*ret_word = "no_memory";
	return sp_err_set(err, -ENOMEM, "acquire of pool '%s'", pool->config.name);
}

static int grant(struct sp_pool *pool, struct sp_entry *entry,
		 const struct sp_acquire_request *request, int64_t now_ms,
		 struct sp_acquire_result *ret_result, const char **ret_word, struct sp_err *err)
{
	struct sp_lease *lease = sp_lease_new(request);

	if (!lease)
		return out_of_memory(pool, err, ret_word);
	sp_lease_bind(lease, entry, 0, now_ms);
	*ret_word = "hit";
	*ret_result = (struct sp_acquire_result){
		.sandbox = &entry->sandbox,
		.remaining_ms = entry->life_ms,
	};
	return 0;
}

static int saturated(const struct sp_pool *pool, const char *what, uint32_t limit,
		     struct sp_err *err, const char **ret_word)
{
	*ret_word = "saturated";
	return sp_err_code(err, SP_CODE_POOL_SATURATED, -EBUSY,
			   "pool '%s' is at its %s of %" PRIu32, pool->config.name, what, limit);
}

static int enqueue(struct sp_pool *pool, const struct sp_acquire_request *request,
		   sp_acquire_cb *cb, void *arg, int64_t now_ms, struct sp_acquire **ret_pending,
		   const char **ret_word, struct sp_err *err)
{
	if (sp_wait_enqueue(pool, request, cb, arg, now_ms, ret_pending, err) < 0) {
		*ret_word = "no_memory";
		return -ENOMEM;
	}
	return 1;
}

/* Nothing is idle: begin a creation for this caller, or queue for the next free slot. */
static int create(struct sp_pool *pool, const struct sp_acquire_request *request, sp_acquire_cb *cb,
		  void *arg, int64_t now_ms, struct sp_acquire **ret_pending, const char **ret_word,
		  struct sp_err *err)
{
	struct sp_acquire *pending;
	int result;

	if (request->wait_ms == 0) {
		*ret_word = "timeout";
		return sp_err_code(err, SP_CODE_ACQUIRE_TIMEOUT, -ETIMEDOUT,
				   "pool '%s' has no idle sandbox, and wait 0 leaves no time to "
				   "create one",
				   pool->config.name);
	}
	if (pool->max_total > 0 && sp_pool_total(pool) >= pool->max_total)
		return saturated(pool, "max_total", pool->max_total, err, ret_word);
	if (!sp_health_permits_direct(pool, now_ms)) {
		*ret_word = "create_failed";
		return sp_err_code(err, SP_CODE_CREATE_FAILED, -EAGAIN,
				   "pool '%s' cannot create sandboxes: %s", pool->config.name,
				   pool->health.last_error);
	}
	if (!sp_list_empty(&pool->needing) || !sp_reconcile_direct_room(pool)) {
		if (pool->queued >= pool->config.max_waiters)
			return saturated(pool, "max_waiters", pool->config.max_waiters, err,
					 ret_word);
		return enqueue(pool, request, cb, arg, now_ms, ret_pending, ret_word, err);
	}
	result = enqueue(pool, request, cb, arg, now_ms, &pending, ret_word, err);
	if (result < 0)
		return result;
	sp_reconcile_take_token(pool, now_ms);
	result = sp_entry_create(pool, pending, now_ms, err);
	if (result < 0) {
		*ret_word = "create_failed";
		sp_wait_drop(pending);
		return result;
	}
	*ret_pending = pending;
	return 1;
}

static int wait_or_refuse(struct sp_pool *pool, const struct sp_acquire_request *request,
			  sp_acquire_cb *cb, void *arg, int64_t now_ms,
			  struct sp_acquire **ret_pending, const char **ret_word,
			  struct sp_err *err)
{
	if (request->policy != SP_ACQUIRE_WAIT || request->wait_ms == 0) {
		*ret_word = "empty";
		return sp_err_code(err, SP_CODE_POOL_EMPTY, -EAGAIN,
				   "pool '%s' has no idle sandbox (policy %s)", pool->config.name,
				   sp_acquire_policy_name(request->policy));
	}
	if (pool->queued >= pool->config.max_waiters)
		return saturated(pool, "max_waiters", pool->config.max_waiters, err, ret_word);
	return enqueue(pool, request, cb, arg, now_ms, ret_pending, ret_word, err);
}

/* This lease id waits already: join. */
static int join(struct sp_pool *pool, const struct sp_acquire *waiting,
		const struct sp_acquire_request *request, sp_acquire_cb *cb, void *arg,
		int64_t now_ms, struct sp_acquire **ret_pending, const char **ret_word,
		struct sp_err *err)
{
	if (!same_request(request, waiting->request.policy, waiting->request.ttl_ms))
		return mismatch(request, err, ret_word);
	if (pool->queued >= pool->config.max_waiters)
		return saturated(pool, "max_waiters", pool->config.max_waiters, err, ret_word);
	return enqueue(pool, request, cb, arg, now_ms, ret_pending, ret_word, err);
}

static int decide(struct sp_pool *pool, const struct sp_acquire_request *request, int64_t now_ms,
		  sp_acquire_cb *cb, void *arg, struct sp_acquire_result *ret_result,
		  struct sp_acquire **ret_pending, const char **ret_word, struct sp_err *err)
{
	const struct sp_acquire *waiting;
	struct sp_entry *entry;
	int result = check_request(pool, request, err);

	if (result < 0)
		return result;
	if (pool->lifecycle != SP_POOL_LIFE_DESTROYED) {
		result = repeat(pool, request, now_ms, ret_result, ret_word, err);
		if (result != 0)
			return SP_MIN(result, 0);
	}
	result = sp_acquire_refuse_lifecycle(pool, err, ret_word);
	if (result < 0)
		return result;
	waiting = sp_wait_find(pool, request->lease_id);
	if (waiting)
		return join(pool, waiting, request, cb, arg, now_ms, ret_pending, ret_word, err);
	entry = take(pool, request, now_ms);
	if (entry)
		return grant(pool, entry, request, now_ms, ret_result, ret_word, err);
	if (request->idle_only) {
		*ret_word = NULL;
		return sp_err_code(err, SP_CODE_POOL_EMPTY, -EAGAIN,
				   "pool '%s' has no idle sandbox here", pool->config.name);
	}
	if (sp_acquire_policy_creates(request->policy))
		return create(pool, request, cb, arg, now_ms, ret_pending, ret_word, err);
	return wait_or_refuse(pool, request, cb, arg, now_ms, ret_pending, ret_word, err);
}

int sp_pool_acquire(struct sp_pool *pool, const struct sp_acquire_request *request, int64_t now_ms,
		    sp_acquire_cb *cb, void *arg, struct sp_acquire_result *ret_result,
		    struct sp_acquire **ret_pending, struct sp_err *err)
{
	int64_t now = sp_pool_at(pool, now_ms);
	const char *word = "invalid";
	int result;

	sp_lease_prune(pool, now);
	result = decide(pool, request, now, cb, arg, ret_result, ret_pending, &word, err);
	if (result <= 0 && word && (unsigned int)request->policy < SP_ACQUIRE_POLICY_COUNT)
		sp_acquire_report(pool, request->policy, word, 0,
				  result == 0 ? ret_result->sandbox : NULL,
				  result == 0 ? ret_result->remaining_ms : -1, now);
	return result;
}
