/*
 * What a directory of many hosts may ask of the pool behind it, and the first claim of a client
 * that came straight. The store here is the memory store with a note of every update.
 */
#include "pool_fixture.h"

#define UPDATES_MAX 64

struct note {
	char id[SP_SANDBOX_ID_LEN + 1];
	char lease_id[SP_LEASE_ID_LEN + 1];
	enum sp_sandbox_state state;
	int64_t expires_ms;
};

static struct {
	struct sp_store store;
	struct sp_store *memory;
	const struct sp_store_owner *owner;
	void *arg;
	struct note notes[UPDATES_MAX];
	size_t count;
	struct sp_store_listing verdict; /* of every publish, but for the id */
} directory;

static void on_attach(struct sp_store *store, const char *pool, const struct sp_store_owner *owner,
		      void *arg)
{
	(void)store;
	cr_assert(strcmp(pool, "default") == 0);
	directory.owner = owner;
	directory.arg = arg;
}

static int on_heartbeat(struct sp_store *store, const char *pool,
			const struct sp_store_counts *counts, int64_t now_ms,
			void (*cb)(void *, const struct sp_store_share *, const struct sp_err *),
			void *arg)
{
	(void)store;
	return directory.memory->ops->heartbeat(directory.memory, pool, counts, now_ms, cb, arg);
}

static int on_publish(struct sp_store *store, const char *pool, const struct sp_sandbox *sandbox,
		      int64_t now_ms, sp_store_publish_cb *cb, void *arg)
{
	struct sp_store_listing listing = directory.verdict;

	(void)store;
	(void)pool;
	(void)now_ms;
	listing.sandbox_id = sandbox->id;
	cb(arg, &listing, NULL);
	return 0;
}

static void on_update(struct sp_store *store, const char *pool, const struct sp_sandbox *sandbox,
		      int64_t now_ms)
{
	struct note *note = &directory.notes[directory.count++ % UPDATES_MAX];

	(void)store;
	(void)pool;
	(void)now_ms;
	memcpy(note->id, sandbox->id, sizeof(note->id));
	memcpy(note->lease_id, sandbox->lease_id, sizeof(note->lease_id));
	note->state = sandbox->state;
	note->expires_ms = sandbox->expires_ms;
}

static const struct note *last_note(void)
{
	cr_assert(directory.count > 0, "the directory was told nothing");
	return &directory.notes[(directory.count - 1) % UPDATES_MAX];
}

static bool is_up(const struct sp_store *store)
{
	(void)store;
	return true;
}

static void nothing(struct sp_store *store)
{
	(void)store;
}

static const struct sp_store_ops ops = {
	.attach = on_attach,
	.heartbeat = on_heartbeat,
	.publish = on_publish,
	.update = on_update,
	.up = is_up,
	.free = nothing,
};

static void open_directory(struct fixture *fix, uint32_t max_idle)
{
	memset(&directory, 0, sizeof(directory));
	directory.store.ops = &ops;
	directory.verdict.lease_id = "";
	cr_assert(sp_memory_store_new(&directory.memory, NULL) == 0);
	fixture_init(fix, max_idle);
	fix->store = &directory.store;
	fixture_warm(fix);
	cr_assert(directory.owner && fixture_snapshot(fix).idle == max_idle);
	directory.count = 0;
}

static void close_directory(struct fixture *fix)
{
	fixture_close(fix);
	cr_assert(!directory.owner, "detached with the pool");
	directory.memory->ops->free(directory.memory);
}

static int keep_idle(void *arg, const struct sp_sandbox *sandbox)
{
	char *id = arg;

	if (sandbox->state != SP_SANDBOX_IDLE)
		return 0;
	memcpy(id, sandbox->id, SP_SANDBOX_ID_LEN + 1);
	return 1;
}

/* The oldest idle one: what the directory gives first. */
static struct sp_sandbox *idle_one(struct fixture *fix)
{
	char id[SP_SANDBOX_ID_LEN + 1];

	cr_assert(sp_pool_each(fix->pool, keep_idle, id) == 1);
	return sp_pool_find(fix->pool, id);
}

static struct sp_sandbox *grant(struct fixture *fix, unsigned int lease, int64_t ttl_ms,
				int64_t age_ms)
{
	struct sp_sandbox *sandbox = idle_one(fix);
	char lease_id[SP_LEASE_ID_LEN + 1];

	fixture_lease(lease_id, lease);
	directory.owner->granted(directory.arg, sandbox->id, lease_id, ttl_ms, age_ms);
	fixture_check(fix);
	return sandbox;
}

