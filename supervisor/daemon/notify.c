/*
 * sd_notify(3) by hand: one datagram with NAME=value lines to $NOTIFY_SOCKET. Never blocks; a
 * manager that does not read misses a message.
 */
#include "supervisor/daemon/daemon_private.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static int open_socket(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t len = strlen(path);
	int fd;

	if ((path[0] != '/' && path[0] != '@') || len >= sizeof(address.sun_path))
		return -1;
	memcpy(address.sun_path, path, len);
	if (path[0] == '@')
		address.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address,
			       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0)
		sp_fd_close(&fd);
	return fd;
}

void notify_init(struct sp_service *service)
{
	const char *path = getenv("NOTIFY_SOCKET");

	service->notify_fd = path ? open_socket(path) : -1;
	/* Not for the children: the launcher is no service of its own. */
	(void)unsetenv("NOTIFY_SOCKET");
}

void notify_done(struct sp_service *service)
{
	sp_fd_close(&service->notify_fd);
}

void notify_send(struct sp_service *service, const char *text)
{
	if (service->notify_fd >= 0 &&
	    send(service->notify_fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		sp_log(SP_LOG_DEBUG, "service manager does not listen", "errno=%d", errno);
}

void notify_reloading(struct sp_service *service)
{
	struct timespec now = {0};
	char text[96];

	/* Type=notify-reload wants the time of CLOCK_MONOTONIC with it. */
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	(void)snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%lld",
		       (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
	notify_send(service, text);
}

int64_t notify_watchdog_ms(void)
{
	const char *usec = getenv("WATCHDOG_USEC");
	const char *pid = getenv("WATCHDOG_PID");
	long long value = usec ? strtoll(usec, NULL, 10) : 0;

	if (pid && strtoll(pid, NULL, 10) != (long long)getpid())
		return 0;
	/* Twice in its time, as sd_watchdog_enabled(3) advises. */
	return value > 0 ? SP_MAX(value / 2000, 1LL) : 0;
}
