/*
 * What operators want, and what is asked about the server: one call, one answer, no ticket, no seq.
 *
 * A meta_set becomes `_resize` and, if the state is to change, `_set_state` on what that answered;
 * what one call cannot say is not one step there, and the second repeats nothing that the first
 * did. An unknown outcome is an error to the pool, which wishes the same again after its next
 * heartbeat.
 */
#include "redis/store_private.h"

#include "pool/base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOST_FIELDS 11 /* of a row of _stats, redis/README.md */

typedef void meta_cb(void *arg, const struct sp_store_meta *meta, const struct sp_err *err);
typedef void plain_cb(void *arg, const struct sp_err *err);

static void ask_free(struct store_ask *ask)
{
	sp_list_remove(&ask->link);
	ask->store->ask_count--;
	store_args_done(&ask->args);
	free(ask);
}

void store_asks_free(struct redis_store *store)
{
	struct sp_err err;

	(void)sp_err_code(&err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -ECANCELED,
			  "the store is being closed");
	while (!sp_list_empty(&store->asks)) {
		struct store_ask *ask = SP_LIST_FIRST(&store->asks, struct store_ask, link);

		ask->answer(ask, NULL, "", &err);
	}
}

static void on_answer(void *arg, enum sp_redis_outcome outcome, const struct redisReply *raw,
		      const struct sp_err *err)
{
	struct store_ask *ask = arg;
	struct store_reply reply = {.reply = raw};

	store_observe(ask->store, ask->function, ask->started_ns, err != NULL);
	if (err || outcome != SP_REDIS_REPLIED)
		ask->answer(ask, NULL, "", err);
	else
		ask->answer(ask, &reply, store_reply_text(&reply), NULL);
}

/* What args hold goes out. On failure nothing is answered; the ask is still there. */
static int send_ask(struct store_ask *ask, const char *function, struct sp_err *err)
{
	int status = ask->args.status;

	ask->function = function;
	ask->started_ns = sp_clock_boot_ns();
	if (status == 0)
		status = store_fcall(ask->store, function, ask->read_only, ask->key, &ask->args, 0,
				     on_answer, ask, err);
	store_args_clear(&ask->args);
	return status;
}

static struct store_ask *ask_new(struct redis_store *store, const char *pool, void *arg,
				 struct sp_err *err)
{
	struct store_ask *ask;

	if (!store->ready || store->fenced) {
		store_unavailable(store, err, pool);
		return NULL;
	}
	if (store->ask_count >= STORE_ASKS_MAX) {
		(void)sp_err_code(err, SP_CODE_TOO_MANY, -EBUSY,
				  "%u questions to Redis are under way", STORE_ASKS_MAX);
		return NULL;
	}
	ask = calloc(1, sizeof(*ask));
	if (!ask || store_key(store, pool, ask->key, sizeof(ask->key)) < 0) {
		free(ask);
		(void)sp_err_set(err, -ENOMEM, "ask Redis about pool '%s'", pool);
		return NULL;
	}
	memcpy(ask->pool, pool, strlen(pool) + 1);
	ask->store = store;
	ask->arg = arg;
	store_args_init(&ask->args);
	sp_list_append(&store->asks, &ask->link);
	store->ask_count++;
	return ask;
}

/* ---- meta_set ---- */

static void meta_done(struct store_ask *ask, const struct sp_store_meta *meta,
		      const struct sp_err *err)
{
	meta_cb *cb = ask->cb.meta;
	void *arg = ask->arg;
	struct redis_store *store = ask->store;
	struct store_pool *pool = store_pool_find(store, ask->pool);
	struct sp_store_meta copy = {0};

	if (meta)
		copy = *meta;
	if (pool && !ask->sizes_too) {
		copy.max_idle = pool->meta.max_idle;
		copy.max_total = pool->meta.max_total;
	}
	ask_free(ask);
	if (pool && meta && !err)
		store_see_meta(pool, &copy);
	cb(arg, meta ? &copy : NULL, err);
	if (pool)
		store_touched(pool);
}

