/*
 * What the parts of the daemon know of each other. Ownership, from the top:
 *
 *	sp_service            one; owns pools, links, execs and ops until they end
 *	 ├ daemon_pool        one per configured pool (and per removed one that still drains)
 *	 ├ sandbox_link       one per sandbox that the policy holds: pidfd, control socket
 *	 │   ├ sp_exec        what runs in it; outlives it only to deliver the rest of its output
 *	 │   └ exec_stream    pipes that background children kept open
 *	 └ sp_service_op      an acquire on its way
 *
 * A sandbox is the policy's (pool/sandbox.h) until `forget`; its link lives until its handles are
 * closed. Nothing here is touched off the loop thread.
 */
#ifndef SP_DAEMON_PRIVATE_H
#define SP_DAEMON_PRIVATE_H

#include "pool/store.h"
#include "redis/store.h"
#include "supervisor/daemon/daemon.h"
#include "supervisor/daemon/launcher_link.h"
#include "supervisor/daemon/loop.h"
#include "supervisor/daemon/service.h"
#include "supervisor/init/protocol.h"
#include "supervisor/metrics/metrics.h"

#define SP_TOMBS_MAX        1024u
#define SP_READ_BUFFER      (64u * 1024) /* of output, one for the whole daemon */
#define SP_LEFTOVERS_MAX    16u          /* pipes per sandbox that outlive their exec */
#define SP_SPARE_CGROUPS    2u           /* per leased sandbox, at most */
#define SP_SECRET_TEXT_MAX  512u         /* longest credential that is hashed at all */
#define SP_WORKLOAD_ID      1000u        /* uid and gid inside, launcher/table.h */
#define SP_ID_INSIDE_MAX    65532u       /* 65533: file helper, 65534: nobody's files */
#define SP_STOP_BOUND_MS    (10 * SP_MS_PER_S)
#define SP_KILL_PATIENCE_MS (2 * SP_MS_PER_S) /* for the end of a killed exec, twice */
#define SP_START_PATIENCE_MS                                                                     \
	(15 * SP_MS_PER_S)                     /* init says within 1 s whether a program started \
						*/
#define SP_REQUEST_MS        (5 * SP_MS_PER_S) /* a launcher's answer that an exec waits for */
#define SP_BIND_MS           (10 * SP_MS_PER_S)
#define SP_FROZEN_RETRY_MS   (1 * SP_MS_PER_S) /* a limit that passed while nothing could run */
#define SP_RELOAD_MS         (60 * SP_MS_PER_S)
#define SP_INIT_OUTGOING_MAX 256u /* records that wait for one init */

/* A configuration and who still looks at it. */
struct config_ref {
	struct sp_config *config;
	unsigned int references;
};

struct config_ref *config_ref_new(struct sp_config *config); /* takes config; NULL: out of memory */
struct config_ref *config_ref_hold(struct config_ref *ref);
void config_ref_drop(struct config_ref *ref);

struct daemon_pool {
	struct sp_service *service;
	struct sp_pool *policy;
	struct config_ref *source;
	const struct sp_config_pool *config; /* in source */
	uint32_t index;                      /* in the launcher's table */
	bool removed;                        /* by a reload: drains, then goes */
	struct sp_timer wakeup;
	struct sp_deferred touched; /* look at the policy's next wake-up */
	int64_t held_since_ms;      /* its next wake-up, for whom it would disturb; 0 = not held */
	int64_t served_ms;          /* a client asked for one of it, or began something in one */
	int64_t failure_logged_ms;
	uint32_t failures_unlogged;
	bool spec_mismatch; /* the other hosts of the store make it from another spec */
};

enum link_state {
	LINK_ASKED,   /* CREATE sent */
	LINK_BOOTING, /* CREATED received, waiting for READY */
	LINK_READY,
	LINK_ENDING, /* dead, broken or being killed; waiting for GONE */
	LINK_GONE,
};

struct exec_cgroup {
	int fd;
	uint32_t number;
	bool used; /* an exec was in it: to be looked into before the next one is */
};

/* A directory of the host that is seen through an overlay; overlay.c. */
struct sandbox_overlay {
	char *source;
	char *target;
	uint64_t size;
	bool read_only;  /* its source may not be written to */
	bool ended;      /* after a commit it could not be made anew */
	char spoilt[96]; /* by whom; "" = it is not */
};

