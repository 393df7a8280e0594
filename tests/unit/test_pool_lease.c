/*
 * Leases: when they end, what moves the end, what is remembered.
 */
#include "pool_fixture.h"

static struct sp_sandbox *take_for(struct fixture *fix, unsigned int lease, int64_t ttl_ms)
{
	struct sp_acquire_request request = fixture_request(lease, SP_ACQUIRE_FAIL_FAST, 0);

	request.ttl_ms = ttl_ms;
	cr_assert(fixture_ask(fix, &request, NULL) == 0, "%s", fix->message);
	return fix->granted.sandbox;
}

static int again(struct fixture *fix, unsigned int lease, int64_t ttl_ms)
{
	struct sp_acquire_request request = fixture_request(lease, SP_ACQUIRE_FAIL_FAST, 0);

	request.ttl_ms = ttl_ms;
	return fixture_ask(fix, &request, NULL);
}

Test(lease, unclaimed_one_ends_after_the_claim_timeout) /* B-100 */
{
	struct fixture fix;
	struct sp_sandbox *sandbox;

	fixture_init(&fix, 1);
	fixture_warm(&fix);
	sandbox = take_for(&fix, 1, 3600000);
	cr_assert(sandbox->expires_ms == fix.now + 60000);
	fixture_settle(&fix);
	fixture_run(&fix, 59999);
	cr_assert(sandbox->state == SP_SANDBOX_LEASED);
	fixture_run(&fix, 1);
	cr_assert(fix.ended[SP_END_UNCLAIMED] == 1 && fix.kills == 1);
	fixture_close(&fix);
}

Test(lease, claim_timeout_never_exceeds_the_ttl)
{
	struct fixture fix;
	struct sp_sandbox *sandbox;

	fixture_init(&fix, 1);
	fixture_warm(&fix);
	sandbox = take_for(&fix, 1, 5000);
	cr_assert(sandbox->expires_ms == fix.now + 5000);
	fixture_close(&fix);
}

Test(lease, claim_timeout_zero_is_off)
{
	struct fixture fix;
	struct sp_sandbox *sandbox;

	fixture_init(&fix, 1);
	fix.config.claim_timeout_ms = 0;
	fix.config.max_lease_ms = 90000;
	fixture_warm(&fix);
	sandbox = take_for(&fix, 1, 0);
	cr_assert(sandbox->expires_ms == fix.now + 90000, "idle life, capped by max_lease");
	fixture_run(&fix, 90000);
	cr_assert(fix.ended[SP_END_EXPIRED] == 1);
	fixture_close(&fix);
}

Test(lease, first_claim_fixes_the_end_later_ones_do_not_move_it) /* P-075 */
{
	struct fixture fix;
	struct sp_sandbox *sandbox;
	int64_t end;

	fixture_init(&fix, 1);
	fixture_warm(&fix);
	sandbox = take_for(&fix, 1, 100000);
	fix.now += 10000;
	cr_assert(sp_pool_claim(fix.pool, sandbox, fix.now, NULL) == 0 && sandbox->claimed);
	end = fix.now + 100000;
	cr_assert(sandbox->expires_ms == end);
	fix.now += 10000;
	cr_assert(sp_pool_claim(fix.pool, sandbox, fix.now, NULL) == 0);
	cr_assert(sandbox->expires_ms == end);
	fixture_run(&fix, 90000);
	cr_assert(fix.ended[SP_END_EXPIRED] == 1);
	fixture_close(&fix);
}

Test(lease, ttl_is_capped_by_max_lease)
{
	struct fixture fix;
	struct sp_sandbox *sandbox;

	fixture_init(&fix, 1);
	fix.config.max_lease_ms = 30000;
	fixture_warm(&fix);
	sandbox = take_for(&fix, 1, INT64_MAX);
	cr_assert(sp_pool_claim(fix.pool, sandbox, fix.now, NULL) == 0);
	cr_assert(sandbox->expires_ms == fix.now + 30000);
	fixture_close(&fix);
}

Test(lease, ttl_zero_keeps_what_remained_of_the_idle_life) /* B-124 */
{
	struct fixture fix;
	struct sp_sandbox *sandbox;

	fixture_init(&fix, 1);
	fix.config.idle_timeout_ms = 600000;
	fixture_warm(&fix);
	fix.now += 100000;
	sandbox = take_for(&fix, 1, 0);
	cr_assert(fix.granted.remaining_ms == 500000);
	fix.now += 7;
	cr_assert(sp_pool_claim(fix.pool, sandbox, fix.now, NULL) == 0);
	cr_assert(sandbox->expires_ms == fix.now + 500000);
	fixture_close(&fix);
}

