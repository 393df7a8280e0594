/*
 * The pool over a store whose answers come late, differently, or not at all. The store here is a
 * script: it keeps the questions, the test gives the answers.
 */
#include "pool_fixture.h"

#define QUESTIONS_MAX 64

struct question {
	void (*share)(void *, const struct sp_store_share *, const struct sp_err *);
	sp_store_publish_cb *verdict;
	void (*meta)(void *, const struct sp_store_meta *, const struct sp_err *);
	void *arg;
	char sandbox_id[SP_SANDBOX_ID_LEN + 1];
	struct sp_store_meta wish;
	struct sp_store_counts counts;
};

struct script {
	struct sp_store store;
	struct question heartbeats[QUESTIONS_MAX], publishes[QUESTIONS_MAX], metas[QUESTIONS_MAX];
	size_t heartbeat_count, publish_count, meta_count;
	size_t updates;
	enum sp_sandbox_state last_update;
	bool away; /* calls fail at once */
};

static struct script script;

static struct question *keep(struct question *list, size_t *count)
{
	cr_assert(*count < QUESTIONS_MAX);
	memset(&list[*count], 0, sizeof(*list));
	return &list[(*count)++];
}

static struct question next(struct question *list, size_t *count)
{
	struct question first = list[0];

	cr_assert(*count > 0, "nothing was asked");
	memmove(list, list + 1, --*count * sizeof(*list));
	return first;
}

static int on_heartbeat(struct sp_store *store, const char *pool,
			const struct sp_store_counts *counts, int64_t now_ms,
			void (*cb)(void *, const struct sp_store_share *, const struct sp_err *),
			void *arg)
{
	struct question *question;

	(void)store;
	(void)pool;
	(void)now_ms;
	if (script.away)
		return -ENOTCONN;
	question = keep(script.heartbeats, &script.heartbeat_count);
	question->share = cb;
	question->arg = arg;
	question->counts = *counts;
	return 0;
}

static int on_publish(struct sp_store *store, const char *pool, const struct sp_sandbox *sandbox,
		      int64_t now_ms, sp_store_publish_cb *cb, void *arg)
{
	struct question *question;

	(void)store;
	(void)pool;
	(void)now_ms;
	if (script.away)
		return -ENOTCONN;
	question = keep(script.publishes, &script.publish_count);
	question->verdict = cb;
	question->arg = arg;
	memcpy(question->sandbox_id, sandbox->id, sizeof(question->sandbox_id));
	return 0;
}

static void on_update(struct sp_store *store, const char *pool, const struct sp_sandbox *sandbox,
		      int64_t now_ms)
{
	(void)store;
	(void)pool;
	(void)now_ms;
	script.updates++;
	script.last_update = sandbox->state;
}

static int on_meta_set(struct sp_store *store, const char *pool, const struct sp_store_meta *meta,
		       uint64_t expected_revision, int64_t now_ms,
		       void (*cb)(void *, const struct sp_store_meta *, const struct sp_err *),
		       void *arg)
{
	struct question *question;

	(void)store;
	(void)pool;
	(void)now_ms;
	(void)expected_revision;
	if (script.away)
		return -ENOTCONN;
	question = keep(script.metas, &script.meta_count);
	question->meta = cb;
	question->arg = arg;
	question->wish = *meta;
	return 0;
}

static bool is_up(const struct sp_store *store)
{
	(void)store;
	return !script.away;
}

static void nothing(struct sp_store *store)
{
	(void)store;
}

static const struct sp_store_ops script_ops = {
	.heartbeat = on_heartbeat,
	.publish = on_publish,
	.update = on_update,
	.meta_set = on_meta_set,
	.up = is_up,
	.free = nothing,
};

static void open_script(struct fixture *fix, uint32_t max_idle)
{
	memset(&script, 0, sizeof(script));
	script.store.ops = &script_ops;
	fixture_init(fix, max_idle);
	fix->store = &script.store;
}

static void answer_share(struct fixture *fix, uint32_t share, const struct sp_store_meta *meta)
{
	struct question question = next(script.heartbeats, &script.heartbeat_count);
	struct sp_store_share answer = {.share = share, .valid_ms = 5000};

	if (meta)
		answer.meta = *meta;
	question.share(question.arg, &answer, NULL);
	if (fix) {
		fixture_check(fix);
		fixture_run(fix, 0);
	}
}

static void tell(const struct question *question, enum sp_store_verdict verdict,
		 const char *lease_id, const struct sp_err *err)
{
	const struct sp_store_listing listing = {
		.sandbox_id = question->sandbox_id,
		.verdict = verdict,
		.lease_id = lease_id,
	};

	question->verdict(question->arg, &listing, err);
}

