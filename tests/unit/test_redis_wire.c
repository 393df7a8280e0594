/*
 * The connection against a real redis-server: where it leads, commands, limits, deadlines, the end.
 */
#include "redis_wire_fixture.h"

#include <dirent.h>

#define MANY   SP_REDIS_PENDING_MAX
#define BIG_MS 20000 /* what megabytes may take on a machine that has more to do */

TestSuite(redis_wire, .timeout = 120);

/* ---- where to ---- */

Test(redis_wire, speaks_over_a_unix_socket)
{
	struct redis_server server;
	struct outcome ret;
	struct wire wire;

	redis_server_start(&server, NULL);
	wire_open_up(&wire, server.url);
	cr_assert(strcmp(sp_redis_peer(wire.redis), server.url) == 0, "%s",
		  sp_redis_peer(wire.redis));
	wire_ask(&wire, &ret, "SET", "k", "v");
	cr_assert(ret.outcome == SP_REDIS_REPLIED && strcmp(ret.text, "OK") == 0);
	wire_ask(&wire, &ret, "GET", "k");
	cr_assert(ret.type == REDIS_REPLY_STRING && strcmp(ret.text, "v") == 0);
	wire_close(&wire);
	redis_server_stop(&server);
}

static void speak_to_host(struct redis_server *server, const char *host)
{
	struct outcome ret;
	struct wire wire;
	char url[64];

	(void)snprintf(url, sizeof(url), "redis://%s:%d/3", host, server->port);
	wire_open_up(&wire, url);
	wire_ask(&wire, &ret, "CLIENT", "INFO");
	cr_assert_not_null(strstr(ret.text, " db=3 "), "%s", ret.text);
	wire_close(&wire);
}

Test(redis_wire, speaks_over_tcp_by_address_and_by_name)
{
	struct redis_server server;

	redis_server_start_tcp(&server, NULL);
	speak_to_host(&server, "127.0.0.1");
	speak_to_host(&server, "localhost");
	redis_server_stop(&server);
}

Test(redis_wire, speaks_over_ipv6)
{
	const char *const extra[] = {"--bind", "::1", NULL};
	struct redis_server server;

	redis_server_start_tcp(&server, extra);
	speak_to_host(&server, "[::1]");
	redis_server_stop(&server);
}

Test(redis_wire, the_other_address_of_a_name_is_tried)
{
	/* localhost is ::1 and 127.0.0.1; the server is at the one only. */
	const char *const extra[] = {"--bind", "127.0.0.1", NULL};
	struct redis_server server;

	redis_server_start_tcp(&server, extra);
	speak_to_host(&server, "localhost");
	redis_server_stop(&server);
}

Test(redis_wire, selects_the_database_and_tells_its_name)
{
	struct redis_server server;
	struct outcome ret;
	struct wire wire;
	char url[160];

	redis_server_start(&server, NULL);
	(void)snprintf(url, sizeof(url), "%s?db=5", server.url);
	wire_open(&wire, &(struct sp_redis_options){.url = url, .client_name = "sandpoold-a"});
	REDIS_WAIT(&wire.at, wire.ups == 1);
	wire_ask(&wire, &ret, "CLIENT", "GETNAME");
	cr_assert(strcmp(ret.text, "sandpoold-a") == 0);
	wire_ask(&wire, &ret, "SET", "k", "v");
	redisReply *there = redis_ask(&server, NULL, "EVAL",
				      "redis.call('SELECT', 5) return redis.call('GET', 'k')", "0");
	cr_assert(there && there->type == REDIS_REPLY_STRING && strcmp(there->str, "v") == 0);
	freeReplyObject(there);
	wire_close(&wire);
	redis_server_stop(&server);
}

Test(redis_wire, a_database_that_is_not_there_is_told)
{
	struct redis_server server;
	struct wire wire;
	char url[160];

	redis_server_start(&server, NULL);
	(void)snprintf(url, sizeof(url), "%s?db=99", server.url);
	wire_open_url(&wire, url);
	REDIS_WAIT(&wire.at, wire.downs == 1);
	cr_assert_not_null(strstr(wire.why.message, "'SELECT'"), "%s", wire.why.message);
	cr_assert(wire.ups == 0);
	wire_close(&wire);
	redis_server_stop(&server);
}

