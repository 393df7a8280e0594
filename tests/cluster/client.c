/*
 * A client of the cluster as a program of its own, so that it can be stopped and killed, on
 *whatever host it is started.
 *
 *	client JSON     (under nsenter, in the namespace of its host)
 *
 * It begins `rate` attempts a second by the clock, whatever becomes of those before: each acquires
 * over Redis or over a host's HTTP, claims at the owner's endpoint, execs, renews, releases, or
 *stops half-way as clients do. A thread carries one attempt at a time; when all are busy, attempts
 *are late, and what is later than LATE_S (this program was stopped) is not made up for. What an
 *attempt draws depends on the seed and its number alone. Ends with its stdin.
 */
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "tests/cluster/client.h"

#define LATE_S           0.5
#define BUDGET           8 /* candidates that an acquire tries */
#define TTL_MS           4000
#define VANISHING_TTL_MS 60000 /* claim_timeout is what must end it */
#define QUEUE_MS         2000
#define EXEC_MS          3000
#define STACK            (256 * 1024)

/* What an attempt does with a sandbox. */
enum manner {
	POLITE,     /* claim, exec, release */
	RENEWING,   /* … and renews at the owner before */
	BY_STORE,   /* renews and releases through Redis */
	WAITING,    /* queues for it */
	LOST_REPLY, /* throws the first answer away and asks again */
	TWICE,      /* asks twice with the same lease */
	VANISHING,  /* never claims */
	LEAVING,    /* claims, never releases */
	OVER_HTTP,  /* acquires at a host */
	THIEF,      /* tries what it is handed with somebody else's secret */
	MANNERS,
};

/* How often, in percent. */
static const unsigned int weights[MANNERS] = {30, 8, 8, 14, 8, 6, 6, 6, 10, 4};

/* A sandbox that was handed out: where it is and what opens it. */
struct box {
	struct place owner;
	char id[32], lease[HEX + 1], secret[HEX + 1];
};

struct options options;

static double begin_s;
static atomic_uint next_attempt, waiting;

/* ---- chance ---- */

static double chance(struct attempt *attempt)
{
	return (double)(ask_random(attempt) >> 11) / (double)(UINT64_C(1) << 53);
}

static void pause_up_to(struct attempt *attempt, double least_s, double most_s)
{
	usleep((useconds_t)(1e6 * (least_s + (most_s - least_s) * chance(attempt))));
}

static enum manner draw_manner(struct attempt *attempt)
{
	unsigned int left = (unsigned int)(chance(attempt) * 100);
	enum manner manner = POLITE;

	while (left >= weights[manner])
		left -= weights[manner++];
	return manner;
}

/* A new secret and the lease id that goes with it. */
static void draw_secret(struct attempt *attempt, struct box *box)
{
	unsigned char digest[HEX / 2];

	for (size_t i = 0; i < HEX; i += 16)
		snprintf(box->secret + i, 17, "%016llx", (unsigned long long)ask_random(attempt));
	if (gnutls_hash_fast(GNUTLS_DIG_SHA256, box->secret, HEX, digest) != 0)
		abort();
	for (size_t i = 0; i < sizeof(digest); i++)
		snprintf(box->lease + 2 * i, 3, "%02x", digest[i]);
}

/* ---- Redis ---- */

static bool ok(const struct answer *answer)
{
	return strcmp(answer->status, "OK") == 0;
}

static bool is(const struct answer *answer, const char *status)
{
	return strcmp(answer->status, status) == 0;
}

static void keep(struct box *box, const struct answer *answer)
{
	box->owner = answer->owner;
	snprintf(box->id, sizeof(box->id), "%s", answer->sandbox);
}

struct wish {
	const char *policy, *reject;
	int64_t ttl_ms;
	bool again, hang_up;
};

static void acquire(struct attempt *attempt, struct box *box, const struct wish *wish,
		    struct answer *ret_answer)
{
	const char *policy = wish->policy ? wish->policy : "fail_fast";
	const char *reject = wish->reject ? wish->reject : "";
	const struct question question = {.op = "acquire",
					  .lease = box->lease,
					  .via = "redis",
					  .policy = policy,
					  .reject = reject,
					  .ttl_ms = wish->ttl_ms,
					  .again = wish->again};
	char ttl[24];
	const char *arguments[] = {box->lease, policy, "-1", ttl, "", reject, "", NULL};

