/*
 * From argv to a verb: global options, the verb's options, credentials, and how errors are said.
 *
 * Exit status: the verb's; 125 for everything that is our own error, so that `run` and `exec` can
 * pass the command's status through. With --json an error is one object {"code", "message"} on
 * stderr and stdout stays empty.
 */
#include "supervisor/cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/base/fd.h"
#include "supervisor/cli/redis.h"
#include "supervisor/cli/text.h"

#define OUTPUT_MAX (64u << 20)
/* Room for an option and its argument in a help text; what they mean stands behind it. */
#define OPTION_WIDTH 32

enum {
	GLOBAL_SOCKET,
	GLOBAL_API_KEY_FILE,
	GLOBAL_TOKEN_FILE,
	GLOBAL_TLS_CA,
	GLOBAL_REDIS,
	GLOBAL_REDIS_USER,
	GLOBAL_REDIS_PASSWORD,
	GLOBAL_REDIS_SENTINEL_PASSWORD,
	GLOBAL_REDIS_CA,
	GLOBAL_REDIS_CERT,
	GLOBAL_REDIS_KEY,
	GLOBAL_PREFIX,
	GLOBAL_JSON,
	GLOBAL_HELP,
	GLOBAL_END,
};

const struct sp_cli_option sp_cli_global_options[] = {
	[GLOBAL_SOCKET] = {"socket", 0, false, "ADDRESS",
			   "the daemon: PATH, tcp:// or tls://HOST:PORT [SANDPOOL_SOCKET]"},
	[GLOBAL_API_KEY_FILE] = {"api-key-file", 0, false, "FILE",
				 "API key for TCP [SANDPOOL_API_KEY: the key itself]"},
	[GLOBAL_TOKEN_FILE] = {"token-file", 0, false, "FILE",
			       "token of the sandbox [SANDPOOL_TOKEN: the token itself]"},
	[GLOBAL_TLS_CA] = {"tls-ca", 0, false, "FILE",
			   "whom tls:// daemons are certified by [SANDPOOL_TLS_CA]"},
	[GLOBAL_REDIS] = {"redis", 0, false, "URL",
			  "ask Redis instead of a daemon [SANDPOOL_REDIS]"},
	[GLOBAL_REDIS_USER] = {"redis-user", 0, false, "NAME",
			       "user of Redis [SANDPOOL_REDIS_USER]"},
	[GLOBAL_REDIS_PASSWORD] = {"redis-password-file", 0, false, "FILE",
				   "its password [SANDPOOL_REDIS_PASSWORD_FILE]"},
	[GLOBAL_REDIS_SENTINEL_PASSWORD] = {"redis-sentinel-password-file", 0, false, "FILE",
					    "the Sentinels' password "
					    "[SANDPOOL_REDIS_SENTINEL_PASSWORD_FILE]"},
	[GLOBAL_REDIS_CA] = {"redis-ca", 0, false, "FILE",
			     "whom a rediss:// server is certified by [SANDPOOL_REDIS_CA]"},
	[GLOBAL_REDIS_CERT] = {"redis-cert", 0, false, "FILE",
			       "our certificate for it [SANDPOOL_REDIS_CERT]"},
	[GLOBAL_REDIS_KEY] = {"redis-key", 0, false, "FILE",
			      "the key of that certificate [SANDPOOL_REDIS_KEY]"},
	[GLOBAL_PREFIX] = {"prefix", 0, false, "WORD",
			   "what all keys in Redis begin with [SANDPOOL_PREFIX; sandpool]"},
	[GLOBAL_JSON] = {"json", 0, false, NULL, "JSON on stdout, and errors as JSON on stderr"},
	[GLOBAL_HELP] = {"help", 'h', false, NULL, "this help"},
	[GLOBAL_END] = {0},
};

/* ---- saying things ---- */

static SP_NORETURN void die_of_memory(void)
{
	static const char message[] = "sandpool: out of memory\n";

	(void)sp_write_all(STDERR_FILENO, message, sizeof(message) - 1);
	exit(SP_CLI_EXIT_OURS);
}

void *sp_cli_xrealloc(void *memory, size_t size)
{
	void *moved = realloc(memory, size);

	if (!moved)
		die_of_memory();
	return moved;
}

char *sp_cli_xstrdup(const char *text)
{
	char *copy = strdup(text);

	if (!copy)
		die_of_memory();
	return copy;
}

void sp_cli_put(struct sp_buf *out, const char *format, ...)
{
	va_list args;
	char *room;
	int len;

	va_start(args, format);
	len = vsnprintf(NULL, 0, format, args);
	va_end(args);
	room = len < 0 ? NULL : sp_buf_reserve(out, (size_t)len);
	if (!room)
		die_of_memory();
	va_start(args, format);
	(void)vsnprintf(room, (size_t)len + 1, format, args);
	va_end(args);
	out->len += (size_t)len;
}

