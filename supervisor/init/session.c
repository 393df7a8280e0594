/*
 * PID 1's side of sessions: it forks their first processes, watches, kills and reaps them, and
 * waits for nothing. Like helpers (file.c) these are no children as programs are: exit signal 0.
 */
#include "supervisor/init/session.h"

#include "pool/base/fd.h"
#include "supervisor/init/boot_check.h"
#include "supervisor/init/file_helper.h"
#include "supervisor/init/overlay.h"
#include "supervisor/init/raw.h"
#include "supervisor/init/serve.h"
#include "supervisor/sandbox/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Two events a session: its end, and its report. */
#define EVENTS_EACH  2u
#define EVENT_REPORT 1u

#define PATH_SPACE 32

struct session {
	struct sp_init_header about; /* of its SESSION_OPEN; exec is its number */
	pid_t pid;                   /* 0 = free */
	int pidfd;
	int report_fd; /* -1: it has reported */
	bool answered; /* SESSION_OPENED was sent */
	bool open;     /* … and it went well */
};

static struct session sessions[SP_INIT_SESSIONS_MAX];

static struct session *find(uint32_t number)
{
	for (size_t i = 0; i < SP_INIT_SESSIONS_MAX; i++)
		if (sessions[i].pid != 0 && sessions[i].about.exec == number)
			return &sessions[i];
	return NULL;
}

static struct session *free_session(void)
{
	for (size_t i = 0; i < SP_INIT_SESSIONS_MAX; i++)
		if (sessions[i].pid == 0)
			return &sessions[i];
	return NULL;
}

int init_session_pidfd(uint32_t number)
{
	const struct session *session = find(number);

	return session && session->open ? session->pidfd : -ESRCH;
}

unsigned int init_session_count(void)
{
	unsigned int count = 0;

	for (size_t i = 0; i < SP_INIT_SESSIONS_MAX; i++)
		count += sessions[i].pid != 0;
	return count;
}

/* ---- children of a session ---- */

static int own_pids(struct init *init)
{
	if (init->pids_fd >= 0)
		return 0;
	init->pids_fd = openat(init->proc_fd, "self/ns/pid", O_RDONLY | O_CLOEXEC);
	return init->pids_fd < 0 ? -errno : 0;
}

int init_session_children(struct init *init, int session_fd)
{
	int status = own_pids(init);

	return status < 0 ? status : (int)RAW2(SYS_setns, session_fd, CLONE_NEWPID);
}

void init_session_children_end(struct init *init)
{
	/* Else every later program would be born there. */
	if (RAW2(SYS_setns, init->pids_fd, CLONE_NEWPID) < 0)
		init_end(init, 1);
}

/* ---- start ---- */

static int fork_first(struct init *init, struct session *session,
		      const struct sp_init_session_open *request, int report_fd)
{
	struct clone_args args = {
		.flags = CLONE_PIDFD | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS |
			 CLONE_NEWCGROUP,
		.pidfd = (uint64_t)(uintptr_t)&session->pidfd,
	};
	pid_t pid;

	if ((request->flags & SP_SESSION_F_OWN_NETWORK) != 0)
		args.flags |= CLONE_NEWNET;
	session->pidfd = -1;
	pid = sp_sys_clone3(&args);
	if (pid == 0)
		init_session_first(init, request, report_fd);
	if (pid < 0)
		return pid;
	session->pid = pid;
	return 0;
}

static int watch_session(struct init *init, const struct session *session)
{
	uint64_t event = INIT_EVENT_SESSIONS + (uint64_t)(session - sessions) * EVENTS_EACH;
	int status = init_serve_watch(init, session->pidfd, event, EPOLLIN);

	if (status == 0)
		status = init_serve_watch(init, session->report_fd, event + EVENT_REPORT, EPOLLIN);
	return status;
}

static bool id_inside(uint32_t id)
{
	return id > 0 && id < INIT_FILE_ID;
}

static int admit(const struct init *init, const struct sp_init_session_open *request,
		 const char **ret_stage)
{
	*ret_stage = "supported";
	if (init->direct || init->boot->rootless == 1)
		return -EOPNOTSUPP;
	*ret_stage = "credentials";
	if (!id_inside(request->uid) || !id_inside(request->gid))
		return -EPERM;
	*ret_stage = "record";
	if (find(request->header.exec))
		return -EEXIST;
	*ret_stage = "kill";
	if (init->kill_state != INIT_KILL_NONE)
		return -EAGAIN;
	*ret_stage = "sessions";
	return free_session() ? 0 : -EAGAIN;
}

