/*
 * Sealed memory files. Holds no state.
 */
#include "supervisor/sandbox/memfd.h"

#include "pool/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#define ALL_SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

/* Since 6.3 a memfd says whether it may be executed; older kernels refuse the flag and allow it. */
#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

static int make(const char *name, unsigned int kind)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | kind);

	if (fd < 0 && errno == EINVAL)
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	return fd < 0 ? -errno : fd;
}

int sp_memfd_new(const char *name)
{
	return make(name, MFD_NOEXEC_SEAL);
}

int sp_memfd_seal(int fd)
{
	return fcntl(fd, F_ADD_SEALS, ALL_SEALS) < 0 ? -errno : 0;
}

bool sp_memfd_sealed(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && (seals & ALL_SEALS) == ALL_SEALS;
}

int sp_memfd_program(const char *path, int *ret_fd, struct sp_err *err)
{
	SP_AUTO_CLOSE int file = open(path, O_RDONLY | O_CLOEXEC);
	SP_AUTO_CLOSE int fd = -1;
	ssize_t copied;

	if (file < 0)
		return sp_err_set(err, -errno, "open program '%s'", path);
	fd = make("sandpool-init", MFD_EXEC);
	if (fd < 0)
		return sp_err_set(err, fd, "create memory file for '%s'", path);
	do {
		copied = sendfile(fd, file, NULL, SP_MIB);
	} while (copied > 0);
	if (copied < 0)
		return sp_err_set(err, -errno, "copy program '%s'", path);
	if (fchmod(fd, 0555) < 0 || sp_memfd_seal(fd) < 0)
		return sp_err_set(err, -errno, "seal program '%s'", path);
	*ret_fd = sp_take_fd(&fd);
	return 0;
}

int sp_memfd_map(int fd, size_t size_max, const void **ret_data, size_t *ret_size,
		 struct sp_err *err)
{
	struct stat status;
	void *data;

	if (!sp_memfd_sealed(fd))
		return sp_err_set(err, -EPERM, "map memory file %d that is not sealed", fd);
	if (fstat(fd, &status) < 0)
		return sp_err_set(err, -errno, "stat memory file %d", fd);
	if (status.st_size <= 0)
		return sp_err_set(err, -ENODATA, "map memory file %d", fd);
	if ((uint64_t)status.st_size > size_max)
		return sp_err_set(err, -EFBIG, "map memory file %d", fd);
	data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (data == MAP_FAILED)
		return sp_err_set(err, -errno, "map memory file %d", fd);
	*ret_data = data;
	*ret_size = (size_t)status.st_size;
	return 0;
}
