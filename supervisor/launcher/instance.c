/*
 * Takes the locks of an instance. They are held by open descriptors and vanish with the process;
 * the files go at a clean end.
 */
#include "supervisor/launcher/instance.h"

#include "pool/base/fd.h"
#include "supervisor/sandbox/syscalls.h"
#include "supervisor/sandbox/uid_slots.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The directory may be the daemon user's, who could have put a link there. */
#define LOCK_ATTEMPTS 100u
#define SUFFIX        ".lock"
#define RESOLVE_PLAIN (RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)

static int open_dir(const char *path, mode_t mode, struct sp_err *err)
{
	int fd;

	if (mkdir(path, mode) < 0 && errno != EEXIST)
		return sp_err_set(err, -errno, "create directory '%s'", path);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? sp_err_set(err, -errno, "open directory '%s'", path) : fd;
}

/* A lock on what another launcher has just removed at its end locks nothing. */
static bool removed(int fd)
{
	struct stat info;

	return fstat(fd, &info) < 0 || info.st_nlink == 0;
}

/* A launcher that was killed holds its locks until its helpers have ended as well, a moment later.
 */
static int lock_patiently(int fd)
{
	const struct timespec pause = {.tv_nsec = 10 * SP_NS_PER_MS};

	for (unsigned int attempt = 1; flock(fd, LOCK_EX | LOCK_NB) < 0; attempt++) {
		if (errno != EWOULDBLOCK || attempt == LOCK_ATTEMPTS)
			return -errno;
		(void)nanosleep(&pause, NULL);
	}
	return 0;
}

static int lock_file(int dir_fd, const char *dir, const char *name, int *ret_fd, struct sp_err *err)
{
	for (unsigned int attempt = 0; attempt < LOCK_ATTEMPTS; attempt++) {
		SP_AUTO_CLOSE int fd =
			sp_sys_openat2(dir_fd, name, O_RDWR | O_CREAT, 0600, RESOLVE_PLAIN);
		int status = fd < 0 ? 0 : lock_patiently(fd);

		if (fd < 0)
			return sp_err_set(err, fd, "open lock file '%s/%s'", dir, name);
		if (status == -EWOULDBLOCK)
			return sp_err_code(err, SP_CODE_CONFLICT, -EALREADY,
					   "another launcher holds '%s/%s': an instance runs once",
					   dir, name);
		if (status < 0)
			return sp_err_set(err, status, "lock '%s/%s'", dir, name);
		if (!removed(fd)) {
			*ret_fd = sp_take_fd(&fd);
			return 0;
		}
	}
	return sp_err_set(err, -EAGAIN, "lock '%s/%s'", dir, name);
}

/* Shared: whoever gets it exclusively is the last launcher, see sp_instance_remove(). */
static int open_lock_dir(const char *path, struct sp_err *err)
{
	const struct timespec pause = {.tv_nsec = SP_NS_PER_MS};

	for (unsigned int attempt = 0; attempt < LOCK_ATTEMPTS; attempt++) {
		SP_AUTO_CLOSE int fd = open_dir(path, 0700, err);

		if (fd == -ENOENT)
			continue;
		if (fd < 0)
			return fd;
		if (flock(fd, LOCK_SH | LOCK_NB) == 0 && !removed(fd))
			return sp_take_fd(&fd);
		(void)nanosleep(&pause, NULL);
	}
	return sp_err_set(err, -EAGAIN, "lock directory '%s'", path);
}

/* "" without a directory that is the user's and goes with his session. */
static void choose_lock_dir(char *path, size_t size, uid_t user)
{
	struct stat info;
	int len;

	if (user == 0) {
		(void)snprintf(path, size, SP_LOCK_DIR);
		return;
	}
	len = snprintf(path, size, SP_USER_RUN_DIR "/%u", user);
	/* In our user namespace he is 0. */
	if (lstat(path, &info) < 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid())
		path[0] = '\0';
	else
		(void)snprintf(path + len, size - (size_t)len, "/" SP_USER_LOCK_DIR);
}

int sp_instance_lock(const struct sp_table *table, uid_t user, struct sp_instance *ret_instance,
		     struct sp_err *err)
{
	SP_AUTO_CLOSE int state_fd = open_dir(table->state_dir, 0755, err);
	SP_AUTO_CLOSE int lock_dir_fd = -1;
	SP_AUTO_CLOSE int name_lock_fd = -1;
	SP_AUTO_CLOSE int state_lock_fd = -1;
	char lock_dir[sizeof(ret_instance->lock_dir)];
	int status;

	if (state_fd < 0)
		return state_fd;
	status = lock_file(state_fd, table->state_dir, "launcher.lock", &state_lock_fd, err);
	if (status < 0)
		return status;
	choose_lock_dir(lock_dir, sizeof(lock_dir), user);
	lock_dir_fd = lock_dir[0] ? open_lock_dir(lock_dir, err) : sp_take_fd(&state_fd);
	if (lock_dir_fd < 0)
		return lock_dir_fd;
	if (lock_dir[0]) {
		(void)snprintf(ret_instance->lock_name, sizeof(ret_instance->lock_name),
			       "%s" SUFFIX, table->instance);
		status = lock_file(lock_dir_fd, lock_dir, ret_instance->lock_name, &name_lock_fd,
				   err);
		if (status < 0)
			return status;
	}
	memcpy(ret_instance->lock_dir, lock_dir, sizeof(lock_dir));
	ret_instance->lock_dir_fd = sp_take_fd(&lock_dir_fd);
	ret_instance->name_lock_fd = sp_take_fd(&name_lock_fd);
	ret_instance->state_lock_fd = sp_take_fd(&state_lock_fd);
	return 0;
}

/* Nobody else is here or comes meanwhile: whoever made these was killed and never started again. */
static void remove_stale(int dir_fd)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!dir) {
		sp_fd_close(&fd);
		return;
	}
	while ((entry = readdir(dir))) {
		size_t len = strlen(entry->d_name);

		if (len > strlen(SUFFIX) &&
		    strcmp(entry->d_name + len - strlen(SUFFIX), SUFFIX) == 0)
			(void)unlinkat(dir_fd, entry->d_name, 0);
	}
	(void)closedir(dir);
}

void sp_instance_remove(const struct sp_instance *instance)
{
	int lock_dir_fd = instance->lock_dir_fd;

	if (!instance->lock_dir[0])
		return;
	(void)unlinkat(lock_dir_fd, instance->lock_name, 0);
	/* A uid lock file may go only with its last user: two of them would lock nothing. */
	if (flock(lock_dir_fd, LOCK_EX | LOCK_NB) == 0) {
		remove_stale(lock_dir_fd);
		sp_uid_slots_remove(lock_dir_fd);
		(void)rmdir(instance->lock_dir);
	}
}
