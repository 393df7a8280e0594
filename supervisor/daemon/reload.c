/*
 * A reload is all or nothing.
 *
 *	RELOAD → launcher compiles → CONFIG → parse, compare, build new pools → ADOPT_TABLE 1
 *	   → launcher's answer → every pool takes its new configuration at once
 *
 * Whatever goes wrong before the launcher's answer drops the compiled table (ADOPT_TABLE 0) and
 * leaves everything as it was. After it nothing can fail but a policy that refuses what its own
 * check accepted, which would be a bug.
 */
#include "supervisor/daemon/daemon_private.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define RESOLVED_MAX (16 * SP_MIB)

struct reload {
	struct sp_service *service;
	uint64_t request;
	struct config_ref *config;  /* what will be */
	struct daemon_pool **fresh; /* by index; NULL where a pool of that name exists */
	void (*cb)(void *arg, const struct sp_err *err);
	void *arg;
	struct sp_err failure;
	struct sp_deferred answer;
};

static void reload_free(struct reload *reload)
{
	if (reload->fresh)
		for (size_t i = 0; i < reload->config->config->pool_count; i++)
			daemon_pool_free(reload->fresh[i]);
	free(reload->fresh);
	config_ref_drop(reload->config);
	sp_deferred_cancel(&reload->answer);
	free(reload);
}

static void on_answer(struct sp_deferred *deferred)
{
	struct reload *reload = SP_CONTAINER_OF(deferred, struct reload, answer);
	struct sp_service *service = reload->service;
	void (*cb)(void *, const struct sp_err *) = reload->cb;
	void *arg = reload->arg;
	struct sp_err err = reload->failure;
	char quoted[SP_ERR_MESSAGE_MAX];

	service->reload = NULL;
	reload_free(reload);
	notify_send(service, "READY=1");
	if (err.status != 0)
		sp_log(SP_LOG_ERROR, "configuration not reloaded, nothing changed", "error=\"%s\"",
		       sp_log_quote(err.message, quoted, sizeof(quoted)));
	else
		sp_log(SP_LOG_INFO, "configuration reloaded", "pools=%zu",
		       service->config->config->pool_count);
	if (cb)
		cb(arg, err.status != 0 ? &err : NULL);
}

static void finish(struct reload *reload)
{
	sp_defer(&reload->service->deferred, &reload->answer);
}

static void refuse(struct reload *reload)
{
	(void)launcher_command(reload->service->launcher, SP_LAUNCHER_ADOPT_TABLE, 0, 0, 0, 0, NULL,
			       NULL, NULL);
	finish(reload);
}

static bool same_text(const char *a, const char *b)
{
	return strcmp(a ? a : "", b ? b : "") == 0;
}

static bool same_redis(const struct sp_config_redis *old, const struct sp_config_redis *new)
{
	return same_text(old->user, new->user) &&
	       same_text(old->password_file, new->password_file) &&
	       same_text(old->sentinel_password_file, new->sentinel_password_file) &&
	       same_text(old->ca_file, new->ca_file) && same_text(old->cert_file, new->cert_file) &&
	       same_text(old->key_file, new->key_file) &&
	       same_text(old->server_name, new->server_name) &&
	       same_text(old->prefix, new->prefix) &&
	       old->command_timeout_ms == new->command_timeout_ms &&
	       old->keepalive_ms == new->keepalive_ms;
}

const char *reload_restart_key(const struct sp_config *old, const struct sp_config *new)
{
	if (!same_text(old->store, new->store))
		return "store";
	if (!same_redis(&old->redis, &new->redis))
		return "redis";
	if (!same_text(old->host, new->host))
		return "host";
	if (!same_text(old->advertise, new->advertise))
		return "advertise";
	if (old->capacity != new->capacity)
		return "capacity";
	if (old->listen_count != new->listen_count)
		return "listen";
	for (size_t i = 0; i < old->listen_count; i++)
		if (!same_text(old->listen[i], new->listen[i]))
			return "listen";
	if (!same_text(old->instance, new->instance))
		return "instance";
	if (!same_text(old->state_dir, new->state_dir))
		return "state_dir";
	if (!same_text(old->user, new->user))
		return "user";
	if (old->uid_base != new->uid_base)
		return "uid_base";
	if (old->uid_count != new->uid_count)
		return "uid_count";
	return NULL;
}

int config_read(int fd, struct config_ref **ret_config, struct sp_err *err)
{
	struct sp_config_faults faults = {0};
	struct sp_config *config;
	struct stat info;
	void *text;
	int status;

	if (fstat(fd, &info) < 0 || info.st_size <= 0 || info.st_size > RESOLVED_MAX)
		return sp_err_set(err, -EPROTO, "size of the resolved configuration");
	text = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (text == MAP_FAILED)
		return sp_err_set(err, -errno, "map the resolved configuration");
	status = sp_config_parse(text, (size_t)info.st_size, "resolved configuration", &config,
				 &faults);
	(void)munmap(text, (size_t)info.st_size);
	if (status < 0) {
		(void)sp_err_code(err, SP_CODE_CONFIG_INVALID, status, "%s",
				  faults.count > 0 ? faults.items[0].message
						   : "the resolved configuration is not readable");
		sp_config_faults_done(&faults);
		return status;
	}
	*ret_config = config_ref_new(config);
	return *ret_config ? 0 : sp_err_set(err, -ENOMEM, "configuration");
}

