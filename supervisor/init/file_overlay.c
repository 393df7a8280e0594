/*
 * What operations on an overlay need init's own rights for, before the helper gives them up: its
 * directories, which nobody else may enter; the end of everything that could still change it; and
 * after a commit a new one in its place.
 */
#include "supervisor/init/file_helper.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"
#include "supervisor/init/raw.h"
#include "supervisor/sandbox/mount_attach.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PATH_SPACE      48
#define END_PATIENCE_MS 10000
#define END_PAUSE_NS    500000

static int open_overlay(const struct file_job *job)
{
	char path[INIT_OVERLAY_PATH_MAX];
	int fd;

	init_overlay_path(job->request->overlay, path);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int step(int dir_fd, const char *name)
{
	int fd = (int)RAW4(SYS_openat, dir_fd, name,
			   O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);

	return fd == -ENOENT ? -EOPNOTSUPP : fd;
}

/* Theirs are higher ones. */
static int put(int fd, int number)
{
	if (fd < 0)
		return fd;
	return dup3(fd, number, O_CLOEXEC) < 0 ? -errno : 0;
}

static int open_archive(int dir_fd)
{
	SP_AUTO_CLOSE int archive_fd =
		(int)RAW4(SYS_openat, dir_fd, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	SP_AUTO_CLOSE int read_fd = -1;
	char path[PATH_SPACE];
	int status;

	if (archive_fd < 0)
		return archive_fd;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", archive_fd);
	read_fd = open(path, O_RDONLY | O_CLOEXEC);
	if (read_fd < 0)
		return -errno;
	status = put(archive_fd, INIT_FILE_ARCHIVE);
	return status < 0 ? status : put(read_fd, INIT_FILE_ARCHIVE_READ);
}

static int open_base(struct file_job *job, int dir_fd)
{
	SP_AUTO_CLOSE int base_fd = step(dir_fd, "lower");
	int status = put(base_fd, INIT_FILE_BASE);
	SP_AUTO_CLOSE int frozen_fd = -1;

	if (status < 0 || job->request->kind != SP_INIT_FILE_WRITE_BACK)
		return status;
	frozen_fd = init_overlay_frozen(dir_fd, &job->freeze);
	return put(frozen_fd, INIT_FILE_FROZEN);
}

int file_overlay_open(struct file_job *job)
{
	SP_AUTO_CLOSE int dir_fd = -1;
	SP_AUTO_CLOSE int upper_fd = -1;
	int status;

	if (job->request->kind == SP_INIT_FILE_RECOVER && job->request->session == 0 &&
	    job->request->overlay == 0)
		return INIT_FILE_CHANNEL + 1; /* by its path, later */
	job->stage = "overlay";
	dir_fd = open_overlay(job);
	if (dir_fd < 0)
		return dir_fd == -ENOENT ? -EOPNOTSUPP : dir_fd;
	upper_fd = step(dir_fd, "upper");
	status = put(upper_fd, INIT_FILE_UPPER);
	if (status == 0 && job->request->kind == SP_INIT_FILE_DIFF)
		status = open_archive(dir_fd);
	else if (status == 0)
		status = open_base(job, dir_fd);
	return status < 0 ? status : INIT_FILE_ARCHIVE_READ + 1;
}

int file_overlay_end(struct file_job *job)
{
	const struct timespec pause = {.tv_nsec = END_PAUSE_NS};
	int64_t until_ms = sp_clock_boot_ms() + END_PATIENCE_MS;

	job->stage = SP_INIT_COMMIT_BUSY;
	/* All of the pid namespace but its first process and this one; until they are reaped. */
	while (RAW2(SYS_kill, -1, SIGKILL) != -ESRCH) {
		if (sp_clock_boot_ms() > until_ms)
			return -EBUSY;
		(void)nanosleep(&pause, NULL);
	}
	return 0;
}

static int remove_layer(struct file_job *job, int dir_fd, const char *name)
{
	struct file_name layer = {.dir_fd = dir_fd};
	int status;

	(void)snprintf(layer.name, sizeof(layer.name), "%s", name);
	status = file_remove_tree(job, &layer);
	return status == -ENOENT ? 0 : status;
}

static int make_overlay(struct file_job *job, int dir_fd)
{
	char path[INIT_OVERLAY_PATH_MAX];
	int status = remove_layer(job, dir_fd, "upper");

	if (status == 0)
		status = remove_layer(job, dir_fd, "work");
	job->stage = "overlay";
	init_overlay_path(job->request->overlay, path);
	return status < 0 ? status : init_overlay_remake(dir_fd, path);
}

static int attach(int mount_fd, const char *target)
{
	SP_AUTO_CLOSE int root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	SP_AUTO_CLOSE int target_fd = sp_mount_resolve(root_fd, target);

	return target_fd < 0 ? target_fd : sp_mount_attach(mount_fd, target_fd);
}

/* No link is followed on the way either: what ran here may have put one there, and what it leads
 * to is mounted for somebody else. A descriptor of its directory keeps it no busier. */
static int unmount(const char *target)
{
	SP_AUTO_CLOSE int root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	const char *name = strrchr(target, '/');
	SP_AUTO_CLOSE int dir_fd = -1;
	char directory[SP_INIT_TARGET_MAX] = "";

	if (!name || name[1] == '\0')
		return -EINVAL;
	memcpy(directory, target, (size_t)(name + 1 - target));
	dir_fd = sp_mount_resolve(root_fd, directory);
	if (dir_fd < 0)
		return dir_fd;
	if (fchdir(dir_fd) != 0 || umount2(name + 1, UMOUNT_NOFOLLOW) != 0)
		return -errno;
	return 0;
}

int file_renew(struct file_job *job)
{
	SP_AUTO_CLOSE int dir_fd = open_overlay(job);
	SP_AUTO_CLOSE int mount_fd = -1;
	char target[SP_INIT_TARGET_MAX];
	int status = dir_fd < 0 ? dir_fd : init_overlay_target(dir_fd, target);

	job->stage = "overlay";
	if (status < 0)
		return status == -ENOENT ? -EOPNOTSUPP : status;
	/* Busy: something is mounted in it, or somebody from outside has a file of it open. */
	job->stage = "unmount";
	status = unmount(target);
	if (status < 0)
		return status;
	mount_fd = make_overlay(job, dir_fd);
	if (mount_fd < 0)
		return mount_fd;
	job->stage = "mount";
	status = attach(mount_fd, target);
	return status < 0 ? status : init_overlay_freeze(dir_fd, target);
}
