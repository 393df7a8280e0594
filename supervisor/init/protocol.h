/*
 * sandpoold ↔ init (PID 1 of a sandbox), over one SOCK_SEQPACKET pair.
 *
 * init trusts sandpoold with what happens in its own sandbox, but checks every length and index all
 * the same; sandpoold trusts init with nothing: a record of the wrong length, type, exec number or
 * descriptor count ends the sandbox. Native byte order, one record a message. init's end of file on
 * this socket means that it exits and takes the sandbox with it.
 *
 * Result fields come from the kernel through init (waitid, rusage), never from anything a workload
 * can write to.
 */
#ifndef SP_INIT_PROTOCOL_H
#define SP_INIT_PROTOCOL_H

#include <stdint.h>

#define SP_INIT_PROTOCOL_VERSION 1u
#define SP_INIT_EXECS_MAX        64u        /* running at once in one sandbox; EAGAIN beyond */
#define SP_INIT_INLINE_MAX       49152u     /* bytes of strings in the record; more go by memfd */
#define SP_INIT_STRINGS_MAX      (1u << 20) /* argv + env + cwd of one exec */
#define SP_INIT_ARGS_MAX         4096u
#define SP_INIT_ENV_MAX          4096u
#define SP_INIT_RECORD_MAX       65536u
#define SP_INIT_TARGET_MAX       4096u

enum sp_init_type {
	/* sandpoold → init */
	SP_INIT_EXEC = 1,
	SP_INIT_SIGNAL,    /* to the main process of an exec, and its process group */
	SP_INIT_KILL_EXEC, /* without cgroup: SIGKILL to all that this exec started, see KILLED */
	SP_INIT_MOUNT,     /* fd: detached mount; attach it at a target */
	SP_INIT_DEADLINE,  /* the sandbox's end (CLOCK_BOOTTIME ms); init exits 5 s after it */
	SP_INIT_PING,
	SP_INIT_FILE,         /* fd: a socket; see "files and ports" */
	SP_INIT_SESSION_OPEN, /* see "sessions" */
	SP_INIT_SESSION_CLOSE,
	SP_INIT_USAGE, /* how much memory holds what is private to sessions and overlays? */

	/* init → sandpoold */
	SP_INIT_READY = 64, /* confined and waiting */
	SP_INIT_FAILED,     /* set-up failed: stage, errno; init exits after it */
	SP_INIT_STARTED, /* the exec's execve succeeded; fd: pty master if TTY. Not at once: output
			  * or, without TTY, EXITED may be there first and say the same */
	SP_INIT_START_FAILED, /* stage ("cwd", "exec", …) and errno; the exec number is free again
			       */
	SP_INIT_EXITED,       /* main process ended: wait status, usage */
	SP_INIT_KILLED,  /* answer to KILL_EXEC: 0, or -EBUSY: could not tell, kill the sandbox */
	SP_INIT_MOUNTED, /* answer to MOUNT: 0 or negative errno, stage */
	SP_INIT_PONG,
	SP_INIT_SESSION_OPENED, /* answer to SESSION_OPEN: 0 or negative errno, stage */
	SP_INIT_SESSION_ENDED,  /* an open one is over, whoever ended it */
	SP_INIT_USED,           /* answer to USAGE */
};

struct sp_init_header {
	uint32_t type;
	uint32_t
		exec; /* exec number (chosen by sandpoold, unique among the running ones), else 0 */
	uint64_t request;
};

/* EXEC: this, then cwd, argv[argc], env[envc], each NUL-terminated, in the record or in the memfd.
 */
#define SP_EXEC_F_TTY     0x01u /* no descriptors for 0-2: init opens a pty, its master goes out */
#define SP_EXEC_F_CGROUP  0x02u /* one more descriptor: directory of a cgroup to start in */
#define SP_EXEC_F_STRINGS 0x04u /* one more descriptor: sealed memfd with the strings */
#define SP_EXEC_F_AWAITED 0x08u /* STARTED is what somebody waits for: not later than it must */
#define SP_EXEC_F_ALL     0x0fu

/* Descriptor order: stdin, stdout, stderr (unless TTY), cgroup, strings. */

