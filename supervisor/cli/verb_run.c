/*
 * sandpool run: a command in a fresh sandbox, which is gone afterwards.
 *
 * Plain: one round trip. The upgrade of POST /v1/pools/{pool}/run and the START travel together;
 * the daemon acquires, runs and releases, and a connection that ends early cancels all of it.
 *
 * With --file the local file has to be there first, so it is three steps: acquire, an exec that
 * writes the file (`cat`, with the file as its stdin) and on the same connection the command, and
 * release. If we are killed between them the sandbox lives until its lease ends.
 *
 * With an overlay whose changes somebody wants (--diff, --commit) or that somebody is asked about
 * (--check) it is steps as well: the command's stream stays open until the changes are fetched and
 * written back, so that the sandbox and all that is in it goes with us whatever ends us. Its lease
 * is renewed meanwhile: what it has left of its idle life says nothing about the command's.
 *
 * Over Redis it is acquire, exec, release, too, and whoever has the sandbox cannot see us go. So
 * the lease is short and renewed while the command runs: killed, we leave a sandbox for a minute.
 */
#include "supervisor/cli/session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "pool/base/fd.h"
#include "supervisor/cli/overlay.h"
#include "supervisor/cli/redis.h"

#define FILE_DIR           "/workspace/"
#define FILE_PLACEHOLDER   "{}"
#define RELEASE_TIMEOUT_MS (5 * SP_MS_PER_S)
#define LEASE_MS           (60 * SP_MS_PER_S) /* over Redis, and with overlays */
#define LEASE_TEXT         "60s"
#define COMMIT_LEASE_TEXT  "1h"
#define RENEW_MS           (LEASE_MS / 3)
#define RENEW_TIMEOUT_MS   (2 * SP_MS_PER_S) /* the command's output stands still meanwhile */

enum {
	OPTION_POOL,
	OPTION_TIMEOUT,
	OPTION_BIND,
	OPTION_OVERLAY,
	OPTION_DIFF,
	OPTION_COMMIT,
	OPTION_CHECK,
	OPTION_ENV,
	OPTION_CWD,
	OPTION_FILE,
	OPTION_INTERACTIVE,
	OPTION_NO_STDIN,
	OPTION_TTY,
	OPTION_USER,
	OPTION_POLICY,
	OPTION_WAIT,
	OPTION_MIN_REMAINING,
	OPTION_QUIET,
	OPTION_END,
};

static const struct sp_cli_option options[] = {
	[OPTION_POOL] = {"pool", 'p', false, "NAME", "pool to take the sandbox from [default]"},
	[OPTION_TIMEOUT] = {"timeout", 0, false, "TIME", "kill the command after TIME (3s, 5m)"},
	[OPTION_BIND] = {"bind", 'b', true, "SRC[:DST][:MODE]",
			 "show a host directory: ro, rw [rw], overlay[=SIZE]"},
	[OPTION_OVERLAY] = {"overlay", 'o', true, "SRC[:DST][:SIZE]",
			    "show a host directory; what is written stays in the sandbox"},
	[OPTION_DIFF] = {"diff", 0, false, "FILE",
			 "afterwards, what was written in the overlay, as a tar.gz"},
	[OPTION_COMMIT] = {"commit", 0, false, NULL,
			   "write overlays back if the command ends with status 0"},
	[OPTION_CHECK] = {"check", 0, false, "PROGRAM",
			  "ask 'PROGRAM start|commit SRC' right before either"},
	[OPTION_ENV] = {"env", 'e', true, "NAME[=VALUE]",
			"set a variable (without =VALUE: as it is here)"},
	[OPTION_CWD] = {"cwd", 'C', false, "DIR", "working directory in the sandbox"},
	[OPTION_FILE] = {"file", 'f', false, "FILE", "copy FILE to /workspace and run it"},
	[OPTION_INTERACTIVE] = {"interactive", 'i', false, NULL,
				"stream stdin even if it is a terminal"},
	[OPTION_NO_STDIN] = {"no-stdin", 'n', false, NULL,
			     "leave our stdin alone; the command reads /dev/null"},
	[OPTION_TTY] = {"tty", 't', false, NULL, "give the command a terminal"},
	[OPTION_USER] = {"user", 'u', false, "UID[:GID]", "run as that user of the sandbox"},
	[OPTION_POLICY] = {"policy", 0, false, "POLICY",
			   "when none is idle: fail_fast, wait, create, …"},
	[OPTION_WAIT] = {"wait", 0, false, "TIME", "how long to wait for a sandbox"},
	[OPTION_MIN_REMAINING] = {"min-remaining", 0, false, "TIME",
				  "take only a sandbox that lives at least TIME more"},
	[OPTION_QUIET] = {"quiet", 'q', false, NULL, "do not say why the command was killed"},
	[OPTION_END] = {0},
};

