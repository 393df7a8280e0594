/*
 * See launcher_harness.h.
 */
#include "tests/sandbox/launcher_harness.h"

#include "pool/base/fd.h"
#include "pool/base/id.h"
#include "supervisor/sandbox/seccomp_compile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const hierarchies[] = {"unified", "memory", "pids", "cpu", ""};

const char *play_missing(void)
{
	return geteuid() == 0 ? NULL : "needs root";
}

/* --- tables ------------------------------------------------------------------------------ */

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

static const char passwd[] = "root:x:0:0::/:/bin/sh\nsandbox:x:1000:1000::/home:/bin/sh\n";

static void fill_mounts(struct sp_table_pool *pool, uint64_t passwd_offset)
{
	struct sp_table_mount *file;

	add_mount(pool, SP_MOUNT_BIND, 0, 0, "/usr", "/usr");
	add_mount(pool, SP_MOUNT_SYMLINK, 0, 0, "usr/bin", "/bin");
	add_mount(pool, SP_MOUNT_SYMLINK, 0, 0, "usr/sbin", "/sbin");
	add_mount(pool, SP_MOUNT_SYMLINK, 0, 0, "usr/lib", "/lib");
	add_mount(pool, SP_MOUNT_SYMLINK, 0, 0, "usr/lib64", "/lib64");
	add_mount(pool, SP_MOUNT_TREE, 0, 0755, "", "/etc");
	add_mount(pool, SP_MOUNT_FILE, 0, 0644, "", "/etc/passwd");
	file = &pool->mounts[pool->mount_count - 1];
	file->blob_offset = passwd_offset;
	file->blob_length = sizeof(passwd) - 1;
	add_mount(pool, SP_MOUNT_SYMLINK, 0, 0, "/proc/self/mounts", "/etc/mtab");
	add_mount(pool, SP_MOUNT_BIND, SP_MOUNT_F_OPTIONAL, 0, "/etc/ld.so.cache",
		  "/etc/ld.so.cache");
	add_mount(pool, SP_MOUNT_DIR, 0, 0750, "", "/etc/sub/dir");
	add_mount(pool, SP_MOUNT_BIND, SP_MOUNT_F_OPTIONAL, 0, "/not-there", "/not-there");
	add_mount(pool, SP_MOUNT_DEV, 0, 0, "", "/dev");
	add_mount(pool, SP_MOUNT_WRITABLE, SP_MOUNT_F_NOEXEC, 01777, "", "/dev/shm");
	add_mount(pool, SP_MOUNT_PROC, 0, 0, "", "/proc");
	add_mount(pool, SP_MOUNT_WRITABLE, 0, 01777, "", "/tmp");
	add_mount(pool, SP_MOUNT_WRITABLE, SP_MOUNT_F_OWNED, 0755, "", "/workspace");
}

static void fill_pool(struct sp_table_pool *pool, uint32_t index)
{
	(void)snprintf(pool->name, sizeof(pool->name), "pool%u", index);
	(void)snprintf(pool->hostname, sizeof(pool->hostname), "sandbox");
	pool->max_sandboxes = 100;
	pool->generation = PLAY_GENERATION;
	pool->memory_bytes = UINT64_C(256) << 20;
	pool->pids = 64;
	pool->cpu_quota_us = 100000;
	pool->cpu_period_us = 100000;
	pool->workload_uid = 1000;
	pool->workload_gid = 1000;
	pool->tmp_bytes = UINT64_C(16) << 20;
	pool->tmp_inodes = 1000;
	pool->rlimit_nofile = 256;
	pool->rlimit_fsize = UINT64_MAX;
	pool->rlimit_nproc = 512;
	pool->rlimit_stack = UINT64_C(8) << 20;
}

struct sp_table_pool *play_pool(struct sp_table *table, uint32_t index)
{
	return (struct sp_table_pool *)(void *)(table + 1) + index;
}

struct sp_table *play_table(struct play *play, uint32_t pools)
{
	struct sp_seccomp_program big;
	struct sp_seccomp_program tiny;
	uint64_t blobs = sizeof(struct sp_table) + pools * sizeof(struct sp_table_pool);
	uint64_t passwd_offset;
	uint64_t size;
	struct sp_table *table;

