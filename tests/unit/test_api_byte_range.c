/*
 * Range headers: which part of a file of ten bytes is served.
 */
#include "supervisor/api/byte_range.h"

#include <criterion/criterion.h>

static const struct {
	const char *header;
	enum sp_byte_range_outcome outcome;
	uint64_t start;
	uint64_t length;
} cases[] = {
	{"bytes=0-9", SP_RANGE_FOUND, 0, 10},
	{"bytes=0-0", SP_RANGE_FOUND, 0, 1},
	{"bytes=3-", SP_RANGE_FOUND, 3, 7},
	{"bytes=3-100", SP_RANGE_FOUND, 3, 7},
	{"bytes=-4", SP_RANGE_FOUND, 6, 4},
	{"bytes=-100", SP_RANGE_FOUND, 0, 10},
	{"bytes = 1-2", SP_RANGE_MALFORMED, 0, 0},
	{"Bytes=1 - 2 ", SP_RANGE_FOUND, 1, 2},
	{"bytes=5-6,0-1", SP_RANGE_FOUND, 5, 2},
	{"bytes=20-30, 1-2", SP_RANGE_FOUND, 1, 2},
	{"bytes=,,7-8,", SP_RANGE_FOUND, 7, 2},
	{"bytes=10-", SP_RANGE_UNSATISFIABLE, 0, 0},
	{"bytes=-0", SP_RANGE_UNSATISFIABLE, 0, 0},
	{"bytes=", SP_RANGE_UNSATISFIABLE, 0, 0},
	{"bytes=9223372036854775807-", SP_RANGE_UNSATISFIABLE, 0, 0},
	{"bytes=9223372036854775808-", SP_RANGE_MALFORMED, 0, 0},
	{"bytes=99999999999999999999-", SP_RANGE_MALFORMED, 0, 0},
	{"bytes=0-99999999999999999999", SP_RANGE_MALFORMED, 0, 0},
	{"bytes=5-4", SP_RANGE_MALFORMED, 0, 0},
	{"bytes=-", SP_RANGE_MALFORMED, 0, 0},
	{"bytes=a-b", SP_RANGE_MALFORMED, 0, 0},
	{"bytes=1-2;3", SP_RANGE_MALFORMED, 0, 0},
	{"bytes=1-2,x", SP_RANGE_MALFORMED, 0, 0},
	{"bytes=5", SP_RANGE_MALFORMED, 0, 0},
	{"lines=1-2", SP_RANGE_MALFORMED, 0, 0},
	{"", SP_RANGE_MALFORMED, 0, 0},
};

Test(api_byte_range, first_satisfiable_range_is_served)
{
	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++) {
		struct sp_byte_range range = {99, 99};
		enum sp_byte_range_outcome outcome =
			sp_byte_range_parse(cases[i].header, 10, &range);

		cr_assert(outcome == cases[i].outcome, "'%s' is %d", cases[i].header, outcome);
		if (outcome == SP_RANGE_FOUND)
			cr_assert(range.start == cases[i].start && range.length == cases[i].length,
				  "'%s'", cases[i].header);
	}
}

Test(api_byte_range, an_empty_file_has_no_range)
{
	struct sp_byte_range range;

	cr_assert(sp_byte_range_parse("bytes=0-", 0, &range) == SP_RANGE_UNSATISFIABLE);
	cr_assert(sp_byte_range_parse("bytes=-5", 0, &range) == SP_RANGE_UNSATISFIABLE);
	cr_assert(sp_byte_range_parse("bytes=x", 0, &range) == SP_RANGE_MALFORMED);
}