static const struct sp_cli_start_options start_options = {
	.cwd = &options[OPTION_CWD],
	.env = &options[OPTION_ENV],
	.user = &options[OPTION_USER],
	.timeout = &options[OPTION_TIMEOUT],
};

static const struct sp_cli_acquire_options acquire_options = {
	.policy = &options[OPTION_POLICY],
	.wait = &options[OPTION_WAIT],
	.min_remaining = &options[OPTION_MIN_REMAINING],
	.binds = &options[OPTION_BIND],
	.overlays = &options[OPTION_OVERLAY],
};

/* A START; with the members of an acquire when the exec itself is to bring the sandbox. */
static int write_frame(const struct sp_cli_session *session, const struct sp_cli_command *command,
		       bool acquires, struct sp_buf *frame, struct sp_err *err)
{
	struct sp_cli_json json;
	int status = sp_cli_frame_begin(frame, err);

	if (status < 0)
		return status;
	sp_cli_json_init(&json, frame);
	sp_cli_json_open(&json, '{');
	status = sp_cli_write_start(&json, &session->cli->args, &start_options, command, err);
	if (status == 0 && acquires)
		status = sp_cli_write_acquire(&json, &session->cli->args, &acquire_options, err);
	sp_cli_json_close(&json, '}');
	if (status == 0)
		status = sp_cli_json_finish(&json, "the command", err);
	if (status == 0)
		sp_cli_frame_finish(frame);
	return status;
}

static const char *pool_name(const struct sp_cli *cli)
{
	const char *name = sp_cli_args_value(&cli->args, &options[OPTION_POOL]);

	return name ? name : SP_CLI_POOL_DEFAULT;
}

static int run_plain(struct sp_cli_session *session)
{
	struct sp_cli *cli = session->cli;
	struct sp_cli_command command =
		sp_cli_session_command(session, cli->args.words, cli->args.word_count);
	struct sp_err err = {0};
	struct sp_buf frame;
	struct sp_buf target;
	int exit_code;

	sp_buf_init(&target, SP_CLI_REQUEST_MAX);
	if (write_frame(session, &command, true, &frame, &err) < 0 ||
	    sp_cli_target(&target, "/v1/pools/", pool_name(cli), "/run", &err) < 0)
		exit_code = sp_cli_fail(cli, &err);
	else
		exit_code = sp_cli_session_run(session, sp_buf_text(&target), &frame);
	sp_buf_done(&target);
	sp_buf_done(&frame);
	return exit_code;
}

/* ---- in steps: --file, Redis ---- */

struct step_run {
	struct sp_cli_session *session;
	int fd;      /* of the file; -1 without --file */
	char *path;  /* in the sandbox */
	char **argv; /* of the command; the array is ours, the words are not */
	size_t argc;
	struct sp_buf target;            /* /v1/sandboxes/{id} */
	struct sp_cli_overlays overlays; /* of the sandbox, where somebody asks for them */
};

static int open_file(struct step_run *run, const char *name, struct sp_err *err)
{
	const char *slash = strrchr(name, '/');
	const char *base = slash ? slash + 1 : name;
	struct stat status;

	run->fd = open(name, O_RDONLY | O_CLOEXEC);
	if (run->fd < 0)
		return sp_err_set(err, -errno, "open '%s'", name);
	if (fstat(run->fd, &status) == 0 && S_ISDIR(status.st_mode))
		return sp_err_set(err, -EISDIR, "read '%s'", name);
	run->path = malloc(sizeof(FILE_DIR) + strlen(base));
	if (!run->path)
		return sp_err_set(err, -ENOMEM, "read '%s'", name);
	memcpy(run->path, FILE_DIR, sizeof(FILE_DIR) - 1);
	memcpy(run->path + sizeof(FILE_DIR) - 1, base, strlen(base) + 1);
	return 0;
}

/* The path takes the place of every {}; without one it comes behind the first word; without any
 * word the file itself is the program. */
