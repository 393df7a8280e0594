/*
 * The function library on a real server: loaded, kept, replaced, missing in the middle of it.
 */
#include "redis/library.h"
#include "redis_fake.h"
#include "redis_wire_fixture.h"

#define KEY  "sandpool:{default}:meta"
#define INFO "sandpool_v1_info"

/* A library that is ours by name, with one more function and the build that is asked for. */
#define LIBRARY_OF_BUILD(build)                                                           \
	"#!lua name=sandpool_v1\n"                                                        \
	"redis.register_function{function_name='sandpool_v1_info', flags={'no-writes'}, " \
	"callback=function() return {'OK', 'sandpool_v1', 'build', " #build "} end}\n"    \
	"redis.register_function('sandpool_v1_odd', function(keys, argv) "                \
	"if argv[1] == 'number' then return 7 elseif argv[1] == 'empty' then return {} "  \
	"elseif argv[1] == 'first' then return {7, 'OK'} end "                            \
	"return redis.error_reply('ERR sandpool: odd: argument: ' .. argv[1]) end)\n"

TestSuite(redis_library, .timeout = 60);

struct library_test {
	struct redis_server server;
	struct wire wire;
	struct sp_redis_library *library;
	unsigned int dones;
	struct sp_err err;
};

static void on_done(void *arg, const struct sp_err *err)
{
	struct library_test *test = arg;

	test->dones++;
	test->err = err ? *err : (struct sp_err){0};
}

static void start_with(struct library_test *test, const struct sp_redis_options *options)
{
	struct sp_err err = {0};

	wire_open(&test->wire, options);
	REDIS_WAIT(&test->wire.at, test->wire.ups == 1);
	cr_assert(sp_redis_library_new(test->wire.redis, &test->library, &err) == 0, "%s",
		  err.message);
}

static void start(struct library_test *test)
{
	*test = (struct library_test){0};
	redis_server_start(&test->server, NULL);
	start_with(test, &(struct sp_redis_options){.url = test->server.url, .seed = 1});
}

static void stop(struct library_test *test)
{
	sp_redis_library_free(test->library);
	wire_close(&test->wire);
	redis_server_stop(&test->server);
}

static void ensure(struct library_test *test)
{
	unsigned int before = test->dones;

	cr_assert(sp_redis_library_ensure(test->library, on_done, test) == 0);
	cr_assert(test->dones == before);
	REDIS_WAIT(&test->wire.at, test->dones == before + 1);
}

static void send_call(struct library_test *test, struct outcome *ret, int64_t deadline_ms,
		      const char *name, int argc, const char *const *argv)
{
	struct sp_err err = {0};

	*ret = (struct outcome){0};
	cr_assert(sp_redis_fcall(test->library, name, false, KEY, argc, argv, NULL, deadline_ms,
				 wire_on_reply, ret, &err) == 0,
		  "%s", err.message);
	cr_assert(ret->calls == 0);
}

static void call(struct library_test *test, struct outcome *ret, const char *name, int argc,
		 const char *const *argv)
{
	send_call(test, ret, 0, name, argc, argv);
	REDIS_WAIT(&test->wire.at, ret->calls == 1);
}

static long long loaded_build(struct library_test *test)
{
	redisReply *reply = redis_ask(&test->server, NULL, "FCALL", INFO, "0");
	long long build = -1;

	if (reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 4)
		build = reply->element[3]->integer;
	freeReplyObject(reply);
	return build;
}

static long long load_count(struct library_test *test)
{
	redisReply *reply = redis_ask(&test->server, NULL, "INFO", "commandstats");
	const char *at;
	long long calls = 0;

	cr_assert_not_null(reply);
	at = strstr(reply->str, "cmdstat_function|load:calls=");
	if (at)
		calls = strtoll(at + strlen("cmdstat_function|load:calls="), NULL, 10);
	freeReplyObject(reply);
	return calls;
}

static void flush_functions(struct library_test *test)
{
	redis_must(&test->server, "FUNCTION", "FLUSH", "SYNC");
}

Test(redis_library, is_loaded_where_it_is_missing)
{
	struct library_test test;

	start(&test);
	cr_assert(loaded_build(&test) == -1);
	ensure(&test);
	cr_assert(test.err.status == 0, "%s", test.err.message);
	cr_assert(loaded_build(&test) > 0);
	stop(&test);
}

