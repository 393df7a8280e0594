/*
 * The compiled filters, run through a small interpreter of classic BPF: what every call number and
 * argument gives, without making the calls. The kernel's own verdicts are tests/sandbox's.
 */
#include "supervisor/sandbox/seccomp_compile.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#ifdef __x86_64__
#define NATIVE  AUDIT_ARCH_X86_64
#define FOREIGN AUDIT_ARCH_I386
#else
#define NATIVE  AUDIT_ARCH_AARCH64
#define FOREIGN AUDIT_ARCH_ARM
#endif

#define ALLOW      SECCOMP_RET_ALLOW
#define DENY(code) (SECCOMP_RET_ERRNO | (code))
#define HIGH       (UINT64_C(0xdeadbeef) << 32)
#define NEWEST     469 /* as in seccomp_private.h */
#define X32        0x40000000

static struct sp_seccomp_program big;
static struct sp_seccomp_program tiny;

static void set_up(void)
{
	struct sp_err err;

	cr_assert_eq(sp_seccomp_compile(&big, &tiny, &err), 0);
}

static void tear_down(void)
{
	sp_seccomp_program_done(&big);
	sp_seccomp_program_done(&tiny);
}

TestSuite(seccomp, .init = set_up, .fini = tear_down);

static bool jumps(uint16_t code, uint32_t accumulator, uint32_t k)
{
	switch (BPF_OP(code)) {
	case BPF_JEQ:
		return accumulator == k;
	case BPF_JGT:
		return accumulator > k;
	case BPF_JGE:
		return accumulator >= k;
	case BPF_JSET:
		return (accumulator & k) != 0;
	default:
		cr_assert(false, "unknown jump 0x%x", code);
		return false;
	}
}

static uint32_t interpret(const struct sp_seccomp_program *program, const struct seccomp_data *data)
{
	const struct sock_filter *code = (const void *)program->bytes;
	size_t count = program->length / sizeof(*code);
	uint32_t accumulator = 0;

	for (size_t at = 0; at < count; at++) {
		const struct sock_filter *op = &code[at];

		switch (BPF_CLASS(op->code)) {
		case BPF_LD:
			cr_assert_eq(op->code, BPF_LD | BPF_W | BPF_ABS);
			cr_assert(op->k % 4 == 0 && op->k < sizeof(*data));
			memcpy(&accumulator, (const char *)data + op->k, sizeof(accumulator));
			break;
		case BPF_ALU:
			cr_assert_eq(op->code, BPF_ALU | BPF_AND | BPF_K);
			accumulator &= op->k;
			break;
		case BPF_JMP:
			if (BPF_OP(op->code) == BPF_JA)
				at += op->k;
			else
				at += jumps(op->code, accumulator, op->k) ? op->jt : op->jf;
			break;
		case BPF_RET:
			return op->k;
		default:
			cr_assert(false, "unknown instruction 0x%x", op->code);
		}
	}
	cr_assert(false, "fell off the end");
	return 0;
}

/* What a stack of both filters does: the strictest action (lowest value) wins. */
static uint32_t run_arch(uint32_t arch, long number, const uint64_t *args, bool workload)
{
	struct seccomp_data data = {.nr = (int)number, .arch = arch};
	uint32_t first;
	uint32_t second;

	memcpy(data.args, args, sizeof(data.args));
	first = interpret(&big, &data);
	second = workload ? interpret(&tiny, &data) : ALLOW;
	return (int32_t)(first & SECCOMP_RET_ACTION_FULL) <=
			       (int32_t)(second & SECCOMP_RET_ACTION_FULL)
		       ? first
		       : second;
}

#define RUN(number, ...)  run_arch(NATIVE, number, (const uint64_t[6]){__VA_ARGS__}, true)
#define INIT(number, ...) run_arch(NATIVE, number, (const uint64_t[6]){__VA_ARGS__}, false)

Test(seccomp, programs_are_whole_and_small)
{
	cr_assert(big.length % sizeof(struct sock_filter) == 0);
	cr_assert(big.length / sizeof(struct sock_filter) < 512);
	/* Loaded at every exec. */
	cr_assert(tiny.length / sizeof(struct sock_filter) < 32);
}

