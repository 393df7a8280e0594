/*
 * sandpool --redis without a Redis: names, replies, what options mean, and how an acquire goes on
 * when a candidate cannot be claimed. The server is a script of replies behind the table that
 * sandpool-remote fills in (cli/remote.h); hosts are Unix sockets that do not exist, or one that
 * answers what a test wants.
 */
#include "supervisor/cli/redis.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "pool/base/clock.h"

#define LEASE  "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define ID     "0123456789abcdefghjk"
#define ABSENT "unix:///nonexistent/sandpool-test.sock"

enum {
	OPTION_POLICY,
	OPTION_WAIT,
	OPTION_TTL,
	OPTION_MIN,
	OPTION_LEASE,
	OPTION_BIND,
	OPTION_HOST,
	OPTION_END,
};

static const struct sp_cli_option options[] = {
	[OPTION_POLICY] = {"policy", 0, false, "P", ""},
	[OPTION_WAIT] = {"wait", 0, false, "T", ""},
	[OPTION_TTL] = {"ttl", 0, false, "T", ""},
	[OPTION_MIN] = {"min-remaining", 0, false, "T", ""},
	[OPTION_LEASE] = {"lease", 0, false, "L", ""},
	[OPTION_BIND] = {"bind", 0, true, "B", ""},
	[OPTION_HOST] = {"prefer-host", 0, false, "H", ""},
	[OPTION_END] = {0},
};

static const struct sp_cli_acquire_options acquire_options = {
	.policy = &options[OPTION_POLICY],
	.wait = &options[OPTION_WAIT],
	.ttl = &options[OPTION_TTL],
	.min_remaining = &options[OPTION_MIN],
	.lease = &options[OPTION_LEASE],
	.binds = &options[OPTION_BIND],
	.prefer_host = &options[OPTION_HOST],
};

/* ---- the server ---- */

/* What it is asked, joined by blanks, and what it answers: words separated by blanks; "-" is nil,
 * "!" no connection, "?" an answer that got lost. The last reply stands for all further ones. */
static const char *const *replies;
static size_t asked_count;
static char asked[64][1024];

static int answer(const char *first, int argc, const char *const *argv, struct sp_cli_reply *reply,
		  struct sp_err *err)
{
	char *at = asked[asked_count % SP_ARRAY_SIZE(asked)];
	const char *script = replies[0];
	char *copy;
	char *rest;

	at += snprintf(at, 256, "%s", first);
	for (int i = 0; i < argc; i++)
		at += snprintf(at, 256, " %s", argv[i]);
	asked_count++;
	if (replies[1])
		replies++;
	if (strcmp(script, "!") == 0)
		return sp_err_code(err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -ENOTCONN, "no link");
	if (strcmp(script, "?") == 0)
		return sp_err_code(err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -ETIMEDOUT, "lost");
	*reply = (struct sp_cli_reply){.texts = calloc(16, sizeof(char *))};
	copy = strdup(script);
	for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
		reply->texts[reply->count++] = strcmp(word, "-") == 0 ? NULL : strdup(word);
	free(copy);
	return 0;
}

static int open_link(const struct sp_cli_redis_settings *settings,
		     struct sp_cli_redis_link **ret_link, struct sp_err *err)
{
	static char link;

	SP_UNUSED(settings);
	SP_UNUSED(err);
	*ret_link = (struct sp_cli_redis_link *)(void *)&link;
	return 0;
}

static int fcall(struct sp_cli_redis_link *link, const char *function, bool read_only,
		 const char *key, int argc, const char *const *argv, int64_t timeout_ms,
		 struct sp_cli_reply *ret_reply, struct sp_err *err)
{
	SP_UNUSED(link);
	SP_UNUSED(read_only);
	cr_assert(timeout_ms > 0);
	cr_assert_str_eq(key, "sandpool:{p}:meta");
	return answer(function, argc, argv, ret_reply, err);
}

static int command(struct sp_cli_redis_link *link, int argc, const char *const *argv,
		   int64_t timeout_ms, struct sp_cli_reply *ret_reply, struct sp_err *err)
{
	SP_UNUSED(link);
	cr_assert(timeout_ms > 0);
	return answer(argv[0], argc - 1, argv + 1, ret_reply, err);
}

