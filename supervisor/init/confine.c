/*
 * Keyring, capabilities, no_new_privs, dumpability, the big filter; then PDEATHSIG again, because
 * changing credentials may have cleared it, and a look whether the launcher died before it was
 * set.
 */
#include "supervisor/init/confine.h"

#include "supervisor/sandbox/privileges.h"
#include "supervisor/sandbox/seccomp_load.h"
#include "supervisor/sandbox/syscalls.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>

#define CAP_BIT(capability) (UINT64_C(1) << (capability))

/*
 * What PID 1 does later and what it needs for that: terminals and mount points (CHOWN,
 * DAC_OVERRIDE, FOWNER), killing, the ids of its children, mounts and sessions (SYS_ADMIN; entering
 * one, SYS_CHROOT; a loopback of its own, NET_ADMIN). With a one-uid map a nested map of its own id
 * 0 is granted to whom could set file capabilities, and there are no sessions.
 */
static uint64_t kept_capabilities(const struct init *init)
{
	const uint64_t kept = CAP_BIT(CAP_CHOWN) | CAP_BIT(CAP_DAC_OVERRIDE) | CAP_BIT(CAP_FOWNER) |
			      CAP_BIT(CAP_KILL) | CAP_BIT(CAP_SETGID) | CAP_BIT(CAP_SETUID) |
			      CAP_BIT(CAP_SYS_ADMIN);

	if (init->direct)
		return 0;
	if (init->boot->rootless)
		return kept | CAP_BIT(CAP_SETFCAP);
	return kept | CAP_BIT(CAP_SYS_CHROOT) | CAP_BIT(CAP_NET_ADMIN);
}

/*
 * A fresh session keyring. Workloads cannot reach it (the filter denies keyctl); with a one-uid map
 * all sandboxes share one quota of 200 keys, and a full one is no reason to fail.
 */
static int new_keyring(const struct init *init)
{
	int status = sp_sys_new_session_keyring();

	if (status == -ENOSYS || (status == -EDQUOT && (init->direct || init->boot->rootless)))
		return 0;
	return status < 0 ? status : 0;
}

static int follow_launcher(void)
{
	struct pollfd life = {.fd = SP_BOOT_FD_LIFE, .events = POLLIN};

	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0)
		return -errno;
	if (poll(&life, 1, 0) < 0)
		return -errno;
	return life.revents == 0 ? 0 : -EPIPE;
}

int init_confine(struct init *init)
{
	int status;

	init_stage(init, "keyring");
	status = new_keyring(init);
	if (status < 0)
		return status;
	init_stage(init, "capabilities");
	status = sp_privileges_lock(kept_capabilities(init));
	if (status < 0)
		return status;
	init_stage(init, "dumpable");
	status = sp_privileges_hide();
	if (status < 0)
		return status;
	if (!init->direct) {
		init_stage(init, "seccomp");
		status = sp_seccomp_load((const char *)init->boot + init->boot->filter_offset,
					 init->boot->filter_length);
		if (status < 0)
			return status;
	}
	init_stage(init, "parent");
	return follow_launcher();
}
