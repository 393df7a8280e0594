/*
 * Matches a path against the patterns, segment by segment, without decoding anything (the guard has
 * refused percent-encoding). "/v1/pools/" is not "/v1/pools": an empty segment matches nothing.
 */
#include "supervisor/api/route.h"

#include <stdio.h>
#include <string.h>

static bool pattern_matches(const char *pattern, const char *path, const char **ret_name,
			    size_t *ret_name_len)
{
	*ret_name = NULL;
	*ret_name_len = 0;
	for (;;) {
		size_t pattern_len = strcspn(pattern + 1, "/");
		size_t path_len = strcspn(path + 1, "/");

		if (pattern[1] == '{') {
			if (path_len == 0)
				return false;
			*ret_name = path + 1;
			*ret_name_len = path_len;
		} else if (pattern_len != path_len ||
			   memcmp(pattern + 1, path + 1, path_len) != 0) {
			return false;
		}
		pattern += 1 + pattern_len;
		path += 1 + path_len;
		if (!*pattern || !*path)
			return *pattern == *path;
	}
}

static bool method_matches(const struct sp_route *route, const char *method)
{
	return strcmp(route->method, method) == 0 ||
	       (strcmp(route->method, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

static void allow_add(struct sp_route_match *match, const char *method)
{
	size_t used = strlen(match->allow);

	(void)snprintf(match->allow + used, sizeof(match->allow) - used, "%s%s%s", used ? ", " : "",
		       method, strcmp(method, "GET") == 0 ? ", HEAD" : "");
}

static enum sp_route_outcome take_name(const struct sp_route *route, const char *name, size_t len,
				       struct sp_route_match *match)
{
	enum sp_route_outcome bad = SP_ROUTE_BAD_SANDBOX;
	bool valid;

	if (!name)
		return SP_ROUTE_FOUND;
	if (strstr(route->pattern, "{pool}"))
		bad = SP_ROUTE_BAD_POOL;
	else if (strstr(route->pattern, "{host}"))
		bad = SP_ROUTE_BAD_HOST;
	if (len >= sizeof(match->name))
		return bad;
	memcpy(match->name, name, len);
	match->name[len] = '\0';
	/* Pools and hosts are named alike. */
	valid = bad == SP_ROUTE_BAD_SANDBOX ? sp_sandbox_id_valid(match->name)
					    : sp_pool_name_valid(match->name);
	return valid ? SP_ROUTE_FOUND : bad;
}

enum sp_route_outcome sp_route_find(const struct sp_route *routes, size_t count, const char *method,
				    const char *path, struct sp_route_match *ret_match)
{
	*ret_match = (struct sp_route_match){0};
	if (path[0] != '/')
		return SP_ROUTE_NO_PATH;
	for (size_t i = 0; i < count; i++) {
		const char *name;
		size_t name_len;

		if (!pattern_matches(routes[i].pattern, path, &name, &name_len))
			continue;
		if (!method_matches(&routes[i], method)) {
			allow_add(ret_match, routes[i].method);
			continue;
		}
		ret_match->route = &routes[i];
		return take_name(&routes[i], name, name_len, ret_match);
	}
	return ret_match->allow[0] ? SP_ROUTE_NO_METHOD : SP_ROUTE_NO_PATH;
}
