/*
 * The daemon's metrics (DESIGN section 6.4): counters and histograms are fed where things happen,
 * gauges are taken from the pools when somebody looks. Labels are pools, states, reasons and
 * stages, never anything that a client chose.
 */
#include "supervisor/daemon/daemon_private.h"

#include "pool/base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define FAILURE_LOG_MS (5 * SP_MS_PER_S)

#define STAGE_MAX 32

static const double age_buckets[] = {1, 5, 10, 30, 60, 300, 600, 1800, 3600, 21600, 86400};

struct family {
	struct sp_metric **metric;
	enum sp_metric_type type;
	const char *name;
	const char *help;
	const char *labels[SP_METRIC_LABELS_MAX];
	size_t label_count;
	const double *buckets;
	size_t bucket_count;
};

static void collect(void *arg);

static void stage_label(const char *stage, char *label)
{
	size_t used = 0;

	for (; stage[used] != '\0' && used < STAGE_MAX - 1; used++) {
		char byte = stage[used];
		bool plain =
			(byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9') || byte == '_';

		label[used] = plain ? byte : '_';
	}
	label[used] = '\0';
}

static const char *pool_name(const struct daemon_pool *pool)
{
	return pool->config->policy.name;
}

static void on_ended(void *arg, const struct sp_sandbox *sandbox, enum sp_end_reason reason)
{
	struct daemon_pool *pool = arg;
	const char *labels[] = {pool_name(pool), sp_end_reason_name(reason)};

	sp_metric_add(pool->service->metrics.ends, labels, 1);
	sp_log(SP_LOG_DEBUG, "sandbox ends", "pool=%s sandbox=%s reason=%s", labels[0], sandbox->id,
	       labels[1]);
}

static void on_acquired(void *arg, enum sp_acquire_policy policy, const char *result,
			int64_t waited_ms, int64_t remaining_ms, int64_t idle_age_ms)
{
	struct daemon_pool *pool = arg;
	struct daemon_metrics *metrics = &pool->service->metrics;
	const char *labels[] = {pool_name(pool), sp_acquire_policy_name(policy), result};

	SP_UNUSED(waited_ms);
	sp_metric_add(metrics->acquire_total, labels, 1);
	if (remaining_ms > 0)
		sp_metric_observe(metrics->handout_seconds, labels,
				  (double)remaining_ms / (double)SP_MS_PER_S);
	if (remaining_ms > 0 && idle_age_ms >= 0)
		sp_metric_observe(metrics->idle_age_seconds, labels,
				  (double)idle_age_ms / (double)SP_MS_PER_S);
}

bool metrics_failure_told(const struct daemon_pool *pool)
{
	return pool->failure_logged_ms != 0 &&
	       sp_clock_boot_ms() - pool->failure_logged_ms < FAILURE_LOG_MS;
}

/* The reason of a storm of failures is told at once and then at most every FAILURE_LOG_MS. */
static void on_create_failed(void *arg, const char *stage, const struct sp_err *err)
{
	struct daemon_pool *pool = arg;
	char label[STAGE_MAX];
	const char *labels[] = {pool_name(pool), label};
	int64_t now_ms = sp_clock_boot_ms();
	char quoted[SP_ERR_MESSAGE_MAX];

	stage_label(stage, label);
	sp_metric_add(pool->service->metrics.create_failures, labels, 1);
	if (metrics_failure_told(pool)) {
		pool->failures_unlogged++;
		return;
	}
	sp_log(SP_LOG_WARN, "sandbox not created", "pool=%s stage=%s repeated=%u error=\"%s\"",
	       labels[0], label, pool->failures_unlogged,
	       sp_log_quote(err ? err->message : "", quoted, sizeof(quoted)));
	pool->failure_logged_ms = now_ms;
	pool->failures_unlogged = 0;
}

static void on_gone(void *arg, const struct sp_sandbox *sandbox, int64_t kill_duration_ms)
{
	struct daemon_pool *pool = arg;
	const char *labels[] = {pool_name(pool)};

	SP_UNUSED(sandbox);
	sp_metric_observe(pool->service->metrics.kill_seconds, labels,
			  (double)kill_duration_ms / (double)SP_MS_PER_S);
}

static void on_health_changed(void *arg, bool degraded, const char *last_error)
{
	struct daemon_pool *pool = arg;
	char quoted[SP_ERR_MESSAGE_MAX];

	if (degraded)
		sp_log(SP_LOG_ERROR, "pool degraded", "pool=%s error=\"%s\"", pool_name(pool),
		       sp_log_quote(last_error, quoted, sizeof(quoted)));
	else
		sp_log(SP_LOG_INFO, "pool healthy", "pool=%s", pool_name(pool));
}

static void on_end_moved(void *arg, const struct sp_sandbox *sandbox)
{
	SP_UNUSED(arg);
	if (sandbox->backend_data)
		sandbox_tell_deadline(sandbox->backend_data);
}

const struct sp_pool_events daemon_pool_events = {
	.ended = on_ended,
	.acquired = on_acquired,
	.create_failed = on_create_failed,
	.gone = on_gone,
	.health_changed = on_health_changed,
	.end_moved = on_end_moved,
};

void metrics_create_stage(struct daemon_pool *pool, const char *stage, double seconds)
{
	const char *labels[] = {pool_name(pool), stage};

	sp_metric_observe(pool->service->metrics.create_seconds, labels, seconds);
}

void metrics_acquire_seconds(struct sp_service *service, const char *pool, double seconds)
{
	const char *labels[] = {pool};

	sp_metric_observe(service->metrics.acquire_seconds, labels, seconds);
}

void metrics_store_command(struct sp_service *service, const char *name, double seconds,
			   bool failed)
{
	const char *labels[] = {name, failed ? "failed" : "ok"};

	sp_metric_observe(service->metrics.store_command, labels, seconds);
}

void metrics_exec(struct sp_service *service, const char *pool, const struct sp_exec_result *result)
{
	const char *labels[] = {pool, sp_exec_reason_name(result->reason)};

	sp_metric_observe(service->metrics.exec_seconds, labels,
			  (double)result->wall_us / 1000000.0);
}

void metrics_isolated_run(struct sp_service *service, const char *pool,
			  const struct sp_exec_result *result)
{
	bool success = result->reason == SP_EXEC_EXITED && result->exit_code == 0;
	const char *labels[] = {pool, success ? "success" : "error"};

	sp_metric_observe(service->metrics.isolated_run_seconds, labels,
			  (double)result->wall_us / 1000000.0);
}

void metrics_file(struct sp_service *service, const char *pool, const char *operation,
		  const char *result, double seconds)
{
	const char *labels[] = {pool, operation, result};

	sp_metric_observe(service->metrics.file_seconds, labels, seconds);
}

static void collect_pool(struct daemon_pool *pool)
{
	struct daemon_metrics *metrics = &pool->service->metrics;
	struct sp_pool_snapshot snapshot;
	const char *name = pool_name(pool);

	sp_pool_snapshot(pool->policy, sp_clock_boot_ms(), &snapshot);
	{
		const struct {
			const char *state;
			uint32_t count;
		} states[] = {{"creating", snapshot.creating},
			      {"idle", snapshot.idle},
			      {"leased", snapshot.leased},
			      {"killing", snapshot.killing}};

		for (size_t i = 0; i < SP_ARRAY_SIZE(states); i++) {
			const char *labels[] = {name, states[i].state};

			sp_metric_set(metrics->sandboxes, labels, states[i].count);
		}
	}
	sp_metric_set(metrics->waiters, &name, snapshot.waiters);
	sp_metric_set(metrics->pool_degraded, &name, snapshot.degraded ? 1 : 0);
	sp_metric_set(metrics->limits_degraded, &name, 0);
	sp_metric_set(metrics->running_execs, &name, 0);
	sp_metric_set(metrics->isolated_sessions, &name, 0);
	sp_metric_set(metrics->upper_bytes, &name, 0);
	sp_metric_set(metrics->hosts, &name, daemon_pool_hosts(pool));
	sp_metric_set(metrics->spec_mismatch, &name, pool->spec_mismatch ? 1 : 0);
}

static void collect(void *arg)
{
	struct sp_service *service = arg;
	struct daemon_metrics *metrics = &service->metrics;
	const char *build[] = {SP_VERSION};

	for (size_t i = 0; i < service->pool_count; i++)
		collect_pool(service->pools[i]);
	SP_LIST_FOREACH (at, &service->links) {
		struct sandbox_link *link = SP_CONTAINER_OF(at, struct sandbox_link, link);
		const char *name = pool_name(link->pool);

		if (link->degraded != 0)
			sp_metric_add(metrics->limits_degraded, &name, 1);
		if (link->running_execs > 0)
			sp_metric_add(metrics->running_execs, &name, link->running_execs);
		if (link->isolated_count > 0)
			sp_metric_add(metrics->isolated_sessions, &name, link->isolated_count);
		if (upper_usage_any(link))
			sp_metric_add(metrics->upper_bytes, &name, (double)link->upper_bytes);
	}
	sp_metric_set(metrics->store_up, NULL,
		      service->store && service->store->ops->up(service->store) ? 1 : 0);
	sp_metric_set(metrics->build_info, build, 1);
}

int daemon_metrics_init(struct sp_service *service, struct sp_err *err)
{
	struct daemon_metrics *m = &service->metrics;
	const double *seconds = sp_metric_duration_buckets;
	size_t count = sp_metric_duration_bucket_count;
	size_t ages = SP_ARRAY_SIZE(age_buckets);
	const struct family families[] = {
		{&m->sandboxes,
		 SP_METRIC_GAUGE,
		 "sandpool_sandboxes",
		 "Sandboxes by state.",
		 {"pool", "state"},
		 2,
		 NULL,
		 0},
		{&m->waiters,
		 SP_METRIC_GAUGE,
		 "sandpool_waiters",
		 "Acquires that wait for a sandbox.",
		 {"pool"},
		 1,
		 NULL,
		 0},
		{&m->running_execs,
		 SP_METRIC_GAUGE,
		 "sandpool_running_execs",
		 "Execs that run.",
		 {"pool"},
		 1,
		 NULL,
		 0},
		{&m->pool_degraded,
		 SP_METRIC_GAUGE,
		 "sandpool_pool_degraded",
		 "1 while creation keeps failing.",
		 {"pool"},
		 1,
		 NULL,
		 0},
		{&m->limits_degraded,
		 SP_METRIC_GAUGE,
		 "sandpool_limits_degraded",
		 "Sandboxes that run without one of their limits.",
		 {"pool"},
		 1,
		 NULL,
		 0},
		{&m->store_up,
		 SP_METRIC_GAUGE,
		 "sandpool_store_up",
		 "1 while the store can be reached.",
		 {NULL},
		 0,
		 NULL,
		 0},
		{&m->store_command,
		 SP_METRIC_HISTOGRAM,
		 "sandpool_store_command_duration_seconds",
		 "From a question to the store to its answer.",
		 {"command", "result"},
		 2,
		 seconds,
		 count},
		{&m->hosts,
		 SP_METRIC_GAUGE,
		 "sandpool_hosts",
		 "Hosts that serve the pool, this one included.",
		 {"pool"},
		 1,
		 NULL,
		 0},
		{&m->spec_mismatch,
		 SP_METRIC_GAUGE,
		 "sandpool_spec_mismatch",
		 "1 while other hosts make the pool from another spec.",
		 {"pool"},
		 1,
		 NULL,
		 0},
		{&m->build_info,
		 SP_METRIC_GAUGE,
		 "sandpool_build_info",
		 "Always 1.",
		 {"version"},
		 1,
		 NULL,
		 0},
		{&m->acquire_total,
		 SP_METRIC_COUNTER,
		 "sandpool_acquire_total",
		 "Acquires by outcome.",
		 {"pool", "policy", "result"},
		 3,
		 NULL,
		 0},
		{&m->acquire_seconds,
		 SP_METRIC_HISTOGRAM,
		 "sandpool_acquire_duration_seconds",
		 "From the request to the answer of an acquire.",
		 {"pool"},
		 1,
		 seconds,
		 count},
		{&m->create_seconds,
		 SP_METRIC_HISTOGRAM,
		 "sandpool_create_duration_seconds",
		 "Creation by stage: launcher, init, warmup, readiness, and total.",
		 {"pool", "stage"},
		 2,
		 seconds,
		 count},
		{&m->create_failures,
		 SP_METRIC_COUNTER,
		 "sandpool_create_failures_total",
		 "Failed creations by stage.",
		 {"pool", "stage"},
		 2,
		 NULL,
		 0},
		{&m->ends,
		 SP_METRIC_COUNTER,
		 "sandpool_ends_total",
		 "Ends by reason.",
		 {"pool", "reason"},
		 2,
		 NULL,
		 0},
		{&m->kill_seconds,
		 SP_METRIC_HISTOGRAM,
		 "sandpool_kill_duration_seconds",
		 "From the kill until nothing is left.",
		 {"pool"},
		 1,
		 seconds,
		 count},
		{&m->exec_seconds,
		 SP_METRIC_HISTOGRAM,
		 "sandpool_exec_duration_seconds",
		 "Wall time of execs by reason of their end.",
		 {"pool", "reason"},
		 2,
		 seconds,
		 count},
		{&m->isolated_sessions,
		 SP_METRIC_GAUGE,
		 "sandpool_isolated_sessions",
		 "Isolated sessions inside of sandboxes.",
		 {"pool"},
		 1,
		 NULL,
		 0},
		{&m->isolated_run_seconds,
		 SP_METRIC_HISTOGRAM,
		 "sandpool_isolated_run_duration_seconds",
		 "Wall time of runs in isolated sessions.",
		 {"pool", "result"},
		 2,
		 seconds,
		 count},
		{&m->upper_bytes,
		 SP_METRIC_GAUGE,
		 "sandpool_upper_bytes",
		 "Memory of what was written to overlays, and of what isolated sessions keep to "
		 "themselves.",
		 {"pool"},
		 1,
		 NULL,
		 0},
		{&m->file_seconds,
		 SP_METRIC_HISTOGRAM,
		 "sandpool_file_operation_duration_seconds",
		 "Operations on files and ports inside sandboxes, by outcome.",
		 {"pool", "operation", "result"},
		 3,
		 seconds,
		 count},
		{&m->handout_seconds,
		 SP_METRIC_HISTOGRAM,
		 "sandpool_handout_remaining_ttl_seconds",
		 "Life that a sandbox had left when it was handed out.",
		 {"pool"},
		 1,
		 age_buckets,
		 ages},
		{&m->idle_age_seconds,
		 SP_METRIC_HISTOGRAM,
		 "sandpool_idle_age_seconds",
		 "How long a sandbox was idle when it was handed out.",
		 {"pool"},
		 1,
		 age_buckets,
		 ages},
	};
	int status = sp_metrics_new(&m->all);

	if (status < 0)
		return sp_err_set(err, status, "metrics");
	for (size_t i = 0; i < SP_ARRAY_SIZE(families); i++) {
		const struct family *family = &families[i];

		*family->metric = sp_metrics_register(
			m->all, family->type, family->name, family->help, family->labels,
			family->label_count, family->buckets, family->bucket_count);
		if (!*family->metric)
			return sp_err_set(err, -ENOMEM, "metric '%s'", family->name);
	}
	sp_metrics_on_collect(m->all, collect, service);
	return 0;
}
