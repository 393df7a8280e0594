/*
 * From the launcher's template (init/boot.h) to the sandbox's root:
 *
 *	/scratch   the one tmpfs, sized: every byte that can be written in this sandbox
 *	/scratch/root   the skeleton: bound at /newroot, in the end read-only
 *	/scratch/w<i>   one directory for each writable place, bound at its target
 *
 * then the mount table in order, then pivot_root; the template is detached. What remains of it are
 * the mounts that the table took from it. Everything is named by descriptors and targets are
 * resolved without following anything, although all of it is ours: /etc, an image's root and
 * /proc are made of foreign content.
 *
 * A step that fails fails the sandbox; there is no "go on without".
 */
#include "supervisor/init/root.h"

#include "pool/base/fd.h"
#include "supervisor/sandbox/loopback.h"
#include "supervisor/sandbox/mount_attach.h"
#include "supervisor/sandbox/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define NAME_SPACE   32
#define PATH_SPACE   64
#define SOURCE_EMPTY "/empty/"
#define NO_DOMAIN    "(none)" /* as in a kernel that was never told */
#define MASK_ATTRIBUTES \
	(MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)

struct builder {
	struct init *init;
	int scratch_fd;
	int root_fd; /* O_PATH of the mount at /newroot */
};

int init_namespaces(struct init *init)
{
	int flags = CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;

	if ((init->pool->flags & SP_POOL_F_NETWORK_HOST) == 0)
		flags |= CLONE_NEWNET;
	init_stage(init, "namespaces");
	if (unshare(flags) != 0)
		return -errno;
	init_stage(init, "hostname");
	if (sethostname(init->pool->hostname, strlen(init->pool->hostname)) != 0 ||
	    setdomainname(NO_DOMAIN, sizeof(NO_DOMAIN) - 1) != 0)
		return -errno;
	if ((flags & CLONE_NEWNET) == 0)
		return 0;
	init_stage(init, "loopback");
	return sp_loopback_up();
}

