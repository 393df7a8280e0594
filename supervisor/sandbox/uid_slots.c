/*
 * Takes and gives ranges of ids. The bitmap only saves system calls for what this process knows is
 * taken; the lock in the file decides.
 */
#include "supervisor/sandbox/uid_slots.h"

#include "pool/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NAME_SPACE 32

static void file_name(char *name, uint32_t file)
{
	if (file == 0)
		(void)snprintf(name, NAME_SPACE, "%s", SP_UID_SLOTS_FILE);
	else
		(void)snprintf(name, NAME_SPACE, "%s.%" PRIu32, SP_UID_SLOTS_FILE, file);
}

static int open_lock_file(int dir_fd, uint32_t file)
{
	char name[NAME_SPACE];
	int fd;

	file_name(name, file);
	fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	return fd < 0 ? -errno : fd;
}

uint32_t sp_uid_slots_base(const struct sp_uid_slots *slots, uint32_t slot)
{
	return slots->base + slot * slots->ids;
}

/* The same for every instance that could want one of these ids. */
static uint32_t file_of(const struct sp_uid_slots *slots, uint32_t slot)
{
	uint32_t first = sp_uid_slots_base(slots, slot);

	if (slots->ids != SP_UID_SLOT_IDS || first % SP_UID_SLOT_IDS != 0)
		return 0;
	return first / SP_UID_SLOT_IDS % SP_UID_SLOTS_FILES;
}

int sp_uid_slots_init(struct sp_uid_slots *slots, int dir_fd, uint32_t base, uint32_t ids,
		      uint32_t count, struct sp_err *err)
{
	SP_AUTO_CLOSE int fd = open_lock_file(dir_fd, 0);

	if (fd < 0)
		return sp_err_set(err, fd, "open '%s'", SP_UID_SLOTS_FILE);
	sp_assert(count <= SP_UID_SLOTS_MAX);
	memset(slots, 0, sizeof(*slots));
	slots->dir_fd = dir_fd;
	slots->base = base;
	slots->ids = ids;
	slots->count = count;
	return 0;
}

static bool is_used(const struct sp_uid_slots *slots, uint32_t slot)
{
	return (slots->used[slot / 64] >> (slot % 64) & 1) != 0;
}

static int lock_range(int fd, uint32_t first, uint32_t count)
{
	struct flock range = {
		.l_type = F_WRLCK,
		.l_whence = SEEK_SET,
		.l_start = first,
		.l_len = count,
	};

	return fcntl(fd, F_OFD_SETLK, &range) < 0 ? -errno : 0;
}

int sp_uid_slots_take(struct sp_uid_slots *slots, uint32_t *ret_slot, int *ret_fd,
		      struct sp_err *err)
{
	for (uint32_t i = 0; i < slots->count; i++) {
		uint32_t slot = (slots->next + i) % slots->count;
		SP_AUTO_CLOSE int fd = -1;
		int status;

		if (is_used(slots, slot))
			continue;
		fd = open_lock_file(slots->dir_fd, file_of(slots, slot));
		if (fd < 0)
			return sp_err_set(err, fd, "open the lock file of uid slot %u", slot);
		status = lock_range(fd, sp_uid_slots_base(slots, slot), slots->ids);
		if (status == -EAGAIN || status == -EACCES)
			continue;
		if (status < 0)
			return sp_err_set(err, status, "lock uid slot %u", slot);
		slots->used[slot / 64] |= UINT64_C(1) << (slot % 64);
		slots->next = (slot + 1) % slots->count;
		*ret_slot = slot;
		*ret_fd = sp_take_fd(&fd);
		return 0;
	}
	return sp_err_set(err, -EAGAIN, "take one of %u uid slots", slots->count);
}

void sp_uid_slots_give(struct sp_uid_slots *slots, uint32_t slot)
{
	sp_assert(slot < slots->count && is_used(slots, slot));
	slots->used[slot / 64] &= ~(UINT64_C(1) << (slot % 64));
}

void sp_uid_slots_remove(int dir_fd)
{
	char name[NAME_SPACE];

	for (uint32_t file = 0; file < SP_UID_SLOTS_FILES; file++) {
		file_name(name, file);
		(void)unlinkat(dir_fd, name, 0);
	}
}
