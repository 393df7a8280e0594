/*
 * From a record to a running program: the pipes, and everything to init in one message.
 *
 * The pipes are made by another uid than the workload's, so the sandbox's ends get mode 0666: else
 * `> /dev/stdout` and `tee /dev/stderr`, which open them anew, would be refused. Both ends of a
 * pipe are one inode, but our end is not in the sandbox's reach.
 */
#include "supervisor/daemon/daemon_private.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What goes along with EXEC: up to stdin, stdout, stderr, cgroup, strings. */
struct passed {
	int fds[5];
	size_t count;
	int owned[5]; /* of fds, what is closed after the send */
	size_t owned_count;
};

static void pass(struct passed *passed, int fd, bool owned)
{
	passed->fds[passed->count++] = fd;
	if (owned)
		passed->owned[passed->owned_count++] = fd;
}

static void passed_close(struct passed *passed)
{
	for (size_t i = 0; i < passed->owned_count; i++)
		sp_fd_close(&passed->owned[i]);
	passed->owned_count = 0;
}

static int check_room(const struct sp_exec *exec, int fd, struct sp_err *err)
{
	if (fd < exec->service->fd_ceiling)
		return 0;
	return sp_err_code(err, SP_CODE_UNAVAILABLE, -EMFILE,
			   "the daemon has too many descriptors open");
}

/* inside: which end the sandbox gets, 0 the read end, 1 the write end. */
static int add_pipe(struct sp_exec *exec, int number, int inside, struct passed *passed,
		    struct sp_err *err)
{
	bool kept = number != 0; /* see exec_output.c */
	int ends[2];
	int status;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return sp_err_code(err, SP_CODE_UNAVAILABLE, -errno, "make a pipe for an exec");
	status = check_room(exec, SP_MAX(ends[0], ends[1]), err);
	if (status == 0 && fchmod(ends[inside], 0666) < 0)
		status = sp_err_set(err, -errno, "open up the pipe of an exec");
	if (status < 0) {
		sp_fd_close(&ends[0]);
		sp_fd_close(&ends[1]);
		return status;
	}
	pass(passed, ends[inside], !kept);
	return exec_stream_new(exec, number, ends[1 - inside], kept ? ends[inside] : -1, err);
}

/* Opened for each: the flags, locks and owners of one open file are seen by all that share it, and
 * sandboxes share nothing that they can write. */
static int add_null(struct passed *passed, struct sp_err *err)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return sp_err_code(err, SP_CODE_UNAVAILABLE, -errno, "open '/dev/null'");
	pass(passed, fd, true);
	return 0;
}

static int add_standard_streams(struct sp_exec *exec, struct passed *passed, struct sp_err *err)
{
	int status = 0;

	if (exec->tty)
		return 0;
	if (exec->stdin_wanted)
		status = add_pipe(exec, 0, 0, passed, err);
	else
		status = add_null(passed, err);
	if (status == 0)
		status = add_pipe(exec, 1, 1, passed, err);
	if (status == 0 && exec->merge_stderr)
		pass(passed, passed->fds[passed->count - 1], false);
	else if (status == 0)
		status = add_pipe(exec, 2, 1, passed, err);
	return status;
}

static uint32_t next_number(struct sandbox_link *link)
{
	do {
		link->last_exec++;
	} while (link->last_exec == 0 || exec_find(link, link->last_exec));
	return link->last_exec;
}

static void close_streams(struct sp_exec *exec)
{
	for (size_t i = 0; i < SP_ARRAY_SIZE(exec->streams); i++)
		if (exec->streams[i])
			exec_stream_close(exec->streams[i]);
}

static void fill_in(struct sp_exec *exec, const struct exec_cgroup *cgroup)
{
	struct sandbox_link *link = exec->sandbox;
	struct sp_init_exec *record = exec->record;

	record->header.exec = next_number(link);
	if (record->uid == UINT32_MAX)
		record->uid = link->workload_uid;
	if (record->gid == UINT32_MAX)
		record->gid = link->workload_gid;
	if (cgroup)
		record->flags |= SP_EXEC_F_CGROUP;
	/* Its second line of defence; a claim or the run has just moved it. */
	if (link->sandbox)
		record->deadline_boot_ms = link->sandbox->expires_ms;
}

