/*
 * The pool as a whole: start, drain, resize, reconfigure, destroy, shut down, and what a snapshot
 * says meanwhile.
 */
#include "pool_fixture.h"

Test(lifecycle, before_start_there_is_nothing) /* P-130 */
{
	struct fixture fix;
	struct sp_pool_snapshot snapshot;

	fixture_init(&fix, 3);
	fixture_open(&fix);
	snapshot = fixture_snapshot(&fix);
	cr_assert(snapshot.lifecycle == SP_POOL_LIFE_NOT_STARTED && snapshot.idle == 0);
	cr_assert(sp_pool_next_wakeup_ms(fix.pool) == INT64_MAX);
	sp_pool_tick(fix.pool, fix.now);
	cr_assert(fix.creates == 0);
	fixture_close(&fix);
	cr_assert(strcmp(sp_pool_lifecycle_name(SP_POOL_LIFE_DRAINING), "draining") == 0);
}

Test(lifecycle, start_warms_at_once_and_twice_is_fine) /* P-131, P-132, V-29 */
{
	struct fixture fix;

	fixture_init(&fix, 2);
	fixture_open(&fix);
	cr_assert(sp_pool_start(fix.pool, fix.now, NULL) == 0);
	cr_assert(sp_pool_start(fix.pool, fix.now, NULL) == 0);
	cr_assert(sp_pool_next_wakeup_ms(fix.pool) == fix.now);
	fixture_settle(&fix);
	cr_assert(fixture_snapshot(&fix).lifecycle == SP_POOL_LIFE_RUNNING);
	cr_assert(fixture_snapshot(&fix).idle == 2 && fixture_snapshot(&fix).max_idle == 2);
	cr_assert(fixture_snapshot(&fix).created_total == 2);
	fixture_close(&fix);
}

Test(lifecycle, shutdown_before_start_and_twice_is_fine) /* P-132 */
{
	struct fixture fix;

	fixture_init(&fix, 2);
	fixture_open(&fix);
	sp_pool_shutdown(fix.pool, fix.now);
	cr_assert(fixture_snapshot(&fix).lifecycle == SP_POOL_LIFE_STOPPED);
	sp_pool_shutdown(fix.pool, fix.now);
	fixture_close(&fix);
}

Test(lifecycle, drain_of_a_pool_that_never_ran)
{
	struct fixture fix;

	fixture_init(&fix, 2);
	fixture_open(&fix);
	sp_pool_drain(fix.pool, fix.now);
	cr_assert(fixture_snapshot(&fix).lifecycle == SP_POOL_LIFE_STOPPED);
	cr_assert(sp_pool_start(fix.pool, fix.now, NULL) == 0);
	fixture_settle(&fix);
	cr_assert(fixture_snapshot(&fix).idle == 2);
	fixture_close(&fix);
}

Test(lifecycle, drain_kills_idle_and_creating_and_spares_leases) /* P-137, P-139, P-191 */
{
	struct fixture fix;
	struct sp_sandbox *leased;

	fixture_init(&fix, 3);
	fixture_start(&fix);
	(void)fixture_ready(&fix);
	(void)fixture_ready(&fix);
	leased = fixture_take(&fix, 1);
	sp_pool_drain(fix.pool, fix.now);
	cr_assert(fix.ended[SP_END_DRAINED] == 2 && leased->state == SP_SANDBOX_LEASED);
	sp_pool_drain(fix.pool, fix.now);
	cr_assert(fixture_snapshot(&fix).lifecycle == SP_POOL_LIFE_DRAINING);
	while (fix.killing_count > 0)
		sp_pool_gone(fix.pool, fix.killing[0], fix.now);
	cr_assert(fixture_snapshot(&fix).lifecycle == SP_POOL_LIFE_DRAINING);
	sp_pool_release(fix.pool, leased, fix.now);
	sp_pool_gone(fix.pool, leased, fix.now);
	cr_assert(fixture_snapshot(&fix).lifecycle == SP_POOL_LIFE_STOPPED);
	cr_assert(fix.creates == 3, "nothing is created any more");
	fixture_close(&fix);
}

static enum sp_pool_lifecycle drain_with_lease(int64_t timeout_ms, int64_t after_ms)
{
	struct fixture fix;
	enum sp_pool_lifecycle lifecycle;

