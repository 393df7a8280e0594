/*
 * How the client asks: FCALL over a few connections that its threads share, HTTP over a connection
 * of its own for each request, and the history of both.
 *
 * Statuses are those of history.py: the answer's own word; UNREACHABLE where nothing was sent,
 * TIMED_OUT where nothing came in time, UNKNOWN where the connection broke in between. Answers are
 * trusted to be short; what is not is cut off and then no JSON.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <jansson.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/cluster/client.h"

#define ARGUMENTS_MAX 12
#define SPARE_MAX     256
#define REPLY_SIZE    16384

static int history_fd = -1;

double ask_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* splitmix64: the same attempt of the same seed draws the same numbers on whatever thread. */
uint64_t ask_random(struct attempt *attempt)
{
	uint64_t z = attempt->random += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* ---- the history ---- */

struct line {
	char text[2048];
	size_t size;
};

static void __attribute__((format(printf, 2, 3))) add(struct line *line, const char *format, ...)
{
	va_list list;
	int size;

	va_start(list, format);
	size = vsnprintf(line->text + line->size, sizeof(line->text) - line->size, format, list);
	va_end(list);
	if (size < 0 || (size_t)size >= sizeof(line->text) - line->size)
		abort(); /* a record that does not fit would be a lie */
	line->size += (size_t)size;
}

static void add_string(struct line *line, const char *name, const char *value)
{
	if (!value || !value[0])
		return;
	add(line, ",\"%s\":\"", name);
	for (const char *c = value; *c; c++)
		add(line, "%c", *c < ' ' || *c > '~' || *c == '"' || *c == '\\' ? '?' : *c);
	add(line, "\"");
}

void ask_open_history(void)
{
	history_fd = open(options.history, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (history_fd < 0) {
		perror(options.history);
		exit(1);
	}
}

/* Whole lines in one write each: kill -9 leaves all that was said before. */
static void write_line(struct line *line)
{
	add(line, "}\n");
	if (write(history_fd, line->text, line->size) != (ssize_t)line->size) {
		perror("history");
		_exit(1);
	}
}

static void begin_line(struct line *line, const struct attempt *attempt, const char *phase)
{
	line->size = 0;
	add(line, "{\"t\":%.6f,\"phase\":\"%s\",\"client\":\"%s\",\"n\":%u", ask_now(), phase,
	    attempt->name, attempt->serial);
}

static void add_rejects(struct line *line, const char *reject)
{
	add(line, ",\"reject\":[");
	while (*reject) {
		size_t size = strcspn(reject, ",");

		add(line, "\"%.*s\"", (int)size, reject);
		reject += size;
		if (*reject)
			reject++, add(line, ",");
	}
	add(line, "]");
}

static void note_call(struct attempt *attempt, const struct question *question, int bound_ms)
{
	struct line line;

	attempt->serial++;
	begin_line(&line, attempt, "call");
	add(&line, ",\"at\":\"%s\",\"bound_s\":%.1f", options.at, bound_ms / 1000.0);
	if (attempt->serial == 1)
		add(&line, ",\"due\":%.6f", attempt->due);
	add_string(&line, "op", question->op);
	add_string(&line, "lease", question->lease);
	add_string(&line, "via", question->via);
	add_string(&line, "sandbox", question->sandbox);
	add_string(&line, "host", question->host);
	add_string(&line, "policy", question->policy);
	if (question->reject)
		add_rejects(&line, question->reject);
	if (question->ttl_ms)
		add(&line, ",\"ttl_ms\":%lld", (long long)question->ttl_ms);
	if (question->again)
		add(&line, ",\"again\":true");
	write_line(&line);
}

static void note_return(const struct attempt *attempt, const struct answer *answer)
{
	struct line line;

	begin_line(&line, attempt, "return");
	add_string(&line, "status", answer->status);
	add_string(&line, "message", answer->message);
	add_string(&line, "sandbox", answer->sandbox);
	add_string(&line, "host", answer->owner.name);
	if (answer->remaining_ms >= 0)
		add(&line, ",\"remaining_ms\":%lld", (long long)answer->remaining_ms);
	if (answer->has_output) {
		add_string(&line, "found", answer->found);
		add_string(&line, "reason", answer->reason);
	}
	if (answer->at_owner)
		add(&line, ",\"at_owner\":true");
	write_line(&line);
}

static void copy(char *to, size_t room, const char *from)
{
	snprintf(to, room, "%s", from ? from : "");
}

static void begin_answer(struct answer *answer)
{
	*answer = (struct answer){.remaining_ms = -1};
}

static void set_status(struct answer *answer, const char *status, const char *message)
{
	copy(answer->status, sizeof(answer->status), status);
	copy(answer->message, sizeof(answer->message), message);
}

static void set_broken(struct answer *answer, int error, bool sent)
{
	if (error == EAGAIN || error == ETIMEDOUT || error == EINPROGRESS)
		set_status(answer, "TIMED_OUT", "");
	else
		set_status(answer, sent ? "UNKNOWN" : "UNREACHABLE", strerror(error));
}

/* "tcp://10.77.0.1:7070" of a host that may be called so. */
static bool set_owner(struct answer *answer, const char *host, const char *endpoint)
{
	const char *start = endpoint ? strstr(endpoint, "://") : NULL;
	const char *colon = start ? strrchr(start + 3, ':') : NULL;
	struct place *owner = &answer->owner;

	if (!colon || (size_t)(colon - start - 3) >= sizeof(owner->address))
		return false;
	memcpy(owner->address, start + 3, (size_t)(colon - start - 3));
	owner->address[colon - start - 3] = '\0';
	owner->port = (uint16_t)strtoul(colon + 1, NULL, 10);
	copy(owner->name, sizeof(owner->name), host);
	return true;
}

/* ---- Redis ---- */

static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;
static redisContext *spare[SPARE_MAX];
static size_t spare_count;

static redisContext *take_connection(struct answer *answer)
{
	const struct timeval timeout = {.tv_sec = REDIS_TIMEOUT_MS / 1000,
					.tv_usec = REDIS_TIMEOUT_MS % 1000 * 1000};
	redisContext *redis = NULL;

	pthread_mutex_lock(&spare_lock);
	if (spare_count > 0)
		redis = spare[--spare_count];
	pthread_mutex_unlock(&spare_lock);
	if (redis)
		return redis;
	errno = 0;
	redis = redisConnectWithTimeout(options.redis.address, options.redis.port, timeout);
	if (redis && !redis->err && redisSetTimeout(redis, timeout) == REDIS_OK)
		return redis;
	set_broken(answer, errno ? errno : ENOMEM, false);
	redisFree(redis);
	return NULL;
}

static void give_connection(redisContext *redis)
{
	pthread_mutex_lock(&spare_lock);
	if (spare_count < SPARE_MAX) {
		spare[spare_count++] = redis;
		redis = NULL;
	}
	pthread_mutex_unlock(&spare_lock);
	if (redis)
		redisFree(redis);
}

/* One that broke is rarely the only one. */
static void drop_connections(redisContext *redis)
{
	redisContext *dropped[SPARE_MAX];
	size_t count;

	redisFree(redis);
	pthread_mutex_lock(&spare_lock);
	count = spare_count;
	memcpy(dropped, spare, count * sizeof(*spare));
	spare_count = 0;
	pthread_mutex_unlock(&spare_lock);
	for (size_t i = 0; i < count; i++)
		redisFree(dropped[i]);
}

static int command_of(const char **words, const char *function, const char *const *arguments)
{
	int count = 0;

	words[count++] = "FCALL";
	words[count++] = function;
	words[count++] = "1";
	words[count++] = options.meta;
	while (*arguments && count < ARGUMENTS_MAX)
		words[count++] = *arguments++;
	return count;
}

/* Redis' own refusals are statuses too, by their first word. */
static void set_refusal(struct answer *answer, const char *text)
{
	char word[sizeof(answer->status)];

	copy(word, sizeof(word), text);
	word[strcspn(word, " ")] = '\0';
	set_status(answer, strstr(text, "unction not found") ? "NO_FUNCTION" : word, text);
}

static const char *word_of(const redisReply *reply, size_t at)
{
	if (at >= reply->elements || reply->element[at]->type == REDIS_REPLY_INTEGER)
		return "";
	return reply->element[at]->str;
}

static int64_t number_of(const redisReply *reply, size_t at)
{
	const redisReply *element = reply->element[at];

	return element->type == REDIS_REPLY_INTEGER ? element->integer
						    : strtoll(element->str, NULL, 10);
}

/* OK, id, host, endpoint, end_ms, remaining_ms, time: or another word and why. */
static void set_reply(struct answer *answer, const redisReply *reply)
{
	if (reply->type == REDIS_REPLY_ERROR) {
		set_refusal(answer, reply->str);
		return;
	}
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0) {
		set_status(answer, "no answer of a function", reply->str);
		return;
	}
	set_status(answer, word_of(reply, 0), word_of(reply, 1));
	if (reply->elements < 7 || strcmp(answer->status, "OK") != 0)
		return;
	answer->message[0] = '\0';
	copy(answer->sandbox, sizeof(answer->sandbox), word_of(reply, 1));
	answer->remaining_ms = number_of(reply, 5);
	if (!set_owner(answer, word_of(reply, 2), word_of(reply, 3)))
		set_status(answer, "no endpoint", word_of(reply, 3));
}

void ask_redis(struct attempt *attempt, const struct question *question, const char *function,
	       const char *const *arguments, struct answer *ret_answer)
{
	const char *words[ARGUMENTS_MAX];
	int count = command_of(words, function, arguments);
	redisContext *redis;
	redisReply *reply;

	begin_answer(ret_answer);
	note_call(attempt, question, REDIS_TIMEOUT_MS);
	redis = take_connection(ret_answer);
	if (redis) {
		errno = 0;
		reply = redisCommandArgv(redis, count, words, NULL);
		if (reply) {
			set_reply(ret_answer, reply);
			freeReplyObject(reply);
			give_connection(redis);
		} else {
			set_broken(ret_answer, redis->err == REDIS_ERR_IO ? errno : ECONNRESET,
				   true);
			drop_connections(redis);
		}
	}
	note_return(attempt, ret_answer);
}

void ask_redis_and_hang_up(struct attempt *attempt, const struct question *question,
			   const char *function, const char *const *arguments)
{
	const char *words[ARGUMENTS_MAX];
	int count = command_of(words, function, arguments), done = 0;
	struct answer answer;
	redisContext *redis;

	begin_answer(&answer);
	note_call(attempt, question, REDIS_TIMEOUT_MS);
	redis = take_connection(&answer);
	if (redis) {
		redisAppendCommandArgv(redis, count, words, NULL);
		while (!done && redisBufferWrite(redis, &done) == REDIS_OK)
			continue;
		usleep((useconds_t)(ask_random(attempt) % 3000));
		set_status(&answer, "UNKNOWN", "thrown away");
		redisFree(redis);
	}
	note_return(attempt, &answer);
}

int64_t ask_redis_time_ms(void)
{
	struct answer answer;
	redisContext *redis = take_connection(&answer);
	redisReply *reply;
	int64_t time_ms = -1;

	if (!redis)
		return -1;
	reply = redisCommand(redis, "TIME");
	if (!reply) {
		drop_connections(redis);
		return -1;
	}
	if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2)
		time_ms = strtoll(reply->element[0]->str, NULL, 10) * 1000 +
			  strtoll(reply->element[1]->str, NULL, 10) / 1000;
	freeReplyObject(reply);
	give_connection(redis);
	return time_ms;
}

