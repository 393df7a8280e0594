/*
 * The store from inside. For redis/store*.c only.
 *
 *	redis_store            one; a connection, the library on it, a second connection for events
 *	 ├ store_pool          one per attached pool: its stream of calls
 *	 │   └ store_item      one per sandbox about which something is to be told
 *	 ├ sp_redis_acquire    an acquire out of the cluster
 *	 └ store_ask           a question of an operator (hosts, drain)
 *
 * The stream of a pool. Calls that change something carry (host, incarnation, seq); one is under
 * way at a time, and the next has the next seq:
 *
 *	ABSENT ──register──► TELLING ──resync begin, more…, end──► LIVE ──heartbeat, publish, update
 *	   ▲                                                        │
 *	   └───────────── RESYNC, or new facts about the pool ──────┘
 *
 * A call whose outcome is unknown is kept and sent again as it was (`call.sent` counts), until it
 * is answered: the server answers a seq that it has seen with what it answered then, and does it
 * otherwise. One that was certainly not sent is taken apart again. After every new connection, and
 * once such a call is settled, a heartbeat comes before anything else.
 */
#ifndef SP_REDIS_STORE_PRIVATE_H
#define SP_REDIS_STORE_PRIVATE_H

#include "pool/base/buf.h"
#include "pool/base/list.h"
#include "pool/base/map.h"
#include "redis/library.h"
#include "redis/reply.h"
#include "redis/store.h"

#define STORE_BATCH          64u  /* sandboxes of a publish or an update */
#define STORE_RESYNC_BATCH   128u /* of a resync; its parts have at most 256 */
#define STORE_ROTATION       256u /* own sandboxes told again … */
#define STORE_ROTATION_MS    900  /* … with the next heartbeat after this */
#define STORE_ITEMS_MAX      40000u /* sandboxes to tell of; one more and all is told from the start */
#define STORE_ARGS_MAX       (8u + 6u * STORE_RESYNC_BATCH)
#define STORE_ACQUIRES_MAX   4096u /* acquires out of the cluster at once */
#define STORE_ASKS_MAX       256u
#define STORE_DRIFT_MS       500   /* of the two clocks between heartbeats */
#define STORE_CLOCK_SLACK_MS 50    /* an end may err this much early before the offset moves */
#define STORE_HINT_MS        20    /* heartbeats for events are at least this far apart */
#define STORE_RETRY_MS       200   /* a call that was refused by the server's state is sent again */
#define STORE_TAKEN_MS       10000 /* longest wait for our name at the first registration … */
#define STORE_TAKEN_SLACK_MS 500   /* … which ends this much after it would have been free */
#define STORE_REAP_MS        (60 * SP_MS_PER_S)
#define STORE_REAP_LIMIT     200
#define STORE_WORD_MAX       32
#define STORE_KEY_MAX        256
#define STORE_INCARNATION    32 /* hex digits */

/* The arguments of one call, kept until it is answered. */
struct store_args {
	struct sp_buf text; /* each followed by a NUL */
	uint32_t count;
	int status; /* -ENOMEM, -E2BIG once something did not fit */
};

void store_args_init(struct store_args *args);
void store_args_done(struct store_args *args);
void store_args_clear(struct store_args *args);
void store_args_text(struct store_args *args, const char *text);
void store_args_number(struct store_args *args, int64_t number);

/* A reply being read: a flat array. Whatever is missing or of a wrong type makes it `bad`. */
struct store_reply {
	const struct redisReply *reply;
	size_t at;
	bool bad;
};

const char *store_reply_text(struct store_reply *reply); /* "" when bad */
int64_t store_reply_number(struct store_reply *reply);   /* 0 when bad */
int64_t store_reply_positive(struct store_reply *reply); /* what is below 0 counts as 0 */
/* A text or a number, as text; cut to size. */
void store_reply_any(struct store_reply *reply, char *text, size_t size);
void store_reply_skip(struct store_reply *reply, size_t count);

