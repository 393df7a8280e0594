/*
 * The reverse proxy to a port inside a sandbox: `/sandboxes/{uuid}/proxy/{port}/…` of the lifecycle
 * API and `/proxy/{port}/…` of execd.
 *
 *	CONNECTING ── a socket came ──► OPEN ── head of an answer ──► ANSWERING ── its end ──► OVER
 *	OPEN ── 101 ──► TUNNEL ── the end of either side ──► OVER
 *
 * A request with a body begins when its headers are there, and its body is passed on as it comes;
 * but libmicrohttpd cannot answer before a body has ended, so an answer that comes earlier waits in
 * its socket. One that will not change any more for what is still to come (an error, a server that
 * reads no more) has the rest of the body thrown away.
 *
 * Both ways what one side does not take stops the other, and nothing but one queue's worth is held
 * in between. What goes wrong before the head of an answer was passed on is answered with 502;
 * after that the connection is cut, so that nobody takes a part for the whole.
 *
 * One connection for each request: the server inside is foreign code, and a connection that is used
 * again is what request smuggling lives on.
 */
#include "supervisor/api/duplex.h"

#include "pool/base/fd.h"
#include "supervisor/api/http_answer.h"
#include "supervisor/api/proxy_gate.h"
#include "supervisor/api/proxy_head.h"
#include "supervisor/api/request_body.h"
#include "supervisor/daemon/files.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CHUNK_LINE_MAX 24

enum proxy_state { PROXY_CONNECTING, PROXY_OPEN, PROXY_ANSWERING, PROXY_TUNNEL, PROXY_OVER };

struct proxy {
	struct sp_api *api;
	struct sp_gate_ticket ticket; /* CONNECTING */
	enum proxy_state state;
	struct sp_request *request; /* NULL: answered, or its client is gone */
	bool answerable;            /* its body is over */
	bool chunked;               /* its body goes on as chunks */
	bool upgrade;
	bool head_ready;   /* of an answer that waits for `answerable` */
	struct sp_err err; /* OVER before an answer: what is to be answered */
	struct sp_file_op *connecting;
	struct sp_buf head; /* of the request, until it is sent */
	struct sp_http_answer answer;
	struct sp_duplex upstream;
	struct sp_duplex client; /* of a tunnel */
	struct sp_answer_stream *stream;
	unsigned int pieces; /* upstream and client, as far as they exist; a stream ends before */
};

/* ---- the end ---- */

static void free_if_over(struct proxy *proxy)
{
	if (proxy->pieces > 0 || proxy->request || proxy->connecting)
		return;
	sp_buf_done(&proxy->head);
	sp_http_answer_done(&proxy->answer);
	free(proxy);
}

static void piece_gone(struct proxy *proxy)
{
	proxy->pieces--;
	free_if_over(proxy);
}

/* No request, no answer: what is left of it goes. */
static void give_up(struct proxy *proxy)
{
	struct sp_file_op *connecting = proxy->connecting;

	proxy->state = PROXY_OVER;
	proxy->request = NULL;
	proxy->connecting = NULL;
	if (connecting)
		sp_file_op_cancel(connecting);
	sp_gate_leave(&proxy->ticket);
	if (proxy->pieces > 0)
		sp_duplex_close(&proxy->upstream);
	free_if_over(proxy);
}

/* The client left, or the api closes, before there was an answer. */
static void on_cancel(struct sp_request *request)
{
	give_up(request->operation);
}

static void reply_bad_gateway(struct sp_request *request, const char *message)
{
	static const char text[] = "Bad Gateway\n";
	struct sp_buf body;

	if (request->style != SP_STYLE_EXECD) {
		sp_os_reply_error(request, MHD_HTTP_BAD_GATEWAY, "BACKEND_CONNECTION_FAILED", "%s",
				  message);
		return;
	}
	sp_buf_init(&body, sizeof(text));
	if (sp_buf_append(&body, text, sizeof(text) - 1) < 0)
		sp_buf_done(&body);
	sp_reply_text(request, MHD_HTTP_BAD_GATEWAY, "text/plain; charset=utf-8", &body);
	sp_buf_done(&body);
}

