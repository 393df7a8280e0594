/*
 * What is to be told of sandboxes: one item each, in the order in which they changed, the latest
 * state of each. An item that changes while its call is under way goes round again.
 *
 * The queue is bounded by STORE_ITEMS_MAX: beyond it, everything is told from the start (RESYNC),
 * which needs no queue. During an outage nothing is queued that a RESYNC or the rotation would not
 * tell as well.
 */
#include "redis/store_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct store_item *item_of(struct sp_list *link)
{
	return SP_CONTAINER_OF(link, struct store_item, link);
}

static struct store_item *find(struct store_pool *pool, const char *id)
{
	struct sp_map_link *link = sp_map_find(&pool->items, id);

	return link ? SP_CONTAINER_OF(link, struct store_item, by_id) : NULL;
}

static void fill(struct store_record *record, const struct sp_sandbox *sandbox)
{
	memcpy(record->id, sandbox->id, sizeof(record->id));
	memcpy(record->lease_id, sandbox->lease_id, sizeof(record->lease_id));
	record->state = sandbox->state;
	record->reason = sandbox->end_reason;
	record->claimed = sandbox->claimed;
	record->expires_ms = sandbox->expires_ms;
}

static void item_free(struct store_pool *pool, struct store_item *item)
{
	sp_list_remove(&item->link);
	sp_map_remove(&pool->items, &item->by_id);
	free(item);
}

static struct store_item *make(struct store_pool *pool, const char *id)
{
	struct store_item *item = calloc(1, sizeof(*item));

	if (!item)
		return NULL;
	memcpy(item->record.id, id, strlen(id) + 1);
	sp_list_append(&pool->dirty, &item->link);
	sp_map_insert(&pool->items, &item->by_id, item->record.id);
	return item;
}

static void answer_listed(struct store_item *item, const struct sp_err *err)
{
	char id[SP_SANDBOX_ID_LEN + 1];
	const struct sp_store_listing listing = {
		.sandbox_id = id,
		.verdict = SP_STORE_LISTED,
		.lease_id = "",
	};
	sp_store_publish_cb *cb = item->cb;

	memcpy(id, item->record.id, sizeof(id));
	item->cb = NULL;
	if (cb)
		cb(item->arg, &listing, err);
}

/* Somebody holds it by a grant that we have not heard of. To tell of the lease would settle the
 * grant, and the ttl that it was asked for with would be lost: a heartbeat comes first, that was
 * asked after this. */
static void hear_first(struct store_pool *pool, struct store_item *item)
{
	item->after_beat = pool->beats_asked + 1;
	pool->hint_due = true;
	store_wake(pool->store);
}

static struct store_item *put(struct store_pool *pool, const struct sp_sandbox *sandbox)
{
	struct store_item *item = find(pool, sandbox->id);

	if (!item && pool->items.count < STORE_ITEMS_MAX)
		item = make(pool, sandbox->id);
	if (!item) {
		pool->forgot = true;
		return NULL;
	}
	fill(&item->record, sandbox);
	item->again = item->in_call;
	if (!sandbox->ttl_open)
		item->after_beat = 0;
	else if (item->after_beat == 0)
		hear_first(pool, item);
	return item;
}

int store_item_update(struct store_pool *pool, const struct sp_sandbox *sandbox)
{
	return put(pool, sandbox) ? 0 : -ENOBUFS;
}

int store_item_publish(struct store_pool *pool, const struct sp_sandbox *sandbox,
		       sp_store_publish_cb *cb, void *arg)
{
	struct store_item *item = put(pool, sandbox);

	if (!item)
		return -ENOBUFS;
	sp_assert(!item->cb);
	item->publish = true;
	item->cb = cb;
	item->arg = arg;
	return 0;
}

static void take(struct store_pool *pool, struct store_item *item)
{
	sp_list_remove(&item->link);
	sp_list_append(&pool->call.items, &item->link);
	item->in_call = true;
	item->again = false;
}

/* What it is made of no longer matters when it ends; why does. */
static const char *digest_or_reason(const struct store_pool *pool,
				    const struct store_record *record)
{
	if (record->state != SP_SANDBOX_KILLING && record->state != SP_SANDBOX_GONE)
		return pool->spec_digest;
	return record->reason == SP_END_NONE ? "" : sp_end_reason_name(record->reason);
}

bool store_items_publish(struct store_pool *pool)
{
	struct store_args *args = &pool->call.args;
	uint32_t count = 0;

	SP_LIST_FOREACH_SAFE (link, following, &pool->dirty) {
		struct store_item *item = item_of(link);
		const struct store_record *record = &item->record;

		if (count == STORE_BATCH)
			break;
		if (!item->publish || record->state != SP_SANDBOX_IDLE)
			continue;
		store_args_text(args, record->id);
		store_args_number(args,
				  store_clock_absolute(&pool->store->clock, record->expires_ms));
		store_args_text(args, pool->spec_digest);
		take(pool, item);
		count++;
	}
	return count > 0;
}

