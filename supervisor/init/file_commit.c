/*
 * Commit and recovery, as file_commit.h describes them: the order of things, and the staging.
 */
#include "supervisor/init/file_commit.h"

#include "pool/base/fd.h"
#include "supervisor/init/raw.h"
#include "supervisor/sandbox/file_system.h"
#include "supervisor/sandbox/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NUMBER_SPACE  12
#define COPY_SIZE     65536u
#define RESERVE_BYTES 65536u /* for what directories grow by when things are moved into them … */
#define RESERVE_EACH  64u    /* … and for each of these */
#define CLOCK_SLACK   SP_NS_PER_MS /* the two were not read at once */

static char copy_space[COPY_SIZE];
static char link_space[PATH_MAX];

/* ---- may it be compared at all? ---- */

static int check_filesystem(struct commit *commit)
{
	struct statfs info = {0};
	long status = RAW2(SYS_fstatfs, commit->base_fd, &info);

	if (status < 0)
		return (int)status;
	if (sp_file_system_remote(info.f_type))
		return commit_fail(commit, -EOPNOTSUPP, SP_INIT_COMMIT_FILESYSTEM, ".");
	return 0;
}

static int64_t now_ns(clockid_t clock)
{
	struct timespec now;

	(void)clock_gettime(clock, &now);
	return now.tv_sec * SP_NS_PER_S + now.tv_nsec;
}

/* A change that was made after it was set back looks older than it is. Both clocks are slewed
 * alike, so their distance changes when one is set, and by nothing else. */
static int check_clock(struct commit *commit)
{
	int64_t passed = now_ns(CLOCK_BOOTTIME) - commit->freeze.boot_ns;
	int64_t stamped = now_ns(CLOCK_REALTIME) - commit->freeze.real_ns;

	if (stamped < passed - CLOCK_SLACK)
		return commit_fail(commit, -ESTALE, SP_INIT_COMMIT_CLOCK, ".");
	return 0;
}

static int lock_base(struct commit *commit)
{
	long status = RAW2(SYS_flock, commit->base_fd, LOCK_EX | LOCK_NB);

	if (status == -EWOULDBLOCK)
		return commit_fail(commit, -EBUSY, SP_INIT_COMMIT_LOCKED, ".");
	return (int)status;
}

/* ---- staging ---- */

/* The only thing that is done with more rights than the workload has. */
static int open_upper(const struct commit *commit, const char *path, int flags)
{
	int status = file_privilege(true);
	int fd;

	if (status < 0)
		return status;
	fd = commit_open(commit->upper_fd, path, flags);
	status = file_privilege(false);
	if (status < 0)
		sp_fd_close(&fd);
	return status < 0 ? status : fd;
}

static int set_time(int dir_fd, const char *name, int64_t modified_ns)
{
	const struct timespec times[] = {
		{.tv_nsec = UTIME_OMIT},
		{.tv_sec = modified_ns / SP_NS_PER_S, .tv_nsec = modified_ns % SP_NS_PER_S},
	};

	if (modified_ns < 0)
		return 0; /* before 1970: that of the copy */
	return (int)RAW4(SYS_utimensat, dir_fd, name, times, AT_SYMLINK_NOFOLLOW);
}

static int write_out(struct commit *commit, int fd, const char *data, size_t len)
{
	while (len > 0) {
		long written = RAW3(SYS_write, fd, data, len);

		if (written < 0)
			return (int)written;
		data += written;
		len -= (size_t)written;
	}
	file_tell(commit->job);
	return 0;
}

static int copy_span(struct commit *commit, int from_fd, int to_fd, int64_t left)
{
	while (left > 0) {
		long got = RAW3(SYS_read, from_fd, copy_space,
				SP_MIN(left, (int64_t)sizeof(copy_space)));
		int status = got < 0 ? (int)got : write_out(commit, to_fd, copy_space, (size_t)got);

		if (status < 0 || got == 0)
			return status;
		left -= got;
	}
	return 0;
}

