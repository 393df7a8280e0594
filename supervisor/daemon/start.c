/*
 * The order of starting.
 *
 *	1 launcher     spawned with our rights; compiles the configuration (a fault ends the start)
 *	2 state        user looked up, state directory locked, descriptors limit raised
 *	3 inner parts  metrics, store, pools, links: everything that can fail for lack of something
 *	(the caller binds its listening sockets)
 *	4 privileges   dropped for good and checked
 *	5 pools        started, and with them the first sandboxes
 *
 * Until the loop runs it is allowed to block, and to fail with one clear line.
 */
#include "supervisor/daemon/daemon_private.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define HELLO_MS 60000

/* How long an earlier launcher of this instance may still clean up behind a daemon that was killed.
 */
#define PREDECESSOR_MS       1500
#define PREDECESSOR_RETRY_NS (20 * SP_NS_PER_MS)

/* Beside our own program (a build tree), or where it is installed relative to it. */
static int find_launcher(const char *wanted, char *path, struct sp_err *err)
{
	static const char *const places[] = {"", "../libexec/sandpool/", "../lib/sandpool/"};
	char own[PATH_MAX];
	ssize_t len;
	char *slash;

	if (wanted) {
		if (strlen(wanted) >= PATH_MAX)
			return sp_err_set(err, -ENAMETOOLONG, "path of the launcher");
		memcpy(path, wanted, strlen(wanted) + 1);
		return 0;
	}
	len = readlink("/proc/self/exe", own, sizeof(own) - 1);
	if (len < 0)
		return sp_err_set(err, -errno, "read '/proc/self/exe'");
	own[len] = '\0';
	slash = strrchr(own, '/');
	slash[1] = '\0';
	for (size_t i = 0; i < SP_ARRAY_SIZE(places); i++) {
		int more = snprintf(path, PATH_MAX, "%s%ssandpool-launcher", own, places[i]);

		if (more > 0 && more < PATH_MAX && access(path, X_OK) == 0)
			return 0;
	}
	return sp_err_set(err, -ENOENT, "find 'sandpool-launcher' near '%s'", own);
}

/* Two descriptors per sandbox, three per exec: take what we may have. */
static void raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
}

static int greet_launcher(struct sp_service *service, const char *program, struct sp_err *err)
{
	SP_AUTO_CLOSE int config_fd = -1;
	struct launcher_spawn spawn = {.program = program, .config_path = service->config_path};
	int status = launcher_spawn(&spawn, &service->launcher_fd, &service->launcher_pidfd, err);

	if (status == 0)
		status = launcher_hello(service->launcher_fd, HELLO_MS, &config_fd, err);
	return status < 0 ? status : config_read(config_fd, &service->config, err);
}

static int start_launcher(struct sp_service *service, const struct sp_daemon_options *options,
			  struct sp_err *err)
{
	const struct timespec pause = {.tv_nsec = PREDECESSOR_RETRY_NS};
	int64_t until_ms = sp_clock_boot_ms() + PREDECESSOR_MS;
	char program[PATH_MAX];
	int status = find_launcher(options->launcher, program, err);

	while (status == 0) {
		status = greet_launcher(service, program, err);
		if (status != -EALREADY || sp_clock_boot_ms() >= until_ms)
			return status;
		reap_launcher(service);
		(void)nanosleep(&pause, NULL);
		status = 0;
	}
	return status;
}

static int take_state_dir(struct sp_service *service, const struct sp_daemon_options *options,
			  struct sp_err *err)
{
	const struct sp_config *config = service->config->config;
	struct sp_identity identity;
	int status;

	service->state_dir = strdup(options->state_dir ? options->state_dir : config->state_dir);
	if (!service->state_dir)
		return sp_err_set(err, -ENOMEM, "state directory");
	status = identity_resolve(config->user, &identity, err);
	if (status == 0)
		status = state_dir_lock(service->state_dir, identity.uid, identity.gid,
					&service->lock_fd, err);
	identity_done(&identity);
	return status;
}

static int make_pools(struct sp_service *service, struct sp_err *err)
{
	size_t count = service->config->config->pool_count;

	service->pools = calloc(count + 1, sizeof(struct daemon_pool *));
	service->tombs = calloc(SP_TOMBS_MAX, sizeof(*service->tombs));
	if (!service->pools || !service->tombs)
		return sp_err_set(err, -ENOMEM, "pools");
	for (size_t i = 0; i < count; i++) {
		int status = daemon_pool_new(service, service->config, (uint32_t)i,
					     &service->pools[i], err);

		if (status < 0)
			return status;
		service->pool_count++;
	}
	return 0;
}

static void on_launcher_gone(void *arg, const struct sp_launcher_answer *answer)
{
	sandbox_on_gone(arg, answer);
}

static void on_launcher_lost(void *arg, int status)
{
	SP_UNUSED(status);
	stop_fatal(arg, "the launcher is gone, and every sandbox with it");
}

static void on_launcher_closed(void *arg)
{
	service_handle_closed(arg);
}

static const struct launcher_events launcher_events = {
	.gone = on_launcher_gone,
	.lost = on_launcher_lost,
	.closed = on_launcher_closed,
};

static void on_signal(uv_signal_t *handle, int signal_number)
{
	struct sp_service *service = handle->data;
	struct sp_err err = {0};

	if (signal_number != SIGHUP) {
		sp_daemon_stop(service);
		return;
	}
	if (reload_begin(service, NULL, NULL, &err) < 0)
		sp_log(SP_LOG_WARN, "configuration not reloaded", "error=\"%s\"", err.message);
}

