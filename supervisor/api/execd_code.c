/*
 * /code and its contexts: Python and shell, without a server of kernels beside them. Code that
 * names no context runs in the one of its language, made when it is first needed; code without a
 * language is a command. Python's contexts are in execd_context.c, the shell's are sessions.
 */
#include "supervisor/api/execd.h"

#include "supervisor/api/json_body.h"
#include "supervisor/api/query.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum language { LANGUAGE_NONE, LANGUAGE_PYTHON, LANGUAGE_SHELL, LANGUAGE_UNKNOWN };

static enum language language_of(const char *name)
{
	static const struct {
		const char *name;
		enum language language;
	} names[] = {
		{"", LANGUAGE_NONE},         {"command", LANGUAGE_NONE},
		{"python", LANGUAGE_PYTHON}, {"python3", LANGUAGE_PYTHON},
		{"bash", LANGUAGE_SHELL},    {"sh", LANGUAGE_SHELL},
		{"shell", LANGUAGE_SHELL},
	};

	if (!name)
		return LANGUAGE_NONE;
	for (size_t i = 0; i < SP_ARRAY_SIZE(names); i++)
		if (strcmp(names[i].name, name) == 0)
			return names[i].language;
	return LANGUAGE_UNKNOWN;
}

static void no_runtime(struct sp_request *request, const char *language)
{
	sp_os_reply_error(request, MHD_HTTP_INTERNAL_SERVER_ERROR, "RUNTIME_ERROR",
			  "no runtime for language '%.64s'; there are python and bash", language);
}

static void no_context(struct sp_request *request, unsigned int status, const char *code,
		       const char *id)
{
	sp_os_reply_error(request, status, code, "context not found: %.64s", id);
}

/* ---- answers ---- */

static void write_context(struct sp_json_out *out, const char *id, const char *language,
			  const char *cwd)
{
	sp_json_open(out, NULL, '{');
	sp_json_text(out, "id", id);
	sp_json_text(out, "language", language);
	if (cwd)
		sp_json_text(out, "cwd", cwd);
	sp_json_close(out, '}');
}

static void reply_context(struct sp_request *request, const char *id, const char *language,
			  const char *cwd)
{
	struct sp_json_out out;
	struct sp_buf body;

	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&out, &body);
	write_context(&out, id, language, cwd);
	sp_reply_written(request, &out);
}

/* ---- POST /code ---- */

struct code_body {
	json_t *root;
	const char *text;
	const char *id;
	const char *language;
	const char *cwd;
};

static int read_code(struct sp_request *request, struct code_body *body, struct sp_err *err)
{
	json_t *context = NULL;
	const struct sp_member members[] = {
		{"code", SP_MEMBER_TEXT, &body->text, 0, 0},
		{"context", SP_MEMBER_OBJECT, &context, 0, 0},
	};
	const struct sp_member inner[] = {
		{"id", SP_MEMBER_TEXT, &body->id, 0, 0},
		{"language", SP_MEMBER_TEXT, &body->language, 0, 0},
		{"cwd", SP_MEMBER_TEXT, &body->cwd, 0, 0},
	};
	int status;

	*body = (struct code_body){0};
	status = sp_body_parse_loose(sp_buf_text(&request->body), request->body.len, &body->root,
				     err);
	if (status == 0)
		status = sp_body_read_loose(body->root, "", members, SP_ARRAY_SIZE(members), err);
	if (status == 0 && context)
		status = sp_body_read_loose(context, "context.", inner, SP_ARRAY_SIZE(inner), err);
	if (status == 0 && (!body->text || body->text[0] == '\0'))
		status = sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				     "'code' is required and not empty");
	return status;
}

/* The code has waited in the request's body for its interpreter. */
static void run_waiting(struct sp_request *request, struct sp_context *context)
{
	struct code_body body;
	struct sp_err err = {0};

	if (read_code(request, &body, &err) < 0)
		sp_reply_error(request, &err);
	else
		sp_context_run(context, request, body.text);
	json_decref(body.root);
}

