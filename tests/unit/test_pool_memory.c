/*
 * Out of memory is an error of the call, never of the process: the n-th allocation fails, for every
 * n, through the whole life of a pool.
 */
#include "pool_fixture.h"

void *__real_calloc(size_t count, size_t size);
void *__real_reallocarray(void *old, size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_reallocarray(void *old, size_t count, size_t size);

static long allocations_left = -1; /* negative: no limit */

static bool denied(void)
{
	return allocations_left >= 0 && allocations_left-- == 0;
}

void *__wrap_calloc(size_t count, size_t size)
{
	return denied() ? NULL : __real_calloc(count, size);
}

void *__wrap_reallocarray(void *old, size_t count, size_t size)
{
	return denied() ? NULL : __real_reallocarray(old, count, size);
}

/* Only the n-th one fails: allocations_left is negative again afterwards. */
static void deny(long number)
{
	allocations_left = number;
}

static bool denial_is_over(void)
{
	bool over = allocations_left < 0;

	allocations_left = -1;
	return over;
}

Test(memory, making_a_pool_fails_cleanly)
{
	bool reached = true;
	long n;

	for (n = 0; reached; n++) {
		struct fixture fix;
		struct sp_pool_ports ports = {.backend = &fixture_backend};
		struct sp_err err = {0};
		int status;

		fixture_init(&fix, 1);
		deny(n);
		status = sp_memory_store_new(&ports.store, &err);
		if (status == 0) {
			status = sp_pool_new(&fix.config, &ports, 1, &fix.pool, &err);
			if (status == 0)
				sp_pool_free(fix.pool);
			ports.store->ops->free(ports.store);
		}
		reached = denial_is_over();
		cr_assert(status == (reached ? -ENOMEM : 0));
		cr_assert(!reached || strstr(err.message, "make "));
	}
	cr_assert(n > 5, "only %ld allocations", n);
}

/* A life in which anything may be refused, but nothing may be lost. */
static void live(struct fixture *fix)
{
	struct sp_acquire_request request;

	for (unsigned int i = 0; i < 4; i++) {
		enum sp_acquire_policy policies[] = {SP_ACQUIRE_FAIL_FAST, SP_ACQUIRE_WAIT,
						     SP_ACQUIRE_CREATE};

		for (unsigned int j = 0; j < SP_ARRAY_SIZE(policies); j++) {
			request = fixture_request(10 * i + j, policies[j], 100);
			if (fixture_ask(fix, &request, NULL) == 0)
				sp_pool_release(fix->pool, fix->granted.sandbox, fix->now);
			else
				cr_assert(fix->refused != SP_CODE_INTERNAL, "%s", fix->message);
		}
		(void)sp_pool_resize(fix->pool, i, -1, fix->now, NULL);
		fixture_settle(fix);
		fixture_run(fix, 3000);
	}
	(void)sp_pool_destroy(fix->pool, fix->now, NULL);
}

Test(memory, a_pool_lives_through_any_single_denial, .timeout = 60)
{
	bool reached = true;
	long n;

	for (n = 0; reached; n++) {
		struct fixture fix;

		fixture_init(&fix, 2);
		fixture_warm(&fix);
		deny(n);
		live(&fix);
		reached = denial_is_over();
		fixture_settle(&fix);
		fixture_close(&fix);
	}
	cr_assert(n > 20, "only %ld allocations", n);
}

Test(memory, a_full_map_grows_or_gets_longer_chains)
{
	struct fixture fix;

	fixture_init(&fix, 200);
	fixture_start(&fix);
	while (fix.creating_count > 0) {
		deny(3); /* hits the growth of the maps now and then */
		(void)fixture_ready(&fix);
		fixture_run(&fix, 0);
		(void)denial_is_over();
	}
	fixture_run(&fix, 60000);
	fixture_settle(&fix);
	cr_assert(fixture_snapshot(&fix).idle == 200);
	fixture_close(&fix);
}

Test(memory, a_refused_creation_counts_as_a_failure)
{
	struct fixture fix;

	fixture_init(&fix, 1);
	fixture_open(&fix);
	cr_assert(sp_pool_start(fix.pool, fix.now, NULL) == 0);
	deny(0);
	sp_pool_tick(fix.pool, fix.now);
	cr_assert(denial_is_over());
	cr_assert(fixture_snapshot(&fix).failure_count == 1);
	cr_assert(strcmp(fix.stage, "admission") == 0);
	fixture_settle(&fix);
	cr_assert(fixture_snapshot(&fix).idle == 1);
	fixture_close(&fix);
}