static void answer_failure(struct proxy *proxy)
{
	struct sp_request *request = proxy->request;
	struct sp_err err = proxy->err;

	proxy->request = NULL;
	free_if_over(proxy);
	if (err.code == SP_CODE_CONNECT_FAILED)
		reply_bad_gateway(request, err.message);
	else
		sp_reply_error(request, &err);
}

/* Before an answer. proxy->err says why. */
static void fail(struct proxy *proxy)
{
	struct sp_request *request = proxy->request;

	proxy->state = PROXY_OVER;
	if (proxy->pieces > 0)
		sp_duplex_close(&proxy->upstream);
	if (proxy->answerable) {
		answer_failure(proxy);
	} else {
		sp_request_body_drop(request);
		sp_request_body_resume(request);
	}
}

static void bad_gateway(struct proxy *proxy, const char *what)
{
	(void)sp_err_code(&proxy->err, SP_CODE_CONNECT_FAILED, -EPROTO,
			  "the server on that port of the sandbox %s", what);
	fail(proxy);
}

/* The answer ends here, well or not. */
static void end_answer(struct proxy *proxy, bool whole)
{
	struct sp_answer_stream *stream = proxy->stream;

	proxy->state = PROXY_OVER;
	proxy->stream = NULL;
	if (whole)
		sp_answer_stream_end(stream);
	else
		sp_answer_stream_abort(stream);
	sp_duplex_drain(&proxy->upstream);
}

/* ---- the answer's way back ---- */

static struct proxy *of_upstream(struct sp_duplex *duplex)
{
	return SP_CONTAINER_OF(duplex, struct proxy, upstream);
}

static void on_stream_drained(void *arg)
{
	struct proxy *proxy = arg;

	sp_duplex_hold(&proxy->upstream, false);
}

static void on_stream_gone(void *arg)
{
	struct proxy *proxy = arg;

	proxy->state = PROXY_OVER;
	proxy->stream = NULL;
	sp_duplex_close(&proxy->upstream);
}

static const struct sp_answer_stream_events stream_events = {
	.drained = on_stream_drained,
	.gone = on_stream_gone,
};

/* Connection may be given in many lines. */
static bool passes_back(const struct sp_http_answer *answer, const char *name)
{
	bool passes = sp_proxy_passes_back(name, NULL);

	for (size_t i = 0; passes && i < answer->header_count; i++)
		if (strcasecmp(answer->headers[i].name, "Connection") == 0)
			passes = sp_proxy_passes_back(name, answer->headers[i].value);
	return passes;
}

/* A redirect leads to where its client finds it; the text may be in *text. */
static const char *redirect(const struct sp_request *request, struct sp_buf *text,
			    const char *value)
{
	size_t prefix_len = (size_t)(request->match.tail - request->path);

	return sp_proxy_location(text, request->path, prefix_len, value) == 1 ? sp_buf_text(text)
									      : value;
}

/* What of the answer's headers is passed on; libmicrohttpd takes no empty ones. Of two Locations
 * the first one: which counts is a matter of opinion, and there is one `location`. Returns how
 * many.
 */
static size_t choose_headers(const struct proxy *proxy, struct sp_buf *location,
			     struct sp_answer_header *ret_headers)
{
	bool redirected = false;
	size_t count = 0;

	for (size_t i = 0; i < proxy->answer.header_count; i++) {
		const struct sp_http_header *header = &proxy->answer.headers[i];
		const char *value = header->value;

		if (!value[0] || !passes_back(&proxy->answer, header->name))
			continue;
		if (strcasecmp(header->name, "Location") == 0) {
			if (redirected)
				continue;
			redirected = true;
			value = redirect(proxy->request, location, value);
		}
		ret_headers[count++] = (struct sp_answer_header){header->name, value};
	}
	return count;
}

/* Of the body, as far as the head tells; -1: it ends when it ends. */
static int64_t body_length(const struct sp_http_answer *answer)
{
	if (answer->state == SP_HTTP_DONE && !answer->to_head)
		return 0;
	return answer->length;
}

static void open_stream(struct proxy *proxy, const struct sp_answer_header *headers, size_t count)
{
	struct sp_request *request = proxy->request;

	proxy->state = PROXY_ANSWERING;
	proxy->request = NULL;
	if (sp_answer_stream_open(request, proxy->answer.status, headers, count,
				  body_length(&proxy->answer), &stream_events, proxy,
				  &proxy->stream) < 0) {
		give_up(proxy);
		return;
	}
	if (proxy->answer.state == SP_HTTP_DONE)
		end_answer(proxy, true);
}

