/*
 * A pool's stream of calls: one under way, each with the next seq, sent again until its outcome is
 * known. store_private.h has the states.
 *
 * What each kind of ending means:
 *   answered      the status word decides; `RESYNC` begins from register, `FENCED` ends the store
 *   error reply   the server's state forbids it (read-only, loading, no memory): the same again
 *   not sent      it had no effect: taken apart, its sandboxes wait again
 *   unknown       kept; after the next connection sent again with the same seq
 *
 * Whoever waits for an answer is not kept waiting over an outage: the pool's heartbeat gets the
 * error, publishes are LISTED.
 */
#include "redis/store_private.h"

#include "pool/base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const functions[] = {
	[STORE_CALL_REGISTER] = "sandpool_v1_register",
	[STORE_CALL_RESYNC] = "sandpool_v1_resync",
	[STORE_CALL_HEARTBEAT] = "sandpool_v1_heartbeat",
	[STORE_CALL_PUBLISH] = "sandpool_v1_publish",
	[STORE_CALL_UPDATE] = "sandpool_v1_update",
	[STORE_CALL_UNREGISTER] = "sandpool_v1_unregister",
};

/* ---- who waits ---- */

void store_beat_answer(struct store_pool *pool, const struct sp_store_share *share,
		       const struct sp_err *err)
{
	void (*cb)(void *, const struct sp_store_share *, const struct sp_err *) = pool->beat_cb;

	pool->beat_wanted = false;
	pool->beat_cb = NULL;
	if (cb)
		cb(pool->beat_arg, share, err);
}

/* The pool is to heartbeat now, not at its next tick. */
static void want_beat(struct store_pool *pool)
{
	if (!pool->owner || pool->beat_wanted)
		return;
	pool->owner->wake(pool->owner_arg);
	store_touched(pool);
}

static void refuse(struct store_pool *pool, const struct sp_err *err)
{
	const struct redis_store *store = pool->store;
	bool news = strcmp(pool->refusal, err->message) != 0;

	memcpy(pool->refusal, err->message, sizeof(pool->refusal));
	if (news && store->events.refused)
		store->events.refused(store->arg, pool->name, err);
	store_beat_answer(pool, NULL, err);
}

void store_fence(struct store_pool *pool, const struct sp_err *why)
{
	struct redis_store *store = pool->store;
	bool first = !store->fenced;

	store->fenced = true;
	store_beat_answer(pool, NULL, why);
	store_items_outage(pool, why);
	if (first && store->events.fenced)
		store->events.fenced(store->arg, pool->name, why);
}

/* ---- the call ---- */

static void forget_call(struct store_pool *pool)
{
	pool->call.kind = STORE_CALL_NONE;
	pool->call.sent = 0;
	store_args_clear(&pool->call.args);
}

/* It had no effect: as if it had never been put together. */
static void retract(struct store_pool *pool)
{
	enum store_call_kind kind = pool->call.kind;

	store_items_return(pool);
	forget_call(pool);
	if (kind != STORE_CALL_REGISTER)
		pool->seq--;
	if (kind == STORE_CALL_RESYNC) {
		/* Where it was is no longer known. */
		store_resync_done(pool);
		pool->forgot = true;
		pool->state = STORE_LIVE;
	}
}

/* Everything that was told is in doubt. */
static void start_over(struct store_pool *pool)
{
	pool->anew = false;
	store_items_return(pool);
	forget_call(pool);
	store_resync_done(pool);
	pool->state = STORE_ABSENT;
	want_beat(pool);
}

static void on_answer(void *arg, enum sp_redis_outcome outcome, const struct redisReply *reply,
		      const struct sp_err *err);

static void send_call(struct store_pool *pool, int64_t now_ms)
{
	struct store_call *call = &pool->call;
	struct sp_err err = {0};

	call->sent_ms = now_ms;
	call->started_ns = sp_clock_boot_ns();
	if (call->args.status == 0 &&
	    store_fcall(pool->store, functions[call->kind], false, pool->key, &call->args, 0,
			on_answer, pool, &err) == 0) {
		call->sent++;
		call->under_way = true;
		return;
	}
	if (call->sent == 0)
		retract(pool);
	pool->not_before_ms = now_ms + STORE_RETRY_MS;
	store_wake_at(pool->store, pool->not_before_ms);
}

static void begin(struct store_pool *pool, enum store_call_kind kind)
{
	struct store_call *call = &pool->call;
	struct redis_store *store = pool->store;

	call->kind = kind;
	call->sent = 0;
	store_args_clear(&call->args);
	if (kind == STORE_CALL_REGISTER)
		pool->seq = 0;
	else
		pool->seq++;
	store_args_text(&call->args, store->host);
	store_args_text(&call->args, store->incarnation);
	store_args_number(&call->args, (int64_t)pool->seq);
}