Test(redis_library, is_left_alone_where_it_is_there)
{
	struct library_test test;

	start(&test);
	ensure(&test);
	ensure(&test);
	cr_assert(test.err.status == 0 && load_count(&test) == 1);
	stop(&test);
}

Test(redis_library, replaces_an_older_one)
{
	struct library_test test;

	start(&test);
	redis_must(&test.server, "FUNCTION", "LOAD", LIBRARY_OF_BUILD(0));
	cr_assert(loaded_build(&test) == 0);
	ensure(&test);
	cr_assert(test.err.status == 0 && loaded_build(&test) > 0);
	stop(&test);
}

Test(redis_library, never_replaces_a_newer_one)
{
	struct library_test test;

	start(&test);
	redis_must(&test.server, "FUNCTION", "LOAD", LIBRARY_OF_BUILD(999999));
	ensure(&test);
	cr_assert(test.err.status == 0 && loaded_build(&test) == 999999);
	stop(&test);
}

Test(redis_library, a_stranger_of_that_name_is_an_error)
{
	struct library_test test;

	start(&test);
	redis_must(&test.server, "FUNCTION", "LOAD",
		   "#!lua name=other\nredis.register_function{function_name='sandpool_v1_info', "
		   "flags={'no-writes'}, callback=function() return {'OK', 'x'} end}");
	ensure(&test);
	cr_assert(test.err.status == -EBADMSG);
	cr_assert_not_null(strstr(test.err.message, "sandpool_v1_info"));
	stop(&test);
}

Test(redis_library, of_many_connections_each_finds_it_loaded)
{
	struct library_test test[4];

	start(&test[0]);
	for (size_t i = 1; i < 4; i++) {
		test[i] = (struct library_test){0};
		start_with(&test[i],
			   &(struct sp_redis_options){.url = test[0].server.url, .seed = i + 1});
	}
	for (size_t i = 0; i < 4; i++)
		cr_assert(sp_redis_library_ensure(test[i].library, on_done, &test[i]) == 0);
	for (size_t i = 0; i < 4; i++) {
		REDIS_WAIT(&test[i].wire.at, test[i].dones == 1);
		cr_assert(test[i].err.status == 0, "%s", test[i].err.message);
	}
	for (size_t i = 3; i > 0; i--) {
		sp_redis_library_free(test[i].library);
		wire_close(&test[i].wire);
	}
	stop(&test[0]);
}

Test(redis_library, b137_a_call_that_misses_it_loads_it_and_runs_once)
{
	struct library_test test;
	struct outcome ret;

	start(&test);
	for (int i = 0; i < 20; i++) {
		flush_functions(&test);
		call(&test, &ret, INFO, 0, NULL);
		cr_assert(ret.outcome == SP_REDIS_REPLIED && ret.err.status == 0, "%s",
			  ret.err.message);
		cr_assert(ret.elements >= 2);
	}
	cr_assert(load_count(&test) == 20);
	stop(&test);
}

Test(redis_library, b137_calls_that_miss_it_together_load_it_once)
{
	static struct outcome ret[200];
	struct library_test test;

	start(&test);
	for (size_t i = 0; i < 200; i++)
		send_call(&test, &ret[i], 0, INFO, 0, NULL);
	for (size_t i = 0; i < 200; i++) {
		REDIS_WAIT(&test.wire.at, ret[i].calls == 1);
		cr_assert(ret[i].outcome == SP_REDIS_REPLIED && ret[i].err.status == 0, "%s",
			  ret[i].err.message);
	}
	cr_assert(load_count(&test) == 1);
	stop(&test);
}

Test(redis_library, b137_survives_restarts_without_persistence)
{
	struct library_test test;
	struct outcome ret;

	start(&test);
	for (unsigned int i = 1; i <= 3; i++) {
		redis_server_signal(&test.server, SIGKILL);
		REDIS_WAIT(&test.wire.at, !sp_redis_up(test.wire.redis));
		redis_server_run(&test.server);
		REDIS_WAIT(&test.wire.at, sp_redis_up(test.wire.redis));
		call(&test, &ret, INFO, 0, NULL);
		cr_assert(ret.outcome == SP_REDIS_REPLIED && ret.err.status == 0, "%s",
			  ret.err.message);
	}
	stop(&test);
}

