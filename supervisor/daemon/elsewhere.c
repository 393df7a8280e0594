/*
 * An acquire that this host's pool had nothing for, in a cluster.
 *
 *	policy                  the other hosts are asked for      and if they have nothing
 *	fail_fast, retry_next   what is idle now                   POOL_EMPTY
 *	wait                    a ticket, for as long as it waits  ACQUIRE_TIMEOUT
 *	create, …_then_create   what is idle now                   our own pool creates
 *
 * A ticket counts as demand of the whole cluster, so any host may serve it, this one too. While the
 * store is away, or when it goes away meanwhile, `wait` waits here; without waiting or creating
 * there is nothing left to try, and the answer is POOL_STATE_STORE_UNAVAILABLE.
 *
 * Binds are paths of this host: an acquire with binds is never answered elsewhere. What the store
 * gives away on this very host is bound here; if it is somebody else's already, the next one is
 * asked for, up to TRIES_MAX times. So it is when what was given away ended before we heard of it,
 * which uses the lease up: one that we drew is drawn anew, one that the client drew is his to
 * replace.
 *
 * After the answer the client claims at the host, and may come too late there, too: nobody but he
 * can know that, because the claim, not the grant, decides whose it is, and it takes his secret.
 */
#include "supervisor/daemon/daemon_private.h"

#include "pool/base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRIES_MAX  8
#define REJECT_MAX (TRIES_MAX * (SP_SANDBOX_ID_LEN + 1))

static bool waits(const struct sp_service_op *op)
{
	return op->wish.policy == SP_ACQUIRE_WAIT && op->wish.wait_ms > 0;
}

static bool creates(const struct sp_service_op *op)
{
	return op->wish.policy == SP_ACQUIRE_CREATE ||
	       op->wish.policy == SP_ACQUIRE_RETRY_NEXT_THEN_CREATE;
}

bool elsewhere_possible(const struct sp_service_op *op)
{
	return op->service->cluster && op->cb && !op->local && op->bind_count == 0;
}

void elsewhere_done(struct sp_service_op *op)
{
	if (op->elsewhere.pending)
		sp_redis_acquire_cancel(op->elsewhere.pending);
	op->elsewhere.pending = NULL;
	sp_buf_done(&op->elsewhere.reject);
}

static void on_answer(void *arg, const struct sp_redis_grant *grant, const struct sp_err *err);

static int ask(struct sp_service_op *op, struct sp_err *err)
{
	struct elsewhere *elsewhere = &op->elsewhere;
	struct sp_redis_wish wish = {
		.pool = op->pool->config->policy.name,
		.lease_id = op->lease_id,
		.policy = waits(op) ? SP_ACQUIRE_WAIT : SP_ACQUIRE_FAIL_FAST,
		.min_remaining_ms = op->wish.min_remaining_ms,
		.ttl_ms = op->wish.ttl_ms,
		.reject = elsewhere->reject.len > 0 ? sp_buf_text(&elsewhere->reject) : NULL,
		.not_here = !waits(op),
	};

	if (waits(op))
		wish.wait_ms = SP_MAX(elsewhere->until_ms - sp_clock_boot_ms(), INT64_C(1));
	op->state = OP_ELSEWHERE;
	return sp_redis_store_acquire(op->service->store, &wish, on_answer, op, &elsewhere->pending,
				      err);
}

static void report(const struct sp_service_op *op, const char *result)
{
	const char *labels[] = {op->pool->config->policy.name,
				sp_acquire_policy_name(op->wish.policy), result};

	sp_metric_add(op->service->metrics.acquire_total, labels, 1);
}

/* Nobody else has one, or nobody can be asked. */
static void refuse(struct sp_service_op *op, const struct sp_err *err)
{
	enum sp_code code = sp_err_client_code(err);
	bool away = code == SP_CODE_POOL_STATE_STORE_UNAVAILABLE;

	if ((away && waits(op)) || ((away || code == SP_CODE_POOL_EMPTY) && creates(op))) {
		op_ask_here(op);
		return;
	}
	report(op, away                              ? "store_unavailable"
		   : code == SP_CODE_POOL_EMPTY      ? "empty"
		   : code == SP_CODE_ACQUIRE_TIMEOUT ? "timeout"
						     : "refused");
	op_answer_later(op, err);
}

