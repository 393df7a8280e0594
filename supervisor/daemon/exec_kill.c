/*
 * Killing what an exec started, and nothing else if that is possible.
 *
 *	alone in its sandbox (run)   the sandbox goes
 *	in a sub-cgroup              the launcher writes its cgroup.kill
 *	else                         init hunts its descendants; when it cannot tell, the sandbox
 *goes
 *
 * A kill that does not lead to the end of the exec within SP_KILL_PATIENCE_MS kills the sandbox;
 * after as much again the exec is ended without its process: a client never waits for something
 * that the kernel cannot kill.
 */
#include "supervisor/daemon/daemon_private.h"

#include "pool/base/clock.h"
#include "pool/base/log.h"

#include <errno.h>

static void discard_sandbox(struct sp_exec *exec)
{
	if (exec->sandbox)
		sandbox_end(exec->sandbox, SP_END_DISCARDED);
}

static void on_cgroup_killed(void *arg, const struct sp_launcher_answer *answer, int *fds,
			     size_t fd_count)
{
	struct sp_exec *exec = arg;

	SP_UNUSED(fds);
	SP_UNUSED(fd_count);
	exec->kill_request = 0;
	if (answer->status < 0)
		discard_sandbox(exec);
}

static int kill_by_cgroup(struct sp_exec *exec)
{
	struct sandbox_link *link = exec->sandbox;

	return launcher_command(exec->service->launcher, SP_LAUNCHER_EXEC_KILL, link->slot,
				link->serial, exec->cgroup.number, SP_REQUEST_MS, on_cgroup_killed,
				exec, &exec->kill_request);
}

static int kill_by_init(struct sp_exec *exec)
{
	struct sp_init_plain record = {
		.header = {.type = SP_INIT_KILL_EXEC, .exec = exec->number},
	};
	int status = sandbox_send(exec->sandbox, &record, sizeof(record), NULL, 0);

	if (status == 0)
		exec->sandbox->kills_asked++;
	return status;
}

void exec_kill(struct sp_exec *exec, enum sp_exec_reason reason)
{
	int status;

	if (exec->killed || exec->state == EXEC_DRAINING)
		return;
	exec->killed = true;
	exec->kill_reason = reason;
	if (exec->state == EXEC_WAITING) {
		exec_not_started(exec, "cgroup", NULL);
		return;
	}
	sp_timer_set(&exec->service->timers, &exec->timer,
		     sp_clock_boot_ms() + SP_KILL_PATIENCE_MS);
	if (!exec->sandbox)
		return;
	if (exec->one_shot) {
		exec->result.peak_memory_bytes =
			cgroup_peak_bytes(&exec->service->mounts, exec->sandbox->cgroup);
		sandbox_end(exec->sandbox, SP_END_RELEASED);
		return;
	}
	status = exec->in_cgroup ? kill_by_cgroup(exec) : kill_by_init(exec);
	if (status < 0)
		discard_sandbox(exec);
}

/* What its limits are counted from: the first whole millisecond not before the start, later by as
 * much as the sandbox stood still. A deadline is never early, not even by the part of a millisecond
 * that rounding down would take from it. */
static int64_t counted_from_ms(const struct sp_exec *exec)
{
	return (exec->started_ns + SP_NS_PER_MS - 1) / SP_NS_PER_MS + exec->stood_still_ms;
}

static int64_t start_overdue_ms(const struct sp_exec *exec)
{
	return exec->state == EXEC_SENT ? counted_from_ms(exec) + SP_START_PATIENCE_MS : INT64_MAX;
}

/* When it is killed. */
static int64_t due_ms(const struct sp_exec *exec)
{
	int64_t due_ms = start_overdue_ms(exec);

	if (exec->timeout_ms > 0)
		due_ms = SP_MIN(due_ms, counted_from_ms(exec) + exec->timeout_ms);
	if (exec->stop_ms > 0)
		due_ms = SP_MIN(due_ms, exec->stop_ms);
	return due_ms;
}

void exec_arm(struct sp_exec *exec)
{
	int64_t wake_ms = due_ms(exec);

	if (exec->killed)
		return;
	if (exec->again_ms > 0)
		wake_ms = SP_MIN(wake_ms, exec->next_stop_ms);
	sp_timer_set(&exec->service->timers, &exec->timer, wake_ms);
}

/* Nothing kills it yet. */
static void insist(struct sp_exec *exec)
{
	int64_t now_ms = sp_clock_boot_ms();

	if (exec->again_ms > 0 && exec->next_stop_ms <= now_ms) {
		(void)sp_exec_signal(exec, exec->stop_signal, NULL);
		exec->next_stop_ms = now_ms + exec->again_ms;
	}
	exec_arm(exec);
}

void exec_on_timer(struct sp_timer *timer)
{
	struct sp_exec *exec = SP_CONTAINER_OF(timer, struct sp_exec, timer);

	if (exec->state == EXEC_DRAINING) {
		/* The pty did not hang up: somebody in the background holds it. */
		if (exec->streams[1] && !exec->paused)
			exec->streams[1]->ended = true;
		exec_progress(exec);
		return;
	}
	/* Its init cannot answer either: neither is to blame for what did not happen meanwhile. */
	if (exec->sandbox && exec->sandbox->frozen) {
		sp_timer_set(&exec->service->timers, &exec->timer,
			     sp_clock_boot_ms() + SP_FROZEN_RETRY_MS);
		return;
	}
	if (!exec->killed && start_overdue_ms(exec) <= sp_clock_boot_ms()) {
		sp_log(SP_LOG_WARN, "a sandbox's init does not answer, killing it",
		       "pool=%s sandbox=%s", exec->pool_name, exec->sandbox_id);
		exec_kill(exec, SP_EXEC_DIED);
		discard_sandbox(exec);
		return;
	}
	if (!exec->killed && due_ms(exec) > sp_clock_boot_ms()) {
		insist(exec);
		return;
	}
	if (!exec->killed) {
		bool stopped = exec->stop_ms > 0 && exec->stop_ms <= sp_clock_boot_ms();

		exec_kill(exec, stopped ? SP_EXEC_KILLED : SP_EXEC_TIMEOUT);
		return;
	}
	if (exec->kill_rounds++ == 0) {
		sp_log(SP_LOG_WARN, "killed exec does not end, killing its sandbox",
		       "pool=%s sandbox=%s", exec->pool_name, exec->sandbox_id);
		discard_sandbox(exec);
		sp_timer_set(&exec->service->timers, &exec->timer,
			     sp_clock_boot_ms() + SP_KILL_PATIENCE_MS);
		return;
	}
	exec_sandbox_lost(exec, SP_END_DIED);
}
