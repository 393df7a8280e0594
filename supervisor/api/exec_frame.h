/*
 * The framed duplex stream after `Upgrade: sandpool-exec`.
 *
 * Frame: 8 bytes of header, then `length` bytes of payload.
 *
 *	0  u8   type
 *	1  u8   0
 *	2  u16  0
 *	4  u32  length, little endian, <= SP_FRAME_PAYLOAD_MAX
 *
 * The client sends START (JSON), the server answers STARTED (JSON) or ERROR (JSON); then STDIN,
 * STDIN_EOF, RESIZE, SIGNAL one way, STDOUT, STDERR, STDIN_CREDIT the other, until RESULT or ERROR.
 * After either the client may START again on the same connection: one exec at a time, any number in
 * turn. On /v1/sandboxes/{id}/exec each START runs in that sandbox; on /v1/pools/{pool}/run each
 * START acquires a fresh sandbox, runs, and releases it.
 *
 * stdin is credited: the client may have SP_EXEC_STDIN_WINDOW bytes outstanding, so control frames
 * are never stuck behind data. More is a protocol error. Output is back-pressured by the
 * connection. Closing the connection cancels the exec. Frames of a finished exec that cross the
 * RESULT on the wire (STDIN, STDIN_EOF, RESIZE, SIGNAL) are ignored.
 *
 * The codec is shared by the daemon and the CLI: no libuv, no JSON, no allocation.
 */
#ifndef SP_API_EXEC_FRAME_H
#define SP_API_EXEC_FRAME_H

#include "pool/base/base.h"

#define SP_FRAME_HEADER_SIZE 8u
#define SP_FRAME_PAYLOAD_MAX (1u << 20) /* START with a long argv; data frames are <= 64 KiB */
#define SP_FRAME_DATA_MAX    (64u << 10)

enum sp_frame_type {
	SP_FRAME_START = 1,     /* C→S JSON */
	SP_FRAME_STDIN = 2,     /* C→S bytes */
	SP_FRAME_STDIN_EOF = 3, /* C→S empty */
	SP_FRAME_RESIZE = 4,    /* C→S u16 rows, u16 columns, little endian */
	SP_FRAME_SIGNAL = 5,    /* C→S u32 signal number */

	SP_FRAME_STARTED = 65,      /* S→C JSON {"sandbox": id, "pool": name} */
	SP_FRAME_STDOUT = 66,       /* S→C bytes */
	SP_FRAME_STDERR = 67,       /* S→C bytes */
	SP_FRAME_STDIN_CREDIT = 68, /* S→C u32 */
	SP_FRAME_RESULT = 69,       /* S→C JSON, see api/README.md */
	SP_FRAME_ERROR = 70,        /* S→C JSON {"code", "message"}; the exec never started */
};

struct sp_frame {
	enum sp_frame_type type;
	uint32_t length;
	const uint8_t *payload; /* into the caller's buffer */
};

void sp_frame_header_write(uint8_t *header, enum sp_frame_type type, uint32_t length);

/*
 * Look at the first frame in `data`. Returns the bytes it takes (header + payload) with *ret_frame
 * filled, 0 when more bytes are needed, -EPROTO (unknown type, non-zero reserved byte), -EMSGSIZE
 * (payload beyond the limit of its type). from_client: which direction's types are legal.
 */
int64_t sp_frame_parse(const uint8_t *data, size_t len, bool from_client,
		       struct sp_frame *ret_frame);

#endif
