/*
 * sandpool renew: move the end of a lease.
 */
#include "supervisor/cli/ask.h"
#include "supervisor/cli/text.h"

enum { OPTION_TTL, OPTION_END };

static const struct sp_cli_option options[] = {
	[OPTION_TTL] = {"ttl", 0, false, "TIME", "new end: TIME from now (10m); required"},
	[OPTION_END] = {0},
};

static int run(struct sp_cli *cli)
{
	const char *ttl = sp_cli_args_value(&cli->args, &options[OPTION_TTL]);
	struct sp_cli_answer answer = {.root = NULL};
	struct sp_cli_json json;
	struct sp_err err = {0};
	struct sp_buf body;
	int exit_code;

	if (!ttl)
		return sp_cli_fail_usage(cli, "--ttl is missing");
	sp_buf_init(&body, SP_CLI_REQUEST_MAX);
	sp_cli_json_init(&json, &body);
	sp_cli_json_open(&json, '{');
	sp_cli_json_member(&json, "ttl", ttl);
	sp_cli_json_close(&json, '}');
	if (json.status < 0)
		exit_code = sp_cli_fail_usage(cli, "--ttl is not UTF-8");
	else if (sp_cli_ask_about(cli, "POST", "/v1/sandboxes/", cli->args.words[0], "/renew",
				  &body, &answer, &err) < 0)
		exit_code = sp_cli_fail(cli, &err);
	else if (cli->json)
		exit_code = sp_cli_print_answer(cli, &answer);
	else
		exit_code = sp_cli_print_members(cli, answer.root);
	sp_cli_answer_done(&answer);
	sp_buf_done(&body);
	return exit_code;
}

const struct sp_cli_verb sp_cli_verb_renew = {
	.name = "renew",
	.usage = "--ttl TIME ID",
	.summary = "move the end of a lease",
	.details =
		"The new end is TIME from now, at most the pool's max_lease; an end never moves\n"
		"backwards. Prints the sandbox with the end that now holds.\n\n"
		"  sandpool renew --ttl 10m $ID\n",
	.options = options,
	.words_min = 1,
	.words_max = 1,
	.run = run,
};
