/*
 * Refuses what libmicrohttpd 0.9.75 lets pass and a proxy may read differently (request smuggling),
 * and what is larger than we serve. Pure: judges names and values, knows nothing of connections.
 */
#ifndef SP_API_GUARD_H
#define SP_API_GUARD_H

#include "pool/base/err.h"

/* Bytes of the request target, query included: room for one path of a file, most of it escaped. */
#define SP_API_URI_MAX          (8u * 1024)
#define SP_API_HEADERS_MAX      64u
#define SP_API_HEADER_BYTES_MAX (16u * 1024)         /* request line and headers */
#define SP_API_BODY_MAX         (1u << 20)           /* of a body that is collected, … */
#define SP_API_STREAM_BODY_MAX  (UINT64_C(64) << 30) /* … and of one that is taken as it comes */

struct sp_guard {
	size_t header_count;
	size_t header_bytes; /* what the headers seen so far take as `NAME: VALUE\r\n` */

	/* Those that somebody here looks at; NULL if absent. Borrowed from the request. */
	const char *host;
	const char *content_length;
	const char *transfer_encoding;
	const char *connection;
	const char *upgrade;
	const char *expect;
	const char *authorization;
	const char *api_key;
	const char *token;
	const char *request_id;
	const char *os_api_key;  /* OPEN-SANDBOX-API-KEY */
	const char *execd_token; /* X-EXECD-ACCESS-TOKEN */

	/* Filled by sp_guard_request(). */
	uint64_t body_length;
	bool chunked;
};

struct sp_guard_request {
	const char *method;
	const char *path;    /* without the query, as received */
	size_t uri_length;   /* of path and query */
	const char *version; /* "HTTP/1.1" */
	size_t bytes;        /* that the server consumed for request line and headers */
};

/* One header, in order of arrival. -EINVAL (INVALID_ARGUMENT), -E2BIG (PAYLOAD_TOO_LARGE). */
int sp_guard_header(struct sp_guard *guard, const char *name, size_t name_len, const char *value,
		    size_t value_len, struct sp_err *err);

/* After the last header. The same errors. Whatever is refused here or above must also end the
 * connection: nobody knows where the next request begins. */
int sp_guard_request(struct sp_guard *guard, const struct sp_guard_request *request,
		     struct sp_err *err);

/* Is `token` one of the comma separated words of a header's value (case ignored)? NULL has none. */
bool sp_guard_has_token(const char *value, const char *token);

#endif
