/*
 * From a secret to the lease that it opens: the lease id is the hex SHA-256 of the secret's text as
 * the client sends it (64 hex digits when we or our clients draw it, but any text will do). Only
 * lease ids are ever stored.
 */
#include "supervisor/daemon/daemon_private.h"

#include <errno.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <string.h>

#define DIGEST_BYTES (SP_LEASE_ID_LEN / 2)

int secret_lease_id(const char *secret, char *ret_lease_id)
{
	static const char hex[] = "0123456789abcdef";
	unsigned char digest[DIGEST_BYTES];
	size_t len = strnlen(secret, SP_SECRET_TEXT_MAX + 1);

	if (len == 0 || len > SP_SECRET_TEXT_MAX)
		return -EINVAL;
	if (gnutls_hash_fast(GNUTLS_DIG_SHA256, secret, len, digest) < 0)
		return -EIO;
	for (size_t i = 0; i < sizeof(digest); i++) {
		ret_lease_id[2 * i] = hex[digest[i] >> 4];
		ret_lease_id[2 * i + 1] = hex[digest[i] & 15];
	}
	ret_lease_id[SP_LEASE_ID_LEN] = '\0';
	return 0;
}

bool secret_opens(const char *secret, const char *lease_id)
{
	char derived[SP_LEASE_ID_LEN + 1];

	return secret && lease_id[0] != '\0' && secret_lease_id(secret, derived) == 0 &&
	       sp_secret_equal(derived, lease_id, SP_LEASE_ID_LEN);
}