	snprintf(ttl, sizeof(ttl), "%lld", (long long)wish->ttl_ms);
	if (wish->hang_up) {
		ask_redis_and_hang_up(attempt, &question, "sandpool_v1_acquire", arguments);
		return;
	}
	ask_redis(attempt, &question, "sandpool_v1_acquire", arguments, ret_answer);
	if (ok(ret_answer))
		keep(box, ret_answer);
}

/* cancel, renew-store, release-store: what a lease id is enough for. */
static void by_lease(struct attempt *attempt, const struct box *box, const char *op,
		     const char *function, const char *argument)
{
	const struct question question = {
		.op = op, .lease = box->lease, .via = "redis", .sandbox = box->id};
	const char *arguments[] = {box->lease, argument, NULL};
	struct answer answer;

	ask_redis(attempt, &question, function, arguments, &answer);
}

static void cancel(struct attempt *attempt, const struct box *box)
{
	by_lease(attempt, box, "cancel", "sandpool_v1_cancel", NULL);
}

static void wait_in_line(struct attempt *attempt, struct box *box, int64_t deadline_ms,
			 struct answer *ret_answer)
{
	const struct question question = {
		.op = "wait", .lease = box->lease, .via = "redis", .ttl_ms = TTL_MS};
	char deadline[24];
	const char *arguments[] = {box->lease, deadline, NULL};

	snprintf(deadline, sizeof(deadline), "%lld", (long long)deadline_ms);
	ask_redis(attempt, &question, "sandpool_v1_wait", arguments, ret_answer);
	if (ok(ret_answer))
		keep(box, ret_answer);
}

static bool worth_asking_again(const struct answer *answer)
{
	return is(answer, "WAIT") || is(answer, "UNKNOWN") || is(answer, "UNREACHABLE") ||
	       is(answer, "TIMED_OUT");
}

/* Stands in line for up to two seconds, asking several times a second. */
static void queue(struct attempt *attempt, struct box *box, struct answer *ret_answer)
{
	int64_t deadline_ms;
	double end;

	acquire(attempt, box, &(struct wish){.policy = "wait", .ttl_ms = TTL_MS}, ret_answer);
	if (!is(ret_answer, "WAIT"))
		return;
	deadline_ms = ask_redis_time_ms();
	if (deadline_ms < 0)
		return;
	for (end = ask_now() + 4; worth_asking_again(ret_answer) && ask_now() < end;) {
		pause_up_to(attempt, 0.05, 0.3);
		wait_in_line(attempt, box, deadline_ms + QUEUE_MS, ret_answer);
	}
	if (is(ret_answer, "WAIT") || is(ret_answer, "NOT_FOUND"))
		cancel(attempt, box);
}

/* ---- the owner ---- */

/* `stranger`: with its secret and under its lease instead of the holder's. */
static bool at_owner(struct attempt *attempt, const struct box *box, const char *op,
		     const char *method, const char *what, const char *body,
		     const struct box *stranger)
{
	const struct box *who = stranger ? stranger : box;
	const struct question question = {.op = op,
					  .lease = who->lease,
					  .via = box->owner.name,
					  .sandbox = box->id,
					  .host = box->owner.name};
	struct http_request request = {.to = &box->owner,
				       .method = method,
				       .token = who->secret,
				       .body = body,
				       .takes_ms = strcmp(op, "exec") == 0 ? EXEC_MS : 0};
	struct answer answer;
	char path[128];

	snprintf(path, sizeof(path), "/v1/sandboxes/%s%s", box->id, what);
	request.path = path;
	ask_host(attempt, &question, &request, &answer);
	return ok(&answer);
}

static bool claim(struct attempt *attempt, const struct box *box)
{
	return at_owner(attempt, box, "claim", "POST", "/claim", "{\"ttl\": \"4000ms\"}", NULL);
}

/* Each leaves its lease in a file and reads who was there before. */
static void exec(struct attempt *attempt, const struct box *box)
{
	char body[256];

	snprintf(body, sizeof(body),
		 "{\"shell\": \"cat /tmp/owner 2>/dev/null; echo %s >/tmp/owner\", "
		 "\"timeout\": \"%dms\"}",
		 box->lease, EXEC_MS);
	at_owner(attempt, box, "exec", "POST", "/exec", body, NULL);
}