Test(redis_wire, every_descriptor_is_close_on_exec)
{
	struct redis_server server;
	struct dirent *entry;
	struct outcome ret;
	struct wire wire;
	char url[64];
	DIR *dir;

	redis_server_start_tcp(&server, NULL);
	(void)snprintf(url, sizeof(url), "redis://localhost:%d", server.port);
	wire_open_up(&wire, url);
	wire_ask(&wire, &ret, "PING");
	dir = opendir("/proc/self/fd");
	cr_assert_not_null(dir);
	while ((entry = readdir(dir))) {
		char target[128] = {0};
		int fd = (int)strtol(entry->d_name, NULL, 10);

		if (entry->d_name[0] == '.' || fd < 3 ||
		    readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1) < 0)
			continue;
		if (strncmp(target, "socket:", 7) == 0 && fcntl(fd, F_GETFD) >= 0) {
			int family = 0;
			socklen_t len = sizeof(family);

			/* Criterion's own are not ours to judge. */
			cr_assert(getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &len) == 0);
			cr_assert(family == AF_UNIX || (fcntl(fd, F_GETFD) & FD_CLOEXEC));
		}
	}
	closedir(dir);
	wire_close(&wire);
	redis_server_stop(&server);
}

/* ---- limits ---- */

Test(redis_wire, b132_a_thousand_commands_under_way_and_not_one_more)
{
	static struct outcome ret[MANY];
	struct redis_server server;
	struct sp_err err = {0};
	struct wire wire;

	redis_server_start(&server, NULL);
	wire_open_up(&wire, server.url);
	for (size_t i = 0; i < MANY; i++)
		wire_send(&wire, &ret[i], 0, "INCR", "n");
	cr_assert(sp_redis_call(wire.redis, WIRE_ARGV("INCR", "n"), NULL, 0, wire_on_reply, &ret[0],
				&err) == -EBUSY);
	cr_assert_not_null(strstr(err.message, "1024"));
	for (size_t i = 0; i < MANY; i++) {
		REDIS_WAIT(&wire.at, ret[i].calls == 1);
		/* In order, and each with its own answer. */
		cr_assert(ret[i].integer == (long long)i + 1);
	}
	wire_close(&wire);
	redis_server_stop(&server);
}

Test(redis_wire, commands_without_a_connection_are_limited_too)
{
	static struct outcome ret[MANY];
	struct wire wire;

	wire_open_url(&wire, "unix:///nonexistent/redis.sock");
	for (size_t i = 0; i < MANY; i++)
		wire_send(&wire, &ret[i], 0, "PING");
	cr_assert(sp_redis_call(wire.redis, WIRE_ARGV("PING"), NULL, 0, wire_on_reply, &ret[0],
				NULL) == -EBUSY);
	for (size_t i = 0; i < MANY; i++) {
		REDIS_WAIT(&wire.at, ret[i].calls == 1);
		cr_assert(ret[i].outcome == SP_REDIS_NOT_SENT);
	}
	wire_send(&wire, &ret[0], 0, "PING");
	REDIS_WAIT(&wire.at, ret[0].calls == 1);
	wire_close(&wire);
}

Test(redis_wire, a_command_has_a_most_of_bytes)
{
	/* "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4194264\r\n" … "\r\n" */
	const size_t around = 4 + 9 + 7 + 10 + 2;
	const size_t fits = SP_REDIS_COMMAND_MAX - around;
	char *value = malloc(SP_REDIS_COMMAND_MAX + 1);
	const char *const argv[] = {"SET", "k", value};
	struct redis_server server;
	struct sp_err err = {0};
	struct outcome ret = {0};
	struct wire wire;

	cr_assert_not_null(value);
	memset(value, 'x', SP_REDIS_COMMAND_MAX + 1);
	redis_server_start(&server, NULL);
	wire_open_up(&wire, server.url);
	for (size_t over = 1; over <= around + 1; over += around) {
		const size_t lens[] = {3, 1, fits + over};

		cr_assert(sp_redis_call(wire.redis, 3, argv, lens, 0, wire_on_reply, &ret, &err) ==
			  -EMSGSIZE);
		cr_assert_not_null(strstr(err.message, "'SET' is longer than 4194304 bytes"));
	}
	cr_assert(sp_redis_call(wire.redis, 3, argv, (const size_t[]){3, 1, fits}, BIG_MS,
				wire_on_reply, &ret, &err) == 0);
	REDIS_WAIT(&wire.at, ret.calls == 1);
	cr_assert(strcmp(ret.text, "OK") == 0);
	wire_ask(&wire, &ret, "STRLEN", "k");
	cr_assert((size_t)ret.integer == fits);
	wire_close(&wire);
	redis_server_stop(&server);
	free(value);
}

