/*
 * The store over a real Redis: the contract of pool/store.h, and what the hosts of one directory do
 * for each other. What goes wrong is in test_redis_store_faults.c.
 */
#include "redis_store_fixture.h"
#include "store_contract.h"

TestSuite(redis_store, .timeout = 60);
TestSuite(redis_contract, .timeout = 60);
TestSuite(redis_clock, .timeout = 10);

/* ---- the contract ---- */

static struct {
	struct redis_server server;
	struct redis_loop at;
	struct host host;
	bool running;
} contracted;

static struct sp_store *contract_make(void)
{
	struct sp_redis_store_options options;

	redis_server_start(&contracted.server, NULL);
	redis_loop_init(&contracted.at);
	options = host_options(&contracted.server, "a");
	contracted.host = (struct host){.at = &contracted.at};
	cr_assert(sp_redis_store_new(&contracted.at.loop, &options, &host_events, &contracted.host,
				     &contracted.host.store, NULL) == 0);
	REDIS_WAIT(&contracted.at, contracted.host.ups == 1);
	contracted.running = true;
	return contracted.host.store;
}

static bool quiet(struct sp_store *base)
{
	struct redis_store *store = store_of(base);

	SP_LIST_FOREACH (link, &store->pools) {
		struct store_pool *pool = SP_CONTAINER_OF(link, struct store_pool, link);

		/* Nothing is told of a pool that has not registered. */
		if (pool->call.under_way || pool->beat_wanted ||
		    (pool->state == STORE_LIVE && !sp_list_empty(&pool->dirty)))
			return false;
	}
	return sp_list_empty(&store->asks);
}

static void contract_settle(struct sp_store *store)
{
	REDIS_WAIT(&contracted.at, quiet(store));
}

static void contract_pause(struct sp_store *store)
{
	int64_t until = redis_now_ms() + 50;

	(void)store;
	while (redis_now_ms() < until)
		(void)uv_run(&contracted.at.loop, UV_RUN_ONCE);
}

static const struct store_contract contract = {
	.make = contract_make,
	.settle = contract_settle,
	.pause = contract_pause,
};

static void contract_end(void)
{
	REDIS_WAIT(&contracted.at, contracted.host.closes == 1);
	redis_loop_done(&contracted.at);
	redis_server_stop(&contracted.server);
}

#define CONTRACT_TEST(name)                 \
	Test(redis_contract, name)          \
	{                                   \
		contract_##name(&contract); \
		contract_end();             \
	}
STORE_CONTRACT(CONTRACT_TEST)

/* ---- hosts ---- */

struct bench {
	struct redis_server server;
	struct redis_loop at;
	struct host a, b;
};

static void start(struct bench *bench, uint32_t max_idle)
{
	*bench = (struct bench){0};
	redis_server_start(&bench->server, NULL);
	redis_loop_init(&bench->at);
	host_start(&bench->a, &bench->at, &bench->server, "a", max_idle);
}

static void stop(struct bench *bench)
{
	host_stop(&bench->a);
	host_stop(&bench->b);
	redis_loop_done(&bench->at);
	redis_server_stop(&bench->server);
}

Test(redis_store, an_idle_sandbox_of_a_is_acquired_by_anybody) /* P-162 */
{
	struct bench bench;
	struct box *box;
	struct client_answer answer;

	start(&bench, 2);
	box = host_publish(&bench.a);
	cr_assert(box->verdict == SP_STORE_LISTED && !box->outage);
	cr_assert(store_stat(&bench.server, "idle") == 1);
	answer = client_acquire(&bench.server, 1, "fail_fast");
	cr_assert(strcmp(answer.word, "OK") == 0 && strcmp(answer.second, box->sandbox.id) == 0);
	/* No heartbeat of ours: the message on the channel makes one. */
	REDIS_WAIT_FOR(&bench.at, 2000, bench.a.grants == 1);
	cr_assert(box->sandbox.state == SP_SANDBOX_LEASED && box->ttl_ms == 60000);
	cr_assert(bench.a.age_ms >= 0 && bench.a.age_ms < 2000);
	HOST_WAIT(&bench.a, store_stat(&bench.server, "leased") == 1);
	stop(&bench);
}

