/*
 * Whose turn it is to connect into a sandbox. Each connect costs a process inside for a moment, and
 * files.h allows so many operations at once: SP_GATE_MAX are under way, the others wait in order.
 */
#ifndef SP_API_PROXY_GATE_H
#define SP_API_PROXY_GATE_H

#include "supervisor/api/os_sandboxes.h"

#define SP_GATE_MAX 16u /* of one sandbox; its files are used meanwhile as well */

struct sp_gate;

/* Embedded in who wants to connect. */
struct sp_gate_ticket {
	struct sp_list link;  /* in the gate's, until it is its turn */
	struct sp_gate *gate; /* NULL: not in there */
	void (*turn)(struct sp_gate_ticket *ticket);
	void (*ended)(struct sp_gate_ticket *ticket); /* the sandbox did; it is out */
};

/* 1: it is its turn; 0: `turn` or `ended` will come; -ENOMEM. */
int sp_gate_enter(struct sp_gate_ticket *ticket, struct sp_os_sandbox *os);
/* It has connected, or wants to no more. Harmless for one that is out. */
void sp_gate_leave(struct sp_gate_ticket *ticket);

#endif
