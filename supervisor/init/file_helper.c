/*
 * From a copy of PID 1 to somebody who can do no more than the workload, and less:
 *
 *  - No descriptor but the channel. The memory is init's of the moment of the fork; what a workload
 *    could do with that is what it can do to init, since it can reach neither.
 *  - Real, effective and saved ids are 65533, which nothing else has: a workload may signal, stop
 *    and trace what has its own. The ids for the file system are those of whom it works for, so the
 *    kernel decides about every file as it does for them. It takes CAP_SETUID to set them last.
 *  - No capability, but CAP_CHOWN in reserve where an owner may have to be set (file_own()).
 *  - A filter that is a list of the calls made here; another one kills.
 *  - With a one-uid map there is no second id: it runs as the workload does, in a user namespace of
 *    its own, not dumpable. A workload can then stop or kill it (it can do the same to its own
 *    programs), which ends the operation when sandpoold's patience or its timer does.
 *  - Rootless with subordinate ids a sandbox has two, so it keeps init's: a workload can do nothing
 *    to those either, and what they are good for goes with the capabilities.
 *  - DIRECT: as the workload as well; there is nothing else.
 *
 * Its time ends SP_INIT_FILE_STALL_S after the last progress: SIGALRM, the one signal not blocked.
 */
#include "supervisor/init/file_helper.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"
#include "supervisor/init/child.h"
#include "supervisor/init/raw.h"
#include "supervisor/init/session.h"
#include "supervisor/sandbox/privileges.h"
#include "supervisor/sandbox/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#define CAP_BIT(capability) (UINT64_C(1) << (capability))
#define TEMPORARY_SPACE     48

static void put_off_end(void)
{
	const struct itimerval timer = {.it_value.tv_sec = SP_INIT_FILE_STALL_S};

	(void)RAW3(SYS_setitimer, ITIMER_REAL, &timer, NULL);
}

void file_send(const void *record, size_t len, int fd)
{
	put_off_end();
	if (sp_msg_send(INIT_FILE_CHANNEL, record, len, &fd, fd >= 0 ? 1 : 0) < 0)
		_exit(0);
}

void file_tell(struct file_job *job)
{
	const struct sp_init_file_record_header record = {.type = SP_INIT_FILE_PROGRESS};
	int64_t now_ms = sp_clock_boot_ms();

	if (now_ms - job->told_ms < SP_INIT_FILE_TELL_MS)
		return;
	job->told_ms = now_ms;
	file_send(&record, sizeof(record), -1);
}

ssize_t file_receive(void *record, size_t size)
{
	int fds[SP_MSG_FDS_MAX];
	size_t fd_count = 0;
	ssize_t got;

	put_off_end();
	got = sp_msg_receive(INIT_FILE_CHANNEL, record, size, fds, &fd_count);
	for (size_t i = 0; got > 0 && i < fd_count; i++)
		sp_fd_close(&fds[i]);
	return got == -ECONNRESET ? 0 : got;
}

static void answer(const struct file_job *job, int status, const struct sp_init_file_info *info,
		   int fd)
{
	struct sp_init_file_result result = {
		.header.type = SP_INIT_FILE_RESULT,
		.status = status,
	};

	if (status < 0) {
		(void)snprintf(result.stage, sizeof(result.stage), "%s", job->stage);
		memcpy(result.object, job->object, sizeof(result.object));
	} else {
		result.info = *info;
		result.counts = job->counts;
	}
	file_send(&result, sizeof(result), fd);
}

/* ---- confinement ---- */

static bool is_of_overlay(uint32_t kind)
{
	return kind == SP_INIT_FILE_DIFF || kind == SP_INIT_FILE_WRITE_BACK ||
	       kind == SP_INIT_FILE_RENEW || kind == SP_INIT_FILE_RECOVER ||
	       kind == SP_INIT_FILE_USED;
}

/* Nobody may be at work where a commit is. There is no such place on the host. */
static int own_overlay(const struct init *init, struct file_job *job)
{
	uint32_t kind = job->request->kind;

	if (kind != SP_INIT_FILE_WRITE_BACK && kind != SP_INIT_FILE_RENEW)
		return 0;
	job->stage = "supported";
	if (init->direct || init->pid != 1 || init->boot->rootless == 1)
		return -EOPNOTSUPP;
	if ((job->request->flags & SP_INIT_FILE_F_UNUSED) != 0)
		return 0;
	return file_overlay_end(job);
}

