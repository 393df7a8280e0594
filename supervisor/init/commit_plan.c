/*
 * The first half of a commit: what is to become of each path, and whether it may. Nothing is
 * changed here.
 *
 * Both trees are walked in the same order, so the base's entries meet the upper's records without a
 * search. What is below a deleted or replaced entry of the base is doomed: it needs no record, but
 * the workload must be able to remove it. What the upper does not name in an opaque directory gets
 * a record for its removal.
 */
#include "supervisor/init/file_commit.h"

#include "pool/base/fd.h"
#include "supervisor/init/raw.h"
#include "supervisor/sandbox/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LEVELS_MAX (SP_INIT_PATH_MAX / 2)

/* The base's walk. */
struct comparison {
	struct file_walk walk; /* the first member */
	struct commit *commit;
	uint32_t next;      /* record of the upper that it has come to */
	uint32_t upper_end; /* what follows has been added */
	uint64_t entries;
	bool again;
	size_t doomed_length; /* 0: not below something that goes */
	char doomed[SP_INIT_PATH_MAX];
	size_t opaque_length;
	char opaque[SP_INIT_PATH_MAX];
};

/* The upper's. */
struct survey {
	struct file_walk walk; /* the first member */
	struct commit *commit;
	size_t opaque_length;
	char opaque[SP_INIT_PATH_MAX];
};

/* ---- records ---- */

struct commit_record *commit_plan_record(const struct commit_plan *plan, uint32_t number)
{
	return (struct commit_record *)(void *)(plan->text + plan->starts[number]);
}

const char *commit_plan_path(const struct commit_plan *plan, uint32_t number)
{
	return (const char *)(commit_plan_record(plan, number) + 1);
}

static int add(struct commit *commit, enum commit_operation operation, uint32_t mode,
	       uint32_t flags, const char *path)
{
	struct commit_plan *plan = &commit->plan;
	size_t len = strlen(path);
	const struct commit_record record = {
		.operation = operation,
		.mode = mode,
		.flags = flags,
		.path_length = (uint32_t)len,
	};

	if (plan->count == COMMIT_RECORDS_MAX ||
	    plan->used + commit_record_size(len) > COMMIT_JOURNAL_MAX)
		return commit_fail(commit, -E2BIG, SP_INIT_COMMIT_LIMIT, path);
	plan->starts[plan->count++] = (uint32_t)plan->used;
	memcpy(plan->text + plan->used, &record, sizeof(record));
	memcpy(plan->text + plan->used + sizeof(record), path, len + 1);
	plan->used += commit_record_size(len); /* what is between them is 0 already */
	return 0;
}

