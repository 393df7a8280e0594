/*
 * Health of creation, and when to try again.
 *
 * Transient failures: from degraded_threshold failures in a row on, every failing batch of
 * creations moves the backoff one step: initial, 2 x initial … max, half of it random. Creations
 * that were begun before the last step belong to the batch that made it and add none, so ten
 * parallel failures cost one step, not ten.
 *
 * Permanent failures (a missing image, a filter the kernel refuses): the circuit opens at the
 * first one. Then one creation at a time is tried when the backoff is over, for callers too.
 *
 * One success resets all. Reaping, shrinking and killing never ask here.
 */
#include "pool/pool_private.h"

#include <stdio.h>

static int64_t backoff_ms(struct sp_pool *pool)
{
	struct sp_health *health = &pool->health;
	int64_t span = pool->config.backoff_initial_ms;

	for (uint32_t i = 1; i < health->step && span < pool->config.backoff_max_ms; i++)
		span *= 2;
	span = SP_MIN(span, pool->config.backoff_max_ms);
	return span / 2 + (int64_t)sp_pool_random(pool, (uint64_t)(span - span / 2) + 1);
}

static void health_changed(struct sp_pool *pool)
{
	const struct sp_pool_events *events = pool->ports.events;

	if (events && events->health_changed)
		events->health_changed(pool->ports.events_arg, pool->health.degraded,
				       pool->health.last_error);
}

void sp_health_failed(struct sp_pool *pool, uint64_t epoch, const char *stage, bool permanent,
		      const struct sp_err *err, int64_t now_ms)
{
	const struct sp_pool_events *events = pool->ports.events;
	struct sp_health *health = &pool->health;
	bool was_degraded = health->degraded;

	if (health->failure_count < UINT32_MAX)
		health->failure_count++;
	pool->create_failures_total++;
	(void)snprintf(health->last_error, sizeof(health->last_error), "%.32s: %.220s", stage,
		       err->message);
	if (permanent)
		health->circuit_open = true;
	if (health->circuit_open || health->failure_count >= pool->config.degraded_threshold) {
		health->degraded = true;
		if (epoch == health->epoch) {
			health->epoch++;
			if (health->step < UINT32_MAX)
				health->step++;
			health->backoff_until_ms = sp_time_add(now_ms, backoff_ms(pool));
		}
	}
	if (events && events->create_failed)
		events->create_failed(pool->ports.events_arg, stage, err);
	if (health->degraded && !was_degraded)
		health_changed(pool);
}

void sp_health_reset_backoff(struct sp_pool *pool)
{
	pool->health.step = 0;
	pool->health.backoff_until_ms = 0;
	pool->health.circuit_open = false;
}

void sp_health_succeeded(struct sp_pool *pool)
{
	struct sp_health *health = &pool->health;
	bool was_degraded = health->degraded;

	sp_health_reset_backoff(pool);
	health->failure_count = 0;
	health->degraded = false;
	health->last_error[0] = '\0';
	if (was_degraded)
		health_changed(pool);
}

bool sp_health_permits_direct(const struct sp_pool *pool, int64_t now_ms)
{
	if (!pool->health.circuit_open)
		return true;
	return pool->count[SP_SANDBOX_CREATING] == 0 && now_ms >= pool->health.backoff_until_ms;
}

bool sp_health_permits(const struct sp_pool *pool, int64_t now_ms)
{
	return now_ms >= pool->health.backoff_until_ms && sp_health_permits_direct(pool, now_ms);
}