/* A client that may call but not load. */
static void start_restricted(struct library_test *test)
{
	static char password_file[128];
	FILE *file;

	*test = (struct library_test){0};
	redis_server_start(&test->server, NULL);
	redis_must(&test->server, "ACL", "SETUSER", "guest", "on", ">open sesame", "~sandpool:*",
		   "+fcall", "+fcall_ro", "+ping", "+time");
	(void)snprintf(password_file, sizeof(password_file), "%s/password", test->server.dir);
	file = fopen(password_file, "we");
	cr_assert_not_null(file);
	cr_assert(fputs("open sesame\n", file) >= 0 && fclose(file) == 0);
	start_with(test, &(struct sp_redis_options){.url = test->server.url,
						    .user = "guest",
						    .password_file = password_file,
						    .seed = 1});
}

Test(redis_library, without_the_right_to_load_it_waits_until_somebody_does)
{
	struct library_test test;
	struct outcome ret;
	struct outcome slow;

	start_restricted(&test);
	send_call(&test, &ret, 5000, INFO, 0, NULL);
	send_call(&test, &slow, 200, INFO, 0, NULL);
	REDIS_WAIT(&test.wire.at, slow.calls == 1);
	cr_assert(slow.outcome == SP_REDIS_NOT_SENT);
	cr_assert_not_null(strstr(slow.err.message, "Function not found"));
	cr_assert(ret.calls == 0);
	redis_must(&test.server, "FUNCTION", "LOAD", sp_redis_library_text);
	REDIS_WAIT(&test.wire.at, ret.calls == 1);
	cr_assert(ret.outcome == SP_REDIS_REPLIED && ret.err.status == 0, "%s", ret.err.message);
	stop(&test);
}

Test(redis_library, without_the_right_to_load_an_older_one_will_do)
{
	struct library_test test;

	start_restricted(&test);
	ensure(&test);
	cr_assert(test.err.status == -EACCES, "%d", test.err.status);
	redis_must(&test.server, "FUNCTION", "LOAD", LIBRARY_OF_BUILD(0));
	ensure(&test);
	cr_assert(test.err.status == 0 && loaded_build(&test) == 0);
	stop(&test);
}

Test(redis_library, b138_what_the_server_cannot_do_now_becomes_an_error)
{
	struct library_test test;
	struct outcome ret;

	start(&test);
	ensure(&test);
	redis_must(&test.server, "CONFIG", "SET", "maxmemory", "1");
	call(&test, &ret, "sandpool_v1_acquire", 0, NULL);
	cr_assert(ret.outcome == SP_REDIS_REPLIED && ret.err.status == -ENOMEM, "%s",
		  ret.err.message);
	cr_assert_not_null(strstr(ret.err.message, "FCALL sandpool_v1_acquire"));
	cr_assert_not_null(strstr(ret.err.message, "OOM"));
	redis_must(&test.server, "CONFIG", "SET", "maxmemory", "0");
	call(&test, &ret, INFO, 0, NULL);
	cr_assert(ret.err.status == 0 && test.wire.ups == 1);
	stop(&test);
}

Test(redis_library, an_answer_without_a_status_word_is_an_error)
{
	const char *const odd[] = {"number", "empty", "first"};
	struct library_test test;
	struct outcome ret;

	start(&test);
	redis_must(&test.server, "FUNCTION", "LOAD", LIBRARY_OF_BUILD(999999));
	for (size_t i = 0; i < 3; i++) {
		call(&test, &ret, "sandpool_v1_odd", 1, &odd[i]);
		cr_assert(ret.outcome == SP_REDIS_REPLIED && ret.err.status == -EBADMSG, "%s",
			  odd[i]);
		cr_assert_not_null(strstr(ret.err.message, "'FCALL sandpool_v1_odd'"));
	}
	stop(&test);
}

Test(redis_library, wrong_usage_is_told_in_the_servers_words)
{
	const char *const argv[] = {"what"};
	struct library_test test;
	struct outcome ret;

	start(&test);
	redis_must(&test.server, "FUNCTION", "LOAD", LIBRARY_OF_BUILD(999999));
	call(&test, &ret, "sandpool_v1_odd", 1, argv);
	cr_assert(ret.outcome == SP_REDIS_REPLIED && ret.err.status == -EBADMSG);
	cr_assert_not_null(strstr(ret.err.message, "ERR sandpool: odd: argument: what"));
	stop(&test);
}

