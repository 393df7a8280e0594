/*
 * The store as an object: its connection, its pools, its place in the loop.
 *
 * The host is the authority over its sandboxes and Redis the directory of all hosts: everything
 * here is telling, and nothing waits for it. Calls of the pool only take notes; one idle handle
 * sends what is due in the next turn of the loop, so that a burst becomes a batch.
 *
 * What keeps the directory right:
 *   once      each daemon start draws an incarnation; a pool's calls carry it and a seq
 *             (store_stream.c)
 *   whole     a call that finds its predecessors missing is answered RESYNC, and all is told anew;
 *             beside that 256 sandboxes of a rotation are told each second (store_items.c)
 *   in time   a message on this host's channel only shortens the wait for the next heartbeat
 *
 * An outage: `publish` says so at once and the sandbox is dispensed here; the last share stays;
 * what changes is noted, one note per sandbox, up to a bound beyond which the return tells all.
 * After it a heartbeat comes first: it brings what was given away meanwhile.
 *
 * Trusts the server for nothing but liveness; replies are read by store_args.c.
 */
#include "redis/store_private.h"

#include "pool/base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX_MAX      64
#define CLIENT_NAME_MAX 96
#define TIMEOUT_MS      1000 /* of a command, unless configured */

/* ---- the loop ---- */

static void on_flush(uv_idle_t *idle);
static void begin_close(struct redis_store *store);
static void ensure_library(struct redis_store *store);

void store_wake(struct redis_store *store)
{
	if (!store->closing)
		(void)uv_idle_start(&store->flush, on_flush);
}

static void on_alarm(uv_timer_t *timer)
{
	store_wake(timer->data);
}

void store_wake_at(struct redis_store *store, int64_t boot_ms)
{
	int64_t delay_ms = SP_MAX(boot_ms - sp_clock_boot_ms(), INT64_C(0));

	if (store->closing)
		return;
	if (uv_is_active((uv_handle_t *)&store->alarm) &&
	    uv_timer_get_due_in(&store->alarm) <= (uint64_t)delay_ms)
		return;
	uv_update_time(store->loop);
	(void)uv_timer_start(&store->alarm, on_alarm, (uint64_t)delay_ms, 0);
}

void store_touched(struct store_pool *pool)
{
	const struct redis_store *store = pool->store;

	if (pool->owner && store->events.touched)
		store->events.touched(store->arg, pool->name);
}

void store_observe(struct redis_store *store, const char *function, int64_t started_ns, bool failed)
{
	static const char prefix[] = "sandpool_v1_";
	double seconds = (double)(sp_clock_boot_ns() - started_ns) / (double)SP_NS_PER_S;

	if (store->events.command)
		store->events.command(store->arg, function + sizeof(prefix) - 1, seconds, failed);
}

void store_unavailable(struct redis_store *store, struct sp_err *err, const char *what)
{
	(void)sp_err_code(err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -ENOTCONN,
			  "%s: no connection to Redis (%s)", what,
			  store->redis ? sp_redis_peer(store->redis) : "closed");
}

static void subscribe(struct redis_store *store)
{
	size_t room = 0;
	size_t count = 0;
	char(*names)[STORE_KEY_MAX];
	const char **channels;

	store->channels_changed = false;
	SP_LIST_FOREACH (link, &store->pools)
		room++;
	names = calloc(room + 1, sizeof(*names));
	channels = calloc(room + 1, sizeof(*channels));
	SP_LIST_FOREACH (link, &store->pools) {
		const struct store_pool *pool = SP_CONTAINER_OF(link, struct store_pool, link);

		if (!names || !channels || pool->leaving)
			continue;
		(void)snprintf(names[count], sizeof(names[count]), "%s:{%s}:events:%s",
			       store->prefix, pool->name, store->host);
		channels[count] = names[count];
		count++;
	}
	/* Without hints everything still happens, a tick later. */
	if (count > 0)
		(void)sp_redis_subscribe(store->events_link, channels, count, NULL);
	free(channels);
	free(names);
}

static void do_hint(struct store_pool *pool, int64_t now_ms)
{
	int64_t due_ms = pool->hinted_ms + STORE_HINT_MS;

	if (!pool->hint_due || !pool->owner || !pool->store->ready)
		return;
	if (pool->hinted_ms != 0 && now_ms < due_ms) {
		store_wake_at(pool->store, due_ms);
		return;
	}
	pool->hint_due = false;
	pool->hinted_ms = now_ms;
	pool->owner->wake(pool->owner_arg);
	store_touched(pool);
}

