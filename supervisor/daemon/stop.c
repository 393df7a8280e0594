/*
 * The end of the daemon.
 *
 *	running ──SIGTERM──► stopping ──execs over, timeout, second SIGTERM──► killing ──all gone──►
 *ended └───────────────────────── launcher lost: fatal ────────────────────────────────────────►
 *ended
 *
 * While stopping nothing new is taken, idle sandboxes go, running execs may finish. Killing is
 * bounded: after SP_STOP_BOUND_MS the process ends anyway, and the launcher's death takes the rest.
 */
#include "supervisor/daemon/daemon_private.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define LAUNCHER_END_MS 10000

void stop_progress(struct sp_service *service)
{
	sp_defer(&service->deferred, &service->progress);
}

static void end(struct sp_service *service, int exit_status)
{
	if (service->ended)
		return;
	service->ended = true;
	service->exit_status = exit_status;
	if (service->on_ended)
		service->on_ended(service->arg, exit_status);
}

static void kill_all(struct sp_service *service)
{
	int64_t now_ms = sp_clock_boot_ms();

	service->killing = true;
	sp_timer_set(&service->timers, &service->stop_timer, now_ms + SP_STOP_BOUND_MS);
	for (size_t i = 0; i < service->pool_count; i++) {
		sp_pool_shutdown(service->pools[i]->policy, now_ms);
		daemon_pool_touch(service->pools[i]);
	}
	stop_progress(service);
}

void stop_on_progress(struct sp_deferred *deferred)
{
	struct sp_service *service = SP_CONTAINER_OF(deferred, struct sp_service, progress);

	daemon_pools_collect(service);
	if (!service->stopping || service->ended)
		return;
	if (!service->killing && service->exec_count == service->residents &&
	    sp_list_empty(&service->files))
		kill_all(service);
	if (service->killing && sp_list_empty(&service->links)) {
		sp_log(SP_LOG_INFO, "every sandbox is gone", NULL);
		end(service, 0);
	}
}

void stop_on_timer(struct sp_timer *timer)
{
	struct sp_service *service = SP_CONTAINER_OF(timer, struct sp_service, stop_timer);

	if (!service->killing) {
		sp_log(SP_LOG_WARN, "execs still run after shutdown_timeout, killing them", NULL);
		kill_all(service);
		return;
	}
	sp_log(SP_LOG_ERROR, "sandboxes do not end, leaving them to the launcher", NULL);
	end(service, 1);
}

void sp_daemon_stop(struct sp_service *service)
{
	int64_t now_ms = sp_clock_boot_ms();

	if (service->stopping) {
		if (!service->killing)
			kill_all(service);
		return;
	}
	sp_log(SP_LOG_INFO, "stopping", NULL);
	service->stopping = true;
	notify_send(service, "STOPPING=1");
	reload_abort(service);
	sp_timer_set(&service->timers, &service->stop_timer,
		     now_ms + service->config->config->shutdown_timeout_ms);
	for (size_t i = 0; i < service->pool_count; i++) {
		sp_pool_leave_host(service->pools[i]->policy, now_ms);
		daemon_pool_touch(service->pools[i]);
	}
	stop_progress(service);
}

void stop_fatal(struct sp_service *service, const char *why)
{
	if (service->ended)
		return;
	sp_log(SP_LOG_ERROR, "cannot go on", "why=\"%s\"", why);
	service->stopping = true;
	service->killing = true;
	end(service, 1);
}

void service_handle_closed(struct sp_service *service)
{
	void (*on_closed)(void *) = service->on_closed;

	if (--service->open_handles == 0 && on_closed)
		on_closed(service->closed_arg);
}

static void on_signal_closed(uv_handle_t *handle)
{
	service_handle_closed(handle->data);
}

static void on_part_closed(void *arg)
{
	service_handle_closed(arg);
}

/* Owners that did not cancel what they began are not called any more. */
static void drop_all(struct sp_service *service)
{
	struct sp_exec *exec;
	struct sp_service_op *op;

	while ((op = SP_LIST_FIRST(&service->ops, struct sp_service_op, link)))
		op_cancel(op);
	while ((exec = SP_LIST_FIRST(&service->execs, struct sp_exec, service_link)))
		exec_free(exec);
	files_drop_all(service);
	overlays_drop_all(service);
}

void sp_daemon_close(struct sp_service *service, void (*on_closed)(void *arg), void *arg)
{
	service->stopping = true;
	service->ended = true;
	service->on_closed = on_closed;
	service->closed_arg = arg;
	drop_all(service);
	reload_drop(service);
	while (service->pool_count > 0)
		daemon_pool_free(service->pools[--service->pool_count]);
	cluster_close(service);
	sp_timer_done(&service->timers, &service->watchdog);
	sp_timer_done(&service->timers, &service->stop_timer);
	upper_usage_done(service);
	sp_deferred_cancel(&service->progress);
	for (size_t i = 0; i < SP_ARRAY_SIZE(service->signals); i++)
		if (service->signals[i].data)
			uv_close((uv_handle_t *)&service->signals[i], on_signal_closed);
	launcher_close(service->launcher);
	service->launcher = NULL;
	sp_timers_close(&service->timers, on_part_closed, service);
	sp_defer_queue_close(&service->deferred, on_part_closed, service);
}

/* Its end of file came with the close of our socket; only now may it take a moment. */
void reap_launcher(struct sp_service *service)
{
	struct pollfd waited = {.fd = service->launcher_pidfd, .events = POLLIN};
	siginfo_t info;

	sp_fd_close(&service->launcher_fd);
	if (service->launcher_pidfd < 0)
		return;
	if (poll(&waited, 1, LAUNCHER_END_MS) == 1)
		(void)waitid(P_PIDFD, (id_t)service->launcher_pidfd, &info, WEXITED | WNOHANG);
	sp_fd_close(&service->launcher_pidfd);
}

void sp_daemon_free(struct sp_service *service)
{
	if (!service)
		return;
	reap_launcher(service);
	notify_done(service);
	sp_fd_close(&service->lock_fd);
	if (service->store)
		service->store->ops->free(service->store);
	sp_metrics_free(service->metrics.all);
	config_ref_drop(service->config);
	free(service->pools);
	free(service->by_slot);
	free(service->tombs);
	free(service->config_path);
	free(service->state_dir);
	free(service);
}
