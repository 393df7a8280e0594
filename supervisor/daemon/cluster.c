/*
 * This daemon among others: which store it has, under which name it is known there, and what it
 * does with what the store tells it.
 *
 * With the embedded store there is no cluster: `service->cluster` is false, and nothing here does
 * anything. With a Redis store the name is `host` (or the machine's), the identity a secret in the
 * state directory, and the endpoint what clients of other hosts connect to.
 */
#include "supervisor/daemon/daemon_private.h"

#include "pool/base/clock.h"
#include "pool/base/fd.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define BOOT_ID_PATH "/proc/sys/kernel/random/boot_id"
#define BOOT_ID_LEN  36

/* ---- what the store tells ---- */

static void on_fenced(void *arg, const char *pool, const struct sp_err *why)
{
	struct sp_service *service = arg;
	char quoted[SP_ERR_MESSAGE_MAX];

	sp_log(SP_LOG_ERROR, "fenced: nothing is handed out any more", "pool=%s error=\"%s\"", pool,
	       sp_log_quote(why->message, quoted, sizeof(quoted)));
	stop_fatal(service, "another daemon has this host's place in the store");
}

static void on_up(void *arg)
{
	struct sp_service *service = arg;

	sp_log(SP_LOG_INFO, "store is up", "peer=\"%s\"", sp_redis_store_peer(service->store));
}

static void on_down(void *arg, const struct sp_err *why)
{
	struct sp_service *service = arg;
	char quoted[SP_ERR_MESSAGE_MAX];

	sp_log(SP_LOG_WARN, "store is away, serving what is here", "peer=\"%s\" error=\"%s\"",
	       sp_redis_store_peer(service->store),
	       sp_log_quote(why->message, quoted, sizeof(quoted)));
}

static void on_command(void *arg, const char *name, double seconds, bool failed)
{
	metrics_store_command(arg, name, seconds, failed);
}

static void on_touched(void *arg, const char *name)
{
	struct daemon_pool *pool = daemon_pool_find(arg, name);

	if (pool)
		daemon_pool_touch(pool);
}

static void on_seen(void *arg, const char *pool, const struct sp_store_meta *meta, bool draining)
{
	struct sp_service *service = arg;
	struct sp_err err = {0};

	if (intent_save(service->state_dir, pool, meta, draining, &err) < 0)
		sp_log(SP_LOG_WARN, "the operator's intent is not kept, ignoring",
		       "pool=%s error=\"%s\"", pool, err.message);
	sp_log(SP_LOG_INFO, "the operator's intent",
	       "pool=%s revision=%llu max_idle=%u "
	       "max_total=%u state=%d host_draining=%d",
	       pool, (unsigned long long)meta->revision, meta->max_idle, meta->max_total,
	       (int)meta->state, (int)draining);
}

static void on_mismatch(void *arg, const char *name, uint64_t spec_revision, const char *digest)
{
	struct daemon_pool *pool = daemon_pool_find(arg, name);

	if (pool)
		pool->spec_mismatch = digest[0] != '\0';
	if (digest[0] != '\0')
		sp_log(SP_LOG_ERROR,
		       "spec_mismatch: the store has another spec of this pool, this host makes "
		       "nothing until spec_revision is raised",
		       "pool=%s spec_revision=%llu digest=%s", name,
		       (unsigned long long)spec_revision, digest);
	else
		sp_log(SP_LOG_INFO, "spec of the pool is ours again", "pool=%s", name);
}

static void on_refused(void *arg, const char *pool, const struct sp_err *why)
{
	char quoted[SP_ERR_MESSAGE_MAX];

	SP_UNUSED(arg);
	sp_log(SP_LOG_WARN, "the store refuses", "pool=%s error=\"%s\"", pool,
	       sp_log_quote(why->message, quoted, sizeof(quoted)));
}

