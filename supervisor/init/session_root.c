/*
 * The first process of a session: from the sandbox's mounts, of which its new namespace has a copy,
 * to the session's.
 *
 *	sources taken: workspace, writable paths, binds, looked up with the workload's permissions
 *	/ and all below it read-only
 *	/.init    one sized tmpfs, 0700: what is private in the session, below it …
 *	/tmp      … its own or the sandbox's; /run, /dev/shm its own; /dev/pts a new devpts
 *	workspace, writable paths, binds
 *	/proc     of the new pid namespace, last, masked as the sandbox's is
 *
 * What the client named is resolved once, to a descriptor, and mounted by that; links in it are
 * followed as they would be for the workload, magic links never. An upper directory lies below
 * /.init, where nobody but uid 0 comes; other sessions' are in other mount namespaces.
 */
#include "supervisor/init/session.h"

#include "pool/base/fd.h"
#include "supervisor/init/commit_journal.h"
#include "supervisor/init/overlay.h"
#include "supervisor/init/raw.h"
#include "supervisor/init/root.h"
#include "supervisor/sandbox/loopback.h"
#include "supervisor/sandbox/mount_attach.h"
#include "supervisor/sandbox/seccomp_load.h"
#include "supervisor/sandbox/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define REPORT_FD     0
#define PROC_FD       1 /* the sandbox's unmasked proc: our own descriptors' names */
#define HOSTNAME      "sandbox"
#define NAME_SPACE    32
#define KERNEL_SIGSET 8u
#define ATTRIBUTES    (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
#define MOUNTS_SPACE  (256u * 1024) /* bytes of mountinfo; E2BIG beyond */
#define PATHS_MAX     SP_INIT_SESSION_PATHS_MAX

/* Something of the sandbox that the session gets. */
struct place {
	int mount_fd; /* a detached clone */
	bool is_file;
	mode_t mode;
	uid_t uid;
	gid_t gid;
	char path[SP_INIT_PATH_MAX]; /* where it really is */
};

struct builder {
	struct init *init;
	const struct sp_init_session_open *request;
	char stage[NAME_SPACE];
	int root_fd;
	int tmpfs_fd;
	int tmp_fd; /* the sandbox's /tmp; -1: a private one */
	int pts_fd;
	int proc_fd;
	int mask_fds[INIT_MASKED_PROC];
	char mounts[MOUNTS_SPACE];
	const char *workspace_path;
	const char *allowed[PATHS_MAX];
	const char *writable_paths[PATHS_MAX];
	const char *sources[PATHS_MAX];
	const char *targets[PATHS_MAX];
	char roots[PATHS_MAX][SP_INIT_PATH_MAX]; /* `allowed`, resolved */
	size_t root_count;
	struct place workspace;
	struct place writable[PATHS_MAX];
	struct place binds[PATHS_MAX];
};

/* Too big for a stack, and of init's memory nothing but address space: only a child touches it. */
static struct builder the_builder;

static void stage(struct builder *builder, const char *name)
{
	(void)snprintf(builder->stage, sizeof(builder->stage), "%s", name);
}

static void stage_of(struct builder *builder, const char *name, uint32_t i)
{
	(void)snprintf(builder->stage, sizeof(builder->stage), "%s:%" PRIu32, name, i);
}

static const char *next(const char **at)
{
	const char *text = *at;

	*at += strlen(text) + 1;
	return text;
}

static void read_strings(struct builder *builder)
{
	const struct sp_init_session_open *request = builder->request;
	const char *at = (const char *)(request + 1);

	builder->workspace_path = next(&at);
	for (uint32_t i = 0; i < request->allowed_count; i++)
		builder->allowed[i] = next(&at);
	for (uint32_t i = 0; i < request->writable_count; i++)
		builder->writable_paths[i] = next(&at);
	for (uint32_t i = 0; i < request->bind_count; i++) {
		builder->sources[i] = next(&at);
		builder->targets[i] = next(&at);
	}
}

/* ---- sources ---- */