struct sandbox_link {
	struct sp_list link; /* in service->links */
	struct sp_service *service;
	struct daemon_pool *pool;
	struct sp_sandbox *sandbox; /* NULL once the policy forgot it */
	char id[SP_SANDBOX_ID_LEN + 1];
	enum link_state state;
	bool policy_waits;             /* for sp_pool_created or _create_failed */
	bool kill_wanted;              /* asked for before there was a slot */
	bool dead;                     /* its pidfd said so */
	bool frozen;                   /* from the request to freeze it until it goes on */
	bool told_ended;               /* the watcher of ends was, or will be in this turn … */
	enum sp_end_reason end_reason; /* … and why it ended */
	bool attached;                 /* the handles below are open */
	bool direct;
	uint32_t workload_uid;
	uint32_t workload_gid;
	uint32_t slot;
	uint64_t serial;
	uint32_t degraded;
	uint32_t host_pid;
	int64_t asked_ns;

	int pidfd;
	uv_poll_t pidfd_poll;
	struct sp_seq_link control;
	unsigned int open_handles;

	struct sp_list execs;
	struct sp_list retired;   /* exec_stream: their exec has ended, let go after its answer */
	struct sp_list leftovers; /* exec_stream */
	uint32_t leftover_count;
	struct sp_list files; /* sp_file_op */
	uint32_t file_count;
	struct sp_list isolated; /* sp_isolated */
	uint32_t isolated_count;
	uint32_t last_isolated;
	bool upper_asked;     /* USAGE without an answer yet */
	uint64_t upper_round; /* … in which it was asked last */
	uint64_t upper_bytes; /* what it said last */
	uint32_t running_execs;
	uint64_t execs_total;
	uint32_t last_exec;
	uint32_t kills_asked; /* KILL_EXEC without an answer yet */
	uint64_t mount_request;

	struct exec_cgroup spares[SP_SPARE_CGROUPS];
	uint32_t spare_count;
	uint64_t spare_requests[SP_SPARE_CGROUPS]; /* 0 = none */

	uint64_t oom_kills; /* last known */
	char cgroup[SP_LAUNCHER_TEXT_MAX];
	struct sp_service_op *binding; /* an acquire that attaches its binds */
	struct sandbox_overlay overlays[SP_INIT_OVERLAYS_MAX]; /* overlay N is at N - 1 */
	uint32_t overlay_count;
	struct sp_overlay_commit *committing; /* nothing starts in it meanwhile */
	struct sp_freeze_op *freezing;        /* one at a time */
	struct warmup *warmup;                /* READY, but not for the policy yet */
	int64_t frozen_since_ms;
	struct sp_deferred gone;    /* tell the policy outside of its own call */
	struct sp_deferred ending;  /* … and the watcher of ends */
	struct sp_deferred release; /* its one run is over */
	struct sp_deferred tidy;    /* what can wait for the answer: streams, spares */
};

struct exec_stream;
struct sp_file_op;
struct sp_overlay_commit;

enum exec_state {
	EXEC_ACQUIRING, /* run: no sandbox yet */
	EXEC_WAITING,   /* for a sub-cgroup */
	EXEC_SENT,
	EXEC_RUNNING,
	EXEC_DRAINING, /* main process ended; the rest of its output is delivered */
};

#define EXEC_SHOWN_MAX 127