static void say(const struct sp_cli *cli, const char *code, const char *message)
{
	struct sp_cli_json json;
	struct sp_buf line;
	int status;

	sp_buf_init(&line, 4 * SP_KIB * SP_ERR_MESSAGE_MAX);
	if (cli->json) {
		sp_cli_json_init(&json, &line);
		sp_cli_json_open(&json, '{');
		sp_cli_json_member(&json, "code", code);
		sp_cli_json_key(&json, "message");
		if (sp_cli_utf8_valid(message, strlen(message)))
			sp_cli_json_text(&json, message);
		else
			sp_cli_json_text(&json, "(a message that is not UTF-8)");
		sp_cli_json_close(&json, '}');
		status = json.status;
	} else {
		status = sp_buf_printf(&line, cli->verb ? "sandpool %s: " : "sandpool: ",
				       cli->verb ? cli->verb->name : "");
		if (status == 0)
			status = sp_cli_append_printable(&line, message);
		if (status == 0 && code)
			status = sp_buf_printf(&line, " (%s)", code);
	}
	if (status == 0)
		status = sp_buf_append(&line, "\n", 1);
	/* With stderr gone there is nobody left to tell. */
	if (status == 0)
		(void)sp_write_all(STDERR_FILENO, line.data, line.len);
	sp_buf_done(&line);
}

int sp_cli_fail(const struct sp_cli *cli, const struct sp_err *err)
{
	enum sp_code code = sp_err_client_code(err);
	/* Of what we found out ourselves the message says it all; a daemon's code is worth showing.
	 */
	bool shown = cli->json || err->status == -EREMOTEIO;

	say(cli, shown ? sp_code_name(code) : NULL, err->message);
	return SP_CLI_EXIT_OURS;
}

int sp_cli_fail_usage(const struct sp_cli *cli, const char *format, ...)
{
	char text[SP_ERR_MESSAGE_MAX - 64]; /* with room for the pointer to help */
	struct sp_err err;
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (cli->json)
		(void)sp_err_code(&err, SP_CODE_INVALID_ARGUMENT, -EINVAL, "%s", text);
	else if (cli->verb)
		(void)sp_err_code(&err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				  "%s (see 'sandpool %s --help')", text, cli->verb->name);
	else
		(void)sp_err_code(&err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				  "%s (see 'sandpool help')", text);
	return sp_cli_fail(cli, &err);
}

void sp_cli_note(const struct sp_cli *cli, const char *text)
{
	if (!cli->json)
		say(cli, NULL, text);
}

int sp_cli_print(const struct sp_cli *cli, const char *data, size_t len)
{
	struct sp_err err;
	int status = sp_write_all(STDOUT_FILENO, data, len);

	if (status == -EPIPE)
		return SP_CLI_EXIT_PIPE;
	if (status < 0) {
		(void)sp_err_set(&err, status, "write to standard output");
		return sp_cli_fail(cli, &err);
	}
	return 0;
}

int sp_cli_print_buf(const struct sp_cli *cli, const struct sp_buf *buf)
{
	return sp_cli_print(cli, sp_buf_text(buf), buf->len);
}

/* ---- help ---- */

static void put_options(struct sp_buf *out, const struct sp_cli_option *options)
{
	for (; options && options->name; options++) {
		char left[64];

		(void)snprintf(left, sizeof(left), "%c%c%s --%s%s%s", options->letter ? '-' : ' ',
			       options->letter ? options->letter : ' ', options->letter ? "," : " ",
			       options->name, options->argument ? " " : "",
			       options->argument ? options->argument : "");
		/* One that leaves no gap has its explanation on the next line, in the same column.
		 */
		if (strlen(left) > OPTION_WIDTH)
			sp_cli_put(out, "  %s\n%*s %s\n", left, 2 + OPTION_WIDTH, "",
				   options->help);
		else
			sp_cli_put(out, "  %-*s %s\n", OPTION_WIDTH, left, options->help);
	}
}

static void put_verb_help(struct sp_buf *out, const struct sp_cli_verb *verb)
{
	sp_cli_put(out, "Usage: sandpool %s%s%s\n\n%c%s.\n\n", verb->name, *verb->usage ? " " : "",
		   verb->usage, toupper((unsigned char)verb->summary[0]), verb->summary + 1);
	sp_cli_put(out, "%s\n", verb->details);
	if (verb->options) {
		sp_cli_put(out, "Options:\n");
		put_options(out, verb->options);
		sp_cli_put(out, "\n");
	}
	sp_cli_put(out, "Options of every verb:\n");
	put_options(out, sp_cli_global_options);
}

