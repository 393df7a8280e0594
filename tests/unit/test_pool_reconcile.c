/*
 * The reconciler: refill, replacement before the end, shrink, timeouts of creations and kills,
 * backoff and circuit.
 */
#include "pool_fixture.h"

/* ---- refill ---- */

Test(reconcile, fills_up_to_max_idle_and_never_above) /* P-114, P-135, P-159, P-180 */
{
	struct fixture fix;

	fixture_init(&fix, 3);
	fix.config.warmup_concurrency = 2;
	fixture_start(&fix);
	cr_assert(fix.creating_count == 2, "warmup_concurrency"); /* P-113 */
	(void)fixture_ready(&fix);
	fixture_run(&fix, 0);
	cr_assert(fix.creating_count == 2, "a free slot is filled at once"); /* P-183 */
	fixture_settle(&fix);
	fixture_run(&fix, 5000);
	cr_assert(fixture_snapshot(&fix).idle == 3 && fix.creates == 3);
	fixture_close(&fix);
}

Test(reconcile, a_slow_creation_does_not_hold_back_the_others) /* P-182, W-14 */
{
	struct fixture fix;

	fixture_init(&fix, 4);
	fix.config.warmup_concurrency = 2;
	fixture_start(&fix);
	for (int i = 0; i < 3; i++) {
		sp_pool_created(fix.pool, fix.creating[1], fix.now);
		fix.creating_count = 1; /* the first one hangs */
		fixture_run(&fix, 0);
	}
	cr_assert(fixture_snapshot(&fix).idle == 3);
	fixture_close(&fix);
}

Test(reconcile, keeps_to_the_create_rate) /* P-181 */
{
	struct fixture fix;

	fixture_init(&fix, 20);
	fix.config.create_rate = 4;
	fix.config.create_burst = 2;
	fixture_start(&fix);
	cr_assert(fix.creates == 2, "the burst");
	fixture_run(&fix, 249);
	cr_assert(fix.creates == 2);
	fixture_run(&fix, 2);
	cr_assert(fix.creates == 3);
	fixture_run(&fix, 1000);
	cr_assert(fix.creates == 7);
	fixture_run(&fix, 5000);
	cr_assert(fix.creates == 20);
	fixture_close(&fix);
}

Test(reconcile, callers_have_the_right_of_way_over_the_rate)
{
	struct fixture fix;
	struct sp_acquire_request request = fixture_request(1, SP_ACQUIRE_CREATE, 5000);

	fixture_init(&fix, 5);
	fix.config.create_rate = 1;
	fix.config.create_burst = 1;
	fixture_start(&fix);
	cr_assert(fix.creates == 1);
	cr_assert(fixture_ask(&fix, &request, NULL) == 1);
	cr_assert(fix.creates == 2);
	fixture_run(&fix, 500);
	cr_assert(fix.creates == 2);
	fixture_close(&fix);
}

Test(reconcile, a_creation_without_an_answer_fails_in_time) /* B-114 */
{
	struct fixture fix;

	fixture_init(&fix, 1);
	fix.config.create_timeout_ms = 5000;
	fixture_start(&fix);
	fixture_run(&fix, 4999);
	cr_assert(fix.kills == 0);
	fixture_run(&fix, 1);
	cr_assert(fix.kills == 1 && strcmp(fix.stage, "timeout") == 0);
	cr_assert(fix.ended[SP_END_CREATE_FAILED] == 1);
	cr_assert(fix.creating_count == 1, "the slot is free again");
	fixture_close(&fix);
}

Test(reconcile, an_answer_after_the_kill_is_ignored) /* B-115 */
{
	struct fixture fix;
	struct sp_sandbox *sandbox;
	struct sp_err err = {0};

	fixture_init(&fix, 1);
	fixture_start(&fix);
	sandbox = fix.creating[0];
	sp_pool_end(fix.pool, sandbox, SP_END_DISCARDED, fix.now);
	sp_pool_created(fix.pool, sandbox, fix.now);
	sp_pool_create_failed(fix.pool, sandbox, "mount", false, &err, fix.now);
	cr_assert(sandbox->state == SP_SANDBOX_KILLING);
	cr_assert(fixture_snapshot(&fix).create_failures_total == 0);
	fixture_close(&fix);
}

Test(reconcile, death_before_ready_is_a_failed_creation) /* B-115 */
{
	struct fixture fix;

	fixture_init(&fix, 1);
	fixture_start(&fix);
	sp_pool_died(fix.pool, fix.creating[0], fix.now);
	cr_assert(fix.ended[SP_END_CREATE_FAILED] == 1 && strcmp(fix.stage, "died") == 0);
	cr_assert(fixture_snapshot(&fix).failure_count == 1);
	fixture_close(&fix);
}

