/*
 * /v1/pools/{pool}/acquire, /v1/pools/{pool}/sandboxes and /v1/sandboxes/{id}: hand out, list, look
 * at, renew, release.
 */
#include "supervisor/api/api_private.h"

#include "pool/base/clock.h"
#include "supervisor/api/exec_json.h"
#include "supervisor/api/json_body.h"
#include "supervisor/launcher/protocol.h"

#include <errno.h>
#include <string.h>

static void write_degraded(struct sp_json_out *out, uint32_t limits)
{
	static const struct {
		uint32_t limit;
		const char *name;
	} names[] = {
		{SP_LIMIT_MEMORY, "memory"},
		{SP_LIMIT_PIDS, "pids"},
		{SP_LIMIT_CPU, "cpu"},
	};

	sp_json_open(out, "limits_degraded", '[');
	for (size_t i = 0; i < SP_ARRAY_SIZE(names); i++)
		if (limits & names[i].limit)
			sp_json_text(out, NULL, names[i].name);
	sp_json_close(out, ']');
}

/* Another host's: what more there is to know is asked at its endpoint. */
static void write_remote(struct sp_json_out *out, const struct sp_sandbox_info *info)
{
	const struct sp_remote_sandbox *remote = info->remote;

	sp_assert(remote);
	sp_json_open(out, NULL, '{');
	sp_json_text(out, "id", remote->id);
	sp_json_text(out, "pool", info->pool);
	sp_json_text(out, "state", sp_sandbox_state_name(SP_SANDBOX_LEASED));
	sp_json_text(out, "lease", remote->lease_id);
	if (info->secret)
		sp_json_text(out, "token", info->secret);
	sp_json_text(out, "host", remote->host);
	sp_json_text(out, "endpoint", remote->endpoint);
	sp_json_integer(out, "remaining_ms", info->remaining_ms);
	sp_json_boolean(out, "claimed", false);
	sp_json_close(out, '}');
}

/* key NULL: as an element or alone. */
static void write_sandbox(struct sp_json_out *out, const struct sp_sandbox_info *info,
			  const char *endpoint, int64_t wall_ms)
{
	const struct sp_sandbox *sandbox = info->sandbox;

	sp_assert(sandbox);
	sp_json_open(out, NULL, '{');
	sp_json_text(out, "id", sandbox->id);
	sp_json_text(out, "pool", info->pool);
	sp_json_text(out, "state", sp_sandbox_state_name(sandbox->state));
	sp_json_text(out, "lease", sandbox->lease_id[0] ? sandbox->lease_id : NULL);
	if (info->secret)
		sp_json_text(out, "token", info->secret);
	if (info->host)
		sp_json_text(out, "host", info->host);
	sp_json_text(out, "endpoint", endpoint);
	sp_json_time(out, "created_at", sandbox->created_ms, info->now_ms, wall_ms);
	sp_json_time(out, "expires_at", sandbox->expires_ms, info->now_ms, wall_ms);
	sp_json_integer(out, "remaining_ms", info->remaining_ms);
	sp_json_boolean(out, "claimed", sandbox->claimed);
	sp_json_unsigned(out, "running_execs", info->running_execs);
	sp_json_unsigned(out, "execs_total", info->execs_total);
	write_degraded(out, info->limits_degraded);
	if (sandbox->end_reason != SP_END_NONE)
		sp_json_text(out, "end_reason", sp_end_reason_name(sandbox->end_reason));
	sp_json_close(out, '}');
}

static void reply_sandbox(struct sp_request *request, const struct sp_sandbox_info *info)
{
	struct sp_json_out out;
	struct sp_buf body;

	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&out, &body);
	if (info->sandbox)
		write_sandbox(&out, info, request->connection->listener->url, sp_clock_wall_ms());
	else
		write_remote(&out, info);
	sp_reply_written(request, &out);
}

/* ---- acquire ---- */

static void acquire_cancel(struct sp_request *request)
{
	sp_service_acquire_cancel(request->operation);
}

static void on_acquired(void *arg, const struct sp_sandbox_info *info, const struct sp_err *err)
{
	struct sp_request *request = arg;

	if (err)
		sp_reply_error(request, err);
	else
		reply_sandbox(request, info);
}

void sp_handle_acquire(struct sp_request *request)
{
	struct sp_acquire_body body;
	struct sp_service_op *op = NULL;
	struct sp_err err = {0};

	if (sp_acquire_body_parse(&body, request->name, sp_buf_text(&request->body),
				  request->body.len, &err) < 0) {
		sp_reply_error(request, &err);
		return;
	}
	if (sp_service_acquire(request->api->service, &request->caller, &body.acquire, on_acquired,
			       request, &op, &err) < 0)
		sp_reply_error(request, &err);
	else if (sp_request_suspend(request, acquire_cancel, op) < 0)
		sp_service_acquire_cancel(op);
	sp_acquire_body_done(&body);
}

/* ---- one sandbox ---- */

void sp_handle_sandbox_get(struct sp_request *request)
{
	struct sp_sandbox_info info = {0};
	struct sp_err err = {0};

	if (sp_service_inspect(request->api->service, &request->caller, request->name, &info,
			       &err) < 0)
		sp_reply_error(request, &err);
	else
		reply_sandbox(request, &info);
}

