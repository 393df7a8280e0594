/*
 * The codec of the framed exec stream. Pure: looks at bytes, writes bytes, keeps nothing. The peer
 * is not trusted in either direction; a frame that is refused ends the connection, so there is no
 * resynchronisation.
 *
 * The limit of a payload depends on its type: what has a fixed shape has a fixed size (a credit of
 * three bytes is as wrong as one of five), data is at most SP_FRAME_DATA_MAX, JSON at most
 * SP_FRAME_PAYLOAD_MAX. So a reader needs no more than one START of buffer per connection.
 */
#include "supervisor/api/exec_frame.h"

#include <errno.h>
#include <string.h>

struct frame_rule {
	bool from_client;
	bool from_server;
	uint32_t min_length;
	uint32_t max_length;
};

/* Types are sparse (1…5, 65…70); the rest of the table is all zero: in neither direction legal. */
static const struct frame_rule frame_rules[] = {
	[SP_FRAME_START] = {true, false, 0, SP_FRAME_PAYLOAD_MAX},
	[SP_FRAME_STDIN] = {true, false, 0, SP_FRAME_DATA_MAX},
	[SP_FRAME_STDIN_EOF] = {true, false, 0, 0},
	[SP_FRAME_RESIZE] = {true, false, 4, 4},
	[SP_FRAME_SIGNAL] = {true, false, 4, 4},
	[SP_FRAME_STARTED] = {false, true, 0, SP_FRAME_PAYLOAD_MAX},
	[SP_FRAME_STDOUT] = {false, true, 0, SP_FRAME_DATA_MAX},
	[SP_FRAME_STDERR] = {false, true, 0, SP_FRAME_DATA_MAX},
	[SP_FRAME_STDIN_CREDIT] = {false, true, 4, 4},
	[SP_FRAME_RESULT] = {false, true, 0, SP_FRAME_PAYLOAD_MAX},
	[SP_FRAME_ERROR] = {false, true, 0, SP_FRAME_PAYLOAD_MAX},
};

void sp_frame_header_write(uint8_t *header, enum sp_frame_type type, uint32_t length)
{
	memset(header, 0, SP_FRAME_HEADER_SIZE);
	header[0] = (uint8_t)type;
	for (unsigned int i = 0; i < sizeof(length); i++)
		header[4 + i] = (uint8_t)(length >> (8 * i));
}

static uint32_t read_length(const uint8_t *header)
{
	uint32_t length = 0;

	for (unsigned int i = 0; i < sizeof(length); i++)
		length |= (uint32_t)header[4 + i] << (8 * i);
	return length;
}

int64_t sp_frame_parse(const uint8_t *data, size_t len, bool from_client,
		       struct sp_frame *ret_frame)
{
	const struct frame_rule *rule;
	uint32_t length;

	/* What is there of the header is judged at once: garbage must not wait for 8 bytes. */
	if (len < 1)
		return 0;
	if (data[0] >= SP_ARRAY_SIZE(frame_rules))
		return -EPROTO;
	rule = &frame_rules[data[0]];
	if (!(from_client ? rule->from_client : rule->from_server))
		return -EPROTO;
	for (size_t i = 1; i < SP_MIN(len, (size_t)4); i++)
		if (data[i] != 0)
			return -EPROTO;
	if (len < SP_FRAME_HEADER_SIZE)
		return 0;
	length = read_length(data);
	if (length > rule->max_length)
		return -EMSGSIZE;
	if (length < rule->min_length)
		return -EPROTO;
	if (len - SP_FRAME_HEADER_SIZE < length)
		return 0;
	*ret_frame = (struct sp_frame){
		.type = (enum sp_frame_type)data[0],
		.length = length,
		.payload = data + SP_FRAME_HEADER_SIZE,
	};
	return (int64_t)SP_FRAME_HEADER_SIZE + length;
}