static int check_tls(const struct sp_config *config, struct sp_err *err)
{
	struct gnutls_certificate_credentials_st *credentials;
	int status;

	if (config->tls_certificate_count == 0)
		return 0;
	status = sp_service_tls_credentials(config, &credentials, err);
	if (status == 0)
		gnutls_certificate_free_credentials(credentials);
	return status;
}

static int check(struct reload *reload, struct sp_err *err)
{
	const struct sp_config *old = reload->service->config->config;
	const struct sp_config *new = reload->config->config;
	const char *key = reload_restart_key(old, new);

	if (key)
		return sp_err_code(err, SP_CODE_CONFIG_INVALID, -EINVAL,
				   "%s: cannot be changed by a reload, restart sandpoold", key);
	for (size_t i = 0; i < new->pool_count; i++) {
		struct sp_pool_config policy = daemon_pool_policy(reload->config, (uint32_t)i);
		int status = sp_pool_config_resolve(&policy, err);

		if (status < 0)
			return sp_err_wrap(err, status, "pool '%s'", policy.name);
	}
	return check_tls(new, err);
}

/* Everything that needs memory is made before anything changes. */
static int prepare(struct reload *reload, struct sp_err *err)
{
	struct sp_service *service = reload->service;
	size_t count = reload->config->config->pool_count;
	struct daemon_pool **room;

	reload->fresh = calloc(count + 1, sizeof(struct daemon_pool *));
	room = realloc(service->pools,
		       (service->pool_count + count + 1) * sizeof(struct daemon_pool *));
	if (room)
		service->pools = room;
	if (!reload->fresh || !room)
		return sp_err_set(err, -ENOMEM, "pools");
	for (size_t i = 0; i < count; i++) {
		const char *name = reload->config->config->pools[i].policy.name;
		int status;

		if (daemon_pool_find(service, name))
			continue;
		status = daemon_pool_new(service, reload->config, (uint32_t)i, &reload->fresh[i],
					 err);
		if (status < 0)
			return status;
	}
	return 0;
}

static void change_pool(struct reload *reload, struct daemon_pool *pool, uint32_t index,
			int64_t now_ms)
{
	struct sp_pool_config policy = daemon_pool_policy(reload->config, index);
	struct sp_err err = {0};

	config_ref_drop(pool->source);
	pool->source = config_ref_hold(reload->config);
	pool->config = &reload->config->config->pools[index];
	pool->index = index;
	if (cluster_tell_pool(pool->service, reload->config, index, &err) < 0)
		sp_log(SP_LOG_ERROR, "the store is not told of the pool's new spec",
		       "pool=%s error=\"%s\"", policy.name, err.message);
	if (sp_pool_reconfigure(pool->policy, &policy, now_ms, &err) < 0)
		sp_log(SP_LOG_ERROR, "pool keeps its old sizes", "pool=%s error=\"%s\"",
		       policy.name, err.message);
	if (pool->removed && sp_pool_start(pool->policy, now_ms, &err) < 0)
		sp_log(SP_LOG_ERROR, "pool not started", "pool=%s error=\"%s\"", policy.name,
		       err.message);
	pool->removed = false;
	daemon_pool_touch(pool);
}

static void add_pool(struct reload *reload, uint32_t index, int64_t now_ms)
{
	struct sp_service *service = reload->service;
	struct daemon_pool *pool = reload->fresh[index];
	struct sp_err err = {0};

	reload->fresh[index] = NULL;
	service->pools[service->pool_count++] = pool;
	if (sp_pool_start(pool->policy, now_ms, &err) < 0)
		sp_log(SP_LOG_ERROR, "pool not started", "pool=%s error=\"%s\"",
		       pool->config->policy.name, err.message);
	daemon_pool_touch(pool);
}

static bool still_configured(const struct sp_config *config, const char *name)
{
	for (size_t i = 0; i < config->pool_count; i++)
		if (strcmp(config->pools[i].policy.name, name) == 0)
			return true;
	return false;
}

static void apply(struct reload *reload)
{
	struct sp_service *service = reload->service;
	const struct sp_config *new = reload->config->config;
	int64_t now_ms = sp_clock_boot_ms();

	for (size_t i = 0; i < service->pool_count; i++) {
		struct daemon_pool *pool = service->pools[i];

		if (still_configured(new, pool->config->policy.name) || pool->removed)
			continue;
		sp_log(SP_LOG_INFO, "pool removed from the configuration, draining", "pool=%s",
		       pool->config->policy.name);
		pool->removed = true;
		sp_pool_leave_host(pool->policy, now_ms);
		daemon_pool_touch(pool);
	}
	for (size_t i = 0; i < new->pool_count; i++) {
		struct daemon_pool *pool = daemon_pool_find(service, new->pools[i].policy.name);

		if (pool)
			change_pool(reload, pool, (uint32_t)i, now_ms);
		else
			add_pool(reload, (uint32_t)i, now_ms);
	}
	config_ref_drop(service->config);
	service->config = config_ref_hold(reload->config);
	sp_log_set_level(new->log_level);
	stop_progress(service);
}

