/*
 * What the user wrote, as JSON. Durations and names go through as they are: the daemon knows its
 * rules better than an older client would. Checked here is only what has no JSON form (bytes that
 * are not UTF-8) or what would be lost in it (a variable given twice).
 */
#include "supervisor/cli/request.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define ID_DIGITS_MAX 10

static int refuse(struct sp_err *err, const char *what, const char *text, const char *why)
{
	return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL, "%s '%.200s' %s", what, text,
			   why);
}

/* ---- binds ---- */

#define OVERLAY_MODE "overlay"

/* ro, rw, overlay, overlay=SIZE. */
static bool take_mode(const char *text, size_t len, struct sp_cli_bind *bind)
{
	static const char *const modes[] = {"ro", "rw", OVERLAY_MODE};
	const size_t overlay_len = strlen(OVERLAY_MODE);

	for (size_t i = 0; i < SP_ARRAY_SIZE(modes); i++)
		if (len == strlen(modes[i]) && memcmp(text, modes[i], len) == 0) {
			bind->mode = modes[i];
			return true;
		}
	if (len <= overlay_len + 1 || memcmp(text, OVERLAY_MODE "=", overlay_len + 1) != 0)
		return false;
	bind->mode = OVERLAY_MODE;
	bind->size = text + overlay_len + 1;
	bind->size_len = len - overlay_len - 1;
	return true;
}

int sp_cli_bind_parse(const char *text, struct sp_cli_bind *ret_bind, struct sp_err *err)
{
	struct sp_cli_bind bind = {.source = text, .source_len = strcspn(text, ":")};
	const char *at = text + bind.source_len;

	if (text[0] != '/')
		return refuse(err, "--bind", text, "does not start with an absolute host path");
	while (*at == ':') {
		size_t len = strcspn(++at, ":");

		if (bind.mode)
			return refuse(err, "--bind", text, "has something behind the mode");
		if (take_mode(at, len, &bind)) {
			/* the last part */
		} else if (bind.target) {
			return refuse(err, "--bind", text,
				      "has a mode that is neither ro, rw nor overlay[=SIZE]");
		} else if (*at != '/') {
			return refuse(err, "--bind", text,
				      "has a part that is neither an absolute target nor ro, rw or "
				      "overlay[=SIZE] (a path with a colon cannot be bound)");
		} else {
			bind.target = at;
			bind.target_len = len;
		}
		at += len;
	}
	if (!bind.mode)
		bind.mode = "rw";
	*ret_bind = bind;
	return 0;
}

int sp_cli_overlay_parse(const char *text, struct sp_cli_bind *ret_bind, struct sp_err *err)
{
	struct sp_cli_bind bind = {
		.source = text,
		.source_len = strcspn(text, ":"),
		.mode = OVERLAY_MODE,
	};
	const char *at = text + bind.source_len;

	if (text[0] != '/')
		return refuse(err, "--overlay", text, "does not start with an absolute host path");
	while (*at == ':') {
		size_t len = strcspn(++at, ":");

		if (bind.size || len == 0)
			return refuse(err, "--overlay", text, "is not SRC[:DST][:SIZE]");
		if (*at != '/') {
			bind.size = at;
			bind.size_len = len;
		} else if (bind.target) {
			return refuse(err, "--overlay", text, "has two targets");
		} else {
			bind.target = at;
			bind.target_len = len;
		}
		at += len;
	}
	*ret_bind = bind;
	return 0;
}

static void write_bind(struct sp_cli_json *json, const struct sp_cli_bind *bind)
{
	sp_cli_json_open(json, '{');
	sp_cli_json_key(json, "source");
	sp_cli_json_text_len(json, bind->source, bind->source_len);
	if (bind->target) {
		sp_cli_json_key(json, "target");
		sp_cli_json_text_len(json, bind->target, bind->target_len);
	}
	sp_cli_json_member(json, "mode", bind->mode);
	if (bind->size) {
		sp_cli_json_key(json, "size");
		sp_cli_json_text_len(json, bind->size, bind->size_len);
	}
	sp_cli_json_close(json, '}');
}

