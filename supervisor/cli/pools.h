/*
 * The table of pools that stats, top and 'pool ls' show.
 */
#ifndef SP_CLI_POOLS_H
#define SP_CLI_POOLS_H

#include "supervisor/cli/ask.h"

/* GET /v1/pools; *answer->root has "pools", an array. */
int sp_cli_pools_ask(struct sp_cli *cli, int64_t timeout_ms, struct sp_cli_answer *answer,
		     struct sp_err *err);
/* Append the table of `pools` (array) to out. */
void sp_cli_pools_write(const struct sp_cli *cli, const json_t *pools, struct sp_buf *out);
/* What is wrong with a pool; "-" if nothing is. */
const char *sp_cli_pools_trouble(const json_t *pool);

#endif
