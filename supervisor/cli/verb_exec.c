/*
 * sandpool exec: a command in a sandbox that is held.
 */
#include "supervisor/cli/session.h"

#include <string.h>

#include "supervisor/cli/redis.h"

enum {
	OPTION_INTERACTIVE,
	OPTION_NO_STDIN,
	OPTION_TTY,
	OPTION_TIMEOUT,
	OPTION_ENV,
	OPTION_CWD,
	OPTION_USER,
	OPTION_POOL,
	OPTION_QUIET,
	OPTION_END,
};

static const struct sp_cli_option options[] = {
	[OPTION_INTERACTIVE] = {"interactive", 'i', false, NULL,
				"stream stdin even if it is a terminal"},
	[OPTION_NO_STDIN] = {"no-stdin", 'n', false, NULL,
			     "leave our stdin alone; the command reads /dev/null"},
	[OPTION_TTY] = {"tty", 't', false, NULL, "give the command a terminal"},
	[OPTION_TIMEOUT] = {"timeout", 0, false, "TIME", "kill the command after TIME (3s, 5m)"},
	[OPTION_ENV] = {"env", 'e', true, "NAME[=VALUE]",
			"set a variable (without =VALUE: as it is here)"},
	[OPTION_CWD] = {"cwd", 'C', false, "DIR", "working directory in the sandbox"},
	[OPTION_USER] = {"user", 'u', false, "UID[:GID]", "run as that user of the sandbox"},
	[OPTION_POOL] = {"pool", 'p', false, "NAME", SP_CLI_POOL_HELP},
	[OPTION_QUIET] = {"quiet", 'q', false, NULL, "do not say why the command was killed"},
	[OPTION_END] = {0},
};

static const struct sp_cli_start_options start_options = {
	.cwd = &options[OPTION_CWD],
	.env = &options[OPTION_ENV],
	.user = &options[OPTION_USER],
	.timeout = &options[OPTION_TIMEOUT],
};

static int write_frame(const struct sp_cli_session *session, char *const *argv, size_t argc,
		       struct sp_buf *frame, struct sp_err *err)
{
	struct sp_cli_command command = sp_cli_session_command(session, argv, argc);
	struct sp_cli_json json;
	int status = sp_cli_frame_begin(frame, err);

	if (status < 0)
		return status;
	sp_cli_json_init(&json, frame);
	sp_cli_json_open(&json, '{');
	status = sp_cli_write_start(&json, &session->cli->args, &start_options, &command, err);
	sp_cli_json_close(&json, '}');
	if (status == 0)
		status = sp_cli_json_finish(&json, "the command", err);
	if (status == 0)
		sp_cli_frame_finish(frame);
	return status;
}

/* The sandbox that the first word names, and its host as the one we speak to. */
static int find(struct sp_cli *cli, struct sp_buf *target, struct sp_err *err)
{
	const char *id = cli->args.words[0];
	struct sp_cli_lease lease;
	const char *pool;
	int status = sp_cli_pool_option(cli, &options[OPTION_POOL], &pool, err);

	if (status == 0 && cli->over_redis) {
		status = sp_cli_redis_locate(cli, pool, id, &lease, err);
		id = lease.grant.id;
	}
	return status < 0 ? status : sp_cli_target(target, "/v1/sandboxes/", id, "/exec", err);
}

static int run(struct sp_cli *cli)
{
	const struct sp_cli_args *args = &cli->args;
	char *const *words = args->words + 1;
	size_t count = args->word_count - 1;
	struct sp_cli_session session;
	struct sp_err err = {0};
	struct sp_buf frame;
	struct sp_buf target;
	int exit_code;

	if (count > 0 && strcmp(words[0], "--") == 0) {
		words++;
		count--;
	}
	if (count == 0)
		return sp_cli_fail_usage(cli, "a command is missing");
	if (cli->json && sp_cli_args_has(args, &options[OPTION_TTY]))
		return sp_cli_fail_usage(cli, "--json and --tty exclude each other");
	sp_cli_session_init(&session, cli, sp_cli_args_has(args, &options[OPTION_INTERACTIVE]),
			    sp_cli_args_has(args, &options[OPTION_NO_STDIN]),
			    sp_cli_args_has(args, &options[OPTION_TTY]));
	session.quiet = sp_cli_args_has(args, &options[OPTION_QUIET]);
	sp_buf_init(&target, SP_CLI_REQUEST_MAX);
	if (write_frame(&session, words, count, &frame, &err) < 0 || find(cli, &target, &err) < 0)
		exit_code = sp_cli_fail(cli, &err);
	else
		exit_code = sp_cli_session_run(&session, sp_buf_text(&target), &frame);
	sp_buf_done(&target);
	sp_buf_done(&frame);
	return exit_code;
}

const struct sp_cli_verb sp_cli_verb_exec = {
	.name = "exec",
	.usage = "[OPTIONS] ID [--] COMMAND [ARGUMENT…]",
	.summary = "run a command in a sandbox that you hold",
	.details = "stdin, stdout and stderr are the command's, byte for byte. stdin is passed on "
		   "unless it\n"
		   "is a terminal (then only with -i or -t), so in a shell loop that reads a list "
		   "from\n"
		   "stdin, use -n. Signals that ask a program to stop (INT, TERM, HUP, QUIT) and "
		   "USR1, USR2\n"
		   "go to the command; the third of the first four also ends sandpool. When "
		   "sandpool ends,\n"
		   "the command is killed.\n\n"
		   "With --json, stdout is one object {\"result\", \"stdout\", \"stderr\", "
		   "\"encoding\"} at the\n"
		   "command's end; encoding is \"base64\" if one of the two is not UTF-8.\n\n"
		   "With --redis, ID may also be a lease; the token is needed (SANDPOOL_TOKEN, "
		   "--token-file),\n"
		   "because a host knows its tenants by nothing else.\n\n"
		   "Exit status: the command's; 128 + N if signal N ended it; 124 if --timeout "
		   "did; 126 or\n"
		   "127 if it could not be started; 137 if it was killed for its memory, its "
		   "output, or with\n"
		   "its sandbox; 125 if sandpool itself failed.\n\n"
		   "  sandpool exec $ID -- python3 -c 'print(1)'\n"
		   "  sandpool exec -t $ID bash\n"
		   "  tar c . | sandpool exec $ID -- tar x -C /workspace\n",
	.options = options,
	.over_redis = SP_CLI_REDIS_SERVED,
	.words_min = 2,
	.words_max = SIZE_MAX,
	.command = true,
	.run = run,
};
