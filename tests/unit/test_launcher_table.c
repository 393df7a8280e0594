/*
 * sp_table_check(): every field that the launcher uses, at its limit and beyond it, with the
 * field's name in the message.
 */
#include "supervisor/launcher/table.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOB 64u

static struct sp_table *table;
static struct sp_table_pool *pools;
static size_t size;

static struct sp_table_mount *add_mount(struct sp_table_pool *pool, uint32_t kind,
					const char *source, const char *target)
{
	struct sp_table_mount *mount = &pool->mounts[pool->mount_count++];

	mount->kind = kind;
	(void)snprintf(mount->source, sizeof(mount->source), "%s", source);
	(void)snprintf(mount->target, sizeof(mount->target), "%s", target);
	return mount;
}

static void make_table(void)
{
	uint64_t blobs = sizeof(*table) + 2 * sizeof(struct sp_table_pool);

	size = blobs + BLOB;
	table = calloc(1, size);
	cr_assert(table != NULL);
	pools = (struct sp_table_pool *)(void *)(table + 1);
	table->magic = SP_TABLE_MAGIC;
	table->version = SP_TABLE_VERSION;
	table->build_id = SP_BUILD_ID;
	table->file_size = size;
	table->pool_count = 2;
	table->uid_base = 65536;
	table->uid_count = 100;
	(void)snprintf(table->instance, sizeof(table->instance), "%s", "default");
	(void)snprintf(table->state_dir, sizeof(table->state_dir), "%s", "/var/lib/sandpool");
	for (int i = 0; i < 2; i++) {
		struct sp_table_pool *pool = &pools[i];
		struct sp_table_mount *file;

		(void)snprintf(pool->name, sizeof(pool->name), "%s", i == 0 ? "a" : "b");
		(void)snprintf(pool->hostname, sizeof(pool->hostname), "%s", "sandbox");
		pool->workload_uid = 1000;
		pool->workload_gid = 1000;
		pool->max_sandboxes = 10;
		pool->tmp_bytes = 4096;
		pool->tmp_inodes = 10;
		pool->rlimit_nofile = 64;
		pool->filter_offset = blobs;
		pool->filter_length = 16;
		pool->exec_filter_offset = blobs + 16;
		pool->exec_filter_length = 8;
		(void)add_mount(pool, SP_MOUNT_BIND, "/usr", "/usr");
		(void)add_mount(pool, SP_MOUNT_TREE, "", "/etc");
		file = add_mount(pool, SP_MOUNT_FILE, "", "/etc/passwd");
		file->blob_offset = blobs + 24;
		file->blob_length = 10;
		pool->roots[0] = (struct sp_table_root){.path = "/srv"};
		pool->root_count = 1;
	}
}

static void free_table(void)
{
	free(table);
}

TestSuite(launcher_table, .init = make_table, .fini = free_table);

static void good(void)
{
	struct sp_err err = {0};

	cr_assert(sp_table_check(table, size, &err) == 0, "%s", err.message);
}

static void bad(const char *field)
{
	struct sp_err err = {0};
	char quoted[64];

	(void)snprintf(quoted, sizeof(quoted), "bad '%s'", field);
	cr_assert(sp_table_check(table, size, &err) == -EINVAL, "'%s' was accepted", field);
	cr_assert(strstr(err.message, quoted) != NULL, "%s", err.message);
}

/* Set a field to one value after the other; restores it. */
#define REFUSED(lvalue, value, name)                 \
	do {                                         \
		__typeof__(lvalue) saved = (lvalue); \
		(lvalue) = (value);                  \
		bad(name);                           \
		(lvalue) = saved;                    \
		good();                              \
	} while (0)
#define ACCEPTED(lvalue, value)                      \
	do {                                         \
		__typeof__(lvalue) saved = (lvalue); \
		(lvalue) = (value);                  \
		good();                              \
		(lvalue) = saved;                    \
	} while (0)

static void text(char *field, size_t field_size, const char *value, const char *name)
{
	char saved[SP_TABLE_PATH_MAX];

	memcpy(saved, field, field_size);
	(void)snprintf(field, field_size, "%s", value);
	if (name)
		bad(name);
	else
		good();
	memcpy(field, saved, field_size);
}

