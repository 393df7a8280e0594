/*
 * The contract of the store port, run over the memory store.
 */
#include "store_contract.h"

static struct sp_store *make(void)
{
	struct sp_store *store;

	cr_assert(sp_memory_store_new(&store, NULL) == 0);
	return store;
}

static void settle(struct sp_store *store)
{
	(void)store; /* answers inline */
}

static const struct store_contract contract = {.make = make, .settle = settle};

#define CONTRACT_TEST(name)                 \
	Test(memory_store, name)            \
	{                                   \
		contract_##name(&contract); \
	}

STORE_CONTRACT(CONTRACT_TEST)
