/*
 * Names and what they lead to. Everything is resolved by the kernel from the sandbox's own root,
 * with the rights of whom the helper works for; what is made, replaced or removed is one name in an
 * open directory. Workloads may rename things meanwhile, which can only lead to other places that
 * are theirs as well.
 */
#include "supervisor/init/file_helper.h"

#include "pool/base/fd.h"
#include "supervisor/init/raw.h"
#include "supervisor/sandbox/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LINKS_MAX    40 /* as in the kernel */
#define PARENT_MODE  0755
#define OWN_FD_SPACE 32
#define SECOND_MAX   (INT64_MAX / SP_NS_PER_S - 1)

int file_open(int dir_fd, const char *path, int flags)
{
	if ((flags & O_PATH) == 0)
		flags |= O_NONBLOCK | O_NOCTTY;
	return sp_sys_openat2(dir_fd, path, flags, 0, RESOLVE_NO_MAGICLINKS);
}

int file_not_pseudo(int fd)
{
	struct statfs info = {0};
	long status = RAW2(SYS_fstatfs, fd, &info);

	if (status < 0)
		return (int)status;
	return sp_init_file_pseudo(info.f_type) ? -EOPNOTSUPP : 0;
}

static int64_t nanoseconds(const struct statx_timestamp *time)
{
	if (time->tv_sec > SECOND_MAX)
		return INT64_MAX;
	if (time->tv_sec < -SECOND_MAX)
		return INT64_MIN;
	return time->tv_sec * SP_NS_PER_S + time->tv_nsec;
}

static uint32_t type_of(uint32_t mode)
{
	if (S_ISREG(mode))
		return SP_INIT_FILE_REGULAR;
	if (S_ISDIR(mode))
		return SP_INIT_FILE_DIR;
	return S_ISLNK(mode) ? SP_INIT_FILE_LINK : SP_INIT_FILE_ELSE;
}

int file_info(int dir_fd, const char *name, struct sp_init_file_info *ret)
{
	struct statx info;

	if (statx(dir_fd, name, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT,
		  STATX_BASIC_STATS, &info) != 0)
		return -errno;
	*ret = (struct sp_init_file_info){
		.type = type_of(info.stx_mode),
		.mode = info.stx_mode & 07777u,
		.uid = info.stx_uid,
		.gid = info.stx_gid,
		.size = info.stx_size,
		.inode = info.stx_ino,
		.modified_ns = nanoseconds(&info.stx_mtime),
		.changed_ns = nanoseconds(&info.stx_ctime),
	};
	return 0;
}

static void own_fd_path(int fd, char *path)
{
	(void)snprintf(path, OWN_FD_SPACE, "/proc/self/fd/%d", fd);
}

/* An O_PATH descriptor takes a call of Linux 6.6, or a proc that shows this process. */
int file_mode(int fd, mode_t mode)
{
	char path[OWN_FD_SPACE];
	int status = (int)RAW2(SYS_fchmod, fd, mode);

	if (status != -EBADF)
		return status;
	status = (int)RAW4(CALL_FCHMODAT2, fd, "", mode, AT_EMPTY_PATH);
	if (status != -ENOSYS)
		return status;
	own_fd_path(fd, path);
	return (int)RAW3(SYS_fchmodat, AT_FDCWD, path, mode);
}

/* The one thing here that the kernel lets nobody but the privileged do. */
static int give(int fd, uint32_t owner, uint32_t group)
{
	int status = file_privilege(true);

	if (status == 0)
		status = (int)RAW5(SYS_fchownat, fd, "", owner, group, AT_EMPTY_PATH);
	(void)file_privilege(false);
	return status;
}

/* Only what belongs to who asks is given away, and looked at through the same descriptor. 1: it
 * was.
 */
static int own(struct file_job *job, int fd, struct sp_init_file_info *info)
{
	const struct sp_init_file *request = job->request;
	int status = file_info(fd, "", info);
	uint32_t owner;
	uint32_t group;

	if (status < 0)
		return status;
	owner = request->owner == SP_INIT_FILE_KEEP ? info->uid : request->owner;
	group = request->group == SP_INIT_FILE_KEEP ? info->gid : request->group;
	if (owner == info->uid && group == info->gid)
		return 0;
	job->stage = "owner";
	if (info->uid != request->uid)
		return -EPERM;
	status = give(fd, owner, group);
	return status < 0 ? status : 1;
}

int file_own(struct file_job *job, int fd)
{
	struct sp_init_file_info before = {0};

	return SP_MIN(own(job, fd, &before), 0);
}

int file_try_own(struct file_job *job, int fd)
{
	struct sp_init_file_info before = {0};
	int status = own(job, fd, &before);

	return status == 1 ? give(fd, before.uid, before.gid) : status;
}

