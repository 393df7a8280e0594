/*
 * One live sandbox as the daemon sees it: a pidfd that says when it is dead, and the control socket
 * to its init.
 *
 *	ASKED ──CREATED──► BOOTING ──READY──► READY ──kill, death, bad record──► ENDING ──GONE──►
 *GONE └──CREATE_FAILED──► GONE     └──FAILED, kill, death──► ENDING
 *
 * init is trusted with nothing: it shares a kernel with foreign code that wants to become it. Each
 * record's length, type, exec number, number of descriptors and place in the protocol is checked
 * against a table; a record that does not fit ends the sandbox. Death is what the pidfd says, and
 * what init said before it died is read first.
 */
#include "supervisor/daemon/daemon_private.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"
#include "pool/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define ERRNO_MAX 4095            /* the kernel's */
#define USAGE_MAX (INT64_MAX / 4) /* two of them can be added */

static bool permanent(int status)
{
	switch (-status) {
	case EINVAL:
	case ENOENT:
	case ENOTDIR:
	case EPERM:
	case EACCES:
	case ENOSYS:
	case EOPNOTSUPP:
	case ENOEXEC:
		return true;
	default:
		return false;
	}
}

void sandbox_create_failed(struct sandbox_link *link, const char *stage, int status,
			   const char *message)
{
	struct daemon_pool *pool = link->pool; /* the policy may forget the link at once */
	struct sp_err err = {0};

	if (!link->policy_waits || !link->sandbox)
		return;
	link->policy_waits = false;
	if (message[0] != '\0')
		(void)sp_err_code(&err, SP_CODE_CREATE_FAILED, status, "%s", message);
	else
		(void)sp_err_set(&err, status, "%s", stage);
	err.code = SP_CODE_CREATE_FAILED;
	sp_pool_create_failed(pool->policy, link->sandbox, stage, permanent(status), &err,
			      sp_clock_boot_ms());
	daemon_pool_touch(pool);
}

static void send_kill(struct sandbox_link *link)
{
	int status = launcher_command(link->service->launcher, SP_LAUNCHER_KILL, link->slot,
				      link->serial, 0, 0, NULL, NULL, NULL);

	/* The policy asks again after kill_retry_ms; until then its own record is enough. */
	if (status < 0)
		sp_log(SP_LOG_WARN, "kill request not sent, retrying", "sandbox=%s errno=%d",
		       link->id, -status);
}

static void end_execs(struct sandbox_link *link)
{
	enum sp_end_reason reason = link->sandbox ? link->sandbox->end_reason : SP_END_DIED;
	struct sp_exec *exec;

	while ((exec = SP_LIST_FIRST(&link->execs, struct sp_exec, link)))
		exec_sandbox_lost(exec, reason);
	files_sandbox_lost(link);
	isolated_sandbox_lost(link);
	overlays_sandbox_lost(link);
}

static void tell_policy_died(struct sandbox_link *link)
{
	struct sp_sandbox *sandbox = link->sandbox;

	if (!sandbox)
		return;
	if (link->warmup) {
		warmup_lost(link);
	} else if (link->policy_waits) {
		sandbox_create_failed(link, "init", -ECHILD, "");
	} else if (sandbox->state == SP_SANDBOX_IDLE || sandbox->state == SP_SANDBOX_LEASED) {
		sp_pool_died(link->pool->policy, sandbox, sp_clock_boot_ms());
		sandbox_tell_end(link);
		daemon_pool_touch(link->pool);
	}
}

void sandbox_lost(struct sandbox_link *link, const char *why)
{
	if (link->state == LINK_GONE || link->state == LINK_ASKED)
		return;
	if (link->state != LINK_ENDING) {
		sp_log(SP_LOG_INFO, "sandbox lost", "pool=%s sandbox=%s why=\"%s\"",
		       link->pool->config->policy.name, link->id, why);
		link->state = LINK_ENDING;
		send_kill(link);
	}
	if (link->binding)
		op_sandbox_lost(link->binding);
	tell_policy_died(link);
	if (link->dead)
		end_execs(link);
}

static void on_pidfd(uv_poll_t *poll, int status, int events)
{
	struct sandbox_link *link = poll->data;

	SP_UNUSED(status);
	SP_UNUSED(events);
	if (!link->attached || link->dead)
		return;
	(void)uv_poll_stop(&link->pidfd_poll);
	/* Results that init reported before it died. */
	sp_seq_drain(&link->control);
	link->dead = true;
	sandbox_lost(link, "init died");
	/* Everything in it is dead: its execs can be finished whoever killed it. */
	end_execs(link);
}

