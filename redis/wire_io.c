/*
 * A connection's socket side: bytes out and in, the queue of commands, their deadlines. How it
 * comes about (names, addresses, handshake) is in wire_connect.c.
 *
 * Out: commands are formatted into `out` and leave together before the loop polls again (an idle
 * handle that is active only then): one write however many there are. While one write is under way
 * the next collects.
 * In: each chunk goes through TLS, if any, and the decoder; an answer belongs to the oldest
 * command. Deadlines: a heap, and a timer that is armed for the earliest; answers do not touch the
 * timer, which finds out when it fires. A deadline that has passed is believed only after the loop
 * has polled once more: after a pause of this process the answer may be there already.
 *
 * Trusts nothing that comes in. The server can end the connection, nothing else.
 */
#include "redis/wire_io_private.h"

#include "pool/base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SECOND_LOOK_MS 1

int64_t sp_redis_now_ms(void)
{
	return (int64_t)(uv_hrtime() / (uint64_t)SP_NS_PER_MS);
}

/* ---- commands ---- */

static size_t length_of(const char *const *argv, const size_t *lens, int i)
{
	return lens ? lens[i] : strlen(argv[i]);
}

static bool is_command(const char *const *argv, const size_t *lens, const char *name)
{
	return length_of(argv, lens, 0) == strlen(name) &&
	       strncasecmp(argv[0], name, strlen(name)) == 0;
}

int sp_redis_command_check(int argc, const char *const *argv, const size_t *lens,
			   struct sp_err *err)
{
	size_t sum = 0;

	if (argc < 1)
		return sp_err_set(err, -EINVAL, "a command without a name");
	for (int i = 0; i < argc; i++) {
		size_t len = length_of(argv, lens, i);

		if (len > SP_REDIS_COMMAND_MAX - sum) {
			char name[SP_REDIS_COMMAND_NAME_MAX];

			sp_redis_command_name(argc, argv, lens, name);
			return sp_err_set(err, -EMSGSIZE, "'%s' is longer than %u bytes", name,
					  SP_REDIS_COMMAND_MAX);
		}
		sum += len;
	}
	return 0;
}

void sp_redis_command_name(int argc, const char *const *argv, const size_t *lens, char *name)
{
	bool two = argc > 1 &&
		   (is_command(argv, lens, "FCALL") || is_command(argv, lens, "FCALL_RO") ||
		    is_command(argv, lens, "FUNCTION"));
	char text[SP_REDIS_COMMAND_NAME_MAX];

	(void)snprintf(text, sizeof(text), "%.*s%s%.*s",
		       (int)SP_MIN(length_of(argv, lens, 0), (size_t)32), argv[0], two ? " " : "",
		       two ? (int)SP_MIN(length_of(argv, lens, 1), (size_t)40) : 0,
		       two ? argv[1] : "");
	(void)sp_log_quote(text, name, SP_REDIS_COMMAND_NAME_MAX);
}

/* ---- the end ---- */

/* How many of the plain bytes queued so far the server may have got. */
static uint64_t bytes_gone(const struct sp_redis_io *io)
{
	if (io->tls || !io->socket)
		return io->handed;
	return io->handed - uv_stream_get_write_queue_size(&io->socket->uv.stream);
}

static void answer_lost(struct sp_redis_io *io, struct sp_redis_request *request,
			const struct sp_err *why)
{
	bool gone = request->end <= io->gone;
	struct sp_err err = {0};

	sp_list_remove(&request->link);
	io->pending--;
	sp_heap_remove(&io->due, &request->due);
	(void)sp_err_code(&err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, why->status, "'%s': %s%s",
			  request->name, why->message, gone ? "" : " (not sent)");
	request->cb(request->arg, gone ? SP_REDIS_UNKNOWN : SP_REDIS_NOT_SENT, NULL, &err);
	free(request);
}

void sp_redis_io_answer_all(struct sp_redis_io *io, const struct sp_err *why)
{
	while (!sp_list_empty(&io->requests))
		answer_lost(io, SP_CONTAINER_OF(io->requests.next, struct sp_redis_request, link),
			    why);
}