static int write_each(struct sp_cli_json *json, const struct sp_cli_args *args,
		      const struct sp_cli_option *option,
		      int (*parse)(const char *text, struct sp_cli_bind *ret_bind,
				   struct sp_err *err),
		      struct sp_err *err)
{
	const char *text;
	size_t cursor = 0;

	while (option && (text = sp_cli_args_next(args, option, &cursor))) {
		struct sp_cli_bind bind = {.source = NULL};
		int status = parse(text, &bind, err);

		if (status < 0)
			return status;
		if (!sp_cli_utf8_valid(text, strlen(text)))
			return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
					   "the value of '--%s' is not UTF-8", option->name);
		write_bind(json, &bind);
	}
	return 0;
}

static int write_binds(struct sp_cli_json *json, const struct sp_cli_args *args,
		       const struct sp_cli_acquire_options *options, struct sp_err *err)
{
	bool binds = options->binds && sp_cli_args_has(args, options->binds);
	bool overlays = options->overlays && sp_cli_args_has(args, options->overlays);
	int status;

	if (!binds && !overlays)
		return 0;
	sp_cli_json_key(json, "binds");
	sp_cli_json_open(json, '[');
	status = write_each(json, args, options->binds, sp_cli_bind_parse, err);
	if (status == 0)
		status = write_each(json, args, options->overlays, sp_cli_overlay_parse, err);
	sp_cli_json_close(json, ']');
	return status;
}

/* ---- single values ---- */

static int write_text(struct sp_cli_json *json, const struct sp_cli_args *args,
		      const struct sp_cli_option *option, const char *key, struct sp_err *err)
{
	const char *value = option ? sp_cli_args_value(args, option) : NULL;

	if (!value)
		return 0;
	if (!sp_cli_utf8_valid(value, strlen(value)))
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "the value of '--%s' is not UTF-8", option->name);
	sp_cli_json_member(json, key, value);
	return 0;
}

int sp_cli_write_acquire(struct sp_cli_json *json, const struct sp_cli_args *args,
			 const struct sp_cli_acquire_options *options, struct sp_err *err)
{
	int status = write_text(json, args, options->policy, "policy", err);

	if (status == 0)
		status = write_text(json, args, options->wait, "wait", err);
	if (status == 0)
		status = write_text(json, args, options->ttl, "ttl", err);
	if (status == 0)
		status = write_text(json, args, options->min_remaining, "min_remaining", err);
	if (status == 0)
		status = write_text(json, args, options->lease, "lease", err);
	if (status == 0)
		status = write_binds(json, args, options, err);
	return status;
}

/* ---- environment, user ---- */

/* Whether an earlier --env sets the same name: JSON has no room for both. */
static bool set_before(const struct sp_cli_args *args, const struct sp_cli_option *option,
		       size_t before, const char *name, size_t len)
{
	const char *text;
	size_t cursor = 0;

	while ((text = sp_cli_args_next(args, option, &cursor)) && cursor < before)
		if (strncmp(text, name, len) == 0 && (text[len] == '=' || text[len] == '\0'))
			return true;
	return false;
}

static int write_variable(struct sp_cli_json *json, const char *text, struct sp_err *err)
{
	size_t len = strcspn(text, "=");
	char name[256];
	const char *value;

	if (len == 0 || len >= sizeof(name))
		return refuse(err, "--env", text, "has no name, or one beyond 255 bytes");
	memcpy(name, text, len);
	name[len] = '\0';
	value = text[len] == '=' ? text + len + 1 : getenv(name);
	if (!value)
		return refuse(err, "--env", text, "has no value, and the variable is not set here");
	if (!sp_cli_utf8_valid(name, len) || !sp_cli_utf8_valid(value, strlen(value)))
		return refuse(err, "--env", name, "is not UTF-8");
	sp_cli_json_member(json, name, value);
	return 0;
}

