/*
 * Makes mounts of workspaces. `path` is the one thing in the launcher that a client chose: it goes
 * to openat2() with RESOLVE_BENEATH | NO_SYMLINKS | NO_MAGICLINKS below a descriptor that was
 * opened when the table was loaded, and is otherwise only copied into messages.
 *
 * Id maps: a mount shows the source's owner as the workload through a user namespace that maps just
 * these two ids; other owners appear as 65534. A root-owned source is never mapped read-only (its
 * 0600 files would become readable) and bound writable only where the host ignores set-id bits.
 *
 * What is to lie below an overlay comes alone, without submounts: layers are file systems, not
 * mounts, and what a mount covers would show.
 */
#include "supervisor/launcher/binder.h"

#include "pool/base/fd.h"
#include "supervisor/sandbox/file_system.h"
#include "supervisor/sandbox/mount_attach.h"
#include "supervisor/sandbox/mountinfo.h"
#include "supervisor/sandbox/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define RESOLVE_SOURCE (RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)
#define IDMAPS_MAX     256
#define UNMAPPED_ID    65534u /* a map may not be empty: this one changes nothing */
#define MOUNTINFO_MAX  65536

struct id_pair {
	uint32_t disk;
	uint32_t host;
};

/* A user namespace kept for its maps. Ids are all that decides, so an entry never goes stale. */
struct idmap {
	struct id_pair uid;
	struct id_pair gid;
	int ns_fd; /* -1: free */
	uint64_t used;
};

struct binder {
	bool rootless;
	uint64_t clock; /* counts jobs */
	struct idmap idmaps[IDMAPS_MAX];
};

static int failed(struct sp_bind_result *result, int status, const char *stage, const char *text)
{
	result->status = status;
	(void)snprintf(result->stage, sizeof(result->stage), "%s", stage);
	(void)snprintf(result->text, sizeof(result->text), "%.*s", (int)sizeof(result->text) - 1,
		       text);
	return status;
}

/* --- id maps --------------------------------------------------------------------------------- */

static int write_text(const char *path, const char *text)
{
	SP_AUTO_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd < 0 ? -errno : sp_write_all(fd, text, strlen(text));
}

static int write_map(pid_t pid, const char *name, const struct id_pair *pair)
{
	char path[48];
	char map[48];

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	(void)snprintf(map, sizeof(map), "%u %u 1", pair->disk, pair->host);
	return write_text(path, map);
}

/* A process has to be in a user namespace for its maps to be written; it only waits to be killed.
 */
static int new_idmap(const struct id_pair *uid, const struct id_pair *gid)
{
	struct clone_args args = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
	pid_t parent = getpid();
	pid_t pid = sp_sys_clone3(&args);
	char path[48];
	int status;
	int fd = -1;

	if (pid < 0)
		return pid;
	if (pid == 0) {
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
			_exit(EXIT_FAILURE);
		for (;;)
			(void)pause();
	}
	status = write_map(pid, "uid_map", uid);
	if (status == 0)
		status = write_map(pid, "gid_map", gid);
	if (status == 0) {
		(void)snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		status = fd < 0 ? -errno : 0;
	}
	(void)kill(pid, SIGKILL); /* our own child, not waited for yet: the pid is its */
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	return status < 0 ? status : fd;
}

static bool same_pair(const struct id_pair *a, const struct id_pair *b)
{
	return a->disk == b->disk && a->host == b->host;
}

/* Returns a borrowed descriptor. */
static int find_idmap(struct binder *binder, const struct id_pair *uid, const struct id_pair *gid)
{
	struct idmap *oldest = &binder->idmaps[0];
	int fd;

	for (size_t i = 0; i < IDMAPS_MAX; i++) {
		struct idmap *idmap = &binder->idmaps[i];

		if (idmap->ns_fd >= 0 && same_pair(&idmap->uid, uid) &&
		    same_pair(&idmap->gid, gid)) {
			idmap->used = binder->clock;
			return idmap->ns_fd;
		}
		if (idmap->used < oldest->used)
			oldest = idmap;
	}
	fd = new_idmap(uid, gid);
	if (fd < 0)
		return fd;
	sp_fd_close(&oldest->ns_fd);
	*oldest = (struct idmap){.uid = *uid, .gid = *gid, .ns_fd = fd, .used = binder->clock};
	return fd;
}

