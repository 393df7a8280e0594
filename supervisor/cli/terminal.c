/*
 * Terminal modes. The saved state is the one global of this program: exit handlers and handlers of
 * fatal signals have no other way to reach it. tcsetattr(3) is async-signal-safe.
 */
#include "supervisor/cli/terminal.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static struct {
	volatile sig_atomic_t changed;
	bool registered;
	int fd;
	struct termios before;
} saved;

/* TCSANOW: a terminal that nobody reads must not hold up our exit. From the background, tcsetattr
 * would stop us (SIGTTOU) with the terminal still raw. */
static int set_attributes(int fd, const struct termios *attributes)
{
	sigset_t block;
	sigset_t before;
	int status;

	(void)sigemptyset(&block);
	(void)sigaddset(&block, SIGTTOU);
	(void)sigprocmask(SIG_BLOCK, &block, &before);
	do {
		status = tcsetattr(fd, TCSANOW, attributes) < 0 ? -errno : 0;
	} while (status == -EINTR);
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
	return status;
}

void sp_cli_terminal_restore(void)
{
	int before = errno;

	if (saved.changed) {
		saved.changed = 0;
		(void)set_attributes(saved.fd, &saved.before);
	}
	errno = before;
}

/* SA_RESETHAND: the instruction that faulted runs again, and this time it kills us as it should. */
static void on_fault(int number)
{
	sp_cli_terminal_restore();
	(void)raise(number);
}

static void register_restore(void)
{
	static const int faults[] = {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS};
	struct sigaction action = {.sa_handler = on_fault, .sa_flags = (int)SA_RESETHAND};

	if (saved.registered)
		return;
	saved.registered = true;
	for (size_t i = 0; i < SP_ARRAY_SIZE(faults); i++)
		(void)sigaction(faults[i], &action, NULL);
	if (atexit(sp_cli_terminal_restore) != 0)
		abort();
}

int sp_cli_terminal_enter(int fd, enum sp_cli_terminal_mode mode)
{
	struct termios wanted;
	int status;

	if (tcgetattr(fd, &wanted) < 0)
		return -errno;
	if (!saved.changed) {
		saved.fd = fd;
		saved.before = wanted;
	}
	register_restore();
	if (mode == SP_CLI_TERMINAL_RAW)
		cfmakeraw(&wanted);
	else
		wanted.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	wanted.c_cc[VMIN] = 1;
	wanted.c_cc[VTIME] = 0;
	saved.changed = 1;
	status = set_attributes(fd, &wanted);
	if (status < 0)
		sp_cli_terminal_restore();
	return status;
}

bool sp_cli_terminal_size(int fd, uint16_t *ret_rows, uint16_t *ret_columns)
{
	struct winsize size;

	if (ioctl(fd, TIOCGWINSZ, &size) < 0 || size.ws_row == 0 || size.ws_col == 0)
		return false;
	*ret_rows = size.ws_row;
	*ret_columns = size.ws_col;
	return true;
}
