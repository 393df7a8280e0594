/*
 * rediss:// against a real redis-server: who is let in, who is refused and why, and that bytes
 * pass.
 */
#include "redis/tls.h"
#include "redis_fake.h"
#include "redis_tls_fixture.h"
#include "redis_wire_fixture.h"

TestSuite(redis_tls, .timeout = 120);

struct tls_test {
	struct redis_server server;
	struct tls_ca ca;
	struct tls_ca stranger;
	struct tls_pair own;    /* the server's: localhost, 127.0.0.1 */
	struct tls_pair client; /* ours, which the server wants to see */
	int tls_port;
	char url[64];
	struct sp_redis_options options;
};

/* An --tls-port beside the Unix socket, which the fixture itself uses. */
static void start_named(struct tls_test *test, const char *dns, const char *ip, time_t valid_s)
{
	char port[16];

	*test = (struct tls_test){0};
	redis_server_prepare(&test->server);
	tls_ca_init(&test->ca, test->server.dir, "ca");
	tls_ca_init(&test->stranger, test->server.dir, "stranger");
	tls_issue(&test->ca, test->server.dir, "server", dns, ip, valid_s, &test->own);
	tls_issue(&test->ca, test->server.dir, "client", "client", NULL, 3600, &test->client);
	test->tls_port = redis_free_port();
	(void)snprintf(port, sizeof(port), "%d", test->tls_port);
	const char *const extra[] = {"--tls-port",
				     port,
				     "--tls-cert-file",
				     test->own.cert_path,
				     "--tls-key-file",
				     test->own.key_path,
				     "--tls-ca-cert-file",
				     test->ca.path,
				     NULL};
	redis_server_launch(&test->server, extra);
	(void)snprintf(test->url, sizeof(test->url), "rediss://127.0.0.1:%d", test->tls_port);
	test->options = (struct sp_redis_options){.url = test->url,
						  .ca_file = test->ca.path,
						  .cert_file = test->client.cert_path,
						  .key_file = test->client.key_path,
						  .seed = 1,
						  .connect_timeout_ms = 5000,
						  .backoff_min_ms = 5,
						  .backoff_max_ms = 50};
}

static void start(struct tls_test *test)
{
	start_named(test, "localhost", "127.0.0.1", 3600);
}

static void stop(struct tls_test *test)
{
	tls_ca_done(&test->ca);
	tls_ca_done(&test->stranger);
	redis_server_stop(&test->server);
}

static void refused(struct tls_test *test, const char *words)
{
	struct wire wire;

	wire_open(&wire, &test->options);
	REDIS_WAIT(&wire.at, wire.downs == 1);
	cr_assert_not_null(strstr(wire.why.message, words), "%s", wire.why.message);
	cr_assert(wire.ups == 0);
	for (const char *at = wire.why.message; *at; at++)
		cr_assert((unsigned char)*at >= ' ');
	wire_close(&wire);
}

static void accepted(struct tls_test *test)
{
	struct outcome ret;
	struct wire wire;

	wire_open(&wire, &test->options);
	REDIS_WAIT(&wire.at, wire.ups + wire.downs > 0);
	cr_assert(wire.ups == 1, "%s", wire.why.message);
	cr_assert(strncmp(sp_redis_peer(wire.redis), "tls://", 6) == 0);
	wire_ask(&wire, &ret, "PING");
	cr_assert(strcmp(ret.text, "PONG") == 0);
	wire_close(&wire);
}

Test(redis_tls, a_server_of_our_ca_and_the_right_name_is_spoken_to)
{
	struct tls_test test;

	start(&test);
	accepted(&test);
	(void)snprintf(test.url, sizeof(test.url), "rediss://localhost:%d", test.tls_port);
	accepted(&test);
	test.options.server_name = "localhost";
	(void)snprintf(test.url, sizeof(test.url), "rediss://127.0.0.1:%d", test.tls_port);
	accepted(&test);
	stop(&test);
}

Test(redis_tls, a_server_of_another_ca_is_refused)
{
	struct tls_test test;

	start(&test);
	test.options.ca_file = test.stranger.path;
	refused(&test, "TLS: The certificate is NOT trusted");
	/* The system's CAs do not know it either. */
	test.options.ca_file = NULL;
	refused(&test, "TLS: The certificate is NOT trusted");
	stop(&test);
}

