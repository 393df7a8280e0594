/*
 * What the store's tests share: hosts on one real server. A host is a store with an owner behind it
 * that keeps a few sandboxes, obeys what it is asked, and takes notes.
 */
#ifndef SP_TESTS_REDIS_STORE_FIXTURE_H
#define SP_TESTS_REDIS_STORE_FIXTURE_H

#include "pool/base/clock.h"
#include "redis/store_private.h"
#include "redis_fixture.h"

#define STORE_POOL  "default"
#define STORE_KEY   "sandpool:{default}:meta"
#define BOX_MAX     64
#define BOX_LIFE_MS 600000
#define COMMANDS    16

struct box {
	struct sp_sandbox sandbox;
	bool published; /* a verdict came */
	enum sp_store_verdict verdict;
	bool outage; /* … with an error */
	char lease_id[SP_LEASE_ID_LEN + 1];
	int64_t ttl_ms;
};

struct command_count {
	char name[32];
	unsigned int count, failed;
};

struct host {
	struct redis_loop *at;
	struct sp_store *store;
	char name[32];
	struct box boxes[BOX_MAX];
	size_t box_count;
	uint32_t max_idle;

	/* what it was asked */
	unsigned int grants, ends, hints, renewals, wakes;
	enum sp_end_reason reason;
	int64_t age_ms, renew_ms;
	bool stubborn; /* notes what it is asked and does nothing */
	bool leaving;  /* so its heartbeats say */

	/* what it was told */
	unsigned int ups, downs, fences, seens, mismatches, refusals, closes, shares, failed_shares;
	struct sp_store_meta seen;
	bool draining;
	char mismatch[SP_REDIS_DIGEST_MAX + 1];
	char evicts[32];
	char why[SP_ERR_MESSAGE_MAX];
	struct sp_store_share share;
	struct command_count commands[COMMANDS];

	/* an acquire out of the cluster */
	struct sp_redis_acquire *acquire;
	unsigned int answers;
	bool granted, here;
	char granted_id[SP_SANDBOX_ID_LEN + 1];
	char granted_host[SP_REDIS_HOST_MAX + 1];
	enum sp_code refused;
};

/* ---- the owner ---- */

static inline struct box *host_box(struct host *host, const char *id)
{
	for (size_t i = 0; i < host->box_count; i++)
		if (strcmp(host->boxes[i].sandbox.id, id) == 0)
			return &host->boxes[i];
	return NULL;
}

static inline void host_update(struct host *host, struct box *box)
{
	host->store->ops->update(host->store, STORE_POOL, &box->sandbox, sp_clock_boot_ms());
}

static inline int owner_each(void *arg, int (*visit)(void *, const struct sp_sandbox *),
			     void *visit_arg)
{
	struct host *host = arg;
	int result = 0;

	for (size_t i = 0; result == 0 && i < host->box_count; i++)
		if (host->boxes[i].sandbox.state != SP_SANDBOX_GONE)
			result = visit(visit_arg, &host->boxes[i].sandbox);
	return result;
}

static inline void owner_granted(void *arg, const char *id, const char *lease_id, int64_t ttl_ms,
				 int64_t age_ms)
{
	struct host *host = arg;
	struct box *box = host_box(host, id);

	host->grants++;
	host->age_ms = age_ms;
	if (!box || host->stubborn)
		return;
	if (box->sandbox.state == SP_SANDBOX_IDLE) {
		box->sandbox.state = SP_SANDBOX_LEASED;
		memcpy(box->sandbox.lease_id, lease_id, sizeof(box->sandbox.lease_id));
		box->sandbox.expires_ms = sp_clock_boot_ms() + 60000;
		box->ttl_ms = ttl_ms;
	}
	host_update(host, box);
}

static inline void owner_end(void *arg, const char *id, const char *lease_id,
			     enum sp_end_reason reason, bool hint)
{
	struct host *host = arg;
	struct box *box = host_box(host, id);

