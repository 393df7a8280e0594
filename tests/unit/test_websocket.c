/*
 * The WebSocket codec: the RFC's own examples, every split of a stream, every rule that refuses,
 * the limits at N and N + 1, and what we write.
 */
#include "supervisor/api/websocket.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t mask[4] = {0x37, 0xfa, 0x21, 0x3d};

/* A client's frame. length_bytes: 0 = as short as it can be, 2, 8. Returns its size. */
static size_t put_frame(uint8_t *at, unsigned int first, const void *payload, size_t len,
			size_t length_bytes)
{
	const uint8_t *from = payload;
	size_t size = 0;

	if (length_bytes == 0)
		length_bytes = len > UINT16_MAX ? 8 : len > 125 ? 2 : 1;
	at[size++] = (uint8_t)first;
	at[size++] = (uint8_t)(0x80 | (length_bytes == 1 ? len : length_bytes == 2 ? 126 : 127));
	for (size_t i = 0; length_bytes > 1 && i < length_bytes; i++)
		at[size++] = (uint8_t)((uint64_t)len >> (8 * (length_bytes - 1 - i)));
	memcpy(at + size, mask, sizeof(mask));
	size += sizeof(mask);
	for (size_t i = 0; i < len; i++)
		at[size++] = from[i] ^ mask[i % 4];
	return size;
}

/* All messages of a stream as text: "1:hello|9:|8:1000bye|", or the error at its end. */
struct transcript {
	char text[4096];
	size_t len;
	int status;
};

static void note(struct transcript *transcript, const struct sp_ws_message *message)
{
	int len = snprintf(transcript->text + transcript->len,
			   sizeof(transcript->text) - transcript->len, "%d:", (int)message->opcode);

	transcript->len += (size_t)len;
	if (message->opcode == SP_WS_CLOSE)
		transcript->len += (size_t)snprintf(transcript->text + transcript->len, 8, "%u",
						    message->close_code);
	cr_assert(transcript->len + message->len + 2 < sizeof(transcript->text));
	memcpy(transcript->text + transcript->len, message->data, message->len);
	transcript->len += message->len;
	transcript->text[transcript->len++] = '|';
	transcript->text[transcript->len] = '\0';
}

static void feed(struct sp_ws_reader *reader, const uint8_t *data, size_t len,
		 struct transcript *transcript)
{
	size_t used = 0;

	while (used < len && transcript->status == 0) {
		struct sp_ws_message message;
		bool complete;
		int64_t taken =
			sp_ws_reader_feed(reader, data + used, len - used, &message, &complete);

		if (taken < 0) {
			transcript->status = (int)taken;
			break;
		}
		cr_assert(taken > 0);
		used += (size_t)taken;
		if (complete)
			note(transcript, &message);
		else
			cr_assert(used == len);
	}
}

static struct transcript read_stream(const uint8_t *data, size_t len, size_t step)
{
	struct transcript transcript = {.len = 0};
	struct sp_ws_reader reader;

	sp_ws_reader_init(&reader);
	for (size_t at = 0; at < len && transcript.status == 0; at += step)
		feed(&reader, data + at, SP_MIN(step, len - at), &transcript);
	sp_ws_reader_done(&reader);
	return transcript;
}

/* One frame alone: what is read of it? */
static struct transcript read_frame(unsigned int first, const void *payload, size_t len)
{
	uint8_t data[1024];

	return read_stream(data, put_frame(data, first, payload, len, 0), sizeof(data));
}

