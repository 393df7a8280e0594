/*
 * Identifiers and secrets.
 *
 *   sandbox id   20 characters of [0-9a-z] without i, l, o, u (100 bits): names a sandbox, is no
 * secret secret       64 lower-case hex digits (256 bits): the client's credential for one lease
 *   lease id     hex SHA-256 of the secret: names the lease, is no secret
 *   pool name    [a-z0-9][a-z0-9._-]{0,62}
 */
#ifndef SP_BASE_ID_H
#define SP_BASE_ID_H

#include "pool/base/base.h"

#define SP_SANDBOX_ID_LEN 20
#define SP_SECRET_LEN     64
#define SP_LEASE_ID_LEN   64
#define SP_POOL_NAME_MAX  63

/* Fills with random characters; text has room for SP_SANDBOX_ID_LEN + 1. Never fails: getrandom(2)
 * without flags only blocks before the kernel's pool is seeded. */
void sp_sandbox_id_new(char *text);
void sp_secret_new(char *text);
bool sp_sandbox_id_valid(const char *text);
bool sp_lease_id_valid(const char *text);
bool sp_pool_name_valid(const char *text);
/* Compares without telling by its duration where the two differ. */
bool sp_secret_equal(const char *a, const char *b, size_t len);

#endif
