/*
 * Doctor: the Redis that the configuration names: reachable with its credentials, new enough, not
 * evicting, and every function of the library callable by the configured user.
 *
 * Nothing is loaded or written: a function that is called without its arguments refuses before it
 * looks at anything, and that refusal is all that is wanted here.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "supervisor/cli/doctor.h"
#include "supervisor/cli/redis.h"

#define TIMEOUT_MS    (3 * SP_MS_PER_S)
#define VERSION_MIN   7
#define FUNCTION_SIZE 64

static const char *const functions[] = {
	"register", "heartbeat", "publish", "update",     "resync",  "unregister",
	"acquire",  "wait",      "cancel",  "renew",      "release", "stats",
	"resize",   "set_state", "reap",    "drain_host", "info",
};

/* ---- INFO ---- */

/* The value of "name:value" on a line of its own; "" when there is none. */
static void info_value(const char *info, const char *name, char *value, size_t size)
{
	size_t len = strlen(name);

	value[0] = '\0';
	for (const char *line = info; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, name, len) == 0 && line[len] == ':') {
			(void)snprintf(value, size, "%.*s", (int)strcspn(line + len + 1, "\r\n"),
				       line + len + 1);
			return;
		}
	}
}

static int ask_info(struct sp_cli_doctor *doctor, struct sp_cli_reply *reply, struct sp_err *err)
{
	static const char *const argv[] = {"INFO"};

	return sp_cli_redis_command(doctor->cli, argv, SP_ARRAY_SIZE(argv), TIMEOUT_MS, reply, err);
}

static void check_version(struct sp_cli_doctor *doctor, const char *info)
{
	struct sp_cli_finding *finding;
	char version[32];
	char valkey[32];

	info_value(info, "redis_version", version, sizeof(version));
	info_value(info, "valkey_version", valkey, sizeof(valkey));
	if (strtol(version, NULL, 10) >= VERSION_MIN) {
		(void)sp_cli_doctor_report(doctor, "redis version", SP_CLI_PASS, "%s %s",
					   valkey[0] ? "Valkey" : "Redis",
					   valkey[0] ? valkey : version);
		return;
	}
	finding = sp_cli_doctor_report(doctor, "redis version", SP_CLI_FAIL,
				       "'%s' knows no functions", version);
	sp_cli_doctor_fix(finding, "Redis %d or newer, or Valkey", VERSION_MIN);
}

static void check_eviction(struct sp_cli_doctor *doctor, const char *info)
{
	struct sp_cli_finding *finding;
	char policy[32];
	char maximum[32];

	info_value(info, "maxmemory_policy", policy, sizeof(policy));
	info_value(info, "maxmemory_human", maximum, sizeof(maximum));
	if (strcmp(policy, "noeviction") == 0) {
		(void)sp_cli_doctor_report(doctor, "redis eviction", SP_CLI_PASS,
					   "noeviction, maxmemory %s", maximum);
		return;
	}
	/* No second holder comes of it, but acquires that fail for no reason a user can see. */
	finding = sp_cli_doctor_report(doctor, "redis eviction", SP_CLI_WARN,
				       "maxmemory-policy is '%s': under pressure leases and hosts "
				       "are dropped, and told again",
				       policy);
	sp_cli_doctor_fix(finding, "maxmemory-policy noeviction (deploy/redis/redis.conf)");
}

static void check_persistence(struct sp_cli_doctor *doctor, const char *info)
{
	char enabled[8];
	bool appends;

	info_value(info, "aof_enabled", enabled, sizeof(enabled));
	appends = strcmp(enabled, "1") == 0;
	(void)sp_cli_doctor_report(
		doctor, "redis persistence", SP_CLI_PASS,
		appends ? "append-only file"
			: "no append-only file: after a restart of Redis the hosts tell everything "
			  "again, but ended leases are forgotten");
}

/* ---- functions ---- */

/* What FCALL says without arguments: 0 the function was reached, 1 it is not loaded, 2 not
 * permitted, negative otherwise. */
static int probe(struct sp_cli_doctor *doctor, const char *name, const char *key,
		 struct sp_err *err)
{
	bool reads = strcmp(name, "stats") == 0 || strcmp(name, "info") == 0;
	char function[FUNCTION_SIZE];
	const char *argv[] = {reads ? "FCALL_RO" : "FCALL", function, "1", key};
	struct sp_cli_reply reply = {0};
	int status;

	(void)snprintf(function, sizeof(function), "sandpool_v1_%s", name);
	status = sp_cli_redis_command(doctor->cli, argv, SP_ARRAY_SIZE(argv), TIMEOUT_MS, &reply,
				      err);
	sp_cli_reply_done(&reply);
	if (status == 0 || strstr(err->message, "ERR sandpool: "))
		return 0;
	if (strstr(err->message, "Function not found"))
		return 1;
	if (strstr(err->message, "NOPERM") || strstr(err->message, "can't run this command"))
		return 2;
	return status;
}

static void report_denied(struct sp_cli_doctor *doctor, const char *denied)
{
	sp_cli_doctor_fix(
		sp_cli_doctor_report(
			doctor, "redis rights", SP_CLI_FAIL, "user '%s' may not call%.200s",
			doctor->cli->redis.user ? doctor->cli->redis.user : "default", denied),
		"deploy/redis/users.acl has the rights of a supervisor");
}

