/*
 * The states of a sandbox and the edges between them, as tables.
 */
#include "pool/sandbox.h"

static const char *const state_names[SP_SANDBOX_STATE_COUNT] = {
#define STATE_NAME(id, name) [SP_SANDBOX_##id] = name,
	SP_SANDBOX_STATES(STATE_NAME)
#undef STATE_NAME
};

static const char *const reason_names[SP_END_REASON_COUNT] = {
#define REASON_NAME(id, name) [SP_END_##id] = name,
	SP_END_REASONS(REASON_NAME)
#undef REASON_NAME
};

static const bool edges[SP_SANDBOX_STATE_COUNT][SP_SANDBOX_STATE_COUNT] = {
	[SP_SANDBOX_CREATING] = {[SP_SANDBOX_IDLE] = true, [SP_SANDBOX_KILLING] = true},
	[SP_SANDBOX_IDLE] = {[SP_SANDBOX_LEASED] = true, [SP_SANDBOX_KILLING] = true},
	[SP_SANDBOX_LEASED] = {[SP_SANDBOX_KILLING] = true},
	[SP_SANDBOX_KILLING] = {[SP_SANDBOX_GONE] = true},
};

const char *sp_sandbox_state_name(enum sp_sandbox_state state)
{
	sp_assert((unsigned int)state < SP_SANDBOX_STATE_COUNT);
	return state_names[state];
}

const char *sp_end_reason_name(enum sp_end_reason reason)
{
	sp_assert((unsigned int)reason < SP_END_REASON_COUNT);
	return reason_names[reason];
}

bool sp_sandbox_edge_allowed(enum sp_sandbox_state from, enum sp_sandbox_state to)
{
	sp_assert((unsigned int)from < SP_SANDBOX_STATE_COUNT);
	sp_assert((unsigned int)to < SP_SANDBOX_STATE_COUNT);
	return edges[from][to];
}
