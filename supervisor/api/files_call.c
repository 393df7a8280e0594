/*
 * What the sandbox says is shown, never believed: names of accounts come from its own files, times
 * and sizes are numbers, names that are not UTF-8 have U+FFFD where they are not.
 *
 * Answers grow while a listing comes in. All that are under way share SP_API_PLAIN_TOTAL_MAX with
 * the plain execs; what goes beyond is an error, not memory.
 */
#include "supervisor/api/files_call.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"
#include "supervisor/api/file_path.h"
#include "supervisor/api/json_body.h"
#include "supervisor/api/os_sandboxes.h"
#include "supervisor/api/query.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MODE_MASK 0777u

/* ---- life ---- */

void sp_files_call_init(struct sp_files_call *call, struct sp_request *request,
			void (*release)(struct sp_files_call *call))
{
	call->api = request->api;
	call->request = request;
	call->release = release;
	call->place = (struct sp_file_place){
		.sandbox = request->os ? request->os->id : request->name,
		.uid = -1,
		.gid = -1,
	};
	if (request->isolated) {
		call->place.session = request->isolated->number;
		call->place.uid = request->isolated->uid;
		call->place.gid = request->isolated->gid;
	}
	sp_list_init(&call->turn);
	sp_buf_init(&call->text, SP_ACCOUNTS_SIZE_MAX);
	sp_buf_init(&call->body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&call->out, &call->body);
}

void sp_files_call_done(struct sp_files_call *call)
{
	if (call->op)
		sp_file_op_cancel(call->op);
	sp_file_reader_free(call->reader);
	sp_account_set_unref(call->accounts);
	sp_buf_done(&call->text);
	sp_buf_done(&call->body);
	call->api->plain_bytes -= call->charged;
	sp_files_end_turn(call);
}

/* ---- turns ---- */

static bool is_of(const struct sp_files_call *call, const char *sandbox)
{
	return strcmp(call->place.sandbox, sandbox) == 0;
}

static bool has_room(const struct sp_api *api, const char *sandbox)
{
	size_t running = 0;

	SP_LIST_FOREACH (link, &api->files_running)
		running += is_of(SP_CONTAINER_OF(link, struct sp_files_call, turn), sandbox);
	return running < SP_FILES_CALLS_MAX;
}

static struct sp_files_call *longest_waiting(const struct sp_api *api, const char *sandbox)
{
	SP_LIST_FOREACH (link, &api->files_waiting) {
		struct sp_files_call *call = SP_CONTAINER_OF(link, struct sp_files_call, turn);

		if (is_of(call, sandbox))
			return call;
	}
	return NULL;
}

static void begin_turn(struct sp_files_call *call)
{
	sp_list_append(&call->api->files_running, &call->turn);
}

/* One of this sandbox's is over. One that is given its turn may end at once and give it on; that is
 * done here as well. */
static void give_turns(struct sp_api *api, const char *sandbox)
{
	struct sp_files_call *call;

	if (api->files_granting)
		return;
	api->files_granting = true;
	while ((call = longest_waiting(api, sandbox)) && has_room(api, sandbox)) {
		void (*start)(struct sp_files_call *) = call->on_turn;

		call->on_turn = NULL;
		sp_list_remove(&call->turn);
		begin_turn(call);
		start(call);
	}
	api->files_granting = false;
}

void sp_files_take_turn(struct sp_files_call *call, void (*start)(struct sp_files_call *call))
{
	if (has_room(call->api, call->place.sandbox)) {
		begin_turn(call);
		start(call);
	} else {
		call->on_turn = start;
		sp_list_append(&call->api->files_waiting, &call->turn);
	}
}

void sp_files_end_turn(struct sp_files_call *call)
{
	bool had_it = !call->on_turn && !sp_list_empty(&call->turn);
	char sandbox[SP_SANDBOX_ID_LEN + 1];

	call->on_turn = NULL;
	sp_list_remove(&call->turn);
	if (!had_it)
		return;
	/* Its request may go with it. */
	(void)snprintf(sandbox, sizeof(sandbox), "%s", call->place.sandbox);
	give_turns(call->api, sandbox);
}

static void on_cancel(struct sp_request *request)
{
	struct sp_files_call *call = request->operation;

	call->release(call);
}

static void finish(struct sp_files_call *call)
{
	if (call->starting)
		call->finished = true;
	else
		call->release(call);
}

