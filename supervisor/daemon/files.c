/*
 * Files and ports inside a sandbox, the daemon's side: see files.h for what is promised and
 * init/protocol.h for who does it.
 *
 * One operation is one record to init, with one end of a socket pair, and then a conversation on
 * the other end with a helper that init forked. It is trusted with nothing: each record and each
 * descriptor is checked (files_record.c), and one that does not fit ends the sandbox. So do not
 * the ordinary ends of a helper (killed, out of memory, out of time): they are UNAVAILABLE.
 */
#include "supervisor/daemon/files_private.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"
#include "pool/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define RECORDS_PER_TURN 16
#define TURN_NS          (2 * SP_NS_PER_MS) /* after which no further record is looked at */

static const char *const names[] = {
	[SP_INIT_FILE_STAT] = "stat",         [SP_INIT_FILE_OPEN] = "open",
	[SP_INIT_FILE_LIST] = "list",         [SP_INIT_FILE_MKDIR] = "mkdir",
	[SP_INIT_FILE_REMOVE] = "remove",     [SP_INIT_FILE_MOVE] = "move",
	[SP_INIT_FILE_CHANGE] = "change",     [SP_INIT_FILE_WRITE] = "write",
	[SP_INIT_FILE_CONNECT] = "connect",   [SP_INIT_FILE_DIFF] = "diff",
	[SP_INIT_FILE_WRITE_BACK] = "commit", [SP_INIT_FILE_RENEW] = "renew",
	[SP_INIT_FILE_RECOVER] = "recover",   [SP_INIT_FILE_USED] = "used",
};

const char *file_op_name(const struct sp_file_op *op)
{
	return names[op->kind];
}

/* ---- end ---- */

static void on_closed(uv_handle_t *handle)
{
	struct sp_file_op *op = handle->data;

	sp_fd_close(&op->fd);
	free(SP_CONTAINER_OF(op, struct sp_file_write, op));
}

static void detach(struct sp_file_op *op)
{
	if (op->sandbox)
		op->sandbox->file_count--;
	op->sandbox = NULL;
	sp_list_remove(&op->link);
}

/* No callback after this. With our end of the channel the helper goes. */
static void op_close(struct sp_file_op *op)
{
	struct sp_service *service = op->service;

	op->state = FILE_OP_CLOSING;
	detach(op);
	sp_list_remove(&op->service_link);
	sp_timer_done(&service->timers, &op->stall);
	sp_deferred_cancel(&op->finish);
	sp_deferred_cancel(&op->drained);
	sp_buf_done(&op->outgoing);
	sp_fd_discard(&op->result_fd);
	(void)shutdown(op->fd, SHUT_RDWR);
	uv_close((uv_handle_t *)&op->poll, on_closed);
	stop_progress(service);
}

static void count(const struct sp_file_op *op, const char *result)
{
	metrics_file(op->service, op->pool_name, file_op_name(op), result,
		     (double)(sp_clock_boot_ns() - op->started_ns) / (double)SP_NS_PER_S);
}

