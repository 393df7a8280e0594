/*
 * From options to the JSON of acquire and START (api/README.md).
 */
#ifndef SP_CLI_REQUEST_H
#define SP_CLI_REQUEST_H

#include "supervisor/cli/args.h"
#include "supervisor/cli/text.h"

/* SRC[:DST][:MODE] taken apart, where MODE is ro, rw, overlay or overlay=SIZE; lengths, because the
 * parts lie inside the option's text. */
struct sp_cli_bind {
	const char *source, *target, *size; /* target NULL: the same path as source; size NULL:
					     * none */
	size_t source_len, target_len, size_len;
	const char *mode; /* as the daemon calls it */
};

/* -EINVAL with a message that says which part is wrong. */
int sp_cli_bind_parse(const char *text, struct sp_cli_bind *ret_bind, struct sp_err *err);
/* SRC[:DST][:SIZE], the same for an overlay. */
int sp_cli_overlay_parse(const char *text, struct sp_cli_bind *ret_bind, struct sp_err *err);

/* Which entries of a verb's option table mean what; NULL: the verb has no such option. */
struct sp_cli_acquire_options {
	const struct sp_cli_option *policy, *wait, *ttl, *min_remaining, *lease, *binds, *overlays;
	const struct sp_cli_option *prefer_host; /* Redis only */
};

struct sp_cli_start_options {
	const struct sp_cli_option *cwd, *env, *user, *timeout;
};

struct sp_cli_command {
	char *const *argv; /* words, borrowed */
	size_t argc;
	bool stdin_open;
	bool tty;
	bool release;           /* the sandbox, when the stream closes */
	uint16_t rows, columns; /* with tty */
};

/* Members (without braces) of an acquire; of a START. -EINVAL, or the writer's status with a
 * message. */
int sp_cli_write_acquire(struct sp_cli_json *json, const struct sp_cli_args *args,
			 const struct sp_cli_acquire_options *options, struct sp_err *err);
int sp_cli_write_start(struct sp_cli_json *json, const struct sp_cli_args *args,
		       const struct sp_cli_start_options *options,
		       const struct sp_cli_command *command, struct sp_err *err);
/* After the last member: 0, or what went wrong in a message about `what`. */
int sp_cli_json_finish(const struct sp_cli_json *json, const char *what, struct sp_err *err);

#endif
