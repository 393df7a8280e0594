/*
 * Tables, laid out by hand: the fall-back when libsmartcols is missing.
 */
#include "supervisor/cli/columns.h"

#include <criterion/criterion.h>

static const struct sp_cli_column columns[] = {{"POOL", false}, {"IDLE", true}, {"ERROR", false}};
static struct sp_cli_columns table;
static struct sp_buf out;

static void setup(void)
{
	sp_cli_columns_init(&table, columns, SP_ARRAY_SIZE(columns));
	sp_buf_init(&out, 4096);
}

static void teardown(void)
{
	sp_cli_columns_done(&table);
	sp_buf_done(&out);
}

TestSuite(cli_columns, .init = setup, .fini = teardown);

static void add_row(const char *pool, int idle, const char *error)
{
	sp_cli_columns_add(&table, "%s", pool);
	sp_cli_columns_add(&table, "%d", idle);
	sp_cli_columns_add(&table, "%s", error);
}

Test(cli_columns, widths_follow_the_widest_cell)
{
	add_row("default", 7, "-");
	add_row("b", 12345, "no space left");
	sp_cli_columns_write_plain(&table, true, &out);
	cr_assert_str_eq(sp_buf_text(&out), "POOL      IDLE  ERROR\n"
					    "default      7  -\n"
					    "b        12345  no space left\n");
}

Test(cli_columns, without_headings_their_width_does_not_count)
{
	add_row("a", 1, "x");
	sp_cli_columns_write_plain(&table, false, &out);
	cr_assert_str_eq(sp_buf_text(&out), "a  1  x\n");
}

Test(cli_columns, an_empty_table_is_its_headings)
{
	sp_cli_columns_write_plain(&table, true, &out);
	cr_assert_str_eq(sp_buf_text(&out), "POOL  IDLE  ERROR\n");
}

Test(cli_columns, control_bytes_become_question_marks)
{
	add_row("a\x1b[2J", 1, "two\nlines");
	add_row("\xc2\x9b"
		"2J",
		1, "gr\xc3\xbcn\xc2\xa0\xc2\x80");
	sp_cli_columns_write_plain(&table, false, &out);
	cr_assert_str_eq(sp_buf_text(&out), "a?[2J  1  two?lines\n"
					    "??2J   1  gr\xc3\xbcn\xc2\xa0??\n");
}

Test(cli_columns, many_rows_are_kept)
{
	for (int i = 0; i < 1000; i++)
		add_row("p", i, "e");
	cr_assert(table.cell_count == 3000);
	cr_assert_str_eq(table.cells[2998], "999");
}
