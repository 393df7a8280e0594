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

/* The longest run of kept bytes from `offset` on. */
static size_t run_at(const struct sp_tail *tail, uint64_t offset, const char **ret_data)
{
	size_t at;

	sp_assert(tail->capacity > 0); /* else nothing is kept */
	at = (size_t)(offset % tail->capacity);
	*ret_data = tail->data + at;
	return (size_t)SP_MIN(tail->end - offset, (uint64_t)(tail->capacity - at));
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
	uint64_t offset = tail->start;

	if (need <= tail->capacity || tail->capacity >= max)
		return;
	while (capacity < need && capacity < max)
		capacity *= 2;
	grown.capacity = SP_MIN(capacity, max);
	grown.data = malloc(grown.capacity);
	if (!grown.data)
		return;
	while (offset < tail->end) {
		const char *data;
		size_t run = run_at(tail, offset, &data);

		put(&grown, data, run);
		offset += run;
	}
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
	int status = 0;

	offset = SP_MAX(offset, tail->start);
	while (status == 0 && offset < tail->end) {
		const char *data;
		size_t run = run_at(tail, offset, &data);

		status = sp_buf_append(out, data, run);
		offset += run;
	}
	return status;
}