/* ---- tunnel ---- */

static struct proxy *of_client(struct sp_duplex *duplex)
{
	return SP_CONTAINER_OF(duplex, struct proxy, client);
}

static void on_client_opened(struct sp_duplex *client)
{
	struct proxy *proxy = of_client(client);

	if (proxy->upstream.state == SP_DUPLEX_CLOSED)
		sp_duplex_close(client);
	else
		sp_duplex_hold(&proxy->upstream, false);
}

/* Pass on, and stop reading one side while the other is full. */
static size_t pass(struct sp_duplex *from, struct sp_duplex *to, const uint8_t *data, size_t len)
{
	sp_duplex_write(to, data, len);
	if (to->full)
		sp_duplex_hold(from, true);
	return len;
}

static size_t on_client_received(struct sp_duplex *client, const uint8_t *data, size_t len)
{
	return pass(client, &of_client(client)->upstream, data, len);
}

static void on_client_drained(struct sp_duplex *client)
{
	sp_duplex_hold(&of_client(client)->upstream, false);
}

/* What it sent is still delivered. */
static void on_client_closed(struct sp_duplex *client)
{
	struct proxy *proxy = of_client(client);

	proxy->state = PROXY_OVER;
	sp_duplex_drain(&proxy->upstream);
}

static void on_client_freed(struct sp_duplex *client)
{
	piece_gone(of_client(client));
}

static const struct sp_duplex_events client_events = {
	.opened = on_client_opened,
	.received = on_client_received,
	.drained = on_client_drained,
	.closed = on_client_closed,
	.freed = on_client_freed,
};

static void open_tunnel(struct proxy *proxy, struct sp_answer_header *headers, size_t count)
{
	const char *protocol = sp_http_answer_header(&proxy->answer, "Upgrade");
	struct sp_request *request = proxy->request;

	if (!protocol || !protocol[0]) {
		bad_gateway(proxy, "switches to no protocol");
		return;
	}
	headers[count] = (struct sp_answer_header){"Upgrade", protocol};
	proxy->state = PROXY_TUNNEL;
	proxy->request = NULL;
	/* What follows the 101 is the client's when it is ready for it. */
	sp_duplex_hold(&proxy->upstream, true);
	sp_duplex_init(&proxy->client, proxy->api, &client_events, 0);
	proxy->pieces++;
	sp_duplex_upgrade(&proxy->client, request, headers, count + 1);
}

/* The head is there and the request may be answered. */
static void pass_answer(struct proxy *proxy)
{
	struct sp_answer_header headers[SP_HTTP_ANSWER_HEADERS_MAX + 1];
	struct sp_buf location;
	size_t count;

	sp_buf_init(&location, SP_PROXY_HEAD_MAX);
	count = choose_headers(proxy, &location, headers);
	sp_duplex_hold(&proxy->upstream, false);
	if (proxy->answer.state == SP_HTTP_SWITCHED)
		open_tunnel(proxy, headers, count);
	else
		open_stream(proxy, headers, count);
	sp_buf_done(&location);
}

/* ---- the socket into the sandbox ---- */

static void on_head(struct proxy *proxy)
{
	if (proxy->answerable) {
		pass_answer(proxy);
		return;
	}
	proxy->head_ready = true;
	sp_duplex_hold(&proxy->upstream, true);
	if (proxy->answer.status < 400)
		return;
	sp_request_body_drop(proxy->request);
	sp_request_body_resume(proxy->request);
}

static void end_if_done(struct proxy *proxy)
{
	if (proxy->state == PROXY_ANSWERING && proxy->answer.state == SP_HTTP_DONE)
		end_answer(proxy, true);
}

static void on_body(struct proxy *proxy, const char *data, size_t len)
{
	if (!sp_answer_stream_write(proxy->stream, data, len))
		sp_duplex_hold(&proxy->upstream, true);
	end_if_done(proxy);
}

static void on_bad_answer(struct proxy *proxy)
{
	if (proxy->state == PROXY_OPEN)
		bad_gateway(proxy, "gave no proper HTTP answer");
	else
		end_answer(proxy, false);
}

