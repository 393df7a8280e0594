/*
 * From JSON values to the members of the structs, driven by the schema. A value with a fault leaves
 * the default in place and a mark in reader->bad, so that checks across keys do not complain about
 * what was complained about already.
 */
#include "supervisor/config/reader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_MAX 80 /* of a bad value, in messages */

static const char *json_kind(const json_t *value)
{
	switch (json_typeof(value)) {
	case JSON_OBJECT:
		return "an object";
	case JSON_ARRAY:
		return "a list";
	case JSON_STRING:
		return "a string";
	case JSON_INTEGER:
		return "a number";
	case JSON_REAL:
		return "a fraction";
	case JSON_TRUE:
	case JSON_FALSE:
		return "a boolean";
	case JSON_NULL:
		break;
	}
	return "null (leave the key out for its default)";
}

static bool wrong_type(struct sp_config_reader *reader, const char *wanted, const json_t *value)
{
	sp_config_fault(reader, "must be %s, not %s", wanted, json_kind(value));
	return false;
}

static bool out_of_memory(struct sp_config_reader *reader)
{
	reader->status = -ENOMEM;
	return false;
}

/* ---- numbers ---- */

static void show_number(const struct sp_schema_key *key, int64_t value, char text[32])
{
	if (key->type == SP_SCHEMA_DURATION)
		(void)sp_format_duration(value, text, 32);
	else if (key->type == SP_SCHEMA_SIZE)
		(void)sp_format_size((uint64_t)value, text, 32);
	else
		(void)snprintf(text, 32, "%lld", (long long)value);
}

static bool in_range(struct sp_config_reader *reader, const struct sp_schema_key *key,
		     int64_t value)
{
	char min[32];
	char max[32];

	if ((value >= key->min && value <= key->max) || (value == 0 && key->zero))
		return true;
	show_number(key, key->min, min);
	show_number(key, key->max, max);
	if (key->zero)
		sp_config_fault(reader, "must be from %s to %s, or 0 (%s)", min, max, key->zero);
	else
		sp_config_fault(reader, "must be from %s to %s", min, max);
	return false;
}

static bool read_whole(struct sp_config_reader *reader, const struct sp_schema_key *key,
		       const json_t *value, void *base)
{
	void *at = sp_schema_at(base, key->offset);

	if (!json_is_integer(value))
		return wrong_type(reader, "a whole number", value);
	if (!in_range(reader, key, json_integer_value(value)))
		return false;
	if (key->type == SP_SCHEMA_U32)
		*(uint32_t *)at = (uint32_t)json_integer_value(value);
	else
		*(uint64_t *)at = (uint64_t)json_integer_value(value);
	return true;
}

static bool read_real(struct sp_config_reader *reader, const struct sp_schema_key *key,
		      const json_t *value, void *base)
{
	double number = json_number_value(value);

	if (!json_is_number(value))
		return wrong_type(reader, "a number", value);
	if (!(number >= key->real_min && number <= key->real_max) &&
	    !(number >= 0 && number <= 0 && key->zero)) {
		sp_config_fault(reader, "must be from %g to %g%s%s%s", key->real_min, key->real_max,
				key->zero ? ", or 0 (" : "", key->zero ? key->zero : "",
				key->zero ? ")" : "");
		return false;
	}
	/* not -0.0: the dump of what was read must read back as the same bits */
	*(double *)sp_schema_at(base, key->offset) = number > 0 ? number : 0;
	return true;
}

static bool is_zero(const json_t *value)
{
	return json_is_integer(value) && json_integer_value(value) == 0;
}

static bool read_duration(struct sp_config_reader *reader, const struct sp_schema_key *key,
			  const json_t *value, void *base)
{
	int64_t *at = sp_schema_at(base, key->offset);
	struct sp_err err = {0};
	int64_t ms = 0;

	if (json_is_number(value) && !is_zero(value)) {
		sp_config_fault(reader, "a number has no unit: give one, e.g. \"10s\"");
		return false;
	}
	if (!json_is_string(value) && !is_zero(value))
		return wrong_type(reader, "a duration, e.g. \"10m\"", value);
	if (json_is_string(value)) {
		const char *text = json_string_value(value);

		if (key->minus_one && strcmp(text, key->minus_one) == 0) {
			*at = -1;
			return true;
		}
		if (sp_parse_duration(text, &ms, &err) < 0) {
			sp_config_fault(reader, "%s", err.message);
			return false;
		}
	}
	if (!in_range(reader, key, ms))
		return false;
	*at = ms;
	return true;
}

