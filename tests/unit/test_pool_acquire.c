/*
 * Acquire: what is handed out, what is passed over, what is refused, and that none of it waits.
 */
#include "pool_fixture.h"

static int ask(struct fixture *fix, unsigned int lease, enum sp_acquire_policy policy,
	       int64_t wait_ms)
{
	struct sp_acquire_request request = fixture_request(lease, policy, wait_ms);

	return fixture_ask(fix, &request, NULL);
}

Test(acquire, of_an_empty_pool_says_so) /* P-012, P-060, P-064 */
{
	struct fixture fix;

	fixture_init(&fix, 0);
	fixture_warm(&fix);
	cr_assert(ask(&fix, 1, SP_ACQUIRE_FAIL_FAST, 5000) < 0);
	cr_assert(fix.refused == SP_CODE_POOL_EMPTY && strcmp(fix.result, "empty") == 0);
	cr_assert(strstr(fix.message, "'default'") && strstr(fix.message, "fail_fast"));
	cr_assert(fix.remaining == -1 && fix.idle_age == -1);
	cr_assert(ask(&fix, 2, SP_ACQUIRE_RETRY_NEXT, 5000) < 0);
	cr_assert(fix.refused == SP_CODE_POOL_EMPTY);
	cr_assert(ask(&fix, 3, SP_ACQUIRE_WAIT, 0) < 0);
	cr_assert(fix.refused == SP_CODE_POOL_EMPTY);
	cr_assert(fix.creates == 0, "nobody creates behind the caller's back");
	fixture_close(&fix);
}

Test(acquire, gives_the_oldest_idle_one_first) /* P-021, P-063 */
{
	struct fixture fix;
	struct sp_sandbox *made[3];

	fixture_init(&fix, 3);
	fixture_start(&fix);
	for (size_t i = 0; i < 3; i++) {
		fix.now += 10;
		made[i] = fixture_ready(&fix);
	}
	for (unsigned int i = 0; i < 3; i++)
		cr_assert(fixture_take(&fix, i) == made[i]);
	cr_assert(strcmp(fix.result, "hit") == 0 && fix.idle_age == 0);
	cr_assert(fix.remaining == fix.config.idle_timeout_ms);
	cr_assert(!fix.granted.waited && !fix.granted.repeated);
	fixture_close(&fix);
}

Test(acquire, gives_the_newest_first_when_asked_to)
{
	struct fixture fix;
	struct sp_acquire_request request = fixture_request(1, SP_ACQUIRE_FAIL_FAST, 0);
	struct sp_sandbox *newest;

	fixture_init(&fix, 2);
	fixture_start(&fix);
	(void)fixture_ready(&fix);
	newest = fixture_ready(&fix);
	request.newest_first = true;
	cr_assert(fixture_ask(&fix, &request, NULL) == 0);
	cr_assert(fix.granted.sandbox == newest);
	fixture_close(&fix);
}

Test(acquire, binds_for_ever) /* P-022, P-084, B-099 */
{
	struct fixture fix;
	struct sp_sandbox *taken[8];

	fixture_init(&fix, 8);
	fixture_warm(&fix);
	for (unsigned int i = 0; i < 8; i++) {
		taken[i] = fixture_take(&fix, i);
		for (unsigned int j = 0; j < i; j++)
			cr_assert(taken[j] != taken[i]);
	}
	cr_assert(ask(&fix, 9, SP_ACQUIRE_FAIL_FAST, 0) < 0);
	sp_pool_release(fix.pool, taken[0], fix.now);
	cr_assert(ask(&fix, 10, SP_ACQUIRE_FAIL_FAST, 0) < 0, "a used one never comes back");
	fixture_close(&fix);
}

static void short_lives(struct fixture *fix, uint32_t max_idle)
{
	fixture_init(fix, max_idle);
	fix->config.idle_timeout_ms = 10000;
	fix->config.acquire_min_remaining_ttl_ms = 6000;
	fix->config.refresh_margin_ms = 0;
}

Test(acquire, refuses_at_the_minimum_and_gives_above_it) /* B-091, P-030, P-032 */
{
	struct fixture fix;

	short_lives(&fix, 2);
	fixture_warm(&fix);
	fix.now += 3999;
	cr_assert(fixture_take(&fix, 1) != NULL);
	cr_assert(fix.granted.remaining_ms == 6001);
	fix.now += 1;
	cr_assert(ask(&fix, 2, SP_ACQUIRE_FAIL_FAST, 0) < 0, "6000 ms left is not more than 6000");
	cr_assert(fix.refused == SP_CODE_POOL_EMPTY);
	cr_assert(fix.ended[SP_END_DISCARDED] == 1);
	fixture_close(&fix);
}

