/*
 * See init_harness.h. Three processes: the test; "launcher", forked by it, which has a mount
 * namespace of its own with the template; init, cloned by that. Everything asserts: a harness that
 * fails is a test that fails.
 */
#include "tests/sandbox/init_harness.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"
#include "supervisor/sandbox/seccomp_compile.h"
#include "supervisor/sandbox/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

/* There on every Debian, and only this process sees what is mounted over it. */
#define PLACE      "/mnt"
#define HIGH_FD    64
#define TMP_BYTES  (UINT64_C(16) << 20)
#define TMP_INODES 2048u

/* A failure in a forked process must be seen as well. */
#define MUST(condition)                                                                    \
	do {                                                                               \
		if (!(condition)) {                                                        \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, \
				strerror(errno));                                          \
			abort();                                                           \
		}                                                                          \
	} while (0)

const char *init_harness_missing(void)
{
	return geteuid() == 0 ? NULL : "needs root";
}

static void add_mount(struct sp_table_pool *pool, uint32_t kind, uint32_t flags, uint32_t mode,
		      const char *source, const char *target)
{
	struct sp_table_mount *mount = &pool->mounts[pool->mount_count++];

	mount->kind = kind;
	mount->flags = flags;
	mount->mode = mode;
	(void)snprintf(mount->source, sizeof(mount->source), "%s", source);
	(void)snprintf(mount->target, sizeof(mount->target), "%s", target);
}

static void fill_mounts(struct sp_table_pool *pool)
{
	const uint32_t owned = SP_MOUNT_F_OWNED;

	add_mount(pool, SP_MOUNT_BIND, 0, 0, "/usr", "/usr");
	add_mount(pool, SP_MOUNT_SYMLINK, 0, 0, "usr/bin", "/bin");
	add_mount(pool, SP_MOUNT_SYMLINK, 0, 0, "usr/sbin", "/sbin");
	add_mount(pool, SP_MOUNT_SYMLINK, 0, 0, "usr/lib", "/lib");
	add_mount(pool, SP_MOUNT_SYMLINK, 0, 0, "usr/lib64", "/lib64");
	add_mount(pool, SP_MOUNT_TREE, 0, 0, "", "/etc");
	add_mount(pool, SP_MOUNT_BIND, 0, 0, SP_TEST_PAYLOADS, "/payloads");
	add_mount(pool, SP_MOUNT_DEV, 0, 0, "", "/dev");
	add_mount(pool, SP_MOUNT_WRITABLE, SP_MOUNT_F_NOEXEC, 01777, "", "/dev/shm");
	add_mount(pool, SP_MOUNT_PROC, 0, 0, "", "/proc");
	add_mount(pool, SP_MOUNT_WRITABLE, 0, 01777, "", "/tmp");
	add_mount(pool, SP_MOUNT_WRITABLE, owned, 0755, "", "/home");
	add_mount(pool, SP_MOUNT_WRITABLE, owned, 0755, "", "/workspace");
	add_mount(pool, SP_MOUNT_DIR, owned, 0750, "", "/workspace/made");
	add_mount(pool, SP_MOUNT_DIR, 0, 0755, "", "/srv");
	add_mount(pool, SP_MOUNT_HIDE, 0, 0, "", "/usr/share");
	add_mount(pool, SP_MOUNT_HIDE, SP_MOUNT_F_OPTIONAL, 0, "", "/usr/not-there");
	add_mount(pool, SP_MOUNT_BIND, SP_MOUNT_F_OPTIONAL, 0, "/not-there", "/not-there");
}

static void fill_pool(struct sp_table_pool *pool, const struct harness_options *options)
{
	(void)snprintf(pool->name, sizeof(pool->name), "test");
	(void)snprintf(pool->hostname, sizeof(pool->hostname), "sandbox");
	pool->workload_uid = HARNESS_WORKLOAD;
	pool->workload_gid = HARNESS_WORKLOAD;
	pool->tmp_bytes = TMP_BYTES;
	pool->tmp_inodes = TMP_INODES;
	pool->rlimit_nofile = 256;
	pool->rlimit_fsize = UINT64_MAX;
	pool->rlimit_nproc = 512;
	pool->rlimit_stack = UINT64_C(8) << 20;
	if (options->direct) {
		pool->flags = SP_POOL_F_DIRECT;
		pool->direct_uid = HARNESS_DIRECT_ID;
		pool->direct_gid = HARNESS_DIRECT_ID;
		return;
	}
	fill_mounts(pool);
}

