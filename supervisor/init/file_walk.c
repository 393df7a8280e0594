/*
 * See file_walk.h. The names of a directory are read at once, into memory that the next deeper
 * directory continues and that is given back on the way up; all that was read counts for the limit.
 * The memory is mapped for the worst case and costs what is touched of it.
 */
#include "supervisor/init/file_walk.h"

#include "pool/base/fd.h"
#include "supervisor/init/raw.h"
#include "supervisor/sandbox/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define LEVELS_MAX \
	(SP_INIT_PATH_MAX / 2 + 1) /* the top, then a name and a slash of the path each */

struct place {
	uint64_t inode;
	uint32_t major;
	uint32_t minor;
};

struct level {
	struct place place;
	uint32_t first; /* of its names */
	uint32_t count;
	uint32_t next;
	uint32_t text; /* of the names' text, before it */
	size_t path_length;
};

static struct {
	char *text;
	uint32_t text_used;
	uint32_t *names; /* where each begins in text */
	uint32_t names_used;
	uint32_t seen;
	uint32_t room; /* names that there is memory for */
	struct level levels[LEVELS_MAX];
	uint32_t deep; /* levels in use */
	_Alignas(uint64_t) char dirents[FILE_DIRENTS];
} state;

static void *reserve(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

/* Kept for the next walk. */
static bool reserve_names(uint32_t limit)
{
	if (state.room > limit)
		return true;
	state.text = reserve(((size_t)limit + 1) * (NAME_MAX + 1));
	state.names = reserve(((size_t)limit + 1) * sizeof(*state.names));
	state.room = limit + 1;
	return state.text && state.names;
}

static const char *name_at(uint32_t i)
{
	return state.text + state.names[i];
}

/* ---- order: a heap, in place ---- */

static void sift(uint32_t first, uint32_t count, uint32_t root)
{
	uint32_t *names = state.names + first;

	for (;;) {
		uint32_t child = 2 * root + 1;
		uint32_t swapped = names[root];

		if (child >= count)
			return;
		if (child + 1 < count &&
		    strcmp(name_at(first + child), name_at(first + child + 1)) < 0)
			child++;
		if (strcmp(name_at(first + root), name_at(first + child)) >= 0)
			return;
		names[root] = names[child];
		names[child] = swapped;
		root = child;
	}
}

static void sort(uint32_t first, uint32_t count)
{
	uint32_t *names = state.names + first;

	for (uint32_t i = count / 2; i-- > 0;)
		sift(first, count, i);
	for (uint32_t end = count; end-- > 1;) {
		uint32_t highest = names[0];

		names[0] = names[end];
		names[end] = highest;
		sift(first, end, 0);
	}
}

/* ---- reading ---- */

static int place_of(int fd, struct place *ret)
{
	struct statx info;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_INO, &info) != 0)
		return -errno;
	*ret = (struct place){info.stx_ino, info.stx_dev_major, info.stx_dev_minor};
	return 0;
}

static bool same_place(const struct place *one, const struct place *two)
{
	return one->inode == two->inode && one->major == two->major && one->minor == two->minor;
}

static int keep_name(const struct file_walk *walk, const char *name)
{
	size_t size = strlen(name) + 1;

	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return 0;
	if (state.seen == walk->limit) {
		walk->job->stage = "limit";
		return -E2BIG;
	}
	state.seen++;
	state.names[state.names_used++] = state.text_used;
	memcpy(state.text + state.text_used, name, size);
	state.text_used += (uint32_t)size;
	return 0;
}

static int read_names(const struct file_walk *walk, int dir_fd)
{
	for (;;) {
		long got = RAW3(SYS_getdents64, dir_fd, state.dirents, sizeof(state.dirents));
		int status = 0;

		if (got <= 0)
			return (int)got;
		file_tell(walk->job);
		for (long at = 0; status == 0 && at < got;) {
			struct file_dirent head;

			memcpy(&head, state.dirents + at, sizeof(head));
			status = keep_name(walk, state.dirents + at + sizeof(head));
			at += head.length;
		}
		if (status < 0)
			return status;
	}
}

/* One level down, into a directory that is open. */
static int enter(struct file_walk *walk, int dir_fd)
{
	struct level *level = &state.levels[state.deep];
	int status;

	sp_assert(state.deep < LEVELS_MAX);
	level->first = state.names_used;
	level->text = state.text_used;
	level->next = 0;
	level->path_length = walk->path_length;
	status = place_of(dir_fd, &level->place);
	if (status == 0)
		status = read_names(walk, dir_fd);
	level->count = state.names_used - level->first;
	state.deep++;
	if (status == 0)
		sort(level->first, level->count);
	return status;
}