static size_t on_received(struct sp_duplex *upstream, const uint8_t *data, size_t len)
{
	struct proxy *proxy = of_upstream(upstream);
	enum sp_http_event event;
	const char *body = NULL;
	size_t body_len = 0;
	int64_t used;

	if (proxy->state == PROXY_TUNNEL)
		return pass(upstream, &proxy->client, data, len);
	used = sp_http_answer_feed(&proxy->answer, data, len, &event, &body, &body_len);
	if (used < 0)
		on_bad_answer(proxy);
	else if (event == SP_HTTP_GOT_HEAD)
		on_head(proxy);
	else if (event == SP_HTTP_GOT_BODY)
		on_body(proxy, body, body_len);
	else
		end_if_done(proxy);
	return used < 0 ? 0 : (size_t)used;
}

static void on_ended(struct sp_duplex *upstream)
{
	struct proxy *proxy = of_upstream(upstream);

	if (proxy->state == PROXY_TUNNEL)
		sp_duplex_drain(&proxy->client);
	else if (proxy->state == PROXY_ANSWERING)
		end_answer(proxy, sp_http_answer_eof(&proxy->answer) == 0);
	else if (proxy->state == PROXY_OPEN)
		bad_gateway(proxy, "closed the connection without an answer");
}

static void on_closed(struct sp_duplex *upstream)
{
	struct proxy *proxy = of_upstream(upstream);

	if (proxy->state == PROXY_TUNNEL)
		sp_duplex_drain(&proxy->client);
	else if (proxy->state == PROXY_ANSWERING)
		end_answer(proxy, false);
	else if (proxy->state == PROXY_OPEN)
		bad_gateway(proxy, "reset the connection");
}

static void on_drained(struct sp_duplex *upstream)
{
	struct proxy *proxy = of_upstream(upstream);

	if (proxy->state == PROXY_TUNNEL)
		sp_duplex_hold(&proxy->client, false);
	else if (proxy->request && !proxy->answerable)
		sp_request_body_resume(proxy->request);
}

static void on_freed(struct sp_duplex *upstream)
{
	piece_gone(of_upstream(upstream));
}

static const struct sp_duplex_events upstream_events = {
	.received = on_received,
	.ended = on_ended,
	.drained = on_drained,
	.closed = on_closed,
	.freed = on_freed,
};

/* An empty chunked body may have ended before there was a socket. */
static void end_chunks(struct proxy *proxy)
{
	if (proxy->chunked && proxy->answerable && proxy->state == PROXY_OPEN)
		sp_duplex_write(&proxy->upstream, "0\r\n\r\n", 5);
}

static void on_connected(void *arg, int fd, const struct sp_err *err)
{
	struct proxy *proxy = arg;
	int status = 0;

	proxy->connecting = NULL;
	sp_gate_leave(&proxy->ticket);
	if (err)
		proxy->err = *err;
	else if (fd >= proxy->api->fd_ceiling)
		status = sp_err_code(&proxy->err, SP_CODE_UNAVAILABLE, -EMFILE,
				     "too many connections");
	if (status < 0)
		sp_fd_discard(&fd);
	if (!err && status == 0) {
		sp_duplex_init(&proxy->upstream, proxy->api, &upstream_events, 0);
		status = sp_duplex_open(&proxy->upstream, fd, &proxy->err);
	}
	if (err || status < 0) {
		fail(proxy);
		return;
	}
	proxy->pieces++;
	proxy->state = PROXY_OPEN;
	sp_duplex_write(&proxy->upstream, proxy->head.data, proxy->head.len);
	sp_buf_done(&proxy->head);
	end_chunks(proxy);
	if (!proxy->answerable)
		sp_request_body_resume(proxy->request);
}

static int connect_now(struct proxy *proxy, struct sp_err *err)
{
	const struct sp_request *request = proxy->request;
	struct sp_file_place place = {.sandbox = request->os->id, .uid = -1, .gid = -1};
	int status =
		sp_port_connect(proxy->api->service, &request->caller, &place, request->match.port,
				on_connected, proxy, &proxy->connecting, err);

	if (status < 0) {
		proxy->connecting = NULL;
		sp_gate_leave(&proxy->ticket);
	}
	return status;
}