Test(seccomp, ordinary_calls_are_allowed)
{
	static const long numbers[] = {
		SYS_read,     SYS_write,        SYS_mmap,
		SYS_execve,   SYS_exit_group,   SYS_futex,
		SYS_kill,     SYS_statx,        SYS_wait4,
		SYS_ioctl,    SYS_getpid,       SYS_rseq,
		SYS_prctl,    SYS_seccomp,      SYS_pipe2,
		SYS_bind,     SYS_connect,      SYS_splice,
		SYS_capset,   SYS_mlock,        SYS_mremap,
		SYS_clone,    SYS_setsid,       SYS_setresuid,
		SYS_io_setup, SYS_memfd_create, SYS_landlock_create_ruleset,
		NEWEST,
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(numbers); i++)
		cr_assert_eq(RUN(numbers[i], 0), ALLOW, "%ld", numbers[i]);
}

Test(seccomp, dangerous_calls_are_denied)
{
	static const long numbers[] = {
		SYS_mount,
		SYS_umount2,
		SYS_pivot_root,
		SYS_chroot,
		SYS_fspick,
		SYS_open_tree,
		SYS_move_mount,
		SYS_fsopen,
		SYS_fsconfig,
		SYS_fsmount,
		SYS_mount_setattr,
		467,
		SYS_swapon,
		SYS_swapoff,
		SYS_ptrace,
		SYS_process_vm_readv,
		SYS_process_vm_writev,
		SYS_process_madvise,
		SYS_kcmp,
		SYS_pidfd_getfd,
		SYS_setns,
		SYS_bpf,
		SYS_perf_event_open,
		SYS_userfaultfd,
		SYS_fanotify_init,
		SYS_lookup_dcookie,
		SYS_syslog,
		SYS_add_key,
		SYS_request_key,
		SYS_keyctl,
		SYS_open_by_handle_at,
		SYS_name_to_handle_at,
		SYS_kexec_load,
		SYS_kexec_file_load,
		SYS_init_module,
		SYS_finit_module,
		SYS_delete_module,
		SYS_reboot,
		SYS_acct,
		SYS_quotactl,
		SYS_quotactl_fd,
		SYS_settimeofday,
		SYS_clock_settime,
		SYS_clock_adjtime,
		SYS_vhangup,
		SYS_sethostname,
		SYS_setdomainname,
		SYS_get_mempolicy,
		SYS_set_mempolicy,
		450, /* set_mempolicy_home_node */
		SYS_mbind,
		SYS_migrate_pages,
		SYS_move_pages,
#ifdef __x86_64__
		SYS_iopl,
		SYS_ioperm,
		SYS_uselib,
		SYS_ustat,
		SYS_sysfs,
		SYS__sysctl,
		SYS_create_module,
#endif
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(numbers); i++)
		cr_assert_eq(RUN(numbers[i], 0), DENY(EPERM), "%ld", numbers[i]);
}

Test(seccomp, calls_that_are_probed_seem_absent)
{
	static const long numbers[] = {
		SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
		SYS_memfd_secret,   SYS_clone3,         SYS_openat2,
#ifdef __x86_64__
		SYS_modify_ldt,
#endif
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(numbers); i++)
		cr_assert_eq(RUN(numbers[i], 0), DENY(ENOSYS), "%ld", numbers[i]);
}

Test(seccomp, init_keeps_what_it_needs)
{
	static const long numbers[] = {SYS_clone3, SYS_openat2,  SYS_open_tree, SYS_move_mount,
				       SYS_fsopen, SYS_fsconfig, SYS_fsmount,   SYS_mount_setattr};

	for (size_t i = 0; i < SP_ARRAY_SIZE(numbers); i++)
		cr_assert_eq(INIT(numbers[i], 0), ALLOW, "%ld", numbers[i]);
	cr_assert_eq(INIT(SYS_mount, 0), DENY(EPERM));
}

