/*
 * What the daemon offers to its interfaces (HTTP today, Redis later): sandboxes and execs, by name,
 * with callbacks on the loop thread. No HTTP, no JSON here.
 *
 * Rules of every asynchronous call: the callback comes exactly once, never before the call that
 * started it has returned, and not after the matching cancel. All calls on the loop thread.
 */
#ifndef SP_DAEMON_SERVICE_H
#define SP_DAEMON_SERVICE_H

#include "pool/base/err.h"
#include "pool/pool.h"
#include "supervisor/config/config.h"

struct sp_service;
struct sp_exec;
struct sp_metrics;
struct gnutls_certificate_credentials_st;

#define SP_BINDS_MAX           32u
#define SP_EXEC_TIMEOUT_MAX_MS (7 * 24 * 3600 * SP_MS_PER_S)
#define SP_EXEC_STDIN_WINDOW   (256u * 1024) /* bytes of stdin that may wait in the daemon */

/* ---- who asks ---- */

struct sp_caller {
	bool operator_rights; /* Unix socket: root, our own user, or a member of admin_group */
	bool may_acquire; /* operator, or holder of an API key, or any peer allowed on the socket */
	const char *secret; /* from X-Sandpool-Token; NULL if none. Borrowed for the call */
};

/* ---- pools and sandboxes ---- */

/* OVERLAY: the source is not touched; what is written is the sandbox's until it is committed. */
enum sp_bind_mode { SP_BIND_RW, SP_BIND_RO, SP_BIND_OVERLAY };

struct sp_bind_request {
	const char *source; /* absolute host path; must lie below one of the pool's allowed_binds */
	const char *target; /* absolute path inside; NULL = same as source */
	enum sp_bind_mode mode;
	uint64_t size; /* OVERLAY: bytes that may be written; 0 = the pool's limits.tmp, never above
			* it */
};

struct sp_service_acquire {
	const char *pool;
	const char *lease_id; /* NULL: the daemon draws a secret and returns it */
	enum sp_acquire_policy policy;
	int64_t wait_ms;
	int64_t ttl_ms;
	int64_t min_remaining_ms;
	const struct sp_bind_request *binds; /* attached before the answer */
	size_t bind_count;
	bool local; /* only out of this host's pool, whatever the others have */
};

/* A sandbox of another host: what its owner knows beside this is asked of its owner. */
struct sp_remote_sandbox {
	const char *id;
	const char *lease_id;
	const char *host;
	const char *endpoint;
};

/* What is known of a sandbox; all borrowed for the callback or call. */
struct sp_sandbox_info {
	const struct sp_sandbox *sandbox; /* NULL: it is `remote` */
	const struct sp_remote_sandbox *remote;
	const char *host; /* our name in the cluster; NULL without one */
	const char *pool;
	const char *secret; /* only in the answer to an acquire without lease_id, else NULL */
	int64_t now_ms;
	int64_t remaining_ms;
	uint32_t running_execs;
	uint64_t execs_total;
	uint32_t limits_degraded; /* bits of sp_launcher_limit */
	uint32_t host_pid;        /* of init; 0 before it is known */
};

struct sp_service_op; /* a running acquire */
typedef void sp_service_acquire_cb(void *arg, const struct sp_sandbox_info *info,
				   const struct sp_err *err);

/* 0: callback will come. Negative: refused, err filled, no callback. */
int sp_service_acquire(struct sp_service *service, const struct sp_caller *caller,
		       const struct sp_service_acquire *request, sp_service_acquire_cb *cb,
		       void *arg, struct sp_service_op **ret_op, struct sp_err *err);
/* The client went away: no callback; a sandbox that was granted meanwhile is released. */
void sp_service_acquire_cancel(struct sp_service_op *op);

/* For all of these: NOT_FOUND when the id is unknown or the caller may not see it (same text). */
int sp_service_renew(struct sp_service *service, const struct sp_caller *caller, const char *id,
		     int64_t ttl_ms, struct sp_sandbox_info *ret_info, struct sp_err *err);
/* The first claim of a sandbox that the caller got from the store, or any later one. ttl_ms: 0 = as
 * asked for at the acquire. Needs the secret. */
int sp_service_claim(struct sp_service *service, const struct sp_caller *caller, const char *id,
		     int64_t ttl_ms, struct sp_sandbox_info *ret_info, struct sp_err *err);
int sp_service_release(struct sp_service *service, const struct sp_caller *caller, const char *id,
		       struct sp_err *err);
int sp_service_inspect(struct sp_service *service, const struct sp_caller *caller, const char *id,
		       struct sp_sandbox_info *ret_info, struct sp_err *err);

struct sp_sandbox_usage {
	double cpus;           /* what its pool allows, else what the host has */
	int64_t cpu_ns;        /* used since it was made; -1: the kernel does not say */
	uint64_t memory_bytes; /* used now; 0: the kernel does not say */
	uint64_t memory_limit; /* its pool's, else what the host has */
};

