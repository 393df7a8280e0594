/*
 * POST /sandboxes: a sandbox of a warm pool under an OpenSandbox id.
 *
 *	body ─► pool ─► ACQUIRING ─granted─► claim, into the table ─► STARTING ─started─► 202
 *	                    └─refused─► error        (no entrypoint: 202 at once)  └failed─► 500
 *
 * A sandbox that dies by itself in any of these states was a bad pick, which is not the client's
 * business: another one is acquired, under another id, up to TRIES_MAX in the time that an acquire
 * may wait.
 *
 * The entrypoint is an exec like any other, whose output nobody wants; it has the environment of
 *the create and outlives the request, attached to its sandbox. A program that ends does not end the
 * sandbox: it is there for what its clients run in it. One that cannot be started ends it, and the
 * create fails with the reason.
 *
 * A client that leaves before its answer knows no id: its sandbox ends.
 */
#include "supervisor/api/os_lifecycle.h"

#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "supervisor/api/exec_json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PUBLIC_PREFIX "opensandbox.extensions."

#define TRIES_MAX 8u

struct create {
	struct sp_request *request;
	struct sp_os_create body;
	struct sp_os_sandbox *os; /* referenced; one for each try */
	char pool[SP_POOL_NAME_MAX + 1];
	int64_t ttl_ms;
	int64_t until_ms; /* BOOTTIME; of all tries */
	unsigned int tries;
	struct sp_service_op *op;      /* ACQUIRING */
	struct entrypoint *entrypoint; /* STARTING */
};

/* The entrypoint's exec; belongs to its sandbox. */
struct entrypoint {
	struct sp_os_attachment attachment;
	struct sp_exec *exec;
	struct create *create; /* STARTING: whose answer waits for it */
};

/* ---- what is kept of the body ---- */

static int keep_env(struct sp_os_sandbox *os, json_t *env)
{
	const char *key;
	json_t *value;

	os->env = calloc(json_object_size(env) + 1, sizeof(*os->env));
	if (!os->env)
		return -ENOMEM;
	json_object_foreach (env, key, value) {
		if (json_is_null(value))
			continue;
		if (asprintf(&os->env[os->envc], "%s=%s", key, json_string_value(value)) < 0)
			return -ENOMEM;
		os->envc++;
	}
	return 0;
}

static int keep_extensions(struct sp_os_sandbox *os, json_t *extensions)
{
	const char *key;
	json_t *value;

	json_object_foreach (extensions, key, value) {
		if (strncmp(key, PUBLIC_PREFIX, strlen(PUBLIC_PREFIX)) != 0)
			continue;
		if (!os->extensions)
			os->extensions = json_object();
		if (!os->extensions || json_object_set(os->extensions, key, value) < 0)
			return -ENOMEM;
	}
	return 0;
}

static int keep(struct sp_os_sandbox *os, const struct sp_os_create *body)
{
	int status = keep_env(os, body->env);

	if (status == 0)
		status = keep_extensions(os, body->extensions);
	if (body->image && status == 0) {
		os->image = strdup(body->image);
		status = os->image ? 0 : -ENOMEM;
	}
	os->entrypoint = json_incref(body->entrypoint);
	os->metadata = json_incref(body->metadata);
	os->platform = json_incref(body->platform);
	os->extend_ms = body->extend_s * SP_MS_PER_S;
	return status;
}

static struct sp_os_sandbox *os_new(const struct sp_os_create *body)
{
	struct sp_os_sandbox *os = sp_os_sandbox_new();

	if (os && keep(os, body) < 0) {
		sp_os_unref(os);
		return NULL;
	}
	return os;
}

/* Takes the body. */
static struct create *create_new(struct sp_request *request, struct sp_os_create *body,
				 const struct sp_pool_config *pool)
{
	struct create *create = calloc(1, sizeof(*create));

	if (!create)
		return NULL;
	create->request = request;
	create->os = os_new(body);
	if (!create->os) {
		free(create);
		return NULL;
	}
	create->body = *body;
	*body = (struct sp_os_create){0};
	memcpy(create->pool, pool->name, sizeof(create->pool));
	create->ttl_ms = create->body.timeout_s > 0 ? create->body.timeout_s * SP_MS_PER_S
						    : pool->max_lease_ms;
	create->until_ms = sp_clock_boot_ms() + SP_API_DEFAULT_WAIT_MS;
	return create;
}

static void create_free(struct create *create)
{
	if (create->entrypoint)
		create->entrypoint->create = NULL;
	sp_os_unref(create->os);
	sp_os_create_done(&create->body);
	free(create);
}

/* ---- how it ends ---- */

