/*
 * The JSON writer. What clients are told contains text from outside (file names in error messages,
 * output of workloads), so every string is escaped here and nowhere else: quotes, backslashes,
 * control bytes, DEL; whatever is not UTF-8 becomes U+FFFD, byte by byte, so that the answer always
 * parses.
 */
#include "supervisor/api/json_out.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define ESCAPE_MAX 6

void sp_json_out_init(struct sp_json_out *out, struct sp_buf *buf)
{
	*out = (struct sp_json_out){.buf = buf};
}

static void put(struct sp_json_out *out, const void *data, size_t len)
{
	if (out->status == 0)
		out->status = sp_buf_append(out->buf, data, len);
}

static void put_text(struct sp_json_out *out, const char *text)
{
	put(out, text, strlen(text));
}

/* Bytes of the UTF-8 sequence at `at`, 0 if it is none (Unicode 15, table 3-7). */
static size_t sequence_length(const unsigned char *at, size_t left)
{
	unsigned char low = 0x80;
	unsigned char high = 0xbf;
	size_t len;

	if (at[0] < 0x80)
		return 1;
	if (at[0] >= 0xc2 && at[0] <= 0xdf)
		len = 2;
	else if (at[0] >= 0xe0 && at[0] <= 0xef)
		len = 3;
	else if (at[0] >= 0xf0 && at[0] <= 0xf4)
		len = 4;
	else
		return 0;
	if (at[0] == 0xe0)
		low = 0xa0;
	else if (at[0] == 0xed)
		high = 0x9f;
	else if (at[0] == 0xf0)
		low = 0x90;
	else if (at[0] == 0xf4)
		high = 0x8f;
	if (len > left || at[1] < low || at[1] > high)
		return 0;
	for (size_t i = 2; i < len; i++)
		if (at[i] < 0x80 || at[i] > 0xbf)
			return 0;
	return len;
}

static bool is_plain(unsigned char byte)
{
	return byte >= ' ' && byte < 0x7f && byte != '"' && byte != '\\';
}

/* The escape of one ASCII byte that is not plain, at `to`; returns its length. */
static size_t escape(unsigned char byte, char *to)
{
	static const char digits[] = "0123456789abcdef";
	static const char letters[][2] = {
		{'"', '"'}, {'\\', '\\'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}};

	to[0] = '\\';
	for (size_t i = 0; i < SP_ARRAY_SIZE(letters); i++) {
		if ((unsigned char)letters[i][0] != byte)
			continue;
		to[1] = letters[i][1];
		return 2;
	}
	memcpy(to + 1, "u00", 3);
	to[4] = digits[byte >> 4];
	to[5] = digits[byte & 15];
	return 6;
}

/* What is not plain is collected: programs that write nothing else are as common as those that
 * never do, and half a megabyte of it in pieces of six bytes keeps the loop for too long. */
static void put_escaped(struct sp_json_out *out, const unsigned char *at, size_t left)
{
	char chunk[256];
	size_t filled = 0;

	while (left > 0 && out->status == 0) {
		size_t run = 0;
		size_t len;

		while (run < left && is_plain(at[run]))
			run++;
		if (run > 0 || filled > sizeof(chunk) - ESCAPE_MAX) {
			put(out, chunk, filled);
			filled = 0;
			put(out, at, run);
		}
		at += run;
		left -= run;
		if (left == 0)
			break;
		len = sequence_length(at, left);
		if (len == 1) {
			filled += escape(at[0], chunk + filled);
		} else if (len == 0) {
			memcpy(chunk + filled, "\xef\xbf\xbd", 3);
			filled += 3;
			len = 1;
		} else {
			memcpy(chunk + filled, at, len);
			filled += len;
		}
		at += len;
		left -= len;
	}
	put(out, chunk, filled);
}

/* Most keys are ours; paths of files and labels of sandboxes are anybody's. */
static void begin_value(struct sp_json_out *out, const char *key)
{
	if (out->comma)
		put_text(out, ",");
	if (key) {
		put_text(out, "\"");
		put_escaped(out, (const unsigned char *)key, strlen(key));
		put_text(out, "\":");
	}
	out->comma = true;
}