Test(seccomp, unknown_calls_are_enosys)
{
	cr_assert_eq(RUN(NEWEST, 0), ALLOW);
	cr_assert_eq(RUN(NEWEST + 1, 0), DENY(ENOSYS));
	cr_assert_eq(RUN(9999, 0), DENY(ENOSYS));
	cr_assert_eq(RUN(-1, 0), DENY(ENOSYS));
	cr_assert_eq(RUN(0x7fffffff, 0), DENY(ENOSYS));
}

Test(seccomp, x32_is_not_there)
{
	for (long number = 0; number < 600; number++)
		cr_assert_eq(RUN(number | X32, 0), DENY(ENOSYS), "%ld", number);
}

Test(seccomp, a_foreign_architecture_kills)
{
	const uint64_t args[6] = {0};

	for (long number = 0; number < 500; number++)
		cr_assert_eq(run_arch(FOREIGN, number, args, true), SECCOMP_RET_KILL_PROCESS);
	cr_assert_eq(run_arch(AUDIT_ARCH_MIPS, 1, args, true), SECCOMP_RET_KILL_PROCESS);
	cr_assert_eq(run_arch(0, 1, args, true), SECCOMP_RET_KILL_PROCESS);
}

Test(seccomp, terminal_requests)
{
	cr_assert_eq(RUN(SYS_ioctl, 0, TIOCSTI), DENY(EPERM));
	cr_assert_eq(RUN(SYS_ioctl, 0, TIOCLINUX), DENY(EPERM));
	cr_assert_eq(RUN(SYS_ioctl, 0, TIOCSETD), DENY(EPERM));
	cr_assert_eq(RUN(SYS_ioctl, 0, TIOCGETD), ALLOW);
	cr_assert_eq(RUN(SYS_ioctl, 0, TIOCGWINSZ), ALLOW);
	/* The kernel looks at 32 bits; so does the filter. */
	cr_assert_eq(RUN(SYS_ioctl, 0, HIGH | TIOCSTI), DENY(EPERM));
	cr_assert_eq(RUN(SYS_ioctl, 0, HIGH | TIOCLINUX), DENY(EPERM));
	cr_assert_eq(RUN(SYS_ioctl, 0, HIGH | TIOCGWINSZ), ALLOW);
	cr_assert_eq(RUN(SYS_ioctl, TIOCSTI, 0), ALLOW, "another argument");
}

Test(seccomp, personality_is_as_it_is)
{
	static const uint32_t denied[] = {1, 8, 0x20000, 0x40000, 0x80000000, 0xfffffffe};

	cr_assert_eq(RUN(SYS_personality, 0), ALLOW);
	cr_assert_eq(RUN(SYS_personality, UINT32_MAX), ALLOW);
	cr_assert_eq(RUN(SYS_personality, HIGH), ALLOW);
	for (size_t i = 0; i < SP_ARRAY_SIZE(denied); i++) {
		cr_assert_eq(RUN(SYS_personality, denied[i]), DENY(EPERM), "%x", denied[i]);
		cr_assert_eq(RUN(SYS_personality, HIGH | denied[i]), DENY(EPERM), "%x", denied[i]);
	}
}

static bool is_ordinary_family(uint64_t family)
{
	return family == AF_UNIX || family == AF_INET || family == AF_INET6 || family == AF_NETLINK;
}

Test(seccomp, sockets_of_rare_families_are_unknown)
{
	for (uint64_t family = 0; family < 2 * AF_MAX; family++) {
		uint32_t expected = is_ordinary_family(family) ? ALLOW : DENY(EAFNOSUPPORT);

		cr_assert_eq(RUN(SYS_socket, family), expected, "%lu", (unsigned long)family);
		cr_assert_eq(RUN(SYS_socket, HIGH | family), expected);
		cr_assert_eq(RUN(SYS_socketpair, family), expected);
		/* Another call's first argument is none of its business. */
		cr_assert_eq(RUN(SYS_connect, family), ALLOW);
		cr_assert_eq(INIT(SYS_socket, family), expected, "the big filter says so");
	}
	cr_assert_eq(RUN(SYS_socket, UINT32_MAX), DENY(EAFNOSUPPORT));
}