static void on_handle_closed(uv_handle_t *handle)
{
	sp_redis_io_unhold(handle->data);
}

/* Stops everything; the memory stays until the last handle has closed. */
static void end(struct sp_redis_io *io)
{
	io->gone = bytes_gone(io);
	io->state = SP_REDIS_IO_ENDING;
	if (io->socket)
		sp_redis_io_drop_socket(io);
	if (io->resolving)
		(void)uv_cancel((uv_req_t *)&io->lookup);
	uv_close((uv_handle_t *)&io->timer, on_handle_closed);
	uv_close((uv_handle_t *)&io->flush, on_handle_closed);
}

void sp_redis_io_fail(struct sp_redis_io *io, const struct sp_err *why)
{
	struct sp_err err = {0};
	char address[SP_REDIS_ADDRESS_TEXT_MAX];

	if (io->state == SP_REDIS_IO_ENDING)
		return;
	end(io);
	(void)sp_err_code(
		&err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, why->status, "redis at '%s': %s",
		sp_redis_address_text(&io->address, address, sizeof(address)), why->message);
	sp_redis_io_answer_all(io, &err);
	/* A callback may have closed us, and then wants to hear no more. */
	if (!io->disowned)
		io->events->failed(io->arg, &err);
}

void sp_redis_io_close(struct sp_redis_io *io, const struct sp_err *why)
{
	if (io->disowned)
		return;
	io->disowned = true;
	io->why = *why;
	if (io->state != SP_REDIS_IO_ENDING)
		end(io);
}

void sp_redis_io_unhold(struct sp_redis_io *io)
{
	if (--io->holds > 0)
		return;
	sp_redis_io_answer_all(io, &io->why);
	io->events->closed(io->arg);
	sp_redis_io_free(io);
}

void sp_redis_io_free(struct sp_redis_io *io)
{
	uv_freeaddrinfo(io->addresses);
	sp_redis_tls_free(io->tls);
	sp_redis_tls_credentials_unref(io->credentials);
	sp_redis_decoder_done(&io->decoder);
	sp_heap_done(&io->due);
	sp_redis_buf_wipe(&io->out);
	free(io);
}

/* ---- deadlines ---- */

static void on_deadline(uv_timer_t *timer);

void sp_redis_io_arm(struct sp_redis_io *io, int64_t at_ms)
{
	int64_t delay = at_ms - (int64_t)uv_now(io->loop);

	if (io->armed_ms != 0 && io->armed_ms <= at_ms)
		return;
	io->armed_ms = at_ms;
	/* Cannot fail: the callback is set and the handle is not closing. */
	(void)uv_timer_start(&io->timer, on_deadline, (uint64_t)SP_MAX(delay, 0), 0);
}

static void on_deadline(uv_timer_t *timer)
{
	struct sp_redis_io *io = timer->data;
	struct sp_heap_node *first;
	const struct sp_redis_request *request;
	struct sp_err err = {0};

	if (io->state == SP_REDIS_IO_ENDING)
		return;
	io->armed_ms = 0;
	if (io->state != SP_REDIS_IO_OPEN) {
		sp_redis_io_connect_late(io);
		return;
	}
	first = sp_heap_first(&io->due);
	if (!first)
		return;
	if (first->key > sp_redis_now_ms()) {
		sp_redis_io_arm(io, first->key);
		return;
	}
	if (io->looked_for != first->key) {
		io->looked_for = first->key;
		sp_redis_io_arm(io, (int64_t)uv_now(io->loop) + SECOND_LOOK_MS);
		return;
	}
	request = SP_CONTAINER_OF(first, struct sp_redis_request, due);
	(void)sp_err_code(&err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -ETIMEDOUT,
			  "no answer to '%s' within %lld ms", request->name,
			  (long long)request->timeout_ms);
	sp_redis_io_fail(io, &err);
}

/* ---- out ---- */

static void flush(struct sp_redis_io *io);