struct sp_init_exec {
	struct sp_init_header header;
	uint32_t flags;
	uint32_t uid; /* inside; must be mapped; 0 is refused in a sandbox with one-uid map too */
	uint32_t gid;
	uint32_t argc; /* >= 1 */
	uint32_t envc;
	uint32_t strings_length;
	uint16_t rows;
	uint16_t columns;
	uint32_t umask;         /* 0022 by default */
	uint64_t rlimit_nofile; /* 0 = the pool's; never above it */
	uint64_t rlimit_fsize;
	uint64_t rlimit_cpu_s;    /* 0 = none */
	int64_t deadline_boot_ms; /* as in DEADLINE, and kept like that; 0 = as it was */
	uint32_t session;         /* in which it runs; 0 = the sandbox itself */
	uint32_t reserved;
};

struct sp_init_signal {
	struct sp_init_header header;
	uint32_t signal;
	uint32_t reserved;
};

/* What comes with it is the base of an overlay that is attached: header.exec is its number, which
 * no other one has. */
#define SP_INIT_MOUNT_F_OVERLAY 0x01u
#define SP_INIT_OVERLAYS_MAX    8u /* of one sandbox, numbered from 1 */

struct sp_init_mount {
	struct sp_init_header header;
	uint32_t flags;
	uint32_t target_length; /* without NUL; absolute path follows, NUL-terminated */
	uint64_t size;          /* OVERLAY: bytes that may be written; else 0 */
};

struct sp_init_deadline {
	struct sp_init_header header;
	int64_t boot_ms; /* INT64_MAX = none */
};

struct sp_init_plain { /* KILL_EXEC, PING, PONG, SESSION_CLOSE, USAGE */
	struct sp_init_header header;
};

struct sp_init_used {
	struct sp_init_header header;
	uint64_t bytes; /* of all uppers together, and of open sessions' /tmp, /run, /dev/shm */
};

struct sp_init_status { /* READY, FAILED, STARTED, START_FAILED, KILLED, MOUNTED, SESSION_* */
	struct sp_init_header header;
	int32_t status; /* 0 or negative errno */
	uint32_t pid;   /* STARTED: inside */
	char stage[32];
	uint64_t elapsed_ns; /* READY: since init began; by stage in the launcher's metrics */
};

struct sp_init_exited {
	struct sp_init_header header;
	uint32_t code;  /* CLD_EXITED, CLD_KILLED, CLD_DUMPED of waitid(2) */
	uint32_t value; /* exit code or signal */
	uint64_t user_us;
	uint64_t system_us;
	uint64_t max_rss_kib;
};

/*
 * ---- sessions ----
 *
 * A session is a set of namespaces inside the sandbox's (pid, mount, ipc, uts, cgroup, net if not
 * shared) whose first process is init's: it reaps, and everything in the session ends with it.
 * header.exec is the session's number in all four records.
 *
 * SESSION_OPEN is followed by strings, each NUL-terminated: the workspace, the allowed roots, the
 * writable paths, and for each bind its source and its target. Absolute, inside the sandbox.
 */
#define SP_INIT_SESSIONS_MAX      32u
#define SP_INIT_SESSION_PATHS_MAX 32u /* of each list; of binds as many pairs */

#define SP_SESSION_F_PRIVATE_TMP 0x01u /* else /tmp is the sandbox's */
#define SP_SESSION_F_OWN_NETWORK 0x02u
#define SP_SESSION_F_ALL         0x03u

enum sp_init_session_mode {
	SP_INIT_SESSION_RW = 1,
	SP_INIT_SESSION_RO,
	SP_INIT_SESSION_OVERLAY, /* the workspace is not touched */
};

struct sp_init_session_open {
	struct sp_init_header header;
	uint32_t flags;
	uint32_t mode;
	uint32_t uid; /* whose permissions count when paths are looked up */
	uint32_t gid;
	uint32_t allowed_count;
	uint32_t writable_count;
	uint32_t bind_count;
	uint32_t strings_length;
	uint64_t read_only_binds; /* bit i: bind i */
	uint64_t upper_bytes;     /* that what is private in it may hold; 0: as the pool's tmp */
};

/*
 * ---- files and ports ----
 *
 * FILE: one operation, or one connection, done inside by a helper that init forks for it. It comes
 * with one end of a fresh SOCK_SEQPACKET pair, the channel; everything else goes over that. The
 * last record from inside is RESULT: the helper's, or init's if the helper could not be started or
 * has died. The end of the channel without a RESULT means the same as one with ECANCELED. When
 * sandpoold closes its end, init kills the helper.
 *
 * Trust is as above: sandpoold believes nothing that comes over a channel.
 */
