/*
 * What execd keeps for one sandbox, and what its handlers share: commands, shell sessions, contexts
 * of code. All of it is in the daemon's memory, bounded, and gone with the sandbox.
 *
 * How much: SP_EXECD_COMMANDS_MAX commands are remembered, the oldest that have ended are forgotten
 * first; of a background command's output the last SP_EXECD_LOG_MAX bytes, of all in one sandbox
 * together SP_EXECD_LOGS_MAX; of a command's text the first SP_EXECD_CONTENT_MAX bytes.
 */
#ifndef SP_API_EXECD_H
#define SP_API_EXECD_H

#include "supervisor/api/api_private.h"
#include "supervisor/api/execd_events.h"
#include "supervisor/api/execd_tail.h"

#include <jansson.h>

#define SP_EXECD_ID_LEN       32u
#define SP_EXECD_COMMANDS_MAX 256u
#define SP_EXECD_SESSIONS_MAX 32u
#define SP_EXECD_CONTEXTS_MAX 16u
#define SP_EXECD_LOG_MAX      (1u << 20)
#define SP_EXECD_LOGS_MAX     (8u << 20)
#define SP_EXECD_CONTENT_MAX  (16u * 1024)
#define SP_EXECD_STATE_MAX    (512u * 1024) /* what one shell session keeps between its runs */
#define SP_EXECD_WAITING_MAX  16u           /* runs that wait for their session */
#define SP_EXECD_ENV_MAX      1024u         /* variables of one request */
#define SP_EXECD_PATIENCE_MS  3000u         /* between the signal of an interrupt and the kill */
#define SP_EXECD_AGAIN_MS     1000u         /* between two signals of a session's interrupt */
#define SP_SHELL_PIECE_MAX    (96u * 1024)
#define SP_SHELL_PIECES_MAX   10u

enum sp_execd_probe {
	SP_PROBE_UNKNOWN, /* … or not yet */
	SP_PROBE_NO_OVERLAY,
	SP_PROBE_ALL,
};

struct sp_execd {
	struct sp_os_attachment attachment;
	struct sp_os_sandbox *os; /* referenced */
	struct sp_api *api;
	struct sp_list commands; /* oldest first */
	size_t command_count;
	size_t log_bytes; /* memory of their tails */
	struct sp_list sessions;
	size_t session_count; /* without isolated ones */
	struct sp_list isolated;
	size_t isolated_count;
	enum sp_execd_probe isolation; /* what the sandbox has shown that it can */
	struct sp_list contexts;
	size_t context_count;
	/* Of code that names a language and no context; "" before the first. */
	char default_python[SP_EXECD_ID_LEN + 1];
	char default_shell[SP_EXECD_ID_LEN + 1];
	bool no_bash; /* its root has none */
	/* /metrics: what was seen last */
	int64_t seen_ns;
	int64_t seen_cpu_ns;
	double cpu_percent;
};

/* The one of the request's sandbox, made at its first use. NULL: an error was answered. */
struct sp_execd *sp_execd_of(struct sp_request *request);

/* The same; NULL: nothing has used it yet. */
struct sp_execd *sp_execd_find(const struct sp_os_sandbox *os);

/* 32 random hex digits and a NUL. */
void sp_execd_id_new(char text[SP_EXECD_ID_LEN + 1]);

/* ---- what a body asks for ---- */

/* Where and with what a program runs; filled by the two below. */
struct sp_execd_place {
	char *cwd;        /* NULL: as the sandbox has it */
	const char **env; /* the sandbox's, then the request's */
	size_t envc;
	char **own; /* strings of `env` that belong to it */
	size_t own_count;
};

/* envs: object of strings, or NULL. INVALID_ARGUMENT, -ENOMEM. */
int sp_execd_place_env(struct sp_execd_place *place, const struct sp_os_sandbox *os,
		       const json_t *envs, struct sp_err *err);
/* The same over other variables than the sandbox's, borrowed for the life of the place. */
int sp_execd_place_env_over(struct sp_execd_place *place, const char *const *env, size_t envc,
			    const json_t *envs, struct sp_err *err);
/* After the former: `~` and variables are expanded with its values. NULL: none was given. */
int sp_execd_place_cwd(struct sp_execd_place *place, const char *cwd, struct sp_err *err);
void sp_execd_place_done(struct sp_execd_place *place);

/* ---- execd_program.c: one program with its shell, output to an event stream ---- */

/* What an exec's end is called. */
struct sp_execd_outcome {
	int exit_code;                 /* -1: it has none */
	char text[SP_ERR_MESSAGE_MAX]; /* "exit status 7", "signal: killed"; "" for 0 */
};

void sp_execd_outcome(const struct sp_exec_result *result, struct sp_execd_outcome *ret);
/* The start failed: -EINVAL (INVALID_ARGUMENT) for a directory that cannot be entered, else
 * EXEC_START_FAILED. */
int sp_execd_start_error(const struct sp_exec_result *result, const char *cwd, struct sp_err *err);
void sp_execd_fail_with(struct sp_events *events, const struct sp_execd_outcome *outcome);

