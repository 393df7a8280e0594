/*
 * Comments out, positions in. The scanner walks text that jansson has accepted; on anything else it
 * finds nothing, but stays inside the text.
 */
#include "supervisor/config/jsonc.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 2048u /* jansson's own limit */

/* One past the string that starts at `at` (a quote). An unescaped newline ends it too: jansson will
 * complain about that line, and the comments after it must still be found. */
static size_t string_end(const char *text, size_t len, size_t at)
{
	for (at++; at < len && text[at] != '\n'; at++) {
		if (text[at] == '"')
			return at + 1;
		if (text[at] == '\\' && at + 1 < len && text[at + 1] != '\n')
			at++;
	}
	return at;
}

static size_t line_comment_end(const char *text, size_t len, size_t at)
{
	const char *newline = memchr(text + at, '\n', len - at);

	return newline ? (size_t)(newline - text) : len;
}

/* 0 when the comment does not end. */
static size_t block_comment_end(const char *text, size_t len, size_t at)
{
	for (at += 2; at + 1 < len; at++)
		if (text[at] == '*' && text[at + 1] == '/')
			return at + 2;
	return 0;
}

static int line_of(const char *text, size_t at)
{
	int line = 1;

	for (size_t i = 0; i < at; i++)
		line += text[i] == '\n';
	return line;
}

static int refuse(const char *text, size_t at, const char *message, int *ret_line,
		  const char **ret_message)
{
	*ret_line = line_of(text, at);
	*ret_message = message;
	return -EINVAL;
}

int sp_jsonc_strip(char *text, size_t len, int *ret_line, const char **ret_message)
{
	const char *nul = memchr(text, '\0', len);
	size_t at = 0;

	if (nul)
		return refuse(text, (size_t)(nul - text), "a NUL byte", ret_line, ret_message);
	while (at < len) {
		size_t end;

		if (text[at] == '"') {
			at = string_end(text, len, at);
			continue;
		}
		if (text[at] != '/' || at + 1 >= len ||
		    (text[at + 1] != '/' && text[at + 1] != '*')) {
			at++;
			continue;
		}
		end = text[at + 1] == '/' ? line_comment_end(text, len, at)
					  : block_comment_end(text, len, at);
		if (end == 0)
			return refuse(text, at, "a comment that does not end", ret_line,
				      ret_message);
		for (; at < end; at++)
			if (text[at] != '\n')
				text[at] = ' ';
	}
	return 0;
}

struct cursor {
	const char *text;
	size_t len;
	size_t at;
	int line;
};

struct key {
	const char *text; /* between the quotes, escapes as written */
	size_t len;
	int line;
};

static char peek(struct cursor *cursor)
{
	while (cursor->at < cursor->len && strchr(" \t\r\n", cursor->text[cursor->at])) {
		cursor->line += cursor->text[cursor->at] == '\n';
		cursor->at++;
	}
	return cursor->at < cursor->len ? cursor->text[cursor->at] : '\0';
}

/* Step over `expected`, if it is next. */
static bool take(struct cursor *cursor, char expected)
{
	if (peek(cursor) != expected)
		return false;
	cursor->at++;
	return true;
}

static bool take_key(struct cursor *cursor, struct key *ret_key)
{
	size_t end;

	if (peek(cursor) != '"')
		return false;
	end = string_end(cursor->text, cursor->len, cursor->at);
	if (end < cursor->at + 2 || cursor->text[end - 1] != '"')
		return false;
	*ret_key = (struct key){cursor->text + cursor->at + 1, end - cursor->at - 2, cursor->line};
	cursor->at = end;
	return take(cursor, ':');
}

/* Step over one value, whatever it holds. Strings have no newline in them. */
static void skip_value(struct cursor *cursor)
{
	size_t depth = 0;

	do {
		char c = peek(cursor);

		if (c == '\0')
			return;
		if (c == '"') {
			cursor->at = string_end(cursor->text, cursor->len, cursor->at);
		} else if (c == '{' || c == '[') {
			cursor->at++;
			depth++;
		} else if (c == '}' || c == ']') {
			if (depth == 0)
				return;
			cursor->at++;
			depth--;
		} else if (c == ',' && depth == 0) {
			return;
		} else if (c == ',' || c == ':') {
			cursor->at++;
		} else {
			while (cursor->at < cursor->len &&
			       !strchr(" \t\r\n,:{}[]\"", cursor->text[cursor->at]))
				cursor->at++;
		}
	} while (depth > 0);
}

