/*
 * One connection to one server: name lookup, socket, TLS, commands and their answers. It is made,
 * lives once and ends; what to do then is the owner's business (wire.c, sentinel.c).
 *
 *	RESOLVING → CONNECTING (each address in turn) → HANDSHAKE (TLS) → OPEN → ENDING
 *
 * Of the owner's callbacks none comes from inside a call of the owner's. A command gets exactly one
 * callback: its reply, or, when the connection ends, SP_REDIS_UNKNOWN if all its bytes had been
 * given to the socket and SP_REDIS_NOT_SENT if not (half a command is none).
 */
#ifndef SP_REDIS_WIRE_IO_H
#define SP_REDIS_WIRE_IO_H

#include "redis/reply.h"
#include "redis/tls.h"
#include "redis/url.h"
#include "redis/wire.h"

#define SP_REDIS_OUT_MAX (16u << 20) /* bytes of commands that wait for the socket */

struct sp_redis_io;

struct sp_redis_io_options {
	const struct sp_redis_address *address;       /* copied */
	struct sp_redis_tls_credentials *credentials; /* NULL: no TLS; a reference is taken */
	const char *server_name;                      /* copied; NULL: the address's host */
	int64_t connect_timeout_ms; /* of lookup, connecting and handshake together */
	int64_t keepalive_ms;       /* for the kernel's own (TCP) */
};

struct sp_redis_io_events {
	void (*opened)(void *arg);
	/* A reply that belongs to no command, on a connection that subscribed; borrowed. */
	void (*pushed)(void *arg, const redisReply *reply);
	/* After a command's callback: its answer was an error. May be NULL, as the next. */
	void (*refused)(void *arg, const redisReply *reply);
	/* After a command's callback: no other is under way. */
	void (*drained)(void *arg);
	/* It ended by itself; every command has been answered. */
	void (*failed)(void *arg, const struct sp_err *why);
	/* The last word, always: freed when this returns. */
	void (*closed)(void *arg);
};

int sp_redis_io_open(uv_loop_t *loop, const struct sp_redis_io_options *options,
		     const struct sp_redis_io_events *events, void *arg, struct sp_redis_io **ret,
		     struct sp_err *err);
/* Idempotent. Commands under way are answered with `why` before closed() comes. */
void sp_redis_io_close(struct sp_redis_io *io, const struct sp_err *why);

bool sp_redis_io_is_open(const struct sp_redis_io *io);
/* Commands under way. */
size_t sp_redis_io_pending(const struct sp_redis_io *io);
/* When something last came from the server; sp_redis_now_ms(). */
int64_t sp_redis_io_heard_ms(const struct sp_redis_io *io);
/* From now on replies may be pushed: what begins with `message` is no answer. */
void sp_redis_io_set_pushed(struct sp_redis_io *io);
/* As if it ended by itself, on the loop: for who cannot go on with it. */
void sp_redis_io_fail_later(struct sp_redis_io *io, const struct sp_err *why);

/* replies: how many answers it gets; cb comes with the last one, or with the first that is an
 * error. -ENOTCONN: not open. Else as sp_redis_call(). */
int sp_redis_io_send(struct sp_redis_io *io, int argc, const char *const *argv, const size_t *lens,
		     int64_t timeout_ms, size_t replies, sp_redis_cb *cb, void *arg,
		     struct sp_err *err);

/* 0, -EINVAL, -EMSGSIZE: would it fit? */
int sp_redis_command_check(int argc, const char *const *argv, const size_t *lens,
			   struct sp_err *err);
/* What messages call a command: its name, of FCALL and FUNCTION the next word too. */
#define SP_REDIS_COMMAND_NAME_MAX 80
void sp_redis_command_name(int argc, const char *const *argv, const size_t *lens, char *name);

/* The clock of deadlines: uv_now()'s, but fresh. */
int64_t sp_redis_now_ms(void);

#endif
