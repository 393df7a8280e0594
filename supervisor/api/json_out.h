/*
 * Writes JSON into a buffer: commas, escapes, sticky errors, so that a handler writes members one
 * after the other and checks once. NULL as key inside arrays.
 */
#ifndef SP_API_JSON_OUT_H
#define SP_API_JSON_OUT_H

#include "pool/base/buf.h"

struct sp_json_out {
	struct sp_buf *buf; /* borrowed */
	int status;         /* first failure: -ENOMEM, -E2BIG */
	bool comma;
};

void sp_json_out_init(struct sp_json_out *out, struct sp_buf *buf);
/* bracket: '{' or '['; '}' or ']' */
void sp_json_open(struct sp_json_out *out, const char *key, char bracket);
void sp_json_close(struct sp_json_out *out, char bracket);
/* NULL becomes null. Bytes that are not UTF-8 become U+FFFD. */
void sp_json_text(struct sp_json_out *out, const char *key, const char *value);
void sp_json_text_n(struct sp_json_out *out, const char *key, const char *value, size_t len);
void sp_json_base64(struct sp_json_out *out, const char *key, const void *data, size_t len);
void sp_json_integer(struct sp_json_out *out, const char *key, int64_t value);
void sp_json_unsigned(struct sp_json_out *out, const char *key, uint64_t value);
/* What is JSON already. */
void sp_json_raw(struct sp_json_out *out, const char *key, const char *json, size_t len);
/* A count of thousandths as a number with three digits after the point. */
void sp_json_thousandths(struct sp_json_out *out, const char *key, int64_t value);
void sp_json_boolean(struct sp_json_out *out, const char *key, bool value);
void sp_json_null(struct sp_json_out *out, const char *key);
/* A point of CLOCK_BOOTTIME, shown as RFC 3339 in UTC with milliseconds. now_boot_ms and
 * now_wall_ms are one moment on both clocks. */
void sp_json_time(struct sp_json_out *out, const char *key, int64_t boot_ms, int64_t now_boot_ms,
		  int64_t now_wall_ms);

/* Whole text valid UTF-8 (no surrogates, no overlong forms)? ret_escaped: the bytes that its JSON
 * string takes without the quotes; only set when valid. */
bool sp_utf8_valid(const void *data, size_t len, size_t *ret_escaped);

#endif
