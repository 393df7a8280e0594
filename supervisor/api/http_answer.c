/*
 * The head is collected up to its empty line and then read in place. RFC 9112, 2.2 lets a reader
 * take a bare LF for a line's end; what is passed on is written anew, so that hurts nobody, and
 * small servers rely on it. A CR anywhere else is refused with the other control bytes.
 *
 * Framing, RFC 9112, 6.3: no body after 1xx, 204, 304 and HEAD; else chunks; else Content-Length;
 * else all until the connection ends.
 */
#include "supervisor/api/http_answer.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#define CHUNK_DIGITS_MAX  15 /* below 2^60: no sum overflows */
#define STATUS_SWITCHING  101
#define STATUS_NO_CONTENT 204
#define STATUS_UNMODIFIED 304

void sp_http_answer_init(struct sp_http_answer *answer, bool to_head, bool upgrade)
{
	*answer = (struct sp_http_answer){.to_head = to_head, .upgrade = upgrade, .length = -1};
	sp_buf_init(&answer->head, SP_HTTP_ANSWER_HEAD_MAX);
}

void sp_http_answer_done(struct sp_http_answer *answer)
{
	sp_buf_done(&answer->head);
}

/* ---- the head ---- */

/* RFC 9110, 5.6.2 */
static bool is_token(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		unsigned char byte = (unsigned char)text[i];

		if (byte <= ' ' || byte >= 0x7f || strchr("\"(),/:;<=>?@[\\]{}", byte))
			return false;
	}
	return len > 0;
}

static bool is_text(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		unsigned char byte = (unsigned char)text[i];

		if ((byte < ' ' && byte != '\t') || byte == 0x7f)
			return false;
	}
	return true;
}

static bool is_blank(char byte)
{
	return byte == ' ' || byte == '\t';
}

static bool is_digit(char byte)
{
	return byte >= '0' && byte <= '9';
}

/* "HTTP/1.1 200 OK"; the text may be missing. */
static int read_status_line(struct sp_http_answer *answer, const char *line, size_t len)
{
	static const char version[] = "HTTP/1.";
	const size_t at = sizeof(version) - 1;

	if (len < at + 5 || memcmp(line, version, at) != 0 || !is_digit(line[at]) ||
	    line[at + 1] != ' ' || !is_text(line, len))
		return -EPROTO;
	answer->http10 = line[at] == '0';
	answer->status = 0;
	for (size_t i = at + 2; i < at + 5; i++) {
		if (!is_digit(line[i]))
			return -EPROTO;
		answer->status = answer->status * 10 + (unsigned int)(line[i] - '0');
	}
	if (answer->status < 100 || answer->status > 599)
		return -EPROTO;
	return len == at + 5 || line[at + 5] == ' ' ? 0 : -EPROTO;
}

/* Ends name and value in place. */
static int read_header(struct sp_http_answer *answer, char *line, size_t len)
{
	char *colon = memchr(line, ':', len);
	struct sp_http_header *header;
	char *value, *end = line + len;

	if (answer->header_count == SP_HTTP_ANSWER_HEADERS_MAX)
		return -EMSGSIZE;
	if (!colon || !is_token(line, (size_t)(colon - line)) ||
	    !is_text(colon, (size_t)(end - colon)))
		return -EPROTO;
	value = colon + 1;
	while (value < end && is_blank(*value))
		value++;
	while (end > value && is_blank(end[-1]))
		end--;
	*colon = '\0';
	*end = '\0';
	header = &answer->headers[answer->header_count++];
	header->name = line;
	header->value = value;
	return 0;
}

/* One digit is missing in 64 bits for what no file is long. */
static int read_length(struct sp_http_answer *answer, const char *text)
{
	size_t len = strlen(text);
	int64_t value = 0;

	if (answer->length >= 0 || len == 0 || len > 18 || strspn(text, "0123456789") != len)
		return -EPROTO;
	for (size_t i = 0; i < len; i++)
		value = value * 10 + (text[i] - '0');
	answer->length = value;
	return 0;
}

static int read_framing(struct sp_http_answer *answer, bool *ret_chunked)
{
	*ret_chunked = false;
	answer->length = -1;
	for (size_t i = 0; i < answer->header_count; i++) {
		const struct sp_http_header *header = &answer->headers[i];

		if (strcasecmp(header->name, "Content-Length") == 0) {
			if (read_length(answer, header->value) < 0)
				return -EPROTO;
		} else if (strcasecmp(header->name, "Transfer-Encoding") == 0) {
			if (*ret_chunked || answer->http10 ||
			    strcasecmp(header->value, "chunked") != 0)
				return -EPROTO;
			*ret_chunked = true;
		}
	}
	return *ret_chunked && answer->length >= 0 ? -EPROTO : 0;
}