/* What is a hole stays one. */
static int copy_content(struct commit *commit, int from_fd, int to_fd, int64_t size)
{
	int64_t at = 0;

	while (at < size) {
		int64_t data = RAW3(SYS_lseek, from_fd, at, SEEK_DATA);
		int64_t hole = data < 0 ? data : RAW3(SYS_lseek, from_fd, data, SEEK_HOLE);
		int status = 0;

		if (data == -ENXIO) /* nothing but a hole */
			break;
		if (hole < 0)
			return (int)hole;
		if (RAW3(SYS_lseek, from_fd, data, SEEK_SET) < 0 ||
		    RAW3(SYS_lseek, to_fd, data, SEEK_SET) < 0)
			return -EIO;
		status = copy_span(commit, from_fd, to_fd, SP_MIN(hole, size) - data);
		if (status < 0)
			return status;
		at = hole;
	}
	return (int)RAW2(SYS_ftruncate, to_fd, size);
}

/* ---- names of one file ---- */

static int begin_links(struct commit *commit)
{
	size_t room = 2;

	while (room < 2 * (size_t)commit->plan.count)
		room *= 2;
	commit->links = mmap(NULL, room * sizeof(*commit->links), PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	commit->links_mask = room - 1;
	return commit->links == MAP_FAILED ? -ENOMEM : 0;
}

/* The place of that file: its own, or a free one. */
static struct commit_link *find_link(const struct commit *commit, uint64_t inode)
{
	size_t at = (size_t)inode & commit->links_mask;

	while (commit->links[at].number != 0 && commit->links[at].inode != inode)
		at = (at + 1) & commit->links_mask;
	return &commit->links[at];
}

/*
 * One more name of a file that has been staged already: of one file that is as large as the upper
 * a workload could otherwise make a base of any size. 1: it has to be copied; it is the first, or
 * the file has as many names as the file system allows.
 */
static int stage_name(struct commit *commit, int from_fd, uint32_t number, const char *staged)
{
	struct commit_link *link;
	struct statx info = {0};
	char first[NUMBER_SPACE];

	if (statx(from_fd, "", AT_EMPTY_PATH, STATX_NLINK | STATX_INO, &info) != 0)
		return -errno;
	if (info.stx_nlink < 2)
		return 1;
	link = find_link(commit, info.stx_ino);
	(void)snprintf(first, sizeof(first), "%u", link->number);
	if (link->number != 0 &&
	    RAW5(SYS_linkat, commit->new_fd, first, commit->new_fd, staged, 0) == 0)
		return 0;
	*link = (struct commit_link){.inode = info.stx_ino, .number = number};
	return 1;
}

static int stage_file(struct commit *commit, uint32_t number, const char *path, const char *staged)
{
	SP_AUTO_CLOSE int from_fd = open_upper(commit, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
	SP_AUTO_CLOSE int to_fd = -1;
	struct sp_init_file_info info = {0};
	int status = from_fd < 0 ? from_fd : stage_name(commit, from_fd, number, staged);

	if (status <= 0)
		return status;
	status = file_info(from_fd, "", &info);
	if (status < 0)
		return status;
	to_fd = (int)RAW4(SYS_openat, commit->new_fd, staged,
			  O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (to_fd < 0)
		return to_fd;
	commit->counts->bytes += info.size;
	status = copy_content(commit, from_fd, to_fd, (int64_t)info.size);
	if (status == 0)
		status = set_time(commit->new_fd, staged, info.modified_ns);
	return status < 0 ? status : file_mode(to_fd, info.mode & COMMIT_MODE);
}

static int stage_link(struct commit *commit, const char *path, const char *staged)
{
	SP_AUTO_CLOSE int fd = open_upper(commit, path, O_PATH);
	struct sp_init_file_info info = {0};
	int status = fd < 0 ? fd : file_info(fd, "", &info);
	long len = status < 0 ? status
			      : RAW4(SYS_readlinkat, fd, "", link_space, sizeof(link_space) - 1);

	if (len < 0)
		return (int)len;
	link_space[len] = '\0';
	status = (int)RAW3(SYS_symlinkat, link_space, commit->new_fd, staged);
	return status < 0 ? status : set_time(commit->new_fd, staged, info.modified_ns);
}

static int stage_fifo(struct commit *commit, const char *path, const char *staged)
{
	SP_AUTO_CLOSE int fd = open_upper(commit, path, O_PATH);
	struct sp_init_file_info info = {0};
	int status = fd < 0 ? fd : file_info(fd, "", &info);

	if (status < 0)
		return status;
	return (int)RAW4(SYS_mknodat, commit->new_fd, staged, S_IFIFO | (info.mode & COMMIT_MODE),
			 0);
}

static int stage_record(struct commit *commit, uint32_t number)
{
	const struct commit_record *record = commit_plan_record(&commit->plan, number);
	const char *path = commit_plan_path(&commit->plan, number);
	char staged[NUMBER_SPACE];
	int status = 0;

	(void)snprintf(staged, sizeof(staged), "%u", number);
	if (record->operation == COMMIT_DIRECTORY && (record->flags & PLAN_KEPT) == 0)
		status = (int)RAW3(SYS_mkdirat, commit->new_fd, staged, S_IRWXU);
	else if (record->operation != COMMIT_PLACE)
		return 0;
	else if ((record->flags & PLAN_LINK) != 0)
		status = stage_link(commit, path, staged);
	else if ((record->flags & PLAN_FIFO) != 0)
		status = stage_fifo(commit, path, staged);
	else
		status = stage_file(commit, number, path, staged);
	file_tell(commit->job);
	return status < 0 ? commit_fail(commit, status, "stage", path) : 0;
}

static int make_file(struct commit *commit, const char *name)
{
	return (int)RAW4(SYS_openat, commit->stage_fd, name,
			 O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600);
}

/* Room that is given back when it is decided, so that it does not fail then for a block. */
static int reserve_room(struct commit *commit)
{
	SP_AUTO_CLOSE int fd = make_file(commit, "reserve");
	uint64_t left = RESERVE_BYTES + (uint64_t)commit->plan.count * RESERVE_EACH;
	int status = fd < 0 ? fd : 0;

	memset(copy_space, 0xff, sizeof(copy_space));
	while (status == 0 && left > 0) {
		uint64_t len = SP_MIN(left, (uint64_t)sizeof(copy_space));

		status = write_out(commit, fd, copy_space, len);
		left -= len;
	}
	return status;
}

static int write_journal(struct commit *commit)
{
	struct commit_plan *plan = &commit->plan;
	SP_AUTO_CLOSE int fd = make_file(commit, "journal.new");
	struct commit_head head;
	int status = fd;

	sp_assert(plan->text);
	for (uint32_t i = 0; i < plan->count; i++)
		commit_plan_record(plan, i)->flags = 0;
	head = commit_journal_head(plan->text + sizeof(head), plan->used - sizeof(head),
				   plan->count);
	memcpy(plan->text, &head, sizeof(head));
	if (status >= 0)
		status = write_out(commit, fd, plan->text, plan->used);
	return status < 0 ? status : (int)RAW1(SYS_fsync, fd);
}

static int stage(struct commit *commit)
{
	int status = (int)RAW3(SYS_mkdirat, commit->base_fd, COMMIT_DIR, S_IRWXU);

	commit->job->stage = "stage";
	if (status < 0)
		return status;
	commit->stage_fd =
		commit_open_own(commit, commit->base_fd, COMMIT_DIR, O_RDONLY | O_DIRECTORY);
	if (commit->stage_fd < 0)
		return commit->stage_fd;
	status = (int)RAW3(SYS_mkdirat, commit->stage_fd, "new", S_IRWXU);
	if (status < 0)
		return status;
	commit->new_fd = commit_open_own(commit, commit->stage_fd, "new", O_PATH | O_DIRECTORY);
	if (commit->new_fd < 0)
		return commit->new_fd;
	status = begin_links(commit);
	if (status < 0)
		return status;
	for (uint32_t i = 1; status == 0 && i < commit->plan.count; i++)
		status = stage_record(commit, i);
	if (status == 0)
		status = reserve_room(commit);
	if (status == 0)
		status = write_journal(commit);
	return status < 0 ? status : (int)RAW1(SYS_syncfs, commit->base_fd);
}

/* The root has a new time now, which is ours, if nobody else has changed anything in it: without
 * that it could not be tried again. Whoever does so while it is looked at gives it another one. */
static void remember_root(struct commit *commit)
{
	struct sp_init_file_info info = {0};

	if (file_info(commit->base_fd, "", &info) < 0 || commit_plan_again(commit) < 0)
		return;
	commit->freeze.root_ns = info.changed_ns;
	if (RAW3(SYS_lseek, INIT_FILE_FROZEN, 0, SEEK_SET) == 0)
		(void)RAW3(SYS_write, INIT_FILE_FROZEN, &commit->freeze, sizeof(commit->freeze));
}

static void give_up(struct commit *commit)
{
	const char *where = commit->job->stage;
	char object[SP_INIT_FILE_OBJECT];

	memcpy(object, commit->object, sizeof(object));
	if (commit->stage_fd >= 0 && commit_remove(commit) == 0)
		remember_root(commit);
	memcpy(commit->object, object, sizeof(object));
	commit->job->stage = where;
}

/* ---- the whole of it ---- */

/* From the first change of the base on. */
static int decide(struct commit *commit)
{
	int status = stage(commit);

	if (status == 0)
		status = commit_plan_again(commit);
	if (status == 0) {
		commit->job->stage = "stage";
		status = (int)RAW5(SYS_renameat2, commit->stage_fd, "journal.new", commit->stage_fd,
				   "journal", RENAME_NOREPLACE);
	}
	if (status < 0) {
		give_up(commit);
		return status;
	}
	status = (int)RAW1(SYS_fsync, commit->stage_fd);
	if (status < 0)
		return commit_fail(commit, status, SP_INIT_COMMIT_APPLY, COMMIT_DIR);
	status = commit_apply(commit, commit->plan.text, commit->plan.used);
	return status < 0 ? status : commit_clean(commit);
}

static int compare(struct commit *commit)
{
	int status = check_filesystem(commit);

	if (status == 0)
		status = check_clock(commit);
	return status < 0 ? status : commit_plan_base(commit);
}

static int open_base(struct commit *commit, int root_fd)
{
	commit->job->stage = "open";
	commit->base_fd = commit_open(root_fd, ".", O_RDONLY | O_DIRECTORY);
	return commit->base_fd < 0 ? commit->base_fd : lock_base(commit);
}

static int survey(struct commit *commit)
{
	int status = file_privilege(true);

	if (status == 0)
		status = commit_plan_upper(commit);
	return status < 0 ? status : file_privilege(false);
}

int file_write_back(struct file_job *job)
{
	struct commit commit = {
		.job = job,
		.upper_fd = INIT_FILE_UPPER,
		.stage_fd = -1,
		.new_fd = -1,
		.freeze = job->freeze,
		.counts = &job->counts,
		.object = job->object,
	};
	int status = survey(&commit);

	if (status == 0)
		status = open_base(&commit, INIT_FILE_BASE);
	if (status == 0)
		status = commit_recover(&commit);
	if (status == 0)
		status = compare(&commit);
	if (status < 0 || (commit.plan.count == 1 && commit.counts->directories == 0))
		return status; /* nothing to write back */
	return decide(&commit);
}

int file_recover(struct file_job *job)
{
	struct commit commit = {
		.job = job,
		.stage_fd = -1,
		.new_fd = -1,
		.counts = &job->counts,
		.object = job->object,
	};
	bool named = job->request->session == 0 && job->request->overlay == 0;
	SP_AUTO_CLOSE int fd =
		named ? file_open(AT_FDCWD, job->path, O_RDONLY | O_DIRECTORY) : INIT_FILE_BASE;
	int status = fd < 0 ? fd : open_base(&commit, fd);

	return status < 0 ? status : commit_recover(&commit);
}
