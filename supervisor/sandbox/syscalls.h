/*
 * System calls that glibc 2.36 does not wrap, and those whose wrapper does more than the call.
 *
 * All return the kernel's value or a negative errno, keep no state and are async-signal-safe, so
 * that a child between clone3 and execve may use them. What glibc wraps plainly (open_tree,
 * move_mount, mount_setattr, fsopen, fsmount, pidfd_open, pidfd_send_signal, close_range, execveat)
 * is used from there.
 */
#ifndef SP_SANDBOX_SYSCALLS_H
#define SP_SANDBOX_SYSCALLS_H

#include "pool/base/base.h"

#include <linux/capability.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <sys/types.h>

/* clone3(2) without a stack of its own (no CLONE_VM): 0 in the child, its pid in the parent. */
pid_t sp_sys_clone3(struct clone_args *args);

/* openat2(2); flags get O_CLOEXEC. resolve: RESOLVE_*. Repeats on EAGAIN (a rename raced with a
 * ".." check) a bounded number of times. */
int sp_sys_openat2(int dir_fd, const char *path, int flags, mode_t mode, uint64_t resolve);

int sp_sys_pivot_root(const char *new_root, const char *put_old);

/* mount_setattr(2) spelled out. userns_fd is used with MOUNT_ATTR_IDMAP only, else -1. */
int sp_sys_mount_setattr(int fd, const char *path, unsigned int flags, uint64_t set, uint64_t clear,
			 uint64_t propagation, int userns_fd);

/* One thread's ids, no signal broadcast to the others as glibc does: in a CLONE_VM child its list
 * of threads is the parent's. */
int sp_sys_setresuid(uid_t ruid, uid_t euid, uid_t suid);
int sp_sys_setresgid(gid_t rgid, gid_t egid, gid_t sgid);
int sp_sys_setgroups(size_t count, const gid_t *groups);

/* capset(2) and capget(2) of the calling thread, version 3. */
int sp_sys_capset(uint64_t effective, uint64_t permitted, uint64_t inheritable);
int sp_sys_capget(uint64_t *ret_effective, uint64_t *ret_permitted, uint64_t *ret_inheritable);

/* keyctl(KEYCTL_JOIN_SESSION_KEYRING, NULL): an empty session keyring of its own. */
int sp_sys_new_session_keyring(void);

#endif
