/*
 * The function library `sandpool_v1` on the server: loaded when it is missing, replaced when ours
 * is newer, left alone when it is not; and calls into it.
 *
 * A call that meets "Function not found" (a restart without persistence, FUNCTION FLUSH, another
 * master) loads the library and is sent again: the function did not run, so it had no effect. A
 * caller without the right to load tries again until its deadline: somebody else will load it.
 * READONLY, LOADING, MASTERDOWN, MISCONF, OOM, CLUSTERDOWN and TRYAGAIN become
 * POOL_STATE_STORE_UNAVAILABLE with the server's words; READONLY and MOVED also make the
 * connection look for the right server.
 */
#ifndef SP_REDIS_LIBRARY_H
#define SP_REDIS_LIBRARY_H

#include "redis/wire.h"

extern const char sp_redis_library_text[]; /* functions/ put together at build time */
#define SP_REDIS_LIBRARY_BUILD_KEY "build" /* in the answer of sandpool_v1_info */

struct sp_redis_library;

int sp_redis_library_new(struct sp_redis *redis, struct sp_redis_library **ret, struct sp_err *err);
/* Nothing is answered any more. */
void sp_redis_library_free(struct sp_redis_library *library);
/* From the connection's `up`: looks at what is loaded, loads ours if that is older. done comes
 * once; err when it could neither load nor find a usable one. */
int sp_redis_library_ensure(struct sp_redis_library *library,
			    void (*done)(void *arg, const struct sp_err *err), void *arg);

/* FCALL name 1 key args…; read_only: FCALL_RO. `reply` is an array whose first element is a status
 * word (redis/README.md); anything else has become an error. deadline in ms from now, 0 = one
 * command timeout. */
int sp_redis_fcall(struct sp_redis_library *library, const char *name, bool read_only,
		   const char *key, int argc, const char *const *argv, const size_t *lens,
		   int64_t deadline_ms, sp_redis_cb *cb, void *arg, struct sp_err *err);

#endif
