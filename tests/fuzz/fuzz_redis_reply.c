/*
 * The reply decoder and what is made of a reply. The bytes of a server mean the same however they
 * are cut into chunks; a reply that is let through is within its bounds; an error reply becomes a
 * printable message.
 */
#include "tests/fuzz/fuzz.h"

#include "redis/reply.h"

#include <errno.h>
#include <string.h>

#define DEPTH_MAX 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What was seen so far: how many replies, a digest of them, the end. */
struct seen {
	size_t replies;
	uint64_t digest;
	int status;
};

static size_t look(struct seen *seen, const redisReply *reply, unsigned int depth)
{
	size_t elements = 0;

	require(depth < DEPTH_MAX);
	mix(&seen->digest, &reply->type, sizeof(reply->type));
	switch (reply->type) {
	case REDIS_REPLY_STRING:
	case REDIS_REPLY_STATUS:
	case REDIS_REPLY_ERROR:
		require(reply->str[reply->len] == '\0');
		mix(&seen->digest, reply->str, reply->len);
		break;
	case REDIS_REPLY_INTEGER:
		mix(&seen->digest, &reply->integer, sizeof(reply->integer));
		break;
	case REDIS_REPLY_ARRAY:
		elements = reply->elements;
		for (size_t i = 0; i < reply->elements; i++)
			elements += look(seen, reply->element[i], depth + 1);
		break;
	default:
		break;
	}
	return elements;
}

static void check_error(const redisReply *reply)
{
	enum sp_redis_error error = sp_redis_error_of(reply);
	struct sp_err err = {0};
	size_t len;

	require((reply->type == REDIS_REPLY_ERROR) == (error != SP_REDIS_ERROR_NONE));
	if (error == SP_REDIS_ERROR_NONE)
		return;
	require(sp_redis_error_set(&err, "FCALL x", reply) < 0 && err.status < 0);
	require(err.code == SP_CODE_POOL_STATE_STORE_UNAVAILABLE);
	len = strlen(err.message);
	for (size_t i = 0; i < len; i++)
		require((unsigned char)err.message[i] >= ' ' && err.message[i] != 0x7f);
	if (error > SP_REDIS_ERROR_NO_FUNCTION)
		require(strncmp(reply->str, sp_redis_error_word(error),
				strlen(sp_redis_error_word(error))) == 0);
}

static void check_reply(struct seen *seen, const redisReply *reply)
{
	const char *status = sp_redis_status(reply);

	require(look(seen, reply, 0) <= SP_REDIS_ELEMENTS_MAX);
	check_error(reply);
	require(!status || (reply->elements > 0 && sp_redis_is_text(reply->element[0])));
	seen->replies++;
}

/* cut: how long the chunks are; changes on the way. */
static struct seen decode(const uint8_t *data, size_t size, size_t cut)
{
	struct seen seen = {.digest = 0xcbf29ce484222325U};
	struct sp_redis_decoder decoder;

	require(sp_redis_decoder_init(&decoder) == 0);
	while (size > 0 && seen.status == 0) {
		size_t len = cut && cut < size ? cut : size;
		struct sp_err err = {0};
		redisReply *reply;

		require(sp_redis_decoder_feed(&decoder, (const char *)data, len, &err) == 0);
		data += len;
		size -= len;
		cut = cut ? cut % 7 + 1 : 0;
		while ((seen.status = sp_redis_decoder_next(&decoder, &reply, &err)) == 1) {
			check_reply(&seen, reply);
			freeReplyObject(reply);
		}
		if (seen.status < 0)
			require(seen.status == -EPROTO && err.message[0] != '\0');
	}
	sp_redis_decoder_done(&decoder);
	return seen;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct seen whole;
	struct seen pieces;

	if (size < 1)
		return 0;
	whole = decode(data + 1, size - 1, 0);
	pieces = decode(data + 1, size - 1, data[0] % 16 + 1);
	require(whole.replies == pieces.replies && whole.digest == pieces.digest &&
		whole.status == pieces.status);
	return 0;
}
