/*
 * Reads one HTTP/1.x answer of a server inside a sandbox (RFC 9112). Bytes only, and it believes
 * nothing: that server is foreign code.
 *
 * The head is bounded and given as a whole; the body is given piece by piece as it comes, out of
 * its chunks. What two readers could take for two things is refused: a length beside chunks, two
 * lengths, any other coding than chunked, chunks in HTTP/1.0, folded lines, blanks before a colon,
 * control bytes. Interim answers (1xx) are skipped; 101 is one only if it was asked for, and what
 * follows it is not HTTP. Trailers are dropped. However the bytes are cut, the outcome is the same.
 */
#ifndef SP_API_HTTP_ANSWER_H
#define SP_API_HTTP_ANSWER_H

#include "pool/base/buf.h"

/* Status line and headers: beside the largest request's it fits SP_API_CONNECTION_MEMORY. */
#define SP_HTTP_ANSWER_HEAD_MAX    (12u * 1024)
#define SP_HTTP_ANSWER_HEADERS_MAX 100u
#define SP_HTTP_ANSWER_INTERIM_MAX 8u
#define SP_HTTP_ANSWER_LINE_MAX    256u        /* of a chunk's size, with extensions */
#define SP_HTTP_ANSWER_TRAILER_MAX (8u * 1024) /* all trailers together */

struct sp_http_header {
	const char *name;
	const char *value; /* without blanks around it; may be "" */
};

enum sp_http_state {
	SP_HTTP_HEAD,
	SP_HTTP_LENGTH,    /* `left` bytes */
	SP_HTTP_UNTIL_END, /* … of the connection */
	SP_HTTP_CHUNK_SIZE,
	SP_HTTP_CHUNK_DATA,
	SP_HTTP_CHUNK_END, /* the line end behind it */
	SP_HTTP_TRAILERS,
	SP_HTTP_DONE,
	SP_HTTP_SWITCHED, /* after 101 */
};

struct sp_http_answer {
	bool to_head; /* the request was HEAD */
	bool upgrade; /* it asked for one */
	enum sp_http_state state;
	int failed; /* what every further feed returns */
	unsigned int interim_count;
	uint64_t left;
	size_t line_len; /* of a chunk's size or end, or of a trailer */
	size_t trailers_len;
	bool digits_ended; /* of a chunk's size */
	bool after_cr;
	struct sp_buf head;

	/* Once the head was given; the texts are in `head`. */
	unsigned int status;
	bool http10;
	int64_t length; /* of Content-Length, -1 = none */
	struct sp_http_header headers[SP_HTTP_ANSWER_HEADERS_MAX];
	size_t header_count;
};

enum sp_http_event {
	SP_HTTP_MORE, /* all was used, nothing to tell */
	SP_HTTP_GOT_HEAD,
	SP_HTTP_GOT_BODY, /* *ret_body, *ret_len: in the caller's data */
	SP_HTTP_GOT_END,
};

void sp_http_answer_init(struct sp_http_answer *answer, bool to_head, bool upgrade);
void sp_http_answer_done(struct sp_http_answer *answer);

/*
 * Take bytes up to the next thing to tell. Returns how many were used. After GOT_END or in state
 * SWITCHED none are. GOT_END may come without bytes: call again after each event, also with len 0.
 * -EPROTO, -EMSGSIZE (a limit), -ENOMEM.
 */
int64_t sp_http_answer_feed(struct sp_http_answer *answer, const void *data, size_t len,
			    enum sp_http_event *ret_event, const char **ret_body, size_t *ret_len);
/* The connection ended. 0: that ends the answer. -EPROTO: it is cut. */
int sp_http_answer_eof(const struct sp_http_answer *answer);

/* Value of the first header of that name (case ignored), or NULL. After the head. */
const char *sp_http_answer_header(const struct sp_http_answer *answer, const char *name);

#endif
