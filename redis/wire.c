/*
 * The logical connection: which server, when to try again, what becomes of a command meanwhile.
 *
 *	WAITING ─timer─► READING ─► (ASKING) ─► CONNECTING ─► GREETING ─► READY ─► LEAVING
 *	   ▲                │           │            │            │          │        │
 *	   └────────────────┴───────────┴────────────┴────────────┴──────────┴────────┘ try_failed()
 *
 * The pause before a try is drawn from [1 ms, cap], the cap doubling from backoff_min to
 *backoff_max with each try that comes to nothing ("full jitter": clients that lost one server do
 *not come back in step). A connection that was READY for less than backoff_max counts as such a
 *try, so that a server which greets and hangs up is not pestered.
 *
 * READONLY (we talk to a replica), MOVED (another node has the slot) and NOAUTH (our user has
 * changed) mean that this is not, or no longer, the right connection: LEAVING takes no new
 *commands, lets those under way have their answers, and then looks for the right one.
 *
 * A command while there is no connection is answered on the loop, from an idle handle that is
 *active only then.
 */
#include "redis/wire_private.h"

#include "pool/base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRIES_COUNTED 32u

/* A command that met no connection. */
struct unsent {
	struct sp_list link;
	sp_redis_cb *cb;
	void *arg;
	char name[SP_REDIS_COMMAND_NAME_MAX];
};

/* ---- small things ---- */

/* SplitMix64. */
static uint64_t draw(struct sp_redis *redis)
{
	uint64_t z = (redis->random += 0x9e3779b97f4a7c15U);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
	return z ^ (z >> 31);
}

static void describe(struct sp_redis *redis)
{
	const struct sp_redis_url *url = &redis->settings.url;
	char address[SP_REDIS_ADDRESS_TEXT_MAX];
	const char *scheme = redis->to.path[0] != '\0' ? "unix" : url->tls ? "tls" : "tcp";

	sp_redis_address_text(&redis->to, address, sizeof(address));
	if (redis->state == SP_REDIS_WIRE_READY)
		(void)snprintf(redis->peer, sizeof(redis->peer), "%s://%s%s%s", scheme, address,
			       url->sentinel ? ", master " : "", url->master);
	else
		(void)snprintf(redis->peer, sizeof(redis->peer), "%s", redis->why.message);
}

static void start_timer(struct sp_redis *redis, int64_t delay_ms, uv_timer_cb cb)
{
	int64_t at_ms = sp_redis_now_ms() + delay_ms;
	int64_t delay = at_ms - (int64_t)uv_now(redis->loop);

	/* Cannot fail: there is a callback and the handle is not closing. */
	(void)uv_timer_start(&redis->timer, cb, (uint64_t)SP_MAX(delay, 0), 0);
}

/* ---- the end ---- */

static void answer_unsent(struct sp_redis *redis)
{
	struct sp_list now;

	/* What a callback sends is for the next turn of the loop. */
	sp_list_init(&now);
	while (!sp_list_empty(&redis->unsent)) {
		struct sp_list *link = redis->unsent.next;

		sp_list_remove(link);
		sp_list_append(&now, link);
	}
	while (!sp_list_empty(&now)) {
		struct unsent *unsent = SP_CONTAINER_OF(now.next, struct unsent, link);
		struct sp_err err = {0};

		sp_list_remove(&unsent->link);
		redis->unsent_count--;
		(void)sp_err_code(&err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -ENOTCONN,
				  "'%s': not connected: %s", unsent->name, redis->why.message);
		unsent->cb(unsent->arg, SP_REDIS_NOT_SENT, NULL, &err);
		free(unsent);
	}
}

static void free_channels(char **channels, size_t count)
{
	for (size_t i = 0; i < count; i++)
		free(channels[i]);
	free(channels);
}

static void redis_free(struct sp_redis *redis)
{
	free_channels(redis->channels, redis->channel_count);
	sp_redis_secrets_done(&redis->secrets);
	sp_redis_settings_done(&redis->settings);
	free(redis);
}

void sp_redis_unhold(struct sp_redis *redis)
{
	if (--redis->holds > 0)
		return;
	answer_unsent(redis);
	redis->events.closed(redis->arg);
	redis_free(redis);
}

static void on_handle_closed(uv_handle_t *handle)
{
	sp_redis_unhold(handle->data);
}

static void drop_connection(struct sp_redis *redis, const struct sp_err *why)
{
	if (redis->query)
		sp_redis_sentinel_close(redis->query);
	redis->query = NULL;
	if (redis->io)
		sp_redis_io_close(redis->io, why);
	redis->io = NULL;
	redis->subscribing = 0;
}