/* Up, to the directory that it was entered from. */
static int leave(struct file_walk *walk, int *dir_fd)
{
	struct level *level = &state.levels[--state.deep];
	struct place above = {0};
	int up_fd;
	int status = walk->leaving ? walk->leaving(walk, *dir_fd, state.deep == 0) : 0;

	state.names_used = level->first;
	state.text_used = level->text;
	if (status < 0 || state.deep == 0)
		return status;
	up_fd = file_open(*dir_fd, "..", O_RDONLY | O_DIRECTORY);
	if (up_fd < 0)
		return up_fd;
	sp_fd_close(dir_fd);
	*dir_fd = up_fd;
	status = place_of(up_fd, &above);
	if (status < 0)
		return status;
	walk->job->stage = "moved";
	if (!same_place(&above, &state.levels[state.deep - 1].place))
		return -ESTALE;
	walk->job->stage = "walk";
	return 0;
}

static int append_name(struct file_walk *walk, const char *name)
{
	size_t at = state.levels[state.deep - 1].path_length;
	size_t len = strlen(name);

	if (at + (at > 0) + len > walk->path_limit) {
		walk->job->stage = "path";
		return -E2BIG;
	}
	if (at > 0)
		walk->path[at++] = '/';
	memcpy(walk->path + at, name, len + 1);
	walk->path_length = at + len;
	return 0;
}

/* Gone, another kind by now, or not for who asks. */
static bool passed_over(int status)
{
	return status == -ENOENT || status == -ENOTDIR || status == -ELOOP || status == -EACCES;
}

/* 1: it is open, in *ret_fd. 0: it is left out. */
static int open_below(struct file_walk *walk, int dir_fd, const char *name, int *ret_fd)
{
	const uint64_t inside = walk->whole ? RESOLVE_NO_XDEV : 0;
	SP_AUTO_CLOSE int fd =
		sp_sys_openat2(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK, 0,
			       RESOLVE_NO_MAGICLINKS | inside);
	struct sp_init_file_info above;
	int status = fd < 0 ? fd : file_not_pseudo(fd);

	/* What may be read but not searched: there would be no way back. */
	if (status == 0)
		status = file_info(fd, "..", &above);
	if (status < 0) {
		bool skip = passed_over(status) || status == -EOPNOTSUPP;

		return skip && !walk->whole ? 0 : status;
	}
	*ret_fd = sp_take_fd(&fd);
	return 1;
}

static int descend(struct file_walk *walk, int *dir_fd, const char *name)
{
	int below_fd = -1;
	int status = open_below(walk, *dir_fd, name, &below_fd);

	if (status <= 0)
		return status;
	sp_fd_close(dir_fd);
	*dir_fd = below_fd;
	status = walk->entered ? walk->entered(walk, name) : 0;
	return status < 0 ? status : enter(walk, below_fd);
}

static int step(struct file_walk *walk, int *dir_fd, struct level *level)
{
	const char *name = name_at(level->first + level->next++);
	struct sp_init_file_info info;
	int status = append_name(walk, name);

	if (status < 0)
		return status;
	file_tell(walk->job);
	status = file_info(*dir_fd, name, &info);
	if (status < 0)
		return passed_over(status) && !walk->whole ? 0 : status;
	status = walk->entry(walk, *dir_fd, name, &info);
	if (status != 0 || info.type != SP_INIT_FILE_DIR || state.deep >= walk->depth)
		return SP_MIN(status, 0);
	return descend(walk, dir_fd, name);
}

int file_walk(struct file_walk *walk, int dir_fd)
{
	SP_AUTO_CLOSE int fd = dir_fd;
	int status;

	if (!reserve_names(walk->limit))
		return -ENOMEM;
	state.seen = 0;
	state.deep = 0;
	state.names_used = 0;
	state.text_used = 0;
	walk->path_length = 0;
	walk->job->stage = "walk";
	status = enter(walk, fd);
	while (status == 0 && state.deep > 0) {
		struct level *level = &state.levels[state.deep - 1];

		status = level->next < level->count ? step(walk, &fd, level) : leave(walk, &fd);
	}
	return status;
}
