/*
 * The daemon itself: version, resolved configuration, reload.
 *
 * A reload cannot be called off: when its client leaves, the operation forgets the request and
 * frees itself when the service reports.
 */
#include "supervisor/api/api_private.h"

#include "supervisor/api/json_body.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define HTTP_PROTOCOL_VERSION 1

void sp_handle_version(struct sp_request *request)
{
	struct sp_json_out out;
	struct sp_buf body;
	char build[24];

	(void)snprintf(build, sizeof(build), "%016llx", (unsigned long long)SP_BUILD_ID);
	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&out, &body);
	sp_json_open(&out, NULL, '{');
	sp_json_text(&out, "version", SP_VERSION);
	sp_json_text(&out, "build", build);
	sp_json_integer(&out, "protocol", HTTP_PROTOCOL_VERSION);
	sp_json_close(&out, '}');
	sp_reply_written(request, &out);
}

void sp_handle_config(struct sp_request *request)
{
	struct sp_err err = {0};
	struct sp_buf body;

	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	if (sp_config_dump(sp_service_config(request->api->service), false, &body, &err) < 0)
		sp_reply_error(request, &err);
	else
		sp_reply_json(request, MHD_HTTP_OK, &body);
	sp_buf_done(&body);
}

struct reload {
	struct sp_request *request; /* NULL: its client left */
};

static void reload_forget(struct sp_request *request)
{
	struct reload *reload = request->operation;

	reload->request = NULL;
}

static void on_reloaded(void *arg, const struct sp_err *err)
{
	struct reload *reload = arg;
	struct sp_request *request = reload->request;

	free(reload);
	if (!request)
		return;
	if (err)
		sp_reply_error(request, err);
	else
		sp_reply_empty(request);
}

void sp_handle_reload(struct sp_request *request)
{
	struct reload *reload;
	struct sp_err err = {0};

	if (sp_body_expect_empty(sp_buf_text(&request->body), request->body.len, &err) < 0) {
		sp_reply_error(request, &err);
		return;
	}
	reload = calloc(1, sizeof(*reload));
	if (!reload) {
		(void)sp_err_set(&err, -ENOMEM, "reload the configuration");
		sp_reply_error(request, &err);
		return;
	}
	if (sp_service_reload(request->api->service, &request->caller, on_reloaded, reload, &err) <
	    0) {
		free(reload);
		sp_reply_error(request, &err);
		return;
	}
	reload->request = request;
	if (sp_request_suspend(request, reload_forget, reload) < 0)
		reload->request = NULL;
}
