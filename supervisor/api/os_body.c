/*
 * Reads the body of a create the way the reference does: unknown members are ignored, null is
 * absent, a wrong type names its place. What this server cannot do is refused here by name, never
 * dropped: volumes, rules for single hosts, credentials, snapshots, devices.
 */
#include "supervisor/api/os_body.h"

#include "supervisor/api/json_body.h"
#include "supervisor/api/os_sandboxes.h"
#include "supervisor/api/os_values.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#define UNPROCESSABLE   422
#define BAD_REQUEST     400
#define NOT_IMPLEMENTED 501
#define SHOWN_MAX       80

static const char invalid_parameter[] = "SANDBOX::INVALID_PARAMETER";
static const char not_supported[] = "SANDBOX::API_NOT_SUPPORTED";

static int refuse(struct sp_os_refusal *refusal, unsigned int status, const char *code,
		  const char *place, const char *format, ...) SP_PRINTF(5, 6);

static int refuse(struct sp_os_refusal *refusal, unsigned int status, const char *code,
		  const char *place, const char *format, ...)
{
	va_list args;

	refusal->status = status;
	refusal->code = code;
	(void)snprintf(refusal->place, sizeof(refusal->place), "%s", place);
	va_start(args, format);
	(void)vsnprintf(refusal->message, sizeof(refusal->message), format, args);
	va_end(args);
	return -EINVAL;
}

static int unsupported(struct sp_os_refusal *refusal, const char *place, const char *what)
{
	return refuse(refusal, NOT_IMPLEMENTED, not_supported, place, "%s", what);
}

/* ---- members of the body ---- */

/* 1: *ret is there and of the type; 0: absent. */
static int get(const json_t *object, const char *key, const char *place, json_type type,
	       const char *type_name, json_t **ret, struct sp_os_refusal *refusal)
{
	json_t *value = json_object_get(object, key);

	if (!value || json_is_null(value))
		return 0;
	if (json_typeof(value) != type)
		return refuse(refusal, UNPROCESSABLE, NULL, place, "Input should be a valid %s",
			      type_name);
	*ret = value;
	return 1;
}

static int get_object(const json_t *object, const char *key, json_t **ret,
		      struct sp_os_refusal *refusal)
{
	return get(object, key, key, JSON_OBJECT, "dictionary", ret, refusal);
}

/* Every value a string, or null if that is permitted. */
static int check_strings(json_t *object, const char *place, bool nulls,
			 struct sp_os_refusal *refusal)
{
	const char *key;
	json_t *value;

	json_object_foreach (object, key, value)
		if (!json_is_string(value) && !(nulls && json_is_null(value)))
			return refuse(refusal, UNPROCESSABLE, NULL, place,
				      "'%.*s': Input should be a valid string", SHOWN_MAX, key);
	return 0;
}

static int get_strings(const json_t *object, const char *key, bool nulls, json_t **ret,
		       struct sp_os_refusal *refusal)
{
	int status = get_object(object, key, ret, refusal);

	return status == 1 ? check_strings(*ret, key, nulls, refusal) : status;
}

