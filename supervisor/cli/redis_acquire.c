/*
 * Leases out of the whole cluster.
 *
 *	ask Redis ──OK──────────────► claim at the host ──► ours
 *	   │  ▲                            │
 *	  WAIT └── rejected: id (and host) ┘ 404, 409, 410, no connection; at most 8 times
 *	   ▼
 *	BLPOP on the wake-up list ≤ 2 s, `wait` ──OK──► claim …
 *
 * The lease id is the digest of a secret that is drawn here and goes to the host only. Asking again
 * with the same lease id is the same lease, so a lost answer costs nothing. What a host answers
 * with anything else than "not this sandbox" is no fault of the candidate: asking for the next one
 * would burn all of them for one cause.
 *
 * A ticket counts as alive for 5 s after its last `wait`, so a client that is killed here leaves
 * nothing behind that needs to be called off.
 */
#include "supervisor/cli/redis.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "pool/base/clock.h"
#include "supervisor/config/config.h"

#define CANDIDATES_MAX  8
#define CLAIM_MS        (5 * SP_MS_PER_S)
#define CONNECT_MS      (2 * SP_MS_PER_S)
#define WAKE_MS         (2 * SP_MS_PER_S)
#define WAIT_DEFAULT_MS (30 * SP_MS_PER_S) /* the daemon's, for policies that wait */
#define POLL_MS         100
#define NUMBER_SIZE     24
#define LIST_MAX        (64u << 10)
#define REPLY_WORDS     7 /* OK, id, host, endpoint, end_ms, remaining_ms, time */

/* ---- what is wanted ---- */

/* Trying the next candidate is the client's part under every policy; Redis dispenses and queues. */
static const struct {
	const char *name;
	bool waits;
} policies[] = {
	{"fail_fast", false},
	{"wait", true},
	{"create", true},
	{"retry_next", false},
	{"retry_next_then_create", true},
};

static int read_duration(const struct sp_cli *cli, const struct sp_cli_option *option,
			 int64_t *ret_ms, struct sp_err *err)
{
	const char *text = option ? sp_cli_args_value(&cli->args, option) : NULL;
	int status;

	if (!text)
		return 0;
	status = sp_parse_duration(text, ret_ms, err);
	if (status < 0)
		return sp_err_wrap(err, status, "--%s '%.64s'", option->name, text);
	return 0;
}

static int read_policy(const struct sp_cli *cli, const struct sp_cli_acquire_options *options,
		       struct sp_cli_wish *wish, struct sp_err *err)
{
	const char *name = options->policy ? sp_cli_args_value(&cli->args, options->policy) : NULL;
	bool wait_given = options->wait && sp_cli_args_has(&cli->args, options->wait);

	if (!name)
		name = wait_given && wish->wait_ms > 0 ? "wait" : "fail_fast";
	for (size_t i = 0; i < SP_ARRAY_SIZE(policies); i++) {
		if (strcmp(name, policies[i].name) != 0)
			continue;
		wish->policy = policies[i].name;
		if (!policies[i].waits)
			wish->wait_ms = 0;
		else if (!wait_given)
			wish->wait_ms = WAIT_DEFAULT_MS;
		return 0;
	}
	return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
			   "--policy '%.64s' is none of fail_fast, wait, create, retry_next, "
			   "retry_next_then_create",
			   name);
}

static int draw_lease(const struct sp_cli *cli, struct sp_cli_wish *wish, struct sp_err *err)
{
	int status;

	wish->drawn = true;
	sp_secret_new(wish->secret);
	status = cli->remote->lease_id(wish->secret, wish->lease);
	return status < 0 ? sp_err_set(err, status, "derive a lease id") : 0;
}

/* A lease of one's own comes with its secret, or without (then somebody else claims it). */
static int read_lease(const struct sp_cli *cli, const char *lease, struct sp_cli_wish *wish,
		      struct sp_err *err)
{
	char derived[SP_LEASE_ID_LEN + 1];
	int status;

	if (!lease)
		return draw_lease(cli, wish, err);
	if (!sp_lease_id_valid(lease))
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "--lease '%.80s' is no lease id: over Redis it is the hex "
				   "SHA-256 of a secret (%d digits)",
				   lease, SP_LEASE_ID_LEN);
	memcpy(wish->lease, lease, sizeof(wish->lease));
	if (!cli->client.token[0])
		return 0;
	status = cli->remote->lease_id(cli->client.token, derived);
	if (status < 0)
		return sp_err_set(err, status, "derive a lease id");
	if (strcmp(derived, lease) != 0)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "the token that was given is not the secret of --lease '%s'",
				   lease);
	memcpy(wish->secret, cli->client.token, sizeof(wish->secret));
	return 0;
}

