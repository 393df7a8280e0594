/*
 * The error object: what was tried, on which object, what the kernel said.
 *
 * A function that can fail returns 0 or a negative errno and takes `struct sp_err *err` last (may
 * be NULL). It is filled once, at the deepest point that knows the object, and wrapped going up. It
 * is not touched on success. Messages are lower case, one line, objects in single quotes.
 */
#ifndef SP_BASE_ERR_H
#define SP_BASE_ERR_H

#include "pool/base/base.h"
#include "pool/base/codes.h"

#define SP_ERR_MESSAGE_MAX 512

struct sp_err {
	int status;        /* negative errno, 0 = empty */
	enum sp_code code; /* what a client is told; SP_CODE_NONE: derived from status */
	char message[SP_ERR_MESSAGE_MAX];
};

/* Fill err (if not NULL) with the text and ": " strerror(-status). Returns status. */
int sp_err_set(struct sp_err *err, int status, const char *format, ...) SP_PRINTF(3, 4);

/* Fill err with a code that clients see and the text alone. Returns status (negative errno). */
int sp_err_code(struct sp_err *err, enum sp_code code, int status, const char *format, ...)
	SP_PRINTF(4, 5);

/* Put "text: " before what err already says; keeps status and code. Returns err's status, or
 * `status` if err is NULL. */
int sp_err_wrap(struct sp_err *err, int status, const char *format, ...) SP_PRINTF(3, 4);

/* The code to tell a client: err's own, else one derived from its errno. */
enum sp_code sp_err_client_code(const struct sp_err *err);

/* Empty it. */
void sp_err_clear(struct sp_err *err);

#ifdef __clang_analyzer__
/* The analyzer sees one file at a time and would otherwise follow failures that return success. */
static inline int sp_err_negative(int status)
{
	if (status >= 0)
		__builtin_unreachable();
	return status;
}

#define sp_err_set(err, status, ...) \
	((void)(sp_err_set)((err), (status), __VA_ARGS__), sp_err_negative(status))
#define sp_err_code(err, code, status, ...) \
	((void)(sp_err_code)((err), (code), (status), __VA_ARGS__), sp_err_negative(status))
#endif

#endif
