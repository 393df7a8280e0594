/*
 * The life of an exec.
 *
 *	ACQUIRING ──granted──► (WAITING ──sub-cgroup──►) SENT ──STARTED, output──► RUNNING
 *	   └─ failed                                      │                           │
 *	                                                  ├──────────EXITED───────────┴──► DRAINING
 *	                                                  └─ START_FAILED, lost ─────────────► ended
 *
 * The result is the kernel's word through init: wait status, usage, the cgroup's counters. What the
 * program wrote decides nothing but the output. An exec ends when its main process has ended and
 * what that process left in the pipes was delivered; who else holds the pipes does not matter.
 *
 * `ended` is the last callback and the last statement of whatever called it: the owner may do
 * anything in it. Nothing else frees a started exec.
 */
#include "supervisor/daemon/daemon_private.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"
#include "pool/base/log.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#define TTY_GRACE_MS 100             /* for the hang-up of a pty after its session leader ended */
#define EXIT_OF_OOM  (128 + SIGKILL) /* what a shell returns for a child that was killed */

static const char *const reason_names[SP_EXEC_REASON_COUNT] = {
	[SP_EXEC_EXITED] = "exited",   [SP_EXEC_SIGNALED] = "signaled",
	[SP_EXEC_TIMEOUT] = "timeout", [SP_EXEC_MEMORY] = "memory",
	[SP_EXEC_OUTPUT] = "output",   [SP_EXEC_KILLED] = "killed",
	[SP_EXEC_EXPIRED] = "expired", [SP_EXEC_START_FAILED] = "start_failed",
	[SP_EXEC_DIED] = "died",
};

const char *sp_exec_reason_name(enum sp_exec_reason reason)
{
	sp_assert((unsigned int)reason < SP_EXEC_REASON_COUNT);
	return reason_names[reason];
}

static void on_finish(struct sp_deferred *deferred)
{
	exec_progress(SP_CONTAINER_OF(deferred, struct sp_exec, finish));
}

struct sp_exec *exec_find(struct sandbox_link *link, uint32_t number)
{
	SP_LIST_FOREACH (at, &link->execs) {
		struct sp_exec *exec = SP_CONTAINER_OF(at, struct sp_exec, link);

		if (exec->number == number && exec->state >= EXEC_SENT)
			return exec;
	}
	return NULL;
}

void exec_detach(struct sp_exec *exec)
{
	struct sandbox_link *link = exec->sandbox;

	if (!link)
		return;
	launcher_forget(exec->service->launcher, exec->kill_request);
	exec->kill_request = 0;
	exec_cgroup_leave(exec);
	sp_list_remove(&exec->link);
	link->running_execs -= !exec->own;
	exec->sandbox = NULL;
}

void exec_free(struct sp_exec *exec)
{
	struct sp_service *service = exec->service;

	exec_detach(exec);
	if (exec->counted)
		daemon_pools_run_ended(service);
	service->residents -= exec->resident;
	service->exec_count--;
	for (size_t i = 0; i < SP_ARRAY_SIZE(exec->streams); i++)
		if (exec->streams[i])
			exec_stream_close(exec->streams[i]);
	exec_record_free(exec);
	sp_fd_close(&exec->peak_fd);
	sp_buf_done(&exec->stdin_buffer);
	sp_timer_done(&service->timers, &exec->timer);
	sp_deferred_cancel(&exec->credit);
	sp_deferred_cancel(&exec->finish);
	sp_list_remove(&exec->service_link);
	free(exec);
	stop_progress(service);
}

static int exec_new(struct sp_service *service, const struct sp_config_pool *pool,
		    const struct sp_exec_spec *spec, const struct sp_exec_events *events, void *arg,
		    struct sp_exec **ret_exec, struct sp_err *err)
{
	struct sp_exec *exec = calloc(1, sizeof(*exec));
	int status;

