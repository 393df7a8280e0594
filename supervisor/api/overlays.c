/*
 * /v1/sandboxes/{id}/overlays: the directories of the host that a sandbox sees through an overlay,
 * and the commit of one. The diff of one is a download (execd_download.c).
 *
 * A commit cannot be called off: when its client leaves, the operation forgets the request and is
 * freed when the service reports.
 */
#include "supervisor/api/api_private.h"

#include "supervisor/api/json_body.h"
#include "supervisor/daemon/overlays.h"

#include <errno.h>
#include <stdlib.h>

/* ---- the list ---- */

static void visit_overlay(void *arg, const struct sp_overlay_info *info)
{
	struct sp_json_out *out = arg;

	sp_json_open(out, NULL, '{');
	sp_json_unsigned(out, "number", info->number);
	sp_json_text(out, "source", info->source);
	sp_json_text(out, "target", info->target);
	sp_json_unsigned(out, "size_bytes", info->size);
	sp_json_text(out, "state", info->ended ? "ended" : info->spoilt ? "spoilt" : "clean");
	if (info->spoilt)
		sp_json_text(out, "reason", info->spoilt);
	sp_json_boolean(out, "read_only", info->read_only);
	sp_json_close(out, '}');
}

void sp_handle_overlay_list(struct sp_request *request)
{
	struct sp_err err = {0};
	struct sp_json_out out;
	struct sp_buf body;

	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&out, &body);
	sp_json_open(&out, NULL, '{');
	sp_json_open(&out, "overlays", '[');
	if (sp_overlay_each(request->api->service, &request->caller, request->name, visit_overlay,
			    &out, &err) < 0) {
		sp_buf_done(&body);
		sp_reply_error(request, &err);
		return;
	}
	sp_json_close(&out, ']');
	sp_json_close(&out, '}');
	sp_reply_written(request, &out);
}

/* ---- commit ---- */

struct commit {
	struct sp_request *request; /* NULL: its client left */
	struct sp_overlay_commit *running;
};

static void commit_forget(struct sp_request *request)
{
	struct commit *commit = request->operation;

	sp_overlay_commit_forget(commit->running);
	free(commit);
}

static void on_committed(void *arg, const struct sp_overlay_committed *committed,
			 const struct sp_err *err)
{
	struct commit *commit = arg;
	struct sp_request *request = commit->request;
	struct sp_json_out out;
	struct sp_buf body;

	free(commit);
	if (err) {
		sp_reply_error(request, err);
		return;
	}
	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&out, &body);
	sp_json_open(&out, NULL, '{');
	sp_json_unsigned(&out, "files", committed->files);
	sp_json_unsigned(&out, "directories", committed->directories);
	sp_json_unsigned(&out, "deleted", committed->deleted);
	sp_json_unsigned(&out, "bytes", committed->bytes);
	if (committed->ended)
		sp_json_boolean(&out, "ended", true);
	sp_json_close(&out, '}');
	sp_reply_written(request, &out);
}

void sp_handle_overlay_commit(struct sp_request *request)
{
	struct commit *commit = calloc(1, sizeof(*commit));
	struct sp_err err = {0};
	int status = commit ? 0 : sp_err_set(&err, -ENOMEM, "commit");

	if (status == 0)
		status = sp_body_expect_empty(sp_buf_text(&request->body), request->body.len, &err);
	if (status == 0) {
		commit->request = request;
		status = sp_overlay_commit(request->api->service, &request->caller, request->name,
					   request->match.port, on_committed, commit,
					   &commit->running, &err);
	}
	if (status < 0) {
		free(commit);
		sp_reply_error(request, &err);
	} else if (sp_request_suspend(request, commit_forget, commit) < 0) {
		sp_overlay_commit_forget(commit->running);
		free(commit);
	}
}
