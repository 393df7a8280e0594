/*
 * Opens what a table names on the host. Runs in the host's mounts (a slave copy of them), follows
 * symbolic links in the configured paths: they are root's. Ends after the last mount was fetched.
 */
#include "supervisor/launcher/source.h"

#include "pool/base/fd.h"
#include "supervisor/sandbox/mount_attach.h"
#include "supervisor/sandbox/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* -1: absent. Indexed by pool and mount, filled before anything is handed out. */
struct opened {
	int fd;
	bool is_file;
};

static int open_root(const struct sp_table_root *root)
{
	int fd = open(root->path, O_PATH | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int report_roots(const struct sp_table *table, int main_fd)
{
	const struct sp_table_pool *pools = sp_table_pools(table);

	for (uint32_t i = 0; i < table->pool_count; i++) {
		for (uint32_t j = 0; j < pools[i].root_count; j++) {
			SP_AUTO_CLOSE int fd = open_root(&pools[i].roots[j]);
			struct sp_source_root message = {
				.type = SP_SOURCE_ROOT,
				.pool = i,
				.root = j,
				.status = SP_MIN(fd, 0),
			};
			int status = sp_msg_send(main_fd, &message, sizeof(message), &fd, fd >= 0);

			if (status < 0)
				return status;
		}
	}
	return 0;
}

/* In a user namespace the host's mounts are locked together and cannot be taken apart. */
static int clone_mount(int fd, bool recursive, bool rootless, bool *ret_recursive)
{
	int mount_fd = sp_mount_clone(fd, "", recursive);

	*ret_recursive = recursive;
	if (mount_fd == -EINVAL && rootless && !recursive) {
		*ret_recursive = true;
		mount_fd = sp_mount_clone(fd, "", true);
	}
	return mount_fd;
}

static int open_bind(const struct sp_table_mount *mount, bool rootless, struct opened *ret_opened,
		     struct sp_err *err)
{
	uint64_t attributes = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
	SP_AUTO_CLOSE int fd = open(mount->source, O_PATH | O_CLOEXEC);
	SP_AUTO_CLOSE int mount_fd = -1;
	struct stat info;
	bool recursive;
	int status;

	if (fd < 0 && errno == ENOENT && (mount->flags & SP_MOUNT_F_OPTIONAL) != 0)
		return 0;
	if (fd < 0 || fstat(fd, &info) < 0)
		return sp_err_set(err, -errno, "open source '%s'", mount->source);
	mount_fd =
		clone_mount(fd, (mount->flags & SP_MOUNT_F_RECURSIVE) != 0, rootless, &recursive);
	if (mount_fd < 0)
		return sp_err_set(err, mount_fd, "clone source '%s'", mount->source);
	if ((mount->flags & SP_MOUNT_F_NOEXEC) != 0)
		attributes |= MOUNT_ATTR_NOEXEC;
	status = sp_sys_mount_setattr(mount_fd, "", AT_EMPTY_PATH | (recursive ? AT_RECURSIVE : 0),
				      attributes, 0, MS_PRIVATE, -1);
	if (status < 0)
		return sp_err_set(err, status, "make source '%s' read-only", mount->source);
	ret_opened->fd = sp_take_fd(&mount_fd);
	ret_opened->is_file = !S_ISDIR(info.st_mode);
	return 0;
}

static int open_binds(const struct sp_table *table, bool rootless, struct opened *opened,
		      struct sp_err *err)
{
	const struct sp_table_pool *pools = sp_table_pools(table);

	for (uint32_t i = 0; i < table->pool_count; i++) {
		for (uint32_t j = 0; j < pools[i].mount_count; j++) {
			struct opened *one = &opened[i * SP_TABLE_MOUNTS_MAX + j];
			int status;

			one->fd = -1;
			if (pools[i].mounts[j].kind != SP_MOUNT_BIND)
				continue;
			status = open_bind(&pools[i].mounts[j], rootless, one, err);
			if (status < 0)
				return sp_err_wrap(err, status, "pool '%s'", pools[i].name);
		}
	}
	return 0;
}

static int hand_out(const struct sp_table *table, const struct opened *opened, int spawner_fd)
{
	const struct sp_table_pool *pools = sp_table_pools(table);

	for (uint32_t i = 0; i < table->pool_count; i++) {
		for (uint32_t j = 0; j < pools[i].mount_count; j++) {
			const struct opened *one = &opened[i * SP_TABLE_MOUNTS_MAX + j];
			struct sp_source_mount message = {
				.pool = i,
				.mount = j,
				.absent = one->fd < 0,
				.is_file = one->is_file,
			};
			int status;

			if (pools[i].mounts[j].kind != SP_MOUNT_BIND)
				continue;
			status = sp_msg_send(spawner_fd, &message, sizeof(message), &one->fd,
					     one->fd >= 0);
			if (status < 0)
				return status;
		}
	}
	return 0;
}

int sp_source_run(const struct sp_table *table, int main_fd, int spawner_fd, bool rootless)
{
	struct opened *opened =
		calloc((size_t)table->pool_count * SP_TABLE_MOUNTS_MAX, sizeof(*opened));
	struct sp_source_ready ready = {.type = SP_SOURCE_READY};
	struct sp_err err = {0};
	int status;

	if (!opened)
		return EXIT_FAILURE;
	status = report_roots(table, main_fd);
	if (status == 0) {
		ready.status = open_binds(table, rootless, opened, &err);
		(void)snprintf(ready.text, sizeof(ready.text), "%s", err.message);
		status = sp_msg_send(main_fd, &ready, sizeof(ready), NULL, 0);
	}
	if (status == 0 && ready.status == 0)
		status = hand_out(table, opened, spawner_fd);
	free(opened);
	return status < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

int sp_source_fetch(int fd, uint32_t pool, uint32_t mount, struct sp_source_mount *ret_mount,
		    int *ret_fd, struct sp_err *err)
{
	int fds[SP_MSG_FDS_MAX];
	size_t fd_count = 0;
	ssize_t got = sp_msg_receive(fd, ret_mount, sizeof(*ret_mount), fds, &fd_count);

	if (got < 0)
		return sp_err_set(err, (int)got, "fetch source %u of pool %u", mount, pool);
	if (got != (ssize_t)sizeof(*ret_mount) || ret_mount->pool != pool ||
	    ret_mount->mount != mount || fd_count != (ret_mount->absent ? 0 : 1)) {
		for (size_t i = 0; i < fd_count; i++)
			sp_fd_close(&fds[i]);
		return sp_err_set(err, -EPROTO, "fetch source %u of pool %u", mount, pool);
	}
	*ret_fd = fd_count == 1 ? fds[0] : -1;
	return 0;
}
