/*
 * The measuring client of tests/bench/run.
 *
 *	bench commands ROUNDS GAP_US FILTER             whole processes: reads lines
 *LABEL<TAB>ARG<TAB>… bench api SOCKET POOL OPS ROUNDS GAP_US ARG…    kept connections; OPS: some of
 *s a r e bench acquire SOCKET POOL ROUNDS GAP_US         acquire + release; ROUNDS of acquire alone
 *	bench hold SOCKET POOL ROUNDS GAP_US            acquire alone, all released at the end
 *	bench kill PROCESSES                            the kernel's own
 *	bench release SOCKET ID TOKEN PID               DELETE until PID is dead
 *	bench churn SOCKET POOL SECONDS CLIENTS         acquire + release as fast as it goes
 *	bench rate SECONDS CLIENTS FILTER ARG…          runs of a command per second
 *	bench filter                                    a deny list as raw BPF, for bwrap --seccomp
 *9
 *
 * Everything that is compared is interleaved: one of each in turn, so that the machine's drift hits
 * all alike, and in random order, so that each comes as often after the one whose sandbox is being
 * replaced meanwhile. Times are CLOCK_MONOTONIC; output is "LABEL MIN P50 P90 P99 N" in
 * microseconds. GAP_US is slept between operations: an idle core makes everything two to three
 * times slower, so figures with different gaps must not be compared.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SERIES_MAX 32
#define ARGS_MAX   64
#define FILTER_FD  9
#define BUFFER     (1u << 17)

#define FRAME_START  1
#define FRAME_RESULT 69
#define FRAME_ERROR  70

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void gap(long us)
{
	struct timespec time = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};

	if (us > 0)
		nanosleep(&time, NULL);
}

/* ---- series of samples ---- */

struct series {
	char label[64];
	double *samples;
	size_t count;
	size_t room;
};

static void series_add(struct series *series, double us)
{
	if (series->count == series->room) {
		series->room = series->room ? series->room * 2 : 1024;
		series->samples = reallocarray(series->samples, series->room, sizeof(double));
		if (!series->samples)
			die("samples");
	}
	series->samples[series->count++] = us;
}

static int compare(const void *one, const void *two)
{
	double left = *(const double *)one;
	double right = *(const double *)two;

	return (left > right) - (left < right);
}

static void series_print(struct series *series)
{
	size_t n = series->count;

	if (n == 0)
		return;
	qsort(series->samples, n, sizeof(double), compare);
	printf("%s %.1f %.1f %.1f %.1f %zu\n", series->label, series->samples[0],
	       series->samples[n / 2], series->samples[n * 9 / 10], series->samples[n * 99 / 100],
	       n);
}

/* ---- processes ---- */

/* Run and reap, stdio on /dev/null, the filter on FILTER_FD if there is one. */
/* What a sandbox gives its programs, so that all find the same things to do. */
static char env_path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
static char env_home[] = "HOME=/";
static char env_lang[] = "LANG=C.UTF-8";
static char *const environment[] = {env_path, env_home, env_lang, NULL};

static void spawn_and_wait(char *const *argv, const char *filter)
{
	posix_spawn_file_actions_t actions;
	pid_t pid;
	int status;
	int error;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
	posix_spawn_file_actions_adddup2(&actions, 0, 1);
	if (filter)
		posix_spawn_file_actions_addopen(&actions, FILTER_FD, filter, O_RDONLY, 0);
	error = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environment);
	if (error) {
		errno = error;
		die(argv[0]);
	}
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		fprintf(stderr, "bench: '%s' failed with status 0x%x\n", argv[0],
			(unsigned int)status);
		exit(1);
	}
	posix_spawn_file_actions_destroy(&actions);
}

struct command {
	struct series series;
	char *argv[ARGS_MAX];
};

static size_t read_commands(struct command *commands)
{
	static char line[1 << 16];
	size_t count = 0;

	while (count < SERIES_MAX && fgets(line, sizeof(line), stdin)) {
		struct command *command = &commands[count];
		char *rest = strdup(line);
		char *word;
		size_t argc = 0;

		if (!rest)
			die("line");
		rest[strcspn(rest, "\n")] = '\0';
		word = strsep(&rest, "\t");
		snprintf(command->series.label, sizeof(command->series.label), "%s", word);
		while (argc < ARGS_MAX - 1 && (word = strsep(&rest, "\t")))
			command->argv[argc++] = word;
		if (argc)
			count++;
	}
	return count;
}

