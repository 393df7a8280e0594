/*
 * Text that crosses the wire: JSON written piece by piece, UTF-8 checked, base64.
 *
 * A writer of its own, because a START object is written on the one path whose cost users feel
 * (`sandpool run`), and building a tree of allocated values to print it once would be most of it.
 */
#ifndef SP_CLI_TEXT_H
#define SP_CLI_TEXT_H

#include "pool/base/buf.h"

/* Sticky: after the first failure nothing more is written and `status` says why. */
struct sp_cli_json {
	struct sp_buf *out; /* borrowed */
	int status;         /* 0, -ENOMEM, -E2BIG, -EILSEQ (a text is not UTF-8) */
	bool comma;         /* a member or element stands before */
};

void sp_cli_json_init(struct sp_cli_json *json, struct sp_buf *out);
/* '{' or '[', and the closing one. */
void sp_cli_json_open(struct sp_cli_json *json, char bracket);
void sp_cli_json_close(struct sp_cli_json *json, char bracket);
void sp_cli_json_key(struct sp_cli_json *json, const char *key);
void sp_cli_json_text(struct sp_cli_json *json, const char *text);
void sp_cli_json_text_len(struct sp_cli_json *json, const char *text, size_t len);
void sp_cli_json_number(struct sp_cli_json *json, int64_t number);
void sp_cli_json_bool(struct sp_cli_json *json, bool value);
/* A value that is JSON already. */
void sp_cli_json_raw(struct sp_cli_json *json, const char *value, size_t len);
void sp_cli_json_base64(struct sp_cli_json *json, const void *data, size_t len);
/* key and text in one; NULL text: left out. */
void sp_cli_json_member(struct sp_cli_json *json, const char *key, const char *text);

/* RFC 3629: no surrogates, no overlong forms, nothing beyond U+10FFFF. */
bool sp_cli_utf8_valid(const char *text, size_t len);

/* For the terminal: controls become '?', so that no name or message moves the cursor. */
void sp_cli_make_printable(char *text);
/* The same of what is appended. */
int sp_cli_append_printable(struct sp_buf *out, const char *text) SP_MUST_CHECK;

#endif