static bool read_size(struct sp_config_reader *reader, const struct sp_schema_key *key,
		      const json_t *value, void *base)
{
	uint64_t *at = sp_schema_at(base, key->offset);
	struct sp_err err = {0};
	uint64_t bytes = 0;

	if (json_is_number(value) && !is_zero(value)) {
		sp_config_fault(reader, "a number has no unit: give one, e.g. \"64MiB\"");
		return false;
	}
	if (!json_is_string(value) && !is_zero(value))
		return wrong_type(reader, "a size, e.g. \"64MiB\"", value);
	if (json_is_string(value)) {
		const char *text = json_string_value(value);

		if (key->minus_one && strcmp(text, key->minus_one) == 0) {
			*at = SP_SIZE_AUTO;
			return true;
		}
		if (sp_parse_size(text, &bytes, &err) < 0) {
			sp_config_fault(reader, "%s", err.message);
			return false;
		}
	}
	if (!in_range(reader, key, (int64_t)SP_MIN(bytes, (uint64_t)INT64_MAX)))
		return false;
	*at = bytes;
	return true;
}

static bool read_bool(struct sp_config_reader *reader, const struct sp_schema_key *key,
		      const json_t *value, void *base)
{
	if (!json_is_boolean(value))
		return wrong_type(reader, "true or false", value);
	*(bool *)sp_schema_at(base, key->offset) = json_is_true(value);
	return true;
}

/* ---- text ---- */

static bool text_valid(struct sp_config_reader *reader, const struct sp_schema_key *key,
		       const char *text)
{
	const char *complaint = key->check ? key->check(text) : NULL;

	if (!complaint)
		return true;
	if (key->flags & SP_SCHEMA_F_PRIVATE)
		sp_config_fault(reader, "%s", complaint);
	else
		sp_config_fault(reader, "'%.*s' %s", SHOWN_MAX, text, complaint);
	return false;
}

static bool read_string(struct sp_config_reader *reader, const struct sp_schema_key *key,
			const json_t *value, void *base)
{
	char **at = sp_schema_at(base, key->offset);
	const char *text = json_string_value(value);
	bool empty_is_null = key->flags & SP_SCHEMA_F_NULLABLE;
	char *copy = NULL;

	if (!text)
		return wrong_type(reader, "a string", value);
	if (!(empty_is_null && *text == '\0')) {
		if (!text_valid(reader, key, text))
			return false;
		copy = strdup(text);
		if (!copy)
			return out_of_memory(reader);
	}
	free(*at);
	*at = copy;
	return true;
}

static bool read_word(struct sp_config_reader *reader, const struct sp_schema_key *key,
		      const json_t *value, void *base)
{
	void *at = sp_schema_at(base, key->offset);
	const char *text = json_string_value(value);
	const char *nearest;
	char known[128] = "";
	size_t used = 0;

	if (!text)
		return wrong_type(reader, "a string", value);
	for (unsigned int i = 0; key->words[i]; i++) {
		if (strcmp(key->words[i], text) != 0) {
			used += (size_t)snprintf(known + used, sizeof(known) - used, "%s\"%s\"",
						 i > 0 ? ", " : "", key->words[i]);
			continue;
		}
		if (key->word_size == sizeof(bool))
			*(bool *)at = i == 1;
		else
			memcpy(at, &i, sizeof(i));
		return true;
	}
	nearest = sp_schema_nearest_word(key->words, text);
	if (nearest)
		sp_config_fault(reader, "unknown word '%.*s', did you mean \"%s\"?", SHOWN_MAX,
				text, nearest);
	else
		sp_config_fault(reader, "unknown word '%.*s', must be one of %s", SHOWN_MAX, text,
				known);
	return false;
}

/* ---- lists ---- */

static bool list_size_valid(struct sp_config_reader *reader, const struct sp_schema_key *key,
			    size_t count)
{
	if (count <= key->list_max)
		return true;
	sp_config_fault(reader, "has %zu entries, at most %u are possible", count, key->list_max);
	return false;
}

