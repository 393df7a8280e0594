/*
 * Our clock and Redis'. Ends travel as absolute Redis time, because other hosts compare them there;
 * what they mean is decided by our BOOTTIME alone.
 *
 * The offset comes from the TIME in an answer and the BOOTTIME at its receipt. The answer was made
 * before it was received, so the offset is too small by up to the round trip: ends err early.
 *
 * An offset that an answer cannot tell from its own is kept: the same end is then told in the same
 * words, and what the rotation repeats costs Redis no write.
 */
#include "redis/store_private.h"

bool store_clock_hear(struct store_clock *clock, int64_t redis_ms, int64_t sent_ms,
		      int64_t received_ms)
{
	int64_t offset_ms = redis_ms - received_ms;
	int64_t round_trip_ms = received_ms - sent_ms;
	int64_t moved_ms = offset_ms - clock->offset_ms;
	bool drifted = clock->known && (moved_ms > STORE_DRIFT_MS + round_trip_ms ||
					moved_ms < -STORE_DRIFT_MS - round_trip_ms);

	/* Never later than the true one, redis_ms - sent_ms at most; and not much earlier. */
	if (!clock->known || clock->offset_ms > redis_ms - sent_ms ||
	    clock->offset_ms < offset_ms - STORE_CLOCK_SLACK_MS)
		clock->offset_ms = offset_ms;
	clock->known = true;
	return drifted;
}

int64_t store_clock_absolute(const struct store_clock *clock, int64_t boot_ms)
{
	return clock->known ? boot_ms + clock->offset_ms : 0;
}
