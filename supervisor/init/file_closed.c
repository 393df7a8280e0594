/*
 * Directories that their owner has closed to himself (mode 644, say). Who may change a mode can go
 * in after changing it, and clients of the file operations expect to be let in: so the ones on the
 * way that belong to who asks are opened for him, for the length of one operation, and closed again
 * afterwards. No right comes from this that he does not have; others see no bit more.
 */
#include "supervisor/init/file_helper.h"

#include "pool/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define OPENED_MAX 32u

static struct {
	int fd; /* O_PATH */
	mode_t mode;
} opened[OPENED_MAX];

static unsigned int opened_count;

/* Takes the fd. */
static void open_one(const struct file_job *job, int fd)
{
	struct sp_init_file_info info;

	if (opened_count < OPENED_MAX && file_info(fd, "", &info) == 0 &&
	    info.type == SP_INIT_FILE_DIR && info.uid == job->request->uid &&
	    (info.mode & S_IRWXU) != S_IRWXU && file_mode(fd, info.mode | S_IRWXU) == 0) {
		opened[opened_count].fd = fd;
		opened[opened_count++].mode = info.mode;
	} else {
		sp_fd_close(&fd);
	}
}

static void open_way(const struct file_job *job, const char *path)
{
	char text[SP_INIT_PATH_MAX];
	size_t len = strlen(path);

	memcpy(text, path, len + 1);
	for (size_t at = 1; at < len; at++) {
		int fd;

		if (text[at] != '/')
			continue;
		text[at] = '\0';
		fd = file_open(AT_FDCWD, text, O_PATH | O_DIRECTORY);
		text[at] = '/';
		if (fd < 0)
			return;
		open_one(job, fd);
	}
}

bool file_open_closed(const struct file_job *job)
{
	open_way(job, job->path);
	if (job->to)
		open_way(job, job->to);
	return opened_count > 0;
}

void file_close_opened(void)
{
	while (opened_count > 0) {
		opened_count--;
		(void)file_mode(opened[opened_count].fd, opened[opened_count].mode);
		sp_fd_close(&opened[opened_count].fd);
	}
}