	memset(play, 0, sizeof(*play));
	play->fd = -1;
	(void)snprintf(play->dir, sizeof(play->dir), "/var/tmp/sandpool-launcher-test-%d",
		       getpid());
	(void)snprintf(play->instance, sizeof(play->instance), "test%d", getpid());
	play_clean(play);
	MUST(mkdir(play->dir, 0755) == 0 && chmod(play->dir, 0755) == 0);
	MUST(sp_seccomp_compile(&big, &tiny, NULL) == 0);
	passwd_offset = blobs + big.length + tiny.length;
	size = passwd_offset + sizeof(passwd) - 1;
	table = calloc(1, size);
	MUST(table != NULL);
	*table = (struct sp_table){
		.magic = SP_TABLE_MAGIC,
		.version = SP_TABLE_VERSION,
		.build_id = SP_BUILD_ID,
		.file_size = size,
		.pool_count = pools,
		.uid_count = 100,
		.uid_base = PLAY_UID_BASE,
	};
	(void)snprintf(table->instance, sizeof(table->instance), "%s", play->instance);
	(void)snprintf(table->state_dir, sizeof(table->state_dir), "%s/state", play->dir);
	memcpy((char *)table + blobs, big.bytes, big.length);
	memcpy((char *)table + blobs + big.length, tiny.bytes, tiny.length);
	memcpy((char *)table + passwd_offset, passwd, sizeof(passwd) - 1);
	for (uint32_t i = 0; i < pools; i++) {
		struct sp_table_pool *pool = play_pool(table, i);

		fill_pool(pool, i);
		fill_mounts(pool, passwd_offset);
		pool->filter_offset = blobs;
		pool->filter_length = big.length;
		pool->exec_filter_offset = blobs + big.length;
		pool->exec_filter_length = tiny.length;
	}
	sp_seccomp_program_done(&big);
	sp_seccomp_program_done(&tiny);
	return table;
}

void play_write_config(const struct play *play, const void *data, size_t size)
{
	char path[96];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/config", play->dir);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	MUST(fd >= 0 && sp_write_all(fd, data, size) == 0 && close(fd) == 0);
}

void play_write_table(const struct play *play, const struct sp_table *table)
{
	play_write_config(play, table, table->file_size);
}

static int remove_one(const char *path, const struct stat *info, int flag, struct FTW *ftw)
{
	(void)info;
	(void)flag;
	(void)ftw;
	(void)remove(path);
	return 0;
}