Test(redis_wire, a_command_needs_a_name)
{
	struct wire wire;

	wire_open_url(&wire, "unix:///nonexistent/redis.sock");
	cr_assert(sp_redis_call(wire.redis, 0, NULL, NULL, 0, wire_on_reply, NULL, NULL) ==
		  -EINVAL);
	wire_close(&wire);
}

Test(redis_wire, bytes_that_wait_for_the_server_are_limited)
{
	const size_t len = 4u << 20;
	char *value = malloc(len);
	const char *const argv[] = {"ECHO", value};
	const size_t lens[] = {4, len - 64};
	struct redis_server server;
	struct outcome ret[5] = {0};
	struct wire wire;

	cr_assert_not_null(value);
	memset(value, 'x', len);
	redis_server_start(&server, NULL);
	wire_open_up(&wire, server.url);
	for (size_t i = 0; i < 4; i++)
		cr_assert(sp_redis_call(wire.redis, 2, argv, lens, BIG_MS, wire_on_reply, &ret[i],
					NULL) == 0);
	cr_assert(sp_redis_call(wire.redis, 2, argv, lens, BIG_MS, wire_on_reply, &ret[4], NULL) ==
		  -EBUSY);
	for (size_t i = 0; i < 4; i++) {
		REDIS_WAIT(&wire.at, ret[i].calls == 1);
		cr_assert(ret[i].outcome == SP_REDIS_REPLIED && ret[i].err.status == 0);
	}
	cr_assert(ret[4].calls == 0);
	wire_close(&wire);
	redis_server_stop(&server);
	free(value);
}

Test(redis_wire, bytes_pass_unchanged)
{
	const char value[] = "a\0b\r\n$-1\r\n\xff";
	const char *const argv[] = {"SET", "k", value};
	const size_t lens[] = {3, 1, sizeof(value)};
	struct redis_server server;
	struct outcome ret = {0};
	struct wire wire;

	redis_server_start(&server, NULL);
	wire_open_up(&wire, server.url);
	cr_assert(sp_redis_call(wire.redis, 3, argv, lens, 0, wire_on_reply, &ret, NULL) == 0);
	REDIS_WAIT(&wire.at, ret.calls == 1);
	wire_ask(&wire, &ret, "STRLEN", "k");
	cr_assert(ret.integer == (long long)sizeof(value));
	wire_ask(&wire, &ret, "EVAL",
		 "return redis.call('GET', 'k') == 'a\\0b\\r\\n$-1\\r\\n\\255\\0'", "0");
	cr_assert(ret.integer == 1);
	wire_close(&wire);
	redis_server_stop(&server);
}

Test(redis_wire, an_error_reply_is_an_answer_with_an_error)
{
	struct redis_server server;
	struct outcome ret;
	struct wire wire;

	redis_server_start(&server, NULL);
	wire_open_up(&wire, server.url);
	wire_ask(&wire, &ret, "LPUSH", "list", "x");
	wire_ask(&wire, &ret, "INCR", "list");
	cr_assert(ret.outcome == SP_REDIS_REPLIED && ret.type == REDIS_REPLY_ERROR);
	cr_assert(ret.err.status == -EBADMSG);
	cr_assert_not_null(strstr(ret.err.message, "'INCR': the server answers: WRONGTYPE"));
	cr_assert(wire.downs == 0);
	wire_close(&wire);
	redis_server_stop(&server);
}

/* ---- deadlines ---- */

Test(redis_wire, b135_a_late_answer_ends_the_connection_at_the_commands_deadline) /* P-045 */
{
	struct redis_server server;
	struct outcome slow;
	struct outcome behind;
	struct wire wire;
	int64_t begin_ms;

	redis_server_start(&server, NULL);
	wire_open_up(&wire, server.url);
	redis_server_signal(&server, SIGSTOP);
	begin_ms = redis_now_ms();
	wire_send(&wire, &slow, 150, "PING");
	wire_send(&wire, &behind, 5000, "INCR", "n");
	REDIS_WAIT(&wire.at, slow.calls == 1 && behind.calls == 1 && wire.downs == 1);
	cr_assert(slow.at_ms - begin_ms >= 150, "early: %d ms", (int)(slow.at_ms - begin_ms));
	cr_assert(slow.at_ms - begin_ms < 1000);
	cr_assert(slow.outcome == SP_REDIS_UNKNOWN && behind.outcome == SP_REDIS_UNKNOWN);
	cr_assert_not_null(strstr(slow.err.message, "no answer to 'PING' within 150 ms"));
	cr_assert_not_null(strstr(behind.err.message, "'INCR'"));
	cr_assert(!sp_redis_up(wire.redis));
	redis_server_signal(&server, SIGCONT);
	REDIS_WAIT(&wire.at, wire.ups == 2);
	wire_ask(&wire, &slow, "PING");
	cr_assert(slow.outcome == SP_REDIS_REPLIED);
	wire_close(&wire);
	redis_server_stop(&server);
}

