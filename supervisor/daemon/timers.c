/*
 * Deadlines. libuv's timers run on CLOCK_MONOTONIC, which stands still while the machine sleeps;
 * every deadline here is CLOCK_BOOTTIME, so one timerfd on that clock carries a heap of them all.
 * The timerfd is moved only when an earlier deadline comes in: a deadline that was dropped costs at
 * most one idle wake-up, one that moves outward costs no system call.
 */
#include "supervisor/daemon/loop.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"

#include <errno.h>
#include <sys/timerfd.h>
#include <unistd.h>

static void arm(struct sp_timers *timers)
{
	struct sp_heap_node *first = sp_heap_first(&timers->heap);
	int64_t next_ms = first ? first->key : INT64_MAX;
	struct itimerspec spec = {0};
	int result;

	if (next_ms >= timers->armed_ms)
		return;
	timers->armed_ms = next_ms;
	if (next_ms < 1)
		next_ms = 1; /* an all-zero time would disarm */
	spec.it_value.tv_sec = (time_t)(next_ms / SP_MS_PER_S);
	spec.it_value.tv_nsec = (long)(next_ms % SP_MS_PER_S * SP_NS_PER_MS);
	result = timerfd_settime(timers->fd, TFD_TIMER_ABSTIME, &spec, NULL);
	sp_assert(result == 0);
}

static void on_timerfd(uv_poll_t *poll, int status, int events)
{
	struct sp_timers *timers = poll->data;
	struct sp_heap_node *first;
	int64_t now_ms;
	uint64_t expirations;

	SP_UNUSED(status);
	SP_UNUSED(events);
	if (read(timers->fd, &expirations, sizeof(expirations)) < 0 && errno == EAGAIN)
		return;
	now_ms = sp_clock_boot_ms();
	timers->armed_ms = INT64_MAX;
	while ((first = sp_heap_first(&timers->heap)) && first->key <= now_ms) {
		struct sp_timer *timer = SP_CONTAINER_OF(first, struct sp_timer, node);

		sp_heap_remove(&timers->heap, first);
		timer->fire(timer);
	}
	arm(timers);
}

int sp_timers_init(struct sp_timers *timers, uv_loop_t *loop, struct sp_err *err)
{
	int status;

	*timers = (struct sp_timers){.fd = -1, .armed_ms = INT64_MAX};
	timers->fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	if (timers->fd < 0)
		return sp_err_set(err, -errno, "create a timer on CLOCK_BOOTTIME");
	sp_heap_init(&timers->heap);
	status = uv_poll_init(loop, &timers->poll, timers->fd);
	if (status < 0) {
		sp_fd_close(&timers->fd);
		return sp_err_set(err, status, "poll the timer");
	}
	timers->poll.data = timers;
	(void)uv_poll_start(&timers->poll, UV_READABLE, on_timerfd);
	return 0;
}

static void on_poll_closed(uv_handle_t *handle)
{
	struct sp_timers *timers = handle->data;

	sp_fd_close(&timers->fd);
	sp_heap_done(&timers->heap);
	if (timers->on_closed)
		timers->on_closed(timers->arg);
}

void sp_timers_close(struct sp_timers *timers, void (*on_closed)(void *arg), void *arg)
{
	timers->on_closed = on_closed;
	timers->arg = arg;
	uv_close((uv_handle_t *)&timers->poll, on_poll_closed);
}

int sp_timer_init(struct sp_timers *timers, struct sp_timer *timer,
		  void (*fire)(struct sp_timer *timer))
{
	if (sp_heap_reserve(&timers->heap, timers->reserved + 1) < 0)
		return -ENOMEM;
	timers->reserved++;
	sp_heap_node_init(&timer->node);
	timer->fire = fire;
	return 0;
}

void sp_timer_done(struct sp_timers *timers, struct sp_timer *timer)
{
	if (!timer->fire)
		return;
	sp_heap_remove(&timers->heap, &timer->node);
	timer->fire = NULL;
	timers->reserved--;
}

void sp_timer_set(struct sp_timers *timers, struct sp_timer *timer, int64_t boot_ms)
{
	if (boot_ms == INT64_MAX) {
		sp_heap_remove(&timers->heap, &timer->node);
		return;
	}
	sp_heap_set(&timers->heap, &timer->node, boot_ms);
	arm(timers);
}
