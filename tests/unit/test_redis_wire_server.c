/*
 * What a server can be: guarded by passwords and ACLs, a replica, a node of a cluster, a channel.
 */
#include "redis_wire_fixture.h"

#include <sys/stat.h>

TestSuite(redis_wire_server, .timeout = 120);

static char secret_path[128];

static void write_secret(const struct redis_server *server, const char *text, size_t len)
{
	FILE *file;

	(void)snprintf(secret_path, sizeof(secret_path), "%s/password", server->dir);
	file = fopen(secret_path, "we");
	cr_assert(file && fwrite(text, 1, len, file) == len && fclose(file) == 0);
}

static struct sp_redis_options with_secret(const struct redis_server *server, const char *text)
{
	write_secret(server, text, strlen(text));
	return (struct sp_redis_options){.url = server->url,
					 .password_file = secret_path,
					 .seed = 1,
					 .backoff_min_ms = 5,
					 .backoff_max_ms = 50};
}

/* ---- passwords ---- */

static const char *const guarded[] = {"--requirepass", "open sesame", NULL};

Test(redis_wire_server, a_password_comes_from_its_file)
{
	struct sp_redis_options options;
	struct redis_server server;
	struct outcome ret;
	struct wire wire;

	redis_server_start(&server, guarded);
	options = with_secret(&server, "open sesame\n");
	wire_open(&wire, &options);
	REDIS_WAIT(&wire.at, wire.ups == 1);
	wire_ask(&wire, &ret, "SET", "k", "v");
	cr_assert(strcmp(ret.text, "OK") == 0);
	wire_close(&wire);
	redis_server_stop(&server);
}

Test(redis_wire_server, only_one_newline_is_dropped)
{
	struct sp_redis_options options;
	struct redis_server server;
	struct wire wire;

	redis_server_start(&server, guarded);
	options = with_secret(&server, "open sesame\n\n");
	wire_open(&wire, &options);
	REDIS_WAIT(&wire.at, wire.downs == 1);
	cr_assert_not_null(strstr(wire.why.message, "wrong user or password"));
	wire_close(&wire);
	redis_server_stop(&server);
}

Test(redis_wire_server, a_password_that_is_wanted_and_missing_is_told)
{
	struct redis_server server;
	struct wire wire;

	redis_server_start(&server, guarded);
	wire_open_url(&wire, server.url);
	REDIS_WAIT(&wire.at, wire.downs == 1);
	cr_assert_not_null(strstr(wire.why.message, "wants a password (NOAUTH)"));
	wire_close(&wire);
	redis_server_stop(&server);
}

Test(redis_wire_server, a_password_that_nobody_wants_is_told)
{
	struct sp_redis_options options;
	struct redis_server server;
	struct wire wire;

	redis_server_start(&server, NULL);
	options = with_secret(&server, "x");
	wire_open(&wire, &options);
	REDIS_WAIT(&wire.at, wire.downs == 1);
	cr_assert_not_null(strstr(wire.why.message, "no password set"), "%s", wire.why.message);
	wire_close(&wire);
	redis_server_stop(&server);
}

Test(redis_wire_server, b133_a_wrong_password_is_corrected_live)
{
	struct sp_redis_options options;
	struct redis_server server;
	struct wire wire;

	redis_server_start(&server, guarded);
	options = with_secret(&server, "hunter2\n");
	wire_open(&wire, &options);
	REDIS_WAIT(&wire.at, wire.downs == 3);
	cr_assert(wire.why.status == -EACCES);
	cr_assert_null(strstr(wire.why.message, "hunter2"));
	cr_assert_null(strstr(sp_redis_peer(wire.redis), "hunter2"));
	write_secret(&server, "open sesame\n", 12);
	REDIS_WAIT(&wire.at, wire.ups == 1);
	wire_close(&wire);
	redis_server_stop(&server);
}

