/*
 * Mounts by descriptor: fsopen/fsmount, open_tree, move_mount, openat2. Paths here are either our
 * own or were checked by the caller to be absolute and normalised; still every step refuses
 * symlinks, magic links and "..", because what lies in the sandbox may have been written by it.
 */
#include "supervisor/sandbox/mount_attach.h"

#include "pool/base/fd.h"
#include "supervisor/sandbox/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define RESOLVE_INSIDE (RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)
#define RESOLVE_STEP   (RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)

int sp_mount_new(const char *type, const struct sp_mount_option *options, size_t count,
		 unsigned int attributes)
{
	SP_AUTO_CLOSE int fs_fd = fsopen(type, FSOPEN_CLOEXEC);
	int mount_fd;

	if (fs_fd < 0)
		return -errno;
	for (size_t i = 0; i < count; i++) {
		unsigned int command = options[i].value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG;

		if (fsconfig(fs_fd, command, options[i].key, options[i].value, 0) != 0)
			return -errno;
	}
	if (fsconfig(fs_fd, FSCONFIG_CMD_CREATE, NULL, NULL, 0) != 0)
		return -errno;
	mount_fd = fsmount(fs_fd, FSMOUNT_CLOEXEC, attributes);
	return mount_fd < 0 ? -errno : mount_fd;
}

int sp_mount_clone(int dir_fd, const char *path, bool recursive)
{
	unsigned int flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW;
	int fd;

	if (recursive)
		flags |= AT_RECURSIVE;
	if (path[0] == '\0')
		flags |= AT_EMPTY_PATH;
	fd = open_tree(dir_fd, path, flags);
	return fd < 0 ? -errno : fd;
}

int sp_mount_attach(int mount_fd, int target_fd)
{
	if (move_mount(mount_fd, "", target_fd, "",
		       MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0)
		return -errno;
	return 0;
}

int sp_mount_attach_at(int mount_fd, int dir_fd, const char *name)
{
	if (move_mount(mount_fd, "", dir_fd, name, MOVE_MOUNT_F_EMPTY_PATH) != 0)
		return -errno;
	return 0;
}

int sp_mount_resolve(int root_fd, const char *path)
{
	return sp_sys_openat2(root_fd, path, O_PATH, 0, RESOLVE_INSIDE);
}

int sp_mount_step(int dir_fd, const char *name)
{
	return sp_sys_openat2(dir_fd, name, O_PATH, 0, RESOLVE_STEP);
}

int sp_mount_make(int dir_fd, const char *name, bool is_file)
{
	int result =
		is_file ? mknodat(dir_fd, name, S_IFREG | 0644, 0) : mkdirat(dir_fd, name, 0755);

	return result == 0 || errno == EEXIST ? 0 : -errno;
}

int sp_mount_component(const char **path, char *name)
{
	const char *start = *path + strspn(*path, "/");
	size_t len = strcspn(start, "/");

	if (len == 0)
		return 0;
	if (len > NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(name, start, len);
	name[len] = '\0';
	*path = start + len;
	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return -EINVAL;
	return 1;
}

/* Right below the root: nearly always missing, so it is made before it is looked for. */
static int top_level_point(int root_fd, const char *name, bool is_file)
{
	int status = sp_mount_make(root_fd, name, is_file);

	return status < 0 ? status : sp_mount_step(root_fd, name);
}

int sp_mount_point(int root_fd, const char *path, bool is_file)
{
	const char *rest = path;
	char name[NAME_MAX + 1];
	SP_AUTO_CLOSE int fd = -1;
	int more = sp_mount_component(&rest, name);

	if (more > 0 && *rest == '\0')
		return top_level_point(root_fd, name, is_file);
	fd = sp_mount_resolve(root_fd, path);
	if (fd != -ENOENT)
		return sp_take_fd(&fd);
	fd = sp_mount_resolve(root_fd, "/");
	if (fd < 0)
		return fd;
	while ((more = sp_mount_component(&path, name)) > 0) {
		bool last = path[strspn(path, "/")] == '\0';
		int next = sp_mount_step(fd, name);

		if (next == -ENOENT) {
			int status = sp_mount_make(fd, name, is_file && last);

			if (status < 0)
				return status;
			next = sp_mount_step(fd, name);
		}
		if (next < 0)
			return next;
		sp_fd_close(&fd);
		fd = next;
	}
	return more < 0 ? more : sp_take_fd(&fd);
}