	if (!exec || sp_timer_init(&service->timers, &exec->timer, exec_on_timer) < 0) {
		free(exec);
		(void)sp_err_set(err, -ENOMEM, "exec");
		return -ENOMEM;
	}
	exec->service = service;
	exec->strings_fd = -1;
	exec->peak_fd = -1;
	exec->tty = spec->tty;
	exec->stdin_wanted = spec->stdin_open;
	exec->merge_stderr = spec->merge_stderr;
	exec->resident = spec->resident;
	exec->for_life = spec->for_life;
	exec->isolated = spec->session != 0;
	service->residents += spec->resident;
	exec->events = *events;
	exec->arg = arg;
	exec->result.exit_code = -1;
	memcpy(exec->pool_name, pool->policy.name, sizeof(exec->pool_name));
	sp_buf_init(&exec->stdin_buffer, SP_EXEC_STDIN_WINDOW);
	sp_deferred_init(&exec->credit, exec_on_credit);
	sp_deferred_init(&exec->finish, on_finish);
	sp_list_init(&exec->link);
	sp_list_append(&service->execs, &exec->service_link);
	service->exec_count++;
	status = exec_record_build(exec, pool, spec, err);
	if (status != 0) {
		exec_free(exec);
		return status;
	}
	*ret_exec = exec;
	return 0;
}

/* ---- start ---- */

static int check_exec_allowed(const struct sp_service *service, struct sp_err *err)
{
	if (!service->config->config->exec_enabled)
		return sp_err_code(err, SP_CODE_EXEC_DISABLED, -EPERM,
				   "exec_enabled is false in the configuration");
	if (service->stopping)
		return sp_err_code(err, SP_CODE_UNAVAILABLE, -ESHUTDOWN,
				   "the daemon is shutting down");
	return 0;
}

int sandbox_enter(struct sandbox_link *link, struct sp_err *err)
{
	int status;

	if (!link->sandbox)
		return sp_err_code(err, SP_CODE_SANDBOX_DEAD, -ESRCH, "sandbox '%s' has ended",
				   link->id);
	if (link->sandbox->state == SP_SANDBOX_KILLING && link->sandbox->end_reason == SP_END_DIED)
		return sp_err_code(err, SP_CODE_SANDBOX_DEAD, -ESRCH, "sandbox '%s' has died",
				   link->id);
	status = sp_pool_claim(link->pool->policy, link->sandbox, sp_clock_boot_ms(), err);
	daemon_pool_touch(link->pool);
	if (status < 0)
		return status;
	if (!sandbox_usable(link))
		return sp_err_code(err, SP_CODE_SANDBOX_DEAD, -ESRCH, "sandbox '%s' has ended",
				   link->id);
	if (link->frozen)
		return sp_err_code(err, SP_CODE_CONFLICT, -EBUSY, "sandbox '%s' is paused",
				   link->id);
	if (overlays_closed(link))
		return sp_err_code(err, SP_CODE_CONFLICT, -EBUSY, "sandbox '%s' is being committed",
				   link->id);
	return 0;
}

static int enter(struct sandbox_link *link, struct sp_err *err)
{
	int status = sandbox_enter(link, err);

	if (status < 0)
		return status;
	if (link->running_execs >= SP_INIT_EXECS_MAX)
		return sp_err_code(err, SP_CODE_TOO_MANY, -EAGAIN,
				   "sandbox '%s' runs %u execs already", link->id,
				   link->running_execs);
	return 0;
}

int sp_exec_start(struct sp_service *service, const struct sp_caller *caller, const char *id,
		  const struct sp_exec_spec *spec, const struct sp_exec_events *events, void *arg,
		  struct sp_exec **ret_exec, struct sp_err *err)
{
	struct sandbox_link *link;
	struct sp_exec *exec;
	int status = check_exec_allowed(service, err);

