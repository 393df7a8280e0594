/*
 * Pools in a table: what is there, what is wanted, what goes wrong.
 */
#include "supervisor/cli/pools.h"

#include <errno.h>

#include "supervisor/cli/redis.h"

int sp_cli_pools_ask(struct sp_cli *cli, int64_t timeout_ms, struct sp_cli_answer *answer,
		     struct sp_err *err)
{
	int status;

	if (cli->over_redis)
		return sp_cli_redis_pools(cli, timeout_ms, answer, err);
	status = sp_cli_ask(cli, "GET", "/v1/pools", NULL, timeout_ms, answer, err);
	if (status == 0 && !json_is_array(json_object_get(answer->root, "pools")))
		return sp_err_code(err, SP_CODE_PROTOCOL, -EPROTO,
				   "the answer to 'GET /v1/pools' has no list of pools");
	return status;
}

/* As Redis knows them: of all hosts together, without what only a host sees. */
static void write_shared(const json_t *pools, struct sp_buf *out)
{
	static const struct sp_cli_column columns[] = {
		{"POOL", false},  {"STATE", false},   {"HOSTS", true},  {"IDLE", true},
		{"WANTED", true}, {"CREATING", true}, {"LEASED", true}, {"WAITERS", true},
	};
	static const char *const numbers[] = {"hosts_live", "idle",   "max_idle",
					      "creating",   "leased", "waiters"};
	struct sp_cli_columns table;
	json_t *pool;
	size_t i;

	sp_cli_columns_init(&table, columns, SP_ARRAY_SIZE(columns));
	json_array_foreach (pools, i, pool) {
		sp_cli_columns_add(&table, "%s", sp_cli_member_text(pool, "name"));
		sp_cli_columns_add(&table, "%s", sp_cli_member_text(pool, "state"));
		for (size_t k = 0; k < SP_ARRAY_SIZE(numbers); k++)
			sp_cli_columns_add(&table, "%lld",
					   (long long)sp_cli_member_number(pool, numbers[k]));
	}
	sp_cli_columns_write(&table, true, out);
	sp_cli_columns_done(&table);
}

const char *sp_cli_pools_trouble(const json_t *pool)
{
	if (json_is_true(json_object_get(pool, "spec_mismatch")))
		return "the store has another spec of it: raise spec_revision";
	return sp_cli_member_text(pool, "last_error");
}

void sp_cli_pools_write(const struct sp_cli *cli, const json_t *pools, struct sp_buf *out)
{
	static const struct sp_cli_column columns[] = {
		{"POOL", false},   {"STATE", false},   {"HEALTH", false}, {"IDLE", true},
		{"WANTED", true},  {"CREATING", true}, {"LEASED", true},  {"KILLING", true},
		{"WAITERS", true}, {"CREATED", true},  {"FAILED", true},  {"LAST ERROR", false},
	};
	static const char *const numbers[] = {
		"idle",    "max_idle", "creating",      "leased",
		"killing", "waiters",  "created_total", "create_failures_total"};
	struct sp_cli_columns table;
	json_t *pool;
	size_t i;

	if (cli->over_redis) {
		write_shared(pools, out);
		return;
	}
	sp_cli_columns_init(&table, columns, SP_ARRAY_SIZE(columns));
	json_array_foreach (pools, i, pool) {
		sp_cli_columns_add(&table, "%s", sp_cli_member_text(pool, "name"));
		sp_cli_columns_add(&table, "%s", sp_cli_member_text(pool, "state"));
		sp_cli_columns_add(&table, "%s", sp_cli_member_text(pool, "health"));
		for (size_t k = 0; k < SP_ARRAY_SIZE(numbers); k++)
			sp_cli_columns_add(&table, "%lld",
					   (long long)sp_cli_member_number(pool, numbers[k]));
		sp_cli_columns_add(&table, "%.60s", sp_cli_pools_trouble(pool));
	}
	sp_cli_columns_write(&table, true, out);
	sp_cli_columns_done(&table);
}