void sp_redis_close(struct sp_redis *redis)
{
	struct sp_err why = {0};

	if (redis->state == SP_REDIS_WIRE_CLOSING)
		return;
	redis->state = SP_REDIS_WIRE_CLOSING;
	(void)sp_err_code(&why, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -ECANCELED,
			  "the connection is being closed");
	redis->why = why;
	describe(redis);
	drop_connection(redis, &why);
	if (redis->files)
		sp_redis_files_cancel(redis->files);
	uv_close((uv_handle_t *)&redis->timer, on_handle_closed);
	uv_close((uv_handle_t *)&redis->kick, on_handle_closed);
}

/* ---- a try ---- */

static void start_try(struct sp_redis *redis);

static void on_next_try(uv_timer_t *timer)
{
	start_try(timer->data);
}

static int64_t pause_ms(struct sp_redis *redis)
{
	const struct sp_redis_settings *settings = &redis->settings;
	int64_t cap_ms = settings->backoff_min_ms;

	/* The first time the cluster says where to go there is nothing to wait for. */
	if (redis->moved && redis->tries <= 1)
		return 0;
	for (unsigned int i = 1; i < redis->tries && cap_ms < settings->backoff_max_ms; i++)
		cap_ms *= 2;
	cap_ms = SP_MIN(cap_ms, settings->backoff_max_ms);
	return 1 + (int64_t)(draw(redis) % (uint64_t)cap_ms);
}

void sp_redis_try_failed(struct sp_redis *redis, const struct sp_err *why)
{
	bool was_ready =
		redis->state == SP_REDIS_WIRE_READY || redis->state == SP_REDIS_WIRE_LEAVING;

	if (redis->state == SP_REDIS_WIRE_CLOSING)
		return;
	if (was_ready && sp_redis_now_ms() - redis->ready_ms >= redis->settings.backoff_max_ms)
		redis->tries = 0;
	if (!was_ready)
		redis->moved = false;
	redis->tries = SP_MIN(redis->tries + 1, TRIES_COUNTED);
	redis->state = SP_REDIS_WIRE_WAITING;
	redis->why = *why;
	describe(redis);
	sp_redis_secrets_done(&redis->secrets);
	drop_connection(redis, &redis->why);
	start_timer(redis, pause_ms(redis), on_next_try);
	if (redis->events.down)
		redis->events.down(redis->arg, &redis->why);
}

/* ---- READY ---- */

static void on_keepalive(uv_timer_t *timer);

/* Twice this and a little is less than keepalive_ms. */
static int64_t quiet_ms(const struct sp_redis *redis)
{
	return SP_MAX(redis->settings.keepalive_ms * 2 / 5, 1);
}

static void on_pong(void *arg, enum sp_redis_outcome outcome, const redisReply *reply,
		    const struct sp_err *err)
{
	/* Any answer is a sign of life, and a lost one ends the connection anyway. */
	SP_UNUSED(arg);
	SP_UNUSED(outcome);
	SP_UNUSED(reply);
	SP_UNUSED(err);
}

/* Where commands are under way their deadlines watch the link; PING would wait behind them. */
static void on_keepalive(uv_timer_t *timer)
{
	const char *const ping[] = {"PING"};
	struct sp_redis *redis = timer->data;
	int64_t quiet = quiet_ms(redis);
	int64_t since_ms;

	if (!sp_redis_up(redis))
		return;
	since_ms = sp_redis_now_ms() - sp_redis_io_heard_ms(redis->io);
	if (since_ms < quiet) {
		start_timer(redis, quiet - since_ms, on_keepalive);
		return;
	}
	start_timer(redis, quiet, on_keepalive);
	if (sp_redis_io_pending(redis->io) == 0)
		(void)sp_redis_io_send(redis->io, 1, ping, NULL, quiet, 1, on_pong, redis, NULL);
}

void sp_redis_ready(struct sp_redis *redis)
{
	redis->state = SP_REDIS_WIRE_READY;
	redis->ready_ms = sp_redis_now_ms();
	sp_err_clear(&redis->why);
	describe(redis);
	start_timer(redis, quiet_ms(redis), on_keepalive);
	if (redis->events.up)
		redis->events.up(redis->arg);
}