void sp_json_open(struct sp_json_out *out, const char *key, char bracket)
{
	begin_value(out, key);
	put(out, &bracket, 1);
	out->comma = false;
}

void sp_json_close(struct sp_json_out *out, char bracket)
{
	put(out, &bracket, 1);
	out->comma = true;
}

void sp_json_text_n(struct sp_json_out *out, const char *key, const char *value, size_t len)
{
	begin_value(out, key);
	put_text(out, "\"");
	put_escaped(out, (const unsigned char *)value, len);
	put_text(out, "\"");
}

void sp_json_text(struct sp_json_out *out, const char *key, const char *value)
{
	if (!value) {
		sp_json_null(out, key);
		return;
	}
	sp_json_text_n(out, key, value, strlen(value));
}

void sp_json_base64(struct sp_json_out *out, const char *key, const void *data, size_t len)
{
	static const char alphabet[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const unsigned char *at = data;
	char group[4];

	begin_value(out, key);
	put_text(out, "\"");
	for (size_t i = 0; i < len && out->status == 0; i += 3) {
		size_t left = len - i;
		uint32_t bits = (uint32_t)at[i] << 16;

		if (left > 1)
			bits |= (uint32_t)at[i + 1] << 8;
		if (left > 2)
			bits |= at[i + 2];
		group[0] = alphabet[bits >> 18];
		group[1] = alphabet[bits >> 12 & 63];
		group[2] = left > 1 ? alphabet[bits >> 6 & 63] : '=';
		group[3] = left > 2 ? alphabet[bits & 63] : '=';
		put(out, group, sizeof(group));
	}
	put_text(out, "\"");
}

void sp_json_integer(struct sp_json_out *out, const char *key, int64_t value)
{
	char text[24];

	begin_value(out, key);
	(void)snprintf(text, sizeof(text), "%" PRId64, value);
	put_text(out, text);
}

void sp_json_unsigned(struct sp_json_out *out, const char *key, uint64_t value)
{
	char text[24];

	begin_value(out, key);
	(void)snprintf(text, sizeof(text), "%" PRIu64, value);
	put_text(out, text);
}

void sp_json_raw(struct sp_json_out *out, const char *key, const char *json, size_t len)
{
	begin_value(out, key);
	put(out, json, len);
}

void sp_json_thousandths(struct sp_json_out *out, const char *key, int64_t value)
{
	uint64_t size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
	char text[32];

	begin_value(out, key);
	(void)snprintf(text, sizeof(text), "%s%" PRIu64 ".%03u", value < 0 ? "-" : "", size / 1000,
		       (unsigned int)(size % 1000));
	put_text(out, text);
}

void sp_json_boolean(struct sp_json_out *out, const char *key, bool value)
{
	begin_value(out, key);
	put_text(out, value ? "true" : "false");
}

void sp_json_null(struct sp_json_out *out, const char *key)
{
	begin_value(out, key);
	put_text(out, "null");
}

void sp_json_time(struct sp_json_out *out, const char *key, int64_t boot_ms, int64_t now_boot_ms,
		  int64_t now_wall_ms)
{
	int64_t wall_ms = now_wall_ms + (boot_ms - now_boot_ms);
	int64_t milliseconds = wall_ms % SP_MS_PER_S;
	time_t seconds = (time_t)(wall_ms / SP_MS_PER_S);
	struct tm parts;
	char text[64];

	if (wall_ms < 0 || !gmtime_r(&seconds, &parts)) {
		sp_json_null(out, key);
		return;
	}
	begin_value(out, key);
	(void)snprintf(text, sizeof(text), "\"%04d-%02d-%02dT%02d:%02d:%02d.%03dZ\"",
		       parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour,
		       parts.tm_min, parts.tm_sec, (int)milliseconds);
	put_text(out, text);
}

bool sp_utf8_valid(const void *data, size_t len, size_t *ret_escaped)
{
	const unsigned char *at = data;
	size_t escaped = 0;
	char buffer[8];

	while (len > 0) {
		size_t step = sequence_length(at, len);

		if (step == 0)
			return false;
		if (step > 1 || is_plain(at[0]))
			escaped += step;
		else
			escaped += escape(at[0], buffer);
		at += step;
		len -= step;
	}
	*ret_escaped = escaped;
	return true;
}