/* Another secret after the holder's claim must never get in. */
static void steal(struct attempt *attempt, const struct box *box)
{
	struct box other;

	if (!claim(attempt, box))
		return;
	draw_secret(attempt, &other);
	at_owner(attempt, box, "claim", "POST", "/claim", "{}", &other);
}

static bool over_http(struct attempt *attempt, struct box *box)
{
	const struct place *host = &options.hosts[ask_random(attempt) % options.hosts_count];
	const struct question question = {.op = "acquire",
					  .lease = box->lease,
					  .via = host->name,
					  .policy = "fail_fast",
					  .ttl_ms = TTL_MS};
	struct http_request request = {
		.to = host, .method = "POST", .path = "/v1/pools/default/acquire"};
	struct answer answer;
	char body[256];

	snprintf(body, sizeof(body),
		 "{\"policy\": \"fail_fast\", \"lease\": \"%s\", \"ttl\": \"4s\"}", box->lease);
	request.body = body;
	ask_host(attempt, &question, &request, &answer);
	if (!ok(&answer))
		return false;
	keep(box, &answer);
	return claim(attempt, box);
}

/* ---- one attempt ---- */

/* The client's part of an acquire: claim; if that fails, cancel and begin again with another secret
 * and the id among the rejected. */
static bool claim_or_begin_again(struct attempt *attempt, struct box *box, struct answer *answer)
{
	char reject[REJECT_SIZE] = "";

	for (int candidate = 0; candidate < BUDGET; candidate++) {
		if (ok(answer)) {
			size_t size = strlen(reject);

			if (claim(attempt, box))
				return true;
			cancel(attempt, box);
			snprintf(reject + size, sizeof(reject) - size, "%s%s", size ? "," : "",
				 box->id);
		} else if (!is(answer, "LEASE_ENDED")) {
			return false;
		}
		draw_secret(attempt, box);
		acquire(attempt, box, &(struct wish){.ttl_ms = TTL_MS, .reject = reject}, answer);
	}
	return false;
}

static bool obtain(struct attempt *attempt, struct box *box, enum manner manner)
{
	struct wish wish = {.ttl_ms = manner == VANISHING ? VANISHING_TTL_MS : TTL_MS};
	struct answer answer;

	if (manner == OVER_HTTP)
		return over_http(attempt, box);
	if (manner == WAITING) {
		queue(attempt, box, &answer);
	} else {
		if (manner == LOST_REPLY) {
			wish.hang_up = true;
			acquire(attempt, box, &wish, NULL);
			wish.hang_up = false;
		}
		acquire(attempt, box, &wish, &answer);
	}
	if (manner == TWICE && ok(&answer)) {
		wish.again = true;
		acquire(attempt, box, &wish, &answer);
	}
	if (manner == VANISHING || !ok(&answer))
		return false;
	if (manner == THIEF)
		steal(attempt, box);
	return claim_or_begin_again(attempt, box, &answer);
}

static void let_go(struct attempt *attempt, const struct box *box, enum manner manner)
{
	if (manner == BY_STORE) {
		by_lease(attempt, box, "renew-store", "sandpool_v1_renew", "3000");
		by_lease(attempt, box, "release-store", "sandpool_v1_release", NULL);
		return;
	}
	if (manner == LEAVING) {
		pause_up_to(attempt, 0, 0.1);
		exec(attempt, box);
		return;
	}
	at_owner(attempt, box, "release", "DELETE", "", NULL, NULL);
	if (chance(attempt) < 0.1)
		at_owner(attempt, box, "exec", "POST", "/exec", "{\"argv\": [\"/bin/true\"]}",
			 NULL);
}

static void try_once(struct attempt *attempt)
{
	enum manner manner = draw_manner(attempt);
	struct box box = {.id = ""};
	bool obtained;

	draw_secret(attempt, &box);
	/* Who waits lets the cluster hold more: so many at most do. */
	if (manner == WAITING && atomic_fetch_add(&waiting, 1) >= options.waiters) {
		atomic_fetch_sub(&waiting, 1);
		manner = POLITE;
	}
	obtained = obtain(attempt, &box, manner);
	if (manner == WAITING)
		atomic_fetch_sub(&waiting, 1);
	if (!obtained)
		return;
	if (chance(attempt) < options.exec_share)
		exec(attempt, &box);
	if (manner == RENEWING)
		at_owner(attempt, &box, "renew", "POST", "/renew", "{\"ttl\": \"3s\"}", NULL);
	let_go(attempt, &box, manner);
}

