/*
 * What a client may say of an acquire and of an exec. Everything is checked for type and range
 * here; whether it is allowed (binds, uids, limits of the pool) is the service's to say.
 *
 * Without "policy" an acquire that says how long it would wait waits, any other fails fast.
 * Policies that wait or create and say no "wait" get SP_API_DEFAULT_WAIT_MS: "at once" would never
 * succeed.
 */
#include "supervisor/api/exec_json.h"

#include "supervisor/api/json_body.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIGNED_ID_MAX INT64_C(65534) /* ids inside a sandbox; 65535 means "none" to the kernel */

static int invalid(struct sp_err *err, const char *what)
{
	return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL, "%s", what);
}

/* ---- acquire ---- */

/* Raw members of an acquire, before defaults that depend on each other. */
struct acquire_members {
	const char *policy;
	const char *lease;
	json_t *binds;
	int64_t wait_ms;
	int64_t ttl_ms;
	int64_t min_remaining_ms;
};

static int read_bind(const json_t *value, size_t index, struct sp_bind_request *bind,
		     struct sp_err *err)
{
	const char *mode = "rw";
	int64_t size = 0;
	char where[32];
	const struct sp_member members[] = {
		{"source", SP_MEMBER_TEXT, &bind->source, 0, 0},
		{"target", SP_MEMBER_TEXT, &bind->target, 0, 0},
		{"mode", SP_MEMBER_TEXT, &mode, 0, 0},
		{"size", SP_MEMBER_SIZE, &size, 1, INT64_MAX},
	};
	int status;

	*bind = (struct sp_bind_request){.mode = SP_BIND_RW};
	(void)snprintf(where, sizeof(where), "binds[%zu].", index);
	if (!json_is_object(value))
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "member 'binds[%zu]' must be an object", index);
	status = sp_body_read(value, where, members, SP_ARRAY_SIZE(members), err);
	if (status < 0)
		return status;
	if (!bind->source)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "member '%ssource' is missing", where);
	bind->size = (uint64_t)size;
	if (strcmp(mode, "ro") == 0)
		bind->mode = SP_BIND_RO;
	else if (strcmp(mode, "overlay") == 0)
		bind->mode = SP_BIND_OVERLAY;
	else if (strcmp(mode, "rw") != 0)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "member '%smode' must be \"rw\", \"ro\" or \"overlay\"", where);
	return 0;
}

static int read_binds(const json_t *array, struct sp_bind_request *binds,
		      struct sp_service_acquire *acquire, struct sp_err *err)
{
	size_t count = array ? json_array_size(array) : 0;

	if (count > SP_BINDS_MAX)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "member 'binds' has more than %u entries", SP_BINDS_MAX);
	for (size_t i = 0; i < count; i++) {
		int status = read_bind(json_array_get(array, i), i, &binds[i], err);

		if (status < 0)
			return status;
	}
	acquire->binds = binds;
	acquire->bind_count = count;
	return 0;
}

static bool policy_waits(enum sp_acquire_policy policy)
{
	return policy == SP_ACQUIRE_WAIT || policy == SP_ACQUIRE_CREATE ||
	       policy == SP_ACQUIRE_RETRY_NEXT_THEN_CREATE;
}

static int fill_acquire(const struct acquire_members *members, const char *pool,
			struct sp_bind_request *binds, struct sp_service_acquire *acquire,
			struct sp_err *err)
{
	*acquire = (struct sp_service_acquire){
		.pool = pool,
		.lease_id = members->lease,
		.policy = members->wait_ms > 0 ? SP_ACQUIRE_WAIT : SP_ACQUIRE_FAIL_FAST,
		.wait_ms = members->wait_ms,
		.ttl_ms = members->ttl_ms,
		.min_remaining_ms = members->min_remaining_ms,
	};
	if (members->policy && sp_acquire_policy_parse(members->policy, &acquire->policy) < 0)
		return invalid(err, "member 'policy' must be \"fail_fast\", \"wait\", \"create\", "
				    "\"retry_next\" or \"retry_next_then_create\"");
	if (members->lease && !sp_lease_id_valid(members->lease))
		return invalid(err, "member 'lease' must be 64 lower-case hex digits");
	if (members->wait_ms < 0)
		acquire->wait_ms = policy_waits(acquire->policy) ? SP_API_DEFAULT_WAIT_MS : 0;
	return read_binds(members->binds, binds, acquire, err);
}

