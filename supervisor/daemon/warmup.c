/*
 * What happens in a new sandbox before the policy hears of it: the pool's warm-up, once, and then
 * its readiness check, until it succeeds.
 *
 *	init is ready ──► WARMUP ──exit 0──► READINESS: attempt ⇄ pause ──exit 0──► created
 *	                    └── else, too late ──┴─ the last attempt ──► create_failed
 *
 * To the policy this is one long creation: its deadline, a kill, a drain, a reload end it like any
 * other, and warmup_drop() lets go of what is here. Both programs are execs with a client's rights
 * and limits, but nobody's: no count and no metric of execs has them.
 *
 * The warm-up gets no cgroup of its own: what it leaves running belongs to the sandbox, and where
 * it would have to be killed the sandbox goes. An attempt of the check has one (where the host
 * makes them), so that one that hangs is killed alone and the next one can succeed.
 *
 * What they write is believed in nothing; its tail is kept for the log. A verdict is acted upon at
 * the end of the turn, because the sandbox can be lost from inside of the call that starts a
 * program.
 */
#include "supervisor/daemon/daemon_private.h"

#include "pool/base/clock.h"
#include "pool/base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAIL_MAX      400u /* quoted, it fits into a record of the log */
#define PROGRAM_SHOWN 100  /* bytes of a program's name in messages */

enum stage { STAGE_WARMUP, STAGE_READINESS };

static const char *const stage_names[] = {
	[STAGE_WARMUP] = "warmup",
	[STAGE_READINESS] = "readiness",
};

struct warmup {
	struct sandbox_link *link;
	struct config_ref *source; /* a reload may replace the pool's meanwhile */
	const struct sp_config_pool *config;
	enum stage stage;
	int64_t began_ns;      /* the stage */
	struct sp_exec *exec;  /* what runs */
	struct sp_timer timer; /* the warm-up takes too long; the next attempt of the check */
	int64_t deadline_ms;   /* of the check: the attempt that begins at it or later … */
	bool last;             /* … is this one */
	uint32_t attempts;
	struct sp_deferred over;
	struct sp_err failure;   /* status 0: it is warm */
	char tail[TAIL_MAX + 1]; /* of the output of the last program */
	size_t tail_len;
};

static double seconds_since(int64_t began_ns)
{
	return (double)(sp_clock_boot_ns() - began_ns) / (double)SP_NS_PER_S;
}

/* ---- the end ---- */

static void log_output(struct warmup *warmup)
{
	char quoted[4 * TAIL_MAX + 1];

	/* As often as the failure itself is told. */
	if (warmup->tail_len == 0 || metrics_failure_told(warmup->link->pool))
		return;
	warmup->tail[warmup->tail_len] = '\0';
	sp_log(SP_LOG_WARN, "output of what did not warm a sandbox up",
	       "pool=%s sandbox=%s stage=%s output=\"%s\"", warmup->config->policy.name,
	       warmup->link->id, stage_names[warmup->stage],
	       sp_log_quote(warmup->tail, quoted, sizeof(quoted)));
}

/* Tell the policy. Frees warmup. */
static void give_up(struct warmup *warmup)
{
	struct sandbox_link *link = warmup->link;
	const char *stage = stage_names[warmup->stage];
	struct sp_err failure = warmup->failure;

	log_output(warmup);
	warmup_drop(link);
	sandbox_create_failed(link, stage, failure.status, failure.message);
}

static void on_over(struct sp_deferred *deferred)
{
	struct warmup *warmup = SP_CONTAINER_OF(deferred, struct warmup, over);
	struct sandbox_link *link = warmup->link;

	if (warmup->failure.status < 0) {
		give_up(warmup);
		return;
	}
	warmup_drop(link);
	sandbox_created(link);
}

static void over(struct warmup *warmup)
{
	sp_timer_set(&warmup->link->service->timers, &warmup->timer, INT64_MAX);
	sp_defer(&warmup->link->service->deferred, &warmup->over);
}

void warmup_discarded(struct sandbox_link *link)
{
	struct warmup *warmup = link->warmup;

	if (warmup->failure.status == 0)
		(void)sp_err_code(&warmup->failure, SP_CODE_CREATE_FAILED, -EIO,
				  "what it started could not be killed alone");
	over(warmup);
}

void warmup_lost(struct sandbox_link *link)
{
	struct warmup *warmup = link->warmup;

	if (warmup->failure.status == 0)
		(void)sp_err_code(&warmup->failure, SP_CODE_CREATE_FAILED, -ECHILD,
				  "the sandbox died");
	give_up(warmup);
}

