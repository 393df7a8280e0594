/*
 * sandpool ls: the sandboxes of this host.
 */
#include "supervisor/cli/ask.h"
#include "supervisor/cli/http.h"

#include <errno.h>

enum { OPTION_POOL, OPTION_STATE, OPTION_QUIET, OPTION_END };

static const struct sp_cli_option options[] = {
	[OPTION_POOL] = {"pool", 'p', false, "NAME", "only those of one pool"},
	[OPTION_STATE] = {"state", 0, false, "STATE",
			  "only those: creating, idle, leased, killing"},
	[OPTION_QUIET] = {"quiet", 'q', false, NULL, "print the ids only"},
	[OPTION_END] = {0},
};

static int append_state(struct sp_buf *target, const char *state)
{
	int status;

	if (!state)
		return 0;
	status = sp_buf_printf(target, "?state=");
	return status < 0 ? status : sp_cli_http_append_segment(target, state);
}

static int print_table(const struct sp_cli *cli, const json_t *list)
{
	static const struct sp_cli_column columns[] = {
		{"ID", false},     {"POOL", false}, {"STATE", false}, {"LEFT", true},
		{"RUNNING", true}, {"EXECS", true}, {"LEASE", false}, {"REASON", false},
	};
	bool quiet = sp_cli_args_has(&cli->args, &options[OPTION_QUIET]);
	struct sp_cli_columns table;
	json_t *sandbox;
	size_t i;
	int exit_code;

	sp_cli_columns_init(&table, columns, quiet ? 1 : SP_ARRAY_SIZE(columns));
	json_array_foreach (list, i, sandbox) {
		char left[32];

		sp_cli_columns_add(&table, "%s", sp_cli_member_text(sandbox, "id"));
		if (quiet)
			continue;
		sp_cli_columns_add(&table, "%s", sp_cli_member_text(sandbox, "pool"));
		sp_cli_columns_add(&table, "%s", sp_cli_member_text(sandbox, "state"));
		sp_cli_columns_add(
			&table, "%s",
			sp_cli_member_duration(sandbox, "remaining_ms", left, sizeof(left)));
		sp_cli_columns_add(&table, "%lld",
				   (long long)sp_cli_member_number(sandbox, "running_execs"));
		sp_cli_columns_add(&table, "%lld",
				   (long long)sp_cli_member_number(sandbox, "execs_total"));
		sp_cli_columns_add(&table, "%.12s", sp_cli_member_text(sandbox, "lease"));
		sp_cli_columns_add(&table, "%s", sp_cli_member_text(sandbox, "end_reason"));
	}
	exit_code = table.cell_count > 0 || !quiet ? sp_cli_print_columns(cli, &table, !quiet) : 0;
	sp_cli_columns_done(&table);
	return exit_code;
}

static int run(struct sp_cli *cli)
{
	const char *pool = sp_cli_args_value(&cli->args, &options[OPTION_POOL]);
	const char *state = sp_cli_args_value(&cli->args, &options[OPTION_STATE]);
	struct sp_cli_answer answer = {.root = NULL};
	struct sp_err err = {0};
	struct sp_buf target;
	int exit_code;
	int status;

	sp_buf_init(&target, SP_CLI_REQUEST_MAX);
	status = sp_cli_target(&target, "/v1/pools/", pool ? pool : "-", "/sandboxes", &err);
	if (status == 0 && append_state(&target, state) < 0)
		status = sp_err_set(&err, -ENOMEM, "write the request");
	if (status == 0)
		status = sp_cli_ask(cli, "GET", sp_buf_text(&target), NULL, SP_CLI_CALL_TIMEOUT_MS,
				    &answer, &err);
	if (status < 0)
		exit_code = sp_cli_fail(cli, &err);
	else if (cli->json)
		exit_code = sp_cli_print_answer(cli, &answer);
	else
		exit_code = print_table(cli, json_object_get(answer.root, "sandboxes"));
	sp_cli_answer_done(&answer);
	sp_buf_done(&target);
	return exit_code;
}

const struct sp_cli_verb sp_cli_verb_ls = {
	.name = "ls",
	.usage = "[OPTIONS]",
	.summary = "list the sandboxes of this host",
	.details =
		"LEFT is the time until it ends, RUNNING and EXECS count commands now and in all,\n"
		"LEASE is the beginning of the lease id, REASON why it is being killed.\n\n"
		"  sandpool ls --pool default --state leased\n"
		"  sandpool ls --json | jq '.sandboxes[].id'\n",
	.options = options,
	.words_max = 0,
	.run = run,
};
