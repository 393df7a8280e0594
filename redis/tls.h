/*
 * TLS for one connection, without a socket: bytes go in and out of memory, so that the stream stays
 * libuv's. Certificates are checked against the CA and the expected server name, always.
 */
#ifndef SP_REDIS_TLS_H
#define SP_REDIS_TLS_H

#include "pool/base/buf.h"
#include "pool/base/err.h"

#include <sys/types.h>

#define SP_REDIS_TLS_FILE_MAX   (1u << 20)          /* CA bundle, certificate, key: bytes each */
#define SP_REDIS_TLS_RECORD_MAX 16384u              /* plain bytes of one read */
#define SP_REDIS_TLS_OUT_MAX    (64u * 1024 * 1024) /* encrypted bytes that wait for the socket */

struct sp_redis_tls_credentials;
struct sp_redis_tls;

/* Reads files, so not on the loop. NULL ca_file: the system's CAs. cert_file and key_file go
 * together, NULL: none. -EINVAL, -ENOMEM or the errno of a file, which is named. */
int sp_redis_tls_credentials_load(const char *ca_file, const char *cert_file, const char *key_file,
				  struct sp_redis_tls_credentials **ret, struct sp_err *err);
/* Counted; threads may share them. */
struct sp_redis_tls_credentials *
sp_redis_tls_credentials_ref(struct sp_redis_tls_credentials *credentials);
void sp_redis_tls_credentials_unref(struct sp_redis_tls_credentials *credentials);

/* Takes a reference. server_name is copied: a host name (then also sent as SNI) or an address. */
int sp_redis_tls_new(struct sp_redis_tls_credentials *credentials, const char *server_name,
		     struct sp_redis_tls **ret, struct sp_err *err);
void sp_redis_tls_free(struct sp_redis_tls *tls);

/* What came from the socket; borrowed until read or handshake has said -EAGAIN. */
void sp_redis_tls_feed(struct sp_redis_tls *tls, const char *data, size_t len);
/* 0: done, -EAGAIN: needs more from the socket, -EPROTO or -EACCES (certificate): over. What is to
 * be sent is in out. */
int sp_redis_tls_handshake(struct sp_redis_tls *tls, struct sp_err *err);
/* Plain bytes (> 0), 0 at the end, -EAGAIN, -EPROTO. */
ssize_t sp_redis_tls_read(struct sp_redis_tls *tls, char *data, size_t size, struct sp_err *err);
/* Encrypts all of it into out. 0, -EPROTO, -ENOMEM. */
int sp_redis_tls_write(struct sp_redis_tls *tls, const char *data, size_t len, struct sp_err *err);
/* Encrypted bytes that wait for the socket; the caller consumes or takes them. */
struct sp_buf *sp_redis_tls_out(struct sp_redis_tls *tls);

#endif
