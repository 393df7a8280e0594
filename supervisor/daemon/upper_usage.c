/*
 * How much memory the overlays of sandboxes and the private files of isolated sessions hold
 * (sandpool_upper_bytes): only the init of their sandbox can see that, so it is asked.
 *
 * Not by whoever reads the metrics, who would wait for every sandbox, but every PERIOD_MS as long
 * as there are any: one record for a sandbox, whatever it has in it, one statfs in there for each
 * overlay and session, and at most ASKED_AT_ONCE sandboxes in a turn of the loop. One that does not
 * answer (it is frozen, or its memory is all used up) is not asked again before it has, and counts
 * with what it said last.
 */
#include "supervisor/daemon/daemon_private.h"

#include "pool/base/clock.h"

#define PERIOD_MS     (5 * SP_MS_PER_S)
#define ASKED_AT_ONCE 64u
#define PAUSE_MS      10 /* between the parts of a round */

static void ask(struct sandbox_link *link)
{
	const struct sp_init_plain record = {.header = {.type = SP_INIT_USAGE}};

	if (link->state != LINK_READY || link->frozen || link->upper_asked)
		return;
	link->upper_asked = sandbox_send(link, &record, sizeof(record), NULL, 0) == 0;
}

static void on_timer(struct sp_timer *timer)
{
	struct sp_service *service = SP_CONTAINER_OF(timer, struct sp_service, upper_timer);
	unsigned int asked = 0;
	bool any = false;

	SP_LIST_FOREACH_SAFE (at, following, &service->links) {
		struct sandbox_link *link = SP_CONTAINER_OF(at, struct sandbox_link, link);

		if (!upper_usage_any(link))
			continue;
		any = true;
		if (link->upper_round == service->upper_round)
			continue;
		if (asked == ASKED_AT_ONCE)
			break;
		link->upper_round = service->upper_round;
		ask(link);
		asked++;
	}
	if (asked < ASKED_AT_ONCE)
		service->upper_round++;
	if (any)
		sp_timer_set(&service->timers, timer,
			     sp_clock_boot_ms() + (asked < ASKED_AT_ONCE ? PERIOD_MS : PAUSE_MS));
}

bool upper_usage_any(const struct sandbox_link *link)
{
	return link->isolated_count > 0 || link->overlay_count > 0;
}

void upper_usage_watch(struct sp_service *service)
{
	if (!sp_timer_pending(&service->upper_timer))
		sp_timer_set(&service->timers, &service->upper_timer,
			     sp_clock_boot_ms() + PERIOD_MS);
}

bool upper_usage_on_used(struct sandbox_link *link, const struct sp_init_used *used)
{
	if (!link->upper_asked)
		return false;
	link->upper_asked = false;
	link->upper_bytes = used->bytes;
	return true;
}

int upper_usage_init(struct sp_service *service)
{
	service->upper_round = 1;
	return sp_timer_init(&service->timers, &service->upper_timer, on_timer);
}

void upper_usage_done(struct sp_service *service)
{
	sp_timer_done(&service->timers, &service->upper_timer);
}
