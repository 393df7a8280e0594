/*
 * The spawner: makes sandboxes and takes their cgroups away. One request after the other, each
 * answered; what may block here (the kernel's cgroup lock, an RCU grace period) blocks no kill.
 *
 * It holds few descriptors and little memory on purpose: both are copied by each clone. Sandboxes
 * are cloned with CLONE_PARENT: main is their parent, reaps them and is whose death kills them.
 *
 * Trusts main. State: the current table with its templates, and the next one between PREPARE and
 * ADOPT.
 */
#include "supervisor/launcher/spawn.h"

#include "pool/base/fd.h"
#include "pool/base/log.h"
#include "supervisor/launcher/child.h"
#include "supervisor/launcher/source.h"
#include "supervisor/launcher/template.h"
#include "supervisor/sandbox/cgroup.h"
#include "supervisor/sandbox/memfd.h"
#include "supervisor/sandbox/syscalls.h"
#include "supervisor/sandbox/uid_slots.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define SWEEP_MS 5000 /* for leftovers of an earlier launcher to die */

struct templates {
	const struct sp_table *table; /* NULL: none */
	size_t size;
	struct sp_template pools[SP_TABLE_POOLS_MAX];
};

struct spawner {
	struct sp_spawner_setup setup;
	int base_ns_fd;
	int proc_fd;
	int lock_dir_fd;
	bool started;
	bool one_id; /* once started */
	struct sp_cgroups cgroups;
	struct sp_uid_slots uids;
	struct templates current;
	struct templates next;
};

static void set_stage(struct sp_spawn_answer *answer, const char *stage)
{
	(void)snprintf(answer->stage, sizeof(answer->stage), "%s", stage);
}

static int failed(struct sp_spawn_answer *answer, int status, const char *stage,
		  const struct sp_err *err)
{
	answer->status = status;
	set_stage(answer, stage);
	(void)snprintf(answer->text, sizeof(answer->text), "%.*s", (int)sizeof(answer->text) - 1,
		       err->message);
	return status;
}

/* --- tables ------------------------------------------------------------------------------ */

static void drop_templates(struct templates *templates)
{
	if (!templates->table)
		return;
	for (uint32_t i = 0; i < templates->table->pool_count; i++)
		sp_template_done(&templates->pools[i]);
	(void)munmap((void *)(uintptr_t)templates->table, templates->size);
	templates->table = NULL;
}

/* Rootless without ids for the sandboxes: the user's own is root of each of them. */
static bool one_id(const struct spawner *spawner, const struct sp_table *table)
{
	return spawner->setup.rootless &&
	       (spawner->setup.own_ids.count == 0 || table->uid_base == 0);
}

static int build_templates(struct spawner *spawner, int table_fd, int source_fd, struct sp_err *err)
{
	struct templates *next = &spawner->next;
	const void *data;
	int status = sp_memfd_map(table_fd, SP_TABLE_SIZE_MAX, &data, &next->size, err);

	if (status < 0)
		return status;
	next->table = data;
	for (uint32_t i = 0; i < SP_TABLE_POOLS_MAX; i++)
		next->pools[i] = (struct sp_template){.ns_fd = -1, .boot_fd = -1};
	status = sp_table_check(next->table, next->size, err);
	if (status < 0) {
		(void)munmap((void *)(uintptr_t)data, next->size);
		next->table = NULL;
		return status;
	}
	for (uint32_t i = 0; i < next->table->pool_count && status == 0; i++)
		status = sp_template_build(next->table, i, source_fd, spawner->base_ns_fd,
					   spawner->setup.rootless, one_id(spawner, next->table),
					   &next->pools[i], err);
	if (status < 0)
		drop_templates(next);
	return status;
}

static int start_uids(struct spawner *spawner, const struct sp_table *table, struct sp_err *err)
{
	const struct sp_own_ids *own = &spawner->setup.own_ids;
	uint32_t base = table->uid_base;
	uint32_t ids = SP_UID_SLOT_IDS;
	uint32_t count = spawner->one_id ? 0 : table->uid_count;

	if (spawner->setup.rootless) {
		base = own->first;
		ids = SP_OWN_IDS_PER_SANDBOX;
		count = SP_MIN(count, own->count / ids);
	}
	return sp_uid_slots_init(&spawner->uids, spawner->lock_dir_fd, base, ids, count, err);
}