Test(launcher_table, header)
{
	good();
	REFUSED(table->magic, 0, "magic");
	REFUSED(table->version, SP_TABLE_VERSION + 1, "version");
	REFUSED(table->build_id, SP_BUILD_ID + 1, "build_id");
	REFUSED(table->file_size, size + 1, "file_size");
	REFUSED(table->reserved, 1, "reserved");
	REFUSED(table->pool_count, 0, "pool_count");
	REFUSED(table->pool_count, 3, "pool_count");
	REFUSED(table->pool_count, SP_TABLE_POOLS_MAX + 1, "pool_count");
	REFUSED(table->pool_count, UINT32_MAX, "pool_count");
	text(table->instance, sizeof(table->instance), "", "instance");
	text(table->instance, sizeof(table->instance), "../x", "instance");
	text(table->state_dir, sizeof(table->state_dir), "var", "state_dir");
}

Test(launcher_table, size)
{
	size_t saved = size;

	for (size = 0; size < sizeof(*table); size += 8)
		bad("size");
	size = saved - 1;
	bad("file_size");
	size = saved;
	good();
}

Test(launcher_table, uid_ranges)
{
	REFUSED(table->uid_count, SP_TABLE_SANDBOXES_MAX + 1, "uid_count");
	ACCEPTED(table->uid_count, SP_TABLE_SANDBOXES_MAX);
	REFUSED(table->uid_count, 0, "uid_count");
	REFUSED(table->uid_base, 65535, "uid_base");
	ACCEPTED(table->uid_base, 0);
	REFUSED(table->uid_base, UINT32_MAX, "uid_base");
	table->uid_count = 1;
	ACCEPTED(table->uid_base, UINT32_MAX - 65536);
	REFUSED(table->uid_base, UINT32_MAX - 65535, "uid_base");
}

Test(launcher_table, names)
{
	text(pools[0].name, sizeof(pools[0].name), "", "name");
	text(pools[0].name, sizeof(pools[0].name), "A", "name");
	text(pools[0].name, sizeof(pools[0].name), "b", "name"); /* twice */
	text(pools[1].name, sizeof(pools[1].name), "c", NULL);
	text(pools[0].hostname, sizeof(pools[0].hostname), "", "hostname");
	text(pools[0].hostname, sizeof(pools[0].hostname), "a b", "hostname");
	memset(pools[0].name, 'a', sizeof(pools[0].name)); /* no NUL */
	bad("name");
}

Test(launcher_table, limits)
{
	struct sp_table_pool *pool = &pools[1];

	REFUSED(pool->flags, 0x8, "flags");
	REFUSED(pool->max_sandboxes, SP_TABLE_SANDBOXES_MAX + 1, "max_sandboxes");
	ACCEPTED(pool->max_sandboxes, SP_TABLE_SANDBOXES_MAX);
	REFUSED(pool->memory_bytes, UINT64_MAX, "memory_bytes");
	REFUSED(pool->pids, 4194305, "pids");
	ACCEPTED(pool->pids, 4194304);
	REFUSED(pool->cpu_quota_us, 1000, "cpu_period_us"); /* of 0 */
	pool->cpu_period_us = 1000000;
	ACCEPTED(pool->cpu_quota_us, 1000);
	REFUSED(pool->cpu_quota_us, 999, "cpu_quota_us");
	pool->cpu_quota_us = 1000;
	REFUSED(pool->cpu_period_us, 1000001, "cpu_period_us");
	REFUSED(pool->rlimit_nofile, 0, "rlimit_nofile");
	REFUSED(pool->tmp_bytes, 0, "tmp_bytes");
	REFUSED(pool->tmp_inodes, 0, "tmp_inodes");
	REFUSED(pool->workload_uid, 0, "workload_uid");
	REFUSED(pool->workload_uid, 65533, "workload_uid");
	ACCEPTED(pool->workload_uid, 65532);
	REFUSED(pool->workload_gid, 0, "workload_gid");
	REFUSED(pool->reserved, 1, "reserved");
}

