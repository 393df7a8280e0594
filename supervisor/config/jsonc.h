/*
 * JSON with comments, and where in the text something stands. jansson parses; it knows neither
 * comments nor the position of a node, so comments are blanked out before it and lines are looked
 * up after it, in the same text, only when a fault has to be reported.
 */
#ifndef SP_CONFIG_JSONC_H
#define SP_CONFIG_JSONC_H

#include "pool/base/base.h"

#define SP_JSON_PATH_MAX 8u

struct sp_json_step {
	const char *key; /* NULL: element `index` of an array. Borrowed */
	size_t index;
};

struct sp_json_path {
	size_t depth;
	struct sp_json_step steps[SP_JSON_PATH_MAX];
};

/* Replace comments by blanks, keeping every newline and column. Text need not end with NUL. 0, or
 * -EINVAL with the line of a comment that does not end, or of a NUL byte. */
int sp_jsonc_strip(char *text, size_t len, int *ret_line, const char **ret_message);
/* The line on which the member or element stands, 0 if there is none. */
int sp_jsonc_line(const char *text, size_t len, const struct sp_json_path *path);
/* Report every key that an object has more than once; key as written, not NUL-terminated.
 * Returns how many; -ENOMEM. */
int sp_jsonc_repeats(const char *text, size_t len,
		     void (*report)(void *arg, const char *key, size_t key_len, int line,
				    int first_line),
		     void *arg);

#endif
