/*
 * Where the daemon is, who we are, and one request with its answer.
 */
#ifndef SP_CLI_CLIENT_H
#define SP_CLI_CLIENT_H

#include "pool/base/buf.h"
#include "pool/base/err.h"
#include "supervisor/cli/remote.h"

#define SP_CLI_SOCKET_DEFAULT  "/run/sandpool/sandpool.sock"
#define SP_CLI_CREDENTIAL_MAX  1024u /* bytes of an API key or token */
#define SP_CLI_REQUEST_MAX     (1u << 20)
#define SP_CLI_CALL_TIMEOUT_MS (30 * SP_MS_PER_S)

#define SP_CLI_CONNECT_MS (10 * SP_MS_PER_S)

struct sp_cli_endpoint {
	bool tcp;
	bool tls;       /* only with tcp */
	char path[108]; /* of the Unix socket */
	char host[256];
	char port[6];
};

struct sp_cli_client {
	struct sp_cli_endpoint endpoint;
	char api_key[SP_CLI_CREDENTIAL_MAX + 1]; /* "" = none */
	char token[SP_CLI_CREDENTIAL_MAX + 1];   /* "" = none */
	const struct sp_cli_remote *remote;      /* NULL: no TLS in this program */
	const char *tls_ca_file;                 /* NULL = the system's */
	int64_t connect_ms;                      /* 0 = SP_CLI_CONNECT_MS */
};

/* "/path", "unix:///path", "tcp://host:port", "tls://host:port", "tcp://[v6]:port". -EINVAL,
 * -EOPNOTSUPP (another scheme). */
int sp_cli_endpoint_parse(const char *text, struct sp_cli_endpoint *ret_endpoint,
			  struct sp_err *err);

/* First line of a file into `credential`. "" is refused. */
int sp_cli_credential_read(const char *path, char *credential, struct sp_err *err);
/* The same from a text; `what` names it in messages. */
int sp_cli_credential_set(const char *what, const char *text, char *credential, struct sp_err *err);

/* A connected blocking socket with a number above 2. The message says what to do about it. */
int sp_cli_client_connect(const struct sp_cli_client *client, int *ret_fd, struct sp_err *err);

/* Append a request's head. */
int sp_cli_client_head(const struct sp_cli_client *client, const char *method, const char *target,
		       bool upgrade, size_t body_len, struct sp_buf *out, struct sp_err *err);

/*
 * One request on a connection of its own. 0 for any 2xx with the body in *ret_body (the caller's,
 * to be emptied with sp_buf_done() whatever the outcome; initialised here); -EREMOTEIO with the
 * daemon's code and message; other negative errno when there was no answer.
 * timeout_ms bounds each wait for bytes; < 0: for ever.
 */
int sp_cli_client_call(const struct sp_cli_client *client, const char *method, const char *target,
		       const struct sp_buf *body, int64_t timeout_ms, struct sp_buf *ret_body,
		       struct sp_err *err);

/* Read one response to its end. timeout_ms as above. */
struct sp_cli_http_reader;
int sp_cli_client_receive(int fd, struct sp_cli_http_reader *reader, int64_t timeout_ms,
			  struct sp_err *err);

/* Turn an error body {"code", "message"} into err. Returns -EREMOTEIO. */
int sp_cli_client_refusal(int http_status, const struct sp_buf *body, struct sp_err *err);

/* prefix + encoded segment + suffix. -EINVAL for an empty segment. */
int sp_cli_target(struct sp_buf *out, const char *prefix, const char *segment, const char *suffix,
		  struct sp_err *err);

#endif
