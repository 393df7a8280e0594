/*
 * The measuring client of tests/bench/redis.py: closed loops against one Redis, nothing in between.
 *
 *	redis_load SOCKET CLIENTS ROUNDS OPS META     one line per operation: LABEL NANOSECONDS
 *
 * CLIENTS connections each send the next command when they have the answer to the one before. The
 * three kinds of command take turns, OPS of each in a round, so that the machine's drift hits all
 * alike: PING, a Lua script on one key (what any scripted acquire costs at least), and
 * sandpool_v1_acquire with a new lease each time. A line "LABEL.span NANOSECONDS" gives what a
 * round of one kind took in all. An acquire that is answered by anything but OK ends the program:
 * whoever starts it lists enough entries before.
 *
 * Trusts Redis to speak RESP2; sizes are bounded by the buffer.
 */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define CLIENTS_MAX 256
#define BUFFER      8192
#define SCRIPT      "redis.call('HINCRBY', KEYS[1], 'n', 1) return redis.call('HGET', KEYS[1], 'n')"

enum kind { KIND_PING, KIND_SCRIPT, KIND_ACQUIRE, KIND_COUNT };

static const char *const labels[KIND_COUNT] = {"ping", "script", "acquire"};

struct client {
	int fd;
	size_t have;
	int64_t sent_ns;
	char buffer[BUFFER];
};

static struct client clients[CLIENTS_MAX];
static char script_sha[64];
static const char *meta;

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "redis_load: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Bytes of the reply at `text`, 0 if it is not complete. */
static size_t reply_size(const char *text, size_t have)
{
	const char *line_end = memmem(text, have, "\r\n", 2);
	size_t head;
	long count;

	if (!line_end)
		return 0;
	head = (size_t)(line_end - text) + 2;
	count = strtol(text + 1, NULL, 10);
	if (text[0] == '$')
		return count < 0                         ? head
		       : have < head + (size_t)count + 2 ? 0
							 : head + (size_t)count + 2;
	if (text[0] != '*')
		return head;
	for (long i = 0; i < count; i++) {
		size_t part = reply_size(text + head, have - head);

		if (part == 0)
			return 0;
		head += part;
	}
	return head;
}

static size_t command(char *to, size_t room, int argc, const char *const *argv)
{
	size_t at = (size_t)snprintf(to, room, "*%d\r\n", argc);

	for (int i = 0; i < argc; i++)
		at += (size_t)snprintf(to + at, room - at, "$%zu\r\n%s\r\n", strlen(argv[i]),
				       argv[i]);
	return at;
}

static void send_all(int fd, const char *data, size_t size)
{
	while (size > 0) {
		ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);

		if (sent < 0)
			die("send");
		data += sent;
		size -= (size_t)sent;
	}
}

static void random_lease(char lease[static 65])
{
	static uint64_t start[3], serial;

	if (serial == 0 && getrandom(start, sizeof(start), 0) != sizeof(start))
		die("getrandom");
	snprintf(lease, 65, "%016llx%016llx%016llx%016llx", (unsigned long long)start[0],
		 (unsigned long long)start[1], (unsigned long long)start[2],
		 (unsigned long long)++serial);
}

static void ask(struct client *client, enum kind kind)
{
	char lease[65], text[BUFFER];
	size_t size = 0;

	switch (kind) {
	case KIND_PING:
		size = command(text, sizeof(text), 1, (const char *const[]){"PING"});
		break;
	case KIND_SCRIPT:
		size = command(text, sizeof(text), 4,
			       (const char *const[]){"EVALSHA", script_sha, "1", "bench:one"});
		break;
	case KIND_ACQUIRE:
		random_lease(lease);
		size = command(text, sizeof(text), 11,
			       (const char *const[]){"FCALL", "sandpool_v1_acquire", "1", meta,
						     lease, "fail_fast", "-1", "0", "", "", ""});
		break;
	case KIND_COUNT:
		break;
	}
	client->sent_ns = now_ns();
	send_all(client->fd, text, size);
}

