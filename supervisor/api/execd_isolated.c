/*
 * Isolated sessions: a session of the daemon (daemon/isolated.h), in which a driver
 * (execd_session.c) runs code, one run after the other.
 *
 *	OPENING ──► ACTIVE ──its first process died──► DEAD ──1 min──► gone
 *	   └─ failed, client left ──► gone     ACTIVE, DEAD ──deleted, idle for too long──► gone
 *
 * A run that ends by its time limit, by its client leaving, or badly, leaves the session and what
 * it had as they were. A session is never collected while something runs in it.
 */
#include "supervisor/api/execd_isolated.h"

#include "pool/base/clock.h"
#include "supervisor/api/json_body.h"
#include "supervisor/api/os_values.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define DEAD_KEPT_MS      (60 * SP_MS_PER_S)
#define RUN_TIMEOUT_MAX_S (SP_EXEC_TIMEOUT_MAX_MS / SP_MS_PER_S)

struct isolated {
	struct sp_list link; /* in execd->isolated */
	struct sp_execd *execd;
	char id[SP_OS_UUID_LEN + 1];
	struct sp_isolated_wish wish;
	struct sp_isolated *inside;  /* NULL: dead */
	struct sp_session *session;  /* NULL: opening */
	struct sp_request *request;  /* opening: who waits */
	struct sp_file_op *recovery; /* opening: a commit that was cut off is completed first */
	bool recovered;
	struct sp_isolated_commit *commit; /* nothing else may happen meanwhile */
	const char *spoilt; /* what a run ended by whose changes are nobody's result; NULL: none */
	uint64_t runs;
	uint64_t spoilt_run;
	int64_t created_ms; /* wall clock, for people */
	int64_t last_run_ms;
	int64_t used_boot_ms;
	int64_t died_boot_ms;
};

/* ---- life ---- */

static void isolated_free(struct isolated *isolated)
{
	sp_list_remove(&isolated->link);
	isolated->execd->isolated_count--;
	if (isolated->recovery)
		sp_file_op_cancel(isolated->recovery);
	if (isolated->commit)
		sp_isolated_commit_orphan(isolated->commit);
	if (isolated->session)
		sp_session_free(isolated->session);
	if (isolated->inside)
		sp_isolated_close(isolated->inside);
	sp_isolated_wish_done(&isolated->wish);
	free(isolated);
}

void sp_isolated_end(struct sp_execd *execd)
{
	struct isolated *isolated;
	struct sp_err err = {0};

	(void)sp_err_code(&err, SP_CODE_SANDBOX_DEAD, -ESRCH, "the sandbox has ended");
	while ((isolated = SP_LIST_FIRST(&execd->isolated, struct isolated, link))) {
		struct sp_request *request = isolated->request;

		isolated_free(isolated);
		if (request)
			sp_reply_error(request, &err);
	}
}

/* Nobody knows how far one has come that did not end by itself. */
static void on_run_ended(void *arg, enum sp_exec_reason reason)
{
	struct isolated *isolated = arg;

	isolated->runs++;
	if (!isolated->spoilt && reason != SP_EXEC_EXITED && reason != SP_EXEC_START_FAILED) {
		isolated->spoilt = sp_exec_reason_name(reason);
		isolated->spoilt_run = isolated->runs;
	}
	isolated->last_run_ms = sp_clock_wall_ms();
	isolated->used_boot_ms = sp_clock_boot_ms();
}

static bool is_idle(const struct isolated *isolated, int64_t now_ms)
{
	return isolated->session && isolated->wish.idle_timeout_s > 0 && !isolated->commit &&
	       !sp_session_is_busy(isolated->session) &&
	       now_ms - isolated->used_boot_ms > isolated->wish.idle_timeout_s * SP_MS_PER_S;
}