	if (status == 0)
		status = service_find(service, caller, id, &link, err);
	if (status == 0)
		status = exec_new(service, link->pool->config, spec, events, arg, &exec, err);
	if (status != 0)
		return status;
	status = enter(link, err);
	if (status == 0)
		status = exec_launch(exec, link, err);
	if (status < 0) {
		exec_free(exec);
		return status;
	}
	*ret_exec = exec;
	return 0;
}

int exec_start_own(struct sandbox_link *link, const struct sp_config_pool *pool,
		   const struct sp_exec_spec *spec, const struct sp_exec_events *events, void *arg,
		   struct sp_exec **ret_exec, struct sp_err *err)
{
	struct sp_exec *exec;
	int status = exec_new(link->service, pool, spec, events, arg, &exec, err);

	if (status != 0)
		return status;
	exec->own = true;
	status = exec_launch(exec, link, err);
	if (status < 0) {
		exec_free(exec);
		return status;
	}
	*ret_exec = exec;
	return 0;
}

void exec_abandon(struct sp_exec *exec)
{
	exec->cancelled = true;
	sp_deferred_cancel(&exec->credit);
}

static void count_acquire(const struct sp_exec *exec)
{
	metrics_acquire_seconds(exec->service, exec->pool_name,
				(double)(sp_clock_boot_ns() - exec->asked_ns) /
					(double)SP_NS_PER_S);
}

static int run_in(struct sp_exec *exec, struct sandbox_link *link, struct sp_err *err)
{
	int status = enter(link, err);

	if (status == 0)
		status = exec_launch(exec, link, err);
	if (status < 0) {
		sandbox_end(link, SP_END_DISCARDED);
		return status;
	}
	exec->counted = true;
	exec->service->runs++;
	return 0;
}

static void on_granted(void *arg, struct sandbox_link *link, const struct sp_err *refused)
{
	struct sp_exec *exec = arg;
	struct sp_err err = {0};
	void (*failed)(void *, const struct sp_err *) = exec->failed;
	void *owner = exec->arg;

	exec->op = NULL;
	count_acquire(exec);
	if (refused)
		err = *refused;
	else if (run_in(exec, link, &err) == 0)
		return;
	exec_free(exec);
	failed(owner, &err);
}

/* The lease of a run must outlast its timeout; the policy caps it at max_lease. */
static int64_t run_ttl_ms(const struct sp_exec *exec, const struct sp_config_pool *pool,
			  int64_t wanted_ms)
{
	int64_t max_ms = pool->policy.max_lease_ms;

	if (wanted_ms > 0)
		return wanted_ms;
	if (exec->timeout_ms > 0 && exec->timeout_ms < max_ms - 2 * SP_KILL_PATIENCE_MS)
		return exec->timeout_ms + 2 * SP_KILL_PATIENCE_MS;
	return max_ms;
}

int sp_exec_run(struct sp_service *service, const struct sp_caller *caller,
		const struct sp_service_acquire *acquire, const struct sp_exec_spec *spec,
		const struct sp_exec_events *events,
		void (*failed)(void *arg, const struct sp_err *err), void *arg,
		struct sp_exec **ret_exec, struct sp_err *err)
{
	struct sp_service_acquire request = *acquire;
	struct sandbox_link *link;
	struct daemon_pool *pool;
	struct sp_exec *exec;
	int status = check_exec_allowed(service, err);

	if (status == 0)
		status = op_check_caller(caller, err);
	if (status == 0)
		status = daemon_pool_get(service, acquire->pool, &pool, err);
	if (status == 0)
		status = exec_new(service, pool->config, spec, events, arg, &exec, err);
	if (status != 0)
		return status;
	exec->one_shot = true;
	exec->asked_ns = sp_clock_boot_ns();
	exec->failed = failed;
	request.ttl_ms = run_ttl_ms(exec, pool->config, acquire->ttl_ms);
	status = op_begin(service, &request, on_granted, exec, &exec->op, &link, err);
	if (status == 1) {
		count_acquire(exec);
		status = run_in(exec, link, err);
	}
	if (status < 0) {
		exec_free(exec);
		return status;
	}
	*ret_exec = exec;
	return 0;
}

