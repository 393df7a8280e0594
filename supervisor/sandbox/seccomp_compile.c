/*
 * Seccomp filters from a list of denials or from an OCI profile.
 *
 * Each program is a short preamble of ours followed by what libseccomp generates (a tree ordered by
 * number). The preamble says what libseccomp 2.5 cannot: another architecture's entry (int 0x80)
 * kills; a number above the newest one known, which includes all of x32, is ENOSYS whatever the
 * policy, so that libc falls back; and "one of two values" for personality.
 *
 * The policy: deny what a confined program has no use for and what kernel bugs are reached by. All
 * of it is a second line behind "no capabilities, no_new_privs, own namespaces". Calls that init
 * itself needs for later mounts and for clone3 are denied by the tiny filter of each workload.
 *
 * Values of 32-bit arguments are compared in their low halves only: the kernel does the same, and a
 * set bit in the high half must not slip through. JSON text is trusted input of the operator, but
 * faults in it are reported by name.
 */
#include "supervisor/sandbox/seccomp_compile.h"

#include "pool/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#if defined(__x86_64__)
#define NATIVE_AUDIT_ARCH AUDIT_ARCH_X86_64
#define NATIVE_OCI_ARCH   "amd64"
#elif defined(__aarch64__)
#define NATIVE_AUDIT_ARCH AUDIT_ARCH_AARCH64
#define NATIVE_OCI_ARCH   "arm64"
#else
#error "x86-64 and arm64 only"
#endif

/* Low half of an argument, little-endian (both architectures are). */
#define ARGUMENT_LOW(i) ((uint32_t)(offsetof(struct seccomp_data, args) + sizeof(uint64_t) * (i)))
#define LOW_HALF        UINT64_C(0xffffffff)
#define PREAMBLE_MAX    16u
#define NAMESPACE_TIME  0x80u /* CLONE_NEWTIME, newer than some libc headers */
#define TREE_ORDER      2u
#define OCI_ARGS_MAX    6u
#define OCI_RULES_MAX   4096u
#define OCI_ERRNO_MAX   4094u /* libseccomp refuses the kernel's last one */

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

#define NEWEST_CALL 469

/* Never needed, neither by workloads nor by init. EPERM. */
static const char *const denied_calls[] = {
	/* mounts, roots, swap */
	"mount", "umount", "umount2", "pivot_root", "chroot", "fspick", "open_tree_attr", "swapon",
	"swapoff",
	/* other processes' insides */
	"ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd",
	/* namespaces; unshare and clone by flag */
	"setns",
	/* kernel interfaces with a history */
	"bpf", "perf_event_open", "userfaultfd", "fanotify_init", "lookup_dcookie", "syslog",
	"add_key", "request_key", "keyctl", "open_by_handle_at", "name_to_handle_at",
	/* the machine */
	"kexec_load", "kexec_file_load", "create_module", "init_module", "finit_module",
	"delete_module", "query_module", "get_kernel_syms", "reboot", "acct", "quotactl",
	"quotactl_fd", "nfsservctl", "settimeofday", "stime", "clock_settime", "clock_settime64",
	"clock_adjtime", "clock_adjtime64", "iopl", "ioperm", "vhangup", "vm86", "vm86old",
	"uselib", "_sysctl", "sysfs"};

/* Programs probe these and fall back. ENOSYS. */
static const char *const absent_calls[] = {"io_uring_setup", "io_uring_enter", "io_uring_register",
					   "memfd_secret"};

/* What only init may call. */
static const struct {
	const char *name;
	int error;
} init_only_calls[] = {
	/* The flags of these two lie in memory, out of a filter's reach; libc falls back. */
	{"clone3", ENOSYS}, {"openat2", ENOSYS}, {"open_tree", EPERM}, {"move_mount", EPERM},
	{"fsopen", EPERM},  {"fsconfig", EPERM}, {"fsmount", EPERM},   {"mount_setattr", EPERM},
};

/*
 * What PID 1 and its children call after the big filter is loaded. An OCI profile cannot take these
 * from them; it takes them from the workload by the tiny filter.
 */
