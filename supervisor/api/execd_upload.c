/*
 * Uploads: POST /files/upload (multipart/form-data, as the SDKs send it) and PUT /files (the body
 * is the file).
 *
 * The form has pairs of parts, `metadata` (JSON: path, owner, group, mode) and `file`; the n-th of
 * one belongs to the n-th of the other. Data goes into the sandbox as it comes, so a file's
 * metadata must be there before it, which is how every client sends them. At most one file is
 * under way:
 *
 *	file part → [commit of the one before] → [its turn] → [accounts] → [is it new?] → open →
 *data end of the body → commit of the last one → answer
 *
 * A file becomes visible when the part behind it, or the end of the body, has shown that it is
 * whole; until then its cancel leaves nothing. While one of the steps in brackets is under way, or
 * the file takes no more, the client waits.
 *
 * Errors are found while a body comes in and answered when it has ended. Which one is answered is
 * execd's order: is it a form, is there metadata, is there a file, are there as many; then the
 * first pair that is wrong, which also ends the writing.
 */
#include "supervisor/api/files_call.h"
#include "supervisor/api/json_body.h"
#include "supervisor/api/multipart.h"
#include "supervisor/api/query.h"
#include "supervisor/api/request_body.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define METADATA_PART_MAX (64u * 1024)
#define NEW_FILE_MODE     0755u

struct metadata {
	char *path; /* absolute; NULL: `fault` */
	char *owner;
	char *group;
	int64_t mode;
	char *fault;
};

enum part {
	PART_IGNORED, /* also a file that is not written any more */
	PART_METADATA,
	PART_FILE,
};

struct upload {
	struct sp_files_call call;
	bool raw; /* the body is the file */
	struct sp_multipart multipart;
	struct sp_err broken; /* it is no form */
	enum part part;
	struct sp_buf text; /* of a metadata part */
	size_t text_total;
	struct metadata *metadata;
	size_t metadata_count;
	size_t file_count;
	bool unmatched; /* a file came before its metadata */

	struct sp_files_ids ids;     /* of the file that is being opened */
	char path[SP_FILE_PATH_MAX]; /* of a raw one */
	struct sp_file_write *write; /* open: under way, or whole and not committed */
	bool busy;                   /* a step is under way */
	bool full;                   /* the write takes no more */
	bool committing;
	bool ended;       /* the body is over: the commit is the last one */
	const char *code; /* execd's, of `fault`; NULL: RUNTIME_ERROR */
	struct sp_err fault;
};

static void metadata_done(struct metadata *metadata)
{
	free(metadata->path);
	free(metadata->owner);
	free(metadata->group);
	free(metadata->fault);
	*metadata = (struct metadata){.path = NULL};
}

static void cancel_write(struct upload *upload)
{
	if (upload->write)
		sp_file_write_cancel(upload->write);
	upload->write = NULL;
}

static void upload_release(struct sp_files_call *call)
{
	struct upload *upload = SP_CONTAINER_OF(call, struct upload, call);

	cancel_write(upload);
	sp_files_call_done(call);
	for (size_t i = 0; i < upload->metadata_count; i++)
		metadata_done(&upload->metadata[i]);
	free(upload->metadata);
	sp_buf_done(&upload->text);
	free(upload);
}

/* ---- the answer ---- */

static void reply_fault(struct upload *upload, unsigned int status, const char *code,
			const struct sp_err *err)
{
	struct sp_files_call *call = &upload->call;

	if (call->request->style != SP_STYLE_EXECD || !code) {
		sp_files_reply_failure(call, err);
		return;
	}
	sp_os_reply_error(call->request, status, code, "%s", err->message);
	sp_files_reply_elsewhere(call);
}

static void reply_invalid(struct upload *upload, const char *code, const char *message)
{
	struct sp_err err = {0};

	(void)sp_err_code(&err, SP_CODE_INVALID_ARGUMENT, -EINVAL, "%s", message);
	reply_fault(upload, MHD_HTTP_BAD_REQUEST, code, &err);
}

/* True: the form is whole and fits together. */
static bool check_form(struct upload *upload)
{
	struct sp_err err = {0};

	if (upload->broken.status == 0)
		(void)sp_multipart_finish(&upload->multipart, &upload->broken);
	if (upload->broken.status < 0) {
		reply_fault(upload, MHD_HTTP_BAD_REQUEST, "INVALID_FILE", &upload->broken);
	} else if (upload->metadata_count == 0) {
		reply_invalid(upload, "INVALID_FILE_METADATA", "metadata file is missing");
	} else if (upload->file_count == 0) {
		reply_invalid(upload, "INVALID_FILE_CONTENT", "file is missing");
	} else if (upload->metadata_count != upload->file_count) {
		(void)sp_err_code(&err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				  "metadata and file count mismatch: %zu vs %zu",
				  upload->metadata_count, upload->file_count);
		reply_fault(upload, MHD_HTTP_BAD_REQUEST, "INVALID_FILE", &err);
	} else if (upload->unmatched) {
		reply_invalid(upload, "INVALID_FILE_METADATA",
			      "the metadata of a file must come before it");
	} else {
		return true;
	}
	return false;
}

