/*
 * The HTTP server's frame: one libmicrohttpd daemon per listen socket, each in external epoll mode.
 * Its epoll descriptor is in a uv_poll, its next timeout in a uv_timer; both only say "run".
 *
 * MHD_run() is never entered twice: a handler may make the service end another client's operation,
 * whose answer then wants the connection to go on. Whatever happens outside a run asks for one with
 * sp_listener_kick(), which is served by the check handle at the end of the same turn of the loop,
 * after what was put off to there and before anything is closed. (An active idle handle keeps the
 * loop from sleeping if it was asked later than that.) The same handle writes what the streams have
 * queued during a turn: frames of one turn share one system call.
 *
 * Closing: streams end, suspended requests are answered, each daemon gets one last run to write and
 * is stopped; the memory goes with the last uv handle.
 */
#include "supervisor/api/api_private.h"

#include "pool/base/fd.h"
#include "pool/base/log.h"
#include "supervisor/api/duplex.h"
#include "supervisor/api/execd_events.h"
#include "supervisor/api/tls.h"

#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SWEEP_MS 1000

void sp_api_handle_opened(struct sp_api *api)
{
	api->open_handles++;
}

static size_t beyond_free(size_t bytes)
{
	return bytes > SP_API_INPUT_FREE ? bytes - SP_API_INPUT_FREE : 0;
}

bool sp_api_charge_input(struct sp_api *api, size_t *held, size_t now)
{
	size_t others = api->input_bytes - beyond_free(*held);

	if (now > *held && beyond_free(now) > 0 &&
	    others + beyond_free(now) > SP_API_INPUT_TOTAL_MAX)
		return false;
	api->input_bytes = others + beyond_free(now);
	*held = now;
	return true;
}

bool sp_api_output_tight(const struct sp_api *api)
{
	return api->output_bytes > SP_API_OUTPUT_TOTAL;
}

static void api_free(struct sp_api *api)
{
	for (size_t i = 0; i < api->listener_count; i++) {
		sp_tls_free(api->listeners[i].tls);
		free(api->listeners[i].url_owned);
	}
	sp_os_table_free(api->os);
	sp_account_cache_done(&api->accounts);
	free(api);
}

void sp_api_handle_closed(struct sp_api *api)
{
	void (*on_closed)(void *) = api->on_closed;
	void *arg = api->on_closed_arg;

	sp_assert(api->open_handles > 0);
	if (--api->open_handles > 0 || !api->closing)
		return;
	api_free(api);
	if (on_closed)
		on_closed(arg);
}

static void handle_closed(uv_handle_t *handle)
{
	sp_api_handle_closed(handle->data);
}

static void close_handle(struct sp_api *api, uv_handle_t *handle)
{
	handle->data = api;
	uv_close(handle, handle_closed);
}

/* ---- the loop's side of libmicrohttpd ---- */

static void on_timer(uv_timer_t *timer);

static void listener_run(struct sp_listener *listener)
{
	MHD_UNSIGNED_LONG_LONG timeout_ms;

	if (!listener->mhd || listener->running)
		return;
	listener->running = true;
	listener->kicked = false;
	(void)MHD_run(listener->mhd);
	listener->running = false;
	if (listener->api->closing)
		return;
	if (MHD_get_timeout(listener->mhd, &timeout_ms) == MHD_YES)
		(void)uv_timer_start(&listener->timer, on_timer, timeout_ms, 0);
	else
		(void)uv_timer_stop(&listener->timer);
	if (listener->kicked)
		sp_api_wake(listener->api);
}

static void on_timer(uv_timer_t *timer)
{
	struct sp_listener *listener = timer->data;

	if (!listener->api->closing)
		listener_run(listener);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct sp_listener *listener = poll->data;

	SP_UNUSED(events);
	if (listener->api->closing || status < 0)
		return;
	listener_run(listener);
}

static void on_idle(uv_idle_t *idle)
{
	SP_UNUSED(idle);
}

static void on_check(uv_check_t *check)
{
	struct sp_api *api = check->data;

	/* Stopped first: whatever happens below may start it again. */
	(void)uv_idle_stop(&api->idle);
	if (api->closing)
		return;
	sp_events_next_turn(api);
	sp_duplex_flush_all(api);
	for (size_t i = 0; i < api->listener_count; i++)
		if (api->listeners[i].kicked)
			listener_run(&api->listeners[i]);
}