/* ---- answers ---- */

static void tell_all(struct store_pool *pool, int64_t now_ms)
{
	pool->state = STORE_TELLING;
	if (store_resync_begin(pool) == 0)
		return;
	store_resync_done(pool);
	pool->forgot = true;
	pool->state = STORE_LIVE;
	pool->not_before_ms = now_ms + STORE_RETRY_MS;
}

static void on_registered(struct store_pool *pool, struct store_reply *reply, int64_t now_ms)
{
	store_on_register(pool, reply, now_ms);
	pool->registered_once = true;
	pool->refusal[0] = '\0';
	pool->beat_first = true;
	forget_call(pool);
	tell_all(pool, now_ms);
}

static void on_taken(struct store_pool *pool, int64_t free_in_ms, int64_t now_ms)
{
	struct sp_err err;

	forget_call(pool);
	(void)sp_err_code(&err, SP_CODE_CONFLICT, -EADDRINUSE,
			  "host '%s' of pool '%s' is another daemon's: same name, other state "
			  "directory",
			  pool->store->host, pool->name);
	/* A host that was rebooted, or lost its state directory, has its name back when its last
	 * life is over. Whoever has it then is alive. */
	free_in_ms = SP_MIN(SP_MAX(free_in_ms, INT64_C(0)), (int64_t)STORE_TAKEN_MS);
	if (pool->taken_until_ms == 0)
		pool->taken_until_ms = now_ms + free_in_ms + STORE_TAKEN_SLACK_MS;
	if (pool->registered_once || now_ms >= pool->taken_until_ms) {
		store_fence(pool, &err);
		return;
	}
	refuse(pool, &err);
	pool->not_before_ms =
		SP_MIN(now_ms + SP_MAX(free_in_ms, (int64_t)STORE_RETRY_MS), pool->taken_until_ms);
}

static void on_register_refused(struct store_pool *pool, const char *word,
				struct store_reply *reply, int64_t now_ms)
{
	struct sp_err err;

	if (strcmp(word, "HOST_ID_TAKEN") == 0) {
		on_taken(pool, store_reply_number(reply), now_ms);
		return;
	}
	forget_call(pool);
	pool->not_before_ms = now_ms + STORE_RETRY_MS;
	if (strcmp(word, "SPEC_MISMATCH") == 0) {
		int64_t revision = store_reply_number(reply);

		/* Registered all the same: its leases are served. The heartbeat that follows tells
		 * the time, and that the share is 0. */
		store_mismatch(pool, revision, store_reply_text(reply));
		pool->registered_once = true;
		pool->not_before_ms = 0;
		pool->beat_first = true;
		pool->forgot = true;
		pool->state = STORE_LIVE;
		return;
	}
	(void)sp_err_code(&err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -EBUSY,
			  "register host '%s' at pool '%s': %s", pool->store->host, pool->name,
			  word);
	refuse(pool, &err);
}

static void on_resynced(struct store_pool *pool)
{
	bool last = pool->resync.last;

	forget_call(pool);
	if (!last)
		return;
	store_resync_done(pool);
	pool->state = STORE_LIVE;
	want_beat(pool);
}

static void on_ok(struct store_pool *pool, struct store_reply *reply, int64_t now_ms)
{
	switch (pool->call.kind) {
	case STORE_CALL_REGISTER:
		on_registered(pool, reply, now_ms);
		return;
	case STORE_CALL_RESYNC:
		on_resynced(pool);
		return;
	case STORE_CALL_HEARTBEAT:
		store_on_beat(pool, reply, now_ms);
		break;
	case STORE_CALL_PUBLISH:
		store_on_published(pool, reply);
		break;
	case STORE_CALL_UPDATE:
		store_on_updated(pool);
		break;
	case STORE_CALL_UNREGISTER:
		pool->state = STORE_ABSENT;
		break;
	case STORE_CALL_NONE:
		sp_assert(pool->call.kind != STORE_CALL_NONE);
	}
	forget_call(pool);
}

static void on_word(struct store_pool *pool, const char *word, struct store_reply *reply,
		    int64_t now_ms)
{
	struct sp_err err;

	if (strcmp(word, "OK") == 0) {
		on_ok(pool, reply, now_ms);
	} else if (strcmp(word, "FENCED") == 0) {
		(void)sp_err_code(&err, SP_CODE_CONFLICT, -ESTALE,
				  "host '%s' of pool '%s' is held by another start of this daemon",
				  pool->store->host, pool->name);
		forget_call(pool);
		store_fence(pool, &err);
	} else if (strcmp(word, "RESYNC") == 0 && pool->call.kind != STORE_CALL_REGISTER) {
		start_over(pool);
	} else if (pool->call.kind == STORE_CALL_REGISTER) {
		on_register_refused(pool, word, reply, now_ms);
	} else {
		(void)sp_err_code(&err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -EPROTO,
				  "%s of pool '%s' was answered '%.32s'",
				  functions[pool->call.kind], pool->name, word);
		start_over(pool);
		pool->not_before_ms = now_ms + SP_MS_PER_S;
		refuse(pool, &err);
	}
}

