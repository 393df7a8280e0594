/*
 * What the files of the logical connection share: wire.c (the state machine and the calls),
 * wire_options.c (options), wire_files.c (reading the files they name), wire_greeting.c.
 */
#ifndef SP_REDIS_WIRE_PRIVATE_H
#define SP_REDIS_WIRE_PRIVATE_H

#include "pool/base/list.h"
#include "redis/sentinel.h"
#include "redis/tls.h"
#include "redis/url.h"
#include "redis/wire.h"
#include "redis/wire_io.h"

#define SP_REDIS_TIMEOUT_MAX_MS  (3600 * SP_MS_PER_S) /* of each time in the options */
#define SP_REDIS_PASSWORD_MAX    1024u
#define SP_REDIS_CLIENT_NAME_MAX 255u
#define SP_REDIS_CHANNELS_MAX    1024u
#define SP_REDIS_LINGERING_MAX   2u /* connections whose name lookup does not come back */

/* The options, copied and with defaults. */
struct sp_redis_settings {
	struct sp_redis_url url;
	char *user; /* NULL: default */
	char *password_file;
	char *sentinel_password_file;
	char *ca_file;
	char *cert_file;
	char *key_file;
	char *server_name;
	char *client_name;
	int64_t connect_timeout_ms;
	int64_t command_timeout_ms;
	int64_t keepalive_ms;
	int64_t backoff_min_ms;
	int64_t backoff_max_ms;
	bool allow_replica;
};

/* What the files say; read anew for each try. */
struct sp_redis_secrets {
	char *password; /* NULL: none */
	char *sentinel_password;
	struct sp_redis_tls_credentials *credentials;
};

enum sp_redis_wire_state {
	SP_REDIS_WIRE_WAITING,    /* the timer starts the next try */
	SP_REDIS_WIRE_READING,    /* the files */
	SP_REDIS_WIRE_ASKING,     /* the Sentinels */
	SP_REDIS_WIRE_CONNECTING, /* name, socket, TLS */
	SP_REDIS_WIRE_GREETING,
	SP_REDIS_WIRE_READY,
	SP_REDIS_WIRE_LEAVING, /* nothing new; what is under way gets its answers, then elsewhere */
	SP_REDIS_WIRE_CLOSING
};

struct sp_redis_files;

struct sp_redis {
	uv_loop_t *loop;
	struct sp_redis_events events;
	void *arg;
	struct sp_redis_settings settings;
	enum sp_redis_wire_state state;
	unsigned int holds; /* handles, connections, query and reading that point here */

	uv_timer_t timer;   /* WAITING: the next try; READING: it takes long; READY: keepalive */
	unsigned int tries; /* that came to nothing, in a row */
	uint64_t random;
	int64_t ready_ms; /* since when */

	struct sp_redis_files *files;
	struct sp_redis_secrets secrets; /* from READING to the end of GREETING */
	struct sp_redis_sentinel *query;
	struct sp_redis_io *io;     /* the current connection */
	unsigned int lookups;       /* connections and queries, with those that are still closing */
	struct sp_redis_address to; /* where the current try goes */
	struct sp_redis_address elsewhere; /* MOVED named it */
	bool moved;

	uv_idle_t kick; /* active while unsent has members */
	struct sp_list unsent;
	size_t unsent_count;

	char **channels; /* NULL: no subscription */
	size_t channel_count;
	unsigned int subscribing; /* SUBSCRIBEs under way */

	struct sp_err why; /* why it is not up */
	char peer[SP_ERR_MESSAGE_MAX + SP_REDIS_ADDRESS_TEXT_MAX + 32];
};

/* wire.c: the try is over (it is not up, or no longer), the next one comes after a pause. */
void sp_redis_try_failed(struct sp_redis *redis, const struct sp_err *why);
void sp_redis_ready(struct sp_redis *redis);
void sp_redis_unhold(struct sp_redis *redis);

/* wire_options.c */
int sp_redis_settings_init(struct sp_redis_settings *settings,
			   const struct sp_redis_options *options, struct sp_err *err);
void sp_redis_settings_done(struct sp_redis_settings *settings);

/* wire_files.c: on a thread of libuv; cb comes on the loop, also after a cancel. */
typedef void sp_redis_files_cb(void *arg, int status, const struct sp_err *err);
bool sp_redis_files_needed(const struct sp_redis_settings *settings);
/* settings are borrowed until cb, secrets are filled before it. */
int sp_redis_files_read(uv_loop_t *loop, const struct sp_redis_settings *settings,
			struct sp_redis_secrets *secrets, sp_redis_files_cb *cb, void *arg,
			struct sp_redis_files **ret, struct sp_err *err);
void sp_redis_files_cancel(struct sp_redis_files *files);
void sp_redis_secrets_done(struct sp_redis_secrets *secrets);

/* wire_greeting.c: from an open connection to sp_redis_ready() or sp_redis_try_failed(). */
void sp_redis_greet(struct sp_redis *redis);
/* Also UNSUBSCRIBE from those channels, unless gone_count is 0. */
int sp_redis_send_subscribe(struct sp_redis *redis, const char *const *gone, size_t gone_count,
			    struct sp_err *err);

#endif
