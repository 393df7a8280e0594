/*
 * What the reverse proxy passes on of a request's and of an answer's head. Pure.
 *
 * Both heads are written anew from names and values that were checked before, so nothing that could
 * be read in two ways travels through. Not passed on: what is for one connection only (RFC 9110,
 * 7.6.1: the fixed list and what Connection names), what frames the body (it is framed anew), every
 * credential, ours or a browser's for this host, and what earlier proxies claim about the client.
 */
#ifndef SP_API_PROXY_HEAD_H
#define SP_API_PROXY_HEAD_H

#include "pool/base/buf.h"

#define SP_PROXY_NO_BODY  (-1)
#define SP_PROXY_CHUNKED  (-2)
#define SP_PROXY_HEAD_MAX (64u * 1024)

/* All borrowed. */
struct sp_proxy_request {
	const char *method;
	const char *path;       /* "" is "/" */
	const char *query;      /* NULL: none */
	const char *host;       /* that the client asked for; NULL: HTTP/1.0 without one */
	const char *client;     /* its address; NULL: a Unix socket */
	const char *connection; /* value of that header, or NULL */
	const char *upgrade;    /* the protocol that it asks for, or NULL */
	const char *request_id;
	int64_t body; /* its length, NO_BODY or CHUNKED */
	uint16_t port;
	bool secure; /* it came by TLS */
};

/* In this order. 0, -ENOMEM, -E2BIG; -EINVAL: the query has bytes that no client sends. */
int sp_proxy_head_begin(struct sp_buf *head, const struct sp_proxy_request *request);
/* One header of the client's; appended if it is passed on. */
int sp_proxy_head_add(struct sp_buf *head, const struct sp_proxy_request *request, const char *name,
		      const char *value);
int sp_proxy_head_end(struct sp_buf *head, const struct sp_proxy_request *request);

/* Is a header of the answer passed on? connection: the value of its Connection header, or NULL. */
bool sp_proxy_passes_back(const char *name, const char *connection);
/* Keep a redirect to the server's root below where the proxy serves it: prefix + value for a value
 * that is a path. 1: *out has it; 0: as it is; -ENOMEM. */
int sp_proxy_location(struct sp_buf *out, const char *prefix, size_t prefix_len, const char *value);

#endif