	fixture_init(&fix, 1);
	fix.config.drain_timeout_ms = timeout_ms;
	fixture_warm(&fix);
	(void)fixture_take(&fix, 1);
	sp_pool_drain(fix.pool, fix.now);
	fixture_run(&fix, after_ms);
	lifecycle = fixture_snapshot(&fix).lifecycle;
	cr_assert(fixture_snapshot(&fix).leased == 1, "the lease lives on");
	fixture_close(&fix);
	return lifecycle;
}

Test(lifecycle, drain_timeout_ends_the_drain_not_the_leases) /* P-144, P-190 */
{
	cr_assert(drain_with_lease(30000, 29999) == SP_POOL_LIFE_DRAINING);
	cr_assert(drain_with_lease(30000, 30000) == SP_POOL_LIFE_STOPPED);
	cr_assert(drain_with_lease(0, 0) == SP_POOL_LIFE_STOPPED);
	cr_assert(drain_with_lease(-1, 59000) == SP_POOL_LIFE_DRAINING);
}

Test(lifecycle, start_resumes_a_drained_pool) /* P-132, P-138, W-10 */
{
	struct fixture fix;

	fixture_init(&fix, 2);
	fixture_warm(&fix);
	sp_pool_drain(fix.pool, fix.now);
	fixture_settle(&fix);
	cr_assert(sp_pool_start(fix.pool, fix.now, NULL) == 0);
	fixture_settle(&fix);
	fixture_run(&fix, 5000);
	cr_assert(fixture_snapshot(&fix).lifecycle == SP_POOL_LIFE_RUNNING);
	cr_assert(fixture_snapshot(&fix).idle == 2);
	fixture_close(&fix);
}

Test(lifecycle, resize_sets_what_is_given_and_checks_it) /* P-134 */
{
	struct fixture fix;
	struct sp_err err;

	fixture_init(&fix, 2);
	fixture_warm(&fix);
	cr_assert(sp_pool_resize(fix.pool, 4, -1, fix.now, NULL) == 0);
	cr_assert(fix.creating_count == 0, "the next tick does it");
	fixture_settle(&fix);
	cr_assert(fixture_snapshot(&fix).idle == 4);
	cr_assert(sp_pool_resize(fix.pool, -1, 3, fix.now, NULL) == 0);
	cr_assert(fixture_snapshot(&fix).max_idle == 4 && fixture_snapshot(&fix).max_total == 3);
	cr_assert(sp_pool_resize(fix.pool, -2, -1, fix.now, &err) == -EINVAL);
	cr_assert(strstr(err.message, "max_idle"));
	cr_assert(sp_pool_resize(fix.pool, SP_POOL_MAX_IDLE_LIMIT, -1, fix.now, NULL) == 0);
	cr_assert(sp_pool_resize(fix.pool, SP_POOL_MAX_IDLE_LIMIT + 1, -1, fix.now, &err) ==
		  -EINVAL);
	cr_assert(sp_pool_resize(fix.pool, -1, SP_POOL_MAX_TOTAL_LIMIT, fix.now, NULL) == 0);
	cr_assert(sp_pool_resize(fix.pool, -1, SP_POOL_MAX_TOTAL_LIMIT + 1, fix.now, &err) ==
		  -EINVAL);
	cr_assert(strstr(err.message, "max_total"));
	fixture_close(&fix);
}

Test(lifecycle, resize_survives_a_drain_until_the_next_reconfigure) /* V-14 */
{
	struct fixture fix;

	fixture_init(&fix, 2);
	fixture_warm(&fix);
	cr_assert(sp_pool_resize(fix.pool, 1, -1, fix.now, NULL) == 0);
	sp_pool_drain(fix.pool, fix.now);
	fixture_settle(&fix);
	cr_assert(sp_pool_start(fix.pool, fix.now, NULL) == 0);
	fixture_settle(&fix);
	cr_assert(fixture_snapshot(&fix).idle == 1);
	cr_assert(sp_pool_reconfigure(fix.pool, &fix.config, fix.now, NULL) == 0);
	fixture_settle(&fix);
	cr_assert(fixture_snapshot(&fix).idle == 2);
	fixture_run(&fix, 5000);
	cr_assert(fixture_snapshot(&fix).max_idle == 2);
	fixture_close(&fix);
}

