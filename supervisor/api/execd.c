/*
 * The state of one sandbox's execd, from its first use to the end of the sandbox; and what a body
 * says about where a program runs.
 */
#include "supervisor/api/execd.h"

#include "supervisor/api/file_path.h"
#include "supervisor/daemon/files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the daemon gives an exec that names nothing else, as far as paths are made of it. */
static const char *const defaults[] = {
	"HOME=/home/user",
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"LANG=C.UTF-8",
};

#define DEFAULT_DIRECTORY "/workspace"

/* ---- the state ---- */

static void on_ended(struct sp_os_attachment *attachment)
{
	struct sp_execd *execd = SP_CONTAINER_OF(attachment, struct sp_execd, attachment);
	struct sp_os_sandbox *os = execd->os;

	sp_isolated_end(execd);
	sp_commands_end(execd);
	sp_sessions_end(execd);
	sp_contexts_end(execd);
	free(execd);
	sp_os_unref(os);
}

static struct sp_execd *execd_new(struct sp_request *request)
{
	struct sp_execd *execd = calloc(1, sizeof(*execd));

	if (!execd)
		return NULL;
	execd->api = request->api;
	execd->os = sp_os_ref(request->os);
	execd->attachment.ended = on_ended;
	sp_list_init(&execd->attachment.link);
	sp_list_init(&execd->commands);
	sp_list_init(&execd->sessions);
	sp_list_init(&execd->isolated);
	sp_list_init(&execd->contexts);
	execd->seen_cpu_ns = -1;
	sp_os_attach(execd->os, &execd->attachment);
	return execd;
}

struct sp_execd *sp_execd_find(const struct sp_os_sandbox *os)
{
	SP_LIST_FOREACH (link, &os->attachments) {
		struct sp_os_attachment *attachment =
			SP_CONTAINER_OF(link, struct sp_os_attachment, link);

		if (attachment->ended == on_ended)
			return SP_CONTAINER_OF(attachment, struct sp_execd, attachment);
	}
	return NULL;
}

struct sp_execd *sp_execd_of(struct sp_request *request)
{
	struct sp_err err = {0};
	struct sp_execd *execd;

	/* It may have ended while the body came. */
	if (request->os->ended) {
		(void)sp_err_code(&err, SP_CODE_SANDBOX_DEAD, -ESRCH, "the sandbox has ended");
		sp_reply_error(request, &err);
		return NULL;
	}
	execd = sp_execd_find(request->os);
	if (!execd)
		execd = execd_new(request);
	if (!execd) {
		(void)sp_err_set(&err, -ENOMEM, "keep the state of a sandbox");
		sp_reply_error(request, &err);
	}
	return execd;
}

void sp_execd_id_new(char text[SP_EXECD_ID_LEN + 1])
{
	char hex[SP_SECRET_LEN + 1];

	sp_secret_new(hex);
	memcpy(text, hex, SP_EXECD_ID_LEN);
	text[SP_EXECD_ID_LEN] = '\0';
}

/* ---- places ---- */

void sp_execd_place_done(struct sp_execd_place *place)
{
	for (size_t i = 0; i < place->own_count; i++)
		free(place->own[i]);
	free(place->own);
	free(place->env);
	free(place->cwd);
	*place = (struct sp_execd_place){0};
}

static int add_variable(struct sp_execd_place *place, const char *name, const json_t *value,
			struct sp_err *err)
{
	char *entry;

	if (name[0] == '\0' || strchr(name, '='))
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "'envs' has a name that is empty or contains '='");
	if (!json_is_string(value))
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "'envs.%.64s' must be a string", name);
	if (asprintf(&entry, "%s=%s", name, json_string_value(value)) < 0)
		return sp_err_set(err, -ENOMEM, "read 'envs'");
	place->own[place->own_count++] = entry;
	place->env[place->envc++] = entry;
	return 0;
}

int sp_execd_place_env(struct sp_execd_place *place, const struct sp_os_sandbox *os,
		       const json_t *envs, struct sp_err *err)
{
	return sp_execd_place_env_over(place, (const char *const *)os->env, os->envc, envs, err);
}

int sp_execd_place_env_over(struct sp_execd_place *place, const char *const *env, size_t envc,
			    const json_t *envs, struct sp_err *err)
{
	/* jansson's iterators want a mutable object and change nothing. */
	json_t *object = (json_t *)(uintptr_t)envs;
	size_t count = json_object_size(envs);
	const char *name;
	json_t *value;

	if (count > SP_EXECD_ENV_MAX)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -E2BIG,
				   "'envs' has %zu entries, at most %u are allowed", count,
				   SP_EXECD_ENV_MAX);
	place->env = calloc(envc + count + 1, sizeof(*place->env));
	place->own = calloc(count + 1, sizeof(*place->own));
	if (!place->env || !place->own)
		return sp_err_set(err, -ENOMEM, "read 'envs'");
	for (size_t i = 0; i < envc; i++)
		place->env[place->envc++] = env[i];
	json_object_foreach (object, name, value) {
		int status = add_variable(place, name, value, err);

		if (status < 0)
			return status;
	}
	return 0;
}

static const char *value_in(const char *const *env, size_t envc, const char *name, size_t len)
{
	/* Of equal names the last one counts. */
	for (size_t i = envc; i-- > 0;)
		if (strncmp(env[i], name, len) == 0 && env[i][len] == '=')
			return env[i] + len + 1;
	return NULL;
}

static const char *find_variable(void *arg, const char *name, size_t len)
{
	const struct sp_execd_place *place = arg;
	const char *value = value_in(place->env, place->envc, name, len);

	return value ? value : value_in(defaults, SP_ARRAY_SIZE(defaults), name, len);
}

int sp_execd_place_cwd(struct sp_execd_place *place, const char *cwd, struct sp_err *err)
{
	char expanded[SP_FILE_PATH_MAX];
	char path[SP_FILE_PATH_MAX];
	int status;

	if (!cwd || cwd[0] == '\0')
		return 0;
	status = sp_file_path_expand(cwd, find_variable, place, expanded, sizeof(expanded), err);
	if (status == 0)
		status = sp_file_path_clean(expanded, DEFAULT_DIRECTORY, path, sizeof(path), err);
	if (status < 0)
		return status;
	place->cwd = strdup(path);
	return place->cwd ? 0 : sp_err_set(err, -ENOMEM, "read 'cwd'");
}
