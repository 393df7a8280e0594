/*
 * Runs seeds: `sim [--seeds N] [--first S] [--verbose]`. Ends with 1 and the seed at the first
 * broken invariant; `sim --first SEED --seeds 1 --verbose` shows the way there.
 *
 * One step: something happens (a client arrives, the operator acts, time passes or jumps), then
 * everything that is due runs, then all invariants are checked.
 */
#include "sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS          900
#define SEEDS_DEFAULT  2000
#define TICKS_PER_STEP 4000 /* more without time passing is a spin */
#define QUIET_MS       (3 * 60 * SP_MS_PER_S)
#define RELOAD_MS      (2 * SP_MS_PER_S)
#define DRAIN_MS       (10 * 60 * SP_MS_PER_S)

static uint64_t current_seed;

void sim_fail(const struct world *world, const char *format, ...)
{
	va_list args;

	(void)fflush(stdout);
	(void)fprintf(stderr, "seed %llu, %lld ms: ", (unsigned long long)current_seed,
		      (long long)world->now);
	va_start(args, format);
	(void)vfprintf(stderr, format, args);
	va_end(args);
	(void)fprintf(stderr, "\n");
	exit(1);
}

void sim_say(const struct world *world, const char *format, ...)
{
	va_list args;

	if (!world->verbose)
		return;
	(void)printf("%10lld  ", (long long)world->now);
	va_start(args, format);
	(void)vprintf(format, args);
	va_end(args);
	(void)printf("\n");
	(void)fflush(stdout);
}

uint64_t sim_random(struct world *world, uint64_t bound)
{
	uint64_t mixed = world->random += UINT64_C(0x9e3779b97f4a7c15);

	mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
	return (mixed ^ mixed >> 31) % bound;
}

bool sim_chance(struct world *world, uint32_t per_mille)
{
	return sim_random(world, 1000) < per_mille;
}

int64_t sim_between(struct world *world, int64_t low, int64_t high)
{
	return low + (int64_t)sim_random(world, (uint64_t)(high - low) + 1);
}

void sim_schedule(struct world *world, struct event *event, int64_t at)
{
	SIM_EXPECT(world, sp_heap_reserve(&world->events, world->events.count + 1) == 0,
		   "out of memory");
	sp_heap_set(&world->events, &event->node, at);
}

void sim_unschedule(struct world *world, struct event *event)
{
	sp_heap_remove(&world->events, &event->node);
}

static bool run_event(struct world *world)
{
	struct sp_heap_node *first = sp_heap_first(&world->events);
	struct event *event;

	if (!first || first->key > world->now)
		return false;
	event = SP_CONTAINER_OF(first, struct event, node);
	sp_heap_remove(&world->events, first);
	event->run(world, event);
	return true;
}

static bool run_tick(struct world *world)
{
	bool ran = false;

	for (size_t i = 0; i < world->place_count; i++) {
		struct sp_pool *pool = world->places[i].pool;

		if (sp_pool_next_wakeup_ms(pool) > world->now)
			continue;
		sp_pool_tick(pool, world->now);
		sp_pool_check(pool, world->now);
		ran = true;
	}
	return ran;
}

/* Events and ticks in any order, until nothing is due. */
static void run_due(struct world *world)
{
	for (uint32_t rounds = 0;; rounds++) {
		bool ran = sim_chance(world, 500) ? run_event(world) || run_tick(world)
						  : run_tick(world) || run_event(world);

		if (!ran)
			return;
		SIM_EXPECT(world, rounds < TICKS_PER_STEP, "the pool asks for ticks without end");
	}
}

static int64_t next_due(const struct world *world)
{
	struct sp_heap_node *first = sp_heap_first(&world->events);
	int64_t next = first ? first->key : INT64_MAX;

	for (size_t i = 0; i < world->place_count; i++)
		next = SP_MIN(next, sp_pool_next_wakeup_ms(world->places[i].pool));
	return next;
}

/* Let time pass to the next thing that is due, at most to `until`. */
static void pass(struct world *world, int64_t until)
{
	int64_t next = SP_MAX(next_due(world), world->now);

	world->now = SP_MIN(next, until);
	run_due(world);
	sim_check(world);
}

static void pass_all(struct world *world, int64_t span_ms)
{
	int64_t until = world->now + span_ms;

	while (world->now < until)
		pass(world, until);
}

