/*
 * A tree goes, however deep it is and whatever its directories' modes are, as long as they belong
 * to who asks. Depth first: the first directory that is not empty is entered, left when it is, and
 * found empty on the way back. The way back is "..", checked to be where it came from.
 *
 * Mounts are not crossed: what is attached somewhere in the tree is somebody else's.
 */
#include "supervisor/init/file_helper.h"

#include "pool/base/fd.h"
#include "supervisor/init/raw.h"
#include "supervisor/sandbox/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DEPTH_MAX   (1u << 20)
#define REMOVED_MAX 10000000u /* a workload can make new ones all the time */
#define OWN_MODE    0700

struct directory {
	uint64_t inode;
	uint64_t device;
};

static struct {
	struct directory *way;
	uint32_t deep;
	uint32_t removed;
	char found[NAME_MAX + 1]; /* a directory that is not empty */
	_Alignas(uint64_t) char dirents[FILE_DIRENTS];
} state;

static int identify(int fd, struct directory *ret)
{
	struct statx info;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_INO, &info) != 0)
		return -errno;
	ret->inode = info.stx_ino;
	ret->device = ((uint64_t)info.stx_dev_major << 32) | info.stx_dev_minor;
	return 0;
}

static int open_once_with(int dir_fd, const char *name, int flags)
{
	int fd = sp_sys_openat2(dir_fd, name, flags | O_DIRECTORY | O_NOFOLLOW, 0,
				RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV);

	return fd == -EXDEV ? -EBUSY : fd;
}

static int open_once(int dir_fd, const char *name)
{
	return open_once_with(dir_fd, name, O_RDONLY | O_NONBLOCK);
}

/* One that its owner has closed is opened up: it goes anyway. By a descriptor: the name may be a
 * link by now, to something of his that does not go. */
static int open_directory(int dir_fd, const char *name)
{
	SP_AUTO_CLOSE int closed_fd = -1;
	int fd = open_once(dir_fd, name);

	if (fd != -EACCES)
		return fd;
	closed_fd = open_once_with(dir_fd, name, O_PATH);
	if (closed_fd < 0 || file_mode(closed_fd, OWN_MODE) < 0)
		return fd;
	return open_once(dir_fd, name);
}

static int remove_once(int dir_fd, const char *name)
{
	int status = (int)RAW3(SYS_unlinkat, dir_fd, name, 0);

	return status == -EISDIR ? (int)RAW3(SYS_unlinkat, dir_fd, name, AT_REMOVEDIR) : status;
}

/* 0, 1: a directory that is not empty. */
static int remove_entry(int dir_fd, const char *name)
{
	int status = remove_once(dir_fd, name);

	if (status == -EACCES && RAW2(SYS_fchmod, dir_fd, OWN_MODE) == 0)
		status = remove_once(dir_fd, name);
	if (status == -ENOTEMPTY || status == -EEXIST)
		return 1;
	if (status < 0)
		return status == -ENOENT ? 0 : status;
	return ++state.removed > REMOVED_MAX ? -E2BIG : 0;
}

/* What one read of the directory brought. 0 or negative; 1: state.found is to be entered. */
static int remove_batch(int dir_fd, long len)
{
	for (long at = 0; at < len;) {
		const char *name = state.dirents + at + sizeof(struct file_dirent);
		struct file_dirent head;
		int status;

		memcpy(&head, state.dirents + at, sizeof(head));
		at += head.length;
		if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
			continue;
		status = remove_entry(dir_fd, name);
		if (status == 1)
			memcpy(state.found, name, strlen(name) + 1);
		if (status != 0)
			return status;
	}
	return 0;
}

/* Until nothing is in it (0), or something is to be entered (1). */
static int empty(struct file_job *job, int dir_fd)
{
	uint32_t before;

	do {
		long got;

		before = state.removed;
		if (RAW3(SYS_lseek, dir_fd, 0, SEEK_SET) < 0)
			return -EIO;
		while ((got = RAW3(SYS_getdents64, dir_fd, state.dirents, FILE_DIRENTS)) > 0) {
			int status = remove_batch(dir_fd, got);

			file_tell(job);
			if (status != 0)
				return status;
		}
		if (got < 0)
			return (int)got;
		/* Some file systems lose their place when something is removed. */
	} while (state.removed != before);
	return 0;
}

static int go_down(int *dir_fd)
{
	int status = identify(*dir_fd, &state.way[state.deep]);
	int below_fd;

	if (status < 0)
		return status;
	below_fd = open_directory(*dir_fd, state.found);
	if (below_fd < 0) /* gone, or another kind: looked at again from above */
		return below_fd == -ENOENT || below_fd == -ENOTDIR ? 0 : below_fd;
	if (++state.deep == DEPTH_MAX || ++state.removed > REMOVED_MAX) {
		(void)close(below_fd);
		return -E2BIG;
	}
	sp_fd_close(dir_fd);
	*dir_fd = below_fd;
	return 0;
}

static int go_up(struct file_job *job, int *dir_fd)
{
	struct directory above = {0};
	int up_fd = open_once(*dir_fd, "..");
	int status;

	if (up_fd == -EACCES && RAW2(SYS_fchmod, *dir_fd, OWN_MODE) == 0)
		up_fd = open_once(*dir_fd, "..");
	if (up_fd < 0)
		return up_fd;
	sp_fd_close(dir_fd);
	*dir_fd = up_fd;
	status = identify(up_fd, &above);
	if (status < 0)
		return status;
	state.deep--;
	job->stage = "moved";
	if (above.inode != state.way[state.deep].inode ||
	    above.device != state.way[state.deep].device)
		return -ESTALE;
	job->stage = "remove";
	return 0;
}

static int remove_below(struct file_job *job, int *dir_fd)
{
	for (;;) {
		int status = empty(job, *dir_fd);

		if (status == 1)
			status = go_down(dir_fd);
		else if (status == 0 && state.deep == 0)
			return 0;
		else if (status == 0)
			status = go_up(job, dir_fd);
		if (status < 0)
			return status;
	}
}

/* Kept for the next tree. */
static bool reserve_way(void)
{
	void *memory = state.way;

	if (!memory)
		memory = mmap(NULL, DEPTH_MAX * sizeof(*state.way), PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return false;
	state.way = memory;
	return true;
}

int file_remove_tree(struct file_job *job, const struct file_name *name)
{
	SP_AUTO_CLOSE int fd = -1;
	int status;

	job->stage = "remove";
	state.deep = 0;
	state.removed = 0;
	/* Also says, before anything is gone, whether this one may go: a mount point may not. */
	status = remove_once(name->dir_fd, name->name);
	if (status != -ENOTEMPTY && status != -EEXIST)
		return status;
	if (!reserve_way())
		return -ENOMEM;
	fd = open_directory(name->dir_fd, name->name);
	if (fd < 0)
		return fd;
	status = remove_below(job, &fd);
	return status < 0 ? status : remove_once(name->dir_fd, name->name);
}
