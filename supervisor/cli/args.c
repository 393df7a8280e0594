/*
 * The option parser: getopt_long(3) does the splitting, this file the rules that it lacks.
 *
 * glibc's getopt_long accepts any unambiguous prefix of a long name. That is refused here by
 * looking at the word the option came from: `--tim` would work today and break the day a second
 * option starts with "tim".
 */
#include "supervisor/cli/args.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#define LONG_VALUE      256 /* getopt_long returns this + index, so that no letter collides */
#define SUGGEST_MAX_LEN 32
#define SUGGEST_EDITS   2

int sp_cli_args_init(struct sp_cli_args *args, int argc)
{
	*args = (struct sp_cli_args){
		.given = calloc((size_t)SP_MAX(argc, 1), sizeof(*args->given)),
	};
	return args->given ? 0 : -ENOMEM;
}

void sp_cli_args_done(struct sp_cli_args *args)
{
	free(args->given);
	*args = (struct sp_cli_args){0};
}

/* Edits (insert, delete, replace, swap neighbours) from a to b; both shorter than the maximum. */
static size_t edit_distance(const char *a, const char *b)
{
	size_t table[SUGGEST_MAX_LEN + 1][SUGGEST_MAX_LEN + 1];
	size_t len_a = strlen(a);
	size_t len_b = strlen(b);

	for (size_t i = 0; i <= len_a; i++)
		table[i][0] = i;
	for (size_t j = 0; j <= len_b; j++)
		table[0][j] = j;
	for (size_t i = 1; i <= len_a; i++) {
		for (size_t j = 1; j <= len_b; j++) {
			size_t best = table[i - 1][j - 1] + (a[i - 1] != b[j - 1]);

			best = SP_MIN(best, table[i - 1][j] + 1);
			best = SP_MIN(best, table[i][j - 1] + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				best = SP_MIN(best, table[i - 2][j - 2] + 1);
			table[i][j] = best;
		}
	}
	return table[len_a][len_b];
}

const char *sp_cli_suggest(const char *word, const char *const *names)
{
	const char *best = NULL;
	size_t best_edits = SUGGEST_EDITS + 1;
	size_t len = strlen(word);

	if (len == 0 || len > SUGGEST_MAX_LEN)
		return NULL;
	for (; *names; names++) {
		size_t edits;

		if (strlen(*names) > SUGGEST_MAX_LEN)
			continue;
		/* A word cut short is the commonest slip; beyond that, at most every third letter.
		 */
		edits = len >= 3 && strncmp(word, *names, len) == 0 ? 0
								    : edit_distance(word, *names);
		if (edits > 0 && edits * 3 > strlen(*names) + 1)
			continue;
		if (edits < best_edits) {
			best_edits = edits;
			best = *names;
		}
	}
	return best;
}

/* Both tables as one, in getopt's form. */
struct parser {
	const struct sp_cli_option *options[SP_CLI_OPTIONS_MAX];
	struct option long_options[SP_CLI_OPTIONS_MAX + 1];
	char letters[2 * SP_CLI_OPTIONS_MAX + 3];
	size_t count;
	size_t letter_count;
};

static void parser_add(struct parser *parser, const struct sp_cli_option *options)
{
	for (; options && options->name; options++) {
		size_t i = parser->count++;

		sp_assert(i < SP_CLI_OPTIONS_MAX);
		parser->options[i] = options;
		parser->long_options[i] = (struct option){
			.name = options->name,
			.has_arg = options->argument ? required_argument : no_argument,
			.val = LONG_VALUE + (int)i,
		};
		if (!options->letter)
			continue;
		parser->letters[parser->letter_count++] = options->letter;
		if (options->argument)
			parser->letters[parser->letter_count++] = ':';
	}
}

static const struct sp_cli_option *parser_find(const struct parser *parser, int value)
{
	if (value >= LONG_VALUE && (size_t)(value - LONG_VALUE) < parser->count)
		return parser->options[value - LONG_VALUE];
	for (size_t i = 0; i < parser->count; i++)
		if (parser->options[i]->letter && parser->options[i]->letter == value)
			return parser->options[i];
	return NULL;
}

static int refuse_unknown(const struct parser *parser, const char *word, struct sp_err *err)
{
	const char *names[SP_CLI_OPTIONS_MAX + 1] = {NULL};
	char name[SUGGEST_MAX_LEN + 1];
	const char *guess = NULL;
	size_t len;

	if (optopt > 0 && optopt < LONG_VALUE)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL, "unknown option '-%c'",
				   optopt);
	len = strcspn(word + 2, "=");
	for (size_t i = 0; i < parser->count; i++)
		names[i] = parser->options[i]->name;
	if (len < sizeof(name)) {
		memcpy(name, word + 2, len);
		name[len] = '\0';
		guess = sp_cli_suggest(name, names);
	}
	return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
			   guess ? "unknown option '--%.*s', did you mean '--%s'?"
				 : "unknown option '--%.*s'",
			   (int)len, word + 2, guess);
}