/* A sandbox as it was at some moment. */
struct store_record {
	char id[SP_SANDBOX_ID_LEN + 1];
	char lease_id[SP_LEASE_ID_LEN + 1];
	enum sp_sandbox_state state;
	enum sp_end_reason reason; /* once it ends */
	bool claimed;
	int64_t expires_ms; /* BOOTTIME */
};

/* What is to be told of one sandbox: the latest wins. */
struct store_item {
	struct sp_map_link by_id;
	struct sp_list link; /* dirty, or the pool's call.items */
	struct store_record record;
	bool in_call;            /* in call.items */
	bool again;              /* changed while it was there */
	bool publish;            /* a verdict is asked for; else an update */
	uint64_t after_beat;     /* told only after the answer to this heartbeat */
	sp_store_publish_cb *cb; /* who waits for the verdict; NULL: told LISTED long ago */
	void *arg;
};

enum store_call_kind {
	STORE_CALL_NONE,
	STORE_CALL_REGISTER,
	STORE_CALL_RESYNC,
	STORE_CALL_HEARTBEAT,
	STORE_CALL_PUBLISH,
	STORE_CALL_UPDATE,
	STORE_CALL_UNREGISTER
};

struct store_call {
	enum store_call_kind kind;
	bool under_way;
	uint32_t sent; /* times; > 1: what comes back may be an old answer */
	struct store_args args;
	struct sp_list items; /* PUBLISH, UPDATE: in the order of the arguments */
	int64_t sent_ms;
	int64_t started_ns;
};

enum store_pool_state { STORE_ABSENT, STORE_TELLING, STORE_LIVE };

/* All sandboxes as they were when the resync began; what changes afterwards is told after it. */
struct store_resync {
	struct store_record *records;
	size_t count;
	size_t room;
	size_t next;
	bool begun;
	bool last; /* the part under way is `end` */
};

struct store_pool {
	struct sp_list link; /* in store->pools */
	struct redis_store *store;
	char name[SP_POOL_NAME_MAX + 1];
	char key[STORE_KEY_MAX];
	const struct sp_store_owner *owner; /* NULL: nobody answers for it any more */
	void *owner_arg;
	bool leaving;  /* unregister, then free */
	bool draining; /* this host's part of it, as we were told */
	bool registered_once;
	int64_t taken_until_ms; /* first registration: our name may become free until then */
	int64_t not_before_ms;  /* pause after a refusal */
	char refusal[SP_ERR_MESSAGE_MAX]; /* reported last; "" = none */

	int64_t min_ttl_ms;
	int64_t claim_timeout_ms;
	uint64_t spec_revision;
	char spec_digest[SP_REDIS_DIGEST_MAX + 1];
	bool mismatched;
	struct sp_store_meta meta;     /* newest seen */
	struct sp_store_counts counts; /* last told by the pool */
	uint32_t hosts_live;

	enum store_pool_state state;
	uint64_t seq; /* of the last call that was sent */
	struct store_call call;
	struct store_resync resync;
	bool beat_first;      /* nothing but a heartbeat until one is answered */
	uint64_t beats_asked; /* heartbeats put together … */
	uint64_t beat_heard;  /* … and the last of them that was answered afresh */
	int64_t rotate_ms;    /* next turn of the rotation */
	size_t rotation_next; /* index into what owner->each visits */
	int64_t reap_ms;      /* next housekeeping */
	int64_t hinted_ms;    /* last heartbeat for an event */
	bool hint_due;

	struct sp_map items;
	struct sp_list dirty;
	bool forgot; /* too many items: tell everything from the start */
	bool anew;   /* other facts than those it registered with */

	/* the pool's heartbeat that waits for an answer */
	bool beat_wanted;
	void (*beat_cb)(void *arg, const struct sp_store_share *share, const struct sp_err *err);
	void *beat_arg;
};

enum store_acquire_state { ACQUIRE_DUE, ACQUIRE_ASKING, ACQUIRE_SLEEPING };

