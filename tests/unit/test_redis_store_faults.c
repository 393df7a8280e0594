/*
 * The store when things go wrong: servers that die, forget, stall or refuse, answers that are lost,
 * another daemon under our name.
 */
#include "redis_store_fixture.h"

TestSuite(redis_store_faults, .timeout = 90);

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

/* One idle, one leased to lease 9. */
static struct box *populate(struct bench *bench)
{
	struct box *leased = host_publish(&bench->a);

	leased->sandbox.state = SP_SANDBOX_LEASED;
	leased->sandbox.claimed = true;
	lease_of(leased->sandbox.lease_id, 9);
	host_update(&bench->a, leased);
	(void)host_publish(&bench->a);
	HOST_WAIT(&bench->a, store_stat(&bench->server, "idle") == 1);
	return leased;
}

static void expect_all_told(struct bench *bench, const struct box *leased)
{
	unsigned int shares = bench->a.shares;

	/* Damage is met by the next calls: those of one turn of the rotation. */
	HOST_WAIT(&bench->a, bench->a.shares > shares + 14);
	HOST_WAIT(&bench->a, store_stat(&bench->server, "entries") == 2 &&
				     store_stat(&bench->server, "idle") == 1);
	cr_assert_str_eq(client_acquire(&bench->server, 9, "fail_fast").second, leased->sandbox.id);
	cr_assert(bench->a.fences == 0);
}

Test(redis_store_faults, a_server_that_forgot_everything_is_told_again) /* B-137, B-140 */
{
	struct bench bench;
	struct box *leased;

	start(&bench, 4);
	leased = populate(&bench);
	redis_server_signal(&bench.server, SIGKILL);
	REDIS_WAIT(&bench.at, bench.a.downs >= 1);
	redis_server_run(&bench.server);
	expect_all_told(&bench, leased);
	stop(&bench);
}

Test(redis_store_faults, flushall_heals) /* B-140 */
{
	struct bench bench;
	struct box *leased;

	start(&bench, 4);
	leased = populate(&bench);
	for (int i = 0; i < 3; i++) {
		redis_must(&bench.server, "FLUSHALL");
		expect_all_told(&bench, leased);
	}
	cr_assert(bench.a.downs == 0);
	stop(&bench);
}

Test(redis_store_faults, function_flush_fails_nothing) /* B-137 */
{
	struct bench bench;

	start(&bench, 40);
	for (int i = 0; i < 20; i++) {
		redis_must(&bench.server, "FUNCTION", "FLUSH");
		cr_assert(host_ask(&bench.a, host_add(&bench.a)) == 0);
		REDIS_WAIT(&bench.at, bench.a.boxes[i].published);
		cr_assert(bench.a.boxes[i].verdict == SP_STORE_LISTED && !bench.a.boxes[i].outage);
	}
	HOST_WAIT(&bench.a, store_stat(&bench.server, "idle") == 20);
	stop(&bench);
}

Test(redis_store_faults, keys_of_a_wrong_type_and_records_that_are_no_records_heal)
{
	static const char *const keys[] = {"meta",   "hosts", "sb",      "own:a",
					   "idle:a", "lease", "answers", "hosts:idle"};
	struct bench bench;
	struct box *leased;

	start(&bench, 4);
	leased = populate(&bench);
	for (size_t i = 0; i < SP_ARRAY_SIZE(keys); i++) {
		char key[64];

		(void)snprintf(key, sizeof(key), "sandpool:{default}:%s", keys[i]);
		redis_must(&bench.server, "SET", key, "x");
		expect_all_told(&bench, leased);
	}
	redis_must(&bench.server, "HSET", "sandpool:{default}:hosts", "a", "not a record");
	expect_all_told(&bench, leased);
	redis_must(&bench.server, "DEL", "sandpool:{default}:idle:a");
	HOST_WAIT(&bench.a, store_stat(&bench.server, "idle") == 1); /* the rotation, B-129 */
	stop(&bench);
}

