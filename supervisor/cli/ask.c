/*
 * Ask, check the shape, show. Members that an older daemon does not send show as "-" in tables;
 * with --json its text passes through untouched.
 */
#include "supervisor/cli/ask.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TABLE_MAX (256u << 20)

int sp_cli_ask(const struct sp_cli *cli, const char *method, const char *target,
	       const struct sp_buf *body, int64_t timeout_ms, struct sp_cli_answer *answer,
	       struct sp_err *err)
{
	int status;

	answer->root = NULL;
	status = sp_cli_client_call(&cli->client, method, target, body, timeout_ms, &answer->text,
				    err);
	if (status < 0 || answer->text.len == 0)
		return status;
	answer->root =
		json_loadb(answer->text.data, answer->text.len, JSON_REJECT_DUPLICATES, NULL);
	if (!json_is_object(answer->root))
		return sp_err_code(err, SP_CODE_PROTOCOL, -EPROTO,
				   "the answer to '%s %.200s' is no JSON object", method, target);
	return 0;
}

int sp_cli_ask_about(const struct sp_cli *cli, const char *method, const char *prefix,
		     const char *segment, const char *suffix, const struct sp_buf *body,
		     struct sp_cli_answer *answer, struct sp_err *err)
{
	struct sp_buf target;
	int status;

	*answer = (struct sp_cli_answer){.root = NULL};
	sp_buf_init(&target, SP_CLI_REQUEST_MAX);
	status = sp_cli_target(&target, prefix, segment, suffix, err);
	if (status == 0)
		status = sp_cli_ask(cli, method, sp_buf_text(&target), body, SP_CLI_CALL_TIMEOUT_MS,
				    answer, err);
	sp_buf_done(&target);
	return status;
}

void sp_cli_answer_done(struct sp_cli_answer *answer)
{
	json_decref(answer->root);
	answer->root = NULL;
	sp_buf_done(&answer->text);
}

void sp_cli_answer_set_text(struct sp_cli_answer *answer, const char *key, const char *text)
{
	(void)json_object_set_new(answer->root, key, json_string(text));
}

void sp_cli_answer_set_time(struct sp_cli_answer *answer, const char *key, int64_t wall_ms)
{
	time_t seconds = (time_t)(wall_ms / SP_MS_PER_S);
	char date[32];
	char text[48];
	struct tm parts;

	if (!gmtime_r(&seconds, &parts) ||
	    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &parts) == 0)
		return;
	(void)snprintf(text, sizeof(text), "%s.%03lldZ", date, (long long)(wall_ms % SP_MS_PER_S));
	sp_cli_answer_set_text(answer, key, text);
}

int sp_cli_answer_finish(struct sp_cli_answer *answer, struct sp_err *err)
{
	char *text = answer->root ? json_dumps(answer->root, JSON_COMPACT) : NULL;
	int status = text ? 0 : -ENOMEM;

	sp_buf_done(&answer->text);
	sp_buf_init(&answer->text, TABLE_MAX);
	if (status == 0)
		status = sp_buf_append(&answer->text, text, strlen(text));
	free(text);
	return status < 0 ? sp_err_set(err, status, "write the answer") : 0;
}

int sp_cli_print_answer(const struct sp_cli *cli, const struct sp_cli_answer *answer)
{
	size_t len = answer->text.len;
	int exit_code = sp_cli_print(cli, sp_buf_text(&answer->text), len);

	if (exit_code == 0 && len > 0 && answer->text.data[len - 1] != '\n')
		exit_code = sp_cli_print(cli, "\n", 1);
	return exit_code;
}

int sp_cli_print_columns(const struct sp_cli *cli, const struct sp_cli_columns *table,
			 bool headings)
{
	struct sp_buf out;
	int exit_code;

	sp_buf_init(&out, TABLE_MAX);
	sp_cli_columns_write(table, headings, &out);
	exit_code = sp_cli_print_buf(cli, &out);
	sp_buf_done(&out);
	return exit_code;
}

int sp_cli_print_members(const struct sp_cli *cli, json_t *object)
{
	static const struct sp_cli_column columns[] = {{"", false}, {"", false}};
	struct sp_cli_columns table;
	const char *key;
	json_t *value;
	int exit_code;

	sp_cli_columns_init(&table, columns, SP_ARRAY_SIZE(columns));
	json_object_foreach (object, key, value) {
		char *text = json_is_string(value)
				     ? sp_cli_xstrdup(json_string_value(value))
				     : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));

		sp_cli_columns_add(&table, "%s", key);
		sp_cli_columns_add(&table, "%s", text ? text : "-");
		free(text);
	}
	exit_code = sp_cli_print_columns(cli, &table, false);
	sp_cli_columns_done(&table);
	return exit_code;
}

const char *sp_cli_member_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text && text[0] ? text : "-";
}

int64_t sp_cli_member_number(const json_t *object, const char *key)
{
	return (int64_t)json_number_value(json_object_get(object, key));
}

const char *sp_cli_member_duration(const json_t *object, const char *key, char *text, size_t size)
{
	const json_t *member = json_object_get(object, key);
	long long seconds;

	if (!json_is_number(member))
		return "-";
	seconds = (long long)json_number_value(member) / SP_MS_PER_S;
	if (seconds < 60)
		(void)snprintf(text, size, "%.1fs",
			       json_number_value(member) / (double)SP_MS_PER_S);
	else if (seconds < 3600)
		(void)snprintf(text, size, "%lldm%02llds", seconds / 60, seconds % 60);
	else
		(void)snprintf(text, size, "%lldh%02lldm", seconds / 3600, seconds / 60 % 60);
	return text;
}