/* Not a digest: the lease of a secret is the secret backwards. */
static int lease_id(const char *secret, char *ret_lease)
{
	size_t len = strlen(secret);

	cr_assert_eq(len, SP_LEASE_ID_LEN);
	for (size_t i = 0; i < len; i++)
		ret_lease[i] = secret[len - 1 - i];
	ret_lease[len] = '\0';
	return 0;
}

static const struct sp_cli_remote remote = {.redis_open = open_link,
					    .redis_fcall = fcall,
					    .redis_command = command,
					    .lease_id = lease_id};

static struct sp_cli_given given[16];
static struct sp_cli cli;
static struct sp_err err;
static struct sp_cli_wish wish;
static struct sp_cli_answer got;

static void set_up(void)
{
	cli = (struct sp_cli){.args.given = given,
			      .over_redis = true,
			      .redis.prefix = "sandpool",
			      .remote = &remote};
	sp_buf_init(&got.text, 4096);
	asked_count = 0;
}

static void tear_down(void)
{
	sp_cli_answer_done(&got);
}

static void give(int option, const char *value)
{
	given[cli.args.given_count++] =
		(struct sp_cli_given){.option = &options[option], .value = value};
}

static int read_wish(void)
{
	return sp_cli_wish_read(&cli, &acquire_options, "p", &wish, &err);
}

static int acquire(const char *const *script)
{
	replies = script;
	cr_assert_eq(read_wish(), 0, "%s", err.message);
	return sp_cli_redis_acquire(&cli, &wish, &got, &err);
}

TestSuite(cli_redis, .init = set_up, .fini = tear_down, .timeout = 30);

/* ---- names ---- */

Test(cli_redis, a_prefix_is_one_word_without_anything_that_a_pattern_reads)
{
	char longest[SP_CLI_REDIS_PREFIX_MAX + 2];
	static const char *const bad[] = {"",   "a b", "a{b",  "a}b", "a*",
					  "a?", "a[b", "a\\b", "\x7f"};

	memset(longest, 'a', sizeof(longest));
	longest[SP_CLI_REDIS_PREFIX_MAX] = '\0';
	cr_assert_eq(sp_cli_redis_prefix_check(longest, &err), 0);
	longest[SP_CLI_REDIS_PREFIX_MAX] = 'a';
	longest[SP_CLI_REDIS_PREFIX_MAX + 1] = '\0';
	cr_assert_eq(sp_cli_redis_prefix_check(longest, &err), -EINVAL);
	for (size_t i = 0; i < SP_ARRAY_SIZE(bad); i++)
		cr_assert_eq(sp_cli_redis_prefix_check(bad[i], &err), -EINVAL, "'%s'", bad[i]);
}

Test(cli_redis, a_key_has_the_pool_in_braces_and_a_bad_name_makes_none)
{
	struct sp_buf key;

	sp_buf_init(&key, 256);
	cr_assert_eq(sp_cli_redis_key(&cli, "p", "grant:x", &key, &err), 0);
	cr_assert_str_eq(sp_buf_text(&key), "sandpool:{p}:grant:x");
	cr_assert_eq(sp_cli_redis_key(&cli, "p}:meta{", "meta", &key, &err), -EINVAL);
	sp_buf_done(&key);
}

/* ---- replies ---- */

Test(cli_redis, what_is_missing_or_no_number_reads_as_nothing)
{
	char *texts[] = {NULL, (char[]){"12x"}, (char[]){"-7"}};
	struct sp_cli_reply reply = {.texts = texts, .count = 3};

	cr_assert_str_eq(sp_cli_reply_text(&reply, 0), "");
	cr_assert_str_eq(sp_cli_reply_text(&reply, 3), "");
	cr_assert_eq(sp_cli_reply_number(&reply, 1), 0);
	cr_assert_eq(sp_cli_reply_number(&reply, 2), -7);
	cr_assert_not(sp_cli_reply_is(&reply, "OK"));
}

