/*
 * The Range header of a download (RFC 9110, 14.1.2) as execd reads it: of a list only the first
 * range that the file has is served. Pure.
 */
#ifndef SP_API_BYTE_RANGE_H
#define SP_API_BYTE_RANGE_H

#include "pool/base/base.h"

struct sp_byte_range {
	uint64_t start;
	uint64_t length; /* > 0 */
};

enum sp_byte_range_outcome {
	SP_RANGE_FOUND,
	SP_RANGE_UNSATISFIABLE, /* all begin behind the end */
	SP_RANGE_MALFORMED,
};

/* "bytes=0-9, -5"; size: of the file. */
enum sp_byte_range_outcome sp_byte_range_parse(const char *header, uint64_t size,
					       struct sp_byte_range *ret_range);

#endif
