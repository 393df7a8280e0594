/*
 * The last bytes that a terminal wrote, by their absolute offsets: byte 0 is the first that it ever
 * wrote. What no longer fits is forgotten from the front.
 */
#ifndef SP_API_PTY_RING_H
#define SP_API_PTY_RING_H

#include "pool/base/base.h"

#define SP_PTY_RING_MAX (1u << 20)

struct sp_pty_ring {
	uint8_t *data;
	size_t capacity; /* grows to SP_PTY_RING_MAX before anything is forgotten */
	uint64_t total;  /* written so far: the offset of the next byte */
};

/* A zeroed one is empty. */
void sp_pty_ring_done(struct sp_pty_ring *ring);
/* Without memory to grow it forgets sooner; the offsets stay right. */
void sp_pty_ring_write(struct sp_pty_ring *ring, const void *data, size_t len);
/* The offset of the oldest byte that is kept, but not before `since` and not after the end. */
uint64_t sp_pty_ring_from(const struct sp_pty_ring *ring, int64_t since);
/* The bytes from `offset` on (as the above gave it) as far as they lie together: NULL and 0 at the
 * end. At most two calls reach it. */
const uint8_t *sp_pty_ring_piece(const struct sp_pty_ring *ring, uint64_t offset, size_t *ret_len);

#endif
