/*
 * PID 1's side of file operations: it forks, watches, kills and reaps, and waits for nothing.
 *
 * A helper is no child as programs are (its exit signal is 0): waiting for those does not see it,
 * so what an exec leaves behind can still be told from it, and a program's end is not looked for
 * among helpers. It is known by its pidfd.
 *
 * init keeps the channel of each helper. It tells when sandpoold has lost interest (hang-up), and
 * lets init say what the helper cannot: that it is dead.
 */
#include "supervisor/init/file.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"
#include "supervisor/init/boot_check.h"
#include "supervisor/init/file_helper.h"
#include "supervisor/init/serve.h"
#include "supervisor/init/session.h"
#include "supervisor/sandbox/syscalls.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SWEEPS_MAX 3 /* one can be killed as well */

/* Two events a helper: its end, and the channel's. */
#define EVENTS_EACH   2u
#define EVENT_CHANNEL 1u

struct helper {
	pid_t pid; /* 0 = free */
	int pidfd;
	int channel_fd; /* -1 once it has hung up, and while sweeping */
	unsigned int sweeps;
	uint64_t serial; /* in the name of its temporary file */

	/* a copy, of what may have to be swept up after */
	union {
		struct sp_init_file request;
		char bytes[sizeof(struct sp_init_file) + (size_t)2 * SP_INIT_PATH_MAX];
	};
};

static struct helper helpers[SP_INIT_FILES_MAX];
static uint64_t last_serial;

static size_t request_length(const struct sp_init_file *request)
{
	size_t second = request->kind == SP_INIT_FILE_MOVE ? request->to_length + (size_t)1 : 0;

	return sizeof(*request) + request->path_length + 1 + second;
}

