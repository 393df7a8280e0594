/*
 * The configured pools: each is a policy (pool/), its place in the launcher's table, and one timer
 * that drives it. There are no timers per sandbox: the policy says when it wants to be woken.
 */
#include "supervisor/daemon/daemon_private.h"

#include "pool/base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define HOLD_MS        3  /* most short programs are through by then */
#define HOLD_SERVED_MS 10 /* as is what a client asks for next, if it does not think about it */
#define HOLD_MAX_MS    30

struct config_ref *config_ref_new(struct sp_config *config)
{
	struct config_ref *ref = calloc(1, sizeof(*ref));

	if (!ref) {
		sp_config_free(config);
		return NULL;
	}
	ref->config = config;
	ref->references = 1;
	return ref;
}

struct config_ref *config_ref_hold(struct config_ref *ref)
{
	ref->references++;
	return ref;
}

void config_ref_drop(struct config_ref *ref)
{
	if (!ref || --ref->references > 0)
		return;
	sp_config_free(ref->config);
	free(ref);
}

/* Nobody waits, and it could serve as many again as were taken. */
static bool has_plenty(const struct daemon_pool *pool, int64_t now_ms)
{
	struct sp_pool_snapshot snapshot;

	sp_pool_snapshot(pool->policy, now_ms, &snapshot);
	return snapshot.waiters == 0 && snapshot.idle - snapshot.idle_expired > snapshot.share / 2;
}

/* A creation costs several times what a short program does, and would on a host with few processors
 * be made at the expense of the very client that it replaces the sandbox of. */
static bool hold_back(struct daemon_pool *pool, int64_t now_ms)
{
	const struct sp_service *service = pool->service;
	int64_t until_ms = 0;

	if (pool->held_since_ms == 0)
		pool->held_since_ms = now_ms;
	if (service->runs > 0)
		until_ms = pool->held_since_ms + HOLD_MS;
	if (pool->served_ms > 0 && has_plenty(pool, now_ms))
		until_ms = SP_MAX(until_ms, SP_MIN(pool->served_ms + HOLD_SERVED_MS,
						   pool->held_since_ms + HOLD_MAX_MS));
	if (now_ms < until_ms) {
		sp_timer_set(&pool->service->timers, &pool->wakeup, until_ms);
		return true;
	}
	pool->held_since_ms = 0;
	return false;
}

static void look(struct daemon_pool *pool)
{
	int64_t now_ms = sp_clock_boot_ms();

	if (sp_pool_next_wakeup_ms(pool->policy) <= now_ms) {
		if (hold_back(pool, now_ms))
			return;
		sp_pool_tick(pool->policy, now_ms);
	}
	sp_timer_set(&pool->service->timers, &pool->wakeup, sp_pool_next_wakeup_ms(pool->policy));
}

static void on_wakeup(struct sp_timer *timer)
{
	struct daemon_pool *pool = SP_CONTAINER_OF(timer, struct daemon_pool, wakeup);

	look(pool);
	daemon_pool_touch(pool);
}

static void on_touched(struct sp_deferred *deferred)
{
	look(SP_CONTAINER_OF(deferred, struct daemon_pool, touched));
}

void daemon_pool_touch(struct daemon_pool *pool)
{
	/* Late: a refill is not to run beside the answer to who took the last one. */
	sp_defer_late(&pool->service->deferred, &pool->touched);
	if (pool->removed || pool->service->stopping)
		stop_progress(pool->service);
}

void daemon_pools_run_ended(struct sp_service *service)
{
	if (--service->runs > 0 || service->stopping)
		return;
	for (size_t i = 0; i < service->pool_count; i++)
		if (service->pools[i]->held_since_ms != 0)
			daemon_pool_touch(service->pools[i]);
}

uint32_t daemon_pool_hosts(const struct daemon_pool *pool)
{
	const struct sp_service *service = pool->service;

	if (!service->cluster)
		return 1;
	return service->store ? sp_redis_store_host_count(service->store, pool->config->policy.name)
			      : 0;
}

struct sp_pool_config daemon_pool_policy(const struct config_ref *source, uint32_t index)
{
	struct sp_pool_config policy = source->config->pools[index].policy;