bool store_items_update(struct store_pool *pool)
{
	struct store_args *args = &pool->call.args;
	uint32_t count = 0;

	SP_LIST_FOREACH_SAFE (link, following, &pool->dirty) {
		struct store_item *item = item_of(link);
		const struct store_record *record = &item->record;

		if (count == STORE_BATCH)
			break;
		if (item->publish || item->after_beat > pool->beat_heard)
			continue;
		store_args_text(args, record->id);
		store_args_text(args, sp_sandbox_state_name(record->state));
		store_args_text(args, record->lease_id);
		store_args_number(args,
				  store_clock_absolute(&pool->store->clock, record->expires_ms));
		store_args_number(args, record->claimed ? 1 : 0);
		store_args_text(args, digest_or_reason(pool, record));
		take(pool, item);
		count++;
	}
	return count > 0;
}

/* Answering calls into the pool, which puts more: so each walk begins anew. */
static struct store_item *first_stale(struct store_pool *pool)
{
	SP_LIST_FOREACH (link, &pool->dirty) {
		struct store_item *item = item_of(link);

		if (item->publish && item->record.state != SP_SANDBOX_IDLE)
			return item;
	}
	return NULL;
}

void store_items_stale(struct store_pool *pool)
{
	struct store_item *item;

	while ((item = first_stale(pool))) {
		item->publish = false;
		answer_listed(item, NULL);
	}
}

static struct store_item *first_waiting(struct store_pool *pool)
{
	struct sp_list *lists[] = {&pool->call.items, &pool->dirty};

	for (size_t i = 0; i < SP_ARRAY_SIZE(lists); i++) {
		SP_LIST_FOREACH (link, lists[i]) {
			struct store_item *item = item_of(link);

			if (item->cb)
				return item;
		}
	}
	return NULL;
}

void store_items_outage(struct store_pool *pool, const struct sp_err *why)
{
	struct store_item *item;

	while ((item = first_waiting(pool)))
		answer_listed(item, why);
}

static void settle(struct store_pool *pool, struct store_item *item)
{
	item->in_call = false;
	item->publish = false;
	if (!item->again) {
		item_free(pool, item);
		return;
	}
	item->again = false;
	sp_list_remove(&item->link);
	sp_list_append(&pool->dirty, &item->link);
}

static enum sp_store_verdict parse_verdict(const char *word)
{
	if (strcmp(word, "granted") == 0)
		return SP_STORE_GRANTED;
	return strcmp(word, "refused") == 0 ? SP_STORE_REFUSED : SP_STORE_LISTED;
}

/* Nobody waits for the verdict any more: it is carried out as if the directory had asked for it. */
static void carry_out(struct store_pool *pool, const struct sp_store_listing *listing)
{
	const struct sp_store_owner *owner = pool->owner;

	if (!owner)
		return;
	if (listing->verdict == SP_STORE_GRANTED)
		owner->granted(pool->owner_arg, listing->sandbox_id, listing->lease_id,
			       listing->ttl_ms, 0);
	else if (listing->verdict == SP_STORE_REFUSED)
		owner->end(pool->owner_arg, listing->sandbox_id, "", SP_END_EXCESS, false);
}

/* One answer of a publish. What is not answered is listed: the rotation will tell. */
static void read_verdict(struct store_pool *pool, struct store_reply *reply,
			 struct store_item *item)
{
	const char *id = store_reply_text(reply);
	const char *word = store_reply_text(reply);
	const char *lease_id = store_reply_text(reply);
	struct sp_store_listing listing = {.sandbox_id = item->record.id, .lease_id = ""};
	sp_store_publish_cb *cb = item->cb;

	if (strcmp(id, item->record.id) != 0)
		reply->bad = true;
	if (!reply->bad)
		listing.verdict = parse_verdict(word);
	if (listing.verdict == SP_STORE_GRANTED) {
		listing.lease_id = lease_id;
		listing.ttl_ms = store_reply_positive(reply);
	} else {
		store_reply_skip(reply, 1);
	}
	if (listing.verdict == SP_STORE_REFUSED && pool->call.sent > 1) {
		/* It may have been too late only for us, who were away: once more, after a
		 * heartbeat. */
		item->in_call = false;
		sp_list_remove(&item->link);
		sp_list_append(&pool->dirty, &item->link);
		return;
	}
	item->cb = NULL;
	if (cb)
		cb(item->arg, &listing, NULL);
	else
		carry_out(pool, &listing);
	if (listing.verdict == SP_STORE_GRANTED)
		store_acquire_poke(pool->store, lease_id);
	settle(pool, item);
}

