/*
 * An acquire on its way: from the wish to a sandbox that is bound to a lease, with its binds.
 *
 *	QUEUED ──grant──► (BINDING ⇄ MOUNTING (, RECOVERING)) ──► ANSWERING ──► callback
 *	   └──────────────── refusal ────────────────┘
 *
 * In a cluster our own pool is asked for what is idle now; if it has nothing, the other hosts are
 * (elsewhere.c), and then our own pool for whatever else the policy permits. What another host
 * gives is answered with that host's endpoint: the client claims it there.
 *
 * Nobody is called back from inside of the call that began it: a grant that is there at once goes
 * to ANSWERING, which runs at the end of the same turn. A sandbox whose binds cannot be attached is
 * ended: nobody gets half of what was asked for. What is granted to an op that was cancelled is
 * released, unless an earlier acquire of the same lease holds it.
 */
#include "supervisor/daemon/daemon_private.h"

#include "pool/base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct sandbox_link *granted_sandbox(const struct sp_service_op *op)
{
	struct sp_sandbox *sandbox = sp_pool_find_lease(op->pool->policy, op->lease_id);

	if (!sandbox || sandbox->state != SP_SANDBOX_LEASED)
		return NULL;
	return sandbox->backend_data;
}

static void op_free(struct sp_service_op *op)
{
	struct sp_service *service = op->service;

	if (op->sandbox && op->sandbox->binding == op)
		op->sandbox->binding = NULL;
	launcher_forget(service->launcher, op->request);
	bind_recovery_cancel(op);
	sp_deferred_cancel(&op->answer);
	elsewhere_done(op);
	binds_free(op->binds, op->bind_count);
	sp_list_remove(&op->link);
	free(op);
	stop_progress(service);
}

static void answer_owner(struct sp_service_op *op, struct sandbox_link *link,
			 const struct sp_err *err)
{
	void (*granted)(void *, struct sandbox_link *, const struct sp_err *) = op->granted;
	void *arg = op->arg;

	op_free(op);
	granted(arg, link, err);
}

static void answer_client(struct sp_service_op *op, struct sandbox_link *link,
			  const struct sp_err *err)
{
	sp_service_acquire_cb *cb = op->cb;
	void *arg = op->arg;
	struct sp_sandbox_info info = {0};
	char secret[SP_SECRET_LEN + 1];

	struct elsewhere elsewhere = op->elsewhere;
	char lease_id[SP_LEASE_ID_LEN + 1];
	const struct sp_remote_sandbox remote = {
		.id = elsewhere.id,
		.lease_id = lease_id,
		.host = elsewhere.host,
		.endpoint = elsewhere.endpoint,
	};
	char pool_name[SP_POOL_NAME_MAX + 1];

	memcpy(secret, op->secret, sizeof(secret));
	memcpy(lease_id, op->lease_id, sizeof(lease_id));
	memcpy(pool_name, op->pool->config->policy.name, sizeof(pool_name));
	metrics_acquire_seconds(op->service, op->pool->config->policy.name,
				(double)(sp_clock_boot_ns() - op->started_ns) /
					(double)SP_NS_PER_S);
	op_free(op);
	if (err->status != 0) {
		cb(arg, NULL, err);
		return;
	}
	if (link) {
		service_info(link, sp_clock_boot_ms(), &info);
		spares_want_later(link);
	} else {
		info.remote = &remote;
		info.pool = pool_name;
		info.now_ms = sp_clock_boot_ms();
		info.remaining_ms = elsewhere.remaining_ms;
	}
	info.secret = secret[0] != '\0' ? secret : NULL;
	cb(arg, &info, NULL);
}

static void on_answer(struct sp_deferred *deferred)
{
	struct sp_service_op *op = SP_CONTAINER_OF(deferred, struct sp_service_op, answer);
	struct sandbox_link *link = NULL;
	struct sp_err err = op->failure;

	if (op->granted_one)
		link = granted_sandbox(op);
	if (link && err.status != 0 && !op->repeated) {
		sandbox_end(link, SP_END_DISCARDED);
		link = NULL;
	}
	if (!link && !op->elsewhere.granted && err.status == 0)
		(void)sp_err_code(&err, SP_CODE_SANDBOX_DEAD, -ESRCH,
				  "the sandbox ended before it could be handed out");
	if (err.status != 0)
		link = NULL;
	if (op->cb)
		answer_client(op, link, &err);
	else
		answer_owner(op, link, link ? NULL : &err);
}

void op_answer_later(struct sp_service_op *op, const struct sp_err *err)
{
	op->state = OP_ANSWERING;
	if (err)
		op->failure = *err;
	sp_defer(&op->service->deferred, &op->answer);
}