Test(lease, is_compared_with_the_clock_at_use) /* B-103, B-128 */
{
	struct fixture fix;
	struct sp_sandbox *sandbox;
	struct sp_err err;

	fixture_init(&fix, 1);
	fixture_warm(&fix);
	sandbox = take_for(&fix, 1, 100000);
	cr_assert(sp_pool_claim(fix.pool, sandbox, fix.now, NULL) == 0);
	fix.now += 100000; /* slept; no tick has run */
	cr_assert(sp_pool_claim(fix.pool, sandbox, fix.now, &err) < 0);
	cr_assert(sp_err_client_code(&err) == SP_CODE_LEASE_ENDED);
	cr_assert(sandbox->state == SP_SANDBOX_KILLING && fix.kills == 0);
	cr_assert(sp_pool_claim(fix.pool, sandbox, fix.now, &err) < 0);
	sp_pool_tick(fix.pool, fix.now);
	cr_assert(fix.kills == 1);
	fixture_close(&fix);
}

Test(lease, renewal_moves_the_end_on_and_never_back) /* B-094 */
{
	struct fixture fix;
	struct sp_sandbox *sandbox;
	int64_t expires;
	struct sp_err err;

	fixture_init(&fix, 1);
	fix.config.max_lease_ms = 200000;
	fixture_warm(&fix);
	sandbox = take_for(&fix, 1, 50000);
	cr_assert(sp_pool_renew(fix.pool, sandbox, 120000, fix.now, &expires, &err) == 0);
	cr_assert(sandbox->claimed, "a renewal counts as a claim");
	cr_assert(expires == fix.now + 120000 && sandbox->expires_ms == expires);
	fix.now += 1000;
	cr_assert(sp_pool_renew(fix.pool, sandbox, 1, fix.now, &expires, &err) == 0);
	cr_assert(expires == fix.now - 1000 + 120000);
	cr_assert(sp_pool_renew(fix.pool, sandbox, 200000, fix.now, &expires, &err) == 0);
	cr_assert(expires == fix.now + 200000);
	cr_assert(sp_pool_renew(fix.pool, sandbox, 200001, fix.now, &expires, &err) == -EINVAL);
	cr_assert(strstr(err.message, "max_lease"));
	cr_assert(sp_pool_renew(fix.pool, sandbox, 0, fix.now, &expires, &err) == -EINVAL);
	cr_assert(sp_pool_renew(fix.pool, sandbox, INT64_MAX, fix.now, &expires, &err) == -EINVAL);
	fixture_run(&fix, 199999);
	cr_assert(sandbox->state == SP_SANDBOX_LEASED);
	fixture_run(&fix, 1);
	cr_assert(fix.ended[SP_END_EXPIRED] == 1);
	fixture_close(&fix);
}

Test(lease, renewal_at_the_very_end_is_too_late) /* B-094 */
{
	struct fixture fix;
	struct sp_sandbox *sandbox;
	int64_t expires = -1;
	struct sp_err err;

	fixture_init(&fix, 1);
	fixture_warm(&fix);
	sandbox = take_for(&fix, 1, 50000);
	cr_assert(sp_pool_claim(fix.pool, sandbox, fix.now, NULL) == 0);
	fix.now += 50000;
	cr_assert(sp_pool_renew(fix.pool, sandbox, 1000, fix.now, &expires, &err) < 0);
	cr_assert(sp_err_client_code(&err) == SP_CODE_LEASE_ENDED && expires == -1);
	fixture_close(&fix);
}

Test(lease, release_is_idempotent) /* B-102 */
{
	struct fixture fix;
	struct sp_sandbox *sandbox;

	fixture_init(&fix, 1);
	fixture_warm(&fix);
	sandbox = take_for(&fix, 1, 0);
	sp_pool_release(fix.pool, sandbox, fix.now);
	sp_pool_release(fix.pool, sandbox, fix.now);
	cr_assert(fix.ended[SP_END_RELEASED] == 1 && fix.kills == 1);
	cr_assert(sandbox->end_reason == SP_END_RELEASED);
	fixture_close(&fix);
}

Test(lease, asking_again_gives_the_same_sandbox)
{
	struct fixture fix;
	struct sp_sandbox *sandbox;

	fixture_init(&fix, 2);
	fixture_warm(&fix);
	sandbox = take_for(&fix, 1, 70000);
	fix.now += 10;
	cr_assert(again(&fix, 1, 70000) == 0);
	cr_assert(fix.granted.sandbox == sandbox && fix.granted.repeated);
	cr_assert(strcmp(fix.result, "repeated") == 0);
	cr_assert(fixture_snapshot(&fix).leased == 1);
	cr_assert(again(&fix, 1, 70001) < 0, "another ttl");
	cr_assert(fix.refused == SP_CODE_LEASE_MISMATCH);
	cr_assert(strcmp(fix.result, "lease_mismatch") == 0);
	sp_pool_drain(fix.pool, fix.now);
	cr_assert(again(&fix, 1, 70000) == 0, "a drain does not take it away");
	fixture_close(&fix);
}

Test(lease, another_policy_is_a_mismatch)
{
	struct fixture fix;
	struct sp_acquire_request request = fixture_request(1, SP_ACQUIRE_WAIT, 100);

	fixture_init(&fix, 2);
	fixture_warm(&fix);
	(void)take_for(&fix, 1, 0);
	cr_assert(fixture_ask(&fix, &request, NULL) < 0);
	cr_assert(fix.refused == SP_CODE_LEASE_MISMATCH);
	fixture_close(&fix);
}

