/*
 * Every member of the list is looked at, so that a malformed one behind a good one is malformed
 * too: whether a request is answered must not depend on the size of the file.
 */
#include "supervisor/api/byte_range.h"

#include <string.h>
#include <strings.h>

/* Digits into a number. False: none, or beyond 63 bits. */
static bool read_number(const char **at, uint64_t *ret_number)
{
	uint64_t number = 0;
	const char *start = *at;

	for (; **at >= '0' && **at <= '9'; (*at)++) {
		number = number * 10 + (uint64_t)(**at - '0');
		if (number > INT64_MAX)
			return false;
	}
	*ret_number = number;
	return *at > start;
}

static const char *skip_blanks(const char *at)
{
	return at + strspn(at, " \t");
}

/* "a-b", "a-" or "-n" at *at, left behind it. MALFORMED, UNSATISFIABLE or FOUND. */
static enum sp_byte_range_outcome read_range(const char **at, uint64_t size,
					     struct sp_byte_range *range)
{
	uint64_t first = 0;
	uint64_t last = UINT64_MAX;
	bool have_first = read_number(at, &first);
	bool have_last;

	*at = skip_blanks(*at);
	if (**at != '-')
		return SP_RANGE_MALFORMED;
	*at = skip_blanks(*at + 1);
	have_last = **at >= '0' && **at <= '9';
	if (have_last && !read_number(at, &last))
		return SP_RANGE_MALFORMED;
	if (!have_first && (!have_last || first != 0))
		return SP_RANGE_MALFORMED;
	if (!have_first) {
		first = size - SP_MIN(last, size);
		last = UINT64_MAX;
	}
	if (last < first)
		return SP_RANGE_MALFORMED;
	if (first >= size)
		return SP_RANGE_UNSATISFIABLE;
	range->start = first;
	range->length = SP_MIN(last, size - 1) - first + 1;
	return SP_RANGE_FOUND;
}

enum sp_byte_range_outcome sp_byte_range_parse(const char *header, uint64_t size,
					       struct sp_byte_range *ret_range)
{
	static const char unit[] = "bytes=";
	enum sp_byte_range_outcome outcome = SP_RANGE_UNSATISFIABLE;
	const char *at = header + strlen(unit);

	if (strncasecmp(header, unit, strlen(unit)) != 0)
		return SP_RANGE_MALFORMED;
	for (;;) {
		struct sp_byte_range range;

		at = skip_blanks(at);
		if (*at != ',' && *at != '\0') {
			enum sp_byte_range_outcome found = read_range(&at, size, &range);

			if (found == SP_RANGE_MALFORMED)
				return found;
			if (found == SP_RANGE_FOUND && outcome != SP_RANGE_FOUND) {
				*ret_range = range;
				outcome = found;
			}
			at = skip_blanks(at);
		}
		if (*at == '\0')
			return outcome;
		if (*at++ != ',')
			return SP_RANGE_MALFORMED;
	}
}
