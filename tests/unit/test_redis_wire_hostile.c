/*
 * The connection against a server that says what it should not: broken, endless, huge, wrong, slow,
 * and error replies that change where to go. B-147 and what goes with it.
 */
#include "redis_fake.h"
#include "redis_wire_fixture.h"

#include <sys/resource.h>

#define RSS_GROWTH_MAX_KIB (96 * 1024)

#ifdef __SANITIZE_ADDRESS__
#define KEEPS_FREED 1 /* memory says nothing then */
#else
#define KEEPS_FREED 0
#endif

TestSuite(redis_wire_hostile, .timeout = 120);

struct hostile {
	struct wire wire;
	struct fake fake;
	struct sp_redis_options options;
	const char *command; /* what is answered with … */
	const char *answer;  /* … this */
	size_t answer_len;   /* 0: strlen */
	unsigned int times;  /* this often; 0: always */
	bool hang_up;
};

/* Answers one command from the test, all others as a master does. */
static bool answer_one(struct fake *fake, struct fake_client *client, const redisReply *command)
{
	struct hostile *hostile = fake->arg;

	if (fake_is(command, "ECHO"))
		return true; /* never answered */
	if (!hostile->command || !fake_is(command, hostile->command))
		return false;
	fake->commands++;
	if (hostile->times > 0 && fake->commands > hostile->times)
		return false;
	client->flooding = fake->flood_len > 0;
	if (hostile->answer)
		fake_say(client, hostile->answer,
			 hostile->answer_len ? hostile->answer_len : strlen(hostile->answer));
	if (hostile->hang_up)
		fake_hang_up(client);
	return true;
}

static void prepare(struct hostile *hostile, const char *command, const char *answer)
{
	*hostile = (struct hostile){.command = command, .answer = answer};
	wire_init(&hostile->wire);
	fake_start(&hostile->fake, &hostile->wire.at, false, answer_one, hostile);
	hostile->options = (struct sp_redis_options){.url = hostile->fake.url,
						     .seed = 1,
						     .command_timeout_ms = 200,
						     .keepalive_ms = 60000,
						     .backoff_min_ms = 5,
						     .backoff_max_ms = 20};
}

static void start(struct hostile *hostile)
{
	wire_start(&hostile->wire, &hostile->options);
}

static void stop(struct hostile *hostile)
{
	wire_end(&hostile->wire);
	fake_stop(&hostile->fake, &hostile->wire.at);
	redis_loop_done(&hostile->wire.at);
}

static long rss_kib(void)
{
	struct rusage usage;

	cr_assert(getrusage(RUSAGE_SELF, &usage) == 0);
	return usage.ru_maxrss;
}

/* ---- replies that are none ---- */

/* Ends the connection, answers what is under way, and the next connection works. */
static void breaks_after(bool extra, const char *answer, size_t len, const char *words)
{
	struct hostile hostile;
	struct outcome first;
	struct outcome second;

	prepare(&hostile, "GET", answer);
	hostile.answer_len = len;
	hostile.times = 1;
	start(&hostile);
	REDIS_WAIT(&hostile.wire.at, hostile.wire.ups == 1);
	wire_send(&hostile.wire, &first, 0, "GET", "k");
	wire_send(&hostile.wire, &second, 0, "ECHO", "x");
	REDIS_WAIT(&hostile.wire.at, hostile.wire.downs == 1);
	cr_assert(first.calls == 1 && second.calls == 1);
	cr_assert(second.outcome == (extra ? SP_REDIS_REPLIED : SP_REDIS_UNKNOWN));
	cr_assert_not_null(strstr(hostile.wire.why.message, words), "%s", hostile.wire.why.message);
	for (const char *at = hostile.wire.why.message; *at; at++)
		cr_assert((unsigned char)*at >= ' ' && *at != 0x7f);
	REDIS_WAIT(&hostile.wire.at, hostile.wire.ups == 2);
	stop(&hostile);
}

static void breaks(const char *answer, size_t len, const char *words)
{
	breaks_after(false, answer, len, words);
}

