/*
 * The launcher's table: header, pools, blobs. Runs as root on root-owned input; its result is
 * checked by the same function that the launcher uses, so that a mistake here is reported with the
 * configuration, not at the next start.
 */
#include "supervisor/config/table_build.h"

#include "pool/base/fd.h"
#include "supervisor/config/table_mounts.h"
#include "supervisor/sandbox/memfd.h"
#include "supervisor/sandbox/seccomp_compile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORKLOAD_ID      1000u
#define CPU_PERIOD_US    100000u
#define CPU_QUOTA_MIN_US 1000u
#define LEASED_ROOM      4096u /* live ones beyond the idle ones, where max_total sets no cap */
#define BLOB_ALIGN       8u

int sp_table_add_blob(struct sp_table_builder *builder, const void *data, size_t len,
		      uint64_t *ret_offset)
{
	static const char padding[BLOB_ALIGN] = "";
	const char *known = builder->blobs.len >= len && len > 0
				    ? memmem(builder->blobs.data, builder->blobs.len, data, len)
				    : NULL;
	size_t rest = builder->blobs.len % BLOB_ALIGN;
	int status = 0;

	if (known && (size_t)(known - builder->blobs.data) % BLOB_ALIGN == 0) {
		*ret_offset = builder->blobs_start + (uint64_t)(known - builder->blobs.data);
		return 0;
	}
	if (rest != 0)
		status = sp_buf_append(&builder->blobs, padding, BLOB_ALIGN - rest);
	*ret_offset = builder->blobs_start + builder->blobs.len;
	return status < 0 ? status : sp_buf_append(&builder->blobs, data, len);
}

/* ---- filters ---- */

static int read_profile(const char *path, struct sp_buf *out, struct sp_err *err)
{
	SP_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	char *room;
	ssize_t len;

	if (fd < 0)
		return sp_err_set(err, -errno, "open seccomp profile '%s'", path);
	room = sp_buf_reserve(out, SP_CONFIG_FILE_MAX);
	if (!room)
		return sp_err_set(err, -ENOMEM, "read seccomp profile '%s'", path);
	len = sp_read_all(fd, room, SP_CONFIG_FILE_MAX);
	if (len < 0)
		return sp_err_set(err, (int)len, "read seccomp profile '%s'", path);
	out->len += (size_t)len;
	return 0;
}

static int compile_filters(const char *profile, struct sp_seccomp_program *init,
			   struct sp_seccomp_program *exec, struct sp_err *err)
{
	struct sp_buf text;
	int status;

	if (!profile)
		return sp_seccomp_compile(init, exec, err);
	sp_buf_init(&text, SP_CONFIG_FILE_MAX);
	status = read_profile(profile, &text, err);
	if (status == 0)
		status = sp_seccomp_compile_oci(text.data, text.len, init, exec, err);
	sp_buf_done(&text);
	return status < 0 ? sp_err_wrap(err, status, "seccomp profile '%s'", profile) : 0;
}

/* Compiling takes milliseconds: an earlier pool with the same profile has done it. */
static bool copy_filters(struct sp_table_builder *builder, size_t index)
{
	const struct sp_config_pool *pools = builder->config->pools;

	for (size_t i = 0; i < index; i++) {
		const char *a = pools[i].seccomp_profile;
		const char *b = builder->source->seccomp_profile;
		const struct sp_table_pool *from = &builder->pools[i];

		if (pools[i].direct || !a != !b || (a && strcmp(a, b) != 0))
			continue;
		builder->pool->filter_offset = from->filter_offset;
		builder->pool->filter_length = from->filter_length;
		builder->pool->exec_filter_offset = from->exec_filter_offset;
		builder->pool->exec_filter_length = from->exec_filter_length;
		return true;
	}
	return false;
}

static int add_filters(struct sp_table_builder *builder, size_t index)
{
	struct sp_seccomp_program init = {0};
	struct sp_seccomp_program exec = {0};
	struct sp_table_pool *pool = builder->pool;
	int status;

	if (copy_filters(builder, index))
		return 0;
	status = compile_filters(builder->source->seccomp_profile, &init, &exec, builder->err);
	if (status < 0)
		return sp_err_wrap(builder->err, status, "pool '%s'", pool->name);
	status = sp_table_add_blob(builder, init.bytes, init.length, &pool->filter_offset);
	if (status == 0)
		status = sp_table_add_blob(builder, exec.bytes, exec.length,
					   &pool->exec_filter_offset);
	pool->filter_length = init.length;
	pool->exec_filter_length = exec.length;
	sp_seccomp_program_done(&init);
	sp_seccomp_program_done(&exec);
	return status < 0 ? sp_err_set(builder->err, status, "pool '%s': keep filters", pool->name)
			  : 0;
}

/* ---- a pool ---- */

static uint32_t pool_flags(const struct sp_config *config, const struct sp_config_pool *source)
{
	return (source->network_host ? SP_POOL_F_NETWORK_HOST : 0) |
	       (source->direct ? SP_POOL_F_DIRECT : 0) |
	       (config->degraded ? SP_POOL_F_DEGRADED_OK : 0);
}

/* A ceiling that holds whatever sandpoold asks for; the policy keeps below it by itself. */
static uint32_t most_sandboxes(const struct sp_pool_config *policy)
{
	uint32_t most = policy->max_total > 0 ? SP_MAX(policy->max_total, policy->max_idle)
					      : policy->max_idle + LEASED_ROOM;

	return SP_MIN(most, SP_TABLE_SANDBOXES_MAX);
}

