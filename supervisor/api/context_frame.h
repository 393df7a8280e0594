/*
 * What an interpreter of a context says: frames of one byte for the kind, four for the length
 * (little-endian), and that many bytes. programs/context.py says what each kind carries. It is the
 * sandbox's word, so nothing in here believes it. Pure.
 */
#ifndef SP_API_CONTEXT_FRAME_H
#define SP_API_CONTEXT_FRAME_H

#include "supervisor/api/execd_events.h"

#define SP_CONTEXT_FRAME_MAX   ((1u << 20) + 64u * 1024) /* bytes behind the head */
#define SP_CONTEXT_FRAME_HEAD  5u
#define SP_CONTEXT_FRAME_KINDS "coerxd"
#define SP_CONTEXT_DATA_MAX    16u /* representations of one result */

struct sp_context_frame {
	char kind;
	const char *data; /* borrowed, and without a NUL behind it */
	size_t len;
	size_t size; /* with its head: so much of the input is used up */
};

/* The frame at the beginning of `data`. 1; 0: it is not all there; -EPROTO. */
int sp_context_frame_read(const char *data, size_t len, struct sp_context_frame *ret);

/* The strings in it, each with its NUL, at most `max`; what has none is left out. */
size_t sp_context_strings(const char *data, size_t len, const char **ret, size_t max);

/* The representations of a result: pairs of strings, type and text. Those whose type is none that
 * could be a key of ours are left out, and what is beyond SP_CONTEXT_DATA_MAX. */
size_t sp_context_data(const char *data, size_t len,
		       struct sp_event_datum ret[SP_CONTEXT_DATA_MAX]);

#endif
