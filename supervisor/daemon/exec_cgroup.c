/*
 * Spare sub-cgroups: a leased sandbox has two in hand, so that an exec with a timeout starts in one
 * without a round trip to the launcher; each one used is replaced off the path.
 */
#include "supervisor/daemon/daemon_private.h"

#include "pool/base/fd.h"
#include "pool/base/log.h"

#include <errno.h>

bool spares_possible(const struct sandbox_link *link)
{
	return !link->service->no_exec_cgroups && !link->direct;
}

static struct sp_exec *first_waiting(struct sandbox_link *link)
{
	SP_LIST_FOREACH (at, &link->execs) {
		struct sp_exec *exec = SP_CONTAINER_OF(at, struct sp_exec, link);

		if (exec->state == EXEC_WAITING)
			return exec;
	}
	return NULL;
}

static void start_waiting(struct sp_exec *exec, struct exec_cgroup *cgroup)
{
	struct sp_err err = {0};

	if (exec_send(exec, cgroup, &err) < 0)
		exec_not_started(exec, "admission", &err);
}

/* Without a cgroup an exec is still killed, by init. */
static void start_all_waiting(struct sandbox_link *link)
{
	struct sp_exec *exec;

	while ((exec = first_waiting(link)))
		start_waiting(exec, NULL);
}

static void on_spare(void *arg, const struct sp_launcher_answer *answer, int *fds, size_t fd_count)
{
	struct sandbox_link *link = arg;
	struct sp_exec *exec;

	for (size_t i = 0; i < SP_SPARE_CGROUPS; i++)
		if (link->spare_requests[i] == answer->header.request)
			link->spare_requests[i] = 0;
	if (answer->header.type != SP_LAUNCHER_EXEC_CGROUP_READY || fd_count != 1) {
		if (answer->status == -EOPNOTSUPP && !link->service->no_exec_cgroups) {
			link->service->no_exec_cgroups = true;
			sp_log(SP_LOG_WARN, "no cgroups for single execs, timeouts kill by init",
			       "stage=%s", answer->stage);
		}
		start_all_waiting(link);
		return;
	}
	exec = first_waiting(link);
	if (exec) {
		struct exec_cgroup cgroup = {.fd = sp_take_fd(&fds[0]), .number = answer->value};

		start_waiting(exec, &cgroup);
		spares_want(link);
	} else if (link->state == LINK_READY && link->spare_count < SP_SPARE_CGROUPS) {
		link->spares[link->spare_count++] = (struct exec_cgroup){
			.fd = sp_take_fd(&fds[0]),
			.number = answer->value,
		};
	} else {
		exec_cgroup_done(link, answer->value);
	}
}

void spares_want(struct sandbox_link *link)
{
	uint32_t missing = SP_SPARE_CGROUPS - link->spare_count;

	if (!spares_possible(link) || link->state != LINK_READY)
		return;
	for (size_t i = 0; i < SP_SPARE_CGROUPS; i++)
		if (link->spare_requests[i] != 0)
			missing = missing > 0 ? missing - 1 : 0;
	for (size_t i = 0; i < SP_SPARE_CGROUPS && missing > 0; i++) {
		if (link->spare_requests[i] != 0)
			continue;
		if (launcher_command(link->service->launcher, SP_LAUNCHER_EXEC_CGROUP, link->slot,
				     link->serial, 0, SP_REQUEST_MS, on_spare, link,
				     &link->spare_requests[i]) < 0)
			break;
		missing--;
	}
}

bool spare_take(struct sandbox_link *link, struct exec_cgroup *ret)
{
	if (link->spare_count == 0)
		return false;
	*ret = link->spares[--link->spare_count];
	return true;
}

void spares_drop(struct sandbox_link *link)
{
	for (size_t i = 0; i < SP_SPARE_CGROUPS; i++) {
		launcher_forget(link->service->launcher, link->spare_requests[i]);
		link->spare_requests[i] = 0;
	}
	while (link->spare_count > 0)
		sp_fd_close(&link->spares[--link->spare_count].fd);
}

void exec_cgroup_done(struct sandbox_link *link, uint32_t number)
{
	/* The sub-cgroups of a dead sandbox go with it. */
	if (link->state != LINK_READY)
		return;
	(void)launcher_command(link->service->launcher, SP_LAUNCHER_EXEC_DONE, link->slot,
			       link->serial, number, 0, NULL, NULL, NULL);
}
