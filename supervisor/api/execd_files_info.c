/*
 * What is there: GET /files/info, /files/search, /directories/list.
 *
 * A search is a listing without end of depth, filtered by the base names; directories are left out
 * and links are shown and not entered. Entries come in the order of their paths.
 */
#include "supervisor/api/files_call.h"
#include "supervisor/api/glob.h"
#include "supervisor/api/query.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_MAX 256u /* of a path in a message */

/* ---- info ---- */

struct info {
	struct sp_files_call call;
	char **asked; /* as the client put them */
	size_t count;
	size_t next;
};

static void info_release(struct sp_files_call *call)
{
	struct info *info = SP_CONTAINER_OF(call, struct info, call);

	sp_files_call_done(call);
	for (size_t i = 0; i < info->count; i++)
		free(info->asked[i]);
	free(info->asked);
	free(info);
}

/* Asked twice is answered once: the answer is a map. */
static int keep_path(void *arg, const char *value, struct sp_err *err)
{
	struct info *info = arg;
	char **grown;

	for (size_t i = 0; i < info->count; i++)
		if (strcmp(info->asked[i], value) == 0)
			return 0;
	grown = realloc(info->asked, (info->count + 1) * sizeof(*grown));
	if (!grown)
		return sp_err_set(err, -ENOMEM, "read the query");
	info->asked = grown;
	grown[info->count] = strdup(value);
	if (!grown[info->count])
		return sp_err_set(err, -ENOMEM, "read the query");
	info->count++;
	return 0;
}

static void info_next(struct info *info);

static void on_info(void *arg, const struct sp_file_info *found, const struct sp_err *err)
{
	struct info *info = arg;
	struct sp_files_call *call = &info->call;
	char path[SP_FILE_PATH_MAX];
	struct sp_err fault = {0};
	const char *asked = info->asked[info->next];

	call->op = NULL;
	if (!err && (sp_files_path(call->request, asked, path, &fault) < 0 ||
		     sp_files_write_info(call, asked, path, found, &fault) < 0))
		err = &fault;
	if (err) {
		sp_files_reply_error(call, err);
		return;
	}
	info->next++;
	info_next(info);
}

static void info_next(struct info *info)
{
	struct sp_files_call *call = &info->call;
	struct sp_request *request = call->request;
	char path[SP_FILE_PATH_MAX];
	struct sp_err err = {0};

	if (info->next == info->count) {
		sp_json_close(&call->out, '}');
		sp_files_reply_json(call);
		return;
	}
	if (sp_files_path(request, info->asked[info->next], path, &err) < 0 ||
	    sp_file_stat(request->api->service, &request->caller, &call->place, path, on_info, info,
			 &call->op, &err) < 0)
		sp_files_reply_error(call, &err);
}

static void info_accounts(struct sp_files_call *call)
{
	info_next(SP_CONTAINER_OF(call, struct info, call));
}

static void info_start(struct sp_files_call *call)
{
	struct info *info = SP_CONTAINER_OF(call, struct info, call);
	struct sp_err err = {0};

	sp_json_open(&call->out, NULL, '{');
	if (sp_query_each(call->request, "path", keep_path, info, &err) < 0)
		sp_files_reply_error(call, &err);
	else if (info->count == 0)
		info_next(info);
	else
		sp_files_show_accounts(call, info_accounts);
}

static void no_memory(struct sp_request *request)
{
	struct sp_err err = {0};

	(void)sp_err_set(&err, -ENOMEM, "look at files");
	sp_reply_error(request, &err);
}

void sp_handle_files_info(struct sp_request *request)
{
	struct info *info = calloc(1, sizeof(*info));

	if (!info) {
		no_memory(request);
		return;
	}
	sp_files_call_init(&info->call, request, info_release);
	sp_files_call_run(&info->call, info_start);
}

/* ---- listings ---- */

struct listing {
	struct sp_files_call call;
	struct sp_glob glob;
	bool search;
	uint32_t depth;
	char path[SP_FILE_PATH_MAX];
	struct sp_err fault; /* met at an entry; answered when the listing has ended */
};