Test(redis_store, the_ttl_of_a_grant_is_heard_before_the_first_claim_is_told)
{
	struct bench bench;
	struct box *box;

	start(&bench, 2);
	box = host_publish(&bench.a);
	(void)client_acquire(&bench.server, 1, "fail_fast");
	/* The client was faster than the grant: it claimed, and named no ttl. */
	bench.a.stubborn = true;
	box->sandbox.state = SP_SANDBOX_LEASED;
	box->sandbox.claimed = true;
	box->sandbox.ttl_open = true;
	lease_of(box->sandbox.lease_id, 1);
	host_update(&bench.a, box);
	REDIS_WAIT(&bench.at, bench.a.grants == 1);
	HOST_WAIT(&bench.a, host_commands(&bench.a, "update") >= 1);
	HOST_WAIT(&bench.a, bench.a.shares > 10);
	cr_assert(bench.a.grants <= 2, "told at last, though nobody answered it");
	stop(&bench);
}

Test(redis_store, what_was_handed_out_here_is_not_handed_out_there)
{
	struct bench bench;
	struct box *box;

	start(&bench, 2);
	box = host_publish(&bench.a);
	box->sandbox.state = SP_SANDBOX_LEASED;
	lease_of(box->sandbox.lease_id, 5);
	box->sandbox.expires_ms = sp_clock_boot_ms() + 60000;
	host_update(&bench.a, box);
	REDIS_WAIT(&bench.at, store_stat(&bench.server, "idle") == 0);
	cr_assert_str_eq(client_acquire(&bench.server, 1, "fail_fast").word, "EMPTY");
	cr_assert_str_eq(client_acquire(&bench.server, 5, "fail_fast").second, box->sandbox.id);
	stop(&bench);
}

Test(redis_store, more_than_a_share_is_refused)
{
	struct bench bench;

	start(&bench, 1);
	cr_assert(host_publish(&bench.a)->verdict == SP_STORE_LISTED);
	cr_assert(host_publish(&bench.a)->verdict == SP_STORE_REFUSED);
	stop(&bench);
}

Test(redis_store, a_burst_is_told_in_batches) /* P-194 */
{
	struct bench bench;
	unsigned int calls;

	start(&bench, 60);
	calls = host_commands(&bench.a, "publish");
	for (int i = 0; i < 60; i++)
		cr_assert(host_ask(&bench.a, host_add(&bench.a)) == 0);
	REDIS_WAIT(&bench.at, bench.a.boxes[59].published);
	cr_assert(store_stat(&bench.server, "idle") == 60);
	cr_assert(host_commands(&bench.a, "publish") == calls + 1, "one call for 60 of at most 64");
	stop(&bench);
}

Test(redis_store, release_and_renewal_of_clients_reach_the_owner)
{
	struct bench bench;
	struct box *box;
	char lease_id[SP_LEASE_ID_LEN + 1];

	start(&bench, 2);
	box = host_publish(&bench.a);
	(void)client_acquire(&bench.server, 1, "fail_fast");
	REDIS_WAIT(&bench.at, bench.a.grants == 1);
	lease_of(lease_id, 1);
	HOST_WAIT(&bench.a, store_stat(&bench.server, "leased") == 1);
	cr_assert_str_eq(CLIENT(&bench.server, "renew", lease_id, "300000").word, "OK");
	REDIS_WAIT(&bench.at, bench.a.renewals == 1);
	cr_assert(bench.a.renew_ms > 290000 && bench.a.renew_ms <= 300000);
	cr_assert_str_eq(CLIENT(&bench.server, "release", lease_id).word, "OK");
	REDIS_WAIT(&bench.at, bench.a.ends == 1);
	cr_assert(bench.a.reason == SP_END_RELEASED && box->sandbox.state == SP_SANDBOX_GONE);
	HOST_WAIT(&bench.a, store_stat(&bench.server, "entries") == 0);
	cr_assert_str_eq(client_acquire(&bench.server, 1, "fail_fast").word, "LEASE_ENDED");
	stop(&bench);
}

Test(redis_store, a_forged_id_is_hinted_away_and_told_to_be_gone) /* B-117 */
{
	struct bench bench;

	start(&bench, 2);
	(void)host_publish(&bench.a);
	redis_must(&bench.server, "ZADD", "sandpool:{default}:idle:a", "99999999999999",
		   "0123456789abcdefghjk");
	cr_assert_str_eq(client_acquire(&bench.server, 1, "fail_fast").word, "OK");
	cr_assert_str_eq(client_acquire(&bench.server, 2, "fail_fast").word, "EMPTY");
	REDIS_WAIT(&bench.at, bench.a.grants == 1);
	stop(&bench);
}

