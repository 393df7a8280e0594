/*
 * Downloads: GET /files/download (execd) and GET /files (ours), and the diff of an overlay.
 *
 * The file is opened inside the sandbox and read here by the threads of the loop, a piece at a
 * time, as fast as the client takes it. Its size is that of the moment it was opened: what grows is
 * cut there, what shrinks meanwhile cuts the connection, because the promised length cannot be
 * kept. With `offset` or `limit` lines are sent, however long they are, and reading stops behind
 * the last one.
 *
 *	path → open → conditions, range → headers → read → write … (queue full: wait) … → end
 *
 * Conditions are those of RFC 9110, 13 by date; there are no entity tags.
 */
#include "supervisor/api/answer_stream.h"
#include "supervisor/api/byte_range.h"
#include "supervisor/api/files_call.h"
#include "supervisor/api/line_window.h"
#include "supervisor/api/query.h"
#include "supervisor/daemon/overlays.h"

#include "pool/base/fd.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DISPOSITION_MAX   2048u /* a name has 255 bytes, each of which may take six */
#define DATE_MAX          64u
#define CONTENT_RANGE_MAX 96u
/* What is read at a time: all that have read in a turn of the loop copy before it looks at others.
 */
#define PIECE (64u * 1024)

struct download {
	struct sp_files_call call; /* until the headers are out */
	char path[SP_FILE_PATH_MAX];
	bool diff; /* of an overlay, instead of a file */
	bool lines;
	int64_t first_line;
	int64_t line_count;
	struct sp_line_window window;
	struct sp_answer_stream *stream;
	struct sp_file_reader *reader;
	uint64_t offset;
	uint64_t left;
	bool waiting; /* for room in the stream */
};

static void download_free(struct download *download)
{
	sp_file_reader_free(download->reader);
	sp_files_call_done(&download->call);
	free(download);
}

static void download_release(struct sp_files_call *call)
{
	download_free(SP_CONTAINER_OF(call, struct download, call));
}

/* ---- the data ---- */

static void read_next(struct download *download)
{
	size_t len = (size_t)SP_MIN(download->left, (uint64_t)PIECE);

	sp_file_reader_read(download->reader, download->offset, len);
}

static void download_end(struct download *download)
{
	sp_answer_stream_end(download->stream);
	download_free(download);
}

static void on_gone(void *arg)
{
	download_free(arg);
}

static void on_drained(void *arg)
{
	struct download *download = arg;

	if (!download->waiting)
		return;
	download->waiting = false;
	read_next(download);
}

static void on_line_data(void *arg, const char *data, size_t len)
{
	struct download *download = arg;

	if (!sp_answer_stream_write(download->stream, data, len))
		download->waiting = true;
}

/* False: no more is wanted. */
static bool send_piece(struct download *download, const char *data, size_t len)
{
	download->offset += len;
	if (download->lines)
		return sp_line_window_feed(&download->window, data, len);
	download->left -= len;
	if (!sp_answer_stream_write(download->stream, data, len))
		download->waiting = true;
	return download->left > 0;
}

static void on_read(void *arg, const char *data, ssize_t result)
{
	struct download *download = arg;

	if (result < 0 || (result == 0 && !download->lines)) {
		sp_answer_stream_abort(download->stream);
		download_free(download);
	} else if (result == 0 || !send_piece(download, data, (size_t)result)) {
		download_end(download);
	} else if (!download->waiting) {
		read_next(download);
	}
}

static const struct sp_answer_stream_events stream_events = {
	.drained = on_drained,
	.gone = on_gone,
};

/* ---- headers ---- */

static bool is_quotable(const char *name)
{
	for (; *name; name++)
		if (*name < ' ' || *name >= 0x7f || *name == '"' || *name == '\\')
			return false;
	return true;
}

static void percent_encode(const char *name, char *out, size_t size)
{
	static const char as_they_are[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
					  "0123456789-_.~$&+=:@";
	size_t used = 0;

	for (; *name && used + 4 <= size; name++) {
		if (strchr(as_they_are, *name))
			out[used++] = *name;
		else
			used += (size_t)snprintf(out + used, size - used, "%%%02X",
						 (unsigned char)*name);
	}
	out[used] = '\0';
}

/* RFC 6266: what is no plain ASCII stands percent-encoded in both parameters. */
static void write_disposition(const char *path, char *out, size_t size)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	char encoded[DISPOSITION_MAX / 2 - 64];

	if (is_quotable(name)) {
		(void)snprintf(out, size, "attachment; filename=\"%.*s\"", NAME_MAX, name);
		return;
	}
	percent_encode(name, encoded, sizeof(encoded));
	(void)snprintf(out, size, "attachment; filename=\"%s\"; filename*=UTF-8''%s", encoded,
		       encoded);
}

