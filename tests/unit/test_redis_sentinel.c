/*
 * redis+sentinel:// against a real Sentinel with a failover, and against Sentinels that are down,
 * slow, ignorant, guarded or lying.
 */
#include "redis/sentinel.h"
#include "redis_fake.h"
#include "redis_wire_fixture.h"

TestSuite(redis_sentinel, .timeout = 120);

/* ---- a real one ---- */

static void start_sentinel(struct redis_server *sentinel, int master_port, const char *more)
{
	char path[128];
	FILE *file;

	redis_server_prepare(sentinel);
	sentinel->port = redis_free_port();
	(void)snprintf(path, sizeof(path), "%s/sentinel.conf", sentinel->dir);
	file = fopen(path, "we");
	cr_assert(file && fprintf(file,
				  "port %d\nunixsocket %s\ndir %s\nlogfile sentinel.log\n"
				  "sentinel monitor mymaster 127.0.0.1 %d 1\n"
				  "sentinel down-after-milliseconds mymaster 1500\n"
				  "sentinel failover-timeout mymaster 2000\n%s",
				  sentinel->port, sentinel->socket_path, sentinel->dir, master_port,
				  more) > 0);
	cr_assert(fclose(file) == 0);
	redis_add_arg(sentinel, REDIS_SERVER_PROGRAM);
	redis_add_arg(sentinel, path);
	redis_add_arg(sentinel, "--sentinel");
	redis_server_run(sentinel);
}

static bool info_has(const struct redis_server *server, const char *section, const char *words)
{
	redisReply *reply = redis_ask(server, NULL, "INFO", section);
	bool has = reply && reply->str && strstr(reply->str, words);

	freeReplyObject(reply);
	return has;
}

Test(redis_sentinel, b138_a_failover_is_followed)
{
	struct sp_redis_options options = {.seed = 1, .backoff_min_ms = 20, .backoff_max_ms = 100};
	struct redis_server sentinel;
	struct redis_server replica;
	struct redis_server master;
	struct outcome ret;
	struct wire wire;
	char master_at[32];
	char url[96];

	redis_server_start_tcp(&master, NULL);
	(void)snprintf(master_at, sizeof(master_at), "127.0.0.1 %d", master.port);
	redis_server_start_tcp(&replica, (const char *const[]){"--replicaof", master_at, NULL});
	redis_must(&master, "CONFIG", "SET", "repl-diskless-sync-delay", "0");
	start_sentinel(&sentinel, master.port, "");
	(void)snprintf(url, sizeof(url), "redis+sentinel://127.0.0.1:%d/mymaster/2", sentinel.port);
	options.url = url;
	wire_open(&wire, &options);
	REDIS_WAIT(&wire.at, wire.ups == 1);
	cr_assert_not_null(strstr(sp_redis_peer(wire.redis), ", master mymaster"));
	wire_ask(&wire, &ret, "SET", "k", "before");
	cr_assert(strcmp(ret.text, "OK") == 0);
	REDIS_WAIT(&wire.at, info_has(&sentinel, "sentinel", "slaves=1"));
	REDIS_WAIT(&wire.at, info_has(&replica, "replication", "master_link_status:up"));

	redis_server_signal(&master, SIGKILL);
	REDIS_WAIT(&wire.at, info_has(&replica, "replication", "role:master"));
	REDIS_WAIT_FOR(&wire.at, 10000, sp_redis_up(wire.redis) && wire.ups == 2);
	wire_ask(&wire, &ret, "SET", "k", "after");
	cr_assert(strcmp(ret.text, "OK") == 0, "%s", ret.err.message);

	/* The old one comes back, still believes that it is the master, and changes nothing for us:
	 * not even after a loss of the connection. */
	redis_server_run(&master);
	cr_assert(info_has(&master, "replication", "role:master"));
	redis_must(&replica, "CLIENT", "KILL", "TYPE", "normal");
	REDIS_WAIT(&wire.at, wire.ups == 3);
	wire_ask(&wire, &ret, "GET", "k");
	cr_assert(strcmp(ret.text, "after") == 0, "%s%s", ret.text, ret.err.message);
	wire_close(&wire);
	redis_server_stop(&sentinel);
	redis_server_stop(&replica);
	redis_server_stop(&master);
}

static char secret_path[128];

Test(redis_sentinel, one_that_wants_a_password_gets_it)
{
	struct sp_redis_options options = {.seed = 1, .backoff_min_ms = 20, .backoff_max_ms = 50};
	struct redis_server sentinel;
	struct redis_server master;
	struct wire wire;
	char url[96];
	FILE *file;

	redis_server_start_tcp(&master, NULL);
	start_sentinel(&sentinel, master.port, "requirepass sesame\n");
	(void)snprintf(secret_path, sizeof(secret_path), "%s/password", sentinel.dir);
	(void)snprintf(url, sizeof(url), "redis+sentinel://127.0.0.1:%d/mymaster", sentinel.port);
	options.url = url;
	wire_open(&wire, &options);
	REDIS_WAIT(&wire.at, wire.downs == 1);
	cr_assert_not_null(strstr(wire.why.message, "NOAUTH"), "%s", wire.why.message);
	wire_close(&wire);

	file = fopen(secret_path, "we");
	cr_assert(file && fputs("sesame\n", file) >= 0 && fclose(file) == 0);
	options.sentinel_password_file = secret_path;
	wire_open(&wire, &options);
	REDIS_WAIT(&wire.at, wire.ups == 1);
	wire_close(&wire);
	redis_server_stop(&sentinel);
	redis_server_stop(&master);
}

