/*
 * sandpool reload: have the daemon read its configuration again.
 */
#include "supervisor/cli/ask.h"

static int run(struct sp_cli *cli)
{
	struct sp_cli_answer answer = {.root = NULL};
	struct sp_err err = {0};
	int exit_code = 0;

	if (sp_cli_ask(cli, "POST", "/v1/reload", NULL, SP_CLI_CALL_TIMEOUT_MS, &answer, &err) < 0)
		exit_code = sp_cli_fail(cli, &err);
	sp_cli_answer_done(&answer);
	return exit_code;
}

const struct sp_cli_verb sp_cli_verb_reload = {
	.name = "reload",
	.usage = "",
	.summary = "have the daemon read its configuration again",
	.details = "All or nothing: if the file has a fault, nothing changes and the faults are "
		   "printed\n"
		   "(CONFIG_INVALID). Sizes and timers apply at once, idle sandboxes of a changed "
		   "kind\n"
		   "are replaced, leased ones live on.\n\n"
		   "  sandpool config check && sandpool reload\n",
	.words_max = 0,
	.run = run,
};