int sp_acquire_body_parse(struct sp_acquire_body *body, const char *pool, const char *data,
			  size_t len, struct sp_err *err)
{
	struct acquire_members said = {.wait_ms = -1, .min_remaining_ms = -1};
	const struct sp_member members[] = {
		{"policy", SP_MEMBER_TEXT, &said.policy, 0, 0},
		{"wait", SP_MEMBER_DURATION, &said.wait_ms, 0, SP_BODY_DURATION_MAX_MS},
		{"ttl", SP_MEMBER_DURATION, &said.ttl_ms, 1, SP_BODY_DURATION_MAX_MS},
		{"min_remaining", SP_MEMBER_DURATION, &said.min_remaining_ms, 0,
		 SP_BODY_DURATION_MAX_MS},
		{"lease", SP_MEMBER_TEXT, &said.lease, 0, 0},
		{"binds", SP_MEMBER_ARRAY, &said.binds, 0, 0},
	};
	int status;

	*body = (struct sp_acquire_body){0};
	status = sp_body_parse(data, len, &body->root, err);
	if (status < 0)
		return status;
	status = sp_body_read(body->root, "", members, SP_ARRAY_SIZE(members), err);
	if (status == 0)
		status = fill_acquire(&said, pool, body->binds, &body->acquire, err);
	if (status < 0)
		sp_acquire_body_done(body);
	return status;
}

void sp_acquire_body_done(struct sp_acquire_body *body)
{
	json_decref(body->root);
	body->root = NULL;
}

/* ---- START ---- */

struct start_members {
	json_t *argv;
	const char *shell;
	const char *cwd;
	json_t *env;
	json_t *tty;
	int64_t uid, gid;
	int64_t timeout_ms;
	int64_t output_limit;
	bool stdin_open;
	bool merge_stderr;
};

static int read_argv(struct sp_start_body *body, const json_t *array, struct sp_err *err)
{
	size_t count = json_array_size(array);

	if (count == 0)
		return invalid(err, "member 'argv' is empty");
	body->argv = calloc(count, sizeof(*body->argv));
	if (!body->argv)
		return sp_err_set(err, -ENOMEM, "read member 'argv'");
	for (size_t i = 0; i < count; i++) {
		const json_t *value = json_array_get(array, i);

		if (!json_is_string(value))
			return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
					   "member 'argv[%zu]' must be a string", i);
		body->argv[i] = json_string_value(value);
	}
	body->spec.argv = body->argv;
	body->spec.argc = count;
	return 0;
}

static int read_shell(struct sp_start_body *body, const char *text, struct sp_err *err)
{
	body->argv = calloc(3, sizeof(*body->argv));
	if (!body->argv)
		return sp_err_set(err, -ENOMEM, "read member 'shell'");
	body->argv[0] = "/bin/sh";
	body->argv[1] = "-c";
	body->argv[2] = text;
	body->spec.argv = body->argv;
	body->spec.argc = 3;
	return 0;
}

static int read_env(struct sp_start_body *body, json_t *object, struct sp_err *err)
{
	const char *name;
	json_t *value;
	size_t count = 0;

	/* One more, zeroed: the list's end for _done(). */
	body->env = calloc(json_object_size(object) + 1, sizeof(*body->env));
	if (!body->env)
		return sp_err_set(err, -ENOMEM, "read member 'env'");
	json_object_foreach (object, name, value) {
		if (!json_is_string(value))
			return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
					   "member 'env.%.64s' must be a string", name);
		if (!name[0] || strchr(name, '='))
			return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
					   "'%.64s' is no name of a variable", name);
		if (asprintf(&body->env[count], "%s=%s", name, json_string_value(value)) < 0) {
			body->env[count] = NULL;
			return sp_err_set(err, -ENOMEM, "read member 'env'");
		}
		count++;
	}
	body->spec.env = (const char *const *)body->env;
	body->spec.envc = count;
	return 0;
}

