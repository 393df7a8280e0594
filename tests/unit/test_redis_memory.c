/*
 * Out of memory is an error of the call or the loss of a connection, never the end of the process
 * or of an answer: the n-th allocation of ours fails, for every n, through the life of a
 * connection.
 */
#include "redis/library.h"
#include "redis_tls_fixture.h"
#include "redis_wire_fixture.h"

#include <stdatomic.h>

#define N_MAX 400

TestSuite(redis_memory, .timeout = 240);

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_reallocarray(void *old, size_t count, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_reallocarray(void *old, size_t count, size_t size);
char *__wrap_strdup(const char *text);

static atomic_long allocations_left = -1; /* negative: no limit */

static bool denied(void)
{
	return atomic_load(&allocations_left) >= 0 && atomic_fetch_sub(&allocations_left, 1) == 0;
}

void *__wrap_malloc(size_t size)
{
	return denied() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
	return denied() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
	return denied() ? NULL : __real_realloc(old, size);
}

void *__wrap_reallocarray(void *old, size_t count, size_t size)
{
	return denied() ? NULL : __real_reallocarray(old, count, size);
}

char *__wrap_strdup(const char *text)
{
	return denied() ? NULL : __real_strdup(text);
}

/* Only the n-th one fails. */
static void deny(long number)
{
	atomic_store(&allocations_left, number);
}

/* Was it reached? */
static bool was_denied(void)
{
	return atomic_exchange(&allocations_left, -1) < 0;
}

static unsigned int answers;

static void count_answer(void *arg, enum sp_redis_outcome outcome, const redisReply *reply,
			 const struct sp_err *err)
{
	(void)arg;
	(void)outcome;
	(void)reply;
	(void)err;
	answers++;
}

static void count_done(void *arg, const struct sp_err *err)
{
	(void)arg;
	(void)err;
	answers++;
}

/* How many answers are to come from what was accepted. */
static unsigned int use(struct wire *wire, struct sp_redis_library *library)
{
	unsigned int accepted = 0;

	accepted += sp_redis_library_ensure(library, count_done, NULL) == 0;
	for (int i = 0; i < 20; i++)
		accepted += sp_redis_call(wire->redis, WIRE_ARGV("SET", "k", "v"), NULL, 0,
					  count_answer, NULL, NULL) == 0;
	accepted += sp_redis_fcall(library, "sandpool_v1_info", true, "sandpool:{a}:meta", 0, NULL,
				   NULL, 0, count_answer, NULL, NULL) == 0;
	return accepted;
}

static void live(const struct sp_redis_options *options, long n)
{
	const char *const channels[] = {"a", "b"};
	struct sp_redis_library *library = NULL;
	struct wire wire;
	unsigned int accepted;
	unsigned int ups;
	int status;

	wire_init(&wire);
	answers = 0;
	deny(n);
	status = sp_redis_new(&wire.at.loop, options, &wire_events, &wire, &wire.redis, NULL);
	if (status < 0) {
		cr_assert(status == -ENOMEM);
		redis_loop_done(&wire.at);
		return;
	}
	/* One try may come to nothing, the next does not. */
	REDIS_WAIT(&wire.at, sp_redis_up(wire.redis));
	if (sp_redis_library_new(wire.redis, &library, NULL) == 0) {
		accepted = use(&wire, library);
		REDIS_WAIT(&wire.at, answers == accepted);
	}
	REDIS_WAIT(&wire.at, sp_redis_up(wire.redis));
	ups = wire.ups;
	if (sp_redis_subscribe(wire.redis, channels, 2, NULL) == 0)
		REDIS_WAIT(&wire.at, wire.ups > ups && sp_redis_up(wire.redis));
	ups = wire.ups;
	if (sp_redis_subscribe(wire.redis, channels, 1, NULL) == 0)
		REDIS_WAIT(&wire.at, wire.ups > ups && sp_redis_up(wire.redis));
	sp_redis_library_free(library);
	wire_close(&wire);
}

static void live_with_every_failure(const struct sp_redis_options *options)
{
	bool denied_one = true;
	long n;

	for (n = 0; denied_one && n < N_MAX; n++) {
		live(options, n);
		denied_one = was_denied();
	}
	cr_assert(n > 20 && n < N_MAX, "%ld allocations", n);
}

Test(redis_memory, a_life_on_a_unix_socket)
{
	struct sp_redis_options options = {.seed = 1, .backoff_min_ms = 1, .backoff_max_ms = 2};
	struct redis_server server;
	char path[128];
	FILE *file;

	redis_server_start(&server, (const char *const[]){"--requirepass", "sesame", NULL});
	(void)snprintf(path, sizeof(path), "%s/password", server.dir);
	file = fopen(path, "we");
	cr_assert(file && fputs("sesame", file) >= 0 && fclose(file) == 0);
	options.url = server.url;
	options.password_file = path;
	options.client_name = "memory";
	live_with_every_failure(&options);
	redis_server_stop(&server);
}

Test(redis_memory, a_life_on_tls)
{
	struct sp_redis_options options = {.seed = 1, .backoff_min_ms = 1, .backoff_max_ms = 2};
	struct redis_server server;
	struct tls_pair pair;
	struct tls_ca ca;
	char port[16];
	char url[64];

	redis_server_prepare(&server);
	tls_ca_init(&ca, server.dir, "ca");
	tls_issue(&ca, server.dir, "server", "localhost", NULL, 3600, &pair);
	(void)snprintf(port, sizeof(port), "%d", redis_free_port());
	redis_server_launch(&server,
			    (const char *const[]){"--tls-port", port, "--tls-cert-file",
						  pair.cert_path, "--tls-key-file", pair.key_path,
						  "--tls-ca-cert-file", ca.path, NULL});
	(void)snprintf(url, sizeof(url), "rediss://localhost:%s", port);
	options.url = url;
	options.ca_file = ca.path;
	options.cert_file = pair.cert_path;
	options.key_file = pair.key_path;
	live_with_every_failure(&options);
	tls_ca_done(&ca);
	redis_server_stop(&server);
}

Test(redis_memory, a_life_that_sentinels_lead)
{
	struct sp_redis_options options = {.seed = 1, .backoff_min_ms = 1, .backoff_max_ms = 2};
	struct redis_server sentinel;
	struct redis_server master;
	char path[128];
	char url[96];
	FILE *file;

	redis_server_start_tcp(&master, NULL);
	redis_server_prepare(&sentinel);
	sentinel.port = redis_free_port();
	(void)snprintf(path, sizeof(path), "%s/sentinel.conf", sentinel.dir);
	file = fopen(path, "we");
	cr_assert(file &&
		  fprintf(file,
			  "port %d\nunixsocket %s\ndir %s\nlogfile sentinel.log\n"
			  "sentinel monitor m 127.0.0.1 %d 1\n",
			  sentinel.port, sentinel.socket_path, sentinel.dir, master.port) > 0);
	cr_assert(fclose(file) == 0);
	redis_add_arg(&sentinel, REDIS_SERVER_PROGRAM);
	redis_add_arg(&sentinel, path);
	redis_add_arg(&sentinel, "--sentinel");
	redis_server_run(&sentinel);
	(void)snprintf(url, sizeof(url), "redis+sentinel://127.0.0.1:%d/m", sentinel.port);
	options.url = url;
	live_with_every_failure(&options);
	redis_server_stop(&sentinel);
	redis_server_stop(&master);
}
