/*
 * Typed access to request bodies. jansson does the parsing (it refuses bad UTF-8, NUL, nesting
 * beyond 2048 and numbers beyond 64 bits); what is a legal member, and of which type, is decided
 * here and only here.
 */
#include "supervisor/api/json_body.h"

#include "supervisor/config/config.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define MEMBER_SHOWN_MAX 64 /* of an unknown member's name in a message */

int sp_body_parse(const char *data, size_t len, json_t **ret_object, struct sp_err *err)
{
	json_error_t fault;
	json_t *root;

	if (len == 0) {
		root = json_object();
		if (!root)
			return sp_err_set(err, -ENOMEM, "parse the request body");
		*ret_object = root;
		return 0;
	}
	root = json_loadb(data, len, JSON_REJECT_DUPLICATES, &fault);
	if (!root)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "the body is no JSON object: line %d, column %d: %s", fault.line,
				   fault.column, fault.text);
	if (!json_is_object(root)) {
		json_decref(root);
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "the body is no JSON object");
	}
	*ret_object = root;
	return 0;
}

static int wrong(struct sp_err *err, const char *where, const char *name, const char *what)
{
	return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL, "member '%s%s' must be %s",
			   where, name, what);
}

static int read_integer(const json_t *value, const char *where, const struct sp_member *member,
			struct sp_err *err)
{
	int64_t number;

	if (!json_is_integer(value))
		return wrong(err, where, member->name, "an integer");
	number = json_integer_value(value);
	if (number < member->min || number > member->max)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "member '%s%s' must be in %lld … %lld", where, member->name,
				   (long long)member->min, (long long)member->max);
	*(int64_t *)member->value = number;
	return 0;
}

static int read_size(const json_t *value, const char *where, const struct sp_member *member,
		     struct sp_err *err)
{
	struct sp_err cause = {0};
	uint64_t bytes = 0;

	if (json_is_integer(value))
		return read_integer(value, where, member, err);
	if (!json_is_string(value))
		return wrong(err, where, member->name,
			     "a size like \"64MiB\" or a number of bytes");
	if (sp_parse_size(json_string_value(value), &bytes, &cause) < 0)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL, "member '%s%s': %s",
				   where, member->name, cause.message);
	if (bytes < (uint64_t)member->min || bytes > (uint64_t)member->max)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "member '%s%s' must be in %lld … %lld bytes", where,
				   member->name, (long long)member->min, (long long)member->max);
	*(int64_t *)member->value = (int64_t)bytes;
	return 0;
}

/* Seconds → ms, rounded up so that no positive duration becomes 0. -ERANGE. */
static int seconds_to_ms(double seconds, int64_t *ret_ms)
{
	double ms = ceil(seconds * (double)SP_MS_PER_S);

	/* Written so that NaN fails it. */
	if (!(ms >= 0 && ms <= (double)SP_BODY_DURATION_MAX_MS))
		return -ERANGE;
	*ret_ms = (int64_t)ms;
	return 0;
}

static int read_duration(const json_t *value, const char *where, const struct sp_member *member,
			 struct sp_err *err)
{
	struct sp_err cause = {0};
	int64_t ms = -1;

	if (json_is_string(value)) {
		if (sp_parse_duration(json_string_value(value), &ms, &cause) < 0)
			return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
					   "member '%s%s': %s", where, member->name, cause.message);
	} else if (!json_is_number(value)) {
		return wrong(err, where, member->name,
			     "a duration like \"10s\" or a number of seconds");
	} else if (seconds_to_ms(json_number_value(value), &ms) < 0) {
		ms = -1;
	}
	if (ms < member->min || ms > member->max)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "member '%s%s' must be a duration of %lld ms … %lld ms", where,
				   member->name, (long long)member->min, (long long)member->max);
	*(int64_t *)member->value = ms;
	return 0;
}

static int read_member(json_t *value, const char *where, const struct sp_member *member,
		       struct sp_err *err)
{
	switch (member->type) {
	case SP_MEMBER_TEXT:
		if (!json_is_string(value))
			return wrong(err, where, member->name, "a string");
		*(const char **)member->value = json_string_value(value);
		return 0;
	case SP_MEMBER_BOOLEAN:
		if (!json_is_boolean(value))
			return wrong(err, where, member->name, "true or false");
		*(bool *)member->value = json_is_true(value);
		return 0;
	case SP_MEMBER_INTEGER:
		return read_integer(value, where, member, err);
	case SP_MEMBER_DURATION:
		return read_duration(value, where, member, err);
	case SP_MEMBER_SIZE:
		return read_size(value, where, member, err);
	case SP_MEMBER_ARRAY:
		if (!json_is_array(value))
			return wrong(err, where, member->name, "an array");
		*(json_t **)member->value = value;
		return 0;
	case SP_MEMBER_OBJECT:
		if (!json_is_object(value))
			return wrong(err, where, member->name, "an object");
		*(json_t **)member->value = value;
		return 0;
	}
	return 0;
}

int sp_body_read(const json_t *object, const char *where, const struct sp_member *members,
		 size_t count, struct sp_err *err)
{
	/* jansson's iterators want a mutable object and change nothing. */
	json_t *mutable_object = (json_t *)(uintptr_t)object;
	const char *key;
	json_t *value;

	json_object_foreach (mutable_object, key, value) {
		size_t i = 0;
		int status;

		while (i < count && strcmp(members[i].name, key) != 0)
			i++;
		if (i == count)
			return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
					   "unknown member '%s%.*s'", where, MEMBER_SHOWN_MAX, key);
		status = read_member(value, where, &members[i], err);
		if (status < 0)
			return status;
	}
	return 0;
}

int sp_body_parse_loose(const char *data, size_t len, json_t **ret_value, struct sp_err *err)
{
	json_error_t fault;
	json_t *value = json_loadb(data, len, JSON_DISABLE_EOF_CHECK | JSON_DECODE_ANY, &fault);

	if (!value)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "the body is no JSON: line %d, column %d: %s", fault.line,
				   fault.column, fault.text);
	*ret_value = value;
	return 0;
}

int sp_body_read_loose(const json_t *object, const char *where, const struct sp_member *members,
		       size_t count, struct sp_err *err)
{
	if (!json_is_object(object))
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   where[0] ? "'%s' is no JSON object"
					    : "the body is no JSON object%s",
				   where);
	for (size_t i = 0; i < count; i++) {
		json_t *value = json_object_get(object, members[i].name);
		int status;

		if (!value || json_is_null(value))
			continue;
		status = read_member(value, where, &members[i], err);
		if (status < 0)
			return status;
	}
	return 0;
}

int sp_body_expect_empty(const char *data, size_t len, struct sp_err *err)
{
	json_t *root = NULL;
	int status = sp_body_parse(data, len, &root, err);

	if (status < 0)
		return status;
	status = sp_body_read(root, "", NULL, 0, err);
	json_decref(root);
	return status;
}
