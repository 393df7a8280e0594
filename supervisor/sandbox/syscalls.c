/*
 * Thin wrappers around syscall(2). No state, no allocation, nothing that a child between clone3 and
 * execve may not call.
 */
#include "supervisor/sandbox/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OPENAT2_RETRIES 16

static int result(long value)
{
	return value < 0 ? -errno : (int)value;
}

pid_t sp_sys_clone3(struct clone_args *args)
{
	return result(syscall(SYS_clone3, args, sizeof(*args)));
}

int sp_sys_openat2(int dir_fd, const char *path, int flags, mode_t mode, uint64_t resolve)
{
	struct open_how how = {
		.flags = (uint64_t)(unsigned int)(flags | O_CLOEXEC),
		.mode = mode,
		.resolve = resolve,
	};
	int fd = -EAGAIN;

	for (int i = 0; i < OPENAT2_RETRIES && fd == -EAGAIN; i++)
		fd = result(syscall(SYS_openat2, dir_fd, path, &how, sizeof(how)));
	return fd;
}

int sp_sys_pivot_root(const char *new_root, const char *put_old)
{
	return result(syscall(SYS_pivot_root, new_root, put_old));
}

int sp_sys_mount_setattr(int fd, const char *path, unsigned int flags, uint64_t set, uint64_t clear,
			 uint64_t propagation, int userns_fd)
{
	struct mount_attr attr = {
		.attr_set = set,
		.attr_clr = clear,
		.propagation = propagation,
		.userns_fd = (set & MOUNT_ATTR_IDMAP) != 0 ? (unsigned int)userns_fd : 0u,
	};

	return result(mount_setattr(fd, path, flags, &attr, sizeof(attr)));
}

int sp_sys_setresuid(uid_t ruid, uid_t euid, uid_t suid)
{
	return result(syscall(SYS_setresuid, ruid, euid, suid));
}

int sp_sys_setresgid(gid_t rgid, gid_t egid, gid_t sgid)
{
	return result(syscall(SYS_setresgid, rgid, egid, sgid));
}

int sp_sys_setgroups(size_t count, const gid_t *groups)
{
	return result(syscall(SYS_setgroups, count, groups));
}

int sp_sys_capset(uint64_t effective, uint64_t permitted, uint64_t inheritable)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {
		{(uint32_t)effective, (uint32_t)permitted, (uint32_t)inheritable},
		{(uint32_t)(effective >> 32), (uint32_t)(permitted >> 32),
		 (uint32_t)(inheritable >> 32)},
	};

	return result(syscall(SYS_capset, &header, data));
}

int sp_sys_capget(uint64_t *ret_effective, uint64_t *ret_permitted, uint64_t *ret_inheritable)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];
	int status = result(syscall(SYS_capget, &header, data));

	if (status < 0)
		return status;
	*ret_effective = (uint64_t)data[1].effective << 32 | data[0].effective;
	*ret_permitted = (uint64_t)data[1].permitted << 32 | data[0].permitted;
	*ret_inheritable = (uint64_t)data[1].inheritable << 32 | data[0].inheritable;
	return 0;
}

int sp_sys_new_session_keyring(void)
{
	return result(syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL));
}
