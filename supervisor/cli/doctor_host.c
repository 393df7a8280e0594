/*
 * Doctor: ids, numbers and directories of the host, against the configuration when there is one.
 */
#include "supervisor/cli/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define UID_SLOT_IDS      65536u
#define FDS_PER_SANDBOX   8   /* pidfd, control socket, cgroups, and streams of a running exec */
#define FDS_OF_OUR_OWN    256 /* listeners, clients, files */
#define PASSWD_MAX        (1u << 20)
#define PIDS_OF_THE_HOST  4096
#define SANDBOXES_ASSUMED 64 /* when no configuration says how many */

/* The first line of a table of accounts for which `matches` is true; its name is in `name`. */
static bool find_account(const char *path,
			 bool (*matches)(const char *line, int64_t low, int64_t high), int64_t low,
			 int64_t high, char *name, size_t size)
{
	char *text = sp_cli_xrealloc(NULL, PASSWD_MAX);
	char *rest = text;
	char *line;
	bool found = false;

	if (sp_cli_doctor_read(path, text, PASSWD_MAX) < 0)
		rest = NULL;
	while (!found && rest && (line = strsep(&rest, "\n"))) {
		found = matches(line, low, high);
		if (found)
			(void)snprintf(name, size, "%.*s", (int)strcspn(line, ":"), line);
	}
	free(text);
	return found;
}

/* "name:x:1000:…" */
static bool uid_within(const char *line, int64_t low, int64_t high)
{
	unsigned int uid;

	return sscanf(line, "%*[^:]:%*[^:]:%u:", &uid) == 1 && uid >= low && uid < high;
}

/* "name:100000:65536": ids that newuidmap gives to that user's own containers */
static bool subuids_overlap(const char *line, int64_t low, int64_t high)
{
	unsigned int first;
	unsigned int count;

	return sscanf(line, "%*[^:]:%u:%u", &first, &count) == 2 && first < high &&
	       (int64_t)first + count > low;
}

static void check_uids(struct sp_cli_doctor *doctor)
{
	struct sp_cli_finding *finding;
	char account[96];
	int64_t low;
	int64_t high;

	if (!doctor->config)
		return;
	low = doctor->config->uid_base;
	high = low + (int64_t)doctor->config->uid_count * UID_SLOT_IDS;
	if (find_account("/etc/passwd", uid_within, low, high, account, sizeof(account))) {
		finding = sp_cli_doctor_report(doctor, "uid range", SP_CLI_FAIL,
					       "account %s lies within %lld…%lld, which are the "
					       "sandboxes'",
					       account, (long long)low, (long long)high - 1);
		sp_cli_doctor_fix(finding, "choose another uid_base");
	} else if (find_account("/etc/subuid", subuids_overlap, low, high, account,
				sizeof(account))) {
		finding = sp_cli_doctor_report(doctor, "uid range", SP_CLI_WARN,
					       "%lld…%lld overlaps what /etc/subuid gives to %s",
					       (long long)low, (long long)high - 1, account);
		sp_cli_doctor_fix(finding, "choose another uid_base, or take the line away");
	} else if (high - 1 > UINT32_MAX - 1) {
		finding = sp_cli_doctor_report(doctor, "uid range", SP_CLI_FAIL,
					       "%lld…%lld goes beyond the last uid", (long long)low,
					       (long long)high - 1);
		sp_cli_doctor_fix(finding, "lower uid_base or uid_count");
	} else if (sp_cli_doctor_capacity(doctor) > doctor->config->uid_count) {
		finding = sp_cli_doctor_report(doctor, "uid range", SP_CLI_WARN,
					       "uid_count is %u, the pools may hold %lld sandboxes",
					       doctor->config->uid_count,
					       (long long)sp_cli_doctor_capacity(doctor));
		sp_cli_doctor_fix(finding, "raise uid_count or lower max_total");
	} else {
		(void)sp_cli_doctor_report(doctor, "uid range", SP_CLI_PASS, "%lld…%lld is free",
					   (long long)low, (long long)high - 1);
	}
}

static int64_t sandboxes(const struct sp_cli_doctor *doctor)
{
	int64_t capacity = sp_cli_doctor_capacity(doctor);

	return capacity > 0 ? capacity : SANDBOXES_ASSUMED;
}

