/*
 * Doctor: the kernel's version, the system calls that sandboxes are made of, and what a crash in a
 * sandbox would start outside of it. System calls are probed with arguments that the kernel must
 * refuse, so that a probe has no effect: what counts is which error comes back.
 */
#include "supervisor/cli/doctor.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

static void check_version(struct sp_cli_doctor *doctor)
{
	struct sp_cli_finding *finding;
	struct utsname name;
	unsigned int major;
	unsigned int minor;
	unsigned int version;

	if (uname(&name) < 0 || sscanf(name.release, "%u.%u", &major, &minor) != 2) {
		(void)sp_cli_doctor_report(doctor, "kernel", SP_CLI_FAIL,
					   "its version is unreadable");
		return;
	}
	version = major * 1000 + minor;
	if (version < 5015) {
		finding = sp_cli_doctor_report(doctor, "kernel", SP_CLI_FAIL, "%s: too old",
					       name.release);
		sp_cli_doctor_fix(finding, "boot Linux 5.15 or later, better 6.1");
	} else if (version < 6001) {
		finding = sp_cli_doctor_report(
			doctor, "kernel", SP_CLI_WARN,
			"%s: works; id-mapped and overlay workspaces are limited", name.release);
		sp_cli_doctor_fix(finding, "boot Linux 6.1 or later");
	} else {
		(void)sp_cli_doctor_report(doctor, "kernel", SP_CLI_PASS, "%s on %s", name.release,
					   name.machine);
	}
}

struct probe {
	const char *name;
	long number;
	long args[5];
	const char *since;
	bool needs_privilege; /* EPERM is the expected answer to somebody who is not root */
};

/* A bad descriptor, a NULL pointer or a size of 0 makes every one of them fail. */
static const struct probe probes[] = {
	{"clone3", SYS_clone3, {0, 0}, "5.3", false},
	{"openat2", SYS_openat2, {-1, 0, 0, 0}, "5.6", false},
	{"close_range", SYS_close_range, {2, 1, 0}, "5.9", false},
	{"pidfd_open", SYS_pidfd_open, {-1, 0}, "5.3", false},
	{"pidfd_send_signal", SYS_pidfd_send_signal, {-1, 0, 0, 0}, "5.1", false},
	{"memfd_create", SYS_memfd_create, {0, 0}, "3.17", false},
	{"open_tree", SYS_open_tree, {-1, 0, 0}, "5.2", false},
	{"move_mount", SYS_move_mount, {-1, 0, -1, 0, 0}, "5.2", true},
	{"fsopen", SYS_fsopen, {0, 0}, "5.2", true},
	{"mount_setattr", SYS_mount_setattr, {-1, 0, 0, 0, 0}, "5.12", true},
};

static void check_syscalls(struct sp_cli_doctor *doctor)
{
	char missing[200] = "";
	char denied[200] = "";
	struct sp_cli_finding *finding;

	for (size_t i = 0; i < SP_ARRAY_SIZE(probes); i++) {
		const struct probe *probe = &probes[i];
		char *list = NULL;
		size_t used;

		errno = 0;
		if (syscall(probe->number, probe->args[0], probe->args[1], probe->args[2],
			    probe->args[3], probe->args[4]) >= 0)
			continue;
		if (errno == ENOSYS)
			list = missing;
		else if (errno == EPERM && (doctor->root || !probe->needs_privilege))
			list = denied;
		if (!list)
			continue;
		used = strlen(list);
		(void)snprintf(list + used, sizeof(missing) - used, "%s%s (%s)", used ? ", " : "",
			       probe->name, probe->since);
	}
	if (!missing[0] && !denied[0]) {
		(void)sp_cli_doctor_report(doctor, "system calls", SP_CLI_PASS, "all %zu there",
					   SP_ARRAY_SIZE(probes));
		return;
	}
	if (missing[0]) {
		finding = sp_cli_doctor_report(doctor, "system calls", SP_CLI_FAIL, "missing: %s",
					       missing);
		sp_cli_doctor_fix(finding, "boot a newer kernel; in a container, let its seccomp "
					   "profile permit them");
	}
	if (denied[0]) {
		finding = sp_cli_doctor_report(doctor, "system calls", SP_CLI_FAIL, "denied: %s",
					       denied);
		sp_cli_doctor_fix(finding, "in a container, give it CAP_SYS_ADMIN and a seccomp "
					   "profile that permits them");
	}
}