Test(reconcile, an_idle_one_that_dies_is_replaced_at_once) /* V-19 */
{
	struct fixture fix;
	struct sp_sandbox *sandbox;

	fixture_init(&fix, 1);
	fixture_start(&fix);
	sandbox = fixture_ready(&fix);
	sp_pool_gone(fix.pool, sandbox, fix.now); /* without a word before */
	cr_assert(fix.ended[SP_END_DIED] == 1 && fix.forgets == 1);
	fixture_run(&fix, 0);
	cr_assert(fix.creating_count == 1);
	fixture_close(&fix);
}

/* ---- expiry ---- */

static void short_lives(struct fixture *fix, uint32_t max_idle)
{
	fixture_init(fix, max_idle);
	fix->config.idle_timeout_ms = 100000;
	fix->config.acquire_min_remaining_ttl_ms = 20000;
	fix->config.refresh_margin_ms = 10000;
}

Test(reconcile, replaces_before_the_old_one_becomes_undispensable) /* V-11 */
{
	struct fixture fix;
	struct sp_sandbox *old;

	short_lives(&fix, 1);
	fixture_start(&fix);
	old = fixture_ready(&fix);
	fixture_run(&fix, 69999);
	cr_assert(fix.creating_count == 0);
	fixture_run(&fix, 1);
	cr_assert(fix.creating_count == 1, "refresh_margin ahead");
	cr_assert(old->state == SP_SANDBOX_IDLE && fixture_snapshot(&fix).idle == 1);
	fix.now += 100;
	(void)fixture_ready(&fix);
	cr_assert(fixture_snapshot(&fix).idle == 1, "never two");
	cr_assert(old->state == SP_SANDBOX_KILLING && fix.ended[SP_END_NEAR_EXPIRY] == 1);
	fixture_close(&fix);
}

Test(reconcile, the_old_one_is_still_given_while_its_replacement_is_made)
{
	struct fixture fix;
	struct sp_sandbox *old;

	short_lives(&fix, 1);
	fixture_start(&fix);
	old = fixture_ready(&fix);
	fixture_run(&fix, 79999);
	cr_assert(fixture_take(&fix, 1) == old && fix.granted.remaining_ms == 20001);
	fixture_settle(&fix);
	cr_assert(fixture_snapshot(&fix).idle == 1 && fix.creates == 2);
	cr_assert(fix.ended[SP_END_EXCESS] == 0);
	fixture_close(&fix);
}

Test(reconcile, reaps_at_the_minimum_even_without_replacement) /* P-034 … P-037, P-115 */
{
	struct fixture fix;
	struct sp_sandbox *old;

	short_lives(&fix, 1);
	fixture_start(&fix);
	old = fixture_ready(&fix);
	fixture_run(&fix, 79999);
	cr_assert(old->state == SP_SANDBOX_IDLE);
	fixture_run(&fix, 1);
	cr_assert(old->state == SP_SANDBOX_KILLING && fix.ended[SP_END_NEAR_EXPIRY] == 1);
	fixture_close(&fix);
}

Test(reconcile, what_is_found_past_its_end_has_expired) /* P-027, P-028, B-126 */
{
	struct fixture fix;

	short_lives(&fix, 2);
	fixture_warm(&fix);
	fix.now += 100000; /* slept */
	cr_assert(fixture_snapshot(&fix).idle == 2 && fixture_snapshot(&fix).idle_expired == 2);
	sp_pool_tick(fix.pool, fix.now);
	cr_assert(fix.ended[SP_END_EXPIRED] == 2 && fix.kills == 2);
	cr_assert(fixture_snapshot(&fix).idle_expired == 0);
	fixture_close(&fix);
}

Test(reconcile, reaping_does_not_ask_for_the_health_of_creation) /* V-30, P-192 */
{
	struct fixture fix;

	short_lives(&fix, 1);
	fixture_warm(&fix);
	fix.refuse_create = -EAGAIN;
	fixture_run(&fix, 100000);
	cr_assert(fix.ended[SP_END_NEAR_EXPIRY] == 1 && fix.killing_count == 1);
	cr_assert(fixture_snapshot(&fix).degraded);
	fixture_close(&fix);
}

