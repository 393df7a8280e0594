/*
 * POST /files/replace: every occurrence of a text in some files becomes another.
 *
 * A file goes through here piece by piece, from the sandbox and back into it, however large it is.
 * It is read once up to the first occurrence, so that one without any is not written at all, and
 * then from the beginning into a new content that replaces the old one at once; mode and owner
 * stay.
 *
 *	file → open → read … first occurrence → open for writing → read, write … → commit → next
 *	                └─ none: next
 */
#include "supervisor/api/files_call.h"
#include "supervisor/api/json_body.h"
#include "supervisor/api/query.h"
#include "supervisor/api/text_replace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct replacing {
	struct sp_files_call call;
	bool verbose;
	json_t *body;
	void *item; /* jansson's iterator */
	char path[SP_FILE_PATH_MAX];

	/* Of the current file. */
	struct sp_file_reader *reader;
	struct sp_text_replace text;
	uint64_t offset;
	bool searching; /* for the first occurrence */
	bool end;       /* of the file was read */
	struct sp_file_write *write;
	bool full;
	const char *run; /* to be written */
	size_t run_len;
};

static void file_done(struct replacing *replacing)
{
	if (replacing->write)
		sp_file_write_cancel(replacing->write);
	replacing->write = NULL;
	sp_file_reader_free(replacing->reader);
	replacing->reader = NULL;
	sp_text_replace_done(&replacing->text);
}

static void replacing_release(struct sp_files_call *call)
{
	struct replacing *replacing = SP_CONTAINER_OF(call, struct replacing, call);

	file_done(replacing);
	sp_files_call_done(call);
	json_decref(replacing->body);
	free(replacing);
}

static void fail(struct replacing *replacing, int status, const char *what)
{
	struct sp_err err = {0};

	(void)sp_err_set(&err, status, "%s '%s'", what, replacing->path);
	sp_files_reply_error(&replacing->call, &err);
}

/* ---- files, one after the other ---- */

static void next_file(struct replacing *replacing);

static void file_finished(struct replacing *replacing)
{
	struct sp_json_out *out = &replacing->call.out;

	if (replacing->verbose) {
		sp_json_open(out, json_object_iter_key(replacing->item), '{');
		sp_json_unsigned(out, "replacedCount", replacing->text.count);
		sp_json_close(out, '}');
	}
	file_done(replacing);
	replacing->item = json_object_iter_next(replacing->body, replacing->item);
	next_file(replacing);
}

static void begin_pass(struct replacing *replacing, bool searching)
{
	const json_t *item = json_object_iter_value(replacing->item);
	const json_t *from = json_object_get(item, "old");
	const json_t *to = json_object_get(item, "new");

	sp_text_replace_done(&replacing->text);
	sp_text_replace_init(&replacing->text, json_string_value(from), json_string_length(from),
			     json_is_string(to) ? json_string_value(to) : "",
			     json_is_string(to) ? json_string_length(to) : 0);
	replacing->searching = searching;
	replacing->offset = 0;
	replacing->end = false;
	replacing->run_len = 0;
	sp_file_reader_read(replacing->reader, 0, SP_FILE_READER_SIZE);
}

/* ---- writing ---- */

static void go_on(struct replacing *replacing);

static void on_drained(void *arg)
{
	struct replacing *replacing = arg;

	if (!replacing->full)
		return;
	replacing->full = false;
	go_on(replacing);
}

static void on_written(void *arg, const struct sp_err *err)
{
	struct replacing *replacing = arg;

	replacing->write = NULL;
	if (err)
		sp_files_reply_error(&replacing->call, err);
	else
		file_finished(replacing);
}

static const struct sp_file_write_events write_events = {
	.drained = on_drained,
	.done = on_written,
};

static void begin_writing(struct replacing *replacing)
{
	struct sp_files_call *call = &replacing->call;
	struct sp_err err = {0};

	replacing->full = false;
	if (sp_file_write_open(call->api->service, &call->request->caller, &call->place,
			       replacing->path, SP_FILE_KEEP, SP_FILE_KEEP, SP_FILE_KEEP,
			       &write_events, replacing, &replacing->write, &err) < 0)
		sp_files_reply_error(call, &err);
	else
		begin_pass(replacing, false);
}

/* False: the file takes no more for now. */
static bool write_run(struct replacing *replacing)
{
	size_t taken = sp_file_write_data(replacing->write, replacing->run, replacing->run_len);

	replacing->run += taken;
	replacing->run_len -= taken;
	replacing->full = replacing->run_len > 0;
	return !replacing->full;
}