int signals_init(struct sp_service *service, struct sp_err *err)
{
	static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};

	for (size_t i = 0; i < SP_ARRAY_SIZE(numbers); i++) {
		int status = uv_signal_init(service->loop, &service->signals[i]);

		if (status == 0) {
			service->signals[i].data = service;
			service->open_handles++;
			status = uv_signal_start(&service->signals[i], on_signal, numbers[i]);
		}
		if (status < 0)
			return sp_err_set(err, status, "watch signal %d", numbers[i]);
	}
	return 0;
}

static void on_watchdog(struct sp_timer *timer)
{
	struct sp_service *service = SP_CONTAINER_OF(timer, struct sp_service, watchdog);

	notify_send(service, "WATCHDOG=1");
	sp_timer_set(&service->timers, timer, sp_clock_boot_ms() + service->watchdog_ms);
}

static int make_loop_parts(struct sp_service *service, struct sp_err *err)
{
	int status = sp_timers_init(&service->timers, service->loop, err);

	if (status < 0)
		return status;
	service->open_handles++;
	sp_defer_queue_init(&service->deferred, service->loop);
	service->open_handles++;
	sp_deferred_init(&service->progress, stop_on_progress);
	if (sp_timer_init(&service->timers, &service->watchdog, on_watchdog) < 0 ||
	    sp_timer_init(&service->timers, &service->stop_timer, stop_on_timer) < 0 ||
	    upper_usage_init(service) < 0)
		return sp_err_set(err, -ENOMEM, "timers");
	return 0;
}

static int make_parts(struct sp_service *service, struct sp_err *err)
{
	int status;

	service->fd_ceiling = sp_fd_ceiling();
	cgroup_mounts_find(&service->mounts);
	status = cluster_open(service, err);
	if (status == 0)
		status = daemon_metrics_init(service, err);
	if (status == 0)
		status = launcher_open(service->loop, &service->timers,
				       sp_take_fd(&service->launcher_fd), &launcher_events, service,
				       &service->launcher, err);
	if (status < 0)
		return status;
	service->open_handles++;
	status = make_pools(service, err);
	return status < 0 ? status : signals_init(service, err);
}

static struct sp_service *service_alloc(uv_loop_t *loop, const struct sp_daemon_options *options)
{
	struct sp_service *service = calloc(1, sizeof(*service));

	if (!service)
		return NULL;
	service->loop = loop;
	service->lock_fd = -1;
	service->launcher_fd = -1;
	service->launcher_pidfd = -1;
	service->notify_fd = -1;
	sp_list_init(&service->links);
	sp_list_init(&service->execs);
	sp_list_init(&service->ops);
	sp_list_init(&service->files);
	sp_list_init(&service->commits);
	service->config_path =
		strdup(options->config_path ? options->config_path : SP_DEFAULT_CONFIG);
	if (!service->config_path) {
		free(service);
		return NULL;
	}
	return service;
}

/* A start that failed half-way: let the loop close what is open. */
static void undo(struct sp_service *service)
{
	if (service->open_handles > 0) {
		sp_daemon_close(service, NULL, NULL);
		(void)uv_run(service->loop, UV_RUN_DEFAULT);
	}
	sp_daemon_free(service);
}

int sp_daemon_new(const struct sp_daemon_options *options, uv_loop_t *loop,
		  struct sp_service **ret_service, struct sp_err *err)
{
	struct sp_service *service = service_alloc(loop, options);
	int status;

	if (!service)
		return sp_err_set(err, -ENOMEM, "service");
	raise_descriptor_limit();
	notify_init(service);
	status = start_launcher(service, options, err);
	if (status == 0) {
		sp_log_set_level(service->config->config->log_level);
		status = take_state_dir(service, options, err);
	}
	if (status == 0)
		status = make_loop_parts(service, err);
	if (status == 0)
		status = make_parts(service, err);
	if (status < 0) {
		undo(service);
		return status;
	}
	*ret_service = service;
	return 0;
}

int sp_daemon_drop_privileges(struct sp_service *service, struct sp_err *err)
{
	struct sp_identity identity;
	int status = identity_resolve(service->config->config->user, &identity, err);

	if (status == 0)
		status = privileges_drop(&identity, err);
	if (status == 0 && identity.uid == 0)
		sp_log(SP_LOG_WARN, "running as uid 0 (without capabilities), set user", NULL);
	identity_done(&identity);
	return status;
}

static void warn_of_weak_pools(const struct sp_config *config)
{
	for (size_t i = 0; i < config->pool_count; i++)
		if (config->pools[i].direct)
			sp_log(SP_LOG_WARN, "pool has no isolation (backend direct)", "pool=%s",
			       config->pools[i].policy.name);
	if (!config->exec_enabled)
		sp_log(SP_LOG_WARN, "exec_enabled is false, every exec is refused", NULL);
}

int sp_daemon_start(struct sp_service *service, void (*on_ended)(void *arg, int exit_status),
		    void *arg, struct sp_err *err)
{
	int64_t now_ms = sp_clock_boot_ms();

	service->on_ended = on_ended;
	service->arg = arg;
	warn_of_weak_pools(service->config->config);
	for (size_t i = 0; i < service->pool_count; i++) {
		int status = sp_pool_start(service->pools[i]->policy, now_ms, err);

		if (status < 0)
			return status;
		daemon_pool_touch(service->pools[i]);
	}
	service->watchdog_ms = notify_watchdog_ms();
	if (service->watchdog_ms > 0)
		sp_timer_set(&service->timers, &service->watchdog, now_ms + service->watchdog_ms);
	return 0;
}

void sp_daemon_announce_ready(struct sp_service *service)
{
	notify_send(service, "READY=1\nSTATUS=Serving");
	sp_log(SP_LOG_INFO, "serving", "version=%s pools=%zu", SP_VERSION, service->pool_count);
}
