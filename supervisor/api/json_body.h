/*
 * Reads the JSON objects that clients send: a list of the members that are known, each with its
 * type, range and place. Whatever else is in the object is an error that names the member.
 */
#ifndef SP_API_JSON_BODY_H
#define SP_API_JSON_BODY_H

#include "pool/base/err.h"

#include <jansson.h>

/* A century: beyond every limit of the pool, below every overflow. */
#define SP_BODY_DURATION_MAX_MS (INT64_C(100) * 365 * 24 * 3600 * SP_MS_PER_S)

enum sp_member_type {
	SP_MEMBER_TEXT,     /* const char *; borrowed from the object */
	SP_MEMBER_BOOLEAN,  /* bool */
	SP_MEMBER_INTEGER,  /* int64_t in min … max */
	SP_MEMBER_DURATION, /* int64_t, milliseconds in min … max; "10s" or seconds as a number,
			     * rounded up to the next millisecond */
	SP_MEMBER_SIZE,     /* int64_t, bytes in min … max; "64MiB", or a number */
	SP_MEMBER_ARRAY,    /* json_t *; borrowed */
	SP_MEMBER_OBJECT,   /* json_t *; borrowed */
};

/* `value` is written only when the member is there; null is not "absent" but a wrong type. */
struct sp_member {
	const char *name;
	enum sp_member_type type;
	void *value;
	int64_t min, max;
};

/* Parse a body. Empty is the empty object. On success the caller owns *ret_object (json_decref).
 * INVALID_ARGUMENT: no JSON, no object, a repeated member, NUL in a string, number beyond 64 bits;
 * the message says where. */
int sp_body_parse(const char *data, size_t len, json_t **ret_object, struct sp_err *err);

/* Read the members of an object. `where` names it in messages ("binds[2].") or is "". */
int sp_body_read(const json_t *object, const char *where, const struct sp_member *members,
		 size_t count, struct sp_err *err);

/* The same two as the OpenSandbox APIs read: bytes after the first value, repeated and unknown
 * members are ignored, null is absent. What was parsed may be any value; empty is none. */
int sp_body_parse_loose(const char *data, size_t len, json_t **ret_value, struct sp_err *err);
int sp_body_read_loose(const json_t *object, const char *where, const struct sp_member *members,
		       size_t count, struct sp_err *err);

/* For routes that take no members: any member is an error. */
int sp_body_expect_empty(const char *data, size_t len, struct sp_err *err);

#endif
