/*
 * The wait queue: first come first served, bounded, with deadlines, and no sandbox lost in it.
 */
#include "pool_fixture.h"

struct note {
	unsigned int *order;
	unsigned int number; /* in which order it was answered, 1 = first */
	struct sp_sandbox *sandbox;
	bool repeated;
	enum sp_code refused;
	struct fixture *fix;
	int action; /* what the callback does itself */
	struct note *other;
};

enum { NOTHING, RELEASE, CANCEL_OTHER, ACQUIRE };

static void noted(void *arg, const struct sp_acquire_result *result, const struct sp_err *err);

static int queue(struct fixture *fix, struct note *note, unsigned int lease,
		 enum sp_acquire_policy policy, int64_t wait_ms, struct sp_acquire **ret_pending)
{
	struct sp_acquire_request request = fixture_request(lease, policy, wait_ms);
	struct sp_acquire_result result;
	struct sp_err err = {0};
	int status;

	note->fix = fix;
	status = sp_pool_acquire(fix->pool, &request, fix->now, noted, note, &result, ret_pending,
				 &err);
	note->refused = status < 0 ? sp_err_client_code(&err) : SP_CODE_NONE;
	return status;
}

static struct sp_acquire *pendings[3];

static void noted(void *arg, const struct sp_acquire_result *result, const struct sp_err *err)
{
	struct note *note = arg;
	struct fixture *fix = note->fix;

	cr_assert(note->number == 0, "called back twice");
	note->number = note->order ? ++*note->order : 1;
	note->refused = err ? sp_err_client_code(err) : SP_CODE_NONE;
	if (result) {
		note->sandbox = result->sandbox;
		note->repeated = result->repeated;
	}
	if (note->action == RELEASE)
		sp_pool_gone(fix->pool, result->sandbox, fix->now);
	if (note->action == CANCEL_OTHER)
		sp_acquire_cancel(pendings[1], fix->now);
	if (note->action == ACQUIRE)
		cr_assert(queue(fix, note->other, 77, SP_ACQUIRE_WAIT, 1000, &pendings[2]) == 1);
}

Test(wait, oldest_waiter_is_served_first)
{
	struct fixture fix;
	unsigned int order = 0;
	struct note notes[3] = {{.order = &order}, {.order = &order}, {.order = &order}};

	fixture_init(&fix, 1);
	fixture_start(&fix);
	for (unsigned int i = 0; i < 3; i++)
		cr_assert(queue(&fix, &notes[i], i, SP_ACQUIRE_WAIT, 5000, &pendings[i]) == 1);
	cr_assert(fixture_snapshot(&fix).waiters == 3);
	fix.now += 25;
	fixture_settle(&fix);
	for (unsigned int i = 0; i < 3; i++)
		cr_assert(notes[i].number == i + 1 && notes[i].sandbox);
	cr_assert(strcmp(fix.result, "waited") == 0 && fix.waited == 25);
	cr_assert(fixture_snapshot(&fix).idle == 1 && fixture_snapshot(&fix).waiters == 0);
	fixture_close(&fix);
}

Test(wait, creates_for_waiters_at_max_idle_zero)
{
	struct fixture fix;
	struct note note = {0};

	fixture_init(&fix, 0);
	fixture_start(&fix);
	cr_assert(queue(&fix, &note, 1, SP_ACQUIRE_WAIT, 5000, &pendings[0]) == 1);
	cr_assert(fix.creating_count == 0 && sp_pool_next_wakeup_ms(fix.pool) == fix.now);
	fixture_settle(&fix);
	cr_assert(note.sandbox && fixture_snapshot(&fix).idle == 0 && fix.creates == 1);
	fixture_close(&fix);
}

Test(wait, ends_at_the_deadline_with_a_timeout)
{
	struct fixture fix;
	struct note note = {0};

	fixture_init(&fix, 0);
	fix.config.create_timeout_ms = 60000;
	fixture_start(&fix);
	cr_assert(queue(&fix, &note, 1, SP_ACQUIRE_WAIT, 4321, &pendings[0]) == 1);
	fixture_run(&fix, 4320);
	cr_assert(note.number == 0);
	fixture_run(&fix, 1);
	cr_assert(note.refused == SP_CODE_ACQUIRE_TIMEOUT);
	cr_assert(strcmp(fix.result, "timeout") == 0 && fix.waited == 4321);
	cr_assert(fix.killing_count == 1, "and the creation for it is called off");
	fixture_close(&fix);
}