void sp_isolated_sweep(const struct sp_os_sandbox *os, int64_t now_ms)
{
	struct sp_execd *execd = sp_execd_find(os);

	if (!execd)
		return;
	SP_LIST_FOREACH_SAFE (link, following, &execd->isolated) {
		struct isolated *isolated = SP_CONTAINER_OF(link, struct isolated, link);
		bool dead = isolated->session && !isolated->inside;

		if (is_idle(isolated, now_ms) ||
		    (dead && now_ms - isolated->died_boot_ms > DEAD_KEPT_MS))
			isolated_free(isolated);
	}
}

static struct isolated *find(struct sp_execd *execd, const char *id)
{
	SP_LIST_FOREACH (link, &execd->isolated) {
		struct isolated *isolated = SP_CONTAINER_OF(link, struct isolated, link);

		if (isolated->session && strcmp(isolated->id, id) == 0)
			return isolated;
	}
	return NULL;
}

static struct isolated *isolated_of(struct sp_request *request)
{
	struct sp_execd *execd = sp_execd_of(request);
	struct isolated *isolated;

	if (!execd)
		return NULL;
	isolated = find(execd, request->match.key);
	if (!isolated)
		sp_os_reply_error(request, MHD_HTTP_NOT_FOUND, "SESSION_NOT_FOUND",
				  "isolated session not found: %s", request->match.key);
	return isolated;
}

/* ---- create ---- */

static void write_time(struct sp_json_out *out, const char *key, int64_t wall_ms)
{
	char text[SP_OS_TIME_MAX];

	sp_os_format_time(wall_ms, text);
	sp_json_text(out, key, text);
}

/* Into the open object. Their escapes are jansson's business. */
static void write_echo(struct sp_json_out *out, const struct isolated *isolated)
{
	const char *key;
	json_t *value;

	json_object_foreach (isolated->wish.echo, key, value) {
		char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);

		if (!text) {
			out->status = -ENOMEM;
			return;
		}
		sp_json_raw(out, key, text, strlen(text));
		free(text);
	}
}

static void reply_created(struct sp_request *request, const struct isolated *isolated)
{
	struct sp_json_out out;
	struct sp_buf body;

	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&out, &body);
	sp_json_open(&out, NULL, '{');
	sp_json_text(&out, "session_id", isolated->id);
	write_time(&out, "created_at", isolated->created_ms);
	write_echo(&out, isolated);
	sp_json_close(&out, '}');
	if (out.status < 0)
		sp_reply_written(request, &out);
	else
		sp_reply_json(request, MHD_HTTP_CREATED, &body);
	sp_buf_done(&body);
}

/* A path that cannot be had is 400, with the code of what went wrong at run time. */
static void refuse(struct sp_request *request, const struct sp_err *err)
{
	if (err->code == SP_CODE_INVALID_ARGUMENT)
		sp_os_reply_error(request, MHD_HTTP_BAD_REQUEST, "RUNTIME_ERROR", "%s",
				  err->message);
	else
		sp_reply_error(request, err);
}

static int start_driver(struct isolated *isolated, struct sp_err *err)
{
	const struct sp_session_owner owner = {
		.number = sp_isolated_number(isolated->inside),
		.cwd = isolated->wish.spec.workspace,
		.env = isolated->wish.env,
		.envc = isolated->wish.envc,
		.uid = isolated->wish.spec.uid,
		.gid = isolated->wish.spec.gid,
		.run_ended = on_run_ended,
		.arg = isolated,
	};

	isolated->session = sp_session_new_isolated(isolated->execd, isolated->id, &owner, err);
	return isolated->session ? 0 : -ENOMEM;
}

static int begin_recovery(struct isolated *isolated, const struct sp_request *request,
			  struct sp_err *err);

static void on_opened(void *arg, const struct sp_err *refused)
{
	struct isolated *isolated = arg;
	struct sp_request *request = isolated->request;
	struct sp_err err = {0};

	isolated->request = NULL;
	if (refused) {
		err = *refused;
		isolated->inside = NULL;
		if (refused->status == -EUCLEAN && !isolated->recovered &&
		    begin_recovery(isolated, request, &err) == 0) {
			isolated->request = request;
			return;
		}
	} else if (start_driver(isolated, &err) == 0) {
		reply_created(request, isolated);
		return;
	}
	isolated_free(isolated);
	refuse(request, &err);
}

