/*
 * The simulated world: pools on one memory store, a virtual kernel that delays, fails and loses
 * sandboxes, clients that ask, use, forget and vanish, an operator. All randomness comes from one
 * seed and all time from one counter, so every run can be repeated.
 *
 * The world keeps its own books (struct box, struct client) from what it was told through the
 * ports, and compares them with what the pool does; it never reads the pool's tables.
 */
#ifndef SP_SIMULATION_SIM_H
#define SP_SIMULATION_SIM_H

#include "pool/base/heap.h"
#include "pool/base/list.h"
#include "pool/pool.h"
#include "pool/store.h"

#include <errno.h>

#define SIM_POOLS_MAX           4
#define SIM_CLIENTS_MAX         600
#define SIM_IDLE_TIMEOUT_MIN_MS 20000 /* shortest that is configured */

struct world;

struct event {
	struct sp_heap_node node;
	void (*run)(struct world *world, struct event *event);
};

enum box_state { BOX_MAKING, BOX_ALIVE, BOX_DYING };

/* The virtual kernel's side of a sandbox. */
struct box {
	struct sp_list link;
	struct place *place;
	struct sp_sandbox *sandbox;
	enum box_state state;
	bool ready;      /* created was told */
	bool ended;      /* the pool said that it ends */
	bool self_ended; /* it was us who said so: died, or the creation failed */
	bool kill_asked;
	int64_t ready_ms;
	int64_t ended_ms;
	int64_t kill_ms; /* asked last */
	uint32_t kills;
	uint64_t generation;
	struct client *holder;
	struct event life; /* ready, failed, or dies */
	struct event gone;
};

/* A pool and what the world knows of it. */
struct place {
	struct world *world;
	struct sp_pool *pool;
	struct sp_pool_config config;       /* the one in force */
	uint32_t max_idle, max_total;       /* after the operator's resizes */
	uint32_t most_warming, most_direct; /* by any configuration that it had */
	bool destroyed;
	struct sp_list boxes;
	int64_t permanent_until_ms; /* creations fail permanently until then */
};

enum client_state { CLIENT_NEW, CLIENT_WAITING, CLIENT_HOLDING, CLIENT_DONE };

/* A client is its lease: one for each lease id. */
struct client {
	struct world *world;
	struct place *place;
	struct sp_acquire_request request;
	enum client_state state;
	struct sp_acquire *pending[2]; /* the second asks with the same lease id */
	int64_t deadline_ms[2];
	char sandbox_id[SP_SANDBOX_ID_LEN + 1]; /* "" before the grant; stays for ever */
	struct box *box;                        /* NULL: gone, or none yet */
	bool claimed;
	bool over; /* its sandbox ended */
	int64_t over_ms;
	int64_t life_ms; /* after the claim */
	int64_t end_ms;  /* of the lease, by the rules of pool.h */
	struct event act;
};

struct faults {
	uint32_t refuse, fail, permanent, hang, die, lose_kill; /* per mille */
	int64_t create_ms, kill_ms;                             /* longest usual */
};

struct world {
	uint64_t random;
	bool verbose;
	int64_t now;
	struct sp_store *store;
	struct place places[SIM_POOLS_MAX];
	size_t place_count;
	struct client clients[SIM_CLIENTS_MAX];
	size_t client_count;
	struct sp_heap events;
	struct faults faults;
	bool asking; /* inside of an acquire or a claim: nothing may be killed or called back */
	bool quiet;  /* the end of the run: nobody asks, nothing fails */
	uint64_t grants, ends, timeouts, creations;
};

/* sim.c */
void sim_fail(const struct world *world, const char *format, ...)
	__attribute__((format(printf, 2, 3), noreturn));
void sim_say(const struct world *world, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
uint64_t sim_random(struct world *world, uint64_t bound);
bool sim_chance(struct world *world, uint32_t per_mille);
int64_t sim_between(struct world *world, int64_t low, int64_t high);
void sim_schedule(struct world *world, struct event *event, int64_t at);
void sim_unschedule(struct world *world, struct event *event);

#define SIM_EXPECT(world, condition, ...)               \
	do {                                            \
		if (!(condition))                       \
			sim_fail((world), __VA_ARGS__); \
	} while (0)

/* kernel.c */
extern const struct sp_backend_ops sim_backend;
extern const struct sp_pool_events sim_events;

/* clients.c */
void client_arrives(struct world *world);
/* The box of a client ended. */
void client_lost(struct client *client, enum sp_end_reason reason);
bool client_pending(const struct client *client);

/* operators.c */
void operator_configure(struct place *place);
void operator_acts(struct world *world);
/* The same configuration with another spec. */
void operator_reloads(struct place *place);

/* invariants.c */
void sim_check(struct world *world);
/* Is there one that a client with this minimum must be given? */
bool sim_dispensable(const struct place *place, int64_t minimum_ms);

#endif
