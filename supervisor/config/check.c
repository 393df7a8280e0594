/*
 * Checks across keys. Each asks first whether the keys that it compares were read at all: one
 * mistake gives one fault.
 */
#include "supervisor/config/reader.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ID_RANGE      65536u
#define RECORD_MAX    (1u << 20) /* of one passwd entry */
#define DIGITS        "0123456789"
#define DURATION_TEXT 32
#define TMP_MOST      (UINT64_C(256) << 20)

static bool global_bad(const struct sp_config_reader *reader, const char *key)
{
	return sp_config_key_bad(reader, SP_SCHEMA_GLOBAL, key);
}

static bool pool_bad(const struct sp_config_reader *reader, const char *key)
{
	return sp_config_key_bad(reader, SP_SCHEMA_POOL, key);
}

/* ---- a pool ---- */

/* Complain of `key` unless it is below (at most, if that is fine) the other one. */
static void compare_times(struct sp_config_reader *reader, const char *key, int64_t ms,
			  const char *other_key, int64_t other_ms, bool equal_is_fine)
{
	char text[DURATION_TEXT];
	char other_text[DURATION_TEXT];

	if (pool_bad(reader, key) || pool_bad(reader, other_key) || ms < other_ms ||
	    (ms == other_ms && equal_is_fine))
		return;
	(void)sp_format_duration(ms, text, sizeof(text));
	(void)sp_format_duration(other_ms, other_text, sizeof(other_text));
	sp_config_fault_key(reader, key, "%s must %s %s (%s)", text,
			    equal_is_fine ? "not be above" : "be below", other_key, other_text);
}

static void check_times(struct sp_config_reader *reader, const struct sp_pool_config *policy)
{
	compare_times(reader, "acquire_min_remaining_ttl", policy->acquire_min_remaining_ttl_ms,
		      "idle_timeout", policy->idle_timeout_ms, false);
	compare_times(reader, "refresh_margin", policy->refresh_margin_ms, "idle_timeout",
		      policy->idle_timeout_ms, false);
	compare_times(reader, "backoff_initial", policy->backoff_initial_ms, "backoff_max",
		      policy->backoff_max_ms, true);
}

/* The policy has the last word on its own fields; its message names one key, so it is asked only
 * when nothing else is wrong. */
static void resolve_policy(struct sp_config_reader *reader, struct sp_pool_config *policy,
			   size_t faults_before)
{
	struct sp_err err = {0};

	if (reader->faults->count > faults_before || reader->faults->more)
		return;
	if (sp_pool_config_resolve(policy, &err) < 0)
		sp_config_fault(reader, "%s", err.message);
}

/* Files are memory. */
static void check_below_memory(struct sp_config_reader *reader, const struct sp_config_pool *pool,
			       const char *key, uint64_t bytes)
{
	char text[DURATION_TEXT];
	char memory[DURATION_TEXT];

	if (sp_config_key_bad(reader, SP_SCHEMA_POOL_LIMITS, key) ||
	    sp_config_key_bad(reader, SP_SCHEMA_POOL_LIMITS, "memory") ||
	    bytes < pool->memory_bytes)
		return;
	(void)sp_format_size(bytes, text, sizeof(text));
	(void)sp_format_size(pool->memory_bytes, memory, sizeof(memory));
	sp_config_enter(reader, "limits");
	sp_config_fault_key(reader, key,
			    "%s must be below limits.memory (%s): files count as memory", text,
			    memory);
	sp_config_leave(reader);
}

static void check_limits(struct sp_config_reader *reader, struct sp_config_pool *pool)
{
	bool upper_follows = pool->upper_bytes == SP_SIZE_AUTO;

	if (pool->tmp_bytes == SP_SIZE_AUTO)
		pool->tmp_bytes = SP_MIN(TMP_MOST, pool->memory_bytes / 2);
	check_below_memory(reader, pool, "tmp", pool->tmp_bytes);
	if (upper_follows)
		pool->upper_bytes = pool->tmp_bytes; /* one mistake, one fault */
	else
		check_below_memory(reader, pool, "upper", pool->upper_bytes);
}

static bool parse_id(const char *text, uint32_t *ret_id)
{
	unsigned long long value;

	if (*text == '\0' || strspn(text, DIGITS) != strlen(text))
		return false;
	errno = 0;
	value = strtoull(text, NULL, 10);
	if (errno != 0 || value >= UINT32_MAX)
		return false;
	*ret_id = (uint32_t)value;
	return true;
}

/* By name, or by number with the account's group, or with the group of the same number. 0, -ENOENT,
 * -ENOMEM, … */
