/*
 * Reads the clocks. clock_gettime() cannot fail for these ids on any kernel that we run on, so a
 * failure is an assertion.
 */
#include "pool/base/clock.h"

#include "pool/base/base.h"

#include <time.h>

static int64_t read_ns(clockid_t id)
{
	struct timespec now = {0};
	int result = clock_gettime(id, &now);

	sp_assert(result == 0);
	return (int64_t)now.tv_sec * SP_NS_PER_S + now.tv_nsec;
}

int64_t sp_clock_boot_ns(void)
{
	return read_ns(CLOCK_BOOTTIME);
}

int64_t sp_clock_boot_ms(void)
{
	return read_ns(CLOCK_BOOTTIME) / SP_NS_PER_MS;
}

int64_t sp_clock_wall_ms(void)
{
	return read_ns(CLOCK_REALTIME) / SP_NS_PER_MS;
}
