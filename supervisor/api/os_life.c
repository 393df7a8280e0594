/*
 * How long a sandbox of the OpenSandbox API lives.
 *
 * The pool holds the deadline that fires whatever happens, the end of the lease; it only ever moves
 * on, and never further than max_lease from now. Two things that this API has do not fit it and are
 * kept here, looked at once a second: an end that was moved back, and a sandbox without one, whose
 * lease is renewed while this daemon lives. If the daemon does not, the lease ends.
 *
 * Ends that are the pool's own (expiry, death, drain) are reported by the service.
 */
#include "supervisor/api/os_lifecycle.h"

#include "pool/base/clock.h"
#include "pool/base/log.h"

#include <errno.h>

/* A renewal by use moves the end by at least this much: not one for every request. */
#define EXTEND_STEP_MS SP_MS_PER_S

void sp_os_release(struct sp_api *api, struct sp_os_sandbox *os)
{
	const struct sp_caller caller = sp_os_caller(os);

	/* One that is gone already is what was wanted. */
	(void)sp_service_release(api->service, &caller, os->id, NULL);
	sp_os_end(os);
}

static int renew_lease(struct sp_api *api, struct sp_os_sandbox *os, int64_t ttl_ms,
		       struct sp_err *err)
{
	const struct sp_caller caller = sp_os_caller(os);
	struct sp_sandbox_info info = {0};
	int status = sp_service_renew(api->service, &caller, os->id, ttl_ms, &info, err);

	if (status == 0)
		os->lease_end_ms = info.sandbox->expires_ms;
	return status;
}

int sp_os_set_end(struct sp_api *api, struct sp_os_sandbox *os, int64_t expires_ms,
		  struct sp_err *err)
{
	int status = 0;

	if (expires_ms > os->lease_end_ms)
		status = renew_lease(api, os, expires_ms - sp_clock_boot_ms(), err);
	if (status == 0)
		os->expires_ms = expires_ms;
	return status;
}

void sp_os_used(struct sp_api *api, struct sp_os_sandbox *os)
{
	int64_t end_ms = sp_clock_boot_ms() + os->extend_ms;
	struct sp_err err = {0};

	if (os->extend_ms == 0 || os->expires_ms == INT64_MAX ||
	    end_ms < os->expires_ms + EXTEND_STEP_MS)
		return;
	if (sp_os_set_end(api, os, end_ms, &err) < 0)
		sp_log(SP_LOG_WARN, "use did not extend a sandbox's life", "uuid=%s error=\"%s\"",
		       os->uuid, err.message);
}

/* The lease of one without an end, in good time before its own. */
static void keep_alive(struct sp_api *api, struct sp_os_sandbox *os, int64_t now_ms)
{
	const struct sp_caller caller = sp_os_caller(os);
	struct sp_sandbox_info info = {0};
	struct sp_pool_info pool;
	struct sp_err err = {0};
	int64_t max_ms;

	if (sp_service_inspect(api->service, &caller, os->id, &info, &err) < 0 ||
	    sp_service_pool(api->service, info.pool, &pool, &err) < 0)
		return; /* its end is on its way */
	max_ms = pool.config->policy.max_lease_ms;
	os->lease_end_ms = info.sandbox->expires_ms;
	if (os->lease_end_ms - now_ms > max_ms / 2)
		return;
	if (renew_lease(api, os, max_ms, &err) < 0)
		sp_log(SP_LOG_WARN, "lease of a sandbox without an end not renewed",
		       "uuid=%s error=\"%s\"", os->uuid, err.message);
}

void sp_os_sweep(struct sp_api *api)
{
	int64_t now_ms = sp_clock_boot_ms();

	SP_LIST_FOREACH_SAFE (link, following, sp_os_table_list(api->os)) {
		struct sp_os_sandbox *os = SP_CONTAINER_OF(link, struct sp_os_sandbox, link);

		sp_isolated_sweep(os, now_ms);
		if (os->expires_ms == INT64_MAX)
			keep_alive(api, os, now_ms);
		else if (os->expires_ms <= now_ms)
			sp_os_release(api, os);
	}
}

void sp_os_on_end(void *arg, const char *id, enum sp_end_reason reason)
{
	struct sp_api *api = arg;
	struct sp_os_sandbox *os = sp_os_find_by_id(api->os, id);

	if (!os)
		return;
	sp_log(SP_LOG_INFO, "sandbox ended", "uuid=%s sandbox=%s reason=%s", os->uuid, id,
	       sp_end_reason_name(reason));
	os->died = reason == SP_END_DIED || reason == SP_END_DISCARDED;
	sp_os_end(os);
}
