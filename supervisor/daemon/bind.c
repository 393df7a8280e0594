/*
 * Late binds: which allowed root a source lies below (here, by its text alone), a detached mount of
 * it (launcher, which opens it for real, without symlinks), attached inside (init).
 *
 * The text decides nothing about access: it only picks the root and the path below it. A source
 * with "." or ".." in it is refused instead of being made sense of.
 *
 * An overlay may lie on what may only be read; then it can never be committed. No other bind of the
 * same request is at its target, above or below it: it has to be possible to take it off again.
 */
#include "supervisor/daemon/daemon_private.h"

#include "pool/base/fd.h"
#include "supervisor/daemon/files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void binds_free(struct resolved_bind *binds, size_t count)
{
	if (!binds)
		return;
	for (size_t i = 0; i < count; i++) {
		free(binds[i].source);
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

static int pick_root(const struct sp_config_pool *pool, const char *source, enum sp_bind_mode mode,
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
	if (chosen->read_only && mode == SP_BIND_RW)
		return sp_err_code(err, SP_CODE_BIND_REFUSED, -EROFS,
				   "'%s' may only be bound read-only (mode 'ro', or 'overlay' "
				   "without a commit)",
				   source);
	bind->read_only = chosen->read_only || mode == SP_BIND_RO;
	return 0;
}

static int choose_size(const struct sp_config_pool *pool, const struct sp_bind_request *request,
		       struct resolved_bind *bind, struct sp_err *err)
{
	if (request->mode != SP_BIND_OVERLAY)
		return request->size == 0 ? 0
					  : sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
							"bind of '%s': only an overlay has a size",
							request->source);
	if (request->size > pool->tmp_bytes)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -E2BIG,
				   "overlay of '%s': a size of %" PRIu64
				   " bytes is beyond limits.tmp of pool '%s', %" PRIu64,
				   request->source, request->size, pool->policy.name,
				   pool->tmp_bytes);
	bind->size = request->size > 0 ? request->size : pool->tmp_bytes;
	return 0;
}

static int resolve_one(const struct sp_config_pool *pool, const struct sp_bind_request *request,
		       struct resolved_bind *bind, struct sp_err *err)
{
	const char *target = request->target ? request->target : request->source;
	const char *rest = "";
	bool valid;
	int status;

	if (strlen(request->source) >= SP_BIND_PATH_MAX || strlen(target) >= SP_INIT_TARGET_MAX)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -ENAMETOOLONG,
				   "source and target of a bind are shorter than %u bytes",
				   SP_BIND_PATH_MAX);
	bind->source = normalise(request->source, &valid);
	if (bind->source && !valid)
		return sp_err_code(err, SP_CODE_BIND_REFUSED, -EINVAL,
				   "source '%s' must be absolute, without '.' and '..'",
				   request->source);
	bind->target = normalise(target, &valid);
	if (bind->target && !valid)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "target '%s' must be absolute, without '.' and '..'", target);
	if (!bind->source || !bind->target)
		return sp_err_set(err, -ENOMEM, "bind of '%s'", request->source);
	status = pick_root(pool, bind->source, request->mode, bind, &rest, err);
	if (status == 0)
		status = choose_size(pool, request, bind, err);
	if (status < 0)
		return status;
	bind->path = strdup(rest);
	return bind->path ? 0 : sp_err_set(err, -ENOMEM, "bind of '%s'", request->source);
}

static int check_overlays(const struct resolved_bind *binds, size_t count, struct sp_err *err)
{
	for (size_t i = 0; i < count; i++)
		for (size_t j = 0; j < count; j++)
			if (i != j && binds[i].overlay > 0 &&
			    (below(binds[i].target, binds[j].target) ||
			     below(binds[j].target, binds[i].target)))
				return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
						   "the overlay at '%s' and the bind at '%s' "
						   "cover one another",
						   binds[i].target, binds[j].target);
	return 0;
}

/* Each gets its number. */
static int number_overlays(const struct sp_bind_request *binds, struct resolved_bind *resolved,
			   size_t count, struct sp_err *err)
{
	uint32_t overlays = 0;

	for (size_t i = 0; i < count; i++)
		if (binds[i].mode == SP_BIND_OVERLAY)
			resolved[i].overlay = ++overlays;
	if (overlays > SP_INIT_OVERLAYS_MAX)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -E2BIG,
				   "%" PRIu32 " overlays, at most %u are allowed", overlays,
				   SP_INIT_OVERLAYS_MAX);
	return check_overlays(resolved, count, err);
}

int binds_resolve(const struct sp_config_pool *pool, const struct sp_bind_request *binds,
		  size_t count, struct resolved_bind **ret_binds, struct sp_err *err)
{
	struct resolved_bind *resolved;
	int status = 0;

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
	for (size_t i = 0; status == 0 && i < count; i++)
		status = resolve_one(pool, &binds[i], &resolved[i], err);
	if (status == 0)
		status = number_overlays(binds, resolved, count, err);
	if (status < 0) {
		binds_free(resolved, count);
		return status;
	}
	*ret_binds = resolved;
	return 0;
}

/* What an overlay in particular cannot be, in words; NULL: it is the stage that says it. */
static const char *overlay_refusal(const char *stage, int status)
{
	if (strcmp(stage, "file_system") == 0)
		return "it is on a network or FUSE file system: what others change there would not "
		       "be noticed";
	if (strcmp(stage, "supported") == 0)
		return "a rootless pool has no place for its layers that the workload cannot enter";
	if (strcmp(stage, "covers") == 0)
		return "the target covers mounts of the pool";
	if (strcmp(stage, "overlay") == 0 && status == -EOPNOTSUPP)
		return "the kernel's tmpfs has no user attributes (they came with Linux 6.6)";
	if (strcmp(stage, "overlay") == 0 && status == -EINVAL)
		return "the kernel lays no overlay over this file system";
	if (strcmp(stage, "owner") == 0)
		return "it belongs to root, in whose name nothing is written back";
	return NULL;
}

