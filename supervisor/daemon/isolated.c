/*
 * One isolated session, the daemon's side.
 *
 *	OPENING ──OPENED──► OPEN ──ENDED──► gone
 *	   └──failed──► gone
 *
 * Closed by its owner in either state it is `abandoned`: it stays until init has said that it is
 * over, so that each record of init finds the session that it is about. Nothing is called then.
 */
#include "supervisor/daemon/isolated.h"

#include "pool/base/clock.h"
#include "supervisor/daemon/daemon_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define OPEN_PATIENCE_MS (10 * SP_MS_PER_S)

struct sp_isolated {
	struct sp_list link; /* in the sandbox's isolated, or empty */
	struct sp_service *service;
	struct sandbox_link *sandbox; /* NULL once it is lost */
	uint32_t number;
	bool open;
	bool abandoned;
	struct sp_isolated_events events;
	void *arg;
	struct sp_timer patience;
	struct sp_deferred finish; /* the sandbox is lost, or there was no answer */
	struct sp_err failure;
};

static void isolated_free(struct sp_isolated *isolated)
{
	sp_list_remove(&isolated->link);
	if (isolated->sandbox) {
		isolated->sandbox->isolated_count--;
		if (!upper_usage_any(isolated->sandbox))
			isolated->sandbox->upper_bytes = 0;
	}
	sp_timer_done(&isolated->service->timers, &isolated->patience);
	sp_deferred_cancel(&isolated->finish);
	free(isolated);
}

/* The last callback, if anybody still listens. */
static void over(struct sp_isolated *isolated, const struct sp_err *err)
{
	const struct sp_isolated_events events = isolated->events;
	bool told = !isolated->abandoned;
	bool open = isolated->open;
	void *arg = isolated->arg;

	isolated_free(isolated);
	if (!told)
		return;
	if (open)
		events.ended(arg);
	else
		events.opened(arg, err);
}

static void on_finish(struct sp_deferred *deferred)
{
	struct sp_isolated *isolated = SP_CONTAINER_OF(deferred, struct sp_isolated, finish);
	const struct sp_err failure = isolated->failure;

	over(isolated, &failure);
}

static void send_close(struct sp_isolated *isolated)
{
	const struct sp_init_plain record = {
		.header = {.type = SP_INIT_SESSION_CLOSE, .exec = isolated->number},
	};

	if (isolated->sandbox)
		(void)sandbox_send(isolated->sandbox, &record, sizeof(record), NULL, 0);
}

void isolated_sandbox_lost(struct sandbox_link *link)
{
	struct sp_isolated *isolated;

	while ((isolated = SP_LIST_FIRST(&link->isolated, struct sp_isolated, link))) {
		sp_list_remove(&isolated->link);
		link->isolated_count--;
		isolated->sandbox = NULL;
		(void)sp_err_code(&isolated->failure, SP_CODE_SANDBOX_DEAD, -ESRCH,
				  "the sandbox has ended");
		sp_defer(&isolated->service->deferred, &isolated->finish);
	}
}

/* init is killed or wedged, or a mount waits for a server that is away. */
static void on_patience(struct sp_timer *timer)
{
	struct sp_isolated *isolated = SP_CONTAINER_OF(timer, struct sp_isolated, patience);
	const struct sp_isolated_events events = isolated->events;
	void *arg = isolated->arg;
	struct sp_err err = {0};

	send_close(isolated);
	if (isolated->abandoned)
		return;
	isolated->abandoned = true;
	(void)sp_err_code(&err, SP_CODE_UNAVAILABLE, -ETIMEDOUT,
			  "the isolated session was not made in time");
	events.opened(arg, &err);
}

/* ---- records ---- */

static struct sp_isolated *find(const struct sandbox_link *link, uint32_t number)
{
	SP_LIST_FOREACH (at, &link->isolated) {
		struct sp_isolated *isolated = SP_CONTAINER_OF(at, struct sp_isolated, link);

		if (isolated->number == number)
			return isolated;
	}
	return NULL;
}

bool isolated_is_open(const struct sandbox_link *link, uint32_t number)
{
	const struct sp_isolated *isolated = find(link, number);

	return isolated && isolated->open && !isolated->abandoned;
}

static bool names_a_path(const char *stage)
{
	static const char *const stages[] = {"workspace", "writable:", "bind:", "target:"};

	for (size_t i = 0; i < SP_ARRAY_SIZE(stages); i++)
		if (strncmp(stage, stages[i], strlen(stages[i])) == 0)
			return true;
	return false;
}