Test(redis_wire_hostile, b147_broken_replies_end_the_connection)
{
	const char *const answers[] = {
		"?what\r\n",
		"HTTP/1.1 400 Bad Request\r\n\r\n",
		":abc\r\n",
		":\r\n",
		":99999999999999999999\r\n",
		"$abc\r\n",
		"$-2\r\n",
		"$99999999999999999999\r\n",
		"*abc\r\n",
		"*-2\r\n",
		"*99999999999999999999\r\n",
		"*2147483647\r\n",
		"*65537\r\n",
		"*2\r\n*32768\r\n*32769\r\n",
		"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
		"\x16\x03\x01",
		"\x1b[31m\r\n",
	};

	for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
		breaks(answers[i], 0, "breaks the protocol");
	breaks("\0\0\0\0", 4, "breaks the protocol");
}

Test(redis_wire_hostile, b147_an_answer_to_nothing_ends_the_connection)
{
	breaks_after(true, "$1\r\nv\r\n+OK\r\n+OK\r\n", 0, "an answer to nothing");
}

Test(redis_wire_hostile, b147_half_a_reply_ends_at_the_deadline)
{
	breaks("$10\r\nabc", 0, "no answer to 'GET' within 200 ms");
	breaks("*3\r\n:1\r\n", 0, "no answer to 'GET' within 200 ms");
	breaks("+OK", 0, "no answer to 'GET' within 200 ms");
}

/* An answer that never ends: bounded by size, not only by the deadline. */
static void floods(const char *answer, const char *flood, size_t len, const char *words)
{
	struct hostile hostile;
	struct outcome ret;
	long before;

	prepare(&hostile, "GET", answer);
	hostile.fake.flood = flood;
	hostile.fake.flood_len = len;
	hostile.options.command_timeout_ms = 30000;
	start(&hostile);
	REDIS_WAIT(&hostile.wire.at, hostile.wire.ups == 1);
	before = rss_kib();
	wire_send(&hostile.wire, &ret, 0, "GET", "k");
	REDIS_WAIT(&hostile.wire.at, ret.calls == 1);
	cr_assert(ret.outcome == SP_REDIS_UNKNOWN);
	cr_assert_not_null(strstr(ret.err.message, words), "%s", ret.err.message);
	if (KEEPS_FREED)
		before = rss_kib();
	cr_assert(rss_kib() - before < RSS_GROWTH_MAX_KIB, "%ld KiB", rss_kib() - before);
	stop(&hostile);
}

Test(redis_wire_hostile, b147_endless_replies_end_the_connection)
{
	static char flood[65536];

	memset(flood, 'a', sizeof(flood));
	floods("+", flood, sizeof(flood), "a line without end");
	floods("-", flood, sizeof(flood), "a line without end");
	floods("*", flood, sizeof(flood), "a line without end");
	floods("$536870911\r\n", flood, sizeof(flood), "too long");
	for (size_t i = 0; i + 4 <= sizeof(flood); i += 4)
		memcpy(flood + i, ":1\r\n", 4);
	floods("*65537\r\n", flood, sizeof(flood), "too many elements");
	for (size_t i = 0; i + 4 <= sizeof(flood); i += 4)
		memcpy(flood + i, "*1\r\n", 4);
	floods("*1\r\n", flood, sizeof(flood), "breaks the protocol");
}

/* ---- N and N + 1 ---- */

static void reply_of(size_t bytes, bool fits)
{
	struct hostile hostile;
	struct outcome ret;
	char *answer = malloc(bytes + 1);
	int head;

	cr_assert_not_null(answer);
	memset(answer, 'a', bytes);
	head = snprintf(answer, bytes, "$%zu\r\n", bytes - 13);
	cr_assert(head == 11);
	answer[head] = 'a';
	memcpy(answer + bytes - 2, "\r\n", 2);
	prepare(&hostile, "GET", answer);
	hostile.answer_len = bytes;
	hostile.options.command_timeout_ms = 10000;
	start(&hostile);
	REDIS_WAIT(&hostile.wire.at, hostile.wire.ups == 1);
	wire_ask(&hostile.wire, &ret, "GET", "k");
	cr_assert((ret.outcome == SP_REDIS_REPLIED) == fits, "%s", ret.err.message);
	if (!fits)
		cr_assert_not_null(strstr(ret.err.message, "too long"));
	stop(&hostile);
	free(answer);
}

