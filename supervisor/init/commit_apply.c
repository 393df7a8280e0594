/*
 * The second half of a commit: from the journal to the base. Every step brings one path to what it
 * is to be, or finds that it is that already, so it may end anywhere and begin again. Directories
 * that their owner has closed are opened on the way down and get their modes at the end, the
 * deepest first.
 *
 * The journal may be anybody's: it has been checked, it names nothing but what is below the base,
 * and what it asks for is done with the workload's permissions.
 */
#include "supervisor/init/file_commit.h"

#include "pool/base/fd.h"
#include "supervisor/init/raw.h"
#include "supervisor/sandbox/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NUMBER_SPACE 12
#define BENEATH      (RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS)

static const char journal_name[] = "journal";

/* What is in COMMIT_DIR. The journal goes first: without it nothing is done again. */
static const char *const own_names[] = {"journal", "journal.new", "reserve", "new"};

static bool is_ours(const char *name)
{
	for (size_t i = 0; i < SP_ARRAY_SIZE(own_names); i++)
		if (strcmp(name, own_names[i]) == 0)
			return true;
	return false;
}

int commit_open(int dir_fd, const char *path, int flags)
{
	return sp_sys_openat2(dir_fd, path, flags | O_NOFOLLOW | O_CLOEXEC, 0, BENEATH);
}

/*
 * Whoever may write to the base may make something of such a name there, or give the name to what
 * is the workload's. A journal would lend him its rights, so what it is read from and what it moves
 * must be the workload's, and nobody else may have written to it.
 */
int commit_open_own(const struct commit *commit, int dir_fd, const char *name, int flags)
{
	SP_AUTO_CLOSE int fd = commit_open(dir_fd, name, flags);
	struct sp_init_file_info info = {0};
	int status = fd < 0 ? fd : file_info(fd, "", &info);

	if (status < 0)
		return status;
	if (info.uid != commit->job->request->uid || (info.mode & (S_IWGRP | S_IWOTH)) != 0)
		return -EBADMSG;
	return sp_take_fd(&fd);
}

int commit_fail(struct commit *commit, int status, const char *stage, const char *path)
{
	commit->job->stage = stage;
	if (path)
		(void)snprintf(commit->object, SP_INIT_FILE_OBJECT, "%s", path);
	return status;
}

/* ---- one step ---- */

/* The directory that the last component of `path` is in. */
static int open_parent(const struct commit *commit, const char *path, struct file_name *ret)
{
	char parent[SP_INIT_PATH_MAX];
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 1;

	memcpy(parent, slash ? path : ".", len);
	parent[len] = '\0';
	(void)snprintf(ret->name, sizeof(ret->name), "%s", slash ? slash + 1 : path);
	ret->dir_fd = commit_open(commit->base_fd, parent, O_PATH | O_DIRECTORY);
	return ret->dir_fd < 0 ? ret->dir_fd : 0;
}

static int move_staged(const struct commit *commit, uint32_t number, const struct file_name *name)
{
	char staged[NUMBER_SPACE];

	(void)snprintf(staged, sizeof(staged), "%u", number);
	return (int)RAW5(SYS_renameat2, commit->new_fd, staged, name->dir_fd, name->name, 0);
}

/* What is in its way is of another kind. Not there: it has been moved. */
static int place(const struct commit *commit, uint32_t number, const struct file_name *name)
{
	int status = move_staged(commit, number, name);

	if (status == -EISDIR || status == -ENOTDIR || status == -ENOTEMPTY || status == -EEXIST) {
		status = file_remove_tree(commit->job, name);
		if (status == 0)
			status = move_staged(commit, number, name);
	}
	return status == -ENOENT ? 0 : status;
}

/* Who owns it can always do that; who does not has no need to. */
static int set_mode(const struct commit *commit, int fd, const struct sp_init_file_info *info,
		    mode_t mode)
{
	if (info->uid != commit->job->request->uid || (info->mode & COMMIT_MODE) == mode)
		return 0;
	return file_mode(fd, mode);
}

