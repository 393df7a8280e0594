/*
 * From the body of a create to what is asked of the sandbox. Defaults are execd's, also where they
 * surprise: the mode of a workspace is overlay, keys without a mode are dropped.
 */
#include "supervisor/api/execd_isolated.h"

#include "supervisor/api/file_path.h"
#include "supervisor/api/json_body.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

/* ---- environment ---- */

/* execd's own credentials, and where it reads its configuration: never passed on. */
static const char *const never[] = {
	"EXECD_ACCESS_TOKEN",     "JUPYTER_HOST", "JUPYTER_TOKEN",
	"EXECD_ISOLATION_CONFIG", "EXECD_ENVS",
};

static const char *const secrets[] = {
	"*_API_KEY", "*_TOKEN",  "*_SECRET", "*_PASSWORD", "AWS_*",
	"ALI_*",     "ALIYUN_*", "K8S_*",    "KUBE_*",
};

static bool is_named(const char *entry, size_t len, const char *name)
{
	return strncmp(entry, name, len) == 0 && name[len] == '\0';
}

static bool in_keys(const char *entry, size_t len, const json_t *keys)
{
	for (size_t i = 0; i < json_array_size(keys); i++) {
		const char *key = json_string_value(json_array_get(keys, i));

		if (key && is_named(entry, len, key))
			return true;
	}
	return false;
}

static bool looks_secret(const char *entry, size_t len)
{
	char name[256];

	if (len >= sizeof(name))
		return true; /* whatever it is, nobody needs it */
	memcpy(name, entry, len);
	name[len] = '\0';
	for (size_t i = 0; i < SP_ARRAY_SIZE(secrets); i++)
		if (fnmatch(secrets[i], name, FNM_CASEFOLD) == 0)
			return true;
	return false;
}

bool sp_isolated_env_passes(const char *entry, bool allow, const json_t *keys)
{
	size_t len = strcspn(entry, "=");

	for (size_t i = 0; i < SP_ARRAY_SIZE(never); i++)
		if (is_named(entry, len, never[i]))
			return false;
	if (allow)
		return in_keys(entry, len, keys);
	return json_array_size(keys) > 0 ? !in_keys(entry, len, keys) : !looks_secret(entry, len);
}

static int filter_env(struct sp_isolated_wish *wish, const struct sp_os_sandbox *os, bool allow,
		      const json_t *keys, struct sp_err *err)
{
	wish->env = calloc(os->envc + 1, sizeof(*wish->env));
	if (!wish->env)
		return sp_err_set(err, -ENOMEM, "environment of an isolated session");
	for (size_t i = 0; i < os->envc; i++)
		if (sp_isolated_env_passes(os->env[i], allow, keys))
			wish->env[wish->envc++] = os->env[i];
	return 0;
}

/* ---- members ---- */

static int invalid(struct sp_err *err, const char *what)
{
	return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL, "%s", what);
}

static int echo_set(struct sp_isolated_wish *wish, const char *key, json_t *value,
		    struct sp_err *err)
{
	return json_object_set_new(wish->echo, key, value) == 0
		       ? 0
		       : sp_err_set(err, -ENOMEM, "read an isolated session");
}

static int check_path(const char *path, const char *what, struct sp_err *err)
{
	if (path[0] != '/')
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "'%s' must be an absolute path", what);
	return 0;
}

static int read_workspace(struct sp_isolated_wish *wish, const json_t *object, struct sp_err *err)
{
	static const struct {
		const char *name;
		enum sp_isolated_mode mode;
	} modes[] = {
		{"rw", SP_ISOLATED_RW}, {"ro", SP_ISOLATED_RO}, {"overlay", SP_ISOLATED_OVERLAY}};

	const char *mode = "overlay";
	const struct sp_member members[] = {
		{"path", SP_MEMBER_TEXT, &wish->spec.workspace, 0, 0},
		{"mode", SP_MEMBER_TEXT, &mode, 0, 0},
	};
	size_t i = 0;
	int status;

	if (!object)
		return invalid(err, "'workspace' is required");
	status = sp_body_read_loose(object, "workspace.", members, SP_ARRAY_SIZE(members), err);
	if (status < 0)
		return status;
	if (!wish->spec.workspace || wish->spec.workspace[0] == '\0')
		return invalid(err, "'workspace.path' is required");
	status = check_path(wish->spec.workspace, "workspace.path", err);
	if (status < 0)
		return status;
	if (mode[0] == '\0')
		mode = "overlay";
	while (i < SP_ARRAY_SIZE(modes) && strcmp(modes[i].name, mode) != 0)
		i++;
	if (i == SP_ARRAY_SIZE(modes))
		return invalid(err, "'workspace.mode' must be rw, overlay or ro");
	wish->spec.mode = modes[i].mode;
	return echo_set(wish, "workspace",
			json_pack("{s:s, s:s}", "path", wish->spec.workspace, "mode", mode), err);
}

