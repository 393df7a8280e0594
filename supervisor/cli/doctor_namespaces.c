/*
 * Doctor: can a sandbox be made here? Answered by making the empty shell of one: a child in new
 * namespaces, which mounts a proc and ends. It tells what no sysctl tells: AppArmor, an outer
 * seccomp filter, a container's masked /proc. The child is alone in its namespaces and leaves
 * nothing.
 */
#include "supervisor/cli/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool/base/fd.h"

#define NAMESPACE_FLAGS \
	(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS)
#define STEP_EXIT 64 /* exit status of the child = step * STEP_EXIT + small errno */

enum probe_step { STEP_NONE, STEP_PRIVATE, STEP_PROC };

struct probe_child {
	int pid_fd;
	int go; /* a byte written here lets the child end */
};

/* Runs between clone and _exit: system calls only. */
static SP_NORETURN void probe_body(int go)
{
	char byte;

	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		_exit(STEP_PRIVATE * STEP_EXIT + (errno & (STEP_EXIT - 1)));
	if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		_exit(STEP_PROC * STEP_EXIT + (errno & (STEP_EXIT - 1)));
	/* Until it is let go, or the parent is gone. */
	if (read(go, &byte, 1) < 0)
		_exit(STEP_NONE);
	_exit(STEP_NONE);
}

/* 0 or negative errno of clone3. */
static int probe_start(struct probe_child *child)
{
	struct clone_args args = {
		.flags = (uint64_t)NAMESPACE_FLAGS | CLONE_PIDFD,
		.pidfd = (uint64_t)(uintptr_t)&child->pid_fd,
		.exit_signal = SIGCHLD,
	};
	int ends[2];
	long pid;

	*child = (struct probe_child){.pid_fd = -1, .go = -1};
	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	pid = syscall(SYS_clone3, &args, sizeof(args));
	if (pid == 0) {
		(void)close(ends[1]);
		probe_body(ends[0]);
	}
	if (pid < 0) {
		int status = -errno;

		(void)close(ends[0]);
		(void)close(ends[1]);
		child->pid_fd = -1;
		return status;
	}
	(void)close(ends[0]);
	child->go = ends[1];
	return 0;
}

/* Its exit status; -1 when it was killed. */
static int probe_finish(struct probe_child *child)
{
	siginfo_t info = {.si_code = 0};

	sp_fd_close(&child->go);
	while (waitid(P_PIDFD, (id_t)child->pid_fd, &info, WEXITED) < 0 && errno == EINTR)
		continue;
	sp_fd_close(&child->pid_fd);
	return info.si_code == CLD_EXITED ? info.si_status : -1;
}

/* ---- the sysctls that explain a refusal ---- */

static void check_sysctls(struct sp_cli_doctor *doctor)
{
	static const char *const kinds[] = {"user", "pid", "mnt", "net", "ipc", "uts", "cgroup"};
	int64_t needed = sp_cli_doctor_capacity(doctor);
	struct sp_cli_finding *finding;
	bool good = true;

	for (size_t i = 0; i < SP_ARRAY_SIZE(kinds); i++) {
		char path[64];
		int64_t limit;

		(void)snprintf(path, sizeof(path), "/proc/sys/user/max_%s_namespaces", kinds[i]);
		if (sp_cli_doctor_number(path, &limit) < 0 || (limit > 0 && limit >= needed))
			continue;
		good = false;
		finding = sp_cli_doctor_report(
			doctor, "namespace limits", limit == 0 ? SP_CLI_FAIL : SP_CLI_WARN,
			"user.max_%s_namespaces is %lld, the pools may need %lld", kinds[i],
			(long long)limit, (long long)needed);
		sp_cli_doctor_fix(finding, "sysctl -w user.max_%s_namespaces=%lld", kinds[i],
				  (long long)SP_MAX(needed * 2, INT64_C(16384)));
	}
	if (good)
		(void)sp_cli_doctor_report(doctor, "namespace limits", SP_CLI_PASS,
					   "user.max_*_namespaces suffice");
}

/* Root is exempt from both. */
static void check_unprivileged(struct sp_cli_doctor *doctor)
{
	static const struct {
		const char *path, *name;
		int64_t bad;
		const char *fix;
	} switches[] = {
		{"/proc/sys/kernel/unprivileged_userns_clone", "kernel.unprivileged_userns_clone",
		 0, "sysctl -w kernel.unprivileged_userns_clone=1"},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
		 "kernel.apparmor_restrict_unprivileged_userns", 1,
		 "install an AppArmor profile with 'userns,' for sandpool-launcher, or sysctl -w "
		 "kernel.apparmor_restrict_unprivileged_userns=0"},
	};

	bool good = true;

	for (size_t i = 0; i < SP_ARRAY_SIZE(switches); i++) {
		struct sp_cli_finding *finding;
		int64_t value;

		if (sp_cli_doctor_number(switches[i].path, &value) < 0 || value != switches[i].bad)
			continue;
		if (doctor->root)
			continue;
		good = false;
		finding = sp_cli_doctor_report(doctor, "user namespaces", SP_CLI_FAIL,
					       "%s is %lld: only root may make them",
					       switches[i].name, (long long)value);
		sp_cli_doctor_fix(finding, "%s", switches[i].fix);
	}
	if (good)
		(void)sp_cli_doctor_report(doctor, "user namespaces", SP_CLI_PASS,
					   doctor->root ? "no restriction that holds for root"
							: "unprivileged users may make them");
}

/* ---- what the shell of a sandbox showed ---- */

