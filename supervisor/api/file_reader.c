/*
 * A read that is under way cannot be called back from its thread: a reader that is freed meanwhile
 * goes when the read has returned, and the api does not end before that.
 */
#include "supervisor/api/file_reader.h"

#include "pool/base/fd.h"

#include <errno.h>
#include <stdlib.h>

struct sp_file_reader {
	struct sp_api *api;
	uv_fs_t read;
	int fd;
	sp_file_reader_cb *cb;
	void *arg;
	bool busy;
	bool freed;
	char data[SP_FILE_READER_SIZE];
};

int sp_file_reader_new(struct sp_api *api, int fd, sp_file_reader_cb *cb, void *arg,
		       struct sp_file_reader **ret_reader)
{
	struct sp_file_reader *reader = malloc(sizeof(*reader));

	if (!reader) {
		sp_fd_close(&fd);
		return -ENOMEM;
	}
	reader->api = api;
	reader->read.data = reader;
	reader->fd = fd;
	reader->cb = cb;
	reader->arg = arg;
	reader->busy = false;
	reader->freed = false;
	*ret_reader = reader;
	return 0;
}

static void destroy(struct sp_file_reader *reader)
{
	sp_fd_close(&reader->fd);
	free(reader);
}

static void on_read(uv_fs_t *read)
{
	struct sp_file_reader *reader = read->data;
	struct sp_api *api = reader->api;
	ssize_t result = read->result;

	uv_fs_req_cleanup(read);
	reader->busy = false;
	if (reader->freed)
		destroy(reader);
	else
		reader->cb(reader->arg, reader->data, result);
	sp_api_handle_closed(api);
}

void sp_file_reader_read(struct sp_file_reader *reader, uint64_t offset, size_t len)
{
	uv_buf_t buf =
		uv_buf_init(reader->data, (unsigned int)SP_MIN(len, (size_t)SP_FILE_READER_SIZE));
	int status;

	sp_assert(!reader->busy && !reader->freed);
	reader->busy = true;
	sp_api_handle_opened(reader->api);
	status = uv_fs_read(reader->api->loop, &reader->read, reader->fd, &buf, 1, (int64_t)offset,
			    on_read);
	sp_assert(status == 0); /* it queues the work and needs no memory for one buffer */
}

void sp_file_reader_free(struct sp_file_reader *reader)
{
	if (!reader)
		return;
	reader->freed = true;
	if (!reader->busy)
		destroy(reader);
}
