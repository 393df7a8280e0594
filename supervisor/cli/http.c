/*
 * HTTP/1.1 for one request at a time. See http.h for what is trusted: nothing.
 *
 * States: STATUS_LINE → HEADER… → BODY_LENGTH | BODY_TO_EOF | CHUNK_SIZE ⇄ CHUNK_DATA → CHUNK_END,
 * TRAILER → DONE. An interim response goes from HEADER back to STATUS_LINE.
 */
#include "supervisor/cli/http.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#define STATUS_SWITCHING  101
#define STATUS_NO_CONTENT 204
#define STATUS_UNMODIFIED 304
#define LENGTH_MAX        ((uint64_t)INT64_MAX / 16) /* a digit more is still 64 bits */

void sp_cli_http_reader_init(struct sp_cli_http_reader *reader)
{
	/* Not the line buffer: it is 8 KiB that nobody reads before writing. */
	memset(reader, 0, offsetof(struct sp_cli_http_reader, line));
	sp_buf_init(&reader->body, SP_CLI_HTTP_BODY_MAX);
}

void sp_cli_http_reader_done(struct sp_cli_http_reader *reader)
{
	sp_buf_done(&reader->body);
}

static int refuse(struct sp_err *err, int status, const char *what)
{
	return sp_err_code(err, SP_CODE_PROTOCOL, status, "malformed HTTP response: %s", what);
}

