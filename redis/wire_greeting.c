/*
 * The greeting, sent in one go when a connection has opened:
 *
 *	AUTH [user] password    if there is a user or a password
 *	CLIENT SETNAME name     a refusal does not matter
 *	SELECT db               unless it is 0
 *	PING                    shows LOADING and NOAUTH
 *	ROLE                    a replica is no place to write; the right to ask may be missing
 *	SUBSCRIBE channel…      for a connection that listens
 *
 * Each answer is looked at in its turn; the first that is bad ends the try. Of what the server says
 * to AUTH only known words are passed on: Redis's "unknown command" quotes its arguments.
 */
#include "redis/wire_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void fail(struct sp_redis *redis, int status, const char *what)
{
	char address[SP_REDIS_ADDRESS_TEXT_MAX];
	struct sp_err err = {0};

	(void)sp_err_code(&err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, status, "redis at '%s': %s",
			  sp_redis_address_text(&redis->to, address, sizeof(address)), what);
	sp_redis_try_failed(redis, &err);
}

/* Of a reply to an older connection, or one that is lost, nothing is to be learned. */
static bool counts(const struct sp_redis *redis, enum sp_redis_outcome outcome)
{
	return outcome == SP_REDIS_REPLIED && redis->state == SP_REDIS_WIRE_GREETING;
}

static void on_auth(void *arg, enum sp_redis_outcome outcome, const redisReply *reply,
		    const struct sp_err *err)
{
	struct sp_redis *redis = arg;
	enum sp_redis_error error = sp_redis_error_of(reply);

	SP_UNUSED(err);
	if (!counts(redis, outcome) || sp_redis_is_word(reply, "OK"))
		return;
	if (error == SP_REDIS_ERROR_WRONGPASS)
		fail(redis, -EACCES, "AUTH: wrong user or password (WRONGPASS)");
	else if (error == SP_REDIS_ERROR_DENIED)
		fail(redis, -EACCES, "refuses clients from elsewhere (DENIED, protected mode)");
	else if (reply->type == REDIS_REPLY_ERROR &&
		 strncmp(reply->str, "ERR AUTH <password> called without", 34) == 0)
		fail(redis, -EACCES, "AUTH: the server has no password set for this user");
	else if (reply->type == REDIS_REPLY_ERROR &&
		 strncmp(reply->str, "ERR max number of clients", 25) == 0)
		fail(redis, -EAGAIN, "max number of clients reached");
	else
		fail(redis, -EACCES, "AUTH was not accepted");
}

static void on_name(void *arg, enum sp_redis_outcome outcome, const redisReply *reply,
		    const struct sp_err *err)
{
	SP_UNUSED(arg);
	SP_UNUSED(outcome);
	SP_UNUSED(reply);
	SP_UNUSED(err);
}

static void on_selected(void *arg, enum sp_redis_outcome outcome, const redisReply *reply,
			const struct sp_err *err)
{
	struct sp_redis *redis = arg;

	if (counts(redis, outcome) && !sp_redis_is_word(reply, "OK"))
		fail(redis, -EINVAL, err ? err->message : "SELECT was not accepted");
}

static void on_ping(void *arg, enum sp_redis_outcome outcome, const redisReply *reply,
		    const struct sp_err *err)
{
	struct sp_redis *redis = arg;
	enum sp_redis_error error = sp_redis_error_of(reply);

	if (!counts(redis, outcome))
		return;
	if (error == SP_REDIS_ERROR_NOAUTH)
		fail(redis, -EACCES, "wants a password (NOAUTH)");
	else if (error == SP_REDIS_ERROR_LOADING || error == SP_REDIS_ERROR_DENIED ||
		 error == SP_REDIS_ERROR_OTHER)
		fail(redis, err->status, err->message);
	else if (error == SP_REDIS_ERROR_NONE && !sp_redis_is_word(reply, "PONG"))
		fail(redis, -EPROTO, "the answer to PING is no PONG: is this Redis?");
}

static void on_role(void *arg, enum sp_redis_outcome outcome, const redisReply *reply,
		    const struct sp_err *err)
{
	struct sp_redis *redis = arg;
	const char *role = sp_redis_status(reply);
	struct sp_err subscribe_err = {0};

	if (!counts(redis, outcome))
		return;
	if (!err && !role) {
		fail(redis, -EPROTO, "the answer to ROLE names no role");
	} else if (role && strcmp(role, "sentinel") == 0) {
		fail(redis, -EINVAL,
		     "is a Sentinel: the URL must begin with redis+sentinel and name the master");
	} else if (role && strcmp(role, "master") != 0 && !redis->settings.allow_replica) {
		fail(redis, -EROFS, "is a replica");
	} else if (redis->channel_count == 0) {
		sp_redis_ready(redis);
	} else if (sp_redis_send_subscribe(redis, NULL, 0, &subscribe_err) < 0) {
		sp_redis_try_failed(redis, &subscribe_err);
	}
}