/* What ran in it ends by itself, and says so. */
static void on_ended(void *arg)
{
	struct isolated *isolated = arg;

	isolated->inside = NULL;
	isolated->died_boot_ms = sp_clock_boot_ms();
}

static const struct sp_isolated_events events = {.opened = on_opened, .ended = on_ended};

static int open_inside(struct isolated *isolated, const struct sp_request *request,
		       struct sp_err *err)
{
	return sp_isolated_open(request->api->service, &request->caller, request->os->id,
				&isolated->wish.spec, &events, isolated, &isolated->inside, err);
}

static void on_recovered(void *arg, const struct sp_err *failed)
{
	struct isolated *isolated = arg;
	struct sp_request *request = isolated->request;
	struct sp_err err = failed ? *failed : (struct sp_err){0};

	isolated->recovery = NULL;
	isolated->recovered = true;
	if (!failed && open_inside(isolated, request, &err) == 0)
		return;
	isolated->request = NULL;
	isolated_free(isolated);
	refuse(request, &err);
}

/* A commit to the workspace was cut off, by the end of a sandbox or of the host. */
static int begin_recovery(struct isolated *isolated, const struct sp_request *request,
			  struct sp_err *err)
{
	const struct sp_file_place place = {
		.sandbox = request->os->id,
		.uid = isolated->wish.spec.uid,
		.gid = isolated->wish.spec.gid,
	};

	return sp_file_recover(request->api->service, &request->caller, &place,
			       isolated->wish.spec.workspace, on_recovered, isolated,
			       &isolated->recovery, err);
}

static void on_creator_left(struct sp_request *request)
{
	isolated_free(request->operation);
}

static struct isolated *isolated_new(struct sp_execd *execd)
{
	struct isolated *isolated = calloc(1, sizeof(*isolated));

	if (!isolated)
		return NULL;
	isolated->execd = execd;
	sp_os_uuid_new(isolated->id);
	isolated->created_ms = sp_clock_wall_ms();
	isolated->last_run_ms = isolated->created_ms;
	isolated->used_boot_ms = sp_clock_boot_ms();
	sp_list_append(&execd->isolated, &isolated->link);
	execd->isolated_count++;
	return isolated;
}

/* 1: what is wrong is in the body. */
static int begin(struct isolated *isolated, struct sp_request *request, struct sp_err *err)
{
	int status = sp_isolated_wish_read(&isolated->wish, request->os,
					   sp_buf_text(&request->body), request->body.len, err);

	if (status < 0)
		return 1;
	return open_inside(isolated, request, err);
}

void sp_handle_isolated_create(struct sp_request *request)
{
	struct sp_execd *execd = sp_execd_of(request);
	struct isolated *isolated;
	struct sp_err err = {0};
	int status;

	if (!execd)
		return;
	isolated = isolated_new(execd);
	if (!isolated) {
		(void)sp_err_set(&err, -ENOMEM, "make an isolated session");
		sp_reply_error(request, &err);
		return;
	}
	status = begin(isolated, request, &err);
	if (status != 0) {
		isolated_free(isolated);
		if (status > 0)
			sp_reply_error(request, &err);
		else
			refuse(request, &err);
		return;
	}
	isolated->request = request;
	if (sp_request_suspend(request, on_creator_left, isolated) < 0) {
		isolated->request = NULL;
		isolated_free(isolated);
	}
}

/* ---- get, list, delete ---- */

static void write_state(struct sp_json_out *out, const struct isolated *isolated)
{
	int64_t idle_s = (sp_clock_boot_ms() - isolated->used_boot_ms) / SP_MS_PER_S;
	int64_t limit_s = isolated->wish.idle_timeout_s;

	sp_json_text(out, "status", isolated->inside ? "active" : "dead");
	write_time(out, "created_at", isolated->created_ms);
	write_time(out, "last_run_at", isolated->last_run_ms);
	if (limit_s > 0)
		sp_json_integer(out, "idle_remaining_seconds",
				SP_MAX(limit_s - idle_s, INT64_C(0)));
}