Test(redis_store, two_hosts_share_max_idle) /* P-109 */
{
	struct bench bench;

	start(&bench, 6);
	host_start(&bench.b, &bench.at, &bench.server, "b", 0);
	bench.b.max_idle = 6;
	host_wait_share(&bench.b, 0);
	for (int i = 0; i < 3; i++) {
		(void)host_beat(&bench.a);
		(void)host_beat(&bench.b);
		REDIS_WAIT_FOR(&bench.at, 2000, quiet(bench.a.store) && quiet(bench.b.store));
	}
	host_wait_share(&bench.a, bench.a.share.share);
	cr_assert(bench.a.share.share + bench.b.share.share <= 6);
	cr_assert(sp_redis_store_host_count(bench.a.store, STORE_POOL) == 2);
	stop(&bench);
}

Test(redis_store, an_operator_reaches_every_host)
{
	struct bench bench;

	start(&bench, 4);
	cr_assert_str_eq(CLIENT(&bench.server, "resize", "1", "50", "0").word, "OK");
	REDIS_WAIT_FOR(&bench.at, 2000, bench.a.seens == 1);
	cr_assert(bench.a.seen.revision == 1 && bench.a.seen.max_idle == 1);
	REDIS_WAIT(&bench.at, bench.a.share.share == 1 && bench.a.share.meta.max_total == 50);
	cr_assert_str_eq(CLIENT(&bench.server, "set_state", "draining", "0").word, "OK");
	REDIS_WAIT(&bench.at, bench.a.share.meta.state == SP_STORE_DRAINING);
	cr_assert(bench.a.share.share == 0);
	stop(&bench);
}

Test(redis_store, a_drained_host_hands_out_nothing_and_remembers_it)
{
	struct bench bench;
	struct sp_redis_pool_facts facts = {.spec_digest = "none", .draining = true};
	struct sp_redis_store_options options;

	start(&bench, 2);
	(void)host_publish(&bench.a);
	cr_assert_str_eq(CLIENT(&bench.server, "drain_host", "a", "1").word, "OK");
	cr_assert_str_eq(client_acquire(&bench.server, 1, "fail_fast").word, "EMPTY");
	REDIS_WAIT(&bench.at, bench.a.seens == 1 && bench.a.draining);
	host_wait_share(&bench.a, 0);
	host_stop(&bench.a);
	/* Its next life was told by the state directory. */
	redis_must(&bench.server, "FLUSHALL");
	options = host_options(&bench.server, "a");
	host_open(&bench.a, &bench.at, &options, 2);
	cr_assert(sp_redis_store_pool(bench.a.store, STORE_POOL, &facts, NULL) == 0);
	REDIS_WAIT(&bench.at, bench.a.ups == 1);
	HOST_WAIT(&bench.a, bench.a.shares > 3);
	cr_assert(bench.a.share.share == 0);
	cr_assert_str_eq(CLIENT(&bench.server, "drain_host", "a", "0").word, "OK");
	REDIS_WAIT(&bench.at, !bench.a.draining && bench.a.seens == 1);
	stop(&bench);
}

Test(redis_store, a_host_that_is_about_to_go_gets_nothing_and_keeps_what_is_leased)
{
	struct bench bench;
	struct box *box;

	start(&bench, 2);
	box = host_publish(&bench.a);
	cr_assert_str_eq(client_acquire(&bench.server, 1, "fail_fast").word, "OK");
	HOST_WAIT(&bench.a, box->sandbox.state == SP_SANDBOX_LEASED);
	HOST_WAIT(&bench.a, host_publish(&bench.a)->verdict == SP_STORE_LISTED);
	bench.a.leaving = true;
	host_wait_share(&bench.a, 0);
	cr_assert_str_eq(client_acquire(&bench.server, 2, "fail_fast").word, "EMPTY");
	cr_assert_str_eq(client_acquire(&bench.server, 1, "fail_fast").word, "OK");
	/* What an operator says of it then is kept for its next life, and changes nothing now. */
	cr_assert_str_eq(CLIENT(&bench.server, "drain_host", "a", "1").word, "OK");
	HOST_WAIT(&bench.a, bench.a.draining);
	cr_assert_str_eq(CLIENT(&bench.server, "drain_host", "a", "0").word, "OK");
	HOST_WAIT(&bench.a, !bench.a.draining);
	cr_assert(bench.a.share.share == 0 && bench.a.ends == 0 && bench.a.hints == 0);
	bench.a.leaving = false;
	host_wait_share(&bench.a, 2);
	stop(&bench);
}