int sp_cli_wish_read(const struct sp_cli *cli, const struct sp_cli_acquire_options *options,
		     const char *pool, struct sp_cli_wish *ret_wish, struct sp_err *err)
{
	const char *lease = options->lease ? sp_cli_args_value(&cli->args, options->lease) : NULL;
	const char *host =
		options->prefer_host ? sp_cli_args_value(&cli->args, options->prefer_host) : NULL;
	struct sp_cli_wish wish = {
		.pool = pool, .prefer_host = host ? host : "", .min_remaining_ms = -1};
	int status;

	if ((options->binds && sp_cli_args_has(&cli->args, options->binds)) ||
	    (options->overlays && sp_cli_args_has(&cli->args, options->overlays)))
		return sp_err_code(err, SP_CODE_UNSUPPORTED, -EOPNOTSUPP,
				   "--bind names a directory of one host, Redis may give a sandbox "
				   "of any: ask that host's daemon with --socket");
	status = read_duration(cli, options->wait, &wish.wait_ms, err);
	if (status == 0)
		status = read_duration(cli, options->ttl, &wish.ttl_ms, err);
	if (status == 0)
		status = read_duration(cli, options->min_remaining, &wish.min_remaining_ms, err);
	if (status == 0)
		status = read_policy(cli, options, &wish, err);
	if (status == 0)
		status = read_lease(cli, lease, &wish, err);
	if (status == 0)
		*ret_wish = wish;
	explicit_bzero(wish.secret, sizeof(wish.secret));
	return status;
}

/* ---- asking Redis ---- */

struct hunt {
	struct sp_cli *cli;
	struct sp_cli_wish *wish;
	struct sp_buf what;     /* "pool 'x'" */
	struct sp_buf rejected; /* ids, separated by commas */
	struct sp_buf excluded; /* hosts that cannot be reached */
	int candidates;         /* that were tried */
	int64_t end_ms;         /* boot clock: of the waiting */
	int64_t end_redis_ms;   /* the same by Redis' clock; 0 until it is known */
	struct sp_err why;      /* the last candidate was none */
};

static int copy_word(const struct sp_cli_reply *reply, size_t index, char *text, size_t size)
{
	const char *from = sp_cli_reply_text(reply, index);

	return from[0] && (size_t)snprintf(text, size, "%s", from) < size ? 0 : -EPROTO;
}

int sp_cli_grant_read(const struct sp_cli_reply *reply, struct sp_cli_grant *ret_grant,
		      struct sp_err *err)
{
	struct sp_cli_grant grant = {0};
	int status = reply->count < REPLY_WORDS ? -EPROTO : 0;

	if (status == 0)
		status = copy_word(reply, 1, grant.id, sizeof(grant.id));
	if (status == 0)
		status = copy_word(reply, 2, grant.host, sizeof(grant.host));
	if (status == 0)
		status = copy_word(reply, 3, grant.endpoint, sizeof(grant.endpoint));
	if (status < 0)
		return sp_err_code(err, SP_CODE_PROTOCOL, status,
				   "Redis granted a sandbox without saying which or where");
	grant.remaining_ms = sp_cli_reply_number(reply, 5);
	/* By our wall clock, which is the one that people compare with. */
	grant.end_wall_ms = sp_clock_wall_ms() +
			    (sp_cli_reply_number(reply, 4) - sp_cli_reply_number(reply, 6));
	*ret_grant = grant;
	return 0;
}

static int64_t call_deadline(const struct hunt *hunt)
{
	return SP_MAX(hunt->end_ms, sp_clock_boot_ms() + SP_CLI_REDIS_PATIENCE_MS);
}

static int ask(struct hunt *hunt, struct sp_cli_reply *reply, struct sp_err *err)
{
	const struct sp_cli_wish *wish = hunt->wish;
	char min_text[NUMBER_SIZE];
	char ttl_text[NUMBER_SIZE];
	const char *argv[] = {wish->lease,
			      wish->policy,
			      min_text,
			      ttl_text,
			      wish->prefer_host,
			      sp_buf_text(&hunt->rejected),
			      sp_buf_text(&hunt->excluded)};

	(void)snprintf(min_text, sizeof(min_text), "%lld", (long long)wish->min_remaining_ms);
	(void)snprintf(ttl_text, sizeof(ttl_text), "%lld", (long long)wish->ttl_ms);
	return sp_cli_redis_fcall(hunt->cli, wish->pool, "acquire", false, argv,
				  SP_ARRAY_SIZE(argv), call_deadline(hunt), reply, err);
}

