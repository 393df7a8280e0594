/*
 * Payload: print every open descriptor and what it is, without opening one to find out:
 * "FD LINK", one a line.
 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
	for (int fd = 0; fd < 65536; fd++) {
		char path[32], link[512];
		ssize_t length;

		if (fcntl(fd, F_GETFD) < 0)
			continue;
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		length = readlink(path, link, sizeof(link) - 1);
		link[length < 0 ? 0 : length] = '\0';
		printf("%d %s\n", fd, link);
	}
	return 0;
}
