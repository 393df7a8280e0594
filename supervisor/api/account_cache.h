/*
 * The names of accounts that were read out of sandboxes, so that not every listing reads two files
 * first.
 *
 * What is kept is never believed by itself: whoever shows names out of it has the files looked at
 * by the same helper that does the operation (sp_file_place.accounts) and compares. A file is what
 * it was if inode, size and both times are the same, and that can be said only of one that had
 * rested for SP_ACCOUNTS_REST_MS before it was opened: a change in the same tick of the file
 * system's clock would leave no trace. Others are not kept.
 *
 * Bounded: SP_ACCOUNTS_KEPT_MAX places, of files of at most SP_ACCOUNTS_KEPT_SIZE bytes; the one
 * that was not used for longest goes first.
 */
#ifndef SP_API_ACCOUNT_CACHE_H
#define SP_API_ACCOUNT_CACHE_H

#include "pool/base/list.h"
#include "supervisor/api/account_names.h"
#include "supervisor/daemon/files.h"

#define SP_ACCOUNTS_KEPT_MAX  128u
#define SP_ACCOUNTS_KEPT_SIZE (16u * 1024)
#define SP_ACCOUNTS_REST_MS   2000

/* One account file as it was read. */
struct sp_account_file {
	struct sp_accounts names;
	struct sp_file_info info; /* when it was opened; inode 0: there was none */
	bool steady;              /* info tells whether it has changed since */
};

/* Those of one place, for whoever has a reference. */
struct sp_account_set {
	struct sp_list link; /* in the cache, or empty */
	unsigned int references;
	char sandbox[SP_SANDBOX_ID_LEN + 1];
	uint32_t session;
	int64_t uid;
	int64_t gid;
	struct sp_account_file users;
	struct sp_account_file groups;
};

struct sp_account_cache {
	struct sp_list sets; /* used last first */
	size_t count;
};

void sp_account_cache_init(struct sp_account_cache *cache);
void sp_account_cache_done(struct sp_account_cache *cache);

/* An empty one; the reference is the caller's. NULL: no memory. */
struct sp_account_set *sp_account_set_new(const struct sp_file_place *place);
void sp_account_set_unref(struct sp_account_set *set); /* NULL is fine */

/* Fill in one file: `info` as it was opened at `opened_ms` of the wall clock, or NULL and why not.
 * The text is copied; -ENOMEM leaves nobody known. */
int sp_account_file_read(struct sp_account_file *file, const char *text, size_t len);
void sp_account_file_opened(struct sp_account_file *file, const struct sp_file_info *info,
			    int64_t opened_ms);
void sp_account_file_missing(struct sp_account_file *file, const struct sp_err *err);

/* Keep it, if it can be told when it is no longer true. The cache has a reference of its own. */
void sp_account_cache_put(struct sp_account_cache *cache, struct sp_account_set *set);
/* With a reference for the caller; NULL: nothing is known of that place. */
struct sp_account_set *sp_account_cache_find(struct sp_account_cache *cache,
					     const struct sp_file_place *place);
/* It is no longer true. */
void sp_account_cache_drop(struct sp_account_cache *cache, struct sp_account_set *set);
/* Are these the files that were read? */
bool sp_account_set_is(const struct sp_account_set *set, const struct sp_file_info *users,
		       const struct sp_file_info *groups);

#endif
