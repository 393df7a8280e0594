/*
 * Starting programs without ever waiting for one.
 *
 * A child shares PID 1's memory until its execve (clone3 with CLONE_VM, without CLONE_VFORK: no
 * page tables are copied and nobody is blocked, even if a workload stops the child half-way). It
 * therefore needs things of its own that stay untouched until then: a stack with a guard page, and
 * its strings. Both live in the slot's arena, which is kept; the first slot's is made ahead. By
 * execve or by death a child leaves our memory, and the kernel clears the slot's `in_memory`
 * (CLONE_CHILD_CLEARTID); what happened stands in the slot's `child`. A child that has not got
 * there in a second is killed if a workload has stopped it, else in ten: many that begin at once
 * where processor time is short are slow and not stuck.
 *
 * Nothing wakes us when a child has left: we look when we are awake anyway, and every LOOK_MS while
 * one is starting. A program that is over sooner than that is told of in one record, and does not
 * share its processor with the news of its start. But where that news is awaited we sleep on the
 * word itself, as the kernel wakes whoever does; what comes meanwhile waits no longer than for a
 * look.
 */
#include "supervisor/init/exec.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"
#include "supervisor/init/boot_check.h"
#include "supervisor/init/child.h"
#include "supervisor/init/raw.h"
#include "supervisor/init/request.h"
#include "supervisor/init/serve.h"
#include "supervisor/init/session.h"
#include "supervisor/init/tty.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STOPPED_TIMEOUT_MS INT64_C(1000)
#define START_TIMEOUT_MS   INT64_C(10000) /* less than sandpoold waits */
#define LOOK_MS            3
#define LOOK_TTY_MS        1 /* somebody waits for the master before he sees anything */
#define WORKLOAD_OOM_SCORE "500"
#define NAME_SPACE         32

/* Address space of a slot; memory is what was touched of it. */
#define ARENA_GUARD   65536u /* whole pages on arm64 with 64 KiB as well */
#define ARENA_STACK   65536u
#define ARENA_VECTORS ((SP_INIT_ARGS_MAX + SP_INIT_ENV_MAX + 2) * sizeof(char *))
#define ARENA_DATA    (ARENA_GUARD + ARENA_STACK) /* argv, envp, the strings */
#define ARENA_SIZE    (ARENA_DATA + ARENA_VECTORS + SP_INIT_STRINGS_MAX)
#define ARENA_KEEP    65536u /* more strings than this are given back to the kernel */

enum slot_state {
	SLOT_FREE,
	SLOT_STARTING,
	SLOT_RUNNING,
	SLOT_FAILED,  /* out of our memory; START_FAILED follows when it is reaped */
	SLOT_LEAVING, /* START_FAILED was sent already, the process is being killed */
};

struct slot {
	struct sp_init_header about; /* exec number and request, for the answers */
	enum slot_state state;
	pid_t pid;
	uint32_t in_memory; /* cleared by the kernel */
	int master_fd;      /* terminal: goes out with STARTED */
	int64_t started_ms;
	size_t text_length;
	char *arena;
	struct init_child child;
};

/* Where a start went wrong. */
struct start_fault {
	const char *stage;
	int status;
};

static struct slot slots[SP_INIT_EXECS_MAX];
static unsigned int starting; /* slots in that state */

static struct slot *slot_of_exec(uint32_t exec)
{
	for (size_t i = 0; i < SP_INIT_EXECS_MAX; i++)
		if (slots[i].state != SLOT_FREE && slots[i].state != SLOT_LEAVING &&
		    slots[i].about.exec == exec)
			return &slots[i];
	return NULL;
}

static struct slot *slot_of_pid(pid_t pid)
{
	for (size_t i = 0; i < SP_INIT_EXECS_MAX; i++)
		if (slots[i].state != SLOT_FREE && slots[i].pid == pid)
			return &slots[i];
	return NULL;
}

static struct slot *free_slot(void)
{
	for (size_t i = 0; i < SP_INIT_EXECS_MAX; i++)
		if (slots[i].state == SLOT_FREE)
			return &slots[i];
	return NULL;
}

