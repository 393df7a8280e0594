/*
 * One connection, opened with the first call and kept for the run of the program; calls in a loop
 * until one is answered or the deadline is reached.
 *
 * Nothing that comes back is trusted: counts are looked at before elements, texts are only ever
 * printed or compared. No secret is in an argument of a call: leases are known to Redis by their
 * digest, and the password of the connection comes from a file.
 */
#include "supervisor/cli/redis.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pool/base/clock.h"

#define FUNCTION_PREFIX "sandpool_v1_"
#define TRY_MS          1500 /* of one try: a little more than the connection's own deadline */
#define PAUSE_MS        50   /* between tries that fail at once */
#define KEY_MAX         512u

/* ---- replies ---- */

void sp_cli_reply_done(struct sp_cli_reply *reply)
{
	for (size_t i = 0; i < reply->count; i++)
		free(reply->texts[i]);
	free(reply->texts);
	*reply = (struct sp_cli_reply){0};
}

const char *sp_cli_reply_text(const struct sp_cli_reply *reply, size_t index)
{
	return index < reply->count && reply->texts[index] ? reply->texts[index] : "";
}

int64_t sp_cli_reply_number(const struct sp_cli_reply *reply, size_t index)
{
	const char *text = sp_cli_reply_text(reply, index);
	char *end;
	long long number;

	errno = 0;
	number = strtoll(text, &end, 10);
	return errno == 0 && end != text && *end == '\0' ? number : 0;
}

bool sp_cli_reply_is(const struct sp_cli_reply *reply, const char *status)
{
	return strcmp(sp_cli_reply_text(reply, 0), status) == 0;
}

static const struct {
	const char *word;
	enum sp_code code;
	const char *says; /* behind "pool 'x'" */
} refusals[] = {
	{"EMPTY", SP_CODE_POOL_EMPTY, "has no idle sandbox on any host"},
	{"SATURATED", SP_CODE_POOL_SATURATED, "has as many waiters as it may have"},
	{"DESTROYED", SP_CODE_POOL_DESTROYED, "was destroyed"},
	{"NOT_RUNNING", SP_CODE_POOL_NOT_RUNNING, "is draining, or was never started"},
	{"TIMEOUT", SP_CODE_ACQUIRE_TIMEOUT, "had nothing before the deadline"},
	{"LEASE_ENDED", SP_CODE_LEASE_ENDED, "has seen this lease end"},
	{"LEASE_MISMATCH", SP_CODE_LEASE_MISMATCH, "knows this lease with other parameters"},
	{"NOT_FOUND", SP_CODE_NOT_FOUND, "has no such lease or host"},
	{"STALE", SP_CODE_CONFLICT, "was changed by somebody else meanwhile"},
};

int sp_cli_redis_refusal(const struct sp_cli_reply *reply, const char *what, struct sp_err *err)
{
	const char *word = sp_cli_reply_text(reply, 0);
	const char *detail = sp_cli_reply_text(reply, 1);

	for (size_t i = 0; i < SP_ARRAY_SIZE(refusals); i++)
		if (strcmp(word, refusals[i].word) == 0)
			return sp_err_code(err, refusals[i].code, -EREMOTEIO,
					   detail[0] ? "%s %s (%.64s)" : "%s %s", what,
					   refusals[i].says, detail);
	return sp_err_code(err, SP_CODE_PROTOCOL, -EPROTO,
			   "Redis answered about %s with '%.64s', which this version does not know",
			   what, word);
}

/* ---- names ---- */

int sp_cli_redis_prefix_check(const char *prefix, struct sp_err *err)
{
	size_t len = strlen(prefix);

	if (len == 0 || len > SP_CLI_REDIS_PREFIX_MAX)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "prefix '%.80s' has not 1 to %u characters", prefix,
				   SP_CLI_REDIS_PREFIX_MAX);
	/* A brace would move the hash tag, the others mean something in a pattern. */
	for (size_t i = 0; i < len; i++)
		if (prefix[i] <= ' ' || prefix[i] > '~' || strchr("{}*?[]\\^", prefix[i]))
			return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
					   "prefix '%.80s' has a character that no prefix has",
					   prefix);
	return 0;
}

