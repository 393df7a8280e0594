/*
 * /v1/pools: look at pools, change their sizes, stop and start them.
 */
#include "supervisor/api/api_private.h"

#include "supervisor/api/json_body.h"

#include <errno.h>

static void write_limits(struct sp_json_out *out, const struct sp_config_pool *config)
{
	sp_json_open(out, "limits", '{');
	sp_json_unsigned(out, "memory_bytes", config->memory_bytes);
	sp_json_unsigned(out, "pids", config->pids);
	sp_json_thousandths(out, "cpu", (int64_t)(config->cpu * 1000 + 0.5));
	sp_json_unsigned(out, "open_files", config->open_files);
	sp_json_unsigned(out, "tmp_bytes", config->tmp_bytes);
	sp_json_unsigned(out, "output_bytes", config->output_bytes);
	sp_json_close(out, '}');
}

static void write_policy(struct sp_json_out *out, const struct sp_pool_config *policy)
{
	sp_json_integer(out, "idle_timeout_ms", policy->idle_timeout_ms);
	sp_json_integer(out, "acquire_min_remaining_ttl_ms", policy->acquire_min_remaining_ttl_ms);
	sp_json_integer(out, "max_lease_ms", policy->max_lease_ms);
	sp_json_integer(out, "claim_timeout_ms", policy->claim_timeout_ms);
}

static void write_health(struct sp_json_out *out, const struct sp_pool_snapshot *snapshot)
{
	sp_json_unsigned(out, "failure_count", snapshot->failure_count);
	sp_json_text(out, "last_error", snapshot->last_error[0] ? snapshot->last_error : NULL);
	sp_json_boolean(out, "backoff_active", snapshot->backoff_active);
	sp_json_unsigned(out, "created_total", snapshot->created_total);
	sp_json_unsigned(out, "create_failures_total", snapshot->create_failures_total);
	sp_json_open(out, "ends", '{');
	for (unsigned int i = SP_END_NONE + 1; i < SP_END_REASON_COUNT; i++)
		if (snapshot->ends_total[i])
			sp_json_unsigned(out, sp_end_reason_name((enum sp_end_reason)i),
					 snapshot->ends_total[i]);
	sp_json_close(out, '}');
}

static void write_pool(struct sp_json_out *out, const struct sp_pool_info *info)
{
	const struct sp_config_pool *config = info->config;
	const struct sp_pool_snapshot *snapshot = &info->snapshot;

	sp_json_open(out, NULL, '{');
	sp_json_text(out, "name", config->policy.name);
	sp_json_text(out, "state", sp_pool_lifecycle_name(snapshot->lifecycle));
	sp_json_text(out, "health", snapshot->degraded ? "degraded" : "healthy");
	sp_json_unsigned(out, "max_idle", snapshot->max_idle);
	sp_json_unsigned(out, "max_total", snapshot->max_total);
	sp_json_unsigned(out, "share", snapshot->share);
	sp_json_unsigned(out, "idle", snapshot->idle);
	sp_json_unsigned(out, "creating", snapshot->creating);
	sp_json_unsigned(out, "leased", snapshot->leased);
	sp_json_unsigned(out, "killing", snapshot->killing);
	sp_json_unsigned(out, "waiters", snapshot->waiters);
	sp_json_unsigned(out, "hosts", info->hosts);
	sp_json_boolean(out, "spec_mismatch", info->spec_mismatch);
	sp_json_text(out, "backend", config->direct ? "direct" : "sandbox");
	sp_json_text(out, "root", config->root);
	sp_json_text(out, "network", config->network_host ? "host" : "none");
	write_limits(out, config);
	write_policy(out, &config->policy);
	write_health(out, snapshot);
	sp_json_close(out, '}');
}

static void reply_pool(struct sp_request *request)
{
	struct sp_pool_info info;
	struct sp_err err = {0};
	struct sp_json_out out;
	struct sp_buf body;

	if (sp_service_pool(request->api->service, request->name, &info, &err) < 0) {
		sp_reply_error(request, &err);
		return;
	}
	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&out, &body);
	write_pool(&out, &info);
	sp_reply_written(request, &out);
}

void sp_handle_pool_get(struct sp_request *request)
{
	reply_pool(request);
}

static int visit_pool(void *arg, const struct sp_pool_info *info)
{
	struct sp_json_out *out = arg;

	write_pool(out, info);
	return out->status;
}

void sp_handle_pool_list(struct sp_request *request)
{
	struct sp_json_out out;
	struct sp_buf body;

	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&out, &body);
	sp_json_open(&out, NULL, '{');
	sp_json_open(&out, "pools", '[');
	(void)sp_service_each_pool(request->api->service, visit_pool, &out);
	sp_json_close(&out, ']');
	sp_json_close(&out, '}');
	sp_reply_written(request, &out);
}

/* The operator's calls: read the members, do it, show the pool. */
static void change_pool(struct sp_request *request, const struct sp_member *members, size_t count,
			int (*change)(struct sp_request *request, void *values, struct sp_err *err),
			void *values)
{
	struct sp_err err = {0};
	json_t *root;
	int status = sp_body_parse(sp_buf_text(&request->body), request->body.len, &root, &err);

	if (status == 0) {
		status = sp_body_read(root, "", members, count, &err);
		json_decref(root);
	}
	if (status == 0)
		status = change(request, values, &err);
	if (status < 0)
		sp_reply_error(request, &err);
	else
		reply_pool(request);
}

struct sizes {
	int64_t max_idle;
	int64_t max_total;
};

static int resize(struct sp_request *request, void *values, struct sp_err *err)
{
	const struct sizes *sizes = values;

	if (sizes->max_idle < 0 && sizes->max_total < 0)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "give one of the members 'max_idle' and 'max_total'");
	return sp_service_pool_resize(request->api->service, &request->caller, request->name,
				      sizes->max_idle, sizes->max_total, err);
}

void sp_handle_pool_resize(struct sp_request *request)
{
	struct sizes sizes = {-1, -1};
	const struct sp_member members[] = {
		{"max_idle", SP_MEMBER_INTEGER, &sizes.max_idle, 0, SP_POOL_MAX_IDLE_LIMIT},
		{"max_total", SP_MEMBER_INTEGER, &sizes.max_total, 0, UINT32_MAX},
	};

	change_pool(request, members, SP_ARRAY_SIZE(members), resize, &sizes);
}

static int drain(struct sp_request *request, void *values, struct sp_err *err)
{
	SP_UNUSED(values);
	return sp_service_pool_drain(request->api->service, &request->caller, request->name, err);
}

void sp_handle_pool_drain(struct sp_request *request)
{
	change_pool(request, NULL, 0, drain, NULL);
}

static int resume(struct sp_request *request, void *values, struct sp_err *err)
{
	SP_UNUSED(values);
	return sp_service_pool_resume(request->api->service, &request->caller, request->name, err);
}

void sp_handle_pool_resume(struct sp_request *request)
{
	change_pool(request, NULL, 0, resume, NULL);
}