static void listing_release(struct sp_files_call *call)
{
	struct listing *listing = SP_CONTAINER_OF(call, struct listing, call);

	sp_files_call_done(call);
	sp_glob_done(&listing->glob);
	free(listing);
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static bool is_wanted(struct listing *listing, const char *path, const struct sp_file_info *info)
{
	if (!listing->search)
		return true;
	return info->type != SP_FILE_DIRECTORY && sp_glob_matches(&listing->glob, base_name(path));
}

static void on_entry(void *arg, const char *path, const struct sp_file_info *info)
{
	struct listing *listing = arg;

	if (listing->fault.status == 0 && is_wanted(listing, path, info))
		(void)sp_files_write_info(&listing->call, NULL, path, info, &listing->fault);
	else if (listing->fault.status == 0 && sp_glob_is_spent(&listing->glob))
		(void)sp_err_code(&listing->fault, SP_CODE_INVALID_ARGUMENT, -E2BIG,
				  "bad pattern: it takes too long for so many names");
}

static void listing_reply(struct listing *listing)
{
	struct sp_files_call *call = &listing->call;

	if (listing->fault.status < 0) {
		sp_files_reply_error(call, &listing->fault);
		return;
	}
	sp_json_close(&call->out, ']');
	sp_files_reply_json(call);
}

/* The root of a search is no directory: then it is all there is to find. */
static void on_root(void *arg, const struct sp_file_info *info, const struct sp_err *err)
{
	struct listing *listing = arg;

	listing->call.op = NULL;
	if (err)
		listing->fault = *err;
	else
		on_entry(listing, listing->path, info);
	listing_reply(listing);
}

static void listing_root(struct listing *listing)
{
	struct sp_files_call *call = &listing->call;
	struct sp_request *request = call->request;
	struct sp_err err = {0};

	if (sp_file_stat(request->api->service, &request->caller, &call->place, listing->path,
			 on_root, listing, &call->op, &err) < 0)
		sp_files_reply_error(call, &err);
}

static void on_listed(void *arg, const struct sp_err *err)
{
	struct listing *listing = arg;
	struct sp_files_call *call = &listing->call;
	bool execd = call->request->style == SP_STYLE_EXECD;
	struct sp_err too_many = {0};

	call->op = NULL;
	if (!err) {
		listing_reply(listing);
	} else if (err->code == SP_CODE_FILE_KIND && listing->search) {
		listing_root(listing);
	} else if (err->code == SP_CODE_FILE_KIND && execd) {
		sp_os_reply_error(call->request, MHD_HTTP_BAD_REQUEST, "INVALID_REQUEST_BODY", "%s",
				  err->message);
		sp_files_reply_elsewhere(call);
	} else if (err->code == SP_CODE_TOO_MANY && err->status == -E2BIG) {
		(void)sp_err_code(&too_many, err->code, err->status,
				  "'%.*s' has more than %u entries", (int)SHOWN_MAX, listing->path,
				  SP_FILE_LIST_MAX);
		sp_files_reply_failure(call, &too_many);
	} else {
		sp_files_reply_error(call, err);
	}
}

static const struct sp_file_list_events list_events = {
	.entry = on_entry,
	.done = on_listed,
};

static void listing_accounts(struct sp_files_call *call)
{
	struct listing *listing = SP_CONTAINER_OF(call, struct listing, call);
	struct sp_request *request = call->request;
	struct sp_err err = {0};

	if (sp_file_list(request->api->service, &request->caller, &call->place, listing->path,
			 listing->depth, &list_events, listing, &call->op, &err) < 0)
		sp_files_reply_error(call, &err);
}

/* ---- search ---- */

static int read_pattern(struct listing *listing, struct sp_err *err)
{
	char *pattern = NULL;
	int status = sp_query_text(listing->call.request, "pattern", &pattern, err);

	if (status >= 0)
		status = sp_glob_compile(&listing->glob, pattern && pattern[0] ? pattern : "**",
					 err);
	free(pattern);
	return status;
}

static void search_start(struct sp_files_call *call)
{
	struct listing *listing = SP_CONTAINER_OF(call, struct listing, call);
	struct sp_err err = {0};

	if (sp_files_query_path(call, listing->path) < 0)
		return;
	if (read_pattern(listing, &err) < 0)
		sp_files_reply_failure(call, &err);
	else
		sp_files_show_accounts(call, listing_accounts);
}

/* ---- list ---- */

static void list_start(struct sp_files_call *call)
{
	struct listing *listing = SP_CONTAINER_OF(call, struct listing, call);
	struct sp_err err = {0};
	int64_t depth = 1;

	if (sp_files_query_path(call, listing->path) < 0)
		return;
	if (sp_query_integer(call->request, "depth", 0, INT64_MAX, &depth, &err) < 0) {
		sp_files_reply_error(call, &err);
		return;
	}
	listing->depth = (uint32_t)SP_MIN(depth, (int64_t)UINT32_MAX);
	sp_files_show_accounts(call, listing_accounts);
}

static void listing_begin(struct sp_request *request, bool search)
{
	struct listing *listing = calloc(1, sizeof(*listing));

	if (!listing) {
		no_memory(request);
		return;
	}
	sp_files_call_init(&listing->call, request, listing_release);
	sp_json_open(&listing->call.out, NULL, '[');
	listing->search = search;
	listing->depth = UINT32_MAX;
	sp_files_call_run(&listing->call, search ? search_start : list_start);
}

void sp_handle_files_search(struct sp_request *request)
{
	listing_begin(request, true);
}

void sp_handle_directories_list(struct sp_request *request)
{
	listing_begin(request, false);
}