static const char *string_of(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

/* ---- what to start it from ---- */

static int read_image(struct sp_os_create *create, struct sp_os_refusal *refusal)
{
	json_t *image = NULL;
	json_t *uri = NULL;
	json_t *snapshot = NULL;
	int status = get_object(create->root, "image", &image, refusal);

	if (status >= 0)
		status = get(create->root, "snapshotId", "snapshotId", JSON_STRING, "string",
			     &snapshot, refusal);
	if (status < 0)
		return status;
	if (image && snapshot)
		return refuse(refusal, UNPROCESSABLE, NULL, "",
			      "exactly one of image and snapshotId must be given");
	if (snapshot)
		return unsupported(refusal, "snapshotId", "this server keeps no snapshots");
	if (!image && create->pool)
		return 0;
	if (!image)
		return refuse(refusal, UNPROCESSABLE, NULL, "image", "Field required");
	status = get(image, "uri", "image.uri", JSON_STRING, "string", &uri, refusal);
	if (status < 0)
		return status;
	if (!uri || json_string_length(uri) == 0 || json_string_length(uri) > SP_OS_IMAGE_MAX)
		return refuse(refusal, UNPROCESSABLE, NULL, "image.uri",
			      "String should have 1 to %u characters", SP_OS_IMAGE_MAX);
	create->image = json_string_value(uri);
	return 0;
}

static int read_entrypoint(struct sp_os_create *create, struct sp_os_refusal *refusal)
{
	int status = get(create->root, "entrypoint", "entrypoint", JSON_ARRAY, "list",
			 &create->entrypoint, refusal);
	json_t *word;
	size_t i;

	if (status < 0)
		return status;
	if (!create->entrypoint && create->pool)
		return 0;
	if (!create->entrypoint)
		return refuse(refusal, UNPROCESSABLE, NULL, "entrypoint", "Field required");
	if (json_array_size(create->entrypoint) == 0 ||
	    json_array_size(create->entrypoint) > SP_OS_ENTRYPOINT_MAX)
		return refuse(refusal, UNPROCESSABLE, NULL, "entrypoint",
			      "List should have 1 to %u items", SP_OS_ENTRYPOINT_MAX);
	json_array_foreach (create->entrypoint, i, word)
		if (!json_is_string(word) || (i == 0 && json_string_length(word) == 0))
			return refuse(refusal, UNPROCESSABLE, NULL, "entrypoint",
				      "Input should be a list of strings, the first not empty");
	return 0;
}

static int read_platform(struct sp_os_create *create, struct sp_os_refusal *refusal)
{
	json_t *platform = NULL;
	struct utsname host;
	const char *os;
	const char *arch;
	const char *own;
	int status = get_strings(create->root, "platform", true, &platform, refusal);

	if (status < 0 || !platform)
		return status;
	(void)uname(&host); /* fails for a bad pointer only */
	own = strcmp(host.machine, "x86_64") == 0    ? "amd64"
	      : strcmp(host.machine, "aarch64") == 0 ? "arm64"
						     : host.machine;
	os = string_of(platform, "os");
	arch = string_of(platform, "arch");
	if ((os && strcmp(os, "linux") != 0) || (arch && strcmp(arch, own) != 0))
		return refuse(refusal, BAD_REQUEST, invalid_parameter, "platform",
			      "this host is linux/%s", own);
	create->platform = platform;
	return 0;
}

/* ---- what it may use ---- */

static int refuse_limit(struct sp_os_refusal *refusal, const char *key, const struct sp_err *err)
{
	return refuse(refusal, BAD_REQUEST, invalid_parameter, "resourceLimits", "%.*s: %s",
		      SHOWN_MAX, key, err->message);
}

static int read_limit(struct sp_os_create *create, const char *key, const char *value,
		      struct sp_os_refusal *refusal)
{
	struct sp_err err = {0};
	int64_t devices;

	if (strcmp(key, "cpu") == 0) {
		if (sp_os_parse_cpu(value, &create->cpu_millis, &err) < 0)
			return refuse_limit(refusal, key, &err);
		return 0;
	}
	if (strcmp(key, "memory") == 0) {
		if (sp_os_parse_memory(value, &create->memory_bytes, &err) < 0)
			return refuse_limit(refusal, key, &err);
		return 0;
	}
	if (strcmp(key, "gpu") == 0 && sp_os_parse_cpu(value, &devices, &err) == 0 && devices == 0)
		return 0;
	return refuse(refusal, BAD_REQUEST, invalid_parameter, "resourceLimits",
		      "resource '%.*s' cannot be given: this server has cpu and memory", SHOWN_MAX,
		      key);
}

static int read_limits(struct sp_os_create *create, struct sp_os_refusal *refusal)
{
	json_t *limits = NULL;
	json_t *requests = NULL;
	const char *key;
	json_t *value;
	int status = get_strings(create->root, "resourceLimits", false, &limits, refusal);

	/* What is asked for at least is what the pool gives, or its limits are refused. */
	if (status >= 0)
		status = get_strings(create->root, "resourceRequests", false, &requests, refusal);
	if (status < 0)
		return status;
	if (!limits && !create->pool)
		return refuse(refusal, UNPROCESSABLE, NULL, "resourceLimits", "Field required");
	json_object_foreach (limits, key, value) {
		status = read_limit(create, key, json_string_value(value), refusal);
		if (status < 0)
			return status;
	}
	return 0;
}

static int read_timeout(struct sp_os_create *create, struct sp_os_refusal *refusal)
{
	json_t *timeout = NULL;
	int status =
		get(create->root, "timeout", "timeout", JSON_INTEGER, "integer", &timeout, refusal);

	if (status <= 0)
		return status;
	create->timeout_s = json_integer_value(timeout);
	if (create->timeout_s < SP_OS_TIMEOUT_MIN_S || create->timeout_s > SP_OS_TIMEOUT_MAX_S)
		return refuse(refusal, UNPROCESSABLE, NULL, "timeout",
			      "Input should be greater than or equal to %d", SP_OS_TIMEOUT_MIN_S);
	return 0;
}

static int read_env(struct sp_os_create *create, struct sp_os_refusal *refusal)
{
	const char *key;
	json_t *value;
	int status = get_strings(create->root, "env", true, &create->env, refusal);

	if (status < 0)
		return status;
	if (json_object_size(create->env) > SP_OS_ENV_MAX)
		return refuse(refusal, BAD_REQUEST, invalid_parameter, "env",
			      "more than %u variables", SP_OS_ENV_MAX);
	json_object_foreach (create->env, key, value)
		if (!key[0] || strchr(key, '='))
			return refuse(refusal, BAD_REQUEST, invalid_parameter, "env",
				      "'%.*s' is no name of a variable", SHOWN_MAX, key);
	return 0;
}

/* ---- what it is called ---- */

static int check_metadata(json_t *metadata, struct sp_os_refusal *refusal)
{
	struct sp_err err = {0};
	const char *key;
	json_t *value;
	size_t kept = 0;

	if (json_object_size(metadata) > SP_OS_METADATA_MAX)
		return refuse(refusal, BAD_REQUEST, "SANDBOX::INVALID_METADATA_LABEL", "metadata",
			      "more than %u labels", SP_OS_METADATA_MAX);
	json_object_foreach (metadata, key, value) {
		if (sp_os_label_check(key, json_string_value(value), &err) < 0)
			return refuse(refusal, BAD_REQUEST, "SANDBOX::INVALID_METADATA_LABEL",
				      "metadata", "%s", err.message);
		kept += strlen(key) + json_string_length(value);
	}
	if (kept > SP_OS_KEPT_MAX)
		return refuse(refusal, BAD_REQUEST, "SANDBOX::INVALID_METADATA_LABEL", "metadata",
			      "more than %u bytes of labels", SP_OS_KEPT_MAX);
	return 0;
}

static int read_metadata(struct sp_os_create *create, struct sp_os_refusal *refusal)
{
	int status = get_strings(create->root, "metadata", false, &create->metadata, refusal);

	return status == 0 && create->metadata ? check_metadata(create->metadata, refusal) : status;
}

static int read_extensions(struct sp_os_create *create, struct sp_os_refusal *refusal)
{
	static const char extend[] = "access.renew.extend.seconds";
	const char *text;
	char *end;
	int status = get_strings(create->root, "extensions", false, &create->extensions, refusal);

	if (status < 0)
		return status;
	create->pool = string_of(create->extensions, "poolRef");
	if (create->pool && !create->pool[0])
		create->pool = NULL;
	text = string_of(create->extensions, extend);
	if (!text)
		return 0;
	create->extend_s = strtoll(text, &end, 10);
	if (end == text || *end || create->extend_s < SP_OS_EXTEND_MIN_S ||
	    create->extend_s > SP_OS_EXTEND_MAX_S)
		return refuse(refusal, BAD_REQUEST, invalid_parameter, "extensions",
			      "extension '%s' must be a number in %d … %d", extend,
			      SP_OS_EXTEND_MIN_S, SP_OS_EXTEND_MAX_S);
	return 0;
}

/* ---- what this server does not have ---- */

static int read_network(struct sp_os_create *create, struct sp_os_refusal *refusal)
{
	json_t *policy = NULL;
	json_t *rules = NULL;
	json_t *action = NULL;
	int status = get_object(create->root, "networkPolicy", &policy, refusal);

	if (status <= 0)
		return status;
	status = get(policy, "egress", "networkPolicy.egress", JSON_ARRAY, "list", &rules, refusal);
	if (status >= 0)
		status = get(policy, "defaultAction", "networkPolicy.defaultAction", JSON_STRING,
			     "string", &action, refusal);
	if (status < 0)
		return status;
	if (json_array_size(rules) > 0)
		return unsupported(refusal, "networkPolicy",
				   "this server has no rules for single hosts");
	/* The reference's default. */
	create->egress = action && strcmp(json_string_value(action), "allow") == 0
				 ? SP_OS_EGRESS_ALL
				 : SP_OS_EGRESS_NONE;
	return 0;
}

static int refuse_others(const struct sp_os_create *create, struct sp_os_refusal *refusal)
{
	json_t *volumes = json_object_get(create->root, "volumes");
	json_t *proxy = json_object_get(create->root, "credentialProxy");

	if (volumes && !json_is_null(volumes) && json_array_size(volumes) > 0)
		return unsupported(refusal, "volumes", "this server attaches no volumes");
	if (json_is_true(json_object_get(proxy, "enabled")))
		return unsupported(refusal, "credentialProxy",
				   "this server has no credential proxy");
	return 0;
}

int sp_os_create_parse(struct sp_os_create *create, const char *data, size_t len,
		       struct sp_os_refusal *ret_refusal)
{
	static int (*const readers[])(struct sp_os_create * create,
				      struct sp_os_refusal * refusal) = {
		read_extensions, read_image,    read_entrypoint, read_limits,  read_timeout,
		read_env,        read_metadata, read_platform,   read_network,
	};
	struct sp_err err = {0};
	int status;

	*create = (struct sp_os_create){0};
	if (len > SP_OS_KEPT_MAX)
		return refuse(ret_refusal, 413, invalid_parameter, "",
			      "the body is longer than %u bytes", SP_OS_KEPT_MAX);
	if (sp_body_parse_loose(data, len, &create->root, &err) < 0)
		return refuse(ret_refusal, UNPROCESSABLE, NULL, "", "JSON decode error: %s",
			      err.message);
	status = json_is_object(create->root) ? 0
					      : refuse(ret_refusal, UNPROCESSABLE, NULL, "",
						       "Input should be a valid dictionary");
	for (size_t i = 0; status >= 0 && i < SP_ARRAY_SIZE(readers); i++)
		status = readers[i](create, ret_refusal);
	if (status >= 0)
		status = refuse_others(create, ret_refusal);
	if (status < 0)
		sp_os_create_done(create);
	return SP_MIN(status, 0);
}

void sp_os_create_done(struct sp_os_create *create)
{
	json_decref(create->root);
	*create = (struct sp_os_create){0};
}

/* ---- later on ---- */

static int apply(json_t *metadata, const char *key, json_t *value)
{
	if (!json_is_null(value))
		return json_object_set(metadata, key, value);
	(void)json_object_del(metadata, key);
	return 0;
}

int sp_os_metadata_patch(const json_t *metadata, const json_t *patch, json_t **ret_metadata,
			 struct sp_os_refusal *ret_refusal)
{
	/* jansson's iterators want a mutable object and change nothing. */
	json_t *changes = (json_t *)(uintptr_t)patch;
	json_t *changed = metadata ? json_copy((json_t *)(uintptr_t)metadata) : json_object();
	const char *key;
	json_t *value;
	int status;

	if (!changed)
		return refuse(ret_refusal, 500, "GENERAL::UNKNOWN_ERROR", "", "out of memory");
	status = json_is_object(patch) ? check_strings(changes, "metadata", true, ret_refusal)
				       : refuse(ret_refusal, UNPROCESSABLE, NULL, "",
						"Input should be a valid dictionary");
	json_object_foreach (changes, key, value)
		if (status == 0 && apply(changed, key, value) < 0)
			status = refuse(ret_refusal, 500, "GENERAL::UNKNOWN_ERROR", "",
					"out of memory");
	if (status == 0)
		status = check_metadata(changed, ret_refusal);
	if (status < 0) {
		json_decref(changed);
		return status;
	}
	*ret_metadata = changed;
	return 0;
}
