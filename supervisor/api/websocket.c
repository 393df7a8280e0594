/*
 * A frame is a header of 2 to 14 bytes and a payload:
 *
 *	0  FIN, 3 reserved bits, 4 bits of opcode
 *	1  MASK, 7 bits of length; 126 and 127: 2 or 8 bytes of length follow, big endian
 *	   4 bytes of mask, from clients always
 *
 * The header is collected, judged as a whole, and the payload is unmasked into one of two places:
 * the message that its fragments build, or the control frame, which may come between two fragments.
 * Memory grows with what has arrived, not with what a header announces.
 */
#include "supervisor/api/websocket.h"

#include "supervisor/api/json_out.h"

#include <errno.h>
#include <gnutls/crypto.h>
#include <string.h>

#define FIN           0x80u
#define RESERVED      0x70u
#define OPCODE        0x0fu
#define MASK          0x80u
#define LENGTH        0x7fu
#define LENGTH_16     126u
#define LENGTH_64     127u
#define MASK_SIZE     4u
#define CODE_SIZE     2u
#define KEEP_MAX      (16u * 1024) /* memory that an idle reader keeps */
#define KEY_LEN       24u
#define SHA1_SIZE     20u
#define CONTROL_FIRST 8u

/* ---- handshake ---- */

static const char base64_digits[] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* 20 bytes are six groups of three and one of two. */
static void write_accept(const uint8_t *digest, char *accept)
{
	char *at = accept;

	for (size_t i = 0; i < SHA1_SIZE; i += 3) {
		uint32_t bits = (uint32_t)digest[i] << 16 | (uint32_t)digest[i + 1] << 8;

		if (i + 2 < SHA1_SIZE)
			bits |= digest[i + 2];
		for (int shift = 18; shift >= 0; shift -= 6)
			*at++ = base64_digits[bits >> shift & 0x3f];
	}
	at[-1] = '=';
	*at = '\0';
}

/* 16 bytes: 22 digits, of which the last has 4 bits of nothing, and two signs of padding. */
static bool key_valid(const char *key)
{
	return strlen(key) == KEY_LEN && strspn(key, base64_digits) == KEY_LEN - 2 &&
	       strchr("AQgw", key[KEY_LEN - 3]) && strcmp(key + KEY_LEN - 2, "==") == 0;
}

