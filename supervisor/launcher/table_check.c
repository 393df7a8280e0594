/*
 * The one place that decides whether a table may be believed. Everything behind it indexes, adds
 * and copies without asking again, so each field that is used anywhere is checked here: counts
 * before what they count, offsets against the file's size without overflow, texts for their NUL.
 *
 * Used by the launcher on what the compiler left, and by the compiler on its own work. Reads the
 * mapped table, which is sealed against writing: what was checked stays as it was.
 */
#include "supervisor/launcher/table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ID_RANGE        65536u
#define MODE_BITS       01777u /* no set-id bits in a sandbox */
#define BPF_INSTRUCTION 8u
#define CPU_PERIOD_MIN  1000u
#define CPU_PERIOD_MAX  1000000u
#define PIDS_MAX        4194304u /* PID_MAX_LIMIT of the kernel */
#define WORKLOAD_ID_MAX 65532u   /* 65533 is the file helper's, 65534 the overflow id */

/* What the checks of one table share. `where` names the object in messages: "pool 'x'". */
struct check {
	const struct sp_table *table;
	size_t size;
	struct sp_err *err;
	char where[96];
};

static int bad(const struct check *check, const char *field)
{
	return sp_err_code(check->err, SP_CODE_CONFIG_INVALID, -EINVAL, "table: %s: bad '%s'",
			   check->where, field);
}

static int bad_mount(const struct check *check, uint32_t index, const char *field)
{
	return sp_err_code(check->err, SP_CODE_CONFIG_INVALID, -EINVAL,
			   "table: %s: mount %u: bad '%s'", check->where, index, field);
}

static bool terminated(const char *text, size_t size)
{
	return memchr(text, '\0', size) != NULL;
}

/* Absolute, no empty, "." or ".." component, no slash at the end; "/" alone is normal. */
static bool path_normal(const char *path)
{
	if (path[0] != '/')
		return false;
	if (path[1] == '\0')
		return true;
	while (*path == '/') {
		size_t len = strcspn(path + 1, "/");

		if (len == 0 || (len == 1 && path[1] == '.') ||
		    (len == 2 && path[1] == '.' && path[2] == '.'))
			return false;
		path += len + 1;
	}
	return true;
}

static bool path_field(const char *path)
{
	return terminated(path, SP_TABLE_PATH_MAX) && path_normal(path);
}

