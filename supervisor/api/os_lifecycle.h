/*
 * What the handlers of the lifecycle API share.
 */
#ifndef SP_API_OS_LIFECYCLE_H
#define SP_API_OS_LIFECYCLE_H

#include "supervisor/api/api_private.h"
#include "supervisor/api/os_body.h"
#include "supervisor/api/os_values.h"

/* A time of it (BOOTTIME) for people: the same text each time, unless the wall clock is set. */
void sp_os_time_text(struct sp_os_sandbox *os, int64_t boot_ms, char text[SP_OS_TIME_MAX]);
/* The object of one sandbox, as an element or alone. */
void sp_os_sandbox_write(struct sp_json_out *out, struct sp_os_sandbox *os, bool with_image);
/* It as the answer. */
void sp_os_reply_sandbox(struct sp_request *request, unsigned int status, struct sp_os_sandbox *os,
			 bool with_image);
void sp_os_refuse(struct sp_request *request, const struct sp_os_refusal *refusal);
/* 422: what is at that place of the "query" or "body" is not what the schema wants there. */
void sp_os_refuse_value(struct sp_request *request, const char *part, const char *place,
			const char *message);

/* The pool that serves it, with everything that is asked for. -EINVAL with *ret_refusal. */
int sp_os_choose_pool(const struct sp_config *config, const struct sp_os_create *create,
		      const struct sp_config_pool **ret_pool, struct sp_os_refusal *ret_refusal);

/* End it in the pool and here. */
void sp_os_release(struct sp_api *api, struct sp_os_sandbox *os);
/* It shall live until then (BOOTTIME; INT64_MAX: until it is deleted). The pool is told of what is
 * later than it knows; what is sooner is for sp_os_sweep(). */
int sp_os_set_end(struct sp_api *api, struct sp_os_sandbox *os, int64_t expires_ms,
		  struct sp_err *err);

#endif