/* The owner may do anything in its callback: what it gets is copied, the operation is closed. */
static void on_finish(struct sp_deferred *deferred)
{
	struct sp_file_op *op = SP_CONTAINER_OF(deferred, struct sp_file_op, finish);
	const union file_callbacks on = op->on;
	const struct sp_err failure = op->failure;
	const struct sp_file_info info = op->info;
	const struct sp_file_counts counts = op->counts;
	const struct sp_err *err = failure.status < 0 ? &failure : NULL;
	enum sp_init_file_kind kind = op->kind;
	int fd = sp_take_fd(&op->result_fd);
	void *arg = op->arg;

	count(op, err ? sp_code_name(failure.code) : "ok");
	op_close(op);
	switch (kind) {
	case SP_INIT_FILE_STAT:
	case SP_INIT_FILE_USED:
		on.stat(arg, err ? NULL : &info, err);
		return;
	case SP_INIT_FILE_OPEN:
	case SP_INIT_FILE_DIFF:
		on.open(arg, fd, err ? NULL : &info, err);
		return;
	case SP_INIT_FILE_CONNECT:
		on.connect(arg, fd, err);
		return;
	case SP_INIT_FILE_LIST:
		on.list.done(arg, err);
		return;
	case SP_INIT_FILE_WRITE:
		on.write.done(arg, err);
		return;
	case SP_INIT_FILE_WRITE_BACK:
		on.written_back(arg, err ? NULL : &counts, err);
		return;
	case SP_INIT_FILE_MKDIR:
	case SP_INIT_FILE_REMOVE:
	case SP_INIT_FILE_MOVE:
	case SP_INIT_FILE_CHANGE:
	case SP_INIT_FILE_RENEW:
	case SP_INIT_FILE_RECOVER:
		on.done(arg, err);
		return;
	}
}

static void op_over(struct sp_file_op *op)
{
	op->state = FILE_OP_OVER;
	op->watched = 0;
	(void)uv_poll_stop(&op->poll);
	sp_timer_set(&op->service->timers, &op->stall, INT64_MAX);
	sp_defer(&op->service->deferred, &op->finish);
}

void file_op_fail(struct sp_file_op *op, enum sp_code code, int status, const char *why)
{
	if (op->state != FILE_OP_WORKING)
		return;
	if (op->kind == SP_INIT_FILE_CONNECT)
		(void)sp_err_code(&op->failure, code, status, "connect to port %u: %s", op->port,
				  why);
	else
		(void)sp_err_code(&op->failure, code, status, "%s '%.350s': %s", file_op_name(op),
				  op->path, why);
	op_over(op);
}

static void fail_errno(struct sp_file_op *op, int status)
{
	file_op_fail(op, files_code(op->kind, status), status, strerror(-status));
}

/* Of an overlay: the stage says more than the errno, and the object is below the base. */
static void fail_result(struct sp_file_op *op, const struct sp_init_file_result *result)
{
	enum sp_code code = files_code(op->kind, result->status);
	const char *why = files_commit_refusal(result->stage, &code);

	if (op->kind != SP_INIT_FILE_WRITE_BACK && op->kind != SP_INIT_FILE_RECOVER) {
		fail_errno(op, result->status);
		return;
	}
	if (op->state != FILE_OP_WORKING)
		return;
	if (!why)
		why = strerror(-result->status);
	(void)sp_err_code(&op->failure, code, result->status, "%s: %s%s%.200s%s", file_op_name(op),
			  why, result->object[0] != '\0' ? ": '" : "", result->object,
			  result->object[0] != '\0' ? "'" : "");
	op_over(op);
}

static void violation(struct sp_file_op *op)
{
	struct sandbox_link *link = op->sandbox;

	file_op_fail(op, SP_CODE_SANDBOX_DEAD, -EBADMSG, "the sandbox broke the protocol");
	if (link)
		sandbox_bad_record(link, file_op_name(op));
}

void files_sandbox_lost(struct sandbox_link *link)
{
	struct sp_file_op *op;

	while ((op = SP_LIST_FIRST(&link->files, struct sp_file_op, link))) {
		file_op_fail(op, SP_CODE_SANDBOX_DEAD, -ESRCH, "the sandbox has ended");
		detach(op);
	}
}

void files_drop_all(struct sp_service *service)
{
	struct sp_file_op *op;

	while ((op = SP_LIST_FIRST(&service->files, struct sp_file_op, service_link)))
		op_close(op);
}

void sp_file_op_cancel(struct sp_file_op *op)
{
	count(op, "cancelled");
	op_close(op);
}

static void on_stall(struct sp_timer *timer)
{
	struct sp_file_op *op = SP_CONTAINER_OF(timer, struct sp_file_op, stall);

	file_op_fail(op, SP_CODE_UNAVAILABLE, -ETIMEDOUT, "no progress");
}

