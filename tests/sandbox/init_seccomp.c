/*
 * The filters on the real kernel, in a real sandbox: every call is made with and without them, so
 * that a denial proves the filter and not something else. What each number and argument gives is
 * tests/unit/test_seccomp.c's.
 */
#include "tests/sandbox/init_harness.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static struct harness harness;
static struct harness_result result;

static void set_up(void)
{
	if (init_harness_missing())
		cr_skip("%s", init_harness_missing());
}

TestSuite(init_seccomp, .init = set_up);

/* errno (0 = success) of one raw call inside. */
static long call_inside(long number, const char *arguments)
{
	char script[512];

	(void)snprintf(script, sizeof(script),
		       "import ctypes\n"
		       "c = ctypes.CDLL(None, use_errno=True)\n"
		       "b = ctypes.create_string_buffer(256)\n"
		       "r = c.syscall(ctypes.c_long(%ld), %s)\n"
		       "print(ctypes.get_errno() if r == -1 else 0)\n",
		       number, arguments);
	harness_python(&harness, script, &result);
	cr_assert_eq(result.code, (uint32_t)CLD_EXITED, "call %ld: signal %u", number,
		     result.value);
	return strtol(result.output, NULL, 10);
}

struct call {
	const char *name;
	long number;
	const char *arguments;
	long expected; /* with the filters */
	long control;  /* without */
};

/* Calls that a program without privileges may well make where there is no filter. */
static const struct call calls[] = {
	{"unshare user", SYS_unshare, "0x10000000", EPERM, 0},
	{"unshare files", SYS_unshare, "0x400", 0, 0},
	{"personality query", SYS_personality, "0xffffffff", 0, 0},
	{"personality no-random", SYS_personality, "0x40000", EPERM, 0},
	{"personality high half", SYS_personality, "ctypes.c_long(0x100040000)", EPERM, 0},
	{"keyctl get id", SYS_keyctl, "0, -3, 0", EPERM, 0},
	{"add_key", SYS_add_key, "b'user', b'x', b'y', 1, -3", EPERM, 0},
	{"process_vm_readv", SYS_process_vm_readv, "0, 0, 0, 0, 0, 0", EPERM, 0},
	{"kcmp", SYS_kcmp, "1, 1, 99, 0, 0", EPERM, EPERM},
	{"io_uring_setup", SYS_io_uring_setup, "0, 0", ENOSYS, EFAULT},
	{"userfaultfd", SYS_userfaultfd, "1", EPERM, 0},
	{"clone3", SYS_clone3, "0, 0", ENOSYS, EINVAL},
	{"openat2", SYS_openat2, "-100, b'/', b, 1", ENOSYS, EINVAL},
	{"open_tree", SYS_open_tree, "-100, b'/', 0x80000", EPERM, 0},
	{"socket vsock", SYS_socket, "40, 1, 0", EAFNOSUPPORT, 0},
	{"socket packet", SYS_socket, "17, 2, 0", EAFNOSUPPORT, EPERM},
	{"socketpair packet", SYS_socketpair, "17, 2, 0, b", EAFNOSUPPORT, EPERM},
	{"socketpair unix", SYS_socketpair, "1, 1, 0, b", 0, 0},
	{"get_mempolicy", SYS_get_mempolicy, "0, 0, 0, 0, 0", EPERM, 0},
	{"move_pages", SYS_move_pages, "0, 0, 0, 0, 0, 0", EPERM, 0},
#ifdef __x86_64__
	{"modify_ldt", SYS_modify_ldt, "0, b, 256", ENOSYS, 0},
#endif
	{"unknown call", 9999, "0", ENOSYS, ENOSYS},
	{"fchmodat2 set-uid", 452, "-100, b'/tmp/sp-none', 0o4755, 0", EPERM, ENOENT},
	{"getpid", SYS_getpid, "0", 0, 0},
#ifdef __x86_64__
	{"x32 getpid", 0x40000000 | SYS_getpid, "0", ENOSYS, ENOSYS},
#endif
};

/* A profile that allows everything. The tiny filter stays: what it denies is the difference. */
#define ALLOW_ALL "{\"defaultAction\": \"SCMP_ACT_ALLOW\"}"

Test(init_seccomp, what_is_denied_works_without_the_filter)
{
	harness_ready(&harness, &(struct harness_options){.oci = ALLOW_ALL});
	for (size_t i = 0; i < SP_ARRAY_SIZE(calls); i++) {
		long got = call_inside(calls[i].number, calls[i].arguments);

		/* Calls of init's only are denied by the tiny filter here, too. */
		if (calls[i].number == SYS_clone3 || calls[i].number == SYS_openat2 ||
		    calls[i].number == SYS_open_tree)
			cr_assert_eq(got, calls[i].expected, "%s: %ld", calls[i].name, got);
		else
			cr_assert_eq(got, calls[i].control, "%s: %ld", calls[i].name, got);
	}
	harness_stop(&harness);
}

Test(init_seccomp, denials_with_the_filter)
{
	harness_ready(&harness, NULL);
	for (size_t i = 0; i < SP_ARRAY_SIZE(calls); i++) {
		long got = call_inside(calls[i].number, calls[i].arguments);

		cr_assert_eq(got, calls[i].expected, "%s: %ld", calls[i].name, got);
	}
	harness_stop(&harness);
}