struct sp_redis_acquire {
	struct sp_list link; /* in store->acquires */
	struct redis_store *store;
	char pool[SP_POOL_NAME_MAX + 1];
	char key[STORE_KEY_MAX];
	char lease_id[SP_LEASE_ID_LEN + 1];
	enum sp_acquire_policy policy;
	int64_t min_remaining_ms;
	int64_t ttl_ms;
	int64_t deadline_ms; /* BOOTTIME */
	bool waits;
	bool queued; /* a ticket is there: _wait from now on */
	bool not_here;
	char *reject;
	enum store_acquire_state state;
	int64_t next_ms; /* SLEEPING */
	int64_t pause_ms;
	int64_t started_ns;
	bool cancelled; /* free it as soon as nothing is under way */
	bool poked;     /* ask again at once */
	sp_redis_acquire_cb *cb;
	void *arg;
};

/* A call of an operator or of the store itself; answered once. */
struct store_ask {
	struct sp_list link; /* in store->asks */
	struct redis_store *store;
	const char *function;
	struct store_args args;
	char key[STORE_KEY_MAX];
	char pool[SP_POOL_NAME_MAX + 1];
	bool read_only;
	int64_t started_ns;
	/* reply NULL: err. */
	void (*answer)(struct store_ask *ask, struct store_reply *reply, const char *word,
		       const struct sp_err *err);

	union {
		void (*meta)(void *arg, const struct sp_store_meta *meta, const struct sp_err *err);
		sp_redis_hosts_cb *hosts;
		void (*plain)(void *arg, const struct sp_err *err);
	} cb;

	void *arg;
	struct sp_store_meta meta; /* of a meta_set, as is what follows */
	uint64_t expected;
	bool state_too;
	bool sizes_too;
};

struct store_clock {
	bool known;
	int64_t offset_ms; /* Redis TIME = BOOTTIME + this; errs early */
};

struct redis_store {
	struct sp_store store;
	uv_loop_t *loop;
	struct sp_redis_store_events events;
	void *arg;
	char *prefix;
	uint64_t seeds[2];
	int64_t command_timeout_ms;
	uint32_t capacity;
	char host[SP_REDIS_HOST_MAX + 1];
	char endpoint[SP_REDIS_ENDPOINT_MAX + 1];
	char boot_id[64];
	char secret_digest[SP_REDIS_DIGEST_MAX + 1];
	char version[32];
	char incarnation[STORE_INCARNATION + 1];
	char evicts[STORE_WORD_MAX]; /* policy that was reported */
	char why_down[SP_ERR_MESSAGE_MAX];

	bool ready; /* connected, and the library is there */
	bool fenced;
	bool channels_changed;
	bool leaving; /* close() was called: unregister, then go */
	bool closing; /* handles close */
	unsigned int open_handles;
	uint32_t acquire_count;
	uint32_t ask_count;
	int64_t library_due_ms; /* ask for the library again then; 0 = not */
	int64_t leave_until_ms;
	struct store_clock clock;
	struct sp_redis *redis;
	struct sp_redis_library *library;
	struct sp_redis *events_link; /* subscribed to our channels */

	struct sp_list pools;
	struct sp_list acquires;
	struct sp_list asks;
	uv_idle_t flush; /* runs once per turn in which something became due */
	uv_timer_t alarm;
};

static inline struct redis_store *store_of(struct sp_store *store)
{
	return SP_CONTAINER_OF(store, struct redis_store, store);
}

/* ---- store.c ---- */

/* Look at everything in the next turn. */
void store_wake(struct redis_store *store);
/* … or at this time at the latest. */
void store_wake_at(struct redis_store *store, int64_t boot_ms);
uint64_t store_random(struct redis_store *store);
struct store_pool *store_pool_find(struct redis_store *store, const char *name);
int store_key(const struct redis_store *store, const char *pool, char *key, size_t size);
/* FCALL with kept arguments. */
int store_fcall(struct redis_store *store, const char *function, bool read_only, const char *key,
		const struct store_args *args, int64_t deadline_ms, sp_redis_cb *cb, void *arg,
		struct sp_err *err);
void store_observe(struct redis_store *store, const char *function, int64_t started_ns,
		   bool failed);
void store_unavailable(struct redis_store *store, struct sp_err *err, const char *what);
void store_touched(struct store_pool *pool);