/* Redis compares deadlines with its own clock: translate ours, once. */
static int learn_time(struct hunt *hunt, struct sp_err *err)
{
	static const char *const argv[] = {"TIME"};
	struct sp_cli_reply reply = {0};
	int64_t left_ms = hunt->end_ms - sp_clock_boot_ms();
	int status;

	if (hunt->end_redis_ms != 0)
		return 0;
	status = sp_cli_redis_command(hunt->cli, argv, 1, SP_CLI_REDIS_PATIENCE_MS, &reply, err);
	if (status < 0)
		return status;
	hunt->end_redis_ms = sp_cli_reply_number(&reply, 0) * SP_MS_PER_S +
			     sp_cli_reply_number(&reply, 1) / 1000 + left_ms;
	sp_cli_reply_done(&reply);
	return 0;
}

/* Until something may have happened to our ticket. What the list says does not matter, the grant is
 * the lease itself; so any failure here only makes the next look come sooner. */
static void await_wake(struct hunt *hunt)
{
	int64_t left_ms = SP_MIN(hunt->end_ms - sp_clock_boot_ms(), WAKE_MS);
	struct timespec span = {.tv_nsec = POLL_MS * SP_NS_PER_MS};
	struct sp_cli_reply reply = {0};
	char seconds[NUMBER_SIZE];
	struct sp_buf suffix;
	struct sp_buf key;
	int status;

	if (left_ms <= 0) {
		(void)nanosleep(&span, NULL);
		return;
	}
	sp_buf_init(&suffix, LIST_MAX);
	sp_buf_init(&key, LIST_MAX);
	(void)snprintf(seconds, sizeof(seconds), "%lld.%03lld", (long long)(left_ms / SP_MS_PER_S),
		       (long long)(left_ms % SP_MS_PER_S));
	status = sp_buf_printf(&suffix, "grant:%s", hunt->wish->lease);
	if (status == 0)
		status = sp_cli_redis_key(hunt->cli, hunt->wish->pool, sp_buf_text(&suffix), &key,
					  NULL);
	if (status == 0) {
		const char *argv[] = {"BLPOP", sp_buf_text(&key), seconds};

		status = sp_cli_redis_command(hunt->cli, argv, SP_ARRAY_SIZE(argv),
					      left_ms + SP_MS_PER_S, &reply, NULL);
	}
	if (status < 0)
		(void)nanosleep(&span, NULL);
	sp_cli_reply_done(&reply);
	sp_buf_done(&suffix);
	sp_buf_done(&key);
}

static void cancel(struct hunt *hunt)
{
	const char *argv[] = {hunt->wish->lease};
	struct sp_cli_reply reply = {0};

	/* Best effort: a ticket that nobody asks about goes after 5 s, what is not claimed after
	 * the pool's claim_timeout. */
	(void)sp_cli_redis_fcall(hunt->cli, hunt->wish->pool, "cancel", false, argv, 1,
				 sp_clock_boot_ms() + SP_MS_PER_S, &reply, NULL);
	sp_cli_reply_done(&reply);
}

static int out_of_time(const struct hunt *hunt, struct sp_err *err)
{
	return sp_err_code(err, SP_CODE_ACQUIRE_TIMEOUT, -EREMOTEIO,
			   "%s had nothing before the deadline", sp_buf_text(&hunt->what));
}

/* From WAIT to an end of it. *reply is replaced. */
static int wait_for_turn(struct hunt *hunt, struct sp_cli_reply *reply, struct sp_err *err)
{
	char deadline_text[NUMBER_SIZE];
	const char *argv[] = {hunt->wish->lease, deadline_text};
	int status = learn_time(hunt, err);

	(void)snprintf(deadline_text, sizeof(deadline_text), "%lld", (long long)hunt->end_redis_ms);
	while (status == 0 && sp_cli_reply_is(reply, "WAIT")) {
		/* Redis decides when the time is over: only it knows whether a grant came first. */
		if (sp_clock_boot_ms() > hunt->end_ms + SP_CLI_REDIS_PATIENCE_MS) {
			cancel(hunt);
			return out_of_time(hunt, err);
		}
		await_wake(hunt);
		sp_cli_reply_done(reply);
		status = sp_cli_redis_fcall(hunt->cli, hunt->wish->pool, "wait", false, argv,
					    SP_ARRAY_SIZE(argv), call_deadline(hunt), reply, err);
	}
	return status;
}

