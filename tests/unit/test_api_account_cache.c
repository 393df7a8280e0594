/*
 * What is kept of account files, and above all what is not.
 */
#include "supervisor/api/account_cache.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define OPENED_MS INT64_C(1700000010000)
#define RESTED_NS ((OPENED_MS - SP_ACCOUNTS_REST_MS) * SP_NS_PER_MS)

static struct sp_account_cache cache;
static const struct sp_file_place place = {.sandbox = "sandbox", .uid = -1, .gid = -1};
static const struct sp_file_info file = {
	.inode = 7, .size = 20, .modified_ns = RESTED_NS, .changed_ns = RESTED_NS};

static void set_up(void)
{
	sp_account_cache_init(&cache);
}

static void tear_down(void)
{
	sp_account_cache_done(&cache);
}

TestSuite(api_account_cache, .init = set_up, .fini = tear_down);

static void fill(struct sp_account_file *account_file, const struct sp_file_info *info,
		 const char *text, size_t len)
{
	sp_account_file_opened(account_file, info, OPENED_MS);
	cr_assert(sp_account_file_read(account_file, text, len) == 0);
}

/* Put there, with users from such a file. */
static void put(const struct sp_file_place *where, const struct sp_file_info *users,
		const char *text, size_t len)
{
	struct sp_account_set *set = sp_account_set_new(where);

	cr_assert_not_null(set);
	fill(&set->users, users, text, len);
	fill(&set->groups, &file, "group:x:1:\n", 11);
	sp_account_cache_put(&cache, set);
	sp_account_set_unref(set);
}

static bool is_known(const struct sp_file_place *where)
{
	struct sp_account_set *set = sp_account_cache_find(&cache, where);

	sp_account_set_unref(set);
	return set != NULL;
}

Test(api_account_cache, finds_what_was_put)
{
	struct sp_account_set *set;

	cr_assert(!is_known(&place));
	put(&place, &file, "user:x:5:5\n", 11);
	set = sp_account_cache_find(&cache, &place);
	cr_assert_not_null(set);
	cr_assert_str_eq(sp_accounts_name(&set->users.names, 5), "user");
	cr_assert_str_eq(sp_accounts_name(&set->groups.names, 1), "group");
	/* Whoever has it still has it when it is dropped. */
	sp_account_cache_drop(&cache, set);
	sp_account_cache_drop(&cache, set);
	cr_assert(!is_known(&place) && cache.count == 0);
	cr_assert_str_eq(sp_accounts_name(&set->users.names, 5), "user");
	sp_account_set_unref(set);
}

Test(api_account_cache, another_place_is_another)
{
	struct sp_file_place other = place;

	put(&place, &file, "a:x:1:\n", 7);
	other.sandbox = "sandboy";
	cr_assert(!is_known(&other));
	other = place;
	other.session = 1;
	cr_assert(!is_known(&other));
	other = place;
	other.uid = 1000;
	cr_assert(!is_known(&other));
	other = place;
	other.gid = 1000;
	cr_assert(!is_known(&other));
	cr_assert(is_known(&place));
}

Test(api_account_cache, a_file_is_the_same_if_nothing_of_it_differs)
{
	struct sp_file_info changed[] = {file, file, file, file, {0}};
	struct sp_account_set *set;

	changed[0].inode++;
	changed[1].size++;
	changed[2].modified_ns++;
	changed[3].changed_ns++;
	put(&place, &file, "a:x:1:\n", 7);
	set = sp_account_cache_find(&cache, &place);
	cr_assert(sp_account_set_is(set, &file, &file));
	for (size_t i = 0; i < SP_ARRAY_SIZE(changed); i++) {
		cr_assert(!sp_account_set_is(set, &changed[i], &file), "%zu", i);
		cr_assert(!sp_account_set_is(set, &file, &changed[i]), "%zu", i);
	}
	sp_account_set_unref(set);
}

Test(api_account_cache, a_file_that_changed_just_now_is_not_kept)
{
	struct sp_file_info fresh = file;

	put(&place, &fresh, "a:x:1:\n", 7);
	cr_assert(is_known(&place), "rested for exactly as long as it must");
	fresh.changed_ns += SP_NS_PER_MS;
	put(&place, &fresh, "a:x:1:\n", 7);
	cr_assert(!is_known(&place), "and what was known before is no longer");
	fresh.changed_ns = (OPENED_MS + 5000) * SP_NS_PER_MS;
	put(&place, &fresh, "a:x:1:\n", 7);
	cr_assert(!is_known(&place), "of the future");
}

Test(api_account_cache, a_missing_file_is_known_as_such_another_fault_is_not)
{
	static const enum sp_code codes[] = {SP_CODE_FILE_NOT_FOUND, SP_CODE_FILE_DENIED,
					     SP_CODE_UNAVAILABLE};

	for (size_t i = 0; i < SP_ARRAY_SIZE(codes); i++) {
		const struct sp_err err = {.code = codes[i]};
		const struct sp_file_info none = {0};
		struct sp_account_set *set = sp_account_set_new(&place);

		fill(&set->users, &file, "a:x:1:\n", 7);
		sp_account_file_missing(&set->groups, &err);
		sp_account_cache_put(&cache, set);
		cr_assert(is_known(&place) == (codes[i] == SP_CODE_FILE_NOT_FOUND));
		cr_assert(sp_account_set_is(set, &file, &none));
		cr_assert(!sp_account_set_is(set, &file, &file), "it has come meanwhile");
		sp_account_set_unref(set);
	}
}

Test(api_account_cache, files_up_to_a_size)
{
	static char text[SP_ACCOUNTS_KEPT_SIZE + 1];

	memset(text, '\n', sizeof(text));
	put(&place, &file, text, SP_ACCOUNTS_KEPT_SIZE);
	cr_assert(is_known(&place));
	put(&place, &file, text, SP_ACCOUNTS_KEPT_SIZE + 1);
	cr_assert(!is_known(&place));
}

Test(api_account_cache, places_up_to_their_number)
{
	char name[16];
	struct sp_file_place other = place;

	other.sandbox = name;
	for (unsigned int i = 0; i < SP_ACCOUNTS_KEPT_MAX; i++) {
		(void)snprintf(name, sizeof(name), "s%u", i);
		put(&other, &file, "a:x:1:\n", 7);
	}
	cr_assert(cache.count == SP_ACCOUNTS_KEPT_MAX);
	(void)snprintf(name, sizeof(name), "s0");
	cr_assert(is_known(&other), "and now it is the one that was used last");
	(void)snprintf(name, sizeof(name), "more");
	put(&other, &file, "a:x:1:\n", 7);
	cr_assert(cache.count == SP_ACCOUNTS_KEPT_MAX && is_known(&other));
	(void)snprintf(name, sizeof(name), "s1");
	cr_assert(!is_known(&other));
	(void)snprintf(name, sizeof(name), "s0");
	cr_assert(is_known(&other));
}

Test(api_account_cache, what_is_put_again_replaces)
{
	struct sp_account_set *set;

	put(&place, &file, "old:x:5:\n", 9);
	put(&place, &file, "new:x:5:\n", 9);
	cr_assert(cache.count == 1);
	set = sp_account_cache_find(&cache, &place);
	cr_assert_str_eq(sp_accounts_name(&set->users.names, 5), "new");
	sp_account_set_unref(set);
}
