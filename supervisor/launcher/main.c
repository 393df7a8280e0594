/*
 * sandpool-launcher: makes, kills and cleans up sandboxes for sandpoold.
 *
 *	sandpool-launcher --config FILE [--init PATH] [--compile PATH]
 *
 * Started with its socket to sandpoold on descriptor 3, as root or as an ordinary user (then it
 * makes itself root of a user namespace first). It lives as long as sandpoold: end of file on the
 * socket kills every sandbox. Its own death, however it comes, does the same through PDEATHSIG and
 * the life pipe; the next start sweeps what is left.
 */
#include "supervisor/launcher/launcher_private.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"
#include "pool/base/log.h"
#include "supervisor/sandbox/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <libgen.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define EVENTS_PER_TURN 64
#define EXIT_USAGE      2
#define DAEMON_DIED     SIGUSR1 /* not one that also means "asked twice" */

static struct sp_launcher the_launcher;

int sp_launcher_watch(struct sp_launcher *launcher, int fd, enum sp_launcher_event event,
		      uint32_t index, uint32_t events)
{
	struct epoll_event watch = {
		.events = events,
		.data.u64 = (uint64_t)event << 32 | index,
	};

	return epoll_ctl(launcher->epoll_fd, EPOLL_CTL_ADD, fd, &watch) < 0 ? -errno : 0;
}

void sp_launcher_unwatch(struct sp_launcher *launcher, int *fd)
{
	if (*fd >= 0)
		(void)epoll_ctl(launcher->epoll_fd, EPOLL_CTL_DEL, *fd, NULL);
	sp_fd_close(fd);
}

void sp_launcher_stop(struct sp_launcher *launcher, const char *reason)
{
	if (launcher->stopping)
		return;
	launcher->stopping = true;
	launcher->stop_deadline_ms = sp_clock_boot_ms() + SP_LAUNCHER_STOP_MS;
	sp_slots_kill_all(launcher);
	sp_log(SP_LOG_INFO, "stopping", "reason=\"%s\" sandboxes=%u", reason, launcher->slots_used);
	sp_spawn_cancel_creations(launcher);
	sp_loader_cancel(launcher, -ESHUTDOWN, "the launcher is stopping");
}

/* --- the loop -------------------------------------------------------------------------------- */

