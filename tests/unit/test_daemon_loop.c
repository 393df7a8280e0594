/*
 * The daemon's additions to the loop: deferred work, deadlines, record sockets.
 */
#include "pool/base/clock.h"
#include "pool/base/fd.h"
#include "supervisor/daemon/loop.h"
#include "tests/unit/lingering.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void on_closed(void *arg)
{
	(*(int *)arg)++;
}

/* ---- deferred ---- */

struct work {
	struct sp_deferred deferred;
	struct sp_defer_queue *queue;
	struct work *cancels;
	int runs;
	int order;
	bool again;
};

static int order;

static void on_work(struct sp_deferred *deferred)
{
	struct work *work = SP_CONTAINER_OF(deferred, struct work, deferred);

	work->runs++;
	work->order = ++order;
	if (work->cancels)
		sp_deferred_cancel(&work->cancels->deferred);
	if (work->again) {
		work->again = false;
		sp_defer(work->queue, &work->deferred);
	}
}

static void close_queue(uv_loop_t *loop, struct sp_defer_queue *queue)
{
	int closed = 0;

	sp_defer_queue_close(queue, on_closed, &closed);
	cr_assert(uv_run(loop, UV_RUN_DEFAULT) == 0);
	cr_assert(closed == 1);
	cr_assert(uv_loop_close(loop) == 0);
}

Test(daemon_loop, deferred_work_runs_once_in_order_and_never_inside)
{
	struct sp_defer_queue queue;
	struct work work[3] = {{.queue = &queue}, {.queue = &queue}, {.queue = &queue}};
	uv_loop_t loop;

	cr_assert(uv_loop_init(&loop) == 0);
	sp_defer_queue_init(&queue, &loop);
	for (size_t i = 0; i < 3; i++) {
		sp_deferred_init(&work[i].deferred, on_work);
		sp_defer(&queue, &work[i].deferred);
		sp_defer(&queue, &work[i].deferred);
		cr_assert(work[i].runs == 0);
	}
	(void)uv_run(&loop, UV_RUN_NOWAIT);
	for (size_t i = 0; i < 3; i++)
		cr_assert(work[i].runs == 1 && work[i].order == (int)i + 1);
	/* Nothing waits: the queue keeps no loop busy. */
	cr_assert(!uv_is_active((uv_handle_t *)&queue.idle));
	close_queue(&loop, &queue);
}

Test(daemon_loop, what_deferred_work_defers_runs_in_the_next_turn)
{
	struct sp_defer_queue queue;
	struct work work = {.queue = &queue, .again = true};
	uv_loop_t loop;

	cr_assert(uv_loop_init(&loop) == 0);
	sp_defer_queue_init(&queue, &loop);
	sp_deferred_init(&work.deferred, on_work);
	sp_defer(&queue, &work.deferred);
	(void)uv_run(&loop, UV_RUN_NOWAIT);
	cr_assert(work.runs == 1);
	(void)uv_run(&loop, UV_RUN_NOWAIT);
	cr_assert(work.runs == 2);
	close_queue(&loop, &queue);
}

Test(daemon_loop, late_work_runs_in_the_next_turn_after_what_that_one_begins_with)
{
	struct sp_defer_queue queue;
	struct work late = {.queue = &queue};
	struct work cancelled = {.queue = &queue};
	struct work work = {.queue = &queue, .again = true};
	uv_loop_t loop;

	order = 0;
	cr_assert(uv_loop_init(&loop) == 0);
	sp_defer_queue_init(&queue, &loop);
	sp_deferred_init(&late.deferred, on_work);
	sp_deferred_init(&cancelled.deferred, on_work);
	sp_deferred_init(&work.deferred, on_work);
	sp_defer_late(&queue, &late.deferred);
	sp_defer_late(&queue, &cancelled.deferred);
	sp_defer(&queue, &late.deferred);
	sp_defer(&queue, &work.deferred);
	(void)uv_run(&loop, UV_RUN_NOWAIT);
	cr_assert(late.runs == 0 && work.runs == 1);
	sp_deferred_cancel(&cancelled.deferred);
	(void)uv_run(&loop, UV_RUN_NOWAIT);
	cr_assert(late.runs == 1 && cancelled.runs == 0 && work.runs == 2);
	cr_assert(!uv_is_active((uv_handle_t *)&queue.idle));
	close_queue(&loop, &queue);
}