static int own_descriptors(struct file_job *job, int channel_fd)
{
	int first = channel_fd >= 0 ? INIT_FILE_CHANNEL + 1 : INIT_FILE_CHANNEL;

	/* A sweep has no channel; what else is at 0 is init's boot record. */
	if (channel_fd >= 0 && dup3(channel_fd, INIT_FILE_CHANNEL, O_CLOEXEC) < 0)
		return -errno;
	if (is_of_overlay(job->request->kind) && job->request->kind != SP_INIT_FILE_RENEW)
		first = file_overlay_open(job);
	if (first < 0)
		return first;
	return close_range((unsigned int)first, ~0u, 0) == 0 ? 0 : -errno;
}

static int own_limits(const struct init *init)
{
	const struct rlimit size = {
		.rlim_cur = SP_MIN(init->pool->rlimit_fsize, init->rlimits_max[RLIMIT_FSIZE]),
		.rlim_max = SP_MIN(init->pool->rlimit_fsize, init->rlimits_max[RLIMIT_FSIZE]),
	};
	sigset_t alarm_only;

	if (RAW4(SYS_prlimit64, 0, RLIMIT_FSIZE, &size, NULL) < 0)
		return -EPERM;
	(void)umask(0);
	(void)sigemptyset(&alarm_only);
	(void)sigaddset(&alarm_only, SIGALRM);
	if (sigprocmask(SIG_UNBLOCK, &alarm_only, NULL) != 0)
		return -errno;
	put_off_end();
	return 0;
}

/* May this one have to give away what it makes? */
static bool gives_away(const struct init *init, const struct sp_init_file *request)
{
	if (init->direct || init->boot->rootless == 1)
		return false;
	return request->kind == SP_INIT_FILE_WRITE || request->kind == SP_INIT_FILE_MKDIR ||
	       request->kind == SP_INIT_FILE_CHANGE;
}

/* The last change of uid would take every capability along, were they not kept; then the file
 * system's id can be set, which follows the effective one at each change. */
static int change_ids(const struct sp_init_file *request, uint64_t reserve)
{
	const uint64_t needed = CAP_BIT(CAP_SETUID) | reserve;
	uint32_t id = INIT_FILE_ID;
	int status = sp_sys_setgroups(0, NULL);

	if (status == 0)
		status = sp_sys_setresgid(id, id, id);
	/* Not mapped: there are two ids, init's and the workload's. */
	if (status == -EINVAL) {
		id = 0;
		status = sp_sys_setresgid(id, id, id);
	}
	if (status < 0)
		return status;
	(void)RAW1(SYS_setfsgid, request->gid);
	status = sp_sys_capset(needed, needed, 0);
	if (status == 0 && prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0)
		status = -errno;
	if (status == 0)
		status = sp_sys_setresuid(id, id, id);
	if (status == 0)
		status = sp_sys_capset(needed, needed, 0);
	if (status < 0)
		return status;
	(void)RAW1(SYS_setfsuid, request->uid);
	/* Both say what was set before, so asking for nobody's id tells. */
	if ((uint32_t)RAW1(SYS_setfsuid, -1) != request->uid ||
	    (uint32_t)RAW1(SYS_setfsgid, -1) != request->gid)
		return -EPERM;
	return 0;
}

static int own_credentials(const struct init *init, const struct sp_init_file *request)
{
	uint64_t reserve = gives_away(init, request) ? CAP_BIT(CAP_CHOWN) : 0;

	int status = 0;

	if (request->kind == SP_INIT_FILE_DIFF || request->kind == SP_INIT_FILE_WRITE_BACK)
		reserve = CAP_BIT(CAP_DAC_OVERRIDE);
	if (!init->direct && init->boot->rootless == 0)
		status = change_ids(request, reserve);
	if (status == 0)
		status = sp_sys_capset(0, reserve, 0);
	/* Changing ids made it dumpable, if the host wants that, and forgot the parent. */
	if (status == 0)
		status = sp_privileges_hide();
	if (status == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0)
		status = -errno;
	return status;
}

int file_privilege(bool wanted)
{
	uint64_t effective;
	uint64_t permitted;
	uint64_t inheritable;
	int status = sp_sys_capget(&effective, &permitted, &inheritable);

	return status < 0 ? status : sp_sys_capset(wanted ? permitted : 0, permitted, 0);
}

