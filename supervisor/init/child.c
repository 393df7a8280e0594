/*
 * See child.h. The order matters:
 *
 *  - The child keeps PID 1's real and saved uid until the last moment: a workload may signal and
 *    stop whatever has its own, and the fewer instructions lie between the last setresuid and
 *    execve the better.
 *  - The effective uid changes first. That change lets the memory, which is PID 1's as well, be
 *    dumped as fs.suid_dumpable says; where that is 1, /proc/<child>/mem would be open to a
 *    workload as soon as all three ids are its own. So it is taken back in between; the last
 *    setresuid finds the effective uid set and leaves it alone.
 *  - The working directory is entered with the workload's effective uid and, because of that,
 *    without effective capabilities, so that the kernel checks its permissions and not ours
 *    (CAP_SYS_PTRACE alone would open /proc/1/fd).
 *  - Descriptors are closed before anything of the request is looked at: no path such as
 *    /proc/self/fd/7 can name one of ours.
 *  - Signals stay blocked nearly to the end; one that came meanwhile ends the child there.
 *  - The tiny filter comes after the last call that it denies.
 *
 * A failing step leaves its name and errno in the slot and exits. No libc call in this file.
 */
#include "supervisor/init/child.h"

#include "supervisor/init/raw.h"
#include "supervisor/init/session.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/filter.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXIT_NOT_STARTED 127
#define DEFAULT_PATH     "/usr/local/bin:/usr/bin:/bin"
#define MAP_SPACE        32
#define DECIMAL          10u
#define UNCHANGED        (-1)

static SP_NORETURN void child_exit(void)
{
	for (;;)
		(void)RAW1(SYS_exit_group, EXIT_NOT_STARTED);
}

static SP_NORETURN void child_fail(struct init_child *child, enum init_child_step step, long status)
{
	child->failed_step = step;
	child->status = (int)status;
	child->progress = INIT_CHILD_FAILED;
	child_exit();
}

static void must(struct init_child *child, enum init_child_step step, long result)
{
	if (result < 0)
		child_fail(child, step, result);
}

static void place_descriptors(struct init_child *child)
{
	for (int i = 0; i < 3; i++)
		must(child, INIT_STEP_DESCRIPTORS, RAW3(SYS_dup3, child->fds[i], i, 0));
	if (child->tty)
		must(child, INIT_STEP_TERMINAL, RAW3(SYS_ioctl, STDIN_FILENO, TIOCSCTTY, 0));
	must(child, INIT_STEP_DESCRIPTORS, RAW3(SYS_close_range, STDERR_FILENO + 1, UINT_MAX, 0));
}

static void set_rlimits(struct init_child *child)
{
	for (size_t i = 0; i < child->rlimit_count; i++)
		must(child, INIT_STEP_RLIMIT,
		     RAW4(SYS_prlimit64, 0, child->rlimits[i].resource, &child->rlimits[i].limit,
			  0));
}

/* Write "<inside> 0 1" (or the given text) to a file of /proc/self. */
static long write_own(int proc_fd, const char *name, const char *text, size_t len)
{
	long fd = RAW4(SYS_openat, proc_fd, name, O_WRONLY | O_CLOEXEC, 0);
	long written;

	if (fd < 0)
		return fd;
	written = RAW3(SYS_write, fd, text, len);
	(void)RAW1(SYS_close, fd);
	return written;
}

static size_t map_text(char *text, uint32_t inside)
{
	static const char outside[] = " 0 1";
	char digits[MAP_SPACE];
	size_t count = 0;
	size_t len = 0;

	do {
		digits[count++] = (char)('0' + inside % DECIMAL);
		inside /= DECIMAL;
	} while (inside > 0);
	while (count > 0)
		text[len++] = digits[--count];
	for (size_t i = 0; outside[i] != '\0'; i++)
		text[len++] = outside[i];
	return len;
}

long init_child_map_ids(int proc_fd, uint32_t uid, uint32_t gid)
{
	char text[MAP_SPACE];
	long status = write_own(proc_fd, "self/setgroups", "deny", sizeof("deny") - 1);

	if (status >= 0)
		status = write_own(proc_fd, "self/uid_map", text, map_text(text, uid));
	if (status >= 0)
		status = write_own(proc_fd, "self/gid_map", text, map_text(text, gid));
	return status;
}

static void drop_bounding_set(struct init_child *child)
{
	for (long number = 0; number <= CAP_LAST_CAP; number++) {
		long status = RAW2(SYS_prctl, PR_CAPBSET_DROP, number);

		if (status < 0 && status != -EINVAL) /* EINVAL: older kernel, fewer of them */
			child_fail(child, INIT_STEP_CREDENTIALS, status);
	}
}

static void set_capabilities(struct init_child *child, uint32_t low)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	const struct __user_cap_data_struct data[2] = {{.effective = low, .permitted = low}};

	must(child, INIT_STEP_CREDENTIALS, RAW2(SYS_capset, &header, data));
}