static void write_date(time_t when, char *out, size_t size)
{
	struct tm parts;

	if (!gmtime_r(&when, &parts) ||
	    strftime(out, size, "%a, %d %b %Y %H:%M:%S GMT", &parts) == 0)
		out[0] = '\0';
}

static bool read_date(const char *text, time_t *ret_when)
{
	static const char *const formats[] = {
		"%a, %d %b %Y %H:%M:%S GMT",
		"%A, %d-%b-%y %H:%M:%S GMT",
		"%a %b %d %H:%M:%S %Y",
	};

	for (size_t i = 0; i < SP_ARRAY_SIZE(formats); i++) {
		struct tm parts = {.tm_isdst = 0};
		const char *end = strptime(text, formats[i], &parts);

		if (end && *end == '\0') {
			*ret_when = timegm(&parts);
			return true;
		}
	}
	return false;
}

/* ---- conditions ---- */

static const char *header(const struct sp_request *request, const char *name)
{
	return MHD_lookup_connection_value(request->mhd, MHD_HEADER_KIND, name);
}

/* 0: go on; else the status that is the answer. */
static unsigned int check_conditions(const struct sp_request *request, time_t modified)
{
	const char *if_match = header(request, MHD_HTTP_HEADER_IF_MATCH);
	const char *if_unmodified = header(request, MHD_HTTP_HEADER_IF_UNMODIFIED_SINCE);
	const char *if_none = header(request, MHD_HTTP_HEADER_IF_NONE_MATCH);
	const char *if_modified = header(request, MHD_HTTP_HEADER_IF_MODIFIED_SINCE);
	time_t when;

	if (if_match && strcmp(if_match, "*") != 0)
		return MHD_HTTP_PRECONDITION_FAILED;
	if (!if_match && if_unmodified && read_date(if_unmodified, &when) && modified > when)
		return MHD_HTTP_PRECONDITION_FAILED;
	if (if_none)
		return strcmp(if_none, "*") == 0 ? MHD_HTTP_NOT_MODIFIED : 0;
	if (if_modified && read_date(if_modified, &when) && modified <= when)
		return MHD_HTTP_NOT_MODIFIED;
	return 0;
}

static bool range_applies(const struct sp_request *request, time_t modified)
{
	const char *if_range = header(request, MHD_HTTP_HEADER_IF_RANGE);
	time_t when;

	return !if_range || (read_date(if_range, &when) && when == modified);
}

/* ---- the answer ---- */

/* Everything but the data: 304, 412, 416. */
static void reply_without_data(struct download *download, unsigned int status, const char *name,
			       const char *value)
{
	struct sp_files_call *call = &download->call;
	struct sp_answer_header headers[] = {
		{name, value},
		{MHD_HTTP_HEADER_CONTENT_TYPE, "application/json"},
	};
	bool empty = status == MHD_HTTP_NOT_MODIFIED;
	bool execd = call->request->style == SP_STYLE_EXECD;
	struct sp_answer_stream_events none = {.gone = on_gone};
	struct sp_json_out *out = &call->out;

	sp_json_open(out, NULL, '{');
	sp_json_text(out, "code", execd ? "UNKNOWN" : sp_code_name(SP_CODE_INVALID_ARGUMENT));
	sp_json_text(out, "message",
		     status == MHD_HTTP_RANGE_NOT_SATISFIABLE
			     ? "the file has no such range, or it is malformed"
			     : "the file is not as the request wants it");
	sp_json_close(out, '}');
	if (sp_answer_stream_open(call->request, status, headers, empty ? 1 : 2,
				  empty ? 0 : (int64_t)call->body.len, &none, download,
				  &download->stream) == 0) {
		if (!empty)
			(void)sp_answer_stream_write(download->stream, call->body.data,
						     call->body.len);
		sp_answer_stream_end(download->stream);
	}
	download_free(download);
}

