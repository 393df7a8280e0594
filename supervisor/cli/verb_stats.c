/*
 * sandpool stats: the pools in numbers.
 */
#include "supervisor/cli/pools.h"

static int run(struct sp_cli *cli)
{
	struct sp_cli_answer answer = {.root = NULL};
	struct sp_err err = {0};
	int exit_code;

	if (sp_cli_pools_ask(cli, SP_CLI_CALL_TIMEOUT_MS, &answer, &err) < 0) {
		exit_code = sp_cli_fail(cli, &err);
	} else if (cli->json) {
		exit_code = sp_cli_print_answer(cli, &answer);
	} else {
		struct sp_buf out;

		sp_buf_init(&out, SP_CLI_REQUEST_MAX);
		sp_cli_pools_write(cli, json_object_get(answer.root, "pools"), &out);
		exit_code = sp_cli_print_buf(cli, &out);
		sp_buf_done(&out);
	}
	sp_cli_answer_done(&answer);
	return exit_code;
}

const struct sp_cli_verb sp_cli_verb_stats = {
	.name = "stats",
	.usage = "",
	.summary = "show the pools in numbers",
	.details =
		"WANTED is max_idle, the number of sandboxes that are kept warm. With --json each "
		"pool\n"
		"has idle, leased, creating, killing and all that 'sandpool pool show' prints.\n\n"
		"  sandpool stats\n"
		"  sandpool stats --json | jq '.pools[] | {name, idle, leased}'\n",
	.over_redis = SP_CLI_REDIS_SERVED,
	.words_max = 0,
	.run = run,
};