/* ---- at the host ---- */

int sp_cli_grant_use(struct sp_cli *cli, const struct sp_cli_grant *grant, const char *secret,
		     struct sp_err *err)
{
	int status = sp_cli_endpoint_parse(grant->endpoint, &cli->client.endpoint, err);

	if (status < 0)
		return sp_err_wrap(err, status, "host '%s'", grant->host);
	cli->client.connect_ms = CONNECT_MS;
	if (secret[0])
		memcpy(cli->client.token, secret, strlen(secret) + 1);
	return 0;
}

/* The host may not have heard of the grant yet, so the claim says for how long it was. */
static int write_claim(const struct sp_cli_wish *wish, struct sp_buf *body, struct sp_err *err)
{
	int status = 0;

	if (wish->ttl_ms > 0)
		status = sp_buf_printf(body, "{\"ttl\":\"%lldms\"}", (long long)wish->ttl_ms);
	return status < 0 ? sp_err_set(err, status, "write the claim") : 0;
}

static int claim(struct hunt *hunt, const struct sp_cli_grant *grant, struct sp_cli_answer *answer,
		 struct sp_err *err)
{
	struct sp_buf target;
	struct sp_buf body;
	int status = sp_cli_grant_use(hunt->cli, grant, hunt->wish->secret, err);

	sp_buf_init(&target, SP_CLI_REQUEST_MAX);
	sp_buf_init(&body, SP_CLI_REQUEST_MAX);
	if (status == 0)
		status = write_claim(hunt->wish, &body, err);
	if (status == 0)
		status = sp_cli_target(&target, "/v1/sandboxes/", grant->id, "/claim", err);
	if (status == 0)
		status = sp_cli_ask(hunt->cli, "POST", sp_buf_text(&target), &body, CLAIM_MS,
				    answer, err);
	sp_buf_done(&target);
	sp_buf_done(&body);
	return status;
}

static bool answered_not_this_one(const struct sp_err *err)
{
	int http_status = sp_code_http_status(sp_err_client_code(err));

	return err->status == -EREMOTEIO &&
	       (http_status == 404 || http_status == 409 || http_status == 410);
}

static int add_word(struct sp_buf *list, const char *word)
{
	int status = list->len > 0 ? sp_buf_append(list, ",", 1) : 0;

	return status == 0 ? sp_buf_append(list, word, strlen(word)) : status;
}

/* The candidate is none: note it for the next question. Negative: give up, with err. */
static int reject(struct hunt *hunt, const struct sp_cli_grant *grant, struct sp_err *err)
{
	int status;

	if (hunt->why.status == -EREMOTEIO && !answered_not_this_one(&hunt->why)) {
		*err = hunt->why;
		return err->status;
	}
	status = add_word(&hunt->rejected, grant->id);
	if (status == 0 && hunt->why.status != -EREMOTEIO)
		status = add_word(&hunt->excluded, grant->host);
	if (status < 0)
		return sp_err_set(err, status, "note a rejected sandbox");
	if (++hunt->candidates < CANDIDATES_MAX)
		return 0;
	return sp_err_code(err, SP_CODE_POOL_ACQUIRE_FAILED, -EREMOTEIO,
			   "%s: %d sandboxes could not be claimed, the last on host '%s': %.200s",
			   sp_buf_text(&hunt->what), hunt->candidates, grant->host,
			   hunt->why.message);
}

/* ---- the answer ---- */

/* What a caller of `acquire` reads, whoever described the sandbox. */
static int complete(const struct sp_cli_wish *wish, const struct sp_cli_grant *grant,
		    struct sp_cli_answer *answer, struct sp_err *err)
{
	if (!answer->root) {
		answer->root = json_object();
		sp_cli_answer_set_text(answer, "id", grant->id);
		sp_cli_answer_set_text(answer, "pool", wish->pool);
		sp_cli_answer_set_text(answer, "state", "leased");
		sp_cli_answer_set_time(answer, "expires_at", grant->end_wall_ms);
		(void)json_object_set_new(answer->root, "remaining_ms",
					  json_integer(grant->remaining_ms));
		(void)json_object_set_new(answer->root, "claimed", json_false());
	}
	sp_cli_answer_set_text(answer, "host", grant->host);
	sp_cli_answer_set_text(answer, "endpoint", grant->endpoint);
	sp_cli_answer_set_text(answer, "lease", wish->lease);
	if (wish->secret[0])
		sp_cli_answer_set_text(answer, "token", wish->secret);
	return sp_cli_answer_finish(answer, err);
}

