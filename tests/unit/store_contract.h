/*
 * What every implementation of pool/store.h must do. One suite, run over each of them:
 *
 *	static const struct store_contract contract = {.make = …, .settle = …};
 *	#define CONTRACT_TEST(name) Test(memory_store, name) { contract_##name(&contract); }
 *	STORE_CONTRACT(CONTRACT_TEST)
 *
 * make() gives an empty store; settle() lets answers come (nothing to do when they come inline);
 * pause() lets a little time pass, where a share needs some. The suite frees the store.
 */
#ifndef SP_TESTS_STORE_CONTRACT_H
#define SP_TESTS_STORE_CONTRACT_H

#include "pool/base/clock.h"
#include "pool/store.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct store_contract {
	struct sp_store *(*make)(void);
	void (*settle)(struct sp_store *store);
	void (*pause)(struct sp_store *store); /* NULL: nothing changes with time */
};

#define CONTRACT_PAUSES 200

#define STORE_CONTRACT(X)                        \
	X(nobody_has_set_anything)               \
	X(intent_is_kept_with_one_more_revision) \
	X(zero_is_a_real_size)                   \
	X(share_is_max_idle_and_the_waiters)     \
	X(a_stale_revision_is_refused)           \
	X(pools_do_not_meet)                     \
	X(a_ready_sandbox_is_listed)             \
	X(draining_comes_back_and_can_be_undone) \
	X(destroying_can_only_go_on)             \
	X(destroyed_is_final)                    \
	X(updates_of_unknown_sandboxes_are_harmless)

struct contract_answer {
	unsigned int shares, metas, verdicts;
	struct sp_store_share share;
	struct sp_store_meta meta;
	enum sp_store_verdict verdict;
	char sandbox_id[SP_SANDBOX_ID_LEN + 1];
	char lease_id[SP_LEASE_ID_LEN + 1];
	int status;
	enum sp_code code;
};

static inline void contract_error(struct contract_answer *answer, const struct sp_err *err)
{
	answer->status = err ? err->status : 0;
	answer->code = err ? sp_err_client_code(err) : SP_CODE_NONE;
}

static inline void contract_on_share(void *arg, const struct sp_store_share *share,
				     const struct sp_err *err)
{
	struct contract_answer *answer = arg;

	answer->shares++;
	contract_error(answer, err);
	if (share)
		answer->share = *share;
}

static inline void contract_on_meta(void *arg, const struct sp_store_meta *meta,
				    const struct sp_err *err)
{
	struct contract_answer *answer = arg;

	answer->metas++;
	contract_error(answer, err);
	if (meta)
		answer->meta = *meta;
}

static inline void contract_on_verdict(void *arg, const struct sp_store_listing *listing,
				       const struct sp_err *err)
{
	struct contract_answer *answer = arg;

	answer->verdicts++;
	answer->verdict = listing->verdict;
	(void)snprintf(answer->sandbox_id, sizeof(answer->sandbox_id), "%s", listing->sandbox_id);
	(void)snprintf(answer->lease_id, sizeof(answer->lease_id), "%s", listing->lease_id);
	contract_error(answer, err);
}

static inline struct contract_answer contract_heartbeat(const struct store_contract *contract,
							struct sp_store *store, const char *pool,
							uint32_t waiters)
{
	struct contract_answer answer = {0};
	struct sp_store_counts counts = {
		.waiters = waiters,
		.configured_max_idle = 6,
		.configured_max_total = 60,
	};

	cr_assert(store->ops->heartbeat(store, pool, &counts, 1000, contract_on_share, &answer) ==
		  0);
	contract->settle(store);
	cr_assert(answer.shares == 1 && answer.status == 0);
	return answer;
}

/* A shared store gives what is free when it knows what is free. */
static inline struct contract_answer contract_share(const struct store_contract *contract,
						    struct sp_store *store, const char *pool,
						    uint32_t waiters, uint32_t share)
{
	struct contract_answer answer = contract_heartbeat(contract, store, pool, waiters);

	for (int i = 0; contract->pause && answer.share.share != share && i < CONTRACT_PAUSES;
	     i++) {
		contract->pause(store);
		answer = contract_heartbeat(contract, store, pool, waiters);
	}
	cr_assert(answer.share.share == share, "a share of %u, not %u", answer.share.share, share);
	return answer;
}