Test(acquire, never_kills_on_the_callers_path) /* P-076, P-077, B-092, B-098 */
{
	struct fixture fix;

	short_lives(&fix, 3);
	fixture_warm(&fix);
	fix.now += 4000;
	cr_assert(ask(&fix, 1, SP_ACQUIRE_FAIL_FAST, 0) < 0);
	cr_assert(fix.kills == 0 && fixture_snapshot(&fix).killing == 3);
	cr_assert(sp_pool_next_wakeup_ms(fix.pool) == fix.now, "the next tick is due now");
	sp_pool_tick(fix.pool, fix.now);
	cr_assert(fix.kills == 3);
	cr_assert(fix.creating_count == 3, "and replaces them");
	fixture_close(&fix);
}

Test(acquire, drops_expired_ones_on_every_path) /* P-031, P-038, B-093 */
{
	struct fixture fix;

	enum sp_acquire_policy policies[] = {SP_ACQUIRE_FAIL_FAST, SP_ACQUIRE_RETRY_NEXT};

	for (size_t i = 0; i < SP_ARRAY_SIZE(policies); i++) {
		short_lives(&fix, 2);
		fixture_warm(&fix);
		fix.now += 10000;
		cr_assert(ask(&fix, 1, policies[i], 0) < 0);
		cr_assert(fix.refused == SP_CODE_POOL_EMPTY);
		cr_assert(fix.ended[SP_END_EXPIRED] == 2);
		fixture_close(&fix);
	}
}

Test(acquire, passes_over_expired_heads_to_a_good_one) /* P-031, P-067 */
{
	struct fixture fix;
	struct sp_sandbox *young;

	short_lives(&fix, 2);
	fixture_start(&fix);
	(void)fixture_ready(&fix);
	fix.now += 3000;
	young = fixture_ready(&fix);
	fix.now += 2000;
	cr_assert(fixture_take(&fix, 1) == young);
	cr_assert(fix.ended[SP_END_DISCARDED] == 1);
	fixture_close(&fix);
}

Test(acquire, minimum_of_zero_gives_everything_alive) /* P-033 */
{
	struct fixture fix;

	short_lives(&fix, 1);
	fix.config.acquire_min_remaining_ttl_ms = 0;
	fixture_warm(&fix);
	fix.now += 9999;
	cr_assert(fixture_take(&fix, 1) != NULL);
	cr_assert(fix.granted.remaining_ms == 1);
	fixture_close(&fix);
}

Test(acquire, a_picky_caller_leaves_good_ones_to_others) /* B-097 */
{
	struct fixture fix;
	struct sp_acquire_request request = fixture_request(1, SP_ACQUIRE_FAIL_FAST, 0);

	short_lives(&fix, 2);
	fixture_warm(&fix);
	fix.now += 2000;
	request.min_remaining_ms = 8000;
	cr_assert(fixture_ask(&fix, &request, NULL) < 0);
	cr_assert(fixture_snapshot(&fix).idle == 2);
	request.min_remaining_ms = 7999;
	cr_assert(fixture_ask(&fix, &request, NULL) == 0);
	fixture_close(&fix);
}

Test(acquire, dead_ones_have_left_the_pool) /* B-089, P-061, P-065 */
{
	struct fixture fix;
	struct sp_sandbox *first, *second;

	fixture_init(&fix, 2);
	fixture_start(&fix);
	first = fixture_ready(&fix);
	second = fixture_ready(&fix);
	sp_pool_died(fix.pool, first, fix.now);
	cr_assert(fixture_take(&fix, 1) == second);
	cr_assert(fix.ended[SP_END_DIED] == 1);
	cr_assert(sp_pool_next_wakeup_ms(fix.pool) == fix.now, "and are replaced at once");
	fixture_close(&fix);
}

Test(acquire, wakes_the_reconciler) /* B-112 */
{
	struct fixture fix;

	fixture_init(&fix, 1);
	fixture_warm(&fix);
	cr_assert(sp_pool_next_wakeup_ms(fix.pool) > fix.now);
	(void)fixture_take(&fix, 1);
	cr_assert(sp_pool_next_wakeup_ms(fix.pool) == fix.now);
	fixture_close(&fix);
}

