/*
 * Making the launcher, and its first words. Only before the loop runs and while we still have the
 * rights that it needs; afterwards the daemon never forks.
 */
#include "supervisor/daemon/launcher_link.h"

#include "pool/base/fd.h"
#include "supervisor/daemon/daemon_private.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The launcher needs nothing from our environment, and must not be steered by it. */
static const char env_path[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";

static int spawn_program(const struct launcher_spawn *spawn, int socket_fd, pid_t *ret_pid)
{
	const char *journal = getenv("JOURNAL_STREAM");
	char journal_entry[128];
	const char *argv[] = {"sandpool-launcher", "--config", spawn->config_path, NULL};
	const char *env[3] = {env_path, NULL, NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none;
	int result;

	if (journal && snprintf(journal_entry, sizeof(journal_entry), "JOURNAL_STREAM=%s",
				journal) < (int)sizeof(journal_entry))
		env[1] = journal_entry;
	(void)sigemptyset(&none);
	result = posix_spawn_file_actions_init(&actions);
	if (result != 0)
		return -result;
	result = posix_spawnattr_init(&attributes);
	if (result != 0) {
		(void)posix_spawn_file_actions_destroy(&actions);
		return -result;
	}
	/* The source is never the target's number (see launcher_spawn), so dup2 clears CLOEXEC. */
	result = posix_spawn_file_actions_adddup2(&actions, socket_fd, SP_LAUNCHER_FD);
	if (result == 0)
		result = posix_spawnattr_setsigmask(&attributes, &none);
	if (result == 0)
		result = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
	if (result == 0)
		result = posix_spawn(ret_pid, spawn->program, &actions, &attributes,
				     (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)env);
	(void)posix_spawnattr_destroy(&attributes);
	(void)posix_spawn_file_actions_destroy(&actions);
	return -result;
}

int launcher_spawn(const struct launcher_spawn *spawn, int *ret_socket, int *ret_pidfd,
		   struct sp_err *err)
{
	SP_AUTO_CLOSE int ours = -1;
	SP_AUTO_CLOSE int theirs = -1;
	int pair[2];
	pid_t pid = 0;
	int pidfd;
	int status;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return sp_err_set(err, -errno, "make a socket to the launcher");
	ours = pair[0];
	theirs = fcntl(pair[1], F_DUPFD_CLOEXEC, SP_LAUNCHER_FD + 1);
	sp_fd_close(&pair[1]);
	if (theirs < 0)
		return sp_err_set(err, -errno, "make a socket to the launcher");
	status = spawn_program(spawn, theirs, &pid);
	if (status < 0)
		return sp_err_set(err, status, "start the launcher '%s'", spawn->program);
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0)
		return sp_err_set(err, -errno, "open a pidfd of the launcher");
	*ret_pidfd = pidfd;
	*ret_socket = sp_take_fd(&ours);
	return 0;
}

int launcher_hello(int socket_fd, int timeout_ms, int *ret_fd, struct sp_err *err)
{
	const struct sp_launcher_hello hello = {
		.header = {.type = SP_LAUNCHER_HELLO, .request = 1},
		.version = SP_LAUNCHER_PROTOCOL_VERSION,
		.build_id = SP_BUILD_ID,
	};
	struct pollfd waited = {.fd = socket_fd, .events = POLLIN};
	struct sp_launcher_answer answer;
	int fds[SP_MSG_FDS_MAX];
	size_t fd_count = 0;
	ssize_t got;
	int status;

	status = sp_msg_send(socket_fd, &hello, sizeof(hello), NULL, 0);
	if (status < 0)
		return sp_err_set(err, status, "greet the launcher");
	if (poll(&waited, 1, timeout_ms) != 1)
		return sp_err_set(err, -ETIMEDOUT, "wait for the launcher's configuration");
	got = sp_msg_receive(socket_fd, &answer, sizeof(answer), fds, &fd_count);
	if (got <= 0)
		return sp_err_set(err, got < 0 ? (int)got : -EPIPE,
				  "the launcher ended before it had a configuration");
	status = got == (ssize_t)sizeof(answer)
			 ? config_answer_check(&answer, fds, fd_count, err)
			 : sp_err_set(err, -EPROTO, "the launcher's first record");
	if (status == 0)
		*ret_fd = sp_take_fd(&fds[0]);
	for (size_t i = 0; i < fd_count; i++)
		sp_fd_close(&fds[i]);
	return status;
}
