/*
 * A ring that grows: byte number n of the output lies at n modulo the capacity, so growing lays
 * what is kept out anew.
 */
#include "supervisor/api/execd_tail.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 4096u

void sp_tail_done(struct sp_tail *tail)
{
	free(tail->data);
	tail->data = NULL;
	tail->capacity = 0;
	tail->start = tail->end;
}

uint64_t sp_tail_from(const struct sp_tail *tail, int64_t since)
{
	uint64_t wanted = since > 0 ? (uint64_t)since : 0;

	return SP_MIN(SP_MAX(wanted, tail->start), tail->end);
}

const char *sp_tail_piece(const struct sp_tail *tail, uint64_t offset, size_t *ret_len)
{
	size_t at;

	*ret_len = 0;
	if (offset >= tail->end)
		return NULL;
	sp_assert(tail->capacity > 0); /* else nothing is kept */
	at = (size_t)(offset % tail->capacity);
	*ret_len = (size_t)SP_MIN(tail->end - offset, (uint64_t)(tail->capacity - at));
	return tail->data + at;
}

static void put(struct sp_tail *tail, const char *data, size_t len)
{
	if (len > tail->capacity) {
		tail->end += len - tail->capacity;
		data += len - tail->capacity;
		len = tail->capacity;
	}
	while (len > 0) {
		size_t at = (size_t)(tail->end % tail->capacity);
		size_t run = SP_MIN(len, tail->capacity - at);

		memcpy(tail->data + at, data, run);
		tail->end += run;
		data += run;
		len -= run;
	}
	if (tail->end - tail->start > tail->capacity)
		tail->start = tail->end - tail->capacity;
}

static void grow(struct sp_tail *tail, size_t len, size_t max)
{
	uint64_t need = tail->end - tail->start + len;
	size_t capacity = tail->capacity ? tail->capacity : FIRST_CAPACITY;
	struct sp_tail grown = {.start = tail->start, .end = tail->start};
	const char *piece;
	size_t piece_len;

	if (need <= tail->capacity || tail->capacity >= max)
		return;
	while (capacity < need && capacity < max)
		capacity *= 2;
	grown.capacity = SP_MIN(capacity, max);
	grown.data = malloc(grown.capacity);
	if (!grown.data)
		return;
	while ((piece = sp_tail_piece(tail, grown.end, &piece_len)))
		put(&grown, piece, piece_len);
	free(tail->data);
	*tail = grown;
}

void sp_tail_append(struct sp_tail *tail, const void *data, size_t len, size_t max)
{
	grow(tail, len, max);
	if (tail->capacity > 0) {
		put(tail, data, len);
		return;
	}
	tail->end += len;
	tail->start = tail->end;
}

int sp_tail_read(const struct sp_tail *tail, uint64_t offset, struct sp_buf *out)
{
	const char *piece;
	size_t len;
	int status = 0;

	offset = SP_MAX(offset, tail->start);
	while (status == 0 && (piece = sp_tail_piece(tail, offset, &len))) {
		status = sp_buf_append(out, piece, len);
		offset += len;
	}
	return status;
}
