/*
 * State of the main process, shared by its files. All of it is static or mapped once at start: the
 * heap never grows. One thread, one epoll; each file owns what its section names.
 *
 *	serve.c      the daemon's socket: table of permitted messages, answers
 *	sandboxes.c  records of sandboxes: create, kill, reap, remove, sub-cgroups
 *	spawn_link.c queues to the spawner and its answers
 *	loader.c     tables: compile, open sources, prepare, adopt
 *	bind_link.c  queue to the binder, its deadline and replacement
 *	helpers.c    the forked processes and their ends
 */
#ifndef SP_LAUNCHER_PRIVATE_H
#define SP_LAUNCHER_PRIVATE_H

#include "pool/base/list.h"
#include "supervisor/launcher/instance.h"
#include "supervisor/launcher/spawn.h"
#include "supervisor/launcher/table.h"

#define SP_LAUNCHER_SLOTS      SP_TABLE_SANDBOXES_MAX
#define SP_LAUNCHER_CONFIGS    8  /* tables kept for the sandboxes made from them */
#define SP_LAUNCHER_EXECS      96 /* sub-cgroups of one sandbox: 64 running, spares, dying */
#define SP_LAUNCHER_BINDS      64 /* waiting for the binder; EAGAIN beyond */
#define SP_LAUNCHER_HELPERS    16
#define SP_LAUNCHER_STUCK_MAX  8   /* helpers killed and still not dead; then binds are refused */
#define SP_LAUNCHER_ANSWERS    512 /* not yet taken by the daemon */
#define SP_LAUNCHER_BUSY_MAX   256 /* answers waiting or owed; no requests are read beyond */
#define SP_LAUNCHER_BIND_MS    2000
#define SP_LAUNCHER_COMPILE_MS 30000
#define SP_LAUNCHER_SOURCES_MS 10000
#define SP_LAUNCHER_STOP_MS    10000
#define SP_LAUNCHER_SUSPECT_MS 10000 /* a removal that takes longer is quarantined */
#define SP_LAUNCHER_NO_POOL    UINT32_MAX

/* What an epoll event is about; the index is in the lower half. */
enum sp_launcher_event {
	SP_EVENT_DAEMON = 1,
	SP_EVENT_SIGNAL,
	SP_EVENT_SPAWNER,
	SP_EVENT_SANDBOX, /* index: slot */
	SP_EVENT_HELPER,  /* index: helper */
	SP_EVENT_SOURCES,
	SP_EVENT_BINDER,
};

/* --- tables ---------------------------------------------------------------------------------- */

struct sp_launcher_config {
	uint32_t refs; /* sandboxes made from it, + 1 while it is current, next or loading; 0: free
			*/
	const struct sp_table *table;
	size_t size;
	int table_fd;
	int roots[SP_TABLE_POOLS_MAX][SP_TABLE_ROOTS_MAX]; /* O_PATH; -1: was missing */
};

enum sp_loader_state {
	SP_LOADER_IDLE,
	SP_LOADER_COMPILING,
	SP_LOADER_SOURCES,
	SP_LOADER_PREPARING,
};

struct sp_loader {
	enum sp_loader_state state;
	uint64_t request;
	int64_t deadline_ms;
	struct sp_launcher_config *config; /* being loaded */
	int helper;                        /* compiler or sources, -1 */
	int resolved_fd;
	int messages_fd;
	int source_fd;         /* from the sources process */
	int spawner_source_fd; /* its other socket, on its way to the spawner */
};

/* --- sandboxes ------------------------------------------------------------------------------- */

enum sp_slot_state {
	SP_SLOT_FREE,
	SP_SLOT_CREATING, /* the spawner has it */
	SP_SLOT_RUNNING,
	SP_SLOT_REMOVING, /* reaped; cgroups are being removed */
	SP_SLOT_GONE,     /* clean; GONE waits for room among the answers */
};

enum sp_exec_state {
	SP_EXEC_FREE,
	SP_EXEC_CREATING,
	SP_EXEC_LIVE,
	SP_EXEC_REMOVING, /* asked of the spawner, exactly one answer comes */
	SP_EXEC_STUCK,    /* could not be removed, waits for the slot's retry */
};

struct sp_slot_exec {
	uint32_t number;
	enum sp_exec_state state;
};

struct sp_slot {
	struct sp_list link; /* in free, retries or gone */
	enum sp_slot_state state;
	bool retrying; /* in retries */
	bool killed;
	bool silent;      /* its failure was answered already: no GONE */
	bool quarantined; /* GONE was answered with -EBUSY, still not clean */
	int pidfd;
	int lock_fd;
	struct sp_launcher_config *config;
	uint32_t pool;    /* in config */
	uint32_t counted; /* pool of the current table that it counts for */
	uint64_t serial;
	uint64_t request; /* CREATE's, then KILL's */
	uint32_t uid_slot;
	uint32_t host_uid_base;
	uint32_t wait_status;
	uint32_t attempts;
	int64_t retry_ms;
	int64_t removing_ms; /* since when */
	uint32_t next_exec;
	struct sp_slot_exec execs[SP_LAUNCHER_EXECS];
	char id[SP_SANDBOX_ID_LEN + 4];
};

