/*
 * Calls to the functions in Redis (redis/README.md) as the verbs need them: with a deadline, made
 * again when that is harmless, status words turned into our error codes.
 */
#ifndef SP_CLI_REDIS_H
#define SP_CLI_REDIS_H

#include "supervisor/cli/ask.h"
#include "supervisor/cli/request.h"

#define SP_CLI_REDIS_PATIENCE_MS (3 * SP_MS_PER_S) /* for a call that waits for nothing */
#define SP_CLI_POOL_DEFAULT      "default"
#define SP_CLI_POOL_HELP         "its pool (Redis only) [default]"

void sp_cli_reply_done(struct sp_cli_reply *reply);
/* The text at `index`; "" when it is missing or nil. */
const char *sp_cli_reply_text(const struct sp_cli_reply *reply, size_t index);
/* The same as a number; 0 when it is none. */
int64_t sp_cli_reply_number(const struct sp_cli_reply *reply, size_t index);
bool sp_cli_reply_is(const struct sp_cli_reply *reply, const char *status);

/*
 * FCALL sandpool_v1_{name} on a pool. Until the deadline (sp_clock_boot_ms()) it is sent again
 * whenever the connection fails: every function of ours is idempotent, so that a call whose answer
 * was lost may be repeated.
 * 0 whatever the status word; -EREMOTEIO, -ENOTCONN, -ETIMEDOUT, -EINVAL with err otherwise.
 */
int sp_cli_redis_fcall(struct sp_cli *cli, const char *pool, const char *name, bool read_only,
		       const char *const *argv, size_t argc, int64_t deadline_ms,
		       struct sp_cli_reply *ret_reply, struct sp_err *err);
/* Any other command, once. */
int sp_cli_redis_command(struct sp_cli *cli, const char *const *argv, size_t argc,
			 int64_t timeout_ms, struct sp_cli_reply *ret_reply, struct sp_err *err);
void sp_cli_redis_close(struct sp_cli *cli);

/* The pool of a sandbox: Redis cannot tell from an id, a daemon can. -EINVAL: the option was given
 * although a daemon is asked. */
int sp_cli_pool_option(const struct sp_cli *cli, const struct sp_cli_option *option,
		       const char **ret_pool, struct sp_err *err);

/* A key of a pool: {prefix}:{{pool}}:{suffix}. -EINVAL for a name that is none. */
int sp_cli_redis_key(const struct sp_cli *cli, const char *pool, const char *suffix,
		     struct sp_buf *out, struct sp_err *err);
/* -EINVAL: a prefix that would not be one word of a key. */
int sp_cli_redis_prefix_check(const char *prefix, struct sp_err *err);

/* err for any status word but OK. `what` is the object for the message: "pool 'x'". Returns a
 * negative errno; -EREMOTEIO for all that clients know. */
int sp_cli_redis_refusal(const struct sp_cli_reply *reply, const char *what, struct sp_err *err);

/* ---- leases (redis_acquire.c) ---- */

/* What is wanted, from the options of a verb. */
struct sp_cli_wish {
	const char *pool;
	const char *policy;
	const char *prefer_host;  /* "" = any */
	int64_t min_remaining_ms; /* -1 = the pool's */
	int64_t ttl_ms;           /* 0 = the rest of its idle life */
	int64_t wait_ms;
	bool drawn; /* the lease is ours, not the caller's */
	char lease[SP_LEASE_ID_LEN + 1];
	char secret[SP_CLI_CREDENTIAL_MAX + 1]; /* "" = the caller keeps it to itself */
};

struct sp_cli_grant {
	char id[64];
	char host[64];
	char endpoint[256];
	int64_t end_wall_ms;
	int64_t remaining_ms;
};

int sp_cli_wish_read(const struct sp_cli *cli, const struct sp_cli_acquire_options *options,
		     const char *pool, struct sp_cli_wish *ret_wish, struct sp_err *err);
/* Take an OK of acquire or wait apart. */
int sp_cli_grant_read(const struct sp_cli_reply *reply, struct sp_cli_grant *ret_grant,
		      struct sp_err *err);
/* From now on the client of `cli` speaks to that host; a secret "" leaves its token alone. */
int sp_cli_grant_use(struct sp_cli *cli, const struct sp_cli_grant *grant, const char *secret,
		     struct sp_err *err);
/*
 * A sandbox out of the whole cluster: asked of Redis, waited for, claimed at its host with the
 * secret; a candidate that cannot be claimed is rejected and the next one asked for.
 * *ret_answer is the sandbox as the daemon (without a secret: Redis) describes it, with token; the
 * client of `cli` then speaks to its host. To be emptied whatever the outcome. A lease that was
 * drawn may have been replaced in *wish.
 */
int sp_cli_redis_acquire(struct sp_cli *cli, struct sp_cli_wish *wish,
			 struct sp_cli_answer *ret_answer, struct sp_err *err);

/* ---- leases that are held (redis_lease.c) ---- */

struct sp_cli_lease {
	char id[SP_LEASE_ID_LEN + 1];
	struct sp_cli_grant grant;
};

/*
 * The sandbox that a word names: a lease id, or a sandbox id together with its token
 * (SANDPOOL_TOKEN, --token-file). The client of `cli` then speaks to its host. -EINVAL says what is
 * missing.
 */
int sp_cli_redis_locate(struct sp_cli *cli, const char *pool, const char *word,
			struct sp_cli_lease *ret_lease, struct sp_err *err);
int sp_cli_redis_renew(struct sp_cli *cli, const char *pool, const char *word, const char *ttl,
		       struct sp_cli_answer *ret_answer, struct sp_err *err);
int sp_cli_redis_release(struct sp_cli *cli, const char *pool, const char *word,
			 struct sp_err *err);

/* ---- pools and hosts (redis_pools.c) ---- */

/* {"pools": [...]} in the shape of GET /v1/pools: all that there are. */
int sp_cli_redis_pools(struct sp_cli *cli, int64_t timeout_ms, struct sp_cli_answer *ret_answer,
		       struct sp_err *err);
/* One pool in the shape of GET /v1/pools/{pool}. */
int sp_cli_redis_pool(struct sp_cli *cli, const char *name, struct sp_cli_answer *ret_answer,
		      struct sp_err *err);
/* {"hosts": [...]} in the shape of GET /v1/hosts. name NULL: of all pools. */
int sp_cli_redis_hosts(struct sp_cli *cli, const char *name, struct sp_cli_answer *ret_answer,
		       struct sp_err *err);
/* A function of the operator's that concerns the whole pool. */
int sp_cli_redis_order(struct sp_cli *cli, const char *pool, const char *name,
		       const char *const *argv, size_t argc, struct sp_err *err);
/* A host on or off duty, in one pool or (name NULL) in all that know it. */
int sp_cli_redis_drain_host(struct sp_cli *cli, const char *name, const char *host, bool drain,
			    struct sp_err *err);

#endif
