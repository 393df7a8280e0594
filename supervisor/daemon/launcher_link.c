/*
 * Requests to the launcher and their answers.
 *
 * A request's number is (turn << 32 | place + 1): the place finds its record in the table, the turn
 * says whether the record is still that request. An answer to a request that nobody waits for any
 * more is not lost silently: what it grants (a sub-cgroup) is given back.
 *
 * The launcher is trusted with our lives and still checked for shape: a record of a wrong length or
 * type means that the two programs are not of one build, and ends the daemon.
 */
#include "supervisor/daemon/launcher_link.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"
#include "pool/base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SWEEP_MS 250 /* how late a deadline may be noticed */

struct request {
	uint64_t number; /* 0 = free */
	int64_t deadline_ms;
	launcher_cb *cb;
	void *arg;
	size_t next_free; /* place + 1 */
};

struct launcher_link {
	struct sp_seq_link socket;
	struct sp_timers *timers;
	struct sp_timer sweep;
	const struct launcher_events *events;
	void *arg;
	struct request *table;
	size_t capacity;
	size_t free_place; /* place + 1; 0 = none */
	size_t with_deadline;
	uint32_t turn;
};

static struct request *find(struct launcher_link *link, uint64_t number)
{
	size_t place = (size_t)(uint32_t)number;

	if (place == 0 || place > link->capacity || link->table[place - 1].number != number)
		return NULL;
	return &link->table[place - 1];
}

static int grow(struct launcher_link *link)
{
	size_t capacity = link->capacity ? link->capacity * 2 : 64;
	struct request *table;

	if (capacity > SP_LAUNCHER_REQUESTS_MAX)
		return -ENOBUFS;
	table = realloc(link->table, capacity * sizeof(*table));
	if (!table)
		return -ENOMEM;
	for (size_t place = capacity; place > link->capacity; place--) {
		table[place - 1] = (struct request){.next_free = link->free_place};
		link->free_place = place;
	}
	link->table = table;
	link->capacity = capacity;
	return 0;
}

static void release(struct launcher_link *link, struct request *request)
{
	if (request->deadline_ms != INT64_MAX)
		link->with_deadline--;
	request->number = 0;
	request->next_free = link->free_place;
	link->free_place = (size_t)(request - link->table) + 1;
}

static int submit(struct launcher_link *link, struct sp_launcher_header *record, size_t len,
		  int64_t timeout_ms, launcher_cb *cb, void *arg, uint64_t *ret_request)
{
	struct request *request;
	size_t next_free;
	int status;

	if (link->free_place == 0) {
		status = grow(link);
		if (status < 0)
			return status;
	}
	request = &link->table[link->free_place - 1];
	next_free = request->next_free;
	link->turn++;
	*request = (struct request){
		.number = (uint64_t)link->turn << 32 | link->free_place,
		.deadline_ms = timeout_ms > 0 ? sp_clock_boot_ms() + timeout_ms : INT64_MAX,
		.cb = cb,
		.arg = arg,
		.next_free = next_free,
	};
	record->request = request->number;
	status = sp_seq_send(&link->socket, record, len, NULL, 0);
	if (status < 0) {
		request->number = 0;
		return status;
	}
	link->free_place = next_free;
	if (request->deadline_ms != INT64_MAX && link->with_deadline++ == 0)
		sp_timer_set(link->timers, &link->sweep, request->deadline_ms);
	if (ret_request)
		*ret_request = request->number;
	return 0;
}

static void answer(struct launcher_link *link, struct request *request,
		   const struct sp_launcher_answer *record, int *fds, size_t fd_count)
{
	launcher_cb *cb = request->cb;
	void *arg = request->arg;

	release(link, request);
	if (cb)
		cb(arg, record, fds, fd_count);
}

static void on_sweep(struct sp_timer *timer)
{
	struct launcher_link *link = SP_CONTAINER_OF(timer, struct launcher_link, sweep);
	int64_t now_ms = sp_clock_boot_ms();

	for (size_t place = 0; place < link->capacity && link->socket.open; place++) {
		struct request *request = &link->table[place];
		struct sp_launcher_answer record = {
			.header = {.type = SP_LAUNCHER_ERROR, .request = request->number},
			.status = -ETIMEDOUT,
			.stage = "deadline",
		};

		if (request->number != 0 && request->deadline_ms <= now_ms)
			answer(link, request, &record, NULL, 0);
	}
	if (link->socket.open && link->with_deadline > 0)
		sp_timer_set(link->timers, &link->sweep, now_ms + SWEEP_MS);
}

/* Nobody waits for this answer any more. */
static void give_back(struct launcher_link *link, const struct sp_launcher_answer *record)
{
	if (record->header.type == SP_LAUNCHER_EXEC_CGROUP_READY)
		(void)launcher_command(link, SP_LAUNCHER_EXEC_DONE, record->slot, record->serial,
				       record->value, 0, NULL, NULL, NULL);
}