Test(redis_sentinel, a_name_that_it_does_not_know_is_told)
{
	struct redis_server sentinel;
	struct redis_server master;
	struct wire wire;
	char url[96];

	redis_server_start_tcp(&master, NULL);
	start_sentinel(&sentinel, master.port, "");
	(void)snprintf(url, sizeof(url), "redis+sentinel://127.0.0.1:%d/other", sentinel.port);
	wire_open_url(&wire, url);
	REDIS_WAIT(&wire.at, wire.downs == 1);
	cr_assert_not_null(strstr(wire.why.message, "no Sentinel names a master 'other'"), "%s",
			   wire.why.message);
	cr_assert_not_null(strstr(wire.why.message, "does not know the master"), "%s",
			   wire.why.message);
	wire_close(&wire);
	/* And a Sentinel is no Redis. */
	(void)snprintf(url, sizeof(url), "redis://127.0.0.1:%d", sentinel.port);
	wire_open_url(&wire, url);
	REDIS_WAIT(&wire.at, wire.downs == 1);
	cr_assert_not_null(strstr(wire.why.message, "redis+sentinel"), "%s", wire.why.message);
	wire_close(&wire);
	redis_server_stop(&sentinel);
	redis_server_stop(&master);
}

/* ---- those that say what a test wants ---- */

#define FAKES_MAX 5

struct council {
	struct wire wire;
	struct fake sentinels[FAKES_MAX];
	const char *answers[FAKES_MAX]; /* NULL: none */
	size_t count;
	struct fake master;
	struct fake replica;
	char master_at[64]; /* as a Sentinel says it */
	char replica_at[64];
	char url[256];
	struct sp_redis_options options;
};

static bool sentinel_script(struct fake *fake, struct fake_client *client,
			    const redisReply *command)
{
	struct council *council = fake->arg;
	size_t i = (size_t)(fake - council->sentinels);

	if (!fake_is(command, "SENTINEL"))
		return false;
	fake->commands++;
	if (council->answers[i])
		fake_say_text(client, council->answers[i]);
	return true;
}

static bool replica_script(struct fake *fake, struct fake_client *client, const redisReply *command)
{
	(void)fake;
	if (!fake_is(command, "ROLE"))
		return false;
	fake_say_text(client, "*1\r\n$5\r\nslave\r\n");
	return true;
}

static void name_server(char *text, size_t size, const struct fake *fake)
{
	char port[8];

	(void)snprintf(port, sizeof(port), "%d", fake->port);
	(void)snprintf(text, size, "*2\r\n$9\r\n127.0.0.1\r\n$%zu\r\n%s\r\n", strlen(port), port);
}

static void council_init(struct council *council, size_t count)
{
	*council = (struct council){.count = count};
	wire_init(&council->wire);
	fake_start(&council->master, &council->wire.at, true, NULL, NULL);
	fake_start(&council->replica, &council->wire.at, true, replica_script, NULL);
	name_server(council->master_at, sizeof(council->master_at), &council->master);
	name_server(council->replica_at, sizeof(council->replica_at), &council->replica);
	(void)snprintf(council->url, sizeof(council->url), "redis+sentinel://");
	for (size_t i = 0; i < count; i++) {
		size_t used = strlen(council->url);

		fake_start(&council->sentinels[i], &council->wire.at, true, sentinel_script,
			   council);
		council->answers[i] = council->master_at;
		(void)snprintf(council->url + used, sizeof(council->url) - used, "%s127.0.0.1:%d",
			       i ? "," : "", council->sentinels[i].port);
	}
	(void)snprintf(council->url + strlen(council->url),
		       sizeof(council->url) - strlen(council->url), "/m");
	council->options = (struct sp_redis_options){.url = council->url,
						     .seed = 1,
						     .connect_timeout_ms = 600,
						     .backoff_min_ms = 5,
						     .backoff_max_ms = 20};
}

static void council_start(struct council *council)
{
	wire_start(&council->wire, &council->options);
}

static void council_done(struct council *council)
{
	wire_end(&council->wire);
	for (size_t i = 0; i < council->count; i++) {
		if (council->sentinels[i].deaf && council->sentinels[i].clients > 0)
			fake_hang_up(council->sentinels[i].last);
		fake_stop(&council->sentinels[i], &council->wire.at);
	}
	fake_stop(&council->master, &council->wire.at);
	fake_stop(&council->replica, &council->wire.at);
	redis_loop_done(&council->wire.at);
}

