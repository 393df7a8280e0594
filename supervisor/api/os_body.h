/*
 * The body of a create, read and judged as far as it can be without knowing the pools. Pure.
 */
#ifndef SP_API_OS_BODY_H
#define SP_API_OS_BODY_H

#include "pool/base/err.h"

#include <jansson.h>

#define SP_OS_TIMEOUT_MIN_S  60
#define SP_OS_TIMEOUT_MAX_S  (INT64_C(100) * 365 * 24 * 3600)
#define SP_OS_EXTEND_MIN_S   300
#define SP_OS_EXTEND_MAX_S   86400
#define SP_OS_ENTRYPOINT_MAX 1024u /* words */
#define SP_OS_ENV_MAX        1024u /* names */

/* Why a request is refused. code NULL: the body is not of its schema, which is answered as FastAPI
 * does, with the place in the body. */
struct sp_os_refusal {
	unsigned int status;
	const char *code;
	const char *part; /* of the request: "query"; NULL: "body" */
	char place[64];   /* "metadata", "image.uri"; "": all of that part */
	char message[SP_ERR_MESSAGE_MAX];
};

enum sp_os_egress { SP_OS_EGRESS_ANY, SP_OS_EGRESS_NONE, SP_OS_EGRESS_ALL };

/* Members that are NULL were not given. All borrowed from `root`. */
struct sp_os_create {
	json_t *root;
	const char *image;
	const char *pool;         /* extensions.poolRef */
	int64_t timeout_s;        /* 0: no expiry */
	int64_t cpu_millis;       /* 0: not asked for */
	uint64_t memory_bytes;    /* 0: not asked for */
	int64_t extend_s;         /* extensions["access.renew.extend.seconds"]; 0: not given */
	enum sp_os_egress egress; /* what its networkPolicy comes down to */
	json_t *entrypoint;       /* array of strings */
	json_t *env;              /* object of strings and nulls */
	json_t *metadata;         /* object of strings, judged */
	json_t *extensions;       /* object of strings */
	json_t *platform;         /* this one */
};

/* On success _done frees it. -EINVAL with *ret_refusal, -ENOMEM with a refusal too. */
int sp_os_create_parse(struct sp_os_create *create, const char *data, size_t len,
		       struct sp_os_refusal *ret_refusal);
void sp_os_create_done(struct sp_os_create *create);

/* The patch of metadata, applied to a copy: null removes. On success *ret_metadata is the caller's.
 * metadata may be NULL. */
int sp_os_metadata_patch(const json_t *metadata, const json_t *patch, json_t **ret_metadata,
			 struct sp_os_refusal *ret_refusal);

#endif