static bool has_body(const struct sp_http_answer *answer)
{
	return !answer->to_head && answer->status >= 200 && answer->status != STATUS_NO_CONTENT &&
	       answer->status != STATUS_UNMODIFIED;
}

static void begin_body(struct sp_http_answer *answer, bool chunked)
{
	answer->line_len = 0;
	if (!has_body(answer)) {
		answer->state = SP_HTTP_DONE;
	} else if (chunked) {
		answer->state = SP_HTTP_CHUNK_SIZE;
	} else if (answer->length >= 0) {
		answer->left = (uint64_t)answer->length;
		answer->state = answer->left > 0 ? SP_HTTP_LENGTH : SP_HTTP_DONE;
	} else {
		answer->state = SP_HTTP_UNTIL_END;
	}
}

static int read_lines(struct sp_http_answer *answer)
{
	char *line = answer->head.data;
	char *end = answer->head.data + answer->head.len;
	bool first = true;

	while (line < end) {
		char *feed = memchr(line, '\n', (size_t)(end - line));
		size_t len = (size_t)(feed - line);
		int status;

		if (len > 0 && line[len - 1] == '\r')
			len--;
		if (len == 0)
			return first ? -EPROTO : 0;
		status = first ? read_status_line(answer, line, len)
			       : read_header(answer, line, len);
		if (status < 0)
			return status;
		first = false;
		line = feed + 1;
	}
	return -EPROTO;
}

/* The empty line was seen. */
static int end_head(struct sp_http_answer *answer, enum sp_http_event *ret_event)
{
	bool chunked = false;
	int status;

	answer->header_count = 0;
	status = read_lines(answer);
	if (status == 0)
		status = read_framing(answer, &chunked);
	if (status < 0)
		return status;
	if (answer->status == STATUS_SWITCHING) {
		if (!answer->upgrade || answer->http10)
			return -EPROTO;
		answer->state = SP_HTTP_SWITCHED;
	} else if (answer->status < 200) {
		sp_buf_clear(&answer->head);
		return ++answer->interim_count > SP_HTTP_ANSWER_INTERIM_MAX ? -EMSGSIZE : 0;
	} else {
		begin_body(answer, chunked);
	}
	*ret_event = SP_HTTP_GOT_HEAD;
	return 0;
}

static bool head_complete(const struct sp_buf *head)
{
	const char *end = head->data + head->len;

	return (head->len >= 2 && end[-2] == '\n') ||
	       (head->len >= 3 && end[-2] == '\r' && end[-3] == '\n') || head->len == 1 ||
	       (head->len == 2 && end[-2] == '\r');
}

/* Line by line, so that nothing behind the empty line is taken. */
static int feed_head(struct sp_http_answer *answer, const char *data, size_t len, size_t *ret_used,
		     enum sp_http_event *ret_event)
{
	const char *feed = memchr(data, '\n', len);
	size_t take = feed ? (size_t)(feed - data) + 1 : len;
	int status = sp_buf_append(&answer->head, data, take);

	*ret_used = take;
	if (status < 0)
		return status == -E2BIG ? -EMSGSIZE : status;
	return feed && head_complete(&answer->head) ? end_head(answer, ret_event) : 0;
}

/* ---- the body ---- */

static int hex_digit(char byte)
{
	if (is_digit(byte))
		return byte - '0';
	if (byte >= 'a' && byte <= 'f')
		return byte - 'a' + 10;
	if (byte >= 'A' && byte <= 'F')
		return byte - 'A' + 10;
	return -1;
}

/* A byte of a line. 1: it was the last. -EPROTO: a CR is not at the end, or a control byte. */
static int line_byte(struct sp_http_answer *answer, char byte)
{
	bool after_cr = answer->after_cr;

	answer->after_cr = byte == '\r';
	if (byte == '\n')
		return 1;
	if (after_cr || (byte != '\r' && !is_text(&byte, 1)))
		return -EPROTO;
	return 0;
}

