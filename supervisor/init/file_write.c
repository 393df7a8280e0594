/*
 * A file's whole content. Until COMMIT it has no name, or one that nobody looks for; then it takes
 * the place of what was there in one step. Nothing is made for it before that, not even the
 * directories on the way.
 */
#include "supervisor/init/file_helper.h"

#include "pool/base/fd.h"
#include "supervisor/init/raw.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>

#define NEW_MODE  0644u
#define KEEP_BITS SP_INIT_FILE_MODE

/* What stands there now. */
struct target {
	bool exists;
	struct sp_init_file_info info;
};

/* A page or more of one record; static because a record is too much for a stack. */
static struct {
	struct sp_init_file_record_header header;
	char bytes[SP_INIT_FILE_DATA_MAX];
} record;

static int look(const struct file_name *name, struct target *ret)
{
	int status = file_info(name->dir_fd, name->name, &ret->info);

	ret->exists = status == 0;
	if (status < 0)
		return status == -ENOENT ? 0 : status;
	if (ret->info.type == SP_INIT_FILE_DIR)
		return -EISDIR;
	return ret->info.type == SP_INIT_FILE_REGULAR ? 0 : -ENODEV;
}

/* The directory to write in: the file's own, or the nearest above it that is there. */
static int find_place(struct file_job *job)
{
	SP_AUTO_CLOSE int dir_fd = -1;
	struct file_name name = {.dir_fd = -1};
	struct target target;
	int status = file_destination(job, job->path, false, &name);

	if (status == 0) {
		dir_fd = name.dir_fd;
		status = look(&name, &target);
	} else if (status == -ENOENT) {
		dir_fd = file_nearest(job->path);
		status = dir_fd < 0 ? dir_fd : 0;
	}
	if (status == 0)
		status = file_not_pseudo(dir_fd);
	return status < 0 ? status : sp_take_fd(&dir_fd);
}

static int write_all(int fd, const char *data, size_t len)
{
	while (len > 0) {
		long written = RAW3(SYS_write, fd, data, len);

		if (written < 0)
			return (int)written;
		data += written;
		len -= (size_t)written;
	}
	return 0;
}

/* Until COMMIT: 0. -ECANCELED: given up. */
static int take_content(int fd)
{
	for (;;) {
		ssize_t got = file_receive(&record, sizeof(record));
		int status;

		if (got == 0)
			return -ECANCELED;
		if (got < 0)
			return (int)got;
		if ((size_t)got < sizeof(record.header))
			return -EBADMSG;
		if (record.header.type == SP_INIT_FILE_COMMIT)
			return 0;
		if (record.header.type != SP_INIT_FILE_DATA)
			return -EBADMSG;
		status = write_all(fd, record.bytes, (size_t)got - sizeof(record.header));
		if (status < 0)
			return status;
	}
}

/* Whose it is to be: as asked, else whose the one before it was. */
static struct sp_init_file new_owner(const struct file_job *job, const struct target *target)
{
	struct sp_init_file request = *job->request;

	if (target->exists && request.owner == SP_INIT_FILE_KEEP)
		request.owner = target->info.uid;
	if (target->exists && request.group == SP_INIT_FILE_KEEP)
		request.group = target->info.gid;
	return request;
}

static int set_mode(const struct file_job *job, int fd, const struct target *target)
{
	uint32_t mode = target->exists ? target->info.mode & KEEP_BITS : NEW_MODE;

	if (job->request->mode != SP_INIT_FILE_KEEP)
		mode = job->request->mode;
	return file_mode(fd, mode);
}

/* A directory that may not be read is not synced: that takes a descriptor for reading. */
static void sync_directory(int path_fd)
{
	SP_AUTO_CLOSE int fd = file_open(path_fd, ".", O_RDONLY | O_DIRECTORY);

	if (fd >= 0)
		(void)RAW1(SYS_fsync, fd);
}

/* The owner changes last, because nobody may link what is not his own (fs.protected_hardlinks) or
 * rename it in a sticky directory; that it can change is tried before anything is seen. */
static int commit(struct file_job *job, int fd, const struct file_name *name)
{
	struct target target;
	struct sp_init_file request;
	struct file_job owning = *job;
	int status = look(name, &target);

	if (status == 0)
		status = set_mode(job, fd, &target);
	if (status < 0)
		return status;
	request = new_owner(job, &target);
	owning.request = &request;
	status = file_try_own(&owning, fd);
	if (status == 0) {
		owning.stage = "sync";
		status = (int)RAW1(SYS_fsync, fd);
	}
	if (status == 0) {
		owning.stage = "publish";
		status = file_temporary_publish(&owning, fd, name, true);
	}
	if (status == 0)
		status = file_own(&owning, fd);
	if (status == 0 && job->made != UINT32_MAX)
		status = file_own_made(job);
	if (status == 0)
		sync_directory(name->dir_fd);
	job->stage = owning.stage;
	job->temporary_fd = owning.temporary_fd;
	return status;
}

/* A file to write to, in the directory that is the right one by now. */
static int begin(struct file_job *job, int unused_fd)
{
	SP_AUTO_CLOSE int place_fd = find_place(job);
	int fd;

	SP_UNUSED(unused_fd);
	if (place_fd < 0)
		return place_fd;
	job->stage = "create";
	fd = file_temporary_open(job, place_fd);
	if (fd >= 0 && job->temporary_fd >= 0)
		(void)sp_take_fd(&place_fd); /* it has a name there */
	return fd;
}

static int finish(struct file_job *job, int fd)
{
	struct file_name name = {.dir_fd = -1};
	int status;

	job->stage = "path";
	status = file_destination(job, job->path, true, &name);
	if (status == 0)
		status = commit(job, fd, &name);
	if (job->temporary_fd == name.dir_fd)
		file_temporary_drop(job); /* while it is open */
	sp_fd_close(&name.dir_fd);
	return status;
}

/* Either part is done anew when a directory that was closed by who asks is in the way; not the
 * content in between. */
static int owners(struct file_job *job, int (*part)(struct file_job *job, int fd), int fd)
{
	int status = part(job, fd);

	if (status != -EACCES || !file_open_closed(job))
		return status;
	status = part(job, fd);
	file_close_opened();
	return status;
}

int file_write(struct file_job *job)
{
	SP_AUTO_CLOSE int fd = owners(job, begin, -1);
	int status;

	if (fd < 0)
		return fd;
	job->stage = "write";
	status = take_content(fd);
	if (status == 0)
		status = owners(job, finish, fd);
	file_temporary_drop(job);
	return status;
}
