/*
 * sandpool files: look at the files of a sandbox, remove and move them, make directories.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "supervisor/cli/ask.h"
#include "supervisor/cli/http.h"
#include "supervisor/cli/place.h"
#include "supervisor/cli/request.h"

enum { OPTION_DEPTH, OPTION_RECURSIVE, OPTION_MODE, OPTION_END };

static const struct sp_cli_option options[] = {
	[OPTION_DEPTH] = {"depth", 'd', false, "N", "ls: how deep [1]"},
	[OPTION_RECURSIVE] = {"recursive", 'r', false, NULL, "rm: a directory and all below it"},
	[OPTION_MODE] = {"mode", 'm', false, "OCTAL", "mkdir: its mode [755]"},
	[OPTION_END] = {0},
};

/* ---- tables ---- */

static const struct sp_cli_column columns[] = {
	{"MODE", true},  {"OWNER", false},    {"GROUP", false}, {"SIZE", true},
	{"TYPE", false}, {"MODIFIED", false}, {"PATH", false},
};

static void add_row(struct sp_cli_columns *table, const json_t *info)
{
	sp_cli_columns_add(table, "%lld", (long long)sp_cli_member_number(info, "mode"));
	sp_cli_columns_add(table, "%s", sp_cli_member_text(info, "owner"));
	sp_cli_columns_add(table, "%s", sp_cli_member_text(info, "group"));
	sp_cli_columns_add(table, "%lld", (long long)sp_cli_member_number(info, "size"));
	sp_cli_columns_add(table, "%s", sp_cli_member_text(info, "type"));
	sp_cli_columns_add(table, "%.19s", sp_cli_member_text(info, "modified_at"));
	sp_cli_columns_add(table, "%s", sp_cli_member_text(info, "path"));
}

static int print_json(const struct sp_cli *cli, const json_t *root)
{
	char *text = json_dumps(root, JSON_COMPACT);
	struct sp_buf out;
	int exit_code;

	sp_buf_init(&out, SP_CLI_HTTP_BODY_MAX * 2);
	sp_cli_put(&out, "%s\n", text ? text : "null");
	exit_code = sp_cli_print_buf(cli, &out);
	sp_buf_done(&out);
	free(text);
	return exit_code;
}

/* ---- ls, stat ---- */

static int get_listing(const struct sp_cli *cli, const struct sp_cli_place *place,
		       json_t **ret_entries, struct sp_err *err)
{
	const char *depth = sp_cli_args_value(&cli->args, &options[OPTION_DEPTH]);
	struct sp_buf target;
	int status;

	sp_buf_init(&target, SP_CLI_REQUEST_MAX);
	status = sp_cli_place_target(&target, place, "directories/list", err);
	if (status == 0 && depth) {
		status = sp_buf_printf(&target, "&depth=");
		if (status == 0)
			status = sp_cli_http_append_segment(&target, depth);
		if (status < 0)
			(void)sp_err_set(err, status, "write the request");
	}
	if (status == 0)
		status = sp_cli_place_get(cli, sp_buf_text(&target), ret_entries, err);
	sp_buf_done(&target);
	return status;
}

static int list(struct sp_cli *cli, const struct sp_cli_place *place, struct sp_err *err)
{
	struct sp_cli_columns table;
	json_t *entries = NULL;
	json_t *entry;
	size_t i;
	int status = get_listing(cli, place, &entries, err);

	if (status < 0)
		return status;
	if (cli->json) {
		status = print_json(cli, entries);
	} else {
		sp_cli_columns_init(&table, columns, SP_ARRAY_SIZE(columns));
		json_array_foreach (entries, i, entry)
			add_row(&table, entry);
		status = sp_cli_print_columns(cli, &table, true);
		sp_cli_columns_done(&table);
	}
	json_decref(entries);
	return status;
}

static int show(struct sp_cli *cli, const struct sp_cli_place *place, struct sp_err *err)
{
	json_t *answer = NULL;
	const json_t *info;
	int status = sp_cli_place_info(cli, place, &answer, &info, err);

	if (status < 0)
		return status;
	if (cli->json)
		status = print_json(cli, info);
	else
		status = sp_cli_print_members(cli, (json_t *)(uintptr_t)info);
	json_decref(answer);
	return status;
}

/* ---- rm, mkdir, mv ---- */

static int delete (const struct sp_cli *cli, const struct sp_cli_place *place, const char *what,
		   struct sp_err *err)
{
	struct sp_buf target;
	struct sp_buf answer;
	int status;

	sp_buf_init(&target, SP_CLI_REQUEST_MAX);
	sp_buf_init(&answer, SP_CLI_REQUEST_MAX);
	status = sp_cli_place_target(&target, place, what, err);
	if (status == 0)
		status = sp_cli_client_call(&cli->client, "DELETE", sp_buf_text(&target), NULL,
					    SP_CLI_CALL_TIMEOUT_MS, &answer, err);
	sp_buf_done(&answer);
	sp_buf_done(&target);
	return status;
}

static int remove_place(struct sp_cli *cli, const struct sp_cli_place *place, struct sp_err *err)
{
	bool recursive = sp_cli_args_has(&cli->args, &options[OPTION_RECURSIVE]);

	/* More likely a variable that is not set than everything. */
	if (place->bare)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "rm '%s:': a PATH is missing", place->id);
	return delete (cli, place, recursive ? "directories" : "files", err);
}