int sp_service_usage(struct sp_service *service, const struct sp_caller *caller, const char *id,
		     struct sp_sandbox_usage *ret_usage, struct sp_err *err);

/*
 * Stop everything in a held sandbox where it stands, or let it go on. Its end goes on coming
 * nearer; the time limits of its execs wait until it goes on. Nothing can be started in one that
 * stands still (CONFLICT). UNSUPPORTED where there is no cgroup v2 hierarchy; CONFLICT while
 * another freeze is under way. err NULL in the callback: done.
 */
struct sp_freeze_op;
typedef void sp_service_freeze_cb(void *arg, const struct sp_err *err);
int sp_service_freeze(struct sp_service *service, const struct sp_caller *caller, const char *id,
		      bool freeze, sp_service_freeze_cb *cb, void *arg,
		      struct sp_freeze_op **ret_op, struct sp_err *err);
/* No callback; what was asked of the kernel may happen. */
void sp_service_freeze_cancel(struct sp_freeze_op *op);

/* Tell of every leased sandbox that ends, whoever ended it, once, in the turn that it does. One
 * watcher; NULL ends it. */
typedef void sp_service_end_cb(void *arg, const char *id, enum sp_end_reason reason);
void sp_service_watch_ends(struct sp_service *service, sp_service_end_cb *cb, void *arg);

/* Operator only. pool NULL = all. */
int sp_service_each_sandbox(struct sp_service *service, const struct sp_caller *caller,
			    const char *pool,
			    int (*visit)(void *arg, const struct sp_sandbox_info *info), void *arg,
			    struct sp_err *err);

struct sp_pool_info {
	const struct sp_config_pool *config;
	struct sp_pool_snapshot snapshot;
	bool spec_mismatch; /* other hosts of the store make it from another spec */
	uint32_t hosts;     /* that live, this one included; 1 without a cluster */
};

int sp_service_pool(struct sp_service *service, const char *name, struct sp_pool_info *ret_info,
		    struct sp_err *err);
int sp_service_each_pool(struct sp_service *service,
			 int (*visit)(void *arg, const struct sp_pool_info *info), void *arg);
/* Operator only. -1 leaves a value. */
int sp_service_pool_resize(struct sp_service *service, const struct sp_caller *caller,
			   const char *name, int64_t max_idle, int64_t max_total,
			   struct sp_err *err);
int sp_service_pool_drain(struct sp_service *service, const struct sp_caller *caller,
			  const char *name, struct sp_err *err);
int sp_service_pool_resume(struct sp_service *service, const struct sp_caller *caller,
			   const char *name, struct sp_err *err);

/* ---- hosts ---- */

/* One row for each pool of each host; borrowed for the call. */
struct sp_host_info {
	const char *pool;
	const char *host;
	const char *state; /* live, draining, dead, spec_mismatch */
	int64_t idle;
	int64_t creating;
	int64_t leased;
	int64_t waiters;
	int64_t share;
	int64_t capacity;
	int64_t seen_ms; /* ago */
	const char *version;
	const char *endpoint;
};

struct sp_hosts_op;
typedef void sp_service_hosts_cb(void *arg, const struct sp_host_info *hosts, size_t count,
				 const struct sp_err *err);
/* Operator only. UNSUPPORTED without a cluster. */
int sp_service_hosts(struct sp_service *service, const struct sp_caller *caller,
		     sp_service_hosts_cb *cb, void *arg, struct sp_hosts_op **ret_op,
		     struct sp_err *err);
/* In all our pools: nothing of that host is handed out any more (drain), or is again. Operator
 * only. NOT_FOUND: no such host in any of them. */
int sp_service_host_drain(struct sp_service *service, const struct sp_caller *caller,
			  const char *host, bool drain, sp_service_hosts_cb *cb, void *arg,
			  struct sp_hosts_op **ret_op, struct sp_err *err);
/* No callback after this. */
void sp_service_hosts_cancel(struct sp_hosts_op *op);

/* ---- exec ---- */

enum sp_exec_reason {
	SP_EXEC_EXITED,
	SP_EXEC_SIGNALED,
	SP_EXEC_TIMEOUT,
	SP_EXEC_MEMORY,
	SP_EXEC_OUTPUT,
	SP_EXEC_KILLED,  /* by the client: cancel, release */
	SP_EXEC_EXPIRED, /* the lease ended */
	SP_EXEC_START_FAILED,
	SP_EXEC_DIED, /* the sandbox died under it */
	SP_EXEC_REASON_COUNT
};

const char *sp_exec_reason_name(enum sp_exec_reason reason); /* "exited", … */

