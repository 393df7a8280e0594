/*
 * Everything that execd serves: paths below `/sandboxes/{uuid}/proxy/44772`. Each handler finds its
 * sandbox in request->os, running, and a caller that may use it.
 */
#include "supervisor/api/api_private.h"

#include <string.h>

const struct sp_route sp_execd_routes[] = {
	{"GET", "/ping", SP_ROUTE_INSIDE, sp_handle_execd_ping},
	{"POST", "/command", SP_ROUTE_INSIDE, sp_handle_execd_command},
	{"DELETE", "/command", SP_ROUTE_INSIDE, sp_handle_execd_interrupt},
	{"GET", "/command/status/{key}", SP_ROUTE_INSIDE, sp_handle_execd_command_status},
	{"GET", "/command/{key}/logs", SP_ROUTE_INSIDE, sp_handle_execd_command_logs},
	{"POST", "/session", SP_ROUTE_INSIDE, sp_handle_execd_session_create},
	{"POST", "/session/{key}/run", SP_ROUTE_INSIDE, sp_handle_execd_session_run},
	{"DELETE", "/session/{key}", SP_ROUTE_INSIDE, sp_handle_execd_session_delete},
	{"POST", "/code", SP_ROUTE_INSIDE, sp_handle_execd_code},
	{"DELETE", "/code", SP_ROUTE_INSIDE, sp_handle_execd_interrupt},
	{"POST", "/code/context", SP_ROUTE_INSIDE, sp_handle_execd_context_create},
	{"GET", "/code/contexts", SP_ROUTE_INSIDE, sp_handle_execd_context_list},
	{"DELETE", "/code/contexts", SP_ROUTE_INSIDE, sp_handle_execd_context_delete_all},
	{"GET", "/code/contexts/{key}", SP_ROUTE_INSIDE, sp_handle_execd_context_get},
	{"DELETE", "/code/contexts/{key}", SP_ROUTE_INSIDE, sp_handle_execd_context_delete},
	{"GET", "/metrics", SP_ROUTE_INSIDE, sp_handle_execd_metrics},
	{"GET", "/metrics/watch", SP_ROUTE_INSIDE, sp_handle_execd_metrics_watch},
	{"GET", "/files/info", SP_ROUTE_INSIDE, sp_handle_files_info},
	{"GET", "/files/search", SP_ROUTE_INSIDE, sp_handle_files_search},
	{"POST", "/files/replace", SP_ROUTE_INSIDE, sp_handle_files_replace},
	{"POST", "/files/mv", SP_ROUTE_INSIDE, sp_handle_files_move},
	{"POST", "/files/permissions", SP_ROUTE_INSIDE, sp_handle_files_permissions},
	{"POST", "/files/upload", SP_ROUTE_INSIDE, sp_handle_files_upload},
	{"GET", "/files/download", SP_ROUTE_INSIDE, sp_handle_files_download},
	{"DELETE", "/files", SP_ROUTE_INSIDE, sp_handle_files_delete},
	{"GET", "/directories/list", SP_ROUTE_INSIDE, sp_handle_directories_list},
	{"POST", "/directories", SP_ROUTE_INSIDE, sp_handle_directories_create},
	{"DELETE", "/directories", SP_ROUTE_INSIDE, sp_handle_directories_delete},
	{"GET", "/v1/isolated/capabilities", SP_ROUTE_INSIDE, sp_handle_isolated_capabilities},
	{"POST", "/v1/isolated/session", SP_ROUTE_INSIDE, sp_handle_isolated_create},
	{"GET", "/v1/isolated/sessions", SP_ROUTE_INSIDE, sp_handle_isolated_list},
	{"GET", "/v1/isolated/session/{key}", SP_ROUTE_INSIDE, sp_handle_isolated_get},
	{"DELETE", "/v1/isolated/session/{key}", SP_ROUTE_INSIDE, sp_handle_isolated_delete},
	{"POST", "/v1/isolated/session/{key}/run", SP_ROUTE_INSIDE, sp_handle_isolated_run},
	{"GET", "/v1/isolated/session/{key}/diff", SP_ROUTE_INSIDE, sp_handle_isolated_diff},
	{"POST", "/v1/isolated/session/{key}/commit", SP_ROUTE_INSIDE, sp_handle_isolated_commit},
	{"GET", "/v1/isolated/session/{key}/files/info", SP_ROUTE_INSIDE, sp_handle_files_info},
	{"GET", "/v1/isolated/session/{key}/files/search", SP_ROUTE_INSIDE, sp_handle_files_search},
	{"POST", "/v1/isolated/session/{key}/files/replace", SP_ROUTE_INSIDE,
	 sp_handle_files_replace},
	{"POST", "/v1/isolated/session/{key}/files/mv", SP_ROUTE_INSIDE, sp_handle_files_move},
	{"POST", "/v1/isolated/session/{key}/files/permissions", SP_ROUTE_INSIDE,
	 sp_handle_files_permissions},
	{"POST", "/v1/isolated/session/{key}/files/upload", SP_ROUTE_INSIDE,
	 sp_handle_files_upload},
	{"GET", "/v1/isolated/session/{key}/files/download", SP_ROUTE_INSIDE,
	 sp_handle_files_download},
	{"DELETE", "/v1/isolated/session/{key}/files", SP_ROUTE_INSIDE, sp_handle_files_delete},
	{"GET", "/v1/isolated/session/{key}/directories/list", SP_ROUTE_INSIDE,
	 sp_handle_directories_list},
	{"POST", "/v1/isolated/session/{key}/directories", SP_ROUTE_INSIDE,
	 sp_handle_directories_create},
	{"DELETE", "/v1/isolated/session/{key}/directories", SP_ROUTE_INSIDE,
	 sp_handle_directories_delete},
	{"POST", "/pty", SP_ROUTE_INSIDE, sp_handle_pty_create},
	{"GET", "/pty/{key}", SP_ROUTE_INSIDE, sp_handle_pty_get},
	{"DELETE", "/pty/{key}", SP_ROUTE_INSIDE, sp_handle_pty_delete},
	{"GET", "/pty/{key}/ws", SP_ROUTE_INSIDE, sp_handle_pty_socket},
	{"*", "/proxy/", SP_ROUTE_INSIDE, sp_handle_execd_proxy},
	{"*", "/proxy/{port}/{tail}", SP_ROUTE_INSIDE, sp_handle_execd_proxy},
};

const size_t sp_execd_route_count = SP_ARRAY_SIZE(sp_execd_routes);

bool sp_route_is_isolated_files(const struct sp_route *route)
{
	size_t len = strlen(SP_ISOLATED_FILES);
	const char *rest = route->pattern + len;

	return strncmp(route->pattern, SP_ISOLATED_FILES, len) == 0 &&
	       (strcmp(rest, "/diff") == 0 || strncmp(rest, "/files", strlen("/files")) == 0 ||
		strncmp(rest, "/directories", strlen("/directories")) == 0);
}

void sp_handle_execd_ping(struct sp_request *request)
{
	sp_reply_status(request, MHD_HTTP_OK);
}