/* The answer of this client if it is complete now. */
static bool answered(struct client *client, enum kind kind)
{
	ssize_t got = recv(client->fd, client->buffer + client->have, BUFFER - client->have, 0);
	size_t size;

	if (got <= 0)
		die("recv");
	client->have += (size_t)got;
	size = reply_size(client->buffer, client->have);
	if (size == 0)
		return false;
	if (client->buffer[0] == '-' ||
	    (kind == KIND_ACQUIRE && !memmem(client->buffer, size, "$2\r\nOK\r\n", 8) &&
	     !memmem(client->buffer, size, "+OK\r\n", 5))) {
		fprintf(stderr, "redis_load: %s: answered %.*s\n", labels[kind], (int)size,
			client->buffer);
		exit(1);
	}
	client->have = 0;
	return true;
}

/* `ops` of one kind by all clients together. */
static void burst(int count, enum kind kind, long ops)
{
	struct pollfd polls[CLIENTS_MAX];
	int64_t begin = now_ns();
	long asked = 0, done = 0;

	for (int i = 0; i < count; i++) {
		polls[i] = (struct pollfd){.fd = clients[i].fd, .events = POLLIN};
		if (asked < ops) {
			ask(&clients[i], kind);
			asked++;
		}
	}
	while (done < ops) {
		if (poll(polls, (nfds_t)count, 10000) <= 0)
			die("poll");
		for (int i = 0; i < count; i++) {
			if (!(polls[i].revents & (POLLIN | POLLHUP)) ||
			    !answered(&clients[i], kind))
				continue;
			printf("%s %lld\n", labels[kind],
			       (long long)(now_ns() - clients[i].sent_ns));
			done++;
			if (asked < ops) {
				ask(&clients[i], kind);
				asked++;
			}
		}
	}
	printf("%s.span %lld\n", labels[kind], (long long)(now_ns() - begin));
}

static void connect_client(struct client *client, const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	if (strlen(path) >= sizeof(address.sun_path)) {
		errno = ENAMETOOLONG;
		die(path);
	}
	memcpy(address.sun_path, path, strlen(path) + 1);
	client->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (client->fd < 0 ||
	    connect(client->fd, (struct sockaddr *)&address, sizeof(address)) != 0)
		die(path);
}

static void load_script(void)
{
	char text[BUFFER];
	size_t size =
		command(text, sizeof(text), 3, (const char *const[]){"SCRIPT", "LOAD", SCRIPT});
	ssize_t got;

	send_all(clients[0].fd, text, size);
	got = recv(clients[0].fd, text, sizeof(text) - 1, 0);
	if (got < 46 || memcmp(text, "$40\r\n", 5) != 0) {
		errno = EPROTO;
		die("SCRIPT LOAD");
	}
	memcpy(script_sha, text + 5, 40);
}

int main(int argc, char **argv)
{
	long count, rounds, ops;

	if (argc != 6) {
		fprintf(stderr, "usage: redis_load SOCKET CLIENTS ROUNDS OPS META\n");
		return 2;
	}
	count = strtol(argv[2], NULL, 10);
	rounds = strtol(argv[3], NULL, 10);
	ops = strtol(argv[4], NULL, 10);
	meta = argv[5];
	if (count < 1 || count > CLIENTS_MAX || rounds < 1 || ops < 1) {
		fprintf(stderr, "redis_load: 1 to %d clients, at least one round and operation\n",
			CLIENTS_MAX);
		return 2;
	}
	for (long i = 0; i < count; i++)
		connect_client(&clients[i], argv[1]);
	load_script();
	for (long round = 0; round < rounds; round++)
		for (int turn = 0; turn < KIND_COUNT; turn++)
			burst((int)count, (enum kind)((round + turn) % KIND_COUNT), ops);
	return fflush(stdout) == 0 ? 0 : 1;
}
