/*
 * What clients may ask of sandboxes and pools, and who may ask it.
 *
 * A sandbox is its lease's: whoever shows the secret of that lease may use it, and an operator.
 * Everybody else hears the same as for an id that does not exist.
 */
#include "supervisor/daemon/daemon_private.h"

#include "pool/base/clock.h"

#include <errno.h>
#include <string.h>

static bool may_use(const struct sp_caller *caller, const char *lease_id)
{
	return caller->operator_rights || secret_opens(caller->secret, lease_id);
}

static int not_found(const char *id, struct sp_err *err)
{
	/* The id is shown only when it has the form of one. */
	if (sp_sandbox_id_valid(id))
		(void)sp_err_code(err, SP_CODE_NOT_FOUND, -ENOENT, "no sandbox '%s', or not yours",
				  id);
	else
		(void)sp_err_code(err, SP_CODE_NOT_FOUND, -ENOENT, "no such sandbox, or not yours");
	return -ENOENT;
}

static int ended(const struct tomb *tomb, struct sp_err *err)
{
	if (tomb->reason == SP_END_DIED)
		(void)sp_err_code(err, SP_CODE_SANDBOX_DEAD, -ESRCH, "sandbox '%s' has died",
				  tomb->id);
	else
		(void)sp_err_code(err, SP_CODE_LEASE_ENDED, -ESRCH,
				  "the lease of sandbox '%s' has ended: %s", tomb->id,
				  sp_end_reason_name(tomb->reason));
	return -ESRCH;
}

/* Somebody who was sent here by the store comes before the store's own word: the first one who
 * shows a secret for an idle sandbox has it, for ever. Until then the id itself is the capability:
 * 100 random bits that only the store's users and operators see. Nothing foreign has run in it. */
static int bind_first(struct daemon_pool *pool, struct sp_sandbox *sandbox,
		      const struct sp_caller *caller, int64_t ttl_ms, struct sp_err *err)
{
	char lease_id[SP_LEASE_ID_LEN + 1];
	int status;

	if (!pool->service->cluster || pool->service->stopping || !caller->secret ||
	    (sandbox->state != SP_SANDBOX_IDLE &&
	     (sandbox->state != SP_SANDBOX_LEASED || ttl_ms == 0)) ||
	    secret_lease_id(caller->secret, lease_id) < 0)
		return 0;
	if (sandbox->state == SP_SANDBOX_LEASED && strcmp(lease_id, sandbox->lease_id) != 0)
		return 0;
	status = sp_pool_bind(pool->policy, sandbox, lease_id, ttl_ms, sp_clock_boot_ms(), err);
	daemon_pool_touch(pool);
	if (status == 0 && sandbox->backend_data)
		spares_want_later(sandbox->backend_data);
	return status;
}

int service_find(struct sp_service *service, const struct sp_caller *caller, const char *id,
		 struct sandbox_link **ret_link, struct sp_err *err)
{
	return service_find_for(service, caller, id, 0, ret_link, err);
}

int service_find_for(struct sp_service *service, const struct sp_caller *caller, const char *id,
		     int64_t ttl_ms, struct sandbox_link **ret_link, struct sp_err *err)
{
	const struct tomb *tomb;

	for (size_t i = 0; i < service->pool_count; i++) {
		struct sp_sandbox *sandbox = sp_pool_find(service->pools[i]->policy, id);
		int status;

		if (!sandbox)
			continue;
		status = bind_first(service->pools[i], sandbox, caller, ttl_ms, err);
		if (status < 0)
			return status;
		if (!sandbox->backend_data || !may_use(caller, sandbox->lease_id))
			return not_found(id, err);
		*ret_link = sandbox->backend_data;
		return 0;
	}
	tomb = sp_sandbox_id_valid(id) ? tomb_find(service, id) : NULL;
	if (tomb && may_use(caller, tomb->lease_id))
		return ended(tomb, err);
	return not_found(id, err);
}

