/*
 * Connecting, credentials, calls. A call is one connection: the daemon's accept costs less than
 * keeping state here.
 */
#include "supervisor/cli/client.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <jansson.h>

#include "pool/base/fd.h"
#include "supervisor/cli/http.h"

#define HEAD_MAX   (16u << 10)
#define REASON_MAX 200
#define NAME_CHARACTERS              \
	"abcdefghijklmnopqrstuvwxyz" \
	"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
#define READ_SIZE      (64u << 10)
#define DEAD_PEER_MS   15000u /* TCP: unacknowledged for this long = gone */
#define KEEPALIVE_S    5
#define STDERR_HIGHEST 2

static int parse_tcp(const char *text, bool tls, struct sp_cli_endpoint *endpoint,
		     struct sp_err *err)
{
	const char *colon = strrchr(text, ':');
	const char *host = text;
	size_t host_len = colon ? (size_t)(colon - text) : 0;
	size_t port_len = colon ? strlen(colon + 1) : 0;

	if (host_len >= 2 && host[0] == '[' && host[host_len - 1] == ']') {
		host++;
		host_len -= 2;
	} else if (memchr(host, ':', host_len)) {
		host_len = 0; /* an IPv6 address without brackets */
	}
	if (host_len == 0 || host_len >= sizeof(endpoint->host) || port_len == 0 ||
	    port_len >= sizeof(endpoint->port) || strspn(colon + 1, "0123456789") != port_len)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "address '%s%s' is not %sHOST:PORT", tls ? "tls://" : "tcp://",
				   text, tls ? "tls://" : "tcp://");
	endpoint->tcp = true;
	endpoint->tls = tls;
	memcpy(endpoint->host, host, host_len);
	endpoint->host[host_len] = '\0';
	memcpy(endpoint->port, colon + 1, port_len + 1);
	return 0;
}

static int parse_unix(const char *path, struct sp_cli_endpoint *endpoint, struct sp_err *err)
{
	size_t len = strlen(path);

	if (len == 0)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL, "socket path is empty");
	if (len >= sizeof(endpoint->path))
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "socket path '%s' is longer than %zu bytes", path,
				   sizeof(endpoint->path) - 1);
	memcpy(endpoint->path, path, len + 1);
	return 0;
}

int sp_cli_endpoint_parse(const char *text, struct sp_cli_endpoint *ret_endpoint,
			  struct sp_err *err)
{
	struct sp_cli_endpoint endpoint = {.tcp = false};
	const char *scheme_end = strstr(text, "://");
	int status;

	if (strncmp(text, "tcp://", 6) == 0 || strncmp(text, "tls://", 6) == 0)
		status = parse_tcp(text + 6, text[1] == 'l', &endpoint, err);
	else if (strncmp(text, "unix://", 7) == 0)
		status = parse_unix(text + 7, &endpoint, err);
	else if (scheme_end && strchr(text, '/') == scheme_end + 1)
		status = sp_err_code(err, SP_CODE_UNSUPPORTED, -EOPNOTSUPP,
				     "address '%s' is none of unix:///PATH, tcp://HOST:PORT and "
				     "tls://HOST:PORT",
				     text);
	else
		status = parse_unix(text, &endpoint, err);
	if (status == 0)
		*ret_endpoint = endpoint;
	return status;
}

int sp_cli_credential_set(const char *what, const char *text, char *credential, struct sp_err *err)
{
	size_t len = strcspn(text, "\r\n");

	if (len == 0)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL, "%s is empty", what);
	if (len > SP_CLI_CREDENTIAL_MAX)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "%s is longer than %u bytes", what, SP_CLI_CREDENTIAL_MAX);
	for (size_t i = 0; i < len; i++)
		if (text[i] <= 0x20 || text[i] > 0x7e)
			return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
					   "%s has a byte that is not printable ASCII", what);
	memcpy(credential, text, len);
	credential[len] = '\0';
	return 0;
}

