/*
 * Tables by libsmartcols (dlopen), or by hand in the same shape: columns two spaces apart, as wide
 * as their widest cell, nothing cut.
 */
#include "supervisor/cli/columns.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libsmartcols/libsmartcols.h>

#include "supervisor/cli/cli.h"
#include "supervisor/cli/text.h"

#define CELL_MAX 1024

void sp_cli_columns_init(struct sp_cli_columns *table, const struct sp_cli_column *columns,
			 size_t column_count)
{
	sp_assert(column_count > 0);
	*table = (struct sp_cli_columns){.columns = columns, .column_count = column_count};
}

void sp_cli_columns_done(struct sp_cli_columns *table)
{
	for (size_t i = 0; i < table->cell_count; i++)
		free(table->cells[i]);
	free(table->cells);
	*table = (struct sp_cli_columns){0};
}

void sp_cli_columns_add(struct sp_cli_columns *table, const char *format, ...)
{
	char text[CELL_MAX];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	sp_cli_make_printable(text);
	if (table->cell_count == table->cell_capacity) {
		table->cell_capacity = table->cell_capacity ? 2 * table->cell_capacity : 64;
		table->cells =
			sp_cli_xrealloc(table->cells, table->cell_capacity * sizeof(*table->cells));
	}
	table->cells[table->cell_count++] = sp_cli_xstrdup(text);
}

/* ---- by hand ---- */

static size_t column_width(const struct sp_cli_columns *table, size_t column, bool headings)
{
	size_t width = headings ? strlen(table->columns[column].name) : 0;

	for (size_t i = column; i < table->cell_count; i += table->column_count)
		width = SP_MAX(width, strlen(table->cells[i]));
	return width;
}

void sp_cli_columns_write_plain(const struct sp_cli_columns *table, bool headings,
				struct sp_buf *out)
{
	size_t rows = table->cell_count / table->column_count;

	for (size_t row = headings ? 0 : 1; row <= rows; row++) {
		for (size_t i = 0; i < table->column_count; i++) {
			const struct sp_cli_column *column = &table->columns[i];
			const char *text =
				row == 0 ? column->name
					 : table->cells[(row - 1) * table->column_count + i];
			int width = (int)column_width(table, i, headings);
			bool last = i + 1 == table->column_count;

			/* No trailing spaces: the last column on the left is not padded. */
			if (column->right)
				sp_cli_put(out, "%*s", width, text);
			else
				sp_cli_put(out, "%-*s", last ? 0 : width, text);
			sp_cli_put(out, last ? "\n" : "  ");
		}
	}
}

/* ---- by libsmartcols ---- */

/* The calls that are used, with the types of the library's own header. */
#define SMARTCOLS_CALLS(X)               \
	X(scols_new_table)               \
	X(scols_unref_table)             \
	X(scols_table_new_column)        \
	X(scols_table_new_line)          \
	X(scols_line_set_data)           \
	X(scols_table_enable_noheadings) \
	X(scols_print_table_to_string)

struct smartcols {
	void *library;

#define SMARTCOLS_MEMBER(name) __typeof__(name) *(name);
	SMARTCOLS_CALLS(SMARTCOLS_MEMBER)
#undef SMARTCOLS_MEMBER
};

static bool smartcols_open(struct smartcols *lib)
{
	bool complete = true;

	lib->library = dlopen("libsmartcols.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!lib->library)
		return false;
#define SMARTCOLS_LOAD(name)                                       \
	*(void **)(void *)&lib->name = dlsym(lib->library, #name); \
	complete = complete && lib->name;
	SMARTCOLS_CALLS(SMARTCOLS_LOAD)
#undef SMARTCOLS_LOAD
	if (!complete)
		(void)dlclose(lib->library);
	return complete;
}

static bool smartcols_fill(const struct smartcols *lib, struct libscols_table *view,
			   const struct sp_cli_columns *table)
{
	for (size_t i = 0; i < table->column_count; i++)
		if (!lib->scols_table_new_column(view, table->columns[i].name, 0,
						 table->columns[i].right ? SCOLS_FL_RIGHT : 0))
			return false;
	for (size_t row = 0; row < table->cell_count; row += table->column_count) {
		struct libscols_line *line = lib->scols_table_new_line(view, NULL);

		for (size_t i = 0; line && i < table->column_count; i++)
			if (lib->scols_line_set_data(line, i, table->cells[row + i]) != 0)
				return false;
		if (!line)
			return false;
	}
	return true;
}

static bool smartcols_write(const struct smartcols *lib, const struct sp_cli_columns *table,
			    bool headings, struct sp_buf *out)
{
	struct libscols_table *view = lib->scols_new_table();
	char *text = NULL;
	bool good = view && smartcols_fill(lib, view, table);

	if (good && !headings)
		good = lib->scols_table_enable_noheadings(view, 1) == 0;
	if (good)
		good = lib->scols_print_table_to_string(view, &text) == 0 && text;
	/* Before 2.40 the string lacks the last line's end. */
	if (good)
		sp_cli_put(out, "%s%s", text,
			   text[0] && text[strlen(text) - 1] != '\n' ? "\n" : "");
	free(text);
	lib->scols_unref_table(view);
	return good;
}

void sp_cli_columns_write(const struct sp_cli_columns *table, bool headings, struct sp_buf *out)
{
	struct smartcols lib;
	bool written = false;

	if (smartcols_open(&lib)) {
		written = smartcols_write(&lib, table, headings, out);
		(void)dlclose(lib.library);
	}
	if (!written)
		sp_cli_columns_write_plain(table, headings, out);
}
