/*
 * sandpool diff: what a sandbox has written above a directory of the host, as an archive.
 */
#include <errno.h>
#include <unistd.h>

#include "supervisor/cli/overlay.h"
#include "supervisor/cli/request.h"

enum { OPTION_NUMBER, OPTION_OUTPUT, OPTION_END };

static const struct sp_cli_option options[] = {
	[OPTION_NUMBER] = {"number", 'n', false, "N", "which overlay, if there are several"},
	[OPTION_OUTPUT] = {"output", 'o', false, "FILE", "write it there [standard output]"},
	[OPTION_END] = {0},
};

static int diff(struct sp_cli *cli, const char *sandbox, const char *local, struct sp_err *err)
{
	const struct sp_cli_overlay *overlay;
	struct sp_cli_overlays overlays;
	int status = sp_cli_overlays_get(cli, sandbox, &overlays, err);

	if (status == 0)
		status = sp_cli_overlays_pick(
			&overlays, sp_cli_args_value(&cli->args, &options[OPTION_NUMBER]), &overlay,
			err);
	if (status == 0)
		status = sp_cli_overlay_diff(cli, sandbox, overlay, local, err);
	sp_cli_overlays_done(&overlays);
	return status;
}

static int run(struct sp_cli *cli)
{
	const char *local = sp_cli_args_value(&cli->args, &options[OPTION_OUTPUT]);
	struct sp_err err = {0};
	struct sp_buf sandbox;
	int status;

	if (!local && isatty(STDOUT_FILENO))
		return sp_cli_fail_usage(cli,
					 "the archive is nothing for a terminal: --output FILE");
	sp_buf_init(&sandbox, SP_CLI_REQUEST_MAX);
	status = sp_cli_target(&sandbox, "/v1/sandboxes/", cli->args.words[0], "", &err);
	if (status == 0)
		status = diff(cli, sp_buf_text(&sandbox), local ? local : "-", &err);
	sp_buf_done(&sandbox);
	if (status == -EPIPE)
		return SP_CLI_EXIT_PIPE;
	return status < 0 ? sp_cli_fail(cli, &err) : 0;
}

const struct sp_cli_verb sp_cli_verb_diff = {
	.name = "diff",
	.usage = "[OPTIONS] ID",
	.summary = "what a sandbox has changed in an overlay, as a tar.gz",
	.details =
		"The archive is a layer as OCI images have it: new and changed files, an empty "
		".wh.NAME for\n"
		"what was deleted, .wh..wh..opq in a directory that replaces another one. It works "
		"on an\n"
		"overlay that is spoilt, too.\n\n"
		"  ID=$(sandpool acquire -q --bind /srv/project:/workspace:overlay default)\n"
		"  sandpool diff $ID | tar tzf -\n",
	.options = options,
	.words_min = 1,
	.words_max = 1,
	.run = run,
};
