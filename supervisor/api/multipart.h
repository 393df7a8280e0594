/*
 * Reads multipart/form-data (RFC 7578, RFC 2046) as it comes: bytes in, parts out, nothing kept but
 * the part's header and as much of a line as may still become a delimiter.
 *
 * Pure: the same events for the same bytes, however they are cut. Whoever takes the parts may say
 * "not now" at any event; feeding then stops before it and goes on there when fed again.
 */
#ifndef SP_API_MULTIPART_H
#define SP_API_MULTIPART_H

#include "pool/base/err.h"

#define SP_MULTIPART_BOUNDARY_MAX 70u   /* RFC 2046, 5.1.1 */
#define SP_MULTIPART_HEADER_MAX   8192u /* bytes of one part's header lines */
#define SP_MULTIPART_PREAMBLE_MAX 4096u /* bytes before the first delimiter */
#define SP_MULTIPART_PARTS_MAX    4096u
#define SP_MULTIPART_NAME_MAX     63u /* of a field; a longer one is nobody's that we know */

struct sp_multipart_part {
	char name[SP_MULTIPART_NAME_MAX + 1]; /* "" if there is none, or a longer one */
	bool is_file; /* its disposition has a file name that is not empty */
};

struct sp_multipart_events {
	/* May an event be delivered now? Asked before each of the others. */
	bool (*ready)(void *arg);
	void (*part)(void *arg, const struct sp_multipart_part *part);
	/* Takes all of it, or less, which also means "not now". */
	size_t (*data)(void *arg, const char *data, size_t len);
	void (*part_end)(void *arg);
};

enum sp_multipart_state {
	SP_MULTIPART_PREAMBLE,
	SP_MULTIPART_BODY,
	SP_MULTIPART_DELIMITER, /* after CR LF "--" boundary */
	SP_MULTIPART_PADDING,   /* blanks behind it */
	SP_MULTIPART_LINE_FEED, /* its CR is there */
	SP_MULTIPART_CLOSE,     /* the first '-' of the last one is there */
	SP_MULTIPART_HEADER,
	SP_MULTIPART_EPILOGUE, /* ignored */
};

struct sp_multipart {
	const struct sp_multipart_events *events;
	void *arg;
	enum sp_multipart_state state;
	char delimiter[4 + SP_MULTIPART_BOUNDARY_MAX + 1]; /* CR LF "--" boundary */
	size_t delimiter_len;
	size_t matched;     /* bytes of it seen so far */
	size_t false_match; /* bytes of it that turned out to be data and are not delivered yet, …
			     */
	size_t false_offset; /* … from here on */
	bool in_part;        /* its end is owed to the events */
	bool refused;        /* an event, during this feeding */
	size_t parts;
	size_t preamble;
	size_t header_len;
	char header[SP_MULTIPART_HEADER_MAX];
};

/* The boundary of a Content-Type (NULL: there is none). -EINVAL: not multipart/form-data, or no
 * legal boundary. */
int sp_multipart_boundary(const char *content_type, char boundary[SP_MULTIPART_BOUNDARY_MAX + 1],
			  struct sp_err *err);

void sp_multipart_init(struct sp_multipart *multipart, const char *boundary,
		       const struct sp_multipart_events *events, void *arg);
/* How many bytes were used; fewer than len only when an event was refused. Negative: no
 * multipart, or beyond a limit (-EINVAL, -E2BIG, with a message), and never to be fed again. */
int64_t sp_multipart_feed(struct sp_multipart *multipart, const char *data, size_t len,
			  struct sp_err *err);
/* The body is over. -EINVAL: in the middle of something. */
int sp_multipart_finish(const struct sp_multipart *multipart, struct sp_err *err);

#endif