Test(redis_store_faults, an_outage_lists_here_and_the_return_lists_there) /* P-070, B-142, B-150 */
{
	struct bench bench;
	struct box *box;
	struct sp_redis_wish wish = {.pool = STORE_POOL, .lease_id = HOST_SECRET};
	struct sp_err err = {0};

	start(&bench, 4);
	redis_server_signal(&bench.server, SIGKILL);
	REDIS_WAIT(&bench.at, bench.a.downs >= 1);
	cr_assert(!bench.a.store->ops->up(bench.a.store));
	box = host_add(&bench.a);
	cr_assert(host_ask(&bench.a, box) < 0, "listed by whoever asks, at once");
	cr_assert(host_beat(&bench.a) < 0);
	cr_assert(sp_redis_store_acquire(bench.a.store, &wish, NULL, NULL, &bench.a.acquire, &err) <
		  0);
	cr_assert(sp_err_client_code(&err) == SP_CODE_POOL_STATE_STORE_UNAVAILABLE);
	redis_server_run(&bench.server);
	REDIS_WAIT(&bench.at, bench.a.ups == 2);
	HOST_WAIT(&bench.a, store_stat(&bench.server, "idle") == 1);
	cr_assert(!box->published, "nobody waited for that verdict any more");
	stop(&bench);
}

Test(redis_store_faults, a_stalled_server_keeps_nobody_waiting) /* B-135 */
{
	struct bench bench;
	struct box *box;
	int64_t started;

	start(&bench, 4);
	redis_server_signal(&bench.server, SIGSTOP);
	box = host_add(&bench.a);
	started = redis_now_ms();
	cr_assert(host_ask(&bench.a, box) == 0);
	REDIS_WAIT(&bench.at, box->published);
	cr_assert(box->verdict == SP_STORE_LISTED && box->outage);
	cr_assert(redis_now_ms() - started < 1500, "about the command timeout of 300 ms");
	redis_server_signal(&bench.server, SIGCONT);
	HOST_WAIT(&bench.a, store_stat(&bench.server, "idle") == 1);
	stop(&bench);
}

Test(redis_store_faults, a_call_whose_answer_was_lost_has_its_effect_once) /* B-139 */
{
	struct bench bench;
	unsigned int registered;
	struct box *box;

	start(&bench, 4);
	registered = host_commands(&bench.a, "register");
	/* It arrives, and is carried out after we have given up the connection. */
	redis_server_signal(&bench.server, SIGSTOP);
	box = host_add(&bench.a);
	cr_assert(host_ask(&bench.a, box) == 0);
	REDIS_WAIT(&bench.at, box->published && bench.a.downs >= 1);
	redis_server_signal(&bench.server, SIGCONT);
	HOST_WAIT(&bench.a, store_stat(&bench.server, "idle") == 1);
	HOST_WAIT(&bench.a, bench.a.ups == 2);
	(void)host_publish(&bench.a);
	cr_assert(host_commands(&bench.a, "register") == registered, "no gap in seq");
	cr_assert(store_stat(&bench.server, "entries") == 2);
	stop(&bench);
}

Test(redis_store_faults, a_grant_in_a_lost_answer_is_heard_of) /* B-100 */
{
	struct bench bench;
	struct box *box;
	char lease_id[SP_LEASE_ID_LEN + 1];

	start(&bench, 4);
	cr_assert_str_eq(client_acquire(&bench.server, 1, "wait").word, "WAIT");
	redis_server_signal(&bench.server, SIGSTOP);
	box = host_add(&bench.a);
	cr_assert(host_ask(&bench.a, box) == 0);
	REDIS_WAIT(&bench.at, box->published && box->outage);
	redis_server_signal(&bench.server, SIGCONT);
	HOST_WAIT(&bench.a, bench.a.grants >= 1);
	lease_of(lease_id, 1);
	cr_assert(box->sandbox.state == SP_SANDBOX_LEASED);
	cr_assert_str_eq(box->sandbox.lease_id, lease_id);
	stop(&bench);
}

Test(redis_store_faults, a_second_start_fences_the_first) /* B-105, B-106 */
{
	struct bench bench;
	struct sp_redis_store_options options;

	start(&bench, 4);
	(void)host_publish(&bench.a);
	options = host_options(&bench.server, "a"); /* same secret, same boot */
	host_open(&bench.b, &bench.at, &options, 4);
	REDIS_WAIT(&bench.at, bench.b.ups == 1);
	HOST_WAIT(&bench.b, bench.b.shares >= 1);
	cr_assert(bench.b.fences == 0);
	HOST_WAIT(&bench.a, bench.a.fences == 1);
	cr_assert(strstr(bench.a.why, "another start"), "%s", bench.a.why);
	cr_assert(host_beat(&bench.a) < 0 && host_ask(&bench.a, host_add(&bench.a)) < 0);
	HOST_WAIT(&bench.b, store_stat(&bench.server, "idle") == 0);
	stop(&bench);
}

