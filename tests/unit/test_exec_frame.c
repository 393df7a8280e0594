/*
 * The frame codec: exact bytes, every split of a stream, every type in both directions, every limit
 * at N and N+1.
 */
#include "supervisor/api/exec_frame.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	enum sp_frame_type type;
	bool from_client;
	uint32_t min, max;
} rules[] = {
	{SP_FRAME_START, true, 0, SP_FRAME_PAYLOAD_MAX},
	{SP_FRAME_STDIN, true, 0, SP_FRAME_DATA_MAX},
	{SP_FRAME_STDIN_EOF, true, 0, 0},
	{SP_FRAME_RESIZE, true, 4, 4},
	{SP_FRAME_SIGNAL, true, 4, 4},
	{SP_FRAME_STARTED, false, 0, SP_FRAME_PAYLOAD_MAX},
	{SP_FRAME_STDOUT, false, 0, SP_FRAME_DATA_MAX},
	{SP_FRAME_STDERR, false, 0, SP_FRAME_DATA_MAX},
	{SP_FRAME_STDIN_CREDIT, false, 4, 4},
	{SP_FRAME_RESULT, false, 0, SP_FRAME_PAYLOAD_MAX},
	{SP_FRAME_ERROR, false, 0, SP_FRAME_PAYLOAD_MAX},
};

static size_t put(uint8_t *at, enum sp_frame_type type, const char *payload)
{
	uint32_t length = (uint32_t)strlen(payload);

	sp_frame_header_write(at, type, length);
	memcpy(at + SP_FRAME_HEADER_SIZE, payload, length);
	return SP_FRAME_HEADER_SIZE + length;
}

/* A header alone: what does the parser say of a payload of this length? */
static int64_t judge(enum sp_frame_type type, bool from_client, uint32_t length)
{
	size_t size = SP_FRAME_HEADER_SIZE + (size_t)SP_FRAME_PAYLOAD_MAX;
	uint8_t *data = calloc(1, size);
	struct sp_frame frame;
	int64_t result;

	sp_frame_header_write(data, type, length);
	result = sp_frame_parse(data, size, from_client, &frame);
	free(data);
	return result;
}

Test(exec_frame, header_is_type_zeros_and_little_endian_length)
{
	static const uint8_t expected[] = {66, 0, 0, 0, 0x04, 0x03, 0x02, 0x01};
	uint8_t header[SP_FRAME_HEADER_SIZE];

	memset(header, 0xff, sizeof(header));
	sp_frame_header_write(header, SP_FRAME_STDOUT, 0x01020304);
	cr_assert(memcmp(header, expected, sizeof(expected)) == 0);
}

Test(exec_frame, payload_is_found_in_place)
{
	uint8_t data[64];
	size_t len = put(data, SP_FRAME_STDIN, "ab\xff");
	struct sp_frame frame;

	cr_assert(sp_frame_parse(data, len, true, &frame) == (int64_t)len);
	cr_assert(frame.type == SP_FRAME_STDIN);
	cr_assert(frame.length == 3);
	cr_assert(frame.payload == data + SP_FRAME_HEADER_SIZE);
}

Test(exec_frame, every_proper_prefix_wants_more)
{
	uint8_t data[64];
	size_t len = put(data, SP_FRAME_START, "{\"argv\":[]}");
	struct sp_frame frame;

	for (size_t i = 0; i < len; i++)
		cr_assert(sp_frame_parse(data, i, true, &frame) == 0, "prefix of %zu bytes", i);
}

Test(exec_frame, output_is_untouched_unless_a_frame_is_complete)
{
	struct sp_frame frame = {.length = 77};
	uint8_t data[64];
	size_t len = put(data, SP_FRAME_STDIN, "abc");

	cr_assert(sp_frame_parse(data, len - 1, true, &frame) == 0);
	data[1] = 1;
	cr_assert(sp_frame_parse(data, len, true, &frame) == -EPROTO);
	cr_assert(frame.length == 77);
}

Test(exec_frame, frames_follow_each_other)
{
	uint8_t data[64];
	size_t first = put(data, SP_FRAME_STDIN, "abc");
	size_t second = put(data + first, SP_FRAME_STDIN_EOF, "");
	struct sp_frame frame;

	cr_assert(sp_frame_parse(data, first + second, true, &frame) == (int64_t)first);
	cr_assert(sp_frame_parse(data + first, second, true, &frame) == (int64_t)second);
	cr_assert(frame.type == SP_FRAME_STDIN_EOF);
	cr_assert(frame.length == 0);
}

Test(exec_frame, each_type_is_legal_in_one_direction_only)
{
	for (size_t i = 0; i < SP_ARRAY_SIZE(rules); i++) {
		cr_assert(judge(rules[i].type, rules[i].from_client, rules[i].min) > 0, "type %d",
			  rules[i].type);
		cr_assert(judge(rules[i].type, !rules[i].from_client, rules[i].min) == -EPROTO,
			  "type %d", rules[i].type);
	}
}

Test(exec_frame, unknown_types_are_refused_at_the_first_byte)
{
	for (int type = 0; type < 256; type++) {
		uint8_t byte = (uint8_t)type;
		struct sp_frame frame;
		bool known = false;

		for (size_t i = 0; i < SP_ARRAY_SIZE(rules); i++)
			known |= rules[i].from_client && (int)rules[i].type == type;
		cr_assert(sp_frame_parse(&byte, 1, true, &frame) == (known ? 0 : -EPROTO),
			  "type %d", type);
	}
}

Test(exec_frame, reserved_bytes_must_be_zero)
{
	for (size_t i = 1; i < 4; i++) {
		uint8_t data[SP_FRAME_HEADER_SIZE];
		struct sp_frame frame;

		sp_frame_header_write(data, SP_FRAME_STDIN_EOF, 0);
		data[i] = 1;
		cr_assert(sp_frame_parse(data, i + 1, true, &frame) == -EPROTO, "byte %zu", i);
	}
}

Test(exec_frame, longest_payload_of_each_type_is_taken_and_one_more_refused)
{
	for (size_t i = 0; i < SP_ARRAY_SIZE(rules); i++) {
		cr_assert(judge(rules[i].type, rules[i].from_client, rules[i].max) ==
				  (int64_t)SP_FRAME_HEADER_SIZE + rules[i].max,
			  "type %d", rules[i].type);
		cr_assert(judge(rules[i].type, rules[i].from_client, rules[i].max + 1) == -EMSGSIZE,
			  "type %d", rules[i].type);
	}
}

Test(exec_frame, fixed_payloads_are_not_shorter)
{
	for (size_t i = 0; i < SP_ARRAY_SIZE(rules); i++)
		if (rules[i].min > 0)
			cr_assert(judge(rules[i].type, rules[i].from_client, rules[i].min - 1) ==
					  -EPROTO,
				  "type %d", rules[i].type);
}

Test(exec_frame, length_of_all_ones_does_not_overflow)
{
	cr_assert(judge(SP_FRAME_START, true, UINT32_MAX) == -EMSGSIZE);
}
