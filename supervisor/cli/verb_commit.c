/*
 * sandpool commit: write back what a sandbox has changed in an overlay.
 */
#include "supervisor/cli/overlay.h"
#include "supervisor/cli/request.h"

enum { OPTION_NUMBER, OPTION_CHECK, OPTION_QUIET, OPTION_END };

static const struct sp_cli_option options[] = {
	[OPTION_NUMBER] = {"number", 'n', false, "N", "which overlay, if there are several"},
	[OPTION_CHECK] = {"check", 0, false, "PROGRAM", "ask 'PROGRAM commit SRC' right before"},
	[OPTION_QUIET] = {"quiet", 'q', false, NULL, "do not say what was written"},
	[OPTION_END] = {0},
};

static int commit(struct sp_cli *cli, const char *sandbox, struct sp_buf *said, struct sp_err *err)
{
	const char *program = sp_cli_args_value(&cli->args, &options[OPTION_CHECK]);
	const struct sp_cli_overlay *overlay;
	struct sp_cli_overlays overlays;
	int status = sp_cli_overlays_get(cli, sandbox, &overlays, err);

	if (status == 0)
		status = sp_cli_overlays_pick(
			&overlays, sp_cli_args_value(&cli->args, &options[OPTION_NUMBER]), &overlay,
			err);
	if (status == 0 && program)
		status = sp_cli_overlay_check(program, "commit", overlay->source, NULL, err);
	if (status == 0)
		status = sp_cli_overlay_commit(cli, sandbox, overlay, said, err);
	sp_cli_overlays_done(&overlays);
	return status;
}

static int run(struct sp_cli *cli)
{
	struct sp_err err = {0};
	struct sp_buf sandbox;
	struct sp_buf said;
	int exit_code = 0;
	int status;

	sp_buf_init(&sandbox, SP_CLI_REQUEST_MAX);
	sp_buf_init(&said, SP_CLI_REQUEST_MAX);
	status = sp_cli_target(&sandbox, "/v1/sandboxes/", cli->args.words[0], "", &err);
	if (status == 0)
		status = commit(cli, sp_buf_text(&sandbox), &said, &err);
	sp_cli_put(&said, "\n");
	if (status < 0)
		exit_code = sp_cli_fail(cli, &err);
	else if (!sp_cli_args_has(&cli->args, &options[OPTION_QUIET]))
		exit_code = sp_cli_print_buf(cli, &said);
	sp_buf_done(&said);
	sp_buf_done(&sandbox);
	return exit_code;
}

const struct sp_cli_verb sp_cli_verb_commit = {
	.name = "commit",
	.usage = "[OPTIONS] ID",
	.summary = "write back what a sandbox has changed in an overlay",
	.details = "All of it or nothing, in the name of the directory's owner, whatever happens "
		   "meanwhile. It\n"
		   "is refused, and nothing is touched, if somebody else has changed the directory "
		   "since "
		   "it was\n"
		   "bound, if a run did not end by itself (timeout, signal, kill: the overlay is "
		   "spoilt), and\n"
		   "while something runs. What earlier runs left in the background is killed. "
		   "Afterwards the\n"
		   "overlay is empty, on the new content.\n\n"
		   "--check: the program decides, by exit status 0, whether it is written back.\n\n"
		   "  sandpool exec $ID -- make && sandpool commit $ID\n",
	.options = options,
	.words_min = 1,
	.words_max = 1,
	.run = run,
};
