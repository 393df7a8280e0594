/*
 * All Sentinels are asked at once, each over a connection of its own that ends with its answer. The
 * address that more than half of those configured name is taken as soon as it is known; else, when
 * all have answered or failed or the time is over, the one that most name. A Sentinel may be down,
 * behind, cut off or lying: the master it names is asked for its ROLE before it is used (wire.c),
 * and where votes are equal the turn decides, so that the next try goes elsewhere.
 */
#include "redis/sentinel.h"

#include "pool/base/log.h"
#include "redis/wire_io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct ask {
	struct sp_redis_sentinel *query;
	struct sp_redis_io *io; /* NULL: none yet, or it has ended */
	const struct sp_redis_address *server;
	bool done;
	bool voted;
	struct sp_redis_address vote;
};

struct sp_redis_sentinel {
	uv_loop_t *loop;
	const struct sp_redis_sentinel_events *events;
	void *arg;
	struct sp_redis_sentinel_options options;
	char *password;
	uv_timer_t timer;
	unsigned int holds;
	bool told; /* found() has been called, or must not be */
	bool closing;
	struct sp_err fault; /* of the last Sentinel that failed */
	size_t count;
	struct ask asks[SP_REDIS_SENTINELS_MAX];
};

static void unhold(struct sp_redis_sentinel *query)
{
	if (--query->holds > 0)
		return;
	query->events->closed(query->arg);
	if (query->password)
		explicit_bzero(query->password, strlen(query->password));
	free(query->password);
	free(query);
}

static void on_timer_closed(uv_handle_t *handle)
{
	unhold(handle->data);
}

static void end_ask(struct ask *ask)
{
	const struct sp_err over = {.status = -ECANCELED, .message = "not needed any more"};

	ask->done = true;
	if (ask->io)
		sp_redis_io_close(ask->io, &over);
	ask->io = NULL;
}

void sp_redis_sentinel_close(struct sp_redis_sentinel *query)
{
	if (query->closing)
		return;
	query->closing = true;
	query->told = true;
	for (size_t i = 0; i < query->count; i++)
		end_ask(&query->asks[i]);
	uv_close((uv_handle_t *)&query->timer, on_timer_closed);
}

/* ---- counting ---- */

static size_t votes_for(const struct sp_redis_sentinel *query, const struct sp_redis_address *vote)
{
	size_t votes = 0;

	for (size_t i = 0; i < query->count; i++)
		if (query->asks[i].voted && sp_redis_address_equal(&query->asks[i].vote, vote))
			votes++;
	return votes;
}

/* The address that most name; of equals the first from the turn on. */
static const struct sp_redis_address *leading(const struct sp_redis_sentinel *query,
					      size_t *ret_votes)
{
	const struct sp_redis_address *best = NULL;

	*ret_votes = 0;
	for (size_t i = 0; i < query->count; i++) {
		const struct ask *ask = &query->asks[(i + query->options.turn) % query->count];
		size_t votes = ask->voted ? votes_for(query, &ask->vote) : 0;

		if (votes > *ret_votes) {
			*ret_votes = votes;
			best = &ask->vote;
		}
	}
	return best;
}

static void decide(struct sp_redis_sentinel *query, bool late)
{
	const struct sp_redis_address *best;
	struct sp_err err = {0};
	bool all = true;
	size_t votes;

	if (query->told)
		return;
	best = leading(query, &votes);
	for (size_t i = 0; i < query->count; i++)
		all = all && query->asks[i].done;
	if (votes <= query->count / 2 && !all && !late)
		return;
	query->told = true;
	if (!best)
		(void)sp_err_code(&err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -EHOSTUNREACH,
				  "no Sentinel names a master '%s'; the last one: %s",
				  query->options.url->master,
				  query->fault.status < 0 ? query->fault.message : "no answer");
	query->events->found(query->arg, best, best ? NULL : &err);
}

static void on_late(uv_timer_t *timer)
{
	decide(timer->data, true);
}

/* ---- one Sentinel ---- */

static void ask_failed(struct ask *ask, const struct sp_err *why)
{
	struct sp_redis_sentinel *query = ask->query;

	if (ask->done)
		return;
	query->fault = *why;
	end_ask(ask);
	decide(query, false);
}

static bool read_address(const redisReply *reply, struct sp_redis_address *ret)
{
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
	    !sp_redis_is_text(reply->element[0]) || !sp_redis_is_text(reply->element[1]))
		return false;
	return sp_redis_address_set(reply->element[0]->str, reply->element[0]->len,
				    reply->element[1]->str, reply->element[1]->len, ret) == 0;
}

