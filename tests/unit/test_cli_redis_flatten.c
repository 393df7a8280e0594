/*
 * From hiredis' tree to the flat list that the verbs read.
 */
#include "supervisor/cli/redis.h"
#include "supervisor/cli/remote/link.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "supervisor/cli/cli.h"

static struct sp_cli_reply flat;
static redisReply *reply;

static void read_reply(const char *text, size_t len)
{
	redisReader *reader = redisReaderCreate();
	void *root = NULL;

	cr_assert_eq(redisReaderFeed(reader, text, len), REDIS_OK);
	cr_assert_eq(redisReaderGetReply(reader, &root), REDIS_OK);
	cr_assert_not_null(root);
	redisReaderFree(reader);
	reply = root;
}

static void tear_down(void)
{
	sp_cli_reply_done(&flat);
	freeReplyObject(reply);
}

TestSuite(cli_flatten, .fini = tear_down);

Test(cli_flatten, a_list_keeps_its_order_numbers_become_text_and_nil_stays)
{
	static const char text[] = "*4\r\n$2\r\nOK\r\n:-12\r\n$-1\r\n+x\r\n";

	read_reply(text, sizeof(text) - 1);
	cr_assert_eq(sp_cli_reply_flatten(reply, &flat), 0);
	cr_assert_eq(flat.count, 4);
	cr_assert_str_eq(flat.texts[0], "OK");
	cr_assert_str_eq(flat.texts[1], "-12");
	cr_assert_null(flat.texts[2]);
	cr_assert_str_eq(flat.texts[3], "x");
	cr_assert_eq(sp_cli_reply_number(&flat, 1), -12);
}

Test(cli_flatten, a_list_in_a_list_is_unfolded_as_scan_has_it)
{
	static const char text[] = "*2\r\n$1\r\n0\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n";

	read_reply(text, sizeof(text) - 1);
	cr_assert_eq(sp_cli_reply_flatten(reply, &flat), 0);
	cr_assert_eq(flat.count, 3);
	cr_assert_str_eq(flat.texts[2], "b");
}

Test(cli_flatten, a_single_value_is_a_list_of_one_and_an_empty_list_of_none)
{
	read_reply("+PONG\r\n", 7);
	cr_assert_eq(sp_cli_reply_flatten(reply, &flat), 0);
	cr_assert_eq(flat.count, 1);
	sp_cli_reply_done(&flat);
	freeReplyObject(reply);
	read_reply("*0\r\n", 4);
	cr_assert_eq(sp_cli_reply_flatten(reply, &flat), 0);
	cr_assert_eq(flat.count, 0);
}

Test(cli_flatten, four_levels_are_read_and_a_fifth_is_refused)
{
	static const char four[] = "*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n";
	static const char five[] = "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n";

	read_reply(four, sizeof(four) - 1);
	cr_assert_eq(sp_cli_reply_flatten(reply, &flat), 0);
	cr_assert_str_eq(flat.texts[0], "1");
	sp_cli_reply_done(&flat);
	freeReplyObject(reply);
	read_reply(five, sizeof(five) - 1);
	cr_assert_eq(sp_cli_reply_flatten(reply, &flat), -E2BIG);
	cr_assert_eq(flat.count, 0);
}

/* The lease id of a secret is a promise between clients, daemons and Redis: SHA-256, in hex. */
Test(cli_flatten, a_lease_id_is_the_hex_sha256_of_the_secret)
{
	char lease[SP_LEASE_ID_LEN + 1];

	read_reply("+\r\n", 3);
	cr_assert_eq(sp_cli_lease_id("abc", lease), 0);
	cr_assert_str_eq(lease, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}
