/*
 * Paths as clients write them, made into the absolute ones that daemon/files.h takes. Pure.
 */
#ifndef SP_API_FILE_PATH_H
#define SP_API_FILE_PATH_H

#include "pool/base/err.h"

/* The value of an environment variable; NULL: it is not set. */
typedef const char *sp_variable_fn(void *arg, const char *name, size_t len);

/* Variables of one path: each is looked for among a thousand. */
#define SP_PATH_VARIABLES_MAX 16u

/* As a shell's word: `~` or `~/…` at the beginning, `$NAME` and `${NAME}` anywhere. A '$' before
 * anything else stands for itself. INVALID_ARGUMENT: a variable that is not set, too many of them,
 * "${" without its end, or no room. */
int sp_file_path_expand(const char *text, sp_variable_fn *variable, void *arg, char *out,
			size_t size, struct sp_err *err);
/* Absolute, a relative one below `directory` (absolute); without ".", ".." and empty segments,
 * which are taken off the text as they stand. INVALID_ARGUMENT: empty, or no room. */
int sp_file_path_clean(const char *text, const char *directory, char *out, size_t size,
		       struct sp_err *err);

#endif