/* Ids inside that files of the workload belong to. With a one-uid map there is but one. */
static int own(const struct init *init, int dir_fd, const char *name)
{
	if (init->boot->rootless)
		return 0;
	if (fchownat(dir_fd, name, init->pool->workload_uid, init->pool->workload_gid,
		     AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0)
		return -errno;
	return 0;
}

static int attach_path(int mount_fd, const char *path)
{
	SP_AUTO_CLOSE int target_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

	return target_fd < 0 ? -errno : sp_mount_attach(mount_fd, target_fd);
}

/* The one tmpfs at /scratch, and the skeleton on it at /newroot. */
static int make_scratch(struct builder *builder)
{
	const struct sp_table_pool *pool = builder->init->pool;
	char size[NAME_SPACE];
	char inodes[NAME_SPACE];
	const struct sp_mount_option options[] = {
		{"size", size}, {"nr_inodes", inodes}, {"mode", "0755"}};
	SP_AUTO_CLOSE int tmpfs_fd = -1;
	SP_AUTO_CLOSE int skeleton_fd = -1;
	int status;

	(void)snprintf(size, sizeof(size), "%" PRIu64, pool->tmp_bytes);
	(void)snprintf(inodes, sizeof(inodes), "%" PRIu64, pool->tmp_inodes);
	tmpfs_fd = sp_mount_new("tmpfs", options, SP_ARRAY_SIZE(options),
				MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	if (tmpfs_fd < 0)
		return tmpfs_fd;
	status = attach_path(tmpfs_fd, "/scratch");
	if (status < 0)
		return status;
	builder->scratch_fd = sp_take_fd(&tmpfs_fd);
	if (mkdirat(builder->scratch_fd, "root", 0755) != 0)
		return -errno;
	skeleton_fd = sp_mount_clone(builder->scratch_fd, "root", false);
	if (skeleton_fd < 0)
		return skeleton_fd;
	status = attach_path(skeleton_fd, "/newroot");
	if (status < 0)
		return status;
	builder->root_fd = sp_take_fd(&skeleton_fd);
	return 0;
}

/* Attach a mount at a target that is made where it is missing. Right below the root that is done by
 * name: the skeleton is ours, and nothing is followed. */
static int attach_at(struct builder *builder, int mount_fd, const char *target, bool is_file)
{
	SP_AUTO_CLOSE int target_fd = -1;

	if (strrchr(target, '/') == target) {
		int status = sp_mount_make(builder->root_fd, target + 1, is_file);

		return status < 0 ? status
				  : sp_mount_attach_at(mount_fd, builder->root_fd, target + 1);
	}
	target_fd = sp_mount_point(builder->root_fd, target, is_file);
	return target_fd < 0 ? target_fd : sp_mount_attach(mount_fd, target_fd);
}

static int apply_bind(struct builder *builder, const struct sp_table_mount *mount,
		      const char *source)
{
	SP_AUTO_CLOSE int mount_fd = sp_mount_clone(AT_FDCWD, source, true);
	struct stat info;

	if (mount_fd < 0)
		return mount_fd;
	if (fstat(mount_fd, &info) != 0)
		return -errno;
	if ((mount->flags & SP_MOUNT_F_NOEXEC) != 0) {
		int status = sp_sys_mount_setattr(mount_fd, "", AT_EMPTY_PATH | AT_RECURSIVE,
						  MOUNT_ATTR_NOEXEC, 0, 0, -1);

		if (status < 0)
			return status;
	}
	return attach_at(builder, mount_fd, mount->target, !S_ISDIR(info.st_mode));
}

static int apply_dir(struct builder *builder, const struct sp_table_mount *mount)
{
	SP_AUTO_CLOSE int path_fd = sp_mount_point(builder->root_fd, mount->target, false);
	SP_AUTO_CLOSE int dir_fd = -1;

	if (path_fd < 0)
		return path_fd;
	dir_fd = openat(path_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd < 0)
		return -errno;
	if (fchmod(dir_fd, mount->mode) != 0)
		return -errno;
	return (mount->flags & SP_MOUNT_F_OWNED) != 0 ? own(builder->init, dir_fd, "") : 0;
}

static int apply_symlink(struct builder *builder, const struct sp_table_mount *mount)
{
	char parent[SP_TABLE_PATH_MAX];
	const char *name = strrchr(mount->target, '/') + 1;
	SP_AUTO_CLOSE int dir_fd = -1;

	memcpy(parent, mount->target, (size_t)(name - mount->target));
	parent[name - mount->target] = '\0';
	if (strcmp(parent, "/") != 0) {
		dir_fd = sp_mount_point(builder->root_fd, parent, false);
		if (dir_fd < 0)
			return dir_fd;
	}
	if (symlinkat(mount->source, dir_fd < 0 ? builder->root_fd : dir_fd, name) != 0)
		return -errno;
	return 0;
}

static int apply_writable(struct builder *builder, const struct sp_table_mount *mount, uint32_t i)
{
	char name[NAME_SPACE];
	SP_AUTO_CLOSE int mount_fd = -1;
	int status;

	(void)snprintf(name, sizeof(name), "w%" PRIu32, i);
	if (mkdirat(builder->scratch_fd, name, mount->mode) != 0)
		return -errno;
	if ((mount->flags & SP_MOUNT_F_OWNED) != 0) {
		status = own(builder->init, builder->scratch_fd, name);
		if (status < 0)
			return status;
	}
	mount_fd = sp_mount_clone(builder->scratch_fd, name, false);
	if (mount_fd < 0)
		return mount_fd;
	if ((mount->flags & SP_MOUNT_F_NOEXEC) != 0) {
		status = sp_sys_mount_setattr(mount_fd, "", AT_EMPTY_PATH, MOUNT_ATTR_NOEXEC, 0, 0,
					      -1);
		if (status < 0)
			return status;
	}
	return attach_at(builder, mount_fd, mount->target, false);
}

/* Cover what target_fd names by an empty file or directory. */
static int cover(int target_fd)
{
	SP_AUTO_CLOSE int mount_fd = -1;
	struct stat info;

	if (fstat(target_fd, &info) != 0)
		return -errno;
	mount_fd = sp_mount_clone(
		AT_FDCWD, S_ISDIR(info.st_mode) ? SOURCE_EMPTY "dir" : SOURCE_EMPTY "file", false);
	return mount_fd < 0 ? mount_fd : sp_mount_attach(mount_fd, target_fd);
}

static int apply_hide(struct builder *builder, const struct sp_table_mount *mount)
{
	SP_AUTO_CLOSE int target_fd = sp_mount_resolve(builder->root_fd, mount->target);

	if (target_fd == -ENOENT && (mount->flags & SP_MOUNT_F_OPTIONAL) != 0)
		return 0;
	return target_fd < 0 ? target_fd : cover(target_fd);
}

static int mask(int proc_fd, const char *cover_path, const char *const *names, size_t count)
{
	SP_AUTO_CLOSE int mount_fd = -1;

	for (size_t i = 0; i < count; i++) {
		int status;

		if (mount_fd < 0)
			mount_fd = sp_mount_clone(AT_FDCWD, cover_path, false);
		if (mount_fd < 0)
			return mount_fd;
		status = sp_mount_attach_at(mount_fd, proc_fd, names[i]);
		if (status == -ENOENT)
			continue; /* the next one's */
		if (status < 0)
			return status;
		sp_fd_close(&mount_fd);
	}
	return 0;
}

const char *const init_masked_proc[INIT_MASKED_PROC] = {
	"acpi",          "asound",      "scsi",          "config.gz",  "interrupts",
	"kallsyms",      "kcore",       "keys",          "key-users",  "kmsg",
	"latency_stats", "sched_debug", "sysrq-trigger", "timer_list", "timer_stats",
};

/* What is not there in this kernel needs no mask. The names are the kernel's own, none is a
 * symlink. */
static int mask_proc(int proc_fd)
{
	const size_t directories = 3; /* the first ones */
	int status = mask(proc_fd, SOURCE_EMPTY "dir", init_masked_proc, directories);

	return status < 0 ? status
			  : mask(proc_fd, SOURCE_EMPTY "file", init_masked_proc + directories,
				 INIT_MASKED_PROC - directories);
}

/* pressure: anybody may write a trigger into it, which the host's kernel then evaluates. */
int init_protect_proc(int proc_fd)
{
	static const char *const read_only[] = {"bus", "driver", "fs", "irq", "pressure", "sys"};

	for (size_t i = 0; i < SP_ARRAY_SIZE(read_only); i++) {
		SP_AUTO_CLOSE int mount_fd = sp_mount_clone(proc_fd, read_only[i], false);
		int status;

		if (mount_fd == -ENOENT)
			continue;
		if (mount_fd < 0)
			return mount_fd;
		status = sp_sys_mount_setattr(mount_fd, "", AT_EMPTY_PATH, MOUNT_ATTR_RDONLY, 0, 0,
					      -1);
		if (status == 0)
			status = sp_mount_attach_at(mount_fd, proc_fd, read_only[i]);
		if (status < 0)
			return status;
	}
	return 0;
}

/*
 * The kernel lets a user namespace mount a proc only while it sees an unmasked one. init keeps a
 * bind of the whole proc where only it can go, so that a nested one can be made later. With a
 * one-uid map there is no such place: then it is kept as a descriptor alone.
 */
static int keep_proc(struct builder *builder, int proc_fd)
{
	SP_AUTO_CLOSE int clone_fd = sp_mount_clone(proc_fd, "", false);
	SP_AUTO_CLOSE int target_fd = -1;
	int status = 0;

	if (clone_fd < 0)
		return clone_fd;
	if (!builder->init->boot->rootless) {
		if (mkdirat(builder->root_fd, INIT_PRIVATE_DIR, 0700) != 0 ||
		    mkdirat(builder->root_fd, INIT_PRIVATE_DIR "/proc", 0700) != 0)
			return -errno;
		target_fd = sp_mount_resolve(builder->root_fd, INIT_PRIVATE_DIR "/proc");
		status = target_fd < 0 ? target_fd : sp_mount_attach(clone_fd, target_fd);
	}
	if (status == 0)
		builder->init->proc_fd = sp_take_fd(&clone_fd);
	return status;
}

static int apply_proc(struct builder *builder, const struct sp_table_mount *mount)
{
	SP_AUTO_CLOSE int proc_fd = sp_mount_new(
		"proc", NULL, 0, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	int status;

	if (proc_fd < 0)
		return proc_fd;
	status = attach_at(builder, proc_fd, mount->target, false);
	if (status == 0 && builder->init->proc_fd < 0)
		status = keep_proc(builder, proc_fd);
	if (status == 0)
		status = mask_proc(proc_fd);
	if (status == 0)
		status = init_protect_proc(proc_fd);
	return status;
}

static int apply(struct builder *builder, uint32_t i)
{
	const struct sp_table_mount *mount = &builder->init->pool->mounts[i];
	uint32_t pool_index = builder->init->boot->pool_index;
	char source[PATH_SPACE];

	switch ((enum sp_table_mount_kind)mount->kind) {
	case SP_MOUNT_BIND:
	case SP_MOUNT_TREE:
		(void)snprintf(source, sizeof(source), "/pools/%" PRIu32 "/%" PRIu32, pool_index,
			       i);
		return apply_bind(builder, mount, source);
	case SP_MOUNT_DEV:
		(void)snprintf(source, sizeof(source), "/pools/%" PRIu32 "/dev", pool_index);
		return apply_bind(builder, mount, source);
	case SP_MOUNT_DIR:
		return apply_dir(builder, mount);
	case SP_MOUNT_SYMLINK:
		return apply_symlink(builder, mount);
	case SP_MOUNT_WRITABLE:
		return apply_writable(builder, mount, i);
	case SP_MOUNT_HIDE:
		return apply_hide(builder, mount);
	case SP_MOUNT_PROC:
		return apply_proc(builder, mount);
	case SP_MOUNT_FILE: /* legal in a tree only, and trees are the launcher's */
		break;
	}
	return -EINVAL;
}

static int apply_table(struct builder *builder)
{
	const struct sp_boot *boot = builder->init->boot;

	for (uint32_t i = 0; i < boot->pool.mount_count; i++) {
		bool proc = boot->pool.mounts[i].kind == SP_MOUNT_PROC;
		char stage[NAME_SPACE];
		int status;

		if (boot->absent[i])
			continue;
		(void)snprintf(stage, sizeof(stage), "mount:%" PRIu32, i);
		init_stage(builder->init, proc ? "proc" : stage);
		status = apply(builder, i);
		if (status < 0)
			return status;
	}
	return 0;
}

/* The old root is stacked below the new one and taken off: no directory for it is needed. */
static int switch_root(struct builder *builder)
{
	int status;

	if (fchdir(builder->root_fd) != 0)
		return -errno;
	status = sp_sys_pivot_root(".", ".");
	if (status < 0)
		return status;
	if (umount2(".", MNT_DETACH) != 0)
		return -errno;
	return chdir("/") == 0 ? 0 : -errno;
}

/* What late mounts need to know of the root. */
static int note_root(struct init *init)
{
	struct statx info;

	init->root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (init->root_fd < 0)
		return -errno;
	if (statx(init->root_fd, "", AT_EMPTY_PATH, STATX_MNT_ID | STATX_INO, &info) != 0)
		return -errno;
	if ((info.stx_mask & STATX_MNT_ID) == 0)
		return -ENOSYS;
	init->root_mount_id = info.stx_mnt_id;
	init->tmpfs_device = makedev(info.stx_dev_major, info.stx_dev_minor);
	return 0;
}

static int build(struct builder *builder)
{
	struct init *init = builder->init;
	int status;

	init_stage(init, "template");
	status = sp_sys_mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, 0, 0, MS_PRIVATE, -1);
	if (status < 0)
		return status;
	/* What is taken from the template's own tmpfs are masks: these attributes go with them. */
	status = sp_sys_mount_setattr(AT_FDCWD, "/", 0, MASK_ATTRIBUTES, 0, 0, -1);
	if (status < 0)
		return status;
	init_stage(init, "tmpfs");
	status = make_scratch(builder);
	if (status < 0)
		return status;
	status = apply_table(builder);
	if (status < 0)
		return status;
	init_stage(init, "skeleton");
	init->skeleton_fd = sp_mount_clone(builder->scratch_fd, "root", false);
	if (init->skeleton_fd < 0)
		return init->skeleton_fd;
	init_stage(init, "pivot_root");
	status = switch_root(builder);
	if (status < 0)
		return status;
	init_stage(init, "read_only");
	status = sp_sys_mount_setattr(builder->root_fd, "", AT_EMPTY_PATH, MOUNT_ATTR_RDONLY, 0, 0,
				      -1);
	return status < 0 ? status : note_root(init);
}

int init_root(struct init *init)
{
	struct builder builder = {.init = init, .scratch_fd = -1, .root_fd = -1};
	mode_t old_umask = umask(0);
	int status = build(&builder);

	sp_fd_close(&builder.scratch_fd);
	sp_fd_close(&builder.root_fd);
	(void)umask(old_umask);
	return status;
}