static void check_functions(struct sp_cli_doctor *doctor)
{
	const char *pool = doctor->config->pool_count > 0 ? doctor->config->pools[0].policy.name
							  : SP_CLI_POOL_DEFAULT;
	struct sp_err err = {0};
	char denied[256] = "";
	struct sp_buf key;
	int result = 0;

	sp_buf_init(&key, 512);
	result = sp_cli_redis_key(doctor->cli, pool, "meta", &key, &err);
	for (size_t i = 0; result >= 0 && result != 1 && i < SP_ARRAY_SIZE(functions); i++) {
		size_t used = strlen(denied);

		result = probe(doctor, functions[i], sp_buf_text(&key), &err);
		if (result == 2)
			(void)snprintf(denied + used, sizeof(denied) - used, " %s", functions[i]);
	}
	sp_buf_done(&key);
	if (result < 0)
		(void)sp_cli_doctor_report(doctor, "redis rights", SP_CLI_FAIL, "%.250s",
					   err.message);
	else if (denied[0])
		report_denied(doctor, denied);
	else if (result == 1)
		(void)sp_cli_doctor_report(doctor, "redis rights", SP_CLI_PASS,
					   "the functions are not loaded yet; a daemon does that");
	else
		(void)sp_cli_doctor_report(doctor, "redis rights", SP_CLI_PASS,
					   "all %zu functions are callable",
					   SP_ARRAY_SIZE(functions));
}

/* ---- all of it ---- */

static void take_settings(struct sp_cli_doctor *doctor)
{
	const struct sp_config_redis *redis = &doctor->config->redis;

	doctor->cli->redis = (struct sp_cli_redis_settings){
		.url = doctor->config->store,
		.user = redis->user,
		.password_file = redis->password_file,
		.sentinel_password_file = redis->sentinel_password_file,
		.ca_file = redis->ca_file,
		.cert_file = redis->cert_file,
		.key_file = redis->key_file,
		.server_name = redis->server_name,
		.prefix = redis->prefix,
	};
}

/* A file that only the service's own environment tells where it is. */
static const char *credential_among(const struct sp_cli_redis_settings *settings)
{
	const char *const files[] = {settings->password_file, settings->sentinel_password_file,
				     settings->ca_file, settings->cert_file, settings->key_file};

	for (size_t i = 0; i < SP_ARRAY_SIZE(files); i++)
		if (files[i] && files[i][0] != '/')
			return files[i];
	return NULL;
}

/* What opening a file for reading gives to somebody: 0 or an errno. */
static int open_as(const struct passwd *user, const char *path)
{
	int wait_status;
	pid_t pid = fork();

	if (pid < 0)
		return errno;
	if (pid == 0) {
		if (initgroups(user->pw_name, user->pw_gid) < 0 || setgid(user->pw_gid) < 0 ||
		    setuid(user->pw_uid) < 0)
			_exit(0);
		_exit(open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK) < 0 ? errno : 0);
	}
	while (waitpid(pid, &wait_status, 0) < 0)
		if (errno != EINTR)
			return errno;
	return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 0;
}

/* We may be root; the daemon opens them at each connect, when it is so no longer. */
static void check_files(struct sp_cli_doctor *doctor)
{
	const struct sp_cli_redis_settings *settings = &doctor->cli->redis;
	const char *const files[] = {settings->password_file, settings->sentinel_password_file,
				     settings->ca_file, settings->cert_file, settings->key_file};
	const struct passwd *user;

	if (geteuid() != 0 || doctor->config->user[0] == '\0')
		return;
	user = getpwnam(doctor->config->user);
	for (size_t i = 0; user && i < SP_ARRAY_SIZE(files); i++) {
		int error = files[i] && files[i][0] ? open_as(user, files[i]) : 0;

		if (error != 0)
			sp_cli_doctor_fix(sp_cli_doctor_report(doctor, "redis files", SP_CLI_FAIL,
							       "'%.150s': user '%.32s' cannot read "
							       "it: %s",
							       files[i], user->pw_name,
							       strerrordesc_np(error)),
					  "chown it to %.32s, who must also get through its "
					  "directories",
					  user->pw_name);
	}
}

void sp_cli_doctor_redis(struct sp_cli_doctor *doctor)
{
	const char *credential;
	struct sp_cli_reply reply = {0};
	struct sp_err err = {0};

	if (!doctor->config || strcmp(doctor->config->store, "memory") == 0)
		return;
	take_settings(doctor);
	credential = credential_among(&doctor->cli->redis);
	if (credential) {
		sp_cli_doctor_fix(sp_cli_doctor_report(doctor, "redis", SP_CLI_WARN,
						       "not looked at: '%.64s' is a credential of "
						       "the service",
						       credential),
				  "the daemon's log says whether its store is up");
		return;
	}
	/* Only comes back when there is no such program. */
	if (!doctor->cli->remote && sp_cli_become_remote(doctor->cli, &err) < 0) {
		(void)sp_cli_doctor_report(doctor, "redis", SP_CLI_FAIL, "%.250s", err.message);
		return;
	}
	check_files(doctor);
	if (ask_info(doctor, &reply, &err) < 0) {
		sp_cli_doctor_fix(
			sp_cli_doctor_report(doctor, "redis", SP_CLI_FAIL, "%.250s", err.message),
			"'store' and 'redis' in '%.100s'; deploy/redis/README.md",
			doctor->config_path);
		return;
	}
	(void)sp_cli_doctor_report(doctor, "redis", SP_CLI_PASS, "reachable");
	check_version(doctor, sp_cli_reply_text(&reply, 0));
	check_eviction(doctor, sp_cli_reply_text(&reply, 0));
	check_persistence(doctor, sp_cli_reply_text(&reply, 0));
	check_functions(doctor);
	sp_cli_reply_done(&reply);
}