/* ---- hosts ---- */

static int wait_for(int fd, short events, int64_t deadline_ms)
{
	struct pollfd poll_fd = {.fd = fd, .events = events};

	for (;;) {
		int64_t left = deadline_ms - now_ms();
		int ready = left > 0 ? poll(&poll_fd, 1, (int)left) : 0;

		if (ready > 0)
			return 0;
		if (ready == 0)
			return -ETIMEDOUT;
		if (errno != EINTR)
			return -errno;
	}
}

static int connect_to(const struct place *place, int64_t deadline_ms)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(place->port)};
	int fd, error = 0, one = 1;
	socklen_t size = sizeof(error);

	if (inet_pton(AF_INET, place->address, &address.sin_addr) != 1)
		return -EINVAL;
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
		error = errno == EINPROGRESS ? -wait_for(fd, POLLOUT, deadline_ms) : errno;
		if (!error && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
			error = errno;
	}
	if (error) {
		close(fd);
		return -error;
	}
	return fd;
}

static int send_all(int fd, const char *data, size_t size, int64_t deadline_ms)
{
	while (size > 0) {
		ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);

		if (sent > 0) {
			data += sent;
			size -= (size_t)sent;
		} else if (errno == EAGAIN) {
			int r = wait_for(fd, POLLOUT, deadline_ms);

			if (r < 0)
				return r;
		} else if (errno != EINTR) {
			return -errno;
		}
	}
	return 0;
}

