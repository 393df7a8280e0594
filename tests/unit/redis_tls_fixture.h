/*
 * Certificates made at run time: a CA, what it signed, and a stranger's.
 */
#ifndef SP_TESTS_REDIS_TLS_FIXTURE_H
#define SP_TESTS_REDIS_TLS_FIXTURE_H

#include "redis_fixture.h"

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <time.h>

struct tls_ca {
	gnutls_x509_privkey_t key;
	gnutls_x509_crt_t crt;
	char path[128]; /* of its certificate */
};

struct tls_pair {
	char cert_path[128];
	char key_path[128];
};

static inline void tls_write(const char *path, const gnutls_datum_t *text)
{
	FILE *file = fopen(path, "we");

	cr_assert(file && fwrite(text->data, 1, text->size, file) == text->size &&
		  fclose(file) == 0);
	gnutls_free(text->data);
}

static inline gnutls_x509_privkey_t tls_key(void)
{
	gnutls_x509_privkey_t key;

	cr_assert(gnutls_x509_privkey_init(&key) == 0);
	cr_assert(gnutls_x509_privkey_generate(key, GNUTLS_PK_ECDSA,
					       GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1),
					       0) == 0);
	return key;
}

/* valid_s: from an hour ago until that many seconds from now. */
static inline gnutls_x509_crt_t tls_crt(gnutls_x509_privkey_t key, const char *name, int serial,
					time_t valid_s)
{
	unsigned char number = (unsigned char)serial;
	gnutls_x509_crt_t crt;

	cr_assert(gnutls_x509_crt_init(&crt) == 0);
	cr_assert(gnutls_x509_crt_set_version(crt, 3) == 0);
	cr_assert(gnutls_x509_crt_set_serial(crt, &number, 1) == 0);
	cr_assert(gnutls_x509_crt_set_activation_time(crt, time(NULL) - 7200) == 0);
	cr_assert(gnutls_x509_crt_set_expiration_time(crt, time(NULL) + valid_s) == 0);
	cr_assert(gnutls_x509_crt_set_key(crt, key) == 0);
	cr_assert(gnutls_x509_crt_set_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0, name,
						(unsigned int)strlen(name)) == 0);
	return crt;
}

static inline void tls_ca_init(struct tls_ca *ca, const char *dir, const char *name)
{
	gnutls_datum_t text;

	ca->key = tls_key();
	ca->crt = tls_crt(ca->key, name, 1, 86400);
	cr_assert(gnutls_x509_crt_set_basic_constraints(ca->crt, 1, -1) == 0);
	cr_assert(gnutls_x509_crt_set_key_usage(ca->crt, GNUTLS_KEY_KEY_CERT_SIGN) == 0);
	cr_assert(gnutls_x509_crt_sign2(ca->crt, ca->crt, ca->key, GNUTLS_DIG_SHA256, 0) == 0);
	(void)snprintf(ca->path, sizeof(ca->path), "%s/%s.pem", dir, name);
	cr_assert(gnutls_x509_crt_export2(ca->crt, GNUTLS_X509_FMT_PEM, &text) == 0);
	tls_write(ca->path, &text);
}

static inline void tls_ca_done(struct tls_ca *ca)
{
	gnutls_x509_crt_deinit(ca->crt);
	gnutls_x509_privkey_deinit(ca->key);
}

/* dns: a name or NULL; ip: an IPv4 address in text or NULL. */
static inline void tls_issue(struct tls_ca *ca, const char *dir, const char *file, const char *dns,
			     const char *ip, time_t valid_s, struct tls_pair *ret)
{
	gnutls_x509_privkey_t key = tls_key();
	gnutls_x509_crt_t crt = tls_crt(key, file, 2, valid_s);
	struct in_addr address;
	gnutls_datum_t text;

	if (dns)
		cr_assert(gnutls_x509_crt_set_subject_alt_name(crt, GNUTLS_SAN_DNSNAME, dns,
							       (unsigned int)strlen(dns),
							       GNUTLS_FSAN_APPEND) == 0);
	if (ip) {
		cr_assert(inet_pton(AF_INET, ip, &address) == 1);
		cr_assert(gnutls_x509_crt_set_subject_alt_name(crt, GNUTLS_SAN_IPADDRESS, &address,
							       sizeof(address),
							       GNUTLS_FSAN_APPEND) == 0);
	}
	cr_assert(gnutls_x509_crt_sign2(crt, ca->crt, ca->key, GNUTLS_DIG_SHA256, 0) == 0);
	(void)snprintf(ret->cert_path, sizeof(ret->cert_path), "%s/%s.crt", dir, file);
	(void)snprintf(ret->key_path, sizeof(ret->key_path), "%s/%s.key", dir, file);
	cr_assert(gnutls_x509_crt_export2(crt, GNUTLS_X509_FMT_PEM, &text) == 0);
	tls_write(ret->cert_path, &text);
	cr_assert(gnutls_x509_privkey_export2(key, GNUTLS_X509_FMT_PEM, &text) == 0);
	tls_write(ret->key_path, &text);
	gnutls_x509_crt_deinit(crt);
	gnutls_x509_privkey_deinit(key);
}

#endif