Test(redis_wire_hostile, a_reply_has_a_most_of_bytes)
{
	reply_of(SP_REDIS_REPLY_MAX, true);
	reply_of(SP_REDIS_REPLY_MAX + 1, false);
}

static void reply_with(size_t elements, bool fits)
{
	struct hostile hostile;
	struct outcome ret;
	char *answer = malloc(32 + elements * 4);
	size_t len;

	cr_assert_not_null(answer);
	len = (size_t)snprintf(answer, 32, "*2\r\n:1\r\n*%zu\r\n", elements - 2);
	for (size_t i = 2; i < elements; i++, len += 4)
		memcpy(answer + len, ":1\r\n", 4);
	prepare(&hostile, "GET", answer);
	hostile.answer_len = len;
	hostile.options.command_timeout_ms = 10000;
	start(&hostile);
	REDIS_WAIT(&hostile.wire.at, hostile.wire.ups == 1);
	for (int i = 0; i < (fits ? 3 : 1); i++) /* counted for each reply anew */
		wire_ask(&hostile.wire, &ret, "GET", "k");
	cr_assert((ret.outcome == SP_REDIS_REPLIED) == fits, "%s", ret.err.message);
	stop(&hostile);
	free(answer);
}

Test(redis_wire_hostile, a_reply_has_a_most_of_elements)
{
	reply_with(SP_REDIS_ELEMENTS_MAX, true);
	reply_with(SP_REDIS_ELEMENTS_MAX + 1, false);
}

static void line_of(size_t len, bool fits)
{
	struct hostile hostile;
	struct outcome ret;
	char *answer = malloc(len + 3);

	cr_assert_not_null(answer);
	memset(answer, 'a', len);
	answer[0] = '+';
	prepare(&hostile, "GET", answer);
	hostile.answer_len = len;
	hostile.options.command_timeout_ms = 500;
	start(&hostile);
	REDIS_WAIT(&hostile.wire.at, hostile.wire.ups == 1);
	wire_ask(&hostile.wire, &ret, "GET", "k");
	cr_assert(ret.outcome == SP_REDIS_UNKNOWN);
	cr_assert((strstr(ret.err.message, "a line without end") == NULL) == fits, "%s",
		  ret.err.message);
	stop(&hostile);
	free(answer);
}

Test(redis_wire_hostile, an_open_line_has_a_most_of_bytes)
{
	/* Behind the byte that says what it is; waits for the rest, until the deadline. */
	line_of(1 + SP_REDIS_LINE_MAX, true);
	line_of(1 + SP_REDIS_LINE_MAX + 1, false);
}

Test(redis_wire_hostile, a_reply_byte_by_byte_is_a_reply)
{
	static const char *const answer = "*3\r\n$2\r\nOK\r\n:7\r\n$-1\r\n";
	static struct outcome rest;
	struct hostile hostile;
	struct outcome ret;

	prepare(&hostile, "GET", NULL);
	start(&hostile);
	REDIS_WAIT(&hostile.wire.at, hostile.wire.ups == 1);
	/* The next command brings the next byte. */
	for (const char *at = answer; *at; at++) {
		char byte[2] = {*at, '\0'};

		hostile.answer = byte;
		hostile.answer_len = 1;
		if (at == answer)
			wire_send(&hostile.wire, &ret, 5000, "GET", "k");
		else
			cr_assert(sp_redis_call(hostile.wire.redis, WIRE_ARGV("GET", "k"), NULL,
						5000, wire_on_reply, &rest, NULL) == 0);
		REDIS_WAIT(&hostile.wire.at,
			   hostile.fake.commands == (unsigned int)(at - answer) + 1);
		(void)uv_run(&hostile.wire.at.loop, UV_RUN_NOWAIT);
		if (at[1])
			cr_assert(ret.calls == 0);
		else
			break;
	}
	REDIS_WAIT(&hostile.wire.at, ret.calls == 1);
	cr_assert(ret.outcome == SP_REDIS_REPLIED && ret.elements == 3);
	sp_redis_close(hostile.wire.redis);
	hostile.command = NULL;
	stop(&hostile);
}

