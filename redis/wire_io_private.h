/*
 * What wire_io.c and wire_connect.c share of a connection.
 */
#ifndef SP_REDIS_WIRE_IO_PRIVATE_H
#define SP_REDIS_WIRE_IO_PRIVATE_H

#include "pool/base/buf.h"
#include "pool/base/heap.h"
#include "pool/base/list.h"
#include "redis/file.h"
#include "redis/wire_io.h"

#define SP_REDIS_CHUNK 65536

enum sp_redis_io_state {
	SP_REDIS_IO_RESOLVING,
	SP_REDIS_IO_CONNECTING,
	SP_REDIS_IO_HANDSHAKE,
	SP_REDIS_IO_OPEN,
	SP_REDIS_IO_ENDING
};

/* Each address gets a socket of its own; the memory of one that did not connect goes in its close
 * callback, which may be after the next has connected. */
struct sp_redis_socket {
	union {
		uv_handle_t handle;
		uv_stream_t stream;
		uv_tcp_t tcp;
		uv_pipe_t pipe;
	} uv;

	uv_connect_t connect;
	struct sp_redis_io *io;
};

/* A command under way. */
struct sp_redis_request {
	struct sp_list link;
	struct sp_heap_node due;
	uint64_t end; /* the byte behind its last one, counted from the first of the connection */
	size_t replies;
	int64_t timeout_ms;
	sp_redis_cb *cb;
	void *arg;
	char name[SP_REDIS_COMMAND_NAME_MAX];
};

struct sp_redis_io {
	uv_loop_t *loop;
	const struct sp_redis_io_events *events;
	void *arg;
	enum sp_redis_io_state state;
	unsigned int holds;  /* handles and requests of libuv that point here */
	bool disowned;       /* the owner has closed it */
	struct sp_err why;   /* for what is answered after that */
	struct sp_err early; /* it failed before the loop ran */

	struct sp_redis_address address;
	char server_name[SP_REDIS_HOST_NAME_MAX + 1];
	struct sp_redis_tls_credentials *credentials;
	int64_t connect_deadline_ms;
	int64_t connect_timeout_ms;
	int64_t keepalive_ms;
	uv_getaddrinfo_t lookup;
	bool resolving;
	struct addrinfo *addresses;
	const struct addrinfo *next; /* the address to try next */
	struct sp_err refused;       /* what the last one said */
	struct sp_redis_socket *socket;
	struct sp_redis_tls *tls;

	uv_timer_t timer;
	int64_t armed_ms;   /* 0 = not */
	int64_t looked_for; /* the deadline that has passed and gets one more poll */
	uv_idle_t flush;
	struct sp_buf out; /* plain bytes of commands */
	bool secret;       /* a password is in it */
	bool writing;
	uint64_t handed; /* plain bytes given to TLS or the stream */
	uint64_t gone;   /* at the end: of those, what the server may have got */
	struct sp_list requests;
	struct sp_heap due;
	size_t pending;

	bool pushed;
	int64_t heard_ms;
	struct sp_redis_decoder decoder;
	char chunk[SP_REDIS_CHUNK];
	char plain[SP_REDIS_TLS_RECORD_MAX];
};

/* wire_io.c */
void sp_redis_io_fail(struct sp_redis_io *io, const struct sp_err *why);
void sp_redis_io_answer_all(struct sp_redis_io *io, const struct sp_err *why);
void sp_redis_io_unhold(struct sp_redis_io *io);
void sp_redis_io_free(struct sp_redis_io *io);
/* The timer fires at that time or before. */
void sp_redis_io_arm(struct sp_redis_io *io, int64_t at_ms);
/* Before the next poll: write what is to be written, or fail with `early`. */
void sp_redis_io_kick(struct sp_redis_io *io);
void sp_redis_io_on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret);
void sp_redis_io_on_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *chunk);

/* wire_connect.c */
void sp_redis_io_drop_socket(struct sp_redis_io *io);
void sp_redis_io_connect_late(struct sp_redis_io *io);
/* 0: open now, -EAGAIN, other: over. */
int sp_redis_io_shake_hands(struct sp_redis_io *io, struct sp_err *err);

#endif