void sp_api_wake(struct sp_api *api)
{
	if (!api->closing)
		(void)uv_idle_start(&api->idle, on_idle);
}

void sp_listener_kick(struct sp_listener *listener)
{
	listener->kicked = true;
	sp_api_wake(listener->api);
}

/*
 * Out of descriptors libmicrohttpd stops accepting, until one of its connections has ended. That it
 * may accept again it finds in the run after that one, which nothing else might ask for: who waits
 * to be accepted wakes nobody meanwhile.
 */
static void sweep_waiting(struct sp_listener *listener)
{
	const union MHD_DaemonInfo *info = NULL;
	struct pollfd waiting = {.events = POLLIN};

	if (listener->mhd)
		info = MHD_get_daemon_info(listener->mhd, MHD_DAEMON_INFO_LISTEN_FD);
	if (!info)
		return;
	waiting.fd = info->listen_fd; /* negative with TLS: then nobody waits */
	if (poll(&waiting, 1, 0) > 0)
		sp_listener_kick(listener);
}

static void on_sweep(uv_timer_t *timer)
{
	struct sp_api *api = timer->data;

	if (api->closing)
		return;
	sp_connection_sweep(api);
	sp_os_sweep(api);
	sp_duplex_sweep(api);
	for (size_t i = 0; i < api->listener_count; i++)
		if (api->listeners[i].tls)
			sp_tls_sweep(api->listeners[i].tls, (int64_t)uv_now(api->loop));
		else
			sweep_waiting(&api->listeners[i]);
}

/* ---- start ---- */

static int find_admin_group(struct sp_api *api, const struct sp_config *config, struct sp_err *err)
{
	const struct group *entry;

	if (!config->admin_group || !config->admin_group[0])
		return 0;
	errno = 0;
	entry = getgrnam(config->admin_group);
	if (!entry)
		return sp_err_set(err, errno ? -errno : -ENOENT, "look up group '%s'",
				  config->admin_group);
	api->admin_gid = entry->gr_gid;
	api->have_admin_group = true;
	return 0;
}

static int add_listener(struct sp_api *api, const struct sp_config *config, const char *url,
			struct sp_err *err)
{
	struct sp_listener *listener = &api->listeners[api->listener_count];
	int status;

	*listener = (struct sp_listener){.api = api, .fd = -1, .url_owned = strdup(url)};
	if (!listener->url_owned)
		return sp_err_set(err, -ENOMEM, "listen on '%s'", url);
	listener->url = listener->url_owned;
	api->listener_count++;
	status = sp_listen_open(url, config, api->have_admin_group, api->admin_gid, &listener->kind,
				&listener->fd, err);
	if (status == 0 && listener->kind == SP_LISTENER_TLS)
		status = sp_tls_new(listener, &listener->tls, err);
	return status;
}

static void close_sockets(struct sp_api *api)
{
	for (size_t i = 0; i < api->listener_count; i++) {
		struct sp_listener *listener = &api->listeners[i];

		if (listener->fd < 0)
			continue;
		sp_fd_close(&listener->fd);
		sp_listen_remove(listener->url);
	}
}

static int init_handles(struct sp_api *api, struct sp_err *err)
{
	int status = uv_idle_init(api->loop, &api->idle);

	if (status < 0)
		return sp_err_set(err, status, "make the api's idle handle");
	sp_api_handle_opened(api);
	api->idle.data = api;
	status = uv_check_init(api->loop, &api->check);
	sp_assert(status == 0); /* it only fills in the handle */
	sp_api_handle_opened(api);
	api->check.data = api;
	status = uv_timer_init(api->loop, &api->sweep);
	sp_assert(status == 0); /* it only fills in the handle */
	sp_api_handle_opened(api);
	api->sweep.data = api;
	return 0;
}

int sp_api_new(struct sp_service *service, struct uv_loop_s *loop, struct sp_api **ret_api,
	       struct sp_err *err)
{
	const struct sp_config *config = sp_service_config(service);
	struct sp_api *api = calloc(1, sizeof(*api));
	int status;