Test(seccomp, namespaces_cannot_be_made)
{
	static const uint64_t flags[] = {CLONE_NEWNS,   CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
					 CLONE_NEWUSER, CLONE_NEWPID,    CLONE_NEWNET};
	const uint64_t thread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD;

	for (size_t i = 0; i < SP_ARRAY_SIZE(flags); i++) {
		cr_assert_eq(RUN(SYS_clone, flags[i] | 17), DENY(EPERM), "%zu", i);
		cr_assert_eq(RUN(SYS_clone, HIGH | flags[i]), DENY(EPERM), "%zu", i);
		cr_assert_eq(RUN(SYS_clone, thread | flags[i]), DENY(EPERM), "%zu", i);
		cr_assert_eq(RUN(SYS_unshare, flags[i]), DENY(EPERM), "%zu", i);
		cr_assert_eq(RUN(SYS_unshare, HIGH | flags[i] | CLONE_FS), DENY(EPERM), "%zu", i);
	}
	cr_assert_eq(RUN(SYS_unshare, 0x80), DENY(EPERM), "time");
	cr_assert_eq(RUN(SYS_unshare, CLONE_FILES | CLONE_FS), ALLOW);
	cr_assert_eq(RUN(SYS_clone, thread), ALLOW);
	cr_assert_eq(RUN(SYS_clone, 17), ALLOW);
}

/* number, and which argument is the mode */
static const struct {
	long number;
	unsigned int mode;
} mode_calls[] = {
	{SYS_fchmod, 1}, {SYS_fchmodat, 2}, {452, 2},       {SYS_mkdirat, 2}, {SYS_mknodat, 2},
#ifdef __x86_64__
	{SYS_chmod, 1},  {SYS_creat, 1},    {SYS_mkdir, 1}, {SYS_mknod, 1},
#endif
};

Test(seccomp, set_id_bits_cannot_be_set)
{
	static const uint64_t bad[] = {04755, 02755, 06755, 04000, 02000, 07777, S_IFREG | 04755};
	static const uint64_t good[] = {0, 0755, 01777, S_IFREG | 0644, S_IFIFO | 0600};

	for (size_t i = 0; i < SP_ARRAY_SIZE(mode_calls); i++) {
		uint64_t args[6] = {0};

		for (size_t j = 0; j < SP_ARRAY_SIZE(bad); j++)
			for (int high = 0; high < 2; high++) {
				args[mode_calls[i].mode] = bad[j] | (high ? HIGH : 0);
				cr_assert_eq(run_arch(NATIVE, mode_calls[i].number, args, true),
					     DENY(EPERM), "%ld %lo", mode_calls[i].number,
					     (unsigned long)bad[j]);
			}
		for (size_t j = 0; j < SP_ARRAY_SIZE(good); j++) {
			args[mode_calls[i].mode] = good[j];
			cr_assert_eq(run_arch(NATIVE, mode_calls[i].number, args, true), ALLOW);
		}
	}
}

static void check_open(long number, unsigned int flags_at)
{
	static const uint64_t creating[] = {O_CREAT, O_CREAT | O_EXCL | O_RDWR, O_TMPFILE | O_RDWR};
	static const uint64_t others[] = {O_RDONLY, O_RDWR | O_TRUNC, O_DIRECTORY, O_PATH};
	uint64_t args[6] = {0};

	for (size_t i = 0; i < SP_ARRAY_SIZE(creating); i++)
		for (int high = 0; high < 2; high++) {
			args[flags_at] = creating[i] | (high ? HIGH : 0);
			args[flags_at + 1] = 04755;
			cr_assert_eq(run_arch(NATIVE, number, args, true), DENY(EPERM));
			args[flags_at + 1] = HIGH | 02000;
			cr_assert_eq(run_arch(NATIVE, number, args, true), DENY(EPERM));
			args[flags_at + 1] = HIGH | 01777;
			cr_assert_eq(run_arch(NATIVE, number, args, true), ALLOW);
		}
	/* Nothing is created: the mode is what happened to be in the register. */
	for (size_t i = 0; i < SP_ARRAY_SIZE(others); i++) {
		args[flags_at] = others[i];
		args[flags_at + 1] = UINT64_MAX;
		cr_assert_eq(run_arch(NATIVE, number, args, true), ALLOW, "%zu", i);
	}
}

