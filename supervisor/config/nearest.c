/*
 * "did you mean": the known key or word that a misspelt one is nearest to, by edits. Texts come
 * from configuration files and may be anything; what is longer than any name of ours is near to
 * none.
 */
#include "supervisor/config/schema.h"

#include <string.h>

#define NAME_MAX_LEN 64u

/* Edits (insert, delete, replace, swap neighbours) from one text to the other. */
static size_t distance(const char *a, const char *b)
{
	size_t rows[3][NAME_MAX_LEN + 1];
	size_t a_len = strlen(a);
	size_t b_len = strlen(b);

	if (a_len > NAME_MAX_LEN || b_len > NAME_MAX_LEN)
		return SIZE_MAX;
	for (size_t j = 0; j <= b_len; j++)
		rows[0][j] = j;
	for (size_t i = 1; i <= a_len; i++) {
		size_t *row = rows[i % 3];
		const size_t *above = rows[(i - 1) % 3];
		const size_t *twice = rows[(i + 1) % 3];

		row[0] = i;
		for (size_t j = 1; j <= b_len; j++) {
			size_t best = above[j - 1] + (a[i - 1] != b[j - 1]);

			best = SP_MIN(best, above[j] + 1);
			best = SP_MIN(best, row[j - 1] + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				best = SP_MIN(best, twice[j - 2] + 1);
			row[j] = best;
		}
	}
	return rows[a_len % 3][b_len];
}

static void nearer(const char *candidate, const char *text, const char **best,
		   size_t *best_distance)
{
	size_t edits = distance(text, candidate);

	if (edits < *best_distance) {
		*best_distance = edits;
		*best = candidate;
	}
}

/* One edit in three letters is a misspelling; more is another word. */
static size_t first_too_far(const char *text)
{
	return SP_MAX(strlen(text) / 3, (size_t)1) + 1;
}

const char *sp_schema_nearest_key(const struct sp_schema_scope *scope, const char *text)
{
	size_t best_distance = first_too_far(text);
	const char *best = NULL;

	for (size_t i = 0; i < scope->count; i++)
		if (!(scope->keys[i].flags & SP_SCHEMA_F_RESOLVED))
			nearer(scope->keys[i].name, text, &best, &best_distance);
	return best;
}

const char *sp_schema_nearest_word(const char *const *words, const char *text)
{
	size_t best_distance = first_too_far(text);
	const char *best = NULL;

	for (; *words; words++)
		nearer(*words, text, &best, &best_distance);
	return best;
}
