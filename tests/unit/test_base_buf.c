/*
 * The bounded buffer at its limits.
 */
#include "pool/base/buf.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

Test(buf, holds_max_and_not_one_more)
{
	struct sp_buf buf;

	sp_buf_init(&buf, 8);
	cr_assert(strcmp(sp_buf_text(&buf), "") == 0);
	cr_assert(sp_buf_append(&buf, "12345678", 8) == 0);
	cr_assert(sp_buf_append(&buf, "9", 1) == -E2BIG);
	cr_assert(strcmp(sp_buf_text(&buf), "12345678") == 0, "unchanged");
	sp_buf_done(&buf);
}

Test(buf, printf_counts_against_max)
{
	struct sp_buf buf;

	sp_buf_init(&buf, 6);
	cr_assert(sp_buf_printf(&buf, "%d", 12345) == 0);
	cr_assert(sp_buf_printf(&buf, "%s", "67") == -E2BIG);
	cr_assert(strcmp(sp_buf_text(&buf), "12345") == 0);
	cr_assert(sp_buf_printf(&buf, "%s", "6") == 0 && buf.len == 6);
	sp_buf_done(&buf);
}

Test(buf, reserve_commit_consume)
{
	struct sp_buf buf;
	char *at;

	sp_buf_init(&buf, 100);
	at = sp_buf_reserve(&buf, 10);
	cr_assert(at != NULL);
	memcpy(at, "abcdefghij", 10);
	buf.len += 10;
	sp_buf_consume(&buf, 4);
	cr_assert(buf.len == 6 && memcmp(buf.data, "efghij", 6) == 0);
	cr_assert(sp_buf_reserve(&buf, 95) == NULL);
	sp_buf_clear(&buf);
	cr_assert(buf.len == 0 && strcmp(sp_buf_text(&buf), "") == 0);
	sp_buf_done(&buf);
}

Test(buf, take_moves_the_memory)
{
	struct sp_buf buf;
	char *taken;

	sp_buf_init(&buf, 100);
	cr_assert(sp_buf_append(&buf, "abc", 3) == 0);
	taken = sp_buf_take(&buf);
	cr_assert(strcmp(taken, "abc") == 0 && buf.len == 0 && buf.data == NULL);
	free(taken);
	taken = sp_buf_take(&buf);
	cr_assert(strcmp(taken, "") == 0);
	free(taken);
	sp_buf_done(&buf);
}
