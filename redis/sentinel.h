/*
 * Asking the Sentinels where the master is.
 */
#ifndef SP_REDIS_SENTINEL_H
#define SP_REDIS_SENTINEL_H

#include "redis/tls.h"
#include "redis/url.h"
#include "redis/wire.h"

struct sp_redis_sentinel;

struct sp_redis_sentinel_options {
	const struct sp_redis_url *url;               /* borrowed until closed() */
	struct sp_redis_tls_credentials *credentials; /* NULL: no TLS */
	const char *server_name;                      /* NULL: each one's host */
	const char *password;                         /* NULL: none; borrowed for the call */
	int64_t timeout_ms;                           /* for all of it */
	unsigned int turn; /* of equally many votes, whose counts: changes from try to try */
};

struct sp_redis_sentinel_events {
	/* Once, unless closed before: master is NULL with err when none of them knows it. */
	void (*found)(void *arg, const struct sp_redis_address *master, const struct sp_err *err);
	void (*closed)(void *arg); /* always, last: freed when this returns */
};

int sp_redis_sentinel_ask(uv_loop_t *loop, const struct sp_redis_sentinel_options *options,
			  const struct sp_redis_sentinel_events *events, void *arg,
			  struct sp_redis_sentinel **ret, struct sp_err *err);
/* Idempotent; also due after found(). */
void sp_redis_sentinel_close(struct sp_redis_sentinel *query);

#endif