Test(daemon_loop, cancelled_work_does_not_run_even_from_its_own_batch)
{
	struct sp_defer_queue queue;
	struct work second = {.queue = &queue};
	struct work first = {.queue = &queue, .cancels = &second};
	uv_loop_t loop;

	cr_assert(uv_loop_init(&loop) == 0);
	sp_defer_queue_init(&queue, &loop);
	sp_deferred_init(&first.deferred, on_work);
	sp_deferred_init(&second.deferred, on_work);
	sp_defer(&queue, &first.deferred);
	sp_defer(&queue, &second.deferred);
	(void)uv_run(&loop, UV_RUN_NOWAIT);
	cr_assert(first.runs == 1 && second.runs == 0);
	close_queue(&loop, &queue);
}

/* ---- timers ---- */

struct alarm {
	struct sp_timer timer;
	struct sp_timers *timers;
	int fires;
	int order;
	int64_t again_ms;
};

static void on_alarm(struct sp_timer *timer)
{
	struct alarm *alarm = SP_CONTAINER_OF(timer, struct alarm, timer);

	alarm->fires++;
	alarm->order = ++order;
	if (alarm->again_ms > 0) {
		sp_timer_set(alarm->timers, timer, sp_clock_boot_ms() + alarm->again_ms);
		alarm->again_ms = 0;
	}
}

Test(daemon_loop, timers_fire_in_order_not_before_their_time)
{
	struct sp_timers timers;
	struct alarm alarms[100] = {0};
	struct sp_err err = {0};
	int64_t start_ms = sp_clock_boot_ms();
	uv_loop_t loop;
	int closed = 0;

	cr_assert(uv_loop_init(&loop) == 0);
	cr_assert(sp_timers_init(&timers, &loop, &err) == 0);
	for (int i = 0; i < 100; i++) {
		alarms[i].timers = &timers;
		cr_assert(sp_timer_init(&timers, &alarms[i].timer, on_alarm) == 0);
		sp_timer_set(&timers, &alarms[i].timer, start_ms + 20 + (i * 37) % 100);
	}
	sp_timer_set(&timers, &alarms[7].timer, INT64_MAX);
	sp_timer_set(&timers, &alarms[8].timer, start_ms + 500);
	sp_timer_set(&timers, &alarms[8].timer, start_ms + 5);
	while (alarms[8].fires == 0)
		(void)uv_run(&loop, UV_RUN_ONCE);
	cr_assert(sp_clock_boot_ms() >= start_ms + 5 && alarms[8].order == 1);
	for (int fired = 0; fired < 99;) {
		(void)uv_run(&loop, UV_RUN_ONCE);
		fired = 0;
		for (int i = 0; i < 100; i++)
			fired += alarms[i].fires;
	}
	cr_assert(sp_clock_boot_ms() >= start_ms + 119);
	for (int i = 0; i < 100; i++) {
		cr_assert(alarms[i].fires == (i == 7 ? 0 : 1));
		for (int j = 0; j < i; j++)
			if (i != 7 && i != 8 && j != 7 && j != 8)
				cr_assert(((i * 37) % 100 < (j * 37) % 100) ==
					  (alarms[i].order < alarms[j].order));
		sp_timer_done(&timers, &alarms[i].timer);
		sp_timer_done(&timers, &alarms[i].timer);
	}
	sp_timers_close(&timers, on_closed, &closed);
	cr_assert(uv_run(&loop, UV_RUN_DEFAULT) == 0 && closed == 1);
	cr_assert(uv_loop_close(&loop) == 0);
}

Test(daemon_loop, timer_may_set_itself_again_and_a_past_time_fires_soon)
{
	struct sp_timers timers;
	struct alarm alarm = {.timers = &timers, .again_ms = 10};
	struct sp_err err = {0};
	uv_loop_t loop;
	int closed = 0;

	cr_assert(uv_loop_init(&loop) == 0);
	cr_assert(sp_timers_init(&timers, &loop, &err) == 0);
	cr_assert(sp_timer_init(&timers, &alarm.timer, on_alarm) == 0);
	sp_timer_set(&timers, &alarm.timer, -5);
	cr_assert(alarm.fires == 0);
	while (alarm.fires < 2)
		(void)uv_run(&loop, UV_RUN_ONCE);
	cr_assert(!sp_timer_pending(&alarm.timer));
	sp_timer_done(&timers, &alarm.timer);
	sp_timers_close(&timers, on_closed, &closed);
	cr_assert(uv_run(&loop, UV_RUN_DEFAULT) == 0);
	cr_assert(uv_loop_close(&loop) == 0);
}