/* "MOVED 3999 10.0.0.1:6381": an empty or unknown host means the one that says so. */
static void note_moved(struct sp_redis *redis, const redisReply *reply)
{
	const char *host = strrchr(reply->str, ' ');
	const char *port = strrchr(reply->str, ':');
	size_t host_len;

	if (!host || !port || port < host)
		return;
	host++;
	host_len = (size_t)(port - host);
	if (host_len == 0 || (host_len == 1 && *host == '?')) {
		host = redis->to.host;
		host_len = strlen(host);
	}
	port++;
	redis->moved =
		sp_redis_address_set(host, host_len, port, strlen(port), &redis->elsewhere) == 0;
}

static void on_refused(void *arg, const redisReply *reply)
{
	struct sp_redis *redis = arg;
	enum sp_redis_error error = sp_redis_error_of(reply);
	char address[SP_REDIS_ADDRESS_TEXT_MAX];
	char words[128];

	if (redis->state != SP_REDIS_WIRE_READY ||
	    (error != SP_REDIS_ERROR_MOVED && error != SP_REDIS_ERROR_NOAUTH &&
	     (error != SP_REDIS_ERROR_READONLY || redis->settings.allow_replica)))
		return;
	if (error == SP_REDIS_ERROR_MOVED)
		note_moved(redis, reply);
	else
		redis->moved = false;
	redis->state = SP_REDIS_WIRE_LEAVING;
	(void)uv_timer_stop(&redis->timer);
	(void)sp_err_code(&redis->why, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -EAGAIN,
			  "redis at '%s' answers: %s",
			  sp_redis_address_text(&redis->to, address, sizeof(address)),
			  sp_log_quote(reply->str, words, sizeof(words)));
	describe(redis);
}

static void on_drained(void *arg)
{
	struct sp_redis *redis = arg;
	struct sp_err why = redis->why;

	if (redis->state == SP_REDIS_WIRE_LEAVING)
		sp_redis_try_failed(redis, &why);
}

static void on_pushed(void *arg, const redisReply *reply)
{
	struct sp_redis *redis = arg;
	const redisReply *channel = reply->element[1];
	const redisReply *text = reply->element[2];

	if (redis->state == SP_REDIS_WIRE_CLOSING || !redis->events.message ||
	    !sp_redis_is_text(channel) || !sp_redis_is_text(text))
		return;
	for (size_t i = 0; i < redis->channel_count; i++)
		if (sp_redis_is_word(channel, redis->channels[i])) {
			redis->events.message(redis->arg, redis->channels[i], text->str, text->len);
			return;
		}
}

/* ---- from WAITING to GREETING ---- */

static void on_io_opened(void *arg)
{
	struct sp_redis *redis = arg;

	redis->state = SP_REDIS_WIRE_GREETING;
	sp_redis_greet(redis);
}

static void on_io_failed(void *arg, const struct sp_err *why)
{
	struct sp_redis *redis = arg;

	redis->io = NULL;
	sp_redis_try_failed(redis, why);
}

static void on_lookup_closed(void *arg)
{
	struct sp_redis *redis = arg;

	redis->lookups--;
	sp_redis_unhold(redis);
}

static const struct sp_redis_io_events io_events = {
	.opened = on_io_opened,
	.pushed = on_pushed,
	.refused = on_refused,
	.drained = on_drained,
	.failed = on_io_failed,
	.closed = on_lookup_closed,
};

static void connect_to(struct sp_redis *redis, const struct sp_redis_address *address)
{
	const struct sp_redis_settings *settings = &redis->settings;
	const struct sp_redis_io_options options = {
		.address = address,
		.credentials = redis->secrets.credentials,
		.server_name = settings->server_name,
		.connect_timeout_ms = settings->connect_timeout_ms,
		.keepalive_ms = settings->keepalive_ms,
	};
	struct sp_err err = {0};

	redis->to = *address;
	redis->state = SP_REDIS_WIRE_CONNECTING;
	if (sp_redis_io_open(redis->loop, &options, &io_events, redis, &redis->io, &err) < 0) {
		sp_redis_try_failed(redis, &err);
		return;
	}
	redis->lookups++;
	redis->holds++;
}

static void on_master(void *arg, const struct sp_redis_address *master, const struct sp_err *err)
{
	struct sp_redis *redis = arg;
	struct sp_redis_address address;

	if (!master) {
		sp_redis_try_failed(redis, err);
		return;
	}
	address = *master;
	sp_redis_sentinel_close(redis->query);
	redis->query = NULL;
	connect_to(redis, &address);
}

static const struct sp_redis_sentinel_events sentinel_events = {
	.found = on_master,
	.closed = on_lookup_closed,
};