static const char *const init_calls[] = {"brk",
					 "capset",
					 "chdir",
					 "clock_gettime",
					 "clock_nanosleep",
					 "clone3",
					 "close",
					 "close_range",
					 "dup3",
					 "epoll_ctl",
					 "epoll_pwait",
					 "epoll_wait",
					 "execve",
					 "exit",
					 "exit_group",
					 "fchmod",
					 "fchown",
					 "fcntl",
					 "fsconfig",
					 "fsmount",
					 "fsopen",
					 "fstat",
					 "fstatfs",
					 "geteuid",
					 "getpid",
					 "getppid",
					 "getrlimit",
					 "ioctl",
					 "kill",
					 "madvise",
					 "mkdirat",
					 "mknodat",
					 "mmap",
					 "mount_setattr",
					 "move_mount",
					 "mprotect",
					 "munmap",
					 "nanosleep",
					 "newfstatat",
					 "open_tree",
					 "openat",
					 "openat2",
					 "pipe2",
					 "poll",
					 "ppoll",
					 "prctl",
					 "pread64",
					 "prlimit64",
					 "read",
					 "recvmsg",
					 "rt_sigprocmask",
					 "rt_sigreturn",
					 "seccomp",
					 "sendmsg",
					 "setfsgid",
					 "setfsuid",
					 "setgroups",
					 "setresgid",
					 "setresuid",
					 "setsid",
					 "statx",
					 "timerfd_settime",
					 "umask",
					 "wait4",
					 "waitid",
					 "write"};

/* Those of them that a child calls after its own tiny filter is loaded. */
static const char *const child_calls[] = {
	"capset", "execve", "exit", "exit_group", "rt_sigprocmask", "rt_sigreturn", "setresuid"};

struct preamble {
	struct sock_filter code[PREAMBLE_MAX];
	unsigned int count;
};

static int seccomp_fault(struct sp_err *err, int status, const char *what)
{
	/* -ECANCELED: a system call inside libseccomp failed; the rest are errno values too. */
	return sp_err_set(err, status == -ENOMEM ? -ENOMEM : -EINVAL, "seccomp: %s", what);
}

/* The number of a call on this architecture; negative: it has none, or nobody knows it. */
static int call_number(const char *name)
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
	int number = call_number(name);
	int status;

	if (number < 0)
		return 0;
	status = seccomp_rule_add_array(context, action, number, count, compare);
	return status < 0 ? seccomp_fault(err, status, name) : 0;
}

/* Deny when any of the bits is set in one argument, and (need_mask) those are in another. */
struct bit_rule {
	const char *name;
	unsigned int argument;
	uint64_t bits;
	unsigned int need_argument;
	uint64_t need_bits; /* one alternative a bit; 0 = no condition */
};

#define SET_ID_BITS    ((uint64_t)(S_ISUID | S_ISGID))
#define CREATING_FLAGS ((uint64_t)(O_CREAT | (O_TMPFILE & ~O_DIRECTORY)))
#define NAMESPACE_BITS                                                                            \
	((uint64_t)(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | \
		    CLONE_NEWPID | CLONE_NEWNET))

