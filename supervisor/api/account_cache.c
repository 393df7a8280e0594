/*
 * A list, used last first; it is short enough to be walked.
 */
#include "supervisor/api/account_cache.h"

#include "pool/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sp_account_cache_init(struct sp_account_cache *cache)
{
	sp_list_init(&cache->sets);
	cache->count = 0;
}

void sp_account_cache_done(struct sp_account_cache *cache)
{
	struct sp_account_set *set;

	while ((set = SP_LIST_FIRST(&cache->sets, struct sp_account_set, link)))
		sp_account_cache_drop(cache, set);
}

struct sp_account_set *sp_account_set_new(const struct sp_file_place *place)
{
	struct sp_account_set *set = calloc(1, sizeof(*set));

	if (!set)
		return NULL;
	sp_list_init(&set->link);
	set->references = 1;
	(void)snprintf(set->sandbox, sizeof(set->sandbox), "%s", place->sandbox);
	set->session = place->session;
	set->uid = place->uid;
	set->gid = place->gid;
	return set;
}

void sp_account_set_unref(struct sp_account_set *set)
{
	if (!set || --set->references > 0)
		return;
	sp_accounts_done(&set->users.names);
	sp_accounts_done(&set->groups.names);
	free(set);
}

int sp_account_file_read(struct sp_account_file *file, const char *text, size_t len)
{
	int status = sp_accounts_parse(&file->names, text, len, NULL);

	if (status < 0 || len > SP_ACCOUNTS_KEPT_SIZE)
		file->steady = false;
	return status;
}

void sp_account_file_opened(struct sp_account_file *file, const struct sp_file_info *info,
			    int64_t opened_ms)
{
	file->info = *info;
	file->steady = info->inode != 0 &&
		       info->changed_ns / SP_NS_PER_MS <= opened_ms - SP_ACCOUNTS_REST_MS;
}

void sp_account_file_missing(struct sp_account_file *file, const struct sp_err *err)
{
	file->info = (struct sp_file_info){0};
	/* Another fault may be over the next time, without a trace in the file. */
	file->steady = err->code == SP_CODE_FILE_NOT_FOUND;
}

static void forget_last(struct sp_account_cache *cache)
{
	sp_account_cache_drop(cache,
			      SP_CONTAINER_OF(cache->sets.prev, struct sp_account_set, link));
}

static bool is_of(const struct sp_account_set *set, const struct sp_file_place *place)
{
	return set->session == place->session && set->uid == place->uid && set->gid == place->gid &&
	       strcmp(set->sandbox, place->sandbox) == 0;
}

static struct sp_account_set *find(const struct sp_account_cache *cache,
				   const struct sp_file_place *place)
{
	SP_LIST_FOREACH (link, &cache->sets) {
		struct sp_account_set *set = SP_CONTAINER_OF(link, struct sp_account_set, link);

		if (is_of(set, place))
			return set;
	}
	return NULL;
}

void sp_account_cache_put(struct sp_account_cache *cache, struct sp_account_set *set)
{
	const struct sp_file_place place = {
		.sandbox = set->sandbox,
		.session = set->session,
		.uid = set->uid,
		.gid = set->gid,
	};
	struct sp_account_set *before = find(cache, &place);

	if (before)
		sp_account_cache_drop(cache, before);
	if (!set->users.steady || !set->groups.steady)
		return;
	if (cache->count == SP_ACCOUNTS_KEPT_MAX)
		forget_last(cache);
	sp_list_prepend(&cache->sets, &set->link);
	cache->count++;
	set->references++;
}

struct sp_account_set *sp_account_cache_find(struct sp_account_cache *cache,
					     const struct sp_file_place *place)
{
	struct sp_account_set *set = find(cache, place);

	if (!set)
		return NULL;
	sp_list_remove(&set->link);
	sp_list_prepend(&cache->sets, &set->link);
	set->references++;
	return set;
}

void sp_account_cache_drop(struct sp_account_cache *cache, struct sp_account_set *set)
{
	if (sp_list_empty(&set->link))
		return; /* somebody else found out before */
	sp_list_remove(&set->link);
	cache->count--;
	sp_account_set_unref(set);
}

static bool is_same(const struct sp_file_info *one, const struct sp_file_info *other)
{
	return one->inode == other->inode && one->size == other->size &&
	       one->modified_ns == other->modified_ns && one->changed_ns == other->changed_ns;
}

bool sp_account_set_is(const struct sp_account_set *set, const struct sp_file_info *users,
		       const struct sp_file_info *groups)
{
	return is_same(&set->users.info, users) && is_same(&set->groups.info, groups);
}