/* A long option must be spelt out; `word` is the element of argv it came from. */
static bool spelt_out(const char *word, const struct sp_cli_option *option)
{
	size_t len = strlen(option->name);

	return strncmp(word, "--", 2) == 0 && strncmp(word + 2, option->name, len) == 0 &&
	       (word[2 + len] == '\0' || word[2 + len] == '=');
}

static int record(struct sp_cli_args *args, const struct sp_cli_option *option, const char *value,
		  struct sp_err *err)
{
	if (option->argument && !option->repeats && sp_cli_args_has(args, option))
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "option '--%s' was given twice", option->name);
	args->given[args->given_count++] = (struct sp_cli_given){
		.option = option,
		.value = option->argument ? value : NULL,
	};
	return 0;
}

static int accept_one(struct sp_cli_args *args, const struct parser *parser, int value, char **argv,
		      struct sp_err *err)
{
	const struct sp_cli_option *option =
		parser_find(parser, value == '?' || value == ':' ? optopt : value);
	bool separate = optarg && optarg == argv[optind - 1];
	const char *word = argv[separate ? optind - 2 : optind - 1];

	if (value == ':')
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "option '--%s' needs a value (%s)", option->name,
				   option->argument);
	if (value == '?' && optopt >= LONG_VALUE && spelt_out(word, option))
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "option '--%s' takes no value", option->name);
	if (value == '?' || (value >= LONG_VALUE && !spelt_out(word, option)))
		return refuse_unknown(parser, word, err);
	return record(args, option, optarg, err);
}

int sp_cli_args_parse(struct sp_cli_args *args, const struct sp_cli_option *verb_options,
		      const struct sp_cli_option *global_options, bool stop_early, int argc,
		      char **argv, struct sp_err *err)
{
	struct parser parser = {.count = 0};
	int value;

	if (stop_early)
		parser.letters[parser.letter_count++] = '+';
	parser.letters[parser.letter_count++] = ':';
	parser_add(&parser, verb_options);
	parser_add(&parser, global_options);
	opterr = 0;
	optind = 0; /* glibc: start over, also what it remembers of the last argv */
	while ((value = getopt_long(argc, argv, parser.letters, parser.long_options, NULL)) != -1) {
		int status = accept_one(args, &parser, value, argv, err);

		if (status < 0)
			return status;
	}
	args->words = argv + optind;
	args->word_count = (size_t)(argc - optind);
	return 0;
}

bool sp_cli_args_has(const struct sp_cli_args *args, const struct sp_cli_option *option)
{
	for (size_t i = 0; i < args->given_count; i++)
		if (args->given[i].option == option)
			return true;
	return false;
}

const char *sp_cli_args_value(const struct sp_cli_args *args, const struct sp_cli_option *option)
{
	size_t cursor = 0;

	return sp_cli_args_next(args, option, &cursor);
}

const char *sp_cli_args_next(const struct sp_cli_args *args, const struct sp_cli_option *option,
			     size_t *cursor)
{
	while (*cursor < args->given_count) {
		const struct sp_cli_given *given = &args->given[(*cursor)++];

		if (given->option == option)
			return given->value;
	}
	return NULL;
}
