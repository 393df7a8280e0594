/*
 * What the pool's unit tests share: a pool over the memory store with a backend that only takes
 * notes. Time and every answer come from the test.
 */
#ifndef SP_TESTS_POOL_FIXTURE_H
#define SP_TESTS_POOL_FIXTURE_H

#include "pool/pool.h"
#include "pool/store.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIXTURE_MAX 512

struct fixture {
	struct sp_pool_config config;
	struct sp_pool *pool;
	struct sp_store *store;
	bool own_store;
	int64_t now;

	/* the backend's notes */
	struct sp_sandbox *creating[FIXTURE_MAX]; /* unanswered, oldest first */
	size_t creating_count;
	struct sp_sandbox *killing[FIXTURE_MAX]; /* each one once */
	size_t killing_count;
	size_t creates, kills, forgets;
	int refuse_create; /* negative: what create returns */

	/* the events' notes */
	char result[32];
	int64_t waited, remaining, idle_age;
	size_t acquired, ended[SP_END_REASON_COUNT], health_events;
	bool degraded;
	char stage[64];

	/* the last callback of an acquire */
	size_t callbacks;
	struct sp_acquire_result granted;
	enum sp_code refused; /* SP_CODE_NONE: granted */
	char message[SP_ERR_MESSAGE_MAX];
};

static inline int fixture_create(void *arg, struct sp_sandbox *sandbox, struct sp_err *err)
{
	struct fixture *fix = arg;

	fix->creates++;
	if (fix->refuse_create < 0)
		return sp_err_set(err, fix->refuse_create, "ask the launcher");
	cr_assert(fix->creating_count < FIXTURE_MAX);
	fix->creating[fix->creating_count++] = sandbox;
	return 0;
}

static inline void fixture_drop(struct sp_sandbox **list, size_t *count,
				const struct sp_sandbox *sandbox)
{
	for (size_t i = 0; i < *count; i++) {
		if (list[i] != sandbox)
			continue;
		memmove(list + i, list + i + 1, (*count - i - 1) * sizeof(*list));
		(*count)--;
		return;
	}
}

static inline void fixture_kill(void *arg, struct sp_sandbox *sandbox)
{
	struct fixture *fix = arg;

	fix->kills++;
	fixture_drop(fix->creating, &fix->creating_count, sandbox);
	fixture_drop(fix->killing, &fix->killing_count, sandbox);
	cr_assert(fix->killing_count < FIXTURE_MAX);
	fix->killing[fix->killing_count++] = sandbox;
}

static inline void fixture_forget(void *arg, struct sp_sandbox *sandbox)
{
	struct fixture *fix = arg;

	fix->forgets++;
	fixture_drop(fix->creating, &fix->creating_count, sandbox);
	fixture_drop(fix->killing, &fix->killing_count, sandbox);
}

static const struct sp_backend_ops fixture_backend = {
	.create = fixture_create,
	.kill = fixture_kill,
	.forget = fixture_forget,
};

static inline void fixture_on_ended(void *arg, const struct sp_sandbox *sandbox,
				    enum sp_end_reason reason)
{
	struct fixture *fix = arg;

	cr_assert(sandbox->state == SP_SANDBOX_KILLING);
	fix->ended[reason]++;
}

static inline void fixture_on_acquired(void *arg, enum sp_acquire_policy policy, const char *result,
				       int64_t waited_ms, int64_t remaining_ms, int64_t idle_age_ms)
{
	struct fixture *fix = arg;

	(void)policy;
	(void)snprintf(fix->result, sizeof(fix->result), "%s", result);
	fix->acquired++;
	fix->waited = waited_ms;
	fix->remaining = remaining_ms;
	fix->idle_age = idle_age_ms;
}

static inline void fixture_on_create_failed(void *arg, const char *stage, const struct sp_err *err)
{
	struct fixture *fix = arg;

	(void)err;
	(void)snprintf(fix->stage, sizeof(fix->stage), "%s", stage);
}

static inline void fixture_on_health(void *arg, bool degraded, const char *last_error)
{
	struct fixture *fix = arg;

	(void)last_error;
	fix->health_events++;
	fix->degraded = degraded;
}

static const struct sp_pool_events fixture_events = {
	.ended = fixture_on_ended,
	.acquired = fixture_on_acquired,
	.create_failed = fixture_on_create_failed,
	.health_changed = fixture_on_health,
};

/* Defaults with the given max_idle, jitter off; the test changes fix->config before the open. */
static inline void fixture_init(struct fixture *fix, uint32_t max_idle)
{
	memset(fix, 0, sizeof(*fix));
	sp_pool_config_defaults(&fix->config);
	(void)snprintf(fix->config.name, sizeof(fix->config.name), "default");
	fix->config.max_idle = max_idle;
	fix->config.expiry_jitter_percent = 0;
	fix->config.create_rate = 0;
	fix->config.warmup_concurrency = 64;
	fix->now = 1000;
}

static inline void fixture_open(struct fixture *fix)
{
	struct sp_pool_ports ports = {
		.backend = &fixture_backend,
		.backend_arg = fix,
		.events = &fixture_events,
		.events_arg = fix,
	};
	struct sp_err err;

	if (!fix->store) {
		cr_assert(sp_memory_store_new(&fix->store, NULL) == 0);
		fix->own_store = true;
	}
	ports.store = fix->store;
	cr_assert(sp_pool_new(&fix->config, &ports, 1, &fix->pool, &err) == 0, "%s", err.message);
}

