/*
 * The daemon's socket. sandpoold is assumed to be in an attacker's hands: a record of an unknown
 * type, a wrong length or out of turn is answered with SP_LAUNCHER_ERROR and changes nothing;
 * indexes and ids are checked by the handlers against live state.
 *
 * Descriptors are never taken from it, not even to be closed: the last close(2) of a socket that
 * lingers, or any of a file whose server is the attacker's, waits as long as he likes, and nothing
 * would be killed meanwhile. They are seen before they are received, and end the service. For the
 * same reason the socket, whose queue may hold some, is closed by our own end alone.
 *
 * Answers wait in a ring while the socket is full. Each request has exactly one, so requests are
 * read only while the ring has room for all that are owed; GONE, which no request asks for, waits
 * in the slot itself. A daemon that does not read can so stop its own requests and nothing else.
 */
#include "supervisor/launcher/launcher_private.h"

#include "pool/base/fd.h"
#include "pool/base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define READS_PER_TURN 64 /* so that deaths and workers are seen to between */

/* --- answers --------------------------------------------------------------------------------- */

static void push(struct sp_launcher *launcher, const struct sp_launcher_answer *answer,
		 const int *fds, size_t fd_count)
{
	struct sp_pending_answer *pending;

	sp_assert(launcher->answer_count < SP_LAUNCHER_ANSWERS &&
		  fd_count <= SP_ARRAY_SIZE(pending->fds));
	pending = &launcher->answers[(launcher->answer_head + launcher->answer_count) %
				     SP_LAUNCHER_ANSWERS];
	launcher->answer_count++;
	pending->record = *answer;
	pending->fd_count = (uint32_t)fd_count;
	for (size_t i = 0; i < fd_count; i++)
		pending->fds[i] = fds[i];
}

void sp_launcher_answer(struct sp_launcher *launcher, struct sp_launcher_answer *answer,
			const int *fds, size_t fd_count)
{
	if (answer->header.type != SP_LAUNCHER_GONE) {
		sp_assert(launcher->owed > 0);
		launcher->owed--;
	}
	push(launcher, answer, fds, fd_count);
}

void sp_launcher_fail(struct sp_launcher *launcher, uint64_t request, int status, const char *stage,
		      const char *text)
{
	struct sp_launcher_answer answer = {
		.header = {.type = SP_LAUNCHER_ERROR, .request = request},
		.status = status,
	};

	(void)snprintf(answer.stage, sizeof(answer.stage), "%s", stage);
	(void)snprintf(answer.text, sizeof(answer.text), "%s", text);
	sp_launcher_answer(launcher, &answer, NULL, 0);
}

void sp_launcher_done(struct sp_launcher *launcher, uint64_t request)
{
	struct sp_launcher_answer answer = {
		.header = {.type = SP_LAUNCHER_DONE, .request = request},
	};

	sp_launcher_answer(launcher, &answer, NULL, 0);
}

static void pop(struct sp_launcher *launcher)
{
	struct sp_pending_answer *pending = &launcher->answers[launcher->answer_head];

	for (uint32_t i = 0; i < pending->fd_count; i++)
		sp_fd_close(&pending->fds[i]);
	launcher->answer_head = (launcher->answer_head + 1) % SP_LAUNCHER_ANSWERS;
	launcher->answer_count--;
}

static void send_answers(struct sp_launcher *launcher)
{
	while (launcher->answer_count > 0) {
		struct sp_pending_answer *pending = &launcher->answers[launcher->answer_head];
		int status = -EPIPE;

		if (launcher->daemon_fd >= 0)
			status = sp_msg_send(launcher->daemon_fd, &pending->record,
					     sizeof(pending->record), pending->fds,
					     pending->fd_count);
		if (status == -EAGAIN)
			return;
		pop(launcher);
	}
}

static bool has_room(const struct sp_launcher *launcher)
{
	return launcher->owed + launcher->answer_count < SP_LAUNCHER_BUSY_MAX &&
	       sp_spawn_has_room(launcher);
}

