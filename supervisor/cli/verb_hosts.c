/*
 * sandpool hosts: who takes part, and taking one off duty.
 */
#include <errno.h>
#include <string.h>

#include "supervisor/cli/redis.h"

enum { OPTION_POOL, OPTION_QUIET, OPTION_END };

static const struct sp_cli_option options[] = {
	[OPTION_POOL] = {"pool", 'p', false, "NAME", "of this pool only"},
	[OPTION_QUIET] = {"quiet", 'q', false, NULL, "print the names only"},
	[OPTION_END] = {0},
};

/* A daemon answers for all of its pools: what is not asked for is left out here. */
static int ask_daemon(const struct sp_cli *cli, const char *pool, struct sp_cli_answer *answer,
		      struct sp_err *err)
{
	int status = sp_cli_ask(cli, "GET", "/v1/hosts", NULL, SP_CLI_CALL_TIMEOUT_MS, answer, err);
	json_t *hosts = json_object_get(answer->root, "hosts");

	if (status < 0)
		return status;
	if (!json_is_array(hosts))
		return sp_err_code(err, SP_CODE_PROTOCOL, -EPROTO,
				   "the answer to 'GET /v1/hosts' has no list of hosts");
	if (!pool)
		return 0;
	for (size_t i = json_array_size(hosts); i > 0; i--) {
		const json_t *host = json_array_get(hosts, i - 1);

		if (strcmp(sp_cli_member_text(host, "pool"), pool) != 0)
			(void)json_array_remove(hosts, i - 1);
	}
	return sp_cli_answer_finish(answer, err);
}

static int ask(struct sp_cli *cli, struct sp_cli_answer *answer, struct sp_err *err)
{
	const char *pool = sp_cli_args_value(&cli->args, &options[OPTION_POOL]);

	if (cli->over_redis)
		return sp_cli_redis_hosts(cli, pool, answer, err);
	return ask_daemon(cli, pool, answer, err);
}

static int print_names(const struct sp_cli *cli, json_t *hosts)
{
	json_t *seen = json_object();
	struct sp_buf out;
	const char *name;
	json_t *value;
	int exit_code;
	size_t i;

	/* A host that serves several pools is one host. */
	json_array_foreach (hosts, i, value)
		(void)json_object_set_new(seen, sp_cli_member_text(value, "host"), json_true());
	sp_buf_init(&out, SP_CLI_REQUEST_MAX);
	json_object_foreach (seen, name, value)
		sp_cli_put(&out, "%s\n", name);
	exit_code = sp_cli_print_buf(cli, &out);
	sp_buf_done(&out);
	json_decref(seen);
	return exit_code;
}

static int print_table(const struct sp_cli *cli, json_t *hosts)
{
	static const struct sp_cli_column columns[] = {
		{"HOST", false},    {"POOL", false},    {"STATE", false},   {"IDLE", true},
		{"SHARE", true},    {"CREATING", true}, {"LEASED", true},   {"WAITERS", true},
		{"CAPACITY", true}, {"SEEN", true},     {"VERSION", false}, {"ENDPOINT", false},
	};
	static const char *const numbers[] = {"idle",   "share",   "creating",
					      "leased", "waiters", "capacity"};
	struct sp_cli_columns table;
	json_t *host;
	int exit_code;
	size_t i;

	sp_cli_columns_init(&table, columns, SP_ARRAY_SIZE(columns));
	json_array_foreach (hosts, i, host) {
		char seen[32];

		sp_cli_columns_add(&table, "%s", sp_cli_member_text(host, "host"));
		sp_cli_columns_add(&table, "%s", sp_cli_member_text(host, "pool"));
		sp_cli_columns_add(&table, "%s", sp_cli_member_text(host, "state"));
		for (size_t k = 0; k < SP_ARRAY_SIZE(numbers); k++)
			sp_cli_columns_add(&table, "%lld",
					   (long long)sp_cli_member_number(host, numbers[k]));
		sp_cli_columns_add(&table, "%s",
				   sp_cli_member_duration(host, "seen_ms", seen, sizeof(seen)));
		sp_cli_columns_add(&table, "%s", sp_cli_member_text(host, "version"));
		sp_cli_columns_add(&table, "%s", sp_cli_member_text(host, "endpoint"));
	}
	exit_code = sp_cli_print_columns(cli, &table, true);
	sp_cli_columns_done(&table);
	return exit_code;
}

static int list(struct sp_cli *cli, struct sp_err *err)
{
	struct sp_cli_answer answer = {.root = NULL};
	int status = ask(cli, &answer, err);
	json_t *hosts = json_object_get(answer.root, "hosts");

	if (status == 0 && cli->json)
		status = sp_cli_print_answer(cli, &answer);
	else if (status == 0 && sp_cli_args_has(&cli->args, &options[OPTION_QUIET]))
		status = print_names(cli, hosts);
	else if (status == 0)
		status = print_table(cli, hosts);
	sp_cli_answer_done(&answer);
	return status;
}

static int order_daemon(const struct sp_cli *cli, const char *host, bool drain, struct sp_err *err)
{
	struct sp_cli_answer answer;
	int status;

	if (sp_cli_args_has(&cli->args, &options[OPTION_POOL]))
		return sp_err_code(
			err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
			"a daemon drains a host in all of its pools; in one, --redis does");
	status = sp_cli_ask_about(cli, "POST", "/v1/hosts/", host, drain ? "/drain" : "/resume",
				  NULL, &answer, err);
	sp_cli_answer_done(&answer);
	return status;
}

static int order(struct sp_cli *cli, const char *host, bool drain, struct sp_err *err)
{
	if (!cli->over_redis)
		return order_daemon(cli, host, drain, err);
	return sp_cli_redis_drain_host(cli, sp_cli_args_value(&cli->args, &options[OPTION_POOL]),
				       host, drain, err);
}

static int run(struct sp_cli *cli)
{
	char **words = cli->args.words;
	size_t count = cli->args.word_count;
	struct sp_err err = {0};
	int status;

	if (count == 0 || (count == 1 && strcmp(words[0], "ls") == 0))
		status = list(cli, &err);
	else if (strcmp(words[0], "drain") != 0 && strcmp(words[0], "resume") != 0)
		return sp_cli_fail_usage(cli, "unknown action '%.64s'", words[0]);
	else if (count == 1)
		return sp_cli_fail_usage(cli, "%s needs the name of a host", words[0]);
	else
		status = order(cli, words[1], words[0][0] == 'd', &err);
	return status < 0 ? sp_cli_fail(cli, &err) : status;
}

const struct sp_cli_verb sp_cli_verb_hosts = {
	.name = "hosts",
	.usage = "[ls | drain HOST | resume HOST]",
	.summary = "show the hosts that share the pools, take one off duty",
	.details = "One line for each host and pool, as the host last told it. SHARE is how many "
		   "idle\n"
		   "sandboxes it may hold, SEEN how long ago it was heard of.\n\n"
		   "drain: the host gets no new lease and no share of the pool; what it has leased "
		   "lives on.\n"
		   "resume undoes it. Of all pools unless --pool names one (with --redis).\n\n"
		   "  sandpool hosts\n"
		   "  sandpool --redis unix:///run/redis.sock hosts drain node-7\n",
	.options = options,
	.over_redis = SP_CLI_REDIS_SERVED,
	.words_max = 2,
	.run = run,
};