void play_clean(struct play *play)
{
	char path[128];

	(void)nftw(play->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	(void)snprintf(path, sizeof(path), "/run/sandpool-launcher/%s.lock", play->instance);
	(void)unlink(path);
}

/* --- the launcher -------------------------------------------------------------------------- */

static void become_launcher(const struct play *play, int fd)
{
	char path[96];

	(void)snprintf(path, sizeof(path), "%s/config", play->dir);
	MUST(dup2(fd, SP_LAUNCHER_FD) == SP_LAUNCHER_FD);
	if (play->uid != 0)
		MUST(setresgid(play->uid, play->uid, play->uid) == 0 &&
		     setresuid(play->uid, play->uid, play->uid) == 0);
	(void)execl(SP_TEST_LAUNCHER, "sandpool-launcher", "--config", path, "--init", SP_TEST_INIT,
		    "--compile", SP_TEST_COMPILE, (char *)NULL);
	MUST(false);
}

void play_exec(struct play *play)
{
	int pair[2];

	MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	play->launcher = fork();
	MUST(play->launcher >= 0);
	if (play->launcher == 0)
		become_launcher(play, pair[1]);
	MUST(close(pair[1]) == 0);
	play->fd = pair[0];
}

void play_start(struct play *play, const struct sp_table *table)
{
	struct play_answer answer;

	play_write_table(play, table);
	play_exec(play);
	play_expect(play, SP_LAUNCHER_CONFIG, play_hello(play), &answer);
	if (answer.record.status != 0)
		fprintf(stderr, "launcher says: %s\n", answer.record.text);
	MUST(answer.record.status == 0 && answer.record.value == table->pool_count &&
	     answer.fd_count == 1);
	play_close(&answer);
}

void play_stop(struct play *play)
{
	int status;

	sp_fd_close(&play->fd);
	MUST(waitpid(play->launcher, &status, 0) == play->launcher);
	MUST(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	MUST(play_cgroups(play) == 0 && !play_has_cgroups(play));
}

uint64_t play_send(struct play *play, void *record, size_t size)
{
	((struct sp_launcher_header *)record)->request = ++play->requests;
	MUST(sp_msg_send(play->fd, record, size, NULL, 0) == 0);
	return play->requests;
}

uint64_t play_command(struct play *play, uint32_t type, uint32_t slot, uint64_t serial,
		      uint32_t value)
{
	struct sp_launcher_command command = {
		.header.type = type,
		.slot = slot,
		.serial = serial,
		.value = value,
	};

	return play_send(play, &command, sizeof(command));
}

uint64_t play_hello(struct play *play)
{
	struct sp_launcher_hello hello = {
		.header.type = SP_LAUNCHER_HELLO,
		.version = SP_LAUNCHER_PROTOCOL_VERSION,
		.build_id = SP_BUILD_ID,
	};

	return play_send(play, &hello, sizeof(hello));
}

static bool readable(int fd, int ms)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
	int count;

	do {
		count = poll(&poll_fd, 1, ms);
	} while (count < 0 && errno == EINTR);
	return count == 1;
}

bool play_wait_end(int pidfd, int ms)
{
	return readable(pidfd, ms);
}

void play_receive(struct play *play, struct play_answer *ret)
{
	ssize_t got;

	MUST(readable(play->fd, PLAY_WAIT_MS));
	got = sp_msg_receive(play->fd, &ret->record, sizeof(ret->record), ret->fds, &ret->fd_count);
	MUST(got == (ssize_t)sizeof(ret->record));
}

void play_expect(struct play *play, uint32_t type, uint64_t request, struct play_answer *ret)
{
	play_receive(play, ret);
	if (ret->record.header.type != type)
		fprintf(stderr, "answer %u, status %d, stage '%s', text '%s'\n",
			ret->record.header.type, ret->record.status, ret->record.stage,
			ret->record.text);
	MUST(ret->record.header.type == type && ret->record.header.request == request);
}

void play_expect_failure(struct play *play, uint64_t request, int status, struct play_answer *ret)
{
	struct play_answer own;
	struct play_answer *answer = ret ? ret : &own;

	play_receive(play, answer);
	if (answer->record.status != status)
		fprintf(stderr, "answer %u, status %d, stage '%s', text '%s'\n",
			answer->record.header.type, answer->record.status, answer->record.stage,
			answer->record.text);
	MUST((answer->record.header.type == SP_LAUNCHER_ERROR ||
	      answer->record.header.type == SP_LAUNCHER_CREATE_FAILED) &&
	     answer->record.header.request == request && answer->record.status == status &&
	     answer->fd_count == 0);
}

void play_close(struct play_answer *answer)
{
	for (size_t i = 0; i < answer->fd_count; i++)
		sp_fd_close(&answer->fds[i]);
}

/* --- sandboxes ----------------------------------------------------------------------------- */

uint64_t play_create_request(struct play *play, uint32_t pool, struct play_sandbox *ret)
{
	struct sp_launcher_create create = {
		.header.type = SP_LAUNCHER_CREATE,
		.pool_index = pool,
		.generation = PLAY_GENERATION,
	};

	memset(ret, 0, sizeof(*ret));
	sp_sandbox_id_new(ret->id);
	memcpy(create.id, ret->id, sizeof(create.id));
	return play_send(play, &create, sizeof(create));
}

void play_created(struct play *play, uint64_t request, struct play_sandbox *ret)
{
	struct play_answer answer;

	play_expect(play, SP_LAUNCHER_CREATED, request, &answer);
	MUST(answer.fd_count == 2);
	ret->slot = answer.record.slot;
	ret->serial = answer.record.serial;
	ret->pidfd = answer.fds[0];
	ret->control_fd = answer.fds[1];
	ret->host_uid_base = answer.record.host_uid_base;
	ret->host_workload_uid = answer.record.host_workload_uid;
	ret->degraded = answer.record.degraded;
	memcpy(ret->cgroup, answer.record.text, sizeof(ret->cgroup));
}

void play_create(struct play *play, uint32_t pool, struct play_sandbox *ret)
{
	play_created(play, play_create_request(play, pool, ret), ret);
}

void play_first_record(const struct play_sandbox *sandbox, struct sp_init_status *ret)
{
	int fds[8];
	size_t fd_count;

	MUST(readable(sandbox->control_fd, PLAY_WAIT_MS));
	MUST(sp_msg_receive(sandbox->control_fd, ret, sizeof(*ret), fds, &fd_count) ==
	     (ssize_t)sizeof(*ret));
	if (ret->header.type == SP_INIT_FAILED)
		fprintf(stderr, "init failed: stage '%s', status %d\n", ret->stage, ret->status);
}

void play_ready(struct play *play, uint32_t pool, struct play_sandbox *ret)
{
	struct sp_init_status status;

	play_create(play, pool, ret);
	play_first_record(ret, &status);
	MUST(status.header.type == SP_INIT_READY);
}

uint32_t play_gone(struct play *play, struct play_sandbox *sandbox, uint64_t request)
{
	struct play_answer answer;

	play_expect(play, SP_LAUNCHER_GONE, request, &answer);
	MUST(answer.record.status == 0 && answer.record.slot == sandbox->slot &&
	     answer.record.serial == sandbox->serial);
	sp_fd_close(&sandbox->pidfd);
	sp_fd_close(&sandbox->control_fd);
	return answer.record.value;
}

uint32_t play_kill(struct play *play, struct play_sandbox *sandbox)
{
	uint64_t request = play_command(play, SP_LAUNCHER_KILL, sandbox->slot, sandbox->serial, 0);

	return play_gone(play, sandbox, request);
}

/* --- inside -------------------------------------------------------------------------------- */

int play_exec_shell(struct play_sandbox *sandbox, const char *script, int cgroup_fd)
{
	static uint32_t last;
	const uint32_t number = ++last;

	struct {
		struct sp_init_exec exec;
		char strings[4096];
	} record = {.exec = {
			    .header = {.type = SP_INIT_EXEC, .exec = number, .request = number},
			    .flags = cgroup_fd >= 0 ? SP_EXEC_F_CGROUP : 0,
			    .uid = 1000,
			    .gid = 1000,
			    .argc = 3,
			    .envc = 1,
			    .umask = 022,
		    }};

	int length = snprintf(record.strings, sizeof(record.strings),
			      "/%c/bin/sh%c-c%c%s%cPATH=/bin:/usr/bin", 0, 0, 0, script, 0) +
		     1;
	int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	int output[2];
	int fds[4];

	MUST(length < (int)sizeof(record.strings) && null_fd >= 0);
	MUST(pipe2(output, O_CLOEXEC) == 0 && fchmod(output[1], 0666) == 0);
	record.exec.strings_length = (uint32_t)length;
	fds[0] = null_fd;
	fds[1] = output[1];
	fds[2] = output[1];
	fds[3] = cgroup_fd;
	MUST(sp_msg_send(sandbox->control_fd, &record, sizeof(record.exec) + (size_t)length, fds,
			 cgroup_fd >= 0 ? 4 : 3) == 0);
	MUST(close(null_fd) == 0 && close(output[1]) == 0);
	return output[0];
}

int play_shell(struct play_sandbox *sandbox, const char *script, char *buffer, size_t size)
{
	int output = play_exec_shell(sandbox, script, -1);

	union {
		struct sp_init_header header;
		struct sp_init_status status;
		struct sp_init_exited exited;
	} record;

	int fds[8];
	size_t fd_count;
	ssize_t got;

	MUST(readable(sandbox->control_fd, PLAY_WAIT_MS));
	MUST(sp_msg_receive(sandbox->control_fd, &record, sizeof(record), fds, &fd_count) > 0);
	if (record.header.type == SP_INIT_START_FAILED)
		fprintf(stderr, "exec: stage '%s' status %d\n", record.status.stage,
			record.status.status);
	got = sp_read_all(output, buffer, size - 1);
	MUST(got >= 0 && close(output) == 0);
	buffer[got] = '\0';
	if (record.header.type == SP_INIT_STARTED) { /* it was not over at once */
		MUST(readable(sandbox->control_fd, PLAY_WAIT_MS));
		MUST(sp_msg_receive(sandbox->control_fd, &record, sizeof(record), fds, &fd_count) >
		     0);
	}
	MUST(record.header.type == SP_INIT_EXITED);
	return record.exited.code == CLD_EXITED ? (int)record.exited.value : -1;
}

int play_mount(struct play_sandbox *sandbox, int mount_fd, const char *target)
{
	struct {
		struct sp_init_mount mount;
		char target[256];
	} record = {.mount = {
			    .header = {.type = SP_INIT_MOUNT, .request = 1},
			    .target_length = (uint32_t)strlen(target),
		    }};
	struct sp_init_status answer;
	int fds[8];
	size_t fd_count;

	(void)snprintf(record.target, sizeof(record.target), "%s", target);
	MUST(sp_msg_send(sandbox->control_fd, &record, sizeof(record.mount) + strlen(target) + 1,
			 &mount_fd, 1) == 0);
	MUST(readable(sandbox->control_fd, PLAY_WAIT_MS));
	MUST(sp_msg_receive(sandbox->control_fd, &answer, sizeof(answer), fds, &fd_count) > 0);
	MUST(answer.header.type == SP_INIT_MOUNTED);
	return answer.status;
}

void play_append(char *text, size_t size, const char *more)
{
	size_t used = strlen(text);

	MUST(used + strlen(more) < size);
	(void)snprintf(text + used, size - used, "%s", more);
}

/* --- the host ------------------------------------------------------------------------------ */

const char *play_read(const char *path, char *buffer, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? 0 : sp_read_all(fd, buffer, size - 1);

	buffer[got > 0 ? got : 0] = '\0';
	sp_fd_close(&fd);
	return buffer;
}

pid_t play_pid(int pidfd)
{
	char path[64];
	char text[512];
	const char *field;

	(void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
	field = strstr(play_read(path, text, sizeof(text)), "Pid:");
	MUST(field != NULL);
	return (pid_t)strtol(field + 4, NULL, 10);
}

static int count_entries(const char *path, bool directories)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	int count = 0;

	while (dir && (entry = readdir(dir)) != NULL)
		if (entry->d_name[0] != '.' && (!directories || entry->d_type == DT_DIR))
			count++;
	if (dir)
		(void)closedir(dir);
	return count;
}

int play_fd_count(pid_t pid)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	return count_entries(path, false);
}