	if (!api)
		return sp_err_set(err, -ENOMEM, "make the api");
	api->service = service;
	api->loop = loop;
	api->max_connections = config->max_connections;
	api->fd_ceiling = sp_fd_ceiling();
	sp_sandbox_id_new(api->run_id);
	sp_list_init(&api->connections);
	sp_list_init(&api->streams);
	sp_list_init(&api->flush);
	sp_list_init(&api->late_events);
	sp_list_init(&api->files_running);
	sp_list_init(&api->files_waiting);
	sp_account_cache_init(&api->accounts);
	status = sp_os_table_new(&api->os);
	if (status < 0)
		(void)sp_err_set(err, status, "make the table of sandboxes");
	if (status == 0)
		status = find_admin_group(api, config, err);
	for (size_t i = 0; status == 0 && i < config->listen_count; i++)
		status = add_listener(api, config, config->listen[i], err);
	if (status == 0)
		status = init_handles(api, err);
	if (status < 0) {
		close_sockets(api);
		api_free(api);
		return status;
	}
	*ret_api = api;
	return 0;
}

/* ---- serve ---- */

/* Paths and queries are matched as they come; see guard.c. */
static size_t keep_escapes(void *cls, struct MHD_Connection *mhd, char *text)
{
	SP_UNUSED(cls);
	SP_UNUSED(mhd);
	return strlen(text);
}

static uint32_t beyond_all_limits(const struct sp_api *api)
{
	return api->max_connections + SP_API_OVERFLOW_CONNECTIONS + SP_API_OPERATOR_CONNECTIONS;
}

/* Accept as long as there is room to say "too many"; beyond that the connection is just closed. On
 * a Unix socket it may be an operator's, which is known once it is open. */
static enum MHD_Result accept_policy(void *cls, const struct sockaddr *address, socklen_t len)
{
	const struct sp_listener *listener = cls;
	const struct sp_api *api = listener->api;
	bool told = api->connection_count - api->extra_count <
			    api->max_connections + SP_API_OVERFLOW_CONNECTIONS &&
		    api->refused_count < SP_API_OVERFLOW_CONNECTIONS;
	bool extra = listener->kind == SP_LISTENER_UNIX &&
		     api->connection_count < beyond_all_limits(api);

	SP_UNUSED(address);
	SP_UNUSED(len);
	return told || (extra && api->extra_count < SP_API_OPERATOR_CONNECTIONS) ? MHD_YES : MHD_NO;
}

static struct MHD_Daemon *start_mhd(struct sp_listener *listener)
{
	struct sp_api *api = listener->api;
	unsigned int flags = MHD_USE_EPOLL | MHD_ALLOW_UPGRADE;
	struct MHD_OptionItem socket_option[] = {
		{MHD_OPTION_LISTEN_SOCKET, listener->fd, NULL},
		{MHD_OPTION_END, 0, NULL},
	};

	if (listener->tls) {
		flags |= MHD_USE_NO_LISTEN_SOCKET;
		socket_option[0].option = MHD_OPTION_END;
	}
	/* libmicrohttpd's own limit lies beyond ours so that it never stops accepting. */
	return MHD_start_daemon(
		flags, 0, accept_policy, listener, sp_request_access, listener,
		MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_CONNECTION_LIMIT,
		(unsigned int)(beyond_all_limits(api) + 1), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
		(size_t)SP_API_CONNECTION_MEMORY, MHD_OPTION_CONNECTION_TIMEOUT,
		SP_API_STALL_TIMEOUT_S, MHD_OPTION_NOTIFY_CONNECTION, sp_connection_notify,
		listener, MHD_OPTION_NOTIFY_COMPLETED, sp_request_completed, NULL,
		MHD_OPTION_URI_LOG_CALLBACK, sp_connection_request_line, NULL,
		MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL, MHD_OPTION_SIGPIPE_HANDLED_BY_APP,
		1, MHD_OPTION_ARRAY, socket_option, MHD_OPTION_END);
}

