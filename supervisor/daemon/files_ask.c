/*
 * The operations that files.h offers, each as the record that asks for it.
 */
#include "supervisor/daemon/files_private.h"

#include <errno.h>
#include <string.h>

#define MODE_BITS 01777u

static struct file_wish wish_for(enum sp_init_file_kind kind, const char *path)
{
	return (struct file_wish){
		.kind = kind,
		.path = path,
		.record = {.mode = SP_FILE_KEEP, .owner = SP_FILE_KEEP, .group = SP_FILE_KEEP},
	};
}

/* Mode and owner of what is made or changed. */
static int wish_attributes(struct file_wish *wish, uint32_t mode, uint32_t uid, uint32_t gid,
			   struct sp_err *err)
{
	if (mode != SP_FILE_KEEP && (mode & ~MODE_BITS) != 0)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
				   "mode %o of '%.350s' is not within 1777", mode, wish->path);
	wish->record.mode = mode;
	wish->record.owner = uid;
	wish->record.group = gid;
	return 0;
}

int sp_file_stat(struct sp_service *service, const struct sp_caller *caller,
		 const struct sp_file_place *place, const char *path, sp_file_stat_cb *cb,
		 void *arg, struct sp_file_op **ret_op, struct sp_err *err)
{
	struct file_wish wish = wish_for(SP_INIT_FILE_STAT, path);
	int status = file_op_begin(service, caller, place, &wish, ret_op, err);

	if (status < 0)
		return status;
	(*ret_op)->on.stat = cb;
	(*ret_op)->arg = arg;
	return 0;
}

int sp_file_open(struct sp_service *service, const struct sp_caller *caller,
		 const struct sp_file_place *place, const char *path, sp_file_open_cb *cb,
		 void *arg, struct sp_file_op **ret_op, struct sp_err *err)
{
	struct file_wish wish = wish_for(SP_INIT_FILE_OPEN, path);
	int status = file_op_begin(service, caller, place, &wish, ret_op, err);

	if (status < 0)
		return status;
	(*ret_op)->on.open = cb;
	(*ret_op)->arg = arg;
	return 0;
}

/* It is one of the two. */
static int check_overlay(const struct sp_file_place *place, struct sp_err *err)
{
	if ((place->session == 0) != (place->overlay == 0))
		return 0;
	return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL,
			   "this is of an isolated session, or of one of the sandbox's overlays");
}

int sp_file_diff(struct sp_service *service, const struct sp_caller *caller,
		 const struct sp_file_place *place, sp_file_open_cb *cb, void *arg,
		 struct sp_file_op **ret_op, struct sp_err *err)
{
	struct file_wish wish = wish_for(SP_INIT_FILE_DIFF, "/");
	int status = check_overlay(place, err);

	if (status == 0)
		status = file_op_begin(service, caller, place, &wish, ret_op, err);
	if (status < 0)
		return status;
	(*ret_op)->on.open = cb;
	(*ret_op)->arg = arg;
	return 0;
}

int sp_file_used(struct sp_service *service, const struct sp_caller *caller,
		 const struct sp_file_place *place, sp_file_stat_cb *cb, void *arg,
		 struct sp_file_op **ret_op, struct sp_err *err)
{
	struct file_wish wish = wish_for(SP_INIT_FILE_USED, "/");
	int status = check_overlay(place, err);

	if (status == 0)
		status = file_op_begin(service, caller, place, &wish, ret_op, err);
	if (status < 0)
		return status;
	(*ret_op)->on.stat = cb;
	(*ret_op)->arg = arg;
	return 0;
}

int sp_file_write_back(struct sp_service *service, const struct sp_caller *caller,
		       const struct sp_file_place *place, sp_file_write_back_cb *cb, void *arg,
		       struct sp_file_op **ret_op, struct sp_err *err)
{
	struct file_wish wish = wish_for(SP_INIT_FILE_WRITE_BACK, "/");
	int status = check_overlay(place, err);

	wish.record.limit = SP_FILE_COMMIT_MAX;
	if (status == 0)
		status = file_op_begin(service, caller, place, &wish, ret_op, err);
	if (status < 0)
		return status;
	(*ret_op)->on.written_back = cb;
	(*ret_op)->arg = arg;
	return 0;
}

int sp_file_list(struct sp_service *service, const struct sp_caller *caller,
		 const struct sp_file_place *place, const char *path, uint32_t depth,
		 const struct sp_file_list_events *events, void *arg, struct sp_file_op **ret_op,
		 struct sp_err *err)
{
	struct file_wish wish = wish_for(SP_INIT_FILE_LIST, path);
	int status;

	wish.record.depth = depth;
	wish.record.limit = SP_FILE_LIST_MAX;
	status = file_op_begin(service, caller, place, &wish, ret_op, err);
	if (status < 0)
		return status;
	(*ret_op)->depth = depth;
	(*ret_op)->on.list = *events;
	(*ret_op)->arg = arg;
	return 0;
}

static int begin_done(struct sp_service *service, const struct sp_caller *caller,
		      const struct sp_file_place *place, const struct file_wish *wish,
		      sp_file_done_cb *cb, void *arg, struct sp_file_op **ret_op,
		      struct sp_err *err)
{
	int status = file_op_begin(service, caller, place, wish, ret_op, err);