static void commit(struct upload *upload)
{
	upload->committing = true;
	upload->busy = true;
	sp_file_write_commit(upload->write);
}

/* The body is over. */
static void upload_start(struct sp_files_call *call)
{
	struct upload *upload = SP_CONTAINER_OF(call, struct upload, call);

	upload->ended = true;
	if (!upload->raw && !check_form(upload))
		return;
	if (upload->fault.status < 0)
		reply_fault(upload, MHD_HTTP_BAD_REQUEST, upload->code, &upload->fault);
	else if (upload->write) /* else it waits for its turn */
		commit(upload);
}

/* ---- one file ---- */

/* The first fault ends the writing; what still comes is only counted. */
static void fail(struct upload *upload, const char *code, const struct sp_err *err)
{
	if (upload->fault.status == 0) {
		upload->fault = *err;
		upload->code = code;
	}
	cancel_write(upload);
	upload->part = PART_IGNORED;
	sp_request_body_drop(upload->call.request);
}

/* A step is over: the client goes on. */
static void go_on(struct upload *upload)
{
	upload->busy = false;
	sp_request_body_resume(upload->call.request);
}

static void on_drained(void *arg)
{
	struct upload *upload = arg;

	if (!upload->full)
		return;
	upload->full = false;
	sp_request_body_resume(upload->call.request);
}

static void begin_file(struct upload *upload);

static void on_written(void *arg, const struct sp_err *err)
{
	struct upload *upload = arg;
	bool committed = upload->committing;

	upload->write = NULL;
	upload->committing = false;
	upload->full = false;
	if (!upload->ended) {
		if (err)
			fail(upload, NULL, err);
		if (err)
			go_on(upload);
		else if (committed)
			begin_file(upload);
		return;
	}
	if (err)
		sp_files_reply_failure(&upload->call, err);
	else if (upload->raw && upload->call.request->style == SP_STYLE_OWN)
		sp_files_reply_status(&upload->call, MHD_HTTP_NO_CONTENT);
	else
		sp_files_reply_status(&upload->call, MHD_HTTP_OK);
}

static const struct sp_file_write_events write_events = {
	.drained = on_drained,
	.done = on_written,
};

static struct metadata *current(struct upload *upload)
{
	return &upload->metadata[upload->file_count - 1];
}

static struct sp_files_permission permission_of(const struct metadata *metadata)
{
	return (struct sp_files_permission){
		.mode = metadata->mode,
		.owner = metadata->owner,
		.group = metadata->group,
	};
}

static int open_write(struct upload *upload, const char *path, const struct sp_files_ids *ids,
		      struct sp_err *err)
{
	struct sp_files_call *call = &upload->call;

	return sp_file_write_open(call->request->api->service, &call->request->caller, &call->place,
				  path, ids->mode, ids->uid, ids->gid, &write_events, upload,
				  &upload->write, err);
}

static void open_file(struct upload *upload)
{
	struct sp_err err = {0};

	if (open_write(upload, current(upload)->path, &upload->ids, &err) < 0)
		fail(upload, NULL, &err);
	metadata_done(current(upload));
	go_on(upload);
}

static void on_stat(void *arg, const struct sp_file_info *info, const struct sp_err *err)
{
	struct upload *upload = arg;

	SP_UNUSED(info);
	upload->call.op = NULL;
	if (err && err->code == SP_CODE_FILE_NOT_FOUND)
		upload->ids.mode = NEW_FILE_MODE;
	open_file(upload);
}

/* execd's new files may be executed where no mode is given; those that are there keep theirs. */
static void choose_mode(struct sp_files_call *call)
{
	struct upload *upload = SP_CONTAINER_OF(call, struct upload, call);
	struct sp_files_permission permission = permission_of(current(upload));
	struct sp_request *request = call->request;
	struct sp_err err = {0};

	if (sp_files_permission_resolve(call, &permission, &upload->ids, &err) < 0) {
		fail(upload, NULL, &err);
		go_on(upload);
	} else if (upload->ids.mode != SP_FILE_KEEP ||
		   sp_file_stat(request->api->service, &request->caller, &call->place,
				current(upload)->path, on_stat, upload, &call->op, NULL) < 0) {
		open_file(upload);
	}
}

static void find_accounts(struct sp_files_call *call)
{
	struct upload *upload = SP_CONTAINER_OF(call, struct upload, call);
	struct sp_files_permission permission = permission_of(current(upload));

	if (sp_files_permission_needs_accounts(&permission))
		sp_files_load_accounts(call, choose_mode);
	else
		choose_mode(call);
}

