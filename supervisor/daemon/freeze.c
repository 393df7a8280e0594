/*
 * Freezing a sandbox: the launcher writes cgroup.freeze of its v2 cgroup, which stops its init too.
 *
 * From the moment that a freeze is asked for until the sandbox is known to go on again it counts as
 * frozen: nothing is started in it, and the timers of its execs only wait (exec_kill.c), because an
 * init that does not run answers nothing and would be taken for a broken one. When it goes on they
 * are set anew. A kill works on what is frozen, so its end comes as ever.
 */
#include "supervisor/daemon/daemon_private.h"

#include "pool/base/clock.h"

#include <errno.h>
#include <stdlib.h>

struct sp_freeze_op {
	struct sp_service *service;
	struct sandbox_link *link;
	bool freeze;
	uint64_t request;         /* to the launcher */
	sp_service_freeze_cb *cb; /* NULL: cancelled */
	void *arg;
};

static void op_free(struct sp_freeze_op *op)
{
	op->link->freezing = NULL;
	launcher_forget(op->service->launcher, op->request);
	free(op);
}

/* Says how it came out and is gone. */
static void op_end(struct sp_freeze_op *op, const struct sp_err *err)
{
	sp_service_freeze_cb *cb = op->cb;
	void *arg = op->arg;

	op_free(op);
	if (cb)
		cb(arg, err);
}

/* What ran when the sandbox was stopped has as much time left as it had then. */
static void go_on(struct sandbox_link *link)
{
	int64_t still_ms = sp_clock_boot_ms() - link->frozen_since_ms;

	link->frozen = false;
	SP_LIST_FOREACH (at, &link->execs) {
		struct sp_exec *exec = SP_CONTAINER_OF(at, struct sp_exec, link);

		if (exec->state != EXEC_SENT && exec->state != EXEC_RUNNING)
			continue;
		exec->stood_still_ms += still_ms;
		exec_arm(exec);
	}
}

static void on_answer(void *arg, const struct sp_launcher_answer *answer, int *fds, size_t fd_count)
{
	struct sp_freeze_op *op = arg;
	struct sp_err err = {0};
	bool done = answer->status == 0;

	SP_UNUSED(fds);
	SP_UNUSED(fd_count);
	op->request = 0;
	if (op->freeze != done)
		go_on(op->link);
	if (answer->status == -EOPNOTSUPP)
		(void)sp_err_code(&err, SP_CODE_UNSUPPORTED, -EOPNOTSUPP,
				  "this host has no cgroup v2 hierarchy, which a freeze needs");
	else if (!done)
		(void)sp_err_set(&err, answer->status, "%s sandbox '%s'",
				 op->freeze ? "freeze" : "thaw", op->link->id);
	op_end(op, done ? NULL : &err);
}

void freeze_forget(struct sandbox_link *link)
{
	struct sp_err err = {0};

	if (!link->freezing)
		return;
	(void)sp_err_code(&err, SP_CODE_SANDBOX_DEAD, -ESRCH, "sandbox '%s' has ended", link->id);
	op_end(link->freezing, &err);
}

static int may_freeze(struct sandbox_link *link, struct sp_err *err)
{
	if (!sandbox_usable(link))
		return sp_err_code(err, SP_CODE_LEASE_ENDED, -ESRCH, "sandbox '%s' has ended",
				   link->id);
	if (link->freezing)
		return sp_err_code(err, SP_CODE_CONFLICT, -EBUSY,
				   "sandbox '%s' is being frozen or thawed", link->id);
	return 0;
}

int sp_service_freeze(struct sp_service *service, const struct sp_caller *caller, const char *id,
		      bool freeze, sp_service_freeze_cb *cb, void *arg,
		      struct sp_freeze_op **ret_op, struct sp_err *err)
{
	struct sandbox_link *link;
	struct sp_freeze_op *op;
	int status = service_find(service, caller, id, &link, err);

	if (status == 0)
		status = may_freeze(link, err);
	if (status < 0)
		return status;
	op = calloc(1, sizeof(*op));
	if (!op)
		return sp_err_set(err, -ENOMEM, "freeze sandbox '%s'", id);
	*op = (struct sp_freeze_op){
		.service = service, .link = link, .freeze = freeze, .cb = cb, .arg = arg};
	status = launcher_command(service->launcher, SP_LAUNCHER_FREEZE, link->slot, link->serial,
				  freeze ? 1 : 0, SP_REQUEST_MS, on_answer, op, &op->request);
	if (status < 0) {
		free(op);
		return sp_err_set(err, status, "ask the launcher to freeze sandbox '%s'", id);
	}
	link->freezing = op;
	if (freeze) {
		link->frozen = true;
		link->frozen_since_ms = sp_clock_boot_ms();
	}
	*ret_op = op;
	return 0;
}

void sp_service_freeze_cancel(struct sp_freeze_op *op)
{
	op->cb = NULL;
}
