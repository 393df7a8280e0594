/*
 * The gate of a sandbox: so many at once, the others in order, nobody forgotten at its end.
 */
#include "supervisor/api/proxy_gate.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define COUNT (SP_GATE_MAX + 4)

static struct guest {
	struct sp_gate_ticket ticket;
	int turns, ends;
	bool leaves_at_once;
} guests[COUNT];

static unsigned int order[COUNT], order_count;

static struct guest *guest_of(struct sp_gate_ticket *ticket)
{
	return SP_CONTAINER_OF(ticket, struct guest, ticket);
}

static void on_turn(struct sp_gate_ticket *ticket)
{
	struct guest *guest = guest_of(ticket);

	guest->turns++;
	order[order_count++] = (unsigned int)(guest - guests);
	if (guest->leaves_at_once)
		sp_gate_leave(ticket);
}

static void on_ended(struct sp_gate_ticket *ticket)
{
	guest_of(ticket)->ends++;
	sp_gate_leave(ticket);
}

static struct sp_os_table *table;

/* A sandbox with all guests at its gate. */
static struct sp_os_sandbox *begin(void)
{
	struct sp_os_sandbox *os = sp_os_sandbox_new();

	cr_assert(os && sp_os_table_new(&table) == 0);
	(void)memset(os->id, 'a', SP_SANDBOX_ID_LEN);
	cr_assert(sp_os_table_add(table, os, NULL) == 0);
	for (unsigned int i = 0; i < COUNT; i++) {
		guests[i].ticket.turn = on_turn;
		guests[i].ticket.ended = on_ended;
		cr_assert(sp_gate_enter(&guests[i].ticket, os) == (i < SP_GATE_MAX ? 1 : 0),
			  "guest %u", i);
	}
	return os;
}

static void end(struct sp_os_sandbox *os)
{
	sp_os_unref(os);
	sp_os_table_free(table);
}

Test(proxy_gate, so_many_are_let_in_and_the_next_waits_for_its_turn)
{
	struct sp_os_sandbox *os = begin();

	sp_gate_leave(&guests[3].ticket);
	sp_gate_leave(&guests[3].ticket);
	sp_gate_leave(&guests[0].ticket);
	cr_assert(order_count == 2 && order[0] == SP_GATE_MAX && order[1] == SP_GATE_MAX + 1);
	end(os);
}

Test(proxy_gate, who_gives_up_waiting_has_no_turn)
{
	struct sp_os_sandbox *os = begin();

	sp_gate_leave(&guests[SP_GATE_MAX].ticket);
	sp_gate_leave(&guests[0].ticket);
	cr_assert(order_count == 1 && order[0] == SP_GATE_MAX + 1);
	cr_assert(guests[SP_GATE_MAX].turns == 0);
	end(os);
}

Test(proxy_gate, a_turn_may_be_over_at_once)
{
	struct sp_os_sandbox *os = begin();

	for (unsigned int i = SP_GATE_MAX; i < COUNT; i++)
		guests[i].leaves_at_once = true;
	sp_gate_leave(&guests[0].ticket);
	cr_assert(order_count == COUNT - SP_GATE_MAX);
	cr_assert(sp_gate_enter(&guests[0].ticket, os) == 1, "a place is free again");
	end(os);
}

/* As many as there may be connections: all of those that wait for a paused sandbox are refused in
 * one go. */
static void leave_at_once(struct sp_gate_ticket *ticket)
{
	volatile char room[128] = ""; /* about what connecting takes of the stack */

	sp_gate_leave(ticket);
	order_count += 1u + (unsigned int)room[0];
}

Test(proxy_gate, however_many_turns_are_over_at_once)
{
	const unsigned int many = 65536;
	struct sp_gate_ticket *tickets = calloc(many, sizeof(*tickets));
	struct sp_os_sandbox *os = begin();

	cr_assert(tickets);
	for (unsigned int i = SP_GATE_MAX; i < COUNT; i++)
		sp_gate_leave(&guests[i].ticket);
	for (unsigned int i = 0; i < many; i++) {
		tickets[i].turn = leave_at_once;
		cr_assert(sp_gate_enter(&tickets[i], os) == 0);
	}
	sp_gate_leave(&guests[0].ticket);
	cr_assert(order_count == many);
	cr_assert(sp_gate_enter(&guests[0].ticket, os) == 1);
	end(os);
	free(tickets);
}

/* The sandbox ends while those that wait for it are let in. */
static struct sp_os_sandbox *to_end;

static void end_and_leave(struct sp_gate_ticket *ticket)
{
	sp_os_end(to_end);
	sp_gate_leave(ticket);
}

static void leave_and_end(struct sp_gate_ticket *ticket)
{
	sp_gate_leave(ticket);
	sp_os_end(to_end);
}

Test(proxy_gate, a_turn_may_end_the_sandbox)
{
	void (*const turns[])(struct sp_gate_ticket * ticket) = {end_and_leave, leave_and_end};

	for (size_t i = 0; i < SP_ARRAY_SIZE(turns); i++) {
		memset(guests, 0, sizeof(guests));
		to_end = begin();
		guests[SP_GATE_MAX].ticket.turn = turns[i];
		for (unsigned int j = 0; j < SP_GATE_MAX; j++)
			sp_gate_leave(&guests[j].ticket);
		for (unsigned int j = SP_GATE_MAX + 1; j < COUNT; j++)
			cr_assert(guests[j].turns + guests[j].ends == 1, "%u", j);
		for (unsigned int j = SP_GATE_MAX + 1; j < COUNT; j++)
			sp_gate_leave(&guests[j].ticket);
		end(to_end);
	}
}

Test(proxy_gate, the_end_of_the_sandbox_is_told_to_who_waits)
{
	struct sp_os_sandbox *os = begin();

	sp_os_end(os);
	for (unsigned int i = 0; i < COUNT; i++)
		cr_assert(guests[i].ends == (i < SP_GATE_MAX ? 0 : 1) && guests[i].turns == 0);
	/* Those inside find out by themselves. */
	for (unsigned int i = 0; i < SP_GATE_MAX; i++)
		sp_gate_leave(&guests[i].ticket);
	cr_assert(order_count == 0);
	end(os);
}