Test(redis_store, another_spec_makes_nothing)
{
	struct bench bench;
	struct sp_redis_pool_facts old = {.spec_digest = "one", .spec_revision = 1};
	struct sp_redis_pool_facts new = {.spec_digest = "two", .spec_revision = 2};

	start(&bench, 4);
	cr_assert(sp_redis_store_pool(bench.a.store, STORE_POOL, &new, NULL) == 0);
	HOST_WAIT(&bench.a, host_commands(&bench.a, "register") == 2);
	host_wait_share(&bench.a, 4);
	cr_assert(bench.a.mismatches == 0, "a higher revision moves the pool on");
	cr_assert(sp_redis_store_pool(bench.a.store, STORE_POOL, &old, NULL) == 0);
	HOST_WAIT(&bench.a, bench.a.mismatches == 1);
	cr_assert_str_eq(bench.a.mismatch, "two");
	host_wait_share(&bench.a, 0);
	cr_assert(sp_redis_store_pool(bench.a.store, STORE_POOL, &new, NULL) == 0);
	HOST_WAIT(&bench.a, bench.a.mismatches == 2);
	cr_assert_str_eq(bench.a.mismatch, "");
	stop(&bench);
}

Test(redis_store, a_host_that_leaves_takes_its_entries_along)
{
	struct bench bench;

	start(&bench, 2);
	(void)host_publish(&bench.a);
	(void)client_acquire(&bench.server, 1, "fail_fast");
	(void)host_publish(&bench.a);
	host_stop(&bench.a);
	cr_assert(store_stat(&bench.server, "entries") == 0);
	cr_assert(store_stat(&bench.server, "hosts") == 0);
	cr_assert_str_eq(client_acquire(&bench.server, 1, "fail_fast").word, "LEASE_ENDED");
	cr_assert_str_eq(client_acquire(&bench.server, 2, "fail_fast").word, "EMPTY");
	stop(&bench);
}

Test(redis_store, the_intent_of_the_last_life_is_offered)
{
	struct bench bench;
	struct sp_redis_store_options options;
	struct sp_redis_pool_facts facts = {
		.spec_digest = "none",
		.seen = {.revision = 7, .max_idle = 1, .max_total = 9},
	};

	bench = (struct bench){0};
	redis_server_start(&bench.server, NULL);
	redis_loop_init(&bench.at);
	options = host_options(&bench.server, "a");
	host_open(&bench.a, &bench.at, &options, 5);
	cr_assert(sp_redis_store_pool(bench.a.store, STORE_POOL, &facts, NULL) == 0);
	REDIS_WAIT(&bench.at, bench.a.ups == 1);
	host_wait_share(&bench.a, 1);
	cr_assert(bench.a.share.meta.revision == 7 && bench.a.share.meta.max_total == 9);
	cr_assert(bench.a.seens == 0, "nothing newer than what it knew");
	stop(&bench);
}

static size_t host_rows;
static char host_state[32];

static void on_hosts(void *arg, const struct sp_redis_host *hosts, size_t count,
		     const struct sp_err *err)
{
	(void)arg;
	cr_assert(!err);
	host_rows = count;
	if (count > 0) {
		(void)snprintf(host_state, sizeof(host_state), "%s %s", hosts[0].host,
			       hosts[0].state);
		cr_assert(hosts[0].idle == 1 && hosts[0].capacity == 1);
		cr_assert_str_eq(hosts[0].endpoint, "tcp://127.0.0.1:1");
		cr_assert_str_eq(hosts[0].version, "test");
	}
}

static unsigned int drained;
static enum sp_code drain_code;

static void on_drained(void *arg, const struct sp_err *err)
{
	(void)arg;
	drained++;
	drain_code = err ? sp_err_client_code(err) : SP_CODE_NONE;
}

