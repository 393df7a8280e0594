/*
 * What a verb is, and what it is given. One file per verb (verb_*.c), each exporting one table
 * entry; verbs.c lists them; cli.c parses, dispatches and reports.
 */
#ifndef SP_CLI_CLI_H
#define SP_CLI_CLI_H

#include "supervisor/cli/args.h"
#include "supervisor/cli/client.h"
#include "supervisor/cli/outcome.h"
#include "supervisor/cli/remote.h"

struct sp_cli;

/* What a verb does when Redis is named instead of a daemon. */
enum sp_cli_over_redis {
	SP_CLI_REDIS_REFUSED, /* only a daemon knows it: an error that says so */
	SP_CLI_REDIS_SERVED,
	SP_CLI_REDIS_IGNORED, /* asks nobody */
};

struct sp_cli_verb {
	const char *name;
	const char *usage;   /* what follows the name */
	const char *summary; /* one line, lower case */
	const char *details; /* paragraphs and examples for --help; ends with a newline */
	const struct sp_cli_option *options; /* NULL = none */
	size_t words_min, words_max;         /* positional arguments */
	bool command; /* the first word after the options belongs to a command line */
	enum sp_cli_over_redis over_redis;
	int (*run)(struct sp_cli *cli); /* the exit status */
};

extern const struct sp_cli_verb *const sp_cli_verbs[]; /* ends with NULL */
extern const struct sp_cli_option sp_cli_global_options[];

extern const struct sp_cli_verb sp_cli_verb_run, sp_cli_verb_acquire, sp_cli_verb_exec,
	sp_cli_verb_cp, sp_cli_verb_files, sp_cli_verb_renew, sp_cli_verb_release, sp_cli_verb_ls,
	sp_cli_verb_diff, sp_cli_verb_commit, sp_cli_verb_inspect, sp_cli_verb_stats,
	sp_cli_verb_top, sp_cli_verb_pool, sp_cli_verb_hosts, sp_cli_verb_doctor,
	sp_cli_verb_config, sp_cli_verb_reload, sp_cli_verb_version, sp_cli_verb_help;

struct sp_cli {
	const struct sp_cli_verb *verb; /* NULL until known */
	struct sp_cli_args args;
	bool json;
	bool over_redis; /* Redis is asked, and the daemons that it names */
	struct sp_cli_client client;
	struct sp_cli_redis_settings redis;
	struct sp_cli_redis_link *redis_link; /* NULL until the first call */
	const struct sp_cli_remote *remote;   /* NULL in the small program */
	char **argv_given;                    /* as main() got it, for the other program */
};

/*
 * The whole program but main(): returns the exit status. remote NULL: what needs Redis or TLS is
 * handed to the program `sandpool-remote`, with the same arguments.
 */
int sp_cli_main(int argc, char **argv, const struct sp_cli_remote *remote);
/* Become that program. Returns only when that failed. */
int sp_cli_become_remote(const struct sp_cli *cli, struct sp_err *err);

/* Say on stderr what err says (as JSON with --json). Returns SP_CLI_EXIT_OURS. */
int sp_cli_fail(const struct sp_cli *cli, const struct sp_err *err);
/* The same for a fault of the command line, with a pointer to --help. */
int sp_cli_fail_usage(const struct sp_cli *cli, const char *format, ...) SP_PRINTF(2, 3);
/* A line on stderr that is no error of ours ("killed: …"); left out with --json. */
void sp_cli_note(const struct sp_cli *cli, const char *text);

/* Write to stdout. Returns the exit status: 0, 141 when nobody reads, 125 with a message. */
int sp_cli_print(const struct sp_cli *cli, const char *data, size_t len);
int sp_cli_print_buf(const struct sp_cli *cli, const struct sp_buf *buf);

/* Append to a buffer, allocate: or die with 125. Only where no terminal or sandbox is held. */
void *sp_cli_xrealloc(void *memory, size_t size);
char *sp_cli_xstrdup(const char *text);
void sp_cli_put(struct sp_buf *out, const char *format, ...) SP_PRINTF(2, 3);

/* Help of one verb (NULL: of the program) onto stdout. Returns the exit status. */
int sp_cli_help(const struct sp_cli *cli, const struct sp_cli_verb *verb);
const struct sp_cli_verb *sp_cli_verb_find(const char *name);
/* sp_cli_fail_usage() for an unknown verb, with the nearest known one. */
int sp_cli_fail_unknown_verb(const struct sp_cli *cli, const char *name);

#endif