static void announce(struct sp_exec *exec)
{
	if (exec->announced || exec->cancelled)
		return;
	exec->announced = true;
	if (exec->events.started)
		exec->events.started(exec->arg, exec->sandbox_id);
}

void exec_begin(struct sp_exec *exec)
{
	if (exec->state == EXEC_SENT) {
		exec->state = EXEC_RUNNING;
		exec_arm(exec);
	}
	announce(exec);
}

void exec_on_started(struct sp_exec *exec, const struct sp_init_status *status, int *fds,
		     size_t fd_count)
{
	struct sp_err err = {0};

	SP_UNUSED(status);
	exec->confirmed = true;
	if (exec->tty && fd_count == 0) {
		sp_log(SP_LOG_WARN, "no room for a terminal, killing its program", "sandbox=%s",
		       exec->sandbox_id);
		exec_kill(exec, SP_EXEC_DIED);
		return;
	}
	if (fd_count == 1) {
		if (exec_stream_new(exec, 1, sp_take_fd(&fds[0]), -1, &err) < 0) {
			exec_kill(exec, SP_EXEC_DIED);
			return;
		}
		if (exec->rows > 0)
			(void)sp_exec_resize(exec, exec->rows, exec->columns);
		exec_input_flush(exec);
	}
	exec_begin(exec);
}

/* ---- end ---- */

/* The sandbox of a run is of no use from here on; killed when the answer has gone out. */
static void release_one_shot(struct sp_exec *exec)
{
	if (exec->one_shot && exec->sandbox)
		sp_defer_late(&exec->service->deferred, &exec->sandbox->release);
}

static void take_peak(struct sp_exec *exec, uint64_t max_rss_bytes)
{
	uint64_t peak = 0;

	if (exec->peak_fd >= 0)
		peak = cgroup_peak_read(exec->peak_fd);
	else if (exec->sandbox)
		peak = cgroup_peak_bytes(&exec->service->mounts, exec->sandbox->cgroup);
	if (peak == 0)
		peak = max_rss_bytes;
	exec->result.peak_memory_bytes = SP_MAX(exec->result.peak_memory_bytes, peak);
}

static bool out_of_memory(struct sp_exec *exec)
{
	struct sandbox_link *link = exec->sandbox;
	uint64_t kills;

	if (!link)
		return false;
	kills = cgroup_oom_kills(&exec->service->mounts, link->cgroup);
	link->oom_kills = SP_MAX(link->oom_kills, kills);
	return kills > exec->oom_at_start;
}

static void stop_clock(struct sp_exec *exec)
{
	sp_timer_set(&exec->service->timers, &exec->timer, INT64_MAX);
	if (exec->started_ns > 0)
		exec->result.wall_us = (sp_clock_boot_ns() - exec->started_ns) / 1000;
}

static void begin_drain(struct sp_exec *exec)
{
	exec->state = EXEC_DRAINING;
	exec_record_free(exec);
	exec_streams_bound(exec);
}

void exec_on_exited(struct sp_exec *exec, const struct sp_init_exited *exited)
{
	struct sp_exec_result *result = &exec->result;
	bool by_signal = exited->code != CLD_EXITED;

	exec_begin(exec);
	stop_clock(exec);
	result->user_us = (int64_t)exited->user_us;
	result->system_us = (int64_t)exited->system_us;
	result->exit_code = by_signal ? -1 : (int)(exited->value & 0xff);
	result->signal = by_signal ? (int)(exited->value & 0x7f) : 0;
	result->reason = by_signal ? SP_EXEC_SIGNALED : SP_EXEC_EXITED;
	take_peak(exec, exited->max_rss_kib * SP_KIB);
	if (exec->killed)
		result->reason = exec->kill_reason;
	else if ((result->signal == SIGKILL || result->exit_code == EXIT_OF_OOM) &&
		 out_of_memory(exec))
		result->reason = SP_EXEC_MEMORY;
	release_one_shot(exec);
	begin_drain(exec);
	exec_progress(exec);
}