void sp_handle_isolated_list(struct sp_request *request)
{
	struct sp_execd *execd = sp_execd_of(request);
	struct sp_json_out out;
	struct sp_buf body;

	if (!execd)
		return;
	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&out, &body);
	sp_json_open(&out, NULL, '{');
	sp_json_open(&out, "sessions", '[');
	SP_LIST_FOREACH (link, &execd->isolated) {
		const struct isolated *isolated = SP_CONTAINER_OF(link, struct isolated, link);

		if (!isolated->session)
			continue;
		sp_json_open(&out, NULL, '{');
		sp_json_text(&out, "session_id", isolated->id);
		write_state(&out, isolated);
		sp_json_close(&out, '}');
	}
	sp_json_close(&out, ']');
	sp_json_close(&out, '}');
	sp_reply_written(request, &out);
}

void sp_handle_isolated_get(struct sp_request *request)
{
	const struct isolated *isolated = isolated_of(request);
	struct sp_json_out out;
	struct sp_buf body;

	if (!isolated)
		return;
	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&out, &body);
	sp_json_open(&out, NULL, '{');
	sp_json_text(&out, "session_id", isolated->id);
	write_state(&out, isolated);
	write_echo(&out, isolated);
	sp_json_close(&out, '}');
	sp_reply_written(request, &out);
}

static bool check_not_committed(const struct isolated *isolated, struct sp_request *request)
{
	if (isolated->commit)
		sp_os_reply_error(request, MHD_HTTP_CONFLICT, "CONFLICT",
				  "the session is being committed");
	return !isolated->commit;
}

void sp_handle_isolated_delete(struct sp_request *request)
{
	struct isolated *isolated = isolated_of(request);

	if (!isolated || !check_not_committed(isolated, request))
		return;
	isolated_free(isolated);
	sp_reply_status(request, MHD_HTTP_OK);
}

/* ---- run ---- */

static const char dead_text[] = "isolated session is not active: session process has exited";
static const struct sp_events_owner no_owner; /* its stream ends in the turn that opens it */

static void fail_dead(struct sp_request *request, const struct isolated *isolated)
{
	struct sp_events *stream;

	if (sp_events_open(request, isolated->id, &no_owner, NULL, &stream) < 0)
		return;
	sp_events_fail(stream, &(struct sp_event_error){.name = "RuntimeError",
							.value = dead_text,
							.text = dead_text});
}

static void run(struct sp_request *request, const json_t *root)
{
	const char *code = NULL;
	json_t *envs = NULL;
	int64_t timeout_s = 0;
	const struct sp_member members[] = {
		{"code", SP_MEMBER_TEXT, &code, 0, 0},
		{"envs", SP_MEMBER_OBJECT, &envs, 0, 0},
		{"timeout_seconds", SP_MEMBER_INTEGER, &timeout_s, 0, RUN_TIMEOUT_MAX_S},
	};
	struct isolated *isolated;
	struct sp_err err = {0};
	int status = sp_body_read_loose(root, "", members, SP_ARRAY_SIZE(members), &err);

	if (status == 0 && (!code || code[0] == '\0'))
		status = sp_err_code(&err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				     "'code' is required and not empty");
	if (status < 0) {
		sp_reply_error(request, &err);
		return;
	}
	isolated = isolated_of(request);
	if (!isolated)
		return;
	if (!isolated->inside) {
		fail_dead(request, isolated);
		return;
	}
	if (!check_not_committed(isolated, request))
		return;
	isolated->used_boot_ms = sp_clock_boot_ms();
	sp_session_run_isolated(isolated->session, request, code, envs, timeout_s * SP_MS_PER_S);
}

void sp_handle_isolated_run(struct sp_request *request)
{
	json_t *root = NULL;
	struct sp_err err = {0};

	if (sp_body_parse_loose(sp_buf_text(&request->body), request->body.len, &root, &err) < 0)
		sp_reply_error(request, &err);
	else
		run(request, root);
	json_decref(root);
}