Test(reconcile, lives_are_jittered_downwards) /* B-121 */
{
	struct fixture fix;
	int64_t shortest = INT64_MAX, longest = 0;

	fixture_init(&fix, 64);
	fix.config.expiry_jitter_percent = 10;
	fix.config.idle_timeout_ms = 1000000;
	fixture_warm(&fix);
	for (unsigned int i = 0; i < 64; i++) {
		(void)fixture_take(&fix, i);
		cr_assert(fix.granted.remaining_ms >= longest, "the oldest ends first");
		shortest = SP_MIN(shortest, fix.granted.remaining_ms);
		longest = SP_MAX(longest, fix.granted.remaining_ms);
	}
	cr_assert(longest <= 1000000 && shortest >= 900000);
	cr_assert(longest - shortest > 90000, "they are spread");
	fixture_close(&fix);
}

Test(reconcile, jitter_never_eats_the_dispensable_life)
{
	struct fixture fix;

	fixture_init(&fix, 32);
	fix.config.expiry_jitter_percent = 50;
	fix.config.idle_timeout_ms = 10000;
	fix.config.acquire_min_remaining_ttl_ms = 9000;
	fixture_warm(&fix);
	fixture_run(&fix, 0);
	cr_assert(fixture_snapshot(&fix).idle == 32 && fix.creates == 32);
	fixture_close(&fix);
}

Test(reconcile, steady_load_wastes_no_life) /* B-123 */
{
	struct fixture fix;

	fixture_init(&fix, 20);
	fix.config.idle_timeout_ms = 60000;
	fix.config.expiry_jitter_percent = 10;
	fixture_warm(&fix);
	for (unsigned int i = 0; i < 200; i++) {
		sp_pool_release(fix.pool, fixture_take(&fix, i), fix.now);
		fixture_settle(&fix);
		fixture_run(&fix, 1000);
		fixture_settle(&fix);
	}
	cr_assert(fix.ended[SP_END_NEAR_EXPIRY] + fix.ended[SP_END_DISCARDED] +
			  fix.ended[SP_END_EXPIRED] ==
		  0);
	fixture_close(&fix);
}

/* ---- shrink ---- */

Test(reconcile, shrinks_oldest_first) /* P-111, P-193 */
{
	struct fixture fix;
	struct sp_sandbox *made[5];

	fixture_init(&fix, 5);
	fixture_start(&fix);
	for (size_t i = 0; i < 5; i++)
		made[i] = fixture_ready(&fix);
	cr_assert(sp_pool_resize(fix.pool, 2, -1, fix.now, NULL) == 0);
	fixture_run(&fix, 0);
	for (size_t i = 0; i < 5; i++)
		cr_assert(made[i]->state == (i < 3 ? SP_SANDBOX_KILLING : SP_SANDBOX_IDLE));
	cr_assert(fix.ended[SP_END_EXCESS] == 3 && fix.creating_count == 0);
	fixture_close(&fix);
}

Test(reconcile, shrinks_creations_before_idle_ones)
{
	struct fixture fix;

	fixture_init(&fix, 4);
	fixture_start(&fix);
	(void)fixture_ready(&fix);
	(void)fixture_ready(&fix);
	cr_assert(sp_pool_resize(fix.pool, 2, -1, fix.now, NULL) == 0);
	fixture_run(&fix, 0);
	cr_assert(fixture_snapshot(&fix).idle == 2 && fixture_snapshot(&fix).creating == 0);
	fixture_close(&fix);
}

Test(reconcile, target_zero_keeps_leases_and_stays_zero) /* B-120, P-042, P-160, P-163 */
{
	struct fixture fix;

	fixture_init(&fix, 4);
	fixture_warm(&fix);
	for (unsigned int i = 0; i < 3; i++)
		cr_assert(sp_pool_claim(fix.pool, fixture_take(&fix, i), fix.now, NULL) == 0);
	cr_assert(sp_pool_resize(fix.pool, 0, -1, fix.now, NULL) == 0);
	fixture_settle(&fix);
	for (int i = 0; i < 3; i++) {
		fixture_run(&fix, fix.config.tick_ms);
		fixture_settle(&fix);
		cr_assert(fixture_snapshot(&fix).idle == 0 && fixture_snapshot(&fix).creating == 0);
	}
	cr_assert(fixture_snapshot(&fix).leased == 3);
	cr_assert(sp_pool_resize(fix.pool, 2, -1, fix.now, NULL) == 0);
	fixture_settle(&fix);
	cr_assert(fixture_snapshot(&fix).idle == 2);
	fixture_close(&fix);
}

/* ---- kills ---- */