static int start(struct init *init, struct session *session,
		 const struct sp_init_session_open *request, const char **ret_stage)
{
	int ends[2];
	int status;

	*ret_stage = "report";
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
		return -errno;
	*ret_stage = "clone";
	session->about = request->header;
	session->open = false;
	session->answered = false;
	status = fork_first(init, session, request, ends[1]);
	sp_fd_close(&ends[1]);
	if (status < 0) {
		sp_fd_close(&ends[0]);
		return status;
	}
	session->report_fd = ends[0];
	if (watch_session(init, session) < 0)
		init_end(init, 1);
	return 0;
}

void init_session_open(struct init *init, const struct sp_init_session_open *request)
{
	const char *stage = NULL;
	int status = admit(init, request, &stage);

	if (status == 0)
		status = start(init, free_session(), request, &stage);
	if (status < 0)
		init_outbox_status(&init->outbox, SP_INIT_SESSION_OPENED, &request->header, status,
				   stage);
}

/* ---- usage ---- */

/* 0 when it is just ending. Nothing here waits: the way there is proc and the tmpfs itself. */
static uint64_t used_bytes(const struct init *init, const struct session *session)
{
	char path[PATH_SPACE];
	uint64_t bytes = 0;
	SP_AUTO_CLOSE int fd = -1;

	(void)snprintf(path, sizeof(path), "%d/root" INIT_PRIVATE_PATH, session->pid);
	fd = openat(init->proc_fd, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0)
		(void)init_overlay_used(fd, &bytes);
	return bytes;
}

uint64_t init_session_used(const struct init *init)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < SP_INIT_SESSIONS_MAX; i++)
		if (sessions[i].pid != 0 && sessions[i].open)
			bytes += used_bytes(init, &sessions[i]);
	return bytes;
}

/* ---- end ---- */

void init_session_close(uint32_t number)
{
	const struct session *session = find(number);

	/* Not reaped yet: the number is its own. */
	if (session)
		(void)kill(session->pid, SIGKILL);
}

void init_session_kill(int session_fd)
{
	for (size_t i = 0; i < SP_INIT_SESSIONS_MAX; i++)
		if (sessions[i].pid != 0 && sessions[i].pidfd == session_fd)
			(void)kill(sessions[i].pid, INIT_SESSION_KILL);
}

static void end_report(struct init *init, struct session *session)
{
	init_serve_forget(init, session->report_fd);
	sp_fd_close(&session->report_fd);
}

static void take_report(struct init *init, struct session *session)
{
	struct init_session_report report;
	ssize_t got = read(session->report_fd, &report, sizeof(report));

	if (got < 0 && errno == EAGAIN)
		return; /* of an earlier session in this place */
	end_report(init, session);
	if (got != (ssize_t)sizeof(report))
		return; /* it is about to end, which tells */
	report.stage[sizeof(report.stage) - 1] = '\0';
	session->open = report.status == 0;
	session->answered = true;
	init_outbox_status(&init->outbox, SP_INIT_SESSION_OPENED, &session->about, report.status,
			   report.status < 0 ? report.stage : NULL);
}

static void reap_first(struct init *init, struct session *session)
{
	siginfo_t info;

	memset(&info, 0, sizeof(info));
	if (waitid(P_PIDFD, (id_t)session->pidfd, &info, WEXITED | WNOHANG | __WALL) != 0 ||
	    info.si_pid == 0)
		return;
	/* What it said before it died comes first. */
	if (session->report_fd >= 0)
		take_report(init, session);
	init_serve_forget(init, session->pidfd);
	sp_fd_close(&session->pidfd);
	session->pid = 0;
	if (session->open)
		init_outbox_status(&init->outbox, SP_INIT_SESSION_ENDED, &session->about, 0, NULL);
	else if (!session->answered)
		init_outbox_status(&init->outbox, SP_INIT_SESSION_OPENED, &session->about,
				   -ECANCELED, "killed");
	session->open = false;
}

void init_session_event(struct init *init, uint64_t event)
{
	struct session *session = &sessions[event / EVENTS_EACH];

	/* An event of the same round may have freed it. */
	if (session->pid == 0)
		return;
	if (event % EVENTS_EACH != EVENT_REPORT)
		reap_first(init, session);
	else if (session->report_fd >= 0)
		take_report(init, session);
}
