/* libs: sp_api */
/*
 * Multipart bodies: the events must be the same for a body in one piece and in pieces whose sizes
 * come from the input, with a taker that refuses now and then; what is taken is never more than was
 * fed, and what is read as a boundary is one.
 */
#include "supervisor/api/multipart.h"

#include "pool/base/buf.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct taker {
	struct sp_buf log;
	uint32_t random; /* 0: never refuses */
};

static bool refuses(struct taker *taker)
{
	if (taker->random == 0)
		return false;
	taker->random = taker->random * 1664525u + 1013904223u;
	return (taker->random >> 24) % 3 == 0;
}

static void note(struct taker *taker, const void *text, size_t len)
{
	if (sp_buf_append(&taker->log, text, len) < 0)
		abort();
}

static bool on_ready(void *arg)
{
	return !refuses(arg);
}

static void on_part(void *arg, const struct sp_multipart_part *part)
{
	note(arg, part->is_file ? "<F" : "<V", 2);
	note(arg, part->name, strlen(part->name));
	note(arg, ">", 1);
}

static size_t on_data(void *arg, const char *data, size_t len)
{
	size_t taken = len > 1 && refuses(arg) ? len / 2 : len;

	note(arg, data, taken);
	return taken;
}

static void on_end(void *arg)
{
	note(arg, "</>", 3);
}

static const struct sp_multipart_events events = {
	.ready = on_ready,
	.part = on_part,
	.data = on_data,
	.part_end = on_end,
};

/* 1: whole, 0: not whole, -1: malformed. */
static int read_body(struct taker *taker, const char *boundary, const char *data, size_t size,
		     size_t piece)
{
	static struct sp_multipart multipart;
	size_t used = 0;

	sp_buf_init(&taker->log, 1 << 24);
	sp_multipart_init(&multipart, boundary, &events, taker);
	while (used < size) {
		size_t offered = SP_MIN(piece, size - used);
		int64_t step = sp_multipart_feed(&multipart, data + used, offered, NULL);

		if (step < 0)
			return -1;
		if ((size_t)step > offered)
			abort();
		used += (size_t)step;
	}
	return sp_multipart_finish(&multipart, NULL) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char boundary[SP_MULTIPART_BOUNDARY_MAX + 1] = "b";
	struct taker whole = {.random = 0};
	struct taker pieces = {.random = 1};
	char type[128] = {0};
	size_t head;

	if (size < 2)
		return 0;
	head = SP_MIN((size_t)data[0] % sizeof(type), size - 2);
	pieces.random = data[1] | 1u;
	memcpy(type, data + 2, SP_MIN(head, sizeof(type) - 1));
	if (sp_multipart_boundary(type, boundary, NULL) == 0 && boundary[0] == '\0')
		abort();
	data += 2 + head;
	size -= 2 + head;
	if (read_body(&whole, boundary, (const char *)data, size, SIZE_MAX) !=
	    read_body(&pieces, boundary, (const char *)data, size, pieces.random % 7 + 1))
		abort();
	/* Up to where it is malformed both have seen the same. */
	if (whole.log.len != pieces.log.len ||
	    memcmp(sp_buf_text(&whole.log), sp_buf_text(&pieces.log), whole.log.len) != 0)
		abort();
	sp_buf_done(&whole.log);
	sp_buf_done(&pieces.log);
	return 0;
}
