/*
 * Loading a compiled filter (sandbox/seccomp_compile.h) into the calling thread.
 */
#ifndef SP_SANDBOX_SECCOMP_LOAD_H
#define SP_SANDBOX_SECCOMP_LOAD_H

#include "pool/base/base.h"

/* bytes: struct sock_filter[], borrowed; length in bytes. Needs no_new_privs. 0, -EINVAL (not a
 * whole number of instructions, or the kernel refuses the program), other negative errno. */
int sp_seccomp_load(const void *bytes, uint32_t length);

#endif