static void run_default_python(struct sp_execd *execd, struct sp_request *request,
			       const struct code_body *body)
{
	struct sp_context *context = sp_context_find(execd, execd->default_python);
	struct sp_err err = {0};

	if (!context && sp_context_new(execd, body->cwd, &context, &err) < 0) {
		sp_reply_error(request, &err);
		return;
	}
	memcpy(execd->default_python, sp_context_id(context), sizeof(execd->default_python));
	sp_context_await(context, request, run_waiting);
}

static void run_default_shell(struct sp_execd *execd, struct sp_request *request,
			      const struct code_body *body)
{
	struct sp_session *session = sp_session_find_context(execd, execd->default_shell);
	struct sp_err err = {0};

	if (!session) {
		session = sp_session_new(execd, true, NULL, &err);
		if (!session) {
			sp_reply_error(request, &err);
			return;
		}
		memcpy(execd->default_shell, sp_session_id(session), sizeof(execd->default_shell));
	}
	sp_session_run(session, request, body->text, body->cwd, 0);
}

static void run_in(struct sp_execd *execd, struct sp_request *request, const struct code_body *body)
{
	struct sp_context *context = sp_context_find(execd, body->id);
	struct sp_session *session = sp_session_find_context(execd, body->id);

	if (context)
		sp_context_await(context, request, run_waiting);
	else if (session)
		sp_session_run(session, request, body->text, body->cwd, 0);
	else
		no_context(request, MHD_HTTP_INTERNAL_SERVER_ERROR, "RUNTIME_ERROR", body->id);
}

static void run_code(struct sp_execd *execd, struct sp_request *request,
		     const struct code_body *body)
{
	if (body->id && body->id[0]) {
		run_in(execd, request, body);
		return;
	}
	switch (language_of(body->language)) {
	case LANGUAGE_NONE:
		sp_command_run(request, body->text, body->cwd);
		return;
	case LANGUAGE_PYTHON:
		run_default_python(execd, request, body);
		return;
	case LANGUAGE_SHELL:
		run_default_shell(execd, request, body);
		return;
	case LANGUAGE_UNKNOWN:
		no_runtime(request, body->language);
		return;
	}
}

void sp_handle_execd_code(struct sp_request *request)
{
	struct sp_execd *execd = sp_execd_of(request);
	struct code_body body;
	struct sp_err err = {0};

	if (!execd)
		return;
	if (read_code(request, &body, &err) < 0)
		sp_reply_error(request, &err);
	else
		run_code(execd, request, &body);
	json_decref(body.root);
}

/* ---- contexts ---- */

static void reply_python(struct sp_request *request, struct sp_context *context)
{
	reply_context(request, sp_context_id(context), "python", NULL);
}

static void create(struct sp_execd *execd, struct sp_request *request, const char *language,
		   const char *cwd)
{
	struct sp_session *session;
	struct sp_context *context;
	struct sp_err err = {0};

	switch (language_of(language)) {
	case LANGUAGE_PYTHON:
		if (sp_context_new(execd, cwd, &context, &err) < 0)
			break;
		sp_context_await(context, request, reply_python);
		return;
	case LANGUAGE_SHELL:
		session = sp_session_new(execd, true, cwd, &err);
		if (!session)
			break;
		reply_context(request, sp_session_id(session), "bash", cwd);
		return;
	case LANGUAGE_NONE:
	case LANGUAGE_UNKNOWN:
		no_runtime(request, language ? language : "");
		return;
	}
	sp_reply_error(request, &err);
}