/* The last steps fail for what the client has named. */
static void say_what_failed(struct sp_exec *exec, const struct sp_init_status *status)
{
	char *text = exec->result.message;
	size_t size = sizeof(exec->result.message);
	const char *why = strerror(-status->status);

	if (strcmp(status->stage, "exec") == 0)
		(void)snprintf(text, size, "'%s': %s", exec->program, why);
	else if (strcmp(status->stage, "cwd") == 0)
		(void)snprintf(text, size, "cwd '%s': %s", exec->cwd, why);
	else
		(void)snprintf(text, size, "%s: %s", status->stage, why);
}

void exec_on_start_failed(struct sp_exec *exec, const struct sp_init_status *status)
{
	struct sp_exec_result *result = &exec->result;

	stop_clock(exec);
	result->reason = exec->killed ? exec->kill_reason : SP_EXEC_START_FAILED;
	result->start_errno = -status->status;
	(void)snprintf(result->stage, sizeof(result->stage), "%s", status->stage);
	say_what_failed(exec, status);
	release_one_shot(exec);
	begin_drain(exec);
	exec_progress(exec);
}

void exec_not_started(struct sp_exec *exec, const char *stage, const struct sp_err *err)
{
	struct sp_exec_result *result = &exec->result;

	result->reason = exec->killed ? exec->kill_reason : SP_EXEC_START_FAILED;
	if (err) {
		result->start_errno = -err->status;
		(void)snprintf(result->message, sizeof(result->message), "%s", err->message);
	}
	(void)snprintf(result->stage, sizeof(result->stage), "%s", stage);
	exec_detach(exec);
	begin_drain(exec);
	sp_defer(&exec->service->deferred, &exec->finish);
}

static enum sp_exec_reason reason_of_end(enum sp_end_reason reason)
{
	switch (reason) {
	case SP_END_RELEASED:
	case SP_END_DRAINED:
	case SP_END_SHUTDOWN:
		return SP_EXEC_KILLED;
	case SP_END_EXPIRED:
	case SP_END_NEAR_EXPIRY:
	case SP_END_UNCLAIMED:
	case SP_END_LEASE_LOST:
		return SP_EXEC_EXPIRED;
	case SP_END_NONE:
	case SP_END_DISCARDED:
	case SP_END_EXCESS:
	case SP_END_DIED:
	case SP_END_CREATE_FAILED:
	case SP_END_SPEC_CHANGED:
	case SP_END_REASON_COUNT:
		break;
	}
	return SP_EXEC_DIED;
}

void exec_sandbox_lost(struct sp_exec *exec, enum sp_end_reason reason)
{
	struct sp_exec_result *result = &exec->result;

	/* Its result stands; only the delivery is still under way. */
	if (exec->state == EXEC_DRAINING) {
		exec_detach(exec);
		sp_defer(&exec->service->deferred, &exec->finish);
		return;
	}
	stop_clock(exec);
	take_peak(exec, 0);
	result->exit_code = -1;
	result->signal = SIGKILL;
	result->reason = exec->killed ? exec->kill_reason : reason_of_end(reason);
	/* init itself may have been the kernel's choice. */
	if (result->reason == SP_EXEC_DIED && out_of_memory(exec))
		result->reason = SP_EXEC_MEMORY;
	if (result->reason == SP_EXEC_DIED)
		(void)snprintf(result->message, sizeof(result->message), "the sandbox ended: %s",
			       sp_end_reason_name(reason));
	exec_detach(exec);
	begin_drain(exec);
	sp_defer(&exec->service->deferred, &exec->finish);
}

