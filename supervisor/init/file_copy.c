/*
 * A move across mounts: /tmp and /workspace are mounts of their own, though of one file system. A
 * copy is made beside the destination under a name that nobody looks for, takes its place in one
 * step, and only then the source goes. Files, directories and links; mode and time of change are
 * kept, the owner is who asks.
 */
#include "supervisor/init/file_walk.h"

#include "pool/base/fd.h"
#include "supervisor/init/raw.h"
#include "supervisor/sandbox/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BUFFER_SIZE 65536u
#define OWN_MODE    0700

static char buffer[BUFFER_SIZE];
static char link_text[SP_INIT_PATH_MAX];
static int copy_fd = -1; /* of a tree: where the walk's directory is copied to */

/* What a copy has of its source, beside the content. */
static int copy_attributes(int fd, const struct sp_init_file_info *info)
{
	const struct timespec times[2] = {
		{.tv_nsec = UTIME_OMIT},
		{.tv_sec = info->modified_ns / SP_NS_PER_S,
		 .tv_nsec = info->modified_ns % SP_NS_PER_S},
	};
	int status = file_mode(fd, info->mode & SP_INIT_FILE_MODE);

	/* Times before 1970 stay those of the copy. */
	if (status == 0 && info->modified_ns >= 0)
		status = (int)RAW4(SYS_utimensat, fd, NULL, times, 0);
	return status;
}

static int copy_bytes(struct file_job *job, int from_fd, int to_fd)
{
	for (;;) {
		long got = RAW3(SYS_read, from_fd, buffer, sizeof(buffer));

		if (got <= 0)
			return (int)got;
		file_tell(job);
		for (long at = 0; at < got;) {
			long written = RAW3(SYS_write, to_fd, buffer + at, got - at);

			if (written < 0)
				return (int)written;
			at += written;
		}
	}
}

/* The content of a regular file, and what goes with it. */
static int copy_content(struct file_job *job, const struct file_name *from, int to_fd)
{
	SP_AUTO_CLOSE int from_fd = file_open(from->dir_fd, from->name, O_RDONLY | O_NOFOLLOW);
	struct sp_init_file_info info;
	int status = from_fd < 0 ? from_fd : file_info(from_fd, "", &info);

	if (status == 0 && info.type != SP_INIT_FILE_REGULAR)
		status = -ESTALE;
	if (status == 0)
		status = copy_bytes(job, from_fd, to_fd);
	return status < 0 ? status : copy_attributes(to_fd, &info);
}

static int copy_file(struct file_job *job, const struct file_name *from, const struct file_name *to,
		     bool replace)
{
	SP_AUTO_CLOSE int fd = file_temporary_open(job, to->dir_fd);
	int status = fd < 0 ? fd : copy_content(job, from, fd);

	if (status == 0)
		status = (int)RAW1(SYS_fsync, fd);
	if (status == 0)
		status = file_temporary_publish(job, fd, to, replace);
	file_temporary_drop(job);
	return status;
}

static int copy_link(const struct file_name *from, int to_fd, const char *name)
{
	long len = RAW4(SYS_readlinkat, from->dir_fd, from->name, link_text, sizeof(link_text) - 1);

	if (len < 0)
		return (int)len;
	link_text[len] = '\0';
	return (int)RAW3(SYS_symlinkat, link_text, to_fd, name);
}

/* ---- trees ---- */

static int copy_entry(struct file_walk *walk, int dir_fd, const char *name,
		      const struct sp_init_file_info *info)
{
	struct file_name from = {.dir_fd = dir_fd};
	SP_AUTO_CLOSE int fd = -1;

	memcpy(from.name, name, strlen(name) + 1);
	if (info->type == SP_INIT_FILE_DIR)
		return (int)RAW3(SYS_mkdirat, copy_fd, name, OWN_MODE);
	if (info->type == SP_INIT_FILE_LINK)
		return copy_link(&from, copy_fd, name);
	if (info->type != SP_INIT_FILE_REGULAR)
		return -EXDEV;
	fd = (int)RAW4(SYS_openat, copy_fd, name,
		       O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, OWN_MODE);
	return fd < 0 ? fd : copy_content(walk->job, &from, fd);
}

