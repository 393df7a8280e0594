/*
 * The built-in seccomp policy, and what every compiled filter is made of.
 *
 * Each program is a short preamble of ours followed by what libseccomp generates (a tree ordered by
 * number). The preamble says what libseccomp 2.5 cannot: another architecture's entry (int 0x80)
 * kills; a number above the newest one known, which includes all of x32, is ENOSYS whatever the
 * policy, so that libc falls back; and "one of these values" for personality and address families.
 *
 * The policy: deny what a confined program has no use for and what kernel bugs are reached by. All
 * of it is a second line behind "no capabilities, no_new_privs, own namespaces". Calls that init
 * itself needs for later mounts and for clone3 are denied by the tiny filter of each workload. The
 * list is Docker's default profile turned round, plus what flatpak and systemd's groups (@debug,
 * @privileged, @cpu-emulation, @obsolete) refuse.
 *
 * Values of 32-bit arguments are compared in their low halves only: the kernel does the same, and a
 * set bit in the high half must not slip through.
 */
#include "supervisor/sandbox/seccomp_compile.h"

#include "pool/base/fd.h"
#include "supervisor/sandbox/seccomp_private.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define NATIVE_AUDIT_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE_AUDIT_ARCH AUDIT_ARCH_AARCH64
#else
#error "x86-64 and arm64 only"
#endif

/* Low half of an argument, little-endian (both architectures are). */
#define ARGUMENT_LOW(i) ((uint32_t)(offsetof(struct seccomp_data, args) + sizeof(uint64_t) * (i)))
#define LOW_HALF        UINT64_C(0xffffffff)
#define NAMESPACE_TIME  0x80u /* CLONE_NEWTIME, newer than some libc headers */
#define TREE_ORDER      2u

/*
 * Calls newer than libseccomp 2.5.4 knows; all have the same number on all architectures. The
 * newest number is the border between "policy" and ENOSYS: move it when the new ones were looked
 * at.
 */
static const struct {
	const char *name;
	int number;
} newer_calls[] = {
	{"cachestat", 451},         {"fchmodat2", 452},        {"map_shadow_stack", 453},
	{"futex_wake", 454},        {"futex_wait", 455},       {"futex_requeue", 456},
	{"statmount", 457},         {"listmount", 458},        {"lsm_get_self_attr", 459},
	{"lsm_set_self_attr", 460}, {"lsm_list_modules", 461}, {"mseal", 462},
	{"setxattrat", 463},        {"getxattrat", 464},       {"listxattrat", 465},
	{"removexattrat", 466},     {"open_tree_attr", 467},   {"file_getattr", 468},
	{"file_setattr", 469},
};

/* Never needed, neither by workloads nor by init. EPERM. */
static const char *const denied_calls[] = {
	/* mounts, roots, swap */
	"mount", "umount", "pivot_root", "chroot", "fspick", "open_tree_attr", "swapon", "swapoff",
	/* other processes' insides */
	"ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp", "pidfd_getfd",
	/* namespaces: unshare and clone, by flag */
	/* kernel interfaces with a history */
	"bpf", "perf_event_open", "userfaultfd", "fanotify_init", "lookup_dcookie", "syslog",
	"add_key", "request_key", "keyctl", "open_by_handle_at", "name_to_handle_at",
	/* which node memory lies on; libnuma takes EPERM for a machine with one */
	"get_mempolicy", "set_mempolicy", "set_mempolicy_home_node", "mbind", "migrate_pages",
	"move_pages",
	/* the machine */
	"kexec_load", "kexec_file_load", "create_module", "init_module", "finit_module",
	"delete_module", "query_module", "get_kernel_syms", "reboot", "acct", "quotactl",
	"quotactl_fd", "nfsservctl", "settimeofday", "stime", "clock_settime", "clock_settime64",
	"clock_adjtime", "clock_adjtime64", "setdomainname", "iopl", "ioperm", "vhangup", "vm86",
	"vm86old", "uselib", "ustat", "_sysctl", "sysfs"};