static void put_program_help(struct sp_buf *out)
{
	sp_cli_put(out,
		   "Usage: sandpool [OPTIONS] VERB …\n\n"
		   "Runs untrusted code in warm, throw-away sandboxes of the local sandpoold.\n\n"
		   "  sandpool run -- python3 -c 'print(6*7)'\n\n"
		   "Verbs:\n");
	for (const struct sp_cli_verb *const *verb = sp_cli_verbs; *verb; verb++)
		sp_cli_put(out, "  %-9s %s\n", (*verb)->name, (*verb)->summary);
	sp_cli_put(out, "\nOptions of every verb:\n");
	put_options(out, sp_cli_global_options);
	sp_cli_put(out,
		   "\nExit status: the command's for run and exec, 128 + N if signal N ended it, "
		   "124 if its\ntime limit did, 126 or 127 if it could not be started; 125 for "
		   "every error of sandpool\nitself; 1 if doctor or 'config check' found "
		   "something.\n\n'sandpool help VERB' tells more.\n");
}

int sp_cli_help(const struct sp_cli *cli, const struct sp_cli_verb *verb)
{
	struct sp_buf out;
	int exit_code;

	sp_buf_init(&out, OUTPUT_MAX);
	if (verb)
		put_verb_help(&out, verb);
	else
		put_program_help(&out);
	exit_code = sp_cli_print_buf(cli, &out);
	sp_buf_done(&out);
	return exit_code;
}

const struct sp_cli_verb *sp_cli_verb_find(const char *name)
{
	for (const struct sp_cli_verb *const *verb = sp_cli_verbs; *verb; verb++)
		if (strcmp((*verb)->name, name) == 0)
			return *verb;
	return NULL;
}

int sp_cli_fail_unknown_verb(const struct sp_cli *cli, const char *name)
{
	const char *names[32] = {NULL};
	const char *guess;

	for (size_t i = 0; sp_cli_verbs[i] && i + 1 < SP_ARRAY_SIZE(names); i++)
		names[i] = sp_cli_verbs[i]->name;
	guess = sp_cli_suggest(name, names);
	if (guess)
		return sp_cli_fail_usage(cli, "unknown verb '%.64s', did you mean '%s'?", name,
					 guess);
	return sp_cli_fail_usage(cli, "unknown verb '%.64s'", name);
}

/* ---- dispatch ---- */

static bool has(const struct sp_cli *cli, int option)
{
	return sp_cli_args_has(&cli->args, &sp_cli_global_options[option]);
}

/* An option, else a variable of the environment; an empty variable counts as unset. */
static const char *setting(const struct sp_cli *cli, int option, const char *variable)
{
	const char *value = sp_cli_args_value(&cli->args, &sp_cli_global_options[option]);

	if (value)
		return value;
	value = getenv(variable);
	return value && value[0] ? value : NULL;
}

static int set_credential(const struct sp_cli *cli, int option, const char *variable,
			  char *credential, struct sp_err *err)
{
	const char *file = sp_cli_args_value(&cli->args, &sp_cli_global_options[option]);
	const char *value = getenv(variable);

	if (file)
		return sp_cli_credential_read(file, credential, err);
	if (value && value[0])
		return sp_cli_credential_set(variable, value, credential, err);
	return 0;
}

static int set_up_redis(struct sp_cli *cli, const char *url, struct sp_err *err)
{
	const char *prefix = setting(cli, GLOBAL_PREFIX, "SANDPOOL_PREFIX");

	cli->over_redis = true;
	cli->redis = (struct sp_cli_redis_settings){
		.url = url,
		.user = setting(cli, GLOBAL_REDIS_USER, "SANDPOOL_REDIS_USER"),
		.password_file =
			setting(cli, GLOBAL_REDIS_PASSWORD, "SANDPOOL_REDIS_PASSWORD_FILE"),
		.sentinel_password_file = setting(cli, GLOBAL_REDIS_SENTINEL_PASSWORD,
						  "SANDPOOL_REDIS_SENTINEL_PASSWORD_FILE"),
		.ca_file = setting(cli, GLOBAL_REDIS_CA, "SANDPOOL_REDIS_CA"),
		.cert_file = setting(cli, GLOBAL_REDIS_CERT, "SANDPOOL_REDIS_CERT"),
		.key_file = setting(cli, GLOBAL_REDIS_KEY, "SANDPOOL_REDIS_KEY"),
		.prefix = prefix ? prefix : SP_CLI_REDIS_PREFIX_DEFAULT,
	};
	if (cli->verb->over_redis == SP_CLI_REDIS_REFUSED)
		return sp_err_code(err, SP_CODE_UNSUPPORTED, -EOPNOTSUPP,
				   "only a daemon can answer this, Redis does not hold it: name "
				   "one with --socket (Redis is named by %s)",
				   has(cli, GLOBAL_REDIS) ? "--redis" : "SANDPOOL_REDIS");
	return sp_cli_redis_prefix_check(cli->redis.prefix, err);
}

