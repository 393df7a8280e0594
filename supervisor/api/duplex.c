/*
 * What exec streams, terminals and the proxy do alike with a socket.
 *
 * The peer's end of file and its hang-up are two things. On a client's socket a hang-up while we do
 * not read is the only sign that it left, so it is watched for always, and ends the socket once no
 * bytes are left to read. A socket into a sandbox is left alone while its owner holds it: what its
 * peer sent before it closed is still to come, also after it refused to be written to: a server
 * may answer and close before it has read all of a request. Its close resets the connection,
 * because the maker of a socket decides how long another close(2) may take; so what was written to
 * it is only sure to arrive if it is drained, which waits for the peer's own close.
 *
 * Bytes are queued and written once per turn of the loop (api.c's check handle), so what came in
 * one turn leaves in one system call. With TLS a client's descriptor is one end of a socket pair
 * (tls.c).
 */
#include "supervisor/api/duplex.h"

#include "pool/base/fd.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static void on_poll(uv_poll_t *poll, int status, int events);

/* ---- the end ---- */

static void forget_queued(struct sp_duplex *duplex)
{
	duplex->api->output_bytes -= sp_duplex_queued(duplex);
	sp_buf_done(&duplex->out);
	duplex->out_sent = 0;
}

static void release(struct sp_duplex *duplex)
{
	sp_buf_done(&duplex->in);
	(void)sp_api_charge_input(duplex->api, &duplex->in_charged, 0);
	forget_queued(duplex);
	duplex->events->freed(duplex);
}

static void on_poll_closed(uv_handle_t *handle)
{
	struct sp_duplex *duplex = handle->data;
	struct sp_api *api = duplex->api;

	if (duplex->mhd) {
		(void)MHD_upgrade_action(duplex->mhd, MHD_UPGRADE_ACTION_CLOSE);
		sp_listener_kick(duplex->listener);
	} else {
		sp_fd_discard(&duplex->fd);
	}
	sp_list_remove(&duplex->link);
	release(duplex);
	sp_api_stream_gone(api);
	sp_api_handle_closed(api);
}

void sp_duplex_close(struct sp_duplex *duplex)
{
	enum sp_duplex_state state = duplex->state;

	/* One that is being upgraded is libmicrohttpd's; it ends when it is handed over. */
	if (state == SP_DUPLEX_CLOSED)
		return;
	duplex->state = SP_DUPLEX_CLOSED;
	sp_list_remove(&duplex->flush);
	if (state != SP_DUPLEX_UPGRADING)
		uv_close((uv_handle_t *)&duplex->poll, on_poll_closed);
	duplex->events->closed(duplex);
}

/* ---- writing ---- */

static void update_poll(struct sp_duplex *duplex)
{
	int events = duplex->mhd ? UV_DISCONNECT : 0;
	int status;

	if (duplex->state == SP_DUPLEX_CLOSED)
		return;
	if (sp_duplex_queued(duplex) > 0)
		events |= UV_WRITABLE;
	if (duplex->state == SP_DUPLEX_OPEN && !duplex->held && !duplex->ended &&
	    sp_duplex_queued(duplex) <= SP_DUPLEX_READ_STOP)
		events |= UV_READABLE;
	if (duplex->shut)
		events |= UV_READABLE;
	if (events == duplex->poll_events)
		return;
	duplex->poll_events = events;
	status = events ? uv_poll_start(&duplex->poll, events, on_poll)
			: uv_poll_stop(&duplex->poll);
	if (status < 0)
		sp_duplex_close(duplex);
}

static void want_turn(struct sp_duplex *duplex)
{
	if (duplex->state == SP_DUPLEX_UPGRADING || !sp_list_empty(&duplex->flush))
		return;
	sp_list_append(&duplex->api->flush, &duplex->flush);
	sp_api_wake(duplex->api);
}