static void add_limits(struct sp_table_pool *pool, const struct sp_config_pool *source)
{
	pool->memory_bytes = source->memory_bytes;
	pool->pids = source->pids;
	if (source->cpu > 0) {
		pool->cpu_period_us = CPU_PERIOD_US;
		pool->cpu_quota_us = SP_MAX((uint64_t)(source->cpu * CPU_PERIOD_US + 0.5),
					    (uint64_t)CPU_QUOTA_MIN_US);
	}
	pool->tmp_bytes = source->tmp_bytes;
	pool->tmp_inodes = source->tmp_inodes;
	pool->rlimit_nofile = source->open_files;
	pool->rlimit_fsize = source->file_size_bytes > 0 ? source->file_size_bytes : UINT64_MAX;
	pool->rlimit_nproc = source->pids;
	pool->rlimit_stack = source->stack_bytes;
}

static void add_bind_roots(struct sp_table_pool *pool, const struct sp_config_pool *source)
{
	for (size_t i = 0; i < source->bind_root_count; i++) {
		const struct sp_config_bind_root *bind = &source->bind_roots[i];
		struct sp_table_root *root = &pool->roots[pool->root_count++];

		root->flags = (bind->read_only ? SP_ROOT_F_READ_ONLY : 0) |
			      (bind->recursive ? SP_ROOT_F_RECURSIVE : 0);
		memcpy(root->path, bind->path, strlen(bind->path) + 1);
	}
}

static int add_pool(struct sp_table_builder *builder, size_t index)
{
	const struct sp_config_pool *source = &builder->config->pools[index];
	struct sp_table_pool *pool = &builder->pools[index];
	int status;

	builder->source = source;
	builder->pool = pool;
	memcpy(pool->name, source->policy.name, sizeof(pool->name));
	pool->flags = pool_flags(builder->config, source);
	pool->max_sandboxes = most_sandboxes(&source->policy);
	pool->generation = source->policy.spec_generation;
	pool->direct_uid = source->direct_uid;
	pool->direct_gid = source->direct_gid;
	memcpy(pool->hostname, source->hostname, strlen(source->hostname) + 1);
	pool->workload_uid = WORKLOAD_ID;
	pool->workload_gid = WORKLOAD_ID;
	add_limits(pool, source);
	add_bind_roots(pool, source);
	if (source->direct)
		return 0;
	status = sp_table_add_root(builder);
	return status < 0 ? status : add_filters(builder, index);
}

/* ---- the file ---- */

static void fill_header(const struct sp_config *config, struct sp_table *table, uint64_t size)
{
	table->magic = SP_TABLE_MAGIC;
	table->version = SP_TABLE_VERSION;
	table->build_id = SP_BUILD_ID;
	table->file_size = size;
	table->pool_count = (uint32_t)config->pool_count;
	table->uid_count = config->uid_count;
	table->uid_base = config->uid_base;
	memcpy(table->instance, config->instance, strlen(config->instance) + 1);
	memcpy(table->state_dir, config->state_dir, strlen(config->state_dir) + 1);
}

static int write_file(struct sp_table_builder *builder, int fd)
{
	size_t pools_size = builder->config->pool_count * sizeof(*builder->pools);
	size_t size = sizeof(struct sp_table) + pools_size + builder->blobs.len;
	struct sp_table *table = calloc(1, size);
	int status;

	if (!table)
		return sp_err_set(builder->err, -ENOMEM, "assemble the table");
	fill_header(builder->config, table, size);
	memcpy(table + 1, builder->pools, pools_size);
	if (builder->blobs.len > 0)
		memcpy((char *)(table + 1) + pools_size, builder->blobs.data, builder->blobs.len);
	status = sp_table_check(table, size, builder->err);
	if (status == 0) {
		status = sp_write_all(fd, table, size);
		if (status < 0)
			(void)sp_err_set(builder->err, status, "write the table");
	}
	free(table);
	return status;
}

int sp_table_write(const struct sp_config *config, int fd, struct sp_err *err)
{
	struct sp_table_builder builder = {
		.config = config,
		.pools = calloc(config->pool_count, sizeof(*builder.pools)),
		.blobs_start =
			sizeof(struct sp_table) + config->pool_count * sizeof(*builder.pools),
		.err = err,
	};
	int status = builder.pools ? 0 : sp_err_set(err, -ENOMEM, "build the table");

	sp_buf_init(&builder.blobs, SP_TABLE_SIZE_MAX);
	for (size_t i = 0; i < config->pool_count && status == 0; i++)
		status = add_pool(&builder, i);
	if (status == 0)
		status = write_file(&builder, fd);
	sp_buf_done(&builder.blobs);
	free(builder.pools);
	return status;
}

int sp_table_build(const struct sp_config *config, int *ret_fd, struct sp_err *err)
{
	SP_AUTO_CLOSE int fd = sp_memfd_new("sandpool-table");
	int status;

	if (fd < 0)
		return sp_err_set(err, fd, "make a memory file");
	status = sp_table_write(config, fd, err);
	if (status < 0)
		return status;
	status = sp_memfd_seal(fd);
	if (status < 0)
		return sp_err_set(err, status, "seal the table");
	*ret_fd = sp_take_fd(&fd);
	return 0;
}
