/*
 * The virtual kernel behind the backend port: creations that succeed, fail, hang or are refused;
 * sandboxes that die in any state; kills that are slow, lost, or overtaken by a late answer.
 */
#include "sim.h"

#include <stdlib.h>

static void tell_gone(struct world *world, struct event *event)
{
	struct box *box = SP_CONTAINER_OF(event, struct box, gone);

	sim_say(world, "gone %s", box->sandbox->id);
	sp_pool_gone(box->place->pool, box->sandbox, world->now);
}

static void dies(struct world *world, struct event *event)
{
	struct box *box = SP_CONTAINER_OF(event, struct box, life);

	box->state = BOX_DYING;
	if (!box->ended)
		box->self_ended = true;
	if (sim_chance(world, 200)) {
		tell_gone(world, &box->gone);
		return;
	}
	sim_say(world, "died %s", box->sandbox->id);
	if (!sim_chance(world, world->faults.lose_kill) && !sp_heap_contains(&box->gone.node))
		sim_schedule(world, &box->gone,
			     world->now + sim_between(world, 0, world->faults.kill_ms));
	sp_pool_died(box->place->pool, box->sandbox, world->now);
}

static uint32_t idle_of(const struct place *place)
{
	struct sp_pool_snapshot snapshot;

	sp_pool_snapshot(place->pool, place->world->now, &snapshot);
	return snapshot.idle;
}

static void becomes_ready(struct world *world, struct event *event)
{
	struct box *box = SP_CONTAINER_OF(event, struct box, life);
	struct place *place = box->place;
	uint32_t before = idle_of(place);

	if (!box->ended) {
		box->state = BOX_ALIVE;
		box->ready = true;
		box->ready_ms = world->now;
		if (sim_chance(world, world->faults.die)) {
			box->life.run = dies;
			sim_schedule(world, &box->life,
				     world->now + sim_between(world, 0, 60 * SP_MS_PER_S));
		}
	}
	sim_say(world, "ready %s%s", box->sandbox->id, box->ended ? " (too late)" : "");
	sp_pool_created(place->pool, box->sandbox, world->now);
	SIM_EXPECT(world, idle_of(place) <= SP_MAX(before, place->max_idle),
		   "%s lets one become idle beyond max_idle %u", place->config.name,
		   place->max_idle);
}

static void fails(struct world *world, struct event *event)
{
	struct box *box = SP_CONTAINER_OF(event, struct box, life);
	bool permanent = world->now < box->place->permanent_until_ms;
	bool nothing_left = sim_chance(world, 500);
	struct sp_err err;

	if (!box->ended)
		box->self_ended = true;
	box->state = BOX_DYING;
	sim_say(world, "failed %s%s", box->sandbox->id, permanent ? " (permanently)" : "");
	(void)sp_err_set(&err, -EIO, "mount '/usr'");
	sp_pool_create_failed(box->place->pool, box->sandbox, "mount", permanent, &err, world->now);
	if (nothing_left)
		tell_gone(world, &box->gone);
}

static void plan_creation(struct world *world, struct box *box)
{
	int64_t at = world->now + sim_between(world, 0, world->faults.create_ms);

	if (sim_chance(world, world->faults.permanent))
		box->place->permanent_until_ms = world->now + sim_between(world, 1, 60000);
	if (sim_chance(world, world->faults.hang))
		return;
	if (!world->quiet &&
	    (world->now < box->place->permanent_until_ms || sim_chance(world, world->faults.fail)))
		box->life.run = fails;
	else
		box->life.run = becomes_ready;
	sim_schedule(world, &box->life, at);
}

static uint32_t boxes(const struct place *place)
{
	uint32_t count = 0;

	SP_LIST_FOREACH (link, &place->boxes)
		count++;
	return count;
}

static int create(void *arg, struct sp_sandbox *sandbox, struct sp_err *err)
{
	struct place *place = arg;
	struct world *world = place->world;
	struct sp_pool_snapshot snapshot;
	struct box *box;

	sp_pool_snapshot(place->pool, world->now, &snapshot);
	SIM_EXPECT(world, snapshot.lifecycle == SP_POOL_LIFE_RUNNING, "%s creates while %s",
		   place->config.name, sp_pool_lifecycle_name(snapshot.lifecycle));
	SIM_EXPECT(world, place->max_total == 0 || boxes(place) < place->max_total,
		   "%s creates beyond max_total %u", place->config.name, place->max_total);
	if (sim_chance(world, world->faults.refuse))
		return sp_err_set(err, -EAGAIN, "ask the launcher");
	box = calloc(1, sizeof(*box));
	SIM_EXPECT(world, box, "out of memory");
	box->place = place;
	box->sandbox = sandbox;
	box->generation = sandbox->spec_generation;
	box->gone.run = tell_gone;
	sp_heap_node_init(&box->life.node);
	sp_heap_node_init(&box->gone.node);
	sp_list_append(&place->boxes, &box->link);
	sandbox->backend_data = box;
	world->creations++;
	sim_say(world, "create %s in %s", sandbox->id, place->config.name);
	plan_creation(world, box);
	return 0;
}

static void kill_box(void *arg, struct sp_sandbox *sandbox)
{
	struct place *place = arg;
	struct world *world = place->world;
	struct box *box = sandbox->backend_data;

	SIM_EXPECT(world, !world->asking, "a kill on a caller's path");
	SIM_EXPECT(world, box->ended, "%s is killed without having ended", sandbox->id);
	box->kill_asked = true;
	box->kill_ms = world->now;
	box->kills++;
	sim_say(world, "kill %s (%s)", sandbox->id, sp_end_reason_name(sandbox->end_reason));
	/* A creation that is about to be answered may still be. */
	if (box->state != BOX_MAKING || sim_chance(world, 700))
		sim_unschedule(world, &box->life);
	box->state = BOX_DYING;
	if (sp_heap_contains(&box->gone.node))
		return;
	if (box->kills < 4 && sim_chance(world, world->faults.lose_kill))
		return;
	sim_schedule(world, &box->gone, world->now + sim_between(world, 0, world->faults.kill_ms));
}

static void forget(void *arg, struct sp_sandbox *sandbox)
{
	struct place *place = arg;
	struct box *box = sandbox->backend_data;

	if (box->holder)
		box->holder->box = NULL;
	sim_unschedule(place->world, &box->life);
	sim_unschedule(place->world, &box->gone);
	sp_list_remove(&box->link);
	free(box);
	sandbox->backend_data = NULL;
}

const struct sp_backend_ops sim_backend = {
	.create = create,
	.kill = kill_box,
	.forget = forget,
};

static void on_ended(void *arg, const struct sp_sandbox *sandbox, enum sp_end_reason reason)
{
	struct place *place = arg;
	struct world *world = place->world;
	struct box *box = sandbox->backend_data;

	SIM_EXPECT(world, !box->ended, "%s ends twice", sandbox->id);
	box->ended = true;
	box->ended_ms = world->now;
	world->ends++;
	sim_say(world, "end %s (%s)", sandbox->id, sp_end_reason_name(reason));
	if (reason == SP_END_DISCARDED || reason == SP_END_EXPIRED)
		SIM_EXPECT(world, box->ready, "%s ends as %s, and never was ready", sandbox->id,
			   sp_end_reason_name(reason));
	if (box->holder)
		client_lost(box->holder, reason);
}

const struct sp_pool_events sim_events = {.ended = on_ended};
