/*
 * Matching of paths: the table that is served, and what must not match.
 */
#include "supervisor/api/route.h"

#include "supervisor/api/api_private.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define ID "0123456789abcdefghjk"

static enum sp_route_outcome find(const char *method, const char *path,
				  struct sp_route_match *match)
{
	return sp_route_find(sp_routes, sp_route_count, method, path, match);
}

Test(api_route, every_pattern_leads_to_its_handler)
{
	static const struct {
		const char *method;
		const char *path;
		void (*handle)(struct sp_request *request);
		const char *name;
	} cases[] = {
		{"POST", "/v1/pools/default/acquire", sp_handle_acquire, "default"},
		{"POST", "/v1/pools/a.b-c_9/run", sp_handle_run, "a.b-c_9"},
		{"POST", "/v1/sandboxes/" ID "/exec", sp_handle_exec, ID},
		{"GET", "/v1/sandboxes", sp_handle_sandbox_list, ""},
		{"GET", "/v1/sandboxes/" ID, sp_handle_sandbox_get, ID},
		{"DELETE", "/v1/sandboxes/" ID, sp_handle_sandbox_release, ID},
		{"POST", "/v1/sandboxes/" ID "/renew", sp_handle_sandbox_renew, ID},
		{"POST", "/v1/sandboxes/" ID "/claim", sp_handle_sandbox_claim, ID},
		{"GET", "/v1/hosts", sp_handle_host_list, ""},
		{"POST", "/v1/hosts/node-1.a/drain", sp_handle_host_drain, "node-1.a"},
		{"POST", "/v1/hosts/b/resume", sp_handle_host_resume, "b"},
		{"GET", "/v1/pools", sp_handle_pool_list, ""},
		{"GET", "/v1/pools/default", sp_handle_pool_get, "default"},
		{"POST", "/v1/pools/default/resize", sp_handle_pool_resize, "default"},
		{"POST", "/v1/pools/default/drain", sp_handle_pool_drain, "default"},
		{"POST", "/v1/pools/default/resume", sp_handle_pool_resume, "default"},
		{"POST", "/v1/reload", sp_handle_reload, ""},
		{"GET", "/v1/config", sp_handle_config, ""},
		{"GET", "/v1/version", sp_handle_version, ""},
		{"GET", "/metrics", sp_handle_metrics, ""},
		{"GET", "/healthz", sp_handle_healthz, ""},
		{"GET", "/readyz", sp_handle_readyz, ""},
	};

	cr_assert(SP_ARRAY_SIZE(cases) == sp_route_count);
	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++) {
		struct sp_route_match match;

		cr_assert(find(cases[i].method, cases[i].path, &match) == SP_ROUTE_FOUND, "%s",
			  cases[i].path);
		cr_assert(match.route->handle == cases[i].handle, "%s", cases[i].path);
		cr_assert(strcmp(match.name, cases[i].name) == 0, "%s", cases[i].path);
	}
}

Test(api_route, only_health_is_open)
{
	for (size_t i = 0; i < sp_route_count; i++) {
		bool health = strcmp(sp_routes[i].pattern, "/healthz") == 0 ||
			      strcmp(sp_routes[i].pattern, "/readyz") == 0;

		cr_assert((sp_routes[i].access == SP_ROUTE_OPEN) == health, "%s",
			  sp_routes[i].pattern);
	}
}

Test(api_route, head_is_served_where_get_is)
{
	struct sp_route_match match;

	cr_assert(find("HEAD", "/healthz", &match) == SP_ROUTE_FOUND);
	cr_assert(find("HEAD", "/v1/reload", &match) == SP_ROUTE_NO_METHOD);
}

Test(api_route, other_methods_are_told_what_is_allowed)
{
	struct sp_route_match match;

	cr_assert(find("PUT", "/v1/sandboxes/" ID, &match) == SP_ROUTE_NO_METHOD);
	cr_assert(strcmp(match.allow, "GET, HEAD, DELETE") == 0, "%s", match.allow);
	cr_assert(find("get", "/healthz", &match) == SP_ROUTE_NO_METHOD);
	cr_assert(find("", "/healthz", &match) == SP_ROUTE_NO_METHOD);
}

Test(api_route, near_misses_do_not_match)
{
	static const char *const paths[] = {
		"/",
		"",
		"//",
		"/v1",
		"/v1/",
		"/v1/pools/",
		"/v1/pools//acquire",
		"/v1//pools",
		"//v1/pools",
		"/v1/pools/default/acquire/",
		"/v1/pools/default/acquir",
		"/v1/pools/default/acquires",
		"/V1/pools",
		"/healthz/",
		"/healthz?x",
		"/v1/pools/a/b/acquire",
		"/v2/pools",
		"v1/pools",
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(paths); i++) {
		struct sp_route_match match;

		cr_assert(find("GET", paths[i], &match) == SP_ROUTE_NO_PATH, "'%s'", paths[i]);
		cr_assert(find("POST", paths[i], &match) == SP_ROUTE_NO_PATH, "'%s'", paths[i]);
	}
}

Test(api_route, names_that_can_be_no_pool_are_known_before_any_lookup)
{
	static const char longest[] =
		"/v1/pools/a23456789012345678901234567890123456789012345678901234567890123";
	static const char too_long[] =
		"/v1/pools/a234567890123456789012345678901234567890123456789012345678901234";
	struct sp_route_match match;

	cr_assert(find("GET", longest, &match) == SP_ROUTE_FOUND);
	cr_assert(strlen(match.name) == SP_POOL_NAME_MAX);
	cr_assert(find("GET", too_long, &match) == SP_ROUTE_BAD_POOL);
	cr_assert(find("GET", "/v1/pools/-a", &match) == SP_ROUTE_BAD_POOL);
	cr_assert(find("GET", "/v1/pools/Default", &match) == SP_ROUTE_BAD_POOL);
	cr_assert(find("GET", "/v1/pools/..", &match) == SP_ROUTE_BAD_POOL);
}

Test(api_route, ids_that_can_be_no_sandbox_are_known_before_any_lookup)
{
	static const char *const ids[] = {"0123456789abcdefghj",
					  "0123456789abcdefghjk0",
					  "0123456789ABCDEFGHJK",
					  "0123456789abcdefghji",
					  "..",
					  "0123456789abcdefghj\xff"};

	for (size_t i = 0; i < SP_ARRAY_SIZE(ids); i++) {
		struct sp_route_match match;
		char path[128];

		(void)snprintf(path, sizeof(path), "/v1/sandboxes/%s", ids[i]);
		cr_assert(find("GET", path, &match) == SP_ROUTE_BAD_SANDBOX, "%s", ids[i]);
	}
}

Test(api_route, segments_that_can_be_no_host)
{
	static const char *const hosts[] = {"-a", "UPPER", "..", "a:b"};

	for (size_t i = 0; i < SP_ARRAY_SIZE(hosts); i++) {
		struct sp_route_match match;
		char path[128];

		(void)snprintf(path, sizeof(path), "/v1/hosts/%s/drain", hosts[i]);
		cr_assert(find("POST", path, &match) == SP_ROUTE_BAD_HOST, "%s", hosts[i]);
	}
}