/* A password that has left is not kept. */
static void wipe_sent(struct sp_redis_io *io)
{
	if (io->secret && io->out.data)
		explicit_bzero(io->out.data, io->out.capacity);
	io->secret = false;
}

struct write {
	uv_write_t request;
	struct sp_redis_io *io;
	char *data;
	size_t len;
};

static void on_written(uv_write_t *request, int status)
{
	struct write *write = SP_CONTAINER_OF(request, struct write, request);
	struct sp_redis_io *io = write->io;
	struct sp_err err = {0};

	explicit_bzero(write->data, write->len);
	free(write->data);
	free(write);
	io->writing = false;
	if (io->state != SP_REDIS_IO_ENDING) {
		if (status < 0) {
			(void)sp_err_set(&err, status, "write");
			sp_redis_io_fail(io, &err);
		} else {
			flush(io);
		}
	}
	sp_redis_io_unhold(io);
}

/* What the socket did not take at once is given to libuv, with its memory. */
static int write_rest(struct sp_redis_io *io, struct sp_buf *bytes)
{
	struct write *write = malloc(sizeof(*write));
	uv_buf_t chunk;
	int status;

	if (!write)
		return -ENOMEM;
	*write = (struct write){.io = io, .len = bytes->len};
	write->data = sp_buf_take(bytes);
	if (!write->data) {
		free(write);
		return -ENOMEM;
	}
	chunk = uv_buf_init(write->data, (unsigned int)write->len);
	status = uv_write(&write->request, &io->socket->uv.stream, &chunk, 1, on_written);
	if (status < 0) {
		free(write->data);
		free(write);
		return status;
	}
	io->writing = true;
	io->holds++;
	if (!io->tls)
		io->handed += write->len;
	return 0;
}

/* Writes as much of bytes as the socket takes now, the rest later. What libuv holds of it is taken
 * off again in bytes_gone(). */
static int write_bytes(struct sp_redis_io *io, struct sp_buf *bytes)
{
	uv_buf_t chunk;
	int written;

	if (bytes->len == 0)
		return 0;
	chunk = uv_buf_init(bytes->data, (unsigned int)bytes->len);
	written = uv_try_write(&io->socket->uv.stream, &chunk, 1);
	if (written < 0 && written != UV_EAGAIN)
		return written;
	if (written > 0) {
		sp_buf_consume(bytes, (size_t)written);
		if (!io->tls)
			io->handed += (uint64_t)written;
	}
	return bytes->len > 0 ? write_rest(io, bytes) : 0;
}

static int encrypt(struct sp_redis_io *io, struct sp_err *err)
{
	int status;

	if (io->state != SP_REDIS_IO_OPEN || io->out.len == 0)
		return 0;
	status = sp_redis_tls_write(io->tls, io->out.data, io->out.len, err);
	if (status < 0)
		return status;
	io->handed += io->out.len;
	wipe_sent(io);
	sp_buf_clear(&io->out);
	return 0;
}

static void flush(struct sp_redis_io *io)
{
	struct sp_err err = {0};
	int status = 0;

	if (io->writing)
		return;
	if (io->tls) {
		status = encrypt(io, &err);
		if (status == 0)
			status = write_bytes(io, sp_redis_tls_out(io->tls));
	} else if (io->state == SP_REDIS_IO_OPEN) {
		status = write_bytes(io, &io->out);
		wipe_sent(io);
	}
	if (status == 0)
		return;
	if (err.status == 0)
		(void)sp_err_set(&err, status, "write");
	sp_redis_io_fail(io, &err);
}

static void on_flush(uv_idle_t *idle)
{
	struct sp_redis_io *io = idle->data;

	if (io->state == SP_REDIS_IO_ENDING)
		return;
	(void)uv_idle_stop(idle);
	if (io->early.status < 0)
		sp_redis_io_fail(io, &io->early);
	else
		flush(io);
}

void sp_redis_io_kick(struct sp_redis_io *io)
{
	/* Cannot fail: the callback is set and the handle is not closing. */
	(void)uv_idle_start(&io->flush, on_flush);
}

