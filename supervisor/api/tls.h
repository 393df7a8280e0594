/*
 * TLS in front of the plain server: accepts, decrypts, and hands libmicrohttpd one end of a socket
 * pair per connection.
 */
#ifndef SP_API_TLS_H
#define SP_API_TLS_H

#include "pool/base/err.h"

struct sp_listener;
struct sp_tls;

#define SP_TLS_HANDSHAKE_MS (10 * SP_MS_PER_S)
#define SP_TLS_LINGER_MS    (5 * SP_MS_PER_S) /* to get the last of an answer out */

/* With the configuration's certificate and key; those of a later one are taken for the connections
 * that come after it. -EINVAL with GnuTLS's reason. */
int sp_tls_new(struct sp_listener *listener, struct sp_tls **ret_tls, struct sp_err *err);
/* Accept on `fd` (taken). */
int sp_tls_serve(struct sp_tls *tls, int fd, struct sp_err *err);
/* Once a second: close those whose time is up, accept again after a lack of descriptors. */
void sp_tls_sweep(struct sp_tls *tls, int64_t now_ms);
/* Stop accepting. */
void sp_tls_quiet(struct sp_tls *tls);
/* Write what can be written at once and end every connection. Its handles are closed later, counted
 * by the api. */
void sp_tls_close(struct sp_tls *tls);
/* After the last handle of the api is closed. NULL is ignored. */
void sp_tls_free(struct sp_tls *tls);

#endif
