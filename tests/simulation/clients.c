/*
 * The clients. Each one draws a lease id, asks, and then does some of: ask again, wait, cancel,
 * claim, renew, release, vanish. It knows by the rules of pool.h what every answer has to be.
 */
#include "sim.h"

#include <stdio.h>
#include <string.h>

static int64_t minimum_of(const struct client *client)
{
	return client->request.min_remaining_ms < 0
		       ? client->place->config.acquire_min_remaining_ttl_ms
		       : client->request.min_remaining_ms;
}

bool client_pending(const struct client *client)
{
	return client->pending[0] || client->pending[1];
}

static void act_later(struct client *client)
{
	if (!client->world->quiet)
		sim_schedule(client->world, &client->act,
			     client->world->now + sim_between(client->world, 0, 20000));
}

static int64_t first_end(const struct client *client)
{
	const struct sp_pool_config *config = &client->place->config;
	int64_t life = SP_MIN(client->life_ms, config->max_lease_ms);

	if (config->claim_timeout_ms > 0)
		life = SP_MIN(life, config->claim_timeout_ms);
	return client->world->now + life;
}

static void check_new_grant(struct client *client, const struct sp_acquire_result *result)
{
	struct world *world = client->world;
	const struct sp_pool_config *config = &client->place->config;
	struct box *box = result->sandbox->backend_data;
	int64_t longest = box->ready_ms + config->idle_timeout_ms - world->now;

	SIM_EXPECT(world, !box->holder, "%s is given to a second lease", box->sandbox->id);
	SIM_EXPECT(world, client->sandbox_id[0] == '\0', "a lease is given a second sandbox");
	SIM_EXPECT(world, box->ready && !box->ended && box->state == BOX_ALIVE,
		   "%s is handed out and is not alive", box->sandbox->id);
	SIM_EXPECT(world, result->remaining_ms > minimum_of(client),
		   "%s is handed out with %lld ms, the minimum is %lld", box->sandbox->id,
		   (long long)result->remaining_ms, (long long)minimum_of(client));
	SIM_EXPECT(world, box->generation == config->spec_generation,
		   "%s is handed out and is of an old generation", box->sandbox->id);
	SIM_EXPECT(world, result->remaining_ms <= longest,
		   "%s is handed out with %lld ms, and cannot have more than %lld",
		   box->sandbox->id, (long long)result->remaining_ms, (long long)longest);
}

static void granted(struct client *client, const struct sp_acquire_result *result)
{
	struct world *world = client->world;
	struct box *box = result->sandbox->backend_data;

	sim_say(world, "client %zd holds %s%s", client - world->clients, result->sandbox->id,
		result->repeated ? " (again)" : "");
	if (result->repeated) {
		SIM_EXPECT(world,
			   strcmp(client->sandbox_id, result->sandbox->id) == 0 ||
				   client->sandbox_id[0] == '\0',
			   "a repeated acquire gives another sandbox");
		if (client->sandbox_id[0] != '\0')
			return;
	}
	check_new_grant(client, result);
	world->grants++;
	memcpy(client->sandbox_id, result->sandbox->id, sizeof(client->sandbox_id));
	client->box = box;
	box->holder = client;
	client->state = CLIENT_HOLDING;
	client->life_ms =
		client->request.ttl_ms > 0 ? client->request.ttl_ms : result->remaining_ms;
	client->end_ms = first_end(client);
	SIM_EXPECT(world, result->sandbox->expires_ms == client->end_ms,
		   "the lease of %s ends at %lld, not at %lld", box->sandbox->id,
		   (long long)result->sandbox->expires_ms, (long long)client->end_ms);
	act_later(client);
}

static bool means_running(enum sp_code code)
{
	return code == SP_CODE_POOL_EMPTY || code == SP_CODE_POOL_SATURATED ||
	       code == SP_CODE_CREATE_FAILED || code == SP_CODE_ACQUIRE_TIMEOUT;
}

