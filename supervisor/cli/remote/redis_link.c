/*
 * redis/wire.h for a program that does one thing at a time: a loop of its own, run until the answer
 * is there or the time is over.
 *
 *	call ── not READY ──► run until `up` ── time over ──► -ENOTCONN, with why the last try
 *failed └───── READY ─────► sent, run until the answer ───► 0, -EREMOTEIO, -ENOTCONN, -ETIMEDOUT
 *
 * An answer that comes after its time finds its call gone (`waiting` is NULL by then).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base/clock.h"
#include "redis/library.h"
#include "supervisor/cli/remote/link.h"

#define CLIENT_NAME "sandpool-cli"
#define GRACE_MS    500 /* for the connection's own deadline to speak first */

struct waiting {
	struct sp_cli_reply *ret_reply;
	struct sp_err *err;
	int status;
	bool done;
};

struct sp_cli_redis_link {
	uv_loop_t loop;
	uv_timer_t timer;
	struct sp_redis *redis;
	struct sp_redis_library *library;
	struct sp_err why; /* the connection is not up */
	struct waiting *waiting;
	bool closed;
};

/* ---- events ---- */

static void on_up(void *arg)
{
	struct sp_cli_redis_link *link = arg;

	sp_err_clear(&link->why);
}

static void on_down(void *arg, const struct sp_err *why)
{
	struct sp_cli_redis_link *link = arg;

	link->why = *why;
}

static void on_closed(void *arg)
{
	struct sp_cli_redis_link *link = arg;

	link->redis = NULL;
	link->closed = true;
}

static void on_timer(uv_timer_t *timer)
{
	SP_UNUSED(timer); /* only ends the wait in uv_run() */
}

static void on_reply(void *arg, enum sp_redis_outcome outcome, const struct redisReply *reply,
		     const struct sp_err *err)
{
	struct sp_cli_redis_link *link = arg;
	struct waiting *waiting = link->waiting;

	if (!waiting)
		return;
	waiting->done = true;
	if (err) {
		static const int statuses[] = {
			[SP_REDIS_REPLIED] = -EREMOTEIO,
			[SP_REDIS_NOT_SENT] = -ENOTCONN,
			[SP_REDIS_UNKNOWN] = -ETIMEDOUT,
		};

		waiting->status = statuses[outcome];
		*waiting->err = *err;
		waiting->err->status = waiting->status;
		return;
	}
	waiting->status = sp_cli_reply_flatten(reply, waiting->ret_reply);
	if (waiting->status < 0)
		(void)sp_err_set(waiting->err, waiting->status, "read an answer of Redis");
}

/* ---- open and close ---- */

int sp_cli_link_open(const struct sp_cli_redis_settings *settings,
		     struct sp_cli_redis_link **ret_link, struct sp_err *err)
{
	static const struct sp_redis_events events = {
		.up = on_up, .down = on_down, .closed = on_closed};
	const struct sp_redis_options options = {
		.url = settings->url,
		.user = settings->user,
		.password_file = settings->password_file,
		.sentinel_password_file = settings->sentinel_password_file,
		.ca_file = settings->ca_file,
		.cert_file = settings->cert_file,
		.key_file = settings->key_file,
		.server_name = settings->server_name,
		.client_name = CLIENT_NAME,
		.seed = (uint64_t)sp_clock_boot_ns(),
	};
	struct sp_cli_redis_link *link = calloc(1, sizeof(*link));
	int status = link ? uv_loop_init(&link->loop) : -ENOMEM;

	if (status < 0) {
		free(link);
		return sp_err_set(err, status, "make room for a connection to Redis");
	}
	(void)uv_timer_init(&link->loop, &link->timer);
	status = sp_redis_new(&link->loop, &options, &events, link, &link->redis, err);
	if (status == 0)
		status = sp_redis_library_new(link->redis, &link->library, err);
	if (status < 0) {
		/* To the library it is a configuration, to us it is what the user typed. */
		if (err && status == -EINVAL)
			err->code = SP_CODE_INVALID_ARGUMENT;
		sp_cli_link_close(link);
		return status;
	}
	*ret_link = link;
	return 0;
}