/* Headers, then the data from `offset` on. */
static void begin_answer(struct download *download, unsigned int status,
			 const struct sp_answer_header *headers, size_t count, int64_t length)
{
	/* Without a stream the connection has been dropped. */
	if (sp_answer_stream_open(download->call.request, status, headers, count, length,
				  &stream_events, download, &download->stream) < 0)
		download_free(download);
	else if (length == 0)
		download_end(download);
	else
		read_next(download);
}

static void answer_lines(struct download *download)
{
	static const struct sp_answer_header headers[] = {
		{MHD_HTTP_HEADER_CONTENT_TYPE, "text/plain; charset=utf-8"},
	};

	sp_line_window_init(&download->window, (uint64_t)download->first_line,
			    (uint64_t)download->line_count, on_line_data, download);
	download->left = UINT64_MAX;
	begin_answer(download, MHD_HTTP_OK, headers, SP_ARRAY_SIZE(headers), -1);
}

/* Which part of the file is asked for. A client that adds a range to everything gets an empty file
 * as it is. */
static enum sp_byte_range_outcome choose_range(const struct sp_request *request, uint64_t size,
					       time_t modified, struct sp_byte_range *range,
					       unsigned int *status)
{
	const char *wanted = header(request, MHD_HTTP_HEADER_RANGE);
	enum sp_byte_range_outcome outcome = SP_RANGE_FOUND;

	*range = (struct sp_byte_range){0, size};
	*status = MHD_HTTP_OK;
	if (!wanted || !range_applies(request, modified))
		return outcome;
	outcome = sp_byte_range_parse(wanted, size, range);
	if (outcome == SP_RANGE_UNSATISFIABLE && size == 0)
		return SP_RANGE_FOUND;
	*status = MHD_HTTP_PARTIAL_CONTENT;
	return outcome;
}

static void answer_file(struct download *download, uint64_t size, time_t modified)
{
	struct sp_byte_range range;
	unsigned int status = check_conditions(download->call.request, modified);
	char disposition[DISPOSITION_MAX];
	char content_range[CONTENT_RANGE_MAX];
	char date[DATE_MAX];
	const struct sp_answer_header headers[] = {
		{MHD_HTTP_HEADER_CONTENT_TYPE,
		 download->diff ? "application/gzip" : "application/octet-stream"},
		{MHD_HTTP_HEADER_CONTENT_DISPOSITION, disposition},
		{MHD_HTTP_HEADER_ACCEPT_RANGES, "bytes"},
		{MHD_HTTP_HEADER_LAST_MODIFIED, date},
		{MHD_HTTP_HEADER_CONTENT_RANGE, content_range}, /* only with a part */
	};
	size_t header_count = SP_ARRAY_SIZE(headers);

	write_date(modified, date, sizeof(date));
	if (status != 0) {
		reply_without_data(download, status, MHD_HTTP_HEADER_LAST_MODIFIED, date);
		return;
	}
	if (choose_range(download->call.request, size, modified, &range, &status) !=
	    SP_RANGE_FOUND) {
		(void)snprintf(content_range, sizeof(content_range), "bytes */%" PRIu64, size);
		reply_without_data(download, MHD_HTTP_RANGE_NOT_SATISFIABLE,
				   MHD_HTTP_HEADER_CONTENT_RANGE, content_range);
		return;
	}
	(void)snprintf(content_range, sizeof(content_range),
		       "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, range.start,
		       range.start + range.length - 1, size);
	if (status == MHD_HTTP_OK)
		header_count--;
	write_disposition(download->path, disposition, sizeof(disposition));
	download->offset = range.start;
	download->left = range.length;
	begin_answer(download, status, headers, header_count, (int64_t)range.length);
}

static void reply_no_diff(struct sp_files_call *call, const struct sp_err *err)
{
	struct sp_err fault = *err;

	if (err->code == SP_CODE_FILE_KIND)
		(void)sp_err_code(&fault, SP_CODE_CONFLICT, err->status,
				  "the session's workspace is no overlay");
	else if (err->code == SP_CODE_FILE_FULL)
		(void)sp_err_code(&fault, SP_CODE_PAYLOAD_TOO_LARGE, err->status,
				  "the %s has no room for its diff",
				  call->place.overlay > 0 ? "overlay" : "session");
	sp_files_reply_error(call, &fault);
}

