/*
 * The last bytes of an output that may be endless (a command's, a terminal's), found again by their
 * offset from its beginning. Pure.
 */
#ifndef SP_API_EXECD_TAIL_H
#define SP_API_EXECD_TAIL_H

#include "pool/base/buf.h"

struct sp_tail {
	char *data;
	size_t capacity;
	uint64_t start; /* the first byte that is kept, … */
	uint64_t end;   /* … and how many were ever written */
};

void sp_tail_done(struct sp_tail *tail);
/* Keeps what fits. Grows up to max bytes as long as there is memory; never shrinks. */
void sp_tail_append(struct sp_tail *tail, const void *data, size_t len, size_t max);
/* The first byte that is kept, but not before `since` and not after the end. */
uint64_t sp_tail_from(const struct sp_tail *tail, int64_t since);
/* The bytes from `offset` on (as the above gave it) as far as they lie together: NULL and 0 at the
 * end. At most two calls reach it. */
const char *sp_tail_piece(const struct sp_tail *tail, uint64_t offset, size_t *ret_len);
/* What is kept from `offset` on; from the oldest byte if that is gone, nothing beyond the end.
 * 0, -ENOMEM, -E2BIG. */
int sp_tail_read(const struct sp_tail *tail, uint64_t offset, struct sp_buf *out);

#endif