static void step(struct world *world)
{
	uint64_t dice = sim_random(world, 100);

	if (dice < 40) {
		client_arrives(world);
	} else if (dice < 46) {
		operator_acts(world);
	} else if (dice < 48) {
		/* The machine slept: everything is late at once. */
		world->now += sim_between(world, 1, 10 * 60 * SP_MS_PER_S);
		sim_say(world, "-- suspended");
	} else {
		pass(world, world->now + sim_between(world, 0, 3000));
		return;
	}
	if (sim_chance(world, 600))
		run_due(world);
	else
		return; /* the daemon is busy: the tick comes late */
	sim_check(world);
}

static void make_faults(struct world *world)
{
	struct faults *faults = &world->faults;
	bool harsh = sim_chance(world, 400);

	faults->refuse = (uint32_t)sim_random(world, harsh ? 200 : 20);
	faults->fail = (uint32_t)sim_random(world, harsh ? 500 : 50);
	faults->permanent = (uint32_t)sim_random(world, harsh ? 60 : 5);
	faults->hang = (uint32_t)sim_random(world, harsh ? 150 : 10);
	faults->die = (uint32_t)sim_random(world, harsh ? 600 : 100);
	faults->lose_kill = (uint32_t)sim_random(world, harsh ? 600 : 50);
	faults->create_ms = sim_between(world, 1, harsh ? 4000 : 300);
	faults->kill_ms = sim_between(world, 0, harsh ? 8000 : 100);
}

static void open_place(struct world *world, struct place *place, size_t number)
{
	struct sp_pool_ports ports = {
		.backend = &sim_backend,
		.backend_arg = place,
		.store = world->store,
		.events = &sim_events,
		.events_arg = place,
	};
	struct sp_err err;

	place->world = world;
	sp_list_init(&place->boxes);
	(void)snprintf(place->config.name, sizeof(place->config.name), "pool-%zu", number);
	operator_configure(place);
	SIM_EXPECT(world,
		   sp_pool_new(&place->config, &ports, sim_random(world, UINT64_MAX), &place->pool,
			       &err) == 0,
		   "%s", err.message);
	place->config = *sp_pool_config(place->pool);
	place->max_idle = place->config.max_idle;
	place->max_total = place->config.max_total;
	SIM_EXPECT(world, sp_pool_start(place->pool, world->now, &err) == 0, "%s", err.message);
}

static bool roomy(const struct place *place)
{
	return place->max_total == 0 || place->max_total > 2 * place->max_idle;
}

static bool fast(const struct place *place)
{
	return place->config.create_rate <= 0 &&
	       place->config.warmup_concurrency >= place->max_idle;
}

/* Everything works again and nobody asks: pools are full. */
static void expect_full(const struct world *world, const struct place *place)
{
	struct sp_pool_snapshot snapshot;

	sp_pool_snapshot(place->pool, world->now, &snapshot);
	if (place->destroyed)
		return;
	/* With nothing to create there is no success that could end a degradation. */
	SIM_EXPECT(world,
		   snapshot.lifecycle == SP_POOL_LIFE_RUNNING &&
			   ((!snapshot.degraded && !snapshot.circuit_open) || place->max_idle == 0),
		   "%s did not recover: %s", place->config.name, snapshot.last_error);
	SIM_EXPECT(world, snapshot.leased == 0, "%s still has leases", place->config.name);
	if (roomy(place))
		SIM_EXPECT(world,
			   snapshot.idle + snapshot.creating >=
				   (fast(place) ? place->max_idle : SP_MIN(place->max_idle, 1U)),
			   "%s has %u idle and %u creating, wants %u", place->config.name,
			   snapshot.idle, snapshot.creating, place->max_idle);
}

/* A reload reaches every sandbox that nobody holds. */
static void expect_one_spec(const struct world *world, const struct place *place)
{
	if (!fast(place))
		return;
	SP_LIST_FOREACH (link, &place->boxes) {
		const struct box *box = SP_CONTAINER_OF(link, struct box, link);

		SIM_EXPECT(world, box->ended || box->generation == place->config.spec_generation,
			   "%s is still of generation %llu", box->sandbox->id,
			   (unsigned long long)box->generation);
	}
}

/* Make before break: what is near its end is replaced in time. */
static void expect_no_gap(const struct world *world, const struct place *place)
{
	struct sp_pool_snapshot snapshot;

	if (place->destroyed || !roomy(place) || !fast(place) ||
	    place->config.refresh_margin_ms == 0)
		return;
	sp_pool_snapshot(place->pool, world->now, &snapshot);
	SIM_EXPECT(world, snapshot.idle == place->max_idle,
		   "%s has %u idle of %u while all is well", place->config.name, snapshot.idle,
		   place->max_idle);
}

