/*
 * Pools and hosts as Redis knows them: what the hosts last told, and the operator's intent.
 *
 * One pool is one call. Which pools there are, Redis keeps nowhere; they are found by their keys
 * with SCAN, in bounded steps and only for who asks for all of them (a person who looks, never the
 * path of an acquire). A user that may not SCAN names its pools.
 */
#include "supervisor/cli/redis.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base/clock.h"

#define POOLS_MAX  1024u
#define SCAN_COUNT "1000"
#define SCAN_MS    (10 * SP_MS_PER_S) /* for all steps together */
#define NAME_SIZE  (SP_POOL_NAME_MAX + 1)

/* ---- which pools ---- */

struct names {
	char (*items)[NAME_SIZE];
	size_t count;
};

static bool known(const struct names *names, const char *name)
{
	for (size_t i = 0; i < names->count; i++)
		if (strcmp(names->items[i], name) == 0)
			return true;
	return false;
}

/* The name between the braces of {prefix}:{NAME}:meta; SCAN may bring a key more than once. */
static void take_key(struct names *names, const char *prefix, const char *key)
{
	char name[NAME_SIZE];
	size_t skip = strlen(prefix) + 2;
	size_t len;

	if (strlen(key) < skip || names->count == POOLS_MAX)
		return;
	len = strcspn(key + skip, "}");
	if (len >= sizeof(name))
		return;
	memcpy(name, key + skip, len);
	name[len] = '\0';
	if (!sp_pool_name_valid(name) || known(names, name))
		return;
	memcpy(names->items[names->count++], name, len + 1);
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(a, b);
}

static int scan_step(struct sp_cli *cli, const char *pattern, char *cursor, size_t size,
		     struct names *names, struct sp_err *err)
{
	const char *argv[] = {"SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_COUNT};
	struct sp_cli_reply reply = {0};
	int status = sp_cli_redis_command(cli, argv, SP_ARRAY_SIZE(argv), SP_CLI_REDIS_PATIENCE_MS,
					  &reply, err);

	if (status == -EREMOTEIO && strstr(err->message, "NOPERM"))
		return sp_err_code(
			err, SP_CODE_FORBIDDEN, -EREMOTEIO,
			"which pools there are is found by SCAN, which this user of "
			"Redis may not: name one ('pool show NAME', 'hosts --pool NAME')");
	if (status < 0)
		return status;
	(void)snprintf(cursor, size, "%s", sp_cli_reply_text(&reply, 0));
	for (size_t i = 1; i < reply.count; i++)
		take_key(names, cli->redis.prefix, sp_cli_reply_text(&reply, i));
	sp_cli_reply_done(&reply);
	return 0;
}

static int find_pools(struct sp_cli *cli, struct names *ret_names, struct sp_err *err)
{
	struct names names = {.items = sp_cli_xrealloc(NULL, POOLS_MAX * NAME_SIZE)};
	int64_t deadline_ms = sp_clock_boot_ms() + SCAN_MS;
	char pattern[SP_CLI_REDIS_PREFIX_MAX + 16];
	char cursor[32] = "0";
	int status;

	(void)snprintf(pattern, sizeof(pattern), "%s:{*}:meta", cli->redis.prefix);
	do {
		status = scan_step(cli, pattern, cursor, sizeof(cursor), &names, err);
		if (status == 0 && sp_clock_boot_ms() > deadline_ms)
			status = sp_err_code(err, SP_CODE_UNAVAILABLE, -ETIMEDOUT,
					     "this Redis has too many keys to find the pools among "
					     "them: name one");
	} while (status == 0 && strcmp(cursor, "0") != 0 && cursor[0]);
	qsort(names.items, names.count, NAME_SIZE, compare_names);
	if (status == 0)
		*ret_names = names;
	else
		free(names.items);
	return status;
}

/* ---- one pool ---- */

static int ask_stats(struct sp_cli *cli, const char *pool, int64_t timeout_ms,
		     struct sp_cli_reply *reply, struct sp_err *err)
{
	int status = sp_cli_redis_fcall(cli, pool, "stats", true, NULL, 0,
					sp_clock_boot_ms() + timeout_ms, reply, err);