/* Nothing of the file before is under way. */
static void begin_file(struct upload *upload)
{
	upload->busy = true;
	if (sp_list_empty(&upload->call.turn))
		sp_files_take_turn(&upload->call, find_accounts);
	else
		find_accounts(&upload->call);
}

static void file_part(struct upload *upload)
{
	struct metadata *metadata;
	struct sp_err err = {0};

	upload->part = PART_IGNORED;
	if (upload->file_count++ >= upload->metadata_count)
		upload->unmatched = true;
	if (upload->unmatched || upload->fault.status < 0)
		return;
	metadata = current(upload);
	if (!metadata->path) {
		(void)sp_err_code(&err, SP_CODE_INVALID_ARGUMENT, -EINVAL, "%s",
				  metadata->fault ? metadata->fault : "no memory for metadata");
		fail(upload, "INVALID_FILE_METADATA", &err);
		return;
	}
	upload->part = PART_FILE;
	if (upload->write)
		commit(upload);
	else
		begin_file(upload);
}

/* ---- metadata ---- */

static int read_metadata(struct upload *upload, struct metadata *metadata, struct sp_err *err)
{
	struct sp_files_permission permission;
	const char *path = "";
	const struct sp_member members[] = {{"path", SP_MEMBER_TEXT, &path, 0, 0}};
	char absolute[SP_FILE_PATH_MAX];
	json_t *root = NULL;
	int status = sp_body_parse_loose(sp_buf_text(&upload->text), upload->text.len, &root, err);

	if (status == 0)
		status = sp_body_read_loose(root, "", members, SP_ARRAY_SIZE(members), err);
	if (status == 0)
		status = sp_files_permission_read(root, "", &permission, err);
	if (status == 0 && path[0] == '\0')
		status = sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				     "metadata path is empty");
	if (status == 0)
		status = sp_files_path(upload->call.request, path, absolute, err);
	if (status == 0) {
		metadata->path = strdup(absolute);
		metadata->owner = strdup(permission.owner ? permission.owner : "");
		metadata->group = strdup(permission.group ? permission.group : "");
		metadata->mode = permission.mode;
		if (!metadata->path || !metadata->owner || !metadata->group)
			status = sp_err_set(err, -ENOMEM, "read the metadata");
	}
	json_decref(root);
	return status;
}

static void not_a_form(struct upload *upload, const struct sp_err *err)
{
	upload->broken = *err;
	fail(upload, "INVALID_FILE", err);
}

static void metadata_end(struct upload *upload)
{
	struct metadata metadata = {.path = NULL};
	struct metadata *grown;
	struct sp_err err = {0};

	grown = realloc(upload->metadata, (upload->metadata_count + 1) * sizeof(*grown));
	if (!grown) {
		(void)sp_err_set(&err, -ENOMEM, "read the metadata");
		not_a_form(upload, &err);
		return;
	}
	upload->metadata = grown;
	if (read_metadata(upload, &metadata, &err) < 0) {
		metadata_done(&metadata);
		metadata.fault = strdup(err.message);
	}
	grown[upload->metadata_count++] = metadata;
	sp_buf_clear(&upload->text);
}

static void metadata_data(struct upload *upload, const char *data, size_t len)
{
	struct sp_err err = {0};

	upload->text_total += len;
	if (upload->text_total <= SP_API_BODY_MAX && sp_buf_append(&upload->text, data, len) == 0)
		return;
	(void)sp_err_code(&err, SP_CODE_PAYLOAD_TOO_LARGE, -E2BIG,
			  "metadata is longer than %u bytes, or than %u in all", METADATA_PART_MAX,
			  SP_API_BODY_MAX);
	not_a_form(upload, &err);
}

/* ---- the form ---- */

static bool form_ready(void *arg)
{
	const struct upload *upload = arg;

	return !upload->busy && !upload->full;
}

static void form_part(void *arg, const struct sp_multipart_part *part)
{
	struct upload *upload = arg;
	struct sp_err err = {0};

	upload->part = PART_IGNORED;
	if (!part->is_file)
		return;
	if (strcmp(part->name, "file") == 0) {
		file_part(upload);
	} else if (strcmp(part->name, "metadata") == 0) {
		upload->part = PART_METADATA;
		if (upload->metadata_count < SP_FILES_ITEMS_MAX)
			return;
		(void)sp_err_code(&err, SP_CODE_PAYLOAD_TOO_LARGE, -E2BIG,
				  "more than %u files in one request", SP_FILES_ITEMS_MAX);
		not_a_form(upload, &err);
	}
}

static size_t write_some(struct upload *upload, const char *data, size_t len)
{
	size_t taken = sp_file_write_data(upload->write, data, len);

	upload->full = taken < len;
	return taken;
}