static enum sp_code code_of(const char *stage, int status)
{
	if (names_a_path(stage) && status != -ENOMEM && status != -EIO)
		return SP_CODE_INVALID_ARGUMENT;
	if (strcmp(stage, "overlay") == 0)
		return SP_CODE_UNSUPPORTED;
	return strcmp(stage, "sessions") == 0 ? SP_CODE_TOO_MANY : SP_CODE_INTERNAL;
}

bool isolated_on_opened(struct sandbox_link *link, const struct sp_init_status *status)
{
	struct sp_isolated *isolated = find(link, status->header.exec);
	struct sp_err err = {0};

	if (!isolated || isolated->open)
		return false;
	sp_timer_set(&link->service->timers, &isolated->patience, INT64_MAX);
	if (status->status == 0) {
		isolated->open = true;
		upper_usage_watch(link->service);
		if (isolated->abandoned)
			send_close(isolated);
		else
			isolated->events.opened(isolated->arg, NULL);
		return true;
	}
	if (strcmp(status->stage, "not_allowed") == 0)
		(void)sp_err_code(&err, SP_CODE_INVALID_ARGUMENT, status->status,
				  "a path is not below allowed_writable of pool '%s'",
				  link->pool->config->policy.name);
	else if (strcmp(status->stage, "supported") == 0)
		(void)sp_err_code(&err, SP_CODE_UNAVAILABLE, status->status,
				  "isolated sessions need more ids than the one that each "
				  "sandbox of a rootless daemon without subordinate ids has");
	else
		(void)sp_err_code(&err, code_of(status->stage, status->status), status->status,
				  "isolated session: %s: %s", status->stage,
				  strerror(-status->status));
	over(isolated, &err);
	return true;
}

bool isolated_on_ended(struct sandbox_link *link, const struct sp_init_status *status)
{
	struct sp_isolated *isolated = find(link, status->header.exec);

	if (!isolated || !isolated->open)
		return false;
	over(isolated, NULL);
	return true;
}

/* ---- open ---- */

struct message {
	struct sp_init_session_open head;
	char text[SP_INIT_INLINE_MAX];
};

static int add_path(struct message *message, const char *path, struct sp_err *err)
{
	size_t size = strlen(path) + 1;
	size_t used = message->head.strings_length;

	if (path[0] != '/')
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "path '%.350s' is not absolute", path);
	if (size > SP_INIT_PATH_MAX)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -ENAMETOOLONG,
				   "path '%.350s…' has more than %u bytes", path,
				   SP_INIT_PATH_MAX - 1);
	if (size > sizeof(message->text) - used)
		return sp_err_code(err, SP_CODE_PAYLOAD_TOO_LARGE, -E2BIG,
				   "the paths of a session have more than %u bytes together",
				   SP_INIT_INLINE_MAX);
	memcpy(message->text + used, path, size);
	message->head.strings_length += (uint32_t)size;
	return 0;
}

static int add_paths(struct message *message, const char *const *paths, size_t count,
		     struct sp_err *err)
{
	int status = 0;

	if (count > SP_ISOLATED_PATHS_MAX)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -E2BIG,
				   "a list has %zu paths, at most %u are allowed", count,
				   SP_ISOLATED_PATHS_MAX);
	for (size_t i = 0; status == 0 && i < count; i++)
		status = add_path(message, paths[i], err);
	return status;
}

static int add_binds(struct message *message, const struct sp_isolated_spec *spec,
		     struct sp_err *err)
{
	int status = 0;

	if (spec->bind_count > SP_ISOLATED_PATHS_MAX)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -E2BIG,
				   "'binds' has %zu entries, at most %u are allowed",
				   spec->bind_count, SP_ISOLATED_PATHS_MAX);
	for (size_t i = 0; status == 0 && i < spec->bind_count; i++) {
		status = add_path(message, spec->binds[i].source, err);
		if (status == 0)
			status = add_path(message, spec->binds[i].target, err);
		if (spec->binds[i].read_only)
			message->head.read_only_binds |= UINT64_C(1) << i;
	}
	return status;
}

static int choose_id(const char *what, int64_t wanted, uint32_t workload, uint32_t *ret,
		     struct sp_err *err)
{
	*ret = workload;
	if (wanted == -1)
		return 0;
	if (wanted < 1 || wanted > SP_ID_INSIDE_MAX)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "%s must be from 1 to %u", what, SP_ID_INSIDE_MAX);
	*ret = (uint32_t)wanted;
	return 0;
}