static void on_flush(uv_idle_t *idle)
{
	struct redis_store *store = idle->data;
	int64_t now_ms = sp_clock_boot_ms();

	(void)uv_idle_stop(idle);
	if (store->library_due_ms != 0 && now_ms >= store->library_due_ms)
		ensure_library(store);
	if (store->channels_changed && !store->leaving)
		subscribe(store);
	SP_LIST_FOREACH_SAFE (link, following, &store->pools) {
		struct store_pool *pool = SP_CONTAINER_OF(link, struct store_pool, link);

		do_hint(pool, now_ms);
		store_pool_advance(pool, now_ms);
	}
	store_acquires_advance(store, now_ms);
	if (store->leaving && (sp_list_empty(&store->pools) || now_ms >= store->leave_until_ms))
		begin_close(store);
}

/* ---- calls ---- */

int store_key(const struct redis_store *store, const char *pool, char *key, size_t size)
{
	int len = snprintf(key, size, "%s:{%s}:meta", store->prefix, pool);

	return len > 0 && (size_t)len < size && sp_pool_name_valid(pool) ? 0 : -EINVAL;
}

int store_fcall(struct redis_store *store, const char *function, bool read_only, const char *key,
		const struct store_args *args, int64_t deadline_ms, sp_redis_cb *cb, void *arg,
		struct sp_err *err)
{
	const char *argv[STORE_ARGS_MAX];
	size_t lens[STORE_ARGS_MAX];
	const char *at = sp_buf_text(&args->text);

	for (uint32_t i = 0; i < args->count; i++) {
		argv[i] = at;
		lens[i] = strlen(at);
		at += lens[i] + 1;
	}
	return sp_redis_fcall(store->library, function, read_only, key, (int)args->count, argv,
			      lens, deadline_ms, cb, arg, err);
}

/* ---- the connection ---- */

static void on_library(void *arg, const struct sp_err *err)
{
	struct redis_store *store = arg;

	if (store->closing)
		return;
	if (err) {
		/* Somebody else may load it meanwhile. */
		store->library_due_ms = sp_clock_boot_ms() + SP_MS_PER_S;
		store_wake_at(store, store->library_due_ms);
		if (store->events.down)
			store->events.down(store->arg, err);
		return;
	}
	store->ready = true;
	if (store->events.up)
		store->events.up(store->arg);
	store_check_eviction(store);
	SP_LIST_FOREACH (link, &store->pools)
		store_pool_up(SP_CONTAINER_OF(link, struct store_pool, link));
	store_wake(store);
}

static void ensure_library(struct redis_store *store)
{
	store->library_due_ms = 0;
	if (sp_redis_library_ensure(store->library, on_library, store) == 0)
		return;
	store->library_due_ms = sp_clock_boot_ms() + SP_MS_PER_S;
	store_wake_at(store, store->library_due_ms);
}

static void on_up(void *arg)
{
	ensure_library(arg);
}

static void on_down(void *arg, const struct sp_err *why)
{
	struct redis_store *store = arg;
	bool was_ready = store->ready;

	store->ready = false;
	store->library_due_ms = 0;
	if (store->closing)
		return;
	/* A server that stays away says the same with every try. */
	if (store->events.down && (was_ready || strcmp(store->why_down, why->message) != 0))
		store->events.down(store->arg, why);
	memcpy(store->why_down, why->message, sizeof(store->why_down));
	SP_LIST_FOREACH (link, &store->pools)
		store_pool_down(SP_CONTAINER_OF(link, struct store_pool, link), why);
	store_wake(store);
}

static void on_message(void *arg, const char *channel, const char *text, size_t len)
{
	struct redis_store *store = arg;

	SP_UNUSED(text);
	SP_UNUSED(len);
	SP_LIST_FOREACH (link, &store->pools) {
		struct store_pool *pool = SP_CONTAINER_OF(link, struct store_pool, link);
		char name[STORE_KEY_MAX];

		(void)snprintf(name, sizeof(name), "%s:{%s}:events:%s", store->prefix, pool->name,
			       store->host);
		if (strcmp(channel, name) == 0)
			pool->hint_due = true;
	}
	store_wake(store);
}

/* What was said while nobody listened is in the next heartbeat. */
static void on_events_up(void *arg)
{
	struct redis_store *store = arg;

	SP_LIST_FOREACH (link, &store->pools)
		SP_CONTAINER_OF(link, struct store_pool, link)->hint_due = true;
	store_wake(store);
}

static void on_events_down(void *arg, const struct sp_err *why)
{
	SP_UNUSED(arg);
	SP_UNUSED(why);
}

