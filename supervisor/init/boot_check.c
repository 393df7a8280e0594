/*
 * Checks of the boot record. Pure: reads nothing but the `size` bytes it is given.
 */
#include "supervisor/init/boot_check.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#define BPF_STEP      8u /* sizeof(struct sock_filter) */
#define BPF_ALIGNMENT 8u
#define NOFILE_MIN    3u

static bool text_ends(const char *text, size_t size)
{
	return memchr(text, '\0', size) != NULL;
}

bool init_path_normal(const char *path)
{
	if (path[0] != '/')
		return false;
	while (*path == '/') {
		const char *name = path + 1;
		size_t len = strcspn(name, "/");

		if (len == 0 || len > NAME_MAX || (len == 1 && name[0] == '.') ||
		    (len == 2 && name[0] == '.' && name[1] == '.'))
			return false;
		path = name + len;
	}
	return true;
}

static const char *check_mount(const struct sp_table_mount *mount)
{
	if (mount->kind < SP_MOUNT_BIND || mount->kind > SP_MOUNT_PROC)
		return "mount.kind";
	if ((mount->flags & ~SP_MOUNT_F_ALL) != 0)
		return "mount.flags";
	if ((mount->mode & ~01777u) != 0)
		return "mount.mode";
	if (!text_ends(mount->source, sizeof(mount->source)))
		return "mount.source";
	if (mount->kind == SP_MOUNT_SYMLINK && mount->source[0] == '\0')
		return "mount.source";
	if (!text_ends(mount->target, sizeof(mount->target)) || !init_path_normal(mount->target))
		return "mount.target";
	return NULL;
}

static bool program_inside(uint64_t offset, uint32_t length, uint64_t size)
{
	if (length == 0 || length % BPF_STEP != 0 || length > SP_TABLE_BPF_MAX)
		return false;
	return offset >= sizeof(struct sp_boot) && offset % BPF_ALIGNMENT == 0 && offset <= size &&
	       length <= size - offset;
}

static const char *check_ids(const struct sp_boot *record)
{
	const struct sp_table_pool *pool = &record->pool;

	if ((pool->flags & SP_POOL_F_DIRECT) != 0) {
		if (pool->direct_uid == 0 || pool->direct_uid == UINT32_MAX)
			return "direct_uid";
		if (pool->direct_gid == 0 || pool->direct_gid == UINT32_MAX)
			return "direct_gid";
		return NULL;
	}
	if (pool->workload_uid == 0 || pool->workload_uid >= INIT_ID_NOBODY)
		return "workload_uid";
	if (pool->workload_gid == 0 || pool->workload_gid >= INIT_ID_NOBODY)
		return "workload_gid";
	return NULL;
}

static const char *check_pool(const struct sp_boot *record)
{
	const struct sp_table_pool *pool = &record->pool;

	if ((pool->flags & ~SP_POOL_F_ALL) != 0)
		return "flags";
	if (pool->rlimit_nofile < NOFILE_MIN)
		return "rlimit_nofile";
	if ((pool->flags & SP_POOL_F_DIRECT) != 0)
		return NULL;
	if (!text_ends(pool->hostname, sizeof(pool->hostname)) || pool->hostname[0] == '\0')
		return "hostname";
	if (pool->tmp_bytes == 0 || pool->tmp_bytes > INT64_MAX)
		return "tmp_bytes";
	if (pool->tmp_inodes == 0 || pool->tmp_inodes > INT64_MAX)
		return "tmp_inodes";
	if (pool->mount_count > SP_TABLE_MOUNTS_MAX)
		return "mount_count";
	for (uint32_t i = 0; i < pool->mount_count; i++) {
		const char *field = check_mount(&pool->mounts[i]);

		if (field)
			return field;
	}
	if (!program_inside(record->filter_offset, record->filter_length, record->size))
		return "filter";
	if (!program_inside(record->exec_filter_offset, record->exec_filter_length, record->size))
		return "exec_filter";
	return NULL;
}

static const char *check_header(const struct sp_boot *record, size_t size)
{
	if (size < sizeof(*record))
		return "size";
	if (record->magic != SP_BOOT_MAGIC)
		return "magic";
	if (record->build_id != SP_BUILD_ID)
		return "build_id";
	if (record->size != size)
		return "size";
	if (record->pool_index >= SP_TABLE_POOLS_MAX)
		return "pool_index";
	if (record->rootless > 1)
		return "rootless";
	if (record->reserved != 0)
		return "reserved";
	for (size_t i = 0; i < SP_TABLE_MOUNTS_MAX; i++)
		if (record->absent[i] > 1)
			return "absent";
	return NULL;
}

int init_boot_check(const struct sp_boot *record, size_t size, const char **ret_field)
{
	const char *field = check_header(record, size);

	if (!field)
		field = check_pool(record);
	if (!field)
		field = check_ids(record);
	if (!field)
		return 0;
	*ret_field = field;
	return -EINVAL;
}