/* Never waits: a channel that is full has nobody who reads it. */
static void report(int channel_fd, int status, const char *stage)
{
	struct sp_init_file_result result = {
		.header.type = SP_INIT_FILE_RESULT,
		.status = status,
	};
	struct iovec iov = {.iov_base = &result, .iov_len = sizeof(result)};
	const struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

	(void)snprintf(result.stage, sizeof(result.stage), "%s", stage);
	(void)!sendmsg(channel_fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static struct helper *free_helper(void)
{
	for (size_t i = 0; i < SP_INIT_FILES_MAX; i++)
		if (helpers[i].pid == 0)
			return &helpers[i];
	return NULL;
}

static bool id_inside(uint32_t id)
{
	return id > 0 && id < INIT_FILE_ID;
}

/* As for programs: never id 0, and on the host (DIRECT) who init is itself. */
static bool ids_valid(const struct init *init, const struct sp_init_file *request)
{
	const struct sp_table_pool *pool = init->pool;

	if (init->direct)
		return request->uid == pool->direct_uid && request->gid == pool->direct_gid;
	return id_inside(request->uid) && id_inside(request->gid);
}

static int watch_helper(struct init *init, const struct helper *helper)
{
	uint64_t event = INIT_EVENT_FILES + (uint64_t)(helper - helpers) * EVENTS_EACH;
	int status = init_serve_watch(init, helper->pidfd, event, EPOLLIN);

	/* Only its hang-up: what sandpoold writes is for the helper. */
	if (status == 0 && helper->channel_fd >= 0)
		status = init_serve_watch(init, helper->channel_fd, event + EVENT_CHANNEL, 0);
	return status;
}

/* The channel: -1 for a sweep. */
static int fork_helper(struct init *init, struct helper *helper, const struct sp_init_file *request,
		       int channel_fd)
{
	struct clone_args args = {
		.flags = CLONE_PIDFD,
		.pidfd = (uint64_t)(uintptr_t)&helper->pidfd,
	};
	int session_fd = request->session == 0 ? -1 : init_session_pidfd(request->session);
	pid_t pid;

	if (request->session != 0 && session_fd < 0)
		return session_fd;
	if (!init->direct && init->boot->rootless == 1)
		args.flags |= CLONE_NEWUSER;
	helper->pidfd = -1;
	/* Born there as well, so that it is somebody in the session's proc. */
	if (session_fd >= 0) {
		int status = init_session_children(init, session_fd);

		if (status < 0)
			return status;
	}
	pid = sp_sys_clone3(&args);
	if (pid == 0)
		init_file_helper(init, request, channel_fd, helper->serial);
	if (session_fd >= 0)
		init_session_children_end(init);
	if (pid < 0)
		return pid;
	helper->pid = pid;
	helper->channel_fd = channel_fd;
	return 0;
}

void init_file_start(struct init *init, const struct sp_init_file *request, int *channel_fd)
{
	struct helper *helper = free_helper();
	const char *stage = "files";
	int status = -EAGAIN;

	if (!ids_valid(init, request)) {
		stage = "credentials";
		status = -EINVAL;
	} else if (init->kill_state != INIT_KILL_NONE) {
		stage = "kill"; /* it would be killed as well */
	} else if (helper) {
		stage = "clone";
		helper->sweeps = 0;
		helper->serial = ++last_serial ^ (uint64_t)init->started_ns;
		status = fork_helper(init, helper, request, *channel_fd);
	}
	if (status < 0) {
		report(*channel_fd, status, stage);
		sp_fd_close(channel_fd);
		return;
	}
	*channel_fd = -1;
	if (request->kind == SP_INIT_FILE_WRITE || request->kind == SP_INIT_FILE_MOVE) {
		helper->sweeps = SWEEPS_MAX;
		memcpy(helper->bytes, request, request_length(request));
	}
	if (watch_helper(init, helper) < 0)
		init_end(init, 1);
}

static void close_channel(struct init *init, struct helper *helper)
{
	if (helper->channel_fd < 0)
		return;
	init_serve_forget(init, helper->channel_fd);
	sp_fd_close(&helper->channel_fd);
}

/* sandpoold has closed its end; not merely that of an earlier helper whose place this is. */
static void hang_up(struct init *init, struct helper *helper)
{
	struct pollfd channel = {.fd = helper->channel_fd};

	if (poll(&channel, 1, 0) <= 0)
		return;
	close_channel(init, helper);
	(void)kill(helper->pid, SIGKILL); /* not reaped yet: the number is its own */
}

static void report_death(const struct helper *helper, const siginfo_t *info)
{
	bool by_signal = info->si_code != CLD_EXITED;

	if (helper->channel_fd < 0)
		return;
	if (by_signal && info->si_status == SIGALRM)
		report(helper->channel_fd, -ETIMEDOUT, "deadline");
	else if (by_signal && info->si_status == SIGSYS)
		report(helper->channel_fd, -ENOSYS, "filter");
	else
		report(helper->channel_fd, -ECANCELED, "killed");
}

static bool ended_well(const siginfo_t *info)
{
	return info->si_code == CLD_EXITED && info->si_status == 0;
}

static void sweep(struct init *init, struct helper *helper)
{
	if (fork_helper(init, helper, &helper->request, -1) < 0)
		return;
	if (watch_helper(init, helper) < 0)
		init_end(init, 1);
}

static void reap_helper(struct init *init, struct helper *helper)
{
	siginfo_t info;

	memset(&info, 0, sizeof(info));
	if (waitid(P_PIDFD, (id_t)helper->pidfd, &info, WEXITED | WNOHANG | __WALL) != 0 ||
	    info.si_pid == 0)
		return;
	init_serve_forget(init, helper->pidfd);
	sp_fd_close(&helper->pidfd);
	if (!ended_well(&info))
		report_death(helper, &info);
	close_channel(init, helper);
	helper->pid = 0;
	if (!ended_well(&info) && helper->sweeps > 0) {
		helper->sweeps--;
		sweep(init, helper);
	}
}

void init_file_event(struct init *init, uint64_t event)
{
	struct helper *helper = &helpers[event / EVENTS_EACH];

	/* An event of the same round may have freed it. */
	if (helper->pid == 0)
		return;
	if (event % EVENTS_EACH == EVENT_CHANNEL && helper->channel_fd >= 0)
		hang_up(init, helper);
	else if (event % EVENTS_EACH != EVENT_CHANNEL)
		reap_helper(init, helper);
}
