/*
 * The one place where a failed assertion ends the process: says where on stderr with a single
 * write(2) (no stdio, so that it also works after a fork), then aborts.
 */
#include "pool/base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SP_NORETURN void sp_assert_failed(const char *expr, const char *file, int line)
{
	char text[512];
	int len = snprintf(text, sizeof(text), "%s:%d: assertion failed: %s\n", file, line, expr);

	if (len > 0) {
		size_t count = SP_MIN((size_t)len, sizeof(text) - 1);

		/* Nothing is left to be done if even this write fails. */
		if (write(STDERR_FILENO, text, count) < 0)
			abort();
	}
	abort();
}
