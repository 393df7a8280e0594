/*
 * One epoll set: the control socket, SIGCHLD, the deadline, the launcher's life; and a look at what
 * is starting. Nothing here waits for anything else.
 *
 * End of file of the control socket (sandpoold is gone, or wants this sandbox gone) ends init, and
 * with it the pid namespace.
 */
#include "supervisor/init/serve.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"
#include "supervisor/init/exec.h"
#include "supervisor/init/file.h"
#include "supervisor/init/kill.h"
#include "supervisor/init/late_mount.h"
#include "supervisor/init/request.h"
#include "supervisor/init/session.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define EVENTS_AT_ONCE 16
#define REAP_AT_ONCE   256 /* a storm of orphans must not keep requests waiting */
#define KILL_ROUND_MS  2

static union {
	struct sp_init_header header;
	struct sp_init_exec exec;
	struct sp_init_signal signal;
	struct sp_init_mount mount;
	struct sp_init_deadline deadline;
	struct sp_init_file file;
	struct sp_init_session_open session;
	char bytes[SP_INIT_RECORD_MAX];
} record;

int init_serve_watch(const struct init *init, int fd, uint64_t event, uint32_t events)
{
	struct epoll_event watched = {.events = events, .data.u64 = event};

	return epoll_ctl(init->epoll_fd, EPOLL_CTL_ADD, fd, &watched) == 0 ? 0 : -errno;
}