Test(redis_sentinel, more_than_half_are_believed_at_once)
{
	struct council council;
	int64_t begin_ms;

	council_init(&council, 3);
	council.sentinels[0].deaf = true; /* accepts and says nothing */
	council.options.connect_timeout_ms = 20000;
	begin_ms = redis_now_ms();
	council_start(&council);
	REDIS_WAIT(&council.wire.at, council.wire.ups == 1);
	cr_assert(redis_now_ms() - begin_ms < 5000);
	cr_assert(council.wire.downs == 0 && council.master.clients == 1);
	council_done(&council);
}

Test(redis_sentinel, one_that_says_nothing_is_waited_for_half_the_connect_timeout)
{
	struct council council;
	int64_t begin_ms;

	council_init(&council, 2);
	council.sentinels[0].deaf = true;
	begin_ms = redis_now_ms();
	council_start(&council);
	REDIS_WAIT(&council.wire.at, council.wire.ups == 1);
	cr_assert(redis_now_ms() - begin_ms >= 300 && council.wire.downs == 0);
	council_done(&council);
}

Test(redis_sentinel, a_liar_is_outvoted)
{
	struct council council;

	council_init(&council, 3);
	council.answers[0] = council.replica_at;
	council_start(&council);
	REDIS_WAIT(&council.wire.at, council.wire.ups == 1);
	cr_assert(council.wire.downs == 0 && council.replica.connections == 0);
	council_done(&council);
}

Test(redis_sentinel, where_votes_are_equal_the_next_try_asks_the_other)
{
	struct council council;

	council_init(&council, 2);
	council.answers[0] = council.replica_at;
	council_start(&council);
	REDIS_WAIT(&council.wire.at, council.wire.ups == 1);
	/* ROLE shows the lie, once. */
	cr_assert(council.wire.downs <= 1 && council.replica.connections <= 1);
	cr_assert(council.master.clients == 1);
	council_done(&council);
}

Test(redis_sentinel, those_that_are_down_or_talk_nonsense_do_not_count)
{
	struct council council;
	char url[512];

	council_init(&council, 5);
	council.answers[0] = "+OK\r\n";
	council.answers[1] = "*2\r\n$4\r\na\x01 b\r\n$1\r\n1\r\n";
	council.answers[2] = "*2\r\n$1\r\na\r\n$5\r\n65536\r\n";
	council.answers[3] = "*1\r\n$1\r\na\r\n";
	(void)snprintf(url, sizeof(url), "redis+sentinel://127.0.0.1:%d,%s", redis_free_port(),
		       council.url + strlen("redis+sentinel://"));
	council.options.url = url;
	council_start(&council);
	REDIS_WAIT(&council.wire.at, council.wire.ups == 1);
	cr_assert(council.wire.downs == 0);
	council_done(&council);
}

Test(redis_sentinel, none_that_answers_is_an_error_that_says_why)
{
	struct sp_redis_options options = {.seed = 1};
	struct wire wire;
	char url[96];

	(void)snprintf(url, sizeof(url), "redis+sentinel://127.0.0.1:%d/m", redis_free_port());
	options.url = url;
	wire_open(&wire, &options);
	REDIS_WAIT(&wire.at, wire.downs == 1);
	cr_assert_not_null(strstr(wire.why.message, "no Sentinel names a master 'm'"));
	cr_assert_not_null(strstr(wire.why.message, "Connection refused"), "%s", wire.why.message);
	wire_close(&wire);
}

Test(redis_sentinel, it_is_asked_anew_at_each_try)
{
	struct council council;
	char gone[64];

	council_init(&council, 1);
	(void)snprintf(gone, sizeof(gone), "*2\r\n$9\r\n127.0.0.1\r\n$1\r\n1\r\n");
	council.answers[0] = gone;
	council_start(&council);
	REDIS_WAIT(&council.wire.at, council.wire.downs == 2);
	cr_assert(council.sentinels[0].commands == 2);
	council.answers[0] = council.master_at;
	REDIS_WAIT(&council.wire.at, council.wire.ups == 1);
	/* No connection to the Sentinel stays. */
	REDIS_WAIT(&council.wire.at, council.sentinels[0].clients == 0);
	council_done(&council);
}

Test(redis_sentinel, a_master_that_is_none_yet_is_tried_again)
{
	struct council council;

	council_init(&council, 1);
	council.answers[0] = council.replica_at;
	council_start(&council);
	REDIS_WAIT(&council.wire.at, council.wire.downs == 3);
	cr_assert_not_null(strstr(council.wire.why.message, "is a replica"));
	council.replica.script = NULL; /* promoted */
	REDIS_WAIT(&council.wire.at, council.wire.ups == 1);
	council_done(&council);
}

Test(redis_sentinel, close_while_they_are_asked_is_clean)
{
	for (int turns = 0; turns < 6; turns++) {
		struct council council;

		council_init(&council, 3);
		for (size_t i = 0; i < 3; i++)
			council.answers[i] = NULL;
		council_start(&council);
		for (int i = 0; i < turns; i++)
			(void)uv_run(&council.wire.at.loop, UV_RUN_ONCE);
		council_done(&council);
		cr_assert(council.wire.ups == 0 && council.wire.downs == 0);
	}
}