static int read_tty(struct sp_exec_spec *spec, const json_t *object, struct sp_err *err)
{
	int64_t rows = 24;
	int64_t columns = 80;
	const struct sp_member members[] = {
		{"rows", SP_MEMBER_INTEGER, &rows, 1, UINT16_MAX},
		{"columns", SP_MEMBER_INTEGER, &columns, 1, UINT16_MAX},
	};
	int status = sp_body_read(object, "tty.", members, SP_ARRAY_SIZE(members), err);

	if (status < 0)
		return status;
	spec->tty = true;
	spec->rows = (uint16_t)rows;
	spec->columns = (uint16_t)columns;
	return 0;
}

static int fill_spec(struct sp_start_body *body, const struct start_members *said,
		     struct sp_err *err)
{
	int status;

	body->spec.cwd = said->cwd;
	body->spec.uid = said->uid;
	body->spec.gid = said->gid;
	body->spec.timeout_ms = said->timeout_ms;
	body->spec.output_limit = (uint64_t)said->output_limit;
	body->spec.stdin_open = said->stdin_open;
	body->spec.merge_stderr = said->merge_stderr;
	if (!said->argv == !said->shell)
		return invalid(err, "give one of the members 'argv' and 'shell'");
	status = said->argv ? read_argv(body, said->argv, err) : read_shell(body, said->shell, err);
	if (status == 0 && said->env)
		status = read_env(body, said->env, err);
	if (status == 0 && said->tty)
		status = read_tty(&body->spec, said->tty, err);
	return status;
}

/* The members that are not legal under these flags are left out of the list, so that they are
 * unknown. They stand at its end. */
static int read_start(struct sp_start_body *body, unsigned int flags, const char *pool,
		      struct sp_err *err)
{
	struct start_members said = {.uid = -1, .gid = -1};
	struct acquire_members run = {.wait_ms = -1, .min_remaining_ms = -1};
	const struct sp_member always[] = {
		{"argv", SP_MEMBER_ARRAY, &said.argv, 0, 0},
		{"shell", SP_MEMBER_TEXT, &said.shell, 0, 0},
		{"cwd", SP_MEMBER_TEXT, &said.cwd, 0, 0},
		{"env", SP_MEMBER_OBJECT, &said.env, 0, 0},
		{"uid", SP_MEMBER_INTEGER, &said.uid, 0, SIGNED_ID_MAX},
		{"gid", SP_MEMBER_INTEGER, &said.gid, 0, SIGNED_ID_MAX},
		{"timeout", SP_MEMBER_DURATION, &said.timeout_ms, 1, SP_EXEC_TIMEOUT_MAX_MS},
		{"output_limit", SP_MEMBER_INTEGER, &said.output_limit, 1, INT64_MAX},
		{"tty", SP_MEMBER_OBJECT, &said.tty, 0, 0},
		{"merge_stderr", SP_MEMBER_BOOLEAN, &said.merge_stderr, 0, 0},
	};
	const struct sp_member of_stream = {"stdin", SP_MEMBER_BOOLEAN, &said.stdin_open, 0, 0};
	const struct sp_member of_held = {"release", SP_MEMBER_BOOLEAN, &body->release, 0, 0};
	const struct sp_member of_plain = {"stdin_text", SP_MEMBER_TEXT, &body->stdin_text, 0, 0};
	const struct sp_member of_run[] = {
		{"policy", SP_MEMBER_TEXT, &run.policy, 0, 0},
		{"wait", SP_MEMBER_DURATION, &run.wait_ms, 0, SP_BODY_DURATION_MAX_MS},
		{"min_remaining", SP_MEMBER_DURATION, &run.min_remaining_ms, 0,
		 SP_BODY_DURATION_MAX_MS},
		{"binds", SP_MEMBER_ARRAY, &run.binds, 0, 0},
	};
	struct sp_member members[SP_ARRAY_SIZE(always) + 1 + SP_ARRAY_SIZE(of_run)];
	size_t count = SP_ARRAY_SIZE(always);
	int status;

