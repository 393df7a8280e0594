/*
 * A real redis-server (or Sentinel) inside a test: its own process, directory and socket, ended
 *with the test whatever happens. And the test's own loop, which a wait drives until a condition
 *holds.
 *
 *	struct redis_server server;                    struct redis_loop at;
 *	redis_server_start(&server, NULL);             redis_loop_init(&at);
 *	redis_ask(&server, NULL, "SET", "k", "v");     REDIS_WAIT(&at, condition);
 *	redis_server_stop(&server);                    redis_loop_done(&at);
 *
 * A test without redis-server is skipped (and fails with SP_TESTS_MUST_RUN=1).
 */
#ifndef SP_TESTS_REDIS_FIXTURE_H
#define SP_TESTS_REDIS_FIXTURE_H

#include "redis/reply.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#define REDIS_WAIT_MS  20000
#define REDIS_ARGS_MAX 32

#ifndef REDIS_SERVER_PROGRAM
#define REDIS_SERVER_PROGRAM "/usr/bin/redis-server"
#endif

/* ---- a server ---- */

struct redis_server {
	pid_t pid; /* 0: not running */
	char dir[64];
	char socket_path[96];
	char url[112]; /* unix://… */
	int port;      /* 0: Unix socket only */
	bool sentinel;
	char *args[REDIS_ARGS_MAX];
	size_t arg_count;
};

static inline int64_t redis_now_ms(void)
{
	return (int64_t)(uv_hrtime() / 1000000);
}

/* A port that was free a moment ago. */
static inline int redis_free_port(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	cr_assert(fd >= 0);
	cr_assert(bind(fd, (struct sockaddr *)&address, len) == 0);
	cr_assert(getsockname(fd, (struct sockaddr *)&address, &len) == 0);
	close(fd);
	return ntohs(address.sin_port);
}

static inline void redis_add_arg(struct redis_server *server, const char *text)
{
	cr_assert(server->arg_count < REDIS_ARGS_MAX - 1);
	server->args[server->arg_count] = strdup(text);
	cr_assert_not_null(server->args[server->arg_count]);
	server->arg_count++;
}

/* Connected and blocking, or -1. */
static inline int redis_server_connect(const struct redis_server *server)
{
	struct sockaddr_un local = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)snprintf(local.sun_path, sizeof(local.sun_path), "%s", server->socket_path);
	if (connect(fd, (struct sockaddr *)&local, sizeof(local)) == 0)
		return fd;
	close(fd);
	return -1;
}

/* The next reply on that descriptor, NULL when it ends. To be freed with freeReplyObject(). */
static inline redisReply *redis_read_reply(int fd)
{
	redisReader *reader = redisReaderCreate();
	void *reply = NULL;
	char byte;

	/* One byte at a time: what follows the reply stays in the socket. */
	while (!reply && read(fd, &byte, 1) == 1) {
		cr_assert(redisReaderFeed(reader, &byte, 1) == REDIS_OK);
		cr_assert(redisReaderGetReply(reader, &reply) == REDIS_OK);
	}
	redisReaderFree(reader);
	return reply;
}

static inline redisReply *redis_ask_argv(const struct redis_server *server, const char *password,
					 int argc, const char **argv)
{
	int fd = redis_server_connect(server);
	redisReply *reply = NULL;
	char *text;
	long long len;

	if (fd < 0)
		return NULL;
	if (password) {
		len = redisFormatCommand(&text, "AUTH %s", password);
		if (write(fd, text, (size_t)len) == len)
			freeReplyObject(redis_read_reply(fd));
		free(text);
	}
	len = redisFormatCommandArgv(&text, argc, argv, NULL);
	if (write(fd, text, (size_t)len) == len)
		reply = redis_read_reply(fd);
	free(text);
	close(fd);
	return reply;
}

/* One command on a connection of its own. NULL: no answer. */
#define redis_ask(server, password, ...)                                              \
	redis_ask_argv(server, password,                                              \
		       (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)), \
		       (const char *[]){__VA_ARGS__})

/* The same where the answer must be OK (or any status). */
#define redis_must(server, ...)                                                           \
	do {                                                                              \
		redisReply *must_reply = redis_ask(server, NULL, __VA_ARGS__);            \
		cr_assert(must_reply && must_reply->type != REDIS_REPLY_ERROR, "%s",      \
			  must_reply && must_reply->str ? must_reply->str : "no answer"); \
		freeReplyObject(must_reply);                                              \
	} while (0)

static inline void redis_server_wait(struct redis_server *server)
{
	int64_t end_ms = redis_now_ms() + REDIS_WAIT_MS;
	redisReply *reply = NULL;

	while (!reply && redis_now_ms() < end_ms) {
		reply = redis_ask(server, NULL, "PING");
		if (!reply)
			(void)poll(NULL, 0, 5);
	}
	cr_assert_not_null(reply, "redis-server in '%s' does not answer", server->dir);
	freeReplyObject(reply);
}

/* (Again) with the arguments it was started with. */
static inline void redis_server_run(struct redis_server *server)
{
	pid_t parent = getpid();

	server->args[server->arg_count] = NULL;
	server->pid = fork();
	cr_assert(server->pid >= 0);
	if (server->pid == 0) {
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);

		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent || dup2(null, 0) < 0 || dup2(null, 1) < 0 ||
		    dup2(null, 2) < 0)
			_exit(126);
		execv(server->args[0], server->args);
		_exit(127);
	}
	redis_server_wait(server);
}

