/*
 * RESULT objects. They come from the daemon, so the shape is checked; words that a newer daemon
 * adds are an error of ours (125), never a success.
 */
#include "supervisor/cli/outcome.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#define EXIT_CODE_MAX 255
#define SIGNAL_MAX    64

static const struct {
	const char *reason;
	const char *text; /* for people; NULL: the exit status says it all */
} reasons[] = {
	{"exited", NULL},
	{"signaled", NULL},
	{"timeout", "killed: its time limit was reached"},
	{"memory", "killed: its memory limit was reached"},
	{"output", "killed: it wrote more than its output limit"},
	{"killed", "killed: the sandbox was released"},
	{"expired", "killed: the lease has ended"},
	{"died", "killed: the sandbox died under it"},
	{"start_failed", "could not be started"},
};

static bool copy_text(const json_t *value, char *text, size_t size)
{
	const char *from = json_string_value(value);

	return from && (size_t)snprintf(text, size, "%s", from) < size;
}

/* An integer within [0, max], or JSON null / absent as `none`. */
static bool copy_number(const json_t *value, json_int_t max, int none, int *ret_number)
{
	json_int_t number = json_integer_value(value);

	if (value && !json_is_null(value) && !json_is_integer(value))
		return false;
	if (number < 0 || number > max)
		return false;
	*ret_number = json_is_integer(value) ? (int)number : none;
	return true;
}

int sp_cli_outcome_parse(const void *json, size_t len, struct sp_cli_outcome *ret_outcome,
			 struct sp_err *err)
{
	struct sp_cli_outcome outcome = {.exit_code = -1};
	json_t *root = json_loadb(json, len, JSON_REJECT_DUPLICATES, NULL);
	bool good;

	good = copy_text(json_object_get(root, "reason"), outcome.reason, sizeof(outcome.reason)) &&
	       copy_number(json_object_get(root, "exit_code"), EXIT_CODE_MAX, -1,
			   &outcome.exit_code) &&
	       copy_number(json_object_get(root, "signal"), SIGNAL_MAX, 0, &outcome.signal);
	outcome.wall_ms = (int64_t)json_number_value(json_object_get(root, "wall_ms"));
	/* These two are for people: cut rather than refused. */
	(void)copy_text(json_object_get(root, "stage"), outcome.stage, sizeof(outcome.stage));
	(void)copy_text(json_object_get(root, "message"), outcome.message, sizeof(outcome.message));
	json_decref(root);
	if (good && strcmp(outcome.reason, "exited") == 0 && outcome.exit_code < 0)
		good = false;
	if (good && strcmp(outcome.reason, "signaled") == 0 && outcome.signal == 0)
		good = false;
	if (!good)
		return sp_err_code(err, SP_CODE_PROTOCOL, -EPROTO,
				   "the daemon sent a RESULT that is none");
	*ret_outcome = outcome;
	return 0;
}

int sp_cli_outcome_exit_code(const struct sp_cli_outcome *outcome)
{
	const char *reason = outcome->reason;

	if (strcmp(reason, "exited") == 0)
		return outcome->exit_code;
	if (strcmp(reason, "signaled") == 0)
		return SP_CLI_EXIT_SIGNAL + outcome->signal;
	if (strcmp(reason, "timeout") == 0)
		return SP_CLI_EXIT_TIMEOUT;
	if (strcmp(reason, "start_failed") == 0)
		return outcome->exit_code > 0 ? outcome->exit_code : SP_CLI_EXIT_NOT_EXECUTABLE;
	for (size_t i = 0; i < SP_ARRAY_SIZE(reasons); i++)
		if (strcmp(reason, reasons[i].reason) == 0)
			return SP_CLI_EXIT_KILLED;
	return SP_CLI_EXIT_OURS;
}

bool sp_cli_outcome_describe(const struct sp_cli_outcome *outcome, char *text, size_t size)
{
	const char *says = "ended for a reason that this version does not know";
	bool colon = outcome->message[0] != '\0';

	for (size_t i = 0; i < SP_ARRAY_SIZE(reasons); i++)
		if (strcmp(outcome->reason, reasons[i].reason) == 0)
			says = reasons[i].text;
	if (!says)
		return false;
	(void)snprintf(text, size, "%s (%s after %lld ms%s%s)%s%s", says, outcome->reason,
		       (long long)outcome->wall_ms, outcome->stage[0] ? ", stage " : "",
		       outcome->stage, colon ? ": " : "", outcome->message);
	return true;
}
