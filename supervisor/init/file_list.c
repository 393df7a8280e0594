/*
 * LIST: what a walk finds, many entries a record.
 */
#include "supervisor/init/file_walk.h"

#include "pool/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define ALIGNMENT 8u

static union {
	struct sp_init_file_record_header header;
	char bytes[SP_INIT_FILE_REPLY];
} reply;

static size_t reply_length;

static void flush_entries(void)
{
	if (reply.header.count > 0)
		file_send(&reply, reply_length, -1);
	reply.header.type = SP_INIT_FILE_FOUND;
	reply.header.count = 0;
	reply_length = sizeof(reply.header);
}

static int on_entry(struct file_walk *walk, int dir_fd, const char *name,
		    const struct sp_init_file_info *info)
{
	const struct sp_init_file_entry entry = {
		.info = *info,
		.path_length = (uint32_t)walk->path_length,
	};
	size_t size = sizeof(entry) + walk->path_length + 1;

	SP_UNUSED(dir_fd);
	SP_UNUSED(name);
	size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	if (size > sizeof(reply) - reply_length)
		flush_entries();
	memset(reply.bytes + reply_length, 0, size);
	memcpy(reply.bytes + reply_length, &entry, sizeof(entry));
	memcpy(reply.bytes + reply_length + sizeof(entry), walk->path, walk->path_length);
	reply_length += size;
	reply.header.count++;
	return 0;
}

int file_list(struct file_job *job)
{
	static struct file_walk walk;
	SP_AUTO_CLOSE int fd = file_open(AT_FDCWD, job->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
	size_t prefix = job->request->path_length + (job->request->path_length > 1);
	int status = fd < 0 ? fd : file_not_pseudo(fd);

	if (status < 0 || job->request->depth == 0)
		return status;
	walk.job = job;
	walk.depth = job->request->depth;
	walk.limit = job->request->limit;
	walk.path_limit = SP_INIT_PATH_MAX - 1 - SP_MIN(prefix, SP_INIT_PATH_MAX - 1);
	walk.entry = on_entry;
	flush_entries();
	status = file_walk(&walk, sp_take_fd(&fd));
	flush_entries();
	return status;
}
