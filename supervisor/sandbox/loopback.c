/*
 * A new network namespace has one interface, and it is down: servers on 127.0.0.1 would not work.
 * The kernel gives `lo` its addresses itself when it comes up.
 */
#include "supervisor/sandbox/loopback.h"

#include "pool/base/fd.h"

#include <errno.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

int sp_loopback_up(void)
{
	SP_AUTO_CLOSE int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};

	if (fd < 0)
		return -errno;
	if (ioctl(fd, SIOCSIFFLAGS, &request) != 0)
		return -errno;
	return 0;
}