Test(redis_library, a_function_that_no_library_has_ends_at_the_deadline)
{
	struct library_test test;
	struct outcome ret;
	int64_t begin_ms;

	start(&test);
	ensure(&test);
	begin_ms = redis_now_ms();
	send_call(&test, &ret, 300, "sandpool_v1_none", 0, NULL);
	REDIS_WAIT(&test.wire.at, ret.calls == 1);
	cr_assert(ret.outcome == SP_REDIS_NOT_SENT);
	cr_assert(ret.at_ms - begin_ms >= 200, "gave up after %d ms", (int)(ret.at_ms - begin_ms));
	cr_assert(load_count(&test) == 1);
	stop(&test);
}

Test(redis_library, arguments_arrive_byte_for_byte_after_a_reload)
{
	const char *const argv[] = {"a\0b", "", "\r\n$3\r\n"};
	const size_t lens[] = {3, 0, 6};
	struct library_test test;
	struct outcome ret = {0};

	start(&test);
	/* First missed, then there: what is sent again must be what was given. */
	cr_assert(sp_redis_fcall(test.library, "sandpool_v1_echo", false, KEY, 3, argv, lens, 5000,
				 wire_on_reply, &ret, NULL) == 0);
	REDIS_WAIT(&test.wire.at, loaded_build(&test) > 0);
	cr_assert(ret.calls == 0);
	redis_must(&test.server, "FUNCTION", "LOAD",
		   "#!lua name=other\nredis.register_function('sandpool_v1_echo', "
		   "function(keys, argv) if #argv == 3 and argv[1] == 'a\\0b' and argv[2] == '' "
		   "and argv[3] == '\\r\\n$3\\r\\n' then return {'OK'} end return {'WRONG'} end)");
	REDIS_WAIT(&test.wire.at, ret.calls == 1);
	cr_assert(ret.err.status == 0 && ret.elements == 1, "%s", ret.err.message);
	stop(&test);
}

Test(redis_library, after_free_nobody_is_told)
{
	struct library_test test;
	struct outcome sent;
	struct outcome waiting;

	start_restricted(&test);
	send_call(&test, &waiting, 5000, INFO, 0, NULL);
	for (int i = 0; i < 20; i++)
		(void)uv_run(&test.wire.at.loop, UV_RUN_ONCE);
	send_call(&test, &sent, 5000, INFO, 0, NULL);
	cr_assert(sp_redis_library_ensure(test.library, on_done, &test) == 0);
	sp_redis_library_free(test.library);
	wire_close(&test.wire);
	cr_assert(sent.calls == 0 && waiting.calls == 0 && test.dones == 0);
	redis_server_stop(&test.server);
}

Test(redis_library, an_outage_answers_what_waits_for_it)
{
	struct library_test test;
	struct outcome ret[3];

	start(&test);
	ensure(&test);
	for (size_t i = 0; i < 3; i++)
		send_call(&test, &ret[i], 0, INFO, 0, NULL);
	redis_server_signal(&test.server, SIGKILL);
	for (size_t i = 0; i < 3; i++) {
		REDIS_WAIT(&test.wire.at, ret[i].calls == 1);
		cr_assert(ret[i].outcome != SP_REDIS_REPLIED);
	}
	cr_assert(sp_redis_library_ensure(test.library, on_done, &test) == 0);
	REDIS_WAIT(&test.wire.at, test.dones == 2);
	cr_assert(test.err.code == SP_CODE_POOL_STATE_STORE_UNAVAILABLE);
	stop(&test);
}

/* ---- a server that says what a test wants ---- */

struct scripted {
	struct library_test test;
	struct fake fake;
	unsigned int missing; /* so many times the function is not found */
	unsigned int loads;
	const char *load_answer;
};

static bool library_script(struct fake *fake, struct fake_client *client, const redisReply *command)
{
	struct scripted *scripted = fake->arg;

	if (fake_is(command, "FUNCTION")) {
		scripted->loads++;
		fake_say_text(client, scripted->load_answer);
		return true;
	}
	if (!fake_is(command, "FCALL") && !fake_is(command, "FCALL_RO"))
		return false;
	if (scripted->missing > 0) {
		scripted->missing--;
		fake_say_text(client, "-ERR Function not found\r\n");
	} else {
		fake_say_text(client, "*4\r\n$2\r\nOK\r\n$11\r\nsandpool_v1\r\n$5\r\nbuild\r\n"
				      ":999\r\n");
	}
	return true;
}

