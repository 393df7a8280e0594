/*
 * One logical connection to Redis on a libuv loop: finds the server, authenticates, keeps trying.
 *
 * Trusts nothing that comes from the server: sizes and depths of replies are bounded
 * (SP_REDIS_REPLY_MAX), a reply that breaks the protocol closes the connection. hiredis is used as
 * a codec only (its 0.14 libuv adapter never reports a refused connection and resolves names with a
 * blocking call); sockets, timers and TLS are ours.
 *
 *	RESOLVING → CONNECTING → (TLS) → GREETING → READY → … → WAITING (backoff) → RESOLVING
 *
 * GREETING is AUTH, SELECT, ROLE: a replica is not READY (unless it is all there is to ask, see
 * allow_replica); with Sentinel the master is asked for anew at each try; MOVED reconnects to the
 * node that was named.
 *
 * Deadlines: every command has one; a missed one closes the connection (what follows on it cannot
 * be told apart any more), and all that is under way is answered with SP_REDIS_UNKNOWN. A quiet
 * connection is asked PING, so a half-open one is noticed within `keepalive_ms`. Commands never
 * wait for a connection: while it is not READY they are answered SP_REDIS_NOT_SENT.
 *
 * All callbacks run on the loop, never before the call that started them has returned. The program
 * must ignore SIGPIPE: libuv writes to sockets that a server may have closed.
 */
#ifndef SP_REDIS_WIRE_H
#define SP_REDIS_WIRE_H

#include "pool/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct redisReply; /* hiredis */
struct sp_redis;

#define SP_REDIS_REPLY_MAX     (16u << 20) /* bytes of one reply */
#define SP_REDIS_PENDING_MAX   1024u       /* commands under way; -EBUSY beyond */
#define SP_REDIS_COMMAND_MAX   (4u << 20)  /* bytes of one command */
#define SP_REDIS_SENTINELS_MAX 16u

/* Everything is copied. Strings may be NULL where 0 is said. */
struct sp_redis_options {
	/* redis://[user@]host[:6379][/db]   rediss://…   unix:///path[?db=N]
	 * redis+sentinel://host[:26379][,host…]/master-name[/db]   rediss+sentinel://…
	 * A password in the URL is refused: it would end up in logs and process lists. */
	const char *url;
	const char *user; /* 0: the URL's, else "default" */
	const char
		*password_file; /* 0; read anew at each connect, one trailing newline is dropped */
	const char *sentinel_password_file; /* 0 */
	const char *ca_file;                /* 0: the system's; TLS only, as the next three */
	const char *cert_file;              /* 0 */
	const char *key_file;               /* 0 */
	const char *server_name;            /* 0: the host of the URL */
	const char *client_name;            /* 0; CLIENT SETNAME */
	int64_t connect_timeout_ms;         /* 0 = 1 s */
	int64_t command_timeout_ms;         /* 0 = 1 s */
	int64_t keepalive_ms;   /* 0 = 3 s: a half-open connection is closed within that */
	int64_t backoff_min_ms; /* 0 = 50 ms; full jitter between tries, doubling … */
	int64_t backoff_max_ms; /* 0 = 2 s: … up to this */
	bool allow_replica;     /* READY on a replica too (reading only) */
	uint64_t seed;          /* of the jitter */
};

enum sp_redis_outcome {
	SP_REDIS_REPLIED,  /* reply is set; it may be an error reply */
	SP_REDIS_NOT_SENT, /* it had no effect */
	SP_REDIS_UNKNOWN   /* sent, answer lost: it may have had its effect */
};

/* reply: borrowed for the call, NULL unless REPLIED. err: NULL when REPLIED with anything but an
 * error reply; else typed: POOL_STATE_STORE_UNAVAILABLE with a message that names the command. */
typedef void sp_redis_cb(void *arg, enum sp_redis_outcome outcome, const struct redisReply *reply,
			 const struct sp_err *err);

struct sp_redis_events {
	void (*up)(void *arg);                             /* READY, each time */
	void (*down)(void *arg, const struct sp_err *why); /* no longer, or a try failed */
	void (*message)(void *arg, const char *channel, const char *text, size_t len); /* pub/sub */
	void (*closed)(void *arg); /* after sp_redis_close(): freed when this returns */
};

/* -EINVAL: the URL or an option, named. Does not block, does not connect. */
int sp_redis_options_check(const struct sp_redis_options *options, struct sp_err *err);
/* Starts connecting. */
int sp_redis_new(uv_loop_t *loop, const struct sp_redis_options *options,
		 const struct sp_redis_events *events, void *arg, struct sp_redis **ret,
		 struct sp_err *err);
/* Everything under way is answered (NOT_SENT or UNKNOWN), then closed() comes. */
void sp_redis_close(struct sp_redis *redis);
bool sp_redis_up(const struct sp_redis *redis);
/* Where to and why not: for logs, doctor, stats. No secret in it. */
const char *sp_redis_peer(const struct sp_redis *redis);

/* timeout_ms 0 = the connection's. -EMSGSIZE, -EBUSY (too many under way), -ENOMEM: no callback. */
int sp_redis_call(struct sp_redis *redis, int argc, const char *const *argv, const size_t *lens,
		  int64_t timeout_ms, sp_redis_cb *cb, void *arg, struct sp_err *err);
/* The channels that this connection listens to, in place of those before; it can then do nothing
 * else. Kept over reconnects; `up` comes when they are subscribed. Names are copied. */
int sp_redis_subscribe(struct sp_redis *redis, const char *const *channels, size_t count,
		       struct sp_err *err);

#endif
