/*
 * A chained hash table that doubles when it holds more links than buckets.
 *
 * SipHash (Aumasson, Bernstein) with one compression and three finalisation rounds: enough against
 * clients that would like all their keys in one bucket, and a few ns for a lease id.
 */
#include "pool/base/map.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS_MIN 64

struct sip {
	uint64_t v0, v1, v2, v3;
};

static uint64_t rotate(uint64_t value, unsigned int bits)
{
	return value << bits | value >> (64 - bits);
}

static void sip_round(struct sip *sip)
{
	sip->v0 += sip->v1;
	sip->v1 = rotate(sip->v1, 13) ^ sip->v0;
	sip->v0 = rotate(sip->v0, 32);
	sip->v2 += sip->v3;
	sip->v3 = rotate(sip->v3, 16) ^ sip->v2;
	sip->v0 += sip->v3;
	sip->v3 = rotate(sip->v3, 21) ^ sip->v0;
	sip->v2 += sip->v1;
	sip->v1 = rotate(sip->v1, 17) ^ sip->v2;
	sip->v2 = rotate(sip->v2, 32);
}

static void sip_word(struct sip *sip, uint64_t word)
{
	sip->v3 ^= word;
	sip_round(sip);
	sip->v0 ^= word;
}

static uint64_t hash(const uint64_t seed[2], const char *key)
{
	struct sip sip = {
		.v0 = seed[0] ^ UINT64_C(0x736f6d6570736575),
		.v1 = seed[1] ^ UINT64_C(0x646f72616e646f6d),
		.v2 = seed[0] ^ UINT64_C(0x6c7967656e657261),
		.v3 = seed[1] ^ UINT64_C(0x7465646279746573),
	};
	size_t len = strlen(key);
	uint64_t last = (uint64_t)len << 56;
	size_t at = 0;

	for (; at + sizeof(uint64_t) <= len; at += sizeof(uint64_t)) {
		uint64_t word;

		memcpy(&word, key + at, sizeof(word));
		sip_word(&sip, word);
	}
	for (unsigned int shift = 0; at < len; at++, shift += 8)
		last |= (uint64_t)(unsigned char)key[at] << shift;
	sip_word(&sip, last);
	sip.v2 ^= 0xff;
	sip_round(&sip);
	sip_round(&sip);
	sip_round(&sip);
	return sip.v0 ^ sip.v1 ^ sip.v2 ^ sip.v3;
}

int sp_map_init(struct sp_map *map, uint64_t seed0, uint64_t seed1)
{
	*map = (struct sp_map){.bucket_count = BUCKETS_MIN, .seed = {seed0, seed1}};
	map->buckets = calloc(map->bucket_count, sizeof(*map->buckets));
	return map->buckets ? 0 : -ENOMEM;
}

void sp_map_done(struct sp_map *map)
{
	free(map->buckets);
	*map = (struct sp_map){0};
}

static struct sp_map_link **bucket(const struct sp_map *map, uint64_t hashed)
{
	return &map->buckets[hashed & (map->bucket_count - 1)];
}

static void grow(struct sp_map *map)
{
	struct sp_map bigger = *map;

	bigger.bucket_count *= 2;
	bigger.buckets = calloc(bigger.bucket_count, sizeof(*bigger.buckets));
	if (!bigger.buckets)
		return;
	for (size_t i = 0; i < map->bucket_count; i++) {
		for (struct sp_map_link *link = map->buckets[i], *next; link; link = next) {
			struct sp_map_link **at = bucket(&bigger, link->hash);

			next = link->next;
			link->next = *at;
			*at = link;
		}
	}
	free(map->buckets);
	*map = bigger;
}

void sp_map_insert(struct sp_map *map, struct sp_map_link *link, const char *key)
{
	struct sp_map_link **at;

	sp_assert(!link->key);
	if (map->count >= map->bucket_count)
		grow(map);
	link->key = key;
	link->hash = hash(map->seed, key);
	at = bucket(map, link->hash);
	link->next = *at;
	*at = link;
	map->count++;
}

void sp_map_remove(struct sp_map *map, struct sp_map_link *link)
{
	struct sp_map_link **at;

	if (!link->key)
		return;
	at = bucket(map, link->hash);
	while (*at != link) {
		sp_assert(*at);
		at = &(*at)->next;
	}
	*at = link->next;
	link->key = NULL;
	map->count--;
}

struct sp_map_link *sp_map_find(const struct sp_map *map, const char *key)
{
	uint64_t hashed = hash(map->seed, key);

	for (struct sp_map_link *link = *bucket(map, hashed); link; link = link->next)
		if (link->hash == hashed && strcmp(link->key, key) == 0)
			return link;
	return NULL;
}
