/*
 * Arguments of calls, kept as texts until the call is answered, and replies being read: flat arrays
 * of strings and integers, of which nothing is believed before it was looked at.
 */
#include "redis/store_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARGS_TEXT_MAX (1u << 20)
#define NUMBER_MAX    24

void store_args_init(struct store_args *args)
{
	sp_buf_init(&args->text, ARGS_TEXT_MAX);
	args->count = 0;
	args->status = 0;
}

void store_args_done(struct store_args *args)
{
	sp_buf_done(&args->text);
	args->count = 0;
}

void store_args_clear(struct store_args *args)
{
	sp_buf_clear(&args->text);
	args->count = 0;
	args->status = 0;
}

void store_args_text(struct store_args *args, const char *text)
{
	if (args->status == 0 && args->count == STORE_ARGS_MAX)
		args->status = -E2BIG;
	if (args->status == 0)
		args->status = sp_buf_append(&args->text, text, strlen(text) + 1);
	if (args->status == 0)
		args->count++;
}

void store_args_number(struct store_args *args, int64_t number)
{
	char text[NUMBER_MAX];

	(void)snprintf(text, sizeof(text), "%" PRId64, number);
	store_args_text(args, text);
}

static const struct redisReply *next(struct store_reply *reply)
{
	const struct redisReply *array = reply->reply;

	if (reply->bad || !array || array->type != REDIS_REPLY_ARRAY ||
	    reply->at >= array->elements) {
		reply->bad = true;
		return NULL;
	}
	return array->element[reply->at++];
}

const char *store_reply_text(struct store_reply *reply)
{
	const struct redisReply *element = next(reply);

	/* A text with a NUL in it is none of ours. */
	if (element &&
	    (element->type == REDIS_REPLY_STRING || element->type == REDIS_REPLY_STATUS) &&
	    strlen(element->str) == element->len)
		return element->str;
	reply->bad = true;
	return "";
}

int64_t store_reply_number(struct store_reply *reply)
{
	const struct redisReply *element = next(reply);
	char *end;
	int64_t number;

	if (element && element->type == REDIS_REPLY_INTEGER)
		return element->integer;
	if (!element || element->type != REDIS_REPLY_STRING || element->len == 0 ||
	    element->len >= NUMBER_MAX) {
		reply->bad = true;
		return 0;
	}
	errno = 0;
	number = strtoll(element->str, &end, 10);
	if (*end != '\0' || errno != 0) {
		reply->bad = true;
		return 0;
	}
	return number;
}

int64_t store_reply_positive(struct store_reply *reply)
{
	int64_t number = store_reply_number(reply);

	return SP_MAX(number, INT64_C(0));
}

void store_reply_any(struct store_reply *reply, char *text, size_t size)
{
	const struct redisReply *element = next(reply);

	text[0] = '\0';
	if (element && element->type == REDIS_REPLY_INTEGER)
		(void)snprintf(text, size, "%lld", element->integer);
	else if (element && element->type == REDIS_REPLY_STRING)
		(void)snprintf(text, size, "%s", element->str);
	else
		reply->bad = true;
}

void store_reply_skip(struct store_reply *reply, size_t count)
{
	for (size_t i = 0; i < count; i++)
		(void)next(reply);
}
