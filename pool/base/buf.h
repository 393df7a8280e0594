/*
 * A growing byte buffer with a hard maximum. Allocation failure and exceeding the maximum are
 * errors of the call, never of the process; after one the content is unchanged.
 */
#ifndef SP_BASE_BUF_H
#define SP_BASE_BUF_H

#include "pool/base/base.h"

struct sp_buf {
	char *data; /* NULL while capacity is 0; always followed by a NUL otherwise */
	size_t len;
	size_t capacity;
	size_t max;
};

/* max: the most bytes it may ever hold. */
void sp_buf_init(struct sp_buf *buf, size_t max);
void sp_buf_done(struct sp_buf *buf);
void sp_buf_clear(struct sp_buf *buf);
/* 0, -ENOMEM, -E2BIG (would exceed max). */
int sp_buf_append(struct sp_buf *buf, const void *data, size_t len) SP_MUST_CHECK;
int sp_buf_printf(struct sp_buf *buf, const char *format, ...) SP_PRINTF(2, 3) SP_MUST_CHECK;
/* Make room for `len` more and return where to write them; commit with buf->len += n. NULL: no
 * room. */
char *sp_buf_reserve(struct sp_buf *buf, size_t len);
/* Drop the first `len` bytes. */
void sp_buf_consume(struct sp_buf *buf, size_t len);
/* The text, "" when empty; valid until the next change. */
const char *sp_buf_text(const struct sp_buf *buf);
/* Give up the memory (malloc'ed, NUL-terminated); leaves an empty buffer. NULL when out of memory.
 */
char *sp_buf_take(struct sp_buf *buf);

#endif