unsigned int init_exec_count(void)
{
	unsigned int count = 0;

	for (size_t i = 0; i < SP_INIT_EXECS_MAX; i++)
		if (slots[i].state != SLOT_FREE)
			count++;
	return count;
}

bool init_exec_known(uint32_t exec)
{
	return slot_of_exec(exec) != NULL;
}

int init_exec_session(uint32_t exec)
{
	const struct slot *slot = slot_of_exec(exec);

	return slot ? slot->child.session_fd : -1;
}

static int fault(struct start_fault *ret, const char *stage, int status)
{
	ret->stage = stage;
	ret->status = status;
	return status;
}

static int arena_open(struct slot *slot)
{
	char *arena;

	if (slot->arena)
		return 0;
	arena = mmap(NULL, ARENA_SIZE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (arena == MAP_FAILED)
		return -errno;
	if (mprotect(arena, ARENA_GUARD, PROT_NONE) != 0) {
		int status = -errno;

		(void)munmap(arena, ARENA_SIZE);
		return status;
	}
	slot->arena = arena;
	return 0;
}

/* What the first program would otherwise wait for. */
int init_exec_open(struct init *init)
{
	struct slot *first = &slots[0];
	int status = arena_open(first);

	if (status < 0)
		return status;
	*(volatile char *)(first->arena + ARENA_DATA - 1) = '\0';
	*(volatile char *)(first->arena + ARENA_DATA) = '\0';
	init->pid = getpid();
	for (int i = 0; i < RLIM_NLIMITS; i++) {
		struct rlimit limit;

		if (getrlimit((__rlimit_resource_t)i, &limit) != 0)
			return -errno;
		init->rlimits_max[i] = limit.rlim_max;
	}
	return 0;
}

/* The strings, from the record or the memfd, into the arena: the memfd's writer, if it were not
 * sealed, must not change them after the check. */
static int copy_strings(struct slot *slot, const struct sp_init_exec *request, int strings_fd,
			char *text)
{
	const int seals = F_SEAL_WRITE | F_SEAL_SHRINK;
	struct stat info;
	size_t done = 0;

	slot->text_length = request->strings_length;
	if (!text) /* the arena is mapped by now: said for the analyzer */
		return -ENOMEM;
	if (strings_fd < 0) {
		memcpy(text, request + 1, request->strings_length);
		return 0;
	}
	/* Only a memfd can have seals, and reading one never blocks. */
	if ((fcntl(strings_fd, F_GET_SEALS) & seals) != seals || fstat(strings_fd, &info) != 0 ||
	    info.st_size != (off_t)request->strings_length)
		return -EBADMSG;
	while (done < request->strings_length) {
		ssize_t got =
			pread(strings_fd, text + done, request->strings_length - done, (off_t)done);

		if (got <= 0)
			return -EBADMSG;
		done += (size_t)got;
	}
	return 0;
}

static int take_strings(struct slot *slot, const struct sp_init_exec *request, int strings_fd)
{
	char **vectors = (char **)(void *)(slot->arena + ARENA_DATA);
	struct init_strings strings = {
		.argv = vectors,
		.envp = vectors + request->argc + 1,
	};
	char *text = (char *)(strings.envp + request->envc + 1);
	int status = copy_strings(slot, request, strings_fd, text);

	if (status == 0)
		status = init_request_split(text, slot->text_length, request->argc, request->envc,
					    &strings);
	if (status < 0)
		return status;
	sp_assert(strings.cwd);
	slot->child.cwd = strings.cwd;
	slot->child.argv = strings.argv;
	slot->child.envp = strings.envp;
	return 0;
}

/* soft and hard; a hard limit that is lower already stays, nobody here could raise it. */
static void add_rlimit(const struct init *init, struct init_child *child, int resource,
		       uint64_t soft, uint64_t hard)
{
	rlim_t highest = init->rlimits_max[resource];
	size_t i = child->rlimit_count++;

	sp_assert(i < INIT_CHILD_RLIMITS);
	child->rlimits[i].resource = resource;
	child->rlimits[i].limit.rlim_cur = SP_MIN(soft, highest);
	child->rlimits[i].limit.rlim_max = SP_MIN(hard, highest);
}

/* What was asked for, but never above the pool's; 0 = not asked for. */
static uint64_t at_most(uint64_t asked, uint64_t limit)
{
	return asked == 0 ? limit : SP_MIN(asked, limit);
}

static void choose_rlimits(const struct init *init, struct init_child *child,
			   const struct sp_init_exec *request)
{
	const struct sp_table_pool *pool = init->pool;
	uint64_t nofile = at_most(request->rlimit_nofile, pool->rlimit_nofile);
	uint64_t fsize = at_most(request->rlimit_fsize, pool->rlimit_fsize);

	child->rlimit_count = 0;
	add_rlimit(init, child, RLIMIT_NOFILE, nofile, nofile);
	add_rlimit(init, child, RLIMIT_FSIZE, fsize, fsize);
	/* Not 0: that still starts a core handler that the host's core_pattern pipes to. */
	add_rlimit(init, child, RLIMIT_CORE, 1, 1);
	if (pool->rlimit_nproc > 0)
		add_rlimit(init, child, RLIMIT_NPROC, pool->rlimit_nproc, pool->rlimit_nproc);
	if (pool->rlimit_stack > 0)
		add_rlimit(init, child, RLIMIT_STACK, pool->rlimit_stack, pool->rlimit_stack);
	/* SIGXCPU at the limit, SIGKILL a second later. */
	if (request->rlimit_cpu_s > 0 && request->rlimit_cpu_s < RLIM_INFINITY)
		add_rlimit(init, child, RLIMIT_CPU, request->rlimit_cpu_s,
			   request->rlimit_cpu_s + 1);
}

static bool id_inside(uint32_t id)
{
	return id > 0 && id < INIT_ID_NOBODY;
}

/* On the host (DIRECT) the launcher has given init the workload's ids already. */
static int choose_ids(const struct init *init, struct init_child *child,
		      const struct sp_init_exec *request)
{
	const struct sp_table_pool *pool = init->pool;

	child->direct = init->direct;
	child->rootless = !init->direct && init->boot->rootless == 1;
	child->uid = request->uid;
	child->gid = request->gid;
	if (init->direct)
		return request->uid == pool->direct_uid && request->gid == pool->direct_gid
			       ? 0
			       : -EPERM;
	return id_inside(request->uid) && id_inside(request->gid) ? 0 : -EPERM;
}

static int choose_fds(struct init *init, struct slot *slot, const struct sp_init_exec *request,
		      const int *fds)
{
	struct init_child *child = &slot->child;
	int slave_fd;
	int status;

	child->tty = (request->flags & SP_EXEC_F_TTY) != 0;
	if (!child->tty) {
		memcpy(child->fds, fds, sizeof(child->fds));
		return 0;
	}
	status = init_tty_open(init, request, &slot->master_fd, &slave_fd);
	if (status < 0)
		return status;
	for (size_t i = 0; i < SP_ARRAY_SIZE(child->fds); i++)
		child->fds[i] = slave_fd;
	return 0;
}

static int fill_child(struct init *init, struct slot *slot, const struct sp_init_exec *request,
		      int strings_fd, struct start_fault *ret)
{
	struct init_child *child = &slot->child;
	int status;

	memset(child, 0, sizeof(*child));
	if (choose_ids(init, child, request) < 0)
		return fault(ret, "credentials", -EPERM);
	status = arena_open(slot);
	if (status < 0)
		return fault(ret, "memory", status);
	status = take_strings(slot, request, strings_fd);
	if (status < 0)
		return fault(ret, "record", status);
	if (child->cwd[0] != '/')
		return fault(ret, "cwd", -EINVAL);
	choose_rlimits(init, child, request);
	child->umask = request->umask;
	child->parent = init->pid;
	child->proc_fd = init->proc_fd;
	child->session_fd = -1;
	if (request->session != 0) {
		child->session_fd = init_session_pidfd(request->session);
		if (child->session_fd < 0)
			return fault(ret, "isolated_session", child->session_fd);
	}
	if (!init->direct) {
		child->filter = (const char *)init->boot + init->boot->exec_filter_offset;
		child->filter_length = init->boot->exec_filter_length;
	}
	return 0;
}

static int clone_child(struct init *init, struct slot *slot, int cgroup_fd, struct start_fault *ret)
{
	struct clone_args args = {
		.flags = CLONE_VM | CLONE_CHILD_CLEARTID,
		.child_tid = (uint64_t)(uintptr_t)&slot->in_memory,
		.exit_signal = SIGCHLD,
		.stack = (uint64_t)(uintptr_t)(slot->arena + ARENA_GUARD),
		.stack_size = ARENA_STACK,
	};
	/* A session's runs are one shell to its client, whose number does not change. */
	const pid_t shell_pid = 2;
	pid_t pid;

	if (slot->child.rootless)
		args.flags |= CLONE_NEWUSER;
	if (cgroup_fd >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)(unsigned int)cgroup_fd;
	}
	if (slot->child.session_fd >= 0) {
		args.set_tid = (uint64_t)(uintptr_t)&shell_pid;
		args.set_tid_size = 1;
	}
	slot->in_memory = 1;
	if (slot->child.session_fd >= 0) {
		int status = init_session_children(init, slot->child.session_fd);

		if (status < 0)
			return fault(ret, "isolated_session", status);
	}
	/* From here on the child may run, so its part of the slot is only read. */
	pid = raw_clone3(&args, init_child_main, &slot->child);
	if (pid == -EEXIST) { /* of a session: something else has that number */
		args.set_tid_size = 0;
		args.set_tid = 0;
		pid = raw_clone3(&args, init_child_main, &slot->child);
	}
	if (slot->child.session_fd >= 0)
		init_session_children_end(init);
	if (pid < 0)
		return fault(ret,
			     pid == -EAGAIN || pid == -ENOMEM || cgroup_fd < 0 ? "clone" : "cgroup",
			     pid);
	slot->pid = pid;
	return 0;
}

