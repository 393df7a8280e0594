/*
 * The processes that main forks: spawner, compiler, sources, binder. Known by pidfd, reaped by
 * waitid(P_PIDFD); one that hangs in the kernel is killed, forgotten by its user and reaped
 * whenever the kernel lets go of it.
 */
#include "supervisor/launcher/launcher_private.h"

#include "pool/base/fd.h"
#include "pool/base/log.h"
#include "supervisor/sandbox/syscalls.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEEP_MAX 16

static void close_others(const int *keep, size_t keep_count)
{
	int sorted[KEEP_MAX];
	unsigned int from = STDERR_FILENO + 1;

	sp_assert(keep_count <= KEEP_MAX);
	for (size_t i = 0; i < keep_count; i++) {
		size_t at = i;

		for (; at > 0 && sorted[at - 1] > keep[i]; at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = keep[i];
	}
	for (size_t i = 0; i < keep_count; i++) {
		unsigned int fd = (unsigned int)sorted[i];

		if (fd > from)
			(void)close_range(from, fd - 1, 0);
		from = fd + 1;
	}
	(void)close_range(from, ~0U, 0);
}

static int free_helper(const struct sp_launcher *launcher)
{
	for (int i = 0; i < SP_LAUNCHER_HELPERS; i++)
		if (launcher->helpers[i].kind == 0)
			return i;
	return -EAGAIN;
}

int sp_helper_fork(struct sp_launcher *launcher, enum sp_helper_kind kind, const int *keep,
		   size_t keep_count, int *ret_index)
{
	int index = free_helper(launcher);
	pid_t parent = getpid();
	int pidfd = -1;
	struct clone_args args = {
		.flags = CLONE_PIDFD,
		.pidfd = (uint64_t)(uintptr_t)&pidfd,
		.exit_signal = SIGCHLD,
	};
	pid_t pid;

	if (index < 0)
		return index;
	pid = sp_sys_clone3(&args);
	if (pid < 0)
		return pid;
	if (pid == 0) {
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
			_exit(EXIT_FAILURE);
		close_others(keep, keep_count);
		return 0;
	}
	launcher->helpers[index] = (struct sp_helper){.kind = kind, .pidfd = pidfd};
	if (sp_launcher_watch(launcher, pidfd, SP_EVENT_HELPER, (uint32_t)index, EPOLLIN) < 0) {
		(void)pidfd_send_signal(pidfd, SIGKILL, NULL, 0);
		sp_fd_close(&launcher->helpers[index].pidfd);
		launcher->helpers[index].kind = 0;
		return -ENOMEM;
	}
	*ret_index = index;
	return 1;
}

void sp_helper_abandon(struct sp_launcher *launcher, int index)
{
	if (index < 0)
		return;
	launcher->helpers[index].abandoned = true;
	(void)pidfd_send_signal(launcher->helpers[index].pidfd, SIGKILL, NULL, 0);
}

unsigned int sp_helpers_stuck(const struct sp_launcher *launcher)
{
	unsigned int stuck = 0;

	for (size_t i = 0; i < SP_LAUNCHER_HELPERS; i++)
		if (launcher->helpers[i].kind != 0 && launcher->helpers[i].abandoned)
			stuck++;
	return stuck;
}

void sp_helper_event(struct sp_launcher *launcher, uint32_t index)
{
	struct sp_helper helper = launcher->helpers[index];
	siginfo_t info = {0};

	if (helper.kind == 0 ||
	    waitid((idtype_t)P_PIDFD, (id_t)helper.pidfd, &info, WEXITED | WNOHANG) < 0 ||
	    info.si_pid == 0)
		return;
	sp_launcher_unwatch(launcher, &launcher->helpers[index].pidfd);
	launcher->helpers[index].kind = 0;
	if (helper.abandoned)
		return;
	switch (helper.kind) {
	case SP_HELPER_SPAWNER:
		if (!launcher->stopping)
			sp_log(SP_LOG_ERROR, "the spawner ended, killing all sandboxes", "code=%d",
			       info.si_status);
		/* Nobody is left to clean up; our own end kills every sandbox. */
		_exit(EXIT_FAILURE);
	case SP_HELPER_COMPILER:
		sp_loader_compiled(launcher,
				   info.si_code == CLD_EXITED ? info.si_status : -info.si_status);
		return;
	case SP_HELPER_SOURCES:
		sp_loader_sources_ended(launcher, (int)index);
		return;
	case SP_HELPER_BINDER:
		sp_binder_ended(launcher, (int)index);
		return;
	}
}