static int write_env(struct sp_cli_json *json, const struct sp_cli_args *args,
		     const struct sp_cli_option *option, struct sp_err *err)
{
	const char *text;
	size_t cursor = 0;

	if (!option || !sp_cli_args_has(args, option))
		return 0;
	sp_cli_json_key(json, "env");
	sp_cli_json_open(json, '{');
	while ((text = sp_cli_args_next(args, option, &cursor))) {
		int status = 0;

		if (set_before(args, option, cursor, text, strcspn(text, "=")))
			status = refuse(err, "--env", text, "sets a variable that is set already");
		if (status == 0)
			status = write_variable(json, text, err);
		if (status < 0)
			return status;
	}
	sp_cli_json_close(json, '}');
	return 0;
}

/* Digits up to the end or a ':'; returns what follows them, NULL if there are none. */
static const char *parse_id(const char *text, int64_t *ret_id)
{
	int64_t id = 0;
	size_t len = strspn(text, "0123456789");

	if (len == 0 || len > ID_DIGITS_MAX)
		return NULL;
	for (size_t i = 0; i < len; i++)
		id = id * 10 + (text[i] - '0');
	*ret_id = id;
	return id <= UINT32_MAX ? text + len : NULL;
}

static int write_user(struct sp_cli_json *json, const struct sp_cli_args *args,
		      const struct sp_cli_option *option, struct sp_err *err)
{
	const char *text = option ? sp_cli_args_value(args, option) : NULL;
	const char *rest;
	int64_t uid = 0;
	int64_t gid;

	if (!text)
		return 0;
	rest = parse_id(text, &uid);
	gid = uid;
	if (rest && *rest == ':')
		rest = parse_id(rest + 1, &gid);
	if (!rest || *rest != '\0')
		return refuse(err, "--user", text, "is not UID or UID:GID");
	sp_cli_json_key(json, "uid");
	sp_cli_json_number(json, uid);
	sp_cli_json_key(json, "gid");
	sp_cli_json_number(json, gid);
	return 0;
}

/* ---- START ---- */

static int write_argv(struct sp_cli_json *json, const struct sp_cli_command *command,
		      struct sp_err *err)
{
	sp_cli_json_key(json, "argv");
	sp_cli_json_open(json, '[');
	for (size_t i = 0; i < command->argc; i++) {
		size_t len = strlen(command->argv[i]);

		if (!sp_cli_utf8_valid(command->argv[i], len))
			return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
					   "word %zu of the command is not UTF-8", i + 1);
		sp_cli_json_text_len(json, command->argv[i], len);
	}
	sp_cli_json_close(json, ']');
	return 0;
}

int sp_cli_write_start(struct sp_cli_json *json, const struct sp_cli_args *args,
		       const struct sp_cli_start_options *options,
		       const struct sp_cli_command *command, struct sp_err *err)
{
	int status = write_argv(json, command, err);

	if (status == 0)
		status = write_text(json, args, options->cwd, "cwd", err);
	if (status == 0)
		status = write_text(json, args, options->timeout, "timeout", err);
	if (status == 0)
		status = write_env(json, args, options->env, err);
	if (status == 0)
		status = write_user(json, args, options->user, err);
	if (status < 0)
		return status;
	if (command->stdin_open) {
		sp_cli_json_key(json, "stdin");
		sp_cli_json_bool(json, true);
	}
	if (command->release) {
		sp_cli_json_key(json, "release");
		sp_cli_json_bool(json, true);
	}
	if (command->tty) {
		sp_cli_json_key(json, "tty");
		sp_cli_json_open(json, '{');
		sp_cli_json_key(json, "rows");
		sp_cli_json_number(json, command->rows);
		sp_cli_json_key(json, "columns");
		sp_cli_json_number(json, command->columns);
		sp_cli_json_close(json, '}');
	}
	return 0;
}

int sp_cli_json_finish(const struct sp_cli_json *json, const char *what, struct sp_err *err)
{
	if (json->status == -E2BIG)
		return sp_err_code(err, SP_CODE_PAYLOAD_TOO_LARGE, -E2BIG,
				   "%s is longer than 1 MiB as JSON", what);
	if (json->status < 0)
		return sp_err_set(err, json->status, "write %s", what);
	return 0;
}
