/*
 * The layers are named by path: ours, and below a directory that only uid 0 enters, so there is
 * nothing that a workload could put in the way.
 */
#include "supervisor/init/overlay.h"

#include "pool/base/fd.h"
#include "supervisor/init/raw.h"
#include "supervisor/sandbox/mount_attach.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MODE_MASK  01777
#define PROBE_NAME "user.overlay.probe"
#define PAUSE_NS   200000

static const char frozen_name[] = "frozen";
static const char target_name[] = "target";

void init_overlay_path(uint32_t number, char path[INIT_OVERLAY_PATH_MAX])
{
	if (number == 0)
		(void)snprintf(path, INIT_OVERLAY_PATH_MAX, "%s", INIT_PRIVATE_PATH);
	else
		(void)snprintf(path, INIT_OVERLAY_PATH_MAX, INIT_OVERLAYS_PATH "/%" PRIu32, number);
}

static int make_directory(int dir_fd, const char *name, mode_t mode)
{
	SP_AUTO_CLOSE int fd = -1;

	if (mkdirat(dir_fd, name, mode) != 0)
		return -errno;
	fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	/* Whatever the umask took. */
	return fchmod(fd, mode) == 0 ? 0 : -errno;
}

/* Without them the overlay would be made all the same, and fail at the first directory that is
 * replaced. They came to tmpfs with Linux 6.6. */
static int probe_attributes(int dir_fd)
{
	SP_AUTO_CLOSE int fd =
		openat(dir_fd, "work", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	long status;

	if (fd < 0)
		return -errno;
	status = RAW5(SYS_fsetxattr, fd, PROBE_NAME, "y", 1, 0);
	return status < 0 ? (int)status : (int)RAW2(SYS_fremovexattr, fd, PROBE_NAME);
}

/* The upper looks like what it lies on. */
static int make_upper(int dir_fd)
{
	struct statx info;
	int status;

	if (statx(dir_fd, "lower", AT_SYMLINK_NOFOLLOW,
		  STATX_MODE | STATX_TYPE | STATX_UID | STATX_GID, &info) != 0)
		return -errno;
	if (!S_ISDIR(info.stx_mode))
		return -ENOTDIR;
	status = make_directory(dir_fd, "upper", info.stx_mode & MODE_MASK);
	if (status == 0)
		status = make_directory(dir_fd, "work", 0700);
	if (status < 0)
		return status;
	if (fchownat(dir_fd, "upper", info.stx_uid, info.stx_gid, 0) != 0)
		return -errno;
	return probe_attributes(dir_fd);
}

static int attach_base(int dir_fd, int base_fd)
{
	SP_AUTO_CLOSE int target_fd = sp_mount_step(dir_fd, "lower");

	return target_fd < 0 ? target_fd : sp_mount_attach(base_fd, target_fd);
}

int init_overlay_make(int dir_fd, const char *path, int base_fd)
{
	int status = make_directory(dir_fd, "lower", 0700);

	if (status == 0)
		status = attach_base(dir_fd, base_fd);
	return status < 0 ? status : init_overlay_remake(dir_fd, path);
}

int init_overlay_remake(int dir_fd, const char *path)
{
	char lower[INIT_OVERLAY_PATH_MAX + sizeof("/lower")];
	char upper[INIT_OVERLAY_PATH_MAX + sizeof("/upper")];
	char work[INIT_OVERLAY_PATH_MAX + sizeof("/work")];
	const struct sp_mount_option options[] = {
		{"lowerdir", lower},
		{"upperdir", upper},
		{"workdir", work},
		{"userxattr", NULL},
	};
	int status = make_upper(dir_fd);

	if (status < 0)
		return status;
	(void)snprintf(lower, sizeof(lower), "%s/lower", path);
	(void)snprintf(upper, sizeof(upper), "%s/upper", path);
	(void)snprintf(work, sizeof(work), "%s/work", path);
	return sp_mount_new("overlay", options, SP_ARRAY_SIZE(options),
			    MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
}

int init_overlay_used(int fd, uint64_t *ret_bytes)
{
	struct statfs info = {0};
	long status = RAW2(SYS_fstatfs, fd, &info);

	if (status < 0)
		return (int)status;
	*ret_bytes = (uint64_t)(info.f_blocks - info.f_bfree) * (uint64_t)info.f_bsize;
	return 0;
}

/* ---- freezing ---- */

static int64_t now_ns(clockid_t clock)
{
	struct timespec now;

	(void)clock_gettime(clock, &now);
	return now.tv_sec * SP_NS_PER_S + now.tv_nsec;
}

static int write_file(int dir_fd, const char *name, const void *data, size_t len)
{
	SP_AUTO_CLOSE int fd =
		(int)RAW4(SYS_openat, dir_fd, name,
			  O_CREAT | O_TRUNC | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return fd;
	return write(fd, data, len) == (ssize_t)len ? 0 : -ENOSPC;
}

int init_overlay_freeze_note(int dir_fd, const char *target, struct init_freeze *ret)
{
	struct init_freeze freeze = {.real_ns = now_ns(CLOCK_REALTIME)};
	int status;

	/* After it, as the other way round when they are compared: what passes in between must not
	 * look like a clock that was set back. */
	freeze.boot_ns = now_ns(CLOCK_BOOTTIME);
	status = write_file(dir_fd, frozen_name, &freeze, sizeof(freeze));
	*ret = freeze;
	return status < 0 ? status : write_file(dir_fd, target_name, target, strlen(target));
}

/* Changes are stamped with the time of the last tick: one of before, until the next. */
void init_overlay_freeze_wait(const struct init_freeze *freeze)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};

	while (now_ns(CLOCK_REALTIME_COARSE) < freeze->real_ns &&
	       now_ns(CLOCK_BOOTTIME) - freeze->boot_ns < SP_NS_PER_S)
		(void)nanosleep(&pause, NULL);
}

int init_overlay_freeze(int dir_fd, const char *target)
{
	struct init_freeze freeze;
	int status = init_overlay_freeze_note(dir_fd, target, &freeze);

	if (status == 0)
		init_overlay_freeze_wait(&freeze);
	return status;
}

static int open_file(int dir_fd, const char *name, int flags)
{
	return (int)RAW4(SYS_openat, dir_fd, name, flags | O_NOFOLLOW | O_CLOEXEC, 0);
}

int init_overlay_frozen(int dir_fd, struct init_freeze *ret)
{
	SP_AUTO_CLOSE int fd = open_file(dir_fd, frozen_name, O_RDWR);
	ssize_t got = fd < 0 ? fd : sp_read_all(fd, ret, sizeof(*ret));

	return got == (ssize_t)sizeof(*ret) ? sp_take_fd(&fd) : SP_MIN((int)got, -EIO);
}

int init_overlay_target(int dir_fd, char target[SP_INIT_TARGET_MAX])
{
	SP_AUTO_CLOSE int fd = open_file(dir_fd, target_name, O_RDONLY);
	ssize_t got = fd < 0 ? fd : sp_read_all(fd, target, SP_INIT_TARGET_MAX - 1);

	if (got <= 0)
		return SP_MIN((int)got, -EIO);
	target[got] = '\0';
	return 0;
}