/* Programs probe these and fall back. ENOSYS. */
static const char *const absent_calls[] = {"io_uring_setup", "io_uring_enter", "io_uring_register",
					   "memfd_secret", "modify_ldt"};

/* What only init may call. */
static const struct {
	const char *name;
	int error;
} init_only_calls[] = {
	/* The flags of these two lie in memory, out of a filter's reach; libc falls back. */
	{"clone3", ENOSYS},
	{"openat2", ENOSYS},
	{"open_tree", EPERM},
	{"move_mount", EPERM},
	{"fsopen", EPERM},
	{"fsconfig", EPERM},
	{"fsmount", EPERM},
	{"mount_setattr", EPERM},
	{"umount2", EPERM},
	/* sessions */
	{"setns", EPERM},
	{"sethostname", EPERM},
};

int sp_seccomp_fault(struct sp_err *err, int status, const char *what)
{
	/* -ECANCELED: a system call inside libseccomp failed; the rest are errno values too. */
	return sp_err_set(err, status == -ENOMEM ? -ENOMEM : -EINVAL, "seccomp: %s", what);
}

int sp_seccomp_call_number(const char *name)
{
	int number = seccomp_syscall_resolve_name(name);

	if (number != __NR_SCMP_ERROR)
		return number;
	for (size_t i = 0; i < SP_ARRAY_SIZE(newer_calls); i++)
		if (strcmp(newer_calls[i].name, name) == 0)
			return newer_calls[i].number;
	return -1;
}

static int deny(scmp_filter_ctx context, const char *name, uint32_t action, unsigned int count,
		const struct scmp_arg_cmp *compare, struct sp_err *err)
{
	int number = sp_seccomp_call_number(name);
	int status;

	if (number < 0)
		return 0;
	status = seccomp_rule_add_array(context, action, number, count, compare);
	return status < 0 ? sp_seccomp_fault(err, status, name) : 0;
}

/* Deny when any of the bits is set in one argument, and (need_mask) those are in another. */
struct bit_rule {
	const char *name;
	unsigned int argument;
	unsigned int need_argument;
	uint64_t bits;
	uint64_t need_bits; /* one alternative a bit; 0 = no condition */
};

#define SET_ID_BITS    ((uint64_t)(S_ISUID | S_ISGID))
#define CREATING_FLAGS ((uint64_t)(O_CREAT | (O_TMPFILE & ~O_DIRECTORY)))
#define NAMESPACE_BITS                                                                            \
	((uint64_t)(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | \
		    CLONE_NEWPID | CLONE_NEWNET))

static const struct bit_rule bit_rules[] = {
	{"clone", 0, 0, NAMESPACE_BITS, 0},
	{"unshare", 0, 0, NAMESPACE_BITS | NAMESPACE_TIME, 0},
	{"chmod", 1, 0, SET_ID_BITS, 0},
	{"fchmod", 1, 0, SET_ID_BITS, 0},
	{"fchmodat", 2, 0, SET_ID_BITS, 0},
	{"fchmodat2", 2, 0, SET_ID_BITS, 0},
	{"creat", 1, 0, SET_ID_BITS, 0},
	{"mkdir", 1, 0, SET_ID_BITS, 0},
	{"mkdirat", 2, 0, SET_ID_BITS, 0},
	{"mknod", 1, 0, SET_ID_BITS, 0},
	{"mknodat", 2, 0, SET_ID_BITS, 0},
	/* Without a flag that creates, the mode is whatever the register holds. */
	{"open", 2, 1, SET_ID_BITS, CREATING_FLAGS},
	{"openat", 3, 2, SET_ID_BITS, CREATING_FLAGS},
};

static int deny_bit(scmp_filter_ctx context, const struct bit_rule *rule, uint64_t bit,
		    struct sp_err *err)
{
	struct scmp_arg_cmp compare[2] = {
		SCMP_CMP(rule->argument, SCMP_CMP_MASKED_EQ, bit, bit),
	};

