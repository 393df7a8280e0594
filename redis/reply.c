/*
 * hiredis's reader, with the bounds that 0.14 does not have.
 *
 * What a hostile server can make the reader do by a few bytes: allocate eight bytes per announced
 * element of an array (2^31 of them, nested), keep a line without an end, keep a bulk string of 512
 * MB. So arrays are made by a function of ours that counts what has been announced in this reply,
 * and after each chunk the bytes of the unfinished reply and the length of its open line are looked
 * at. Nesting is bounded by the reader itself (7 levels in 0.14, 9 in 1.x).
 */
#include "redis/reply.h"

#include "pool/base/log.h"
#include "redis/wire.h"

#include <errno.h>
#include <string.h>

#define KEPT_BUFFER      65536 /* an empty buffer beyond this is given back */
#define WORDS_MAX        256
#define NO_FUNCTION_TEXT "ERR Function not found"

#if HIREDIS_MAJOR >= 1
typedef size_t element_count;
#else
typedef int element_count;
#endif

/* hiredis's own; the same in every reader, and set when the first one is made. */
static void *(*make_array)(const redisReadTask *task, element_count elements);

static void *create_array(const redisReadTask *task, element_count elements)
{
	struct sp_redis_decoder *decoder = task->privdata;

	if ((size_t)elements > SP_REDIS_ELEMENTS_MAX - decoder->elements) {
		decoder->too_many = true;
		return NULL;
	}
	decoder->elements += (size_t)elements;
	return make_array(task, elements);
}

int sp_redis_decoder_init(struct sp_redis_decoder *decoder)
{
	*decoder = (struct sp_redis_decoder){.reader = redisReaderCreate()};
	if (!decoder->reader)
		return -ENOMEM;
	decoder->functions = *decoder->reader->fn;
	make_array = decoder->functions.createArray;
	decoder->functions.createArray = create_array;
	decoder->reader->fn = &decoder->functions;
	decoder->reader->privdata = decoder;
	decoder->reader->maxbuf = KEPT_BUFFER;
	return 0;
}

void sp_redis_decoder_done(struct sp_redis_decoder *decoder)
{
	if (decoder->reader)
		redisReaderFree(decoder->reader);
	*decoder = (struct sp_redis_decoder){0};
}

static int broken(struct sp_err *err, const char *what)
{
	char quoted[160];

	return sp_err_code(err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -EPROTO,
			   "the reply breaks the protocol: %s",
			   sp_log_quote(what, quoted, sizeof(quoted)));
}

int sp_redis_decoder_feed(struct sp_redis_decoder *decoder, const char *data, size_t len,
			  struct sp_err *err)
{
	if (redisReaderFeed(decoder->reader, data, len) != REDIS_OK)
		return sp_err_code(err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -ENOMEM,
				   "out of memory for a reply");
	decoder->fed += len;
	return 0;
}

/* Bytes that the reader has not looked at to the end. */
static size_t unread(const struct sp_redis_decoder *decoder)
{
	return decoder->reader->len - decoder->reader->pos;
}

static bool endless_line(const struct sp_redis_decoder *decoder)
{
	const redisReader *reader = decoder->reader;

	return unread(decoder) > SP_REDIS_LINE_MAX &&
	       !memchr(reader->buf + reader->pos, '\n', SP_REDIS_LINE_MAX);
}

int sp_redis_decoder_next(struct sp_redis_decoder *decoder, redisReply **ret, struct sp_err *err)
{
	void *reply = NULL;
	uint64_t end;

	if (redisReaderGetReply(decoder->reader, &reply) != REDIS_OK)
		return broken(err,
			      decoder->too_many ? "too many elements" : decoder->reader->errstr);
	end = decoder->fed - unread(decoder);
	if ((reply ? end : decoder->fed) - decoder->begun > SP_REDIS_REPLY_MAX) {
		if (reply)
			freeReplyObject(reply);
		return broken(err, "too long");
	}
	if (!reply)
		return endless_line(decoder) ? broken(err, "a line without end") : 0;
	decoder->begun = end;
	decoder->elements = 0;
	*ret = reply;
	return 1;
}

/* ---- error replies ---- */

struct error_entry {
	const char *word;
	int number;
};

static const struct error_entry error_table[] = {[SP_REDIS_ERROR_NONE] = {"", 0},
						 [SP_REDIS_ERROR_OTHER] = {"ERR", EBADMSG},
						 [SP_REDIS_ERROR_NO_FUNCTION] = {"ERR", ENOENT},
#define SP_REDIS_ERROR_ENTRY(id, word, number) [SP_REDIS_ERROR_##id] = {word, number},
						 SP_REDIS_ERRORS(SP_REDIS_ERROR_ENTRY)
#undef SP_REDIS_ERROR_ENTRY
};

static bool begins(const redisReply *reply, const char *word, size_t len)
{
	return reply->len >= len && memcmp(reply->str, word, len) == 0 &&
	       (reply->len == len || reply->str[len] == ' ');
}

enum sp_redis_error sp_redis_error_of(const redisReply *reply)
{
	if (!reply || reply->type != REDIS_REPLY_ERROR)
		return SP_REDIS_ERROR_NONE;
	if (reply->len >= strlen(NO_FUNCTION_TEXT) &&
	    memcmp(reply->str, NO_FUNCTION_TEXT, strlen(NO_FUNCTION_TEXT)) == 0)
		return SP_REDIS_ERROR_NO_FUNCTION;
	for (size_t i = SP_REDIS_ERROR_NO_FUNCTION + 1; i < SP_ARRAY_SIZE(error_table); i++)
		if (begins(reply, error_table[i].word, strlen(error_table[i].word)))
			return (enum sp_redis_error)i;
	return SP_REDIS_ERROR_OTHER;
}

const char *sp_redis_error_word(enum sp_redis_error error)
{
	return error_table[error].word;
}

int sp_redis_error_set(struct sp_err *err, const char *command, const redisReply *reply)
{
	enum sp_redis_error error = sp_redis_error_of(reply);
	char words[WORDS_MAX];

	sp_assert(error != SP_REDIS_ERROR_NONE);
	return sp_err_code(err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -error_table[error].number,
			   "'%s': the server answers: %s", command,
			   sp_log_quote(reply->str, words, sizeof(words)));
}

/* ---- looking into a reply ---- */

bool sp_redis_is_text(const redisReply *reply)
{
	return reply && (reply->type == REDIS_REPLY_STATUS || reply->type == REDIS_REPLY_STRING);
}

bool sp_redis_is_word(const redisReply *reply, const char *word)
{
	size_t len = strlen(word);

	return sp_redis_is_text(reply) && reply->len == len && memcmp(reply->str, word, len) == 0;
}

const char *sp_redis_status(const redisReply *reply)
{
	if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements == 0 ||
	    !sp_redis_is_text(reply->element[0]))
		return NULL;
	return reply->element[0]->str;
}