static void check_seccomp(struct sp_cli_doctor *doctor)
{
	static const struct {
		const char *name;
		uint32_t action;
	} actions[] = {
		{"errno", SECCOMP_RET_ERRNO},
		{"kill_process", SECCOMP_RET_KILL_PROCESS},
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(actions); i++) {
		struct sp_cli_finding *finding;

		if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &actions[i].action) == 0)
			continue;
		finding = sp_cli_doctor_report(doctor, "seccomp", SP_CLI_FAIL,
					       "no filters with action %s: %s", actions[i].name,
					       strerrordesc_np(errno));
		sp_cli_doctor_fix(finding, "boot a kernel with CONFIG_SECCOMP_FILTER");
		return;
	}
	(void)sp_cli_doctor_report(doctor, "seccomp", SP_CLI_PASS, "filters available");
}

/* Opened, not linked: only sandpool-compile needs the library. */
static void check_libseccomp(struct sp_cli_doctor *doctor)
{
	struct version {
		unsigned int major, minor, micro;
	};

	const struct version *(*get)(void);
	const struct version *version;
	struct sp_cli_finding *finding;
	void *library = dlopen("libseccomp.so.2", RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		finding = sp_cli_doctor_report(doctor, "libseccomp", SP_CLI_FAIL,
					       "libseccomp.so.2 cannot be loaded");
		sp_cli_doctor_fix(finding, "apt install libseccomp2");
		return;
	}
	*(void **)(void *)&get = dlsym(library, "seccomp_version");
	version = get ? get() : NULL;
	if (version && version->major * 1000000 + version->minor * 1000 + version->micro >= 2006001)
		(void)sp_cli_doctor_report(doctor, "libseccomp", SP_CLI_PASS, "%u.%u.%u",
					   version->major, version->minor, version->micro);
	else {
		finding = sp_cli_doctor_report(
			doctor, "libseccomp", SP_CLI_WARN,
			"%u.%u.%u: before 2.6.1 it can merge 64-bit comparisons wrongly, which "
			"matters for a pool with a seccomp profile of its own",
			version ? version->major : 0, version ? version->minor : 0,
			version ? version->micro : 0);
		sp_cli_doctor_fix(finding, "install libseccomp 2.6.1 or later");
	}
	(void)dlclose(library);
}

/* A piped core_pattern starts a host program as root for a crash in a sandbox; sandboxes guard
 * against it (RLIMIT_CORE 1), but every crash still costs the host a look. */
static void check_core_pattern(struct sp_cli_doctor *doctor)
{
	char pattern[256];
	struct sp_cli_finding *finding;
	int status = sp_cli_doctor_read("/proc/sys/kernel/core_pattern", pattern, sizeof(pattern));

	if (status == 0 && pattern[0] == '|') {
		finding = sp_cli_doctor_report(doctor, "core_pattern", SP_CLI_WARN,
					       "pipes to '%.120s': sandboxes are kept from it by "
					       "their core limit alone",
					       pattern + 1);
		sp_cli_doctor_fix(finding, "sysctl kernel.core_pattern=core on hosts that only run "
					   "sandboxes");
	} else {
		(void)sp_cli_doctor_report(doctor, "core_pattern", SP_CLI_PASS,
					   "starts no program for a crash");
	}
}

void sp_cli_doctor_kernel(struct sp_cli_doctor *doctor)
{
	check_version(doctor);
	check_syscalls(doctor);
	check_seccomp(doctor);
	check_libseccomp(doctor);
	check_core_pattern(doctor);
}