void init_serve_forget(const struct init *init, int fd)
{
	(void)epoll_ctl(init->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

/* Either requests are read or kept answers are sent; the end is always noticed. */
static void watch_control(struct init *init)
{
	struct epoll_event watch = {.events = EPOLLIN, .data.u64 = INIT_EVENT_CONTROL};

	if (init->outbox.count > 0)
		watch.events = init->outbox.stalled ? 0 : EPOLLOUT;
	if (watch.events == init->control_events)
		return;
	if (epoll_ctl(init->epoll_fd, EPOLL_CTL_MOD, SP_BOOT_FD_CONTROL, &watch) == 0)
		init->control_events = watch.events;
}

int init_serve_open(struct init *init)
{
	sigset_t chld;
	int status;

	(void)sigemptyset(&chld);
	(void)sigaddset(&chld, SIGCHLD);
	init->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (init->epoll_fd < 0)
		return -errno;
	init->signal_fd = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
	if (init->signal_fd < 0)
		return -errno;
	/* Keeps running while the machine sleeps, and nobody can set it. */
	init->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	if (init->timer_fd < 0)
		return -errno;
	init->control_events = EPOLLIN;
	init->deadline_ms = INT64_MAX;
	status = init_serve_watch(init, SP_BOOT_FD_CONTROL, INIT_EVENT_CONTROL,
				  init->control_events);
	if (status == 0)
		status = init_serve_watch(init, init->signal_fd, INIT_EVENT_CHILD, EPOLLIN);
	if (status == 0)
		status = init_serve_watch(init, init->timer_fd, INIT_EVENT_DEADLINE, EPOLLIN);
	/* Nobody writes to it: only its hang-up is awaited. */
	if (status == 0)
		status = init_serve_watch(init, SP_BOOT_FD_LIFE, INIT_EVENT_LIFE, 0);
	return status;
}

static void set_deadline(struct init *init, int64_t boot_ms)
{
	struct itimerspec timer = {0};

	if (boot_ms == init->deadline_ms)
		return;
	init->deadline_ms = boot_ms;
	if (boot_ms <= INT64_MAX - INIT_GRACE_MS) {
		int64_t end_ms = boot_ms + INIT_GRACE_MS;

		timer.it_value.tv_sec = end_ms / SP_MS_PER_S;
		timer.it_value.tv_nsec = (long)(end_ms % SP_MS_PER_S * SP_NS_PER_MS);
	}
	/* All zero disarms it. A time in the past fires at once. */
	if (timerfd_settime(init->timer_fd, TFD_TIMER_ABSTIME, &timer, NULL) != 0)
		init_end(init, 1);
}

static void serve_mount(struct init *init, int *mount_fd)
{
	const char *stage = NULL;
	int status = init_late_mount(init, &record.mount, *mount_fd, &stage);

	sp_fd_close(mount_fd);
	init_outbox_status(&init->outbox, SP_INIT_MOUNTED, &record.header, status, stage);
}

static void serve_ping(struct init *init)
{
	struct sp_init_plain answer = {
		.header = {.type = SP_INIT_PONG,
			   .exec = record.header.exec,
			   .request = record.header.request},
	};

	init_outbox_send(&init->outbox, SP_BOOT_FD_CONTROL, &answer, sizeof(answer), -1);
}

static void serve_usage(struct init *init)
{
	struct sp_init_used answer = {
		.header = {.type = SP_INIT_USED,
			   .exec = record.header.exec,
			   .request = record.header.request},
		.bytes = init_session_used(init) + init_late_mount_used(),
	};

	init_outbox_send(&init->outbox, SP_BOOT_FD_CONTROL, &answer, sizeof(answer), -1);
}

/* A request that must not be acted on; the type of answer that its sender expects. */
static void refuse(struct init *init)
{
	uint32_t type = SP_INIT_START_FAILED;

	if (record.header.type == SP_INIT_FILE)
		return; /* its channel was closed, which says it */
	if (record.header.type == SP_INIT_MOUNT)
		type = SP_INIT_MOUNTED;
	else if (record.header.type == SP_INIT_KILL_EXEC)
		type = SP_INIT_KILLED;
	else if (record.header.type == SP_INIT_SESSION_OPEN)
		type = SP_INIT_SESSION_OPENED;
	init_outbox_status(&init->outbox, type, &record.header, -EBADMSG, "record");
}

/* Takes the descriptors; they are closed before anything is answered. Only EXEC, MOUNT and
 * FILE have some, init_request_check() saw to that. */
static void serve_request(struct init *init, int *fds, size_t fd_count)
{
	if (record.header.type == SP_INIT_EXEC || record.header.type == SP_INIT_FILE ||
	    record.header.type == SP_INIT_SESSION_OPEN)
		init_late_mount_settle();
	switch ((enum sp_init_type)record.header.type) {
	case SP_INIT_EXEC:
		if (record.exec.deadline_boot_ms > 0)
			set_deadline(init, record.exec.deadline_boot_ms);
		init_exec_start(init, &record.exec, fds, fd_count);
		break;
	case SP_INIT_SIGNAL:
		init_exec_signal(record.header.exec, (int)record.signal.signal);
		break;
	case SP_INIT_KILL_EXEC:
		init_kill_start(init, &record.header);
		break;
	case SP_INIT_MOUNT:
		serve_mount(init, &fds[0]);
		break;
	case SP_INIT_DEADLINE:
		set_deadline(init, record.deadline.boot_ms);
		break;
	case SP_INIT_PING:
		serve_ping(init);
		break;
	case SP_INIT_FILE:
		init_file_start(init, &record.file, &fds[0]);
		break;
	case SP_INIT_SESSION_OPEN:
		init_session_open(init, &record.session);
		break;
	case SP_INIT_SESSION_CLOSE:
		init_session_close(record.header.exec);
		break;
	case SP_INIT_USAGE:
		serve_usage(init);
		break;
	case SP_INIT_READY:
	case SP_INIT_FAILED:
	case SP_INIT_STARTED:
	case SP_INIT_START_FAILED:
	case SP_INIT_EXITED:
	case SP_INIT_KILLED:
	case SP_INIT_MOUNTED:
	case SP_INIT_PONG:
	case SP_INIT_SESSION_OPENED:
	case SP_INIT_SESSION_ENDED:
	case SP_INIT_USED:
		break; /* ours, not a request: init_request_check() refused it */
	}
}

static void serve_control(struct init *init)
{
	int fds[SP_MSG_FDS_MAX];
	size_t fd_count = 0;
	ssize_t len;

	memset(&record.header, 0, sizeof(record.header));
	len = sp_msg_receive(SP_BOOT_FD_CONTROL, &record, sizeof(record), fds, &fd_count);
	if (len == -EAGAIN)
		return;
	if (len == -EMSGSIZE) {
		refuse(init);
		return;
	}
	if (len <= 0)
		init_end(init, 0);
	if (init_request_check(&record, (size_t)len, fd_count) == 0) {
		serve_request(init, fds, fd_count);
		return;
	}
	for (size_t i = 0; i < fd_count; i++)
		sp_fd_close(&fds[i]);
	refuse(init);
}

/* Take what has died, ours and orphans. True: there is no child left, dead or alive. */
static bool reap(struct init *init)
{
	init->reap_again = false;
	for (int i = 0; i < REAP_AT_ONCE; i++) {
		struct rusage usage;
		int wait_status;
		pid_t pid = wait4(-1, &wait_status, WNOHANG, &usage);

		if (pid == 0)
			return false;
		if (pid < 0)
			return errno == ECHILD;
		init_exec_reaped(init, pid, wait_status, &usage);
	}
	init->reap_again = true;
	return false;
}

static void serve_children(struct init *init, bool signalled)
{
	struct signalfd_siginfo info;
	bool childless;

	if (!signalled && !init->reap_again && init->kill_state != INIT_KILL_RUNNING)
		return;
	/* One signal can stand for many deaths, and there is never more than one: taken first, then
	 * all the dead. */
	(void)!read(init->signal_fd, &info, sizeof(info));
	childless = reap(init);
	if (init->kill_state == INIT_KILL_RUNNING)
		init_kill_step(init, childless);
}

static void serve_event(struct init *init, const struct epoll_event *event)
{
	switch (event->data.u64) {
	case INIT_EVENT_CONTROL:
		if ((event->events & EPOLLIN) != 0)
			serve_control(init);
		else if ((event->events & (EPOLLHUP | EPOLLERR)) != 0)
			init_end(init, 0);
		break;
	case INIT_EVENT_CHILD: /* after the others, in init_serve() */
		break;
	case INIT_EVENT_DEADLINE:
	case INIT_EVENT_LIFE:
		init_end(init, 0);
	default:
		if (event->data.u64 < INIT_EVENT_FILES)
			init_session_event(init, event->data.u64 - INIT_EVENT_SESSIONS);
		else
			init_file_event(init, event->data.u64 - INIT_EVENT_FILES);
	}
}

static int sooner(int wait_ms, int other_ms)
{
	return wait_ms < 0 ? other_ms : SP_MIN(wait_ms, other_ms);
}

static int wait_ms(struct init *init)
{
	int next = init_exec_look(init);

	if (init->reap_again)
		return 0;
	if (init->kill_state == INIT_KILL_RUNNING)
		next = sooner(next, KILL_ROUND_MS);
	if (init->outbox.stalled)
		next = sooner(next, INIT_OUTBOX_RETRY_MS);
	return next;
}

void init_serve(struct init *init)
{
	struct epoll_event events[EVENTS_AT_ONCE];

	for (;;) {
		int count = epoll_wait(init->epoll_fd, events, EVENTS_AT_ONCE, wait_ms(init));
		bool signalled = false;

		if (count < 0 && errno != EINTR)
			init_end(init, 1);
		for (int i = 0; i < count; i++) {
			signalled |= events[i].data.u64 == INIT_EVENT_CHILD;
			serve_event(init, &events[i]);
		}
		serve_children(init, signalled);
		init_outbox_flush(&init->outbox, SP_BOOT_FD_CONTROL);
		watch_control(init);
	}
}