Test(wait, a_timed_out_waiter_never_swallows_a_sandbox) /* B-122 */
{
	struct fixture fix;
	struct note late = {0}, live = {0};

	fixture_init(&fix, 0);
	fixture_start(&fix);
	cr_assert(queue(&fix, &late, 1, SP_ACQUIRE_WAIT, 100, &pendings[0]) == 1);
	cr_assert(queue(&fix, &live, 2, SP_ACQUIRE_WAIT, 5000, &pendings[1]) == 1);
	fixture_run(&fix, 0);
	fix.now += 100; /* the sandbox is ready before any tick has seen the deadline */
	(void)fixture_ready(&fix);
	cr_assert(late.refused == SP_CODE_ACQUIRE_TIMEOUT && !late.sandbox);
	cr_assert(live.sandbox);
	fixture_close(&fix);
}

Test(wait, a_late_direct_creation_goes_to_the_next_in_line) /* B-122 */
{
	struct fixture fix;
	struct note late = {0}, live = {0};

	fixture_init(&fix, 0);
	fixture_start(&fix);
	cr_assert(queue(&fix, &late, 1, SP_ACQUIRE_CREATE, 100, &pendings[0]) == 1);
	cr_assert(queue(&fix, &live, 2, SP_ACQUIRE_WAIT, 5000, &pendings[1]) == 1);
	fix.now += 100;
	(void)fixture_ready(&fix);
	cr_assert(late.refused == SP_CODE_ACQUIRE_TIMEOUT && live.sandbox);
	fixture_close(&fix);
}

Test(wait, whoever_is_first_takes_what_is_ready_first)
{
	struct fixture fix;
	struct note create = {0}, wait = {0};

	fixture_init(&fix, 1);
	fixture_start(&fix); /* one is warming */
	cr_assert(queue(&fix, &create, 1, SP_ACQUIRE_CREATE, 5000, &pendings[0]) == 1);
	cr_assert(queue(&fix, &wait, 2, SP_ACQUIRE_WAIT, 5000, &pendings[1]) == 1);
	(void)fixture_ready(&fix); /* the pool's */
	cr_assert(create.sandbox && !wait.sandbox);
	(void)fixture_ready(&fix); /* the caller's own */
	cr_assert(wait.sandbox && wait.sandbox != create.sandbox);
	fixture_settle(&fix);
	cr_assert(fix.ended[SP_END_EXCESS] == 0, "nothing was made in vain");
	fixture_close(&fix);
}

Test(wait, queue_is_bounded)
{
	struct fixture fix;
	struct note notes[3] = {0};

	fixture_init(&fix, 0);
	fix.config.max_waiters = 2;
	fixture_start(&fix);
	cr_assert(queue(&fix, &notes[0], 0, SP_ACQUIRE_WAIT, 5000, &pendings[0]) == 1);
	cr_assert(queue(&fix, &notes[1], 1, SP_ACQUIRE_WAIT, 5000, &pendings[1]) == 1);
	cr_assert(queue(&fix, &notes[2], 2, SP_ACQUIRE_WAIT, 5000, &pendings[2]) < 0);
	cr_assert(notes[2].refused == SP_CODE_POOL_SATURATED);
	sp_acquire_cancel(pendings[0], fix.now);
	cr_assert(queue(&fix, &notes[2], 2, SP_ACQUIRE_WAIT, 5000, &pendings[2]) == 1);
	fixture_close(&fix);
}

Test(wait, cancelled_one_hears_nothing_more) /* P-083 */
{
	struct fixture fix;
	struct note notes[2] = {0};

	fixture_init(&fix, 0);
	fixture_start(&fix);
	cr_assert(queue(&fix, &notes[0], 0, SP_ACQUIRE_WAIT, 5000, &pendings[0]) == 1);
	cr_assert(queue(&fix, &notes[1], 1, SP_ACQUIRE_WAIT, 5000, &pendings[1]) == 1);
	fixture_run(&fix, 0);
	cr_assert(fix.creating_count == 2);
	sp_acquire_cancel(pendings[0], fix.now);
	cr_assert(strcmp(fix.result, "cancelled") == 0);
	fixture_settle(&fix);
	cr_assert(notes[0].number == 0 && notes[1].sandbox);
	cr_assert(fix.ended[SP_END_EXCESS] == 1, "the second creation is called off");
	fixture_close(&fix);
}

