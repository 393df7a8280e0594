/*
 * Leases that are held: where their sandbox is, renewal, release.
 *
 * Redis knows leases, not sandbox ids, so a word names either a lease or a sandbox whose token we
 * have: the token's digest is the lease. A renewal with the token goes to the host and is final;
 * one without is a wish that the host confirms within two of its ticks. A release is a command that
 * the host obeys as soon as it hears of it, reachable for us or not.
 */
#include "supervisor/cli/redis.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "pool/base/clock.h"
#include "supervisor/cli/text.h"
#include "supervisor/config/config.h"

#define NUMBER_SIZE 24
#define NEVER       "9007199254740991" /* the largest time that Redis takes */

static int lease_of(const struct sp_cli *cli, const char *word, char *ret_lease, struct sp_err *err)
{
	int status;

	if (sp_lease_id_valid(word)) {
		memcpy(ret_lease, word, SP_LEASE_ID_LEN + 1);
		return 0;
	}
	if (!sp_sandbox_id_valid(word))
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "'%.80s' is neither a lease nor a sandbox id", word);
	if (!cli->client.token[0])
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "Redis knows sandbox '%s' by its lease: name that, or give the "
				   "token (SANDPOOL_TOKEN, --token-file)",
				   word);
	status = cli->remote->lease_id(cli->client.token, ret_lease);
	return status < 0 ? sp_err_set(err, status, "derive a lease id") : 0;
}

static int refuse(const struct sp_cli_reply *reply, const char *pool, struct sp_err *err)
{
	char what[SP_POOL_NAME_MAX + 16];

	(void)snprintf(what, sizeof(what), "pool '%s'", pool);
	return sp_cli_redis_refusal(reply, what, err);
}

/* `wait` tells what became of a lease and queues nothing. With a deadline that never comes, so that
 * a ticket that is waiting is left alone. */
static int look_up(struct sp_cli *cli, const char *pool, const char *lease,
		   struct sp_cli_reply *reply, struct sp_err *err)
{
	const char *argv[] = {lease, NEVER};

	return sp_cli_redis_fcall(cli, pool, "wait", false, argv, SP_ARRAY_SIZE(argv),
				  sp_clock_boot_ms() + SP_CLI_REDIS_PATIENCE_MS, reply, err);
}

int sp_cli_redis_locate(struct sp_cli *cli, const char *pool, const char *word,
			struct sp_cli_lease *ret_lease, struct sp_err *err)
{
	struct sp_cli_lease found = {0};
	struct sp_cli_reply reply = {0};
	int status = lease_of(cli, word, found.id, err);

	if (status == 0)
		status = look_up(cli, pool, found.id, &reply, err);
	if (status < 0)
		return status;
	if (sp_cli_reply_is(&reply, "LEASE_ENDED"))
		status = refuse(&reply, pool, err);
	else if (!sp_cli_reply_is(&reply, "OK"))
		status = sp_err_code(err, SP_CODE_NOT_FOUND, -EREMOTEIO,
				     "pool '%s' knows no sandbox of '%s'", pool, word);
	else
		status = sp_cli_grant_read(&reply, &found.grant, err);
	sp_cli_reply_done(&reply);
	if (status == 0 && strcmp(word, found.id) != 0 && strcmp(word, found.grant.id) != 0)
		status = sp_err_code(err, SP_CODE_NOT_FOUND, -EREMOTEIO,
				     "the token that was given does not open sandbox '%s'", word);
	if (status == 0)
		status = sp_cli_grant_use(cli, &found.grant, "", err);
	if (status == 0)
		*ret_lease = found;
	return status;
}

static int renew_at_host(struct sp_cli *cli, const struct sp_cli_grant *grant, const char *ttl,
			 struct sp_cli_answer *answer, struct sp_err *err)
{
	struct sp_cli_json json;
	struct sp_buf body;
	int status;