Test(redis_store, hosts_are_listed_and_drained)
{
	struct bench bench;

	start(&bench, 2);
	(void)host_publish(&bench.a);
	cr_assert(sp_redis_store_hosts(bench.a.store, STORE_POOL, on_hosts, NULL, NULL) == 0);
	REDIS_WAIT(&bench.at, host_rows == 1);
	cr_assert_str_eq(host_state, "a live");
	cr_assert(sp_redis_store_drain_host(bench.a.store, STORE_POOL, "a", true, on_drained, NULL,
					    NULL) == 0);
	REDIS_WAIT(&bench.at, drained == 1);
	cr_assert(drain_code == SP_CODE_NONE);
	cr_assert(sp_redis_store_drain_host(bench.a.store, STORE_POOL, "zz", true, on_drained, NULL,
					    NULL) == 0);
	REDIS_WAIT(&bench.at, drained == 2);
	cr_assert(drain_code == SP_CODE_NOT_FOUND);
	stop(&bench);
}

/* ---- acquires out of the cluster ---- */

static void on_acquired(void *arg, const struct sp_redis_grant *grant, const struct sp_err *err)
{
	struct host *host = arg;

	host->answers++;
	host->acquire = NULL;
	host->granted = grant != NULL;
	host->refused = err ? sp_err_client_code(err) : SP_CODE_NONE;
	if (!grant)
		return;
	host->here = grant->here;
	(void)snprintf(host->granted_id, sizeof(host->granted_id), "%s", grant->sandbox_id);
	(void)snprintf(host->granted_host, sizeof(host->granted_host), "%s", grant->host);
	cr_assert(grant->remaining_ms > 0 && strcmp(grant->endpoint, "tcp://127.0.0.1:1") == 0);
}

static int acquire(struct host *host, unsigned int lease, enum sp_acquire_policy policy,
		   int64_t wait_ms, bool not_here)
{
	char lease_id[SP_LEASE_ID_LEN + 1];
	struct sp_redis_wish wish = {
		.pool = STORE_POOL,
		.lease_id = lease_id,
		.policy = policy,
		.ttl_ms = 60000,
		.wait_ms = wait_ms,
		.not_here = not_here,
	};
	struct sp_err err = {0};
	int status;

	lease_of(lease_id, lease);
	host->granted = false;
	status =
		sp_redis_store_acquire(host->store, &wish, on_acquired, host, &host->acquire, &err);
	host->refused = status < 0 ? sp_err_client_code(&err) : SP_CODE_NONE;
	return status;
}

Test(redis_store, an_acquire_finds_what_another_host_has)
{
	struct bench bench;
	struct box *box;

	start(&bench, 2);
	host_start(&bench.b, &bench.at, &bench.server, "b", 0);
	box = host_publish(&bench.a);
	cr_assert(acquire(&bench.b, 1, SP_ACQUIRE_FAIL_FAST, 0, true) == 0);
	cr_assert(bench.b.answers == 0, "never before the call has returned");
	REDIS_WAIT(&bench.at, bench.b.answers == 1);
	cr_assert(bench.b.granted && !bench.b.here);
	cr_assert_str_eq(bench.b.granted_id, box->sandbox.id);
	cr_assert_str_eq(bench.b.granted_host, "a");
	cr_assert(acquire(&bench.b, 1, SP_ACQUIRE_FAIL_FAST, 0, true) == 0);
	REDIS_WAIT(&bench.at, bench.b.answers == 2);
	cr_assert_str_eq(bench.b.granted_id, box->sandbox.id, "the same lease, the same sandbox");
	cr_assert(acquire(&bench.b, 2, SP_ACQUIRE_FAIL_FAST, 0, true) == 0);
	REDIS_WAIT(&bench.at, bench.b.answers == 3);
	cr_assert(bench.b.refused == SP_CODE_POOL_EMPTY);
	(void)host_publish(&bench.a);
	cr_assert(acquire(&bench.a, 3, SP_ACQUIRE_FAIL_FAST, 0, true) == 0);
	REDIS_WAIT(&bench.at, bench.a.answers == 1);
	cr_assert(bench.a.refused == SP_CODE_POOL_EMPTY, "not from here");
	stop(&bench);
}