static void answer_publish(struct fixture *fix, enum sp_store_verdict verdict, const char *lease_id)
{
	struct question question = next(script.publishes, &script.publish_count);

	tell(&question, verdict, lease_id, NULL);
	if (fix)
		fixture_check(fix);
}

static const struct sp_err outage = {.status = -ENOTCONN, .message = "no connection"};

static int fail_fast(struct fixture *fix, unsigned int lease)
{
	struct sp_acquire_request request = fixture_request(lease, SP_ACQUIRE_FAIL_FAST, 0);

	return fixture_ask(fix, &request, NULL);
}

/* A started pool with a share of `share` and that many idle and listed. */
static void warm_script(struct fixture *fix, uint32_t max_idle, uint32_t share)
{
	open_script(fix, max_idle);
	fixture_start(fix);
	answer_share(fix, share, NULL);
	for (uint32_t i = 0; i < share; i++) {
		(void)fixture_ready(fix);
		answer_publish(fix, SP_STORE_LISTED, "");
	}
}

Test(directory, creates_nothing_before_it_has_a_share) /* P-108, P-110 */
{
	struct fixture fix;

	open_script(&fix, 8);
	fixture_start(&fix);
	cr_assert(fix.creates == 0 && script.heartbeat_count == 1);
	cr_assert(script.heartbeats[0].counts.configured_max_idle == 8);
	answer_share(&fix, 3, NULL);
	cr_assert(fix.creates == 3, "its part of max_idle");
	fixture_close(&fix);
}

Test(directory, an_unlisted_sandbox_is_not_handed_out) /* P-203 */
{
	struct fixture fix;

	open_script(&fix, 1);
	fixture_start(&fix);
	answer_share(&fix, 1, NULL);
	(void)fixture_ready(&fix);
	cr_assert(fixture_snapshot(&fix).idle == 1);
	cr_assert(fail_fast(&fix, 1) < 0 && fix.refused == SP_CODE_POOL_EMPTY);
	answer_publish(&fix, SP_STORE_LISTED, "");
	cr_assert(fail_fast(&fix, 2) == 0);
	fixture_close(&fix);
}

Test(directory, a_waiter_that_came_meanwhile_gets_it_when_it_is_listed)
{
	struct fixture fix;
	struct sp_acquire_request request = fixture_request(1, SP_ACQUIRE_WAIT, 5000);

	open_script(&fix, 1);
	fixture_start(&fix);
	answer_share(&fix, 1, NULL);
	(void)fixture_ready(&fix);
	cr_assert(fixture_ask(&fix, &request, NULL) == 1);
	answer_publish(&fix, SP_STORE_LISTED, "");
	cr_assert(fix.callbacks == 1 && fix.granted.sandbox);
	fixture_close(&fix);
}

Test(directory, a_listing_does_not_go_to_a_waiter_whose_time_is_over)
{
	struct fixture fix;
	struct sp_acquire_request request = fixture_request(1, SP_ACQUIRE_WAIT, 100);

	open_script(&fix, 1);
	fixture_start(&fix);
	answer_share(&fix, 1, NULL);
	(void)fixture_ready(&fix);
	cr_assert(fixture_ask(&fix, &request, NULL) == 1);
	fix.now += 100;
	cr_assert(fail_fast(&fix, 2) < 0, "the pool has seen the time, no tick has run");
	answer_publish(&fix, SP_STORE_LISTED, "");
	cr_assert(fix.callbacks == 1 && fix.refused == SP_CODE_ACQUIRE_TIMEOUT);
	cr_assert(fixture_snapshot(&fix).idle == 1);
	fixture_close(&fix);
}

Test(directory, an_outage_lists_locally) /* P-070 … P-072 */
{
	struct fixture fix;
	struct question question;

	open_script(&fix, 2);
	fixture_start(&fix);
	answer_share(&fix, 2, NULL);
	(void)fixture_ready(&fix);
	question = next(script.publishes, &script.publish_count);
	tell(&question, SP_STORE_LISTED, "", &outage);
	script.away = true;
	(void)fixture_ready(&fix);
	cr_assert(fail_fast(&fix, 1) == 0 && fail_fast(&fix, 2) == 0);
	fixture_close(&fix);
}

