/*
 * Ranges of host ids, one a sandbox: of 65,536, or as many as an ordinary user can afford.
 *
 * The ranges in use on a host are locked in files that all instances share: byte range
 * [first id, first id behind), by an open-file-description lock (fcntl(2), F_OFD_SETLK). The
 * description travels with the sandbox, so a range stays taken until the launcher has let go of it
 * and every process that inherited it is dead, and the kernel frees it whoever crashes.
 *
 * The kernel keeps the locks of a file in a list and goes through it at each lock and at each close
 * of a descriptor, of which a sandbox sees seven: with 800 in one list that was 0.4 ms of each
 * creation. So ranges of 65,536, which begin at a multiple of that, are spread over
 * SP_UID_SLOTS_FILES files by their number; others, of which there are few, share the first.
 */
#ifndef SP_SANDBOX_UID_SLOTS_H
#define SP_SANDBOX_UID_SLOTS_H

#include "pool/base/err.h"

#define SP_UID_SLOT_IDS    65536u
#define SP_UID_SLOTS_MAX   20000u
#define SP_UID_SLOTS_FILE  "uid-slots.lock" /* the first; the others' names go on with ".1" … */
#define SP_UID_SLOTS_FILES 128u

struct sp_uid_slots {
	int dir_fd; /* where the lock file is; borrowed */
	uint32_t base;
	uint32_t ids; /* of one slot */
	uint32_t count;
	uint32_t next;                            /* where to search first: least recently used */
	uint64_t used[SP_UID_SLOTS_MAX / 64 + 1]; /* ours, from take to give */
};

/* base: first id of slot 0; ids: of each of the count slots. The first lock file is created if
 * missing. */
int sp_uid_slots_init(struct sp_uid_slots *slots, int dir_fd, uint32_t base, uint32_t ids,
		      uint32_t count, struct sp_err *err);

/* Lock a free slot. *ret_fd holds the lock and is the caller's. -EAGAIN when all are taken. */
int sp_uid_slots_take(struct sp_uid_slots *slots, uint32_t *ret_slot, int *ret_fd,
		      struct sp_err *err);

/* We are done with the slot; whoever still holds its lock keeps it from being taken. */
void sp_uid_slots_give(struct sp_uid_slots *slots, uint32_t slot);

/* First host id of a slot. */
uint32_t sp_uid_slots_base(const struct sp_uid_slots *slots, uint32_t slot);

/* Remove the lock files. Only when nobody uses them: two of one name would lock nothing. */
void sp_uid_slots_remove(int dir_fd);

#endif
