/*
 * Which pool serves a create: the one that it names (extensions.poolRef), else the one whose
 * `images` fit its image, the most specific entry first. A sandbox of a pool is what it is before
 * anybody asks for it, so what asks for more than the pool gives is refused by name; less is
 * served.
 */
#include "supervisor/api/os_lifecycle.h"

#include "supervisor/api/os_values.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int refuse(struct sp_os_refusal *refusal, const char *format, ...) SP_PRINTF(2, 3);

static int refuse(struct sp_os_refusal *refusal, const char *format, ...)
{
	va_list args;

	*refusal = (struct sp_os_refusal){.status = MHD_HTTP_BAD_REQUEST,
					  .code = "SANDBOX::INVALID_PARAMETER"};
	va_start(args, format);
	(void)vsnprintf(refusal->message, sizeof(refusal->message), format, args);
	va_end(args);
	return -EINVAL;
}

static const struct sp_config_pool *pool_named(const struct sp_config *config, const char *name)
{
	for (size_t i = 0; i < config->pool_count; i++)
		if (strcmp(config->pools[i].policy.name, name) == 0)
			return &config->pools[i];
	return NULL;
}

/* Pools are sorted by name: of equal weights the first one stays. */
static const struct sp_config_pool *pool_of_image(const struct sp_config *config, const char *image)
{
	const struct sp_config_pool *best = NULL;
	size_t best_weight = 0;

	for (size_t i = 0; i < config->pool_count; i++) {
		const struct sp_config_pool *pool = &config->pools[i];

		for (size_t j = 0; j < pool->image_count; j++) {
			size_t weight = sp_os_image_weight(pool->images[j]);

			if ((best && weight <= best_weight) ||
			    !sp_os_image_matches(pool->images[j], image))
				continue;
			best = pool;
			best_weight = weight;
		}
	}
	return best;
}

static int check_limits(const struct sp_config_pool *pool, const struct sp_os_create *create,
			struct sp_os_refusal *refusal)
{
	const char *name = pool->policy.name;
	char has[32];
	char wanted[32];

	if (create->memory_bytes > pool->memory_bytes) {
		(void)sp_format_size(pool->memory_bytes, has, sizeof(has));
		(void)sp_format_size(create->memory_bytes, wanted, sizeof(wanted));
		return refuse(refusal,
			      "resourceLimits.memory: %s is more than the %s that pool '%s' gives",
			      wanted, has, name);
	}
	if (pool->cpu > 0 && (double)create->cpu_millis > pool->cpu * 1000)
		return refuse(refusal,
			      "resourceLimits.cpu: %g is more than the %g that pool '%s' gives",
			      (double)create->cpu_millis / 1000, pool->cpu, name);
	return 0;
}

static int check_times(const struct sp_config_pool *pool, const struct sp_os_create *create,
		       struct sp_os_refusal *refusal)
{
	int64_t max_s = pool->policy.max_lease_ms / SP_MS_PER_S;

	if (create->timeout_s > max_s)
		return refuse(refusal,
			      "timeout: %lld s is more than the %lld s that pool '%s' permits",
			      (long long)create->timeout_s, (long long)max_s, pool->policy.name);
	if (create->extend_s > max_s)
		return refuse(refusal,
			      "access.renew.extend.seconds: %lld s is more than the %lld s that "
			      "pool '%s' permits",
			      (long long)create->extend_s, (long long)max_s, pool->policy.name);
	return 0;
}

static int check_network(const struct sp_config_pool *pool, const struct sp_os_create *create,
			 struct sp_os_refusal *refusal)
{
	if (create->egress == SP_OS_EGRESS_NONE && pool->network_host)
		return refuse(refusal, "networkPolicy: pool '%s' shares the host's network",
			      pool->policy.name);
	if (create->egress == SP_OS_EGRESS_ALL && !pool->network_host)
		return refuse(refusal, "networkPolicy: pool '%s' has no network",
			      pool->policy.name);
	return 0;
}

int sp_os_choose_pool(const struct sp_config *config, const struct sp_os_create *create,
		      const struct sp_config_pool **ret_pool, struct sp_os_refusal *ret_refusal)
{
	const struct sp_config_pool *pool = create->pool ? pool_named(config, create->pool)
							 : pool_of_image(config, create->image);
	int status;

	if (!pool && create->pool)
		return refuse(ret_refusal, "extensions.poolRef: there is no pool '%.80s'",
			      create->pool);
	if (!pool)
		return refuse(ret_refusal,
			      "image: no pool has '%.200s' among its images, or a pattern for it",
			      create->image);
	status = check_limits(pool, create, ret_refusal);
	if (status == 0)
		status = check_times(pool, create, ret_refusal);
	if (status == 0)
		status = check_network(pool, create, ret_refusal);
	if (status == 0)
		*ret_pool = pool;
	return status;
}