static bool is_below(const char *path, const char *top)
{
	size_t len = strlen(top);

	return strncmp(path, top, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

/* What is the kernel's or ours is neither source nor target. */
static bool forbidden(const char *path)
{
	static const char *const never[] = {"/proc", "/dev", "/sys", INIT_PRIVATE_PATH};

	for (size_t i = 0; i < SP_ARRAY_SIZE(never); i++)
		if (is_below(path, never[i]))
			return true;
	return strcmp(path, "/") == 0;
}

static int open_path(const char *path)
{
	return sp_sys_openat2(AT_FDCWD, path, O_PATH, 0, RESOLVE_NO_MAGICLINKS);
}

/* The path that the kernel knows it by. */
static int real_path(int fd, char path[SP_INIT_PATH_MAX])
{
	char name[NAME_SPACE];
	long len;

	(void)snprintf(name, sizeof(name), "self/fd/%d", fd);
	path[0] = '\0';
	len = RAW4(SYS_readlinkat, PROC_FD, name, path, SP_INIT_PATH_MAX);
	if (len < 0)
		return (int)len;
	if (len >= SP_INIT_PATH_MAX || path[0] != '/')
		return -ENAMETOOLONG;
	path[len] = '\0';
	return 0;
}

static int look_at(struct place *place, int fd)
{
	struct statx info;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_MODE | STATX_UID | STATX_GID, &info) !=
	    0)
		return -errno;
	if (!S_ISDIR(info.stx_mode) && !S_ISREG(info.stx_mode))
		return -ENOTDIR;
	place->is_file = S_ISREG(info.stx_mode);
	place->mode = info.stx_mode & 01777;
	place->uid = info.stx_uid;
	place->gid = info.stx_gid;
	return 0;
}

static int take(const char *path, struct place *ret)
{
	SP_AUTO_CLOSE int fd = open_path(path);
	int status = fd < 0 ? fd : look_at(ret, fd);

	if (status == 0)
		status = real_path(fd, ret->path);
	if (status < 0)
		return status;
	if (forbidden(ret->path))
		return -EPERM;
	/* With what is mounted in it, each as it is. */
	ret->mount_fd = sp_mount_clone(fd, "", true);
	return ret->mount_fd < 0 ? ret->mount_fd : 0;
}

/* One component after the other, as the workload may. */
static int make_directories(const char *path)
{
	char part[SP_INIT_PATH_MAX];
	size_t len = 0;

	do {
		part[len] = path[len];
		len++;
		if (path[len] != '/' && path[len] != '\0')
			continue;
		part[len] = '\0';
		if (mkdirat(AT_FDCWD, part, 0755) != 0 && errno != EEXIST && path[len] == '\0')
			return -errno;
	} while (path[len] != '\0');
	return 0;
}

/* Is the mount point of this line of mountinfo strictly below `path`? It is the fifth field, with
 * blanks and backslashes as \ooo. */
static bool line_is_below(const char *line, const char *path)
{
	const char *at = line;

	for (int field = 1; field < 5; at++) {
		if (*at == '\n' || *at == '\0')
			return false;
		field += *at == ' ';
	}
	for (; *path != '\0'; path++) {
		char have = *at++;

		if (have == '\\' && at[0] != '\0' && at[1] != '\0' && at[2] != '\0') {
			have = (char)((at[0] - '0') << 6 | (at[1] - '0') << 3 | (at[2] - '0'));
			at += 3;
		}
		if (have != *path)
			return false;
	}
	return *at == '/';
}

/*
 * The layers of an overlay are file systems, not mounts: what is mounted in the workspace would not
 * be there, and what it covers would be. 0, -EXDEV: something is.
 */