static void on_opened(void *arg, int fd, const struct sp_file_info *info, const struct sp_err *err)
{
	struct download *download = arg;
	struct sp_files_call *call = &download->call;
	struct sp_err fault = {0};

	call->op = NULL;
	sp_files_end_turn(call); /* from here on nothing runs in the sandbox */
	if (!err && sp_file_reader_new(call->api, fd, on_read, download, &download->reader) < 0) {
		(void)sp_err_set(&fault, -ENOMEM, "read '%s'", download->path);
		err = &fault;
	}
	if (err && download->diff)
		reply_no_diff(call, err);
	else if (err)
		sp_files_reply_error(call, err);
	else if (download->lines)
		answer_lines(download);
	else
		answer_file(download, SP_MIN(info->size, (uint64_t)INT64_MAX),
			    (time_t)(info->modified_ns / SP_NS_PER_S));
}

/* ---- the request ---- */

static int read_lines(struct download *download, struct sp_err *err)
{
	struct sp_request *request = download->call.request;
	int have_offset;
	int have_limit;

	download->first_line = 1;
	download->line_count = INT64_MAX;
	have_offset = sp_query_integer(request, "offset", 1, INT64_MAX, &download->first_line, err);
	if (have_offset < 0)
		return have_offset;
	have_limit = sp_query_integer(request, "limit", 1, INT64_MAX, &download->line_count, err);
	if (have_limit < 0)
		return have_limit;
	download->lines = have_offset > 0 || have_limit > 0;
	if (download->lines && header(request, MHD_HTTP_HEADER_RANGE))
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "a Range and lines (offset, limit) exclude each other");
	return 0;
}

static void download_start(struct sp_files_call *call)
{
	struct download *download = SP_CONTAINER_OF(call, struct download, call);
	struct sp_request *request = call->request;
	struct sp_err err = {0};

	if (sp_files_query_path(call, download->path) < 0)
		return;
	if (read_lines(download, &err) < 0 ||
	    sp_file_open(request->api->service, &request->caller, &call->place, download->path,
			 on_opened, download, &call->op, &err) < 0)
		sp_files_reply_error(call, &err);
}

void sp_handle_files_download(struct sp_request *request)
{
	struct download *download = calloc(1, sizeof(*download));
	struct sp_err err = {0};

	if (!download) {
		(void)sp_err_set(&err, -ENOMEM, "read a file");
		sp_reply_error(request, &err);
		return;
	}
	sp_files_call_init(&download->call, request, download_release);
	sp_files_call_run(&download->call, download_start);
}

/* ---- GET /v1/isolated/session/{key}/diff ---- */

static void diff_start(struct sp_files_call *call)
{
	struct download *download = SP_CONTAINER_OF(call, struct download, call);
	struct sp_request *request = call->request;
	struct sp_err err = {0};

	if (call->place.overlay > 0)
		(void)snprintf(download->path, sizeof(download->path), "%s-%" PRIu32 ".tar.gz",
			       request->name, call->place.overlay);
	else
		(void)snprintf(download->path, sizeof(download->path), "%s.tar.gz",
			       request->match.key);
	if (sp_file_diff(request->api->service, &request->caller, &call->place, on_opened, download,
			 &call->op, &err) < 0)
		sp_files_reply_error(call, &err);
}

static void open_diff(struct sp_request *request, uint32_t overlay)
{
	struct download *download = calloc(1, sizeof(*download));
	struct sp_err err = {0};

	if (!download) {
		(void)sp_err_set(&err, -ENOMEM, "read a diff");
		sp_reply_error(request, &err);
		return;
	}
	download->diff = true;
	sp_files_call_init(&download->call, request, download_release);
	download->call.place.overlay = overlay;
	sp_files_call_run(&download->call, diff_start);
}

void sp_handle_isolated_diff(struct sp_request *request)
{
	open_diff(request, 0);
}

/* ---- GET /v1/sandboxes/{id}/overlays/{number}/diff ---- */

void sp_handle_overlay_diff(struct sp_request *request)
{
	struct sp_overlay_info info;
	struct sp_err err = {0};

	if (sp_overlay_get(request->api->service, &request->caller, request->name,
			   request->match.port, &info, &err) < 0)
		sp_reply_error(request, &err);
	else
		open_diff(request, request->match.port);
}