Test(launcher_table, filters)
{
	struct sp_table_pool *pool = &pools[0];
	uint64_t blobs = pool->filter_offset;

	REFUSED(pool->filter_length, 0, "filter_length");
	REFUSED(pool->filter_length, 12, "filter");
	REFUSED(pool->filter_length, SP_TABLE_BPF_MAX + 8, "filter");
	REFUSED(pool->filter_length, BLOB + 8, "filter");
	ACCEPTED(pool->filter_length, BLOB);
	REFUSED(pool->filter_offset, blobs - 8, "filter");
	REFUSED(pool->filter_offset, UINT64_MAX, "filter");
	REFUSED(pool->filter_offset, UINT64_MAX - 7, "filter");
	ACCEPTED(pool->exec_filter_length, 0);
	pool->exec_filter_length = 0; /* an empty one is nowhere, or inside as well */
	ACCEPTED(pool->exec_filter_offset, 0);
	REFUSED(pool->exec_filter_offset, UINT64_MAX, "exec_filter");
	pool->exec_filter_length = 8;
	REFUSED(pool->exec_filter_offset, size, "exec_filter");
	ACCEPTED(pool->exec_filter_offset, size - 8);
}

Test(launcher_table, roots)
{
	struct sp_table_pool *pool = &pools[0];

	REFUSED(pool->root_count, SP_TABLE_ROOTS_MAX + 1, "root_count");
	REFUSED(pool->root_count, 2, "root path"); /* an empty one */
	REFUSED(pool->roots[0].flags, 0x4, "root flags");
	REFUSED(pool->roots[0].reserved, 1, "root flags");
	text(pool->roots[0].path, sizeof(pool->roots[0].path), "/srv/", "root path");
	text(pool->roots[0].path, sizeof(pool->roots[0].path), "/srv/../etc", "root path");
	text(pool->roots[0].path, sizeof(pool->roots[0].path), "/./srv", "root path");
	text(pool->roots[0].path, sizeof(pool->roots[0].path), "//srv", "root path");
	text(pool->roots[0].path, sizeof(pool->roots[0].path), "/", NULL);
	text(pool->roots[0].path, sizeof(pool->roots[0].path), "/..srv/.a/b..", NULL);
	memset(pool->roots[0].path, '/', 1);
	memset(pool->roots[0].path + 1, 'a', sizeof(pool->roots[0].path) - 1);
	bad("root path");
}

Test(launcher_table, mounts)
{
	struct sp_table_pool *pool = &pools[0];
	struct sp_table_mount *bind = &pool->mounts[0];
	struct sp_table_mount *file = &pool->mounts[2];

	REFUSED(pool->mount_count, SP_TABLE_MOUNTS_MAX + 1, "mount_count");
	REFUSED(pool->mount_count, 4, "target");
	REFUSED(bind->kind, 0, "kind");
	REFUSED(bind->kind, SP_MOUNT_PROC + 1, "kind");
	REFUSED(bind->kind, SP_MOUNT_FILE, "blob");
	REFUSED(bind->flags, 0x10, "flags");
	REFUSED(bind->mode, 04755, "mode");
	ACCEPTED(bind->mode, 01777);
	text(bind->source, sizeof(bind->source), "usr", "source");
	text(bind->target, sizeof(bind->target), "/", "target");
	text(bind->target, sizeof(bind->target), "/a/../b", "target");
	text(bind->target, sizeof(bind->target), "relative", "target");
	REFUSED(file->blob_length, SP_TABLE_FILE_MAX + 1, "blob");
	REFUSED(file->blob_length, BLOB - 24 + 1, "blob");
	ACCEPTED(file->blob_length, BLOB - 24);
	REFUSED(file->blob_offset, 0, "blob");
	text(file->target, sizeof(file->target), "/etcpasswd", "target");
	text(file->target, sizeof(file->target), "/etc", "target");
	(void)add_mount(pool, SP_MOUNT_TREE, "", "/etc/inner");
	bad("target");
	pool->mounts[3].kind = SP_MOUNT_SYMLINK;
	bad("source");
	(void)snprintf(pool->mounts[3].source, sizeof(pool->mounts[3].source), "%s", "..");
	good();
	memset(pool->mounts[3].source, 'a', sizeof(pool->mounts[3].source));
	bad("source");
}

Test(launcher_table, direct)
{
	struct sp_table_pool *pool = &pools[0];

	pool->flags = SP_POOL_F_DIRECT;
	bad("direct_uid");
	pool->direct_uid = 1;
	bad("direct_gid");
	pool->direct_gid = UINT32_MAX;
	bad("direct_gid");
	pool->direct_gid = 1;
	bad("mount_count");
	pool->mount_count = 0;
	good();
	ACCEPTED(pool->filter_length, 0);
	REFUSED(pool->direct_uid, UINT32_MAX, "direct_uid");
}