/* With the first table: now the instance's name is known. */
static int start(struct spawner *spawner, struct sp_err *err)
{
	const struct sp_table *table = spawner->next.table;
	unsigned int left;
	int status = sp_cgroups_start(&spawner->cgroups, table->instance, err);

	spawner->one_id = one_id(spawner, table);
	if (status == 0)
		status = start_uids(spawner, table, err);
	if (status < 0)
		return status;
	left = sp_cgroups_sweep(&spawner->cgroups, SWEEP_MS);
	if (left > 0)
		sp_log(SP_LOG_WARN, "leftover cgroups cannot be removed, ignoring", "count=%u",
		       left);
	spawner->started = true;
	return 0;
}

static int handle_prepare(struct spawner *spawner, int *fds, struct sp_spawn_answer *answer)
{
	struct sp_err err = {0};
	int status;

	drop_templates(&spawner->next);
	if (spawner->lock_dir_fd < 0)
		spawner->lock_dir_fd = sp_take_fd(&fds[2]);
	status = build_templates(spawner, fds[0], fds[1], &err);
	if (status < 0)
		return failed(answer, status, "template", &err);
	if (!spawner->started)
		status = start(spawner, &err);
	if (status < 0) {
		drop_templates(&spawner->next);
		return failed(answer, status, "start", &err);
	}
	return 0;
}

static int handle_adopt(struct spawner *spawner, uint32_t adopt)
{
	if (!spawner->next.table)
		return -ENOENT;
	if (adopt == 0) {
		drop_templates(&spawner->next);
		return 0;
	}
	drop_templates(&spawner->current);
	spawner->current = spawner->next;
	spawner->next.table = NULL;
	return 0;
}

/* --- creating a sandbox -------------------------------------------------------------------- */

/* What a creation has collected so far; all of it is given back if it fails. */
struct creation {
	const struct sp_table_pool *pool;
	const struct sp_template *template;
	const char *id;
	bool direct;
	struct sp_cgroup_entry cgroups;
	int daemon_fd;
	int control_fd;
	int lock_fd;
	int pidfd;
	uint32_t uid_slot;
	uint32_t uid_base; /* host id of its id 0 */
	pid_t pid;
};

static int take_uids(struct spawner *spawner, struct creation *creation, struct sp_err *err)
{
	if (!creation->direct && !spawner->one_id) {
		int status = sp_uid_slots_take(&spawner->uids, &creation->uid_slot,
					       &creation->lock_fd, err);

		if (status == 0)
			creation->uid_base = sp_uid_slots_base(&spawner->uids, creation->uid_slot);
		return status;
	}
	/* No range to hold, but init expects a descriptor. */
	creation->uid_base =
		creation->direct ? creation->pool->direct_uid : spawner->setup.own_ids.user;
	creation->lock_fd = openat(spawner->lock_dir_fd, SP_UID_SLOTS_FILE, O_RDONLY | O_CLOEXEC);
	if (creation->lock_fd < 0)
		return sp_err_set(err, -errno, "open '%s'", SP_UID_SLOTS_FILE);
	return 0;
}

static int clone_child(struct spawner *spawner, struct creation *creation, bool into_cgroup)
{
	int pidfd = -1;
	struct clone_args args = {
		.flags = CLONE_PARENT | CLONE_PIDFD,
		.pidfd = (uint64_t)(uintptr_t)&pidfd,
	};
	pid_t pid;

	if (!creation->direct)
		args.flags |= CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS;
	if (into_cgroup) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)(unsigned int)creation->cgroups.v2_fd;
	}
	pid = sp_sys_clone3(&args);
	if (pid == 0) {
		struct sp_child_plan plan = {
			.control_fd = creation->control_fd,
			.boot_fd = creation->template->boot_fd,
			.life_fd = spawner->setup.life_fd,
			.lock_fd = creation->lock_fd,
			.init_fd = spawner->setup.init_fd,
			.host_ns_fd = spawner->setup.host_ns_fd,
			.cgroups = &creation->cgroups,
			.direct = creation->direct,
			.one_id = spawner->setup.rootless && (spawner->one_id || creation->direct),
			.into_cgroup = into_cgroup,
			.uid = creation->direct ? creation->pool->direct_uid : 0,
			.gid = creation->direct ? creation->pool->direct_gid : 0,
		};

		sp_child_run(&plan);
	}
	if (pid < 0)
		return pid;
	creation->pid = pid;
	creation->pidfd = pidfd;
	return 0;
}

