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
#define SP_EXEC_F_ALL     0x07u

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
};

struct sp_init_signal {
	struct sp_init_header header;
	uint32_t signal;
	uint32_t reserved;
};

struct sp_init_mount {
	struct sp_init_header header;
	uint32_t flags;         /* 0 */
	uint32_t target_length; /* without NUL; absolute path follows, NUL-terminated */
};

struct sp_init_deadline {
	struct sp_init_header header;
	int64_t boot_ms; /* INT64_MAX = none */
};

struct sp_init_plain { /* KILL_EXEC, PING, PONG */
	struct sp_init_header header;
};

struct sp_init_status { /* READY, FAILED, STARTED, START_FAILED, KILLED, MOUNTED */
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

#endif