static void load_filter(struct init_child *child)
{
	struct sock_fprog program = {
		.len = (unsigned short)(child->filter_length / sizeof(struct sock_filter)),
		.filter = (struct sock_filter *)(uintptr_t)child->filter,
	};

	if (child->filter)
		must(child, INIT_STEP_SECCOMP,
		     RAW3(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
}

static const char *search_path(char **envp)
{
	for (; *envp; envp++) {
		const char *name = "PATH=";
		const char *at = *envp;

		while (*name != '\0' && *at == *name) {
			at++;
			name++;
		}
		if (*name == '\0')
			return at;
	}
	return DEFAULT_PATH;
}

/* Copy one directory of the search path and the name behind it; false: too long. *path is left at
 * the next directory, NULL after the last. */
static bool next_candidate(const char **path, const char *file, char *buffer, size_t size)
{
	const char *at = *path;
	size_t len = 0;

	while (*at != '\0' && *at != ':' && len < size)
		buffer[len++] = *at++;
	while (*at != '\0' && *at != ':')
		at++;
	*path = *at == ':' ? at + 1 : NULL;
	if (len > 0 && len < size)
		buffer[len++] = '/';
	do {
		if (len >= size)
			return false;
		buffer[len++] = *file;
	} while (*file++ != '\0');
	return true;
}

/* As execvp(3), but a text without "#!" stays ENOEXEC. Returns the errno to report. */
static long execute(struct init_child *child)
{
	const char *file = child->argv[0];
	const char *path = search_path(child->envp);
	char candidate[PATH_MAX];
	bool denied = false;

	if (*file == '\0')
		return -ENOENT;
	for (const char *at = file; *at != '\0'; at++)
		if (*at == '/')
			return RAW3(SYS_execve, file, child->argv, child->envp);
	while (path) {
		long status = -ENAMETOOLONG;

		if (next_candidate(&path, file, candidate, sizeof(candidate)))
			status = RAW3(SYS_execve, candidate, child->argv, child->envp);
		if (status == -EACCES)
			denied = true;
		else if (status != -ENOENT && status != -ENOTDIR && status != -ENAMETOOLONG &&
			 status != -ELOOP)
			return status;
	}
	return denied ? -EACCES : -ENOENT;
}

/* Everything but the uid, and the capability to change that. */
static void shed_privileges(struct init_child *child)
{
	if (child->direct) {
		set_capabilities(child, 0);
		return;
	}
	if (child->rootless)
		drop_bounding_set(child);
	else
		must(child, INIT_STEP_CREDENTIALS, RAW2(SYS_setgroups, 0, 0));
	must(child, INIT_STEP_CREDENTIALS, RAW3(SYS_setresgid, child->gid, child->gid, child->gid));
	set_capabilities(child, 1u << CAP_SETUID);
}

/* Takes the effective capabilities along, and makes the memory dumpable, or not. */
static void change_effective_uid(struct init_child *child)
{
	if (child->direct)
		return;
	must(child, INIT_STEP_CREDENTIALS, RAW3(SYS_setresuid, UNCHANGED, child->uid, UNCHANGED));
	must(child, INIT_STEP_CREDENTIALS, RAW2(SYS_prctl, PR_SET_DUMPABLE, 0));
}

/* The last of uid 0 takes the last capability along: securebits are locked that way. */
static void change_uid(struct init_child *child)
{
	if (!child->direct)
		must(child, INIT_STEP_CREDENTIALS,
		     RAW3(SYS_setresuid, child->uid, child->uid, child->uid));
}

/* On the host no pid namespace ends with init. No ids are changed after it, which would clear it.
 */
static void follow_parent(struct init_child *child)
{
	must(child, INIT_STEP_CREDENTIALS, RAW2(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL));
	if (RAW0(SYS_getppid) != child->parent)
		child_exit();
}

void init_child_main(void *argument)
{
	struct init_child *child = argument;
	const uint64_t no_signals = 0;

	must(child, INIT_STEP_SESSION, RAW0(SYS_setsid));
	if (child->session_fd >= 0)
		must(child, INIT_STEP_NAMESPACES,
		     RAW2(SYS_setns, child->session_fd, INIT_SESSION_NAMESPACES));
	if (child->rootless)
		must(child, INIT_STEP_USER_NAMESPACE,
		     init_child_map_ids(child->proc_fd, child->uid, child->gid));
	place_descriptors(child);
	set_rlimits(child);
	(void)RAW1(SYS_umask, child->umask);
	shed_privileges(child);
	change_effective_uid(child);
	must(child, INIT_STEP_CWD, RAW1(SYS_chdir, child->cwd));
	load_filter(child);
	if (child->direct)
		follow_parent(child);
	(void)RAW4(SYS_rt_sigprocmask, SIG_SETMASK, &no_signals, 0, sizeof(no_signals));
	change_uid(child);
	child->progress = INIT_CHILD_EXECUTING;
	child_fail(child, INIT_STEP_EXEC, execute(child));
}

const char *init_child_step_name(enum init_child_step step)
{
	switch (step) {
	case INIT_STEP_SESSION:
		return "session";
	case INIT_STEP_NAMESPACES:
		return "namespaces";
	case INIT_STEP_TERMINAL:
		return "terminal";
	case INIT_STEP_DESCRIPTORS:
		return "descriptors";
	case INIT_STEP_RLIMIT:
		return "rlimit";
	case INIT_STEP_USER_NAMESPACE:
		return "user_namespace";
	case INIT_STEP_CREDENTIALS:
		return "credentials";
	case INIT_STEP_CWD:
		return "cwd";
	case INIT_STEP_SECCOMP:
		return "seccomp";
	case INIT_STEP_EXEC:
		return "exec";
	}
	return "exec";
}