/* Is the key, as written, this name? Escapes are rare: jansson itself decodes them. */
static bool key_is(const struct key *key, const char *name)
{
	json_t *decoded;
	bool equal;

	if (!memchr(key->text, '\\', key->len))
		return strlen(name) == key->len && memcmp(name, key->text, key->len) == 0;
	decoded = json_loadb(key->text - 1, key->len + 2, JSON_DECODE_ANY, NULL);
	equal = json_is_string(decoded) && strcmp(json_string_value(decoded), name) == 0;
	json_decref(decoded);
	return equal;
}

/* Move to the value of one step; its line, or 0. */
static int enter_member(struct cursor *cursor, const char *name)
{
	struct key key;

	if (!take(cursor, '{'))
		return 0;
	while (take_key(cursor, &key)) {
		if (key_is(&key, name))
			return key.line;
		skip_value(cursor);
		if (!take(cursor, ','))
			return 0;
	}
	return 0;
}

static int enter_element(struct cursor *cursor, size_t index)
{
	if (!take(cursor, '['))
		return 0;
	for (; index > 0; index--) {
		skip_value(cursor);
		if (!take(cursor, ','))
			return 0;
	}
	return peek(cursor) == ']' || peek(cursor) == '\0' ? 0 : cursor->line;
}

int sp_jsonc_line(const char *text, size_t len, const struct sp_json_path *path)
{
	struct cursor cursor = {.text = text, .len = len, .line = 1};
	int line = peek(&cursor) == '\0' ? 0 : cursor.line;

	for (size_t i = 0; i < path->depth && line > 0; i++) {
		const struct sp_json_step *step = &path->steps[i];

		line = step->key ? enter_member(&cursor, step->key)
				 : enter_element(&cursor, step->index);
	}
	return line;
}

struct repeats {
	struct cursor cursor;
	void (*report)(void *arg, const char *key, size_t key_len, int line, int first_line);
	void *arg;
	int count;
};

static int compare_keys(const void *a, const void *b)
{
	const struct key *x = a;
	const struct key *y = b;
	int order = memcmp(x->text, y->text, SP_MIN(x->len, y->len));

	if (order != 0)
		return order;
	if (x->len != y->len)
		return x->len < y->len ? -1 : 1;
	return x->text < y->text ? -1 : 1;
}

static void report_repeats(struct repeats *repeats, struct key *keys, size_t count)
{
	const struct key *first = keys;

	if (count < 2)
		return;
	qsort(keys, count, sizeof(*keys), compare_keys);
	for (size_t i = 1; i < count; i++) {
		if (keys[i].len != first->len ||
		    memcmp(keys[i].text, first->text, first->len) != 0) {
			first = &keys[i];
			continue;
		}
		repeats->count++;
		repeats->report(repeats->arg, keys[i].text, keys[i].len, keys[i].line, first->line);
	}
}

static int walk_value(struct repeats *repeats, size_t depth);

static int walk_object(struct repeats *repeats, size_t depth)
{
	struct key *keys = NULL;
	size_t capacity = 0;
	size_t count = 0;
	struct key key;
	int status = 0;

	while (take_key(&repeats->cursor, &key)) {
		if (count == capacity) {
			size_t larger = capacity ? capacity * 2 : 16;
			struct key *grown = reallocarray(keys, larger, sizeof(*keys));

			if (!grown) {
				status = -ENOMEM;
				goto out;
			}
			keys = grown;
			capacity = larger;
		}
		keys[count++] = key;
		status = walk_value(repeats, depth + 1);
		if (status < 0 || !take(&repeats->cursor, ','))
			goto out;
	}
out:
	(void)take(&repeats->cursor, '}');
	if (status == 0)
		report_repeats(repeats, keys, count);
	free(keys);
	return status;
}

static int walk_value(struct repeats *repeats, size_t depth)
{
	int status;

	if (depth > DEPTH_MAX)
		return 0;
	if (take(&repeats->cursor, '{'))
		return walk_object(repeats, depth);
	if (!take(&repeats->cursor, '[')) {
		skip_value(&repeats->cursor);
		return 0;
	}
	do
		status = walk_value(repeats, depth + 1);
	while (status == 0 && take(&repeats->cursor, ','));
	(void)take(&repeats->cursor, ']');
	return status;
}

int sp_jsonc_repeats(const char *text, size_t len,
		     void (*report)(void *arg, const char *key, size_t key_len, int line,
				    int first_line),
		     void *arg)
{
	struct repeats repeats = {
		.cursor = {.text = text, .len = len, .line = 1},
		.report = report,
		.arg = arg,
	};
	int status = walk_value(&repeats, 0);

	return status < 0 ? status : repeats.count;
}
