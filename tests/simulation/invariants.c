/*
 * What must hold after every step when everything that is due has run (DESIGN.md section 9), judged
 * by the world's own books.
 */
#include "sim.h"

#define KILL_RETRY_MAX_MS (60 * SP_MS_PER_S)

struct census {
	uint32_t creating, idle, leased, killing;
	uint32_t replaced; /* of idle: due for replacement, so that one more may be in the making */
};

static bool is_idle(const struct box *box)
{
	return box->ready && !box->ended && !box->holder;
}

bool sim_dispensable(const struct place *place, int64_t minimum_ms)
{
	struct sp_pool_snapshot snapshot;

	sp_pool_snapshot(place->pool, place->world->now, &snapshot);
	if (snapshot.lifecycle != SP_POOL_LIFE_RUNNING)
		return false;
	SP_LIST_FOREACH (link, &place->boxes) {
		const struct box *box = SP_CONTAINER_OF(link, struct box, link);

		if (is_idle(box) && box->sandbox->expires_ms - place->world->now > minimum_ms)
			return true;
	}
	return false;
}

static void check_idle(struct world *world, const struct place *place, const struct box *box,
		       struct census *census)
{
	const struct sp_pool_config *config = &place->config;
	int64_t remaining = box->sandbox->expires_ms - world->now;

	census->idle++;
	SIM_EXPECT(world, box->state == BOX_ALIVE, "%s is idle and dead", box->sandbox->id);
	SIM_EXPECT(world, remaining > config->acquire_min_remaining_ttl_ms,
		   "%s is idle with %lld ms left and was not reaped", box->sandbox->id,
		   (long long)remaining);
	SIM_EXPECT(world, box->generation == config->spec_generation,
		   "%s is idle and of an old generation", box->sandbox->id);
	if (remaining <= config->acquire_min_remaining_ttl_ms + config->refresh_margin_ms)
		census->replaced++;
}

static void check_killing(struct world *world, const struct place *place, const struct box *box)
{
	int64_t quiet_ms = world->now - (box->kill_asked ? box->kill_ms : box->ended_ms);

	SIM_EXPECT(world, box->kill_asked || box->self_ended,
		   "%s has ended, and nobody asked for the kill", box->sandbox->id);
	SIM_EXPECT(world, quiet_ms <= KILL_RETRY_MAX_MS,
		   "%s is neither gone nor asked for again for %lld ms", box->sandbox->id,
		   (long long)quiet_ms);
	SP_UNUSED(place);
}

static void check_box(struct world *world, const struct place *place, const struct box *box,
		      struct census *census)
{
	if (box->ended) {
		census->killing++;
		check_killing(world, place, box);
	} else if (box->holder) {
		census->leased++;
		SIM_EXPECT(world, world->now < box->holder->end_ms, "the lease of %s has no end",
			   box->sandbox->id);
	} else if (box->ready) {
		check_idle(world, place, box, census);
	} else {
		census->creating++;
		SIM_EXPECT(world,
			   world->now < box->sandbox->created_ms +
						   place->config.create_timeout_ms ||
				   box->sandbox->created_ms + 60000 > world->now,
			   "%s is created for ever", box->sandbox->id);
	}
}

static uint32_t waiting(const struct world *world, const struct place *place)
{
	uint32_t count = 0;

	for (size_t i = 0; i < world->client_count; i++) {
		const struct client *client = &world->clients[i];

		if (client->place != place)
			continue;
		for (size_t slot = 0; slot < SP_ARRAY_SIZE(client->pending); slot++) {
			if (!client->pending[slot])
				continue;
			count++;
			SIM_EXPECT(world, world->now < client->deadline_ms[slot],
				   "a waiter has no end");
		}
	}
	return count;
}

static void check_place(struct world *world, struct place *place)
{
	struct sp_pool_snapshot snapshot;
	struct census census = {0};
	uint32_t waiters = waiting(world, place);

	sp_pool_check(place->pool, world->now);
	SP_LIST_FOREACH (link, &place->boxes)
		check_box(world, place, SP_CONTAINER_OF(link, struct box, link), &census);
	sp_pool_snapshot(place->pool, world->now, &snapshot);
	/* P-026 */
	SIM_EXPECT(world,
		   snapshot.creating == census.creating && snapshot.idle == census.idle &&
			   snapshot.leased == census.leased && snapshot.killing == census.killing &&
			   snapshot.waiters == waiters,
		   "%s counts %u/%u/%u/%u and %u waiters, there are %u/%u/%u/%u and %u",
		   place->config.name, snapshot.creating, snapshot.idle, snapshot.leased,
		   snapshot.killing, snapshot.waiters, census.creating, census.idle, census.leased,
		   census.killing, waiters);
	SIM_EXPECT(world, snapshot.idle_expired == 0, "%s has expired idle ones after a tick",
		   place->config.name);
	SIM_EXPECT(world,
		   snapshot.max_idle == place->max_idle && snapshot.max_total == place->max_total,
		   "%s has sizes %u, %u, not %u, %u", place->config.name, snapshot.max_idle,
		   snapshot.max_total, place->max_idle, place->max_total);
	SIM_EXPECT(world, census.idle <= place->max_idle + waiters,
		   "%s has %u idle, max_idle is %u", place->config.name, census.idle,
		   place->max_idle);
	SIM_EXPECT(world,
		   census.idle + census.creating <= place->max_idle + waiters + census.replaced,
		   "%s has %u idle + %u creating, max_idle %u + %u waiters + %u to be replaced",
		   place->config.name, census.idle, census.creating, place->max_idle, waiters,
		   census.replaced);
	SIM_EXPECT(world, census.creating <= place->most_warming + place->most_direct,
		   "%s creates %u at once", place->config.name, census.creating);
}

void sim_check(struct world *world)
{
	for (size_t i = 0; i < world->place_count; i++)
		check_place(world, &world->places[i]);
}