static void on_turn(struct sp_gate_ticket *ticket)
{
	struct proxy *proxy = SP_CONTAINER_OF(ticket, struct proxy, ticket);

	if (connect_now(proxy, &proxy->err) < 0)
		fail(proxy);
}

static void on_sandbox_ended(struct sp_gate_ticket *ticket)
{
	struct proxy *proxy = SP_CONTAINER_OF(ticket, struct proxy, ticket);

	(void)sp_err_code(&proxy->err, SP_CODE_NOT_FOUND, -ENOENT, "the sandbox ended");
	fail(proxy);
}

/* ---- the request's way in ---- */

/* As a chunk, if its length was not told. */
static void write_body(struct proxy *proxy, const char *data, size_t len)
{
	char line[CHUNK_LINE_MAX];
	int line_len = snprintf(line, sizeof(line), "%zx\r\n", len);

	if (proxy->chunked)
		sp_duplex_write(&proxy->upstream, line, (size_t)line_len);
	sp_duplex_write(&proxy->upstream, data, len);
	if (proxy->chunked)
		sp_duplex_write(&proxy->upstream, "\r\n", 2);
}

static size_t on_request_data(struct sp_request *request, const char *data, size_t len)
{
	struct proxy *proxy = request->sink_arg;

	if (proxy->state == PROXY_CONNECTING)
		return 0;
	if (proxy->state == PROXY_OVER || (proxy->head_ready && proxy->answer.status >= 400))
		return len;
	if (proxy->upstream.full)
		return 0;
	write_body(proxy, data, len);
	return len;
}

static void on_request_gone(struct sp_request *request)
{
	give_up(request->sink_arg);
}

static const struct sp_body_sink sink = {.data = on_request_data, .gone = on_request_gone};

/* The address of a TCP peer; NULL for any other. */
static const char *client_address(struct sp_request *request, char *text, socklen_t size)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(request->mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	const struct sockaddr *address = info ? info->client_addr : NULL;

	if (address && address->sa_family == AF_INET)
		return inet_ntop(AF_INET,
				 &((const struct sockaddr_in *)(const void *)address)->sin_addr,
				 text, size);
	if (address && address->sa_family == AF_INET6)
		return inet_ntop(AF_INET6,
				 &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr,
				 text, size);
	return NULL;
}

struct header_walk {
	struct sp_buf *head;
	const struct sp_proxy_request *request;
	int status;
};

static enum MHD_Result visit_header(void *cls, enum MHD_ValueKind kind, const char *name,
				    const char *value)
{
	struct header_walk *walk = cls;

	SP_UNUSED(kind);
	walk->status = sp_proxy_head_add(walk->head, walk->request, name, value ? value : "");
	return walk->status < 0 ? MHD_NO : MHD_YES;
}

static int64_t request_body(const struct sp_request *request)
{
	if (request->headers.chunked)
		return SP_PROXY_CHUNKED;
	if (request->headers.content_length)
		return (int64_t)request->headers.body_length;
	return SP_PROXY_NO_BODY;
}

static bool has_body(const struct sp_request *request)
{
	return request->headers.chunked || request->headers.body_length > 0;
}

static int write_head(struct proxy *proxy, struct sp_err *err)
{
	struct sp_request *request = proxy->request;
	const struct sp_guard *headers = &request->headers;
	const struct sp_connection *connection = request->connection;
	char address[INET6_ADDRSTRLEN];
	struct sp_proxy_request wanted = {
		.method = request->method,
		.path = request->match.tail,
		.query = connection->query,
		.host = headers->host,
		.client = client_address(request, address, sizeof(address)),
		.connection = headers->connection,
		.upgrade = proxy->upgrade ? headers->upgrade : NULL,
		.request_id = request->id,
		.body = request_body(request),
		.port = request->match.port,
		.secure = connection->listener->kind == SP_LISTENER_TLS,
	};
	struct header_walk walk = {.head = &proxy->head, .request = &wanted};
	int status = sp_proxy_head_begin(&proxy->head, &wanted);

	if (status == -EINVAL)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, status,
				   "the query has blanks or control bytes");
	if (status == 0) {
		(void)MHD_get_connection_values(request->mhd, MHD_HEADER_KIND, visit_header, &walk);
		status = walk.status;
	}
	if (status == 0)
		status = sp_proxy_head_end(&proxy->head, &wanted);
	return status < 0 ? sp_err_set(err, status, "pass on the head of a request") : 0;
}