/* ---- capabilities ---- */

/* message NULL: there is nothing to say. */
static void reply_capabilities(struct sp_request *request, bool available, bool overlay,
			       const char *message)
{
	struct sp_json_out out;
	struct sp_buf body;

	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&out, &body);
	sp_json_open(&out, NULL, '{');
	sp_json_boolean(&out, "available", available);
	sp_json_text(&out, "isolator", available ? "sandpool" : "");
	sp_json_text(&out, "version", available ? SP_VERSION : "");
	if (message)
		sp_json_text(&out, "message", message);
	sp_json_boolean(&out, "setpriv_available", available);
	sp_json_boolean(&out, "userns_available", false);
	sp_json_boolean(&out, "commit_supported", overlay);
	sp_json_boolean(&out, "diff_supported", overlay);
	sp_json_close(&out, '}');
	sp_reply_written(request, &out);
}

static void reply_available(struct sp_request *request, enum sp_execd_probe found)
{
	bool overlay = found == SP_PROBE_ALL;

	reply_capabilities(request, true, overlay,
			   overlay ? NULL
				   : "workspaces of mode overlay need a kernel of 6.6 or later");
}

/* There are none, and the answer says why; or it cannot be told now, which is an error. */
static void reply_unavailable(struct sp_request *request, const struct sp_err *err)
{
	if (err->code == SP_CODE_UNAVAILABLE || err->code == SP_CODE_UNSUPPORTED ||
	    err->code == SP_CODE_INTERNAL)
		reply_capabilities(request, false, false, err->message);
	else
		sp_reply_error(request, err);
}

/* What the kernel says to a session as large as they come, and to one without overlay. A refusal is
 * not remembered: a reload, or less in the sandbox, may change it. */
struct probe {
	struct sp_execd *execd;
	struct sp_request *request;
	struct sp_isolated *inside;
	struct sp_isolated_spec spec;
};

static void probe_free(struct probe *probe)
{
	if (probe->inside)
		sp_isolated_close(probe->inside);
	free(probe);
}

static void on_probe_left(struct sp_request *request)
{
	probe_free(request->operation);
}

static int probe_start(struct probe *probe, struct sp_err *err);

static void on_probed(void *arg, const struct sp_err *refused)
{
	struct probe *probe = arg;
	struct sp_request *request = probe->request;
	bool overlay = probe->spec.mode == SP_ISOLATED_OVERLAY;
	enum sp_execd_probe found = overlay ? SP_PROBE_ALL : SP_PROBE_NO_OVERLAY;
	struct sp_err err = {0};

	if (refused) {
		probe->inside = NULL;
		err = *refused;
	}
	if (refused && overlay && refused->code == SP_CODE_UNSUPPORTED) {
		probe->spec.mode = SP_ISOLATED_RO;
		if (probe_start(probe, &err) == 0)
			return;
	}
	if (!refused && !request->os->ended)
		probe->execd->isolation = found;
	probe_free(probe);
	if (refused)
		reply_unavailable(request, &err);
	else
		reply_available(request, found);
}

static void on_probe_ended(void *arg)
{
	SP_UNUSED(arg); /* it was closed when it was open */
}

static const struct sp_isolated_events probe_events = {
	.opened = on_probed,
	.ended = on_probe_ended,
};

static int probe_start(struct probe *probe, struct sp_err *err)
{
	struct sp_request *request = probe->request;

	return sp_isolated_open(request->api->service, &request->caller, request->os->id,
				&probe->spec, &probe_events, probe, &probe->inside, err);
}

static int probe_new(struct sp_request *request, struct sp_execd *execd, struct sp_err *err)
{
	struct probe *probe = calloc(1, sizeof(*probe));
	int status;

	if (!probe)
		return sp_err_set(err, -ENOMEM, "try an isolated session");
	probe->execd = execd;
	probe->request = request;
	probe->spec = (struct sp_isolated_spec){
		.workspace = "/tmp",
		.mode = SP_ISOLATED_OVERLAY,
		.private_tmp = true,
		.own_network = true,
		.uid = -1,
		.gid = -1,
	};
	status = probe_start(probe, err);
	if (status < 0) {
		free(probe);
		return status;
	}
	if (sp_request_suspend(request, on_probe_left, probe) < 0)
		probe_free(probe);
	return 0;
}