int sp_cli_pool_option(const struct sp_cli *cli, const struct sp_cli_option *option,
		       const char **ret_pool, struct sp_err *err)
{
	const char *name = sp_cli_args_value(&cli->args, option);

	if (name && !cli->over_redis)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "--%s belongs to --redis: a daemon knows the pool of a sandbox",
				   option->name);
	*ret_pool = name ? name : SP_CLI_POOL_DEFAULT;
	return 0;
}

int sp_cli_redis_key(const struct sp_cli *cli, const char *pool, const char *suffix,
		     struct sp_buf *out, struct sp_err *err)
{
	int status;

	if (!sp_pool_name_valid(pool))
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "pool name '%.80s' has characters that no pool's name has",
				   pool);
	status = sp_buf_printf(out, "%s:{%s}:%s", cli->redis.prefix, pool, suffix);
	return status < 0 ? sp_err_set(err, status, "write a key") : 0;
}

/* ---- calls ---- */

static int open_link(struct sp_cli *cli, struct sp_err *err)
{
	if (cli->redis_link)
		return 0;
	return cli->remote->redis_open(&cli->redis, &cli->redis_link, err);
}

void sp_cli_redis_close(struct sp_cli *cli)
{
	if (cli->redis_link)
		cli->remote->redis_close(cli->redis_link);
	cli->redis_link = NULL;
}

int sp_cli_redis_command(struct sp_cli *cli, const char *const *argv, size_t argc,
			 int64_t timeout_ms, struct sp_cli_reply *ret_reply, struct sp_err *err)
{
	int status = open_link(cli, err);

	return status < 0 ? status
			  : cli->remote->redis_command(cli->redis_link, (int)argc, argv, timeout_ms,
						       ret_reply, err);
}

static void pause_ms(int64_t ms)
{
	struct timespec span = {.tv_nsec = ms * SP_NS_PER_MS};

	(void)nanosleep(&span, NULL);
}

/* The connection failed, or the server said that it cannot serve just now (a failover, a restart):
 * as opposed to what will not change by asking again. */
static bool passes(int status, const struct sp_err *err)
{
	return status == -ENOTCONN || status == -ETIMEDOUT ||
	       (status == -EREMOTEIO && err->code == SP_CODE_POOL_STATE_STORE_UNAVAILABLE);
}

static int ask_until(struct sp_cli *cli, const char *function, bool read_only, const char *key,
		     const char *const *argv, size_t argc, int64_t deadline_ms,
		     struct sp_cli_reply *ret_reply, struct sp_err *err)
{
	int status;

	for (;;) {
		int64_t before_ms = sp_clock_boot_ms();
		int64_t left_ms = SP_MAX(deadline_ms - before_ms, INT64_C(1));

		status = cli->remote->redis_fcall(cli->redis_link, function, read_only, key,
						  (int)argc, argv, SP_MIN(left_ms, TRY_MS),
						  ret_reply, err);
		if (status == 0 || !passes(status, err) ||
		    sp_clock_boot_ms() + PAUSE_MS >= deadline_ms)
			return status;
		if (sp_clock_boot_ms() - before_ms < PAUSE_MS)
			pause_ms(PAUSE_MS);
	}
}

int sp_cli_redis_fcall(struct sp_cli *cli, const char *pool, const char *name, bool read_only,
		       const char *const *argv, size_t argc, int64_t deadline_ms,
		       struct sp_cli_reply *ret_reply, struct sp_err *err)
{
	struct sp_err call_err = {0};
	struct sp_buf function;
	struct sp_buf key;
	int status;

	sp_buf_init(&function, KEY_MAX);
	sp_buf_init(&key, KEY_MAX);
	status = sp_cli_redis_key(cli, pool, "meta", &key, &call_err);
	if (status == 0)
		status = sp_buf_printf(&function, FUNCTION_PREFIX "%s", name);
	if (status == 0)
		status = open_link(cli, &call_err);
	if (status == 0)
		status = ask_until(cli, sp_buf_text(&function), read_only, sp_buf_text(&key), argv,
				   argc, deadline_ms, ret_reply, &call_err);
	if (status == 0 && ret_reply->count == 0) {
		sp_cli_reply_done(ret_reply);
		status = sp_err_code(&call_err, SP_CODE_PROTOCOL, -EPROTO,
				     "Redis answered '%s' with nothing", name);
	}
	if (status < 0 && err)
		*err = call_err;
	sp_buf_done(&function);
	sp_buf_done(&key);
	return status;
}
