/*
 * GnuTLS between two pieces of memory. Its pull function takes from what sp_redis_tls_feed() was
 * given and says EAGAIN when that is used up; its push function appends to `out`, which the owner
 * writes to the socket. So GnuTLS never blocks, and never sees a descriptor.
 *
 * The peer is trusted once its chain leads to the CA and its name is the expected one (GnuTLS does
 * both inside of the handshake); before that nothing of ours is sent but the handshake.
 */
#include "redis/tls.h"

#include "redis/file.h"

#include <arpa/inet.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TLS_VERSIONS "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

struct sp_redis_tls_credentials {
	atomic_uint references;
	gnutls_certificate_credentials_t gnutls;
	gnutls_priority_t priority;
};

struct sp_redis_tls {
	struct sp_redis_tls_credentials *credentials;
	gnutls_session_t session;
	const char *in; /* borrowed */
	size_t in_len;
	struct sp_buf out;
};

/* ---- credentials ---- */

static int load_ca(struct sp_redis_tls_credentials *credentials, const char *path,
		   struct sp_err *err)
{
	struct sp_buf text;
	gnutls_datum_t datum;
	int result;

	if (!path) {
		result = gnutls_certificate_set_x509_system_trust(credentials->gnutls);
		if (result <= 0)
			return sp_err_code(err, SP_CODE_CONFIG_INVALID, -EINVAL,
					   "the system has no trusted CAs; name a ca_file");
		return 0;
	}
	sp_buf_init(&text, SP_REDIS_TLS_FILE_MAX);
	result = sp_redis_file_read("CA file", path, &text, err);
	if (result == 0) {
		datum = (gnutls_datum_t){(unsigned char *)text.data, (unsigned int)text.len};
		result = gnutls_certificate_set_x509_trust_mem(credentials->gnutls, &datum,
							       GNUTLS_X509_FMT_PEM);
		if (result <= 0)
			result = sp_err_code(err, SP_CODE_CONFIG_INVALID, -EINVAL,
					     "CA file '%s' holds no certificate in PEM form", path);
		else
			result = 0;
	}
	sp_buf_done(&text);
	return result;
}

static int load_own(struct sp_redis_tls_credentials *credentials, const char *cert_file,
		    const char *key_file, struct sp_err *err)
{
	struct sp_buf cert;
	struct sp_buf key;
	int result;

	if (!cert_file)
		return 0;
	sp_buf_init(&cert, SP_REDIS_TLS_FILE_MAX);
	sp_buf_init(&key, SP_REDIS_TLS_FILE_MAX);
	result = sp_redis_file_read("certificate file", cert_file, &cert, err);
	if (result == 0)
		result = sp_redis_file_read("key file", key_file, &key, err);
	if (result == 0) {
		gnutls_datum_t cert_datum = {(unsigned char *)cert.data, (unsigned int)cert.len};
		gnutls_datum_t key_datum = {(unsigned char *)key.data, (unsigned int)key.len};

		result = gnutls_certificate_set_x509_key_mem(credentials->gnutls, &cert_datum,
							     &key_datum, GNUTLS_X509_FMT_PEM);
		if (result < 0)
			result = sp_err_code(err, SP_CODE_CONFIG_INVALID, -EINVAL,
					     "certificate file '%s' with key file '%s': %s",
					     cert_file, key_file, gnutls_strerror(result));
	}
	sp_buf_done(&cert);
	sp_redis_buf_wipe(&key);
	return result;
}

int sp_redis_tls_credentials_load(const char *ca_file, const char *cert_file, const char *key_file,
				  struct sp_redis_tls_credentials **ret, struct sp_err *err)
{
	struct sp_redis_tls_credentials *credentials = calloc(1, sizeof(*credentials));
	int status;

