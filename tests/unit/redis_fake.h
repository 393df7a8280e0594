/*
 * A server that says what a test wants, on the test's own loop: it reads commands, greets like a
 * master, and answers the rest from a script. What real servers never do is tested with it.
 */
#ifndef SP_TESTS_REDIS_FAKE_H
#define SP_TESTS_REDIS_FAKE_H

#include "redis_fixture.h"

struct fake;
struct fake_client;

/* What to answer to a command; len 0: nothing. Falls back to the greeting when it returns false. */
typedef bool fake_script(struct fake *fake, struct fake_client *client, const redisReply *command);

struct fake {
	union {
		uv_stream_t stream;
		uv_pipe_t pipe;
		uv_tcp_t tcp;
	} listener;

	bool open;
	uv_loop_t *loop;
	char dir[64];
	char path[96];
	char url[112];
	int port;
	fake_script *script;
	void *arg;
	bool deaf;         /* accepts, and reads nothing */
	const char *flood; /* written again and again after the script's answer */
	size_t flood_len;
	struct fake_client *last; /* the newest */
	unsigned int connections; /* so far */
	unsigned int clients;     /* now */
	unsigned int commands;    /* beyond the greeting */
	int64_t connected_ms[256];
};

struct fake_client {
	union {
		uv_stream_t stream;
		uv_pipe_t pipe;
		uv_tcp_t tcp;
	} socket;
	struct fake *fake;
	redisReader *reader;
	bool flooding;
	char chunk[65536];
};

struct fake_write {
	uv_write_t request;
	struct fake_client *client;
	char data[];
};

static inline void fake_on_client_closed(uv_handle_t *handle)
{
	struct fake_client *client = handle->data;

	client->fake->clients--;
	redisReaderFree(client->reader);
	free(client);
}

static inline void fake_hang_up(struct fake_client *client)
{
	if (!uv_is_closing((uv_handle_t *)&client->socket))
		uv_close((uv_handle_t *)&client->socket, fake_on_client_closed);
}

static inline void fake_say(struct fake_client *client, const char *data, size_t len);

static inline void fake_on_written(uv_write_t *request, int status)
{
	struct fake_write *write = request->data;
	struct fake_client *client = write->client;

	free(write);
	if (status < 0)
		fake_hang_up(client);
	else if (client->flooding && !uv_is_closing((uv_handle_t *)&client->socket))
		fake_say(client, client->fake->flood, client->fake->flood_len);
}

static inline void fake_say(struct fake_client *client, const char *data, size_t len)
{
	struct fake_write *write = malloc(sizeof(*write) + len);
	uv_buf_t chunk;

	cr_assert_not_null(write);
	write->client = client;
	write->request.data = write;
	memcpy(write->data, data, len);
	chunk = uv_buf_init(write->data, (unsigned int)len);
	cr_assert(uv_write(&write->request, &client->socket.stream, &chunk, 1, fake_on_written) ==
		  0);
}

static inline void fake_say_text(struct fake_client *client, const char *text)
{
	fake_say(client, text, strlen(text));
}

static inline bool fake_is(const redisReply *command, const char *name)
{
	return strcasecmp(command->element[0]->str, name) == 0;
}

static inline bool fake_greet(struct fake_client *client, const redisReply *command)
{
	if (fake_is(command, "PING"))
		fake_say_text(client, "+PONG\r\n");
	else if (fake_is(command, "ROLE"))
		fake_say_text(client, "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n");
	else if (fake_is(command, "AUTH") || fake_is(command, "SELECT") ||
		 fake_is(command, "CLIENT"))
		fake_say_text(client, "+OK\r\n");
	else
		return false;
	return true;
}

static inline void fake_on_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *chunk)
{
	struct fake_client *client = stream->data;
	struct fake *fake = client->fake;
	void *command = NULL;

	if (got < 0) {
		fake_hang_up(client);
		return;
	}
	cr_assert(redisReaderFeed(client->reader, chunk->base, (size_t)got) == REDIS_OK);
	while (redisReaderGetReply(client->reader, &command) == REDIS_OK && command) {
		if (!uv_is_closing((uv_handle_t *)&client->socket) &&
		    (!fake->script || !fake->script(fake, client, command)) &&
		    !fake_greet(client, command))
			fake_say_text(client, "-ERR unknown command\r\n");
		freeReplyObject(command);
		command = NULL;
	}
}

static inline void fake_on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
	struct fake_client *client = handle->data;

	(void)suggested;
	*ret = uv_buf_init(client->chunk, sizeof(client->chunk));
}

static inline void fake_on_connection(uv_stream_t *stream, int status)
{
	struct fake *fake = stream->data;
	struct fake_client *client = calloc(1, sizeof(*client));

	cr_assert(client && status == 0);
	client->fake = fake;
	client->reader = redisReaderCreate();
	if (fake->port)
		cr_assert(uv_tcp_init(fake->loop, &client->socket.tcp) == 0);
	else
		cr_assert(uv_pipe_init(fake->loop, &client->socket.pipe, 0) == 0);
	client->socket.stream.data = client;
	fake->connected_ms[fake->connections % 256] = redis_now_ms();
	fake->connections++;
	fake->last = client;
	fake->clients++;
	cr_assert(uv_accept(stream, &client->socket.stream) == 0);
	if (!fake->deaf)
		cr_assert(uv_read_start(&client->socket.stream, fake_on_alloc, fake_on_read) == 0);
}

/* tcp: on 127.0.0.1, else on a Unix socket. */
static inline void fake_start(struct fake *fake, struct redis_loop *at, bool tcp,
			      fake_script *script, void *arg)
{
	struct sockaddr_in address;

	*fake = (struct fake){.loop = &at->loop, .script = script, .arg = arg, .open = true};
	(void)snprintf(fake->dir, sizeof(fake->dir), "/tmp/sp-redis-test-XXXXXX");
	cr_assert_not_null(mkdtemp(fake->dir));
	(void)snprintf(fake->path, sizeof(fake->path), "%s/fake.sock", fake->dir);
	if (tcp) {
		fake->port = redis_free_port();
		cr_assert(uv_tcp_init(fake->loop, &fake->listener.tcp) == 0);
		cr_assert(uv_ip4_addr("127.0.0.1", fake->port, &address) == 0);
		cr_assert(uv_tcp_bind(&fake->listener.tcp, (struct sockaddr *)&address, 0) == 0);
		(void)snprintf(fake->url, sizeof(fake->url), "redis://127.0.0.1:%d", fake->port);
	} else {
		cr_assert(uv_pipe_init(fake->loop, &fake->listener.pipe, 0) == 0);
		cr_assert(uv_pipe_bind(&fake->listener.pipe, fake->path) == 0);
		(void)snprintf(fake->url, sizeof(fake->url), "unix://%s", fake->path);
	}
	fake->listener.stream.data = fake;
	cr_assert(uv_listen(&fake->listener.stream, 512, fake_on_connection) == 0);
}

/* Its clients must have closed their connections. */
static inline void fake_stop(struct fake *fake, struct redis_loop *at)
{
	REDIS_WAIT(at, fake->clients == 0);
	uv_close((uv_handle_t *)&fake->listener, NULL);
	redis_remove_dir(fake->dir);
}

#endif