/* ---- the greeting ---- */

static char secret_dir[] = "/tmp/sp-redis-test-XXXXXX";
static char secret_file[64];

static void write_secret(const char *text)
{
	FILE *file;

	if (!secret_file[0]) {
		cr_assert_not_null(mkdtemp(secret_dir));
		(void)snprintf(secret_file, sizeof(secret_file), "%s/password", secret_dir);
	}
	file = fopen(secret_file, "we");
	cr_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void greeting_fails(const char *command, const char *answer, const char *words)
{
	struct hostile hostile;

	prepare(&hostile, command, answer);
	write_secret("hunter2\n");
	hostile.options.password_file = secret_file;
	hostile.options.user = "worker";
	start(&hostile);
	REDIS_WAIT(&hostile.wire.at, hostile.wire.downs == 2);
	cr_assert(hostile.wire.ups == 0);
	cr_assert_not_null(strstr(hostile.wire.why.message, words), "%s", hostile.wire.why.message);
	cr_assert_null(strstr(hostile.wire.why.message, "hunter2"));
	cr_assert_null(strstr(sp_redis_peer(hostile.wire.redis), "hunter2"));
	stop(&hostile);
}

Test(redis_wire_hostile, b133_a_greeting_that_goes_wrong_is_told_and_tried_again)
{
	greeting_fails("AUTH", "-WRONGPASS invalid username-password pair or user is disabled.\r\n",
		       "wrong user or password");
	greeting_fails("AUTH", "*2\r\n+OK\r\n+OK\r\n", "AUTH was not accepted");
	greeting_fails("AUTH", ":1\r\n", "AUTH was not accepted");
	greeting_fails("AUTH", "$-1\r\n", "AUTH was not accepted");
	greeting_fails("AUTH", "-ERR max number of clients reached\r\n", "max number of clients");
	greeting_fails("AUTH",
		       "-ERR AUTH <password> called without any password configured for the "
		       "default user. Are you sure your configuration is correct?\r\n",
		       "no password set");
	greeting_fails("PING", "-LOADING Redis is loading the dataset in memory\r\n", "LOADING");
	greeting_fails("PING", "-NOAUTH Authentication required.\r\n", "NOAUTH");
	greeting_fails("PING", "-DENIED Redis is running in protected mode\r\n", "DENIED");
	greeting_fails("PING", ":1\r\n", "is this Redis?");
	greeting_fails("PING", "+PANG\r\n", "is this Redis?");
	greeting_fails("PING", "*1\r\n+PONG\r\n", "is this Redis?");
	greeting_fails("ROLE", "+master\r\n", "names no role");
	greeting_fails("ROLE", "*0\r\n", "names no role");
	greeting_fails("ROLE", "*1\r\n:1\r\n", "names no role");
	greeting_fails("ROLE", "$-1\r\n", "names no role");
	greeting_fails("ROLE", "*1\r\n$5\r\nslave\r\n", "is a replica");
	greeting_fails("ROLE", "*1\r\n$8\r\nsentinel\r\n", "redis+sentinel");
	redis_remove_dir(secret_dir);
}

Test(redis_wire_hostile, b146_what_the_server_says_to_auth_is_not_repeated)
{
	greeting_fails(
		"AUTH",
		"-ERR unknown command 'AUTH', with args beginning with: 'worker' 'hunter2' \r\n",
		"AUTH was not accepted");
	redis_remove_dir(secret_dir);
}

Test(redis_wire_hostile, a_right_that_is_missing_is_no_obstacle)
{
	struct hostile hostile;

	prepare(&hostile, "ROLE",
		"-NOPERM this user has no permissions to run the 'role' command\r\n");
	start(&hostile);
	REDIS_WAIT(&hostile.wire.at, hostile.wire.ups == 1);
	stop(&hostile);
	prepare(&hostile, "PING",
		"-NOPERM this user has no permissions to run the 'ping' command\r\n");
	start(&hostile);
	REDIS_WAIT(&hostile.wire.at, hostile.wire.ups == 1);
	stop(&hostile);
	prepare(&hostile, "CLIENT", "-NOPERM no\r\n");
	hostile.options.client_name = "n";
	start(&hostile);
	REDIS_WAIT(&hostile.wire.at, hostile.wire.ups == 1);
	stop(&hostile);
}

Test(redis_wire_hostile, one_that_hangs_up_in_the_greeting_is_tried_again)
{
	struct hostile hostile;

	prepare(&hostile, "PING", NULL);
	hostile.hang_up = true;
	hostile.times = 5;
	start(&hostile);
	REDIS_WAIT(&hostile.wire.at, hostile.wire.ups == 1);
	cr_assert(hostile.wire.downs == 5);
	stop(&hostile);
}

Test(redis_wire_hostile, one_that_reads_nothing_ends_at_the_command_timeout)
{
	struct hostile hostile;

	prepare(&hostile, NULL, NULL);
	hostile.fake.deaf = true;
	start(&hostile);
	REDIS_WAIT(&hostile.wire.at, hostile.wire.downs == 1);
	cr_assert_not_null(strstr(hostile.wire.why.message, "within 200 ms"));
	wire_end(&hostile.wire);
	fake_hang_up(hostile.fake.last); /* a deaf one does not see us go */
	stop(&hostile);
}

/* ---- pauses ---- */

Test(redis_wire_hostile, pauses_grow_up_to_the_most)
{
	struct hostile hostile;
	int64_t begin_ms = redis_now_ms();
	int64_t took_ms;

	prepare(&hostile, "PING", NULL);
	hostile.hang_up = true;
	hostile.options.backoff_min_ms = 10;
	hostile.options.backoff_max_ms = 100;
	start(&hostile);
	REDIS_WAIT(&hostile.wire.at, hostile.fake.connections == 24);
	took_ms = redis_now_ms() - begin_ms;
	/* 10 + 20 + 40 + 80 + 19 × 100, on the average half of that; never without a pause. */
	cr_assert(took_ms > 400 && took_ms < 5000, "%d ms", (int)took_ms);
	stop(&hostile);
}

Test(redis_wire_hostile, b143_many_clients_do_not_come_back_in_step)
{
	enum { CLIENTS = 60, BINS = 12, BIN_MS = 250 };

	static struct wire wires[CLIENTS];
	struct hostile hostile;
	unsigned int bins[BINS] = {0};
	unsigned int most = 0;
	unsigned int seen;
	int64_t begin_ms;

	prepare(&hostile, "PING", NULL);
	hostile.hang_up = true;
	hostile.options.backoff_min_ms = 200;
	hostile.options.backoff_max_ms = 2000;
	for (size_t i = 0; i < CLIENTS; i++) {
		struct sp_redis_options options = hostile.options;

		options.seed = i + 1;
		wires[i] = (struct wire){0};
		cr_assert(sp_redis_new(&hostile.wire.at.loop, &options, &wire_events, &wires[i],
				       &wires[i].redis, NULL) == 0);
	}
	/* Until all pauses are at their most. */
	REDIS_WAIT(&hostile.wire.at, hostile.fake.connections > CLIENTS * 6);
	seen = hostile.fake.connections;
	begin_ms = redis_now_ms();
	while (redis_now_ms() < begin_ms + BINS * BIN_MS) {
		int64_t at = (redis_now_ms() - begin_ms) / BIN_MS;

		(void)uv_run(&hostile.wire.at.loop, UV_RUN_ONCE);
		bins[at] += hostile.fake.connections - seen;
		seen = hostile.fake.connections;
	}
	seen = 0;
	for (size_t i = 0; i < BINS; i++) {
		most = SP_MAX(most, bins[i]);
		seen += bins[i];
	}
	cr_assert(seen > 0 && most < 3 * seen / BINS, "most %u of %u in %d", most, seen, BINS);
	for (size_t i = 0; i < CLIENTS; i++)
		sp_redis_close(wires[i].redis);
	for (size_t i = 0; i < CLIENTS; i++)
		REDIS_WAIT(&hostile.wire.at, wires[i].closed == 1);
	hostile.wire.closed = 1;
	hostile.wire.redis = NULL;
	stop(&hostile);
}

/* ---- error replies ---- */

Test(redis_wire_hostile, b138_states_of_the_server_become_typed_errors)
{
	const struct {
		const char *answer;
		int status;
	} states[] = {
		{"-LOADING Redis is loading the dataset in memory\r\n", -EAGAIN},
		{"-MASTERDOWN Link with MASTER is down\r\n", -EAGAIN},
		{"-MISCONF Redis is configured to save RDB snapshots\r\n", -EIO},
		{"-OOM command not allowed when used memory > 'maxmemory'.\r\n", -ENOMEM},
		{"-CLUSTERDOWN The cluster is down\r\n", -EAGAIN},
		{"-TRYAGAIN Multiple keys request during rehashing of slot\r\n", -EAGAIN},
		{"-ASK 3999 127.0.0.1:6381\r\n", -EAGAIN},
		{"-BUSY Redis is busy running a script\r\n", -EAGAIN},
		{"-NOREPLICAS Not enough good replicas to write.\r\n", -EAGAIN},
		{"-NOPERM this user has no permissions\r\n", -EACCES},
		{"-UNBLOCKED force unblock from blocking operation\r\n", -EAGAIN},
		{"-OOMPH is another word\r\n", -EBADMSG},
		{"-\r\n", -EBADMSG},
		{"-ERR whatever\r\n", -EBADMSG},
	};
	struct hostile hostile;
	struct outcome ret;

	prepare(&hostile, "GET", NULL);
	start(&hostile);
	REDIS_WAIT(&hostile.wire.at, hostile.wire.ups == 1);
	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
		hostile.answer = states[i].answer;
		wire_ask(&hostile.wire, &ret, "GET", "k");
		cr_assert(ret.outcome == SP_REDIS_REPLIED && ret.err.status == states[i].status,
			  "%s %d", states[i].answer, ret.err.status);
	}
	/* None of them is a reason to leave. */
	cr_assert(hostile.wire.downs == 0);
	stop(&hostile);
}