void service_info(struct sandbox_link *link, int64_t now_ms, struct sp_sandbox_info *ret)
{
	const struct sp_sandbox *sandbox = link->sandbox;

	*ret = (struct sp_sandbox_info){
		.sandbox = sandbox,
		.host = link->service->cluster ? link->service->host : NULL,
		.pool = link->pool->config->policy.name,
		.now_ms = now_ms,
		.remaining_ms = SP_MAX(sandbox->expires_ms - now_ms, INT64_C(0)),
		.running_execs = link->running_execs,
		.execs_total = link->execs_total,
		.limits_degraded = link->degraded,
		.host_pid = link->host_pid,
	};
}

static int need_operator(const struct sp_caller *caller, const char *what, struct sp_err *err)
{
	if (caller->operator_rights)
		return 0;
	return sp_err_code(err, SP_CODE_FORBIDDEN, -EPERM, "%s is for operators", what);
}

int sp_service_renew(struct sp_service *service, const struct sp_caller *caller, const char *id,
		     int64_t ttl_ms, struct sp_sandbox_info *ret_info, struct sp_err *err)
{
	struct sandbox_link *link;
	int64_t expires_ms;
	int status = service_find(service, caller, id, &link, err);

	if (status != 0)
		return status;
	status = sp_pool_renew(link->pool->policy, link->sandbox, ttl_ms, sp_clock_boot_ms(),
			       &expires_ms, err);
	daemon_pool_touch(link->pool);
	if (status != 0)
		return status;
	sandbox_tell_deadline(link);
	service_info(link, sp_clock_boot_ms(), ret_info);
	return 0;
}

int sp_service_claim(struct sp_service *service, const struct sp_caller *caller, const char *id,
		     int64_t ttl_ms, struct sp_sandbox_info *ret_info, struct sp_err *err)
{
	struct sandbox_link *link;
	int status;

	if (!caller->secret)
		return sp_err_code(err, SP_CODE_UNAUTHORIZED, -EACCES,
				   "a claim needs the secret of the lease (X-Sandpool-Token)");
	status = service_find_for(service, caller, id, ttl_ms, &link, err);
	if (status == 0)
		status = sp_pool_claim(link->pool->policy, link->sandbox, sp_clock_boot_ms(), err);
	if (status != 0)
		return status;
	daemon_pool_touch(link->pool);
	sandbox_tell_deadline(link);
	service_info(link, sp_clock_boot_ms(), ret_info);
	return 0;
}

int sp_service_release(struct sp_service *service, const struct sp_caller *caller, const char *id,
		       struct sp_err *err)
{
	struct sandbox_link *link;
	struct sp_err refused = {0};
	int status = service_find(service, caller, id, &link, &refused);

	/* Released again, or after its end: what was wanted is so. */
	if (status < 0 &&
	    (refused.code == SP_CODE_LEASE_ENDED || refused.code == SP_CODE_SANDBOX_DEAD))
		return 0;
	if (status < 0) {
		if (err)
			*err = refused;
		return status;
	}
	sandbox_end(link,
		    link->sandbox->state == SP_SANDBOX_LEASED ? SP_END_RELEASED : SP_END_DISCARDED);
	return 0;
}

int sp_service_inspect(struct sp_service *service, const struct sp_caller *caller, const char *id,
		       struct sp_sandbox_info *ret_info, struct sp_err *err)
{
	struct sandbox_link *link;
	int status = service_find(service, caller, id, &link, err);

	if (status != 0)
		return status;
	if (caller->operator_rights)
		(void)sandbox_host_pid(link);
	service_info(link, sp_clock_boot_ms(), ret_info);
	return 0;
}

int sp_service_usage(struct sp_service *service, const struct sp_caller *caller, const char *id,
		     struct sp_sandbox_usage *ret_usage, struct sp_err *err)
{
	const struct sp_config_pool *pool;
	struct sandbox_link *link;
	int status = service_find(service, caller, id, &link, err);

