/*
 * Where a mount may go: anywhere but /, /proc, /dev, /etc and init's own directory. A missing mount
 * point is made where the sandbox's own tmpfs is on top: on the skeleton (read-only to all but
 * init, which has a detached writable clone of it) or on a writable place. Nothing is ever made on
 * a bind from the host, be it read-only or a workspace: that would leave a trace there.
 *
 * The path is walked by descriptors; workloads may be running and rename things meanwhile, which
 * can only make the walk fail or end at another place of their own.
 */
#include "supervisor/init/late_mount.h"

#include "pool/base/fd.h"
#include "supervisor/init/boot_check.h"
#include "supervisor/sandbox/mount_attach.h"
#include "supervisor/sandbox/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

struct late_mount {
	const struct init *init;
	const char *target;
	const char *stage;
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
	mount->stage = "mount";
	return sp_mount_attach(mount_fd, target_fd);
}

int init_late_mount(const struct init *init, const char *target, int mount_fd,
		    const char **ret_stage)
{
	struct late_mount mount = {.init = init, .target = target};
	int status = attach(&mount, mount_fd);

	if (status < 0)
		*ret_stage = mount.stage;
	return status;
}
