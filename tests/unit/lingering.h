/*
 * The descriptor that nobody wants to close.
 */
#ifndef SP_TESTS_LINGERING_H
#define SP_TESTS_LINGERING_H

#include <criterion/criterion.h>
#include <netinet/in.h>
#include <sys/socket.h>

/* A TCP socket whose last close(2) waits a minute for a peer that does not read. */
static inline int lingering_socket(int *ret_listener)
{
	const struct linger linger = {.l_onoff = 1, .l_linger = 60};
	struct sockaddr_in address = {.sin_family = AF_INET};
	socklen_t length = sizeof(address);
	static char data[65536];
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	*ret_listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert(fd >= 0 && *ret_listener >= 0);
	cr_assert(bind(*ret_listener, (struct sockaddr *)&address, sizeof(address)) == 0 &&
		  listen(*ret_listener, 1) == 0 &&
		  getsockname(*ret_listener, (struct sockaddr *)&address, &length) == 0);
	cr_assert(connect(fd, (struct sockaddr *)&address, length) == 0);
	cr_assert(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)) == 0);
	while (send(fd, data, sizeof(data), MSG_DONTWAIT) > 0)
		continue;
	return fd;
}

#endif
