/*
 * Files and ports inside a held sandbox: what the interfaces may ask beside service.h.
 *
 * Every path is resolved inside the sandbox, by a helper that init forks there: in the sandbox's
 * namespaces, with the ids of the workload for the file system (fsuid, fsgid) and no capability, so
 * the kernel decides about permissions, mounts, overlays and whiteouts exactly as it does for the
 * workload. No path of the host is ever built from a client's text, and nothing here can name one.
 *
 * What comes back is the sandbox's word and trusted with nothing: names may be any bytes without
 * NUL and '/', sizes may be lies, a file may change while it is read.
 *
 * Rules as in service.h: each callback exactly once, never before the starting call has returned,
 * not after the cancel; all calls on the loop thread. Bounds: at most SP_FILE_OPS_MAX operations at
 * once in one sandbox (TOO_MANY beyond), a path of at most SP_FILE_PATH_MAX bytes with NUL, one
 * that makes no progress for SP_FILE_STALL_MS ends with UNAVAILABLE. Paths are absolute ("/…").
 *
 * Errors, err->code: NOT_FOUND (no such sandbox, or not the caller's), FILE_NOT_FOUND, FILE_EXISTS,
 * FILE_KIND (a directory, device, FIFO or link where a regular file is meant, or the other way
 * round, or a file of the kernel's own as in /proc), FILE_DENIED (EACCES, EPERM, EROFS, EBUSY: a
 * mount point), FILE_FULL (ENOSPC, EDQUOT, EFBIG), TOO_MANY, INVALID_ARGUMENT (also ENAMETOOLONG
 * and ids that are not mapped), UNSUPPORTED (a move across mounts of what can be no copy), CONFLICT
 * (it is paused), LEASE_ENDED, SANDBOX_DEAD, UNAVAILABLE. err->status has the errno. The message
 * names the path.
 */
#ifndef SP_DAEMON_FILES_H
#define SP_DAEMON_FILES_H

#include "supervisor/daemon/service.h"

#define SP_FILE_PATH_MAX       4096u
#define SP_FILE_OPS_MAX        32u
#define SP_FILE_STALL_MS       (30 * SP_MS_PER_S)
#define SP_FILE_LIST_MAX       100000u /* entries of one listing or search; TOO_MANY beyond */
#define SP_FILE_LIST_BYTES_MAX (64u * 1024 * 1024) /* of their paths in all; TOO_MANY beyond */
#define SP_FILE_WRITE_MAX      (256u * 1024) /* bytes of one upload that may wait in the daemon */

enum sp_file_type { SP_FILE_REGULAR, SP_FILE_DIRECTORY, SP_FILE_SYMLINK, SP_FILE_OTHER };

struct sp_file_info {
	enum sp_file_type type;
	uint32_t mode; /* permission bits only, set-id bits included */
	uint32_t uid;  /* inside */
	uint32_t gid;
	uint64_t size;
	uint64_t inode;
	int64_t modified_ns; /* since 1970 */
	int64_t changed_ns;
};

/* Where and as whom. */
struct sp_file_place {
	const char *sandbox; /* id */
	uint32_t session;    /* isolated session inside it; 0 = the sandbox itself */
	uint32_t overlay;    /* of the sandbox itself, from 1; 0 = the session's. Of what is about
			      * overlays only */
	int64_t uid;         /* -1 = the pool's workload */
	int64_t gid;
	/* Of a stat or a listing: told before anything else what /etc/passwd and /etc/group are
	 * there at that moment; inode 0: there is none. The owner may cancel in it. NULL: not
	 * wanted. */
	void (*accounts)(void *accounts_arg, const struct sp_file_info *users,
			 const struct sp_file_info *groups);
	void *accounts_arg;
};

struct sp_file_op;

/* info is lstat(2)'s: a link is not followed. */
typedef void sp_file_stat_cb(void *arg, const struct sp_file_info *info, const struct sp_err *err);
int sp_file_stat(struct sp_service *service, const struct sp_caller *caller,
		 const struct sp_file_place *place, const char *path, sp_file_stat_cb *cb,
		 void *arg, struct sp_file_op **ret_op, struct sp_err *err);

