/*
 * /healthz (the loop turns), /readyz (work can be taken), /metrics.
 */
#include "supervisor/api/api_private.h"

#include "supervisor/metrics/metrics.h"

#include <errno.h>

static void reply_line(struct sp_request *request, unsigned int status, const char *line)
{
	struct sp_err err = {0};
	struct sp_buf body;

	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	if (sp_buf_printf(&body, "%s\n", line) < 0) {
		(void)sp_err_set(&err, -ENOMEM, "write the answer");
		sp_reply_error(request, &err);
	} else {
		sp_reply_text(request, status, "text/plain; charset=utf-8", &body);
	}
	sp_buf_done(&body);
}

void sp_handle_healthz(struct sp_request *request)
{
	reply_line(request, MHD_HTTP_OK, "ok");
}

void sp_handle_readyz(struct sp_request *request)
{
	const char *reason = NULL;

	if (sp_service_ready(request->api->service, &reason))
		reply_line(request, MHD_HTTP_OK, "ready");
	else
		reply_line(request, MHD_HTTP_SERVICE_UNAVAILABLE, reason ? reason : "not ready");
}

void sp_handle_metrics(struct sp_request *request)
{
	struct sp_err err = {0};
	struct sp_buf body;
	int status;

	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	status = sp_metrics_write(sp_service_metrics(request->api->service), &body);
	if (status < 0) {
		(void)sp_err_set(&err, status, "write the metrics");
		sp_reply_error(request, &err);
	} else {
		sp_reply_text(request, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8",
			      &body);
	}
	sp_buf_done(&body);
}