Test(lifecycle, operators_resize_survives_a_restart_on_the_same_store) /* P-085, P-133 as V-14 */
{
	struct fixture first, second;

	fixture_init(&first, 2);
	fixture_warm(&first);
	cr_assert(sp_pool_resize(first.pool, 5, -1, first.now, NULL) == 0);
	first.own_store = false;
	fixture_close(&first);
	fixture_init(&second, 2);
	second.store = first.store;
	second.own_store = true;
	fixture_warm(&second);
	cr_assert(fixture_snapshot(&second).idle == 5);
	fixture_close(&second);
}

Test(lifecycle, a_new_spec_ends_what_is_idle_at_once) /* B-116, P-202, V-15 */
{
	struct fixture fix;
	struct sp_sandbox *old, *new;
	struct sp_pool_config config;
	struct sp_acquire_request request = fixture_request(2, SP_ACQUIRE_FAIL_FAST, 0);

	fixture_init(&fix, 2);
	fixture_start(&fix);
	(void)fixture_ready(&fix);
	(void)fixture_ready(&fix);
	old = fixture_take(&fix, 1);
	fixture_settle(&fix);
	config = fix.config;
	config.spec_generation = 1;
	cr_assert(sp_pool_reconfigure(fix.pool, &config, fix.now, NULL) == 0);
	cr_assert(fixture_ask(&fix, &request, NULL) == -EAGAIN, "the old spec is not dispensed");
	cr_assert(fix.ended[SP_END_SPEC_CHANGED] == 2 && fixture_snapshot(&fix).idle == 0);
	cr_assert(old->state == SP_SANDBOX_LEASED, "what is leased lives on");
	fixture_run(&fix, 0);
	new = fixture_ready(&fix);
	cr_assert(new->spec_generation == 1 && fixture_take(&fix, 3) == new);
	fixture_settle(&fix);
	cr_assert(fixture_snapshot(&fix).idle == 2);
	fixture_close(&fix);
}

Test(lifecycle, a_new_spec_begins_creations_anew)
{
	struct fixture fix;
	struct sp_pool_config config;
	struct sp_acquire_request request = fixture_request(1, SP_ACQUIRE_CREATE, 5000);

	fixture_init(&fix, 1);
	fixture_start(&fix);
	cr_assert(fixture_ask(&fix, &request, NULL) == 1);
	cr_assert(fix.creating_count == 2);
	config = fix.config;
	config.spec_generation = 1;
	cr_assert(sp_pool_reconfigure(fix.pool, &config, fix.now, NULL) == 0);
	cr_assert(fix.killing_count == 2 && fix.creating_count == 0 && fix.callbacks == 0);
	fixture_run(&fix, 0);
	cr_assert(fix.creating_count == 2);
	fixture_settle(&fix);
	cr_assert(fix.callbacks == 1 && fix.granted.sandbox->spec_generation == 1);
	fixture_close(&fix);
}

Test(lifecycle, a_new_spec_makes_room_at_max_total)
{
	struct fixture fix;
	struct sp_pool_config config;

	fixture_init(&fix, 2);
	fix.config.max_total = 2;
	fixture_warm(&fix);
	config = fix.config;
	config.spec_generation = 1;
	cr_assert(sp_pool_reconfigure(fix.pool, &config, fix.now, NULL) == 0);
	fixture_run(&fix, 0);
	cr_assert(fix.killing_count == 2 && fixture_snapshot(&fix).idle == 0);
	fixture_settle(&fix);
	cr_assert(fix.ended[SP_END_SPEC_CHANGED] == 2 && fixture_snapshot(&fix).idle == 2);
	fixture_close(&fix);
}

Test(lifecycle, reconfigure_checks_before_it_changes)
{
	struct fixture fix;
	struct sp_pool_config config;
	struct sp_err err;

	fixture_init(&fix, 2);
	fixture_warm(&fix);
	config = fix.config;
	config.tick_ms = 0;
	cr_assert(sp_pool_reconfigure(fix.pool, &config, fix.now, &err) == -EINVAL);
	config = fix.config;
	(void)snprintf(config.name, sizeof(config.name), "other");
	cr_assert(sp_pool_reconfigure(fix.pool, &config, fix.now, &err) == -EINVAL);
	cr_assert(strstr(err.message, "'default'") && strstr(err.message, "'other'"));
	cr_assert(sp_pool_config(fix.pool)->tick_ms == 1000);
	fixture_close(&fix);
}

