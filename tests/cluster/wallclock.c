/*
 * LD_PRELOAD: a wall clock that is wrong by as much as a file says, and may be changed while the
 * program runs. The file, named by SP_WALLCLOCK, holds the offset in nanoseconds as one int64_t; it
 * is mapped, so writing it moves the clock at once.
 *
 * Only what asks libc for CLOCK_REALTIME sees it: CLOCK_BOOTTIME and CLOCK_MONOTONIC stay true, as
 * they do when an administrator or NTP sets the time.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define VISIBLE __attribute__((visibility("default")))

static const volatile int64_t *offset_ns;

__attribute__((constructor)) static void map_offset(void)
{
	const char *path = getenv("SP_WALLCLOCK");
	void *map;
	int fd;

	if (!path)
		return;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		abort();
	map = mmap(NULL, sizeof(*offset_ns), PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (map == MAP_FAILED)
		abort();
	offset_ns = map;
}

VISIBLE int clock_gettime(clockid_t clock, struct timespec *ret)
{
	int64_t ns;

	if (syscall(SYS_clock_gettime, clock, ret) != 0)
		return -1;
	if (!offset_ns || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
		return 0;
	ns = (int64_t)ret->tv_sec * 1000000000 + ret->tv_nsec + *offset_ns;
	ret->tv_sec = ns / 1000000000;
	ret->tv_nsec = ns % 1000000000;
	return 0;
}

VISIBLE int gettimeofday(struct timeval *restrict ret, void *restrict zone)
{
	struct timespec now;

	(void)zone;
	if (clock_gettime(CLOCK_REALTIME, &now) != 0)
		return -1;
	ret->tv_sec = now.tv_sec;
	ret->tv_usec = now.tv_nsec / 1000;
	return 0;
}

VISIBLE time_t time(time_t *ret)
{
	struct timespec now;

	if (clock_gettime(CLOCK_REALTIME, &now) != 0)
		return -1;
	if (ret)
		*ret = now.tv_sec;
	return now.tv_sec;
}
