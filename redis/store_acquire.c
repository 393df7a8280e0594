/*
 * Acquires out of the cluster, for clients of this daemon whose own pool had nothing.
 *
 *	DUE ──_acquire──► ASKING ──WAIT──► SLEEPING ──_wait──► ASKING … ──► answered
 *
 * A lease id names one wish for ever, so whatever came of a lost answer, the same question gives
 * it. One that waits asks `_wait` again and again, at growing distances up to half a second: no
 * connection blocks, and its ticket stays alive. When a sandbox of this very host is granted to it,
 * it asks at once. Its deadline is our BOOTTIME's.
 */
#include "redis/store_private.h"

#include "pool/base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PAUSE_FIRST_MS 20
#define PAUSE_MOST_MS  500

static void on_answer(void *arg, enum sp_redis_outcome outcome, const struct redisReply *raw,
		      const struct sp_err *err);

static void acquire_free(struct sp_redis_acquire *acquire)
{
	sp_list_remove(&acquire->link);
	acquire->store->acquire_count--;
	free(acquire->reject);
	free(acquire);
}

static void answer(struct sp_redis_acquire *acquire, const struct sp_redis_grant *grant,
		   const struct sp_err *err)
{
	sp_redis_acquire_cb *cb = acquire->cb;
	void *arg = acquire->arg;
	bool cancelled = acquire->cancelled;

	acquire_free(acquire);
	if (!cancelled)
		cb(arg, grant, err);
}

static void fail(struct sp_redis_acquire *acquire, enum sp_code code, int status, const char *what)
{
	struct sp_err err;

	(void)sp_err_code(&err, code, status, "pool '%s': %s", acquire->pool, what);
	answer(acquire, NULL, &err);
}

/* ---- asking ---- */

static int call(struct redis_store *store, const char *function, const char *key,
		struct store_args *args, sp_redis_cb *cb, void *arg)
{
	int status = args->status;

	if (status == 0)
		status = store_fcall(store, function, false, key, args, 0, cb, arg, NULL);
	store_args_done(args);
	return status;
}

static int ask_acquire(struct sp_redis_acquire *acquire)
{
	struct redis_store *store = acquire->store;
	const char *policy = acquire->waits ? sp_acquire_policy_name(SP_ACQUIRE_WAIT)
					    : sp_acquire_policy_name(SP_ACQUIRE_FAIL_FAST);
	struct store_args args;

	store_args_init(&args);
	store_args_text(&args, acquire->lease_id);
	store_args_text(&args, policy);
	store_args_number(&args, acquire->min_remaining_ms);
	store_args_number(&args, acquire->ttl_ms);
	store_args_text(&args, "");
	store_args_text(&args, acquire->reject ? acquire->reject : "");
	store_args_text(&args, acquire->not_here ? store->host : "");
	return call(store, "sandpool_v1_acquire", acquire->key, &args, on_answer, acquire);
}

static int ask_wait(struct sp_redis_acquire *acquire)
{
	struct redis_store *store = acquire->store;
	struct store_args args;

	store_args_init(&args);
	store_args_text(&args, acquire->lease_id);
	store_args_number(&args, store_clock_absolute(&store->clock, acquire->deadline_ms));
	return call(store, "sandpool_v1_wait", acquire->key, &args, on_answer, acquire);
}

static void on_ignored(void *arg, enum sp_redis_outcome outcome, const struct redisReply *reply,
		       const struct sp_err *err)
{
	SP_UNUSED(arg);
	SP_UNUSED(outcome);
	SP_UNUSED(reply);
	SP_UNUSED(err);
}

/* Take the ticket back, or what was granted in the meantime. Lost: the ticket goes stale, the grant
 * unclaimed. */
static void withdraw(struct sp_redis_acquire *acquire)
{
	struct store_args args;

	if (!acquire->store->ready)
		return;
	store_args_init(&args);
	store_args_text(&args, acquire->lease_id);
	(void)call(acquire->store, "sandpool_v1_cancel", acquire->key, &args, on_ignored, NULL);
}

static void ask(struct sp_redis_acquire *acquire)
{
	int status;

	acquire->poked = false;
	acquire->state = ACQUIRE_ASKING;
	acquire->started_ns = sp_clock_boot_ns();
	status = acquire->queued ? ask_wait(acquire) : ask_acquire(acquire);
	if (status == 0)
		return;
	fail(acquire, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, status, "Redis cannot be asked now");
}