static int request(struct sp_redis *redis, int argc, const char *const *argv, sp_redis_cb *cb,
		   struct sp_err *err)
{
	return sp_redis_io_send(redis->io, argc, argv, NULL, redis->settings.command_timeout_ms, 1,
				cb, redis, err);
}

static int send_auth(struct sp_redis *redis, struct sp_err *err)
{
	const char *password = redis->secrets.password ? redis->secrets.password : "";
	const char *user = redis->settings.user;
	const char *const with_user[] = {"AUTH", user, password};
	const char *const without[] = {"AUTH", password};

	if (user)
		return request(redis, 3, with_user, on_auth, err);
	return redis->secrets.password ? request(redis, 2, without, on_auth, err) : 0;
}

static int send_name(struct sp_redis *redis, struct sp_err *err)
{
	const char *const argv[] = {"CLIENT", "SETNAME", redis->settings.client_name};

	return redis->settings.client_name ? request(redis, 3, argv, on_name, err) : 0;
}

static int send_select(struct sp_redis *redis, struct sp_err *err)
{
	char db[16];
	const char *const argv[] = {"SELECT", db};

	(void)snprintf(db, sizeof(db), "%u", redis->settings.url.db);
	return redis->settings.url.db > 0 ? request(redis, 2, argv, on_selected, err) : 0;
}

void sp_redis_greet(struct sp_redis *redis)
{
	const char *const ping[] = {"PING"};
	const char *const role[] = {"ROLE"};
	struct sp_err err = {0};
	int status = send_auth(redis, &err);

	if (status == 0)
		status = send_name(redis, &err);
	if (status == 0)
		status = send_select(redis, &err);
	if (status == 0)
		status = request(redis, 1, ping, on_ping, &err);
	if (status == 0)
		status = request(redis, 1, role, on_role, &err);
	sp_redis_secrets_done(&redis->secrets);
	if (status < 0)
		sp_redis_try_failed(redis, &err);
}

/* ---- subscription ---- */

static void on_subscribed(void *arg, enum sp_redis_outcome outcome, const redisReply *reply,
			  const struct sp_err *err)
{
	struct sp_redis *redis = arg;

	if (!counts(redis, outcome))
		return;
	if (err)
		fail(redis, err->status, err->message);
	else if (!sp_redis_status(reply) || strcmp(sp_redis_status(reply), "subscribe") != 0)
		fail(redis, -EPROTO, "the answer to SUBSCRIBE is none");
	else if (--redis->subscribing == 0)
		sp_redis_ready(redis);
}

static void on_unsubscribed(void *arg, enum sp_redis_outcome outcome, const redisReply *reply,
			    const struct sp_err *err)
{
	struct sp_redis *redis = arg;

	SP_UNUSED(reply);
	if (counts(redis, outcome) && err)
		fail(redis, err->status, err->message);
}

static int send_list(struct sp_redis *redis, const char *command, const char *const *channels,
		     size_t count, sp_redis_cb *cb, struct sp_err *err)
{
	const char **argv = calloc(count + 1, sizeof(*argv));
	int status;

	if (!argv)
		return sp_err_set(err, -ENOMEM, "subscribe");
	argv[0] = command;
	for (size_t i = 0; i < count; i++)
		argv[i + 1] = channels[i];
	status = sp_redis_io_send(redis->io, (int)count + 1, argv, NULL,
				  redis->settings.command_timeout_ms, count, cb, redis, err);
	free(argv);
	return status;
}

int sp_redis_send_subscribe(struct sp_redis *redis, const char *const *gone, size_t gone_count,
			    struct sp_err *err)
{
	const char *const *channels = (const char *const *)redis->channels;
	int status = 0;

	if (gone_count > 0)
		status = send_list(redis, "UNSUBSCRIBE", gone, gone_count, on_unsubscribed, err);
	if (status == 0)
		status = send_list(redis, "SUBSCRIBE", channels, redis->channel_count,
				   on_subscribed, err);
	if (status < 0)
		return status;
	sp_redis_io_set_pushed(redis->io);
	redis->subscribing++;
	return 0;
}
