/*
 * sandpool inspect: everything the daemon says about one sandbox.
 */
#include "supervisor/cli/ask.h"

static int run(struct sp_cli *cli)
{
	struct sp_cli_answer answer = {.root = NULL};
	struct sp_err err = {0};
	int exit_code;

	if (sp_cli_ask_about(cli, "GET", "/v1/sandboxes/", cli->args.words[0], "", NULL, &answer,
			     &err) < 0)
		exit_code = sp_cli_fail(cli, &err);
	else if (cli->json)
		exit_code = sp_cli_print_answer(cli, &answer);
	else
		exit_code = sp_cli_print_members(cli, answer.root);
	sp_cli_answer_done(&answer);
	return exit_code;
}

const struct sp_cli_verb sp_cli_verb_inspect = {
	.name = "inspect",
	.usage = "ID",
	.summary = "show everything about one sandbox",
	.details =
		"An id that does not exist and one that is not yours give the same NOT_FOUND.\n\n"
		"  sandpool inspect $ID\n"
		"  sandpool inspect --json $ID | jq .remaining_ms\n",
	.words_min = 1,
	.words_max = 1,
	.run = run,
};