static void leaves_on(const char *answer)
{
	struct hostile hostile;
	struct outcome first;
	struct outcome second;

	prepare(&hostile, "GET", answer);
	hostile.times = 2;
	start(&hostile);
	REDIS_WAIT(&hostile.wire.at, hostile.wire.ups == 1);
	wire_send(&hostile.wire, &first, 0, "GET", "k");
	wire_send(&hostile.wire, &second, 0, "GET", "k");
	REDIS_WAIT(&hostile.wire.at, hostile.wire.downs == 1);
	/* What was under way has had its answer. */
	cr_assert(first.outcome == SP_REDIS_REPLIED && second.outcome == SP_REDIS_REPLIED);
	cr_assert(first.calls == 1 && second.calls == 1);
	REDIS_WAIT(&hostile.wire.at, hostile.wire.ups == 2);
	stop(&hostile);
}

Test(redis_wire_hostile, b138_the_wrong_server_is_left)
{
	leaves_on("-READONLY You can't write against a read only replica.\r\n");
	leaves_on("-NOAUTH Authentication required.\r\n");
	leaves_on("-MOVED\r\n");
	leaves_on("-MOVED 1\r\n");
	leaves_on("-MOVED 1 x\r\n");
	leaves_on("-MOVED 1 x:\r\n");
	leaves_on("-MOVED 1 :0\r\n");
	leaves_on("-MOVED 1 a/b:6379\r\n");
	leaves_on("-MOVED 1:6379 x\r\n");
}