void op_binds_done(struct sp_service_op *op, const struct sp_err *err)
{
	struct sandbox_link *link = op->sandbox;

	link->binding = NULL;
	op->sandbox = NULL;
	op_answer_later(op, err); /* a failure ends the sandbox there */
}

void op_sandbox_lost(struct sp_service_op *op)
{
	struct sp_err err = {0};

	(void)sp_err_code(&err, SP_CODE_SANDBOX_DEAD, -ESRCH,
			  "sandbox '%s' ended while its binds were attached", op->sandbox->id);
	op->sandbox->binding = NULL;
	op->sandbox = NULL;
	launcher_forget(op->service->launcher, op->request);
	op->request = 0;
	bind_recovery_cancel(op);
	op_answer_later(op, &err);
}

/* 0: binds are under way; 1: there are none to wait for. */
static int attach_binds(struct sp_service_op *op, struct sandbox_link *link, struct sp_err *err)
{
	if (op->repeated && link->binding)
		return sp_err_code(err, SP_CODE_CONFLICT, -EBUSY,
				   "an earlier acquire of this lease still attaches its binds");
	/* They were attached for the acquire that this one repeats. */
	if (op->bind_count == 0 || op->repeated)
		return 1;
	op->sandbox = link;
	link->binding = op;
	op->state = OP_BINDING;
	binds_next(op);
	return 0;
}

void op_granted_here(struct sp_service_op *op, struct sp_sandbox *sandbox, bool repeated)
{
	struct sp_err err = {0};
	int status = 1;

	op->repeated = repeated;
	op->granted_one = true;
	if (sandbox->backend_data)
		status = attach_binds(op, sandbox->backend_data, &err);
	if (status != 0)
		op_answer_later(op, status < 0 ? &err : NULL);
}

static void on_pool_answer(void *arg, const struct sp_acquire_result *result,
			   const struct sp_err *refused)
{
	struct sp_service_op *op = arg;

	op->pending = NULL;
	daemon_pool_touch(op->pool);
	if (refused)
		op_answer_later(op, refused);
	else
		op_granted_here(op, result->sandbox, result->repeated);
}

static int fill_lease(struct sp_service_op *op, const char *lease_id, struct sp_err *err)
{
	if (!lease_id) {
		sp_secret_new(op->secret);
		return secret_lease_id(op->secret, op->lease_id) < 0
			       ? sp_err_set(err, -EIO, "hash a secret")
			       : 0;
	}
	if (!sp_lease_id_valid(lease_id))
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "lease must be %d lower-case hex digits", SP_LEASE_ID_LEN);
	memcpy(op->lease_id, lease_id, sizeof(op->lease_id));
	return 0;
}

/* Nobody could write anything. */
static int check_overlays(const struct sp_service *service,
			  const struct sp_service_acquire *request, struct sp_err *err)
{
	for (size_t i = 0; i < request->bind_count; i++)
		if (request->binds[i].mode == SP_BIND_OVERLAY &&
		    !service->config->config->exec_enabled)
			return sp_err_code(err, SP_CODE_EXEC_DISABLED, -EPERM,
					   "an overlay of '%s' would be of no use: exec_enabled "
					   "is false in the configuration",
					   request->binds[i].source);
	return 0;
}

static int op_prepare(struct sp_service_op *op, const struct sp_service_acquire *request,
		      struct sp_err *err)
{
	int status;

	if (op->service->stopping)
		return sp_err_code(err, SP_CODE_UNAVAILABLE, -ESHUTDOWN,
				   "the daemon is shutting down");
	status = daemon_pool_get(op->service, request->pool, &op->pool, err);
	if (status == 0)
		status = fill_lease(op, request->lease_id, err);
	if (status == 0 && request->bind_count > 0) {
		status = check_overlays(op->service, request, err);
		if (status < 0)
			return status;
		status = binds_resolve(op->pool->config, request->binds, request->bind_count,
				       &op->binds, err);
		if (status == 0)
			op->bind_count = request->bind_count;
	}
	return status;
}

/* As sp_pool_acquire(). */
static int ask_pool(struct sp_service_op *op, struct sp_acquire_result *ret_result,
		    struct sp_err *err)
{
	int64_t now_ms = sp_clock_boot_ms();
	int status;

	op->state = OP_QUEUED;
	op->pool->served_ms = now_ms;
	status = sp_pool_acquire(op->pool->policy, &op->wish, now_ms, on_pool_answer, op,
				 ret_result, &op->pending, err);
	daemon_pool_touch(op->pool);
	return status;
}

