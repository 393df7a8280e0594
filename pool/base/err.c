/*
 * The error object and the table of client-visible codes. Formats into the caller's memory, never
 * allocates, so that "out of memory" can be reported too.
 */
#include "pool/base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* What the analyzer is told of them, see err.h. */
#undef sp_err_set
#undef sp_err_code

struct code_entry {
	const char *name;
	const char *text;
	int http_status;
};

static const struct code_entry code_table[SP_CODE_COUNT] = {
	[SP_CODE_NONE] = {"NONE", "no error", 200},
#define SP_CODE_ENTRY(id, name, status, text) [SP_CODE_##id] = {name, text, status},
	SP_CODES(SP_CODE_ENTRY)
#undef SP_CODE_ENTRY
};

static const struct code_entry *code_entry(enum sp_code code)
{
	if ((unsigned int)code >= SP_CODE_COUNT)
		code = SP_CODE_INTERNAL;
	return &code_table[code];
}

const char *sp_code_name(enum sp_code code)
{
	return code_entry(code)->name;
}

enum sp_code sp_code_from_name(const char *name)
{
	for (unsigned int i = 1; i < SP_CODE_COUNT; i++)
		if (strcmp(code_table[i].name, name) == 0)
			return (enum sp_code)i;
	return SP_CODE_NONE;
}

int sp_code_http_status(enum sp_code code)
{
	return code_entry(code)->http_status;
}

const char *sp_code_text(enum sp_code code)
{
	return code_entry(code)->text;
}

/* strerrordesc_np: no locale, no static buffer, safe after fork (glibc >= 2.32). */
static const char *status_text(int status)
{
	const char *text = strerrordesc_np(-status);

	return text ? text : "unknown error";
}

int sp_err_set(struct sp_err *err, int status, const char *format, ...)
{
	va_list args;
	int used;

	if (!err)
		return status;
	err->status = status;
	err->code = SP_CODE_NONE;
	va_start(args, format);
	used = vsnprintf(err->message, sizeof(err->message), format, args);
	va_end(args);
	if (used >= 0 && (size_t)used < sizeof(err->message))
		(void)snprintf(err->message + used, sizeof(err->message) - (size_t)used, ": %s",
			       status_text(status));
	return status;
}

int sp_err_code(struct sp_err *err, enum sp_code code, int status, const char *format, ...)
{
	va_list args;

	if (!err)
		return status;
	err->status = status;
	err->code = code;
	va_start(args, format);
	(void)vsnprintf(err->message, sizeof(err->message), format, args);
	va_end(args);
	return status;
}

int sp_err_wrap(struct sp_err *err, int status, const char *format, ...)
{
	char inner[SP_ERR_MESSAGE_MAX];
	va_list args;
	int used;

	if (!err)
		return status;
	memcpy(inner, err->message, sizeof(inner));
	va_start(args, format);
	used = vsnprintf(err->message, sizeof(err->message), format, args);
	va_end(args);
	if (used >= 0 && (size_t)used + 3 < sizeof(err->message)) {
		size_t room = sizeof(err->message) - (size_t)used - 3;

		(void)snprintf(err->message + used, room + 3, ": %.*s", (int)room, inner);
	}
	if (err->status == 0)
		err->status = status;
	return err->status;
}

enum sp_code sp_err_client_code(const struct sp_err *err)
{
	if (err->code != SP_CODE_NONE)
		return err->code;
	switch (-err->status) {
	case EINVAL:
		return SP_CODE_INVALID_ARGUMENT;
	case ENOENT:
		return SP_CODE_NOT_FOUND;
	case EACCES:
	case EPERM:
		return SP_CODE_FORBIDDEN;
	case E2BIG:
		return SP_CODE_PAYLOAD_TOO_LARGE;
	case EAGAIN:
	case ENOMEM:
		return SP_CODE_UNAVAILABLE;
	default:
		return SP_CODE_INTERNAL;
	}
}

void sp_err_clear(struct sp_err *err)
{
	if (!err)
		return;
	err->status = 0;
	err->code = SP_CODE_NONE;
	err->message[0] = '\0';
}