/* Also a request that asks for nothing is about somebody's sandbox. Those of execd's were let in by
 * access.c. */
int sp_files_check_sandbox(const struct sp_request *request, struct sp_err *err)
{
	struct sp_sandbox_info info;

	if (request->os)
		return 0;
	return sp_service_inspect(request->api->service, &request->caller, request->name, &info,
				  err);
}

void sp_files_call_run(struct sp_files_call *call, void (*start)(struct sp_files_call *call))
{
	struct sp_err err = {0};

	call->starting = true;
	if (sp_files_check_sandbox(call->request, &err) < 0)
		sp_files_reply_error(call, &err);
	else if (sp_list_empty(&call->turn))
		sp_files_take_turn(call, start);
	else
		start(call);
	call->starting = false;
	if (call->finished || sp_request_suspend(call->request, on_cancel, call) < 0)
		call->release(call);
}

/* ---- ends ---- */

void sp_files_reply_error(struct sp_files_call *call, const struct sp_err *err)
{
	sp_reply_error(call->request, err);
	finish(call);
}

void sp_files_reply_status(struct sp_files_call *call, unsigned int status)
{
	sp_reply_status(call->request, status);
	finish(call);
}

void sp_files_reply_failure(struct sp_files_call *call, const struct sp_err *err)
{
	if (call->request->style == SP_STYLE_EXECD)
		sp_os_reply_error(call->request, MHD_HTTP_INTERNAL_SERVER_ERROR, "RUNTIME_ERROR",
				  "%s", err->message);
	else
		sp_reply_error(call->request, err);
	finish(call);
}

void sp_files_reply_json(struct sp_files_call *call)
{
	struct sp_request *request = call->request;

	if (call->out.status == 0) {
		call->api->plain_bytes -= call->charged;
		call->charged = 0;
		sp_request_count_answer(request, call->body.len);
	}
	sp_reply_written(request, &call->out);
	finish(call);
}

void sp_files_reply_elsewhere(struct sp_files_call *call)
{
	finish(call);
}

/* ---- paths ---- */

struct variables {
	const struct sp_request *request;
	const char *home;
};

static const char *find_variable(void *arg, const char *name, size_t len)
{
	static const struct {
		const char *name;
		const char *value;
	} defaults[] = {
		{"PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		{"LANG", "C.UTF-8"},
	};

	const struct variables *variables = arg;
	const struct sp_os_sandbox *os = variables->request->os;

	for (size_t i = os->envc; i > 0; i--)
		if (strncmp(os->env[i - 1], name, len) == 0 && os->env[i - 1][len] == '=')
			return os->env[i - 1] + len + 1;
	if (len == strlen("HOME") && memcmp(name, "HOME", len) == 0)
		return variables->home;
	for (size_t i = 0; i < SP_ARRAY_SIZE(defaults); i++)
		if (strlen(defaults[i].name) == len && memcmp(defaults[i].name, name, len) == 0)
			return defaults[i].value;
	return NULL;
}

/* A pool without a sandbox has no places of its own. */
static bool is_direct(const struct sp_request *request)
{
	const char *id = request->os ? request->os->id : request->name;
	struct sp_sandbox_info sandbox;
	struct sp_pool_info pool;

	return sp_service_inspect(request->api->service, &request->caller, id, &sandbox, NULL) ==
		       0 &&
	       sp_service_pool(request->api->service, sandbox.pool, &pool, NULL) == 0 &&
	       pool.config->direct;
}

/* In an isolated session every path is one of its workspace, absolute ones as well. */
static int isolated_path(const struct sp_isolated_place *place, const char *text, char *out,
			 struct sp_err *err)
{
	const char *workspace = place->workspace;
	size_t len = strlen(workspace);
	char rooted[SP_FILE_PATH_MAX];
	int status = sp_file_path_clean(text, workspace, out, SP_FILE_PATH_MAX, err);

	while (len > 1 && workspace[len - 1] == '/')
		len--;
	if (status < 0 || len == 1 ||
	    (strncmp(out, workspace, len) == 0 && (out[len] == '\0' || out[len] == '/')))
		return status;
	if (text[0] != '/')
		return sp_err_code(err, SP_CODE_FILE_DENIED, -EPERM,
				   "path '%.350s' leads out of the workspace", text);
	if ((size_t)snprintf(rooted, sizeof(rooted), "%.*s%s", (int)len, workspace, out) >=
	    sizeof(rooted))
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -ENAMETOOLONG,
				   "path '%.350s…' is too long", text);
	return sp_file_path_clean(rooted, workspace, out, SP_FILE_PATH_MAX, err);
}