/* --- the rest -------------------------------------------------------------------------------- */

struct sp_pending_answer {
	struct sp_launcher_answer record;
	int fds[2]; /* owned */
	uint32_t fd_count;
};

#define SP_SPAWN_QUEUE      32768u /* power of two; more than every slot's one removal and all owed */
#define SP_SPAWN_URGENT_MAX 4096u /* no requests of the daemon are read beyond */

/*
 * Requests in order, none lost. The slow queue is bounded by the slots and SP_LAUNCHER_BUSY_MAX;
 * the other, where a removal is answered before it is done, by reading nothing while it is long.
 */
struct sp_spawn_queue {
	uint32_t head;
	uint32_t tail;
	struct sp_spawn_request items[SP_SPAWN_QUEUE];
};

struct sp_pending_bind {
	uint64_t request;
	uint32_t slot;
	uint64_t serial;
	struct sp_launcher_bind message;
};

struct sp_binder {
	int helper; /* -1: none */
	int socket_fd;
	bool busy; /* has the first of the queue */
	int64_t deadline_ms;
	uint32_t head;
	uint32_t count;
	struct sp_pending_bind queue[SP_LAUNCHER_BINDS];
};

enum sp_helper_kind {
	SP_HELPER_SPAWNER = 1,
	SP_HELPER_COMPILER,
	SP_HELPER_SOURCES,
	SP_HELPER_BINDER,
};

struct sp_helper {
	enum sp_helper_kind kind; /* 0: free */
	int pidfd;
	bool abandoned; /* killed; only waited for */
};

struct sp_launcher {
	/* settings */
	const char *config_path;
	const char *compile_path;
	bool rootless;
	struct sp_own_ids own_ids; /* rootless */

	int daemon_fd;
	int epoll_fd;
	int signal_fd;
	int fd_ceiling;    /* of descriptors, see pool/base/fd.h */
	int life_write_fd; /* open as long as we live */
	struct sp_instance instance;

	bool greeted; /* HELLO came */
	bool stopping;
	int64_t stop_deadline_ms;
	uint32_t daemon_events; /* what epoll waits for on daemon_fd */

	struct sp_helper helpers[SP_LAUNCHER_HELPERS];

	int spawner_fd;
	bool spawner_blocked;
	uint32_t spawner_in_flight; /* of the slow queue */
	struct sp_spawn_queue *urgent;
	struct sp_spawn_queue *slow;

	struct sp_launcher_config configs[SP_LAUNCHER_CONFIGS];
	struct sp_launcher_config *current;
	struct sp_launcher_config *next;
	struct sp_loader loader;
	uint32_t live[SP_TABLE_POOLS_MAX]; /* of current's pools */

	struct sp_slot *slots;  /* SP_LAUNCHER_SLOTS of them, not copied by forks */
	uint32_t slots_touched; /* those beyond were never used */
	uint32_t slots_used;
	struct sp_list free;
	struct sp_list retries;
	struct sp_list gone;
	uint64_t next_serial;

	struct sp_binder binder;

	uint32_t owed; /* requests read whose answer is not queued yet; KILLs are not counted */
	uint32_t answer_head;
	uint32_t answer_count;
	struct sp_pending_answer answers[SP_LAUNCHER_ANSWERS];
};

/* serve.c */

/*
 * Queue the one answer to a request; takes the descriptors. There is room: no request is read
 * while more than SP_LAUNCHER_BUSY_MAX answers are owed or queued.
 */
void sp_launcher_answer(struct sp_launcher *launcher, struct sp_launcher_answer *answer,
			const int *fds, size_t fd_count);
/* SP_LAUNCHER_ERROR. */
void sp_launcher_fail(struct sp_launcher *launcher, uint64_t request, int status, const char *stage,
		      const char *text);
void sp_launcher_done(struct sp_launcher *launcher, uint64_t request);
/* Neither hear it nor answer it any more, and stop. */
void sp_launcher_leave_daemon(struct sp_launcher *launcher, const char *reason);
void sp_launcher_daemon_event(struct sp_launcher *launcher, uint32_t events);
/* Send what is queued, and set what epoll waits for. Once per turn of the loop. */
void sp_launcher_flush(struct sp_launcher *launcher);

/* sandboxes.c */
int sp_slots_init(struct sp_launcher *launcher, struct sp_err *err);
void sp_slots_create(struct sp_launcher *launcher, const struct sp_launcher_create *message);
void sp_slots_created(struct sp_launcher *launcher, const struct sp_spawn_answer *answer, int *fds,
		      size_t fd_count);
