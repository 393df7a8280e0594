/*
 * The hash map: finds what is in it, forgets what left, survives growth.
 */
#include "pool/base/map.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define COUNT 1000

struct item {
	struct sp_map_link link;
	char key[16];
};

Test(map, finds_what_is_in_it_and_nothing_else)
{
	static struct item items[COUNT];
	struct sp_map map;

	cr_assert(sp_map_init(&map, 1, 2) == 0);
	for (size_t i = 0; i < COUNT; i++) {
		(void)snprintf(items[i].key, sizeof(items[i].key), "key-%zu", i);
		cr_assert(sp_map_find(&map, items[i].key) == NULL);
		sp_map_insert(&map, &items[i].link, items[i].key);
	}
	cr_assert(map.count == COUNT && map.bucket_count >= COUNT);
	for (size_t i = 0; i < COUNT; i += 2)
		sp_map_remove(&map, &items[i].link);
	for (size_t i = 0; i < COUNT; i++)
		cr_assert(sp_map_find(&map, items[i].key) == (i % 2 ? &items[i].link : NULL));
	cr_assert(map.count == COUNT / 2);
	sp_map_remove(&map, &items[0].link);
	cr_assert(map.count == COUNT / 2, "removing twice is harmless");
	sp_map_done(&map);
	sp_map_done(&map);
}

Test(map, keys_of_all_lengths_differ)
{
	static struct item items[16];
	struct sp_map map;

	cr_assert(sp_map_init(&map, 0, 0) == 0);
	for (size_t i = 0; i < SP_ARRAY_SIZE(items); i++) {
		memset(items[i].key, 'a', i);
		sp_map_insert(&map, &items[i].link, items[i].key);
	}
	for (size_t i = 0; i < SP_ARRAY_SIZE(items); i++)
		cr_assert(sp_map_find(&map, items[i].key) == &items[i].link);
	sp_map_done(&map);
}

/* A client that knows the code but not the seed cannot aim at one bucket. */
Test(map, the_seed_decides_where_a_key_goes)
{
	struct item first = {.key = "0123456789abcde"};
	struct item second = {.key = "0123456789abcde"};
	struct sp_map one, two;

	cr_assert(sp_map_init(&one, 1, 2) == 0 && sp_map_init(&two, 1, 3) == 0);
	sp_map_insert(&one, &first.link, first.key);
	sp_map_insert(&two, &second.link, second.key);
	cr_assert(first.link.hash != second.link.hash);
	sp_map_done(&one);
	sp_map_done(&two);
}
