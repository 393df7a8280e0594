/*
 * Spare sub-cgroups: a leased sandbox has one in hand, so that an exec starts in it without a round
 * trip to the launcher, and one more once an exec has begun. One that its exec left empty is a
 * spare again; one in which something was killed or lives on is not (after cgroup.kill the kernel
 * kills whatever is born there). Whether it is empty is looked at, and what is missing asked for,
 * off the path.
 */
#include "supervisor/daemon/daemon_private.h"

#include "pool/base/fd.h"
#include "pool/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

bool spares_possible(const struct sandbox_link *link)
{
	return !link->service->no_exec_cgroups && !link->direct;
}

static struct sp_exec *first_waiting(const struct sandbox_link *link)
{
	SP_LIST_FOREACH (at, &link->execs) {
		struct sp_exec *exec = SP_CONTAINER_OF(at, struct sp_exec, link);

		if (exec->state == EXEC_WAITING && link->kills_asked == 0)
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
		/* Without its descriptor, for which we had no room, it is of no use. */
		if (answer->header.type == SP_LAUNCHER_EXEC_CGROUP_READY)
			exec_cgroup_done(link,
					 &(struct exec_cgroup){.fd = -1, .number = answer->value});
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
		if (!link->warmup)
			spares_want(link);
	} else if (link->state == LINK_READY && link->spare_count < SP_SPARE_CGROUPS) {
		link->spares[link->spare_count++] = (struct exec_cgroup){
			.fd = sp_take_fd(&fds[0]),
			.number = answer->value,
		};
	} else {
		struct exec_cgroup cgroup = {.fd = sp_take_fd(&fds[0]), .number = answer->value};

		exec_cgroup_done(link, &cgroup);
	}
}

static bool spares_asked(const struct sandbox_link *link)
{
	for (size_t i = 0; i < SP_SPARE_CGROUPS; i++)
		if (link->spare_requests[i] != 0)
			return true;
	return false;
}

/* One in hand; when execs of clients wait already, as many as can be on the way. */
static uint32_t wanted(const struct sandbox_link *link)
{
	if (first_waiting(link) && !link->warmup)
		return SP_SPARE_CGROUPS;
	return link->spare_count == 0 ? 1 : 0;
}

void spares_want(struct sandbox_link *link)
{
	uint32_t missing = wanted(link);

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
	if (!spares_asked(link))
		start_all_waiting(link); /* nothing is on the way that they could wait for */
}

/* What came while init was hunting, see exec_launch(). */
void exec_hunt_over(struct sandbox_link *link)
{
	if (spares_possible(link))
		spares_want(link);
	else
		start_all_waiting(link);
}

void spares_want_later(struct sandbox_link *link)
{
	if (spares_possible(link) && link->state == LINK_READY)
		sp_defer_late(&link->service->deferred, &link->tidy);
}

static bool empty(const struct exec_cgroup *cgroup)
{
	SP_AUTO_CLOSE int fd = openat(cgroup->fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
	char text[64];
	ssize_t got = fd < 0 ? -errno : sp_read_all(fd, text, sizeof(text) - 1);

	if (got <= 0)
		return false;
	text[got] = '\0';
	return strstr(text, "populated 0\n") != NULL;
}

bool spare_take(struct sandbox_link *link, struct exec_cgroup *ret)
{
	while (link->spare_count > 0) {
		struct exec_cgroup spare = link->spares[--link->spare_count];

		if (!spare.used || empty(&spare)) {
			spare.used = false;
			*ret = spare;
			return true;
		}
		exec_cgroup_done(link, &spare);
	}
	return false;
}

void spares_tidy(struct sandbox_link *link)
{
	struct exec_cgroup good[SP_SPARE_CGROUPS];
	uint32_t count = 0;

	while (count < SP_SPARE_CGROUPS && spare_take(link, &good[count]))
		count++;
	while (count > 0)
		link->spares[link->spare_count++] = good[--count];
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

void exec_cgroup_done(struct sandbox_link *link, struct exec_cgroup *cgroup)
{
	sp_fd_close(&cgroup->fd);
	/* The sub-cgroups of a dead sandbox go with it. */
	if (link->state != LINK_READY)
		return;
	(void)launcher_command(link->service->launcher, SP_LAUNCHER_EXEC_DONE, link->slot,
			       link->serial, cgroup->number, 0, NULL, NULL, NULL);
}

void exec_cgroup_leave(struct sp_exec *exec)
{
	struct sandbox_link *link = exec->sandbox;

	if (!exec->in_cgroup)
		return;
	exec->in_cgroup = false;
	/* With one waiting, its own is on the way. */
	if (!exec->killed && exec->state == EXEC_DRAINING && link->state == LINK_READY &&
	    link->spare_count < SP_SPARE_CGROUPS && !first_waiting(link)) {
		exec->cgroup.used = true;
		link->spares[link->spare_count++] = exec->cgroup;
	} else {
		exec_cgroup_done(link, &exec->cgroup);
	}
	spares_want_later(link);
}