Test(lease, tombstone_answers_for_ten_minutes) /* P-204 */
{
	struct fixture fix;
	struct sp_sandbox *sandbox;
	char lease_id[SP_LEASE_ID_LEN + 1];

	fixture_init(&fix, 1);
	fixture_warm(&fix);
	sandbox = take_for(&fix, 1, 0);
	fixture_lease(lease_id, 1);
	cr_assert(sp_pool_find_lease(fix.pool, lease_id) == sandbox);
	sp_pool_release(fix.pool, sandbox, fix.now);
	cr_assert(sp_pool_find_lease(fix.pool, lease_id) == NULL);
	fixture_settle(&fix);
	cr_assert(again(&fix, 1, 0) < 0 && fix.refused == SP_CODE_LEASE_ENDED);
	cr_assert(strcmp(fix.result, "lease_ended") == 0);
	fix.now += SP_LEASE_TOMBSTONE_MS;
	cr_assert(again(&fix, 1, 0) < 0 && fix.refused == SP_CODE_LEASE_ENDED);
	fix.now += 1;
	cr_assert(again(&fix, 1, 0) == 0, "forgotten: a new lease");
	fixture_close(&fix);
}

Test(lease, an_acquire_after_the_end_sees_the_tombstone_before_the_tick)
{
	struct fixture fix;

	fixture_init(&fix, 2);
	fixture_warm(&fix);
	(void)take_for(&fix, 1, 0);
	fix.now += 60000;
	cr_assert(again(&fix, 1, 0) < 0 && fix.refused == SP_CODE_LEASE_ENDED);
	cr_assert(fix.ended[SP_END_UNCLAIMED] == 1 && fix.kills == 0);
	fixture_close(&fix);
}

Test(lease, tombstones_are_bounded_oldest_first, .timeout = 60)
{
	struct fixture fix;

	fixture_init(&fix, 1);
	fixture_warm(&fix);
	for (unsigned int i = 0; i <= SP_LEASE_TOMBSTONES_LIMIT; i++) {
		struct sp_acquire_request request = fixture_request(i, SP_ACQUIRE_FAIL_FAST, 0);
		struct sp_acquire_result result;
		struct sp_acquire *pending;

		cr_assert(sp_pool_acquire(fix.pool, &request, fix.now, fixture_acquired, &fix,
					  &result, &pending, NULL) == 0);
		sp_pool_release(fix.pool, result.sandbox, fix.now);
		sp_pool_gone(fix.pool, result.sandbox, fix.now);
		sp_pool_tick(fix.pool, fix.now);
		sp_pool_created(fix.pool, fix.creating[0], fix.now);
		fix.creating_count = 0;
	}
	cr_assert(again(&fix, 0, 0) == 0, "the oldest was forgotten for the last");
	cr_assert(again(&fix, 1, 0) < 0 && fix.refused == SP_CODE_LEASE_ENDED);
	fixture_close(&fix);
}

Test(lease, a_vanished_client_costs_at_most_its_lease) /* B-101 */
{
	struct fixture fix;
	struct sp_sandbox *sandbox;

	fixture_init(&fix, 1);
	fix.config.max_total = 1;
	fixture_warm(&fix);
	sandbox = take_for(&fix, 1, 30000);
	cr_assert(sp_pool_claim(fix.pool, sandbox, fix.now, NULL) == 0);
	fixture_run(&fix, 30000);
	fixture_settle(&fix);
	cr_assert(fixture_snapshot(&fix).idle == 1, "capacity is back");
	cr_assert(fix.ended[SP_END_EXPIRED] == 1);
	fixture_close(&fix);
}

Test(lease, death_of_a_leased_sandbox_ends_the_lease)
{
	struct fixture fix;
	struct sp_sandbox *sandbox;
	struct sp_err err;

	fixture_init(&fix, 1);
	fixture_warm(&fix);
	sandbox = take_for(&fix, 1, 0);
	sp_pool_died(fix.pool, sandbox, fix.now);
	cr_assert(fix.ended[SP_END_DIED] == 1 && fix.kills == 0, "gone follows by itself");
	cr_assert(sp_pool_claim(fix.pool, sandbox, fix.now, &err) < 0);
	fixture_run(&fix, fix.config.kill_retry_ms);
	cr_assert(fix.kills == 1, "it did not follow: ask");
	fixture_close(&fix);
}

Test(lease, find_knows_every_sandbox_until_it_is_gone)
{
	struct fixture fix;
	struct sp_sandbox *sandbox;
	char id[SP_SANDBOX_ID_LEN + 1];

	fixture_init(&fix, 1);
	fixture_warm(&fix);
	sandbox = take_for(&fix, 1, 0);
	memcpy(id, sandbox->id, sizeof(id));
	cr_assert(sp_pool_find(fix.pool, id) == sandbox && sp_sandbox_id_valid(id));
	sp_pool_release(fix.pool, sandbox, fix.now);
	cr_assert(sp_pool_find(fix.pool, id) == sandbox);
	sp_pool_gone(fix.pool, sandbox, fix.now);
	cr_assert(sp_pool_find(fix.pool, id) == NULL);
	fixture_close(&fix);
}
