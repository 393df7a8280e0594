/*
 * Between clone3 and execve. Everything inherited from the spawner that the sandbox must not have
 * (descriptors, signal mask, umask, ids) is gone before init's first instruction.
 */
#include "supervisor/launcher/child.h"

#include "pool/base/fd.h"
#include "supervisor/init/boot.h"
#include "supervisor/init/protocol.h"
#include "supervisor/sandbox/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define FD_INIT       7 /* above init/boot.h's numbers, closed by the exec */
#define FD_FIRST_FREE 8
#define EXIT_FAILED   127

SP_NORETURN static void fail(int control_fd, const char *stage, int status)
{
	struct sp_init_status record = {
		.header.type = SP_INIT_FAILED,
		.status = status,
	};

	memcpy(record.stage, stage, SP_MIN(strlen(stage), sizeof(record.stage) - 1));
	(void)sp_msg_send(control_fd, &record, sizeof(record), NULL, 0);
	_exit(EXIT_FAILED);
}

/* v1 has no CLONE_INTO_CGROUP. By the child itself: only a thread that moves itself is moved
 * without waiting out an RCU grace period (7 ms). */
static void enter_cgroups(const struct sp_child_plan *plan)
{
	for (size_t i = 0; i < plan->cgroups->attach_count; i++)
		if (write(plan->cgroups->attach_fds[i], "0", 1) != 1)
			fail(plan->control_fd, "cgroup", -errno);
	if (plan->cgroups->v2_fd >= 0 && !plan->into_cgroup) {
		int fd = openat(plan->cgroups->v2_fd, "cgroup.procs", O_WRONLY | O_CLOEXEC);

		if (fd < 0 || write(fd, "0", 1) != 1)
			fail(plan->control_fd, "cgroup", -errno);
	}
}

/* Sources are above SP_FD_RESERVED, so no dup2() closes what a later one needs. */
static void arrange_descriptors(const struct sp_child_plan *plan)
{
	const struct {
		int from;
		int to;
	} moves[] = {
		{plan->control_fd, SP_BOOT_FD_CONTROL},
		{plan->boot_fd, SP_BOOT_FD_RECORD},
		{plan->life_fd, SP_BOOT_FD_LIFE},
		{plan->lock_fd, SP_BOOT_FD_LOCK},
		{plan->init_fd, FD_INIT},
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(moves); i++)
		if (dup2(moves[i].from, moves[i].to) < 0)
			fail(plan->control_fd, "descriptors", -errno);
	if (fcntl(FD_INIT, F_SETFD, FD_CLOEXEC) < 0 || close_range(FD_FIRST_FREE, ~0U, 0) < 0)
		fail(SP_BOOT_FD_CONTROL, "descriptors", -errno);
}

/* The launcher gave up if the socket closes instead. */
static void wait_for_go(void)
{
	char go;
	ssize_t got;

	do {
		got = recv(SP_BOOT_FD_CONTROL, &go, sizeof(go), 0);
	} while (got < 0 && errno == EINTR);
	if (got != 1)
		_exit(EXIT_FAILED);
}

static void become(const struct sp_child_plan *plan)
{
	int status = 0;

	/* With a one-uid map setgroups(2) is denied for good, and no ids can be changed to. */
	if (!plan->one_id)
		status = sp_sys_setgroups(0, NULL);
	if (status == 0 && !(plan->one_id && plan->direct))
		status = sp_sys_setresgid(plan->gid, plan->gid, plan->gid);
	if (status == 0 && !(plan->one_id && plan->direct))
		status = sp_sys_setresuid(plan->uid, plan->uid, plan->uid);
	if (status < 0)
		fail(SP_BOOT_FD_CONTROL, "ids", status);
}

/* After the last change of credentials, which clears it. A launcher that died before this line
 * sends no signal, but its end of the life pipe is closed. */
static void die_with_launcher(void)
{
	struct pollfd life = {.fd = SP_BOOT_FD_LIFE, .events = POLLIN};

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		fail(SP_BOOT_FD_CONTROL, "pdeathsig", -errno);
	if (poll(&life, 1, 0) != 0)
		_exit(EXIT_FAILED);
}

SP_NORETURN void sp_child_run(const struct sp_child_plan *plan)
{
	static char name[] = "sandpool-init";
	char *const arguments[] = {name, NULL};
	char *const environment[] = {NULL};
	sigset_t none;

	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)umask(022);
	enter_cgroups(plan);
	if (plan->direct && setns(plan->host_ns_fd, CLONE_NEWNS) < 0)
		fail(plan->control_fd, "setns", -errno);
	arrange_descriptors(plan);
	wait_for_go();
	become(plan);
	if (chdir("/") < 0)
		fail(SP_BOOT_FD_CONTROL, "chdir", -errno);
	die_with_launcher();
	(void)execveat(FD_INIT, "", arguments, environment, AT_EMPTY_PATH);
	fail(SP_BOOT_FD_CONTROL, "exec", -errno);
}
