/*
 * Patterns on base names: `*` and `**` any bytes, `?` one character, `[a-z]` and `[^a-z]` (or
 * `[!a-z]`) one of a set, `{a,b}` one of several, `\` takes the next byte as it is.
 *
 * Pure. A base name has no slash, so `**` means no more than `*` and nothing matches a pattern
 * that needs a slash.
 */
#ifndef SP_API_GLOB_H
#define SP_API_GLOB_H

#include "pool/base/err.h"

#define SP_GLOB_PATTERN_MAX 1024u
/* Alternatives of a pattern multiply: "{a,b}{a,b}" has 4. So many are tried and no more. */
#define SP_GLOB_ALTERNATIVES_MAX 256u

/* Bytes compared: of each name so many, and what is left of earlier ones, … */
#define SP_GLOB_STEPS_EACH 2048
/* … but so many for all of them. */
#define SP_GLOB_STEPS_SPARE (INT64_C(1) << 20)

struct sp_glob {
	char **alternatives; /* patterns without braces */
	size_t count;
	int64_t steps_left;
};

/* -EINVAL: no pattern, beyond a limit, or a bracket, brace or backslash without its end. -ENOMEM.
 */
int sp_glob_compile(struct sp_glob *glob, const char *pattern, struct sp_err *err);
void sp_glob_done(struct sp_glob *glob); /* harmless for one that is all zero */
bool sp_glob_matches(struct sp_glob *glob, const char *name);
/* The names took more steps than they may: no later one matches. */
bool sp_glob_is_spent(const struct sp_glob *glob);

#endif