static void on_evicts(void *arg, const char *policy)
{
	SP_UNUSED(arg);
	sp_log(SP_LOG_WARN, "Redis may evict keys of the pools: set maxmemory-policy noeviction",
	       "maxmemory_policy=%s", policy);
}

static void on_closed(void *arg)
{
	struct sp_service *service = arg;

	service->store = NULL;
	service_handle_closed(service);
}

static const struct sp_redis_store_events store_events = {
	.fenced = on_fenced,
	.up = on_up,
	.down = on_down,
	.command = on_command,
	.touched = on_touched,
	.seen = on_seen,
	.mismatch = on_mismatch,
	.refused = on_refused,
	.evicts = on_evicts,
	.closed = on_closed,
};

/* ---- who we are ---- */

/* The machine's name in the form that names have; what does not fit becomes '-'. */
static int machine_name(char *name, size_t size, struct sp_err *err)
{
	char text[HOST_NAME_MAX + 1] = "";
	size_t len = 0;

	if (gethostname(text, sizeof(text) - 1) < 0)
		return sp_err_set(err, -errno, "ask for the machine's host name");
	for (; text[len] != '\0' && len < size - 1; len++) {
		char byte = (char)tolower((unsigned char)text[len]);

		name[len] = isalnum((unsigned char)byte) || strchr("._-", byte) ? byte : '-';
	}
	name[len] = '\0';
	if (!sp_pool_name_valid(name))
		return sp_err_code(err, SP_CODE_CONFIG_INVALID, -EINVAL,
				   "host: the machine's name '%s' cannot be used, set one", text);
	return 0;
}

static int read_boot_id(char ret_id[BOOT_ID_LEN + 1], struct sp_err *err)
{
	SP_AUTO_CLOSE int fd = open(BOOT_ID_PATH, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || read(fd, ret_id, BOOT_ID_LEN) != BOOT_ID_LEN)
		return sp_err_set(err, errno != 0 ? -errno : -EIO, "read '" BOOT_ID_PATH "'");
	ret_id[BOOT_ID_LEN] = '\0';
	return 0;
}

static const char *endpoint_of(const struct sp_config *config)
{
	const char *found = config->listen_count > 0 ? config->listen[0] : "none";

	if (config->advertise[0] != '\0')
		return config->advertise;
	for (size_t i = 0; i < config->listen_count; i++) {
		if (strncmp(config->listen[i], "unix://", 7) == 0)
			continue;
		found = config->listen[i];
		break;
	}
	if (strncmp(found + 3, "://0.0.0.0:", 11) == 0 || strncmp(found + 3, "://[::]:", 8) == 0 ||
	    strncmp(found, "unix://", 7) == 0)
		sp_log(SP_LOG_WARN, "other hosts cannot reach this address: set advertise",
		       "endpoint=%s", found);
	return found;
}