static inline struct contract_answer contract_set(const struct store_contract *contract,
						  struct sp_store *store, const char *pool,
						  struct sp_store_meta meta, uint64_t expected)
{
	struct contract_answer answer = {0};

	/* Nobody has an intent for a pool that no host has spoken of. */
	(void)contract_heartbeat(contract, store, pool, 0);
	cr_assert(store->ops->meta_set(store, pool, &meta, expected, 1000, contract_on_meta,
				       &answer) == 0);
	contract->settle(store);
	cr_assert(answer.metas == 1);
	return answer;
}

static inline void contract_nobody_has_set_anything(const struct store_contract *contract)
{
	struct sp_store *store = contract->make();
	struct contract_answer answer = contract_share(contract, store, "a", 0, 6);

	cr_assert(answer.share.meta.revision == 0, "unset and zero are not the same");
	cr_assert(answer.share.meta.state == SP_STORE_ACTIVE);
	cr_assert(answer.share.valid_ms > 0);
	cr_assert(store->ops->up(store));
	store->ops->free(store);
}

static inline void
contract_intent_is_kept_with_one_more_revision(const struct store_contract *contract)
{
	struct sp_store *store = contract->make();
	struct sp_store_meta meta = {.max_idle = 9, .max_total = 90};
	struct contract_answer answer = contract_set(contract, store, "a", meta, 0);

	cr_assert(answer.status == 0 && answer.meta.revision == 1 && answer.meta.max_idle == 9);
	meta.max_idle = 10;
	answer = contract_set(contract, store, "a", meta, 0);
	cr_assert(answer.meta.revision == 2);
	answer = contract_heartbeat(contract, store, "a", 0);
	cr_assert(answer.share.meta.revision == 2 && answer.share.meta.max_idle == 10);
	cr_assert(answer.share.meta.max_total == 90);
	store->ops->free(store);
}

static inline void contract_zero_is_a_real_size(const struct store_contract *contract)
{
	struct sp_store *store = contract->make();
	struct sp_store_meta meta = {.max_idle = 0};
	struct contract_answer answer;

	(void)contract_set(contract, store, "a", meta, 0);
	answer = contract_heartbeat(contract, store, "a", 0);
	cr_assert(answer.share.meta.revision == 1 && answer.share.share == 0);
	cr_assert(answer.share.meta.max_idle == 0);
	store->ops->free(store);
}

static inline void contract_share_is_max_idle_and_the_waiters(const struct store_contract *contract)
{
	struct sp_store *store = contract->make();
	struct sp_store_meta meta = {.max_idle = 4};

	(void)contract_share(contract, store, "a", 3, 9);
	(void)contract_set(contract, store, "a", meta, 0);
	(void)contract_share(contract, store, "a", 3, 7);
	(void)contract_share(contract, store, "a", 0, 4);
	store->ops->free(store);
}

static inline void contract_a_stale_revision_is_refused(const struct store_contract *contract)
{
	struct sp_store *store = contract->make();
	struct sp_store_meta meta = {.max_idle = 1};
	struct contract_answer answer;

	(void)contract_set(contract, store, "a", meta, 0);
	meta.max_idle = 2;
	answer = contract_set(contract, store, "a", meta, 1);
	cr_assert(answer.status == 0 && answer.meta.revision == 2);
	meta.max_idle = 3;
	answer = contract_set(contract, store, "a", meta, 1);
	cr_assert(answer.status == -ESTALE, "another came first");
	answer = contract_heartbeat(contract, store, "a", 0);
	cr_assert(answer.share.meta.max_idle == 2);
	store->ops->free(store);
}

static inline void contract_pools_do_not_meet(const struct store_contract *contract)
{
	struct sp_store *store = contract->make();
	struct sp_store_meta meta = {.max_idle = 1, .state = SP_STORE_DRAINING};
	struct contract_answer answer;

	(void)contract_set(contract, store, "a", meta, 0);
	answer = contract_share(contract, store, "b", 0, 6);
	cr_assert(answer.share.meta.revision == 0);
	cr_assert(answer.share.meta.state == SP_STORE_ACTIVE);
	store->ops->free(store);
}