static inline bool redis_server_possible(void)
{
	const char *must = getenv("SP_TESTS_MUST_RUN");

	if (access(REDIS_SERVER_PROGRAM, X_OK) == 0)
		return true;
	cr_assert(!must || strcmp(must, "1") != 0, "%s is missing", REDIS_SERVER_PROGRAM);
	cr_skip_test("%s is missing", REDIS_SERVER_PROGRAM);
	return false;
}

static inline void redis_server_prepare(struct redis_server *server)
{
	*server = (struct redis_server){0};
	(void)redis_server_possible();
	(void)snprintf(server->dir, sizeof(server->dir), "/tmp/sp-redis-test-XXXXXX");
	cr_assert_not_null(mkdtemp(server->dir));
	(void)snprintf(server->socket_path, sizeof(server->socket_path), "%s/redis.sock",
		       server->dir);
	(void)snprintf(server->url, sizeof(server->url), "unix://%s", server->socket_path);
}

/* extra: further arguments ("--requirepass", "x", NULL), or NULL. Listens on a Unix socket only;
 * server->port set before by redis_server_prepare() users makes it listen on 127.0.0.1 too. */
static inline void redis_server_launch(struct redis_server *server, const char *const *extra)
{
	char port[16];

	(void)snprintf(port, sizeof(port), "%d", server->port);
	const char *const standard[] = {
		REDIS_SERVER_PROGRAM,
		"--port",
		port,
		"--unixsocket",
		server->socket_path,
		"--save",
		"",
		"--appendonly",
		"no",
		"--dir",
		server->dir,
		"--logfile",
		"server.log",
	};

	for (size_t i = 0; i < sizeof(standard) / sizeof(standard[0]); i++)
		redis_add_arg(server, standard[i]);
	for (; extra && *extra; extra++)
		redis_add_arg(server, *extra);
	redis_server_run(server);
}

static inline void redis_server_start(struct redis_server *server, const char *const *extra)
{
	redis_server_prepare(server);
	redis_server_launch(server, extra);
}

/* On 127.0.0.1 and ::1 as well. */
static inline void redis_server_start_tcp(struct redis_server *server, const char *const *extra)
{
	redis_server_prepare(server);
	server->port = redis_free_port();
	redis_server_launch(server, extra);
}

/* SIGKILL, SIGTERM: and gone when this returns. SIGSTOP, SIGCONT: only sent. */
static inline void redis_server_signal(struct redis_server *server, int number)
{
	if (server->pid <= 0)
		return;
	cr_assert(kill(server->pid, number) == 0);
	if (number == SIGSTOP) {
		cr_assert(waitpid(server->pid, NULL, WUNTRACED) == server->pid);
	} else if (number == SIGKILL || number == SIGTERM) {
		cr_assert(waitpid(server->pid, NULL, 0) == server->pid);
		server->pid = 0;
	}
}

static inline void redis_remove_dir(const char *dir)
{
	pid_t pid = fork();

	if (pid == 0) {
		execl("/bin/rm", "rm", "-rf", dir, (char *)NULL);
		_exit(127);
	}
	cr_assert(waitpid(pid, NULL, 0) == pid);
}

static inline void redis_server_stop(struct redis_server *server)
{
	redis_server_signal(server, SIGKILL);
	for (size_t i = 0; i < server->arg_count; i++)
		free(server->args[i]);
	redis_remove_dir(server->dir);
}

/* ---- a loop ---- */

struct redis_loop {
	uv_loop_t loop;
	uv_timer_t beat; /* so that a wait looks at its condition now and then */
};

static inline void redis_on_beat(uv_timer_t *timer)
{
	(void)timer;
}

static inline void redis_loop_init(struct redis_loop *at)
{
	/* As every program that uses libuv's streams must. */
	(void)signal(SIGPIPE, SIG_IGN);
	cr_assert(uv_loop_init(&at->loop) == 0);
	cr_assert(uv_timer_init(&at->loop, &at->beat) == 0);
	cr_assert(uv_timer_start(&at->beat, redis_on_beat, 5, 5) == 0);
}

/* Everything must have been closed: nothing of the test is left in the loop. */
static inline void redis_loop_done(struct redis_loop *at)
{
	uv_close((uv_handle_t *)&at->beat, NULL);
	while (uv_run(&at->loop, UV_RUN_DEFAULT) != 0)
		;
	cr_assert(uv_loop_close(&at->loop) == 0);
}

#define REDIS_WAIT_FOR(at, ms, condition)                                     \
	do {                                                                  \
		int64_t wait_end_ms = redis_now_ms() + (ms);                  \
		while (!(condition) && redis_now_ms() < wait_end_ms)          \
			(void)uv_run(&(at)->loop, UV_RUN_ONCE);               \
		cr_assert(condition, "%s, for %d ms", #condition, (int)(ms)); \
	} while (0)
#define REDIS_WAIT(at, condition) REDIS_WAIT_FOR(at, REDIS_WAIT_MS, condition)

#endif