/* True: it went well, and *ret_revision is what the pool is at now. Else the caller was told. */
static bool accepted(struct store_ask *ask, struct store_reply *reply, const char *word,
		     const struct sp_err *err)
{
	struct sp_store_meta meta = ask->meta;
	struct sp_err refused;

	if (!reply) {
		meta_done(ask, NULL, err);
		return false;
	}
	if (strcmp(word, "OK") == 0) {
		ask->meta.revision = (uint64_t)store_reply_number(reply);
		return true;
	}
	if (strcmp(word, "STALE") == 0) {
		(void)sp_err_code(&refused, SP_CODE_CONFLICT, -ESTALE,
				  "pool '%s' was changed by another at the same time", ask->pool);
		meta_done(ask, NULL, &refused);
	} else if (strcmp(word, "DESTROYED") == 0) {
		meta.state = SP_STORE_DESTROYED;
		meta.revision = UINT64_MAX;
		(void)sp_err_code(&refused, SP_CODE_POOL_DESTROYED, -ESHUTDOWN,
				  "pool '%s' was destroyed", ask->pool);
		meta_done(ask, &meta, &refused);
	} else {
		(void)sp_err_code(&refused, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -EPROTO,
				  "%s of pool '%s' was answered '%.32s'", ask->function, ask->pool,
				  word);
		meta_done(ask, NULL, &refused);
	}
	return false;
}

static void on_state_set(struct store_ask *ask, struct store_reply *reply, const char *word,
			 const struct sp_err *err)
{
	if (accepted(ask, reply, word, err))
		meta_done(ask, &ask->meta, NULL);
}

static int set_state(struct store_ask *ask, struct sp_err *err)
{
	ask->answer = on_state_set;
	store_args_text(&ask->args, store_state_name(ask->meta.state));
	store_args_number(&ask->args, (int64_t)ask->expected);
	return send_ask(ask, "sandpool_v1_set_state", err);
}

static void on_resized(struct store_ask *ask, struct store_reply *reply, const char *word,
		       const struct sp_err *err)
{
	struct sp_err failed = {0};

	if (!accepted(ask, reply, word, err))
		return;
	if (!ask->state_too) {
		meta_done(ask, &ask->meta, NULL);
		return;
	}
	if (ask->expected != 0)
		ask->expected = ask->meta.revision;
	if (set_state(ask, &failed) < 0)
		meta_done(ask, NULL, &failed);
}

static int resize(struct store_ask *ask, struct sp_err *err)
{
	ask->answer = on_resized;
	ask->sizes_too = true;
	store_args_number(&ask->args, ask->meta.max_idle);
	store_args_number(&ask->args, ask->meta.max_total);
	store_args_number(&ask->args, (int64_t)ask->expected);
	return send_ask(ask, "sandpool_v1_resize", err);
}

int store_meta_set(struct sp_store *base, const char *name, const struct sp_store_meta *meta,
		   uint64_t expected_revision, int64_t now_ms,
		   void (*cb)(void *arg, const struct sp_store_meta *meta,
			      const struct sp_err *err),
		   void *arg)
{
	struct redis_store *store = store_of(base);
	const struct store_pool *pool = store_pool_find(store, name);
	struct store_ask *ask = ask_new(store, name, arg, NULL);
	bool ends = meta->state == SP_STORE_DESTROYING || meta->state == SP_STORE_DESTROYED;
	int status;

	SP_UNUSED(now_ms);
	if (!ask)
		return -ENOTCONN;
	ask->meta = *meta;
	ask->expected = expected_revision;
	ask->cb.meta = cb;
	ask->state_too = !pool || meta->state != pool->meta.state;
	/* Sizes of a pool that ends are nobody's business; one that drains keeps those it has. */
	if (ends || (ask->state_too && pool && meta->max_idle == pool->meta.max_idle &&
		     meta->max_total == pool->meta.max_total))
		status = set_state(ask, NULL);
	else
		status = resize(ask, NULL);
	if (status < 0)
		ask_free(ask);
	return status;
}

/* ---- hosts ---- */

static void read_host(struct store_reply *reply, struct sp_redis_host *host)
{
	host->host = store_reply_text(reply);
	host->state = store_reply_text(reply);
	host->idle = store_reply_number(reply);
	host->creating = store_reply_number(reply);
	host->leased = store_reply_number(reply);
	host->waiters = store_reply_number(reply);
	host->share = store_reply_number(reply);
	host->capacity = store_reply_number(reply);
	host->seen_ms = store_reply_number(reply);
	host->version = store_reply_text(reply);
	host->endpoint = store_reply_text(reply);
}