static void handle_signal(struct sp_launcher *launcher)
{
	struct signalfd_siginfo info;

	if (read(launcher->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
		return;
	if (info.ssi_signo == DAEMON_DIED) {
		sp_launcher_leave_daemon(launcher, "daemon died");
		return;
	}
	if (launcher->stopping)
		_exit(EXIT_FAILURE); /* asked twice: the kernel kills what is left */
	sp_launcher_stop(launcher, info.ssi_signo == SIGINT ? "SIGINT" : "SIGTERM");
}

static void handle_event(struct sp_launcher *launcher, const struct epoll_event *event)
{
	uint32_t index = (uint32_t)event->data.u64;

	switch ((enum sp_launcher_event)(event->data.u64 >> 32)) {
	case SP_EVENT_DAEMON:
		sp_launcher_daemon_event(launcher, event->events);
		return;
	case SP_EVENT_SIGNAL:
		handle_signal(launcher);
		return;
	case SP_EVENT_SPAWNER:
		sp_spawn_event(launcher, event->events);
		return;
	case SP_EVENT_SANDBOX:
		sp_slots_exited(launcher, index);
		return;
	case SP_EVENT_HELPER:
		sp_helper_event(launcher, index);
		return;
	case SP_EVENT_SOURCES:
		sp_loader_sources_event(launcher);
		return;
	case SP_EVENT_BINDER:
		sp_binder_event(launcher);
		return;
	}
}

static bool loader_waits(const struct sp_launcher *launcher)
{
	return launcher->loader.state == SP_LOADER_COMPILING ||
	       launcher->loader.state == SP_LOADER_SOURCES;
}

/* Do what is due; returns how long epoll may wait. */
static int run_timers(struct sp_launcher *launcher)
{
	int64_t now_ms = sp_clock_boot_ms();
	int64_t next_ms;

	if (loader_waits(launcher) && launcher->loader.deadline_ms <= now_ms)
		sp_loader_cancel(launcher, -ETIMEDOUT,
				 launcher->loader.state == SP_LOADER_COMPILING
					 ? "the compiler does not end"
					 : "a source of a pool does not answer");
	if (launcher->binder.busy && launcher->binder.deadline_ms <= now_ms)
		sp_binder_timeout(launcher);
	next_ms = sp_slots_retry(launcher, now_ms);
	if (loader_waits(launcher))
		next_ms = SP_MIN(next_ms, launcher->loader.deadline_ms);
	if (launcher->binder.busy)
		next_ms = SP_MIN(next_ms, launcher->binder.deadline_ms);
	if (launcher->stopping)
		next_ms = SP_MIN(next_ms, launcher->stop_deadline_ms);
	if (next_ms == INT64_MAX)
		return -1;
	return (int)SP_MIN(SP_MAX(next_ms - now_ms, 0), INT_MAX);
}

static bool stopped(const struct sp_launcher *launcher)
{
	if (!launcher->stopping)
		return false;
	if (launcher->slots_used == 0 && launcher->answer_count == 0)
		return true;
	if (sp_clock_boot_ms() < launcher->stop_deadline_ms)
		return false;
	sp_log(SP_LOG_WARN, "stopping with sandboxes not cleaned up, the next start sweeps",
	       "count=%u", launcher->slots_used);
	return true;
}

static void remove_locks(const struct sp_launcher *launcher)
{
	if (launcher->instance.lock_dir_fd >= 0 && launcher->slots_used == 0)
		sp_instance_remove(&launcher->instance);
}

static int run(struct sp_launcher *launcher)
{
	struct epoll_event events[EVENTS_PER_TURN];

	for (;;) {
		int timeout = run_timers(launcher);
		int count;

		sp_spawn_flush(launcher);
		sp_launcher_flush(launcher);
		if (stopped(launcher)) {
			sp_spawn_stop(launcher);
			remove_locks(launcher);
			return EXIT_SUCCESS;
		}
		count = epoll_wait(launcher->epoll_fd, events, EVENTS_PER_TURN, timeout);
		if (count < 0 && errno != EINTR) {
			sp_log(SP_LOG_ERROR, "cannot wait for events", "error=%s",
			       strerrordesc_np(errno));
			return EXIT_FAILURE;
		}
		for (int i = 0; i < count; i++)
			handle_event(launcher, &events[i]);
	}
}

/* --- start ----------------------------------------------------------------------------------- */

/* Mounts and unmounts of the host still arrive here, nothing of ours ever goes back. */
static int enter_mount_namespace(struct sp_err *err)
{
	if (unshare(CLONE_NEWNS) < 0)
		return sp_err_set(err, -errno, "create a mount namespace");
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return sp_err_set(err, -errno, "detach from the host's mount propagation");
	return 0;
}

/* 0-2 open, the numbers up to SP_FD_RESERVED occupied, nothing else inherited. */
static int arrange_descriptors(struct sp_launcher *launcher, struct sp_err *err)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	while (fd >= 0 && fd < STDERR_FILENO)
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return sp_err_set(err, -errno, "open '/dev/null'");
	for (int reserved = SP_LAUNCHER_FD + 1; reserved <= SP_FD_RESERVED; reserved++)
		if (fd != reserved && dup3(fd, reserved, O_CLOEXEC) < 0)
			return sp_err_set(err, -errno, "reserve descriptors");
	if (close_range(SP_FD_RESERVED + 1, ~0U, 0) < 0)
		return sp_err_set(err, -errno, "close inherited descriptors");
	if (fcntl(SP_LAUNCHER_FD, F_SETFD, FD_CLOEXEC) < 0 ||
	    fcntl(SP_LAUNCHER_FD, F_SETFL, O_NONBLOCK) < 0)
		return sp_err_set(err, -errno, "use the socket on descriptor %d", SP_LAUNCHER_FD);
	launcher->daemon_fd = SP_LAUNCHER_FD;
	return 0;
}

static int arrange_signals(struct sp_launcher *launcher, struct sp_err *err)
{
	sigset_t set;

	/* Whatever was inherited as ignored would stay so in every sandbox. */
	for (int number = 1; number < NSIG; number++)
		(void)signal(number, SIG_DFL);
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)sigaddset(&set, DAEMON_DIED);
	launcher->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	/* Helpers inherit the mask: a Ctrl-C at the terminal is main's to handle. */
	(void)sigaddset(&set, SIGHUP);
	(void)sigaddset(&set, SIGQUIT);
	(void)sigaddset(&set, SIGPIPE);
	(void)sigaddset(&set, SIGTSTP);
	if (launcher->signal_fd < 0 || sigprocmask(SIG_SETMASK, &set, NULL) < 0)
		return sp_err_set(err, -errno, "take over signals");
	return 0;
}

/*
 * The second line beside end of file, which a daemon can keep from coming: one that has put its own
 * end of the socket into the queue, and then reads no answers so that we read no requests. Whoever
 * died before this line left an end of file. After the last change of credentials, which clears it.
 */
