/*
 * sandpool help: of the program, of a verb; and the names that shell completion asks for.
 */
#include <string.h>

#include "supervisor/cli/cli.h"

enum { OPTION_COMPLETE, OPTION_END };

static const struct sp_cli_option options[] = {
	[OPTION_COMPLETE] = {"complete", 0, false, NULL,
			     "for shell completion: bare names of verbs, or of a verb's options"},
	[OPTION_END] = {0},
};

static void put_names(struct sp_buf *out, const struct sp_cli_option *from)
{
	for (; from && from->name; from++)
		sp_cli_put(out, "--%s%s\t%s\n", from->name, from->argument ? "=" : "", from->help);
}

static int print_completion(const struct sp_cli *cli, const struct sp_cli_verb *verb)
{
	struct sp_buf out;
	int exit_code;

	sp_buf_init(&out, SP_CLI_REQUEST_MAX);
	if (verb)
		put_names(&out, verb->options);
	for (size_t i = 0; !verb && sp_cli_verbs[i]; i++)
		sp_cli_put(&out, "%s\t%s\n", sp_cli_verbs[i]->name, sp_cli_verbs[i]->summary);
	put_names(&out, sp_cli_global_options);
	exit_code = sp_cli_print_buf(cli, &out);
	sp_buf_done(&out);
	return exit_code;
}

static int run(struct sp_cli *cli)
{
	const struct sp_cli_verb *verb = NULL;

	if (cli->args.word_count > 0) {
		verb = sp_cli_verb_find(cli->args.words[0]);
		if (!verb)
			return sp_cli_fail_unknown_verb(cli, cli->args.words[0]);
	}
	if (sp_cli_args_has(&cli->args, &options[OPTION_COMPLETE]))
		return print_completion(cli, verb);
	return sp_cli_help(cli, verb);
}

const struct sp_cli_verb sp_cli_verb_help = {
	.name = "help",
	.usage = "[VERB]",
	.summary = "explain the program or a verb",
	.details = "  sandpool help run\n",
	.options = options,
	.over_redis = SP_CLI_REDIS_IGNORED,
	.words_max = 1,
	.run = run,
};
