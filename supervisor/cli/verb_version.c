/*
 * sandpool version: ours, and the daemon's if there is one.
 */
#include <inttypes.h>

#include "supervisor/cli/ask.h"

#define PROTOCOL       1
#define VERSION_ASK_MS (2 * SP_MS_PER_S)

enum { OPTION_CLIENT, OPTION_END };

static const struct sp_cli_option options[] = {
	[OPTION_CLIENT] = {"client", 0, false, NULL, "do not ask the daemon"},
	[OPTION_END] = {0},
};

static void put_json(struct sp_buf *out, const struct sp_cli_answer *daemon)
{
	sp_cli_put(out,
		   "{\"client\":{\"version\":\"%s\",\"build\":\"%016" PRIx64 "\",\"protocol\":%d}",
		   SP_VERSION, (uint64_t)SP_BUILD_ID, PROTOCOL);
	if (daemon->root)
		sp_cli_put(out, ",\"daemon\":%s", sp_buf_text(&daemon->text));
	sp_cli_put(out, "}\n");
}

static void put_text(struct sp_buf *out, const json_t *daemon)
{
	sp_cli_put(out, "sandpool  %s (build %016" PRIx64 ")\n", SP_VERSION, (uint64_t)SP_BUILD_ID);
	if (!daemon)
		return;
	sp_cli_put(out, "sandpoold %s (build %s)\n", sp_cli_member_text(daemon, "version"),
		   sp_cli_member_text(daemon, "build"));
	if (sp_cli_member_number(daemon, "protocol") != PROTOCOL)
		sp_cli_put(out, "the daemon speaks protocol %lld, this program %d\n",
			   (long long)sp_cli_member_number(daemon, "protocol"), PROTOCOL);
}

static int run(struct sp_cli *cli)
{
	struct sp_cli_answer answer = {.root = NULL};
	struct sp_err err = {0};
	struct sp_buf out;
	int exit_code;

	/* No daemon is no error here. */
	if (!sp_cli_args_has(&cli->args, &options[OPTION_CLIENT]) &&
	    sp_cli_ask(cli, "GET", "/v1/version", NULL, VERSION_ASK_MS, &answer, &err) < 0) {
		json_decref(answer.root);
		answer.root = NULL;
	}
	sp_buf_init(&out, SP_CLI_REQUEST_MAX);
	if (cli->json)
		put_json(&out, &answer);
	else
		put_text(&out, answer.root);
	exit_code = sp_cli_print_buf(cli, &out);
	sp_buf_done(&out);
	sp_cli_answer_done(&answer);
	return exit_code;
}

const struct sp_cli_verb sp_cli_verb_version = {
	.name = "version",
	.usage = "[--client]",
	.summary = "show the version of this program and of the daemon",
	.details = "The daemon's line is left out if it cannot be reached.\n\n"
		   "  sandpool version --json | jq -r .daemon.version\n",
	.options = options,
	.over_redis = SP_CLI_REDIS_IGNORED,
	.words_max = 0,
	.run = run,
};