	if (rule->need_bits == 0)
		return deny(context, rule->name, SCMP_ACT_ERRNO(EPERM), 1, compare, err);
	for (uint64_t left = rule->need_bits; left != 0; left &= left - 1) {
		uint64_t need = left & -left;
		int status;

		compare[1] = SCMP_CMP(rule->need_argument, SCMP_CMP_MASKED_EQ, need, need);
		status = deny(context, rule->name, SCMP_ACT_ERRNO(EPERM), 2, compare, err);
		if (status < 0)
			return status;
	}
	return 0;
}

static int deny_bits(scmp_filter_ctx context, struct sp_err *err)
{
	for (size_t i = 0; i < SP_ARRAY_SIZE(bit_rules); i++)
		for (uint64_t left = bit_rules[i].bits; left != 0; left &= left - 1) {
			int status = deny_bit(context, &bit_rules[i], left & -left, err);

			if (status < 0)
				return status;
		}
	return 0;
}

static int deny_terminal_requests(scmp_filter_ctx context, struct sp_err *err)
{
	static const unsigned int requests[] = {
		TIOCSTI,   /* types into the terminal that the user sits at */
		TIOCLINUX, /* the same by way of the console's clipboard */
		TIOCSETD,  /* loads line disciplines: modems, packet radio, and their faults */
	};
	int status = 0;

	for (size_t i = 0; status == 0 && i < SP_ARRAY_SIZE(requests); i++) {
		const struct scmp_arg_cmp compare =
			SCMP_CMP(1, SCMP_CMP_MASKED_EQ, LOW_HALF, requests[i]);

		status = deny(context, "ioctl", SCMP_ACT_ERRNO(EPERM), 1, &compare, err);
	}
	return status;
}

static int fill_builtin(scmp_filter_ctx context, struct sp_err *err)
{
	int status = deny_bits(context, err);

	if (status == 0)
		status = deny_terminal_requests(context, err);
	for (size_t i = 0; status == 0 && i < SP_ARRAY_SIZE(denied_calls); i++)
		status = deny(context, denied_calls[i], SCMP_ACT_ERRNO(EPERM), 0, NULL, err);
	for (size_t i = 0; status == 0 && i < SP_ARRAY_SIZE(absent_calls); i++)
		status = deny(context, absent_calls[i], SCMP_ACT_ERRNO(ENOSYS), 0, NULL, err);
	return status;
}

int sp_seccomp_deny_init_only(scmp_filter_ctx context, struct sp_err *err)
{
	int status = 0;

	for (size_t i = 0; status == 0 && i < SP_ARRAY_SIZE(init_only_calls); i++)
		status = deny(context, init_only_calls[i].name,
			      SCMP_ACT_ERRNO((unsigned int)init_only_calls[i].error), 0, NULL, err);
	return status;
}

bool sp_seccomp_is_init_only(const char *name)
{
	for (size_t i = 0; i < SP_ARRAY_SIZE(init_only_calls); i++)
		if (strcmp(init_only_calls[i].name, name) == 0)
			return true;
	return false;
}

static void add(struct sp_seccomp_preamble *preamble, uint16_t code, uint32_t k, uint8_t yes,
		uint8_t no)
{
	sp_assert(preamble->count < SP_SECCOMP_PREAMBLE_MAX);
	preamble->code[preamble->count++] = (struct sock_filter){code, yes, no, k};
}

static void add_load(struct sp_seccomp_preamble *preamble, uint32_t offset)
{
	add(preamble, BPF_LD | BPF_W | BPF_ABS, offset, 0, 0);
}

static void add_return(struct sp_seccomp_preamble *preamble, uint32_t action)
{
	add(preamble, BPF_RET | BPF_K, action, 0, 0);
}

/* The first argument is one of the values: on behind `skip` further instructions. Else: error. */
static void add_values(struct sp_seccomp_preamble *preamble, const uint32_t *values, uint8_t count,
		       uint32_t error, uint8_t skip)
{
	add_load(preamble, ARGUMENT_LOW(0));
	for (uint8_t i = 0; i < count; i++)
		add(preamble, BPF_JMP | BPF_JEQ | BPF_K, values[i], (uint8_t)(count - i + skip), 0);
	add_return(preamble, SECCOMP_RET_ERRNO | error);
}

