/*
 * The state table of a sandbox and the names that clients see.
 */
#include "pool/sandbox.h"

#include <criterion/criterion.h>
#include <string.h>

Test(sandbox, only_the_edges_of_the_header_exist)
{
	static const enum sp_sandbox_state allowed[][2] = {
		{SP_SANDBOX_CREATING, SP_SANDBOX_IDLE},    {SP_SANDBOX_IDLE, SP_SANDBOX_LEASED},
		{SP_SANDBOX_LEASED, SP_SANDBOX_KILLING},   {SP_SANDBOX_KILLING, SP_SANDBOX_GONE},
		{SP_SANDBOX_CREATING, SP_SANDBOX_KILLING}, {SP_SANDBOX_IDLE, SP_SANDBOX_KILLING},
	};

	for (int from = 0; from < SP_SANDBOX_STATE_COUNT; from++) {
		for (int to = 0; to < SP_SANDBOX_STATE_COUNT; to++) {
			bool expected = false;

			for (size_t i = 0; i < SP_ARRAY_SIZE(allowed); i++)
				expected |= (int)allowed[i][0] == from && (int)allowed[i][1] == to;
			cr_assert(sp_sandbox_edge_allowed((enum sp_sandbox_state)from,
							  (enum sp_sandbox_state)to) == expected,
				  "%s → %s", sp_sandbox_state_name((enum sp_sandbox_state)from),
				  sp_sandbox_state_name((enum sp_sandbox_state)to));
		}
	}
}

Test(sandbox, names_are_the_documented_ones)
{
	cr_assert(strcmp(sp_sandbox_state_name(SP_SANDBOX_CREATING), "creating") == 0);
	cr_assert(strcmp(sp_sandbox_state_name(SP_SANDBOX_GONE), "gone") == 0);
	cr_assert(strcmp(sp_end_reason_name(SP_END_NEAR_EXPIRY), "near_expiry") == 0);
	cr_assert(strcmp(sp_end_reason_name(SP_END_UNCLAIMED), "unclaimed") == 0);
	for (int i = 0; i < SP_END_REASON_COUNT; i++)
		cr_assert(strlen(sp_end_reason_name((enum sp_end_reason)i)) > 0);
}
