/*
 * Payload: try every system call that a workload must not have and print how the kernel answered:
 * "NAME ok" or "NAME ERRNO-NUMBER" or "NAME signal N", one a line.
 *
 * Arguments are chosen so that an unconfined root gets anything but EPERM and ENOSYS (success, or a
 * complaint about the arguments) and nothing happens to the machine; the same program on the host
 * is therefore the positive control. Each call is made in a child of its own, because some succeed.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif
#ifndef SYS_open_tree_attr
#define SYS_open_tree_attr 467
#endif
#ifndef TIOCLINUX
#define TIOCLINUX 0x541C
#endif

#define ABSENT  "/nonexistent/sandpool"
#define SET_ID  (S_ISUID | 0755)
#define BAD_FD  (-1L)
#define NOTHING 0L
#define P(text) ((long)(uintptr_t)(text))

struct attempt {
	const char *name;
	long number;
	long args[6];
};

static const char byte[] = "x";

#define CALL(name, ...)             \
	{                           \
#name, SYS_##name,  \
		{                   \
			__VA_ARGS__ \
		}                   \
	}
#define AS(label, name, ...)        \
	{                           \
		label, SYS_##name,  \
		{                   \
			__VA_ARGS__ \
		}                   \
	}

int main(void)
{
	const struct attempt attempts[] = {
		/* mounts, old and new interface */
		CALL(mount, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING),
		CALL(umount2, P(ABSENT), 0),
		CALL(pivot_root, P(ABSENT), P(ABSENT)),
		CALL(chroot, P("/")),
		CALL(fsopen, P("nosuchfs"), 0),
		CALL(fsconfig, BAD_FD, 0, NOTHING, NOTHING, 0),
		CALL(fsmount, BAD_FD, 0, 0),
		CALL(fspick, BAD_FD, P("x"), 0),
		CALL(open_tree, BAD_FD, P("x"), 0),
		CALL(open_tree_attr, BAD_FD, P("x"), 0, NOTHING, 0),
		CALL(move_mount, BAD_FD, P("x"), BAD_FD, P("y"), 0),
		CALL(mount_setattr, BAD_FD, P("x"), 0, NOTHING, 0),
		/* namespaces */
		AS("unshare_user", unshare, CLONE_NEWUSER),
		AS("unshare_mount", unshare, CLONE_NEWNS),
		AS("unshare_net", unshare, CLONE_NEWNET),
		AS("unshare_pid", unshare, CLONE_NEWPID),
		AS("unshare_ipc", unshare, CLONE_NEWIPC),
		AS("unshare_uts", unshare, CLONE_NEWUTS),
		AS("unshare_cgroup", unshare, CLONE_NEWCGROUP),
		CALL(setns, BAD_FD, 0),
		AS("clone_newuser", clone, CLONE_NEWUSER | SIGCHLD, NOTHING, NOTHING, NOTHING,
		   NOTHING),
		/* other processes */
		AS("ptrace_traceme", ptrace, PTRACE_TRACEME, 0, 0, 0),
		AS("ptrace_attach", ptrace, PTRACE_ATTACH, 0x7ffffff0, 0, 0),
		CALL(process_vm_readv, 0x7ffffff0, NOTHING, 0, NOTHING, 0, 0),
		CALL(process_vm_writev, 0x7ffffff0, NOTHING, 0, NOTHING, 0, 0),
		CALL(pidfd_getfd, BAD_FD, 0, 0),
		CALL(kcmp, 0x7ffffff0, 0x7ffffff0, 0, 0, 0),
		/* keys */
		AS("keyctl_session", keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 1),
		CALL(add_key, P("nosuchtype"), P("x"), P(byte), 1, KEY_SPEC_PROCESS_KEYRING),
		CALL(request_key, P("user"), P("sandpool-none"), NOTHING, 0),
		/* kernel surface */
		CALL(bpf, 99, NOTHING, 0),
		CALL(perf_event_open, NOTHING, 0, -1, -1, 0),
		CALL(userfaultfd, 0x7fffffff),
		CALL(io_uring_setup, 1, NOTHING),
		CALL(io_uring_enter, BAD_FD, 0, 0, 0, NOTHING, 0),
		CALL(io_uring_register, BAD_FD, 0, NOTHING, 0),
		CALL(open_by_handle_at, BAD_FD, NOTHING, 0),
		CALL(kexec_load, 0, 0, NOTHING, 0x7fffffff),
		CALL(init_module, NOTHING, 0, P("")),
		CALL(finit_module, BAD_FD, P(""), 0),
		CALL(delete_module, P("sandpool-none"), O_NONBLOCK),
		CALL(fanotify_init, 0x7fffffff, 0),
		/* the machine */
		CALL(acct, P(ABSENT)),
		CALL(swapon, P(ABSENT), 0),
		CALL(swapoff, P(ABSENT)),
		CALL(reboot, 0, 0, 0, NOTHING),
		CALL(quotactl, 0x7fffffff, NOTHING, 0, NOTHING),
		AS("clock_settime", clock_settime, 0, NOTHING),
		AS("settimeofday", settimeofday, 1, NOTHING),
		AS("syslog_size", syslog, 10, NOTHING, 0),