Test(redis_wire_server, b133_a_password_that_changes_on_the_server_is_followed)
{
	struct sp_redis_options options;
	struct redis_server server;
	struct outcome ret;
	struct wire wire;

	redis_server_start(&server, NULL);
	redis_must(&server, "ACL", "SETUSER", "worker", "on", ">one", "~*", "+@all");
	options = with_secret(&server, "one");
	options.user = "worker";
	wire_open(&wire, &options);
	REDIS_WAIT(&wire.at, wire.ups == 1);
	wire_ask(&wire, &ret, "ACL", "WHOAMI");
	cr_assert(strcmp(ret.text, "worker") == 0);
	/* Removing a user ends its connections. */
	redis_must(&server, "ACL", "DELUSER", "worker");
	REDIS_WAIT(&wire.at, wire.downs >= 2);
	redis_must(&server, "ACL", "SETUSER", "worker", "on", ">two", "~*", "+@all");
	write_secret(&server, "two", 3);
	REDIS_WAIT(&wire.at, wire.ups == 2);
	wire_close(&wire);
	redis_server_stop(&server);
}

Test(redis_wire_server, the_user_may_stand_in_the_url)
{
	struct sp_redis_options options;
	struct redis_server server;
	struct outcome ret;
	struct wire wire;
	char url[128];

	redis_server_start_tcp(&server, NULL);
	redis_must(&server, "ACL", "SETUSER", "wor:ker", "on", ">one", "~*", "+@all");
	options = with_secret(&server, "one");
	(void)snprintf(url, sizeof(url), "redis://wor%%3aker@127.0.0.1:%d", server.port);
	options.url = url;
	wire_open(&wire, &options);
	REDIS_WAIT(&wire.at, wire.ups == 1);
	wire_ask(&wire, &ret, "ACL", "WHOAMI");
	cr_assert(strcmp(ret.text, "wor:ker") == 0);
	wire_close(&wire);
	redis_server_stop(&server);
}

static void password_of(size_t len, bool fits)
{
	char *password = malloc(len + 1);
	struct sp_redis_options options;
	struct redis_server server;
	struct wire wire;

	cr_assert_not_null(password);
	memset(password, 'p', len);
	password[len] = '\0';
	redis_server_start(&server, NULL);
	redis_must(&server, "CONFIG", "SET", "requirepass", password);
	options = with_secret(&server, password);
	wire_open(&wire, &options);
	REDIS_WAIT(&wire.at, wire.ups + wire.downs > 0);
	cr_assert((wire.ups == 1) == fits, "%s", wire.why.message);
	if (!fits)
		cr_assert_not_null(strstr(wire.why.message, "read password file"), "%s",
				   wire.why.message);
	wire_close(&wire);
	redis_server_stop(&server);
	free(password);
}

Test(redis_wire_server, a_password_has_a_most_of_bytes)
{
	password_of(1024, true);
	password_of(1025, false);
	password_of(70000, false);
}

static void refuse_file(const char *path, const char *words)
{
	const struct sp_redis_options options = {
		.url = "unix:///nonexistent", .password_file = path, .seed = 1};
	struct wire wire;

	wire_open(&wire, &options);
	REDIS_WAIT(&wire.at, wire.downs == 1);
	cr_assert_not_null(strstr(wire.why.message, words), "%s", wire.why.message);
	cr_assert_not_null(strstr(wire.why.message, path), "%s", wire.why.message);
	wire_close(&wire);
}

