/*
 * Main's side of the spawner. Two queues: what a timeout or a request waits for goes first, and of
 * creations and removals only two at a time are with the spawner, so that the first kind never
 * stands behind a whole refill.
 */
#include "supervisor/launcher/launcher_private.h"

#include "pool/base/fd.h"
#include "pool/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define SLOW_IN_FLIGHT 2
#define SPAWNER_END_MS 1000

static struct sp_spawn_queue *new_queue(void)
{
	struct sp_spawn_queue *queue = mmap(NULL, sizeof(*queue), PROT_READ | PROT_WRITE,
					    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return queue == MAP_FAILED ? NULL : queue;
}

static bool queue_empty(const struct sp_spawn_queue *queue)
{
	return queue->head == queue->tail;
}

static struct sp_spawn_request *queue_first(struct sp_spawn_queue *queue)
{
	return &queue->items[queue->head % SP_SPAWN_QUEUE];
}

static void queue_push(struct sp_spawn_queue *queue, const struct sp_spawn_request *request)
{
	sp_assert(queue->tail - queue->head < SP_SPAWN_QUEUE);
	queue->items[queue->tail % SP_SPAWN_QUEUE] = *request;
	queue->tail++;
}

/* In the child: gather what the spawner needs and become it. */
SP_NORETURN static void run_spawner(struct sp_launcher *launcher, int socket_fd, int life_fd,
				    int init_fd, int host_ns_fd)
{
	const struct sp_spawner_setup setup = {
		.socket_fd = socket_fd,
		.life_fd = life_fd,
		.init_fd = init_fd,
		.host_ns_fd = host_ns_fd,
		.rootless = launcher->rootless,
		.own_ids = launcher->own_ids,
	};

	_exit(sp_spawner_run(&setup));
}

/* The low numbers stay occupied in the spawner as well: its children rely on it. */
static void keep_reserved(int *keep, size_t *count)
{
	for (int fd = SP_LAUNCHER_FD + 1; fd <= SP_FD_RESERVED; fd++)
		keep[(*count)++] = fd;
}

int sp_spawn_start(struct sp_launcher *launcher, int init_fd, struct sp_err *err)
{
	SP_AUTO_CLOSE int host_ns_fd = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	SP_AUTO_CLOSE int life_fd = -1;
	int keep[16];
	size_t count = 0;
	int pair[2];
	int life[2];
	int index;
	int status;

	launcher->urgent = new_queue();
	launcher->slow = new_queue();
	if (!launcher->urgent || !launcher->slow)
		return sp_err_set(err, -ENOMEM, "map the queues");
	if (host_ns_fd < 0 || pipe2(life, O_CLOEXEC) < 0)
		return sp_err_set(err, -errno, "prepare the spawner");
	life_fd = life[0];
	launcher->life_write_fd = life[1];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return sp_err_set(err, -errno, "prepare the spawner");
	launcher->spawner_fd = pair[0];
	keep_reserved(keep, &count);
	keep[count++] = pair[1];
	keep[count++] = life_fd;
	keep[count++] = init_fd;
	keep[count++] = host_ns_fd;
	status = sp_helper_fork(launcher, SP_HELPER_SPAWNER, keep, count, &index);
	if (status == 0)
		run_spawner(launcher, pair[1], life_fd, init_fd, host_ns_fd);
	sp_fd_close(&pair[1]);
	if (status < 0)
		return sp_err_set(err, status, "fork the spawner");
	if (fcntl(launcher->spawner_fd, F_SETFL, O_NONBLOCK) < 0)
		return sp_err_set(err, -errno, "prepare the spawner");
	return sp_launcher_watch(launcher, launcher->spawner_fd, SP_EVENT_SPAWNER, 0, EPOLLIN);
}

bool sp_spawn_has_room(const struct sp_launcher *launcher)
{
	return launcher->urgent->tail - launcher->urgent->head < SP_SPAWN_URGENT_MAX;
}

void sp_spawn_urgent(struct sp_launcher *launcher, const struct sp_spawn_request *request)
{
	queue_push(launcher->urgent, request);
}

void sp_spawn_slow(struct sp_launcher *launcher, const struct sp_spawn_request *request)
{
	queue_push(launcher->slow, request);
}

/* PREPARE takes its descriptors along from where the loader keeps them. */
static int send_one(struct sp_launcher *launcher, const struct sp_spawn_request *request)
{
	int fds[3];
	size_t fd_count = 0;

	if (request->type == SP_SPAWN_PREPARE) {
		fds[fd_count++] = launcher->loader.config->table_fd;
		fds[fd_count++] = launcher->loader.spawner_source_fd;
		fds[fd_count++] = launcher->instance.lock_dir_fd;
	}
	return sp_msg_send(launcher->spawner_fd, request, sizeof(*request), fds, fd_count);
}

/* A sandbox whose pidfd finds no room in our table could be neither killed nor reaped. */
static bool must_not_create(const struct sp_launcher *launcher,
			    const struct sp_spawn_request *request)
{
	return request->type == SP_SPAWN_CREATE &&
	       sp_fd_low(launcher->epoll_fd, launcher->fd_ceiling);
}

/* The spawner is not asked at all. */
static void refuse_creation(struct sp_launcher *launcher, const struct sp_spawn_request *request,
			    int status, const char *stage)
{
	struct sp_spawn_answer answer = {
		.slot = request->slot,
		.serial = request->serial,
		.request = request->request,
		.status = status,
		.uid_slot = SP_SPAWN_NO_UID_SLOT,
	};

	(void)snprintf(answer.stage, sizeof(answer.stage), "%s", stage);
	sp_slots_created(launcher, &answer, NULL, 0);
}

/* Returns false when the socket is full. */
static bool send_from(struct sp_launcher *launcher, struct sp_spawn_queue *queue, uint32_t max)
{
	for (uint32_t sent = 0; sent < max && !queue_empty(queue);) {
		const struct sp_spawn_request request = *queue_first(queue);
		int status;

		if (must_not_create(launcher, &request)) {
			queue->head++;
			refuse_creation(launcher, &request, -EMFILE, "descriptors");
			continue;
		}
		status = send_one(launcher, &request);
		if (status == -EAGAIN)
			return false;
		if (status < 0) /* it ended; its pidfd says so in a moment */
			return true;
		queue->head++;
		sent++;
		if (queue == launcher->slow)
			launcher->spawner_in_flight++;
	}
	return true;
}

void sp_spawn_flush(struct sp_launcher *launcher)
{
	struct epoll_event event = {
		.events = EPOLLIN,
		.data.u64 = (uint64_t)SP_EVENT_SPAWNER << 32,
	};
	bool blocked =
		!send_from(launcher, launcher->urgent, UINT32_MAX) ||
		!send_from(launcher, launcher->slow, SLOW_IN_FLIGHT - launcher->spawner_in_flight);

	if (blocked == launcher->spawner_blocked)
		return;
	launcher->spawner_blocked = blocked;
	if (blocked)
		event.events |= EPOLLOUT;
	(void)epoll_ctl(launcher->epoll_fd, EPOLL_CTL_MOD, launcher->spawner_fd, &event);
}

static void forward_result(struct sp_launcher *launcher, const struct sp_spawn_answer *answer)
{
	if (answer->status < 0)
		sp_launcher_fail(launcher, answer->request, answer->status, "cgroup", "");
	else
		sp_launcher_done(launcher, answer->request);
}

static void handle_answer(struct sp_launcher *launcher, const struct sp_spawn_answer *answer,
			  int *fds, size_t fd_count)
{
	switch ((enum sp_spawn_type)answer->type) {
	case SP_SPAWN_PREPARE:
		launcher->spawner_in_flight--;
		sp_loader_prepared(launcher, answer);
		return;
	case SP_SPAWN_ADOPT:
		launcher->spawner_in_flight--;
		return;
	case SP_SPAWN_CREATE:
		launcher->spawner_in_flight--;
		sp_slots_created(launcher, answer, fds, fd_count);
		return;
	case SP_SPAWN_REMOVE:
		launcher->spawner_in_flight--;
		sp_slots_removed(launcher, answer);
		return;
	case SP_SPAWN_EXEC_CREATE:
		sp_slots_exec_created(launcher, answer, fds, fd_count);
		return;
	case SP_SPAWN_EXEC_REMOVE:
		sp_slots_exec_removed(launcher, answer);
		return;
	case SP_SPAWN_EXEC_KILL:
	case SP_SPAWN_FREEZE:
		forward_result(launcher, answer);
		return;
	}
}

void sp_spawn_event(struct sp_launcher *launcher, uint32_t events)
{
	if ((events & (EPOLLIN | EPOLLHUP)) == 0)
		return;
	for (;;) {
		struct sp_spawn_answer answer;
		int fds[SP_MSG_FDS_MAX] = {-1, -1, -1, -1, -1, -1, -1, -1};
		size_t fd_count = 0;
		bool lost = false;
		ssize_t got = sp_msg_receive_any(launcher->spawner_fd, &answer, sizeof(answer), fds,
						 &fd_count, &lost);

		if (got != (ssize_t)sizeof(answer))
			return; /* -EAGAIN, or it ended and its pidfd says so in a moment */
		if (lost && answer.type == SP_SPAWN_CREATE) {
			/* The reserve was not enough. Our end kills also what cannot be named. */
			sp_log(SP_LOG_ERROR, "out of descriptors, a sandbox was lost", NULL);
			_exit(EXIT_FAILURE);
		}
		handle_answer(launcher, &answer, fds, fd_count);
		for (size_t i = 0; i < fd_count; i++)
			sp_fd_close(&fds[i]);
	}
}

void sp_spawn_stop(struct sp_launcher *launcher)
{
	struct pollfd end = {.events = POLLIN};

	sp_fd_close(&launcher->spawner_fd);
	for (size_t i = 0; i < SP_LAUNCHER_HELPERS; i++)
		if (launcher->helpers[i].kind == SP_HELPER_SPAWNER)
			end.fd = launcher->helpers[i].pidfd;
	(void)poll(&end, 1, SPAWNER_END_MS);
}

void sp_spawn_cancel_creations(struct sp_launcher *launcher)
{
	struct sp_spawn_queue *queue = launcher->slow;
	uint32_t end = queue->tail;

	/* Rotate the whole queue once, leaving creations out. */
	for (uint32_t at = queue->head; at != end; at++) {
		struct sp_spawn_request request = *queue_first(queue);

		queue->head++;
		if (request.type != SP_SPAWN_CREATE) {
			queue_push(queue, &request);
			continue;
		}
		refuse_creation(launcher, &request, -ESHUTDOWN, "stop");
	}
}