/* While the program starts, so that its result does not have to wait for it. */
static void open_peak(struct sp_exec *exec)
{
	exec->peak_fd = cgroup_peak_open(&exec->service->mounts, exec->sandbox->cgroup);
	if (exec->peak_fd >= exec->service->fd_ceiling)
		sp_fd_close(&exec->peak_fd);
}

static void sent(struct sp_exec *exec, const struct exec_cgroup *cgroup)
{
	struct sandbox_link *link = exec->sandbox;

	exec->number = exec->record->header.exec;
	exec->state = EXEC_SENT;
	link->pool->served_ms = exec->started_ns / SP_NS_PER_MS;
	exec->oom_at_start = link->oom_kills;
	exec->in_cgroup = cgroup != NULL;
	if (cgroup)
		exec->cgroup = *cgroup;
	exec_record_free(exec);
	open_peak(exec);
	exec_arm(exec);
	for (size_t i = 0; i < SP_ARRAY_SIZE(exec->streams); i++)
		if (exec->streams[i])
			exec_stream_watch(exec->streams[i]);
	if (exec->stdin_buffer.len > 0 || exec->stdin_closing)
		exec_input_flush(exec);
}

int exec_send(struct sp_exec *exec, struct exec_cgroup *cgroup, struct sp_err *err)
{
	struct passed passed = {0};
	int status = add_standard_streams(exec, &passed, err);

	if (cgroup)
		pass(&passed, cgroup->fd, false);
	if (status == 0) {
		if (exec->strings_fd >= 0)
			pass(&passed, exec->strings_fd, false);
		fill_in(exec, cgroup);
		exec->started_ns = sp_clock_boot_ns();
		status = sandbox_send(exec->sandbox, exec->record, exec->record_len, passed.fds,
				      passed.count);
		if (status < 0)
			(void)sp_err_code(err, SP_CODE_SANDBOX_DEAD, status,
					  "sandbox '%s' does not listen", exec->sandbox->id);
	}
	passed_close(&passed);
	if (status < 0) {
		close_streams(exec);
		if (cgroup)
			exec_cgroup_done(exec->sandbox, cgroup);
		return status;
	}
	sent(exec, cgroup);
	return 0;
}

int exec_launch(struct sp_exec *exec, struct sandbox_link *link, struct sp_err *err)
{
	struct exec_cgroup cgroup;
	int status;

	exec->sandbox = link;
	memcpy(exec->sandbox_id, link->id, sizeof(exec->sandbox_id));
	sp_list_append(&link->execs, &exec->link);
	link->running_execs += !exec->own;
	link->execs_total += !exec->own;
	/*
	 * What runs alone in its sandbox, or for its life, is killed with it. Everything else waits
	 * for its cgroup (two are in hand, so this is rare): without one, a timeout or a client
	 * that leaves can cost the whole sandbox, because init cannot tell whose an orphan is.
	 */
	if (!exec->one_shot && link->kills_asked > 0) {
		exec->state = EXEC_WAITING; /* init hunts an exec, and would get this one as well */
		return 0;
	}
	if (exec->one_shot || exec->for_life || !spares_possible(link)) {
		status = exec_send(exec, NULL, err);
	} else if (spare_take(link, &cgroup)) {
		status = exec_send(exec, &cgroup, err);
		/* It comes back, but another exec may begin meanwhile. */
		if (link->spare_count == 0)
			spares_want_later(link);
	} else {
		exec->state = EXEC_WAITING;
		spares_want(link);
		return 0;
	}
	if (status < 0) {
		exec_detach(exec);
		link->execs_total -= !exec->own;
	}
	return status;
}