/* Appends the command to out. 0 or -ENOMEM, -EMSGSIZE, -EBUSY. */
static int format(struct sp_redis_io *io, int argc, const char *const *argv, const size_t *lens,
		  const char *name, struct sp_err *err)
{
	/* hiredis does not write to it, its prototype only forgot to say so. */
	const char **unsaid = (const char **)(uintptr_t)argv;
	bool secret = is_command(argv, lens, "AUTH");
	char *text = NULL;
	long long len = redisFormatCommandArgv(&text, argc, unsaid, lens);
	int status;

	if (len < 0)
		return sp_err_set(err, -ENOMEM, "format '%s'", name);
	if (len > (long long)SP_REDIS_COMMAND_MAX)
		status = sp_err_set(err, -EMSGSIZE, "'%s' is longer than %u bytes", name,
				    SP_REDIS_COMMAND_MAX);
	else
		status = sp_buf_append(&io->out, text, (size_t)len);
	if (status == -E2BIG)
		status = sp_err_set(err, -EBUSY, "'%s': too many bytes wait for the server", name);
	else if (status == -ENOMEM)
		(void)sp_err_set(err, status, "format '%s'", name);
	if (secret)
		explicit_bzero(text, (size_t)len);
	redisFreeCommand(text);
	io->secret |= secret;
	return status;
}

int sp_redis_io_send(struct sp_redis_io *io, int argc, const char *const *argv, const size_t *lens,
		     int64_t timeout_ms, size_t replies, sp_redis_cb *cb, void *arg,
		     struct sp_err *err)
{
	struct sp_redis_request *request;
	int status = sp_redis_command_check(argc, argv, lens, err);

	if (status < 0)
		return status;
	if (io->state != SP_REDIS_IO_OPEN)
		return sp_err_set(err, -ENOTCONN, "send");
	request = calloc(1, sizeof(*request));
	if (!request || sp_heap_reserve(&io->due, io->pending + 1) < 0) {
		free(request);
		return sp_err_set(err, -ENOMEM, "send");
	}
	sp_redis_command_name(argc, argv, lens, request->name);
	status = format(io, argc, argv, lens, request->name, err);
	if (status < 0) {
		free(request);
		return status;
	}
	request->cb = cb;
	request->arg = arg;
	request->replies = replies;
	request->timeout_ms = timeout_ms;
	request->end = io->handed + io->out.len;
	sp_heap_node_init(&request->due);
	sp_heap_set(&io->due, &request->due, sp_redis_now_ms() + timeout_ms);
	sp_list_append(&io->requests, &request->link);
	io->pending++;
	sp_redis_io_arm(io, request->due.key);
	sp_redis_io_kick(io);
	return 0;
}

/* ---- in ---- */

static void protocol_fault(struct sp_redis_io *io, const char *what, const redisReply *reply)
{
	char words[160];
	struct sp_err err = {0};

	if (reply->type == REDIS_REPLY_ERROR)
		(void)sp_err_code(&err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -EPROTO,
				  "the server says: %s",
				  sp_log_quote(reply->str, words, sizeof(words)));
	else
		(void)sp_err_code(&err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -EPROTO, "%s", what);
	sp_redis_io_fail(io, &err);
}

static bool is_push(const struct sp_redis_io *io, const redisReply *reply)
{
	return io->pushed && reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
	       sp_redis_is_word(reply->element[0], "message");
}

static void answer(struct sp_redis_io *io, struct sp_redis_request *request,
		   const redisReply *reply)
{
	bool refused = reply->type == REDIS_REPLY_ERROR;
	struct sp_err err = {0};

	sp_list_remove(&request->link);
	sp_heap_remove(&io->due, &request->due);
	io->pending--;
	if (refused)
		(void)sp_redis_error_set(&err, request->name, reply);
	request->cb(request->arg, SP_REDIS_REPLIED, reply, refused ? &err : NULL);
	free(request);
	if (refused && io->events->refused && !io->disowned)
		io->events->refused(io->arg, reply);
	if (io->pending == 0 && io->events->drained && !io->disowned)
		io->events->drained(io->arg);
}

