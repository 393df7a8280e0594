/*
 * The journal of a commit: what it may say, and the order of paths.
 */
#include "supervisor/init/commit_journal.h"
#include "supervisor/init/protocol.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static bool valid(const char *path)
{
	return commit_path_valid(path, strlen(path), COMMIT_PLACE);
}

Test(commit_journal, paths_are_below_the_base)
{
	static const char *const good[] = {"a",    "a/b",    "...",           "..a",
					   "a/.b", "\xff\n", "a/" COMMIT_DIR, COMMIT_DIR "2"};
	static const char *const bad[] = {
		"",     "/",      "/a",  "a/",  "a//b",  "..",       "../a",
		"a/..", "a/../b", "./a", "a/.", "a/./b", COMMIT_DIR, COMMIT_DIR "/new/1",
		"."};

	for (size_t i = 0; i < SP_ARRAY_SIZE(good); i++)
		cr_assert(valid(good[i]), "%s", good[i]);
	for (size_t i = 0; i < SP_ARRAY_SIZE(bad); i++)
		cr_assert(!valid(bad[i]), "%s", bad[i]);
	cr_assert(commit_path_valid(".", 1, COMMIT_DIRECTORY));
	cr_assert(!commit_path_valid("a\0b", 3, COMMIT_PLACE));
}

Test(commit_journal, names_and_paths_have_a_limit)
{
	char path[SP_INIT_PATH_MAX + 2];

	memset(path, 'n', sizeof(path));
	path[NAME_MAX + 1] = '\0';
	cr_assert(!valid(path));
	path[NAME_MAX] = '\0';
	cr_assert(valid(path));
	for (size_t i = 0; i < sizeof(path); i++)
		path[i] = i % 2 == 0 ? 'n' : '/';
	path[SP_INIT_PATH_MAX - 1] = '\0';
	cr_assert(valid(path));
	path[SP_INIT_PATH_MAX - 1] = '/';
	path[SP_INIT_PATH_MAX + 1] = '\0';
	cr_assert(!valid(path));
}

static size_t build(char *text, uint32_t count)
{
	struct commit_head head;
	size_t used = sizeof(head);

	for (uint32_t i = 0; i < count; i++) {
		const struct commit_record record = {
			.operation = COMMIT_DIRECTORY, .mode = 0755, .path_length = 1 + i % 5};

		memset(text + used, 0, commit_record_size(record.path_length));
		memcpy(text + used, &record, sizeof(record));
		memset(text + used + sizeof(record), 'a', record.path_length);
		used += commit_record_size(record.path_length);
	}
	head = commit_journal_head(text + sizeof(head), used - sizeof(head), count);
	memcpy(text, &head, sizeof(head));
	return used;
}

static int read_all(const char *text, size_t len)
{
	struct commit_cursor cursor;
	struct commit_step step;
	int status = commit_journal_open(&cursor, text, len);
	int count = 0;

	if (status < 0)
		return status;
	while ((status = commit_journal_next(&cursor, &step)) == 1)
		count++;
	return status < 0 ? status : count;
}

Test(commit_journal, is_read_as_it_was_written)
{
	_Alignas(8) char text[4096];
	size_t len = build(text, 7);

	cr_assert_eq(read_all(text, len), 7);
	cr_assert_eq(read_all(text, build(text, 0)), 0);
}

/* Nothing of it can be lost or changed without its being noticed. */
Test(commit_journal, every_byte_counts)
{
	_Alignas(8) char text[4096];
	size_t len = build(text, 7);

	for (size_t cut = 0; cut < len; cut++)
		cr_assert_eq(read_all(text, cut), -EBADMSG, "%zu", cut);
	cr_assert_eq(read_all(text, len + 4), -EBADMSG);
	for (size_t i = 0; i < len; i++) {
		text[i] ^= 0x40;
		cr_assert_eq(read_all(text, len), -EBADMSG, "%zu", i);
		text[i] ^= 0x40;
	}
	cr_assert_eq(read_all(text, len), 7);
}

Test(commit_journal, records_are_checked_one_by_one)
{
	static const struct commit_record bad[] = {
		{.operation = 0, .path_length = 1},
		{.operation = COMMIT_DIRECTORY + 1, .path_length = 1},
		{.operation = COMMIT_DELETE, .mode = 0644, .path_length = 1},
		{.operation = COMMIT_DIRECTORY, .mode = 02755, .path_length = 1},
		{.operation = COMMIT_PLACE, .flags = 1, .path_length = 1},
		{.operation = COMMIT_PLACE, .path_length = 2},
		{.operation = COMMIT_PLACE, .path_length = 0},
		{.operation = COMMIT_PLACE, .path_length = UINT32_MAX},
	};
	_Alignas(8) char text[sizeof(struct commit_head) + sizeof(struct commit_record) + 4];
	struct commit_record good = {.operation = COMMIT_PLACE, .path_length = 1};
	char *record = text + sizeof(struct commit_head);
	struct commit_head head;

	for (size_t i = 0; i <= SP_ARRAY_SIZE(bad); i++) {
		memcpy(record, i < SP_ARRAY_SIZE(bad) ? &bad[i] : &good, sizeof(good));
		memcpy(record + sizeof(good), "a\0\0", 4);
		head = commit_journal_head(record, sizeof(good) + 4, 1);
		memcpy(text, &head, sizeof(head));
		cr_assert_eq(read_all(text, sizeof(text)), i < SP_ARRAY_SIZE(bad) ? -EBADMSG : 1,
			     "%zu", i);
	}
}

static int compare(const void *one, const void *two)
{
	return commit_path_order(*(const char *const *)one, *(const char *const *)two);
}

Test(commit_journal, the_order_is_that_of_a_walk)
{
	static const char *const walk[] = {"a",  "a/\x01", "a/!", "a/b", "a/b/c", "a/b!",
					   "a!", "aa",     "b",   "b/a", "\xc3",  "\xc3/x"};
	const char *sorted[SP_ARRAY_SIZE(walk)];

	for (size_t i = 0; i < SP_ARRAY_SIZE(walk); i++)
		sorted[i] = walk[SP_ARRAY_SIZE(walk) - 1 - i];
	qsort(sorted, SP_ARRAY_SIZE(sorted), sizeof(sorted[0]), compare);
	for (size_t i = 0; i < SP_ARRAY_SIZE(walk); i++)
		cr_assert_str_eq(sorted[i], walk[i], "%zu", i);
}