void sp_handle_isolated_capabilities(struct sp_request *request)
{
	struct sp_execd *execd = sp_execd_of(request);
	struct sp_err err = {0};

	if (!execd)
		return;
	if (execd->isolation != SP_PROBE_UNKNOWN)
		reply_available(request, execd->isolation);
	else if (probe_new(request, execd, &err) < 0)
		reply_unavailable(request, &err);
}

/* ---- commit ---- */

static int check_commit(const struct isolated *isolated, struct sp_err *err)
{
	if (!isolated->inside)
		return sp_err_code(err, SP_CODE_SANDBOX_DEAD, -ESRCH, dead_text);
	if (isolated->wish.spec.mode != SP_ISOLATED_OVERLAY)
		return sp_err_code(err, SP_CODE_CONFLICT, -EINVAL,
				   "the session's workspace is no overlay");
	if (isolated->commit)
		return sp_err_code(err, SP_CODE_CONFLICT, -EBUSY, "the session is being committed");
	if (sp_session_is_busy(isolated->session))
		return sp_err_code(err, SP_CODE_CONFLICT, -EBUSY,
				   "a run is going on in the session");
	if (isolated->spoilt)
		return sp_err_code(err, SP_CODE_CONFLICT, -ECANCELED,
				   "run %" PRIu64
				   " of the session did not end by itself (%s): what it has "
				   "changed cannot be committed",
				   isolated->spoilt_run, isolated->spoilt);
	return 0;
}

static void on_committed(void *arg, bool closed)
{
	struct isolated *isolated = arg;

	isolated->commit = NULL;
	isolated->used_boot_ms = sp_clock_boot_ms();
	if (!closed || !isolated->inside)
		return;
	sp_isolated_close(isolated->inside);
	on_ended(isolated);
}

void sp_handle_isolated_commit(struct sp_request *request)
{
	struct isolated *isolated = isolated_of(request);
	struct sp_err err = {0};
	struct sp_file_place place;

	if (!isolated)
		return;
	if (check_commit(isolated, &err) < 0) {
		sp_isolated_commit_refuse(request, &err);
		return;
	}
	place = (struct sp_file_place){
		.sandbox = request->os->id,
		.session = sp_isolated_number(isolated->inside),
		.uid = isolated->wish.spec.uid,
		.gid = isolated->wish.spec.gid,
	};
	isolated->commit = sp_isolated_commit_start(request, &place, on_committed, isolated);
}

/* ---- files ---- */

int sp_isolated_enter(struct sp_request *request, struct sp_err *err)
{
	struct sp_execd *execd = sp_execd_find(request->os);
	const struct isolated *isolated = execd ? find(execd, request->match.key) : NULL;

	if (!isolated)
		return sp_err_code(err, SP_CODE_NOT_FOUND, -ENOENT,
				   "isolated session not found: %s", request->match.key);
	if (!isolated->inside)
		return sp_err_code(err, SP_CODE_SANDBOX_DEAD, -ESRCH, dead_text);
	if (isolated->commit)
		return sp_err_code(err, SP_CODE_CONFLICT, -EBUSY, "the session is being committed");
	request->isolated = calloc(1, sizeof(*request->isolated));
	if (!request->isolated)
		return sp_err_set(err, -ENOMEM, "files of an isolated session");
	request->isolated->number = sp_isolated_number(isolated->inside);
	request->isolated->uid = isolated->wish.spec.uid;
	request->isolated->gid = isolated->wish.spec.gid;
	/* The daemon has checked its length. */
	(void)snprintf(request->isolated->workspace, sizeof(request->isolated->workspace), "%s",
		       isolated->wish.spec.workspace);
	return 0;
}