static void on_adopted(void *arg, const struct sp_launcher_answer *answer, int *fds,
		       size_t fd_count)
{
	struct reload *reload = arg;

	SP_UNUSED(fds);
	SP_UNUSED(fd_count);
	reload->request = 0;
	if (answer->header.type == SP_LAUNCHER_DONE)
		apply(reload);
	else
		(void)sp_err_set(&reload->failure, answer->status < 0 ? answer->status : -EPROTO,
				 "the launcher does not adopt the new table: %s", answer->text);
	finish(reload);
}

static void read_faults(int fd, int status, struct sp_err *err)
{
	char text[SP_ERR_MESSAGE_MAX];
	ssize_t got;

	if (lseek(fd, 0, SEEK_SET) < 0)
		return;
	got = sp_read_all(fd, text, sizeof(text) - 1);
	if (got <= 0)
		return;
	while (got > 0 && text[got - 1] == '\n')
		got--;
	text[got] = '\0';
	(void)sp_err_code(err, SP_CODE_CONFIG_INVALID, status, "%s", text);
}

int config_answer_check(const struct sp_launcher_answer *answer, const int *fds, size_t fd_count,
			struct sp_err *err)
{
	int status = answer->status < 0 ? answer->status : -EPROTO;

	if (answer->header.type == SP_LAUNCHER_CONFIG && answer->status == 0 && fd_count == 1)
		return 0;
	if (strcmp(answer->stage, "hello") == 0)
		return sp_err_code(err, SP_CODE_INTERNAL, status,
				   "the launcher refuses to serve: %s", answer->text);
	(void)sp_err_code(err, SP_CODE_CONFIG_INVALID, status,
			  "the configuration was refused: %s %s", answer->stage, answer->text);
	if (answer->header.type == SP_LAUNCHER_CONFIG && fd_count == 1)
		read_faults(fds[0], status, err);
	return status;
}

static void on_config(void *arg, const struct sp_launcher_answer *answer, int *fds, size_t fd_count)
{
	struct reload *reload = arg;
	struct sp_service *service = reload->service;
	int status = config_answer_check(answer, fds, fd_count, &reload->failure);

	reload->request = 0;
	if (status < 0) {
		finish(reload);
		return;
	}
	status = config_read(fds[0], &reload->config, &reload->failure);
	if (status == 0)
		status = check(reload, &reload->failure);
	if (status == 0)
		status = prepare(reload, &reload->failure);
	if (status == 0) {
		status = launcher_command(service->launcher, SP_LAUNCHER_ADOPT_TABLE, 0, 0, 1,
					  SP_RELOAD_MS, on_adopted, reload, &reload->request);
		if (status < 0)
			(void)sp_err_set(&reload->failure, status, "ask the launcher to adopt");
	}
	if (status < 0)
		refuse(reload);
}

int reload_begin(struct sp_service *service, void (*cb)(void *arg, const struct sp_err *err),
		 void *arg, struct sp_err *err)
{
	struct reload *reload;
	int status;

	if (service->stopping)
		return sp_err_code(err, SP_CODE_UNAVAILABLE, -ESHUTDOWN,
				   "the daemon is shutting down");
	if (service->reload)
		return sp_err_code(err, SP_CODE_CONFLICT, -EBUSY, "a reload is under way");
	reload = calloc(1, sizeof(*reload));
	if (!reload)
		return sp_err_set(err, -ENOMEM, "reload");
	reload->service = service;
	reload->cb = cb;
	reload->arg = arg;
	sp_deferred_init(&reload->answer, on_answer);
	status = launcher_command(service->launcher, SP_LAUNCHER_RELOAD, 0, 0, 0, SP_RELOAD_MS,
				  on_config, reload, &reload->request);
	if (status < 0) {
		free(reload);
		return sp_err_set(err, status, "ask the launcher for a reload");
	}
	service->reload = reload;
	notify_reloading(service);
	return 0;
}

void reload_drop(struct sp_service *service)
{
	struct reload *reload = service->reload;

	if (!reload)
		return;
	service->reload = NULL;
	launcher_forget(service->launcher, reload->request);
	reload_free(reload);
}

void reload_abort(struct sp_service *service)
{
	struct reload *reload = service->reload;

	if (!reload)
		return;
	launcher_forget(service->launcher, reload->request);
	reload->request = 0;
	(void)sp_err_code(&reload->failure, SP_CODE_UNAVAILABLE, -ESHUTDOWN,
			  "the daemon is shutting down");
	finish(reload);
}