static int bind(struct fixture *fix, struct sp_sandbox *sandbox, unsigned int lease, int64_t ttl_ms)
{
	char lease_id[SP_LEASE_ID_LEN + 1];
	struct sp_err err = {0};
	int status;

	fixture_lease(lease_id, lease);
	status = sp_pool_bind(fix->pool, sandbox, lease_id, ttl_ms, fix->now, &err);
	if (status == 0)
		status = sp_pool_claim(fix->pool, sandbox, fix->now, &err);
	fix->refused = status < 0 ? sp_err_client_code(&err) : SP_CODE_NONE;
	fixture_check(fix);
	return status;
}

static void end(struct fixture *fix, const struct sp_sandbox *sandbox, const char *lease_id,
		enum sp_end_reason reason, bool hint)
{
	directory.owner->end(directory.arg, sandbox->id, lease_id, reason, hint);
	fixture_check(fix);
}

Test(owner, a_grant_binds_and_is_told)
{
	struct fixture fix;
	struct sp_sandbox *sandbox;

	open_directory(&fix, 2);
	sandbox = grant(&fix, 1, 60000, 0);
	cr_assert(sandbox->state == SP_SANDBOX_LEASED && !sandbox->claimed);
	cr_assert(last_note()->state == SP_SANDBOX_LEASED);
	cr_assert(strcmp(last_note()->lease_id, sandbox->lease_id) == 0);
	cr_assert(fix.acquired == 1 && strcmp(fix.result, "directory") == 0);
	cr_assert(bind(&fix, sandbox, 1, 0) == 0 && sandbox->claimed);
	cr_assert(sandbox->expires_ms == fix.now + 60000, "the ttl counts from the claim");
	close_directory(&fix);
}

Test(owner, the_age_of_a_grant_counts_against_claim_timeout)
{
	struct fixture fix;
	struct sp_sandbox *sandbox;
	size_t unclaimed;

	open_directory(&fix, 2);
	sandbox = grant(&fix, 1, 0, 20000);
	cr_assert(sandbox->expires_ms == fix.now + 60000 - 20000);
	unclaimed = fix.ended[SP_END_UNCLAIMED];
	(void)grant(&fix, 2, 0, 70000);
	fixture_run(&fix, 0);
	cr_assert(fix.ended[SP_END_UNCLAIMED] == unclaimed + 1, "nobody came for it in time");
	close_directory(&fix);
}

Test(owner, a_grant_against_another_holder_is_answered_with_the_truth)
{
	struct fixture fix;
	struct sp_sandbox *sandbox;
	char lease_id[SP_LEASE_ID_LEN + 1];

	open_directory(&fix, 2);
	sandbox = fixture_take(&fix, 7);
	directory.count = 0;
	fixture_lease(lease_id, 8);
	directory.owner->granted(directory.arg, sandbox->id, lease_id, 0, 0);
	fixture_lease(lease_id, 7);
	cr_assert(strcmp(sandbox->lease_id, lease_id) == 0, "the first binding wins for ever");
	cr_assert(directory.count == 1 && strcmp(last_note()->lease_id, lease_id) == 0);
	close_directory(&fix);
}

Test(owner, a_lease_gets_no_second_sandbox)
{
	struct fixture fix;
	struct sp_sandbox *sandbox;

	open_directory(&fix, 3);
	(void)grant(&fix, 1, 0, 0);
	sandbox = grant(&fix, 1, 0, 0);
	cr_assert(sandbox->state == SP_SANDBOX_KILLING && fix.ended[SP_END_LEASE_LOST] == 1);
	cr_assert(last_note()->state == SP_SANDBOX_KILLING, "given away, but not to be used");
	close_directory(&fix);
}

Test(owner, what_we_do_not_have_is_told_to_be_gone) /* B-117 */
{
	struct fixture fix;
	char lease_id[SP_LEASE_ID_LEN + 1];

	open_directory(&fix, 1);
	fixture_lease(lease_id, 1);
	directory.owner->granted(directory.arg, "0123456789abcdefghjk", lease_id, 0, 0);
	cr_assert(directory.count == 1 && last_note()->state == SP_SANDBOX_GONE);
	directory.owner->end(directory.arg, "0123456789abcdefghjk", "", SP_END_RELEASED, false);
	directory.owner->renew(directory.arg, "0123456789abcdefghjk", lease_id, 1000);
	cr_assert(directory.count == 3 && last_note()->state == SP_SANDBOX_GONE);
	directory.owner->granted(directory.arg, "../../etc/passwd", lease_id, 0, 0);
	cr_assert(directory.count == 3, "no id of ours");
	close_directory(&fix);
}