static int find_account(const char *user, uint32_t *ret_uid, uint32_t *ret_gid)
{
	char *buffer = malloc(RECORD_MAX);
	struct passwd *found = NULL;
	struct passwd record;
	uint32_t uid;
	bool numeric = parse_id(user, &uid);
	int status;

	if (!buffer)
		return -ENOMEM;
	status = numeric ? getpwuid_r(uid, &record, buffer, RECORD_MAX, &found)
			 : getpwnam_r(user, &record, buffer, RECORD_MAX, &found);
	if (found) {
		*ret_uid = record.pw_uid;
		*ret_gid = record.pw_gid;
		status = 0;
	} else if (numeric) {
		*ret_uid = uid;
		*ret_gid = uid;
		status = 0;
	} else {
		status = status != 0 ? -status : -ENOENT;
	}
	free(buffer);
	return status;
}

/* Then its programs are operators on the Unix socket, and may stop the daemon. */
static bool is_daemons_user(const struct sp_config *config, uint32_t uid)
{
	uint32_t daemon_uid = 0;
	uint32_t daemon_gid = 0;

	return config->user && config->user[0] != '\0' &&
	       find_account(config->user, &daemon_uid, &daemon_gid) == 0 && daemon_uid == uid;
}

static void check_direct_user(struct sp_config_reader *reader, struct sp_config_pool *pool)
{
	int status;

	if (!pool->direct_user) {
		sp_config_fault_key(reader, "backend",
				    "\"direct\" needs a 'direct_user' that is not root");
		return;
	}
	status = find_account(pool->direct_user, &pool->direct_uid, &pool->direct_gid);
	if (status < 0)
		sp_config_fault_key(reader, "direct_user", "'%s': %s", pool->direct_user,
				    status == -ENOENT ? "no such account"
						      : strerrordesc_np(-status));
	else if (pool->direct_uid == 0 || pool->direct_gid == 0)
		sp_config_fault_key(
			reader, "direct_user",
			"'%s' is root or has root's group; a direct pool isolates nothing",
			pool->direct_user);
	else if (!global_bad(reader, "user") && is_daemons_user(reader->config, pool->direct_uid))
		sp_config_fault_key(
			reader, "direct_user",
			"'%s' is the daemon's own 'user': its programs would command the daemon",
			pool->direct_user);
}

static void check_backend(struct sp_config_reader *reader, struct sp_config_pool *pool)
{
	if (pool_bad(reader, "backend") || pool_bad(reader, "direct_user"))
		return;
	if (!pool->direct) {
		if (pool->direct_user)
			sp_config_fault_key(reader, "direct_user",
					    "has no effect unless 'backend' is \"direct\"");
		return;
	}
	if (!global_bad(reader, "allow_direct") && !reader->config->allow_direct)
		sp_config_fault_key(reader, "backend",
				    "\"direct\" isolates nothing and needs \"allow_direct\": true "
				    "at the top level");
	check_direct_user(reader, pool);
}

static void check_network(struct sp_config_reader *reader, const struct sp_config_pool *pool)
{
	if (pool->network_host && !global_bad(reader, "allow_host_network") &&
	    !reader->config->allow_host_network)
		sp_config_fault_key(reader, "network",
				    "\"host\" reaches the host's services and needs "
				    "\"allow_host_network\": true at the top level");
}

/* Places that init makes itself, or that must come from the root: nothing is laid over them. */
static bool reserved_place(const char *path)
{
	static const char *const places[] = {"/proc", "/dev", "/sys", "/etc"};

	for (size_t i = 0; i < SP_ARRAY_SIZE(places); i++) {
		size_t len = strlen(places[i]);

		if (strncmp(path, places[i], len) == 0 && (path[len] == '\0' || path[len] == '/'))
			return true;
	}
	return false;
}

static void check_layers(struct sp_config_reader *reader, const struct sp_config_pool *pool)
{
	sp_config_enter(reader, "layers");
	for (size_t i = 0; i < pool->layer_count; i++) {
		if (!reserved_place(pool->layers[i]))
			continue;
		sp_config_enter_index(reader, i);
		sp_config_fault(reader,
				"'%s' cannot be a layer: /proc, /dev, /sys and /etc are "
				"the sandbox's own",
				pool->layers[i]);
		sp_config_leave(reader);
	}
	sp_config_leave(reader);
}

/* ---- hooks ---- */

int64_t sp_config_hooks_ms(const struct sp_config_pool *pool)
{
	int64_t ms = 0;

	if (pool->warmup.command_count > 0)
		ms += pool->warmup.timeout_ms;
	/* One attempt may run when the time is over, and then comes the last one. */
	if (pool->readiness.command_count > 0)
		ms += pool->readiness.timeout_ms + 2 * pool->readiness.attempt_timeout_ms;
	return ms;
}

static void check_command(struct sp_config_reader *reader, const char *section,
			  char *const *command, size_t count)
{
	if (count == 0 || command[0][0] != '\0')
		return;
	sp_config_enter(reader, section);
	sp_config_enter(reader, "command");
	sp_config_enter_index(reader, 0);
	sp_config_fault(reader, "must name a program");
	sp_config_leave(reader);
	sp_config_leave(reader);
	sp_config_leave(reader);
}

