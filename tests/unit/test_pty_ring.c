/*
 * The ring of a terminal against a plain record of everything that was written.
 */
#include "supervisor/api/pty_ring.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* The byte at an offset, whatever the writes were. */
static uint8_t byte_at(uint64_t offset)
{
	return (uint8_t)(offset * 31 + offset / 251);
}

static void write_more(struct sp_pty_ring *ring, size_t len)
{
	uint8_t *data = malloc(len + 1);

	for (size_t i = 0; i < len; i++)
		data[i] = byte_at(ring->total + i);
	sp_pty_ring_write(ring, data, len);
	free(data);
}

/* Everything from `from` to the end is what was written. Returns how much it is. */
static uint64_t check_from(const struct sp_pty_ring *ring, uint64_t from)
{
	uint64_t at = from;
	const uint8_t *piece;
	size_t len;
	int pieces = 0;

	while ((piece = sp_pty_ring_piece(ring, at, &len))) {
		for (size_t i = 0; i < len; i++)
			cr_assert(piece[i] == byte_at(at + i), "offset %zu", (size_t)at + i);
		at += len;
		pieces++;
	}
	cr_assert(at == ring->total && len == 0 && pieces <= 2);
	return at - from;
}

Test(pty_ring, is_empty_at_first)
{
	struct sp_pty_ring ring = {0};

	cr_assert(sp_pty_ring_from(&ring, 0) == 0 && sp_pty_ring_from(&ring, 7) == 0);
	cr_assert(check_from(&ring, 0) == 0);
	sp_pty_ring_done(&ring);
}

Test(pty_ring, keeps_all_up_to_its_size_and_forgets_one_byte_beyond)
{
	struct sp_pty_ring ring = {0};

	write_more(&ring, SP_PTY_RING_MAX);
	cr_assert(sp_pty_ring_from(&ring, 0) == 0);
	cr_assert(check_from(&ring, 0) == SP_PTY_RING_MAX);
	write_more(&ring, 1);
	cr_assert(sp_pty_ring_from(&ring, 0) == 1);
	cr_assert(check_from(&ring, 1) == SP_PTY_RING_MAX);
	sp_pty_ring_done(&ring);
}

Test(pty_ring, offsets_are_clamped_to_what_is_kept)
{
	struct sp_pty_ring ring = {0};

	write_more(&ring, 100);
	cr_assert(sp_pty_ring_from(&ring, -1) == 0);
	cr_assert(sp_pty_ring_from(&ring, INT64_MIN) == 0);
	cr_assert(sp_pty_ring_from(&ring, 40) == 40);
	cr_assert(sp_pty_ring_from(&ring, 100) == 100);
	cr_assert(sp_pty_ring_from(&ring, INT64_MAX) == 100);
	sp_pty_ring_done(&ring);
}

Test(pty_ring, writes_of_every_size_keep_the_last_bytes)
{
	static const size_t sizes[] = {
		1,
		4095,
		4096,
		4097,
		65536,
		0,
		300000,
		SP_PTY_RING_MAX - 1,
		SP_PTY_RING_MAX,
		SP_PTY_RING_MAX + 1,
		3 * SP_PTY_RING_MAX + 5,
		7,
	};
	struct sp_pty_ring ring = {0};
	uint64_t total = 0;

	for (size_t i = 0; i < SP_ARRAY_SIZE(sizes); i++) {
		uint64_t kept;

		write_more(&ring, sizes[i]);
		total += sizes[i];
		cr_assert(ring.total == total && ring.capacity <= SP_PTY_RING_MAX);
		kept = check_from(&ring, sp_pty_ring_from(&ring, 0));
		cr_assert(kept == SP_MIN(total, (uint64_t)SP_PTY_RING_MAX), "after write %zu", i);
	}
	sp_pty_ring_done(&ring);
}

Test(pty_ring, small_output_costs_small_memory)
{
	struct sp_pty_ring ring = {0};

	write_more(&ring, 100);
	cr_assert(ring.capacity == 4096);
	sp_pty_ring_done(&ring);
	cr_assert(!ring.data && ring.total == 0);
}
