/*
 * Doctor, as an ordinary user: what his sandboxes have less than those of root. The rest of it
 * (limits, namespaces) is told by the checks that both share.
 */
#include "supervisor/cli/doctor.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SUBID_FILE_MAX (1u << 20)
#define NEWUIDMAP      "/usr/bin/newuidmap"
#define NEWGIDMAP      "/usr/bin/newgidmap"
#define IDS_A_SANDBOX  2

/* The longest range that the file gives the user; the launcher takes the same. */
static unsigned long longest_range(const char *path, const char *name, uid_t uid)
{
	char *text = sp_cli_xrealloc(NULL, SUBID_FILE_MAX);
	unsigned long longest = 0;
	char number[16];
	char *rest = text;
	char *line;

	(void)snprintf(number, sizeof(number), "%u", uid);
	if (sp_cli_doctor_read(path, text, SUBID_FILE_MAX) < 0)
		rest = NULL;
	while (rest && (line = strsep(&rest, "\n"))) {
		char owner[64];
		unsigned long first;
		unsigned long count;

		if (sscanf(line, "%63[^:]:%lu:%lu", owner, &first, &count) == 3 && first > 0 &&
		    (strcmp(owner, number) == 0 || strcmp(owner, name) == 0))
			longest = SP_MAX(longest, count);
	}
	free(text);
	return longest;
}

static void check_ids(struct sp_cli_doctor *doctor)
{
	const struct passwd *user = getpwuid(geteuid());
	const char *name = user ? user->pw_name : "";
	unsigned long uids = longest_range("/etc/subuid", name, geteuid());
	unsigned long gids = longest_range("/etc/subgid", name, geteuid());
	unsigned long sandboxes = SP_MIN(uids, gids) / IDS_A_SANDBOX;
	struct sp_cli_finding *finding;

	if (doctor->config && doctor->config->uid_base == 0) {
		finding = sp_cli_doctor_report(doctor, "sandbox ids", SP_CLI_WARN,
					       "uid_base is 0: all sandboxes have your own id and "
					       "are separated by namespaces only");
		sp_cli_doctor_fix(finding, "take uid_base out of the configuration");
	} else if (sandboxes == 0) {
		finding = sp_cli_doctor_report(doctor, "sandbox ids", SP_CLI_WARN,
					       "/etc/subuid and /etc/subgid give you none: all "
					       "sandboxes have your own id and are separated by "
					       "namespaces only");
		sp_cli_doctor_fix(finding,
				  "usermod --add-subuids 100000-165535 --add-subgids "
				  "100000-165535 %.64s",
				  user ? name : "USER");
	} else if (access(NEWUIDMAP, X_OK) < 0 || access(NEWGIDMAP, X_OK) < 0) {
		finding = sp_cli_doctor_report(doctor, "sandbox ids", SP_CLI_WARN,
					       "no " NEWUIDMAP ": all sandboxes have your own id "
					       "and are separated by namespaces only");
		sp_cli_doctor_fix(finding, "apt-get install uidmap");
	} else if ((int64_t)sandboxes < sp_cli_doctor_capacity(doctor)) {
		finding =
			sp_cli_doctor_report(doctor, "sandbox ids", SP_CLI_FAIL,
					     "enough for %lu sandboxes, the pools may hold %lld",
					     sandboxes, (long long)sp_cli_doctor_capacity(doctor));
		sp_cli_doctor_fix(finding, "give more in /etc/subuid and /etc/subgid, or lower "
					   "max_total");
	} else {
		(void)sp_cli_doctor_report(doctor, "sandbox ids", SP_CLI_PASS,
					   "two of its own for each of %lu sandboxes (root gives "
					   "65536)",
					   sandboxes);
	}
}

/* Id-mapped mounts need root, so a writable bind works for its owner alone: the user. */
static void check_binds(struct sp_cli_doctor *doctor)
{
	for (size_t i = 0; doctor->config && i < doctor->config->pool_count; i++) {
		const struct sp_config_pool *pool = &doctor->config->pools[i];

		for (size_t k = 0; k < pool->bind_root_count; k++) {
			if (pool->bind_roots[k].read_only)
				continue;
			sp_cli_doctor_fix(
				sp_cli_doctor_report(doctor, "writable binds", SP_CLI_WARN,
						     "workloads of pool '%.64s' have your own id",
						     pool->policy.name),
				"allow binds read-only, or run as root");
			return;
		}
	}
}

void sp_cli_doctor_rootless(struct sp_cli_doctor *doctor)
{
	check_ids(doctor);
	check_binds(doctor);
}
