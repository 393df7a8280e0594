/*
 * The helper itself: a fork of PID 1, with its own memory, that confines itself, does what one FILE
 * record asks, says RESULT and exits. Its memory is a copy of init's and nobody else's, so libc may
 * be used.
 */
#ifndef SP_INIT_FILE_HELPER_H
#define SP_INIT_FILE_HELPER_H

#include "supervisor/init/init.h"
#include "supervisor/init/overlay.h"

#include <limits.h>

#define INIT_FILE_ID      65533u /* its ids but the file system ones: nobody else's */
#define INIT_FILE_CHANNEL 0      /* descriptor; there is no other at the start, but for DIFF … */

#define INIT_FILE_UPPER        1 /* … the upper directory, */
#define INIT_FILE_ARCHIVE      2 /* a nameless file for writing, */
#define INIT_FILE_ARCHIVE_READ 3 /* and for reading; and for a commit … */

#define INIT_FILE_BASE   2 /* … the base beside the upper, */
#define INIT_FILE_FROZEN 3 /* and what is known of when that was frozen */

#define CALL_FCHMODAT2 452 /* newer than the headers; the same everywhere */

/* What is being done. */
struct file_job {
	const struct sp_init_file *request;
	const char *path;
	const char *to;        /* MOVE */
	const char *stage;     /* where it went wrong */
	const char *temporary; /* name of what is half done, nobody else's */
	int temporary_fd;      /* the directory where it is; -1: there is none */
	uint32_t made;         /* the first component of the path that was missing and made */
	int64_t told_ms;

	/* of overlays */
	struct init_freeze freeze;
	struct sp_init_file_counts counts;
	char object[SP_INIT_FILE_OBJECT]; /* of what is wrong */
};

/* getdents64(2); the name follows at once. */
struct file_dirent {
	uint64_t inode;
	int64_t offset;
	uint16_t length;
	uint8_t type;
} __attribute__((packed));

#define FILE_DIRENTS 32768u /* room for those that one call brings */

/* Entry of the child. channel_fd -1: only remove the temporary file that `serial` names. */
SP_NORETURN void init_file_helper(struct init *init, const struct sp_init_file *request,
				  int channel_fd, uint64_t serial);

/* ---- file_helper.c: the channel ---- */

/* Call now and then, from every loop: puts off the end of the helper's time, and sandpoold's. */
void file_tell(struct file_job *job);
/* A whole record, waiting for room. The other end is gone: exits. */
void file_send(const void *record, size_t len, int fd);
/* The next record from sandpoold: its length. 0: the upload was given up. */
ssize_t file_receive(void *record, size_t size);

/* The capability to give files away, for the one call that needs it; see file_own(). */
int file_privilege(bool wanted);
/* Both filters in one: the calls of these files, and no others. */
int file_filter_load(void);

/* ---- file_path.c ---- */

/* A name in a directory: what is made, replaced or removed is named by this. */
struct file_name {
	int dir_fd; /* O_PATH */
	char name[NAME_MAX + 1];
};

/* openat2(2) with links followed but magic ones; O_CLOEXEC, O_NONBLOCK and O_NOCTTY are added. */
int file_open(int dir_fd, const char *path, int flags);
/* The directory of the last component of `path`; make: with the parents that are missing. -EISDIR:
 * the path has no last component that names something in it ("/", "x/.."). */
int file_parent(struct file_job *job, const char *path, bool make, struct file_name *ret);
/* The same of where the last component leads if it is a link, however often. */
int file_destination(struct file_job *job, const char *path, bool make, struct file_name *ret);
/* The path's directories that were made get their owner: when nothing more is made in them. */
int file_own_made(struct file_job *job);
/* A directory and its missing parents. One that is there already is taken as it is. */
int file_make_directories(struct file_job *job, mode_t mode);
/* Owner and group as the request says, of what belongs to who asks. */
int file_own(struct file_job *job, int fd);
/* Would that go well? Leaves it as it is. */
int file_try_own(struct file_job *job, int fd);
/* A mode, of an O_PATH descriptor as well. */
int file_mode(int fd, mode_t mode);
int file_info(int dir_fd, const char *name, struct sp_init_file_info *ret);
/* -EOPNOTSUPP: on a file system of the kernel's own. */
int file_not_pseudo(int fd);
/* The deepest directory on the way to `path` that is there: its O_PATH descriptor. */
int file_nearest(const char *path);
/* Remove the temporary file in every directory on the way to `path`. */
void file_sweep(const struct file_job *job, const char *path);

/* ---- file_closed.c ---- */

/* Open the directories on the way that their owner, who asks, has closed. False: there are none. */
bool file_open_closed(const struct file_job *job);
void file_close_opened(void);

/* A file to write to, in that directory: nameless where the file system can do that, so that
 * nothing is left of it if everything ends here and now. */
int file_temporary_open(struct file_job *job, int dir_fd);
/* It gets its name; replace: whatever has that goes. After an error it may have its temporary one,
 * in job->temporary_fd. */
int file_temporary_publish(struct file_job *job, int fd, const struct file_name *name,
			   bool replace);
void file_temporary_drop(struct file_job *job);

/* ---- file_*.c: one function an operation; 0 or negative errno ---- */

int file_stat(struct file_job *job, struct sp_init_file_info *ret);
/* Says what the account files are. */
void file_tell_accounts(void);
int file_read(struct file_job *job, struct sp_init_file_info *ret, int *ret_fd);
int file_list(struct file_job *job);
int file_mkdir(struct file_job *job);
int file_remove(struct file_job *job);
int file_move(struct file_job *job);
int file_change(struct file_job *job);
int file_write(struct file_job *job);
int file_connect(struct file_job *job, int *ret_fd);
int file_diff(struct file_job *job, struct sp_init_file_info *ret, int *ret_fd);
int file_used(struct sp_init_file_info *ret);
int file_write_back(struct file_job *job);
int file_recover(struct file_job *job);

/* ---- file_overlay.c: with init's own rights ---- */

/* The descriptors that a job of an overlay starts with: their number. */
int file_overlay_open(struct file_job *job);
/* All that runs where it is mounted is dead and reaped. */
int file_overlay_end(struct file_job *job);
int file_renew(struct file_job *job);
/* A tree, or whatever else; links not followed. */
int file_remove_tree(struct file_job *job, const struct file_name *name);
/* Across mounts: what rename(2) cannot. */
int file_move_copy(struct file_job *job, const struct file_name *from, const struct file_name *to);

#endif