static void succeed(struct create *create)
{
	struct sp_request *request = create->request;

	sp_log(SP_LOG_INFO, "sandbox created", "uuid=%s sandbox=%s request=%s", create->os->uuid,
	       create->os->id, request->id);
	sp_os_reply_sandbox(request, MHD_HTTP_ACCEPTED, create->os, false);
	create_free(create);
}

static bool is_death(const struct sp_err *err)
{
	return err->code == SP_CODE_SANDBOX_DEAD || err->code == SP_CODE_LEASE_ENDED;
}

static bool try_again(struct create *create);

/* Its sandbox, if there is one, ends with it. */
static void fail(struct create *create, const struct sp_err *err)
{
	struct sp_request *request = create->request;
	struct sp_os_sandbox *os;
	struct sp_err all_died = {0};

	if (is_death(err)) {
		if (try_again(create))
			return;
		(void)sp_err_code(&all_died, SP_CODE_POOL_ACQUIRE_FAILED, err->status,
				  "%u sandboxes were taken and died before their use, the last: %s",
				  create->tries, err->message);
		err = &all_died;
	}
	os = sp_os_ref(create->os);
	create_free(create);
	if (os->id[0])
		sp_os_release(request->api, os);
	sp_os_unref(os);
	sp_reply_error(request, err);
}

/* The client left. */
static void on_cancel(struct sp_request *request)
{
	struct create *create = request->operation;
	struct sp_os_sandbox *os = sp_os_ref(create->os);

	if (create->op)
		sp_service_acquire_cancel(create->op);
	create_free(create);
	if (os->id[0])
		sp_os_release(request->api, os);
	sp_os_unref(os);
}

/* ---- STARTING ---- */

static void entrypoint_free(struct entrypoint *entrypoint)
{
	if (entrypoint->create)
		entrypoint->create->entrypoint = NULL;
	sp_os_detach(&entrypoint->attachment);
	free(entrypoint);
}

static void not_started(struct entrypoint *entrypoint, bool died, const char *why)
{
	struct create *create = entrypoint->create;
	struct sp_err err = {0};

	entrypoint_free(entrypoint);
	if (!create)
		return;
	(void)sp_err_code(&err, died ? SP_CODE_SANDBOX_DEAD : SP_CODE_EXEC_START_FAILED, -ENOEXEC,
			  "the entrypoint could not be started: %s", why);
	fail(create, &err);
}

static void on_sandbox_ended(struct sp_os_attachment *attachment)
{
	struct entrypoint *entrypoint = SP_CONTAINER_OF(attachment, struct entrypoint, attachment);

	sp_exec_cancel(entrypoint->exec);
	not_started(entrypoint, entrypoint->create && entrypoint->create->os->died,
		    "the sandbox has ended");
}

static void on_started(void *arg, const char *sandbox_id)
{
	const struct entrypoint *entrypoint = arg;

	SP_UNUSED(sandbox_id);
	if (entrypoint->create)
		succeed(entrypoint->create);
}

static void on_output(void *arg, int stream, const void *data, size_t len)
{
	SP_UNUSED(arg);
	SP_UNUSED(stream);
	SP_UNUSED(data);
	SP_UNUSED(len);
}

static void on_ended(void *arg, const struct sp_exec_result *result)
{
	not_started(arg, result->reason == SP_EXEC_DIED, result->message);
}

static void on_stdin_credit(void *arg, uint32_t bytes)
{
	SP_UNUSED(arg);
	SP_UNUSED(bytes);
}

static int exec_entrypoint(struct create *create, struct entrypoint *entrypoint, struct sp_err *err)
{
	static const struct sp_exec_events events = {
		.started = on_started,
		.output = on_output,
		.stdin_credit = on_stdin_credit,
		.ended = on_ended,
	};
	const struct sp_os_sandbox *os = create->os;
	const struct sp_caller caller = sp_os_caller(os);
	const char **argv = calloc(json_array_size(os->entrypoint) + 1, sizeof(*argv));
	struct sp_exec_spec spec = {
		.argv = argv,
		.argc = json_array_size(os->entrypoint),
		.env = (const char *const *)os->env,
		.envc = os->envc,
		.uid = -1,
		.gid = -1,
		.output_unlimited = true,
		.resident = true,
		.start_awaited = true,
		.for_life = true,
	};
	json_t *word;
	size_t i;
	int status;

	if (!argv)
		return sp_err_set(err, -ENOMEM, "start the entrypoint");
	json_array_foreach (os->entrypoint, i, word)
		argv[i] = json_string_value(word);
	status = sp_exec_start(create->request->api->service, &caller, os->id, &spec, &events,
			       entrypoint, &entrypoint->exec, err);
	free(argv);
	return status;
}