static int follow_daemon(struct sp_err *err)
{
	return prctl(PR_SET_PDEATHSIG, DAEMON_DIED) < 0
		       ? sp_err_set(err, -errno, "follow the daemon")
		       : 0;
}

/* Two descriptors a sandbox; init sets its own limits. */
static void raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
}

static int start(struct sp_launcher *launcher, const char *init_path, struct sp_err *err)
{
	SP_AUTO_CLOSE int init_fd = -1;
	int status = arrange_descriptors(launcher, err);

	if (status == 0)
		status = arrange_signals(launcher, err);
	if (status < 0)
		return status;
	raise_descriptor_limit();
	launcher->fd_ceiling = sp_fd_ceiling();
	(void)umask(022);
	status = sp_memfd_program(init_path, &init_fd, err);
	if (status < 0)
		return status;
	launcher->rootless = geteuid() != 0;
	if (launcher->rootless)
		status = sp_user_namespace_enter(&launcher->own_ids, err);
	if (status == 0)
		status = enter_mount_namespace(err);
	if (status == 0)
		status = follow_daemon(err);
	if (status < 0)
		return status;
	launcher->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (launcher->epoll_fd < 0)
		return sp_err_set(err, -errno, "create an epoll");
	status = sp_slots_init(launcher, err);
	if (status == 0)
		status = sp_spawn_start(launcher, init_fd, err);
	if (status == 0 && chdir("/") < 0)
		status = -errno;
	if (status == 0)
		status = sp_launcher_watch(launcher, launcher->signal_fd, SP_EVENT_SIGNAL, 0,
					   EPOLLIN);
	if (status == 0)
		status = sp_launcher_watch(launcher, launcher->daemon_fd, SP_EVENT_DAEMON, 0, 0);
	return status < 0 && err->status == 0 ? sp_err_set(err, status, "watch the sockets")
					      : status;
}

/* Installed and built trees have the three programs side by side. */
static const char *beside_us(const char *name, char *buffer)
{
	char self[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (len < 0)
		return name;
	self[len] = '\0';
	(void)snprintf(buffer, PATH_MAX, "%s/%s", dirname(self), name);
	return buffer;
}

/* Paths are used after the launcher has moved to "/". */
static const char *absolute(const char *path, char *buffer)
{
	char cwd[PATH_MAX];

	if (path[0] == '/' || !getcwd(cwd, sizeof(cwd)))
		return path;
	(void)snprintf(buffer, 2 * PATH_MAX, "%s/%s", cwd, path);
	return buffer;
}

static int usage(void)
{
	(void)fprintf(stderr, "usage: sandpool-launcher --config FILE [--init PATH] "
			      "[--compile PATH]\n(started by sandpoold, with its socket on "
			      "descriptor 3)\n");
	return EXIT_USAGE;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"config", required_argument, NULL, 'c'},
		{"init", required_argument, NULL, 'i'},
		{"compile", required_argument, NULL, 'm'},
		{"version", no_argument, NULL, 'V'},
		{NULL, 0, NULL, 0},
	};
	static char init_buffer[PATH_MAX];
	static char compile_buffer[PATH_MAX];
	static char config_absolute[2 * PATH_MAX];
	static char compile_absolute[2 * PATH_MAX];
	struct sp_launcher *launcher = &the_launcher;
	const char *init_path = beside_us("sandpool-init", init_buffer);
	struct sp_err err = {0};
	int option;

	launcher->compile_path = beside_us("sandpool-compile", compile_buffer);
	launcher->instance.lock_dir_fd = -1;
	launcher->binder.helper = -1;
	launcher->binder.socket_fd = -1;
	sp_loader_init(&launcher->loader);
	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		switch (option) {
		case 'c':
			launcher->config_path = optarg;
			break;
		case 'i':
			init_path = optarg;
			break;
		case 'm':
			launcher->compile_path = optarg;
			break;
		case 'V':
			(void)dprintf(STDOUT_FILENO, "sandpool-launcher %s\n", SP_VERSION);
			return EXIT_SUCCESS;
		default:
			return usage();
		}
	}
	if (optind != argc || !launcher->config_path)
		return usage();
	launcher->config_path = absolute(launcher->config_path, config_absolute);
	launcher->compile_path = absolute(launcher->compile_path, compile_absolute);
	sp_log_init("sandpool-launcher", STDERR_FILENO, SP_LOG_INFO);
	if (start(launcher, init_path, &err) < 0) {
		sp_log(SP_LOG_ERROR, "cannot start", "error=\"%s\"", err.message);
		return EXIT_FAILURE;
	}
	return run(launcher);
}
