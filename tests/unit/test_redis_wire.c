/*
 * The connection against a real redis-server: up, commands, deadlines, outages, coming back.
 */
#include "redis_wire_fixture.h"

TestSuite(redis_wire, .timeout = 60);

Test(redis_wire, speaks_over_a_unix_socket)
{
	struct redis_server server;
	struct outcome ret;
	struct wire wire;

	redis_server_start(&server, NULL);
	wire_open_up(&wire, server.url);
	cr_assert(strncmp(sp_redis_peer(wire.redis), "unix:///tmp/sp-redis-test-", 26) == 0);
	wire_ask(&wire, &ret, "SET", "k", "v");
	cr_assert(ret.outcome == SP_REDIS_REPLIED && strcmp(ret.text, "OK") == 0);
	wire_ask(&wire, &ret, "GET", "k");
	cr_assert(ret.type == REDIS_REPLY_STRING && strcmp(ret.text, "v") == 0);
	wire_close(&wire);
	redis_server_stop(&server);
}

Test(redis_wire, speaks_over_tcp)
{
	struct redis_server server;
	struct outcome ret;
	struct wire wire;
	char url[64];

	redis_server_start_tcp(&server, NULL);
	(void)snprintf(url, sizeof(url), "redis://127.0.0.1:%d/3", server.port);
	wire_open_up(&wire, url);
	wire_ask(&wire, &ret, "CLIENT", "INFO");
	cr_assert_not_null(strstr(ret.text, "addr=127.0.0.1"));
	wire_close(&wire);
	redis_server_stop(&server);
}

Test(redis_wire, comes_back_after_a_restart)
{
	struct redis_server server;
	struct outcome ret;
	struct wire wire;

	redis_server_start(&server, NULL);
	wire_open_up(&wire, server.url);
	redis_server_signal(&server, SIGKILL);
	REDIS_WAIT(&wire.at, wire.downs == 1);
	redis_server_run(&server);
	REDIS_WAIT(&wire.at, wire.ups == 2);
	wire_ask(&wire, &ret, "PING");
	cr_assert(strcmp(ret.text, "PONG") == 0);
	wire_close(&wire);
	redis_server_stop(&server);
}