static void on_address(void *arg, enum sp_redis_outcome outcome, const redisReply *reply,
		       const struct sp_err *err)
{
	struct ask *ask = arg;
	struct sp_err fault = {0};
	char address[SP_REDIS_ADDRESS_TEXT_MAX];

	if (outcome != SP_REDIS_REPLIED || ask->done)
		return; /* failed() comes, or nobody cares */
	sp_redis_address_text(ask->server, address, sizeof(address));
	if (err) {
		(void)sp_err_code(&fault, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, err->status,
				  "Sentinel '%s': %s", address, err->message);
		ask_failed(ask, &fault);
		return;
	}
	if (!read_address(reply, &ask->vote)) {
		(void)sp_err_code(&fault, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -ENOENT,
				  "Sentinel '%s': %s", address,
				  reply->type == REDIS_REPLY_NIL ? "does not know the master"
								 : "names no address");
		ask_failed(ask, &fault);
		return;
	}
	ask->voted = true;
	end_ask(ask);
	decide(ask->query, false);
}

/* An error shows in the answer to what follows it. */
static void on_auth(void *arg, enum sp_redis_outcome outcome, const redisReply *reply,
		    const struct sp_err *err)
{
	SP_UNUSED(arg);
	SP_UNUSED(outcome);
	SP_UNUSED(reply);
	SP_UNUSED(err);
}

static void on_opened(void *arg)
{
	struct ask *ask = arg;
	const struct sp_redis_sentinel *query = ask->query;
	const char *const auth[] = {"AUTH", query->password};
	const char *const where[] = {"SENTINEL", "get-master-addr-by-name",
				     query->options.url->master};
	int64_t timeout_ms = query->options.timeout_ms;
	struct sp_err err = {0};
	int status = 0;

	if (query->password)
		status =
			sp_redis_io_send(ask->io, 2, auth, NULL, timeout_ms, 1, on_auth, ask, &err);
	if (status == 0)
		status = sp_redis_io_send(ask->io, 3, where, NULL, timeout_ms, 1, on_address, ask,
					  &err);
	if (status < 0)
		ask_failed(ask, &err);
}

static void on_failed(void *arg, const struct sp_err *why)
{
	struct ask *ask = arg;

	ask->io = NULL;
	ask_failed(ask, why);
}

static void on_pushed(void *arg, const redisReply *reply)
{
	SP_UNUSED(arg);
	SP_UNUSED(reply);
}

static void on_closed(void *arg)
{
	const struct ask *ask = arg;

	unhold(ask->query);
}

static const struct sp_redis_io_events ask_events = {
	.opened = on_opened,
	.pushed = on_pushed,
	.failed = on_failed,
	.closed = on_closed,
};

static int start_ask(struct sp_redis_sentinel *query, size_t i, struct sp_err *fault)
{
	struct ask *ask = &query->asks[i];
	const struct sp_redis_io_options options = {
		.address = &query->options.url->servers[i],
		.credentials = query->options.credentials,
		.server_name = query->options.server_name,
		.connect_timeout_ms = query->options.timeout_ms,
		.keepalive_ms = query->options.timeout_ms,
	};
	int status;

	ask->query = query;
	ask->server = options.address;
	status = sp_redis_io_open(query->loop, &options, &ask_events, ask, &ask->io, fault);
	if (status == 0) {
		query->holds++;
		query->count++;
	}
	return status;
}

int sp_redis_sentinel_ask(uv_loop_t *loop, const struct sp_redis_sentinel_options *options,
			  const struct sp_redis_sentinel_events *events, void *arg,
			  struct sp_redis_sentinel **ret, struct sp_err *err)
{
	struct sp_redis_sentinel *query = calloc(1, sizeof(*query));
	int status = 0;

	if (!query)
		return sp_err_set(err, -ENOMEM, "ask the Sentinels");
	query->loop = loop;
	query->events = events;
	query->arg = arg;
	query->options = *options;
	query->options.password = NULL;
	if (options->password) {
		query->password = strdup(options->password);
		if (!query->password) {
			free(query);
			return sp_err_set(err, -ENOMEM, "ask the Sentinels");
		}
	}
	(void)uv_timer_init(loop, &query->timer);
	query->timer.data = query;
	query->holds = 1;
	(void)uv_timer_start(&query->timer, on_late, (uint64_t)options->timeout_ms, 0);
	/* One that cannot be asked now counts as one that is not there. */
	for (size_t i = 0; i < options->url->count && status == 0; i++)
		status = start_ask(query, i, &query->fault);
	if (query->count == 0)
		(void)uv_timer_start(&query->timer, on_late, 0, 0);
	*ret = query;
	return 0;
}