static int make_directory(struct sp_cli *cli, const struct sp_cli_place *place, struct sp_err *err)
{
	const char *text = sp_cli_args_value(&cli->args, &options[OPTION_MODE]);
	uint32_t mode = 0755;
	int status = text ? sp_cli_mode_parse(text, &mode, err) : 0;

	return status < 0 ? status : sp_cli_place_mkdir(cli, place, mode, err);
}

static int move_to(struct sp_cli *cli, const struct sp_cli_place *from, const char *to,
		   struct sp_err *err)
{
	struct sp_cli_json json;
	struct sp_buf answer;
	struct sp_buf body;
	char target[128];
	int status;

	(void)snprintf(target, sizeof(target), "/v1/sandboxes/%s/files/mv", from->id);
	sp_buf_init(&body, SP_CLI_REQUEST_MAX);
	sp_buf_init(&answer, SP_CLI_REQUEST_MAX);
	sp_cli_json_init(&json, &body);
	sp_cli_json_open(&json, '[');
	sp_cli_json_open(&json, '{');
	sp_cli_json_member(&json, "src", from->path);
	sp_cli_json_member(&json, "dest", to);
	sp_cli_json_close(&json, '}');
	sp_cli_json_close(&json, ']');
	status = sp_cli_json_finish(&json, from->path, err);
	if (status == 0)
		status = sp_cli_client_call(&cli->client, "POST", target, &body,
					    SP_CLI_CALL_TIMEOUT_MS, &answer, err);
	sp_buf_done(&answer);
	sp_buf_done(&body);
	return status;
}

static int move(struct sp_cli *cli)
{
	struct sp_cli_place from;
	struct sp_cli_place to;
	const char *target = cli->args.words[2];
	struct sp_err err = {0};

	if (cli->args.word_count != 3)
		return sp_cli_fail_usage(cli, "mv needs ID:PATH and the new PATH");
	if (sp_cli_place_need(cli->args.words[1], &from, &err) < 0)
		return sp_cli_fail(cli, &err);
	if (sp_cli_place_parse(target, &to)) {
		if (strcmp(from.id, to.id) != 0)
			return sp_cli_fail_usage(cli, "mv stays in one sandbox");
		target = to.path;
	}
	return move_to(cli, &from, target, &err) < 0 ? sp_cli_fail(cli, &err) : 0;
}

/* ---- the verb ---- */

static const struct {
	const char *name;
	int (*run)(struct sp_cli *cli, const struct sp_cli_place *place, struct sp_err *err);
} actions[] = {
	{"ls", list},
	{"stat", show},
	{"rm", remove_place},
	{"mkdir", make_directory},
};

static int fail_unknown(const struct sp_cli *cli, const char *word)
{
	const char *names[SP_ARRAY_SIZE(actions) + 2] = {"mv"};
	const char *guess;

	for (size_t i = 0; i < SP_ARRAY_SIZE(actions); i++)
		names[i + 1] = actions[i].name;
	guess = sp_cli_suggest(word, names);
	if (guess)
		return sp_cli_fail_usage(cli, "unknown action '%.64s', did you mean '%s'?", word,
					 guess);
	return sp_cli_fail_usage(cli, "unknown action '%.64s'", word);
}

/* All of the places are tried: what is wrong with one says nothing about the next. */
static int run_each(struct sp_cli *cli, size_t action)
{
	int exit_code = 0;

	for (size_t i = 1; i < cli->args.word_count; i++) {
		struct sp_cli_place place;
		struct sp_err err = {0};
		int status = sp_cli_place_need(cli->args.words[i], &place, &err);

		if (status == 0)
			status = actions[action].run(cli, &place, &err);
		if (status < 0)
			status = sp_cli_fail(cli, &err);
		if (status != 0)
			exit_code = status;
	}
	return exit_code;
}

static int run(struct sp_cli *cli)
{
	const char *word = cli->args.words[0];

	if (strcmp(word, "mv") == 0)
		return move(cli);
	for (size_t i = 0; i < SP_ARRAY_SIZE(actions); i++)
		if (strcmp(word, actions[i].name) == 0)
			return run_each(cli, i);
	return fail_unknown(cli, word);
}

const struct sp_cli_verb sp_cli_verb_files = {
	.name = "files",
	.usage = "{ls | stat | rm | mkdir} [OPTIONS] ID:PATH… | mv ID:PATH PATH",
	.summary = "look at the files of a sandbox and change them",
	.details = "PATH is absolute, or below /workspace. All is done as the sandbox's own user "
		   "would do\n"
		   "it: what that may not touch is FILE_DENIED. mkdir makes missing parents, and a "
		   "directory\n"
		   "that is there is left alone; mv replaces nothing.\n\n"
		   "  sandpool files ls -d 3 $ID:/workspace\n"
		   "  sandpool files rm -r $ID:/workspace/build\n"
		   "  sandpool files mv $ID:/workspace/a /workspace/b\n",
	.options = options,
	.words_min = 2,
	.words_max = SIZE_MAX,
	.run = run,
};