/* Use up what was read. */
static void go_on(struct replacing *replacing)
{
	struct sp_text_replace *text = &replacing->text;

	if (replacing->run_len > 0 && !write_run(replacing))
		return;
	while (sp_text_replace_next(text, replacing->end, &replacing->run, &replacing->run_len)) {
		if (!replacing->searching && !write_run(replacing))
			return;
		replacing->run_len = 0;
	}
	if (replacing->searching && text->count > 0)
		begin_writing(replacing);
	else if (!replacing->end)
		sp_file_reader_read(replacing->reader, replacing->offset, SP_FILE_READER_SIZE);
	else if (replacing->searching)
		file_finished(replacing);
	else
		sp_file_write_commit(replacing->write);
}

/* ---- reading ---- */

static void on_read(void *arg, const char *data, ssize_t result)
{
	struct replacing *replacing = arg;

	if (result < 0) {
		fail(replacing, (int)result, "read");
	} else if (sp_text_replace_feed(&replacing->text, data, (size_t)result) < 0) {
		fail(replacing, -ENOMEM, "search");
	} else {
		replacing->offset += (uint64_t)result;
		replacing->end = result == 0;
		go_on(replacing);
	}
}

static void on_opened(void *arg, int fd, const struct sp_file_info *info, const struct sp_err *err)
{
	struct replacing *replacing = arg;
	struct sp_files_call *call = &replacing->call;

	SP_UNUSED(info);
	call->op = NULL;
	if (err)
		sp_files_reply_error(call, err);
	else if (sp_file_reader_new(call->api, fd, on_read, replacing, &replacing->reader) < 0)
		fail(replacing, -ENOMEM, "read");
	else
		begin_pass(replacing, true);
}

static void next_file(struct replacing *replacing)
{
	struct sp_files_call *call = &replacing->call;
	struct sp_err err = {0};

	if (!replacing->item && replacing->verbose) {
		sp_json_close(&call->out, '}');
		sp_files_reply_json(call);
	} else if (!replacing->item) {
		sp_files_reply_status(call, MHD_HTTP_OK);
	} else if (sp_files_path(call->request, json_object_iter_key(replacing->item),
				 replacing->path, &err) < 0 ||
		   sp_file_open(call->api->service, &call->request->caller, &call->place,
				replacing->path, on_opened, replacing, &call->op, &err) < 0) {
		sp_files_reply_error(call, &err);
	}
}

/* ---- the request ---- */

/* All of it is judged before the first file is touched. */
static int check_items(const json_t *body, struct sp_err *err)
{
	json_t *mutable_body = (json_t *)(uintptr_t)body;
	const char *key;
	json_t *value;

	json_object_foreach (mutable_body, key, value) {
		const char *from = "";
		const char *to = "";
		const struct sp_member members[] = {
			{"old", SP_MEMBER_TEXT, &from, 0, 0},
			{"new", SP_MEMBER_TEXT, &to, 0, 0},
		};
		int status = sp_body_read_loose(value, key, members, SP_ARRAY_SIZE(members), err);

		if (status < 0)
			return status;
		if (from[0] == '\0')
			return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
					   "old content must not be empty");
	}
	return 0;
}

static void replacing_start(struct sp_files_call *call)
{
	struct replacing *replacing = SP_CONTAINER_OF(call, struct replacing, call);
	struct sp_err err = {0};
	char *verbose = NULL;
	int status;

	if (sp_files_body(call, false, &replacing->body) < 0)
		return;
	status = sp_query_text(call->request, "verbose", &verbose, &err);
	replacing->verbose = verbose && strcmp(verbose, "true") == 0;
	free(verbose);
	if (status >= 0)
		status = check_items(replacing->body, &err);
	if (status < 0) {
		sp_files_reply_error(call, &err);
		return;
	}
	if (replacing->verbose)
		sp_json_open(&call->out, NULL, '{');
	replacing->item = json_object_iter(replacing->body);
	next_file(replacing);
}

void sp_handle_files_replace(struct sp_request *request)
{
	struct replacing *replacing = calloc(1, sizeof(*replacing));
	struct sp_err err = {0};

	if (!replacing) {
		(void)sp_err_set(&err, -ENOMEM, "replace in files");
		sp_reply_error(request, &err);
		return;
	}
	sp_files_call_init(&replacing->call, request, replacing_release);
	sp_files_call_run(&replacing->call, replacing_start);
}