#define SP_INIT_PATH_MAX      4096u      /* with NUL */
#define SP_INIT_FILES_MAX     64u        /* helpers at once; EAGAIN beyond */
#define SP_INIT_FILE_REPLY    16384u     /* longest record from inside */
#define SP_INIT_FILE_DATA_MAX 65536u     /* bytes of one DATA */
#define SP_INIT_FILE_TELL_MS  1000       /* a helper that works on says so this often */
#define SP_INIT_FILE_STALL_S  35         /* and ends by itself after as long without progress */
#define SP_INIT_FILE_KEEP     UINT32_MAX /* of a mode, owner or group */
#define SP_INIT_FILE_MODE     01777u
#define SP_INIT_FILE_ENTRIES  1000000u /* highest limit of a LIST */

enum sp_init_file_kind {
	SP_INIT_FILE_STAT = 1,
	SP_INIT_FILE_OPEN, /* RESULT has a descriptor: a regular file, for reading */
	SP_INIT_FILE_LIST, /* ENTRIES, then RESULT */
	SP_INIT_FILE_MKDIR,
	SP_INIT_FILE_REMOVE,
	SP_INIT_FILE_MOVE, /* path, then the second path */
	SP_INIT_FILE_CHANGE,
	SP_INIT_FILE_WRITE,   /* takes DATA, then COMMIT */
	SP_INIT_FILE_CONNECT, /* no path; RESULT has a descriptor: a connected stream socket */
	SP_INIT_FILE_DIFF,    /* of an overlay; the path is of no interest; as OPEN */

	/* Of an overlay as well. What runs where it is mounted is killed before these two. */
	SP_INIT_FILE_WRITE_BACK, /* commit: its changes go to its base; RESULT has counts, object */
	SP_INIT_FILE_RENEW,      /* … after it: an empty upper, on the base as it is now */
	/* A commit that was cut off is completed, or forgotten: in the base of an overlay (which
	 * must not be in use), or, if none is named, in the directory that the path names. */
	SP_INIT_FILE_RECOVER,
	SP_INIT_FILE_USED, /* of an overlay: RESULT's size is what its upper holds */
};

#define SP_INIT_FILE_F_RECURSIVE 0x01u /* REMOVE: a directory with all that is in it */
#define SP_INIT_FILE_F_REPLACE   0x02u /* MOVE: what is at the second path may go */
#define SP_INIT_FILE_F_ACCOUNTS  0x04u /* STAT, LIST: ACCOUNTS comes before anything else */
#define SP_INIT_FILE_F_UNUSED    0x08u /* RENEW: right after it was made; nothing is killed */

struct sp_init_file {
	struct sp_init_header header;
	uint32_t kind;
	uint32_t flags;
	uint32_t uid; /* as whom, inside */
	uint32_t gid;
	uint32_t mode; /* MKDIR, CHANGE, WRITE; else KEEP, as the next two */
	uint32_t owner;
	uint32_t group;
	uint32_t depth;       /* LIST: levels below the path, else 0 */
	uint32_t limit;       /* LIST, WRITE_BACK: entries, E2BIG beyond; else 0 */
	uint32_t port;        /* CONNECT, else 0 */
	uint32_t session;     /* in which it is done; 0 = the sandbox itself */
	uint32_t overlay;     /* DIFF and what follows it: which of the sandbox's own, from 1;
			       * 0: the session's; else 0 */
	uint32_t path_length; /* without NUL; absolute, NUL-terminated, right behind this */
	uint32_t to_length;   /* MOVE: the same, behind it; else 0 and nothing */
};

enum sp_init_file_type {
	SP_INIT_FILE_REGULAR,
	SP_INIT_FILE_DIR,
	SP_INIT_FILE_LINK,
	SP_INIT_FILE_ELSE
};

struct sp_init_file_info {
	uint32_t type;
	uint32_t mode; /* 07777 */
	uint32_t uid;  /* inside */
	uint32_t gid;
	uint64_t size;
	uint64_t inode;
	int64_t modified_ns;
	int64_t changed_ns;
};

enum sp_init_file_record {
	/* into the sandbox */
	SP_INIT_FILE_DATA = 1, /* bytes follow */
	SP_INIT_FILE_COMMIT,

