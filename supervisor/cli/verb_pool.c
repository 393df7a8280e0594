/*
 * sandpool pool: look at one pool, change its sizes, drain it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "supervisor/cli/pools.h"
#include "supervisor/cli/redis.h"

enum { OPTION_MAX_IDLE, OPTION_MAX_TOTAL, OPTION_QUIET, OPTION_END };

static const struct sp_cli_option options[] = {
	[OPTION_MAX_IDLE] = {"max-idle", 0, false, "N", "resize: how many are kept warm"},
	[OPTION_MAX_TOTAL] = {"max-total", 0, false, "N", "resize: most there may be at once"},
	[OPTION_QUIET] = {"quiet", 'q', false, NULL, "ls: print the names only"},
	[OPTION_END] = {0},
};

/* ---- ls ---- */

static void put_names(struct sp_buf *out, const json_t *pools)
{
	json_t *pool;
	size_t i;

	json_array_foreach (pools, i, pool)
		sp_cli_put(out, "%s\n", sp_cli_member_text(pool, "name"));
}

static int list(struct sp_cli *cli, const char *name, struct sp_err *err)
{
	struct sp_cli_answer answer = {.root = NULL};
	struct sp_buf out;
	int status = sp_cli_pools_ask(cli, SP_CLI_CALL_TIMEOUT_MS, &answer, err);
	const json_t *pools = json_object_get(answer.root, "pools");

	SP_UNUSED(name);
	sp_buf_init(&out, SP_CLI_REQUEST_MAX);
	if (status == 0 && cli->json) {
		status = sp_cli_print_answer(cli, &answer);
	} else if (status == 0) {
		if (sp_cli_args_has(&cli->args, &options[OPTION_QUIET]))
			put_names(&out, pools);
		else
			sp_cli_pools_write(cli, pools, &out);
		status = sp_cli_print_buf(cli, &out);
	}
	sp_buf_done(&out);
	sp_cli_answer_done(&answer);
	return status;
}

/* ---- show, resize, drain, resume ---- */

/* One call about a pool whose answer is that pool. */
static int ask_and_show(struct sp_cli *cli, const char *method, const char *name,
			const char *suffix, const struct sp_buf *body, struct sp_err *err)
{
	struct sp_cli_answer answer;
	int status = sp_cli_ask_about(cli, method, "/v1/pools/", name, suffix, body, &answer, err);

	if (status == 0)
		status = cli->json ? sp_cli_print_answer(cli, &answer)
				   : sp_cli_print_members(cli, answer.root);
	sp_cli_answer_done(&answer);
	return status;
}

static int show_from_redis(struct sp_cli *cli, const char *name, struct sp_err *err)
{
	struct sp_cli_answer answer;
	int status = sp_cli_redis_pool(cli, name, &answer, err);

	if (status == 0)
		status = cli->json ? sp_cli_print_answer(cli, &answer)
				   : sp_cli_print_members(cli, answer.root);
	sp_cli_answer_done(&answer);
	return status;
}

static int show(struct sp_cli *cli, const char *name, struct sp_err *err)
{
	if (cli->over_redis)
		return show_from_redis(cli, name, err);
	return ask_and_show(cli, "GET", name, "", NULL, err);
}

/* The operator's intent, for all hosts of the pool; revision 0: whatever it is now. */
static int set_state_in_redis(struct sp_cli *cli, const char *name, const char *state,
			      struct sp_err *err)
{
	const char *argv[] = {state, "0"};
	int status = sp_cli_redis_order(cli, name, "set_state", argv, SP_ARRAY_SIZE(argv), err);

	return status < 0 ? status : show_from_redis(cli, name, err);
}

static int drain(struct sp_cli *cli, const char *name, struct sp_err *err)
{
	if (cli->over_redis)
		return set_state_in_redis(cli, name, "draining", err);
	return ask_and_show(cli, "POST", name, "/drain", NULL, err);
}

static int resume(struct sp_cli *cli, const char *name, struct sp_err *err)
{
	if (cli->over_redis)
		return set_state_in_redis(cli, name, "active", err);
	return ask_and_show(cli, "POST", name, "/resume", NULL, err);
}

static int destroy(struct sp_cli *cli, const char *name, struct sp_err *err)
{
	if (cli->over_redis)
		return set_state_in_redis(cli, name, "destroying", err);
	return sp_err_code(
		err, SP_CODE_UNSUPPORTED, -EOPNOTSUPP,
		"a pool of one daemon ends with its entry in the configuration (take it "
		"out and 'sandpool reload'); one of a cluster is destroyed with --redis");
}

/* -1: not given. */
static int read_count(const struct sp_cli *cli, int option, long *ret_count, struct sp_err *err)
{
	const char *text = sp_cli_args_value(&cli->args, &options[option]);
	size_t digits;

	*ret_count = -1;
	if (!text)
		return 0;
	digits = strspn(text, "0123456789");
	if (digits == 0 || digits > 9 || text[digits] != '\0')
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "--%s '%.64s' is not a whole number", options[option].name,
				   text);
	*ret_count = strtol(text, NULL, 10);
	return 0;
}