void sp_cli_link_close(struct sp_cli_redis_link *link)
{
	link->waiting = NULL;
	sp_redis_library_free(link->library);
	if (link->redis)
		sp_redis_close(link->redis);
	uv_close((uv_handle_t *)&link->timer, NULL);
	(void)uv_run(&link->loop, UV_RUN_DEFAULT);
	(void)uv_loop_close(&link->loop);
	free(link);
}

/* ---- calls ---- */

/* Until `stop` or the deadline. */
static void run_until(struct sp_cli_redis_link *link, bool (*stop)(struct sp_cli_redis_link *link),
		      int64_t deadline_ms)
{
	int64_t left_ms;

	while (!stop(link) && (left_ms = deadline_ms - sp_clock_boot_ms()) > 0) {
		(void)uv_timer_start(&link->timer, on_timer, (uint64_t)left_ms, 0);
		(void)uv_run(&link->loop, UV_RUN_ONCE);
	}
	(void)uv_timer_stop(&link->timer);
}

static bool is_up(struct sp_cli_redis_link *link)
{
	return sp_redis_up(link->redis);
}

static bool is_answered(struct sp_cli_redis_link *link)
{
	return link->waiting->done;
}

static int await_up(struct sp_cli_redis_link *link, int64_t deadline_ms, struct sp_err *err)
{
	run_until(link, is_up, deadline_ms);
	if (is_up(link))
		return 0;
	if (link->why.status == 0)
		return sp_err_code(err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -ENOTCONN,
				   "no connection to Redis at '%s' in time",
				   sp_redis_peer(link->redis));
	*err = link->why;
	err->status = -ENOTCONN;
	return -ENOTCONN;
}

static int await_reply(struct sp_cli_redis_link *link, struct waiting *waiting, int64_t deadline_ms)
{
	run_until(link, is_answered, deadline_ms + GRACE_MS);
	link->waiting = NULL;
	if (waiting->done)
		return waiting->status;
	return sp_err_code(waiting->err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -ETIMEDOUT,
			   "Redis at '%s' did not answer in time", sp_redis_peer(link->redis));
}

int sp_cli_link_fcall(struct sp_cli_redis_link *link, const char *function, bool read_only,
		      const char *key, int argc, const char *const *argv, int64_t timeout_ms,
		      struct sp_cli_reply *ret_reply, struct sp_err *err)
{
	struct waiting waiting = {.ret_reply = ret_reply, .err = err};
	int64_t deadline_ms = sp_clock_boot_ms() + timeout_ms;
	int status = await_up(link, deadline_ms, err);

	if (status < 0)
		return status;
	link->waiting = &waiting;
	status = sp_redis_fcall(link->library, function, read_only, key, argc, argv, NULL,
				SP_MAX(deadline_ms - sp_clock_boot_ms(), INT64_C(1)), on_reply,
				link, err);
	if (status < 0) {
		link->waiting = NULL;
		return status;
	}
	return await_reply(link, &waiting, deadline_ms);
}

int sp_cli_link_command(struct sp_cli_redis_link *link, int argc, const char *const *argv,
			int64_t timeout_ms, struct sp_cli_reply *ret_reply, struct sp_err *err)
{
	struct waiting waiting = {.ret_reply = ret_reply, .err = err};
	int64_t deadline_ms = sp_clock_boot_ms() + timeout_ms;
	int status = await_up(link, deadline_ms, err);

	if (status < 0)
		return status;
	link->waiting = &waiting;
	status = sp_redis_call(link->redis, argc, argv, NULL,
			       SP_MAX(deadline_ms - sp_clock_boot_ms(), INT64_C(1)), on_reply, link,
			       err);
	if (status < 0) {
		link->waiting = NULL;
		return status;
	}
	return await_reply(link, &waiting, deadline_ms);
}
