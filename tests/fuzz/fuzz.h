/*
 * What the targets share: a property that must hold, and a hash of all that came out, by which two
 * ways to read the same bytes are compared.
 */
#ifndef SP_TESTS_FUZZ_H
#define SP_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define FUZZ_HASH_START UINT64_C(14695981039346656037)

static inline void require(bool condition)
{
	if (!condition)
		abort();
}

static inline void mix(uint64_t *hash, const void *data, size_t len)
{
	const uint8_t *at = data;

	for (size_t i = 0; i < len; i++)
		*hash = (*hash ^ at[i]) * UINT64_C(0x100000001b3);
}

#endif