int sp_cli_credential_read(const char *path, char *credential, struct sp_err *err)
{
	char text[SP_CLI_CREDENTIAL_MAX + 3];
	SP_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	char what[PATH_MAX + 16];
	ssize_t len;

	if (fd < 0)
		return sp_err_set(err, -errno, "open credential file '%s'", path);
	len = sp_read_all(fd, text, sizeof(text) - 1);
	if (len < 0)
		return sp_err_set(err, (int)len, "read credential file '%s'", path);
	text[len] = '\0';
	(void)snprintf(what, sizeof(what), "credential file '%s'", path);
	return sp_cli_credential_set(what, text, credential, err);
}

static int connect_unix(const char *path, int *ret_fd, struct sp_err *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	SP_AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const char *hint = "";

	if (fd < 0)
		return sp_err_set(err, -errno, "make a socket");
	memcpy(address.sun_path, path, strlen(path) + 1);
	if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0) {
		int status = -errno;

		if (status == -ENOENT || status == -ECONNREFUSED)
			hint = " (is sandpoold running? --socket or SANDPOOL_SOCKET name another)";
		else if (status == -EACCES)
			hint = " (root and members of the daemon's admin_group may)";
		return sp_err_code(err, status == -EACCES ? SP_CODE_FORBIDDEN : SP_CODE_UNAVAILABLE,
				   status, "cannot connect to sandpoold at '%s': %s%s", path,
				   strerrordesc_np(-status), hint);
	}
	*ret_fd = sp_take_fd(&fd);
	return 0;
}

/* A host that vanished must not leave `exec` waiting for ever. */
static void watch_peer(int fd)
{
	int on = 1;
	int idle = KEEPALIVE_S;
	unsigned int dead_ms = DEAD_PEER_MS;

	/* Best effort: without them only the detection of a lost host is slower. */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof(idle));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &dead_ms, sizeof(dead_ms));
}

/* connect(2) with a deadline: a host that drops packets would hold us for minutes. */
static int connect_within(int fd, const struct addrinfo *at, int64_t timeout_ms)
{
	struct pollfd ready = {.fd = fd, .events = POLLOUT};
	socklen_t size = sizeof(int);
	int failure = 0;
	int count;

	if (connect(fd, at->ai_addr, at->ai_addrlen) == 0)
		return 0;
	if (errno != EINPROGRESS)
		return -errno;
	do {
		count = poll(&ready, 1, (int)SP_MIN(timeout_ms, INT_MAX));
	} while (count < 0 && errno == EINTR);
	if (count == 0)
		return -ETIMEDOUT;
	if (count < 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size) < 0)
		return -errno;
	return -failure;
}

static int connect_address(const struct addrinfo *at, int64_t timeout_ms, int *ret_fd)
{
	SP_AUTO_CLOSE int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int status;

	if (fd < 0)
		return -errno;
	watch_peer(fd);
	status = connect_within(fd, at, timeout_ms);
	if (status == 0 && fcntl(fd, F_SETFL, 0) < 0) /* blocking from here on */
		status = -errno;
	if (status == 0)
		*ret_fd = sp_take_fd(&fd);
	return status;
}

static int connect_tcp(const struct sp_cli_client *client, int *ret_fd, struct sp_err *err)
{
	const struct sp_cli_endpoint *endpoint = &client->endpoint;
	int64_t timeout_ms = client->connect_ms ? client->connect_ms : SP_CLI_CONNECT_MS;
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	struct addrinfo *found = NULL;
	int status = /* ban-ok: no loop here that it could block */
		getaddrinfo(endpoint->host, endpoint->port, &hints, &found);

	if (status != 0)
		return sp_err_code(err, SP_CODE_UNAVAILABLE, -EHOSTUNREACH, "look up '%s': %s",
				   endpoint->host, gai_strerror(status));
	status = -EHOSTUNREACH;
	for (struct addrinfo *at = found; at && status < 0; at = at->ai_next)
		status = connect_address(at, timeout_ms, ret_fd);
	freeaddrinfo(found);
	if (status < 0)
		return sp_err_code(err, SP_CODE_UNAVAILABLE, status,
				   "cannot connect to sandpoold at '%s://%s:%s': %s",
				   endpoint->tls ? "tls" : "tcp", endpoint->host, endpoint->port,
				   strerrordesc_np(-status));
	if (!endpoint->tls)
		return 0;
	if (!client->remote)
		status = sp_err_code(err, SP_CODE_UNSUPPORTED, -EOPNOTSUPP,
				     "'tls://%s' needs sandpool-remote", endpoint->host);
	else
		status = client->remote->tls_open(ret_fd, endpoint->host, client->tls_ca_file,
						  timeout_ms, err);
	if (status < 0)
		sp_fd_close(ret_fd);
	return status;
}

