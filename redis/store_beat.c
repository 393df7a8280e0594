/*
 * Register and heartbeat: what this host says of itself, and what it hears in return: its share of
 * the pool, the operator's intent, and what is asked of its sandboxes.
 *
 * What is asked is done before the share is looked at: a sandbox that was given away must be bound
 * before a smaller share ends the idle ones.
 */
#include "redis/store_private.h"

#include <errno.h>
#include <string.h>

/* `draining` of a heartbeat. One that leaves drains whatever the operator says of it: that is kept
 * for its next life. */
enum { HOST_SERVES, HOST_DRAINS, HOST_LEAVES };

static const char *const state_names[] = {
	[SP_STORE_ACTIVE] = "active",
	[SP_STORE_DRAINING] = "draining",
	[SP_STORE_DESTROYING] = "destroying",
	[SP_STORE_DESTROYED] = "destroyed",
};

const char *store_state_name(enum sp_store_pool_state state)
{
	sp_assert((unsigned int)state < SP_ARRAY_SIZE(state_names));
	return state_names[state];
}

/* -EINVAL: none of ours. */
static int parse_state(const char *word, enum sp_store_pool_state *ret_state)
{
	for (size_t i = 0; i < SP_ARRAY_SIZE(state_names); i++) {
		if (strcmp(word, state_names[i]) == 0) {
			*ret_state = (enum sp_store_pool_state)i;
			return 0;
		}
	}
	return -1;
}

/* The intent that we offer: what was seen last, else the configuration. */
static struct sp_store_meta offer(const struct store_pool *pool)
{
	struct sp_store_meta meta = pool->meta;

	if (meta.revision == 0) {
		meta.max_idle = pool->counts.configured_max_idle;
		meta.max_total = pool->counts.configured_max_total;
	}
	return meta;
}

void store_register_build(struct store_pool *pool)
{
	const struct redis_store *store = pool->store;
	struct store_args *args = &pool->call.args;
	struct sp_store_meta meta = offer(pool);

	store_args_text(args, store->secret_digest);
	store_args_text(args, store->boot_id);
	store_args_text(args, store->endpoint);
	store_args_number(args, store->capacity);
	store_args_text(args, store->version);
	store_args_number(args, meta.max_idle);
	store_args_number(args, meta.max_total);
	store_args_number(args, pool->min_ttl_ms);
	store_args_number(args, pool->claim_timeout_ms);
	store_args_text(args, store_state_name(meta.state));
	store_args_number(args, (int64_t)meta.revision);
	store_args_number(args, (int64_t)pool->spec_revision);
	store_args_text(args, pool->spec_digest);
}

void store_beat_build(struct store_pool *pool)
{
	struct store_args *args = &pool->call.args;
	struct sp_store_meta meta = offer(pool);

	pool->beats_asked++;
	store_args_number(args, pool->counts.idle);
	store_args_number(args, pool->counts.creating);
	store_args_number(args, pool->counts.leased);
	store_args_number(args, pool->counts.waiters);
	store_args_number(args, pool->counts.leaving ? HOST_LEAVES
				: pool->draining     ? HOST_DRAINS
						     : HOST_SERVES);
	store_args_number(args, meta.max_idle);
	store_args_number(args, meta.max_total);
	store_args_text(args, store_state_name(meta.state));
	store_args_number(args, (int64_t)meta.revision);
}

/* The part that both answers share. */
struct beat {
	int64_t time_ms;
	struct sp_store_share share;
	int64_t spec_revision;
	const char *spec_digest;
};

static uint32_t size_of(int64_t number, int64_t limit)
{
	return (uint32_t)SP_MIN(SP_MAX(number, INT64_C(0)), limit);
}

static void read_beat(struct store_reply *reply, struct beat *ret)
{
	ret->time_ms = store_reply_number(reply);
	ret->share.share = size_of(store_reply_number(reply), SP_POOL_MAX_IDLE_LIMIT);
	ret->share.valid_ms = store_reply_positive(reply);
	ret->share.meta.max_idle = size_of(store_reply_number(reply), SP_POOL_MAX_IDLE_LIMIT);
	ret->share.meta.max_total = size_of(store_reply_number(reply), SP_POOL_MAX_TOTAL_LIMIT);
	store_reply_skip(reply, 1); /* the minimum is the directory's business */
	if (parse_state(store_reply_text(reply), &ret->share.meta.state) < 0)
		reply->bad = true;
	ret->share.meta.revision = (uint64_t)store_reply_positive(reply);
	ret->spec_revision = store_reply_number(reply);
	ret->spec_digest = store_reply_text(reply);
}

void store_mismatch(struct store_pool *pool, int64_t spec_revision, const char *spec_digest)
{
	const struct redis_store *store = pool->store;
	bool mismatched = strcmp(spec_digest, pool->spec_digest) != 0;

	if (mismatched == pool->mismatched)
		return;
	pool->mismatched = mismatched;
	if (store->events.mismatch)
		store->events.mismatch(store->arg, pool->name, (uint64_t)spec_revision,
				       mismatched ? spec_digest : "");
}