/* ---- record sockets ---- */

struct peer {
	struct sp_seq_link link;
	uv_loop_t loop;
	int other;
	int records;
	size_t last_len;
	size_t fds;
	int taken;
	int hangups;
	int hangup_status;
	int closed;
	bool close_at_record;
	bool leave_fds;
	bool send_at_record;
};

static void on_record(void *arg, const void *record, size_t len, int *fds, size_t fd_count)
{
	struct peer *peer = arg;

	cr_assert(((const char *)record)[0] == 'x');
	peer->records++;
	peer->last_len = len;
	peer->fds += fd_count;
	if (fd_count > 0 && !peer->leave_fds)
		peer->taken = sp_take_fd(&fds[0]);
	if (peer->send_at_record)
		(void)sp_msg_send(peer->other, "x", 1, NULL, 0);
	if (peer->close_at_record)
		sp_seq_close(&peer->link);
}

static void on_hangup(void *arg, int status)
{
	struct peer *peer = arg;

	peer->hangups++;
	peer->hangup_status = status;
}

static void on_link_closed(void *arg)
{
	((struct peer *)arg)->closed++;
}

static void peer_open(struct peer *peer)
{
	struct sp_err err = {0};
	int pair[2];

	memset(peer, 0, sizeof(*peer));
	(void)signal(SIGPIPE, SIG_IGN);
	peer->taken = -1;
	cr_assert(uv_loop_init(&peer->loop) == 0);
	cr_assert(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	peer->other = pair[1];
	peer->link = (struct sp_seq_link){
		.arg = peer,
		.on_record = on_record,
		.on_hangup = on_hangup,
		.on_closed = on_link_closed,
		.outgoing_max = 4,
	};
	cr_assert(sp_seq_open(&peer->link, &peer->loop, pair[0], &err) == 0);
}

static void peer_close(struct peer *peer)
{
	sp_seq_close(&peer->link);
	sp_seq_close(&peer->link);
	cr_assert(uv_run(&peer->loop, UV_RUN_DEFAULT) == 0);
	cr_assert(peer->closed == 1);
	sp_fd_close(&peer->other);
	sp_fd_close(&peer->taken);
	cr_assert(uv_loop_close(&peer->loop) == 0);
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

Test(daemon_loop, records_arrive_whole_and_untaken_descriptors_are_closed)
{
	struct peer peer;
	int pipe_fds[2];

	peer_open(&peer);
	cr_assert(pipe2(pipe_fds, O_CLOEXEC) == 0);
	cr_assert(sp_msg_send(peer.other, "xab", 3, pipe_fds, 2) == 0);
	cr_assert(sp_msg_send(peer.other, "x", 1, NULL, 0) == 0);
	(void)uv_run(&peer.loop, UV_RUN_ONCE);
	cr_assert(peer.records == 2 && peer.last_len == 1 && peer.fds == 2);
	cr_assert(is_open(peer.taken));
	cr_assert((fcntl(peer.taken, F_GETFD) & FD_CLOEXEC) != 0);
	cr_assert(!is_open(peer.taken + 1), "the one that nobody took");
	sp_fd_close(&pipe_fds[0]);
	sp_fd_close(&pipe_fds[1]);
	peer_close(&peer);
}

/* `copies` of one that lingers, in a record of that length, read or not before the link closes. */
static void send_lingering(size_t copies, size_t len, bool read)
{
	static char record[SP_SEQ_RECORD_MAX + 1] = {'x'};
	int64_t before_ms = sp_clock_boot_ms();
	int fds[SP_MSG_FDS_MAX];
	struct peer peer;
	int listener;

	peer_open(&peer);
	fds[0] = lingering_socket(&listener);
	for (size_t i = 1; i < copies; i++)
		fds[i] = fds[0];
	cr_assert(sp_msg_send(peer.other, record, len, fds, copies) == 0);
	cr_assert(close(fds[0]) == 0);
	if (read) {
		peer.leave_fds = true;
		(void)uv_run(&peer.loop, UV_RUN_ONCE);
	}
	peer_close(&peer);
	cr_assert(sp_clock_boot_ms() - before_ms < 5000);
	cr_assert(close(listener) == 0);
}

Test(daemon_loop, descriptors_that_linger_are_not_waited_for, .timeout = 100)
{
	send_lingering(1, 1, true);
	send_lingering(SP_MSG_FDS_MAX, 1, true);
	send_lingering(1, SP_SEQ_RECORD_MAX + 1, true);
	send_lingering(1, 1, false);
	send_lingering(1, SP_SEQ_RECORD_MAX + 1, false);
}

/* By somebody who holds its end of the socket too. */
Test(daemon_loop, drain_ends_although_more_is_sent, .timeout = 10)
{
	struct peer peer;

	peer_open(&peer);
	for (int i = 0; i < 100; i++)
		cr_assert(sp_msg_send(peer.other, "x", 1, NULL, 0) == 0);
	peer.send_at_record = true;
	sp_seq_drain(&peer.link);
	cr_assert(peer.records == 100);
	peer_close(&peer);
}

Test(daemon_loop, record_at_the_limit_and_one_longer)
{
	static char record[SP_SEQ_RECORD_MAX + 1];
	struct peer peer;

	record[0] = 'x';
	peer_open(&peer);
	cr_assert(sp_msg_send(peer.other, record, SP_SEQ_RECORD_MAX, NULL, 0) == 0);
	(void)uv_run(&peer.loop, UV_RUN_ONCE);
	cr_assert(peer.records == 1 && peer.hangups == 0);
	cr_assert(sp_msg_send(peer.other, record, SP_SEQ_RECORD_MAX + 1, NULL, 0) == 0);
	(void)uv_run(&peer.loop, UV_RUN_ONCE);
	cr_assert(peer.records == 1 && peer.hangups == 1 && peer.hangup_status == -EMSGSIZE);
	cr_assert(sp_seq_send(&peer.link, "x", 1, NULL, 0) == -EPIPE);
	peer_close(&peer);
}

Test(daemon_loop, end_of_file_comes_after_what_was_sent_and_once)
{
	struct peer peer;

	peer_open(&peer);
	cr_assert(sp_msg_send(peer.other, "x", 1, NULL, 0) == 0);
	sp_fd_close(&peer.other);
	(void)uv_run(&peer.loop, UV_RUN_ONCE);
	(void)uv_run(&peer.loop, UV_RUN_NOWAIT);
	cr_assert(peer.records == 1 && peer.hangups == 1 && peer.hangup_status == 0);
	peer_close(&peer);
}

Test(daemon_loop, full_socket_queues_up_to_its_limit_and_drains_in_order)
{
	struct peer peer;
	char byte = 0;
	unsigned char expected = 0;
	int sent = 0;
	int status;
	int fds[SP_MSG_FDS_MAX];
	size_t fd_count;
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	peer_open(&peer);
	while (peer.link.outgoing_count == 0) {
		cr_assert(sp_seq_send(&peer.link, &byte, 1, NULL, 0) == 0);
		byte = (char)++sent;
	}
	for (size_t waiting = 1; waiting < peer.link.outgoing_max; waiting++) {
		cr_assert(sp_seq_send(&peer.link, &byte, 1, &null, 1) == 0);
		byte = (char)++sent;
	}
	status = sp_seq_send(&peer.link, &byte, 1, NULL, 0);
	cr_assert(status == -ENOBUFS, "%d", status);
	sp_fd_close(&null); /* the queue has its own */
	for (int i = 0; i < sent; i++) {
		cr_assert(sp_msg_receive(peer.other, &byte, 1, fds, &fd_count) == 1);
		cr_assert((unsigned char)byte == expected++);
		for (size_t j = 0; j < fd_count; j++)
			sp_fd_close(&fds[j]);
		(void)uv_run(&peer.loop, UV_RUN_NOWAIT);
	}
	cr_assert(peer.link.outgoing_count == 0);
	peer_close(&peer);
}

Test(daemon_loop, closing_from_inside_a_record_stops_at_once)
{
	struct peer peer;

	peer_open(&peer);
	peer.close_at_record = true;
	cr_assert(sp_msg_send(peer.other, "x", 1, NULL, 0) == 0);
	cr_assert(sp_msg_send(peer.other, "x", 1, NULL, 0) == 0);
	(void)uv_run(&peer.loop, UV_RUN_ONCE);
	cr_assert(peer.records == 1 && peer.hangups == 0);
	peer_close(&peer);
}