Test(init_seccomp, what_programs_need_works)
{
	harness_ready(&harness, NULL);
	harness_python(&harness,
		       "import threading, subprocess, socket, os, multiprocessing, tempfile, mmap\n"
		       "t = [threading.Thread(target=lambda: None) for _ in range(8)]\n"
		       "[x.start() for x in t]; [x.join() for x in t]\n"
		       "subprocess.run(['true'], check=True)\n"
		       "os.posix_spawn('/bin/true', ['true'], {}); os.wait()\n"
		       "p = multiprocessing.Process(target=os.getpid); p.start(); p.join()\n"
		       "socket.getaddrinfo('localhost', 80)\n"
		       "os.chmod(tempfile.mkstemp()[1], 0o777); os.mkdir('/tmp/d', 0o1777)\n"
		       "print(p.exitcode)\n",
		       &result);
	cr_assert_str_eq(result.output, "0\n");
	harness_stop(&harness);
}

Test(init_seccomp, set_id_bits_cannot_be_set)
{
	harness_ready(&harness, NULL);
	harness_python(&harness,
		       "import os\n"
		       "def t(f, *a):\n"
		       "    try: f(*a); print('ok', end=' ')\n"
		       "    except OSError as e: print(e.errno, end=' ')\n"
		       "os.close(os.open('/tmp/f', os.O_CREAT | os.O_WRONLY, 0o755))\n"
		       "t(os.chmod, '/tmp/f', 0o4755); t(os.chmod, '/tmp/f', 0o2755)\n"
		       "t(os.chmod, '/tmp/f', 0o1777)\n"
		       "t(os.fchmod, os.open('/tmp/f', os.O_RDONLY), 0o6755)\n"
		       "t(os.open, '/tmp/g', os.O_CREAT | os.O_WRONLY, 0o4755)\n"
		       "t(os.open, '/tmp', os.O_TMPFILE | os.O_WRONLY, 0o2755)\n"
		       "t(os.open, '/tmp/f', os.O_RDONLY, 0o4755)\n"
		       "t(os.mkdir, '/tmp/m', 0o2755); t(os.mknod, '/tmp/n', 0o104755)\n",
		       &result);
	cr_assert_str_eq(result.output, "1 1 ok 1 1 1 ok 1 1 ", "%s", result.output);
	harness_stop(&harness);
}

Test(init_seccomp, every_thread_of_every_process_is_filtered)
{
	harness_ready(&harness, NULL);
	harness_python(&harness,
		       "import threading, glob, subprocess\n"
		       "e = threading.Event()\n"
		       "[threading.Thread(target=e.wait, daemon=True).start() for _ in range(4)]\n"
		       "p = subprocess.Popen(['sleep', '100'])\n"
		       "s = set()\n"
		       "for f in glob.glob('/proc/[0-9]*/task/*/status'):\n"
		       "    t = dict(l.split(':\\t') for l in open(f) if ':\\t' in l)\n"
		       "    s.add((t['Seccomp'].strip(), t['NoNewPrivs'].strip()))\n"
		       "print(s); p.kill()\n",
		       &result);
	cr_assert_str_eq(result.output, "{('2', '1')}\n");
	harness_stop(&harness);
}

/* Docker's shape: what is not named is denied. init works on, its workloads do not get more. */
#define ALLOW_LIST                                                                                 \
	"{\"defaultAction\": \"SCMP_ACT_ERRNO\", \"defaultErrnoRet\": 1, \"syscalls\": ["          \
	"{\"action\": \"SCMP_ACT_ALLOW\", \"names\": [\"access\", \"arch_prctl\", \"brk\", "       \
	"\"close\", \"execve\", \"exit_group\", \"faccessat\", \"fcntl\", \"fstat\", \"getcwd\", " \
	"\"getegid\", \"geteuid\", \"getgid\", \"getpid\", \"getppid\", \"getrandom\", "           \
	"\"getuid\", \"lseek\", \"mmap\", \"mprotect\", \"munmap\", \"newfstatat\", \"openat\", "  \
	"\"pread64\", \"prlimit64\", \"read\", \"readlink\", \"rseq\", \"rt_sigaction\", "         \
	"\"rt_sigprocmask\", \"set_robust_list\", \"set_tid_address\", \"stat\", \"write\", "      \
	"\"writev\", \"futex\", \"ioctl\", \"kill\", \"umask\", \"clone\", \"fork\", \"vfork\", "  \
	"\"wait4\", \"dup2\", \"dup3\", \"rt_sigreturn\", \"statfs\", \"getdents64\", "            \
	"\"getresuid\"]}]}"

Test(init_seccomp, a_profile_of_allowed_calls)
{
	harness_ready(&harness, &(struct harness_options){.oci = ALLOW_LIST});
	harness_shell(&harness, "echo works; umask 077; kill -0 $$ && echo kill", &result);
	cr_assert_str_eq(result.output, "works\nkill\n", "%s", result.output);
	/* init has these two, the profile does not name them. */
	harness_shell(&harness, "cd /tmp || echo no chdir", &result);
	cr_assert(strstr(result.output, "no chdir"), "%s", result.output);
	harness_shell(&harness, "mkdir /tmp/x || echo no mkdir", &result);
	cr_assert(strstr(result.output, "no mkdir"), "%s", result.output);
	harness_stop(&harness);
}
