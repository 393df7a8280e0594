/*
 * Matching of paths: the table that is served, and what must not match.
 */
#include "supervisor/api/route.h"

#include "supervisor/api/api_private.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define ID   "0123456789abcdefghjk"
#define UUID "f81d4fae-7dec-41d0-a765-00a0c91e6bf6"

static enum sp_route_outcome find(const char *method, const char *path,
				  struct sp_route_match *match)
{
	return sp_route_find(sp_routes, sp_route_count, method, path, match);
}

/* Below /v1, which access.c takes off. */
static enum sp_route_outcome find_os(const char *method, const char *path,
				     struct sp_route_match *match)
{
	return sp_route_find(sp_os_routes, sp_os_route_count, method, path, match);
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
		{"GET", "/v1/pools/-/sandboxes", sp_handle_sandbox_list, ""},
		{"GET", "/v1/pools/default/sandboxes", sp_handle_sandbox_list, "default"},
		{"GET", "/v1/sandboxes/" ID, sp_handle_sandbox_get, ID},
		{"DELETE", "/v1/sandboxes/" ID, sp_handle_sandbox_release, ID},
		{"POST", "/v1/sandboxes/" ID "/renew", sp_handle_sandbox_renew, ID},
		{"POST", "/v1/sandboxes/" ID "/claim", sp_handle_sandbox_claim, ID},
		{"GET", "/v1/sandboxes/" ID "/files", sp_handle_files_download, ID},
		{"PUT", "/v1/sandboxes/" ID "/files", sp_handle_files_put, ID},
		{"DELETE", "/v1/sandboxes/" ID "/files", sp_handle_files_delete, ID},
		{"GET", "/v1/sandboxes/" ID "/files/info", sp_handle_files_info, ID},
		{"GET", "/v1/sandboxes/" ID "/files/search", sp_handle_files_search, ID},
		{"POST", "/v1/sandboxes/" ID "/files/replace", sp_handle_files_replace, ID},
		{"POST", "/v1/sandboxes/" ID "/files/mv", sp_handle_files_move, ID},
		{"POST", "/v1/sandboxes/" ID "/files/permissions", sp_handle_files_permissions, ID},
		{"GET", "/v1/sandboxes/" ID "/directories/list", sp_handle_directories_list, ID},
		{"POST", "/v1/sandboxes/" ID "/directories", sp_handle_directories_create, ID},
		{"DELETE", "/v1/sandboxes/" ID "/directories", sp_handle_directories_delete, ID},
		{"GET", "/v1/sandboxes/" ID "/overlays", sp_handle_overlay_list, ID},
		{"GET", "/v1/sandboxes/" ID "/overlays/1/diff", sp_handle_overlay_diff, ID},
		{"POST", "/v1/sandboxes/" ID "/overlays/8/commit", sp_handle_overlay_commit, ID},
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

Test(api_route, the_lifecycle_api_has_uuids_where_ours_has_ids)
{
	static const struct {
		const char *method;
		const char *path;
		void (*handle)(struct sp_request *request);
	} cases[] = {
		{"POST", "/sandboxes", sp_handle_os_create},
		{"GET", "/sandboxes", sp_handle_os_list},
		{"GET", "/sandboxes/" UUID, sp_handle_os_get},
		{"DELETE", "/sandboxes/" UUID, sp_handle_os_delete},
		{"PATCH", "/sandboxes/" UUID "/metadata", sp_handle_os_metadata},
		{"POST", "/sandboxes/" UUID "/pause", sp_handle_os_pause},
		{"POST", "/sandboxes/" UUID "/resume", sp_handle_os_resume},
		{"POST", "/sandboxes/" UUID "/renew-expiration", sp_handle_os_renew},
		{"POST", "/sandboxes/" UUID "/snapshots", sp_handle_os_no_snapshots},
		{"GET", "/sandboxes/" UUID "/diagnostics/logs", sp_handle_os_no_diagnostics},
		{"DELETE", "/snapshots/x", sp_handle_os_no_snapshots},
		{"PUT", "/pools/x", sp_handle_os_no_pools},
		{"POST", "/metrics/events", sp_handle_os_event},
		{"GET", "/health", sp_handle_os_health},
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++) {
		struct sp_route_match match;

		cr_assert(find_os(cases[i].method, cases[i].path, &match) == SP_ROUTE_FOUND, "%s",
			  cases[i].path);
		cr_assert(match.route->handle == cases[i].handle, "%s", cases[i].path);
		cr_assert(strcmp(match.name, strstr(cases[i].path, UUID) ? UUID : "") == 0, "%s",
			  cases[i].path);
	}
}

Test(api_route, each_table_takes_its_own_ids_only)
{
	struct sp_route_match match;

	cr_assert(find("GET", "/v1/sandboxes/" UUID, &match) == SP_ROUTE_BAD_SANDBOX);
	cr_assert(find_os("GET", "/sandboxes/" ID, &match) == SP_ROUTE_BAD_SANDBOX);
	cr_assert(find_os("GET", "/sandboxes/F81d4fae-7dec-41d0-a765-00a0c91e6bf6", &match) ==
		  SP_ROUTE_BAD_SANDBOX);
	cr_assert(find_os("GET", "/sandboxes/f81d4fae-7dec-11d0-a765-00a0c91e6bf6", &match) ==
		  SP_ROUTE_BAD_SANDBOX);
	cr_assert(find_os("GET", "/sandboxes/f81d4fae-7dec-41d0-c765-00a0c91e6bf6", &match) ==
		  SP_ROUTE_BAD_SANDBOX);
	cr_assert(find_os("GET", "/sandboxes/" UUID "0", &match) == SP_ROUTE_BAD_SANDBOX);
	cr_assert(find_os("GET", "/sandboxes/f81d4fae-7dec-41d0-a765-00a0c91e6bf", &match) ==
		  SP_ROUTE_BAD_SANDBOX);
}

Test(api_route, ports_are_numbers_that_ports_can_be)
{
	static const struct {
		const char *text;
		uint16_t port;
	} cases[] = {
		{"1", 1},     {"44772", 44772}, {"65535", 65535},
		{"65536", 0}, {"0", 0},         {"-1", 0},
		{"80a", 0},   {"x", 0},         {"99999999999999999999", 0},
		{"0080", 80},
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++) {
		struct sp_route_match match;
		char path[128];

		(void)snprintf(path, sizeof(path), "/sandboxes/" UUID "/endpoints/%s",
			       cases[i].text);
		cr_assert(find_os("GET", path, &match) == SP_ROUTE_FOUND, "%s", path);
		cr_assert(match.port == cases[i].port, "%s", path);
	}
}

Test(api_route, the_tail_is_what_is_left)
{
	static const struct {
		const char *path;
		const char *tail;
	} cases[] = {
		{"/sandboxes/" UUID "/proxy/44772", ""},
		{"/sandboxes/" UUID "/proxy/44772/", "/"},
		{"/sandboxes/" UUID "/proxy/44772/ping", "/ping"},
		{"/sandboxes/" UUID "/proxy/44772//a/../b%2f/", "//a/../b%2f/"},
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++) {
		struct sp_route_match match;

		cr_assert(find_os("BREW", cases[i].path, &match) == SP_ROUTE_FOUND, "%s",
			  cases[i].path);
		cr_assert(match.route->access == SP_ROUTE_INSIDE);
		cr_assert(match.port == 44772 && strcmp(match.name, UUID) == 0);
		cr_assert(strcmp(match.tail, cases[i].tail) == 0, "%s", match.tail);
	}
}

Test(api_route, a_key_as_long_as_one_can_be_and_one_more)
{
	struct sp_route_match match;
	char path[128];

	(void)snprintf(path, sizeof(path), "/snapshots/%064d", 7);
	cr_assert(find_os("GET", path, &match) == SP_ROUTE_FOUND);
	cr_assert(strlen(match.key) == SP_ROUTE_KEY_MAX);
	(void)snprintf(path, sizeof(path), "/snapshots/%065d", 7);
	cr_assert(find_os("GET", path, &match) == SP_ROUTE_FOUND);
	cr_assert(match.key[0] == '\0');
}

Test(api_route, all_of_execd_wants_the_token)
{
	struct sp_route_match match;

	for (size_t i = 0; i < sp_execd_route_count; i++)
		cr_assert(sp_execd_routes[i].access == SP_ROUTE_INSIDE, "%s",
			  sp_execd_routes[i].pattern);
	cr_assert(sp_route_find(sp_execd_routes, sp_execd_route_count, "GET", "/ping", &match) ==
		  SP_ROUTE_FOUND);
	cr_assert(match.route->handle == sp_handle_execd_ping);
}

Test(api_route, no_two_patterns_of_the_lifecycle_and_execd_are_alike)
{
	for (size_t i = 0; i < sp_os_route_count; i++)
		for (size_t j = 0; j < i; j++)
			cr_assert(strcmp(sp_os_routes[i].method, sp_os_routes[j].method) != 0 ||
				  strcmp(sp_os_routes[i].pattern, sp_os_routes[j].pattern) != 0);
	for (size_t i = 0; i < sp_execd_route_count; i++)
		for (size_t j = 0; j < i; j++)
			cr_assert(strcmp(sp_execd_routes[i].method, sp_execd_routes[j].method) !=
					  0 ||
				  strcmp(sp_execd_routes[i].pattern, sp_execd_routes[j].pattern) !=
					  0);
}

Test(api_route, only_health_is_open)
{
	for (size_t i = 0; i < sp_os_route_count; i++)
		cr_assert((sp_os_routes[i].access == SP_ROUTE_OPEN) ==
				  (strcmp(sp_os_routes[i].pattern, "/health") == 0),
			  "%s", sp_os_routes[i].pattern);

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
