/*
 * Records of sandboxes in the main process.
 *
 *	FREE → CREATING → RUNNING → REMOVING → GONE → FREE
 *	          └─────────────────────────────────────┘  (failed before the clone)
 *
 * The kill path is pidfd_send_signal and nothing else. An end, asked for or not, is seen on the
 * pidfd; then waitid, then the spawner removes the cgroups, as often as it takes, with growing
 * pauses. After SP_LAUNCHER_SUSPECT_MS the daemon is told GONE with -EBUSY, so that one stuck
 * cgroup blocks nobody; its slot and uids stay out of use until it is clean.
 */
#include "supervisor/launcher/launcher_private.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"
#include "pool/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/wait.h>

#define RETRY_FIRST_MS   2
#define RETRY_LAST_MS    1000
#define RETRY_STOP_MS    20
#define RETRY_SUSPECT_MS 10000
#define RETRY_DOUBLINGS  9

int sp_slots_init(struct sp_launcher *launcher, struct sp_err *err)
{
	size_t size = sizeof(struct sp_slot) * SP_LAUNCHER_SLOTS;
	void *slots = mmap(NULL, size, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (slots == MAP_FAILED)
		return sp_err_set(err, -errno, "map the table of sandboxes");
	/* No helper needs it: a fork need not copy its page tables. */
	(void)madvise(slots, size, MADV_DONTFORK);
	launcher->slots = slots;
	sp_list_init(&launcher->free);
	sp_list_init(&launcher->retries);
	sp_list_init(&launcher->gone);
	launcher->next_serial = 1;
	return 0;
}

static uint32_t slot_index(const struct sp_launcher *launcher, const struct sp_slot *slot)
{
	return (uint32_t)(slot - launcher->slots);
}

/* Recently used ones first: their memory is there already. */
static struct sp_slot *take_slot(struct sp_launcher *launcher)
{
	struct sp_slot *slot = SP_LIST_FIRST(&launcher->free, struct sp_slot, link);

	if (slot)
		sp_list_remove(&slot->link);
	else if (launcher->slots_touched < SP_LAUNCHER_SLOTS)
		slot = &launcher->slots[launcher->slots_touched++];
	else
		return NULL;
	memset(slot, 0, sizeof(*slot));
	sp_list_init(&slot->link);
	slot->pidfd = -1;
	slot->lock_fd = -1;
	slot->uid_slot = SP_SPAWN_NO_UID_SLOT;
	slot->serial = launcher->next_serial++;
	launcher->slots_used++;
	return slot;
}

static void free_slot(struct sp_launcher *launcher, struct sp_slot *slot)
{
	sp_list_remove(&slot->link);
	sp_launcher_unwatch(launcher, &slot->pidfd);
	sp_fd_close(&slot->lock_fd);
	if (slot->counted != SP_LAUNCHER_NO_POOL)
		launcher->live[slot->counted]--;
	sp_config_unref(slot->config);
	slot->state = SP_SLOT_FREE;
	launcher->slots_used--;
	sp_list_prepend(&launcher->free, &slot->link);
}

static struct sp_slot *slot_of_answer(struct sp_launcher *launcher,
				      const struct sp_spawn_answer *answer)
{
	struct sp_slot *slot = &launcher->slots[answer->slot];

	sp_assert(answer->slot < launcher->slots_touched && slot->state != SP_SLOT_FREE &&
		  slot->serial == answer->serial);
	return slot;
}

struct sp_slot *sp_slots_find(struct sp_launcher *launcher, uint32_t index, uint64_t serial)
{
	struct sp_slot *slot = &launcher->slots[index];

	if (index >= launcher->slots_touched || slot->state != SP_SLOT_RUNNING ||
	    slot->serial != serial || slot->silent)
		return NULL;
	return slot;
}

static struct sp_spawn_request spawn_request(const struct sp_launcher *launcher,
					     const struct sp_slot *slot, enum sp_spawn_type type,
					     uint64_t request, uint32_t value)
{
	struct sp_spawn_request message = {
		.type = type,
		.slot = slot_index(launcher, slot),
		.serial = slot->serial,
		.request = request,
		.value = value,
		.uid_slot = slot->uid_slot,
		.init_uid = slot->host_uid_base,
	};

	memcpy(message.id, slot->id, sizeof(message.id));
	return message;
}

/* --- create ---------------------------------------------------------------------------------- */

void sp_slots_create(struct sp_launcher *launcher, const struct sp_launcher_create *message)
{
	uint64_t request = message->header.request;
	const struct sp_table_pool *pool;
	struct sp_spawn_request spawn;
	struct sp_slot *slot;

	if (!memchr(message->id, '\0', sizeof(message->id)) || !sp_sandbox_id_valid(message->id)) {
		sp_launcher_fail(launcher, request, -EINVAL, "create", "id");
		return;
	}
	if (!launcher->current || message->pool_index >= launcher->current->table->pool_count) {
		sp_launcher_fail(launcher, request, -ENOENT, "create", "pool index");
		return;
	}
	pool = &sp_table_pools(launcher->current->table)[message->pool_index];
	if (message->reserved != 0 || message->generation != pool->generation) {
		sp_launcher_fail(launcher, request, -ESTALE, "create", pool->name);
		return;
	}
	slot = launcher->live[message->pool_index] < pool->max_sandboxes ? take_slot(launcher)
									 : NULL;
	if (!slot) {
		sp_launcher_fail(launcher, request, -EAGAIN, "create", pool->name);
		return;
	}
	slot->state = SP_SLOT_CREATING;
	slot->config = launcher->current;
	slot->config->refs++;
	slot->pool = message->pool_index;
	slot->counted = message->pool_index;
	slot->request = request;
	launcher->live[slot->counted]++;
	memcpy(slot->id, message->id, SP_SANDBOX_ID_LEN);
	spawn = spawn_request(launcher, slot, SP_SPAWN_CREATE, request, slot->pool);
	sp_spawn_slow(launcher, &spawn);
}

static void create_failed(struct sp_launcher *launcher, const struct sp_spawn_answer *spawn)
{
	struct sp_launcher_answer answer = {
		.header = {.type = SP_LAUNCHER_CREATE_FAILED, .request = spawn->request},
		.status = spawn->status,
	};

	memcpy(answer.stage, spawn->stage, sizeof(answer.stage));
	memcpy(answer.text, spawn->text, sizeof(answer.text));
	if (spawn->status == 0) { /* it was made, but there is no descriptor left to hand it on */
		answer.status = -EMFILE;
		(void)snprintf(answer.stage, sizeof(answer.stage), "descriptors");
	}
	sp_launcher_answer(launcher, &answer, NULL, 0);
}

static void created(struct sp_launcher *launcher, const struct sp_slot *slot,
		    const struct sp_spawn_answer *spawn, int pidfd_copy, int control_fd)
{
	const int fds[] = {pidfd_copy, control_fd};
	struct sp_launcher_answer answer = {
		.header = {.type = SP_LAUNCHER_CREATED, .request = spawn->request},
		.slot = slot_index(launcher, slot),
		.serial = slot->serial,
		.degraded = spawn->degraded,
		.host_uid_base = spawn->host_uid_base,
		.host_workload_uid = spawn->host_workload_uid,
	};

	memcpy(answer.text, spawn->text, sizeof(answer.text));
	sp_launcher_answer(launcher, &answer, fds, SP_ARRAY_SIZE(fds));
}

static void signal_kill(struct sp_slot *slot)
{
	slot->killed = true;
	(void)pidfd_send_signal(slot->pidfd, SIGKILL, NULL, 0);
}

static void watch_end(struct sp_launcher *launcher, struct sp_slot *slot)
{
	int status;

	slot->state = SP_SLOT_RUNNING;
	status = sp_launcher_watch(launcher, slot->pidfd, SP_EVENT_SANDBOX,
				   slot_index(launcher, slot), EPOLLIN);
	/* Unwatched it could never be seen to end: leave with all, the next start sweeps. */
	if (status < 0) {
		signal_kill(slot);
		sp_launcher_stop(launcher, "out of epoll watches");
	}
}

void sp_slots_created(struct sp_launcher *launcher, const struct sp_spawn_answer *answer, int *fds,
		      size_t fd_count)
{
	struct sp_slot *slot = slot_of_answer(launcher, answer);
	int copy = -1;

	slot->uid_slot = answer->uid_slot;
	slot->host_uid_base = answer->host_uid_base;
	if (fd_count == 0) {
		create_failed(launcher, answer);
		free_slot(launcher, slot);
		return;
	}
	slot->pidfd = sp_take_fd(&fds[0]);
	watch_end(launcher, slot);
	if (answer->status == 0) {
		sp_assert(fd_count == 3);
		slot->lock_fd = sp_take_fd(&fds[2]);
		slot->request = 0; /* CREATE's; GONE will name KILL's, if there is one */
		copy = fcntl(slot->pidfd, F_DUPFD_CLOEXEC, SP_FD_RESERVED + 1);
	}
	if (copy < 0) {
		slot->silent = true;
		signal_kill(slot);
		create_failed(launcher, answer);
		return;
	}
	created(launcher, slot, answer, copy, sp_take_fd(&fds[1]));
	if (launcher->stopping)
		signal_kill(slot);
}

/* --- kill and reap -----------------------------------------------------------------------------
 */

void sp_slots_kill(struct sp_launcher *launcher, const struct sp_launcher_command *message)
{
	struct sp_slot *slot = sp_slots_find(launcher, message->slot, message->serial);
	uint64_t request = message->header.request;

	if (!slot || slot->killed) {
		sp_launcher_fail(launcher, request, slot ? -EALREADY : -ESRCH, "kill", "slot");
		return;
	}
	launcher->owed--; /* GONE is its answer, whoever ends the sandbox */
	slot->request = request;
	signal_kill(slot);
}

void sp_slots_kill_all(struct sp_launcher *launcher)
{
	for (uint32_t i = 0; i < launcher->slots_touched; i++)
		if (launcher->slots[i].state == SP_SLOT_RUNNING)
			signal_kill(&launcher->slots[i]);
	SP_LIST_FOREACH (link, &launcher->retries)
		SP_CONTAINER_OF(link, struct sp_slot, link)->retry_ms = 0;
}

static void ask_removal(struct sp_launcher *launcher, struct sp_slot *slot)
{
	struct sp_spawn_request request = spawn_request(launcher, slot, SP_SPAWN_REMOVE, 0, 0);

	sp_spawn_slow(launcher, &request);
}

static uint32_t wait_status(const siginfo_t *info)
{
	uint32_t value = (uint32_t)info->si_status;

	return info->si_code == CLD_EXITED ? (value & 0xff) << 8 : value & 0x7f;
}

void sp_slots_exited(struct sp_launcher *launcher, uint32_t index)
{
	struct sp_slot *slot = &launcher->slots[index];
	siginfo_t info = {0};

	if (slot->state != SP_SLOT_RUNNING ||
	    waitid((idtype_t)P_PIDFD, (id_t)slot->pidfd, &info, WEXITED | WNOHANG | __WALL) < 0 ||
	    info.si_pid == 0)
		return;
	slot->wait_status = wait_status(&info);
	sp_launcher_unwatch(launcher, &slot->pidfd);
	sp_fd_close(&slot->lock_fd);
	if (slot->retrying)
		sp_list_remove(&slot->link);
	slot->retrying = false;
	slot->state = SP_SLOT_REMOVING;
	slot->removing_ms = sp_clock_boot_ms();
	slot->attempts = 0;
	ask_removal(launcher, slot);
}

/* --- removal -----------------------------------------------------------------------------------
 */

static void retry_later(struct sp_launcher *launcher, struct sp_slot *slot, int64_t pause_ms)
{
	/* Leaving: nobody else's turn is taken by trying often. */
	if (launcher->stopping)
		pause_ms = SP_MIN(pause_ms, RETRY_STOP_MS);
	slot->retry_ms = sp_clock_boot_ms() + pause_ms;
	if (slot->retrying)
		return;
	slot->retrying = true;
	sp_list_append(&launcher->retries, &slot->link);
}

static int64_t next_pause(struct sp_slot *slot)
{
	uint32_t doublings = SP_MIN(slot->attempts, RETRY_DOUBLINGS);

	slot->attempts++;
	return SP_MIN(RETRY_FIRST_MS << doublings, RETRY_LAST_MS);
}

static void announce(struct sp_launcher *launcher, const struct sp_slot *slot, int status)
{
	struct sp_launcher_answer answer = {
		.header = {.type = SP_LAUNCHER_GONE, .request = slot->request},
		.status = status,
		.slot = slot_index(launcher, slot),
		.serial = slot->serial,
		.value = slot->wait_status,
	};

	(void)snprintf(answer.text, sizeof(answer.text), "%s", slot->id);
	if (status < 0)
		(void)snprintf(answer.stage, sizeof(answer.stage), "cgroup");
	sp_launcher_answer(launcher, &answer, NULL, 0);
}

static bool answers_have_room(const struct sp_launcher *launcher)
{
	return launcher->answer_count < SP_LAUNCHER_ANSWERS - SP_LAUNCHER_BUSY_MAX;
}

static void quarantine(struct sp_launcher *launcher, struct sp_slot *slot, int status)
{
	if (slot->quarantined || !answers_have_room(launcher))
		return;
	sp_log(SP_LOG_WARN, "cgroup cannot be removed, its slot is set aside",
	       "sandbox=%s error=%s", slot->id, strerrordesc_np(-status));
	slot->quarantined = true;
	if (!slot->silent)
		announce(launcher, slot, -EBUSY);
}

void sp_slots_removed(struct sp_launcher *launcher, const struct sp_spawn_answer *answer)
{
	struct sp_slot *slot = slot_of_answer(launcher, answer);

	if (answer->status < 0) {
		bool suspect = sp_clock_boot_ms() - slot->removing_ms >= SP_LAUNCHER_SUSPECT_MS;

		if (suspect)
			quarantine(launcher, slot, answer->status);
		retry_later(launcher, slot, suspect ? RETRY_SUSPECT_MS : next_pause(slot));
		return;
	}
	if (slot->quarantined)
		sp_log(SP_LOG_INFO, "cgroup was removed at last", "sandbox=%s", slot->id);
	if (slot->silent || slot->quarantined) {
		free_slot(launcher, slot);
		return;
	}
	slot->state = SP_SLOT_GONE;
	sp_list_append(&launcher->gone, &slot->link);
}

void sp_slots_announce(struct sp_launcher *launcher)
{
	struct sp_slot *slot;

	while (answers_have_room(launcher) &&
	       (slot = SP_LIST_FIRST(&launcher->gone, struct sp_slot, link)) != NULL) {
		announce(launcher, slot, 0);
		free_slot(launcher, slot);
	}
}

static void exec_remove(struct sp_launcher *launcher, const struct sp_slot *slot,
			struct sp_slot_exec *exec)
{
	struct sp_spawn_request spawn =
		spawn_request(launcher, slot, SP_SPAWN_EXEC_REMOVE, 0, exec->number);

	exec->state = SP_EXEC_REMOVING;
	sp_spawn_urgent(launcher, &spawn);
}

static void retry_execs(struct sp_launcher *launcher, struct sp_slot *slot)
{
	if (!sp_spawn_has_room(launcher)) {
		retry_later(launcher, slot, next_pause(slot));
		return;
	}
	for (size_t i = 0; i < SP_LAUNCHER_EXECS; i++)
		if (slot->execs[i].state == SP_EXEC_STUCK)
			exec_remove(launcher, slot, &slot->execs[i]);
}

int64_t sp_slots_retry(struct sp_launcher *launcher, int64_t now_ms)
{
	int64_t next_ms = INT64_MAX;

	SP_LIST_FOREACH_SAFE (link, following, &launcher->retries) {
		struct sp_slot *slot = SP_CONTAINER_OF(link, struct sp_slot, link);

		if (slot->retry_ms > now_ms) {
			next_ms = SP_MIN(next_ms, slot->retry_ms);
			continue;
		}
		sp_list_remove(&slot->link);
		slot->retrying = false;
		if (slot->state == SP_SLOT_REMOVING)
			ask_removal(launcher, slot);
		else
			retry_execs(launcher, slot);
	}
	return next_ms;
}

/* --- sub-cgroups -------------------------------------------------------------------------------
 */

static struct sp_slot_exec *find_exec(struct sp_slot *slot, uint32_t number)
{
	for (size_t i = 0; i < SP_LAUNCHER_EXECS; i++)
		if (slot->execs[i].state != SP_EXEC_FREE && slot->execs[i].number == number)
			return &slot->execs[i];
	return NULL;
}

static struct sp_slot_exec *free_exec(struct sp_slot *slot)
{
	for (size_t i = 0; i < SP_LAUNCHER_EXECS; i++)
		if (slot->execs[i].state == SP_EXEC_FREE)
			return &slot->execs[i];
	return NULL;
}

static void exec_create(struct sp_launcher *launcher, struct sp_slot *slot, uint64_t request)
{
	struct sp_slot_exec *exec = free_exec(slot);
	struct sp_spawn_request spawn;

	/* What is owed may come with a descriptor each. */
	if (exec && sp_fd_low(launcher->epoll_fd, launcher->fd_ceiling - (int)launcher->owed))
		exec = NULL;
	if (!exec) {
		sp_launcher_fail(launcher, request, -EAGAIN, "exec_cgroup", slot->id);
		return;
	}
	exec->state = SP_EXEC_CREATING;
	exec->number = slot->next_exec++;
	spawn = spawn_request(launcher, slot, SP_SPAWN_EXEC_CREATE, request, exec->number);
	sp_spawn_urgent(launcher, &spawn);
}

void sp_slots_exec(struct sp_launcher *launcher, const struct sp_launcher_command *message)
{
	struct sp_slot *slot = sp_slots_find(launcher, message->slot, message->serial);
	uint64_t request = message->header.request;
	struct sp_slot_exec *exec;
	struct sp_spawn_request spawn;

	if (!slot) {
		sp_launcher_fail(launcher, request, -ESRCH, "exec_cgroup", "slot");
		return;
	}
	if (message->header.type == SP_LAUNCHER_EXEC_CGROUP) {
		exec_create(launcher, slot, request);
		return;
	}
	exec = find_exec(slot, message->value);
	if (!exec || exec->state != SP_EXEC_LIVE) {
		sp_launcher_fail(launcher, request, -ENOENT, "exec_cgroup", "number");
		return;
	}
	if (message->header.type == SP_LAUNCHER_EXEC_KILL) {
		spawn = spawn_request(launcher, slot, SP_SPAWN_EXEC_KILL, request, exec->number);
		sp_spawn_urgent(launcher, &spawn);
		return;
	}
	slot->attempts = 0;
	exec_remove(launcher, slot, exec);
	sp_launcher_done(launcher, request);
}

void sp_slots_exec_created(struct sp_launcher *launcher, const struct sp_spawn_answer *spawn,
			   int *fds, size_t fd_count)
{
	struct sp_slot *slot = slot_of_answer(launcher, spawn);
	struct sp_slot_exec *exec = find_exec(slot, spawn->value);
	struct sp_launcher_answer answer = {
		.header = {.type = SP_LAUNCHER_EXEC_CGROUP_READY, .request = spawn->request},
		.slot = spawn->slot,
		.serial = spawn->serial,
		.value = spawn->value,
	};

	sp_assert(exec && exec->state == SP_EXEC_CREATING);
	if (spawn->status < 0) {
		exec->state = SP_EXEC_FREE;
		sp_launcher_fail(launcher, spawn->request, spawn->status, spawn->stage,
				 spawn->text);
		return;
	}
	if (fd_count != 1) { /* no room for it in our table */
		exec->state = SP_EXEC_FREE;
		if (slot->state == SP_SLOT_RUNNING)
			exec_remove(launcher, slot, exec);
		sp_launcher_fail(launcher, spawn->request, -EMFILE, "descriptors", slot->id);
		return;
	}
	exec->state = SP_EXEC_LIVE;
	sp_launcher_answer(launcher, &answer, fds, 1);
	fds[0] = -1;
}

void sp_slots_exec_removed(struct sp_launcher *launcher, const struct sp_spawn_answer *answer)
{
	struct sp_slot *slot = slot_of_answer(launcher, answer);
	struct sp_slot_exec *exec = find_exec(slot, answer->value);

	sp_assert(exec && exec->state == SP_EXEC_REMOVING);
	if (answer->status == 0)
		exec->state = SP_EXEC_FREE;
	else
		exec->state = SP_EXEC_STUCK;
	/* Of a sandbox that is going it goes with the rest. */
	if (answer->status < 0 && slot->state == SP_SLOT_RUNNING)
		retry_later(launcher, slot, next_pause(slot));
}

void sp_slots_freeze(struct sp_launcher *launcher, const struct sp_launcher_command *message)
{
	struct sp_slot *slot = sp_slots_find(launcher, message->slot, message->serial);
	uint64_t request = message->header.request;
	struct sp_spawn_request spawn;

	if (!slot || message->value > 1) {
		sp_launcher_fail(launcher, request, slot ? -EINVAL : -ESRCH, "freeze",
				 slot ? "value" : "slot");
		return;
	}
	spawn = spawn_request(launcher, slot, SP_SPAWN_FREEZE, request, message->value);
	sp_spawn_urgent(launcher, &spawn);
}

/* --- a new table -------------------------------------------------------------------------------
 */

static uint32_t pool_named(const struct sp_table *table, const char *name)
{
	const struct sp_table_pool *pools = sp_table_pools(table);

	for (uint32_t i = 0; i < table->pool_count; i++)
		if (strcmp(pools[i].name, name) == 0)
			return i;
	return SP_LAUNCHER_NO_POOL;
}

/*
 * The same to a sandbox that is there already: made alike, and with the same places to bind. Then
 * it belongs to the new table, so that a reload that changes nothing here keeps no old table alive.
 */
static bool pools_alike(const struct sp_table_pool *a, const struct sp_table_pool *b)
{
	return a->generation == b->generation && a->flags == b->flags &&
	       a->root_count == b->root_count && memcmp(a->roots, b->roots, sizeof(a->roots)) == 0;
}

static void move_to_current(struct sp_launcher *launcher, struct sp_slot *slot)
{
	struct sp_launcher_config *old = slot->config;

	slot->config = launcher->current;
	slot->config->refs++;
	slot->pool = slot->counted;
	sp_config_unref(old);
}

void sp_slots_recount(struct sp_launcher *launcher)
{
	const struct sp_table_pool *current = sp_table_pools(launcher->current->table);

	memset(launcher->live, 0, sizeof(launcher->live));
	for (uint32_t i = 0; i < launcher->slots_touched; i++) {
		struct sp_slot *slot = &launcher->slots[i];
		const struct sp_table_pool *pool;

		if (slot->state == SP_SLOT_FREE)
			continue;
		pool = &sp_table_pools(slot->config->table)[slot->pool];
		slot->counted = pool_named(launcher->current->table, pool->name);
		if (slot->counted == SP_LAUNCHER_NO_POOL)
			continue;
		launcher->live[slot->counted]++;
		if (slot->config != launcher->current && pools_alike(pool, &current[slot->counted]))
			move_to_current(launcher, slot);
	}
}
