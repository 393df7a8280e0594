/* See commit_journal.h. */
#include "supervisor/init/commit_journal.h"

#include "supervisor/init/protocol.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#define VERSION   1u
#define FNV_BASIS UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME UINT64_C(0x100000001b3)

static const char magic[8] = {'S', 'P', 'C', 'O', 'M', 'M', 'I', 'T'};

static uint64_t sum_of(const char *data, size_t len)
{
	uint64_t sum = FNV_BASIS;

	for (size_t i = 0; i < len; i++)
		sum = (sum ^ (uint8_t)data[i]) * FNV_PRIME;
	return sum;
}

struct commit_head commit_journal_head(const void *records, size_t len, uint32_t count)
{
	struct commit_head head = {
		.version = VERSION,
		.count = count,
		.length = len,
		.sum = sum_of(records, len),
	};

	memcpy(head.magic, magic, sizeof(magic));
	return head;
}

int commit_journal_open(struct commit_cursor *cursor, const void *data, size_t len)
{
	const char *records = (const char *)data + sizeof(struct commit_head);
	struct commit_head head;

	if (len < sizeof(head) || len > COMMIT_JOURNAL_MAX)
		return -EBADMSG;
	memcpy(&head, data, sizeof(head));
	if (memcmp(head.magic, magic, sizeof(magic)) != 0 || head.version != VERSION ||
	    head.count > COMMIT_RECORDS_MAX || head.length != len - sizeof(head) ||
	    head.sum != sum_of(records, len - sizeof(head)))
		return -EBADMSG;
	*cursor = (struct commit_cursor){
		.at = records,
		.left = len - sizeof(head),
		.count = head.count,
	};
	return 0;
}

static bool name_valid(const char *name, size_t len)
{
	if (len == 0 || len > NAME_MAX)
		return false;
	return !(len == 1 && name[0] == '.') && !(len == 2 && name[0] == '.' && name[1] == '.');
}

bool commit_path_valid(const char *path, size_t len, enum commit_operation operation)
{
	const char *end = path + len;
	const char *at = path;

	if (len == 1 && path[0] == '.')
		return operation == COMMIT_DIRECTORY;
	if (len >= SP_INIT_PATH_MAX || memchr(path, '\0', len) ||
	    commit_path_below(path, COMMIT_DIR, strlen(COMMIT_DIR)))
		return false;
	for (;;) {
		const char *slash = memchr(at, '/', (size_t)(end - at));
		size_t name = (size_t)((slash ? slash : end) - at);

		if (!name_valid(at, name))
			return false;
		if (!slash)
			return true;
		at = slash + 1;
	}
}

static bool record_valid(const struct commit_record *record)
{
	if (record->operation < COMMIT_DELETE || record->operation > COMMIT_DIRECTORY ||
	    record->flags != 0)
		return false;
	if (record->operation != COMMIT_DIRECTORY)
		return record->mode == 0;
	return (record->mode & ~COMMIT_MODE) == 0;
}

static bool zeros(const char *at, const char *end)
{
	while (at < end)
		if (*at++ != '\0')
			return false;
	return true;
}

int commit_journal_next(struct commit_cursor *cursor, struct commit_step *ret)
{
	struct commit_record record;
	const char *path = cursor->at + sizeof(record);
	size_t size;

	if (cursor->number == cursor->count)
		return cursor->left == 0 ? 0 : -EBADMSG;
	if (cursor->left < sizeof(record))
		return -EBADMSG;
	memcpy(&record, cursor->at, sizeof(record));
	size = commit_record_size(record.path_length);
	if (!record_valid(&record) || record.path_length >= SP_INIT_PATH_MAX ||
	    size > cursor->left || !zeros(path + record.path_length, cursor->at + size) ||
	    !commit_path_valid(path, record.path_length, (enum commit_operation)record.operation))
		return -EBADMSG;
	*ret = (struct commit_step){
		.operation = (enum commit_operation)record.operation,
		.mode = record.mode,
		.number = cursor->number,
		.path = path,
	};
	cursor->at += size;
	cursor->left -= size;
	cursor->number++;
	return 1;
}

/* The end of a name comes before everything that could go on there. */
static unsigned int rank(char byte)
{
	if (byte == '\0')
		return 0;
	return byte == '/' ? 1 : 1U + (uint8_t)byte;
}

int commit_path_order(const char *one, const char *two)
{
	while (*one == *two && *one != '\0') {
		one++;
		two++;
	}
	return (int)rank(*one) - (int)rank(*two);
}

bool commit_path_below(const char *path, const char *top, size_t top_length)
{
	return strncmp(path, top, top_length) == 0 &&
	       (path[top_length] == '\0' || path[top_length] == '/');
}