/* ---- pools ---- */

/* splitmix64 (Vigna): for spreading, not for secrets. */
uint64_t store_random(struct redis_store *store)
{
	uint64_t mixed = store->seeds[1] += UINT64_C(0x9e3779b97f4a7c15);

	mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
	return mixed ^ mixed >> 31;
}

struct store_pool *store_pool_find(struct redis_store *store, const char *name)
{
	SP_LIST_FOREACH (link, &store->pools) {
		struct store_pool *pool = SP_CONTAINER_OF(link, struct store_pool, link);

		if (strcmp(pool->name, name) == 0)
			return pool;
	}
	return NULL;
}

static struct store_pool *make_pool(struct redis_store *store, const char *name)
{
	struct store_pool *pool = calloc(1, sizeof(*pool));

	if (!pool || store_key(store, name, pool->key, sizeof(pool->key)) < 0 ||
	    sp_map_init(&pool->items, store->seeds[0], store->seeds[1]) < 0) {
		free(pool);
		return NULL;
	}
	pool->store = store;
	memcpy(pool->name, name, strlen(name) + 1);
	memcpy(pool->spec_digest, "none", sizeof("none"));
	sp_list_init(&pool->dirty);
	sp_list_init(&pool->call.items);
	store_args_init(&pool->call.args);
	sp_list_append(&store->pools, &pool->link);
	return pool;
}

static struct store_pool *find_or_make(struct redis_store *store, const char *name)
{
	struct store_pool *pool = store_pool_find(store, name);

	return pool ? pool : make_pool(store, name);
}

static void attach(struct sp_store *base, const char *name, const struct sp_store_owner *owner,
		   void *arg)
{
	struct redis_store *store = store_of(base);
	struct store_pool *pool = owner ? find_or_make(store, name) : store_pool_find(store, name);

	/* Out of memory: its calls fail one by one, and it lives as in an outage. */
	if (!pool)
		return;
	pool->owner = owner;
	pool->owner_arg = arg;
	pool->leaving = !owner;
	store->channels_changed = true;
	store_wake(store);
}

int sp_redis_store_pool(struct sp_store *base, const char *name,
			const struct sp_redis_pool_facts *facts, struct sp_err *err)
{
	struct redis_store *store = store_of(base);
	struct store_pool *pool = find_or_make(store, name);
	size_t len = strlen(facts->spec_digest);

	if (!pool)
		return sp_err_set(err, -ENOMEM, "pool '%s' of the store", name);
	if (len == 0 || len > SP_REDIS_DIGEST_MAX)
		return sp_err_set(err, -EINVAL, "spec digest of pool '%s'", name);
	if (pool->state != STORE_ABSENT && (pool->min_ttl_ms != facts->min_ttl_ms ||
					    pool->claim_timeout_ms != facts->claim_timeout_ms ||
					    pool->spec_revision != facts->spec_revision ||
					    strcmp(pool->spec_digest, facts->spec_digest) != 0))
		pool->anew = true;
	pool->min_ttl_ms = facts->min_ttl_ms;
	pool->claim_timeout_ms = facts->claim_timeout_ms;
	pool->spec_revision = facts->spec_revision;
	memcpy(pool->spec_digest, facts->spec_digest, len + 1);
	if (facts->seen.revision > pool->meta.revision)
		pool->meta = facts->seen;
	if (pool->state == STORE_ABSENT)
		pool->draining = facts->draining;
	store_wake(store);
	return 0;
}

uint32_t sp_redis_store_host_count(const struct sp_store *base, const char *name)
{
	const struct redis_store *store =
		SP_CONTAINER_OF((struct sp_store *)(uintptr_t)base, struct redis_store, store);

	SP_LIST_FOREACH (link, &store->pools) {
		const struct store_pool *pool = SP_CONTAINER_OF(link, struct store_pool, link);

		if (strcmp(pool->name, name) == 0)
			return pool->hosts_live;
	}
	return 0;
}

/* ---- the port ---- */

static int heartbeat(struct sp_store *base, const char *name, const struct sp_store_counts *counts,
		     int64_t now_ms,
		     void (*cb)(void *arg, const struct sp_store_share *share,
				const struct sp_err *err),
		     void *arg)
{
	struct redis_store *store = store_of(base);
	struct store_pool *pool = find_or_make(store, name);

	SP_UNUSED(now_ms);
	if (!pool)
		return -ENOMEM;
	pool->counts = *counts;
	if (!store->ready || store->fenced)
		return -ENOTCONN;
	if (pool->beat_cb)
		return -EBUSY;
	pool->beat_wanted = true;
	pool->beat_cb = cb;
	pool->beat_arg = arg;
	store_wake(store);
	return 0;
}

