/*
 * The journal of a commit: what is to become of each path, so that doing it again from the start
 * ends the same, wherever it stopped. In memory it is the plan that the commit makes, in its base
 * it is a file. Pure: bytes in, steps out; they may be anybody's.
 *
 *	head, then `count` records: one struct commit_record, its path, one to four NULs, so that
 *	the next one begins at a multiple of four
 *
 * The paths are below the base: names that are neither "." nor "..", none of them below COMMIT_DIR;
 * only a directory's may be ".", the base itself. What takes its place at a path lies in
 * COMMIT_DIR/new, named by the record's number.
 */
#ifndef SP_INIT_COMMIT_JOURNAL_H
#define SP_INIT_COMMIT_JOURNAL_H

#include "pool/base/base.h"
#include "supervisor/sandbox/file_system.h"

#include <stddef.h>
#include <stdint.h>

#define COMMIT_DIR         SP_COMMIT_DIR
#define COMMIT_JOURNAL_MAX (256u * 1024 * 1024) /* bytes */
#define COMMIT_RECORDS_MAX 2000000u
#define COMMIT_MODE        01777u

enum commit_operation {
	COMMIT_DELETE = 1, /* nothing is there */
	COMMIT_PLACE,      /* what was staged is, unless it has been moved there already */
	COMMIT_DIRECTORY,  /* a directory of that mode is */
};

struct commit_head {
	char magic[8];
	uint32_t version;
	uint32_t count;
	uint64_t length; /* of the records */
	uint64_t sum;    /* FNV-1a of them */
};

struct commit_record {
	uint32_t operation;
	uint32_t mode;        /* DIRECTORY, else 0 */
	uint32_t flags;       /* the plan's; 0 in a file */
	uint32_t path_length; /* without NUL */
};

/* One record, as it is used. */
struct commit_step {
	enum commit_operation operation;
	uint32_t mode;
	uint32_t number;
	const char *path;
};

struct commit_cursor {
	const char *at;
	size_t left;
	uint32_t number;
	uint32_t count;
};

/* 0, or -EBADMSG: it is no journal, or not as it was written. */
int commit_journal_open(struct commit_cursor *cursor, const void *data, size_t len);
/* 1: *ret is the next one; 0: that was all; -EBADMSG. */
int commit_journal_next(struct commit_cursor *cursor, struct commit_step *ret);
/* The head of these records. */
struct commit_head commit_journal_head(const void *records, size_t len, uint32_t count);
bool commit_path_valid(const char *path, size_t len, enum commit_operation operation);

/* From one record to the next. */
static inline size_t commit_record_size(size_t path_length)
{
	return (sizeof(struct commit_record) + path_length + 4) & ~(size_t)3;
}

/* The order of a walk: of its names, a directory before what is in it. */
int commit_path_order(const char *one, const char *two);
/* Is it `top`, or below it? */
bool commit_path_below(const char *path, const char *top, size_t top_length);

#endif
