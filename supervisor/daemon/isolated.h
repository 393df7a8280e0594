/*
 * Isolated sessions of a held sandbox: namespaces inside its own, made by its init, in which execs
 * (sp_exec_spec.session) and operations on files (sp_file_place.session) can be put by number.
 *
 * Every path is looked up inside, with the permissions of the workload. What is made is the
 * kernel's; this side knows the number and whether it lives.
 *
 * Rules as in service.h. Errors of `opened`: INVALID_ARGUMENT (a path that is not there, cannot be
 * used or is not below the pool's allowed_writable), UNAVAILABLE (also: not in such a sandbox),
 * UNSUPPORTED (the kernel cannot do this), TOO_MANY, SANDBOX_DEAD, INTERNAL.
 */
#ifndef SP_DAEMON_ISOLATED_H
#define SP_DAEMON_ISOLATED_H

#include "supervisor/daemon/service.h"

#define SP_ISOLATED_MAX       32u /* in one sandbox */
#define SP_ISOLATED_PATHS_MAX 32u /* of each list */

enum sp_isolated_mode { SP_ISOLATED_RW, SP_ISOLATED_RO, SP_ISOLATED_OVERLAY };

struct sp_isolated_bind {
	const char *source;
	const char *target;
	bool read_only;
};

struct sp_isolated_spec {
	const char *workspace; /* made if it is missing */
	enum sp_isolated_mode mode;
	bool private_tmp;
	bool own_network;
	int64_t uid; /* whose permissions count; -1 = the pool's workload */
	int64_t gid;
	const char *const *writable;
	size_t writable_count;
	const struct sp_isolated_bind *binds;
	size_t bind_count;
};

struct sp_isolated;

struct sp_isolated_events {
	/* err: it could not be made, and is gone. */
	void (*opened)(void *arg, const struct sp_err *err);
	/* An open one is over, and is gone. */
	void (*ended)(void *arg);
};

int sp_isolated_open(struct sp_service *service, const struct sp_caller *caller, const char *id,
		     const struct sp_isolated_spec *spec, const struct sp_isolated_events *events,
		     void *arg, struct sp_isolated **ret_isolated, struct sp_err *err);
uint32_t sp_isolated_number(const struct sp_isolated *isolated);
/* No event after this; all that is in it is killed. */
void sp_isolated_close(struct sp_isolated *isolated);

#endif