Test(owner, a_grant_serves_who_waits_here_with_that_lease)
{
	struct fixture fix;
	struct sp_acquire_request request = fixture_request(5, SP_ACQUIRE_WAIT, 9000);

	open_directory(&fix, 1);
	(void)fixture_take(&fix, 1);
	cr_assert(fixture_ask(&fix, &request, NULL) == 1);
	directory.verdict.verdict = SP_STORE_GRANTED;
	directory.verdict.lease_id = request.lease_id;
	fixture_run(&fix, 0);
	(void)fixture_ready(&fix);
	cr_assert(fix.callbacks == 1 && fix.granted.sandbox);
	directory.verdict.verdict = SP_STORE_LISTED;
	close_directory(&fix);
}

Test(owner, a_granted_listing_carries_its_ttl)
{
	struct fixture fix;
	char lease_id[SP_LEASE_ID_LEN + 1];
	struct sp_sandbox *sandbox;

	open_directory(&fix, 1);
	fixture_lease(lease_id, 9);
	directory.verdict.verdict = SP_STORE_GRANTED;
	directory.verdict.lease_id = lease_id;
	directory.verdict.ttl_ms = 5000;
	(void)fixture_take(&fix, 1);
	fixture_run(&fix, 0);
	sandbox = fixture_ready(&fix);
	cr_assert(sandbox->state == SP_SANDBOX_LEASED);
	directory.verdict.verdict = SP_STORE_LISTED;
	cr_assert(bind(&fix, sandbox, 9, 0) == 0 && sandbox->expires_ms == fix.now + 5000);
	close_directory(&fix);
}

/* ---- ends ---- */

Test(owner, a_release_of_the_holder_ends_it)
{
	struct fixture fix;
	struct sp_sandbox *sandbox;

	open_directory(&fix, 2);
	sandbox = grant(&fix, 1, 0, 0);
	end(&fix, sandbox, sandbox->lease_id, SP_END_RELEASED, false);
	cr_assert(sandbox->state == SP_SANDBOX_KILLING);
	cr_assert(sandbox->end_reason == SP_END_RELEASED);
	close_directory(&fix);
}

Test(owner, a_release_of_another_lease_changes_nothing) /* B-102 */
{
	struct fixture fix;
	struct sp_sandbox *sandbox;
	char lease_id[SP_LEASE_ID_LEN + 1];

	open_directory(&fix, 2);
	sandbox = grant(&fix, 1, 0, 0);
	directory.count = 0;
	fixture_lease(lease_id, 2);
	end(&fix, sandbox, lease_id, SP_END_RELEASED, false);
	cr_assert(sandbox->state == SP_SANDBOX_LEASED && directory.count == 1);
	close_directory(&fix);
}

Test(owner, a_release_before_we_heard_of_the_grant_ends_both)
{
	struct fixture fix;
	struct sp_sandbox *sandbox;
	char lease_id[SP_LEASE_ID_LEN + 1];
	struct sp_acquire_request request = fixture_request(3, SP_ACQUIRE_FAIL_FAST, 0);

	open_directory(&fix, 2);
	sandbox = idle_one(&fix);
	fixture_lease(lease_id, 3);
	end(&fix, sandbox, lease_id, SP_END_RELEASED, false);
	cr_assert(sandbox->state == SP_SANDBOX_KILLING);
	cr_assert(fixture_ask(&fix, &request, NULL) < 0 && fix.refused == SP_CODE_LEASE_ENDED);
	close_directory(&fix);
}

Test(owner, shrinking_and_draining_spare_what_is_leased) /* B-120, P-202 */
{
	struct fixture fix;
	struct sp_sandbox *leased;
	struct sp_sandbox *idle;

	open_directory(&fix, 2);
	leased = fixture_take(&fix, 1);
	idle = idle_one(&fix);
	end(&fix, leased, "", SP_END_EXCESS, false);
	end(&fix, leased, "", SP_END_DRAINED, false);
	cr_assert(leased->state == SP_SANDBOX_LEASED);
	end(&fix, idle, "", SP_END_EXCESS, false);
	cr_assert(idle->state == SP_SANDBOX_KILLING);
	end(&fix, leased, "", SP_END_RELEASED, false);
	cr_assert(leased->state == SP_SANDBOX_KILLING, "whoever has it");
	close_directory(&fix);
}