static int copy_entered(struct file_walk *walk, const char *name)
{
	int fd = file_open(copy_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);

	SP_UNUSED(walk);
	sp_fd_close(&copy_fd);
	copy_fd = fd;
	return fd < 0 ? fd : 0;
}

/* Only now: a mode may forbid to go on in it. */
static int copy_leaving(struct file_walk *walk, int dir_fd, bool top)
{
	struct sp_init_file_info info;
	SP_AUTO_CLOSE int done_fd = copy_fd;
	int status = file_info(dir_fd, "", &info);

	SP_UNUSED(walk);
	copy_fd = top ? -1 : file_open(done_fd, "..", O_RDONLY | O_DIRECTORY);
	if (!top && copy_fd < 0)
		return copy_fd;
	return status < 0 ? status : copy_attributes(done_fd, &info);
}

static int copy_tree(struct file_job *job, const struct file_name *from, int to_fd)
{
	static struct file_walk walk;
	SP_AUTO_CLOSE int fd =
		file_open(from->dir_fd, from->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
	int status = fd;

	if (fd >= 0)
		status = (int)RAW3(SYS_mkdirat, to_fd, job->temporary, OWN_MODE);
	if (status < 0)
		return status;
	copy_fd = file_open(to_fd, job->temporary, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
	if (copy_fd < 0)
		return copy_fd;
	walk.job = job;
	walk.depth = UINT32_MAX;
	walk.limit = SP_INIT_FILE_ENTRIES;
	walk.path_limit = SP_INIT_PATH_MAX - 1;
	walk.whole = true;
	walk.entry = copy_entry;
	walk.entered = copy_entered;
	walk.leaving = copy_leaving;
	status = file_walk(&walk, sp_take_fd(&fd));
	sp_fd_close(&copy_fd);
	return status;
}

/* What is no single file: copied under the temporary name, then renamed. */
static int copy_other(struct file_job *job, const struct file_name *from,
		      const struct file_name *to, bool directory, bool replace)
{
	struct file_name temporary = {.dir_fd = to->dir_fd};
	int status = directory ? copy_tree(job, from, to->dir_fd)
			       : copy_link(from, to->dir_fd, job->temporary);

	if (status == 0)
		status = (int)RAW5(SYS_renameat2, to->dir_fd, job->temporary, to->dir_fd, to->name,
				   replace ? 0 : RENAME_NOREPLACE);
	if (status < 0) {
		(void)snprintf(temporary.name, sizeof(temporary.name), "%s", job->temporary);
		(void)file_remove_tree(job, &temporary);
	}
	return status;
}

int file_move_copy(struct file_job *job, const struct file_name *from, const struct file_name *to)
{
	bool replace = (job->request->flags & SP_INIT_FILE_F_REPLACE) != 0;
	struct sp_init_file_info info;
	SP_AUTO_CLOSE int fd =
		sp_sys_openat2(from->dir_fd, from->name, O_PATH | O_NOFOLLOW, 0, RESOLVE_NO_XDEV);
	int status = fd < 0 ? fd : file_info(fd, "", &info);

	if (status < 0)
		return status == -EXDEV ? -EBUSY : status; /* a mount point, which stays */
	job->stage = "copy";
	if (info.type == SP_INIT_FILE_REGULAR)
		status = copy_file(job, from, to, replace);
	else if (info.type == SP_INIT_FILE_ELSE)
		status = -EXDEV;
	else
		status = copy_other(job, from, to, info.type == SP_INIT_FILE_DIR, replace);
	return status < 0 ? status : file_remove_tree(job, from);
}
