/*
 * sandpool release: give sandboxes back, which kills them.
 */
#include "supervisor/cli/ask.h"

static int run(struct sp_cli *cli)
{
	int exit_code = 0;

	/* One that is gone already must not keep the others alive. */
	for (size_t i = 0; i < cli->args.word_count; i++) {
		struct sp_cli_answer answer = {.root = NULL};
		struct sp_err err = {0};

		if (sp_cli_ask_about(cli, "DELETE", "/v1/sandboxes/", cli->args.words[i], "", NULL,
				     &answer, &err) < 0)
			exit_code = sp_cli_fail(cli, &err);
		sp_cli_answer_done(&answer);
	}
	return exit_code;
}

const struct sp_cli_verb sp_cli_verb_release = {
	.name = "release",
	.usage = "ID…",
	.summary = "give sandboxes back, which kills them",
	.details =
		"Everything that runs in them is killed; they are never used again. Returns when "
		"the\n"
		"daemon has taken the order, not when the kernel has finished. All of the ids are\n"
		"tried; the status is 125 if one of them failed.\n\n"
		"  sandpool release $ID\n"
		"  sandpool ls -q | xargs -r sandpool release\n",
	.words_min = 1,
	.words_max = SIZE_MAX,
	.run = run,
};