/* Clone in the pool's mount namespace, which holds its template and nothing else. */
static int clone_in_template(struct spawner *spawner, struct creation *creation)
{
	bool into_cgroup = creation->cgroups.v2_fd >= 0;
	int status;

	if (!creation->direct && setns(creation->template->ns_fd, CLONE_NEWNS) < 0)
		return -errno;
	status = clone_child(spawner, creation, into_cgroup);
	/* Delegations exist that allow the move and not the birth. */
	if (status == -EACCES && into_cgroup)
		status = clone_child(spawner, creation, false);
	if (!creation->direct && setns(spawner->base_ns_fd, CLONE_NEWNS) < 0) {
		sp_log(SP_LOG_ERROR, "cannot return to the launcher's namespace", NULL);
		abort();
	}
	return status;
}

static int write_proc(const struct spawner *spawner, pid_t pid, const char *name, const char *text)
{
	char path[48];
	SP_AUTO_CLOSE int fd = -1;

	(void)snprintf(path, sizeof(path), "%d/%s", pid, name);
	fd = openat(spawner->proc_fd, path, O_WRONLY | O_CLOEXEC);
	return fd < 0 ? -errno : sp_write_all(fd, text, strlen(text));
}

/* Never negative: a protected launcher would make protected sandboxes. Where the launcher may not
 * lower a positive value (no CAP_SYS_RESOURCE), that value is as good. */
static int reset_oom_score(const struct spawner *spawner, pid_t pid)
{
	int status = write_proc(spawner, pid, "oom_score_adj", "0");
	char path[48];
	char value[16] = "-";
	SP_AUTO_CLOSE int fd = -1;
	ssize_t got;

	if (status != -EACCES)
		return status;
	(void)snprintf(path, sizeof(path), "%d/oom_score_adj", pid);
	fd = openat(spawner->proc_fd, path, O_RDONLY | O_CLOEXEC);
	got = fd < 0 ? -errno : sp_read_all(fd, value, sizeof(value) - 1);
	return got > 0 && value[0] != '-' ? 0 : status;
}

/* The number in our own user namespace of a host id. The user's is 0. */
static uint32_t own_number(const struct spawner *spawner, uint32_t id)
{
	const struct sp_own_ids *own = &spawner->setup.own_ids;

	if (!spawner->setup.rootless)
		return id;
	return id >= own->first && id - own->first < own->count ? id - own->first + 1 : 0;
}

/* Binds keep their owner, who is the user that started us: where a pool has writable ones, its
 * workloads are he. */
static bool workload_is_user(const struct spawner *spawner, const struct sp_table_pool *pool)
{
	if (!spawner->setup.rootless)
		return false;
	for (uint32_t i = 0; i < pool->root_count; i++)
		if ((pool->roots[i].flags & SP_ROOT_F_READ_ONLY) == 0)
			return true;
	return spawner->one_id;
}

/* Rootless with ids: id 0 and the workload's are all that a sandbox has. */
static void map_text(const struct spawner *spawner, const struct creation *creation,
		     uint32_t workload_id, char *text, size_t size)
{
	uint32_t base = own_number(spawner, creation->uid_base);

	if (spawner->one_id)
		(void)snprintf(text, size, "0 0 1");
	else if (spawner->setup.rootless)
		(void)snprintf(text, size, "0 %u 1\n%u %u 1", base, workload_id,
			       workload_is_user(spawner, creation->pool) ? 0 : base + 1);
	else
		(void)snprintf(text, size, "0 %u %u", base, SP_UID_SLOT_IDS);
}

static int write_maps(const struct spawner *spawner, const struct creation *creation,
		      const char **ret_stage)
{
	char map[64];
	int status = 0;

	if (!creation->direct) {
		*ret_stage = "uid_map";
		map_text(spawner, creation, creation->pool->workload_uid, map, sizeof(map));
		status = write_proc(spawner, creation->pid, "uid_map", map);
		if (status == 0 && spawner->one_id)
			status = write_proc(spawner, creation->pid, "setgroups", "deny");
		if (status < 0)
			return status;
		*ret_stage = "gid_map";
		map_text(spawner, creation, creation->pool->workload_gid, map, sizeof(map));
		status = write_proc(spawner, creation->pid, "gid_map", map);
		if (status < 0)
			return status;
	}
	*ret_stage = "oom_score_adj";
	return reset_oom_score(spawner, creation->pid);
}

static uint32_t workload_uid_on_host(const struct spawner *spawner, const struct creation *creation)
{
	if (creation->direct || spawner->one_id)
		return creation->uid_base;
	if (!spawner->setup.rootless)
		return creation->uid_base + creation->pool->workload_uid;
	return workload_is_user(spawner, creation->pool) ? spawner->setup.own_ids.user
							 : creation->uid_base + 1;
}

