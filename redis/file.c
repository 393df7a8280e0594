/*
 * Opened non-blocking, so that a FIFO at the path does not hang; only regular files are read.
 */
#include "redis/file.h"

#include "pool/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_rest(int fd, struct sp_buf *data)
{
	char chunk[4096];
	ssize_t got = 1;
	int status = 0;

	while (got > 0 && status == 0) {
		got = read(fd, chunk, sizeof(chunk));
		if (got < 0 && errno == EINTR)
			got = 1;
		else if (got < 0)
			status = -errno;
		else
			status = sp_buf_append(data, chunk, (size_t)got);
	}
	explicit_bzero(chunk, sizeof(chunk));
	return status == -E2BIG ? -EFBIG : status;
}

int sp_redis_file_read(const char *what, const char *path, struct sp_buf *data, struct sp_err *err)
{
	SP_AUTO_CLOSE int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat stat;
	int status;

	if (fd < 0)
		return sp_err_set(err, -errno, "open %s '%s'", what, path);
	if (fstat(fd, &stat) < 0)
		return sp_err_set(err, -errno, "look at %s '%s'", what, path);
	if (!S_ISREG(stat.st_mode))
		return sp_err_code(err, SP_CODE_CONFIG_INVALID, -EINVAL,
				   "%s '%s' is not a regular file", what, path);
	status = read_rest(fd, data);
	if (status < 0)
		return sp_err_set(err, status, "read %s '%s'", what, path);
	return 0;
}

void sp_redis_buf_wipe(struct sp_buf *data)
{
	if (data->data)
		explicit_bzero(data->data, data->capacity);
	sp_buf_done(data);
}