void sp_seccomp_preamble(struct sp_seccomp_preamble *preamble, uint32_t newest)
{
	add_load(preamble, offsetof(struct seccomp_data, arch));
	add(preamble, BPF_JMP | BPF_JEQ | BPF_K, NATIVE_AUDIT_ARCH, 1, 0);
	add_return(preamble, SECCOMP_RET_KILL_PROCESS);
	add_load(preamble, offsetof(struct seccomp_data, nr));
	add(preamble, BPF_JMP | BPF_JGT | BPF_K, newest, 0, 1);
	add_return(preamble, SECCOMP_RET_ERRNO | ENOSYS);
}

/*
 * Calls of which only some values of the first argument are let through. The kernel runs the filter
 * for every number when it is loaded, so what the others pay counts: one comparison for each, and
 * the number, loaded by sp_seccomp_preamble(), is not loaded again.
 *
 * personality(0) is what every program has, 0xffffffff only asks. Asking for a socket of any other
 * family makes the kernel load its module, and few of those have had the scrutiny of these;
 * AF_VSOCK would reach the hypervisor past every network namespace.
 */
static void preamble_values(struct sp_seccomp_preamble *preamble)
{
	static const uint32_t personalities[] = {0, UINT32_MAX};
	static const uint32_t families[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK};
	const uint8_t personality_block = SP_ARRAY_SIZE(personalities) + 2;
	const uint8_t socket_block = SP_ARRAY_SIZE(families) + 2;

	add(preamble, BPF_JMP | BPF_JEQ | BPF_K, SYS_personality, 2, 0);
	add(preamble, BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, (uint8_t)(personality_block + 1), 0);
	add(preamble, BPF_JMP | BPF_JEQ | BPF_K, SYS_socketpair, personality_block,
	    (uint8_t)(personality_block + socket_block));
	add_values(preamble, personalities, SP_ARRAY_SIZE(personalities), EPERM, socket_block);
	add_values(preamble, families, SP_ARRAY_SIZE(families), EAFNOSUPPORT, 0);
}

int sp_seccomp_export(scmp_filter_ctx context, const struct sp_seccomp_preamble *preamble,
		      struct sp_seccomp_program *ret, struct sp_err *err)
{
	const size_t first = preamble->count * sizeof(preamble->code[0]);
	SP_AUTO_CLOSE int fd = memfd_create("filter", MFD_CLOEXEC);
	struct stat info;
	uint8_t *bytes;
	int status;

	if (fd < 0)
		return sp_err_set(err, -errno, "seccomp: memfd");
	status = seccomp_export_bpf(context, fd);
	if (status < 0)
		return sp_seccomp_fault(err, status, "export");
	if (fstat(fd, &info) != 0 || lseek(fd, 0, SEEK_SET) != 0)
		return sp_err_set(err, -errno, "seccomp: read back");
	if (first + (size_t)info.st_size > BPF_MAXINSNS * sizeof(struct sock_filter))
		return sp_err_set(err, -E2BIG, "seccomp: more than %d instructions", BPF_MAXINSNS);
	bytes = malloc(first + (size_t)info.st_size);
	if (!bytes)
		return sp_err_set(err, -ENOMEM, "seccomp: program");
	memcpy(bytes, preamble->code, first);
	if (sp_read_all(fd, bytes + first, (size_t)info.st_size) != info.st_size) {
		free(bytes);
		return sp_err_set(err, -EIO, "seccomp: read back");
	}
	ret->bytes = bytes;
	ret->length = (uint32_t)(first + (size_t)info.st_size);
	return 0;
}

