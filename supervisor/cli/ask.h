/*
 * Questions to the daemon whose answer is one JSON object: asked, checked, shown.
 */
#ifndef SP_CLI_ASK_H
#define SP_CLI_ASK_H

#include <jansson.h>

#include "supervisor/cli/cli.h"
#include "supervisor/cli/columns.h"

struct sp_cli_answer {
	struct sp_buf text; /* as the daemon wrote it */
	json_t *root;       /* NULL when there was no body (204) */
};

/*
 * One call; an answer with a body must be a JSON object. Always to be emptied with
 * sp_cli_answer_done(). Errors as sp_cli_client_call(), and -EPROTO.
 */
int sp_cli_ask(const struct sp_cli *cli, const char *method, const char *target,
	       const struct sp_buf *body, int64_t timeout_ms, struct sp_cli_answer *answer,
	       struct sp_err *err);
/* The same for prefix + encoded segment + suffix. */
int sp_cli_ask_about(const struct sp_cli *cli, const char *method, const char *prefix,
		     const char *segment, const char *suffix, const struct sp_buf *body,
		     struct sp_cli_answer *answer, struct sp_err *err);
void sp_cli_answer_done(struct sp_cli_answer *answer);

/* An answer put together here, in the daemon's shapes: members, then the text from them. */
void sp_cli_answer_set_text(struct sp_cli_answer *answer, const char *key, const char *text);
/* RFC 3339 in UTC with milliseconds. */
void sp_cli_answer_set_time(struct sp_cli_answer *answer, const char *key, int64_t wall_ms);
int sp_cli_answer_finish(struct sp_cli_answer *answer, struct sp_err *err);

/* The text as it came, with a line end. Returns the exit status. */
int sp_cli_print_answer(const struct sp_cli *cli, const struct sp_cli_answer *answer);
/* Lay a table out and print it. Returns the exit status. */
int sp_cli_print_columns(const struct sp_cli *cli, const struct sp_cli_columns *table,
			 bool headings);
/* Every member of an object, one a line. Returns the exit status. */
int sp_cli_print_members(const struct sp_cli *cli, json_t *object);

/* Members with a value to fall back to: "-" and 0. */
const char *sp_cli_member_text(const json_t *object, const char *key);
int64_t sp_cli_member_number(const json_t *object, const char *key);
/* "9m58s"; "-" when the member is absent. */
const char *sp_cli_member_duration(const json_t *object, const char *key, char *text, size_t size);

#endif