/* --- submounts ------------------------------------------------------------------------------- */

/* One line of mountinfo: is its mount point strictly below path? */
static bool line_below(char *line, const char *path, size_t path_len)
{
	char *state = NULL;
	char *field = strtok_r(line, " ", &state);

	for (int i = 0; i < 4 && field; i++)
		field = strtok_r(NULL, " ", &state);
	if (!field)
		return false;
	sp_mountinfo_unescape(field);
	return strncmp(field, path, path_len) == 0 && field[path_len] == '/' &&
	       field[path_len + 1] != '\0';
}

/*
 * Does a mount lie below the source? A plain clone would leave it out and show what it covers.
 * The path is only compared with mount points; what is opened never depends on it.
 */
static int covers_submount(int fd, bool *ret_covers)
{
	static char buffer[MOUNTINFO_MAX];
	char link[48];
	char path[SP_BIND_PATH_MAX + 512];
	SP_AUTO_CLOSE int info_fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	size_t used = 0;
	ssize_t len;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, path, sizeof(path));
	if (info_fd < 0 || len < 0)
		return -errno;
	if ((size_t)len == sizeof(path))
		return -ENAMETOOLONG;
	path[len] = '\0';
	if (strcmp(path, "/") == 0)
		len = 0;
	*ret_covers = false;
	for (;;) {
		ssize_t got = read(info_fd, buffer + used, sizeof(buffer) - 1 - used);
		char *line = buffer;
		char *end;

		if (got <= 0)
			return got < 0 ? -errno : 0;
		used += (size_t)got;
		buffer[used] = '\0';
		while ((end = strchr(line, '\n')) != NULL) {
			*end = '\0';
			if (line_below(line, path, (size_t)len)) {
				*ret_covers = true;
				return 0;
			}
			line = end + 1;
		}
		used -= (size_t)(line - buffer);
		memmove(buffer, line, used);
		if (used == sizeof(buffer) - 1)
			return -EFBIG; /* a line longer than any path: not mountinfo */
	}
}

/* --- one job --------------------------------------------------------------------------------- */

static int open_source(const struct sp_bind_job *job, int root_fd, struct sp_bind_result *result)
{
	const char *path = job->path_length == 0 ? "." : job->path;
	int fd = sp_sys_openat2(root_fd, path, O_PATH, 0, RESOLVE_SOURCE);

	return fd < 0 ? failed(result, fd, "open", job->path) : fd;
}

static bool is_recursive(const struct sp_bind_job *job)
{
	return job->recursive != 0 && job->overlay == 0;
}

static int check_base(const struct sp_bind_job *job, int fd, const struct stat *info,
		      struct sp_bind_result *result)
{
	struct statfs fs;

	if (!S_ISDIR(info->st_mode))
		return failed(result, -ENOTDIR, "type", job->path);
	if (fstatfs(fd, &fs) < 0)
		return failed(result, -errno, "stat", job->path);
	return sp_file_system_remote((long)fs.f_type)
		       ? failed(result, -EOPNOTSUPP, "file_system", job->path)
		       : 0;
}

/* May this be bound as asked? *ret_info is the source's. */
static int check_source(const struct binder *binder, const struct sp_bind_job *job, int fd,
			struct stat *ret_info, struct sp_bind_result *result)
{
	struct statvfs fs;
	bool covers = false;
	int status;

	if (fstat(fd, ret_info) < 0 || fstatvfs(fd, &fs) < 0)
		return failed(result, -errno, "stat", job->path);
	if (!S_ISDIR(ret_info->st_mode) && !S_ISREG(ret_info->st_mode))
		return failed(result, -EINVAL, "type", job->path);
	status = job->overlay ? check_base(job, fd, ret_info, result) : 0;
	if (status < 0)
		return status;
	if (!job->read_only && !binder->rootless && (fs.f_flag & ST_NOSUID) == 0 &&
	    (ret_info->st_uid == 0 || ret_info->st_gid == 0))
		return failed(result, -EPERM, "owner", job->path);
	if (is_recursive(job) || !S_ISDIR(ret_info->st_mode))
		return 0;
	status = covers_submount(fd, &covers);
	if (status < 0)
		return failed(result, status, "submount", job->path);
	return covers ? failed(result, -EXDEV, "submount", job->path) : 0;
}

