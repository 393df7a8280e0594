/*
 * How a connection comes about: the name is looked up by libuv's threads, its addresses are tried
 * one after the other (each gets an equal part of the time that is left, so that one black hole
 * does not hide the others), then TLS shakes hands.
 *
 * Why not hiredis: it looks names up with a blocking call, and its sockets survive an exec.
 */
#include "redis/wire_io_private.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define KERNEL_PROBE_S 1

static void connect_next(struct sp_redis_io *io);

static void opened(struct sp_redis_io *io)
{
	io->state = SP_REDIS_IO_OPEN;
	io->heard_ms = sp_redis_now_ms();
	io->armed_ms = 0;
	(void)uv_timer_stop(&io->timer);
	io->events->opened(io->arg);
}

/* ---- one socket ---- */

static void on_socket_closed(uv_handle_t *handle)
{
	struct sp_redis_socket *socket = SP_CONTAINER_OF(handle, struct sp_redis_socket, uv.handle);
	struct sp_redis_io *io = socket->io;

	free(socket);
	sp_redis_io_unhold(io);
}

void sp_redis_io_drop_socket(struct sp_redis_io *io)
{
	uv_close(&io->socket->uv.handle, on_socket_closed);
	io->socket = NULL;
}

/* The kernel's own watch over a link: probes after a second of quiet, the end when nothing has been
 * acknowledged for keepalive_ms. It also sees what PING cannot: a half-open link on which a
 * blocking command waits. Best effort, the deadlines stand without it. */
static void watch_socket(const struct sp_redis_io *io)
{
	const int on = 1;
	const int probe_s = KERNEL_PROBE_S;
	const unsigned int timeout_ms = (unsigned int)io->keepalive_ms;
	uv_os_fd_t fd;

	if (io->address.host[0] == '\0' || uv_fileno(&io->socket->uv.handle, &fd) < 0)
		return;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &probe_s, sizeof(probe_s));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &probe_s, sizeof(probe_s));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
}

/* 0: open, -EAGAIN: under way. */
static int start_tls(struct sp_redis_io *io, struct sp_err *err)
{
	int status = sp_redis_tls_new(io->credentials, io->server_name, &io->tls, err);

	if (status < 0)
		return status;
	io->state = SP_REDIS_IO_HANDSHAKE;
	sp_redis_io_arm(io, io->connect_deadline_ms);
	return sp_redis_io_shake_hands(io, err);
}

int sp_redis_io_shake_hands(struct sp_redis_io *io, struct sp_err *err)
{
	int status = sp_redis_tls_handshake(io->tls, err);

	if (sp_redis_tls_out(io->tls)->len > 0)
		sp_redis_io_kick(io);
	if (status == 0)
		opened(io);
	return status;
}

static void connected(struct sp_redis_io *io)
{
	struct sp_err err = {0};
	int status;

	watch_socket(io);
	/* The addresses are not needed any more; a second lookup is another connection's. */
	uv_freeaddrinfo(io->addresses);
	io->addresses = NULL;
	io->next = NULL;
	status = uv_read_start(&io->socket->uv.stream, sp_redis_io_on_alloc, sp_redis_io_on_read);
	if (status < 0)
		(void)sp_err_set(&err, status, "read");
	else if (io->credentials)
		status = start_tls(io, &err);
	else
		opened(io);
	if (status < 0 && status != -EAGAIN)
		sp_redis_io_fail(io, &err);
}

static void on_connected(uv_connect_t *request, int status)
{
	struct sp_redis_socket *socket = SP_CONTAINER_OF(request, struct sp_redis_socket, connect);
	struct sp_redis_io *io = socket->io;

	if (io->state == SP_REDIS_IO_ENDING || io->socket != socket)
		return;
	if (status == 0) {
		connected(io);
		return;
	}
	(void)sp_err_set(&io->refused, status, "connect");
	sp_redis_io_drop_socket(io);
	connect_next(io);
}

static struct sp_redis_socket *new_socket(struct sp_redis_io *io)
{
	struct sp_redis_socket *socket = calloc(1, sizeof(*socket));
	int status = UV_ENOMEM;

	if (socket)
		status = io->address.host[0] == '\0' ? uv_pipe_init(io->loop, &socket->uv.pipe, 0)
						     : uv_tcp_init(io->loop, &socket->uv.tcp);
	if (status < 0) {
		free(socket);
		(void)sp_err_set(&io->refused, status, "make a socket");
		return NULL;
	}
	socket->io = io;
	io->holds++;
	io->socket = socket;
	return socket;
}

/* ---- addresses ---- */

static int64_t count_left(const struct addrinfo *address)
{
	int64_t count = 0;

	for (; address; address = address->ai_next)
		count++;
	return count;
}

static void connect_next(struct sp_redis_io *io)
{
	int64_t now_ms = sp_redis_now_ms();

	while (io->next && now_ms < io->connect_deadline_ms) {
		const struct addrinfo *address = io->next;
		struct sp_redis_socket *socket = new_socket(io);
		int64_t share_ms = (io->connect_deadline_ms - now_ms) / count_left(address);
		int status;

		io->next = address->ai_next;
		if (!socket)
			continue;
		status = uv_tcp_connect(&socket->connect, &socket->uv.tcp, address->ai_addr,
					on_connected);
		if (status == 0) {
			io->armed_ms = 0;
			sp_redis_io_arm(io, now_ms + share_ms);
			return;
		}
		(void)sp_err_set(&io->refused, status, "connect");
		sp_redis_io_drop_socket(io);
	}
	sp_redis_io_fail(io, &io->refused);
}