struct sp_exec {
	struct sp_list link;         /* in the sandbox's execs, or empty */
	struct sp_list service_link; /* in service->execs */
	struct sp_service *service;
	struct sandbox_link *sandbox; /* NULL before it is granted and after it is gone */
	struct sp_service_op *op;     /* ACQUIRING */
	char pool_name[SP_POOL_NAME_MAX + 1];
	char sandbox_id[SP_SANDBOX_ID_LEN + 1];
	enum exec_state state;
	uint32_t number;
	bool one_shot; /* sp_exec_run(): the sandbox goes with it */
	bool counted;  /* in service->runs */
	bool tty;
	bool paused;
	bool cancelled; /* no events any more */
	bool confirmed; /* init said STARTED */
	bool announced; /* the started event was given */
	bool killed;    /* kill_reason is set */
	bool stdin_wanted;
	bool merge_stderr;
	bool for_life; /* ends with its sandbox */
	bool resident; /* it waits for work; counted in service->residents */
	bool isolated; /* a run in an isolated session */
	bool own;      /* no client's: counted nowhere */
	bool stdin_closing;
	bool over_limit;        /* nothing is delivered any more, only counted */
	uint16_t rows, columns; /* of a resize before the pty is here */
	enum sp_exec_reason kill_reason;
	struct sp_exec_events events;
	void (*failed)(void *arg, const struct sp_err *err);
	void *arg;
	struct sp_init_exec *record; /* until it is sent */
	size_t record_len;
	char program[EXEC_SHOWN_MAX + 1]; /* the beginning of both, for people */
	char cwd[EXEC_SHOWN_MAX + 1];
	int strings_fd; /* of a record whose strings are too long */
	int64_t timeout_ms;
	int64_t stood_still_ms; /* its sandbox, while it ran: no limit counts that */
	uint64_t output_limit;
	uint64_t output_seen;
	int64_t stop_ms;      /* the owner's patience ends; 0 = none */
	int64_t again_ms;     /* until then its stop_signal is sent as often; 0 = once */
	int64_t next_stop_ms; /* … and when next */
	int stop_signal;
	struct sp_timer timer; /* timeout, stop_ms, next_stop_ms, then patience with the kill */
	unsigned int kill_rounds;
	int64_t asked_ns; /* one_shot: when its sandbox was asked for */
	int64_t started_ns;
	uint64_t oom_at_start;
	int peak_fd; /* the kernel's count of the sandbox's memory, opened ahead; -1 = not */
	bool in_cgroup;
	struct exec_cgroup cgroup;
	uint64_t kill_request;          /* EXEC_KILL on its way to the launcher */
	struct exec_stream *streams[3]; /* stdin, stdout (and tty), stderr */
	struct sp_buf stdin_buffer;
	uint32_t stdin_credit; /* consumed and not yet reported */
	struct sp_deferred credit;
	struct sp_deferred finish;
	struct sp_exec_result result;
};

/* One pipe end, or a pty's master, under the loop. It moves from its exec to the sandbox when the
 * exec ends before the pipe does. */
struct exec_stream {
	uv_poll_t poll;
	int fd;
	int inside_fd; /* of an output pipe, the end that the sandbox has too; see exec_output.c */
	int number;    /* 0 stdin, 1 stdout and tty, 2 stderr */
	int watched;
	bool closing;
	bool ended;    /* end of file, or drained of what the main process wrote */
	bool bounded;  /* `left` counts */
	uint64_t left; /* bytes that the main process may still have in the pipe */
	struct sp_exec *exec;
	struct sandbox_link *leftover_of;
	struct sp_list link;  /* in retired or leftovers */
	struct sp_timer pace; /* of a leftover: how fast it is drained */
	struct sp_service *service;
};

/* A bind with its source resolved to an allowed root. */
struct resolved_bind {
	uint32_t root_index;
	bool read_only;   /* of an overlay: it can never be committed */
	uint32_t overlay; /* its number; 0 = none */
	uint64_t size;    /* of an overlay */
	bool unfinished;  /* a commit was cut off in the source */
	char *source;     /* as the host knows it */
	char *path;       /* relative to the root, "" = the root */
	char *target;     /* inside */
};

enum op_state { OP_QUEUED, OP_ELSEWHERE, OP_ANSWERING, OP_BINDING, OP_MOUNTING, OP_RECOVERING };

/* An acquire that this host's pool had nothing for. */
struct elsewhere {
	struct sp_redis_acquire *pending; /* ELSEWHERE */
	unsigned int tries;
	struct sp_buf reject; /* ids that were granted and turned out to be somebody else's */
	int64_t until_ms;     /* of a wait, BOOTTIME */
	/* what was granted, on another host */
	bool granted;
	char id[SP_SANDBOX_ID_LEN + 1];
	char host[SP_REDIS_HOST_MAX + 1];
	char endpoint[SP_REDIS_ENDPOINT_MAX + 1];
	int64_t remaining_ms;
};

struct sp_service_op {
	struct sp_list link; /* in service->ops */
	struct sp_service *service;
	struct daemon_pool *pool;
	enum op_state state;
	struct sp_acquire_request wish;
	struct sp_acquire *pending; /* QUEUED */
	struct elsewhere elsewhere;
	struct sandbox_link *sandbox;
	bool granted_one; /* the policy bound a sandbox to lease_id */
	bool repeated;    /* for an earlier acquire, whose it is */
	bool local;       /* nobody else is asked */
	char lease_id[SP_LEASE_ID_LEN + 1];
	char secret[SP_SECRET_LEN + 1]; /* "" unless we drew it */
	int64_t started_ns;
	struct resolved_bind *binds;
	size_t bind_count;
	size_t bind_next;
	uint64_t request;            /* to the launcher */
	struct sp_file_op *recovery; /* RECOVERING */
	sp_service_acquire_cb *cb;   /* a client's; else granted */
	void (*granted)(void *arg, struct sandbox_link *sandbox, const struct sp_err *err);
	void *arg;
	struct sp_err failure;
	struct sp_deferred answer;
};