	(void)lease_id;
	host->hints += hint;
	host->ends += !hint;
	host->reason = reason;
	if (!box || host->stubborn)
		return;
	if (!hint) {
		box->sandbox.state = SP_SANDBOX_GONE;
		box->sandbox.end_reason = reason;
	}
	host_update(host, box);
}

static inline void owner_renew(void *arg, const char *id, const char *lease_id, int64_t ttl_ms)
{
	struct host *host = arg;
	struct box *box = host_box(host, id);

	(void)lease_id;
	host->renewals++;
	host->renew_ms = ttl_ms;
	if (!box || host->stubborn)
		return;
	box->sandbox.expires_ms = sp_clock_boot_ms() + ttl_ms;
	host_update(host, box);
}

static inline void host_on_share(void *arg, const struct sp_store_share *share,
				 const struct sp_err *err)
{
	struct host *host = arg;

	if (err)
		host->failed_shares++;
	else
		host->shares++;
	if (share)
		host->share = *share;
}

static inline uint32_t host_count(const struct host *host, enum sp_sandbox_state state)
{
	uint32_t count = 0;

	for (size_t i = 0; i < host->box_count; i++)
		count += host->boxes[i].sandbox.state == state;
	return count;
}

static inline int host_beat(struct host *host)
{
	struct sp_store_counts counts = {
		.idle = host_count(host, SP_SANDBOX_IDLE),
		.leased = host_count(host, SP_SANDBOX_LEASED),
		.configured_max_idle = host->max_idle,
		.configured_max_total = 100,
		.leaving = host->leaving,
	};

	return host->store->ops->heartbeat(host->store, STORE_POOL, &counts, sp_clock_boot_ms(),
					   host_on_share, host);
}

static inline void owner_wake(void *arg)
{
	struct host *host = arg;

	host->wakes++;
	(void)host_beat(host);
}

static const struct sp_store_owner host_owner = {
	.each = owner_each,
	.granted = owner_granted,
	.end = owner_end,
	.renew = owner_renew,
	.wake = owner_wake,
};

/* ---- events ---- */

static inline void host_on_fenced(void *arg, const char *pool, const struct sp_err *why)
{
	struct host *host = arg;

	(void)pool;
	host->fences++;
	(void)snprintf(host->why, sizeof(host->why), "%s", why->message);
}

static inline void host_on_up(void *arg)
{
	((struct host *)arg)->ups++;
}

static inline void host_on_down(void *arg, const struct sp_err *why)
{
	(void)why;
	((struct host *)arg)->downs++;
}

static inline void host_on_command(void *arg, const char *name, double seconds, bool failed)
{
	struct host *host = arg;

	cr_assert(seconds >= 0);
	for (size_t i = 0; i < COMMANDS; i++) {
		struct command_count *command = &host->commands[i];

		if (command->count == 0)
			(void)snprintf(command->name, sizeof(command->name), "%s", name);
		if (strcmp(command->name, name) != 0)
			continue;
		command->count++;
		command->failed += failed;
		return;
	}
	cr_assert(false, "too many kinds of commands");
}

static inline unsigned int host_commands(const struct host *host, const char *name)
{
	for (size_t i = 0; i < COMMANDS; i++)
		if (strcmp(host->commands[i].name, name) == 0)
			return host->commands[i].count;
	return 0;
}

static inline void host_on_seen(void *arg, const char *pool, const struct sp_store_meta *meta,
				bool draining)
{
	struct host *host = arg;

	(void)pool;
	host->seens++;
	host->seen = *meta;
	host->draining = draining;
}

static inline void host_on_mismatch(void *arg, const char *pool, uint64_t revision,
				    const char *digest)
{
	struct host *host = arg;

	(void)pool;
	(void)revision;
	host->mismatches++;
	(void)snprintf(host->mismatch, sizeof(host->mismatch), "%s", digest);
}

static inline void host_on_refused(void *arg, const char *pool, const struct sp_err *why)
{
	struct host *host = arg;

	(void)pool;
	host->refusals++;
	(void)snprintf(host->why, sizeof(host->why), "%s", why->message);
}

