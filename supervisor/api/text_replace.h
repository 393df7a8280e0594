/*
 * Every occurrence of one text in a stream of bytes becomes another, from the left, without
 * overlaps. Pure: fed with pieces, asked for what comes out of them run by run, so that a short
 * text that becomes a long one costs no memory. Keeps less than the length of what is searched for
 * of a piece to the next.
 */
#ifndef SP_API_TEXT_REPLACE_H
#define SP_API_TEXT_REPLACE_H

#include "pool/base/buf.h"

struct sp_text_replace {
	const char *from; /* what is searched for, borrowed; not empty */
	size_t from_len;
	const char *to; /* borrowed */
	size_t to_len;
	uint64_t count;
	struct sp_buf kept;
	size_t at;    /* of it: what is decided */
	bool owes_to; /* `to` comes next */
};

void sp_text_replace_init(struct sp_text_replace *replace, const char *from, size_t from_len,
			  const char *to, size_t to_len);
void sp_text_replace_done(struct sp_text_replace *replace); /* harmless for one that is all zero */
/* Not before sp_text_replace_next() said that there is nothing. -ENOMEM. */
int sp_text_replace_feed(struct sp_text_replace *replace, const char *data, size_t len);
/* The next run, valid until the next feeding. False: there is none; with `last`, nothing will
 * follow. */
bool sp_text_replace_next(struct sp_text_replace *replace, bool last, const char **ret_data,
			  size_t *ret_len);

#endif