Test(reconcile, asks_again_for_kills_with_doubling_pauses) /* V-03, P-118 */
{
	static const int64_t pauses[] = {2000, 4000, 8000, 16000, 32000, 60000, 60000};
	struct fixture fix;
	struct sp_sandbox *sandbox;

	fixture_init(&fix, 1);
	fix.config.max_total = 1;
	fixture_warm(&fix);
	sandbox = fixture_take(&fix, 1);
	sp_pool_release(fix.pool, sandbox, fix.now);
	for (size_t i = 0; i < SP_ARRAY_SIZE(pauses); i++) {
		cr_assert(fix.kills == i + 1 && sandbox->killed_ms == fix.now);
		cr_assert(sandbox->kill_attempts == i + 1);
		fixture_run(&fix, pauses[i] - 1);
		cr_assert(fix.kills == i + 1);
		fixture_run(&fix, 1);
	}
	fixture_close(&fix);
}

Test(reconcile, kills_do_not_wait_for_each_other) /* P-119, W-03 */
{
	struct fixture fix;

	fixture_init(&fix, 5);
	fixture_warm(&fix);
	cr_assert(sp_pool_release_idle(fix.pool, fix.now) == 5); /* P-141 */
	cr_assert(fix.kills == 5 && fix.killing_count == 5);
	fixture_run(&fix, 0);
	cr_assert(fix.creating_count == 5, "nor does the refill wait for them");
	fixture_close(&fix);
}

/* ---- health ---- */

Test(health, third_failure_in_a_row_degrades) /* P-100, P-105, P-157 */
{
	struct fixture fix;

	fixture_init(&fix, 1);
	fixture_start(&fix);
	fixture_fail(&fix, false);
	fixture_run(&fix, 0);
	fixture_fail(&fix, false);
	fixture_run(&fix, 0);
	cr_assert(!fixture_snapshot(&fix).degraded && !fixture_snapshot(&fix).backoff_active);
	cr_assert(fixture_snapshot(&fix).failure_count == 2 && fix.health_events == 0);
	fixture_fail(&fix, false);
	fixture_run(&fix, 0);
	cr_assert(fixture_snapshot(&fix).degraded && fixture_snapshot(&fix).backoff_active);
	cr_assert(fix.health_events == 1 && fix.degraded);
	cr_assert(strstr(fixture_snapshot(&fix).last_error, "mount: mount '/usr'"));
	cr_assert(fix.creating_count == 0, "waits");
	fixture_close(&fix);
}

Test(health, backoff_is_half_fixed_half_random_and_capped) /* P-101, P-102, P-103, B-110 */
{
	struct fixture fix;
	int64_t step = 1000;

	fixture_init(&fix, 1);
	fix.config.degraded_threshold = 1;
	fix.config.backoff_max_ms = 16000;
	fixture_start(&fix);
	for (int i = 0; i < 8; i++) {
		int64_t wait;

		fixture_fail(&fix, false);
		wait = fixture_snapshot(&fix).backoff_until_ms - fix.now;
		cr_assert(wait >= step / 2 && wait <= step, "step %d waits %lld", i,
			  (long long)wait);
		fixture_run(&fix, wait - 1);
		cr_assert(fix.creating_count == 0);
		fixture_run(&fix, 1);
		cr_assert(fix.creating_count == 1);
		step = SP_MIN(step * 2, 16000);
	}
	fixture_close(&fix);
}

Test(health, ten_failures_of_one_batch_are_one_step) /* P-103, B-111, W-07 */
{
	struct fixture fix;
	int64_t until;

	fixture_init(&fix, 10);
	fixture_start(&fix);
	for (int i = 0; i < 3; i++)
		fixture_fail(&fix, false);
	until = fixture_snapshot(&fix).backoff_until_ms;
	cr_assert(until > fix.now && until <= fix.now + 1000);
	fixture_run(&fix, 500);
	while (fix.creating_count > 0)
		fixture_fail(&fix, false);
	cr_assert(fixture_snapshot(&fix).backoff_until_ms == until);
	cr_assert(fixture_snapshot(&fix).failure_count == 10);
	cr_assert(fixture_snapshot(&fix).create_failures_total == 10);
	fixture_close(&fix);
}

Test(health, one_success_resets_all) /* P-104 */
{
	struct fixture fix;
	struct sp_pool_snapshot snapshot;

	fixture_init(&fix, 4);
	fixture_start(&fix);
	for (int i = 0; i < 3; i++)
		fixture_fail(&fix, false);
	cr_assert(fixture_snapshot(&fix).degraded);
	(void)fixture_ready(&fix);
	snapshot = fixture_snapshot(&fix);
	cr_assert(!snapshot.degraded && !snapshot.backoff_active && snapshot.failure_count == 0);
	cr_assert(snapshot.last_error[0] == '\0' && fix.health_events == 2 && !fix.degraded);
	fixture_run(&fix, 0);
	cr_assert(fix.creating_count == 3);
	fixture_close(&fix);
}

