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