static uint64_t append(int fd, uint64_t at, const struct sp_seccomp_program *program)
{
	MUST(pwrite(fd, program->bytes, program->length, (off_t)at) == (ssize_t)program->length);
	return at + program->length;
}

static int make_record(const struct harness_options *options)
{
	struct sp_seccomp_program big;
	struct sp_seccomp_program tiny;
	struct sp_boot *boot = calloc(1, sizeof(*boot));
	int fd = memfd_create("boot", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	MUST(fd >= 0 && boot);
	MUST((options->oci ? sp_seccomp_compile_oci(options->oci, strlen(options->oci), &big, &tiny,
						    NULL)
			   : sp_seccomp_compile(&big, &tiny, NULL)) == 0);
	boot->magic = SP_BOOT_MAGIC;
	boot->build_id = SP_BUILD_ID;
	boot->rootless = options->rootless;
	fill_pool(&boot->pool, options);
	boot->absent[boot->pool.mount_count > 0 ? boot->pool.mount_count - 1 : 0] = 1;
	boot->filter_offset = (sizeof(*boot) + 7) / 8 * 8;
	boot->filter_length = big.length;
	boot->exec_filter_offset = append(fd, boot->filter_offset, &big);
	boot->exec_filter_length = tiny.length;
	boot->size = append(fd, boot->exec_filter_offset, &tiny);
	if (options->edit)
		options->edit(boot);
	MUST(pwrite(fd, boot, sizeof(*boot), 0) == (ssize_t)sizeof(*boot));
	MUST(ftruncate(fd, (off_t)(boot->size - options->cut)) == 0);
	if (!options->unsealed)
		MUST(fcntl(fd, F_ADD_SEALS,
			   F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
	sp_seccomp_program_done(&big);
	sp_seccomp_program_done(&tiny);
	free(boot);
	return fd;
}

/* --- the launcher's part ----------------------------------------------------------------- */

int harness_clone(const char *path, bool read_only)
{
	uint64_t set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
	int fd = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

	MUST(fd >= 0);
	if (read_only)
		set |= MOUNT_ATTR_RDONLY;
	MUST(sp_sys_mount_setattr(fd, "", AT_EMPTY_PATH, set, 0, MS_PRIVATE, -1) == 0);
	return fd;
}

static void place_mount(int fd, const char *target)
{
	MUST(move_mount(fd, "", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH) == 0);
	MUST(close(fd) == 0);
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	MUST(fd >= 0);
	MUST(sp_write_all(fd, text, strlen(text)) == 0);
	MUST(close(fd) == 0);
}

static void make_etc(const char *path)
{
	char name[128];

	MUST(mkdir(path, 0755) == 0);
	(void)snprintf(name, sizeof(name), "%s/passwd", path);
	write_file(name, "root:x:0:0::/:/bin/sh\nworkload:x:1000:1000::/home:/bin/sh\n");
	(void)snprintf(name, sizeof(name), "%s/hosts", path);
	write_file(name, "127.0.0.1 localhost\n");
	place_mount(harness_clone(path, true), path);
}

static void make_dev(void)
{
	static const struct {
		const char *name;
		unsigned int major;
		unsigned int minor;
	} nodes[] = {{"null", 1, 3},   {"zero", 1, 5},    {"full", 1, 7},
		     {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}};

	char path[64];
	int fd;

	MUST(mkdir("pools/0/dev", 0755) == 0);
	for (size_t i = 0; i < SP_ARRAY_SIZE(nodes); i++) {
		(void)snprintf(path, sizeof(path), "pools/0/dev/%s", nodes[i].name);
		MUST(mknod(path, S_IFCHR | 0666, makedev(nodes[i].major, nodes[i].minor)) == 0);
	}
	MUST(symlink("/proc/self/fd", "pools/0/dev/fd") == 0);
	MUST(symlink("/proc/self/fd/0", "pools/0/dev/stdin") == 0);
	MUST(symlink("/proc/self/fd/1", "pools/0/dev/stdout") == 0);
	MUST(symlink("/proc/self/fd/2", "pools/0/dev/stderr") == 0);
	MUST(symlink("pts/ptmx", "pools/0/dev/ptmx") == 0);
	MUST(mkdir("pools/0/dev/pts", 0755) == 0 && mkdir("pools/0/dev/shm", 0755) == 0);
	fd = open_tree(AT_FDCWD, "pools/0/dev", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	MUST(fd >= 0);
	MUST(sp_sys_mount_setattr(fd, "", AT_EMPTY_PATH, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, 0,
				  0, -1) == 0);
	place_mount(fd, "pools/0/dev");
}

static void make_pool(const struct sp_boot *boot)
{
	char path[64];

	for (uint32_t i = 0; i < boot->pool.mount_count; i++) {
		const struct sp_table_mount *mount = &boot->pool.mounts[i];

		(void)snprintf(path, sizeof(path), "pools/0/%u", i);
		if (boot->absent[i])
			continue;
		if (mount->kind == SP_MOUNT_TREE) {
			make_etc(path);
		} else if (mount->kind == SP_MOUNT_BIND) {
			if (access(mount->source, F_OK) != 0)
				continue;
			MUST(mkdir(path, 0755) == 0);
			place_mount(harness_clone(mount->source, true), path);
		}
	}
}

/* The template of init/boot.h as the root of this process. */
static void make_template(const struct sp_boot *boot, const struct harness_options *options)
{
	(void)umask(0);
	MUST(unshare(CLONE_NEWNS) == 0);
	MUST(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	MUST(mount("template", PLACE, "tmpfs", 0, "mode=0755") == 0);
	MUST(chdir(PLACE) == 0);
	MUST(mkdir("proc", 0755) == 0 && mkdir("scratch", 0755) == 0 &&
	     mkdir("newroot", 0755) == 0 && mkdir("empty", 0755) == 0 &&
	     mkdir("empty/dir", 0755) == 0 && mkdir("pools", 0755) == 0 &&
	     mkdir("pools/0", 0755) == 0);
	write_file("empty/file", "");
	MUST(mount("/proc", "proc", NULL, MS_BIND, NULL) == 0);
	if (options->masked_proc)
		MUST(mount("/dev/null", "proc/uptime", NULL, MS_BIND, NULL) == 0);
	make_pool(boot);
	make_dev();
	MUST(sp_sys_pivot_root(".", ".") == 0);
	MUST(umount2(".", MNT_DETACH) == 0 && chdir("/") == 0);
}

static void write_map(pid_t pid, const char *name, const char *text)
{
	char path[64];
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	MUST(fd >= 0);
	MUST(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	MUST(close(fd) == 0);
}

struct plan {
	const struct harness_options *options;
	int init_fd;
	int control_fd;
	int record_fd;
	int report_fd;
	int life[2];
	int go[2];
};

/* Init's own process, up to its execve. */
static void become_init(const struct plan *plan)
{
	int fds[] = {plan->control_fd, plan->record_fd, plan->life[0], plan->report_fd};
	char *const argv[] = {(char[]){"sandpool-init"}, NULL};
	char *const env[] = {NULL};
	uid_t uid = plan->options->direct ? HARNESS_DIRECT_ID : 0;
	int init_fd = fcntl(plan->init_fd, F_DUPFD_CLOEXEC, HIGH_FD);
	char go;

	MUST(close(plan->go[1]) == 0 && close(plan->life[1]) == 0);
	MUST(read(plan->go[0], &go, 1) == 1);
	for (size_t i = 0; i < SP_ARRAY_SIZE(fds); i++)
		fds[i] = fcntl(fds[i], F_DUPFD, HIGH_FD);
	for (int i = 0; i < 4; i++)
		MUST(dup2(fds[i], SP_BOOT_FD_CONTROL + i) >= 0);
	MUST(close_range(SP_BOOT_FD_LOCK + 1, HIGH_FD - 1, 0) == 0);
	for (int i = 0; i < 4; i++)
		MUST(close(fds[i]) == 0);
	if (!plan->options->rootless)
		MUST(sp_sys_setgroups(0, NULL) == 0);
	MUST(sp_sys_setresgid(uid, uid, uid) == 0 && sp_sys_setresuid(uid, uid, uid) == 0);
	MUST(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	MUST(execveat(init_fd, "", argv, env, AT_EMPTY_PATH) == 0);
	abort(); /* it does not return otherwise */
}

static SP_NORETURN void play_launcher(struct plan *plan)
{
	struct clone_args args = {.exit_signal = SIGCHLD};
	struct sp_boot *boot =
		mmap(NULL, sizeof(*boot), PROT_READ, MAP_PRIVATE, plan->record_fd, 0);
	pid_t pid;

	MUST(boot != MAP_FAILED);
	MUST(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	/* What the host's name service calls its domain. */
	MUST(unshare(CLONE_NEWUTS) == 0 && setdomainname("host.test", strlen("host.test")) == 0);
	if (plan->options->direct && plan->options->masked_proc) {
		MUST(unshare(CLONE_NEWNS) == 0);
		MUST(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
		MUST(mount("none", "/proc", "tmpfs", 0, NULL) == 0);
	}
	if (!plan->options->direct) {
		make_template(boot, plan->options);
		args.flags = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS;
	}
	MUST(pipe2(plan->life, O_CLOEXEC) == 0 && pipe2(plan->go, O_CLOEXEC) == 0);
	pid = sp_sys_clone3(&args);
	MUST(pid >= 0);
	if (pid == 0)
		become_init(plan);
	if (plan->options->rootless) {
		write_map(pid, "setgroups", "deny");
		write_map(pid, "uid_map", "0 1000000 1");
		write_map(pid, "gid_map", "0 1000000 1");
	} else if (!plan->options->direct) {
		write_map(pid, "uid_map", "0 1000000 65536");
		write_map(pid, "gid_map", "0 1000000 65536");
	}
	MUST(write(plan->go[1], "g", 1) == 1);
	MUST(write(plan->report_fd, &pid, sizeof(pid)) == sizeof(pid));
	MUST(close(plan->report_fd) == 0 && close(plan->control_fd) == 0);
	while (waitpid(pid, NULL, 0) < 0)
		MUST(errno == EINTR);
	_exit(0);
}

/* A copy of another harness's socket would keep that one's sandbox alive. */
static void close_others(const struct plan *plan)
{
	for (int fd = STDERR_FILENO + 1; fd < 4 * HIGH_FD; fd++)
		if (fd != plan->init_fd && fd != plan->control_fd && fd != plan->record_fd &&
		    fd != plan->report_fd)
			(void)close(fd);
}

bool harness_start(struct harness *harness, const struct harness_options *options,
		   union harness_answer *ret_first)
{
	const struct harness_options none = {0};
	struct plan plan = {.options = options ? options : &none};
	int sockets[2];
	int report[2];
	int fd;

	memset(harness, 0, sizeof(*harness));
	plan.init_fd = open(SP_TEST_INIT, O_PATH | O_CLOEXEC);
	MUST(plan.init_fd >= 0);
	plan.record_fd = make_record(plan.options);
	MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0);
	MUST(pipe2(report, O_CLOEXEC) == 0);
	plan.control_fd = sockets[1];
	plan.report_fd = report[1];
	harness->launcher = fork();
	MUST(harness->launcher >= 0);
	if (harness->launcher == 0) {
		close_others(&plan);
		play_launcher(&plan);
	}
	harness->control_fd = sockets[0];
	MUST(close(sockets[1]) == 0 && close(report[1]) == 0);
	MUST(read(report[0], &harness->init, sizeof(harness->init)) == sizeof(harness->init));
	MUST(close(report[0]) == 0 && close(plan.record_fd) == 0 && close(plan.init_fd) == 0);
	fd = -1;
	return harness_receive(harness, ret_first, &fd, HARNESS_WAIT_MS) > 0;
}

void harness_ready(struct harness *harness, const struct harness_options *options)
{
	union harness_answer first;

	MUST(harness_start(harness, options, &first));
	if (first.header.type != SP_INIT_READY)
		fprintf(stderr, "init: type %u, stage '%s': %s\n", first.header.type,
			first.status.stage, strerror(-first.status.status));
	MUST(first.header.type == SP_INIT_READY);
}

void harness_stop(struct harness *harness)
{
	(void)close(harness->control_fd);
	while (waitpid(harness->launcher, NULL, 0) < 0)
		MUST(errno == EINTR);
}

/* --- sandpoold's part -------------------------------------------------------------------- */

void harness_send(struct harness *harness, const void *record, size_t len, const int *fds,
		  size_t fd_count)
{
	MUST(sp_msg_send(harness->control_fd, record, len, fds, fd_count) == 0);
}

int harness_receive(struct harness *harness, union harness_answer *ret, int *ret_fd, int timeout_ms)
{
	struct pollfd ready = {.fd = harness->control_fd, .events = POLLIN};
	int fds[SP_MSG_FDS_MAX];
	size_t count = 0;
	ssize_t len;

	*ret_fd = -1;
	memset(ret, 0, sizeof(*ret));
	if (poll(&ready, 1, timeout_ms) <= 0)
		return -ETIMEDOUT;
	len = sp_msg_receive(harness->control_fd, ret, sizeof(*ret), fds, &count);
	if (len == -ECONNRESET)
		len = 0;
	MUST(len >= 0 && count <= 1);
	if (count == 1)
		*ret_fd = fds[0];
	return (int)len;
}

void harness_expect(struct harness *harness, uint32_t type, union harness_answer *ret)
{
	int fd;
	int len = harness_receive(harness, ret, &fd, HARNESS_WAIT_MS);

	sp_fd_close(&fd);
	if (len <= 0 || ret->header.type != type)
		fprintf(stderr, "expected type %u, got %u (length %d), stage '%s', status %d\n",
			type, ret->header.type, len, ret->status.stage, ret->status.status);
	MUST(len > 0 && ret->header.type == type);
}

static size_t put(char *text, size_t at, const char *string)
{
	size_t len = strlen(string) + 1;

	MUST(at + len <= SP_INIT_STRINGS_MAX);
	memcpy(text + at, string, len);
	return at + len;
}

static int strings_memfd(const char *text, size_t len)
{
	int fd = memfd_create("strings", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	MUST(fd >= 0);
	MUST(sp_write_all(fd, text, len) == 0);
	MUST(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) == 0);
	return fd;
}

uint32_t harness_exec(struct harness *harness, const struct harness_exec *exec, const int *fds,
		      size_t fd_count)
{
	static const char *const default_env[] = {"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home",
						  "TERM=xterm", NULL};

	static struct {
		struct sp_init_exec record;
		char text[SP_INIT_STRINGS_MAX];
	} message;

	const char *const *env = exec->env ? exec->env : default_env;
	int all_fds[SP_MSG_FDS_MAX];
	size_t len = put(message.text, 0, exec->cwd ? exec->cwd : "/");
	size_t size = sizeof(message.record);

	memset(&message.record, 0, sizeof(message.record));
	message.record.header.type = SP_INIT_EXEC;
	message.record.header.exec = ++harness->execs;
	message.record.header.request = ++harness->requests;
	message.record.flags = exec->flags;
	message.record.session = exec->session;
	message.record.uid = exec->uid ? exec->uid : HARNESS_WORKLOAD;
	message.record.gid = message.record.uid;
	message.record.umask = exec->umask ? exec->umask : 022;
	message.record.rows = 24;
	message.record.columns = 80;
	message.record.rlimit_nofile = exec->rlimit_nofile;
	message.record.rlimit_fsize = exec->rlimit_fsize;
	message.record.rlimit_cpu_s = exec->rlimit_cpu_s;
	message.record.deadline_boot_ms = exec->deadline_boot_ms;
	for (; exec->argv[message.record.argc]; message.record.argc++)
		len = put(message.text, len, exec->argv[message.record.argc]);
	for (; env[message.record.envc]; message.record.envc++)
		len = put(message.text, len, env[message.record.envc]);
	message.record.strings_length = (uint32_t)len;
	if (fd_count > 0)
		memcpy(all_fds, fds, fd_count * sizeof(int));
	if ((exec->flags & SP_EXEC_F_STRINGS) != 0)
		all_fds[fd_count++] = strings_memfd(message.text, len);
	else
		size += len;
	harness_send(harness, &message, size, all_fds, fd_count);
	if ((exec->flags & SP_EXEC_F_STRINGS) != 0)
		(void)close(all_fds[fd_count - 1]);
	return harness->execs;
}

static void note(const union harness_answer *answer, struct harness_result *ret)
{
	if (answer->header.type == SP_INIT_STARTED) {
		ret->started = true;
	} else if (answer->header.type == SP_INIT_START_FAILED) {
		ret->status = answer->status.status;
		memcpy(ret->stage, answer->status.stage, sizeof(ret->stage));
	} else if (answer->header.type == SP_INIT_EXITED) {
		ret->started = true; /* also alone */
		ret->exited = answer->exited;
		ret->code = answer->exited.code;
		ret->value = answer->exited.value;
	}
}

/* Read what is there. */
static void drain(int fd, struct harness_result *ret)
{
	ssize_t got;

	while ((got = read(fd, ret->output + ret->length, HARNESS_OUTPUT - 1 - ret->length)) > 0)
		ret->length += (size_t)got;
	ret->output[ret->length] = '\0';
}

void harness_run(struct harness *harness, const struct harness_exec *exec,
		 struct harness_result *ret)
{
	int out[2];
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	int fds[5] = {null_fd, -1, -1, exec->cgroup_fd, -1};
	int64_t end_ms = sp_clock_boot_ms() + 3 * HARNESS_WAIT_MS;
	bool done = false;

	memset(ret, 0, sizeof(*ret));
	MUST(pipe2(out, O_CLOEXEC) == 0);
	/* As sandpoold does: the workload may open /dev/stdout. */
	MUST(fchmod(out[1], 0666) == 0);
	MUST(fcntl(out[0], F_SETFL, O_NONBLOCK) == 0);
	fds[1] = out[1];
	fds[2] = out[1];
	(void)harness_exec(harness, exec, fds, (exec->flags & SP_EXEC_F_CGROUP) != 0 ? 4 : 3);
	(void)close(out[1]);
	(void)close(null_fd);
	while (!done) {
		struct pollfd ready[] = {{.fd = harness->control_fd, .events = POLLIN},
					 {.fd = out[0], .events = POLLIN}};
		union harness_answer answer;
		int fd;

		MUST(sp_clock_boot_ms() < end_ms);
		MUST(poll(ready, ret->length < HARNESS_OUTPUT - 1 ? 2 : 1, HARNESS_WAIT_MS) >= 0);
		drain(out[0], ret);
		if (ready[0].revents == 0)
			continue;
		MUST(harness_receive(harness, &answer, &fd, 0) > 0);
		note(&answer, ret);
		done = answer.header.type == SP_INIT_EXITED ||
		       answer.header.type == SP_INIT_START_FAILED;
	}
	drain(out[0], ret);
	(void)close(out[0]);
}

void harness_shell(struct harness *harness, const char *script, struct harness_result *ret)
{
	const char *const argv[] = {"sh", "-c", script, NULL};

	harness_run(harness, &(struct harness_exec){.argv = argv}, ret);
}

void harness_python(struct harness *harness, const char *script, struct harness_result *ret)
{
	const char *const argv[] = {"/usr/bin/python3", "-c", script, NULL};

	harness_run(harness, &(struct harness_exec){.argv = argv}, ret);
}

int harness_mount(struct harness *harness, int mount_fd, const char *target,
		  union harness_answer *ret)
{
	struct {
		struct sp_init_mount record;
		char target[SP_INIT_TARGET_MAX];
	} message = {.record.header = {.type = SP_INIT_MOUNT, .request = ++harness->requests}};
	union harness_answer answer;

	message.record.target_length = (uint32_t)strlen(target);
	memcpy(message.target, target, strlen(target));
	harness_send(harness, &message, sizeof(message.record) + strlen(target) + 1, &mount_fd, 1);
	harness_expect(harness, SP_INIT_MOUNTED, &answer);
	if (ret)
		*ret = answer;
	return answer.status.status;
}

void harness_signal(struct harness *harness, uint32_t exec, int signal)
{
	const struct sp_init_signal record = {
		.header = {.type = SP_INIT_SIGNAL, .exec = exec, .request = ++harness->requests},
		.signal = (uint32_t)signal,
	};

	harness_send(harness, &record, sizeof(record), NULL, 0);
}

void harness_plain(struct harness *harness, uint32_t type, uint32_t exec)
{
	const struct sp_init_plain record = {
		.header = {.type = type, .exec = exec, .request = ++harness->requests},
	};

	harness_send(harness, &record, sizeof(record), NULL, 0);
}

int64_t harness_ping(struct harness *harness)
{
	int64_t start_ms = sp_clock_boot_ms();
	union harness_answer answer;

	harness_plain(harness, SP_INIT_PING, 0);
	harness_expect(harness, SP_INIT_PONG, &answer);
	return sp_clock_boot_ms() - start_ms;
}

int harness_count_fds(const struct harness *harness)
{
	char command[64];
	char text[16] = "";
	FILE *list;

	(void)snprintf(command, sizeof(command), "ls /proc/%d/fd | wc -l", harness->init);
	list = popen(command, "r");
	MUST(list && fgets(text, sizeof(text), list));
	MUST(pclose(list) == 0);
	return (int)strtol(text, NULL, 10);
}
