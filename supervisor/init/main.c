/*
 * sandpool-init: PID 1 of one sandbox.
 *
 * The launcher's child execs this with four descriptors (init/boot.h) in new user, pid and mount
 * namespaces. It makes the rest of the sandbox, gives up what it no longer needs, says READY and
 * serves requests (init/protocol.h) until the control socket ends. If a step fails it says FAILED
 * with the step's name and exits.
 *
 * Trusts: the boot record after checking every field; sandpoold with what happens in this sandbox;
 * workloads with nothing. In a DIRECT sandbox there are no namespaces and no filter.
 */
#include "supervisor/init/init.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"
#include "supervisor/init/boot_check.h"
#include "supervisor/init/confine.h"
#include "supervisor/init/exec.h"
#include "supervisor/init/kill.h"
#include "supervisor/init/root.h"
#include "supervisor/init/serve.h"
#include "supervisor/init/tty.h"
#include "supervisor/sandbox/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KILL_ROUNDS    1000
#define PROCESSORS_MAX 8192

static struct init init_state = {
	.root_fd = -1,
	.skeleton_fd = -1,
	.proc_fd = -1,
	.pts_fd = -1,
	.pids_fd = -1,
};

void init_stage(struct init *init, const char *name)
{
	(void)snprintf(init->stage, sizeof(init->stage), "%s", name);
}

void init_end(struct init *init, int code)
{
	/* On the host nothing dies with init by itself. */
	for (int i = 0; init->direct && i < KILL_ROUNDS; i++) {
		const struct timespec pause = {.tv_nsec = SP_NS_PER_MS};

		init_kill_all(init);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		if (waitpid(-1, NULL, WNOHANG) < 0)
			break;
		(void)nanosleep(&pause, NULL);
	}
	_exit(code);
}

/*
 * 0-2 become the read-only boot record, so that no descriptor that arrives later gets one of these
 * numbers; ours are close-on-exec; there are no others.
 */
static int own_descriptors(void)
{
	if (close_range(SP_BOOT_FD_LOCK + 1, ~0u, 0) != 0)
		return -errno;
	for (int fd = SP_BOOT_FD_CONTROL; fd <= SP_BOOT_FD_LOCK; fd++)
		if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
			return -errno;
	for (int fd = 0; fd < SP_BOOT_FD_CONTROL; fd++)
		if (dup3(SP_BOOT_FD_RECORD, fd, O_CLOEXEC) < 0)
			return -errno;
	if (fcntl(SP_BOOT_FD_CONTROL, F_SETFL, O_NONBLOCK) != 0)
		return -errno;
	return 0;
}

/* Everything blocked: SIGCHLD comes through a signalfd. Dispositions are the default already. */
static int own_signals(void)
{
	sigset_t all;

	(void)sigfillset(&all);
	return sigprocmask(SIG_SETMASK, &all, NULL) == 0 ? 0 : -errno;
}

/* Whoever pinned the daemon did not mean what runs here; the cpuset does, and the kernel keeps to
 * it whatever is asked for. */
static int own_processors(void)
{
	unsigned long all[PROCESSORS_MAX / CHAR_BIT / sizeof(unsigned long)];

	memset(all, UCHAR_MAX, sizeof(all));
	return sched_setaffinity(0, sizeof(all), (const cpu_set_t *)(const void *)all) == 0
		       ? 0
		       : -errno;
}

static int map_record(struct init *init)
{
	const int seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
	const char *field;
	struct stat info;
	void *mapped;

	if ((fcntl(SP_BOOT_FD_RECORD, F_GET_SEALS) & seals) != seals)
		return -EPERM;
	if (fstat(SP_BOOT_FD_RECORD, &info) != 0)
		return -errno;
	if (info.st_size < (off_t)sizeof(struct sp_boot))
		return -EINVAL;
	mapped = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, SP_BOOT_FD_RECORD, 0);
	if (mapped == MAP_FAILED)
		return -errno;
	if (init_boot_check(mapped, (size_t)info.st_size, &field) < 0) {
		(void)snprintf(init->stage, sizeof(init->stage), "record:%s", field);
		return -EINVAL;
	}
	init->boot = mapped;
	init->pool = &init->boot->pool;
	init->direct = (init->pool->flags & SP_POOL_F_DIRECT) != 0;
	(void)close(SP_BOOT_FD_RECORD);
	return 0;
}

/* The sandbox around init, or as much of it as there is on the host. */
static int enclose(struct init *init)
{
	int status;

	if (init->direct) {
		init_stage(init, "children");
		status = init_kill_possible();
		if (status < 0)
			return status;
		init_stage(init, "subreaper");
		return prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0 ? 0 : -errno;
	}
	status = init_namespaces(init);
	if (status == 0)
		status = init_root(init);
	if (status < 0)
		return status;
	init_stage(init, "devpts");
	return init_tty_mount(init);
}

static int boot(struct init *init)
{
	int status;

	init_stage(init, "descriptors");
	status = own_descriptors();
	if (status < 0)
		return status;
	init_stage(init, "signals");
	status = own_signals();
	if (status < 0)
		return status;
	init_stage(init, "processors");
	status = own_processors();
	if (status < 0)
		return status;
	init_stage(init, "record");
	status = map_record(init);
	if (status < 0)
		return status;
	status = enclose(init);
	if (status < 0)
		return status;
	init_stage(init, "memory");
	status = init_exec_open(init);
	if (status < 0)
		return status;
	init_stage(init, "events");
	status = init_serve_open(init);
	return status < 0 ? status : init_confine(init);
}

/* The outcome of booting, as the first record that sandpoold gets. */
static void report(struct init *init, int status)
{
	struct sp_init_status answer = {
		.header = {.type = status < 0 ? SP_INIT_FAILED : SP_INIT_READY},
		.status = status,
		.elapsed_ns = (uint64_t)(sp_clock_boot_ns() - init->started_ns),
	};

	if (status < 0)
		memcpy(answer.stage, init->stage, sizeof(answer.stage));
	init_outbox_send(&init->outbox, SP_BOOT_FD_CONTROL, &answer, sizeof(answer), -1);
}

int main(void)
{
	struct init *init = &init_state;
	int status;

	init->started_ns = sp_clock_boot_ns();
	status = boot(init);
	report(init, status);
	if (status < 0)
		return EXIT_FAILURE;
	init_serve(init);
}
