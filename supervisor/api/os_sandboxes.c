/*
 * The table of the OpenSandbox API's sandboxes, and what belongs to one of them.
 *
 * Two ways lead to a sandbox, its UUID and our id. A sandbox leaves the table when it ends and its
 * memory goes with the last reference, so that a request which waits for something of it still has
 * it. Attachments are told of the end in the order of their attaching, each detached before its
 * call: it may free itself, and attach nothing more.
 */
#include "supervisor/api/os_sandboxes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct sp_os_table {
	struct sp_map by_uuid;
	struct sp_map by_id;
	struct sp_list list;
	size_t count;
};

static uint64_t random_word(void)
{
	char hex[SP_SECRET_LEN + 1];
	char word[17];

	sp_secret_new(hex);
	memcpy(word, hex, sizeof(word) - 1);
	word[sizeof(word) - 1] = '\0';
	return strtoull(word, NULL, 16);
}

int sp_os_table_new(struct sp_os_table **ret_table)
{
	struct sp_os_table *table = calloc(1, sizeof(*table));

	if (!table)
		return -ENOMEM;
	sp_list_init(&table->list);
	if (sp_map_init(&table->by_uuid, random_word(), random_word()) < 0 ||
	    sp_map_init(&table->by_id, random_word(), random_word()) < 0) {
		sp_os_table_free(table);
		return -ENOMEM;
	}
	*ret_table = table;
	return 0;
}

void sp_os_table_free(struct sp_os_table *table)
{
	if (!table)
		return;
	SP_LIST_FOREACH_SAFE (link, following, &table->list)
		sp_os_end(SP_CONTAINER_OF(link, struct sp_os_sandbox, link));
	sp_map_done(&table->by_uuid);
	sp_map_done(&table->by_id);
	free(table);
}

size_t sp_os_table_count(const struct sp_os_table *table)
{
	return table->count;
}

const struct sp_list *sp_os_table_list(const struct sp_os_table *table)
{
	return &table->list;
}

void sp_os_uuid_new(char *text)
{
	static const char variants[] = "89ab";
	static const size_t groups[] = {8, 4, 4, 4, 12};
	char hex[SP_SECRET_LEN + 1];
	const char *from = hex;
	char *to = text;

	sp_secret_new(hex);
	for (size_t i = 0; i < SP_ARRAY_SIZE(groups); i++) {
		if (i > 0)
			*to++ = '-';
		memcpy(to, from, groups[i]);
		to += groups[i];
		from += groups[i];
	}
	*to = '\0';
	text[14] = '4';
	/* A digit that is used nowhere else says which of the four it is. */
	text[19] = variants[*from % 4];
}

struct sp_os_sandbox *sp_os_sandbox_new(void)
{
	struct sp_os_sandbox *os = calloc(1, sizeof(*os));

	if (!os)
		return NULL;
	sp_list_init(&os->link);
	sp_list_init(&os->attachments);
	os->references = 1;
	os->expires_ms = INT64_MAX;
	sp_os_uuid_new(os->uuid);
	return os;
}

static void sandbox_free(struct sp_os_sandbox *os)
{
	sp_assert(!os->table && sp_list_empty(&os->attachments));
	for (size_t i = 0; i < os->envc; i++)
		free(os->env[i]);
	free(os->env);
	free(os->image);
	json_decref(os->entrypoint);
	json_decref(os->metadata);
	json_decref(os->extensions);
	json_decref(os->platform);
	explicit_bzero(os->secret, sizeof(os->secret));
	free(os);
}

struct sp_os_sandbox *sp_os_ref(struct sp_os_sandbox *os)
{
	os->references++;
	return os;
}

void sp_os_unref(struct sp_os_sandbox *os)
{
	if (os && --os->references == 0)
		sandbox_free(os);
}

int sp_os_table_add(struct sp_os_table *table, struct sp_os_sandbox *os, struct sp_err *err)
{
	if (table->count >= SP_OS_SANDBOXES_MAX)
		return sp_err_code(err, SP_CODE_TOO_MANY, -ENOSPC,
				   "there are %u sandboxes of this API already",
				   SP_OS_SANDBOXES_MAX);
	os->table = table;
	sp_map_insert(&table->by_uuid, &os->by_uuid, os->uuid);
	sp_map_insert(&table->by_id, &os->by_id, os->id);
	sp_list_prepend(&table->list, &os->link);
	table->count++;
	(void)sp_os_ref(os);
	return 0;
}

struct sp_os_sandbox *sp_os_find(const struct sp_os_table *table, const char *uuid)
{
	struct sp_map_link *link = sp_map_find(&table->by_uuid, uuid);

	return link ? SP_CONTAINER_OF(link, struct sp_os_sandbox, by_uuid) : NULL;
}

struct sp_os_sandbox *sp_os_find_by_id(const struct sp_os_table *table, const char *id)
{
	struct sp_map_link *link = sp_map_find(&table->by_id, id);

	return link ? SP_CONTAINER_OF(link, struct sp_os_sandbox, by_id) : NULL;
}

void sp_os_end(struct sp_os_sandbox *os)
{
	struct sp_os_attachment *attachment;

	if (!os->table)
		return;
	os->ended = true;
	sp_map_remove(&os->table->by_uuid, &os->by_uuid);
	sp_map_remove(&os->table->by_id, &os->by_id);
	sp_list_remove(&os->link);
	os->table->count--;
	os->table = NULL;
	while ((attachment = SP_LIST_FIRST(&os->attachments, struct sp_os_attachment, link))) {
		sp_list_remove(&attachment->link);
		attachment->ended(attachment);
	}
	sp_os_unref(os); /* the table's */
}

void sp_os_attach(struct sp_os_sandbox *os, struct sp_os_attachment *attachment)
{
	sp_assert(!os->ended);
	sp_list_append(&os->attachments, &attachment->link);
}

void sp_os_detach(struct sp_os_attachment *attachment)
{
	sp_list_remove(&attachment->link);
}

struct sp_caller sp_os_caller(const struct sp_os_sandbox *os)
{
	return (struct sp_caller){.secret = os->secret};
}

const char *sp_os_state_name(enum sp_os_state state)
{
	static const char *const names[] = {
		[SP_OS_RUNNING] = "Running",
		[SP_OS_PAUSING] = "Pausing",
		[SP_OS_PAUSED] = "Paused",
		[SP_OS_RESUMING] = "Resuming",
	};

	sp_assert(state < SP_OS_STATE_COUNT);
	return names[state];
}