static int read_writable(struct sp_isolated_wish *wish, json_t *array, struct sp_err *err)
{
	size_t count = json_array_size(array);

	if (count > SP_ISOLATED_PATHS_MAX)
		return invalid(err, "'extra_writable' has too many entries");
	for (size_t i = 0; i < count; i++) {
		const char *path = json_string_value(json_array_get(array, i));
		int status = path ? check_path(path, "extra_writable", err)
				  : invalid(err, "'extra_writable' must be strings");

		if (status < 0)
			return status;
		wish->writable[i] = path;
	}
	wish->spec.writable = wish->writable;
	wish->spec.writable_count = count;
	return count > 0 ? echo_set(wish, "extra_writable", json_incref(array), err) : 0;
}

static int read_bind(struct sp_isolated_bind *bind, const json_t *object, struct sp_err *err)
{
	const struct sp_member members[] = {
		{"source", SP_MEMBER_TEXT, &bind->source, 0, 0},
		{"dest", SP_MEMBER_TEXT, &bind->target, 0, 0},
		{"readonly", SP_MEMBER_BOOLEAN, &bind->read_only, 0, 0},
	};
	int status = json_is_object(object) ? 0 : invalid(err, "'binds' must be objects");

	if (status == 0)
		status = sp_body_read_loose(object, "binds[].", members, SP_ARRAY_SIZE(members),
					    err);
	if (status < 0)
		return status;
	if (!bind->source || bind->source[0] == '\0')
		return invalid(err, "'binds[].source' is required");
	if (!bind->target || bind->target[0] == '\0')
		bind->target = bind->source;
	status = check_path(bind->source, "binds[].source", err);
	return status < 0 ? status : check_path(bind->target, "binds[].dest", err);
}

static int read_binds(struct sp_isolated_wish *wish, const json_t *array, struct sp_err *err)
{
	size_t count = json_array_size(array);
	json_t *echo;

	if (count == 0)
		return 0;
	if (count > SP_ISOLATED_PATHS_MAX)
		return invalid(err, "'binds' has too many entries");
	echo = json_array();
	for (size_t i = 0; i < count; i++) {
		struct sp_isolated_bind *bind = &wish->binds[i];
		int status = read_bind(bind, json_array_get(array, i), err);

		if (status < 0) {
			json_decref(echo);
			return status;
		}
		(void)json_array_append_new(echo, json_pack("{s:s, s:s, s:b}", "source",
							    bind->source, "dest", bind->target,
							    "readonly", bind->read_only));
	}
	wish->spec.binds = wish->binds;
	wish->spec.bind_count = count;
	return echo_set(wish, "binds", echo, err);
}

static int read_env(struct sp_isolated_wish *wish, const struct sp_os_sandbox *os,
		    const json_t *object, struct sp_err *err)
{
	const char *mode = NULL;
	json_t *keys = NULL;
	const struct sp_member members[] = {
		{"mode", SP_MEMBER_TEXT, &mode, 0, 0},
		{"keys", SP_MEMBER_ARRAY, &keys, 0, 0},
	};
	int status = object ? sp_body_read_loose(object, "env_passthrough.", members,
						 SP_ARRAY_SIZE(members), err)
			    : 0;

	if (status < 0)
		return status;
	if (!mode || mode[0] == '\0') {
		mode = "deny";
		keys = NULL;
	}
	if (strcmp(mode, "deny") != 0 && strcmp(mode, "allow") != 0)
		return invalid(err, "'env_passthrough.mode' must be allow or deny");
	if (json_array_size(keys) > SP_EXECD_ENV_MAX)
		return invalid(err, "'env_passthrough.keys' has too many entries");
	for (size_t i = 0; i < json_array_size(keys); i++)
		if (!json_is_string(json_array_get(keys, i)))
			return invalid(err, "'env_passthrough.keys' must be strings");
	status = filter_env(wish, os, strcmp(mode, "allow") == 0, keys, err);
	if (status < 0)
		return status;
	return echo_set(wish, "env_passthrough",
			keys ? json_pack("{s:s, s:O}", "mode", mode, "keys", keys)
			     : json_pack("{s:s}", "mode", mode),
			err);
}