struct daemon_metrics {
	struct sp_metrics *all;
	struct sp_metric *sandboxes, *acquire_total, *acquire_seconds, *create_seconds;
	struct sp_metric *create_failures, *ends, *kill_seconds, *exec_seconds, *handout_seconds;
	struct sp_metric *idle_age_seconds, *store_up, *limits_degraded, *running_execs, *waiters;
	struct sp_metric *isolated_sessions, *isolated_run_seconds, *upper_bytes;
	struct sp_metric *file_seconds, *pool_degraded, *build_info, *store_command, *hosts,
		*spec_mismatch;
};

/* Where the kernel's counts of a sandbox are read; "" = not there. */
struct cgroup_mounts {
	char memory[256];
	bool unified;  /* memory is a v2 hierarchy */
	char cpu[256]; /* a v2 hierarchy, with the cpu controller or without */
};

struct reload;
struct tomb;
struct warmup;

struct sp_service {
	uv_loop_t *loop;
	struct sp_timers timers;
	struct sp_defer_queue deferred;
	struct config_ref *config;
	char *config_path;
	char *state_dir;
	int lock_fd;

	struct launcher_link *launcher;
	int launcher_fd; /* before it is under the loop */
	int launcher_pidfd;
	struct sandbox_link **by_slot;
	uint32_t slot_count;
	bool no_exec_cgroups; /* the launcher cannot make any */
	unsigned int runs;    /* sp_exec_run() in a sandbox */
	unsigned int exec_count;
	unsigned int residents; /* of them */

	struct sp_store *store;
	struct daemon_pool **pools;
	size_t pool_count;
	struct tomb *tombs; /* SP_TOMBS_MAX, a ring */
	size_t tomb_next;
	struct sp_list links;
	struct sp_list execs;
	struct sp_list ops;
	struct sp_list files;      /* sp_file_op */
	struct sp_list commits;    /* sp_overlay_commit */
	sp_service_end_cb *on_end; /* NULL: nobody asks */
	void *on_end_arg;
	uint32_t live_streams; /* handles that close on their own */
	struct daemon_metrics metrics;
	struct cgroup_mounts mounts;
	struct sp_timer upper_timer; /* upper_usage.c */
	uint64_t upper_round;
	struct reload *reload;

	uv_signal_t signals[3];
	struct sp_timer watchdog;
	int64_t watchdog_ms;
	int notify_fd;
	int fd_ceiling; /* descriptors of clients end here, see pool/base/fd.h */
	struct sp_timer stop_timer;
	struct sp_deferred progress; /* look whether a stop, a drain or a removal is through */
	unsigned int open_handles;
	char host[SP_REDIS_HOST_MAX + 1]; /* our name in the cluster */
	bool cluster;                     /* the store is shared with other hosts */
	bool stopping;
	bool killing; /* no more patience: everything was told to end */
	bool ended;   /* on_ended was called, or will be in this turn */
	int exit_status;
	void (*on_ended)(void *arg, int exit_status);
	void *arg;
	void (*on_closed)(void *arg);
	void *closed_arg;
	char read_buffer[SP_READ_BUFFER];
};

/* ---- pools.c ---- */

int daemon_pool_new(struct sp_service *service, struct config_ref *source, uint32_t index,
		    struct daemon_pool **ret_pool, struct sp_err *err);
void daemon_pool_free(struct daemon_pool *pool); /* everything of it is gone */
/* One that is configured; POOL_NOT_FOUND. */
int daemon_pool_get(struct sp_service *service, const char *name, struct daemon_pool **ret_pool,
		    struct sp_err *err);
/* Also a removed one; NULL. */
struct daemon_pool *daemon_pool_find(struct sp_service *service, const char *name);
/* Call after anything that went into the policy: looks at its next wake-up in the next turn, so
 * that an answer is out before the pool is refilled. */
void daemon_pool_touch(struct daemon_pool *pool);
/* A run has ended: nothing is held back for it any more. */
void daemon_pools_run_ended(struct sp_service *service);
/* Hosts that serve it, as the store last told; 1 without a cluster. */
uint32_t daemon_pool_hosts(const struct daemon_pool *pool);
struct sp_pool_config daemon_pool_policy(const struct config_ref *source, uint32_t index);
/* Frees the removed pools that have nothing left. */
void daemon_pools_collect(struct sp_service *service);

