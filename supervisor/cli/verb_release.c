/*
 * sandpool release: give sandboxes back, which kills them.
 */
#include "supervisor/cli/redis.h"

enum { OPTION_POOL, OPTION_END };

static const struct sp_cli_option options[] = {
	[OPTION_POOL] = {"pool", 'p', false, "NAME", SP_CLI_POOL_HELP},
	[OPTION_END] = {0},
};

static int release(struct sp_cli *cli, const char *pool, const char *id, struct sp_err *err)
{
	struct sp_cli_answer answer = {.root = NULL};
	int status;

	if (cli->over_redis)
		return sp_cli_redis_release(cli, pool, id, err);
	status = sp_cli_ask_about(cli, "DELETE", "/v1/sandboxes/", id, "", NULL, &answer, err);
	sp_cli_answer_done(&answer);
	return status;
}

static int run(struct sp_cli *cli)
{
	struct sp_err option_err = {0};
	const char *pool;
	int exit_code = 0;

	if (sp_cli_pool_option(cli, &options[OPTION_POOL], &pool, &option_err) < 0)
		return sp_cli_fail(cli, &option_err);
	/* One that is gone already must not keep the others alive. */
	for (size_t i = 0; i < cli->args.word_count; i++) {
		struct sp_err err = {0};

		if (release(cli, pool, cli->args.words[i], &err) < 0)
			exit_code = sp_cli_fail(cli, &err);
	}
	return exit_code;
}

const struct sp_cli_verb sp_cli_verb_release = {
	.name = "release",
	.usage = "[OPTIONS] ID…",
	.summary = "give sandboxes back, which kills them",
	.details =
		"Everything that runs in them is killed; they are never used again. Returns when "
		"the\n"
		"daemon has taken the order, not when the kernel has finished. All of the ids are\n"
		"tried; the status is 125 if one of them failed.\n\n"
		"With --redis, ID is a lease, or a sandbox whose token is given; its host obeys "
		"as soon as\n"
		"it hears of it.\n\n"
		"  sandpool release $ID\n"
		"  sandpool ls -q | xargs -r sandpool release\n",
	.options = options,
	.over_redis = SP_CLI_REDIS_SERVED,
	.words_min = 1,
	.words_max = SIZE_MAX,
	.run = run,
};