Test(acquire, create_gives_the_new_one_to_its_caller) /* P-012, P-062, P-068, P-069, P-117, P-151 */
{
	struct fixture fix;
	struct sp_sandbox *sandbox;

	fixture_init(&fix, 0);
	fixture_warm(&fix);
	cr_assert(ask(&fix, 1, SP_ACQUIRE_CREATE, 5000) == 1);
	cr_assert(fix.creating_count == 1 && fix.callbacks == 0);
	fix.now += 30;
	sandbox = fixture_ready(&fix);
	cr_assert(fix.callbacks == 1 && fix.granted.sandbox == sandbox && fix.granted.waited);
	cr_assert(strcmp(fix.result, "created") == 0 && fix.waited == 30 && fix.idle_age == 0);
	cr_assert(fix.granted.remaining_ms == fix.config.idle_timeout_ms, "since ready");
	cr_assert(ask(&fix, 2, SP_ACQUIRE_RETRY_NEXT_THEN_CREATE, 5000) == 1);
	(void)fixture_ready(&fix);
	cr_assert(fix.callbacks == 2);
	cr_assert(fixture_snapshot(&fix).idle == 0, "it never enters idle"); /* P-163 */
	fixture_close(&fix);
}

Test(acquire, create_takes_an_idle_one_if_there_is_one)
{
	struct fixture fix;

	fixture_init(&fix, 1);
	fixture_warm(&fix);
	cr_assert(ask(&fix, 1, SP_ACQUIRE_CREATE, 5000) == 0);
	cr_assert(fix.creating_count == 0);
	fixture_close(&fix);
}

Test(acquire, create_without_time_cannot_create)
{
	struct fixture fix;

	fixture_init(&fix, 0);
	fixture_warm(&fix);
	cr_assert(ask(&fix, 1, SP_ACQUIRE_CREATE, 0) < 0);
	cr_assert(fix.refused == SP_CODE_ACQUIRE_TIMEOUT && fix.creates == 0);
	fixture_close(&fix);
}

Test(acquire, direct_creations_are_capped) /* V-16 */
{
	struct fixture fix;

	fixture_init(&fix, 0);
	fix.config.max_direct_creates = 2;
	fix.config.max_waiters = 1;
	fixture_warm(&fix);
	cr_assert(ask(&fix, 1, SP_ACQUIRE_CREATE, 5000) == 1);
	cr_assert(ask(&fix, 2, SP_ACQUIRE_CREATE, 5000) == 1);
	cr_assert(ask(&fix, 3, SP_ACQUIRE_CREATE, 5000) == 1, "the third waits for a slot");
	fixture_run(&fix, 0);
	cr_assert(fix.creating_count == 2);
	cr_assert(ask(&fix, 4, SP_ACQUIRE_CREATE, 5000) < 0);
	cr_assert(fix.refused == SP_CODE_POOL_SATURATED && strcmp(fix.result, "saturated") == 0);
	(void)fixture_ready(&fix);
	fixture_run(&fix, 0);
	cr_assert(fix.creating_count == 2, "a slot is free again");
	fixture_settle(&fix);
	cr_assert(fix.callbacks == 3);
	fixture_close(&fix);
}

Test(acquire, callers_that_vanish_do_not_free_slots_early)
{
	struct fixture fix;
	struct sp_acquire_request request = fixture_request(1, SP_ACQUIRE_CREATE, 5000);
	struct sp_acquire *pending;

	fixture_init(&fix, 0);
	fix.config.max_direct_creates = 1;
	fixture_warm(&fix);
	cr_assert(fixture_ask(&fix, &request, &pending) == 1);
	sp_acquire_cancel(pending, fix.now);
	fixture_run(&fix, 0);
	cr_assert(fix.killing_count == 1, "nobody wants it any more");
	fixture_lease(request.lease_id, 2);
	cr_assert(fixture_ask(&fix, &request, &pending) == 1);
	fixture_run(&fix, 0);
	cr_assert(fix.creating_count == 0, "the slot is taken until the first is gone");
	fixture_settle(&fix);
	cr_assert(fix.callbacks == 1 && fix.refused == SP_CODE_NONE);
	fixture_close(&fix);
}

Test(acquire, max_total_counts_everything_that_is_not_gone)
{
	struct fixture fix;
	struct sp_sandbox *sandbox;

	fixture_init(&fix, 2);
	fix.config.max_total = 2;
	fixture_warm(&fix);
	sandbox = fixture_take(&fix, 1);
	(void)fixture_take(&fix, 2);
	fixture_run(&fix, 0);
	cr_assert(fix.creating_count == 0);
	cr_assert(ask(&fix, 3, SP_ACQUIRE_CREATE, 5000) < 0);
	cr_assert(fix.refused == SP_CODE_POOL_SATURATED);
	cr_assert(strstr(fix.message, "max_total"));
	sp_pool_release(fix.pool, sandbox, fix.now);
	fixture_run(&fix, 0);
	cr_assert(fix.creating_count == 0, "the dying one still counts");
	sp_pool_gone(fix.pool, sandbox, fix.now);
	fixture_run(&fix, 0);
	cr_assert(fix.creating_count == 1);
	fixture_close(&fix);
}