scmp_filter_ctx sp_seccomp_context_new(uint32_t default_action, uint32_t foreign)
{
	scmp_filter_ctx context = seccomp_init(default_action);

	if (!context)
		return NULL;
	if (seccomp_attr_set(context, SCMP_FLTATR_CTL_OPTIMIZE, TREE_ORDER) < 0 ||
	    seccomp_attr_set(context, SCMP_FLTATR_ACT_BADARCH, foreign) < 0) {
		seccomp_release(context);
		return NULL;
	}
	return context;
}

void sp_seccomp_context_cleanup(scmp_filter_ctx *context)
{
	if (*context)
		seccomp_release(*context);
}

static int compile_builtin_big(struct sp_seccomp_program *ret, struct sp_err *err)
{
	SP_CLEANUP(sp_seccomp_context_cleanup)
	scmp_filter_ctx context = sp_seccomp_context_new(SCMP_ACT_ALLOW, SCMP_ACT_KILL_PROCESS);
	struct sp_seccomp_preamble preamble = {.count = 0};
	int status;

	if (!context)
		return sp_seccomp_fault(err, -EINVAL, "context");
	sp_seccomp_preamble(&preamble, SP_SECCOMP_NEWEST_CALL);
	preamble_values(&preamble);
	status = fill_builtin(context, err);
	return status < 0 ? status : sp_seccomp_export(context, &preamble, ret, err);
}

static uint32_t lowest_init_only(void)
{
	uint32_t lowest = UINT32_MAX;

	for (size_t i = 0; i < SP_ARRAY_SIZE(init_only_calls); i++) {
		int number = sp_seccomp_call_number(init_only_calls[i].name);

		if (number >= 0)
			lowest = SP_MIN(lowest, (uint32_t)number);
	}
	return lowest;
}

/* Room for every comparison, and the returns are near enough for any jump. */
_Static_assert(SP_ARRAY_SIZE(init_only_calls) + 5 <= SP_SECCOMP_PREAMBLE_MAX, "tiny filter");

/*
 * Each exec loads it, and the kernel then runs it for every number: nine of ten are done with after
 * three instructions. Foreign calls the big filter has killed. What libseccomp makes of the same
 * takes the kernel half as long again.
 */
static int compile_builtin_tiny(struct sp_seccomp_program *ret, struct sp_err *err)
{
	const uint8_t count = SP_ARRAY_SIZE(init_only_calls);
	struct sp_seccomp_preamble code = {.count = 0};
	size_t size;

	add_load(&code, offsetof(struct seccomp_data, nr));
	add(&code, BPF_JMP | BPF_JGE | BPF_K, lowest_init_only(), 0, count);
	for (uint8_t i = 0; i < count; i++) {
		bool absent = init_only_calls[i].error == ENOSYS;
		int number = sp_seccomp_call_number(init_only_calls[i].name);

		if (number < 0 || (!absent && init_only_calls[i].error != EPERM))
			return sp_err_set(err, -EINVAL, "seccomp: '%s'", init_only_calls[i].name);
		add(&code, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number,
		    (uint8_t)(count - i + (absent ? 1 : 0)), 0);
	}
	add_return(&code, SECCOMP_RET_ALLOW);
	add_return(&code, SECCOMP_RET_ERRNO | EPERM);
	add_return(&code, SECCOMP_RET_ERRNO | ENOSYS);
	size = code.count * sizeof(code.code[0]);
	ret->bytes = malloc(size);
	if (!ret->bytes)
		return sp_err_set(err, -ENOMEM, "seccomp: program");
	memcpy(ret->bytes, code.code, size);
	ret->length = (uint32_t)size;
	return 0;
}

int sp_seccomp_compile(struct sp_seccomp_program *ret_init, struct sp_seccomp_program *ret_exec,
		       struct sp_err *err)
{
	struct sp_seccomp_program big = {0};
	int status = compile_builtin_big(&big, err);

	if (status < 0)
		return status;
	status = compile_builtin_tiny(ret_exec, err);
	if (status < 0)
		sp_seccomp_program_done(&big);
	else
		*ret_init = big;
	return status;
}

void sp_seccomp_program_done(struct sp_seccomp_program *program)
{
	free(program->bytes);
	program->bytes = NULL;
	program->length = 0;
}