static bool terminated(const char *text, size_t size)
{
	return memchr(text, '\0', size) != NULL;
}

static void on_record(void *arg, const void *bytes, size_t len, int *fds, size_t fd_count)
{
	struct launcher_link *link = arg;
	const struct sp_launcher_answer *record = bytes;
	struct request *request;

	if (len != sizeof(*record) || record->header.type < SP_LAUNCHER_CONFIG ||
	    record->header.type > SP_LAUNCHER_ERROR ||
	    !terminated(record->stage, sizeof(record->stage)) ||
	    !terminated(record->text, sizeof(record->text))) {
		sp_log(SP_LOG_ERROR, "malformed record from the launcher", "length=%zu", len);
		sp_seq_hang_up(&link->socket, -EPROTO);
		return;
	}
	if (record->header.type == SP_LAUNCHER_GONE) {
		link->events->gone(link->arg, record);
		return;
	}
	request = find(link, record->header.request);
	if (!request || !request->cb)
		give_back(link, record);
	if (request)
		answer(link, request, record, fds, fd_count);
}

static void on_hangup(void *arg, int status)
{
	struct launcher_link *link = arg;

	link->events->lost(link->arg, status);
}

static void on_closed(void *arg)
{
	struct launcher_link *link = arg;
	const struct launcher_events *events = link->events;
	void *events_arg = link->arg;

	free(link->table);
	free(link);
	events->closed(events_arg);
}

int launcher_open(uv_loop_t *loop, struct sp_timers *timers, int socket_fd,
		  const struct launcher_events *events, void *arg, struct launcher_link **ret_link,
		  struct sp_err *err)
{
	struct launcher_link *link = calloc(1, sizeof(*link));
	int status;

	if (!link) {
		sp_fd_close(&socket_fd);
		return sp_err_set(err, -ENOMEM, "launcher link");
	}
	link->timers = timers;
	link->events = events;
	link->arg = arg;
	link->socket.arg = link;
	link->socket.on_record = on_record;
	link->socket.on_hangup = on_hangup;
	link->socket.on_closed = on_closed;
	link->socket.outgoing_max = SP_LAUNCHER_REQUESTS_MAX;
	if (sp_timer_init(timers, &link->sweep, on_sweep) < 0) {
		sp_fd_close(&socket_fd);
		free(link);
		return sp_err_set(err, -ENOMEM, "launcher link");
	}
	status = sp_seq_open(&link->socket, loop, socket_fd, err);
	if (status < 0) {
		sp_timer_done(timers, &link->sweep);
		free(link);
		return status;
	}
	*ret_link = link;
	return 0;
}

void launcher_close(struct launcher_link *link)
{
	if (!link)
		return;
	sp_timer_done(link->timers, &link->sweep);
	for (size_t place = 0; place < link->capacity; place++)
		link->table[place].cb = NULL;
	sp_seq_close(&link->socket);
}

int launcher_create(struct launcher_link *link, uint32_t pool_index, uint64_t generation,
		    const char *id, launcher_cb *cb, void *arg, uint64_t *ret_request)
{
	struct sp_launcher_create record = {
		.header.type = SP_LAUNCHER_CREATE,
		.pool_index = pool_index,
		.generation = generation,
	};

	memcpy(record.id, id, SP_SANDBOX_ID_LEN);
	return submit(link, &record.header, sizeof(record), 0, cb, arg, ret_request);
}

int launcher_command(struct launcher_link *link, enum sp_launcher_type type, uint32_t slot,
		     uint64_t serial, uint32_t value, int64_t timeout_ms, launcher_cb *cb,
		     void *arg, uint64_t *ret_request)
{
	struct sp_launcher_command record = {
		.header.type = (uint32_t)type,
		.slot = slot,
		.value = value,
		.serial = serial,
	};

	return submit(link, &record.header, sizeof(record), timeout_ms, cb, arg, ret_request);
}

int launcher_bind(struct launcher_link *link, uint32_t slot, uint64_t serial, uint32_t root_index,
		  const char *path, uint32_t flags, uint32_t owner_uid, uint32_t owner_gid,
		  int64_t timeout_ms, launcher_cb *cb, void *arg, uint64_t *ret_request)
{
	size_t length = strlen(path);
	struct sp_launcher_bind record = {
		.header.type = SP_LAUNCHER_BIND,
		.slot = slot,
		.root_index = root_index,
		.serial = serial,
		.flags = flags,
		.owner_uid = owner_uid,
		.owner_gid = owner_gid,
		.path_length = (uint32_t)length,
	};

	if (length >= sizeof(record.path))
		return -ENAMETOOLONG;
	memcpy(record.path, path, length + 1);
	return submit(link, &record.header, offsetof(struct sp_launcher_bind, path) + length + 1,
		      timeout_ms, cb, arg, ret_request);
}

void launcher_forget(struct launcher_link *link, uint64_t request_number)
{
	struct request *request = find(link, request_number);

	if (request)
		request->cb = NULL;
}
