/*
 * One seccomp(2) call. The program was compiled and checked elsewhere; the kernel checks it again.
 */
#include "supervisor/sandbox/seccomp_load.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>
#include <unistd.h>

int sp_seccomp_load(const void *bytes, uint32_t length)
{
	struct sock_fprog program = {
		.len = (unsigned short)(length / sizeof(struct sock_filter)),
		.filter = (struct sock_filter *)(uintptr_t)bytes,
	};

	if (length == 0 || length % sizeof(struct sock_filter) != 0 ||
	    length / sizeof(struct sock_filter) > BPF_MAXINSNS)
		return -EINVAL;
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0)
		return -errno;
	return 0;
}