Test(wait, what_was_made_for_one_that_left_is_not_kept_beyond_max_idle)
{
	struct fixture fix;
	struct note note = {0};

	fixture_init(&fix, 0);
	fixture_start(&fix);
	cr_assert(queue(&fix, &note, 0, SP_ACQUIRE_WAIT, 5000, &pendings[0]) == 1);
	fixture_run(&fix, 0);
	sp_acquire_cancel(pendings[0], fix.now);
	(void)fixture_ready(&fix); /* before any tick could call it off */
	cr_assert(fixture_snapshot(&fix).idle == 0 && fix.ended[SP_END_EXCESS] == 1);
	fixture_close(&fix);
}

Test(wait, an_acquire_never_runs_the_callback_of_another)
{
	struct fixture fix;
	struct note late = {0}, other = {0};

	fixture_init(&fix, 0);
	fixture_start(&fix);
	cr_assert(queue(&fix, &late, 1, SP_ACQUIRE_WAIT, 100, &pendings[0]) == 1);
	fix.now += 100;
	cr_assert(queue(&fix, &other, 2, SP_ACQUIRE_FAIL_FAST, 0, &pendings[1]) < 0);
	cr_assert(late.number == 0);
	sp_pool_tick(fix.pool, fix.now);
	cr_assert(late.refused == SP_CODE_ACQUIRE_TIMEOUT);
	fixture_close(&fix);
}

Test(wait, drain_refuses_all_waiters)
{
	struct fixture fix;
	struct note notes[2] = {0};

	fixture_init(&fix, 0);
	fixture_start(&fix);
	cr_assert(queue(&fix, &notes[0], 0, SP_ACQUIRE_WAIT, 5000, &pendings[0]) == 1);
	cr_assert(queue(&fix, &notes[1], 1, SP_ACQUIRE_CREATE, 5000, &pendings[1]) == 1);
	sp_pool_drain(fix.pool, fix.now);
	cr_assert(notes[0].refused == SP_CODE_POOL_NOT_RUNNING);
	cr_assert(notes[1].refused == SP_CODE_POOL_NOT_RUNNING);
	cr_assert(fix.killing_count == 1);
	fixture_close(&fix);
}

Test(wait, destroy_refuses_all_waiters) /* P-080 */
{
	struct fixture fix;
	struct note note = {0};

	fixture_init(&fix, 0);
	fixture_start(&fix);
	cr_assert(queue(&fix, &note, 0, SP_ACQUIRE_CREATE, 5000, &pendings[0]) == 1);
	cr_assert(sp_pool_destroy(fix.pool, fix.now, NULL) == 0);
	cr_assert(note.refused == SP_CODE_POOL_DESTROYED && !note.sandbox);
	fixture_close(&fix);
}

Test(wait, two_that_ask_with_one_lease_share_one_sandbox)
{
	struct fixture fix;
	unsigned int order = 0;
	struct note notes[3] = {{.order = &order}, {.order = &order}, {.order = &order}};

	fixture_init(&fix, 0);
	fixture_start(&fix);
	cr_assert(queue(&fix, &notes[0], 5, SP_ACQUIRE_CREATE, 5000, &pendings[0]) == 1);
	cr_assert(queue(&fix, &notes[1], 5, SP_ACQUIRE_CREATE, 5000, &pendings[1]) == 1);
	cr_assert(queue(&fix, &notes[2], 5, SP_ACQUIRE_WAIT, 5000, &pendings[2]) < 0);
	cr_assert(notes[2].refused == SP_CODE_LEASE_MISMATCH);
	fixture_run(&fix, 0);
	cr_assert(fix.creating_count == 1, "one creation is enough");
	(void)fixture_ready(&fix);
	cr_assert(notes[0].number == 1 && notes[1].number == 2);
	cr_assert(notes[0].sandbox == notes[1].sandbox);
	cr_assert(!notes[0].repeated && notes[1].repeated);
	fixture_close(&fix);
}