struct sp_exec_spec {
	const char *const
		*argv; /* argc >= 1; argv[0] is looked up in PATH of env if it has no slash */
	size_t argc;
	const char *const
		*env; /* "NAME=value"; appended to PATH, HOME, LANG, TERM (later ones win) */
	size_t envc;
	const char *cwd; /* NULL = /workspace if it exists in the pool's root, else / */
	int64_t uid;     /* -1 = the pool's workload uid */
	int64_t gid;
	int64_t timeout_ms;    /* 0 = the pool's default_timeout */
	uint64_t output_limit; /* 0 = the pool's; never above it */
	bool stdin_open;       /* false: /dev/null */
	bool tty;
	bool merge_stderr; /* stderr goes to stdout's pipe */
	/* All of its output is delivered: the owner holds a bounded part of it and pauses. */
	bool output_unlimited;
	/* It waits for work, like a shell session: a stop of the daemon does not wait for it. */
	bool resident;
	/* Its start is what somebody waits for, not its end: `started` comes without delay. */
	bool start_awaited;
	/* It ends with its sandbox: nothing limits its time, nobody kills it alone, and so it waits
	 * for no cgroup of its own. */
	bool for_life;
	uint16_t rows, columns;
	uint32_t session; /* isolated.h: in which it runs, without tty; 0 = the sandbox itself */
};

struct sp_exec_result {
	enum sp_exec_reason reason;
	int exit_code; /* -1 unless exited */
	int signal;    /* 0 unless signaled (also the kill of a timeout: SIGKILL) */
	int64_t wall_us;
	int64_t user_us;
	int64_t system_us;
	uint64_t peak_memory_bytes;
	uint64_t stdout_bytes; /* written by the program as far as seen, also beyond the cap */
	uint64_t stderr_bytes;
	bool stdout_truncated;
	bool stderr_truncated;
	char stage[32]; /* START_FAILED: "cwd", "exec", … */
	int start_errno;
	char message[SP_ERR_MESSAGE_MAX]; /* START_FAILED, DIED: for people */
};

struct sp_exec_events {
	void (*started)(void *arg, const char *sandbox_id);
	/* stream 1 stdout (and tty), 2 stderr. data borrowed for the call. */
	void (*output)(void *arg, int stream, const void *data, size_t len);
	/* the workload consumed this much stdin; as much may be sent again */
	void (*stdin_credit)(void *arg, uint32_t bytes);
	/* last callback; the sp_exec is gone afterwards */
	void (*ended)(void *arg, const struct sp_exec_result *result);
};

/* Run in a held sandbox. The events' owner must live until ended or cancel. */
int sp_exec_start(struct sp_service *service, const struct sp_caller *caller, const char *id,
		  const struct sp_exec_spec *spec, const struct sp_exec_events *events, void *arg,
		  struct sp_exec **ret_exec, struct sp_err *err);
/* Acquire, run, release as one: claims at once; the sandbox is killed when the exec ends. wait,
 * policy, binds as in acquire. Acquire errors come through `failed`. */
int sp_exec_run(struct sp_service *service, const struct sp_caller *caller,
		const struct sp_service_acquire *acquire, const struct sp_exec_spec *spec,
		const struct sp_exec_events *events,
		void (*failed)(void *arg, const struct sp_err *err), void *arg,
		struct sp_exec **ret_exec, struct sp_err *err);

/* At most SP_EXEC_STDIN_WINDOW outstanding; -EMSGSIZE beyond. Data is copied. -EPIPE: nobody reads.
 */
int sp_exec_stdin(struct sp_exec *exec, const void *data, size_t len);
void sp_exec_stdin_close(struct sp_exec *exec);
int sp_exec_signal(struct sp_exec *exec, int signal_number, struct sp_err *err);
/* Kill all that it started; `ended` tells. Harmless when it has ended or is being killed. */
void sp_exec_kill(struct sp_exec *exec);
/* Signal it as above, again every again_ms (0: once), and kill it if that has not ended it after
 * patience_ms. */
void sp_exec_stop(struct sp_exec *exec, int signal_number, int64_t patience_ms, int64_t again_ms);
int sp_exec_resize(struct sp_exec *exec, uint16_t rows, uint16_t columns);
/* Stop reading its output until called with false: back-pressure up to the workload's write(2). */
void sp_exec_pause(struct sp_exec *exec, bool pause);
/* The client left: kill it, no further event. For sp_exec_run() also releases the sandbox. */
void sp_exec_cancel(struct sp_exec *exec);

/* ---- the daemon itself ---- */

struct sp_metrics *sp_service_metrics(struct sp_service *service);
const struct sp_config *sp_service_config(const struct sp_service *service);
/* All pools started and at least one dispensable or full; reason (borrowed) says what is missing.
 */
bool sp_service_ready(const struct sp_service *service, const char **ret_reason);
/* What tls:// addresses of the configuration present; for gnutls_certificate_free_credentials().
 * -EINVAL with GnuTLS's reason, which names both files. */
int sp_service_tls_credentials(const struct sp_config *config,
			       struct gnutls_certificate_credentials_st **ret_credentials,
			       struct sp_err *err);
/* Ask for a reload, as SIGHUP does; all or nothing. */
int sp_service_reload(struct sp_service *service, const struct sp_caller *caller,
		      void (*cb)(void *arg, const struct sp_err *err), void *arg,
		      struct sp_err *err);

#endif