#ifdef __x86_64__
		CALL(iopl, 0),
		CALL(ioperm, 0, 1, 0),
#endif
		/* set-id bits must not get onto a file by any of the ways that take a mode */
		AS("fchmodat_setuid", fchmodat, BAD_FD, P("x"), SET_ID),
		AS("fchmodat2_setuid", fchmodat2, BAD_FD, P("x"), SET_ID, 0),
		AS("fchmod_setuid", fchmod, BAD_FD, SET_ID),
		AS("fchmod_setgid", fchmod, BAD_FD, S_ISGID | 0755),
		AS("openat_setuid", openat, BAD_FD, P("x"), O_CREAT | O_WRONLY, SET_ID),
		AS("openat_tmpfile_setuid", openat, BAD_FD, P("x"), O_TMPFILE | O_WRONLY, SET_ID),
		AS("mkdirat_setgid", mkdirat, BAD_FD, P("x"), S_ISGID | 0755),
		AS("mknodat_setuid", mknodat, BAD_FD, P("x"), S_IFREG | SET_ID, 0),
#ifdef __x86_64__
		AS("chmod_setuid", chmod, P(ABSENT), SET_ID),
		AS("open_setuid", open, P(ABSENT), O_CREAT | O_WRONLY, SET_ID),
		AS("creat_setuid", creat, P(ABSENT), SET_ID),
		AS("mkdir_setgid", mkdir, P(ABSENT), S_ISGID | 0755),
		AS("mknod_setuid", mknod, P(ABSENT), S_IFREG | SET_ID, 0),
#endif
		/* The kernel looks at 32 bits of an ioctl's number and of a mode: so must the
		   filter. */
		AS("ioctl_tiocsti", ioctl, BAD_FD, TIOCSTI, P(byte)),
		AS("ioctl_tiocsti_high", ioctl, BAD_FD, (long)(TIOCSTI | 1ull << 32), P(byte)),
		AS("ioctl_tioclinux", ioctl, BAD_FD, TIOCLINUX, P(byte)),
		AS("fchmod_setuid_high", fchmod, BAD_FD, (long)(SET_ID | 1ull << 32)),
		AS("unshare_user_high", unshare, (long)(CLONE_NEWUSER | 1ull << 32)),
		/* answered as if the kernel did not have them, so that libraries fall back */
		CALL(clone3, NOTHING, 0),
		CALL(openat2, BAD_FD, P("x"), NOTHING, 0),
		{"unknown_9999", 9999, {0}},
	};

	for (size_t i = 0; i < sizeof(attempts) / sizeof(attempts[0]); i++) {
		const struct attempt *attempt = &attempts[i];
		const long *arg = attempt->args;
		int status = 0;
		pid_t child;

		fflush(stdout);
		child = fork();
		if (child < 0)
			return 2;
		if (child == 0) {
			long result = syscall(attempt->number, arg[0], arg[1], arg[2], arg[3],
					      arg[4], arg[5]);

			_exit(result < 0 ? errno : 0);
		}
		if (waitpid(child, &status, 0) != child)
			return 2;
		if (WIFSIGNALED(status))
			printf("%s signal %d\n", attempt->name, WTERMSIG(status));
		else if (WEXITSTATUS(status))
			printf("%s %d\n", attempt->name, WEXITSTATUS(status));
		else
			printf("%s ok\n", attempt->name);
	}
	return 0;
}