static void finish(struct sp_exec *exec)
{
	struct sp_exec_result result = exec->result;
	void (*ended)(void *, const struct sp_exec_result *) =
		exec->cancelled ? NULL : exec->events.ended;
	void *arg = exec->arg;

	if (exec->over_limit &&
	    (result.reason == SP_EXEC_EXITED || result.reason == SP_EXEC_SIGNALED))
		result.reason = SP_EXEC_OUTPUT;
	overlays_spoil(exec, result.reason);
	if (!exec->own)
		metrics_exec(exec->service, exec->pool_name, &result);
	if (exec->isolated)
		metrics_isolated_run(exec->service, exec->pool_name, &result);
	exec_free(exec);
	if (ended)
		ended(arg, &result);
}

void exec_progress(struct sp_exec *exec)
{
	sp_assert(exec->state == EXEC_DRAINING);
	if (exec->cancelled || exec_streams_settle(exec)) {
		finish(exec);
		return;
	}
	/* Only a pty is left without a bound: its hang-up must come, but is not waited for long. */
	if (exec->tty && !sp_timer_pending(&exec->timer))
		sp_timer_set(&exec->service->timers, &exec->timer,
			     sp_clock_boot_ms() + TTY_GRACE_MS);
}

/* ---- the owner's calls ---- */

int sp_exec_signal(struct sp_exec *exec, int signal_number, struct sp_err *err)
{
	struct sp_init_signal record = {
		.header = {.type = SP_INIT_SIGNAL, .exec = exec->number},
		.signal = (uint32_t)signal_number,
	};

	if (signal_number < 1 || signal_number > SIGRTMAX)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "signal must be from 1 to %d", SIGRTMAX);
	if (exec->state != EXEC_RUNNING || !exec->sandbox)
		return sp_err_code(err, SP_CODE_CONFLICT, -ESRCH, "the program does not run");
	return sandbox_send(exec->sandbox, &record, sizeof(record), NULL, 0);
}

void sp_exec_kill(struct sp_exec *exec)
{
	exec_kill(exec, SP_EXEC_KILLED);
}

void sp_exec_stop(struct sp_exec *exec, int signal_number, int64_t patience_ms, int64_t again_ms)
{
	int64_t now_ms = sp_clock_boot_ms();

	if (sp_exec_signal(exec, signal_number, NULL) < 0) {
		exec_kill(exec, SP_EXEC_KILLED);
		return;
	}
	if (exec->stop_ms == 0)
		exec->stop_ms = now_ms + patience_ms;
	exec->stop_signal = signal_number;
	exec->again_ms = again_ms;
	exec->next_stop_ms = now_ms + again_ms;
	exec_arm(exec);
}

int sp_exec_resize(struct sp_exec *exec, uint16_t rows, uint16_t columns)
{
	struct winsize size = {.ws_row = rows, .ws_col = columns};

	if (!exec->tty)
		return -ENOTTY;
	exec->rows = rows;
	exec->columns = columns;
	if (exec->streams[1] && ioctl(exec->streams[1]->fd, TIOCSWINSZ, &size) < 0)
		return -errno;
	return 0;
}

void sp_exec_pause(struct sp_exec *exec, bool pause)
{
	if (exec->paused == pause)
		return;
	exec->paused = pause;
	/* What is left may be gone: somebody in the sandbox can read the same pipe. */
	if (!pause && exec->state == EXEC_DRAINING)
		sp_defer(&exec->service->deferred, &exec->finish);
	for (int number = 1; number <= 2; number++)
		if (exec->streams[number])
			exec_stream_watch(exec->streams[number]);
}

void sp_exec_cancel(struct sp_exec *exec)
{
	exec->cancelled = true;
	sp_deferred_cancel(&exec->credit);
	switch (exec->state) {
	case EXEC_ACQUIRING:
		op_cancel(exec->op);
		exec_free(exec);
		return;
	case EXEC_DRAINING:
		sp_defer(&exec->service->deferred, &exec->finish);
		return;
	case EXEC_WAITING:
	case EXEC_SENT:
	case EXEC_RUNNING:
		exec_kill(exec, SP_EXEC_KILLED);
		return;
	}
}
