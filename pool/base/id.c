/*
 * Makes and checks identifiers. All randomness of the project that must be unguessable comes from
 * here and so from getrandom(2).
 */
#include "pool/base/id.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

static const char base32[] = "0123456789abcdefghjkmnpqrstvwxyz";
static const char hex[] = "0123456789abcdef";

static void random_bytes(unsigned char *bytes, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t got = getrandom(bytes + done, len - done, 0);

		if (got < 0) {
			sp_assert(errno == EINTR);
			continue;
		}
		done += (size_t)got;
	}
}

void sp_sandbox_id_new(char *text)
{
	unsigned char bytes[SP_SANDBOX_ID_LEN];

	random_bytes(bytes, sizeof(bytes));
	for (size_t i = 0; i < SP_SANDBOX_ID_LEN; i++)
		text[i] = base32[bytes[i] & 31];
	text[SP_SANDBOX_ID_LEN] = '\0';
}

void sp_secret_new(char *text)
{
	unsigned char bytes[SP_SECRET_LEN / 2];

	random_bytes(bytes, sizeof(bytes));
	for (size_t i = 0; i < sizeof(bytes); i++) {
		text[2 * i] = hex[bytes[i] >> 4];
		text[2 * i + 1] = hex[bytes[i] & 15];
	}
	text[SP_SECRET_LEN] = '\0';
}

static bool all_of(const char *text, size_t len, const char *alphabet)
{
	return strlen(text) == len && strspn(text, alphabet) == len;
}

bool sp_sandbox_id_valid(const char *text)
{
	return all_of(text, SP_SANDBOX_ID_LEN, base32);
}

bool sp_lease_id_valid(const char *text)
{
	return all_of(text, SP_LEASE_ID_LEN, hex);
}

bool sp_pool_name_valid(const char *text)
{
	static const char first[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	static const char rest[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
	size_t len = strnlen(text, SP_POOL_NAME_MAX + 1);

	return len >= 1 && len <= SP_POOL_NAME_MAX && strchr(first, text[0]) &&
	       strspn(text, rest) == len;
}

bool sp_secret_equal(const char *a, const char *b, size_t len)
{
	unsigned char difference = 0;

	for (size_t i = 0; i < len; i++)
		difference |= (unsigned char)(a[i] ^ b[i]);
	return difference == 0;
}