/* Let it pass while nothing is wrong: no pool may ever be short. */
static void pass_without_gap(struct world *world, int64_t span_ms)
{
	int64_t until = world->now + span_ms;

	while (world->now < until) {
		pass(world, until);
		for (size_t i = 0; i < world->place_count; i++)
			expect_no_gap(world, &world->places[i]);
	}
}

static void calm_down(struct world *world)
{
	struct sp_err err;

	world->quiet = true;
	world->faults = (struct faults){.create_ms = 20, .kill_ms = 20};
	for (size_t i = 0; i < world->place_count; i++)
		if (!world->places[i].destroyed)
			SIM_EXPECT(world,
				   sp_pool_start(world->places[i].pool, world->now, &err) == 0,
				   "%s", err.message);
	pass_all(world, QUIET_MS);
	pass_without_gap(world, QUIET_MS);
	for (size_t i = 0; i < world->place_count; i++)
		operator_reloads(&world->places[i]);
	/* A new spec breaks before it makes: nothing old may be handed out. */
	pass_all(world, RELOAD_MS);
	for (size_t i = 0; i < world->place_count; i++) {
		expect_full(world, &world->places[i]);
		expect_one_spec(world, &world->places[i]);
	}
}

static void close_place(struct world *world, struct place *place)
{
	struct sp_pool_snapshot snapshot;

	sp_pool_snapshot(place->pool, world->now, &snapshot);
	SIM_EXPECT(world,
		   snapshot.creating + snapshot.idle + snapshot.leased + snapshot.killing == 0 &&
			   snapshot.waiters == 0 && sp_list_empty(&place->boxes),
		   "%s did not come to nothing", place->config.name);
	SIM_EXPECT(world, sp_pool_next_wakeup_ms(place->pool) == INT64_MAX,
		   "%s is empty and shut down, and wants a tick", place->config.name);
	sp_pool_free(place->pool);
}

static void run_seed(struct world *world, uint64_t seed, bool verbose)
{
	memset(world, 0, sizeof(*world));
	current_seed = seed;
	world->random = seed * UINT64_C(0x2545f4914f6cdd1d) + 1;
	world->verbose = verbose;
	world->now = 1000;
	sp_heap_init(&world->events);
	SIM_EXPECT(world, sp_memory_store_new(&world->store, NULL) == 0, "out of memory");
	make_faults(world);
	world->place_count = (size_t)sim_between(world, 2, SIM_POOLS_MAX);
	for (size_t i = 0; i < world->place_count; i++)
		open_place(world, &world->places[i], i);
	for (uint32_t i = 0; i < STEPS; i++)
		step(world);
	run_due(world);
	sim_check(world);
	if (sim_chance(world, 700))
		calm_down(world);
	world->quiet = true;
	for (size_t i = 0; i < world->place_count; i++)
		sp_pool_shutdown(world->places[i].pool, world->now);
	pass_all(world, DRAIN_MS);
	for (size_t i = 0; i < world->place_count; i++)
		close_place(world, &world->places[i]);
	sp_heap_done(&world->events);
	world->store->ops->free(world->store);
}

static uint64_t number(const char *text)
{
	char *end;
	unsigned long long value = text ? strtoull(text, &end, 10) : 0;

	if (!text || *text == '\0' || *end != '\0') {
		(void)fprintf(stderr, "usage: sim [--seeds N] [--first S] [--verbose]\n");
		exit(2);
	}
	return value;
}

int main(int argc, char **argv)
{
	static struct world world;
	uint64_t seeds = SEEDS_DEFAULT;
	uint64_t first = 1;
	uint64_t totals[4] = {0};
	bool verbose = false;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--verbose") == 0)
			verbose = true;
		else if (strcmp(argv[i], "--seeds") == 0)
			seeds = number(argv[++i]);
		else if (strcmp(argv[i], "--first") == 0)
			first = number(argv[++i]);
		else
			(void)number(NULL);
	}
	for (uint64_t seed = first; seed < first + seeds; seed++) {
		run_seed(&world, seed, verbose);
		totals[0] += world.creations;
		totals[1] += world.grants;
		totals[2] += world.timeouts;
		totals[3] += world.ends;
	}
	(void)printf("%llu seeds: %llu creations, %llu grants, %llu timeouts, %llu ends; all "
		     "invariants held\n",
		     (unsigned long long)seeds, (unsigned long long)totals[0],
		     (unsigned long long)totals[1], (unsigned long long)totals[2],
		     (unsigned long long)totals[3]);
	return 0;
}