static void *reserve(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

static int begin_plan(struct commit *commit)
{
	struct commit_plan *plan = &commit->plan;

	plan->text = reserve(COMMIT_JOURNAL_MAX);
	plan->starts = reserve(COMMIT_RECORDS_MAX * sizeof(*plan->starts));
	plan->used = sizeof(struct commit_head);
	return plan->text && plan->starts ? 0 : -ENOMEM;
}

/* Remember `path` as the top of a tree. */
static void mark(const char *path, char top[SP_INIT_PATH_MAX], size_t *top_length)
{
	*top_length = strlen(path);
	memcpy(top, path, *top_length + 1);
}

static bool marked(const char *path, const char *top, size_t top_length)
{
	return top_length > 0 && commit_path_below(path, top, top_length);
}

/* ---- the upper ---- */

/* What lies below is not to be seen: here, or further up. */
static int is_opaque(struct survey *survey, int dir_fd, const char *name)
{
	SP_AUTO_CLOSE int fd = -1;
	char value = 0;

	if (marked(survey->walk.path, survey->opaque, survey->opaque_length))
		return 1;
	fd = commit_open(dir_fd, name, O_RDONLY | O_DIRECTORY);
	if (fd < 0)
		return fd;
	if (RAW4(SYS_fgetxattr, fd, "user.overlay.opaque", &value, sizeof(value)) != 1 ||
	    value != 'y')
		return 0;
	mark(survey->walk.path, survey->opaque, &survey->opaque_length);
	return 1;
}

static int add_directory(struct survey *survey, int dir_fd, const char *name, uint32_t mode)
{
	int opaque = is_opaque(survey, dir_fd, name);

	if (opaque < 0)
		return opaque;
	return add(survey->commit, COMMIT_DIRECTORY, mode, opaque == 1 ? PLAN_OPAQUE : 0,
		   survey->walk.path);
}

/* Sockets are no data, but what one has replaced is gone; a whiteout is how an upper says that
 * something was deleted. */
static int add_other(struct survey *survey, int dir_fd, const char *name)
{
	struct statx info;

	if (statx(dir_fd, name, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &info) != 0)
		return -errno;
	if (S_ISSOCK(info.stx_mode))
		return add(survey->commit, COMMIT_DELETE, 0, 0, survey->walk.path);
	if (S_ISFIFO(info.stx_mode))
		return add(survey->commit, COMMIT_PLACE, 0, PLAN_FIFO, survey->walk.path);
	if (S_ISCHR(info.stx_mode) && info.stx_rdev_major == 0 && info.stx_rdev_minor == 0)
		return add(survey->commit, COMMIT_DELETE, 0, 0, survey->walk.path);
	return commit_fail(survey->commit, -EINVAL, SP_INIT_COMMIT_KIND, survey->walk.path);
}

static int on_upper(struct file_walk *walk, int dir_fd, const char *name,
		    const struct sp_init_file_info *info)
{
	struct survey *survey = (struct survey *)walk;
	struct commit *commit = survey->commit;

	if (commit_path_below(walk->path, COMMIT_DIR, strlen(COMMIT_DIR)))
		return commit_fail(commit, -EEXIST, SP_INIT_COMMIT_RESERVED, walk->path);
	/* Of somebody else's it may be a directory on the way, which the base has as well. */
	if (info->uid != commit->job->request->uid &&
	    (info->type == SP_INIT_FILE_REGULAR || info->type == SP_INIT_FILE_LINK))
		return commit_fail(commit, -EPERM, SP_INIT_COMMIT_OWNER, walk->path);
	if (info->type == SP_INIT_FILE_REGULAR)
		return add(commit, COMMIT_PLACE, 0, 0, walk->path);
	if (info->type == SP_INIT_FILE_LINK)
		return add(commit, COMMIT_PLACE, 0, PLAN_LINK, walk->path);
	if (info->type == SP_INIT_FILE_DIR)
		return add_directory(survey, dir_fd, name, info->mode & COMMIT_MODE);
	return add_other(survey, dir_fd, name);
}

int commit_plan_upper(struct commit *commit)
{
	static struct survey survey;
	struct sp_init_file_info info = {0};
	int fd = commit_open(commit->upper_fd, ".", O_RDONLY | O_DIRECTORY);
	int status = fd < 0 ? fd : file_info(fd, "", &info);

	survey.commit = commit;
	survey.walk.job = commit->job;
	survey.walk.depth = UINT32_MAX;
	survey.walk.limit = commit->job->request->limit;
	survey.walk.path_limit = SP_INIT_PATH_MAX - 1;
	survey.walk.whole = true;
	survey.walk.entry = on_upper;
	if (status == 0)
		status = begin_plan(commit);
	if (status == 0)
		status = add(commit, COMMIT_DIRECTORY, info.mode & COMMIT_MODE, 0, ".");
	if (status < 0)
		return status;
	return file_walk(&survey.walk, fd);
}

/* ---- the base ---- */

static bool frozen_solid(const struct statx *info)
{
	return (info->stx_attributes & (STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND)) != 0;
}

static bool mine(const struct commit *commit, uint32_t uid)
{
	return uid == commit->job->request->uid;
}

static uint64_t device_of(const struct statx *info)
{
	return (uint64_t)info->stx_dev_major << 32 | info->stx_dev_minor;
}

/* A subvolume of btrfs is no mount, and yet nothing can be renamed into it. */
static bool apart(const struct commit *commit, int dir_fd, const char *name)
{
	struct statx info;

	return statx(dir_fd, name, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, STATX_TYPE, &info) != 0 ||
	       device_of(&info) != commit->base_device;
}

/* May the workload write in that directory, if need be after opening it? */
static bool writable(const struct commit *commit, int dir_fd, const char *name)
{
	const int flags = AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH;
	struct statx info;
	long status;

	if (statx(dir_fd, name, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &info) != 0)
		return false;
	status = RAW4(SYS_faccessat2, dir_fd, name, W_OK | X_OK, flags);
	if (status == 0 || status == -EROFS || frozen_solid(&info))
		return status == 0 && !frozen_solid(&info);
	return mine(commit, info.stx_uid);
}

/* May it take this entry away? */
static bool removable(const struct commit *commit, int dir_fd, const char *name)
{
	struct statx above;
	struct statx entry;

	if (statx(dir_fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &above) != 0 ||
	    statx(dir_fd, name, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &entry) != 0)
		return false;
	if (frozen_solid(&entry) || (entry.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0)
		return false;
	if ((above.stx_mode & S_ISVTX) != 0 && !mine(commit, above.stx_uid) &&
	    !mine(commit, entry.stx_uid))
		return false;
	return writable(commit, dir_fd, "");
}

/* Will the walk go into it? What cannot be seen there would stay, or be removed unseen. */
static bool enterable(int dir_fd, const char *name)
{
	return RAW4(SYS_faccessat2, dir_fd, name, R_OK | X_OK, AT_EACCESS | AT_SYMLINK_NOFOLLOW) ==
	       0;
}

/* A directory of the upper, where the base has something. */
static int compare_directory(struct comparison *comparison, struct commit_record *record,
			     int dir_fd, const char *name, const struct sp_init_file_info *info)
{
	struct commit *commit = comparison->commit;
	bool denied = false;

	if (info->type != SP_INIT_FILE_DIR) {
		denied = !removable(commit, dir_fd, name);
	} else {
		record->flags |= PLAN_KEPT;
		if (!writable(commit, dir_fd, name))
			record->flags |= PLAN_SHUT;
		if (apart(commit, dir_fd, name))
			record->flags |= PLAN_APART;
		denied = (!mine(commit, info->uid) && (info->mode & COMMIT_MODE) != record->mode) ||
			 ((record->flags & PLAN_OPAQUE) != 0 && !enterable(dir_fd, name));
		commit->counts->directories += (info->mode & COMMIT_MODE) != record->mode;
		if ((record->flags & PLAN_OPAQUE) != 0 &&
		    !marked(comparison->walk.path, comparison->opaque, comparison->opaque_length))
			mark(comparison->walk.path, comparison->opaque, &comparison->opaque_length);
	}
	return denied ? commit_fail(commit, -EPERM, SP_INIT_COMMIT_OWNER, comparison->walk.path)
		      : 0;
}

/* It goes, with all that is in it. */
static int doom(struct comparison *comparison, int dir_fd, const char *name,
		const struct sp_init_file_info *info)
{
	const char *path = comparison->walk.path;

	if (!removable(comparison->commit, dir_fd, name) ||
	    (info->type == SP_INIT_FILE_DIR && !writable(comparison->commit, dir_fd, name)))
		return commit_fail(comparison->commit, -EPERM, SP_INIT_COMMIT_OWNER, path);
	if (info->type == SP_INIT_FILE_DIR &&
	    !marked(path, comparison->doomed, comparison->doomed_length))
		mark(path, comparison->doomed, &comparison->doomed_length);
	return 0;
}

/* The upper's record of this path; those on the way to it are of what the base does not have. */
static struct commit_record *meet(struct comparison *comparison)
{
	struct commit_plan *plan = &comparison->commit->plan;

	while (comparison->next < comparison->upper_end) {
		int order = commit_path_order(commit_plan_path(plan, comparison->next),
					      comparison->walk.path);

		if (order > 0)
			return NULL;
		comparison->next++;
		if (order == 0)
			return commit_plan_record(plan, comparison->next - 1);
	}
	return NULL;
}

/* Is something moved to where the base has this? */
static bool moves(const struct commit_record *record, const struct sp_init_file_info *info)
{
	return record->operation == COMMIT_PLACE ||
	       (record->operation == COMMIT_DIRECTORY && info->type != SP_INIT_FILE_DIR);
}

static int compare(struct comparison *comparison, int dir_fd, const char *name,
		   const struct sp_init_file_info *info)
{
	struct commit *commit = comparison->commit;
	const char *path = comparison->walk.path;
	struct commit_record *record = meet(comparison);

	if (marked(path, comparison->doomed, comparison->doomed_length))
		return doom(comparison, dir_fd, name, info);
	if (record) {
		record->flags |= PLAN_FOUND;
		if (moves(record, info) && apart(commit, dir_fd, ""))
			return commit_fail(commit, -EXDEV, SP_INIT_COMMIT_APART, path);
		if (record->operation == COMMIT_DIRECTORY)
			return compare_directory(comparison, record, dir_fd, name, info);
		commit->counts->deleted += record->operation == COMMIT_DELETE;
		return doom(comparison, dir_fd, name, info);
	}
	if (!marked(path, comparison->opaque, comparison->opaque_length))
		return 0;
	commit->counts->deleted++;
	if (add(commit, COMMIT_DELETE, 0, PLAN_FOUND, path) < 0)
		return -E2BIG;
	return doom(comparison, dir_fd, name, info);
}

static int on_base(struct file_walk *walk, int dir_fd, const char *name,
		   const struct sp_init_file_info *info)
{
	struct comparison *comparison = (struct comparison *)walk;
	struct commit *commit = comparison->commit;

	if (comparison->again && commit_path_below(walk->path, COMMIT_DIR, strlen(COMMIT_DIR)))
		return 1; /* ours */
	comparison->entries++;
	if (info->changed_ns >= commit->freeze.real_ns)
		return commit_fail(commit, -ESTALE, SP_INIT_COMMIT_BASE, walk->path);
	return comparison->again ? 0 : compare(comparison, dir_fd, name, info);
}

static struct comparison the_comparison;

static int walk_base(struct commit *commit, bool again)
{
	struct comparison *comparison = &the_comparison;
	int fd = commit_open(commit->base_fd, ".", O_RDONLY | O_DIRECTORY);

	if (fd < 0)
		return fd;
	comparison->commit = commit;
	comparison->again = again;
	comparison->next = 1; /* behind the root's */
	comparison->upper_end = commit->plan.count;
	comparison->entries = 0;
	comparison->walk.job = commit->job;
	comparison->walk.depth = UINT32_MAX;
	comparison->walk.limit = SP_INIT_FILE_ENTRIES;
	comparison->walk.path_limit = SP_INIT_PATH_MAX - 1;
	comparison->walk.entry = on_base;
	return file_walk(&comparison->walk, fd);
}

/* The base's root: always there, and what is staged is put into it. */
static int compare_root(struct commit *commit)
{
	struct commit_record *record = commit_plan_record(&commit->plan, 0);
	struct sp_init_file_info info = {0};
	struct statx place = {0};
	int status = file_info(commit->base_fd, "", &info);

	if (status == 0 && statx(commit->base_fd, "", AT_EMPTY_PATH, STATX_TYPE, &place) != 0)
		status = -errno;
	if (status < 0)
		return status;
	commit->base_device = device_of(&place);
	if (info.changed_ns >= commit->freeze.real_ns && info.changed_ns != commit->freeze.root_ns)
		return commit_fail(commit, -ESTALE, SP_INIT_COMMIT_BASE, ".");
	record->flags |= PLAN_FOUND | PLAN_KEPT;
	/* COMMIT_DIR has to be made in it, and to go again when it has its mode. */
	if (RAW4(SYS_faccessat2, commit->base_fd, "", W_OK | X_OK, AT_EACCESS | AT_EMPTY_PATH) <
		    0 ||
	    (!mine(commit, info.uid) && (info.mode & COMMIT_MODE) != record->mode) ||
	    (mine(commit, info.uid) && (record->mode & (S_IWUSR | S_IXUSR)) != (S_IWUSR | S_IXUSR)))
		return commit_fail(commit, -EPERM, SP_INIT_COMMIT_OWNER, ".");
	if ((info.mode & COMMIT_MODE) != record->mode)
		commit->counts->directories++;
	return 0;
}

/* What is new goes into directories that are new as well, or may be written to. */
static int check_new(struct commit *commit)
{
	static uint32_t above[LEVELS_MAX]; /* the last directory on each level; 0 is the root */
	struct commit_plan *plan = &commit->plan;

	for (uint32_t i = 1; i < plan->count; i++) {
		const struct commit_record *record = commit_plan_record(plan, i);
		const char *path = commit_plan_path(plan, i);
		uint32_t level = 0;

		for (const char *at = path; *at != '\0'; at++)
			level += *at == '/';
		if (record->operation == COMMIT_DIRECTORY && level + 1 < LEVELS_MAX)
			above[level + 1] = i;
		if ((record->flags & PLAN_FOUND) != 0 || record->operation == COMMIT_DELETE)
			continue;
		if ((commit_plan_record(plan, above[level])->flags & PLAN_SHUT) != 0)
			return commit_fail(commit, -EPERM, SP_INIT_COMMIT_OWNER, path);
		if ((commit_plan_record(plan, above[level])->flags & PLAN_APART) != 0)
			return commit_fail(commit, -EXDEV, SP_INIT_COMMIT_APART, path);
	}
	return 0;
}

int commit_plan_base(struct commit *commit)
{
	uint32_t upper_end = commit->plan.count;
	int status = compare_root(commit);

	if (status == 0)
		status = walk_base(commit, false);
	commit->base_entries = the_comparison.entries;
	if (status < 0)
		return status;
	for (uint32_t i = 1; i < upper_end; i++) {
		const struct commit_record *record = commit_plan_record(&commit->plan, i);

		commit->counts->files += record->operation == COMMIT_PLACE;
		commit->counts->directories +=
			record->operation == COMMIT_DIRECTORY && (record->flags & PLAN_KEPT) == 0;
	}
	return check_new(commit);
}

int commit_plan_again(struct commit *commit)
{
	int status = walk_base(commit, true);

	if (status < 0)
		return status;
	/* What has gone from the root itself has left no other trace: we have changed it, too. */
	if (the_comparison.entries != commit->base_entries)
		return commit_fail(commit, -ESTALE, SP_INIT_COMMIT_BASE, ".");
	return 0;
}