Test(seccomp, files_cannot_be_created_with_set_id_bits)
{
	check_open(SYS_openat, 2);
#ifdef __x86_64__
	check_open(SYS_open, 1);
#endif
}

/* --- OCI profiles ------------------------------------------------------------------------ */

static struct sp_err err;

static int compile(const char *json)
{
	return sp_seccomp_compile_oci(json, strlen(json), &big, &tiny, &err);
}

TestSuite(seccomp_oci, .fini = tear_down);

static const char allow_list[] =
	"{\"defaultAction\": \"SCMP_ACT_ERRNO\", \"defaultErrnoRet\": 13, \"architectures\": "
	"[\"X\"],"
	"\"syscalls\": ["
	"{\"names\": [\"read\", \"write\", \"execve\", \"no_such_call\"],"
	" \"action\": \"SCMP_ACT_ALLOW\"},"
	"{\"names\": [\"fchmodat2\"], \"action\": \"SCMP_ACT_ALLOW\"},"
	"{\"names\": [\"bind\"], \"action\": \"SCMP_ACT_ERRNO\", \"errnoRet\": 38},"
	"{\"names\": [\"listen\"], \"action\": \"SCMP_ACT_KILL_PROCESS\"},"
	"{\"names\": [\"socket\"], \"action\": \"SCMP_ACT_ALLOW\","
	" \"args\": [{\"index\": 0, \"value\": 1, \"op\": \"SCMP_CMP_EQ\"}]},"
	"{\"names\": [\"personality\"], \"action\": \"SCMP_ACT_ALLOW\", \"args\": ["
	" {\"index\": 0, \"value\": 0, \"op\": \"SCMP_CMP_EQ\"},"
	" {\"index\": 0, \"value\": 4294967295, \"op\": \"SCMP_CMP_EQ\"}]},"
	"{\"names\": [\"clone\"], \"action\": \"SCMP_ACT_ALLOW\", \"args\": ["
	" {\"index\": 0, \"value\": 2114060288, \"valueTwo\": 0, \"op\": \"SCMP_CMP_MASKED_EQ\"}]},"
	"{\"names\": [\"chroot\"], \"action\": \"SCMP_ACT_ALLOW\","
	" \"includes\": {\"caps\": [\"CAP_SYS_CHROOT\"]}},"
	"{\"names\": [\"getcwd\"], \"action\": \"SCMP_ACT_ALLOW\","
	" \"excludes\": {\"caps\": [\"CAP_SYS_ADMIN\"]}},"
	"{\"names\": [\"sync\"], \"action\": \"SCMP_ACT_ALLOW\","
	" \"includes\": {\"arches\": [\"s390x\"]}},"
	"{\"names\": [\"fsync\"], \"action\": \"SCMP_ACT_ALLOW\","
	" \"includes\": {\"arches\": [\"amd64\", \"arm64\"]}},"
	"{\"names\": [\"fdatasync\"], \"action\": \"SCMP_ACT_ALLOW\","
	" \"excludes\": {\"arches\": [\"amd64\", \"arm64\"]}},"
	"{\"names\": [\"ptrace\"], \"action\": \"SCMP_ACT_ALLOW\","
	" \"includes\": {\"minKernel\": \"4.8\"}},"
	"{\"names\": [\"msync\"], \"action\": \"SCMP_ACT_ALLOW\","
	" \"includes\": {\"minKernel\": \"99.0\"}}"
	"]}";