static void scripted_start(struct scripted *scripted, unsigned int missing, const char *load_answer)
{
	struct library_test *test = &scripted->test;
	struct sp_redis_options options = {.seed = 1};

	*scripted = (struct scripted){.missing = missing, .load_answer = load_answer};
	wire_init(&test->wire);
	fake_start(&scripted->fake, &test->wire.at, false, library_script, scripted);
	options.url = scripted->fake.url;
	wire_start(&test->wire, &options);
	REDIS_WAIT(&test->wire.at, test->wire.ups == 1);
	cr_assert(sp_redis_library_new(test->wire.redis, &test->library, NULL) == 0);
}

static void scripted_stop(struct scripted *scripted)
{
	struct library_test *test = &scripted->test;

	sp_redis_library_free(test->library);
	wire_end(&test->wire);
	fake_stop(&scripted->fake, &test->wire.at);
	redis_loop_done(&test->wire.at);
}

#define EXISTS "-ERR Library 'sandpool_v1' already exists\r\n"

Test(redis_library, one_that_another_loaded_meanwhile_is_looked_at_again)
{
	struct scripted scripted;

	scripted_start(&scripted, 1, EXISTS);
	ensure(&scripted.test);
	cr_assert(scripted.test.err.status == 0 && scripted.loads == 1);
	scripted_stop(&scripted);
}

Test(redis_library, looking_again_has_an_end)
{
	struct scripted scripted;

	scripted_start(&scripted, 1000, EXISTS);
	ensure(&scripted.test);
	cr_assert(scripted.test.err.status < 0 && scripted.loads == 3);
	scripted_stop(&scripted);
}

Test(redis_library, a_load_that_fails_answers_the_calls_that_wait_for_it)
{
	struct scripted scripted;
	struct outcome ret[3];

	scripted_start(&scripted, 1000, "-OOM command not allowed\r\n");
	for (size_t i = 0; i < 3; i++)
		send_call(&scripted.test, &ret[i], 0, INFO, 0, NULL);
	for (size_t i = 0; i < 3; i++) {
		REDIS_WAIT(&scripted.test.wire.at, ret[i].calls == 1);
		cr_assert(ret[i].outcome == SP_REDIS_NOT_SENT && ret[i].err.status == -ENOMEM);
		cr_assert_not_null(strstr(ret[i].err.message, "library is not loaded"));
		cr_assert_not_null(strstr(ret[i].err.message, "OOM"));
	}
	scripted_stop(&scripted);
}

static struct sp_redis_library *freeing;

static void free_in_reply(void *arg, enum sp_redis_outcome outcome, const redisReply *reply,
			  const struct sp_err *err)
{
	unsigned int *calls = arg;

	(void)outcome;
	(void)reply;
	(void)err;
	(*calls)++;
	sp_redis_library_free(freeing);
}

Test(redis_library, free_inside_an_answer_silences_the_others)
{
	struct scripted scripted;
	unsigned int calls = 0;

	scripted_start(&scripted, 1000, "-OOM command not allowed\r\n");
	freeing = scripted.test.library;
	for (size_t i = 0; i < 3; i++)
		cr_assert(sp_redis_fcall(freeing, INFO, true, KEY, 0, NULL, NULL, 0, free_in_reply,
					 &calls, NULL) == 0);
	REDIS_WAIT(&scripted.test.wire.at, calls == 1);
	scripted.test.library = NULL;
	scripted_stop(&scripted);
	cr_assert(calls == 1);
}

Test(redis_library, calls_have_a_most_of_bytes)
{
	const size_t most = SP_REDIS_COMMAND_MAX;
	char *value = malloc(most);
	const char *const argv[] = {value};
	struct library_test test;
	struct sp_err err = {0};
	struct outcome ret = {0};

	cr_assert_not_null(value);
	memset(value, 'x', most);
	start(&test);
	for (size_t len = most - 200; len <= most; len += 200) {
		int status = sp_redis_fcall(test.library, INFO, false, KEY, 1, argv, &len, 0,
					    wire_on_reply, &ret, &err);

		cr_assert(status == (len < most ? 0 : -EMSGSIZE), "%zu: %d", len, status);
	}
	REDIS_WAIT(&test.wire.at, ret.calls == 1);
	stop(&test);
	free(value);
}
