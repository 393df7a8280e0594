/*
 * A pool's numbers: defaults, ranges, and the values that follow from others.
 *
 * One table gives every key its range; what depends on two keys is checked below it. Messages name
 * the key as the configuration file does, so that they can be shown as they are.
 */
#include "pool/pool.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>

#define SECONDS(n)        ((n)*SP_MS_PER_S)
#define MINUTES(n)        SECONDS(60 * (n))
#define HOURS(n)          MINUTES(60 * (n))
#define DAYS(n)           HOURS(24 * (n))
#define TIME_MAX          DAYS(366)
#define CREATE_RATE_MAX   100000.0
#define CREATE_BURST_MAX  100000
#define MIN_REMAINING_MAX SECONDS(60)
#define REFRESH_MAX       SECONDS(30)

enum kind { COUNT, TIME };

struct range {
	const char *key;
	enum kind kind;
	size_t offset;
	int64_t min;
	int64_t max;
};

#define COUNT_KEY(field, min, max)                                              \
	{                                                                       \
#field, COUNT, offsetof(struct sp_pool_config, field), min, max \
	}
#define TIME_KEY(field, min, max)                                                   \
	{                                                                           \
#field, TIME, offsetof(struct sp_pool_config, field##_ms), min, max \
	}

static const struct range ranges[] = {
	COUNT_KEY(max_idle, 0, SP_POOL_MAX_IDLE_LIMIT),
	COUNT_KEY(max_total, 0, SP_POOL_MAX_TOTAL_LIMIT),
	TIME_KEY(idle_timeout, 1, TIME_MAX),
	TIME_KEY(acquire_min_remaining_ttl, -1, TIME_MAX),
	TIME_KEY(max_lease, 1, TIME_MAX),
	TIME_KEY(claim_timeout, 0, TIME_MAX),
	COUNT_KEY(warmup_concurrency, 1, 1024),
	COUNT_KEY(create_burst, 0, CREATE_BURST_MAX),
	TIME_KEY(create_timeout, 1, HOURS(1)),
	TIME_KEY(refresh_margin, -1, TIME_MAX),
	COUNT_KEY(expiry_jitter_percent, 0, 50),
	TIME_KEY(backoff_initial, 1, HOURS(1)),
	TIME_KEY(backoff_max, 1, HOURS(24)),
	COUNT_KEY(degraded_threshold, 1, 100),
	COUNT_KEY(max_waiters, 0, SP_POOL_WAITERS_LIMIT),
	COUNT_KEY(max_direct_creates, 1, 1024),
	COUNT_KEY(max_acquire_retries, 1, 100),
	TIME_KEY(tick, 10, MINUTES(1)),
	TIME_KEY(kill_retry, 10, MINUTES(1)),
	TIME_KEY(drain_timeout, -1, DAYS(1)),
};

void sp_pool_config_defaults(struct sp_pool_config *config)
{
	*config = (struct sp_pool_config){
		.idle_timeout_ms = HOURS(24),
		.acquire_min_remaining_ttl_ms = -1,
		.max_lease_ms = HOURS(24),
		.claim_timeout_ms = SECONDS(60),
		.warmup_concurrency = 8,
		.create_rate = 200,
		.create_timeout_ms = SECONDS(30),
		.refresh_margin_ms = -1,
		.expiry_jitter_percent = 10,
		.backoff_initial_ms = SECONDS(1),
		.backoff_max_ms = MINUTES(5),
		.degraded_threshold = 3,
		.max_waiters = 256,
		.max_direct_creates = 16,
		.max_acquire_retries = 3,
		.tick_ms = SECONDS(1),
		.kill_retry_ms = SECONDS(2),
		.drain_timeout_ms = SECONDS(30),
	};
}

static int64_t value_of(const struct sp_pool_config *config, const struct range *range)
{
	const char *at = (const char *)config + range->offset;

	if (range->kind == COUNT)
		return *(const uint32_t *)(const void *)at;
	return *(const int64_t *)(const void *)at;
}

