/*
 * The schema of the configuration: one table per scope. Reading, defaults, `config check`, the
 * dump, the digest of a sandbox and the reference page all walk these tables; a key exists nowhere
 * else.
 */
#ifndef SP_CONFIG_SCHEMA_H
#define SP_CONFIG_SCHEMA_H

#include "supervisor/config/config.h"

enum sp_schema_type {
	SP_SCHEMA_BOOL,     /* bool */
	SP_SCHEMA_U32,      /* uint32_t */
	SP_SCHEMA_U64,      /* uint64_t */
	SP_SCHEMA_REAL,     /* double */
	SP_SCHEMA_DURATION, /* int64_t, ms */
	SP_SCHEMA_SIZE,     /* uint64_t, bytes; SP_SIZE_AUTO for the special word */
	SP_SCHEMA_WORD,     /* index into words, of word_size bytes */
	SP_SCHEMA_STRING,   /* char * */
	SP_SCHEMA_STRINGS,  /* char ** and size_t, or char *[list_max] and size_t (INLINE) */
	SP_SCHEMA_BINDS,    /* struct sp_config_bind_root * and size_t */
	SP_SCHEMA_SECTION,  /* an object of the scope `section`, stored in the struct itself */
	SP_SCHEMA_POOLS,    /* an object of pools */
};

/* What kind of text a string must be; NULL or what is wrong with it ("must be …"). */
typedef const char *sp_schema_check(const char *text);

#define SP_SCHEMA_F_NULLABLE 0x01u /* STRING: "" is stored as NULL */
#define SP_SCHEMA_F_INLINE   0x02u /* STRINGS: the pointers are in the struct */
#define SP_SCHEMA_F_SPEC     0x04u /* a sandbox is made of it: part of the digest */
#define SP_SCHEMA_F_RESOLVED 0x08u /* only in resolved configurations, never in files */
#define SP_SCHEMA_F_PRIVATE  0x10u /* a bad value is not repeated in the message */
#define SP_SCHEMA_F_SECRET   0x20u /* dumped as "***" unless secrets are asked for */
#define SP_SCHEMA_F_REPEATS  0x40u /* STRINGS: equal entries are no mistake */

struct sp_schema_key {
	const char *name;
	enum sp_schema_type type;
	uint32_t flags;
	uint32_t offset;
	uint32_t count_offset; /* lists */
	uint32_t list_max;
	uint32_t word_size;
	uint32_t section; /* SECTION: enum sp_schema_scope_kind */
	int64_t min;      /* whole numbers, durations (ms), sizes (bytes) */
	int64_t max;
	double real_min;
	double real_max;
	const char *zero;         /* 0 is allowed below min too, and means this */
	const char *minus_one;    /* this word stands for -1 (SP_SIZE_AUTO) … */
	const char *meaning;      /* … and means this */
	const char *const *words; /* NULL-terminated */
	sp_schema_check *check;
	const char *fallback; /* JSON; NULL: what the scope's defaults function left there */
	const char *help;
};

enum sp_schema_scope_kind {
	SP_SCHEMA_GLOBAL,
	SP_SCHEMA_REDIS,
	SP_SCHEMA_POOL,
	SP_SCHEMA_POOL_LIMITS,
	SP_SCHEMA_POOL_WARMUP,
	SP_SCHEMA_POOL_READINESS
};

#define SP_SCHEMA_SCOPES 6u
#define SP_SIZE_AUTO     UINT64_MAX

struct sp_schema_scope {
	enum sp_schema_scope_kind kind;
	const char *title; /* of the reference page */
	const char *place; /* in messages */
	const char *intro;
	const struct sp_schema_key *keys;
	size_t count; /* ≤ 64: faults are tracked in a bit mask */
};

extern const struct sp_schema_scope sp_schema_scopes[SP_SCHEMA_SCOPES];

const struct sp_schema_key *sp_schema_find(const struct sp_schema_scope *scope, const char *name);
/* The known key or word that `text` probably meant, NULL if none is near. */
const char *sp_schema_nearest_key(const struct sp_schema_scope *scope, const char *text);
const char *sp_schema_nearest_word(const char *const *words, const char *text);

static inline void *sp_schema_at(void *base, uint32_t offset)
{
	return (char *)base + offset;
}

static inline const void *sp_schema_const_at(const void *base, uint32_t offset)
{
	return (const char *)base + offset;
}

/* The pointers of a STRINGS key. */
static inline char *const *sp_schema_strings(const struct sp_schema_key *key, const void *base)
{
	const void *at = sp_schema_const_at(base, key->offset);

	return (key->flags & SP_SCHEMA_F_INLINE) ? at : *(char **const *)at;
}

static inline size_t sp_schema_count(const struct sp_schema_key *key, const void *base)
{
	return *(const size_t *)sp_schema_const_at(base, key->count_offset);
}

/* Index of the word that is set. */
unsigned int sp_schema_word(const struct sp_schema_key *key, const void *base);

/* The checks (text_check.c). */
const char *sp_check_path(const char *text);
const char *sp_check_below_root(const char *text);
const char *sp_check_secret_file(const char *text);
const char *sp_check_name(const char *text);
const char *sp_check_user(const char *text);
const char *sp_check_hostname(const char *text);
const char *sp_check_image(const char *text);
const char *sp_check_listen(const char *text);
const char *sp_check_root(const char *text);
const char *sp_check_store(const char *text);
const char *sp_check_advertise(const char *text);
const char *sp_check_server_name(const char *text);
const char *sp_check_host_id(const char *text);
const char *sp_check_prefix(const char *text);
const char *sp_check_redis_user(const char *text);
const char *sp_check_api_key(const char *text);
const char *sp_check_pem(const char *text);
const char *sp_check_digest(const char *text);
const char *sp_check_argument(const char *text);
/* Of a valid address: does it leave the machine, is it TCP, is it TLS? */
bool sp_listen_is_tcp(const char *address);
bool sp_listen_is_tls(const char *address);
bool sp_listen_is_loopback(const char *address);

#endif
