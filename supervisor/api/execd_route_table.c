/*
 * Everything that execd serves: paths below `/sandboxes/{uuid}/proxy/44772`. Each handler finds its
 * sandbox in request->os, running, and a caller that may use it.
 */
#include "supervisor/api/api_private.h"

const struct sp_route sp_execd_routes[] = {
	{"GET", "/ping", SP_ROUTE_INSIDE, sp_handle_execd_ping},
	{"GET", "/v1/isolated/capabilities", SP_ROUTE_INSIDE, sp_handle_isolated_capabilities},
	{"POST", "/v1/isolated/session", SP_ROUTE_INSIDE, sp_handle_isolated_unavailable},
	{"GET", "/v1/isolated/sessions", SP_ROUTE_INSIDE, sp_handle_isolated_unavailable},
	{"GET", "/v1/isolated/session/{key}", SP_ROUTE_INSIDE, sp_handle_isolated_unavailable},
	{"DELETE", "/v1/isolated/session/{key}", SP_ROUTE_INSIDE, sp_handle_isolated_unavailable},
	{"POST", "/v1/isolated/session/{key}/run", SP_ROUTE_INSIDE, sp_handle_isolated_unavailable},
	{"GET", "/v1/isolated/session/{key}/diff", SP_ROUTE_INSIDE, sp_handle_isolated_unsupported},
	{"POST", "/v1/isolated/session/{key}/commit", SP_ROUTE_INSIDE,
	 sp_handle_isolated_unsupported},
	{"*", "/v1/isolated/session/{key}/files", SP_ROUTE_INSIDE, sp_handle_isolated_unavailable},
	{"*", "/v1/isolated/session/{key}/files/{key}", SP_ROUTE_INSIDE,
	 sp_handle_isolated_unavailable},
	{"*", "/v1/isolated/session/{key}/directories", SP_ROUTE_INSIDE,
	 sp_handle_isolated_unavailable},
	{"GET", "/v1/isolated/session/{key}/directories/list", SP_ROUTE_INSIDE,
	 sp_handle_isolated_unavailable},
	{"*", "/proxy/", SP_ROUTE_INSIDE, sp_handle_execd_proxy},
	{"*", "/proxy/{port}/{tail}", SP_ROUTE_INSIDE, sp_handle_execd_proxy},
};

const size_t sp_execd_route_count = SP_ARRAY_SIZE(sp_execd_routes);

void sp_handle_execd_ping(struct sp_request *request)
{
	sp_reply_status(request, MHD_HTTP_OK);
}