Test(websocket, accepts_the_key_of_the_rfc)
{
	char accept[SP_WS_ACCEPT_LEN + 1];

	cr_assert(sp_ws_accept("dGhlIHNhbXBsZSBub25jZQ==", accept) == 0);
	cr_assert(strcmp(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=") == 0, "%s", accept);
}

Test(websocket, refuses_keys_that_are_not_16_bytes)
{
	static const char *const keys[] = {
		"",
		"dGhlIHNhbXBsZSBub25jZQ=",
		"dGhlIHNhbXBsZSBub25jZQ===",
		"dGhlIHNhbXBsZSBub25jZR==", /* bits where there are none */
		"dGhlIHNhbXBsZSBub25jZ===",
		"dGhlIHNhbXBsZSBub25jZQ!=",
		"dGhlIHNhbXBsZS!ub25jZQ==",
	};
	char accept[SP_WS_ACCEPT_LEN + 1];

	cr_assert(sp_ws_accept(NULL, accept) == -EINVAL);
	for (size_t i = 0; i < SP_ARRAY_SIZE(keys); i++)
		cr_assert(sp_ws_accept(keys[i], accept) == -EINVAL, "%s", keys[i]);
}

Test(websocket, reads_the_masked_hello_of_the_rfc)
{
	static const uint8_t data[] = {0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d,
				       0x7f, 0x9f, 0x4d, 0x51, 0x58};
	struct transcript transcript = read_stream(data, sizeof(data), sizeof(data));

	cr_assert(strcmp(transcript.text, "1:Hello|") == 0, "%s", transcript.text);
}

Test(websocket, every_split_of_a_stream_reads_the_same)
{
	static const char expected[] = "9:ping|1:Hello|2:\x01\xff|10:|8:1000bye|";
	uint8_t data[512];
	char close[5] = {0x03, (char)0xe8, 'b', 'y', 'e'};
	size_t len = put_frame(data, 0x01, "Hel", 3, 0);

	/* A control frame between two fragments. */
	len += put_frame(data + len, 0x89, "ping", 4, 0);
	len += put_frame(data + len, 0x00, "", 0, 0);
	len += put_frame(data + len, 0x80, "lo", 2, 0);
	len += put_frame(data + len, 0x82, "\x01\xff", 2, 0);
	len += put_frame(data + len, 0x8a, "", 0, 0);
	len += put_frame(data + len, 0x88, close, sizeof(close), 0);
	len += put_frame(data + len, 0x82, "after the close", 15, 0);
	for (size_t step = 1; step <= len; step++) {
		struct transcript transcript = read_stream(data, len, step);

		cr_assert(transcript.status == 0);
		cr_assert(strcmp(transcript.text, expected) == 0, "step %zu: %s", step,
			  transcript.text);
	}
	for (size_t cut = 0; cut <= len; cut++) {
		struct transcript transcript = {.len = 0};
		struct sp_ws_reader reader;

		sp_ws_reader_init(&reader);
		feed(&reader, data, cut, &transcript);
		feed(&reader, data + cut, len - cut, &transcript);
		sp_ws_reader_done(&reader);
		cr_assert(strcmp(transcript.text, expected) == 0, "cut %zu: %s", cut,
			  transcript.text);
	}
}

Test(websocket, every_split_of_a_bad_stream_fails_the_same)
{
	uint8_t data[64];
	size_t len = put_frame(data, 0x82, "fine", 4, 0);

	len += put_frame(data + len, 0x83, "reserved", 8, 0);
	for (size_t step = 1; step <= len; step++) {
		struct transcript transcript = read_stream(data, len, step);

		cr_assert(transcript.status == -EPROTO && strcmp(transcript.text, "2:fine|") == 0,
			  "step %zu: %s", step, transcript.text);
	}
}

Test(websocket, opcodes_are_those_of_the_rfc)
{
	for (unsigned int opcode = 0; opcode < 16; opcode++) {
		bool known = opcode == 1 || opcode == 2 || (opcode >= 8 && opcode <= 10);

		cr_assert(read_frame(0x80 | opcode, "", 0).status == (known ? 0 : -EPROTO),
			  "opcode %u", opcode);
	}
}

Test(websocket, reserved_bits_are_refused)
{
	for (unsigned int bit = 0x10; bit <= 0x40; bit <<= 1)
		cr_assert(read_frame(0x82 | bit, "", 0).status == -EPROTO, "bit %x", bit);
}

Test(websocket, unmasked_frames_are_refused)
{
	static const uint8_t data[] = {0x82, 0x02, 0, 0, 0, 0};

	cr_assert(read_stream(data, sizeof(data), sizeof(data)).status == -EPROTO);
	cr_assert(read_stream(data, 2, 1).status == -EPROTO, "at once");
}

Test(websocket, fragments_come_in_order)
{
	uint8_t data[64];
	size_t len = put_frame(data, 0x00, "", 0, 0);

	cr_assert(read_stream(data, len, len).status == -EPROTO, "continues nothing");
	len = put_frame(data, 0x01, "a", 1, 0);
	len += put_frame(data + len, 0x81, "b", 1, 0);
	cr_assert(read_stream(data, len, len).status == -EPROTO, "a message within one");
}

Test(websocket, control_frames_are_short_and_whole)
{
	char payload[SP_WS_CONTROL_MAX + 1];

	memset(payload, 'x', sizeof(payload));
	cr_assert(read_frame(0x89, payload, SP_WS_CONTROL_MAX).status == 0);
	cr_assert(read_frame(0x89, payload, SP_WS_CONTROL_MAX + 1).status == -EPROTO);
	cr_assert(read_frame(0x09, "", 0).status == -EPROTO, "a fragment of a PING");
}

Test(websocket, lengths_take_the_bytes_that_they_need)
{
	static const struct {
		size_t len, bytes;
		int status;
	} cases[] = {{125, 2, -EPROTO}, {126, 2, 0},         {126, 8, -EPROTO},
		     {65535, 2, 0},     {65535, 8, -EPROTO}, {65536, 8, 0}};

	uint8_t *data = malloc(SP_WS_MESSAGE_MAX);
	char *payload = calloc(1, 65536);

	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++) {
		size_t len = put_frame(data, 0x82, payload, cases[i].len, cases[i].bytes);
		struct sp_ws_message message;
		struct sp_ws_reader reader;
		bool complete;
		int64_t used;

		sp_ws_reader_init(&reader);
		used = sp_ws_reader_feed(&reader, data, len, &message, &complete);
		cr_assert(cases[i].status
				  ? used == cases[i].status
				  : used == (int64_t)len && complete && message.len == cases[i].len,
			  "%zu in %zu", cases[i].len, cases[i].bytes);
		sp_ws_reader_done(&reader);
	}
	free(payload);
	free(data);
}

Test(websocket, a_length_of_all_ones_does_not_overflow)
{
	static const uint8_t data[] = {0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
				       0xff, 0xff, 0xff, 0,    0,    0,    0};
	uint8_t positive[sizeof(data)];

	cr_assert(read_stream(data, sizeof(data), 1).status == -EPROTO, "the top bit");
	memcpy(positive, data, sizeof(data));
	positive[2] = 0x7f;
	cr_assert(read_stream(positive, sizeof(data), 1).status == -EMSGSIZE);
}

/* Two fragments that are `len` bytes together. */
static int judge_message(size_t len)
{
	uint8_t *data = malloc(len + 64);
	char *payload = calloc(1, len);
	size_t size = put_frame(data, 0x02, payload, 1, 0);
	struct sp_ws_message message;
	struct sp_ws_reader reader;
	bool complete;
	int64_t used;

	size += put_frame(data + size, 0x80, payload, len - 1, 0);
	sp_ws_reader_init(&reader);
	used = sp_ws_reader_feed(&reader, data, size, &message, &complete);
	if (used > 0)
		cr_assert(complete && message.len == len);
	sp_ws_reader_done(&reader);
	free(payload);
	free(data);
	return used < 0 ? (int)used : 0;
}

Test(websocket, longest_message_is_taken_and_one_byte_more_refused)
{
	cr_assert(judge_message(SP_WS_MESSAGE_MAX) == 0);
	cr_assert(judge_message(SP_WS_MESSAGE_MAX + 1) == -EMSGSIZE);
}

Test(websocket, a_long_message_is_not_paid_for_before_it_comes)
{
	static const uint8_t data[] = {0x82, 0xff, 0, 0, 0, 0, 0, 4, 0, 0, 1, 2, 3, 4};
	struct sp_ws_message message;
	struct sp_ws_reader reader;
	bool complete;

	sp_ws_reader_init(&reader);
	cr_assert(sp_ws_reader_feed(&reader, data, sizeof(data), &message, &complete) ==
		  sizeof(data));
	cr_assert(!complete && reader.message.capacity == 0);
	sp_ws_reader_done(&reader);
}

Test(websocket, text_is_utf8_across_fragments)
{
	uint8_t data[64];
	size_t len = put_frame(data, 0x01, "\xc3", 1, 0);

	len += put_frame(data + len, 0x80, "\xa4", 1, 0);
	cr_assert(strcmp(read_stream(data, len, 1).text, "1:\xc3\xa4|") == 0);
	cr_assert(read_frame(0x81, "\xc3", 1).status == -EILSEQ);
	cr_assert(read_frame(0x81, "\xed\xa0\x80", 3).status == -EILSEQ, "a surrogate");
	cr_assert(read_frame(0x82, "\xc3", 1).status == 0, "binary is anything");
}

Test(websocket, close_codes_are_those_that_may_be_sent)
{
	static const unsigned int good[] = {1000, 1001, 1002, 1003, 1007, 1008, 1009,
					    1010, 1011, 1012, 1013, 1014, 3000, 4999};
	static const unsigned int bad[] = {0,    999,  1004, 1005, 1006, 1015,
					   1016, 2000, 2999, 5000, 65535};

	for (size_t i = 0; i < SP_ARRAY_SIZE(good) + SP_ARRAY_SIZE(bad); i++) {
		bool is_good = i < SP_ARRAY_SIZE(good);
		unsigned int code = is_good ? good[i] : bad[i - SP_ARRAY_SIZE(good)];
		uint8_t payload[2] = {(uint8_t)(code >> 8), (uint8_t)code};

		cr_assert(read_frame(0x88, payload, 2).status == (is_good ? 0 : -EPROTO), "%u",
			  code);
	}
	cr_assert(strcmp(read_frame(0x88, "", 0).text, "8:1005|") == 0, "no code at all");
	cr_assert(read_frame(0x88, "\x03", 1).status == -EPROTO, "half a code");
	cr_assert(read_frame(0x88, "\x03\xe8\xff", 3).status == -EILSEQ, "a reason is text");
}

Test(websocket, a_failed_reader_stays_failed)
{
	struct sp_ws_message message;
	struct sp_ws_reader reader;
	uint8_t data[32];
	size_t len = put_frame(data, 0x83, "", 0, 0);
	bool complete;

	sp_ws_reader_init(&reader);
	cr_assert(sp_ws_reader_feed(&reader, data, len, &message, &complete) == -EPROTO);
	len = put_frame(data, 0x82, "", 0, 0);
	cr_assert(sp_ws_reader_feed(&reader, data, len, &message, &complete) == -EPROTO);
	cr_assert(!complete);
	sp_ws_reader_done(&reader);
}

Test(websocket, each_failure_has_its_close_code)
{
	cr_assert(sp_ws_close_code(-EPROTO) == SP_WS_CLOSE_PROTOCOL);
	cr_assert(sp_ws_close_code(-EILSEQ) == SP_WS_CLOSE_NOT_UTF8);
	cr_assert(sp_ws_close_code(-EMSGSIZE) == SP_WS_CLOSE_TOO_BIG);
	cr_assert(sp_ws_close_code(-ENOMEM) == SP_WS_CLOSE_INTERNAL);
}

Test(websocket, headers_are_as_short_as_they_can_be)
{
	static const struct {
		uint64_t length;
		uint8_t bytes[SP_WS_HEADER_MAX];
		size_t size;
	} cases[] = {
		{0, {0x82, 0}, 2},
		{125, {0x82, 125}, 2},
		{126, {0x82, 126, 0, 126}, 4},
		{65535, {0x82, 126, 0xff, 0xff}, 4},
		{65536, {0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0}, 10},
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(cases); i++) {
		uint8_t header[SP_WS_HEADER_MAX];

		cr_assert(sp_ws_header_write(header, SP_WS_BINARY, cases[i].length) ==
			  cases[i].size);
		cr_assert(memcmp(header, cases[i].bytes, cases[i].size) == 0, "case %zu", i);
	}
}

Test(websocket, a_close_is_cut_at_a_character)
{
	uint8_t frame[SP_WS_FRAME_CONTROL];
	char reason[200];
	size_t len = sp_ws_close_write(frame, 4001, "TAKEN_OVER");

	cr_assert(len == 14 && memcmp(frame, "\x88\x0c\x0f\xa1TAKEN_OVER", 14) == 0);
	memset(reason, 'x', sizeof(reason));
	reason[123] = '\0';
	cr_assert(sp_ws_close_write(frame, 1000, reason) == 2 + 125);
	reason[123] = 'x';
	/* Two bytes of which one would fit. */
	memcpy(reason + 122, "\xc3\xa4", 3);
	cr_assert(sp_ws_close_write(frame, 1000, reason) == 2 + 124);
}