	sp_buf_init(&body, SP_CLI_REQUEST_MAX);
	sp_cli_json_init(&json, &body);
	sp_cli_json_open(&json, '{');
	sp_cli_json_member(&json, "ttl", ttl);
	sp_cli_json_close(&json, '}');
	status = sp_cli_json_finish(&json, "the request", err);
	if (status == 0)
		status = sp_cli_ask_about(cli, "POST", "/v1/sandboxes/", grant->id, "/renew", &body,
					  answer, err);
	sp_buf_done(&body);
	return status;
}

/* {"lease", "wanted_at", "expires_at", "remaining_ms"}: what holds, and what was asked for. */
static int answer_renewal(const struct sp_cli_reply *reply, const char *lease,
			  struct sp_cli_answer *answer, struct sp_err *err)
{
	int64_t time_ms = sp_cli_reply_number(reply, 3);
	int64_t wanted_ms = sp_cli_reply_number(reply, 1) - time_ms;
	int64_t left_ms = sp_cli_reply_number(reply, 2) - time_ms;
	int64_t now_ms = sp_clock_wall_ms();

	answer->root = json_object();
	sp_cli_answer_set_text(answer, "lease", lease);
	sp_cli_answer_set_time(answer, "wanted_at", now_ms + wanted_ms);
	sp_cli_answer_set_time(answer, "expires_at", now_ms + left_ms);
	(void)json_object_set_new(answer->root, "remaining_ms", json_integer(left_ms));
	return sp_cli_answer_finish(answer, err);
}

static int renew_in_redis(struct sp_cli *cli, const char *pool, const char *lease, const char *ttl,
			  struct sp_cli_answer *answer, struct sp_err *err)
{
	struct sp_cli_reply reply = {0};
	char number[NUMBER_SIZE];
	const char *argv[] = {lease, number};
	int64_t ttl_ms = 0;
	int status = sp_parse_duration(ttl, &ttl_ms, err);

	if (status < 0)
		return sp_err_wrap(err, status, "--ttl '%.64s'", ttl);
	if (ttl_ms == 0)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "--ttl must be more than 0");
	(void)snprintf(number, sizeof(number), "%lld", (long long)ttl_ms);
	status = sp_cli_redis_fcall(cli, pool, "renew", false, argv, SP_ARRAY_SIZE(argv),
				    sp_clock_boot_ms() + SP_CLI_REDIS_PATIENCE_MS, &reply, err);
	if (status < 0)
		return status;
	status = sp_cli_reply_is(&reply, "OK") ? answer_renewal(&reply, lease, answer, err)
					       : refuse(&reply, pool, err);
	sp_cli_reply_done(&reply);
	return status;
}

int sp_cli_redis_renew(struct sp_cli *cli, const char *pool, const char *word, const char *ttl,
		       struct sp_cli_answer *ret_answer, struct sp_err *err)
{
	struct sp_cli_lease lease;
	int status;

	*ret_answer = (struct sp_cli_answer){.root = NULL};
	if (!cli->client.token[0]) {
		status = lease_of(cli, word, lease.id, err);
		return status < 0 ? status
				  : renew_in_redis(cli, pool, lease.id, ttl, ret_answer, err);
	}
	status = sp_cli_redis_locate(cli, pool, word, &lease, err);
	return status < 0 ? status : renew_at_host(cli, &lease.grant, ttl, ret_answer, err);
}

int sp_cli_redis_release(struct sp_cli *cli, const char *pool, const char *word, struct sp_err *err)
{
	struct sp_cli_reply reply = {0};
	struct sp_cli_lease lease;
	const char *argv[] = {lease.id};
	int status;

	/* A sandbox id is looked up, so that a token of another one releases nothing. */
	if (sp_lease_id_valid(word))
		status = lease_of(cli, word, lease.id, err);
	else
		status = sp_cli_redis_locate(cli, pool, word, &lease, err);
	if (status == 0)
		status = sp_cli_redis_fcall(cli, pool, "release", false, argv, 1,
					    sp_clock_boot_ms() + SP_CLI_REDIS_PATIENCE_MS, &reply,
					    err);
	if (status < 0)
		return status;
	if (!sp_cli_reply_is(&reply, "OK"))
		status = refuse(&reply, pool, err);
	sp_cli_reply_done(&reply);
	return status;
}
