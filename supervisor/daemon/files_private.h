/*
 * One operation on files or ports, from the record to init to its last callback.
 *
 *	WORKING ──RESULT, end of the channel, no progress, sandbox lost──► OVER ──callback──►
 *CLOSING └──────────────────────────── cancel ─────────────────────────────────────────────►
 *CLOSING
 *
 * OVER lasts to the end of the turn; the memory goes when the handle is closed. In CLOSING nothing
 * is called any more, and whoever is in the middle of something looks for it.
 */
#ifndef SP_DAEMON_FILES_PRIVATE_H
#define SP_DAEMON_FILES_PRIVATE_H

#include "pool/base/buf.h"
#include "supervisor/daemon/daemon_private.h"
#include "supervisor/daemon/files.h"
#include "supervisor/daemon/files_record.h"

enum file_op_state { FILE_OP_WORKING, FILE_OP_OVER, FILE_OP_CLOSING };

union file_callbacks {
	sp_file_stat_cb *stat;
	sp_file_open_cb *open;
	sp_file_done_cb *done;
	sp_file_write_back_cb *written_back;
	sp_port_connect_cb *connect;
	struct sp_file_list_events list;
	struct sp_file_write_events write;
};

struct sp_file_op {
	struct sp_list link;         /* in the sandbox's files, or empty */
	struct sp_list service_link; /* in service->files */
	struct sp_service *service;
	struct sandbox_link *sandbox; /* NULL once it is gone */
	enum sp_init_file_kind kind;
	enum file_op_state state;
	char pool_name[SP_POOL_NAME_MAX + 1];
	int64_t started_ns;

	uv_poll_t poll;
	int fd;
	int watched;
	struct sp_timer stall;
	struct sp_deferred finish;

	/* the outcome */
	struct sp_err failure; /* status 0: it went well */
	struct sp_file_info info;
	struct sp_file_counts counts;
	int result_fd;

	union file_callbacks on;
	void *arg;
	/* NULL: not wanted, or told already */
	void (*accounts)(void *accounts_arg, const struct sp_file_info *users,
			 const struct sp_file_info *groups);
	void *accounts_arg;

	/* LIST */
	uint32_t depth;
	uint32_t entries;
	size_t path_bytes; /* of all entries */

	/* WRITE */
	struct sp_buf outgoing;
	bool drain_wanted; /* somebody waits for room */
	bool commit_wanted;
	bool commit_sent;
	bool closed_inside; /* nobody reads what is sent; the reason is on its way */
	struct sp_deferred drained;

	uint16_t port;
	size_t path_length;
	char path[SP_FILE_PATH_MAX]; /* without slashes at the end */
};

/* The same; what a client holds of an upload. */
struct sp_file_write {
	struct sp_file_op op;
};

const char *file_op_name(const struct sp_file_op *op);
/* Watch for what is wanted now. */
void file_op_watch(struct sp_file_op *op);
/* Something went on. */
void file_op_moved(struct sp_file_op *op);
void file_op_fail(struct sp_file_op *op, enum sp_code code, int status, const char *why);

/* What is asked for; the rest of the record is the caller's. */
struct file_wish {
	enum sp_init_file_kind kind;
	const char *path; /* NULL: CONNECT */
	const char *to;   /* MOVE, else NULL */
	struct sp_init_file record;
};

/* Starts it; *ret_op has its callbacks to be filled in by the caller, at once. */
int file_op_begin(struct sp_service *service, const struct sp_caller *caller,
		  const struct sp_file_place *place, const struct file_wish *wish,
		  struct sp_file_op **ret_op, struct sp_err *err);

/* ---- files_write.c ---- */

void file_write_flush(struct sp_file_op *op);
void file_write_on_drained(struct sp_deferred *deferred);

#endif