Test(redis_wire, an_answer_that_is_there_after_a_pause_of_ours_counts)
{
	struct redis_server server;
	struct outcome ret;
	struct wire wire;

	redis_server_start(&server, NULL);
	wire_open_up(&wire, server.url);
	wire_send(&wire, &ret, 100, "PING");
	(void)uv_run(&wire.at.loop, UV_RUN_NOWAIT);
	/* As when the machine sleeps or a debugger holds us. */
	(void)poll(NULL, 0, 400);
	REDIS_WAIT(&wire.at, ret.calls == 1);
	cr_assert(ret.outcome == SP_REDIS_REPLIED, "%s", ret.err.message);
	cr_assert(wire.downs == 0);
	wire_close(&wire);
	redis_server_stop(&server);
}

Test(redis_wire, b136_a_silent_server_is_noticed_within_the_keepalive)
{
	struct sp_redis_options options;
	struct redis_server server;
	struct wire wire;
	int64_t begin_ms;

	redis_server_start(&server, NULL);
	give_up_soon(&options, server.url);
	options.keepalive_ms = 1000;
	wire_open(&wire, &options);
	REDIS_WAIT(&wire.at, wire.ups == 1);
	redis_server_signal(&server, SIGSTOP);
	begin_ms = redis_now_ms();
	REDIS_WAIT(&wire.at, wire.downs == 1);
	cr_assert(wire.down_ms - begin_ms <= 1000, "%d ms", (int)(wire.down_ms - begin_ms));
	cr_assert_not_null(strstr(wire.why.message, "'PING'"));
	redis_server_signal(&server, SIGCONT);
	REDIS_WAIT(&wire.at, wire.ups == 2);
	wire_close(&wire);
	redis_server_stop(&server);
}

Test(redis_wire, a_quiet_connection_stays)
{
	struct sp_redis_options options;
	struct redis_server server;
	struct wire wire;
	int64_t begin_ms;

	redis_server_start(&server, NULL);
	give_up_soon(&options, server.url);
	wire_open(&wire, &options);
	REDIS_WAIT(&wire.at, wire.ups == 1);
	begin_ms = redis_now_ms();
	REDIS_WAIT(&wire.at, redis_now_ms() - begin_ms > 1500);
	cr_assert(wire.downs == 0, "%s", wire.why.message);
	wire_close(&wire);
	redis_server_stop(&server);
}

Test(redis_wire, a_command_that_blocks_is_not_taken_for_silence)
{
	struct sp_redis_options options;
	struct redis_server server;
	struct outcome ret;
	struct wire wire;

	redis_server_start_tcp(&server, NULL);
	give_up_soon(&options, server.url);
	wire_open(&wire, &options);
	REDIS_WAIT(&wire.at, wire.ups == 1);
	wire_send(&wire, &ret, 5000, "BLPOP", "list", "1.5");
	REDIS_WAIT(&wire.at, ret.calls == 1);
	cr_assert(ret.outcome == SP_REDIS_REPLIED && ret.type == REDIS_REPLY_NIL, "%s",
		  ret.err.message);
	wire_close(&wire);
	redis_server_stop(&server);
}

/* ---- the end ---- */

Test(redis_wire, close_at_once_is_clean)
{
	struct wire wire;

	wire_open_url(&wire, "redis://localhost:1");
	wire_close(&wire);
	cr_assert(wire.ups == 0 && wire.downs == 0);
	wire_open_url(&wire, "redis://localhost:1");
	for (int i = 0; i < 2; i++)
		(void)uv_run(&wire.at.loop, UV_RUN_NOWAIT);
	wire_close(&wire);
	wire_open_url(&wire, "unix:///nonexistent");
	(void)uv_run(&wire.at.loop, UV_RUN_NOWAIT);
	wire_close(&wire);
}