static int start(struct create *create, struct sp_err *err)
{
	struct entrypoint *entrypoint = calloc(1, sizeof(*entrypoint));
	int status;

	if (!entrypoint)
		return sp_err_set(err, -ENOMEM, "start the entrypoint");
	sp_list_init(&entrypoint->attachment.link);
	entrypoint->attachment.ended = on_sandbox_ended;
	status = exec_entrypoint(create, entrypoint, err);
	if (status < 0) {
		free(entrypoint);
		return status;
	}
	entrypoint->create = create;
	create->entrypoint = entrypoint;
	sp_os_attach(create->os, &entrypoint->attachment);
	return 0;
}

/* ---- ACQUIRING ---- */

/* The sandbox is there: its life begins. */
static int begin(struct create *create, const struct sp_sandbox_info *granted, struct sp_err *err)
{
	struct sp_api *api = create->request->api;
	struct sp_os_sandbox *os = create->os;
	struct sp_sandbox_info info = {0};
	struct sp_caller caller;
	int status;

	sp_assert(granted->sandbox && granted->secret); /* it was asked for here, without a lease */
	memcpy(os->id, granted->sandbox->id, sizeof(os->id));
	memcpy(os->secret, granted->secret, sizeof(os->secret));
	caller = sp_os_caller(os);
	status = sp_service_claim(api->service, &caller, os->id, 0, &info, err);
	if (status < 0)
		return status;
	os->created_ms = info.now_ms;
	os->transition_ms = info.now_ms;
	os->lease_end_ms = info.sandbox->expires_ms;
	if (create->body.timeout_s > 0)
		os->expires_ms = os->lease_end_ms;
	return sp_os_table_add(api->os, os, err);
}

static void on_acquired(void *arg, const struct sp_sandbox_info *info, const struct sp_err *refused)
{
	struct create *create = arg;
	struct sp_err err = {0};
	int status;

	create->op = NULL;
	if (refused) {
		fail(create, refused);
		return;
	}
	status = begin(create, info, &err);
	if (status == 0 && create->os->entrypoint)
		status = start(create, &err);
	if (status < 0)
		fail(create, &err);
	else if (!create->os->entrypoint)
		succeed(create);
}

static int acquire(struct create *create, struct sp_err *err)
{
	struct sp_request *request = create->request;
	const struct sp_service_acquire wish = {
		.pool = create->pool,
		.policy = SP_ACQUIRE_CREATE,
		.wait_ms = SP_MAX(create->until_ms - sp_clock_boot_ms(), INT64_C(1)),
		.ttl_ms = create->ttl_ms,
		.min_remaining_ms = -1,
		.local = true,
	};

	create->tries++;
	return sp_service_acquire(request->api->service, &request->caller, &wish, on_acquired,
				  create, &create->op, err);
}

/* Is another one under way? */
static bool try_again(struct create *create)
{
	struct sp_os_sandbox *dead = create->os;
	struct sp_os_sandbox *fresh;
	struct sp_err refused = {0};

	if (create->tries == TRIES_MAX || sp_clock_boot_ms() >= create->until_ms)
		return false;
	fresh = os_new(&create->body);
	if (!fresh)
		return false;
	sp_log(SP_LOG_INFO, "sandbox died before its use, another one is taken",
	       "pool=%s sandbox=%s try=%u", create->pool, dead->id, create->tries);
	create->os = fresh;
	if (dead->id[0])
		sp_os_release(create->request->api, dead);
	sp_os_unref(dead);
	if (acquire(create, &refused) < 0)
		fail(create, &refused);
	return true;
}

static void create_from(struct sp_request *request, struct sp_os_create *body)
{
	struct sp_os_refusal refusal = {0};
	const struct sp_config_pool *pool;
	struct create *create;
	struct sp_err err = {0};

	if (sp_os_choose_pool(sp_service_config(request->api->service), body, &pool, &refusal) <
	    0) {
		sp_os_refuse(request, &refusal);
		return;
	}
	create = create_new(request, body, &pool->policy);
	if (!create) {
		(void)sp_err_set(&err, -ENOMEM, "create a sandbox");
		sp_reply_error(request, &err);
	} else if (acquire(create, &err) < 0) {
		create_free(create);
		sp_reply_error(request, &err);
	} else if (sp_request_suspend(request, on_cancel, create) < 0) {
		/* It has been answered. */
		sp_service_acquire_cancel(create->op);
		create_free(create);
	}
}

void sp_handle_os_create(struct sp_request *request)
{
	struct sp_os_refusal refusal = {0};
	struct sp_os_create body;

	if (sp_os_create_parse(&body, sp_buf_text(&request->body), request->body.len, &refusal) <
	    0) {
		sp_os_refuse(request, &refusal);
		return;
	}
	create_from(request, &body);
	sp_os_create_done(&body);
}