int sp_cli_client_connect(const struct sp_cli_client *client, int *ret_fd, struct sp_err *err)
{
	int fd = -1;
	int status = client->endpoint.tcp ? connect_tcp(client, &fd, err)
					  : connect_unix(client->endpoint.path, &fd, err);

	if (status < 0)
		return status;
	/* Started with a closed stdin, stdout or stderr: output must not go to the daemon. */
	if (fd <= STDERR_HIGHEST) {
		int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_HIGHEST + 1);

		status = -errno;
		sp_fd_close(&fd);
		if (moved < 0)
			return sp_err_set(err, status, "move a socket");
		fd = moved;
	}
	*ret_fd = fd;
	return 0;
}

int sp_cli_client_head(const struct sp_cli_client *client, const char *method, const char *target,
		       bool upgrade, size_t body_len, struct sp_buf *out, struct sp_err *err)
{
	struct sp_cli_http_request request = {
		.method = method,
		.target = target,
		.host = client->endpoint.tcp ? client->endpoint.host : "localhost",
		.api_key = client->api_key[0] ? client->api_key : NULL,
		.token = client->token[0] ? client->token : NULL,
		.upgrade = upgrade,
		.body_len = body_len,
	};
	int status = sp_cli_http_write_head(&request, out);

	return status < 0 ? sp_err_set(err, status, "write the request") : 0;
}

static int send_all(int fd, const void *data, size_t len, struct sp_err *err)
{
	const char *at = data;

	while (len > 0) {
		ssize_t sent = send(fd, at, len, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		/* It may have answered and closed before reading everything: read the answer. */
		if (sent < 0 && (errno == EPIPE || errno == ECONNRESET))
			return 0;
		if (sent < 0)
			return sp_err_set(err, -errno, "send the request");
		at += sent;
		len -= (size_t)sent;
	}
	return 0;
}

static int wait_readable(int fd, int64_t timeout_ms, struct sp_err *err)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	int count;

	do {
		count = poll(&ready, 1, (int)SP_MIN(timeout_ms, INT_MAX));
	} while (count < 0 && errno == EINTR);
	if (count < 0)
		return sp_err_set(err, -errno, "wait for the daemon");
	if (count == 0)
		return sp_err_code(err, SP_CODE_UNAVAILABLE, -ETIMEDOUT,
				   "the daemon did not answer within %lld ms",
				   (long long)timeout_ms);
	return 0;
}

int sp_cli_client_receive(int fd, struct sp_cli_http_reader *reader, int64_t timeout_ms,
			  struct sp_err *err)
{
	char data[READ_SIZE];

	while (reader->state != SP_CLI_HTTP_DONE) {
		int status = timeout_ms < 0 ? 0 : wait_readable(fd, timeout_ms, err);
		int64_t used;
		ssize_t got;

		if (status < 0)
			return status;
		got = recv(fd, data, sizeof(data), 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && errno != ECONNRESET)
			return sp_err_set(err, -errno, "read the answer");
		if (got <= 0)
			return sp_cli_http_reader_eof(reader, err);
		used = sp_cli_http_reader_feed(reader, data, (size_t)got, err);
		if (used < 0)
			return (int)used;
	}
	return 0;
}

/* Codes of a newer daemon that we do not know keep their HTTP meaning. */
static enum sp_code code_of_status(int http_status)
{
	switch (http_status) {
	case 401:
		return SP_CODE_UNAUTHORIZED;
	case 403:
		return SP_CODE_FORBIDDEN;
	case 404:
		return SP_CODE_NOT_FOUND;
	case 409:
		return SP_CODE_CONFLICT;
	case 429:
		return SP_CODE_TOO_MANY;
	case 503:
		return SP_CODE_UNAVAILABLE;
	default:
		return http_status >= 400 && http_status < 500 ? SP_CODE_INVALID_ARGUMENT
							       : SP_CODE_INTERNAL;
	}
}