/* The server answers, but cannot do it now: the same again, a little later. */
static void on_error(struct store_pool *pool, const struct sp_err *err, int64_t now_ms)
{
	pool->call.sent--;
	pool->not_before_ms = now_ms + STORE_RETRY_MS;
	refuse(pool, err);
	store_items_outage(pool, err);
}

static void on_answer(void *arg, enum sp_redis_outcome outcome, const struct redisReply *raw,
		      const struct sp_err *err)
{
	struct store_pool *pool = arg;
	struct store_reply reply = {.reply = raw};
	int64_t now_ms = sp_clock_boot_ms();

	pool->call.under_way = false;
	store_observe(pool->store, functions[pool->call.kind], pool->call.started_ns, err != NULL);
	if (outcome == SP_REDIS_NOT_SENT && pool->call.sent == 1) {
		retract(pool);
	} else if (outcome == SP_REDIS_REPLIED && err) {
		on_error(pool, err, now_ms);
	} else if (outcome == SP_REDIS_REPLIED) {
		on_word(pool, store_reply_text(&reply), &reply, now_ms);
	}
	store_touched(pool);
	store_wake(pool->store);
}

/* ---- what is next ---- */

static void next_telling(struct store_pool *pool, int64_t now_ms)
{
	begin(pool, STORE_CALL_RESYNC);
	store_resync_build(pool);
	send_call(pool, now_ms);
}

static void next_live(struct store_pool *pool, int64_t now_ms)
{
	if (pool->anew) {
		start_over(pool);
		store_wake(pool->store);
		return;
	}
	if (pool->beat_wanted) {
		begin(pool, STORE_CALL_HEARTBEAT);
		store_beat_build(pool);
		send_call(pool, now_ms);
		return;
	}
	if (pool->beat_first)
		return;
	if (pool->forgot) {
		tell_all(pool, now_ms);
		store_wake(pool->store);
		return;
	}
	store_items_stale(pool);
	begin(pool, STORE_CALL_PUBLISH);
	if (store_items_publish(pool)) {
		send_call(pool, now_ms);
		return;
	}
	pool->call.kind = STORE_CALL_UPDATE;
	if (store_items_update(pool)) {
		send_call(pool, now_ms);
		return;
	}
	retract(pool);
}

static void next_call(struct store_pool *pool, int64_t now_ms)
{
	switch (pool->state) {
	case STORE_ABSENT:
		if (!pool->beat_wanted)
			return;
		begin(pool, STORE_CALL_REGISTER);
		store_register_build(pool);
		send_call(pool, now_ms);
		return;
	case STORE_TELLING:
		next_telling(pool, now_ms);
		return;
	case STORE_LIVE:
		next_live(pool, now_ms);
		return;
	}
}

static void next_leaving(struct store_pool *pool, int64_t now_ms)
{
	if (pool->state == STORE_ABSENT || !pool->store->ready) {
		store_pool_free(pool);
		return;
	}
	begin(pool, STORE_CALL_UNREGISTER);
	send_call(pool, now_ms);
}

void store_pool_advance(struct store_pool *pool, int64_t now_ms)
{
	struct redis_store *store = pool->store;

	if (pool->call.under_way || (store->fenced && !pool->leaving))
		return;
	if (pool->leaving && (store->fenced || !store->ready)) {
		store_pool_free(pool);
		return;
	}
	if (!store->ready)
		return;
	if (now_ms < pool->not_before_ms) {
		store_wake_at(store, pool->not_before_ms);
		return;
	}
	if (pool->call.kind != STORE_CALL_NONE)
		send_call(pool, now_ms);
	else if (pool->leaving)
		next_leaving(pool, now_ms);
	else
		next_call(pool, now_ms);
}

void store_pool_down(struct store_pool *pool, const struct sp_err *why)
{
	pool->not_before_ms = 0;
	store_beat_answer(pool, NULL, why);
	store_items_outage(pool, why);
	store_touched(pool);
}

void store_pool_up(struct store_pool *pool)
{
	pool->beat_first = true;
	want_beat(pool);
}

void store_pool_free(struct store_pool *pool)
{
	struct sp_err err;

	(void)sp_err_code(&err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -ECANCELED,
			  "pool '%s' has left the store", pool->name);
	store_beat_answer(pool, NULL, &err);
	store_items_outage(pool, &err);
	store_items_drop(pool);
	store_resync_done(pool);
	store_args_done(&pool->call.args);
	sp_map_done(&pool->items);
	sp_list_remove(&pool->link);
	free(pool);
}
