/*
 * Work for later in the same turn: a check handle runs it right after the poll, an idle handle
 * keeps the poll from sleeping while something waits. Both are stopped when nothing does, so that
 * an idle daemon costs nothing.
 */
#include "supervisor/daemon/loop.h"

static void stop(struct sp_defer_queue *queue)
{
	(void)uv_check_stop(&queue->check);
	(void)uv_idle_stop(&queue->idle);
}

/* The whole ring goes over to `to`, which is empty. */
static void move(struct sp_list *from, struct sp_list *to)
{
	sp_list_init(to);
	if (sp_list_empty(from))
		return;
	*to = *from;
	to->next->prev = to;
	to->prev->next = to;
	sp_list_init(from);
}

static void on_check(uv_check_t *check)
{
	struct sp_defer_queue *queue = check->data;
	struct sp_list batch;

	/* What is added from here on waits for the next turn, or the one after. */
	move(&queue->waiting, &batch);
	move(&queue->late, &queue->waiting);
	while (!sp_list_empty(&batch)) {
		struct sp_deferred *deferred = SP_LIST_FIRST(&batch, struct sp_deferred, link);

		sp_list_remove(&deferred->link);
		deferred->run(deferred);
	}
	if (sp_list_empty(&queue->waiting) && sp_list_empty(&queue->late))
		stop(queue);
}

static void on_idle(uv_idle_t *idle)
{
	SP_UNUSED(idle);
}

int sp_defer_queue_init(struct sp_defer_queue *queue, uv_loop_t *loop)
{
	*queue = (struct sp_defer_queue){.open_handles = 2};
	sp_list_init(&queue->waiting);
	sp_list_init(&queue->late);
	/* Neither can fail (libuv documents 0). */
	(void)uv_check_init(loop, &queue->check);
	(void)uv_idle_init(loop, &queue->idle);
	queue->check.data = queue;
	queue->idle.data = queue;
	return 0;
}

static void on_handle_closed(uv_handle_t *handle)
{
	struct sp_defer_queue *queue = handle->data;

	if (--queue->open_handles == 0 && queue->on_closed)
		queue->on_closed(queue->arg);
}

void sp_defer_queue_close(struct sp_defer_queue *queue, void (*on_closed)(void *arg), void *arg)
{
	queue->on_closed = on_closed;
	queue->arg = arg;
	while (!sp_list_empty(&queue->waiting))
		sp_list_remove(queue->waiting.next);
	while (!sp_list_empty(&queue->late))
		sp_list_remove(queue->late.next);
	uv_close((uv_handle_t *)&queue->check, on_handle_closed);
	uv_close((uv_handle_t *)&queue->idle, on_handle_closed);
}

void sp_deferred_init(struct sp_deferred *deferred, void (*run)(struct sp_deferred *deferred))
{
	sp_list_init(&deferred->link);
	deferred->run = run;
}

static void append(struct sp_defer_queue *queue, struct sp_list *list, struct sp_deferred *deferred)
{
	if (!sp_list_empty(&deferred->link))
		return;
	sp_list_append(list, &deferred->link);
	(void)uv_check_start(&queue->check, on_check);
	(void)uv_idle_start(&queue->idle, on_idle);
}

void sp_defer(struct sp_defer_queue *queue, struct sp_deferred *deferred)
{
	append(queue, &queue->waiting, deferred);
}

void sp_defer_late(struct sp_defer_queue *queue, struct sp_deferred *deferred)
{
	append(queue, &queue->late, deferred);
}

void sp_deferred_cancel(struct sp_deferred *deferred)
{
	sp_list_remove(&deferred->link);
}