static size_t form_data(void *arg, const char *data, size_t len)
{
	struct upload *upload = arg;

	switch (upload->part) {
	case PART_FILE:
		return write_some(upload, data, len);
	case PART_METADATA:
		metadata_data(upload, data, len);
		break;
	case PART_IGNORED:
		break;
	}
	return len;
}

static void form_part_end(void *arg)
{
	struct upload *upload = arg;

	if (upload->part == PART_METADATA)
		metadata_end(upload);
	upload->part = PART_IGNORED;
}

static const struct sp_multipart_events form_events = {
	.ready = form_ready,
	.part = form_part,
	.data = form_data,
	.part_end = form_part_end,
};

/* ---- the body ---- */

static size_t upload_data(struct sp_request *request, const char *data, size_t len)
{
	struct upload *upload = request->sink_arg;
	struct sp_err err = {0};
	int64_t used;

	if (upload->broken.status < 0)
		return len;
	if (upload->raw && upload->busy)
		return 0;
	if (upload->raw)
		return upload->fault.status < 0 ? len : write_some(upload, data, len);
	used = sp_multipart_feed(&upload->multipart, data, len, &err);
	if (used >= 0)
		return (size_t)used;
	not_a_form(upload, &err);
	return len;
}

static void upload_gone(struct sp_request *request)
{
	struct upload *upload = request->sink_arg;

	upload_release(&upload->call);
}

static const struct sp_body_sink upload_sink = {
	.data = upload_data,
	.gone = upload_gone,
};

static struct upload *upload_new(struct sp_request *request, struct sp_err *err)
{
	struct upload *upload = calloc(1, sizeof(*upload));

	if (!upload) {
		(void)sp_err_set(err, -ENOMEM, "take an upload");
		return NULL;
	}
	sp_files_call_init(&upload->call, request, upload_release);
	sp_buf_init(&upload->text, METADATA_PART_MAX);
	return upload;
}

int sp_begin_files_upload(struct sp_request *request, struct sp_err *err)
{
	struct upload *upload = upload_new(request, err);
	char boundary[SP_MULTIPART_BOUNDARY_MAX + 1] = "";
	const char *type = MHD_lookup_connection_value(request->mhd, MHD_HEADER_KIND,
						       MHD_HTTP_HEADER_CONTENT_TYPE);

	if (!upload)
		return err->status;
	sp_request_body_take(request, &upload_sink, upload);
	if (sp_multipart_boundary(type, boundary, &upload->broken) < 0)
		sp_request_body_drop(request);
	sp_multipart_init(&upload->multipart, boundary, &form_events, upload);
	return 0;
}

static int read_mode(struct sp_request *request, struct sp_files_call *call,
		     struct sp_files_ids *ids, struct sp_err *err)
{
	struct sp_files_permission permission = {.mode = 0};
	int status = sp_query_integer(request, "mode", 0, 7777, &permission.mode, err);

	return status < 0 ? status : sp_files_permission_resolve(call, &permission, ids, err);
}

/* Its turn has come: perhaps at once, perhaps when the body is over. */
static void open_raw(struct sp_files_call *call)
{
	struct upload *upload = SP_CONTAINER_OF(call, struct upload, call);
	struct sp_err err = {0};

	if (open_write(upload, upload->path, &upload->ids, &err) < 0)
		fail(upload, NULL, &err);
	go_on(upload);
	if (upload->ended)
		upload_start(call);
}

static int read_put(struct upload *upload, struct sp_err *err)
{
	struct sp_request *request = upload->call.request;
	char *text = NULL;
	int status = sp_query_text(request, "path", &text, err);

	if (status == 0)
		status = sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				     "missing query parameter 'path'");
	if (status > 0)
		status = sp_files_path(request, text, upload->path, err);
	if (status == 0)
		status = read_mode(request, &upload->call, &upload->ids, err);
	free(text);
	return status;
}

int sp_begin_files_put(struct sp_request *request, struct sp_err *err)
{
	int status = sp_files_check_sandbox(request, err);
	struct upload *upload = status < 0 ? NULL : upload_new(request, err);

	if (!upload)
		return err->status;
	upload->raw = true;
	status = read_put(upload, err);
	if (status == 0) {
		upload->busy = true;
		sp_files_take_turn(&upload->call, open_raw);
		status = upload->fault.status;
	}
	if (upload->fault.status < 0)
		*err = upload->fault;
	if (status < 0)
		upload_release(&upload->call);
	else
		sp_request_body_take(request, &upload_sink, upload);
	return status;
}

void sp_handle_files_upload(struct sp_request *request)
{
	struct upload *upload = request->sink_arg;

	sp_files_call_run(&upload->call, upload_start);
}

void sp_handle_files_put(struct sp_request *request)
{
	sp_handle_files_upload(request);
}
