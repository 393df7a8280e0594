/*
 * Terminals of execd: what a session (execd_pty.c) and its WebSocket client (pty_client.c) know of
 * each other.
 *
 * A session belongs to a sandbox and lives until it is deleted or the sandbox ends. Its shell
 * starts with the first client, goes on without one, and what it writes meanwhile is kept in the
 * ring; the next client after its end gets another shell. One client at a time has the session
 * (`holder`); it has it from the moment that its handshake is accepted, so that of two that come at
 * once one is refused. Who takes over becomes the holder when its handshake is done, and not
 * before.
 */
#ifndef SP_API_EXECD_PTY_H
#define SP_API_EXECD_PTY_H

#include "supervisor/api/execd.h"

#define SP_PTY_SESSIONS_MAX 16u /* in one sandbox */
#define SP_PTY_CLIENTS_MAX  8u  /* handshakes of one session that are under way, and its holder */
#define SP_PTY_KEPT_MAX     (1u << 20) /* bytes of its output */
#define SP_PTY_ROWS         24u
#define SP_PTY_COLUMNS      80u

struct sp_pty_client;

struct sp_pty {
	struct sp_os_attachment attachment;
	struct sp_api *api;
	struct sp_os_sandbox *os; /* referenced */
	char id[SP_OS_UUID_LEN + 1];
	struct sp_execd_place place;
	char *command; /* NULL: an interactive shell */

	struct sp_exec *exec; /* NULL: no shell */
	bool started;         /* … that runs already */
	bool pipe;            /* it has pipes, not a terminal */
	bool paused;
	size_t stdin_outstanding;
	struct sp_tail output; /* the last SP_PTY_KEPT_MAX bytes of it */

	struct sp_list clients; /* the holder, and those in their handshake */
	size_t client_count;
	struct sp_pty_client *holder;
};

/* ---- execd_pty.c, for the client ---- */

/* Start the shell, which does not run. */
int sp_pty_start(struct sp_pty *pty, bool pipe, struct sp_err *err);
/* Takes as much as fits and returns how much; the holder hears when more does. -EPIPE: nobody
 * reads. */
ssize_t sp_pty_stdin(struct sp_pty *pty, const void *data, size_t len);
/* Stop reading the shell's output, or go on. */
void sp_pty_pause(struct sp_pty *pty, bool pause);

/* ---- pty_client.c, for the session ---- */

/* Answers GET /pty/{key}/ws. */
void sp_pty_client_open(struct sp_request *request, struct sp_pty *pty);
/* Of the holder: the shell runs now. */
void sp_pty_client_started(struct sp_pty_client *client);
void sp_pty_client_output(struct sp_pty_client *client, int stream, const void *data, size_t len);
void sp_pty_client_credit(struct sp_pty_client *client);
void sp_pty_client_exited(struct sp_pty_client *client, int exit_code);
/* Of any client: a frame {"type":"error"}, then the end. */
void sp_pty_client_fail(struct sp_pty_client *client, const char *code, const char *message);
/* The first of pty->clients; NULL if there is none. */
struct sp_pty_client *sp_pty_client_first(const struct sp_pty *pty);

#endif
