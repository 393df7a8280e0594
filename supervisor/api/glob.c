/*
 * Braces are written out when a pattern is compiled, within a limit on what they multiply to;
 * matching one pattern without braces then needs one step back at most, to the last star, so its
 * time is pattern × name and no pattern makes it explode. Alternatives × pattern × name × names is
 * still too much for who serves others meanwhile, so steps are counted.
 */
#include "supervisor/api/glob.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int bad_pattern(struct sp_err *err, const char *what)
{
	return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL, "bad pattern: %s", what);
}

/* ---- sets ---- */

/* Behind the ']' of the set that begins at `at` ('['); NULL: it has no end. */
static const char *set_end(const char *at)
{
	at++;
	if (*at == '^' || *at == '!')
		at++;
	for (bool first = true; *at; first = false) {
		if (*at == ']' && !first)
			return at + 1;
		if (*at == '\\' && *++at == '\0')
			return NULL;
		at++;
	}
	return NULL;
}

static unsigned char set_byte(const char **at)
{
	if (**at == '\\')
		(*at)++;
	return (unsigned char)*(*at)++;
}

/* Sets are of bytes: one that names bytes beyond ASCII matches one byte of a longer character. */
static bool set_matches(const char *at, unsigned char byte)
{
	const char *end = set_end(at) - 1;
	bool negated = at[1] == '^' || at[1] == '!';
	bool found = false;

	at += negated ? 2 : 1;
	while (at < end) {
		unsigned char low = set_byte(&at);
		unsigned char high = low;

		if (at[0] == '-' && at + 1 < end) {
			at++;
			high = set_byte(&at);
		}
		found |= byte >= low && byte <= high;
	}
	return found != negated;
}

/* ---- one pattern without braces ---- */

/* Bytes of the UTF-8 character at `name`; of what is none, one. */
static size_t character_length(const char *name)
{
	unsigned char first = (unsigned char)name[0];
	size_t len = 1;

	if (first >= 0xc0)
		len = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
	for (size_t i = 1; i < len; i++)
		if (((unsigned char)name[i] & 0xc0) != 0x80)
			return 1;
	return len;
}

/* One item that is no star against the beginning of the name: how many bytes it took, 0 = none. */
static size_t match_item(const char *pattern, const char *name, const char **ret_next)
{
	if (name[0] == '\0')
		return 0;
	if (pattern[0] == '?') {
		*ret_next = pattern + 1;
		return character_length(name);
	}
	if (pattern[0] == '[') {
		*ret_next = set_end(pattern);
		return set_matches(pattern, (unsigned char)name[0]) ? 1 : 0;
	}
	if (pattern[0] == '\\')
		pattern++;
	*ret_next = pattern + 1;
	return pattern[0] == name[0] ? 1 : 0;
}

static bool matches(struct sp_glob *glob, const char *pattern, const char *name)
{
	const char *star = NULL;  /* what follows the last star, … */
	const char *retry = NULL; /* … and where it is tried next */

	for (;;) {
		const char *next = NULL;
		size_t taken;

		if (glob->steps_left-- <= 0)
			return false;
		if (*pattern == '*') {
			star = ++pattern;
			retry = name;
			continue;
		}
		if (*pattern == '\0' && *name == '\0')
			return true;
		taken = *pattern ? match_item(pattern, name, &next) : 0;
		if (taken > 0) {
			pattern = next;
			name += taken;
		} else if (star && *retry) {
			pattern = star;
			name = ++retry;
		} else {
			return false;
		}
	}
}

/* ---- braces ---- */

/* Behind one item: a set, an escaped byte, a byte. NULL: it has no end. */
static const char *skip_item(const char *at)
{
	if (*at == '[')
		return set_end(at);
	if (*at == '\\')
		return at[1] ? at + 2 : NULL;
	return at + 1;
}

/* The ',' or '}' that ends the alternative which begins at `at`; NULL: there is none. */
static const char *alternative_end(const char *at)
{
	size_t depth = 0;

	while (at && *at) {
		if (depth == 0 && (*at == ',' || *at == '}'))
			return at;
		if (*at == '{')
			depth++;
		else if (*at == '}')
			depth--;
		at = skip_item(at);
	}
	return NULL;
}

static const char *find_brace(const char *at)
{
	while (*at && *at != '{')
		at = skip_item(at);
	return *at ? at : NULL;
}