/* Where the body starts once all of it is there, NULL before. */
static const char *complete(const char *text, size_t size)
{
	const char *end = memmem(text, size, "\r\n\r\n", 4);
	const char *length = strcasestr(text, "\r\ncontent-length:");

	if (!end)
		return NULL;
	end += 4;
	if (!length || length > end)
		return end;
	return size - (size_t)(end - text) >= strtoul(length + 17, NULL, 10) ? end : NULL;
}

static int receive(int fd, char *text, int64_t deadline_ms, const char **ret_body)
{
	size_t size = 0;

	while (size < REPLY_SIZE - 1) {
		ssize_t got = recv(fd, text + size, REPLY_SIZE - 1 - size, 0);

		if (got == 0)
			return -ECONNRESET;
		if (got < 0 && errno == EAGAIN) {
			int r = wait_for(fd, POLLIN, deadline_ms);

			if (r < 0)
				return r;
		} else if (got < 0 && errno != EINTR) {
			return -errno;
		}
		if (got <= 0)
			continue;
		size += (size_t)got;
		text[size] = '\0';
		*ret_body = complete(text, size);
		if (*ret_body)
			return 0;
	}
	return -EMSGSIZE;
}

static int exchange(const struct http_request *request, char *reply, const char **ret_body,
		    bool *ret_sent)
{
	const char *body = request->body ? request->body : "";
	int64_t deadline_ms = now_ms() + HTTP_TIMEOUT_MS + request->takes_ms;
	char text[2048], token[HEX + 32] = "";
	int fd, size, r;

	*ret_sent = false;
	fd = connect_to(request->to, deadline_ms);
	if (fd < 0)
		return fd;
	*ret_sent = true;
	if (request->token)
		snprintf(token, sizeof(token), "X-Sandpool-Token: %s\r\n", request->token);
	size = snprintf(text, sizeof(text),
			"%s %s HTTP/1.1\r\nHost: sandpool\r\nAuthorization: Bearer %s\r\n"
			"%s%sContent-Length: %zu\r\nConnection: close\r\n\r\n%s",
			request->method, request->path, options.key, token,
			*body ? "Content-Type: application/json\r\n" : "", strlen(body), body);
	if (size < 0 || (size_t)size >= sizeof(text))
		abort();
	r = send_all(fd, text, (size_t)size, deadline_ms);
	if (r == 0)
		r = receive(fd, reply, deadline_ms, ret_body);
	close(fd);
	return r;
}