/* ---- the schedule ---- */

static void begin_attempt(struct attempt *attempt, unsigned int number)
{
	*attempt = (struct attempt){.random = UINT64_C(0xcbf29ce484222325)};
	snprintf(attempt->name, sizeof(attempt->name), "%s.%u", options.name, number);
	for (const char *c = options.seed; *c; c++)
		attempt->random = (attempt->random ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
	attempt->random ^= number * UINT64_C(0x9e3779b97f4a7c15);
	/* Spread as people are, not as a clock is. */
	attempt->due = begin_s + (number + chance(attempt)) / options.rate;
}

static void sleep_until(double when)
{
	const struct timespec until = {.tv_sec = (time_t)when,
				       .tv_nsec = (long)((when - (double)(time_t)when) * 1e9)};

	while (clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &until, NULL) != 0)
		continue;
}

static void *run(void *unused)
{
	struct attempt attempt;

	(void)unused;
	for (;;) {
		begin_attempt(&attempt, atomic_fetch_add(&next_attempt, 1));
		sleep_until(attempt.due);
		if (ask_now() - attempt.due < LATE_S)
			try_once(&attempt);
	}
	return NULL;
}

/* ---- start ---- */

static _Noreturn void usage(const char *what)
{
	fprintf(stderr, "client: %s is missing or wrong\n", what);
	exit(2);
}

static void take_string(const json_t *object, const char *name, char *to, size_t room)
{
	const char *value = json_string_value(json_object_get(object, name));

	if (!value || (size_t)snprintf(to, room, "%s", value) >= room)
		usage(name);
}

static double take_number(const json_t *object, const char *name)
{
	const json_t *value = json_object_get(object, name);

	if (!json_is_number(value))
		usage(name);
	return json_number_value(value);
}

static void take_place(const char *name, const json_t *pair, struct place *place)
{
	const char *address = json_string_value(json_array_get(pair, 0));

	if (!address)
		usage(name);
	snprintf(place->name, sizeof(place->name), "%s", name);
	snprintf(place->address, sizeof(place->address), "%s", address);
	place->port = (uint16_t)json_integer_value(json_array_get(pair, 1));
}

static void take_options(const char *text)
{
	json_t *object = json_loads(text, 0, NULL), *pair;
	const char *name;

	if (!object)
		usage("JSON");
	take_string(object, "name", options.name, sizeof(options.name));
	take_string(object, "at", options.at, sizeof(options.at));
	take_string(object, "seed", options.seed, sizeof(options.seed));
	take_string(object, "history", options.history, sizeof(options.history));
	take_string(object, "meta", options.meta, sizeof(options.meta));
	take_string(object, "key", options.key, sizeof(options.key));
	options.rate = take_number(object, "rate");
	options.exec_share = take_number(object, "exec_share");
	options.threads = (size_t)take_number(object, "threads");
	options.waiters = (size_t)take_number(object, "waiters");
	take_place("redis", json_object_get(object, "redis"), &options.redis);
	json_object_foreach (json_object_get(object, "hosts"), name, pair) {
		if (options.hosts_count == HOSTS_MAX)
			usage("hosts");
		take_place(name, pair, &options.hosts[options.hosts_count++]);
	}
	if (options.hosts_count == 0 || options.rate <= 0)
		usage("hosts or rate");
	json_decref(object);
}

int main(int argc, char **argv)
{
	pthread_attr_t attributes;
	char byte;

	if (argc != 2)
		usage("JSON");
	take_options(argv[1]);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGPIPE, SIG_IGN); /* hiredis writes without MSG_NOSIGNAL */
	ask_open_history();
	begin_s = ask_now();
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK);
	for (size_t i = 0; i < options.threads; i++) {
		pthread_t thread;

		if (pthread_create(&thread, &attributes, run, NULL) != 0)
			usage("a number of threads that can be had");
	}
	while (read(STDIN_FILENO, &byte, 1) > 0)
		continue;
	_exit(0);
}