Test(acquire, a_failed_creation_is_told_to_its_caller) /* P-074, P-157 */
{
	struct fixture fix;

	fixture_init(&fix, 0);
	fixture_warm(&fix);
	cr_assert(ask(&fix, 1, SP_ACQUIRE_CREATE, 5000) == 1);
	fixture_fail(&fix, false);
	cr_assert(fix.callbacks == 1 && fix.refused == SP_CODE_CREATE_FAILED);
	cr_assert(strstr(fix.message, "mount '/usr'"), "%s", fix.message);
	cr_assert(strcmp(fix.result, "create_failed") == 0 && strcmp(fix.stage, "mount") == 0);
	cr_assert(fix.creates == 1, "one attempt"); /* P-186 */
	fixture_close(&fix);
}

Test(acquire, a_refused_creation_is_told_at_once)
{
	struct fixture fix;

	fixture_init(&fix, 0);
	fixture_warm(&fix);
	fix.refuse_create = -EAGAIN;
	cr_assert(ask(&fix, 1, SP_ACQUIRE_CREATE, 5000) < 0);
	cr_assert(fix.refused == SP_CODE_CREATE_FAILED && fix.callbacks == 0);
	cr_assert(strcmp(fix.stage, "admission") == 0);
	cr_assert(fixture_snapshot(&fix).waiters == 0 && fixture_snapshot(&fix).creating == 0);
	fixture_close(&fix);
}

Test(acquire, is_refused_unless_the_pool_runs) /* P-078, P-081 */
{
	struct fixture fix;

	fixture_init(&fix, 1);
	fixture_open(&fix);
	cr_assert(ask(&fix, 1, SP_ACQUIRE_CREATE, 5000) < 0);
	cr_assert(fix.refused == SP_CODE_POOL_NOT_RUNNING);
	cr_assert(strcmp(fix.result, "not_running") == 0);
	cr_assert(sp_pool_start(fix.pool, fix.now, NULL) == 0);
	fixture_settle(&fix);
	sp_pool_drain(fix.pool, fix.now);
	cr_assert(ask(&fix, 2, SP_ACQUIRE_FAIL_FAST, 0) < 0);
	cr_assert(fix.refused == SP_CODE_POOL_NOT_RUNNING);
	cr_assert(sp_pool_destroy(fix.pool, fix.now, NULL) == 0);
	cr_assert(ask(&fix, 3, SP_ACQUIRE_CREATE, 5000) < 0);
	cr_assert(fix.refused == SP_CODE_POOL_DESTROYED); /* P-079 */
	cr_assert(strcmp(fix.result, "destroyed") == 0 && fix.creating_count == 0);
	fixture_close(&fix);
}

Test(acquire, checks_what_it_is_given) /* B-125 */
{
	struct fixture fix;
	struct sp_acquire_request good = fixture_request(1, SP_ACQUIRE_FAIL_FAST, 0);
	struct sp_acquire_request request = good;

	fixture_init(&fix, 1);
	fixture_warm(&fix);
	request.ttl_ms = -1;
	cr_assert(fixture_ask(&fix, &request, NULL) == -EINVAL && strstr(fix.message, "ttl"));
	request = good;
	request.wait_ms = -1;
	cr_assert(fixture_ask(&fix, &request, NULL) == -EINVAL && strstr(fix.message, "wait"));
	request = good;
	request.lease_id[0] = 'X';
	cr_assert(fixture_ask(&fix, &request, NULL) == -EINVAL && strstr(fix.message, "lease_id"));
	request = good;
	request.policy = SP_ACQUIRE_POLICY_COUNT;
	cr_assert(fixture_ask(&fix, &request, NULL) == -EINVAL && strstr(fix.message, "policy"));
	request = good;
	request.min_remaining_ms = -2;
	cr_assert(fixture_ask(&fix, &request, NULL) == -EINVAL);
	request.min_remaining_ms = fix.config.idle_timeout_ms;
	cr_assert(fixture_ask(&fix, &request, NULL) == -EINVAL, "no sandbox could ever satisfy it");
	request.min_remaining_ms = fix.config.idle_timeout_ms - 1;
	cr_assert(fixture_ask(&fix, &request, NULL) == 0);
	request = good;
	fixture_lease(request.lease_id, 2);
	request.policy = SP_ACQUIRE_WAIT;
	request.ttl_ms = INT64_MAX;
	request.wait_ms = INT64_MAX;
	cr_assert(fixture_ask(&fix, &request, NULL) == 1, "huge values do not wrap");
	fixture_close(&fix);
	cr_assert(fix.callbacks == 1 && fix.refused == SP_CODE_POOL_NOT_RUNNING);
}