	if (status != 0)
		return status;
	pool = link->pool->config;
	*ret_usage = (struct sp_sandbox_usage){
		.cpus = pool->cpu > 0 ? pool->cpu : (double)uv_available_parallelism(),
		.cpu_ns = cgroup_cpu_ns(&service->mounts, link->cgroup),
		.memory_bytes = cgroup_memory_bytes(&service->mounts, link->cgroup),
		.memory_limit = pool->memory_bytes > 0 ? pool->memory_bytes : uv_get_total_memory(),
	};
	return 0;
}

void sp_service_watch_ends(struct sp_service *service, sp_service_end_cb *cb, void *arg)
{
	service->on_end = cb;
	service->on_end_arg = arg;
}

struct each {
	int64_t now_ms;
	int (*visit)(void *arg, const struct sp_sandbox_info *info);
	void *arg;
};

static int visit_sandbox(void *arg, const struct sp_sandbox *sandbox)
{
	const struct each *each = arg;
	struct sp_sandbox_info info;

	if (!sandbox->backend_data)
		return 0;
	(void)sandbox_host_pid(sandbox->backend_data);
	service_info(sandbox->backend_data, each->now_ms, &info);
	return each->visit(each->arg, &info);
}

int sp_service_each_sandbox(struct sp_service *service, const struct sp_caller *caller,
			    const char *pool,
			    int (*visit)(void *arg, const struct sp_sandbox_info *info), void *arg,
			    struct sp_err *err)
{
	struct each each = {.now_ms = sp_clock_boot_ms(), .visit = visit, .arg = arg};
	struct daemon_pool *only = NULL;
	int status = need_operator(caller, "the list of sandboxes", err);

	if (status == 0 && pool)
		status = daemon_pool_get(service, pool, &only, err);
	for (size_t i = 0; status == 0 && i < service->pool_count; i++)
		if (!only || service->pools[i] == only)
			status = sp_pool_each(service->pools[i]->policy, visit_sandbox, &each);
	return status;
}

static void pool_info(struct daemon_pool *pool, struct sp_pool_info *ret)
{
	ret->config = pool->config;
	ret->spec_mismatch = pool->spec_mismatch;
	ret->hosts = daemon_pool_hosts(pool);
	sp_pool_snapshot(pool->policy, sp_clock_boot_ms(), &ret->snapshot);
}

int sp_service_pool(struct sp_service *service, const char *name, struct sp_pool_info *ret_info,
		    struct sp_err *err)
{
	struct daemon_pool *pool;
	int status = daemon_pool_get(service, name, &pool, err);

	if (status == 0)
		pool_info(pool, ret_info);
	return status;
}

int sp_service_each_pool(struct sp_service *service,
			 int (*visit)(void *arg, const struct sp_pool_info *info), void *arg)
{
	int status = 0;

	for (size_t i = 0; status == 0 && i < service->pool_count; i++) {
		struct sp_pool_info info;

		if (service->pools[i]->removed)
			continue;
		pool_info(service->pools[i], &info);
		status = visit(arg, &info);
	}
	return status;
}

static int operators_pool(struct sp_service *service, const struct sp_caller *caller,
			  const char *name, const char *what, struct daemon_pool **ret_pool,
			  struct sp_err *err)
{
	int status = need_operator(caller, what, err);

	if (status == 0)
		status = daemon_pool_get(service, name, ret_pool, err);
	if (status == 0 && service->stopping)
		status = sp_err_code(err, SP_CODE_UNAVAILABLE, -ESHUTDOWN,
				     "the daemon is shutting down");
	return status;
}

int sp_service_pool_resize(struct sp_service *service, const struct sp_caller *caller,
			   const char *name, int64_t max_idle, int64_t max_total,
			   struct sp_err *err)
{
	struct daemon_pool *pool;
	int status = operators_pool(service, caller, name, "resizing a pool", &pool, err);