Test(cli_redis, every_status_word_has_its_code_and_an_unknown_one_is_no_success)
{
	static const struct {
		const char *word;
		enum sp_code code;
	} words[] = {
		{"EMPTY", SP_CODE_POOL_EMPTY},
		{"SATURATED", SP_CODE_POOL_SATURATED},
		{"DESTROYED", SP_CODE_POOL_DESTROYED},
		{"NOT_RUNNING", SP_CODE_POOL_NOT_RUNNING},
		{"TIMEOUT", SP_CODE_ACQUIRE_TIMEOUT},
		{"LEASE_ENDED", SP_CODE_LEASE_ENDED},
		{"LEASE_MISMATCH", SP_CODE_LEASE_MISMATCH},
		{"NOT_FOUND", SP_CODE_NOT_FOUND},
		{"STALE", SP_CODE_CONFLICT},
		{"FROM_THE_FUTURE", SP_CODE_PROTOCOL},
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(words); i++) {
		char *texts[] = {(char *)(uintptr_t)words[i].word};
		struct sp_cli_reply reply = {.texts = texts, .count = 1};

		cr_assert_lt(sp_cli_redis_refusal(&reply, "pool 'p'", &err), 0);
		cr_assert_eq(err.code, words[i].code, "%s", words[i].word);
		cr_assert(strstr(err.message, "pool 'p'"), "%s", err.message);
	}
}

/* ---- options ---- */

Test(cli_redis, without_options_one_is_taken_or_none)
{
	char secret_backwards[SP_LEASE_ID_LEN + 1];

	cr_assert_eq(read_wish(), 0);
	cr_assert_str_eq(wish.policy, "fail_fast");
	cr_assert_eq(wish.wait_ms, 0);
	cr_assert_eq(wish.min_remaining_ms, -1);
	cr_assert_eq(wish.ttl_ms, 0);
	cr_assert_eq(strlen(wish.secret), SP_SECRET_LEN);
	lease_id(wish.secret, secret_backwards);
	cr_assert_str_eq(wish.lease, secret_backwards);
}

Test(cli_redis, wait_alone_means_the_policy_and_a_policy_alone_means_a_default_wait)
{
	give(OPTION_WAIT, "1500ms");
	cr_assert_eq(read_wish(), 0);
	cr_assert_str_eq(wish.policy, "wait");
	cr_assert_eq(wish.wait_ms, 1500);
	cli.args.given_count = 0;
	give(OPTION_POLICY, "create");
	cr_assert_eq(read_wish(), 0);
	cr_assert_str_eq(wish.policy, "create");
	cr_assert_eq(wish.wait_ms, 30000);
	cli.args.given_count = 0;
	give(OPTION_POLICY, "retry_next");
	give(OPTION_WAIT, "5s");
	cr_assert_eq(read_wish(), 0);
	cr_assert_str_eq(wish.policy, "retry_next");
	cr_assert_eq(wish.wait_ms, 0);
}

Test(cli_redis, a_minimum_of_zero_is_a_value_b124)
{
	give(OPTION_MIN, "0");
	cr_assert_eq(read_wish(), 0);
	cr_assert_eq(wish.min_remaining_ms, 0);
}

Test(cli_redis, what_redis_cannot_do_is_refused_by_name)
{
	give(OPTION_BIND, "/srv:/data");
	cr_assert_eq(read_wish(), -EOPNOTSUPP);
	cr_assert(strstr(err.message, "--bind"), "%s", err.message);
	cli.args.given_count = 0;
	give(OPTION_POLICY, "hope");
	cr_assert_eq(read_wish(), -EINVAL);
	cr_assert(strstr(err.message, "'hope'"), "%s", err.message);
	cli.args.given_count = 0;
	give(OPTION_TTL, "5");
	cr_assert_eq(read_wish(), -EINVAL);
	cr_assert(strstr(err.message, "--ttl '5'"), "%s", err.message);
}

Test(cli_redis, a_lease_of_ones_own_is_a_digest_and_the_token_must_be_its_secret)
{
	give(OPTION_LEASE, "mine");
	cr_assert_eq(read_wish(), -EINVAL);
	cli.args.given_count = 0;
	give(OPTION_LEASE, LEASE);
	cr_assert_eq(read_wish(), 0);
	cr_assert_str_eq(wish.lease, LEASE);
	cr_assert_str_eq(wish.secret, "");
	memcpy(cli.client.token, LEASE, sizeof(LEASE));
	cr_assert_eq(read_wish(), -EINVAL);
	lease_id(LEASE, cli.client.token);
	cr_assert_eq(read_wish(), 0);
	cr_assert_str_eq(wish.secret, cli.client.token);
}

/* ---- acquire ---- */