Test(redis_store, one_that_waits_is_served_by_the_next_that_is_ready)
{
	struct bench bench;
	struct box *box;

	start(&bench, 2);
	host_start(&bench.b, &bench.at, &bench.server, "b", 0);
	cr_assert(acquire(&bench.b, 1, SP_ACQUIRE_WAIT, 10000, false) == 0);
	REDIS_WAIT(&bench.at, store_stat(&bench.server, "tickets") == 1);
	box = host_publish(&bench.a);
	cr_assert(box->verdict == SP_STORE_GRANTED && box->ttl_ms == 60000);
	REDIS_WAIT_FOR(&bench.at, 2000, bench.b.answers == 1);
	cr_assert(bench.b.granted && strcmp(bench.b.granted_id, box->sandbox.id) == 0);
	/* And one of our own is heard of at once. */
	cr_assert(acquire(&bench.a, 2, SP_ACQUIRE_WAIT, 10000, false) == 0);
	REDIS_WAIT(&bench.at, store_stat(&bench.server, "tickets") == 1);
	box = host_publish(&bench.a);
	cr_assert(box->verdict == SP_STORE_GRANTED);
	REDIS_WAIT_FOR(&bench.at, 2000, bench.a.answers == 1);
	cr_assert(bench.a.granted && bench.a.here);
	stop(&bench);
}

Test(redis_store, one_that_waits_in_vain_is_told_in_time)
{
	struct bench bench;
	int64_t started;

	start(&bench, 0);
	started = redis_now_ms();
	cr_assert(acquire(&bench.a, 1, SP_ACQUIRE_WAIT, 300, false) == 0);
	REDIS_WAIT(&bench.at, bench.a.answers == 1);
	cr_assert(bench.a.refused == SP_CODE_ACQUIRE_TIMEOUT);
	cr_assert(redis_now_ms() - started >= 290 && redis_now_ms() - started < 2000);
	cr_assert(store_stat(&bench.server, "tickets") == 0, "its ticket is gone");
	stop(&bench);
}

Test(redis_store, one_that_left_is_no_demand_and_holds_nothing) /* B-122 */
{
	struct bench bench;

	start(&bench, 2);
	cr_assert(acquire(&bench.a, 1, SP_ACQUIRE_WAIT, 10000, false) == 0);
	REDIS_WAIT(&bench.at, store_stat(&bench.server, "tickets") == 1);
	sp_redis_acquire_cancel(bench.a.acquire);
	REDIS_WAIT(&bench.at, store_stat(&bench.server, "tickets") == 0);
	cr_assert(host_publish(&bench.a)->verdict == SP_STORE_LISTED);
	/* Cancelled while the question is under way. */
	cr_assert(acquire(&bench.a, 2, SP_ACQUIRE_FAIL_FAST, 0, false) == 0);
	(void)uv_run(&bench.at.loop, UV_RUN_ONCE);
	sp_redis_acquire_cancel(bench.a.acquire);
	HOST_WAIT(&bench.a, store_stat(&bench.server, "leased") == 0 &&
				    store_stat(&bench.server, "idle") <= 1);
	cr_assert(bench.a.answers == 0);
	stop(&bench);
}

Test(redis_store, a_rejected_one_is_not_given_again)
{
	struct bench bench;
	char lease_id[SP_LEASE_ID_LEN + 1];
	char first[SP_SANDBOX_ID_LEN + 1];
	struct sp_redis_wish wish = {
		.pool = STORE_POOL,
		.lease_id = lease_id,
		.ttl_ms = 60000,
		.reject = first,
	};

	start(&bench, 2);
	(void)host_publish(&bench.a);
	(void)host_publish(&bench.a);
	lease_of(lease_id, 1);
	cr_assert(acquire(&bench.a, 1, SP_ACQUIRE_FAIL_FAST, 0, false) == 0);
	REDIS_WAIT(&bench.at, bench.a.answers == 1);
	memcpy(first, bench.a.granted_id, sizeof(first));
	cr_assert(sp_redis_store_acquire(bench.a.store, &wish, on_acquired, &bench.a,
					 &bench.a.acquire, NULL) == 0);
	REDIS_WAIT(&bench.at, bench.a.answers == 2);
	cr_assert(bench.a.granted && strcmp(bench.a.granted_id, first) != 0);
	stop(&bench);
}

