/*
 * The short operations. What a path names is looked at through an O_PATH descriptor, which opens
 * nothing, before it is opened: a FIFO, a device or a socket is never touched.
 */
#include "supervisor/init/file_helper.h"

#include "pool/base/fd.h"
#include "supervisor/init/raw.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define CONNECT_MS     5000
#define LOOPBACK       0x7f000001u
#define DIRECTORY_MODE 0755

int file_stat(struct file_job *job, struct sp_init_file_info *ret)
{
	SP_AUTO_CLOSE int fd = file_open(AT_FDCWD, job->path, O_PATH | O_NOFOLLOW);

	return fd < 0 ? fd : file_info(fd, "", ret);
}

/* As an OPEN of it would find it. */
static void look_at(const char *path, struct sp_init_file_info *ret)
{
	SP_AUTO_CLOSE int fd = file_open(AT_FDCWD, path, O_PATH);

	if (fd < 0 || file_info(fd, "", ret) < 0)
		memset(ret, 0, sizeof(*ret));
}

void file_tell_accounts(void)
{
	struct sp_init_file_accounts record = {.header = {.type = SP_INIT_FILE_ACCOUNTS}};

	look_at("/etc/passwd", &record.users);
	look_at("/etc/group", &record.groups);
	file_send(&record, sizeof(record), -1);
}

/* 0 for a regular file, else which other kind it is. */
static int regular(const struct sp_init_file_info *info)
{
	switch ((enum sp_init_file_type)info->type) {
	case SP_INIT_FILE_REGULAR:
		return 0;
	case SP_INIT_FILE_DIR:
		return -EISDIR;
	case SP_INIT_FILE_LINK:
		return -ELOOP;
	case SP_INIT_FILE_ELSE:
		break;
	}
	return -ENODEV;
}

static int regular_fd(int fd, struct sp_init_file_info *ret)
{
	int status = file_not_pseudo(fd);

	if (status == 0)
		status = file_info(fd, "", ret);
	return status < 0 ? status : regular(ret);
}

int file_read(struct file_job *job, struct sp_init_file_info *ret, int *ret_fd)
{
	SP_AUTO_CLOSE int path_fd = file_open(AT_FDCWD, job->path, O_PATH);
	SP_AUTO_CLOSE int fd = -1;
	int status = path_fd < 0 ? path_fd : regular_fd(path_fd, ret);

	if (status < 0)
		return status;
	/* It may be another one by now: checked again, and not waited for. */
	fd = file_open(AT_FDCWD, job->path, O_RDONLY);
	status = fd < 0 ? fd : regular_fd(fd, ret);
	if (status == 0)
		*ret_fd = sp_take_fd(&fd);
	return status;
}

int file_mkdir(struct file_job *job)
{
	uint32_t mode = job->request->mode;

	return file_make_directories(job, mode == SP_INIT_FILE_KEEP ? DIRECTORY_MODE : mode);
}

int file_remove(struct file_job *job)
{
	struct sp_init_file_info info;
	struct file_name name;
	int status = file_parent(job, job->path, false, &name);

	if (status < 0)
		return status == -EISDIR ? -EBUSY : status; /* the root, or "x/.." */
	if ((job->request->flags & SP_INIT_FILE_F_RECURSIVE) != 0) {
		status = file_remove_tree(job, &name);
	} else {
		status = (int)RAW3(SYS_unlinkat, name.dir_fd, name.name, 0);
	}
	/* A read-only mount says that it is one before it looks at the name. */
	if (status == -EROFS && file_info(name.dir_fd, name.name, &info) == -ENOENT)
		status = -ENOENT;
	sp_fd_close(&name.dir_fd);
	return status;
}

/* A file system that cannot refuse to replace: looked at first, which is the best there is. */
static int move_checked(const struct file_name *from, const struct file_name *to)
{
	struct sp_init_file_info info;
	int status = file_info(to->dir_fd, to->name, &info);

	if (status == 0)
		return -EEXIST;
	return status != -ENOENT ? status
				 : (int)RAW5(SYS_renameat2, from->dir_fd, from->name, to->dir_fd,
					     to->name, 0);
}

static int move(struct file_job *job, const struct file_name *from, const struct file_name *to)
{
	bool replace = (job->request->flags & SP_INIT_FILE_F_REPLACE) != 0;
	int status = (int)RAW5(SYS_renameat2, from->dir_fd, from->name, to->dir_fd, to->name,
			       replace ? 0 : RENAME_NOREPLACE);

	if (status == -EINVAL && !replace)
		return move_checked(from, to);
	return status == -EXDEV ? file_move_copy(job, from, to) : status;
}

int file_move(struct file_job *job)
{
	struct file_name from = {.dir_fd = -1};
	struct file_name to = {.dir_fd = -1};
	struct sp_init_file_info info;
	int status = file_parent(job, job->path, false, &from);

	if (status == 0)
		status = file_info(from.dir_fd, from.name, &info);
	if (status == 0) {
		job->stage = "to";
		status = file_parent(job, job->to, true, &to);
	}
	if (status == 0) {
		job->stage = "move";
		status = move(job, &from, &to);
	}
	sp_fd_close(&from.dir_fd);
	sp_fd_close(&to.dir_fd);
	return status;
}

int file_change(struct file_job *job)
{
	SP_AUTO_CLOSE int fd = file_open(AT_FDCWD, job->path, O_PATH);
	int status = fd < 0 ? fd : file_not_pseudo(fd);

	if (status == 0 && job->request->mode != SP_INIT_FILE_KEEP)
		status = file_mode(fd, job->request->mode);
	return status < 0 ? status : file_own(job, fd);
}

/* A listener's queue may be full, which is waited for, but not for long. */
static int finish_connect(int fd)
{
	struct pollfd ready = {.fd = fd, .events = POLLOUT};
	socklen_t size = sizeof(int);
	int error = 0;
	int count = poll(&ready, 1, CONNECT_MS);

	if (count <= 0)
		return count == 0 ? -ETIMEDOUT : -errno;
	if (RAW5(SYS_getsockopt, fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
		return -EBADF;
	return -error;
}

/* The file system of the upper is its own. */
int file_used(struct sp_init_file_info *ret)
{
	*ret = (struct sp_init_file_info){.type = SP_INIT_FILE_DIR};
	return init_overlay_used(INIT_FILE_UPPER, &ret->size);
}

int file_connect(struct file_job *job, int *ret_fd)
{
	const struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htobe16((uint16_t)job->request->port),
		.sin_addr.s_addr = htobe32(LOOPBACK),
	};
	SP_AUTO_CLOSE int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int status;

	job->stage = "connect";
	if (fd < 0)
		return -errno;
	status = (int)RAW3(SYS_connect, fd, &address, sizeof(address));
	if (status == -EINPROGRESS)
		status = finish_connect(fd);
	if (status == 0)
		*ret_fd = sp_take_fd(&fd);
	return status;
}