static void on_stats(struct store_ask *ask, struct store_reply *reply, const char *word,
		     const struct sp_err *err)
{
	sp_redis_hosts_cb *cb = ask->cb.hosts;
	void *arg = ask->arg;
	struct sp_redis_host *hosts = NULL;
	struct sp_err failed = {0};
	int64_t count = 0;

	if (reply && strcmp(word, "OK") == 0) {
		store_reply_skip(reply, 1);
		store_reply_skip(reply, 2 * (size_t)store_reply_positive(reply));
		count = store_reply_number(reply);
		if (reply->bad || count < 0 || (size_t)count > reply->reply->elements / HOST_FIELDS)
			reply->bad = true;
		else
			hosts = calloc((size_t)count + 1, sizeof(*hosts));
		for (int64_t i = 0; hosts && i < count; i++)
			read_host(reply, &hosts[i]);
	}
	/* NOT_FOUND: no host has registered yet. */
	if (reply && (reply->bad || (strcmp(word, "OK") == 0 && !hosts)))
		(void)sp_err_code(&failed, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -EPROTO,
				  "answer of sandpool_v1_stats for pool '%s'", ask->pool);
	ask_free(ask);
	if (!err && failed.status != 0)
		err = &failed;
	cb(arg, err ? NULL : hosts, err ? 0 : (size_t)count, err);
	free(hosts);
}

int sp_redis_store_hosts(struct sp_store *base, const char *pool, sp_redis_hosts_cb *cb, void *arg,
			 struct sp_err *err)
{
	struct store_ask *ask = ask_new(store_of(base), pool, arg, err);
	int status;

	if (!ask)
		return -ENOTCONN;
	ask->read_only = true;
	ask->answer = on_stats;
	ask->cb.hosts = cb;
	status = send_ask(ask, "sandpool_v1_stats", err);
	if (status < 0)
		ask_free(ask);
	return status;
}

static void on_drained(struct store_ask *ask, struct store_reply *reply, const char *word,
		       const struct sp_err *err)
{
	plain_cb *cb = ask->cb.plain;
	void *arg = ask->arg;
	struct sp_err refused;

	if (reply && strcmp(word, "OK") != 0) {
		(void)sp_err_code(&refused, SP_CODE_NOT_FOUND, -ENOENT,
				  "pool '%s' has no such host", ask->pool);
		err = &refused;
	}
	ask_free(ask);
	cb(arg, err);
}

int sp_redis_store_drain_host(struct sp_store *base, const char *pool, const char *host, bool on,
			      void (*cb)(void *arg, const struct sp_err *err), void *arg,
			      struct sp_err *err)
{
	struct store_ask *ask;
	int status;

	if (!sp_pool_name_valid(host))
		return sp_err_code(err, SP_CODE_NOT_FOUND, -ENOENT, "no such host");
	ask = ask_new(store_of(base), pool, arg, err);
	if (!ask)
		return -ENOTCONN;
	ask->answer = on_drained;
	ask->cb.plain = cb;
	store_args_text(&ask->args, host);
	store_args_number(&ask->args, on ? 1 : 0);
	status = send_ask(ask, "sandpool_v1_drain_host", err);
	if (status < 0)
		ask_free(ask);
	return status;
}

/* ---- housekeeping ---- */

static void on_reaped(struct store_ask *ask, struct store_reply *reply, const char *word,
		      const struct sp_err *err)
{
	SP_UNUSED(reply);
	SP_UNUSED(word);
	SP_UNUSED(err);
	ask_free(ask);
}

void store_reap(struct store_pool *pool)
{
	struct store_ask *ask = ask_new(pool->store, pool->name, NULL, NULL);

	if (!ask)
		return;
	ask->answer = on_reaped;
	store_args_number(&ask->args, STORE_REAP_LIMIT);
	if (send_ask(ask, "sandpool_v1_reap", NULL) < 0)
		ask_free(ask);
}

/* ---- the server ---- */

static void on_info(void *arg, enum sp_redis_outcome outcome, const struct redisReply *reply,
		    const struct sp_err *err)
{
	static const char key[] = "maxmemory_policy:";
	struct redis_store *store = arg;
	const char *policy;
	char word[STORE_WORD_MAX] = "";

	if (store->closing || outcome != SP_REDIS_REPLIED || err ||
	    reply->type != REDIS_REPLY_STRING)
		return; /* it may not be ours to ask */
	policy = strstr(reply->str, key);
	if (policy)
		(void)snprintf(word, sizeof(word), "%.*s",
			       (int)strcspn(policy + sizeof(key) - 1, "\r\n"),
			       policy + sizeof(key) - 1);
	if (word[0] == '\0' || strcmp(word, "noeviction") == 0)
		word[0] = '\0';
	if (word[0] != '\0' && strcmp(word, store->evicts) != 0 && store->events.evicts)
		store->events.evicts(store->arg, word);
	memcpy(store->evicts, word, sizeof(word));
}

void store_check_eviction(struct redis_store *store)
{
	static const char *const argv[] = {"INFO", "memory"};

	(void)sp_redis_call(store->redis, 2, argv, NULL, 0, on_info, store, NULL);
}