static void check_refusal(const struct client *client, enum sp_code code)
{
	struct world *world = client->world;
	struct sp_pool_snapshot snapshot;
	bool running;

	sp_pool_snapshot(client->place->pool, world->now, &snapshot);
	running = snapshot.lifecycle == SP_POOL_LIFE_RUNNING;
	if (means_running(code))
		SIM_EXPECT(world, running, "%s of a pool that is %s", sp_code_name(code),
			   sp_pool_lifecycle_name(snapshot.lifecycle));
	else if (code == SP_CODE_POOL_NOT_RUNNING)
		SIM_EXPECT(world, !running, "POOL_NOT_RUNNING of a pool that runs");
	else if (code == SP_CODE_POOL_DESTROYED)
		SIM_EXPECT(world, client->place->destroyed, "POOL_DESTROYED of a living pool");
	else if (code == SP_CODE_LEASE_ENDED)
		SIM_EXPECT(world, client->over, "LEASE_ENDED of a lease that lives");
	else
		sim_fail(world, "an acquire was answered %s", sp_code_name(code));
}

static void answered(struct client *client, size_t slot, const struct sp_acquire_result *result,
		     const struct sp_err *err)
{
	struct world *world = client->world;

	SIM_EXPECT(world, !world->asking, "a callback on a caller's path");
	SIM_EXPECT(world, client->pending[slot], "a callback of an acquire that is over");
	client->pending[slot] = NULL;
	if (!err) {
		SIM_EXPECT(world, result->waited, "a queued grant that did not wait");
		SIM_EXPECT(world, client->deadline_ms[slot] > world->now,
			   "a waiter past its deadline was given a sandbox");
		granted(client, result);
		/* Callbacks may call in again. */
		if (sim_chance(world, 150) && client->box && !client->box->ended)
			sp_pool_release(client->place->pool, client->box->sandbox, world->now);
		if (sim_chance(world, 150))
			client_arrives(world);
		return;
	}
	sim_say(world, "client %zd: %s", client - world->clients, err->message);
	world->timeouts += sp_err_client_code(err) == SP_CODE_ACQUIRE_TIMEOUT;
	if (sp_err_client_code(err) == SP_CODE_ACQUIRE_TIMEOUT)
		SIM_EXPECT(world, client->deadline_ms[slot] <= world->now, "a timeout too early");
	if (client->state == CLIENT_WAITING && !client_pending(client))
		client->state = CLIENT_DONE;
}

static void on_first(void *arg, const struct sp_acquire_result *result, const struct sp_err *err)
{
	answered(arg, 0, result, err);
}

static void on_second(void *arg, const struct sp_acquire_result *result, const struct sp_err *err)
{
	answered(arg, 1, result, err);
}

static void ask(struct client *client)
{
	struct world *world = client->world;
	struct place *place = client->place;
	size_t slot = client->pending[0] ? 1 : 0;
	bool must_hit = client->sandbox_id[0] == '\0' && !client_pending(client) &&
			sim_dispensable(place, minimum_of(client));
	struct sp_acquire_result result;
	struct sp_err err;
	int status;

	/* After that long a lease id is a new one. */
	if (client->pending[slot] ||
	    (client->over && world->now - client->over_ms > SP_LEASE_TOMBSTONE_MS))
		return;
	world->asking = true;
	status = sp_pool_acquire(place->pool, &client->request, world->now,
				 slot == 0 ? on_first : on_second, client, &result,
				 &client->pending[slot], &err);
	world->asking = false;
	sim_say(world, "client %zd asks %s (%s): %s", client - world->clients, place->config.name,
		sp_acquire_policy_name(client->request.policy),
		status == 0   ? "granted"
		: status == 1 ? "queued"
			      : err.message);
	client->deadline_ms[slot] = world->now + client->request.wait_ms;
	if (status == 0)
		granted(client, &result);
	else if (status == 1)
		client->state = CLIENT_WAITING;
	else
		check_refusal(client, sp_err_client_code(&err));
	if (must_hit)
		SIM_EXPECT(world, status == 0, "an idle sandbox is there and is not given");
}

static bool lease_lives(const struct client *client)
{
	return client->box && !client->over && client->world->now < client->end_ms;
}

static void claim(struct client *client, struct sp_sandbox *sandbox)
{
	struct world *world = client->world;
	bool lives = lease_lives(client);
	struct sp_err err;
	int status;

	world->asking = true;
	status = sp_pool_claim(client->place->pool, sandbox, world->now, &err);
	world->asking = false;
	SIM_EXPECT(world, (status == 0) == lives, "a claim of %s was %s", sandbox->id,
		   status == 0 ? "accepted after its end" : err.message);
	if (status == 0 && !client->claimed) {
		client->claimed = true;
		client->end_ms =
			world->now + SP_MIN(client->life_ms, client->place->config.max_lease_ms);
	}
}