int sp_files_path(const struct sp_request *request, const char *text, char *out, struct sp_err *err)
{
	bool plain = text[0] == '/' && (!request->os || !strchr(text, '$'));
	bool direct = !plain && is_direct(request);
	char expanded[SP_FILE_PATH_MAX];
	struct variables variables = {
		.request = request,
		.home = direct ? "/" : "/home/user",
	};

	if (request->isolated)
		return isolated_path(request->isolated, text, out, err);
	if (request->os && !plain) {
		int status = sp_file_path_expand(text, find_variable, &variables, expanded,
						 sizeof(expanded), err);

		if (status < 0)
			return status;
		text = expanded;
	}
	return sp_file_path_clean(text, direct ? "/" : "/workspace", out, SP_FILE_PATH_MAX, err);
}

int sp_files_query_path(struct sp_files_call *call, char *out)
{
	struct sp_request *request = call->request;
	struct sp_err err = {0};
	char *text = NULL;
	int status = sp_query_text(request, "path", &text, &err);

	if (status > 0 && text[0] == '\0')
		status = 0;
	if (status > 0) {
		status = sp_files_path(request, text, out, &err);
	} else if (status == 0) {
		status = sp_err_code(&err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				     "missing query parameter 'path'");
		if (request->style == SP_STYLE_EXECD) {
			sp_os_reply_error(request, MHD_HTTP_BAD_REQUEST, "MISSING_QUERY", "%s",
					  err.message);
			finish(call);
			free(text);
			return status;
		}
	}
	free(text);
	if (status < 0)
		sp_files_reply_error(call, &err);
	return status;
}

/* ---- accounts ---- */

static void load_next(struct sp_files_call *call);

/* Without memory for them nobody is known, as if there was no file. */
static void accounts_loaded(struct sp_files_call *call)
{
	sp_file_reader_free(call->reader);
	call->reader = NULL;
	(void)sp_account_file_read(call->loading, sp_buf_text(&call->text), call->text.len);
	sp_buf_clear(&call->text);
	load_next(call);
}

/* A read that fails is the end of the file: what is there counts. */
static void on_accounts_read(void *arg, const char *data, ssize_t result)
{
	struct sp_files_call *call = arg;
	size_t room = SP_ACCOUNTS_SIZE_MAX - call->text.len;

	if (result < 0)
		call->loading->steady = false;
	if (result > 0 && sp_buf_append(&call->text, data, SP_MIN((size_t)result, room)) == 0 &&
	    call->text.len < SP_ACCOUNTS_SIZE_MAX)
		sp_file_reader_read(call->reader, call->text.len, SP_FILE_READER_SIZE);
	else
		accounts_loaded(call);
}

static void on_accounts_open(void *arg, int fd, const struct sp_file_info *info,
			     const struct sp_err *err)
{
	struct sp_files_call *call = arg;

	call->op = NULL;
	if (err)
		sp_account_file_missing(call->loading, err);
	else
		sp_account_file_opened(call->loading, info, call->opened_ms);
	/* Whatever else is wrong with the sandbox, the operation itself will say. */
	if (err) {
		accounts_loaded(call);
	} else if (sp_file_reader_new(call->api, fd, on_accounts_read, call, &call->reader) < 0) {
		call->loading->steady = false;
		accounts_loaded(call);
	} else {
		sp_file_reader_read(call->reader, 0, SP_FILE_READER_SIZE);
	}
}

static void load_next(struct sp_files_call *call)
{
	struct sp_request *request = call->request;
	struct sp_account_set *set = call->accounts;
	const char *path;

	if (!set || call->loading == &set->groups) {
		call->loading = NULL;
		if (set)
			sp_account_cache_put(&call->api->accounts, set);
		call->accounts_ready(call);
		return;
	}
	path = call->loading ? "/etc/group" : "/etc/passwd";
	call->loading = call->loading ? &set->groups : &set->users;
	call->opened_ms = sp_clock_wall_ms();
	if (sp_file_open(request->api->service, &request->caller, &call->place, path,
			 on_accounts_open, call, &call->op, NULL) < 0)
		accounts_loaded(call);
}