void op_ask_here(struct sp_service_op *op)
{
	struct sp_acquire_result result = {0};
	struct sp_err err = {0};
	int status;

	op->wish.idle_only = false;
	if (op->wish.wait_ms > 0)
		op->wish.wait_ms = SP_MAX(op->elsewhere.until_ms - sp_clock_boot_ms(), INT64_C(1));
	status = ask_pool(op, &result, &err);
	if (status < 0)
		op_answer_later(op, &err);
	else if (status == 0)
		op_granted_here(op, result.sandbox, result.repeated);
}

/* 1: granted and nothing more to do; 0: under way; negative: refused. */
static int op_start(struct sp_service_op *op, const struct sp_service_acquire *request,
		    struct sandbox_link **ret_sandbox, struct sp_err *err)
{
	struct sp_acquire_result result = {0};
	struct sp_err refused = {0};
	int status = op_prepare(op, request, err);

	if (status < 0)
		return status;
	op->wish = (struct sp_acquire_request){
		.policy = request->policy,
		.wait_ms = request->wait_ms,
		.ttl_ms = request->ttl_ms,
		.min_remaining_ms = request->min_remaining_ms,
		.newest_first = op->service->cluster,
	};
	memcpy(op->wish.lease_id, op->lease_id, sizeof(op->wish.lease_id));
	op->local = request->local;
	op->wish.idle_only = elsewhere_possible(op);
	status = ask_pool(op, &result, &refused);
	if (status < 0 && op->wish.idle_only && refused.code == SP_CODE_POOL_EMPTY)
		return elsewhere_ask(op, err);
	if (status < 0 && err)
		*err = refused;
	if (status != 0)
		return status == 1 ? 0 : status;
	op->repeated = result.repeated;
	op->granted_one = true;
	if (!result.sandbox->backend_data)
		return sp_err_code(err, SP_CODE_SANDBOX_DEAD, -ESRCH, "sandbox '%s' has ended",
				   result.sandbox->id);
	status = attach_binds(op, result.sandbox->backend_data, err);
	if (status == 1)
		*ret_sandbox = result.sandbox->backend_data;
	return status;
}

static struct sp_service_op *op_new(struct sp_service *service)
{
	struct sp_service_op *op = calloc(1, sizeof(*op));

	if (!op)
		return NULL;
	op->service = service;
	op->started_ns = sp_clock_boot_ns();
	sp_deferred_init(&op->answer, on_answer);
	sp_list_append(&service->ops, &op->link);
	return op;
}

int op_check_caller(const struct sp_caller *caller, struct sp_err *err)
{
	if (caller->operator_rights || caller->may_acquire)
		return 0;
	return sp_err_code(err, SP_CODE_UNAUTHORIZED, -EACCES,
			   "this caller may not acquire sandboxes");
}

int op_begin(struct sp_service *service, const struct sp_service_acquire *request,
	     void (*granted)(void *arg, struct sandbox_link *sandbox, const struct sp_err *err),
	     void *arg, struct sp_service_op **ret_op, struct sandbox_link **ret_sandbox,
	     struct sp_err *err)
{
	struct sp_service_op *op = op_new(service);
	int status;

	if (!op)
		return sp_err_set(err, -ENOMEM, "acquire");
	op->granted = granted;
	op->arg = arg;
	status = op_start(op, request, ret_sandbox, err);
	if (status == 0)
		*ret_op = op;
	else
		op_free(op);
	return status;
}

int sp_service_acquire(struct sp_service *service, const struct sp_caller *caller,
		       const struct sp_service_acquire *request, sp_service_acquire_cb *cb,
		       void *arg, struct sp_service_op **ret_op, struct sp_err *err)
{
	struct sandbox_link *granted;
	struct sp_service_op *op;
	int status = op_check_caller(caller, err);

	if (status < 0)
		return status;
	op = op_new(service);
	if (!op)
		return sp_err_set(err, -ENOMEM, "acquire");
	op->cb = cb;
	op->arg = arg;
	status = op_start(op, request, &granted, err);
	if (status < 0) {
		op_free(op);
		return status;
	}
	if (status == 1)
		op_answer_later(op, NULL);
	*ret_op = op;
	return 0;
}

void op_cancel(struct sp_service_op *op)
{
	struct sandbox_link *link;

	if (op->state == OP_ELSEWHERE || op->elsewhere.granted) {
		op_free(op);
		return;
	}
	if (op->pending) {
		sp_acquire_cancel(op->pending, sp_clock_boot_ms());
		daemon_pool_touch(op->pool);
		op_free(op);
		return;
	}
	link = op->granted_one && !op->repeated ? granted_sandbox(op) : NULL;
	op_free(op);
	if (link)
		sandbox_end(link, SP_END_RELEASED);
}

void sp_service_acquire_cancel(struct sp_service_op *op)
{
	op_cancel(op);
}