/* ---- records from init ---- */

void sandbox_bad_record(struct sandbox_link *link, const char *what)
{
	sp_log(SP_LOG_WARN, "protocol violation by a sandbox's init", "sandbox=%s record=%s",
	       link->id, what);
	sp_seq_close(&link->control);
	sandbox_lost(link, "protocol violation");
}

void sandbox_created(struct sandbox_link *link)
{
	link->policy_waits = false;
	metrics_create_stage(link->pool, "total",
			     (double)(sp_clock_boot_ns() - link->asked_ns) / (double)SP_NS_PER_S);
	sp_pool_created(link->pool->policy, link->sandbox, sp_clock_boot_ms());
	daemon_pool_touch(link->pool);
	sandbox_tell_deadline(link);
}

static bool on_ready(struct sandbox_link *link, const struct sp_init_status *status)
{
	if (link->state == LINK_ENDING)
		return true; /* it was killed while it booted */
	if (link->state != LINK_BOOTING || status->header.exec != 0 || status->status != 0)
		return false;
	link->state = LINK_READY;
	if (!link->policy_waits || !link->sandbox)
		return true;
	metrics_create_stage(link->pool, "init", (double)status->elapsed_ns / (double)SP_NS_PER_S);
	if (warmup_wanted(link))
		warmup_begin(link);
	else
		sandbox_created(link);
	return true;
}

static bool on_failed(struct sandbox_link *link, const struct sp_init_status *status)
{
	if (link->state == LINK_ENDING)
		return true;
	if (link->state != LINK_BOOTING || status->status >= 0)
		return false;
	link->state = LINK_ENDING;
	send_kill(link);
	sandbox_create_failed(link, status->stage, status->status, "");
	return true;
}

/* The one thing that comes with a descriptor. Of any other kind, a read could wait. */
static bool is_terminal_master(int fd)
{
	int number;

	return ioctl(fd, TIOCGPTN, &number) == 0;
}

static bool on_started(struct sandbox_link *link, const struct sp_init_status *status, int *fds,
		       size_t fd_count)
{
	struct sp_exec *exec = exec_find(link, status->header.exec);

	/* A terminal without its master: there was no room for it here. */
	if (!exec || exec->state > EXEC_RUNNING || exec->confirmed ||
	    (fd_count > 0 && (!exec->tty || !is_terminal_master(fds[0]))))
		return false;
	exec_on_started(exec, status, fds, fd_count);
	return true;
}

static bool on_start_failed(struct sandbox_link *link, const struct sp_init_status *status)
{
	struct sp_exec *exec = exec_find(link, status->header.exec);

	if (!exec || exec->state != EXEC_SENT || status->status >= 0)
		return false;
	exec_on_start_failed(exec, status);
	return true;
}

static bool on_exited(struct sandbox_link *link, const struct sp_init_exited *exited)
{
	struct sp_exec *exec = exec_find(link, exited->header.exec);

	/* Over before its start was told; a terminal's master comes with that. */
	if (!exec || exec->state > EXEC_RUNNING || (exec->tty && !exec->confirmed))
		return false;
	exec_on_exited(exec, exited);
	return true;
}

static bool on_exec_killed(struct sandbox_link *link, const struct sp_init_status *status)
{
	if (link->kills_asked == 0)
		return false;
	link->kills_asked--;
	/* -ESRCH: it had ended before. -EBUSY: something of it may live, also when it has ended
	 * since. */
	if (status->status < 0 && status->status != -ESRCH)
		sandbox_end(link, SP_END_DISCARDED);
	else if (link->kills_asked == 0)
		exec_hunt_over(link);
	return true;
}

static bool on_mounted(struct sandbox_link *link, const struct sp_init_status *status)
{
	if (link->state == LINK_ENDING)
		return true;
	if (!link->binding || link->mount_request == 0 ||
	    status->header.request != link->mount_request)
		return false;
	link->mount_request = 0;
	op_on_mounted(link->binding, status->status, status->stage);
	return true;
}

struct record_rule {
	const char *name;
	size_t length;
	size_t fds_max;
};

