/*
 * The mount list of one pool being built. Private to supervisor/config.
 */
#ifndef SP_CONFIG_TABLE_MOUNTS_H
#define SP_CONFIG_TABLE_MOUNTS_H

#include "supervisor/config/config.h"

struct sp_table_builder {
	const struct sp_config *config;
	struct sp_table_pool *pools;
	struct sp_buf blobs; /* texts and filters, each once; every one starts at a multiple of 8 */
	uint64_t blobs_start; /* offset of the first in the file */
	struct sp_err *err;

	/* the pool under way */
	const struct sp_config_pool *source;
	struct sp_table_pool *pool;
};

/* Put the text or filter into the file unless it is there already. 0, -ENOMEM, -E2BIG. */
int sp_table_add_blob(struct sp_table_builder *builder, const void *data, size_t len,
		      uint64_t *ret_offset);

struct sp_table_mount *sp_table_add_mount(struct sp_table_builder *builder,
					  enum sp_table_mount_kind kind, uint32_t flags,
					  uint32_t mode, const char *source, const char *target);
/* The same for several in a row: each is 0 or the errno of the first failure, in builder->err. */
int sp_table_mount(struct sp_table_builder *builder, enum sp_table_mount_kind kind, uint32_t flags,
		   uint32_t mode, const char *source, const char *target);

/* All mounts of the pool under way. */
int sp_table_add_root(struct sp_table_builder *builder);
/* A synthesised /etc; host_files: with what the host's programs look for there. */
int sp_table_add_etc(struct sp_table_builder *builder, bool host_files);

#endif