	if (!credentials)
		return sp_err_set(err, -ENOMEM, "set up TLS");
	atomic_init(&credentials->references, 1);
	if (gnutls_certificate_allocate_credentials(&credentials->gnutls) < 0 ||
	    gnutls_priority_init(&credentials->priority, TLS_VERSIONS, NULL) < 0)
		status = sp_err_set(err, -ENOMEM, "set up TLS");
	else
		status = load_ca(credentials, ca_file, err);
	if (status == 0)
		status = load_own(credentials, cert_file, key_file, err);
	if (status < 0) {
		sp_redis_tls_credentials_unref(credentials);
		return status;
	}
	*ret = credentials;
	return 0;
}

struct sp_redis_tls_credentials *
sp_redis_tls_credentials_ref(struct sp_redis_tls_credentials *credentials)
{
	atomic_fetch_add(&credentials->references, 1);
	return credentials;
}

void sp_redis_tls_credentials_unref(struct sp_redis_tls_credentials *credentials)
{
	if (!credentials || atomic_fetch_sub(&credentials->references, 1) > 1)
		return;
	if (credentials->priority)
		gnutls_priority_deinit(credentials->priority);
	if (credentials->gnutls)
		gnutls_certificate_free_credentials(credentials->gnutls);
	free(credentials);
}

/* ---- a session ---- */

static ssize_t push(gnutls_transport_ptr_t transport, const void *data, size_t len)
{
	struct sp_redis_tls *tls = transport;

	if (sp_buf_append(&tls->out, data, len) < 0) {
		gnutls_transport_set_errno(tls->session, ENOMEM);
		return -1;
	}
	return (ssize_t)len;
}

static ssize_t pull(gnutls_transport_ptr_t transport, void *data, size_t size)
{
	struct sp_redis_tls *tls = transport;
	size_t len = SP_MIN(size, tls->in_len);

	if (len == 0) {
		gnutls_transport_set_errno(tls->session, EAGAIN);
		return -1;
	}
	memcpy(data, tls->in, len);
	tls->in += len;
	tls->in_len -= len;
	return (ssize_t)len;
}

/* Asked before a pull by what would otherwise poll a descriptor. */
static int pull_timeout(gnutls_transport_ptr_t transport, unsigned int ms)
{
	const struct sp_redis_tls *tls = transport;

	SP_UNUSED(ms);
	return tls->in_len > 0;
}

static bool is_address(const char *name)
{
	struct in6_addr address;

	return inet_pton(AF_INET, name, &address) == 1 || inet_pton(AF_INET6, name, &address) == 1;
}

static int init_session(struct sp_redis_tls *tls, const char *server_name)
{
	int result = gnutls_init(&tls->session, GNUTLS_CLIENT | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL);

	if (result < 0)
		return result;
	result = gnutls_priority_set(tls->session, tls->credentials->priority);
	if (result >= 0)
		result = gnutls_credentials_set(tls->session, GNUTLS_CRD_CERTIFICATE,
						tls->credentials->gnutls);
	/* RFC 6066: no addresses in SNI. */
	if (result >= 0 && !is_address(server_name))
		result = gnutls_server_name_set(tls->session, GNUTLS_NAME_DNS, server_name,
						strlen(server_name));
	if (result < 0)
		return result;
	gnutls_session_set_verify_cert(tls->session, server_name, 0);
	gnutls_transport_set_ptr(tls->session, tls);
	gnutls_transport_set_push_function(tls->session, push);
	gnutls_transport_set_pull_function(tls->session, pull);
	gnutls_transport_set_pull_timeout_function(tls->session, pull_timeout);
	return 0;
}

int sp_redis_tls_new(struct sp_redis_tls_credentials *credentials, const char *server_name,
		     struct sp_redis_tls **ret, struct sp_err *err)
{
	struct sp_redis_tls *tls = calloc(1, sizeof(*tls));
	int result;

	if (!tls)
		return sp_err_set(err, -ENOMEM, "set up TLS");
	tls->credentials = sp_redis_tls_credentials_ref(credentials);
	sp_buf_init(&tls->out, SP_REDIS_TLS_OUT_MAX);
	result = init_session(tls, server_name);
	if (result < 0) {
		sp_redis_tls_free(tls);
		return sp_err_code(err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -ENOMEM,
				   "set up TLS for '%s': %s", server_name, gnutls_strerror(result));
	}
	*ret = tls;
	return 0;
}

