/*
 * The heap of deadlines: the smallest first, whatever is moved or removed.
 */
#include "pool/base/heap.h"

#include <criterion/criterion.h>

#define COUNT 500

static unsigned int state = 12345;

static int64_t random_key(void)
{
	state = state * 1103515245 + 12345;
	return (state >> 8) % 1000;
}

Test(heap, gives_its_nodes_in_order_of_their_keys)
{
	static struct sp_heap_node nodes[COUNT];
	struct sp_heap heap;
	int64_t last = INT64_MIN;

	sp_heap_init(&heap);
	cr_assert(sp_heap_first(&heap) == NULL);
	cr_assert(sp_heap_reserve(&heap, COUNT) == 0);
	for (size_t i = 0; i < COUNT; i++) {
		sp_heap_node_init(&nodes[i]);
		sp_heap_set(&heap, &nodes[i], random_key());
	}
	for (size_t i = 0; i < COUNT; i += 3)
		sp_heap_set(&heap, &nodes[i], random_key());
	for (size_t i = 1; i < COUNT; i += 3) {
		sp_heap_remove(&heap, &nodes[i]);
		sp_heap_remove(&heap, &nodes[i]);
		cr_assert(!sp_heap_contains(&nodes[i]));
	}
	cr_assert(heap.count == COUNT - (COUNT + 1) / 3);
	while (heap.count > 0) {
		struct sp_heap_node *first = sp_heap_first(&heap);

		cr_assert(first->key >= last);
		last = first->key;
		sp_heap_remove(&heap, first);
	}
	sp_heap_done(&heap);
}

Test(heap, reserving_less_than_there_is_keeps_what_there_is)
{
	struct sp_heap heap;

	sp_heap_init(&heap);
	cr_assert(sp_heap_reserve(&heap, 17) == 0 && heap.capacity == 32);
	cr_assert(sp_heap_reserve(&heap, 3) == 0 && heap.capacity == 32);
	sp_heap_done(&heap);
}
