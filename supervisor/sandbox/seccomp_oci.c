/*
 * Seccomp filters from an OCI/Docker profile: its default action and rules for this architecture,
 * this kernel and a program without capabilities.
 *
 * The profile replaces the built-in list in the big filter. What init needs of the calls that it
 * refuses is allowed there and refused again in the tiny filter, so that a workload has what the
 * profile says; what only init may call stays denied whatever it says. JSON text is trusted input
 * of the operator, but faults in it are reported by name.
 */
#include "supervisor/sandbox/seccomp_private.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>

#if defined(__x86_64__)
#define NATIVE_OCI_ARCH "amd64"
#else
#define NATIVE_OCI_ARCH "arm64"
#endif

#define OCI_ARGS_MAX  6u
#define OCI_RULES_MAX 4096u
#define OCI_ERRNO_MAX 4094u /* libseccomp refuses the kernel's last one */

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
	uint64_t number = 0;
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
	uint64_t index = 0;
	uint64_t value = 0;
	uint64_t value_two = 0;
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
		rule->number = sp_seccomp_call_number(json_string_value(name));
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
		if (sp_seccomp_call_number(names[i]) == number)
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
	return sp_seccomp_fault(err, status, name);
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
		int number = sp_seccomp_call_number(init_calls[i]);

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
	int status = sp_seccomp_deny_init_only(context, err);

	for (size_t i = 0; status == 0 && i < SP_ARRAY_SIZE(init_calls); i++) {
		int number = sp_seccomp_call_number(init_calls[i]);

		if (number < 0 || sp_seccomp_is_init_only(init_calls[i]) ||
		    !oci_overruled(profile, number) ||
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
	SP_CLEANUP(sp_seccomp_context_cleanup)
	scmp_filter_ctx context =
		sp_seccomp_context_new(profile->default_action, SCMP_ACT_KILL_PROCESS);
	struct sp_seccomp_preamble preamble = {.count = 0};
	int status;

	if (!context)
		return sp_seccomp_fault(err, -EINVAL, "context");
	/* A list of what is allowed knows nothing of calls newer than itself: those are ENOSYS. */
	sp_seccomp_preamble(&preamble, profile->default_action == SCMP_ACT_ALLOW
					       ? SP_SECCOMP_NEWEST_CALL
					       : profile->newest);
	status = oci_fill_big(context, profile, err);
	return status < 0 ? status : sp_seccomp_export(context, &preamble, ret, err);
}

static int oci_compile_tiny(const struct oci_profile *profile, struct sp_seccomp_program *ret,
			    struct sp_err *err)
{
	SP_CLEANUP(sp_seccomp_context_cleanup)
	scmp_filter_ctx context = sp_seccomp_context_new(SCMP_ACT_ALLOW, SCMP_ACT_ALLOW);
	const struct sp_seccomp_preamble none = {.count = 0};
	int status;

	if (!context)
		return sp_seccomp_fault(err, -EINVAL, "context");
	status = oci_fill_tiny(context, profile, err);
	return status < 0 ? status : sp_seccomp_export(context, &none, ret, err);
}

static int oci_compile(const json_t *root, struct oci_profile *profile,
		       struct sp_seccomp_program *ret_init, struct sp_seccomp_program *ret_exec,
		       struct sp_err *err)
{
	struct sp_seccomp_program big = {0};
	int status = oci_parse(root, profile, err);

	if (status < 0)
		return status;
	if (oci_overruled(profile, SYS_execve))
		return oci_fault(err, "nothing could be started without", "execve");
	for (size_t i = 0; i < SP_ARRAY_SIZE(init_calls); i++) {
		int number = sp_seccomp_call_number(init_calls[i]);

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