/* -ENOTDIR: there is none. */
static int open_up(const struct commit *commit, const struct file_name *name)
{
	SP_AUTO_CLOSE int fd = commit_open(name->dir_fd, name->name, O_PATH | O_DIRECTORY);
	struct sp_init_file_info info;
	int status = fd < 0 ? fd : file_info(fd, "", &info);

	if (status < 0)
		return status == -ENOENT || status == -ELOOP ? -ENOTDIR : status;
	return set_mode(commit, fd, &info, (info.mode & COMMIT_MODE) | S_IRWXU);
}

static int directory(const struct commit *commit, uint32_t number, const struct file_name *name)
{
	int status = open_up(commit, name);

	if (status != -ENOTDIR)
		return status;
	status = place(commit, number, name);
	return status < 0 ? status : open_up(commit, name);
}

static int do_step(struct commit *commit, const struct commit_step *step)
{
	struct file_name name = {.dir_fd = -1};
	int status = open_parent(commit, step->path, &name);

	file_tell(commit->job);
	if (status < 0) /* it has nothing to be deleted from */
		return step->operation == COMMIT_DELETE && status == -ENOENT ? 0 : status;
	if (step->operation == COMMIT_DELETE)
		status = file_remove_tree(commit->job, &name);
	else if (step->operation == COMMIT_PLACE)
		status = place(commit, step->number, &name);
	else
		status = directory(commit, step->number, &name);
	sp_fd_close(&name.dir_fd);
	return step->operation == COMMIT_DELETE && status == -ENOENT ? 0 : status;
}

static int close_up(struct commit *commit, const struct commit_step *step)
{
	SP_AUTO_CLOSE int fd = commit_open(commit->base_fd, step->path, O_PATH | O_DIRECTORY);
	struct sp_init_file_info info;
	int status = fd < 0 ? fd : file_info(fd, "", &info);

	file_tell(commit->job);
	return status < 0 ? status : set_mode(commit, fd, &info, step->mode);
}

/* ---- all of them ---- */

/* Where each record is, so that they can be gone through backwards; every one is checked before
 * the first is done. */
static int read_steps(const void *data, size_t len, struct commit_cursor **ret_cursors,
		      uint32_t *ret_count)
{
	struct commit_cursor cursor;
	struct commit_cursor *cursors;
	struct commit_step step;
	int status = commit_journal_open(&cursor, data, len);

	if (status < 0)
		return status;
	cursors = mmap(NULL, ((size_t)cursor.count + 1) * sizeof(*cursors), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (cursors == MAP_FAILED)
		return -ENOMEM;
	do {
		cursors[cursor.number] = cursor;
		status = commit_journal_next(&cursor, &step);
	} while (status == 1);
	*ret_cursors = cursors;
	*ret_count = cursor.number;
	return status;
}

int commit_apply(struct commit *commit, const void *data, size_t len)
{
	struct commit_cursor *cursors = NULL;
	struct commit_step step = {.path = ""};
	uint32_t count = 0;
	int status = read_steps(data, len, &cursors, &count);

	if (status < 0)
		return commit_fail(commit, status, SP_INIT_COMMIT_JOURNAL, COMMIT_DIR);
	(void)RAW3(SYS_unlinkat, commit->stage_fd, "reserve", 0);
	for (uint32_t i = 0; status == 0 && i < count; i++) {
		struct commit_cursor cursor = cursors[i];

		(void)commit_journal_next(&cursor, &step);
		status = do_step(commit, &step);
	}
	for (uint32_t i = count; status == 0 && i-- > 0;) {
		struct commit_cursor cursor = cursors[i];

		(void)commit_journal_next(&cursor, &step);
		if (step.operation == COMMIT_DIRECTORY)
			status = close_up(commit, &step);
	}
	return status < 0 ? commit_fail(commit, status, SP_INIT_COMMIT_APPLY, step.path) : 0;
}

/* Nothing but what a commit makes there: it may be another directory that was given the name. */
static int check_names(const struct commit *commit)
{
	_Alignas(uint64_t) static char dirents[FILE_DIRENTS];
	long got;

	if (RAW3(SYS_lseek, commit->stage_fd, 0, SEEK_SET) < 0)
		return -EIO;
	while ((got = RAW3(SYS_getdents64, commit->stage_fd, dirents, FILE_DIRENTS)) > 0) {
		for (long at = 0; at < got;) {
			const char *name = dirents + at + sizeof(struct file_dirent);
			struct file_dirent head;

			memcpy(&head, dirents + at, sizeof(head));
			at += head.length;
			if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && !is_ours(name))
				return -EBADMSG;
		}
	}
	return (int)got;
}