	if (status == 0 && !sp_cli_reply_is(reply, "OK")) {
		status = sp_cli_reply_is(reply, "NOT_FOUND")
				 ? sp_err_code(err, SP_CODE_POOL_NOT_FOUND, -EREMOTEIO,
					       "Redis knows no pool '%s'", pool)
				 : sp_cli_redis_refusal(reply, pool, err);
		sp_cli_reply_done(reply);
	}
	return status;
}

/* A text that is a whole number becomes one. */
static json_t *value_of(const char *text)
{
	char *end;
	long long number;

	errno = 0;
	number = strtoll(text, &end, 10);
	if (errno == 0 && end != text && *end == '\0')
		return json_integer(number);
	return json_string(text);
}

/* Where the list of hosts begins: the index of its length. 0: the reply is cut short. */
static size_t hosts_at(const struct sp_cli_reply *reply)
{
	int64_t pairs = sp_cli_reply_number(reply, 2);

	if (pairs < 0 || (uint64_t)pairs > reply->count / 2)
		return 0;
	return 3 + 2 * (size_t)pairs < reply->count ? 3 + 2 * (size_t)pairs : 0;
}

static json_t *pool_of(const struct sp_cli_reply *reply, const char *name)
{
	size_t end = hosts_at(reply);
	json_t *pool = json_object();

	(void)json_object_set_new(pool, "name", json_string(name));
	for (size_t i = 3; i + 1 < end; i += 2)
		(void)json_object_set_new(pool, sp_cli_reply_text(reply, i),
					  value_of(sp_cli_reply_text(reply, i + 1)));
	/* What a daemon calls by one name: those with a ticket, and those who wait at a host. */
	(void)json_object_set_new(pool, "waiters",
				  json_integer(sp_cli_member_number(pool, "tickets") +
					       sp_cli_member_number(pool, "waiting")));
	return pool;
}

int sp_cli_redis_pool(struct sp_cli *cli, const char *name, struct sp_cli_answer *ret_answer,
		      struct sp_err *err)
{
	struct sp_cli_reply reply = {0};
	int status = ask_stats(cli, name, SP_CLI_REDIS_PATIENCE_MS, &reply, err);

	*ret_answer = (struct sp_cli_answer){.root = NULL};
	if (status < 0)
		return status;
	ret_answer->root = pool_of(&reply, name);
	sp_cli_reply_done(&reply);
	return sp_cli_answer_finish(ret_answer, err);
}

/* ---- all of them ---- */

typedef int visit_pool(struct sp_cli *cli, const char *name, void *arg, struct sp_err *err);

/* The named pool, or each that there is. One that ends between SCAN and the call is left out. */
static int each_pool(struct sp_cli *cli, const char *name, visit_pool *visit, void *arg,
		     struct sp_err *err)
{
	struct names names = {0};
	int status;