/* ---- backend.c, sandbox_link.c ---- */

extern const struct sp_backend_ops daemon_backend_ops; /* arg: struct daemon_pool */

void sandbox_on_gone(struct sp_service *service, const struct sp_launcher_answer *answer);
/* The policy is told to end it. Safe at any time outside of the policy's own calls. */
void sandbox_end(struct sandbox_link *link, enum sp_end_reason reason);
int sandbox_send(struct sandbox_link *link, const void *record, size_t len, const int *fds,
		 size_t fd_count);
/* The kernel says it is dead, or it broke the protocol: execs end, the policy hears of it. */
void sandbox_lost(struct sandbox_link *link, const char *why);
void sandbox_free_when_done(struct sandbox_link *link);
/* A lease's sandbox begins to end: say so once, outside of the policy's calls. */
void sandbox_tell_end(struct sandbox_link *link);
bool sandbox_usable(const struct sandbox_link *link);
uint32_t sandbox_host_pid(struct sandbox_link *link);
/* Claim it, and check that something can be started in it now. exec.c */
int sandbox_enter(struct sandbox_link *link, struct sp_err *err);
/* init broke the protocol: the sandbox ends. */
void sandbox_bad_record(struct sandbox_link *link, const char *what);
/* Tell init when the sandbox ends (its second line of defence). */
void sandbox_tell_deadline(struct sandbox_link *link);
/* Takes both descriptors of CREATED. */
int sandbox_attach(struct sandbox_link *link, const struct sp_launcher_answer *created, int pidfd,
		   int control, struct sp_err *err);
/* The last of it is gone: close what is open, tell the policy. */
void sandbox_gone(struct sandbox_link *link);
/* message "": the stage and the errno's text say it all. */
void sandbox_create_failed(struct sandbox_link *link, const char *stage, int status,
			   const char *message);

/* It is as its pool wants it: the policy may have it. */
void sandbox_created(struct sandbox_link *link);

/* ---- warmup.c ---- */

bool warmup_wanted(const struct sandbox_link *link);
/* Instead of sandbox_created(), which comes later, or sandbox_create_failed(). */
void warmup_begin(struct sandbox_link *link);
/* A program in it cannot be killed alone, or init does not listen: this creation has failed. */
void warmup_discarded(struct sandbox_link *link);
/* It died: tells the policy at once. */
void warmup_lost(struct sandbox_link *link);
/* Nobody wants it any more, or it is over. Harmless when there is none. Safe inside of the policy's
 * calls. */
void warmup_drop(struct sandbox_link *link);

/* ---- cluster.c, remembered.c, hosts.c ---- */

/* The configured store. */
int cluster_open(struct sp_service *service, struct sp_err *err);
/* What the other hosts are to know of this pool; before its start and after a reload. */
int cluster_tell_pool(struct sp_service *service, const struct config_ref *source, uint32_t index,
		      struct sp_err *err);
void cluster_close(struct sp_service *service);

struct sp_identity;
/* Drawn at the first start. owner: who the files are to belong to. */
int host_secret_get(const char *state_dir, const struct sp_identity *owner,
		    char ret_secret[SP_SECRET_LEN + 1], struct sp_err *err);
/* What is not there or not readable leaves the outputs as they are. */
void intent_load(const char *state_dir, const char *pool, struct sp_store_meta *ret_meta,
		 bool *ret_draining);
int intent_save(const char *state_dir, const char *pool, const struct sp_store_meta *meta,
		bool draining, struct sp_err *err);

/* ---- elsewhere.c: acquires out of the cluster ---- */

/* May this acquire be answered by another host? */
bool elsewhere_possible(const struct sp_service_op *op);
/* Ask the other hosts. 0: under way; negative: they cannot be asked. */
int elsewhere_ask(struct sp_service_op *op, struct sp_err *err);
void elsewhere_done(struct sp_service_op *op);
/* What on_pool_answer() does for a grant of our own pool. */
void op_granted_here(struct sp_service_op *op, struct sp_sandbox *sandbox, bool repeated);
void op_answer_later(struct sp_service_op *op, const struct sp_err *err);
/* Our own pool, with everything that the client permits. */
void op_ask_here(struct sp_service_op *op);

/* ---- acquire.c, bind.c ---- */

