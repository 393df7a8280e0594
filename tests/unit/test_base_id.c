/*
 * Identifiers: drawn ones are valid and differ, others are refused at the first wrong byte.
 */
#include "pool/base/id.h"

#include <criterion/criterion.h>
#include <string.h>

Test(id, sandbox_ids_are_valid_and_differ)
{
	char one[SP_SANDBOX_ID_LEN + 1], two[SP_SANDBOX_ID_LEN + 1];

	sp_sandbox_id_new(one);
	sp_sandbox_id_new(two);
	cr_assert(sp_sandbox_id_valid(one) && sp_sandbox_id_valid(two));
	cr_assert(strcmp(one, two) != 0);
	one[3] = 'u';
	cr_assert(!sp_sandbox_id_valid(one), "u is not in the alphabet");
	two[SP_SANDBOX_ID_LEN - 1] = '\0';
	cr_assert(!sp_sandbox_id_valid(two));
}

Test(id, secrets_are_64_hex_digits)
{
	char secret[SP_SECRET_LEN + 1], other[SP_SECRET_LEN + 1];

	sp_secret_new(secret);
	sp_secret_new(other);
	cr_assert(sp_lease_id_valid(secret), "the same alphabet and length");
	cr_assert(!sp_secret_equal(secret, other, SP_SECRET_LEN));
	memcpy(other, secret, sizeof(other));
	cr_assert(sp_secret_equal(secret, other, SP_SECRET_LEN));
	secret[0] = 'G';
	cr_assert(!sp_lease_id_valid(secret));
	cr_assert(!sp_lease_id_valid(""));
}

Test(id, pool_names_have_an_alphabet_and_a_length)
{
	char name[SP_POOL_NAME_MAX + 2];

	cr_assert(sp_pool_name_valid("a") && sp_pool_name_valid("0.x_y-z"));
	cr_assert(!sp_pool_name_valid("") && !sp_pool_name_valid(".a"));
	cr_assert(!sp_pool_name_valid("-a") && !sp_pool_name_valid("_a"));
	cr_assert(!sp_pool_name_valid("A") && !sp_pool_name_valid("a/b"));
	cr_assert(!sp_pool_name_valid("a b") && !sp_pool_name_valid("a{b}"));
	memset(name, 'a', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	cr_assert(!sp_pool_name_valid(name), "64");
	name[SP_POOL_NAME_MAX] = '\0';
	cr_assert(sp_pool_name_valid(name), "63");
}
