/*
 * Options of a verb as a table, parsed by getopt_long(3): long names exactly as written (no
 * abbreviations, so that a new option never changes what an old script means), a value given twice
 * is an error, an unknown name is answered with the nearest known one.
 */
#ifndef SP_CLI_ARGS_H
#define SP_CLI_ARGS_H

#include "pool/base/err.h"

#define SP_CLI_OPTIONS_MAX 40 /* of one verb, with the global ones */

struct sp_cli_option {
	const char *name;     /* long name without dashes; NULL ends a table */
	char letter;          /* short name, 0 = none */
	bool repeats;         /* may be given any number of times */
	const char *argument; /* what the help calls its value; NULL = a flag */
	const char *help;     /* one line */
};

/* One option as it stood on the command line. */
struct sp_cli_given {
	const struct sp_cli_option *option;
	const char *value; /* into argv; NULL for a flag */
};

struct sp_cli_args {
	struct sp_cli_given *given;
	size_t given_count;
	char **words; /* what is left: into argv */
	size_t word_count;
};

/* Room for everything that argc words can hold. -ENOMEM. Words stay borrowed. */
int sp_cli_args_init(struct sp_cli_args *args, int argc);
void sp_cli_args_done(struct sp_cli_args *args);

/*
 * Parse argv[1…] against two tables (either may be NULL), adding to args->given; argv may be
 * permuted. stop_early: the first word that is no option ends the options (a command follows).
 * -EINVAL with a message for people.
 */
int sp_cli_args_parse(struct sp_cli_args *args, const struct sp_cli_option *verb_options,
		      const struct sp_cli_option *global_options, bool stop_early, int argc,
		      char **argv, struct sp_err *err);

/* The value of an option, NULL if not given. `option` is an entry of the table parsed with. */
const char *sp_cli_args_value(const struct sp_cli_args *args, const struct sp_cli_option *option);
bool sp_cli_args_has(const struct sp_cli_args *args, const struct sp_cli_option *option);
/* Values of a repeated option one after the other: start with *cursor = 0; NULL at the end. */
const char *sp_cli_args_next(const struct sp_cli_args *args, const struct sp_cli_option *option,
			     size_t *cursor);

/* The entry of `names` (ends with NULL) that `word` was probably meant to be, or NULL. */
const char *sp_cli_suggest(const char *word, const char *const *names);

#endif
