/*
 * A walk over a tree, in the order of its names, each directory before what is in it. Links are
 * entries and never entered; neither are the kernel's own file systems, nor what may not be read.
 *
 * One directory is open at a time: the way back is "..", checked to be where it came from. Nothing
 * recurses; what is remembered are the names beside the way down.
 */
#ifndef SP_INIT_FILE_WALK_H
#define SP_INIT_FILE_WALK_H

#include "supervisor/init/file_helper.h"

struct file_walk {
	struct file_job *job;
	uint32_t depth;    /* levels; 1: the directory's own entries */
	uint32_t limit;    /* entries; -E2BIG beyond */
	size_t path_limit; /* longest path, without NUL; -E2BIG beyond */
	bool whole;        /* nothing may be left out (-EACCES), no other mount (-EXDEV) */
	/* Each returns 0 or what ends the walk; `entry` also 1: it is not entered. `path` is
	 * relative to the top. */
	int (*entry)(struct file_walk *walk, int dir_fd, const char *name,
		     const struct sp_init_file_info *info);
	/* May be NULL: a directory below the top was opened; one has been walked through. */
	int (*entered)(struct file_walk *walk, const char *name);
	int (*leaving)(struct file_walk *walk, int dir_fd, bool top);

	/* the walk's own */
	char path[SP_INIT_PATH_MAX]; /* of the entry */
	size_t path_length;
};

/* dir_fd: open for reading; taken. One walk at a time. */
int file_walk(struct file_walk *walk, int dir_fd);

#endif