static inline void fixture_check(struct fixture *fix)
{
	sp_pool_check(fix->pool, fix->now);
}

static inline struct sp_pool_snapshot fixture_snapshot(struct fixture *fix)
{
	struct sp_pool_snapshot snapshot;

	sp_pool_snapshot(fix->pool, fix->now, &snapshot);
	return snapshot;
}

/* Advance the clock and tick until nothing is due. */
static inline void fixture_run(struct fixture *fix, int64_t span_ms)
{
	int64_t until = fix->now + span_ms;
	int64_t next;

	while ((next = sp_pool_next_wakeup_ms(fix->pool)) <= until) {
		fix->now = next > fix->now ? next : fix->now;
		sp_pool_tick(fix->pool, fix->now);
		fixture_check(fix);
	}
	fix->now = until;
}

static inline struct sp_sandbox *fixture_ready(struct fixture *fix)
{
	struct sp_sandbox *sandbox = fix->creating[0];

	cr_assert(fix->creating_count > 0, "nothing is being created");
	fixture_drop(fix->creating, &fix->creating_count, sandbox);
	sp_pool_created(fix->pool, sandbox, fix->now);
	fixture_check(fix);
	return sandbox;
}

static inline void fixture_fail(struct fixture *fix, bool permanent)
{
	struct sp_sandbox *sandbox = fix->creating[0];
	struct sp_err err;

	cr_assert(fix->creating_count > 0, "nothing is being created");
	fixture_drop(fix->creating, &fix->creating_count, sandbox);
	(void)sp_err_set(&err, -EIO, "mount '/usr'");
	sp_pool_create_failed(fix->pool, sandbox, "mount", permanent, &err, fix->now);
	sp_pool_gone(fix->pool, sandbox, fix->now);
	fixture_check(fix);
}

/* Everything that is asked for succeeds at once, until nothing is due now. */
static inline void fixture_settle(struct fixture *fix)
{
	do {
		while (fix->creating_count > 0)
			(void)fixture_ready(fix);
		while (fix->killing_count > 0)
			sp_pool_gone(fix->pool, fix->killing[0], fix->now);
		fixture_run(fix, 0);
	} while (fix->creating_count > 0 || fix->killing_count > 0);
}

static inline void fixture_start(struct fixture *fix)
{
	struct sp_err err;

	fixture_open(fix);
	cr_assert(sp_pool_start(fix->pool, fix->now, &err) == 0, "%s", err.message);
	fixture_run(fix, 0);
}

/* A started pool with all its sandboxes idle. */
static inline void fixture_warm(struct fixture *fix)
{
	fixture_start(fix);
	fixture_settle(fix);
}

static inline void fixture_close(struct fixture *fix)
{
	sp_pool_shutdown(fix->pool, fix->now);
	for (int i = 0; i < 100 && fixture_snapshot(fix).killing > 0; i++) {
		while (fix->killing_count > 0)
			sp_pool_gone(fix->pool, fix->killing[0], fix->now);
		fixture_run(fix, 1000);
	}
	fixture_check(fix);
	sp_pool_free(fix->pool);
	if (fix->own_store)
		fix->store->ops->free(fix->store);
}

static inline void fixture_lease(char *lease_id, unsigned int number)
{
	(void)snprintf(lease_id, SP_LEASE_ID_LEN + 1, "%064x", number);
}

static inline struct sp_acquire_request
fixture_request(unsigned int lease, enum sp_acquire_policy policy, int64_t wait_ms)
{
	struct sp_acquire_request request = {
		.policy = policy,
		.wait_ms = wait_ms,
		.min_remaining_ms = -1,
	};

	fixture_lease(request.lease_id, lease);
	return request;
}

static inline void fixture_acquired(void *arg, const struct sp_acquire_result *result,
				    const struct sp_err *err)
{
	struct fixture *fix = arg;

	fix->callbacks++;
	fix->refused = err ? sp_err_client_code(err) : SP_CODE_NONE;
	(void)snprintf(fix->message, sizeof(fix->message), "%s", err ? err->message : "");
	memset(&fix->granted, 0, sizeof(fix->granted));
	if (result)
		fix->granted = *result;
}

/* Returns what sp_pool_acquire returned; fills fix->granted or fix->refused. */
static inline int fixture_ask(struct fixture *fix, const struct sp_acquire_request *request,
			      struct sp_acquire **ret_pending)
{
	struct sp_acquire *pending = NULL;
	struct sp_err err = {0};
	int result;

	memset(&fix->granted, 0, sizeof(fix->granted));
	result = sp_pool_acquire(fix->pool, request, fix->now, fixture_acquired, fix, &fix->granted,
				 &pending, &err);
	fix->refused = result < 0 ? sp_err_client_code(&err) : SP_CODE_NONE;
	(void)snprintf(fix->message, sizeof(fix->message), "%s", err.message);
	cr_assert((result == 1) == (pending != NULL));
	if (ret_pending)
		*ret_pending = pending;
	fixture_check(fix);
	return result;
}

static inline struct sp_sandbox *fixture_take(struct fixture *fix, unsigned int lease)
{
	struct sp_acquire_request request = fixture_request(lease, SP_ACQUIRE_FAIL_FAST, 0);

	cr_assert(fixture_ask(fix, &request, NULL) == 0, "%s", fix->message);
	return fix->granted.sandbox;
}

#endif
