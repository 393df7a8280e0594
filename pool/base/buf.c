/*
 * The byte buffer: doubles its capacity until the maximum, keeps one byte for a trailing NUL.
 */
#include "pool/base/buf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 256

void sp_buf_init(struct sp_buf *buf, size_t max)
{
	*buf = (struct sp_buf){.max = max};
}

void sp_buf_done(struct sp_buf *buf)
{
	if (!buf)
		return;
	free(buf->data);
	*buf = (struct sp_buf){.max = buf->max};
}

void sp_buf_clear(struct sp_buf *buf)
{
	buf->len = 0;
	if (buf->data)
		buf->data[0] = '\0';
}

static int grow(struct sp_buf *buf, size_t len)
{
	size_t need;
	size_t capacity;
	char *data;

	if (len > buf->max - buf->len)
		return -E2BIG;
	need = buf->len + len + 1;
	if (need <= buf->capacity)
		return 0;
	capacity = buf->capacity ? buf->capacity : FIRST_CAPACITY;
	while (capacity < need)
		capacity = capacity > SIZE_MAX / 2 ? need : capacity * 2;
	data = realloc(buf->data, capacity);
	if (!data)
		return -ENOMEM;
	buf->data = data;
	buf->capacity = capacity;
	return 0;
}

int sp_buf_append(struct sp_buf *buf, const void *data, size_t len)
{
	int status = grow(buf, len);

	if (status < 0)
		return status;
	if (len > 0)
		memcpy(buf->data + buf->len, data, len);
	buf->len += len;
	buf->data[buf->len] = '\0';
	return 0;
}

int sp_buf_printf(struct sp_buf *buf, const char *format, ...)
{
	va_list args;
	int need;
	int status;

	va_start(args, format);
	need = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (need < 0)
		return -EINVAL;
	status = grow(buf, (size_t)need);
	if (status < 0)
		return status;
	va_start(args, format);
	(void)vsnprintf(buf->data + buf->len, (size_t)need + 1, format, args);
	va_end(args);
	buf->len += (size_t)need;
	return 0;
}

char *sp_buf_reserve(struct sp_buf *buf, size_t len)
{
	if (grow(buf, len) < 0)
		return NULL;
	return buf->data + buf->len;
}

void sp_buf_consume(struct sp_buf *buf, size_t len)
{
	sp_assert(len <= buf->len);
	if (len == 0)
		return;
	buf->len -= len;
	memmove(buf->data, buf->data + len, buf->len);
	buf->data[buf->len] = '\0';
}

const char *sp_buf_text(const struct sp_buf *buf)
{
	return buf->data ? buf->data : "";
}

char *sp_buf_take(struct sp_buf *buf)
{
	char *data;

	if (grow(buf, 0) < 0)
		return NULL;
	buf->data[buf->len] = '\0';
	data = buf->data;
	*buf = (struct sp_buf){.max = buf->max};
	return data;
}
