/*
 * Where a mount may go: anywhere but /, /proc, /dev, /etc and init's own directory. A missing mount
 * point is made where the sandbox's own tmpfs is on top: on the skeleton (read-only to all but
 * init, which has a detached writable clone of it) or on a writable place. Nothing is ever made on
 * a bind from the host, be it read-only or a workspace: that would leave a trace there.
 *
 * An overlay is made here, in the sandbox's own mount namespace: what came is attached where only
 * init comes, and the target gets the overlay (overlay.h). It covers none of the pool's mounts, so
 * that it can be taken off again.
 *
 * The path is walked by descriptors; workloads may be running and rename things meanwhile, which
 * can only make the walk fail or end at another place of their own.
 */
#include "supervisor/init/late_mount.h"

#include "pool/base/fd.h"
#include "supervisor/init/boot_check.h"
#include "supervisor/init/overlay.h"
#include "supervisor/sandbox/mount_attach.h"
#include "supervisor/sandbox/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define NUMBER_SPACE 32

/* The last overlay's, until something is about to run in it. */
static struct init_freeze unsettled;
static bool overlays[SP_INIT_OVERLAYS_MAX]; /* overlay N, at N - 1, is there */

struct late_mount {
	const struct init *init;
	const struct sp_init_mount *request;
	const char *target;
	const char *stage;
	bool is_overlay;
	bool is_file;
};

static bool is_below(const char *path, const char *top)
{
	size_t len = strlen(top);

	return strncmp(path, top, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

static bool forbidden(const struct init *init, const char *target)
{
	static const char *const never[] = {"/proc", "/dev", "/etc", "/sys", INIT_PRIVATE_PATH};

	for (size_t i = 0; i < SP_ARRAY_SIZE(never); i++)
		if (is_below(target, never[i]))
			return true;
	for (uint32_t i = 0; i < init->pool->mount_count; i++) {
		const struct sp_table_mount *mount = &init->pool->mounts[i];

		if ((mount->kind == SP_MOUNT_PROC || mount->kind == SP_MOUNT_DEV ||
		     mount->kind == SP_MOUNT_TREE) &&
		    is_below(target, mount->target))
			return true;
	}
	return false;
}

/* Is one of the pool's mounts below the target? */
static bool covers_mount(const struct late_mount *mount)
{
	const struct init *init = mount->init;

	for (uint32_t i = 0; i < init->pool->mount_count; i++) {
		const struct sp_table_mount *at = &init->pool->mounts[i];

		if (!init->boot->absent[i] && at->kind != SP_MOUNT_DIR &&
		    at->kind != SP_MOUNT_SYMLINK && strcmp(at->target, mount->target) != 0 &&
		    is_below(at->target, mount->target))
			return true;
	}
	return false;
}

/* The file type, as far as it is known here: a server that does not answer is not asked. */
static int file_type(int fd)
{
	struct statx info;

	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &info) != 0)
		return -errno;
	return info.stx_mode & S_IFMT;
}

/* What is attached is confined like the rest, whatever the sender did. */
static int confine_mount(struct late_mount *mount, int mount_fd)
{
	int type = file_type(mount_fd);

	mount->stage = "descriptor";
	if (type < 0)
		return type;
	if (type != S_IFDIR && type != S_IFREG)
		return -EBADMSG;
	mount->is_file = type == S_IFREG;
	mount->stage = "attributes";
	return sp_sys_mount_setattr(mount_fd, "", AT_EMPTY_PATH | AT_RECURSIVE,
				    MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, 0, MS_PRIVATE, -1);
}

/* The directory to make `walked`'s next component in: dir_fd itself, or its writable twin. */
static int writable_twin(const struct late_mount *mount, int dir_fd, const char *walked)
{
	const struct init *init = mount->init;
	struct statx info;

	if (statx(dir_fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, &info) != 0)
		return -errno;
	if (makedev(info.stx_dev_major, info.stx_dev_minor) != init->tmpfs_device)
		return -ENOENT;
	if (info.stx_mnt_id == init->root_mount_id)
		return sp_mount_resolve(init->skeleton_fd, walked);
	return sp_mount_resolve(dir_fd, ".");
}

static int make_component(struct late_mount *mount, int dir_fd, const char *walked,
			  const char *name, bool is_file)
{
	SP_AUTO_CLOSE int twin_fd = writable_twin(mount, dir_fd, walked);
	int status = twin_fd < 0 ? twin_fd : sp_mount_make(twin_fd, name, is_file);

	mount->stage = "no_mount_point";
	if (status == -EROFS)
		status = -ENOENT;
	return status < 0 ? status : sp_mount_step(dir_fd, name);
}

/* The target, made as far as it is missing. */
static int find_target(struct late_mount *mount)
{
	SP_AUTO_CLOSE int dir_fd = sp_mount_resolve(mount->init->root_fd, "/");
	const char *rest = mount->target;
	char walked[SP_INIT_TARGET_MAX] = "/";
	char name[NAME_MAX + 1];
	int more;

	if (dir_fd < 0)
		return dir_fd;
	while ((more = sp_mount_component(&rest, name)) > 0) {
		int next = sp_mount_step(dir_fd, name);

		if (next == -ENOENT)
			next = make_component(mount, dir_fd, walked, name,
					      mount->is_file && rest[0] == '\0');
		if (next < 0)
			return next;
		sp_fd_close(&dir_fd);
		dir_fd = next;
		memcpy(walked, mount->target, (size_t)(rest - mount->target));
		walked[rest - mount->target] = '\0';
	}
	return more < 0 ? more : sp_take_fd(&dir_fd);
}

