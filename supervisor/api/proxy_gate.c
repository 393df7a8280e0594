/*
 * The gate is attached to its sandbox and outlives it until the last of those whose turn it was has
 * left.
 */
#include "supervisor/api/proxy_gate.h"

#include <errno.h>
#include <stdlib.h>

struct sp_gate {
	struct sp_os_attachment attachment;
	bool ended;
	bool letting_in;     /* somebody further up does */
	unsigned int inside; /* whose turn it is */
	struct sp_list waiting;
};

static void free_if_over(struct sp_gate *gate)
{
	if (gate->ended && gate->inside == 0 && !gate->letting_in)
		free(gate);
}

static struct sp_gate_ticket *take_first(struct sp_gate *gate)
{
	struct sp_gate_ticket *ticket = SP_LIST_FIRST(&gate->waiting, struct sp_gate_ticket, link);

	sp_list_remove(&ticket->link);
	return ticket;
}

static void on_sandbox_ended(struct sp_os_attachment *attachment)
{
	struct sp_gate *gate = SP_CONTAINER_OF(attachment, struct sp_gate, attachment);

	while (!sp_list_empty(&gate->waiting)) {
		struct sp_gate_ticket *ticket = take_first(gate);

		ticket->gate = NULL;
		ticket->ended(ticket);
	}
	gate->ended = true;
	free_if_over(gate);
}

static struct sp_gate *gate_of(struct sp_os_sandbox *os)
{
	struct sp_gate *gate;

	SP_LIST_FOREACH (link, &os->attachments) {
		struct sp_os_attachment *attachment =
			SP_CONTAINER_OF(link, struct sp_os_attachment, link);

		if (attachment->ended == on_sandbox_ended)
			return SP_CONTAINER_OF(attachment, struct sp_gate, attachment);
	}
	gate = calloc(1, sizeof(*gate));
	if (!gate)
		return NULL;
	gate->attachment.ended = on_sandbox_ended;
	sp_list_init(&gate->attachment.link);
	sp_list_init(&gate->waiting);
	sp_os_attach(os, &gate->attachment);
	return gate;
}

int sp_gate_enter(struct sp_gate_ticket *ticket, struct sp_os_sandbox *os)
{
	struct sp_gate *gate = gate_of(os);

	sp_list_init(&ticket->link);
	ticket->gate = gate;
	if (!gate)
		return -ENOMEM;
	if (gate->inside < SP_GATE_MAX) {
		gate->inside++;
		return 1;
	}
	sp_list_append(&gate->waiting, &ticket->link);
	return 0;
}

/* Whose turn comes may leave at once, and so may the next: not one inside the other. */
static void let_in(struct sp_gate *gate)
{
	if (gate->letting_in)
		return;
	gate->letting_in = true;
	while (gate->inside < SP_GATE_MAX && !sp_list_empty(&gate->waiting)) {
		struct sp_gate_ticket *ticket = take_first(gate);

		gate->inside++;
		ticket->turn(ticket);
	}
	gate->letting_in = false;
	free_if_over(gate);
}

void sp_gate_leave(struct sp_gate_ticket *ticket)
{
	struct sp_gate *gate = ticket->gate;

	if (!gate)
		return;
	ticket->gate = NULL;
	if (!sp_list_empty(&ticket->link)) {
		sp_list_remove(&ticket->link);
		return;
	}
	gate->inside--;
	let_in(gate);
}