static int confine(struct init *init, struct file_job *job, int channel_fd)
{
	const struct sp_init_file *request = job->request;
	int status = 0;

	/* Needs init's own proc, which goes with the descriptors. */
	if (!init->direct && init->boot->rootless == 1)
		status = (int)init_child_map_ids(init->proc_fd, request->uid, request->gid);
	/* The directory of the sandbox is left behind as well. */
	if (status >= 0 && request->session != 0)
		status = (int)RAW2(SYS_setns, init_session_pidfd(request->session),
				   INIT_SESSION_NAMESPACES);
	if (status >= 0)
		status = own_overlay(init, job);
	if (status >= 0)
		status = own_descriptors(job, channel_fd);
	if (status == 0)
		status = own_limits(init);
	/* This one mounts, and looks at nothing of anybody's. */
	if (status < 0 || request->kind == SP_INIT_FILE_RENEW)
		return status;
	job->stage = "confinement";
	status = own_credentials(init, request);
	return status < 0 ? status : file_filter_load();
}

/* ---- the operation ---- */

static int serve(struct file_job *job, struct sp_init_file_info *info, int *ret_fd)
{
	switch ((enum sp_init_file_kind)job->request->kind) {
	case SP_INIT_FILE_STAT:
		return file_stat(job, info);
	case SP_INIT_FILE_OPEN:
		return file_read(job, info, ret_fd);
	case SP_INIT_FILE_LIST:
		return file_list(job);
	case SP_INIT_FILE_MKDIR:
		return file_mkdir(job);
	case SP_INIT_FILE_REMOVE:
		return file_remove(job);
	case SP_INIT_FILE_MOVE:
		return file_move(job);
	case SP_INIT_FILE_CHANGE:
		return file_change(job);
	case SP_INIT_FILE_WRITE:
		return file_write(job);
	case SP_INIT_FILE_CONNECT:
		return file_connect(job, ret_fd);
	case SP_INIT_FILE_DIFF:
		return file_diff(job, info, ret_fd);
	case SP_INIT_FILE_WRITE_BACK:
		return file_write_back(job);
	case SP_INIT_FILE_RENEW:
		return file_renew(job);
	case SP_INIT_FILE_RECOVER:
		return file_recover(job);
	case SP_INIT_FILE_USED:
		return file_used(info);
	}
	return -ENOSYS;
}

/* A listing has told something, and an upload taken something: that one sees to it itself, as do
 * those of overlays. */
static bool can_be_repeated(const struct file_job *job)
{
	uint32_t kind = job->request->kind;

	return kind != SP_INIT_FILE_LIST && kind != SP_INIT_FILE_WRITE && !is_of_overlay(kind);
}

static int serve_owner(struct file_job *job, struct sp_init_file_info *info, int *ret_fd)
{
	int status = serve(job, info, ret_fd);

	if (status != -EACCES || !can_be_repeated(job) || !file_open_closed(job))
		return status;
	job->stage = "path";
	status = serve(job, info, ret_fd);
	file_close_opened();
	return status;
}

/* What a helper that died may have left. */
static void sweep(struct file_job *job)
{
	struct file_name name = {.dir_fd = -1};
	int status = job->to ? file_parent(job, job->to, false, &name)
			     : file_destination(job, job->path, false, &name);

	if (status == 0) {
		(void)snprintf(name.name, sizeof(name.name), "%s", job->temporary);
		(void)file_remove_tree(job, &name);
	}
	if (!job->to)
		file_sweep(job, job->path);
}

void init_file_helper(struct init *init, const struct sp_init_file *request, int channel_fd,
		      uint64_t serial)
{
	char temporary[TEMPORARY_SPACE];
	const char *text = (const char *)(request + 1);
	struct file_job job = {
		.request = request,
		.path = text,
		.to = request->kind == SP_INIT_FILE_MOVE ? text + request->path_length + 1 : NULL,
		.stage = "confinement",
		.temporary = temporary,
		.temporary_fd = -1,
		.made = UINT32_MAX,
		.told_ms = sp_clock_boot_ms(),
	};
	struct sp_init_file_info info = {0};
	int status = confine(init, &job, channel_fd);
	int fd = -1;

	(void)snprintf(temporary, sizeof(temporary), ".sandpool-upload-%lu", serial);
	if (channel_fd < 0) {
		if (status == 0)
			sweep(&job);
		_exit(status == 0 ? 0 : 1);
	}
	if (status == 0) {
		job.stage = "path";
		if ((request->flags & SP_INIT_FILE_F_ACCOUNTS) != 0)
			file_tell_accounts();
		status = serve_owner(&job, &info, &fd);
	}
	answer(&job, status, &info, fd);
	_exit(0);
}
