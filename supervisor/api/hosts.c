/*
 * /v1/hosts: the hosts that share our store, one row for each pool of each; take one out of service
 * and back.
 */
#include "supervisor/api/api_private.h"

#include "supervisor/api/json_body.h"

static void forget(struct sp_request *request)
{
	sp_service_hosts_cancel(request->operation);
}

static void write_host(struct sp_json_out *out, const struct sp_host_info *host)
{
	sp_json_open(out, NULL, '{');
	sp_json_text(out, "host", host->host);
	sp_json_text(out, "pool", host->pool);
	sp_json_text(out, "state", host->state);
	sp_json_integer(out, "idle", host->idle);
	sp_json_integer(out, "creating", host->creating);
	sp_json_integer(out, "leased", host->leased);
	sp_json_integer(out, "waiters", host->waiters);
	sp_json_integer(out, "share", host->share);
	sp_json_integer(out, "capacity", host->capacity);
	sp_json_integer(out, "seen_ms", host->seen_ms);
	sp_json_text(out, "version", host->version);
	sp_json_text(out, "endpoint", host->endpoint);
	sp_json_close(out, '}');
}

static void on_hosts(void *arg, const struct sp_host_info *hosts, size_t count,
		     const struct sp_err *err)
{
	struct sp_request *request = arg;
	struct sp_json_out out;
	struct sp_buf body;

	if (err) {
		sp_reply_error(request, err);
		return;
	}
	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&out, &body);
	sp_json_open(&out, NULL, '{');
	sp_json_open(&out, "hosts", '[');
	for (size_t i = 0; i < count; i++)
		write_host(&out, &hosts[i]);
	sp_json_close(&out, ']');
	sp_json_close(&out, '}');
	sp_reply_written(request, &out);
}

void sp_handle_host_list(struct sp_request *request)
{
	struct sp_hosts_op *op = NULL;
	struct sp_err err = {0};

	if (sp_service_hosts(request->api->service, &request->caller, on_hosts, request, &op,
			     &err) < 0)
		sp_reply_error(request, &err);
	else if (sp_request_suspend(request, forget, op) < 0)
		sp_service_hosts_cancel(op);
}

static void on_changed(void *arg, const struct sp_host_info *hosts, size_t count,
		       const struct sp_err *err)
{
	SP_UNUSED(hosts);
	SP_UNUSED(count);
	if (err)
		sp_reply_error(arg, err);
	else
		sp_reply_empty(arg);
}

static void change(struct sp_request *request, bool drain)
{
	struct sp_hosts_op *op = NULL;
	struct sp_err err = {0};

	if (sp_body_expect_empty(sp_buf_text(&request->body), request->body.len, &err) < 0 ||
	    sp_service_host_drain(request->api->service, &request->caller, request->name, drain,
				  on_changed, request, &op, &err) < 0)
		sp_reply_error(request, &err);
	else if (sp_request_suspend(request, forget, op) < 0)
		sp_service_hosts_cancel(op);
}

void sp_handle_host_drain(struct sp_request *request)
{
	change(request, true);
}

void sp_handle_host_resume(struct sp_request *request)
{
	change(request, false);
}
