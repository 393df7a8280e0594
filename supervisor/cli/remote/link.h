/*
 * Inside of sandpool-remote: Redis and TLS for the verbs (cli/remote.h).
 */
#ifndef SP_CLI_REMOTE_LINK_H
#define SP_CLI_REMOTE_LINK_H

#include "supervisor/cli/remote.h"

/* redis_link.c */
int sp_cli_link_open(const struct sp_cli_redis_settings *settings,
		     struct sp_cli_redis_link **ret_link, struct sp_err *err);
int sp_cli_link_fcall(struct sp_cli_redis_link *link, const char *function, bool read_only,
		      const char *key, int argc, const char *const *argv, int64_t timeout_ms,
		      struct sp_cli_reply *ret_reply, struct sp_err *err);
int sp_cli_link_command(struct sp_cli_redis_link *link, int argc, const char *const *argv,
			int64_t timeout_ms, struct sp_cli_reply *ret_reply, struct sp_err *err);
void sp_cli_link_close(struct sp_cli_redis_link *link);

/* flatten.c */
struct redisReply;
/* -ENOMEM, -E2BIG (more elements or deeper than any answer of ours). *ret_reply is the caller's. */
int sp_cli_reply_flatten(const struct redisReply *reply, struct sp_cli_reply *ret_reply);

/* tls.c */
int sp_cli_tls_open(int *fd, const char *host, const char *ca_file, int64_t timeout_ms,
		    struct sp_err *err);
/* Wait for what carries TLS; only once every descriptor of sp_cli_tls_open() is closed. */
void sp_cli_tls_join(void);
int sp_cli_lease_id(const char *secret, char *ret_lease);

#endif
