/*
 * An intrusive binary heap of deadlines: the smallest key first. The heap never owns its nodes.
 *
 * Memory is reserved apart from inserting, so that a caller which reserved room when its object was
 * made can never fail later.
 */
#ifndef SP_BASE_HEAP_H
#define SP_BASE_HEAP_H

#include "pool/base/base.h"

#define SP_HEAP_OUT SIZE_MAX

struct sp_heap_node {
	int64_t key;
	size_t index; /* SP_HEAP_OUT while it is in no heap */
};

struct sp_heap {
	struct sp_heap_node **nodes;
	size_t count;
	size_t capacity;
};

static inline void sp_heap_node_init(struct sp_heap_node *node)
{
	node->index = SP_HEAP_OUT;
}

static inline bool sp_heap_contains(const struct sp_heap_node *node)
{
	return node->index != SP_HEAP_OUT;
}

void sp_heap_init(struct sp_heap *heap);
/* The nodes are the caller's. */
void sp_heap_done(struct sp_heap *heap);
/* Room for `count` nodes in all. 0 or -ENOMEM. */
int sp_heap_reserve(struct sp_heap *heap, size_t count) SP_MUST_CHECK;
/* Inserts, or moves a node that is already in. Room must have been reserved (asserted). */
void sp_heap_set(struct sp_heap *heap, struct sp_heap_node *node, int64_t key);
/* Harmless for a node that is not in. */
void sp_heap_remove(struct sp_heap *heap, struct sp_heap_node *node);
/* The node with the smallest key, NULL when empty. */
struct sp_heap_node *sp_heap_first(const struct sp_heap *heap);

#endif