	if (name)
		return visit(cli, name, arg, err);
	status = find_pools(cli, &names, err);
	for (size_t i = 0; status == 0 && i < names.count; i++) {
		status = visit(cli, names.items[i], arg, err);
		if (status < 0 && err->code == SP_CODE_POOL_NOT_FOUND)
			status = 0;
	}
	free(names.items);
	return status;
}

struct listing {
	json_t *items;
	int64_t timeout_ms;
};

static int add_pool(struct sp_cli *cli, const char *name, void *arg, struct sp_err *err)
{
	struct listing *listing = arg;
	struct sp_cli_reply reply = {0};
	int status = ask_stats(cli, name, listing->timeout_ms, &reply, err);

	if (status == 0)
		(void)json_array_append_new(listing->items, pool_of(&reply, name));
	sp_cli_reply_done(&reply);
	return status;
}

static int list(struct sp_cli *cli, const char *name, const char *key, visit_pool *visit,
		int64_t timeout_ms, struct sp_cli_answer *ret_answer, struct sp_err *err)
{
	struct listing listing = {.items = json_array(), .timeout_ms = timeout_ms};
	int status;

	*ret_answer = (struct sp_cli_answer){.root = json_object()};
	(void)json_object_set_new(ret_answer->root, key, listing.items);
	status = each_pool(cli, name, visit, &listing, err);
	return status < 0 ? status : sp_cli_answer_finish(ret_answer, err);
}

int sp_cli_redis_pools(struct sp_cli *cli, int64_t timeout_ms, struct sp_cli_answer *ret_answer,
		       struct sp_err *err)
{
	return list(cli, NULL, "pools", add_pool, timeout_ms, ret_answer, err);
}

/* ---- hosts ---- */

/* The columns of a host in `stats`, in their order (redis/README.md). */
static const struct {
	const char *name;
	bool number;
} host_columns[] = {
	{"host", false},   {"state", false},   {"idle", true},      {"creating", true},
	{"leased", true},  {"waiters", true},  {"share", true},     {"capacity", true},
	{"seen_ms", true}, {"version", false}, {"endpoint", false},
};

static json_t *host_of(const struct sp_cli_reply *reply, size_t at, const char *pool)
{
	json_t *host = json_object();

	(void)json_object_set_new(host, "pool", json_string(pool));
	for (size_t i = 0; i < SP_ARRAY_SIZE(host_columns); i++)
		(void)json_object_set_new(host, host_columns[i].name,
					  host_columns[i].number
						  ? json_integer(sp_cli_reply_number(reply, at + i))
						  : json_string(sp_cli_reply_text(reply, at + i)));
	return host;
}

static int add_hosts(struct sp_cli *cli, const char *name, void *arg, struct sp_err *err)
{
	struct listing *listing = arg;
	struct sp_cli_reply reply = {0};
	size_t width = SP_ARRAY_SIZE(host_columns);
	int status = ask_stats(cli, name, listing->timeout_ms, &reply, err);
	size_t at = status < 0 ? 0 : hosts_at(&reply);

	if (status == 0 && (at == 0 || (int64_t)(reply.count - at - 1) !=
					       (int64_t)width * sp_cli_reply_number(&reply, at)))
		status =
			sp_err_code(err, SP_CODE_PROTOCOL, -EPROTO,
				    "Redis told the hosts of pool '%s' in a form that this version "
				    "does not know",
				    name);
	for (at++; status == 0 && at + width <= reply.count; at += width)
		(void)json_array_append_new(listing->items, host_of(&reply, at, name));
	sp_cli_reply_done(&reply);
	return status;
}

int sp_cli_redis_hosts(struct sp_cli *cli, const char *name, struct sp_cli_answer *ret_answer,
		       struct sp_err *err)
{
	return list(cli, name, "hosts", add_hosts, SP_CLI_REDIS_PATIENCE_MS, ret_answer, err);
}

/* ---- orders ---- */

static int order(struct sp_cli *cli, const char *pool, const char *name, const char *const *argv,
		 size_t argc, struct sp_err *err)
{
	struct sp_cli_reply reply = {0};
	char what[NAME_SIZE + 16];
	int status = sp_cli_redis_fcall(cli, pool, name, false, argv, argc,
					sp_clock_boot_ms() + SP_CLI_REDIS_PATIENCE_MS, &reply, err);

	if (status < 0)
		return status;
	(void)snprintf(what, sizeof(what), "pool '%s'", pool);
	if (!sp_cli_reply_is(&reply, "OK"))
		status = sp_cli_redis_refusal(&reply, what, err);
	sp_cli_reply_done(&reply);
	return status;
}

int sp_cli_redis_order(struct sp_cli *cli, const char *pool, const char *name,
		       const char *const *argv, size_t argc, struct sp_err *err)
{
	int status = order(cli, pool, name, argv, argc, err);

	if (status == -EREMOTEIO && err->code == SP_CODE_NOT_FOUND)
		return sp_err_code(err, SP_CODE_POOL_NOT_FOUND, status, "Redis knows no pool '%s'",
				   pool);
	return status;
}

struct duty {
	const char *host;
	bool drain;
	size_t pools; /* that know the host */
};

static int order_duty(struct sp_cli *cli, const char *name, void *arg, struct sp_err *err)
{
	struct duty *duty = arg;
	const char *argv[] = {duty->host, duty->drain ? "1" : "0"};
	int status = order(cli, name, "drain_host", argv, SP_ARRAY_SIZE(argv), err);

	if (status == 0)
		duty->pools++;
	return status < 0 && err->code == SP_CODE_NOT_FOUND ? 0 : status;
}

int sp_cli_redis_drain_host(struct sp_cli *cli, const char *name, const char *host, bool drain,
			    struct sp_err *err)
{
	struct duty duty = {.host = host, .drain = drain};
	int status = each_pool(cli, name, order_duty, &duty, err);

	if (status == 0 && duty.pools == 0)
		return sp_err_code(err, SP_CODE_NOT_FOUND, -EREMOTEIO,
				   name ? "pool '%s' has no host '%.80s'"
					: "no pool%s has a host '%.80s'",
				   name ? name : "", host);
	return status;
}
