/*
 * The last SP_TOMBS_MAX leased sandboxes that are gone. Only for better answers: a holder hears
 * "the lease has ended" for a while instead of "no such sandbox".
 */
#include "supervisor/daemon/daemon_private.h"

#include <string.h>

void tomb_add(struct sp_service *service, const struct sp_sandbox *sandbox)
{
	struct tomb *tomb = &service->tombs[service->tomb_next];

	if (sandbox->lease_id[0] == '\0')
		return;
	service->tomb_next = (service->tomb_next + 1) % SP_TOMBS_MAX;
	memcpy(tomb->id, sandbox->id, sizeof(tomb->id));
	memcpy(tomb->lease_id, sandbox->lease_id, sizeof(tomb->lease_id));
	tomb->reason = sandbox->end_reason;
}

const struct tomb *tomb_find(const struct sp_service *service, const char *id)
{
	for (size_t i = 0; i < SP_TOMBS_MAX; i++)
		if (strcmp(service->tombs[i].id, id) == 0)
			return &service->tombs[i];
	return NULL;
}
