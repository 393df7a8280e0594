/*
 * Ranges of host ids: what one instance holds no other gets, in whatever file the lock is.
 */
#include "supervisor/sandbox/uid_slots.h"

#include "pool/base/fd.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define BASE  (SP_UID_SLOT_IDS * 1000u)
#define COUNT 4u

static char path[] = "/tmp/sandpool-uid-slots-XXXXXX";
static int dir_fd = -1;

static void set_up(void)
{
	cr_assert(mkdtemp(path) != NULL);
	dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert(dir_fd >= 0);
}

static unsigned int files(void)
{
	DIR *dir = opendir(path);
	unsigned int count = 0;
	struct dirent *entry;

	cr_assert(dir != NULL);
	while ((entry = readdir(dir)) != NULL)
		if (entry->d_name[0] != '.')
			count++;
	(void)closedir(dir);
	return count;
}

static void tear_down(void)
{
	sp_uid_slots_remove(dir_fd);
	cr_assert_eq(files(), 0u, "all of them are removed");
	sp_fd_close(&dir_fd);
	(void)rmdir(path);
}

TestSuite(uid_slots, .init = set_up, .fini = tear_down);

static void open_slots(struct sp_uid_slots *slots, uint32_t base, uint32_t ids, uint32_t count)
{
	struct sp_err err = {0};

	cr_assert(sp_uid_slots_init(slots, dir_fd, base, ids, count, &err) == 0, "%s", err.message);
}

/* The first id, or 0 when all are taken. *ret_fd holds it. */
static uint32_t take(struct sp_uid_slots *slots, uint32_t *ret_slot, int *ret_fd)
{
	struct sp_err err = {0};
	int status = sp_uid_slots_take(slots, ret_slot, ret_fd, &err);

	cr_assert(status == 0 || status == -EAGAIN, "%s", err.message);
	return status == 0 ? sp_uid_slots_base(slots, *ret_slot) : 0;
}

Test(uid_slots, what_one_instance_holds_no_other_gets)
{
	static struct sp_uid_slots first;
	static struct sp_uid_slots second;
	uint32_t slot;
	int fds[COUNT];
	int fd;

	open_slots(&first, BASE, SP_UID_SLOT_IDS, COUNT);
	open_slots(&second, BASE + 2 * SP_UID_SLOT_IDS, SP_UID_SLOT_IDS, COUNT);
	for (uint32_t i = 0; i < COUNT; i++)
		cr_assert_eq(take(&first, &slot, &fds[i]), BASE + i * SP_UID_SLOT_IDS);
	cr_assert_eq(take(&first, &slot, &fd), 0u, "one more than there are");
	cr_assert_eq(take(&second, &slot, &fd), BASE + 4 * SP_UID_SLOT_IDS);
	cr_assert_eq(take(&second, &slot, &fd), BASE + 5 * SP_UID_SLOT_IDS);
	cr_assert_eq(take(&second, &slot, &fd), 0u, "the rest is the first one's");
	sp_fd_close(&fds[2]);
	cr_assert_eq(take(&second, &slot, &fd), BASE + 2 * SP_UID_SLOT_IDS);
}

Test(uid_slots, one_that_was_given_back_is_taken_as_long_as_its_lock_is_held)
{
	static struct sp_uid_slots slots;
	uint32_t slot;
	int held;
	int fd;

	open_slots(&slots, BASE, SP_UID_SLOT_IDS, 1);
	cr_assert_eq(take(&slots, &slot, &held), BASE);
	sp_uid_slots_give(&slots, slot);
	cr_assert_eq(take(&slots, &slot, &fd), 0u, "a process of it may live");
	sp_fd_close(&held);
	cr_assert_eq(take(&slots, &slot, &fd), BASE);
}

Test(uid_slots, ranges_that_overlap_in_part_are_seen)
{
	static struct sp_uid_slots first;
	static struct sp_uid_slots second;
	uint32_t slot;
	int fd;

	open_slots(&first, 100000, 1000, 1);
	open_slots(&second, 100500, 1000, 2);
	cr_assert_eq(take(&first, &slot, &fd), 100000u);
	cr_assert_eq(take(&second, &slot, &fd), 101500u);
	cr_assert_eq(take(&second, &slot, &fd), 0u);
}

/* The kernel goes through all locks of a file at each close. */
Test(uid_slots, neighbours_are_locked_in_different_files)
{
	static struct sp_uid_slots slots;
	uint32_t slot;
	int fd;

	open_slots(&slots, BASE, SP_UID_SLOT_IDS, 2 * SP_UID_SLOTS_FILES);
	for (uint32_t i = 0; i < 2 * SP_UID_SLOTS_FILES; i++)
		cr_assert(take(&slots, &slot, &fd) != 0);
	cr_assert_eq(files(), SP_UID_SLOTS_FILES);
}