static int publish(struct sp_store *base, const char *name, const struct sp_sandbox *sandbox,
		   int64_t now_ms, sp_store_publish_cb *cb, void *arg)
{
	struct redis_store *store = store_of(base);
	struct store_pool *pool = find_or_make(store, name);
	int status;

	SP_UNUSED(now_ms);
	if (!pool)
		return -ENOMEM;
	if (!store->ready || store->fenced) {
		/* Asked for when it is back; until then it is the host's alone. */
		(void)store_item_publish(pool, sandbox, NULL, NULL);
		return -ENOTCONN;
	}
	status = store_item_publish(pool, sandbox, cb, arg);
	store_wake(store);
	return status;
}

static void update(struct sp_store *base, const char *name, const struct sp_sandbox *sandbox,
		   int64_t now_ms)
{
	struct redis_store *store = store_of(base);
	struct store_pool *pool = find_or_make(store, name);

	SP_UNUSED(now_ms);
	if (!pool)
		return;
	(void)store_item_update(pool, sandbox);
	store_wake(store);
}

static bool up(const struct sp_store *base)
{
	const struct redis_store *store =
		SP_CONTAINER_OF((struct sp_store *)(uintptr_t)base, struct redis_store, store);

	return store->ready;
}

const char *sp_redis_store_peer(const struct sp_store *base)
{
	const struct redis_store *store =
		SP_CONTAINER_OF((struct sp_store *)(uintptr_t)base, struct redis_store, store);

	return sp_redis_peer(store->redis);
}

/* ---- the end ---- */

static void finish(struct redis_store *store)
{
	void (*closed)(void *) = store->events.closed;
	void *arg = store->arg;

	store_acquires_free(store);
	store_asks_free(store);
	SP_LIST_FOREACH_SAFE (link, following, &store->pools)
		store_pool_free(SP_CONTAINER_OF(link, struct store_pool, link));
	free(store->prefix);
	free(store);
	if (closed)
		closed(arg);
}

static void part_closed(struct redis_store *store)
{
	if (--store->open_handles == 0)
		finish(store);
}

static void on_redis_closed(void *arg)
{
	part_closed(arg);
}

static void on_handle_closed(uv_handle_t *handle)
{
	part_closed(handle->data);
}

static void begin_close(struct redis_store *store)
{
	if (store->closing)
		return;
	store->closing = true;
	store->ready = false;
	if (store->library)
		sp_redis_library_free(store->library);
	if (store->redis)
		sp_redis_close(store->redis);
	if (store->events_link)
		sp_redis_close(store->events_link);
	uv_close((uv_handle_t *)&store->flush, on_handle_closed);
	uv_close((uv_handle_t *)&store->alarm, on_handle_closed);
}

void sp_redis_store_close(struct sp_store *base)
{
	struct redis_store *store = store_of(base);

	if (store->leaving)
		return;
	store->leaving = true;
	store->leave_until_ms = sp_clock_boot_ms() + store->command_timeout_ms;
	SP_LIST_FOREACH (link, &store->pools) {
		struct store_pool *pool = SP_CONTAINER_OF(link, struct store_pool, link);

		pool->owner = NULL;
		pool->leaving = true;
	}
	store_wake_at(store, store->leave_until_ms);
	store_wake(store);
}

static void store_free(struct sp_store *base)
{
	begin_close(store_of(base));
}

static const struct sp_store_ops redis_ops = {
	.attach = attach,
	.heartbeat = heartbeat,
	.publish = publish,
	.update = update,
	.meta_set = store_meta_set,
	.up = up,
	.free = store_free,
};

/* ---- the beginning ---- */

static bool printable(const char *text, size_t max)
{
	size_t len = strlen(text);

	for (size_t i = 0; i < len; i++)
		if (text[i] < ' ' || text[i] > '~')
			return false;
	return len > 0 && len <= max && text[0] != ' ';
}