/* Whom to ask: a Redis that is named as an option; a daemon that is named; a Redis that only the
 * environment names; the daemon of this host. */
static int set_up_address(struct sp_cli *cli, struct sp_err *err)
{
	const char *redis = setting(cli, GLOBAL_REDIS, "SANDPOOL_REDIS");
	const char *address = setting(cli, GLOBAL_SOCKET, "SANDPOOL_SOCKET");

	if (has(cli, GLOBAL_REDIS) && has(cli, GLOBAL_SOCKET))
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "--redis and --socket exclude each other");
	if (redis && cli->verb->over_redis != SP_CLI_REDIS_IGNORED &&
	    (has(cli, GLOBAL_REDIS) || !address))
		return set_up_redis(cli, redis, err);
	return sp_cli_endpoint_parse(address ? address : SP_CLI_SOCKET_DEFAULT,
				     &cli->client.endpoint, err);
}

static int set_up_client(struct sp_cli *cli, struct sp_err *err)
{
	int status = set_up_address(cli, err);

	cli->client.remote = cli->remote;
	cli->client.tls_ca_file = setting(cli, GLOBAL_TLS_CA, "SANDPOOL_TLS_CA");
	if (status == 0)
		status = set_credential(cli, GLOBAL_API_KEY_FILE, "SANDPOOL_API_KEY",
					cli->client.api_key, err);
	if (status == 0)
		status = set_credential(cli, GLOBAL_TOKEN_FILE, "SANDPOOL_TOKEN", cli->client.token,
					err);
	if (status == 0 && !cli->remote && (cli->over_redis || cli->client.endpoint.tls))
		status = sp_cli_become_remote(cli, err);
	return status;
}

/* Errors of parsing must already be JSON if that was asked for, wherever --json stands. */
static bool asks_for_json(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (strcmp(argv[i], "--json") == 0)
			return true;
	return false;
}

static int check_words(const struct sp_cli *cli)
{
	const struct sp_cli_verb *verb = cli->verb;

	if (cli->args.word_count < verb->words_min)
		return sp_cli_fail_usage(cli, "too few arguments: %s %s", verb->name, verb->usage);
	if (cli->args.word_count > verb->words_max)
		return sp_cli_fail_usage(cli, "unexpected argument '%.64s'",
					 cli->args.words[verb->words_max]);
	return 0;
}

static int run_verb(struct sp_cli *cli, int argc, char **argv)
{
	struct sp_err err = {0};
	int exit_code;

	if (sp_cli_args_parse(&cli->args, cli->verb->options, sp_cli_global_options,
			      cli->verb->command, argc, argv, &err) < 0)
		return sp_cli_fail_usage(cli, "%s", err.message);
	cli->json = has(cli, GLOBAL_JSON);
	if (has(cli, GLOBAL_HELP))
		return sp_cli_help(cli, cli->verb);
	exit_code = check_words(cli);
	if (exit_code != 0)
		return exit_code;
	if (set_up_client(cli, &err) < 0)
		return sp_cli_fail(cli, &err);
	exit_code = cli->verb->run(cli);
	sp_cli_redis_close(cli);
	return exit_code;
}

static int dispatch(struct sp_cli *cli, int argc, char **argv)
{
	struct sp_err err = {0};
	char **words;
	int left;

	if (sp_cli_args_parse(&cli->args, NULL, sp_cli_global_options, true, argc, argv, &err) < 0)
		return sp_cli_fail_usage(cli, "%s", err.message);
	words = cli->args.words;
	left = (int)cli->args.word_count;
	if (has(cli, GLOBAL_HELP))
		return sp_cli_help(cli, NULL);
	if (left == 0)
		return sp_cli_fail_usage(cli, "a verb is missing");
	cli->verb = sp_cli_verb_find(words[0]);
	if (!cli->verb)
		return sp_cli_fail_unknown_verb(cli, words[0]);
	return run_verb(cli, left, words);
}

int sp_cli_main(int argc, char **argv, const struct sp_cli_remote *remote)
{
	struct sp_cli cli = {.json = asks_for_json(argc, argv), .remote = remote};
	int exit_code;

	/* Parsing sorts argv; whoever takes over from here gets it as we did. */
	cli.argv_given = sp_cli_xrealloc(NULL, ((size_t)argc + 1) * sizeof(*argv));
	memcpy(cli.argv_given, argv, ((size_t)argc + 1) * sizeof(*argv));
	if (sp_cli_args_init(&cli.args, argc) < 0)
		die_of_memory();
	exit_code = dispatch(&cli, argc, argv);
	sp_cli_args_done(&cli.args);
	free(cli.argv_given);
	return exit_code;
}