static void ask_sentinels(struct sp_redis *redis)
{
	const struct sp_redis_sentinel_options options = {
		.url = &redis->settings.url,
		.credentials = redis->secrets.credentials,
		.server_name = redis->settings.server_name,
		.password = redis->secrets.sentinel_password,
		.timeout_ms = SP_MAX(redis->settings.connect_timeout_ms / 2, 1),
		.turn = redis->tries,
	};
	struct sp_err err = {0};

	redis->state = SP_REDIS_WIRE_ASKING;
	if (sp_redis_sentinel_ask(redis->loop, &options, &sentinel_events, redis, &redis->query,
				  &err) < 0) {
		sp_redis_try_failed(redis, &err);
		return;
	}
	redis->lookups++;
	redis->holds++;
}

static void find_server(struct sp_redis *redis)
{
	if (redis->moved)
		connect_to(redis, &redis->elsewhere);
	else if (redis->settings.url.sentinel)
		ask_sentinels(redis);
	else
		connect_to(redis, &redis->settings.url.servers[0]);
}

static void on_files_read(void *arg, int status, const struct sp_err *err)
{
	struct sp_redis *redis = arg;

	redis->files = NULL;
	if (redis->state == SP_REDIS_WIRE_READING) {
		(void)uv_timer_stop(&redis->timer);
		if (status < 0)
			sp_redis_try_failed(redis, err);
		else
			find_server(redis);
	}
	sp_redis_unhold(redis);
}

/* The thread cannot be called back; say so once and go on waiting for it. */
static void on_files_late(uv_timer_t *timer)
{
	struct sp_redis *redis = timer->data;

	(void)sp_err_code(&redis->why, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -ETIMEDOUT,
			  "reading the password and certificate files takes longer than %lld ms",
			  (long long)redis->settings.connect_timeout_ms);
	describe(redis);
	if (redis->events.down)
		redis->events.down(redis->arg, &redis->why);
}

static void read_files(struct sp_redis *redis)
{
	struct sp_err err = {0};

	redis->state = SP_REDIS_WIRE_READING;
	if (sp_redis_files_read(redis->loop, &redis->settings, &redis->secrets, on_files_read,
				redis, &redis->files, &err) < 0) {
		sp_redis_try_failed(redis, &err);
		return;
	}
	redis->holds++;
	start_timer(redis, redis->settings.connect_timeout_ms, on_files_late);
}

static void start_try(struct sp_redis *redis)
{
	struct sp_err err = {0};

	if (redis->lookups > SP_REDIS_LINGERING_MAX) {
		(void)sp_err_code(&err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -EAGAIN,
				  "earlier name lookups have not come back yet");
		sp_redis_try_failed(redis, &err);
	} else if (sp_redis_files_needed(&redis->settings)) {
		read_files(redis);
	} else {
		find_server(redis);
	}
}

/* ---- the calls ---- */

static int init_handles(struct sp_redis *redis)
{
	int status = uv_timer_init(redis->loop, &redis->timer);

	if (status < 0)
		return status;
	redis->timer.data = redis;
	(void)uv_idle_init(redis->loop, &redis->kick); /* cannot fail */
	redis->kick.data = redis;
	redis->holds = 2;
	return 0;
}

int sp_redis_new(uv_loop_t *loop, const struct sp_redis_options *options,
		 const struct sp_redis_events *events, void *arg, struct sp_redis **ret,
		 struct sp_err *err)
{
	struct sp_redis *redis = calloc(1, sizeof(*redis));
	int status;

	if (!redis)
		return sp_err_set(err, -ENOMEM, "connect to redis");
	redis->loop = loop;
	redis->events = *events;
	redis->arg = arg;
	redis->random = options->seed ? options->seed : uv_hrtime() ^ (uint64_t)(uintptr_t)redis;
	sp_list_init(&redis->unsent);
	status = sp_redis_settings_init(&redis->settings, options, err);
	if (status < 0) {
		free(redis);
		return status;
	}
	status = init_handles(redis);
	if (status < 0) {
		redis_free(redis);
		return sp_err_set(err, status, "connect to redis");
	}
	redis->to = redis->settings.url.servers[0];
	(void)sp_err_code(&redis->why, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -EAGAIN,
			  "still connecting");
	describe(redis);
	start_timer(redis, 0, on_next_try);
	*ret = redis;
	return 0;
}

bool sp_redis_up(const struct sp_redis *redis)
{
	return redis->state == SP_REDIS_WIRE_READY && redis->io && sp_redis_io_is_open(redis->io);
}

const char *sp_redis_peer(const struct sp_redis *redis)
{
	return redis->peer;
}