int op_check_caller(const struct sp_caller *caller, struct sp_err *err);
/*
 * An acquire for the daemon itself.
 *   1         granted at once: *ret_sandbox
 *   0         *ret_op is under way; granted() comes later, once: a sandbox, or NULL and an error
 *   negative  refused
 */
int op_begin(struct sp_service *service, const struct sp_service_acquire *request,
	     void (*granted)(void *arg, struct sandbox_link *sandbox, const struct sp_err *err),
	     void *arg, struct sp_service_op **ret_op, struct sandbox_link **ret_sandbox,
	     struct sp_err *err);
/* No callback; what was granted to it is released. */
void op_cancel(struct sp_service_op *op);
/* Its sandbox ends while binds are attached. Safe inside of the policy's calls. */
void op_sandbox_lost(struct sp_service_op *op);
/* err NULL: the last bind is attached. Answers at the end of the turn. */
void op_binds_done(struct sp_service_op *op, const struct sp_err *err);

/* Each source to the allowed root that it lies below, lexically; the launcher opens it for real. */
int binds_resolve(const struct sp_config_pool *pool, const struct sp_bind_request *binds,
		  size_t count, struct resolved_bind **ret_binds, struct sp_err *err);
void binds_free(struct resolved_bind *binds, size_t count);
/* Nothing is done about a cut off commit any more. */
void bind_recovery_cancel(struct sp_service_op *op);
/* Attach op's next bind, or finish. */
void binds_next(struct sp_service_op *op);

/* ---- overlay.c ---- */

extern const struct sp_caller daemon_itself;

/* It is attached. */
int overlays_add(struct sandbox_link *link, const struct resolved_bind *bind);
void overlays_free(struct sandbox_link *link);
/* A run did not end by itself: nothing of what it may have written is ever committed. */
void overlays_spoil(const struct sp_exec *exec, enum sp_exec_reason reason);
/* A commit is under way, and this is not a part of it: nothing may start. */
bool overlays_closed(const struct sandbox_link *link);
void overlays_sandbox_lost(struct sandbox_link *link);
/* After the operations on files: nothing is called. */
void overlays_drop_all(struct sp_service *service);
void op_on_mounted(struct sp_service_op *op, int status, const char *stage);

/* ---- isolated.c ---- */

void isolated_sandbox_lost(struct sandbox_link *link);
bool isolated_is_open(const struct sandbox_link *link, uint32_t number);
/* Records of init; false: it broke the protocol. */
bool isolated_on_opened(struct sandbox_link *link, const struct sp_init_status *status);
bool isolated_on_ended(struct sandbox_link *link, const struct sp_init_status *status);

/* ---- upper_usage.c ---- */

int upper_usage_init(struct sp_service *service); /* -ENOMEM */
void upper_usage_done(struct sp_service *service);
bool upper_usage_any(const struct sandbox_link *link);
/* There is one session or overlay more: look at it now and then. */
void upper_usage_watch(struct sp_service *service);
/* Record of init; false: it broke the protocol. */
bool upper_usage_on_used(struct sandbox_link *link, const struct sp_init_used *used);

/* ---- service.c, tombs.c ---- */

/* The sandbox of that id if the caller may use it; NOT_FOUND (same text for unknown and not yours),
 * LEASE_ENDED or SANDBOX_DEAD for one that has ended. */
int service_find(struct sp_service *service, const struct sp_caller *caller, const char *id,
		 struct sandbox_link **ret_link, struct sp_err *err);
/* The same for a first claim, which may say for how long (0 = as the directory knows). */
int service_find_for(struct sp_service *service, const struct sp_caller *caller, const char *id,
		     int64_t ttl_ms, struct sandbox_link **ret_link, struct sp_err *err);
void service_info(struct sandbox_link *link, int64_t now_ms, struct sp_sandbox_info *ret);

/* Sandboxes that ended not long ago, so that their holders are told what happened. */
struct tomb {
	char id[SP_SANDBOX_ID_LEN + 1];
	char lease_id[SP_LEASE_ID_LEN + 1];
	enum sp_end_reason reason;
};

void tomb_add(struct sp_service *service, const struct sp_sandbox *sandbox);
const struct tomb *tomb_find(const struct sp_service *service, const char *id);

/* ---- freeze.c ---- */

/* Its link goes: no answer comes any more. */
void freeze_forget(struct sandbox_link *link);

/* ---- exec.c: life ---- */