void warmup_drop(struct sandbox_link *link)
{
	struct warmup *warmup = link->warmup;

	if (!warmup)
		return;
	link->warmup = NULL;
	if (warmup->exec)
		exec_abandon(warmup->exec);
	sp_timer_done(&link->service->timers, &warmup->timer);
	sp_deferred_cancel(&warmup->over);
	config_ref_drop(warmup->source);
	free(warmup);
}

/* ---- programs ---- */

static void on_output(void *arg, int stream, const void *data, size_t len)
{
	struct warmup *warmup = arg;
	size_t share = SP_MIN(len, (size_t)TAIL_MAX);
	size_t kept = SP_MIN(warmup->tail_len, TAIL_MAX - share);

	SP_UNUSED(stream);
	memmove(warmup->tail, warmup->tail + warmup->tail_len - kept, kept);
	memcpy(warmup->tail + kept, (const char *)data + len - share, share);
	warmup->tail_len = kept + share;
	for (size_t i = kept; i < warmup->tail_len; i++)
		if (warmup->tail[i] == '\0')
			warmup->tail[i] = ' ';
}

/* Why this is no success, for people; returns the errno of it. */
static int describe(const struct sp_exec_result *result, const char *program, char *text,
		    size_t size)
{
	switch (result->reason) {
	case SP_EXEC_EXITED:
		(void)snprintf(text, size, "'%.*s' exited with status %d", PROGRAM_SHOWN, program,
			       result->exit_code);
		return -EIO;
	case SP_EXEC_SIGNALED:
		(void)snprintf(text, size, "'%.*s' was killed by signal %d", PROGRAM_SHOWN, program,
			       result->signal);
		return -EIO;
	case SP_EXEC_MEMORY:
		(void)snprintf(text, size, "'%.*s' was killed for memory", PROGRAM_SHOWN, program);
		return -EIO;
	case SP_EXEC_OUTPUT:
		(void)snprintf(text, size, "'%.*s' wrote more than limits.output", PROGRAM_SHOWN,
			       program);
		return -EIO;
	case SP_EXEC_TIMEOUT:
		(void)snprintf(text, size, "'%.*s' took longer than attempt_timeout", PROGRAM_SHOWN,
			       program);
		return -ETIMEDOUT;
	case SP_EXEC_START_FAILED:
		(void)snprintf(text, size, "did not start: %.300s", result->message);
		return result->start_errno > 0 ? -result->start_errno : -EIO;
	case SP_EXEC_KILLED:
	case SP_EXEC_EXPIRED:
	case SP_EXEC_DIED:
	case SP_EXEC_REASON_COUNT:
		break;
	}
	(void)snprintf(text, size, "'%.*s' ended with its sandbox", PROGRAM_SHOWN, program);
	return -EIO;
}

static void check_begin(struct warmup *warmup);
static void attempt_failed(struct warmup *warmup, int status, const char *why);

static void stage_done(struct warmup *warmup)
{
	metrics_create_stage(warmup->link->pool, stage_names[warmup->stage],
			     seconds_since(warmup->began_ns));
	if (warmup->stage == STAGE_WARMUP)
		check_begin(warmup);
	else
		over(warmup);
}

static void on_ended(void *arg, const struct sp_exec_result *result)
{
	struct warmup *warmup = arg;
	const struct sp_config_pool *config = warmup->config;
	bool warming = warmup->stage == STAGE_WARMUP;
	char why[SP_ERR_MESSAGE_MAX];
	int status;

	warmup->exec = NULL;
	if (warmup->failure.status < 0)
		return;
	if (result->reason == SP_EXEC_EXITED && result->exit_code == 0) {
		stage_done(warmup);
		return;
	}
	status =
		describe(result, warming ? config->warmup.command[0] : config->readiness.command[0],
			 why, sizeof(why));
	if (!warming) {
		attempt_failed(warmup, status, why);
		return;
	}
	(void)sp_err_code(&warmup->failure, SP_CODE_CREATE_FAILED, status, "%s", why);
	over(warmup);
}

/* timeout_ms 0: it ends with its sandbox. */
static void run(struct warmup *warmup, char *const *command, size_t count, int64_t timeout_ms)
{
	const struct sp_exec_spec spec = {
		.argv = (const char *const *)command,
		.argc = count,
		.uid = -1,
		.gid = -1,
		.timeout_ms = timeout_ms,
		.for_life = timeout_ms == 0,
		.merge_stderr = true,
		.resident = true,
	};
	const struct sp_exec_events events = {.output = on_output, .ended = on_ended};
	struct sp_err err = {0};
	int status;

	warmup->tail_len = 0;
	status = exec_start_own(warmup->link, warmup->config, &spec, &events, warmup, &warmup->exec,
				&err);
	if (status < 0 && warmup->failure.status == 0) {
		(void)sp_err_code(&warmup->failure, SP_CODE_CREATE_FAILED, status, "%s",
				  err.message);
		over(warmup);
	}
}

