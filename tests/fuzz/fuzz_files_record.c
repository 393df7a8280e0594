/*
 * Records from a helper inside a sandbox, as the daemon sees them. Property: what is let through
 * lies in the record, names something below the listed directory no deeper than was asked for, and
 * is a path that a client can be shown; reading it twice gives the same.
 */
#include "tests/fuzz/fuzz.h"

#include "supervisor/daemon/files_record.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static void check_path(const struct files_entry *entry, uint32_t depth)
{
	const char *at = entry->path;
	uint32_t components = 1;

	require(entry->path_length > 0 && entry->path_length < SP_FILE_PATH_MAX);
	require(strlen(entry->path) == entry->path_length);
	for (;;) {
		size_t len = strcspn(at, "/");

		require(len > 0 && len <= NAME_MAX);
		require(strncmp(at, "..", SP_MAX(len, 2)) != 0 &&
			strncmp(at, ".", SP_MAX(len, 1)) != 0);
		if (at[len] == '\0')
			break;
		at += len + 1;
		components++;
	}
	require(components <= depth);
}

/* A digest of what was read. */
static uint64_t read_entries(const void *record, size_t size, uint32_t depth)
{
	struct files_entries entries;
	struct files_entry entry;
	uint64_t digest = 1;

	if (files_entries_open(&entries, record, size, depth) < 0)
		return 0;
	while (files_entries_next(&entries, &entry) == 1) {
		require(entry.path >= (const char *)record &&
			entry.path + entry.path_length < (const char *)record + size);
		require(entry.info.type <= SP_FILE_OTHER && entry.info.mode <= 07777);
		check_path(&entry, depth);
		for (size_t i = 0; i < entry.path_length; i++)
			digest = digest * 31 + (unsigned char)entry.path[i];
	}
	return digest;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sp_init_file_result result;
	uint32_t depth;
	void *record;

	if (size < 1)
		return 0;
	depth = data[0] == UINT8_MAX ? UINT32_MAX : data[0];
	size--;
	record = malloc(size + (size == 0)); /* its end is the sanitizer's */
	require(record != NULL);
	memcpy(record, data + 1, size);
	require(read_entries(record, size, depth) == read_entries(record, size, depth));
	if (files_result_check(record, size, true) == 0) {
		memcpy(&result, record, sizeof(result));
		require(result.status <= 0 && strlen(result.stage) < sizeof(result.stage));
	}
	free(record);
	return 0;
}
