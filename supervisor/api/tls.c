/*
 * Why not libmicrohttpd's own TLS: once a connection is upgraded, 0.9.75 forwards through what is
 * left of the connection's memory, which is nothing, so through four bytes at a time; and it tells
 * neither side that the other has closed. So TLS ends here, and libmicrohttpd sees a socket pair
 * that behaves like every other connection, streams included.
 *
 *	client ── raw ──► [GnuTLS] ── inner ──►(socket pair)── libmicrohttpd, later exec_stream.c
 *
 *	HANDSHAKE ──► OPEN ──► LAST (inner is at its end; what is left goes out) ──► closed
 *
 * Each direction holds one buffer of a record's size and reads only when that is empty, so back-
 * pressure passes through. The client's end of file ends the link, half-closed or not, as on the
 * other sockets: its server side must learn of it at once. A handshake and a last flush have
 * deadlines; between them the connection's own apply (connection.c).
 *
 * Trusts nothing of the client; GnuTLS parses it. A failed handshake is the client's business and
 * not logged above debug.
 */
#include "supervisor/api/tls.h"

#include "pool/base/fd.h"
#include "pool/base/log.h"
#include "supervisor/api/api_private.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define RECORD_MAX   16384
#define ACCEPTS_MAX  64 /* in one turn of the loop */
#define TLS_VERSIONS "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

/* What we present, and the texts it was made from. Sessions use it until they end. */
struct identity {
	unsigned int refs;
	gnutls_certificate_credentials_t credentials;
	char *certificate;
	char *key;
};

struct sp_tls {
	struct sp_listener *listener;
	struct identity *identity;
	gnutls_priority_t priority;
	int fd;
	uv_poll_t accept;
	bool accept_open;
	struct sp_list links;
	uint32_t link_count;
};

enum link_state { LINK_HANDSHAKE, LINK_OPEN, LINK_LAST, LINK_CLOSED };

/* Bytes on their way: data[start … end). */
struct pending {
	size_t start;
	size_t end;
	char data[RECORD_MAX];
};

struct tls_link {
	struct sp_list link;
	struct sp_tls *tls;
	enum link_state state;
	gnutls_session_t session;
	struct identity *identity;
	int raw_fd;
	int inner_fd;
	uv_poll_t raw;
	uv_poll_t inner;
	bool inner_open;
	unsigned int handles;
	int64_t deadline_ms; /* 0 = none */
	struct sockaddr_storage peer;
	socklen_t peer_len;
	struct pending in;  /* decrypted, for inner */
	struct pending out; /* from inner, to be encrypted */
};

static void link_pump(struct tls_link *link);

/* ---- identity ---- */

static void identity_drop(struct identity *identity)
{
	if (!identity || --identity->refs > 0)
		return;
	if (identity->credentials)
		gnutls_certificate_free_credentials(identity->credentials);
	if (identity->key)
		explicit_bzero(identity->key, strlen(identity->key));
	free(identity->key);
	free(identity->certificate);
	free(identity);
}

static int identity_new(const struct sp_config *config, struct identity **ret, struct sp_err *err)
{
	struct identity *identity = calloc(1, sizeof(*identity));
	int status;

	if (!identity)
		return sp_err_set(err, -ENOMEM, "set up TLS");
	identity->refs = 1;
	status = sp_service_tls_credentials(config, &identity->credentials, err);
	if (status == 0) {
		identity->certificate = strdup(config->tls_certificate[0]);
		identity->key = strdup(config->tls_key[0]);
		if (!identity->certificate || !identity->key)
			status = sp_err_set(err, -ENOMEM, "set up TLS");
	}
	if (status < 0)
		identity_drop(identity);
	else
		*ret = identity;
	return status;
}

/* A reload has checked the new pair, so only memory can be missing: then the old one serves on. */
static void take_new_identity(struct sp_tls *tls)
{
	const struct sp_config *config = sp_service_config(tls->listener->api->service);
	struct identity *fresh;

	if (config->tls_certificate_count == 0 || config->tls_key_count == 0 ||
	    (strcmp(config->tls_certificate[0], tls->identity->certificate) == 0 &&
	     strcmp(config->tls_key[0], tls->identity->key) == 0))
		return;
	if (identity_new(config, &fresh, NULL) < 0)
		return;
	identity_drop(tls->identity);
	tls->identity = fresh;
	sp_log(SP_LOG_INFO, "another certificate is in use", "listener=%s", tls->listener->url);
}

/* ---- memory and ends ---- */