static const struct bit_rule bit_rules[] = {
	{"clone", 0, NAMESPACE_BITS, 0, 0},
	{"unshare", 0, NAMESPACE_BITS | NAMESPACE_TIME, 0, 0},
	{"chmod", 1, SET_ID_BITS, 0, 0},
	{"fchmod", 1, SET_ID_BITS, 0, 0},
	{"fchmodat", 2, SET_ID_BITS, 0, 0},
	{"fchmodat2", 2, SET_ID_BITS, 0, 0},
	{"creat", 1, SET_ID_BITS, 0, 0},
	{"mkdir", 1, SET_ID_BITS, 0, 0},
	{"mkdirat", 2, SET_ID_BITS, 0, 0},
	{"mknod", 1, SET_ID_BITS, 0, 0},
	{"mknodat", 2, SET_ID_BITS, 0, 0},
	/* Without a flag that creates, the mode is whatever the register holds. */
	{"open", 2, SET_ID_BITS, 1, CREATING_FLAGS},
	{"openat", 3, SET_ID_BITS, 2, CREATING_FLAGS},
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

static int deny_value(scmp_filter_ctx context, const char *name, unsigned int argument,
		      uint64_t value, int error, struct sp_err *err)
{
	const struct scmp_arg_cmp compare = SCMP_CMP(argument, SCMP_CMP_MASKED_EQ, LOW_HALF, value);

	return deny(context, name, SCMP_ACT_ERRNO((unsigned int)error), 1, &compare, err);
}

static int deny_values(scmp_filter_ctx context, struct sp_err *err)
{
	int status;

	/* Typing into the terminal that the user sits at. */
	status = deny_value(context, "ioctl", 1, TIOCSTI, EPERM, err);
	if (status == 0)
		status = deny_value(context, "ioctl", 1, TIOCLINUX, EPERM, err);
	/* Reaches the hypervisor, past every network namespace. */
	if (status == 0)
		status = deny_value(context, "socket", 0, AF_VSOCK, EAFNOSUPPORT, err);
	/* The kernel's cryptography, as a target. */
	if (status == 0)
		status = deny_value(context, "socket", 0, AF_ALG, EAFNOSUPPORT, err);
	return status;
}

static int fill_builtin(scmp_filter_ctx context, struct sp_err *err)
{
	int status = deny_bits(context, err);

	if (status == 0)
		status = deny_values(context, err);
	for (size_t i = 0; status == 0 && i < SP_ARRAY_SIZE(denied_calls); i++)
		status = deny(context, denied_calls[i], SCMP_ACT_ERRNO(EPERM), 0, NULL, err);
	for (size_t i = 0; status == 0 && i < SP_ARRAY_SIZE(absent_calls); i++)
		status = deny(context, absent_calls[i], SCMP_ACT_ERRNO(ENOSYS), 0, NULL, err);
	return status;
}

static int fill_init_only(scmp_filter_ctx context, struct sp_err *err)
{
	int status = 0;

	for (size_t i = 0; status == 0 && i < SP_ARRAY_SIZE(init_only_calls); i++)
		status = deny(context, init_only_calls[i].name,
			      SCMP_ACT_ERRNO((unsigned int)init_only_calls[i].error), 0, NULL, err);
	return status;
}

static void add(struct preamble *preamble, uint16_t code, uint32_t k, uint8_t yes, uint8_t no)
{
	sp_assert(preamble->count < PREAMBLE_MAX);
	preamble->code[preamble->count++] = (struct sock_filter){code, yes, no, k};
}

static void add_load(struct preamble *preamble, uint32_t offset)
{
	add(preamble, BPF_LD | BPF_W | BPF_ABS, offset, 0, 0);
}

static void add_return(struct preamble *preamble, uint32_t action)
{
	add(preamble, BPF_RET | BPF_K, action, 0, 0);
}

static void preamble_numbers(struct preamble *preamble, uint32_t newest)
{
	add_load(preamble, offsetof(struct seccomp_data, arch));
	add(preamble, BPF_JMP | BPF_JEQ | BPF_K, NATIVE_AUDIT_ARCH, 1, 0);
	add_return(preamble, SECCOMP_RET_KILL_PROCESS);
	add_load(preamble, offsetof(struct seccomp_data, nr));
	add(preamble, BPF_JMP | BPF_JGT | BPF_K, newest, 0, 1);
	add_return(preamble, SECCOMP_RET_ERRNO | ENOSYS);
}

/* personality(0) is what every program has, 0xffffffff only asks. The number is loaded already. */
static void preamble_personality(struct preamble *preamble)
{
	add(preamble, BPF_JMP | BPF_JEQ | BPF_K, SYS_personality, 0, 4);
	add_load(preamble, ARGUMENT_LOW(0));
	add(preamble, BPF_JMP | BPF_JEQ | BPF_K, 0, 2, 0);
	add(preamble, BPF_JMP | BPF_JEQ | BPF_K, UINT32_MAX, 1, 0);
	add_return(preamble, SECCOMP_RET_ERRNO | EPERM);
}

static int export_program(scmp_filter_ctx context, const struct preamble *preamble,
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
		return seccomp_fault(err, status, "export");
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

/* A context for the native architecture only; foreign: what another one and x32 get, unless a
 * preamble or an earlier filter has decided. NULL: out of memory, or libseccomp refuses. */
static scmp_filter_ctx new_context(uint32_t default_action, uint32_t foreign)
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

static void context_cleanup(scmp_filter_ctx *context)
{
	if (*context)
		seccomp_release(*context);
}

static int compile_builtin_big(struct sp_seccomp_program *ret, struct sp_err *err)
{
	SP_CLEANUP(context_cleanup)
	scmp_filter_ctx context = new_context(SCMP_ACT_ALLOW, SCMP_ACT_KILL_PROCESS);
	struct preamble preamble = {.count = 0};
	int status;

	if (!context)
		return seccomp_fault(err, -EINVAL, "context");
	preamble_numbers(&preamble, NEWEST_CALL);
	preamble_personality(&preamble);
	status = fill_builtin(context, err);
	return status < 0 ? status : export_program(context, &preamble, ret, err);
}

static int compile_builtin_tiny(struct sp_seccomp_program *ret, struct sp_err *err)
{
	SP_CLEANUP(context_cleanup)
	scmp_filter_ctx context = new_context(SCMP_ACT_ALLOW, SCMP_ACT_ALLOW);
	const struct preamble none = {.count = 0};
	int status;

	if (!context)
		return seccomp_fault(err, -EINVAL, "context");
	status = fill_init_only(context, err);
	return status < 0 ? status : export_program(context, &none, ret, err);
}

int sp_seccomp_compile(struct sp_seccomp_program *ret_init, struct sp_seccomp_program *ret_exec,
		       struct sp_err *err)
{
	struct sp_seccomp_program big;
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

/* One call of one entry of a profile. */
struct oci_rule {
	int number;
	uint32_t action;
	unsigned int count;
	struct scmp_arg_cmp compare[OCI_ARGS_MAX];
};

struct oci_profile {
	uint32_t default_action;
	uint32_t newest; /* highest number that the profile names */
	size_t count;
	struct oci_rule rules[OCI_RULES_MAX];
};

static int oci_fault(struct sp_err *err, const char *what, const char *object)
{
	return sp_err_code(err, SP_CODE_CONFIG_INVALID, -EINVAL, "seccomp profile: %s '%s'", what,
			   object);
}

/* A string member; NULL with err filled if it is missing or none. */
static const char *oci_text(const json_t *object, const char *key, struct sp_err *err)
{
	const char *text = json_string_value(json_object_get(object, key));

	if (!text)
		(void)oci_fault(err, "a text is expected at", key);
	return text;
}

/* An unsigned member; `missing` if there is none. */
static int oci_number(const json_t *object, const char *key, uint64_t missing, uint64_t *ret,
		      struct sp_err *err)
{
	const json_t *value = json_object_get(object, key);

	if (!value || json_is_null(value)) {
		*ret = missing;
		return 0;
	}
	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return oci_fault(err, "a whole number is expected at", key);
	*ret = (uint64_t)json_integer_value(value);
	return 0;
}

static int oci_action(const json_t *object, const char *key, const char *errno_key, uint32_t *ret,
		      struct sp_err *err)
{
	static const struct {
		const char *name;
		uint32_t action;
	} actions[] = {
		{"SCMP_ACT_ALLOW", SCMP_ACT_ALLOW},
		{"SCMP_ACT_KILL", SCMP_ACT_KILL_THREAD},
		{"SCMP_ACT_KILL_THREAD", SCMP_ACT_KILL_THREAD},
		{"SCMP_ACT_KILL_PROCESS", SCMP_ACT_KILL_PROCESS},
		{"SCMP_ACT_TRAP", SCMP_ACT_TRAP},
	};

	const char *name = oci_text(object, key, err);
	uint64_t number;
	int status;

	if (!name)
		return -EINVAL;
	if (strcmp(name, "SCMP_ACT_ERRNO") == 0) {
		status = oci_number(object, errno_key, EPERM, &number, err);
		if (status < 0)
			return status;
		if (number == 0 || number > OCI_ERRNO_MAX)
			return oci_fault(err, "an errno is expected at", errno_key);
		*ret = SCMP_ACT_ERRNO((uint32_t)number);
		return 0;
	}
	for (size_t i = 0; i < SP_ARRAY_SIZE(actions); i++)
		if (strcmp(actions[i].name, name) == 0) {
			*ret = actions[i].action;
			return 0;
		}
	/* LOG lets the call through; NOTIFY and TRACE need somebody who decides. */
	return oci_fault(err, "unknown or unsupported action", name);
}

static int oci_operator(const char *name, enum scmp_compare *ret)
{
	static const struct {
		const char *name;
		enum scmp_compare op;
	} operators[] = {
		{"SCMP_CMP_NE", SCMP_CMP_NE},
		{"SCMP_CMP_LT", SCMP_CMP_LT},
		{"SCMP_CMP_LE", SCMP_CMP_LE},
		{"SCMP_CMP_EQ", SCMP_CMP_EQ},
		{"SCMP_CMP_GE", SCMP_CMP_GE},
		{"SCMP_CMP_GT", SCMP_CMP_GT},
		{"SCMP_CMP_MASKED_EQ", SCMP_CMP_MASKED_EQ},
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(operators); i++)
		if (strcmp(operators[i].name, name) == 0) {
			*ret = operators[i].op;
			return 0;
		}
	return -EINVAL;
}

static int oci_compare(const json_t *arg, struct scmp_arg_cmp *ret, struct sp_err *err)
{
	const char *name = oci_text(arg, "op", err);
	uint64_t index;
	uint64_t value;
	uint64_t value_two;
	int status;

	if (!name)
		return -EINVAL;
	if (oci_operator(name, &ret->op) < 0)
		return oci_fault(err, "unknown operator", name);
	status = oci_number(arg, "index", OCI_ARGS_MAX, &index, err);
	if (status == 0)
		status = oci_number(arg, "value", 0, &value, err);
	if (status == 0)
		status = oci_number(arg, "valueTwo", 0, &value_two, err);
	if (status < 0)
		return status;
	if (index >= OCI_ARGS_MAX)
		return oci_fault(err, "an argument's number is expected at", "index");
	ret->arg = (unsigned int)index;
	ret->datum_a = value;
	ret->datum_b = value_two;
	return 0;
}

static bool oci_lists(const json_t *condition, const char *key, const char *text)
{
	size_t i;
	const json_t *entry;

	json_array_foreach (json_object_get(condition, key), i, entry)
		if (json_is_string(entry) && strcmp(json_string_value(entry), text) == 0)
			return true;
	return false;
}

/* "6.1" against the running kernel. */
static bool oci_kernel_reached(const json_t *condition)
{
	const char *wanted = json_string_value(json_object_get(condition, "minKernel"));
	struct utsname names;
	unsigned int want[2] = {0, 0};
	unsigned int have[2] = {0, 0};

	if (!wanted)
		return true;
	if (uname(&names) != 0 || sscanf(names.release, "%u.%u", &have[0], &have[1]) != 2 ||
	    sscanf(wanted, "%u.%u", &want[0], &want[1]) != 2)
		return false;
	return have[0] > want[0] || (have[0] == want[0] && have[1] >= want[1]);
}

/* Whether an entry is meant for us: this architecture, this kernel, no capabilities. */
static bool oci_applies(const json_t *entry)
{
	const json_t *includes = json_object_get(entry, "includes");
	const json_t *excludes = json_object_get(entry, "excludes");

	if (json_array_size(json_object_get(includes, "caps")) > 0)
		return false;
	if (json_array_size(json_object_get(includes, "arches")) > 0 &&
	    !oci_lists(includes, "arches", NATIVE_OCI_ARCH))
		return false;
	if (!oci_kernel_reached(includes))
		return false;
	if (oci_lists(excludes, "arches", NATIVE_OCI_ARCH))
		return false;
	return !json_object_get(excludes, "minKernel") || !oci_kernel_reached(excludes);
}

static int oci_keep(struct oci_profile *profile, const struct oci_rule *rule, struct sp_err *err)
{
	if (profile->count == OCI_RULES_MAX)
		return sp_err_code(err, SP_CODE_CONFIG_INVALID, -E2BIG,
				   "seccomp profile: more than %u rules", OCI_RULES_MAX);
	profile->rules[profile->count++] = *rule;
	if ((uint32_t)rule->number > profile->newest)
		profile->newest = (uint32_t)rule->number;
	return 0;
}

/* libseccomp takes one comparison for each argument; what names one twice means "any of them". */
static int oci_keep_split(struct oci_profile *profile, const struct oci_rule *rule,
			  struct sp_err *err)
{
	unsigned int seen = 0;
	bool twice = false;
	int status = 0;

	for (unsigned int i = 0; i < rule->count; i++) {
		twice = twice || (seen & 1u << rule->compare[i].arg) != 0;
		seen |= 1u << rule->compare[i].arg;
	}
	if (!twice)
		return oci_keep(profile, rule, err);
	for (unsigned int i = 0; status == 0 && i < rule->count; i++) {
		struct oci_rule one = {.number = rule->number, .action = rule->action, .count = 1};

		one.compare[0] = rule->compare[i];
		status = oci_keep(profile, &one, err);
	}
	return status;
}

static int oci_names(struct oci_profile *profile, const json_t *entry, struct oci_rule *rule,
		     struct sp_err *err)
{
	const json_t *names = json_object_get(entry, "names");
	const json_t *name;
	size_t i;

	if (!json_is_array(names))
		return oci_fault(err, "an array is expected at", "names");
	json_array_foreach (names, i, name) {
		int status;

		if (!json_is_string(name))
			return oci_fault(err, "a text is expected in", "names");
		rule->number = call_number(json_string_value(name));
		if (rule->number < 0) /* of another architecture, or from the future */
			continue;
		status = oci_keep_split(profile, rule, err);
		if (status < 0)
			return status;
	}
	return 0;
}

static int oci_entry(struct oci_profile *profile, const json_t *entry, struct sp_err *err)
{
	const json_t *args = json_object_get(entry, "args");
	struct oci_rule rule = {.count = 0};
	const json_t *arg;
	size_t i;
	int status = oci_action(entry, "action", "errnoRet", &rule.action, err);

	if (status < 0)
		return status;
	if (json_array_size(args) > OCI_ARGS_MAX)
		return oci_fault(err, "too many comparisons in", "args");
	json_array_foreach (args, i, arg) {
		status = oci_compare(arg, &rule.compare[rule.count], err);
		if (status < 0)
			return status;
		rule.count++;
	}
	return oci_applies(entry) ? oci_names(profile, entry, &rule, err) : 0;
}

static int oci_parse(const json_t *root, struct oci_profile *profile, struct sp_err *err)
{
	const json_t *calls = json_object_get(root, "syscalls");
	const json_t *entry;
	size_t i;
	int status;

	if (!json_is_object(root))
		return oci_fault(err, "an object is expected at", "/");
	status =
		oci_action(root, "defaultAction", "defaultErrnoRet", &profile->default_action, err);
	if (status < 0)
		return status;
	if (calls && !json_is_array(calls))
		return oci_fault(err, "an array is expected at", "syscalls");
	json_array_foreach (calls, i, entry) {
		status = oci_entry(profile, entry, err);
		if (status < 0)
			return status;
	}
	return 0;
}

/* What the profile says of one call: an action, or (conditional) that it depends on arguments. */
struct oci_verdict {
	uint32_t action;
	bool conditional;
};

static struct oci_verdict oci_verdict(const struct oci_profile *profile, int number)
{
	struct oci_verdict verdict = {.action = profile->default_action};

	for (size_t i = 0; i < profile->count; i++) {
		const struct oci_rule *rule = &profile->rules[i];

		if (rule->number != number)
			continue;
		if (rule->count > 0)
			verdict.conditional = true;
		else
			verdict.action = rule->action;
	}
	return verdict;
}

static bool listed(const char *const *names, size_t count, int number)
{
	for (size_t i = 0; i < count; i++)
		if (call_number(names[i]) == number)
			return true;
	return false;
}

/* A call of init's that the profile denies whatever its arguments: allowed in the big filter. */
static bool oci_overruled(const struct oci_profile *profile, int number)
{
	struct oci_verdict verdict = oci_verdict(profile, number);

	return listed(init_calls, SP_ARRAY_SIZE(init_calls), number) && !verdict.conditional &&
	       verdict.action != SCMP_ACT_ALLOW;
}

static int oci_add(scmp_filter_ctx context, uint32_t action, int number, unsigned int count,
		   const struct scmp_arg_cmp *compare, struct sp_err *err)
{
	char name[32];
	int status = seccomp_rule_add_array(context, action, number, count, compare);

	if (status >= 0)
		return 0;
	(void)snprintf(name, sizeof(name), "rule for call %d", number);
	return seccomp_fault(err, status, name);
}

static int oci_fill_big(scmp_filter_ctx context, const struct oci_profile *profile,
			struct sp_err *err)
{
	int status = 0;

	for (size_t i = 0; status == 0 && i < profile->count; i++) {
		const struct oci_rule *rule = &profile->rules[i];

		/* libseccomp refuses a rule that says what the default says. */
		if (rule->action != profile->default_action &&
		    !oci_overruled(profile, rule->number))
			status = oci_add(context, rule->action, rule->number, rule->count,
					 rule->compare, err);
	}
	for (size_t i = 0; status == 0 && i < SP_ARRAY_SIZE(init_calls); i++) {
		int number = call_number(init_calls[i]);

		if (number >= 0 && profile->default_action != SCMP_ACT_ALLOW &&
		    oci_overruled(profile, number))
			status = oci_add(context, SCMP_ACT_ALLOW, number, 0, NULL, err);
	}
	return status;
}

/* What the big filter had to give to init is taken from the workload here. */
static int oci_fill_tiny(scmp_filter_ctx context, const struct oci_profile *profile,
			 struct sp_err *err)
{
	int status = fill_init_only(context, err);

	for (size_t i = 0; status == 0 && i < SP_ARRAY_SIZE(init_calls); i++) {
		int number = call_number(init_calls[i]);
		bool own = false;

		for (size_t j = 0; j < SP_ARRAY_SIZE(init_only_calls); j++)
			own = own || strcmp(init_only_calls[j].name, init_calls[i]) == 0;
		if (number < 0 || own || !oci_overruled(profile, number) ||
		    listed(child_calls, SP_ARRAY_SIZE(child_calls), number))
			continue;
		status =
			oci_add(context, oci_verdict(profile, number).action, number, 0, NULL, err);
	}
	return status;
}

static int oci_compile_big(const struct oci_profile *profile, struct sp_seccomp_program *ret,
			   struct sp_err *err)
{
	SP_CLEANUP(context_cleanup)
	scmp_filter_ctx context = new_context(profile->default_action, SCMP_ACT_KILL_PROCESS);
	struct preamble preamble = {.count = 0};
	int status;

	if (!context)
		return seccomp_fault(err, -EINVAL, "context");
	/* A list of what is allowed knows nothing of calls newer than itself: those are ENOSYS. */
	preamble_numbers(&preamble,
			 profile->default_action == SCMP_ACT_ALLOW ? NEWEST_CALL : profile->newest);
	status = oci_fill_big(context, profile, err);
	return status < 0 ? status : export_program(context, &preamble, ret, err);
}

static int oci_compile_tiny(const struct oci_profile *profile, struct sp_seccomp_program *ret,
			    struct sp_err *err)
{
	SP_CLEANUP(context_cleanup)
	scmp_filter_ctx context = new_context(SCMP_ACT_ALLOW, SCMP_ACT_ALLOW);
	const struct preamble none = {.count = 0};
	int status;

	if (!context)
		return seccomp_fault(err, -EINVAL, "context");
	status = oci_fill_tiny(context, profile, err);
	return status < 0 ? status : export_program(context, &none, ret, err);
}

static int oci_compile(const json_t *root, struct oci_profile *profile,
		       struct sp_seccomp_program *ret_init, struct sp_seccomp_program *ret_exec,
		       struct sp_err *err)
{
	struct sp_seccomp_program big;
	int status = oci_parse(root, profile, err);

	if (status < 0)
		return status;
	if (oci_overruled(profile, SYS_execve))
		return oci_fault(err, "nothing could be started without", "execve");
	for (size_t i = 0; i < SP_ARRAY_SIZE(init_calls); i++) {
		int number = call_number(init_calls[i]);

		if (number >= 0 && (uint32_t)number > profile->newest)
			profile->newest = (uint32_t)number;
	}
	status = oci_compile_big(profile, &big, err);
	if (status < 0)
		return status;
	status = oci_compile_tiny(profile, ret_exec, err);
	if (status < 0)
		sp_seccomp_program_done(&big);
	else
		*ret_init = big;
	return status;
}

int sp_seccomp_compile_oci(const char *json, size_t len, struct sp_seccomp_program *ret_init,
			   struct sp_seccomp_program *ret_exec, struct sp_err *err)
{
	struct oci_profile *profile;
	json_error_t fault;
	json_t *root = json_loadb(json, len, JSON_REJECT_DUPLICATES, &fault);
	int status = -ENOMEM;

	if (!root)
		return sp_err_code(err, SP_CODE_CONFIG_INVALID, -EINVAL,
				   "seccomp profile: line %d, column %d: %s", fault.line,
				   fault.column, fault.text);
	profile = calloc(1, sizeof(*profile));
	if (profile)
		status = oci_compile(root, profile, ret_init, ret_exec, err);
	else
		(void)sp_err_set(err, status, "seccomp profile");
	free(profile);
	json_decref(root);
	return status;
}
