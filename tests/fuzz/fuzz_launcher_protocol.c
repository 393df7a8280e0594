/* libs: sp_launcher */
/*
 * The launcher's side of its socket, with a running sandbox, a table and no spawner behind it: the
 * input is a row of records. Each is answered at once or owed an answer; no byte of them may make
 * the process assert or touch what is not the sandbox's.
 */
#include "supervisor/launcher/launcher_private.h"

#include "pool/base/fd.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* main.c is not part of the library. */
int sp_launcher_watch(struct sp_launcher *launcher, int fd, enum sp_launcher_event event,
		      uint32_t index, uint32_t events)
{
	SP_UNUSED(launcher);
	SP_UNUSED(fd);
	SP_UNUSED(event);
	SP_UNUSED(index);
	SP_UNUSED(events);
	return 0;
}

void sp_launcher_unwatch(struct sp_launcher *launcher, int *fd)
{
	SP_UNUSED(launcher);
	sp_fd_close(fd);
}

void sp_launcher_stop(struct sp_launcher *launcher, const char *reason)
{
	SP_UNUSED(reason);
	launcher->stopping = true;
}

static struct sp_launcher launcher;
static int daemon_fd;

static void *map(size_t size)
{
	void *data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	sp_assert(data != MAP_FAILED);
	return data;
}

static void set_up(void)
{
	struct sp_table *table = map(sizeof(*table) + sizeof(struct sp_table_pool));
	struct sp_table_pool *pool = (struct sp_table_pool *)(void *)(table + 1);
	int pair[2];

	sp_assert(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair) == 0);
	sp_assert(sp_slots_init(&launcher, NULL) == 0);
	launcher.daemon_fd = pair[0];
	daemon_fd = pair[1];
	launcher.greeted = true;
	launcher.fd_ceiling = INT_MAX;
	launcher.urgent = map(sizeof(*launcher.urgent));
	launcher.slow = map(sizeof(*launcher.slow));
	launcher.binder.helper = -1;
	sp_loader_init(&launcher.loader);
	table->pool_count = 1;
	pool->max_sandboxes = 64;
	pool->root_count = 2;
	pool->roots[1].flags = SP_ROOT_F_READ_ONLY;
	/* All in use: RELOAD is refused before it would fork. */
	for (size_t i = 0; i < SP_LAUNCHER_CONFIGS; i++) {
		memset(launcher.configs[i].roots, 0xff, sizeof(launcher.configs[i].roots));
		launcher.configs[i].refs = 1;
		launcher.configs[i].table = table;
	}
	launcher.current = &launcher.configs[0];
}

/* One that runs, so that its slot and serial can be guessed. */
static void add_sandbox(void)
{
	struct sp_slot *slot = &launcher.slots[launcher.slots_touched++];

	memset(slot, 0, sizeof(*slot));
	sp_list_init(&slot->link);
	slot->state = SP_SLOT_RUNNING;
	slot->pidfd = eventfd(0, 0);
	slot->lock_fd = -1;
	slot->config = launcher.current;
	slot->serial = 1;
	memcpy(slot->id, "00000000000000000000", SP_SANDBOX_ID_LEN + 1);
}

static void reset(void)
{
	for (uint32_t i = 0; i < launcher.slots_touched; i++)
		sp_fd_close(&launcher.slots[i].pidfd);
	launcher.slots_touched = 0;
	launcher.slots_used = 0;
	memset(launcher.live, 0, sizeof(launcher.live));
	sp_list_init(&launcher.free);
	launcher.current->refs = 1;
	launcher.urgent->head = launcher.urgent->tail;
	launcher.slow->head = launcher.slow->tail;
	launcher.owed = 0;
	launcher.binder.count = 0;
	add_sandbox();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint32_t sent = 0;
	uint32_t kills = 0;

	if (!launcher.slots)
		set_up();
	reset();
	while (size > 2 && sent < 64) {
		size_t len = SP_MIN(((size_t)data[0] << 8 | data[1]) % 4400 + 1, size - 2);
		uint32_t owed = launcher.owed;
		uint32_t queued = launcher.answer_count;

		sp_assert(sp_msg_send(daemon_fd, data + 2, len, NULL, 0) == 0);
		sp_launcher_daemon_event(&launcher, EPOLLIN);
		sent++;
		/* Answered, owed, or the one KILL that is answered by GONE. */
		if (launcher.owed + launcher.answer_count == owed + queued)
			kills++;
		else
			sp_assert(launcher.owed + launcher.answer_count == owed + queued + 1);
		data += 2 + len;
		size -= 2 + len;
	}
	sp_assert(kills <= 1);
	while (launcher.answer_count > 0) {
		struct sp_pending_answer *answer = &launcher.answers[launcher.answer_head];

		for (uint32_t i = 0; i < answer->fd_count; i++)
			sp_fd_close(&answer->fds[i]);
		launcher.answer_head = (launcher.answer_head + 1) % SP_LAUNCHER_ANSWERS;
		launcher.answer_count--;
	}
	return 0;
}