int play_child_count(pid_t pid)
{
	char path[64];
	char text[4096];
	int count = 0;

	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, pid);
	for (const char *at = play_read(path, text, sizeof(text)); (at = strchr(at, ' ')); at++)
		count++;
	return count;
}

pid_t play_first_child(pid_t pid)
{
	char path[64];
	char text[4096];
	pid_t child;

	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, pid);
	child = (pid_t)strtol(play_read(path, text, sizeof(text)), NULL, 10);
	MUST(child > 0);
	return child;
}

int play_cgroups(const struct play *play)
{
	int count = 0;

	for (size_t i = 0; i < SP_ARRAY_SIZE(hierarchies); i++) {
		char path[160];

		(void)snprintf(path, sizeof(path), "/sys/fs/cgroup/%s/sandpool/%s", hierarchies[i],
			       play->instance);
		count += count_entries(path, true);
	}
	return count;
}

bool play_has_cgroups(const struct play *play)
{
	for (size_t i = 0; i < SP_ARRAY_SIZE(hierarchies); i++) {
		char path[160];

		(void)snprintf(path, sizeof(path), "/sys/fs/cgroup/%s/sandpool/%s", hierarchies[i],
			       play->instance);
		if (access(path, F_OK) == 0)
			return true;
	}
	return false;
}

void play_cgroup_path(const struct play_sandbox *sandbox, const char *controller, const char *file,
		      char *ret, size_t size)
{
	const char *top = access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0 ? "" : controller;

	(void)snprintf(ret, size, "/sys/fs/cgroup/%s/%s/%s", top, sandbox->cgroup, file);
}

int play_mount_lines(void)
{
	FILE *file = fopen("/proc/1/mountinfo", "re");
	int lines = 0;
	int byte;

	MUST(file != NULL);
	while ((byte = fgetc(file)) != EOF)
		lines += byte == '\n';
	MUST(fclose(file) == 0);
	return lines;
}