static inline void host_on_evicts(void *arg, const char *policy)
{
	struct host *host = arg;

	(void)snprintf(host->evicts, sizeof(host->evicts), "%s", policy);
}

static inline void host_on_closed(void *arg)
{
	struct host *host = arg;

	host->closes++;
	host->store = NULL;
}

static const struct sp_redis_store_events host_events = {
	.fenced = host_on_fenced,
	.up = host_on_up,
	.down = host_on_down,
	.command = host_on_command,
	.seen = host_on_seen,
	.mismatch = host_on_mismatch,
	.refused = host_on_refused,
	.evicts = host_on_evicts,
	.closed = host_on_closed,
};

/* ---- life ---- */

#define HOST_SECRET "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static inline struct sp_redis_store_options host_options(const struct redis_server *server,
							 const char *name)
{
	return (struct sp_redis_store_options){
		.redis = {.url = server->url,
			  .command_timeout_ms = 300,
			  .connect_timeout_ms = 300,
			  .backoff_min_ms = 5,
			  .backoff_max_ms = 50,
			  .keepalive_ms = 500,
			  .seed = 7},
		.prefix = "sandpool",
		.host = name,
		.endpoint = "tcp://127.0.0.1:1",
		.boot_id = "boot-1",
		.secret_digest = HOST_SECRET,
		.version = "test",
		.capacity = 1,
		.seed = 42,
	};
}

/* Made, attached, not heard of yet. */
static inline void host_open(struct host *host, struct redis_loop *at,
			     const struct sp_redis_store_options *options, uint32_t max_idle)
{
	struct sp_err err = {0};

	*host = (struct host){.at = at, .max_idle = max_idle};
	(void)snprintf(host->name, sizeof(host->name), "%s", options->host);
	cr_assert(sp_redis_store_new(&at->loop, options, &host_events, host, &host->store, &err) ==
			  0,
		  "%s", err.message);
	host->store->ops->attach(host->store, STORE_POOL, &host_owner, host);
}

/* Heartbeats until it holds that share. */
static inline void host_wait_share(struct host *host, uint32_t share)
{
	for (int64_t end = redis_now_ms() + REDIS_WAIT_MS;
	     host->share.share != share && redis_now_ms() < end;) {
		unsigned int before = host->shares + host->failed_shares;

		if (host_beat(host) == 0)
			REDIS_WAIT(host->at, host->shares + host->failed_shares > before);
		for (int i = 0; i < 4; i++)
			(void)uv_run(&host->at->loop, UV_RUN_ONCE);
	}
	cr_assert(host->share.share == share, "host %s has a share of %u, not %u", host->name,
		  host->share.share, share);
}

static inline void host_start(struct host *host, struct redis_loop *at,
			      const struct redis_server *server, const char *name,
			      uint32_t max_idle)
{
	struct sp_redis_store_options options = host_options(server, name);

	host_open(host, at, &options, max_idle);
	REDIS_WAIT(at, host->ups == 1);
	host_wait_share(host, max_idle);
}

static inline void host_stop(struct host *host)
{
	if (!host->store)
		return;
	sp_redis_store_close(host->store);
	REDIS_WAIT(host->at, host->closes == 1);
}

/* ---- sandboxes ---- */

static inline void host_on_verdict(void *arg, const struct sp_store_listing *listing,
				   const struct sp_err *err)
{
	struct box *box = arg;

	cr_assert(strcmp(listing->sandbox_id, box->sandbox.id) == 0);
	box->published = true;
	box->verdict = listing->verdict;
	box->outage = err != NULL;
	(void)snprintf(box->lease_id, sizeof(box->lease_id), "%s", listing->lease_id);
	box->ttl_ms = listing->ttl_ms;
	if (listing->verdict == SP_STORE_GRANTED) {
		box->sandbox.state = SP_SANDBOX_LEASED;
		memcpy(box->sandbox.lease_id, box->lease_id, sizeof(box->lease_id));
	}
}