static void check_hooks(struct sp_config_reader *reader, const struct sp_config_pool *pool)
{
	int64_t hooks_ms = sp_config_hooks_ms(pool);
	char hooks[DURATION_TEXT];
	char create[DURATION_TEXT];

	check_command(reader, "warmup", pool->warmup.command, pool->warmup.command_count);
	check_command(reader, "readiness", pool->readiness.command, pool->readiness.command_count);
	if (pool_bad(reader, "warmup") || pool_bad(reader, "readiness") ||
	    pool_bad(reader, "create_timeout") || hooks_ms == 0 ||
	    pool->policy.create_timeout_ms + hooks_ms <= SP_CONFIG_CREATION_MAX_MS)
		return;
	(void)sp_format_duration(hooks_ms, hooks, sizeof(hooks));
	(void)sp_format_duration(pool->policy.create_timeout_ms, create, sizeof(create));
	sp_config_fault_key(reader, "create_timeout",
			    "%s and what warmup and readiness may take (%s) must not be above 1h "
			    "together",
			    create, hooks);
}

/* The contents decide what a sandbox is; the resolved configuration carries their digest. */
static void check_profile(struct sp_config_reader *reader, struct sp_config_pool *pool)
{
	char digest[17];
	char *text;
	size_t len;
	json_t *profile = NULL;
	json_error_t error;
	int status;

	if (!pool->seccomp_profile || reader->resolved ||
	    sp_config_read_file(reader, pool->seccomp_profile, SP_CONFIG_FILE_MAX, false, &text,
				&len) < 0)
		return;
	status = sp_config_parse_json(text, len, 0, &profile, &error);
	if (status == -ENOMEM)
		reader->status = status;
	else if (status < 0)
		sp_config_fault_in(reader, pool->seccomp_profile, SP_MAX(error.line, 0),
				   "not a seccomp profile in JSON: %s", error.text);
	else if (!json_is_object(profile))
		sp_config_fault_in(reader, pool->seccomp_profile, 1,
				   "not a seccomp profile in JSON: must hold one object");
	json_decref(profile);
	(void)snprintf(digest, sizeof(digest), "%016llx",
		       (unsigned long long)sp_config_hash(SP_CONFIG_HASH_START, text, len));
	free(text);
	free(pool->seccomp_digest);
	pool->seccomp_digest = strdup(digest);
	if (!pool->seccomp_digest)
		reader->status = -ENOMEM;
}

void sp_config_check_pool(struct sp_config_reader *reader, struct sp_config_pool *pool,
			  size_t faults_before)
{
	check_times(reader, &pool->policy);
	check_limits(reader, pool);
	check_backend(reader, pool);
	check_network(reader, pool);
	check_layers(reader, pool);
	check_hooks(reader, pool);
	check_profile(reader, pool);
	resolve_policy(reader, &pool->policy, faults_before);
}

/* ---- the top level ---- */

static void check_uids(struct sp_config_reader *reader)
{
	const struct sp_config *config = reader->config;

	if (global_bad(reader, "uid_base") || global_bad(reader, "uid_count"))
		return;
	if (config->uid_base % ID_RANGE != 0)
		sp_config_fault_key(reader, "uid_base",
				    "must be a multiple of 65536, so that no two ranges overlap");
	else if (config->uid_base + (uint64_t)config->uid_count * ID_RANGE > UINT32_MAX)
		sp_config_fault_key(reader, "uid_count",
				    "%u slots of 65536 ids from %u on do not fit below 2^32",
				    config->uid_count, config->uid_base);
}

static void check_listen(struct sp_config_reader *reader)
{
	const struct sp_config *config = reader->config;
	bool has_tls = config->tls_certificate_file && config->tls_key_file;
	bool tls_known =
		!global_bad(reader, "tls_certificate_file") && !global_bad(reader, "tls_key_file");

	if (global_bad(reader, "listen"))
		return;
	sp_config_enter(reader, "listen");
	for (size_t i = 0; i < config->listen_count; i++) {
		const char *address = config->listen[i];

		sp_config_enter_index(reader, i);
		if (sp_listen_is_tls(address) && !has_tls && tls_known)
			sp_config_fault(reader,
					"'%s' needs 'tls_certificate_file' and "
					"'tls_key_file'",
					address);
		if (sp_listen_is_tcp(address) && !sp_listen_is_tls(address) &&
		    !sp_listen_is_loopback(address) && !config->insecure &&
		    !global_bad(reader, "insecure"))
			sp_config_fault(reader,
					"'%s' is reachable from the network in clear: use tls://, "
					"a loopback address, or \"insecure\": true",
					address);
		sp_config_leave(reader);
	}
	sp_config_leave(reader);
}

void sp_config_check_global(struct sp_config_reader *reader)
{
	check_uids(reader);
	check_listen(reader);
}