static void sleep_for(struct sp_redis_acquire *acquire, int64_t pause_ms)
{
	int64_t now_ms = sp_clock_boot_ms();

	acquire->state = ACQUIRE_SLEEPING;
	acquire->next_ms = now_ms + (acquire->poked ? 0 : pause_ms);
	/* The last question is asked at the deadline: it takes the ticket back. */
	if (now_ms < acquire->deadline_ms)
		acquire->next_ms = SP_MIN(acquire->next_ms, acquire->deadline_ms);
	store_wake_at(acquire->store, acquire->next_ms);
}

/* ---- answers ---- */

static void on_granted(struct sp_redis_acquire *acquire, struct store_reply *reply)
{
	struct sp_redis_grant grant = {
		.sandbox_id = store_reply_text(reply),
		.host = store_reply_text(reply),
		.endpoint = store_reply_text(reply),
	};

	store_reply_skip(reply, 1); /* its end, by Redis' clock */
	grant.remaining_ms = store_reply_number(reply);
	grant.here = strcmp(grant.host, acquire->store->host) == 0;
	if (reply->bad || !sp_sandbox_id_valid(grant.sandbox_id))
		fail(acquire, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -EPROTO,
		     "the answer of sandpool_v1_acquire is none of ours");
	else
		answer(acquire, &grant, NULL);
}

static void on_wait(struct sp_redis_acquire *acquire)
{
	if (!acquire->queued)
		acquire->pause_ms = PAUSE_FIRST_MS;
	acquire->queued = true;
	sleep_for(acquire, acquire->pause_ms);
	acquire->pause_ms = SP_MIN(2 * acquire->pause_ms, (int64_t)PAUSE_MOST_MS);
}

static void on_word(struct sp_redis_acquire *acquire, const char *word, struct store_reply *reply)
{
	static const struct {
		const char *word;
		enum sp_code code;
		int status;
		const char *text;
	} refusals[] = {
		{"EMPTY", SP_CODE_POOL_EMPTY, -EAGAIN, "no host has an idle sandbox"},
		{"TIMEOUT", SP_CODE_ACQUIRE_TIMEOUT, -ETIMEDOUT,
		 "no host had a sandbox before the deadline"},
		{"SATURATED", SP_CODE_POOL_SATURATED, -EBUSY, "the cluster is full"},
		{"DESTROYED", SP_CODE_POOL_DESTROYED, -ESHUTDOWN, "it was destroyed"},
		{"NOT_RUNNING", SP_CODE_POOL_NOT_RUNNING, -EAGAIN, "it is draining"},
		{"LEASE_ENDED", SP_CODE_LEASE_ENDED, -ESTALE, "the lease has ended"},
		{"LEASE_MISMATCH", SP_CODE_LEASE_MISMATCH, -EEXIST,
		 "the lease is in use with another ttl or policy"},
	};

	if (strcmp(word, "OK") == 0) {
		on_granted(acquire, reply);
		return;
	}
	if (strcmp(word, "WAIT") == 0) {
		on_wait(acquire);
		return;
	}
	if (strcmp(word, "NOT_FOUND") == 0 && acquire->queued) {
		/* The ticket was lost: draw another. */
		acquire->queued = false;
		sleep_for(acquire, PAUSE_FIRST_MS);
		return;
	}
	for (size_t i = 0; i < SP_ARRAY_SIZE(refusals); i++) {
		if (strcmp(word, refusals[i].word) == 0) {
			fail(acquire, refusals[i].code, refusals[i].status, refusals[i].text);
			return;
		}
	}
	fail(acquire, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -EPROTO, "Redis gave no usable answer");
}

static void on_answer(void *arg, enum sp_redis_outcome outcome, const struct redisReply *raw,
		      const struct sp_err *err)
{
	struct sp_redis_acquire *acquire = arg;
	struct store_reply reply = {.reply = raw};

	store_observe(acquire->store, acquire->queued ? "sandpool_v1_wait" : "sandpool_v1_acquire",
		      acquire->started_ns, err != NULL);
	if (acquire->cancelled) {
		if (outcome != SP_REDIS_NOT_SENT)
			withdraw(acquire);
		acquire_free(acquire);
	} else if (err || outcome != SP_REDIS_REPLIED) {
		answer(acquire, NULL, err);
	} else {
		on_word(acquire, store_reply_text(&reply), &reply);
	}
}

