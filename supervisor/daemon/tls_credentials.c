/*
 * Certificate and key, as the compiler read them when it had the right to: a reload takes new ones
 * along although the daemon may not open their files. A pair that GnuTLS refuses ends the start, or
 * the reload.
 */
#include "supervisor/daemon/daemon_private.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <string.h>

static gnutls_datum_t datum_of(char *text)
{
	return (gnutls_datum_t){.data = (unsigned char *)text, .size = (unsigned int)strlen(text)};
}

int sp_service_tls_credentials(const struct sp_config *config,
			       struct gnutls_certificate_credentials_st **ret_credentials,
			       struct sp_err *err)
{
	gnutls_certificate_credentials_t credentials;
	gnutls_datum_t certificate;
	gnutls_datum_t key;
	int result;

	if (config->tls_certificate_count == 0 || config->tls_key_count == 0)
		return sp_err_code(err, SP_CODE_CONFIG_INVALID, -EINVAL,
				   "a tls:// address needs tls_certificate_file and tls_key_file");
	result = gnutls_certificate_allocate_credentials(&credentials);
	if (result < 0)
		return sp_err_code(err, SP_CODE_INTERNAL, -ENOMEM, "set up TLS: %s",
				   gnutls_strerror(result));
	certificate = datum_of(config->tls_certificate[0]);
	key = datum_of(config->tls_key[0]);
	result = gnutls_certificate_set_x509_key_mem(credentials, &certificate, &key,
						     GNUTLS_X509_FMT_PEM);
	if (result < 0) {
		gnutls_certificate_free_credentials(credentials);
		return sp_err_code(err, SP_CODE_CONFIG_INVALID, -EINVAL,
				   "load certificate '%s' and key '%s': %s",
				   config->tls_certificate_file, config->tls_key_file,
				   gnutls_strerror(result));
	}
	*ret_credentials = credentials;
	return 0;
}