/* By what was opened, whatever has the name by now. */
int commit_remove(struct commit *commit)
{
	int status = check_names(commit);

	for (size_t i = 0; status == 0 && i < SP_ARRAY_SIZE(own_names); i++) {
		struct file_name name = {.dir_fd = commit->stage_fd};

		(void)snprintf(name.name, sizeof(name.name), "%s", own_names[i]);
		status = file_remove_tree(commit->job, &name);
		if (status == -ENOENT)
			status = 0;
	}
	if (status == 0)
		status = (int)RAW3(SYS_unlinkat, commit->base_fd, COMMIT_DIR, AT_REMOVEDIR);
	return status;
}

int commit_clean(struct commit *commit)
{
	int status = (int)RAW1(SYS_syncfs, commit->base_fd);

	/* Later changes of the base would not survive its being done again. */
	if (status == 0)
		status = (int)RAW3(SYS_unlinkat, commit->stage_fd, journal_name, 0);
	if (status == 0 || status == -ENOENT)
		status = (int)RAW1(SYS_fsync, commit->stage_fd);
	if (status == 0)
		status = commit_remove(commit);
	return status < 0 ? commit_fail(commit, status, SP_INIT_COMMIT_APPLY, COMMIT_DIR) : 0;
}

/* ---- recovery ---- */

/* 1: *ret has it; 0: there is none. */
static int read_journal(struct commit *commit, char **ret, size_t *ret_length)
{
	SP_AUTO_CLOSE int fd = commit_open_own(commit, commit->stage_fd, journal_name,
					       O_RDONLY | O_NONBLOCK | O_NOCTTY);
	struct sp_init_file_info info = {0};
	ssize_t got;
	char *text;

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	if (file_info(fd, "", &info) < 0 || info.type != SP_INIT_FILE_REGULAR ||
	    info.size > COMMIT_JOURNAL_MAX)
		return -EBADMSG;
	text = mmap(NULL, info.size + 1, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (text == MAP_FAILED)
		return -ENOMEM;
	got = sp_read_all(fd, text, info.size);
	if (got < 0)
		return (int)got;
	*ret = text;
	*ret_length = (size_t)got;
	return 1;
}

/* Links and files where a directory is meant are somebody's joke. */
static int joke(int status)
{
	return status == -ELOOP || status == -ENOTDIR || status == -EXDEV ? -EBADMSG : status;
}

static int finish_earlier(struct commit *commit)
{
	char *text = NULL;
	size_t len = 0;
	int status = read_journal(commit, &text, &len);

	if (status <= 0)
		return joke(status);
	commit->new_fd = commit_open_own(commit, commit->stage_fd, "new", O_PATH | O_DIRECTORY);
	if (commit->new_fd < 0)
		return commit->new_fd == -ENOENT ? -EBADMSG : joke(commit->new_fd);
	return commit_apply(commit, text, len);
}

int commit_recover(struct commit *commit)
{
	int status;

	commit->stage_fd =
		commit_open_own(commit, commit->base_fd, COMMIT_DIR, O_RDONLY | O_DIRECTORY);
	if (commit->stage_fd == -ENOENT)
		return 0;
	commit_fail(commit, 0, SP_INIT_COMMIT_JOURNAL, COMMIT_DIR);
	status = commit->stage_fd < 0 ? joke(commit->stage_fd) : check_names(commit);
	if (status == 0)
		status = finish_earlier(commit);
	if (status == 0)
		status = commit_clean(commit);
	sp_fd_close(&commit->new_fd);
	sp_fd_close(&commit->stage_fd);
	return status;
}
