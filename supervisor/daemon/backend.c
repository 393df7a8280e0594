/*
 * The policy's port (pool/backend.h) over the launcher and init.
 *
 * No call here calls back into the policy: what can be answered at once is put off to the end of
 * the turn.
 */
#include "supervisor/daemon/daemon_private.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"
#include "pool/base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void on_gone_deferred(struct sp_deferred *deferred)
{
	struct sandbox_link *link = SP_CONTAINER_OF(deferred, struct sandbox_link, gone);

	if (link->sandbox) {
		struct daemon_pool *pool = link->pool;

		sp_pool_gone(pool->policy, link->sandbox, sp_clock_boot_ms());
		daemon_pool_touch(pool);
	}
}

static void on_ending_deferred(struct sp_deferred *deferred)
{
	struct sandbox_link *link = SP_CONTAINER_OF(deferred, struct sandbox_link, ending);
	struct sp_service *service = link->service;

	if (service->on_end)
		service->on_end(service->on_end_arg, link->id, link->end_reason);
	sandbox_free_when_done(link);
}

void sandbox_tell_end(struct sandbox_link *link)
{
	const struct sp_sandbox *sandbox = link->sandbox;

	if (!sandbox || sandbox->lease_id[0] == '\0' || link->told_ended)
		return;
	link->told_ended = true;
	link->end_reason = sandbox->end_reason;
	sp_defer(&link->service->deferred, &link->ending);
}

static void on_release_deferred(struct sp_deferred *deferred)
{
	sandbox_end(SP_CONTAINER_OF(deferred, struct sandbox_link, release), SP_END_RELEASED);
}

static void on_tidy_deferred(struct sp_deferred *deferred)
{
	struct sandbox_link *link = SP_CONTAINER_OF(deferred, struct sandbox_link, tidy);

	exec_streams_tidy(link);
	spares_tidy(link);
	if (sandbox_usable(link))
		spares_want(link);
}

static int map_slot(struct sandbox_link *link, uint32_t slot)
{
	struct sp_service *service = link->service;

	if (slot >= SP_TABLE_SANDBOXES_MAX)
		return -EPROTO;
	if (slot >= service->slot_count) {
		uint32_t count = SP_MAX(service->slot_count * 2, SP_MAX(slot + 1, 64u));
		struct sandbox_link **map =
			realloc(service->by_slot, count * sizeof(struct sandbox_link *));

		if (!map)
			return -ENOMEM;
		memset(map + service->slot_count, 0,
		       (count - service->slot_count) * sizeof(struct sandbox_link *));
		service->by_slot = map;
		service->slot_count = count;
	}
	if (service->by_slot[slot])
		return -EEXIST;
	service->by_slot[slot] = link;
	return 0;
}

/* Nothing of it exists (any more). */
static void never_was(struct sandbox_link *link)
{
	link->state = LINK_GONE;
	if (link->kill_wanted)
		sp_defer(&link->service->deferred, &link->gone);
}

static void on_created(struct sandbox_link *link, const struct sp_launcher_answer *answer, int *fds)
{
	struct sp_err err = {0};
	int status = map_slot(link, answer->slot);

	if (status < 0) {
		stop_fatal(link->service, "the launcher reused a live slot");
		return;
	}
	link->state = LINK_BOOTING;
	status = sandbox_attach(link, answer, sp_take_fd(&fds[0]), sp_take_fd(&fds[1]), &err);
	if (status < 0 || link->kill_wanted) {
		link->state = LINK_ENDING;
		(void)launcher_command(link->service->launcher, SP_LAUNCHER_KILL, link->slot,
				       link->serial, 0, 0, NULL, NULL, NULL);
	}
	if (status < 0)
		sandbox_create_failed(link, "admission", status, "");
	else
		metrics_create_stage(link->pool, "launcher",
				     (double)(sp_clock_boot_ns() - link->asked_ns) /
					     (double)SP_NS_PER_S);
}

/* CREATE_FAILED has a whole sentence, ERROR the name of what is wrong. */
static void create_refused(struct sandbox_link *link, const struct sp_launcher_answer *answer)
{
	const char *stage = answer->stage[0] != '\0' ? answer->stage : "launcher";
	int status = answer->status < 0 ? answer->status : -EPROTO;
	struct sp_err err = {0};

	if (answer->header.type != SP_LAUNCHER_CREATE_FAILED && answer->text[0] != '\0')
		(void)sp_err_set(&err, status, "%s '%s'", stage, answer->text);
	else
		(void)snprintf(err.message, sizeof(err.message), "%s", answer->text);
	sandbox_create_failed(link, stage, status, err.message);
}

