/*
 * Doctor: which limits can be enforced here. v1, v2 and mixtures of both are read from mountinfo;
 * whether they can be used is tried by making an empty cgroup and removing it.
 */
#include "supervisor/cli/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/base/fd.h"

#define MOUNTINFO_MAX (4u << 20)

enum { MEMORY, PIDS, CPU, CONTROLLER_COUNT };

static const char *const controller_names[CONTROLLER_COUNT] = {"memory", "pids", "cpu"};

struct layout {
	char v1[CONTROLLER_COUNT][256]; /* mount points, "" = none */
	char v2[256];                   /* mount point, "" = none */
	bool v2_has[CONTROLLER_COUNT];
};

static bool has_word(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (const char *at = list; at; at = strpbrk(at, ", ")) {
		at += strspn(at, ", ");
		if (strncmp(at, word, len) == 0 && strchr(", \n", at[len]))
			return true;
	}
	return false;
}

/* "36 35 98:0 / /mount/point rw - cgroup cgroup rw,memory" */
static void take_mount(struct layout *layout, const char *line)
{
	const char *separator = strstr(line, " - ");
	char point[256];
	char type[32];
	char options[512];

	if (!separator || sscanf(line, "%*s %*s %*s %*s %255s", point) != 1 ||
	    sscanf(separator, " - %31s %*s %511s", type, options) != 2)
		return;
	if (strcmp(type, "cgroup2") == 0 && !layout->v2[0])
		(void)snprintf(layout->v2, sizeof(layout->v2), "%s", point);
	for (size_t i = 0; strcmp(type, "cgroup") == 0 && i < CONTROLLER_COUNT; i++)
		if (!layout->v1[i][0] && has_word(options, controller_names[i]))
			(void)snprintf(layout->v1[i], sizeof(layout->v1[i]), "%s", point);
}

static void find_layout(struct layout *layout)
{
	char path[300];
	char list[512];
	char *text = sp_cli_xrealloc(NULL, MOUNTINFO_MAX);
	char *rest = text;
	char *line;

	memset(layout, 0, sizeof(*layout));
	if (sp_cli_doctor_read("/proc/self/mountinfo", text, MOUNTINFO_MAX) == 0)
		while ((line = strsep(&rest, "\n")))
			take_mount(layout, line);
	free(text);
	(void)snprintf(path, sizeof(path), "%s/cgroup.controllers", layout->v2);
	if (layout->v2[0] && sp_cli_doctor_read(path, list, sizeof(list)) == 0)
		for (size_t i = 0; i < CONTROLLER_COUNT; i++)
			layout->v2_has[i] = has_word(list, controller_names[i]);
}

/* 0 when a cgroup with that file can be made below dir. */
static int try_cgroup(const char *dir, const char *file)
{
	char name[64];
	SP_AUTO_CLOSE int dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	SP_AUTO_CLOSE int fd = -1;
	int status = 0;

	if (dir_fd < 0)
		return -errno;
	(void)snprintf(name, sizeof(name), "sandpool-doctor-%d", getpid());
	if (mkdirat(dir_fd, name, 0755) < 0)
		return -errno;
	fd = openat(dir_fd, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || (file && faccessat(fd, file, W_OK, AT_EACCESS) < 0))
		status = -errno;
	(void)unlinkat(dir_fd, name, AT_REMOVEDIR);
	return status;
}

/* The cgroup that we are in, below the v2 mount: where a delegated service may make its own. */
static void own_cgroup(const struct layout *layout, char *path, size_t size)
{
	char text[4096];
	const char *line;

	(void)snprintf(path, size, "%s", layout->v2);
	if (sp_cli_doctor_read("/proc/self/cgroup", text, sizeof(text)) < 0)
		return;
	line = strncmp(text, "0::/", 4) == 0 ? text : strstr(text, "\n0::/");
	if (!line)
		return;
	line = strchr(line, '/');
	(void)snprintf(path, size, "%s%.*s", layout->v2, (int)strcspn(line, "\n"), line);
}

/* What the configuration allows to be missing is no failure. */
static enum sp_cli_verdict missing_limit(const struct sp_cli_doctor *doctor)
{
	return doctor->config && doctor->config->degraded ? SP_CLI_WARN : SP_CLI_FAIL;
}