/* Everything before the clone. */
static int prepare_creation(struct spawner *spawner, struct creation *creation,
			    const char **ret_stage, struct sp_err *err)
{
	const struct sp_table_pool *pool = creation->pool;
	const struct sp_cgroup_limits limits = {
		.memory_bytes = pool->memory_bytes,
		.cpu_quota_us = pool->cpu_quota_us,
		.cpu_period_us = pool->cpu_period_us,
		.pids = pool->pids,
		.degraded_ok = (pool->flags & SP_POOL_F_DEGRADED_OK) != 0,
	};
	int pair[2];
	int status;

	*ret_stage = "uid_slot";
	status = take_uids(spawner, creation, err);
	if (status < 0)
		return status;
	*ret_stage = "socket";
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return sp_err_set(err, -errno, "create control socket of '%s'", creation->id);
	creation->daemon_fd = pair[0];
	creation->control_fd = pair[1];
	*ret_stage = "cgroup";
	return sp_cgroup_create(&spawner->cgroups, creation->id, &limits, &creation->cgroups, err);
}

static int run_creation(struct spawner *spawner, struct creation *creation, const char **ret_stage,
			struct sp_err *err)
{
	int status = prepare_creation(spawner, creation, ret_stage, err);

	if (status < 0)
		return status;
	*ret_stage = "clone";
	status = clone_in_template(spawner, creation);
	if (status < 0) {
		(void)sp_cgroup_remove(&spawner->cgroups, creation->id);
		return sp_err_set(err, status, "clone the first process of '%s'", creation->id);
	}
	status = write_maps(spawner, creation, ret_stage);
	if (status < 0)
		return sp_err_set(err, status, "write %s of '%s'", *ret_stage, creation->id);
	*ret_stage = "go";
	status = sp_msg_send(creation->daemon_fd, "G", 1, NULL, 0);
	return status < 0 ? sp_err_set(err, status, "start '%s'", creation->id) : 0;
}

static void give_uids(struct spawner *spawner, uint32_t uid_slot)
{
	if (uid_slot != SP_SPAWN_NO_UID_SLOT)
		sp_uid_slots_give(&spawner->uids, uid_slot);
}

/* fds: pidfd, control socket, lock. Returns how many of them go with the answer. */
static size_t handle_create(struct spawner *spawner, const struct sp_spawn_request *request,
			    int *fds, struct sp_spawn_answer *answer)
{
	struct creation creation = {
		.id = request->id,
		.cgroups.v2_fd = -1,
		.daemon_fd = -1,
		.control_fd = -1,
		.lock_fd = -1,
		.pidfd = -1,
		.uid_slot = SP_SPAWN_NO_UID_SLOT,
	};
	const char *stage = "pool";
	struct sp_err err = {0};
	size_t fd_count = 0;
	int status;

	sp_assert(spawner->current.table && request->value < spawner->current.table->pool_count);
	creation.pool = &sp_table_pools(spawner->current.table)[request->value];
	creation.template = &spawner->current.pools[request->value];
	creation.direct = (creation.pool->flags & SP_POOL_F_DIRECT) != 0;
	status = run_creation(spawner, &creation, &stage, &err);
	answer->degraded = creation.cgroups.degraded;
	answer->host_uid_base = creation.uid_base;
	answer->host_workload_uid = workload_uid_on_host(spawner, &creation);
	if (status < 0)
		(void)failed(answer, status, stage, &err);
	else
		(void)snprintf(answer->text, sizeof(answer->text), "%s/%s", spawner->cgroups.path,
			       creation.id);
	if (status < 0 && creation.pidfd < 0) {
		give_uids(spawner, creation.uid_slot);
		creation.uid_slot = SP_SPAWN_NO_UID_SLOT;
	}
	if (creation.pidfd >= 0)
		fds[fd_count++] = creation.pidfd;
	if (status == 0) {
		fds[fd_count++] = sp_take_fd(&creation.daemon_fd);
		fds[fd_count++] = sp_take_fd(&creation.lock_fd);
	} else if (creation.pidfd >= 0) {
		(void)pidfd_send_signal(creation.pidfd, SIGKILL, NULL, 0);
	}
	answer->uid_slot = creation.uid_slot;
	sp_cgroup_entry_done(&creation.cgroups);
	sp_fd_close(&creation.daemon_fd);
	sp_fd_close(&creation.control_fd);
	sp_fd_close(&creation.lock_fd);
	return fd_count;
}

static int handle_remove(struct spawner *spawner, const struct sp_spawn_request *request)
{
	int status = sp_cgroup_remove(&spawner->cgroups, request->id);

	if (status == 0)
		give_uids(spawner, request->uid_slot);
	return status;
}