Test(owner, a_wrong_hint_is_answered_and_a_right_one_obeyed)
{
	struct fixture fix;
	struct sp_sandbox *sandbox;
	size_t near_expiry;

	open_directory(&fix, 2);
	sandbox = idle_one(&fix);
	end(&fix, sandbox, "", SP_END_EXPIRED, true);
	end(&fix, sandbox, "", SP_END_NEAR_EXPIRY, true);
	end(&fix, sandbox, "", SP_END_UNCLAIMED, true);
	cr_assert(sandbox->state == SP_SANDBOX_IDLE && directory.count == 3);
	cr_assert(last_note()->expires_ms == sandbox->expires_ms);
	sandbox->expires_ms = fix.now + 60000;
	near_expiry = fix.ended[SP_END_NEAR_EXPIRY];
	end(&fix, sandbox, "", SP_END_NEAR_EXPIRY, true);
	cr_assert(fix.ended[SP_END_NEAR_EXPIRY] == near_expiry + 1, "at the minimum is too late");
	sandbox = fixture_take(&fix, 1);
	end(&fix, sandbox, "", SP_END_EXPIRED, true);
	cr_assert(sandbox->state == SP_SANDBOX_LEASED, "a wall clock kills nothing");
	close_directory(&fix);
}

/* ---- renewals ---- */

Test(owner, a_renewal_moves_the_end_of_a_claimed_lease_and_never_back)
{
	struct fixture fix;
	struct sp_sandbox *sandbox;
	int64_t before;

	open_directory(&fix, 2);
	sandbox = grant(&fix, 1, 1000, 0);
	directory.owner->renew(directory.arg, sandbox->id, sandbox->lease_id, 90000);
	cr_assert(!sandbox->claimed && sandbox->expires_ms == fix.now + 1000, "not the secret");
	cr_assert(bind(&fix, sandbox, 1, 0) == 0);
	directory.owner->renew(directory.arg, sandbox->id, sandbox->lease_id, 90000);
	cr_assert(sandbox->expires_ms == fix.now + 90000);
	before = sandbox->expires_ms;
	directory.owner->renew(directory.arg, sandbox->id, sandbox->lease_id, 10);
	cr_assert(sandbox->expires_ms == before && last_note()->expires_ms == before);
	directory.owner->renew(directory.arg, sandbox->id, sandbox->lease_id, INT64_MAX);
	cr_assert(sandbox->expires_ms == fix.now + fix.config.max_lease_ms);
	close_directory(&fix);
}

Test(owner, a_renewal_of_another_lease_changes_nothing)
{
	struct fixture fix;
	struct sp_sandbox *sandbox;
	char lease_id[SP_LEASE_ID_LEN + 1];
	int64_t before;

	open_directory(&fix, 2);
	sandbox = grant(&fix, 1, 1000, 0);
	cr_assert(bind(&fix, sandbox, 1, 0) == 0);
	before = sandbox->expires_ms;
	fixture_lease(lease_id, 2);
	directory.owner->renew(directory.arg, sandbox->id, lease_id, 90000);
	cr_assert(sandbox->expires_ms == before);
	close_directory(&fix);
}

/* ---- the first claim ---- */

Test(owner, the_first_claim_binds_and_the_second_lease_is_refused)
{
	struct fixture fix;
	struct sp_sandbox *sandbox;

	open_directory(&fix, 2);
	sandbox = idle_one(&fix);
	cr_assert(bind(&fix, sandbox, 1, 30000) == 0);
	cr_assert(sandbox->claimed && sandbox->expires_ms == fix.now + 30000);
	cr_assert(bind(&fix, sandbox, 2, 0) < 0 && fix.refused == SP_CODE_CONFLICT);
	cr_assert(bind(&fix, sandbox, 1, 0) == 0, "again by the same");
	cr_assert(sandbox->expires_ms == fix.now + 30000);
	close_directory(&fix);
}

Test(owner, a_lease_cannot_claim_two)
{
	struct fixture fix;

	open_directory(&fix, 3);
	cr_assert(bind(&fix, idle_one(&fix), 1, 0) == 0);
	cr_assert(bind(&fix, idle_one(&fix), 1, 0) < 0 && fix.refused == SP_CODE_LEASE_MISMATCH);
	close_directory(&fix);
}

Test(owner, a_lease_that_ended_claims_nothing)
{
	struct fixture fix;
	struct sp_sandbox *sandbox;

	open_directory(&fix, 3);
	sandbox = idle_one(&fix);
	cr_assert(bind(&fix, sandbox, 1, 0) == 0);
	sp_pool_release(fix.pool, sandbox, fix.now);
	cr_assert(bind(&fix, sandbox, 1, 0) < 0 && fix.refused == SP_CODE_LEASE_ENDED);
	cr_assert(bind(&fix, idle_one(&fix), 1, 0) < 0 && fix.refused == SP_CODE_LEASE_ENDED);
	close_directory(&fix);
}