void sp_launcher_flush(struct sp_launcher *launcher)
{
	struct epoll_event event = {.data.u64 = (uint64_t)SP_EVENT_DAEMON << 32};

	send_answers(launcher);
	sp_slots_announce(launcher);
	send_answers(launcher);
	if (launcher->daemon_fd < 0)
		return;
	if (has_room(launcher) && !launcher->stopping)
		event.events |= EPOLLIN;
	if (launcher->answer_count > 0)
		event.events |= EPOLLOUT;
	if (event.events == launcher->daemon_events)
		return;
	launcher->daemon_events = event.events;
	(void)epoll_ctl(launcher->epoll_fd, EPOLL_CTL_MOD, launcher->daemon_fd, &event);
}

/* --- requests -------------------------------------------------------------------------------- */

union record {
	struct sp_launcher_header header;
	struct sp_launcher_hello hello;
	struct sp_launcher_create create;
	struct sp_launcher_command command;
	struct sp_launcher_bind bind;
};

static void handle_hello(struct sp_launcher *launcher, const union record *record)
{
	if (launcher->greeted) {
		sp_launcher_fail(launcher, record->header.request, -EALREADY, "hello", "");
		return;
	}
	if (record->hello.version != SP_LAUNCHER_PROTOCOL_VERSION) {
		sp_launcher_fail(launcher, record->header.request, -EPROTONOSUPPORT, "hello",
				 "protocol version");
		return;
	}
	if (record->hello.build_id != SP_BUILD_ID) {
		char text[SP_LAUNCHER_TEXT_MAX];

		(void)snprintf(text, sizeof(text),
			       "sandpoold is of build %016" PRIx64 ", sandpool-launcher of build "
			       "%016" PRIx64 ": install programs of one build",
			       record->hello.build_id, (uint64_t)SP_BUILD_ID);
		sp_launcher_fail(launcher, record->header.request, -ESTALE, "hello", text);
		return;
	}
	launcher->greeted = true;
	sp_loader_begin(launcher, record->header.request);
}

static void handle_create(struct sp_launcher *launcher, const union record *record)
{
	sp_slots_create(launcher, &record->create);
}

static void handle_kill(struct sp_launcher *launcher, const union record *record)
{
	sp_slots_kill(launcher, &record->command);
}

static void handle_bind(struct sp_launcher *launcher, const union record *record)
{
	sp_binder_request(launcher, &record->bind);
}

static void handle_exec(struct sp_launcher *launcher, const union record *record)
{
	sp_slots_exec(launcher, &record->command);
}

static void handle_freeze(struct sp_launcher *launcher, const union record *record)
{
	sp_slots_freeze(launcher, &record->command);
}

static void handle_reload(struct sp_launcher *launcher, const union record *record)
{
	if (record->command.slot != 0 || record->command.serial != 0)
		sp_launcher_fail(launcher, record->header.request, -EINVAL, "reload", "slot");
	else
		sp_loader_begin(launcher, record->header.request);
}

static void handle_adopt(struct sp_launcher *launcher, const union record *record)
{
	sp_loader_adopt(launcher, &record->command);
}

/* The table of permitted messages. Everything but HELLO only after it. */
static const struct {
	void (*handle)(struct sp_launcher *launcher, const union record *record);
	size_t size;   /* exact, or the least */
	bool variable; /* BIND: the record ends after the path's NUL */
} permitted[] = {
	[SP_LAUNCHER_HELLO] = {handle_hello, sizeof(struct sp_launcher_hello), false},
	[SP_LAUNCHER_CREATE] = {handle_create, sizeof(struct sp_launcher_create), false},
	[SP_LAUNCHER_KILL] = {handle_kill, sizeof(struct sp_launcher_command), false},
	[SP_LAUNCHER_BIND] = {handle_bind, offsetof(struct sp_launcher_bind, path) + 1, true},
	[SP_LAUNCHER_EXEC_CGROUP] = {handle_exec, sizeof(struct sp_launcher_command), false},
	[SP_LAUNCHER_EXEC_KILL] = {handle_exec, sizeof(struct sp_launcher_command), false},
	[SP_LAUNCHER_EXEC_DONE] = {handle_exec, sizeof(struct sp_launcher_command), false},
	[SP_LAUNCHER_FREEZE] = {handle_freeze, sizeof(struct sp_launcher_command), false},
	[SP_LAUNCHER_RELOAD] = {handle_reload, sizeof(struct sp_launcher_command), false},
	[SP_LAUNCHER_ADOPT_TABLE] = {handle_adopt, sizeof(struct sp_launcher_command), false},
};