/* ---- for the store ---- */

void store_acquires_advance(struct redis_store *store, int64_t now_ms)
{
	SP_LIST_FOREACH_SAFE (link, following, &store->acquires) {
		struct sp_redis_acquire *acquire =
			SP_CONTAINER_OF(link, struct sp_redis_acquire, link);

		if (acquire->state == ACQUIRE_ASKING)
			continue;
		if (!store->ready)
			fail(acquire, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -ENOTCONN,
			     "no connection to Redis");
		else if (acquire->state == ACQUIRE_DUE || acquire->poked ||
			 now_ms >= acquire->next_ms)
			ask(acquire);
		else
			store_wake_at(store, acquire->next_ms);
	}
}

void store_acquire_poke(struct redis_store *store, const char *lease_id)
{
	SP_LIST_FOREACH (link, &store->acquires) {
		struct sp_redis_acquire *acquire =
			SP_CONTAINER_OF(link, struct sp_redis_acquire, link);

		if (strcmp(acquire->lease_id, lease_id) == 0)
			acquire->poked = true;
	}
	store_wake(store);
}

void store_acquires_free(struct redis_store *store)
{
	SP_LIST_FOREACH_SAFE (link, following, &store->acquires)
		acquire_free(SP_CONTAINER_OF(link, struct sp_redis_acquire, link));
}

/* ---- for its users ---- */

static struct sp_redis_acquire *acquire_new(struct redis_store *store,
					    const struct sp_redis_wish *wish)
{
	struct sp_redis_acquire *acquire = calloc(1, sizeof(*acquire));

	if (!acquire)
		return NULL;
	if (wish->reject) {
		acquire->reject = strdup(wish->reject);
		if (!acquire->reject) {
			free(acquire);
			return NULL;
		}
	}
	acquire->store = store;
	acquire->min_remaining_ms = wish->min_remaining_ms;
	acquire->ttl_ms = wish->ttl_ms;
	acquire->waits = wish->wait_ms > 0 && wish->policy != SP_ACQUIRE_FAIL_FAST &&
			 wish->policy != SP_ACQUIRE_RETRY_NEXT;
	acquire->deadline_ms = sp_clock_boot_ms() + wish->wait_ms;
	acquire->not_here = wish->not_here;
	sp_list_append(&store->acquires, &acquire->link);
	store->acquire_count++;
	return acquire;
}

int sp_redis_store_acquire(struct sp_store *base, const struct sp_redis_wish *wish,
			   sp_redis_acquire_cb *cb, void *arg, struct sp_redis_acquire **ret,
			   struct sp_err *err)
{
	struct redis_store *store = store_of(base);
	struct sp_redis_acquire *acquire;
	char key[STORE_KEY_MAX];

	if (!store->ready || store->fenced) {
		store_unavailable(store, err, "acquire");
		return -ENOTCONN;
	}
	if (store_key(store, wish->pool, key, sizeof(key)) < 0 ||
	    !sp_lease_id_valid(wish->lease_id))
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "acquire: pool or lease is not valid");
	if (store->acquire_count >= STORE_ACQUIRES_MAX)
		return sp_err_code(err, SP_CODE_POOL_SATURATED, -EBUSY,
				   "%u acquires wait for other hosts already", STORE_ACQUIRES_MAX);
	acquire = acquire_new(store, wish);
	if (!acquire)
		return sp_err_set(err, -ENOMEM, "acquire of pool '%s'", wish->pool);
	memcpy(acquire->key, key, sizeof(key));
	memcpy(acquire->pool, wish->pool, strlen(wish->pool) + 1);
	memcpy(acquire->lease_id, wish->lease_id, sizeof(acquire->lease_id));
	acquire->cb = cb;
	acquire->arg = arg;
	*ret = acquire;
	store_wake(store);
	return 0;
}

void sp_redis_acquire_cancel(struct sp_redis_acquire *acquire)
{
	if (acquire->state == ACQUIRE_ASKING) {
		acquire->cancelled = true;
		return;
	}
	if (acquire->queued)
		withdraw(acquire);
	acquire_free(acquire);
}