static int check_layer(struct builder *builder)
{
	SP_AUTO_CLOSE int fd = openat(PROC_FD, "self/mountinfo", O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? -errno : sp_read_all(fd, builder->mounts, MOUNTS_SPACE - 1);
	const char *line = builder->mounts;

	if (len < 0)
		return (int)len;
	if (len == MOUNTS_SPACE - 1)
		return -E2BIG;
	builder->mounts[len] = '\0';
	while (line) {
		if (line_is_below(line, builder->workspace.path))
			return -EXDEV;
		line = memchr(line, '\n', (size_t)(builder->mounts + len - line));
		line = line ? line + 1 : NULL;
	}
	return 0;
}

/* -EUCLEAN: a commit to it was cut off, and has to be completed before anybody builds on it. */
static int check_whole(struct builder *builder)
{
	struct statx info;

	if (builder->request->mode == SP_INIT_SESSION_RO ||
	    statx(builder->workspace.mount_fd, COMMIT_DIR, AT_SYMLINK_NOFOLLOW, STATX_TYPE,
		  &info) != 0)
		return 0;
	stage(builder, "recover");
	return -EUCLEAN;
}

static int take_workspace(struct builder *builder)
{
	int status;

	stage(builder, "workspace");
	status = take(builder->workspace_path, &builder->workspace);
	if (status == -ENOENT) {
		status = make_directories(builder->workspace_path);
		if (status == 0)
			status = take(builder->workspace_path, &builder->workspace);
	}
	if (status == 0 && builder->workspace.is_file)
		return -ENOTDIR;
	if (status == 0 && builder->request->mode == SP_INIT_SESSION_OVERLAY)
		status = check_layer(builder);
	return status < 0 ? status : check_whole(builder);
}

static int resolve_allowed(struct builder *builder)
{
	for (uint32_t i = 0; i < builder->request->allowed_count; i++) {
		SP_AUTO_CLOSE int fd = open_path(builder->allowed[i]);
		int status = fd < 0 ? fd : real_path(fd, builder->roots[builder->root_count]);

		stage_of(builder, "allowed", i);
		if (status == -ENOENT)
			continue;
		if (status < 0)
			return status;
		builder->root_count++;
	}
	return 0;
}

static int take_allowed(struct builder *builder, const char *path, struct place *ret)
{
	int status = take(path, ret);

	for (size_t i = 0; status == 0 && i < builder->root_count; i++)
		if (is_below(ret->path, builder->roots[i]))
			return 0;
	if (status == 0)
		stage(builder, "not_allowed");
	return status < 0 ? status : -EPERM;
}

static int take_sources(struct builder *builder)
{
	const struct sp_init_session_open *request = builder->request;
	int status = take_workspace(builder);

	if (status == 0)
		status = resolve_allowed(builder);
	for (uint32_t i = 0; status == 0 && i < request->writable_count; i++) {
		stage_of(builder, "writable", i);
		status = take_allowed(builder, builder->writable_paths[i], &builder->writable[i]);
	}
	for (uint32_t i = 0; status == 0 && i < request->bind_count; i++) {
		stage_of(builder, "bind", i);
		status = take_allowed(builder, builder->sources[i], &builder->binds[i]);
	}
	return status;
}

/* The file system's ids: those of who asks, without init's capabilities, or back. */
static int become(uint32_t uid, uint32_t gid)
{
	(void)RAW1(SYS_setfsgid, gid);
	(void)RAW1(SYS_setfsuid, uid);
	/* Both say what was set before, so asking for nobody's id tells. */
	return (uint32_t)RAW1(SYS_setfsuid, -1) == uid && (uint32_t)RAW1(SYS_setfsgid, -1) == gid
		       ? 0
		       : -EPERM;
}

static int take_as_workload(struct builder *builder)
{
	int status;

	stage(builder, "credentials");
	status = sp_sys_setgroups(0, NULL);
	if (status == 0)
		status = become(builder->request->uid, builder->request->gid);
	if (status == 0)
		status = take_sources(builder);
	if (status < 0)
		return status;
	stage(builder, "credentials");
	return become(0, 0);
}

/* What the kernel gives only as long as the sandbox's is in sight. */
static int take_kernel_mounts(struct builder *builder)
{
	const struct sp_mount_option options[] = {{"mode", "620"}, {"ptmxmode", "666"}};
	char path[NAME_SPACE];

	stage(builder, "proc");
	builder->proc_fd = sp_mount_new("proc", NULL, 0, ATTRIBUTES | MOUNT_ATTR_NOEXEC);
	if (builder->proc_fd < 0)
		return builder->proc_fd;
	for (size_t i = 0; i < INIT_MASKED_PROC; i++) {
		(void)snprintf(path, sizeof(path), "/proc/%s", init_masked_proc[i]);
		builder->mask_fds[i] = sp_mount_clone(AT_FDCWD, path, false);
		if (builder->mask_fds[i] < 0 && builder->mask_fds[i] != -ENOENT)
			return builder->mask_fds[i];
	}
	stage(builder, "devpts");
	builder->pts_fd = sp_mount_new("devpts", options, SP_ARRAY_SIZE(options),
				       MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
	if (builder->pts_fd < 0 && builder->pts_fd != -ENODEV)
		return builder->pts_fd;
	stage(builder, "tmp");
	builder->tmp_fd = -1;
	if ((builder->request->flags & SP_SESSION_F_PRIVATE_TMP) != 0)
		return 0;
	builder->tmp_fd = sp_mount_clone(AT_FDCWD, "/tmp", true);
	return builder->tmp_fd < 0 ? builder->tmp_fd : 0;
}

/* ---- targets ---- */

/* Made where it is missing and may be made, which is in what is private. */
static int attach(struct builder *builder, int mount_fd, const char *path, bool is_file)
{
	SP_AUTO_CLOSE int target_fd = sp_mount_resolve(builder->root_fd, path);

	if (target_fd == -ENOENT)
		target_fd = sp_mount_point(builder->root_fd, path, is_file);
	if (target_fd == -EROFS)
		return -ENOENT;
	return target_fd < 0 ? target_fd : sp_mount_attach(mount_fd, target_fd);
}

static int make_directory(struct builder *builder, const char *name, mode_t mode)
{
	return mkdirat(builder->tmpfs_fd, name, mode) == 0 ? 0 : -errno;
}

/* A directory of the private tmpfs, in its place. */
static int attach_private(struct builder *builder, const char *name, mode_t mode, const char *path,
			  uint64_t attributes)
{
	SP_AUTO_CLOSE int mount_fd = -1;
	int status = make_directory(builder, name, mode);

	if (status < 0)
		return status;
	mount_fd = sp_mount_clone(builder->tmpfs_fd, name, false);
	if (mount_fd < 0)
		return mount_fd;
	status = sp_sys_mount_setattr(mount_fd, "", AT_EMPTY_PATH, attributes, 0, 0, -1);
	return status < 0 ? status : attach(builder, mount_fd, path, false);
}

static int attach_tmpfs(struct builder *builder)
{
	const struct sp_table_pool *pool = builder->init->pool;
	char size[NAME_SPACE];
	char inodes[NAME_SPACE];
	const struct sp_mount_option options[] = {
		{"size", size}, {"nr_inodes", inodes}, {"mode", "0700"}};

	stage(builder, "tmpfs");
	(void)snprintf(size, sizeof(size), "%" PRIu64,
		       builder->request->upper_bytes > 0 ? builder->request->upper_bytes
							 : pool->tmp_bytes);
	(void)snprintf(inodes, sizeof(inodes), "%" PRIu64, pool->tmp_inodes);
	builder->tmpfs_fd = sp_mount_new("tmpfs", options, SP_ARRAY_SIZE(options), ATTRIBUTES);
	if (builder->tmpfs_fd < 0)
		return builder->tmpfs_fd;
	return attach(builder, builder->tmpfs_fd, INIT_PRIVATE_PATH, false);
}

static int attach_places(struct builder *builder)
{
	int status = 0;

	stage(builder, "tmp");
	if (builder->tmp_fd >= 0)
		status = attach(builder, builder->tmp_fd, "/tmp", false);
	else if (strcmp(builder->workspace.path, "/tmp") != 0)
		status = attach_private(builder, "tmp", 01777, "/tmp", ATTRIBUTES);
	if (status < 0)
		return status;
	/* A root without them has nothing that would have to be covered. */
	stage(builder, "run");
	status = attach_private(builder, "run", 01777, "/run", ATTRIBUTES);
	if (status < 0 && status != -ENOENT)
		return status;
	stage(builder, "shm");
	status = attach_private(builder, "shm", 01777, "/dev/shm", ATTRIBUTES | MOUNT_ATTR_NOEXEC);
	if (status < 0 && status != -ENOENT)
		return status;
	stage(builder, "devpts");
	status = 0;
	if (builder->pts_fd >= 0)
		status = attach(builder, builder->pts_fd, "/dev/pts", false);
	return status;
}

/* ---- workspace ---- */

static int overlay_workspace(struct builder *builder)
{
	struct place *workspace = &builder->workspace;
	int overlay_fd;

	stage(builder, "overlay");
	overlay_fd = init_overlay_make(builder->tmpfs_fd, INIT_PRIVATE_PATH, workspace->mount_fd);
	if (overlay_fd < 0)
		return overlay_fd;
	sp_fd_close(&workspace->mount_fd);
	workspace->mount_fd = overlay_fd;
	return 0;
}

static int read_only(int mount_fd)
{
	return sp_sys_mount_setattr(mount_fd, "", AT_EMPTY_PATH | AT_RECURSIVE, MOUNT_ATTR_RDONLY,
				    0, 0, -1);
}

static int attach_workspace(struct builder *builder)
{
	struct place *workspace = &builder->workspace;
	int status = 0;

	if (builder->request->mode == SP_INIT_SESSION_OVERLAY)
		status = overlay_workspace(builder);
	else if (builder->request->mode == SP_INIT_SESSION_RO)
		status = read_only(workspace->mount_fd);
	if (status < 0)
		return status;
	stage(builder, "workspace");
	return attach(builder, workspace->mount_fd, workspace->path, false);
}

/* A bind's target is the client's word as well: looked up, and made where it is missing, with the
 * workload's permissions. Where it really is decides, whatever it was called. */
static int find_target(struct builder *builder, const char *wanted, bool is_file)
{
	SP_AUTO_CLOSE int fd = open_path(wanted);
	char path[SP_INIT_PATH_MAX];
	int status;

	if (fd == -ENOENT)
		fd = sp_mount_point(builder->root_fd, wanted, is_file);
	if (fd < 0)
		return fd == -EROFS ? -ENOENT : fd;
	status = real_path(fd, path);
	if (status == 0 && forbidden(path))
		status = -EPERM;
	return status < 0 ? status : sp_take_fd(&fd);
}

static int attach_bind(struct builder *builder, uint32_t i)
{
	const struct sp_init_session_open *request = builder->request;
	const struct place *source = &builder->binds[i];
	SP_AUTO_CLOSE int target_fd = -1;
	int status = 0;

	if ((request->read_only_binds & (UINT64_C(1) << i)) != 0)
		status = read_only(source->mount_fd);
	if (status == 0)
		status = become(request->uid, request->gid);
	if (status < 0)
		return status;
	target_fd = find_target(builder, builder->targets[i], source->is_file);
	status = become(0, 0);
	if (status == 0 && target_fd < 0)
		status = target_fd;
	return status < 0 ? status : sp_mount_attach(source->mount_fd, target_fd);
}

static int attach_sources(struct builder *builder)
{
	const struct sp_init_session_open *request = builder->request;
	int status = attach_workspace(builder);

	for (uint32_t i = 0; status == 0 && i < request->writable_count; i++) {
		const struct place *place = &builder->writable[i];

		stage_of(builder, "writable", i);
		status = attach(builder, place->mount_fd, place->path, place->is_file);
	}
	for (uint32_t i = 0; status == 0 && i < request->bind_count; i++) {
		stage_of(builder, "target", i);
		status = attach_bind(builder, i);
	}
	return status;
}

static int attach_proc(struct builder *builder)
{
	int status;

	stage(builder, "proc");
	status = attach(builder, builder->proc_fd, "/proc", false);
	for (size_t i = 0; status == 0 && i < INIT_MASKED_PROC; i++)
		if (builder->mask_fds[i] >= 0)
			status = sp_mount_attach_at(builder->mask_fds[i], builder->proc_fd,
						    init_masked_proc[i]);
	return status < 0 ? status : init_protect_proc(builder->proc_fd);
}

static int build(struct builder *builder)
{
	int status;

	stage(builder, "hostname");
	if (sethostname(HOSTNAME, strlen(HOSTNAME)) != 0)
		return -errno;
	stage(builder, "loopback");
	if ((builder->request->flags & SP_SESSION_F_OWN_NETWORK) != 0) {
		status = sp_loopback_up();
		if (status < 0)
			return status;
	}
	stage(builder, "root");
	builder->root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (builder->root_fd < 0)
		return -errno;
	status = take_as_workload(builder);
	if (status == 0)
		status = take_kernel_mounts(builder);
	if (status < 0)
		return status;
	stage(builder, "read_only");
	status = read_only(builder->root_fd);
	if (status == 0)
		status = attach_tmpfs(builder);
	if (status == 0)
		status = attach_places(builder);
	if (status == 0)
		status = attach_sources(builder);
	if (status == 0)
		status = attach_proc(builder);
	if (status < 0 || builder->request->mode != SP_INIT_SESSION_OVERLAY)
		return status;
	stage(builder, "overlay");
	return init_overlay_freeze(builder->tmpfs_fd, builder->workspace.path);
}

/* ---- the process ---- */

static int own_descriptors(const struct init *init, int report_fd)
{
	if (dup3(report_fd, REPORT_FD, O_CLOEXEC) < 0 ||
	    dup3(init->proc_fd, PROC_FD, O_CLOEXEC) < 0)
		return -errno;
	return close_range(PROC_FD + 1, ~0u, 0) == 0 ? 0 : -errno;
}

/* Nothing can be done from here on but to wait, and to kill. It may be looked at, by init: that is
 * asked of who enters its namespaces. Nobody else has its uid. */
static int confine(const struct init *init, struct builder *builder)
{
	int status;

	stage(builder, "confinement");
	status = sp_sys_capset(UINT64_C(1) << CAP_KILL, UINT64_C(1) << CAP_KILL, 0);
	if (status == 0 && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0)
		status = -errno;
	if (status == 0)
		status = sp_seccomp_load((const char *)init->boot + init->boot->exec_filter_offset,
					 init->boot->exec_filter_length);
	return status;
}

static void report(const struct builder *builder, int status)
{
	struct init_session_report text = {.status = status};

	memcpy(text.stage, builder->stage, sizeof(text.stage));
	if (write(REPORT_FD, &text, sizeof(text)) != (ssize_t)sizeof(text))
		_exit(1);
}

/* Every signal is blocked, and nobody in here may send us one. */
static SP_NORETURN void reap_for_ever(void)
{
	sigset_t awaited;

	(void)sigemptyset(&awaited);
	(void)sigaddset(&awaited, SIGCHLD);
	(void)sigaddset(&awaited, INIT_SESSION_KILL);
	for (;;) {
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		if (RAW4(SYS_rt_sigtimedwait, &awaited, NULL, NULL, KERNEL_SIGSET) ==
		    INIT_SESSION_KILL)
			(void)kill(-1, SIGKILL);
	}
}

void init_session_first(struct init *init, const struct sp_init_session_open *request,
			int report_fd)
{
	struct builder *builder = &the_builder;
	int status;

	builder->init = init;
	builder->request = request;
	stage(builder, "descriptors");
	(void)umask(0);
	read_strings(builder);
	status = own_descriptors(init, report_fd);
	if (status == 0)
		status = build(builder);
	if (status == 0)
		status = confine(init, builder);
	/* Our descriptors are open files of mounts, and nobody needs them any more. */
	if (close_range(REPORT_FD + 1, ~0u, 0) != 0 && status == 0)
		status = -errno;
	report(builder, status);
	(void)close(REPORT_FD);
	if (status < 0)
		_exit(1);
	reap_for_ever();
}
