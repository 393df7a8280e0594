/*
 * Late binds: which allowed root a source lies below (here, by its text alone), a detached mount of
 * it (launcher, which opens it for real, without symlinks), attached inside (init).
 *
 * The text decides nothing about access: it only picks the root and the path below it. A source
 * with "." or ".." in it is refused instead of being made sense of.
 */
#include "supervisor/daemon/daemon_private.h"

#include "pool/base/fd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void binds_free(struct resolved_bind *binds, size_t count)
{
	if (!binds)
		return;
	for (size_t i = 0; i < count; i++) {
		free(binds[i].path);
		free(binds[i].target);
	}
	free(binds);
}

/* One slash between components, none at the end ("/" stays). NULL: out of memory.
 * *ret_valid: absolute, no "." and "..". */
static char *normalise(const char *path, bool *ret_valid)
{
	char *out = malloc(strlen(path) + 2);
	size_t len = 0;

	*ret_valid = path[0] == '/';
	if (!out)
		return NULL;
	while (*path != '\0') {
		size_t part = strcspn(path, "/");

		if (part == 0) {
			path++;
			continue;
		}
		if ((part == 1 && path[0] == '.') ||
		    (part == 2 && path[0] == '.' && path[1] == '.'))
			*ret_valid = false;
		out[len++] = '/';
		memcpy(out + len, path, part);
		len += part;
		path += part;
	}
	if (len == 0)
		out[len++] = '/';
	out[len] = '\0';
	return out;
}

/* The part of path below root, "" for root itself, NULL if it is not below. */
static const char *below(const char *root, const char *path)
{
	size_t len = strlen(root);

	while (len > 0 && root[len - 1] == '/')
		len--;
	if (strncmp(path, root, len) != 0)
		return NULL;
	if (path[len] == '\0')
		return path + len;
	return path[len] == '/' ? path + len + 1 : NULL;
}

static int pick_root(const struct sp_config_pool *pool, const char *source, bool read_only,
		     struct resolved_bind *bind, const char **ret_rest, struct sp_err *err)
{
	size_t longest = 0;
	const struct sp_config_bind_root *chosen = NULL;

	for (size_t i = 0; i < pool->bind_root_count; i++) {
		const struct sp_config_bind_root *root = &pool->bind_roots[i];
		const char *rest = below(root->path, source);

		if (!rest || (chosen && strlen(root->path) <= longest))
			continue;
		longest = strlen(root->path);
		chosen = root;
		bind->root_index = (uint32_t)i;
		*ret_rest = rest;
	}
	if (!chosen)
		return sp_err_code(err, SP_CODE_BIND_REFUSED, -EACCES,
				   "'%s' is not below an allowed_binds entry of pool '%s'", source,
				   pool->policy.name);
	if (chosen->read_only && !read_only)
		return sp_err_code(err, SP_CODE_BIND_REFUSED, -EROFS,
				   "'%s' may only be bound read-only (mode 'ro')", source);
	return 0;
}

static int resolve_one(const struct sp_config_pool *pool, const struct sp_bind_request *request,
		       struct resolved_bind *bind, struct sp_err *err)
{
	const char *target = request->target ? request->target : request->source;
	const char *rest = "";
	bool valid;
	char *source;
	int status;

	if (strlen(request->source) >= SP_BIND_PATH_MAX || strlen(target) >= SP_INIT_TARGET_MAX)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -ENAMETOOLONG,
				   "source and target of a bind are shorter than %u bytes",
				   SP_BIND_PATH_MAX);
	source = normalise(request->source, &valid);
	if (source && !valid) {
		status = sp_err_code(err, SP_CODE_BIND_REFUSED, -EINVAL,
				     "source '%s' must be absolute, without '.' and '..'",
				     request->source);
		free(source);
		return status;
	}
	bind->target = normalise(target, &valid);
	if (bind->target && !valid) {
		free(source);
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "target '%s' must be absolute, without '.' and '..'", target);
	}
	bind->read_only = request->mode == SP_BIND_RO;
	status = source ? pick_root(pool, source, bind->read_only, bind, &rest, err) : -ENOMEM;
	if (status == 0)
		bind->path = strdup(rest);
	free(source);
	if (status < 0 && status != -ENOMEM)
		return status;
	if (!bind->path || !bind->target)
		return sp_err_set(err, -ENOMEM, "bind of '%s'", request->source);
	return 0;
}

