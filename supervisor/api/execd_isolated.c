/*
 * Isolated sessions: sandboxes inside of a sandbox. This server has none, and says so as execd does
 * on a host that cannot have any.
 */
#include "supervisor/api/api_private.h"

void sp_handle_isolated_capabilities(struct sp_request *request)
{
	struct sp_json_out out;
	struct sp_buf body;

	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&out, &body);
	sp_json_open(&out, NULL, '{');
	sp_json_boolean(&out, "available", false);
	sp_json_text(&out, "isolator", "");
	sp_json_text(&out, "version", "");
	sp_json_text(&out, "message", "isolated sessions are not available in this sandbox");
	sp_json_boolean(&out, "setpriv_available", false);
	sp_json_boolean(&out, "userns_available", false);
	sp_json_boolean(&out, "commit_supported", false);
	sp_json_boolean(&out, "diff_supported", false);
	sp_json_close(&out, '}');
	sp_reply_written(request, &out);
}

void sp_handle_isolated_unavailable(struct sp_request *request)
{
	sp_os_reply_error(request, MHD_HTTP_SERVICE_UNAVAILABLE, "SERVICE_UNAVAILABLE",
			  "isolated sessions are not available in this sandbox");
}

void sp_handle_isolated_unsupported(struct sp_request *request)
{
	sp_os_reply_error(request, MHD_HTTP_SERVICE_UNAVAILABLE, "NOT_SUPPORTED",
			  "isolated sessions are not available in this sandbox");
}
