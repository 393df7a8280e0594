/*
 * The list of verbs, in the order that help shows, and the options that all of them take.
 */
#include "supervisor/cli/cli.h"

const struct sp_cli_verb *const sp_cli_verbs[] = {
	&sp_cli_verb_run,     &sp_cli_verb_acquire, &sp_cli_verb_exec,
	&sp_cli_verb_cp,      &sp_cli_verb_files,   &sp_cli_verb_diff,
	&sp_cli_verb_commit,  &sp_cli_verb_renew,   &sp_cli_verb_release,
	&sp_cli_verb_ls,      &sp_cli_verb_inspect, &sp_cli_verb_stats,
	&sp_cli_verb_top,     &sp_cli_verb_pool,    &sp_cli_verb_hosts,
	&sp_cli_verb_doctor,  &sp_cli_verb_config,  &sp_cli_verb_reload,
	&sp_cli_verb_version, &sp_cli_verb_help,    NULL,
};
