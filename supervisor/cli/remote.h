/*
 * What only the larger of our two programs can do: Redis, TLS, digests.
 *
 * `sandpool` links nothing but libc, because `sandpool run` on the local daemon is measured in
 * microseconds. The libraries that Redis and TLS need cost milliseconds to load, so they live in
 * `sandpool-remote`: the same verbs with this table filled in (remote/). `sandpool` becomes it when
 * an address asks for it; nobody has to know.
 */
#ifndef SP_CLI_REMOTE_H
#define SP_CLI_REMOTE_H

#include "pool/base/err.h"
#include "pool/base/id.h"

#define SP_CLI_REDIS_PREFIX_DEFAULT "sandpool"
#define SP_CLI_REDIS_PREFIX_MAX     63u

/* Borrowed from argv and the environment; NULL = not given. */
struct sp_cli_redis_settings {
	const char *url;
	const char *user;
	const char *password_file;
	const char *sentinel_password_file;
	const char *ca_file;
	const char *cert_file;
	const char *key_file;
	const char *server_name;
	const char *prefix;
};

/* An answer as one flat list: numbers as decimal text, nil as NULL, lists within lists unfolded. */
struct sp_cli_reply {
	char **texts;
	size_t count;
};

struct sp_cli_redis_link;

struct sp_cli_remote {
	/* Starts connecting; -EINVAL for a URL or an option that is none. */
	int (*redis_open)(const struct sp_cli_redis_settings *settings,
			  struct sp_cli_redis_link **ret_link, struct sp_err *err);
	/*
	 * Wait for the connection if need be, ask, wait for the answer; all within timeout_ms.
	 * 0 with *ret_reply, which is the caller's (sp_cli_reply_done()); else
	 * -ENOTCONN   it had no effect: no connection within the time
	 * -ETIMEDOUT  it may have had its effect: sent, the answer was lost or late
	 * -EREMOTEIO  the server answered with an error
	 */
	int (*redis_fcall)(struct sp_cli_redis_link *link, const char *function, bool read_only,
			   const char *key, int argc, const char *const *argv, int64_t timeout_ms,
			   struct sp_cli_reply *ret_reply, struct sp_err *err);
	int (*redis_command)(struct sp_cli_redis_link *link, int argc, const char *const *argv,
			     int64_t timeout_ms, struct sp_cli_reply *ret_reply,
			     struct sp_err *err);
	void (*redis_close)(struct sp_cli_redis_link *link);

	/* Put TLS between a connected socket and what the caller sees as *fd (replaced). The peer
	 * must prove that it is `host`. */
	int (*tls_open)(int *fd, const char *host, const char *ca_file, int64_t timeout_ms,
			struct sp_err *err);
	/* From a secret to its lease id: hex SHA-256, SP_LEASE_ID_LEN + 1 bytes. */
	int (*lease_id)(const char *secret, char *ret_lease);
};

#endif
