/*
 * A commit: the changes of an overlay go to its base, all of them or none, also if everything ends
 * at any moment.
 *
 *	plan      the upper is walked: one record for each path (commit_plan.c)
 *	compare   the base is walked: nobody has changed it since it was frozen, and the workload
 *	          may do there what the plan says; what an opaque directory hides joins the plan
 *	stage     copies of all that is new, in COMMIT_DIR/new of the base; the journal beside it;
 *	          everything to the disk; compared again
 *	── rename of the journal: it is decided ──
 *	apply     each record, from the first: the staged copy is moved, the deleted goes
 *	          (commit_apply.c); to the disk; the journal goes, then COMMIT_DIR
 *
 * Before the decision whatever went wrong leaves the base as it was. After it, a base with a
 * journal is completed by whoever opens it next (RECOVER), which is "apply" once more.
 *
 * What the base gets belongs to the workload, as if it had made it there: nothing is done with
 * another's rights but reading the upper, whose files their owner may have closed. Modes without
 * set-id bits, times of files and the names of one file (hard links) are kept, extended attributes
 * are not. All names of the base are resolved below it, and no link is followed.
 *
 * COMMIT_DIR is the workload's and closed to all others. One that others can have written to is
 * nobody's commit: its journal would be done with the rights of whom the base is opened for.
 *
 * A lock (flock) of the base's root keeps commits and recoveries of one base apart.
 */
#ifndef SP_INIT_FILE_COMMIT_H
#define SP_INIT_FILE_COMMIT_H

#include "supervisor/init/commit_journal.h"
#include "supervisor/init/file_walk.h"
#include "supervisor/init/overlay.h"

/* commit_record.flags, in memory */
#define PLAN_FOUND  0x01u /* the base has something there */
#define PLAN_KEPT   0x02u /* DIRECTORY: and it is one */
#define PLAN_OPAQUE 0x04u /* DIRECTORY: of what is in that one, nothing stays */
#define PLAN_SHUT   0x08u /* DIRECTORY: the workload may not write there */
#define PLAN_LINK   0x10u /* PLACE: no file but a symbolic link … */
#define PLAN_FIFO   0x20u /* … a FIFO */
#define PLAN_APART  0x40u /* DIRECTORY: on another device, where nothing can be moved to */

struct commit_plan {
	char *text; /* room for a commit_head, then the records */
	size_t used;
	uint32_t *starts; /* of each record, in text */
	uint32_t count;
};

/* A file of the upper with several names: the record that it was staged for; 0: free. */
struct commit_link {
	uint64_t inode;
	uint32_t number;
};

struct commit {
	struct file_job *job;
	struct commit_plan plan;
	int upper_fd;
	int base_fd; /* the root of the base, readable */
	int stage_fd;
	int new_fd;
	struct init_freeze freeze;
	uint64_t base_entries;
	uint64_t base_device;
	struct commit_link *links; /* a hash, twice as large as the plan */
	size_t links_mask;
	struct sp_init_file_counts *counts;
	char *object; /* SP_INIT_FILE_OBJECT bytes: what it is about */
};

/* Where it went wrong; returns `status`. */
int commit_fail(struct commit *commit, int status, const char *stage, const char *path);

/* ---- commit_plan.c ---- */

struct commit_record *commit_plan_record(const struct commit_plan *plan, uint32_t number);
const char *commit_plan_path(const struct commit_plan *plan, uint32_t number);
int commit_plan_upper(struct commit *commit);
/* Adds to the plan and counts. Once. */
int commit_plan_base(struct commit *commit);
/* Nobody has changed it since then; after that, and with COMMIT_DIR in it. */
int commit_plan_again(struct commit *commit);

/* ---- commit_apply.c ---- */

/* One component or path below the base, no links. */
int commit_open(int dir_fd, const char *path, int flags);
/* COMMIT_DIR, or what is in it. -EBADMSG: it is not the workload's alone. */
int commit_open_own(const struct commit *commit, int dir_fd, const char *name, int flags);
/* All of it, as often as one likes. commit: base_fd, stage_fd, new_fd; `data` is a journal. */
int commit_apply(struct commit *commit, const void *data, size_t len);
/* COMMIT_DIR goes, with what commits make in it and nothing else. */
int commit_remove(struct commit *commit);
/* It is done and on the disk: the journal goes first. */
int commit_clean(struct commit *commit);
/* What an earlier one left. base_fd must be locked. 0 also if there is nothing. */
int commit_recover(struct commit *commit);

#endif
