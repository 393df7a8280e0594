/*
 * Small additions to libuv that every part of the daemon shares: work for later in this turn of the
 * loop, deadlines on CLOCK_BOOTTIME, and a SOCK_SEQPACKET socket with descriptors in its records.
 */
#ifndef SP_DAEMON_LOOP_H
#define SP_DAEMON_LOOP_H

#include "pool/base/err.h"
#include "pool/base/heap.h"
#include "pool/base/list.h"

#include <uv.h>

/* ---- work for later ---- */

/*
 * What was put off runs at the end of the same turn of the loop, first in first out; what a run
 * puts off runs in the next turn. This is how callbacks are kept out of the calls that start them.
 * What can wait for the answers of this turn to be written is put off further: it runs at the end
 * of the next turn. On a host with few processors it would else take one from whoever waits for
 * them.
 */
struct sp_deferred {
	struct sp_list link; /* in the queue while waiting, else empty */
	void (*run)(struct sp_deferred *deferred);
};

struct sp_defer_queue {
	uv_check_t check;
	uv_idle_t idle; /* active while something waits, so that the poll does not sleep */
	struct sp_list waiting;
	struct sp_list late; /* waiting in the next turn */
	unsigned int open_handles;
	void (*on_closed)(void *arg);
	void *arg;
};

int sp_defer_queue_init(struct sp_defer_queue *queue, uv_loop_t *loop);
/* What still waits is dropped. on_closed comes later, once. */
void sp_defer_queue_close(struct sp_defer_queue *queue, void (*on_closed)(void *arg), void *arg);
void sp_deferred_init(struct sp_deferred *deferred, void (*run)(struct sp_deferred *deferred));
/* Harmless when it waits already. */
void sp_defer(struct sp_defer_queue *queue, struct sp_deferred *deferred);
void sp_defer_late(struct sp_defer_queue *queue, struct sp_deferred *deferred);
void sp_deferred_cancel(struct sp_deferred *deferred);

/* ---- deadlines ---- */

/* One heap over one timerfd on CLOCK_BOOTTIME: deadlines also pass while the machine sleeps. */
struct sp_timer {
	struct sp_heap_node node;
	void (*fire)(struct sp_timer *timer);
};

struct sp_timers {
	uv_poll_t poll;
	int fd;
	struct sp_heap heap;
	size_t reserved; /* timers that exist */
	int64_t armed_ms;
	void (*on_closed)(void *arg);
	void *arg;
};

int sp_timers_init(struct sp_timers *timers, uv_loop_t *loop, struct sp_err *err);
void sp_timers_close(struct sp_timers *timers, void (*on_closed)(void *arg), void *arg);
/* Makes room for the timer, so that setting it can never fail. -ENOMEM. */
int sp_timer_init(struct sp_timers *timers, struct sp_timer *timer,
		  void (*fire)(struct sp_timer *timer));
/* Unset, and give its room back. Harmless on one that was never initialised but zeroed. */
void sp_timer_done(struct sp_timers *timers, struct sp_timer *timer);
/* Set or move. INT64_MAX unsets. A time that has passed fires in the next turn of the loop. */
void sp_timer_set(struct sp_timers *timers, struct sp_timer *timer, int64_t boot_ms);

static inline bool sp_timer_pending(const struct sp_timer *timer)
{
	return sp_heap_contains(&timer->node);
}

/* ---- record sockets ---- */

#define SP_SEQ_RECORD_MAX 4096u /* longest record that either peer sends to the daemon */

/*
 * States: open → closing → closed. Every record goes to on_record, which takes a descriptor by
 * setting it to -1; what it leaves is closed. A record whose descriptors found no room in our table
 * comes without any. End of file, an error or an oversized record goes to
 * on_hangup once, and nothing after it. Both may close the link, but free it only in on_closed.
 */
struct sp_seq_link {
	uv_poll_t poll;
	int fd;
	bool open;
	bool hung_up;
	int events;
	struct sp_list outgoing;
	size_t outgoing_count;
	size_t outgoing_max;
	void *arg;
	void (*on_record)(void *arg, const void *record, size_t len, int *fds, size_t fd_count);
	void (*on_hangup)(void *arg, int status); /* 0 = end of file */
	void (*on_closed)(void *arg);
};

/* Takes fd. The on_… members, arg and outgoing_max must be set. */
int sp_seq_open(struct sp_seq_link *link, uv_loop_t *loop, int fd, struct sp_err *err);
/* Borrows fds. Queues when the socket is full. -ENOBUFS: outgoing_max wait already; -EPIPE. */
int sp_seq_send(struct sp_seq_link *link, const void *record, size_t len, const int *fds,
		size_t fd_count);
/* Read what is there now without waiting for the loop; for a peer that is known to be dead. */
void sp_seq_drain(struct sp_seq_link *link);
/* Treat it as broken with this status: on_hangup comes from inside, nothing after it. */
void sp_seq_hang_up(struct sp_seq_link *link, int status);
/* Idempotent. */
void sp_seq_close(struct sp_seq_link *link);

#endif