static int build_argv(struct step_run *run, char **words, size_t count, struct sp_err *err)
{
	bool placed = count == 0;

	run->argv = calloc(count + 2, sizeof(*run->argv));
	if (!run->argv)
		return sp_err_set(err, -ENOMEM, "build the command");
	if (count == 0)
		run->argv[run->argc++] = run->path;
	for (size_t i = 0; i < count; i++)
		placed = placed || strcmp(words[i], FILE_PLACEHOLDER) == 0;
	for (size_t i = 0; i < count; i++) {
		bool here = strcmp(words[i], FILE_PLACEHOLDER) == 0;

		run->argv[run->argc++] = here ? run->path : words[i];
		if (i == 0 && !placed)
			run->argv[run->argc++] = run->path;
	}
	return 0;
}

static int acquire_over_redis(struct step_run *run, struct sp_err *err)
{
	struct sp_cli *cli = run->session->cli;
	struct sp_cli_answer answer = {.root = NULL};
	struct sp_cli_wish wish;
	int status = sp_cli_wish_read(cli, &acquire_options, pool_name(cli), &wish, err);

	if (status == 0) {
		wish.ttl_ms = LEASE_MS;
		status = sp_cli_redis_acquire(cli, &wish, &answer, err);
		explicit_bzero(wish.secret, sizeof(wish.secret));
	}
	if (status == 0)
		status = sp_cli_target(&run->target, "/v1/sandboxes/",
				       sp_cli_member_text(answer.root, "id"), "", err);
	sp_cli_answer_done(&answer);
	return status;
}

static int renew_by(const struct step_run *run, const char *ttl)
{
	struct sp_err err = {0};
	struct sp_buf target;
	struct sp_buf answer;
	struct sp_buf body;
	int status;

	sp_buf_init(&target, SP_CLI_REQUEST_MAX);
	sp_buf_init(&answer, SP_CLI_REQUEST_MAX);
	sp_buf_init(&body, SP_CLI_REQUEST_MAX);
	sp_cli_put(&target, "%s/renew", sp_buf_text(&run->target));
	sp_cli_put(&body, "{\"ttl\":\"%s\"}", ttl);
	status = sp_cli_client_call(&run->session->cli->client, "POST", sp_buf_text(&target), &body,
				    RENEW_TIMEOUT_MS, &answer, &err);
	sp_buf_done(&target);
	sp_buf_done(&answer);
	sp_buf_done(&body);
	return status;
}

/* Failing is no end: the host will tell by ending the command, and next time it may work. */
static void renew(void *arg)
{
	(void)renew_by(arg, LEASE_TEXT);
}

/* The daemon may have got it from another host. It does not know when that one was made, and what
 * happens in it is asked of its own. */
static int follow(struct sp_cli *cli, const json_t *sandbox, struct sp_err *err)
{
	const char *endpoint = json_string_value(json_object_get(sandbox, "endpoint"));

	if (json_object_get(sandbox, "created_at") || !endpoint)
		return 0;
	return sp_cli_endpoint_parse(endpoint, &cli->client.endpoint, err);
}

static int acquire(struct step_run *run, struct sp_err *err)
{
	struct sp_cli *cli = run->session->cli;
	struct sp_cli_json json;
	struct sp_buf body;
	struct sp_buf answer;
	struct sp_buf target;
	const char *token;
	const char *id;
	json_t *root;
	int status;

	sp_buf_init(&body, SP_CLI_REQUEST_MAX);
	sp_buf_init(&answer, SP_CLI_REQUEST_MAX);
	sp_buf_init(&target, SP_CLI_REQUEST_MAX);
	sp_cli_json_init(&json, &body);
	sp_cli_json_open(&json, '{');
	status = sp_cli_write_acquire(&json, &cli->args, &acquire_options, err);
	sp_cli_json_close(&json, '}');
	if (status == 0)
		status = sp_cli_json_finish(&json, "the request", err);
	if (status == 0)
		status = sp_cli_target(&target, "/v1/pools/", pool_name(cli), "/acquire", err);
	if (status == 0)
		status = sp_cli_client_call(&cli->client, "POST", sp_buf_text(&target), &body, -1,
					    &answer, err);
	root = json_loadb(sp_buf_text(&answer), answer.len, 0, NULL);
	id = json_string_value(json_object_get(root, "id"));
	token = json_string_value(json_object_get(root, "token"));
	if (status == 0 && (!id || !token))
		status = sp_err_code(err, SP_CODE_PROTOCOL, -EPROTO,
				     "the daemon answered an acquire without id and token");
	if (status == 0)
		status =
			sp_cli_credential_set("the sandbox's token", token, cli->client.token, err);
	if (status == 0)
		status = follow(cli, root, err);
	if (status == 0)
		status = sp_cli_target(&run->target, "/v1/sandboxes/", id, "", err);
	json_decref(root);
	sp_buf_done(&target);
	sp_buf_done(&answer);
	sp_buf_done(&body);
	return status;
}

