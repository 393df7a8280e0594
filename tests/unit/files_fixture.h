/*
 * Operations on files in a real sandbox (daemon_fixture.h), and a way to play their helper.
 */
#ifndef SP_TESTS_FILES_FIXTURE_H
#define SP_TESTS_FILES_FIXTURE_H

#include "daemon_fixture.h"

#include "pool/base/fd.h"
#include "supervisor/daemon/files.h"
#include "supervisor/daemon/files_private.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#define FILES_POOL                                                                           \
	"\"default\": {\"max_idle\": 1, \"limits\": {\"memory\": \"96MiB\", \"pids\": 128, " \
	"\"tmp\": \"64MiB\"}}"

/* What became of one. */
struct fate {
	bool done;
	bool failed;
	struct sp_err err;
	struct sp_file_info info;
	int fd;
	size_t entries;
	char first[256];
	unsigned int drained;
	struct sp_file_op *op;
	struct sp_file_write *write;
	bool cancel_at_entry;
};

static inline void fate_end(struct fate *fate, const struct sp_err *err)
{
	cr_assert(!fate->done, "called back twice");
	fate->done = true;
	fate->failed = err != NULL;
	if (err)
		fate->err = *err;
}

static inline void fate_on_stat(void *arg, const struct sp_file_info *info,
				const struct sp_err *err)
{
	struct fate *fate = arg;

	fate_end(fate, err);
	cr_assert(!info == !!err);
	if (info)
		fate->info = *info;
}

static inline void fate_on_open(void *arg, int fd, const struct sp_file_info *info,
				const struct sp_err *err)
{
	struct fate *fate = arg;

	fate_on_stat(fate, info, err);
	cr_assert((fd >= 0) == !err);
	fate->fd = fd;
}

static inline void fate_on_connect(void *arg, int fd, const struct sp_err *err)
{
	struct fate *fate = arg;

	fate_end(fate, err);
	cr_assert((fd >= 0) == !err);
	fate->fd = fd;
}

static inline void fate_on_done(void *arg, const struct sp_err *err)
{
	fate_end(arg, err);
}

static inline void fate_on_entry(void *arg, const char *path, const struct sp_file_info *info)
{
	struct fate *fate = arg;

	cr_assert(!fate->done && info->type <= SP_FILE_OTHER);
	if (fate->entries++ == 0)
		(void)snprintf(fate->first, sizeof(fate->first), "%s", path);
	if (fate->cancel_at_entry) {
		sp_file_op_cancel(fate->op);
		fate->op = NULL;
	}
}

static inline void fate_on_drained(void *arg)
{
	struct fate *fate = arg;

	cr_assert(!fate->done);
	fate->drained++;
}

static const struct sp_file_list_events fate_list = {.entry = fate_on_entry, .done = fate_on_done};
static const struct sp_file_write_events fate_write = {.drained = fate_on_drained,
						       .done = fate_on_done};

static inline struct sp_file_place place_of(const struct held *held)
{
	return (struct sp_file_place){.sandbox = held->id, .uid = -1, .gid = -1};
}

/* One call of files.h that takes a path and fate: its status; a refusal is in fate->err. */
#define FILE_BEGIN(call, live, held, fate, ...)                                                 \
	__extension__({                                                                         \
		struct sp_file_place at_ = place_of(held);                                      \
		memset((fate), 0, sizeof(*(fate)));                                             \
		(fate)->fd = -1;                                                                \
		int status_ = call((live)->service, &(held)->caller, &at_, __VA_ARGS__, (fate), \
				   &(fate)->op, &(fate)->err);                                  \
		cr_assert(!(fate)->done, "called back from inside");                            \
		status_;                                                                        \
	})

/* The same, to its end: true when it went well. */
#define FILE_DO(call, live, held, fate, ...)                             \
	__extension__({                                                  \
		if (FILE_BEGIN(call, live, held, fate, __VA_ARGS__) < 0) \
			(fate)->done = (fate)->failed = true;            \
		LIVE_WAIT(live, (fate)->done);                           \
		!(fate)->failed;                                         \
	})

static inline int write_begin(struct live *live, const struct held *held, struct fate *fate,
			      const char *path)
{
	struct sp_file_place place = place_of(held);

	memset(fate, 0, sizeof(*fate));
	return sp_file_write_open(live->service, &held->caller, &place, path, SP_FILE_KEEP,
				  SP_FILE_KEEP, SP_FILE_KEEP, &fate_write, fate, &fate->write,
				  &fate->err);
}

/* All of it, with as many waits as it takes. */
static inline void write_all_data(struct live *live, struct fate *fate, const char *data,
				  size_t len)
{
	size_t at = 0;

	while (!fate->done && at < len) {
		unsigned int before = fate->drained;

		at += sp_file_write_data(fate->write, data + at, len - at);
		if (at < len)
			LIVE_WAIT(live, fate->drained > before || fate->done);
	}
}

static inline bool put_file(struct live *live, const struct held *held, struct fate *fate,
			    const char *path, const char *data, size_t len)
{
	if (write_begin(live, held, fate, path) < 0)
		return false;
	write_all_data(live, fate, data, len);
	if (!fate->done)
		sp_file_write_commit(fate->write);
	LIVE_WAIT(live, fate->done);
	return !fate->failed;
}

static inline void sandbox_shell(struct live *live, const struct held *held, const char *script)
{
	COMMAND(command, "/bin/sh", "-c", script);
	struct outcome outcome = live_exec(live, held, &command);

	cr_assert(outcome.result.exit_code == 0, "'%s': %s", script, outcome.text[2]);
}

/*
 * Take the helper's place: the operation's end of the channel becomes one whose other end is
 * returned. Before the loop has turned, so that nothing watches it yet.
 */
static inline int impersonate(struct sp_file_op *op)
{
	int pair[2];

	cr_assert(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
	cr_assert(dup3(pair[0], op->fd, O_CLOEXEC) == op->fd);
	(void)close(pair[0]);
	return pair[1];
}

#endif