Test(health, permanent_failure_opens_the_circuit_for_single_probes) /* V-18 */
{
	struct fixture fix;
	struct sp_acquire_request request = fixture_request(1, SP_ACQUIRE_CREATE, 5000);

	fixture_init(&fix, 5);
	fix.config.warmup_concurrency = 1;
	fixture_start(&fix);
	fixture_fail(&fix, true);
	cr_assert(fixture_snapshot(&fix).circuit_open && fixture_snapshot(&fix).degraded);
	cr_assert(fixture_ask(&fix, &request, NULL) < 0);
	cr_assert(fix.refused == SP_CODE_CREATE_FAILED && strstr(fix.message, "mount '/usr'"));
	cr_assert(fix.creates == 1);
	fixture_run(&fix, 1000);
	cr_assert(fix.creating_count == 1, "a probe");
	fixture_run(&fix, 10000);
	cr_assert(fix.creating_count == 1, "one at a time");
	(void)fixture_ready(&fix);
	cr_assert(!fixture_snapshot(&fix).circuit_open);
	fixture_settle(&fix);
	cr_assert(fixture_snapshot(&fix).idle == 5);
	fixture_close(&fix);
}

Test(health, a_caller_may_be_the_probe)
{
	struct fixture fix;
	struct sp_acquire_request request = fixture_request(1, SP_ACQUIRE_CREATE, 5000);

	fixture_init(&fix, 0);
	fixture_start(&fix);
	cr_assert(fixture_ask(&fix, &request, NULL) == 1);
	fixture_fail(&fix, true);
	fix.now += 1000;
	fixture_lease(request.lease_id, 2);
	cr_assert(fixture_ask(&fix, &request, NULL) == 1);
	fixture_lease(request.lease_id, 3);
	cr_assert(fixture_ask(&fix, &request, NULL) < 0, "one at a time");
	fixture_close(&fix);
}

Test(health, a_queued_creation_waits_for_the_circuit)
{
	struct fixture fix;
	struct sp_acquire_request request = fixture_request(1, SP_ACQUIRE_CREATE, 50000);

	fixture_init(&fix, 0);
	fix.config.max_direct_creates = 1;
	fixture_start(&fix);
	cr_assert(fixture_ask(&fix, &request, NULL) == 1);
	fixture_lease(request.lease_id, 2);
	cr_assert(fixture_ask(&fix, &request, NULL) == 1, "queued for the slot");
	fixture_fail(&fix, true);
	fixture_run(&fix, 0);
	cr_assert(fix.creating_count == 0);
	fixture_run(&fix, 1000);
	cr_assert(fix.creating_count == 1);
	(void)fixture_ready(&fix);
	cr_assert(fix.callbacks == 2 && fix.refused == SP_CODE_NONE);
	fixture_close(&fix);
}

Test(health, transient_failures_do_not_stop_callers)
{
	struct fixture fix;
	struct sp_acquire_request request = fixture_request(1, SP_ACQUIRE_CREATE, 5000);

	fixture_init(&fix, 1);
	fix.config.degraded_threshold = 1;
	fixture_start(&fix);
	fixture_fail(&fix, false);
	cr_assert(fixture_snapshot(&fix).backoff_active);
	cr_assert(fixture_ask(&fix, &request, NULL) == 1);
	cr_assert(fix.creating_count == 1);
	fixture_close(&fix);
}

Test(health, refusals_of_the_backend_do_not_spin) /* B-110 */
{
	struct fixture fix;

	fixture_init(&fix, 10);
	fix.config.degraded_threshold = 100;
	fix.refuse_create = -EAGAIN;
	fixture_start(&fix);
	cr_assert(fix.creates == 100, "up to the threshold");
	fixture_run(&fix, 60000);
	cr_assert(fix.creates <= 107, "then with backoff: %zu", fix.creates);
	fixture_close(&fix);
}

Test(health, resize_and_reconfigure_try_again_at_once)
{
	struct fixture fix;

	fixture_init(&fix, 1);
	fixture_start(&fix);
	fixture_fail(&fix, true);
	fixture_run(&fix, 0);
	cr_assert(fix.creating_count == 0);
	cr_assert(sp_pool_resize(fix.pool, 1, -1, fix.now, NULL) == 0);
	fixture_run(&fix, 0);
	cr_assert(fix.creating_count == 1 && fixture_snapshot(&fix).degraded);
	fixture_fail(&fix, true);
	cr_assert(sp_pool_reconfigure(fix.pool, &fix.config, fix.now, NULL) == 0);
	fixture_run(&fix, 0);
	cr_assert(fix.creating_count == 1);
	fixture_close(&fix);
}