/* ---- store_stream.c: a pool's calls ---- */

/* Send what is next, if nothing is under way. Only from the loop. */
void store_pool_advance(struct store_pool *pool, int64_t now_ms);
/* The connection is gone. */
void store_pool_down(struct store_pool *pool, const struct sp_err *why);
/* A new connection with the library on it. */
void store_pool_up(struct store_pool *pool);
void store_pool_free(struct store_pool *pool);
void store_fence(struct store_pool *pool, const struct sp_err *why);
/* The heartbeat that the pool waits for is answered. */
void store_beat_answer(struct store_pool *pool, const struct sp_store_share *share,
		       const struct sp_err *err);

/* ---- store_beat.c: what register and heartbeat say ---- */

void store_beat_build(struct store_pool *pool);
void store_register_build(struct store_pool *pool);
void store_on_beat(struct store_pool *pool, struct store_reply *reply, int64_t now_ms);
void store_on_register(struct store_pool *pool, struct store_reply *reply, int64_t now_ms);
/* The operator's intent, if it is newer than what we know. */
void store_see_meta(struct store_pool *pool, const struct sp_store_meta *meta);
void store_mismatch(struct store_pool *pool, int64_t spec_revision, const char *spec_digest);
const char *store_state_name(enum sp_store_pool_state state);

/* ---- store_items.c: what is to be told of sandboxes ---- */

/* 0, -ENOMEM. */
int store_item_update(struct store_pool *pool, const struct sp_sandbox *sandbox);
/* cb NULL: nobody waits for the verdict. */
int store_item_publish(struct store_pool *pool, const struct sp_sandbox *sandbox,
		       sp_store_publish_cb *cb, void *arg);
/* Move up to a batch into the call; false: there is nothing. */
bool store_items_publish(struct store_pool *pool);
bool store_items_update(struct store_pool *pool);
/* Publishes whose sandbox has left idle meanwhile become updates. */
void store_items_stale(struct store_pool *pool);
/* Nobody can be asked now: who waits is told LISTED. */
void store_items_outage(struct store_pool *pool, const struct sp_err *why);
void store_on_published(struct store_pool *pool, struct store_reply *reply);
void store_on_updated(struct store_pool *pool);
/* The call never reached anybody. */
void store_items_return(struct store_pool *pool);
void store_items_drop(struct store_pool *pool);
/* The next 256 of the rotation become dirty. */
void store_items_rotate(struct store_pool *pool);
/* All of them: ends have moved on Redis' clock. */
void store_items_all(struct store_pool *pool);
int store_resync_begin(struct store_pool *pool);
void store_resync_build(struct store_pool *pool);
void store_resync_done(struct store_pool *pool);

/* ---- store_clock.c ---- */

/* TIME of an answer to a question that was asked at sent_ms. True: it has drifted, all ends are to
 * be told again. */
bool store_clock_hear(struct store_clock *clock, int64_t redis_ms, int64_t sent_ms,
		      int64_t received_ms);
/* Absolute Redis time of a BOOTTIME; 0 while the clock is unknown. */
int64_t store_clock_absolute(const struct store_clock *clock, int64_t boot_ms);

/* ---- store_acquire.c, store_ask.c ---- */

void store_acquires_advance(struct redis_store *store, int64_t now_ms);
void store_acquires_free(struct redis_store *store);
/* One of ours was granted to this lease. */
void store_acquire_poke(struct redis_store *store, const char *lease_id);
int store_meta_set(struct sp_store *store, const char *pool, const struct sp_store_meta *meta,
		   uint64_t expected_revision, int64_t now_ms,
		   void (*cb)(void *arg, const struct sp_store_meta *meta,
			      const struct sp_err *err),
		   void *arg);
/* Answers them. */
void store_asks_free(struct redis_store *store);
/* Remove what is left of hosts, leases and tickets that are long gone. */
void store_reap(struct store_pool *pool);
/* Ask the server for its maxmemory-policy. */
void store_check_eviction(struct redis_store *store);

#endif