Test(redis_wire_hostile, readonly_is_no_reason_to_leave_where_a_replica_will_do)
{
	struct hostile hostile;
	struct outcome ret;

	prepare(&hostile, "GET", "-READONLY You can't write against a read only replica.\r\n");
	hostile.options.allow_replica = true;
	start(&hostile);
	REDIS_WAIT(&hostile.wire.at, hostile.wire.ups == 1);
	wire_ask(&hostile.wire, &ret, "GET", "k");
	cr_assert(ret.err.status == -EROFS && sp_redis_up(hostile.wire.redis));
	stop(&hostile);
}

Test(redis_wire_hostile, moved_leads_to_the_node_that_is_named_and_no_pause_is_made)
{
	struct hostile hostile;
	struct fake other;
	struct outcome ret;
	char moved[64] = "";
	int64_t begin_ms;

	prepare(&hostile, "GET", moved);
	fake_start(&other, &hostile.wire.at, true, NULL, NULL);
	(void)snprintf(moved, sizeof(moved), "-MOVED 3999 127.0.0.1:%d\r\n", other.port);
	hostile.options.backoff_min_ms = 60000;
	hostile.options.backoff_max_ms = 60000;
	start(&hostile);
	REDIS_WAIT(&hostile.wire.at, hostile.wire.ups == 1);
	begin_ms = redis_now_ms();
	wire_ask(&hostile.wire, &ret, "GET", "k");
	REDIS_WAIT(&hostile.wire.at, hostile.wire.ups == 2);
	cr_assert(redis_now_ms() - begin_ms < 5000);
	cr_assert(other.connections == 1);
	cr_assert_not_null(strstr(sp_redis_peer(hostile.wire.redis), "tcp://127.0.0.1:"));
	wire_end(&hostile.wire);
	fake_stop(&other, &hostile.wire.at);
	stop(&hostile);
}

