/*
 * The client's half of HTTP/1.1 (RFC 9112): writes a request's head, reads one response.
 *
 * The reader is fed bytes as they come and never blocks, allocates only for the body, and gives
 * the same answer however the bytes were cut. It believes nothing: sizes are limited, and what a
 * proxy and we could read differently (two lengths, a length beside chunks, bare line feeds in
 * framing) is refused.
 */
#ifndef SP_CLI_HTTP_H
#define SP_CLI_HTTP_H

#include "pool/base/buf.h"
#include "pool/base/err.h"

#define SP_CLI_HTTP_LINE_MAX    8192u /* one line of the head */
#define SP_CLI_HTTP_HEADERS_MAX 64u
#define SP_CLI_HTTP_BODY_MAX    (64u << 20)

enum sp_cli_http_state {
	SP_CLI_HTTP_STATUS_LINE,
	SP_CLI_HTTP_HEADER,
	SP_CLI_HTTP_BODY_LENGTH, /* Content-Length */
	SP_CLI_HTTP_BODY_TO_EOF, /* neither length nor chunks */
	SP_CLI_HTTP_CHUNK_SIZE,
	SP_CLI_HTTP_CHUNK_DATA,
	SP_CLI_HTTP_CHUNK_END, /* the line end behind a chunk */
	SP_CLI_HTTP_TRAILER,
	SP_CLI_HTTP_DONE,
};

struct sp_cli_http_reader {
	enum sp_cli_http_state state;
	int status; /* of the response: 100–599 once the status line was read */
	uint32_t header_count;
	bool have_length, chunked;
	uint64_t left; /* of the body or of the chunk */
	uint32_t line_len;
	/* Set after _init(): takes the body of a 2xx as it comes, which then has no limit; negative
	 * ends the reading with its error. NULL: every body is collected. */
	int (*take)(void *arg, const char *data, size_t len, struct sp_err *err);
	void *take_arg;
	char line[SP_CLI_HTTP_LINE_MAX];
	struct sp_buf body;
};

void sp_cli_http_reader_init(struct sp_cli_http_reader *reader);
void sp_cli_http_reader_done(struct sp_cli_http_reader *reader);

/*
 * Take bytes. Returns how many were used; fewer than len only when the response is complete (what
 * follows a 101 belongs to the new protocol). Interim 1xx responses are skipped, 101 is final.
 * -EPROTO or -EMSGSIZE with a message.
 */
int64_t sp_cli_http_reader_feed(struct sp_cli_http_reader *reader, const char *data, size_t len,
				struct sp_err *err);
/* The connection ended. 0 when that completes the response, else -EPROTO. */
int sp_cli_http_reader_eof(struct sp_cli_http_reader *reader, struct sp_err *err);

/* One request. Texts must be free of line ends (checked: -EINVAL). */
struct sp_cli_http_request {
	const char *method;
	const char *target; /* already encoded */
	const char *host;
	const char *api_key; /* NULL = none */
	const char *token;   /* NULL = none */
	bool upgrade;        /* to sandpool-exec */
	uint64_t body_len;
	const char *content_type; /* NULL = application/json */
	bool chunked;             /* the body, instead of body_len */
	bool expect;              /* the server says whether it wants the body */
};

/* Append the head. 0, -EINVAL, -ENOMEM, -E2BIG. */
int sp_cli_http_write_head(const struct sp_cli_http_request *request,
			   struct sp_buf *out) SP_MUST_CHECK;
/* Append one path segment, percent-encoded. */
int sp_cli_http_append_segment(struct sp_buf *out, const char *segment) SP_MUST_CHECK;

#endif
