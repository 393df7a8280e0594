/*
 * sandpool config: look at a configuration without a daemon.
 */
#include "supervisor/cli/cli.h"

#include <errno.h>
#include <string.h>

#include "supervisor/cli/text.h"
#include "supervisor/config/config.h"

#define CONFIG_DEFAULT "/etc/sandpool/sandpool.json"
#define OUTPUT_MAX     (64u << 20)

static void put_faults_json(const struct sp_config_faults *faults, struct sp_buf *out)
{
	struct sp_cli_json json;

	sp_cli_json_init(&json, out);
	sp_cli_json_open(&json, '{');
	sp_cli_json_key(&json, "faults");
	sp_cli_json_open(&json, '[');
	for (size_t i = 0; i < faults->count; i++) {
		const struct sp_config_fault *fault = &faults->items[i];

		sp_cli_json_open(&json, '{');
		sp_cli_json_member(&json, "file", fault->file);
		sp_cli_json_key(&json, "line");
		sp_cli_json_number(&json, fault->line);
		sp_cli_json_member(&json, "message", fault->message);
		sp_cli_json_close(&json, '}');
	}
	sp_cli_json_close(&json, ']');
	sp_cli_json_key(&json, "more");
	sp_cli_json_bool(&json, faults->more);
	sp_cli_json_close(&json, '}');
	sp_cli_put(out, "\n");
}

/* The faults are the answer, so they go to stdout. */
static int print_faults(const struct sp_cli *cli, const struct sp_config_faults *faults)
{
	struct sp_buf out;
	int exit_code;

	sp_buf_init(&out, OUTPUT_MAX);
	if (cli->json)
		put_faults_json(faults, &out);
	else if (sp_config_faults_print(faults, &out) == 0 && faults->more)
		sp_cli_put(&out, "(there are more)\n");
	exit_code = sp_cli_print_buf(cli, &out);
	sp_buf_done(&out);
	return exit_code != 0 ? exit_code : SP_CLI_EXIT_FINDING;
}

static int print_good(const struct sp_cli *cli, const char *path, const struct sp_config *config)
{
	struct sp_buf out;
	int exit_code;

	sp_buf_init(&out, OUTPUT_MAX);
	if (cli->json)
		sp_cli_put(&out, "{\"faults\":[],\"more\":false}\n");
	else
		sp_cli_put(&out, "%s: good, %zu %s\n", path, config->pool_count,
			   config->pool_count == 1 ? "pool" : "pools");
	exit_code = sp_cli_print_buf(cli, &out);
	sp_buf_done(&out);
	return exit_code;
}

static int print_dump(const struct sp_cli *cli, const struct sp_config *config)
{
	struct sp_err err = {0};
	struct sp_buf out;
	int exit_code;

	sp_buf_init(&out, OUTPUT_MAX);
	if (sp_config_dump(config, false, &out, &err) < 0) {
		exit_code = sp_cli_fail(cli, &err);
	} else {
		if (out.len > 0 && out.data[out.len - 1] != '\n')
			sp_cli_put(&out, "\n");
		exit_code = sp_cli_print_buf(cli, &out);
	}
	sp_buf_done(&out);
	return exit_code;
}

static int print_reference(const struct sp_cli *cli)
{
	struct sp_err err = {0};
	struct sp_buf out;
	int exit_code;
	int status;

	sp_buf_init(&out, OUTPUT_MAX);
	status = sp_config_reference(&out);
	if (status < 0) {
		(void)sp_err_set(&err, status, "write the reference");
		exit_code = sp_cli_fail(cli, &err);
	} else {
		exit_code = sp_cli_print_buf(cli, &out);
	}
	sp_buf_done(&out);
	return exit_code;
}

static int load_and(struct sp_cli *cli, const char *path, bool dump)
{
	struct sp_config *config = NULL;
	struct sp_config_faults faults = {0};
	struct sp_err err = {0};
	/* check also reads the files that hold secrets: a missing one is a fault. */
	int status = sp_config_load(path, !dump, &config, &faults);
	int exit_code;

	if (status < 0 && faults.count > 0) {
		exit_code = print_faults(cli, &faults);
	} else if (status < 0) {
		(void)sp_err_set(&err, status, "read '%s'", path);
		exit_code = sp_cli_fail(cli, &err);
	} else {
		exit_code = dump ? print_dump(cli, config) : print_good(cli, path, config);
	}
	sp_config_faults_done(&faults);
	sp_config_free(config);
	return exit_code;
}

static int run(struct sp_cli *cli)
{
	static const char *const actions[] = {"check", "dump", "reference", NULL};
	const char *action = cli->args.words[0];
	const char *path = cli->args.word_count > 1 ? cli->args.words[1] : CONFIG_DEFAULT;
	const char *guess;

	if (strcmp(action, "check") == 0)
		return load_and(cli, path, false);
	if (strcmp(action, "dump") == 0)
		return load_and(cli, path, true);
	if (strcmp(action, "reference") == 0)
		return print_reference(cli);
	guess = sp_cli_suggest(action, actions);
	if (guess)
		return sp_cli_fail_usage(cli, "unknown action '%.64s', did you mean '%s'?", action,
					 guess);
	return sp_cli_fail_usage(cli, "unknown action '%.64s'", action);
}

const struct sp_cli_verb sp_cli_verb_config = {
	.name = "config",
	.usage = "check [FILE] | dump [FILE] | reference",
	.summary = "check or show a configuration, without a daemon",
	.details = "FILE is /etc/sandpool/sandpool.json unless given; the drop-ins in FILE.d "
		   "belong to it.\n"
		   "check prints every fault as FILE:LINE: message and then ends with 1. dump "
		   "prints the\n"
		   "configuration with all defaults filled in and secrets hidden. reference prints "
		   "the page\n"
		   "about every key.\n\n"
		   "  sandpool config check\n"
		   "  sandpool config dump --json | jq .pools.default.max_idle\n",
	.over_redis = SP_CLI_REDIS_IGNORED,
	.words_min = 1,
	.words_max = 2,
	.run = run,
};
