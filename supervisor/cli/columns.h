/*
 * Tables for people. libsmartcols lays them out when it is there; it is opened at run time, so that
 * the verbs without tables do not pay for loading it, and its absence costs looks only.
 */
#ifndef SP_CLI_COLUMNS_H
#define SP_CLI_COLUMNS_H

#include "pool/base/buf.h"

struct sp_cli_column {
	const char *name;
	bool right; /* numbers */
};

struct sp_cli_columns {
	const struct sp_cli_column *columns; /* borrowed */
	size_t column_count;
	char **cells; /* owned texts, row by row */
	size_t cell_count, cell_capacity;
};

void sp_cli_columns_init(struct sp_cli_columns *table, const struct sp_cli_column *columns,
			 size_t column_count);
void sp_cli_columns_done(struct sp_cli_columns *table);
/* The next cell. Control bytes become '?'. Dies when out of memory. */
void sp_cli_columns_add(struct sp_cli_columns *table, const char *format, ...) SP_PRINTF(2, 3);
/* Append the finished table. headings: with a first line of names. */
void sp_cli_columns_write(const struct sp_cli_columns *table, bool headings, struct sp_buf *out);
/* The layout without libsmartcols. */
void sp_cli_columns_write_plain(const struct sp_cli_columns *table, bool headings,
				struct sp_buf *out);

#endif