	memcpy(members, always, sizeof(always));
	members[count++] = flags & SP_START_PLAIN ? of_plain : of_stream;
	if (flags & SP_START_RUN) {
		memcpy(&members[count], of_run, sizeof(of_run));
		count += SP_ARRAY_SIZE(of_run);
	} else if (!(flags & SP_START_PLAIN)) {
		members[count++] = of_held;
	}
	status = sp_body_read(body->root, "", members, count, err);
	if (status == 0)
		status = fill_spec(body, &said, err);
	if (status == 0 && flags & SP_START_RUN)
		status = fill_acquire(&run, pool, body->binds, &body->acquire, err);
	if (status == 0 && body->stdin_text) {
		body->spec.stdin_open = true;
		body->stdin_text_len = strlen(body->stdin_text);
	}
	return status;
}

int sp_start_body_parse(struct sp_start_body *body, unsigned int flags, const char *pool,
			const char *data, size_t len, struct sp_err *err)
{
	int status;

	*body = (struct sp_start_body){0};
	status = sp_body_parse(data, len, &body->root, err);
	if (status < 0)
		return status;
	status = read_start(body, flags, pool, err);
	if (status < 0)
		sp_start_body_done(body);
	return status;
}

void sp_start_body_done(struct sp_start_body *body)
{
	if (body->env)
		for (size_t i = 0; body->env[i]; i++)
			free(body->env[i]);
	free(body->env);
	free(body->argv);
	json_decref(body->root);
	*body = (struct sp_start_body){0};
}

/* ---- answers ---- */

void sp_started_write(struct sp_json_out *out, const char *sandbox_id, const char *pool)
{
	sp_json_open(out, NULL, '{');
	sp_json_text(out, "sandbox", sandbox_id);
	sp_json_text(out, "pool", pool);
	sp_json_close(out, '}');
}

/* As a shell would have reported a program that it could not start. */
static int exit_code_of(const struct sp_exec_result *result)
{
	if (result->reason == SP_EXEC_START_FAILED && result->exit_code < 0)
		return result->start_errno == ENOENT ? 127 : 126;
	return result->exit_code;
}

void sp_result_write(struct sp_json_out *out, const char *key, const struct sp_exec_result *result)
{
	int exit_code = exit_code_of(result);

	sp_json_open(out, key, '{');
	sp_json_text(out, "reason", sp_exec_reason_name(result->reason));
	if (exit_code < 0)
		sp_json_null(out, "exit_code");
	else
		sp_json_integer(out, "exit_code", exit_code);
	sp_json_integer(out, "signal", result->signal);
	sp_json_thousandths(out, "wall_ms", result->wall_us);
	sp_json_thousandths(out, "cpu_ms", result->user_us + result->system_us);
	sp_json_unsigned(out, "peak_memory_bytes", result->peak_memory_bytes);
	sp_json_unsigned(out, "stdout_bytes", result->stdout_bytes);
	sp_json_unsigned(out, "stderr_bytes", result->stderr_bytes);
	sp_json_boolean(out, "stdout_truncated", result->stdout_truncated);
	sp_json_boolean(out, "stderr_truncated", result->stderr_truncated);
	if (result->stage[0])
		sp_json_text(out, "stage", result->stage);
	if (result->message[0])
		sp_json_text(out, "message", result->message);
	sp_json_close(out, '}');
}
