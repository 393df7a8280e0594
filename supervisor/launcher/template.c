/*
 * Builds templates. Trusts the checked table and the mounts that the sources process made (they
 * arrive read-only, nosuid, nodev, private). What a tree binds is the host's content: nothing is
 * ever created through it, since it is read-only, and no symlink in it is followed.
 */
#include "supervisor/launcher/template.h"

#include "pool/base/fd.h"
#include "supervisor/init/boot.h"
#include "supervisor/launcher/source.h"
#include "supervisor/sandbox/memfd.h"
#include "supervisor/sandbox/mount_attach.h"
#include "supervisor/sandbox/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define SEALED_MOUNT (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

static const struct {
	const char *name;
	unsigned int major;
	unsigned int minor;
} devices[] = {
	{"null", 1, 3},   {"zero", 1, 5},    {"full", 1, 7},
	{"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0},
};

static const struct {
	const char *name;
	const char *target;
} device_links[] = {
	{"fd", "/proc/self/fd"},       {"stdin", "/proc/self/fd/0"}, {"stdout", "/proc/self/fd/1"},
	{"stderr", "/proc/self/fd/2"}, {"ptmx", "pts/ptmx"},
};

/* What the building of one pool shares. */
struct build {
	const struct sp_table *table;
	const struct sp_table_pool *pool;
	uint32_t index;
	int source_fd;
	int root_fd; /* the template's tmpfs */
	bool rootless;
	bool one_id;
	uint8_t absent[SP_TABLE_MOUNTS_MAX];
	struct sp_err *err;
};

static int new_tmpfs(const char *size)
{
	const struct sp_mount_option options[] = {
		{"size", size},
		{"mode", "0755"},
	};

	return sp_mount_new("tmpfs", options, SP_ARRAY_SIZE(options), 0);
}

/* Make the place and put the mount on it. */
static int attach_at(int root_fd, const char *path, bool is_file, int mount_fd)
{
	SP_AUTO_CLOSE int target_fd = sp_mount_point(root_fd, path, is_file);

	return target_fd < 0 ? target_fd : sp_mount_attach(mount_fd, target_fd);
}

/* The host's whole proc. What lies on top of it inside is left behind where that is allowed: a
 * covered proc would forbid init to mount its own. */
static int clone_proc(void)
{
	int fd = sp_mount_clone(AT_FDCWD, "/proc", false);

	return fd == -EINVAL ? sp_mount_clone(AT_FDCWD, "/proc", true) : fd;
}

/* Make the process's root what root_fd (attached) is; the old one goes with all it holds. */
static int enter_root(int root_fd)
{
	int status;

	if (fchdir(root_fd) < 0)
		return -errno;
	status = sp_sys_pivot_root(".", ".");
	if (status < 0)
		return status;
	/* "." is now the old root on top of the new one; see pivot_root(2), NOTES. */
	if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		return -errno;
	return 0;
}

static int keep_device_nodes(int root_fd)
{
	for (size_t i = 0; i < SP_ARRAY_SIZE(devices); i++) {
		char path[32];
		SP_AUTO_CLOSE int mount_fd = -1;
		int status;

		(void)snprintf(path, sizeof(path), "/dev/%s", devices[i].name);
		mount_fd = sp_mount_clone(AT_FDCWD, path, false);
		status = mount_fd < 0 ? mount_fd : attach_at(root_fd, path, true, mount_fd);
		if (status < 0)
			return status;
	}
	return 0;
}

static int leave_host(bool rootless, struct sp_err *err)
{
	SP_AUTO_CLOSE int proc_fd = -1;
	SP_AUTO_CLOSE int root_fd = -1;
	SP_AUTO_CLOSE int newroot_fd = -1;
	SP_AUTO_CLOSE int host_proc_fd = -1;
	int status;

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return sp_err_set(err, -errno, "leave the host's mount namespace");
	proc_fd = clone_proc();
	if (proc_fd < 0)
		return sp_err_set(err, proc_fd, "clone '/proc'");
	root_fd = new_tmpfs("1m");
	if (root_fd < 0)
		return sp_err_set(err, root_fd, "mount a tmpfs");
	/* The one directory that every host has. By its own descriptor: a mount point "below"
	 * AT_FDCWD would be made in whatever directory we were started from. */
	host_proc_fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	status = host_proc_fd < 0 ? -errno : sp_mount_attach(root_fd, host_proc_fd);
	if (status == 0 && rootless)
		status = keep_device_nodes(root_fd);
	if (status == 0)
		status = attach_at(root_fd, "/proc", false, proc_fd);
	if (status < 0)
		return sp_err_set(err, status, "build the launcher's root");
	newroot_fd = sp_mount_point(root_fd, "/newroot", false);
	if (newroot_fd < 0)
		return sp_err_set(err, newroot_fd, "build the launcher's root");
	status = enter_root(root_fd);
	return status < 0 ? sp_err_set(err, status, "pivot into the launcher's root") : 0;
}

static int own_namespace(void)
{
	int fd = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int sp_template_leave_host(bool rootless, int *ret_ns_fd, struct sp_err *err)
{
	int status = leave_host(rootless, err);
	int fd;

	if (status < 0)
		return status;
	fd = own_namespace();
	if (fd < 0)
		return sp_err_set(err, fd, "open the launcher's mount namespace");
	*ret_ns_fd = fd;
	return 0;
}

/* --- trees ------------------------------------------------------------------------------- */

/* The tree that mount `index` lies in, or -1; *ret_path is its path in it, with a leading '/'. */
static int tree_of(const struct sp_table_pool *pool, uint32_t index, const char **ret_path)
{
	const char *target = pool->mounts[index].target;

	for (uint32_t i = 0; i < index; i++) {
		size_t len = strlen(pool->mounts[i].target);

		if (pool->mounts[i].kind == SP_MOUNT_TREE &&
		    strncmp(target, pool->mounts[i].target, len) == 0 && target[len] == '/') {
			*ret_path = target + len;
			return (int)i;
		}
	}
	return -1;
}

static bool belongs_in_tree(uint32_t kind)
{
	return kind == SP_MOUNT_BIND || kind == SP_MOUNT_FILE || kind == SP_MOUNT_SYMLINK ||
	       kind == SP_MOUNT_DIR;
}

static void place(const struct build *build, uint32_t mount, char *path, size_t size)
{
	(void)snprintf(path, size, "/pools/%u/%u", build->index, mount);
}

/* Open the directory that `path` is in, making it; *ret_name is its last component. */
static int open_parent(int tree_fd, const char *path, const char **ret_name)
{
	char parent[SP_TABLE_PATH_MAX];
	const char *slash = strrchr(path, '/');
	size_t len = (size_t)(slash - path);

	memcpy(parent, path, len);
	parent[len] = '\0';
	*ret_name = slash + 1;
	return sp_mount_point(tree_fd, len == 0 ? "/" : parent, false);
}

static int tree_file(const struct build *build, const struct sp_table_mount *mount, int tree_fd,
		     const char *path)
{
	const char *name;
	SP_AUTO_CLOSE int parent_fd = open_parent(tree_fd, path, &name);
	SP_AUTO_CLOSE int fd = -1;

	if (parent_fd < 0)
		return parent_fd;
	fd = openat(parent_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 || fchmod(fd, mount->mode) < 0)
		return -errno;
	return sp_write_all(fd, (const char *)build->table + mount->blob_offset,
			    mount->blob_length);
}

static int tree_symlink(const struct sp_table_mount *mount, int tree_fd, const char *path)
{
	const char *name;
	SP_AUTO_CLOSE int parent_fd = open_parent(tree_fd, path, &name);

	if (parent_fd < 0)
		return parent_fd;
	return symlinkat(mount->source, parent_fd, name) < 0 ? -errno : 0;
}

static int tree_dir(const struct sp_table_mount *mount, int tree_fd, const char *path)
{
	const char *name;
	SP_AUTO_CLOSE int parent_fd = open_parent(tree_fd, path, &name);

	if (parent_fd < 0)
		return parent_fd;
	if (mkdirat(parent_fd, name, 0700) < 0 && errno != EEXIST)
		return -errno;
	return fchmodat(parent_fd, name, mount->mode, 0) < 0 ? -errno : 0;
}

/* A tree is a directory of the template's tmpfs, bound onto itself to have attributes of its own.
 * It stays writable until the whole pool is built. */
static int start_tree(const struct build *build, uint32_t mount)
{
	char path[64];
	SP_AUTO_CLOSE int dir_fd = -1;
	SP_AUTO_CLOSE int tree_fd = -1;

	place(build, mount, path, sizeof(path));
	dir_fd = sp_mount_point(build->root_fd, path, false);
	if (dir_fd < 0)
		return dir_fd;
	tree_fd = sp_mount_clone(dir_fd, "", false);
	if (tree_fd < 0)
		return tree_fd;
	return sp_mount_attach(tree_fd, dir_fd);
}

static int open_place(const struct build *build, uint32_t mount)
{
	char path[64];

	place(build, mount, path, sizeof(path));
	return sp_mount_resolve(build->root_fd, path);
}

static int seal_trees(const struct build *build)
{
	for (uint32_t i = 0; i < build->pool->mount_count; i++) {
		SP_AUTO_CLOSE int fd = -1;
		int status;

		if (build->pool->mounts[i].kind != SP_MOUNT_TREE)
			continue;
		fd = open_place(build, i);
		status = fd < 0 ? fd
				: sp_sys_mount_setattr(fd, "", AT_EMPTY_PATH, SEALED_MOUNT, 0, 0,
						       -1);
		if (status < 0)
			return status;
	}
	return 0;
}

/* --- one pool ---------------------------------------------------------------------------- */

static int add_bind(struct build *build, uint32_t mount, int tree_fd, const char *tree_path)
{
	SP_AUTO_CLOSE int mount_fd = -1;
	struct sp_source_mount source;
	char path[64];
	int status = sp_source_fetch(build->source_fd, build->index, mount, &source, &mount_fd,
				     build->err);

	if (status < 0)
		return status;
	if (source.absent) {
		build->absent[mount] = 1;
		return 0;
	}
	if (tree_fd >= 0)
		return attach_at(tree_fd, tree_path, source.is_file != 0, mount_fd);
	place(build, mount, path, sizeof(path));
	return attach_at(build->root_fd, path, source.is_file != 0, mount_fd);
}

static int add_to_tree(struct build *build, uint32_t mount, int tree, const char *path)
{
	const struct sp_table_mount *entry = &build->pool->mounts[mount];
	SP_AUTO_CLOSE int tree_fd = open_place(build, (uint32_t)tree);

	if (tree_fd < 0)
		return tree_fd;
	build->absent[mount] = 1;
	switch (entry->kind) {
	case SP_MOUNT_BIND:
		return add_bind(build, mount, tree_fd, path);
	case SP_MOUNT_FILE:
		return tree_file(build, entry, tree_fd, path);
	case SP_MOUNT_SYMLINK:
		return tree_symlink(entry, tree_fd, path);
	default:
		return tree_dir(entry, tree_fd, path);
	}
}

static int add_mount(struct build *build, uint32_t mount)
{
	uint32_t kind = build->pool->mounts[mount].kind;
	const char *path = NULL;
	int tree = belongs_in_tree(kind) ? tree_of(build->pool, mount, &path) : -1;

	if (tree >= 0)
		return add_to_tree(build, mount, tree, path);
	if (kind == SP_MOUNT_BIND)
		return add_bind(build, mount, -1, NULL);
	return kind == SP_MOUNT_TREE ? start_tree(build, mount) : 0;
}

static int add_device(const struct build *build, int dev_fd, size_t device)
{
	const char *name = devices[device].name;
	SP_AUTO_CLOSE int mount_fd = -1;
	char path[32];
	int status;

	if (!build->rootless) {
		dev_t number = makedev(devices[device].major, devices[device].minor);

		if (mknodat(dev_fd, name, S_IFCHR | 0666, number) < 0)
			return -errno;
		return 0;
	}
	(void)snprintf(path, sizeof(path), "/dev/%s", name);
	mount_fd = sp_mount_clone(AT_FDCWD, path, false);
	if (mount_fd < 0)
		return mount_fd;
	status = sp_sys_mount_setattr(mount_fd, "", AT_EMPTY_PATH,
				      MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, 0, 0, -1);
	return status < 0 ? status : attach_at(dev_fd, name, true, mount_fd);
}

static int add_dev(const struct build *build)
{
	static const char *const dirs[] = {"pts", "shm"};
	SP_AUTO_CLOSE int dir_fd = -1;
	SP_AUTO_CLOSE int dev_fd = -1;
	char path[64];
	int status = 0;

	(void)snprintf(path, sizeof(path), "/pools/%u/dev", build->index);
	dir_fd = sp_mount_point(build->root_fd, path, false);
	if (dir_fd < 0)
		return dir_fd;
	dev_fd = sp_mount_clone(dir_fd, "", false);
	if (dev_fd < 0)
		return dev_fd;
	status = sp_mount_attach(dev_fd, dir_fd);
	for (size_t i = 0; i < SP_ARRAY_SIZE(devices) && status == 0; i++)
		status = add_device(build, dev_fd, i);
	for (size_t i = 0; i < SP_ARRAY_SIZE(device_links) && status == 0; i++)
		if (symlinkat(device_links[i].target, dev_fd, device_links[i].name) < 0)
			status = -errno;
	for (size_t i = 0; i < SP_ARRAY_SIZE(dirs) && status == 0; i++)
		status = sp_mount_make(dev_fd, dirs[i], false);
	if (status < 0)
		return status;
	return sp_sys_mount_setattr(dev_fd, "", AT_EMPTY_PATH,
				    MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, 0, 0,
				    -1);
}

static int add_skeleton(const struct build *build)
{
	static const struct {
		const char *path;
		bool is_file;
	} places[] = {
		{"/scratch", false},   {"/newroot", false},   {"/pools", false},
		{"/empty/dir", false}, {"/empty/file", true},
	};

	SP_AUTO_CLOSE int proc_fd = clone_proc();
	int status = proc_fd < 0 ? proc_fd : attach_at(build->root_fd, "/proc", false, proc_fd);

	for (size_t i = 0; i < SP_ARRAY_SIZE(places) && status == 0; i++) {
		SP_AUTO_CLOSE int fd =
			sp_mount_point(build->root_fd, places[i].path, places[i].is_file);

		status = SP_MIN(fd, 0);
	}
	return status;
}

static int fill(struct build *build)
{
	int status = add_skeleton(build);

	if (status == 0)
		status = add_dev(build);
	if (status < 0)
		return sp_err_set(build->err, status, "pool '%s': build the skeleton",
				  build->pool->name);
	for (uint32_t i = 0; i < build->pool->mount_count; i++) {
		status = add_mount(build, i);
		if (status < 0)
			return sp_err_set(build->err, status, "pool '%s': add '%s'",
					  build->pool->name, build->pool->mounts[i].target);
	}
	status = seal_trees(build);
	if (status == 0)
		status = sp_sys_mount_setattr(build->root_fd, "", AT_EMPTY_PATH, SEALED_MOUNT, 0, 0,
					      -1);
	return status < 0 ? sp_err_set(build->err, status, "pool '%s': seal", build->pool->name)
			  : 0;
}

static int build_namespace(struct build *build, int *ret_ns_fd)
{
	SP_AUTO_CLOSE int root_fd = -1;
	int status;
	int fd;

	if (unshare(CLONE_NEWNS) < 0)
		return sp_err_set(build->err, -errno, "pool '%s': unshare", build->pool->name);
	root_fd = new_tmpfs("80m"); /* SP_TABLE_SIZE_MAX and directories */
	status = root_fd < 0 ? root_fd : attach_at(AT_FDCWD, "/newroot", false, root_fd);
	if (status < 0)
		return sp_err_set(build->err, status, "pool '%s': mount a tmpfs",
				  build->pool->name);
	build->root_fd = root_fd;
	status = fill(build);
	if (status < 0)
		return status;
	status = enter_root(root_fd);
	if (status < 0)
		return sp_err_set(build->err, status, "pool '%s': pivot", build->pool->name);
	fd = own_namespace();
	if (fd < 0)
		return sp_err_set(build->err, fd, "pool '%s': open namespace", build->pool->name);
	*ret_ns_fd = fd;
	return 0;
}

static int write_boot(const struct build *build, int fd)
{
	const struct sp_table_pool *pool = build->pool;
	const char *file = (const char *)build->table;
	struct sp_boot boot = {
		.magic = SP_BOOT_MAGIC,
		.pool_index = build->index,
		.build_id = SP_BUILD_ID,
		.size = sizeof(boot) + pool->filter_length + pool->exec_filter_length,
		.filter_offset = sizeof(boot),
		.exec_filter_offset = sizeof(boot) + pool->filter_length,
		.filter_length = pool->filter_length,
		.exec_filter_length = pool->exec_filter_length,
		.rootless = build->one_id,
		.pool = *pool,
	};
	int status;

	memcpy(boot.absent, build->absent, sizeof(boot.absent));
	memset(boot.pool.roots, 0, sizeof(boot.pool.roots));
	status = sp_write_all(fd, &boot, sizeof(boot));
	if (status == 0)
		status = sp_write_all(fd, file + pool->filter_offset, pool->filter_length);
	if (status == 0)
		status =
			sp_write_all(fd, file + pool->exec_filter_offset, pool->exec_filter_length);
	return status < 0 ? status : sp_memfd_seal(fd);
}

int sp_template_build(const struct sp_table *table, uint32_t pool, int source_fd, int base_ns_fd,
		      bool rootless, bool one_id, struct sp_template *ret_template,
		      struct sp_err *err)
{
	struct build build = {
		.table = table,
		.pool = &sp_table_pools(table)[pool],
		.index = pool,
		.source_fd = source_fd,
		.rootless = rootless,
		.one_id = one_id,
		.err = err,
	};
	SP_AUTO_CLOSE int boot_fd = sp_memfd_new("sandpool-boot");
	SP_AUTO_CLOSE int ns_fd = -1;
	int status = 0;

	if (boot_fd < 0)
		return sp_err_set(err, boot_fd, "create a boot record");
	if ((build.pool->flags & SP_POOL_F_DIRECT) == 0) {
		status = build_namespace(&build, &ns_fd);
		/* Nothing can be done in a half-built root: going on there would be worse. */
		if (setns(base_ns_fd, CLONE_NEWNS) < 0)
			return sp_err_set(err, -errno, "return to the launcher's namespace");
	}
	if (status < 0)
		return status;
	status = write_boot(&build, boot_fd);
	if (status < 0)
		return sp_err_set(err, status, "pool '%s': write the boot record",
				  build.pool->name);
	ret_template->ns_fd = sp_take_fd(&ns_fd);
	ret_template->boot_fd = sp_take_fd(&boot_fd);
	return 0;
}

void sp_template_done(struct sp_template *template)
{
	sp_fd_close(&template->ns_fd);
	sp_fd_close(&template->boot_fd);
}
