/*
 * Payload: print "UID EUID GID EGID". Installed set-uid root in a workspace it shows whether the
 * bit has any effect.
 */
#include <stdio.h>
#include <unistd.h>

int main(void)
{
	printf("%u %u %u %u\n", getuid(), geteuid(), getgid(), getegid());
	return 0;
}
