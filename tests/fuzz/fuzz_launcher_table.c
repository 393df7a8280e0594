/* libs: sp_launcher */
/*
 * A table that sp_table_check() accepts can be walked without reading beyond its end: every text is
 * terminated inside its field, every blob lies in the file. The input is laid over a good header,
 * so that what follows is reached.
 */
#include "supervisor/launcher/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile unsigned int sink;

static void read_all(const void *data, size_t len)
{
	for (size_t i = 0; i < len; i++)
		sink += ((const unsigned char *)data)[i];
}

static void walk(const struct sp_table *table)
{
	const struct sp_table_pool *pools = sp_table_pools(table);
	const char *file = (const char *)table;

	for (uint32_t i = 0; i < table->pool_count; i++) {
		const struct sp_table_pool *pool = &pools[i];

		sp_assert(strlen(pool->name) < sizeof(pool->name));
		sp_assert(strlen(pool->hostname) < sizeof(pool->hostname));
		read_all(file + pool->filter_offset, pool->filter_length);
		read_all(file + pool->exec_filter_offset, pool->exec_filter_length);
		for (uint32_t j = 0; j < pool->root_count; j++)
			sp_assert(strlen(pool->roots[j].path) < SP_TABLE_PATH_MAX);
		for (uint32_t j = 0; j < pool->mount_count; j++) {
			const struct sp_table_mount *mount = &pool->mounts[j];

			sp_assert(mount->target[0] == '/' &&
				  strlen(mount->target) < SP_TABLE_PATH_MAX);
			sp_assert(strlen(mount->source) < SP_TABLE_PATH_MAX);
			if (mount->kind == SP_MOUNT_FILE)
				read_all(file + mount->blob_offset, mount->blob_length);
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t total = sizeof(struct sp_table) + sizeof(struct sp_table_pool) + 64;
	struct sp_table *table = calloc(1, total);
	struct sp_table_pool *pool = (struct sp_table_pool *)(void *)(table + 1);

	if (!table)
		return 0;
	*table = (struct sp_table){
		.magic = SP_TABLE_MAGIC,
		.version = SP_TABLE_VERSION,
		.build_id = SP_BUILD_ID,
		.file_size = total,
		.pool_count = 1,
		.uid_base = 65536,
		.uid_count = 1,
		.instance = "fuzz",
		.state_dir = "/fuzz",
	};
	(void)snprintf(pool->name, sizeof(pool->name), "%s", "fuzz");
	(void)snprintf(pool->hostname, sizeof(pool->hostname), "%s", "fuzz");
	pool->workload_uid = 1000;
	pool->workload_gid = 1000;
	pool->tmp_bytes = 1;
	pool->tmp_inodes = 1;
	pool->rlimit_nofile = 1;
	pool->filter_offset = total - 64;
	pool->filter_length = 64;
	/* Two bytes say where the next piece goes, one how long it is. */
	while (size > 3) {
		size_t at = ((size_t)data[0] << 8 | data[1]) * 2 % total;
		size_t len = SP_MIN(SP_MIN((size_t)data[2] + 1, size - 3), total - at);

		memcpy((char *)table + at, data + 3, len);
		data += 3 + len;
		size -= 3 + len;
	}
	if (sp_table_check(table, total, NULL) == 0)
		walk(table);
	free(table);
	return 0;
}
