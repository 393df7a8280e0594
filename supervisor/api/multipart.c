/*
 * The delimiter is searched by hand: it begins with a CR and a boundary has none, so a match that
 * fails can begin again only at the byte that made it fail. What had matched is then data, and is
 * delivered from our own copy of the delimiter, which also serves when it came in pieces.
 *
 * Strict where leniency would let two readers see two things: header lines end in CRLF, a line is
 * not folded, behind a delimiter come blanks and CRLF or "--", and one that is followed by another
 * byte is data. The closing delimiter must be there: a body that ends early is no upload.
 */
#include "supervisor/api/multipart.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

static int malformed(struct sp_err *err, const char *what)
{
	return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL, "malformed multipart body: %s",
			   what);
}

static int too_long(struct sp_err *err, const char *what, unsigned int max)
{
	return sp_err_code(err, SP_CODE_PAYLOAD_TOO_LARGE, -E2BIG,
			   "malformed multipart body: %s more than %u", what, max);
}

/* ---- parameters: `; name=token; name="quoted \" string"` ---- */

struct parameter {
	const char *name;
	size_t name_len;
	const char *value; /* raw: inside the quotes */
	size_t value_len;
	bool quoted;
};

static const char *skip_blanks(const char *at)
{
	return at + strspn(at, " \t");
}

/* Behind the closing quote, or NULL. */
static const char *read_quoted(const char *at, struct parameter *parameter)
{
	parameter->quoted = true;
	parameter->value = at;
	while (*at && *at != '"') {
		if (*at == '\\' && at[1])
			at++;
		at++;
	}
	parameter->value_len = (size_t)(at - parameter->value);
	return *at == '"' ? at + 1 : NULL;
}

/* The next parameter and what follows it. NULL: none, or no parameter. */
static const char *next_parameter(const char *at, struct parameter *parameter)
{
	at = skip_blanks(at);
	if (*at != ';')
		return NULL;
	at = skip_blanks(at + 1);
	*parameter = (struct parameter){.name = at, .name_len = strcspn(at, " \t=;\"")};
	at = skip_blanks(at + parameter->name_len);
	if (parameter->name_len == 0 || *at != '=')
		return NULL;
	at = skip_blanks(at + 1);
	if (*at == '"')
		return read_quoted(at + 1, parameter);
	parameter->value = at;
	parameter->value_len = strcspn(at, " \t;\"");
	return at + parameter->value_len;
}

static bool is_named(const struct parameter *parameter, const char *name)
{
	return parameter->name_len == strlen(name) &&
	       strncasecmp(parameter->name, name, parameter->name_len) == 0;
}

/* Unquoted. False if it does not fit. */
static bool copy_value(const struct parameter *parameter, char *to, size_t size)
{
	size_t used = 0;

	for (size_t i = 0; i < parameter->value_len; i++) {
		if (parameter->quoted && parameter->value[i] == '\\' &&
		    i + 1 < parameter->value_len)
			i++;
		if (used + 1 >= size)
			return false;
		to[used++] = parameter->value[i];
	}
	to[used] = '\0';
	return true;
}

