/* libs: sp_frame */
/*
 * The frame codec against a second reading of the same bytes: what is parsed from the whole must be
 * parsed from any split of it, a frame written again must be the bytes that were read, and no frame
 * may reach beyond the data.
 */
#include "supervisor/api/exec_frame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_frame(const uint8_t *at, size_t left, bool from_client)
{
	uint8_t header[SP_FRAME_HEADER_SIZE];
	struct sp_frame frame;
	struct sp_frame again;
	int64_t taken = sp_frame_parse(at, left, from_client, &frame);

	if (taken <= 0)
		return;
	if ((uint64_t)taken > left || (uint64_t)taken != SP_FRAME_HEADER_SIZE + frame.length)
		abort();
	if (frame.payload != at + SP_FRAME_HEADER_SIZE || frame.length > SP_FRAME_PAYLOAD_MAX)
		abort();
	sp_frame_header_write(header, frame.type, frame.length);
	if (memcmp(header, at, sizeof(header)) != 0)
		abort();
	if (sp_frame_parse(at, left, !from_client, &again) != -EPROTO)
		abort();
}

/* The verdict on a prefix is "more", or it is the verdict on the whole. */
static void check_prefixes(const uint8_t *at, size_t left, bool from_client)
{
	struct sp_frame frame;
	int64_t whole = sp_frame_parse(at, left, from_client, &frame);
	size_t limit = whole > 0 ? (size_t)whole : left;

	for (size_t len = 0; len < limit && len < 64; len++) {
		struct sp_frame part;
		int64_t verdict = sp_frame_parse(at, len, from_client, &part);

		if (verdict != 0 && verdict != whole)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	bool from_client;
	size_t used = 1;

	if (size < 1)
		return 0;
	from_client = data[0] & 1;
	while (used < size) {
		struct sp_frame frame;
		int64_t taken;

		check_frame(data + used, size - used, from_client);
		check_prefixes(data + used, size - used, from_client);
		taken = sp_frame_parse(data + used, size - used, from_client, &frame);
		if (taken <= 0)
			break;
		used += (size_t)taken;
	}
	return 0;
}
