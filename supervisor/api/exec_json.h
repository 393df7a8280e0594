/*
 * The JSON of execs and acquires: START and acquire bodies in, STARTED and RESULT out. The same for
 * the framed stream and the plain form.
 */
#ifndef SP_API_EXEC_JSON_H
#define SP_API_EXEC_JSON_H

#include "supervisor/api/json_out.h"
#include "supervisor/daemon/service.h"

#include <jansson.h>

#define SP_API_DEFAULT_WAIT_MS (30 * SP_MS_PER_S) /* of policies that wait or create */

/* What a body says; everything in it is borrowed from `root`. */
struct sp_acquire_body {
	json_t *root;
	struct sp_service_acquire acquire;
	struct sp_bind_request binds[SP_BINDS_MAX];
};

/* pool is borrowed. On success _done frees it. INVALID_ARGUMENT, -ENOMEM. */
int sp_acquire_body_parse(struct sp_acquire_body *body, const char *pool, const char *data,
			  size_t len, struct sp_err *err);
void sp_acquire_body_done(struct sp_acquire_body *body);

#define SP_START_RUN   0x1u /* members of an acquire are legal, `acquire` is filled */
#define SP_START_PLAIN 0x2u /* "stdin_text" instead of "stdin" */

struct sp_start_body {
	json_t *root;
	struct sp_exec_spec spec;
	const char *stdin_text; /* PLAIN; NULL if absent */
	size_t stdin_text_len;
	bool release; /* stream in a held sandbox: with the stream's end that of the sandbox */
	struct sp_service_acquire acquire;
	struct sp_bind_request binds[SP_BINDS_MAX];
	const char **argv; /* owned arrays */
	char **env;        /* owned strings "NAME=value" */
};

/* pool: borrowed, for RUN. */
int sp_start_body_parse(struct sp_start_body *body, unsigned int flags, const char *pool,
			const char *data, size_t len, struct sp_err *err);
void sp_start_body_done(struct sp_start_body *body);

void sp_started_write(struct sp_json_out *out, const char *sandbox_id, const char *pool);
/* The RESULT object, as a value under `key` (NULL: alone). */
void sp_result_write(struct sp_json_out *out, const char *key, const struct sp_exec_result *result);

#endif
