/*
 * Main's side of the binder: a queue, one job at a time, a deadline for it. A binder that misses
 * the deadline (its system call hangs in the kernel) is killed and replaced; the kill may not work
 * before the file server answers, so the dead are counted, and at SP_LAUNCHER_STUCK_MAX binds are
 * refused until some are gone.
 */
#include "supervisor/launcher/launcher_private.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"
#include "pool/base/log.h"
#include "supervisor/launcher/binder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static struct sp_pending_bind *first(struct sp_binder *binder)
{
	return &binder->queue[binder->head];
}

static void pop(struct sp_binder *binder)
{
	binder->head = (binder->head + 1) % SP_LAUNCHER_BINDS;
	binder->count--;
	binder->busy = false;
}

static int spawn_binder(struct sp_launcher *launcher)
{
	struct sp_binder *binder = &launcher->binder;
	int pair[2];
	int status;

	if (sp_helpers_stuck(launcher) >= SP_LAUNCHER_STUCK_MAX)
		return -EAGAIN;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	status = sp_helper_fork(launcher, SP_HELPER_BINDER, &pair[1], 1, &binder->helper);
	if (status == 0)
		_exit(sp_binder_run(pair[1], launcher->rootless));
	sp_fd_close(&pair[1]);
	binder->socket_fd = pair[0];
	if (status > 0 && (fcntl(pair[0], F_SETFL, O_NONBLOCK) < 0 ||
			   sp_launcher_watch(launcher, pair[0], SP_EVENT_BINDER, 0, EPOLLIN) < 0)) {
		sp_helper_abandon(launcher, binder->helper);
		status = -ENOMEM;
	}
	if (status < 0) {
		sp_launcher_unwatch(launcher, &binder->socket_fd);
		binder->helper = -1;
		return status;
	}
	return 0;
}

void sp_binder_start(struct sp_launcher *launcher)
{
	int status = launcher->binder.helper < 0 ? spawn_binder(launcher) : 0;

	if (status < 0)
		sp_log(SP_LOG_WARN, "cannot start a binder", "error=\"%s\"",
		       strerrordesc_np(-status));
}

static void drop_binder(struct sp_launcher *launcher)
{
	sp_launcher_unwatch(launcher, &launcher->binder.socket_fd);
	launcher->binder.helper = -1;
}

static int send_job(struct sp_launcher *launcher, const struct sp_pending_bind *bind,
		    const struct sp_slot *slot)
{
	const struct sp_launcher_bind *message = &bind->message;
	const struct sp_table_pool *pool = &sp_table_pools(slot->config->table)[slot->pool];
	struct sp_bind_job job = {
		.read_only = (message->flags & SP_BIND_F_READ_ONLY) != 0,
		.recursive = (pool->roots[message->root_index].flags & SP_ROOT_F_RECURSIVE) != 0,
		.overlay = (message->flags & SP_BIND_F_OVERLAY) != 0,
		.host_uid = slot->host_uid_base + message->owner_uid,
		.host_gid = slot->host_uid_base + message->owner_gid,
		.path_length = message->path_length,
	};
	int root_fd = slot->config->roots[slot->pool][message->root_index];

	if (root_fd < 0)
		return -ENOENT;
	memcpy(job.path, message->path, message->path_length + 1);
	return sp_msg_send(launcher->binder.socket_fd, &job,
			   offsetof(struct sp_bind_job, path) + job.path_length + 1, &root_fd, 1);
}

/* Give the binder the first job that still makes sense. */
static void run_next(struct sp_launcher *launcher)
{
	struct sp_binder *binder = &launcher->binder;

	while (binder->count > 0 && !binder->busy) {
		struct sp_pending_bind *bind = first(binder);
		struct sp_slot *slot = sp_slots_find(launcher, bind->slot, bind->serial);
		int status = slot ? 0 : -ESRCH;

		if (slot && binder->helper < 0)
			status = spawn_binder(launcher);
		if (status == 0)
			status = send_job(launcher, bind, slot);
		if (status < 0) {
			sp_launcher_fail(launcher, bind->request, status, "bind",
					 bind->message.path[0] != '\0' ? "source" : "root");
			pop(binder);
			continue;
		}
		binder->busy = true;
		binder->deadline_ms = sp_clock_boot_ms() + SP_LAUNCHER_BIND_MS;
	}
}

