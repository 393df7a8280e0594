/*
 * What the kernel counted for a sandbox: memory, the most it ever held and how often it was killed
 * for it, and processor time. Read-only files of the sandbox's cgroup, found by the path that the
 * launcher told, below the mount points that were there when the daemon started. kernfs does not
 * block.
 */
#include "supervisor/daemon/daemon_private.h"

#include "pool/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_MAX 4096

/* "36 35 0:31 / /sys/fs/cgroup/memory rw,… shared:9 - cgroup cgroup rw,memory" */
struct mount_line {
	char *mount_point;
	char *fs_type;
	char *super_options;
};

static bool split(char *line, struct mount_line *ret)
{
	char *save = NULL;
	char *field = strtok_r(line, " ", &save);

	for (int i = 0; field && i < 4; i++)
		field = strtok_r(NULL, " ", &save);
	ret->mount_point = field;
	while (field && strcmp(field, "-") != 0)
		field = strtok_r(NULL, " ", &save);
	ret->fs_type = field ? strtok_r(NULL, " ", &save) : NULL;
	field = ret->fs_type ? strtok_r(NULL, " ", &save) : NULL;
	ret->super_options = field ? strtok_r(NULL, " \n", &save) : NULL;
	return ret->super_options != NULL;
}

static bool has_word(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (const char *at = list; (at = strstr(at, word)); at += len)
		if ((at == list || at[-1] == ',') && (at[len] == ',' || at[len] == '\0'))
			return true;
	return false;
}

static bool unified_has_memory(const char *mount_point)
{
	char path[512];
	char text[512];
	ssize_t got;
	int fd;

	(void)snprintf(path, sizeof(path), "%s/cgroup.controllers", mount_point);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	got = sp_read_all(fd, text, sizeof(text) - 1);
	sp_fd_close(&fd);
	if (got <= 0)
		return false;
	text[got] = '\0';
	for (char *at = text; *at != '\0'; at++)
		if (*at == ' ' || *at == '\n')
			*at = ',';
	return has_word(text, "memory");
}

static void consider(struct cgroup_mounts *mounts, const struct mount_line *line)
{
	if (strlen(line->mount_point) >= sizeof(mounts->memory))
		return;
	/* cpu.stat is there whatever the controllers. */
	if (strcmp(line->fs_type, "cgroup2") == 0 && mounts->cpu[0] == '\0')
		(void)snprintf(mounts->cpu, sizeof(mounts->cpu), "%s", line->mount_point);
	if (strcmp(line->fs_type, "cgroup") == 0 && has_word(line->super_options, "memory")) {
		(void)snprintf(mounts->memory, sizeof(mounts->memory), "%s", line->mount_point);
		mounts->unified = false;
	} else if (strcmp(line->fs_type, "cgroup2") == 0 && mounts->memory[0] == '\0' &&
		   unified_has_memory(line->mount_point)) {
		(void)snprintf(mounts->memory, sizeof(mounts->memory), "%s", line->mount_point);
		mounts->unified = true;
	}
}

void cgroup_mounts_find(struct cgroup_mounts *mounts)
{
	FILE *file = fopen("/proc/self/mountinfo", "re");
	char *line = NULL;
	size_t size = 0;

	*mounts = (struct cgroup_mounts){0};
	if (!file)
		return;
	while (getline(&line, &size, file) > 0) {
		struct mount_line fields;

		if (split(line, &fields))
			consider(mounts, &fields);
	}
	free(line);
	(void)fclose(file);
}

static int open_in(const char *mount, const char *cgroup, const char *name)
{
	char path[sizeof(((struct cgroup_mounts *)0)->memory) + SP_LAUNCHER_TEXT_MAX + 64];
	int fd;

	if (mount[0] == '\0' || cgroup[0] == '\0')
		return -ENOENT;
	(void)snprintf(path, sizeof(path), "%s/%s/%s", mount, cgroup, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int open_stat(const struct cgroup_mounts *mounts, const char *cgroup, const char *v1,
		     const char *v2)
{
	return open_in(mounts->memory, cgroup, mounts->unified ? v2 : v1);
}

static ssize_t read_stat(int fd, char *text)
{
	ssize_t got = fd < 0 ? fd : pread(fd, text, TEXT_MAX - 1, 0);

	if (got >= 0)
		text[got] = '\0';
	return got;
}

uint64_t cgroup_oom_kills(const struct cgroup_mounts *mounts, const char *cgroup)
{
	SP_AUTO_CLOSE int fd = open_stat(mounts, cgroup, "memory.oom_control", "memory.events");
	char text[TEXT_MAX];
	const char *at;

	if (read_stat(fd, text) <= 0)
		return 0;
	at = strstr(text, "oom_kill ");
	return at ? strtoull(at + strlen("oom_kill "), NULL, 10) : 0;
}

int cgroup_peak_open(const struct cgroup_mounts *mounts, const char *cgroup)
{
	return open_stat(mounts, cgroup, "memory.max_usage_in_bytes", "memory.peak");
}

uint64_t cgroup_peak_read(int fd)
{
	char text[TEXT_MAX];

	return read_stat(fd, text) > 0 ? strtoull(text, NULL, 10) : 0;
}

uint64_t cgroup_peak_bytes(const struct cgroup_mounts *mounts, const char *cgroup)
{
	SP_AUTO_CLOSE int fd = cgroup_peak_open(mounts, cgroup);

	return cgroup_peak_read(fd);
}

uint64_t cgroup_memory_bytes(const struct cgroup_mounts *mounts, const char *cgroup)
{
	SP_AUTO_CLOSE int fd = open_stat(mounts, cgroup, "memory.usage_in_bytes", "memory.current");
	char text[TEXT_MAX];

	return read_stat(fd, text) > 0 ? strtoull(text, NULL, 10) : 0;
}

int64_t cgroup_cpu_ns(const struct cgroup_mounts *mounts, const char *cgroup)
{
	SP_AUTO_CLOSE int fd = open_in(mounts->cpu, cgroup, "cpu.stat");
	char text[TEXT_MAX];
	const char *at;

	if (read_stat(fd, text) <= 0)
		return -1;
	at = strstr(text, "usage_usec ");
	return at ? strtoll(at + strlen("usage_usec "), NULL, 10) * 1000 : -1;
}