/* What this exec leaves or starts can be told from other execs' only if it begins with nothing and
 * stays alone. */
static void note_company(struct init *init, unsigned int running)
{
	siginfo_t info;

	if (running > 0)
		init->mixed = true;
	else
		init->mixed = !(waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 &&
				errno == ECHILD);
}

static int start(struct init *init, struct slot *slot, const struct sp_init_exec *request,
		 const int *fds, struct start_fault *ret)
{
	size_t next = (request->flags & SP_EXEC_F_TTY) != 0 ? 0 : 3;
	int cgroup_fd = (request->flags & SP_EXEC_F_CGROUP) != 0 ? fds[next++] : -1;
	int strings_fd = (request->flags & SP_EXEC_F_STRINGS) != 0 ? fds[next] : -1;
	int status;

	slot->about = request->header;
	slot->master_fd = -1;
	status = fill_child(init, slot, request, strings_fd, ret);
	if (status < 0)
		return status;
	status = choose_fds(init, slot, request, fds);
	if (status < 0)
		return fault(ret, "terminal", status);
	note_company(init, init_exec_count());
	status = clone_child(init, slot, cgroup_fd, ret);
	if (slot->child.tty)
		(void)close(slot->child.fds[0]);
	if (status < 0) {
		sp_fd_close(&slot->master_fd);
		return status;
	}
	slot->state = SLOT_STARTING;
	starting++;
	slot->started_ms = sp_clock_boot_ms();
	return 0;
}