Test(redis_store, what_refuses_an_acquire_has_a_code)
{
	struct bench bench;

	start(&bench, 2);
	(void)client_acquire(&bench.server, 1, "wait");
	cr_assert(acquire(&bench.a, 1, SP_ACQUIRE_FAIL_FAST, 0, false) == 0);
	REDIS_WAIT(&bench.at, bench.a.answers == 1);
	cr_assert(bench.a.refused == SP_CODE_LEASE_MISMATCH);
	(void)CLIENT(&bench.server, "set_state", "draining", "0");
	cr_assert(acquire(&bench.a, 2, SP_ACQUIRE_FAIL_FAST, 0, false) == 0);
	REDIS_WAIT(&bench.at, bench.a.answers == 2);
	cr_assert(bench.a.refused == SP_CODE_POOL_NOT_RUNNING);
	(void)CLIENT(&bench.server, "set_state", "destroyed", "0");
	cr_assert(acquire(&bench.a, 3, SP_ACQUIRE_FAIL_FAST, 0, false) == 0);
	REDIS_WAIT(&bench.at, bench.a.answers == 3);
	cr_assert(bench.a.refused == SP_CODE_POOL_DESTROYED);
	stop(&bench);
}

/* ---- options ---- */

Test(redis_store, options_that_cannot_be_are_named)
{
	struct redis_loop at;
	struct redis_server server = {.url = "unix:///nowhere"};

	const struct {
		const char *host, *endpoint, *prefix, *url, *message;
	} cases[] = {
		{"UP", "e", "p", NULL, "host name 'UP'"},
		{"", "e", "p", NULL, "host name ''"},
		{"a", "", "p", NULL, "endpoint of host 'a'"},
		{"a", "e\n", "p", NULL, "endpoint of host 'a'"},
		{"a", "e", "", NULL, "prefix ''"},
		{"a", "e", "p{", NULL, "prefix 'p{'"},
		{"a", "e", "p", "redis://u:secret@h", ""},
	};

	redis_loop_init(&at);
	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++) {
		struct sp_redis_store_options options = host_options(&server, cases[i].host);
		struct sp_store *store = NULL;
		struct sp_err err = {0};

		options.endpoint = cases[i].endpoint;
		options.prefix = cases[i].prefix;
		if (cases[i].url)
			options.redis.url = cases[i].url;
		cr_assert(sp_redis_store_new(&at.loop, &options, &host_events, NULL, &store, &err) <
			  0);
		cr_assert(strstr(err.message, cases[i].message), "%s", err.message);
		cr_assert(!strstr(err.message, "secret"));
	}
	redis_loop_done(&at);
}

/* ---- the clock ---- */

Test(redis_clock, ends_err_early_by_the_round_trip_at_most)
{
	struct store_clock clock = {0};

	cr_assert(store_clock_absolute(&clock, 5000) == 0, "unknown");
	cr_assert(!store_clock_hear(&clock, 1000000, 4900, 5000));
	cr_assert(store_clock_absolute(&clock, 5000) == 1000000);
	/* Had the server answered at the very beginning, 5000 would have been 1000100 there. */
	cr_assert(store_clock_absolute(&clock, 6000) == 1001000);
}

Test(redis_clock, a_drift_is_told_beyond_half_a_second_and_the_round_trip) /* B-126, B-127 */
{
	struct store_clock clock = {0};

	(void)store_clock_hear(&clock, 1000000, 5000, 5000);
	cr_assert(!store_clock_hear(&clock, 1001500, 6000, 6000), "500 ms");
	(void)store_clock_hear(&clock, 1001000, 6000, 6000);
	cr_assert(store_clock_hear(&clock, 1002501, 7000, 7000), "501 ms");
	(void)store_clock_hear(&clock, 1002000, 7000, 7000);
	cr_assert(!store_clock_hear(&clock, 1003000 - 800, 8000 - 300, 8000), "it was only slow");
	(void)store_clock_hear(&clock, 1003000, 8000, 8000);
	cr_assert(store_clock_hear(&clock, 403000, 9000, 9000), "set back");
	cr_assert(store_clock_absolute(&clock, 9000) == 403000);
	(void)store_clock_hear(&clock, 404000 - 40, 9950, 10000);
	cr_assert(store_clock_absolute(&clock, 9000) == 403000, "the same end in the same words");
	(void)store_clock_hear(&clock, 405001, 11000, 11000);
	cr_assert(store_clock_absolute(&clock, 9000) == 403000, "1 ms early");
	(void)store_clock_hear(&clock, 405050, 11000, 11000);
	cr_assert(store_clock_absolute(&clock, 9000) == 403000, "50 ms early");
	(void)store_clock_hear(&clock, 405051, 11000, 11000);
	cr_assert(store_clock_absolute(&clock, 9000) == 403051, "51 ms early");
	(void)store_clock_hear(&clock, 405050, 11000, 11000);
	cr_assert(store_clock_absolute(&clock, 9000) == 403050, "never late");
}