void store_on_published(struct store_pool *pool, struct store_reply *reply)
{
	while (!sp_list_empty(&pool->call.items))
		read_verdict(pool, reply, item_of(pool->call.items.next));
}

void store_on_updated(struct store_pool *pool)
{
	while (!sp_list_empty(&pool->call.items))
		settle(pool, item_of(pool->call.items.next));
}

void store_items_return(struct store_pool *pool)
{
	while (!sp_list_empty(&pool->call.items)) {
		struct store_item *item = item_of(pool->call.items.prev);

		item->in_call = false;
		item->again = false;
		sp_list_remove(&item->link);
		sp_list_prepend(&pool->dirty, &item->link);
	}
}

void store_items_drop(struct store_pool *pool)
{
	store_items_return(pool);
	while (!sp_list_empty(&pool->dirty))
		item_free(pool, item_of(pool->dirty.next));
}

/* ---- the rotation ---- */

struct rotation {
	struct store_pool *pool;
	size_t index;
	size_t first;
	size_t end;
};

static int visit_rotation(void *arg, const struct sp_sandbox *sandbox)
{
	struct rotation *rotation = arg;

	if (rotation->index >= rotation->end)
		return 1;
	if (rotation->index++ < rotation->first || sandbox->state == SP_SANDBOX_CREATING)
		return 0;
	/* One that waits to be told, or to be listed, is told by that. */
	if (!find(rotation->pool, sandbox->id))
		(void)store_item_update(rotation->pool, sandbox);
	return 0;
}

static size_t rotate(struct store_pool *pool, size_t first, size_t count)
{
	struct rotation rotation = {.pool = pool, .first = first, .end = first + count};

	if (pool->owner)
		(void)pool->owner->each(pool->owner_arg, visit_rotation, &rotation);
	return rotation.index;
}

void store_items_rotate(struct store_pool *pool)
{
	size_t wanted = pool->rotation_next + STORE_ROTATION;

	/* Fewer than that are there: the next round begins. */
	pool->rotation_next =
		rotate(pool, pool->rotation_next, STORE_ROTATION) < wanted ? 0 : wanted;
}

void store_items_all(struct store_pool *pool)
{
	(void)rotate(pool, 0, STORE_ITEMS_MAX);
}

/* ---- resync ---- */

static int visit_resync(void *arg, const struct sp_sandbox *sandbox)
{
	struct store_pool *pool = arg;
	struct store_resync *resync = &pool->resync;
	const struct store_item *item = find(pool, sandbox->id);

	/* What waits for its publish is not known there, and is asked for afterwards. */
	if (sandbox->state == SP_SANDBOX_CREATING || (item && item->publish))
		return 0;
	if (resync->count == resync->room) {
		size_t room = SP_MAX(2 * resync->room, (size_t)STORE_BATCH);
		struct store_record *more =
			reallocarray(resync->records, room, sizeof(*resync->records));

		if (!more)
			return -ENOMEM;
		resync->records = more;
		resync->room = room;
	}
	fill(&resync->records[resync->count++], sandbox);
	return 0;
}

/* Updates that wait are no longer needed: all is told, and what is gone is not named. */
static void drop_updates(struct store_pool *pool)
{
	SP_LIST_FOREACH_SAFE (link, following, &pool->dirty) {
		struct store_item *item = item_of(link);

		if (!item->publish)
			item_free(pool, item);
	}
}

int store_resync_begin(struct store_pool *pool)
{
	struct store_resync *resync = &pool->resync;

	resync->count = 0;
	resync->next = 0;
	resync->begun = false;
	resync->last = false;
	if (pool->owner && pool->owner->each(pool->owner_arg, visit_resync, pool) < 0)
		return -ENOMEM;
	pool->forgot = false;
	drop_updates(pool);
	return 0;
}

static void build_record(struct store_pool *pool, const struct store_record *record)
{
	struct store_args *args = &pool->call.args;

	store_args_text(args, record->id);
	store_args_text(args, sp_sandbox_state_name(record->state));
	store_args_number(args, store_clock_absolute(&pool->store->clock, record->expires_ms));
	store_args_text(args, digest_or_reason(pool, record));
	store_args_text(args, record->lease_id);
	store_args_number(args, record->claimed ? 1 : 0);
}

void store_resync_build(struct store_pool *pool)
{
	struct store_resync *resync = &pool->resync;
	size_t end = SP_MIN(resync->count, resync->next + STORE_RESYNC_BATCH);

	resync->last = resync->begun && end == resync->count;
	store_args_text(&pool->call.args,
			!resync->begun ? "begin" : (resync->last ? "end" : "more"));
	for (; resync->next < end; resync->next++)
		build_record(pool, &resync->records[resync->next]);
	resync->begun = true;
}

void store_resync_done(struct store_pool *pool)
{
	free(pool->resync.records);
	pool->resync = (struct store_resync){0};
}
