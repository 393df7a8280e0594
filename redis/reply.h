/*
 * Replies: the bounded decoder over hiredis's reader, and what an error reply means.
 *
 * The only header that shows hiredis. Whoever reads a reply checks `type` first: a server may
 * answer anything with anything.
 */
#ifndef SP_REDIS_REPLY_H
#define SP_REDIS_REPLY_H

#include "pool/base/err.h"

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SP_REDIS_ELEMENTS_MAX 65536u /* elements of one reply, nested ones included */
#define SP_REDIS_LINE_MAX     65536u /* bytes before the line end of a header, status or error */

/* ---- decoder ---- */

struct sp_redis_decoder {
	redisReader *reader;
	redisReplyObjectFunctions functions;
	uint64_t fed;    /* bytes in all */
	uint64_t begun;  /* where the reply under way begins */
	size_t elements; /* announced by its arrays so far */
	bool too_many;   /* more than SP_REDIS_ELEMENTS_MAX */
};

/* 0 or -ENOMEM. The decoder must not move in memory. */
int sp_redis_decoder_init(struct sp_redis_decoder *decoder) SP_MUST_CHECK;
/* Harmless for one that is all zero. */
void sp_redis_decoder_done(struct sp_redis_decoder *decoder);
/* 0, -ENOMEM. */
int sp_redis_decoder_feed(struct sp_redis_decoder *decoder, const char *data, size_t len,
			  struct sp_err *err) SP_MUST_CHECK;
/* 1: *ret is the next reply, to be freed with freeReplyObject(). 0: not whole yet. -EPROTO: no
 * RESP2, too long (SP_REDIS_REPLY_MAX), too many elements, too deep; the decoder is of no use
 * afterwards. */
int sp_redis_decoder_next(struct sp_redis_decoder *decoder, redisReply **ret,
			  struct sp_err *err) SP_MUST_CHECK;

/* ---- error replies ---- */

/* X(identifier, first word on the wire, errno that goes with it) */
#define SP_REDIS_ERRORS(X)                    \
	X(READONLY, "READONLY", EROFS)        \
	X(LOADING, "LOADING", EAGAIN)         \
	X(MASTERDOWN, "MASTERDOWN", EAGAIN)   \
	X(MISCONF, "MISCONF", EIO)            \
	X(OOM, "OOM", ENOMEM)                 \
	X(CLUSTERDOWN, "CLUSTERDOWN", EAGAIN) \
	X(TRYAGAIN, "TRYAGAIN", EAGAIN)       \
	X(MOVED, "MOVED", EAGAIN)             \
	X(ASK, "ASK", EAGAIN)                 \
	X(CROSSSLOT, "CROSSSLOT", EINVAL)     \
	X(NOREPLICAS, "NOREPLICAS", EAGAIN)   \
	X(BUSY, "BUSY", EAGAIN)               \
	X(UNBLOCKED, "UNBLOCKED", EAGAIN)     \
	X(NOAUTH, "NOAUTH", EACCES)           \
	X(WRONGPASS, "WRONGPASS", EACCES)     \
	X(NOPERM, "NOPERM", EACCES)           \
	X(DENIED, "DENIED", EACCES)           \
	X(NOSCRIPT, "NOSCRIPT", ENOENT)       \
	X(IDONTKNOW, "IDONTKNOW", ENOENT)

enum sp_redis_error {
	SP_REDIS_ERROR_NONE,        /* no error reply */
	SP_REDIS_ERROR_OTHER,       /* ERR …, WRONGTYPE …, anything else */
	SP_REDIS_ERROR_NO_FUNCTION, /* ERR Function not found: it did not run */

#define SP_REDIS_ERROR_ENUM(id, word, number) SP_REDIS_ERROR_##id,
	SP_REDIS_ERRORS(SP_REDIS_ERROR_ENUM)
#undef SP_REDIS_ERROR_ENUM
};

enum sp_redis_error sp_redis_error_of(const redisReply *reply);
/* Its first word, "" for NONE. */
const char *sp_redis_error_word(enum sp_redis_error error);
/* Fill err from an error reply with POOL_STATE_STORE_UNAVAILABLE: "'<command>': <the server's
 * words>", escaped and cut. Returns its status. */
int sp_redis_error_set(struct sp_err *err, const char *command, const redisReply *reply);

/* ---- looking into a reply ---- */

/* A status or a string; NUL-terminated, but may hold NUL bytes. */
bool sp_redis_is_text(const redisReply *reply);
/* A status or string that is exactly this word. */
bool sp_redis_is_word(const redisReply *reply, const char *word);
/* The status word of a function's reply: the text that an array begins with; else NULL. */
const char *sp_redis_status(const redisReply *reply);

#endif
