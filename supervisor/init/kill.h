/*
 * Killing everything that was started here, without waiting for it.
 */
#ifndef SP_INIT_KILL_H
#define SP_INIT_KILL_H

#include "supervisor/init/init.h"

/* KILL_EXEC: answered at once, or by init_kill_step(). */
void init_kill_start(struct init *init, const struct sp_init_header *about);

/* While kill_state is INIT_KILL_RUNNING: once more; answers when nothing is left, or when it takes
 * too long. `childless`: the last wait found no child at all. */
void init_kill_step(struct init *init, bool childless);

/* DIRECT: 0, or why this kernel does not say who init's children are. */
int init_kill_possible(void);

/* SIGKILL to every process of this sandbox but init. */
void init_kill_all(const struct init *init);

#endif
