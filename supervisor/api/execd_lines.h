/*
 * Cuts what a program writes into the lines that execd's events carry. Pure.
 *
 * A line ends at LF or CR, CR LF is one end even when it comes in two pieces, and a blank line is
 * the text "\n". What has no end yet is kept; of a line longer than SP_EXECD_LINE_MAX it is given
 * out in pieces, none of which ends inside a UTF-8 sequence.
 */
#ifndef SP_API_EXECD_LINES_H
#define SP_API_EXECD_LINES_H

#include "pool/base/buf.h"

/* Six times as much, its longest escape, is below the 4 MiB that clients take for one event. */
#define SP_EXECD_LINE_MAX (512u * 1024)

struct sp_lines {
	struct sp_buf tail;
	size_t piece_max;
	bool after_cr; /* the last byte was CR: an LF now belongs to it */
	bool in_piece; /* a piece of the line that goes on was given out */
};

/* One line, without its end; borrowed for the call. False: no more for now. */
typedef bool sp_line_cb(void *arg, const char *line, size_t len);

void sp_lines_init(struct sp_lines *lines);
/* Longer lines come in pieces of this many bytes from here on; SP_EXECD_LINE_MAX at first. */
void sp_lines_limit(struct sp_lines *lines, size_t piece_max);
void sp_lines_done(struct sp_lines *lines);
/* Returns how many bytes were taken: fewer than len only after `emit` said false. */
size_t sp_lines_feed(struct sp_lines *lines, const char *data, size_t len, sp_line_cb *emit,
		     void *arg);
/* No more comes: what is kept is the last line. */
void sp_lines_flush(struct sp_lines *lines, sp_line_cb *emit, void *arg);

#endif
