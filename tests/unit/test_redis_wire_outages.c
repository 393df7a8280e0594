/*
 * The connection when its server dies, comes back, or is not there: what becomes of each command.
 */
#include "redis_wire_fixture.h"

TestSuite(redis_wire_outages, .timeout = 120);

Test(redis_wire_outages, b132_each_command_under_way_is_answered_once_when_the_server_dies)
{
	static struct outcome ret[1000];
	struct redis_server server;
	struct wire wire;
	unsigned int replied = 0;

	redis_server_start(&server, NULL);
	wire_open_up(&wire, server.url);
	for (size_t i = 0; i < 1000; i++)
		wire_send(&wire, &ret[i], 0, "BLPOP", "list", "10");
	(void)uv_run(&wire.at.loop, UV_RUN_NOWAIT);
	redis_server_signal(&server, SIGKILL);
	REDIS_WAIT(&wire.at, wire.downs == 1);
	for (size_t i = 0; i < 1000; i++) {
		cr_assert(ret[i].calls == 1, "%zu: %u", i, ret[i].calls);
		cr_assert_not_null(strstr(ret[i].err.message, "'BLPOP'"));
		replied += ret[i].outcome == SP_REDIS_REPLIED;
	}
	cr_assert(replied == 0);
	/* And never again. */
	redis_server_run(&server);
	REDIS_WAIT(&wire.at, wire.ups == 2);
	wire_close(&wire);
	for (size_t i = 0; i < 1000; i++)
		cr_assert(ret[i].calls == 1);
	redis_server_stop(&server);
}

Test(redis_wire_outages, what_never_left_is_told_from_what_may_have_run)
{
	const size_t len = 3u << 20;
	char *value = malloc(len);
	const char *const argv[] = {"ECHO", value};
	const size_t lens[] = {4, len};
	struct redis_server server;
	struct outcome first;
	struct outcome ret[4] = {0};
	struct wire wire;

	cr_assert_not_null(value);
	memset(value, 'x', len);
	redis_server_start(&server, NULL);
	wire_open_up(&wire, server.url);
	redis_server_signal(&server, SIGSTOP);
	wire_send(&wire, &first, 0, "INCR", "n");
	for (size_t i = 0; i < 4; i++)
		cr_assert(sp_redis_call(wire.redis, 2, argv, lens, 300, wire_on_reply, &ret[i],
					NULL) == 0);
	REDIS_WAIT(&wire.at, ret[3].calls == 1);
	cr_assert(first.outcome == SP_REDIS_UNKNOWN);
	/* Megabytes do not fit into the socket's buffer: half a command is none. */
	for (size_t i = 0; i < 4; i++)
		cr_assert(ret[i].calls == 1 && ret[i].outcome == SP_REDIS_NOT_SENT);
	cr_assert_not_null(strstr(ret[3].err.message, "(not sent)"));
	wire_close(&wire);
	redis_server_stop(&server);
	free(value);
}

Test(redis_wire_outages, b131_restarts_at_any_moment)
{
	struct sp_redis_options options;
	struct redis_server server;
	struct outcome ret[8];
	struct wire wire;
	unsigned int seed = 1;

	redis_server_start(&server, NULL);
	give_up_soon(&options, server.url);
	wire_open(&wire, &options);
	for (int i = 0; i < 30; i++) {
		for (size_t k = 0; k < 8; k++)
			wire_send(&wire, &ret[k], 0, "INCR", "n");
		for (int turns = (int)(rand_r(&seed) % 8); turns > 0; turns--)
			(void)uv_run(&wire.at.loop, UV_RUN_NOWAIT);
		redis_server_signal(&server, SIGKILL);
		for (size_t k = 0; k < 8; k++)
			REDIS_WAIT(&wire.at, ret[k].calls == 1);
		redis_server_run(&server);
		if (i % 3 == 0)
			REDIS_WAIT(&wire.at, sp_redis_up(wire.redis));
	}
	REDIS_WAIT(&wire.at, sp_redis_up(wire.redis));
	wire_close(&wire);
	redis_server_stop(&server);
}

Test(redis_wire_outages, b130_clients_are_killed_under_load)
{
	struct sp_redis_options options;
	struct redis_server server;
	struct outcome ret[64];
	struct wire wire;
	unsigned int replied = 0;
	unsigned int lost = 0;

	redis_server_start(&server, NULL);
	give_up_soon(&options, server.url);
	wire_open(&wire, &options);
	for (int round = 0; round < 60; round++) {
		for (size_t i = 0; i < 64; i++)
			wire_send(&wire, &ret[i], 0, "INCR", "n");
		(void)uv_run(&wire.at.loop, UV_RUN_NOWAIT);
		if (round % 2)
			redis_must(&server, "CLIENT", "KILL", "TYPE", "normal");
		for (size_t i = 0; i < 64; i++) {
			REDIS_WAIT(&wire.at, ret[i].calls == 1);
			replied += ret[i].outcome == SP_REDIS_REPLIED;
			lost += ret[i].outcome != SP_REDIS_REPLIED;
		}
		if (round % 4 == 0)
			REDIS_WAIT(&wire.at, sp_redis_up(wire.redis));
	}
	cr_assert(replied > 0 && lost > 0, "%u replied, %u lost", replied, lost);
	wire_close(&wire);
	redis_server_stop(&server);
}

