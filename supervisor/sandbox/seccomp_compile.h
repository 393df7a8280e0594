/*
 * Compiles the seccomp filters, once per pool, with libseccomp (3–9 ms each): never in the launcher
 * and never in a sandbox. The result is raw BPF that init and the workload's child load with one
 * seccomp(2) call.
 *
 * Two filters: the big one (init loads it, everything inherits it) and a tiny one that each
 * workload adds and that denies what only init still needs (mount family, clone3, namespaces, …).
 */
#ifndef SP_SANDBOX_SECCOMP_COMPILE_H
#define SP_SANDBOX_SECCOMP_COMPILE_H

#include "pool/base/err.h"

#include <stdint.h>

struct sp_seccomp_program {
	uint8_t *bytes;  /* struct sock_filter[], malloc'ed */
	uint32_t length; /* bytes */
};

/* The built-in policy. -ENOMEM, -EINVAL (libseccomp's complaint in err). */
int sp_seccomp_compile(struct sp_seccomp_program *ret_init, struct sp_seccomp_program *ret_exec,
		       struct sp_err *err);
/* An OCI/Docker profile (JSON text) instead of the built-in deny list; the tiny filter stays. */
int sp_seccomp_compile_oci(const char *json, size_t len, struct sp_seccomp_program *ret_init,
			   struct sp_seccomp_program *ret_exec, struct sp_err *err);
void sp_seccomp_program_done(struct sp_seccomp_program *program);

#endif