static void on_kick(uv_idle_t *idle)
{
	struct sp_redis *redis = idle->data;

	if (redis->state == SP_REDIS_WIRE_CLOSING)
		return;
	answer_unsent(redis);
	if (sp_list_empty(&redis->unsent))
		(void)uv_idle_stop(idle);
}

static int leave_unsent(struct sp_redis *redis, int argc, const char *const *argv,
			const size_t *lens, sp_redis_cb *cb, void *arg, struct sp_err *err)
{
	struct unsent *unsent = calloc(1, sizeof(*unsent));

	if (!unsent)
		return sp_err_set(err, -ENOMEM, "send");
	unsent->cb = cb;
	unsent->arg = arg;
	sp_redis_command_name(argc, argv, lens, unsent->name);
	sp_list_append(&redis->unsent, &unsent->link);
	redis->unsent_count++;
	(void)uv_idle_start(&redis->kick, on_kick);
	return 0;
}

int sp_redis_call(struct sp_redis *redis, int argc, const char *const *argv, const size_t *lens,
		  int64_t timeout_ms, sp_redis_cb *cb, void *arg, struct sp_err *err)
{
	size_t pending = redis->unsent_count + (redis->io ? sp_redis_io_pending(redis->io) : 0);
	int status = sp_redis_command_check(argc, argv, lens, err);

	if (status < 0)
		return status;
	if (redis->state == SP_REDIS_WIRE_CLOSING)
		return sp_err_code(err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -ECANCELED,
				   "the connection is being closed");
	if (redis->channel_count > 0)
		return sp_err_set(err, -EINVAL, "a command on a connection that listens");
	if (pending >= SP_REDIS_PENDING_MAX)
		return sp_err_code(err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -EBUSY,
				   "%u commands are under way already", SP_REDIS_PENDING_MAX);
	if (!sp_redis_up(redis))
		return leave_unsent(redis, argc, argv, lens, cb, arg, err);
	if (timeout_ms <= 0)
		timeout_ms = redis->settings.command_timeout_ms;
	return sp_redis_io_send(redis->io, argc, argv, lens, timeout_ms, 1, cb, arg, err);
}

/* ---- subscription ---- */

static bool listed(char *const *channels, size_t count, const char *channel)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(channels[i], channel) == 0)
			return true;
	return false;
}

/* On a connection that has subscribed or could have. */
static int resubscribe(struct sp_redis *redis, char *const *old, size_t old_count,
		       struct sp_err *err)
{
	const char **gone = calloc(old_count + 1, sizeof(*gone));
	struct sp_err fault = {0};
	size_t gone_count = 0;
	int status;

	if (!gone)
		return sp_err_set(err, -ENOMEM, "subscribe");
	for (size_t i = 0; i < old_count; i++)
		if (!listed(redis->channels, redis->channel_count, old[i]))
			gone[gone_count++] = old[i];
	status = sp_redis_send_subscribe(redis, gone, gone_count, &fault);
	if (status == 0)
		redis->state = SP_REDIS_WIRE_GREETING;
	else if (gone_count > 0) /* it may have left those already */
		sp_redis_io_fail_later(redis->io, &fault);
	if (status < 0 && err)
		*err = fault;
	free(gone);
	return status;
}

static char **copy_channels(const char *const *channels, size_t count)
{
	char **copies = calloc(count, sizeof(*copies));

	for (size_t i = 0; copies && i < count; i++) {
		copies[i] = strdup(channels[i]);
		if (!copies[i]) {
			free_channels(copies, i);
			return NULL;
		}
	}
	return copies;
}

int sp_redis_subscribe(struct sp_redis *redis, const char *const *channels, size_t count,
		       struct sp_err *err)
{
	bool live = redis->io && sp_redis_io_is_open(redis->io) &&
		    (redis->state == SP_REDIS_WIRE_READY || redis->subscribing > 0);
	char **old = redis->channels;
	size_t old_count = redis->channel_count;
	int status = 0;
	char **copies;

	if (count == 0 || count > SP_REDIS_CHANNELS_MAX)
		return sp_err_set(err, -EINVAL, "subscribe to %zu channels (1 to %u)", count,
				  SP_REDIS_CHANNELS_MAX);
	copies = copy_channels(channels, count);
	if (!copies)
		return sp_err_set(err, -ENOMEM, "subscribe");
	redis->channels = copies;
	redis->channel_count = count;
	if (live)
		status = resubscribe(redis, old, old_count, err);
	if (status < 0) {
		redis->channels = old;
		redis->channel_count = old_count;
		old = copies;
		old_count = count;
	}
	free_channels(old, old_count);
	return status;
}
