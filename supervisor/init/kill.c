/*
 * In a pid namespace kill(-1) reaches every process but PID 1, whatever it did to hide (setsid,
 * double fork), and a fork under way fails when its parent has a SIGKILL pending. On the host
 * (DIRECT) -1 would be everybody: there the children are killed; orphans become init's children
 * (subreaper) and are killed in the next round.
 *
 * The kernel cannot tell whose a process is once its parents are gone, so KILL_EXEC without cgroup
 * is refused when anything of another exec may be alive (init->mixed), or a session: sandpoold then
 * kills the sandbox. Of an exec in a session everything goes that runs in the session.
 */
#include "supervisor/init/kill.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"
#include "supervisor/init/exec.h"
#include "supervisor/init/session.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#define KILL_PATIENCE_MS INT64_C(2000)
#define CHILDREN         "/proc/thread-self/children"
#define CHILDREN_SPACE   4096u
#define DECIMAL          10

static void answer(struct init *init, const struct sp_init_header *about, int status,
		   const char *stage)
{
	init_outbox_status(&init->outbox, SP_INIT_KILLED, about, status, stage);
}

void init_kill_start(struct init *init, const struct sp_init_header *about)
{
	if (init->kill_state == INIT_KILL_RUNNING) {
		answer(init, about, -EBUSY, "kill");
		return;
	}
	if (!init_exec_known(about->exec)) {
		answer(init, about, -ESRCH, "kill");
		return;
	}
	if (init_exec_session(about->exec) >= 0) {
		init_session_kill(init_exec_session(about->exec));
		answer(init, about, 0, NULL);
		return;
	}
	if (init->mixed || init_exec_count() > 1 || init_session_count() > 0) {
		answer(init, about, -EBUSY, "mixed");
		return;
	}
	init->kill_state = INIT_KILL_RUNNING;
	init->kill_exec = about->exec;
	init->kill_request = about->request;
	init->kill_until_ms = sp_clock_boot_ms() + KILL_PATIENCE_MS;
	init_kill_all(init);
}

void init_kill_step(struct init *init, bool childless)
{
	struct sp_init_header about = {.exec = init->kill_exec, .request = init->kill_request};

	if (childless) {
		init->kill_state = INIT_KILL_NONE;
		answer(init, &about, 0, NULL);
	} else if (sp_clock_boot_ms() >= init->kill_until_ms) {
		init->kill_state = INIT_KILL_NONE;
		answer(init, &about, -EBUSY, "alive");
	} else {
		init_kill_all(init);
	}
}

int init_kill_possible(void)
{
	SP_AUTO_CLOSE int fd = open(CHILDREN, O_RDONLY | O_CLOEXEC);

	return fd < 0 ? -errno : 0;
}

/* The pids of this process's children, as the kernel lists them; those that do not fit are in the
 * next round's list. */
static void kill_children(void)
{
	SP_AUTO_CLOSE int fd = open(CHILDREN, O_RDONLY | O_CLOEXEC);
	char text[CHILDREN_SPACE];
	ssize_t len = fd < 0 ? 0 : sp_read_all(fd, text, sizeof(text));
	pid_t pid = 0;

	for (ssize_t i = 0; i < len; i++) {
		if (text[i] >= '0' && text[i] <= '9') {
			pid = pid * DECIMAL + (text[i] - '0');
		} else {
			/* A child stays a child, as a zombie, until it is waited for here. */
			if (pid > 0)
				(void)kill(pid, SIGKILL);
			pid = 0;
		}
	}
}

void init_kill_all(const struct init *init)
{
	if (init->direct)
		kill_children();
	else
		(void)kill(-1, SIGKILL);
}