static void report_clone_failure(struct sp_cli_doctor *doctor, int status)
{
	struct sp_cli_finding *finding = sp_cli_doctor_report(
		doctor, "new namespaces", SP_CLI_FAIL,
		"clone3 with user, pid, mount, net, ipc, uts: %s", strerrordesc_np(-status));

	if (status == -ENOSPC || status == -EUSERS)
		sp_cli_doctor_fix(finding, "raise user.max_*_namespaces, see above");
	else if (status == -ENOSYS)
		sp_cli_doctor_fix(finding, "let the container's seccomp profile permit clone3");
	else
		sp_cli_doctor_fix(finding, "%s",
				  doctor->root
					  ? "give the container CAP_SYS_ADMIN and a seccomp "
					    "profile that permits clone3, unshare and mount"
					  : "run as root, or permit unprivileged user namespaces");
}

static void report_end(struct sp_cli_doctor *doctor, int end)
{
	struct sp_cli_finding *finding;
	int number = end & (STEP_EXIT - 1);

	if (end == STEP_NONE) {
		(void)sp_cli_doctor_report(doctor, "new namespaces", SP_CLI_PASS,
					   "user, pid, mount, net, ipc, uts together");
		(void)sp_cli_doctor_report(doctor, "fresh /proc", SP_CLI_PASS,
					   "can be mounted in a sandbox");
	} else if (end / STEP_EXIT == STEP_PROC) {
		finding = sp_cli_doctor_report(
			doctor, "fresh /proc", SP_CLI_FAIL,
			"cannot be mounted in a sandbox (%s): parts of our own /proc are covered",
			strerrordesc_np(number));
		sp_cli_doctor_fix(finding, "docker run --security-opt systempaths=unconfined; "
					   "Kubernetes: procMount: Unmasked");
	} else {
		finding = sp_cli_doctor_report(doctor, "new namespaces", SP_CLI_FAIL,
					       "made, but mount is refused in them (%s)",
					       end < 0 ? "killed" : strerrordesc_np(number));
		sp_cli_doctor_fix(finding,
				  "look for AppArmor or seccomp denials in the kernel log");
	}
}

/* ---- id-mapped mounts ---- */

static int write_map(int pid, const char *file)
{
	static const char map[] = "0 1000000 65536\n";
	char path[64];
	SP_AUTO_CLOSE int fd = -1;

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	return sp_write_all(fd, map, sizeof(map) - 1);
}

/* The child's pid, as the pidfd's fdinfo has it: no pid is remembered. */
static int pid_of(int pid_fd)
{
	char path[64];
	char text[1024];
	const char *line;
	int pid = -1;

	(void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pid_fd);
	if (sp_cli_doctor_read(path, text, sizeof(text)) < 0)
		return -1;
	line = strstr(text, "\nPid:");
	return line && sscanf(line, "\nPid: %d", &pid) == 1 ? pid : -1;
}

/* The user namespace of the child, with a map. */
static int open_userns(const struct probe_child *child)
{
	int pid = pid_of(child->pid_fd);
	char path[64];
	int status;
	int fd;

	if (pid <= 0)
		return -ESRCH;
	status = write_map(pid, "uid_map");
	if (status == 0)
		status = write_map(pid, "gid_map");
	if (status < 0)
		return status;
	(void)snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* A detached clone of the directory, id-mapped, and let go again: nobody ever sees it. */
static int try_idmap(const char *path, int userns_fd)
{
	struct mount_attr attr = {
		.attr_set = MOUNT_ATTR_IDMAP,
		.userns_fd = (unsigned int)userns_fd,
	};
	SP_AUTO_CLOSE int tree = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

	if (tree < 0)
		return -errno;
	return mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0 ? -errno : 0;
}

static void check_idmap_of(struct sp_cli_doctor *doctor, const char *path, int userns_fd)
{
	struct sp_cli_finding *finding;
	int status = try_idmap(path, userns_fd);

	if (status == 0) {
		(void)sp_cli_doctor_report(doctor, "id-mapped mounts", SP_CLI_PASS, "of '%.200s'",
					   path);
		return;
	}
	finding = sp_cli_doctor_report(doctor, "id-mapped mounts", SP_CLI_WARN,
				       "of '%.160s': %s; rw binds of it will be refused", path,
				       strerrordesc_np(-status));
	sp_cli_doctor_fix(finding, "keep workspaces on ext4, xfs, btrfs or (from 6.3) tmpfs");
}

static void check_idmap(struct sp_cli_doctor *doctor, const struct probe_child *child)
{
	SP_AUTO_CLOSE int userns_fd = -1;
	size_t shown = 0;

	if (!doctor->root) {
		(void)sp_cli_doctor_report(doctor, "id-mapped mounts", SP_CLI_WARN,
					   "not checked: only root can make them");
		return;
	}
	userns_fd = open_userns(child);
	if (userns_fd < 0) {
		(void)sp_cli_doctor_report(doctor, "id-mapped mounts", SP_CLI_FAIL,
					   "cannot map ids into a user namespace: %s",
					   strerrordesc_np(-userns_fd));
		return;
	}
	for (size_t i = 0; doctor->config && i < doctor->config->pool_count; i++) {
		const struct sp_config_pool *pool = &doctor->config->pools[i];

		/* Eight lines tell enough about a host. */
		for (size_t k = 0; k < pool->bind_root_count && shown < 8; k++, shown++)
			check_idmap_of(doctor, pool->bind_roots[k].path, userns_fd);
	}
	if (shown == 0)
		check_idmap_of(doctor, "/var", userns_fd);
}

void sp_cli_doctor_namespaces(struct sp_cli_doctor *doctor)
{
	struct probe_child child;
	int status;

	check_sysctls(doctor);
	check_unprivileged(doctor);
	status = probe_start(&child);
	if (status < 0) {
		report_clone_failure(doctor, status);
		return;
	}
	check_idmap(doctor, &child);
	report_end(doctor, probe_finish(&child));
}
