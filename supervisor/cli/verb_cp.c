/*
 * sandpool cp: a file or a tree into a sandbox, or out of it.
 */
#include <errno.h>

#include "supervisor/cli/copy.h"

enum { OPTION_RECURSIVE, OPTION_MODE, OPTION_END };

static const struct sp_cli_option options[] = {
	[OPTION_RECURSIVE] = {"recursive", 'r', false, NULL, "copy a directory and all below it"},
	[OPTION_MODE] = {"mode", 'm', false, "OCTAL",
			 "mode of files that are copied in [their own]"},
	[OPTION_END] = {0},
};

static int run(struct sp_cli *cli)
{
	bool recursive = sp_cli_args_has(&cli->args, &options[OPTION_RECURSIVE]);
	const char *mode_text = sp_cli_args_value(&cli->args, &options[OPTION_MODE]);
	const char *source = cli->args.words[0];
	const char *target = cli->args.words[1];
	struct sp_cli_place from;
	struct sp_cli_place to;
	bool out = sp_cli_place_parse(source, &from);
	bool in = sp_cli_place_parse(target, &to);
	struct sp_err err = {0};
	uint32_t mode = 0;
	int status = 0;

	if (in && out)
		return sp_cli_fail_usage(cli, "both are in a sandbox: copy through a file here");
	if (!in && !out)
		return sp_cli_fail_usage(cli, "neither '%.64s' nor '%.64s' is ID:PATH", source,
					 target);
	if (out && mode_text)
		return sp_cli_fail_usage(cli, "--mode is for what is copied into a sandbox");
	if (mode_text)
		status = sp_cli_mode_parse(mode_text, &mode, &err);
	if (status == 0)
		status = in ? sp_cli_copy_up(cli, source, &to, recursive, mode, &err)
			    : sp_cli_copy_down(cli, &from, target, recursive, &err);
	if (status == -EPIPE)
		return SP_CLI_EXIT_PIPE;
	return status < 0 ? sp_cli_fail(cli, &err) : 0;
}

const struct sp_cli_verb sp_cli_verb_cp = {
	.name = "cp",
	.usage = "[OPTIONS] {SRC ID:PATH | ID:PATH DST}",
	.summary = "copy files into a sandbox, or out of it",
	.details =
		"SRC '-' is the standard input, DST '-' the standard output. A directory as the "
		"target\n"
		"takes the copy under its old name. PATH is absolute, or below /workspace. A file "
		"appears\n"
		"when all of it is there, and not at all if the copy ends early. Links and special "
		"files\n"
		"of a directory are left out, with a note.\n\n"
		"  sandpool cp report.py $ID:/workspace/\n"
		"  sandpool cp -r data $ID:\n"
		"  sandpool cp $ID:/workspace/out.csv -\n",
	.options = options,
	.words_min = 2,
	.words_max = 2,
	.run = run,
};