int sp_ws_accept(const char *key, char *accept)
{
	static const char id[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"; /* RFC 6455, 1.3 */
	uint8_t digest[SHA1_SIZE];
	char text[KEY_LEN + sizeof(id)];

	if (!key || !key_valid(key))
		return -EINVAL;
	memcpy(text, key, KEY_LEN);
	memcpy(text + KEY_LEN, id, sizeof(id));
	if (gnutls_hash_fast(GNUTLS_DIG_SHA1, text, sizeof(text) - 1, digest) < 0)
		return -EINVAL;
	write_accept(digest, accept);
	return 0;
}

/* ---- reading ---- */

void sp_ws_reader_init(struct sp_ws_reader *reader)
{
	*reader = (struct sp_ws_reader){.fragments_of = SP_WS_CONTINUATION};
	sp_buf_init(&reader->message, SP_WS_MESSAGE_MAX);
}

void sp_ws_reader_done(struct sp_ws_reader *reader)
{
	sp_buf_done(&reader->message);
}

static bool is_control(unsigned int opcode)
{
	return opcode >= CONTROL_FIRST;
}

/* How long the header is, as far as its first two bytes say. */
static size_t header_size(const struct sp_ws_reader *reader)
{
	unsigned int length;

	if (reader->header_len < 2)
		return 2;
	length = reader->header[1] & LENGTH;
	return 2 +
	       (length == LENGTH_64   ? 8u
		: length == LENGTH_16 ? 2u
				      : 0u) +
	       (reader->header[1] & MASK ? MASK_SIZE : 0);
}

static uint64_t big_endian(const uint8_t *at, size_t size)
{
	uint64_t value = 0;

	for (size_t i = 0; i < size; i++)
		value = value << 8 | at[i];
	return value;
}

/* -EPROTO unless it takes exactly the bytes that it needs. */
static int read_length(const struct sp_ws_reader *reader, uint64_t *ret_length)
{
	unsigned int length = reader->header[1] & LENGTH;

	if (length < LENGTH_16) {
		*ret_length = length;
		return 0;
	}
	*ret_length = big_endian(reader->header + 2, length == LENGTH_16 ? 2 : 8);
	if (length == LENGTH_16)
		return *ret_length < LENGTH_16 ? -EPROTO : 0;
	return *ret_length <= UINT16_MAX || *ret_length >> 63 ? -EPROTO : 0;
}

static int judge_data(struct sp_ws_reader *reader, unsigned int opcode, uint64_t length)
{
	bool continues = opcode == SP_WS_CONTINUATION;

	if (opcode > SP_WS_BINARY || continues != (reader->fragments_of != SP_WS_CONTINUATION))
		return -EPROTO;
	if (length > SP_WS_MESSAGE_MAX - reader->message.len)
		return -EMSGSIZE;
	if (!continues)
		reader->fragments_of = (enum sp_ws_opcode)opcode;
	return 0;
}

static int judge_header(struct sp_ws_reader *reader)
{
	unsigned int opcode = reader->header[0] & OPCODE;
	uint64_t length;
	int status = read_length(reader, &length);

	if (status < 0 || reader->header[0] & RESERVED || !(reader->header[1] & MASK))
		return -EPROTO;
	if (is_control(opcode)) {
		if (opcode > SP_WS_PONG || !(reader->header[0] & FIN) || length > SP_WS_CONTROL_MAX)
			return -EPROTO;
		reader->control_len = 0;
	} else {
		status = judge_data(reader, opcode, length);
		if (status < 0)
			return status;
	}
	reader->left = length;
	reader->mask_at = 0;
	reader->in_payload = true;
	return 0;
}

static void unmask(struct sp_ws_reader *reader, uint8_t *to, const uint8_t *from, size_t len)
{
	const uint8_t *mask = reader->header + header_size(reader) - MASK_SIZE;

	for (size_t i = 0; i < len; i++)
		to[i] = from[i] ^ mask[(reader->mask_at + i) % MASK_SIZE];
	reader->mask_at = (reader->mask_at + len) % MASK_SIZE;
}

static int take_payload(struct sp_ws_reader *reader, const uint8_t *data, size_t len)
{
	if (len == 0)
		return 0;
	if (is_control(reader->header[0] & OPCODE)) {
		unmask(reader, reader->control + reader->control_len, data, len);
		reader->control_len += len;
	} else {
		char *to = sp_buf_reserve(&reader->message, len);

		if (!to)
			return -ENOMEM;
		unmask(reader, (uint8_t *)to, data, len);
		reader->message.len += len;
	}
	reader->left -= len;
	return 0;
}

/* RFC 6455, 7.4 */
static bool close_code_valid(uint16_t code)
{
	if (code >= 3000)
		return code <= 4999;
	return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014);
}

static int check_text(const struct sp_ws_message *message)
{
	size_t escaped;

	return sp_utf8_valid(message->data, message->len, &escaped) ? 0 : -EILSEQ;
}

static int give_close(struct sp_ws_reader *reader, struct sp_ws_message *ret_message)
{
	reader->closed = true;
	if (reader->control_len == 0) {
		ret_message->close_code = SP_WS_CLOSE_NO_CODE;
		return 0;
	}
	if (reader->control_len < CODE_SIZE)
		return -EPROTO;
	ret_message->close_code = (uint16_t)big_endian(reader->control, CODE_SIZE);
	ret_message->data += CODE_SIZE;
	ret_message->len -= CODE_SIZE;
	if (!close_code_valid(ret_message->close_code))
		return -EPROTO;
	return check_text(ret_message);
}

static int give_control(struct sp_ws_reader *reader, struct sp_ws_message *ret_message)
{
	*ret_message = (struct sp_ws_message){
		.opcode = (enum sp_ws_opcode)(reader->header[0] & OPCODE),
		.data = reader->control,
		.len = reader->control_len,
	};
	return ret_message->opcode == SP_WS_CLOSE ? give_close(reader, ret_message) : 0;
}

static int give_data(struct sp_ws_reader *reader, struct sp_ws_message *ret_message)
{
	*ret_message = (struct sp_ws_message){
		.opcode = reader->fragments_of,
		.data = (const uint8_t *)sp_buf_text(&reader->message),
		.len = reader->message.len,
	};
	reader->fragments_of = SP_WS_CONTINUATION;
	reader->delivered = true;
	return ret_message->opcode == SP_WS_TEXT ? check_text(ret_message) : 0;
}

