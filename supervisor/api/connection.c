/*
 * Connections: who is at the other end, how long it may take, and whether it is still there.
 *
 * libmicrohttpd owns the socket and knows one timeout, of inactivity, which a client that sends one
 * byte now and then never meets. So every connection has a deadline here as well: a request must be
 * complete SP_API_REQUEST_TIMEOUT_MS after its first line (or after the connection began), the next
 * one must begin SP_API_IDLE_TIMEOUT_MS after the last. A late one has its socket shut down, which
 * libmicrohttpd then finds dead; its state stays its own.
 *
 * While a request is suspended libmicrohttpd does not look at its socket at all. The watch does:
 * end of file counts as "the client left" (a client that half-closes after its request is told
 * nothing, as with most servers), so that no operation outlives the one who asked for it.
 *
 * A connection's memory goes when libmicrohttpd has closed it and the watch's handle is closed,
 * whichever comes last.
 */
#include "supervisor/api/api_private.h"

#include "pool/base/log.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PEER_GROUPS_MAX 256 /* a peer with more is no operator by its supplementary groups */

static bool in_admin_group(const struct sp_api *api, int fd, gid_t primary)
{
	gid_t groups[PEER_GROUPS_MAX];
	socklen_t size = sizeof(groups);

	if (!api->have_admin_group)
		return false;
	if (primary == api->admin_gid)
		return true;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size) < 0)
		return false;
	for (size_t i = 0; i < size / sizeof(groups[0]); i++)
		if (groups[i] == api->admin_gid)
			return true;
	return false;
}

/* Credentials at the time of connect(2), as the kernel saw them. */
static bool peer_is_operator(const struct sp_api *api, int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return false;
	return peer.uid == 0 || peer.uid == geteuid() || in_admin_group(api, fd, peer.gid);
}

/* A peer whose machine vanished must not hold a stream for ever. */
void sp_connection_keep_alive(int fd)
{
	const int on = 1;
	const int idle_s = 60;
	const int interval_s = 15;
	const int probes = 4;

	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}

/* Over the limit, or of the reserve of descriptors: refused, unless an operator is. */
static void count_in(struct sp_connection *connection)
{
	struct sp_api *api = connection->api;
	bool over = ++api->connection_count - api->extra_count > api->max_connections ||
		    connection->fd >= api->fd_ceiling;

	connection->extra = over && connection->operator_rights &&
			    api->extra_count < SP_API_OPERATOR_CONNECTIONS;
	connection->over_limit = over && !connection->extra;
	api->extra_count += connection->extra;
	api->refused_count += connection->over_limit;
}

static void connection_opened(struct sp_listener *listener, struct MHD_Connection *mhd,
			      void **socket_context)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct sp_connection *connection = calloc(1, sizeof(*connection));
	struct sp_api *api = listener->api;

	if (!connection || !info) {
		free(connection);
		return; /* requests on it are refused: no context */
	}
	connection->api = api;
	connection->listener = listener;
	connection->mhd = mhd;
	connection->fd = info->connect_fd;
	if (listener->kind == SP_LISTENER_UNIX)
		connection->operator_rights = peer_is_operator(api, connection->fd);
	else if (listener->kind == SP_LISTENER_TCP)
		sp_connection_keep_alive(connection->fd);
	sp_list_append(&api->connections, &connection->link);
	count_in(connection);
	sp_connection_set_deadline(connection, SP_API_REQUEST_TIMEOUT_MS);
	*socket_context = connection;
}

static void connection_free(struct sp_connection *connection)
{
	free(connection->query);
	free(connection);
}

static void watch_closed(uv_handle_t *handle)
{
	struct sp_connection *connection = handle->data;
	struct sp_api *api = connection->api;

	connection_free(connection);
	sp_api_handle_closed(api);
}