struct sp_exec *exec_find(struct sandbox_link *link, uint32_t number);
/* It has started: init said so, or its output or its end did. The started event is given once. */
void exec_begin(struct sp_exec *exec);
void exec_on_started(struct sp_exec *exec, const struct sp_init_status *status, int *fds,
		     size_t fd_count);
void exec_on_start_failed(struct sp_exec *exec, const struct sp_init_status *status);
void exec_on_exited(struct sp_exec *exec, const struct sp_init_exited *exited);
/* The sandbox is dead, or nobody waits for its death any more. Detaches; finishes in this turn. */
void exec_sandbox_lost(struct sp_exec *exec, enum sp_end_reason reason);
/* It never ran: report it as a result. */
void exec_not_started(struct sp_exec *exec, const char *stage, const struct sp_err *err);
/* DRAINING: end it if nothing is left to deliver. Calls the owner; the exec may be gone after it.
 */
void exec_progress(struct sp_exec *exec);
void exec_detach(struct sp_exec *exec);
/* One of the daemon's own, in a sandbox that nobody holds yet. pool: borrowed for the call. */
int exec_start_own(struct sandbox_link *link, const struct sp_config_pool *pool,
		   const struct sp_exec_spec *spec, const struct sp_exec_events *events, void *arg,
		   struct sp_exec **ret_exec, struct sp_err *err);
/* No event any more; it ends with its sandbox, which is ending. */
void exec_abandon(struct sp_exec *exec);
void exec_free(struct sp_exec *exec);

/* ---- exec_record.c, exec_launch.c: start ---- */

/* Builds the record of an exec (defaults, strings, checks) within the pool's limits. */
int exec_record_build(struct sp_exec *exec, const struct sp_config_pool *pool,
		      const struct sp_exec_spec *spec, struct sp_err *err);
void exec_record_free(struct sp_exec *exec);
/* Into the sandbox: at once, or as soon as the sub-cgroup that its timeout needs is there. On error
 * the exec belongs to no sandbox. */
int exec_launch(struct sp_exec *exec, struct sandbox_link *link, struct sp_err *err);
/* Pipes made, record sent. cgroup: NULL = none; taken. */
int exec_send(struct sp_exec *exec, struct exec_cgroup *cgroup, struct sp_err *err);

/* ---- exec_kill.c ---- */

/* Its timeout passed, the client left, its output is too long: kill what it started. */
void exec_kill(struct sp_exec *exec, enum sp_exec_reason reason);
/* Set its timer to whatever comes first: the end of its time, or of the patience with its start. */
void exec_arm(struct sp_exec *exec);
void exec_on_timer(struct sp_timer *timer);

/* ---- exec_cgroup.c ---- */

/* Ask for one if there is none, now or when the answers of this turn are written. */
void spares_want(struct sandbox_link *link);
void exec_hunt_over(struct sandbox_link *link);
void spares_want_later(struct sandbox_link *link);
/* Look into those that were used. */
void spares_tidy(struct sandbox_link *link);
bool spare_take(struct sandbox_link *link, struct exec_cgroup *ret);
void spares_drop(struct sandbox_link *link);
bool spares_possible(const struct sandbox_link *link);
/* Nothing is started in it any more: the launcher removes it once it is empty. Closes its
 * descriptor. */
void exec_cgroup_done(struct sandbox_link *link, struct exec_cgroup *cgroup);
/* The exec in it is over: it is a spare again, or done. */
void exec_cgroup_leave(struct sp_exec *exec);

/* ---- exec_output.c, exec_input.c ---- */

/* Takes both descriptors, also on error; inside_fd -1: none. */
int exec_stream_new(struct sp_exec *exec, int number, int fd, int inside_fd, struct sp_err *err);
void exec_stream_close(struct exec_stream *stream);
/* Poll for what is wanted now: output unless paused, room for stdin if some waits. */
void exec_stream_watch(struct exec_stream *stream);
/* Close what execs have left, or go on draining it if somebody still writes. */
void exec_streams_tidy(struct sandbox_link *link);
/* The main process ended: what it left in the pipes is all that is still delivered. */
void exec_streams_bound(struct sp_exec *exec);
/* Deliver what is there; true when nothing is left to come. */
bool exec_streams_settle(struct sp_exec *exec);
void exec_input_flush(struct sp_exec *exec);
void exec_on_credit(struct sp_deferred *deferred);

/* ---- files.c ---- */

/* The sandbox is dead, or nobody waits for its death any more: its operations on files end. */
void files_sandbox_lost(struct sandbox_link *link);
/* No callback. */
void files_drop_all(struct sp_service *service);