Test(redis_store_faults, a_name_that_another_has_is_not_taken) /* B-109 */
{
	struct bench bench;
	struct sp_redis_store_options options;
	int64_t begin_ms;

	start(&bench, 4);
	options = host_options(&bench.server, "a");
	options.secret_digest = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
	host_open(&bench.b, &bench.at, &options, 4);
	REDIS_WAIT(&bench.at, bench.b.ups == 1);
	begin_ms = redis_now_ms();
	for (int64_t end = begin_ms + 30000; bench.b.fences == 0 && redis_now_ms() < end;) {
		(void)host_beat(&bench.a);
		(void)host_beat(&bench.b);
		(void)uv_run(&bench.at.loop, UV_RUN_ONCE);
	}
	cr_assert(bench.b.fences == 1 && bench.a.fences == 0);
	cr_assert(bench.b.shares == 0, "it never had one");
	cr_assert(strstr(bench.b.why, "is another daemon's"), "%s", bench.b.why);
	/* As long as a host that died just then would have counted as alive, and hardly more. */
	cr_assert(redis_now_ms() - begin_ms > 4000 && redis_now_ms() - begin_ms < 8000);
	stop(&bench);
}

Test(redis_store_faults, a_name_whose_host_is_gone_is_taken_over)
{
	struct bench bench;
	struct sp_redis_store_options options;

	start(&bench, 4);
	bench.a.store->ops->free(bench.a.store); /* as if it had been killed */
	REDIS_WAIT(&bench.at, bench.a.closes == 1);
	cr_assert(store_stat(&bench.server, "hosts_live") == 1);
	options = host_options(&bench.server, "a");
	options.boot_id = "boot-2"; /* the host was rebooted */
	host_open(&bench.b, &bench.at, &options, 4);
	REDIS_WAIT(&bench.at, bench.b.ups == 1);
	HOST_WAIT(&bench.b, bench.b.shares >= 1);
	cr_assert(bench.b.fences == 0 && bench.b.refusals == 1);
	stop(&bench);
}

Test(redis_store_faults, a_server_that_refuses_is_asked_again) /* B-138 */
{
	struct bench bench;

	start(&bench, 4);
	redis_must(&bench.server, "REPLICAOF", "127.0.0.1", "1");
	HOST_WAIT(&bench.a, bench.a.failed_shares + bench.a.downs >= 1);
	redis_must(&bench.server, "REPLICAOF", "NO", "ONE");
	HOST_WAIT(&bench.a, bench.a.store->ops->up(bench.a.store));
	cr_assert(host_publish(&bench.a)->verdict == SP_STORE_LISTED);
	cr_assert(bench.a.fences == 0);
	stop(&bench);
}

Test(redis_store_faults, a_server_without_memory_still_hears_of_us) /* B-138 */
{
	struct bench bench;
	struct box *box;

	start(&bench, 4);
	redis_must(&bench.server, "CONFIG", "SET", "maxmemory", "1");
	box = host_publish(&bench.a);
	cr_assert(box->verdict == SP_STORE_LISTED && !box->outage);
	stop(&bench);
}

Test(redis_store_faults, an_evicting_server_is_told_of) /* B-141 */
{
	static const char *const evicting[] = {"--maxmemory-policy", "allkeys-lru", NULL};
	struct bench bench = {0};

	redis_server_start(&bench.server, evicting);
	redis_loop_init(&bench.at);
	host_start(&bench.a, &bench.at, &bench.server, "a", 1);
	REDIS_WAIT(&bench.at, bench.a.evicts[0] != '\0');
	cr_assert_str_eq(bench.a.evicts, "allkeys-lru");
	stop(&bench);
}

Test(redis_store_faults, the_intent_comes_back_with_the_hosts)
{
	struct bench bench;

	start(&bench, 4);
	(void)CLIENT(&bench.server, "resize", "2", "20", "0");
	REDIS_WAIT(&bench.at, bench.a.seens == 1);
	redis_must(&bench.server, "FLUSHALL");
	HOST_WAIT(&bench.a, store_stat(&bench.server, "revision") == 1 &&
				    store_stat(&bench.server, "max_idle") == 2);
	stop(&bench);
}