void file_op_moved(struct sp_file_op *op)
{
	sp_timer_set(&op->service->timers, &op->stall, sp_clock_boot_ms() + SP_FILE_STALL_MS);
}

/* ---- what comes back ---- */

/* Its own end, or that of everything around it. */
static void on_end(struct sp_file_op *op)
{
	if (op->sandbox && sandbox_usable(op->sandbox))
		file_op_fail(op, SP_CODE_UNAVAILABLE, -ECANCELED, "it was ended inside");
	else
		file_op_fail(op, SP_CODE_SANDBOX_DEAD, -ESRCH, "the sandbox has ended");
}

static bool opens_file(const struct sp_file_op *op)
{
	return op->kind == SP_INIT_FILE_OPEN || op->kind == SP_INIT_FILE_DIFF;
}

static bool diff_is_too_long(const struct sp_file_op *op)
{
	uint64_t limit = op->sandbox ? op->sandbox->pool->config->diff_bytes : 0;

	return limit > 0 && op->info.size > limit;
}

/* The descriptor of an OPEN, DIFF or CONNECT that went well. */
static void take_result_fd(struct sp_file_op *op, int *fds, size_t fd_count)
{
	int status;

	if (fd_count == 0 || fds[0] >= op->service->fd_ceiling) {
		file_op_fail(op, SP_CODE_UNAVAILABLE, -EMFILE,
			     "the daemon has too many descriptors open");
		return;
	}
	if (opens_file(op))
		status = files_regular_check(fds[0], &op->info);
	else
		status = files_socket_check(fds[0], op->port);
	if (status < 0) {
		violation(op);
		return;
	}
	if (op->kind == SP_INIT_FILE_DIFF && diff_is_too_long(op)) {
		file_op_fail(op, SP_CODE_PAYLOAD_TOO_LARGE, -EFBIG,
			     "the archive is longer than limits.diff of the pool");
		return;
	}
	op->result_fd = sp_take_fd(&fds[0]);
	op_over(op);
}

static void on_result(struct sp_file_op *op, const void *record, size_t len, int *fds,
		      size_t fd_count, bool lost)
{
	bool has_info =
		op->kind == SP_INIT_FILE_STAT || op->kind == SP_INIT_FILE_USED || opens_file(op);
	bool has_fd = opens_file(op) || op->kind == SP_INIT_FILE_CONNECT;
	struct sp_init_file_result result;

	if (files_result_check(record, len, has_info) < 0) {
		violation(op);
		return;
	}
	memcpy(&result, record, sizeof(result));
	has_fd = has_fd && result.status == 0;
	if (fd_count > 1 || (fd_count == 1 && !has_fd) || (has_fd && fd_count == 0 && !lost)) {
		violation(op);
		return;
	}
	if (result.status < 0) {
		fail_result(op, &result);
		return;
	}
	if (op->kind == SP_INIT_FILE_WRITE_BACK)
		op->counts = (struct sp_file_counts){
			.files = result.counts.files,
			.directories = result.counts.directories,
			.deleted = result.counts.deleted,
			.bytes = result.counts.bytes,
		};
	if (has_info)
		(void)files_info_take(&result.info, &op->info);
	if (has_fd)
		take_result_fd(op, fds, fd_count);
	else if (op->kind == SP_INIT_FILE_WRITE && !op->commit_sent)
		violation(op);
	else
		op_over(op);
}

static int check_room(struct sp_file_op *op, const struct files_entry *entry)
{
	size_t prefix = op->path_length > 1 ? op->path_length + 1 : 1;

	if (prefix + entry->path_length >= SP_FILE_PATH_MAX || op->entries >= SP_FILE_LIST_MAX)
		return -EBADMSG; /* inside knows these limits, and says which one it is */
	op->entries++;
	op->path_bytes += prefix + entry->path_length;
	if (op->path_bytes <= SP_FILE_LIST_BYTES_MAX)
		return 0;
	file_op_fail(op, SP_CODE_TOO_MANY, -E2BIG, "the names in it are too long in all");
	return 1;
}