Test(redis_wire_outages, comes_back_after_a_restart)
{
	struct redis_server server;
	struct outcome ret;
	struct wire wire;

	redis_server_start(&server, NULL);
	wire_open_up(&wire, server.url);
	redis_server_signal(&server, SIGKILL);
	REDIS_WAIT(&wire.at, wire.downs == 1);
	cr_assert(!sp_redis_up(wire.redis));
	cr_assert_not_null(strstr(sp_redis_peer(wire.redis), "the server closed the connection"));
	redis_server_run(&server);
	REDIS_WAIT(&wire.at, wire.ups == 2);
	wire_ask(&wire, &ret, "PING");
	cr_assert(strcmp(ret.text, "PONG") == 0);
	wire_close(&wire);
	redis_server_stop(&server);
}

static void refused_at(const char *host)
{
	struct sp_redis_options options;
	struct outcome ret;
	struct wire wire;
	char url[64];

	(void)snprintf(url, sizeof(url), "redis://%s:%d", host, redis_free_port());
	give_up_soon(&options, url);
	wire_open(&wire, &options);
	wire_send(&wire, &ret, 0, "PING");
	REDIS_WAIT(&wire.at, wire.downs >= 3);
	cr_assert(ret.calls == 1 && ret.outcome == SP_REDIS_NOT_SENT);
	cr_assert(wire.why.status == -ECONNREFUSED, "%s", wire.why.message);
	cr_assert(strcmp(sp_redis_peer(wire.redis), wire.why.message) == 0);
	wire_close(&wire);
}

Test(redis_wire_outages, a_refused_connection_is_told_and_tried_again)
{
	refused_at("127.0.0.1");
	refused_at("localhost");
}

Test(redis_wire_outages, a_name_that_nobody_knows_is_told)
{
	struct sp_redis_options options;
	struct wire wire;

	give_up_soon(&options, "redis://no-such-host.invalid");
	options.connect_timeout_ms = 10000;
	wire_open(&wire, &options);
	REDIS_WAIT(&wire.at, wire.downs >= 1);
	cr_assert_not_null(strstr(wire.why.message, "look up 'no-such-host.invalid'"), "%s",
			   wire.why.message);
	wire_close(&wire);
}

static int fill_backlog(int *ret_port, int *fillers, size_t count)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	cr_assert(bind(fd, (struct sockaddr *)&address, len) == 0 && listen(fd, 0) == 0);
	cr_assert(getsockname(fd, (struct sockaddr *)&address, &len) == 0);
	*ret_port = ntohs(address.sin_port);
	for (size_t i = 0; i < count; i++) {
		fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		(void)connect(fillers[i], (struct sockaddr *)&address, sizeof(address));
	}
	return fd;
}

Test(redis_wire_outages, b135_a_black_hole_ends_at_the_connect_timeout)
{
	struct sp_redis_options options;
	int fillers[4];
	struct wire wire;
	int64_t begin_ms;
	char url[64];
	int port;
	int fd = fill_backlog(&port, fillers, 4);

	(void)snprintf(url, sizeof(url), "redis://127.0.0.1:%d", port);
	give_up_soon(&options, url);
	begin_ms = redis_now_ms();
	wire_open(&wire, &options);
	REDIS_WAIT(&wire.at, wire.downs == 1);
	cr_assert_not_null(strstr(wire.why.message, "no connection within 200 ms"), "%s",
			   wire.why.message);
	cr_assert(wire.down_ms - begin_ms >= 200 && wire.down_ms - begin_ms < 2000);
	wire_close(&wire);
	for (size_t i = 0; i < 4; i++)
		close(fillers[i]);
	close(fd);
}

Test(redis_wire_outages, one_that_never_accepts_ends_at_the_command_timeout)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct sp_redis_options options;
	char dir[] = "/tmp/sp-redis-test-XXXXXX";
	struct wire wire;
	char url[128];
	int fd;

	cr_assert_not_null(mkdtemp(dir));
	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/s", dir);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	cr_assert(listen(fd, 1) == 0);
	(void)snprintf(url, sizeof(url), "unix://%s", address.sun_path);
	give_up_soon(&options, url);
	wire_open(&wire, &options);
	REDIS_WAIT(&wire.at, wire.downs == 1);
	cr_assert_not_null(strstr(wire.why.message, "no answer to 'PING' within 200 ms"), "%s",
			   wire.why.message);
	/* Then its queue is full, which is an error too. */
	REDIS_WAIT(&wire.at, wire.downs == 5);
	wire_close(&wire);
	close(fd);
	redis_remove_dir(dir);
}