static void check_open_files(struct sp_cli_doctor *doctor)
{
	int64_t needed = sandboxes(doctor) * FDS_PER_SANDBOX + FDS_OF_OUR_OWN;
	struct sp_cli_finding *finding;
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	/* The daemon raises its soft limit to the hard one by itself. */
	if (limit.rlim_max == RLIM_INFINITY || (int64_t)limit.rlim_max >= needed) {
		(void)sp_cli_doctor_report(doctor, "open files", SP_CLI_PASS,
					   "hard limit %lld, needed %lld",
					   (long long)limit.rlim_max, (long long)needed);
		return;
	}
	finding = sp_cli_doctor_report(
		doctor, "open files", SP_CLI_FAIL, "hard limit %lld, %lld sandboxes need %lld",
		(long long)limit.rlim_max, (long long)sandboxes(doctor), (long long)needed);
	sp_cli_doctor_fix(finding, "LimitNOFILE=%lld in the unit, or ulimit -Hn",
			  (long long)needed);
}

static void check_pid_max(struct sp_cli_doctor *doctor)
{
	int64_t needed = PIDS_OF_THE_HOST;
	struct sp_cli_finding *finding;
	int64_t limit;

	for (size_t i = 0; doctor->config && i < doctor->config->pool_count; i++) {
		const struct sp_config_pool *pool = &doctor->config->pools[i];

		needed += (int64_t)SP_MAX(pool->policy.max_total, pool->policy.max_idle) *
			  (int64_t)pool->pids;
	}
	if (sp_cli_doctor_number("/proc/sys/kernel/pid_max", &limit) < 0)
		return;
	if (limit >= needed) {
		(void)sp_cli_doctor_report(doctor, "pid_max", SP_CLI_PASS, "%lld, needed %lld",
					   (long long)limit, (long long)needed);
		return;
	}
	finding = sp_cli_doctor_report(doctor, "pid_max", SP_CLI_WARN,
				       "%lld, all sandboxes full may need %lld", (long long)limit,
				       (long long)needed);
	sp_cli_doctor_fix(finding, "sysctl -w kernel.pid_max=4194304");
}

/* The nearest directory that exists: a state dir is made at the first start. */
static void existing_parent(char *path)
{
	while (path[0] && access(path, F_OK) < 0) {
		char *slash = strrchr(path, '/');

		if (!slash)
			break;
		*slash = '\0';
	}
	if (!path[0])
		(void)snprintf(path, 2, "/");
}

static void check_state_dir(struct sp_cli_doctor *doctor)
{
	struct sp_cli_finding *finding;
	struct statvfs status;
	char path[512];

	if (!doctor->config || !doctor->config->state_dir)
		return;
	(void)snprintf(path, sizeof(path), "%s", doctor->config->state_dir);
	existing_parent(path);
	if (statvfs(path, &status) < 0 || faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) < 0) {
		finding = sp_cli_doctor_report(doctor, "state dir", SP_CLI_FAIL,
					       "'%.200s' cannot be written: %s", path,
					       strerrordesc_np(errno));
		sp_cli_doctor_fix(finding, "run as root, or choose another state_dir");
	} else if ((status.f_flag & ST_RDONLY) != 0) {
		finding = sp_cli_doctor_report(doctor, "state dir", SP_CLI_FAIL,
					       "'%.200s' is on a read-only file system", path);
		sp_cli_doctor_fix(finding, "choose another state_dir");
	} else if ((status.f_flag & ST_NOEXEC) == 0) {
		finding =
			sp_cli_doctor_report(doctor, "state dir", SP_CLI_WARN,
					     "'%.200s' is writable, but not mounted noexec", path);
		sp_cli_doctor_fix(finding, "put state_dir on a noexec file system such as /run");
	} else {
		(void)sp_cli_doctor_report(doctor, "state dir", SP_CLI_PASS,
					   "'%.200s' is writable and noexec", path);
	}
}

static void check_privilege(struct sp_cli_doctor *doctor)
{
	if (doctor->root) {
		(void)sp_cli_doctor_report(doctor, "privilege", SP_CLI_PASS, "running as root");
		return;
	}
	sp_cli_doctor_fix(sp_cli_doctor_report(doctor, "privilege", SP_CLI_WARN,
					       "running as uid %u: checked is what rootless "
					       "sandboxes need",
					       (unsigned int)geteuid()),
			  "sudo sandpool doctor, if the daemon is started by root");
}

void sp_cli_doctor_host(struct sp_cli_doctor *doctor)
{
	check_privilege(doctor);
	if (doctor->root)
		check_uids(doctor);
	else
		sp_cli_doctor_rootless(doctor);
	check_open_files(doctor);
	check_pid_max(doctor);
	check_state_dir(doctor);
}