/* Until the child has left our memory, or been given the time of a look for it. Not FUTEX_PRIVATE:
 * the kernel's own wake is not. */
static void await_start(const struct slot *slot)
{
	const struct timespec limit = {.tv_nsec = LOOK_MS * SP_NS_PER_MS};

	(void)RAW4(SYS_futex, &slot->in_memory, FUTEX_WAIT, 1, &limit);
}

static int admit(struct init *init, const struct sp_init_exec *request, struct slot **ret_slot,
		 struct start_fault *ret)
{
	if (init->kill_state != INIT_KILL_NONE)
		return fault(ret, "kill", -EAGAIN);
	if (slot_of_exec(request->header.exec))
		return fault(ret, "record", -EEXIST);
	*ret_slot = free_slot();
	return *ret_slot ? 0 : fault(ret, "execs", -EAGAIN);
}

void init_exec_start(struct init *init, const struct sp_init_exec *request, int *fds,
		     size_t fd_count)
{
	struct start_fault failed = {NULL, 0};
	struct slot *slot;
	int status = admit(init, request, &slot, &failed);

	if (status == 0)
		status = start(init, slot, request, fds, &failed);
	for (size_t i = 0; i < fd_count; i++)
		sp_fd_close(&fds[i]);
	if (status < 0)
		init_outbox_status(&init->outbox, SP_INIT_START_FAILED, &request->header,
				   failed.status, failed.stage);
	else if ((request->flags & SP_EXEC_F_AWAITED) != 0)
		await_start(slot);
}

