/*
 * The helper's filter: these calls, and the end for whoever makes another one. It comes on top of
 * init's own, which already refuses set-id modes and foreign address families.
 */
#include "supervisor/init/file_helper.h"
#include "supervisor/sandbox/seccomp_load.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define NATIVE_AUDIT_ARCH AUDIT_ARCH_X86_64
#else
#define NATIVE_AUDIT_ARCH AUDIT_ARCH_AARCH64
#endif

/* From this list on, the number of further comparisons that a match jumps over. */
#define ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), ALLOWED
#define ALLOWED       BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* The frequent ones first: the kernel runs this for each number when it is loaded, and then knows.
 */
static const struct sock_filter filter[] = {
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE_AUDIT_ARCH, 1, 0),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	ALLOW(SYS_openat2),
	ALLOW(SYS_openat),
	ALLOW(SYS_close),
	ALLOW(SYS_read),
	ALLOW(SYS_write),
	ALLOW(SYS_lseek),
	ALLOW(SYS_statx),
	ALLOW(SYS_fstatfs),
	ALLOW(SYS_getdents64),
	ALLOW(SYS_readlinkat),
	ALLOW(SYS_fgetxattr),
	ALLOW(SYS_mkdirat),
	ALLOW(SYS_symlinkat),
	ALLOW(SYS_linkat),
	ALLOW(SYS_renameat2),
	ALLOW(SYS_unlinkat),
	ALLOW(SYS_fchmod),
	ALLOW(SYS_fchmodat),
	ALLOW(CALL_FCHMODAT2),
	ALLOW(SYS_fchownat),
	ALLOW(SYS_utimensat),
	ALLOW(SYS_fsync),
	ALLOW(SYS_syncfs),
	ALLOW(SYS_ftruncate),
	ALLOW(SYS_mknodat),
	ALLOW(SYS_faccessat2),
	ALLOW(SYS_flock),
	ALLOW(SYS_capget),
	ALLOW(SYS_capset),
	ALLOW(SYS_socket),
	ALLOW(SYS_connect),
	ALLOW(SYS_ppoll),
	ALLOW(SYS_getsockopt),
	ALLOW(SYS_sendmsg),
	ALLOW(SYS_recvmsg),
	ALLOW(SYS_setitimer),
	ALLOW(SYS_clock_gettime),
	ALLOW(SYS_mmap),
	ALLOW(SYS_exit_group),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
};

int file_filter_load(void)
{
	return sp_seccomp_load(filter, sizeof(filter));
}
