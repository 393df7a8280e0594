/*
 * Reads a file that came out of a sandbox, on the threads of the loop: a disk that stands still
 * must not make the loop stand still. One read at a time.
 */
#ifndef SP_API_FILE_READER_H
#define SP_API_FILE_READER_H

#include "supervisor/api/api_private.h"

#define SP_FILE_READER_SIZE (256u * 1024) /* bytes of one read */

struct sp_file_reader;

/* result: bytes of `data` (borrowed), 0 at the end of the file, or negative errno. */
typedef void sp_file_reader_cb(void *arg, const char *data, ssize_t result);

/* Takes the fd, also on failure. -ENOMEM. */
int sp_file_reader_new(struct sp_api *api, int fd, sp_file_reader_cb *cb, void *arg,
		       struct sp_file_reader **ret_reader);
/* Up to len bytes (at most SP_FILE_READER_SIZE) from `offset` on; the callback comes once, later.
 */
void sp_file_reader_read(struct sp_file_reader *reader, uint64_t offset, size_t len);
/* No callback after this. NULL is fine. */
void sp_file_reader_free(struct sp_file_reader *reader);

#endif