static void dispatch(struct sp_redis_io *io, const redisReply *reply)
{
	struct sp_redis_request *request =
		SP_LIST_FIRST(&io->requests, struct sp_redis_request, link);

	if (is_push(io, reply))
		io->events->pushed(io->arg, reply);
	else if (!request)
		protocol_fault(io, "an answer to nothing", reply);
	else if (request->replies > 1 && reply->type != REDIS_REPLY_ERROR)
		request->replies--;
	else
		answer(io, request, reply);
}

static int take_in(struct sp_redis_io *io, const char *data, size_t len, struct sp_err *err)
{
	int status = sp_redis_decoder_feed(&io->decoder, data, len, err);

	if (status < 0)
		return status;
	for (;;) {
		redisReply *reply;

		status = sp_redis_decoder_next(&io->decoder, &reply, err);
		if (status <= 0)
			return status;
		dispatch(io, reply);
		freeReplyObject(reply);
		/* A callback may have closed us: the rest is nobody's. */
		if (io->state == SP_REDIS_IO_ENDING)
			return 0;
	}
}

static int take_in_tls(struct sp_redis_io *io, const char *data, size_t len, struct sp_err *err)
{
	int status;

	sp_redis_tls_feed(io->tls, data, len);
	if (io->state == SP_REDIS_IO_HANDSHAKE) {
		status = sp_redis_io_shake_hands(io, err);
		if (status < 0)
			return status == -EAGAIN ? 0 : status;
	}
	while (io->state == SP_REDIS_IO_OPEN) {
		ssize_t got = sp_redis_tls_read(io->tls, io->plain, sizeof(io->plain), err);

		if (got == -EAGAIN)
			break;
		if (got == 0)
			return sp_err_code(err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE, -ECONNRESET,
					   "the server closed the connection");
		if (got < 0)
			return (int)got;
		status = take_in(io, io->plain, (size_t)got, err);
		if (status < 0)
			return status;
	}
	/* Answers that TLS itself has to give (alerts, key updates). */
	if (io->state != SP_REDIS_IO_ENDING && sp_redis_tls_out(io->tls)->len > 0)
		sp_redis_io_kick(io);
	return 0;
}

void sp_redis_io_on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
	struct sp_redis_io *io = SP_CONTAINER_OF(handle, struct sp_redis_socket, uv.handle)->io;

	SP_UNUSED(suggested);
	*ret = uv_buf_init(io->chunk, sizeof(io->chunk));
}

void sp_redis_io_on_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *chunk)
{
	struct sp_redis_io *io = SP_CONTAINER_OF(stream, struct sp_redis_socket, uv.stream)->io;
	struct sp_err err = {0};
	int status;

	if (io->state == SP_REDIS_IO_ENDING || got == 0)
		return;
	if (got < 0) {
		if (got == UV_EOF)
			status = sp_err_code(&err, SP_CODE_POOL_STATE_STORE_UNAVAILABLE,
					     -ECONNRESET, "the server closed the connection");
		else
			status = sp_err_set(&err, (int)got, "read");
	} else {
		io->heard_ms = sp_redis_now_ms();
		status = io->tls ? take_in_tls(io, chunk->base, (size_t)got, &err)
				 : take_in(io, chunk->base, (size_t)got, &err);
	}
	if (status < 0)
		sp_redis_io_fail(io, &err);
}

/* ---- looking at it ---- */

bool sp_redis_io_is_open(const struct sp_redis_io *io)
{
	return io->state == SP_REDIS_IO_OPEN;
}

size_t sp_redis_io_pending(const struct sp_redis_io *io)
{
	return io->pending;
}

int64_t sp_redis_io_heard_ms(const struct sp_redis_io *io)
{
	return io->heard_ms;
}

void sp_redis_io_set_pushed(struct sp_redis_io *io)
{
	io->pushed = true;
}

void sp_redis_io_fail_later(struct sp_redis_io *io, const struct sp_err *why)
{
	if (io->state == SP_REDIS_IO_ENDING)
		return;
	io->early = *why;
	sp_redis_io_kick(io);
}