Test(redis_tls, a_server_of_another_name_is_refused)
{
	struct tls_test test;

	start(&test);
	test.options.server_name = "redis.example";
	refused(&test, "does not match the expected");
	test.options.server_name = "127.0.0.2";
	refused(&test, "does not match the expected");
	stop(&test);
	start_named(&test, "redis.example", NULL, 3600);
	refused(&test, "does not match the expected");
	test.options.server_name = "redis.example";
	accepted(&test);
	stop(&test);
}

Test(redis_tls, a_certificate_that_has_expired_is_refused)
{
	struct tls_test test;

	start_named(&test, "localhost", "127.0.0.1", -60);
	refused(&test, "expired");
	stop(&test);
}

Test(redis_tls, a_client_without_a_certificate_is_told_that_the_server_wants_one)
{
	struct tls_test test;

	start(&test);
	test.options.cert_file = NULL;
	test.options.key_file = NULL;
	refused(&test, "ertificate");
	stop(&test);
}

Test(redis_tls, files_that_do_not_fit_are_named)
{
	struct tls_test test;
	char path[128];
	FILE *file;

	start(&test);
	(void)snprintf(path, sizeof(path), "%s/none.pem", test.server.dir);
	test.options.ca_file = path;
	refused(&test, "none.pem");
	file = fopen(path, "we");
	cr_assert(file && fputs("no certificate\n", file) >= 0 && fclose(file) == 0);
	refused(&test, "holds no certificate");
	cr_assert(truncate(path, 0) == 0);
	refused(&test, "holds no certificate");
	cr_assert(truncate(path, SP_REDIS_TLS_FILE_MAX + 1) == 0);
	refused(&test, "File too large");
	cr_assert(truncate(path, SP_REDIS_TLS_FILE_MAX) == 0);
	refused(&test, "holds no certificate");
	test.options.ca_file = test.ca.path;
	test.options.key_file = test.own.key_path; /* of another certificate */
	refused(&test, "client.crt");
	test.options.key_file = path;
	refused(&test, "client.crt");
	test.options.key_file = test.server.dir;
	refused(&test, "is not a regular file");
	stop(&test);
}

Test(redis_tls, a_certificate_that_is_replaced_counts_from_the_next_try)
{
	struct tls_test test;
	struct wire wire;

	start(&test);
	test.options.ca_file = test.stranger.path;
	wire_open(&wire, &test.options);
	REDIS_WAIT(&wire.at, wire.downs == 2);
	cr_assert(rename(test.ca.path, test.stranger.path) == 0);
	REDIS_WAIT(&wire.at, wire.ups == 1);
	wire_close(&wire);
	stop(&test);
}

Test(redis_tls, megabytes_pass_both_ways)
{
	const size_t len = 4000000;
	char *value = malloc(len);
	const char *const argv[] = {"ECHO", value};
	const size_t lens[] = {4, len};
	static struct outcome ret[3];
	struct outcome small[500];
	struct tls_test test;
	struct wire wire;

	cr_assert_not_null(value);
	memset(value, 'x', len);
	start(&test);
	test.options.command_timeout_ms = 20000;
	wire_open(&wire, &test.options);
	REDIS_WAIT(&wire.at, wire.ups == 1);
	for (size_t i = 0; i < 3; i++)
		cr_assert(sp_redis_call(wire.redis, 2, argv, lens, 0, wire_on_reply, &ret[i],
					NULL) == 0);
	for (size_t i = 0; i < 500; i++)
		wire_send(&wire, &small[i], 0, "INCR", "n");
	for (size_t i = 0; i < 500; i++) {
		REDIS_WAIT(&wire.at, small[i].calls == 1);
		cr_assert(small[i].integer == (long long)i + 1);
	}
	for (size_t i = 0; i < 3; i++)
		cr_assert(ret[i].calls == 1 && ret[i].type == REDIS_REPLY_STRING);
	wire_close(&wire);
	stop(&test);
	free(value);
}