Test(owner, the_ttl_that_the_directory_tells_late_counts_once_from_the_claim)
{
	struct fixture fix;
	struct sp_sandbox *sandbox;

	open_directory(&fix, 2);
	sandbox = idle_one(&fix);
	cr_assert(bind(&fix, sandbox, 1, 0) == 0);
	cr_assert(sandbox->expires_ms == fix.now + 60000, "claim_timeout, until we know more");
	directory.owner->granted(directory.arg, sandbox->id, sandbox->lease_id, 600000, 0);
	cr_assert(sandbox->expires_ms == fix.now + 600000);
	cr_assert(last_note()->expires_ms == fix.now + 600000);
	directory.owner->granted(directory.arg, sandbox->id, sandbox->lease_id, 1000, 0);
	cr_assert(sandbox->expires_ms == fix.now + 600000);
	close_directory(&fix);
}

Test(owner, a_claim_that_the_directory_says_nothing_about_has_the_rest_of_the_idle_life)
{
	struct fixture fix;
	struct sp_sandbox *sandbox;
	int64_t rest;

	open_directory(&fix, 2);
	sandbox = idle_one(&fix);
	rest = sandbox->expires_ms;
	cr_assert(bind(&fix, sandbox, 1, 0) == 0);
	fixture_run(&fix, 60000);
	cr_assert(sandbox->state == SP_SANDBOX_LEASED && sandbox->expires_ms == rest);
	cr_assert(last_note()->expires_ms == rest);
	directory.owner->granted(directory.arg, sandbox->id, sandbox->lease_id, 70000, 0);
	cr_assert(sandbox->expires_ms == rest, "too late to take it back");
	close_directory(&fix);
}

Test(owner, a_renewal_is_not_taken_back_by_the_directorys_ttl)
{
	struct fixture fix;
	struct sp_sandbox *sandbox;
	int64_t ignored;

	open_directory(&fix, 2);
	sandbox = idle_one(&fix);
	cr_assert(bind(&fix, sandbox, 1, 0) == 0);
	cr_assert(sp_pool_renew(fix.pool, sandbox, 90000, fix.now, &ignored, NULL) == 0);
	directory.owner->granted(directory.arg, sandbox->id, sandbox->lease_id, 70000, 0);
	cr_assert(sandbox->expires_ms == fix.now + 90000);
	close_directory(&fix);
}

Test(owner, the_ttl_of_the_claim_goes_before_the_directorys)
{
	struct fixture fix;
	struct sp_sandbox *sandbox;

	open_directory(&fix, 3);
	sandbox = grant(&fix, 1, 60000, 0);
	cr_assert(bind(&fix, sandbox, 1, 5000) == 0 && sandbox->expires_ms == fix.now + 5000);
	sandbox = idle_one(&fix);
	cr_assert(bind(&fix, sandbox, 2, 5000) == 0);
	directory.owner->granted(directory.arg, sandbox->id, sandbox->lease_id, 60000, 0);
	cr_assert(sandbox->expires_ms == fix.now + 5000);
	close_directory(&fix);
}

Test(owner, what_is_leased_already_is_claimed_and_nothing_else)
{
	struct fixture fix;
	struct sp_sandbox *sandbox;

	open_directory(&fix, 2);
	sandbox = fixture_take(&fix, 1);
	cr_assert(bind(&fix, sandbox, 1, 1234) == 0 && sandbox->claimed);
	cr_assert(sandbox->expires_ms > fix.now + 60000, "the acquire's own ttl holds");
	cr_assert(bind(&fix, sandbox, 1, -1) < 0 && fix.refused == SP_CODE_INVALID_ARGUMENT);
	close_directory(&fix);
}

Test(owner, an_acquire_of_what_is_idle_alone_is_quiet_when_there_is_nothing) /* P-020 */
{
	struct fixture fix;
	struct sp_acquire_request request = fixture_request(1, SP_ACQUIRE_CREATE, 5000);

	open_directory(&fix, 0);
	request.idle_only = true;
	cr_assert(fixture_ask(&fix, &request, NULL) < 0 && fix.refused == SP_CODE_POOL_EMPTY);
	cr_assert(fix.acquired == 0 && fix.creates == 0);
	request.idle_only = false;
	cr_assert(fixture_ask(&fix, &request, NULL) == 1 && fix.creates == 1);
	close_directory(&fix);
}