/* ---- acquire ---- */

/* What was granted ended before it was claimed (its host had to shrink, say), and took the lease
 * with it: a candidate less, and a new lease. */
static int draw_again(struct hunt *hunt, const struct sp_cli_reply *reply, struct sp_err *err)
{
	int status = sp_cli_redis_refusal(reply, sp_buf_text(&hunt->what), err);

	if (++hunt->candidates == CANDIDATES_MAX)
		return status;
	status = draw_lease(hunt->cli, hunt->wish, err);
	return status < 0 ? status : 1;
}

/* One round: 0 with a sandbox, 1 to ask again, negative at an end. */
static int try_one(struct hunt *hunt, struct sp_cli_answer *answer, struct sp_err *err)
{
	struct sp_cli_reply reply = {0};
	struct sp_cli_grant grant = {.id = ""};
	int status = ask(hunt, &reply, err);

	if (status == 0 && sp_cli_reply_is(&reply, "WAIT"))
		status = wait_for_turn(hunt, &reply, err);
	if (status == 0 && sp_cli_reply_is(&reply, "NOT_FOUND")) {
		/* Our ticket is gone: Redis was emptied, or we were stopped for too long. */
		status = sp_clock_boot_ms() < hunt->end_ms ? 1 : out_of_time(hunt, err);
	} else if (status == 0 && sp_cli_reply_is(&reply, "LEASE_ENDED") && hunt->wish->drawn) {
		status = draw_again(hunt, &reply, err);
	} else if (status == 0 && !sp_cli_reply_is(&reply, "OK")) {
		status = sp_cli_redis_refusal(&reply, sp_buf_text(&hunt->what), err);
		if (hunt->candidates > 0 && err->code == SP_CODE_POOL_EMPTY)
			status = sp_err_code(err, SP_CODE_POOL_ACQUIRE_FAILED, -EREMOTEIO,
					     "%s: %d sandboxes could not be claimed and there is "
					     "no other, the last: %.200s",
					     sp_buf_text(&hunt->what), hunt->candidates,
					     hunt->why.message);
	} else if (status == 0) {
		status = sp_cli_grant_read(&reply, &grant, err);
	}
	sp_cli_reply_done(&reply);
	if (status != 0)
		return status;
	if (!hunt->wish->secret[0])
		return complete(hunt->wish, &grant, answer, err);
	sp_err_clear(&hunt->why);
	status = claim(hunt, &grant, answer, &hunt->why);
	if (status == 0)
		return complete(hunt->wish, &grant, answer, err);
	sp_cli_answer_done(answer);
	status = reject(hunt, &grant, err);
	return status == 0 ? 1 : status;
}

/* Something may be reserved for a lease that nobody will ask about again. One that the caller named
 * stays usable for another try. */
static void give_back(struct hunt *hunt, int status)
{
	bool reserved = hunt->candidates > 0 || hunt->why.status != 0 || status == -ETIMEDOUT;

	if (hunt->wish->drawn && reserved)
		cancel(hunt);
}

int sp_cli_redis_acquire(struct sp_cli *cli, struct sp_cli_wish *wish,
			 struct sp_cli_answer *ret_answer, struct sp_err *err)
{
	struct hunt hunt = {.cli = cli, .wish = wish, .end_ms = sp_clock_boot_ms() + wish->wait_ms};
	int status;

	*ret_answer = (struct sp_cli_answer){.root = NULL};
	sp_buf_init(&hunt.what, LIST_MAX);
	sp_buf_init(&hunt.rejected, LIST_MAX);
	sp_buf_init(&hunt.excluded, LIST_MAX);
	sp_cli_put(&hunt.what, "pool '%s'", wish->pool);
	do {
		status = try_one(&hunt, ret_answer, err);
	} while (status == 1);
	if (status < 0)
		give_back(&hunt, status);
	sp_buf_done(&hunt.what);
	sp_buf_done(&hunt.rejected);
	sp_buf_done(&hunt.excluded);
	return status;
}
