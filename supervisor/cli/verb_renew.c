/*
 * sandpool renew: move the end of a lease.
 */
#include "supervisor/cli/redis.h"
#include "supervisor/cli/text.h"

enum { OPTION_TTL, OPTION_POOL, OPTION_END };

static const struct sp_cli_option options[] = {
	[OPTION_TTL] = {"ttl", 0, false, "TIME", "new end: TIME from now (10m); required"},
	[OPTION_POOL] = {"pool", 'p', false, "NAME", SP_CLI_POOL_HELP},
	[OPTION_END] = {0},
};

static int ask_daemon(struct sp_cli *cli, const char *ttl, struct sp_cli_answer *answer,
		      struct sp_err *err)
{
	struct sp_cli_json json;
	struct sp_buf body;
	int status;

	sp_buf_init(&body, SP_CLI_REQUEST_MAX);
	sp_cli_json_init(&json, &body);
	sp_cli_json_open(&json, '{');
	sp_cli_json_member(&json, "ttl", ttl);
	sp_cli_json_close(&json, '}');
	status = sp_cli_json_finish(&json, "--ttl", err);
	if (status == 0)
		status = sp_cli_ask_about(cli, "POST", "/v1/sandboxes/", cli->args.words[0],
					  "/renew", &body, answer, err);
	sp_buf_done(&body);
	return status;
}

static int run(struct sp_cli *cli)
{
	const char *ttl = sp_cli_args_value(&cli->args, &options[OPTION_TTL]);
	struct sp_cli_answer answer = {.root = NULL};
	struct sp_err err = {0};
	const char *pool;
	int exit_code;
	int status;

	if (!ttl)
		return sp_cli_fail_usage(cli, "--ttl is missing");
	status = sp_cli_pool_option(cli, &options[OPTION_POOL], &pool, &err);
	if (status == 0 && cli->over_redis)
		status = sp_cli_redis_renew(cli, pool, cli->args.words[0], ttl, &answer, &err);
	else if (status == 0)
		status = ask_daemon(cli, ttl, &answer, &err);
	if (status < 0)
		exit_code = sp_cli_fail(cli, &err);
	else if (cli->json)
		exit_code = sp_cli_print_answer(cli, &answer);
	else
		exit_code = sp_cli_print_members(cli, answer.root);
	sp_cli_answer_done(&answer);
	return exit_code;
}

const struct sp_cli_verb sp_cli_verb_renew = {
	.name = "renew",
	.usage = "--ttl TIME ID",
	.summary = "move the end of a lease",
	.details =
		"The new end is TIME from now, at most the pool's max_lease; an end never moves\n"
		"backwards. Prints the sandbox with the end that now holds.\n\n"
		"With --redis, ID is a lease, or a sandbox whose token is given. With the token "
		"the\n"
		"sandbox's host is asked; without it, Redis notes the wish: expires_at is what "
		"holds until\n"
		"the host has confirmed wanted_at.\n\n"
		"  sandpool renew --ttl 10m $ID\n",
	.options = options,
	.over_redis = SP_CLI_REDIS_SERVED,
	.words_min = 1,
	.words_max = 1,
	.run = run,
};
