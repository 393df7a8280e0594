/*
 * The byte at offset o lies at data[o % capacity]. That holds while the capacity grows too, because
 * it grows only as long as nothing was forgotten, when o is below both capacities.
 */
#include "supervisor/api/pty_ring.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 4096u

void sp_pty_ring_done(struct sp_pty_ring *ring)
{
	free(ring->data);
	*ring = (struct sp_pty_ring){0};
}

static void grow(struct sp_pty_ring *ring, size_t len)
{
	size_t wanted = ring->capacity ? ring->capacity : FIRST_CAPACITY;
	uint64_t end = ring->total + len;
	uint8_t *data;

	if (ring->total > ring->capacity || end <= ring->capacity)
		return;
	while (wanted < end && wanted < SP_PTY_RING_MAX)
		wanted *= 2;
	if (wanted == ring->capacity)
		return;
	data = realloc(ring->data, wanted);
	if (!data)
		return;
	ring->data = data;
	ring->capacity = wanted;
}

void sp_pty_ring_write(struct sp_pty_ring *ring, const void *data, size_t len)
{
	const uint8_t *at = data;

	grow(ring, len);
	if (len > ring->capacity) {
		ring->total += len - ring->capacity;
		at += len - ring->capacity;
		len = ring->capacity;
	}
	while (len > 0) {
		size_t to = (size_t)(ring->total % ring->capacity);
		size_t piece = SP_MIN(len, ring->capacity - to);

		memcpy(ring->data + to, at, piece);
		ring->total += piece;
		at += piece;
		len -= piece;
	}
}

uint64_t sp_pty_ring_from(const struct sp_pty_ring *ring, int64_t since)
{
	uint64_t oldest = ring->total - SP_MIN(ring->total, (uint64_t)ring->capacity);
	uint64_t wanted = since > 0 ? (uint64_t)since : 0;

	return SP_MIN(SP_MAX(wanted, oldest), ring->total);
}

const uint8_t *sp_pty_ring_piece(const struct sp_pty_ring *ring, uint64_t offset, size_t *ret_len)
{
	size_t from;

	*ret_len = 0;
	if (offset >= ring->total)
		return NULL;
	from = (size_t)(offset % ring->capacity);
	*ret_len = (size_t)SP_MIN((uint64_t)(ring->capacity - from), ring->total - offset);
	return ring->data + from;
}