static bool hostname_valid(const char *name)
{
	static const char alphabet[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				       "0123456789.-";
	size_t len = strlen(name);

	return len >= 1 && strspn(name, alphabet) == len;
}

/* [offset, offset + length) lies in the part of the file that belongs to blobs. */
static bool blob_inside(const struct check *check, uint64_t offset, uint64_t length)
{
	uint64_t first =
		sizeof(struct sp_table) + check->table->pool_count * sizeof(struct sp_table_pool);

	return offset >= first && offset <= check->size && length <= check->size - offset;
}

static bool filter_valid(const struct check *check, uint64_t offset, uint32_t length)
{
	if (length == 0 && offset == 0)
		return true;
	return length <= SP_TABLE_BPF_MAX && length % BPF_INSTRUCTION == 0 &&
	       blob_inside(check, offset, length);
}

/* target is strictly below dir. */
static bool path_below(const char *target, const char *dir)
{
	size_t len = strlen(dir);

	return strncmp(target, dir, len) == 0 && target[len] == '/';
}

static bool below_tree(const struct sp_table_pool *pool, uint32_t index)
{
	for (uint32_t i = 0; i < index; i++)
		if (pool->mounts[i].kind == SP_MOUNT_TREE &&
		    path_below(pool->mounts[index].target, pool->mounts[i].target))
			return true;
	return false;
}

static int check_source(const struct check *check, const struct sp_table_pool *pool, uint32_t index)
{
	const struct sp_table_mount *mount = &pool->mounts[index];

	if (!terminated(mount->source, sizeof(mount->source)))
		return bad_mount(check, index, "source");
	switch (mount->kind) {
	case SP_MOUNT_BIND:
		return path_normal(mount->source) ? 0 : bad_mount(check, index, "source");
	case SP_MOUNT_SYMLINK:
		return mount->source[0] != '\0' ? 0 : bad_mount(check, index, "source");
	case SP_MOUNT_FILE:
		if (mount->blob_length > SP_TABLE_FILE_MAX ||
		    !blob_inside(check, mount->blob_offset, mount->blob_length))
			return bad_mount(check, index, "blob");
		return below_tree(pool, index) ? 0 : bad_mount(check, index, "target");
	case SP_MOUNT_TREE:
		return below_tree(pool, index) ? bad_mount(check, index, "target") : 0;
	case SP_MOUNT_DIR:
	case SP_MOUNT_WRITABLE:
	case SP_MOUNT_HIDE:
	case SP_MOUNT_DEV:
	case SP_MOUNT_PROC:
		return 0;
	default:
		return bad_mount(check, index, "kind");
	}
}

static int check_mount(const struct check *check, const struct sp_table_pool *pool, uint32_t index)
{
	const struct sp_table_mount *mount = &pool->mounts[index];

	if ((mount->flags & ~SP_MOUNT_F_ALL) != 0)
		return bad_mount(check, index, "flags");
	if ((mount->mode & ~MODE_BITS) != 0)
		return bad_mount(check, index, "mode");
	if (!path_field(mount->target) || mount->target[1] == '\0')
		return bad_mount(check, index, "target");
	return check_source(check, pool, index);
}

static int check_limits(const struct check *check, const struct sp_table_pool *pool)
{
	if (pool->max_sandboxes > SP_TABLE_SANDBOXES_MAX)
		return bad(check, "max_sandboxes");
	if (pool->memory_bytes > INT64_MAX)
		return bad(check, "memory_bytes");
	if (pool->pids > PIDS_MAX)
		return bad(check, "pids");
	if (pool->cpu_quota_us == 0)
		return 0;
	if (pool->cpu_period_us < CPU_PERIOD_MIN || pool->cpu_period_us > CPU_PERIOD_MAX)
		return bad(check, "cpu_period_us");
	if (pool->cpu_quota_us < CPU_PERIOD_MIN || pool->cpu_quota_us > INT64_MAX / 1000)
		return bad(check, "cpu_quota_us");
	return 0;
}

static bool workload_id(uint32_t id)
{
	return id >= 1 && id <= WORKLOAD_ID_MAX;
}

static int check_direct(const struct check *check, const struct sp_table_pool *pool)
{
	if (pool->direct_uid == 0 || pool->direct_uid == UINT32_MAX)
		return bad(check, "direct_uid");
	if (pool->direct_gid == 0 || pool->direct_gid == UINT32_MAX)
		return bad(check, "direct_gid");
	if (pool->mount_count != 0)
		return bad(check, "mount_count");
	return 0;
}

static int check_inside(const struct check *check, const struct sp_table_pool *pool)
{
	if (!hostname_valid(pool->hostname))
		return bad(check, "hostname");
	if (!workload_id(pool->workload_uid))
		return bad(check, "workload_uid");
	if (!workload_id(pool->workload_gid))
		return bad(check, "workload_gid");
	if (pool->tmp_bytes == 0 || pool->tmp_bytes > INT64_MAX)
		return bad(check, "tmp_bytes");
	if (pool->tmp_inodes == 0 || pool->tmp_inodes > INT64_MAX)
		return bad(check, "tmp_inodes");
	if (pool->filter_length == 0)
		return bad(check, "filter_length");
	if (pool->mount_count > SP_TABLE_MOUNTS_MAX)
		return bad(check, "mount_count");
	for (uint32_t i = 0; i < pool->mount_count; i++) {
		int status = check_mount(check, pool, i);

		if (status < 0)
			return status;
	}
	return 0;
}

static int check_roots(const struct check *check, const struct sp_table_pool *pool)
{
	if (pool->root_count > SP_TABLE_ROOTS_MAX)
		return bad(check, "root_count");
	for (uint32_t i = 0; i < pool->root_count; i++) {
		const struct sp_table_root *root = &pool->roots[i];

		if ((root->flags & ~SP_ROOT_F_ALL) != 0 || root->reserved != 0)
			return bad(check, "root flags");
		if (!path_field(root->path))
			return bad(check, "root path");
	}
	return 0;
}

static int check_pool(struct check *check, const struct sp_table_pool *pool)
{
	int status;

	if (!terminated(pool->name, sizeof(pool->name)) || !sp_pool_name_valid(pool->name))
		return bad(check, "name");
	(void)snprintf(check->where, sizeof(check->where), "pool '%s'", pool->name);
	if ((pool->flags & ~SP_POOL_F_ALL) != 0)
		return bad(check, "flags");
	if (pool->reserved != 0)
		return bad(check, "reserved");
	if (!terminated(pool->hostname, sizeof(pool->hostname)))
		return bad(check, "hostname");
	if (pool->rlimit_nofile == 0)
		return bad(check, "rlimit_nofile");
	if (!filter_valid(check, pool->filter_offset, pool->filter_length))
		return bad(check, "filter");
	if (!filter_valid(check, pool->exec_filter_offset, pool->exec_filter_length))
		return bad(check, "exec_filter");
	status = check_limits(check, pool);
	if (status == 0)
		status = check_roots(check, pool);
	if (status == 0)
		status = (pool->flags & SP_POOL_F_DIRECT) != 0 ? check_direct(check, pool)
							       : check_inside(check, pool);
	return status;
}

static int check_uids(const struct check *check)
{
	const struct sp_table *table = check->table;

	if (table->uid_count > SP_TABLE_SANDBOXES_MAX)
		return bad(check, "uid_count");
	if (table->uid_base == 0)
		return 0;
	/* The first 65,536 ids are the host's own; the last id is (uid_t)-1. */
	if (table->uid_base < ID_RANGE ||
	    table->uid_base + (uint64_t)table->uid_count * ID_RANGE > UINT32_MAX)
		return bad(check, "uid_base");
	return table->uid_count > 0 ? 0 : bad(check, "uid_count");
}

static int check_header(struct check *check)
{
	const struct sp_table *table = check->table;

	(void)snprintf(check->where, sizeof(check->where), "header");
	if (check->size < sizeof(*table) || check->size > SP_TABLE_SIZE_MAX)
		return bad(check, "size");
	if (table->magic != SP_TABLE_MAGIC)
		return bad(check, "magic");
	if (table->version != SP_TABLE_VERSION)
		return bad(check, "version");
	if (table->build_id != SP_BUILD_ID)
		return sp_err_code(check->err, SP_CODE_CONFIG_INVALID, -EINVAL,
				   "table: %s: bad 'build_id': sandpool-compile is of build "
				   "%016" PRIx64 ", sandpool-launcher of build %016" PRIx64
				   ": install programs of one build, then restart",
				   check->where, table->build_id, (uint64_t)SP_BUILD_ID);
	if (table->file_size != check->size)
		return bad(check, "file_size");
	if (table->reserved != 0)
		return bad(check, "reserved");
	if (table->pool_count == 0 || table->pool_count > SP_TABLE_POOLS_MAX ||
	    table->pool_count * sizeof(struct sp_table_pool) > check->size - sizeof(*table))
		return bad(check, "pool_count");
	if (!terminated(table->instance, sizeof(table->instance)) ||
	    !sp_pool_name_valid(table->instance))
		return bad(check, "instance");
	if (!path_field(table->state_dir))
		return bad(check, "state_dir");
	return check_uids(check);
}

int sp_table_check(const struct sp_table *table, size_t size, struct sp_err *err)
{
	struct check check = {.table = table, .size = size, .err = err};
	const struct sp_table_pool *pools = sp_table_pools(table);
	int status = check_header(&check);

	if (status < 0)
		return status;
	for (uint32_t i = 0; i < table->pool_count; i++) {
		(void)snprintf(check.where, sizeof(check.where), "pool %u", i);
		status = check_pool(&check, &pools[i]);
		if (status < 0)
			return status;
		for (uint32_t j = 0; j < i; j++)
			if (strcmp(pools[j].name, pools[i].name) == 0)
				return bad(&check, "name");
	}
	return 0;
}