/* ---- the check ---- */

static void attempt(struct warmup *warmup)
{
	const struct sp_config_readiness *readiness = &warmup->config->readiness;

	warmup->last = sp_clock_boot_ms() >= warmup->deadline_ms;
	warmup->attempts++;
	run(warmup, readiness->command, readiness->command_count, readiness->attempt_timeout_ms);
}

/* The deadline itself is not waited past, but there one more attempt is made: what got ready at the
 * very end, or while nothing could look, is not thrown away. */
static void attempt_failed(struct warmup *warmup, int status, const char *why)
{
	const struct sp_config_readiness *readiness = &warmup->config->readiness;
	char timeout[32];

	if (!warmup->last) {
		sp_timer_set(
			&warmup->link->service->timers, &warmup->timer,
			SP_MIN(sp_clock_boot_ms() + readiness->interval_ms, warmup->deadline_ms));
		return;
	}
	(void)sp_format_duration(readiness->timeout_ms, timeout, sizeof(timeout));
	(void)sp_err_code(&warmup->failure, SP_CODE_CREATE_FAILED, status,
			  "not ready after %s and %u attempts: %s", timeout, warmup->attempts, why);
	over(warmup);
}

static void check_begin(struct warmup *warmup)
{
	const struct sp_config_readiness *readiness = &warmup->config->readiness;

	if (readiness->command_count == 0) {
		over(warmup);
		return;
	}
	warmup->stage = STAGE_READINESS;
	warmup->began_ns = sp_clock_boot_ns();
	warmup->deadline_ms = sp_clock_boot_ms() + readiness->timeout_ms;
	/* In a turn of its own: no program is started from inside of another one's end. */
	sp_timer_set(&warmup->link->service->timers, &warmup->timer, 0);
}

/* ---- the beginning ---- */

static void on_timer(struct sp_timer *timer)
{
	struct warmup *warmup = SP_CONTAINER_OF(timer, struct warmup, timer);
	char timeout[32];

	if (warmup->stage == STAGE_READINESS) {
		attempt(warmup);
		return;
	}
	(void)sp_format_duration(warmup->config->warmup.timeout_ms, timeout, sizeof(timeout));
	(void)sp_err_code(&warmup->failure, SP_CODE_CREATE_FAILED, -ETIMEDOUT,
			  "'%.*s' did not end within %s", PROGRAM_SHOWN,
			  warmup->config->warmup.command[0], timeout);
	over(warmup);
}

/* init's own deadline, in case nobody here is left to end it. */
static void tell_deadline(const struct warmup *warmup)
{
	struct sandbox_link *link = warmup->link;
	const struct sp_init_deadline record = {
		.header.type = SP_INIT_DEADLINE,
		.boot_ms = link->sandbox->created_ms +
			   sp_pool_config(link->pool->policy)->create_timeout_ms,
	};

	(void)sandbox_send(link, &record, sizeof(record), NULL, 0);
}

static struct warmup *warmup_new(struct sandbox_link *link)
{
	struct warmup *warmup = calloc(1, sizeof(*warmup));

	if (!warmup || sp_timer_init(&link->service->timers, &warmup->timer, on_timer) < 0) {
		free(warmup);
		return NULL;
	}
	warmup->link = link;
	warmup->source = config_ref_hold(link->pool->source);
	warmup->config = link->pool->config;
	sp_deferred_init(&warmup->over, on_over);
	return warmup;
}

bool warmup_wanted(const struct sandbox_link *link)
{
	const struct sp_config_pool *config = link->pool->config;

	return config->warmup.command_count > 0 || config->readiness.command_count > 0;
}

void warmup_begin(struct sandbox_link *link)
{
	struct warmup *warmup = warmup_new(link);
	const struct sp_config_warmup *config;

	if (!warmup) {
		sandbox_create_failed(link, "admission", -ENOMEM, "");
		return;
	}
	link->warmup = warmup;
	config = &warmup->config->warmup;
	tell_deadline(warmup);
	if (config->command_count == 0) {
		check_begin(warmup);
		return;
	}
	warmup->began_ns = sp_clock_boot_ns();
	sp_timer_set(&link->service->timers, &warmup->timer,
		     sp_clock_boot_ms() + config->timeout_ms);
	run(warmup, config->command, config->command_count, 0);
}
