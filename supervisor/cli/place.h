/*
 * ID:PATH on the command line, and the questions that the verbs on files share.
 */
#ifndef SP_CLI_PLACE_H
#define SP_CLI_PLACE_H

#include <jansson.h>

#include "pool/base/id.h"
#include "supervisor/cli/cli.h"

#define SP_CLI_PATH_MAX 4096u

struct sp_cli_place {
	char id[SP_SANDBOX_ID_LEN + 1];
	const char *path; /* into the word; not empty */
	bool bare;        /* the word has none: path is the workspace */
};

/* False: the word does not begin with a sandbox's id and a colon, so it is a path of ours. */
bool sp_cli_place_parse(const char *word, struct sp_cli_place *ret_place);
/* The same where nothing else is meant. -EINVAL. */
int sp_cli_place_need(const char *word, struct sp_cli_place *ret_place, struct sp_err *err);

enum sp_cli_file_type { SP_CLI_FILE, SP_CLI_DIRECTORY, SP_CLI_SYMLINK, SP_CLI_OTHER };

enum sp_cli_file_type sp_cli_file_type(const json_t *info);

/* /v1/sandboxes/ID/WHAT?path=PATH */
int sp_cli_place_target(struct sp_buf *out, const struct sp_cli_place *place, const char *what,
			struct sp_err *err);
/* The answer to GET of that: any JSON value; json_decref() it. */
int sp_cli_place_get(const struct sp_cli *cli, const char *target, json_t **ret_root,
		     struct sp_err *err);
/* What `path` is. The object is *ret_answer's, to be json_decref()ed. -EREMOTEIO with
 * FILE_NOT_FOUND if there is nothing. */
int sp_cli_place_info(const struct sp_cli *cli, const struct sp_cli_place *place,
		      json_t **ret_answer, const json_t **ret_info, struct sp_err *err);
int sp_cli_place_mkdir(const struct sp_cli *cli, const struct sp_cli_place *place, uint32_t mode,
		       struct sp_err *err);
/* "755" as 0755. -EINVAL. */
int sp_cli_mode_parse(const char *text, uint32_t *ret_mode, struct sp_err *err);

#endif
