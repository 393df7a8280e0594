/*
 * The operator: random but valid configurations, resizes, drains, resumes, reloads, kills, and
 * now and then the end of a pool.
 */
#include "sim.h"

static int64_t one_of(struct world *world, const int64_t *values, size_t count)
{
	return values[sim_random(world, count)];
}

#define ONE_OF(world, ...)                              \
	one_of((world), (const int64_t[]){__VA_ARGS__}, \
	       sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

void operator_configure(struct place *place)
{
	struct world *world = place->world;
	struct sp_pool_config *config = &place->config;
	struct sp_pool_config fresh;

	sp_pool_config_defaults(&fresh);
	__builtin_memcpy(fresh.name, config->name, sizeof(fresh.name));
	fresh.spec_generation = config->spec_generation;
	*config = fresh;
	config->max_idle = (uint32_t)ONE_OF(world, 0, 1, 2, 3, 6);
	config->max_total = (uint32_t)ONE_OF(world, 0, 0, 1, 3, 5, 20);
	config->idle_timeout_ms = ONE_OF(world, SIM_IDLE_TIMEOUT_MIN_MS, 40000, 120000);
	config->acquire_min_remaining_ttl_ms = ONE_OF(world, -1, -1, 0, 1000, 15000);
	config->refresh_margin_ms = ONE_OF(world, -1, -1, 0, 1000);
	config->expiry_jitter_percent = (uint32_t)ONE_OF(world, 0, 10, 50);
	config->max_lease_ms = ONE_OF(world, 5000, 30000, 120000);
	config->claim_timeout_ms = ONE_OF(world, 0, 1000, 10000);
	config->warmup_concurrency = (uint32_t)ONE_OF(world, 1, 2, 6);
	config->create_rate = (double)ONE_OF(world, 0, 1, 10);
	config->create_burst = (uint32_t)ONE_OF(world, 0, 1, 3);
	config->create_timeout_ms = ONE_OF(world, 1000, 10000);
	config->backoff_initial_ms = ONE_OF(world, 100, 1000);
	config->backoff_max_ms = ONE_OF(world, 1000, 20000);
	config->degraded_threshold = (uint32_t)ONE_OF(world, 1, 3);
	config->max_waiters = (uint32_t)ONE_OF(world, 0, 1, 3, 50);
	config->max_direct_creates = (uint32_t)ONE_OF(world, 1, 2, 4);
	config->tick_ms = ONE_OF(world, 500, 1000);
	config->kill_retry_ms = ONE_OF(world, 100, 2000);
	config->drain_timeout_ms = ONE_OF(world, -1, 0, 5000);
	place->most_warming = SP_MAX(place->most_warming, config->warmup_concurrency);
	place->most_direct = SP_MAX(place->most_direct, config->max_direct_creates);
}

static void resize(struct place *place)
{
	struct world *world = place->world;
	int64_t max_idle = ONE_OF(world, -1, 0, 1, 4);
	int64_t max_total = ONE_OF(world, -1, -1, 0, 2, 8);
	struct sp_err err;
	int status;

	sim_say(world, "-- resize %s to %lld, %lld", place->config.name, (long long)max_idle,
		(long long)max_total);
	if (!place->destroyed && max_idle >= 0)
		place->max_idle = (uint32_t)max_idle;
	if (!place->destroyed && max_total >= 0)
		place->max_total = (uint32_t)max_total;
	status = sp_pool_resize(place->pool, max_idle, max_total, world->now, &err);
	SIM_EXPECT(world, (status < 0) == place->destroyed, "resize returned %d", status);
}

static void apply(struct place *place)
{
	struct world *world = place->world;
	struct sp_err err;

	sim_say(world, "-- reconfigure %s, generation %llu", place->config.name,
		(unsigned long long)place->config.spec_generation);
	SIM_EXPECT(world, sp_pool_config_resolve(&place->config, &err) == 0, "%s", err.message);
	place->max_idle = place->config.max_idle;
	place->max_total = place->config.max_total;
	SIM_EXPECT(world, sp_pool_reconfigure(place->pool, &place->config, world->now, &err) == 0,
		   "%s", err.message);
}

void operator_reloads(struct place *place)
{
	if (place->destroyed)
		return;
	/* A reload brings the configured sizes back: keep those that are in force. */
	place->config.max_idle = place->max_idle;
	place->config.max_total = place->max_total;
	place->config.spec_generation++;
	apply(place);
}

static void reconfigure(struct place *place)
{
	struct sp_pool_config before = place->config;

	if (place->destroyed)
		return;
	operator_configure(place);
	/* What bounds the life of an idle one changes only together with what it is made of. */
	if (sim_chance(place->world, 500)) {
		place->config.spec_generation++;
	} else {
		place->config.idle_timeout_ms = before.idle_timeout_ms;
		place->config.acquire_min_remaining_ttl_ms = before.acquire_min_remaining_ttl_ms;
		place->config.refresh_margin_ms = before.refresh_margin_ms;
	}
	apply(place);
}

static struct box *any_box(struct place *place)
{
	struct world *world = place->world;

	SP_LIST_FOREACH (link, &place->boxes)
		if (sim_chance(world, 300))
			return SP_CONTAINER_OF(link, struct box, link);
	return NULL;
}

static void discard(struct place *place)
{
	struct box *box = any_box(place);

	if (!box)
		return;
	sim_say(place->world, "-- discard %s", box->sandbox->id);
	sp_pool_end(place->pool, box->sandbox, SP_END_LEASE_LOST, place->world->now);
}

static void release_idle(struct place *place)
{
	struct sp_pool_snapshot before;
	uint32_t released;

	sp_pool_snapshot(place->pool, place->world->now, &before);
	released = sp_pool_release_idle(place->pool, place->world->now);
	sim_say(place->world, "-- release %u idle of %s", released, place->config.name);
	SIM_EXPECT(place->world, released == before.idle, "released %u of %u", released,
		   before.idle);
}

static void destroy(struct place *place)
{
	struct sp_err err;

	if (!sim_chance(place->world, 150))
		return;
	sim_say(place->world, "-- destroy %s", place->config.name);
	place->destroyed = true;
	SIM_EXPECT(place->world, sp_pool_destroy(place->pool, place->world->now, &err) == 0, "%s",
		   err.message);
}

/* Between any two steps of any client: P-153, P-154. */
void operator_acts(struct world *world)
{
	struct place *place = &world->places[sim_random(world, world->place_count)];
	struct sp_err err;

	switch (sim_random(world, 9)) {
	case 0:
	case 1:
		resize(place);
		break;
	case 2:
		reconfigure(place);
		break;
	case 3:
		sim_say(world, "-- drain %s", place->config.name);
		if (sim_chance(world, 300))
			sp_pool_leave_host(place->pool, world->now);
		else
			sp_pool_drain(place->pool, world->now);
		break;
	case 4:
	case 5:
		sim_say(world, "-- start %s", place->config.name);
		SIM_EXPECT(world,
			   (sp_pool_start(place->pool, world->now, &err) < 0) == place->destroyed,
			   "start of %s", place->config.name);
		break;
	case 6:
		discard(place);
		break;
	case 7:
		release_idle(place);
		break;
	default:
		destroy(place);
		break;
	}
}