static int listener_serve(struct sp_listener *listener, struct sp_err *err)
{
	struct sp_api *api = listener->api;
	const union MHD_DaemonInfo *info;
	int status;

	listener->mhd = start_mhd(listener);
	if (!listener->mhd)
		return sp_err_set(err, -EIO, "start the HTTP server on '%s'", listener->url);
	if (!listener->tls)
		listener->fd = -1; /* libmicrohttpd's now */
	info = MHD_get_daemon_info(listener->mhd, MHD_DAEMON_INFO_EPOLL_FD);
	sp_assert(info);
	status = uv_poll_init(api->loop, &listener->poll, info->epoll_fd);
	if (status < 0)
		return sp_err_set(err, status, "poll the HTTP server on '%s'", listener->url);
	sp_api_handle_opened(api);
	(void)uv_timer_init(api->loop, &listener->timer);
	sp_api_handle_opened(api);
	listener->poll.data = listener;
	listener->timer.data = listener;
	listener->handles_open = true;
	status = uv_poll_start(&listener->poll, UV_READABLE, on_readable);
	if (status < 0)
		return sp_err_set(err, status, "poll the HTTP server on '%s'", listener->url);
	if (listener->tls) {
		status = sp_tls_serve(listener->tls, sp_take_fd(&listener->fd), err);
		if (status < 0)
			return status;
	}
	sp_log(SP_LOG_INFO, "listening", "address=%s", listener->url);
	return 0;
}

int sp_api_serve(struct sp_api *api, struct sp_err *err)
{
	int status = 0;

	for (size_t i = 0; status == 0 && i < api->listener_count; i++)
		status = listener_serve(&api->listeners[i], err);
	if (status < 0)
		return status;
	sp_service_watch_ends(api->service, sp_os_on_end, api);
	/* Checks run in the reverse order of their starts: ours, which never stops, is the last. */
	(void)uv_check_start(&api->check, on_check);
	(void)uv_timer_start(&api->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
	return 0;
}

/* ---- close ---- */

static void abandon_requests(struct sp_api *api)
{
	struct sp_err err = {0};

	(void)sp_err_code(&err, SP_CODE_UNAVAILABLE, -ESHUTDOWN, "the daemon is shutting down");
	SP_LIST_FOREACH_SAFE (link, following, &api->connections) {
		struct sp_connection *connection =
			SP_CONTAINER_OF(link, struct sp_connection, link);

		if (connection->request)
			sp_request_abandon(connection->request, &err);
	}
}

static void listener_quiet(struct sp_listener *listener)
{
	if (!listener->handles_open)
		return;
	listener->handles_open = false;
	if (listener->tls)
		sp_tls_quiet(listener->tls);
	(void)uv_poll_stop(&listener->poll);
	close_handle(listener->api, (uv_handle_t *)&listener->poll);
	close_handle(listener->api, (uv_handle_t *)&listener->timer);
}

static void listener_stop(struct sp_listener *listener)
{
	if (!listener->mhd)
		return;
	/* Resumes what abandon_requests() answered, writes it, and drops the streams. */
	(void)MHD_run(listener->mhd);
	MHD_stop_daemon(listener->mhd);
	listener->mhd = NULL;
	if (listener->tls)
		sp_tls_close(listener->tls);
	sp_listen_remove(listener->url);
}

/* libmicrohttpd does not survive a stop while a stream still has one of its sockets. */
static void finish_close(struct sp_api *api)
{
	for (size_t i = 0; i < api->listener_count; i++)
		listener_stop(&api->listeners[i]);
	close_sockets(api);
	close_handle(api, (uv_handle_t *)&api->idle);
	close_handle(api, (uv_handle_t *)&api->check);
	close_handle(api, (uv_handle_t *)&api->sweep);
}

void sp_api_stream_gone(struct sp_api *api)
{
	if (api->closing && sp_list_empty(&api->streams))
		finish_close(api);
}

void sp_api_close(struct sp_api *api, void (*on_closed)(void *), void *arg)
{
	if (!api || api->closing)
		return;
	api->closing = true;
	sp_service_watch_ends(api->service, NULL, NULL);
	api->on_closed = on_closed;
	api->on_closed_arg = arg;
	for (size_t i = 0; i < api->listener_count; i++)
		listener_quiet(&api->listeners[i]);
	abandon_requests(api);
	if (sp_list_empty(&api->streams))
		finish_close(api);
	else
		sp_duplex_close_all(api);
}