/* The owner may cancel in each call. */
static void on_found(struct sp_file_op *op, const void *record, size_t len)
{
	char path[SP_FILE_PATH_MAX];
	size_t prefix = op->path_length > 1 ? op->path_length : 0;
	struct files_entries entries;
	struct files_entry entry;
	int status = op->kind == SP_INIT_FILE_LIST
			     ? files_entries_open(&entries, record, len, op->depth)
			     : -EBADMSG;

	memcpy(path, op->path, prefix);
	path[prefix] = '/';
	if (status < 0) {
		violation(op);
		return;
	}
	while ((status = files_entries_next(&entries, &entry)) == 1) {
		status = check_room(op, &entry);
		if (status != 0)
			break;
		memcpy(path + prefix + 1, entry.path, entry.path_length + 1);
		op->on.list.entry(op->arg, path, &entry.info);
		if (op->state != FILE_OP_WORKING)
			return;
	}
	if (status < 0)
		violation(op);
}

/* The owner may cancel in the call. */
static void on_accounts(struct sp_file_op *op, const void *record, size_t len)
{
	void (*told)(void *, const struct sp_file_info *, const struct sp_file_info *) =
		op->accounts;
	struct sp_file_info users;
	struct sp_file_info groups;

	op->accounts = NULL;
	if (!told || files_accounts_take(record, len, &users, &groups) < 0)
		violation(op);
	else
		told(op->accounts_arg, &users, &groups);
}

static void on_record(struct sp_file_op *op, const void *record, size_t len, int *fds,
		      size_t fd_count, bool lost)
{
	struct sp_init_file_record_header header = {0};

	memcpy(&header, record, SP_MIN(len, sizeof(header)));
	if (header.type == SP_INIT_FILE_RESULT)
		on_result(op, record, len, fds, fd_count, lost);
	else if (header.type == SP_INIT_FILE_FOUND && fd_count == 0)
		on_found(op, record, len);
	else if (header.type == SP_INIT_FILE_ACCOUNTS && fd_count == 0)
		on_accounts(op, record, len);
	else if (header.type != SP_INIT_FILE_PROGRESS || len != sizeof(header) || fd_count > 0)
		violation(op);
}

/* One record. False: nothing more to read now. */
static bool receive(struct sp_file_op *op)
{
	_Alignas(max_align_t) char record[SP_INIT_FILE_REPLY];
	int fds[SP_MSG_FDS_MAX];
	size_t fd_count = 0;
	bool lost = false;
	ssize_t got = sp_msg_receive_any(op->fd, record, sizeof(record), fds, &fd_count, &lost);

	/* Inside closed its end with something of ours unread: said once, and what it sent is still
	 * there. */
	if (got == -ECONNRESET)
		return true;
	if (got == -EAGAIN)
		return false;
	if (got == -EMSGSIZE)
		violation(op);
	else if (got <= 0)
		on_end(op);
	if (got <= 0)
		return false;
	file_op_moved(op);
	on_record(op, record, (size_t)got, fds, fd_count, lost);
	for (size_t i = 0; i < fd_count; i++)
		sp_fd_discard(&fds[i]);
	return true;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct sp_file_op *op = poll->data;
	int64_t until_ns = sp_clock_boot_ns() + TURN_NS;

	if (op->state != FILE_OP_WORKING)
		return;
	if (status < 0) {
		op->watched = 0; /* stopped; a read says what is the matter */
		events = UV_READABLE;
	}
	for (int i = 0; i < RECORDS_PER_TURN && (events & UV_READABLE) != 0; i++)
		if (!receive(op) || op->state != FILE_OP_WORKING || sp_clock_boot_ns() > until_ns)
			break;
	if (op->state == FILE_OP_WORKING && (events & UV_WRITABLE) != 0)
		file_write_flush(op);
	if (op->state == FILE_OP_WORKING)
		file_op_watch(op);
}