void sp_handle_execd_context_create(struct sp_request *request)
{
	struct sp_execd *execd = sp_execd_of(request);
	const char *language = NULL;
	const char *cwd = NULL;
	const struct sp_member members[] = {
		{"language", SP_MEMBER_TEXT, &language, 0, 0},
		{"cwd", SP_MEMBER_TEXT, &cwd, 0, 0},
	};
	json_t *root = NULL;
	struct sp_err err = {0};
	int status;

	if (!execd)
		return;
	status = sp_body_parse_loose(sp_buf_text(&request->body), request->body.len, &root, &err);
	if (status == 0)
		status = sp_body_read_loose(root, "", members, SP_ARRAY_SIZE(members), &err);
	if (status < 0)
		sp_reply_error(request, &err);
	else
		create(execd, request, language, cwd);
	json_decref(root);
}

/* *ret_language: NONE if it is not named; the text is the caller's to free. False: answered. */
static bool named_language(struct sp_request *request, char **ret_text, enum language *ret_language)
{
	struct sp_err err = {0};

	*ret_text = NULL;
	if (sp_query_text(request, "language", ret_text, &err) < 0) {
		sp_reply_error(request, &err);
		return false;
	}
	*ret_language = language_of(*ret_text);
	return true;
}

void sp_handle_execd_context_list(struct sp_request *request)
{
	struct sp_execd *execd = sp_execd_of(request);
	enum language language;
	struct sp_json_out out;
	struct sp_buf body;
	char *text;

	if (!execd || !named_language(request, &text, &language))
		return;
	free(text);
	sp_buf_init(&body, SP_API_RESPONSE_MAX);
	sp_json_out_init(&out, &body);
	sp_json_open(&out, NULL, '[');
	if (language == LANGUAGE_NONE || language == LANGUAGE_PYTHON)
		for (struct sp_context *at = sp_context_first(execd); at; at = sp_context_next(at))
			write_context(&out, sp_context_id(at), "python", NULL);
	if (language == LANGUAGE_NONE || language == LANGUAGE_SHELL)
		for (struct sp_session *at = sp_session_first_context(execd); at;
		     at = sp_session_next_context(at))
			write_context(&out, sp_session_id(at), "bash", NULL);
	sp_json_close(&out, ']');
	sp_reply_written(request, &out);
}

static void delete_all(struct sp_execd *execd, enum language language)
{
	struct sp_context *context;
	struct sp_session *session;

	while (language == LANGUAGE_PYTHON && (context = sp_context_first(execd)))
		sp_context_free(context);
	while (language == LANGUAGE_SHELL && (session = sp_session_first_context(execd)))
		sp_session_free(session);
}

void sp_handle_execd_context_delete_all(struct sp_request *request)
{
	struct sp_execd *execd = sp_execd_of(request);
	enum language language;
	char *text;

	if (!execd || !named_language(request, &text, &language))
		return;
	if (!text || text[0] == '\0') {
		sp_os_reply_error(request, MHD_HTTP_BAD_REQUEST, "MISSING_QUERY",
				  "missing query parameter 'language'");
	} else {
		delete_all(execd, language);
		sp_reply_status(request, MHD_HTTP_OK);
	}
	free(text);
}

void sp_handle_execd_context_get(struct sp_request *request)
{
	struct sp_execd *execd = sp_execd_of(request);
	const char *id = request->match.key;

	if (!execd)
		return;
	if (sp_context_find(execd, id))
		reply_context(request, id, "python", NULL);
	else if (sp_session_find_context(execd, id))
		reply_context(request, id, "bash", NULL);
	else
		no_context(request, MHD_HTTP_NOT_FOUND, "CONTEXT_NOT_FOUND", id);
}

void sp_handle_execd_context_delete(struct sp_request *request)
{
	struct sp_execd *execd = sp_execd_of(request);
	struct sp_context *context;
	struct sp_session *session;

	if (!execd)
		return;
	context = sp_context_find(execd, request->match.key);
	session = sp_session_find_context(execd, request->match.key);
	if (!context && !session) {
		no_context(request, MHD_HTTP_NOT_FOUND, "CONTEXT_NOT_FOUND", request->match.key);
		return;
	}
	if (context)
		sp_context_free(context);
	else
		sp_session_free(session);
	sp_reply_status(request, MHD_HTTP_OK);
}