static int check_syntax(const char *pattern, struct sp_err *err)
{
	if (strlen(pattern) > SP_GLOB_PATTERN_MAX)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "bad pattern: longer than %u bytes", SP_GLOB_PATTERN_MAX);
	for (const char *at = pattern; *at;) {
		const char *next = skip_item(at);

		if (!next)
			return bad_pattern(err, *at == '[' ? "'[' without ']'" : "'\\' at its end");
		if (*at == '{') {
			const char *end = alternative_end(next);

			while (end && *end == ',')
				end = alternative_end(end + 1);
			if (!end)
				return bad_pattern(err, "'{' without '}'");
		}
		at = next;
	}
	return 0;
}

/* prefix + alternative + suffix */
static char *join(const char *pattern, const char *brace, const char *from, const char *to,
		  const char *suffix)
{
	size_t prefix_len = (size_t)(brace - pattern);
	size_t len = (size_t)(to - from);
	size_t suffix_len = strlen(suffix);
	char *joined = malloc(prefix_len + len + suffix_len + 1);

	if (!joined)
		return NULL;
	memcpy(joined, pattern, prefix_len);
	memcpy(joined + prefix_len, from, len);
	memcpy(joined + prefix_len + len, suffix, suffix_len + 1);
	return joined;
}

/* Replace one alternative by those of its first brace. */
static int write_out(struct sp_glob *glob, size_t index, const char *brace, struct sp_err *err)
{
	char *pattern = glob->alternatives[index];
	const char *close = alternative_end(brace + 1);
	size_t slot = index;
	int status = 0;

	while (*close == ',')
		close = alternative_end(close + 1);
	for (const char *from = brace + 1; from <= close && status == 0;) {
		const char *to = alternative_end(from);
		char *joined;

		if (slot == SP_GLOB_ALTERNATIVES_MAX) {
			status = sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
					     "bad pattern: its braces make more than %u patterns",
					     SP_GLOB_ALTERNATIVES_MAX);
			break;
		}
		joined = join(pattern, brace, from, to, close + 1);
		if (!joined)
			status = sp_err_set(err, -ENOMEM, "compile a pattern");
		else
			glob->alternatives[slot] = joined;
		if (joined && slot != index)
			glob->count++;
		slot = glob->count;
		from = to + 1;
	}
	if (glob->alternatives[index] != pattern)
		free(pattern);
	return status;
}

int sp_glob_compile(struct sp_glob *glob, const char *pattern, struct sp_err *err)
{
	int status = check_syntax(pattern, err);

	*glob = (struct sp_glob){.count = 0};
	if (status < 0)
		return status;
	glob->alternatives = calloc(SP_GLOB_ALTERNATIVES_MAX, sizeof(*glob->alternatives));
	if (glob->alternatives)
		glob->alternatives[0] = strdup(pattern);
	if (!glob->alternatives || !glob->alternatives[0]) {
		sp_glob_done(glob);
		return sp_err_set(err, -ENOMEM, "compile a pattern");
	}
	glob->count = 1;
	glob->steps_left = SP_GLOB_STEPS_SPARE;
	for (size_t i = 0; i < glob->count && status == 0;) {
		const char *brace = find_brace(glob->alternatives[i]);

		if (brace)
			status = write_out(glob, i, brace, err);
		else
			i++;
	}
	if (status < 0)
		sp_glob_done(glob);
	return status;
}

void sp_glob_done(struct sp_glob *glob)
{
	sp_assert(glob->alternatives || glob->count == 0);
	for (size_t i = 0; i < glob->count; i++)
		free(glob->alternatives[i]);
	free(glob->alternatives);
	*glob = (struct sp_glob){.count = 0};
}

bool sp_glob_matches(struct sp_glob *glob, const char *name)
{
	if (sp_glob_is_spent(glob))
		return false;
	glob->steps_left = SP_MIN(glob->steps_left + SP_GLOB_STEPS_EACH, SP_GLOB_STEPS_SPARE);
	for (size_t i = 0; i < glob->count; i++)
		if (matches(glob, glob->alternatives[i], name))
			return true;
	return false;
}

bool sp_glob_is_spent(const struct sp_glob *glob)
{
	return glob->count > 0 && glob->steps_left <= 0;
}
