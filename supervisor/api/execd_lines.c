/*
 * The line cutter. Whole lines of a chunk are handed on where they lie; only what waits for its end
 * is copied. Without memory for that it is given out as a piece, so nothing is ever lost.
 */
#include "supervisor/api/execd_lines.h"

#include <string.h>

#define SEQUENCE_MAX 4u           /* bytes of one UTF-8 sequence */
#define KEEP_MAX     (64u * 1024) /* memory that no line is in */

void sp_lines_init(struct sp_lines *lines)
{
	*lines = (struct sp_lines){0};
	sp_buf_init(&lines->tail, SP_EXECD_LINE_MAX);
	lines->piece_max = SP_EXECD_LINE_MAX;
}

void sp_lines_limit(struct sp_lines *lines, size_t piece_max)
{
	lines->piece_max = piece_max;
	lines->tail.max = SP_MAX(piece_max, lines->tail.len);
}

void sp_lines_done(struct sp_lines *lines)
{
	sp_buf_done(&lines->tail);
}

/* How much of these bytes to give out when the next one may continue a sequence. */
static size_t piece_length(const char *data, size_t len)
{
	for (size_t back = 1; back < SEQUENCE_MAX && back < len; back++) {
		unsigned char byte = (unsigned char)data[len - back];
		size_t need = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 0;

		if (need > back)
			return len - back;
		if (byte < 0x80 || byte >= 0xc0)
			break;
	}
	return len;
}

static size_t line_length(const char *data, size_t len)
{
	const char *lf = memchr(data, '\n', len);
	size_t line = lf ? (size_t)(lf - data) : len;
	const char *cr = memchr(data, '\r', line);

	return cr ? (size_t)(cr - data) : line;
}

static bool give_tail(struct sp_lines *lines, size_t len, sp_line_cb *emit, void *arg)
{
	bool more = emit(arg, sp_buf_text(&lines->tail), len);

	sp_buf_consume(&lines->tail, len);
	if (lines->tail.len == 0 && lines->tail.capacity > KEEP_MAX)
		sp_buf_done(&lines->tail);
	return more;
}

/* Keep bytes without an end in them; returns how many fitted. */
static size_t keep(struct sp_lines *lines, const char *data, size_t len)
{
	size_t room = lines->tail.max - lines->tail.len;
	size_t take = SP_MIN(room, len);

	return sp_buf_append(&lines->tail, data, take) == 0 ? take : 0;
}

/* The tail is as long as it may get, or cannot grow. */
static bool give_piece(struct sp_lines *lines, sp_line_cb *emit, void *arg)
{
	size_t len =
		piece_length(sp_buf_text(&lines->tail), SP_MIN(lines->tail.len, lines->piece_max));
	bool more;

	lines->in_piece = true;
	more = give_tail(lines, len, emit, arg);
	lines->tail.max = SP_MAX(lines->piece_max, lines->tail.len);
	return more;
}

/* `len` bytes and the end of their line. */
static bool give_line(struct sp_lines *lines, const char *data, size_t len, sp_line_cb *emit,
		      void *arg)
{
	bool in_piece = lines->in_piece;
	bool more = true;

	while (lines->tail.len > 0) {
		size_t kept = keep(lines, data, len);

		data += kept;
		len -= kept;
		in_piece = true;
		if (len == 0) {
			more = give_tail(lines, lines->tail.len, emit, arg) && more;
			break;
		}
		more = give_piece(lines, emit, arg) && more;
	}
	lines->in_piece = false;
	if (len > 0)
		return emit(arg, data, len) && more;
	return in_piece ? more : emit(arg, "\n", 1);
}

/* No end in sight. */
static bool give_rest(struct sp_lines *lines, const char *data, size_t len, sp_line_cb *emit,
		      void *arg, size_t *ret_taken)
{
	size_t taken = keep(lines, data, len);
	bool more = true;

	if (taken == 0 && lines->tail.len == 0) { /* no memory at all */
		lines->in_piece = true;
		*ret_taken = len;
		return emit(arg, data, len);
	}
	if (taken < len || lines->tail.len == lines->tail.max)
		more = give_piece(lines, emit, arg);
	*ret_taken = taken;
	return more;
}

size_t sp_lines_feed(struct sp_lines *lines, const char *data, size_t len, sp_line_cb *emit,
		     void *arg)
{
	size_t at = 0;
	bool more = true;

	while (at < len && more) {
		size_t line = line_length(data + at, len - at);
		size_t taken = line;

		/* Kept while pieces could be longer. */
		if (lines->tail.len > lines->piece_max) {
			more = give_piece(lines, emit, arg);
			continue;
		}
		if (line == 0 && lines->after_cr && data[at] == '\n') {
			lines->after_cr = false;
			at++;
			continue;
		}
		lines->after_cr = false;
		if (at + line < len) {
			more = give_line(lines, data + at, line, emit, arg);
			lines->after_cr = data[at + line] == '\r';
			taken = line + 1;
		} else {
			more = give_rest(lines, data + at, line, emit, arg, &taken);
		}
		at += taken;
	}
	return at;
}

void sp_lines_flush(struct sp_lines *lines, sp_line_cb *emit, void *arg)
{
	if (lines->tail.len > 0)
		(void)give_tail(lines, lines->tail.len, emit, arg);
	sp_buf_done(&lines->tail);
	lines->in_piece = false;
	lines->after_cr = false;
}