	/* out of it */
	SP_INIT_FILE_PROGRESS = 64, /* nothing but "still at work" */
	SP_INIT_FILE_FOUND,         /* count × entry */
	SP_INIT_FILE_RESULT,
	SP_INIT_FILE_ACCOUNTS,
};

struct sp_init_file_record_header {
	uint32_t type;
	uint32_t count; /* FOUND: entries; else 0 */
};

/* Its path, relative to the listed directory, follows, NUL-terminated; the next one begins at a
 * multiple of 8 bytes. */
struct sp_init_file_entry {
	struct sp_init_file_info info;
	uint32_t path_length;
	uint32_t reserved;
};

/* What the account files are there; all zero: there is none, or none that can be looked at. */
struct sp_init_file_accounts {
	struct sp_init_file_record_header header;
	struct sp_init_file_info users;
	struct sp_init_file_info groups;
};

struct sp_init_file_counts {
	uint64_t files; /* all that are no directories */
	uint64_t directories;
	uint64_t deleted;
	uint64_t bytes;
};

#define SP_INIT_FILE_OBJECT 256u

struct sp_init_file_result {
	struct sp_init_file_record_header header;
	int32_t status; /* 0 or negative errno */
	uint32_t reserved;
	char stage[32];
	struct sp_init_file_info info;     /* STAT, OPEN, USED */
	struct sp_init_file_counts counts; /* WRITE_BACK */
	/* WRITE_BACK, RECOVER: the entry that it failed at, below the base; cut off, NUL-terminated
	 */
	char object[SP_INIT_FILE_OBJECT];
};

/*
 * Of a WRITE_BACK that failed. Every one leaves the base as it was, but for APPLY: that has been
 * decided, and the next RECOVER completes it.
 */
#define SP_INIT_COMMIT_BASE       "base"       /* ESTALE: somebody else has changed it */
#define SP_INIT_COMMIT_CLOCK      "clock"      /* ESTALE: was set back, so nobody can tell */
#define SP_INIT_COMMIT_FILESYSTEM "filesystem" /* EOPNOTSUPP: a base that cannot be compared */
#define SP_INIT_COMMIT_APART      "apart"      /* EXDEV: a subvolume, which cannot be written to */
#define SP_INIT_COMMIT_LIMIT      "limit"      /* E2BIG */
#define SP_INIT_COMMIT_BUSY       "busy"       /* EBUSY: what runs there does not end */
#define SP_INIT_COMMIT_LOCKED     "locked"     /* EBUSY: another one is at work on that base */
#define SP_INIT_COMMIT_RESERVED   "reserved"   /* EEXIST: the upper has a name that is ours */
#define SP_INIT_COMMIT_OWNER      "owner"      /* EPERM: the workload may not do this in the base */
#define SP_INIT_COMMIT_KIND       "kind"       /* EINVAL: a device */
#define SP_INIT_COMMIT_JOURNAL    "journal"    /* EBADMSG: what is left in the base is none */
#define SP_INIT_COMMIT_APPLY      "apply"      /* any */

/* File systems whose files are no data: reading one may block, never end, or tell of the kernel.
 * Neither side serves them. */
static inline int sp_init_file_pseudo(long magic)
{
	static const long magics[] = {
		0x9fa0,     /* proc */
		0x62656572, /* sysfs */
		0x27e0eb,   /* cgroup */
		0x63677270, /* cgroup2 */
		0x64626720, /* debugfs */
		0x74726163, /* tracefs */
		0x73636673, /* securityfs */
		0xcafe4a11, /* bpf */
		0x1cd1,     /* devpts */
		0x6e736673, /* nsfs */
		0x50495045, /* pipefs */
		0x534f434b, /* sockfs */
		0x09041934, /* anonymous inodes */
		0x6165676c, /* pstore */
		0xde5e81e4, /* efivarfs */
		0x42494e4d, /* binfmt_misc */
		0x62656570, /* configfs */
		0xf97cff8c, /* selinuxfs */
		0x43415d53, /* smackfs */
		0x19800202, /* mqueue */
		0x67596969, /* rpc_pipefs */
		0x65735543, /* fusectl */
	};

	for (unsigned int i = 0; i < sizeof(magics) / sizeof(magics[0]); i++)
		if ((magic & 0xffffffffL) == magics[i])
			return 1;
	return 0;
}

#endif