Test(redis_wire_hostile, moved_to_a_node_that_is_not_there_comes_home)
{
	struct hostile hostile;
	struct outcome ret;
	char moved[64] = "";

	prepare(&hostile, "GET", moved);
	(void)snprintf(moved, sizeof(moved), "-MOVED 3999 127.0.0.1:%d\r\n", redis_free_port());
	start(&hostile);
	REDIS_WAIT(&hostile.wire.at, hostile.wire.ups == 1);
	wire_ask(&hostile.wire, &ret, "GET", "k");
	REDIS_WAIT(&hostile.wire.at, hostile.wire.ups == 2);
	cr_assert(hostile.wire.downs == 2 && hostile.fake.connections == 2);
	stop(&hostile);
}

/* ---- pushed messages ---- */

static void subscribe_is_answered(const char *answer, const char *words)
{
	const char *const channels[] = {"c"};
	struct hostile hostile;

	prepare(&hostile, "SUBSCRIBE", answer);
	start(&hostile);
	cr_assert(sp_redis_subscribe(hostile.wire.redis, channels, 1, NULL) == 0);
	REDIS_WAIT(&hostile.wire.at, hostile.wire.downs == 1);
	cr_assert_not_null(strstr(hostile.wire.why.message, words), "%s", hostile.wire.why.message);
	cr_assert(hostile.wire.ups == 0);
	stop(&hostile);
}

Test(redis_wire_hostile, a_subscription_that_goes_wrong_is_told)
{
	subscribe_is_answered(
		"-NOPERM this user has no permissions to access one of the channels\r\n", "NOPERM");
	subscribe_is_answered("+OK\r\n", "the answer to SUBSCRIBE is none");
	subscribe_is_answered("*0\r\n", "the answer to SUBSCRIBE is none");
	subscribe_is_answered("*3\r\n$4\r\nxxxx\r\n$1\r\nc\r\n:1\r\n",
			      "the answer to SUBSCRIBE is none");
	subscribe_is_answered(NULL, "no answer to 'SUBSCRIBE' within 200 ms");
}

Test(redis_wire_hostile, messages_that_nobody_asked_for_are_dropped)
{
	static const char answer[] = "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"
				     "*3\r\n$7\r\nmessage\r\n$5\r\nother\r\n$1\r\nx\r\n"
				     "*3\r\n$7\r\nmessage\r\n:1\r\n$1\r\nx\r\n"
				     "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n*0\r\n"
				     "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n";
	const char *const channels[] = {"c"};
	struct hostile hostile;

	prepare(&hostile, "SUBSCRIBE", answer);
	start(&hostile);
	cr_assert(sp_redis_subscribe(hostile.wire.redis, channels, 1, NULL) == 0);
	REDIS_WAIT(&hostile.wire.at, hostile.wire.messages == 1);
	cr_assert(strcmp(hostile.wire.text, "hi") == 0 && hostile.wire.downs == 0);
	stop(&hostile);
}
