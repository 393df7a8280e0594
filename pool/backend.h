/*
 * The port through which the policy makes and ends sandboxes, and through which it hears of it.
 *
 * The daemon implements it over the launcher; the simulation over a virtual kernel that loses,
 * delays and fails. No call may call back into the pool before it returns.
 */
#ifndef SP_POOL_BACKEND_H
#define SP_POOL_BACKEND_H

#include "pool/base/err.h"
#include "pool/sandbox.h"

struct sp_backend_ops {
	/*
	 * Begin to create the sandbox. Answered later by exactly one of sp_pool_created() and
	 * sp_pool_create_failed(). After the latter it is killing: either say sp_pool_gone() at
	 * once because nothing is left, or wait for the pool to ask for the kill. A negative return
	 * means that nothing was begun and counts as a failure of stage "admission"; the struct is
	 * freed at once, forget is not called.
	 */
	int (*create)(void *arg, struct sp_sandbox *sandbox, struct sp_err *err);
	/*
	 * Begin to kill it; answered later by sp_pool_gone(). Asked again (same sandbox) when no
	 * answer came within kill_retry_ms. Also legal while it is still being created: then the
	 * answer to create is no longer given, only gone (a late one is ignored).
	 */
	void (*kill)(void *arg, struct sp_sandbox *sandbox);
	/*
	 * The sandbox is gone and its struct is about to be freed: let go of backend_data.
	 */
	void (*forget)(void *arg, struct sp_sandbox *sandbox);
};

#endif