	policy.spec_generation =
		sp_config_spec_generation(source->config, &source->config->pools[index]);
	policy.create_timeout_ms += sp_config_hooks_ms(&source->config->pools[index]);
	return policy;
}

static uint64_t random_seed(void)
{
	uint64_t seed = 0;

	/* Only jitter and hashing hang on it; the clock will do if the kernel has none to give. */
	if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != (ssize_t)sizeof(seed))
		seed = (uint64_t)sp_clock_boot_ns();
	return seed;
}

int daemon_pool_new(struct sp_service *service, struct config_ref *source, uint32_t index,
		    struct daemon_pool **ret_pool, struct sp_err *err)
{
	struct sp_pool_config policy = daemon_pool_policy(source, index);
	struct daemon_pool *pool = calloc(1, sizeof(*pool));
	struct sp_pool_ports ports = {
		.backend = &daemon_backend_ops,
		.backend_arg = pool,
		.store = service->store,
		.events = &daemon_pool_events,
		.events_arg = pool,
	};
	int status;

	if (!pool)
		return sp_err_set(err, -ENOMEM, "pool '%s'", policy.name);
	pool->service = service;
	pool->index = index;
	sp_deferred_init(&pool->touched, on_touched);
	status = sp_timer_init(&service->timers, &pool->wakeup, on_wakeup);
	if (status == 0)
		status = cluster_tell_pool(service, source, index, err);
	if (status == 0)
		status = sp_pool_new(&policy, &ports, random_seed(), &pool->policy, err);
	if (status < 0) {
		sp_timer_done(&service->timers, &pool->wakeup);
		free(pool);
		return status;
	}
	pool->source = config_ref_hold(source);
	pool->config = &source->config->pools[index];
	*ret_pool = pool;
	return 0;
}

void daemon_pool_free(struct daemon_pool *pool)
{
	if (!pool)
		return;
	sp_timer_done(&pool->service->timers, &pool->wakeup);
	sp_deferred_cancel(&pool->touched);
	sp_pool_free(pool->policy);
	config_ref_drop(pool->source);
	free(pool);
}

struct daemon_pool *daemon_pool_find(struct sp_service *service, const char *name)
{
	for (size_t i = 0; i < service->pool_count; i++)
		if (strcmp(service->pools[i]->config->policy.name, name) == 0)
			return service->pools[i];
	return NULL;
}

int daemon_pool_get(struct sp_service *service, const char *name, struct daemon_pool **ret_pool,
		    struct sp_err *err)
{
	struct daemon_pool *pool = daemon_pool_find(service, name);

	if (!pool || pool->removed) {
		char quoted[2 * SP_POOL_NAME_MAX];

		return sp_err_code(err, SP_CODE_POOL_NOT_FOUND, -ENOENT, "no pool '%s'",
				   sp_log_quote(name, quoted, sizeof(quoted)));
	}
	*ret_pool = pool;
	return 0;
}

static bool in_use(const struct sp_service *service, const struct daemon_pool *pool, int64_t now_ms)
{
	struct sp_pool_snapshot snapshot;

	SP_LIST_FOREACH (at, &service->links)
		if (SP_CONTAINER_OF(at, struct sandbox_link, link)->pool == pool)
			return true;
	SP_LIST_FOREACH (at, &service->ops)
		if (SP_CONTAINER_OF(at, struct sp_service_op, link)->pool == pool)
			return true;
	sp_pool_snapshot(pool->policy, now_ms, &snapshot);
	return snapshot.creating + snapshot.idle + snapshot.leased + snapshot.killing > 0;
}

void daemon_pools_collect(struct sp_service *service)
{
	int64_t now_ms = sp_clock_boot_ms();
	size_t kept = 0;

	for (size_t i = 0; i < service->pool_count; i++) {
		struct daemon_pool *pool = service->pools[i];

		if (pool->removed && !in_use(service, pool, now_ms)) {
			sp_log(SP_LOG_INFO, "pool removed", "pool=%s", pool->config->policy.name);
			daemon_pool_free(pool);
		} else {
			service->pools[kept++] = pool;
		}
	}
	service->pool_count = kept;
}
