/*
 * A real daemon inside a test: launcher, inits and all, driven through service.h on the test's own
 * loop. Needs root and the built programs; a test that cannot have them is skipped (and fails with
 * SP_TESTS_MUST_RUN=1). Every test ends with a stop that leaves nothing and a loop that closes
 * clean.
 */
#ifndef SP_TESTS_DAEMON_FIXTURE_H
#define SP_TESTS_DAEMON_FIXTURE_H

#include "pool/base/clock.h"
#include "supervisor/daemon/daemon.h"
#include "supervisor/daemon/daemon_private.h"
#include "supervisor/daemon/service.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A hundred thousand files, made with sanitizers where fifteen programs share a processor: 21 s. */
#define WAIT_MS 60000

struct live {
	uv_loop_t loop;
	uv_timer_t beat; /* so that a wait looks at its condition now and then */
	struct sp_service *service;
	char dir[64];
	char config_path[96];
	char launcher[512];
	bool ended;
	bool closed;
	int exit_status;
};

static const struct sp_caller operator_caller = {.operator_rights = true, .may_acquire = true};

static inline void live_on_beat(uv_timer_t *timer)
{
	(void)timer;
}

static inline void live_write_config(struct live *live, const char *globals, const char *pools)
{
	FILE *file = fopen(live->config_path, "we");

	cr_assert_not_null(file);
	cr_assert(fprintf(file,
			  "{\"store\": \"memory\", \"instance\": \"live-%d\", "
			  "\"state_dir\": \"%s/state\", \"user\": \"\", "
			  "\"listen\": [\"unix://%s/none.sock\"]%s%s, \"pools\": {%s}}",
			  (int)getpid(), live->dir, live->dir, globals[0] ? ", " : "", globals,
			  pools) > 0);
	cr_assert(fclose(file) == 0);
}

static inline bool live_possible(struct live *live)
{
	const char *bin = getenv("SANDPOOL_BIN");
	char own[400];
	ssize_t len = readlink("/proc/self/exe", own, sizeof(own) - 1);

	cr_assert(len > 0);
	own[len] = '\0';
	*strrchr(own, '/') = '\0';
	if (bin)
		(void)snprintf(live->launcher, sizeof(live->launcher), "%s/sandpool-launcher", bin);
	else
		(void)snprintf(live->launcher, sizeof(live->launcher),
			       "%s/../bin/sandpool-launcher", own);
	if (geteuid() == 0 && access(live->launcher, X_OK) == 0)
		return true;
	cr_assert(!getenv("SP_TESTS_MUST_RUN"), "needs root and '%s'", live->launcher);
	return false;
}

static inline void live_on_ended(void *arg, int exit_status)
{
	struct live *live = arg;

	live->ended = true;
	live->exit_status = exit_status;
}

static inline void live_on_closed(void *arg)
{
	struct live *live = arg;

	live->closed = true;
}

