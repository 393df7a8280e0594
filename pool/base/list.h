/*
 * An intrusive doubly linked list with a sentinel. The list never owns its members.
 */
#ifndef SP_BASE_LIST_H
#define SP_BASE_LIST_H

#include "pool/base/base.h"

struct sp_list {
	struct sp_list *next;
	struct sp_list *prev;
};

static inline void sp_list_init(struct sp_list *list)
{
	list->next = list;
	list->prev = list;
}

static inline bool sp_list_empty(const struct sp_list *list)
{
	return list->next == list;
}

static inline void sp_list_insert_before(struct sp_list *at, struct sp_list *link)
{
	link->next = at;
	link->prev = at->prev;
	at->prev->next = link;
	at->prev = link;
}

static inline void sp_list_append(struct sp_list *list, struct sp_list *link)
{
	sp_list_insert_before(list, link);
}

static inline void sp_list_prepend(struct sp_list *list, struct sp_list *link)
{
	sp_list_insert_before(list->next, link);
}

/* Leaves link as an empty list of its own, so that removing it again is harmless. */
static inline void sp_list_remove(struct sp_list *link)
{
	link->prev->next = link->next;
	link->next->prev = link->prev;
	sp_list_init(link);
}

#ifdef __clang_analyzer__
/* Any member: it cannot follow that a removed one does not come again. */
struct sp_list *sp_list_first(const struct sp_list *list);
#else
static inline struct sp_list *sp_list_first(const struct sp_list *list)
{
	return list->next;
}
#endif

#define SP_LIST_FIRST(list, type, member) \
	(sp_list_empty(list) ? NULL : SP_CONTAINER_OF(sp_list_first(list), type, member))
#define SP_LIST_FOREACH(link, list) \
	for (struct sp_list *link = (list)->next; (link) != (list); (link) = (link)->next)
#define SP_LIST_FOREACH_SAFE(link, following, list)                                            \
	for (struct sp_list *link = (list)->next, *following = (link)->next; (link) != (list); \
	     (link) = (following), (following) = (link)->next)

#endif
