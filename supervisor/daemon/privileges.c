/*
 * Becoming an ordinary user for good. The order matters: the bounding set can only be emptied with
 * CAP_SETPCAP, groups only with CAP_SETGID, so both come before the change of uid; what is left of
 * the capabilities goes last. Then everything is read back: a step that silently did nothing must
 * not go unnoticed.
 */
#include "supervisor/daemon/daemon_private.h"

#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GROUPS_MAX 65536

void identity_done(struct sp_identity *identity)
{
	free(identity->groups);
	*identity = (struct sp_identity){0};
}

static int own_identity(struct sp_identity *ret, struct sp_err *err)
{
	int count = getgroups(0, NULL);

	ret->uid = getuid();
	ret->gid = getgid();
	ret->groups = calloc((size_t)SP_MAX(count, 1), sizeof(*ret->groups));
	if (!ret->groups)
		return sp_err_set(err, -ENOMEM, "groups");
	if (count > 0)
		count = getgroups(count, ret->groups);
	if (count < 0)
		return sp_err_set(err, -errno, "read our groups");
	ret->group_count = (size_t)count;
	return 0;
}

static int user_groups(const char *user, gid_t gid, struct sp_identity *ret, struct sp_err *err)
{
	int count = 32;

	for (;;) {
		int room = count;
		gid_t *groups = calloc((size_t)room, sizeof(*groups));

		if (!groups)
			return sp_err_set(err, -ENOMEM, "groups of user '%s'", user);
		if (getgrouplist(user, gid, groups, &count) >= 0) {
			ret->groups = groups;
			ret->group_count = (size_t)count;
			return 0;
		}
		free(groups);
		if (count <= room || count > GROUPS_MAX)
			return sp_err_set(err, -E2BIG, "groups of user '%s'", user);
	}
}

int identity_resolve(const char *user, struct sp_identity *ret, struct sp_err *err)
{
	struct passwd *entry;

	*ret = (struct sp_identity){0};
	if (user[0] == '\0')
		return own_identity(ret, err);
	errno = 0;
	entry = getpwnam(user);
	if (!entry)
		return errno != 0 ? sp_err_set(err, -errno, "look up user '%s'", user)
				  : sp_err_code(err, SP_CODE_CONFIG_INVALID, -ENOENT,
						"user: there is no user '%s'", user);
	ret->uid = entry->pw_uid;
	ret->gid = entry->pw_gid;
	return user_groups(user, entry->pw_gid, ret, err);
}

static int drop_bounding_set(struct sp_err *err)
{
	for (unsigned long cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (prctl(PR_CAPBSET_READ, cap, 0, 0, 0) == 1 &&
		    prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			return sp_err_set(err, -errno, "drop capability %lu", cap);
	return 0;
}

static int clear_capabilities(struct sp_err *err)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};

	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return sp_err_set(err, -errno, "clear the ambient capabilities");
	if (syscall(SYS_capset, &header, data) < 0)
		return sp_err_set(err, -errno, "drop the capabilities");
	return 0;
}

/* Capabilities and no_new_privs are a thread's: another thread would keep them. */
static int check_single_thread(struct sp_err *err)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	int count = 0;

	if (!dir)
		return sp_err_set(err, -errno, "open '/proc/self/task'");
	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			count++;
	(void)closedir(dir);
	if (count != 1)
		return sp_err_set(err, -EBUSY, "drop privileges in %d threads", count);
	return 0;
}

int privileges_drop(const struct sp_identity *identity, struct sp_err *err)
{
	bool root = geteuid() == 0;
	int status = check_single_thread(err);

	/* Without privilege there is nothing in the bounding set that could be had again:
	 * no_new_privs below sees to it. */
	if (status == 0 && root) {
		status = drop_bounding_set(err);
		if (status == 0 && setgroups(identity->group_count, identity->groups) < 0)
			status = sp_err_set(err, -errno, "set the groups");
	}
	if (status < 0)
		return status;
	if (setresgid(identity->gid, identity->gid, identity->gid) < 0)
		return sp_err_set(err, -errno, "become group %u", identity->gid);
	if (setresuid(identity->uid, identity->uid, identity->uid) < 0)
		return sp_err_set(err, -errno, "become user %u", identity->uid);
	status = clear_capabilities(err);
	if (status < 0)
		return status;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return sp_err_set(err, -errno, "set no_new_privs");
	/* LeakSanitizer looks at us through ptrace, so its builds stay open to our own user. */
	if (prctl(PR_SET_DUMPABLE, SP_SANITIZED, 0, 0, 0) < 0)
		return sp_err_set(err, -errno, "become non-dumpable");
	return privileges_check(identity, err);
}

int privileges_check(const struct sp_identity *identity, struct sp_err *err)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
	uid_t real, effective, saved;
	gid_t real_gid, effective_gid, saved_gid;

	if (getresuid(&real, &effective, &saved) < 0 || real != identity->uid ||
	    effective != identity->uid || saved != identity->uid)
		return sp_err_set(err, -EPERM, "check that we are user %u", identity->uid);
	if (getresgid(&real_gid, &effective_gid, &saved_gid) < 0 || real_gid != identity->gid ||
	    effective_gid != identity->gid || saved_gid != identity->gid)
		return sp_err_set(err, -EPERM, "check that we are group %u", identity->gid);
	if (syscall(SYS_capget, &header, data) < 0)
		return sp_err_set(err, -errno, "read our capabilities");
	for (size_t i = 0; i < SP_ARRAY_SIZE(data); i++)
		if ((data[i].effective | data[i].permitted | data[i].inheritable) != 0)
			return sp_err_set(err, -EPERM, "check that no capability is left");
	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
		return sp_err_set(err, -EPERM, "check no_new_privs");
	/* The way back must be closed; root without capabilities is warned about by the caller. */
	if (identity->uid != 0 && setuid(0) == 0)
		return sp_err_set(err, -EPERM, "check that root is out of reach");
	return 0;
}