static void release(const struct step_run *run)
{
	struct sp_cli *cli = run->session->cli;
	struct sp_err err = {0};
	struct sp_buf answer;

	if (run->target.len == 0)
		return;
	/* It may have ended by itself meanwhile: then there is nothing to do. */
	if (sp_cli_client_call(&cli->client, "DELETE", sp_buf_text(&run->target), NULL,
			       RELEASE_TIMEOUT_MS, &answer, &err) < 0 &&
	    err.code != SP_CODE_NOT_FOUND && err.code != SP_CODE_SANDBOX_DEAD)
		sp_cli_note(cli, err.message);
	sp_buf_done(&answer);
}

/* Open the stream with the exec that takes the file from its stdin. */
static int upload(struct step_run *run, struct sp_err *err)
{
	char *argv[] = {(char[]){"/bin/sh"}, (char[]){"-c"},
			(char[]){"cat >\"$1\" && chmod 755 \"$1\""}, (char[]){"sh"}, run->path};
	struct sp_cli_command command = {
		.argv = argv, .argc = SP_ARRAY_SIZE(argv), .stdin_open = true, .release = true};
	static const struct sp_cli_args no_options;
	struct sp_cli_stream *stream = &run->session->stream;
	struct sp_cli_json json;
	struct sp_buf frame;
	struct sp_buf target;
	int status;

	sp_buf_init(&target, SP_CLI_REQUEST_MAX);
	status = sp_cli_frame_begin(&frame, err);
	if (status == 0) {
		sp_cli_json_init(&json, &frame);
		sp_cli_json_open(&json, '{');
		status = sp_cli_write_start(&json, &no_options, &start_options, &command, err);
		sp_cli_json_close(&json, '}');
	}
	if (status == 0)
		status = sp_cli_json_finish(&json, "the command", err);
	if (status == 0)
		status = sp_buf_printf(&target, "%s/exec", sp_buf_text(&run->target));
	if (status == 0) {
		sp_cli_frame_finish(&frame);
		status = sp_cli_stream_open(stream, &run->session->cli->client,
					    sp_buf_text(&target), &frame, err);
	}
	sp_buf_done(&target);
	sp_buf_done(&frame);
	return status;
}

static int carry_upload(struct step_run *run, struct sp_err *err)
{
	struct sp_cli_session *session = run->session;
	struct sp_cli_sink complaint;
	struct sp_cli_outcome outcome;
	struct sp_cli_exec exec = {.stdin_fd = run->fd, .sinks = {&complaint, &complaint}};
	int status = sp_cli_stream_take_signals(&session->stream, session->tty, err);

	sp_cli_sink_init(&complaint, STDERR_FILENO, true);
	if (status == 0)
		status = sp_cli_stream_exec(&session->stream, &exec, &outcome, NULL, err);
	if (status == 0 && sp_cli_outcome_exit_code(&outcome) != 0)
		status = sp_err_code(err, SP_CODE_UNAVAILABLE, -EIO,
				     "copy the file to '%s': %s %.200s", run->path, outcome.reason,
				     sp_buf_text(&complaint.captured));
	sp_cli_sink_done(&complaint);
	return status;
}

static int carry_command(struct step_run *run, struct sp_err *err)
{
	struct sp_cli_session *session = run->session;
	struct sp_cli_command command = sp_cli_session_command(session, run->argv, run->argc);
	struct sp_buf target;
	struct sp_buf frame;
	int status;

	command.release = true; /* also when we are killed */
	status = write_frame(session, &command, false, &frame, err);
	sp_buf_init(&target, SP_CLI_REQUEST_MAX);
	if (status == 0 && run->fd >= 0) {
		status = sp_cli_stream_start(&session->stream, &frame, err);
	} else if (status == 0) {
		sp_cli_put(&target, "%s/exec", sp_buf_text(&run->target));
		status = sp_cli_stream_open(&session->stream, &session->cli->client,
					    sp_buf_text(&target), &frame, err);
	}
	sp_buf_done(&target);
	sp_buf_done(&frame);
	return status < 0 ? status : sp_cli_session_carry(session);
}