Test(directory, an_outage_keeps_the_last_share)
{
	struct fixture fix;
	struct question question;

	warm_script(&fix, 4, 2);
	fixture_run(&fix, 1000);
	question = next(script.heartbeats, &script.heartbeat_count);
	question.share(question.arg, NULL, &outage);
	script.away = true;
	(void)fail_fast(&fix, 1);
	fixture_run(&fix, 5000);
	cr_assert(fix.creating_count == 1, "refills to what it had, not to max_idle");
	fixture_close(&fix);
}

Test(directory, a_refused_one_is_killed_and_not_made_again) /* P-106 */
{
	struct fixture fix;

	open_script(&fix, 2);
	fixture_start(&fix);
	answer_share(&fix, 2, NULL);
	(void)fixture_ready(&fix);
	answer_publish(&fix, SP_STORE_REFUSED, "");
	cr_assert(fix.ended[SP_END_EXCESS] == 1);
	fixture_run(&fix, 500);
	cr_assert(fix.creates == 2, "not before the next heartbeat");
	fixture_close(&fix);
}

Test(directory, a_grant_of_the_store_binds)
{
	struct fixture fix;
	char lease_id[SP_LEASE_ID_LEN + 1];
	struct sp_sandbox *sandbox;

	open_script(&fix, 1);
	fixture_start(&fix);
	answer_share(&fix, 1, NULL);
	sandbox = fixture_ready(&fix);
	fixture_lease(lease_id, 9);
	answer_publish(&fix, SP_STORE_GRANTED, lease_id);
	cr_assert(sandbox->state == SP_SANDBOX_LEASED);
	cr_assert(sp_pool_find_lease(fix.pool, lease_id) == sandbox);
	cr_assert(sandbox->expires_ms == fix.now + 60000, "until it is claimed");
	fixture_close(&fix);
}

Test(directory, a_grant_answers_who_waits_here_with_that_lease)
{
	struct fixture fix;
	struct sp_acquire_request request = fixture_request(9, SP_ACQUIRE_WAIT, 5000);

	open_script(&fix, 1);
	fixture_start(&fix);
	answer_share(&fix, 1, NULL);
	(void)fixture_ready(&fix);
	cr_assert(fixture_ask(&fix, &request, NULL) == 1);
	answer_publish(&fix, SP_STORE_GRANTED, request.lease_id);
	cr_assert(fix.callbacks == 1 && fix.granted.sandbox && fix.granted.waited);
	fixture_close(&fix);
}

Test(directory, a_grant_to_a_lease_that_holds_another_is_lost)
{
	struct fixture fix;
	char lease_id[SP_LEASE_ID_LEN + 1];

	warm_script(&fix, 2, 1);
	cr_assert(fail_fast(&fix, 9) == 0);
	fixture_run(&fix, 0);
	fixture_lease(lease_id, 9);
	(void)fixture_ready(&fix);
	answer_publish(&fix, SP_STORE_GRANTED, lease_id);
	cr_assert(fix.ended[SP_END_LEASE_LOST] == 1 && fixture_snapshot(&fix).leased == 1);
	fixture_run(&fix, 0);
	(void)fixture_ready(&fix);
	answer_publish(&fix, SP_STORE_GRANTED, "not a lease id");
	cr_assert(fix.ended[SP_END_LEASE_LOST] == 2);
	fixture_close(&fix);
}

Test(directory, a_verdict_for_one_that_left_is_only_corrected)
{
	struct fixture fix;
	struct sp_sandbox *sandbox;
	char lease_id[SP_LEASE_ID_LEN + 1];
	size_t updates;

	open_script(&fix, 1);
	fixture_start(&fix);
	answer_share(&fix, 1, NULL);
	sandbox = fixture_ready(&fix);
	sp_pool_died(fix.pool, sandbox, fix.now);
	updates = script.updates;
	fixture_lease(lease_id, 9);
	answer_publish(&fix, SP_STORE_GRANTED, lease_id);
	cr_assert(sandbox->state == SP_SANDBOX_KILLING && script.updates == updates + 1);
	cr_assert(script.last_update == SP_SANDBOX_KILLING);
	fixture_run(&fix, 0);
	sandbox = fixture_ready(&fix);
	sp_pool_gone(fix.pool, sandbox, fix.now);
	answer_publish(&fix, SP_STORE_GRANTED, lease_id);
	cr_assert(sp_pool_find_lease(fix.pool, lease_id) == NULL);
	fixture_close(&fix);
}