static size_t full_at(const struct sp_duplex *duplex)
{
	return sp_api_output_tight(duplex->api) ? SP_DUPLEX_RESUME + 1 : SP_DUPLEX_FULL;
}

void sp_duplex_write(struct sp_duplex *duplex, const void *data, size_t len)
{
	if (duplex->state == SP_DUPLEX_CLOSED || duplex->deaf)
		return;
	if (sp_buf_append(&duplex->out, data, len) < 0) {
		sp_duplex_close(duplex);
		return;
	}
	duplex->api->output_bytes += len;
	if (sp_duplex_queued(duplex) >= full_at(duplex))
		duplex->full = true;
	want_turn(duplex);
}

static void forget_sent(struct sp_duplex *duplex)
{
	if (sp_duplex_queued(duplex) == 0) {
		sp_buf_clear(&duplex->out);
		duplex->out_sent = 0;
	} else if (duplex->out_sent >= SP_DUPLEX_RESUME) {
		sp_buf_consume(&duplex->out, duplex->out_sent);
		duplex->out_sent = 0;
	}
}

static void write_failed(struct sp_duplex *duplex)
{
	if (duplex->mhd) {
		sp_duplex_close(duplex);
		return;
	}
	duplex->deaf = true;
	forget_queued(duplex);
}

static void all_drained(struct sp_duplex *duplex)
{
	if (duplex->mhd || duplex->deaf || duplex->ended || shutdown(duplex->fd, SHUT_WR) < 0)
		sp_duplex_close(duplex);
	else
		duplex->shut = true;
}

