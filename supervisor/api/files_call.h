/*
 * A request about the files of a sandbox: what its handlers share.
 *
 * Each is a chain of operations of daemon/files.h, one at a time, begun by sp_files_call_run() and
 * ended by exactly one sp_files_reply_…(), which also frees the call. A client that leaves ends it
 * likewise, with nothing of it running on.
 *
 *	run → start → operation … callback → operation … callback → reply
 *
 * The same handlers serve execd's routes (request->os) and our own (/v1/sandboxes/{id}/files…):
 * they differ in how paths are read (execd expands `~` and variables) and how errors are worded.
 */
#ifndef SP_API_FILES_CALL_H
#define SP_API_FILES_CALL_H

#include "supervisor/api/api_private.h"
#include "supervisor/api/file_reader.h"
#include "supervisor/daemon/files.h"

#include <jansson.h>

#define SP_FILES_ITEMS_MAX 1024u /* of one map or list in a request */
/* Calls at once in one sandbox; further ones wait for their turn. The rest of SP_FILE_OPS_MAX is
 * left to others. */
#define SP_FILES_CALLS_MAX (SP_FILE_OPS_MAX * 3 / 4)

struct sp_files_call {
	struct sp_api *api;
	struct sp_request *request; /* until the answer */
	struct sp_file_place place;
	struct sp_file_op *op; /* running, or NULL; its callback sets it to NULL */
	void (*release)(struct sp_files_call *); /* frees the container and what it holds */
	bool starting;                           /* inside sp_files_call_run() */
	bool finished;                           /* replied while it was */
	struct sp_list turn;                     /* in the api's running or waiting calls */
	void (*on_turn)(struct sp_files_call *); /* NULL: it is not waiting */

	struct sp_account_set *accounts; /* NULL: not known, or without memory for them */
	struct sp_account_file *loading; /* which of them */
	int64_t opened_ms;               /* wall clock */
	struct sp_file_reader *reader;
	struct sp_buf text;
	void (*accounts_ready)(struct sp_files_call *call); /* NULL: not asked for yet */

	struct sp_buf body; /* of a JSON answer, written through … */
	struct sp_json_out out;
	size_t charged; /* of it, in api->plain_bytes */
};

/* A zeroed container's call. */
void sp_files_call_init(struct sp_files_call *call, struct sp_request *request,
			void (*release)(struct sp_files_call *call));
/* For `release`: what is in the call itself. */
void sp_files_call_done(struct sp_files_call *call);
/* Is there such a sandbox, and is it the caller's? Before anything is done for him. */
int sp_files_check_sandbox(const struct sp_request *request, struct sp_err *err);
/* Check that, and run `start`, which begins an operation or replies, when it is the call's turn.
 * The call may be gone afterwards. */
void sp_files_call_run(struct sp_files_call *call, void (*start)(struct sp_files_call *call));
/* For those who begin otherwise, or are done with operations before they are done: run `start` when
 * it is the call's turn, which may be at once; let another have the turn. */
void sp_files_take_turn(struct sp_files_call *call, void (*start)(struct sp_files_call *call));
void sp_files_end_turn(struct sp_files_call *call);

/* The ends. Each takes the call. */
void sp_files_reply_error(struct sp_files_call *call, const struct sp_err *err);
void sp_files_reply_status(struct sp_files_call *call, unsigned int status);
void sp_files_reply_json(struct sp_files_call *call); /* 200 with `body` */
/* What execd answers with 500 whatever the reason is. */
void sp_files_reply_failure(struct sp_files_call *call, const struct sp_err *err);
/* Something else answers: only forget the call. */
void sp_files_reply_elsewhere(struct sp_files_call *call);

/* A client's path into an absolute one of at most SP_FILE_PATH_MAX bytes. */
int sp_files_path(const struct sp_request *request, const char *text, char *out,
		  struct sp_err *err);
/* The parameter `path`; MISSING_QUERY of execd if there is none. 0, or negative and replied. */
int sp_files_query_path(struct sp_files_call *call, char *out);

/* For a call that only shows names: `ready` begins with a stat or a listing, whose helper also says
 * whether names that are known already are still true. If they are not it is called once more, with
 * the operation cancelled. */
void sp_files_show_accounts(struct sp_files_call *call, void (*ready)(struct sp_files_call *call));
/* Read the sandbox's account files, then call `ready`, which may be before this returns. A file
 * that cannot be read knows nobody. Once for a call: a second time nothing is read. */
void sp_files_load_accounts(struct sp_files_call *call, void (*ready)(struct sp_files_call *call));
/* Add a FileInfo; key NULL inside arrays. UNAVAILABLE: too much is under way. */
int sp_files_write_info(struct sp_files_call *call, const char *key, const char *path,
			const struct sp_file_info *info, struct sp_err *err);

/* The body as an object or array of at most SP_FILES_ITEMS_MAX items. 0, or negative and replied.
 */
int sp_files_body(struct sp_files_call *call, bool array, json_t **ret_body);

/* {"mode", "owner", "group"} as clients write them; borrowed from the JSON. */
struct sp_files_permission {
	int64_t mode; /* octal as decimal: 755; 0 = leave it */
	const char *owner;
	const char *group; /* NULL or "": leave it */
};

struct sp_files_ids {
	uint32_t mode; /* SP_FILE_KEEP: leave it */
	uint32_t uid;
	uint32_t gid;
};

/* INVALID_ARGUMENT names the member; `where` as in sp_body_read(). */
int sp_files_permission_read(const json_t *object, const char *where,
			     struct sp_files_permission *ret_permission, struct sp_err *err);
bool sp_files_permission_needs_accounts(const struct sp_files_permission *permission);
/* Set-id and sticky bits are dropped. INVALID_ARGUMENT: no octal number, nobody of that name. */
int sp_files_permission_resolve(const struct sp_files_call *call,
				const struct sp_files_permission *permission,
				struct sp_files_ids *ret_ids, struct sp_err *err);

#endif