static int resize_in_redis(struct sp_cli *cli, const char *name, long max_idle, long max_total,
			   struct sp_err *err)
{
	char idle_text[24];
	char total_text[24];
	const char *argv[] = {idle_text, total_text, "0"};
	int status;

	(void)snprintf(idle_text, sizeof(idle_text), "%ld", max_idle);
	(void)snprintf(total_text, sizeof(total_text), "%ld", max_total);
	status = sp_cli_redis_order(cli, name, "resize", argv, SP_ARRAY_SIZE(argv), err);
	return status < 0 ? status : show_from_redis(cli, name, err);
}

static int resize_in_daemon(struct sp_cli *cli, const char *name, long max_idle, long max_total,
			    struct sp_err *err)
{
	struct sp_cli_json json;
	struct sp_buf body;
	int status;

	sp_buf_init(&body, SP_CLI_REQUEST_MAX);
	sp_cli_json_init(&json, &body);
	sp_cli_json_open(&json, '{');
	if (max_idle >= 0) {
		sp_cli_json_key(&json, "max_idle");
		sp_cli_json_number(&json, max_idle);
	}
	if (max_total >= 0) {
		sp_cli_json_key(&json, "max_total");
		sp_cli_json_number(&json, max_total);
	}
	sp_cli_json_close(&json, '}');
	status = sp_cli_json_finish(&json, "the request", err);
	if (status == 0)
		status = ask_and_show(cli, "POST", name, "/resize", &body, err);
	sp_buf_done(&body);
	return status;
}

static int resize(struct sp_cli *cli, const char *name, struct sp_err *err)
{
	long max_idle = -1;
	long max_total = -1;
	int status = read_count(cli, OPTION_MAX_IDLE, &max_idle, err);

	if (status == 0)
		status = read_count(cli, OPTION_MAX_TOTAL, &max_total, err);
	if (status < 0)
		return status;
	if (max_idle < 0 && max_total < 0)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "resize needs --max-idle or --max-total");
	return cli->over_redis ? resize_in_redis(cli, name, max_idle, max_total, err)
			       : resize_in_daemon(cli, name, max_idle, max_total, err);
}

static const struct {
	const char *name;
	bool named; /* takes the name of a pool */
	int (*run)(struct sp_cli *cli, const char *name, struct sp_err *err);
} actions[] = {
	{"ls", false, list},    {"show", true, show},     {"resize", true, resize},
	{"drain", true, drain}, {"resume", true, resume}, {"destroy", true, destroy},
};

static int fail_unknown(const struct sp_cli *cli, const char *word)
{
	const char *names[SP_ARRAY_SIZE(actions) + 1] = {NULL};
	const char *guess;

	for (size_t i = 0; i < SP_ARRAY_SIZE(actions); i++)
		names[i] = actions[i].name;
	guess = sp_cli_suggest(word, names);
	if (guess)
		return sp_cli_fail_usage(cli, "unknown action '%.64s', did you mean '%s'?", word,
					 guess);
	return sp_cli_fail_usage(cli, "unknown action '%.64s'", word);
}

static int run(struct sp_cli *cli)
{
	char **words = cli->args.words;
	size_t count = cli->args.word_count;

	for (size_t i = 0; i < SP_ARRAY_SIZE(actions); i++) {
		struct sp_err err = {0};
		int status;

		if (strcmp(words[0], actions[i].name) != 0)
			continue;
		if (actions[i].named && count < 2)
			return sp_cli_fail_usage(cli, "%s needs the name of a pool", words[0]);
		if (!actions[i].named && count > 1)
			return sp_cli_fail_usage(cli, "unexpected argument '%.64s'", words[1]);
		status = actions[i].run(cli, words[count - 1], &err);
		return status < 0 ? sp_cli_fail(cli, &err) : status;
	}
	return fail_unknown(cli, words[0]);
}

const struct sp_cli_verb sp_cli_verb_pool = {
	.name = "pool",
	.usage = "ls | {show | resize | drain | resume | destroy} NAME [OPTIONS]",
	.summary = "look at pools, change their sizes, drain them",
	.details = "resize holds until the daemon is restarted or reloaded; a size it does not "
		   "name stays.\n"
		   "drain refuses new acquires and kills what is idle; leased sandboxes live on; "
		   "resume\n"
		   "undoes it. All of them print the pool as it then is.\n\n"
		   "With --redis they hold for all hosts of the pool, restarts included. destroy "
		   "is for\n"
		   "that only and for good: every sandbox of the pool is killed, its name stays "
		   "taken.\n\n"
		   "  sandpool pool resize default --max-idle 32\n"
		   "  sandpool pool drain default\n",
	.options = options,
	.over_redis = SP_CLI_REDIS_SERVED,
	.words_min = 1,
	.words_max = 2,
	.run = run,
};
