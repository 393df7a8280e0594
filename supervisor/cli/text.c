/*
 * JSON out, UTF-8, base64. Input may be any bytes; what is written is always valid JSON or an
 * error.
 */
#include "supervisor/cli/text.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

void sp_cli_json_init(struct sp_cli_json *json, struct sp_buf *out)
{
	*json = (struct sp_cli_json){.out = out};
}

static void put(struct sp_cli_json *json, const void *data, size_t len)
{
	if (json->status == 0)
		json->status = sp_buf_append(json->out, data, len);
}

static void before_value(struct sp_cli_json *json)
{
	if (json->comma)
		put(json, ",", 1);
	json->comma = true;
}

void sp_cli_json_open(struct sp_cli_json *json, char bracket)
{
	before_value(json);
	put(json, &bracket, 1);
	json->comma = false;
}

void sp_cli_json_close(struct sp_cli_json *json, char bracket)
{
	put(json, &bracket, 1);
	json->comma = true;
}

/* Everything below 0x20, the quote and the backslash must be escaped; DEL need not. */
static void put_escaped(struct sp_cli_json *json, const char *text, size_t len)
{
	static const char hex[] = "0123456789abcdef";
	size_t plain = 0;

	for (size_t i = 0; i < len; i++) {
		unsigned char byte = (unsigned char)text[i];
		char escape[6] = {'\\', 'u', '0', '0', hex[byte >> 4], hex[byte & 15]};

		if (byte >= 0x20 && byte != '"' && byte != '\\')
			continue;
		put(json, text + plain, i - plain);
		plain = i + 1;
		if (byte == '\n')
			put(json, "\\n", 2);
		else if (byte < 0x20)
			put(json, escape, sizeof(escape));
		else
			put(json, byte == '"' ? "\\\"" : "\\\\", 2);
	}
	put(json, text + plain, len - plain);
}

void sp_cli_json_text_len(struct sp_cli_json *json, const char *text, size_t len)
{
	if (json->status == 0 && !sp_cli_utf8_valid(text, len))
		json->status = -EILSEQ;
	before_value(json);
	put(json, "\"", 1);
	put_escaped(json, text, len);
	put(json, "\"", 1);
}

void sp_cli_json_text(struct sp_cli_json *json, const char *text)
{
	sp_cli_json_text_len(json, text, strlen(text));
}

void sp_cli_json_key(struct sp_cli_json *json, const char *key)
{
	sp_cli_json_text(json, key);
	put(json, ":", 1);
	json->comma = false;
}

void sp_cli_json_number(struct sp_cli_json *json, int64_t number)
{
	before_value(json);
	if (json->status == 0)
		json->status = sp_buf_printf(json->out, "%" PRId64, number);
}

void sp_cli_json_bool(struct sp_cli_json *json, bool value)
{
	before_value(json);
	put(json, value ? "true" : "false", value ? 4 : 5);
}

void sp_cli_json_raw(struct sp_cli_json *json, const char *value, size_t len)
{
	before_value(json);
	put(json, value, len);
}

void sp_cli_json_member(struct sp_cli_json *json, const char *key, const char *text)
{
	if (!text)
		return;
	sp_cli_json_key(json, key);
	sp_cli_json_text(json, text);
}

void sp_cli_json_base64(struct sp_cli_json *json, const void *data, size_t len)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const uint8_t *bytes = data;

	before_value(json);
	put(json, "\"", 1);
	for (size_t i = 0; i < len && json->status == 0; i += 3) {
		size_t have = SP_MIN(len - i, 3);
		uint32_t group = (uint32_t)bytes[i] << 16 |
				 (have > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
				 (have > 2 ? (uint32_t)bytes[i + 2] : 0);
		char text[4] = {digits[group >> 18], digits[group >> 12 & 63],
				have > 1 ? digits[group >> 6 & 63] : '=',
				have > 2 ? digits[group & 63] : '='};

		put(json, text, sizeof(text));
	}
	put(json, "\"", 1);
}

/* Length of the sequence at text, 0 if it is none. */
static size_t utf8_sequence(const unsigned char *text, size_t len)
{
	unsigned char first = text[0];
	unsigned char low = 0x80;
	unsigned char high = 0xbf;
	size_t need;

	if (first < 0x80)
		return 1;
	if (first < 0xc2 || first > 0xf4)
		return 0;
	need = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
	if (len < need)
		return 0;
	if (first == 0xe0)
		low = 0xa0; /* overlong */
	else if (first == 0xed)
		high = 0x9f; /* surrogates */
	else if (first == 0xf0)
		low = 0x90; /* overlong */
	else if (first == 0xf4)
		high = 0x8f; /* beyond U+10FFFF */
	if (text[1] < low || text[1] > high)
		return 0;
	for (size_t i = 2; i < need; i++)
		if (text[i] < 0x80 || text[i] > 0xbf)
			return 0;
	return need;
}

bool sp_cli_utf8_valid(const char *text, size_t len)
{
	const unsigned char *at = (const unsigned char *)text;

	while (len > 0) {
		size_t step = utf8_sequence(at, len);

		if (step == 0)
			return false;
		at += step;
		len -= step;
	}
	return true;
}

/* C0, DEL and, in UTF-8, C1: terminals obey U+009B like ESC [. */
void sp_cli_make_printable(char *text)
{
	for (unsigned char *at = (unsigned char *)text; *at; at++) {
		if (*at < 0x20 || *at == 0x7f)
			*at = '?';
		else if (*at == 0xc2 && at[1] >= 0x80 && at[1] <= 0x9f)
			at[0] = at[1] = '?';
	}
}

int sp_cli_append_printable(struct sp_buf *out, const char *text)
{
	size_t start = out->len;
	int status = sp_buf_append(out, text, strlen(text));

	if (status == 0)
		sp_cli_make_printable(out->data + start);
	return status;
}
