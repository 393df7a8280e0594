/*
 * How an exec ended (a RESULT object, see api/README.md), and which exit status that is for us.
 */
#ifndef SP_CLI_OUTCOME_H
#define SP_CLI_OUTCOME_H

#include "pool/base/err.h"

/* Exit statuses beside the command's own; documented in deploy/docs/cli.md. */
enum sp_cli_exit {
	SP_CLI_EXIT_FINDING = 1, /* doctor, config check: it works, and the answer is no */
	SP_CLI_EXIT_TIMEOUT = 124,
	SP_CLI_EXIT_OURS = 125, /* usage, connection, refusal: the command did not run */
	SP_CLI_EXIT_NOT_EXECUTABLE = 126,
	SP_CLI_EXIT_SIGNAL = 128, /* + number */
	SP_CLI_EXIT_KILLED = 137, /* 128 + SIGKILL: memory, output, expiry, … */
	SP_CLI_EXIT_PIPE = 141,   /* 128 + SIGPIPE: nobody reads our output */
};

struct sp_cli_outcome {
	char reason[24];
	int exit_code; /* -1 = none */
	int signal;    /* 0 = none */
	int64_t wall_ms;
	char stage[32];
	char message[256];
};

/* -EPROTO for anything that is no RESULT object. */
int sp_cli_outcome_parse(const void *json, size_t len, struct sp_cli_outcome *ret_outcome,
			 struct sp_err *err);
int sp_cli_outcome_exit_code(const struct sp_cli_outcome *outcome);
/* One line for people about an end that the exit status alone does not tell; false: none needed. */
bool sp_cli_outcome_describe(const struct sp_cli_outcome *outcome, char *text, size_t size);

#endif
