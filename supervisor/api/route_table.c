/*
 * Everything that is served but execd (execd_route_table.c). The order has no meaning: no two
 * patterns match the same path. What is in our own table comes before the OpenSandbox lifecycle's,
 * whose paths are served below /v1 and below / alike.
 */
#include "supervisor/api/api_private.h"

const struct sp_route sp_routes[] = {
	{"POST", "/v1/pools/{pool}/acquire", SP_ROUTE_KEY, sp_handle_acquire},
	{"POST", "/v1/pools/{pool}/run", SP_ROUTE_KEY, sp_handle_run},
	{"POST", "/v1/sandboxes/{id}/exec", SP_ROUTE_TOKEN, sp_handle_exec},
	{"GET", "/v1/pools/-/sandboxes", SP_ROUTE_OPERATOR, sp_handle_sandbox_list},
	{"GET", "/v1/pools/{pool}/sandboxes", SP_ROUTE_OPERATOR, sp_handle_sandbox_list},
	{"GET", "/v1/sandboxes/{id}", SP_ROUTE_TOKEN, sp_handle_sandbox_get},
	{"DELETE", "/v1/sandboxes/{id}", SP_ROUTE_TOKEN, sp_handle_sandbox_release},
	{"POST", "/v1/sandboxes/{id}/claim", SP_ROUTE_TOKEN, sp_handle_sandbox_claim},
	{"POST", "/v1/sandboxes/{id}/renew", SP_ROUTE_TOKEN, sp_handle_sandbox_renew},
	{"GET", "/v1/sandboxes/{id}/files", SP_ROUTE_TOKEN, sp_handle_files_download},
	{"PUT", "/v1/sandboxes/{id}/files", SP_ROUTE_TOKEN, sp_handle_files_put},
	{"DELETE", "/v1/sandboxes/{id}/files", SP_ROUTE_TOKEN, sp_handle_files_delete},
	{"GET", "/v1/sandboxes/{id}/files/info", SP_ROUTE_TOKEN, sp_handle_files_info},
	{"GET", "/v1/sandboxes/{id}/files/search", SP_ROUTE_TOKEN, sp_handle_files_search},
	{"POST", "/v1/sandboxes/{id}/files/replace", SP_ROUTE_TOKEN, sp_handle_files_replace},
	{"POST", "/v1/sandboxes/{id}/files/mv", SP_ROUTE_TOKEN, sp_handle_files_move},
	{"POST", "/v1/sandboxes/{id}/files/permissions", SP_ROUTE_TOKEN,
	 sp_handle_files_permissions},
	{"GET", "/v1/sandboxes/{id}/directories/list", SP_ROUTE_TOKEN, sp_handle_directories_list},
	{"POST", "/v1/sandboxes/{id}/directories", SP_ROUTE_TOKEN, sp_handle_directories_create},
	{"DELETE", "/v1/sandboxes/{id}/directories", SP_ROUTE_TOKEN, sp_handle_directories_delete},
	{"GET", "/v1/sandboxes/{id}/overlays", SP_ROUTE_TOKEN, sp_handle_overlay_list},
	{"GET", "/v1/sandboxes/{id}/overlays/{number}/diff", SP_ROUTE_TOKEN,
	 sp_handle_overlay_diff},
	{"POST", "/v1/sandboxes/{id}/overlays/{number}/commit", SP_ROUTE_TOKEN,
	 sp_handle_overlay_commit},
	{"GET", "/v1/pools", SP_ROUTE_KEY, sp_handle_pool_list},
	{"GET", "/v1/pools/{pool}", SP_ROUTE_KEY, sp_handle_pool_get},
	{"POST", "/v1/pools/{pool}/resize", SP_ROUTE_OPERATOR, sp_handle_pool_resize},
	{"POST", "/v1/pools/{pool}/drain", SP_ROUTE_OPERATOR, sp_handle_pool_drain},
	{"POST", "/v1/pools/{pool}/resume", SP_ROUTE_OPERATOR, sp_handle_pool_resume},
	{"GET", "/v1/hosts", SP_ROUTE_OPERATOR, sp_handle_host_list},
	{"POST", "/v1/hosts/{host}/drain", SP_ROUTE_OPERATOR, sp_handle_host_drain},
	{"POST", "/v1/hosts/{host}/resume", SP_ROUTE_OPERATOR, sp_handle_host_resume},
	{"POST", "/v1/reload", SP_ROUTE_OPERATOR, sp_handle_reload},
	{"GET", "/v1/config", SP_ROUTE_OPERATOR, sp_handle_config},
	{"GET", "/v1/version", SP_ROUTE_KEY, sp_handle_version},
	{"GET", "/metrics", SP_ROUTE_KEY, sp_handle_metrics},
	{"GET", "/healthz", SP_ROUTE_OPEN, sp_handle_healthz},
	{"GET", "/readyz", SP_ROUTE_OPEN, sp_handle_readyz},
};

const size_t sp_route_count = SP_ARRAY_SIZE(sp_routes);

const struct sp_route sp_os_routes[] = {
	{"POST", "/sandboxes", SP_ROUTE_KEY, sp_handle_os_create},
	{"GET", "/sandboxes", SP_ROUTE_KEY, sp_handle_os_list},
	{"GET", "/sandboxes/{uuid}", SP_ROUTE_KEY, sp_handle_os_get},
	{"DELETE", "/sandboxes/{uuid}", SP_ROUTE_KEY, sp_handle_os_delete},
	{"PATCH", "/sandboxes/{uuid}/metadata", SP_ROUTE_KEY, sp_handle_os_metadata},
	{"POST", "/sandboxes/{uuid}/pause", SP_ROUTE_KEY, sp_handle_os_pause},
	{"POST", "/sandboxes/{uuid}/resume", SP_ROUTE_KEY, sp_handle_os_resume},
	{"POST", "/sandboxes/{uuid}/renew-expiration", SP_ROUTE_KEY, sp_handle_os_renew},
	{"GET", "/sandboxes/{uuid}/endpoints/{port}", SP_ROUTE_KEY, sp_handle_os_endpoint},
	{"*", "/sandboxes/{uuid}/proxy/{port}/{tail}", SP_ROUTE_INSIDE, sp_handle_os_proxy},
	{"POST", "/sandboxes/{uuid}/snapshots", SP_ROUTE_KEY, sp_handle_os_no_snapshots},
	{"GET", "/snapshots", SP_ROUTE_KEY, sp_handle_os_no_snapshots},
	{"GET", "/snapshots/{key}", SP_ROUTE_KEY, sp_handle_os_no_snapshots},
	{"DELETE", "/snapshots/{key}", SP_ROUTE_KEY, sp_handle_os_no_snapshots},
	{"GET", "/sandboxes/{uuid}/diagnostics/{key}", SP_ROUTE_KEY, sp_handle_os_no_diagnostics},
	{"*", "/pools", SP_ROUTE_KEY, sp_handle_os_no_pools},
	{"*", "/pools/{key}", SP_ROUTE_KEY, sp_handle_os_no_pools},
	{"POST", "/metrics/events", SP_ROUTE_KEY, sp_handle_os_event},
	{"GET", "/health", SP_ROUTE_OPEN, sp_handle_os_health},
};

const size_t sp_os_route_count = SP_ARRAY_SIZE(sp_os_routes);