Test(directory, every_change_of_a_listed_one_is_told)
{
	struct fixture fix;
	struct sp_sandbox *sandbox;
	size_t updates;

	warm_script(&fix, 1, 1);
	updates = script.updates;
	cr_assert(fail_fast(&fix, 1) == 0);
	sandbox = fix.granted.sandbox;
	cr_assert(script.updates == ++updates && script.last_update == SP_SANDBOX_LEASED);
	cr_assert(sp_pool_claim(fix.pool, sandbox, fix.now, NULL) == 0);
	cr_assert(script.updates == ++updates, "its end moved");
	sp_pool_release(fix.pool, sandbox, fix.now);
	cr_assert(script.updates == ++updates && script.last_update == SP_SANDBOX_KILLING);
	sp_pool_gone(fix.pool, sandbox, fix.now);
	cr_assert(script.updates == ++updates && script.last_update == SP_SANDBOX_GONE);
	fixture_close(&fix);
}

Test(directory, demand_is_part_of_the_share_once)
{
	struct fixture fix;
	struct sp_acquire_request request = fixture_request(1, SP_ACQUIRE_WAIT, 50000);

	open_script(&fix, 0);
	fixture_start(&fix);
	answer_share(&fix, 0, NULL);
	cr_assert(fixture_ask(&fix, &request, NULL) == 1);
	fixture_run(&fix, 0);
	cr_assert(fix.creating_count == 1, "local demand needs no round trip");
	fixture_run(&fix, 1000);
	cr_assert(script.heartbeats[0].counts.waiters == 1);
	answer_share(&fix, 1, NULL);
	cr_assert(fix.creating_count == 1);
	fixture_close(&fix);
}

Test(directory, a_higher_revision_is_obeyed) /* P-042, P-166, P-169 */
{
	struct fixture fix;
	struct sp_store_meta meta = {.revision = 3, .max_idle = 1, .max_total = 5};

	warm_script(&fix, 2, 2);
	fixture_run(&fix, 1000);
	answer_share(&fix, 1, &meta);
	cr_assert(fixture_snapshot(&fix).max_idle == 1 && fixture_snapshot(&fix).max_total == 5);
	cr_assert(fixture_snapshot(&fix).idle == 1);
	fixture_run(&fix, 1000);
	meta.revision = 2;
	meta.max_idle = 7;
	answer_share(&fix, 1, &meta);
	cr_assert(fixture_snapshot(&fix).max_idle == 1, "a lower one is not");
	fixture_run(&fix, 1000);
	meta.revision = 4;
	meta.state = SP_STORE_DRAINING;
	answer_share(&fix, 1, &meta);
	cr_assert(fixture_snapshot(&fix).lifecycle == SP_POOL_LIFE_DRAINING);
	cr_assert(fix.ended[SP_END_DRAINED] == 1);
	fixture_run(&fix, 1000);
	meta.revision = 5;
	meta.state = SP_STORE_ACTIVE;
	answer_share(&fix, 1, &meta);
	cr_assert(fixture_snapshot(&fix).lifecycle == SP_POOL_LIFE_RUNNING);
	fixture_run(&fix, 1000);
	meta.revision = 6;
	meta.state = SP_STORE_DESTROYING;
	answer_share(&fix, 1, &meta);
	cr_assert(fixture_snapshot(&fix).lifecycle == SP_POOL_LIFE_DESTROYED);
	cr_assert(script.meta_count == 0, "who began it writes the tombstone");
	fixture_close(&fix);
}

Test(directory, intent_in_an_outage_is_told_later)
{
	struct fixture fix;
	struct sp_store_meta meta = {.revision = 9, .max_idle = 4};

	warm_script(&fix, 2, 2);
	script.away = true;
	cr_assert(sp_pool_resize(fix.pool, 1, -1, fix.now, NULL) == 0);
	fixture_run(&fix, 0);
	cr_assert(fixture_snapshot(&fix).idle == 1, "less is done at once");
	script.away = false;
	fixture_run(&fix, 2000);
	answer_share(&fix, 4, &meta);
	cr_assert(fixture_snapshot(&fix).max_idle == 1,
		  "what is older than our wish is not adopted");
	cr_assert(script.meta_count == 1 && script.metas[0].wish.max_idle == 1);
	fixture_close(&fix);
}

Test(directory, intent_that_fails_on_the_way_is_told_again)
{
	struct fixture fix;
	struct question question;

	warm_script(&fix, 2, 2);
	sp_pool_drain(fix.pool, fix.now);
	question = next(script.metas, &script.meta_count);
	question.meta(question.arg, NULL, &outage);
	fixture_run(&fix, 2000);
	answer_share(&fix, 2, NULL);
	cr_assert(script.meta_count == 1 && script.metas[0].wish.state == SP_STORE_DRAINING);
	fixture_close(&fix);
}