static int size_byte(struct sp_http_answer *answer, char byte)
{
	int digit = answer->digits_ended ? -1 : hex_digit(byte);

	if (answer->line_len >= SP_HTTP_ANSWER_LINE_MAX)
		return -EMSGSIZE;
	answer->line_len++;
	if (digit >= 0) {
		if (answer->line_len > CHUNK_DIGITS_MAX)
			return -EPROTO;
		answer->left = answer->left << 4 | (unsigned int)digit;
		return 0;
	}
	/* Only an extension or blanks before one may follow the digits. */
	if (!answer->digits_ended && (answer->line_len == 1 || !strchr("; \t\r\n", byte)))
		return -EPROTO;
	answer->digits_ended = true;
	return line_byte(answer, byte);
}

static void begin_line(struct sp_http_answer *answer, enum sp_http_state state)
{
	answer->state = state;
	answer->line_len = 0;
	answer->digits_ended = false;
	answer->after_cr = false;
}

static int trailer_byte(struct sp_http_answer *answer, char byte)
{
	if (++answer->trailers_len > SP_HTTP_ANSWER_TRAILER_MAX)
		return -EMSGSIZE;
	if (byte != '\r' && byte != '\n')
		answer->line_len++;
	return line_byte(answer, byte);
}

/* One byte of what is between the pieces of a chunked body. */
static int framing_byte(struct sp_http_answer *answer, char byte)
{
	int status;

	if (answer->state == SP_HTTP_CHUNK_SIZE) {
		if (answer->line_len == 0)
			answer->left = 0;
		status = size_byte(answer, byte);
		if (status == 1)
			begin_line(answer, answer->left ? SP_HTTP_CHUNK_DATA : SP_HTTP_TRAILERS);
	} else if (answer->state == SP_HTTP_CHUNK_END) {
		if (byte != '\r' && byte != '\n')
			return -EPROTO;
		status = line_byte(answer, byte);
		if (status == 1)
			begin_line(answer, SP_HTTP_CHUNK_SIZE);
	} else {
		status = trailer_byte(answer, byte);
		if (status == 1)
			begin_line(answer, answer->line_len ? SP_HTTP_TRAILERS : SP_HTTP_DONE);
	}
	return status < 0 ? status : 0;
}

static size_t take_body(struct sp_http_answer *answer, size_t len)
{
	size_t take;

	if (answer->state == SP_HTTP_UNTIL_END)
		return len;
	take = (size_t)SP_MIN(answer->left, (uint64_t)len);
	answer->left -= take;
	if (answer->left > 0)
		return take;
	if (answer->state == SP_HTTP_CHUNK_DATA)
		begin_line(answer, SP_HTTP_CHUNK_END);
	else
		answer->state = SP_HTTP_DONE;
	return take;
}

static bool in_data(const struct sp_http_answer *answer)
{
	return answer->state == SP_HTTP_LENGTH || answer->state == SP_HTTP_UNTIL_END ||
	       answer->state == SP_HTTP_CHUNK_DATA;
}

int64_t sp_http_answer_feed(struct sp_http_answer *answer, const void *data, size_t len,
			    enum sp_http_event *ret_event, const char **ret_body, size_t *ret_len)
{
	const char *at = data;
	size_t used = 0;

	*ret_event = SP_HTTP_MORE;
	while (answer->failed == 0 && used < len && *ret_event == SP_HTTP_MORE &&
	       answer->state != SP_HTTP_DONE && answer->state != SP_HTTP_SWITCHED) {
		size_t taken = 1;

		if (answer->state == SP_HTTP_HEAD) {
			answer->failed =
				feed_head(answer, at + used, len - used, &taken, ret_event);
		} else if (in_data(answer)) {
			taken = take_body(answer, len - used);
			*ret_event = SP_HTTP_GOT_BODY;
			*ret_body = at + used;
			*ret_len = taken;
		} else {
			answer->failed = framing_byte(answer, at[used]);
		}
		used += taken;
	}
	if (answer->failed < 0)
		return answer->failed;
	if (*ret_event == SP_HTTP_MORE && answer->state == SP_HTTP_DONE)
		*ret_event = SP_HTTP_GOT_END;
	return (int64_t)used;
}

int sp_http_answer_eof(const struct sp_http_answer *answer)
{
	if (answer->failed < 0)
		return answer->failed;
	return answer->state == SP_HTTP_DONE || answer->state == SP_HTTP_UNTIL_END ||
			       answer->state == SP_HTTP_SWITCHED
		       ? 0
		       : -EPROTO;
}

const char *sp_http_answer_header(const struct sp_http_answer *answer, const char *name)
{
	for (size_t i = 0; i < answer->header_count; i++)
		if (strcasecmp(answer->headers[i].name, name) == 0)
			return answer->headers[i].value;
	return NULL;
}
