/*
 * sandpool acquire: take a sandbox and keep it until it is released or its lease ends.
 */
#include <errno.h>
#include <string.h>

#include "supervisor/cli/ask.h"
#include "supervisor/cli/redis.h"
#include "supervisor/cli/request.h"

enum {
	OPTION_WAIT,
	OPTION_POLICY,
	OPTION_TTL,
	OPTION_MIN_REMAINING,
	OPTION_LEASE,
	OPTION_BIND,
	OPTION_PREFER_HOST,
	OPTION_QUIET,
	OPTION_END,
};

static const struct sp_cli_option options[] = {
	[OPTION_WAIT] = {"wait", 'w', false, "TIME", "how long to wait for a sandbox (5s)"},
	[OPTION_POLICY] = {"policy", 0, false, "POLICY",
			   "when none is idle: fail_fast, wait, create, …"},
	[OPTION_TTL] = {"ttl", 0, false, "TIME", "how long the lease lasts (10m)"},
	[OPTION_MIN_REMAINING] = {"min-remaining", 0, false, "TIME",
				  "take only a sandbox that lives at least TIME more"},
	[OPTION_LEASE] = {"lease", 0, false, "ID",
			  "lease id of your own: asked again, the same sandbox comes back"},
	[OPTION_BIND] = {"bind", 'b', true, "SRC[:DST][:MODE]",
			 "show a host directory: ro, rw [rw], overlay[=SIZE]"},
	[OPTION_PREFER_HOST] = {"prefer-host", 0, false, "HOST",
				"from this host if it has one (Redis only)"},
	[OPTION_QUIET] = {"quiet", 'q', false, NULL, "print the id only"},
	[OPTION_END] = {0},
};

static const struct sp_cli_acquire_options acquire_options = {
	.policy = &options[OPTION_POLICY],
	.wait = &options[OPTION_WAIT],
	.ttl = &options[OPTION_TTL],
	.min_remaining = &options[OPTION_MIN_REMAINING],
	.lease = &options[OPTION_LEASE],
	.binds = &options[OPTION_BIND],
	.prefer_host = &options[OPTION_PREFER_HOST],
};

static int print_sandbox(const struct sp_cli *cli, const struct sp_cli_answer *answer)
{
	static const char *const keys[] = {"id",       "pool",  "host",       "lease",
					   "endpoint", "token", "expires_at", "remaining_ms"};
	json_t *shown;
	int exit_code;

	if (cli->json)
		return sp_cli_print_answer(cli, answer);
	if (sp_cli_args_has(&cli->args, &options[OPTION_QUIET])) {
		const char *id = sp_cli_member_text(answer->root, "id");
		struct sp_buf line;

		sp_buf_init(&line, SP_CLI_REQUEST_MAX);
		sp_cli_put(&line, "%s\n", id);
		exit_code = sp_cli_print_buf(cli, &line);
		sp_buf_done(&line);
		return exit_code;
	}
	shown = json_object();
	for (size_t i = 0; i < SP_ARRAY_SIZE(keys); i++) {
		json_t *value = json_object_get(answer->root, keys[i]);

		if (value)
			(void)json_object_set(shown, keys[i], value);
	}
	exit_code = sp_cli_print_members(cli, shown);
	json_decref(shown);
	return exit_code;
}

static int ask_redis(struct sp_cli *cli, struct sp_cli_answer *answer, struct sp_err *err)
{
	struct sp_cli_wish wish;
	int status = sp_cli_wish_read(cli, &acquire_options, cli->args.words[0], &wish, err);

	if (status == 0)
		status = sp_cli_redis_acquire(cli, &wish, answer, err);
	explicit_bzero(wish.secret, sizeof(wish.secret));
	return status;
}

static int ask_daemon(struct sp_cli *cli, struct sp_cli_answer *answer, struct sp_err *err)
{
	struct sp_cli_json json;
	struct sp_buf target;
	struct sp_buf body;
	int status;

	if (sp_cli_args_has(&cli->args, &options[OPTION_PREFER_HOST]))
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "--prefer-host belongs to --redis: a daemon asks its own host "
				   "first");
	sp_buf_init(&target, SP_CLI_REQUEST_MAX);
	sp_buf_init(&body, SP_CLI_REQUEST_MAX);
	sp_cli_json_init(&json, &body);
	sp_cli_json_open(&json, '{');
	status = sp_cli_write_acquire(&json, &cli->args, &acquire_options, err);
	sp_cli_json_close(&json, '}');
	if (status == 0)
		status = sp_cli_json_finish(&json, "the request", err);
	if (status == 0)
		status = sp_cli_target(&target, "/v1/pools/", cli->args.words[0], "/acquire", err);
	/* No deadline of ours: --wait is the daemon's, and creating may take its time. */
	if (status == 0)
		status = sp_cli_ask(cli, "POST", sp_buf_text(&target), &body, -1, answer, err);
	sp_buf_done(&body);
	sp_buf_done(&target);
	return status;
}

static int run(struct sp_cli *cli)
{
	struct sp_cli_answer answer = {.root = NULL};
	struct sp_err err = {0};
	int status =
		cli->over_redis ? ask_redis(cli, &answer, &err) : ask_daemon(cli, &answer, &err);
	int exit_code = status < 0 ? sp_cli_fail(cli, &err) : print_sandbox(cli, &answer);

	sp_cli_answer_done(&answer);
	return exit_code;
}

const struct sp_cli_verb sp_cli_verb_acquire = {
	.name = "acquire",
	.usage = "[OPTIONS] POOL",
	.summary = "take a sandbox and keep it",
	.details = "Prints id, lease, endpoint, token, expires_at and remaining_ms. The token "
		   "opens the\n"
		   "sandbox to whoever is not root or in the daemon's admin_group: pass it on in\n"
		   "SANDPOOL_TOKEN or --token-file. With --lease the id is yours, no token comes "
		   "back, and\n"
		   "the same request again returns the same sandbox.\n\n"
		   "With --redis it comes from whichever host has one and is claimed there; "
		   "host is the\n"
		   "host. --lease is then the hex SHA-256 of a secret: with the secret as the "
		   "token it is\n"
		   "claimed, without it that is left to whoever has it.\n\n"
		   "--bind SRC:DST:overlay shows SRC and keeps what is written to it for the "
		   "sandbox alone,\n"
		   "in at most SIZE bytes of memory; see 'sandpool diff' and 'sandpool commit'.\n\n"
		   "Give it back with 'sandpool release ID'; it ends by itself at expires_at, or "
		   "if it is\n"
		   "not used within the pool's claim_timeout.\n\n"
		   "  ID=$(sandpool acquire -q --wait 5s default)\n"
		   "  sandpool acquire --ttl 10m --bind /srv/sessions/7:/data --json default\n",
	.options = options,
	.over_redis = SP_CLI_REDIS_SERVED,
	.words_min = 1,
	.words_max = 1,
	.run = run,
};
