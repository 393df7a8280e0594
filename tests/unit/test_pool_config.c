/*
 * A pool's numbers: defaults, every key at its limits and one beyond, what follows from what.
 */
#include "pool_fixture.h"

#include <math.h>
#include <stddef.h>

static struct sp_pool_config valid(void)
{
	struct sp_pool_config config;

	sp_pool_config_defaults(&config);
	(void)snprintf(config.name, sizeof(config.name), "default");
	config.max_idle = 8;
	return config;
}

static void accepted(struct sp_pool_config config)
{
	struct sp_err err = {0};

	cr_assert(sp_pool_config_resolve(&config, &err) == 0, "%s", err.message);
}

static void refused(struct sp_pool_config config, const char *key)
{
	struct sp_err err = {0};

	cr_assert(sp_pool_config_resolve(&config, &err) == -EINVAL, "%s is accepted", key);
	cr_assert(err.code == SP_CODE_CONFIG_INVALID);
	cr_assert(strstr(err.message, key), "'%s' does not name %s", err.message, key);
}

Test(pool_config, minimum_defaults_to_60_s) /* P-001 */
{
	struct sp_pool_config config = valid();

	cr_assert(config.idle_timeout_ms == 24 * 3600 * SP_MS_PER_S);
	cr_assert(sp_pool_config_resolve(&config, NULL) == 0);
	cr_assert(config.acquire_min_remaining_ttl_ms == 60000);
	cr_assert(config.refresh_margin_ms == 30000);
}

Test(pool_config, minimum_is_half_of_a_short_life) /* P-002 */
{
	struct sp_pool_config config = valid();

	config.idle_timeout_ms = 30000;
	cr_assert(sp_pool_config_resolve(&config, NULL) == 0);
	cr_assert(config.acquire_min_remaining_ttl_ms == 15000);
}

Test(pool_config, minimum_must_be_strictly_less_than_the_life) /* P-003, P-004, P-005, P-006 */
{
	struct sp_pool_config config = valid();

	config.idle_timeout_ms = 10000;
	config.acquire_min_remaining_ttl_ms = -2;
	refused(config, "acquire_min_remaining_ttl");
	config.acquire_min_remaining_ttl_ms = 10000;
	refused(config, "strictly less than idle_timeout");
	config.acquire_min_remaining_ttl_ms = 10001;
	refused(config, "strictly less than idle_timeout");
	config.acquire_min_remaining_ttl_ms = 9000;
	accepted(config);
	config.acquire_min_remaining_ttl_ms = 9999;
	accepted(config);
	config.acquire_min_remaining_ttl_ms = 0;
	cr_assert(sp_pool_config_resolve(&config, NULL) == 0);
	cr_assert(config.acquire_min_remaining_ttl_ms == 0, "an explicit 0 stays 0");
}

Test(pool_config, defaults_are_those_of_the_header) /* P-007, P-010 */
{
	struct sp_pool_config config;

	sp_pool_config_defaults(&config);
	cr_assert(config.max_total == 0 && config.warmup_concurrency == 8);
	cr_assert(config.max_lease_ms == 24 * 3600 * SP_MS_PER_S);
	cr_assert(config.claim_timeout_ms == 60000 && config.create_timeout_ms == 30000);
	cr_assert(config.create_rate == 200 && config.create_burst == 0);
	cr_assert(config.expiry_jitter_percent == 10 && config.degraded_threshold == 3);
	cr_assert(config.backoff_initial_ms == 1000 && config.backoff_max_ms == 300000);
	cr_assert(config.max_waiters == 256 && config.max_direct_creates == 16);
	cr_assert(config.max_acquire_retries == 3);
	cr_assert(config.tick_ms == 1000 && config.kill_retry_ms == 2000);
	cr_assert(config.drain_timeout_ms == 30000);
}

Test(pool_config, burst_defaults_to_one_second_or_the_concurrency)
{
	struct sp_pool_config config = valid();

	cr_assert(sp_pool_config_resolve(&config, NULL) == 0);
	cr_assert(config.create_burst == 200);
	config = valid();
	config.create_rate = 0.5;
	cr_assert(sp_pool_config_resolve(&config, NULL) == 0);
	cr_assert(config.create_burst == config.warmup_concurrency);
}

Test(pool_config, resolving_twice_changes_nothing)
{
	struct sp_pool_config config = valid();
	struct sp_pool_config again;

	cr_assert(sp_pool_config_resolve(&config, NULL) == 0);
	again = config;
	cr_assert(sp_pool_config_resolve(&again, NULL) == 0);
	cr_assert(memcmp(&config, &again, sizeof(config)) == 0);
}

Test(pool_config, name_is_required) /* P-011 */
{
	struct sp_pool_config config = valid();

	config.name[0] = '\0';
	refused(config, "pool name");
	(void)snprintf(config.name, sizeof(config.name), "Not-Lower");
	refused(config, "Not-Lower");
	memset(config.name, 'a', sizeof(config.name) - 1);
	accepted(config);
}

struct limit {
	const char *key;
	size_t offset;
	bool wide; /* int64_t, else uint32_t */
	int64_t low, high;
};

#define DAY_MS (24 * 3600 * SP_MS_PER_S)

