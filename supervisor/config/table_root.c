/*
 * What a sandbox sees as its root, as a list of mounts. Every root is a skeleton of top-level
 * entries, so that mount points can be made; the writable places are the same in each.
 *
 * Order: the root's own entries, the sandbox's places over them, then layers and masks sorted by
 * path, so that what lies deeper is laid over what contains it.
 */
#include "supervisor/config/table_mounts.h"

#include "pool/base/fd.h"
#include "supervisor/sandbox/syscalls.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ALL_RIGHTS 01777u

int sp_table_mount(struct sp_table_builder *builder, enum sp_table_mount_kind kind, uint32_t flags,
		   uint32_t mode, const char *source, const char *target)
{
	return sp_table_add_mount(builder, kind, flags, mode, source, target) ? 0 : -E2BIG;
}

struct sp_table_mount *sp_table_add_mount(struct sp_table_builder *builder,
					  enum sp_table_mount_kind kind, uint32_t flags,
					  uint32_t mode, const char *source, const char *target)
{
	struct sp_table_pool *pool = builder->pool;
	struct sp_table_mount *mount;

	if (pool->mount_count == SP_TABLE_MOUNTS_MAX) {
		(void)sp_err_code(builder->err, SP_CODE_CONFIG_INVALID, -E2BIG,
				  "pool '%s': more than %u mounts: name fewer layers and masks, or "
				  "a root with fewer top-level entries",
				  pool->name, SP_TABLE_MOUNTS_MAX);
		return NULL;
	}
	if (strlen(source) >= SP_TABLE_PATH_MAX || strlen(target) >= SP_TABLE_PATH_MAX) {
		(void)sp_err_code(builder->err, SP_CODE_CONFIG_INVALID, -ENAMETOOLONG,
				  "pool '%s': path of more than %u bytes: '%.60s…'", pool->name,
				  SP_TABLE_PATH_MAX - 1,
				  strlen(target) >= SP_TABLE_PATH_MAX ? target : source);
		return NULL;
	}
	mount = &pool->mounts[pool->mount_count++];
	mount->kind = kind;
	mount->flags = flags;
	mount->mode = mode;
	memcpy(mount->source, source, strlen(source) + 1);
	memcpy(mount->target, target, strlen(target) + 1);
	return mount;
}

/* ---- the root's own entries ---- */

