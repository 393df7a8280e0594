/*
 * The state directory belongs to one daemon at a time: a lock in it says whose. The lock is the
 * kernel's (flock), so it is gone with its holder, however that ended.
 */
#include "supervisor/daemon/daemon_private.h"

#include "pool/base/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Nothing in it but the two locks: a new one, perhaps made by the launcher just now. */
static bool fresh(int dir_fd)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;
	bool only_locks = dir != NULL;

	if (!dir) {
		sp_fd_close(&fd);
		return false;
	}
	while (only_locks && (entry = readdir(dir)))
		only_locks = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
			     strcmp(entry->d_name, "lock") == 0 ||
			     strcmp(entry->d_name, "launcher.lock") == 0;
	(void)closedir(dir);
	return only_locks;
}

static int open_dir(const char *path, uint32_t owner_uid, uint32_t owner_gid, int *ret_fd,
		    struct sp_err *err)
{
	int made = mkdir(path, 0700);
	struct stat info;
	SP_AUTO_CLOSE int fd = -1;

	if (made < 0 && errno != EEXIST)
		return sp_err_set(err, -errno, "make the state directory '%s'", path);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return sp_err_set(err, -errno, "open the state directory '%s'", path);
	if (fstat(fd, &info) < 0)
		return sp_err_set(err, -errno, "look at the state directory '%s'", path);
	if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
		return sp_err_code(err, SP_CODE_CONFIG_INVALID, -EPERM,
				   "the state directory '%s' is writable by others", path);
	/* A directory with other things in it is not taken over: it may be a slip in the
	 * configuration. */
	if (info.st_uid != owner_uid && info.st_uid == geteuid() && fresh(fd)) {
		if (fchown(fd, owner_uid, owner_gid) < 0 || fchmod(fd, 0700) < 0)
			return sp_err_set(err, -errno, "give the state directory '%s' to uid %u",
					  path, owner_uid);
	} else if (info.st_uid != owner_uid && info.st_uid != geteuid()) {
		return sp_err_code(err, SP_CODE_CONFIG_INVALID, -EPERM,
				   "the state directory '%s' belongs to uid %u, not to us", path,
				   info.st_uid);
	}
	*ret_fd = sp_take_fd(&fd);
	return 0;
}

static long holder(int fd)
{
	char text[32];
	ssize_t got = pread(fd, text, sizeof(text) - 1, 0);
	long pid = 0;

	if (got > 0) {
		text[got] = '\0';
		if (sscanf(text, "%ld", &pid) != 1)
			pid = 0;
	}
	return pid;
}

/* The directory is the daemon's user's, who could have made "lock" another name of a file of root,
 * for us to give to him. */
static bool of_one_name(int fd)
{
	struct stat info;

	return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_nlink == 1;
}

int state_dir_lock(const char *path, uint32_t owner_uid, uint32_t owner_gid, int *ret_fd,
		   struct sp_err *err)
{
	SP_AUTO_CLOSE int dir = -1;
	SP_AUTO_CLOSE int fd = -1;
	char text[32];
	int status = open_dir(path, owner_uid, owner_gid, &dir, err);

	if (status < 0)
		return status;
	fd = openat(dir, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return sp_err_set(err, -errno, "open the lock in '%s'", path);
	if (!of_one_name(fd))
		return sp_err_code(err, SP_CODE_CONFIG_INVALID, -EPERM,
				   "the lock in '%s' is not a plain file with one name", path);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return sp_err_set(err, -errno, "lock the state directory '%s'", path);
		return sp_err_code(err, SP_CODE_CONFLICT, -EBUSY,
				   "the state directory '%s' is in use by another sandpoold (pid "
				   "%ld)",
				   path, holder(fd));
	}
	(void)snprintf(text, sizeof(text), "%ld\n", (long)getpid());
	if (fchown(fd, owner_uid, owner_gid) < 0 || ftruncate(fd, 0) < 0 ||
	    pwrite(fd, text, strlen(text), 0) < 0)
		return sp_err_set(err, -errno, "write the lock in '%s'", path);
	*ret_fd = sp_take_fd(&fd);
	return 0;
}