void file_op_watch(struct sp_file_op *op)
{
	int events = UV_READABLE;

	if (!op->closed_inside && (op->outgoing.len > 0 || op->commit_wanted != op->commit_sent))
		events |= UV_WRITABLE;
	if (op->state != FILE_OP_WORKING || op->watched == events)
		return;
	op->watched = events;
	(void)uv_poll_start(&op->poll, events, on_poll);
}

/* ---- start ---- */

static int check_path(const char *path, struct sp_err *err)
{
	if (path[0] != '/')
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "path '%.350s' is not absolute", path);
	if (strlen(path) >= SP_FILE_PATH_MAX)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -ENAMETOOLONG,
				   "path '%.350s…' has more than %u bytes", path,
				   SP_FILE_PATH_MAX - 1);
	return 0;
}

/* -1 is the workload's. On the host (DIRECT) there is nobody else. */
static int choose_id(const struct sandbox_link *link, const char *what, int64_t wanted,
		     uint32_t workload, uint32_t *ret, struct sp_err *err)
{
	*ret = workload;
	if (wanted == -1 || wanted == (int64_t)workload)
		return 0;
	if (link->direct || wanted < 1 || wanted > SP_ID_INSIDE_MAX)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "%s %lld cannot be used in sandbox '%s'", what,
				   (long long)wanted, link->id);
	*ret = (uint32_t)wanted;
	return 0;
}

static int find_place(struct sp_service *service, const struct sp_caller *caller,
		      const struct sp_file_place *place, struct sp_init_file *record,
		      struct sandbox_link **ret_link, struct sp_err *err)
{
	struct sandbox_link *link;
	int status;

	if (service->stopping)
		return sp_err_code(err, SP_CODE_UNAVAILABLE, -ESHUTDOWN,
				   "the daemon is shutting down");
	status = service_find(service, caller, place->sandbox, &link, err);
	if (status == 0 && place->session != 0 && !isolated_is_open(link, place->session))
		return sp_err_code(err, SP_CODE_NOT_FOUND, -ESRCH, "no such isolated session");
	record->session = place->session;
	record->overlay = place->overlay;
	if (status == 0)
		status = sandbox_enter(link, err);
	if (status == 0)
		status = choose_id(link, "uid", place->uid, link->workload_uid, &record->uid, err);
	if (status == 0)
		status = choose_id(link, "gid", place->gid, link->workload_gid, &record->gid, err);
	if (status < 0)
		return status;
	if (link->file_count >= SP_FILE_OPS_MAX)
		return sp_err_code(err, SP_CODE_TOO_MANY, -EAGAIN,
				   "%u operations on files are under way in sandbox '%s'",
				   link->file_count, link->id);
	*ret_link = link;
	return 0;
}

static void set_path(struct sp_file_op *op, const char *path)
{
	size_t len = strlen(path);

	while (len > 1 && path[len - 1] == '/')
		len--;
	memcpy(op->path, path, len);
	op->path[len] = '\0';
	op->path_length = len;
}

static int op_new(struct sandbox_link *link, int fd, struct sp_file_op **ret_op)
{
	struct sp_service *service = link->service;
	struct sp_file_write *whole = calloc(1, sizeof(*whole));
	struct sp_file_op *op = whole ? &whole->op : NULL;
	int status = -ENOMEM;

	if (!op || sp_timer_init(&service->timers, &op->stall, on_stall) < 0)
		goto fail;
	status = uv_poll_init(service->loop, &op->poll, fd); /* makes our end non-blocking */
	if (status < 0) {
		sp_timer_done(&service->timers, &op->stall);
		goto fail;
	}
	op->poll.data = op;
	op->fd = fd;
	op->service = service;
	op->sandbox = link;
	op->result_fd = -1;
	op->started_ns = sp_clock_boot_ns();
	memcpy(op->pool_name, link->pool->config->policy.name, sizeof(op->pool_name));
	sp_buf_init(&op->outgoing, SP_FILE_WRITE_MAX);
	sp_deferred_init(&op->finish, on_finish);
	sp_deferred_init(&op->drained, file_write_on_drained);
	sp_list_append(&link->files, &op->link);
	sp_list_append(&service->files, &op->service_link);
	link->file_count++;
	*ret_op = op;
	return 0;
fail:
	free(whole);
	return status;
}