Test(redis_wire, close_answers_what_is_under_way_before_it_says_closed)
{
	struct redis_server server;
	struct outcome ret[3];
	struct wire wire;

	redis_server_start(&server, NULL);
	wire_open_up(&wire, server.url);
	wire_send(&wire, &ret[0], 0, "BLPOP", "list", "10");
	(void)uv_run(&wire.at.loop, UV_RUN_NOWAIT);
	wire_send(&wire, &ret[1], 0, "PING");
	sp_redis_close(wire.redis);
	sp_redis_close(wire.redis); /* idempotent */
	for (size_t i = 0; i < 2; i++)
		cr_assert(ret[i].calls == 0, "from inside of close");
	cr_assert(!sp_redis_up(wire.redis));
	cr_assert(sp_redis_call(wire.redis, WIRE_ARGV("PING"), NULL, 0, wire_on_reply, &ret[2],
				NULL) == -ECANCELED);
	REDIS_WAIT(&wire.at, wire.closed == 1);
	cr_assert(ret[0].calls == 1 && ret[0].outcome == SP_REDIS_UNKNOWN);
	cr_assert(ret[1].calls == 1 && ret[1].outcome == SP_REDIS_NOT_SENT);
	cr_assert(wire.downs == 0);
	redis_loop_done(&wire.at);
	redis_server_stop(&server);
}

Test(redis_wire, close_while_down_answers_what_was_not_sent)
{
	struct outcome ret;
	struct wire wire;

	wire_open_url(&wire, "unix:///nonexistent");
	wire_send(&wire, &ret, 0, "PING");
	wire_close(&wire);
	cr_assert(ret.calls == 1 && ret.outcome == SP_REDIS_NOT_SENT);
}

static struct wire *closing; /* for callbacks that close */
static unsigned int answers;

static void close_in_reply(void *arg, enum sp_redis_outcome outcome, const redisReply *reply,
			   const struct sp_err *err)
{
	(void)arg;
	(void)outcome;
	(void)reply;
	(void)err;
	answers++;
	if (closing->redis)
		sp_redis_close(closing->redis);
}

static void close_in_callback_of(bool kill_server)
{
	struct redis_server server;
	struct wire wire;

	redis_server_start(&server, NULL);
	wire_open_up(&wire, server.url);
	closing = &wire;
	answers = 0;
	if (kill_server)
		redis_server_signal(&server, SIGSTOP);
	for (int i = 0; i < 10; i++)
		cr_assert(sp_redis_call(wire.redis, WIRE_ARGV("PING"), NULL, 0, close_in_reply,
					NULL, NULL) == 0);
	(void)uv_run(&wire.at.loop, UV_RUN_NOWAIT);
	if (kill_server)
		redis_server_signal(&server, SIGKILL);
	REDIS_WAIT(&wire.at, wire.closed == 1);
	cr_assert(answers == 10, "%u", answers);
	cr_assert(wire.downs == 0);
	redis_loop_done(&wire.at);
	redis_server_stop(&server);
}

Test(redis_wire, b133_close_inside_a_reply)
{
	close_in_callback_of(false);
}

Test(redis_wire, b133_close_inside_the_answer_to_a_lost_command)
{
	close_in_callback_of(true);
}

Test(redis_wire, b133_close_inside_up_and_down)
{
	struct redis_server server;
	struct wire wire;

	redis_server_start(&server, NULL);
	wire_open_url(&wire, server.url);
	wire.close_when_up = true;
	REDIS_WAIT(&wire.at, wire.closed == 1);
	cr_assert(wire.ups == 1 && wire.downs == 0);
	redis_loop_done(&wire.at);

	wire_open_up(&wire, server.url);
	wire.close_when_down = true;
	redis_server_signal(&server, SIGKILL);
	REDIS_WAIT(&wire.at, wire.closed == 1);
	cr_assert(wire.downs == 1);
	redis_loop_done(&wire.at);

	wire_open_url(&wire, server.url);
	wire.close_when_down = true;
	REDIS_WAIT(&wire.at, wire.closed == 1);
	redis_loop_done(&wire.at);
	redis_server_stop(&server);
}

static void send_again(void *arg, enum sp_redis_outcome outcome, const redisReply *reply,
		       const struct sp_err *err)
{
	struct wire *wire = arg;

	(void)reply;
	(void)err;
	cr_assert(outcome == SP_REDIS_NOT_SENT);
	answers++;
	(void)sp_redis_call(wire->redis, WIRE_ARGV("PING"), NULL, 0, send_again, wire, NULL);
}

Test(redis_wire, whoever_sends_again_at_once_does_not_stop_the_loop)
{
	struct wire wire;

	answers = 0;
	wire_open_url(&wire, "unix:///nonexistent");
	cr_assert(sp_redis_call(wire.redis, WIRE_ARGV("PING"), NULL, 0, send_again, &wire, NULL) ==
		  0);
	REDIS_WAIT(&wire.at, wire.downs == 2);
	cr_assert(answers > 0);
	wire_close(&wire);
}