static void renew(struct client *client, struct sp_sandbox *sandbox)
{
	struct world *world = client->world;
	int64_t ttl = sim_between(world, 1, client->place->config.max_lease_ms);
	bool lives = lease_lives(client);
	int64_t expires = 0;
	struct sp_err err;
	int status;

	world->asking = true;
	status = sp_pool_renew(client->place->pool, sandbox, ttl, world->now, &expires, &err);
	world->asking = false;
	SIM_EXPECT(world, (status == 0) == lives, "a renewal of %s was %s", sandbox->id,
		   status == 0 ? "accepted after its end" : err.message);
	if (status < 0)
		return;
	if (!client->claimed)
		client->end_ms =
			world->now + SP_MIN(client->life_ms, client->place->config.max_lease_ms);
	client->claimed = true;
	client->end_ms = SP_MAX(client->end_ms, world->now + ttl);
	SIM_EXPECT(world, expires == client->end_ms, "renewed to %lld, not to %lld",
		   (long long)expires, (long long)client->end_ms);
}

static void use(struct client *client)
{
	struct world *world = client->world;
	struct sp_sandbox *sandbox = sp_pool_find(client->place->pool, client->sandbox_id);

	SIM_EXPECT(world, (sandbox != NULL) == (client->box != NULL), "%s is %s",
		   client->sandbox_id, sandbox ? "found and is gone" : "not found");
	if (!sandbox)
		return;
	switch (sim_random(world, 5)) {
	case 0:
	case 1:
		claim(client, sandbox);
		break;
	case 2:
		renew(client, sandbox);
		break;
	case 3:
		sp_pool_release(client->place->pool, sandbox, world->now);
		break;
	default:
		break;
	}
}

static void cancel(struct client *client)
{
	size_t slot = client->pending[0] ? 0 : 1;

	sim_say(client->world, "client %zd leaves the queue", client - client->world->clients);
	sp_acquire_cancel(client->pending[slot], client->world->now);
	client->pending[slot] = NULL;
}

static void acts(struct world *world, struct event *event)
{
	struct client *client = SP_CONTAINER_OF(event, struct client, act);

	if (sim_chance(world, 150))
		return; /* vanishes */
	if (sim_chance(world, 250))
		ask(client);
	else if (client_pending(client) && sim_chance(world, 400))
		cancel(client);
	else if (client->sandbox_id[0] != '\0')
		use(client);
	act_later(client);
}

void client_lost(struct client *client, enum sp_end_reason reason)
{
	struct world *world = client->world;

	if (reason == SP_END_UNCLAIMED)
		SIM_EXPECT(world, !client->claimed, "a claimed lease ends as unclaimed");
	if (reason == SP_END_EXPIRED || reason == SP_END_UNCLAIMED)
		SIM_EXPECT(world, world->now >= client->end_ms, "a lease ends %lld ms early",
			   (long long)(client->end_ms - world->now));
	client->over = true;
	client->over_ms = world->now;
	client->state = CLIENT_DONE;
}

void client_arrives(struct world *world)
{
	static const int64_t waits[] = {0, 1, 500, 5000, 30000};
	struct client *client = &world->clients[world->client_count];
	int64_t min_remaining = -1;

	if (world->quiet || world->client_count == SIM_CLIENTS_MAX)
		return;
	client->world = world;
	client->place = &world->places[sim_random(world, world->place_count)];
	if (sim_chance(world, 200))
		min_remaining = sim_between(world, 0, SIM_IDLE_TIMEOUT_MIN_MS - 1);
	client->request = (struct sp_acquire_request){
		.policy = (enum sp_acquire_policy)sim_random(world, SP_ACQUIRE_POLICY_COUNT),
		.wait_ms = waits[sim_random(world, SP_ARRAY_SIZE(waits))],
		.ttl_ms = sim_chance(world, 500) ? sim_between(world, 1, 100000) : 0,
		.min_remaining_ms = min_remaining,
		.newest_first = sim_chance(world, 200),
	};
	(void)snprintf(client->request.lease_id, sizeof(client->request.lease_id), "%064zx",
		       world->client_count++);
	client->act.run = acts;
	sp_heap_node_init(&client->act.node);
	ask(client);
	if (client_pending(client))
		act_later(client);
}