static int make_channel(const struct sp_service *service, int ends[2], struct sp_err *err)
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
		return sp_err_code(err, SP_CODE_UNAVAILABLE, -errno, "make a channel for a file");
	if (SP_MAX(ends[0], ends[1]) < service->fd_ceiling)
		return 0;
	sp_fd_close(&ends[0]);
	sp_fd_close(&ends[1]);
	return sp_err_code(err, SP_CODE_UNAVAILABLE, -EMFILE,
			   "the daemon has too many descriptors open");
}

/* The record, its paths, and the other end of the channel. */
static int send_request(struct sp_file_op *op, const struct sp_init_file *record, const char *to,
			int channel_fd)
{
	struct {
		struct sp_init_file head;
		char text[2 * SP_FILE_PATH_MAX];
	} message = {.head = *record};

	size_t len = sizeof(message.head);

	message.head.header.type = SP_INIT_FILE;
	message.head.kind = op->kind;
	if (op->kind != SP_INIT_FILE_CONNECT) {
		message.head.path_length = (uint32_t)op->path_length;
		memcpy(message.text, op->path, op->path_length + 1);
		len += op->path_length + 1;
	}
	if (to) {
		message.head.to_length = (uint32_t)strlen(to);
		memcpy((char *)&message + len, to, strlen(to) + 1);
		len += strlen(to) + 1;
	}
	return sandbox_send(op->sandbox, &message, len, &channel_fd, 1);
}

static bool wants_accounts(enum sp_init_file_kind kind, const struct sp_file_place *place)
{
	return place->accounts && (kind == SP_INIT_FILE_STAT || kind == SP_INIT_FILE_LIST);
}

int file_op_begin(struct sp_service *service, const struct sp_caller *caller,
		  const struct sp_file_place *place, const struct file_wish *wish,
		  struct sp_file_op **ret_op, struct sp_err *err)
{
	struct sp_init_file record = wish->record;
	struct sandbox_link *link = NULL;
	struct sp_file_op *op = NULL;
	int ends[2] = {-1, -1};
	int status = wish->path ? check_path(wish->path, err) : 0;

	if (status == 0 && wish->to)
		status = check_path(wish->to, err);
	if (status == 0)
		status = find_place(service, caller, place, &record, &link, err);
	if (status == 0)
		status = make_channel(service, ends, err);
	if (status < 0)
		return status;
	sp_assert(link); /* said for the analyzer, as below */
	status = op_new(link, ends[0], &op);
	if (status < 0) {
		sp_fd_close(&ends[0]);
		sp_fd_close(&ends[1]);
		return sp_err_set(err, status, "operation on a file");
	}
	sp_assert(op);
	op->kind = wish->kind;
	if (wants_accounts(op->kind, place)) {
		record.flags |= SP_INIT_FILE_F_ACCOUNTS;
		op->accounts = place->accounts;
		op->accounts_arg = place->accounts_arg;
	}
	if (wish->path)
		set_path(op, wish->path);
	status = send_request(op, &record, wish->to, ends[1]);
	sp_fd_close(&ends[1]);
	if (status < 0) {
		op_close(op);
		return sp_err_code(err, SP_CODE_SANDBOX_DEAD, status,
				   "sandbox '%s' does not listen", place->sandbox);
	}
	file_op_moved(op);
	file_op_watch(op);
	*ret_op = op;
	return 0;
}