/* ---- cgroup_stat.c ---- */

void cgroup_mounts_find(struct cgroup_mounts *mounts);
/* Both 0 when unknown. */
uint64_t cgroup_oom_kills(const struct cgroup_mounts *mounts, const char *cgroup);
uint64_t cgroup_peak_bytes(const struct cgroup_mounts *mounts, const char *cgroup);
/* The same in two steps, the slow one first. A descriptor or negative errno; 0 when unknown. */
int cgroup_peak_open(const struct cgroup_mounts *mounts, const char *cgroup);
/* Used now; 0 if unknown. */
uint64_t cgroup_memory_bytes(const struct cgroup_mounts *mounts, const char *cgroup);
/* Used since it was made; -1 if unknown. */
int64_t cgroup_cpu_ns(const struct cgroup_mounts *mounts, const char *cgroup);
uint64_t cgroup_peak_read(int fd);

/* ---- secrets.c ---- */

/* Hex SHA-256 of the secret as it is written. -EINVAL: empty or longer than SP_SECRET_TEXT_MAX. */
int secret_lease_id(const char *secret, char *ret_lease_id);
bool secret_opens(const char *secret, const char *lease_id);

/* ---- daemon_metrics.c ---- */

int daemon_metrics_init(struct sp_service *service, struct sp_err *err);
extern const struct sp_pool_events daemon_pool_events; /* arg: struct daemon_pool */
/* A failed creation of this pool was logged a moment ago; the next one is only counted. */
bool metrics_failure_told(const struct daemon_pool *pool);
void metrics_create_stage(struct daemon_pool *pool, const char *stage, double seconds);
void metrics_acquire_seconds(struct sp_service *service, const char *pool, double seconds);
void metrics_store_command(struct sp_service *service, const char *name, double seconds,
			   bool failed);
void metrics_file(struct sp_service *service, const char *pool, const char *operation,
		  const char *result, double seconds);
void metrics_exec(struct sp_service *service, const char *pool,
		  const struct sp_exec_result *result);
void metrics_isolated_run(struct sp_service *service, const char *pool,
			  const struct sp_exec_result *result);

/* ---- the process: notify.c, state_dir.c, privileges.c, reload.c, start.c, stop.c ---- */

void notify_init(struct sp_service *service);
void notify_done(struct sp_service *service);
void notify_send(struct sp_service *service, const char *text);
void notify_reloading(struct sp_service *service);
/* 0 = no watchdog. */
int64_t notify_watchdog_ms(void);

/* Create if missing (0700, owner's) and lock; -EBUSY when another daemon has it. */
int state_dir_lock(const char *path, uint32_t owner_uid, uint32_t owner_gid, int *ret_fd,
		   struct sp_err *err);

struct sp_identity {
	uint32_t uid;
	uint32_t gid;
	uint32_t *groups; /* malloc'ed */
	size_t group_count;
};

/* "" = who we are. */
int identity_resolve(const char *user, struct sp_identity *ret, struct sp_err *err);
void identity_done(struct sp_identity *identity);
int privileges_drop(const struct sp_identity *identity, struct sp_err *err);
int privileges_check(const struct sp_identity *identity, struct sp_err *err);

int reload_begin(struct sp_service *service, void (*cb)(void *arg, const struct sp_err *err),
		 void *arg, struct sp_err *err);
/* Answered with UNAVAILABLE. */
void reload_abort(struct sp_service *service);
/* Not answered. */
void reload_drop(struct sp_service *service);
/* The resolved configuration that the launcher sent. */
int config_read(int fd, struct config_ref **ret_config, struct sp_err *err);
/* Is this CONFIG a good one? Else err has the compiler's messages. */
int config_answer_check(const struct sp_launcher_answer *answer, const int *fds, size_t fd_count,
			struct sp_err *err);
/* The key that differs though only a restart may change it, or NULL. */
const char *reload_restart_key(const struct sp_config *old, const struct sp_config *new);

int signals_init(struct sp_service *service, struct sp_err *err);
/* Something ended: look, at the end of the turn, whether a stop or a removal is through. */
void stop_progress(struct sp_service *service);
void stop_on_progress(struct sp_deferred *deferred);
void stop_on_timer(struct sp_timer *timer);
void stop_fatal(struct sp_service *service, const char *why);
/* Close its socket if that is still ours, and wait (bounded) for its end. */
void reap_launcher(struct sp_service *service);
/* A handle of the service itself is closed. */
void service_handle_closed(struct sp_service *service);

#endif