/* The first line of what is no JSON (/readyz), as far as it can be shown; no page of a web server.
 */
static int plain_reason(const struct sp_buf *body)
{
	const char *text = sp_buf_text(body);
	int len = 0;

	while ((size_t)len < body->len && len < REASON_MAX && text[len] >= ' ' && text[len] <= '~')
		len++;
	return len > 0 && text[0] != '<' && text[0] != '{' ? len : 0;
}

int sp_cli_client_refusal(int http_status, const struct sp_buf *body, struct sp_err *err)
{
	json_t *root = json_loadb(sp_buf_text(body), body->len, 0, NULL);
	const char *code = json_string_value(json_object_get(root, "code"));
	const char *message = json_string_value(json_object_get(root, "message"));
	enum sp_code known = code ? sp_code_from_name(code) : SP_CODE_NONE;

	if (!message)
		(void)sp_err_code(err, code_of_status(http_status), -EREMOTEIO,
				  "the daemon answered with HTTP status %d%s%.*s", http_status,
				  plain_reason(body) > 0 ? ": " : "", plain_reason(body),
				  sp_buf_text(body));
	else if (known != SP_CODE_NONE)
		(void)sp_err_code(err, known, -EREMOTEIO, "%s", message);
	else
		(void)sp_err_code(err, code_of_status(http_status), -EREMOTEIO, "%s (%s)", message,
				  code ? code : "no code");
	json_decref(root);
	return -EREMOTEIO;
}

int sp_cli_client_call(const struct sp_cli_client *client, const char *method, const char *target,
		       const struct sp_buf *body, int64_t timeout_ms, struct sp_buf *ret_body,
		       struct sp_err *err)
{
	struct sp_cli_http_reader reader;
	SP_AUTO_CLOSE int fd = -1;
	struct sp_buf head;
	int status;

	sp_cli_http_reader_init(&reader);
	sp_buf_init(&head, HEAD_MAX);
	sp_buf_init(ret_body, SP_CLI_HTTP_BODY_MAX);
	status =
		sp_cli_client_head(client, method, target, false, body ? body->len : 0, &head, err);
	if (status == 0)
		status = sp_cli_client_connect(client, &fd, err);
	if (status == 0)
		status = send_all(fd, head.data, head.len, err);
	if (status == 0 && body)
		status = send_all(fd, body->data, body->len, err);
	if (status == 0)
		status = sp_cli_client_receive(fd, &reader, timeout_ms, err);
	if (status == 0 && (reader.status < 200 || reader.status > 299))
		status = sp_cli_client_refusal(reader.status, &reader.body, err);
	if (status == 0) {
		*ret_body = reader.body;
		sp_buf_init(&reader.body, SP_CLI_HTTP_BODY_MAX);
	}
	sp_buf_done(&head);
	sp_cli_http_reader_done(&reader);
	return status;
}

static const char *named_by(const char *prefix)
{
	if (strstr(prefix, "/pools/"))
		return "name of a pool";
	return strstr(prefix, "/hosts/") ? "name of a host" : "id of a sandbox";
}

int sp_cli_target(struct sp_buf *out, const char *prefix, const char *segment, const char *suffix,
		  struct sp_err *err)
{
	int status;

	/* What had to be encoded is in no name and in no id; as a path it would be refused unread.
	 */
	if (segment[0] == '\0' || segment[strspn(segment, NAME_CHARACTERS)] != '\0')
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL, "'%.64s' is not the %s",
				   segment, named_by(prefix));
	status = sp_buf_append(out, prefix, strlen(prefix));
	if (status == 0)
		status = sp_cli_http_append_segment(out, segment);
	if (status == 0)
		status = sp_buf_append(out, suffix, strlen(suffix));
	return status < 0 ? sp_err_set(err, status, "write the request") : 0;
}