static bool has_left(const struct slot *slot)
{
	return __atomic_load_n(&slot->in_memory, __ATOMIC_ACQUIRE) == 0;
}

static void end_start(struct slot *slot, enum slot_state state)
{
	sp_assert(slot->state == SLOT_STARTING && starting > 0);
	slot->state = state;
	starting--;
}

/* The child is out of our memory: its strings may go. */
static void leave_arena(const struct slot *slot)
{
	if (slot->text_length > ARENA_KEEP)
		(void)madvise(slot->arena + ARENA_GUARD, ARENA_SIZE - ARENA_GUARD, MADV_DONTNEED);
}

/*
 * The out-of-memory killer should find a workload before PID 1. Only now: before the execve the two
 * share one memory, and the kernel would set it for both. A program that nobody may read stays as
 * it is, its files in /proc are not ours to write.
 */
static void prefer_as_victim(const struct init *init, pid_t pid)
{
	char path[NAME_SPACE];
	SP_AUTO_CLOSE int fd = -1;

	(void)snprintf(path, sizeof(path), "%s%d/oom_score_adj", init->direct ? "/proc/" : "", pid);
	fd = openat(init->proc_fd, path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0)
		(void)!write(fd, WORKLOAD_OOM_SCORE, sizeof(WORKLOAD_OOM_SCORE) - 1);
}

static void answer_started(struct init *init, struct slot *slot)
{
	struct sp_init_status answer = {
		.header = {.type = SP_INIT_STARTED,
			   .exec = slot->about.exec,
			   .request = slot->about.request},
		.pid = (uint32_t)slot->pid,
	};

	init_outbox_send(&init->outbox, SP_BOOT_FD_CONTROL, &answer, sizeof(answer),
			 sp_take_fd(&slot->master_fd));
	prefer_as_victim(init, slot->pid);
}

static void answer_not_started(struct init *init, struct slot *slot, int status, const char *stage)
{
	sp_fd_close(&slot->master_fd);
	init_outbox_status(&init->outbox, SP_INIT_START_FAILED, &slot->about, status, stage);
}

/* The child has left our memory, by execve or on its way out. */
static void settle(struct init *init, struct slot *slot)
{
	leave_arena(slot);
	if (slot->child.progress != INIT_CHILD_EXECUTING) {
		end_start(slot, SLOT_FAILED);
		return;
	}
	end_start(slot, SLOT_RUNNING);
	answer_started(init, slot);
}

static void answer_failed(struct init *init, struct slot *slot)
{
	const struct init_child *child = &slot->child;

	if (child->progress == INIT_CHILD_FAILED)
		answer_not_started(init, slot, child->status,
				   init_child_step_name(child->failed_step));
	else /* somebody killed it on its way */
		answer_not_started(init, slot, -ECANCELED, "killed");
}

