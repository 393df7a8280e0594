/*
 * Small files that an operator names: passwords, certificates. Blocking, so not for the loop.
 */
#ifndef SP_REDIS_FILE_H
#define SP_REDIS_FILE_H

#include "pool/base/buf.h"
#include "pool/base/err.h"

/* Appends the whole of a regular file to data, which bounds it. -EFBIG, -EINVAL (not a regular
 * file), other negative errno; `what` ("password file") and path are named. */
int sp_redis_file_read(const char *what, const char *path, struct sp_buf *data, struct sp_err *err);
/* Wipes what it held before it frees it. */
void sp_redis_buf_wipe(struct sp_buf *data);

#endif