/* ---- overlays ---- */

static bool wants_overlays(const struct sp_cli_args *args)
{
	return sp_cli_args_has(args, &options[OPTION_DIFF]) ||
	       sp_cli_args_has(args, &options[OPTION_COMMIT]) ||
	       sp_cli_args_has(args, &options[OPTION_CHECK]);
}

/* One program is asked about each of them. */
static int check_overlays(struct step_run *run, const char *when, struct sp_err *err)
{
	const char *program = sp_cli_args_value(&run->session->cli->args, &options[OPTION_CHECK]);
	const struct sp_cli_tick tick = {.call = renew, .arg = run, .every_ms = RENEW_MS};
	int status = 0;

	for (size_t i = 0; program && status == 0 && i < run->overlays.count; i++)
		status =
			sp_cli_overlay_check(program, when, run->overlays.at[i].source, &tick, err);
	return status;
}

/* The last thing before the command starts. */
static int begin_overlays(struct step_run *run, struct sp_err *err)
{
	struct sp_cli *cli = run->session->cli;
	bool diff = sp_cli_args_has(&cli->args, &options[OPTION_DIFF]);
	int status = sp_cli_overlays_get(cli, sp_buf_text(&run->target), &run->overlays, err);

	if (status == 0 && run->overlays.count == 0)
		status = sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				     "--diff, --commit and --check are about an --overlay");
	if (status == 0 && diff && run->overlays.count > 1)
		status = sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				     "--diff is of one overlay, and there are %zu",
				     run->overlays.count);
	if (status < 0)
		return status;
	renew(run);
	status = check_overlays(run, "start", err);
	if (status == 0)
		renew(run);
	return status;
}

/* Nobody renews while a commit is waited for, which takes as long as there is to write. The stream
 * is open, so the sandbox goes with us however long its lease is. */
static void renew_for_commit(struct step_run *run)
{
	if (renew_by(run, COMMIT_LEASE_TEXT) < 0)
		renew(run); /* beyond the pool's max_lease */
}

static int commit_overlays(struct step_run *run, struct sp_err *err)
{
	struct sp_cli_session *session = run->session;
	int status = check_overlays(run, "commit", err);

	for (size_t i = 0; status == 0 && i < run->overlays.count; i++) {
		struct sp_buf said;

		renew_for_commit(run);
		sp_buf_init(&said, SP_CLI_REQUEST_MAX);
		status = sp_cli_overlay_commit(session->cli, sp_buf_text(&run->target),
					       &run->overlays.at[i], &said, err);
		if (status == 0 && !session->quiet)
			sp_cli_note(session->cli, sp_buf_text(&said));
		sp_buf_done(&said);
	}
	return status;
}

/* The command has ended. Its exit status is ours, unless what was asked for cannot be done. */
static int end_overlays(struct step_run *run, int exit_code)
{
	struct sp_cli *cli = run->session->cli;
	const char *diff = sp_cli_args_value(&cli->args, &options[OPTION_DIFF]);
	struct sp_err err = {0};
	int status = 0;

	renew(run);
	if (diff)
		status = sp_cli_overlay_diff(cli, sp_buf_text(&run->target), &run->overlays.at[0],
					     diff, &err);
	if (status == 0 && exit_code == 0 && sp_cli_args_has(&cli->args, &options[OPTION_COMMIT]))
		status = commit_overlays(run, &err);
	if (status == 0)
		return exit_code;
	(void)sp_cli_fail(cli, &err);
	return exit_code == 0 ? SP_CLI_EXIT_OURS : exit_code;
}

static int prepare(struct step_run *run, const char *file, struct sp_err *err)
{
	const struct sp_cli_args *args = &run->session->cli->args;
	int status;

	if (!file) {
		run->argc = args->word_count;
		run->argv = calloc(run->argc, sizeof(*run->argv));
		if (!run->argv)
			return sp_err_set(err, -ENOMEM, "build the command");
		memcpy(run->argv, args->words, run->argc * sizeof(*run->argv));
		return 0;
	}
	status = open_file(run, file, err);
	return status < 0 ? status : build_argv(run, args->words, args->word_count, err);
}

