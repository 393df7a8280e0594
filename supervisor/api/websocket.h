/*
 * WebSocket (RFC 6455), the server's half: the answer to the handshake, the client's frames in, our
 * frames out. Bytes only: no socket, no HTTP, no policy.
 *
 * The reader gives whole messages, whatever the fragments and however the bytes were cut. It
 * refuses what the RFC says to refuse (unmasked frames, reserved bits and opcodes, lengths in more
 * bytes than they need, text that is not UTF-8, close codes that may not be sent) with the status
 * that tells which close code to answer with.
 */
#ifndef SP_API_WEBSOCKET_H
#define SP_API_WEBSOCKET_H

#include "pool/base/buf.h"

#define SP_WS_MESSAGE_MAX   (256u * 1024) /* of a client, all fragments together */
#define SP_WS_CONTROL_MAX   125u          /* payload of a control frame */
#define SP_WS_HEADER_MAX    10u           /* of a frame of ours, which is never masked */
#define SP_WS_FRAME_CONTROL (SP_WS_HEADER_MAX + SP_WS_CONTROL_MAX)
#define SP_WS_ACCEPT_LEN    28u

enum sp_ws_opcode {
	SP_WS_CONTINUATION = 0,
	SP_WS_TEXT = 1,
	SP_WS_BINARY = 2,
	SP_WS_CLOSE = 8,
	SP_WS_PING = 9,
	SP_WS_PONG = 10,
};

enum sp_ws_close {
	SP_WS_CLOSE_NORMAL = 1000,
	SP_WS_CLOSE_GOING_AWAY = 1001,
	SP_WS_CLOSE_PROTOCOL = 1002,
	SP_WS_CLOSE_NO_CODE = 1005, /* never sent: the frame had none */
	SP_WS_CLOSE_NOT_UTF8 = 1007,
	SP_WS_CLOSE_TOO_BIG = 1009,
	SP_WS_CLOSE_INTERNAL = 1011,
};

struct sp_ws_message {
	enum sp_ws_opcode opcode; /* never CONTINUATION */
	const uint8_t *data;      /* unmasked; the reader's until it is fed again */
	size_t len;
	uint16_t close_code; /* of CLOSE, whose data is then the reason alone */
};

struct sp_ws_reader {
	uint8_t header[14];
	size_t header_len;
	bool in_payload;
	bool delivered; /* the last feed gave a message: its memory is free for the next */
	bool closed;    /* a CLOSE was given: what follows it is nothing */
	int failed;     /* what every further feed returns */
	uint64_t left;  /* of the payload */
	size_t mask_at;
	enum sp_ws_opcode fragments_of; /* CONTINUATION: no message is under way */
	struct sp_buf message;
	uint8_t control[SP_WS_CONTROL_MAX];
	size_t control_len;
};

/*
 * The value of Sec-WebSocket-Accept, for a Sec-WebSocket-Key that is base64 of 16 bytes. accept has
 * room for SP_WS_ACCEPT_LEN + 1. -EINVAL.
 */
int sp_ws_accept(const char *key, char *accept);

void sp_ws_reader_init(struct sp_ws_reader *reader);
void sp_ws_reader_done(struct sp_ws_reader *reader);

/*
 * Take bytes, up to the end of the first message that they complete: *ret_complete says whether
 * there is one. Returns how many were used, which is all of them unless a message is complete.
 * -EPROTO, -EILSEQ (text is not UTF-8), -EMSGSIZE (beyond SP_WS_MESSAGE_MAX), -ENOMEM.
 */
int64_t sp_ws_reader_feed(struct sp_ws_reader *reader, const void *data, size_t len,
			  struct sp_ws_message *ret_message, bool *ret_complete);
/* What to close with after a failed feed. */
enum sp_ws_close sp_ws_close_code(int status);

/* The header of an unfragmented frame; at has room for SP_WS_HEADER_MAX. Returns its length. */
size_t sp_ws_header_write(uint8_t *at, enum sp_ws_opcode opcode, uint64_t length);
/* A whole CLOSE frame; at has room for SP_WS_FRAME_CONTROL. The reason is cut to what fits, at a
 * character. Returns its length. */
size_t sp_ws_close_write(uint8_t *at, uint16_t code, const char *reason);

#endif
