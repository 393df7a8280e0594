/*
 * The user namespace of a launcher that an ordinary user starts: he is its root, and the ids that
 * /etc/subuid and /etc/subgid give him follow from 1 on.
 */
#ifndef SP_LAUNCHER_USER_NAMESPACE_H
#define SP_LAUNCHER_USER_NAMESPACE_H

#include "pool/base/err.h"

/* Its id 0 and its workload's; nobody else can be there. */
#define SP_OWN_IDS_PER_SANDBOX 2u

struct sp_own_ids {
	uint32_t user;  /* the host's number of our uid 0 */
	uint32_t first; /* the host's number of our uid 1, */
	uint32_t count; /* and of how many from there on; 0: none */
};

/* Enter it, before anything else needs a namespace. Without subordinate ids, or where newuidmap(1)
 * is missing or refuses, the user's own id is the only one; that is logged. */
int sp_user_namespace_enter(struct sp_own_ids *ret_ids, struct sp_err *err);

#endif