Test(cli_redis, a_lost_answer_is_asked_for_again_with_the_same_lease_b139)
{
	static const char *const script[] = {"?", "!", "EMPTY", NULL};

	cr_assert_eq(acquire(script), -EREMOTEIO);
	cr_assert_eq(err.code, SP_CODE_POOL_EMPTY);
	cr_assert_eq(asked_count, 3);
	cr_assert_str_eq(asked[0], asked[1]);
	cr_assert_str_eq(asked[0], asked[2]);
}

Test(cli_redis, a_store_that_stays_away_is_an_error_within_the_patience_b150)
{
	static const char *const script[] = {"!", NULL};
	int64_t before_ms = sp_clock_boot_ms();

	cr_assert_eq(acquire(script), -ENOTCONN);
	cr_assert_eq(err.code, SP_CODE_POOL_STATE_STORE_UNAVAILABLE);
	cr_assert_leq(sp_clock_boot_ms() - before_ms, SP_CLI_REDIS_PATIENCE_MS + 500);
	/* No tight loop either (B-138): at most one try per 50 ms. */
	cr_assert_leq(asked_count, 62);
}

Test(cli_redis, without_the_secret_the_grant_is_told_and_not_claimed)
{
	static const char *const script[] = {"OK " ID " h1 " ABSENT " 61000 60000 1000", NULL};

	give(OPTION_LEASE, LEASE);
	cr_assert_eq(acquire(script), 0, "%s", err.message);
	cr_assert_str_eq(sp_cli_member_text(got.root, "id"), ID);
	cr_assert_str_eq(sp_cli_member_text(got.root, "host"), "h1");
	cr_assert_str_eq(sp_cli_member_text(got.root, "lease"), LEASE);
	cr_assert_eq(sp_cli_member_number(got.root, "remaining_ms"), 60000);
	cr_assert_null(json_object_get(got.root, "token"));
	cr_assert_eq(asked_count, 1);
}

Test(cli_redis, a_host_that_cannot_be_reached_is_left_out_of_the_next_question)
{
	static const char *const script[] = {"OK " ID " h1 " ABSENT " 61000 60000 1000", "EMPTY",
					     "OK", NULL};
	char expected[256];

	cr_assert_eq(acquire(script), -EREMOTEIO);
	cr_assert_eq(err.code, SP_CODE_POOL_ACQUIRE_FAILED, "%s", err.message);
	(void)snprintf(expected, sizeof(expected), "sandpool_v1_acquire %s fail_fast -1 0  %s h1",
		       wish.lease, ID);
	cr_assert_str_eq(asked[1], expected);
	cr_assert(strncmp(asked[2], "sandpool_v1_cancel", 18) == 0, "%s", asked[2]);
	cr_assert_not(strstr(err.message, wish.secret));
}

Test(cli_redis, eight_candidates_are_tried_and_no_ninth)
{
	static const char *const script[] = {"OK " ID " h1 " ABSENT " 61000 60000 1000", NULL};

	cr_assert_eq(acquire(script), -EREMOTEIO);
	cr_assert_eq(err.code, SP_CODE_POOL_ACQUIRE_FAILED);
	cr_assert_eq(asked_count, 9, "8 questions and a cancel, not %zu", asked_count);
	cr_assert(strncmp(asked[8], "sandpool_v1_cancel", 18) == 0, "%s", asked[8]);
}

Test(cli_redis, a_grant_without_a_place_is_a_broken_answer)
{
	static const char *const script[] = {"OK " ID " h1", NULL};

	cr_assert_eq(acquire(script), -EPROTO);
	cr_assert_eq(err.code, SP_CODE_PROTOCOL);
}

Test(cli_redis, waiting_asks_for_the_time_blocks_and_looks_until_it_is_told_that_it_is_over)
{
	static const char *const script[] = {"WAIT 1", "100 500000", "-", "WAIT 1",
					     "-",      "TIMEOUT",    NULL};
	char expected[128];

	give(OPTION_WAIT, "200ms");
	cr_assert_eq(acquire(script), -EREMOTEIO);
	cr_assert_eq(err.code, SP_CODE_ACQUIRE_TIMEOUT);
	cr_assert_str_eq(asked[1], "TIME");
	(void)snprintf(expected, sizeof(expected), "BLPOP sandpool:{p}:grant:%s 0.", wish.lease);
	cr_assert_eq(strncmp(asked[2], expected, strlen(expected)), 0, "%s", asked[2]);
	/* 100.5 s by the server's clock and the 200 ms, less what passed until then. */
	(void)snprintf(expected, sizeof(expected), "sandpool_v1_wait %s 100", wish.lease);
	cr_assert_eq(strncmp(asked[3], expected, strlen(expected)), 0, "%s", asked[3]);
	cr_assert_str_eq(asked[3], asked[5]);
}