void sp_handle_sandbox_renew(struct sp_request *request)
{
	struct sp_sandbox_info info = {0};
	struct sp_err err = {0};
	int64_t ttl_ms = 0;
	const struct sp_member members[] = {
		{"ttl", SP_MEMBER_DURATION, &ttl_ms, 1, SP_BODY_DURATION_MAX_MS},
	};
	json_t *root;
	int status = sp_body_parse(sp_buf_text(&request->body), request->body.len, &root, &err);

	if (status == 0) {
		status = sp_body_read(root, "", members, SP_ARRAY_SIZE(members), &err);
		json_decref(root);
	}
	if (status == 0 && ttl_ms == 0)
		status = sp_err_code(&err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				     "member 'ttl' is missing");
	if (status == 0)
		status = sp_service_renew(request->api->service, &request->caller, request->name,
					  ttl_ms, &info, &err);
	if (status < 0)
		sp_reply_error(request, &err);
	else
		reply_sandbox(request, &info);
}

/* Everything that it could say is optional, so it may say nothing. */
void sp_handle_sandbox_claim(struct sp_request *request)
{
	struct sp_sandbox_info info = {0};
	struct sp_err err = {0};
	int64_t ttl_ms = 0;
	const struct sp_member members[] = {
		{"ttl", SP_MEMBER_DURATION, &ttl_ms, 1, SP_BODY_DURATION_MAX_MS},
	};
	json_t *root = NULL;
	int status = 0;

	if (request->body.len > 0)
		status = sp_body_parse(sp_buf_text(&request->body), request->body.len, &root, &err);
	if (root) {
		status = sp_body_read(root, "", members, SP_ARRAY_SIZE(members), &err);
		json_decref(root);
	}
	if (status == 0)
		status = sp_service_claim(request->api->service, &request->caller, request->name,
					  ttl_ms, &info, &err);
	if (status < 0)
		sp_reply_error(request, &err);
	else
		reply_sandbox(request, &info);
}

void sp_handle_sandbox_release(struct sp_request *request)
{
	struct sp_err err = {0};

	if (sp_body_expect_empty(sp_buf_text(&request->body), request->body.len, &err) < 0 ||
	    sp_service_release(request->api->service, &request->caller, request->name, &err) < 0)
		sp_reply_error(request, &err);
	else
		sp_reply_empty(request);
}

/* ---- the list ---- */

struct listing {
	struct sp_json_out out;
	const char *pool; /* NULL: all */
	const char *state;
	const char *endpoint;
	int64_t wall_ms;
	struct sp_err err; /* of the query */
};

static int visit_sandbox(void *arg, const struct sp_sandbox_info *info)
{
	struct listing *listing = arg;

	if (listing->state &&
	    strcmp(listing->state, sp_sandbox_state_name(info->sandbox->state)) != 0)
		return 0;
	write_sandbox(&listing->out, info, listing->endpoint, listing->wall_ms);
	return listing->out.status;
}

static bool is_state(const char *text)
{
	for (unsigned int i = 0; i < SP_SANDBOX_STATE_COUNT; i++)
		if (strcmp(text, sp_sandbox_state_name((enum sp_sandbox_state)i)) == 0)
			return true;
	return false;
}

static enum MHD_Result visit_query(void *cls, enum MHD_ValueKind kind, const char *key,
				   const char *value)
{
	struct listing *listing = cls;
	int status = 0;

	SP_UNUSED(kind);
	if (strcmp(key, "state") == 0 && value && is_state(value))
		listing->state = value;
	else
		status = sp_err_code(&listing->err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				     "query parameter '%.64s' is unknown or has a bad value", key);
	return status < 0 ? MHD_NO : MHD_YES;
}

void sp_handle_sandbox_list(struct sp_request *request)
{
	struct listing listing = {.pool = request->name[0] ? request->name : NULL,
				  .endpoint = request->connection->listener->url,
				  .wall_ms = sp_clock_wall_ms()};
	struct sp_buf body;

	(void)MHD_get_connection_values(request->mhd, MHD_GET_ARGUMENT_KIND, visit_query, &listing);
	if (listing.err.status < 0) {
		sp_reply_error(request, &listing.err);
		return;
	}
	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&listing.out, &body);
	sp_json_open(&listing.out, NULL, '{');
	sp_json_open(&listing.out, "sandboxes", '[');
	if (sp_service_each_sandbox(request->api->service, &request->caller, listing.pool,
				    visit_sandbox, &listing, &listing.err) < 0 &&
	    listing.out.status == 0) {
		sp_buf_done(&body);
		sp_reply_error(request, &listing.err);
		return;
	}
	sp_json_close(&listing.out, ']');
	sp_json_close(&listing.out, '}');
	sp_reply_written(request, &listing.out);
}

/* ---- exec and run ---- */

void sp_handle_exec(struct sp_request *request)
{
	if (sp_request_wants_stream(request))
		sp_exec_stream_open(request, false);
	else
		sp_exec_plain_start(request, false);
}

void sp_handle_run(struct sp_request *request)
{
	if (sp_request_wants_stream(request))
		sp_exec_stream_open(request, true);
	else
		sp_exec_plain_start(request, true);
}