static void seen(struct store_pool *pool)
{
	const struct redis_store *store = pool->store;

	if (store->events.seen)
		store->events.seen(store->arg, pool->name, &pool->meta, pool->draining);
}

void store_see_meta(struct store_pool *pool, const struct sp_store_meta *meta)
{
	if (meta->revision <= pool->meta.revision)
		return;
	pool->meta = *meta;
	seen(pool);
}

/* 0 or 1: what an operator asked for, until our next heartbeat repeats it; -1: nothing new. */
static void see_draining(struct store_pool *pool, int64_t asked)
{
	if (asked < 0 || (asked != 0) == pool->draining)
		return;
	pool->draining = asked != 0;
	seen(pool);
}

static void hear(struct store_pool *pool, const struct beat *beat, int64_t now_ms)
{
	if (pool->call.sent == 1 &&
	    store_clock_hear(&pool->store->clock, beat->time_ms, pool->call.sent_ms, now_ms))
		store_items_all(pool);
	store_see_meta(pool, &beat->share.meta);
	store_mismatch(pool, beat->spec_revision, beat->spec_digest);
}

void store_on_register(struct store_pool *pool, struct store_reply *reply, int64_t now_ms)
{
	struct beat beat;

	read_beat(reply, &beat);
	if (!reply->bad)
		hear(pool, &beat, now_ms);
}

/* ---- what is asked of our sandboxes ---- */

static enum sp_end_reason parse_reason(const char *word, enum sp_end_reason fallback)
{
	for (unsigned int i = SP_END_NONE + 1; i < SP_END_REASON_COUNT; i++)
		if (strcmp(word, sp_end_reason_name((enum sp_end_reason)i)) == 0)
			return (enum sp_end_reason)i;
	return fallback;
}

/* A reason in words, or a number of ms. */
static int64_t age_of(const char *text)
{
	int64_t age_ms = 0;

	for (; *text >= '0' && *text <= '9' && age_ms < INT64_MAX / 20; text++)
		age_ms = 10 * age_ms + (*text - '0');
	return age_ms;
}

static void do_item(struct store_pool *pool, const char *kind, const char *id, const char *lease_id,
		    int64_t number, const char *detail)
{
	const struct sp_store_owner *owner = pool->owner;
	void *arg = pool->owner_arg;

	if (strcmp(kind, "grant") == 0)
		owner->granted(arg, id, lease_id, SP_MAX(number, INT64_C(0)), age_of(detail));
	else if (strcmp(kind, "command") == 0)
		owner->end(arg, id, lease_id, parse_reason(detail, SP_END_DISCARDED), false);
	else if (strcmp(kind, "hint") == 0)
		owner->end(arg, id, lease_id, parse_reason(detail, SP_END_EXPIRED), true);
	else if (strcmp(kind, "renew") == 0)
		owner->renew(arg, id, lease_id, number);
}

static void do_items(struct store_pool *pool, struct store_reply *reply)
{
	int64_t count = store_reply_number(reply);

	for (int64_t i = 0; i < count && !reply->bad; i++) {
		const char *kind = store_reply_text(reply);
		const char *id = store_reply_text(reply);
		const char *lease_id = store_reply_text(reply);
		int64_t number = store_reply_number(reply);
		char detail[STORE_WORD_MAX];

		store_reply_any(reply, detail, sizeof(detail));
		if (!reply->bad && pool->owner)
			do_item(pool, kind, id, lease_id, number, detail);
	}
}

void store_on_beat(struct store_pool *pool, struct store_reply *reply, int64_t now_ms)
{
	struct beat beat;
	int64_t hosts;

	/* An old answer says how things were: its share may be another's now. Ask again. */
	if (pool->call.sent > 1)
		return;
	read_beat(reply, &beat);
	hosts = store_reply_number(reply);
	store_reply_skip(reply, 1); /* waiters: they are in the share */
	if (reply->bad) {
		struct sp_err err;

		(void)sp_err_code(&err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -EPROTO,
				  "answer of sandpool_v1_heartbeat for pool '%s'", pool->name);
		store_beat_answer(pool, NULL, &err);
		return;
	}
	pool->hosts_live = size_of(hosts, UINT32_MAX);
	pool->beat_heard = pool->beats_asked; /* one call at a time: it is the last one asked */
	pool->beat_first = false;
	pool->refusal[0] = '\0';
	hear(pool, &beat, now_ms);
	do_items(pool, reply);
	see_draining(pool, store_reply_number(reply));
	if (pool->mismatched)
		beat.share.share = 0;
	store_beat_answer(pool, &beat.share, NULL);
	/* Heartbeats for events come more often than that. */
	if (now_ms >= pool->rotate_ms) {
		pool->rotate_ms = now_ms + STORE_ROTATION_MS;
		store_items_rotate(pool);
	}
	if (now_ms >= pool->reap_ms) {
		/* Each host now and then; not all at once. */
		pool->reap_ms = now_ms + STORE_REAP_MS / 2 +
				(int64_t)(store_random(pool->store) % STORE_REAP_MS);
		store_reap(pool);
	}
}