Test(seccomp_oci, a_list_of_allowed_calls)
{
	cr_assert_eq(compile(allow_list), 0, "%s", err.message);
	cr_assert_eq(RUN(SYS_read, 0), ALLOW);
	cr_assert_eq(RUN(SYS_bind, 0), DENY(38));
	cr_assert_eq(RUN(SYS_listen, 0), SECCOMP_RET_KILL_PROCESS);
	cr_assert_eq(RUN(SYS_connect, 0), DENY(13), "the default");
	cr_assert_eq(RUN(452, 0), ALLOW, "newer than libseccomp");
	cr_assert_eq(RUN(453, 0), DENY(ENOSYS), "newer than the profile");
	cr_assert_eq(RUN(SYS_read | X32, 0), DENY(ENOSYS));
	cr_assert_eq(run_arch(FOREIGN, SYS_read, (const uint64_t[6]){0}, true),
		     SECCOMP_RET_KILL_PROCESS);
}

Test(seccomp_oci, conditions)
{
	cr_assert_eq(compile(allow_list), 0, "%s", err.message);
	cr_assert_eq(RUN(SYS_socket, 1), ALLOW);
	cr_assert_eq(RUN(SYS_socket, 2), DENY(13));
	/* The same argument twice means either. */
	cr_assert_eq(RUN(SYS_personality, 0), ALLOW);
	cr_assert_eq(RUN(SYS_personality, UINT32_MAX), ALLOW);
	cr_assert_eq(RUN(SYS_personality, 8), DENY(13));
	cr_assert_eq(RUN(SYS_clone, 17), ALLOW);
	cr_assert_eq(RUN(SYS_clone, CLONE_NEWUSER), DENY(13));
}

Test(seccomp_oci, includes_and_excludes)
{
	cr_assert_eq(compile(allow_list), 0, "%s", err.message);
	cr_assert_eq(RUN(SYS_chroot, 0), DENY(13), "needs a capability that nobody has");
	cr_assert_eq(RUN(SYS_getcwd, 0), ALLOW, "excluded with one only");
	cr_assert_eq(RUN(SYS_sync, 0), DENY(13));
	cr_assert_eq(RUN(SYS_fsync, 0), ALLOW);
	cr_assert_eq(RUN(SYS_fdatasync, 0), DENY(13));
	cr_assert_eq(RUN(SYS_ptrace, 0), ALLOW);
	cr_assert_eq(RUN(SYS_msync, 0), DENY(13));
}

Test(seccomp_oci, init_gets_what_it_needs_and_workloads_do_not)
{
	cr_assert_eq(compile(allow_list), 0, "%s", err.message);
	cr_assert_eq(INIT(SYS_clone3, 0), ALLOW);
	cr_assert_eq(RUN(SYS_clone3, 0), DENY(ENOSYS));
	cr_assert_eq(INIT(SYS_setgroups, 0), ALLOW);
	cr_assert_eq(RUN(SYS_setgroups, 0), DENY(13));
	cr_assert_eq(INIT(SYS_mkdirat, 0), ALLOW);
	cr_assert_eq(RUN(SYS_mkdirat, 0), DENY(13));
	/* A child calls these after its filter is loaded. */
	cr_assert_eq(RUN(SYS_setresuid, 0), ALLOW);
	cr_assert_eq(RUN(SYS_exit_group, 0), ALLOW);
}

Test(seccomp_oci, a_list_of_denied_calls)
{
	cr_assert_eq(compile("{\"defaultAction\": \"SCMP_ACT_ALLOW\", \"syscalls\": ["
			     "{\"names\": [\"bind\", \"kill\"], \"action\": \"SCMP_ACT_ERRNO\"}]}"),
		     0, "%s", err.message);
	cr_assert_eq(RUN(SYS_bind, 0), DENY(EPERM));
	cr_assert_eq(RUN(SYS_connect, 0), ALLOW);
	cr_assert_eq(INIT(SYS_kill, 0), ALLOW);
	cr_assert_eq(RUN(SYS_kill, 0), DENY(EPERM));
	cr_assert_eq(RUN(SYS_move_mount, 0), DENY(EPERM), "whatever the profile says");
	cr_assert_eq(RUN(NEWEST + 1, 0), DENY(ENOSYS));
}

static void expect_refused(const char *json, const char *names)
{
	sp_err_clear(&err);
	cr_assert_eq(compile(json), -EINVAL, "%s", json);
	cr_assert(strstr(err.message, names), "'%s' does not name %s", err.message, names);
	cr_assert_eq(err.code, SP_CODE_CONFIG_INVALID);
}