/* The payload is there. */
static int end_frame(struct sp_ws_reader *reader, struct sp_ws_message *ret_message,
		     bool *ret_complete)
{
	bool control = is_control(reader->header[0] & OPCODE);

	reader->in_payload = false;
	reader->header_len = 0;
	if (!control && !(reader->header[0] & FIN))
		return 0;
	*ret_complete = true;
	return control ? give_control(reader, ret_message) : give_data(reader, ret_message);
}

static size_t take_header(struct sp_ws_reader *reader, const uint8_t *data, size_t len)
{
	size_t used = 0;

	while (used < len && reader->header_len < header_size(reader))
		reader->header[reader->header_len++] = data[used++];
	return used;
}

/* Up to the end of one header or one payload. */
static int step(struct sp_ws_reader *reader, const uint8_t *data, size_t len, size_t *ret_used,
		struct sp_ws_message *ret_message, bool *ret_complete)
{
	int status;

	if (!reader->in_payload) {
		*ret_used = take_header(reader, data, len);
		if (reader->header_len < header_size(reader))
			return 0;
		status = judge_header(reader);
	} else {
		*ret_used = (size_t)SP_MIN(reader->left, (uint64_t)len);
		status = take_payload(reader, data, *ret_used);
	}
	if (status == 0 && reader->left == 0)
		status = end_frame(reader, ret_message, ret_complete);
	return status;
}

static void forget_delivered(struct sp_ws_reader *reader)
{
	if (!reader->delivered)
		return;
	reader->delivered = false;
	if (reader->message.capacity > KEEP_MAX)
		sp_buf_done(&reader->message);
	else
		sp_buf_clear(&reader->message);
}

int64_t sp_ws_reader_feed(struct sp_ws_reader *reader, const void *data, size_t len,
			  struct sp_ws_message *ret_message, bool *ret_complete)
{
	const uint8_t *at = data;
	size_t used = 0;

	*ret_complete = false;
	forget_delivered(reader);
	if (reader->closed && reader->failed == 0)
		return (int64_t)len;
	while (reader->failed == 0 && used < len && !*ret_complete) {
		size_t taken = 0;

		reader->failed =
			step(reader, at + used, len - used, &taken, ret_message, ret_complete);
		used += taken;
	}
	if (reader->failed == 0)
		return (int64_t)used;
	*ret_complete = false;
	return reader->failed;
}

enum sp_ws_close sp_ws_close_code(int status)
{
	switch (status) {
	case -EPROTO:
		return SP_WS_CLOSE_PROTOCOL;
	case -EILSEQ:
		return SP_WS_CLOSE_NOT_UTF8;
	case -EMSGSIZE:
		return SP_WS_CLOSE_TOO_BIG;
	default:
		return SP_WS_CLOSE_INTERNAL;
	}
}

/* ---- writing ---- */

size_t sp_ws_header_write(uint8_t *at, enum sp_ws_opcode opcode, uint64_t length)
{
	size_t size = length < LENGTH_16 ? 0 : length <= UINT16_MAX ? 2 : 8;

	at[0] = (uint8_t)(FIN | (unsigned int)opcode);
	at[1] = (uint8_t)(size == 0 ? length : size == 2 ? LENGTH_16 : LENGTH_64);
	for (size_t i = 0; i < size; i++)
		at[2 + i] = (uint8_t)(length >> (8 * (size - 1 - i)));
	return 2 + size;
}

/* As much of a text as takes at most `max` bytes and does not end inside a character. */
static size_t cut_text(const char *text, size_t max)
{
	size_t len = strlen(text);

	if (len <= max)
		return len;
	while (max > 0 && ((unsigned char)text[max] & 0xc0) == 0x80)
		max--;
	return max;
}

size_t sp_ws_close_write(uint8_t *at, uint16_t code, const char *reason)
{
	size_t len = cut_text(reason, SP_WS_CONTROL_MAX - CODE_SIZE);
	size_t header = sp_ws_header_write(at, SP_WS_CLOSE, CODE_SIZE + len);

	at[header] = (uint8_t)(code >> 8);
	at[header + 1] = (uint8_t)code;
	memcpy(at + header + CODE_SIZE, reason, len);
	return header + CODE_SIZE + len;
}