static const struct record_rule record_rules[] = {
	[0] = {"ready", sizeof(struct sp_init_status), 0},
	[SP_INIT_FAILED - SP_INIT_READY] = {"failed", sizeof(struct sp_init_status), 0},
	[SP_INIT_STARTED - SP_INIT_READY] = {"started", sizeof(struct sp_init_status), 1},
	[SP_INIT_START_FAILED - SP_INIT_READY] = {"start_failed", sizeof(struct sp_init_status), 0},
	[SP_INIT_EXITED - SP_INIT_READY] = {"exited", sizeof(struct sp_init_exited), 0},
	[SP_INIT_KILLED - SP_INIT_READY] = {"killed", sizeof(struct sp_init_status), 0},
	[SP_INIT_MOUNTED - SP_INIT_READY] = {"mounted", sizeof(struct sp_init_status), 0},
	[SP_INIT_PONG - SP_INIT_READY] = {"pong", 0, 0}, /* never asked for */
	[SP_INIT_SESSION_OPENED -
		SP_INIT_READY] = {"session_opened", sizeof(struct sp_init_status), 0},
	[SP_INIT_SESSION_ENDED -
		SP_INIT_READY] = {"session_ended", sizeof(struct sp_init_status), 0},
	[SP_INIT_USED - SP_INIT_READY] = {"used", sizeof(struct sp_init_used), 0},
};

static bool dispatch(struct sandbox_link *link, uint32_t type, const void *record, int *fds,
		     size_t fd_count)
{
	switch (type) {
	case SP_INIT_READY:
		return on_ready(link, record);
	case SP_INIT_FAILED:
		return on_failed(link, record);
	case SP_INIT_STARTED:
		return on_started(link, record, fds, fd_count);
	case SP_INIT_START_FAILED:
		return on_start_failed(link, record);
	case SP_INIT_EXITED:
		return on_exited(link, record);
	case SP_INIT_KILLED:
		return on_exec_killed(link, record);
	case SP_INIT_SESSION_OPENED:
		return isolated_on_opened(link, record);
	case SP_INIT_SESSION_ENDED:
		return isolated_on_ended(link, record);
	case SP_INIT_USED:
		return upper_usage_on_used(link, record);
	default:
		return on_mounted(link, record);
	}
}

/* What is negated, added and printed from here on. */
static bool status_valid(const struct sp_init_status *status)
{
	return status->status <= 0 && status->status >= -ERRNO_MAX &&
	       memchr(status->stage, '\0', sizeof(status->stage));
}

static bool exited_valid(const struct sp_init_exited *exited)
{
	return exited->user_us <= USAGE_MAX && exited->system_us <= USAGE_MAX &&
	       exited->max_rss_kib <= USAGE_MAX / SP_KIB;
}

static bool record_valid(uint32_t type, const void *record)
{
	const struct sp_init_used *used = record;

	if (type == SP_INIT_EXITED)
		return exited_valid(record);
	return type == SP_INIT_USED ? used->bytes <= USAGE_MAX : status_valid(record);
}

static void on_record(void *arg, const void *record, size_t len, int *fds, size_t fd_count)
{
	struct sandbox_link *link = arg;
	const struct sp_init_header *header = record;
	const struct record_rule *rule;

	if (len < sizeof(*header) || header->type < SP_INIT_READY ||
	    header->type - SP_INIT_READY >= SP_ARRAY_SIZE(record_rules)) {
		sandbox_bad_record(link, "unknown");
		return;
	}
	rule = &record_rules[header->type - SP_INIT_READY];
	if (len != rule->length || fd_count > rule->fds_max) {
		sandbox_bad_record(link, rule->name);
		return;
	}
	if (!record_valid(header->type, record)) {
		sandbox_bad_record(link, rule->name);
		return;
	}
	if (!dispatch(link, header->type, record, fds, fd_count))
		sandbox_bad_record(link, rule->name);
}

static void on_hangup(void *arg, int status)
{
	struct sandbox_link *link = arg;

	SP_UNUSED(status);
	sandbox_lost(link, status == 0 ? "control socket closed" : "control socket broken");
}

/* ---- life ---- */

static void handle_closed(struct sandbox_link *link)
{
	sp_assert(link->open_handles > 0);
	link->open_handles--;
	sandbox_free_when_done(link);
}

static void on_pidfd_closed(uv_handle_t *handle)
{
	struct sandbox_link *link = handle->data;

	sp_fd_close(&link->pidfd);
	handle_closed(link);
}

static void on_control_closed(void *arg)
{
	handle_closed(arg);
}