Test(cli_redis, a_ticket_that_redis_lost_is_drawn_anew_b140)
{
	static const char *const script[] = {"WAIT 1", "100 0", "-",       "NOT_FOUND",
					     "WAIT 1", "-",     "TIMEOUT", NULL};

	give(OPTION_WAIT, "5s");
	cr_assert_eq(acquire(script), -EREMOTEIO);
	cr_assert_eq(err.code, SP_CODE_ACQUIRE_TIMEOUT);
	cr_assert_str_eq(asked[4], asked[0]);
	cr_assert_eq(asked_count, 7);
}

Test(cli_redis, a_drawn_lease_that_ended_unclaimed_is_drawn_anew_but_not_for_ever)
{
	static const char *const script[] = {"LEASE_ENDED excess", NULL};

	cr_assert_eq(acquire(script), -EREMOTEIO);
	cr_assert_eq(err.code, SP_CODE_LEASE_ENDED);
	cr_assert_eq(asked_count, 9, "8 questions and a cancel, not %zu", asked_count);
	cr_assert_neq(strcmp(asked[0], asked[1]), 0);
}

Test(cli_redis, a_lease_of_ones_own_that_ended_is_said)
{
	static const char *const script[] = {"LEASE_ENDED released", NULL};

	give(OPTION_LEASE, LEASE);
	cr_assert_eq(acquire(script), -EREMOTEIO);
	cr_assert_eq(err.code, SP_CODE_LEASE_ENDED);
	cr_assert_eq(asked_count, 1);
}

/* ---- acquire, with a host ---- */

static struct {
	int fd;
	char path[64];
	const char *status_line;
	const char *body;
	char request[4096];
	pthread_t thread;
} host;

/* Its head, and as much of a body as that promises; a client may send them apart. */
static bool request_complete(void)
{
	const char *body = strstr(host.request, "\r\n\r\n");
	const char *length = strcasestr(host.request, "Content-Length: ");

	if (!body)
		return false;
	return !length || strlen(body + 4) >= strtoul(length + 16, NULL, 10);
}

static void read_request(int fd)
{
	size_t len = 0;
	ssize_t part;

	host.request[0] = '\0';
	while (!request_complete()) {
		part = recv(fd, host.request + len, sizeof(host.request) - 1 - len, 0);
		if (part <= 0)
			return;
		len += (size_t)part;
		host.request[len] = '\0';
	}
}

static void *serve(void *arg)
{
	int fd;

	SP_UNUSED(arg);
	while ((fd = accept(host.fd, NULL, NULL)) >= 0) {
		read_request(fd);
		(void)dprintf(fd, "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n%s", host.status_line,
			      strlen(host.body), host.body);
		close(fd);
	}
	return NULL;
}

static void start_host(const char *status_line, const char *body)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	host.status_line = status_line;
	host.body = body;
	(void)snprintf(host.path, sizeof(host.path), "/tmp/sandpool-test-cli-%d.sock",
		       (int)getpid());
	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", host.path);
	host.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert_eq(bind(host.fd, (struct sockaddr *)&address, sizeof(address)), 0);
	cr_assert_eq(listen(host.fd, 4), 0);
	cr_assert_eq(pthread_create(&host.thread, NULL, serve, NULL), 0);
}

static void stop_host(void)
{
	(void)shutdown(host.fd, SHUT_RDWR);
	(void)pthread_join(host.thread, NULL);
	close(host.fd);
	(void)unlink(host.path);
}

static int acquire_at_host(const char *second)
{
	static char first[256];
	const char *script[] = {first, second, "OK", NULL};

	(void)snprintf(first, sizeof(first), "OK " ID " h1 unix://%s 61000 60000 1000", host.path);
	return acquire(script);
}