/* "HTTP/1.1 200 OK" */
static int take_status_line(struct sp_cli_http_reader *reader, struct sp_err *err)
{
	const char *line = reader->line;

	if (reader->line_len < 12 || strncmp(line, "HTTP/1.", 7) != 0 ||
	    (line[7] != '0' && line[7] != '1') || line[8] != ' ')
		return refuse(err, -EPROTO, "no HTTP/1.1 status line (is this sandpoold?)");
	for (int i = 9; i < 12; i++)
		if (line[i] < '0' || line[i] > '9')
			return refuse(err, -EPROTO, "status code");
	if (line[12] != '\0' && line[12] != ' ')
		return refuse(err, -EPROTO, "status code");
	reader->status = (line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0');
	if (reader->status < 100 || reader->status > 599)
		return refuse(err, -EPROTO, "status code");
	reader->state = SP_CLI_HTTP_HEADER;
	return 0;
}

/* Whoever takes it as it comes wants it however long it is. */
static bool is_taken(const struct sp_cli_http_reader *reader)
{
	return reader->take && reader->status >= 200 && reader->status <= 299;
}

static uint64_t length_max(const struct sp_cli_http_reader *reader)
{
	return is_taken(reader) ? LENGTH_MAX : SP_CLI_HTTP_BODY_MAX;
}

static int take_length(struct sp_cli_http_reader *reader, const char *value, struct sp_err *err)
{
	uint64_t length = 0;

	if (reader->have_length)
		return refuse(err, -EPROTO, "two Content-Length headers");
	if (*value == '\0')
		return refuse(err, -EPROTO, "Content-Length");
	for (; *value; value++) {
		if (*value < '0' || *value > '9')
			return refuse(err, -EPROTO, "Content-Length");
		length = length * 10 + (uint64_t)(*value - '0');
		if (length > length_max(reader))
			return refuse(err, -EMSGSIZE, "the body is too long");
	}
	reader->have_length = true;
	reader->left = length;
	return 0;
}

static int take_header(struct sp_cli_http_reader *reader, struct sp_err *err)
{
	char *colon = strchr(reader->line, ':');
	char *value;
	char *end;

	if (++reader->header_count > SP_CLI_HTTP_HEADERS_MAX)
		return refuse(err, -EMSGSIZE, "too many headers");
	if (!colon || colon == reader->line || colon[-1] == ' ' || colon[-1] == '\t' ||
	    reader->line[0] == ' ' || reader->line[0] == '\t')
		return refuse(err, -EPROTO, "header line");
	*colon = '\0';
	value = colon + 1 + strspn(colon + 1, " \t");
	end = value + strlen(value);
	while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
		*--end = '\0';
	if (strcasecmp(reader->line, "Content-Length") == 0)
		return take_length(reader, value, err);
	if (strcasecmp(reader->line, "Transfer-Encoding") != 0)
		return 0;
	if (reader->chunked || strcasecmp(value, "chunked") != 0)
		return refuse(err, -EPROTO, "Transfer-Encoding");
	reader->chunked = true;
	return 0;
}

static int end_of_head(struct sp_cli_http_reader *reader, struct sp_err *err)
{
	if (reader->chunked && reader->have_length)
		return refuse(err, -EPROTO, "Content-Length beside Transfer-Encoding");
	if (reader->status < 200 && reader->status != STATUS_SWITCHING) {
		if (reader->chunked || reader->have_length)
			return refuse(err, -EPROTO, "an interim response with a body");
		reader->state = SP_CLI_HTTP_STATUS_LINE; /* header_count goes on: a bound on them */
	} else if (reader->status == STATUS_SWITCHING || reader->status == STATUS_NO_CONTENT ||
		   reader->status == STATUS_UNMODIFIED) {
		reader->state = SP_CLI_HTTP_DONE;
	} else if (reader->chunked) {
		reader->state = SP_CLI_HTTP_CHUNK_SIZE;
	} else if (reader->have_length) {
		reader->state = reader->left > 0 ? SP_CLI_HTTP_BODY_LENGTH : SP_CLI_HTTP_DONE;
	} else {
		reader->state = SP_CLI_HTTP_BODY_TO_EOF;
	}
	return 0;
}

static int hex_digit(char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	if (digit >= 'a' && digit <= 'f')
		return digit - 'a' + 10;
	if (digit >= 'A' && digit <= 'F')
		return digit - 'A' + 10;
	return -1;
}

/* "1a2b" or "1a2b;extension" */
static int take_chunk_size(struct sp_cli_http_reader *reader, struct sp_err *err)
{
	const char *at = reader->line;
	uint64_t size = 0;

	if (hex_digit(*at) < 0)
		return refuse(err, -EPROTO, "chunk size");
	for (; hex_digit(*at) >= 0; at++) {
		size = size * 16 + (uint64_t)hex_digit(*at);
		if (size > length_max(reader))
			return refuse(err, -EMSGSIZE, "a chunk is too long");
	}
	if (*at != '\0' && *at != ';')
		return refuse(err, -EPROTO, "chunk size");
	reader->left = size;
	reader->state = size > 0 ? SP_CLI_HTTP_CHUNK_DATA : SP_CLI_HTTP_TRAILER;
	return 0;
}

static int take_line(struct sp_cli_http_reader *reader, struct sp_err *err)
{
	bool empty = reader->line_len == 0;

	switch (reader->state) {
	case SP_CLI_HTTP_STATUS_LINE:
		return take_status_line(reader, err);
	case SP_CLI_HTTP_HEADER:
		return empty ? end_of_head(reader, err) : take_header(reader, err);
	case SP_CLI_HTTP_CHUNK_SIZE:
		return take_chunk_size(reader, err);
	case SP_CLI_HTTP_CHUNK_END:
		if (!empty)
			return refuse(err, -EPROTO, "chunk end");
		reader->state = SP_CLI_HTTP_CHUNK_SIZE;
		return 0;
	case SP_CLI_HTTP_TRAILER:
		if (empty)
			reader->state = SP_CLI_HTTP_DONE;
		else if (++reader->header_count > SP_CLI_HTTP_HEADERS_MAX)
			return refuse(err, -EMSGSIZE, "too many trailers");
		return 0;
	case SP_CLI_HTTP_BODY_LENGTH:
	case SP_CLI_HTTP_BODY_TO_EOF:
	case SP_CLI_HTTP_CHUNK_DATA:
	case SP_CLI_HTTP_DONE:
		break;
	}
	sp_assert(false); /* the others have no lines */
	return -EPROTO;
}

/* Collect up to CR LF; then one line is complete without them. */
static int64_t feed_line(struct sp_cli_http_reader *reader, const char *data, size_t len,
			 struct sp_err *err)
{
	for (size_t i = 0; i < len; i++) {
		char byte = data[i];
		int status;

		if (byte == '\0')
			return refuse(err, -EPROTO, "a NUL byte in the head");
		if (byte != '\n') {
			if (reader->line_len == SP_CLI_HTTP_LINE_MAX - 1)
				return refuse(err, -EMSGSIZE, "a line of the head is too long");
			reader->line[reader->line_len++] = byte;
			continue;
		}
		if (reader->line_len == 0 || reader->line[reader->line_len - 1] != '\r')
			return refuse(err, -EPROTO, "a bare line feed");
		reader->line[--reader->line_len] = '\0';
		if (memchr(reader->line, '\r', reader->line_len))
			return refuse(err, -EPROTO, "a bare carriage return");
		status = take_line(reader, err);
		reader->line_len = 0;
		if (status < 0)
			return status;
		return (int64_t)i + 1;
	}
	return (int64_t)len;
}

static int64_t feed_body(struct sp_cli_http_reader *reader, const char *data, size_t len,
			 struct sp_err *err)
{
	int status;

	if (reader->state != SP_CLI_HTTP_BODY_TO_EOF)
		len = (size_t)SP_MIN((uint64_t)len, reader->left);
	status = is_taken(reader) ? reader->take(reader->take_arg, data, len, err)
				  : sp_buf_append(&reader->body, data, len);
	if (status < 0 && is_taken(reader))
		return status;
	if (status == -E2BIG)
		return refuse(err, -EMSGSIZE, "the body is too long");
	if (status < 0)
		return sp_err_set(err, status, "read the response");
	if (reader->state == SP_CLI_HTTP_BODY_TO_EOF)
		return (int64_t)len;
	reader->left -= len;
	if (reader->left == 0)
		reader->state = reader->state == SP_CLI_HTTP_CHUNK_DATA ? SP_CLI_HTTP_CHUNK_END
									: SP_CLI_HTTP_DONE;
	return (int64_t)len;
}

static bool in_body(enum sp_cli_http_state state)
{
	return state == SP_CLI_HTTP_BODY_LENGTH || state == SP_CLI_HTTP_BODY_TO_EOF ||
	       state == SP_CLI_HTTP_CHUNK_DATA;
}

int64_t sp_cli_http_reader_feed(struct sp_cli_http_reader *reader, const char *data, size_t len,
				struct sp_err *err)
{
	size_t used = 0;

	while (used < len && reader->state != SP_CLI_HTTP_DONE) {
		int64_t step = in_body(reader->state)
				       ? feed_body(reader, data + used, len - used, err)
				       : feed_line(reader, data + used, len - used, err);

		if (step < 0)
			return step;
		used += (size_t)step;
	}
	return (int64_t)used;
}

int sp_cli_http_reader_eof(struct sp_cli_http_reader *reader, struct sp_err *err)
{
	if (reader->state == SP_CLI_HTTP_BODY_TO_EOF)
		reader->state = SP_CLI_HTTP_DONE;
	if (reader->state == SP_CLI_HTTP_DONE)
		return 0;
	return sp_err_code(err, SP_CODE_PROTOCOL, -EPROTO, "the daemon closed the connection %s",
			   reader->state == SP_CLI_HTTP_STATUS_LINE && reader->line_len == 0
				   ? "without an answer"
				   : "in the middle of its answer");
}

/* What a header value may hold here: printable ASCII. */
static bool header_safe(const char *text)
{
	for (; text && *text; text++)
		if (*text < 0x20 || *text > 0x7e)
			return false;
	return true;
}

int sp_cli_http_write_head(const struct sp_cli_http_request *request, struct sp_buf *out)
{
	int status;

	if (!header_safe(request->target) || !header_safe(request->host) ||
	    !header_safe(request->api_key) || !header_safe(request->token))
		return -EINVAL;
	status = sp_buf_printf(out, "%s %s HTTP/1.1\r\nHost: %s\r\n", request->method,
			       request->target, request->host);
	if (status == 0 && request->api_key)
		status = sp_buf_printf(out, "Authorization: Bearer %s\r\n", request->api_key);
	if (status == 0 && request->token)
		status = sp_buf_printf(out, "X-Sandpool-Token: %s\r\n", request->token);
	if (status == 0 && (request->body_len > 0 || request->chunked))
		status = sp_buf_printf(out, "Content-Type: %s\r\n",
				       request->content_type ? request->content_type
							     : "application/json");
	if (status == 0 && request->expect)
		status = sp_buf_printf(out, "Expect: 100-continue\r\n");
	if (status == 0)
		status = sp_buf_printf(out, request->upgrade ? "Connection: Upgrade\r\n"
							       "Upgrade: sandpool-exec\r\n"
							     : "Connection: close\r\n");
	if (status < 0)
		return status;
	if (request->chunked)
		return sp_buf_printf(out, "Transfer-Encoding: chunked\r\n\r\n");
	return sp_buf_printf(out, "Content-Length: %" PRIu64 "\r\n\r\n", request->body_len);
}

int sp_cli_http_append_segment(struct sp_buf *out, const char *segment)
{
	static const char unreserved[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
					 "0123456789-._~";
	int status = 0;

	for (; *segment && status == 0; segment++) {
		if (strchr(unreserved, *segment))
			status = sp_buf_append(out, segment, 1);
		else
			status = sp_buf_printf(out, "%%%02X", (unsigned char)*segment);
	}
	return status;
}