/* What the socket takes. */
static void flush(struct sp_duplex *duplex)
{
	while (sp_duplex_queued(duplex) > 0) {
		ssize_t sent = send(duplex->fd, duplex->out.data + duplex->out_sent,
				    sp_duplex_queued(duplex), MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			break;
		if (sent < 0) {
			write_failed(duplex);
			break;
		}
		duplex->out_sent += (size_t)sent;
		duplex->api->output_bytes -= (size_t)sent;
	}
	if (duplex->state == SP_DUPLEX_CLOSED)
		return;
	forget_sent(duplex);
	if (duplex->state == SP_DUPLEX_DRAINING && sp_duplex_queued(duplex) == 0 && !duplex->shut)
		all_drained(duplex);
	update_poll(duplex);
	if (duplex->state == SP_DUPLEX_CLOSED || !duplex->full ||
	    sp_duplex_queued(duplex) > SP_DUPLEX_RESUME)
		return;
	duplex->full = false;
	duplex->events->drained(duplex);
}

void sp_duplex_drain(struct sp_duplex *duplex)
{
	if (duplex->state != SP_DUPLEX_OPEN)
		return;
	duplex->state = SP_DUPLEX_DRAINING;
	duplex->drain_until_ms = (int64_t)uv_now(duplex->api->loop) + SP_DUPLEX_DRAIN_MS;
	want_turn(duplex);
}

/* ---- reading ---- */

/* A message that began, and all the memory there is for such is taken. */
static void no_room(struct sp_duplex *duplex)
{
	struct sp_err err = {0};

	(void)sp_err_code(&err, SP_CODE_UNAVAILABLE, -ENOBUFS,
			  "the requests under way take %u bytes, which is all there is",
			  SP_API_INPUT_TOTAL_MAX);
	if (duplex->events->refused)
		duplex->events->refused(duplex, &err);
	else
		sp_duplex_close(duplex);
}

/* Hand on what is there, as far as it is wanted. */
static void give(struct sp_duplex *duplex)
{
	size_t used = 0;

	while (used < duplex->in.len && duplex->state == SP_DUPLEX_OPEN && !duplex->held) {
		size_t taken = duplex->events->received(
			duplex, (const uint8_t *)duplex->in.data + used, duplex->in.len - used);

		if (taken == 0)
			break;
		used += taken;
	}
	sp_buf_consume(&duplex->in, used);
	if (!sp_api_charge_input(duplex->api, &duplex->in_charged, duplex->in.len) &&
	    duplex->state == SP_DUPLEX_OPEN)
		no_room(duplex);
	/* What stays open for hours keeps no buffer for its longest message. */
	if (duplex->in.len == 0 && duplex->in.capacity > 2 * (size_t)SP_DUPLEX_READ_CHUNK)
		sp_buf_done(&duplex->in);
}

static void on_end(struct sp_duplex *duplex)
{
	if (!duplex->events->ended) {
		sp_duplex_close(duplex);
		return;
	}
	duplex->ended = true;
	duplex->events->ended(duplex);
}

static void read_input(struct sp_duplex *duplex)
{
	char *at = sp_buf_reserve(&duplex->in, SP_DUPLEX_READ_CHUNK);
	ssize_t got;

	if (!at) {
		sp_duplex_close(duplex);
		return;
	}
	got = recv(duplex->fd, at, SP_DUPLEX_READ_CHUNK, MSG_DONTWAIT);
	if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return;
	if (got < 0) {
		sp_duplex_close(duplex);
	} else if (got == 0) {
		on_end(duplex);
	} else {
		duplex->in.len += (size_t)got;
		give(duplex);
	}
}

/* What a peer sends that is waited for is of no use. */
static void drop_input(struct sp_duplex *duplex)
{
	char dropped[4096];
	ssize_t got;

	do {
		got = recv(duplex->fd, dropped, sizeof(dropped), MSG_DONTWAIT);
	} while (got < 0 && errno == EINTR);
	if (got == 0 || (got < 0 && errno != EAGAIN))
		sp_duplex_close(duplex);
}

void sp_duplex_hold(struct sp_duplex *duplex, bool hold)
{
	if (duplex->held == hold || duplex->state == SP_DUPLEX_CLOSED)
		return;
	duplex->held = hold;
	want_turn(duplex);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct sp_duplex *duplex = poll->data;

	/* An error waits in the socket, and libuv has stopped polling. */
	if (status < 0) {
		duplex->poll_events = 0;
		write_failed(duplex);
		events = UV_READABLE | UV_WRITABLE;
	}
	if (events & UV_WRITABLE && duplex->state != SP_DUPLEX_CLOSED)
		flush(duplex);
	if (duplex->state == SP_DUPLEX_OPEN && events & UV_READABLE && !duplex->held)
		read_input(duplex);
	else if (duplex->shut && events & UV_READABLE && duplex->state == SP_DUPLEX_DRAINING)
		drop_input(duplex);
	else if (events & UV_DISCONNECT)
		sp_duplex_close(duplex);
	update_poll(duplex);
}

/* ---- a turn's end ---- */

void sp_duplex_flush_all(struct sp_api *api)
{
	struct sp_list ready;

	/* Moved away first: flushing may queue again, for the next turn. */
	sp_list_init(&ready);
	while (!sp_list_empty(&api->flush)) {
		struct sp_list *link = api->flush.next;

		sp_list_remove(link);
		sp_list_append(&ready, link);
	}
	while (!sp_list_empty(&ready)) {
		struct sp_duplex *duplex = SP_CONTAINER_OF(ready.next, struct sp_duplex, flush);

		sp_list_remove(&duplex->flush);
		give(duplex);
		if (duplex->state != SP_DUPLEX_CLOSED)
			flush(duplex);
	}
}

void sp_duplex_sweep(struct sp_api *api)
{
	int64_t now_ms = (int64_t)uv_now(api->loop);

	SP_LIST_FOREACH_SAFE (link, following, &api->streams) {
		struct sp_duplex *duplex = SP_CONTAINER_OF(link, struct sp_duplex, link);

		if (duplex->state == SP_DUPLEX_DRAINING && now_ms >= duplex->drain_until_ms)
			sp_duplex_close(duplex);
		else if (duplex->state == SP_DUPLEX_OPEN && duplex->events->tick)
			duplex->events->tick(duplex, now_ms);
	}
}

void sp_duplex_close_all(struct sp_api *api)
{
	SP_LIST_FOREACH_SAFE (link, following, &api->streams) {
		struct sp_duplex *duplex = SP_CONTAINER_OF(link, struct sp_duplex, link);

		/* What was queued in this turn, a RESULT perhaps, still goes out if it can. */
		if (duplex->state != SP_DUPLEX_CLOSED)
			flush(duplex);
		sp_duplex_close(duplex);
	}
}

/* ---- the beginning ---- */

/* A small message must not wait for the acknowledgement of the one before; libmicrohttpd turns
 * delaying on again when it hands a socket over. Fails on Unix sockets, which do not delay anyway.
 */
static void send_at_once(int fd)
{
	const int on = 1;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

void sp_duplex_init(struct sp_duplex *duplex, struct sp_api *api,
		    const struct sp_duplex_events *events, size_t read_max)
{
	*duplex = (struct sp_duplex){.api = api, .events = events, .fd = -1};
	sp_list_init(&duplex->link);
	sp_list_init(&duplex->flush);
	sp_buf_init(&duplex->in, read_max + SP_DUPLEX_READ_CHUNK);
	sp_buf_init(&duplex->out, SP_DUPLEX_WRITE_MAX);
}

/* Watch the descriptor. */
static int begin(struct sp_duplex *duplex, int fd)
{
	int status = uv_poll_init(duplex->api->loop, &duplex->poll, fd);

	if (status < 0)
		return status;
	duplex->fd = fd;
	duplex->poll.data = duplex;
	sp_api_handle_opened(duplex->api);
	send_at_once(fd);
	sp_list_append(&duplex->api->streams, &duplex->link);
	return 0;
}

static void on_lost(void *arg)
{
	struct sp_duplex *duplex = arg;

	sp_duplex_close(duplex);
	release(duplex);
}

static void on_upgraded(void *cls, struct MHD_Connection *connection, void *context,
			const char *extra, size_t extra_size, MHD_socket fd,
			struct MHD_UpgradeResponseHandle *handle)
{
	struct sp_duplex *duplex = cls;
	struct sp_request *request = context;

	SP_UNUSED(connection);
	request->upgrade_lost = NULL;
	/* libmicrohttpd does not survive a stop while somebody has one of its sockets. */
	if (duplex->state == SP_DUPLEX_CLOSED || duplex->api->closing || begin(duplex, fd) < 0) {
		(void)MHD_upgrade_action(handle, MHD_UPGRADE_ACTION_CLOSE);
		on_lost(duplex);
		return;
	}
	duplex->mhd = handle;
	duplex->state = SP_DUPLEX_OPEN;
	if (sp_buf_append(&duplex->in, extra, extra_size) < 0) {
		sp_duplex_close(duplex);
		return;
	}
	if (duplex->events->opened)
		duplex->events->opened(duplex);
	/* Bytes came with the request, or were queued for the client while it was upgraded. */
	give(duplex);
	if (sp_duplex_queued(duplex) > 0 && duplex->state != SP_DUPLEX_CLOSED)
		want_turn(duplex);
	update_poll(duplex);
}

void sp_duplex_upgrade(struct sp_duplex *duplex, struct sp_request *request,
		       const struct sp_answer_header *headers, size_t header_count)
{
	duplex->listener = request->connection->listener;
	sp_request_upgrade(request, headers, header_count, on_upgraded, on_lost, duplex);
}

int sp_duplex_open(struct sp_duplex *duplex, int fd, struct sp_err *err)
{
	int status = begin(duplex, fd);

	if (status < 0) {
		sp_fd_discard(&fd);
		return sp_err_set(err, status, "watch a socket");
	}
	duplex->state = SP_DUPLEX_OPEN;
	update_poll(duplex);
	return 0;
}