static int run_in_steps(struct sp_cli_session *session, const char *file)
{
	struct sp_cli *cli = session->cli;
	struct step_run run = {.session = session, .fd = -1};
	bool overlays = wants_overlays(&cli->args);
	struct sp_err err = {0};
	int exit_code;
	int status;

	sp_buf_init(&run.target, SP_CLI_REQUEST_MAX);
	if (cli->over_redis || overlays) {
		session->tick = renew;
		session->tick_arg = &run;
		session->tick_ms = RENEW_MS;
	}
	status = prepare(&run, file, &err);
	if (status == 0)
		status = cli->over_redis ? acquire_over_redis(&run, &err) : acquire(&run, &err);
	if (status == 0 && file)
		status = upload(&run, &err);
	if (status == 0 && file)
		status = carry_upload(&run, &err);
	if (status == 0 && overlays)
		status = begin_overlays(&run, &err);
	if (status == 0)
		status = carry_command(&run, &err);
	exit_code = status < 0 ? sp_cli_session_failed(session, status, &err) : status;
	if (status >= 0 && overlays)
		exit_code = end_overlays(&run, exit_code);
	sp_cli_overlays_done(&run.overlays);
	release(&run);
	sp_cli_stream_close(&session->stream);
	sp_buf_done(&run.target);
	sp_fd_close(&run.fd);
	free(run.argv);
	free(run.path);
	return exit_code;
}

static int run(struct sp_cli *cli)
{
	const struct sp_cli_args *args = &cli->args;
	const char *file = sp_cli_args_value(args, &options[OPTION_FILE]);
	struct sp_cli_session session;

	if (args->word_count == 0 && !file)
		return sp_cli_fail_usage(cli, "a command is missing");
	if (cli->json && sp_cli_args_has(args, &options[OPTION_TTY]))
		return sp_cli_fail_usage(cli, "--json and --tty exclude each other");
	sp_cli_session_init(&session, cli, sp_cli_args_has(args, &options[OPTION_INTERACTIVE]),
			    sp_cli_args_has(args, &options[OPTION_NO_STDIN]),
			    sp_cli_args_has(args, &options[OPTION_TTY]));
	session.quiet = sp_cli_args_has(args, &options[OPTION_QUIET]);
	return file || cli->over_redis || wants_overlays(args) ? run_in_steps(&session, file)
							       : run_plain(&session);
}

const struct sp_cli_verb sp_cli_verb_run = {
	.name = "run",
	.usage = "[OPTIONS] [--] COMMAND [ARGUMENT…]",
	.summary = "run a command in a fresh sandbox, which is gone afterwards",
	.details =
		"stdin, stdout, stderr, signals and the exit status are as for 'sandpool exec'.\n\n"
		"--bind may be given several times. SRC must lie below an allowed_binds entry of "
		"the\n"
		"pool; DST is SRC unless given.\n\n"
		"--file copies a local file to /workspace/NAME. That path is put behind the first "
		"word of\n"
		"the command, or wherever the command has {}. Without a command the file is run "
		"itself\n"
		"and needs a #! line.\n\n"
		"--overlay shows SRC as it is and takes what is written for the sandbox alone, in "
		"at most\n"
		"SIZE bytes of memory [limits.tmp of the pool]; with the sandbox it is gone. "
		"--commit writes it\n"
		"back, all of it or nothing, if the command ended by itself with status 0 and "
		"nobody "
		"else has\n"
		"changed SRC meanwhile. --diff writes it to FILE, whatever the status. --check "
		"PROGRAM "
		"is asked\n"
		"right before the command starts and right before it is written back, and refuses "
		"either by\n"
		"an exit status other than 0 (ours is 125 then).\n\n"
		"With --redis the sandbox comes from whichever host has one; --bind and "
		"--overlay are\n"
		"refused then.\n\n"
		"  sandpool run -- python3 -c 'print(6*7)'\n"
		"  sandpool run --timeout 3s --file solution.py python3 --verbose\n"
		"  sandpool run --file main.c -- sh -c 'cc -o /tmp/a \"$0\" && /tmp/a' {}\n"
		"  sandpool run --bind /srv/sessions/7:/data:ro -- ls -l /data\n"
		"  sandpool run --overlay /srv/project:/workspace --commit -- make\n"
		"  echo 1+1 | sandpool run bc\n",
	.options = options,
	.over_redis = SP_CLI_REDIS_SERVED,
	.words_min = 0,
	.words_max = SIZE_MAX,
	.command = true,
	.run = run,
};