static size_t handle_exec_create(struct spawner *spawner, const struct sp_spawn_request *request,
				 int *fds, struct sp_spawn_answer *answer)
{
	struct sp_err err = {0};
	int status = sp_cgroup_exec_create(&spawner->cgroups, request->id, request->value,
					   own_number(spawner, request->init_uid), &fds[0], &err);

	if (status == 0)
		return 1;
	(void)failed(answer, status, "exec_cgroup", &err);
	return 0;
}

/* --- the loop ------------------------------------------------------------------------------ */

/* One message with its descriptors; what is left of them is closed at the end. */
struct message {
	int fds[SP_MSG_FDS_MAX];
	size_t fd_count;
};

static void message_init(struct message *message)
{
	for (size_t i = 0; i < SP_ARRAY_SIZE(message->fds); i++)
		message->fds[i] = -1;
	message->fd_count = 0;
}

static void message_done(struct message *message)
{
	for (size_t i = 0; i < SP_ARRAY_SIZE(message->fds); i++)
		sp_fd_close(&message->fds[i]);
}

static void handle(struct spawner *spawner, const struct sp_spawn_request *request,
		   struct message *in, struct sp_spawn_answer *answer, struct message *out)
{
	switch ((enum sp_spawn_type)request->type) {
	case SP_SPAWN_PREPARE:
		sp_assert(in->fd_count == 3);
		(void)handle_prepare(spawner, in->fds, answer);
		return;
	case SP_SPAWN_ADOPT:
		answer->status = handle_adopt(spawner, request->value);
		return;
	case SP_SPAWN_CREATE:
		out->fd_count = handle_create(spawner, request, out->fds, answer);
		return;
	case SP_SPAWN_REMOVE:
		answer->status = handle_remove(spawner, request);
		return;
	case SP_SPAWN_EXEC_CREATE:
		out->fd_count = handle_exec_create(spawner, request, out->fds, answer);
		return;
	case SP_SPAWN_EXEC_KILL:
		answer->status =
			sp_cgroup_exec_kill(&spawner->cgroups, request->id, request->value);
		return;
	case SP_SPAWN_EXEC_REMOVE:
		answer->status =
			sp_cgroup_exec_remove(&spawner->cgroups, request->id, request->value);
		return;
	case SP_SPAWN_FREEZE:
		answer->status =
			sp_cgroup_freeze(&spawner->cgroups, request->id, request->value != 0);
		return;
	}
	sp_assert(false); /* main is the only one that writes to us */
}

static int serve_one(struct spawner *spawner)
{
	struct sp_spawn_request request;
	struct sp_spawn_answer answer = {0};
	struct message in;
	struct message out;
	ssize_t got;
	int status;

	message_init(&in);
	message_init(&out);
	got = sp_msg_receive(spawner->setup.socket_fd, &request, sizeof(request), in.fds,
			     &in.fd_count);
	if (got <= 0)
		return got < 0 ? (int)got : -EPIPE;
	sp_assert(got == (ssize_t)sizeof(request));
	answer.type = request.type;
	answer.slot = request.slot;
	answer.serial = request.serial;
	answer.request = request.request;
	answer.value = request.value;
	answer.uid_slot = SP_SPAWN_NO_UID_SLOT;
	handle(spawner, &request, &in, &answer, &out);
	status = sp_msg_send(spawner->setup.socket_fd, &answer, sizeof(answer), out.fds,
			     out.fd_count);
	message_done(&in);
	message_done(&out);
	return status;
}

int sp_spawner_run(const struct sp_spawner_setup *setup)
{
	static struct spawner spawner;
	struct sp_err err = {0};
	int status;

	spawner.setup = *setup;
	spawner.lock_dir_fd = -1;
	(void)umask(0); /* modes in templates are exact */
	status = sp_cgroups_find(&spawner.cgroups, &err);
	if (status == 0)
		status = sp_template_leave_host(setup->rootless, &spawner.base_ns_fd, &err);
	if (status == 0) {
		spawner.proc_fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (spawner.proc_fd < 0)
			status = sp_err_set(&err, -errno, "open '/proc'");
	}
	if (status < 0) {
		sp_log(SP_LOG_ERROR, "spawner cannot start", "error=\"%s\"", err.message);
		return EXIT_FAILURE;
	}
	while (status == 0)
		status = serve_one(&spawner);
	sp_cgroups_done(&spawner.cgroups);
	return status == -EPIPE ? EXIT_SUCCESS : EXIT_FAILURE;
}