Test(lifecycle, a_new_minimum_acts_on_what_is_idle)
{
	struct fixture fix;
	struct sp_pool_config config;

	fixture_init(&fix, 1);
	fix.config.idle_timeout_ms = 100000;
	fix.config.acquire_min_remaining_ttl_ms = 0;
	fix.config.refresh_margin_ms = 0;
	fixture_warm(&fix);
	fix.now += 50000;
	config = fix.config;
	config.acquire_min_remaining_ttl_ms = 60000;
	cr_assert(sp_pool_reconfigure(fix.pool, &config, fix.now, NULL) == 0);
	fixture_run(&fix, 0);
	cr_assert(fix.ended[SP_END_NEAR_EXPIRY] == 1);
	fixture_close(&fix);
}

Test(lifecycle, destroy_fences_kills_all_and_leaves_a_tombstone) /* P-142, P-169, B-118 */
{
	struct fixture fix, next;
	struct sp_err err;

	fixture_init(&fix, 3);
	fixture_warm(&fix);
	(void)fixture_take(&fix, 1);
	cr_assert(sp_pool_destroy(fix.pool, fix.now, NULL) == 0);
	cr_assert(fix.ended[SP_END_DRAINED] == 3, "leased ones too");
	cr_assert(sp_pool_destroy(fix.pool, fix.now, NULL) == 0, "again is fine");
	cr_assert(sp_pool_start(fix.pool, fix.now, &err) < 0);
	cr_assert(sp_err_client_code(&err) == SP_CODE_POOL_DESTROYED);
	cr_assert(sp_pool_resize(fix.pool, 1, -1, fix.now, &err) < 0);
	cr_assert(sp_err_client_code(&err) == SP_CODE_POOL_DESTROYED);
	cr_assert(sp_pool_reconfigure(fix.pool, &fix.config, fix.now, &err) < 0);
	fixture_settle(&fix);
	cr_assert(fixture_snapshot(&fix).lifecycle == SP_POOL_LIFE_DESTROYED);
	cr_assert(fix.creates == 3 && sp_pool_next_wakeup_ms(fix.pool) == INT64_MAX);
	fix.own_store = false;
	fixture_close(&fix);

	fixture_init(&next, 3);
	next.store = fix.store;
	next.own_store = true;
	fixture_open(&next);
	cr_assert(sp_pool_start(next.pool, next.now, &err) < 0, "the name stays fenced");
	cr_assert(sp_err_client_code(&err) == SP_CODE_POOL_DESTROYED);
	fixture_close(&next);
}

Test(lifecycle, destroy_during_the_refill_leaves_nothing) /* B-119 */
{
	struct fixture fix;
	struct sp_sandbox *making;

	fixture_init(&fix, 2);
	fixture_start(&fix);
	making = fix.creating[0];
	cr_assert(sp_pool_destroy(fix.pool, fix.now, NULL) == 0);
	sp_pool_created(fix.pool, making, fix.now); /* it was under way */
	fixture_settle(&fix);
	cr_assert(fixture_snapshot(&fix).idle == 0 && fix.forgets == 2);
	fixture_close(&fix);
}

Test(lifecycle, an_operators_drain_survives_a_restart)
{
	struct fixture first, second;

	fixture_init(&first, 2);
	fixture_warm(&first);
	sp_pool_drain(first.pool, first.now);
	fixture_settle(&first);
	first.own_store = false;
	fixture_close(&first);
	fixture_init(&second, 2);
	second.store = first.store;
	second.own_store = true;
	fixture_open(&second);
	cr_assert(sp_pool_start(second.pool, second.now, NULL) == 0);
	cr_assert(fixture_snapshot(&second).lifecycle == SP_POOL_LIFE_STOPPED);
	cr_assert(sp_pool_start(second.pool, second.now, NULL) == 0, "the operator resumes it");
	fixture_settle(&second);
	cr_assert(fixture_snapshot(&second).idle == 2);
	fixture_close(&second);
}

Test(lifecycle, a_host_that_leaves_tells_nobody)
{
	struct fixture first, second;

	fixture_init(&first, 2);
	fixture_warm(&first);
	(void)fixture_take(&first, 1);
	sp_pool_leave_host(first.pool, first.now);
	cr_assert(first.ended[SP_END_DRAINED] == 1 && fixture_snapshot(&first).leased == 1);
	fixture_settle(&first);
	fixture_run(&first, 3000);
	cr_assert(fixture_snapshot(&first).lifecycle == SP_POOL_LIFE_DRAINING);
	first.own_store = false;
	fixture_close(&first);
	fixture_init(&second, 2);
	second.store = first.store;
	second.own_store = true;
	fixture_warm(&second);
	cr_assert(fixture_snapshot(&second).idle == 2, "the pool itself was not drained");
	fixture_close(&second);
}