void sp_slots_kill(struct sp_launcher *launcher, const struct sp_launcher_command *message);
void sp_slots_kill_all(struct sp_launcher *launcher);
void sp_slots_exited(struct sp_launcher *launcher, uint32_t index);
void sp_slots_removed(struct sp_launcher *launcher, const struct sp_spawn_answer *answer);
void sp_slots_exec(struct sp_launcher *launcher, const struct sp_launcher_command *message);
void sp_slots_exec_created(struct sp_launcher *launcher, const struct sp_spawn_answer *answer,
			   int *fds, size_t fd_count);
void sp_slots_exec_removed(struct sp_launcher *launcher, const struct sp_spawn_answer *answer);
void sp_slots_freeze(struct sp_launcher *launcher, const struct sp_launcher_command *message);
/* A table has become the current one: count the live ones anew; those that it would make alike are
 * its own from here on. */
void sp_slots_recount(struct sp_launcher *launcher);
/* The running sandbox (slot, serial), or NULL. */
struct sp_slot *sp_slots_find(struct sp_launcher *launcher, uint32_t index, uint64_t serial);
/* Announce those that are gone while the answers have room for it. */
void sp_slots_announce(struct sp_launcher *launcher);
/* Repeat removals whose time has come. Returns when the next one is due (boot ms) or INT64_MAX. */
int64_t sp_slots_retry(struct sp_launcher *launcher, int64_t now_ms);

/* spawn_link.c */
int sp_spawn_start(struct sp_launcher *launcher, int init_fd, struct sp_err *err);
/* May the daemon's requests add to the urgent ones? */
bool sp_spawn_has_room(const struct sp_launcher *launcher);
void sp_spawn_urgent(struct sp_launcher *launcher, const struct sp_spawn_request *request);
void sp_spawn_slow(struct sp_launcher *launcher, const struct sp_spawn_request *request);
void sp_spawn_flush(struct sp_launcher *launcher);
void sp_spawn_event(struct sp_launcher *launcher, uint32_t events);
/* Let the spawner take away the instance's own cgroups, which our end would cut short. */
void sp_spawn_stop(struct sp_launcher *launcher);
/* Forget the creations that the spawner was not given yet; their slots are freed. */
void sp_spawn_cancel_creations(struct sp_launcher *launcher);

/* loader.c */
void sp_loader_init(struct sp_loader *loader);
void sp_loader_begin(struct sp_launcher *launcher, uint64_t request);
void sp_loader_adopt(struct sp_launcher *launcher, const struct sp_launcher_command *message);
void sp_loader_compiled(struct sp_launcher *launcher, int wait_status);
void sp_loader_sources_event(struct sp_launcher *launcher);
void sp_loader_sources_ended(struct sp_launcher *launcher, int index);
void sp_loader_prepared(struct sp_launcher *launcher, const struct sp_spawn_answer *answer);
void sp_loader_cancel(struct sp_launcher *launcher, int status, const char *text);
void sp_config_unref(struct sp_launcher_config *config);

/* bind_link.c */
void sp_binder_request(struct sp_launcher *launcher, const struct sp_launcher_bind *message);
void sp_binder_event(struct sp_launcher *launcher);
void sp_binder_ended(struct sp_launcher *launcher, int index);
void sp_binder_timeout(struct sp_launcher *launcher);
/* Have one ready before it is needed. */
void sp_binder_start(struct sp_launcher *launcher);

/* helpers.c */

/*
 * Fork a helper. 0 in the child, which has nothing open but 0-2 and the descriptors in keep (their
 * numbers unchanged) and dies with us; in the parent its index, or a negative errno: -EAGAIN when
 * the table is full.
 */
int sp_helper_fork(struct sp_launcher *launcher, enum sp_helper_kind kind, const int *keep,
		   size_t keep_count, int *ret_index);
/* SIGKILL it and expect nothing of it any more; its end is waited for in the background. */
void sp_helper_abandon(struct sp_launcher *launcher, int index);
void sp_helper_event(struct sp_launcher *launcher, uint32_t index);
unsigned int sp_helpers_stuck(const struct sp_launcher *launcher);

/* main.c */
int sp_launcher_watch(struct sp_launcher *launcher, int fd, enum sp_launcher_event event,
		      uint32_t index, uint32_t events);
/* Stop watching *fd and close it. Closing alone does not end the watch while another process holds
 * a copy of the same open file, as the daemon does of every pidfd: epoll would report it for ever.
 */
void sp_launcher_unwatch(struct sp_launcher *launcher, int *fd);
/* Kill everything and leave once it is gone. */
void sp_launcher_stop(struct sp_launcher *launcher, const char *reason);

#endif