static int check_ranges(const struct sp_pool_config *config, struct sp_err *err)
{
	for (size_t i = 0; i < SP_ARRAY_SIZE(ranges); i++) {
		const struct range *range = &ranges[i];
		int64_t value = value_of(config, range);

		if (value < range->min || value > range->max)
			return sp_err_code(
				err, SP_CODE_CONFIG_INVALID, -EINVAL,
				"pool '%s': %s is %" PRId64 "%s, must be %" PRId64 " to %" PRId64,
				config->name, range->key, value, range->kind == TIME ? " ms" : "",
				range->min, range->max);
	}
	/* Written so that not-a-number fails too. */
	if (!(config->create_rate >= 0 && config->create_rate <= CREATE_RATE_MAX))
		return sp_err_code(err, SP_CODE_CONFIG_INVALID, -EINVAL,
				   "pool '%s': create_rate is %g, must be 0 to %g per second",
				   config->name, config->create_rate, CREATE_RATE_MAX);
	return 0;
}

static void resolve_minimum(struct sp_pool_config *config)
{
	if (config->acquire_min_remaining_ttl_ms < 0)
		config->acquire_min_remaining_ttl_ms =
			SP_MIN(MIN_REMAINING_MAX, config->idle_timeout_ms / 2);
}

/* A margin as long as the dispensable life itself would replace every sandbox as soon as it is
 * made, so the default also keeps to a quarter of that life. */
static void resolve_refresh(struct sp_pool_config *config)
{
	int64_t life = config->idle_timeout_ms - config->acquire_min_remaining_ttl_ms;

	if (config->refresh_margin_ms < 0)
		config->refresh_margin_ms =
			SP_MIN(SP_MIN(REFRESH_MAX, config->idle_timeout_ms / 10), life / 4);
}

static void resolve_burst(struct sp_pool_config *config)
{
	if (config->create_burst == 0)
		config->create_burst =
			SP_MAX((uint32_t)config->create_rate, config->warmup_concurrency);
}

int sp_pool_config_resolve(struct sp_pool_config *config, struct sp_err *err)
{
	int result;

	config->name[SP_POOL_NAME_MAX] = '\0';
	if (!sp_pool_name_valid(config->name))
		return sp_err_code(err, SP_CODE_CONFIG_INVALID, -EINVAL,
				   "pool name '%s' is not [a-z0-9][a-z0-9._-]{0,62}", config->name);
	result = check_ranges(config, err);
	if (result < 0)
		return result;
	resolve_minimum(config);
	if (config->acquire_min_remaining_ttl_ms >= config->idle_timeout_ms)
		return sp_err_code(err, SP_CODE_CONFIG_INVALID, -EINVAL,
				   "pool '%s': acquire_min_remaining_ttl (%" PRId64
				   " ms) must be strictly less than idle_timeout (%" PRId64 " ms)",
				   config->name, config->acquire_min_remaining_ttl_ms,
				   config->idle_timeout_ms);
	resolve_refresh(config);
	if (config->refresh_margin_ms >=
	    config->idle_timeout_ms - config->acquire_min_remaining_ttl_ms)
		return sp_err_code(
			err, SP_CODE_CONFIG_INVALID, -EINVAL,
			"pool '%s': refresh_margin (%" PRId64
			" ms) must be less than idle_timeout - acquire_min_remaining_ttl (%" PRId64
			" ms)",
			config->name, config->refresh_margin_ms,
			config->idle_timeout_ms - config->acquire_min_remaining_ttl_ms);
	if (config->backoff_max_ms < config->backoff_initial_ms)
		return sp_err_code(err, SP_CODE_CONFIG_INVALID, -EINVAL,
				   "pool '%s': backoff_max (%" PRId64
				   " ms) must not be below backoff_initial (%" PRId64 " ms)",
				   config->name, config->backoff_max_ms,
				   config->backoff_initial_ms);
	resolve_burst(config);
	return 0;
}