Test(lifecycle, release_idle_empties_and_the_pool_refills) /* P-141, P-151, P-156 */
{
	struct fixture fix;

	fixture_init(&fix, 3);
	fixture_warm(&fix);
	(void)fixture_take(&fix, 1);
	cr_assert(sp_pool_release_idle(fix.pool, fix.now) == 2);
	cr_assert(fixture_snapshot(&fix).idle == 0 && fixture_snapshot(&fix).leased == 1);
	fixture_settle(&fix);
	cr_assert(fixture_snapshot(&fix).idle == 3);
	cr_assert(sp_pool_resize(fix.pool, 0, -1, fix.now, NULL) == 0);
	cr_assert(sp_pool_release_idle(fix.pool, fix.now) == 3);
	fixture_settle(&fix);
	cr_assert(fixture_snapshot(&fix).idle == 0);
	fixture_close(&fix);
}

Test(lifecycle, shutdown_ends_everything_with_its_reason) /* P-136 */
{
	struct fixture fix;

	fixture_init(&fix, 2);
	fixture_start(&fix);
	(void)fixture_ready(&fix);
	(void)fixture_take(&fix, 1);
	sp_pool_shutdown(fix.pool, fix.now);
	cr_assert(fix.ended[SP_END_SHUTDOWN] == 2 && fix.kills == 2);
	cr_assert(fixture_snapshot(&fix).ends_total[SP_END_SHUTDOWN] == 2);
	fixture_close(&fix);
}

Test(lifecycle, two_pools_on_one_store_do_not_meet) /* P-025, P-155 */
{
	struct fixture one, two;

	fixture_init(&one, 2);
	fixture_warm(&one);
	fixture_init(&two, 3);
	(void)snprintf(two.config.name, sizeof(two.config.name), "two");
	two.store = one.store;
	fixture_warm(&two);
	cr_assert(sp_pool_destroy(one.pool, one.now, NULL) == 0);
	fixture_run(&two, 5000);
	cr_assert(fixture_snapshot(&two).idle == 3);
	cr_assert(fixture_snapshot(&two).lifecycle == SP_POOL_LIFE_RUNNING);
	fixture_close(&two);
	fixture_settle(&one);
	fixture_close(&one);
}

static int in_order(void *arg, const struct sp_sandbox *sandbox)
{
	int64_t *last = arg;

	cr_assert(sandbox->created_ms >= *last);
	*last = sandbox->created_ms;
	return sandbox->state == SP_SANDBOX_LEASED ? 7 : 0;
}

Test(lifecycle, each_visits_oldest_first_until_it_is_stopped) /* P-049 */
{
	struct fixture fix;
	int64_t last = 0;

	fixture_init(&fix, 2);
	fixture_warm(&fix);
	fixture_run(&fix, 1000);
	cr_assert(sp_pool_each(fix.pool, in_order, &last) == 0);
	(void)fixture_take(&fix, 1);
	cr_assert(sp_pool_each(fix.pool, in_order, &last) == 7);
	fixture_close(&fix);
}

Test(lifecycle, looking_changes_nothing) /* P-048 */
{
	struct fixture fix;

	fixture_init(&fix, 1);
	fix.config.idle_timeout_ms = 10000;
	fixture_warm(&fix);
	fix.now += 10000;
	cr_assert(fixture_snapshot(&fix).idle == 1 && fixture_snapshot(&fix).idle_expired == 1);
	cr_assert(fixture_snapshot(&fix).idle == 1);
	cr_assert(fix.kills == 0);
	fixture_close(&fix);
}

Test(lifecycle, time_never_goes_back)
{
	struct fixture fix;
	struct sp_sandbox *sandbox;

	fixture_init(&fix, 1);
	fixture_warm(&fix);
	fixture_run(&fix, 10000);
	sandbox = fixture_take(&fix, 1);
	cr_assert(sp_pool_claim(fix.pool, sandbox, 5, NULL) == 0);
	cr_assert(sandbox->expires_ms > fix.now);
	fixture_close(&fix);
}