static void answer_exited(struct init *init, const struct slot *slot, int wait_status,
			  const struct rusage *usage)
{
	const uint64_t us_per_s = 1000000;
	struct sp_init_exited answer = {
		.header = {.type = SP_INIT_EXITED,
			   .exec = slot->about.exec,
			   .request = slot->about.request},
		.user_us = (uint64_t)usage->ru_utime.tv_sec * us_per_s +
			   (uint64_t)usage->ru_utime.tv_usec,
		.system_us = (uint64_t)usage->ru_stime.tv_sec * us_per_s +
			     (uint64_t)usage->ru_stime.tv_usec,
		.max_rss_kib = (uint64_t)usage->ru_maxrss,
	};

	if (WIFEXITED(wait_status)) {
		answer.code = CLD_EXITED;
		answer.value = (uint32_t)WEXITSTATUS(wait_status);
	} else {
		answer.code = WCOREDUMP(wait_status) ? CLD_DUMPED : CLD_KILLED;
		answer.value = (uint32_t)WTERMSIG(wait_status);
	}
	init_outbox_send(&init->outbox, SP_BOOT_FD_CONTROL, &answer, sizeof(answer), -1);
}

/* It is over before we saw it begin. EXITED says both; only a terminal has to be handed on. */
static void settle_dead(struct init *init, struct slot *slot)
{
	if (slot->child.progress == INIT_CHILD_EXECUTING && slot->master_fd < 0) {
		leave_arena(slot);
		end_start(slot, SLOT_RUNNING);
		return;
	}
	settle(init, slot);
}

void init_exec_reaped(struct init *init, pid_t pid, int wait_status, const struct rusage *usage)
{
	struct slot *slot = slot_of_pid(pid);

	if (!slot)
		return;
	if (slot->state == SLOT_STARTING)
		settle_dead(init, slot);
	else if (slot->state == SLOT_LEAVING)
		leave_arena(slot);
	if (slot->state == SLOT_RUNNING)
		answer_exited(init, slot, wait_status, usage);
	else if (slot->state == SLOT_FAILED)
		answer_failed(init, slot);
	slot->state = SLOT_FREE;
}

static bool is_stopped(pid_t pid)
{
	siginfo_t info = {0};

	return waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOHANG | WNOWAIT | __WALL) == 0 &&
	       info.si_pid == pid;
}

static bool is_overdue(const struct slot *slot, int64_t now_ms)
{
	int64_t passed_ms = now_ms - slot->started_ms;

	return passed_ms >= START_TIMEOUT_MS ||
	       (passed_ms >= STOPPED_TIMEOUT_MS && is_stopped(slot->pid));
}

static void look(struct init *init, struct slot *slot, int64_t now_ms)
{
	if (has_left(slot)) {
		settle(init, slot);
	} else if (is_overdue(slot, now_ms)) {
		/* Not reaped yet, so the number is still its own. Its slot stays taken until it
		 * has left our memory. */
		(void)kill(slot->pid, SIGKILL);
		end_start(slot, SLOT_LEAVING);
		answer_not_started(init, slot, -ETIMEDOUT, "exec");
	}
}

int init_exec_look(struct init *init)
{
	int next = -1;
	int64_t now_ms;

	if (starting == 0)
		return -1;
	now_ms = sp_clock_boot_ms();
	for (size_t i = 0; i < SP_INIT_EXECS_MAX; i++) {
		if (slots[i].state == SLOT_STARTING)
			look(init, &slots[i], now_ms);
		if (slots[i].state == SLOT_STARTING && next != LOOK_TTY_MS)
			next = slots[i].child.tty ? LOOK_TTY_MS : LOOK_MS;
	}
	return next;
}

void init_exec_signal(uint32_t exec, int signal)
{
	const struct slot *slot = slot_of_exec(exec);

	/* A child leads its own session and group, but for its first instructions. */
	if (slot && kill(-slot->pid, signal) != 0)
		(void)kill(slot->pid, signal);
}
