/*
 * The embedded store: one host, everything in this process's memory.
 *
 * It answers inline: callbacks run before the call returns. There is nobody else to share with, so
 * it lists every sandbox that is published, and a host's share is the whole of max_idle and its own
 * waiters. What it keeps is the operator's intent per pool, tombstones of destroyed pools included.
 */
#include "pool/base/list.h"
#include "pool/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct record {
	struct sp_list link;
	char pool[SP_POOL_NAME_MAX + 1];
	struct sp_store_meta meta;
};

struct memory_store {
	struct sp_store store;
	struct sp_list records;
};

static struct memory_store *memory_of(struct sp_store *store)
{
	return SP_CONTAINER_OF(store, struct memory_store, store);
}

static struct record *find(struct memory_store *memory, const char *pool)
{
	SP_LIST_FOREACH (link, &memory->records) {
		struct record *record = SP_CONTAINER_OF(link, struct record, link);

		if (strcmp(record->pool, pool) == 0)
			return record;
	}
	return NULL;
}

static struct record *find_or_make(struct memory_store *memory, const char *pool)
{
	struct record *record = find(memory, pool);

	if (record)
		return record;
	sp_assert(strlen(pool) <= SP_POOL_NAME_MAX);
	record = calloc(1, sizeof(*record));
	if (!record)
		return NULL;
	memcpy(record->pool, pool, strlen(pool) + 1);
	sp_list_append(&memory->records, &record->link);
	return record;
}

static int heartbeat(struct sp_store *store, const char *pool, const struct sp_store_counts *counts,
		     int64_t now_ms,
		     void (*cb)(void *arg, const struct sp_store_share *share,
				const struct sp_err *err),
		     void *arg)
{
	const struct record *record = find(memory_of(store), pool);
	struct sp_store_share share = {.valid_ms = INT64_MAX};

	SP_UNUSED(now_ms);
	if (record)
		share.meta = record->meta;
	if (share.meta.revision == 0) {
		share.meta.max_idle = counts->configured_max_idle;
		share.meta.max_total = counts->configured_max_total;
	}
	share.share = share.meta.max_idle + counts->waiters;
	cb(arg, &share, NULL);
	return 0;
}

static int publish(struct sp_store *store, const char *pool, const struct sp_sandbox *sandbox,
		   int64_t now_ms, sp_store_publish_cb *cb, void *arg)
{
	const struct sp_store_listing listing = {
		.sandbox_id = sandbox->id,
		.verdict = SP_STORE_LISTED,
		.lease_id = "",
	};

	SP_UNUSED(store);
	SP_UNUSED(pool);
	SP_UNUSED(now_ms);
	cb(arg, &listing, NULL);
	return 0;
}

static void update(struct sp_store *store, const char *pool, const struct sp_sandbox *sandbox,
		   int64_t now_ms)
{
	SP_UNUSED(store);
	SP_UNUSED(pool);
	SP_UNUSED(sandbox);
	SP_UNUSED(now_ms);
}

static int meta_set(struct sp_store *store, const char *pool, const struct sp_store_meta *meta,
		    uint64_t expected_revision, int64_t now_ms,
		    void (*cb)(void *arg, const struct sp_store_meta *meta,
			       const struct sp_err *err),
		    void *arg)
{
	struct record *record = find_or_make(memory_of(store), pool);
	struct sp_err err = {0};

	SP_UNUSED(now_ms);
	if (!record)
		return -ENOMEM;
	if (expected_revision != 0 && expected_revision != record->meta.revision) {
		(void)sp_err_code(&err, SP_CODE_CONFLICT, -ESTALE,
				  "pool '%s' was changed by another at the same time", pool);
	} else if (record->meta.state == SP_STORE_DESTROYED ||
		   (record->meta.state == SP_STORE_DESTROYING &&
		    meta->state != SP_STORE_DESTROYING && meta->state != SP_STORE_DESTROYED)) {
		(void)sp_err_code(&err, SP_CODE_POOL_DESTROYED, -ESHUTDOWN,
				  "pool '%s' was destroyed", pool);
	} else {
		uint64_t revision = record->meta.revision + 1;

		record->meta = *meta;
		record->meta.revision = revision;
	}
	cb(arg, &record->meta, err.status != 0 ? &err : NULL);
	return 0;
}

static bool up(const struct sp_store *store)
{
	SP_UNUSED(store);
	return true;
}

static void store_free(struct sp_store *store)
{
	struct memory_store *memory = memory_of(store);

	SP_LIST_FOREACH_SAFE (link, following, &memory->records)
		free(SP_CONTAINER_OF(link, struct record, link));
	free(memory);
}

static const struct sp_store_ops memory_ops = {
	.heartbeat = heartbeat,
	.publish = publish,
	.update = update,
	.meta_set = meta_set,
	.up = up,
	.free = store_free,
};

int sp_memory_store_new(struct sp_store **ret_store, struct sp_err *err)
{
	struct memory_store *memory = calloc(1, sizeof(*memory));

	if (!memory)
		return sp_err_set(err, -ENOMEM, "make the memory store");
	memory->store.ops = &memory_ops;
	sp_list_init(&memory->records);
	*ret_store = &memory->store;
	return 0;
}