static const char *string_of(const json_t *object, const char *name)
{
	return json_string_value(json_object_get(object, name));
}

static void set_json(struct answer *answer, int code, const json_t *found,
		     const struct http_request *request)
{
	const json_t *remaining = json_object_get(found, "remaining_ms");
	char number[16];

	if (code >= 300) {
		snprintf(number, sizeof(number), "HTTP %d", code);
		set_status(answer, string_of(found, "code") ? string_of(found, "code") : number,
			   string_of(found, "message"));
		return;
	}
	set_status(answer, "OK", "");
	answer->at_owner = true;
	if (remaining)
		answer->remaining_ms = json_integer_value(remaining);
	if (string_of(found, "stdout")) {
		answer->has_output = true;
		copy(answer->found, sizeof(answer->found), string_of(found, "stdout"));
		answer->found[strcspn(answer->found, "\n")] = '\0';
		copy(answer->reason, sizeof(answer->reason),
		     string_of(json_object_get(found, "result"), "reason"));
	}
	copy(answer->sandbox, sizeof(answer->sandbox), string_of(found, "id"));
	if (!set_owner(answer, string_of(found, "host"), string_of(found, "endpoint")))
		answer->owner = *request->to;
}

void ask_host(struct attempt *attempt, const struct question *question,
	      const struct http_request *request, struct answer *ret_answer)
{
	char reply[REPLY_SIZE];
	const char *body;
	json_t *found;
	bool sent;
	int r;

	begin_answer(ret_answer);
	note_call(attempt, question, HTTP_TIMEOUT_MS + request->takes_ms);
	r = exchange(request, reply, &body, &sent);
	if (r < 0 || strncmp(reply, "HTTP/1.1 ", 9) != 0) {
		set_broken(ret_answer, r < 0 ? -r : EPROTO, sent);
	} else {
		found = json_loads(body, 0, NULL);
		set_json(ret_answer, (int)strtol(reply + 9, NULL, 10), found, request);
		json_decref(found);
	}
	note_return(attempt, ret_answer);
}