static int read_profile(struct sp_isolated_wish *wish, const char *profile, struct sp_err *err)
{
	wish->spec.private_tmp = strcmp(profile, "strict") == 0;
	if (!wish->spec.private_tmp && strcmp(profile, "balanced") != 0)
		return invalid(err, "'profile' must be strict or balanced");
	return echo_set(wish, "profile", json_string(profile), err);
}

static int read_identity(struct sp_isolated_wish *wish, const char *uid_mode, struct sp_err *err)
{
	int status = 0;

	if (strcmp(uid_mode, "userns") == 0)
		return sp_err_code(err, SP_CODE_UNSUPPORTED, -EOPNOTSUPP,
				   "uid_mode 'userns' is not available");
	if (strcmp(uid_mode, "setpriv") != 0)
		return invalid(err, "'uid_mode' must be setpriv or userns");
	if (wish->spec.uid == 0 || wish->spec.gid == 0)
		return sp_err_code(err, SP_CODE_UNSUPPORTED, -EPERM,
				   "nothing runs as uid or gid 0 in this sandbox");
	status = echo_set(wish, "uid_mode", json_string(uid_mode), err);
	if (status == 0 && wish->spec.uid > 0)
		status = echo_set(wish, "uid", json_integer(wish->spec.uid), err);
	if (status == 0 && wish->spec.gid > 0)
		status = echo_set(wish, "gid", json_integer(wish->spec.gid), err);
	return status;
}

static int read_members(struct sp_isolated_wish *wish, const struct sp_os_sandbox *os,
			struct sp_err *err)
{
	const char *profile = "strict";
	const char *uid_mode = "setpriv";
	json_t *workspace = NULL;
	json_t *writable = NULL;
	json_t *binds = NULL;
	json_t *env = NULL;
	bool share_net = true;
	const struct sp_member members[] = {
		{"profile", SP_MEMBER_TEXT, &profile, 0, 0},
		{"workspace", SP_MEMBER_OBJECT, &workspace, 0, 0},
		{"extra_writable", SP_MEMBER_ARRAY, &writable, 0, 0},
		{"binds", SP_MEMBER_ARRAY, &binds, 0, 0},
		{"share_net", SP_MEMBER_BOOLEAN, &share_net, 0, 0},
		{"env_passthrough", SP_MEMBER_OBJECT, &env, 0, 0},
		{"uid", SP_MEMBER_INTEGER, &wish->spec.uid, 0, UINT32_MAX},
		{"gid", SP_MEMBER_INTEGER, &wish->spec.gid, 0, UINT32_MAX},
		{"uid_mode", SP_MEMBER_TEXT, &uid_mode, 0, 0},
		{"idle_timeout_seconds", SP_MEMBER_INTEGER, &wish->idle_timeout_s, 0,
		 SP_ISOLATED_IDLE_MAX_S},
	};
	int status = sp_body_read_loose(wish->body, "", members, SP_ARRAY_SIZE(members), err);

	if (status == 0)
		status = read_workspace(wish, workspace, err);
	if (status == 0)
		status = read_profile(wish, profile[0] ? profile : "strict", err);
	if (status == 0)
		status = read_writable(wish, writable, err);
	if (status == 0)
		status = read_binds(wish, binds, err);
	if (status == 0)
		status = read_env(wish, os, env, err);
	if (status == 0)
		status = read_identity(wish, uid_mode[0] ? uid_mode : "setpriv", err);
	wish->spec.own_network = !share_net;
	if (status == 0)
		status = echo_set(wish, "share_net", json_boolean(share_net), err);
	if (status == 0)
		status = echo_set(wish, "idle_timeout_seconds", json_integer(wish->idle_timeout_s),
				  err);
	return status;
}

int sp_isolated_wish_read(struct sp_isolated_wish *wish, const struct sp_os_sandbox *os,
			  const char *body, size_t len, struct sp_err *err)
{
	int status = sp_body_parse_loose(body, len, &wish->body, err);

	if (status < 0)
		return status;
	if (!json_is_object(wish->body))
		return invalid(err, "the body must be an object");
	wish->echo = json_object();
	if (!wish->echo)
		return sp_err_set(err, -ENOMEM, "read an isolated session");
	wish->spec.uid = -1;
	wish->spec.gid = -1;
	return read_members(wish, os, err);
}

void sp_isolated_wish_done(struct sp_isolated_wish *wish)
{
	json_decref(wish->body);
	json_decref(wish->echo);
	free(wish->env);
}