/* A bare name is a credential of the service. NULL stays NULL. */
static int secret_file(const char *name, char *path, const char **ret_path, struct sp_err *err)
{
	const char *folder = secure_getenv("CREDENTIALS_DIRECTORY");

	*ret_path = name;
	if (!name || *name == '/')
		return 0;
	if (!folder || *folder != '/')
		return sp_err_code(err, SP_CODE_CONFIG_INVALID, -ENOENT,
				   "redis: '%s' is the name of a credential, but "
				   "$CREDENTIALS_DIRECTORY is not set",
				   name);
	if (snprintf(path, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
		return sp_err_set(err, -ENAMETOOLONG, "credential '%s'", name);
	*ret_path = path;
	return 0;
}

static uint64_t random_seed(void)
{
	uint64_t seed = 0;

	if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != (ssize_t)sizeof(seed))
		seed = (uint64_t)sp_clock_boot_ns();
	return seed;
}

static int host_digest(struct sp_service *service, char ret_digest[SP_LEASE_ID_LEN + 1],
		       struct sp_err *err)
{
	struct sp_identity owner;
	char secret[SP_SECRET_LEN + 1];
	int status = identity_resolve(service->config->config->user, &owner, err);

	if (status < 0)
		return status;
	status = host_secret_get(service->state_dir, &owner, secret, err);
	identity_done(&owner);
	if (status == 0 && secret_lease_id(secret, ret_digest) < 0)
		status = sp_err_set(err, -EIO, "hash the host's secret");
	explicit_bzero(secret, sizeof(secret));
	return status;
}

static int open_redis(struct sp_service *service, struct sp_err *err)
{
	const struct sp_config *config = service->config->config;
	const struct sp_config_redis *redis = &config->redis;
	const char *const names[] = {redis->password_file, redis->sentinel_password_file,
				     redis->ca_file, redis->cert_file, redis->key_file};
	char paths[SP_ARRAY_SIZE(names)][PATH_MAX];
	const char *files[SP_ARRAY_SIZE(names)];
	char boot_id[BOOT_ID_LEN + 1];
	char digest[SP_LEASE_ID_LEN + 1];
	int status = read_boot_id(boot_id, err);

	for (size_t i = 0; status == 0 && i < SP_ARRAY_SIZE(names); i++)
		status = secret_file(names[i], paths[i], &files[i], err);
	if (status == 0 && config->host[0] != '\0')
		(void)snprintf(service->host, sizeof(service->host), "%s", config->host);
	else if (status == 0)
		status = machine_name(service->host, sizeof(service->host), err);
	if (status == 0)
		status = host_digest(service, digest, err);
	if (status < 0)
		return status;

	struct sp_redis_store_options options = {
		.redis = {.url = config->store,
			  .user = redis->user,
			  .password_file = files[0],
			  .sentinel_password_file = files[1],
			  .ca_file = files[2],
			  .cert_file = files[3],
			  .key_file = files[4],
			  .server_name = redis->server_name,
			  .command_timeout_ms = redis->command_timeout_ms,
			  .keepalive_ms = redis->keepalive_ms,
			  .seed = random_seed()},
		.prefix = redis->prefix,
		.host = service->host,
		.endpoint = endpoint_of(config),
		.boot_id = boot_id,
		.secret_digest = digest,
		.version = SP_VERSION,
		.capacity = config->capacity,
		.seed = random_seed(),
	};

	status = sp_redis_store_new(service->loop, &options, &store_events, service,
				    &service->store, err);
	if (status < 0)
		return sp_err_wrap(err, status, "store");
	service->cluster = true;
	service->open_handles++;
	sp_log(SP_LOG_INFO, "host of a cluster", "host=%s endpoint=%s store=\"%s\"", service->host,
	       options.endpoint, sp_redis_store_peer(service->store));
	return 0;
}

int cluster_open(struct sp_service *service, struct sp_err *err)
{
	if (strcmp(service->config->config->store, "memory") == 0)
		return sp_memory_store_new(&service->store, err);
	return open_redis(service, err);
}

int cluster_tell_pool(struct sp_service *service, const struct config_ref *source, uint32_t index,
		      struct sp_err *err)
{
	const struct sp_config_pool *config = &source->config->pools[index];
	struct sp_pool_config policy = config->policy;
	char digest[SP_CONFIG_DIGEST_LEN + 1];
	struct sp_redis_pool_facts facts = {
		.spec_revision = config->spec_revision,
		.spec_digest = digest,
	};
	int status;

	if (!service->cluster)
		return 0;
	status = sp_pool_config_resolve(&policy, err);
	if (status < 0)
		return status;
	sp_config_spec_digest(config, SP_INIT_PROTOCOL_VERSION, digest);
	facts.min_ttl_ms = policy.acquire_min_remaining_ttl_ms;
	facts.claim_timeout_ms = policy.claim_timeout_ms;
	intent_load(service->state_dir, policy.name, &facts.seen, &facts.draining);
	return sp_redis_store_pool(service->store, policy.name, &facts, err);
}

void cluster_close(struct sp_service *service)
{
	if (service->cluster && service->store)
		sp_redis_store_close(service->store);
}
