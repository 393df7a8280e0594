/*
 * Matches a path against the patterns, segment by segment, without decoding anything (the guard has
 * refused percent-encoding where a segment means something). "/v1/pools/" is not "/v1/pools": an
 * empty segment matches nothing.
 *
 * A path that fits a pattern but for the form of its variable is remembered as "bad" and wins only
 * if no other pattern fits: what is no id of ours may be one of the other API's.
 */
#include "supervisor/api/route.h"

#include <stdio.h>
#include <string.h>

static bool uuid_byte_valid(size_t at, char byte)
{
	if (at == 8 || at == 13 || at == 18 || at == 23)
		return byte == '-';
	if (at == 14)
		return byte == '4';
	if (at == 19)
		return byte && strchr("89ab", byte);
	return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'f');
}

bool sp_os_uuid_valid(const char *text)
{
	for (size_t i = 0; i < SP_OS_UUID_LEN; i++)
		if (!uuid_byte_valid(i, text[i]))
			return false;
	return text[SP_OS_UUID_LEN] == '\0';
}

bool sp_route_has_uuid(const struct sp_route *route)
{
	return strstr(route->pattern, "{uuid}");
}

/* ---- variables ---- */

enum fit { FIT_NO, FIT_BAD, FIT_YES };

static enum fit take_name(struct sp_route_match *match, const char *segment, size_t len,
			  bool (*valid)(const char *text))
{
	if (len >= sizeof(match->name))
		return FIT_BAD;
	memcpy(match->name, segment, len);
	match->name[len] = '\0';
	return valid(match->name) ? FIT_YES : FIT_BAD;
}

static enum fit take_key(struct sp_route_match *match, const char *segment, size_t len)
{
	if (len < sizeof(match->key)) {
		memcpy(match->key, segment, len);
		match->key[len] = '\0';
	}
	return FIT_YES;
}

static enum fit take_port(struct sp_route_match *match, const char *segment, size_t len)
{
	uint32_t port = 0;

	for (size_t i = 0; i < len; i++) {
		if (segment[i] < '0' || segment[i] > '9')
			return FIT_YES;
		port = port * 10 + (uint32_t)(segment[i] - '0');
		if (port > UINT16_MAX)
			return FIT_YES;
	}
	match->port = (uint16_t)port;
	return FIT_YES;
}

static bool is_variable(const char *pattern, size_t len, const char *name)
{
	return strlen(name) == len && memcmp(pattern, name, len) == 0;
}

static enum fit take_variable(struct sp_route_match *match, const char *pattern, size_t pattern_len,
			      const char *segment, size_t len)
{
	if (len == 0)
		return FIT_NO;
	/* Pools and hosts are named alike. */
	if (is_variable(pattern, pattern_len, "{pool}") ||
	    is_variable(pattern, pattern_len, "{host}"))
		return take_name(match, segment, len, sp_pool_name_valid);
	if (is_variable(pattern, pattern_len, "{id}"))
		return take_name(match, segment, len, sp_sandbox_id_valid);
	if (is_variable(pattern, pattern_len, "{uuid}"))
		return take_name(match, segment, len, sp_os_uuid_valid);
	if (is_variable(pattern, pattern_len, "{port}") ||
	    is_variable(pattern, pattern_len, "{number}"))
		return take_port(match, segment, len);
	sp_assert(is_variable(pattern, pattern_len, "{key}"));
	return take_key(match, segment, len);
}

/* ---- one pattern ---- */

static enum fit pattern_fits(const char *pattern, const char *path, struct sp_route_match *match)
{
	enum fit whole = FIT_YES;

	for (;;) {
		size_t pattern_len;
		size_t path_len;

		if (strcmp(pattern, "/{tail}") == 0) {
			match->tail = path;
			return whole;
		}
		if (!*pattern || !*path)
			return *pattern == *path ? whole : FIT_NO;
		pattern_len = strcspn(pattern + 1, "/");
		path_len = strcspn(path + 1, "/");
		if (pattern[1] == '{') {
			enum fit fit =
				take_variable(match, pattern + 1, pattern_len, path + 1, path_len);

			if (fit == FIT_NO)
				return FIT_NO;
			whole = SP_MIN(whole, fit);
		} else if (pattern_len != path_len ||
			   memcmp(pattern + 1, path + 1, path_len) != 0) {
			return FIT_NO;
		}
		pattern += 1 + pattern_len;
		path += 1 + path_len;
	}
}

static bool method_matches(const struct sp_route *route, const char *method)
{
	return strcmp(route->method, "*") == 0 || strcmp(route->method, method) == 0 ||
	       (strcmp(route->method, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

static void allow_add(char *allow, size_t size, const char *method)
{
	size_t used = strlen(allow);

	(void)snprintf(allow + used, size - used, "%s%s%s", used ? ", " : "", method,
		       strcmp(method, "GET") == 0 ? ", HEAD" : "");
}

/* What an earlier pattern took; `allow` is of all of them. */
static void forget_variables(struct sp_route_match *match)
{
	match->name[0] = '\0';
	match->key[0] = '\0';
	match->port = 0;
	match->tail = "";
}

static enum sp_route_outcome bad_outcome(const struct sp_route *route)
{
	if (strstr(route->pattern, "{pool}"))
		return SP_ROUTE_BAD_POOL;
	if (strstr(route->pattern, "{host}"))
		return SP_ROUTE_BAD_HOST;
	return SP_ROUTE_BAD_SANDBOX;
}

enum sp_route_outcome sp_route_find(const struct sp_route *routes, size_t count, const char *method,
				    const char *path, struct sp_route_match *ret_match)
{
	const struct sp_route *bad = NULL;
	struct sp_route_match match = {.tail = ""};

	*ret_match = match;
	if (path[0] != '/')
		return SP_ROUTE_NO_PATH;
	for (size_t i = 0; i < count; i++) {
		enum fit fit;

		forget_variables(&match);
		fit = pattern_fits(routes[i].pattern, path, &match);
		if (fit == FIT_NO)
			continue;
		if (!method_matches(&routes[i], method)) {
			if (fit == FIT_YES)
				allow_add(match.allow, sizeof(match.allow), routes[i].method);
		} else if (fit == FIT_YES) {
			*ret_match = match;
			ret_match->route = &routes[i];
			return SP_ROUTE_FOUND;
		} else if (!bad) {
			bad = &routes[i];
		}
	}
	memcpy(ret_match->allow, match.allow, sizeof(match.allow));
	ret_match->route = bad;
	if (match.allow[0])
		return SP_ROUTE_NO_METHOD;
	return bad ? bad_outcome(bad) : SP_ROUTE_NO_PATH;
}
