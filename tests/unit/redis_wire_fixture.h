/*
 * One connection under test, and what it told.
 */
#ifndef SP_TESTS_REDIS_WIRE_FIXTURE_H
#define SP_TESTS_REDIS_WIRE_FIXTURE_H

#include "redis/wire.h"
#include "redis_fixture.h"

struct wire {
	struct redis_loop at;
	struct sp_redis *redis; /* NULL once closed */
	unsigned int ups;
	unsigned int downs;
	int64_t up_ms;
	int64_t down_ms;
	struct sp_err why; /* of the last down */
	unsigned int messages;
	char channel[64];
	char text[64];
	unsigned int closed;
	bool close_when_up;
	bool close_when_down;
};

/* What became of a command. */
struct outcome {
	unsigned int calls; /* of its callback: must end at 1 */
	enum sp_redis_outcome outcome;
	int type;
	long long integer;
	size_t elements;
	char text[512];
	struct sp_err err;
	int64_t at_ms;
};

static inline void wire_on_up(void *arg)
{
	struct wire *wire = arg;

	wire->ups++;
	wire->up_ms = redis_now_ms();
	if (wire->close_when_up)
		sp_redis_close(wire->redis);
}

static inline void wire_on_down(void *arg, const struct sp_err *why)
{
	struct wire *wire = arg;

	cr_assert(why->status < 0);
	cr_assert(!sp_redis_up(wire->redis));
	wire->downs++;
	wire->down_ms = redis_now_ms();
	wire->why = *why;
	if (wire->close_when_down)
		sp_redis_close(wire->redis);
}

static inline void wire_on_message(void *arg, const char *channel, const char *text, size_t len)
{
	struct wire *wire = arg;

	wire->messages++;
	(void)snprintf(wire->channel, sizeof(wire->channel), "%s", channel);
	(void)snprintf(wire->text, sizeof(wire->text), "%.*s", (int)len, text);
}

static inline void wire_on_closed(void *arg)
{
	struct wire *wire = arg;

	wire->closed++;
	wire->redis = NULL;
}

static const struct sp_redis_events wire_events = {
	.up = wire_on_up,
	.down = wire_on_down,
	.message = wire_on_message,
	.closed = wire_on_closed,
};

static inline void wire_init(struct wire *wire)
{
	*wire = (struct wire){0};
	redis_loop_init(&wire->at);
}

/* After wire_init(), where something else runs on the loop as well. */
static inline void wire_start(struct wire *wire, const struct sp_redis_options *options)
{
	struct sp_err err = {0};

	cr_assert(sp_redis_new(&wire->at.loop, options, &wire_events, wire, &wire->redis, &err) ==
			  0,
		  "%s", err.message);
}

static inline void wire_open(struct wire *wire, const struct sp_redis_options *options)
{
	wire_init(wire);
	wire_start(wire, options);
}

static inline void wire_open_url(struct wire *wire, const char *url)
{
	const struct sp_redis_options options = {.url = url, .seed = 1};

	wire_open(wire, &options);
}

/* Connected, or the test fails. */
static inline void wire_open_up(struct wire *wire, const char *url)
{
	wire_open_url(wire, url);
	REDIS_WAIT(&wire->at, wire->ups == 1);
}

/* The connection; the loop goes on. */
static inline void wire_end(struct wire *wire)
{
	if (wire->redis)
		sp_redis_close(wire->redis);
	REDIS_WAIT(&wire->at, wire->closed == 1);
}

static inline void wire_close(struct wire *wire)
{
	wire_end(wire);
	redis_loop_done(&wire->at);
	cr_assert(wire->closed == 1);
}

static inline void wire_on_reply(void *arg, enum sp_redis_outcome outcome, const redisReply *reply,
				 const struct sp_err *err)
{
	struct outcome *ret = arg;

	ret->calls++;
	ret->outcome = outcome;
	ret->at_ms = redis_now_ms();
	cr_assert((reply != NULL) == (outcome == SP_REDIS_REPLIED));
	cr_assert(err || outcome == SP_REDIS_REPLIED);
	if (err) {
		cr_assert(err->status < 0);
		cr_assert(err->code == SP_CODE_POOL_STATE_STORE_UNAVAILABLE);
		ret->err = *err;
	}
	if (!reply)
		return;
	ret->type = reply->type;
	ret->integer = reply->integer;
	ret->elements = reply->type == REDIS_REPLY_ARRAY ? reply->elements : 0;
	if (reply->str)
		(void)snprintf(ret->text, sizeof(ret->text), "%s", reply->str);
}

#define WIRE_ARGV(...)                                                                  \
	(int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)), (const char *[]) \
	{                                                                               \
		__VA_ARGS__                                                             \
	}

/* Sends, and returns at once. */
#define wire_send(wire, ret, timeout_ms, ...)                                                    \
	do {                                                                                     \
		struct sp_err send_err = {0};                                                    \
		*(ret) = (struct outcome){0};                                                    \
		cr_assert(sp_redis_call((wire)->redis, WIRE_ARGV(__VA_ARGS__), NULL, timeout_ms, \
					wire_on_reply, ret, &send_err) == 0,                     \
			  "%s", send_err.message);                                               \
		cr_assert((ret)->calls == 0);                                                    \
	} while (0)

/* Sends and waits for what becomes of it. */
#define wire_ask(wire, ret, ...)                            \
	do {                                                \
		wire_send(wire, ret, 0, __VA_ARGS__);       \
		REDIS_WAIT(&(wire)->at, (ret)->calls == 1); \
	} while (0)

/* Patience that a test can wait for. */
static inline void give_up_soon(struct sp_redis_options *options, const char *url)
{
	*options = (struct sp_redis_options){.url = url,
					     .seed = 1,
					     .connect_timeout_ms = 200,
					     .command_timeout_ms = 200,
					     .keepalive_ms = 300,
					     .backoff_min_ms = 5,
					     .backoff_max_ms = 50};
}

#endif
