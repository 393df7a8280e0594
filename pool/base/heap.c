/*
 * A binary heap in an array of pointers; each node knows its index, so that removing or moving any
 * node costs O(log n).
 */
#include "pool/base/heap.h"

#include <errno.h>
#include <stdlib.h>

#define CAPACITY_MIN 16

void sp_heap_init(struct sp_heap *heap)
{
	*heap = (struct sp_heap){0};
}

void sp_heap_done(struct sp_heap *heap)
{
	free(heap->nodes);
	sp_heap_init(heap);
}

int sp_heap_reserve(struct sp_heap *heap, size_t count)
{
	size_t capacity = SP_MAX(heap->capacity, (size_t)CAPACITY_MIN);
	struct sp_heap_node **nodes;

	if (count <= heap->capacity)
		return 0;
	while (capacity < count)
		capacity *= 2;
	nodes = reallocarray(heap->nodes, capacity, sizeof(*nodes));
	if (!nodes)
		return -ENOMEM;
	heap->nodes = nodes;
	heap->capacity = capacity;
	return 0;
}

static void put(struct sp_heap *heap, size_t index, struct sp_heap_node *node)
{
	heap->nodes[index] = node;
	node->index = index;
}

static void sift_up(struct sp_heap *heap, struct sp_heap_node *node)
{
	size_t index = node->index;

	while (index > 0) {
		size_t parent = (index - 1) / 2;

		if (heap->nodes[parent]->key <= node->key)
			break;
		put(heap, index, heap->nodes[parent]);
		index = parent;
	}
	put(heap, index, node);
}

static void sift_down(struct sp_heap *heap, struct sp_heap_node *node)
{
	size_t index = node->index;

	for (;;) {
		size_t child = 2 * index + 1;

		if (child >= heap->count)
			break;
		if (child + 1 < heap->count &&
		    heap->nodes[child + 1]->key < heap->nodes[child]->key)
			child++;
		if (heap->nodes[child]->key >= node->key)
			break;
		put(heap, index, heap->nodes[child]);
		index = child;
	}
	put(heap, index, node);
}

void sp_heap_set(struct sp_heap *heap, struct sp_heap_node *node, int64_t key)
{
	node->key = key;
	if (!sp_heap_contains(node)) {
		sp_assert(heap->count < heap->capacity);
		put(heap, heap->count++, node);
	}
	sift_up(heap, node);
	sift_down(heap, node);
}

void sp_heap_remove(struct sp_heap *heap, struct sp_heap_node *node)
{
	size_t index = node->index;
	struct sp_heap_node *last;

	if (!sp_heap_contains(node))
		return;
	sp_assert(index < heap->count && heap->nodes[index] == node);
	last = heap->nodes[--heap->count];
	node->index = SP_HEAP_OUT;
	if (last == node)
		return;
	put(heap, index, last);
	sift_up(heap, last);
	sift_down(heap, last);
}

struct sp_heap_node *sp_heap_first(const struct sp_heap *heap)
{
	return heap->count > 0 ? heap->nodes[0] : NULL;
}