static void check_controller(struct sp_cli_doctor *doctor, const struct layout *layout, size_t i)
{
	static const char *const names[] = {"memory limit", "pids limit", "cpu limit"};
	static const char *const v1_files[] = {"memory.limit_in_bytes", "pids.max",
					       "cpu.cfs_quota_us"};
	struct sp_cli_finding *finding;
	char path[600];
	int status;

	if (layout->v1[i][0]) {
		status = try_cgroup(layout->v1[i], v1_files[i]);
		(void)snprintf(path, sizeof(path), "%s", layout->v1[i]);
	} else if (layout->v2_has[i]) {
		own_cgroup(layout, path, sizeof(path));
		status = try_cgroup(path, NULL);
	} else {
		finding = sp_cli_doctor_report(doctor, names[i], missing_limit(doctor),
					       "no cgroup hierarchy has the %s controller",
					       controller_names[i]);
		sp_cli_doctor_fix(finding,
				  "boot without cgroup_disable=%s; without it pools need "
				  "\"degraded\": true",
				  controller_names[i]);
		return;
	}
	if (status == 0) {
		(void)sp_cli_doctor_report(doctor, names[i], SP_CLI_PASS, "cgroup %s at '%.200s'",
					   layout->v1[i][0] ? "v1" : "v2", path);
		return;
	}
	finding = sp_cli_doctor_report(doctor, names[i], missing_limit(doctor),
				       "no cgroup can be made in '%.200s': %s", path,
				       strerrordesc_np(-status));
	if (status == -EROFS)
		sp_cli_doctor_fix(finding,
				  "mount cgroups read-write in the container (docker run "
				  "--cgroupns=private --privileged, or a delegated mount)");
	else if (doctor->root)
		sp_cli_doctor_fix(finding, "run as root of the host, or mount cgroups read-write");
	else
		sp_cli_doctor_fix(finding,
				  "run as root, or under systemd-run --user -p Delegate=yes");
}

static void check_v2(struct sp_cli_doctor *doctor, const struct layout *layout)
{
	struct sp_cli_finding *finding;
	char path[600];

	if (!layout->v2[0]) {
		finding = sp_cli_doctor_report(
			doctor, "cgroup v2", SP_CLI_WARN,
			"not mounted: a timeout hunts processes down one by one");
		sp_cli_doctor_fix(finding, "mount -t cgroup2 none /sys/fs/cgroup/unified");
		return;
	}
	own_cgroup(layout, path, sizeof(path));
	if (try_cgroup(path, "cgroup.kill") == 0 && try_cgroup(path, "cgroup.freeze") == 0)
		(void)sp_cli_doctor_report(doctor, "cgroup v2", SP_CLI_PASS,
					   "'%.200s' has cgroup.kill and cgroup.freeze", path);
	else {
		finding = sp_cli_doctor_report(doctor, "cgroup v2", SP_CLI_WARN,
					       "'%.200s' gives no cgroup with cgroup.kill and "
					       "cgroup.freeze",
					       path);
		sp_cli_doctor_fix(finding,
				  "Linux 5.14 or later, and the right to make cgroups there");
	}
}

/* v1 limits memory and swap together only with memsw: without, a sandbox swaps past its limit. */
static void check_swap(struct sp_cli_doctor *doctor, const struct layout *layout)
{
	char text[8192];
	char path[600];
	const char *line;
	unsigned long long swap_kib = 0;
	struct sp_cli_finding *finding;

	if (sp_cli_doctor_read("/proc/meminfo", text, sizeof(text)) == 0) {
		line = strstr(text, "SwapTotal:");
		if (line && sscanf(line, "SwapTotal: %llu", &swap_kib) != 1)
			swap_kib = 0;
	}
	(void)snprintf(path, sizeof(path), "%s/memory.memsw.limit_in_bytes", layout->v1[MEMORY]);
	if (swap_kib == 0 || !layout->v1[MEMORY][0] || access(path, F_OK) == 0) {
		(void)sp_cli_doctor_report(doctor, "swap", SP_CLI_PASS,
					   swap_kib == 0 ? "none: memory limits are exact"
							 : "is limited together with memory");
		return;
	}
	finding = sp_cli_doctor_report(doctor, "swap", SP_CLI_WARN,
				       "%llu KiB, and cgroup v1 does not account it: a sandbox can "
				       "use more than limits.memory",
				       swap_kib);
	sp_cli_doctor_fix(finding, "swapoff -a, or boot with swapaccount=1");
}

void sp_cli_doctor_cgroups(struct sp_cli_doctor *doctor)
{
	struct layout layout;

	find_layout(&layout);
	for (size_t i = 0; i < CONTROLLER_COUNT; i++)
		check_controller(doctor, &layout, i);
	check_v2(doctor, &layout);
	check_swap(doctor, &layout);
}