Test(wait, the_second_of_one_lease_goes_on_when_the_first_leaves)
{
	struct fixture fix;
	struct note notes[2] = {0};

	fixture_init(&fix, 0);
	fixture_start(&fix);
	cr_assert(queue(&fix, &notes[0], 5, SP_ACQUIRE_CREATE, 5000, &pendings[0]) == 1);
	cr_assert(queue(&fix, &notes[1], 5, SP_ACQUIRE_CREATE, 5000, &pendings[1]) == 1);
	sp_acquire_cancel(pendings[0], fix.now);
	fixture_settle(&fix);
	cr_assert(notes[0].number == 0 && notes[1].sandbox && !notes[1].repeated);
	fixture_close(&fix);
}

Test(wait, callback_may_end_the_sandbox_of_the_next)
{
	struct fixture fix;
	struct note notes[2] = {{.action = RELEASE}, {0}};

	fixture_init(&fix, 0);
	fixture_start(&fix);
	cr_assert(queue(&fix, &notes[0], 5, SP_ACQUIRE_WAIT, 5000, &pendings[0]) == 1);
	cr_assert(queue(&fix, &notes[1], 5, SP_ACQUIRE_WAIT, 5000, &pendings[1]) == 1);
	fixture_settle(&fix);
	cr_assert(notes[0].sandbox && notes[1].refused == SP_CODE_LEASE_ENDED);
	fixture_close(&fix);
}

Test(wait, callback_may_cancel_the_next) /* P-116 */
{
	struct fixture fix;
	struct note notes[2] = {{.action = CANCEL_OTHER}, {0}};

	fixture_init(&fix, 0);
	fixture_start(&fix);
	cr_assert(queue(&fix, &notes[0], 5, SP_ACQUIRE_WAIT, 5000, &pendings[0]) == 1);
	cr_assert(queue(&fix, &notes[1], 5, SP_ACQUIRE_WAIT, 5000, &pendings[1]) == 1);
	fixture_settle(&fix);
	cr_assert(notes[0].sandbox && notes[1].number == 0);
	cr_assert(fixture_snapshot(&fix).leased == 1, "the grant stands");
	fixture_run(&fix, 60000);
	cr_assert(fix.ended[SP_END_UNCLAIMED] == 1);
	fixture_close(&fix);
}

Test(wait, callback_may_ask_again)
{
	struct fixture fix;
	struct note other = {0};
	struct note note = {.action = ACQUIRE, .other = &other};

	fixture_init(&fix, 0);
	fixture_start(&fix);
	cr_assert(queue(&fix, &note, 5, SP_ACQUIRE_WAIT, 5000, &pendings[0]) == 1);
	fixture_settle(&fix);
	cr_assert(note.sandbox && other.sandbox && note.sandbox != other.sandbox);
	fixture_close(&fix);
}

Test(wait, a_picky_waiter_does_not_block_the_others)
{
	struct fixture fix;
	struct note easy = {0};
	struct sp_acquire_request picky = fixture_request(1, SP_ACQUIRE_WAIT, 60000);
	struct sp_sandbox *sandbox;

	fixture_init(&fix, 1);
	fix.config.idle_timeout_ms = 100000;
	fix.config.acquire_min_remaining_ttl_ms = 0;
	fixture_warm(&fix);
	fix.now += 50000;
	picky.min_remaining_ms = 90000;
	cr_assert(fixture_ask(&fix, &picky, NULL) == 1, "the idle one is too old for it");
	sandbox = fixture_take(&fix, 2);
	cr_assert(sandbox, "but good enough for this one");
	cr_assert(queue(&fix, &easy, 3, SP_ACQUIRE_WAIT, 5000, &pendings[0]) == 1);
	fixture_settle(&fix);
	cr_assert(fix.callbacks == 1 && fix.granted.remaining_ms == 100000 && easy.sandbox);
	fixture_close(&fix);
}

Test(wait, timeout_says_why_nothing_came)
{
	struct fixture fix;
	struct sp_acquire_request request = fixture_request(1, SP_ACQUIRE_WAIT, 5000);

	fixture_init(&fix, 1);
	fixture_start(&fix);
	fixture_fail(&fix, true);
	cr_assert(fixture_ask(&fix, &request, NULL) == 1);
	fix.now += 5000;
	sp_pool_tick(fix.pool, fix.now);
	cr_assert(fix.refused == SP_CODE_ACQUIRE_TIMEOUT && strstr(fix.message, "mount '/usr'"));
	fixture_close(&fix);
}