/* Another lease in place of one that has ended, if we may and there is time for it. */
static bool draw_lease(struct sp_service_op *op)
{
	struct elsewhere *elsewhere = &op->elsewhere;

	if (op->secret[0] == '\0' || ++elsewhere->tries >= TRIES_MAX ||
	    (waits(op) && sp_clock_boot_ms() >= elsewhere->until_ms))
		return false;
	sp_secret_new(op->secret);
	if (secret_lease_id(op->secret, op->lease_id) < 0)
		return false;
	memcpy(op->wish.lease_id, op->lease_id, sizeof(op->wish.lease_id));
	return true;
}

static void on_refused(struct sp_service_op *op, const struct sp_err *err)
{
	struct sp_err refused = *err;

	if (sp_err_client_code(err) == SP_CODE_LEASE_ENDED && draw_lease(op) &&
	    ask(op, &refused) == 0)
		return;
	refuse(op, &refused);
}

static void try_again(struct sp_service_op *op, const char *rejected_id)
{
	struct elsewhere *elsewhere = &op->elsewhere;
	struct sp_err err = {0};
	int status;

	if (++elsewhere->tries >= TRIES_MAX) {
		(void)sp_err_code(&err, SP_CODE_POOL_ACQUIRE_FAILED, -EAGAIN,
				  "pool '%s': %d candidates were tried, all were somebody else's",
				  op->pool->config->policy.name, TRIES_MAX);
		report(op, "failed");
		op_answer_later(op, &err);
		return;
	}
	status = sp_buf_printf(&elsewhere->reject, "%s%s", elsewhere->reject.len > 0 ? "," : "",
			       rejected_id);
	status = status < 0 ? sp_err_set(&err, status, "acquire") : ask(op, &err);
	if (status < 0)
		refuse(op, &err);
}

/* Our own: bound now, in case we did not hear of it before. */
static void on_granted_here(struct sp_service_op *op, const char *id)
{
	struct sp_sandbox *sandbox = sp_pool_find(op->pool->policy, id);
	struct sp_err err = {0};

	if (sandbox && sp_pool_bind(op->pool->policy, sandbox, op->lease_id, op->wish.ttl_ms,
				    sp_clock_boot_ms(), &err) == 0) {
		daemon_pool_touch(op->pool);
		op_granted_here(op, sandbox, false);
		return;
	}
	daemon_pool_touch(op->pool);
	try_again(op, id);
}

static void on_answer(void *arg, const struct sp_redis_grant *grant, const struct sp_err *err)
{
	struct sp_service_op *op = arg;
	struct elsewhere *elsewhere = &op->elsewhere;
	char id[SP_SANDBOX_ID_LEN + 1];

	elsewhere->pending = NULL;
	if (!grant) {
		on_refused(op, err);
		return;
	}
	(void)snprintf(id, sizeof(id), "%s", grant->sandbox_id);
	if (grant->here) {
		on_granted_here(op, id);
		return;
	}
	elsewhere->granted = true;
	memcpy(elsewhere->id, id, sizeof(id));
	(void)snprintf(elsewhere->host, sizeof(elsewhere->host), "%s", grant->host);
	(void)snprintf(elsewhere->endpoint, sizeof(elsewhere->endpoint), "%s", grant->endpoint);
	elsewhere->remaining_ms = grant->remaining_ms;
	report(op, "elsewhere");
	op_answer_later(op, NULL);
}

int elsewhere_ask(struct sp_service_op *op, struct sp_err *err)
{
	struct sp_err refused = {0};

	sp_buf_init(&op->elsewhere.reject, REJECT_MAX);
	op->elsewhere.until_ms = sp_clock_boot_ms() + op->wish.wait_ms;
	if (ask(op, &refused) < 0)
		refuse(op, &refused);
	SP_UNUSED(err);
	return 0;
}
