/*
 * The boot record. The input is laid over a valid one, piece by piece (offset, length, bytes).
 * Property: a record that passes has its programs inside, its texts ended and its targets normal.
 */
#include "tests/fuzz/fuzz.h"

#include "supervisor/init/boot_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXTRA 64u

static void fill(struct sp_boot *boot)
{
	memset(boot, 0, sizeof(*boot) + EXTRA);
	boot->magic = SP_BOOT_MAGIC;
	boot->build_id = SP_BUILD_ID;
	boot->size = sizeof(*boot) + EXTRA;
	boot->filter_offset = sizeof(*boot);
	boot->filter_length = EXTRA / 2;
	boot->exec_filter_offset = sizeof(*boot) + EXTRA / 2;
	boot->exec_filter_length = EXTRA / 2;
	boot->pool.hostname[0] = 'h';
	boot->pool.workload_uid = 1000;
	boot->pool.workload_gid = 1000;
	boot->pool.tmp_bytes = 1;
	boot->pool.tmp_inodes = 1;
	boot->pool.rlimit_nofile = 16;
	boot->pool.mount_count = 2;
	boot->pool.mounts[0].kind = SP_MOUNT_DIR;
	memcpy(boot->pool.mounts[0].target, "/a", 3);
	boot->pool.mounts[1].kind = SP_MOUNT_SYMLINK;
	memcpy(boot->pool.mounts[1].source, "a", 2);
	memcpy(boot->pool.mounts[1].target, "/b/c", 5);
}

static void use(const struct sp_boot *boot, size_t size)
{
	const struct sp_table_pool *pool = &boot->pool;

	require(boot->size == size);
	if ((pool->flags & SP_POOL_F_DIRECT) != 0) {
		require(pool->direct_uid != 0 && pool->direct_gid != 0);
		return;
	}
	require(boot->filter_offset + boot->filter_length <= size);
	require(boot->exec_filter_offset + boot->exec_filter_length <= size);
	require(strnlen(pool->hostname, sizeof(pool->hostname)) < sizeof(pool->hostname));
	require(pool->mount_count <= SP_TABLE_MOUNTS_MAX);
	for (uint32_t i = 0; i < pool->mount_count; i++) {
		require(memchr(pool->mounts[i].source, '\0', SP_TABLE_PATH_MAX) != NULL);
		require(memchr(pool->mounts[i].target, '\0', SP_TABLE_PATH_MAX) != NULL);
		require(init_path_normal(pool->mounts[i].target));
		require(strstr(pool->mounts[i].target, "/../") == NULL);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const size_t whole = sizeof(struct sp_boot) + EXTRA;
	struct sp_boot *boot = malloc(whole);
	const char *field = NULL;

	require(boot != NULL);
	fill(boot);
	while (size > 4) {
		size_t offset =
			((size_t)data[0] | (size_t)data[1] << 8 | (size_t)data[2] << 16) % whole;
		size_t len = SP_MIN(SP_MIN((size_t)data[3], size - 4), whole - offset);

		memcpy((char *)boot + offset, data + 4, len);
		data += 4 + len;
		size -= 4 + len;
	}
	if (init_boot_check(boot, whole, &field) == 0)
		use(boot, whole);
	else
		require(field != NULL);
	free(boot);
	return 0;
}