/* Turn the loop until *flag, or fail. */
#define LIVE_WAIT(live, condition)                                                              \
	do {                                                                                    \
		int64_t wait_until_ms = sp_clock_boot_ms() + WAIT_MS;                           \
		while (!(condition)) {                                                          \
			cr_assert(sp_clock_boot_ms() < wait_until_ms, "waited in vain for: %s", \
				  #condition);                                                  \
			(void)uv_run(&(live)->loop, UV_RUN_ONCE);                               \
		}                                                                               \
	} while (0)

/* Turn the loop for a while in which nothing is expected. */
static inline void live_let_pass(struct live *live, int64_t ms)
{
	int64_t until_ms = sp_clock_boot_ms() + ms;

	while (sp_clock_boot_ms() < until_ms)
		(void)uv_run(&live->loop, UV_RUN_ONCE);
}

static inline struct sp_pool_snapshot live_pool(struct live *live, const char *name)
{
	struct sp_pool_info info;
	struct sp_err err = {0};

	cr_assert(sp_service_pool(live->service, name, &info, &err) == 0, "%s", err.message);
	return info.snapshot;
}

static inline bool live_full(struct live *live, const char *name)
{
	struct sp_pool_snapshot now = live_pool(live, name);

	return now.idle >= now.max_idle && now.creating == 0 && now.killing == 0;
}

/* false: skipped. */
static inline bool live_start(struct live *live, const char *globals, const char *pools)
{
	struct sp_daemon_options options = {0};
	struct sp_err err = {0};

	memset(live, 0, sizeof(*live));
	if (!live_possible(live))
		return false;
	(void)signal(SIGPIPE, SIG_IGN);
	(void)snprintf(live->dir, sizeof(live->dir), "/tmp/sandpool-live-XXXXXX");
	cr_assert_not_null(mkdtemp(live->dir));
	(void)snprintf(live->config_path, sizeof(live->config_path), "%s/sandpool.json", live->dir);
	live_write_config(live, globals, pools);
	options.config_path = live->config_path;
	options.launcher = live->launcher;
	sp_log_init("test", STDERR_FILENO, SP_LOG_WARN);
	cr_assert(uv_loop_init(&live->loop) == 0);
	(void)uv_timer_init(&live->loop, &live->beat);
	(void)uv_timer_start(&live->beat, live_on_beat, 5, 5);
	cr_assert(sp_daemon_new(&options, &live->loop, &live->service, &err) == 0, "%s",
		  err.message);
	sp_log_set_level(SP_LOG_WARN);
	cr_assert(sp_daemon_start(live->service, live_on_ended, live, &err) == 0, "%s",
		  err.message);
	return true;
}

#define LIVE_START(live, globals, pools)                             \
	do {                                                         \
		if (!live_start((live), (globals), (pools)))         \
			cr_skip_test("needs root and the programs"); \
	} while (0)

static inline void live_remove_dir(const char *path)
{
	char command[256];

	(void)snprintf(command, sizeof(command), "rm -rf -- '%s'", path);
	cr_assert(system(command) == 0);
}

static inline void live_close(struct live *live)
{
	sp_daemon_close(live->service, live_on_closed, live);
	LIVE_WAIT(live, live->closed);
	uv_close((uv_handle_t *)&live->beat, NULL);
	(void)uv_run(&live->loop, UV_RUN_DEFAULT);
	sp_daemon_free(live->service);
	cr_assert(uv_loop_close(&live->loop) == 0, "a handle was left open");
	live_remove_dir(live->dir);
}

static inline void live_stop(struct live *live)
{
	sp_daemon_stop(live->service);
	LIVE_WAIT(live, live->ended);
	cr_assert(live->exit_status == 0);
	live_close(live);
}

/* ---- acquire ---- */

struct held {
	bool answered;
	bool refused;
	struct sp_err err;
	char id[SP_SANDBOX_ID_LEN + 1];
	char secret[SP_SECRET_LEN + 1];
	struct sp_caller caller; /* its holder */
};

/* Where a caller's secret stays, though `held` is copied. */
static inline const char *keep_secret(const char *secret)
{
	static char kept[64][SP_SECRET_LEN + 1];
	static size_t next;
	char *place = kept[next++ % SP_ARRAY_SIZE(kept)];

	memcpy(place, secret, SP_SECRET_LEN + 1);
	return place;
}

static inline void held_on_answer(void *arg, const struct sp_sandbox_info *info,
				  const struct sp_err *err)
{
	struct held *held = arg;

	held->answered = true;
	held->refused = info == NULL;
	if (!info) {
		held->err = *err;
		return;
	}
	(void)snprintf(held->id, sizeof(held->id), "%s", info->sandbox->id);
	if (info->secret)
		(void)snprintf(held->secret, sizeof(held->secret), "%s", info->secret);
	held->caller.secret = keep_secret(held->secret);
}

static inline struct sp_service_acquire wish(const char *pool)
{
	return (struct sp_service_acquire){
		.pool = pool,
		.policy = SP_ACQUIRE_WAIT,
		.wait_ms = 10000,
		.min_remaining_ms = -1,
	};
}

/* Waits for the answer; held->refused tells. */
static inline void live_acquire_as(struct live *live, const struct sp_service_acquire *request,
				   struct held *held)
{
	struct sp_service_op *op;

	memset(held, 0, sizeof(*held));
	if (sp_service_acquire(live->service, &operator_caller, request, held_on_answer, held, &op,
			       &held->err) < 0) {
		held->answered = held->refused = true;
		return;
	}
	cr_assert(!held->answered, "called back from inside");
	LIVE_WAIT(live, held->answered);
}

static inline struct held live_acquire(struct live *live, const char *pool)
{
	struct sp_service_acquire request = wish(pool);
	struct held held;

	live_acquire_as(live, &request, &held);
	cr_assert(!held.refused, "%s", held.err.message);
	return held;
}

static inline void live_release(struct live *live, const struct held *held)
{
	struct sp_err err = {0};

	cr_assert(sp_service_release(live->service, &held->caller, held->id, &err) == 0, "%s",
		  err.message);
}

/* ---- exec ---- */

struct outcome {
	struct sp_exec *exec;
	bool started;
	bool ended;
	bool failed;
	bool output_before_start;
	size_t credit;
	struct sp_err err;
	struct sp_exec_result result;
	size_t len[3];
	char text[3][4096]; /* the beginning */
	bool pause_at_output;
};

static inline void outcome_on_started(void *arg, const char *sandbox_id)
{
	struct outcome *outcome = arg;

	cr_assert(sp_sandbox_id_valid(sandbox_id));
	cr_assert(!outcome->started);
	outcome->started = true;
}

static inline void outcome_on_output(void *arg, int stream, const void *data, size_t len)
{
	struct outcome *outcome = arg;
	size_t have = outcome->len[stream];

	cr_assert(!outcome->ended);
	if (!outcome->started)
		outcome->output_before_start = true;
	if (have < sizeof(outcome->text[stream]) - 1)
		memcpy(outcome->text[stream] + have, data,
		       SP_MIN(len, sizeof(outcome->text[stream]) - 1 - have));
	outcome->len[stream] += len;
	if (outcome->pause_at_output)
		sp_exec_pause(outcome->exec, true);
}

static inline void outcome_on_credit(void *arg, uint32_t bytes)
{
	struct outcome *outcome = arg;

	outcome->credit += bytes;
}

static inline void outcome_on_ended(void *arg, const struct sp_exec_result *result)
{
	struct outcome *outcome = arg;

	cr_assert(!outcome->ended);
	outcome->ended = true;
	outcome->result = *result;
	outcome->exec = NULL;
}

static inline void outcome_on_failed(void *arg, const struct sp_err *err)
{
	struct outcome *outcome = arg;

	outcome->failed = true;
	outcome->err = *err;
}

static const struct sp_exec_events outcome_events = {
	.started = outcome_on_started,
	.output = outcome_on_output,
	.stdin_credit = outcome_on_credit,
	.ended = outcome_on_ended,
};

struct command {
	const char *argv[8];
	struct sp_exec_spec spec;
};

static inline void command_init(struct command *command, const char *first, ...)
{
	va_list more;
	size_t count = 0;

	memset(command, 0, sizeof(*command));
	va_start(more, first);
	for (const char *word = first; word; word = va_arg(more, const char *)) {
		cr_assert(count < SP_ARRAY_SIZE(command->argv));
		command->argv[count++] = word;
	}
	va_end(more);
	command->spec = (struct sp_exec_spec){
		.argv = command->argv,
		.argc = count,
		.uid = -1,
		.gid = -1,
	};
}

#define COMMAND(name, ...)   \
	struct command name; \
	command_init(&name, __VA_ARGS__, NULL)

static inline void live_begin(struct live *live, const struct held *held,
			      const struct command *command, struct outcome *outcome)
{
	memset(outcome, 0, sizeof(*outcome));
	cr_assert(sp_exec_start(live->service, &held->caller, held->id, &command->spec,
				&outcome_events, outcome, &outcome->exec, &outcome->err) == 0,
		  "%s", outcome->err.message);
	cr_assert(!outcome->started && !outcome->ended, "called back from inside");
}

static inline struct outcome live_exec(struct live *live, const struct held *held,
				       const struct command *command)
{
	struct outcome outcome;

	live_begin(live, held, command, &outcome);
	LIVE_WAIT(live, outcome.ended);
	return outcome;
}

static inline struct outcome live_run(struct live *live, const char *pool,
				      const struct command *command)
{
	struct sp_service_acquire request = wish(pool);
	struct outcome outcome;

	memset(&outcome, 0, sizeof(outcome));
	cr_assert(sp_exec_run(live->service, &operator_caller, &request, &command->spec,
			      &outcome_events, outcome_on_failed, &outcome, &outcome.exec,
			      &outcome.err) == 0,
		  "%s", outcome.err.message);
	LIVE_WAIT(live, outcome.ended || outcome.failed);
	return outcome;
}

static inline struct sandbox_link *live_link(struct live *live, const struct held *held)
{
	struct sandbox_link *link;
	struct sp_err err = {0};

	cr_assert(service_find(live->service, &operator_caller, held->id, &link, &err) == 0, "%s",
		  err.message);
	return link;
}

static inline size_t open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	size_t count = 0;

	cr_assert_not_null(dir);
	while (readdir(dir))
		count++;
	(void)closedir(dir);
	return count;
}

#endif