static void load_accounts(struct sp_files_call *call)
{
	call->accounts = sp_account_set_new(&call->place);
	load_next(call);
}

void sp_files_load_accounts(struct sp_files_call *call, void (*ready)(struct sp_files_call *call))
{
	if (call->accounts_ready) {
		ready(call);
		return;
	}
	call->accounts_ready = ready;
	load_accounts(call);
}

/* What the helper of the call's own operation found, before it did anything. */
static void on_accounts_seen(void *arg, const struct sp_file_info *users,
			     const struct sp_file_info *groups)
{
	struct sp_files_call *call = arg;

	call->place.accounts = NULL;
	if (sp_account_set_is(call->accounts, users, groups))
		return;
	sp_file_op_cancel(call->op);
	call->op = NULL;
	sp_account_cache_drop(&call->api->accounts, call->accounts);
	sp_account_set_unref(call->accounts);
	load_accounts(call);
}

void sp_files_show_accounts(struct sp_files_call *call, void (*ready)(struct sp_files_call *call))
{
	call->accounts = sp_account_cache_find(&call->api->accounts, &call->place);
	call->accounts_ready = ready;
	if (!call->accounts) {
		load_accounts(call);
		return;
	}
	call->place.accounts = on_accounts_seen;
	call->place.accounts_arg = call;
	ready(call);
}

/* ---- FileInfo ---- */

static const char *type_name(enum sp_file_type type)
{
	switch (type) {
	case SP_FILE_REGULAR:
		return "file";
	case SP_FILE_DIRECTORY:
		return "directory";
	case SP_FILE_SYMLINK:
		return "symlink";
	case SP_FILE_OTHER:
		break;
	}
	return "other";
}

/* "755" for 0755, as a number. */
static int64_t octal_as_decimal(uint32_t mode)
{
	return (mode >> 6 & 7) * 100 + (mode >> 3 & 7) * 10 + (mode & 7);
}

/* RFC 3339 in UTC. Every 64-bit count of nanoseconds lies within four digits of a year. */
static void write_time(struct sp_json_out *out, const char *key, int64_t time_ns)
{
	int64_t nanoseconds = time_ns % SP_NS_PER_S;
	time_t seconds = (time_t)(time_ns / SP_NS_PER_S);
	struct tm parts;
	char text[64];

	if (nanoseconds < 0) {
		nanoseconds += SP_NS_PER_S;
		seconds--;
	}
	if (!gmtime_r(&seconds, &parts)) {
		sp_json_null(out, key);
		return;
	}
	(void)snprintf(text, sizeof(text), "%04d-%02d-%02dT%02d:%02d:%02d.%09dZ",
		       parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour,
		       parts.tm_min, parts.tm_sec, (int)nanoseconds);
	sp_json_text(out, key, text);
}

/* file NULL: nobody is known. */
static void write_account(struct sp_json_out *out, const char *key,
			  const struct sp_account_file *file, uint32_t id)
{
	const char *name = file ? sp_accounts_name(&file->names, id) : NULL;
	char number[16];

	(void)snprintf(number, sizeof(number), "%u", id);
	sp_json_text(out, key, name ? name : number);
}

/* Count what was added since the last time. */
static int charge(struct sp_files_call *call, struct sp_err *err)
{
	struct sp_api *api = call->api;
	size_t grown = call->body.len - call->charged;

	if (call->out.status < 0)
		return sp_err_set(err, call->out.status, "write the answer");
	if (api->plain_bytes + grown > SP_API_PLAIN_TOTAL_MAX)
		return sp_err_code(err, SP_CODE_UNAVAILABLE, -ENOBUFS,
				   "the answers under way take %u bytes, which is all there is",
				   SP_API_PLAIN_TOTAL_MAX);
	api->plain_bytes += grown;
	call->charged += grown;
	return 0;
}

int sp_files_write_info(struct sp_files_call *call, const char *key, const char *path,
			const struct sp_file_info *info, struct sp_err *err)
{
	const struct sp_account_set *accounts = call->accounts;
	struct sp_json_out *out = &call->out;

	sp_json_open(out, key, '{');
	sp_json_text(out, "path", path);
	sp_json_text(out, "type", type_name(info->type));
	sp_json_unsigned(out, "size", SP_MIN(info->size, (uint64_t)INT64_MAX));
	write_time(out, "modified_at", info->modified_ns);
	write_time(out, "created_at", info->changed_ns);
	write_account(out, "owner", accounts ? &accounts->users : NULL, info->uid);
	write_account(out, "group", accounts ? &accounts->groups : NULL, info->gid);
	sp_json_integer(out, "mode", octal_as_decimal(info->mode));
	sp_json_close(out, '}');
	return charge(call, err);
}

