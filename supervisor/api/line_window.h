/*
 * Some lines of a text that comes in pieces: `limit` of them from the `offset`th on, joined by LF.
 * What ends a line (LF, and CRs before it) is taken off; the last one has no LF. Lines may be as
 * long as they like, nothing is kept of them. Pure.
 */
#ifndef SP_API_LINE_WINDOW_H
#define SP_API_LINE_WINDOW_H

#include "pool/base/base.h"

#define SP_LINE_RETURNS_MAX 4096u /* CRs that are held back; of more the first are the line's */

struct sp_line_window {
	uint64_t skip;     /* lines to go before the first */
	uint64_t left;     /* lines to go after the current one; the current one counts */
	uint64_t carriage; /* CRs seen that may end the line */
	bool begun;        /* a line was delivered before this one */
	bool in_line;      /* the current line has begun */
	void (*out)(void *arg, const char *data, size_t len);
	void *arg;
};

/* offset >= 1, limit >= 1 (UINT64_MAX = all). */
void sp_line_window_init(struct sp_line_window *window, uint64_t offset, uint64_t limit,
			 void (*out)(void *arg, const char *data, size_t len), void *arg);
/* False: nothing of what follows is wanted any more. */
bool sp_line_window_feed(struct sp_line_window *window, const char *data, size_t len);

#endif