Test(cli_redis, a_claim_carries_the_secret_and_the_answer_is_the_hosts)
{
	int status;

	give(OPTION_TTL, "1m30s");
	start_host("200 OK", "{\"id\":\"" ID "\",\"state\":\"leased\",\"remaining_ms\":5}");
	status = acquire_at_host("EMPTY");
	stop_host();
	cr_assert_eq(status, 0, "%s", err.message);
	cr_assert(strstr(host.request, "POST /v1/sandboxes/" ID "/claim HTTP/1.1\r\n"));
	cr_assert(strstr(host.request, wish.secret));
	cr_assert(strstr(host.request, "{\"ttl\":\"90000ms\"}"));
	cr_assert_str_eq(sp_cli_member_text(got.root, "token"), wish.secret);
	cr_assert_str_eq(sp_cli_member_text(got.root, "lease"), wish.lease);
	cr_assert_eq(sp_cli_member_number(got.root, "remaining_ms"), 5);
	cr_assert_str_eq(cli.client.token, wish.secret);
	for (size_t i = 0; i < asked_count; i++)
		cr_assert_not(strstr(asked[i], wish.secret), "Redis saw the secret");
}

Test(cli_redis, a_host_that_does_not_know_it_is_no_reason_to_shun_the_host)
{
	int status;
	char expected[256];

	start_host("404 Not Found", "{\"code\":\"NOT_FOUND\",\"message\":\"no\"}");
	status = acquire_at_host("EMPTY");
	stop_host();
	cr_assert_eq(status, -EREMOTEIO);
	cr_assert_eq(err.code, SP_CODE_POOL_ACQUIRE_FAILED);
	(void)snprintf(expected, sizeof(expected), "sandpool_v1_acquire %s fail_fast -1 0  %s ",
		       wish.lease, ID);
	cr_assert_str_eq(asked[1], expected);
}

Test(cli_redis, a_fault_that_all_would_share_burns_no_second_candidate_b097)
{
	int status;

	start_host("500 Internal Server Error", "{\"code\":\"INTERNAL\",\"message\":\"broken\"}");
	status = acquire_at_host("EMPTY");
	stop_host();
	cr_assert_eq(status, -EREMOTEIO);
	cr_assert_eq(err.code, SP_CODE_INTERNAL, "%s", err.message);
	cr_assert_eq(asked_count, 2, "one question, one cancel");
	cr_assert(strncmp(asked[1], "sandpool_v1_cancel", 18) == 0, "%s", asked[1]);
}

/* ---- leases ---- */

Test(cli_redis, a_sandbox_id_needs_its_token_a_lease_does_not)
{
	static const char *const script[] = {"OK", NULL};

	replies = script;
	cr_assert_eq(sp_cli_redis_release(&cli, "p", ID, &err), -EINVAL);
	cr_assert(strstr(err.message, "SANDPOOL_TOKEN"), "%s", err.message);
	cr_assert_eq(sp_cli_redis_release(&cli, "p", "neither", &err), -EINVAL);
	cr_assert_eq(asked_count, 0);
	cr_assert_eq(sp_cli_redis_release(&cli, "p", LEASE, &err), 0);
	cr_assert_str_eq(asked[0], "sandpool_v1_release " LEASE);
}

Test(cli_redis, the_token_of_another_sandbox_releases_nothing_b102)
{
	static const char *const script[] = {
		"OK zzzzzzzzzzzzzzzzzzzz h1 " ABSENT " 61000 60000 1000", NULL};

	replies = script;
	lease_id(LEASE, cli.client.token);
	cr_assert_eq(sp_cli_redis_release(&cli, "p", ID, &err), -EREMOTEIO);
	cr_assert_eq(err.code, SP_CODE_NOT_FOUND);
	cr_assert_eq(asked_count, 1);
}

Test(cli_redis, a_renewal_without_the_token_tells_what_holds_and_what_was_asked)
{
	static const char *const script[] = {"OK 601000 61000 1000", NULL};

	replies = script;
	cr_assert_eq(sp_cli_redis_renew(&cli, "p", LEASE, "10m", &got, &err), 0, "%s", err.message);
	cr_assert_str_eq(asked[0], "sandpool_v1_renew " LEASE " 600000");
	cr_assert_eq(sp_cli_member_number(got.root, "remaining_ms"), 60000);
	sp_cli_answer_done(&got);
	cr_assert_eq(sp_cli_redis_renew(&cli, "p", LEASE, "0", &got, &err), -EINVAL);
}