static void fail(struct sp_service_op *op, enum sp_code code, int status, const char *stage)
{
	const struct resolved_bind *bind = &op->binds[op->bind_next];
	const char *why = bind->overlay > 0 ? overlay_refusal(stage, status) : NULL;
	struct sp_err err = {0};

	if (why)
		(void)sp_err_code(&err, status == -EOPNOTSUPP ? SP_CODE_UNSUPPORTED : code, status,
				  "overlay of '%s' at '%s': %s", bind->source, bind->target, why);
	else
		(void)sp_err_code(&err, code, status, "bind '%s' at '%s': %s: %s", bind->path,
				  bind->target, stage, strerrordesc_np(-status));
	op_binds_done(op, &err);
}

static int send_mount(struct sp_service_op *op, int mount_fd)
{
	const struct resolved_bind *bind = &op->binds[op->bind_next];
	struct sandbox_link *link = op->sandbox;
	size_t length = strlen(bind->target);

	struct {
		struct sp_init_mount head;
		char target[SP_INIT_TARGET_MAX];
	} record = {
		.head = {.header = {.type = SP_INIT_MOUNT, .request = op->bind_next + 1},
			 .size = bind->size,
			 .target_length = (uint32_t)length},
	};

	if (bind->overlay > 0) {
		record.head.header.exec = bind->overlay;
		record.head.flags = SP_INIT_MOUNT_F_OVERLAY;
	}
	memcpy(record.target, bind->target, length + 1);
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
	op->binds[op->bind_next].unfinished = answer->value != 0;
	op->state = OP_MOUNTING;
	status = send_mount(op, fds[0]);
	/* A full queue has ended the sandbox and with it this op's wait. */
	if (status < 0 && op->sandbox)
		fail(op, SP_CODE_SANDBOX_DEAD, status, "mount");
}

/* ---- a commit that was cut off in the source ---- */

void bind_recovery_cancel(struct sp_service_op *op)
{
	if (op->recovery)
		sp_file_op_cancel(op->recovery);
	op->recovery = NULL;
}

static void bound(struct sp_service_op *op)
{
	op->bind_next++;
	op->state = OP_BINDING;
	binds_next(op);
}

static void recovery_failed(struct sp_service_op *op, const struct sp_err *why)
{
	const struct resolved_bind *bind = &op->binds[op->bind_next];
	struct sp_err err = {0};

	(void)sp_err_code(&err, why->code, why->status, "a commit was cut off in '%s': %s",
			  bind->source, why->message);
	op_binds_done(op, &err);
}

static void on_renewed(void *arg, const struct sp_err *err)
{
	struct sp_service_op *op = arg;

	op->recovery = NULL;
	if (err)
		recovery_failed(op, err);
	else
		bound(op);
}

/* An overlay was made above what was not whole. */
static void on_recovered(void *arg, const struct sp_err *refused)
{
	struct sp_service_op *op = arg;
	const struct resolved_bind *bind = &op->binds[op->bind_next];
	const struct sp_file_place place = {
		.sandbox = op->sandbox->id, .overlay = bind->overlay, .uid = -1, .gid = -1};
	struct sp_err err = {0};

	op->recovery = NULL;
	if (refused)
		recovery_failed(op, refused);
	else if (bind->overlay == 0)
		bound(op);
	else if (sp_file_renew(op->service, &daemon_itself, &place, true, on_renewed, op,
			       &op->recovery, &err) < 0)
		recovery_failed(op, &err);
}

static void recover(struct sp_service_op *op)
{
	const struct resolved_bind *bind = &op->binds[op->bind_next];
	const struct sp_file_place place = {
		.sandbox = op->sandbox->id, .overlay = bind->overlay, .uid = -1, .gid = -1};
	struct sp_err err = {0};

	op->state = OP_RECOVERING;
	if (sp_file_recover(op->service, &daemon_itself, &place,
			    bind->overlay > 0 ? NULL : bind->target, on_recovered, op,
			    &op->recovery, &err) < 0)
		recovery_failed(op, &err);
}

void op_on_mounted(struct sp_service_op *op, int status, const char *stage)
{
	const struct resolved_bind *bind = &op->binds[op->bind_next];

	if (status == 0 && bind->overlay > 0) {
		stage = "memory";
		status = overlays_add(op->sandbox, bind);
	}
	if (status < 0)
		fail(op, SP_CODE_NO_MOUNT_POINT, status, stage);
	else if (bind->unfinished)
		recover(op);
	else
		bound(op);
}

void binds_next(struct sp_service_op *op)
{
	struct sandbox_link *link = op->sandbox;
	const struct resolved_bind *bind;
	uint32_t flags;
	int status;

	if (op->bind_next == op->bind_count) {
		op_binds_done(op, NULL);
		return;
	}
	bind = &op->binds[op->bind_next];
	flags = (bind->read_only ? SP_BIND_F_READ_ONLY : 0) |
		(bind->overlay > 0 ? SP_BIND_F_OVERLAY : 0);
	status = launcher_bind(op->service->launcher, link->slot, link->serial, bind->root_index,
			       bind->path, flags, link->workload_uid, link->workload_gid,
			       SP_BIND_MS, on_bound, op, &op->request);
	if (status < 0)
		fail(op, SP_CODE_UNAVAILABLE, status, "launcher");
}
