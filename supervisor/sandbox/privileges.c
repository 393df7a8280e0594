/*
 * Capability sets, securebits and no_new_privs of the calling thread; see capabilities(7). Every
 * step that fails is an error: a process that could not be confined must not go on.
 */
#include "supervisor/sandbox/privileges.h"

#include "supervisor/sandbox/syscalls.h"

#include <errno.h>
#include <linux/securebits.h>
#include <sys/prctl.h>

#define CAPABILITY_NUMBERS 64u

/*
 * uid 0 means nothing to execve, changing ids drops capabilities, and none of this can be changed
 * back. PR_SET_KEEPCAPS is left possible: it is over with the next execve, and only who has
 * capabilities can keep any (init's helper for files, until its fsuid is set).
 */
#define LOCKED_BITS                                                                             \
	((unsigned long)(SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP_LOCKED | \
			 SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED))

static int drop_bounding_set(void)
{
	for (unsigned long number = 0; number < CAPABILITY_NUMBERS; number++) {
		if (prctl(PR_CAPBSET_DROP, number, 0, 0, 0) == 0)
			continue;
		/* Numbers beyond the kernel's last capability are EINVAL. */
		return errno == EINVAL && number > CAP_LAST_CAP ? 0 : -errno;
	}
	return 0;
}

int sp_privileges_lock(uint64_t keep)
{
	uint64_t effective;
	uint64_t permitted;
	uint64_t inheritable;
	int status = sp_sys_capget(&effective, &permitted, &inheritable);

	if (status < 0)
		return status;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		return -errno;
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0)
		return -errno;
	if ((effective & (UINT64_C(1) << CAP_SETPCAP)) != 0) {
		status = drop_bounding_set();
		if (status < 0)
			return status;
		if (prctl(PR_SET_SECUREBITS, LOCKED_BITS, 0, 0, 0) != 0)
			return -errno;
	}
	return sp_sys_capset(permitted & keep, permitted & keep, 0);
}

int sp_privileges_hide(void)
{
	return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 ? 0 : -errno;
}