static int main_commands(long rounds, long gap_us, const char *filter)
{
	static struct command commands[SERIES_MAX];
	size_t count = read_commands(commands);

	if (strcmp(filter, "-") == 0)
		filter = NULL;
	for (long round = -2; round < rounds; round++) {
		for (size_t i = 0; i < count; i++) {
			struct command *command = &commands[(i + (size_t)(round + 2)) % count];
			double start = now_us();

			spawn_and_wait(command->argv, filter);
			if (round >= 0)
				series_add(&command->series, now_us() - start);
			gap(gap_us);
		}
	}
	for (size_t i = 0; i < count; i++)
		series_print(&commands[i].series);
	return 0;
}

/* ---- HTTP and frames on a kept connection ---- */

struct connection {
	int fd;
	size_t length;
	char data[BUFFER];
};

static void connection_open(struct connection *connection, const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	connection->length = 0;
	connection->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connection->fd < 0 ||
	    connect(connection->fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		die(path);
}

static void connection_send(struct connection *connection, const void *data, size_t length)
{
	if (send(connection->fd, data, length, MSG_NOSIGNAL) != (ssize_t)length)
		die("send");
}

static void connection_fill(struct connection *connection)
{
	ssize_t got = recv(connection->fd, connection->data + connection->length,
			   BUFFER - 1 - connection->length, 0);

	if (got <= 0) {
		fprintf(stderr, "bench: connection closed: %s\n",
			got < 0 ? strerror(errno) : "EOF");
		exit(1);
	}
	connection->length += (size_t)got;
	connection->data[connection->length] = '\0';
}

static void connection_drop(struct connection *connection, size_t length)
{
	connection->length -= length;
	memmove(connection->data, connection->data + length, connection->length + 1);
}

/* Read one response; returns its status. The body is copied to `body`. */
static int response(struct connection *connection, char *body, size_t size)
{
	const char *end;
	const char *field;
	size_t head;
	size_t length;
	int status;

	while (!connection->length || !(end = strstr(connection->data, "\r\n\r\n")))
		connection_fill(connection);
	head = (size_t)(end - connection->data) + 4;
	status = (int)strtol(connection->data + 9, NULL, 10);
	field = strcasestr(connection->data, "\r\nContent-Length:");
	length = field && field < end ? strtoul(field + 17, NULL, 10) : 0;
	while (connection->length < head + length)
		connection_fill(connection);
	snprintf(body, size, "%.*s", (int)length, connection->data + head);
	connection_drop(connection, head + length);
	return status;
}

static void json_string(const char *json, const char *name, char *value, size_t size)
{
	char key[64];
	const char *at;

	snprintf(key, sizeof(key), "\"%s\":", name);
	at = strstr(json, key);
	if (!at) {
		fprintf(stderr, "bench: no %s in %s\n", name, json);
		exit(1);
	}
	at += strlen(key);
	at += strspn(at, " \"");
	snprintf(value, size, "%.*s", (int)strcspn(at, "\""), at);
}

struct held {
	char id[128];
	char token[256];
};

static double acquire(struct connection *connection, const char *pool, struct held *held)
{
	static const char json[] = "{\"policy\":\"wait\",\"wait\":\"10s\"}";
	char text[1024], body[4096];
	int length = snprintf(text, sizeof(text),
			      "POST /v1/pools/%s/acquire HTTP/1.1\r\nHost: localhost\r\n"
			      "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
			      pool, sizeof(json) - 1, json);
	double start = now_us();
	double took;
	int status;

	connection_send(connection, text, (size_t)length);
	status = response(connection, body, sizeof(body));
	took = now_us() - start;
	if (status != 200) {
		fprintf(stderr, "bench: acquire: %d %s\n", status, body);
		exit(1);
	}
	json_string(body, "id", held->id, sizeof(held->id));
	json_string(body, "token", held->token, sizeof(held->token));
	return took;
}

static double release(struct connection *connection, const struct held *held)
{
	char text[1024], body[4096];
	int length = snprintf(text, sizeof(text),
			      "DELETE /v1/sandboxes/%s HTTP/1.1\r\nHost: localhost\r\n"
			      "X-Sandpool-Token: %s\r\n\r\n",
			      held->id, held->token);
	double start = now_us();
	int status;

	connection_send(connection, text, (size_t)length);
	status = response(connection, body, sizeof(body));
	if (status >= 300) {
		fprintf(stderr, "bench: release: %d %s\n", status, body);
		exit(1);
	}
	return now_us() - start;
}

static void upgrade(struct connection *connection, const char *target, const char *token)
{
	char text[1024], body[4096];
	int length = snprintf(text, sizeof(text),
			      "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
			      "Upgrade: sandpool-exec\r\nContent-Length: 0\r\n"
			      "X-Sandpool-Token: %s\r\n\r\n",
			      target, token);
	int status;

	connection_send(connection, text, (size_t)length);
	status = response(connection, body, sizeof(body));
	if (status != 101) {
		fprintf(stderr, "bench: upgrade %s: %d %s\n", target, status, body);
		exit(1);
	}
}

static size_t start_frame(char *frame, size_t size, char *const *argv, bool run)
{
	size_t at = 8;
	uint32_t length;

	at += (size_t)snprintf(frame + at, size - at, "{\"argv\":[");
	for (size_t i = 0; argv[i]; i++)
		at += (size_t)snprintf(frame + at, size - at, "%s\"%s\"", i ? "," : "", argv[i]);
	at += (size_t)snprintf(frame + at, size - at, "]%s}",
			       run ? ",\"policy\":\"wait\",\"wait\":\"10s\"" : "");
	memset(frame, 0, 8);
	frame[0] = FRAME_START;
	length = (uint32_t)(at - 8);
	memcpy(frame + 4, &length, 4);
	return at;
}

/* START to RESULT, output included. */
static double stream_run(struct connection *connection, const char *frame, size_t size)
{
	double start = now_us();

	connection_send(connection, frame, size);
	for (;;) {
		uint32_t length;
		unsigned char type;

		while (connection->length < 8)
			connection_fill(connection);
		memcpy(&length, connection->data + 4, 4);
		while (connection->length < 8 + length)
			connection_fill(connection);
		type = (unsigned char)connection->data[0];
		if (type == FRAME_ERROR ||
		    (type == FRAME_RESULT && !strstr(connection->data + 8, "\"exited\""))) {
			fprintf(stderr, "bench: run: %.*s\n", (int)length, connection->data + 8);
			exit(1);
		}
		connection_drop(connection, 8 + length);
		if (type == FRAME_RESULT)
			return now_us() - start;
	}
}

/* What is done in each round: posix_spawn, acquire (and release), run, exec in a held sandbox. */
enum op { OP_SPAWN, OP_ACQUIRE, OP_RUN, OP_EXEC, OP_COUNT };

static const char op_letters[OP_COUNT + 1] = "sare";

struct api {
	const char *pool;
	char **argv;
	struct connection plain, fresh, kept;
	struct held held;
	char run_frame[8192], exec_frame[8192];
	size_t run_size, exec_size;
	struct series series[OP_COUNT], released;
};

static void api_open(struct api *api, const char *path)
{
	char target[256];

	connection_open(&api->plain, path);
	connection_open(&api->fresh, path);
	connection_open(&api->kept, path);
	api->run_size = start_frame(api->run_frame, sizeof(api->run_frame), api->argv, true);
	api->exec_size = start_frame(api->exec_frame, sizeof(api->exec_frame), api->argv, false);
	snprintf(target, sizeof(target), "/v1/pools/%s/run", api->pool);
	upgrade(&api->fresh, target, "");
	acquire(&api->plain, api->pool, &api->held);
	snprintf(target, sizeof(target), "/v1/sandboxes/%s/exec", api->held.id);
	upgrade(&api->kept, target, api->held.token);
}

static double api_do(struct api *api, enum op op, bool counts)
{
	struct held other;
	double start = now_us();
	double took;

	switch (op) {
	case OP_SPAWN:
		spawn_and_wait(api->argv, NULL);
		return now_us() - start;
	case OP_ACQUIRE:
		took = acquire(&api->plain, api->pool, &other);
		start = release(&api->plain, &other);
		if (counts)
			series_add(&api->released, start);
		return took;
	case OP_RUN:
		return stream_run(&api->fresh, api->run_frame, api->run_size);
	case OP_EXEC:
	case OP_COUNT:
		break;
	}
	return stream_run(&api->kept, api->exec_frame, api->exec_size);
}

static size_t parse_ops(const char *letters, enum op *ops)
{
	size_t count = 0;

	for (; *letters && count < OP_COUNT; letters++) {
		const char *at = strchr(op_letters, *letters);

		if (!at) {
			fprintf(stderr, "bench: no operation '%c'\n", *letters);
			exit(2);
		}
		ops[count++] = (enum op)(at - op_letters);
	}
	return count;
}

static void shuffle(enum op *ops, size_t count, uint32_t *seed)
{
	for (size_t i = count; i > 1; i--) {
		enum op last = ops[i - 1];
		size_t other;

		*seed = *seed * 1664525u + 1013904223u;
		other = (*seed >> 16) % i;
		ops[i - 1] = ops[other];
		ops[other] = last;
	}
}

static int main_api(char **words)
{
	static struct api api = {.series = {{.label = "posix_spawn"},
					    {.label = "acquire"},
					    {.label = "run"},
					    {.label = "exec"}},
				 .released = {.label = "release"}};
	enum op ops[OP_COUNT];
	size_t count = parse_ops(words[2], ops);
	long rounds = strtol(words[3], NULL, 10);
	long gap_us = strtol(words[4], NULL, 10);
	uint32_t seed = 1;

	api.pool = words[1];
	api.argv = words + 5;
	api_open(&api, words[0]);
	for (long round = -20; round < rounds; round++) {
		shuffle(ops, count, &seed);
		for (size_t i = 0; i < count; i++) {
			double took = api_do(&api, ops[i], round >= 0);

			if (round >= 0)
				series_add(&api.series[ops[i]], took);
			gap(gap_us);
		}
	}
	release(&api.plain, &api.held);
	for (size_t i = 0; i < OP_COUNT; i++)
		series_print(&api.series[i]);
	series_print(&api.released);
	return 0;
}

static int main_acquire(const char *path, const char *pool, long rounds, long gap_us)
{
	static struct connection plain;
	struct series acquired = {.label = "acquire"};
	struct held held;

	connection_open(&plain, path);
	for (long round = -20; round < rounds; round++) {
		double took = acquire(&plain, pool, &held);

		release(&plain, &held);
		if (round >= 0)
			series_add(&acquired, took);
		gap(gap_us);
	}
	series_print(&acquired);
	return 0;
}

/* No sandbox is killed or made meanwhile, if the pool makes none. */
static int main_hold(const char *path, const char *pool, long rounds, long gap_us)
{
	static struct connection plain;
	struct series acquired = {.label = "acquire"};
	struct held *held = calloc((size_t)rounds + 20, sizeof(*held));

	if (!held)
		die("held");
	connection_open(&plain, path);
	for (long round = -20; round < rounds; round++) {
		double took = acquire(&plain, pool, &held[round + 20]);

		if (round >= 0)
			series_add(&acquired, took);
		gap(gap_us);
	}
	for (long i = 0; i < rounds + 20; i++)
		release(&plain, &held[i]);
	free(held);
	series_print(&acquired);
	return 0;
}

/* ---- kills ---- */

static void wait_dead(int pidfd)
{
	struct pollfd item = {.fd = pidfd, .events = POLLIN};

	if (poll(&item, 1, 10000) != 1)
		die("not dead after 10 s");
}

static void kill_print(double start)
{
	printf("kill %.1f\n", now_us() - start);
}

/* PID 1 of fresh namespaces, as a sandbox has them, with so many processes in all. */
static int main_kill(long processes)
{
	unsigned long flags = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET |
			      CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP | SIGCHLD;
	int ready[2];
	int pidfd;
	char byte;
	double start;
	pid_t pid;

	if (pipe(ready) < 0)
		die("pipe");
	pid = (pid_t)syscall(SYS_clone, flags, NULL, NULL, NULL, NULL);
	if (pid < 0)
		die("clone");
	if (pid == 0) {
		for (long i = 1; i < processes; i++) {
			if (fork() == 0) {
				pause();
				_exit(0);
			}
		}
		if (write(ready[1], "x", 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	if (read(ready[0], &byte, 1) != 1)
		die("ready");
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0)
		die("pidfd_open");
	gap(5000);
	start = now_us();
	syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
	wait_dead(pidfd);
	kill_print(start);
	waitpid(pid, NULL, 0);
	return 0;
}

static int main_release(const char *path, const char *id, const char *token, long pid)
{
	static struct connection connection;
	char text[1024];
	int pidfd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
	int length = snprintf(text, sizeof(text),
			      "DELETE /v1/sandboxes/%s HTTP/1.1\r\nHost: localhost\r\n"
			      "X-Sandpool-Token: %s\r\n\r\n",
			      id, token);
	double start;

	if (pidfd < 0)
		die("pidfd_open");
	connection_open(&connection, path);
	gap(5000);
	start = now_us();
	connection_send(&connection, text, (size_t)length);
	wait_dead(pidfd);
	kill_print(start);
	return 0;
}

/* ---- rates ---- */

struct worker {
	pthread_t thread;
	const char *path;
	const char *pool;
	const char *filter;
	char *const *argv;
	double end_us;
	long done;
};

static void *churn(void *arg)
{
	struct worker *worker = arg;
	struct connection *connection = calloc(1, sizeof(*connection));
	struct held held;

	if (!connection)
		die("connection");
	connection_open(connection, worker->path);
	while (now_us() < worker->end_us) {
		acquire(connection, worker->pool, &held);
		release(connection, &held);
		worker->done++;
	}
	free(connection);
	return NULL;
}

static void *spawn_loop(void *arg)
{
	struct worker *worker = arg;

	while (now_us() < worker->end_us) {
		spawn_and_wait(worker->argv, worker->filter);
		worker->done++;
	}
	return NULL;
}

static int main_rate(struct worker template, void *(*work)(void *), long seconds, long clients)
{
	struct worker workers[SERIES_MAX];
	double start = now_us();
	long done = 0;

	for (long i = 0; i < clients && i < SERIES_MAX; i++) {
		workers[i] = template;
		workers[i].end_us = start + (double)seconds * 1e6;
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			die("thread");
	}
	for (long i = 0; i < clients && i < SERIES_MAX; i++) {
		pthread_join(workers[i].thread, NULL);
		done += workers[i].done;
	}
	printf("rate %.1f\n", (double)done / ((now_us() - start) / 1e6));
	return 0;
}

/* About what Docker and our own filter deny, so that peers do equal work. */
static int main_filter(void)
{
	static const char *const denied[] = {
		"mount",
		"umount2",
		"pivot_root",
		"chroot",
		"fsopen",
		"fsconfig",
		"fsmount",
		"fspick",
		"open_tree",
		"move_mount",
		"mount_setattr",
		"setns",
		"unshare",
		"ptrace",
		"process_vm_readv",
		"process_vm_writev",
		"kcmp",
		"pidfd_getfd",
		"keyctl",
		"add_key",
		"request_key",
		"bpf",
		"perf_event_open",
		"userfaultfd",
		"io_uring_setup",
		"io_uring_enter",
		"io_uring_register",
		"open_by_handle_at",
		"kexec_load",
		"kexec_file_load",
		"init_module",
		"finit_module",
		"delete_module",
		"fanotify_init",
		"acct",
		"swapon",
		"swapoff",
		"reboot",
		"quotactl",
		"clock_settime",
		"settimeofday",
		"syslog",
		"iopl",
		"ioperm",
		"vhangup",
		"nfsservctl",
	};
	scmp_filter_ctx context = seccomp_init(SCMP_ACT_ALLOW);

	if (!context)
		die("seccomp_init");
	for (size_t i = 0; i < sizeof(denied) / sizeof(denied[0]); i++) {
		int number = seccomp_syscall_resolve_name(denied[i]);

		if (number >= 0 && seccomp_rule_add(context, SCMP_ACT_ERRNO(EPERM), number, 0))
			die(denied[i]);
	}
	if (seccomp_export_bpf(context, STDOUT_FILENO))
		die("seccomp_export_bpf");
	seccomp_release(context);
	return 0;
}

static long number(const char *text)
{
	return strtol(text, NULL, 10);
}

int main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";
	struct worker worker = {0};

	if (strcmp(verb, "filter") == 0)
		return main_filter();
	if (strcmp(verb, "commands") == 0 && argc == 5)
		return main_commands(number(argv[2]), number(argv[3]), argv[4]);
	if (strcmp(verb, "api") == 0 && argc > 7)
		return main_api(argv + 2);
	if (strcmp(verb, "acquire") == 0 && argc == 6)
		return main_acquire(argv[2], argv[3], number(argv[4]), number(argv[5]));
	if (strcmp(verb, "hold") == 0 && argc == 6)
		return main_hold(argv[2], argv[3], number(argv[4]), number(argv[5]));
	if (strcmp(verb, "kill") == 0 && argc == 3)
		return main_kill(number(argv[2]));
	if (strcmp(verb, "release") == 0 && argc == 6)
		return main_release(argv[2], argv[3], argv[4], number(argv[5]));
	if (strcmp(verb, "churn") == 0 && argc == 6) {
		worker.path = argv[2];
		worker.pool = argv[3];
		return main_rate(worker, churn, number(argv[4]), number(argv[5]));
	}
	if (strcmp(verb, "rate") == 0 && argc > 5) {
		worker.filter = strcmp(argv[4], "-") ? argv[4] : NULL;
		worker.argv = argv + 5;
		return main_rate(worker, spawn_loop, number(argv[2]), number(argv[3]));
	}
	fprintf(stderr, "usage: see the head of bench.c\n");
	return 2;
}