static int build(struct message *message, const struct sandbox_link *link,
		 const struct sp_isolated_spec *spec, struct sp_err *err)
{
	static const uint32_t modes[] = {
		[SP_ISOLATED_RW] = SP_INIT_SESSION_RW,
		[SP_ISOLATED_RO] = SP_INIT_SESSION_RO,
		[SP_ISOLATED_OVERLAY] = SP_INIT_SESSION_OVERLAY,
	};
	const struct sp_config_pool *pool = link->pool->config;
	struct sp_init_session_open *head = &message->head;
	int status;

	head->header.type = SP_INIT_SESSION_OPEN;
	head->flags = (spec->private_tmp ? SP_SESSION_F_PRIVATE_TMP : 0) |
		      (spec->own_network ? SP_SESSION_F_OWN_NETWORK : 0);
	head->mode = modes[spec->mode];
	head->allowed_count = (uint32_t)pool->allowed_writable_count;
	head->upper_bytes = pool->upper_bytes;
	head->writable_count = (uint32_t)spec->writable_count;
	head->bind_count = (uint32_t)spec->bind_count;
	status = choose_id("uid", spec->uid, link->workload_uid, &head->uid, err);
	if (status == 0)
		status = choose_id("gid", spec->gid, link->workload_gid, &head->gid, err);
	if (status == 0)
		status = add_path(message, spec->workspace, err);
	if (status == 0)
		status = add_paths(message, (const char *const *)pool->allowed_writable,
				   pool->allowed_writable_count, err);
	if (status == 0)
		status = add_paths(message, spec->writable, spec->writable_count, err);
	return status < 0 ? status : add_binds(message, spec, err);
}

static int isolated_new(struct sandbox_link *link, const struct sp_isolated_events *events,
			void *arg, struct sp_isolated **ret_isolated, struct sp_err *err)
{
	struct sp_isolated *isolated = calloc(1, sizeof(*isolated));

	if (!isolated ||
	    sp_timer_init(&link->service->timers, &isolated->patience, on_patience) < 0) {
		free(isolated);
		return sp_err_set(err, -ENOMEM, "make an isolated session");
	}
	isolated->service = link->service;
	isolated->sandbox = link;
	isolated->number = ++link->last_isolated;
	isolated->events = *events;
	isolated->arg = arg;
	sp_deferred_init(&isolated->finish, on_finish);
	sp_list_append(&link->isolated, &isolated->link);
	link->isolated_count++;
	*ret_isolated = isolated;
	return 0;
}

/* What can be said without asking its init. */
static int check_possible(const struct sandbox_link *link, struct sp_err *err)
{
	if (!link->service->config->config->exec_enabled)
		return sp_err_code(err, SP_CODE_UNAVAILABLE, -EPERM,
				   "exec_enabled is false in the configuration");
	if (link->direct)
		return sp_err_code(err, SP_CODE_UNAVAILABLE, -EOPNOTSUPP,
				   "isolated sessions need namespaces, which pool '%s' does not "
				   "have: its backend is direct",
				   link->pool->config->policy.name);
	if (link->isolated_count >= SP_ISOLATED_MAX)
		return sp_err_code(err, SP_CODE_TOO_MANY, -ENOSPC,
				   "the sandbox has %u isolated sessions already", SP_ISOLATED_MAX);
	return 0;
}

int sp_isolated_open(struct sp_service *service, const struct sp_caller *caller, const char *id,
		     const struct sp_isolated_spec *spec, const struct sp_isolated_events *events,
		     void *arg, struct sp_isolated **ret_isolated, struct sp_err *err)
{
	struct message message = {0};
	struct sp_isolated *isolated = NULL;
	struct sandbox_link *link;
	int status = service_find(service, caller, id, &link, err);

	if (status == 0)
		status = sandbox_enter(link, err);
	if (status == 0)
		status = check_possible(link, err);
	if (status == 0)
		status = build(&message, link, spec, err);
	if (status < 0)
		return status;
	status = isolated_new(link, events, arg, &isolated, err);
	if (status < 0)
		return status;
	message.head.header.exec = isolated->number;
	message.head.header.request = isolated->number;
	status = sandbox_send(link, &message, sizeof(message.head) + message.head.strings_length,
			      NULL, 0);
	if (status < 0) {
		isolated_free(isolated);
		return sp_err_code(err, SP_CODE_SANDBOX_DEAD, status,
				   "sandbox '%s' does not listen", id);
	}
	sp_timer_set(&service->timers, &isolated->patience, sp_clock_boot_ms() + OPEN_PATIENCE_MS);
	*ret_isolated = isolated;
	return 0;
}

uint32_t sp_isolated_number(const struct sp_isolated *isolated)
{
	return isolated->number;
}

void sp_isolated_close(struct sp_isolated *isolated)
{
	isolated->abandoned = true;
	send_close(isolated);
	if (!isolated->sandbox)
		isolated_free(isolated);
}