static int check_target(const struct late_mount *mount, int target_fd)
{
	int type = file_type(target_fd);

	if (type < 0)
		return type;
	if (mount->is_file)
		return type == S_IFREG ? 0 : -EISDIR;
	return type == S_IFDIR ? 0 : -ENOTDIR;
}

/* ---- overlays ---- */

/* The private directory of overlay N: a tmpfs of its own, of the size that was asked for. */
static int attach_private(const struct late_mount *mount, const char *path)
{
	const struct init *init = mount->init;
	char size[NUMBER_SPACE];
	char inodes[NUMBER_SPACE];
	const struct sp_mount_option options[] = {
		{"size", size}, {"nr_inodes", inodes}, {"mode", "0700"}};
	SP_AUTO_CLOSE int skeleton_fd = sp_mount_point(init->skeleton_fd, path, false);
	SP_AUTO_CLOSE int target_fd = skeleton_fd < 0 ? -1 : sp_mount_resolve(init->root_fd, path);
	SP_AUTO_CLOSE int tmpfs_fd = -1;
	struct statx info;
	int status;

	if (skeleton_fd < 0 || target_fd < 0)
		return skeleton_fd < 0 ? skeleton_fd : target_fd;
	if (statx(target_fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &info) != 0)
		return -errno;
	if (info.stx_mnt_id != init->root_mount_id)
		return -EEXIST; /* there is one of that number */
	(void)snprintf(size, sizeof(size), "%" PRIu64, mount->request->size);
	(void)snprintf(inodes, sizeof(inodes), "%" PRIu64, init->pool->tmp_inodes);
	tmpfs_fd = sp_mount_new("tmpfs", options, SP_ARRAY_SIZE(options),
				MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	if (tmpfs_fd < 0)
		return tmpfs_fd;
	status = sp_mount_attach(tmpfs_fd, target_fd);
	return status < 0 ? status : sp_take_fd(&tmpfs_fd);
}

/* The base becomes the overlay's, the overlay takes its place. */
static int attach_overlay(struct late_mount *mount, int base_fd, int target_fd)
{
	char path[INIT_OVERLAY_PATH_MAX];
	SP_AUTO_CLOSE int private_fd = -1;
	SP_AUTO_CLOSE int overlay_fd = -1;
	int status;

	mount->stage = "overlay";
	if (mount->is_file)
		return -ENOTDIR;
	init_overlay_path(mount->request->header.exec, path);
	private_fd = attach_private(mount, path);
	if (private_fd < 0)
		return private_fd;
	overlay_fd = init_overlay_make(private_fd, path, base_fd);
	if (overlay_fd < 0)
		return overlay_fd;
	mount->stage = "mount";
	status = sp_mount_attach(overlay_fd, target_fd);
	if (status < 0)
		return status;
	overlays[mount->request->header.exec - 1] = true;
	return init_overlay_freeze_note(private_fd, mount->target, &unsettled);
}

/* There is no place for its layers that the workload could not enter. */
static int check_overlay(struct late_mount *mount)
{
	mount->stage = "supported";
	if (mount->init->boot->rootless == 1)
		return -EOPNOTSUPP;
	mount->stage = "covers";
	return covers_mount(mount) ? -EBUSY : 0;
}

/* ---- all of them ---- */

static int attach(struct late_mount *mount, int mount_fd)
{
	SP_AUTO_CLOSE int target_fd = -1;
	int status;

	mount->stage = "target";
	if (mount->init->direct)
		return -EOPNOTSUPP;
	if (strcmp(mount->target, "/") == 0 || forbidden(mount->init, mount->target))
		return -EPERM;
	if (!init_path_normal(mount->target))
		return -EINVAL;
	status = mount->is_overlay ? check_overlay(mount) : 0;
	if (status == 0)
		status = confine_mount(mount, mount_fd);
	if (status < 0)
		return status;
	mount->stage = "target";
	target_fd = find_target(mount);
	if (target_fd < 0)
		return target_fd;
	mount->stage = "target";
	status = check_target(mount, target_fd);
	if (status < 0)
		return status;
	if (mount->is_overlay)
		return attach_overlay(mount, mount_fd, target_fd);
	mount->stage = "mount";
	return sp_mount_attach(mount_fd, target_fd);
}

int init_late_mount(const struct init *init, const struct sp_init_mount *request, int mount_fd,
		    const char **ret_stage)
{
	struct late_mount mount = {
		.init = init,
		.request = request,
		.target = (const char *)(request + 1),
		.is_overlay = (request->flags & SP_INIT_MOUNT_F_OVERLAY) != 0,
	};
	int status = attach(&mount, mount_fd);

	if (status < 0)
		*ret_stage = mount.stage;
	return status;
}

uint64_t init_late_mount_used(void)
{
	char path[INIT_OVERLAY_PATH_MAX];
	uint64_t sum = 0;

	for (uint32_t i = 0; i < SP_INIT_OVERLAYS_MAX; i++) {
		SP_AUTO_CLOSE int fd = -1;
		uint64_t bytes = 0;

		if (!overlays[i])
			continue;
		init_overlay_path(i + 1, path);
		fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (fd >= 0 && init_overlay_used(fd, &bytes) == 0)
			sum += bytes;
	}
	return sum;
}

void init_late_mount_settle(void)
{
	if (unsettled.real_ns == 0)
		return;
	init_overlay_freeze_wait(&unsettled);
	unsettled.real_ns = 0;
}
