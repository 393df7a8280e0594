/*
 * One line per event on a descriptor: time, level, a constant message, then fields.
 *
 *	sp_log(SP_LOG_WARN, "lease expired", "pool=%s sandbox=%s", pool, id);
 *
 * Only the layer that handles an error logs it, once. Text from outside goes through
 * sp_log_quote() so that a newline or an escape sequence in it can never forge a record.
 * Under systemd (JOURNAL_STREAM set) the line starts with the <priority> of sd-daemon(3) instead
 * of a time. Not for children between fork and exec: it formats into the stack and writes once,
 * but it takes no lock, so it belongs to one thread.
 */
#ifndef SP_BASE_LOG_H
#define SP_BASE_LOG_H

#include "pool/base/base.h"

enum sp_log_level { SP_LOG_ERROR, SP_LOG_WARN, SP_LOG_INFO, SP_LOG_DEBUG };

/* name: shown in each line ("sandpoold"). Borrowed, must outlive all calls. */
void sp_log_init(const char *name, int fd, enum sp_log_level level);
void sp_log_set_level(enum sp_log_level level);
bool sp_log_enabled(enum sp_log_level level);
void sp_log(enum sp_log_level level, const char *message, const char *fields, ...) SP_PRINTF(3, 4);
/* "error", "warn", "info", "debug" → level; -EINVAL otherwise. */
int sp_log_level_parse(const char *text, enum sp_log_level *ret_level);

/* Copy text into buffer with control bytes, quotes and backslashes escaped (\n, \x1b, …), cut with
 * "…" when it does not fit; returns buffer. NULL becomes "-". */
const char *sp_log_quote(const char *text, char *buffer, size_t size);

#endif
