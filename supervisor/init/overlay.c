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
#include <sys/syscall.h>
#include <unistd.h>

#define MODE_MASK  01777
#define PROBE_NAME "user.overlay.probe"

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
static int make_directories(int dir_fd, int base_fd)
{
	struct statx info;
	int status;

	if (statx(base_fd, "", AT_EMPTY_PATH, STATX_MODE | STATX_TYPE | STATX_UID | STATX_GID,
		  &info) != 0)
		return -errno;
	if (!S_ISDIR(info.stx_mode))
		return -ENOTDIR;
	status = make_directory(dir_fd, "upper", info.stx_mode & MODE_MASK);
	if (status == 0)
		status = make_directory(dir_fd, "work", 0700);
	if (status == 0)
		status = make_directory(dir_fd, "lower", 0700);
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
	char lower[INIT_OVERLAY_PATH_MAX + sizeof("/lower")];
	char upper[INIT_OVERLAY_PATH_MAX + sizeof("/upper")];
	char work[INIT_OVERLAY_PATH_MAX + sizeof("/work")];
	const struct sp_mount_option options[] = {
		{"lowerdir", lower},
		{"upperdir", upper},
		{"workdir", work},
		{"userxattr", NULL},
	};
	int status = make_directories(dir_fd, base_fd);

	if (status == 0)
		status = attach_base(dir_fd, base_fd);
	if (status < 0)
		return status;
	(void)snprintf(lower, sizeof(lower), "%s/lower", path);
	(void)snprintf(upper, sizeof(upper), "%s/upper", path);
	(void)snprintf(work, sizeof(work), "%s/work", path);
	return sp_mount_new("overlay", options, SP_ARRAY_SIZE(options),
			    MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
}