/* Takes the next component off *path, whose slashes become NULs; NULL: there is none left. */
static char *next_component(char **path)
{
	char *start = *path + strspn(*path, "/");
	char *end = start + strcspn(start, "/");

	if (*start == '\0')
		return NULL;
	*path = end;
	if (*end != '\0') {
		*end = '\0';
		*path = end + 1;
	}
	return start;
}

/* One more component of `path`, which is the request's. */
static int make_directory(struct file_job *job, int dir_fd, const char *name, uint32_t component,
			  mode_t mode)
{
	int status = (int)RAW3(SYS_mkdirat, dir_fd, name, mode);

	if (status < 0 && status != -EEXIST)
		return status;
	if (status == 0)
		job->made = SP_MIN(job->made, component);
	return file_open(dir_fd, name, O_PATH | O_DIRECTORY);
}

static int make_directories(struct file_job *job, char *path, mode_t mode)
{
	SP_AUTO_CLOSE int dir_fd = file_open(AT_FDCWD, "/", O_PATH | O_DIRECTORY);
	char *name = next_component(&path);

	for (uint32_t component = 0; dir_fd >= 0 && name; component++) {
		char *following = next_component(&path);
		int next = file_open(dir_fd, name, O_PATH | O_DIRECTORY);

		if (next == -ENOENT)
			next = make_directory(job, dir_fd, name, component,
					      following ? PARENT_MODE : mode);
		sp_fd_close(&dir_fd);
		dir_fd = next;
		name = following;
	}
	return dir_fd < 0 ? dir_fd : sp_take_fd(&dir_fd);
}

int file_make_directories(struct file_job *job, mode_t mode)
{
	char text[SP_INIT_PATH_MAX];
	int fd;

	memcpy(text, job->path, strlen(job->path) + 1);
	fd = make_directories(job, text, mode);
	if (fd < 0)
		return fd;
	sp_fd_close(&fd);
	return file_own_made(job);
}

int file_own_made(struct file_job *job)
{
	SP_AUTO_CLOSE int dir_fd = file_open(AT_FDCWD, "/", O_PATH | O_DIRECTORY);
	char text[SP_INIT_PATH_MAX];
	char *rest = text;
	const char *name;

	memcpy(text, job->path, strlen(job->path) + 1);
	for (uint32_t component = 0; dir_fd >= 0 && (name = next_component(&rest)); component++) {
		bool made = component >= job->made;
		int next = file_open(dir_fd, name, O_PATH | O_DIRECTORY | (made ? O_NOFOLLOW : 0));
		int status = next >= 0 && made ? file_own(job, next) : 0;

		sp_fd_close(&dir_fd);
		dir_fd = next;
		if (status < 0)
			return status;
	}
	return dir_fd < 0 && dir_fd != -ENOTDIR ? dir_fd : 0; /* a file is the last one */
}

/* Split off the last component, without slashes around it. False: it names nothing in a directory.
 */
static bool split(char *path, char **ret_name)
{
	size_t len = strlen(path);
	char *name;

	while (len > 1 && path[len - 1] == '/')
		path[--len] = '\0';
	name = strrchr(path, '/');
	if (name)
		*name++ = '\0';
	*ret_name = name ? name : path;
	return (*ret_name)[0] != '\0' && strcmp(*ret_name, ".") != 0 &&
	       strcmp(*ret_name, "..") != 0;
}

static int parent_at(struct file_job *job, int base_fd, const char *path, bool make,
		     struct file_name *ret)
{
	char text[SP_INIT_PATH_MAX];
	char *directory = text;
	char *name;
	int fd;