static void strings_done(const struct sp_schema_key *key, void *base)
{
	char *const *strings = sp_schema_strings(key, base);
	size_t *count = sp_schema_at(base, key->count_offset);

	for (size_t i = 0; i < *count; i++)
		free(strings[i]);
	if (!(key->flags & SP_SCHEMA_F_INLINE)) {
		char ***at = sp_schema_at(base, key->offset);

		free(*at);
		*at = NULL;
	}
	*count = 0;
}

static bool read_entry(struct sp_config_reader *reader, const struct sp_schema_key *key,
		       const json_t *entry)
{
	if (!json_is_string(entry))
		return wrong_type(reader, "a string", entry);
	return text_valid(reader, key, json_string_value(entry));
}

/* The same text twice in a list is a mistake in every list that is not a command. */
static bool entries_differ(struct sp_config_reader *reader, const struct sp_schema_key *key,
			   const json_t *list, size_t index)
{
	const char *text = json_string_value(json_array_get(list, index));

	if (key->flags & SP_SCHEMA_F_REPEATS)
		return true;
	for (size_t i = 0; text && i < index; i++) {
		const char *earlier = json_string_value(json_array_get(list, i));

		if (earlier && strcmp(earlier, text) == 0) {
			sp_config_fault(reader, "the same as entry %zu", i);
			return false;
		}
	}
	return true;
}

static bool entries_valid(struct sp_config_reader *reader, const struct sp_schema_key *key,
			  const json_t *list)
{
	bool valid = true;

	for (size_t i = 0; i < json_array_size(list); i++) {
		sp_config_enter_index(reader, i);
		if (!read_entry(reader, key, json_array_get(list, i)) ||
		    !entries_differ(reader, key, list, i))
			valid = false;
		sp_config_leave(reader);
	}
	return valid;
}

/* A redacted dump reads back as a configuration without the secrets, never with "***" as one. */
static bool is_redacted(const struct sp_schema_key *key, const json_t *value)
{
	return (key->flags & SP_SCHEMA_F_SECRET) && json_is_string(value) &&
	       strcmp(json_string_value(value), "***") == 0;
}

static bool read_strings(struct sp_config_reader *reader, const struct sp_schema_key *key,
			 const json_t *value, void *base)
{
	size_t *count = sp_schema_at(base, key->count_offset);
	size_t wanted = json_array_size(value);
	char **strings;

	if (is_redacted(key, value))
		return true;
	if (!json_is_array(value))
		return wrong_type(reader, "a list of strings", value);
	if (!list_size_valid(reader, key, wanted) || !entries_valid(reader, key, value))
		return false;
	strings_done(key, base);
	if (wanted == 0)
		return true;
	if (key->flags & SP_SCHEMA_F_INLINE) {
		strings = sp_schema_at(base, key->offset);
	} else {
		strings = calloc(wanted, sizeof(*strings));
		if (!strings)
			return out_of_memory(reader);
		*(char ***)sp_schema_at(base, key->offset) = strings;
	}
	for (; *count < wanted; (*count)++) {
		strings[*count] = strdup(json_string_value(json_array_get(value, *count)));
		if (!strings[*count])
			return out_of_memory(reader);
	}
	return true;
}

static void binds_done(const struct sp_schema_key *key, void *base)
{
	struct sp_config_bind_root **at = sp_schema_at(base, key->offset);
	size_t *count = sp_schema_at(base, key->count_offset);

	for (size_t i = 0; i < *count; i++)
		free((*at)[i].path);
	free(*at);
	*at = NULL;
	*count = 0;
}

static bool bind_flag(struct sp_config_reader *reader, const char *name, const json_t *value,
		      bool *ret_flag)
{
	bool valid;

	sp_config_enter(reader, name);
	valid = json_is_boolean(value) || wrong_type(reader, "true or false", value);
	sp_config_leave(reader);
	if (valid)
		*ret_flag = json_is_true(value);
	return valid;
}

static bool bind_path(struct sp_config_reader *reader, const struct sp_schema_key *key,
		      const json_t *value, struct sp_config_bind_root *bind)
{
	if (!json_is_string(value))
		return wrong_type(reader, "a string", value);
	if (!text_valid(reader, key, json_string_value(value)))
		return false;
	bind->path = strdup(json_string_value(value));
	return bind->path || out_of_memory(reader);
}

