/*
 * Account files as a sandbox may have them.
 */
#include "supervisor/api/account_names.h"

#include "pool/base/buf.h"

#include <criterion/criterion.h>
#include <string.h>

static struct sp_accounts accounts;

static void parse(const char *text)
{
	sp_accounts_done(&accounts);
	cr_assert(sp_accounts_parse(&accounts, text, strlen(text), NULL) == 0);
}

static void end(void)
{
	sp_accounts_done(&accounts);
}

TestSuite(api_account_names, .fini = end);

Test(api_account_names, names_and_ids_are_found_both_ways)
{
	uint32_t id = 0;

	parse("root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n"
	      "nobody:x:65534:65534:nobody:/:/bin/false");
	cr_assert_str_eq(sp_accounts_name(&accounts, 0), "root");
	cr_assert_str_eq(sp_accounts_name(&accounts, 65534), "nobody");
	cr_assert(sp_accounts_name(&accounts, 1) == NULL);
	cr_assert(sp_accounts_id(&accounts, "user", &id) && id == 1000);
	cr_assert(!sp_accounts_id(&accounts, "users", &id));
}

Test(api_account_names, a_name_that_is_a_number_and_nobodys_is_an_id)
{
	uint32_t id = 0;

	parse("12:x:34:\n");
	cr_assert(sp_accounts_id(&accounts, "12", &id) && id == 34);
	cr_assert(sp_accounts_id(&accounts, "13", &id) && id == 13);
	cr_assert(sp_accounts_id(&accounts, "4294967294", &id) && id == 4294967294u);
	cr_assert(!sp_accounts_id(&accounts, "4294967295", &id));
	cr_assert(!sp_accounts_id(&accounts, "-1", &id));
	cr_assert(!sp_accounts_id(&accounts, "", &id));
}

Test(api_account_names, the_first_of_equals_counts)
{
	uint32_t id = 0;

	parse("one:x:5:\ntwo:x:5:\none:x:6:\n");
	cr_assert_str_eq(sp_accounts_name(&accounts, 5), "one");
	cr_assert(sp_accounts_id(&accounts, "one", &id) && id == 5);
	cr_assert(sp_accounts_id(&accounts, "two", &id) && id == 5);
}

Test(api_account_names, what_is_no_account_is_skipped)
{
	uint32_t id;

	parse("\n#root:x:0:0\n:x:1:\na\nb:x\nc:x:\nd:x:-1:\ne:x:12a:\nf:x:4294967295:\ng:x:7");
	cr_assert_str_eq(sp_accounts_name(&accounts, 7), "g");
	for (const char *name = "abcdef"; *name; name++)
		cr_assert(!sp_accounts_id(&accounts, (char[]){*name, '\0'}, &id));
	parse("");
	cr_assert(sp_accounts_name(&accounts, 0) == NULL);
}

Test(api_account_names, accounts_of_the_limit_are_known_and_one_more_is_not)
{
	struct sp_buf text;
	uint32_t id;

	sp_buf_init(&text, SP_ACCOUNTS_SIZE_MAX);
	for (unsigned int i = 0; i <= SP_ACCOUNTS_COUNT_MAX; i++)
		cr_assert(sp_buf_printf(&text, "u%u:x:%u:\n", i, i) == 0);
	parse(sp_buf_text(&text));
	cr_assert_str_eq(sp_accounts_name(&accounts, SP_ACCOUNTS_COUNT_MAX - 1), "u4095");
	cr_assert(sp_accounts_name(&accounts, SP_ACCOUNTS_COUNT_MAX) == NULL);
	cr_assert(!sp_accounts_id(&accounts, "u4096", &id));
	sp_buf_done(&text);
}

Test(api_account_names, bytes_of_the_limit_are_read_and_one_more_is_not)
{
	static char text[SP_ACCOUNTS_SIZE_MAX + 1];
	static const char last[] = "\nlast:x:12";

	for (size_t more = 0; more < 2; more++) {
		memset(text, '#', sizeof(text));
		memcpy(text + SP_ACCOUNTS_SIZE_MAX + more - strlen(last), last, strlen(last));
		sp_accounts_done(&accounts);
		cr_assert(sp_accounts_parse(&accounts, text, SP_ACCOUNTS_SIZE_MAX + more, NULL) ==
			  0);
		cr_assert((sp_accounts_name(&accounts, 12) != NULL) == (more == 0));
	}
}

Test(api_account_names, name_of_the_limit_is_known_and_a_longer_one_is_not)
{
	for (unsigned int more = 0; more < 2; more++) {
		char line[SP_ACCOUNT_NAME_MAX + 16];

		memset(line, 'n', sizeof(line));
		memcpy(line + SP_ACCOUNT_NAME_MAX + more, ":x:1", sizeof(":x:1"));
		parse(line);
		cr_assert((sp_accounts_name(&accounts, 1) != NULL) == (more == 0));
	}
}
