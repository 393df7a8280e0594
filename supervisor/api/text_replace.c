/*
 * The end of a piece that is shorter than the text searched for is kept and put before the next
 * one; whatever lies before it is decided. memmem(3) is linear, so the whole is too.
 */
#include "supervisor/api/text_replace.h"

#include <errno.h>
#include <string.h>

void sp_text_replace_init(struct sp_text_replace *replace, const char *from, size_t from_len,
			  const char *to, size_t to_len)
{
	sp_assert(from_len > 0);
	*replace = (struct sp_text_replace){
		.from = from,
		.from_len = from_len,
		.to = to,
		.to_len = to_len,
	};
	sp_buf_init(&replace->kept, SIZE_MAX / 2);
}

void sp_text_replace_done(struct sp_text_replace *replace)
{
	sp_buf_done(&replace->kept);
}

int sp_text_replace_feed(struct sp_text_replace *replace, const char *data, size_t len)
{
	sp_buf_consume(&replace->kept, replace->at);
	replace->at = 0;
	return sp_buf_append(&replace->kept, data, len);
}

/* Up to the next occurrence, or up to where one may begin. */
static size_t search(struct sp_text_replace *replace, const char *rest, size_t rest_len, bool last)
{
	const char *found = memmem(rest, rest_len, replace->from, replace->from_len);
	size_t len;

	if (!found) {
		len = last ? rest_len : rest_len - SP_MIN(rest_len, replace->from_len - 1);
		replace->at += len;
		return len;
	}
	len = (size_t)(found - rest);
	replace->at += len + replace->from_len;
	replace->owes_to = true;
	replace->count++;
	return len;
}

bool sp_text_replace_next(struct sp_text_replace *replace, bool last, const char **ret_data,
			  size_t *ret_len)
{
	do {
		if (replace->owes_to) {
			replace->owes_to = false;
			*ret_data = replace->to;
			*ret_len = replace->to_len;
			if (replace->to_len > 0)
				return true;
		}
		*ret_data = sp_buf_text(&replace->kept) + replace->at;
		*ret_len = search(replace, *ret_data, replace->kept.len - replace->at, last);
		if (*ret_len > 0)
			return true;
	} while (replace->owes_to);
	return false;
}