Test(redis_tls, outages_are_survived)
{
	struct tls_test test;
	struct outcome ret[100];
	struct wire wire;

	start(&test);
	wire_open(&wire, &test.options);
	REDIS_WAIT(&wire.at, wire.ups == 1);
	for (unsigned int round = 1; round <= 3; round++) {
		for (size_t i = 0; i < 100; i++)
			wire_send(&wire, &ret[i], 0, "BLPOP", "list", "10");
		(void)uv_run(&wire.at.loop, UV_RUN_NOWAIT);
		redis_server_signal(&test.server, SIGKILL);
		REDIS_WAIT(&wire.at, wire.downs >= round && !sp_redis_up(wire.redis));
		for (size_t i = 0; i < 100; i++)
			cr_assert(ret[i].calls == 1 && ret[i].outcome != SP_REDIS_REPLIED);
		redis_server_run(&test.server);
		REDIS_WAIT(&wire.at, sp_redis_up(wire.redis));
	}
	wire_close(&wire);
	stop(&test);
}

Test(redis_tls, close_in_the_middle_of_a_handshake_is_clean)
{
	struct tls_test test;

	start(&test);
	for (int turns = 0; turns < 12; turns++) {
		struct wire wire;

		wire_open(&wire, &test.options);
		for (int i = 0; i < turns; i++)
			(void)uv_run(&wire.at.loop, UV_RUN_ONCE);
		wire_close(&wire);
	}
	stop(&test);
}

/* ---- a peer that does not speak TLS ---- */

static bool say_garbage(struct fake *fake, struct fake_client *client, const redisReply *command)
{
	(void)fake;
	(void)client;
	(void)command;
	return true;
}

static void speak_to_fake(const char *greeting, size_t len, const char *words)
{
	struct sp_redis_options options = {.seed = 1, .connect_timeout_ms = 300};
	struct tls_ca ca;
	struct fake fake;
	struct wire wire;
	char url[64];

	wire_init(&wire);
	fake_start(&fake, &wire.at, true, say_garbage, NULL);
	fake.deaf = true;
	tls_ca_init(&ca, fake.dir, "ca");
	(void)snprintf(url, sizeof(url), "rediss://127.0.0.1:%d", fake.port);
	options.url = url;
	options.ca_file = ca.path;
	wire_start(&wire, &options);
	REDIS_WAIT(&wire.at, fake.clients == 1);
	if (len > 0)
		fake_say(fake.last, greeting, len);
	REDIS_WAIT(&wire.at, wire.downs == 1);
	cr_assert_not_null(strstr(wire.why.message, words), "%s", wire.why.message);
	wire_end(&wire);
	fake_hang_up(fake.last);
	fake_stop(&fake, &wire.at);
	tls_ca_done(&ca);
	redis_loop_done(&wire.at);
}

Test(redis_tls, b147_a_peer_that_speaks_something_else_is_refused)
{
	/* A handshake record that is longer than any may be; an alert; plain Redis. */
	speak_to_fake("-ERR Protocol error\r\n", 21, "TLS: ");
	speak_to_fake("\x16\x03\x03\xff\xff\x02", 6, "TLS: ");
	speak_to_fake("\x15\x03\x03\x00\x02\x02\x28", 7, "TLS: the server refuses: ");
	speak_to_fake("\x16\x03\x03\x00\x04\x02\x00\x00\x00", 9, "TLS: ");
}

Test(redis_tls, a_handshake_that_does_not_end_is_given_up)
{
	speak_to_fake("", 0, "the TLS handshake did not end within 300 ms");
	speak_to_fake("\x16\x03\x03\x40", 4, "the TLS handshake did not end within 300 ms");
	/* A warning is no end, and no progress either. */
	speak_to_fake("\x15\x03\x03\x00\x02\x01\x70", 7, "within 300 ms");
}

Test(redis_tls, a_tls_server_that_is_spoken_to_in_plain_is_an_error)
{
	struct tls_test test;
	struct wire wire;

	start(&test);
	(void)snprintf(test.url, sizeof(test.url), "redis://127.0.0.1:%d", test.tls_port);
	wire_open_url(&wire, test.url);
	REDIS_WAIT(&wire.at, wire.downs == 1);
	cr_assert(wire.ups == 0);
	wire_close(&wire);
	stop(&test);
}