static bool read_bind_object(struct sp_config_reader *reader, const struct sp_schema_key *key,
			     json_t *object, struct sp_config_bind_root *bind)
{
	static const char *const members[] = {"path", "read_only", "recursive", NULL};
	bool valid = true;
	const char *name;
	json_t *value;

	json_object_foreach (object, name, value) {
		if (strcmp(name, "path") == 0) {
			sp_config_enter(reader, name);
			valid = bind_path(reader, key, value, bind) && valid;
			sp_config_leave(reader);
		} else if (strcmp(name, "read_only") == 0) {
			valid = bind_flag(reader, name, value, &bind->read_only) && valid;
		} else if (strcmp(name, "recursive") == 0) {
			valid = bind_flag(reader, name, value, &bind->recursive) && valid;
		} else {
			const char *nearest = sp_schema_nearest_word(members, name);

			sp_config_fault_key(reader, name, "unknown key%s%s%s",
					    nearest ? ", did you mean '" : "",
					    nearest ? nearest : "", nearest ? "'?" : "");
			valid = false;
		}
	}
	if (!json_object_get(object, "path")) {
		sp_config_fault(reader, "has no 'path'");
		valid = false;
	}
	return valid;
}

static bool read_bind(struct sp_config_reader *reader, const struct sp_schema_key *key,
		      json_t *value, const struct sp_config_bind_root *earlier, size_t count,
		      struct sp_config_bind_root *bind)
{
	bool valid;

	if (json_is_string(value))
		valid = bind_path(reader, key, value, bind);
	else if (json_is_object(value))
		valid = read_bind_object(reader, key, value, bind);
	else
		return wrong_type(reader, "a path or an object with 'path'", value);
	for (size_t i = 0; valid && i < count; i++)
		if (earlier[i].path && strcmp(earlier[i].path, bind->path) == 0) {
			sp_config_fault(reader, "the same as entry %zu", i);
			valid = false;
		}
	return valid;
}

static bool read_binds(struct sp_config_reader *reader, const struct sp_schema_key *key,
		       const json_t *value, void *base)
{
	struct sp_config_bind_root **at = sp_schema_at(base, key->offset);
	size_t *count = sp_schema_at(base, key->count_offset);
	size_t wanted = json_array_size(value);
	bool valid = true;

	if (!json_is_array(value))
		return wrong_type(reader, "a list", value);
	if (!list_size_valid(reader, key, wanted))
		return false;
	binds_done(key, base);
	if (wanted == 0)
		return true;
	*at = calloc(wanted, sizeof(**at));
	if (!*at)
		return out_of_memory(reader);
	for (; *count < wanted; (*count)++) {
		sp_config_enter_index(reader, *count);
		valid = read_bind(reader, key, json_array_get(value, *count), *at, *count,
				  &(*at)[*count]) &&
			valid;
		sp_config_leave(reader);
	}
	return valid;
}

/* ---- objects ---- */

static bool read_section(struct sp_config_reader *reader, const struct sp_schema_key *key,
			 json_t *value, void *base)
{
	if (!json_is_object(value))
		return wrong_type(reader, "an object", value);
	sp_config_read_scope(reader, &sp_schema_scopes[key->section], value, base);
	return reader->bad[key->section] == 0;
}

static bool read_value(struct sp_config_reader *reader, const struct sp_schema_key *key,
		       json_t *value, void *base)
{
	switch (key->type) {
	case SP_SCHEMA_BOOL:
		return read_bool(reader, key, value, base);
	case SP_SCHEMA_U32:
	case SP_SCHEMA_U64:
		return read_whole(reader, key, value, base);
	case SP_SCHEMA_REAL:
		return read_real(reader, key, value, base);
	case SP_SCHEMA_DURATION:
		return read_duration(reader, key, value, base);
	case SP_SCHEMA_SIZE:
		return read_size(reader, key, value, base);
	case SP_SCHEMA_WORD:
		return read_word(reader, key, value, base);
	case SP_SCHEMA_STRING:
		return read_string(reader, key, value, base);
	case SP_SCHEMA_STRINGS:
		return read_strings(reader, key, value, base);
	case SP_SCHEMA_BINDS:
		return read_binds(reader, key, value, base);
	case SP_SCHEMA_SECTION:
		return read_section(reader, key, value, base);
	case SP_SCHEMA_POOLS: /* read by read.c, after all other keys */
		return true;
	}
	return false;
}