Test(redis_store_faults, more_than_can_be_noted_is_told_from_the_start)
{
	struct bench bench;
	struct box *leased;
	struct sp_sandbox gone = {.state = SP_SANDBOX_GONE};
	unsigned int resyncs;

	start(&bench, 4);
	leased = populate(&bench);
	resyncs = host_commands(&bench.a, "resync");
	redis_server_signal(&bench.server, SIGSTOP);
	(void)host_beat(&bench.a);
	REDIS_WAIT(&bench.at, bench.a.downs >= 1);
	for (unsigned int i = 0; i < STORE_ITEMS_MAX + 1; i++) {
		sp_sandbox_id_new(gone.id);
		bench.a.store->ops->update(bench.a.store, STORE_POOL, &gone, 0);
	}
	cr_assert(store_pool_find(store_of(bench.a.store), STORE_POOL)->items.count ==
		  STORE_ITEMS_MAX);
	cr_assert(store_pool_find(store_of(bench.a.store), STORE_POOL)->forgot);
	redis_server_signal(&bench.server, SIGCONT);
	HOST_WAIT(&bench.a, host_commands(&bench.a, "resync") > resyncs);
	expect_all_told(&bench, leased);
	stop(&bench);
}

Test(redis_store_faults, many_are_told_in_parts)
{
	struct bench bench;
	struct sp_sandbox *sandbox;
	unsigned int resyncs;

	start(&bench, 60);
	for (int i = 0; i < 60; i++)
		(void)host_publish(&bench.a);
	resyncs = host_commands(&bench.a, "resync");
	redis_must(&bench.server, "FLUSHALL");
	HOST_WAIT(&bench.a, store_stat(&bench.server, "entries") == 60);
	HOST_WAIT(&bench.a, host_commands(&bench.a, "resync") >= resyncs + 2);
	cr_assert(host_commands(&bench.a, "resync") == resyncs + 2, "begin and end");
	sandbox = &bench.a.boxes[0].sandbox;
	sandbox->state = SP_SANDBOX_GONE;
	redis_must(&bench.server, "FLUSHALL");
	HOST_WAIT(&bench.a, store_stat(&bench.server, "entries") == 59);
	stop(&bench);
}

Test(redis_store_faults, a_server_that_is_not_there_yet_is_waited_for)
{
	struct bench bench = {0};
	struct sp_redis_store_options options;

	redis_server_start(&bench.server, NULL);
	redis_server_signal(&bench.server, SIGKILL);
	redis_loop_init(&bench.at);
	options = host_options(&bench.server, "a");
	host_open(&bench.a, &bench.at, &options, 2);
	REDIS_WAIT(&bench.at, bench.a.downs == 1);
	cr_assert(bench.a.ups == 0);
	redis_server_run(&bench.server);
	REDIS_WAIT(&bench.at, bench.a.ups == 1);
	host_wait_share(&bench.a, 2);
	stop(&bench);
}

Test(redis_store_faults, closing_during_an_outage_is_bounded)
{
	struct bench bench;
	int64_t started;

	start(&bench, 4);
	(void)populate(&bench);
	redis_server_signal(&bench.server, SIGSTOP);
	started = redis_now_ms();
	host_stop(&bench.a);
	cr_assert(redis_now_ms() - started < 2000, "one command timeout");
	redis_server_signal(&bench.server, SIGCONT);
	stop(&bench);
}

Test(redis_store_faults, freeing_in_the_middle_of_everything_is_clean)
{
	struct bench bench;
	struct sp_redis_wish wish = {
		.pool = STORE_POOL,
		.lease_id = HOST_SECRET,
		.policy = SP_ACQUIRE_WAIT,
		.wait_ms = 10000,
	};

	start(&bench, 4);
	(void)host_ask(&bench.a, host_add(&bench.a));
	(void)host_beat(&bench.a);
	cr_assert(sp_redis_store_acquire(bench.a.store, &wish, NULL, NULL, &bench.a.acquire,
					 NULL) == 0);
	(void)uv_run(&bench.at.loop, UV_RUN_NOWAIT);
	bench.a.store->ops->free(bench.a.store);
	REDIS_WAIT(&bench.at, bench.a.closes == 1);
	stop(&bench);
}

Test(redis_store_faults, killed_connections_lose_nothing) /* B-130, B-131, B-132 */
{
	struct bench bench;

	start(&bench, 60);
	for (int i = 0; i < 40; i++) {
		(void)host_ask(&bench.a, host_add(&bench.a));
		(void)host_beat(&bench.a);
		redis_must(&bench.server, "CLIENT", "KILL", "TYPE", i % 2 ? "normal" : "pubsub",
			   "SKIPME", "yes");
		for (int k = 0; k < 3; k++)
			(void)uv_run(&bench.at.loop, UV_RUN_ONCE);
	}
	HOST_WAIT(&bench.a, store_stat(&bench.server, "idle") == 40);
	cr_assert(bench.a.fences == 0);
	stop(&bench);
}