/* A regular file, open for reading, not seekable beyond what pread(2) does; the fd is the callee's.
 * It is on no pseudo file system. Links in the path are followed, inside. */
typedef void sp_file_open_cb(void *arg, int fd, const struct sp_file_info *info,
			     const struct sp_err *err);
int sp_file_open(struct sp_service *service, const struct sp_caller *caller,
		 const struct sp_file_place *place, const char *path, sp_file_open_cb *cb,
		 void *arg, struct sp_file_op **ret_op, struct sp_err *err);

/* What an overlay has changed: a tar.gz, a layer as OCI has it, in a file that is the overlay's to
 * hold (FILE_FULL). FILE_KIND: the session has none. */
int sp_file_diff(struct sp_service *service, const struct sp_caller *caller,
		 const struct sp_file_place *place, sp_file_open_cb *cb, void *arg,
		 struct sp_file_op **ret_op, struct sp_err *err);

/* What the upper of an overlay holds: info->size, in bytes. */
int sp_file_used(struct sp_service *service, const struct sp_caller *caller,
		 const struct sp_file_place *place, sp_file_stat_cb *cb, void *arg,
		 struct sp_file_op **ret_op, struct sp_err *err);

#define SP_FILE_COMMIT_MAX 100000u /* changes of one commit; TOO_MANY beyond */

struct sp_file_counts {
	uint64_t files; /* all that are no directories */
	uint64_t directories;
	uint64_t deleted;
	uint64_t bytes;
};

/*
 * A commit: what an overlay has changed goes to its base, all of it or nothing. What runs where the
 * overlay is mounted is killed first; that nothing new comes is up to the caller. Beside the
 * ordinary errors: CONFLICT (somebody else has changed the base, or nobody can tell), UNSUPPORTED
 * (the base is on a file system where that does not show). err NULL: counts.
 */
typedef void sp_file_write_back_cb(void *arg, const struct sp_file_counts *counts,
				   const struct sp_err *err);
int sp_file_write_back(struct sp_service *service, const struct sp_caller *caller,
		       const struct sp_file_place *place, sp_file_write_back_cb *cb, void *arg,
		       struct sp_file_op **ret_op, struct sp_err *err);

/* Entries below a directory, in the order of strcmp(3) of their paths with children right after
 * their parent; links are reported and never entered, nor is what the workload may not read or what
 * is the kernel's own (proc), the root is no link (FILE_KIND). depth 1 =
 * its own entries, 0 = nothing, UINT32_MAX = all. `path` of an entry is absolute; both are
 * borrowed. */
struct sp_file_list_events {
	void (*entry)(void *arg, const char *path, const struct sp_file_info *info);
	void (*done)(void *arg, const struct sp_err *err); /* NULL: all of it was there */
};

int sp_file_list(struct sp_service *service, const struct sp_caller *caller,
		 const struct sp_file_place *place, const char *path, uint32_t depth,
		 const struct sp_file_list_events *events, void *arg, struct sp_file_op **ret_op,
		 struct sp_err *err);

typedef void sp_file_done_cb(void *arg, const struct sp_err *err); /* NULL: done */

/* After a commit: the overlay goes on with an empty upper, on the base as it is now. What runs
 * where it is mounted is killed; unused: nothing is, the overlay has just been made. */
int sp_file_renew(struct sp_service *service, const struct sp_caller *caller,
		  const struct sp_file_place *place, bool unused, sp_file_done_cb *cb, void *arg,
		  struct sp_file_op **ret_op, struct sp_err *err);
/* A commit that was cut off is completed, or forgotten: in the base of place's overlay, where
 * nothing may have begun, or, if path is not NULL, in that directory. */
