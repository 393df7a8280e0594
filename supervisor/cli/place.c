/*
 * A word is a place in a sandbox if what stands before its first colon could be a sandbox's id; a
 * local file of such a name is written ./NAME.
 */
#include "supervisor/cli/place.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "supervisor/cli/http.h"
#include "supervisor/cli/request.h"

#define WORKSPACE "/workspace"

bool sp_cli_place_parse(const char *word, struct sp_cli_place *ret_place)
{
	struct sp_cli_place place;
	size_t len = strcspn(word, ":");

	if (len != SP_SANDBOX_ID_LEN || word[len] != ':')
		return false;
	memcpy(place.id, word, len);
	place.id[len] = '\0';
	place.bare = word[len + 1] == '\0';
	place.path = place.bare ? WORKSPACE : word + len + 1;
	if (!sp_sandbox_id_valid(place.id))
		return false;
	*ret_place = place;
	return true;
}

int sp_cli_place_need(const char *word, struct sp_cli_place *ret_place, struct sp_err *err)
{
	if (sp_cli_place_parse(word, ret_place))
		return 0;
	return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL, "'%.128s' is not ID:PATH", word);
}

enum sp_cli_file_type sp_cli_file_type(const json_t *info)
{
	static const char *const names[] = {
		[SP_CLI_FILE] = "file",
		[SP_CLI_DIRECTORY] = "directory",
		[SP_CLI_SYMLINK] = "symlink",
	};
	const char *type = json_string_value(json_object_get(info, "type"));

	for (unsigned int i = 0; type && i < SP_ARRAY_SIZE(names); i++)
		if (strcmp(type, names[i]) == 0)
			return (enum sp_cli_file_type)i;
	return SP_CLI_OTHER;
}

int sp_cli_place_target(struct sp_buf *out, const struct sp_cli_place *place, const char *what,
			struct sp_err *err)
{
	int status = sp_buf_printf(out, "/v1/sandboxes/%s/%s?path=", place->id, what);

	if (status == 0)
		status = sp_cli_http_append_segment(out, place->path);
	return status < 0 ? sp_err_set(err, status, "write the request") : 0;
}

int sp_cli_place_get(const struct sp_cli *cli, const char *target, json_t **ret_root,
		     struct sp_err *err)
{
	struct sp_buf body;
	json_t *root = NULL;
	int status = sp_cli_client_call(&cli->client, "GET", target, NULL, SP_CLI_CALL_TIMEOUT_MS,
					&body, err);

	if (status == 0) {
		root = json_loadb(sp_buf_text(&body), body.len, JSON_REJECT_DUPLICATES, NULL);
		if (!root)
			status = sp_err_code(err, SP_CODE_PROTOCOL, -EPROTO,
					     "the answer to 'GET %.200s' is no JSON", target);
	}
	sp_buf_done(&body);
	if (status == 0)
		*ret_root = root;
	return status;
}

int sp_cli_place_info(const struct sp_cli *cli, const struct sp_cli_place *place,
		      json_t **ret_answer, const json_t **ret_info, struct sp_err *err)
{
	struct sp_buf target;
	json_t *answer = NULL;
	const json_t *info;
	int status;

	sp_buf_init(&target, SP_CLI_REQUEST_MAX);
	status = sp_cli_place_target(&target, place, "files/info", err);
	if (status == 0)
		status = sp_cli_place_get(cli, sp_buf_text(&target), &answer, err);
	sp_buf_done(&target);
	if (status < 0)
		return status;
	/* Its only member, whatever became of the path's bytes in JSON. */
	info = json_object_iter_value(json_object_iter(answer));
	if (!json_is_object(info)) {
		json_decref(answer);
		return sp_err_code(err, SP_CODE_PROTOCOL, -EPROTO,
				   "the daemon says nothing about '%.200s'", place->path);
	}
	*ret_answer = answer;
	*ret_info = info;
	return 0;
}

int sp_cli_place_mkdir(const struct sp_cli *cli, const struct sp_cli_place *place, uint32_t mode,
		       struct sp_err *err)
{
	char target[128];
	char digits[16];
	struct sp_cli_json json;
	struct sp_buf answer;
	struct sp_buf body;
	int status;

	(void)snprintf(target, sizeof(target), "/v1/sandboxes/%s/directories", place->id);
	(void)snprintf(digits, sizeof(digits), "%o", mode & 0777);
	sp_buf_init(&body, SP_CLI_REQUEST_MAX);
	sp_buf_init(&answer, SP_CLI_REQUEST_MAX);
	sp_cli_json_init(&json, &body);
	sp_cli_json_open(&json, '{');
	sp_cli_json_key(&json, place->path);
	sp_cli_json_open(&json, '{');
	sp_cli_json_key(&json, "mode");
	sp_cli_json_raw(&json, digits, strlen(digits));
	sp_cli_json_close(&json, '}');
	sp_cli_json_close(&json, '}');
	status = sp_cli_json_finish(&json, place->path, err);
	if (status == 0)
		status = sp_cli_client_call(&cli->client, "POST", target, &body,
					    SP_CLI_CALL_TIMEOUT_MS, &answer, err);
	sp_buf_done(&answer);
	sp_buf_done(&body);
	return status;
}

int sp_cli_mode_parse(const char *text, uint32_t *ret_mode, struct sp_err *err)
{
	size_t len = strlen(text);
	uint32_t mode = 0;

	if (len == 0 || len > 4 || strspn(text, "01234567") != len)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "mode '%.64s' is not octal, like 644", text);
	for (; *text; text++)
		mode = mode * 8 + (uint32_t)(*text - '0');
	if (mode == 0 || mode > 0777)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "mode must be in 1 … 777");
	*ret_mode = mode;
	return 0;
}