static void connection_closed(struct sp_connection *connection)
{
	sp_list_remove(&connection->link);
	connection->api->connection_count--;
	connection->api->extra_count -= connection->extra;
	connection->api->refused_count -= connection->over_limit;
	connection->closed = true;
	if (connection->watch_open)
		uv_close((uv_handle_t *)&connection->watch, watch_closed);
	else
		connection_free(connection);
}

void sp_connection_notify(void *cls, struct MHD_Connection *mhd, void **socket_context,
			  enum MHD_ConnectionNotificationCode code)
{
	if (code == MHD_CONNECTION_NOTIFY_STARTED)
		connection_opened(cls, mhd, socket_context);
	else if (*socket_context)
		connection_closed(*socket_context);
}

struct sp_connection *sp_connection_of(struct MHD_Connection *mhd)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info ? info->socket_context : NULL;
}

/* libmicrohttpd takes queries apart in place. */
static void keep_query(struct sp_connection *connection, const char *uri)
{
	const char *query = strstr(uri, "/proxy/") ? strchr(uri, '?') : NULL;

	free(connection->query);
	connection->query = query ? strdup(query + 1) : NULL;
}

void *sp_connection_request_line(void *cls, const char *uri, struct MHD_Connection *mhd)
{
	struct sp_connection *connection = sp_connection_of(mhd);

	SP_UNUSED(cls);
	if (connection) {
		size_t length = 0;

		/* Beyond the limit the exact length does not matter. */
		while (length <= SP_API_HEADER_BYTES_MAX && uri[length])
			length++;
		connection->uri_length = length;
		keep_query(connection, uri);
		sp_connection_set_deadline(connection, SP_API_REQUEST_TIMEOUT_MS);
	}
	return NULL;
}

void sp_connection_set_deadline(struct sp_connection *connection, int64_t after_ms)
{
	struct sp_api *api = connection->api;

	connection->deadline_ms = after_ms ? (int64_t)uv_now(api->loop) + after_ms : 0;
}

static void on_watch(uv_poll_t *watch, int status, int events)
{
	struct sp_connection *connection = watch->data;

	SP_UNUSED(events);
	SP_UNUSED(status); /* an error of the socket is an end too */
	(void)uv_poll_stop(watch);
	if (connection->request)
		sp_request_abandon(connection->request, NULL);
}

int sp_connection_watch(struct sp_connection *connection)
{
	int status;

	if (!connection->watch_open) {
		status = uv_poll_init(connection->api->loop, &connection->watch, connection->fd);
		if (status < 0)
			return status;
		connection->watch.data = connection;
		connection->watch_open = true;
		sp_api_handle_opened(connection->api);
	}
	return uv_poll_start(&connection->watch, UV_DISCONNECT, on_watch);
}

void sp_connection_unwatch(struct sp_connection *connection)
{
	if (connection->watch_open && !connection->closed)
		(void)uv_poll_stop(&connection->watch);
}

void sp_connection_shutdown(struct sp_connection *connection)
{
	(void)shutdown(connection->fd, SHUT_RDWR);
	sp_listener_kick(connection->listener);
}

/* An end of file that comes together with the bytes before it is not seen by libmicrohttpd (TCP; a
 * Unix socket hangs up as well), and would occupy its place until the deadline. */
static bool has_left(const struct sp_connection *connection)
{
	char byte;

	return recv(connection->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

void sp_connection_sweep(struct sp_api *api)
{
	int64_t now_ms = (int64_t)uv_now(api->loop);

	SP_LIST_FOREACH_SAFE (link, following, &api->connections) {
		struct sp_connection *connection =
			SP_CONTAINER_OF(link, struct sp_connection, link);

		if (connection->deadline_ms == 0)
			continue; /* it is our turn */
		if (now_ms < connection->deadline_ms && !has_left(connection))
			continue;
		connection->deadline_ms = 0;
		sp_log(SP_LOG_DEBUG, "connection timed out", "listener=%s",
		       connection->listener->url);
		sp_connection_shutdown(connection);
	}
}