	if (status != 0)
		return status;
	status = sp_pool_resize(pool->policy, max_idle, max_total, sp_clock_boot_ms(), err);
	daemon_pool_touch(pool);
	if (status == 0)
		sp_log(SP_LOG_INFO, "pool resized", "pool=%s max_idle=%lld max_total=%lld", name,
		       (long long)max_idle, (long long)max_total);
	return status;
}

int sp_service_pool_drain(struct sp_service *service, const struct sp_caller *caller,
			  const char *name, struct sp_err *err)
{
	struct daemon_pool *pool;
	int status = operators_pool(service, caller, name, "draining a pool", &pool, err);

	if (status != 0)
		return status;
	sp_pool_drain(pool->policy, sp_clock_boot_ms());
	daemon_pool_touch(pool);
	sp_log(SP_LOG_INFO, "pool drains", "pool=%s", name);
	return 0;
}

int sp_service_pool_resume(struct sp_service *service, const struct sp_caller *caller,
			   const char *name, struct sp_err *err)
{
	struct daemon_pool *pool;
	int status = operators_pool(service, caller, name, "resuming a pool", &pool, err);

	if (status != 0)
		return status;
	status = sp_pool_start(pool->policy, sp_clock_boot_ms(), err);
	daemon_pool_touch(pool);
	if (status == 0)
		sp_log(SP_LOG_INFO, "pool resumed", "pool=%s", name);
	return status;
}

struct sp_metrics *sp_service_metrics(struct sp_service *service)
{
	return service->metrics.all;
}

const struct sp_config *sp_service_config(const struct sp_service *service)
{
	return service->config->config;
}

/* Nothing is idle here: can the other hosts be asked, and is that all that is expected? */
static const char *cluster_not_ready(const struct daemon_pool *pool,
				     const struct sp_pool_snapshot *snapshot)
{
	const struct sp_store *store = pool->service->store;

	if (!store || !store->ops->up(store) || daemon_pool_hosts(pool) == 0)
		return "the store is away, and a pool has no idle sandbox here";
	if (pool->spec_mismatch)
		return "the store has another spec of a pool: raise its spec_revision";
	return snapshot->share > 0 ? "a pool has no idle sandbox" : NULL;
}

static const char *pool_not_ready(const struct daemon_pool *pool,
				  const struct sp_pool_snapshot *snapshot)
{
	uint32_t total = snapshot->creating + snapshot->idle + snapshot->leased + snapshot->killing;

	if (snapshot->lifecycle == SP_POOL_LIFE_NOT_STARTED)
		return "a pool has not been started";
	if (snapshot->lifecycle != SP_POOL_LIFE_RUNNING || snapshot->max_idle == 0)
		return NULL; /* as the operator wants it */
	if (snapshot->idle > snapshot->idle_expired)
		return NULL;
	if (snapshot->max_total > 0 && total >= snapshot->max_total)
		return NULL; /* full */
	if (snapshot->degraded)
		return "a pool cannot create sandboxes";
	return pool->service->cluster ? cluster_not_ready(pool, snapshot)
				      : "a pool has no idle sandbox";
}

bool sp_service_ready(const struct sp_service *service, const char **ret_reason)
{
	const char *reason = service->stopping ? "the daemon is shutting down" : NULL;

	for (size_t i = 0; !reason && i < service->pool_count; i++) {
		struct sp_pool_snapshot snapshot;

		if (service->pools[i]->removed)
			continue;
		sp_pool_snapshot(service->pools[i]->policy, sp_clock_boot_ms(), &snapshot);
		reason = pool_not_ready(service->pools[i], &snapshot);
	}
	if (ret_reason)
		*ret_reason = reason ? reason : "";
	return !reason;
}

int sp_service_reload(struct sp_service *service, const struct sp_caller *caller,
		      void (*cb)(void *arg, const struct sp_err *err), void *arg,
		      struct sp_err *err)
{
	int status = need_operator(caller, "a reload", err);

	return status < 0 ? status : reload_begin(service, cb, arg, err);
}