/*
 * An exec of a shell: bash, or sh where there is no bash. The owner embeds it, fills the upper
 * part, and hears the events of service.h as if there were one exec.
 */
struct sp_shell {
	struct sp_execd *execd;
	struct sp_exec_spec spec; /* but for argv; what it borrows must live until started */
	/* NULL: the text is the program. Else this is, which finds the text in $2 … $11, in pieces,
	 * and what it has to do with which shell in $1. */
	const char *script;
	const char *bash_setup;
	const char *sh_setup;
	const struct sp_exec_events *events;
	void *arg;

	struct sp_exec *exec; /* NULL: does not run */
	bool is_sh;
	char *pieces[SP_SHELL_PIECES_MAX + 1]; /* of the text; the kernel has a limit for each */
};

/* text is copied. INVALID_ARGUMENT: longer than can be given to a program. On failure nothing is
 * left to be done. */
int sp_shell_start(struct sp_shell *shell, const char *text, struct sp_err *err);
/* No event after this. Harmless when it does not run. */
void sp_shell_cancel(struct sp_shell *shell);

/* ---- execd_session.c: shell sessions, which are also the shell's contexts of code ---- */

struct sp_session;

/* NULL: there are SP_EXECD_SESSIONS_MAX already, or no memory; err says which. cwd: where its first
 * run begins; NULL: as the sandbox has it. A context is none that /session/ID finds. */
struct sp_session *sp_session_new(struct sp_execd *execd, bool is_context, const char *cwd,
				  struct sp_err *err);

/* One of an isolated session, whose owner looks after it: no route finds it, it counts among none.
 */
struct sp_session_owner {
	uint32_t number;        /* daemon/isolated.h */
	const char *cwd;        /* where its first run begins */
	const char *const *env; /* of its first run; all borrowed for its life */
	size_t envc;
	int64_t uid, gid; /* -1: the workload's */
	/* Before the client hears of it; reason KILLED also when it leaves. */
	void (*run_ended)(void *arg, enum sp_exec_reason reason);
	void *arg;
};

struct sp_session *sp_session_new_isolated(struct sp_execd *execd, const char *id,
					   const struct sp_session_owner *owner,
					   struct sp_err *err);
/* Variables for one run (an object of strings, or NULL), which then leaves nothing behind. Answers.
 */
void sp_session_run_isolated(struct sp_session *session, struct sp_request *request,
			     const char *text, const json_t *envs, int64_t timeout_ms);
bool sp_session_is_busy(const struct sp_session *session);
void sp_session_free(struct sp_session *session);
const char *sp_session_id(const struct sp_session *session);
/* Of /session, and a context of code, by its id; NULL: none. */
struct sp_session *sp_session_find(struct sp_execd *execd, const char *id);
struct sp_session *sp_session_find_context(struct sp_execd *execd, const char *id);
struct sp_session *sp_session_first_context(struct sp_execd *execd);
struct sp_session *sp_session_next_context(struct sp_session *session);
/* The code runs when those before it are through, in a context only if there are none. Answers. */
void sp_session_run(struct sp_session *session, struct sp_request *request, const char *text,
		    const char *cwd, int64_t timeout_ms);

/* ---- execd_context.c: contexts of Python ---- */

struct sp_context;

/* Starts the interpreter. On failure there is none. TOO_MANY. */
int sp_context_new(struct sp_execd *execd, const char *cwd, struct sp_context **ret_context,
		   struct sp_err *err);
void sp_context_free(struct sp_context *context);
const char *sp_context_id(const struct sp_context *context);
/* NULL: none. */
struct sp_context *sp_context_find(struct sp_execd *execd, const char *id);
struct sp_context *sp_context_first(struct sp_execd *execd);
struct sp_context *sp_context_next(struct sp_context *context);
/* Answers when the interpreter runs: with `reply`, or with an error when it cannot be started (it
 * is gone then). */
void sp_context_await(struct sp_context *context, struct sp_request *request,
		      void (*reply)(struct sp_request *request, struct sp_context *context));
/* Runs the code. Answers. */
void sp_context_run(struct sp_context *context, struct sp_request *request, const char *text);

/* ---- interrupts by id: DELETE /command and /code ---- */

/* True: there is one of that id that runs, and it was told to end. */
bool sp_command_interrupt(struct sp_execd *execd, const char *id);
bool sp_session_interrupt(struct sp_execd *execd, const char *id);
bool sp_context_interrupt(struct sp_execd *execd, const char *id);

/* ---- the end of the sandbox ---- */

void sp_commands_end(struct sp_execd *execd);
void sp_sessions_end(struct sp_execd *execd);
void sp_isolated_end(struct sp_execd *execd);
void sp_contexts_end(struct sp_execd *execd);

/* ---- execd_command.c, for /code without a language ---- */

/* The body is parsed: run this text as POST /command does. */
void sp_command_run(struct sp_request *request, const char *text, const char *cwd);

#endif