static inline struct sp_sandbox contract_sandbox(void)
{
	struct sp_sandbox sandbox = {
		.id = "0123456789abcdefghjk",
		.state = SP_SANDBOX_IDLE,
		.created_ms = 1,
		.ready_ms = 2,
		.expires_ms = sp_clock_boot_ms() + 600000,
	};

	return sandbox;
}

static inline void contract_a_ready_sandbox_is_listed(const struct store_contract *contract)
{
	struct sp_store *store = contract->make();
	struct sp_sandbox sandbox = contract_sandbox();
	struct contract_answer answer = {0};

	(void)contract_share(contract, store, "a", 0, 6);
	cr_assert(store->ops->publish(store, "a", &sandbox, 1000, contract_on_verdict, &answer) ==
		  0);
	contract->settle(store);
	cr_assert(answer.verdicts == 1 && answer.verdict == SP_STORE_LISTED);
	cr_assert(answer.status == 0 && answer.lease_id[0] == '\0');
	cr_assert(strcmp(answer.sandbox_id, sandbox.id) == 0);
	store->ops->free(store);
}

static inline void
contract_draining_comes_back_and_can_be_undone(const struct store_contract *contract)
{
	struct sp_store *store = contract->make();
	struct sp_store_meta meta = {.max_idle = 1, .state = SP_STORE_DRAINING};
	struct contract_answer answer;

	uint64_t revision;

	revision = contract_set(contract, store, "a", meta, 0).meta.revision;
	answer = contract_heartbeat(contract, store, "a", 0);
	cr_assert(answer.share.meta.state == SP_STORE_DRAINING);
	cr_assert(answer.share.meta.revision == revision && answer.share.meta.max_idle == 1);
	meta.state = SP_STORE_ACTIVE;
	(void)contract_set(contract, store, "a", meta, 0);
	answer = contract_heartbeat(contract, store, "a", 0);
	cr_assert(answer.share.meta.state == SP_STORE_ACTIVE);
	cr_assert(answer.share.meta.revision == revision + 1);
	store->ops->free(store);
}

static inline void contract_destroying_can_only_go_on(const struct store_contract *contract)
{
	struct sp_store *store = contract->make(); /* P-043, P-044, P-170 */
	struct sp_store_meta meta = {.max_idle = 1, .state = SP_STORE_DESTROYING};
	struct contract_answer answer;

	(void)contract_set(contract, store, "a", meta, 0);
	answer = contract_set(contract, store, "a", meta, 0);
	cr_assert(answer.status == 0, "begun again, as after a crash");
	meta.state = SP_STORE_ACTIVE;
	answer = contract_set(contract, store, "a", meta, 0);
	cr_assert(answer.code == SP_CODE_POOL_DESTROYED);
	meta.state = SP_STORE_DESTROYED;
	answer = contract_set(contract, store, "a", meta, 0);
	cr_assert(answer.status == 0);
	store->ops->free(store);
}

static inline void contract_destroyed_is_final(const struct store_contract *contract)
{
	static const enum sp_store_pool_state states[] = {
		SP_STORE_ACTIVE,
		SP_STORE_DRAINING,
		SP_STORE_DESTROYING,
	};
	struct sp_store *store = contract->make();
	struct sp_store_meta meta = {.max_idle = 1, .state = SP_STORE_DESTROYED};
	struct contract_answer answer;

	(void)contract_set(contract, store, "a", meta, 0);
	for (size_t i = 0; i < SP_ARRAY_SIZE(states); i++) {
		meta.state = states[i];
		answer = contract_set(contract, store, "a", meta, 0);
		cr_assert(answer.code == SP_CODE_POOL_DESTROYED);
	}
	answer = contract_heartbeat(contract, store, "a", 0);
	cr_assert(answer.share.meta.state == SP_STORE_DESTROYED);
	store->ops->free(store);
}

static inline void
contract_updates_of_unknown_sandboxes_are_harmless(const struct store_contract *contract)
{
	struct sp_store *store = contract->make(); /* P-024 */
	struct sp_sandbox sandbox = contract_sandbox();

	sandbox.state = SP_SANDBOX_GONE;
	store->ops->update(store, "a", &sandbox, 1000);
	store->ops->update(store, "a", &sandbox, 1000);
	contract->settle(store);
	(void)contract_heartbeat(contract, store, "a", 0);
	store->ops->free(store);
}

#endif
