/*
 * An intrusive hash map from text keys. The map owns neither links nor keys.
 *
 * Inserting cannot fail: when the table cannot grow for want of memory the chains get longer.
 * Keys may be chosen by clients (lease ids), so the hash is keyed (SipHash-1-3).
 */
#ifndef SP_BASE_MAP_H
#define SP_BASE_MAP_H

#include "pool/base/base.h"

struct sp_map_link {
	struct sp_map_link *next;
	const char *key; /* NULL while it is in no map */
	uint64_t hash;
};

struct sp_map {
	struct sp_map_link **buckets;
	size_t bucket_count; /* a power of two */
	size_t count;
	uint64_t seed[2];
};

/* 0 or -ENOMEM. */
int sp_map_init(struct sp_map *map, uint64_t seed0, uint64_t seed1) SP_MUST_CHECK;
/* The links are the caller's. Harmless for one that is all zero. */
void sp_map_done(struct sp_map *map);
/* key is borrowed until the link is removed, and must not be in the map yet. */
void sp_map_insert(struct sp_map *map, struct sp_map_link *link, const char *key);
/* Harmless for a link that is not in. */
void sp_map_remove(struct sp_map *map, struct sp_map_link *link);
/* NULL if there is none. */
struct sp_map_link *sp_map_find(const struct sp_map *map, const char *key);

#endif
