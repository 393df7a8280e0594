/*
 * The commit of an isolated session's overlay.
 *
 *	WRITE_BACK ──► RENEW ──► answered
 *	    └── refused ────────────┘
 *
 * Both are operations inside the sandbox (daemon/files.h). What has been written back is, also if
 * there is no fresh upper for the session to go on with: then it ends, and the answer says so.
 */
#include "supervisor/api/execd_isolated.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct sp_isolated_commit {
	struct sp_api *api;
	struct sp_request *request; /* NULL: its client left */
	char sandbox[SP_SANDBOX_ID_LEN + 1];
	struct sp_file_place place;
	struct sp_file_counts counts;
	sp_isolated_committed_cb *cb; /* NULL: there is no session any more */
	void *arg;
};

static const struct sp_caller ourselves = {.operator_rights = true};

/* ---- answers ---- */

void sp_isolated_commit_refuse(struct sp_request *request, const struct sp_err *err)
{
	unsigned int status = 0;
	const char *code = "RUNTIME_ERROR";

	if (err->code == SP_CODE_CONFLICT) {
		status = MHD_HTTP_CONFLICT;
		code = "CONFLICT";
	} else if (err->code == SP_CODE_FILE_DENIED) {
		status = MHD_HTTP_FORBIDDEN;
	} else if (err->code == SP_CODE_FILE_FULL) {
		status = MHD_HTTP_INSUFFICIENT_STORAGE;
	} else if (err->code == SP_CODE_TOO_MANY) {
		/* Of changes, not of requests. */
		status = err->status == -E2BIG ? MHD_HTTP_CONTENT_TOO_LARGE
					       : MHD_HTTP_TOO_MANY_REQUESTS;
	}
	if (status == 0)
		sp_reply_error(request, err);
	else
		sp_os_reply_error(request, status, code, "%s", err->message);
}

static void reply_committed(struct sp_request *request, const struct sp_file_counts *counts,
			    bool closed)
{
	struct sp_json_out out;
	struct sp_buf body;

	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&out, &body);
	sp_json_open(&out, NULL, '{');
	sp_json_unsigned(&out, "files", counts->files);
	sp_json_unsigned(&out, "directories", counts->directories);
	sp_json_unsigned(&out, "deleted", counts->deleted);
	sp_json_unsigned(&out, "bytes", counts->bytes);
	if (closed) {
		sp_json_boolean(&out, "closed", true);
		sp_json_text(&out, "message",
			     "committed; the session has ended, because its workspace could not be "
			     "mounted anew");
	}
	sp_json_close(&out, '}');
	sp_reply_written(request, &out);
}

/* ---- its life ---- */

static void over(struct sp_isolated_commit *commit, bool closed, const struct sp_err *err)
{
	struct sp_request *request = commit->request;
	const struct sp_file_counts counts = commit->counts;

	if (commit->cb)
		commit->cb(commit->arg, closed);
	free(commit);
	if (request && err)
		sp_isolated_commit_refuse(request, err);
	else if (request)
		reply_committed(request, &counts, closed);
}

static void on_renewed(void *arg, const struct sp_err *err)
{
	over(arg, err != NULL, NULL);
}

static void on_written_back(void *arg, const struct sp_file_counts *counts,
			    const struct sp_err *err)
{
	struct sp_isolated_commit *commit = arg;
	struct sp_file_op *op;
	struct sp_err failed = {0};

	if (err) {
		over(commit, false, err);
		return;
	}
	commit->counts = *counts;
	if (!commit->cb || sp_file_renew(commit->api->service, &ourselves, &commit->place, false,
					 on_renewed, commit, &op, &failed) < 0)
		over(commit, true, NULL);
}

static void on_client_left(struct sp_request *request)
{
	struct sp_isolated_commit *commit = request->operation;

	commit->request = NULL;
}

void sp_isolated_commit_orphan(struct sp_isolated_commit *commit)
{
	commit->cb = NULL;
}

struct sp_isolated_commit *sp_isolated_commit_start(struct sp_request *request,
						    const struct sp_file_place *place,
						    sp_isolated_committed_cb *cb, void *arg)
{
	struct sp_isolated_commit *commit = calloc(1, sizeof(*commit));
	struct sp_file_op *op;
	struct sp_err err = {0};
	int status = commit ? 0 : sp_err_set(&err, -ENOMEM, "commit a session");

	if (commit) {
		*commit = (struct sp_isolated_commit){.api = request->api,
						      .request = request,
						      .place = *place,
						      .cb = cb,
						      .arg = arg};
		(void)snprintf(commit->sandbox, sizeof(commit->sandbox), "%s", place->sandbox);
		commit->place.sandbox = commit->sandbox;
		status = sp_file_write_back(request->api->service, &request->caller, &commit->place,
					    on_written_back, commit, &op, &err);
	}
	if (status < 0) {
		free(commit);
		sp_isolated_commit_refuse(request, &err);
		return NULL;
	}
	if (sp_request_suspend(request, on_client_left, commit) < 0)
		commit->request = NULL;
	return commit;
}