/* These are the sandbox's own in every root. */
static bool own_place(const char *name)
{
	static const char *const names[] = {"proc", "dev",  "sys",       "home", "root",      "tmp",
					    "run",  "data", "workspace", "mnt",  "lost+found"};

	for (size_t i = 0; i < SP_ARRAY_SIZE(names); i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return false;
}

/* One entry: links as links, directories and files as read-only binds, nothing else. */
static int add_entry(struct sp_table_builder *builder, int dir_fd, const char *root,
		     const char *name, uint32_t flags)
{
	char source[PATH_MAX];
	char target[NAME_MAX + 2];
	char text[SP_TABLE_PATH_MAX];
	struct stat stat;
	ssize_t len;

	(void)snprintf(target, sizeof(target), "/%s", name);
	if (fstatat(dir_fd, name, &stat, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT
			       ? 0
			       : sp_err_set(builder->err, -errno, "examine '%s%s'", root, target);
	if (S_ISLNK(stat.st_mode)) {
		len = readlinkat(dir_fd, name, text, sizeof(text));
		if (len <= 0 || (size_t)len >= sizeof(text))
			return sp_err_set(builder->err, len < 0 ? -errno : -ENAMETOOLONG,
					  "read link '%s%s'", root, target);
		text[len] = '\0';
		return sp_table_mount(builder, SP_MOUNT_SYMLINK, 0, 0, text, target);
	}
	if (!S_ISDIR(stat.st_mode) && !S_ISREG(stat.st_mode))
		return 0;
	if ((size_t)snprintf(source, sizeof(source), "%s%s", root, target) >= sizeof(source))
		return sp_err_set(builder->err, -ENAMETOOLONG, "bind '%s%s'", root, target);
	return sp_table_mount(builder, SP_MOUNT_BIND, flags, 0, source, target);
}

static int wanted(const struct dirent *entry)
{
	return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
	       !own_place(entry->d_name);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

/* root: "" is the host's. */
static int add_entries(struct sp_table_builder *builder, int dir_fd, const char *root)
{
	struct dirent **entries = NULL;
	int count = scandirat(dir_fd, ".", &entries, wanted, by_name);
	int status = 0;

	if (count < 0)
		return sp_err_set(builder->err, -errno, "list '%s/'", root);
	for (int i = 0; i < count; i++) {
		if (status == 0)
			status = add_entry(builder, dir_fd, root, entries[i]->d_name,
					   SP_MOUNT_F_RECURSIVE);
		free(entries[i]);
	}
	free(entries);
	return status;
}

/* Merged or not, the host decides: /bin is a link on most, a directory on some. */
static int add_system_entries(struct sp_table_builder *builder, int dir_fd)
{
	static const char *const names[] = {"usr",   "bin",   "sbin",  "lib",
					    "lib32", "lib64", "libx32"};
	int status = 0;

	for (size_t i = 0; i < SP_ARRAY_SIZE(names) && status == 0; i++)
		status = add_entry(builder, dir_fd, "", names[i], SP_MOUNT_F_RECURSIVE);
	return status;
}

/* ---- the places that every sandbox has ---- */

/* Where a later entry may make its mount point: the mount that holds the path decides. */
static const struct sp_table_mount *holder(const struct sp_table_pool *pool, const char *path)
{
	const struct sp_table_mount *found = NULL;
	size_t longest = 0;

	for (uint32_t i = 0; i < pool->mount_count; i++) {
		const struct sp_table_mount *mount = &pool->mounts[i];
		size_t len = strlen(mount->target);

		if (len >= longest && strncmp(path, mount->target, len) == 0 &&
		    (path[len] == '/' || path[len] == '\0')) {
			found = mount;
			longest = len;
		}
	}
	return found;
}

/* In the skeleton and on writable places it can be made; in a read-only bind it must be there, and
 * no link on the way is followed. */
static bool has_mount_point(const struct sp_table_pool *pool, const char *path)
{
	const struct sp_table_mount *mount = holder(pool, path);
	char source[PATH_MAX];
	SP_AUTO_CLOSE int fd = -1;

	if (!mount || mount->kind == SP_MOUNT_WRITABLE || mount->kind == SP_MOUNT_DIR)
		return true;
	if (mount->kind != SP_MOUNT_BIND ||
	    (size_t)snprintf(source, sizeof(source), "%s%s", mount->source,
			     path + strlen(mount->target)) >= sizeof(source))
		return false;
	fd = sp_sys_openat2(AT_FDCWD, source, O_PATH, 0,
			    RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
	return fd >= 0;
}

struct place {
	enum sp_table_mount_kind kind;
	uint32_t flags;
	uint32_t mode;
	const char *target;
};

static const struct place places[] = {
	{SP_MOUNT_WRITABLE, 0, ALL_RIGHTS, "/tmp"},
	{SP_MOUNT_WRITABLE, 0, 0755, "/home"},
	{SP_MOUNT_DIR, SP_MOUNT_F_OWNED, 0755, "/home/user"},
	{SP_MOUNT_WRITABLE, 0, 0755, "/run"},
	{SP_MOUNT_DIR, 0, ALL_RIGHTS, "/run/lock"},
	{SP_MOUNT_WRITABLE, SP_MOUNT_F_OWNED, 0755, "/workspace"},
	{SP_MOUNT_WRITABLE, SP_MOUNT_F_OWNED, 0755, "/data"},
	{SP_MOUNT_WRITABLE, SP_MOUNT_F_OWNED, 0755, "/mnt"},
	{SP_MOUNT_DIR, 0, 0700, "/root"},
	{SP_MOUNT_DIR, 0, 0555, "/sys"},
	{SP_MOUNT_DEV, 0, 0, "/dev"},
	{SP_MOUNT_WRITABLE, SP_MOUNT_F_NOEXEC, ALL_RIGHTS, "/dev/shm"},
	{SP_MOUNT_PROC, 0, 0, "/proc"},
};

static int add_places(struct sp_table_builder *builder)
{
	int status = 0;

	for (size_t i = 0; i < SP_ARRAY_SIZE(places) && status == 0; i++)
		status = sp_table_mount(builder, places[i].kind, places[i].flags, places[i].mode,
					"", places[i].target);
	if (status == 0 && has_mount_point(builder->pool, "/var/tmp"))
		status = sp_table_mount(builder, SP_MOUNT_WRITABLE, 0, ALL_RIGHTS, "", "/var/tmp");
	return status;
}

/* ---- layers and masks ---- */

struct cover {
	char path[PATH_MAX];
	const char *layer; /* source of a layer; NULL: a mask */
};

/* Paths of the configuration are shorter than SP_TABLE_PATH_MAX. */
static void copy_path(char to[PATH_MAX], const char *from)
{
	size_t len = strnlen(from, PATH_MAX - 1);

	memcpy(to, from, len);
	to[len] = '\0';
}

/* resolved = real, seen from the root, and the name below it; unchanged when that is no path of the
 * root's. */
static void join_below(const char *root, const char *real, const char *name,
		       char resolved[PATH_MAX])
{
	size_t root_len = strlen(root);
	const char *inside = real + root_len;

	if (strncmp(real, root, root_len) != 0 || (*inside != '/' && *inside != '\0') ||
	    strlen(inside) + strlen(name) >= PATH_MAX)
		return;
	if (strcmp(inside, "/") == 0 && *name != '\0')
		inside = "";
	if (*inside == '\0' && *name == '\0')
		return;
	memcpy(resolved, inside, strlen(inside));
	memcpy(resolved + strlen(inside), name, strlen(name) + 1);
}

/* Where the path really is below the root, all links resolved inside it. A name that does not exist
 * yet is kept below its real parent; what cannot be resolved at all stays as it is, and then a
 * sandbox whose mask meets a link refuses to start. */
static void resolve_inside(int root_fd, const char *root, const char *path, char resolved[PATH_MAX])
{
	const char *name = "";
	char parent[PATH_MAX];
	char link[64];
	char real[PATH_MAX];
	ssize_t len;
	SP_AUTO_CLOSE int fd = sp_sys_openat2(root_fd, path, O_PATH, 0, RESOLVE_IN_ROOT);

	copy_path(resolved, path);
	if (fd < 0) {
		name = strrchr(path, '/');
		copy_path(parent, path);
		parent[name - path + 1] = '\0';
		fd = sp_sys_openat2(root_fd, parent, O_PATH, 0, RESOLVE_IN_ROOT);
	}
	if (fd < 0)
		return;
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, real, sizeof(real) - 1);
	if (len < 0)
		return;
	real[len] = '\0';
	join_below(root, real, name, resolved);
}

static int by_path(const void *a, const void *b)
{
	const struct cover *x = a;
	const struct cover *y = b;
	int order = strcmp(x->path, y->path);

	if (order != 0)
		return order;
	return (x->layer == NULL) - (y->layer == NULL);
}

static bool is_below(const char *path, const char *ancestor)
{
	size_t len = strlen(ancestor);

	return strncmp(path, ancestor, len) == 0 && path[len] == '/';
}

static int add_layer(struct sp_table_builder *builder, const struct cover *cover)
{
	char *real = realpath(cover->layer, NULL);
	int status;

	if (!real)
		return sp_err_set(builder->err, -errno, "pool '%s': layer '%s'",
				  builder->pool->name, cover->layer);
	if (!has_mount_point(builder->pool, cover->path))
		status = sp_err_code(builder->err, SP_CODE_CONFIG_INVALID, -EINVAL,
				     "pool '%s': layer '%s': the root has no such directory and "
				     "none can be made there",
				     builder->pool->name, cover->layer);
	else
		status = sp_table_mount(builder, SP_MOUNT_BIND, SP_MOUNT_F_RECURSIVE, 0, real,
					cover->path);
	free(real);
	return status;
}

/* An empty cover takes no mount points. Where a layer follows below it, the cover is an empty
 * place that only init can write to. */
static int add_mask(struct sp_table_builder *builder, const struct cover *covers, size_t count,
		    size_t index)
{
	const char *path = covers[index].path;

	for (size_t i = index + 1; i < count; i++)
		if (covers[i].layer && is_below(covers[i].path, path))
			return sp_table_mount(builder, SP_MOUNT_WRITABLE, SP_MOUNT_F_NOEXEC, 0755,
					      "", path);
	return sp_table_mount(builder, SP_MOUNT_HIDE, SP_MOUNT_F_OPTIONAL, 0, "", path);
}

/* What of our own a host root would show: our state, and sockets that lead to us. */
static size_t own_paths(const struct sp_config *config, const char *paths[SP_CONFIG_LISTEN_MAX + 1])
{
	size_t count = 0;

	paths[count++] = config->state_dir;
	for (size_t i = 0; i < config->listen_count; i++)
		if (strncmp(config->listen[i], "unix://", 7) == 0)
			paths[count++] = config->listen[i] + 7;
	return count;
}

static int add_covers(struct sp_table_builder *builder, int root_fd, const char *root)
{
	const struct sp_config_pool *source = builder->source;
	const char *own[SP_CONFIG_LISTEN_MAX + 1];
	size_t own_count = strcmp(source->root, "host") == 0 ? own_paths(builder->config, own) : 0;
	size_t most = source->layer_count + source->mask_count + own_count;
	struct cover *covers = calloc(most + 1, sizeof(*covers));
	size_t count = 0;
	int status = 0;

	if (!covers)
		return sp_err_set(builder->err, -ENOMEM, "pool '%s'", builder->pool->name);
	for (size_t i = 0; i < source->layer_count; i++) {
		covers[count].layer = source->layers[i];
		copy_path(covers[count++].path, source->layers[i]);
	}
	for (size_t i = 0; i < source->mask_count; i++)
		resolve_inside(root_fd, root, source->masks[i], covers[count++].path);
	for (size_t i = 0; i < own_count; i++)
		resolve_inside(root_fd, root, own[i], covers[count++].path);
	qsort(covers, count, sizeof(*covers), by_path);
	for (size_t i = 0; i < count && status == 0; i++)
		status = covers[i].layer ? add_layer(builder, &covers[i])
					 : add_mask(builder, covers, count, i);
	free(covers);
	return status;
}

/* ---- the three roots ---- */

static int open_root(struct sp_table_builder *builder, const char *path)
{
	int fd = sp_sys_openat2(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0,
				RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);

	return fd >= 0 ? fd
		       : sp_err_set(builder->err, fd,
				    "pool '%s': open root '%s' (no symbolic link "
				    "is followed)",
				    builder->pool->name, path);
}

static bool has_entry(int dir_fd, const char *name)
{
	return faccessat(dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int add_system(struct sp_table_builder *builder, int root_fd)
{
	int status = add_system_entries(builder, root_fd);

	if (status == 0)
		status = sp_table_add_etc(builder, true);
	if (status == 0)
		status = sp_table_mount(builder, SP_MOUNT_DIR, 0, 0755, "", "/var");
	if (status == 0)
		status = sp_table_mount(builder, SP_MOUNT_SYMLINK, 0, 0, "/run", "/var/run");
	return status;
}

int sp_table_add_root(struct sp_table_builder *builder)
{
	const char *wish = builder->source->root;
	bool system = strcmp(wish, "system") == 0;
	bool directory = *wish == '/';
	const char *root = directory ? wish : "";
	SP_AUTO_CLOSE int fd = open_root(builder, directory ? wish : "/");
	int status;

	if (fd < 0)
		return fd;
	status = system ? add_system(builder, fd) : add_entries(builder, fd, root);
	if (status == 0 && !system && !has_entry(fd, "etc"))
		status = sp_table_add_etc(builder, !directory);
	if (status == 0)
		status = add_places(builder);
	if (status == 0)
		status = add_covers(builder, fd, root);
	return status;
}