	if (status < 0)
		return status;
	(*ret_op)->on.done = cb;
	(*ret_op)->arg = arg;
	return 0;
}

int sp_file_renew(struct sp_service *service, const struct sp_caller *caller,
		  const struct sp_file_place *place, bool unused, sp_file_done_cb *cb, void *arg,
		  struct sp_file_op **ret_op, struct sp_err *err)
{
	struct file_wish wish = wish_for(SP_INIT_FILE_RENEW, "/");
	int status = check_overlay(place, err);

	wish.record.flags = unused ? SP_INIT_FILE_F_UNUSED : 0;
	return status < 0 ? status
			  : begin_done(service, caller, place, &wish, cb, arg, ret_op, err);
}

int sp_file_recover(struct sp_service *service, const struct sp_caller *caller,
		    const struct sp_file_place *place, const char *path, sp_file_done_cb *cb,
		    void *arg, struct sp_file_op **ret_op, struct sp_err *err)
{
	struct file_wish wish = wish_for(SP_INIT_FILE_RECOVER, path ? path : "/");
	int status = path ? 0 : check_overlay(place, err);

	return status < 0 ? status
			  : begin_done(service, caller, place, &wish, cb, arg, ret_op, err);
}

int sp_file_mkdir(struct sp_service *service, const struct sp_caller *caller,
		  const struct sp_file_place *place, const char *path, uint32_t mode, uint32_t uid,
		  uint32_t gid, sp_file_done_cb *cb, void *arg, struct sp_file_op **ret_op,
		  struct sp_err *err)
{
	struct file_wish wish = wish_for(SP_INIT_FILE_MKDIR, path);
	int status = wish_attributes(&wish, mode, uid, gid, err);

	return status < 0 ? status
			  : begin_done(service, caller, place, &wish, cb, arg, ret_op, err);
}

int sp_file_remove(struct sp_service *service, const struct sp_caller *caller,
		   const struct sp_file_place *place, const char *path, bool recursive,
		   sp_file_done_cb *cb, void *arg, struct sp_file_op **ret_op, struct sp_err *err)
{
	struct file_wish wish = wish_for(SP_INIT_FILE_REMOVE, path);

	wish.record.flags = recursive ? SP_INIT_FILE_F_RECURSIVE : 0;
	return begin_done(service, caller, place, &wish, cb, arg, ret_op, err);
}

int sp_file_move(struct sp_service *service, const struct sp_caller *caller,
		 const struct sp_file_place *place, const char *from, const char *to, bool replace,
		 sp_file_done_cb *cb, void *arg, struct sp_file_op **ret_op, struct sp_err *err)
{
	struct file_wish wish = wish_for(SP_INIT_FILE_MOVE, from);

	wish.to = to;
	wish.record.flags = replace ? SP_INIT_FILE_F_REPLACE : 0;
	return begin_done(service, caller, place, &wish, cb, arg, ret_op, err);
}

int sp_file_change(struct sp_service *service, const struct sp_caller *caller,
		   const struct sp_file_place *place, const char *path, uint32_t mode, uint32_t uid,
		   uint32_t gid, sp_file_done_cb *cb, void *arg, struct sp_file_op **ret_op,
		   struct sp_err *err)
{
	struct file_wish wish = wish_for(SP_INIT_FILE_CHANGE, path);
	int status = wish_attributes(&wish, mode, uid, gid, err);

	return status < 0 ? status
			  : begin_done(service, caller, place, &wish, cb, arg, ret_op, err);
}

int sp_file_write_open(struct sp_service *service, const struct sp_caller *caller,
		       const struct sp_file_place *place, const char *path, uint32_t mode,
		       uint32_t uid, uint32_t gid, const struct sp_file_write_events *events,
		       void *arg, struct sp_file_write **ret_write, struct sp_err *err)
{
	struct file_wish wish = wish_for(SP_INIT_FILE_WRITE, path);
	struct sp_file_op *op = NULL;
	int status = wish_attributes(&wish, mode, uid, gid, err);

	if (status == 0)
		status = file_op_begin(service, caller, place, &wish, &op, err);
	if (status < 0)
		return status;
	sp_assert(op);
	op->on.write = *events;
	op->arg = arg;
	*ret_write = SP_CONTAINER_OF(op, struct sp_file_write, op);
	return 0;
}

int sp_port_connect(struct sp_service *service, const struct sp_caller *caller,
		    const struct sp_file_place *place, uint16_t port, sp_port_connect_cb *cb,
		    void *arg, struct sp_file_op **ret_op, struct sp_err *err)
{
	struct file_wish wish = wish_for(SP_INIT_FILE_CONNECT, NULL);
	int status;

	if (port == 0)
		return sp_err_code(err, SP_CODE_INVALID_ARGUMENT, -EINVAL, "port 0");
	wish.record.port = port;
	status = file_op_begin(service, caller, place, &wish, ret_op, err);
	if (status < 0)
		return status;
	(*ret_op)->port = port;
	(*ret_op)->on.connect = cb;
	(*ret_op)->arg = arg;
	return 0;
}