/* The query was kept when the request line came, if there was memory for it. */
static bool query_lost(const struct sp_request *request)
{
	return !request->connection->query &&
	       request->connection->uri_length > strlen(request->path);
}

static struct proxy *prepare(struct sp_request *request, struct sp_err *err)
{
	struct proxy *proxy = calloc(1, sizeof(*proxy));

	if (!proxy || query_lost(request)) {
		free(proxy);
		(void)sp_err_set(err, -ENOMEM, "pass on a request");
		return NULL;
	}
	proxy->api = request->api;
	proxy->request = request;
	proxy->ticket.turn = on_turn;
	proxy->ticket.ended = on_sandbox_ended;
	proxy->chunked = request->headers.chunked;
	proxy->upgrade = !has_body(request) && request->headers.upgrade &&
			 sp_guard_has_token(request->headers.connection, "upgrade");
	sp_buf_init(&proxy->head, SP_PROXY_HEAD_MAX);
	sp_http_answer_init(&proxy->answer, strcmp(request->method, "HEAD") == 0, proxy->upgrade);
	if (write_head(proxy, err) == 0)
		return proxy;
	proxy->request = NULL;
	free_if_over(proxy);
	return NULL;
}

static int check(const struct sp_request *request, struct sp_err *err)
{
	if (request->match.port == 0)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "a port is a number from 1 to 65535");
	if (request->os->ended)
		return sp_err_code(err, SP_CODE_NOT_FOUND, -ENOENT, "the sandbox ended");
	if (request->os->state != SP_OS_RUNNING)
		return sp_err_code(err, SP_CODE_UNAVAILABLE, -EAGAIN, "the sandbox is %s",
				   sp_os_state_name(request->os->state));
	return 0;
}

/* NULL: err says why. */
static struct proxy *start(struct sp_request *request, struct sp_err *err)
{
	struct proxy *proxy = check(request, err) < 0 ? NULL : prepare(request, err);
	int status;

	if (!proxy)
		return NULL;
	status = sp_gate_enter(&proxy->ticket, request->os);
	if (status > 0)
		status = connect_now(proxy, err);
	else if (status < 0)
		(void)sp_err_set(err, status, "pass on a request");
	if (status < 0) {
		proxy->request = NULL;
		free_if_over(proxy);
		return NULL;
	}
	sp_os_used(request->api, request->os);
	return proxy;
}

int sp_proxy_begin(struct sp_request *request, struct sp_err *err)
{
	struct proxy *proxy;

	if (!has_body(request) || request->match.port == 0)
		return 0;
	proxy = start(request, err);
	if (!proxy)
		return err->status;
	sp_request_body_take(request, &sink, proxy);
	return 0;
}

/* The body is over. */
static void continue_request(struct proxy *proxy)
{
	struct sp_request *request = proxy->request;

	proxy->answerable = true;
	if (proxy->state == PROXY_OVER) {
		answer_failure(proxy);
		return;
	}
	end_chunks(proxy);
	if (proxy->head_ready)
		pass_answer(proxy);
	else if (sp_request_suspend(request, on_cancel, proxy) < 0)
		give_up(proxy);
}

static void reply_no_port(struct sp_request *request)
{
	static const char text[] = "port is required\n";
	struct sp_buf body;

	sp_buf_init(&body, sizeof(text));
	if (sp_buf_append(&body, text, sizeof(text) - 1) < 0)
		sp_buf_done(&body);
	sp_reply_text(request, MHD_HTTP_BAD_REQUEST, "text/plain; charset=utf-8", &body);
	sp_buf_done(&body);
}

static void handle(struct sp_request *request)
{
	struct proxy *proxy = request->sink_arg;
	struct sp_err err = {0};

	if (!proxy)
		proxy = start(request, &err);
	if (proxy)
		continue_request(proxy);
	else
		sp_reply_error(request, &err);
}

void sp_handle_os_proxy(struct sp_request *request)
{
	handle(request);
}

void sp_handle_execd_proxy(struct sp_request *request)
{
	if (request->match.port == 0)
		reply_no_port(request);
	else
		handle(request);
}
