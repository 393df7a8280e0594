/*
 * The journal that a commit left in a base, which may be anybody's. Property: every step that comes
 * out names something below the base and nothing of COMMIT_DIR, in order, within the bytes; what
 * is longer, or shorter, than its steps is no journal.
 */
#include "tests/fuzz/fuzz.h"

#include "supervisor/init/commit_journal.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static void use_path(const struct commit_step *step)
{
	const char *at = step->path;

	if (strcmp(at, ".") == 0) {
		require(step->operation == COMMIT_DIRECTORY);
		return;
	}
	require(!commit_path_below(at, COMMIT_DIR, strlen(COMMIT_DIR)));
	for (;;) {
		size_t len = strcspn(at, "/");

		require(len > 0 && len <= NAME_MAX);
		require(!(len == 1 && at[0] == '.') && !(len == 2 && strncmp(at, "..", 2) == 0));
		if (at[len] == '\0')
			return;
		at += len + 1;
	}
}

static void use_order(const char *one, const char *two)
{
	int order = commit_path_order(one, two);

	require((order == 0) == (strcmp(one, two) == 0));
	require((order > 0) == (commit_path_order(two, one) < 0));
	/* A directory comes before what is in it. */
	if (order != 0 && commit_path_below(two, one, strlen(one)))
		require(order < 0);
}

static void read_journal(const void *data, size_t len)
{
	struct commit_cursor cursor;
	struct commit_step step;
	const char *before = NULL;
	uint32_t number = 0;

	if (commit_journal_open(&cursor, data, len) < 0)
		return;
	while (commit_journal_next(&cursor, &step) == 1) {
		require(step.number == number++ && step.path > (const char *)data &&
			step.path + strlen(step.path) < (const char *)data + len);
		require((step.mode & ~COMMIT_MODE) == 0);
		use_path(&step);
		if (before)
			use_order(before, step.path);
		before = step.path;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct commit_head head;
	char *text;

	if (size < 2)
		return 0;
	text = malloc(sizeof(head) + size);
	require(text != NULL);
	/* With a head that fits, or as it is. */
	head = commit_journal_head(data + 2, size - 2, data[1]);
	memcpy(text, &head, sizeof(head));
	memcpy(text + sizeof(head), data + 2, size - 2);
	if (data[0] % 2 == 0)
		read_journal(text, sizeof(head) + size - 2);
	else
		read_journal(text + sizeof(head), size - 2);
	free(text);
	return 0;
}