	if (strlen(path) >= sizeof(text))
		return -ENAMETOOLONG;
	memcpy(text, path, strlen(path) + 1);
	if (!split(text, &name))
		return -EISDIR;
	if (strlen(name) > NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(ret->name, name, strlen(name) + 1);
	if (name == text) /* a link's text of one component */
		(void)snprintf(text, sizeof(text), ".");
	else if (text[0] == '\0')
		(void)snprintf(text, sizeof(text), "/");
	fd = file_open(base_fd, directory, O_PATH | O_DIRECTORY);
	if (fd == -ENOENT && make)
		fd = make_directories(job, directory, PARENT_MODE);
	if (fd < 0)
		return fd;
	ret->dir_fd = fd;
	return 0;
}

int file_parent(struct file_job *job, const char *path, bool make, struct file_name *ret)
{
	return parent_at(job, AT_FDCWD, path, make, ret);
}

int file_destination(struct file_job *job, const char *path, bool make, struct file_name *ret)
{
	static char link[SP_INIT_PATH_MAX];
	int base_fd = AT_FDCWD;

	for (int i = 0; i < LINKS_MAX; i++) {
		int status = parent_at(job, base_fd, path, make && i == 0, ret);
		long len;

		if (base_fd != AT_FDCWD)
			sp_fd_close(&base_fd);
		if (status < 0)
			return status;
		len = RAW4(SYS_readlinkat, ret->dir_fd, ret->name, link, sizeof(link) - 1);
		if (len == -EINVAL || len == -ENOENT)
			return 0; /* no link, or nothing yet */
		base_fd = ret->dir_fd;
		if (len <= 0 || (size_t)len == sizeof(link) - 1) {
			sp_fd_close(&base_fd);
			return len < 0 ? (int)len : -ENAMETOOLONG;
		}
		link[len] = '\0';
		path = link;
	}
	sp_fd_close(&base_fd);
	return -ELOOP;
}

int file_nearest(const char *path)
{
	char text[SP_INIT_PATH_MAX];
	char *rest = text;
	const char *name;
	int dir_fd = file_open(AT_FDCWD, "/", O_PATH | O_DIRECTORY);

	memcpy(text, path, strlen(path) + 1);
	while (dir_fd >= 0 && (name = next_component(&rest))) {
		int next = file_open(dir_fd, name, O_PATH | O_DIRECTORY);

		/* ENOTDIR: a file has come since the path was found missing. */
		if (next == -ENOENT || next == -ENOTDIR)
			break;
		sp_fd_close(&dir_fd);
		dir_fd = next;
	}
	return dir_fd;
}

void file_sweep(const struct file_job *job, const char *path)
{
	char text[SP_INIT_PATH_MAX];
	char *rest = text;
	const char *name = "/";
	int dir_fd = AT_FDCWD;

	memcpy(text, path, strlen(path) + 1);
	while (name) {
		int next = file_open(dir_fd, name, O_PATH | O_DIRECTORY);

		if (dir_fd != AT_FDCWD)
			sp_fd_close(&dir_fd);
		if (next < 0)
			return;
		dir_fd = next;
		(void)RAW3(SYS_unlinkat, dir_fd, job->temporary, 0);
		name = next_component(&rest);
	}
}

/* ---- temporary files ---- */

/* Kernels before 6.10 want a capability for the first, or the second, for which a proc must show
 * this process: that of a session does not. */
static int link_nameless(int fd, int dir_fd, const char *name)
{
	char path[OWN_FD_SPACE];
	int status = (int)RAW5(SYS_linkat, fd, "", dir_fd, name, AT_EMPTY_PATH);

	if (status != -ENOENT)
		return status;
	own_fd_path(fd, path);
	return (int)RAW5(SYS_linkat, AT_FDCWD, path, dir_fd, name, AT_SYMLINK_FOLLOW);
}

int file_temporary_open(struct file_job *job, int dir_fd)
{
	SP_AUTO_CLOSE int nameless_fd =
		(int)RAW4(SYS_openat, dir_fd, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	int fd;

	/* "/" is there already, if it gets as far as that. */
	if (nameless_fd >= 0 && link_nameless(nameless_fd, AT_FDCWD, "/") != -ENOENT)
		return sp_take_fd(&nameless_fd);
	/* EISDIR: a kernel whose file system does not know the flag. */
	if (nameless_fd < 0 && nameless_fd != -EOPNOTSUPP && nameless_fd != -EISDIR)
		return nameless_fd;
	fd = (int)RAW4(SYS_openat, dir_fd, job->temporary,
		       O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd >= 0)
		job->temporary_fd = dir_fd;
	return fd;
}

/* In two steps what the kernel has no one for: a name nobody looks for, then the right one. */
int file_temporary_publish(struct file_job *job, int fd, const struct file_name *name, bool replace)
{
	bool nameless = job->temporary_fd < 0;
	int status = -EEXIST;

	if (nameless)
		status = link_nameless(fd, name->dir_fd, name->name);
	if (nameless && (status != -EEXIST || !replace))
		return status;
	if (nameless) {
		status = link_nameless(fd, name->dir_fd, job->temporary);
		if (status < 0)
			return status;
		job->temporary_fd = name->dir_fd;
	}
	status = (int)RAW5(SYS_renameat2, job->temporary_fd, job->temporary, name->dir_fd,
			   name->name, replace ? 0 : RENAME_NOREPLACE);
	if (status == 0)
		job->temporary_fd = -1;
	return status;
}

void file_temporary_drop(struct file_job *job)
{
	if (job->temporary_fd >= 0)
		(void)RAW3(SYS_unlinkat, job->temporary_fd, job->temporary, 0);
	job->temporary_fd = -1;
}