/* A key that stands in the wrong object is told where it belongs. */
static void unknown_key(struct sp_config_reader *reader, const struct sp_schema_scope *scope,
			const char *name)
{
	const char *nearest = sp_schema_nearest_key(scope, name);

	if (nearest) {
		sp_config_fault_key(reader, name, "unknown key, did you mean '%s'?", nearest);
		return;
	}
	for (size_t i = 0; i < SP_SCHEMA_SCOPES; i++) {
		const struct sp_schema_key *key = sp_schema_find(&sp_schema_scopes[i], name);

		if (key && !(key->flags & SP_SCHEMA_F_RESOLVED)) {
			sp_config_fault_key(reader, name, "unknown key here, it belongs to %s",
					    sp_schema_scopes[i].place);
			return;
		}
	}
	sp_config_fault_key(reader, name, "unknown key");
}

/* What only resolved configurations hold is ignored in files, so that a dump can be used as one. */
static void check_names(struct sp_config_reader *reader, const struct sp_schema_scope *scope,
			json_t *object)
{
	const char *name;
	json_t *value;

	json_object_foreach (object, name, value) {
		const struct sp_schema_key *key = sp_schema_find(scope, name);

		if (!key)
			unknown_key(reader, scope, name);
		else if ((key->flags & SP_SCHEMA_F_SECRET) && !reader->resolved &&
			 !is_redacted(key, value) && json_array_size(value) > 0)
			sp_config_fault_key(reader, name,
					    "secrets do not belong here: name their file in "
					    "'%s_file'",
					    name);
	}
}

void sp_config_read_scope(struct sp_config_reader *reader, const struct sp_schema_scope *scope,
			  json_t *object, void *base)
{
	reader->bad[scope->kind] = 0;
	check_names(reader, scope, object);
	for (size_t i = 0; i < scope->count; i++) {
		const struct sp_schema_key *key = &scope->keys[i];
		json_t *value = json_object_get(object, key->name);
		bool valid = true;

		if ((key->flags & SP_SCHEMA_F_RESOLVED) && !reader->resolved)
			continue;
		sp_config_enter(reader, key->name);
		if (value)
			valid = read_value(reader, key, value, base);
		sp_config_leave(reader);
		if (!valid)
			reader->bad[scope->kind] |= UINT64_C(1) << i;
	}
}

bool sp_config_key_bad(const struct sp_config_reader *reader, enum sp_schema_scope_kind kind,
		       const char *name)
{
	const struct sp_schema_scope *scope = &sp_schema_scopes[kind];
	const struct sp_schema_key *key = sp_schema_find(scope, name);

	sp_assert(key);
	return reader->bad[kind] & UINT64_C(1) << (key - scope->keys);
}

/* Defaults are JSON text and take the same way as what people write; one that is refused is a bug
 * of the table. */
int sp_config_set_defaults(const struct sp_schema_scope *scope, void *base)
{
	struct sp_config_faults faults = {0};
	struct sp_config_reader reader = {.faults = &faults, .resolved = true};

	reader.sources[0].name = (char[]){"default"};
	for (size_t i = 0; i < scope->count && reader.status == 0; i++) {
		const struct sp_schema_key *key = &scope->keys[i];
		json_error_t error;
		json_t *value;
		bool valid;

		if (key->type == SP_SCHEMA_SECTION) {
			reader.status =
				sp_config_set_defaults(&sp_schema_scopes[key->section], base);
			continue;
		}
		if (!key->fallback)
			continue;
		reader.status = sp_config_parse_json(key->fallback, strlen(key->fallback),
						     JSON_DECODE_ANY, &value, &error);
		if (reader.status < 0)
			break;
		valid = read_value(&reader, key, value, base);
		json_decref(value);
		sp_assert(valid || reader.status < 0);
	}
	return reader.status;
}

void sp_config_scope_done(const struct sp_schema_scope *scope, void *base)
{
	for (size_t i = 0; i < scope->count; i++) {
		const struct sp_schema_key *key = &scope->keys[i];

		if (key->type == SP_SCHEMA_STRING) {
			char **at = sp_schema_at(base, key->offset);

			free(*at);
			*at = NULL;
		} else if (key->type == SP_SCHEMA_STRINGS) {
			strings_done(key, base);
		} else if (key->type == SP_SCHEMA_BINDS) {
			binds_done(key, base);
		} else if (key->type == SP_SCHEMA_SECTION) {
			sp_config_scope_done(&sp_schema_scopes[key->section], base);
		}
	}
}