/* RFC 2046: bchars, the last one no space. */
static bool is_boundary(const char *text)
{
	static const char allowed[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVW"
				      "XYZ'()+_,-./:=? ";
	size_t len = strlen(text);

	return len > 0 && strspn(text, allowed) == len && text[len - 1] != ' ';
}

int sp_multipart_boundary(const char *content_type, char boundary[SP_MULTIPART_BOUNDARY_MAX + 1],
			  struct sp_err *err)
{
	static const char type[] = "multipart/form-data";
	char value[SP_MULTIPART_BOUNDARY_MAX + 1] = "";
	struct parameter parameter;
	const char *at = content_type ? skip_blanks(content_type) : "";

	if (strncasecmp(at, type, strlen(type)) != 0 || !strchr(" \t;", at[strlen(type)]))
		return malformed(err, "Content-Type is not multipart/form-data");
	at += strlen(type);
	while ((at = next_parameter(at, &parameter)))
		if (is_named(&parameter, "boundary") &&
		    !copy_value(&parameter, value, sizeof(value)))
			return malformed(err, "the boundary is too long");
	if (!is_boundary(value))
		return malformed(err, "Content-Type has no legal boundary");
	memcpy(boundary, value, sizeof(value));
	return 0;
}

/* ---- a part's header ---- */

static void read_disposition(const char *value, struct sp_multipart_part *part)
{
	const char *at = value + strcspn(value, ";");
	struct parameter parameter;

	while ((at = next_parameter(at, &parameter))) {
		if (is_named(&parameter, "name")) {
			if (!copy_value(&parameter, part->name, sizeof(part->name)))
				part->name[0] = '\0';
		} else if (is_named(&parameter, "filename") || is_named(&parameter, "filename*")) {
			part->is_file |= parameter.value_len > 0;
		}
	}
}

/* One line without its end. */
static int read_line(char *line, struct sp_multipart_part *part, struct sp_err *err)
{
	static const char disposition[] = "Content-Disposition";
	char *colon = strchr(line, ':');

	if (line[0] == ' ' || line[0] == '\t')
		return malformed(err, "a folded header line");
	if (!colon || colon == line || colon[-1] == ' ' || colon[-1] == '\t')
		return malformed(err, "a header line has no name");
	*colon = '\0';
	if (strcasecmp(line, disposition) == 0)
		read_disposition(skip_blanks(colon + 1), part);
	return 0;
}

/* The lines are in header[0 … header_len), each with its CRLF. */
static int read_header(struct sp_multipart *multipart, struct sp_multipart_part *part,
		       struct sp_err *err)
{
	char *at = multipart->header;
	char *end = at + multipart->header_len;

	if (memchr(at, '\0', multipart->header_len))
		return malformed(err, "a NUL in a header");
	*part = (struct sp_multipart_part){.is_file = false};
	while (at < end) {
		char *feed = memchr(at, '\n', (size_t)(end - at));
		int status;

		sp_assert(feed);
		if (feed == at || feed[-1] != '\r')
			return malformed(err, "a header line does not end in CRLF");
		feed[-1] = '\0';
		if (strchr(at, '\r'))
			return malformed(err, "a bare CR in a header");
		if (at[0] == '\0')
			return 0; /* the empty line */
		status = read_line(at, part, err);
		if (status < 0)
			return status;
		at = feed + 1;
	}
	return 0;
}

/* ---- the bytes ---- */

static bool ready(struct sp_multipart *multipart)
{
	if (!multipart->events->ready(multipart->arg))
		multipart->refused = true;
	return !multipart->refused;
}

static size_t deliver(struct sp_multipart *multipart, const char *data, size_t len)
{
	size_t taken = ready(multipart) ? multipart->events->data(multipart->arg, data, len) : 0;

	sp_assert(taken <= len);
	if (taken < len)
		multipart->refused = true;
	return taken;
}

/* What had matched is data after all. */
static void flush_false_match(struct sp_multipart *multipart)
{
	size_t taken = deliver(multipart, multipart->delimiter + multipart->false_offset,
			       multipart->false_match);

	multipart->false_match -= taken;
	multipart->false_offset += taken;
}

static void mismatch(struct sp_multipart *multipart)
{
	if (multipart->state == SP_MULTIPART_PREAMBLE)
		multipart->preamble += multipart->matched;
	else
		multipart->false_match = multipart->matched;
	multipart->false_offset = 0;
	multipart->matched = 0;
}

/* Length of the data before the next byte that may begin a delimiter. */
static size_t plain_length(const struct sp_multipart *multipart, const char *data, size_t len)
{
	size_t at = 0;

	while (at < len) {
		const char *start = memchr(data + at, '\r', len - at);
		size_t compared;

		if (!start)
			return len;
		at = (size_t)(start - data);
		compared = SP_MIN(len - at, multipart->delimiter_len);
		if (memcmp(start, multipart->delimiter, compared) == 0)
			return at;
		at++;
	}
	return len;
}

/* In front of a delimiter. 0: the same byte is looked at again, or was refused. */
static int64_t feed_body(struct sp_multipart *multipart, const char *data, size_t len,
			 struct sp_err *err)
{
	if (multipart->matched > 0 && data[0] != multipart->delimiter[multipart->matched]) {
		mismatch(multipart);
		return 0;
	}
	if (multipart->matched == 0)
		len = plain_length(multipart, data, len);
	if (multipart->matched > 0 || len == 0) {
		if (++multipart->matched == multipart->delimiter_len)
			multipart->state = SP_MULTIPART_DELIMITER;
		return 1;
	}
	if (multipart->state == SP_MULTIPART_BODY)
		return (int64_t)deliver(multipart, data, len);
	multipart->preamble += len;
	if (multipart->preamble > SP_MULTIPART_PREAMBLE_MAX)
		return too_long(err, "bytes before the first part:", SP_MULTIPART_PREAMBLE_MAX);
	return (int64_t)len;
}

/* The byte behind a delimiter decides whether it is one. */
static int64_t feed_delimiter(struct sp_multipart *multipart, char byte)
{
	if (byte != '-' && byte != ' ' && byte != '\t' && byte != '\r') {
		multipart->state = multipart->in_part ? SP_MULTIPART_BODY : SP_MULTIPART_PREAMBLE;
		mismatch(multipart);
		return 0;
	}
	if (multipart->in_part) {
		if (!ready(multipart))
			return 0;
		multipart->in_part = false;
		multipart->events->part_end(multipart->arg);
	}
	multipart->matched = 0;
	if (byte == '-')
		multipart->state = SP_MULTIPART_CLOSE;
	else
		multipart->state = byte == '\r' ? SP_MULTIPART_LINE_FEED : SP_MULTIPART_PADDING;
	return 1;
}

static int64_t feed_after(struct sp_multipart *multipart, char byte, struct sp_err *err)
{
	bool fits;

	if (multipart->state == SP_MULTIPART_PADDING) {
		fits = byte == ' ' || byte == '\t' || byte == '\r';
		if (byte == '\r')
			multipart->state = SP_MULTIPART_LINE_FEED;
	} else if (multipart->state == SP_MULTIPART_LINE_FEED) {
		fits = byte == '\n';
		multipart->state = SP_MULTIPART_HEADER;
		multipart->header_len = 0;
	} else {
		fits = byte == '-';
		multipart->state = SP_MULTIPART_EPILOGUE;
	}
	return fits ? 1 : malformed(err, "something follows a boundary");
}

static bool header_complete(const struct sp_multipart *multipart)
{
	const char *end = multipart->header + multipart->header_len;

	if (multipart->header_len == 2)
		return memcmp(end - 2, "\r\n", 2) == 0;
	return multipart->header_len >= 4 && memcmp(end - 4, "\r\n\r\n", 4) == 0;
}

static int64_t feed_header(struct sp_multipart *multipart, char byte, struct sp_err *err)
{
	struct sp_multipart_part part;
	int status;

	/* Only a line's end can be the event; asked before anything changes. */
	if (byte == '\n' && !ready(multipart))
		return 0;
	if (multipart->header_len == sizeof(multipart->header))
		return too_long(err, "bytes of a part's header:", SP_MULTIPART_HEADER_MAX);
	multipart->header[multipart->header_len++] = byte;
	if (byte != '\n' || !header_complete(multipart))
		return 1;
	if (++multipart->parts > SP_MULTIPART_PARTS_MAX)
		return too_long(err, "parts:", SP_MULTIPART_PARTS_MAX);
	status = read_header(multipart, &part, err);
	if (status < 0)
		return status;
	multipart->state = SP_MULTIPART_BODY;
	multipart->in_part = true;
	multipart->events->part(multipart->arg, &part);
	return 1;
}

static int64_t feed_some(struct sp_multipart *multipart, const char *data, size_t len,
			 struct sp_err *err)
{
	switch (multipart->state) {
	case SP_MULTIPART_PREAMBLE:
	case SP_MULTIPART_BODY:
		return feed_body(multipart, data, len, err);
	case SP_MULTIPART_DELIMITER:
		return feed_delimiter(multipart, data[0]);
	case SP_MULTIPART_PADDING:
	case SP_MULTIPART_LINE_FEED:
	case SP_MULTIPART_CLOSE:
		return feed_after(multipart, data[0], err);
	case SP_MULTIPART_HEADER:
		return feed_header(multipart, data[0], err);
	case SP_MULTIPART_EPILOGUE:
		break;
	}
	return (int64_t)len;
}

void sp_multipart_init(struct sp_multipart *multipart, const char *boundary,
		       const struct sp_multipart_events *events, void *arg)
{
	size_t len = strlen(boundary);

	sp_assert(len <= SP_MULTIPART_BOUNDARY_MAX);
	/* Not the header's room, which nobody reads before it is written. */
	memset(multipart, 0, offsetof(struct sp_multipart, header));
	multipart->events = events;
	multipart->arg = arg;
	memcpy(multipart->delimiter, "\r\n--", 4);
	memcpy(multipart->delimiter + 4, boundary, len + 1);
	multipart->delimiter_len = 4 + len;
	multipart->matched = 2; /* the beginning counts as the beginning of a line */
}

int64_t sp_multipart_feed(struct sp_multipart *multipart, const char *data, size_t len,
			  struct sp_err *err)
{
	size_t used = 0;

	multipart->refused = false;
	while (used < len && !multipart->refused) {
		int64_t step = 0;

		if (multipart->false_match > 0)
			flush_false_match(multipart);
		else
			step = feed_some(multipart, data + used, len - used, err);
		if (step < 0)
			return step;
		used += (size_t)step;
	}
	return (int64_t)used;
}

int sp_multipart_finish(const struct sp_multipart *multipart, struct sp_err *err)
{
	if (multipart->state == SP_MULTIPART_EPILOGUE)
		return 0;
	return malformed(err, multipart->parts > 0 ? "it ends before its last boundary"
						   : "no part in it");
}