/* -1: no map is needed. */
static int choose_idmap(struct binder *binder, const struct sp_bind_job *job,
			const struct stat *info, int *ret_fd)
{
	bool map_uid = info->st_uid != 0 || !job->read_only;
	bool map_gid = info->st_gid != 0 || !job->read_only;
	struct id_pair uid = {UNMAPPED_ID, UNMAPPED_ID};
	struct id_pair gid = {UNMAPPED_ID, UNMAPPED_ID};

	*ret_fd = -1;
	/* Rootless: the owner is the one user that there is. */
	if (binder->rootless || (!map_uid && !map_gid))
		return 0;
	if (map_uid)
		uid = (struct id_pair){info->st_uid, job->host_uid};
	if (map_gid)
		gid = (struct id_pair){info->st_gid, job->host_gid};
	*ret_fd = find_idmap(binder, &uid, &gid);
	return SP_MIN(*ret_fd, 0);
}

static int make_mount(struct binder *binder, const struct sp_bind_job *job, int fd,
		      const struct stat *info, struct sp_bind_result *result)
{
	uint64_t attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
	unsigned int flags = AT_EMPTY_PATH | (is_recursive(job) ? AT_RECURSIVE : 0);
	SP_AUTO_CLOSE int mount_fd = sp_mount_clone(fd, "", is_recursive(job));
	int idmap_fd;
	int status;

	if (mount_fd < 0)
		return failed(result, mount_fd, "clone", job->path);
	if (job->read_only)
		attributes |= MOUNT_ATTR_RDONLY;
	status = sp_sys_mount_setattr(mount_fd, "", flags, attributes, 0, MS_PRIVATE, -1);
	if (status < 0)
		return failed(result, status, "mount", job->path);
	status = choose_idmap(binder, job, info, &idmap_fd);
	if (status == 0 && idmap_fd >= 0)
		status =
			sp_sys_mount_setattr(mount_fd, "", flags, MOUNT_ATTR_IDMAP, 0, 0, idmap_fd);
	if (status < 0)
		return failed(result, status, "idmap", job->path);
	return sp_take_fd(&mount_fd);
}

static int run_job(struct binder *binder, const struct sp_bind_job *job, int root_fd,
		   struct sp_bind_result *result)
{
	SP_AUTO_CLOSE int fd = open_source(job, root_fd, result);
	struct stat info;
	int status;

	if (fd < 0)
		return fd;
	status = check_source(binder, job, fd, &info, result);
	result->unfinished = status == 0 && !job->read_only && S_ISDIR(info.st_mode) &&
			     faccessat(fd, SP_COMMIT_DIR, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
	return status < 0 ? status : make_mount(binder, job, fd, &info, result);
}

int sp_binder_run(int socket_fd, bool rootless)
{
	static struct binder binder;
	static struct sp_bind_job job;

	binder.rootless = rootless;
	for (size_t i = 0; i < IDMAPS_MAX; i++)
		binder.idmaps[i].ns_fd = -1;
	for (;;) {
		struct sp_bind_result result = {0};
		SP_AUTO_CLOSE int mount_fd = -1;
		int fds[SP_MSG_FDS_MAX];
		size_t fd_count = 0;
		ssize_t got = sp_msg_receive(socket_fd, &job, sizeof(job), fds, &fd_count);
		int status;

		if (got <= 0)
			return got < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
		sp_assert(fd_count == 1);
		binder.clock++;
		mount_fd = run_job(&binder, &job, fds[0], &result);
		sp_fd_close(&fds[0]);
		status = sp_msg_send(socket_fd, &result, sizeof(result), &mount_fd, mount_fd >= 0);
		if (status < 0)
			return EXIT_FAILURE;
	}
}