static const char *bind_fault(const struct sp_launcher_bind *message, const struct sp_slot *slot,
			      int *ret_status)
{
	const struct sp_table_pool *pool = &sp_table_pools(slot->config->table)[slot->pool];

	*ret_status = -EINVAL;
	if ((message->flags & ~SP_BIND_F_ALL) != 0)
		return "flags";
	if (message->owner_uid >= 65536 || message->owner_gid >= 65536)
		return "owner";
	if (message->root_index >= pool->root_count)
		return "root index";
	if ((pool->flags & SP_POOL_F_DIRECT) != 0) {
		*ret_status = -EOPNOTSUPP;
		return "backend is direct";
	}
	if ((pool->roots[message->root_index].flags & SP_ROOT_F_READ_ONLY) != 0 &&
	    (message->flags & SP_BIND_F_READ_ONLY) == 0) {
		*ret_status = -EROFS;
		return "root is read-only";
	}
	return NULL;
}

void sp_binder_request(struct sp_launcher *launcher, const struct sp_launcher_bind *message)
{
	struct sp_slot *slot = sp_slots_find(launcher, message->slot, message->serial);
	uint64_t request = message->header.request;
	struct sp_binder *binder = &launcher->binder;
	struct sp_pending_bind *bind;
	const char *fault;
	int status = -ESRCH;

	fault = slot ? bind_fault(message, slot, &status) : "slot";
	if (fault) {
		sp_launcher_fail(launcher, request, status, "bind", fault);
		return;
	}
	if (binder->count == SP_LAUNCHER_BINDS) {
		sp_launcher_fail(launcher, request, -EAGAIN, "bind", "queue");
		return;
	}
	bind = &binder->queue[(binder->head + binder->count) % SP_LAUNCHER_BINDS];
	bind->request = request;
	bind->slot = message->slot;
	bind->serial = message->serial;
	memcpy(&bind->message, message,
	       offsetof(struct sp_launcher_bind, path) + message->path_length + 1);
	binder->count++;
	run_next(launcher);
}

static void answer_job(struct sp_launcher *launcher, const struct sp_bind_result *result, int *fd)
{
	struct sp_pending_bind *bind = first(&launcher->binder);
	struct sp_launcher_answer answer = {
		.header = {.type = SP_LAUNCHER_BOUND, .request = bind->request},
		.slot = bind->slot,
		.serial = bind->serial,
		.value = result->unfinished,
	};

	if (result->status < 0)
		sp_launcher_fail(launcher, bind->request, result->status, result->stage,
				 result->text);
	else
		sp_launcher_answer(launcher, &answer, fd, 1);
	if (result->status == 0)
		*fd = -1;
	pop(&launcher->binder);
}

void sp_binder_event(struct sp_launcher *launcher)
{
	struct sp_binder *binder = &launcher->binder;
	struct sp_bind_result result;
	int fds[SP_MSG_FDS_MAX] = {-1, -1, -1, -1, -1, -1, -1, -1};
	size_t fd_count = 0;
	ssize_t got;

	if (binder->socket_fd < 0)
		return;
	got = sp_msg_receive(binder->socket_fd, &result, sizeof(result), fds, &fd_count);
	if (got != (ssize_t)sizeof(result))
		return; /* its end is seen on the pidfd */
	if (binder->busy && (fd_count == 1) == (result.status == 0))
		answer_job(launcher, &result, &fds[0]);
	for (size_t i = 0; i < fd_count; i++)
		sp_fd_close(&fds[i]);
	run_next(launcher);
}

static void fail_job(struct sp_launcher *launcher, int status)
{
	if (!launcher->binder.busy)
		return;
	sp_launcher_fail(launcher, first(&launcher->binder)->request, status, "bind", "source");
	pop(&launcher->binder);
}

void sp_binder_ended(struct sp_launcher *launcher, int index)
{
	if (index != launcher->binder.helper)
		return;
	sp_log(SP_LOG_WARN, "the binder ended, starting another", NULL);
	drop_binder(launcher);
	fail_job(launcher, -EIO);
	sp_binder_start(launcher);
	run_next(launcher);
}

void sp_binder_timeout(struct sp_launcher *launcher)
{
	sp_log(SP_LOG_WARN, "a bind source does not answer, replacing the binder", "stuck=%u",
	       sp_helpers_stuck(launcher) + 1);
	sp_helper_abandon(launcher, launcher->binder.helper);
	drop_binder(launcher);
	fail_job(launcher, -ETIMEDOUT);
	sp_binder_start(launcher);
	run_next(launcher);
}