static bool bind_length_right(const struct sp_launcher_bind *bind, size_t size)
{
	return bind->path_length < SP_BIND_PATH_MAX &&
	       size == offsetof(struct sp_launcher_bind, path) + bind->path_length + 1 &&
	       bind->path[bind->path_length] == '\0' && strlen(bind->path) == bind->path_length;
}

static void dispatch(struct sp_launcher *launcher, const union record *record, size_t size)
{
	uint32_t type = size >= sizeof(record->header) ? record->header.type : 0;
	uint64_t request = size >= sizeof(record->header) ? record->header.request : 0;

	launcher->owed++;
	if (type >= SP_ARRAY_SIZE(permitted) || !permitted[type].handle)
		sp_launcher_fail(launcher, request, -EBADMSG, "message", "type");
	else if (permitted[type].variable ? size < permitted[type].size
					  : size != permitted[type].size)
		sp_launcher_fail(launcher, request, -EBADMSG, "message", "length");
	else if (record->header.reserved != 0)
		sp_launcher_fail(launcher, request, -EBADMSG, "message", "header");
	else if (permitted[type].variable && !bind_length_right(&record->bind, size))
		sp_launcher_fail(launcher, request, -EBADMSG, "message", "path");
	else if (!launcher->greeted && type != SP_LAUNCHER_HELLO)
		sp_launcher_fail(launcher, request, -EBADMSG, "message", "no hello yet");
	else
		permitted[type].handle(launcher, record);
}

/* See the top for why the socket stays open. */
void sp_launcher_leave_daemon(struct sp_launcher *launcher, const char *reason)
{
	if (launcher->daemon_fd >= 0)
		(void)epoll_ctl(launcher->epoll_fd, EPOLL_CTL_DEL, launcher->daemon_fd, NULL);
	launcher->daemon_fd = -1;
	sp_launcher_stop(launcher, reason);
}

/* Is there a record (-EAGAIN if not), and does it bring descriptors? A peek leaves them in the
 * queue; that it had no room for them is what the kernel says. */
static int peek(const struct sp_launcher *launcher, bool *ret_descriptors)
{
	struct msghdr message = {0};
	ssize_t got;

	do {
		got = recvmsg(launcher->daemon_fd, &message, MSG_PEEK);
	} while (got < 0 && errno == EINTR);
	*ret_descriptors = (message.msg_flags & MSG_CTRUNC) != 0;
	return got < 0 ? -errno : 0;
}

static void read_requests(struct sp_launcher *launcher)
{
	static union record record;

	for (int i = 0; i < READS_PER_TURN && has_room(launcher); i++) {
		bool descriptors;
		ssize_t got;

		if (peek(launcher, &descriptors) == -EAGAIN)
			return;
		if (descriptors) {
			sp_log(SP_LOG_ERROR, "the daemon sends descriptors, it is not ours", NULL);
			sp_launcher_leave_daemon(launcher, "daemon sends descriptors");
			return;
		}
		/* The record that was looked at: nobody else takes any. */
		got = recv(launcher->daemon_fd, &record, sizeof(record), MSG_TRUNC);
		if (got <= 0) {
			sp_launcher_leave_daemon(launcher, "daemon is gone");
			return;
		}
		if ((size_t)got > sizeof(record)) { /* longer than any record */
			launcher->owed++;
			sp_launcher_fail(launcher, 0, -EBADMSG, "message", "length");
			continue;
		}
		dispatch(launcher, &record, (size_t)got);
	}
}

void sp_launcher_daemon_event(struct sp_launcher *launcher, uint32_t events)
{
	if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0 || launcher->daemon_fd < 0)
		return;
	if (launcher->stopping || !has_room(launcher)) {
		if ((events & (EPOLLHUP | EPOLLERR)) == 0)
			return;
		sp_launcher_leave_daemon(launcher, "daemon is gone");
		return;
	}
	read_requests(launcher);
}