static int check_options(const struct sp_redis_store_options *options, struct sp_err *err)
{
	if (!sp_pool_name_valid(options->host))
		return sp_err_code(err, SP_CODE_CONFIG_INVALID, -EINVAL,
				   "host name '%.64s' must be 1 to 63 of a-z 0-9 . _ - and begin "
				   "with a letter or digit",
				   options->host);
	if (!printable(options->endpoint, SP_REDIS_ENDPOINT_MAX))
		return sp_err_code(err, SP_CODE_CONFIG_INVALID, -EINVAL,
				   "endpoint of host '%s' must be 1 to %d printable characters",
				   options->host, SP_REDIS_ENDPOINT_MAX);
	if (!printable(options->prefix, PREFIX_MAX) || strpbrk(options->prefix, "{} "))
		return sp_err_code(err, SP_CODE_CONFIG_INVALID, -EINVAL,
				   "prefix '%.64s' must be 1 to %d printable characters without "
				   "braces and blanks",
				   options->prefix, PREFIX_MAX);
	if (!printable(options->boot_id, sizeof(((struct redis_store *)NULL)->boot_id) - 1) ||
	    !printable(options->secret_digest, SP_REDIS_DIGEST_MAX) ||
	    !printable(options->version, sizeof(((struct redis_store *)NULL)->version) - 1))
		return sp_err_set(err, -EINVAL, "identity of host '%s'", options->host);
	return sp_redis_options_check(&options->redis, err);
}

static void copy_options(struct redis_store *store, const struct sp_redis_store_options *options)
{
	char secret[SP_SECRET_LEN + 1];

	(void)snprintf(store->host, sizeof(store->host), "%s", options->host);
	(void)snprintf(store->endpoint, sizeof(store->endpoint), "%s", options->endpoint);
	(void)snprintf(store->boot_id, sizeof(store->boot_id), "%s", options->boot_id);
	(void)snprintf(store->secret_digest, sizeof(store->secret_digest), "%s",
		       options->secret_digest);
	(void)snprintf(store->version, sizeof(store->version), "%s", options->version);
	store->capacity = SP_MAX(options->capacity, 1U);
	store->seeds[0] = options->seed;
	store->seeds[1] = options->seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	store->command_timeout_ms = options->redis.command_timeout_ms > 0
					    ? options->redis.command_timeout_ms
					    : TIMEOUT_MS;
	sp_secret_new(secret);
	memcpy(store->incarnation, secret, STORE_INCARNATION);
}

static int connect_links(struct redis_store *store, const struct sp_redis_store_options *options,
			 struct sp_err *err)
{
	static const struct sp_redis_events link_events = {
		.up = on_up,
		.down = on_down,
		.closed = on_redis_closed,
	};
	static const struct sp_redis_events events_link_events = {
		.up = on_events_up,
		.down = on_events_down,
		.message = on_message,
		.closed = on_redis_closed,
	};
	struct sp_redis_options redis = options->redis;
	char name[CLIENT_NAME_MAX];
	int status;

	(void)snprintf(name, sizeof(name), "sandpool-%s", store->host);
	redis.client_name = name;
	status = sp_redis_new(store->loop, &redis, &link_events, store, &store->redis, err);
	if (status < 0)
		return status;
	store->open_handles++;
	redis.seed++;
	status = sp_redis_new(store->loop, &redis, &events_link_events, store, &store->events_link,
			      err);
	if (status < 0)
		return status;
	store->open_handles++;
	return sp_redis_library_new(store->redis, &store->library, err);
}

static void init_handles(struct redis_store *store)
{
	int status = uv_idle_init(store->loop, &store->flush);

	sp_assert(status == 0); /* these two cannot fail */
	status = uv_timer_init(store->loop, &store->alarm);
	sp_assert(status == 0);
	store->flush.data = store;
	store->alarm.data = store;
	store->open_handles = 2;
}

int sp_redis_store_new(uv_loop_t *loop, const struct sp_redis_store_options *options,
		       const struct sp_redis_store_events *events, void *arg, struct sp_store **ret,
		       struct sp_err *err)
{
	int status = check_options(options, err);
	struct redis_store *store;

	if (status < 0)
		return status;
	store = calloc(1, sizeof(*store));
	if (!store)
		return sp_err_set(err, -ENOMEM, "make the Redis store");
	store->prefix = strdup(options->prefix);
	if (!store->prefix) {
		free(store);
		return sp_err_set(err, -ENOMEM, "make the Redis store");
	}
	store->store.ops = &redis_ops;
	store->loop = loop;
	store->arg = arg;
	sp_list_init(&store->pools);
	sp_list_init(&store->acquires);
	sp_list_init(&store->asks);
	copy_options(store, options);
	init_handles(store);
	status = connect_links(store, options, err);
	if (status < 0) {
		begin_close(store); /* frees it, in a later turn; nobody is told */
		return status;
	}
	store->events = *events;
	*ret = &store->store;
	return 0;
}
