/*
 * What the two compilers of filters share: seccomp_compile.c (built-in policy) and seccomp_oci.c
 * (profiles). Only sp_seccomp's own sources include this.
 */
#ifndef SP_SANDBOX_SECCOMP_PRIVATE_H
#define SP_SANDBOX_SECCOMP_PRIVATE_H

#include "supervisor/sandbox/seccomp_compile.h"

#include <linux/filter.h>
#include <seccomp.h>

/* Every call up to this one was looked at; what is newer is ENOSYS. */
#define SP_SECCOMP_NEWEST_CALL  469
#define SP_SECCOMP_PREAMBLE_MAX 24u

/* Instructions of ours that run before libseccomp's. */
struct sp_seccomp_preamble {
	struct sock_filter code[SP_SECCOMP_PREAMBLE_MAX];
	unsigned int count;
};

/* Foreign architectures kill, numbers above `newest` (all of x32 among them) are ENOSYS. */
void sp_seccomp_preamble(struct sp_seccomp_preamble *preamble, uint32_t newest);

/* The number of a call on this architecture; negative: it has none, or nobody knows it. */
int sp_seccomp_call_number(const char *name);

/* A context for the native architecture only; foreign: what another one and x32 get, unless a
 * preamble or an earlier filter has decided. NULL: out of memory, or libseccomp refuses. */
scmp_filter_ctx sp_seccomp_context_new(uint32_t default_action, uint32_t foreign);
void sp_seccomp_context_cleanup(scmp_filter_ctx *context);

/* The tiny filter's denials: calls that only init may make. */
int sp_seccomp_deny_init_only(scmp_filter_ctx context, struct sp_err *err);
bool sp_seccomp_is_init_only(const char *name);

/* preamble + what the context holds. -E2BIG: more than the kernel takes. */
int sp_seccomp_export(scmp_filter_ctx context, const struct sp_seccomp_preamble *preamble,
		      struct sp_seccomp_program *ret, struct sp_err *err);

/* err for a complaint of libseccomp about `what`; -ENOMEM or -EINVAL. */
int sp_seccomp_fault(struct sp_err *err, int status, const char *what);

#endif
