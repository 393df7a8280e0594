/*
 * Pause and resume: the whole sandbox is frozen by its cgroup, its processes, memory and
 * connections stay what they are.
 *
 *	RUNNING ─pause─► PAUSING ─frozen─► PAUSED ─resume─► RESUMING ─goes on─► RUNNING
 *	   └───────◄─ failed ─┘               └──────◄─ failed ──┘
 *
 * The answer comes when it is done. A client that leaves earlier calls nothing off. While a sandbox
 * does not run its execd is not answered for (access.c): to a client it is unhealthy, as it is. Its
 * end comes nearer all the same.
 */
#include "supervisor/api/os_lifecycle.h"

#include "pool/base/clock.h"

#include <errno.h>
#include <stdlib.h>

/* A change of state that is under way; belongs to its sandbox. */
struct change {
	struct sp_os_attachment attachment;
	struct sp_os_sandbox *os;   /* it is attached to */
	struct sp_request *request; /* NULL: the client left */
	struct sp_freeze_op *op;
	enum sp_os_state from;
	enum sp_os_state to;
};

static void set_state(struct sp_os_sandbox *os, enum sp_os_state state)
{
	os->state = state;
	os->transition_ms = sp_clock_boot_ms();
}

static void change_free(struct change *change)
{
	sp_os_detach(&change->attachment);
	free(change);
}

static void on_changed(void *arg, const struct sp_err *err)
{
	struct change *change = arg;
	struct sp_request *request = change->request;

	set_state(change->os, err ? change->from : change->to);
	change_free(change);
	if (!request)
		return;
	if (err)
		sp_reply_error(request, err);
	else
		sp_reply_status(request, MHD_HTTP_ACCEPTED);
}

static void on_sandbox_ended(struct sp_os_attachment *attachment)
{
	struct change *change = SP_CONTAINER_OF(attachment, struct change, attachment);
	struct sp_request *request = change->request;
	struct sp_err err = {0};

	sp_service_freeze_cancel(change->op);
	(void)sp_err_code(&err, SP_CODE_NOT_FOUND, -ENOENT, "Sandbox %s not found",
			  change->os->uuid);
	change_free(change);
	if (request)
		sp_reply_error(request, &err);
}

static void on_cancel(struct sp_request *request)
{
	struct change *change = request->operation;

	change->request = NULL;
}

static int begin(struct sp_request *request, struct change *change, bool freeze, struct sp_err *err)
{
	struct sp_os_sandbox *os = request->os;
	const struct sp_caller caller = sp_os_caller(os);

	change->os = os;
	change->from = os->state;
	change->to = freeze ? SP_OS_PAUSED : SP_OS_RUNNING;
	change->attachment.ended = on_sandbox_ended;
	return sp_service_freeze(request->api->service, &caller, os->id, freeze, on_changed, change,
				 &change->op, err);
}

static void change_state(struct sp_request *request, bool freeze)
{
	struct change *change = calloc(1, sizeof(*change));
	struct sp_err err = {0};

	if (!change) {
		(void)sp_err_set(&err, -ENOMEM, "pause or resume");
		sp_reply_error(request, &err);
		return;
	}
	if (begin(request, change, freeze, &err) < 0) {
		free(change);
		sp_reply_error(request, &err);
		return;
	}
	sp_os_attach(request->os, &change->attachment);
	set_state(request->os, freeze ? SP_OS_PAUSING : SP_OS_RESUMING);
	change->request = request;
	if (sp_request_suspend(request, on_cancel, change) < 0)
		change->request = NULL;
}

void sp_handle_os_pause(struct sp_request *request)
{
	if (request->os->state == SP_OS_RUNNING)
		change_state(request, true);
	else
		sp_os_reply_error(request, MHD_HTTP_CONFLICT, "DOCKER::SANDBOX_NOT_RUNNING",
				  "Sandbox %s is %s, not Running", request->os->uuid,
				  sp_os_state_name(request->os->state));
}

void sp_handle_os_resume(struct sp_request *request)
{
	if (request->os->state == SP_OS_PAUSED)
		change_state(request, false);
	else
		sp_os_reply_error(request, MHD_HTTP_CONFLICT, "DOCKER::SANDBOX_NOT_PAUSED",
				  "Sandbox %s is %s, not Paused", request->os->uuid,
				  sp_os_state_name(request->os->state));
}