static inline struct box *host_add(struct host *host)
{
	struct box *box = &host->boxes[host->box_count++];

	cr_assert(host->box_count <= BOX_MAX);
	sp_sandbox_id_new(box->sandbox.id);
	box->sandbox.state = SP_SANDBOX_IDLE;
	box->sandbox.created_ms = sp_clock_boot_ms();
	box->sandbox.expires_ms = sp_clock_boot_ms() + BOX_LIFE_MS;
	return box;
}

/* What sp_store_ops.publish returned. */
static inline int host_ask(struct host *host, struct box *box)
{
	return host->store->ops->publish(host->store, STORE_POOL, &box->sandbox, sp_clock_boot_ms(),
					 host_on_verdict, box);
}

static inline struct box *host_publish(struct host *host)
{
	struct box *box = host_add(host);

	cr_assert(host_ask(host, box) == 0);
	REDIS_WAIT(host->at, box->published);
	return box;
}

/* ---- clients ---- */

static inline void lease_of(char *lease_id, unsigned int number)
{
	(void)snprintf(lease_id, SP_LEASE_ID_LEN + 1, "%064x", number);
}

/* One FCALL of a client; the status word is kept in `word`, the second element in `second`. */
struct client_answer {
	char word[32];
	char second[128];
};

static inline struct client_answer client_call(const struct redis_server *server, int argc,
					       const char **argv)
{
	redisReply *reply = redis_ask_argv(server, NULL, argc, argv);
	struct client_answer answer = {{0}, {0}};

	cr_assert(reply && reply->type == REDIS_REPLY_ARRAY && reply->elements > 0, "%s: %s",
		  argv[1], reply && reply->str ? reply->str : "no answer");
	(void)snprintf(answer.word, sizeof(answer.word), "%s", reply->element[0]->str);
	if (reply->elements > 1 && reply->element[1]->str)
		(void)snprintf(answer.second, sizeof(answer.second), "%s", reply->element[1]->str);
	freeReplyObject(reply);
	return answer;
}

#define CLIENT(server, function, ...)                                                           \
	client_call(                                                                            \
		server,                                                                         \
		(int)(sizeof((const char *[]){"FCALL", "sandpool_v1_" function, "1", STORE_KEY, \
					      __VA_ARGS__}) /                                   \
		      sizeof(char *)),                                                          \
		(const char *[]){"FCALL", "sandpool_v1_" function, "1", STORE_KEY, __VA_ARGS__})

static inline struct client_answer client_acquire(const struct redis_server *server,
						  unsigned int lease, const char *policy)
{
	char lease_id[SP_LEASE_ID_LEN + 1];

	lease_of(lease_id, lease);
	return CLIENT(server, "acquire", lease_id, policy, "0", "60000", "", "", "");
}

/* A number of `stats`. */
static inline long long store_stat(const struct redis_server *server, const char *name)
{
	redisReply *reply =
		redis_ask(server, NULL, "FCALL_RO", "sandpool_v1_stats", "1", STORE_KEY);
	long long number = -1;

	for (size_t i = 3; reply && i + 1 < reply->elements; i++)
		if (reply->element[i]->type == REDIS_REPLY_STRING &&
		    strcmp(reply->element[i]->str, name) == 0) {
			number = reply->element[i + 1]->integer;
			break;
		}
	if (reply)
		freeReplyObject(reply);
	return number;
}

/* Heartbeats now and then while it waits, as a pool would. */
#define HOST_WAIT(host, condition)                                                \
	do {                                                                      \
		int64_t host_end_ms = redis_now_ms() + REDIS_WAIT_MS;             \
		int64_t host_beat_ms = 0;                                         \
		while (!(condition) && redis_now_ms() < host_end_ms) {            \
			if (redis_now_ms() >= host_beat_ms) {                     \
				(void)host_beat(host);                            \
				host_beat_ms = redis_now_ms() + 100;              \
			}                                                         \
			(void)uv_run(&(host)->at->loop, UV_RUN_ONCE);             \
		}                                                                 \
		cr_assert(condition, "%s, for %d ms", #condition, REDIS_WAIT_MS); \
	} while (0)

#endif