/* ---- bodies ---- */

static int check_body(const json_t *body, bool array, struct sp_err *err)
{
	size_t count = array ? json_array_size(body) : json_object_size(body);

	if (json_is_null(body))
		return 0;
	if (array ? !json_is_array(body) : !json_is_object(body))
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL, "the body is no JSON %s",
				   array ? "array" : "object");
	if (count > SP_FILES_ITEMS_MAX)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -E2BIG,
				   "the body has more than %u items", SP_FILES_ITEMS_MAX);
	return 0;
}

int sp_files_body(struct sp_files_call *call, bool array, json_t **ret_body)
{
	struct sp_request *request = call->request;
	struct sp_err err = {0};
	json_t *body = NULL;
	int status =
		sp_body_parse_loose(sp_buf_text(&request->body), request->body.len, &body, &err);

	if (status == 0)
		status = check_body(body, array, &err);
	if (status < 0) {
		json_decref(body);
		sp_files_reply_error(call, &err);
		return status;
	}
	*ret_body = body;
	return 0;
}

int sp_files_permission_read(const json_t *object, const char *where,
			     struct sp_files_permission *ret_permission, struct sp_err *err)
{
	struct sp_files_permission permission = {.mode = 0};
	const struct sp_member members[] = {
		{"mode", SP_MEMBER_INTEGER, &permission.mode, INT64_MIN, INT64_MAX},
		{"owner", SP_MEMBER_TEXT, &permission.owner, 0, 0},
		{"group", SP_MEMBER_TEXT, &permission.group, 0, 0},
	};
	int status = 0;

	if (json_is_object(object))
		status = sp_body_read_loose(object, where, members, SP_ARRAY_SIZE(members), err);
	else if (!json_is_null(object))
		status = sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				     "member '%s' must be an object", where);
	if (status == 0)
		*ret_permission = permission;
	return status;
}

bool sp_files_permission_needs_accounts(const struct sp_files_permission *permission)
{
	return (permission->owner && permission->owner[0]) ||
	       (permission->group && permission->group[0]);
}

static int resolve_mode(int64_t decimal, uint32_t *ret_mode, struct sp_err *err)
{
	uint32_t mode = 0;
	uint32_t place = 1;

	if (decimal == 0)
		return 0; /* leave it */
	if (decimal < 0 || decimal > 7777)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "mode %lld is beyond 7777", (long long)decimal);
	for (int64_t rest = decimal; rest > 0; rest /= 10, place *= 8) {
		if (rest % 10 > 7)
			return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
					   "mode %lld is no octal number", (long long)decimal);
		mode += (uint32_t)(rest % 10) * place;
	}
	*ret_mode = mode & MODE_MASK;
	return 0;
}

static int resolve_account(const struct sp_account_file *file, const char *what, const char *name,
			   uint32_t *ret_id, struct sp_err *err)
{
	static const struct sp_accounts nobody;

	if (!name || !name[0] || sp_accounts_id(file ? &file->names : &nobody, name, ret_id))
		return 0;
	return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -ENOENT, "unknown %s '%.*s'", what,
			   (int)SP_ACCOUNT_NAME_MAX, name);
}

int sp_files_permission_resolve(const struct sp_files_call *call,
				const struct sp_files_permission *permission,
				struct sp_files_ids *ret_ids, struct sp_err *err)
{
	const struct sp_account_set *accounts = call->accounts;
	struct sp_files_ids ids = {SP_FILE_KEEP, SP_FILE_KEEP, SP_FILE_KEEP};
	int status = resolve_mode(permission->mode, &ids.mode, err);

	if (status == 0)
		status = resolve_account(accounts ? &accounts->users : NULL, "owner",
					 permission->owner, &ids.uid, err);
	if (status == 0)
		status = resolve_account(accounts ? &accounts->groups : NULL, "group",
					 permission->group, &ids.gid, err);
	if (status == 0)
		*ret_ids = ids;
	return status;
}