static void on_create_answer(void *arg, const struct sp_launcher_answer *answer, int *fds,
			     size_t fd_count)
{
	struct sandbox_link *link = arg;

	if (answer->header.type == SP_LAUNCHER_CREATED && fd_count == 2) {
		on_created(link, answer, fds);
		return;
	}
	/* It came without its descriptors: we had no room for them. */
	if (answer->header.type == SP_LAUNCHER_CREATED) {
		(void)launcher_command(link->service->launcher, SP_LAUNCHER_KILL, answer->slot,
				       answer->serial, 0, 0, NULL, NULL, NULL);
		never_was(link);
		sandbox_create_failed(link, "descriptors", -EMFILE, "");
		return;
	}
	never_was(link);
	create_refused(link, answer);
}

static struct sandbox_link *link_new(struct daemon_pool *pool, struct sp_sandbox *sandbox)
{
	struct sandbox_link *link = calloc(1, sizeof(*link));

	if (!link)
		return NULL;
	link->service = pool->service;
	link->pool = pool;
	link->sandbox = sandbox;
	link->state = LINK_ASKED;
	link->policy_waits = true;
	link->direct = pool->config->direct;
	link->workload_uid = link->direct ? pool->config->direct_uid : SP_WORKLOAD_ID;
	link->workload_gid = link->direct ? pool->config->direct_gid : SP_WORKLOAD_ID;
	link->pidfd = -1;
	link->asked_ns = sp_clock_boot_ns();
	memcpy(link->id, sandbox->id, sizeof(link->id));
	sp_list_init(&link->execs);
	sp_list_init(&link->files);
	sp_list_init(&link->isolated);
	sp_list_init(&link->retired);
	sp_list_init(&link->leftovers);
	sp_deferred_init(&link->gone, on_gone_deferred);
	sp_deferred_init(&link->ending, on_ending_deferred);
	sp_deferred_init(&link->release, on_release_deferred);
	sp_deferred_init(&link->tidy, on_tidy_deferred);
	return link;
}

static int backend_create(void *arg, struct sp_sandbox *sandbox, struct sp_err *err)
{
	struct daemon_pool *pool = arg;
	struct sandbox_link *link;
	int status;

	if (pool->removed || pool->service->killing)
		return sp_err_code(err, SP_CODE_POOL_NOT_RUNNING, -ESHUTDOWN, "pool '%s' is ending",
				   pool->config->policy.name);
	if (sp_fd_low(pool->service->launcher_pidfd, pool->service->fd_ceiling))
		return sp_err_code(err, SP_CODE_UNAVAILABLE, -EMFILE,
				   "the daemon has too many descriptors open");
	link = link_new(pool, sandbox);
	if (!link)
		return sp_err_set(err, -ENOMEM, "sandbox of pool '%s'", pool->config->policy.name);
	status = launcher_create(pool->service->launcher, pool->index, sandbox->spec_generation,
				 sandbox->id, on_create_answer, link, NULL);
	if (status < 0) {
		free(link);
		return sp_err_set(err, status, "ask the launcher for a sandbox");
	}
	sp_list_append(&pool->service->links, &link->link);
	sandbox->backend_data = link;
	return 0;
}

static void backend_kill(void *arg, struct sp_sandbox *sandbox)
{
	struct sandbox_link *link = sandbox->backend_data;

	SP_UNUSED(arg);
	/* A creation that was refused by create() has no link: the policy forgets it by itself. */
	if (!link)
		return;
	link->policy_waits = false;
	warmup_drop(link);
	sandbox_tell_end(link);
	switch (link->state) {
	case LINK_ASKED:
		link->kill_wanted = true;
		return;
	case LINK_GONE:
		sp_defer(&link->service->deferred, &link->gone);
		return;
	case LINK_BOOTING:
	case LINK_READY:
	case LINK_ENDING:
		break;
	}
	link->state = LINK_ENDING;
	if (link->binding)
		op_sandbox_lost(link->binding);
	/* Repeats are cheap; an answer that was lost is not. */
	(void)launcher_command(link->service->launcher, SP_LAUNCHER_KILL, link->slot, link->serial,
			       0, 0, NULL, NULL, NULL);
}

static void backend_forget(void *arg, struct sp_sandbox *sandbox)
{
	struct sandbox_link *link = sandbox->backend_data;

	SP_UNUSED(arg);
	if (!link)
		return;
	tomb_add(link->service, sandbox);
	sandbox_tell_end(link);
	sandbox->backend_data = NULL;
	link->sandbox = NULL;
	link->policy_waits = false;
	sandbox_free_when_done(link);
}

const struct sp_backend_ops daemon_backend_ops = {
	.create = backend_create,
	.kill = backend_kill,
	.forget = backend_forget,
};

void sandbox_on_gone(struct sp_service *service, const struct sp_launcher_answer *answer)
{
	struct sandbox_link *link;

	if (answer->slot >= service->slot_count)
		return;
	link = service->by_slot[answer->slot];
	if (!link || link->serial != answer->serial)
		return;
	service->by_slot[answer->slot] = NULL;
	sandbox_gone(link);
}
