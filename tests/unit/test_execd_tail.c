/* The tail of an endless output: the last bytes, by their offset from its beginning. */
#include "supervisor/api/execd_tail.h"

#include <criterion/criterion.h>
#include <string.h>

#define MAX 16384u

static void expect_from(const struct sp_tail *tail, uint64_t offset, const char *expected)
{
	struct sp_buf out;

	sp_buf_init(&out, SIZE_MAX);
	cr_assert(sp_tail_read(tail, offset, &out) == 0);
	cr_assert_str_eq(sp_buf_text(&out), expected);
	sp_buf_done(&out);
}

/* Byte n of the output is letter n modulo 26. */
static void write_letters(struct sp_tail *tail, size_t len, size_t max)
{
	char letters[8192];
	uint64_t first = tail->end;

	cr_assert(len <= sizeof(letters));
	for (size_t i = 0; i < len; i++)
		letters[i] = (char)('a' + (first + i) % 26);
	sp_tail_append(tail, letters, len, max);
}

static void expect_letters(const struct sp_tail *tail, uint64_t offset, uint64_t first)
{
	struct sp_buf out;

	sp_buf_init(&out, SIZE_MAX);
	cr_assert(sp_tail_read(tail, offset, &out) == 0);
	cr_assert_eq(out.len, tail->end - first);
	for (size_t i = 0; i < out.len; i++)
		cr_assert_eq(out.data[i], (char)('a' + (first + i) % 26), "byte %zu", i);
	sp_buf_done(&out);
}

Test(execd_tail, is_read_from_any_offset)
{
	struct sp_tail tail = {0};

	sp_tail_append(&tail, "hello ", 6, MAX);
	sp_tail_append(&tail, "world", 5, MAX);
	expect_from(&tail, 0, "hello world");
	expect_from(&tail, 6, "world");
	expect_from(&tail, 11, "");
	expect_from(&tail, 1000, "");
	sp_tail_done(&tail);
}

Test(execd_tail, keeps_everything_up_to_its_limit)
{
	struct sp_tail tail = {0};

	write_letters(&tail, 8192, MAX);
	write_letters(&tail, 8192, MAX);
	cr_assert_eq(tail.start, 0);
	expect_letters(&tail, 0, 0);
	sp_tail_done(&tail);
}

Test(execd_tail, loses_the_oldest_beyond_its_limit)
{
	struct sp_tail tail = {0};

	write_letters(&tail, 8192, MAX);
	write_letters(&tail, 8192, MAX);
	write_letters(&tail, 1, MAX);
	cr_assert_eq(tail.start, 1);
	cr_assert_eq(tail.capacity, MAX);
	expect_letters(&tail, 0, 1);
	write_letters(&tail, 8000, MAX);
	expect_letters(&tail, 100, tail.end - MAX);
	expect_letters(&tail, tail.end - 5, tail.end - 5);
	sp_tail_done(&tail);
}

Test(execd_tail, what_was_lost_is_not_back_when_it_may_grow_again)
{
	struct sp_tail tail = {0};

	write_letters(&tail, 100, 64);
	cr_assert_eq(tail.start, 36);
	write_letters(&tail, 100, MAX);
	cr_assert_eq(tail.start, 36);
	expect_letters(&tail, 0, 36);
	sp_tail_done(&tail);
}

Test(execd_tail, a_piece_longer_than_the_limit_leaves_its_end)
{
	struct sp_tail tail = {0};

	write_letters(&tail, 8192, 100);
	cr_assert_eq(tail.start, 8092);
	expect_letters(&tail, 0, 8092);
	sp_tail_done(&tail);
}

Test(execd_tail, without_room_it_only_counts)
{
	struct sp_tail tail = {0};

	write_letters(&tail, 10, 0);
	cr_assert_eq(tail.end, 10);
	expect_from(&tail, 0, "");
	sp_tail_done(&tail);
	cr_assert_eq(tail.start, 10);
}

Test(execd_tail, is_found_from_any_offset_that_a_client_names)
{
	struct sp_tail tail = {0};

	cr_assert(sp_tail_from(&tail, 0) == 0 && sp_tail_from(&tail, 7) == 0);
	write_letters(&tail, 100, 64);
	cr_assert(sp_tail_from(&tail, -1) == 36 && sp_tail_from(&tail, INT64_MIN) == 36);
	cr_assert(sp_tail_from(&tail, 35) == 36 && sp_tail_from(&tail, 37) == 37);
	cr_assert(sp_tail_from(&tail, 100) == 100 && sp_tail_from(&tail, INT64_MAX) == 100);
	sp_tail_done(&tail);
}

/* Every byte from there on, in at most two pieces. */
static void expect_pieces(const struct sp_tail *tail, uint64_t from)
{
	uint64_t at = from;
	const char *piece;
	size_t len;
	int pieces = 0;

	while ((piece = sp_tail_piece(tail, at, &len))) {
		for (size_t i = 0; i < len; i++)
			cr_assert_eq(piece[i], (char)('a' + (at + i) % 26), "offset %zu",
				     (size_t)at + i);
		at += len;
		pieces++;
	}
	cr_assert(at == tail->end && len == 0 && pieces <= 2);
}

Test(execd_tail, lies_in_at_most_two_pieces_whatever_was_written)
{
	static const size_t sizes[] = {1,    4095, 4096, 4097,    0, 8191, MAX / 2 - 1, 8192, 7,
				       8192, 8192, 8192, MAX / 2, 3, 1,    8192,        0,    4097};
	struct sp_tail tail = {0};
	uint64_t total = 0;

	for (size_t i = 0; i < SP_ARRAY_SIZE(sizes); i++) {
		write_letters(&tail, sizes[i], MAX);
		total += sizes[i];
		cr_assert(tail.end == total && tail.capacity <= MAX);
		cr_assert(tail.end - sp_tail_from(&tail, 0) == SP_MIN(total, (uint64_t)MAX),
			  "after write %zu", i);
		expect_pieces(&tail, sp_tail_from(&tail, 0));
		expect_pieces(&tail, tail.end);
	}
	sp_tail_done(&tail);
}

Test(execd_tail, small_output_costs_small_memory)
{
	struct sp_tail tail = {0};

	write_letters(&tail, 100, MAX);
	cr_assert(tail.capacity == 4096);
	sp_tail_done(&tail);
	cr_assert(!tail.data && tail.capacity == 0);
}
