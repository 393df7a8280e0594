/*
 * From hiredis' tree to the flat list that the verbs read (cli/remote.h).
 */
#include <errno.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "supervisor/cli/remote/link.h"

#define WORDS_MAX   (1u << 20)
#define DEPTH_MAX   4
#define NUMBER_SIZE 24

/* How many words; -E2BIG. */
static int64_t count_words(const redisReply *reply, int depth)
{
	int64_t total = 0;

	if (reply->type != REDIS_REPLY_ARRAY)
		return 1;
	if (depth == DEPTH_MAX)
		return -E2BIG;
	for (size_t i = 0; i < reply->elements; i++) {
		int64_t count = count_words(reply->element[i], depth + 1);

		if (count < 0)
			return count;
		total += count;
		if (total > WORDS_MAX)
			return -E2BIG;
	}
	return total;
}

static int add_word(const redisReply *reply, struct sp_cli_reply *out)
{
	char number[NUMBER_SIZE];
	char *text;

	if (reply->type == REDIS_REPLY_NIL) {
		out->texts[out->count++] = NULL;
		return 0;
	}
	if (reply->type == REDIS_REPLY_INTEGER) {
		(void)snprintf(number, sizeof(number), "%" PRId64, (int64_t)reply->integer);
		text = strdup(number);
	} else {
		text = strndup(reply->str, reply->len);
	}
	if (!text)
		return -ENOMEM;
	out->texts[out->count++] = text;
	return 0;
}

static int add_words(const redisReply *reply, struct sp_cli_reply *out)
{
	if (reply->type != REDIS_REPLY_ARRAY)
		return add_word(reply, out);
	for (size_t i = 0; i < reply->elements; i++) {
		int status = add_words(reply->element[i], out);

		if (status < 0)
			return status;
	}
	return 0;
}

int sp_cli_reply_flatten(const redisReply *reply, struct sp_cli_reply *ret_reply)
{
	struct sp_cli_reply out = {0};
	int64_t count = count_words(reply, 0);
	int status;

	if (count < 0)
		return (int)count;
	out.texts = calloc((size_t)count + 1, sizeof(*out.texts));
	if (!out.texts)
		return -ENOMEM;
	status = add_words(reply, &out);
	if (status == 0) {
		*ret_reply = out;
		return 0;
	}
	for (size_t i = 0; i < out.count; i++)
		free(out.texts[i]);
	free(out.texts);
	return status;
}
