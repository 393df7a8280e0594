/*
 * Query parameters, decoded. libmicrohttpd hands them out as they came (api.c asks it to), but for
 * '+', which it has made a blank.
 */
#ifndef SP_API_QUERY_H
#define SP_API_QUERY_H

#include "supervisor/api/api_private.h"

/* "a%20b" → "a b". INVALID_ARGUMENT: not two hex digits after '%', or a NUL. -ENOMEM. */
int sp_percent_decode(const char *text, size_t len, struct sp_buf *out, struct sp_err *err);

/* Every value of one parameter, in their order; borrowed for the call. The first negative status of
 * `visit` ends it and is returned. */
int sp_query_each(struct sp_request *request, const char *key,
		  int (*visit)(void *arg, const char *value, struct sp_err *err), void *arg,
		  struct sp_err *err);
/* The first value. 1: *ret_value is the caller's to free; 0: not given. */
int sp_query_text(struct sp_request *request, const char *key, char **ret_value,
		  struct sp_err *err);
/* 1: a decimal number in min … max; 0: not given. INVALID_ARGUMENT names the parameter. */
int sp_query_integer(struct sp_request *request, const char *key, int64_t min, int64_t max,
		     int64_t *ret_value, struct sp_err *err);

#endif