int binds_resolve(const struct sp_config_pool *pool, const struct sp_bind_request *binds,
		  size_t count, struct resolved_bind **ret_binds, struct sp_err *err)
{
	struct resolved_bind *resolved;

	if (count > SP_BINDS_MAX)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -E2BIG,
				   "%zu binds, at most %u are allowed", count, SP_BINDS_MAX);
	if (pool->direct)
		return sp_err_code(
			err, SP_CODE_UNSUPPORTED, -EOPNOTSUPP,
			"pool '%s' runs without namespaces, there is nothing to bind into",
			pool->policy.name);
	resolved = calloc(count, sizeof(*resolved));
	if (!resolved)
		return sp_err_set(err, -ENOMEM, "binds");
	for (size_t i = 0; i < count; i++) {
		int status = resolve_one(pool, &binds[i], &resolved[i], err);

		if (status < 0) {
			binds_free(resolved, count);
			return status;
		}
	}
	*ret_binds = resolved;
	return 0;
}

static void fail(struct sp_service_op *op, enum sp_code code, int status, const char *stage)
{
	const struct resolved_bind *bind = &op->binds[op->bind_next];
	struct sp_err err = {0};

	(void)sp_err_code(&err, code, status, "bind '%s' at '%s': %s: %s", bind->path, bind->target,
			  stage, strerrordesc_np(-status));
	op_binds_done(op, &err);
}

static int send_mount(struct sp_service_op *op, int mount_fd)
{
	struct sandbox_link *link = op->sandbox;
	const char *target = op->binds[op->bind_next].target;
	size_t length = strlen(target);

	struct {
		struct sp_init_mount head;
		char target[SP_INIT_TARGET_MAX];
	} record = {.head.header = {.type = SP_INIT_MOUNT, .request = op->bind_next + 1}};

	record.head.target_length = (uint32_t)length;
	memcpy(record.target, target, length + 1);
	link->mount_request = record.head.header.request;
	return sandbox_send(link, &record, sizeof(record.head) + length + 1, &mount_fd, 1);
}

static void on_bound(void *arg, const struct sp_launcher_answer *answer, int *fds, size_t fd_count)
{
	struct sp_service_op *op = arg;
	int status;

	op->request = 0;
	if (answer->header.type != SP_LAUNCHER_BOUND || fd_count != 1) {
		fail(op, answer->status == -ETIMEDOUT ? SP_CODE_UNAVAILABLE : SP_CODE_BIND_REFUSED,
		     answer->status < 0 ? answer->status : -EPROTO, answer->stage);
		return;
	}
	op->state = OP_MOUNTING;
	status = send_mount(op, fds[0]);
	/* A full queue has ended the sandbox and with it this op's wait. */
	if (status < 0 && op->sandbox)
		fail(op, SP_CODE_SANDBOX_DEAD, status, "mount");
}

void op_on_mounted(struct sp_service_op *op, int status, const char *stage)
{
	if (status < 0) {
		fail(op, SP_CODE_NO_MOUNT_POINT, status, stage);
		return;
	}
	op->bind_next++;
	op->state = OP_BINDING;
	binds_next(op);
}

void binds_next(struct sp_service_op *op)
{
	struct sandbox_link *link = op->sandbox;
	const struct resolved_bind *bind;
	int status;

	if (op->bind_next == op->bind_count) {
		op_binds_done(op, NULL);
		return;
	}
	bind = &op->binds[op->bind_next];
	status = launcher_bind(op->service->launcher, link->slot, link->serial, bind->root_index,
			       bind->path, bind->read_only ? SP_BIND_F_READ_ONLY : 0,
			       link->workload_uid, link->workload_gid, SP_BIND_MS, on_bound, op,
			       &op->request);
	if (status < 0)
		fail(op, SP_CODE_UNAVAILABLE, status, "launcher");
}
