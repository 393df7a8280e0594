/*
 * The table of the OpenSandbox API's sandboxes: who is in it, and who is told of an end.
 */
#include "supervisor/api/os_sandboxes.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sp_os_table *table_new(void)
{
	struct sp_os_table *table = NULL;

	cr_assert(sp_os_table_new(&table) == 0);
	return table;
}

/* The reference is the caller's. */
static struct sp_os_sandbox *add(struct sp_os_table *table, unsigned int number)
{
	struct sp_os_sandbox *os = sp_os_sandbox_new();

	(void)snprintf(os->id, sizeof(os->id), "%020u", number);
	cr_assert(sp_os_table_add(table, os, NULL) == 0);
	return os;
}

Test(api_os_sandboxes, uuids_are_such_and_differ)
{
	char one[SP_OS_UUID_LEN + 1];
	char two[SP_OS_UUID_LEN + 1];

	for (unsigned int i = 0; i < 100; i++) {
		sp_os_uuid_new(one);
		sp_os_uuid_new(two);
		cr_assert(sp_os_uuid_valid(one), "%s", one);
		cr_assert(strcmp(one, two) != 0);
	}
}

Test(api_os_sandboxes, found_by_both_ids_until_the_end)
{
	struct sp_os_table *table = table_new();
	struct sp_os_sandbox *os = add(table, 1);

	cr_assert(sp_os_find(table, os->uuid) == os);
	cr_assert(sp_os_find_by_id(table, os->id) == os);
	cr_assert(sp_os_table_count(table) == 1);
	sp_os_end(os);
	cr_assert(!sp_os_find(table, os->uuid) && !sp_os_find_by_id(table, os->id));
	cr_assert(sp_os_table_count(table) == 0 && os->ended);
	sp_os_end(os);
	sp_os_unref(os);
	sp_os_table_free(table);
}

Test(api_os_sandboxes, listed_newest_first)
{
	struct sp_os_table *table = table_new();
	struct sp_os_sandbox *old = add(table, 1);
	struct sp_os_sandbox *new = add(table, 2);

	cr_assert(sp_os_table_list(table)->next == &new->link);
	cr_assert(new->link.next == &old->link);
	sp_os_unref(old);
	sp_os_unref(new);
	sp_os_table_free(table);
}

struct witness {
	struct sp_os_attachment attachment;
	struct sp_os_sandbox *os;
	unsigned int told;
	unsigned int *order;
	unsigned int place;
};

static void on_ended(struct sp_os_attachment *attachment)
{
	struct witness *witness = SP_CONTAINER_OF(attachment, struct witness, attachment);

	cr_assert(witness->os->ended);
	witness->told++;
	witness->place = ++*witness->order;
}

static void witness_attach(struct witness *witness, struct sp_os_sandbox *os, unsigned int *order)
{
	*witness = (struct witness){.os = os, .order = order};
	witness->attachment.ended = on_ended;
	sp_os_attach(os, &witness->attachment);
}

Test(api_os_sandboxes, whoever_is_attached_is_told_once_in_order)
{
	struct sp_os_table *table = table_new();
	struct sp_os_sandbox *os = add(table, 1);
	unsigned int order = 0;
	struct witness first;
	struct witness left;
	struct witness second;

	witness_attach(&first, os, &order);
	witness_attach(&left, os, &order);
	witness_attach(&second, os, &order);
	sp_os_detach(&left.attachment);
	sp_os_detach(&left.attachment);
	sp_os_end(os);
	sp_os_end(os);
	cr_assert(first.told == 1 && first.place == 1);
	cr_assert(second.told == 1 && second.place == 2);
	cr_assert(left.told == 0);
	sp_os_unref(os);
	sp_os_table_free(table);
}

Test(api_os_sandboxes, the_end_of_the_table_is_the_end_of_all)
{
	struct sp_os_table *table = table_new();
	struct sp_os_sandbox *os = add(table, 1);
	unsigned int order = 0;
	struct witness witness;

	witness_attach(&witness, os, &order);
	sp_os_table_free(table);
	cr_assert(witness.told == 1 && os->ended);
	sp_os_unref(os);
	sp_os_table_free(NULL);
}

Test(api_os_sandboxes, the_last_that_fits_and_one_more)
{
	struct sp_os_table *table = table_new();
	struct sp_os_sandbox *os;
	struct sp_err err = {0};

	for (unsigned int i = 0; i < SP_OS_SANDBOXES_MAX; i++)
		sp_os_unref(add(table, i));
	os = sp_os_sandbox_new();
	cr_assert(sp_os_table_add(table, os, &err) < 0);
	cr_assert(err.code == SP_CODE_TOO_MANY);
	sp_os_end(os); /* harmless for one that never was in it */
	sp_os_unref(os);
	sp_os_end(SP_LIST_FIRST(sp_os_table_list(table), struct sp_os_sandbox, link));
	sp_os_unref(add(table, SP_OS_SANDBOXES_MAX));
	sp_os_table_free(table);
}
