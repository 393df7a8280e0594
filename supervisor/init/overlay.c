/* See overlay.h. */
#include "supervisor/init/overlay.h"

#include "pool/base/fd.h"
#include "supervisor/init/raw.h"
#include "supervisor/sandbox/mount_attach.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAUSE_NS   200000
#define LAYER_PATH (INIT_OVERLAY_PATH_MAX + 8)

static const char frozen_name[] = "frozen";
static const char target_name[] = "target";

void init_overlay_path(uint32_t number, char path[INIT_OVERLAY_PATH_MAX])
{
	if (number == 0)
		(void)snprintf(path, INIT_OVERLAY_PATH_MAX, "%s", INIT_PRIVATE_PATH);
	else
		(void)snprintf(path, INIT_OVERLAY_PATH_MAX, "%s/%u", INIT_OVERLAYS_PATH, number);
}

/* ---- layers ---- */

static int make(int dir_fd, const char *name, mode_t mode)
{
	return mkdirat(dir_fd, name, mode) == 0 || errno == EEXIST ? 0 : -errno;
}

int init_overlay_make(int dir_fd, mode_t mode, uid_t uid, gid_t gid)
{
	int status = make(dir_fd, "lower", 0700);

	if (status == 0)
		status = make(dir_fd, "work", 0700);
	if (status == 0)
		status = mkdirat(dir_fd, "upper", mode) == 0 ? 0 : -errno;
	if (status < 0)
		return status;
	return fchownat(dir_fd, "upper", uid, gid, 0) == 0 ? 0 : -errno;
}

int init_overlay_mount(uint32_t number)
{
	char path[INIT_OVERLAY_PATH_MAX];
	char lower[LAYER_PATH];
	char upper[LAYER_PATH];
	char work[LAYER_PATH];
	const struct sp_mount_option options[] = {
		{"lowerdir", lower}, {"upperdir", upper}, {"workdir", work}, {"userxattr", NULL}};

	init_overlay_path(number, path);
	(void)snprintf(lower, sizeof(lower), "%s/lower", path);
	(void)snprintf(upper, sizeof(upper), "%s/upper", path);
	(void)snprintf(work, sizeof(work), "%s/work", path);
	return sp_mount_new("overlay", options, SP_ARRAY_SIZE(options),
			    MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
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

static int read_file(int dir_fd, const char *name, void *data, size_t size)
{
	SP_AUTO_CLOSE int fd =
		(int)RAW4(SYS_openat, dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC, 0);
	ssize_t got = fd < 0 ? fd : sp_read_all(fd, data, size);

	return (int)got;
}

int init_overlay_freeze(int dir_fd, const char *target)
{
	const struct init_freeze freeze = {
		.real_ns = now_ns(CLOCK_REALTIME),
		.boot_ns = now_ns(CLOCK_BOOTTIME),
	};
	const struct timespec pause = {.tv_nsec = PAUSE_NS};
	int status = write_file(dir_fd, frozen_name, &freeze, sizeof(freeze));

	if (status == 0)
		status = write_file(dir_fd, target_name, target, strlen(target));
	/* Changes are stamped with the time of the last tick: one of before, until the next. */
	while (status == 0 && now_ns(CLOCK_REALTIME_COARSE) < freeze.real_ns &&
	       now_ns(CLOCK_BOOTTIME) - freeze.boot_ns < SP_NS_PER_S)
		(void)nanosleep(&pause, NULL);
	return status;
}

int init_overlay_frozen(int dir_fd, struct init_freeze *ret)
{
	int got = read_file(dir_fd, frozen_name, ret, sizeof(*ret));

	return got == (int)sizeof(*ret) ? 0 : SP_MIN(got, -EIO);
}

int init_overlay_target(int dir_fd, char target[SP_INIT_TARGET_MAX])
{
	int got = read_file(dir_fd, target_name, target, SP_INIT_TARGET_MAX - 1);

	if (got <= 0)
		return SP_MIN(got, -EIO);
	target[got] = '\0';
	return 0;
}