int sandbox_attach(struct sandbox_link *link, const struct sp_launcher_answer *created, int pidfd,
		   int control, struct sp_err *err)
{
	int status;

	link->slot = created->slot;
	link->serial = created->serial;
	link->degraded = created->degraded;
	memcpy(link->cgroup, created->text, sizeof(link->cgroup));
	link->control.arg = link;
	link->control.on_record = on_record;
	link->control.on_hangup = on_hangup;
	link->control.on_closed = on_control_closed;
	link->control.outgoing_max = SP_INIT_OUTGOING_MAX;
	status = uv_poll_init(link->service->loop, &link->pidfd_poll, pidfd);
	if (status < 0) {
		sp_fd_close(&pidfd);
		sp_fd_close(&control);
		return sp_err_set(err, status, "poll the pidfd of sandbox '%s'", link->id);
	}
	link->pidfd = pidfd;
	link->pidfd_poll.data = link;
	link->attached = true;
	link->open_handles++;
	status = sp_seq_open(&link->control, link->service->loop, control, err);
	if (status < 0)
		return status; /* the pidfd is closed with the link */
	link->open_handles++;
	(void)uv_poll_start(&link->pidfd_poll, UV_READABLE, on_pidfd);
	return 0;
}

void sandbox_gone(struct sandbox_link *link)
{
	struct sp_sandbox *sandbox;

	if (link->state == LINK_GONE)
		return;
	if (link->attached && !link->dead) {
		/* The launcher saw it die before our loop did. */
		(void)uv_poll_stop(&link->pidfd_poll);
		sp_seq_drain(&link->control);
		link->dead = true;
		sandbox_lost(link, "gone");
		end_execs(link);
	}
	link->state = LINK_GONE;
	freeze_forget(link);
	spares_drop(link);
	while (!sp_list_empty(&link->retired))
		exec_stream_close(SP_CONTAINER_OF(link->retired.next, struct exec_stream, link));
	while (!sp_list_empty(&link->leftovers))
		exec_stream_close(SP_CONTAINER_OF(link->leftovers.next, struct exec_stream, link));
	if (link->attached) {
		link->attached = false;
		sp_seq_close(&link->control);
		uv_close((uv_handle_t *)&link->pidfd_poll, on_pidfd_closed);
	}
	sandbox = link->sandbox;
	if (sandbox) {
		struct daemon_pool *pool = link->pool;

		sp_pool_gone(pool->policy, sandbox, sp_clock_boot_ms()); /* calls forget */
		daemon_pool_touch(pool);
	}
}

void sandbox_free_when_done(struct sandbox_link *link)
{
	struct sp_service *service = link->service;

	if (link->sandbox || link->open_handles > 0 || link->state != LINK_GONE ||
	    !sp_list_empty(&link->ending.link))
		return;
	sp_assert(!link->warmup);
	sp_deferred_cancel(&link->gone);
	sp_deferred_cancel(&link->release);
	sp_deferred_cancel(&link->tidy);
	overlays_free(link);
	sp_list_remove(&link->link);
	free(link);
	stop_progress(service);
}

int sandbox_send(struct sandbox_link *link, const void *record, size_t len, const int *fds,
		 size_t fd_count)
{
	int status = sp_seq_send(&link->control, record, len, fds, fd_count);

	/* An init that does not read its socket is of no use to anybody. */
	if (status == -ENOBUFS)
		sandbox_end(link, SP_END_DISCARDED);
	return status;
}

void sandbox_end(struct sandbox_link *link, enum sp_end_reason reason)
{
	if (!link->sandbox)
		return;
	if (link->warmup && reason == SP_END_DISCARDED) {
		warmup_discarded(link);
		return;
	}
	sp_pool_end(link->pool->policy, link->sandbox, reason, sp_clock_boot_ms());
	daemon_pool_touch(link->pool);
}

bool sandbox_usable(const struct sandbox_link *link)
{
	return link->state == LINK_READY && link->sandbox &&
	       link->sandbox->state == SP_SANDBOX_LEASED;
}

void sandbox_tell_deadline(struct sandbox_link *link)
{
	struct sp_init_deadline record = {.header.type = SP_INIT_DEADLINE};

	if (link->state != LINK_READY || !link->sandbox)
		return;
	record.boot_ms = link->sandbox->expires_ms;
	(void)sandbox_send(link, &record, sizeof(record), NULL, 0);
}

/* The kernel tells the pid behind a pidfd in its fdinfo; 0 when it is gone. */
uint32_t sandbox_host_pid(struct sandbox_link *link)
{
	char path[64];
	char text[512];
	const char *line;
	ssize_t got;
	int fd;

	if (link->host_pid != 0 || !link->attached)
		return link->host_pid;
	(void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", link->pidfd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	got = sp_read_all(fd, text, sizeof(text) - 1);
	sp_fd_close(&fd);
	if (got <= 0)
		return 0;
	text[got] = '\0';
	line = strstr(text, "\nPid:");
	if (line) {
		long pid = strtol(line + 5, NULL, 10);

		link->host_pid = pid > 0 ? (uint32_t)pid : 0;
	}
	return link->host_pid;
}
