/*
 * Frames, and strings in them. A length is compared with what is there before it is used, and a
 * string is one because its NUL was found.
 */
#include "supervisor/api/context_frame.h"

#include <errno.h>
#include <string.h>

static uint32_t frame_length(const char *head)
{
	uint32_t len = 0;

	for (unsigned int i = 0; i < 4; i++)
		len |= (uint32_t)(unsigned char)head[1 + i] << (8 * i);
	return len;
}

int sp_context_frame_read(const char *data, size_t len, struct sp_context_frame *ret)
{
	size_t content;

	if (len < SP_CONTEXT_FRAME_HEAD)
		return 0;
	content = frame_length(data);
	if (content > SP_CONTEXT_FRAME_MAX || data[0] == '\0' ||
	    !strchr(SP_CONTEXT_FRAME_KINDS, data[0]))
		return -EPROTO;
	if (len - SP_CONTEXT_FRAME_HEAD < content)
		return 0;
	*ret = (struct sp_context_frame){
		.kind = data[0],
		.data = data + SP_CONTEXT_FRAME_HEAD,
		.len = content,
		.size = SP_CONTEXT_FRAME_HEAD + content,
	};
	return 1;
}

/* Behind the string at `at`; NULL: it has no NUL before `end`. */
static const char *behind(const char *at, const char *end)
{
	const char *nul = at < end ? memchr(at, '\0', (size_t)(end - at)) : NULL;

	return nul ? nul + 1 : NULL;
}

size_t sp_context_strings(const char *data, size_t len, const char **ret, size_t max)
{
	const char *end = data + len;
	const char *next;
	size_t count = 0;

	while (count < max && (next = behind(data, end))) {
		ret[count++] = data;
		data = next;
	}
	return count;
}

/* It becomes a key of ours. */
static bool type_valid(const char *type)
{
	static const char legal[] = "abcdefghijklmnopqrstuvwxyz0123456789/+-.";

	return type[0] != '\0' && type[strspn(type, legal)] == '\0';
}

size_t sp_context_data(const char *data, size_t len, struct sp_event_datum ret[SP_CONTEXT_DATA_MAX])
{
	const char *end = data + len;
	size_t count = 0;

	while (count < SP_CONTEXT_DATA_MAX) {
		const char *text = behind(data, end);
		const char *next = text ? behind(text, end) : NULL;

		if (!next)
			break;
		if (type_valid(data))
			ret[count++] = (struct sp_event_datum){
				.type = data,
				.data = text,
				.len = (size_t)(next - text) - 1,
			};
		data = next;
	}
	return count;
}