int sp_file_recover(struct sp_service *service, const struct sp_caller *caller,
		    const struct sp_file_place *place, const char *path, sp_file_done_cb *cb,
		    void *arg, struct sp_file_op **ret_op, struct sp_err *err);

#define SP_FILE_KEEP UINT32_MAX /* of a mode, uid or gid: leave it as it is */

/* One directory, with its missing parents (0755, owned like it); one that is there is left alone
 * and is no error. */
int sp_file_mkdir(struct sp_service *service, const struct sp_caller *caller,
		  const struct sp_file_place *place, const char *path, uint32_t mode, uint32_t uid,
		  uint32_t gid, sp_file_done_cb *cb, void *arg, struct sp_file_op **ret_op,
		  struct sp_err *err);
/* recursive: a whole tree, links not followed; else anything but a directory. FILE_NOT_FOUND if
 * nothing is there. */
int sp_file_remove(struct sp_service *service, const struct sp_caller *caller,
		   const struct sp_file_place *place, const char *path, bool recursive,
		   sp_file_done_cb *cb, void *arg, struct sp_file_op **ret_op, struct sp_err *err);
/* Missing parents of `to` are made (0755). replace false: FILE_EXISTS if `to` is there. */
int sp_file_move(struct sp_service *service, const struct sp_caller *caller,
		 const struct sp_file_place *place, const char *from, const char *to, bool replace,
		 sp_file_done_cb *cb, void *arg, struct sp_file_op **ret_op, struct sp_err *err);
/* Each may be SP_FILE_KEEP. Set-id bits are refused (INVALID_ARGUMENT). Ids other than the
 * workload's are what the kernel lets nobody but root do: init does it, for files that belong to
 * the workload, and only to ids that are mapped. */
int sp_file_change(struct sp_service *service, const struct sp_caller *caller,
		   const struct sp_file_place *place, const char *path, uint32_t mode, uint32_t uid,
		   uint32_t gid, sp_file_done_cb *cb, void *arg, struct sp_file_op **ret_op,
		   struct sp_err *err);

/*
 * A file's whole content, replaced at once: who reads sees the old or the new one, never a part; an
 * upload that ends early leaves nothing behind. Missing parents are made (0755, owned like the
 * file); an existing file keeps its mode and owner where SP_FILE_KEEP says so, a new one has 0644.
 *
 * The data is written by the helper inside, so its pages are charged to the sandbox.
 */
struct sp_file_write; /* ends with done, or with cancel */

struct sp_file_write_events {
	void (*drained)(void *arg); /* SP_FILE_WRITE_MAX is free again */
	void (*done)(void *arg,
		     const struct sp_err *err); /* last; also before commit, on failure */
};

int sp_file_write_open(struct sp_service *service, const struct sp_caller *caller,
		       const struct sp_file_place *place, const char *path, uint32_t mode,
		       uint32_t uid, uint32_t gid, const struct sp_file_write_events *events,
		       void *arg, struct sp_file_write **ret_write, struct sp_err *err);
/* Copies as much as there is room for and returns how much: less than len means wait for drained.
 */
size_t sp_file_write_data(struct sp_file_write *write, const void *data, size_t len);
void sp_file_write_commit(struct sp_file_write *write);
void sp_file_write_cancel(struct sp_file_write *write); /* no event after this */

/* A connected stream socket to 127.0.0.1:port of the sandbox's network; the fd is the callee's,
 * non-blocking. CONNECT_FAILED if nobody listens there. The inside may hold the same open file and
 * change its flags: use MSG_DONTWAIT where a wait would matter, and sp_fd_discard() to close. */
typedef void sp_port_connect_cb(void *arg, int fd, const struct sp_err *err);
int sp_port_connect(struct sp_service *service, const struct sp_caller *caller,
		    const struct sp_file_place *place, uint16_t port, sp_port_connect_cb *cb,
		    void *arg, struct sp_file_op **ret_op, struct sp_err *err);

/* No callback after this; what was half done inside is ended. */
void sp_file_op_cancel(struct sp_file_op *op);

#endif