#define RULE(text) "{\"defaultAction\": \"SCMP_ACT_ERRNO\", \"syscalls\": [" text "]}"

Test(seccomp_oci, faults_are_named)
{
	expect_refused("{", "line 1");
	expect_refused("[]", "'/'");
	expect_refused("{}", "defaultAction");
	expect_refused("{\"defaultAction\": 1}", "defaultAction");
	expect_refused("{\"defaultAction\": \"SCMP_ACT_LOG\"}", "SCMP_ACT_LOG");
	expect_refused("{\"defaultAction\": \"SCMP_ACT_ERRNO\", \"defaultErrnoRet\": 4095}",
		       "defaultErrnoRet");
	expect_refused("{\"defaultAction\": \"SCMP_ACT_ERRNO\", \"defaultErrnoRet\": -1}",
		       "defaultErrnoRet");
	expect_refused("{\"defaultAction\": \"SCMP_ACT_ALLOW\", \"syscalls\": {}}", "syscalls");
	expect_refused("{\"a\": 1, \"a\": 2}", "a");
	expect_refused(RULE("{\"names\": [\"read\"], \"action\": \"SCMP_ACT_NOTIFY\"}"), "NOTIFY");
	expect_refused(RULE("{\"names\": [\"read\"], \"action\": \"SCMP_ACT_TRACE\"}"), "TRACE");
	expect_refused(RULE("{\"names\": [\"read\"]}"), "action");
	expect_refused(RULE("{\"action\": \"SCMP_ACT_ALLOW\"}"), "names");
	expect_refused(RULE("{\"names\": [1], \"action\": \"SCMP_ACT_ALLOW\"}"), "names");
	expect_refused(RULE("{\"names\": [\"bind\"], \"action\": \"SCMP_ACT_ALLOW\","
			    "\"args\": [{\"index\": 6, \"value\": 0, \"op\": \"SCMP_CMP_EQ\"}]}"),
		       "index");
	expect_refused(RULE("{\"names\": [\"bind\"], \"action\": \"SCMP_ACT_ALLOW\","
			    "\"args\": [{\"value\": 0, \"op\": \"SCMP_CMP_EQ\"}]}"),
		       "index");
	expect_refused(RULE("{\"names\": [\"bind\"], \"action\": \"SCMP_ACT_ALLOW\","
			    "\"args\": [{\"index\": 0, \"value\": 0, \"op\": \"EQ\"}]}"),
		       "EQ");
	expect_refused(RULE("{\"names\": [\"read\"], \"action\": \"SCMP_ACT_ALLOW\"}"), "execve");
}

Test(seccomp_oci, the_last_errno_is_one)
{
	cr_assert_eq(compile("{\"defaultAction\": \"SCMP_ACT_ERRNO\", \"defaultErrnoRet\": 4094,"
			     "\"syscalls\": [{\"names\": [\"execve\"],"
			     "\"action\": \"SCMP_ACT_ALLOW\"}]}"),
		     0, "%s", err.message);
	cr_assert_eq(RUN(SYS_bind, 0), DENY(4094));
}

/* A profile with `count` rules that each need their own entry. */
static char *many_rules(size_t count)
{
	char *json = malloc(count * 128 + 256);
	size_t len = (size_t)snprintf(json, 256,
				      "{\"defaultAction\": \"SCMP_ACT_ALLOW\", \"syscalls\": [");

	for (size_t i = 0; i < count; i++)
		len += (size_t)snprintf(json + len, 128,
					"%s{\"names\":[\"bind\"],\"action\":\"SCMP_ACT_ERRNO\"}",
					i ? "," : "");
	(void)snprintf(json + len, 8, "]}");
	return json;
}

Test(seccomp_oci, the_number_of_rules_has_a_limit)
{
	char *json = many_rules(4096);

	cr_assert_eq(compile(json), 0, "%s", err.message);
	free(json);
	json = many_rules(4097);
	cr_assert_eq(compile(json), -E2BIG);
	free(json);
}