static void on_link_handle_closed(uv_handle_t *handle)
{
	struct tls_link *link = handle->data;
	struct sp_api *api = link->tls->listener->api;

	if (--link->handles == 0) {
		gnutls_deinit(link->session);
		identity_drop(link->identity);
		sp_fd_close(&link->raw_fd);
		sp_fd_close(&link->inner_fd);
		explicit_bzero(&link->in, sizeof(link->in));
		explicit_bzero(&link->out, sizeof(link->out));
		free(link);
	}
	sp_api_handle_closed(api);
}

/* Idempotent. The server's side of the pair sees it as the client's leaving. */
static void link_close(struct tls_link *link)
{
	if (link->state == LINK_CLOSED)
		return;
	link->state = LINK_CLOSED;
	sp_list_remove(&link->link);
	link->tls->link_count--;
	/* At once, not in the close callback: others hold no reference to these sockets, but the
	 * peers must see the end even if the loop is stopping. */
	(void)shutdown(link->raw_fd, SHUT_RDWR);
	if (link->inner_fd >= 0)
		(void)shutdown(link->inner_fd, SHUT_RDWR);
	uv_close((uv_handle_t *)&link->raw, on_link_handle_closed);
	if (link->inner_open)
		uv_close((uv_handle_t *)&link->inner, on_link_handle_closed);
}

static void set_deadline(struct tls_link *link, int64_t after_ms)
{
	link->deadline_ms =
		after_ms ? (int64_t)uv_now(link->tls->listener->api->loop) + after_ms : 0;
}

/* ---- polling ---- */

static bool empty(const struct pending *pending)
{
	return pending->start == pending->end;
}

static void on_raw(uv_poll_t *poll, int status, int events)
{
	struct tls_link *link = poll->data;

	if (status < 0 || (events & UV_DISCONNECT && !(events & UV_READABLE))) {
		link_close(link);
		return;
	}
	link_pump(link);
}

static void on_inner(uv_poll_t *poll, int status, int events)
{
	struct tls_link *link = poll->data;

	SP_UNUSED(events);
	if (status < 0)
		link_close(link);
	else
		link_pump(link);
}

static void update_polls(struct tls_link *link)
{
	int raw = UV_DISCONNECT;
	int inner = 0;
	int status;

	if (link->state == LINK_HANDSHAKE) {
		raw |= gnutls_record_get_direction(link->session) ? UV_WRITABLE : UV_READABLE;
	} else {
		if (empty(&link->in) && link->state == LINK_OPEN)
			raw |= UV_READABLE;
		if (!empty(&link->out))
			raw |= UV_WRITABLE;
		if (!empty(&link->in))
			inner |= UV_WRITABLE;
		if (empty(&link->out) && link->state == LINK_OPEN)
			inner |= UV_READABLE;
	}
	status = uv_poll_start(&link->raw, raw, on_raw);
	if (status == 0 && link->inner_open)
		status = inner ? uv_poll_start(&link->inner, inner, on_inner)
			       : uv_poll_stop(&link->inner);
	if (status < 0)
		link_close(link);
}

/* ---- moving bytes ---- */

static bool would_block(ssize_t result)
{
	return result == GNUTLS_E_AGAIN || result == GNUTLS_E_INTERRUPTED;
}

/* 1: something moved, 0: not now, negative: the link is over. */
static int read_raw(struct tls_link *link)
{
	ssize_t got;

	if (!empty(&link->in) || link->state != LINK_OPEN)
		return 0;
	got = gnutls_record_recv(link->session, link->in.data, sizeof(link->in.data));
	if (would_block(got))
		return 0;
	if (got <= 0)
		return -ECONNRESET;
	link->in.start = 0;
	link->in.end = (size_t)got;
	return 1;
}