Test(redis_wire_server, a_password_file_that_is_none_is_named)
{
	char dir[] = "/tmp/sp-redis-test-XXXXXX";
	char path[64];
	int fd;

	cr_assert_not_null(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/file", dir);
	refuse_file(path, "No such file");
	refuse_file(dir, "is not a regular file");
	cr_assert(mkfifo(path, 0600) == 0);
	refuse_file(path, "is not a regular file");
	cr_assert(unlink(path) == 0);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	cr_assert(fd >= 0);
	refuse_file(path, "is empty");
	cr_assert(write(fd, "a\0b", 3) == 3);
	refuse_file(path, "NUL");
	close(fd);
	redis_remove_dir(dir);
}

Test(redis_wire_server, close_while_the_files_are_read_is_clean)
{
	struct sp_redis_options options;
	struct redis_server server;
	struct wire wire;

	redis_server_start(&server, NULL);
	options = with_secret(&server, "x");
	for (int turns = 0; turns < 4; turns++) {
		wire_open(&wire, &options);
		for (int i = 0; i < turns; i++)
			(void)uv_run(&wire.at.loop, UV_RUN_NOWAIT);
		wire_close(&wire);
		cr_assert(wire.ups == 0);
	}
	redis_server_stop(&server);
}

/* ---- replicas ---- */

static struct sp_redis_options quick(const struct redis_server *server)
{
	return (struct sp_redis_options){
		.url = server->url, .seed = 1, .backoff_min_ms = 5, .backoff_max_ms = 50};
}

Test(redis_wire_server, b138_a_demoted_master_is_left_until_it_is_one_again)
{
	struct sp_redis_options options;
	struct redis_server server;
	struct outcome ret;
	struct wire wire;

	redis_server_start(&server, NULL);
	options = quick(&server);
	wire_open(&wire, &options);
	REDIS_WAIT(&wire.at, wire.ups == 1);
	redis_must(&server, "REPLICAOF", "127.0.0.1", "1");
	wire_ask(&wire, &ret, "SET", "k", "v");
	cr_assert(ret.outcome == SP_REDIS_REPLIED && ret.err.status == -EROFS);
	REDIS_WAIT(&wire.at, wire.downs >= 3);
	cr_assert_not_null(strstr(wire.why.message, "is a replica"), "%s", wire.why.message);
	wire_send(&wire, &ret, 0, "SET", "k", "v");
	REDIS_WAIT(&wire.at, ret.calls == 1);
	cr_assert(ret.outcome == SP_REDIS_NOT_SENT);
	cr_assert_not_null(strstr(ret.err.message, "is a replica"));
	redis_must(&server, "REPLICAOF", "NO", "ONE");
	REDIS_WAIT_FOR(&wire.at, 5000, wire.ups == 2);
	wire_close(&wire);
	redis_server_stop(&server);
}

Test(redis_wire_server, a_replica_will_do_for_reading_where_that_is_said)
{
	const char *const extra[] = {"--replicaof", "127.0.0.1 1", "--replica-serve-stale-data",
				     "no", NULL};
	struct sp_redis_options options;
	struct redis_server server;
	struct outcome ret;
	struct wire wire;

	redis_server_start(&server, extra);
	options = quick(&server);
	options.allow_replica = true;
	wire_open(&wire, &options);
	REDIS_WAIT(&wire.at, wire.ups == 1);
	wire_ask(&wire, &ret, "GET", "k");
	cr_assert(ret.err.status == -EAGAIN);
	cr_assert_not_null(strstr(ret.err.message, "MASTERDOWN"), "%s", ret.err.message);
	cr_assert(sp_redis_up(wire.redis));
	wire_close(&wire);
	redis_server_stop(&server);
}

Test(redis_wire_server, b138_a_server_that_cannot_save_is_told_and_stays_connected)
{
	const char *const argv[] = {"SET", "k", "v"};
	struct redis_server server;
	struct outcome ret = {0};
	struct wire wire;

	redis_server_start(&server, NULL);
	wire_open_up(&wire, server.url);
	redis_must(&server, "CONFIG", "SET", "min-replicas-to-write", "1");
	wire_ask(&wire, &ret, "SET", "k", "v");
	cr_assert(ret.err.status == -EAGAIN && strstr(ret.err.message, "NOREPLICAS"));
	redis_must(&server, "CONFIG", "SET", "min-replicas-to-write", "0");
	redis_must(&server, "CONFIG", "SET", "maxmemory", "1");
	wire_ask(&wire, &ret, "SET", "k", "v");
	cr_assert(ret.err.status == -ENOMEM && strstr(ret.err.message, "OOM"));
	redis_must(&server, "CONFIG", "SET", "maxmemory", "0");
	ret = (struct outcome){0};
	cr_assert(sp_redis_call(wire.redis, 3, argv, NULL, 0, wire_on_reply, &ret, NULL) == 0);
	REDIS_WAIT(&wire.at, ret.calls == 1);
	cr_assert(ret.err.status == 0 && wire.downs == 0);
	wire_close(&wire);
	redis_server_stop(&server);
}

/* ---- a cluster ---- */

static void start_node(struct redis_server *server)
{
	const char *const extra[] = {"--cluster-enabled", "yes", "--cluster-node-timeout", "1000",
				     NULL};

	redis_server_prepare(server);
	/* The cluster's own port is 10,000 above. */
	do
		server->port = redis_free_port();
	while (server->port > 55000);
	redis_server_launch(server, extra);
}

static bool cluster_ok(const struct redis_server *server)
{
	redisReply *reply = redis_ask(server, NULL, "CLUSTER", "INFO");
	bool ok = reply && reply->str && strstr(reply->str, "cluster_state:ok");

	freeReplyObject(reply);
	return ok;
}

Test(redis_wire_server, b144_moved_leads_to_the_node_that_has_the_slot)
{
	struct redis_server first;
	struct redis_server second;
	struct sp_redis_options options;
	struct outcome ret;
	struct wire wire;
	char port[16];
	char url[64];

	start_node(&first);
	start_node(&second);
	redis_must(&first, "CLUSTER", "ADDSLOTSRANGE", "0", "8191");
	redis_must(&second, "CLUSTER", "ADDSLOTSRANGE", "8192", "16383");
	(void)snprintf(port, sizeof(port), "%d", second.port);
	redis_must(&first, "CLUSTER", "MEET", "127.0.0.1", port);
	(void)snprintf(url, sizeof(url), "redis://127.0.0.1:%d", first.port);
	options = (struct sp_redis_options){.url = url, .seed = 1, .backoff_min_ms = 5};
	wire_open(&wire, &options);
	REDIS_WAIT(&wire.at, cluster_ok(&first) && cluster_ok(&second) && wire.ups == 1);
	/* "foo" is in slot 12182. */
	wire_ask(&wire, &ret, "SET", "foo", "v");
	cr_assert(ret.outcome == SP_REDIS_REPLIED && ret.err.status == -EAGAIN);
	cr_assert_not_null(strstr(ret.err.message, "MOVED 12182"));
	REDIS_WAIT(&wire.at, wire.ups == 2);
	wire_ask(&wire, &ret, "SET", "foo", "v");
	cr_assert(strcmp(ret.text, "OK") == 0, "%s", ret.err.message);
	/* The node is lost: back to the one from the URL. */
	redis_server_signal(&second, SIGKILL);
	REDIS_WAIT(&wire.at, wire.ups == 3);
	cr_assert_not_null(strstr(sp_redis_peer(wire.redis), strrchr(url, ':')), "%s",
			   sp_redis_peer(wire.redis));
	wire_close(&wire);
	redis_server_stop(&second);
	redis_server_stop(&first);
}

/* ---- pub/sub ---- */

static void publish(const struct redis_server *server, const char *channel, const char *text,
		    long long receivers)
{
	redisReply *reply = redis_ask(server, NULL, "PUBLISH", channel, text);

	cr_assert(reply && reply->integer == receivers, "%lld receivers",
		  reply ? reply->integer : -1);
	freeReplyObject(reply);
}

Test(redis_wire_server, messages_arrive)
{
	const char *const channels[] = {"sandpool:{a}:events:h", "sandpool:{b}:events:h"};
	struct redis_server server;
	struct sp_err err = {0};
	struct wire wire;

	redis_server_start(&server, NULL);
	wire_open_url(&wire, server.url);
	cr_assert(sp_redis_subscribe(wire.redis, channels, 2, NULL) == 0);
	REDIS_WAIT(&wire.at, wire.ups == 1);
	publish(&server, channels[1], "hint", 1);
	REDIS_WAIT(&wire.at, wire.messages == 1);
	cr_assert(strcmp(wire.channel, channels[1]) == 0 && strcmp(wire.text, "hint") == 0);
	cr_assert(sp_redis_call(wire.redis, WIRE_ARGV("PING"), NULL, 0, wire_on_reply, NULL,
				&err) == -EINVAL);
	wire_close(&wire);
	redis_server_stop(&server);
}

Test(redis_wire_server, b149_a_subscription_is_made_again_after_an_outage)
{
	const char *const channels[] = {"c"};
	struct sp_redis_options options;
	struct redis_server server;
	struct wire wire;

	redis_server_start(&server, NULL);
	options = quick(&server);
	options.keepalive_ms = 300;
	wire_open(&wire, &options);
	cr_assert(sp_redis_subscribe(wire.redis, channels, 1, NULL) == 0);
	REDIS_WAIT(&wire.at, wire.ups == 1);
	redis_must(&server, "CLIENT", "KILL", "TYPE", "pubsub");
	REDIS_WAIT(&wire.at, wire.ups == 2);
	publish(&server, "c", "1", 1);
	REDIS_WAIT(&wire.at, wire.messages == 1);
	/* PING passes between messages, and its silence is noticed here too. */
	redis_server_signal(&server, SIGSTOP);
	REDIS_WAIT(&wire.at, wire.downs == 2);
	redis_server_signal(&server, SIGCONT);
	REDIS_WAIT(&wire.at, wire.ups == 3);
	publish(&server, "c", "2", 1);
	REDIS_WAIT(&wire.at, wire.messages == 2);
	wire_close(&wire);
	redis_server_stop(&server);
}

Test(redis_wire_server, a_quiet_subscription_stays)
{
	const char *const channels[] = {"c"};
	struct sp_redis_options options;
	struct redis_server server;
	struct wire wire;
	int64_t begin_ms;

	redis_server_start(&server, NULL);
	options = quick(&server);
	options.keepalive_ms = 1000; /* a loaded server answers a PING within 400 ms */
	wire_open(&wire, &options);
	cr_assert(sp_redis_subscribe(wire.redis, channels, 1, NULL) == 0);
	REDIS_WAIT(&wire.at, wire.ups == 1);
	begin_ms = redis_now_ms();
	REDIS_WAIT(&wire.at, redis_now_ms() - begin_ms > 2500);
	cr_assert(wire.downs == 0, "%s", wire.why.message);
	wire_close(&wire);
	redis_server_stop(&server);
}

Test(redis_wire_server, channels_replace_those_before)
{
	const char *const first[] = {"a", "b"};
	const char *const second[] = {"b", "c"};
	const char *const third[] = {"d"};
	struct redis_server server;
	struct wire wire;

	redis_server_start(&server, NULL);
	wire_open_up(&wire, server.url);
	cr_assert(sp_redis_subscribe(wire.redis, first, 2, NULL) == 0);
	cr_assert(!sp_redis_up(wire.redis));
	REDIS_WAIT(&wire.at, wire.ups == 2);
	cr_assert(sp_redis_subscribe(wire.redis, second, 2, NULL) == 0);
	REDIS_WAIT(&wire.at, wire.ups == 3);
	publish(&server, "a", "x", 0);
	publish(&server, "b", "x", 1);
	publish(&server, "c", "x", 1);
	REDIS_WAIT(&wire.at, wire.messages == 2);
	/* Twice in a row: only the last counts. */
	cr_assert(sp_redis_subscribe(wire.redis, first, 2, NULL) == 0);
	cr_assert(sp_redis_subscribe(wire.redis, third, 1, NULL) == 0);
	REDIS_WAIT(&wire.at, wire.ups == 4);
	publish(&server, "a", "x", 0);
	publish(&server, "b", "x", 0);
	publish(&server, "d", "x", 1);
	REDIS_WAIT(&wire.at, wire.messages == 3);
	cr_assert(wire.downs == 0);
	wire_close(&wire);
	redis_server_stop(&server);
}

Test(redis_wire_server, commands_under_way_are_answered_before_it_listens)
{
	const char *const channels[] = {"c"};
	struct redis_server server;
	struct outcome ret;
	struct wire wire;

	redis_server_start(&server, NULL);
	wire_open_up(&wire, server.url);
	wire_send(&wire, &ret, 0, "SET", "k", "v");
	cr_assert(sp_redis_subscribe(wire.redis, channels, 1, NULL) == 0);
	REDIS_WAIT(&wire.at, wire.ups == 2);
	cr_assert(ret.calls == 1 && strcmp(ret.text, "OK") == 0);
	wire_close(&wire);
	redis_server_stop(&server);
}

Test(redis_wire_server, channels_are_1_to_1024)
{
	static char names[1025][8];
	static const char *channels[1025];
	struct redis_server server;
	struct wire wire;

	for (size_t i = 0; i < 1025; i++) {
		(void)snprintf(names[i], sizeof(names[i]), "c%zu", i);
		channels[i] = names[i];
	}
	redis_server_start(&server, NULL);
	wire_open_url(&wire, server.url);
	cr_assert(sp_redis_subscribe(wire.redis, channels, 0, NULL) == -EINVAL);
	cr_assert(sp_redis_subscribe(wire.redis, channels, 1025, NULL) == -EINVAL);
	cr_assert(sp_redis_subscribe(wire.redis, channels, 1024, NULL) == 0);
	REDIS_WAIT(&wire.at, wire.ups == 1);
	publish(&server, "c1023", "x", 1);
	REDIS_WAIT(&wire.at, wire.messages == 1);
	wire_close(&wire);
	redis_server_stop(&server);
}

Test(redis_wire_server, a_subscription_that_finds_no_room_changes_nothing)
{
	const size_t len = (4u << 20) - 64;
	const char *const channels[] = {"c"};
	char *value = malloc(len);
	const char *const argv[] = {"ECHO", value};
	const size_t lens[] = {4, len};
	struct outcome ret[4] = {0};
	struct redis_server server;
	struct sp_err err = {0};
	char *many = malloc(1 << 17);
	const char *const long_channels[] = {many};
	struct wire wire;

	cr_assert(value && many);
	memset(value, 'x', len);
	memset(many, 'c', (1 << 17) - 1);
	many[(1 << 17) - 1] = '\0';
	redis_server_start(&server, NULL);
	wire_open_up(&wire, server.url);
	for (size_t i = 0; i < 4; i++)
		cr_assert(sp_redis_call(wire.redis, 2, argv, lens, 5000, wire_on_reply, &ret[i],
					NULL) == 0);
	cr_assert(sp_redis_subscribe(wire.redis, long_channels, 1, &err) == -EBUSY, "%s",
		  err.message);
	cr_assert(sp_redis_up(wire.redis));
	for (size_t i = 0; i < 4; i++)
		REDIS_WAIT(&wire.at, ret[i].calls == 1);
	wire_ask(&wire, &ret[0], "PING");
	cr_assert(strcmp(ret[0].text, "PONG") == 0 && wire.downs == 0);
	cr_assert(sp_redis_subscribe(wire.redis, channels, 1, NULL) == 0);
	REDIS_WAIT(&wire.at, wire.ups == 2);
	wire_close(&wire);
	redis_server_stop(&server);
	free(value);
	free(many);
}