Test(directory, a_tombstone_that_cannot_be_written_is_an_error_and_told_again) /* P-143 */
{
	struct fixture fix;
	struct question question;
	struct sp_store_meta written = {.revision = 1, .state = SP_STORE_DESTROYING};
	struct sp_err err;

	warm_script(&fix, 1, 1);
	script.away = true;
	cr_assert(sp_pool_destroy(fix.pool, fix.now, &err) < 0);
	cr_assert(sp_err_client_code(&err) == SP_CODE_POOL_STATE_STORE_UNAVAILABLE);
	cr_assert(fixture_snapshot(&fix).lifecycle == SP_POOL_LIFE_DESTROYED && fix.kills == 1);
	cr_assert(sp_pool_destroy(fix.pool, fix.now, &err) < 0, "asked again: still not told");
	script.away = false;
	fixture_run(&fix, 2000);
	answer_share(&fix, 1, NULL);
	question = next(script.metas, &script.meta_count);
	cr_assert(question.wish.state == SP_STORE_DESTROYING);
	question.meta(question.arg, &written, NULL);
	cr_assert(sp_pool_destroy(fix.pool, fix.now, &err) == 0);
	sp_pool_gone(fix.pool, fix.killing[0], fix.now);
	question = next(script.metas, &script.meta_count);
	cr_assert(question.wish.state == SP_STORE_DESTROYED, "when all are gone");
	question.meta(question.arg, &written, NULL);
	fixture_run(&fix, 0);
	cr_assert(sp_pool_next_wakeup_ms(fix.pool) == INT64_MAX);
	fixture_close(&fix);
}

Test(directory, an_intent_loses_against_a_destroy)
{
	struct fixture fix;
	struct question question;
	struct sp_store_meta meta = {.revision = 8, .state = SP_STORE_DESTROYED};
	struct sp_err err;

	warm_script(&fix, 1, 1);
	cr_assert(sp_pool_resize(fix.pool, 3, -1, fix.now, NULL) == 0);
	question = next(script.metas, &script.meta_count);
	(void)sp_err_code(&err, SP_CODE_POOL_DESTROYED, -ESHUTDOWN, "destroyed");
	question.meta(question.arg, &meta, &err);
	cr_assert(fixture_snapshot(&fix).lifecycle == SP_POOL_LIFE_DESTROYED);
	fixture_close(&fix);
}

Test(directory, one_that_leaves_this_host_speaks_until_nothing_is_left)
{
	struct fixture fix;
	struct sp_sandbox *held;

	warm_script(&fix, 2, 2);
	held = fixture_take(&fix, 1);
	sp_pool_leave_host(fix.pool, fix.now);
	fixture_run(&fix, 0);
	/* At once, so that nothing more is given to it; and on beyond drain_timeout. */
	for (int second = 0; second < 40; second++) {
		cr_assert(script.heartbeat_count == 1, "in second %d", second);
		cr_assert(script.heartbeats[0].counts.leaving);
		cr_assert(script.heartbeats[0].counts.leased == 1);
		answer_share(&fix, 0, NULL);
		fixture_run(&fix, 1000);
	}
	cr_assert(fixture_snapshot(&fix).lifecycle == SP_POOL_LIFE_STOPPED);
	answer_share(&fix, 0, NULL);
	sp_pool_end(fix.pool, held, SP_END_SHUTDOWN, fix.now);
	while (fix.killing_count > 0)
		sp_pool_gone(fix.pool, fix.killing[0], fix.now);
	fixture_run(&fix, 10000);
	cr_assert(script.heartbeat_count == 0, "there is nothing left to speak for");
	fixture_close(&fix);
}

Test(directory, answers_after_the_pool_are_harmless)
{
	struct fixture fix;
	struct sp_store_meta meta = {0};
	struct question share, verdict, wish;

	open_script(&fix, 1);
	fixture_start(&fix);
	answer_share(&fix, 1, NULL);
	(void)fixture_ready(&fix);
	fixture_run(&fix, 1000);
	cr_assert(sp_pool_resize(fix.pool, 2, -1, fix.now, NULL) == 0);
	share = next(script.heartbeats, &script.heartbeat_count);
	verdict = next(script.publishes, &script.publish_count);
	wish = next(script.metas, &script.meta_count);
	fixture_close(&fix);
	share.share(share.arg, NULL, &outage);
	tell(&verdict, SP_STORE_LISTED, "", NULL);
	wish.meta(wish.arg, &meta, NULL);
}