void sp_redis_tls_free(struct sp_redis_tls *tls)
{
	if (!tls)
		return;
	if (tls->session)
		gnutls_deinit(tls->session);
	sp_buf_done(&tls->out);
	sp_redis_tls_credentials_unref(tls->credentials);
	free(tls);
}

void sp_redis_tls_feed(struct sp_redis_tls *tls, const char *data, size_t len)
{
	tls->in = data;
	tls->in_len = len;
}

static bool again(ssize_t result)
{
	return result == GNUTLS_E_AGAIN || result == GNUTLS_E_INTERRUPTED;
}

static int refused_certificate(struct sp_redis_tls *tls, struct sp_err *err)
{
	unsigned int status = gnutls_session_get_verify_cert_status(tls->session);
	gnutls_datum_t text = {0};
	size_t len;

	if (gnutls_certificate_verification_status_print(status, GNUTLS_CRT_X509, &text, 0) < 0)
		return sp_err_code(err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -EACCES,
				   "TLS: the server's certificate is not accepted");
	len = text.size;
	while (len > 0 && (text.data[len - 1] <= ' ' || text.data[len - 1] == '.'))
		len--;
	(void)sp_err_code(err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -EACCES, "TLS: %.*s", (int)len,
			  (const char *)text.data);
	gnutls_free(text.data);
	return -EACCES;
}

int sp_redis_tls_handshake(struct sp_redis_tls *tls, struct sp_err *err)
{
	int result;

	/* A warning alert of the server is no error, but there may be no end of them: each needs
	 * bytes of a chunk that is bounded. */
	do
		result = gnutls_handshake(tls->session);
	while (result < 0 && !again(result) && !gnutls_error_is_fatal(result) && tls->in_len > 0);
	if (result == GNUTLS_E_SUCCESS)
		return 0;
	if (again(result) || !gnutls_error_is_fatal(result))
		return -EAGAIN;
	if (result == GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR)
		return refused_certificate(tls, err);
	if (result == GNUTLS_E_FATAL_ALERT_RECEIVED)
		return sp_err_code(err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -EPROTO,
				   "TLS: the server refuses: %s",
				   gnutls_alert_get_name(gnutls_alert_get(tls->session)));
	return sp_err_code(err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -EPROTO, "TLS: %s",
			   gnutls_strerror(result));
}

ssize_t sp_redis_tls_read(struct sp_redis_tls *tls, char *data, size_t size, struct sp_err *err)
{
	ssize_t got;

	/* What is no data (a session ticket of TLS 1.3, say) is answered with AGAIN, too, although
	 * more may stand behind it. A record that is not complete takes all that there is. */
	do
		got = gnutls_record_recv(tls->session, data, size);
	while (got < 0 && !gnutls_error_is_fatal((int)got) && got != GNUTLS_E_REHANDSHAKE &&
	       tls->in_len > 0);
	if (got >= 0)
		return got;
	if (got != GNUTLS_E_REHANDSHAKE && (again(got) || !gnutls_error_is_fatal((int)got)))
		return -EAGAIN;
	if (got == GNUTLS_E_FATAL_ALERT_RECEIVED)
		return sp_err_code(err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -EPROTO,
				   "TLS: the server refuses: %s",
				   gnutls_alert_get_name(gnutls_alert_get(tls->session)));
	return sp_err_code(err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -EPROTO, "TLS: %s",
			   gnutls_strerror((int)got));
}

int sp_redis_tls_write(struct sp_redis_tls *tls, const char *data, size_t len, struct sp_err *err)
{
	while (len > 0) {
		ssize_t sent = gnutls_record_send(tls->session, data, len);

		/* The push function takes everything or fails, so nothing is ever left half. */
		if (sent < 0)
			return sp_err_code(err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -EPROTO,
					   "TLS: %s", gnutls_strerror((int)sent));
		data += sent;
		len -= (size_t)sent;
	}
	return 0;
}

struct sp_buf *sp_redis_tls_out(struct sp_redis_tls *tls)
{
	return &tls->out;
}