static void on_looked_up(uv_getaddrinfo_t *request, int status, struct addrinfo *addresses)
{
	struct sp_redis_io *io = SP_CONTAINER_OF(request, struct sp_redis_io, lookup);

	io->resolving = false;
	if (io->state == SP_REDIS_IO_ENDING) {
		if (status == 0)
			uv_freeaddrinfo(addresses);
	} else if (status < 0) {
		struct sp_err err = {0};

		(void)sp_err_code(&err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -EHOSTUNREACH,
				  "look up '%s': %s", io->address.host, uv_strerror(status));
		sp_redis_io_fail(io, &err);
	} else {
		io->addresses = addresses;
		io->next = addresses;
		io->state = SP_REDIS_IO_CONNECTING;
		connect_next(io);
	}
	sp_redis_io_unhold(io);
}

static int look_up(struct sp_redis_io *io)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	char port[8];
	int status;

	(void)snprintf(port, sizeof(port), "%u", (unsigned int)io->address.port);
	status =
		uv_getaddrinfo(io->loop, &io->lookup, on_looked_up, io->address.host, port, &hints);
	if (status < 0)
		return sp_err_set(&io->early, status, "look up '%s'", io->address.host);
	io->resolving = true;
	io->holds++;
	return 0;
}

static int connect_local(struct sp_redis_io *io)
{
	struct sp_redis_socket *socket = new_socket(io);

	if (!socket) {
		io->early = io->refused;
		return io->early.status;
	}
	io->state = SP_REDIS_IO_CONNECTING;
	uv_pipe_connect(&socket->connect, &socket->uv.pipe, io->address.path, on_connected);
	return 0;
}

/* An address of its own needs no thread. */
static int connect_literal(struct sp_redis_io *io, const struct sockaddr *address)
{
	struct sp_redis_socket *socket = new_socket(io);
	int status;

	if (!socket) {
		io->early = io->refused;
		return io->early.status;
	}
	io->state = SP_REDIS_IO_CONNECTING;
	status = uv_tcp_connect(&socket->connect, &socket->uv.tcp, address, on_connected);
	if (status < 0)
		return sp_err_set(&io->early, status, "connect");
	return 0;
}

static int start(struct sp_redis_io *io)
{
	struct sockaddr_in ipv4;
	struct sockaddr_in6 ipv6;

	if (io->address.host[0] == '\0')
		return connect_local(io);
	if (uv_ip4_addr(io->address.host, io->address.port, &ipv4) == 0)
		return connect_literal(io, (const struct sockaddr *)&ipv4);
	if (uv_ip6_addr(io->address.host, io->address.port, &ipv6) == 0)
		return connect_literal(io, (const struct sockaddr *)&ipv6);
	return look_up(io);
}

/* The time of an address, or of all that comes before OPEN, is over. */
void sp_redis_io_connect_late(struct sp_redis_io *io)
{
	struct sp_err err = {0};
	const char *what = io->state == SP_REDIS_IO_RESOLVING   ? "no answer to the name lookup"
			   : io->state == SP_REDIS_IO_HANDSHAKE ? "the TLS handshake did not end"
								: "no connection";

	(void)sp_err_code(&err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -ETIMEDOUT,
			  "%s within %lld ms", what, (long long)io->connect_timeout_ms);
	if (io->state == SP_REDIS_IO_CONNECTING && io->next) {
		io->refused = err;
		sp_redis_io_drop_socket(io);
		connect_next(io);
	} else {
		sp_redis_io_fail(io, &err);
	}
}

/* ---- making one ---- */

static int init_handles(struct sp_redis_io *io)
{
	int status = uv_timer_init(io->loop, &io->timer);

	if (status < 0)
		return status;
	io->timer.data = io;
	/* Neither of the two can fail; holds counts what has to be closed. */
	(void)uv_idle_init(io->loop, &io->flush);
	io->flush.data = io;
	io->holds = 2;
	return 0;
}

int sp_redis_io_open(uv_loop_t *loop, const struct sp_redis_io_options *options,
		     const struct sp_redis_io_events *events, void *arg, struct sp_redis_io **ret,
		     struct sp_err *err)
{
	struct sp_redis_io *io = calloc(1, sizeof(*io));

	if (!io)
		return sp_err_set(err, -ENOMEM, "connect");
	io->loop = loop;
	io->events = events;
	io->arg = arg;
	io->address = *options->address;
	io->connect_timeout_ms = options->connect_timeout_ms;
	io->keepalive_ms = options->keepalive_ms;
	(void)snprintf(io->server_name, sizeof(io->server_name), "%s",
		       options->server_name ? options->server_name : io->address.host);
	sp_list_init(&io->requests);
	sp_heap_init(&io->due);
	sp_buf_init(&io->out, SP_REDIS_OUT_MAX);
	if (sp_redis_decoder_init(&io->decoder) < 0 || !sp_buf_reserve(&io->out, SP_KIB * 4) ||
	    init_handles(io) < 0) {
		sp_redis_io_free(io);
		return sp_err_set(err, -ENOMEM, "connect");
	}
	if (options->credentials)
		io->credentials = sp_redis_tls_credentials_ref(options->credentials);
	io->connect_deadline_ms = sp_redis_now_ms() + options->connect_timeout_ms;
	sp_redis_io_arm(io, io->connect_deadline_ms);
	if (start(io) < 0)
		sp_redis_io_kick(io); /* it fails on the loop */
	*ret = io;
	return 0;
}