static int write_inner(struct tls_link *link)
{
	ssize_t sent;

	if (empty(&link->in))
		return 0;
	sent = send(link->inner_fd, link->in.data + link->in.start, link->in.end - link->in.start,
		    MSG_NOSIGNAL | MSG_DONTWAIT);
	if (sent < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	link->in.start += (size_t)sent;
	return 1;
}

static int read_inner(struct tls_link *link)
{
	ssize_t got;

	if (!empty(&link->out) || link->state != LINK_OPEN)
		return 0;
	got = recv(link->inner_fd, link->out.data, sizeof(link->out.data), MSG_DONTWAIT);
	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (got == 0) {
		link->state = LINK_LAST;
		set_deadline(link, SP_TLS_LINGER_MS);
		return 1;
	}
	link->out.start = 0;
	link->out.end = (size_t)got;
	return 1;
}

/* After GNUTLS_E_AGAIN the same bytes must be given again, which they are. */
static int write_raw(struct tls_link *link)
{
	ssize_t sent;

	if (empty(&link->out))
		return 0;
	sent = gnutls_record_send(link->session, link->out.data + link->out.start,
				  link->out.end - link->out.start);
	if (would_block(sent))
		return 0;
	if (sent < 0)
		return -EPIPE;
	link->out.start += (size_t)sent;
	return 1;
}

/* A few rounds, so that one fast client does not keep the loop. */
static int move(struct tls_link *link)
{
	int (*const steps[])(struct tls_link *) = {read_raw, write_inner, read_inner, write_raw};

	for (unsigned int round = 0; round < 8; round++) {
		bool moved = false;

		for (size_t i = 0; i < SP_ARRAY_SIZE(steps); i++) {
			int result = steps[i](link);

			if (result < 0)
				return result;
			moved |= result > 0;
		}
		if (!moved)
			return 0;
	}
	/* GnuTLS may hold decrypted bytes that no poll will announce. */
	if (empty(&link->in) && gnutls_record_check_pending(link->session) > 0) {
		int result = read_raw(link);

		return result < 0 ? result : 0;
	}
	return 0;
}

/* ---- life of a link ---- */

static int open_inner(struct tls_link *link)
{
	struct sp_listener *listener = link->tls->listener;
	SP_AUTO_CLOSE int server_end = -1;
	int pair[2];
	int status;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return -errno;
	link->inner_fd = pair[0];
	server_end = pair[1];
	status = uv_poll_init(listener->api->loop, &link->inner, link->inner_fd);
	if (status < 0)
		return status;
	link->inner.data = link;
	link->inner_open = true;
	link->handles++;
	sp_api_handle_opened(listener->api);
	/* libmicrohttpd closes it also when it refuses. */
	if (MHD_add_connection(listener->mhd, sp_take_fd(&server_end),
			       (const struct sockaddr *)&link->peer, link->peer_len) == MHD_NO)
		return -ECONNABORTED;
	sp_listener_kick(listener);
	link->state = LINK_OPEN;
	set_deadline(link, 0);
	return 0;
}

static int shake_hands(struct tls_link *link)
{
	int result = gnutls_handshake(link->session);

	if (result == GNUTLS_E_SUCCESS)
		return open_inner(link);
	if (gnutls_error_is_fatal(result)) {
		sp_log(SP_LOG_DEBUG, "TLS handshake failed", "listener=%s error=\"%s\"",
		       link->tls->listener->url, gnutls_strerror(result));
		return -EPROTO;
	}
	return 0;
}

static void link_pump(struct tls_link *link)
{
	int status = 0;

	if (link->state == LINK_HANDSHAKE)
		status = shake_hands(link);
	if (status == 0 && (link->state == LINK_OPEN || link->state == LINK_LAST))
		status = move(link);
	if (status == 0 && link->state == LINK_LAST && empty(&link->out)) {
		(void)gnutls_bye(link->session, GNUTLS_SHUT_WR);
		status = -ESHUTDOWN;
	}
	if (status < 0)
		link_close(link);
	else
		update_polls(link);
}

static int link_init(struct tls_link *link)
{
	struct sp_tls *tls = link->tls;
	const int on = 1;
	int status;

	if (gnutls_init(&link->session, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) < 0)
		return -ENOMEM;
	if (gnutls_priority_set(link->session, tls->priority) < 0 ||
	    gnutls_credentials_set(link->session, GNUTLS_CRD_CERTIFICATE,
				   tls->identity->credentials) < 0)
		status = -ENOMEM;
	else
		status = uv_poll_init(tls->listener->api->loop, &link->raw, link->raw_fd);
	if (status < 0) {
		gnutls_deinit(link->session);
		return status;
	}
	link->identity = tls->identity;
	link->identity->refs++;
	gnutls_transport_set_int(link->session, link->raw_fd);
	(void)setsockopt(link->raw_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return 0;
}

/* Takes fd. */
static void link_new(struct sp_tls *tls, int fd, const struct sockaddr_storage *peer, socklen_t len)
{
	struct tls_link *link = calloc(1, sizeof(*link));

	if (!link) {
		sp_fd_close(&fd);
		return;
	}
	link->tls = tls;
	link->raw_fd = fd;
	link->inner_fd = -1;
	link->peer = *peer;
	link->peer_len = len;
	if (link_init(link) < 0) {
		sp_fd_close(&link->raw_fd);
		free(link);
		return;
	}
	link->raw.data = link;
	link->handles = 1;
	sp_api_handle_opened(tls->listener->api);
	sp_list_append(&tls->links, &link->link);
	tls->link_count++;
	sp_connection_keep_alive(link->raw_fd);
	set_deadline(link, SP_TLS_HANDSHAKE_MS);
	link_pump(link);
}

/* ---- accepting ---- */

static void on_accept(uv_poll_t *poll, int status, int events)
{
	struct sp_tls *tls = poll->data;
	const struct sp_api *api = tls->listener->api;

	SP_UNUSED(events);
	if (status < 0)
		return;
	take_new_identity(tls);
	for (unsigned int i = 0; i < ACCEPTS_MAX; i++) {
		struct sockaddr_storage peer;
		socklen_t len = sizeof(peer);
		int fd = accept4(tls->fd, (struct sockaddr *)&peer, &len,
				 SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0) {
			/* Out of descriptors the socket stays readable: the sweep tries again. */
			if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR)
				(void)uv_poll_stop(&tls->accept);
			return;
		}
		if (tls->link_count >= api->max_connections + SP_API_OVERFLOW_CONNECTIONS ||
		    fd >= api->fd_ceiling)
			sp_fd_close(&fd);
		else
			link_new(tls, fd, &peer, len);
	}
}

int sp_tls_new(struct sp_listener *listener, struct sp_tls **ret_tls, struct sp_err *err)
{
	struct sp_tls *tls = calloc(1, sizeof(*tls));
	int status = tls ? 0 : sp_err_set(err, -ENOMEM, "set up TLS");

	if (status < 0)
		return status;
	tls->listener = listener;
	tls->fd = -1;
	sp_list_init(&tls->links);
	status = gnutls_priority_init(&tls->priority, TLS_VERSIONS, NULL);
	if (status < 0)
		status = sp_err_code(err, SP_CODE_INTERNAL, -ENOMEM, "set up TLS: %s",
				     gnutls_strerror(status));
	if (status == 0)
		status = identity_new(sp_service_config(listener->api->service), &tls->identity,
				      err);
	if (status < 0) {
		sp_tls_free(tls);
		return status;
	}
	*ret_tls = tls;
	return 0;
}

int sp_tls_serve(struct sp_tls *tls, int fd, struct sp_err *err)
{
	struct sp_api *api = tls->listener->api;
	int status;

	tls->fd = fd;
	status = uv_poll_init(api->loop, &tls->accept, fd);
	if (status < 0)
		return sp_err_set(err, status, "poll '%s'", tls->listener->url);
	tls->accept.data = tls;
	tls->accept_open = true;
	sp_api_handle_opened(api);
	status = uv_poll_start(&tls->accept, UV_READABLE, on_accept);
	if (status < 0)
		return sp_err_set(err, status, "poll '%s'", tls->listener->url);
	return 0;
}

void sp_tls_sweep(struct sp_tls *tls, int64_t now_ms)
{
	SP_LIST_FOREACH_SAFE (at, following, &tls->links) {
		struct tls_link *link = SP_CONTAINER_OF(at, struct tls_link, link);

		if (link->deadline_ms > 0 && now_ms >= link->deadline_ms)
			link_close(link);
	}
	if (tls->accept_open && !uv_is_active((uv_handle_t *)&tls->accept))
		(void)uv_poll_start(&tls->accept, UV_READABLE, on_accept);
}

static void on_accept_closed(uv_handle_t *handle)
{
	struct sp_tls *tls = handle->data;

	sp_fd_close(&tls->fd);
	sp_api_handle_closed(tls->listener->api);
}

void sp_tls_quiet(struct sp_tls *tls)
{
	if (!tls->accept_open)
		return;
	tls->accept_open = false;
	uv_close((uv_handle_t *)&tls->accept, on_accept_closed);
}

void sp_tls_close(struct sp_tls *tls)
{
	SP_LIST_FOREACH_SAFE (at, following, &tls->links) {
		struct tls_link *link = SP_CONTAINER_OF(at, struct tls_link, link);

		if (link->state == LINK_OPEN)
			link_pump(link);
		link_close(link);
	}
}

void sp_tls_free(struct sp_tls *tls)
{
	if (!tls)
		return;
	sp_assert(sp_list_empty(&tls->links));
	sp_fd_close(&tls->fd);
	if (tls->priority)
		gnutls_priority_deinit(tls->priority);
	identity_drop(tls->identity);
	free(tls);
}