static const struct limit limits[] = {
	{"max_idle", offsetof(struct sp_pool_config, max_idle), false, 0, SP_POOL_MAX_IDLE_LIMIT},
	{"max_total", offsetof(struct sp_pool_config, max_total), false, 0,
	 SP_POOL_MAX_TOTAL_LIMIT},
	{"idle_timeout", offsetof(struct sp_pool_config, idle_timeout_ms), true, 1, 366 * DAY_MS},
	{"max_lease", offsetof(struct sp_pool_config, max_lease_ms), true, 1, 366 * DAY_MS},
	{"claim_timeout", offsetof(struct sp_pool_config, claim_timeout_ms), true, 0, 366 * DAY_MS},
	{"warmup_concurrency", offsetof(struct sp_pool_config, warmup_concurrency), false, 1, 1024},
	{"create_burst", offsetof(struct sp_pool_config, create_burst), false, 0, 100000},
	{"create_timeout", offsetof(struct sp_pool_config, create_timeout_ms), true, 1, 3600000},
	{"expiry_jitter_percent", offsetof(struct sp_pool_config, expiry_jitter_percent), false, 0,
	 50},
	{"backoff_initial", offsetof(struct sp_pool_config, backoff_initial_ms), true, 1, 300000},
	{"backoff_max", offsetof(struct sp_pool_config, backoff_max_ms), true, 1000, DAY_MS},
	{"degraded_threshold", offsetof(struct sp_pool_config, degraded_threshold), false, 1, 100},
	{"max_waiters", offsetof(struct sp_pool_config, max_waiters), false, 0,
	 SP_POOL_WAITERS_LIMIT},
	{"max_direct_creates", offsetof(struct sp_pool_config, max_direct_creates), false, 1, 1024},
	{"max_acquire_retries", offsetof(struct sp_pool_config, max_acquire_retries), false, 1,
	 100},
	{"tick", offsetof(struct sp_pool_config, tick_ms), true, 10, 60000},
	{"kill_retry", offsetof(struct sp_pool_config, kill_retry_ms), true, 10, 60000},
	{"drain_timeout", offsetof(struct sp_pool_config, drain_timeout_ms), true, -1, DAY_MS},
};

static void set(struct sp_pool_config *config, const struct limit *limit, int64_t value)
{
	char *at = (char *)config + limit->offset;

	if (limit->wide)
		*(int64_t *)(void *)at = value;
	else
		*(uint32_t *)(void *)at = (uint32_t)value;
}

Test(pool_config, every_limit_holds_and_names_its_key) /* P-029, P-134 */
{
	for (size_t i = 0; i < SP_ARRAY_SIZE(limits); i++) {
		struct sp_pool_config config = valid();

		set(&config, &limits[i], limits[i].low);
		accepted(config);
		set(&config, &limits[i], limits[i].high);
		accepted(config);
		set(&config, &limits[i], limits[i].high + 1);
		refused(config, limits[i].key);
		set(&config, &limits[i], limits[i].low - 1);
		refused(config, limits[i].key);
	}
}

Test(pool_config, rate_is_a_finite_number)
{
	struct sp_pool_config config = valid();

	config.create_rate = 100000;
	accepted(config);
	config.create_rate = 100001;
	refused(config, "create_rate");
	config.create_rate = -0.1;
	refused(config, "create_rate");
	config.create_rate = (double)NAN;
	refused(config, "create_rate");
	config.create_rate = 0;
	accepted(config);
}

Test(pool_config, refresh_margin_leaves_some_life)
{
	struct sp_pool_config config = valid();

	config.idle_timeout_ms = 10000;
	config.acquire_min_remaining_ttl_ms = 4000;
	config.refresh_margin_ms = 6000;
	refused(config, "refresh_margin");
	config.refresh_margin_ms = 5999;
	accepted(config);
	config.refresh_margin_ms = -1;
	cr_assert(sp_pool_config_resolve(&config, NULL) == 0);
	cr_assert(config.refresh_margin_ms == 1000);
	config.acquire_min_remaining_ttl_ms = 9000;
	config.refresh_margin_ms = -1;
	cr_assert(sp_pool_config_resolve(&config, NULL) == 0);
	cr_assert(config.refresh_margin_ms == 250, "the default keeps to a quarter of the life");
}

Test(pool_config, policies_have_names) /* P-013 */
{
	enum sp_acquire_policy policy;

	for (int i = 0; i < SP_ACQUIRE_POLICY_COUNT; i++) {
		const char *name = sp_acquire_policy_name((enum sp_acquire_policy)i);

		cr_assert(sp_acquire_policy_parse(name, &policy) == 0 && (int)policy == i);
	}
	cr_assert(sp_acquire_policy_parse("direct", &policy) == -EINVAL);
	cr_assert(strcmp(sp_acquire_policy_name(SP_ACQUIRE_RETRY_NEXT_THEN_CREATE),
			 "retry_next_then_create") == 0);
}

Test(pool_config, a_pool_refuses_what_does_not_resolve)
{
	struct fixture fix;
	struct sp_pool_ports ports = {.backend = &fixture_backend};
	struct sp_pool *pool = NULL;

	fixture_init(&fix, 1);
	fix.config.tick_ms = 0;
	cr_assert(sp_pool_new(&fix.config, &ports, 1, &pool, NULL) == -EINVAL);
	cr_assert(pool == NULL);
}
